"""What bounds one instance of a workload, and how many of them its target takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.lengths import KV_SHARE, requests_that_fit
from gpumon.efficiency.ratio import checked, positive
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing import memory
from gpumon.sizing.answer import NOT_GIVEN, Limit, LimitKind, Source
from gpumon.sizing.instance import Instance, resolve
from gpumon.sizing.latency import MOST, Curve, Tail, largest, largest_within
from gpumon.sizing.placement import Block
from gpumon.sizing.profile import Origin
from gpumon.sizing.scenario import GOALS, Known, Scenario, Workload

MOST_INSTANCES: Final = 10_000_000
"""More than that is no answer."""
OPERATING_POINTS: Final = frozenset({LimitKind.TYPED, LimitKind.KNEE, LimitKind.RANGE})
"""Bounds that are capacities to plan with already: the planning factor does not apply."""
EXTRAPOLATED: Final = 1.05
"""Times the largest load that was measured beyond which a fit is extrapolated."""
INFEASIBLE: Final = Missing(Reason.INFEASIBLE)
_EPSILON: Final = 1e-9
_NO_END: Final = 1e9
"""Requests in flight of one instance at which its queue is taken to grow without end."""
_EXACT_SLOTS: Final = 100_000
_HELPS: Final = {
    LimitKind.ITL: "more TP, narrower weights or a faster GPU would help; more instances would not",
    LimitKind.TTFT: "more TP, a shorter prompt or prefix hits would help; more instances would not",
    LimitKind.E2E: "shorter answers, more TP or a faster GPU would help; more instances would not",
    LimitKind.KV: "more GPUs per instance, an FP8 KV cache or shorter requests would help",
    LimitKind.PREFILL: "more TP or prefix hits would help",
}


class Demand(NamedTuple):
    """What one workload needs on one shape; `problem` says why nothing would do."""

    workload: Workload
    instance: Instance
    shape: int = 0
    """Server that it is worked out for."""
    limits: tuple[Limit, ...] = ()
    planned: float = 0.0
    """Requests in flight that an instance is planned with."""
    needed: int = 0
    """Instances for the target, without spares."""
    queue: bool = False
    """More of them than capacity alone asks for, so that few enough requests wait."""
    spares: int = 0
    memory_bytes: Reading = NOT_GIVEN
    memory_source: str = ""
    busy_ratio: Reading = NOT_GIVEN
    extrapolated: bool = False
    better: str = ""
    """A TP that would take fewer GPUs."""
    problem: str = ""

    @property
    def instances(self) -> int:
        """With spares; 0 where there is a problem."""
        return 0 if self.problem else self.needed + self.spares

    @property
    def gpus(self) -> float:
        """Of all its instances; infinite where there is a problem."""
        return math.inf if self.problem else float(self.instances * self.instance.gpus)

    @property
    def as_seen(self) -> bool:
        """Its memory is what an engine took, or stands on it: it fits a GPU whatever share of one is planned with."""
        shift = self.instance.pool_shift_ratio
        return self.memory_source == "seen" or (self.memory_source == "model" and shift is not None and shift > 0)

    @property
    def source(self) -> Source:
        """Where the capacity comes from: the user's word, a table, or how the latency is known."""
        if not self.limits:
            return Source.NONE
        kind = _binding(self.limits).kind
        if kind is LimitKind.TYPED:
            return Source.TYPED
        return Source.SWEEP if kind in OPERATING_POINTS else self.instance.source

    def running(self, count: int) -> float:
        """Requests in flight of each of `count` instances at the target: fewer are faster, so of users and rates fewer
        stay. Infinite where a rate is more than they can ever serve."""
        if self.workload.target_kind == "concurrency":
            return self.workload.target / count

        def wanted(running: float) -> float:
            return _asked(self.workload, self.instance.response_s(running)) / count

        low, high = 0.0, wanted(0.0)
        while wanted(high) > high:
            low, high = high, 2.0 * high
            if high >= _NO_END:
                return math.inf
        for _ in range(44):
            middle = (low + high) / 2.0
            low, high = (middle, high) if wanted(middle) > middle else (low, middle)
        return high

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
    if best is asked or (not workload.tp and not asked.instance.alike):
        return best
    if best.gpus >= asked.gpus:
        return asked
    instead = f" instead of {asked.gpus:,.0f}" if not asked.problem else ""
    return asked._replace(better=f"TP {best.instance.tp} would take {best.gpus:,.0f} GPUs{instead}")


