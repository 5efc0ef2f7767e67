"""The whole answer to a scenario: instances, GPUs and servers of every workload, by both packings, with the cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.efficiency.ratio import per
from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.accuracy import Band, band_of
from gpumon.sizing.answer import (
    NONE_LEFT_OUT,
    NOT_GIVEN,
    Answer,
    Degraded,
    LimitKind,
    Packed,
    Plans,
    Totals,
    WorkloadPlan,
)
from gpumon.sizing.capacity import OPERATING_POINTS
from gpumon.sizing.design_guide import queue_warning
from gpumon.sizing.instance import Instance
from gpumon.sizing.latency import queued_ttft_s
from gpumon.sizing.placement import Stands
from gpumon.sizing.profile import Origin
from gpumon.sizing.scenario import Known, Scenario, Server
from gpumon.sizing.search import INFEASIBLE, Demand, demand_of
from gpumon.sizing.servers import Filled, filled, have_of, total

_ROOM: Final = (LimitKind.KV, LimitKind.MAX_NUM_SEQS, LimitKind.PREFILL, LimitKind.KNEE)
"""Limits beyond which requests wait."""
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
USUAL = ("L40S", "A100 SXM4 80GB", "H100 SXM5 80GB", "H200 SXM 141GB", "B200 SXM 180GB")
"""What most people ask about, by their names in the catalogue."""
_OPEN: Final[dict[str, Any]] = dict.fromkeys(
    ("capacity_per_instance", "memory_gb", "busy_ratio", "kv_pool_tokens", "prefill_tokens_per_s")
)


class Planned(NamedTuple):
    """The answer, the demands that it stands on, and what the next answer can go on with."""

    answer: Answer
    scenario: Scenario
    known: Known
    demands: tuple[Demand, ...]

    def kept(self, scenario: Scenario, known: Known) -> dict[int, Demand]:
        """By identity of the workload: those that stand in the next scenario, too, where nothing else changed."""
        alone = {"workload": (), "name": "", "note": ""}
        same = msgspec.structs.replace(scenario, **alone) == msgspec.structs.replace(self.scenario, **alone)
        if not same or known is not self.known:
            return {}
        return {id(was): one for was, one in zip(self.scenario.workload, self.demands, strict=True)}


def plan(scenario: Scenario, known: Known, have: Mapping[str, int] | None = None) -> Answer:
    """The answer; `have`: catalogue name of a GPU -> how many of it are here (None: nothing is compared).

    Never raises on what a user can type: what has no answer says why in `problem`.
    """
    return planned(scenario, known, have).answer


def planned(
    scenario: Scenario, known: Known, have: Mapping[str, int] | None = None, before: Planned | None = None
) -> Planned:
    """The same with the instances that it stands on; of `before`, workloads that did not change are not asked anew."""
    asked, scenario = scenario, _with_server(scenario, known)
    kept = before.kept(scenario, known) if before is not None else {}
    demands = tuple(kept.get(id(each)) or demand_of(each, scenario, known) for each in scenario.workload)
    memory_only, busy_aware = (filled(demands, scenario, known, packing) for packing in ("memory", "busy"))
    needed = memory_only if scenario.packing == "memory" else busy_aware
    workloads = tuple(
        _workload(demand, stands, scenario) for demand, stands in zip(demands, needed.stands, strict=True)
    )
    totals = _totals(workloads, needed.packed)
    problem = next((f"{each.name}: {each.problem}" for each in workloads if each.problem), needed.packed.problem)
    others = _others(demands, workloads, scenario, known)
    answer = Answer(
        name=scenario.name,
        packing=scenario.packing,
        workloads=workloads,
        totals=totals,
        plans=Plans(memory_only.packed, busy_aware.packed),
        warnings=tuple(_warnings(demands, asked, scenario, memory_only, busy_aware)),
        problem=problem if demands else NO_WORKLOAD,
        have=None if have is None else have_of(have, scenario, needed.packed, known),
        without=() if others is NONE_LEFT_OUT else tuple(each.name for each in workloads if each.problem),
        totals_without=others,
    )
    return Planned(answer, scenario, known, demands)


class Column(msgspec.Struct, frozen=True):
    """One type of GPU and the answer on it."""

    gpu: str
    answer: Answer


def compare(scenario: Scenario, known: Known, gpus: Sequence[str] = USUAL) -> tuple[Column, ...]:
    """The answers on servers of the same size with other GPUs, the scenario's own type first.

    Typed capacities, memory and busy shares hold on the GPU that they were typed for: elsewhere they are left out, so
    that formulas and what was measured decide.
    """
    own = named(scenario.server[0], known) if scenario.server else None
    others = (named(Server(gpu), known).gpu for gpu in gpus)
    names = dict.fromkeys((*([own.gpu] if own is not None else []), *others))
    return tuple(Column(name, plan(_on(scenario, own, name), known)) for name in names)


def named(server: Server, known: Known) -> Server:
    """With the catalogue's own name of its GPU, which prices and GPUs that are here are looked up by."""
    return msgspec.structs.replace(server, gpu=known.gpu_name(server.gpu))


