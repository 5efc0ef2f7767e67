"""Is an engine used: idle, far below what it could run, or healthy with how much headroom; and a training run."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.service import FRONTENDS, NO_TOKENS
from gpumon.readings.flat import value_of
from gpumon.readings.frame import EndpointState, EngineReading, Phase
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.prices import price_of_hour
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.readings.verdict import Action, Confidence, Evidence, Family, Level, Limit, Parameters, Signal, Team
from gpumon.triage.advice import advice, quantise
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, unsure, yes_if
from gpumon.triage.gpu_clocks import slowed_lately
from gpumon.triage.host import NEARLY_ALWAYS_BUSY, rhythm_of
from gpumon.triage.option_causes import step_reads_s
from gpumon.triage.replicas import replica_cases, replicas_of, with_replica_comparison
from gpumon.triage.samples import AWAKE, CLOCK_REASONS, KEPT_S
from gpumon.triage.savings import with_savings
from gpumon.triage.sentences import (
    ASLEEP_FIGURE,
    BUSY,
    BUSY_DROPS,
    CAPACITY,
    DRAM_ACTIVE,
    KV_USAGE,
    MBU,
    MFU,
    NO_REQUEST,
    PROFILE_STEPS,
    RUNNING,
    SAMPLE_RATE,
    SAVES,
    TENSOR_ACTIVE,
    TOKEN_RATE,
)
from gpumon.triage.signals import (
    KV_REQUESTS_SOURCE,
    NOW_S,
    PASSING,
    TOKEN_TOTALS,
    WORK_TOTALS,
    Case,
    GpuActivity,
    Slots,
    finite,
    first_known,
    kv_requests,
    missing_limit_signals,
    missing_signal,
    sum_of_all,
)

_NEEDED_SIGNALS: Final = frozenset({"mfu", "mbu", "running", "waiting"})
"""Codes of `missing_limit_signals` without which an engine is not called healthy."""
_RESTARTED: Final = "[; restarted {restarted:lasted} ago]"
"""End of a sentence on an engine that restarted a moment ago."""
_LEAST_SAMPLED_RATIO: Final = 0.9
"""Share of the time over which use is judged for which there must be samples."""
LEAST_USAGE: Final = 0.01
"""KV cache use below which its rounding decides what fits (SGLang tells it in steps of 0.01)."""
_FULL_CLOCK: Final = 0.95
"""SM clock, of the highest, below which a GPU's arithmetic has less room than its peak says."""
MOST_HEADROOM: Final = 99.0
"""Largest headroom factor: larger ones come of figures near 0."""
_LEAST_UNWRITTEN: Final = 10.0
"""Headroom factor from which on it is not written in the sentence: the limit is too far away to matter."""
OVERHEAD_BYTES: Final = 7.5e9
"""Memory of one GPU beside weights and KV cache: activations and buffers (vLLM: 5 to 7 GiB)."""
RESERVED_RATIO: Final = 0.9
"""Part of the memory that an engine takes."""
_MOST_PLANNED_SHARE: Final = 0.6
"""MFU or MBU that the GPUs which are left may come to, on average: tuned stacks reach 50% to 70% of either."""
_RARE_REQUESTS: Final = 0.25
"""Mean running requests below which an engine rests most of the time (chosen)."""
_FREQUENT_REQUESTS: Final = 0.5
"""The same from which on an engine that rested most of the time does so no more: between the two is room for chance."""
_SINGLE_REQUESTS: Final = 1.5
"""Mean running requests up to which an engine serves one at a time."""
_UNNOTICED_ITL_S: Final = 0.05
"""Time per token that is assumed as the goal where the config has none: faster than anybody reads."""
_SHARE_OF_GOAL: Final = 0.5
"""Share of the goal that reads alone may take: the rest of a step, and a second request, need some, too."""
_NARROW_WEIGHTS_RATIO: Final = 0.5
"""Size of 8-bit weights beside 16-bit ones."""
_HOLDS_GPUS: Final = frozenset({EndpointState.OK, EndpointState.STARTING, EndpointState.TIMEOUT})
"""States of an engine whose process is there, and so keeps its GPUs."""


COST_PER_HOUR: Final = Quantity("cost_per_hour", "{value:money}[ for {gpus:gpus}]")
GPUS_NEEDED: Final = Quantity("gpus_needed", "needs {value:count} of {limit:gpus}")
_LEAST_DENSITY: Final = 0.75
"""Share of the samples that there would be at the present interval, below which they came more seldom before."""
EVALUATING_FIGURE: Final = Quantity("evaluating", "utilisation verdict in {value:lasting}")
SEND_TRAFFIC_OR_STOP: Final = Remedy(
    "send_traffic_or_stop",
    ("send it traffic, or stop it" + SAVES + " and give its [{frees=gpus}GPUs|memory] to another model"),
)
MORE_REQUESTS: Final = Remedy("more_requests", "send it more requests at once", team=Team.CLIENT)
SHARE_GPU: Final = Remedy("share_gpu", "let its GPU serve another model, too")
SEND_EARLIER: Final = Remedy(
    "send_earlier",
    (
        "its requests come in bursts every {period:seconds}, with none in between: let the client "
        "send the next ones before the last are done"
    ),
    team=Team.CLIENT,
)
SEE_REPLICA: Final = Remedy("see_replica", "see {replica}: it says how many GPUs the traffic of all replicas needs")
STOP_INSTANCES: Final = Remedy(
    "stop_instances",
    (
        "stop {stop:count} of {instances:count} instances"
        + SAVES
        + ", and send their requests to the others; seen for {seconds:lasting} only; peaks: gpumon "
        "report"
    ),
)
FEWER_GPUS: Final = Remedy(
    "fewer_gpus",
    (
        "lower [{pp_flag} from {pp:count} to {pp_to:count} and {tp_flag} to {tp_to:count}|{pp_flag} "
        "from {pp:count} to {pp_to:count}|{tp_flag} to {tp_to:count}]"
        + SAVES
        + ", and give the other GPUs to another model; seen for {seconds:lasting} only; peaks: gpumon "
        "report"
    ),
)
LARGER_MICRO_BATCH: Final = Remedy(
    "larger_micro_batch",
    ("a larger micro-batch, fused kernels (torch.compile, FlashAttention), bf16 or FP8 matmuls, less recomputation"),
    team=Team.OWNER,
)
FASTER_KERNELS: Final = Remedy(
    "faster_kernels",
    (
        "fused kernels (torch.compile, FlashAttention), bf16 or FP8 matmuls; its memory has no room "
        "for a larger micro-batch"
    ),
    team=Team.OWNER,
)


