"""Figures of the local driver held against what a GPU can do: a number beyond that is no reading."""

from __future__ import annotations

from typing import Any

from gpumon.figures.gpu import GPU
from gpumon.readings.bounds import drop_impossible, invalid_reading
from gpumon.readings.frame import GPU_FIGURES
from gpumon.readings.missing import Missing

ENERGY_TIMES = 2.0
"""Power limits at which the energy counter may grow at most. As for `power_w`, whose bound is twice the limit, too: the
limit may have been higher until a moment ago."""
_ENERGY_STEP_S = 1.0
"""Seconds that are added to the time between two readings: the counter moves in steps."""


def drop_implausible(values: dict[str, Any]) -> None:
    """Put a reason in the place of every number that cannot be true.

    The entrance of all frames (`efficiency.plausible`) does so for whoever sends them, too late for a driver of this
    host: a figure that its driver lacks is taken from DCGM before the frame is made, and `gpumon doctor` makes none.
    """
    drop_impossible(GPU, values, GPU_FIGURES)


class EnergyCheck:
    """Holds each reading of a GPU's energy counter against the one before: a counter that jumps is dropped."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        """The counter when it was read last, and that moment (monotonic)."""

    def check(self, values: dict[str, Any], read_s: float) -> None:
        """Put a reason in the place of a counter that has grown by more than the power limit allows.

        `read_s`: when it was read (monotonic).
        """
        energy_j = values["energy_j"]
        last = self._last
        if isinstance(energy_j, Missing):
            return
        # Also a counter that jumped: if it goes on from there, its growth is right again the next time.
        self._last = (energy_j, read_s)
        if last is None:
            return
        last_j, last_read_s = last
        limit_w = values["power_limit_w"]
        most_w = GPU["power_limit_w"].largest if isinstance(limit_w, Missing) else limit_w
        growth_j = energy_j - last_j
        if growth_j > ENERGY_TIMES * most_w * (read_s - last_read_s + _ENERGY_STEP_S):
            values["energy_j"] = invalid_reading(energy_j, f"{growth_j:.6g} J more than the last time")
