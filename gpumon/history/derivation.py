"""Frames of a past, derived one after another as they were when they were taken."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from gpumon.history.frame_store import NOTED_S, FrameStore, JudgedThing, Note, is_same_verdict, thing_of
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import Frame
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Event, Verdict
from gpumon.triage.fresh import MakeDeriver
from gpumon.triage.triage import rank

WARM_UP_S: Final = 180.0
"""So long before a moment frames are derived and judged for it: rates are of 10 s, quantiles of 60 s, and rules look
back 180 s. What is of longer begins with the warm-up: sums since the start (`Snapshot.counted_since`), the means of 10
minutes and of an hour. The verdicts are those of the log, where the past has one."""
RECENT_S: Final = 125.0
SPARSE_S: Final = 6.0
"""The warm-up derives all frames of its last `RECENT_S`: quantiles are of 60 s, means in evidence of 120 s. Before that
it derives one every `SPARSE_S`: few rules look back further."""
CHUNK_S: Final = 60.0
"""Frames are read by the minute."""


class DerivedMoment(NamedTuple):
    """A moment of the past."""

    wall_s: float
    interval_s: float
    snapshot: Snapshot
    points: Mapping[str, float]


class Derivation:
    """Goes on from a moment of a past, frame by frame. What does not go on from the frame before starts anew."""

    def __init__(self, past: FrameStore, make: MakeDeriver) -> None:
        self._past = past
        self._make = make
        self._log: _Log | None = None
        self._renew()

    def _renew(self) -> None:
        self._deriver, self._triage = self._make()
        self._last: Frame | None = None
        self._counted_since = ""

    def begin(self, wall_s: float) -> Iterator[None]:
        """Get ready to take the first frame at or after a time, in small steps."""
        self._renew()
        self._log = None
        before = []
        for frame in in_order(self._past.frames(wall_s - WARM_UP_S, wall_s)):
            if frame.wall_s < wall_s:
                before.append(frame)
        for frame in _thinned(unbroken(before), wall_s):
            self.take(frame)
            yield
        self._log = _Log(self._past, wall_s)

    def take(self, frame: Frame) -> DerivedMoment:
        """The moment of the next frame."""
        if self._last is not None and not _follows(frame, self._last):
            self._renew()
        if self._last is None:
            self._counted_since = rfc3339(frame.wall_s)
        self._last = frame
        snapshot, points = self._deriver.derive(frame)
        snapshot = self._triage.judge(frame, snapshot)
        snapshot = msgspec.structs.replace(snapshot, counted_since=self._counted_since)
        if self._log is not None:
            stood, events = self._log.at(frame.wall_s)
            verdicts = snapshot.verdicts
            if stood is not None:
                verdicts = _as_noted(snapshot, stood)
            snapshot = msgspec.structs.replace(snapshot, verdicts=verdicts, events=events)
        return DerivedMoment(frame.wall_s, frame.interval_s, snapshot, points)


def _thinned(frames: Sequence[Frame], wall_s: float) -> Iterator[Frame]:
    """The frames before a moment that its figures depend on; counters say the same over fewer frames."""
    last: Frame | None = None
    for frame in frames:
        if last is None or wall_s - frame.wall_s <= RECENT_S or frame.wall_s - last.wall_s >= SPARSE_S:
            last = frame
            yield frame


class _Log:
    """Notes on the verdicts, and events: read on from one moment to the next."""

    def __init__(self, past: FrameStore, wall_s: float) -> None:
        self._past = past
        self._read_s = wall_s
        self._notes = deque(past.notes(wall_s - NOTED_S - CHUNK_S, wall_s))
        self._events: deque[Event] = deque(past.events(wall_s, wall_s))
        self._verdicts: dict[JudgedThing, Verdict] | None = None

    def at(self, wall_s: float) -> tuple[Collection[Verdict] | None, tuple[Event, ...]]:
        """The verdicts at a time, which is later than that of the call before (None where no log has them), and what
        happened between the two."""
        if wall_s > self._read_s:
            self._read_on(wall_s)
        while self._notes and self._notes[0].wall_s <= wall_s:
            self._take(self._notes.popleft())
        events = []
        while self._events and self._events[0].wall_s <= wall_s:
            events.append(self._events.popleft())
        if self._verdicts is None:
            return (None, tuple(events))
        return (self._verdicts.values(), tuple(events))

    def _read_on(self, wall_s: float) -> None:
        """Read the notes and events up to a time, and some behind it."""
        since_s = math.nextafter(self._read_s, math.inf)
        until_s = wall_s
        span = self._past.span()
        if span is not None:
            _, last_s = span
            until_s = max(wall_s, min(wall_s + CHUNK_S, last_s))
        self._notes += self._past.notes(since_s, until_s)
        self._events += self._past.events(since_s, until_s)
        self._read_s = until_s

    def _take(self, note: Note) -> None:
        """Take in a note: all verdicts that stood, or those that came, changed or went since the note before."""
        if note.whole:
            self._verdicts = {}
        if self._verdicts is not None:
            for thing in note.over:
                self._verdicts.pop(thing, None)
            for verdict in note.verdicts:
                self._verdicts[thing_of(verdict)] = verdict


def _as_noted(derived: Snapshot, stood: Collection[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts that stood: with the figures of now where they are worked out again, else as they were noted."""
    now = {thing_of(verdict): verdict for verdict in derived.verdicts}
    verdicts = []
    for noted in stood:
        own = now.get(thing_of(noted))
        if own is not None and is_same_verdict(own, noted):
            verdicts.append(msgspec.structs.replace(own, since=noted.since))
        else:
            verdicts.append(noted)
    places: dict[str, int] = {}
    for engine in derived.engines:
        places[engine.key] = len(places)
    for gpu in derived.gpus:
        places[gpu.uuid] = len(places)
    return tuple(sorted(verdicts, key=lambda verdict: (rank(verdict), places.get(verdict.key, len(places)))))


def _follows(frame: Frame, before: Frame) -> bool:
    """Whether it was taken after the other by the same process."""
    return frame.seq > before.seq and frame.monotonic_s > before.monotonic_s


class _Timed(Protocol):
    """A frame, or points of a chart."""

    @property
    def wall_s(self) -> float:
        """Its Unix time."""


TimedT = TypeVar("TimedT", bound=_Timed)


def in_order(moments: Iterable[TimedT]) -> list[TimedT]:
    """Moments of which each is later than the one before: after a clock was set back, the newest of each time."""
    newest_first: list[TimedT] = []
    for moment in reversed([*moments]):
        if not newest_first or moment.wall_s < newest_first[-1].wall_s:
            newest_first.append(moment)
    return newest_first[::-1]


def unbroken(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The last frames of one process."""
    start = 0
    for place in range(1, len(frames)):
        if not _follows(frames[place], frames[place - 1]):
            start = place
    return frames[start:]


def derived_moments(
    past: FrameStore, derivation: Derivation, from_s: float, to_s: float, every_s: float
) -> Iterator[Snapshot]:
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
