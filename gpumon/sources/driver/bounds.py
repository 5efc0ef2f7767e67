"""What a GPU's figures can be at all: a number of the driver beyond that is no reading."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason


class Bound(NamedTuple):
    """The largest number that can be true, in the field's unit; with `of`, also `times` that other field."""

    most: float
    of: str = ""
    times: float = 1.0


BOUNDS: dict[str, Bound] = {
    **dict.fromkeys(("busy_ratio", "memory_busy_ratio", "remap_pending", "remap_failed"), Bound(1.0)),
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
}
"""Nothing is below 0. The margins are for means over other moments than that of the limit."""
ENERGY_TIMES = 2.0
"""The energy counter grows by no more than this x the power limit x the time, plus a second for its steps."""


def implausible(field: str, values: dict[str, Any]) -> Missing | None:
    """Why the number of this field can not be true, with the number itself; None where it can, or there is none."""
    value, bound = values.get(field, NOT_SUPPORTED), BOUNDS[field]
    if value.__class__ is Missing:
        return None
    if not 0.0 <= value <= bound.most:
        return invalid(value, f"0 to {bound.most:g} is possible")
    most: Reading = values.get(bound.of, NOT_SUPPORTED)
    if not isinstance(most, Missing) and value > most * bound.times:
        times = "" if bound.times == 1.0 else f"{bound.times:g} x "
        return invalid(value, f"more than {times}its {bound.of.rpartition('_')[0].replace('_', ' ')} of {most:.10g}")
    return None


def drop_implausible(values: dict[str, Any]) -> None:
    """Put a reason in the place of every number that can not be true."""
    for field in BOUNDS:
        if (why := implausible(field, values)) is not None:
            values[field] = why


def invalid(value: float, why: str) -> Missing:
    """Stands for a number of the driver that can not be true, and quotes it."""
    return Missing(Reason.INVALID, f"the driver says {value:.10g}: {why}")


class Energy:
    """The energy counter from look to look."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def check(self, values: dict[str, Any], read_s: float) -> None:
        """Drop a counter that has grown by more than the power limit allows since the last look."""
        energy_j, before = values["energy_j"], self._last
        if isinstance(energy_j, Missing):
            return
        self._last = (energy_j, read_s)
        limit_w = values["power_limit_w"]
        most_w = BOUNDS["power_limit_w"].most if isinstance(limit_w, Missing) else limit_w
        if before is not None and energy_j - before[0] > ENERGY_TIMES * most_w * (read_s - before[1] + 1.0):
            values["energy_j"] = invalid(energy_j, f"{energy_j - before[0]:.6g} J more than the last time")
