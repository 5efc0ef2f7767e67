"""How many instances of a workload its target takes, at the tensor-parallel size that takes the fewest GPUs."""

from __future__ import annotations

import math
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
    planned_load,
    ran_together,
    unknown_model,
)
from gpumon.sizing.instance import Instance, resolve
from gpumon.sizing.placement import InstanceBlock
from gpumon.sizing.profile import Origin
from gpumon.sizing.scenario import Catalogues, Scenario, Workload
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec

MOST_INSTANCES: Final = 10_000_000
"""More than that is no answer."""
INFEASIBLE: Final = Missing(Reason.INFEASIBLE)
_EPSILON: Final = 1e-9
_NO_END: Final = 1e9
"""Requests in flight of one instance at which its queue is taken to grow without end."""
_HELPS: Final = {
    LimitKind.ITL: "more TP, narrower weights or a faster GPU would help; more instances would not",
    LimitKind.TTFT: "more TP, a shorter prompt or prefix hits would help; more instances would not",
    LimitKind.E2E: "shorter answers, more TP or a faster GPU would help; more instances would not",
    LimitKind.KV: "more GPUs per instance, an FP8 KV cache or shorter requests would help",
    LimitKind.PREFILL: "more TP or prefix hits would help",
}


class Demand(NamedTuple):
    """Needs of one workload; `problem` says why nothing would do."""

    workload: Workload
    instance: Instance
    limits: tuple[Limit, ...] = ()
    planned: float = 0.0
    """Requests in flight that an instance is planned with."""
    needed: int = 0
    """Instances for the target, without spares."""
    exact: float = 0.0
    """The same before it is rounded up."""
    spares: int = 0
    memory_bytes: Reading = NOT_GIVEN
    memory_source: str = ""
    busy_ratio: Reading = NOT_GIVEN
    extrapolated: bool = False
    better: str = ""
    """A TP that would take fewer GPUs."""
    simulated: str = ""
    """Result of the simulation that decided the number of instances, as a note says it."""
    problem: str = ""

    @property
    def instances(self) -> int:
        """With spares; 0 where there is a problem."""
        return 0 if self.problem else self.needed + self.spares

    @property
    def gpus(self) -> float:
        """GPUs of all its instances; infinite where there is a problem."""
        if self.problem:
            return math.inf
        return float(self.instances * self.instance.gpus)

    @property
    def as_seen(self) -> bool:
        """Its memory is what an engine took, or stands on it: it fits a GPU whatever share of one is planned with."""
        shift = self.instance.pool_shift_ratio
        return self.memory_source == "seen" or (self.memory_source == "model" and shift is not None and shift > 0)

    @property
    def source(self) -> Source:
        """Source of the capacity: the user's word, a table, or the source of the latency."""
        if not self.limits:
            return Source.NONE
        kind = binding(self.limits).kind
        if kind is LimitKind.TYPED:
            return Source.TYPED
        moved = self.instance.source is Source.RESCALED
        if kind in OPERATING_POINTS and not moved:
            return Source.SWEEP
        return self.instance.source

    def running(self, count: int) -> float:
        """Requests in flight of each of `count` instances at the target: fewer are faster, so of users and rates fewer
        stay. Infinite where a rate is more than they can ever serve."""
        if self.workload.target_kind == "concurrency":
            return self.workload.target / count

        def wanted(running: float) -> float:
            return _asked(self.workload, self.instance.response_s(running)) / count

        low = 0.0
        high = wanted(0.0)
        while wanted(high) > high:
            low = high
            high = 2.0 * high
            if high >= _NO_END:
                return math.inf
        for _ in range(44):
            middle = (low + high) / 2.0
            low, high = (middle, high) if wanted(middle) > middle else (low, middle)
        return high

    def asked_of(self, running: float) -> float:
        """Part of the target that an instance with so many in flight serves, in the unit of the target."""
        response_s = self.instance.response_s(max(running, 1e-9))
        if self.workload.target_kind == "concurrency" or not response_s:
            return running
        if self.workload.target_kind == "users":
            return running * (response_s + self.workload.think_s) / response_s
        return running / response_s

    def block(self, index: int, usable_bytes: float, count: int) -> InstanceBlock:
        """For the placement: an instance whose memory is not known takes its GPUs whole."""
        size = self.memory_bytes
        busy = self.busy_ratio
        return InstanceBlock(
            workload=index,
            count=count,
            gpus=self.instance.gpus,
            tp=self.instance.tp * self.instance.dp,
            memory_bytes=usable_bytes * self.instance.gpus if isinstance(size, Missing) else size,
            busy_ratio=None if isinstance(busy, Missing) else busy,
        )


