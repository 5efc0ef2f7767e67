"""The file of last-seen engines and GPUs in the user's state folder. All calls block: for a thread."""

from __future__ import annotations

import contextlib
import math
import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gpumon.sources.last_seen.processes.origin import boot_id, place
from gpumon.sources.last_seen.records import (
    MOST_REMEMBERED_ENGINES,
    SHOWN_AFTER_END_S,
    KnownEngine,
    Listed,
    Sight,
    WrittenMemory,
    without_bulk,
)
from gpumon.sources.own_files import read_own, replace_own, state_folder

_VERSION: Final = 1
"""Version of the file's format. A file of another version is ignored, and what it remembered is lost."""
_MOST_STORE_BYTES: Final = 4 << 20
"""Bytes beyond which the file is not one of gpumon: 64 records of `MOST_RECORD_BYTES` fit."""
MOST_RECORD_BYTES: Final = 64 << 10
"""Bytes beyond which a record (a server of a hundred ranks) is left out."""
_MOST_GPUS: Final = 256
"""GPUs that are remembered."""


def state_file(environ: Mapping[str, str]) -> Path | None:
    """`gpumon/engines-HOST.json` in the user's XDG state folder; None where no such folder is known.

    A home folder may be that of several hosts: each has a file of its own.
    """
    name = "".join(letter for letter in socket.gethostname() if letter.isalnum() or letter in "-._")[:64]
    folder = state_folder(environ)
    if folder is not None:
        return folder / f"engines-{name or 'host'}.json"
    return None


def _add_newer(
    newest: dict[str, KnownEngine], foreign: Iterable[KnownEngine], dropped: Mapping[str, float], wall_s: float
) -> None:
    """Add those records of another gpumon (`foreign`) to `newest` that are newer than its own.

    An engine that this gpumon has forgotten (`dropped`: key -> Unix time of that) comes back only by a later record.
    """
    for record in foreign:
        key = record.reading.key
        if key in newest:
            own_wall_s = newest[key].changed_wall_s
        elif len(newest) < MOST_REMEMBERED_ENGINES:
            own_wall_s = dropped.get(key, -math.inf)
        else:  # there is no room
            continue
        if record.changed_wall_s > own_wall_s and _is_current(record, wall_s):
            newest[key] = record


def _writable_records(engines: Iterable[KnownEngine]) -> list[KnownEngine]:
    """The records as they are written; one that is too large, or no JSON, is left out."""
    records = []
    for engine in engines:
        record = msgspec.structs.replace(engine, reading=without_bulk(engine.reading))
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            if len(msgspec.json.encode(record)) <= MOST_RECORD_BYTES:
                records.append(record)
    return records


def newest_sights(sights: Iterable[Sight], wall_s: float) -> list[Sight]:
    """The sights of the last day, in which each GPU that somebody was asked for stands once: where it was seen last."""
    newest: dict[tuple[str, str], tuple[Listed, Sight]] = {}
    for sight in sights:
        for gpu in sight.gpus:
            key = (sight.asked, gpu.uuid)
            if not 0.0 <= wall_s - gpu.listed_wall_s <= SHOWN_AFTER_END_S:
                continue
            if key not in newest or newest[key][0].listed_wall_s < gpu.listed_wall_s:
                newest[key] = (gpu, sight)
    latest = sorted(newest.values(), key=lambda pair: -pair[0].listed_wall_s)[:_MOST_GPUS]
    by_run: dict[tuple[str, int, int, str], Sight] = {}
    for gpu, sight in latest:
        run = (sight.asked, sight.pid, sight.count, repr(sight.view))
        if run not in by_run:
            by_run[run] = Sight(sight.asked, sight.pid, sight.count, sight.view, [])
        by_run[run].gpus.append(gpu)
    return list(by_run.values())


class LastSeenStore:
    """Reads and writes the file. A damaged or foreign file counts as none; a failed write is no error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._host = socket.gethostname()
        self._place = place()

    def read(self, wall_s: float) -> WrittenMemory:
        """The memory that an earlier run wrote, without what is too old; an empty one where there is none.

        If it was written before a reboot, `WrittenMemory.boot` differs from `boot_id`.
        """
        written = self._read()
        if written is None:
            return WrittenMemory(version=_VERSION, host=self._host, boot=boot_id())
        engines = [record for record in written.engines if self._is_own(record) and _is_current(record, wall_s)]
        written.engines = engines[:MOST_REMEMBERED_ENGINES]
        written.sights = newest_sights(written.sights, wall_s)
        return written

    def write(
        self,
        engines: Iterable[KnownEngine],
        sights: Iterable[Sight],
        dropped: Mapping[str, float],
        wall_s: float,
    ) -> bool:
        """Write the file anew; returns whether that succeeded.

        Another gpumon may have written its engines meanwhile: of each engine the newer record is kept. What was seen
        from another container stays for those who run there.
        """
        newest = {record.reading.key: record for record in engines}
        for record in newest.values():
            record.place = self._place
        seen = list(sights)
        foreign = self._read()
        elsewhere: list[KnownEngine] = []
        if not newest and not seen and not os.path.lexists(self._path):
            # Nothing was seen: no file and no folder is made for that.
            return True
        if foreign is not None:
            _add_newer(newest, filter(self._is_own, foreign.engines), dropped, wall_s)
            elsewhere = [record for record in foreign.engines if not self._is_own(record)]
            if foreign.boot == boot_id():
                seen += foreign.sights
        current = [record for record in elsewhere if _is_current(record, wall_s)]
        written = WrittenMemory(
            version=_VERSION,
            host=self._host,
            boot=boot_id(),
            engines=_writable_records([*newest.values(), *current[: MOST_REMEMBERED_ENGINES - len(newest)]]),
            sights=newest_sights(seen, wall_s),
        )
        try:
            self._replace(msgspec.json.encode(written))
        except (OSError, msgspec.MsgspecError, ValueError):
            return False
        return True

    def _is_own(self, record: KnownEngine) -> bool:
        """Whether an engine was seen from where this process runs."""
        return bool(self._place) and record.place == self._place

    def _read(self) -> WrittenMemory | None:
        """Contents of the file; None where it is damaged, or of another host or version."""
        data = read_own(self._path, _MOST_STORE_BYTES)
        if data is None:
            return None
        try:
            written = msgspec.json.decode(data, type=WrittenMemory)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        if written.version == _VERSION and written.host == self._host:
            return written
        return None

    def _replace(self, data: bytes) -> None:
        """Write the file anew, with its folder. Raises OSError."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_own(self._path, data)


def _is_current(record: KnownEngine, wall_s: float) -> bool:
    """Whether a record is worth remembering: an engine that was not seen for a day is no news, and a record from the
    future was dated by a wrong clock."""
    return abs(wall_s - record.changed_wall_s) <= SHOWN_AFTER_END_S
