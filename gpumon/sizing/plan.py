"""The whole answer to a scenario: instances, GPUs and servers of every workload, by both packings, with the cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.ratio import divide
from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.accuracy import Band, band_of
from gpumon.sizing.answer import (
    NONE_LEFT_OUT,
    NOT_GIVEN,
    Answer,
    Degraded,
    LimitKind,
    OnGpu,
    Packed,
    Plans,
    Totals,
    WorkloadPlan,
)
from gpumon.sizing.capacity import OPERATING_POINTS, binding
from gpumon.sizing.disaggregated import compare_disaggregated
from gpumon.sizing.instance import Instance
from gpumon.sizing.pools import PackedPools, ServerPool, WorkloadPart, first_demands, pools_of
from gpumon.sizing.profile import Observed, Origin
from gpumon.sizing.queueing import queue_warning
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sizing.search import INFEASIBLE, Demand, demand_of
from gpumon.sizing.servers import compare_with_gpus_here, weighted_sum
from gpumon.sizing.service import at_target, degraded_of, running_of
from gpumon.sizing.split import cheapest_packing, pack_both_ways

NO_WORKLOAD: Final = "no workload: add a model and a target"
_SHARED: Final = 1.0 + 1e-6
"""Sum of busy shares above which instances on one GPU slow each other down."""
_NOTHING: Final[dict[str, Reading]] = dict.fromkeys(
    (
        *("concurrency", "running", "itl_s", "ttft_s", "e2e_s", "itl_p95_s", "ttft_p95_s"),
        *("tokens_per_s", "requests_per_s", "power_w"),
    ),
    INFEASIBLE,
)


class DetailedPlan(NamedTuple):
    """The answer, the demands that it stands on, and what the next answer can go on with."""

    answer: Answer
    scenario: Scenario
    catalogues: Catalogues
    demands: tuple[Demand, ...]
    """Needs of each workload, on the type of GPU that most of its instances stand on."""
    demands_by_servers: Mapping[tuple[int, tuple[Server, ...]], Demand] = MappingProxyType({})
    """Identity of the workload and the servers that it was asked for -> its needs there."""

    def reusable_demands(
        self, scenario: Scenario, catalogues: Catalogues
    ) -> Mapping[tuple[int, tuple[Server, ...]], Demand]:
        """The needs that hold in the next scenario, too, where nothing else changed."""
        alone = {"workload": (), "name": "", "note": ""}
        same = msgspec.structs.replace(scenario, **alone) == msgspec.structs.replace(self.scenario, **alone)
        if not same or catalogues is not self.catalogues:
            return {}
        return self.demands_by_servers


Decide = Callable[[Workload, Scenario, Catalogues], Demand]
"""Gives the needs of a workload on servers with one type of GPU."""


class _Needs:
    """Needs of workloads on servers with one type of GPU; those that an earlier answer had are not worked out anew."""

    def __init__(
        self,
        catalogues: Catalogues,
        kept: Mapping[tuple[int, tuple[Server, ...]], Demand],
        *,
        any_tp: bool = False,
        decide: Decide | None = None,
    ) -> None:
        self._known = catalogues
        self._kept = kept
        self._any_tp = any_tp
        self._decide = decide
        self.demands_by_servers: dict[tuple[int, tuple[Server, ...]], Demand] = {}

    def __call__(self, workload: Workload, scenario: Scenario) -> Demand:
        """The needs on the servers of a scenario."""
        key = id(workload), scenario.server
        demand = self._kept.get(key)
        if demand is None and self._decide is not None:
            demand = self._decide(workload, scenario, self._known)
        elif demand is None:
            demand = demand_of(workload, scenario, self._known, any_tp=self._any_tp)
        self.demands_by_servers[key] = demand
        return demand


def plan(
    scenario: Scenario, catalogues: Catalogues, have: Mapping[str, int] | None = None, decide: Decide | None = None
) -> Answer:
    """The answer; `have`: catalogue name of a GPU -> how many of it are here (None: nothing is compared); `decide`
    gives the needs of each workload (None: the formulas do).

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
    """The same with the instances that it stands on; of `before`, workloads that did not change are not asked anew.
    With `any_tp` the TP that an engine was seen with does not stay: the one that takes the fewest GPUs is taken."""
    original = scenario
    scenario = with_server(scenario, catalogues)
    needs = _Needs(
        catalogues,
        before.reusable_demands(scenario, catalogues) if before is not None else {},
        any_tp=any_tp,
        decide=decide,
    )
    pools = pools_of(scenario, needs)
    memory_only, busy_aware = pack_both_ways(pools, scenario, catalogues)
    needed = memory_only if scenario.packing == "memory" else busy_aware
    demands = _standing(pools, needed)
    workloads = _workloads(pools, needed, scenario, catalogues)
    totals = _totals(workloads, needed.packed)
    unsolved = [workload for workload in workloads if workload.problem]
    problem = needed.packed.problem
    if unsolved:
        problem = f"{unsolved[0].name}: {unsolved[0].problem}"
    others = _others(pools, workloads, scenario, catalogues)
    answer = Answer(
        name=scenario.name,
        packing=scenario.packing,
        workloads=workloads,
        totals=totals,
        plans=Plans(memory_only.packed, busy_aware.packed),
        warnings=tuple(_warnings(demands, original, scenario, memory_only, busy_aware)),
        problem=problem if demands else NO_WORKLOAD,
        have=None if have is None else compare_with_gpus_here(have, scenario, needed.packed, catalogues),
        without=() if others is NONE_LEFT_OUT else tuple(workload.name for workload in unsolved),
        totals_without=others,
    )
    return DetailedPlan(answer, scenario, catalogues, demands, needs.demands_by_servers)