def first_demand_of(workload: Workload, scenario: Scenario, known: Known) -> Demand:
    """The needs on the first shape of server that can carry it; on the first of all where none can."""
    first = demand_of(workload, scenario, known)
    tried = {server.gpu for server in scenario.server[:1]}
    for shape, server in enumerate(scenario.server if first.problem else ()):
        if server.gpu not in tried:
            tried.add(server.gpu)
            found = demand_of(workload, scenario, known, shape)
            if not found.problem:
                return found
    return first


def _demand_at(workload: Workload, scenario: Scenario, known: Known, shape: int) -> Demand:
    instance = resolve(workload, scenario, known, shape)
    bare = Demand(workload, instance, shape, problem=instance.problem)
    if not bare.problem and (not workload.target > 0 or math.isinf(workload.target)):
        bare = bare._replace(problem=f"the target is {workload.target:g}: it must be above 0")
    if bare.problem:
        return bare
    limits = limits_of(instance, scenario)
    bare = bare._replace(limits=limits)
    if not limits:
        return bare._replace(problem=_nothing_bounds(instance, known))
    first = _binding(limits)
    if first.concurrency < 1.0:
        helps = _HELPS.get(first.kind, "change that bound")
        return bare._replace(problem=f"not even one request at a time: {first.text}; {helps}")
    # Whole requests, at least one; a measured or typed operating point is planned with as it is.
    factor = 1.0 if first.kind in OPERATING_POINTS else scenario.planning_factor
    planned = max(1.0, float(math.floor(first.concurrency * factor + _EPSILON)))
    size, source = _memory(instance, planned, scenario)
    spares = scenario.spare_instances if workload.spare_instances is None else workload.spare_instances
    demand = bare._replace(
        planned=planned,
        spares=spares,
        memory_bytes=size,
        memory_source=source,
        busy_ratio=_busy(instance),
        extrapolated=_extrapolated(instance, planned),
    )
    try:
        needed, queue = _needed(instance, planned, math.floor(first.concurrency), scenario.queue_wait_ratio)
    except ValueError as why:
        return demand._replace(problem=str(why))
    return demand._replace(needed=needed, queue=queue, problem=_too_large(demand, scenario))


def _needed(instance: Instance, planned: float, slots: float, wait_ratio: float | None) -> tuple[int, bool]:
    """Instances so that each carries at most `planned` requests in flight, and whether the queue asks for more of them.

    `slots`: what one can carry at most; `wait_ratio`: with all instances behind one router, at most this share of the
    requests may find no free slot (Erlang C, Poisson arrivals). ValueError says why no number would do.
    """
    workload = instance.workload
    response_s = instance.response_s(planned)
    if workload.target_kind != "concurrency" and response_s is None:
        what = "users" if workload.target_kind == "users" else "requests per second"
        raise ValueError(f"{what} need a response time: give prompt and answer tokens, or a concurrency")
    asked = _asked(workload, response_s)
    exact = asked / planned
    if exact > MOST_INSTANCES:
        raise ValueError(f"{exact:.2g} instances: check the target and the capacity per instance")
    instances = max(1, math.ceil(exact - _EPSILON))
    if wait_ratio is None:
        return instances, False

    def enough(number: int) -> bool:
        return erlang_c(max(1, math.floor(number * max(1.0, slots))), asked) <= wait_ratio

    low = high = instances
    while not enough(high):
        low, high = high, high * 2
        if high > MOST_INSTANCES:
            raise ValueError(f"no number of instances keeps waits below {wait_ratio:g}")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    more = low if enough(low) else high
    return more, more > instances


