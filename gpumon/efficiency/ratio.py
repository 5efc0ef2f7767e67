"""Busy, MFU and MBU, the checks of what formulas are given, and sums and quotients of figures that may be missing.

No ratio is clamped: a figure above 1 says that a table or a model is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from gpumon.readings.missing import Missing, Reading, Reason


def require_at_least(name: str, value: float, least: float) -> float:
    """Return `value`; ValueError that names it where it is NaN, infinite or below `least`."""
    if not math.isfinite(value) or value < least:
        raise ValueError(f"{name} {value!r} is not a finite number of at least {least:g}")
    return value


def require_not_negative(name: str, value: float) -> float:
    """Return `value`; ValueError that names it where it is NaN, infinite or negative."""
    return require_at_least(name, value, 0.0)


def require_positive(name: str, value: float) -> float:
    """Return `value`; ValueError that names it where it is NaN, infinite, zero or negative."""
    if not math.isfinite(value) or value <= 0.0:
        raise ValueError(f"{name} {value!r} is not a finite number above 0")
    return value


def mfu(flops_per_s: float, n_gpus: float, peak_flops_per_s: float) -> float:
    """Model FLOPs utilisation: FLOP/s that the tokens needed / (GPUs x dense peak of the compute precision).

    The share of the throughput that the chips could reach at most (PaLM, arXiv 2204.02311): 20 of a possible 100
    tokens/s is 0.2. ValueError on negative rates, or without GPUs or peak.
    """
    require_not_negative("flops_per_s", flops_per_s)
    require_at_least("n_gpus", n_gpus, least=1)
    return flops_per_s / (n_gpus * require_positive("peak", peak_flops_per_s))


def mbu(bytes_per_s: float, n_gpus: float, peak_bytes_per_s: float) -> float:
    """Model bandwidth utilisation: bytes/s that the steps must read / (GPUs x peak memory bandwidth).

    500 GB/s of 1 TB/s is 0.5 (Databricks, LLM inference performance engineering). ValueError on negative rates, or
    without GPUs or peak.
    """
    require_not_negative("bytes_per_s", bytes_per_s)
    require_at_least("n_gpus", n_gpus, least=1)
    return bytes_per_s / (n_gpus * require_positive("peak", peak_bytes_per_s))


def busy(busy_s: float, elapsed_s: float) -> float:
    """Share of `elapsed_s` in which at least one kernel ran: 5 of 10 hours is 0.5. ValueError without elapsed time."""
    return require_not_negative("busy_s", busy_s) / require_positive("elapsed_s", elapsed_s)


def plus(*parts: Reading) -> Reading:
    """The sum; the first `Missing` where one part is missing, so that nothing enters a sum silently."""
    total = 0.0
    for part in parts:
        if isinstance(part, Missing):
            return part
        total += part
    return total


def minus(whole: Reading, part: Reading) -> Reading:
    """`whole - part`, at least 0; the first of the two that is missing."""
    if isinstance(whole, Missing):
        return whole
    if isinstance(part, Missing):
        return part
    return max(0.0, whole - part)


def times(factor: Reading, other: Reading) -> Reading:
    """The product; the first of the two that is missing."""
    if isinstance(factor, Missing):
        return factor
    if isinstance(other, Missing):
        return other
    return factor * other


def larger(reading: Reading, other: Reading) -> Reading:
    """The larger of two readings; the one that is there where the other is missing."""
    if isinstance(other, Missing):
        return reading
    if isinstance(reading, Missing):
        return other
    return max(reading, other)


def mean_known(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are there; None where none is."""
    known = [value for value in values if value is not None]
    if known:
        return sum(known) / len(known)
    return None


def divide(part: Reading, whole: Reading, nothing: Missing = Missing(Reason.INVALID)) -> Reading:  # noqa: B008 - frozen
    """`part / whole`; the first of the two that is missing, `nothing` where the whole is not above zero."""
    if isinstance(part, Missing):
        return part
    if isinstance(whole, Missing):
        return whole
    if whole > 0:
        return part / whole
    return nothing