def _standing(pools: Sequence[ServerPool], filled: PackedPools) -> tuple[Demand, ...]:
    """Needs of each workload on the type of GPU that most of its instances stand on."""
    standing = []
    for demand, parts in zip(first_demands(pools), filled.parts, strict=True):
        if parts:
            demand = max(parts, key=lambda part: part.instances).demand
        standing.append(demand)
    return tuple(standing)


def _workloads(
    pools: Sequence[ServerPool], filled: PackedPools, scenario: Scenario, catalogues: Catalogues
) -> tuple[WorkloadPlan, ...]:
    """The answer for each workload."""
    plans = []
    demands = _standing(pools, filled)
    for index, (demand, parts, lack) in enumerate(zip(demands, filled.parts, filled.problems, strict=True)):
        problem = demand.problem or lack
        where = tuple(_on_notes(index, parts, pools))
        if _several(pools):
            demand = demand._replace(better="")  # what another TP takes is told of one type alone
        plans.append(_workload(demand, parts, problem, where, scenario, catalogues))
    return tuple(plans)


def _named(server: Server, catalogues: Catalogues) -> Server:
    """With the catalogue's own name of its GPU, which prices and GPUs that are here are looked up by."""
    return msgspec.structs.replace(server, gpu=catalogues.gpu_name(server.gpu))


def with_server(scenario: Scenario, catalogues: Catalogues) -> Scenario:
    """With the shape that is assumed for all where the scenario names none: eight of the first GPUs that were seen."""
    if scenario.server:
        return msgspec.structs.replace(scenario, server=tuple(_named(server, catalogues) for server in scenario.server))
    for workload in scenario.workload:
        seen = catalogues.profile_of(workload)
        if seen is not None and seen.gpu:
            return msgspec.structs.replace(scenario, server=(_named(Server(seen.gpu), catalogues),))
    return scenario


class _PlacedFigures(NamedTuple):
    """Figures of a workload that has a place; the defaults are those of one that has none."""

    instances: Reading = INFEASIBLE
    gpus: Reading = INFEASIBLE
    servers: Reading = INFEASIBLE
    servers_shared: Reading = INFEASIBLE
    on: tuple[OnGpu, ...] = ()
    degraded: tuple[Degraded, ...] = ()
    at_target: Mapping[str, Reading] = MappingProxyType(_NOTHING)


def _placed_figures(parts: Sequence[WorkloadPart]) -> _PlacedFigures:
    """Sums over the parts of a workload, its load at the target and after a fault."""
    return _PlacedFigures(
        instances=float(sum(part.instances for part in parts)),
        gpus=float(sum(part.placement.gpus for part in parts)),
        servers=float(sum(part.placement.servers for part in parts)),
        servers_shared=float(sum(part.placement.shared_servers for part in parts)),
        on=tuple(_on_gpu(part) for part in parts),
        degraded=degraded_of(parts),
        at_target=at_target(parts),
    )


