"""Going to and fro in a past, be it in memory or in a file: the moments of it, derived again."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.history.derivation import Derivation
from gpumon.history.frame_store import SEGMENT_S, FrameStore
from gpumon.history.segment import Segment, segment_number
from gpumon.history.worker import Worker
from gpumon.readings.before_after import BeforeAfter
from gpumon.readings.history import History, PastMoment
from gpumon.readings.when import Stretch
from gpumon.triage.fresh import MakeDeriver

if TYPE_CHECKING:
    from gpumon.history.compared import GoingComparison

_SEGMENTS_AHEAD: Final = round(60.0 / SEGMENT_S)
"""Segments of a minute: so many are worked out before they are asked for."""
_MOST_SEGMENTS: Final = 4 * _SEGMENTS_AHEAD
"""Most segments that are kept."""
_MOST_DERIVATIONS: Final = 1
"""Segments whose derivation is kept beside that of a new one, to go on without a warm-up: those looked at last."""
_MOST_THINGS: Final = 4000
"""Most GPUs and engines in the moments that are kept, all in all: some 10 kB each, with their frames."""


class _Place(NamedTuple):
    """A frame of the past: the one at `frame_index` of a segment."""

    segment: Segment
    frame_index: int

    @property
    def wall_s(self) -> float:
        """When it was taken."""
        return self.segment.walls[self.frame_index]

    @property
    def needs_new_segment(self) -> bool:
        """Whether its segment gave its derivation away, or forgot it, before it reached this frame."""
        return self.segment.has_no_derivation and self.frame_index >= len(self.segment.derived)


class DerivedTimeline:
    """The `Timeline` of the screen over a past. Everything but `span` is worked out in a thread of its own.

    The past is cut into segments of `SEGMENT_S` seconds, whose frames are derived one after another. The `Derivation`
    that reaches the end of one goes on in the next; a segment that gets none has to warm up first.

    Moments are ordered by their time. After a clock was set back that is no longer the order in which they were taken:
    of several of one time only the newest is there, so that going on in one direction always comes to an end.
    """

    def __init__(
        self, past: FrameStore, make: MakeDeriver, write: Callable[[str], None], history: History | None = None
    ) -> None:
        """`make` gives a fresh deriver and triage, `write` writes the past into a file.

        `history`: the charts of a past that is still going on; else they are filled from the past's own points.
        """
        self._past = past
        self._make = make
        self._write = write
        self._live_history = history
        self._span = past.span()
        self._segments: OrderedDict[int, Segment] = OrderedDict()
        """Segments that were looked at, by number; the last one that was looked at stands last."""
        self._turns = past.turns()
        """`FrameStore.turns`, which grows when the clock goes back, when the segments were read."""
        self._direction = 1
        """1: the screen went forwards in time; -1: backwards."""
        self._shown_number: int | None = None
        """Number of the segment that the screen shows."""
        self._worker = Worker(self._derive_ahead)
        self._comparison: GoingComparison | None = None
        self._comparison_worker = Worker()
        """A thread for comparisons alone: one takes seconds, and must not hold up a moment that is asked for."""

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment."""
        if self._live_history is not None:
            self._span = self._past.span()
        return self._span

    async def at(self, wall_s: float) -> PastMoment | None:
        """The last moment at or before a time; the first one where there is none."""
        return await self._moment(lambda: self._find_place(wall_s))

    async def step(self, wall_s: float, frames: int) -> PastMoment | None:
        """The moment so many frames after the one of `wall_s`; the last or first where it ends."""
        return await self._moment(lambda: self._place_after(wall_s, frames))

    async def change(self, wall_s: float, step: int) -> PastMoment | None:
        """The next (1) or the previous (-1) moment at which something happened; None where there is none."""
        return await self._moment(lambda: self._place_of_change(wall_s, step))

    async def compare(self, before_s: float, after_s: float) -> BeforeAfter:
        """Two spans that end at these times. Raises ValueError where they cannot be compared."""
        from gpumon.history.compared import USUAL_SPAN_S, GoingComparison, spans_of

        kept = self._past.span()
        if kept is None:
            raise ValueError("nothing is kept yet")
        moments = (Stretch(before_s, before_s), Stretch(after_s, after_s))
        before, after = spans_of(*moments, USUAL_SPAN_S, Stretch(*kept))
        if self._comparison is None:
            self._comparison = GoingComparison(self._past, self._make)
        comparison = self._comparison
        return await self._comparison_worker.call(lambda: comparison.compare(before, after))

    def leave(self) -> None:
        """Forget all moments, which take tens of MB, as nobody looks at them; the next one is worked out anew."""
        self._worker.post(self._forget)

    def _forget(self) -> None:
        """Forget all moments, and that one was shown, so that none is worked out ahead."""
        self._segments.clear()
        self._shown_number = None

    def end_comparing(self) -> None:
        """Let go of what was kept for the next comparison."""
        self._comparison = None

    async def write(self, path: str) -> None:
        """Write all that is kept into a new recording file. Raises OSError."""
        await Worker().call(lambda: self._write(path))

    async def _moment(self, find: Callable[[], _Place | None]) -> PastMoment | None:
        """The moment of the place that `find` gives, which is called in the thread; None where it gives none."""

        def derive() -> _Place | None:
            self._forget_after_turn()
            place = find()
            if place is not None and place.needs_new_segment:  # its derivation was forgotten on the way there
                place = self._find_place(place.wall_s)
            self._span = self._past.span()
            if place is not None:
                place.segment.derive_to(place.frame_index)
                if self._live_history is None:
                    place.segment.prepare_history()
                self._note_shown(place.segment.number)
            return place

        place = await self._worker.call(derive)
        if place is None:
            return None
        # The thread may go on deriving in this segment: `derived` only grows, so that what is in it can be read.
        history = self._live_history
        if history is None:
            history = place.segment.history_to(place.frame_index)
        return PastMoment(place.segment.derived[place.frame_index].snapshot, history)

    def _forget_after_turn(self) -> None:
        """Forget all moments where the clock went back: those of a time that came again are others now."""
        turns = self._past.turns()
        if turns != self._turns:
            self._turns = turns
            self._segments.clear()

    def _find_place(self, wall_s: float) -> _Place | None:
        """The place of the last frame at or before a time, else of the first; None where there are no frames."""
        segment = self._get_segment(segment_number(wall_s))
        if segment is None or segment.walls[0] > wall_s:
            span = self._past.span()
            if span is None:
                return None
            earlier_s = self._past.before(wall_s)
            if earlier_s is None:
                wall_s, _ = span
            else:
                wall_s = earlier_s
            segment = self._get_segment(segment_number(wall_s))
        if segment is None:
            return None
        return _Place(segment, max(0, bisect_right(segment.walls, wall_s) - 1))

    def _place_after(self, wall_s: float, frames: int) -> _Place | None:
        """The place so many frames from that of a time; the first or the last one where there are not so many."""
        place = self._find_place(wall_s)
        if place is None:
            return None
        segment = place.segment
        index = place.frame_index + frames
        while index >= len(segment.walls):
            later = self._segment_after(segment)
            if later is None:
                return _Place(segment, len(segment.walls) - 1)
            index -= len(segment.walls)
            segment = later
        while index < 0:
            earlier = self._segment_before(segment)
            if earlier is None:
                return _Place(segment, 0)
            index += len(earlier.walls)
            segment = earlier
        return _Place(segment, index)

    def _segment_after(self, segment: Segment) -> Segment | None:
        """The next segment that has frames; None behind the last one."""
        next_s = self._past.after(segment.walls[-1])
        if next_s is None:
            return None
        later = self._get_segment(segment_number(next_s))
        # Where the clock was set back, a frame of before may lie within the segment and not be one of its own.
        if later is None or later.number == segment.number:
            return None
        return later

    def _segment_before(self, segment: Segment) -> Segment | None:
        """The segment before that has frames, with the minute before it worked out; None before the first one."""
        # Not the last frame before its first one, which may lie within the segment, as in `_segment_after`.
        earlier_s = self._past.before(segment.number * SEGMENT_S)
        if earlier_s is None:
            return None
        self._derive_minute_before(segment_number(earlier_s))
        return self._get_segment(segment_number(earlier_s))

    def _derive_minute_before(self, number: int) -> None:
        """Derive the segments that lie before one in the minute of the clock that it belongs to.

        Whoever goes back comes to all of them, and this way one warm-up does for them.
        """
        if number not in self._segments:
            for earlier in range(number - number % _SEGMENTS_AHEAD, number):
                segment = self._get_segment(earlier)
                if segment is not None:
                    segment.derive_to(len(segment.walls) - 1)

    def _place_of_change(self, wall_s: float, step: int) -> _Place | None:
        """The place of the next event (`step` 1), or of the one before (-1)."""
        span = self._past.span()
        if span is None:
            return None
        first_s, last_s = span
        if step > 0:
            first_s = wall_s
        else:
            last_s = wall_s
        times = {event.wall_s for event in self._past.events(first_s, last_s)}
        for event_s in sorted(times, reverse=step < 0):
            place = self._find_place(event_s)
            if place is not None and (place.wall_s - wall_s) * step > 0.0:
                return place
        return None

    def _get_segment(self, number: int) -> Segment | None:
        """The segment of a number, made where it is not kept; None where it has no frames."""
        segment = self._segments.pop(number, None)
        if segment is not None:
            segment.read_on()
        if segment is None or (segment.has_no_derivation and len(segment.derived) < len(segment.walls)):
            segment = self._new_segment(number)
        if not segment.walls:
            return None
        self._segments[number] = segment
        return segment

    def _new_segment(self, number: int) -> Segment:
        """A segment whose derivation goes on from the one before where that has reached its end, else warms up."""
        before = self._segments.get(number - 1)
        derivation = None
        if before is not None:
            before.read_on()
            derivation = before.hand_on_derivation()
        unfinished = [segment for segment in self._segments.values() if not segment.has_no_derivation]
        for segment in unfinished[:-_MOST_DERIVATIONS]:
            segment.forget_derivation()
        if derivation is None:
            return Segment(self._past, number, Derivation(self._past, self._make), goes_on=False, before=None)
        if self._live_history is not None:  # it is shown, so that no charts are continued
            before = None
        return Segment(self._past, number, derivation, goes_on=True, before=before)

    def _note_shown(self, number: int) -> None:
        """Note what the screen shows and in which direction it goes; forget what it has not looked at for longest."""
        if self._shown_number is not None and number > self._shown_number:
            self._direction = 1
        elif self._shown_number is not None and number < self._shown_number:
            self._direction = -1
        self._shown_number = number
        while len(self._segments) > 1 and (len(self._segments) > _MOST_SEGMENTS or self._kept_things() > _MOST_THINGS):
            self._segments.popitem(last=False)

    def _kept_things(self) -> int:
        """Things of all moments that are kept."""
        return sum(segment.things for segment in self._segments.values())

    def _derive_ahead(self) -> bool:
        """Derive one frame of what may be asked for next: of the segment that is shown, and of the minute behind it in
        the direction in which the screen goes. Returns whether there was one."""
        shown = self._segments.get(self._shown_number) if self._shown_number is not None else None
        if shown is None:
            return False
        if shown.step():
            return True
        if self._kept_things() > _MOST_THINGS / 2:  # the other half is for what is asked for
            return False
        for distance in range(1, _SEGMENTS_AHEAD + 1):
            segment = self._segment_ahead(shown, distance)
            if segment is not None and segment.step():
                return True
        return False

    def _segment_ahead(self, shown: Segment, distance: int) -> Segment | None:
        """The segment so many further on, as the screen goes; None where there is none, or no room for it."""
        number = shown.number + self._direction * distance
        segment = self._segments.get(number)
        if segment is None and len(self._segments) < _MOST_SEGMENTS:
            span = self._past.span()
            if span is None:
                return None
            first_s, last_s = span
            if segment_number(first_s) <= number <= segment_number(last_s):
                segment = self._get_segment(number)
                if segment is not None:
                    self._segments.move_to_end(shown.number)  # what is shown is forgotten last
        return segment