def _asked(workload: Workload, response_s: float | None) -> float:
    """Requests in flight that the target comes to."""
    if workload.target_kind == "concurrency" or response_s is None:
        return workload.target
    if workload.target_kind == "users":
        return in_flight(workload.target, response_s, workload.think_s) if response_s > 0 else 0.0
    return workload.target * response_s


def in_flight(users: float, response_s: float, think_s: float) -> float:
    """Requests in flight of `users` who wait for an answer and think before the next question: users * R/(R + think).

    ValueError on negative figures, or where answer and thought both take no time.
    """
    checked("users", users)
    cycle = checked("response_s", response_s) + checked("think_s", think_s)
    return users * (response_s / positive("response_s + think_s", cycle))


def erlang_c(slots: int, load: float) -> float:
    """Share of requests that wait, with `slots` servers and `load` erlangs offered (rate x time in service).

    Poisson arrivals, one queue: all instances behind one router. Optimistic for engines, which serve slower as they
    fill. 1.0 at or above `slots`, where the queue grows without end. Above 1e5 slots Halfin and Whitt's limit (within
    0.001). ValueError below one slot or on a negative load.
    """
    checked("slots", slots, least=1)
    if checked("load", load) >= slots:
        return 1.0
    if load == 0.0:
        return 0.0
    if slots > _EXACT_SLOTS:
        spare = (slots - load) / math.sqrt(slots)
        density = math.exp(-spare * spare / 2.0) / math.sqrt(2.0 * math.pi)
        below = 0.5 * (1.0 + math.erf(spare / math.sqrt(2.0)))
        return 1.0 / (1.0 + spare * below / density) if density else 0.0
    # Erlang B: Poisson(load) cut off at `slots`. The tail above is summed, since its terms fall from the first one
    # while load < slots: stable where the usual sum of load**k / k! overflows.
    at_most = math.exp(slots * math.log(load) - load - math.lgamma(slots + 1.0))
    tail, term, index = 0.0, at_most, slots
    while term > 1e-17 * at_most and term > 0.0:
        index += 1
        term *= load / index
        tail += term
    blocked = at_most / (1.0 - tail)
    return min(1.0, blocked / (1.0 - load / slots * (1.0 - blocked)))


def limits_of(instance: Instance, scenario: Scenario) -> tuple[Limit, ...]:
    """All bounds that are known, by rising concurrency. Empty where nothing bounds it: nothing is known then."""
    found = [*_operating_point(instance), *_kv(instance, scenario), *_latencies(instance), *_prefill(instance)]
    engine = instance.workload.max_num_seqs or (instance.seen.max_num_seqs if instance.seen is not None else None)
    if engine is not None:
        found.append(Limit(LimitKind.MAX_NUM_SEQS, float(engine), f"the engine runs at most {engine} together"))
    return tuple(sorted((one for one in found if not math.isinf(one.concurrency)), key=lambda one: one.concurrency))


def kv_pool_tokens(instance: Instance, scenario: Scenario) -> tuple[float, str] | None:
    """Tokens that the KV cache of one instance holds, and who says so: typed, seen, re-scaled, or from memory."""
    if instance.workload.kv_pool_tokens is not None:
        return instance.workload.kv_pool_tokens, "typed"
    if instance.alike and instance.seen is not None and instance.seen.kv_pool_tokens is not None:
        return instance.seen.kv_pool_tokens, "seen"
    if instance.llm is None or instance.gpu is None:
        return None
    llm, size, shift = instance.llm, instance.gpu.memory_bytes, instance.pool_shift_ratio
    tokens = memory.pool_tokens(llm, size, instance.gpus, instance.tp, scenario.usable_memory_ratio, shift or 0.0)
    return tokens, "from memory" if shift is None else "re-scaled"


