"""How much users suffer from what holds an engine back: overload that nobody can wait for, or a batch that nobody
waits for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gpumon.readings.goals import Goals
from gpumon.readings.snapshot import Engine, Quantiles
from gpumon.readings.verdict import Confidence, Level, Limit, Verdict
from gpumon.triage.arrivals import WINDOW_S, RequestFlow
from gpumon.triage.finding import Cause, Finding, Quantity, params
from gpumon.triage.samples import KEPT_S
from gpumon.triage.signals import Case, finite

HOPELESS_S: Final = 20.0
"""TTFT (p95, or mean) and mean time in the queue from which overload is critical: most clients give up within 30 s."""
FOURFOLD: Final = 4.0
"""Times a goal from which missing it is critical."""
_PARTS: Final = 6
"""Parts of the last 3 minutes, 30 s each, over which a queue that grows never shrinks."""
LEAST_GROWTH: Final = 10.0
"""Requests that a queue gained at least in those 3 minutes, to be one that grows: fewer come and go."""
LARGE_QUEUE: Final = 100.0
"""Requests waiting from which on a queue may be that of an offline batch."""
FEW_ARRIVALS: Final = 0.05
"""Share of the queue that may arrive in 5 minutes beside an offline batch."""
_WATCHED_S: Final = 30.0
"""Seconds that arrivals have to be watched at least: as long as a verdict takes."""
_SLOW_CLOCK: Final = 0.8
"""Clock of a GPU, of its highest, below which it takes at least a fifth of the speed: without that the same load may
well be none too much."""
OVERLOADS: Final = frozenset({Limit.QUEUE_LIMIT, Limit.KV_CACHE_FULL, Limit.COMPUTE_BOUND, Limit.BANDWIDTH_BOUND})
"""Limits that an offline batch runs into on purpose."""
AT_NO_COST: Final = frozenset({"raise_slots", "more_kv_memory", "bigger_steps"})
"""Actions that make an offline batch faster on the GPUs that it has."""


ARRIVED: Final = Quantity("arrived", "{value:requests} arrived in {window_s:lasting}")

OFFLINE_BATCH: Final = Cause(
    "offline_batch",
    Limit.QUEUE_LIMIT,
    (
        "offline batch: {queued:thousands} queued, [{arrived:requests}|none] arrived in "
        "{window_s:lasting}[; done in about {left_s:lasting}[ at {rate:decimal} "
        "requests/s]]"
    ),
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)


def set_level_by_harm(case: Case, finding: Finding) -> Finding:
    """The finding on what holds an engine back, at the level of the harm that is done.

    Critical where users cannot wait for it any more, a note where nobody waits.
    """
    engine = case.serving_engine()
    if engine is None or finding.level is Level.OK:
        return finding
    if finding.code in OVERLOADS:
        flow = offline_flow(case, engine)
        if flow is not None:
            return _offline_finding(case, finding, flow)
    if finding.code is Limit.COMPUTE_BOUND and _gpu_is_the_cause(case):
        return finding  # the verdict on its GPU is the critical one, and has the action
    if _may_be_critical(case, engine, finding) and is_hopeless(case, engine):
        return finding._replace(level=Level.CRITICAL)
    return finding


def overload_is_hopeless(case: Case, engine: Engine) -> bool:
    """Whether an overload of an engine is so bad that it is critical: users suffer, and it is no offline batch."""
    if offline_flow(case, engine) is not None or may_turn_out_offline(case, engine) or case.after_stall():
        return False
    return is_hopeless(case, engine)


def is_slow(clock_hz: float, clock_max_hz: float) -> bool:
    """Whether a GPU's clock is so low that it explains an overload of the engine on it."""
    return clock_hz < _SLOW_CLOCK * clock_max_hz


def _gpu_is_the_cause(case: Case) -> bool:
    """Whether a verdict on one of the engine's GPUs says, as critical, that its clock is held far down."""
    for gpu in case.gpus:
        for verdict in case.standing.get(gpu.reading.uuid, ()):
            if verdict.code is Limit.THROTTLED and verdict.level is Level.CRITICAL and _says_slow(verdict):
                return True
    return False


def _says_slow(verdict: Verdict) -> bool:
    """Whether the clocks in a verdict on a throttled GPU are those of one that is slow now."""
    clock_hz = verdict.parameters.get("clock_hz")
    clock_max_hz = verdict.parameters.get("clock_max_hz")
    if verdict.until or not isinstance(clock_hz, float) or not isinstance(clock_max_hz, float):
        return False
    return is_slow(clock_hz, clock_max_hz)


def _may_be_critical(case: Case, engine: Engine, finding: Finding) -> bool:
    """Whether the finding is the cause of the late answers, as far as is known."""
    if finding.code in OVERLOADS and may_turn_out_offline(case, engine):
        return False  # a batch that nobody waits for is never critical
    if finding.cause == "long_prefill" and not case.waiting_mean():
        return False  # one long prompt takes as long as it takes
    return not case.after_stall()  # its latencies are those of the stall


def is_hopeless(case: Case, engine: Engine) -> bool:
    """Whether users suffer so much that it is critical: tens of seconds to the first token, a queue that grows for
    minutes, or a goal missed fourfold."""
    return waits_long(case, engine) or misses_fourfold(case, engine) or queue_grows(case)


