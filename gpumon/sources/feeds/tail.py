"""The last lines of a file that somebody appends to: read in a thread, bounded, and only when the file changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.sources.model_files import open_regular

WINDOW_BYTES: Final = 64 * 1024
"""Read from the end of the file; a longer line is no step of a training loop."""
MOST_LINES: Final = 256


class TooLongError(ValueError):
    """The last line is longer than the window."""


class Lines(NamedTuple):
    """What a look at the file gave."""

    lines: tuple[bytes, ...]
    """The last complete lines that are not blank, the oldest first; empty for an empty file."""
    changed_wall_s: float
    """When the file last changed, by its file system (Unix time)."""


class Tail:
    """One file by its path; what lies there may be replaced, truncated, or not be there yet."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: tuple[int, ...] = ()

    def look(self) -> Lines | None:
        """Its last lines; None where nothing changed since the last look that gave some. Blocks as files do.

        Raises OSError where it cannot be read or is no regular file, TooLongError.
        """
        found = self._path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{self._path.name} is no regular file")
        if _sign(found) == self._seen:
            return None
        with open_regular(self._path) as file:
            now = os.fstat(file.fileno())
            begin = max(0, now.st_size - WINDOW_BYTES)
            file.seek(begin)
            window = file.read(WINDOW_BYTES)
        complete = window[: window.rfind(b"\n") + 1]
        lines = complete.splitlines()
        if begin:
            # The first one has lost its beginning.
            lines = lines[1:]
            if not lines:
                raise TooLongError(f"its last line is longer than {WINDOW_BYTES // 1024} KiB")
        self._seen = _sign(now)
        return Lines(tuple(line for line in lines if line.strip())[-MOST_LINES:], now.st_mtime)


def _sign(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
