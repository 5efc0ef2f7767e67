"""A watch over answers that are due: reports that none came, whatever hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

_LATE_INTERVALS: Final = 3.0
"""Intervals without an answer after which figures are too old to be shown."""


class Lateness:
    """Reports that there is no answer: three intervals after the last one, then at every interval."""

    def __init__(self, on_late: Callable[[float], None]) -> None:
        """`on_late` is called with the Unix time of the newest answer; it must not block."""
        self._on_late = on_late
        self._timer: asyncio.TimerHandle | None = None
        self._heard_s = time.monotonic()

    @property
    def silent_s(self) -> float:
        """Seconds since the moment of the newest answer."""
        return time.monotonic() - self._heard_s

    def hear(self, wall_s: float, cost_s: float, every_s: float) -> None:
        """Note an answer with the state of `wall_s` (Unix time) that took `cost_s`; the next is due in `every_s`."""
        self.stop()
        self._heard_s = time.monotonic() - cost_s
        left_s = max(every_s, _LATE_INTERVALS * every_s - cost_s)  # any answer is shown for an interval at least
        self._timer = asyncio.get_running_loop().call_later(left_s, self._report_late, wall_s, every_s)

    def stop(self) -> None:
        """Await no answer any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _report_late(self, wall_s: float, every_s: float) -> None:
        """Report it, and again at every interval until `hear` or `stop`."""
        self._timer = asyncio.get_running_loop().call_later(every_s, self._report_late, wall_s, every_s)
        self._on_late(wall_s)
