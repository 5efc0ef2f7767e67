"""Rules on requests that wait although the engine has room for them: the scheduler's limits, and bursts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Action, Confidence, Evidence, Limit, Parameters, Signal, Team
from gpumon.triage.advice import advice
from gpumon.triage.demand import turned_away
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, yes_if
from gpumon.triage.host import profile_action
from gpumon.triage.kv_cache import KV_ROOM, more_kv
from gpumon.triage.parallel import links_are_full
from gpumon.triage.progress.tokens import gives_no_tokens
from gpumon.triage.replicas import with_roomy_replicas
from gpumon.triage.samples import KEPT_S
from gpumon.triage.saturation import (
    MOSTLY,
    arithmetic_is_full,
    arithmetic_was_full,
    bandwidth_is_full,
    queued_share,
    while_waiting,
)
from gpumon.triage.sentences import (
    BUSY,
    KV_USAGE,
    MORE_FRONT_ENDS,
    MORE_INSTANCES,
    RAISE_SLOTS,
    RUNNING,
    SLOTS,
    SPARE,
    WAITING,
)
from gpumon.triage.signals import (
    FULL_SLOTS,
    FULL_SLOTS_BAND,
    MINUTE_S,
    NOW_S,
    PINNED_S,
    Case,
    GpuActivity,
    Slots,
    actions_for_missing,
    finite,
    kv_requests,
    missing_bandwidth,
    missing_compute,
    missing_signal,
    present_signals,
)

MORE_INSTANCES_NO_KV: Final = Remedy(
    "more_instances_no_kv", "more instances[ on free {free}]: the KV cache has no room for a higher {flag}"
)
MORE_INSTANCES_FOR_REST: Final = Remedy("more_instances_for_rest", "more instances[ on free {free}] for the rest")
FULL_STEPS: Final = 0.7
"""Share of the tokens that a step may have from which on its steps count as full: not each one takes a prompt in."""
HOST_WAIT: Final = 0.8
"""Busy share below which GPUs wait for the host: requests that then wait at no known limit are not the scheduler's."""
_MOST_SLOTS: Final = 2.0
"""Largest factor by which a setting is raised in one step: what comes then has to be seen first."""
_WORTH_RAISING: Final = 1.05
"""Times the running requests from which on a higher limit is worth advising: below it the KV cache is what is full."""
BURST: Final = 2.0
"""Times the mean number waiting that the most of 3 min must be, so that it is one of bursts."""


STEP_TOKENS: Final = Quantity("step_tokens", "at most {value:tokens} tokens in a step")
REJECTIONS: Final = Quantity("rejections", "{value:decimal} requests/s are turned away", field="rejections_per_s")
QUEUE_SHARE: Final = Quantity(
    "queue_share",
    "{value:percent} of the time to first token is queueing ({seconds:latency})",
    field="queue_s",
    limit="queue_ttft_ratio",
)
BIGGER_STEPS: Final = Remedy("bigger_steps", "raise {flag}, so that a step takes more prompts")
SMOOTH_BURSTS: Final = Remedy(
    "smooth_bursts", "let the client spread its requests, or limit how many it sends at once", team=Team.CLIENT
)


def queue(case: Case) -> Finding | None:
    """Rule: requests wait although KV cache, arithmetic and bandwidth have room: the scheduler holds them."""
    engine = case.serving_engine()
    if engine is None or not _requests_wait(case) or not _waits_long(case, engine):
        return None
    room = _what_has_room(case, engine, case.activity())
    if not room:
        return None
    if _slots_hold_them(case, engine):
        return _slots_finding(case, engine, room)
    if _missing_signals(case, engine, case.activity()) or _gpus_wait(case):
        return None  # another limit may be found; else `standing_queue` names this one
    return _steps_finding(case, engine, room)


def standing_queue(case: Case, engine: Engine) -> Finding | None:
    """The finding on a queue that no other rule explains; None without one: a queue that stands always has a name."""
    if not _requests_wait(case):
        return None
    room = _what_has_room(case, engine, case.activity())
    if _slots_hold_them(case, engine):
        return _slots_finding(case, engine, room)
    unknown = _missing_signals(case, engine, case.activity())
    if unknown and not _steps_are_full(case, engine):
        return QUEUE_UNMEASURED.finding(
            parameters=_queue_parameters(case, ""),
            evidence=_evidence_of_queue(case, engine),
            actions=(*actions_for_missing(unknown), MORE_INSTANCES.action()),
            missing=unknown,
        )
    if _gpus_wait(case):
        return _host_finding(case, engine)
    return _steps_finding(case, engine, room)


