"""Room on the disk of a recording, and when there is none left at the rate of the last minutes."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Final

from gpumon.readings.format import period
from gpumon.triage.change import TimedValue
from gpumon.triage.forecast import LONG_WINDOWS, rise_in

_EVERY_S: Final = 10.0
"""Seconds between two looks: the shortest window has fifteen values of 20 s."""
_KEPT_S: Final = LONG_WINDOWS[-1].seconds


class DiskRoom:
    """Free bytes of a file's disk over the last hour. Times are monotonic."""

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        self._free: deque[TimedValue] = deque()
        """When it was looked, and free bytes below zero: they rise to 0."""

    def look(self, now_s: float) -> None:
        """Look how much is free, unless that was done just before. Blocks as long as the disk does. Raises OSError."""
        if self._free and 0.0 <= now_s - self._free[-1][0] < _EVERY_S:
            return
        room = os.statvfs(self._folder)
        self._free.append((now_s, -float(room.f_bavail * room.f_frsize)))
        while now_s - self._free[0][0] > _KEPT_S or self._free[0][0] > now_s:
            self._free.popleft()

    def forecast(self, now_s: float) -> str:
        """In how long the disk is full, in words; empty where its room does not shrink for certain, or is large."""
        for window in LONG_WINDOWS:
            rise = rise_in(self._free, window, 0.0, now_s)
            if rise is not None:
                bounds = f"{period(rise.low_s)} to {period(rise.high_s)}"
                return f"its disk is full in about {period(rise.expected_s)} at this rate ({bounds})"
        return ""