def waits_long(case: Case, engine: Engine) -> bool:
    """Whether the first token, or the turn in the queue, takes 20 s and more, and no goal allows that."""
    limit_s = max(HOPELESS_S, case.goals.ttft_s or 0.0)
    return _is_beyond(engine.latency.ttft_s, limit_s) or (finite(engine.latency.queue_s.mean) or 0.0) >= limit_s


def misses_fourfold(case: Case, engine: Engine) -> bool:
    """Whether a latency is four times its goal and more."""
    latency = engine.latency
    goals = case.goals
    promised = (
        *((latency.ttft_s, goals.ttft_s), (latency.tpot_s, goals.tpot_s)),
        *((latency.itl_s, goals.itl_s), (latency.e2e_s, goals.e2e_s)),
    )
    for quantiles, goal_s in promised:
        if goal_s is not None and _is_beyond(quantiles, FOURFOLD * goal_s):
            return True
    return False


def _is_beyond(quantiles: Quantiles, limit_s: float) -> bool:
    """Whether the mean, or the lower end of the p95's bucket, is beyond the limit."""
    p95_s = finite(quantiles.p95)
    low_s = finite(quantiles.p95_low)
    mean_s = finite(quantiles.mean)
    if mean_s is not None and mean_s >= limit_s:
        return True
    return p95_s is not None and p95_s >= limit_s and (low_s is None or low_s >= limit_s)


def queue_grows(case: Case) -> bool:
    """Whether the queue grew in each half minute of the last three, by more requests than run at once."""
    if case.recent.seconds < KEPT_S - 1.0:  # a sample may come a second late
        return False
    means = _waiting_means(case)
    if len(means) < _PARTS or not all(after > before for before, after in pairwise(means)):
        return False
    return means[-1] - means[0] >= max(LEAST_GROWTH, case.mean("running") or 0.0)


def offline_flow(case: Case, engine: Engine) -> RequestFlow | None:
    """Flow at a queue that belongs to a batch nobody waits for; None for every other queue.

    Such a queue is large and gets shorter, next to nothing arrives, no goal is set, and nobody gave up.

    A batch that came in one go within the last 5 minutes is watched from then on. What gpumon has watched of those
    minutes stands for all of them.
    """
    waiting = case.waiting_mean()
    for flow in _candidate_flows(case, engine):
        if flow.seconds >= _WATCHED_S and _only_drains(flow, waiting):
            return flow
    return None


def may_turn_out_offline(case: Case, engine: Engine) -> bool:
    """Whether a queue may turn out to be that of an offline batch: True while too little was seen to tell."""
    waiting = case.waiting_mean()
    return any(flow.seconds < _WATCHED_S and _only_drains(flow, waiting) for flow in _candidate_flows(case, engine))


def _candidate_flows(case: Case, engine: Engine) -> Sequence[RequestFlow]:
    """Flows that may be those of an offline batch: of the last 5 minutes, and since the only burst in them.

    Empty for a queue that is too small, where a goal is set, and where clients gave up.
    """
    largest = max((value for _, value in case.recent.values("waiting", KEPT_S)), default=0.0)
    if case.goals != Goals() or largest < max(LARGE_QUEUE, case.mean("running") or 0.0):
        return ()
    if finite(engine.rates.aborts_per_s):
        return ()
    arrivals = case.recent.arrivals
    burst = FEW_ARRIVALS * max(case.waiting_mean(), LARGE_QUEUE)
    return [flow for flow in (arrivals.flow(), arrivals.since_burst(burst)) if flow is not None]


def _only_drains(flow: RequestFlow, waiting: float) -> bool:
    """Whether a queue gets shorter and next to nothing is added to it."""
    if flow.queue_change >= 0.0:
        return False
    return flow.arrived * WINDOW_S / flow.seconds <= FEW_ARRIVALS * max(waiting, LARGE_QUEUE)


def _offline_finding(case: Case, finding: Finding, flow: RequestFlow) -> Finding:
    """The finding as that of an offline batch: `5,447 queued, none arrived in 5 min; done in about 40 min`."""
    waiting = case.waiting_mean()
    parameters = params(queued=waiting)
    if flow.arrived >= 1.0:
        parameters |= params(arrived=flow.arrived)
    parameters |= params(window_s=flow.seconds)
    rate = flow.finished / flow.seconds
    if rate:
        left_s = waiting / rate
        parameters |= params(rate=rate, left_s=left_s if left_s >= 1.0 else None)
    arrived = ARRIVED.evidence(
        value=flow.arrived,
        limit=FEW_ARRIVALS * waiting,
        source="change of waiting + running + finished requests",
        parameters=params(window_s=flow.seconds),
    )
    actions = tuple(action for action in finding.actions if action.code in AT_NO_COST)
    return finding._replace(
        cause=OFFLINE_BATCH.code,
        parameters=parameters,
        evidence=(arrived, *finding.evidence),
        actions=actions,
        level=OFFLINE_BATCH.level,
        confidence=Confidence.LOW if finding.confidence is Confidence.LOW else OFFLINE_BATCH.confidence,
    )


def _waiting_means(case: Case) -> list[float]:
    """Mean requests waiting in each half minute of the last three, the oldest first; one without a sample is left
    out."""
    part_s = KEPT_S / _PARTS
    samples = case.recent.values("waiting", KEPT_S)
    means = []
    for part in range(_PARTS):
        end_s = case.now_s - (_PARTS - 1 - part) * part_s
        values = [value for sampled_s, value in samples if end_s - part_s < sampled_s <= end_s]
        if values:
            means.append(sum(values) / len(values))
    return means
