"""With whose rights files are opened that a process or a server names."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.config.ownership import user_name
from gpumon.sources.sockets import LocalAddress, find_listeners, locate, reached

READ_BIT: Final = 4
"""Mode bit that lets a user read a file or list a folder."""
PASS_BIT: Final = 1
"""Mode bit that lets a user pass through a folder."""


class ReadingUser(NamedTuple):
    """A user of this host whose rights bound what is opened; access-control lists are not looked at."""

    uid: int
    gids: frozenset[int] = frozenset()

    def may(self, status: os.stat_result, wanted: int) -> bool:
        """Whether the mode bits grant `wanted` (`READ_BIT`, `PASS_BIT`) to this user."""
        # Bits of the owner, of the group, or of all others.
        shift = 0
        if status.st_uid == self.uid:
            shift = 6
        elif status.st_gid in self.gids:
            shift = 3
        return status.st_mode >> shift & wanted == wanted

    @property
    def name(self) -> str:
        """The user in words."""
        if self == ANYBODY:
            return "an engine whose user is not known"
        return f"the engine's user {user_name(self.uid)}"


_FILE_SYSTEM_ID: Final = 3
"""Position of the id by which Linux checks file access among the four of `Uid:` and `Gid:` (proc_pid_status(5))."""
ANYBODY: Final = ReadingUser(-1)
"""Owns nothing and is in no group."""


def reader_of(pid: int) -> ReadingUser | None:
    """The user whose rights count for what this process names; None where those of gpumon itself do."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return ANYBODY
    entries = (line.partition(":") for line in lines)
    ids = {name: words.split() for name, _, words in entries}
    uid = ids["Uid"][_FILE_SYSTEM_ID]
    gids = (*ids["Groups"], ids["Gid"][_FILE_SYSTEM_ID])
    return _reader_for(int(uid), frozenset(map(int, gids)))


def reader_at(url: str) -> ReadingUser | None:
    """The user whose rights count for what the server at a URL names; None where those of gpumon itself do.

    May wait for a name server or a user directory.
    """
    place = locate(url)
    if isinstance(place, LocalAddress):
        uids = {listener.uid for listener in reached(place, find_listeners())}
    else:
        uids = set()
    if len(uids) != 1:
        return ANYBODY
    (uid,) = uids
    return reader_with(uid)


def reader_with(uid: int) -> ReadingUser | None:
    """The user whose rights count for what a process of his named (negative: not known); None where those of gpumon do.

    May wait for a user directory.
    """
    if uid < 0:
        return ANYBODY
    try:
        user = pwd.getpwuid(uid)
        return _reader_for(uid, frozenset(os.getgrouplist(user.pw_name, user.pw_gid)))
    except KeyError:
        return _reader_for(uid, frozenset())


def _reader_for(uid: int, gids: frozenset[int]) -> ReadingUser | None:
    """The user with whose rights files are opened; None for gpumon's own.

    Root of a container is not root of its host: for gpumon without root's rights it is anybody.
    """
    if uid == os.geteuid():
        return None
    if uid:
        return ReadingUser(uid, gids)
    return ANYBODY