def _with_server(scenario: Scenario, known: Known) -> Scenario:
    """With the shape that is assumed for all where the scenario names none: eight of the first GPUs that were seen."""
    if scenario.server:
        return msgspec.structs.replace(scenario, server=tuple(named(server, known) for server in scenario.server))
    seen = map(known.seen, scenario.workload)
    gpu = next((each.gpu for each in seen if each is not None and each.gpu), "")
    return msgspec.structs.replace(scenario, server=(named(Server(gpu), known),)) if gpu else scenario


def _workload(demand: Demand, stands: Stands, scenario: Scenario) -> WorkloadPlan:
    workload, instance = demand.workload, demand.instance
    kinds = tuple(dict.fromkeys(limit.kind.value for limit in demand.limits))
    first = kinds.index("typed") if "typed" in kinds else 0
    others = kinds[:first] + kinds[first + 1 :]
    problem = demand.problem or stands.problem
    figures = {} if problem else at_target(demand, stands)
    return WorkloadPlan(
        name=workload.label,
        model=workload.model,
        target=workload.target,
        target_kind=workload.target_kind,
        capacity_per_instance=demand.planned or INFEASIBLE,
        instances=INFEASIBLE if problem else float(stands.instances),
        gpus=INFEASIBLE if problem else float(stands.gpus),
        servers=INFEASIBLE if problem else float(stands.servers),
        servers_shared=INFEASIBLE if problem else float(stands.shared_servers),
        limit=kinds[first] if kinds else "",
        next_limit=others[0] if others else "",
        limits=demand.limits,
        source=demand.source,
        band=_band(demand),
        ttft_band=instance.first.band,
        ttft_basis=instance.first.basis,
        extrapolated=demand.extrapolated,
        gpus_per_instance=instance.gpus,
        tp=instance.tp or workload.tp or 0,
        pp=instance.pp or workload.pp or 1,
        spares=demand.spares,
        memory_bytes=demand.memory_bytes,
        memory_source=demand.memory_source,
        busy_ratio=demand.busy_ratio,
        degraded=() if problem else degraded_of(demand, stands.instances, stands.most_on_a_server),
        notes=(*instance.notes, *_notes(demand, scenario)),
        problem=problem,
        seen_name=instance.seen.name if instance.seen is not None else "",
        seen_time=instance.seen.time if instance.seen is not None else "",
        power_source=instance.gpu_power_w(demand.planned)[1],
        **{**_NOTHING, **figures},
    )


def _band(demand: Demand) -> Band:
    band = demand.instance.band
    if not band or not demand.extrapolated:
        return band
    return band.joined(band_of("extrapolated", 1, bool(demand.instance.llm and demand.instance.llm.experts)))