def _workload(
    demand: Demand,
    parts: Sequence[WorkloadPart],
    problem: str,
    where: tuple[str, ...],
    scenario: Scenario,
    catalogues: Catalogues,
) -> WorkloadPlan:
    """The answer for one workload; `demand` is that of the type of GPU that most of its instances stand on."""
    workload = demand.workload
    instance = demand.instance
    limit, next_limit = _first_limits(demand)
    if problem:
        placed = _PlacedFigures()
    else:
        placed = _placed_figures(parts)
    return WorkloadPlan(
        name=workload.label,
        model=workload.model,
        target=workload.target,
        target_kind=workload.target_kind,
        capacity_per_instance=demand.planned or INFEASIBLE,
        instances=placed.instances,
        gpus=placed.gpus,
        servers=placed.servers,
        servers_shared=placed.servers_shared,
        on=placed.on,
        limit=limit,
        next_limit=next_limit,
        limits=demand.limits,
        source=demand.source,
        band=_band(demand),
        ttft_band=instance.first.band,
        ttft_basis=instance.first.basis,
        extrapolated=demand.extrapolated,
        gpus_per_instance=instance.gpus,
        tp=instance.tp or workload.tp or 0,
        pp=instance.pp or workload.pp or 1,
        dp=instance.dp,
        disaggregated=compare_disaggregated(demand, scenario, catalogues),
        runs=None,
        tokens_per_step=instance.speculation.per_step,
        spares=demand.spares,
        memory_bytes=demand.memory_bytes,
        memory_source=demand.memory_source,
        busy_ratio=demand.busy_ratio,
        degraded=placed.degraded,
        notes=(*instance.notes, *_notes(demand, scenario), *where),
        problem=problem,
        seen_name=instance.seen.name if instance.seen is not None else "",
        seen_time=instance.seen.time if instance.seen is not None else "",
        power_source=instance.gpu_power_w(demand.planned)[1],
        **placed.at_target,
    )


def _first_limits(demand: Demand) -> tuple[str, str]:
    """The limit that holds first and the one after it, empty where there is none; a typed capacity is the first."""
    kinds = list(dict.fromkeys(limit.kind.value for limit in demand.limits))
    if "typed" in kinds:
        kinds.remove("typed")
        kinds.insert(0, "typed")
    first, second = [*kinds, "", ""][:2]
    return first, second


def _on_gpu(part: WorkloadPart) -> OnGpu:
    demand = part.demand
    return OnGpu(
        gpu=demand.instance.gpu.name if demand.instance.gpu is not None else "",
        instances=part.instances,
        gpus=part.placement.gpus,
        gpus_per_instance=demand.instance.gpus,
        tp=demand.instance.tp,
        capacity_per_instance=demand.planned,
        limit=binding(demand.limits).kind.value if demand.limits else "",
    )


def _several(pools: Sequence[ServerPool]) -> bool:
    """Whether there are several types of GPU."""
    return len({pool.gpu for pool in pools}) > 1


def _on_notes(workload: int, parts: Sequence[WorkloadPart], pools: Sequence[ServerPool]) -> Iterator[str]:
    """Places of the instances of a workload in a plan over several types of GPU, and why they are not elsewhere."""
    if not _several(pools) or not parts:
        return
    most = max(parts, key=lambda part: part.instances)
    for part, running in zip(parts, running_of(parts, [0] * len(parts)), strict=True):
        instance = part.demand.instance
        name = instance.gpu.name if instance.gpu is not None else "an unknown GPU"
        planned = part.demand.planned
        yield f"{part.instances} on {name} (TP {instance.tp}): {running:.3g} requests each, at most {planned:g}"
        if part is not most:
            yield from (f"on {name}: {note}" for note in instance.notes)
    problems = {}
    for pool in pools:
        if pool.demands[workload].problem:
            problems[pool.gpu] = pool.demands[workload].problem
    for name, problem in problems.items():
        yield f"not on {name}: {problem}"


def _band(demand: Demand) -> Band:
    band = demand.instance.band
    if not band or not demand.extrapolated:
        return band
    return band.union(band_of("extrapolated", 1, bool(demand.instance.llm and demand.instance.llm.experts)))


def _notes(demand: Demand, scenario: Scenario) -> Iterator[str]:
    """Conditions that the figures hold under."""
    instance = demand.instance
    if demand.simulated:
        yield demand.simulated
    if demand.better:
        yield demand.better
    yield from _goal_notes(demand, scenario)
    if instance.workload.target_kind == "users" and instance.workload.think_s <= 0.0:
        yield "think time 0 s: each user asks anew as soon as an answer ends"
    if instance.fitted is not None and instance.fitted.anchored:
        yield f"{instance.fitted.text}: too few load levels for a fit"
    yield from _typed_notes(demand)
    if instance.seen is not None:
        yield from _profile_notes(instance, instance.seen)


def _profile_notes(instance: Instance, seen: Observed) -> Iterator[str]:
    """Conditions under which the profile was measured."""
    if seen.origin is Origin.TABLE and not instance.alike and seen.gpu and instance.gpu:
        yield f"the table of {seen.name} was measured on {seen.gpu}, not on {instance.gpu.name}"
    warning = queue_warning(seen)
    if warning:
        yield warning


