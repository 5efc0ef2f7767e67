"""Start, stop and cadence of a source of snapshots, and the measurements that sizing takes from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from gpumon.config.schema import Config
from gpumon.readings.snapshot import Snapshot
from gpumon.session.calibrator import Calibrator

if TYPE_CHECKING:
    from gpumon.sizing.calibration import Calibration
    from gpumon.sizing.scenario import Catalogues

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
"""Snapshot of a host, or of a fleet."""
Take = Callable[[Snapshot], None]
"""Takes a snapshot of one machine, or of a fleet as one machine."""
_MOST_END_S: Final = 0.25
"""Seconds that a source's work may take to end once it is cancelled: who quits does not wait for longer."""


class SnapshotSource(Protocol[S_co]):
    """Brings the snapshots of a session: this host, a recording, a host of a fleet, or a whole fleet."""

    @property
    def interval_s(self) -> float:
        """Seconds between two snapshots."""

    def set_interval(self, seconds: float) -> None:
        """Change the time between two snapshots."""

    def refresh(self) -> None:
        """Take a snapshot now."""

    async def begin(self, show: Callable[[S_co], None], learn: Take) -> None:
        """Get ready, and return soon. `show` takes each snapshot to be shown, `learn` those that sizing learns from."""

    async def run(self) -> None:
        """Bring snapshots until it is cancelled; raises whatever else ends it."""

    async def end(self) -> None:
        """Let go of everything, within a fraction of a second."""


class Session(Generic[S]):
    """The snapshots of a source, from start to stop, and the measurements that sizing takes from them."""

    def __init__(self, config: Config, source: SnapshotSource[S]) -> None:
        self._config = config
        self._source = source
        self._calibrator = Calibrator(config)
        self._task: asyncio.Task[None] | None = None
        self._begun = False

    @cached_property
    def prices(self) -> Mapping[str, float]:
        """Prices for the costs on the screen: catalogue name of a GPU -> price of one hour, "" for all others.

        Empty where none are known.
        """
        from gpumon.config.prices import running_prices
        from gpumon.sources.packaged import gpu_catalogue

        return running_prices(self._config, gpu_catalogue(self._config.gpu)).per_gpu_hour

    @property
    def interval_s(self) -> float:
        """Seconds between two snapshots."""
        return self._source.interval_s

    def set_interval(self, seconds: float) -> None:
        """Change the time between two snapshots."""
        self._source.set_interval(seconds)

    def refresh(self) -> None:
        """Take a snapshot now."""
        self._source.refresh()

    @property
    def calibration(self) -> Calibration:
        """Operating points of the engines, gathered at every snapshot."""
        return self._calibrator.calibration

    def catalogues(self) -> Catalogues:
        """Models, GPUs, prices and imported profiles, as they are known by now."""
        return self._calibrator.catalogues()

    @property
    def running(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._begun

    async def start(self, sink: Callable[[S], None]) -> None:
        """Begin; returns soon. `sink` gets every snapshot, in this event loop. May be called again after `stop`."""
        self._begun = True
        await self._source.begin(sink, self._calibrator.take)
        self._calibrator.start()
        self._task = asyncio.create_task(self._source.run())

    async def ended(self) -> None:
        """Wait for its end; raises CancelledError when it is stopped, and whatever else ended it."""
        if self._task is not None:
            await asyncio.shield(self._task)  # a waiter that is cancelled must not end it

    async def stop(self) -> None:
        """Stop it, if it ever started."""
        self._begun = False
        self._calibrator.stop()
        task = self._task
        self._task = None
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=_MOST_END_S)
        await self._source.end()
