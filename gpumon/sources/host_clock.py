"""How far a host's clock is from this machine's, as far as the arrivals of its snapshots tell: delay is no skew."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

_MOST_SKEW_S: Final = 5.0
"""Seconds between the clocks of two machines, or of delay, beyond which that is said."""
_ARRIVALS: Final = 120
"""Snapshots whose arrivals are kept: some minutes, in which one comes without delay, and after which a new clock is
believed."""


class HostClock:
    """Bounds of the offset of a host's clock.

    A snapshot was made before it arrived, so that the host's clock is ahead by its time less that of the arrival at
    least: the least delay of many arrivals counts. The first one of a gpumon that was started there was made after the
    start: the clock is ahead by its time less that of the start at most.
    """

    def __init__(self) -> None:
        self._least_ahead_s: deque[float] = deque(maxlen=_ARRIVALS)
        self._most_ahead_s = math.inf
        self._started_s: float | None = None
        """Unix time here at which a gpumon was started there whose first snapshot has not come."""

    def start(self, wall_s: float) -> None:
        """Note that a gpumon is started there."""
        self._started_s = wall_s

    def add(self, told_s: float, received_s: float) -> None:
        """Take in a snapshot: its time by the host's clock, and that of its arrival by this machine's.

        The last one of a connection that stalled tells nothing of the gpumon that was started after it.
        """
        self._least_ahead_s.append(told_s - received_s)
        if told_s - received_s > self._most_ahead_s:
            self._most_ahead_s = math.inf  # it was set since that start
        if self._started_s is not None and received_s >= self._started_s:
            self._most_ahead_s = told_s - self._started_s
            self._started_s = None

    def fault(self, interval_s: float) -> str:
        """The fault of the host's clock, or of how late it answers, in one line; empty where there is none."""
        if not self._least_ahead_s:
            return ""
        allowed_s = _MOST_SKEW_S + interval_s
        least_s = max(self._least_ahead_s)
        if least_s > allowed_s:
            return f"its clock is {least_s:.0f} s ahead of this machine's: set both by NTP"
        if self._most_ahead_s < -_MOST_SKEW_S:
            return f"its clock is {-least_s:.0f} s behind this machine's: set both by NTP"
        late_s = -self._least_ahead_s[-1]
        if late_s <= allowed_s:
            return ""
        if least_s >= -allowed_s:
            return f"answers {late_s:.0f} s late: the host or the connection is slow"
        return f"answers {late_s:.0f} s late: the host or the connection is slow, or its clock is behind"
