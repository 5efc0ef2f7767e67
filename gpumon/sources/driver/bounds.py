"""Figures of the local driver held against what a GPU can do: a number beyond that is no reading."""

from __future__ import annotations

from typing import Any

from gpumon.readings.bounds import BOUNDS, excess, invalid
from gpumon.readings.missing import NOT_SUPPORTED, Missing

ENERGY_TIMES = 2.0
"""The energy counter grows by no more than this x the power limit x the time, plus a second for its steps."""


def implausible(field: str, values: dict[str, Any]) -> Missing | None:
    """Why the number of this field cannot be true, with the number itself; None where it can, or there is none."""
    why = excess(field, values)
    if why:
        return invalid(values[field], why)
    return None


def drop_implausible(values: dict[str, Any]) -> None:
    """Put a reason in the place of every number that cannot be true."""
    for field, bound in BOUNDS.items():
        value = values.get(field, NOT_SUPPORTED)
        if value.__class__ is Missing:
            continue
        if not bound.of and 0.0 <= value <= bound.most:
            continue  # nearly all of them, at each tick of each GPU: two calls less
        why = implausible(field, values)
        if why is not None:
            values[field] = why


class Energy:
    """The energy counter from look to look."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def check(self, values: dict[str, Any], read_s: float) -> None:
        """Drop a counter that has grown by more than the power limit allows since the last look."""
        energy_j = values["energy_j"]
        before = self._last
        if isinstance(energy_j, Missing):
            return
        self._last = (energy_j, read_s)
        limit_w = values["power_limit_w"]
        if isinstance(limit_w, Missing):
            most_w = BOUNDS["power_limit_w"].most
        else:
            most_w = limit_w
        if before is not None and energy_j - before[0] > ENERGY_TIMES * most_w * (read_s - before[1] + 1.0):
            values["energy_j"] = invalid(energy_j, f"{energy_j - before[0]:.6g} J more than the last time")
