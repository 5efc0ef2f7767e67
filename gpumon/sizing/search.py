"""Number of instances for the target of a workload, in the layout that takes the fewest GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing import memory
from gpumon.sizing.answer import NOT_GIVEN, Limit, LimitKind, Source
from gpumon.sizing.capacity import (
    EXTRAPOLATED,
    OPERATING_POINTS,
    binding,
    limits_of,
    most_seen_running,
    planned_load,
    unknown_model,
)
from gpumon.sizing.goals import GOALS
from gpumon.sizing.instance import Instance, engine_to_size
from gpumon.sizing.layouts import Ground, Layout, layouts_of, searched_text
from gpumon.sizing.placement import InstanceBlock
from gpumon.sizing.profile import Origin
from gpumon.sizing.resolve import ground_of, resolve
from gpumon.sizing.scenario import Catalogues, Scenario, Workload
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec

MOST_INSTANCES: Final = 10_000_000
"""Instances beyond which there is no answer: a typing error in the target."""
INFEASIBLE: Final = Missing(Reason.INFEASIBLE)
"""Stands for a figure of a workload that no number of instances serves, or that has no place."""
_ROUNDING: Final = 1e-9
"""Part of an instance, of a request or of a memory that rounding may add."""
_LEAST_LOAD: Final = 1e-9
"""Requests in flight that an idle instance counts as: at none there is no response to divide by."""
_ENDLESS_QUEUE: Final = 1e9
"""Requests in flight of one instance from which its queue is taken to grow without end."""
_BISECTIONS: Final = 44
"""Halvings of a range of loads until it is below the resolution of a float's first 13 digits."""
REMEDIES: Final = {
    LimitKind.TPOT: "more TP, narrower weights or a faster GPU would help; more instances would not",
    LimitKind.ITL: "more TP, narrower weights or a faster GPU would help; more instances would not",
    LimitKind.ITL_MEAN: "more TP, narrower weights or a faster GPU would help; more instances would not",
    LimitKind.TTFT: "more TP, a shorter prompt or prefix hits would help; more instances would not",
    LimitKind.E2E: "shorter answers, more TP or a faster GPU would help; more instances would not",
    LimitKind.KV: "more GPUs per instance, an FP8 KV cache or shorter requests would help",
    LimitKind.PREFILL: "more TP or prefix hits would help",
}
"""Limit that lets no request in, or few -> what would help."""