def _notes(demand: Demand, scenario: Scenario) -> Iterator[str]:
    """What one has to know to believe the figures."""
    instance = demand.instance
    if demand.better:
        yield demand.better
    yield from _goal_notes(demand, scenario)
    if instance.fitted is not None and instance.fitted.anchored:
        yield f"{instance.fitted.text}: too few load levels for a fit"
    yield from _typed_notes(demand)
    seen = instance.seen
    if seen is None:
        return
    if seen.origin is Origin.TABLE and not instance.alike and seen.gpu and instance.gpu:
        yield f"the table of {seen.name} was measured on {seen.gpu}, not on {instance.gpu.name}"
    if warning := queue_warning(seen):
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
    found = []
    if asked.itl_p95_ms is not None:
        found.append(_Goal("ITL", curve, instance.itl_tail.known))
    if asked.ttft_p95_ms is not None:
        found.append(_Goal("TTFT", instance.first.line is not None, instance.ttft_tail.known))
    if asked.e2e_p95_ms is not None:
        found.append(_Goal("E2E", curve and instance.answer_tokens is not None, instance.itl_tail.known))
    return found


def _goal_notes(demand: Demand, scenario: Scenario) -> Iterator[str]:
    """Which goals count, and as what."""
    instance = demand.instance
    goals = _goals(instance)
    kinds = [limit.kind for limit in demand.limits]
    if kinds and not goals and not OPERATING_POINTS.intersection(kinds):
        names = " and ".join(dict.fromkeys(kind.value for kind in kinds))
        yield f"no latency goal: only {names} limit{'s' if len(set(kinds)) == 1 else ''} it"
    if names := " and ".join(goal.name for goal in goals if not goal.tail):
        yield f"p95 / mean of the {names} is not known: the goal is compared with the mean"
    if names := " and ".join(goal.name for goal in goals if not goal.known):
        yield f"the {names} goal is not checked: its latency is not known"
    if instance.workload.ttft_p95_ms is not None and instance.first.line is not None and not instance.first.decides:
        yield _assumed(demand) if scenario.assume_ttft else _not_used(demand)


def _assumed(demand: Demand) -> str:
    """A plan that stands on an estimate of TTFT says so."""
    first = demand.instance.first
    return f"the TTFT goal counts by an {_with_band('estimate', first.band)} (assume_ttft): it was not measured here"


def _not_used(demand: Demand) -> str:
    """Why a TTFT goal does not decide, and what makes it count."""
    first = demand.instance.first
    value_s = _first_s(demand)
    figure = "" if value_s is None else f" ({_with_band(f'{first.basis}: {value_s * 1e3:,.0f} ms', first.band)})"
    return (
        f"TTFT goal not used: not measured on this engine{figure}; `gpumon profiles add` of a load test or a running "
        f"engine makes it count, assume_ttft plans by the estimate"
    )


def _with_band(text: str, band: Band) -> str:
    """A figure with the errors that such figures have."""
    return f"{text}, {band.text}" if band else text


def _first_s(demand: Demand) -> float | None:
    """TTFT at the target, p95 where its tail is known; None where there is no answer."""
    if demand.problem or not demand.needed:
        return None
    running = demand.running(demand.needed)
    if not math.isfinite(running):
        return None
    p95_s = demand.instance.ttft_p95_s(running)
    return demand.instance.ttft_s(running) if p95_s is None else p95_s


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
    demands: Sequence[Demand], asked: Scenario, scenario: Scenario, memory_only: Filled, busy_aware: Filled
) -> Iterator[str]:
    if scenario.server and not asked.server:
        shape = scenario.server[0]
        yield f"no server is given: assumed {shape.gpus} x {shape.gpu}, as measured"
    if memory_only.busiest > _SHARED:
        gpus = busy_aware.packed.gpus
        more = "there is no room" if isinstance(gpus, Missing) else f"it takes {gpus:,.0f} GPUs"
        yield (
            f"packed by memory alone, instances on one GPU need {memory_only.busiest * 100:.0f} % of it in sum: each "
            f"runs at about 1/{memory_only.busiest:.1f} of its speed; by busy share {more}"
        )
    yield from filter(None, (_straddles(demand, scenario) for demand in demands))
    if beyond := ", ".join(each.workload.label for each in demands if each.extrapolated):
        yield f"planned beyond the load that was measured (extrapolated): {beyond}"
    if scenario.planning_factor >= 1.0 and any(demand.instances for demand in demands):
        yield "planning factor 1: no headroom for bursts"


