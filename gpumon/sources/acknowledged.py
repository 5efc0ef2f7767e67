"""The file of acknowledged verdicts in the user's state folder: who knows of which verdict, and until when.

Several gpumons of a user share it: each reads it anew when it has changed, and changes it under a lock. All calls
block: for a thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gpumon.config.ownership import open_lock
from gpumon.readings.text import clean
from gpumon.sources.own_files import read_own, replace_own, service_state_folder
from gpumon.triage.acknowledgement import Acknowledgement

_VERSION: Final = 1
"""Version of the file's format. A file of another version is ignored."""
_MOST_BYTES: Final = 4 << 20
"""Bytes beyond which the file is not one of gpumon."""
MOST_ACKNOWLEDGED: Final = 1000
"""Acknowledgements that are kept; above it the oldest are dropped."""

MOST_WHO: Final = 60
"""Characters of the name of a person."""

Change = Callable[[Sequence[Acknowledgement]], Sequence[Acknowledgement]]
"""Gives the acknowledgements to keep, from those that are kept."""


class _Kept(msgspec.Struct):
    """Contents of the file."""

    version: int
    host: str
    acknowledged: list[Acknowledgement]


def acknowledged_file(environ: Mapping[str, str], *, of_fleet: bool = False) -> Path | None:
    """`acknowledged-HOST.json` in gpumon's state folder, else in the one that systemd gives to a service; None where
    there is none. A home folder may be that of several hosts: each has a file of its own.

    `of_fleet`: the file of what is acknowledged here on hosts of a fleet, `acknowledged-fleet-HOST.json`.
    """
    folder = service_state_folder(environ)
    if folder is None:
        return None
    name = "".join(letter for letter in socket.gethostname() if letter.isalnum() or letter in "-._")[:64]
    kind = "acknowledged-fleet" if of_fleet else "acknowledged"
    return folder / f"{kind}-{name or 'host'}.json"


class AcknowledgementStore:
    """Reads and changes the file. A damaged or foreign file counts as none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._host = socket.gethostname()

    def stamp(self) -> tuple[int, int, int]:
        """A value that is another one once the file is: its inode, size and time; zeros where there is none."""
        try:
            status = self.path.stat()
        except OSError:
            return (0, 0, 0)
        return (status.st_ino, status.st_size, status.st_mtime_ns)

    def read(self) -> tuple[Acknowledgement, ...]:
        """The acknowledgements that are kept."""
        data = read_own(self.path, _MOST_BYTES)
        if data is None:
            return ()
        try:
            kept = msgspec.json.decode(data, type=_Kept)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return ()
        if kept.version != _VERSION or kept.host != self._host:
            return ()
        return tuple(kept.acknowledged)

    def change(self, change: Change) -> tuple[Acknowledgement, ...]:
        """Change what is kept, and return it. Raises OSError."""
        with self._locked():
            before = self.read()
            after = tuple(change(before))[-MOST_ACKNOWLEDGED:]
            if after != before:
                kept = _Kept(version=_VERSION, host=self._host, acknowledged=list(after))
                replace_own(self.path, msgspec.json.encode(kept))
        return after

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Nobody else changes the file meanwhile. Raises OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = open_lock(self.path.with_suffix(".lock"))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def this_user(environ: Mapping[str, str] = os.environ) -> str:
    """Name of the person at the keyboard: the one who called sudo, else the user of this process."""
    name = environ.get("SUDO_USER", "")
    if not name:
        try:
            name = pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            name = f"uid {os.geteuid()}"
    return clean(name, MOST_WHO)


def added(acknowledgements: Sequence[Acknowledgement]) -> Change:
    """The change that adds acknowledgements, in the place of earlier ones of their verdicts."""
    places = {(acknowledgement.host, acknowledgement.id) for acknowledgement in acknowledgements}
    return lambda kept: [*(other for other in kept if (other.host, other.id) not in places), *acknowledgements]


def without(over: Sequence[Acknowledgement]) -> Change:
    """The change that takes out these acknowledgements; one that was set anew meanwhile stays."""
    return lambda kept: [other for other in kept if other not in over]


def one_after_the_other(changes: Sequence[Change]) -> Change:
    """The change that is all these, the first one first."""

    def change(kept: Sequence[Acknowledgement]) -> Sequence[Acknowledgement]:
        for each in changes:
            kept = each(kept)
        return kept

    return change
