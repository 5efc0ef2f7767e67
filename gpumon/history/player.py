"""Plays a past as if it happened now: its moments in their order, at any speed, a few a second to look at."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from gpumon.history.derivation import Derivation, DerivedMoment, in_order
from gpumon.history.frame_store import FrameStore
from gpumon.history.timeline import MINUTE_S, Worker, history_before
from gpumon.readings.frame import Frame
from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot
from gpumon.triage.fresh import MakeDeriver

SHOWN_EVERY_S: Final = 0.1
"""Snapshots are sent no more often: what lies between two of them goes into the charts only."""
MOST_BEHIND_S: Final = 0.5
"""A machine that cannot derive so fast plays slower, rather than ever more at a time."""
_PAUSE_S: Final = 10.0
"""A longer time without frames, and than three intervals, is passed over."""


class Player:
    """Plays from one moment to the end, and stays there."""

    def __init__(self, past: FrameStore, make: MakeDeriver, history: History, sink: Callable[[Snapshot], None]) -> None:
        """`history` is filled for the charts; `sink` gets the snapshots. Both in the event loop."""
        self._past = past
        self._make = make
        self._history = history
        self._sink = sink
        self._course = Derivation(past, make)
        self._waiting: deque[Frame] = deque()
        self._worker = Worker()
        self._wake = asyncio.Event()
        self._asked: float | None = None
        self._at_s = 0.0
        self._shown_s: float | None = None
        self.speed = 1.0
        self.paused = False

    def go_on(self, wall_s: float) -> None:
        """Play from the last moment at or before a time, or the first."""
        self.paused = False
        if wall_s != self._shown_s:
            self._asked = wall_s
        self._wake.set()

    def pause(self) -> None:
        """Send nothing until `go_on`."""
        self.paused = True

    async def play(self) -> None:
        """Play until cancelled. Raises what reading the past raises."""
        last_s = time.monotonic()
        while True:
            if self._asked is not None:
                await self._begin()
                last_s = time.monotonic()
            await self._rest()
            elapsed_s = time.monotonic() - last_s
            last_s = time.monotonic()
            if not self.paused and self._asked is None:
                most_s = self._at_s + min(elapsed_s, MOST_BEHIND_S) * self.speed
                self._show(await self._worker.call(lambda: self._until(most_s)))  # noqa: B023 - awaited here

    async def _begin(self) -> None:
        asked = self._asked
        self._asked = None
        if asked is None:
            return
        started = await self._worker.call(lambda: self._started(asked))
        if started is not None:
            self._history.become(started)
            self._show(await self._worker.call(lambda: self._until(self._at_s)))

    async def _rest(self) -> None:
        """Until the next moment is due; at once when another is asked for."""
        self._wake.clear()
        wait_s = MOST_BEHIND_S
        if self._waiting and not self.paused:
            wait_s = min(max((self._waiting[0].wall_s - self._at_s) / self.speed, SHOWN_EVERY_S), MOST_BEHIND_S)
        if self._asked is None:
            timer = asyncio.get_running_loop().call_later(wait_s, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    def _show(self, moments: Sequence[DerivedMoment]) -> None:
        for moment in moments:
            self._history.append(moment.wall_s, moment.points, moment.interval_s)
            for event in moment.snapshot.events:
                self._history.mark(event)
        if moments and not self.paused:
            self._shown_s = moments[-1].wall_s
            self._sink(moments[-1].snapshot)

    def _started(self, wall_s: float) -> History | None:
        """Get ready for a moment; the charts up to it. In the worker's thread, as all below."""
        first_s = self._past.before(wall_s + 1e-6)
        if first_s is None:
            span = self._past.span()
            if span is None:
                return None
            first_s = span[0]
        self._waiting.clear()
        for _ in self._course.begin(first_s):
            pass
        self._at_s = first_s
        self._read(first_s - 1e-6)
        return history_before(self._past, first_s)

    def _until(self, wall_s: float) -> list[DerivedMoment]:
        """Derive the frames up to a time. A long time without any is passed over."""
        taken: list[DerivedMoment] = []
        while self._waiting or self._read(self._at_s):
            next_s = self._waiting[0].wall_s
            paused = next_s - self._at_s > max(_PAUSE_S, 3.0 * self._waiting[0].interval_s)
            if next_s > wall_s and (taken or not paused):
                self._at_s = max(self._at_s, wall_s)
                return taken
            taken.append(self._course.take(self._waiting.popleft()))
            self._at_s = next_s
        return taken

    def _read(self, after_s: float) -> bool:
        """Read the rest of the minute in which the next frame is."""
        next_s = self._past.after(after_s)
        if next_s is None:
            return False
        end_s = (next_s // MINUTE_S + 1) * MINUTE_S
        frames = in_order(self._past.frames(next_s, end_s))
        self._waiting.extend(frame for frame in frames if next_s <= frame.wall_s < end_s)
        return bool(self._waiting)