class _Goal(NamedTuple):
    """A latency goal that was asked for."""

    name: str
    known: bool
    """Something tells that latency."""
    tail: bool
    """Something tells p95 / mean of that latency."""


def _goals(instance: Instance) -> list[_Goal]:
    """The latency goals of a workload."""
    asked = instance.workload
    curve = instance.curve is not None
    goals = []
    if asked.itl_p95_ms is not None:
        goals.append(_Goal("ITL", curve, instance.itl_tail.known))
    if asked.ttft_p95_ms is not None:
        goals.append(_Goal("TTFT", instance.first.line is not None, instance.ttft_tail.known))
    if asked.e2e_p95_ms is not None:
        goals.append(_Goal("E2E", curve and instance.answer_tokens is not None, instance.itl_tail.known))
    return goals


def _goal_notes(demand: Demand, scenario: Scenario) -> Iterator[str]:
    """Which goals count, and as what."""
    instance = demand.instance
    goals = _goals(instance)
    if not goals:
        yield from _without_goal(demand)
    yield from _unknown_latencies(goals)
    if instance.workload.ttft_p95_ms is not None and instance.first.line is not None and not instance.first.decides:
        yield _assumed(demand) if scenario.assume_ttft else _not_used(demand)


def _unknown_latencies(goals: Sequence[_Goal]) -> Iterator[str]:
    """Goals that are compared with a mean, and those that nothing can be compared with."""
    by_mean = []
    unchecked = []
    for goal in goals:
        if not goal.tail:
            by_mean.append(goal.name)
        if not goal.known:
            unchecked.append(goal.name)
    if by_mean:
        yield f"p95 / mean of the {' and '.join(by_mean)} is not known: the goal is compared with the mean"
    if unchecked:
        yield f"the {' and '.join(unchecked)} goal is not checked: its latency is not known"


def _without_goal(demand: Demand) -> Iterator[str]:
    """Names of the limits of a workload without latency goals and without an operating point."""
    names: dict[LimitKind, str] = {}
    for limit in demand.limits:
        names[limit.kind] = limit.kind.value
    if not names or OPERATING_POINTS.intersection(names):
        return
    verb = "limit"
    if len(names) == 1:
        verb = "limits"
    yield f"no latency goal: only {' and '.join(names.values())} {verb} it"


def _assumed(demand: Demand) -> str:
    """A plan that stands on an estimate of TTFT says so."""
    first = demand.instance.first
    return f"the TTFT goal counts by an {_with_band('estimate', first.band)} (assume_ttft): it was not measured here"


def _not_used(demand: Demand) -> str:
    """Why a TTFT goal does not decide, and what makes it count."""
    first = demand.instance.first
    value_s = _first_s(demand)
    if value_s is None:
        figure = ""
    else:
        figure = f" ({_with_band(f'{first.basis}: {value_s * 1e3:,.0f} ms', first.band)})"
    return (
        f"TTFT goal not used: not measured on this engine{figure}; `gpumon profiles add` of a load test or a running "
        f"engine makes it count, assume_ttft plans by the estimate"
    )


def _with_band(text: str, band: Band) -> str:
    """A figure with the errors that such figures have."""
    if band:
        return f"{text}, {band.text}"
    return text


def _first_s(demand: Demand) -> float | None:
    """TTFT at the target, p95 where its tail is known; None where there is no answer."""
    if demand.problem or not demand.needed:
        return None
    running = demand.running(demand.needed)
    if not math.isfinite(running):
        return None
    p95_s = demand.instance.ttft_p95_s(running)
    if p95_s is None:
        return demand.instance.ttft_s(running)
    return p95_s


def _typed_notes(demand: Demand) -> Iterator[str]:
    """Limits below the capacity that the user typed."""
    typed = demand.workload.capacity_per_instance
    if typed is None:
        return
    for limit in demand.limits:
        if limit.concurrency < typed:
            yield f"typed capacity is above what {limit.kind.value} allows: {limit.text}"


