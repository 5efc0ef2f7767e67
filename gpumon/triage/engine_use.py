"""Is an engine used: idle, far below what it could run, or healthy with how much headroom; and a training run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.service import FRONTENDS, NO_TOKENS
from gpumon.readings.engine_snapshot import value_of
from gpumon.readings.frame import EndpointState, GpuState, Phase
from gpumon.readings.missing import NOT_EXPOSED, Missing
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters, Signal
from gpumon.triage.advice import advice
from gpumon.triage.gpu import slowed_lately
from gpumon.triage.host import rhythm_of
from gpumon.triage.replicas import Instance, alike, apart, replicas
from gpumon.triage.samples import KEPT_S, REASONS
from gpumon.triage.signals import (
    NOW_S,
    PASSING,
    TOKENS,
    Activity,
    Case,
    Finding,
    Unsure,
    action,
    activity,
    evidence,
    finite,
    gpu_mean,
    grown,
    kv_requests,
    mean,
    missing,
    no_bandwidth,
    no_compute,
    now,
    of_gpus,
    params,
    served,
    slots,
    still_s,
)

FULL: Final = 0.9
"""Share of the time over which use is judged that has to have been seen."""
LEAST_USAGE: Final = 0.01
"""KV cache use below which its rounding decides what fits (SGLang tells it in steps of 0.01)."""
HELD: Final = 0.95
"""SM clock, of the highest, below which a GPU's arithmetic has less room than its peak says."""
FACTOR: Final = 99.0
"""More headroom than this is not told apart."""
SHOWN: Final = 10.0
"""Headroom from which on the factor says nothing: it is not written."""
OVERHEAD_BYTES: Final = 7.5e9
"""Of one GPU, beside weights and KV cache: activations and buffers (vLLM: 5 to 7 GiB)."""
RESERVED: Final = 0.9
"""Part of the memory that an engine takes."""
MOST_MFU: Final = 0.6
MOST_MBU: Final = 0.6
"""What the GPUs that are left may come to, on average: tuned stacks reach 50 % to 70 % of either."""
_THERE: Final = frozenset({EndpointState.OK, EndpointState.STARTING, EndpointState.TIMEOUT})


class Little(NamedTuple):
    """What an engine does that does little; means over the time in which use is judged."""

    room: tuple[float, str]
    """`capacity`."""
    running: float
    seen: Activity
    arithmetic: float
    reads: float


def idle_s(case: Case) -> float | None:
    """For how long no request has been there; None where one is or just was, or where nothing tells."""
    recent = case.recent
    loads = [field for field in ("running", "waiting", "inferences_per_s") if recent.last(field) is not None]
    if any(recent.last(field) != 0.0 for field in loads):
        return None
    counts = still_s(case, TOKENS)
    if not loads and counts is None:
        return None
    quiet_s = min([*(recent.steady_s(field) for field in loads), *([] if counts is None else [counts])])
    return quiet_s if quiet_s >= NOW_S else None


def is_idle(case: Case) -> bool:
    """Whether it has had no request for so long that it counts as idle."""
    quiet_s = idle_s(case)
    return quiet_s is not None and quiet_s >= case.thresholds.idle_s


def _judged_s(case: Case) -> float:
    return min(case.thresholds.under_used_s, KEPT_S)


def _left_s(case: Case) -> float:
    """For how long it has to be seen yet before its use is judged; none is left at 0 and below."""
    return FULL * _judged_s(case) - case.recent.seconds


def _few(case: Case) -> Little | None:
    """What an engine does that runs few requests; None where its use is not judged, or it is not that."""
    engine = served(case)
    if engine is None or case.found or is_idle(case) or _left_s(case) > 0.0:
        return None
    return _little(case, engine)


