"""The memory of threads. Nothing else is imported here: the command line asks for it before it imports asyncio."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Final

_M_ARENA_MAX: Final = -8
"""Parameter of glibc's `mallopt`: most arenas that threads get their memory from."""


@cache
def share_arena() -> None:
    """Have all threads that come take their memory from one place; without glibc nothing changes.

    It is called before the first of them: that would have an arena of its own.

    Each would get an arena of its own, and what one thread leaves there no other uses: beside engines that come and go
    RSS grew by 25 MB from the first hour to the second.
    """
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import ctypes  # takes 2 ms, which a command without threads need not wait for

        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