def idle_s(case: Case) -> float | None:
    """Seconds without a request; None where there is one or just was, or where nothing tells."""
    quiet_times_s: list[float] = []
    for field in ("running", "waiting", "inferences_per_s"):
        newest = case.recent.last(field)
        if newest is None:
            continue
        if newest != 0.0:
            return None
        quiet_times_s.append(case.recent.steady_s(field))
    counts_still_s = case.unmoved_s(WORK_TOTALS)
    if counts_still_s is not None:
        quiet_times_s.append(counts_still_s)
    if not quiet_times_s or min(quiet_times_s) < NOW_S:
        return None
    if case.newest("running") is None and (case.activity().busy or 0.0) > AWAKE:
        return None  # tokens that count at the end of an answer leave the counters still until then
    return min(quiet_times_s)


def _use_window_s(case: Case) -> float:
    """Seconds over which use is judged: `under_used_s` of the config, and no longer than samples are kept."""
    return min(case.thresholds.under_used_s, KEPT_S)


def _unsampled_s(case: Case) -> float:
    """Seconds of samples that are still missing before its use is judged; 0 and below: none."""
    return _LEAST_SAMPLED_RATIO * _use_window_s(case) - case.recent.seconds


class LowUse(NamedTuple):
    """Work of an engine that does little; means over the time in which use is judged."""

    room: Slots
    """Requests that it can run at once, by its slots or its KV pool."""
    running: float
    arithmetic: float
    """MFU, else tensor activity."""
    is_mfu: bool
    reads: float
    """MBU, else DRAM activity."""
    is_mbu: bool

    @property
    def parameters(self) -> Parameters:
        """Its figures in sentences: `15% MFU, 6 running`, `5% tensor activity, 6 running`."""
        if self.is_mfu:
            return params(mfu=self.arithmetic, running=self.running)
        return params(tensor=self.arithmetic, running=self.running)


def _low_use(case: Case, engine: Engine) -> LowUse | None:
    """Use of the engine as far as it was sampled; None unless that is far below what it could do, and believable."""
    seconds = _use_window_s(case)
    limits = case.thresholds
    running = case.mean("running", seconds)
    if not running or engine.contradicts:
        return None
    room = min(_request_limits(case, engine, running), default=Slots(0.0, ""))
    if room.number < 1.0 or running > limits.under_used_slots_ratio * room.number:
        return None
    activity = case.activity(seconds)
    mfu = case.mean("mfu_ratio", seconds)
    arithmetic = first_known(mfu, activity.tensor)
    if arithmetic is None or arithmetic > limits.under_used_mfu_ratio:
        return None
    mbu = case.mean("mbu_ratio", seconds)
    reads = first_known(mbu, activity.dram)
    if reads is None or reads > limits.under_used_mbu_ratio:
        return None
    return LowUse(room, running, arithmetic, is_mfu=mfu is not None, reads=reads, is_mbu=mbu is not None)


def _request_limits(case: Case, engine: Engine, running: float) -> list[Slots]:
    """Requests that may run at once: by the slots, and by the KV pool, or by its use where its size is not known."""
    bounds: list[Slots] = []
    slots = case.slots()
    if slots is not None:
        bounds.append(slots)
    fits_kv = kv_requests(engine)
    if fits_kv is not None:
        bounds.append(Slots(fits_kv, KV_REQUESTS_SOURCE))
        return bounds
    usage = case.mean("kv_usage_ratio", _use_window_s(case)) or 0.0
    if usage >= LEAST_USAGE:
        bounds.append(Slots(running / usage, "requests running / KV cache use"))
    return bounds


def _judged_low_use(case: Case) -> LowUse | None:
    """The low use of an engine with requests that was sampled for long enough; None if it is not low, or not judged."""
    engine = case.serving_engine()
    quiet_s = idle_s(case)
    is_idle = quiet_s is not None and quiet_s >= case.thresholds.idle_s
    if engine is None or case.found_limits or is_idle or _unsampled_s(case) > 0.0:
        return None
    return _low_use(case, engine)


def under_used(case: Case) -> Finding | None:
    """Rule: far fewer requests than fit, at little arithmetic and bandwidth; or none at all."""
    engine = case.serving_engine()
    quiet_s = idle_s(case)
    if engine is None or case.found_limits or engine.asleep:
        return None
    if quiet_s is not None and quiet_s >= case.thresholds.idle_s:
        return with_replica_comparison(case, _idle_finding(case, engine, quiet_s))
    low_use = _judged_low_use(case)
    if low_use is None:
        return None
    return with_replica_comparison(case, _low_use_finding(case, engine, low_use))


ENGINE_IDLE: Final = Cause(
    "engine_idle",
    Limit.IDLE_VRAM_HELD,
    "no request [{polled=yes}at any poll ]for {seconds:lasted}[: {gpus:gpus} idle][, {cost:money}]" + _RESTARTED,
    level=Level.NOTE,
)


