"""What the instances of one workload do at its target, on one kind of GPU or spread over several."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.answer import NOT_GIVEN, Degraded, LimitKind
from gpumon.sizing.demand import Demand
from gpumon.sizing.ttft import queued_ttft_s

_ROOM: Final = (LimitKind.KV, LimitKind.MAX_NUM_SEQS, LimitKind.PREFILL, LimitKind.KNEE)
"""Limits beyond which requests wait."""


_SPARE: Final = {
    None: "",
    True: "until the spare server has loaded them: ",
    False: "the spare server can not hold them: ",
}


class Part(NamedTuple):
    """Instances of one workload on one kind of GPU."""

    demand: Demand
    number: int
    on_a_server: int = 1
    """Of those, on the server that holds most."""


def at_target(parts: Sequence[Part], gpus: int) -> dict[str, Reading]:
    """Load, latency, throughput and power with none of them lost; `gpus` hold them.

    Latencies are of the part that is slowest. Over several kinds of GPU the load is shared by capacity.
    """
    loads = [(part, running) for part, running in zip(parts, _running(parts, [0] * len(parts)), strict=True)]
    in_flight = sum(part.number * running for part, running in loads)
    watts = _total(*((gpu_power_w(part.demand)[0], part.demand.instance.gpus * part.number) for part in parts))
    held = sum(part.demand.instance.gpus * part.number for part in parts)
    e2e = [part.demand.instance.response_s(max(running, 1e-9)) for part, running in loads]
    rates = [
        (NOT_GIVEN if not response else part.number * running / response, 1)
        for (part, running), response in zip(loads, e2e, strict=True)
    ]
    return {
        "concurrency": in_flight,
        "running": in_flight / sum(part.number for part in parts),
        "itl_s": _slowest(_itl_s(part.demand, running) for part, running in loads),
        "ttft_s": _slowest(_ttft_s(part.demand, running) for part, running in loads),
        "itl_p95_s": _slowest(_given(part.demand.instance.itl_p95_s(running)) for part, running in loads),
        "ttft_p95_s": _slowest(_given(part.demand.instance.ttft_p95_s(running)) for part, running in loads),
        "e2e_s": _slowest(map(_given, e2e)),
        "tokens_per_s": _total(*((_tokens_per_s(part.demand, running), part.number) for part, running in loads)),
        "requests_per_s": _total(*rates),
        # GPUs that several instances share are counted once.
        "power_w": watts if isinstance(watts, Missing) or not held else watts * gpus / held,
    }


def gpu_power_w(demand: Demand) -> tuple[Reading, str]:
    """Watts of one GPU under this load: typed, as seen, else the board's limit; and which of them."""
    instance = demand.instance
    if instance.server is not None and instance.server.gpu_power_w is not None:
        return instance.server.gpu_power_w, "typed"
    if instance.alike and instance.seen is not None and instance.seen.power_w is not None:
        return instance.seen.power_w / instance.gpus, "seen"
    limit_w = instance.gpu.tdp_w if instance.gpu is not None else 0.0
    return (limit_w, "limit") if limit_w else (NOT_GIVEN, "")


def degraded_of(parts: Sequence[Part], spare_holds: bool | None) -> tuple[Degraded, ...]:
    """Without one instance, and without the server that carries most of the load: the worst that one fault does.

    `spare_holds`: whether the spare servers can take in what is lost; None: there are none.
    """
    found = [_without(parts, "instance", _largest(parts, [1 for _ in parts]))]
    on_a_server = [part.on_a_server for part in parts]
    if max(on_a_server) > 1:
        lost = _without(parts, "server", _largest(parts, on_a_server))
        until = _SPARE[spare_holds]
        found.append(msgspec.structs.replace(lost, text=until + lost.text))
    return tuple(found)


def _largest(parts: Sequence[Part], numbers: Sequence[int]) -> list[int]:
    """Instances lost of each part: those numbers of the part where they carry most, of the others none."""
    worst = max(range(len(parts)), key=lambda at: parts[at].demand.planned * numbers[at])
    return [number if at == worst else 0 for at, number in enumerate(numbers)]


def _without(parts: Sequence[Part], what: str, lost: Sequence[int]) -> Degraded:
    """Survivors carry the whole load: N/(N-k) times as much each."""
    left = sum(part.number for part in parts) - sum(lost)
    if left < 1:
        return Degraded(what, 0, text="nothing is left: requests fail until it is back")
    loads = [
        (part.demand, running)
        for part, running, gone in zip(parts, _running(parts, lost), lost, strict=True)
        if part.number > gone
    ]
    demand, load = max(loads, key=lambda load: load[1] / load[0].planned)
    fit = _fit(demand)
    queue = load > fit * (1 + 1e-9)
    # Past its capacity a rate only grows the queue: more in flight would run faster, but do not fit.
    if math.isinf(load) or (queue and demand.workload.target_kind == "requests_per_s"):
        return Degraded(what, left, text="the rest can not serve this rate: the queue grows without end")
    running = min(load, fit)
    ttft_s = _waiting_s(demand, load, running) if queue else _ttft_s(demand, running)
    missed = [f"the {kind.value} goal" for kind in _missed(demand, load, running, ttft_s)]
    text = f"{load:,.1f} each" + (f", {fit:,.0f} fit" if queue else "")
    if missed:
        text = f"{' and '.join(missed)} would be missed: {text}"
    elif queue:
        text = f"requests queue: {text}"
    else:
        beyond = any(limit.kind is LimitKind.RANGE and load > limit.concurrency for limit in demand.limits)
        text = f"{'more than was measured' if beyond else 'within all limits'}: {text}"
    itl_p95_s = _given(demand.instance.itl_p95_s(running))
    ttft_p95_s = NOT_GIVEN if queue else _given(demand.instance.ttft_p95_s(running))
    return Degraded(what, left, load, _itl_s(demand, running), ttft_s, text, itl_p95_s, ttft_p95_s)


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


def _running(parts: Sequence[Part], lost: Sequence[int]) -> list[float]:
    """Requests in flight of each instance of each part, after some of them went."""
    if len(parts) == 1:
        return [parts[0].demand.running(parts[0].number - lost[0])]
    wanted = parts[0].demand.load.instances * parts[0].demand.running(parts[0].demand.load.instances)
    carried = sum((part.number - gone) * part.demand.planned for part, gone in zip(parts, lost, strict=True))
    return [wanted / carried * part.demand.planned if carried > 0 else math.inf for part in parts]


def _itl_s(demand: Demand, running: float) -> Reading:
    return _given(demand.instance.itl_s(running))


def _ttft_s(demand: Demand, running: float) -> Reading:
    line = demand.instance.ttft
    return NOT_GIVEN if line is None else line.ttft_s(running)


def _given(value: float | None) -> Reading:
    return NOT_GIVEN if value is None else value


def _tokens_per_s(demand: Demand, running: float) -> Reading:
    """Of one instance: a request that still computes its prompt is in flight, too, but yields none yet."""
    answer, response_s = demand.instance.answer_tokens, demand.instance.response_s(running)
    if answer and response_s:
        return running * answer / response_s
    itl_s = demand.instance.itl_s(running)
    return running / itl_s if itl_s else NOT_GIVEN


def _slowest(values: Iterator[Reading]) -> Reading:
    slowest: Reading = 0.0
    for value in values:
        if isinstance(value, Missing):
            return value
        slowest = max(slowest, value)  # type: ignore[type-var]
    return slowest


def _total(*terms: tuple[Reading, int]) -> Reading:
    total = 0.0
    for value, number in terms:
        if isinstance(value, Missing):
            return value
        total += value * number
    return total