def _totals(workloads: Sequence[WorkloadPlan], packed: Packed) -> Totals:
    tokens, power = _sum(workloads, "tokens_per_s"), _power(workloads, packed)
    price = packed.price_per_hour
    return Totals(
        instances=packed.instances,
        gpus=packed.gpus,
        servers=packed.servers,
        memory_bytes=packed.memory_bytes,
        price_per_hour=price,
        power_w=power,
        tokens_per_s=tokens,
        price_per_mtok=price if isinstance(price, Missing) else per(price / 3600.0 * 1e6, tokens, NOT_GIVEN),
        tokens_per_j=per(tokens, power, NOT_GIVEN),
    )


def _sum(workloads: Sequence[WorkloadPlan], name: str) -> Reading:
    return total((getattr(each, name), 1) for each in workloads) if workloads else INFEASIBLE


def _power(workloads: Sequence[WorkloadPlan], packed: Packed) -> Reading:
    """Of all GPUs in use; one that several workloads share counts once, with the watts of the hungriest."""
    total = _sum(workloads, "power_w")
    gpus = _sum(workloads, "gpus")
    if isinstance(total, Missing) or isinstance(gpus, Missing) or isinstance(packed.gpus, Missing):
        return total
    if gpus <= packed.gpus:
        return total
    each = [
        plan.power_w / plan.gpus
        for plan in workloads
        if not isinstance(plan.power_w, Missing) and not isinstance(plan.gpus, Missing) and plan.gpus
    ]
    return packed.gpus * max(each, default=0.0)


def _others(demands: Sequence[Demand], workloads: Sequence[WorkloadPlan], scenario: Scenario, known: Known) -> Totals:
    """Totals of the workloads that have an answer, packed without the rest; nothing where all or none have."""
    sound = [demand for demand, each in zip(demands, workloads, strict=True) if not each.problem]
    if not sound or len(sound) == len(demands):
        return NONE_LEFT_OUT
    others = filled(sound, scenario, known, scenario.packing)
    plans = tuple(_workload(demand, stands, scenario) for demand, stands in zip(sound, others.stands, strict=True))
    return NONE_LEFT_OUT if any(each.problem for each in plans) else _totals(plans, others.packed)


def at_target(demand: Demand, stands: Stands) -> dict[str, Reading]:
    """Load, latency, throughput and power with none of its instances lost."""
    instance, count = demand.instance, stands.instances
    running = demand.running(count)
    return {
        "concurrency": running * count,
        "running": running,
        "itl_s": _given(instance.itl_s(running)),
        "ttft_s": _given(instance.ttft_s(running)),
        "itl_p95_s": _given(instance.itl_p95_s(running)),
        "ttft_p95_s": _given(instance.ttft_p95_s(running)),
        "e2e_s": _given(instance.response_s(max(running, 1e-9))),
        "tokens_per_s": total([(_given(_tokens_per_s(instance, running)), count)]),
        "requests_per_s": total([(_given(_requests_per_s(instance, running)), count)]),
        # GPUs that several instances share are counted once.
        "power_w": total([(_given(instance.gpu_power_w(running)[0]), stands.gpus)]),
    }


def degraded_of(demand: Demand, count: int, on_a_server: int = 1) -> tuple[Degraded, ...]:
    """With one of `count` instances less, and without the server that holds most of them: the worst that one fault
    does, until a spare server has loaded what was on it."""
    lost = {"instance": 1, **({"server": on_a_server} if on_a_server > 1 else {})}
    return tuple(_without(demand, what, count - number) for what, number in lost.items())


