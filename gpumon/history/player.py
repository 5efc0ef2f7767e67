"""Plays a past as if it happened now: its moments in their order, at any speed, a few a second to look at."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from gpumon.history.derivation import Derivation, DerivedMoment, in_order
from gpumon.history.frame_store import FrameStore
from gpumon.history.segment import history_before
from gpumon.history.worker import Worker
from gpumon.readings.frame import Frame
from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot
from gpumon.triage.fresh import MakeDeriver

SHOWN_EVERY_S: Final = 0.1
"""Seconds between two snapshots that are sent: moments in between go into the charts only."""
MOST_BEHIND_S: Final = 0.5
"""Most seconds of real time that are made up for at once: a machine that cannot derive so fast plays slower."""
_GAP_S: Final = 10.0
"""Seconds: a time without frames that is longer than this, and than `_GAP_INTERVALS`, is passed over."""
_GAP_INTERVALS: Final = 3.0
"""Intervals without a moment from which on there is a gap."""
_MINUTE_S: Final = 60.0
"""Seconds of frames that are read at a time: blocks of a recording end with the minutes of the clock."""


class Player:
    """Plays from one moment to the end, and stays there."""

    def __init__(self, past: FrameStore, make: MakeDeriver, history: History, sink: Callable[[Snapshot], None]) -> None:
        """`make` gives a fresh deriver and triage, `sink` takes the snapshots, and `history` is filled for the charts.

        The last two are used in the event loop.
        """
        self._past = past
        self._make = make
        self._history = history
        self._sink = sink
        self._derivation = Derivation(past, make)
        self._waiting: deque[Frame] = deque()
        """Frames that were read, and are not due yet."""
        self._worker = Worker()
        self._wake = asyncio.Event()
        self._start_s: float | None = None
        """Time of the past to play from next; None once playing from there has begun."""
        self._played_s = 0.0
        """Time of the past up to which it was played."""
        self._shown_s: float | None = None
        """Time of the last snapshot that was sent."""
        self.speed = 1.0
        """Seconds of the past per second."""
        self.paused = False

    def go_on(self, wall_s: float) -> None:
        """Play from the last moment at or before a time, or else from the first one."""
        self.paused = False
        if wall_s != self._shown_s:
            self._start_s = wall_s
        self._wake.set()

    def pause(self) -> None:
        """Send nothing until `go_on`."""
        self.paused = True

    async def play(self) -> None:
        """Play until cancelled. Raises what reading the past raises."""
        last_s = time.monotonic()
        while True:
            if self._start_s is not None:
                await self._start()
                last_s = time.monotonic()
            await self._wait_for_next()
            elapsed_s = time.monotonic() - last_s
            last_s = time.monotonic()
            if not self.paused and self._start_s is None:
                most_s = self._played_s + min(elapsed_s, MOST_BEHIND_S) * self.speed
                self._show(await self._worker.call(lambda: self._derive_until(most_s)))  # noqa: B023 - awaited here

    async def _start(self) -> None:
        """Go to the moment that was asked for, and show it."""
        wall_s = self._start_s
        self._start_s = None
        if wall_s is None:
            return
        history = await self._worker.call(lambda: self._start_at(wall_s))
        if history is not None:
            self._history.become(history)
            self._show(await self._worker.call(lambda: self._derive_until(self._played_s)))

    async def _wait_for_next(self) -> None:
        """Wait until the next moment is due; at once where another is asked for."""
        self._wake.clear()
        wait_s = MOST_BEHIND_S
        if self._waiting and not self.paused:
            wait_s = min(max((self._waiting[0].wall_s - self._played_s) / self.speed, SHOWN_EVERY_S), MOST_BEHIND_S)
        if self._start_s is None:
            timer = asyncio.get_running_loop().call_later(wait_s, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    def _show(self, moments: Sequence[DerivedMoment]) -> None:
        """Put moments into the charts, and send the last one."""
        for moment in moments:
            self._history.append(moment.wall_s, moment.points, moment.interval_s)
            for event in moment.snapshot.events:
                self._history.add_event(event)
        if moments and not self.paused:
            self._shown_s = moments[-1].wall_s
            self._sink(moments[-1].snapshot)

    def _start_at(self, wall_s: float) -> History | None:
        """Get ready to play from a moment; returns the charts up to it, None where the past is empty.

        In the worker's thread, as all below.
        """
        first_s = self._past.before(math.nextafter(wall_s, math.inf))
        if first_s is None:
            span = self._past.span()
            if span is None:
                return None
            first_s, _ = span
        self._waiting.clear()
        self._derivation.warm_up(first_s)
        self._played_s = first_s
        self._read_minute(math.nextafter(first_s, -math.inf))
        return history_before(self._past, first_s)

    def _derive_until(self, wall_s: float) -> list[DerivedMoment]:
        """The moments of the frames up to a time. A long time without frames is passed over."""
        moments: list[DerivedMoment] = []
        while self._waiting or self._read_minute(self._played_s):
            next_s = self._waiting[0].wall_s
            follows_gap = next_s - self._played_s > max(_GAP_S, _GAP_INTERVALS * self._waiting[0].interval_s)
            # The first frame behind a gap is taken at once, but not together with those before the gap.
            if next_s > wall_s and (moments or not follows_gap):
                self._played_s = max(self._played_s, wall_s)
                return moments
            moments.append(self._derivation.take(self._waiting.popleft()))
            self._played_s = next_s
        return moments

    def _read_minute(self, after_s: float) -> bool:
        """Read the frame behind a time and the rest of its minute; returns whether there is one."""
        next_s = self._past.after(after_s)
        if next_s is None:
            return False
        end_s = (next_s // _MINUTE_S + 1) * _MINUTE_S
        frames = in_order(self._past.frames(next_s, end_s))  # `end_s` included, which is of the next minute
        self._waiting.extend(frame for frame in frames if next_s <= frame.wall_s < end_s)
        return bool(self._waiting)
