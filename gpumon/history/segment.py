"""A short part of a past: its frames, the moments derived of them, and the charts up to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from gpumon.history.derivation import Derivation, DerivedMoment, in_order
from gpumon.history.frame_store import SEGMENT_S, FrameStore
from gpumon.readings.frame import Frame
from gpumon.readings.history import History

_LONGEST_CHART_S: Final = 7200.0
"""Seconds of the longest chart."""


def segment_number(wall_s: float) -> int:
    """Which of all segments a time lies in."""
    return int(wall_s // SEGMENT_S)


class Segment:
    """The moments of `SEGMENT_S` seconds. What was derived of them stays, so that going to and fro is a look-up."""

    def __init__(
        self, past: FrameStore, number: int, derivation: Derivation, *, goes_on: bool, before: Segment | None
    ) -> None:
        """`goes_on`: `derivation` has reached the end of the segment before; else it needs a warm-up.

        `before` is that segment, if its charts are to be continued by this one; it is held until they are. None: this
        one's charts are read from the past, or those of a past that is still going on are shown in their place.
        """
        self.number = number
        self._past = past
        self._frames_left: deque[Frame] = deque()
        """Frames that are not derived yet."""
        self.walls: list[float] = []
        """Unix times of its frames, derived or not."""
        self.things = 0
        """GPUs and engines in all frames: the memory that a segment takes is in proportion to them."""
        self.derived: list[DerivedMoment] = []
        """Moments of its first frames: those that were derived."""
        self._before = before
        self._derivation: Derivation | None = derivation
        self._read_frames()
        self._warm_up: Iterator[None] = iter(())
        if self.walls and not goes_on:
            self._warm_up = derivation.warm_up_steps(self.walls[0])
        self._history: History | None = None
        self._charted_moments = 0
        """Number of its moments that are in the history."""

    def read_on(self) -> None:
        """Read the frames that have come since: a live past goes on."""
        next_s = self._past.after(self.walls[-1]) if self.walls else None
        if next_s is not None and segment_number(next_s) == self.number:
            self._read_frames()

    def _read_frames(self) -> None:
        """Read the frames of its time, from the last one that was read before."""
        begin_s = self.number * SEGMENT_S
        end_s = (self.number + 1) * SEGMENT_S
        newest_s = self.walls[-1] if self.walls else -1.0  # before all Unix times
        frames = in_order(self._past.frames(max(begin_s, newest_s), end_s))
        for frame in frames:
            if newest_s < frame.wall_s < end_s:
                self._frames_left.append(frame)
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
        self._frames_left.clear()

    def _warm_up_one_step(self) -> bool:
        """Derive one frame of the warm-up; returns False where the warm-up is over."""
        try:
            next(self._warm_up)
        except StopIteration:
            return False
        return True

    def step(self) -> bool:
        """Derive one frame more, of the warm-up or of the segment; returns whether there was one."""
        if self._derivation is None or not self._frames_left:
            return False
        if self._warm_up_one_step():
            return True
        self.derived.append(self._derivation.take(self._frames_left.popleft()))
        return True

    def hand_on_derivation(self) -> Derivation | None:
        """Give its derivation to a segment that goes on from its end; None where that is not reached."""
        if not self.walls or self._frames_left:
            return None
        derivation = self._derivation
        self._derivation = None
        return derivation

    def derive_to(self, index: int) -> None:
        """Derive its frames up to number `index`, where that was not done yet."""
        while len(self.derived) <= index:
            self.step()

    def prepare_history(self) -> None:
        """Read the charts up to its first frame, or take those of the segment before; in the worker's thread."""
        if self._history is not None:
            return
        if self._before is not None:
            self._before.prepare_history()
            self._history = self._before._history
            return
        self._history = history_before(self._past, self.walls[0])

    def history_to(self, index: int) -> History:
        """The charts up to the moment number `index` at least. In the event loop, where they are drawn."""
        assert self._history is not None, "not prepared"
        before = self._before
        self._before = None
        if before is not None:  # both share one history, in which the moments of the one before come first
            before.history_to(len(before.derived) - 1)
        for moment in self.derived[self._charted_moments : index + 1]:
            self._history.append(moment.wall_s, moment.points, moment.interval_s)
            for event in moment.snapshot.events:
                self._history.add_event(event)
            self._charted_moments += 1
        return self._history


def history_before(past: FrameStore, before_s: float) -> History:
    """A history with the points of the charts and the events before a time."""
    history = History()
    for cell in in_order(past.points(before_s - _LONGEST_CHART_S, before_s)):
        if cell.wall_s < before_s:
            history.append(cell.wall_s, cell.values, cell.seconds)
    for event in past.events(before_s - _LONGEST_CHART_S, before_s):
        if event.wall_s < before_s:
            history.add_event(event)
    return history