def _requests_wait(case: Case) -> bool:
    """Whether requests wait for room at an engine that gives tokens."""
    return case.waiting_mean() >= case.thresholds.queue_waiting and not gives_no_tokens(case)


def _slots_hold_them(case: Case, engine: Engine) -> bool:
    """Whether as many requests run as may. A limit that only shows itself needs to know that all else has room."""
    slots = case.likely_slots()
    is_guess = slots is None or slots.is_guess
    return case.is_pinned() and not (is_guess and _missing_signals(case, engine, case.activity()))


def _gpus_wait(case: Case) -> bool:
    """Whether its GPUs have pauses: what is waited for is then before them."""
    busy = case.activity().busy
    return busy is not None and busy < HOST_WAIT


def _steps_are_full(case: Case, engine: Engine) -> bool:
    """Whether its steps compute about as many tokens as a step may."""
    most_tokens = finite(engine.options.step_tokens)
    steps_per_s = finite(engine.rates.steps_per_s)
    if not most_tokens or not steps_per_s:
        return False
    ranks = max(1, engine.hardware.ranks)
    tokens_per_s = (case.mean("prefill_tokens_per_s") or 0.0) + (case.mean("decode_tokens_per_s") or 0.0)
    return tokens_per_s / steps_per_s >= FULL_STEPS * most_tokens * ranks


def _waits_long(case: Case, engine: Engine) -> bool:
    """Whether the queue is much of the time to the first token; also where that is not known.

    Engines observe the time in the queue as a request ends: of long answers those tell that came when fewer waited. So
    the queue counts for as long as it takes to empty, too (Little's law), if that is longer.
    """
    share = queued_share(engine)
    if share is None:
        return True
    least = case.thresholds.queue_ttft_ratio
    return max(share, _share_by_length(case, engine)) >= least


def _share_by_length(case: Case, engine: Engine) -> float:
    """Part of the time to the first token that a request waits which comes now, by the length of the queue."""
    ended_per_s = case.mean("requests_per_s", MINUTE_S)
    ttft_s = finite(engine.latency.ttft_s.mean)
    queued_s = finite(engine.latency.queue_s.mean)
    if not ended_per_s or ttft_s is None or queued_s is None:
        return 0.0
    wait_s = case.waiting_mean() / ended_per_s
    prefill_s = max(0.0, ttft_s - queued_s)
    return wait_s / (wait_s + prefill_s) if wait_s else 0.0


def _what_has_room(case: Case, engine: Engine, activity: GpuActivity) -> str:
    """Code of what has room left: `all`, or `weights` where it is the reads of the weights that are full; empty where
    nothing has, as over full links between its GPUs: more requests there wait for the same all-reduces."""
    if arithmetic_is_full(case, activity) or links_are_full(case):
        return ""
    if not bandwidth_is_full(case, activity):
        return "all"
    # Full bandwidth has room for sequences that the scheduler holds, as weights are most of the reads.
    if (case.is_pinned() or _steps_are_full(case, engine)) and _mostly_weights(engine):
        return "weights"
    return ""


def _mostly_weights(engine: Engine) -> bool:
    """Whether most of what it reads are weights, which more sequences share."""
    weights = finite(engine.efficiency.weight_bytes_per_s)
    reads = finite(engine.efficiency.bytes_per_s)
    return bool(weights and reads and weights >= MOSTLY * reads)


def _missing_signals(case: Case, engine: Engine, activity: GpuActivity) -> tuple[Signal, ...]:
    """Signals without which another limit cannot be ruled out."""
    signals = [missing_compute(engine, activity), missing_bandwidth(engine, activity)]
    if case.mean("kv_usage_ratio") is None:
        signals.append(missing_signal("kv_usage", engine.load.kv_usage_ratio))
    return present_signals(signals)


def _evidence_of_queue(case: Case, engine: Engine) -> tuple[Evidence, ...]:
    """Figures that show the queue, and what else is full or not."""
    evidence = _evidence_of_waiting(case, engine, case.waiting_mean(), queued_share(engine))
    usage = case.mean("kv_usage_ratio")
    if usage is not None:
        evidence.append(case.evidence(KV_USAGE, usage, limit=case.thresholds.kv_full_ratio))
    return (*evidence, *case.work_evidence(case.activity()), *case.late_latencies())


