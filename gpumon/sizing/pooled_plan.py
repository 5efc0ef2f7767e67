"""The whole plan with prefill and decode on pools of their own: both pools stand on servers and are priced.

Each workload that asks for pools becomes two, one for each pool, whose instances are those of the best split. They are
placed, summed and priced as any other workload is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from gpumon.sizing.accuracy import NO_BAND
from gpumon.sizing.answer import NOT_GIVEN, Answer, Limit, LimitKind, Source, WorkloadPlan
from gpumon.sizing.disaggregated import NOT_MEASURED, PoolSizes, best_split, split_notes
from gpumon.sizing.first_token import FirstToken
from gpumon.sizing.instance import Instance
from gpumon.sizing.plan import DetailedPlan, detailed_plan, totals_of, with_server
from gpumon.sizing.scenario import GOAL_NAMES, Catalogues, Scenario, Server, Workload
from gpumon.sizing.search import Demand, demand_of, memory_of

PREFILL: Final = "prefill"
DECODE: Final = "decode"


class _Pool(NamedTuple):
    """A pool as a workload of its own."""

    whole: Workload
    """The workload that both pools serve."""
    role: str
    """`PREFILL` or `DECODE`."""


def has_pools(scenario: Scenario) -> bool:
    """Whether a workload asks for pools of its own."""
    return any(workload.disaggregated is not None for workload in scenario.workload)


def pooled_plan(scenario: Scenario, catalogues: Catalogues, have: Mapping[str, int] | None = None) -> DetailedPlan:
    """The plan in which each workload with `disaggregated` is two, a pool for prefill and one for decode.

    Never raises on what a user can type: what has no answer says why in `problem`.
    """
    scenario = with_server(scenario, catalogues)
    pools = _Pools()
    workloads: list[Workload] = []
    for workload in scenario.workload:
        if workload.disaggregated is None:
            workloads.append(workload)
        else:
            workloads += pools.split_in_two(workload)
    with_pools = msgspec.structs.replace(scenario, workload=tuple(workloads))
    placed = detailed_plan(with_pools, catalogues, have, decide=pools.decide)
    return placed._replace(answer=_with_figures_of_both(placed.answer, with_pools, pools))


class _Pools:
    """Workloads that stand for pools, and the splits that their instances are of."""

    def __init__(self) -> None:
        self._pools: dict[int, _Pool] = {}
        """Identity of the workload of a pool -> the pool."""
        self._splits: dict[tuple[int, tuple[Server, ...]], PoolSizes | str] = {}
        """Identity of a whole workload, and the servers -> its split there, or why there is none."""

    def split_in_two(self, whole: Workload) -> list[Workload]:
        """A workload for each pool of a whole one."""
        workloads = []
        for role in (PREFILL, DECODE):
            workload = msgspec.structs.replace(whole, name=f"{whole.label}: {role}", disaggregated=None)
            self._pools[id(workload)] = _Pool(whole, role)
            workloads.append(workload)
        return workloads

    def pool(self, workload: Workload) -> _Pool | None:
        """The pool that a workload stands for; None for one without pools."""
        return self._pools.get(id(workload))

    def first_split(self, pool: _Pool) -> PoolSizes | None:
        """The split of a whole workload on the first servers that carry it; None where none do."""
        for (whole, _), split in self._splits.items():
            if whole == id(pool.whole) and not isinstance(split, str):
                return split
        return None

    def decide(self, workload: Workload, scenario: Scenario, catalogues: Catalogues) -> Demand:
        """The needs of a workload, or of a pool, on servers with one type of GPU."""
        pool = self._pools.get(id(workload))
        if pool is None:
            return demand_of(workload, scenario, catalogues)
        key = (id(pool.whole), scenario.server)
        if key not in self._splits:
            self._splits[key] = _split_or_why(pool.whole, scenario, catalogues)
        split = self._splits[key]
        if isinstance(split, str):
            return Demand(workload, Instance(workload), problem=split)
        if pool.role == PREFILL:
            return _prefill_demand(workload, split, scenario)
        return _decode_demand(workload, split)


def _split_or_why(whole: Workload, scenario: Scenario, catalogues: Catalogues) -> PoolSizes | str:
    """The best split of a workload on the servers of a scenario, or why there is none."""
    settings = whole.disaggregated
    assert settings is not None
    try:
        return best_split(whole, settings, scenario, catalogues)
    except ValueError as why:
        return str(why)


def _prefill_demand(workload: Workload, split: PoolSizes, scenario: Scenario) -> Demand:
    """The prefill pool: an instance computes as many prompts at once as it has ranks and stages, and no tokens after
    the first."""
    prefill = split.prefill
    in_flight = split.requests_per_s * prefill.prompt_s
    goals = dict.fromkeys(GOAL_NAMES)
    instance = prefill.instance._replace(
        workload=msgspec.structs.replace(prefill.instance.workload, **goals),
        seen=None,
        curve=None,
        fitted=None,
        first=FirstToken(),
        band=NO_BAND,
        source=Source.ROOFLINE,
        notes=(NOT_MEASURED,),
    )
    planned = prefill.ranks * split.most_busy_ratio
    text = f"{prefill.ranks} at once, each prompt in {prefill.prompt_s * 1e3:,.0f} ms"
    memory_bytes, memory_source = memory_of(instance, float(prefill.ranks), scenario)
    return Demand(
        workload=msgspec.structs.replace(workload, target=in_flight, target_kind="concurrency"),
        instance=instance,
        limits=(Limit(LimitKind.PREFILL, float(prefill.ranks), text),),
        planned_running=planned,
        needed_instances=split.prefill_instances,
        exact_instances=in_flight / planned,
        spares=split.decode.spares,
        memory_bytes=memory_bytes,
        memory_source=memory_source,
    )


def _decode_demand(workload: Workload, split: PoolSizes) -> Demand:
    """The decode pool, with the requests that are in flight in it."""
    in_flight = split.requests_per_s * split.decode_stay_s
    return split.decode._replace(
        workload=msgspec.structs.replace(workload, target=in_flight, target_kind="concurrency"),
        needed_instances=split.decode_instances,
        exact_instances=in_flight / split.decode.planned_running,
    )


def _with_figures_of_both(answer: Answer, scenario: Scenario, pools: _Pools) -> Answer:
    """The answer whose pools have the rate and the latencies of a request that passes both.

    Output tokens are counted at the decode pools alone.
    """
    plans: list[WorkloadPlan] = []
    answering: list[WorkloadPlan] = []
    for workload, workload_plan in zip(scenario.workload, answer.workloads, strict=True):
        pool = pools.pool(workload)
        split = pools.first_split(pool) if pool is not None else None
        if pool is not None and split is not None and not workload_plan.problem:
            workload_plan = _pool_plan(workload_plan, pool, split, scenario)
        plans.append(workload_plan)
        if pool is None or pool.role == DECODE:
            answering.append(workload_plan)
    packed = answer.plans.memory_only if answer.packing == "memory" else answer.plans.busy_aware
    totals = totals_of(plans, packed, answering)
    return msgspec.structs.replace(answer, workloads=tuple(plans), totals=totals)


def _pool_plan(workload_plan: WorkloadPlan, pool: _Pool, split: PoolSizes, scenario: Scenario) -> WorkloadPlan:
    """The plan of a pool with the target of the whole workload, and the figures of requests that pass both pools."""
    common = msgspec.structs.replace(
        workload_plan,
        pool=pool.role,
        target=pool.whole.target,
        target_kind=pool.whole.target_kind,
        requests_per_s=split.requests_per_s,
        ttft_s=split.ttft_s,
    )
    if pool.role == PREFILL:
        return msgspec.structs.replace(common, itl_s=NOT_GIVEN, tokens_per_s=NOT_GIVEN, notes=(NOT_MEASURED,))
    answer_tokens = split.decode.instance.answer_tokens or 0.0
    return msgspec.structs.replace(
        common,
        notes=(*split_notes(split, scenario), *common.notes),
        e2e_s=split.ttft_s + split.itl_s * max(0.0, answer_tokens - 1.0),
        tokens_per_s=split.requests_per_s * answer_tokens,
    )