def demand_of(workload: Workload, scenario: Scenario, catalogues: Catalogues, *, any_tp: bool = False) -> Demand:
    """The needs of `workload` at the TP that takes the fewest GPUs; of several the smallest.

    A TP that was typed, or seen on these GPUs, stays: one that takes fewer is named. With `any_tp` one that was seen
    does not stay. Data-parallel ranks that would take fewer GPUs are named alone: engines share experts only where they
    are told to.
    """
    best = _best_tp(workload, scenario, catalogues, any_tp=any_tp)
    ranks = _best_ranks(best, scenario, catalogues)
    if ranks is None or ranks.gpus >= best.gpus:
        return best
    name = f"TP {ranks.instance.tp} x DP {ranks.instance.dp}"
    return best._replace(better=f"{name} would take {ranks.gpus:,.0f} GPUs instead of {best.gpus:,.0f}")


def _may_share_experts(best: Demand) -> bool:
    """Whether data-parallel ranks would have experts to share, and the user did not say what an instance is."""
    if best.problem or _is_instance_typed(best.workload):
        return False
    llm = best.instance.llm
    return llm is not None and llm.experts > 0


def _best_ranks(best: Demand, scenario: Scenario, catalogues: Catalogues) -> Demand | None:
    """The needs with the data-parallel ranks of one GPU that take the fewest GPUs; None where nothing is to be shared,
    or the user said what an instance is."""
    server = best.instance.server
    if server is None or not _may_share_experts(best):
        return None
    domain = min(server.nvlink_gpus or server.gpus, server.gpus)
    fewest = None
    ranks = 2
    while ranks <= domain and ranks < best.gpus:
        asked = msgspec.structs.replace(best.workload, tp=1, dp=ranks)
        demand = demand_at(asked, scenario, catalogues)
        if fewest is None or demand.gpus < fewest.gpus:
            fewest = demand
        ranks *= 2
    return fewest


def _is_instance_typed(workload: Workload) -> bool:
    """Whether the user said what an instance is."""
    return bool(workload.dp or workload.memory_gb or workload.capacity_per_instance or workload.kv_pool_tokens)


def _best_tp(workload: Workload, scenario: Scenario, catalogues: Catalogues, *, any_tp: bool) -> Demand:
    """The needs at the TP that takes the fewest GPUs, or at the one that stays."""
    asked = demand_at(workload, scenario, catalogues)
    others = []
    for tp in asked.instance.tps:
        if tp != asked.instance.tp:
            others.append(
                demand_at(msgspec.structs.replace(workload, tp=tp), scenario, catalogues)._replace(workload=workload)
            )
    best = min((asked, *others), key=lambda demand: (demand.gpus, demand.instance.tp))
    kept = asked.instance.alike and not any_tp
    if best is asked or (not workload.tp and not kept):
        return best
    if best.gpus >= asked.gpus:
        return asked
    instead = ""
    if not asked.problem:
        instead = f" instead of {asked.gpus:,.0f}"
    return asked._replace(better=f"TP {best.instance.tp} would take {best.gpus:,.0f} GPUs{instead}")


def demand_at(workload: Workload, scenario: Scenario, catalogues: Catalogues) -> Demand:
    """The needs of `workload` at its own TP, or the one that `resolve` takes."""
    instance = resolve(workload, scenario, catalogues)
    bounded = _bounded(Demand(workload, instance, problem=instance.problem), scenario, catalogues)
    if bounded.problem:
        return bounded
    # Whole requests, at least one; a measured or typed operating point is planned with as it is.
    load = planned_load(binding(bounded.limits), scenario.planning_factor)
    planned = max(1.0, float(math.floor(load + _EPSILON)))
    size, source = _memory(instance, planned, scenario)
    spares = scenario.spare_instances if workload.spare_instances is None else workload.spare_instances
    demand = bounded._replace(
        planned=planned,
        spares=spares,
        memory_bytes=size,
        memory_source=source,
        busy_ratio=_busy(instance),
        extrapolated=_extrapolated(instance, planned),
    )
    response_s = instance.response_s(planned)
    if workload.target_kind != "concurrency" and response_s is None:
        kind = "users" if workload.target_kind == "users" else "requests per second"
        why = f"{kind} need a response time: give prompt and answer tokens, or a concurrency"
        return demand._replace(problem=why)
    exact = _asked(workload, response_s) / planned
    if exact > MOST_INSTANCES:
        return demand._replace(problem=f"{exact:.2g} instances: check the target and the capacity per instance")
    needed = max(1, math.ceil(exact - _EPSILON))
    return demand._replace(needed=needed, exact=exact, problem=_too_large(demand, scenario))


def _bounded(bare: Demand, scenario: Scenario, catalogues: Catalogues) -> Demand:
    """With the limits of the instance; with a problem where it has none, or where they let no request in."""
    target = bare.workload.target
    if bare.problem:
        return bare
    if not target > 0 or math.isinf(target):
        return bare._replace(problem=f"the target is {target:g}: it must be above 0")
    limits = limits_of(bare.instance, scenario)
    if not limits:
        return bare._replace(limits=limits, problem=_nothing_bounds(bare.instance, catalogues))
    first = binding(limits)
    if first.concurrency >= 1.0:
        return bare._replace(limits=limits)
    helps = _HELPS.get(first.kind, "change that bound")
    return bare._replace(limits=limits, problem=f"not even one request at a time: {first.text}; {helps}")