def _idle_finding(case: Case, engine: Engine, quiet_s: float) -> Finding:
    """The finding on an engine without requests: for how long, and the GPUs that it keeps from others."""
    freed_gpus = _gpus_to_free(case, engine)
    polled = yes_if(not _counts_work(case))
    evidence = [case.evidence(NO_REQUEST, quiet_s, limit=case.thresholds.idle_s, polled=polled)]
    cost = None
    price = _price_per_hour(case, engine)
    if freed_gpus and price is not None:
        cost = price * freed_gpus
        evidence.append(COST_PER_HOUR.evidence(cost, source="config", parameters=params(gpus=float(freed_gpus))))
    gpus = float(freed_gpus) or None
    parameters = params(seconds=quiet_s, polled=polled, gpus=gpus, cost=cost, restarted=case.restart_age_s)
    stop = SEND_TRAFFIC_OR_STOP.action(frees="gpus" if freed_gpus else "memory")
    actions = with_savings([stop], freed_gpus, price)
    return ENGINE_IDLE.finding(
        parameters=parameters,
        evidence=tuple(evidence),
        actions=actions,
        confidence=_sureness_of_rest(case),
        began_s=case.now_s - quiet_s,
    )


def _sureness_of_rest(case: Case) -> Confidence:
    """How sure it is that no request runs: counters alone stand still beside one that takes long, too, and a gauge
    alone misses those between two polls."""
    is_sure = case.newest("running") is not None and _counts_work(case)
    return Confidence.HIGH if is_sure else Confidence.MEDIUM


def _counts_work(case: Case) -> bool:
    """Whether the engine counts tokens or requests, so that what comes and goes between two polls is known."""
    return case.unmoved_s(WORK_TOTALS) is not None


def _rest_evidence(case: Case, quiet_s: float) -> Evidence:
    """Evidence that no request runs: the engine's own number, else for how long it has counted nothing."""
    if case.newest("running") is None:
        return case.evidence(NO_REQUEST, quiet_s)
    return case.evidence(RUNNING, 0.0)


FEW_REQUESTS: Final = Cause(
    "few_requests",
    Limit.LOW_EFFICIENCY,
    (
        "[{mfu:percent} MFU|{tensor:percent} tensor activity], [{running:requests} of "
        "{slots:requests} slots in use|{running:requests} running, room for "
        "{kv_requests:requests}][: this traffic fits on {needed:count} of {gpus:gpus}][, "
        "{cost:money} idle][, in bursts every {period:seconds}]" + _RESTARTED
    ),
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)


def _low_use_finding(case: Case, engine: Engine, low_use: LowUse) -> Finding:
    """The finding on low use: `15% MFU at 6 of 48 slots: this traffic fits on 2 of 8 GPUs, 14.9 $/h idle`."""
    room = low_use.room
    running = low_use.running
    parameters = low_use.parameters | _restarted(case)
    if room == case.slots():
        parameters |= params(slots=room.number)
    else:
        parameters |= params(kv_requests=room.number)
    advised = _advised(case, engine, running)
    evidence = (
        case.evidence(RUNNING, running, limit=room.number, window_s=_use_window_s(case)),
        CAPACITY.evidence(room.number, source=room.source),
        *_low_use_evidence(case, low_use),
        *advised.evidence,
    )
    return FEW_REQUESTS.finding(parameters | advised.parameters, evidence, advised.actions)


def _low_use_evidence(case: Case, low_use: LowUse) -> Iterator[Evidence]:
    """Evidence of little arithmetic and little bandwidth: MFU and MBU, or what its GPUs measure in their place."""
    limit = case.thresholds.under_used_mfu_ratio
    if low_use.is_mfu:
        yield case.evidence(MFU, low_use.arithmetic, limit=limit)
    else:
        yield case.gpu_evidence(TENSOR_ACTIVE, low_use.arithmetic, limit=limit)
    limit = case.thresholds.under_used_mbu_ratio
    if low_use.is_mbu:
        yield case.evidence(MBU, low_use.reads, limit=limit)
    else:
        yield case.gpu_evidence(DRAM_ACTIVE, low_use.reads, limit=limit)


class _Advised(NamedTuple):
    """Actions against few requests, with the figures and the evidence that it is derived from."""

    actions: tuple[Action, ...]
    parameters: Parameters
    evidence: tuple[Evidence, ...] = ()


def _advised(case: Case, engine: Engine, running: float) -> _Advised:
    """Fewer GPUs where they are enough; requests that come sooner where they come in bursts; else more requests."""
    fewer_gpus = _fewer_gpus(case, engine, running)
    if fewer_gpus is not None:
        return _advised_fewer_gpus(case, engine, fewer_gpus)
    with_narrow_weights = _fewer_gpus_by_precision(case, engine, running)
    if with_narrow_weights is not None:
        freed_gpus = with_narrow_weights.gpus_now - with_narrow_weights.needed
        return _Advised(with_savings([with_narrow_weights.action], freed_gpus, _price_per_hour(case, engine)), {})
    rhythm = rhythm_of(case)
    if rhythm is not None:
        drops = rhythm.add_to(case.gpu_evidence(BUSY_DROPS, rhythm.lower))
        actions = (SEND_EARLIER.action(period=rhythm.period_s), SHARE_GPU.action())
        return _Advised(actions, params(period=rhythm.period_s), (drops,))
    return _Advised((MORE_REQUESTS.action(), SHARE_GPU.action()), {})


def _advised_fewer_gpus(case: Case, engine: Engine, fewer: _FewerGpus) -> _Advised:
    """Fewer GPUs, and what they would save where this engine's verdict is the one that says it."""
    if not fewer.needed:
        return _Advised((fewer.action,), {})
    needed = float(fewer.needed)
    gpus = float(fewer.gpus_now)
    parameters = params(needed=needed, gpus=gpus)
    evidence = [GPUS_NEEDED.evidence(needed, limit=gpus, source="capacity, weights, KV and use")]
    price = _price_per_hour(case, engine)
    saved = (price or 0.0) * (gpus - needed)
    if saved:
        parameters |= params(cost=saved)
        evidence.append(COST_PER_HOUR.evidence(saved, source="config", parameters=params(gpus=gpus)))
    return _Advised(with_savings([fewer.action], gpus - needed, price), parameters, tuple(evidence))


Siblings = Sequence[tuple[Engine, EngineReading]]
"""Engines of one model, each with its reading."""


class _FewerGpus(NamedTuple):
    """Advice to serve the traffic of a model with fewer GPUs than it has."""

    needed: int
    """0: another replica's verdict says it, which the action names."""
    gpus_now: int
    """GPUs that it has."""
    action: Action