class Demand(NamedTuple):
    """Needs of one workload."""

    workload: Workload
    instance: Instance
    limits: tuple[Limit, ...] = ()
    """Bounds of one instance, the one that holds first in front."""
    planned_running: float = 0.0
    """Requests in flight that an instance is planned with."""
    needed_instances: int = 0
    """Instances for the target, without spares."""
    exact_instances: float = 0.0
    """`needed_instances` before it is rounded up."""
    spares: int = 0
    """Instances beside the needed ones."""
    memory_bytes: Reading = NOT_GIVEN
    """Memory of one instance, all its GPUs."""
    memory_source: str = ""
    """Source of `memory_bytes`: typed, seen, table, model or rule; empty: it is not known."""
    busy_ratio: Reading = NOT_GIVEN
    """Share of its GPUs that one instance keeps busy."""
    extrapolated: bool = False
    """Whether `planned_running` is beyond the loads that were measured."""
    fewer_gpus_note: str = ""
    """Note that another layout would take fewer GPUs than the one that stays; empty where none would."""
    alternatives: tuple[Demand, ...] = ()
    """Needs in the best layout of each other kind, the fewest GPUs first."""
    is_bound: bool = False
    """Whether they are by the means alone, so that they may be more: others take fewer GPUs anyway."""
    searched: str = ""
    """Layouts among which this one takes the fewest GPUs; empty where none were tried."""
    simulation_note: str = ""
    """Note with the result of the simulation that decided the number of instances; empty: the formulas did."""
    problem: str = ""
    """Why no number of instances would do; empty where one does."""

    @property
    def instances(self) -> int:
        """The number of instances, spares included; 0 where there is a problem."""
        if self.problem:
            return 0
        return self.needed_instances + self.spares

    @property
    def gpus(self) -> float:
        """GPUs of all its instances; infinite where there is a problem."""
        if self.problem:
            return math.inf
        return float(self.instances * self.instance.gpus)

    @property
    def layout(self) -> Layout:
        """How an instance is split over its GPUs."""
        return Layout(self.instance.tp or 1, self.instance.pp or 1, self.instance.dp)

    @property
    def memory_is_measured(self) -> bool:
        """Whether its memory is measured, or stands on that: it fits a GPU whatever share of one is planned with."""
        if self.memory_source == "seen":
            return True
        pool_shift_ratio = self.instance.pool_shift_ratio
        return self.memory_source == "model" and pool_shift_ratio is not None and pool_shift_ratio > 0

    @property
    def source(self) -> Source:
        """Source of the capacity: the user's word, a load test's operating point, or the source of the latency."""
        if not self.limits:
            return Source.NONE
        kind = binding(self.limits).kind
        if kind is LimitKind.TYPED:
            return Source.TYPED
        is_rescaled = self.instance.source is Source.RESCALED
        if kind in OPERATING_POINTS and not is_rescaled:
            return Source.SWEEP
        return self.instance.source

    def running_per_instance(self, count: int) -> float:
        """Requests in flight of each of `count` instances at the target.

        For users and rates the load at which an instance's response time keeps as many in flight: found by bisection.
        Infinite where a rate is more than they can ever serve.
        """
        if self.workload.target_kind == "concurrency":
            return self.workload.target / count

        def load_by_response(running: float) -> float:
            """Requests in flight of each instance if responses take as long as with `running`."""
            return _in_flight(self.workload, self.instance.response_s(running)) / count

        low = 0.0
        high = load_by_response(0.0)
        while load_by_response(high) > high:
            low = high
            high = 2.0 * high
            if high >= _ENDLESS_QUEUE:
                return math.inf
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2.0
            if load_by_response(middle) > middle:
                low = middle
            else:
                high = middle
        return high

    def target_served(self, running: float) -> float:
        """Part of the target that an instance with so many in flight serves, in the unit of the target."""
        response_s = self.instance.response_s(max(running, _LEAST_LOAD))
        if self.workload.target_kind == "concurrency" or not response_s:
            return running
        if self.workload.target_kind == "users":
            return running * (response_s + self.workload.think_s) / response_s
        return running / response_s

    @property
    def _group_gpus(self) -> int:
        """GPUs that have to stand in one domain: a TP group, with all ranks that share its experts; of one that is
        larger than a domain, as many as a domain has."""
        group = self.instance.tp * self.instance.dp
        server = self.instance.server
        if server is None or group <= server.domain:
            return group
        return math.gcd(group, server.domain)

    def block(self, index: int, usable_bytes: float, count: int) -> InstanceBlock:
        """`count` instances for the placement. One whose memory is not known takes its GPUs whole.

        `index`: index of the workload in the scenario. `usable_bytes`: usable memory of one GPU.
        """
        size_bytes = self.memory_bytes
        if isinstance(size_bytes, Missing):
            size_bytes = usable_bytes * self.instance.gpus
        busy_ratio = None if isinstance(self.busy_ratio, Missing) else self.busy_ratio
        return InstanceBlock(
            workload=index,
            count=count,
            gpus=self.instance.gpus,
            tp=self._group_gpus,
            memory_bytes=size_bytes,
            busy_ratio=busy_ratio,
        )


def demand_of(workload: Workload, scenario: Scenario, catalogues: Catalogues, *, any_tp: bool = False) -> Demand:
    """The needs of `workload` in the layout that takes the fewest GPUs, with the next ones of other kinds beside it.

    Of several layouts with as few the one on one server, without stages or ranks, and with the smallest TP is taken. A
    TP, PP or DP that was typed, or a layout that was measured on these GPUs, stays; one that takes fewer GPUs is named
    in `fewer_gpus_note`. With `any_tp` a measured one does not stay.
    """
    ground = ground_of(workload, scenario, catalogues)
    if ground is None or workload.memory_gb is not None or workload.capacity_per_instance is not None:
        return demand_at_own_tp(workload, scenario, catalogues)
    layouts = layouts_of(ground)
    if workload.kv_pool_tokens is not None:  # it was typed for one kind of instance
        layouts = tuple(layout for layout in layouts if layout.pp == layout.dp == 1)
    kept = _kept(workload, scenario, catalogues, any_tp=any_tp)
    most_gpus = kept.gpus if kept is not None else math.inf
    tried = _tried_layouts(workload, scenario, catalogues, layouts, ground, most_gpus)
    best = _fewest_gpus([demand for demand in tried if not demand.is_bound])
    if kept is not None:
        return _with_better_layout(kept, best)
    if best is None or best.problem:
        return demand_at_own_tp(workload, scenario, catalogues)
    searched = f"{searched_text(layouts)}: {len(layouts)} layouts"
    alternatives = _alternatives(best, tried, ground.domain)
    return best._replace(workload=workload, alternatives=alternatives, searched=searched)