def _asked(workload: Workload, response_s: float | None) -> float:
    """Requests in flight that the target comes to."""
    if workload.target_kind == "concurrency" or response_s is None:
        return workload.target
    if workload.target_kind == "users":
        # Each waits for an answer, and thinks before the next question.
        return workload.target * response_s / (response_s + workload.think_s) if response_s > 0 else 0.0
    return workload.target * response_s


def _nothing_bounds(instance: Instance, catalogues: Catalogues) -> str:
    lengths = ("prompt_tokens", "answer_tokens")
    lacks = []
    for name in lengths:
        if getattr(instance, name) is None:
            lacks.append(name)
    if instance.llm is None:
        lacks = [f"the model's dimensions ({unknown_model(instance.workload.model, catalogues)})", *lacks]
    later = instance.prompt_tokens is None and instance.seen is not None
    when = " (known once requests have ended)" if later else ""
    seen = instance.seen
    table = ""
    if seen is not None and seen.origin is Origin.TABLE:
        table = f"; the table of {seen.name} was measured on {seen.gpu}"
    needs = f"{', '.join(lacks) or 'a goal'}{when}, or a typed capacity (capacity_per_instance){table}"
    return f"capacity per instance is not known: it needs {needs}"


def _memory(instance: Instance, planned: float, scenario: Scenario) -> tuple[Reading, str]:
    """Memory of one instance: typed, as seen, from the model, else not known."""
    workload = instance.workload
    seen = instance.seen
    if workload.memory_gb is not None:
        return workload.memory_gb * 1e9, "typed"
    if seen is not None and seen.memory_bytes is not None and instance.alike:
        return seen.memory_bytes, "table" if seen.origin is Origin.TABLE else "seen"
    if instance.llm is None:
        return NOT_GIVEN, ""
    if instance.prompt_tokens is None or instance.answer_tokens is None:
        return memory.rule_bytes(instance.llm.params), "rule"
    context = instance.prompt_tokens + instance.answer_tokens / 2.0
    size = memory.instance_bytes(
        instance.llm, instance.gpus, instance.tp, planned, context, instance.dp, instance.startup
    )
    if instance.gpu is not None:
        size = _as_ran(instance, instance.llm, instance.gpu, size, planned, scenario)
    return size, "model"


def _as_ran(instance: Instance, llm: LlmSpec, gpu: GpuSpec, size: float, planned: float, scenario: Scenario) -> float:
    """The model's memory, moved to what such an instance was seen to find and to run on these GPUs."""
    # Room that an engine was seen to find beside the constants is not taken by them.
    room = max(0.0, instance.pool_shift_ratio or 0.0) * gpu.memory_bytes
    size -= instance.gpus * min(memory.overhead_bytes(llm, instance.gpus, instance.startup), room)
    if planned <= ran_together(instance):
        # As many ran together on these GPUs: the constants, or a precision that nobody recorded, are wrong.
        size = min(size, instance.gpus * gpu.memory_bytes * scenario.usable_memory_ratio)
    return size


def _busy(instance: Instance) -> Reading:
    if instance.workload.busy_ratio is not None:
        return instance.workload.busy_ratio
    if instance.seen is not None and instance.seen.busy_ratio is not None and instance.alike:
        return instance.seen.busy_ratio
    return NOT_GIVEN


def _extrapolated(instance: Instance, planned: float) -> bool:
    """Whether the load lies beyond what was measured, here or on what the curve was re-scaled from."""
    if instance.fitted is not None:
        return planned > EXTRAPOLATED * instance.fitted.high
    if instance.source is not Source.RESCALED or instance.seen is None:
        return False
    most_running = instance.seen.most_running
    return most_running is not None and planned > EXTRAPOLATED * most_running


def _too_large(demand: Demand, scenario: Scenario) -> str:
    """Why the instance fits no GPU of the shape, though its memory is known."""
    instance = demand.instance
    size = demand.memory_bytes
    if instance.gpu is None or isinstance(size, Missing):
        return ""
    most = instance.gpu.memory_bytes * scenario.usable_memory_ratio
    gpu_bytes = size / instance.gpus
    # What an engine was seen to reserve on the same GPU fits it, whatever share is planned with.
    if demand.as_seen:
        most = instance.gpu.memory_bytes
    if gpu_bytes <= most * (1 + 1e-9):
        return ""
    where = "on its GPU"
    if instance.gpus > 1:
        where = f"on each of {instance.gpus} GPUs"
    return (
        f"one instance needs {gpu_bytes / 1e9:,.1f} GB {where}; {instance.gpu.name} has "
        f"{most / 1e9:,.1f} GB usable: more TP, narrower weights or a larger GPU"
    )
