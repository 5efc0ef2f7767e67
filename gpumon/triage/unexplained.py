"""Rule on latency, and on queues, that no other rule explains."""

from __future__ import annotations

from gpumon.readings.verdict import Level, Limit, Signal
from gpumon.triage.finding import Finding, unsure
from gpumon.triage.host import profile_action
from gpumon.triage.queueing import standing_queue
from gpumon.triage.saturation import arithmetic_filled_minute, arithmetic_was_full
from gpumon.triage.signals import Case, actions_for_missing, missing_limit_signals


def unexplained(case: Case) -> Finding | None:
    """Rule: latency beyond its goal, or the default, with no figure near its limit. A queue that stands has a name."""
    engine = case.serving_engine()
    slow = case.late_latencies()
    is_explained = any(limit is not Limit.FAILING for limit in case.found_limits)
    if engine is None or is_explained:
        return None
    if not slow and not missing_limit_signals(engine, case.activity()):
        return None
    queue = standing_queue(case, engine)
    if queue is not None:
        return queue
    if not slow or arithmetic_was_full(case) or arithmetic_filled_minute(case):
        return None
    hidden = missing_limit_signals(engine, case.activity())
    if not hidden:
        return unsure((Signal("why_late"),), slow, Level.WARN, (profile_action(case),))
    return unsure(hidden, slow, Level.WARN, actions_for_missing(hidden) or (profile_action(case),))