QUEUE_SLOTS: Final = Cause(
    "queue_slots",
    Limit.QUEUE_LIMIT,
    (
        "{waiting:wait} while {running:requests} run[ of {slots:requests}[ ({flag} "
        "{of_rank:count})|{assumed=yes}, its default, as nobody tells another]]: [KV cache at "
        "{usage:percent}, ][{room=weights}its GPUs have room for a larger batch|{room=unmeasured}compute "
        "and bandwidth are not measured|{room=all}its GPUs have room for a larger batch|no slot is free]" + SPARE
    ),
)


def _slots_finding(case: Case, engine: Engine, room: str) -> Finding:
    """The finding on a queue behind as many requests as may run; `room` is as `_what_has_room` returns it."""
    slots = case.likely_slots()
    unknown = _missing_signals(case, engine, case.activity())
    if unknown:
        room = "unmeasured"
    parameters = _queue_parameters(case, room) | _slots_parameters(engine, slots, case.slots_taken() or 0.0)
    is_sure = slots is not None and not slots.is_assumed and queued_share(engine) is not None and not unknown
    finding = QUEUE_SLOTS.finding(
        parameters=parameters,
        evidence=_evidence_of_queue(case, engine),
        actions=more_slots(case, engine, case.mean("running") or 0.0, case.waiting_mean()),
        confidence=Confidence.HIGH if is_sure else Confidence.MEDIUM,
        missing=unknown,
    )
    return with_roomy_replicas(case, finding, "running")


def _slots_parameters(engine: Engine, slots: Slots | None, taken: float) -> Parameters:
    """The slots and the option that sets them, for a sentence; of a default that is not reached nothing."""
    if slots is None or taken < FULL_SLOTS * slots.number - slots.number * FULL_SLOTS_BAND:
        return {}
    flag = advice(engine.kind).slots
    ranks = max(1, engine.hardware.ranks)
    return params(
        slots=slots.number,
        flag=flag if flag.startswith("-") and not slots.is_assumed else None,
        of_rank=slots.number / ranks,
        assumed=yes_if(slots.is_assumed),
    )


QUEUE_STEPS: Final = Cause(
    "queue_steps",
    Limit.QUEUE_LIMIT,
    (
        "{waiting:wait}[ while {running:requests} run]: [KV cache at {usage:percent}, "
        "][{room=weights}its GPUs have room for a larger batch|{room=all}its GPUs have room for a larger "
        "batch|its steps take too few prompts in]" + SPARE
    ),
    confidence=Confidence.MEDIUM,
)


def _steps_finding(case: Case, engine: Engine, room: str) -> Finding:
    """The finding on a queue at no limit of requests: steps take too few prompts in."""
    most_tokens = finite(engine.options.step_tokens)
    parameters = _queue_parameters(case, room)
    evidence = _evidence_of_queue(case, engine)
    if most_tokens:
        evidence = (*evidence, STEP_TOKENS.evidence(most_tokens, source=engine.options.sources["step_tokens"]))
    finding = QUEUE_STEPS.finding(
        parameters=parameters,
        evidence=evidence,
        actions=(BIGGER_STEPS.action(flag=advice(engine.kind).budget), MORE_INSTANCES.action()),
    )
    return with_roomy_replicas(case, finding, "running")


QUEUE_HOST: Final = Cause(
    "queue_host",
    Limit.QUEUE_LIMIT,
    (
        "{waiting:wait}[ while {running:requests} run][: KV cache at {usage:percent}], and its GPUs "
        "are busy only {busy:percent} of the time: its own processes hold them (scheduler, "
        "tokeniser, grammars)"
    ),
    confidence=Confidence.LOW,
)


def _host_finding(case: Case, engine: Engine) -> Finding:
    """The finding on a queue while nothing is full and its GPUs have pauses: its own processes hold it."""
    busy = case.activity().busy or 0.0
    parameters = _queue_parameters(case, "") | params(busy=busy)
    evidence = (*_evidence_of_queue(case, engine), case.gpu_evidence(BUSY, busy))
    front_end = advice(engine.kind).front_end
    actions = [profile_action(case)]
    if front_end:
        actions.append(MORE_FRONT_ENDS.action(flag=front_end))
    return QUEUE_HOST.finding(
        parameters=parameters,
        evidence=evidence,
        actions=tuple(actions),
    )


