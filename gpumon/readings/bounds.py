"""Largest numbers that figures can have at all, by field and by unit: what lies beyond is no reading.

Readings of the local driver and figures that other hosts tell are held against the same table.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason


class Bound(NamedTuple):
    """The largest number of a field that can be true; the smallest one is 0."""

    most: float
    """In the field's unit."""
    relative_to: str = ""
    """Another field of the GPU: `times` its number is a bound, too. Empty: there is none."""
    times: float = 1.0


BOUNDS: Final[dict[str, Bound]] = {
    **dict.fromkeys(("busy_ratio", "memory_busy_ratio", "remap_pending", "remap_failed"), Bound(1.0)),
    **dict.fromkeys(("persistence_mode", "ecc_mode"), Bound(1.0)),
    **dict.fromkeys(("sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio", "dram_active_ratio"), Bound(1.1)),
    **dict.fromkeys(("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"), Bound(1e13)),
    **dict.fromkeys(("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"), Bound(1e14)),
    "vram_total_bytes": Bound(2.0**43),
    "vram_used_bytes": Bound(2.0**43, "vram_total_bytes"),
    "vram_reserved_bytes": Bound(2.0**43, "vram_total_bytes"),
    "power_limit_w": Bound(2e4),
    "power_default_w": Bound(2e4),
    "power_w": Bound(2e4, "power_limit_w", 2.0),
    "energy_j": Bound(1e13),
    "temperature_c": Bound(150.0),
    "memory_temperature_c": Bound(150.0),
    "fan_ratio": Bound(2.0),
    "sm_clock_max_hz": Bound(1e10),
    "sm_clock_hz": Bound(1e10, "sm_clock_max_hz", 1.25),
    "memory_clock_max_hz": Bound(5e10),
    "memory_clock_hz": Bound(5e10, "memory_clock_max_hz", 1.25),
    "memory_bus_bits": Bound(65536.0),
    "sm_count": Bound(4096.0),
    **dict.fromkeys(("pcie_generation", "pcie_generation_max"), Bound(16.0)),
    **dict.fromkeys(("pcie_width", "pcie_width_max"), Bound(64.0)),
    **dict.fromkeys(("ecc_uncorrected", "ecc_corrected"), Bound(1e12)),
    "memory_peak_bytes_per_s": Bound(1e14),
    "bad_pages": Bound(1e9),
    "bad_pages_pending": Bound(1e9, "bad_pages"),
    "nvlinks": Bound(64.0),
    "nvlinks_active": Bound(64.0, "nvlinks"),
    "xgmi_links": Bound(64.0),
    "xgmi_links_up": Bound(64.0, "xgmi_links"),
}
"""Field of one GPU -> its bound. The margins are for means over other moments than that of the limit."""
_DEPENDENTS: Final = {
    other: tuple(field for field, bound in BOUNDS.items() if bound.relative_to == other)
    for other in {bound.relative_to for bound in BOUNDS.values() if bound.relative_to}
}
"""Field of a GPU -> those that it bounds."""
_LARGEST_BY_FIELD: Final[dict[str, float]] = {
    "busy_mean_ratio": 1.0,
    "gpu_count": 65536.0,
    "interval_s": 86400.0,
}
"""Field that is no reading of a driver -> its largest number."""
_LARGEST_BY_ENDING: Final = (
    ("flops_per_s", 1e22),
    ("flops_peak_per_s", 1e22),
    ("flops_per_j", 1e16),
    ("bytes_per_s", 1e18),
    ("_per_s", 1e12),
    ("_per_j", 1e9),
    ("_ratio", 1e4),
    ("_bytes", 2.0**60),
    ("_w", 1e8),
    ("_j", 1e15),
    ("_c", 150.0),
    ("_hz", 5e10),
    ("_s", 2.6e11),
)
"""End of a field's name -> largest number of an engine, a host or a sum over many GPUs; the first that fits counts.
Seconds may be a Unix time of the year 9999."""
_LARGEST_OTHER: Final = 1e18
"""Largest number of all else: tokens, requests, parameters of a model. Sums of a million of these stay finite."""
LARGEST: Final = 1e22
"""Largest of all numbers above, for figures whose unit is not known."""


@lru_cache(maxsize=1024)
def largest_number(field: str) -> float:
    """The largest number that a field of this name can have."""
    if field in _LARGEST_BY_FIELD:
        return _LARGEST_BY_FIELD[field]
    for ending, largest in _LARGEST_BY_ENDING:
        if field.endswith(ending):
            return largest
    return _LARGEST_OTHER


def with_dependents(fields: Iterable[str]) -> list[str]:
    """These fields, each before those that it bounds."""
    names: list[str] = []
    for field in fields:
        names.append(field)
        names += _DEPENDENTS.get(field, ())
    return names


def why_impossible(field: str, values: MutableMapping[str, Any]) -> str:
    """Why the number of this GPU's field cannot be true; empty where it can, or where there is none."""
    value = values.get(field, NOT_SUPPORTED)
    bound = BOUNDS[field]
    if value.__class__ is Missing:
        return ""
    if not 0.0 <= value <= bound.most:
        return f"0 to {bound.most:g} is possible"
    most: Reading = values.get(bound.relative_to, NOT_SUPPORTED)
    if isinstance(most, Missing) or value <= most * bound.times:
        return ""
    factor_text = ""
    if bound.times != 1.0:
        factor_text = f"{bound.times:g} x "
    return f"more than {factor_text}its {bound.relative_to.rpartition('_')[0].replace('_', ' ')} of {most:.10g}"


def invalid_reading(value: float, why: str, source: str = "the driver") -> Missing:
    """The reading that stands for a number that cannot be true, and quotes it; `source` is who told the number."""
    return Missing(Reason.INVALID, f"{source} says {value:.10g}: {why}")
