"""Ticks to record: the frames of one recorded engine, over and over, at times that the test chooses."""

from __future__ import annotations

from functools import cache

from gpumon.history.frame_store import Tick
from gpumon.readings.frame import Frame
from gpumon.readings.verdict import Event, EventKind
from tests.history.frames import WALL_S, captured
from tests.records import replace

FACTS = {"host": "box", "gpumon": "test", "simulated": ""}


@cache
def recorded() -> tuple[Frame, ...]:
    """Frames of an engine at work."""
    return tuple(captured("vllm-staircase"))[60:180]


def frame(number: int, wall_s: float | None = None) -> Frame:
    """The frame of a tick; `number` is its `seq`. One a second, unless the time is given."""
    at_s = WALL_S + number if wall_s is None else wall_s
    of = recorded()[number % len(recorded())]
    return replace(of, seq=number, wall_s=at_s, monotonic_s=5000.0 + number)


def tick(number: int, wall_s: float | None = None) -> Tick:
    """The same as it is handed to a keeper, with points, and an event every 50 ticks."""
    made = frame(number, wall_s)
    happened = Event(made.wall_s, EventKind.RESTART, "vllm:8000", f"number {number}")
    return Tick(made, {"busy": number % 10 / 10, "decode": float(number)}, (happened,) if number % 50 == 0 else ())
