"""Two spans of a past, read and derived as they were, for `gpumon compare` and the page of the screen."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

from gpumon.efficiency.before_after import before_after
from gpumon.efficiency.span import LEAST_PART_S, TakenSpan
from gpumon.history.derivation import CHUNK_S, Derivation, in_order
from gpumon.history.frame_store import FrameStore
from gpumon.history.points import GAP_S, means_of_points
from gpumon.readings.before_after import BeforeAfter
from gpumon.readings.frame import EngineReading, Frame
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.when import Stretch
from gpumon.triage.fresh import MakeDeriver

USUAL_SPAN_S: Final = 300.0
"""Seconds of a span where only its end is given."""
MOST_MOMENTS: Final = 150
"""Moments of a span that are derived at most: counters say the same over fewer frames."""
_SHORT_SHARE: Final = 0.1
"""Share of its length below which the span that ends with a moment is made longer by what follows."""
_MOMENT_STEP_S: Final = USUAL_SPAN_S / MOST_MOMENTS
"""Seconds between two moments of a comparison that goes on."""
_NEARLY_A_STEP: Final = 0.9
"""Share of such a step after which a moment is due: frames are not taken to the millisecond."""
_SLACK_S: Final = 60.0
"""Seconds that are derived before a span. One that ends with the mark reaches back by half a second each second
(`spans_of`): with these it is derived anew only every two minutes."""


class TooShortError(ValueError):
    """Two spans that cannot be held against each other; the text says why."""


def spans_of(before: Stretch, after: Stretch, length_s: float, recorded: Stretch) -> tuple[Stretch, Stretch]:
    """Both spans. A moment (a stretch without length) stands for the `length_s` seconds before it.

    `recorded`: all that there is of the past.

    A span of a moment is at most half as long as the moments are apart: what happens just after the first one, such as
    a restart, is in neither span. A moment at the beginning of what is kept has hardly anything before it: its span is
    what follows, up to the other span. Raises TooShortError.
    """
    distance_s = abs(after.end_s - before.end_s)
    if before.seconds <= 0.0 or after.seconds <= 0.0:
        length_s = min(length_s, distance_s / 2.0)
    before_span = _span_ending_with(before, length_s, recorded)
    after_span = _span_ending_with(after, length_s, recorded)
    if before.seconds <= 0.0:
        before_span = _lengthen_if_short(before_span, after_span, length_s)
    if after.seconds <= 0.0:
        after_span = _lengthen_if_short(after_span, before_span, length_s)
    for span in (before_span, after_span):
        if span.seconds < LEAST_PART_S:
            raise TooShortError(
                f"the span that ends at {_local_clock(span.end_s)} has {max(0, math.floor(span.seconds))} s: "
                f"a comparison needs {LEAST_PART_S:.0f} s on each side, so moments {2 * LEAST_PART_S:.0f} s apart"
            )
    if before_span.begin_s < after_span.end_s and after_span.begin_s < before_span.end_s:
        raise TooShortError("the two spans overlap: give others, or a shorter --for")
    return before_span, after_span


def _local_clock(wall_s: float) -> str:
    """A time of day as the screen and `gpumon compare` show it."""
    return f"{datetime.fromtimestamp(wall_s).astimezone():%H:%M:%S}"


def _span_ending_with(moment: Stretch, length_s: float, recorded: Stretch) -> Stretch:
    """The span that ends with a moment; a stretch as it is."""
    if moment.seconds > 0.0:
        return moment
    return Stretch(max(recorded.begin_s, moment.end_s - length_s), moment.end_s)


def _lengthen_if_short(span: Stretch, other: Stretch, length_s: float) -> Stretch:
    """The span; one that is far shorter than `length_s` made longer by what follows it, up to the other one."""
    if span.seconds >= _SHORT_SHARE * length_s or other.begin_s < span.end_s:
        return span
    return Stretch(span.begin_s, min(span.begin_s + length_s, other.begin_s))


def compare_spans(past: FrameStore, make: MakeDeriver, before: Stretch, after: Stretch) -> BeforeAfter:
    """How two spans of a past differ. Reads a disk, and takes up to some seconds."""
    return before_after(_measure_span(past, make, before), _measure_span(past, make, after))


def _measure_span(past: FrameStore, make: MakeDeriver, stretch: Stretch) -> TakenSpan:
    """Everything that was seen in a span."""
    span = TakenSpan(stretch.begin_s, stretch.end_s)
    derivation = Derivation(past, make)
    derivation.warm_up(stretch.begin_s)
    gaps = means_of_points(past, stretch.begin_s, stretch.end_s).gaps
    last_s = stretch.begin_s
    for frame in _spread_frames(past, stretch):
        moment = derivation.take(frame)
        follows_gap = any(last_s < end_s and begin_s < frame.wall_s for begin_s, end_s in gaps)
        last_s = frame.wall_s
        span.take(moment.snapshot, frame.wall_s, frame.engines, follows_gap=follows_gap)
        span.moments += 1
    return span


def _spread_frames(past: FrameStore, stretch: Stretch) -> Iterator[Frame]:
    """The frames of a span, at most about `MOST_MOMENTS` of them, evenly spread."""
    every_s = stretch.seconds / MOST_MOMENTS
    next_s = -math.inf
    begin_s: float | None = stretch.begin_s
    while begin_s is not None and begin_s <= stretch.end_s:
        end_s = min(stretch.end_s, begin_s + CHUNK_S)
        for frame in in_order(past.frames(begin_s, end_s)):
            if frame.wall_s >= next_s:
                # Half a step at least: frames that are late do not bring others closer together.
                next_s = max(next_s + every_s, frame.wall_s + every_s / 2.0)
                yield frame
        begin_s = past.after(end_s)


class _SpanMoment(NamedTuple):
    """A derived moment of a span, with the readings of its engines."""

    wall_s: float
    snapshot: Snapshot
    engines: tuple[EngineReading, ...]


class GoingComparison:
    """Compares two spans of a past again and again while time goes on: what was derived for the comparison before is
    kept, so that one at every tick derives what is new alone. Belongs to one thread."""

    def __init__(self, past: FrameStore, make: MakeDeriver) -> None:
        self._past = past
        self._make = make
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Forget what was derived."""
        self._turns = self._past.turns()
        self._before = _GoingSpan(self._past, self._make)
        self._after = _GoingSpan(self._past, self._make)

    def compare(self, before: Stretch, after: Stretch) -> BeforeAfter:
        """How two spans differ. The first time, and after a jump, it takes up to some seconds."""
        if self._past.turns() != self._turns:  # the clock was set back
            self._begin_anew()
        return before_after(self._before.take(before), self._after.take(after))


