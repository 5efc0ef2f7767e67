"""A past for the screen's tests: a list of snapshots, and a recording that plays them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from gpumon.readings.before_after import BeforeAfter
from gpumon.readings.history import History, PastMoment
from gpumon.readings.snapshot import Snapshot
from tests.tui import scenes
from tests.tui.feed import Still


class Kept:
    """The `Timeline` of some snapshots, the oldest first; `delay_s` is what a look-up takes."""

    def __init__(self, snapshots: Sequence[Snapshot], history: History | None = None) -> None:
        self.snapshots = list(snapshots)
        self.history = history
        """The charts of every moment; by default each has its own, which ends there."""
        self.delay_s = 0.0
        self.asked = 0
        self.at_once = 0
        """Most look-ups at the same time."""
        self._running = 0

    def span(self) -> tuple[float, float] | None:
        """Of all of them."""
        return (self.snapshots[0].wall_s, self.snapshots[-1].wall_s) if self.snapshots else None

    async def at(self, wall_s: float) -> PastMoment | None:
        """The last one by then."""
        return await self._moment(self._place(wall_s))

    async def step(self, wall_s: float, frames: int) -> PastMoment | None:
        """So many further on."""
        return await self._moment(self._place(wall_s) + frames)

    async def change(self, wall_s: float, step: int) -> PastMoment | None:
        """Where the verdicts differ from those before."""
        at = self._place(wall_s) + step
        while 0 < at < len(self.snapshots):
            if self.snapshots[at].verdicts != self.snapshots[at - 1].verdicts:
                return await self._moment(at)
            at += step
        return None

    async def compare(self, before_s: float, after_s: float) -> BeforeAfter:
        """Snapshots alone are no spans."""
        raise ValueError(f"no frames are kept from {before_s} to {after_s}")

    def leave(self) -> None:
        """Nothing is kept."""

    def end_comparing(self) -> None:
        """Nothing is kept."""

    async def write(self, path: str) -> None:
        """A file that says how much there was."""
        await asyncio.sleep(self.delay_s)
        Path(path).write_text(f"{len(self.snapshots)} frames")

    def _place(self, wall_s: float) -> int:
        return max(0, sum(each.wall_s <= wall_s + 1e-6 for each in self.snapshots) - 1)

    async def _moment(self, at: int) -> PastMoment | None:
        self.asked += 1
        self._running += 1
        self.at_once = max(self.at_once, self._running)
        await asyncio.sleep(self.delay_s)
        self._running -= 1
        snapshot = self.snapshots[max(0, min(at, len(self.snapshots) - 1))]
        return PastMoment(snapshot, self.history or scenes.history(snapshot, 120))


class Player(Still):
    """A recording: its snapshots come when the test says so."""

    def __init__(self, snapshots: Sequence[Snapshot], file: str = "night.gpumon") -> None:
        super().__init__(snapshots[0], scenes.history(snapshots[0]))
        self.timeline = Kept(snapshots)
        self.playback = self
        self.file = file
        self.speed = 1.0
        self.held = False
        self.from_s = 0.0

    def set_speed(self, speed: float) -> None:
        """Keep it."""
        self.speed = speed

    def pause(self) -> None:
        """Keep it."""
        self.held = True

    def go_on(self, wall_s: float) -> None:
        """Keep it."""
        self.held, self.from_s = False, wall_s


@functools.cache
def _snapshot(tick: int) -> Snapshot:
    """The server at one tick, made once for all pasts: 120 of them take as long as half a start of the screen."""
    return scenes.snapshot(tick=tick)


def recorded(ticks: int = 120, change: Callable[[int, Snapshot], Snapshot] = lambda _, snapshot: snapshot) -> Still:
    """A live feed with so many seconds behind it, which ends at `scenes.WALL_S`."""
    snapshots = [change(tick, _snapshot(tick)) for tick in range(1 - ticks, 1)]
    feed = Still(snapshots[-1], scenes.history(snapshots[-1]))
    feed.timeline = Kept(snapshots)
    return feed
