"""The units that load-test tools write -> seconds, per second, watts, ratios, bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.sizing.sweeps.problem import Place, refused, shown

Units = Mapping[str, float]

SECONDS: Final[Units] = {
    "ns": 1e-9,
    "nanoseconds": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "microseconds": 1e-6,
    "ms": 1e-3,
    "milliseconds": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "seconds": 1.0,
}
PER_SECOND: Final[Units] = {
    unit: 1.0
    for thing in ("tokens", "token", "requests", "request", "req", "infer", "")
    for unit in (f"{thing}/sec", f"{thing}/s", f"{thing}/second", f"{thing} per sec".strip())
} | {"rps": 1.0, "per second": 1.0}
COUNT: Final[Units] = {"tokens": 1.0, "token": 1.0, "requests": 1.0, "count": 1.0, "": 1.0}
WATTS: Final[Units] = {"w": 1.0, "watts": 1.0, "kw": 1e3, "mw": 1e-3}
RATIO: Final[Units] = {"%": 1e-2, "percent": 1e-2, "ratio": 1.0}
BYTES: Final[Units] = {
    "b": 1.0,
    "bytes": 1.0,
    "mb": 1e6,
    "mib": 2.0**20,
    "gb": 1e9,
    "gib": 2.0**30,
}


def factor(units: Units, unit: str, place: Place, field: str) -> float:
    """What a number in `unit` is multiplied with. Raises SweepError where the unit is not known: never a guess."""
    found = units.get(unit.strip().lower())
    if found is None:
        raise refused(place, field, f"has the unit {shown(unit)}", ", ".join(key for key in units if key))
    return found
