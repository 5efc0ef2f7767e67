"""Units of figures: how a field's name ends, how the unit is written, its exported name, and the largest number."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec


class Unit(msgspec.Struct, frozen=True):
    """A unit."""

    symbol: str
    """The unit in words and on the screen; empty where a figure is a plain number."""
    code: str = "number"
    """The unit in the JSON of `gpumon compare`; what writes figures goes by it."""
    endings: tuple[str, ...] = ()
    """Endings of the names of fields in this unit; none for a count."""
    exported: str = ""
    """The base unit as OpenMetrics names it, with which the name of a metric ends; empty where there is none."""
    most: float = 1e18
    """Largest number of an engine, a host, or a sum over many GPUs. Sums of a million of these stay finite."""
    per_name: str = ""
    """Stands behind the name of a figure where no column tells its unit: `decode tok/s`, `requests/s`."""


FLOPS_PER_S: Final = Unit("FLOP/s", "flops_per_s", ("flops_per_s", "flops_peak_per_s"), "flops_per_second", 1e22)
FLOPS_PER_J: Final = Unit("FLOP/J", "flops_per_j", ("flops_per_j",), most=1e16)
BYTES_PER_S: Final = Unit("B/s", "bytes_per_s", ("bytes_per_s",), "bytes_per_second", 1e18)
BYTES_PER_S_OF_PEAK: Final = Unit("B/s, % of the peak", "bytes_per_s", ("bytes_per_s",), "bytes_per_second", 1e18)
TOKENS_PER_S: Final = Unit("tok/s", "tokens_per_s", ("tokens_per_s",), most=1e12, per_name=" tok/s")
PER_S: Final = Unit("1/s", "per_s", ("_per_s",), most=1e12, per_name="/s")
TOKENS_PER_J: Final = Unit("tok/J", "tokens_per_j", ("_per_j",), most=1e9)
SHARE: Final = Unit("%", "ratio", ("_ratio",), "ratio", 1e4)
BYTES: Final = Unit("GiB", "bytes", ("_bytes",), "bytes", 2.0**60)
WATTS: Final = Unit("W", "w", ("_w",), "watts", 1e8)
JOULES: Final = Unit("J", "j", ("_j",), "joules", 1e15)
CELSIUS: Final = Unit("°C", "c", ("_c",), "celsius", 150.0)
HERTZ: Final = Unit("Hz", "hz", ("_hz",), "hertz", 5e10)
SECONDS: Final = Unit("s", "s", ("_s",), "seconds", 2.6e11)
"""Seconds may be a Unix time of the year 9999."""
MEASURED: Final = (
    *(FLOPS_PER_S, FLOPS_PER_J, BYTES_PER_S, TOKENS_PER_S, PER_S, TOKENS_PER_J),
    *(SHARE, BYTES, WATTS, JOULES, CELSIUS, HERTZ, SECONDS),
)
"""Units that the end of a field's name tells, the longer endings first."""
NUMBER: Final = Unit("")
REQUESTS: Final = Unit("requests")
SEQUENCES: Final = Unit("sequences")
PER_REQUEST: Final = Unit("/req")
TIMES_MEAN: Final = Unit("x mean")
TOKENS_PER_STEP: Final = Unit("tok")
TOKENS: Final = Unit("tokens")
GPUS: Final = Unit("GPUs")
MONEY: Final = Unit("$", "money")
LARGEST: Final = max(unit.most for unit in MEASURED)
"""Largest number of all, for figures whose unit is not known."""


@lru_cache(maxsize=1024)
def unit_of(field: str) -> Unit:
    """The unit that the end of a field's name tells; that of a plain number where it tells none."""
    for unit in MEASURED:
        if f"_{field}".endswith(tuple(f"_{ending.removeprefix('_')}" for ending in unit.endings)):
            return unit
    return NUMBER


def exported_unit(metric: str) -> str:
    """The base unit that the name of a metric ends with; empty without one."""
    for unit in MEASURED:
        if unit.exported and metric.endswith(f"_{unit.exported}"):
            return unit.exported
    return ""
