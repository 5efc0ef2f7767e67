"""Replicas that each model needs, worked out beside the collector: the planner's answer, renewed now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.config.scenario_file import scenario_of_settings
from gpumon.config.schema import Config
from gpumon.readings.snapshot import Snapshot
from gpumon.session.calibrator import Calibrator
from gpumon.sizing.autoscale import ModelNeed, ReplicaCapacity, model_needs, replica_capacities
from gpumon.sizing.peaks import STEP_S
from gpumon.sizing.profile import Observed
from gpumon.sizing.scenario import Catalogues, Scenario
from gpumon.sizing.simulate.tails import SimulatedTails
from gpumon.triage.change import trend

PLAN_EVERY_S: Final = 300.0
"""Seconds between two plans: mixes change slowly, and a plan that simulates requests takes 0.6 s of CPU per model."""
_LOOK_AGAIN_S: Final = 60.0
"""Seconds until the next plan while a model has no capacity yet."""
_FIRST_PLAN_S: Final = 15.0
"""Seconds after the first snapshot at which the first plan is made: an engine has a measured window by then."""
AHEAD_S: Final = 300.0
"""Seconds that a load is carried on: a choice, about what an engine takes to start with its weights on the host."""
_LEAST_STEPS: Final = 9
"""Steps of 10 s of which a trend is told: fewer rise in a row by chance."""
_LEAST_TAU: Final = 0.6
"""Share of the pairs of steps (Kendall's tau) that must rise more than fall, or the reverse."""
_SIGMAS: Final = 2.0
"""Half width of the interval of the slope in standard deviations; `trend` asks for it, the interval is not used."""


class Autoscaler:
    """Learns from snapshots, and says what each model needs."""

    def __init__(self, config: Config) -> None:
        self._base: Scenario = scenario_of_settings(config)
        self._calibrator = Calibrator(config)
        self._tails = SimulatedTails()
        self._capacities: Mapping[str, ReplicaCapacity] = {}
        self._next_plan_s: float | None = None
        """Unix time at which the next plan is due; None before the first snapshot."""
        self._planning: asyncio.Task[None] | None = None
        self._forecasts: Mapping[str, float] = {}
        self._forecast_step = -1.0
        """Number of the step of loads that the forecasts are of."""
        self.needs: tuple[ModelNeed, ...] = ()
        """Needs of each model at the newest snapshot."""

    def start(self) -> None:
        """Begin to read what plans need."""
        self._calibrator.start()

    async def stop(self) -> None:
        """Stop planning."""
        self._calibrator.stop()
        if self._planning is not None:
            self._planning.cancel()
            await asyncio.gather(self._planning, return_exceptions=True)

    def take(self, snapshot: Snapshot) -> None:
        """Learn from one snapshot, and plan anew where that is due."""
        self._calibrator.take(snapshot)
        calibration = self._calibrator.calibration
        step_number = snapshot.wall_s // STEP_S
        if step_number != self._forecast_step:
            self._forecast_step = step_number
            self._forecasts = forecast_loads(calibration.load_steps())
        self.needs = model_needs(snapshot, self._capacities, calibration.in_flight(), self._forecasts)
        if self._next_plan_s is None:
            self._next_plan_s = snapshot.wall_s + _FIRST_PLAN_S
        is_due = not 0.0 <= self._next_plan_s - snapshot.wall_s <= PLAN_EVERY_S  # the clock may go back
        if is_due and (self._planning is None or self._planning.done()):
            is_known = all(need.model in self._capacities for need in self.needs)
            self._next_plan_s = snapshot.wall_s + (PLAN_EVERY_S if is_known else _LOOK_AGAIN_S)
            catalogues = self._calibrator.catalogues()._replace(tails=self._tails)
            self._planning = asyncio.create_task(self._plan(snapshot, calibration.observed(), catalogues))

    async def _plan(self, snapshot: Snapshot, observed: Sequence[Observed], catalogues: Catalogues) -> None:
        """Work the capacities out in a thread: the loop does not wait for it."""
        self._capacities = await asyncio.to_thread(replica_capacities, snapshot, observed, self._base, catalogues)


def forecast_loads(steps: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, float]:
    """Model -> requests in flight in 5 minutes, if its load rises or falls for certain.

    It is carried on no further than it has been seen to.
    """
    forecasts = {}
    for model, means in steps.items():
        line = trend(means, _LEAST_TAU, _SIGMAS)
        if line is not None and len(means) >= _LEAST_STEPS:
            ahead_s = min(AHEAD_S, line.seen_s)
            forecasts[model] = max(0.0, line.level + line.per_s * ahead_s)
    return forecasts
