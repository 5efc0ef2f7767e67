"""The whole answer to a scenario: instances, GPUs and servers of every workload, by both packings, with the cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.ratio import divide
from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.accuracy import Band, band_of
from gpumon.sizing.answer import (
    NONE_LEFT_OUT,
    NOT_GIVEN,
    Alternative,
    Answer,
    Degraded,
    JudgedGoal,
    LimitKind,
    OnGpu,
    Packed,
    Plans,
    Totals,
    WorkloadPlan,
)
from gpumon.sizing.capacity import binding
from gpumon.sizing.disaggregated import compare_disaggregated
from gpumon.sizing.instance import Instance
from gpumon.sizing.plan_notes import has_several_types, plan_notes, plan_warnings, type_notes, uneven_notes
from gpumon.sizing.pools import PackedPools, ServerPool, WorkloadPart, first_demands, pools_of
from gpumon.sizing.ranges import Counts, EndCounts, ends_of, with_range
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sizing.search import INFEASIBLE, Demand, demand_of
from gpumon.sizing.servers import compare_with_gpus_here, weighted_sum
from gpumon.sizing.service import at_target, degraded_of, judged_goals, loads_at_target
from gpumon.sizing.split import cheapest_packing, pack_both_ways

NO_WORKLOAD: Final = "no workload: add a model and a target"
"""Problem of a scenario without any workload."""
_NO_FIGURES: Final[dict[str, Reading]] = dict.fromkeys(
    (
        *("concurrency", "running", "itl_s", "ttft_s", "e2e_s", "itl_p95_s", "ttft_p95_s"),
        *("tokens_per_s", "requests_per_s", "power_w"),
    ),
    INFEASIBLE,
)
"""Figures at the target (`at_target`) of a workload that has no place."""

DemandKey = tuple[int, tuple[Server, ...]]
"""Identity of a workload, and the servers that its needs are of."""


class DetailedPlan(NamedTuple):
    """The answer, the demands that it stands on, and what the next answer can go on with."""

    answer: Answer
    scenario: Scenario
    catalogues: Catalogues
    demands: tuple[Demand, ...]
    """Needs of each workload, on the type of GPU that most of its instances stand on."""
    demands_by_servers: Mapping[DemandKey, Demand] = MappingProxyType({})
    """Needs of each workload on the servers of each pool. `scenario` keeps the workloads, so that no other has their
    identity."""
    ends: tuple[EndPlan, EndPlan] | None = None
    """Needs at the fast and the slow end of its bands, where too few loads were measured for one number."""


class EndPlan(NamedTuple):
    """Needs at one end of the bands of a plan, and what the next one can go on with."""

    counts: EndCounts
    scenario: Scenario
    catalogues: Catalogues
    demands_by_servers: Mapping[DemandKey, Demand]


def _reusable_demands(
    before: DetailedPlan | EndPlan | None, scenario: Scenario, catalogues: Catalogues
) -> Mapping[DemandKey, Demand]:
    """The needs of an earlier plan that hold in the next scenario, too: all if nothing but its workloads and texts
    differs, else none.

    Workloads that differ have another identity.
    """
    if before is None:
        return {}
    without_workloads = {"workload": (), "name": "", "note": ""}
    earlier = msgspec.structs.replace(before.scenario, **without_workloads)
    if msgspec.structs.replace(scenario, **without_workloads) != earlier or catalogues is not before.catalogues:
        return {}
    return before.demands_by_servers


Decide = Callable[[Workload, Scenario, Catalogues], Demand]
"""Gives the needs of a workload on servers with one type of GPU."""


class _Needs:
    """Needs of workloads on servers with one type of GPU; those that an earlier answer had are not worked out anew."""

    def __init__(
        self,
        catalogues: Catalogues,
        reusable: Mapping[DemandKey, Demand],
        *,
        any_tp: bool = False,
        decide: Decide | None = None,
    ) -> None:
        self._catalogues = catalogues
        self._reusable = reusable
        self._any_tp = any_tp
        self._decide = decide
        self.demands_by_servers: dict[DemandKey, Demand] = {}

    def __call__(self, workload: Workload, scenario: Scenario) -> Demand:
        """The needs of a workload on the servers of a scenario, which have one type of GPU."""
        key = id(workload), scenario.server
        demand = self._reusable.get(key)
        if demand is None and self._decide is not None:
            demand = self._decide(workload, scenario, self._catalogues)
        elif demand is None:
            demand = demand_of(workload, scenario, self._catalogues, any_tp=self._any_tp)
        self.demands_by_servers[key] = demand
        return demand


def plan(
    scenario: Scenario, catalogues: Catalogues, have: Mapping[str, int] | None = None, decide: Decide | None = None
) -> Answer:
    """The answer to a scenario.

    `have`: catalogue name of a GPU -> how many of it are here (None: nothing is compared); `decide` gives the needs of
    each workload (None: the formulas do).

    Never raises on what a user can type: what has no answer says why in `problem`.
    """
    return detailed_plan(scenario, catalogues, have, decide=decide).answer


def detailed_plan(
    scenario: Scenario,
    catalogues: Catalogues,
    have: Mapping[str, int] | None = None,
    before: DetailedPlan | None = None,
    *,
    any_tp: bool = False,
    decide: Decide | None = None,
) -> DetailedPlan:
    """The answer of `plan` with the needs that it stands on.

    Workloads that did not change since the plan `before` are not worked out anew. With `any_tp` the TP that an engine
    was seen with does not stay: the one that takes the fewest GPUs is taken. The answer has a range of GPUs where too
    few loads were measured, but not with `any_tp` nor `decide`.
    """
    planned = _plan_once(scenario, catalogues, have, before, any_tp=any_tp, decide=decide)
    if any_tp or decide is not None:
        return planned
    return _with_range(planned, before)


def _with_range(planned: DetailedPlan, before: DetailedPlan | None) -> DetailedPlan:
    """The plan with its range of GPUs, if it stands on too few measured loads."""
    ends = ends_of(planned.answer, planned.demands, planned.scenario, planned.catalogues)
    if ends is None:
        return planned
    earlier = before.ends if before is not None and before.ends is not None else (planned, planned)
    fast = _end_plan(ends.fast, planned.catalogues, earlier[0])
    slow = _end_plan(ends.slow, planned.catalogues, earlier[1])
    answer = with_range(planned.answer, fast.counts, slow.counts, ends.reasons)
    return planned._replace(answer=answer, ends=(fast, slow))


def _end_plan(scenario: Scenario, catalogues: Catalogues, before: DetailedPlan | EndPlan) -> EndPlan:
    """GPUs and servers of a scenario at one end of its bands, without all else that an answer has."""
    needs = _Needs(catalogues, _reusable_demands(before, scenario, catalogues))
    pools = pools_of(scenario, needs)
    packed = cheapest_packing(pools, scenario, catalogues)
    workloads = []
    for demand, parts, problem in zip(_main_demands(pools, packed), packed.parts, packed.problems, strict=True):
        if demand.problem or problem:
            workloads.append(Counts(INFEASIBLE, INFEASIBLE))
        else:
            gpus = float(sum(part.placement.gpus for part in parts))
            servers = float(sum(part.placement.servers for part in parts))
            workloads.append(Counts(gpus, servers))
    totals = Counts(packed.packed.gpus, packed.packed.servers)
    return EndPlan(EndCounts(tuple(workloads), totals), scenario, catalogues, needs.demands_by_servers)


def _plan_once(
    scenario: Scenario,
    catalogues: Catalogues,
    have: Mapping[str, int] | None,
    before: DetailedPlan | None,
    *,
    any_tp: bool = False,
    decide: Decide | None = None,
) -> DetailedPlan:
    """The plan of `detailed_plan` without a range of GPUs."""
    original = scenario
    scenario = with_server(scenario, catalogues)
    reusable = _reusable_demands(before, scenario, catalogues)
    needs = _Needs(catalogues, reusable, any_tp=any_tp, decide=decide)
    pools = pools_of(scenario, needs)
    memory_only, busy_aware = pack_both_ways(pools, scenario, catalogues)
    asked = memory_only if scenario.packing == "memory" else busy_aware
    demands = _main_demands(pools, asked)
    workloads = _workload_plans(pools, asked, scenario, catalogues)
    unsolved = [workload for workload in workloads if workload.problem]
    problem = asked.packed.problem
    if not demands:
        problem = NO_WORKLOAD
    elif unsolved:
        problem = f"{unsolved[0].name}: {unsolved[0].problem}"
    compared = compare_with_gpus_here(have, scenario, asked.packed, catalogues) if have is not None else None
    left_out: tuple[str, ...] = ()
    totals_without = _totals_of_solved(pools, workloads, scenario, catalogues)
    if totals_without is not NONE_LEFT_OUT:
        left_out = tuple(workload.name for workload in unsolved)
    answer = Answer(
        name=scenario.name,
        packing=scenario.packing,
        workloads=workloads,
        totals=totals_of(workloads, asked.packed),
        plans=Plans(memory_only.packed, busy_aware.packed),
        warnings=(
            *names_taken(original, catalogues),
            *plan_warnings(demands, original, scenario, memory_only, busy_aware),
        ),
        problem=problem,
        have=compared,
        without=left_out,
        totals_without=totals_without,
    )
    return DetailedPlan(answer, scenario, catalogues, demands, needs.demands_by_servers)


def _main_demands(pools: Sequence[ServerPool], packed: PackedPools) -> tuple[Demand, ...]:
    """Needs of each workload on the type of GPU that most of its instances stand on."""
    demands = []
    for demand, parts in zip(first_demands(pools), packed.parts, strict=True):
        if parts:
            demand = max(parts, key=lambda part: part.instances).demand
        demands.append(demand)
    return tuple(demands)


def _workload_plans(
    pools: Sequence[ServerPool], packed: PackedPools, scenario: Scenario, catalogues: Catalogues
) -> tuple[WorkloadPlan, ...]:
    """The answer for each workload."""
    plans = []
    demands = _main_demands(pools, packed)
    for index, demand in enumerate(demands):
        parts = packed.parts[index]
        problem = demand.problem or packed.problems[index]
        notes_by_type = tuple(type_notes(index, parts, pools))
        if has_several_types(pools):
            # What another layout takes is told of one type alone.
            demand = demand._replace(fewer_gpus_note="", alternatives=(), searched="")
        plans.append(_workload_plan(demand, parts, problem, notes_by_type, scenario, catalogues))
    return tuple(plans)


def names_taken(scenario: Scenario, catalogues: Catalogues) -> tuple[str, ...]:
    """The part that each name of a GPU or a cloud's server was taken for which is none of the catalogue's own."""
    texts = (catalogues.name_taken(server) for server in scenario.server)
    return tuple(dict.fromkeys(filter(None, texts)))


def with_server(scenario: Scenario, catalogues: Catalogues) -> Scenario:
    """The scenario with the catalogue's own names of its GPUs.

    Where it names no server one with eight GPUs is assumed, of the type that its first measured workload ran on.
    """
    if scenario.server:
        named = tuple(map(catalogues.server, scenario.server))
        return msgspec.structs.replace(scenario, server=named)
    for workload in scenario.workload:
        seen = catalogues.profile_of(workload)
        if seen is not None and seen.gpu:
            assumed = catalogues.server(Server(seen.gpu))
            return msgspec.structs.replace(scenario, server=(assumed,))
    return scenario


class _PlacedFigures(NamedTuple):
    """Figures of a workload that has a place; the defaults are those of one that has none."""

    instances: Reading = INFEASIBLE
    gpus: Reading = INFEASIBLE
    servers: Reading = INFEASIBLE
    servers_shared: Reading = INFEASIBLE
    on: tuple[OnGpu, ...] = ()
    degraded: tuple[Degraded, ...] = ()
    goals: tuple[JudgedGoal, ...] = ()
    at_target: Mapping[str, Reading] = MappingProxyType(_NO_FIGURES)


def _placed_figures(parts: Sequence[WorkloadPart], scenario: Scenario) -> _PlacedFigures:
    """Sums over the parts of a workload, and its figures at the target and after a fault."""
    loads = loads_at_target(parts)
    return _PlacedFigures(
        instances=float(sum(part.instances for part in parts)),
        gpus=float(sum(part.placement.gpus for part in parts)),
        servers=float(sum(part.placement.servers for part in parts)),
        servers_shared=float(sum(part.placement.shared_servers for part in parts)),
        on=tuple(_on_gpu(part) for part in parts),
        degraded=degraded_of(parts),
        goals=judged_goals(loads, scenario),
        at_target=at_target(parts, loads),
    )


def _workload_plan(
    demand: Demand,
    parts: Sequence[WorkloadPart],
    problem: str,
    notes_by_type: tuple[str, ...],
    scenario: Scenario,
    catalogues: Catalogues,
) -> WorkloadPlan:
    """The answer for one workload; `demand` is that of the type of GPU that most of its instances stand on, and
    `notes_by_type` are those of a plan over several types."""
    workload = demand.workload
    instance = demand.instance
    limit, next_limit = _first_limits(demand)
    placed = _PlacedFigures() if problem else _placed_figures(parts, scenario)
    seen_name = ""
    seen_time = ""
    if instance.seen is not None:
        seen_name = instance.seen.name
        seen_time = instance.seen.time
    _, power_source = instance.gpu_power_w(demand.planned_running)
    return WorkloadPlan(
        name=workload.label,
        model=workload.model,
        target=workload.target,
        target_kind=workload.target_kind,
        capacity_per_instance=demand.planned_running or INFEASIBLE,
        instances=placed.instances,
        gpus=placed.gpus,
        servers=placed.servers,
        servers_shared=placed.servers_shared,
        on=placed.on,
        limit=limit,
        next_limit=next_limit,
        limits=demand.limits,
        source=demand.source,
        band=_itl_band(demand),
        ttft_band=instance.first.band,
        ttft_basis=instance.first.basis,
        extrapolated=demand.extrapolated,
        gpus_per_instance=instance.gpus,
        tp=instance.tp or workload.tp or 0,
        pp=instance.pp or workload.pp or 1,
        dp=instance.dp,
        layout=demand.layout.text if instance.tp else "",
        alternatives=tuple(map(_alternative, demand.alternatives)),
        searched=demand.searched,
        network=_network_text(instance),
        pool="",
        disaggregated=compare_disaggregated(demand, scenario, catalogues),
        runs=None,
        gpus_range=None,
        tokens_per_step=instance.speculation.per_step,
        spares=demand.spares,
        memory_bytes=demand.memory_bytes,
        memory_source=demand.memory_source,
        busy_ratio=demand.busy_ratio,
        degraded=placed.degraded,
        goals=placed.goals,
        notes=(*instance.notes, *uneven_notes(placed.goals), *plan_notes(demand, scenario), *notes_by_type),
        problem=problem,
        seen_name=seen_name,
        seen_time=seen_time,
        power_source=power_source,
        **placed.at_target,
    )


def _alternative(demand: Demand) -> Alternative:
    """A layout that was tried beside the planned one."""
    return Alternative(
        layout=demand.layout.text,
        gpus=round(demand.gpus),
        instances=demand.instances,
        gpus_per_instance=demand.instance.gpus,
        capacity_per_instance=demand.planned_running,
        limit=binding(demand.limits).kind.value,
        is_bound=demand.is_bound,
    )


def _network_text(instance: Instance) -> str:
    """The network that an instance over several servers has, with its rate; empty for one server."""
    server = instance.server
    if instance.fabric is None or server is None or instance.gpus <= server.gpus:
        return ""
    link = instance.fabric.widest(instance.gpus).link
    basis = "" if server.network or server.network_gb_per_s else ", assumed"
    return f"{link.name}, {link.bytes_per_s / 1e9:g} GB/s a GPU{basis}"


def _first_limits(demand: Demand) -> tuple[str, str]:
    """The limit that holds first and the one after it, empty where there is none; a typed capacity is the first."""
    kinds = list(dict.fromkeys(limit.kind.value for limit in demand.limits))  # the limit that holds first is in front
    typed = LimitKind.TYPED.value
    if typed in kinds:
        kinds.remove(typed)
        kinds.insert(0, typed)
    first, second = [*kinds, "", ""][:2]
    return first, second


def _on_gpu(part: WorkloadPart) -> OnGpu:
    """The instances of a workload on one type of GPU."""
    demand = part.demand
    gpu = demand.instance.gpu.name if demand.instance.gpu is not None else ""
    limit = binding(demand.limits).kind.value if demand.limits else ""
    return OnGpu(
        gpu=gpu,
        instances=part.instances,
        gpus=part.placement.gpus,
        gpus_per_instance=demand.instance.gpus,
        tp=demand.instance.tp,
        capacity_per_instance=demand.planned_running,
        limit=limit,
        pp=demand.layout.pp,
        dp=demand.layout.dp,
    )


def _itl_band(demand: Demand) -> Band:
    """Errors of the ITL, with those of loads beyond the measured ones where it is planned there."""
    instance = demand.instance
    if not instance.band or not demand.extrapolated:
        return instance.band
    is_moe = instance.llm is not None and instance.llm.experts > 0
    return instance.band.union(band_of("extrapolated", 1, is_moe))


def totals_of(
    workloads: Sequence[WorkloadPlan], packed: Packed, answering: Sequence[WorkloadPlan] | None = None
) -> Totals:
    """Figures of all workloads together; `answering`: those that yield tokens (None: all), as prefill pools do not."""
    if answering is None:
        answering = workloads
    tokens_per_s = _sum_of(answering, "tokens_per_s")
    power_w = _total_power_w(workloads, packed)
    price = packed.price_per_hour
    price_per_mtok: Reading
    if isinstance(price, Missing):
        price_per_mtok = price
    else:
        price_per_mtok = divide(price / 3600.0 * 1e6, tokens_per_s, NOT_GIVEN)
    return Totals(
        instances=packed.instances,
        gpus=packed.gpus,
        servers=packed.servers,
        memory_bytes=packed.memory_bytes,
        price_per_hour=price,
        power_w=power_w,
        tokens_per_s=tokens_per_s,
        price_per_mtok=price_per_mtok,
        tokens_per_j=divide(tokens_per_s, power_w, NOT_GIVEN),
    )


def _sum_of(workloads: Sequence[WorkloadPlan], field: str) -> Reading:
    """Sum of a figure over the workloads; missing where it is of one, or there is none."""
    if workloads:
        return weighted_sum((getattr(workload, field), 1) for workload in workloads)
    return INFEASIBLE


def _total_power_w(workloads: Sequence[WorkloadPlan], packed: Packed) -> Reading:
    """Watts of all GPUs in use; one that several workloads share counts once, with the watts of the hungriest."""
    total_w = _sum_of(workloads, "power_w")
    workload_gpus = _sum_of(workloads, "gpus")
    if isinstance(total_w, Missing) or isinstance(workload_gpus, Missing) or isinstance(packed.gpus, Missing):
        return total_w
    if workload_gpus <= packed.gpus:
        return total_w
    watts_per_gpu = [
        workload.power_w / workload.gpus
        for workload in workloads
        if not isinstance(workload.power_w, Missing) and not isinstance(workload.gpus, Missing) and workload.gpus
    ]
    return packed.gpus * max(watts_per_gpu, default=0.0)


def _totals_of_solved(
    pools: Sequence[ServerPool], workloads: Sequence[WorkloadPlan], scenario: Scenario, catalogues: Catalogues
) -> Totals:
    """Totals of the workloads that have an answer, packed without the rest; `NONE_LEFT_OUT` where all or none have."""
    solved = [index for index, workload in enumerate(workloads) if not workload.problem]
    if not solved or len(solved) == len(workloads):
        return NONE_LEFT_OUT
    solved_workloads = tuple(scenario.workload[index] for index in solved)
    solved_scenario = msgspec.structs.replace(scenario, workload=solved_workloads)
    solved_pools = tuple(pool.only(solved) for pool in pools)
    packed = cheapest_packing(solved_pools, solved_scenario, catalogues)
    plans = _workload_plans(solved_pools, packed, solved_scenario, catalogues)
    if any(workload.problem for workload in plans):
        return NONE_LEFT_OUT
    return totals_of(plans, packed.packed)