def _operating_point(instance: Instance) -> Iterator[Limit]:
    typed, seen, asked = instance.workload.capacity_per_instance, instance.seen, instance.workload
    # A goal decides; where throughput stopped following the load is advice.
    goals = instance.curve is not None and any(getattr(asked, goal) for goal in GOALS)
    if typed is not None:
        yield Limit(LimitKind.TYPED, typed, f"typed: {typed:g} per instance")
    elif seen is not None and instance.alike and instance.same_mix and seen.origin is not Origin.LIVE and not goals:
        if seen.concurrency is not None:
            yield Limit(LimitKind.KNEE, seen.concurrency, f"{seen.name} is at its best at {seen.concurrency:g}")
        elif seen.points:
            last = seen.points[-1].running
            yield Limit(LimitKind.RANGE, last, f"{seen.name} was measured up to {last:g}")


def _kv(instance: Instance, scenario: Scenario) -> Iterator[Limit]:
    pool = kv_pool_tokens(instance, scenario)
    if pool is None or instance.prompt_tokens is None or instance.answer_tokens is None:
        return
    tokens, said = pool
    context = instance.prompt_tokens + instance.answer_tokens
    request = _taken(instance, context)
    if request > 0 and not math.isinf(request) and not math.isinf(tokens):
        held = requests_that_fit(tokens, request, KV_SHARE)
        room = f"{tokens:,.0f} tokens"
        whole = f"{request:,.0f} a whole request"
        if instance.llm is not None and not instance.llm.uniform:
            # Its tokens differ in bytes: those at the end of a long request take less than the first ones.
            whole_gb = memory.kv_request_bytes(instance.llm, context, instance.tp) / 1e9
            room, whole = f"{whole_gb * tokens / request:,.3g} GB", f"{whole_gb:,.3g} GB a whole request"
        text = f"{KV_SHARE:.0%} of the KV cache's {room} ({said}), {whole}"
        ran = 0.0 if said == "typed" else ran_together(instance)
        if ran > held:
            held = ran
            text = f"as many as were seen to run together, {ran:,.0f}, more than {room} ({said}) tell"
        yield Limit(LimitKind.KV, held, text)


def _taken(instance: Instance, context_tokens: float) -> float:
    """Tokens of the pool that a request takes."""
    if instance.llm is None:
        return context_tokens
    return memory.request_tokens(instance.llm, context_tokens, instance.tp)


def ran_together(instance: Instance) -> float:
    """Most requests that this instance was seen to run, in the room that those of today take: a fact against any
    formula. Prefix hits are taken to have needed no room, so that fewer of them leave less of it."""
    seen = instance.seen
    if seen is None or not instance.alike or instance.prompt_tokens is None or instance.answer_tokens is None:
        return 0.0
    ran = max((point.running for point in seen.points), default=0.0)
    if seen.prompt_tokens is None or seen.answer_tokens is None:
        return ran if instance.same_mix else 0.0
    was = seen.prefix_hit_ratio or 0.0
    took = _taken(instance, seen.prompt_tokens * (1.0 - was) + seen.answer_tokens)
    takes = _taken(instance, instance.prompt_tokens * (1.0 - min(was, instance.hit_ratio)) + instance.answer_tokens)
    return ran * took / takes if takes > 0.0 else 0.0


def _latencies(instance: Instance) -> Iterator[Limit]:
    curve, ttft, asked = instance.curve, instance.ttft, instance.workload
    if asked.itl_p95_ms is not None and curve is not None:
        running = largest_within(asked.itl_p95_ms / 1e3, curve.itl_s, instance.itl_tail)
        yield Limit(LimitKind.ITL, running, _missed("ITL", curve.itl_s, instance.itl_tail, asked.itl_p95_ms, running))
    if asked.ttft_p95_ms is not None and ttft is not None:
        running = largest_within(asked.ttft_p95_ms / 1e3, ttft.ttft_s, instance.ttft_tail)
        text = _missed("TTFT", ttft.ttft_s, instance.ttft_tail, asked.ttft_p95_ms, running)
        yield Limit(LimitKind.TTFT, running, text)
    if asked.e2e_p95_ms is not None and curve is not None and instance.answer_tokens is not None:
        yield _e2e(instance, curve, asked.e2e_p95_ms, instance.answer_tokens)