QUEUE_UNMEASURED: Final = Cause(
    "queue_unmeasured",
    Limit.QUEUE_LIMIT,
    (
        "{waiting:wait}[ while {running:requests} run]: [KV cache at {usage:percent}, ]at no known "
        "limit of requests; compute and bandwidth are not measured"
    ),
    confidence=Confidence.LOW,
)


def _queue_parameters(case: Case, room: str) -> Parameters:
    """Who waits and runs, and what has room, for a sentence."""
    return params(
        waiting=case.waiting_mean(),
        running=case.mean("running"),
        usage=case.mean("kv_usage_ratio"),
        room=room,
    )


def _evidence_of_waiting(case: Case, engine: Engine, waiting: float, share: float | None) -> list[Evidence]:
    """Figures of a queue: who waits, what is turned away, what runs and may run, and the time in the queue."""
    limits = case.thresholds
    evidence = [case.evidence(WAITING, waiting, limit=limits.queue_waiting, window_s=NOW_S)]
    rejections_per_s = finite(engine.rates.rejections_per_s)
    if rejections_per_s:
        evidence.append(case.evidence(REJECTIONS, rejections_per_s))
    slots = case.likely_slots()
    running = case.mean("running")
    if slots is not None and slots.is_guess and (case.slots_taken() or 0.0) < FULL_SLOTS * slots.number:
        slots = None  # it may well have another limit than its default
    if running is not None:
        evidence.append(case.evidence(RUNNING, running, limit=_slots_number(slots)))
    if slots is not None:
        evidence.append(SLOTS.evidence(slots.number, source=slots.source))
    queued = finite(engine.latency.queue_s.mean)
    if share is not None and queued is not None:
        evidence.append(case.evidence(QUEUE_SHARE, share, seconds=queued))
    return evidence


def _slots_number(slots: Slots | None) -> float | None:
    """Requests that may run at once, where that is known."""
    if slots is None:
        return None
    return slots.number


def slots_are_the_limit(case: Case, engine: Engine) -> bool:
    """Whether it is the number of running requests that holds the others back: KV cache, compute and bandwidth are
    known, and have room."""
    usage = case.mean("kv_usage_ratio")
    if usage is None or usage >= KV_ROOM or case.slots() is None or not case.is_pinned():
        return False
    activity = case.activity()
    return not _missing_signals(case, engine, activity) and bool(_what_has_room(case, engine, activity))


def more_slots(case: Case, engine: Engine, running: float, waiting: float) -> tuple[Action, ...]:
    """Actions that raise the scheduler's limit, as far as there is room.

    The setting is that of one rank, and its value of now is there only where the engine's page or command line gives
    it.
    """
    words = advice(engine.kind)
    usage = case.mean("kv_usage_ratio")
    factor = min(_MOST_SLOTS, KV_ROOM / usage) if usage else _MOST_SLOTS
    told = case.slots()
    if told is not None and case.is_pinned():
        running = max(running, told.number)  # some slots are always being handed on
    load = running + waiting + turned_away(case)
    advised = min(load, running * factor)
    if advised <= _WORTH_RAISING * running:
        return (MORE_INSTANCES_NO_KV.action(flag=words.slots),)
    ranks = max(1, engine.hardware.ranks)
    slots = case.likely_slots()
    slots_of_rank = slots.number / ranks if slots is not None and not slots.is_guess else None
    limiting_usage = usage if factor < _MOST_SLOTS else None
    raise_slots = RAISE_SLOTS.action(
        flag=words.slots, now=slots_of_rank, wanted=float(math.floor(advised / ranks + 1e-6)), usage=limiting_usage
    )
    if advised >= load - 1.0:
        return (raise_slots,)
    return (raise_slots, MORE_INSTANCES_FOR_REST.action())