def _gpus_of_others(case: Case, keys: set[str]) -> set[str]:
    """UUIDs of GPUs that engines other than these (keys) run on: they do not become free."""
    uuids: set[str] = set()
    for reading in case.frame.engines:
        if reading.key not in keys and reading.state in _HOLDS_GPUS and reading.kind not in FRONTENDS:
            uuids.update(reading.gpus)
    return uuids


def _gpus_to_free(case: Case, engine: Engine) -> int:
    """GPUs that an idle engine keeps from others: those whole ones that nothing else is at work on."""
    if not case.gpus:
        return round(min(finite(engine.hardware.gpu_count) or 0.0, 1e6))
    used = _gpus_of_others(case, {engine.key})
    count = 0
    for gpu in case.gpus:
        if not gpu.reading.parent_uuid and gpu.reading.uuid not in used and not _was_awake(case, gpu):
            count += 1
    return count


def _was_awake(case: Case, gpu: Gpu) -> bool:
    """Whether a GPU did something at least half of the last minutes."""
    recent = case.recents.get(gpu.reading.uuid)
    return recent is not None and (recent.mean("awake", KEPT_S) or 0.0) >= 0.5


def _fewer_gpus(case: Case, engine: Engine, running: float) -> _FewerGpus | None:
    """Fewer instances of the model where it has several, else fewer GPUs for its one; None where it needs all."""
    siblings = replicas_of(case, engine)
    keys: set[str] = set()
    gpus: set[str] = set()
    for sibling, reading in siblings:
        keys.add(sibling.key)
        gpus.update(reading.gpus)
    if engine.hardware.ranks > 1 or not _gpus_of_others(case, keys).isdisjoint(gpus):
        return None
    if len(siblings) == 1:
        return _fewer_gpus_of_instance(case, engine, running)
    return _fewer_instances(case, engine, siblings, gpus)


def _fewer_instances(case: Case, engine: Engine, siblings: Siblings, gpus: Collection[str]) -> _FewerGpus | None:
    """The instances of the model that its traffic needs; None where it needs all, or where that is not known."""
    size = _common_size(case, siblings, gpus)
    load = _load_of(case, siblings)
    if not size or load is None:
        return None
    # One that has slowed down has no room to spare.
    if any(Limit.SLOWED_DOWN in case.recents[sibling.key].found_limits for sibling, _ in siblings):
        return None
    use = _use_of_replicas(case, engine, siblings)
    slots = min(low_use.room.number for _, low_use in use.low_used)
    instances_needed = _instances_needed(case, use, load, slots)
    if instances_needed is None:
        return None
    without_gpus = sum(not reading.gpus for _, reading in siblings)
    gpus_now = round(size * without_gpus + len(gpus))
    needed = math.ceil(instances_needed * gpus_now / len(siblings))
    if needed >= gpus_now:
        return None
    first, _ = use.low_used[0]
    if first.key != engine.key:  # all of them find the same: the first names it
        return _FewerGpus(needed=0, gpus_now=gpus_now, action=SEE_REPLICA.action(replica=first.name))
    count = float(len(siblings))
    stop = STOP_INSTANCES.action(stop=count - instances_needed, instances=count, seconds=_use_window_s(case))
    return _FewerGpus(needed, gpus_now, stop)


def _common_size(case: Case, siblings: Siblings, gpus: Collection[str]) -> float | None:
    """GPUs of each of these engines; None where they differ, in number or type, or are not known."""
    sizes = {len(reading.gpus) or finite(engine.hardware.gpu_count) for engine, reading in siblings}
    types = {engine.hardware.gpu_type for engine, reading in siblings if not reading.gpus}
    types |= {gpu.gpu_type for gpu in case.snapshot.gpus if gpu.reading.uuid in gpus}
    if len(sizes) == 1 and len(types) <= 1:
        return sizes.pop()
    return None


def _load_of(case: Case, siblings: Siblings) -> float | None:
    """Mean requests that run on these engines together; None where one does not tell."""
    recents = [case.recents.get(engine.key) for engine, _ in siblings]
    means = [None if recent is None else recent.mean("running", _use_window_s(case)) for recent in recents]
    return sum_of_all(map(finite, means))


class _UseOfReplicas(NamedTuple):
    """Use of the replicas of a model."""

    low_used: Sequence[tuple[Case, LowUse]]
    """Replicas with low use, each with its case."""
    arithmetic: float | None
    """MFU of all of them in sum, or tensor activity where that is not known; None where neither is of one."""
    kv_reads: float | None
    """Shares of their bandwidth that go with their traffic in sum: reads of KV cache, or all that GPUs measure where
    these are not known; None where neither is of one."""


def _use_of_replicas(case: Case, engine: Engine, siblings: Siblings) -> _UseOfReplicas:
    """The use of all replicas, worked out once in a sample of the host, as many of them may ask."""
    worked_out = case.host_recent.worked_out
    key = ("use of replicas", *(sibling.key for sibling, _ in siblings))
    if key in worked_out:
        cached: _UseOfReplicas = worked_out[key]
        return cached
    low_used: list[tuple[Case, LowUse]] = []
    arithmetic: list[float | None] = []
    kv_reads: list[float | None] = []
    for replica in replica_cases(case, engine):
        low_use = _judged_low_use(replica)
        if low_use is not None:
            low_used.append((replica, low_use))
        arithmetic.append(_arithmetic_share(replica))
        kv_reads.append(_kv_reads_share(replica))
    use = _UseOfReplicas(low_used, sum_of_all(arithmetic), sum_of_all(kv_reads))
    worked_out[key] = use
    return use


def _arithmetic_share(replica: Case) -> float | None:
    """MFU of a replica, else its tensor activity; None where neither is known."""
    if replica.engine is None:
        return None
    return first_known(_share_of_peak(replica.engine.efficiency.mfu_ratio), replica.activity().tensor)


