"""Going to and fro in a past, be it in memory or in a file: the moments of it, derived again."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import time
import weakref
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from gpumon.history.derivation import Derivation, DerivedMoment, in_order
from gpumon.history.frame_store import SEGMENT_S, FrameStore
from gpumon.readings.before_after import BeforeAfter
from gpumon.readings.frame import Frame
from gpumon.readings.history import History, PastMoment
from gpumon.readings.when import Stretch
from gpumon.triage.fresh import MakeDeriver

if TYPE_CHECKING:
    from gpumon.history.compared import GoingComparison

MINUTE_S: Final = 60.0
_CHART_S: Final = 7200.0
"""Seconds of the longest chart."""
_SEGMENTS_AHEAD: Final = round(MINUTE_S / SEGMENT_S)
"""Segments of a minute: so many are worked out before they are asked for."""
_MOST_SEGMENTS: Final = 4 * _SEGMENTS_AHEAD
_MOST_DERIVATIONS: Final = 2
"""Segments whose derivation is kept, to go on without a warm-up: those that were looked at last."""
_MOST_THINGS: Final = 8000
"""Most GPUs and engines in the moments that are kept, all in all: some 4 kB each."""
_PAUSE_S: Final = 0.002
"""Seconds between two steps of what nobody waits for: the screen's thread gets its turn."""
_END_S: Final = 0.3
"""Longest wait for all threads when the program ends: SQLite in a thread does not survive the interpreter's end, and a
disk that hangs must not hold it up."""
_THREADS: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()
"""Threads of all workers."""

T = TypeVar("T")