def _kept(workload: Workload, scenario: Scenario, catalogues: Catalogues, *, any_tp: bool) -> Demand | None:
    """The needs in the layout that stays: what was typed of it, or the one that was measured; None where none stays."""
    if workload.tp:
        return demand_at_own_tp(workload, scenario, catalogues)
    if workload.pp or workload.dp:
        own = demand_at_own_tp(workload, scenario, catalogues)
        return _fewest_gpus([own, *_at_other_tps(own, workload, scenario, catalogues)])
    if any_tp or (workload.seen is None and not workload.profile):
        return None
    own = demand_at_own_tp(workload, scenario, catalogues)
    return own if own.instance.alike else None


def _with_better_layout(kept: Demand, best: Demand | None) -> Demand:
    """The needs in the layout that stays, with the one named that takes fewer GPUs, if there is one."""
    if best is None or best.gpus >= kept.gpus:
        return kept
    instead = "" if kept.problem else f" instead of {kept.gpus:,.0f}"
    return kept._replace(fewer_gpus_note=f"{best.layout.text} would take {best.gpus:,.0f} GPUs{instead}")


def _at_other_tps(own: Demand, workload: Workload, scenario: Scenario, catalogues: Catalogues) -> Iterator[Demand]:
    """The needs at the other TPs that hold the model with the stages and ranks that were typed."""
    for tp in own.instance.tps:
        if tp != own.instance.tp:
            with_tp = msgspec.structs.replace(workload, tp=tp)
            yield demand_at_own_tp(with_tp, scenario, catalogues)._replace(workload=workload)


def _fewest_gpus(demands: Sequence[Demand]) -> Demand | None:
    """The needs that take the fewest GPUs; of several the simplest layout. None of none."""
    return min(demands, key=_order, default=None)


def _order(demand: Demand) -> tuple[float, bool, int, int, int]:
    """Order of layouts: few GPUs, then within one domain, few stages, few ranks, a small TP."""
    layout = demand.layout
    return demand.gpus, demand.instance.fabric is not None, layout.pp, layout.dp, layout.tp


def _tried_layouts(
    workload: Workload, scenario: Scenario, catalogues: Catalogues, layouts: Sequence[Layout], ground: Ground,
    most_gpus: float,
) -> list[Demand]:  # fmt: skip
    """The needs in each layout that may take as few GPUs as the best of its kind that was found before it.

    Where p95 are simulated, needs by the means come first, which are bounds: only a layout whose bound is below
    `most_gpus` and the best one found is worked out. A bound hides no other layout that may be better, so that a
    stricter goal takes no fewer GPUs.
    """
    if catalogues.tails is None or not _has_p95_goal(workload, scenario):
        return _by_kind(workload, scenario, catalogues, layouts, ground)
    by_means = msgspec.structs.replace(workload, ttft_p95_ms=None, e2e_p95_ms=None)
    without_goals = msgspec.structs.replace(scenario, ttft_p95_ms=None, e2e_p95_ms=None)
    without_tails = catalogues._replace(tails=None)
    least = {layout: _least_gpus(layout, workload, scenario, ground) for layout in layouts}
    tried = []
    fewest: dict[tuple[bool, bool, bool], float] = {}
    for layout in sorted(layouts, key=least.__getitem__):
        kind = layout.kind(ground.domain)
        if least[layout] >= fewest.get(kind, math.inf):
            continue
        demand = demand_at_own_tp(laid_out(by_means, layout), without_goals, without_tails)._replace(is_bound=True)
        if not demand.problem and demand.gpus < most_gpus:
            demand = demand_at_own_tp(laid_out(workload, layout), scenario, catalogues)
            most_gpus = min(most_gpus, demand.gpus)
        tried.append(demand)
        fewest[kind] = min(fewest.get(kind, math.inf), demand.gpus)
    return tried


