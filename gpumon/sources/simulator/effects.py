"""What a script makes of the figures of GPUs and of the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from gpumon.readings.frame import GpuReading, GpuState, HostReading, XidEvent
from gpumon.readings.missing import NOT_SUPPORTED, Missing, number
from gpumon.sources.simulator.script import GpuSpell, HostSpell, Script, standing

_ACTIVITY = frozenset({"sm_active_ratio", "tensor_active_ratio", "dram_active_ratio"})
_OWN = frozenset({"name", "driver", "cuda", "self_cpu_ratio", "self_pss_bytes"})
"""Of a host's reading what is always the real one's: gpumon runs there."""


def scripted(reading: GpuReading, script: Script, at_s: float, zero_wall_s: float, gone: frozenset[str]) -> GpuReading:
    """A GPU's reading with what the script says of it.

    `zero_wall_s`: Unix time of the simulated time zero. `gone`: engines whose processes have ended.
    """
    mine = [spell for spell in script.gpus if reading.index in spell.gpus]
    fields: dict[str, object] = dict.fromkeys(script.unmeasured, NOT_SUPPORTED)
    if fields.keys() >= _ACTIVITY:
        fields["activity_source"] = ""
    if any(process.engine in gone for process in reading.processes):
        left = tuple(process for process in reading.processes if process.engine not in gone)
        fields |= {"processes": left, "vram_used_bytes": sum(number(each.vram_bytes) or 0.0 for each in left)}
    fields["xid"] = tuple(_xids(mine, at_s, zero_wall_s))
    for spell in standing(mine, at_s):
        if spell.state is GpuState.LOST:
            return _lost(reading, spell, tuple(_xids(mine, at_s, zero_wall_s)))
        fields |= spell.figures
        if spell.state is not GpuState.OK:
            fields |= {"state": spell.state, "state_text": spell.state_text}
        if spell.throttle:
            fields["throttle"] = tuple(sorted({*reading.throttle, *spell.throttle}))
            fields["throttle_s"] = _throttled(reading, mine, at_s)
    return msgspec.structs.replace(reading, **fields)


def _lost(reading: GpuReading, spell: GpuSpell, xid: tuple[XidEvent, ...]) -> GpuReading:
    return GpuReading(
        reading.index,
        reading.uuid,
        reading.name,
        GpuState.LOST,
        reading.monotonic_s,
        spell.state_text,
        source=reading.source,
        xid=xid,
    )


def _xids(spells: Iterable[GpuSpell], at_s: float, zero_wall_s: float) -> Iterable[XidEvent]:
    """Those that have come since the warm-up: the driver's events begin with the monitor."""
    for spell in spells:
        if spell.xid and 0.0 <= spell.from_s <= at_s:
            yield XidEvent(spell.xid, zero_wall_s + spell.from_s)


def _throttled(reading: GpuReading, spells: Iterable[GpuSpell], at_s: float) -> dict[str, float]:
    """The driver's counters: they run as long as a cause holds. A spell without a beginning is an hour old."""
    counters = dict(reading.throttle_s)
    for spell in spells:
        seconds = min(at_s, spell.to_s) - max(spell.from_s, -3600.0)
        for cause in spell.throttle:
            counted = _COUNTED.get(cause)
            if counted in counters:
                counters[counted] += max(0.0, seconds)
    return counters


_COUNTED = {
    "sw_power_cap": "sw_power_cap",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake_slowdown",
}
"""Cause of this moment -> the driver's counter of it."""


class HostMeter(Protocol):
    """Reads the machine and gpumon's own cost."""

    def read(self, pids: tuple[int, ...]) -> HostReading:
        """The newest figures; `pids` are gpumon's child processes."""


class ScriptedHost:
    """The host of a script: its load is simulated, gpumon's own cost is the real one's."""

    def __init__(self, real: HostMeter, spells: tuple[HostSpell, ...], at_s: Callable[[], float]) -> None:
        self._real = real
        self._spells = spells
        self._at_s = at_s

    def read(self, pids: tuple[int, ...]) -> HostReading:
        """The figures of this moment."""
        real = self._real.read(pids)
        host = told(self._spells, self._at_s())
        kept = {field: getattr(real, field) for field in _OWN}
        return msgspec.structs.replace(host, **{**kept, "name": f"{real.name} (simulated load)"})


def told(spells: tuple[HostSpell, ...], at_s: float) -> HostReading:
    """The host of a moment; a later spell goes before an earlier one."""
    host = HostReading()
    for spell in standing(spells, at_s):
        figures = {name: getattr(spell.reading, name) for name in HostReading.__struct_fields__ if name not in _OWN}
        there = {name: value for name, value in figures.items() if not isinstance(value, Missing)}
        host = msgspec.structs.replace(host, **there)
    return host