def _segment_number(wall_s: float) -> int:
    """Which of all segments a time lies in."""
    return int(wall_s // SEGMENT_S)


class Segment:
    """The moments of `SEGMENT_S`. What was derived of them stays, so that going to and fro is a look-up."""

    def __init__(
        self, past: FrameStore, number: int, derivation: Derivation, *, goes_on: bool, before: Segment | None
    ) -> None:
        """`goes_on`: `derivation` has reached the end of the segment before; else it needs a warm-up.

        `before` is that segment where the charts are drawn from the past: theirs are gone on with, and it is held until
        they are.
        """
        self.number = number
        self._past = past
        self._left: deque[Frame] = deque()
        """Frames that are not derived yet."""
        self.walls: list[float] = []
        """Unix times of its frames, derived or not."""
        self.things = 0
        """GPUs and engines in all frames: the memory that a segment takes is in proportion to them."""
        self.derived: list[DerivedMoment] = []
        """Moments of its first frames."""
        self._before = before
        self._derivation: Derivation | None = derivation
        self._read()
        self._warm_up: Iterator[None] = iter(())
        if self.walls and not goes_on:
            self._warm_up = derivation.begin(self.walls[0])
        self._history: History | None = None
        self._charted = 0
        """Moments that are in the history."""

    def read_on(self) -> None:
        """Read frames that have come since: the past may go on."""
        next_s = None
        if self.walls:
            next_s = self._past.after(self.walls[-1])
        if next_s is not None and _segment_number(next_s) == self.number:
            self._read()

    def _read(self) -> None:
        """Read the frames behind those that were read before."""
        begin_s = self.number * SEGMENT_S
        end_s = (self.number + 1) * SEGMENT_S
        newest_s = -1.0  # before all Unix times
        if self.walls:
            newest_s = self.walls[-1]
        frames = in_order(self._past.frames(max(begin_s, newest_s), end_s))
        for frame in frames:
            if newest_s < frame.wall_s < end_s:
                self._left.append(frame)
                self.walls.append(frame.wall_s)
                self.things += 1 + len(frame.gpus) + len(frame.engines)

    @property
    def has_no_derivation(self) -> bool:
        """Whether the segment derives no more frames: the next one goes on with the derivation, or it was forgotten."""
        return self._derivation is None

    def forget_derivation(self) -> None:
        """Forget the derivation, some 10 MB of readings: frames that are not derived yet need a new segment."""
        self._warm_up = iter(())
        self._derivation = None
        self._left.clear()

    def _warm_up_one_step(self) -> bool:
        """Read one frame of the warm-up; returns False where the warm-up is over."""
        try:
            next(self._warm_up)
        except StopIteration:
            return False
        return True

    def step(self) -> bool:
        """Derive one frame more, of the warm-up or of the segment; returns whether there was one."""
        if self._derivation is None or not self._left:
            return False
        if self._warm_up_one_step():
            return True
        self.derived.append(self._derivation.take(self._left.popleft()))
        return True

    def hand_on_derivation(self) -> Derivation | None:
        """Give its derivation to a segment that goes on from its end; None where that is not reached."""
        if not self.walls or self._left:
            return None
        derivation = self._derivation
        self._derivation = None
        return derivation

    def moment(self, index: int) -> DerivedMoment:
        """The moment of its frame number `index`, derived where that was not done yet."""
        while len(self.derived) <= index:
            self.step()
        return self.derived[index]

    def prepare(self) -> None:
        """Read the charts up to its first frame, or take those of the segment before; in the thread."""
        if self._history is not None:
            return
        if self._before is not None:
            self._before.prepare()
            self._history = self._before._history
            return
        self._history = history_before(self._past, self.walls[0])

    def history(self, index: int) -> History:
        """The charts up to the moment number `index` at least. In the event loop, where they are drawn."""
        assert self._history is not None, "not prepared"
        before = self._before
        self._before = None
        if before is not None:  # both share one history, in which the moments of the one before come first
            before.history(len(before.derived) - 1)
        for moment in self.derived[self._charted : index + 1]:
            self._history.append(moment.wall_s, moment.points, moment.interval_s)
            for event in moment.snapshot.events:
                self._history.mark(event)
            self._charted += 1
        return self._history


def history_before(past: FrameStore, before_s: float) -> History:
    """A history with the points of the charts and the events before a time."""
    history = History()
    for cell in in_order(past.points(before_s - _CHART_S, before_s)):
        if cell.wall_s < before_s:
            history.append(cell.wall_s, cell.values, cell.seconds)
    for event in past.events(before_s - _CHART_S, before_s):
        if event.wall_s < before_s:
            history.mark(event)
    return history


@atexit.register
def _join_threads() -> None:
    """Wait for the threads of all workers. The main thread is over by now, so that none begins another step."""
    end_s = time.monotonic() + _END_S
    for thread in list(_THREADS):
        thread.join(max(0.0, end_s - time.monotonic()))


class Worker:
    """Runs calls in their order. The thread is there while there is something to do, and ends with the main thread."""

    def __init__(self, idle_step: Callable[[], bool] = lambda: False) -> None:
        """`idle_step` is called while nothing is asked for, as long as it returns True."""
        self._idle_step = idle_step
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._lock = threading.Lock()
        self._running = False

    async def call(self, function: Callable[[], T]) -> T:
        """Result of `function`, which runs in the thread, or its exception."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        future: Future[T] = Future()

        def wake(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done.set)

        future.add_done_callback(wake)
        with self._lock:
            self._calls.append((function, future))
            if not self._running:
                self._running = True
                thread = threading.Thread(target=self._run, name="timeline", daemon=True)
                _THREADS.add(thread)
                thread.start()
        try:
            await done.wait()
        except asyncio.CancelledError:
            future.cancel()
            raise
        return future.result()

    def _run(self) -> None:
        """Run calls and idle steps until there are none; in the thread."""
        while True:
            call = None
            with self._lock:
                if self._calls:
                    call = self._calls.popleft()
            if call is not None:
                function, future = call
                _run_call(function, future)
            elif not self._do_idle_step():
                with self._lock:
                    if not self._calls:
                        self._running = False
                        return
            else:
                time.sleep(_PAUSE_S)

    def _do_idle_step(self) -> bool:
        """Do one idle step; returns whether there may be more."""
        try:
            return threading.main_thread().is_alive() and self._idle_step()
        except Exception:  # whoever asks for that comes upon it again, and is told then
            return False


def _run_call(function: Callable[[], Any], future: Future[Any]) -> None:
    """Give a future the result of a function, or its exception; nothing where nobody waits for it any more."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # handed to the one who asks for the result
        future.set_exception(error)
    else:
        future.set_result(result)


class _Place(NamedTuple):
    """A frame of the past: the one at `frame_index` of a segment."""

    segment: Segment
    frame_index: int

    @property
    def wall_s(self) -> float:
        """When it was taken."""
        return self.segment.walls[self.frame_index]


class DerivedTimeline:
    """The `Timeline` of the screen over a past. Everything but `span` is worked out in a thread of its own.

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
        self._live = history
        self._span = past.span()
        self._segments: OrderedDict[int, Segment] = OrderedDict()
        """Segments that were looked at, by number; the last one that was looked at stands last."""
        self._turns = past.turns()
        self._direction = 1
        """1: the screen went forwards in time; -1: backwards."""
        self._shown: int | None = None
        """Number of the segment that the screen shows."""
        self._worker = Worker(self._derive_ahead)
        self._comparison: GoingComparison | None = None
        self._comparing = Worker()
        """A comparison takes seconds: it holds up no moment that is asked for."""

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment."""
        if self._live is not None:
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

        held = self._past.span()
        if held is None:
            raise ValueError("nothing is kept yet")
        moments = (Stretch(before_s, before_s), Stretch(after_s, after_s))
        before, after = spans_of(*moments, USUAL_SPAN_S, Stretch(*held))
        if self._comparison is None:
            self._comparison = GoingComparison(self._past, self._make)
        comparison = self._comparison
        return await self._comparing.call(lambda: comparison.compare(before, after))

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
            if (
                place is not None
                and place.segment.has_no_derivation
                and place.frame_index >= len(place.segment.derived)
            ):
                place = self._find_place(place.wall_s)  # its derivation was forgotten on the way there
            self._span = self._past.span()
            if place is not None:
                place.segment.moment(place.frame_index)
                if self._live is None:
                    place.segment.prepare()
                self._note_shown(place.segment.number)
            return place

        place = await self._worker.call(derive)
        if place is None:
            return None
        history = self._live
        if history is None:
            history = place.segment.history(place.frame_index)
        return PastMoment(place.segment.derived[place.frame_index].snapshot, history)

    def _forget_after_turn(self) -> None:
        """Forget all moments where the clock went back: those of a time that came again are others now."""
        turns = self._past.turns()
        if turns != self._turns:
            self._turns = turns
            self._segments.clear()

    def _find_place(self, wall_s: float) -> _Place | None:
        """The place of the last frame at or before a time, else of the first; None where there are no frames."""
        segment = self._segment(_segment_number(wall_s))
        if segment is None or segment.walls[0] > wall_s:
            span = self._past.span()
            if span is None:
                return None
            earlier_s = self._past.before(wall_s)
            if earlier_s is None:
                wall_s, _ = span
            else:
                wall_s = earlier_s
            segment = self._segment(_segment_number(wall_s))
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
        later = self._segment(_segment_number(next_s))
        if later is None or later.number <= segment.number:
            return None
        return later

    def _segment_before(self, segment: Segment) -> Segment | None:
        """The segment before that has frames, with the minute before it worked out; None before the first one."""
        # Where the clock was set back, a frame of before may lie within the segment and not be one of its own.
        earlier_s = self._past.before(segment.number * SEGMENT_S)
        if earlier_s is None:
            return None
        self._lead_to(_segment_number(earlier_s))
        earlier = self._segment(_segment_number(earlier_s))
        if earlier is None or earlier.number > segment.number:
            return None
        return earlier

    def _lead_to(self, number: int) -> None:
        """Work out the minute before a segment: whoever goes back comes to all of it, and one warm-up does for it."""
        if number not in self._segments:
            for earlier in range(number - number % _SEGMENTS_AHEAD, number):
                segment = self._segment(earlier)
                if segment is not None:
                    segment.moment(len(segment.walls) - 1)

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

    def _segment(self, number: int) -> Segment | None:
        """A part of the past, where there are frames in it; its moments are derived when they are asked for."""
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
        if self._live is not None:
            before = None
        return Segment(self._past, number, derivation, goes_on=True, before=before)

    def _note_shown(self, number: int) -> None:
        """Note what the screen shows and in which direction it goes; forget what it has not looked at for longest."""
        if self._shown is not None and number > self._shown:
            self._direction = 1
        elif self._shown is not None and number < self._shown:
            self._direction = -1
        self._shown = number
        while len(self._segments) > 1 and (len(self._segments) > _MOST_SEGMENTS or self._kept_things() > _MOST_THINGS):
            self._segments.popitem(last=False)

    def _kept_things(self) -> int:
        """Things of all moments that are kept."""
        return sum(segment.things for segment in self._segments.values())

    def _derive_ahead(self) -> bool:
        """Derive one frame of what may be asked for next: of the segment that is shown, and of the minute behind it in
        the direction in which the screen goes. Returns whether there was one."""
        shown = None
        if self._shown is not None:
            shown = self._segments.get(self._shown)
        if shown is None:
            return False
        if shown.step():
            return True
        if self._kept_things() > _MOST_THINGS / 2:  # the other half is for what is asked for
            return False
        for away in range(1, _SEGMENTS_AHEAD + 1):
            segment = self._segment_away(shown, away)
            if segment is not None and segment.step():
                return True
        return False

    def _segment_away(self, shown: Segment, away: int) -> Segment | None:
        """The segment so many away in the direction in which the screen goes; derived where that is not known yet."""
        number = shown.number + self._direction * away
        segment = self._segments.get(number)
        if segment is None and len(self._segments) < _MOST_SEGMENTS:
            span = self._past.span()
            if span is None:
                return None
            first_s, last_s = span
            if _segment_number(first_s) <= number <= _segment_number(last_s):
                segment = self._segment(number)
                if segment is not None:
                    self._segments.move_to_end(shown.number)  # what is shown is forgotten last
        return segment
