"""Do an engine's requests end well: errors, clients that give up, and requests that are turned away."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.readings.snapshot import Engine
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters
from gpumon.triage.demand import steady_count
from gpumon.triage.engine_state import log_of, processes_of
from gpumon.triage.kv_cache import MOST_TIMES
from gpumon.triage.signals import MINUTE_S, Case, Finding, action, params

LEAST: Final = 5.0
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
"""Part of a least share and number down to which a verdict that stands goes on: a share wavers."""
_FULL: Final = frozenset({Limit.KV_CACHE_FULL, Limit.QUEUE_LIMIT})
"""Limits whose verdicts tell how many instances the load needs."""
MOST_CAUSES: Final = 80
"""Characters of the causes that an engine names."""


class Ended(NamedTuple):
    """Requests of the last minute that ended in one way."""

    requests: float
    share: float
    """Share of all requests that ended, or were turned away."""
    seconds: float
    """Time that was looked at."""


def ended_in(case: Case, field: str, *, apart: bool = False) -> Ended | None:
    """Requests that ended in a way that `field` counts; `apart`: they are not among those that ended otherwise."""
    seconds = min(MINUTE_S, case.recent.seconds)
    per_s = case.mean(field, MINUTE_S)
    if not per_s or seconds <= 0.0:
        return None
    all_per_s = case.mean("requests_per_s", MINUTE_S) or 0.0
    if apart:
        whole = all_per_s + per_s
    else:
        whole = max(all_per_s, per_s)
    return Ended(per_s * seconds, per_s / whole, seconds)


def _is_enough(case: Case, ended: Ended | None, least_share: float) -> bool:
    """Whether so many requests ended so that it is a verdict; fewer keep one that stands."""
    if ended is None:
        return False
    part = _BAND if Limit.FAILING in case.near else 1.0
    return ended.requests >= part * LEAST and ended.share >= part * least_share


def errors(case: Case) -> Finding | None:
    """Requests end in errors: of the engine, or of its server with a status of 500 and more."""
    engine = case.served()
    if engine is None:
        return None
    return errors_of(case, engine)


def errors_of(case: Case, engine: Engine) -> Finding | None:
    """The finding on requests of an engine or front end that end in errors."""
    ended = ended_in(case, "failures_per_s")
    if ended is None or not _is_enough(case, ended, _ERRORS):
        return None
    proof = [_proof(case, "failed_requests", "failures_per_s", ended, _ERRORS)]
    causes = clean(case.info.get("failures_by_cause", ""), MOST_CAUSES)
    if causes:
        proof.append(
            Evidence("failure_causes", source=engine.sources.get("failures_per_s", ""), parameters={"causes": causes})
        )
    level = Level.CRITICAL if ended.share >= MOST_FAIL else Level.WARN
    parameters = params(share=ended.share, failed=ended.requests, seconds=ended.seconds)
    return Finding(
        Limit.FAILING, "errors", parameters, (*proof, *case.late_latencies()), (_read_log(case, engine),), level
    )


def aborts(case: Case) -> Finding | None:
    """Many clients give up before their answer is whole: mostly as it comes too late for them."""
    engine = case.served()
    ended = ended_in(case, "aborts_per_s")
    if engine is None or ended is None or not _is_enough(case, ended, _ABORTS):
        return None
    slow = case.late_latencies()
    late_first = next((evidence for evidence in slow if evidence.quantity in ("ttft_p95", "queue_time")), None)
    parameters = params(share=ended.share, aborted=ended.requests, seconds=ended.seconds)
    if late_first is not None and isinstance(late_first.value, float):
        parameters |= {"first_token_s": late_first.value}
    proof = (_proof(case, "aborted_requests", "aborts_per_s", ended, _ABORTS), *slow)
    level = Level.WARN if late_first is None else Level.CRITICAL
    fixes = (action("check_client_timeouts"),)
    return Finding(Limit.FAILING, "aborts", parameters, proof, fixes, level, Confidence.MEDIUM)


def rejections(case: Case) -> Finding | None:
    """Requests are turned away, as its queue is full."""
    engine = case.served()
    if engine is None:
        return None
    more = Action("more_instances", _instances_for_all(case, engine))
    return rejections_of(case, (more, action("check_retries")))


def rejections_of(case: Case, fixes: tuple[Action, ...]) -> Finding | None:
    """The finding on requests that an engine or front end turns away."""
    ended = ended_in(case, "rejections_per_s", apart=True)
    if ended is None or not _is_enough(case, ended, _REJECTIONS):
        return None
    waiting = case.waiting_mean()
    parameters = params(share=ended.share, rejected=ended.requests, seconds=ended.seconds, waiting=waiting or None)
    proof = [_proof(case, "rejected_requests", "rejections_per_s", ended, _REJECTIONS)]
    if waiting:
        proof.append(case.evidence("waiting", "waiting", waiting, "waiting"))
    return Finding(Limit.FAILING, "rejections", parameters, (*proof, *case.late_latencies()), fixes, Level.WARN)


def _instances_for_all(case: Case, engine: Engine) -> Parameters:
    """Instances that take what is turned away, too, as parameters of the action; empty where another verdict on what is
    full counts those who wait, and tells the number."""
    ended = ended_in(case, "rejections_per_s", apart=True)
    if case.near & _FULL or ended is None or ended.share >= 1.0:
        return {}
    now = max(1, engine.hardware.ranks)
    wanted = steady_count(case, "rejections", now / (1.0 - ended.share))
    if not now < wanted <= MOST_TIMES * now:
        return {}
    return params(instances=float(wanted), now=float(now))


def _proof(case: Case, quantity: str, field: str, ended: Ended, limit: float) -> Evidence:
    return case.evidence(quantity, field, ended.share, "", limit, requests=ended.requests, seconds=ended.seconds)


def _read_log(case: Case, engine: Engine) -> Action:
    """Read the engine's log where its first process writes it."""
    holding = processes_of(case, engine)
    if not holding:
        return action("read_error_log")
    first = holding[0]
    return action("read_error_log", pid=str(first.pid), log=log_of(first), container=first.container[:12])
