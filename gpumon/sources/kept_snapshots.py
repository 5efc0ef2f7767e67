"""Snapshots that one host of a fleet sent in the last minutes, packed: a whole one, then differences, then a whole one
again; of a host without gpumon the readings of each look."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.readings import difference
from gpumon.sources.guest.bare_host import Readings
from gpumon.sources.snapshot_json import parse_snapshot

KeptSnapshot = dict[str, Any] | Readings
"""A snapshot as a JSON object, or the readings of a host without gpumon."""
LONGEST_RUN: Final = 30
"""Snapshots of a run, of which the first is kept whole: to go back to the last one, all others are read."""
LARGEST_RUN: Final = 0.25
"""Share of the bytes of a host that a run may take: the oldest run is dropped as a whole."""


class _Packed(NamedTuple):
    """A snapshot or a difference as it was received, or readings as an array of msgpack, which no JSON object is."""

    wall_s: float
    line: bytes


class KeptSnapshots:
    """One thread adds snapshots, others may read them."""

    def __init__(self) -> None:
        self._runs: deque[list[_Packed]] = deque()
        """Each begins with a whole snapshot; differences follow."""
        self._bytes = 0
        self._run_bytes = 0
        """Bytes of the last run."""

    @property
    def first_s(self) -> float | None:
        """Unix time of the oldest; None: there is none."""
        if self._runs:
            return self._runs[0][0].wall_s
        return None

    def takes_difference(self, most_bytes: float) -> bool:
        """Whether a difference may come next; else a whole one has to."""
        if not self._runs:
            return False
        return len(self._runs[-1]) < LONGEST_RUN and self._run_bytes < LARGEST_RUN * most_bytes

    def add(self, wall_s: float, line: bytes, *, whole: bool) -> None:
        """Keep a whole snapshot, readings, or how a snapshot differs from the one before. `wall_s` (Unix time): when it
        was received."""
        packed = _Packed(wall_s, zlib.compress(line, 1))
        if whole:
            self._runs.append([packed])
            self._run_bytes = 0
        else:
            self._runs[-1].append(packed)
        self._bytes += len(packed.line)
        self._run_bytes += len(packed.line)

    def drop_old(self, oldest_s: float, most_bytes: float) -> None:
        """Drop what is older than a Unix time, and the oldest beyond so many bytes. The newest stay."""
        while len(self._runs) > 1 and (self._bytes > most_bytes or self._runs[0][0].wall_s < oldest_s):
            self._bytes -= sum(len(packed.line) for packed in self._runs.popleft())

    def at(self, wall_s: float) -> tuple[float, KeptSnapshot] | None:
        """The newest at or before a Unix time, and when it was received; None: there is none."""
        runs = list(self._runs)  # snapshots go on arriving
        place = bisect_right(runs, wall_s, key=lambda run: run[0].wall_s) - 1
        if place < 0:
            return None
        snapshots = list(_unpack(runs[place], wall_s))
        if not snapshots:  # the clock was set back meanwhile
            return None
        return snapshots[-1]

    def between(self, start_s: float, end_s: float) -> Iterator[tuple[float, KeptSnapshot]]:
        """All that were received from one Unix time to another, the oldest first, as `at` gives them."""
        for run in list(self._runs):
            if run[-1].wall_s < start_s:
                continue
            for received_s, document in _unpack(run, end_s):
                if received_s >= start_s:
                    yield received_s, document


def _unpack(run: list[_Packed], end_s: float) -> Iterator[tuple[float, KeptSnapshot]]:
    """Snapshots and readings of a run up to `end_s`."""
    document: dict[str, Any] = {}
    for packed in list(run):
        if packed.wall_s > end_s:
            return
        line = zlib.decompress(packed.line)
        if line.startswith(b"{"):
            document = _apply_line(document, parse_snapshot(line))
            yield packed.wall_s, document
        else:
            yield packed.wall_s, msgspec.msgpack.decode(line, type=Readings)


def _apply_line(document: dict[str, Any], line: dict[str, Any]) -> dict[str, Any]:
    """The snapshot after a line: a whole one, or a difference."""
    if difference.KEY not in line:
        return line
    changed: dict[str, Any] = difference.apply_difference(document, line[difference.KEY])
    return changed