def _little(case: Case, engine: Engine) -> Little | None:
    """Its use as far as it was seen, where that is far below what it could do, and its figures can be believed."""
    seconds, limits = _judged_s(case), case.thresholds
    running = mean(case, "running", seconds)
    if not running or engine.contradicts:
        return None
    room = _capacity(case, engine, running)
    if room is None or running > limits.under_used_slots_ratio * room[0]:
        return None
    seen = activity(case, seconds)
    mfu, mbu = mean(case, "mfu_ratio", seconds), mean(case, "mbu_ratio", seconds)
    arithmetic, reads = seen.tensor if mfu is None else mfu, seen.dram if mbu is None else mbu
    if arithmetic is None or reads is None:
        return None
    if arithmetic > limits.under_used_mfu_ratio or reads > limits.under_used_mbu_ratio:
        return None
    return Little(room, running, seen, arithmetic, reads)


def _capacity(case: Case, engine: Engine, running: float) -> tuple[float, str] | None:
    """Requests that an engine can run at once, and what bounds them: its slots, or its KV pool."""
    found = [] if (known := slots(case)) is None else [known]
    if (fits_kv := kv_requests(engine)) is not None:
        found.append((fits_kv, "KV pool / tokens of a running request"))
    elif (usage := mean(case, "kv_usage_ratio", _judged_s(case)) or 0.0) >= LEAST_USAGE:
        found.append((running / usage, "requests running / KV cache use"))
    return min(found) if found and min(found)[0] >= 1.0 else None


def under_used(case: Case) -> Finding | None:
    """Far fewer requests than fit, at little arithmetic and bandwidth; or none at all."""
    engine = served(case)
    if engine is None or case.found or engine.asleep:
        return None
    quiet_s = idle_s(case)
    if quiet_s is not None and is_idle(case):
        return apart(case, _idle(case, engine, quiet_s))
    found = _few(case)
    return None if found is None else apart(case, _low(case, engine, found))


def _idle(case: Case, engine: Engine, quiet_s: float) -> Finding:
    count, price = _freed(case, engine), _price_per_hour(case, engine)
    proof = [evidence(case, "no_request", "running", quiet_s, "running", case.thresholds.idle_s)]
    cost = price * count if price is not None and count else None
    if cost is not None:
        proof.append(Evidence("cost_per_hour", cost, source="config", parameters=params(gpus=float(count))))
    said = params(seconds=quiet_s, gpus=float(count) or None, cost=cost, restarted=min(case.restarts_s, default=None))
    fixes = (action("send_traffic_or_stop", frees="gpus" if count else "memory"),)
    sure = Confidence.HIGH if case.recent.last("running") is not None else Confidence.MEDIUM
    began_s = case.now_s - quiet_s
    return Finding(Limit.IDLE_VRAM_HELD, "engine_idle", said, tuple(proof), fixes, Level.NOTE, sure, began_s)


def _low(case: Case, engine: Engine, little: Little) -> Finding:
    """`15 % MFU at 6 of 48 slots: this traffic fits on 2 of 8 GPUs, 14.9 $/h idle`."""
    room, running, seen, arithmetic, reads = little
    seconds, limits = _judged_s(case), case.thresholds
    proof = [
        evidence(case, "running", "running", running, "running", room[0], window_s=seconds),
        Evidence("capacity", room[0], source=room[1]),
        _share(case, engine, "mfu", arithmetic, seen.tensor, limits.under_used_mfu_ratio),
        _share(case, engine, "mbu", reads, seen.dram, limits.under_used_mbu_ratio),
    ]
    found, price = _fewer(case, engine, room[0], running), _price_per_hour(case, engine)
    own = found if found is not None and not found.named_by else None
    saved = None if own is None or price is None else price * (own.here - own.needed) or None
    said = params(
        mfu=None if isinstance(engine.efficiency.mfu_ratio, Missing) else arithmetic,
        tensor=arithmetic if isinstance(engine.efficiency.mfu_ratio, Missing) else None,
        running=running,
        slots=room[0] if slots(case) == room else None,
        kv_requests=None if slots(case) == room else room[0],
        needed=None if own is None else float(own.needed),
        gpus=None if own is None else float(own.here),
        cost=saved,
        restarted=min(case.restarts_s, default=None),
    )
    if own is not None:
        source = "requests running / (capacity x planning share)" if own.instances else "weights, KV cache and use"
        proof.append(Evidence("gpus_needed", float(own.needed), float(own.here), source))
    if saved:
        proof.append(Evidence("cost_per_hour", saved, source="config", parameters=params(gpus=said["gpus"])))
    bursts = rhythm_of(case) if found is None else None
    if bursts is not None:
        said |= params(period=bursts.period_s)
        proof.append(bursts.evidence(of_gpus(case, "busy_drops", "busy_ratio", bursts.lower, "busy")))
        fixes: tuple[Action, ...] = (action("send_earlier", period=bursts.period_s), action("share_gpu"))
    else:
        fixes = _consolidate(case, engine, found)
    level, sure = Level.NOTE, Confidence.MEDIUM
    return Finding(Limit.LOW_EFFICIENCY, "few_requests", said, tuple(proof), fixes, level, sure)


