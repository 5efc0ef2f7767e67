"""Reads the snapshots that one host of a fleet sends, and keeps those of the last half hour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from gpumon.readings import difference
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.guest.bare_host import Readings
from gpumon.sources.kept_snapshots import KeptSnapshot, KeptSnapshots
from gpumon.sources.snapshot_json import SnapshotReader, parse_snapshot
from gpumon.triage.peers import SnapshotSize, check_size, size_of

_KEPT_S: Final = 1800.0
"""Seconds for which snapshots are kept."""
_LEAST_STEP_RATIO: Final = 0.9
"""Part of a step after which a snapshot belongs to the next one: snapshots do not arrive on the dot."""


class ReceivedSnapshots:
    """The newest snapshot of a host, and those before it. One thread adds snapshots, others may read them."""

    def __init__(self, wall: Callable[[], float]) -> None:
        """`wall`: clock of Unix time."""
        self._wall = wall
        self._document: dict[str, Any] | None = None
        """JSON object of the newest snapshot of this connection, for the difference that follows."""
        self._size = SnapshotSize(0, 0, 0)
        """Upper bound of the size of `_document`: each difference adds its own size."""
        self._reader = SnapshotReader()
        self.newest: tuple[float, Snapshot | Readings] | None = None
        """Unix time of the newest snapshot, and the snapshot; or the readings of a host without gpumon."""
        self._kept = KeptSnapshots()

    @property
    def first_s(self) -> float | None:
        """Unix time of the oldest snapshot that is kept; None while there is none."""
        return self._kept.first_s

    @property
    def is_connection_silent(self) -> bool:
        """Whether no snapshot has come since `begin_connection`."""
        return self._document is None

    def begin_connection(self) -> None:
        """Expect a whole snapshot: a gpumon sends differences only to what it has sent over the same connection."""
        self._document = None

    def add_line(self, line: bytes, most_bytes: float) -> None:
        """Decode a snapshot or a difference and keep it. Raises PeerError beyond the bounds, else ValueError.

        `most_bytes`: packed bytes of this host that are kept.
        """
        wall_s = self._wall()
        document = parse_snapshot(line)
        size = size_of(line)
        is_whole = difference.KEY not in document
        if not is_whole:
            document = self._apply_difference(document[difference.KEY])
            size = self._size.grown_by(size)
            if size.excess or not self._kept.takes_difference(most_bytes):
                # The sum is an upper bound: only the whole document shows whether it is beyond the bounds.
                is_whole = True
                line = msgspec.json.encode(document)
                check_size(line)
                size = size_of(line)
        snapshot = self._reader.read(document, wall_s)
        self._document = document
        self._size = size
        self.newest = (wall_s, snapshot)
        self._keep(wall_s, line, most_bytes, whole=is_whole)

    def add_readings(self, readings: Readings, most_bytes: float) -> None:
        """Keep what was read from a host without gpumon."""
        wall_s = self._wall()
        self.newest = (wall_s, readings)
        # An array of msgpack is no JSON object: so the two are told apart.
        self._keep(wall_s, msgspec.msgpack.encode(readings), most_bytes, whole=True)

    def at(self, wall_s: float) -> tuple[float, KeptSnapshot] | None:
        """The newest snapshot at or before a Unix time, and when it was received; None where none is kept."""
        return self._kept.at(wall_s)

    def between(self, start_s: float, end_s: float, step_s: float) -> Iterator[tuple[float, KeptSnapshot]]:
        """The snapshots kept from one Unix time to another, each with the time of its arrival, at most one a step."""
        last_s: float | None = None
        for received_s, kept in self._kept.between(start_s, end_s):
            if last_s is None or received_s - last_s >= _LEAST_STEP_RATIO * step_s:
                last_s = received_s
                yield received_s, kept

    def _keep(self, wall_s: float, line: bytes, most_bytes: float, *, whole: bool) -> None:
        """Keep a moment for charts and for going back; the oldest make room for it."""
        self._kept.add(wall_s, line, whole=whole)
        self._kept.drop_old(wall_s - _KEPT_S, most_bytes)

    def _apply_difference(self, changes: Any) -> dict[str, Any]:
        """The document after a difference to the newest one. Raises ValueError."""
        if self._document is None:
            raise ValueError("its gpumon tells what changed since a snapshot that it did not send")
        try:
            document: dict[str, Any] = difference.apply_difference(self._document, changes)
        except ValueError:
            raise ValueError("its gpumon tells a difference that makes no sense: update the older of the two") from None
        return document
