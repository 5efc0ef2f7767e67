"""How far a measured latency is off that of the plan, in words: as a number where it is one, else as its bounds."""

from __future__ import annotations

import math
from typing import Final

from gpumon.readings.format import bucket_text, is_last_bucket
from gpumon.readings.missing import Reading, number

_FAR_OFF: Final = 3.0
"""Times the prediction, from which on a measured latency is told as a multiple of it, not in per cent."""
_WHOLE: Final = 9.95
"""Multiple from which on it has no decimal: it rounds to 10.0."""
_LEAST_DECIMAL: Final = 0.05
"""Decimal below which a multiple has none."""


def gap_text(ratio: float) -> str:
    """How far a measurement is off its prediction: `+8%`; from 3 times on `150 times that`."""
    if ratio < _FAR_OFF:
        percent = round((ratio - 1.0) * 100)
        if percent == 0:
            return "0%"
        return f"{percent:+d}%"
    return f"{_multiple(ratio)} times that"


def quantile_gap_text(value_s: float, low_s: Reading, high_s: Reading, expected_s: float) -> str:
    """How far a quantile is off its prediction. Its true value lies anywhere in the bucket from `low_s` to `high_s`:
    beside a prediction in there nothing tells the two apart (`both in 250–500 ms`), and from another one it is off by
    what the bounds allow: `-46..-4%`, `+9% or more` in the last bucket. Without bounds it is a number."""
    low = number(low_s)
    high = number(high_s)
    is_last = is_last_bucket(high_s)
    if low is None or (high is None and not is_last):
        return gap_text(value_s / expected_s)
    if low <= expected_s and (high is None or expected_s <= high):
        bucket = bucket_text(low_s, high_s)
        return f"both {bucket}" if is_last or low <= 0.0 else f"both in {bucket}"
    if high is None:
        return _least_text(low / expected_s)
    if low <= 0.0:
        return f"{math.ceil((high / expected_s - 1.0) * 100):+d}% or less"
    return _range_text(low / expected_s, high / expected_s)


def _least_text(ratio: float) -> str:
    """A gap of a value that is known to be so long at least, rounded down."""
    if ratio < _FAR_OFF:
        return f"{math.floor((ratio - 1.0) * 100):+d}% or more"
    return f"{_multiple(_down(ratio))} times that or more"


def _range_text(low: float, high: float) -> str:
    """A gap between the ratios of both bounds, rounded outwards."""
    if high < _FAR_OFF:
        return f"{math.floor((low - 1.0) * 100):+d}..{math.ceil((high - 1.0) * 100):+d}%"
    return f"{_multiple(_down(low))} to {_multiple(-_down(-high))} times that"


def _down(ratio: float) -> float:
    """A multiple rounded down to what is told of it."""
    return float(math.floor(ratio)) if abs(ratio) >= _WHOLE else math.floor(ratio * 10.0) / 10.0


def _multiple(ratio: float) -> str:
    """A multiple, with a decimal where it is small and has one."""
    has_decimal = ratio < _WHOLE and abs(ratio - round(ratio)) >= _LEAST_DECIMAL
    return f"{ratio:.1f}" if has_decimal else f"{ratio:,.0f}"