def _has_p95_goal(workload: Workload, scenario: Scenario) -> bool:
    """Whether a goal judges a p95, so that requests may have to be simulated for it."""
    keys = [goal.key for goal in GOALS if goal.latency]
    return any(getattr(asked, key) is not None for asked in (workload, scenario) for key in keys)


def laid_out(workload: Workload, layout: Layout) -> Workload:
    """The workload with a layout in the place of a typed one."""
    return msgspec.structs.replace(workload, tp=layout.tp, pp=layout.pp, dp=layout.dp)


def _by_kind(
    workload: Workload, scenario: Scenario, catalogues: Catalogues, layouts: Sequence[Layout], ground: Ground
) -> list[Demand]:
    """The needs in each layout whose KV caches may do with as few GPUs as the best of its kind before it."""
    tried = []
    fewest: dict[tuple[bool, bool, bool], float] = {}
    for layout in layouts:
        kind = layout.kind(ground.domain)
        most_gpus = fewest.get(kind, math.inf)
        if _least_gpus(layout, workload, scenario, ground) >= most_gpus:
            continue
        demand = demand_at_own_tp(laid_out(workload, layout), scenario, catalogues)
        tried.append(demand)
        fewest[kind] = min(most_gpus, demand.gpus)
    return tried


def _least_gpus(layout: Layout, workload: Workload, scenario: Scenario, ground: Ground) -> float:
    """GPUs that a layout takes at least: one instance, and as many as its KV caches need for the target.

    The caches count by the formula, so only where nothing was measured.
    """
    spares = scenario.spare_instances if workload.spare_instances is None else workload.spare_instances
    least_gpus = float((1 + spares) * layout.gpus)
    if workload.seen is not None or workload.profile or workload.kv_pool_tokens is not None:
        return least_gpus
    if workload.prompt_tokens is None or workload.answer_tokens is None or not 0.0 < workload.target < math.inf:
        return least_gpus
    running = ground.held_requests(
        layout,
        workload.prompt_tokens + workload.answer_tokens,
        scenario.usable_memory_ratio,
        workload.engine,
    )
    if running < 1.0:
        return math.inf
    if workload.target_kind != "concurrency" or math.isinf(running):
        return least_gpus
    planned = max(1.0, math.floor(running * scenario.planning_factor + _ROUNDING))
    return (math.ceil(workload.target / planned - _ROUNDING) + spares) * layout.gpus


def holding_layouts(instance: Instance, scenario: Scenario, catalogues: Catalogues) -> tuple[Layout, ...]:
    """Layouts that hold the model of an instance and one of its requests: those of TP alone first, then stages, then
    ranks. Empty where something of them is not known."""
    ground = ground_of(instance.workload, scenario, catalogues)
    if ground is None or instance.prompt_tokens is None or instance.answer_tokens is None:
        return ()
    context_tokens = instance.prompt_tokens + instance.answer_tokens
    engine = engine_to_size(instance.workload, instance.seen)
    holding = [
        layout
        for layout in layouts_of(ground)
        if ground.held_requests(layout, context_tokens, scenario.usable_memory_ratio, engine) >= 1.0
    ]
    return tuple(sorted(holding, key=lambda layout: (layout.dp, layout.pp, layout.tp)))


def _alternatives(best: Demand, tried: Sequence[Demand], domain: int) -> tuple[Demand, ...]:
    """The best layout of each other kind that has an answer, the one with the fewest GPUs first."""
    by_kind: dict[tuple[bool, bool, bool], list[Demand]] = {}
    for demand in tried:
        if not demand.problem:
            by_kind.setdefault(demand.layout.kind(domain), []).append(demand)
    by_kind.pop(best.layout.kind(domain), None)
    others = [min(demands, key=_order) for demands in by_kind.values()]
    return tuple(sorted(others, key=_order))


