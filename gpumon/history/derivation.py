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
from gpumon.triage.idle_time import with_beginning
from gpumon.triage.triage import rank

WARM_UP_S: Final = 180.0
"""Seconds before a moment of which frames are derived and judged for it.

Rates are of 10 s, quantiles of 60 s, and rules look back 180 s. Figures of longer times begin with the warm-up: sums
since the start (`Snapshot.counted_since`), the means of 10 minutes and of an hour. The verdicts are those of the log,
where the past has one.
"""
DENSE_S: Final = 125.0
"""Last seconds of the warm-up, of which all frames are derived: quantiles are of 60 s, means in evidence of 120 s."""
_SPARSE_STEP_S: Final = 6.0
"""Seconds between two frames that the warm-up derives before that: few rules look back further."""
CHUNK_S: Final = 60.0
"""Seconds of frames that are read at a time."""


class DerivedMoment(NamedTuple):
    """A moment of a past, with what was derived of its frame."""

    wall_s: float
    """Unix time."""
    interval_s: float
    """Seconds since the frame before, as they were meant to be."""
    snapshot: Snapshot
    points: Mapping[str, float]
    """Name of a series of the charts -> its value; NaN is a gap."""


class Derivation:
    """Derives the frames of a past one after another; begins anew at a frame that does not follow the one before."""

    def __init__(self, past: FrameStore, make: MakeDeriver) -> None:
        self._past = past
        self._make = make
        self._recorded: _VerdictsAndEvents | None = None
        """The notes of the past; None while warming up: verdicts and events are then those that were derived."""
        self._renew()

    def _renew(self) -> None:
        """Begin anew: with a deriver and a triage that have seen nothing."""
        self._deriver, self._triage = self._make()
        self._last: Frame | None = None
        self._counted_since = ""

    def warm_up(self, wall_s: float) -> None:
        """Get ready for the first frame at or after a time: derive the frames of the time before."""
        for _ in self.warm_up_steps(wall_s):
            pass

    def warm_up_steps(self, wall_s: float) -> Iterator[None]:
        """`warm_up` in steps: each derives one frame, so that something else may be done in between."""
        self._renew()
        self._recorded = None
        frames = deque(self._warm_up_frames(wall_s))
        while frames:
            self.take(frames.popleft())  # a frame that is derived is kept no longer: all of them take 10 MB
            yield
        self._recorded = _VerdictsAndEvents(self._past, wall_s)

    def _warm_up_frames(self, wall_s: float) -> Iterator[Frame]:
        """The frames before a moment that its figures depend on; counters say the same over fewer frames."""
        before = [frame for frame in in_order(self._past.frames(wall_s - WARM_UP_S, wall_s)) if frame.wall_s < wall_s]
        last: Frame | None = None
        for frame in last_process_frames(before):
            if last is None or wall_s - frame.wall_s <= DENSE_S or frame.wall_s - last.wall_s >= _SPARSE_STEP_S:
                last = frame
                yield frame

    def take(self, frame: Frame) -> DerivedMoment:
        """The moment of the next frame."""
        if self._last is not None and not _follows(frame, self._last):
            self._renew()
        if self._last is None:
            self._counted_since = rfc3339(frame.wall_s)
        self._last = frame
        snapshot, points, vetted = self._deriver.derive(frame)
        snapshot = self._triage.judge(vetted, snapshot)
        snapshot = msgspec.structs.replace(snapshot, counted_since=self._counted_since)
        if self._recorded is not None:
            noted_verdicts, events = self._recorded.read_to(frame.wall_s)
            verdicts = snapshot.verdicts
            if noted_verdicts is not None:
                verdicts = _merge_noted_verdicts(snapshot, noted_verdicts)
            snapshot = msgspec.structs.replace(snapshot, verdicts=verdicts, events=events)
        return DerivedMoment(frame.wall_s, frame.interval_s, snapshot, points)


