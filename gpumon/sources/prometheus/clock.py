"""Measures how far the clock of a Prometheus is ahead of this machine's, and how old its answers are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from gpumon.sources.prometheus.api import PrometheusApi
from gpumon.sources.prometheus.queries import TIME_FUNCTION

CLOCK_AGAIN_S: Final = 300.0
"""Seconds between two looks at the server's clock."""
_MOST_SKEW_S: Final = 5.0
"""Seconds between two clocks that are not worth a notice."""
DATE_S: Final = 1.0
"""A Date header is no more exact than this."""
SKEWED: Final = (
    "this machine's clock is {:.0f} s {} the Prometheus': its clock is taken, so ages may look wrong; set both by NTP"
)
BEHIND: Final = (
    "it answers as of {:.0f} s ago, so all figures are that old: a VictoriaMetrics before 1.80 needs "
    "-search.latencyOffset=1s, as it does not know latency_offset"
)


class ServerClock:
    """Keeps the last measurement of a server's clock; before the first, it goes like this machine's.

    `wall` is this machine's Unix time, `clock` its monotonic time.
    """

    def __init__(self, api: PrometheusApi, wall: Callable[[], float], clock: Callable[[], float]) -> None:
        self._api = api
        self._wall = wall
        self._clock = clock
        self._again_s = -math.inf
        """Monotonic time of the next measurement."""
        self.answers_ahead_s = 0.0
        """Seconds by which the moment of its answers is ahead of this machine's clock."""
        self._clock_ahead_s = 0.0
        """Seconds by which its clock is ahead of this machine's: more, where its answers are as of some time ago."""

    @property
    def is_due(self) -> bool:
        """Whether it is time for another measurement."""
        return self._clock() >= self._again_s

    async def measure(self) -> None:
        """Ask the server for its time, in one query. Raises ApiFault."""
        begun_s = self._clock()
        sent_s = self._wall()
        answer = await self._api.query(TIME_FUNCTION, None)
        took_s = self._clock() - begun_s
        middle_s = sent_s + took_s / 2  # the server is taken to have looked half-way
        self.answers_ahead_s = 0.0
        if answer:
            self.answers_ahead_s = _unless_in_doubt(answer[0].value - middle_s, took_s)
        # The header `Date` is of the server's clock, also where its answers are as of some time ago (VictoriaMetrics).
        date_s = self._api.date_s
        self._clock_ahead_s = self.answers_ahead_s
        if date_s is not None and date_s - middle_s > self.answers_ahead_s:
            self._clock_ahead_s = _unless_in_doubt(date_s - middle_s, took_s + DATE_S)
        self._again_s = self._clock() + CLOCK_AGAIN_S

    def notices(self) -> tuple[str, ...]:
        """Notices of a clock that is off, and of answers that are older than that clock."""
        notices: list[str] = []
        skew_s = abs(self._clock_ahead_s)
        if skew_s > _MOST_SKEW_S:
            direction = "behind" if self._clock_ahead_s > 0.0 else "ahead of"
            notices.append(SKEWED.format(skew_s, direction))
        behind_s = self._clock_ahead_s - self.answers_ahead_s
        if behind_s > _MOST_SKEW_S:
            notices.append(BEHIND.format(behind_s))
        return tuple(notices)


def _unless_in_doubt(seconds: float, doubt_s: float) -> float:
    """A difference of clocks; 0 where it is within what the measurement can tell, or no number."""
    if math.isfinite(seconds) and abs(seconds) > doubt_s:
        return seconds
    return 0.0
