"""Paths in the file system of another process (`/proc/PID/root/...`): links in them lead where they lead that process.

Linux follows an absolute link from the root of the one who asks, so that a container's link would lead out of it, to
another file of this host.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

MOST_LINKS: Final = 40
"""That are followed on one way (Linux: MAXSYMLINKS)."""
MOST_PARTS: Final = 256
"""Folders and links on one way: each is a file descriptor until its end is reached."""


def root_of(pid: int) -> str:
    """What stands before the absolute paths of a process."""
    return f"/proc/{pid}/root"


@contextmanager
def resolved(path: Path) -> Iterator[Path]:
    """A path to the same file or folder, to be used inside the block only: another process's own has no link left.

    Each part is opened below the one before it, so that no link which is exchanged meanwhile leads out. OSError where
    there is none, or its links go round in circles.
    """
    begin = path.parts[:4]
    if len(begin) < 4 or (begin[1], begin[3]) != ("proc", "root") or not begin[2].isdecimal():
        yield path
        return
    with ExitStack() as opened:
        yield Path(f"/proc/self/fd/{_walked(Path(*begin), path.parts[4:], opened)}")


def entries(folder: Path, most: int) -> list[Path]:
    """What is in a folder, in no order; empty where that can not be told."""
    try:
        with resolved(folder) as place:
            return [folder / each.name for each in islice(place.iterdir(), most)]
    except OSError:
        return []


def _walked(root: Path, parts: tuple[str, ...], opened: ExitStack) -> int:
    """The descriptor of what these parts lead to below the root; closed with `opened`."""

    def entered(name: str, at: int | None = None, flags: int = os.O_NOFOLLOW) -> int:
        descriptor = os.open(name, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=at)
        opened.callback(os.close, descriptor)
        return descriptor

    way = [entered(str(root), flags=os.O_DIRECTORY)]
    waiting, links = [*reversed(parts)], 0
    for _ in range(MOST_PARTS):
        if not waiting:
            return way[-1]
        part = waiting.pop()
        if part == "..":
            way = way[:-1] or way
            continue
        found = entered(part, way[-1])
        if not stat.S_ISLNK(os.fstat(found).st_mode):
            way.append(found)
            continue
        links += 1
        if links > MOST_LINKS:
            break
        target = Path(os.readlink("", dir_fd=found))
        way = way[:1] if target.is_absolute() else way
        waiting += [each for each in reversed(target.parts) if each != target.anchor]
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(root.joinpath(*parts)))
