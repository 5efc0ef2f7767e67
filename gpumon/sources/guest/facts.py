"""Facts of a Python that decide which compiled modules it loads.

This file is also sent to hosts and run there by whatever Python 3 they have: it is written for Python 3.6, and imports
nothing of gpumon.
"""

import json
import os
import platform
import re
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path


def python_facts() -> "dict[str, object]":
    """Version, build, architecture and C library of the Python that runs this."""
    libc, libc_version = _libc()
    return {
        "version": list(sys.version_info[:2]),
        "implementation": sys.implementation.name,
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "machine": platform.machine(),
        "bits": struct.calcsize("P") * 8,
        "libc": libc,
        "libc_version": libc_version,
    }


def _libc() -> "tuple[str, list[int]]":
    """Name and version of the C library; an empty name where neither glibc nor musl is found."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        name = ""
        version = ""
    if name == "glibc":
        return name, _numbers(version)
    for loader in Path("/lib").glob("ld-musl-*.so.1"):
        printed = subprocess.run([str(loader)], stderr=subprocess.PIPE, check=False).stderr.decode("utf-8", "replace")
        return "musl", _numbers(printed.partition("Version ")[2])
    return "", [0, 0]


def _numbers(version: str) -> "list[int]":
    """The first two numbers of a version."""
    matched = re.match(r"([0-9]+)\.([0-9]+)", version)
    if matched:
        return [int(matched.group(1)), int(matched.group(2))]
    return [0, 0]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(python_facts()) + "\n")
    sys.exit(sys.version_info < (3, 10))
