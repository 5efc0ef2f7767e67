"""Replicas that each served model needs for the load of the last minutes, and how near it is to its limits.

The capacity of a replica is the planner's (`search.demand_at_own_tp`): for the goals, as the engines that run were
measured, with the planning factor. A replica is an engine, all its data-parallel ranks together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.service import engines_in_sums
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.sizing.answer import LimitKind
from gpumon.sizing.live import from_live
from gpumon.sizing.peaks import PeakLoad, credible, in_flight
from gpumon.sizing.profile import Observed
from gpumon.sizing.scenario import Catalogues, Scenario
from gpumon.sizing.search import demand_at_own_tp

_WARMING_UP: Final = Missing(Reason.WARMING_UP)
KV: Final = "kv"
SLOTS: Final = "slots"
COMPUTE: Final = "compute"
BANDWIDTH: Final = "bandwidth"


class ReplicaCapacity(NamedTuple):
    """Requests in flight that one replica of a model carries."""

    planned: float
    """Within the goals and the planning factor."""
    kv: float | None = None
    """As many as its KV cache holds, each with the tokens that it needs; None: not known."""
    slots: float | None = None
    """As many as it lets run at once; None: not known."""


class ModelNeed(msgspec.Struct, frozen=True):
    """Figures of one model for an autoscaler."""

    model: str
    replicas: int
    """Engines that answer."""
    load: Reading
    """Requests in flight now: running, waiting and turned away."""
    capacity: Reading
    """Requests in flight that one replica is planned with."""
    needed_for_mean: Reading
    """Replicas for the mean load of the last minutes, at least 1; so are the next two."""
    needed_for_peak: Reading
    """Replicas for the highest mean of 10 s in these minutes."""
    needed_for_forecast: Reading
    """Replicas for the load some minutes ahead, as it rises or falls now."""
    headroom_ratio: Reading
    """Share of the planned capacity of all replicas that the peak leaves; below 0 where it is more."""
    saturations: Mapping[str, float]
    """Limit -> the share of it that the load takes now."""

    @property
    def saturation_ratio(self) -> Reading:
        """The share of the nearest limit that the load takes."""
        if not self.saturations:
            return NOT_EXPOSED
        return max(self.saturations.values())


def replica_capacities(
    snapshot: Snapshot, observed: Sequence[Observed], base: Scenario, catalogues: Catalogues
) -> dict[str, ReplicaCapacity]:
    """Served model name -> capacity of one replica; none for a model of which the planner knows too little.

    `base` has goals and planning factor, `observed` the measurements of the engines.
    """
    scenario = from_live(snapshot, observed, base)
    capacities = {}
    for workload in scenario.workload:
        if workload.seen is None or workload.seen.prompt_tokens is None or workload.seen.answer_tokens is None:
            continue  # without lengths neither the KV cache nor a goal bounds it, and slots alone promise too much
        demand = demand_at_own_tp(workload, scenario, catalogues)
        if demand.problem or demand.planned_running <= 0.0:
            continue
        ranks_of_engines = [engine.hardware.ranks for engine in snapshot.engines if engine.model == workload.model]
        ranks = max(ranks_of_engines, default=1) or 1
        bounds = {limit.kind: limit.concurrency * ranks for limit in demand.limits}
        capacities[workload.model] = ReplicaCapacity(
            planned=demand.planned_running * ranks,
            kv=bounds.get(LimitKind.KV),
            slots=bounds.get(LimitKind.MAX_NUM_SEQS),
        )
    return capacities


def model_needs(
    snapshot: Snapshot,
    capacities: Mapping[str, ReplicaCapacity],
    loads: Mapping[str, PeakLoad],
    forecasts: Mapping[str, float],
) -> tuple[ModelNeed, ...]:
    """The needs of each served model. `loads`: those of the last minutes; `forecasts`: requests in flight that are
    expected some minutes ahead; a model that is not in it is expected to stay at its mean."""
    needs = []
    for model, load in in_flight(snapshot).items():
        replicas = [engine for engine in engines_in_sums(snapshot.engines) if engine.model == model]
        answering = [engine for engine in replicas if credible(engine.load.running) is not None]
        capacity = capacities.get(model)
        past = loads.get(model)
        mean = past.mean if past is not None else None
        peak = max(past.peak, load) if past is not None else None
        needs.append(
            ModelNeed(
                model=model,
                replicas=len(answering),
                load=load,
                capacity=_WARMING_UP if capacity is None else capacity.planned,
                needed_for_mean=_needed(mean, capacity),
                needed_for_peak=_needed(peak, capacity),
                needed_for_forecast=_needed(forecasts.get(model, mean), capacity),
                headroom_ratio=_headroom(peak, len(answering), capacity),
                saturations=_saturations(load, answering, capacity),
            )
        )
    return tuple(needs)


def _needed(load: float | None, capacity: ReplicaCapacity | None) -> Reading:
    """Replicas for so many requests in flight, at least one: a replica that is not there shows no load."""
    if load is None or capacity is None:
        return _WARMING_UP
    return float(max(1, math.ceil(load / capacity.planned)))


def _headroom(peak: float | None, replicas: int, capacity: ReplicaCapacity | None) -> Reading:
    """Share of the planned capacity of all replicas that the peak leaves."""
    if peak is None or capacity is None or not replicas:
        return _WARMING_UP
    return 1.0 - peak / (replicas * capacity.planned)


def _saturations(load: float, answering: Sequence[Engine], capacity: ReplicaCapacity | None) -> dict[str, float]:
    """Limit -> share of it that is taken: of KV cache and slots by all requests in flight, also those that wait; of
    arithmetic and bandwidth by the busiest replica. Limits that are not known are left out."""
    saturations: dict[str, float] = {}
    if capacity is not None and answering:
        if capacity.kv:
            saturations[KV] = load / (capacity.kv * len(answering))
        if capacity.slots:
            saturations[SLOTS] = load / (capacity.slots * len(answering))
    for name, field in ((COMPUTE, "mfu_ratio"), (BANDWIDTH, "mbu_ratio")):
        shares = [credible(getattr(engine.efficiency, field)) for engine in answering]
        known = [share for share in shares if share is not None]
        if known:
            saturations[name] = max(known)
    return saturations
