"""Names of what holds a GPU's clocks down, by the bits of NVIDIA's mask of clock event reasons."""

from __future__ import annotations

from typing import Final

_THROTTLE: Final = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Clock event reasons by bit, as nvidia-smi names them; 0x1 (idle) is no limit."""


def throttle_names(mask: int) -> tuple[str, ...]:
    """Names of the bits of a clock event mask; a bit that is not known is named by its value."""
    mask &= ~0x1
    names = []
    for bit, name in _THROTTLE.items():
        if mask & bit:
            names.append(name)
    rest = mask & ~sum(_THROTTLE)
    if rest:
        return (*names, hex(rest))
    return tuple(names)
