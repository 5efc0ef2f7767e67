"""What the screen may ask of the collector behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot


class Control(Protocol):
    """The collector, as the screen sees it."""

    history: History
    """Series for the charts, on the clock of `Snapshot.wall_s`."""

    @property
    def interval_s(self) -> float:
        """Seconds between two snapshots."""

    async def start(self, sink: Callable[[Snapshot], None]) -> None:
        """Begin to collect; returns at once. `sink` gets every snapshot and never blocks."""

    async def ended(self) -> None:
        """Wait until collecting ends, by `stop`; raises what ended it otherwise."""

    def set_interval(self, seconds: float) -> None:
        """Change the time between two snapshots."""

    def refresh(self) -> None:
        """Take a snapshot now."""

    async def stop(self) -> None:
        """Stop collecting, within a fraction of a second."""
