"""Do an engine's requests end well: errors, clients that give up, and requests that are turned away."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, NamedTuple

from gpumon.readings.quantities import ABORTS, FAILURES, REJECTIONS
from gpumon.readings.snapshot import Engine
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters
from gpumon.triage.demand import steady_count
from gpumon.triage.engine_state import log_of, processes_of
from gpumon.triage.kv_cache import MOST_TIMES
from gpumon.triage.queueing import more_slots, slots_are_the_limit
from gpumon.triage.signals import MINUTE_S, Case, Finding, action, params

LEAST_REQUESTS: Final = 5.0
"""Requests of a minute that make a share: one or two that fail are no verdict."""
_ERRORS: Final = 0.05
"""Share of failed requests from which on an engine is failing: a service promises 99 % and more."""
MOST_FAIL: Final = 0.5
"""Share of failed requests from which on it serves hardly anybody."""
_ABORTS: Final = 0.2
"""Share of aborted requests from which on it is no habit: agents and chats cancel some of theirs."""
_REJECTIONS: Final = 0.05
"""Share of requests turned away from which on clients feel it: fewer are spikes that a retry gets over."""
_BAND: Final = 0.6
"""Factor of the least share and number of requests while a verdict stands: a share wavers."""
_FULL: Final = frozenset({Limit.KV_CACHE_FULL, Limit.QUEUE_LIMIT})
"""Limits whose verdicts tell how many instances the load needs."""
COUNTERS: Final = {"failures_per_s": FAILURES, "aborts_per_s": ABORTS, "rejections_per_s": REJECTIONS}
"""Field of the rate at which requests end in a way -> the counter of it."""
MOST_CAUSES: Final = 80
"""Characters of the causes that an engine names."""


class Ended(NamedTuple):
    """Requests of the last minute that ended in one way."""

    requests: float
    share: float
    """Share of all requests that ended, or were turned away."""
    seconds: float
    """Time that was looked at."""


def ended_in(case: Case, field: str, *, counted_apart: bool = False) -> Ended | None:
    """Requests that ended in the way that `field` counts. `counted_apart`: `requests_per_s` does not have them."""
    seconds = min(MINUTE_S, case.recent.seconds)
    per_s = case.mean(field, MINUTE_S)
    if not per_s or seconds <= 0.0:
        return None
    all_per_s = case.mean("requests_per_s", MINUTE_S) or 0.0
    if counted_apart:
        whole = all_per_s + per_s
    else:
        whole = max(all_per_s, per_s)
    return Ended(per_s * seconds, per_s / whole, seconds)


def _is_enough(case: Case, ended: Ended | None, least_share: float) -> bool:
    """Whether so many requests ended so that it is a verdict; fewer keep one that stands."""
    if ended is None:
        return False
    band = 1.0
    if Limit.FAILING in case.limits_before:
        band = _BAND
    return ended.requests >= band * LEAST_REQUESTS and ended.share >= band * least_share


def errors(case: Case) -> Finding | None:
    """Rule: requests end in errors: of the engine, or of its server with a status of 500 and more."""
    engine = case.served()
    if engine is None:
        return None
    return errors_of(case, engine)


def errors_of(case: Case, engine: Engine) -> Finding | None:
    """The finding on requests of an engine or front end that end in errors."""
    ended = ended_in(case, "failures_per_s")
    if ended is None or not _is_enough(case, ended, _ERRORS):
        return None
    evidence = [_share_evidence(case, "failed_requests", "failures_per_s", ended, _ERRORS)]
    causes = clean(case.info.get("failures_by_cause", ""), MOST_CAUSES)
    if causes:
        source = case.counter_source(FAILURES)
        evidence.append(Evidence("failure_causes", source=source, parameters={"causes": causes}))
    level = Level.WARN
    if ended.share >= MOST_FAIL:
        level = Level.CRITICAL
    parameters = params(share=ended.share, failed=ended.requests, seconds=ended.seconds)
    return Finding(
        code=Limit.FAILING,
        cause="errors",
        parameters=parameters,
        evidence=(*evidence, *case.late_latencies()),
        actions=(_read_log_action(case, engine),),
        level=level,
    )


def aborts(case: Case) -> Finding | None:
    """Rule: many clients give up before their answer is whole: mostly as it comes too late for them."""
    engine = case.served()
    ended = ended_in(case, "aborts_per_s")
    if engine is None or ended is None or not _is_enough(case, ended, _ABORTS):
        return None
    late = case.late_latencies()
    late_first = _first_of(late, ("ttft_p95", "queue_time"))
    parameters = params(share=ended.share, aborted=ended.requests, seconds=ended.seconds)
    if late_first is not None and isinstance(late_first.value, float):
        parameters |= {"first_token_s": late_first.value}
    evidence = (_share_evidence(case, "aborted_requests", "aborts_per_s", ended, _ABORTS), *late)
    level = Level.CRITICAL
    if late_first is None:
        level = Level.WARN
    fixes = (action("check_client_timeouts"),)
    return Finding(
        code=Limit.FAILING,
        cause="aborts",
        parameters=parameters,
        evidence=evidence,
        actions=fixes,
        level=level,
        confidence=Confidence.MEDIUM,
    )


def _first_of(late: Iterable[Evidence], quantities: Container[str]) -> Evidence | None:
    """The first of the late latencies that is one of these quantities."""
    for evidence in late:
        if evidence.quantity in quantities:
            return evidence
    return None


def rejections(case: Case) -> Finding | None:
    """Rule: requests are turned away, as its queue is full."""
    engine = case.served()
    if engine is None:
        return None
    return rejections_of(case, (*_room_for_all(case, engine), action("check_retries")))


def _room_for_all(case: Case, engine: Engine) -> tuple[Action, ...]:
    """Actions that give what is turned away a place: more slots where they alone are what is full, as a setting costs
    nothing; else more instances."""
    if slots_are_the_limit(case, engine):
        actions = more_slots(case, engine, case.mean("running") or 0.0, case.waiting_mean())
        if actions[0].code == "raise_slots":
            return actions
    return (Action("more_instances", _instances_parameters(case, engine)),)


def rejections_of(case: Case, fixes: tuple[Action, ...]) -> Finding | None:
    """The finding on requests that an engine or front end turns away."""
    ended = ended_in(case, "rejections_per_s", counted_apart=True)
    if ended is None or not _is_enough(case, ended, _REJECTIONS):
        return None
    waiting = case.waiting_mean()
    parameters = params(share=ended.share, rejected=ended.requests, seconds=ended.seconds, waiting=waiting or None)
    evidence = [_share_evidence(case, "rejected_requests", "rejections_per_s", ended, _REJECTIONS)]
    if waiting:
        evidence.append(case.evidence("waiting", "waiting", waiting, chart="waiting"))
    return Finding(
        code=Limit.FAILING,
        cause="rejections",
        parameters=parameters,
        evidence=(*evidence, *case.late_latencies()),
        actions=fixes,
        level=Level.WARN,
    )


def _instances_parameters(case: Case, engine: Engine) -> Parameters:
    """Instances that take what is turned away, too, as parameters of the action; empty where another verdict on what is
    full counts those who wait, and tells the number."""
    ended = ended_in(case, "rejections_per_s", counted_apart=True)
    if case.limits_before & _FULL or ended is None or ended.share >= 1.0:
        return {}
    now = max(1, engine.hardware.ranks)
    wanted = steady_count(case, "rejections", now / (1.0 - ended.share))
    if not now < wanted <= MOST_TIMES * now:
        return {}
    return params(instances=float(wanted), now=float(now))


def _share_evidence(case: Case, quantity: str, field: str, ended: Ended, limit: float) -> Evidence:
    """Evidence of the share of requests that ended in a way, with its own window: the engine's rate is that of 10 s."""
    source = case.counter_source(COUNTERS[field], ended.seconds)
    parameters = params(requests=ended.requests, seconds=ended.seconds)
    return Evidence(quantity, ended.share, limit, source=source, parameters=parameters)


def _read_log_action(case: Case, engine: Engine) -> Action:
    """Read the engine's log where its first process writes it."""
    processes = processes_of(case, engine)
    if not processes:
        return action("read_error_log")
    first = processes[0]
    return action("read_error_log", pid=str(first.pid), log=log_of(first), container=first.container[:12])
