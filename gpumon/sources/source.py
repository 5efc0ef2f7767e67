"""Interface of every source of readings, as the collector sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from gpumon.readings.frame import EngineReading, Fault, GpuReading, HostReading


class Contribution(msgspec.Struct, frozen=True):
    """Readings of one source for the frame of this tick. `pids` are gpumon's own child processes, for its own cost."""

    gpus: tuple[GpuReading, ...] = ()
    engines: tuple[EngineReading, ...] = ()
    faults: tuple[Fault, ...] = ()
    driver: str = ""
    cuda: str = ""
    pids: tuple[int, ...] = ()


class Round(msgspec.Struct, frozen=True):
    """The readings of all sources at one moment."""

    parts: Sequence[Contribution]
    wall_s: float
    monotonic_s: float
    interval_s: float
    """Seconds until the next round, as planned."""


class Source(Protocol):
    """Something outside that is read. A source never raises for what the outside does: it reports a fault."""

    async def start(self) -> None:
        """Begin reading; returns at once, whatever state the outside is in."""

    async def ready(self, timeout_s: float) -> None:
        """Wait until the first reading or the first failure is there, at most `timeout_s`."""

    async def poll(self, monotonic_s: float) -> Contribution:
        """The newest readings; returns within a quarter of a second even if the outside hangs.

        `monotonic_s` is `time.monotonic()` at the tick.
        """

    def set_interval(self, seconds: float) -> None:
        """The ticks come this far apart from now on; a source with a cadence of its own takes no notice."""

    async def close(self) -> None:
        """Stop reading and free everything, within a quarter of a second."""


@runtime_checkable
class PcieMeter(Protocol):
    """A source that measures the PCIe traffic of single GPUs, at a cost, while that is asked for."""

    def watch_pcie(self, uuids: frozenset[str]) -> None:
        """Measure it of these GPUs from now on, and of no other; returns at once."""


@runtime_checkable
class AtHand(Protocol):
    """A source that reads at its own pace and has its newest readings at hand: a tick need not wait for it."""

    def newest(self) -> Contribution:
        """The contribution that `Source.poll` would give."""


class HostMeter(Protocol):
    """Reads the machine and gpumon's own cost."""

    def read(self, pids: tuple[int, ...]) -> HostReading:
        """The newest figures; `pids` are gpumon's child processes."""