def _share(
    case: Case, engine: Engine, name: str, value: float, measured: float | None, limit: float | None
) -> Evidence:
    if not isinstance(value_of(engine, f"{name}_ratio"), Missing) or measured is None:
        return evidence(case, name, f"{name}_ratio", value, name, limit)
    if name == "mfu":
        return of_gpus(case, "tensor_active", "tensor_active_ratio", value, "tensor", limit)
    return of_gpus(case, "dram_active", "bandwidth_bytes_per_s", value, "dram", limit)


class _Fewer(NamedTuple):
    """What the traffic needs."""

    needed: int
    here: int
    """GPUs, of those that have the model now."""
    instances: int
    """Instances that are needed; 0: it is one instance on fewer GPUs."""
    of: int
    """Instances that are here."""
    named_by: str = ""
    """The replica whose verdict names it, where that is another."""


def _consolidate(case: Case, engine: Engine, found: _Fewer | None) -> tuple[Action, ...]:
    seconds, words = _judged_s(case), advice(engine.kind)
    if found is None:
        return (action("more_requests"), action("share_gpu"))
    if found.named_by:
        return (action("see_replica", replica=found.named_by),)
    if found.instances:
        stop = float(found.of - found.instances)
        return (action("stop_instances", stop=stop, instances=float(found.of), seconds=seconds),)
    # Fewer stages first, as they only add to the latency.
    stages, tp = found.here // engine.hardware.tp if engine.hardware.tp else 1, min(engine.hardware.tp, found.needed)
    split = params(tp_flag=words.tp, tp_to=float(found.needed))
    if stages >= 2:
        split = params(pp_flag=words.pp, pp=float(stages), pp_to=float(max(1, found.needed // tp)))
        split |= params(tp_flag=words.tp, tp_to=float(tp)) if tp < engine.hardware.tp else {}
    return (Action("fewer_gpus", split | params(seconds=seconds)),)


def _fewer(case: Case, engine: Engine, room: float, running: float) -> _Fewer | None:
    """Fewer instances of the model where it has several, else fewer GPUs for its one; None where it needs all."""
    siblings = replicas(case, engine)
    ranks = max(1, engine.hardware.ranks)
    if not _taken(case, {one.key for one, _ in siblings}).isdisjoint(_gpus(siblings)):
        return None
    if len(siblings) > 1:
        return _of_instances(case, engine, siblings)
    gpus = finite(engine.hardware.gpu_count)
    if ranks > 1 and gpus:
        k = _instances(case, [engine], running, room / ranks, ranks)
        return _Fewer(math.ceil(k * gpus / ranks), round(gpus), k, ranks) if k < ranks else None
    return _of_gpus(case, engine, running)


def _gpus(instances: Sequence[Instance]) -> set[str]:
    return {uuid for _, reading in instances for uuid in reading.gpus}


def _taken(case: Case, keys: set[str]) -> set[str]:
    """GPUs that engines other than these run on: they do not become free."""
    others = (one for one in case.frame.engines if one.state in _THERE and one.kind not in FRONTENDS)
    return {uuid for one in others if one.key not in keys for uuid in one.gpus}


def _freed(case: Case, engine: Engine) -> int:
    """GPUs that an idle engine keeps from others: those whole ones that nothing else is at work on."""
    if not case.gpus:
        return round(min(finite(engine.hardware.gpu_count) or 0.0, 1e6))
    taken = _taken(case, {engine.key})
    return sum(not (gpu.parent_uuid or gpu.uuid in taken or _is_awake(case, gpu)) for gpu in case.gpus)


def _is_awake(case: Case, gpu: Gpu) -> bool:
    recent = case.others.get(gpu.uuid)
    return recent is not None and (recent.mean("awake", KEPT_S) or 0.0) >= 0.5


def _of_instances(case: Case, engine: Engine, siblings: list[Instance]) -> _Fewer | None:
    """The replicas together, each as large as the smallest that does little, and on such GPUs.

    The first that does little names it: all of them find the same one.
    """
    sizes = {len(reading.gpus) or finite(one.hardware.gpu_count) for one, reading in siblings}
    if len(sizes) > 1 or len(_kinds(case, siblings)) > 1 or not (size := sizes.pop()):
        return None
    loads = [
        None if (recent := case.others.get(one.key)) is None else finite(recent.mean("running", _judged_s(case)))
        for one, _ in siblings
    ]
    known = [load for load in loads if load is not None]
    if len(known) < len(loads):
        return None
    kept, of = case.others[""].worked_out, ("replicas that do little", *(one.key for one, _ in siblings))
    if of not in kept:  # once in a sample of the host, as many of them may ask
        kept[of] = [(one, work) for one in alike(case, engine) if (work := _few(one)) is not None]
    low: list[tuple[Case, Little]] = kept[of]
    gpus = size * sum(not reading.gpus for _, reading in siblings) + len(_gpus(siblings))
    room = min(work.room[0] for _, work in low)
    k = _instances(case, [one for one, _ in siblings], sum(known), room, len(siblings))
    needed = math.ceil(k * gpus / len(siblings))
    if needed >= gpus:
        return None
    first, _ = low[0]
    return _Fewer(needed, round(gpus), k, len(siblings), "" if first.key == engine.key else first.name)


def _kinds(case: Case, siblings: list[Instance]) -> set[str]:
    """Types of their GPUs: what fits on one says nothing of another, nor which is to stop."""
    types = {gpu.uuid: gpu.gpu_type for gpu in case.snapshot.gpus}
    mapped = {types[uuid] for uuid in _gpus(siblings) if uuid in types}
    return mapped | {one.hardware.gpu_type for one, reading in siblings if not reading.gpus}


def _instances(case: Case, engines: list[Engine], running: float, each: float, here: int) -> int:
    """ceil(running / (slots of an instance x planning share)), and no more than its chips can do.

    Arithmetic and KV reads go with the traffic; weights are read once for all sequences of a batch.
    """
    wanted = running / (each * max(case.thresholds.planning_ratio, 0.01))
    mfu = [min(finite(one.efficiency.mfu_ratio) or 0.0, 1.0) for one in engines]
    for shares, most in ((mfu, MOST_MFU), ([_kv_mbu(one) for one in engines], MOST_MBU)):
        wanted = max(wanted, here * sum(shares) / len(shares) / most)
    return max(1, math.ceil(min(wanted, 1e6) - 1e-9))


def _kv_mbu(engine: Engine) -> float:
    """The part of MBU that KV reads are; 0 where it is not known."""
    mbu, read, kv = (
        finite(engine.efficiency.mbu_ratio),
        finite(engine.efficiency.bytes_per_s),
        finite(engine.efficiency.kv_bytes_per_s),
    )
    return min(mbu * kv / read, 1.0) if mbu and read and kv else 0.0


def _of_gpus(case: Case, engine: Engine, running: float) -> _Fewer | None:
    """One instance of fewer GPUs: half as many again and again, as long as memory and the chips allow."""
    here, mfu, mbu = len(case.gpus), mean(case, "mfu_ratio"), mean(case, "mbu_ratio")
    if mfu is None or mbu is None:
        return None
    needed = here
    while needed and needed % 2 == 0:
        half = needed // 2
        if not fits(case, engine, half, running) or mfu * here / half > MOST_MFU or mbu * here / half > MOST_MBU:
            break
        needed = half
    return _Fewer(needed, here, 0, 1) if needed < here else None


def fits(case: Case, engine: Engine, gpus: int, running: float) -> bool | None:
    """Whether the weights and the KV cache of these requests fit on so many GPUs of its kind; None: not known."""
    sizes = [total for gpu in case.gpus if (total := finite(gpu.vram_total_bytes))]
    weights = (
        None
        if engine.dimensions.llm is None
        else finite(engine.dimensions.llm.stored_bytes or engine.dimensions.llm.read_bytes)
    )
    if not weights or not sizes or len(sizes) < len(case.gpus):
        return None
    room = gpus * (RESERVED * min(sizes) - OVERHEAD_BYTES) - weights
    kv, context = finite(engine.dimensions.kv_bytes_per_token), finite(engine.load.context_tokens)
    if room < 0.0:
        return False
    if kv is None or context is None:
        return None
    return running * kv * context <= room * case.thresholds.planning_ratio


def _price_per_hour(case: Case, engine: Engine) -> float | None:
    """Of one of its GPUs; None where none is given, or it has but a MIG slice of one."""
    if any(gpu.parent_uuid for gpu in case.gpus):
        return None
    kinds = {gpu.gpu_type for gpu in case.gpus} or {engine.hardware.gpu_type}
    prices = [case.prices.get(kind, case.prices.get("")) for kind in kinds]
    known = [price for price in prices if price is not None]
    return finite(sum(known) / len(known)) if known and len(known) == len(prices) else None


def stands_still(case: Case) -> bool:
    """Whether an engine gives nothing right now though it has requests, or has lost a GPU: that it did well until just
    now is no reason to say that it does."""
    if case.engine is None:
        return False
    if any(gpu.state is not GpuState.OK for gpu in case.gpus):
        return True
    rates = [now(case, field) for field in ("decode_tokens_per_s", "prefill_tokens_per_s")]
    return bool(now(case, "running") and now(case, "waiting")) and rates == [0.0, 0.0]


def healthy(case: Case) -> Finding | Unsure | None:
    """Nothing holds it back and nothing is wrong: how much more traffic until the next limit."""
    engine = served(case)
    if engine is None or case.found:
        return None
    if engine.asleep:
        how = params(how=engine.asleep)
        return Finding(Limit.ASLEEP, "asleep", how, (Evidence("asleep", parameters=how),), (), Level.OK)
    again = params(restarted=min(case.restarts_s, default=None))
    level = Level.NOTE if again else Level.OK
    quiet_s = idle_s(case)
    if quiet_s is not None:
        none = evidence(case, "running", "running", 0.0, "running")
        ready = Finding(Limit.HEALTHY, "ready", again, (none,), (), level)
        later = quiet_s >= case.recent.seconds
        return apart(case, _open(case, ready, case.thresholds.idle_s - quiet_s if later else None))
    if engine.rates.decode_tokens_per_s == NO_TOKENS:  # such models have neither requests nor MFU
        return None
    seen = activity(case)
    unknown = [no_compute(engine, seen), no_bandwidth(engine, seen)]
    unknown += [missing("running", engine.load.running), missing("waiting", engine.load.waiting)]
    if any(unknown):  # what else would tell of a limit: named where the verdict is open anyway
        unknown += [
            missing("kv_usage", engine.load.kv_usage_ratio),
            missing("preemptions", engine.rates.preemptions_per_s),
        ]
        unknown.append(missing("queue_time", engine.latency.queue_s.mean))
        return Unsure(tuple(one for one in unknown if one))
    quiet = still_s(case, TOKENS)
    if quiet is not None and quiet >= case.thresholds.stalled_s / 2 and seen.tensor is None:
        # What a long prefill hides: its tokens count at its end, and MFU shows none of it until then.
        return Unsure((Signal("arithmetic", fix="needs_hopper", parameters=params(seconds=quiet)),))
    if engine.contradicts:
        proof = tuple(Evidence("contradicts", NOT_EXPOSED, parameters=params(what=what)) for what in engine.contradicts)
        return Unsure((Signal("believable", fix="doctor", parameters=params(what=engine.contradicts[0])),), proof)
    if isinstance(engine.load.running, Missing) and engine.load.running.reason in PASSING:
        return None
    room = _headroom(case, engine, seen)
    if not room:
        return None
    nearest = min(room, key=lambda one: one.factor)
    said = params(nearest=nearest.name, share=nearest.share, running=nearest.running, slots=nearest.slots) | again
    sound = not any(slowed_lately(case.others[gpu.uuid], case.thresholds) for gpu in case.gpus)
    said |= params(headroom=nearest.factor) if nearest.factor < SHOWN and sound else {}
    if (before := grown(case)) is not None:
        said |= params(ttft=before[0], ttft_before=before[1])
    proof = tuple(one.proof for one in sorted(room, key=lambda one: one.factor))
    found = Finding(Limit.HEALTHY, "headroom", said, proof, (), level, Confidence.MEDIUM)
    later = _left_s(case) > 0.0 and _little(case, engine) is not None
    return apart(case, _open(case, found, _left_s(case) if later else None))


def _open(case: Case, finding: Finding, left_s: float | None) -> Finding:
    """With the time until its use can be judged, where it does little so far: that it is healthy then says little."""
    if left_s is None:
        return finding
    minutes = float(max(1, math.ceil((left_s + case.thresholds.hold_s) / 60.0)))
    proof = (*finding.evidence, Evidence("evaluating", minutes * 60.0))
    return finding._replace(parameters=finding.parameters | params(evaluating=minutes), evidence=proof)


class _Headroom(NamedTuple):
    name: str
    factor: float
    """Times the traffic of now."""
    proof: Evidence
    share: float | None = None
    running: float | None = None
    slots: float | None = None


def _times(factor: float) -> float:
    """At least once: a verdict that nothing holds it back does not tell it to slow down."""
    return min(max(factor, 1.0), FACTOR)


def _clock(case: Case) -> float:
    """SM clock of its slowest GPU that is held or at work, as a share of the highest: an idle one rests by itself."""
    shares = [1.0]
    for gpu in case.gpus:
        clock, most, busy = gpu_mean(case, gpu, "sm_clock_hz"), finite(gpu.sm_clock_max_hz), finite(gpu.busy_ratio)
        held = any(reason in REASONS for reason in gpu.throttle)
        if clock and most and (held or (busy or 0.0) >= case.thresholds.loaded_ratio):
            shares.append(clock / most)
    return min(shares)


def _headroom(case: Case, engine: Engine, seen: Activity) -> list[_Headroom]:
    limits, found = case.thresholds, []

    def add(name: str, value: float, most: float, proof: Evidence) -> None:
        if value > 0.0:
            found.append(_Headroom(name, _times(most / value), proof, value))

    usage = mean(case, "kv_usage_ratio")
    if usage is not None:
        add("KV", usage, 1.0, evidence(case, "kv_usage", "kv_usage_ratio", usage, "kv", 1.0))
    known, running = slots(case), mean(case, "running")
    if known is not None and running:
        proof = evidence(case, "running", "running", running, "running", known[0])
        found.append(_Headroom("slots", _times(known[0] / running), proof, running=running, slots=known[0]))
    mfu, mbu = mean(case, "mfu_ratio"), mean(case, "mbu_ratio")
    if seen.dram is not None:  # measured: outweighs what is modelled, as it does where it is a limit
        most = limits.bandwidth_dram_ratio
        add("DRAM", seen.dram, most, of_gpus(case, "dram_active", "bandwidth_bytes_per_s", seen.dram, "dram", most))
    elif mbu is not None:
        add("MBU", mbu, limits.bandwidth_mbu_ratio, _share(case, engine, "mbu", mbu, None, limits.bandwidth_mbu_ratio))
    if mfu is not None:
        clock = _clock(case)
        most = limits.compute_mfu_ratio * (clock if clock < HELD else 1.0)
        slow = clock if clock < HELD else None
        add("MFU", mfu, most, evidence(case, "mfu", "mfu_ratio", mfu, "mfu", most, clock=slow))
    elif seen.tensor is not None:
        most = limits.compute_tensor_ratio
        add("tensor cores", seen.tensor, most, _share(case, engine, "mfu", seen.tensor, seen.tensor, most))
    return found


def training_low(case: Case) -> Finding | Unsure | None:
    """Little MFU although nothing else was found that holds a training run back."""
    engine = _training(case)
    if engine is None or _left_s(case) > 0.0:
        return None
    if (lacking := missing("mfu", engine.efficiency.mfu_ratio)) is not None:
        return Unsure((lacking,))
    seconds, limit = _judged_s(case), case.thresholds.under_used_training_mfu_ratio
    mfu, seen = mean(case, "mfu_ratio", seconds), activity(case, seconds)
    if mfu is None or mfu >= limit:
        return None
    proof = _training_proof(case, engine, mfu, limit)
    if seen.busy is not None:
        proof.append(of_gpus(case, "busy", "busy_ratio", seen.busy, "busy"))
    if seen.tensor is not None:
        proof.append(of_gpus(case, "tensor_active", "tensor_active_ratio", seen.tensor, "tensor"))
    working = seen.busy is not None and seen.busy >= case.thresholds.communication_busy_ratio
    fixes = (action("larger_micro_batch" if working else "profile_steps"),)
    said, level, sure = params(mfu=mfu, busy=seen.busy), Level.NOTE, Confidence.MEDIUM
    return Finding(Limit.LOW_EFFICIENCY, "training_low_mfu", said, tuple(proof), fixes, level, sure)


def training_well(case: Case) -> Finding | Unsure | None:
    """It trains, and nothing was found."""
    engine = _training(case)
    if engine is None:
        return None
    if (lacking := missing("mfu", engine.efficiency.mfu_ratio)) is not None:
        return Unsure((lacking,))
    mfu = mean(case, "mfu_ratio")
    if mfu is None:
        return None
    limit = case.thresholds.under_used_training_mfu_ratio
    said: Parameters = params(mfu=mfu, rate=finite(engine.rates.trained_tokens_per_s) or None)
    proof = tuple(_training_proof(case, engine, mfu, limit))
    found = Finding(Limit.HEALTHY, "training", said, proof, (), Level.OK, Confidence.MEDIUM)
    low = (mean(case, "mfu_ratio", _judged_s(case)) or 1.0) < limit
    return _open(case, found, _left_s(case) if low and _left_s(case) > 0.0 else None)


def _training(case: Case) -> Engine | None:
    engine = case.engine
    if engine is None or engine.phase is not Phase.TRAINING or engine.state is not EndpointState.OK or case.found:
        return None
    return engine


def _training_proof(case: Case, engine: Engine, mfu: float, limit: float) -> list[Evidence]:
    found = [evidence(case, "mfu", "mfu_ratio", mfu, "mfu", limit)]
    for field, quantity in (("trained_tokens_per_s", "token_rate"), ("samples_per_s", "sample_rate")):
        if value := finite(value_of(engine, field)):
            found.append(evidence(case, quantity, field, value))
    return found
