"""Frames of a past, derived one after another as they were when they were taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.deriver import Deriver
from gpumon.history.frame_store import FrameStore
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import Frame
from gpumon.readings.snapshot import Snapshot, Verdict
from gpumon.readings.verdict import Limit
from gpumon.triage.triage import Triage

WARM_UP_S: Final = 180.0
"""So long before a moment frames are derived and judged for it: rates are of 10 s, quantiles of 60 s, and rules look
back 180 s. What is of longer begins with the warm-up: sums since the start (`Snapshot.counted_since`), the means of 10
minutes and of an hour, and verdicts on what has to last for more than 3 minutes."""
LOOK_BACK_S: Final = 86_400.0
"""So far back the events of a verdict tell since when it stands."""
CHUNK_S: Final = 60.0
"""Frames are read by the minute."""

Make = Callable[[], tuple[Deriver, Triage]]


class Derived(NamedTuple):
    """A moment of the past."""

    wall_s: float
    interval_s: float
    snapshot: Snapshot
    points: Mapping[str, float]


class Derivation:
    """Goes on from a moment of a past, frame by frame. What does not go on from the frame before starts anew."""

    def __init__(self, past: FrameStore, make: Make) -> None:
        self._past = past
        self._make = make
        self._renew()

    def _renew(self) -> None:
        self._deriver, self._triage = self._make()
        self._last: Frame | None = None
        self._counted_since = self._opened = ""
        self._given: dict[tuple[str, Limit], str] = {}
        """Thing and verdict -> since when it stood, by the events before the moment that was opened (RFC 3339)."""

    def begin(self, wall_s: float) -> Iterator[None]:
        """Get ready to take the first frame at or after a time, in small steps."""
        self._renew()
        before = self._past.frames(wall_s - WARM_UP_S, wall_s)
        for frame in unbroken([frame for frame in in_order(before) if frame.wall_s < wall_s]):
            self.take(frame)
            yield
        self._opened = rfc3339(wall_s)
        for event in self._past.events(wall_s - LOOK_BACK_S, wall_s):
            if event.verdict is not None and event.since_s:
                self._given[event.key, event.verdict.code] = rfc3339(event.since_s)

    def take(self, frame: Frame) -> Derived:
        """The moment of the next frame."""
        if self._last is not None and not _follows(frame, self._last):
            self._renew()
        if self._last is None:
            self._counted_since = rfc3339(frame.wall_s)
        self._last = frame
        snapshot, points = self._deriver.derive(frame)
        snapshot = self._triage.judge(frame, snapshot)
        verdicts = tuple(map(self._dated, snapshot.verdicts))
        snapshot = msgspec.structs.replace(snapshot, verdicts=verdicts, counted_since=self._counted_since)
        return Derived(frame.wall_s, frame.interval_s, snapshot, points)

    def _dated(self, verdict: Verdict) -> Verdict:
        """A verdict that stood when the past was opened, since when its event says: the warm-up is shorter."""
        since = self._given.get((verdict.key, verdict.code))
        is_older = since is not None and verdict.since < self._opened
        return msgspec.structs.replace(verdict, since=since) if is_older else verdict


def _follows(frame: Frame, before: Frame) -> bool:
    """Whether it was taken after the other by the same process."""
    return frame.seq > before.seq and frame.monotonic_s > before.monotonic_s


def in_order(frames: Iterable[Frame]) -> list[Frame]:
    """Frames of which each is later than the one before: after a clock was set back, the newest of each time."""
    found: list[Frame] = []
    for frame in reversed([*frames]):
        if not found or frame.wall_s < found[-1].wall_s:
            found.append(frame)
    return found[::-1]


def unbroken(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The last frames of one process."""
    start = max((at for at in range(1, len(frames)) if not _follows(frames[at], frames[at - 1])), default=0)
    return frames[start:]


def moments(past: FrameStore, derivation: Derivation, from_s: float, to_s: float, every_s: float) -> Iterator[Snapshot]:
    """Every frame is derived, since rates stand on the frames before; of those moments one per `every_s` is given."""
    for _ in derivation.begin(from_s):
        pass
    next_s = from_s
    chunk_s: float | None = from_s
    while chunk_s is not None and chunk_s <= to_s:
        end_s = min(to_s, chunk_s + CHUNK_S)
        for frame in in_order(past.frames(chunk_s, end_s)):
            taken = derivation.take(frame)
            if taken.wall_s >= next_s:
                next_s = taken.wall_s + every_s
                yield taken.snapshot
        chunk_s = past.after(end_s)
