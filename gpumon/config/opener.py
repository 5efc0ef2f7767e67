"""Opens files that are checked before they are read."""

from __future__ import annotations

import os
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path

FileCheck = Callable[[int, Path], None]
"""Raises an error of its own where an open file, by its descriptor and path, is not to be read."""


def open_checked(path: Path, *checks: FileCheck) -> BufferedReader:
    """A file that passes the checks, open for reading; at once, also where it is a pipe that nobody writes into.

    Raises OSError, ValueError, and what a check raises.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        for check in checks:
            check(descriptor, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:  # whatever it is, the descriptor is not left open
        os.close(descriptor)
        raise
