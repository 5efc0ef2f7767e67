"""Prices of time, energy and tokens."""

from __future__ import annotations

from typing import Final

from gpumon.efficiency.ratio import divide, plus, times
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.prices import KWH_J
from gpumon.specs.units import HOUR_S

MILLION: Final = 1e6
"""Tokens that a price is for."""
_IDLE: Final = Missing(Reason.IDLE)


def cost_of(per_hour: Reading, seconds: Reading) -> Reading:
    """The price of a time at a price per hour."""
    return times(per_hour, divide(seconds, HOUR_S))


def energy_cost_of(joules: Reading, per_kwh: Reading) -> Reading:
    """The price of energy at a price per kWh."""
    return times(joules, divide(per_kwh, KWH_J))


def per_million_tokens(per_hour: Reading, *rates: Reading) -> Reading:
    """Price of a million tokens of these rates together (tokens/s) at a price per hour."""
    tokens_per_s = plus(*rates)
    if tokens_per_s == 0.0:
        if isinstance(per_hour, Missing):
            return per_hour  # a price that nobody set stays missing when tokens come, `idle` does not
        return _IDLE
    return times(divide(per_hour, times(tokens_per_s, HOUR_S)), MILLION)