def _kv_reads_share(replica: Case) -> float | None:
    """Share of its bandwidth at which a replica reads its KV cache, else all that its GPUs measure; None where neither
    is known."""
    if replica.engine is None:
        return None
    efficiency = replica.engine.efficiency
    mbu = _share_of_peak(efficiency.mbu_ratio)
    reads = finite(efficiency.bytes_per_s)
    kv_reads = finite(efficiency.kv_bytes_per_s)
    kv_share = mbu * min(kv_reads / reads, 1.0) if mbu is not None and kv_reads is not None and reads else None
    return first_known(kv_share, replica.activity().dram, mbu)


def _share_of_peak(ratio: Reading) -> float | None:
    """MFU or MBU of now, at most 1: none while the engine idles; None where it is not known."""
    if isinstance(ratio, Missing) and ratio.reason is Reason.IDLE:
        return 0.0
    share = finite(ratio)
    return None if share is None else min(share, 1.0)


def _instances_needed(case: Case, use: _UseOfReplicas, running: float, slots: float) -> int | None:
    """ceil(running / (slots of an instance x planning share)) instances, and as many more as their chips need; None
    where it is not known what these do.

    Arithmetic and KV reads go with the traffic; weights are read once for all sequences of a batch.
    """
    if use.arithmetic is None or use.kv_reads is None:
        return None
    wanted = running / (slots * max(case.thresholds.planning_ratio, 0.01))
    needed = max(wanted, use.arithmetic / _MOST_PLANNED_SHARE, use.kv_reads / _MOST_PLANNED_SHARE)
    # A whole number is not rounded up for the last digit of its division; the bound keeps nonsense countable.
    return max(1, math.ceil(min(needed, 1e6) - 1e-9))


def _fewer_gpus_of_instance(case: Case, engine: Engine, running: float) -> _FewerGpus | None:
    """One instance of fewer GPUs; None where it needs all."""
    gpus_now = len(case.gpus)
    needed = _gpus_needed(case, engine, running)
    if needed is None or needed >= gpus_now:
        return None
    split = _split_parameters(engine, gpus_now, needed)
    return _FewerGpus(needed, gpus_now, FEWER_GPUS.action(**split | params(seconds=_use_window_s(case))))


def _gpus_needed(case: Case, engine: Engine, running: float, weights_ratio: float = 1.0) -> int | None:
    """GPUs that one instance needs: halved as long as memory and the chips allow; None where its use is not known.

    `weights_ratio` is the size of the weights beside that of now.
    """
    gpus_now = len(case.gpus)
    mfu = case.mean("mfu_ratio")
    mbu = case.mean("mbu_ratio")
    if mfu is None or mbu is None:
        return None
    if weights_ratio < 1.0:
        weight_reads = finite(engine.efficiency.weight_bytes_per_s)
        reads = finite(engine.efficiency.bytes_per_s)
        if weight_reads is None or not reads:
            return None
        mbu *= 1.0 - min(weight_reads / reads, 1.0) * (1.0 - weights_ratio)
    needed = gpus_now
    while needed and needed % 2 == 0:
        half = needed // 2
        busiest_share = max(mfu, mbu) * gpus_now / half
        is_fast = _serves_single_requests(case, engine, gpus_now / half, running)
        if busiest_share > _MOST_PLANNED_SHARE and not is_fast:
            break
        if not fits(case, engine, half, running, weights_ratio):
            break
        needed = half
    return needed


def _serves_single_requests(case: Case, engine: Engine, times: float, running: float) -> bool:
    """Whether an engine that runs about one request at a time has steps that nobody notes, on `times` fewer GPUs.

    Then its reads are no limit: a second request shares them.
    """
    if running > _SINGLE_REQUESTS:
        return False
    reads_s = step_reads_s(case, engine)
    if reads_s is None:
        return False
    goal_s = case.goals.token_s or _UNNOTICED_ITL_S
    return times * reads_s <= _SHARE_OF_GOAL * goal_s


def _fewer_gpus_by_precision(case: Case, engine: Engine, running: float) -> _FewerGpus | None:
    """Fewer GPUs for the one instance of a model once its weights take half the bytes; None where they are narrow
    already, or it needs all GPUs even so."""
    smaller_weights = quantise(engine)
    is_alone = len(replicas_of(case, engine)) == 1 and engine.hardware.ranks <= 1
    if not smaller_weights or not is_alone:
        return None
    if case.reading is None or not _gpus_of_others(case, {engine.key}).isdisjoint(case.reading.gpus):
        return None
    gpus_now = len(case.gpus)
    needed = _gpus_needed(case, engine, running, _NARROW_WEIGHTS_RATIO)
    if needed is None or needed >= gpus_now:
        return None
    narrow = smaller_weights[0]
    parameters = narrow.parameters | _split_parameters(engine, gpus_now, needed) | params(fits_on=float(needed))
    return _FewerGpus(needed, gpus_now, Action(narrow.code, parameters))


