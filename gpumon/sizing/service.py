"""Load and latency of the instances of a workload at its target, and when an instance or a server of them is lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.answer import NOT_GIVEN, Basis, Degraded, JudgedGoal, LimitKind
from gpumon.sizing.goals import TOKEN_KINDS, Goal, basis_of, formula_s, goals_of, simulated_s
from gpumon.sizing.instance import Instance
from gpumon.sizing.latency import queued_ttft_s
from gpumon.sizing.pools import WorkloadPart
from gpumon.sizing.scenario import Scenario
from gpumon.sizing.search import Demand
from gpumon.sizing.servers import weighted_sum
from gpumon.sizing.tails import PendingError

_ROOM_LIMITS: Final = (LimitKind.KV, LimitKind.MAX_NUM_SEQS, LimitKind.PREFILL, LimitKind.KNEE)
"""Limits beyond which requests wait."""
_HALVINGS: Final = 60
"""Halvings of the range that a load is searched in: doubles have 53 bits."""
_ENDLESS_QUEUE: Final = 1e9
"""Times its planned load at which the queue of an instance is taken to grow without end."""
_IDLE_LOAD: Final = 1e-9
"""Requests in flight that stand for none where a time is divided by them."""
_ROUNDING: Final = 1.0 + 1e-9
"""Factor above a limit up to which a load is at the limit: searched loads are exact to fewer digits."""

_Figure = Callable[[Instance, float], "float | None"]
"""Figure of an instance under a load of so many requests; None where it is not known."""


class InstanceLoad(NamedTuple):
    """A load that each instance of one type of GPU carries."""

    demand: Demand
    """Needs of the workload on that type."""
    in_flight: float
    """Requests in flight of one instance."""


def loads_at_target(parts: Sequence[WorkloadPart]) -> list[InstanceLoad]:
    """Loads of the instances of each part with none of them lost; over several types the load is shared by capacity."""
    in_flight = running_of(parts, [0] * len(parts))
    return [InstanceLoad(part.demand, load) for part, load in zip(parts, in_flight, strict=True)]


def at_target(parts: Sequence[WorkloadPart], loads: Sequence[InstanceLoad]) -> dict[str, Reading]:
    """Load, latency, throughput and power at the target (`loads_at_target`), by the fields of a `WorkloadPlan`.

    Latencies are those of the type of GPU that is slowest.
    """
    amounts = []
    watts = []
    for part, load in zip(parts, loads, strict=True):
        amounts.append(part.instances * load.in_flight)
        gpu_power_w, _ = part.demand.instance.gpu_power_w(load.in_flight)
        # GPUs that several instances share are counted once.
        watts.append((_reading(gpu_power_w), part.placement.gpus))
    counts = [part.instances for part in parts]
    concurrency = sum(amounts)
    if len(parts) == 1:
        mean_load = loads[0].in_flight  # exactly: the mean may differ in its last digit
    else:
        mean_load = concurrency / sum(counts)
    return {
        "concurrency": concurrency,
        "running": mean_load,
        "itl_s": _slowest(Instance.itl_s, loads),
        "ttft_s": _slowest(Instance.ttft_s, loads),
        "itl_p95_s": _slowest(Instance.itl_p95_s, loads),
        "ttft_p95_s": _slowest(Instance.ttft_p95_s, loads),
        "e2e_s": _slowest(_response_s, loads),
        "tokens_per_s": _sum_of_instances(_tokens_per_s, loads, counts),
        "requests_per_s": _sum_of_instances(_requests_per_s, loads, counts),
        "power_w": weighted_sum(watts),
    }


def judged_goals(loads: Sequence[InstanceLoad], scenario: Scenario) -> tuple[JudgedGoal, ...]:
    """The latency goals of a workload, each with the figure that it judges at some loads, of the slowest type."""
    judged = []
    for goal, goal_s in goals_of(loads[0].demand.instance.workload):
        of_types = [_judged_goal(load, scenario, goal, goal_s) for load in loads]
        value_s = _longest(one_type.value_s for one_type in of_types)
        slowest = max(of_types, key=lambda one_type: 0.0 if isinstance(one_type.value_s, Missing) else one_type.value_s)
        judged.append(msgspec.structs.replace(slowest, value_s=value_s))
    return tuple(judged)


def _judged_goal(load: InstanceLoad, scenario: Scenario, goal: Goal, goal_s: float) -> JudgedGoal:
    """A goal and the figure of an instance under a load that it judges."""
    instance = load.demand.instance
    running = max(load.in_flight, _IDLE_LOAD)
    basis = basis_of(instance, scenario, goal)
    value_s: float | None = None
    if basis is Basis.SIMULATED and instance.tails is not None and math.isfinite(running):
        try:
            value_s = simulated_s(instance, goal, instance.tails.at(running), running)
        except PendingError:
            basis = Basis.PENDING
    latency_s = formula_s(instance, goal)
    if basis is not Basis.SIMULATED and latency_s is not None and math.isfinite(running):
        value_s = latency_s(max(1.0, running))
    is_least = goal.kind is LimitKind.E2E and basis is not Basis.SIMULATED and instance.lacks_ttft
    return JudgedGoal(goal.name, goal_s, _reading(value_s), basis, is_least=is_least)


def _slowest(latency_s: _Figure, loads: Iterable[InstanceLoad]) -> Reading:
    """The longest latency of the types of GPU; not given where one of them is not known."""
    return _longest(_reading(latency_s(demand.instance, in_flight)) for demand, in_flight in loads)


def _sum_of_instances(figure: _Figure, loads: Iterable[InstanceLoad], counts: Iterable[int]) -> Reading:
    """Sum of a figure over all instances. `counts`: instances of each type of GPU."""
    amounts = [
        (_reading(figure(demand.instance, in_flight)), count)
        for (demand, in_flight), count in zip(loads, counts, strict=True)
    ]
    return weighted_sum(amounts)


def _response_s(instance: Instance, in_flight: float) -> float | None:
    """Time from the arrival of a request to its last token; of one alone where there is no load."""
    return instance.response_s(max(in_flight, _IDLE_LOAD))


def running_of(parts: Sequence[WorkloadPart], lost: Sequence[int]) -> list[float]:
    """Requests in flight of each instance of each part after so many instances of it are lost.

    Over several types of GPU each instance carries the same share of the load that it is planned with. Infinite where
    the rest cannot serve the target.
    """
    counts = [part.instances - lost_count for part, lost_count in zip(parts, lost, strict=True)]
    if len(parts) == 1:
        return [parts[0].demand.running_per_instance(counts[0])]
    target = parts[0].demand.workload.target

    def served_at(share: float) -> float:
        """Part of the target that is served with so large a share of the planned loads."""
        return sum(
            count * part.demand.target_served(share * part.demand.planned_running)
            for part, count in zip(parts, counts, strict=True)
            if count
        )

    low = 0.0
    high = 1.0
    while served_at(high) < target:
        low = high
        high *= 2.0
        if high >= _ENDLESS_QUEUE:
            return [math.inf] * len(parts)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if served_at(middle) < target:
            low = middle
        else:
            high = middle
    return [high * part.demand.planned_running for part in parts]


def degraded_of(parts: Sequence[WorkloadPart]) -> tuple[Degraded, ...]:
    """With one instance less, and without the server that carries most: the worst that one fault does, until a spare
    server has loaded what was on it. A server with a single instance is no case of its own."""
    cases = [_after_fault(parts, "instance", _worst_loss(parts, [1] * len(parts)))]
    on_one_server = [part.placement.most_on_a_server for part in parts]
    if max(on_one_server) > 1:
        cases.append(_after_fault(parts, "server", _worst_loss(parts, on_one_server)))
    return tuple(cases)


def _worst_loss(parts: Sequence[WorkloadPart], counts: Sequence[int]) -> list[int]:
    """Instances lost of each part, if a fault takes `counts` of one part: of the part where these carry most, and none
    of the others."""
    worst = max(range(len(parts)), key=lambda index: parts[index].demand.planned_running * counts[index])
    lost = [0] * len(counts)
    lost[worst] = counts[worst]
    return lost


def _after_fault(parts: Sequence[WorkloadPart], fault: str, lost: Sequence[int]) -> Degraded:
    """The workload after a fault (`instance` or `server`): the instances that are left carry the whole load.

    The load is that of the type of GPU that is farthest beyond its room; latencies are those of the slowest type.
    """
    instances_left = sum(part.instances for part in parts) - sum(lost)
    if instances_left < 1:
        return Degraded(fault, 0, text="no replica left, requests fail until it is back")
    loads = [
        InstanceLoad(part.demand, in_flight)
        for part, in_flight, lost_count in zip(parts, running_of(parts, lost), lost, strict=True)
        if part.instances > lost_count
    ]
    worst = max(loads, key=lambda load: load.in_flight / _room(load.demand))
    queues = _queues(worst)
    # Past its capacity a rate only grows the queue: more in flight would run faster, but do not fit.
    is_rate = worst.demand.workload.target_kind == "requests_per_s"
    if math.isinf(worst.in_flight) or (queues and is_rate):
        return Degraded(fault, instances_left, text="the rest cannot serve this rate: the queue grows without end")
    # Requests that wait slow down no token, so that the ITL is that of those for which there is room.
    running = [load._replace(in_flight=min(load.in_flight, _room(load.demand))) for load in loads]
    ttft_p95_s: Reading = NOT_GIVEN if queues else _slowest(Instance.ttft_p95_s, loads)
    return Degraded(
        fault,
        instances_left,
        worst.in_flight,
        text=_degraded_text(loads, worst),
        itl_s=_slowest(Instance.itl_s, running),
        itl_p95_s=_slowest(Instance.itl_p95_s, running),
        ttft_s=_longest(map(_ttft_s, loads)),
        ttft_p95_s=ttft_p95_s,
    )


def _degraded_text(loads: Iterable[InstanceLoad], worst: InstanceLoad) -> str:
    """The worst load of an instance, and the goals that the loads cost, the queue, or the range that it leaves."""
    text = f"{worst.in_flight:,.1f}".removesuffix(".0") + " per instance"
    queues = _queues(worst)
    if queues:
        text += f", room for {_room(worst.demand):,.0f}"
    # In order, each once.
    missed_goals = dict.fromkeys(f"the {kind.value} goal" for load in loads for kind in _missed_goals(load))
    if missed_goals:
        return f"{' and '.join(missed_goals)} would be missed: {text}"
    if queues:
        return f"requests queue: {text}"
    for limit in worst.demand.limits:
        if limit.kind is LimitKind.RANGE and worst.in_flight > limit.concurrency:
            return f"more than was measured: {text}"
    return f"within all limits: {text}"


def _longest(latencies_s: Iterable[Reading]) -> Reading:
    """The longest of some latencies; not given where one of them is not known."""
    longest_s = 0.0
    for latency_s in latencies_s:
        if isinstance(latency_s, Missing):
            return NOT_GIVEN
        longest_s = max(longest_s, latency_s)
    return longest_s


def _room(demand: Demand) -> float:
    """Requests that one instance lets run: where it has no room, more wait and do not slow those down that run.

    A typed capacity is the user's word for it. Infinite where nothing bounds them.
    """
    bounds = {limit.kind: limit.concurrency for limit in demand.limits}
    if LimitKind.TYPED in bounds:
        return bounds[LimitKind.TYPED]
    return min((bounds[kind] for kind in _ROOM_LIMITS if kind in bounds), default=math.inf)


def _queues(load: InstanceLoad) -> bool:
    """Whether an instance has less room than its load, so that requests wait."""
    return load.in_flight > _room(load.demand) * _ROUNDING


def _ttft_s(load: InstanceLoad) -> Reading:
    """Mean TTFT, with the time that requests wait for room."""
    if _queues(load):
        return _queued_ttft_s(load)
    running = min(load.in_flight, _room(load.demand))
    return _reading(load.demand.instance.ttft_s(running))


def _queued_ttft_s(load: InstanceLoad) -> Reading:
    """Mean TTFT with more in flight than run, by Little's law: time in the system less decoding."""
    instance = load.demand.instance
    running = min(load.in_flight, _room(load.demand))
    answer = instance.answer_tokens
    itl_s = instance.itl_s(running)
    response_s = instance.response_s(running)
    if not answer or not itl_s or not response_s or instance.lacks_ttft:  # then nothing but the wait would be told
        return NOT_GIVEN
    return queued_ttft_s(load.in_flight, running / response_s, answer, itl_s)


