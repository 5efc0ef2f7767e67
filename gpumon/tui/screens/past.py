"""The past of a screen: how moments of it are asked for, and what brings them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Generic, NamedTuple, Protocol

import msgspec

from gpumon.readings.history import History, PastMoment
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Event
from gpumon.tui.control import Control, Timeline
from gpumon.tui.screens.context import S
from gpumon.tui.table import clock

SAME_MOMENT_S: Final = 1e-3
"""Two times that are nearer to each other are of one moment."""
_FAR_S: Final = 2.0
"""Seconds from the time that was typed, beyond which a notice says that a moment is another: readings are a second
apart, or two."""


class AskKind(Enum):
    """How a moment is asked for: by its distance from what is shown, or by itself."""

    FRAMES = "frames"
    """So many frames from what is shown."""
    SECONDS = "seconds"
    """So many seconds from what is shown."""
    CHANGES = "changes"
    """So many moments at which something happened from what is shown."""
    TIME = "time"
    """A Unix time."""
    OLDEST = "oldest"
    """The first moment of the past."""
    NEWEST = "newest"
    """The last moment of the past."""


ABSOLUTE: Final = (AskKind.TIME, AskKind.OLDEST, AskKind.NEWEST)
"""Kinds that do not depend on what is shown: they replace what was asked for before."""


class AskedMoment(NamedTuple):
    """A moment that was asked for."""

    kind: AskKind
    amount: float
    """Number of frames, seconds or changes from what is shown, backwards below 0; of `TIME` the Unix time; of `OLDEST`
    -1 and of `NEWEST` 1, the direction."""
    host: str = ""
    """The host whose changes are looked for, where there are several."""


class SearchedHost(NamedTuple):
    """The host on which changes are looked for."""

    name: str
    """Empty where there is one host alone, or none to look at."""
    why_none: str = ""
    """Why there is none to look at; empty where there is one."""


class Arrival(msgspec.Struct, Generic[S], frozen=True):
    """A moment of the past, to be shown."""

    snapshot: S
    history: History | None = None
    """Series for the charts up to then."""
    events: Sequence[Event] = ()
    """Events of that moment."""
    note: str = ""
    """Why it is not the moment that was asked for."""


class NoPastError(Exception):
    """A moment cannot be shown; the text says why."""


class Past(Protocol[S]):
    """Source of the past of a screen."""

    jumps_s: Sequence[float]
    """Seconds of the two keys that jump."""
    slow: bool
    """Whether a moment may take seconds, so that the title says what is asked for."""

    @property
    def live(self) -> History | None:
        """Series of what is live."""

    @property
    def frame_s(self) -> float | None:
        """Seconds between two moments; None: they are as they were recorded."""

    def why_not(self) -> str:
        """Why there is no past at all; empty where there is one."""

    def searched_host(self) -> SearchedHost:
        """The host on which changes are looked for."""

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment; None: nothing yet."""

    async def at(self, wall_s: float) -> Arrival[S] | None:
        """The last moment at or before a time; the first one where there is none. Raises NoPastError."""

    async def nearest(self, wall_s: float) -> Arrival[S] | None:
        """The moment for a time that was typed; its note says so where it is far from that. Raises NoPastError."""

    async def step(self, wall_s: float, frames: int) -> Arrival[S] | None:
        """The moment so many frames after the one of `wall_s`."""

    async def change(self, wall_s: float, step: int, host: str) -> Arrival[S] | None:
        """The moment `step` changes after `wall_s`, or before it where `step` is negative; None where there is none."""

    def leave(self) -> None:
        """Let go of what was worked out for moments: what is shown is live again."""


class MachinePast:
    """The past of one machine, or of a recording."""

    jumps_s: Sequence[float] = (10.0, 60.0)
    frame_s: float | None = None

    def __init__(self, control: Control, *, slow: bool = False) -> None:
        self._control = control
        self.slow = slow

    @property
    def live(self) -> History:
        """Series of what is live."""
        return self._control.history

    def why_not(self) -> str:
        """Why there is no past at all."""
        if self._control.timeline is None:
            return "no past is kept: [recorder] minutes is 0"
        return ""

    def searched_host(self) -> SearchedHost:
        """No name, as there is one host alone, and no reason."""
        return SearchedHost("")

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment."""
        if self._control.timeline is None:
            return None
        return self._control.timeline.span()

    async def at(self, wall_s: float) -> Arrival[Snapshot] | None:
        """The last moment at or before a time."""
        assert self._control.timeline is not None
        return _arrival(await self._control.timeline.at(wall_s))

    async def nearest(self, wall_s: float) -> Arrival[Snapshot] | None:
        """The moment at a time, else the nearest one before or after it: what is far back may have fewer readings."""
        arrival = await self.at(wall_s)
        if arrival is None or _distance_s(arrival, wall_s) <= _FAR_S:
            return arrival
        later = await self.step(wall_s, 1)
        if later is not None and _distance_s(later, wall_s) < _distance_s(arrival, wall_s):
            arrival = later
        if _distance_s(arrival, wall_s) <= _FAR_S:
            return arrival
        note = f"nothing is kept at {clock(wall_s)}: shown is {clock(arrival.snapshot.wall_s)}, the nearest moment"
        return msgspec.structs.replace(arrival, note=note)

    async def step(self, wall_s: float, frames: int) -> Arrival[Snapshot] | None:
        """The moment so many frames after that of `wall_s`."""
        assert self._control.timeline is not None
        return _arrival(await self._control.timeline.step(wall_s, frames))

    async def change(self, wall_s: float, step: int, host: str) -> Arrival[Snapshot] | None:  # noqa: ARG002 - the signature of Past
        """The moment `step` changes after `wall_s`, or before it; the last one in that direction where there are
        fewer."""
        assert self._control.timeline is not None
        return _arrival(await nth_change(self._control.timeline, wall_s, step))

    def leave(self) -> None:
        """Let go of the moments of its timeline."""
        if self._control.timeline is not None:
            self._control.timeline.leave()


async def nth_change(timeline: Timeline, wall_s: float, step: int) -> PastMoment | None:
    """The moment `step` changes after `wall_s`, or before it where `step` is negative; the last one in that direction
    where there are fewer, None where there is none."""
    direction = 1 if step > 0 else -1
    last = None
    for _ in range(abs(step)):
        moment = await timeline.change(wall_s, direction)
        if moment is None:
            break
        last = moment
        wall_s = moment.snapshot.wall_s
    return last


def _arrival(moment: PastMoment | None) -> Arrival[Snapshot] | None:
    """A moment of one machine with its events; None where there is none."""
    if moment is None:
        return None
    at_s = moment.snapshot.wall_s
    return Arrival(moment.snapshot, moment.history, moment.history.events(at_s - SAME_MOMENT_S, at_s + SAME_MOMENT_S))


def _distance_s(arrival: Arrival[Snapshot], wall_s: float) -> float:
    """Seconds between a moment and a time."""
    return abs(arrival.snapshot.wall_s - wall_s)