class _GoingSpan:
    """One of the two spans, with the moments that were derived of it."""

    def __init__(self, past: FrameStore, make: MakeDeriver) -> None:
        self._past = past
        self._derivation = Derivation(past, make)
        self._moments: deque[_SpanMoment] = deque()
        self._begun_s = math.inf
        """Since when there are moments."""
        self._read_s = -math.inf
        """Up to when there are moments."""
        self._last: tuple[Stretch, TakenSpan] | None = None
        """The span of the comparison before, and what was seen in it."""

    def take(self, stretch: Stretch) -> TakenSpan:
        """Everything that was seen in a span."""
        if self._last is None or self._last[0] != stretch:
            self._last = (stretch, self._derive_span(stretch))
        return self._last[1]

    def _derive_span(self, stretch: Stretch) -> TakenSpan:
        """Derive what is new in a span, and sum up all of it."""
        if not self._begun_s <= stretch.begin_s <= self._read_s <= stretch.end_s:
            self._begin(stretch)
        self._read_on(stretch.end_s)
        self._forget_before(stretch.begin_s - _SLACK_S)
        span = TakenSpan(stretch.begin_s, stretch.end_s)
        last_s = stretch.begin_s
        for moment in self._moments:
            if moment.wall_s >= stretch.begin_s:
                follows_gap = moment.wall_s - last_s > GAP_S + _MOMENT_STEP_S
                last_s = moment.wall_s
                span.take(moment.snapshot, moment.wall_s, moment.engines, follows_gap=follows_gap)
                span.moments += 1
        return span

    def _begin(self, stretch: Stretch) -> None:
        """Begin at a span; further back where it has grown backwards since the one before."""
        begin_s = stretch.begin_s
        if self._read_s == stretch.end_s:
            # The same end and an earlier beginning: the next one will begin earlier still.
            begin_s -= _SLACK_S
        self._moments.clear()
        self._derivation.warm_up(begin_s)
        self._begun_s = begin_s
        self._read_s = math.nextafter(begin_s, -math.inf)

    def _read_on(self, end_s: float) -> None:
        """Derive the moments up to a time, from the last one on."""
        while self._read_s < end_s:
            until_s = min(end_s, self._read_s + CHUNK_S)
            for frame in in_order(self._past.frames(self._read_s, until_s)):
                if frame.wall_s > self._read_s and self._is_due(frame):
                    moment = self._derivation.take(frame)
                    self._moments.append(_SpanMoment(frame.wall_s, moment.snapshot, frame.engines))
            self._read_s = until_s

    def _is_due(self, frame: Frame) -> bool:
        """Whether a step has passed, or nearly so, since the last moment."""
        return not self._moments or frame.wall_s >= self._moments[-1].wall_s + _NEARLY_A_STEP * _MOMENT_STEP_S

    def _forget_before(self, wall_s: float) -> None:
        """Drop the moments that no later span has."""
        while self._moments and self._moments[0].wall_s < wall_s:
            self._moments.popleft()
            self._begun_s = wall_s
