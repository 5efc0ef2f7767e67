"""Measurements of the running engines and look-ups, gathered for sizing while snapshots are shown."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from gpumon.config.schema import Config
from gpumon.readings.snapshot import Snapshot

if TYPE_CHECKING:
    from gpumon.sizing.calibration import Calibration
    from gpumon.sizing.profile import Observed
    from gpumon.sizing.scenario import Catalogues
    from gpumon.specs.llm import LlmSpec


class Calibrator:
    """Learns from every snapshot that is shown, and gives sizing its catalogues.

    It imports what it needs late, so that the screen's first paint does not wait for it.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._newest: Snapshot | None = None
        self._profiles: Mapping[str, Observed] = {}
        self._own_models: dict[str, LlmSpec] = {}
        """Model name -> its dimensions, of the engines that were seen so far."""
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read the imported profiles."""
        self._reading = asyncio.create_task(self._read_profiles())

    def stop(self) -> None:
        """Stop reading, if it ever began."""
        if self._reading is not None:
            self._reading.cancel()

    def take(self, snapshot: Snapshot) -> None:
        """Learn from one snapshot."""
        self._newest = snapshot
        self.calibration.take(snapshot)

    @cached_property
    def calibration(self) -> Calibration:
        """Operating points of the engines, gathered at every snapshot."""
        from gpumon.sizing.calibration import Calibration

        return Calibration()

    async def _read_profiles(self) -> None:
        """Read the imported profiles from their files, in a thread. Files that cannot be read are left out."""
        from gpumon.config.profile_store import all_profiles

        self._profiles = await asyncio.to_thread(all_profiles, os.environ)

    def catalogues(self) -> Catalogues:
        """Models, GPUs, prices and imported profiles, as known by now: profiles come a moment after the start."""
        from gpumon.config.prices import sizing_prices
        from gpumon.sizing.live import own_models
        from gpumon.sizing.live_gpus import gpus_here
        from gpumon.sizing.scenario import Catalogues
        from gpumon.sources.model_facts import OwnModels
        from gpumon.sources.packaged import gpu_catalogue, llm_catalogue, network_catalogue

        newest = self._newest
        gpus = gpu_catalogue(self._config.gpu)
        types: list[str] = []
        if newest is not None:
            # Models of engines that are gone are kept: what was measured on them still needs their dimensions.
            self._own_models |= own_models(newest)
            types += [name for name, _ in gpus_here(newest)]
        own = OwnModels(self._own_models, self._config.model)
        prices = sizing_prices(self._config, gpus, types)
        return Catalogues(gpus, llm_catalogue(), own, self._profiles, prices, network_catalogue())