def demand_at_own_tp(workload: Workload, scenario: Scenario, catalogues: Catalogues) -> Demand:
    """The needs of `workload` at its own TP, or the one that `resolve` takes."""
    instance = resolve(workload, scenario, catalogues)
    bare = Demand(workload, instance, problem=instance.problem)
    bounded = _with_limits(bare, scenario, catalogues)
    if bounded.problem:
        return bounded
    # Whole requests, at least one; a measured or typed operating point is planned with as it is.
    load = planned_load(binding(bounded.limits), scenario.planning_factor)
    planned = max(1.0, float(math.floor(load + _ROUNDING)))
    memory_bytes, memory_source = memory_of(instance, planned, scenario)
    spares = scenario.spare_instances if workload.spare_instances is None else workload.spare_instances
    demand = bounded._replace(
        planned_running=planned,
        spares=spares,
        memory_bytes=memory_bytes,
        memory_source=memory_source,
        busy_ratio=_busy_ratio(instance),
        extrapolated=_is_extrapolated(instance, planned),
    )
    response_s = instance.response_s(planned)
    if workload.target_kind != "concurrency" and response_s is None:
        unit = "users" if workload.target_kind == "users" else "requests per second"
        return demand._replace(problem=f"{unit} need a response time: give prompt and answer tokens, or a concurrency")
    exact = _in_flight(workload, response_s) / planned
    if exact > MOST_INSTANCES:
        return demand._replace(problem=f"{exact:.2g} instances: check the target and the capacity per instance")
    needed = max(1, math.ceil(exact - _ROUNDING))
    return demand._replace(needed_instances=needed, exact_instances=exact, problem=_size_problem(demand, scenario))


def _with_limits(bare: Demand, scenario: Scenario, catalogues: Catalogues) -> Demand:
    """The demand with the limits of its instance; with a problem if it has none, or if they let no request in."""
    if bare.problem:
        return bare
    target = bare.workload.target
    if not target > 0 or math.isinf(target):  # not a number is refused, too
        return bare._replace(problem=f"the target is {target:g}: it must be above 0")
    limits = limits_of(bare.instance, scenario)
    if not limits:
        return bare._replace(limits=limits, problem=_no_limit_problem(bare.instance, catalogues))
    first = binding(limits)
    if first.concurrency >= 1.0:
        return bare._replace(limits=limits)
    remedy = REMEDIES.get(first.kind, "change that bound")
    return bare._replace(limits=limits, problem=f"not even one request at a time: {first.text}; {remedy}")


def _in_flight(workload: Workload, response_s: float | None) -> float:
    """Requests in flight of the whole target, if each takes `response_s`; without that the target itself."""
    if workload.target_kind == "concurrency" or response_s is None:
        return workload.target
    if workload.target_kind == "requests_per_s":
        return workload.target * response_s
    if response_s <= 0:
        return 0.0
    # A user waits for an answer, and thinks before the next question.
    return workload.target * response_s / (response_s + workload.think_s)


def _no_limit_problem(instance: Instance, catalogues: Catalogues) -> str:
    """The problem of an instance without any limit: what is lacking to work one out."""
    lacking = []
    if instance.llm is None:
        lacking.append(f"the model's dimensions ({unknown_model(instance.workload.model, catalogues)})")
    lacking += [name for name in ("prompt_tokens", "answer_tokens") if getattr(instance, name) is None]
    seen = instance.seen
    when = " (known once requests have ended)" if instance.prompt_tokens is None and seen is not None else ""
    table = ""
    if seen is not None and seen.origin is Origin.TABLE:
        table = f"; the table of {seen.name} was measured on {seen.gpu}"
    needs = f"{', '.join(lacking) or 'a goal'}{when}, or a typed capacity (capacity_per_instance){table}"
    return f"capacity per instance is not known: it needs {needs}"


