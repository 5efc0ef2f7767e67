"""Load and latency of the instances of a workload at its target, and when an instance or a server of them is lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.answer import NOT_GIVEN, Degraded, LimitKind
from gpumon.sizing.instance import Instance
from gpumon.sizing.latency import queued_ttft_s
from gpumon.sizing.pools import WorkloadPart
from gpumon.sizing.search import Demand
from gpumon.sizing.servers import weighted_sum

_ROOM: Final = (LimitKind.KV, LimitKind.MAX_NUM_SEQS, LimitKind.PREFILL, LimitKind.KNEE)
"""Limits beyond which requests wait."""
_STEPS: Final = 60
"""Halvings of the range that a load is searched in: doubles have 53 bits."""
_NO_END: Final = 1e9
"""Times its planned load at which the queue of an instance is taken to grow without end."""


_Figure = Callable[[Instance, float], "float | None"]
"""Figure of an instance under a load of so many requests."""
_Load = tuple[Instance, float]
"""An instance, and its requests in flight."""


def at_target(parts: Sequence[WorkloadPart]) -> dict[str, Reading]:
    """Load, latency, throughput and power with none of the instances lost.

    Latencies are those of the type of GPU that is slowest; over several types the load is shared by capacity.
    """
    running = running_of(parts, [0] * len(parts))
    amounts = []
    loads = []
    watts = []
    for part, load in zip(parts, running, strict=True):
        amounts.append(part.number * load)
        loads.append((part.demand.instance, load))
        # GPUs that several instances share are counted once.
        watts.append((_given(part.demand.instance.gpu_power_w(load)[0]), part.placement.gpus))
    numbers = [part.number for part in parts]
    in_flight = sum(amounts)
    if len(parts) == 1:
        mean = running[0]
    else:
        mean = in_flight / sum(numbers)
    return {
        "concurrency": in_flight,
        "running": mean,
        "itl_s": _slowest(Instance.itl_s, loads),
        "ttft_s": _slowest(Instance.ttft_s, loads),
        "itl_p95_s": _slowest(Instance.itl_p95_s, loads),
        "ttft_p95_s": _slowest(Instance.ttft_p95_s, loads),
        "e2e_s": _slowest(_response_s, loads),
        "tokens_per_s": _summed(_tokens_per_s, loads, numbers),
        "requests_per_s": _summed(_requests_per_s, loads, numbers),
        "power_w": weighted_sum(watts),
    }


def _slowest(figure: _Figure, loads: Iterable[_Load]) -> Reading:
    """The longest latency of the types of GPU; not given where one of them is not known."""
    return _longest(_given(figure(instance, load)) for instance, load in loads)


def _summed(figure: _Figure, loads: Iterable[_Load], numbers: Iterable[int]) -> Reading:
    """Sum over all instances, of each type as many as `numbers` say."""
    amounts = []
    for (instance, load), number in zip(loads, numbers, strict=True):
        amounts.append((_given(figure(instance, load)), number))
    return weighted_sum(amounts)


def _response_s(instance: Instance, load: float) -> float | None:
    """Time from the arrival of a request to its last token; of one alone where there is no load."""
    return instance.response_s(max(load, 1e-9))


def running_of(parts: Sequence[WorkloadPart], lost: Sequence[int]) -> list[float]:
    """Requests in flight of each instance of each part after so many of it are lost; infinite where the rest cannot
    serve the target. Over several types of GPU each carries the same share of the load that it is planned with."""
    numbers = [part.number - gone for part, gone in zip(parts, lost, strict=True)]
    if len(parts) == 1:
        return [parts[0].demand.running(numbers[0])]
    target = parts[0].demand.workload.target

    def served(share: float) -> float:
        amounts = []
        for part, number in zip(parts, numbers, strict=True):
            if number:
                amounts.append(number * part.demand.target_served(share * part.demand.planned))
        return sum(amounts)

    low = 0.0
    high = 1.0
    while served(high) < target:
        low = high
        high *= 2.0
        if high >= _NO_END:
            return [math.inf] * len(parts)
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if served(middle) < target:
            low = middle
        else:
            high = middle
    return [high * part.demand.planned for part in parts]


def degraded_of(parts: Sequence[WorkloadPart]) -> tuple[Degraded, ...]:
    """With one instance less, and without the server that carries most: the worst that one fault does, until a spare
    server has loaded what was on it."""
    cases = [_without(parts, "instance", _largest(parts, [1] * len(parts)))]
    on_a_server = [part.placement.most_on_a_server for part in parts]
    if max(on_a_server) > 1:
        cases.append(_without(parts, "server", _largest(parts, on_a_server)))
    return tuple(cases)


def _largest(parts: Sequence[WorkloadPart], numbers: Sequence[int]) -> list[int]:
    """Instances lost of each part: these numbers of the part where they carry most, none of the others."""
    worst = max(range(len(parts)), key=lambda index: parts[index].demand.planned * numbers[index])
    lost = [0] * len(numbers)
    lost[worst] = numbers[worst]
    return lost


def _without(parts: Sequence[WorkloadPart], fault: str, lost: Sequence[int]) -> Degraded:
    """Survivors carry the whole load: that of the type of GPU that is farthest beyond its room is named, and latencies
    are those of the slowest type."""
    left = sum(part.number for part in parts) - sum(lost)
    if left < 1:
        return Degraded(fault, 0, text="no replica left, requests fail until it is back")
    loads = _loads(parts, lost)
    demand, load = max(loads, key=lambda pair: pair[1] / _fit(pair[0]))
    queue = _queues(demand, load)
    # Past its capacity a rate only grows the queue: more in flight would run faster, but do not fit.
    if math.isinf(load) or (queue and demand.workload.target_kind == "requests_per_s"):
        return Degraded(fault, left, text="the rest cannot serve this rate: the queue grows without end")
    in_flight = []
    running = []
    for survivor, own in loads:
        in_flight.append((survivor.instance, own))
        running.append((survivor.instance, min(own, _fit(survivor))))
    ttft_p95_s: Reading = NOT_GIVEN
    if not queue:
        ttft_p95_s = _slowest(Instance.ttft_p95_s, in_flight)
    return Degraded(
        fault,
        left,
        load,
        text=_degraded_text(loads, demand, load),
        itl_s=_slowest(Instance.itl_s, running),
        itl_p95_s=_slowest(Instance.itl_p95_s, running),
        ttft_s=_longest(_ttft_s(survivor, own) for survivor, own in loads),
        ttft_p95_s=ttft_p95_s,
    )


def _loads(parts: Sequence[WorkloadPart], lost: Sequence[int]) -> list[tuple[Demand, float]]:
    """Requests in flight of each instance that is left, by type of GPU."""
    loads = []
    for part, running, gone in zip(parts, running_of(parts, lost), lost, strict=True):
        if part.number > gone:
            loads.append((part.demand, running))
    return loads


def _degraded_text(loads: Sequence[tuple[Demand, float]], demand: Demand, load: float) -> str:
    """The load of each instance, and the goals that it costs, the queue, or the range that it leaves."""
    text = f"{load:,.1f}".removesuffix(".0") + " per instance"
    queue = _queues(demand, load)
    if queue:
        text += f", room for {_fit(demand):,.0f}"
    missed: dict[str, None] = {}
    for survivor, own in loads:
        for kind in _missed(survivor, own):
            missed[f"the {kind.value} goal"] = None
    if missed:
        return f"{' and '.join(missed)} would be missed: {text}"
    if queue:
        return f"requests queue: {text}"
    if any(limit.kind is LimitKind.RANGE and load > limit.concurrency for limit in demand.limits):
        return f"more than was measured: {text}"
    return f"within all limits: {text}"


def _longest(values: Iterable[Reading]) -> Reading:
    """The longest of some latencies; not given where one of them is not known."""
    longest = 0.0
    for value in values:
        if isinstance(value, Missing):
            return NOT_GIVEN
        longest = max(longest, value)
    return longest


def _fit(demand: Demand) -> float:
    """Requests that one instance lets run: where it has no room, more wait and do not slow those down that run. A typed
    capacity is the user's word for it."""
    most: dict[LimitKind, float] = {}
    for limit in demand.limits:
        most.setdefault(limit.kind, limit.concurrency)
    if LimitKind.TYPED in most:
        return most[LimitKind.TYPED]
    return min((most[kind] for kind in _ROOM if kind in most), default=math.inf)