def bursts(case: Case) -> Finding | None:
    """Rule: latency beyond its goal that is mostly time in the queue, while on average hardly anyone waits.

    The limit is the resource that was full while they waited: the KV cache, or the scheduler's slots; arithmetic has
    its own rule.
    """
    engine = case.serving_engine()
    if engine is None or not case.late_latencies() or gives_no_tokens(case) or case.recent.seconds < PINNED_S:
        return None
    share = queued_share(engine)
    if share is None or share < case.thresholds.queue_ttft_ratio:
        return None
    waiting_counts = [count for _, count in case.recent.values("waiting", KEPT_S)]
    if not _is_burst(waiting_counts, case.thresholds.queue_waiting):
        return None
    if arithmetic_is_full(case, case.activity()) or arithmetic_was_full(case):
        return None  # that has a rule of its own
    return _burst_finding(case, engine, waiting_counts, share)


def _burst_finding(case: Case, engine: Engine, counts: Sequence[float], share: float) -> Finding | None:
    """The finding on a burst by what was full in it; None where nothing was."""
    usual = sum(counts) / len(counts)
    parameters = params(most=max(counts), usual=usual, share=share)
    evidence = _evidence_of_waiting(case, engine, usual, share)
    usage = _full_kv_usage(case)
    if usage is not None:
        return _burst_of_kv_finding(case, engine, parameters, usage, usual, evidence)
    if _slots_were_full(case):
        return QUEUE_BURSTS.finding(
            parameters=parameters | params(slots=_slots_number(case.slots())),
            evidence=(*case.late_latencies(), *evidence),
            actions=(
                SMOOTH_BURSTS.action(),
                RAISE_SLOTS.action(flag=advice(engine.kind).slots),
                MORE_INSTANCES.action(),
            ),
        )
    return None


def _full_kv_usage(case: Case) -> float | None:
    """The highest usage of the KV cache, where that was full in most samples with a queue."""
    usage = while_waiting(case, "kv_usage_ratio")
    full = [value for value in usage if value >= case.thresholds.kv_full_ratio]
    if not usage or len(full) < MOSTLY * len(usage):
        return None
    return max(full)


QUEUE_BURSTS: Final = Cause(
    "queue_bursts",
    Limit.QUEUE_LIMIT,
    (
        "requests come in bursts: up to {most:requests} wait, {usual:requests} on average[, for "
        "{slots:requests} slots]; {share:percent} of the time to first token is queue"
    ),
    confidence=Confidence.MEDIUM,
)


def _is_burst(counts: Sequence[float], least: float) -> bool:
    """Whether the queue of the last minutes was one of bursts that pass; one that only grows may be for good."""
    if not counts:
        return False
    most = max(counts)
    usual = sum(counts) / len(counts)
    return most >= least and most >= BURST * usual and _has_passed(counts, most)


def _has_passed(counts: Sequence[float], most: float) -> bool:
    """Whether a queue of at least half its greatest length has since gone down to a quarter of that."""
    has_grown = False
    for count in counts:
        has_grown = has_grown or count >= most / 2.0
        if has_grown and count <= most / 4.0:
            return True
    return False


KV_BURSTS: Final = Cause(
    "kv_bursts",
    Limit.KV_CACHE_FULL,
    (
        "requests come in bursts: up to {most:requests} wait for a full KV cache, {usual:requests} "
        "on average; {share:percent} of the time to first token is queue"
    ),
    confidence=Confidence.MEDIUM,
)


def _burst_of_kv_finding(
    case: Case,
    engine: Engine,
    parameters: Parameters,
    usage: float,
    waiting: float,
    evidence_of_waiting: Sequence[Evidence],
) -> Finding:
    """The finding on bursts in which the KV cache was full, `usage` at the most, and `waiting` requests on average."""
    usage_evidence = case.evidence(KV_USAGE, usage, limit=case.thresholds.kv_full_ratio)
    running = case.mean("running")
    load = None if running is None else running + waiting
    actions = more_kv(case, engine, load, kv_requests(engine))
    evidence = (*case.late_latencies(), usage_evidence, *evidence_of_waiting)
    parameters = parameters | params(usage=usage)
    return KV_BURSTS.finding(
        parameters=parameters,
        evidence=evidence,
        actions=actions,
    )


def _slots_were_full(case: Case) -> bool:
    """Whether as many requests ran as may, in the middle of the samples with a queue."""
    running = sorted(while_waiting(case, "running"))
    if not running:
        return False
    middle = running[len(running) // 2]
    slots = case.slots()
    most = running[-1] if slots is None else slots.number  # where nobody says how many may run: so many as ever did
    return middle >= FULL_SLOTS * most