def _straddles(demand: Demand, scenario: Scenario) -> str:
    """Warning where an estimate of TTFT leaves open whether its goal is met, or most likely misses it; else empty."""
    first = demand.instance.first
    goal_ms = demand.instance.workload.ttft_p95_ms
    if goal_ms is None or first.decides or scenario.assume_ttft or not first.band:
        return ""
    value_s = _first_s(demand)
    if value_s is None:
        return ""
    low_ms = value_s * 1e3 * (1.0 + first.band.low)
    high_ms = value_s * 1e3 * (1.0 + first.band.high)
    if goal_ms >= high_ms:
        return ""
    name = demand.workload.label
    if goal_ms < low_ms:
        return f"{name}: TTFT is estimated at {low_ms:,.0f} to {high_ms:,.0f} ms, above its goal of {goal_ms:,.0f} ms"
    span = f"{low_ms:,.0f} to {high_ms:,.0f} ms"
    return f"{name}: the TTFT goal of {goal_ms:,.0f} ms lies inside its estimate, {span}: measure it"


def _warnings(
    demands: Sequence[Demand], original: Scenario, scenario: Scenario, memory_only: PackedPools, busy_aware: PackedPools
) -> Iterator[str]:
    """Warnings about the whole answer."""
    if scenario.server and not original.server:
        shape = scenario.server[0]
        yield f"no server is given: assumed {shape.gpus} x {shape.gpu}, as measured"
    if memory_only.busiest_ratio > _SHARED:
        yield _crowded(memory_only.busiest_ratio, busy_aware.packed.gpus)
    beyond = []
    instances = 0
    for demand in demands:
        straddles = _straddles(demand, scenario)
        if straddles:
            yield straddles
        if demand.extrapolated:
            beyond.append(demand.workload.label)
        instances += demand.instances
    if beyond:
        yield f"planned beyond the load that was measured (extrapolated): {', '.join(beyond)}"
    if scenario.planning_factor >= 1.0 and instances:
        yield "planning factor 1: no headroom for bursts"


def _crowded(busiest: float, gpus: Reading) -> str:
    """Instances share a GPU that is too busy; `gpus`: those that the packing by busy shares takes."""
    if isinstance(gpus, Missing):
        more = "there is no room"
    else:
        more = f"it takes {gpus:,.0f} GPUs"
    return (
        f"packed by memory alone, instances on one GPU need {busiest * 100:.0f} % of it in sum: each "
        f"runs at about 1/{busiest:.1f} of its speed; by busy share {more}"
    )


def _totals(workloads: Sequence[WorkloadPlan], packed: Packed) -> Totals:
    tokens = _sum(workloads, "tokens_per_s")
    power = _power(workloads, packed)
    price = packed.price_per_hour
    return Totals(
        instances=packed.instances,
        gpus=packed.gpus,
        servers=packed.servers,
        memory_bytes=packed.memory_bytes,
        price_per_hour=price,
        power_w=power,
        tokens_per_s=tokens,
        price_per_mtok=price if isinstance(price, Missing) else divide(price / 3600.0 * 1e6, tokens, NOT_GIVEN),
        tokens_per_j=divide(tokens, power, NOT_GIVEN),
    )


def _sum(workloads: Sequence[WorkloadPlan], name: str) -> Reading:
    if workloads:
        return weighted_sum((getattr(workload, name), 1) for workload in workloads)
    return INFEASIBLE


def _power(workloads: Sequence[WorkloadPlan], packed: Packed) -> Reading:
    """Power of all GPUs in use; one that several workloads share counts once, with the watts of the hungriest."""
    total = _sum(workloads, "power_w")
    gpus = _sum(workloads, "gpus")
    if isinstance(total, Missing) or isinstance(gpus, Missing) or isinstance(packed.gpus, Missing):
        return total
    if gpus <= packed.gpus:
        return total
    watts = []
    for plan in workloads:
        if not isinstance(plan.power_w, Missing) and not isinstance(plan.gpus, Missing) and plan.gpus:
            watts.append(plan.power_w / plan.gpus)
    return packed.gpus * max(watts, default=0.0)


def _others(
    pools: Sequence[ServerPool], workloads: Sequence[WorkloadPlan], scenario: Scenario, catalogues: Catalogues
) -> Totals:
    """Totals of the workloads that have an answer, packed without the rest; nothing where all or none have."""
    sound = []
    sound_workloads = []
    for index, workload in enumerate(workloads):
        if not workload.problem:
            sound.append(index)
            sound_workloads.append(scenario.workload[index])
    if not sound or len(sound) == len(workloads):
        return NONE_LEFT_OUT
    asked = msgspec.structs.replace(scenario, workload=tuple(sound_workloads))
    chosen = tuple(pool.only(sound) for pool in pools)
    others = cheapest_packing(chosen, asked, catalogues)
    plans = _workloads(chosen, others, asked, catalogues)
    if any(plan.problem for plan in plans):
        return NONE_LEFT_OUT
    return _totals(plans, others.packed)
