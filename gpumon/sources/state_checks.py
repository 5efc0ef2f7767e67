"""The doctor's look at the files that gpumon keeps: those of another user are never read, and nothing else says so."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from gpumon.config.ownership import mend_command, user_name, writable_fault
from gpumon.readings.check import Check, CheckState
from gpumon.sources.own_files import state_folder

_MOST_FILES: Final = 1000
"""Files that are looked at."""
_MOST_NAMED: Final = 5
"""Files that are named, each on a line of its own."""


def state_checks(environ: Mapping[str, str]) -> list[Check]:
    """Files of the state folder that are not read, or that others can write, and folders that cannot be written."""
    folder = state_folder(environ)
    if folder is None:
        text = "no folder is known: what was seen last, acknowledged and sent is not kept"
        return [Check("gpumon", "state", CheckState.WARN, text, "set HOME or XDG_STATE_HOME to an absolute path")]
    checks = []
    for path in islice(_files(folder), _MOST_FILES):
        fault, fix = _fault_of(path)
        if fault:
            checks.append(Check("gpumon", "state", CheckState.WARN, f"{path} {fault}", fix))
        if len(checks) == _MOST_NAMED:
            break
    return checks


def _files(folder: Path) -> Iterator[Path]:
    """The folder, and all that is in it: links to folders in it are not followed. It may be such a link itself."""
    yield folder
    for inside, folders, names in os.walk(folder):
        for name in (*folders, *names):
            yield Path(inside, name)


def _fault_of(path: Path) -> tuple[str, str]:
    """Why a file is not read as gpumon's own, or a folder not written to, with what mends it; else empty."""
    try:
        status = path.lstat()
    except OSError:
        return "", ""
    if path.is_dir():
        own = user_name(os.geteuid())
        if os.access(path, os.W_OK | os.X_OK):
            return "", ""
        fix = mend_command(f"sudo chown {own}", str(path))
        if path.is_symlink():  # chown would give away what it leads to, which may be /etc
            fix = f"it is a link: remove it, or let it lead to a folder of {own}'s"
        return f"cannot be written by {own}: nothing new is kept there", fix
    if stat.S_ISLNK(status.st_mode):
        return "is a link: it is not read", mend_command("rm", str(path))
    if status.st_uid != os.geteuid():
        own = user_name(os.geteuid())
        mend = mend_command(f"sudo chown {own}", str(path))
        return f"belongs to {user_name(status.st_uid)}: it is not read", mend
    fault, _, fix = writable_fault(status, str(path)).partition(": ")
    return fault, fix
