"""The one check of every formula's inputs: finite, and not below a least value."""

from __future__ import annotations

import math


def checked(name: str, value: float, least: float = 0.0) -> float:
    """`value` itself; ValueError that names it where it is NaN, infinite or below `least`."""
    if not math.isfinite(value) or value < least:
        raise ValueError(f"{name} {value!r} is not a finite number of at least {least:g}")
    return value


def positive(name: str, value: float) -> float:
    """`value` itself; ValueError that names it where it is NaN, infinite, zero or negative."""
    if not math.isfinite(value) or value <= 0.0:
        raise ValueError(f"{name} {value!r} is not a finite number above 0")
    return value