def _e2e(instance: Instance, curve: Curve, goal_ms: float, answer_tokens: float) -> Limit:
    """The bound of a goal for the whole request: its p95 is taken to have the tail of its parts."""
    tail, ttft = instance.itl_tail, instance.ttft

    def p95_s(running: float) -> float:
        first_s = ttft.ttft_s(running) if ttft is not None else 0.0
        decode_s = curve.itl_s(running) * max(0.0, answer_tokens - 1.0)
        # One ratio stands for the whole; one that follows the load of the ITL says nothing of the TTFT.
        return decode_s * tail.at(running) + first_s * (instance.ttft_tail if tail.mean_s else tail).at(running)

    running = largest(lambda load: p95_s(load) <= goal_ms / 1e3)
    return Limit(LimitKind.E2E, running, _missed("E2E", p95_s, Tail(known=tail.known), goal_ms, running))


def _missed(name: str, mean_s: Callable[[float], float], tail: Tail, goal_ms: float, running: float) -> str:
    at = max(1.0, min(running, MOST))
    said = "p95 " if tail.known else ""
    end = "" if tail.known else " as a mean"
    return f"{name} {said}{mean_s(at) * tail.at(at) * 1e3:,.1f} ms at {at:.0f}, goal {goal_ms:,.1f} ms{end}"


def _prefill(instance: Instance) -> Iterator[Limit]:
    """Output tokens can not come faster than their prompts are computed: X <= R_p*OSL/(ISL*(1-hit))."""
    rate, curve = instance.workload.prefill_tokens_per_s, instance.curve
    if rate is None or curve is None or instance.prompt_tokens is None or instance.answer_tokens is None:
        return
    computed = instance.prompt_tokens * (1.0 - instance.hit_ratio)
    if computed <= 0:
        return
    most = rate * instance.answer_tokens / computed
    yield Limit(
        LimitKind.PREFILL,
        largest(lambda running: curve.tokens_per_s(running) <= most),
        f"{rate:,.0f} prompt tokens/s allow {most:,.0f} output tokens/s",
    )


def _binding(limits: tuple[Limit, ...]) -> Limit:
    """The bound that holds first; a typed capacity is the user's word against the formulas."""
    return next((limit for limit in limits if limit.kind is LimitKind.TYPED), limits[0])


def unknown_model(model: str, known: Known) -> str:
    """What to do about a model whose dimensions are not known; empty where they are."""
    if known.llm(model) is not None:
        return ""
    near = ", ".join(row.name for row in known.llms.nearest(model, 3))
    nearest = f"nearest: {near}; name one of these, or" if near else "to have it,"
    return f"no model {model[:80]!r} is known; {nearest} add a [[model]] table with its dimensions to the config"


def _nothing_bounds(instance: Instance, known: Known) -> str:
    lengths = ("prompt_tokens", "answer_tokens")
    lacks = [name for name in lengths if getattr(instance, name) is None]
    if instance.llm is None:
        lacks = [f"the model's dimensions ({unknown_model(instance.workload.model, known)})", *lacks]
    later = instance.prompt_tokens is None and instance.seen is not None
    when = " (the engine tells lengths once requests have ended)" if later else ""
    seen = instance.seen
    table = f"; the table of {seen.name} is for {seen.gpu}" if seen is not None and seen.origin is Origin.TABLE else ""
    needs = f"{', '.join(lacks) or 'a goal'}{when}, or a typed capacity (capacity_per_instance){table}"
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