class _VerdictsAndEvents:
    """Verdicts and events of a past as they were noted, read on from one moment to the next."""

    def __init__(self, past: FrameStore, wall_s: float) -> None:
        self._past = past
        self._read_s = wall_s
        """Up to when notes and events are read."""
        self._notes = deque(past.notes(wall_s - NOTED_S - CHUNK_S, wall_s))
        self._events: deque[Event] = deque(past.events(wall_s, wall_s))
        self._verdicts: dict[JudgedThing, Verdict] | None = None

    def read_to(self, wall_s: float) -> tuple[Collection[Verdict] | None, tuple[Event, ...]]:
        """The verdicts that stood at a time (None where they were not noted), and the events since the call before.

        The time is later than that of the call before.
        """
        if wall_s > self._read_s:
            self._read_on(wall_s)
        while self._notes and self._notes[0].wall_s <= wall_s:
            self._apply(self._notes.popleft())
        events = []
        while self._events and self._events[0].wall_s <= wall_s:
            events.append(self._events.popleft())
        if self._verdicts is None:
            return (None, tuple(events))
        return (self._verdicts.values(), tuple(events))

    def _read_on(self, wall_s: float) -> None:
        """Read the notes and events up to a time, and those of the minute behind it: less often is cheaper."""
        since_s = math.nextafter(self._read_s, math.inf)
        until_s = wall_s
        span = self._past.span()
        if span is not None:
            _, last_s = span
            until_s = max(wall_s, min(wall_s + CHUNK_S, last_s))
        self._notes += self._past.notes(since_s, until_s)
        self._events += self._past.events(since_s, until_s)
        self._read_s = until_s

    def _apply(self, note: Note) -> None:
        """Take in a note: all verdicts that stood, or those that came, changed or went since the note before."""
        if note.whole:
            self._verdicts = {}
        if self._verdicts is not None:  # changes alone say nothing of what stood before
            for thing in note.over:
                self._verdicts.pop(thing, None)
            for verdict in note.verdicts:
                self._verdicts[thing_of(verdict)] = verdict


def _merge_noted_verdicts(snapshot: Snapshot, noted_verdicts: Collection[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts that were noted, the most urgent first: with the figures of now where the snapshot has them too."""
    derived = {thing_of(verdict): verdict for verdict in snapshot.verdicts}
    verdicts = []
    for noted in noted_verdicts:
        verdict = derived.get(thing_of(noted))
        if verdict is None or not is_same_verdict(verdict, noted):
            verdict = noted
        verdicts.append(with_beginning(verdict, noted.since, snapshot.wall_s))
    places: dict[str, int] = {}
    for engine in snapshot.engines:
        places[engine.key] = len(places)
    for gpu in snapshot.gpus:
        places[gpu.reading.uuid] = len(places)
    return tuple(sorted(verdicts, key=lambda verdict: (rank(verdict), places.get(verdict.key, len(places)))))


def _follows(frame: Frame, before: Frame) -> bool:
    """Whether a frame was taken after another by the same process."""
    return frame.seq > before.seq and frame.monotonic_s > before.monotonic_s


class _Timed(Protocol):
    """A frame, or points of a chart."""

    @property
    def wall_s(self) -> float:
        """When it was taken, as Unix time."""


TimedT = TypeVar("TimedT", bound=_Timed)


def in_order(moments: Iterable[TimedT]) -> list[TimedT]:
    """The moments in the order of their times: where a clock was set back, of each time only those that came last."""
    newest_first: list[TimedT] = []
    for moment in reversed([*moments]):
        if not newest_first or moment.wall_s < newest_first[-1].wall_s:
            newest_first.append(moment)
    return newest_first[::-1]


def last_process_frames(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The last of these frames, as far as one process took them."""
    start = 0
    for place in range(1, len(frames)):
        if not _follows(frames[place], frames[place - 1]):
            start = place
    return frames[start:]


def derived_moments(
    past: FrameStore, derivation: Derivation, from_s: float, to_s: float, every_s: float
) -> Iterator[Snapshot]:
    """The snapshots of a span, one per `every_s`. All frames are derived, since rates depend on the frames before."""
    derivation.warm_up(from_s)
    next_s = from_s
    begin_s: float | None = from_s
    while begin_s is not None and begin_s <= to_s:
        end_s = min(to_s, begin_s + CHUNK_S)
        for frame in in_order(past.frames(begin_s, end_s)):
            moment = derivation.take(frame)
            if moment.wall_s >= next_s:
                next_s = moment.wall_s + every_s
                yield moment.snapshot
        begin_s = past.after(end_s)
