"""Names of what holds a GPU's clocks down, by the bits of NVIDIA's mask of clock event reasons."""

from __future__ import annotations

from typing import Final

_IDLE: Final = 0x1
"""The bit of an idle GPU: no limit."""
_NAME_BY_BIT: Final = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bit -> clock event reason, as nvidia-smi names it."""


def throttle_names(mask: int) -> tuple[str, ...]:
    """Names of the bits of a clock event mask; a bit that is not known is named by its value."""
    mask &= ~_IDLE
    names = [name for bit, name in _NAME_BY_BIT.items() if mask & bit]
    rest = mask & ~sum(_NAME_BY_BIT)
    if rest:
        return (*names, hex(rest))
    return tuple(names)