def _queues(demand: Demand, load: float) -> bool:
    """Whether an instance has less room than its load."""
    return load > _fit(demand) * (1 + 1e-9)


def _ttft_s(demand: Demand, load: float) -> Reading:
    """Mean TTFT, with the time that requests wait for room."""
    running = min(load, _fit(demand))
    if _queues(demand, load):
        return _waiting_s(demand, load, running)
    return _given(demand.instance.ttft_s(running))


def _missed(demand: Demand, load: float) -> Iterator[LimitKind]:
    """Goals that `load` in flight cost: tokens come as fast as those that run allow, the rest waits."""
    running = min(load, _fit(demand))
    ttft_s = _ttft_s(demand, load)
    asked = demand.instance.workload
    most = {limit.kind: limit.concurrency * (1 + 1e-9) for limit in demand.limits}
    response_s = demand.instance.response_s(running)
    e2e_s = response_s * load / running if response_s else None
    if isinstance(ttft_s, Missing):
        first_s = None
    else:
        first_s = ttft_s
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
    answer = of.answer_tokens
    itl_s = of.itl_s(running)
    response_s = of.response_s(running)
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
    answer = instance.answer_tokens
    response_s = instance.response_s(running)
    if answer and response_s:
        return running * answer / response_s
    itl_s = instance.itl_s(running)
    return running / itl_s if itl_s else None
