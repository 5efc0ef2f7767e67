"""The topology of this host's GPUs, read by a process that may hang."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import msgspec

from gpumon.readings.text import clean
from gpumon.readings.topology import Topology
from gpumon.sources.driver.source import NVIDIA, spawn, vendor_of

EXIT_UNREADABLE: Final = 3
"""Exit code of the process where the driver cannot be used: its output has the reason."""
_TIMEOUT_S: Final = 60.0
"""Longest wait: without persistence mode a driver opens eight GPUs in half of that."""


class UnreadableTopologyError(Exception):
    """The topology cannot be read; the text says why and what to do."""


def topology() -> Topology:
    """The topology of this host, by the driver of its GPUs, read in a process of its own.

    Blocks. Raises UnreadableTopologyError.
    """
    vendor = vendor_of()
    arguments = ["gpumon.sources.nvml.topology"]
    if vendor is not NVIDIA:
        arguments = ["gpumon.sources.sysfs.topology", vendor.source]
    process = spawn((sys.executable, "-m", *arguments), None)
    try:
        output, errors = process.communicate(timeout=_TIMEOUT_S)
    except KeyboardInterrupt:
        process.kill()  # it is in a session of its own, which Ctrl+C does not reach
        raise
    except subprocess.TimeoutExpired:
        process.kill()
        raise UnreadableTopologyError(f"{vendor.driver} did not answer within {_TIMEOUT_S:g} s: see dmesg") from None
    if process.returncode == EXIT_UNREADABLE:
        raise UnreadableTopologyError(clean(output.decode("utf-8", "replace"), 400))
    if process.returncode:
        last_line = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise UnreadableTopologyError(
            f"the reading of the topology ended with {process.returncode}: {clean(last_line, 200)}"
        )
    try:
        return msgspec.msgpack.decode(output, type=Topology)
    except msgspec.MsgspecError as error:
        raise UnreadableTopologyError(f"the topology cannot be read: {clean(str(error), 200)}") from None
