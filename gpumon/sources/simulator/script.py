"""What happens on the simulated stage beside the traffic: faults, throttling, hangs, restarts, and the host's load."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from gpumon.readings.frame import GpuState, HostReading
from gpumon.readings.missing import Reading

_GIB = float(1 << 30)


class _Spell(msgspec.Struct, frozen=True, kw_only=True):
    """Holds from one moment to another: seconds of simulated time, of which zero is the end of the warm-up."""

    from_s: float = -math.inf
    to_s: float = math.inf


class GpuSpell(_Spell, frozen=True):
    """What is wrong with some GPUs for a while."""

    gpus: tuple[int, ...]
    state: GpuState = GpuState.OK
    """Of one that is lost nothing else is read."""
    state_text: str = ""
    xid: int = 0
    """Code of an Xid error that the driver reports at `from_s`; 0: none."""
    throttle: tuple[str, ...] = ()
    """Causes that the driver names, as in `GpuReading.throttle`."""
    clock_share: float = 1.0
    """SM clock, as a share of the highest."""
    figures: dict[str, Reading] = {}
    """Fields of `GpuReading` and what they say instead: what no physics gives, such as ECC counts."""


class EngineSpell(_Spell, frozen=True):
    """What is wrong with an engine for a while; after it a new process starts with empty counters."""

    engine: str
    """Name of the actor."""
    down: bool = False
    """Its process is gone: nobody listens. Otherwise it hangs: it answers, takes requests and makes no step."""
    mute: bool = False
    """It takes connections and answers none of them, and its processes still hold their GPUs."""
    spinning: bool = False
    """While it hangs, its kernels wait for each other: the GPUs are busy and read no memory."""


class HostSpell(_Spell, frozen=True):
    """What the machine does for a while; rhythm and noise are left out. Of two that hold, the later counts."""

    reading: HostReading
    """Figures that are not in it are as the spells before it say."""


def host(**figures: float) -> HostSpell:
    """A host of 64 cores that has little to do, but for what is said of it."""
    quiet = {
        "cpu_ratio": 0.06,
        "busiest_core_ratio": 0.45,
        "iowait_ratio": 0.0,
        "cpu_pressure_ratio": 0.0,
        "io_pressure_ratio": 0.0,
        "memory_pressure_ratio": 0.0,
        "memory_used_bytes": 96 * _GIB,
        "memory_total_bytes": 1024 * _GIB,
        "disk_read_bytes_per_s": 2e5,
        "disk_write_bytes_per_s": 4e5,
        "disk_busy_ratio": 0.01,
        "network_rx_bytes_per_s": 3e5,
        "network_tx_bytes_per_s": 9e5,
    }
    return HostSpell(reading=msgspec.structs.replace(HostReading(), **{**quiet, **figures}))


class Script(msgspec.Struct, frozen=True):
    """All of it."""

    gpus: tuple[GpuSpell, ...] = ()
    engines: tuple[EngineSpell, ...] = ()
    host: tuple[HostSpell, ...] = (host(),)
    unmeasured: tuple[str, ...] = ()
    """Fields of `GpuReading` that these GPUs do not have."""


S = TypeVar("S", bound=_Spell)


def standing(spells: Iterable[S], at_s: float) -> list[S]:
    """Those that hold at a moment."""
    return [spell for spell in spells if spell.from_s <= at_s < spell.to_s]


def boundaries(spells: Iterable[_Spell]) -> list[float]:
    """The moments at which something changes, in order."""
    return sorted({at_s for spell in spells for at_s in (spell.from_s, spell.to_s) if math.isfinite(at_s)})