def memory_of(instance: Instance, planned: float, scenario: Scenario) -> tuple[Reading, str]:
    """Memory of one instance in bytes with `planned` requests, and its source (`Demand.memory_source`)."""
    workload = instance.workload
    seen = instance.seen
    if workload.memory_gb is not None:
        return workload.memory_gb * 1e9, "typed"
    if seen is not None and seen.memory_bytes is not None and instance.alike:
        if seen.origin is Origin.TABLE:
            return seen.memory_bytes, "table"
        return seen.memory_bytes, "seen"
    if instance.llm is None:
        return NOT_GIVEN, ""
    if instance.prompt_tokens is None or instance.answer_tokens is None:
        return memory.rule_bytes(instance.llm.params), "rule"
    size_bytes = memory.instance_bytes(
        instance.llm,
        gpus=instance.gpus,
        tp=instance.tp,
        running=planned,
        context_tokens=instance.prompt_tokens + instance.answer_tokens / 2.0,
        dp=instance.dp,
        startup=instance.startup,
    )
    if instance.gpu is not None:
        size_bytes = _corrected_bytes(
            instance, instance.llm, instance.gpu, scenario, size_bytes=size_bytes, planned=planned
        )
    return size_bytes, "model"


def _corrected_bytes(
    instance: Instance, llm: LlmSpec, gpu: GpuSpec, scenario: Scenario, *, size_bytes: float, planned: float
) -> float:
    """The model's memory, corrected by what was measured of such an instance on these GPUs."""
    # A larger KV pool than by the formula was measured: the constants beside it are too large by that.
    excess_bytes = max(0.0, instance.pool_shift_ratio or 0.0) * gpu.memory_bytes
    overhead_bytes = memory.overhead_bytes(llm, instance.gpus, instance.startup)
    size_bytes -= instance.gpus * min(overhead_bytes, excess_bytes)
    if instance.workload.kv_pool_tokens is not None and _holds_weights(instance, llm, gpu, scenario):
        # A typed pool is the user's word for what the GPUs hold beside the weights.
        return min(size_bytes, instance.gpus * gpu.memory_bytes * scenario.usable_memory_ratio)
    if planned <= most_seen_running(instance):
        # As many ran together on these GPUs: the constants, or a precision that nobody recorded, are wrong.
        size_bytes = min(size_bytes, instance.gpus * gpu.memory_bytes * scenario.usable_memory_ratio)
    return size_bytes


def _holds_weights(instance: Instance, llm: LlmSpec, gpu: GpuSpec, scenario: Scenario) -> bool:
    """Whether the weights and one request have room on the GPUs of an instance."""
    request_tokens = (instance.prompt_tokens or 0.0) + (instance.answer_tokens or 0.0)
    least_bytes = memory.instance_bytes(
        llm, instance.gpus, instance.tp, float(instance.dp), request_tokens, instance.dp, instance.startup
    )
    return least_bytes <= instance.gpus * gpu.memory_bytes * scenario.usable_memory_ratio


def _busy_ratio(instance: Instance) -> Reading:
    """Busy share of an instance's GPUs, typed or measured."""
    if instance.workload.busy_ratio is not None:
        return instance.workload.busy_ratio
    if instance.seen is not None and instance.seen.busy_ratio is not None and instance.alike:
        return instance.seen.busy_ratio
    return NOT_GIVEN


def _is_extrapolated(instance: Instance, planned: float) -> bool:
    """Whether the load is beyond the measured ones, of this instance or of the one its curve was re-scaled from."""
    if instance.fitted is not None:
        return planned > EXTRAPOLATED * instance.fitted.high
    if instance.source is not Source.RESCALED or instance.seen is None:
        return False
    most_running = instance.seen.most_running
    return most_running is not None and planned > EXTRAPOLATED * most_running


def _size_problem(demand: Demand, scenario: Scenario) -> str:
    """Why the instance does not fit its GPUs; empty where it does, or where its memory is not known."""
    instance = demand.instance
    size_bytes = demand.memory_bytes
    if instance.gpu is None or isinstance(size_bytes, Missing):
        return ""
    gpu_bytes = size_bytes / instance.gpus
    if demand.memory_is_measured:  # on the same GPU: it fits, whatever share is planned with
        usable_bytes = instance.gpu.memory_bytes
    else:
        usable_bytes = instance.gpu.memory_bytes * scenario.usable_memory_ratio
    if gpu_bytes <= usable_bytes * (1 + _ROUNDING):
        return ""
    where = f"on each of {instance.gpus} GPUs" if instance.gpus > 1 else "on its GPU"
    return (
        f"one instance needs {gpu_bytes / 1e9:,.1f} GB {where}; {instance.gpu.name} has "
        f"{usable_bytes / 1e9:,.1f} GB usable: more TP, narrower weights or a larger GPU"
    )
