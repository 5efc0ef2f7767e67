"""Counters of the kernel as rates, by the time that really passed between two readings."""

from __future__ import annotations

from typing import Final

from gpumon.readings.missing import Missing, Reading, Reason

FIRST_READING: Final = Missing(Reason.WARMING_UP, "first reading: a rate needs two")
FELL: Final = Missing(Reason.RESET, "the counter fell: the GPU was reset or its driver reloaded")
_SOONEST_S: Final = 1e-3
"""Two readings that are nearer to each other tell nothing: the counters have steps."""


class GrowthRate:
    """Growth of one counter per second."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._rate: Reading = FIRST_READING

    def update(self, counter: Reading, at_s: float) -> Reading:
        """Growth per second since the last reading; `at_s` is the monotonic time of this one."""
        if isinstance(counter, Missing):
            self.forget()
            return counter
        last = self._last
        if last is not None and at_s - last[1] < _SOONEST_S:
            return self._rate
        self._last = (counter, at_s)
        if last is None:
            self._rate = FIRST_READING
        elif counter < last[0]:
            self._rate = FELL
        else:
            self._rate = (counter - last[0]) / (at_s - last[1])
        return self._rate

    def forget(self) -> None:
        """Begin anew: the next reading is a first one."""
        self._last = None
        self._rate = FIRST_READING
