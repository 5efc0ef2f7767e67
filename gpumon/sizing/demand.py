"""One workload on one shape of GPU: its capacity per instance, how many it takes, and what they then do."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing import memory
from gpumon.sizing.answer import NOT_GIVEN, Limit, LimitKind, Source
from gpumon.sizing.instance import Instance, resolve
from gpumon.sizing.known import Known
from gpumon.sizing.limits import impossible, limits_of, ran_together
from gpumon.sizing.observed import Origin
from gpumon.sizing.placement import Block
from gpumon.sizing.queueing import highest_load, in_flight
from gpumon.sizing.scenario import Scenario, Workload

MOST_INSTANCES = 10_000_000
"""More than that is no answer."""
_EPSILON = 1e-9
_NO_END = 1e9
"""Requests in flight of one instance at which its queue is taken to grow without end."""


class Load(NamedTuple):
    """Instances for a target, without spares."""

    instances: int
    queue: bool = False
    """More instances than capacity alone asks for, so that few enough requests wait."""
    problem: str = ""


def load_of(instance: Instance, planned: float, slots: float, wait_ratio: float | None) -> Load:
    """Instances so that each carries at most `planned` requests in flight.

    `slots`: what one can carry at most; `wait_ratio`: with all instances behind one router, at most this share of the
    requests may find no free slot (Erlang C, Poisson arrivals).
    """
    workload = instance.workload
    response_s = instance.response_s(planned)
    if workload.target_kind != "concurrency" and response_s is None:
        what = "users" if workload.target_kind == "users" else "requests per second"
        return Load(0, problem=f"{what} need a response time: give prompt and answer tokens, or a concurrency")
    share = _in_flight(workload, response_s)
    exact = share / planned
    if exact > MOST_INSTANCES:
        return Load(0, problem=f"{exact:.2g} instances: check the target and the capacity per instance")
    instances = max(1, math.ceil(exact - _EPSILON))
    queue = False
    if wait_ratio is not None:
        more = _for_queue(instances, max(1.0, slots), share, wait_ratio)
        if more is None:
            return Load(0, problem=f"no number of instances keeps waits below {wait_ratio:g}")
        queue, instances = more > instances, more
    return Load(instances, queue)


def equilibrium(instance: Instance, instances: int) -> float:
    """Requests in flight of each of `instances` at the target: fewer are faster, so of users and rates fewer stay.

    Infinite where a rate is more than they can ever serve.
    """
    workload = instance.workload
    if workload.target_kind == "concurrency":
        return workload.target / instances

    def wanted(running: float) -> float:
        return _in_flight(workload, instance.response_s(running)) / instances

    low, high = 0.0, wanted(0.0)
    while wanted(high) > high:
        low, high = high, 2.0 * high
        if high >= _NO_END:
            return math.inf
    for _ in range(44):
        middle = (low + high) / 2.0
        low, high = (middle, high) if wanted(middle) > middle else (low, middle)
    return high


def _in_flight(workload: Workload, response_s: float | None) -> float:
    if workload.target_kind == "concurrency" or response_s is None:
        return workload.target
    if workload.target_kind == "users":
        return in_flight(workload.target, response_s, workload.think_s) if response_s > 0 else 0.0
    return workload.target * response_s


def _for_queue(instances: int, slots: float, asked: float, wait_ratio: float) -> int | None:
    """The smallest number whose slots together let at most `wait_ratio` of the requests wait."""

    def enough(number: int) -> bool:
        together = max(1, math.floor(number * slots))
        return asked <= highest_load(together, wait_ratio) * together

    low = high = instances
    while not enough(high):
        low, high = high, high * 2
        if high > MOST_INSTANCES:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return low if enough(low) else high


OPERATING_POINTS: Final = frozenset({LimitKind.TYPED, LimitKind.KNEE, LimitKind.RANGE})
"""Bounds that are capacities to plan with already: the planning factor does not apply."""
EXTRAPOLATED: Final = 1.05
"""Times the largest load that was measured beyond which a fit is extrapolated."""
INFEASIBLE: Final = Missing(Reason.INFEASIBLE)


class Demand(NamedTuple):
    """What one workload needs on one shape; `problem` says why nothing would do."""

    workload: Workload
    instance: Instance
    limits: tuple[Limit, ...] = ()
    planned: float = 0.0
    """Requests in flight that an instance is planned with."""
    load: Load = Load(0)
    spares: int = 0
    memory_bytes: Reading = NOT_GIVEN
    memory_source: str = ""
    busy_ratio: Reading = NOT_GIVEN
    extrapolated: bool = False
    problem: str = ""
    shape: int = 0
    """Server that it is worked out for."""
    better: str = ""
    """A TP that would take fewer GPUs."""

    @property
    def instances(self) -> int:
        """With spares; 0 where there is a problem."""
        return 0 if self.problem else self.load.instances + self.spares

    @property
    def gpus(self) -> float:
        """Of all its instances; infinite where there is a problem."""
        return math.inf if self.problem else float(self.instances * self.instance.gpus)

    @property
    def as_seen(self) -> bool:
        """Its memory is what an engine took, or stands on it: it fits a GPU whatever share of one is planned with."""
        shift = self.instance.pool_shift_ratio
        return self.memory_source == "seen" or (self.memory_source == "model" and shift is not None and shift > 0)

    def running(self, count: int) -> float:
        """Requests in flight of each of `count` instances at the target."""
        return equilibrium(self.instance, count)

    def block(self, index: int, usable_bytes: float, count: int) -> Block:
        """For the placement: an instance whose memory is not known takes its GPUs whole."""
        size, busy = self.memory_bytes, self.busy_ratio
        return Block(
            workload=index,
            count=count,
            gpus=self.instance.gpus,
            tp=self.instance.tp,
            memory_bytes=usable_bytes * self.instance.gpus if isinstance(size, Missing) else size,
            busy_ratio=None if isinstance(busy, Missing) else busy,
        )


def demand_of(workload: Workload, scenario: Scenario, known: Known, shape: int = 0) -> Demand:
    """The needs of `workload` on the `shape`-th server, at the TP that takes the fewest GPUs; of several the smallest.

    A TP that was typed, or seen on these GPUs, stays: one that takes fewer is named.
    """
    asked = _demand_at(workload, scenario, known, shape)
    others = [
        _demand_at(msgspec.structs.replace(workload, tp=tp), scenario, known, shape)._replace(workload=workload)
        for tp in asked.instance.tps
        if tp != asked.instance.tp
    ]
    best = min((asked, *others), key=lambda one: (one.gpus, one.instance.tp))
    if best is asked:
        return asked
    if not workload.tp and not asked.instance.alike:
        return best
    if best.gpus >= asked.gpus:
        return asked
    instead = f" instead of {asked.gpus:,.0f}" if not asked.problem else ""
    return asked._replace(better=f"TP {best.instance.tp} would take {best.gpus:,.0f} GPUs{instead}")


def _demand_at(workload: Workload, scenario: Scenario, known: Known, shape: int) -> Demand:
    instance = resolve(workload, scenario, known, shape)
    bare = Demand(workload, instance, problem=instance.problem or _bad(workload), shape=shape)
    if bare.problem:
        return bare
    limits = limits_of(instance, scenario)
    bare = bare._replace(limits=limits)
    if not limits:
        return bare._replace(problem=_nothing_bounds(instance))
    first = _binding(limits)
    if first.concurrency < 1.0:
        return bare._replace(problem=impossible(first))
    planned = _planned(first, scenario.planning_factor)
    load = load_of(instance, planned, math.floor(first.concurrency), scenario.queue_wait_ratio)
    size, source = _memory(instance, planned, scenario)
    spares = scenario.spare_instances if workload.spare_instances is None else workload.spare_instances
    demand = bare._replace(
        planned=planned,
        load=load,
        spares=spares,
        memory_bytes=size,
        memory_source=source,
        busy_ratio=_busy(instance),
        extrapolated=_extrapolated(instance, planned),
        problem=load.problem,
    )
    return demand._replace(problem=demand.problem or _too_large(demand, scenario))


def first_demand_of(workload: Workload, scenario: Scenario, known: Known) -> Demand:
    """The needs on the first shape of server that can carry it; on the first of all where none can."""
    first = demand_of(workload, scenario, known)
    if not first.problem:
        return first
    tried = {server.gpu for server in scenario.server[:1]}
    for shape, server in enumerate(scenario.server):
        if server.gpu not in tried:
            tried.add(server.gpu)
            found = demand_of(workload, scenario, known, shape)
            if not found.problem:
                return found
    return first


def _bad(workload: Workload) -> str:
    if not workload.target > 0 or math.isinf(workload.target):
        return f"the target is {workload.target:g}: it must be above 0"
    return ""


def _binding(limits: tuple[Limit, ...]) -> Limit:
    """The bound that holds first; a typed capacity is the user's word against the formulas."""
    return next((limit for limit in limits if limit.kind is LimitKind.TYPED), limits[0])