def _without(demand: Demand, what: str, left: int) -> Degraded:
    """Survivors carry the whole load: N/(N-k) times as much each."""
    if left < 1:
        return Degraded(what, 0, text="no replica left, requests fail until it is back")
    load = demand.running(left)
    fit = _fit(demand)
    queue = load > fit * (1 + 1e-9)
    # Past its capacity a rate only grows the queue: more in flight would run faster, but do not fit.
    if math.isinf(load) or (queue and demand.workload.target_kind == "requests_per_s"):
        return Degraded(what, left, text="the rest can not serve this rate: the queue grows without end")
    running = min(load, fit)
    instance = demand.instance
    ttft_s = _waiting_s(demand, load, running) if queue else _given(instance.ttft_s(running))
    missed = [f"the {kind.value} goal" for kind in _missed(demand, load, running, ttft_s)]
    text = f"{load:,.1f} per instance" + (f", {fit:,.0f} fit" if queue else "")
    if missed:
        text = f"{' and '.join(missed)} would be missed: {text}"
    elif queue:
        text = f"requests queue: {text}"
    else:
        beyond = any(limit.kind is LimitKind.RANGE and load > limit.concurrency for limit in demand.limits)
        text = f"{'more than was measured' if beyond else 'within all limits'}: {text}"
    itl_p95_s = _given(instance.itl_p95_s(running))
    ttft_p95_s = NOT_GIVEN if queue else _given(instance.ttft_p95_s(running))
    return Degraded(what, left, load, _given(instance.itl_s(running)), ttft_s, text, itl_p95_s, ttft_p95_s)


def _fit(demand: Demand) -> float:
    """Requests that one instance lets run: where it has no room, more wait and do not slow those down that run. A typed
    capacity is the user's word for it."""
    most = {limit.kind: limit.concurrency for limit in reversed(demand.limits)}
    if LimitKind.TYPED in most:
        return most[LimitKind.TYPED]
    return min((most[kind] for kind in _ROOM if kind in most), default=math.inf)


def _missed(demand: Demand, load: float, running: float, ttft_s: Reading) -> Iterator[LimitKind]:
    """Goals that `load` in flight cost, of which `running` run: tokens come as fast as those allow, the rest waits."""
    asked, most = demand.instance.workload, {each.kind: each.concurrency * (1 + 1e-9) for each in demand.limits}
    response_s = demand.instance.response_s(running)
    e2e_s = response_s * load / running if response_s else None
    first_s = None if isinstance(ttft_s, Missing) else ttft_s
    for kind, held, mean_s, goal_ms in (
        (LimitKind.ITL, running, None, None),
        (LimitKind.TTFT, load, first_s, asked.ttft_p95_ms),
        (LimitKind.E2E, load, e2e_s, asked.e2e_p95_ms),
    ):
        late = mean_s is not None and goal_ms is not None and mean_s * 1e3 > goal_ms * (1 + 1e-9)
        if kind in most and (held > most[kind] or late):
            yield kind


def _waiting_s(demand: Demand, load: float, running: float) -> Reading:
    """Mean TTFT with more in flight than run, by Little's law: time in the system less decoding."""
    of = demand.instance
    answer, itl_s, response_s = of.answer_tokens, of.itl_s(running), of.response_s(running)
    if not answer or not itl_s or not response_s:
        return NOT_GIVEN
    return queued_ttft_s(load, running / response_s, answer, itl_s)


def _given(value: float | None) -> Reading:
    return NOT_GIVEN if value is None else value


def _requests_per_s(instance: Instance, running: float) -> float | None:
    response_s = instance.response_s(max(running, 1e-9))
    return running / response_s if response_s else None


def _tokens_per_s(instance: Instance, running: float) -> float | None:
    """A request that still computes its prompt is in flight, too, but yields none yet."""
    answer, response_s = instance.answer_tokens, instance.response_s(running)
    if answer and response_s:
        return running * answer / response_s
    itl_s = instance.itl_s(running)
    return running / itl_s if itl_s else None


def _on(scenario: Scenario, own: Server | None, gpu: str) -> Scenario:
    if own is not None and own.gpu == gpu:
        return msgspec.structs.replace(scenario, server=(own,))
    shape = Server(gpu) if own is None else Server(gpu, own.gpus, own.nvlink_gpus, price_per_hour=own.price_per_hour)
    workloads = tuple(msgspec.structs.replace(each, **_OPEN) for each in scenario.workload)
    return msgspec.structs.replace(scenario, server=(shape,), workload=workloads)