def _split_parameters(engine: Engine, gpus_now: int, needed: int) -> Parameters:
    """Options that split the model over fewer GPUs: fewer stages first, as they only add to the latency."""
    words = advice(engine.kind)
    tp_now = engine.hardware.tp
    stages = gpus_now // tp_now if tp_now else 1
    if stages < 2:
        return params(tp_flag=words.tp, tp_to=float(needed))
    tp = min(tp_now, needed)
    split = params(pp_flag=words.pp, pp=float(stages), pp_to=float(max(1, needed // tp)))
    if tp < tp_now:
        split |= params(tp_flag=words.tp, tp_to=float(tp))
    return split


def fits(case: Case, engine: Engine, gpus: int, running: float, weights_ratio: float = 1.0) -> bool | None:
    """Whether an instance fits on so many GPUs of its kind: its weights and the KV cache of `running` requests.

    `weights_ratio` is the size of the weights beside that of now. None where it is not known.
    """
    llm = engine.dimensions.llm
    if llm is None:
        return None
    weights = finite(llm.stored_bytes or llm.read_bytes)
    vram = min((finite(gpu.reading.vram_total_bytes) or 0.0 for gpu in case.gpus), default=0.0)
    if not weights or not vram:
        return None
    room = gpus * (RESERVED_RATIO * vram - OVERHEAD_BYTES) - weights * weights_ratio
    kv = finite(engine.dimensions.kv_bytes_per_token)
    context = finite(engine.load.context_tokens)
    if room < 0.0:
        return False
    if kv is None or context is None:
        return None
    return running * kv * context <= room * case.thresholds.planning_ratio


def _price_per_hour(case: Case, engine: Engine) -> float | None:
    """Price of one of its GPUs; None if none is given, or it has but a MIG slice of one."""
    if any(gpu.reading.parent_uuid for gpu in case.gpus):
        return None
    kinds = {gpu.gpu_type for gpu in case.gpus} or {engine.hardware.gpu_type}
    prices = []
    for kind in kinds:
        price = price_of_hour(kind, case.prices)
        if isinstance(price, Missing):
            return None
        prices.append(price)
    return finite(sum(prices) / len(prices))


ASLEEP: Final = Cause(
    "asleep",
    Limit.ASLEEP,
    "asleep on purpose[: {how}]",
    level=Level.OK,
)


def healthy(case: Case) -> Finding | None:
    """Rule: nothing holds an engine back and nothing is wrong: how much more traffic until the next limit."""
    engine = case.serving_engine()
    if engine is None or case.found_limits:
        return None
    if engine.asleep:
        how = params(how=engine.asleep)
        return ASLEEP.finding(
            parameters=how,
            evidence=(ASLEEP_FIGURE.evidence(parameters=how),),
        )
    if _rests(case):
        return with_replica_comparison(case, _ready_finding(case))
    if engine.rates.decode_tokens_per_s == NO_TOKENS:  # such models have neither requests nor MFU
        return None
    return _working_finding(case, engine)


def _working_finding(case: Case, engine: Engine) -> Finding | None:
    """The finding on an engine that works: its figures allow no answer, it is still judged, or it has room."""
    activity = case.activity()
    if idle_s(case) is None:
        unsure_finding = _unsure_finding(case, engine, activity)
        if unsure_finding is not None:
            return unsure_finding
    running = engine.load.running
    if isinstance(running, Missing) and running.reason in PASSING:
        return None
    finding = _under_evaluation(case, engine) or _roomy_finding(case, activity)
    return None if finding is None else with_replica_comparison(case, finding)


def _healthy_level(case: Case) -> Level:
    """A note where it restarted a moment ago, so that somebody sees it."""
    return Level.OK if case.restart_age_s is None else Level.NOTE


def _restarted(case: Case) -> Parameters:
    """When it restarted, as parameters of `_RESTARTED`; empty where that was not a moment ago."""
    return params(restarted=case.restart_age_s)


def _rests(case: Case) -> bool:
    """Whether an engine rests, or has single requests now and then: then it is ready, and not judged by its work.

    What it was called a moment ago stands, as rest and work take turns from one request to the next: with headroom it
    goes on to be judged by its work until it counts as idle, and ready it stays until it gets more than a few requests.
    """
    quiet_s = idle_s(case)
    standing_cause = _healthy_cause(case)
    if standing_cause == "headroom":
        return quiet_s is not None and quiet_s >= case.thresholds.idle_s
    if quiet_s is not None:
        return True
    running = case.mean("running", _use_window_s(case))
    if running is None:
        return False
    most = _FREQUENT_REQUESTS if standing_cause == "ready" else _RARE_REQUESTS
    return running < most


def _healthy_cause(case: Case) -> str:
    """Cause with which the engine was called healthy a moment ago; empty: it was not."""
    stood = case.stood.get(Family.USE)
    if stood is None or stood.code is not Limit.HEALTHY:
        return ""
    return stood.cause


READY: Final = Cause(
    "ready",
    Limit.HEALTHY,
    (
        "ready, [a request now and then ({running:requests} run on average)|{unseen=yes}a request now and "
        "then|no request right now]" + _RESTARTED
    ),
)


def _ready_finding(case: Case) -> Finding:
    """The finding on an engine that is well and rests. The mean of what it ran is told of single requests alone: a
    large one is of work that is over."""
    level = _healthy_level(case)
    quiet_s = idle_s(case)
    running = case.mean("running", _use_window_s(case)) or 0.0
    if quiet_s is not None and not 0.0 < running < _FREQUENT_REQUESTS:
        evidence = _rest_evidence(case, quiet_s)
        return READY.finding(_restarted(case), (evidence,), level=level, confidence=_sureness_of_rest(case))
    evidence = case.evidence(RUNNING, running, window_s=_use_window_s(case))
    parameters = _restarted(case) | params(running=running or None, unseen=yes_if(running == 0.0))
    return READY.finding(parameters, (evidence,), level=level)


def _unsure_finding(case: Case, engine: Engine, activity: GpuActivity) -> Finding | None:
    """The finding that an engine cannot be called healthy: figures are missing, or contradict each other."""
    unknown = missing_limit_signals(engine, activity)
    # The other signals are named only beside one that is needed: they alone leave no doubt.
    if any(signal.code in _NEEDED_SIGNALS for signal in unknown):
        return unsure(unknown)
    quiet_s = case.unmoved_s(TOKEN_TOTALS)
    if quiet_s is not None and quiet_s >= case.thresholds.stalled_s / 2 and activity.tensor is None:
        # A long prefill hides the arithmetic: its tokens count at its end, and MFU shows none of it until then. From
        # half the time of a stall on the finding says so.
        return unsure((Signal("arithmetic", fix="needs_hopper", parameters=params(seconds=quiet_s)),))
    if engine.contradicts:
        return unsure((Signal("believable", fix="doctor"),), engine.contradicts)
    return None


def _under_evaluation(case: Case, engine: Engine) -> Finding | None:
    """The finding on an engine that does little, until it was sampled for long enough to judge that; else None."""
    if _unsampled_s(case) <= 0.0:
        return None
    low_use = _low_use(case, engine)
    if low_use is None:
        return None
    return _evaluating_finding(case, low_use.parameters | _restarted(case))


def _roomy_finding(case: Case, activity: GpuActivity) -> Finding | None:
    """The finding on an engine that nothing holds back: its headroom, unless a GPU was slowed down lately, and a time
    to first token that has grown."""
    finding = _headroom_finding(case, activity)
    if finding is None:
        return None
    parameters = dict(finding.parameters)
    if any(slowed_lately(case.recents[gpu.reading.uuid], case.thresholds) for gpu in case.gpus):
        parameters.pop("headroom", None)
    parameters |= _restarted(case)
    growth = case.grown_ttft_s()
    if growth is not None:
        now_s, before_s = growth
        parameters |= params(ttft=now_s, ttft_before=before_s)
    return finding._replace(parameters=parameters, level=_healthy_level(case))


EVALUATING: Final = Cause(
    "evaluating",
    Limit.EVALUATING,
    (
        "low use so far ([{mfu:percent} MFU|{tensor:percent} tensor activity][, {running:requests} "
        "running]): utilisation verdict in "
        "{evaluating:count} min" + _RESTARTED
    ),
    level=Level.OK,
)


def _evaluating_finding(case: Case, parameters: Parameters) -> Finding:
    """The finding on an engine that does little so far, with the time until that is judged."""
    minutes = float(max(1, math.ceil((_unsampled_s(case) + case.thresholds.hold_s) / 60.0)))
    evidence = (EVALUATING_FIGURE.evidence(minutes * 60.0),)
    return EVALUATING.finding(
        parameters=parameters | params(evaluating=minutes),
        evidence=evidence,
    )


HEADROOM: Final = Cause(
    "headroom",
    Limit.HEALTHY,
    (
        "[{nearest:quantity} at {share:percent}|{running:requests} of {slots:requests} slots|no "
        "request right now][: headroom {headroom:factor} to {full:percent}|: headroom "
        "{headroom:factor}][; TTFT {ttft:latency}, {ttft_before:latency} in the minutes before]" + _RESTARTED
    ),
    level=Level.OK,
    confidence=Confidence.MEDIUM,
)


def _headroom_finding(case: Case, activity: GpuActivity) -> Finding | None:
    """How much more traffic until each limit that is known, the nearest first; between two requests by the minutes
    before."""
    quiet_s = idle_s(case)
    seconds = NOW_S
    if quiet_s is not None:
        seconds = _use_window_s(case)
        activity = case.activity(seconds)
    distances = [
        *_kv_distance(case, seconds),
        *_slots_distance(case, seconds),
        *_bandwidth_distance(case, activity, seconds),
        *_compute_distance(case, activity, seconds),
    ]
    if not distances and quiet_s is not None:
        return HEADROOM.finding({}, (_rest_evidence(case, quiet_s),), confidence=_sureness_of_rest(case))
    if not distances:
        return None
    distances.sort(key=lambda distance: distance.factor)
    nearest = distances[0]
    headroom = nearest.factor if nearest.factor < _LEAST_UNWRITTEN else None
    parameters = nearest.parameters | params(headroom=headroom)
    evidence = tuple(distance.evidence for distance in distances)
    return HEADROOM.finding(
        parameters=parameters,
        evidence=evidence,
    )


class _Distance(NamedTuple):
    """How far it is to a limit."""

    factor: float
    """Traffic at the limit / traffic of now."""
    parameters: Parameters
    evidence: Evidence


def _headroom_factor(value: float, limit: float) -> float:
    """`limit / value`, and at least 1: a verdict that nothing holds it back does not tell it to slow down."""
    return min(max(limit / value, 1.0), MOST_HEADROOM)


def _kv_distance(case: Case, seconds: float) -> Iterator[_Distance]:
    """Distance to a full KV cache."""
    usage = case.mean("kv_usage_ratio", seconds)
    if usage:
        evidence = case.evidence(KV_USAGE, usage, limit=1.0)
        parameters = params(nearest="KV", share=usage, full=1.0)
        yield _Distance(_headroom_factor(usage, 1.0), parameters, evidence)


def _slots_distance(case: Case, seconds: float) -> Iterator[_Distance]:
    """Distance to as many requests as may run at once."""
    running = case.mean("running", seconds)
    slots = case.slots()
    if running and slots is not None:
        evidence = case.evidence(RUNNING, running, limit=slots.number)
        parameters = params(running=running, slots=slots.number)
        yield _Distance(_headroom_factor(running, slots.number), parameters, evidence)


def _bandwidth_distance(case: Case, activity: GpuActivity, seconds: float) -> Iterator[_Distance]:
    """Distance to full memory bandwidth: a measured one outweighs MBU, as it does where it is the limit."""
    if activity.dram is None:
        limit = case.thresholds.bandwidth_mbu_ratio
        mbu = case.mean("mbu_ratio", seconds)
        if mbu:
            evidence = case.evidence(MBU, mbu, limit=limit)
            parameters = params(nearest="MBU", share=mbu, full=limit)
            yield _Distance(_headroom_factor(mbu, limit), parameters, evidence)
        return
    limit = case.thresholds.bandwidth_dram_ratio
    if activity.dram:
        evidence = case.gpu_evidence(DRAM_ACTIVE, activity.dram, limit=limit)
        parameters = params(nearest="DRAM", share=activity.dram, full=limit)
        yield _Distance(_headroom_factor(activity.dram, limit), parameters, evidence)


def _compute_distance(case: Case, activity: GpuActivity, seconds: float) -> Iterator[_Distance]:
    """Distance to full arithmetic: by MFU at the clock of now, else by the tensor cores."""
    mfu = case.mean("mfu_ratio", seconds)
    if mfu is None:
        limit = case.thresholds.compute_tensor_ratio
        if activity.tensor:
            evidence = case.gpu_evidence(TENSOR_ACTIVE, activity.tensor, limit=limit)
            parameters = params(nearest="tensor cores", share=activity.tensor, full=limit)
            yield _Distance(_headroom_factor(activity.tensor, limit), parameters, evidence)
        return
    if mfu:
        clock_share = _clock_share(case)
        lowered_clock = clock_share if clock_share < _FULL_CLOCK else None
        limit = case.thresholds.compute_mfu_ratio * (lowered_clock or 1.0)
        evidence = case.evidence(MFU, mfu, limit=limit, clock=lowered_clock)
        parameters = params(nearest="MFU", share=mfu, full=limit)
        yield _Distance(_headroom_factor(mfu, limit), parameters, evidence)


def _clock_share(case: Case) -> float:
    """SM clock of its slowest GPU that is held or at work, as a share of the highest: an idle one rests by itself."""
    shares = [1.0]
    for gpu in case.gpus:
        clock = case.gpu_mean(gpu, "sm_clock_hz")
        most = finite(gpu.reading.sm_clock_max_hz)
        busy = finite(gpu.reading.busy_ratio)
        is_held = any(reason in CLOCK_REASONS for reason in gpu.reading.throttle)
        if clock and most and (is_held or (busy or 0.0) >= case.thresholds.loaded_ratio):
            shares.append(clock / most)
    return min(shares)


TRAINING_LOW_MFU: Final = Cause(
    "training_low_mfu",
    Limit.LOW_EFFICIENCY,
    "MFU {mfu:percent}[ while its GPUs are {busy:percent} busy]",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)


def training_low(case: Case) -> Finding | None:
    """Rule: little MFU although nothing else was found that holds a training run back."""
    engine = _judged_training(case)
    if engine is None or _unsampled_s(case) > 0.0:
        return None
    unknown = missing_signal("mfu", engine.efficiency.mfu_ratio)
    if unknown is not None:
        return unsure((unknown,))
    seconds = _use_window_s(case)
    limit = case.thresholds.under_used_training_mfu_ratio
    mfu = case.mean("mfu_ratio", seconds)
    if mfu is None or mfu >= limit:
        return None
    activity = case.activity(seconds)
    evidence = _training_evidence(case, engine, mfu, limit)
    if activity.busy is not None:
        evidence.append(case.gpu_evidence(BUSY, activity.busy))
    if activity.tensor is not None:
        evidence.append(case.gpu_evidence(TENSOR_ACTIVE, activity.tensor))
    return TRAINING_LOW_MFU.finding(
        parameters=params(mfu=mfu, busy=activity.busy),
        evidence=tuple(evidence),
        actions=(_training_remedy(case, activity.busy).action(),),
    )


def _training_remedy(case: Case, busy: float | None) -> Remedy:
    """The action: GPUs that wait are profiled; busy ones get larger batches, if their memory has room."""
    if busy is None or busy < case.thresholds.communication_busy_ratio:
        return PROFILE_STEPS
    if _is_memory_full(case):
        return FASTER_KERNELS
    return LARGER_MICRO_BATCH


def _is_memory_full(case: Case) -> bool:
    """Whether a GPU's memory is nearly full, so that `memory_full` advises to use less of it."""
    for gpu in case.gpus:
        used = finite(gpu.reading.vram_used_bytes)
        total = finite(gpu.reading.vram_total_bytes)
        if used is not None and total and used >= case.thresholds.vram_note_ratio * total:
            return True
    return False


TRAINING: Final = Cause(
    "training",
    Limit.HEALTHY,
    "MFU {mfu:percent}[, {rate:amount} tok/s]" + _RESTARTED,
    level=Level.OK,
    confidence=Confidence.MEDIUM,
)


def training_well(case: Case) -> Finding | None:
    """Rule: an engine trains, and nothing was found."""
    engine = _judged_training(case)
    if engine is None:
        return None
    unknown = missing_signal("mfu", engine.efficiency.mfu_ratio)
    if unknown is not None:
        return unsure((unknown,))
    mfu = case.mean("mfu_ratio")
    limit = case.thresholds.under_used_training_mfu_ratio
    if mfu is None:
        return None
    parameters: Parameters = params(mfu=mfu, rate=finite(engine.rates.trained_tokens_per_s) or None)
    if _may_be_held_back(case, limit) and (_unsampled_s(case) > 0.0 or _was_sampled_coarsely(case)):
        return _evaluating_finding(case, parameters)
    evidence = tuple(_training_evidence(case, engine, mfu, limit))
    return TRAINING.finding(
        parameters=parameters,
        evidence=evidence,
    )


def _may_be_held_back(case: Case, least_mfu: float) -> bool:
    """Whether a training run has little MFU so far, or GPUs that wait: what for takes a minute or two to be found."""
    seconds = _use_window_s(case)
    mfu = case.mean("mfu_ratio", seconds)
    busy = case.activity(seconds).busy
    return (mfu is not None and mfu < least_mfu) or (busy is not None and busy < NEARLY_ALWAYS_BUSY)


def _was_sampled_coarsely(case: Case) -> bool:
    """Whether samples of a GPU came more seldom before than they do now, as in a past that was recorded: waits of
    seconds are not seen in those."""
    if not case.gpus:
        return False
    samples = case.recents[case.gpus[0].reading.uuid].values("busy_ratio", _use_window_s(case))
    if len(samples) < 2:
        return False
    last_s = samples[-1][0]
    interval_s = last_s - samples[-2][0]
    return interval_s * len(samples) < _LEAST_DENSITY * (last_s - samples[0][0])


def _judged_training(case: Case) -> Engine | None:
    """The training run, if its metrics answer and nothing was found that holds it back."""
    engine = case.engine
    if (
        engine is None
        or engine.phase is not Phase.TRAINING
        or engine.state is not EndpointState.OK
        or case.found_limits
    ):
        return None
    return engine


def _training_evidence(case: Case, engine: Engine, mfu: float, limit: float) -> list[Evidence]:
    """Evidence of a run: its MFU beside a limit, and its rates of tokens and samples."""
    evidence = [case.evidence(MFU, mfu, limit=limit)]
    for quantity in (TOKEN_RATE, SAMPLE_RATE):
        rate = finite(value_of(engine, quantity.field))
        if rate:
            evidence.append(case.evidence(quantity, rate))
    return evidence