def _planned(first: Limit, factor: float) -> float:
    """Whole requests, at least one; a measured or typed operating point is planned with as it is."""
    share = 1.0 if first.kind in OPERATING_POINTS else factor
    return max(1.0, float(math.floor(first.concurrency * share + 1e-9)))


def _nothing_bounds(instance: Instance) -> str:
    lacks = [
        what
        for what, value in (
            ("the model's dimensions (a [[model]] entry, or a typed capacity and memory)", instance.llm),
            ("prompt_tokens", instance.prompt_tokens),
            ("answer_tokens", instance.answer_tokens),
        )
        if value is None
    ]
    later = instance.prompt_tokens is None and instance.seen is not None
    told = " (the engine tells lengths once requests have ended)" if later else ""
    seen = instance.seen
    table = f"; the table of {seen.name} is for {seen.gpu}" if seen is not None and seen.origin is Origin.TABLE else ""
    needs = f"{', '.join(lacks) or 'a goal'}{told}, or a typed capacity{table}"
    return f"capacity per instance is not known: it needs {needs}"


def _memory(instance: Instance, planned: float, scenario: Scenario) -> tuple[Reading, str]:
    """Memory of one instance: typed, as seen, from the model, else not known."""
    workload, seen = instance.workload, instance.seen
    if workload.memory_gb is not None:
        return workload.memory_gb * 1e9, "typed"
    if seen is not None and seen.memory_bytes is not None and instance.alike:
        return seen.memory_bytes, "table" if seen.origin is Origin.TABLE else "seen"
    if instance.llm is None:
        return NOT_GIVEN, ""
    if instance.prompt_tokens is None or instance.answer_tokens is None:
        return memory.rule_bytes(instance.llm.params), "rule"
    context = instance.prompt_tokens + instance.answer_tokens / 2.0
    most = instance.gpu.memory_bytes if instance.gpu is not None else math.inf
    size = memory.instance_bytes(instance.llm, instance.gpus, instance.tp, planned, context, most)
    # Room that an engine was seen to find beside the constants is not taken by them.
    room = max(0.0, instance.pool_shift_ratio or 0.0) * (most if instance.gpu is not None else 0.0)
    size -= instance.gpus * min(memory.overhead_bytes(instance.llm, instance.gpus, most), room)
    # As many ran together on these GPUs: the constants, or a precision that nobody recorded, are wrong, not the fact.
    fits = planned <= ran_together(instance)
    return min(size, instance.gpus * most * scenario.usable_memory_ratio) if fits else size, "model"


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
    return planned > EXTRAPOLATED * max((point.running for point in instance.seen.points), default=math.inf)


def _too_large(demand: Demand, scenario: Scenario) -> str:
    """Why the instance fits no GPU of the shape, though its memory is known."""
    instance, size = demand.instance, demand.memory_bytes
    if instance.gpu is None or isinstance(size, Missing):
        return ""
    most = instance.gpu.memory_bytes * scenario.usable_memory_ratio
    each = size / instance.gpus
    # What an engine was seen to reserve on the same GPU fits it, whatever share is planned with.
    if demand.as_seen:
        most = instance.gpu.memory_bytes
    if each <= most * (1 + 1e-9):
        return ""
    return (
        f"one instance needs {each / 1e9:,.1f} GB on each of {instance.gpus} GPUs; {instance.gpu.name} has "
        f"{most / 1e9:,.1f} GB usable: more TP, narrower weights or a larger GPU"
    )


def source_of(demand: Demand) -> Source:
    """Where the capacity comes from: the user's word, a table, or how the latency is known."""
    first = _binding(demand.limits) if demand.limits else None
    if first is None:
        return Source.NONE
    if first.kind is LimitKind.TYPED:
        return Source.TYPED
    if first.kind in OPERATING_POINTS:
        return Source.SWEEP
    return demand.instance.source