class _GoalUnderLoad(NamedTuple):
    """A latency goal, and what it is held against: the load that counts for its limit, and the mean latency."""

    kind: LimitKind
    in_flight: float
    """Requests that count for the limit of this kind."""
    mean_s: float | None = None
    """Mean latency at the load, where it may miss the goal by itself; None: not known, or the limit decides alone."""
    goal_ms: float | None = None


def _missed_goals(load: InstanceLoad) -> Iterator[LimitKind]:
    """Goals that a load costs: tokens come as fast as those that run allow, the rest waits."""
    demand = load.demand
    workload = demand.instance.workload
    running = min(load.in_flight, _room(demand))
    ttft_s = _ttft_s(load)
    mean_ttft_s = None if isinstance(ttft_s, Missing) else ttft_s
    response_s = demand.instance.response_s(running)
    e2e_s = response_s * load.in_flight / running if response_s else None
    limits = {limit.kind: limit.concurrency * _ROUNDING for limit in demand.limits}
    # The limits of TTFT and E2E leave out the time that requests wait, so that the latency itself is looked at, too.
    for goal in (
        *(_GoalUnderLoad(kind, running) for kind in TOKEN_KINDS),
        _GoalUnderLoad(LimitKind.TTFT, load.in_flight, mean_ttft_s, workload.ttft_p95_ms),
        _GoalUnderLoad(LimitKind.E2E, load.in_flight, e2e_s, workload.e2e_p95_ms),
    ):
        is_simulated = goal.goal_ms is not None and demand.instance.tails is not None
        if goal.kind not in limits and not is_simulated:  # without a goal, or with one that is not used
            continue
        is_late = False
        if goal.mean_s is not None and goal.goal_ms is not None:
            is_late = goal.mean_s * 1e3 > goal.goal_ms * _ROUNDING
        if is_late or goal.in_flight > limits.get(goal.kind, math.inf):
            yield goal.kind


def _reading(value: float | None) -> Reading:
    """A figure; not given where it is None."""
    if value is None:
        return NOT_GIVEN
    return value


def _requests_per_s(instance: Instance, in_flight: float) -> float | None:
    """Requests per second of an instance; None where its response time is not known."""
    response_s = _response_s(instance, in_flight)
    if not response_s:
        return None
    return in_flight / response_s


def _tokens_per_s(instance: Instance, in_flight: float) -> float | None:
    """Output tokens per second of an instance; None where they are not known.

    A request that still computes its prompt is in flight, too, but yields none yet: without the lengths of answers it
    is taken to yield them.
    """
    answer = instance.answer_tokens
    response_s = instance.response_s(in_flight)
    if answer and response_s:
        return in_flight * answer / response_s
    itl_s = instance.itl_s(in_flight)
    if not itl_s:
        return None
    return in_flight / itl_s
