"""A watch over answers that are due: tells that there is none, whatever hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

_LATE: Final = 3.0
"""Intervals without an answer after which figures are too old to be shown."""


class Lateness:
    """Tells that there is no answer: three intervals after the last one, then at every interval."""

    def __init__(self, grown: Callable[[float], None]) -> None:
        """`grown` is called with the Unix time of the newest answer, and never blocks."""
        self._grown = grown
        self._timer: asyncio.TimerHandle | None = None
        self._heard_s = time.monotonic()

    @property
    def silent_s(self) -> float:
        """Seconds since the moment of the newest answer."""
        return time.monotonic() - self._heard_s

    def hear(self, wall_s: float, cost_s: float, every_s: float) -> None:
        """There is an answer of `wall_s` that took `cost_s`; another one is awaited every `every_s`."""
        self.stop()
        self._heard_s = time.monotonic() - cost_s
        left_s = max(every_s, _LATE * every_s - cost_s)
        self._timer = asyncio.get_running_loop().call_later(left_s, self._grow, wall_s, every_s)

    def stop(self) -> None:
        """Nothing is awaited any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _grow(self, wall_s: float, every_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(every_s, self._grow, wall_s, every_s)
        self._grown(wall_s)
