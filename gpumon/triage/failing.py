"""Do an engine's requests end well: errors, wrong numbers, clients that give up, requests turned away or refused."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from gpumon.efficiency.tracks import MINUTES_S
from gpumon.readings.format import is_last_bucket
from gpumon.readings.frame import FAILURES_BY_CAUSE, REFUSALS_BY_CAUSE
from gpumon.readings.quantities import ABORTS, CORRUPTED, FAILURES, REFUSED, REJECTIONS, TTFT
from gpumon.readings.snapshot import Engine
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Confidence, Evidence, Family, Level, Limit, Parameters, Team
from gpumon.triage.advice import advice
from gpumon.triage.demand import steady_count
from gpumon.triage.engine_state import log_of, processes_of
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, yes_if
from gpumon.triage.kv_cache import MOST_TIMES
from gpumon.triage.queueing import more_slots, slots_are_the_limit
from gpumon.triage.sentences import CHECK_RETRIES, MORE_INSTANCES, WAITING
from gpumon.triage.signals import MINUTE_S, NOW_S, QUEUE_TIME, TTFT_P95, YES, Case, finite

LEAST_REQUESTS: Final = 5.0
"""Requests of a minute that make a share: one or two that fail are no verdict."""
_ERRORS: Final = 0.05
"""Share of failed requests from which on an engine is failing: a service promises 99% and more."""
MOST_FAIL: Final = 0.5
"""Share of failed requests from which on it serves hardly anybody."""
_ABORTS: Final = 0.2
"""Share of aborted requests from which on it is no habit: agents and chats cancel some of theirs."""
_MOST_STOPPED: Final = 0.5
"""Share of answers stopped midway from which on it is hardly people who stop them: most work is thrown away."""
_REJECTIONS: Final = 0.05
"""Share of requests turned away from which on clients feel it: fewer are spikes that a retry gets over."""
_REFUSALS: Final = 0.1
"""Share of refused requests from which on it is worth a note: some clients always send what is wrong."""
_MOST_REFUSED: Final = 0.25
"""Share of refused requests from which on it is a whole client, or its kind of prompt, that gets no answer."""
_LEAST_CORRUPTED: Final = 1.0
"""Requests of a minute with a NaN in their logits that make a verdict: a model that is well has none."""
_BAND: Final = 0.6
"""Factor of the least share and number of requests while a verdict stands: a share wavers."""
_RISE_DEVIATIONS: Final = 1.0
"""Standard deviations of a count beyond which it raises a level: one window of six is there by chance."""
_FALL_DEVIATIONS: Final = 2.0
"""The same below which a level falls: one window of forty is there by chance."""
_MOST_MIDWAY: Final = {"aborts": 0.6, "aborts_midway": 0.4}
"""Cause that stands -> share of the aborts that came midway from which on they are called so (chosen)."""
_FULL: Final = frozenset({Limit.KV_CACHE_FULL, Limit.QUEUE_LIMIT})
"""Limits whose verdicts tell how many instances the load needs."""
_COUNTER_OF_RATE: Final = {
    "failures_per_s": FAILURES,
    "aborts_per_s": ABORTS,
    "rejections_per_s": REJECTIONS,
    "refused_per_s": REFUSED,
    "corrupted_per_s": CORRUPTED,
}
"""Sampled rate of requests that end in one way -> the counter that it is of."""
LATE_BEFORE_TOKEN: Final = {TTFT_P95.code: "first_token_s", QUEUE_TIME.code: "queued_s"}
"""Figure of a late first token -> the parameter of sentences that has it."""
_LONGEST_CAUSES: Final = 80
"""Characters of the causes that an engine names."""


FAILED_REQUESTS: Final = Quantity(
    "failed_requests",
    (
        "[{value:percent} of the requests of {seconds:lasting} failed "
        "({requests:requests})|{requests:requests} requests of {seconds:lasting} failed]"
    ),
)
FAILURE_CAUSES: Final = Quantity("failure_causes", "failed since it started: {causes}")
ABORTED_MIDWAY: Final = Quantity(
    "aborted_midway",
    (
        "{value:requests} of {limit:requests} requests that were aborted[ in {seconds:lasting}] had "
        "got their first token"
    ),
)
REFUSED_REQUESTS: Final = Quantity(
    "refused_requests", "{value:percent} of the requests of {seconds:lasting} were refused ({requests:requests})"
)
REFUSAL_CAUSES: Final = Quantity("refusal_causes", "refused since its start: {causes}")
CORRUPTED_REQUESTS: Final = Quantity(
    "corrupted_requests",
    (
        "[{value:percent} of the requests of {seconds:lasting} had NaN in their logits "
        "({requests:requests})|{requests:requests} requests of {seconds:lasting} had NaN in their "
        "logits]"
    ),
)
ABORTED_REQUESTS: Final = Quantity(
    "aborted_requests", "{value:percent} of the requests of {seconds:lasting} were aborted ({requests:requests})"
)
REJECTED_REQUESTS: Final = Quantity(
    "rejected_requests",
    (
        "[{value:percent} of the requests of {seconds:lasting} were turned away "
        "({requests:requests})|{requests:requests} requests of {seconds:lasting} were turned away]"
    ),
)
READ_ERROR_LOG: Final = Remedy(
    "read_error_log",
    (
        "read the errors in its log[ ({log=journal}journalctl _PID={pid}, or where its output goes)| "
        "({log} logs {container})], and send it one request by hand"
    ),
)
CHECK_CLIENT_TIMEOUTS: Final = Remedy(
    "check_client_timeouts",
    (
        "compare the timeouts of its clients and of the proxy between with TTFT and E2E, and find "
        "out which client gives up"
    ),
    team=Team.CLIENT,
)
CHECK_ANSWER_TIMEOUTS: Final = Remedy(
    "check_answer_timeouts",
    (
        "compare the limits on the time of whole answers, of its clients and of the proxy between, "
        "with E2E[ (p95 [{e2e_above=yes}above ]{e2e_s:latency})], and find out which client stops them; "
        "a stop button is no fault"
    ),
    team=Team.CLIENT,
)
CHECK_REFUSALS: Final = Remedy(
    "check_refusals",
    (
        "read the error that these clients get: prompt and max_tokens beyond the context[ ({flag})], "
        "a wrong parameter, a model that is not served; 401 (key) and 404 (model) count, too, where "
        "its page tells the class 4xx only"
    ),
    team=Team.CLIENT,
)
CHECK_NANS: Final = Remedy(
    "check_nans",
    (
        "send it one request by hand, look for NaN and overflow in its log; then bfloat16 for "
        "float16, another attention or quantisation kernel, and dcgmi diag -r 3 if its replicas have "
        "none"
    ),
)
TAKE_OUT_OF_BALANCER: Final = Remedy("take_out_of_balancer", "take it out of the load balancer until then")


class Ended(NamedTuple):
    """Requests of the last minute that ended in one way."""

    requests: float
    share: float | None
    """Share of all requests that ended, or were turned away; None where nothing tells how many these were."""
    seconds: float
    """Time in which they ended: a minute, or as long as this process was sampled."""

    def part(self, ratio: float) -> Ended:
        """The part of these requests that `ratio` (0 to 1) is."""
        share = None if self.share is None else ratio * self.share
        return self._replace(requests=ratio * self.requests, share=share)


def ended_in(case: Case, field: str, *, counted_apart: bool = False) -> Ended | None:
    """Requests of the last minute that ended in the way that `field` counts; None without any.

    `counted_apart`: `requests_per_s` has all others, and not these. The newest poll may lack the field, as its page
    came late: the minute has other polls, so that a verdict does not go.
    """
    per_s = finite(case.recent.mean(field, MINUTE_S))
    if not per_s:
        return None
    seconds = min(MINUTE_S, case.recent.share_seconds)
    seconds -= case.recent.seconds_without(field, seconds, covered_s=NOW_S)
    if seconds <= 0.0:
        return None
    requests = per_s * seconds
    all_per_s = finite(case.recent.mean("requests_per_s", MINUTE_S))
    if all_per_s is None:
        return Ended(requests, None, seconds)
    whole = all_per_s + per_s if counted_apart else max(all_per_s, per_s)
    return Ended(requests, per_s / whole, seconds)


def _is_enough(case: Case, ended: Ended | None, least_share: float, cause: str = "") -> bool:
    """Whether the requests that ended in one way, and their share, are enough for a verdict.

    `_BAND` of both keeps a verdict that stands: any on failing requests, or with `cause` one of that cause alone.
    """
    if ended is None or ended.share is None:
        return False
    band = 1.0
    if (cause and _standing_cause(case) == cause) or (not cause and Limit.FAILING in case.limits_before):
        band = _BAND
    return ended.requests >= band * LEAST_REQUESTS and ended.share >= band * least_share


def _is_enough_without_share(case: Case, ended: Ended) -> bool:
    """Whether the requests that ended in one way are enough for a verdict where nothing tells their share."""
    band = _BAND if Limit.FAILING in case.limits_before else 1.0
    return ended.share is None and ended.requests >= band * LEAST_REQUESTS


def _standing_cause(case: Case) -> str:
    """Cause for which its requests were said to fail a moment ago; empty: they were not."""
    stood = case.stood.get(Family.STATE)
    if stood is None or stood.code is not Limit.FAILING:
        return ""
    return stood.cause


def _is_higher(case: Case, cause: str, ended: Ended, least_share: float, level: Level) -> bool:
    """Whether requests that ended in one way are a share that gives their cause its higher `level`.

    They have to be more than the least share by what chance mostly adds. Where that level stands already it goes only
    well below the least share, so that a share near it does not take turns between two levels.
    """
    if ended.share is None:
        return False
    all_requests = ended.requests / ended.share
    least = least_share * all_requests
    deviation = math.sqrt(least * (1.0 - least_share))
    stood = case.stood.get(Family.STATE)
    if stood is not None and _standing_cause(case) == cause and stood.level is level:
        return ended.requests >= min(_BAND * least, least - _FALL_DEVIATIONS * deviation)
    return ended.requests >= least + _RISE_DEVIATIONS * deviation


def errors(case: Case) -> Finding | None:
    """Rule: requests end in errors: of the engine, or of its server with a status of 500 and more."""
    engine = case.serving_engine()
    if engine is None:
        return None
    return errors_of(case, engine)


ERRORS: Final = Cause(
    "errors",
    Limit.FAILING,
    (
        "[{share:percent} of its requests fail|requests fail] ({failed:requests} in "
        "{seconds:lasting})[: {backend} fails {at:percent} of those that it gets]"
    ),
)


def errors_of(case: Case, engine: Engine) -> Finding | None:
    """The finding on requests of an engine or front end that end in errors."""
    ended = ended_in(case, "failures_per_s")
    if ended is None or not (_is_enough(case, ended, _ERRORS) or _is_enough_without_share(case, ended)):
        return None
    evidence = [_share_evidence(case, FAILED_REQUESTS, "failures_per_s", ended, _ERRORS)]
    causes = clean(case.info.get(FAILURES_BY_CAUSE, ""), _LONGEST_CAUSES)
    if causes:
        source = case.counter_source(FAILURES)
        evidence.append(FAILURE_CAUSES.evidence(source=source, parameters={"causes": causes}))
    level = Level.CRITICAL if _is_higher(case, "errors", ended, MOST_FAIL, Level.CRITICAL) else Level.WARN
    parameters = params(share=ended.share, failed=ended.requests, seconds=ended.seconds)
    return ERRORS.finding(
        parameters=parameters,
        evidence=(*evidence, *case.late_latencies()),
        actions=(_read_log_action(case, engine),),
        level=level,
    )


ABORTED: Final = Cause(
    "aborts",
    Limit.FAILING,
    (
        "clients give up {share:percent} of its requests ({aborted:requests} in {seconds:lasting})[: "
        "TTFT p95 [{above=yes}above ]{first_token_s:latency}|: {queued_s:latency} in the queue on average"
        "|{untold=yes}: before their first token or after it is not told]"
    ),
    confidence=Confidence.MEDIUM,
)


def aborts(case: Case) -> Finding | None:
    """Rule: many clients give up: before their first token, mostly as it comes too late for them, or midway."""
    engine = case.serving_engine()
    ended = ended_in(case, "aborts_per_s")
    if engine is None or ended is None or not _is_enough(case, ended, _ABORTS):
        return None
    midway = _midway_share(engine)
    before = ended.part(1.0 - midway) if midway is not None else ended
    # Where they are about as many as those before the first token, what stands goes on.
    most_midway = _MOST_MIDWAY.get(_standing_cause(case), 0.5)
    if midway and midway >= most_midway and not _is_enough(case, before, _ABORTS, "aborts"):
        return _stopped_finding(case, engine, ended.part(midway))
    late = case.late_latencies()
    wait = _late_first_token(late)
    parameters = params(share=before.share, aborted=before.requests, seconds=before.seconds)
    level = Level.WARN
    if midway is None:
        parameters |= params(untold=YES)
    elif wait:
        parameters |= wait
        level = Level.CRITICAL
    evidence = (_share_evidence(case, ABORTED_REQUESTS, "aborts_per_s", ended, _ABORTS), *late)
    return ABORTED.finding(
        parameters=parameters,
        evidence=(*evidence, *_midway_evidence(case, engine)),
        actions=(CHECK_CLIENT_TIMEOUTS.action(),),
        level=level,
    )


def _midway_share(engine: Engine) -> float | None:
    """Share of the aborts of the last minutes that came after a first token; None where that is not told."""
    outcomes = engine.served.outcomes
    midway = finite(outcomes.aborted_midway)
    aborted = finite(outcomes.aborted)
    if midway is None or not aborted:
        return None
    return midway / aborted


def _midway_evidence(case: Case, engine: Engine) -> tuple[Evidence, ...]:
    """Evidence of how many of the aborts came after a first token, where that is told."""
    outcomes = engine.served.outcomes
    midway = finite(outcomes.aborted_midway)
    if midway is None:
        return ()
    source = f"{case.counter_source(TTFT)} less answers that ended, over {MINUTES_S:.0f} s"
    over = params(seconds=MINUTES_S)
    return (ABORTED_MIDWAY.evidence(midway, outcomes.aborted, source=source, parameters=over),)


ABORTS_MIDWAY: Final = Cause(
    "aborts_midway",
    Limit.FAILING,
    (
        "clients stop {share:percent} of its answers midway ({aborted:requests} in "
        "{seconds:lasting})[, after {tokens:tokens} tokens on average][, with a TTFT p95 "
        "[{above=yes}above|of] {first_token_s:latency}|, with {queued_s:latency} in the queue on average]: "
        "users, or a time limit on whole answers[ (E2E p95 "
        "[{e2e_above=yes}above ]{e2e_s:latency})]"
    ),
    confidence=Confidence.MEDIUM,
)


def _stopped_finding(case: Case, engine: Engine, stopped: Ended) -> Finding:
    """The finding on answers that clients stop in the middle: people do, and limits on the time of whole answers do."""
    level = Level.WARN if _is_higher(case, "aborts_midway", stopped, _MOST_STOPPED, Level.WARN) else Level.NOTE
    e2e_s = finite(engine.latency.e2e_s.p95)
    late = case.late_latencies()
    length = params(e2e_s=e2e_s, e2e_above=yes_if(is_last_bucket(engine.latency.e2e_s.p95_high)))
    parameters = params(share=stopped.share, aborted=stopped.requests, seconds=stopped.seconds) | length
    tokens = finite(engine.load.aborted_tokens_mean)
    parameters |= _late_first_token(late) | params(tokens=tokens)
    share = _share_evidence(case, ABORTED_REQUESTS, "aborts_per_s", stopped, _ABORTS)
    return ABORTS_MIDWAY.finding(
        parameters=parameters,
        evidence=(share, *_midway_evidence(case, engine), *late),
        actions=(CHECK_ANSWER_TIMEOUTS.action(**length),),
        level=level,
    )


def _late_first_token(late: Iterable[Evidence]) -> Parameters:
    """The p95 of the time to first token, or the mean time in the queue, that is among the late latencies; empty where
    neither is."""
    for evidence in late:
        if evidence.quantity in LATE_BEFORE_TOKEN:
            above = evidence.parameters.get("above")
            return params(**{LATE_BEFORE_TOKEN[evidence.quantity]: finite(evidence.value), "above": above})
    return {}


def rejections(case: Case) -> Finding | None:
    """Rule: requests are turned away, as its queue is full."""
    engine = case.serving_engine()
    if engine is None:
        return None
    return rejections_of(case, (*_room_for_all(case, engine), CHECK_RETRIES.action()))


def _room_for_all(case: Case, engine: Engine) -> tuple[Action, ...]:
    """Actions that give what is turned away a place: more slots where they alone are what is full, as a setting costs
    nothing; else more instances."""
    if slots_are_the_limit(case, engine):
        actions = more_slots(case, engine, case.mean("running") or 0.0, case.waiting_mean())
        if actions[0].code == "raise_slots":
            return actions
    return (MORE_INSTANCES.action(**_instances_parameters(case, engine)),)


REJECTED: Final = Cause(
    "rejections",
    Limit.FAILING,
    (
        "[{share:percent} of its requests are|requests are] turned away ({rejected:requests} in "
        "{seconds:lasting})[: {waiting:wait}]"
    ),
)


def rejections_of(case: Case, actions: tuple[Action, ...]) -> Finding | None:
    """The finding on requests that an engine or front end turns away."""
    ended = ended_in(case, "rejections_per_s", counted_apart=True)
    if ended is None or not (_is_enough(case, ended, _REJECTIONS) or _is_enough_without_share(case, ended)):
        return None
    waiting = case.waiting_mean()
    parameters = params(share=ended.share, rejected=ended.requests, seconds=ended.seconds, waiting=waiting or None)
    evidence = [_share_evidence(case, REJECTED_REQUESTS, "rejections_per_s", ended, _REJECTIONS)]
    if waiting:
        evidence.append(case.evidence(WAITING, waiting))
    return REJECTED.finding(
        parameters=parameters,
        evidence=(*evidence, *case.late_latencies()),
        actions=actions,
    )


REFUSALS: Final = Cause(
    "refusals",
    Limit.FAILING,
    (
        "{share:percent} of its requests are refused (HTTP 4xx, {refused:requests} in "
        "{seconds:lasting}): prompts too long, or requests that are wrong"
    ),
)


def refusals(case: Case) -> Finding | None:
    """Rule: requests are refused with HTTP 4xx: prompts that are too long, or requests that are wrong."""
    engine = case.serving_engine()
    ended = ended_in(case, "refused_per_s", counted_apart=True)
    if engine is None or ended is None or not _is_enough(case, ended, _REFUSALS):
        return None
    level = Level.WARN if _is_higher(case, "refusals", ended, _MOST_REFUSED, Level.WARN) else Level.NOTE
    causes = clean(case.info.get(REFUSALS_BY_CAUSE, ""), _LONGEST_CAUSES)
    evidence = [_share_evidence(case, REFUSED_REQUESTS, "refused_per_s", ended, _REFUSALS)]
    if causes:
        source = case.counter_source(REFUSED)
        evidence.append(REFUSAL_CAUSES.evidence(source=source, parameters={"causes": causes}))
    return REFUSALS.finding(
        parameters=params(share=ended.share, refused=ended.requests, seconds=ended.seconds),
        evidence=tuple(evidence),
        actions=(CHECK_REFUSALS.action(flag=advice(engine.kind).longest_context),),
        level=level,
    )


CORRUPT_ANSWERS: Final = Cause(
    "corrupted",
    Limit.FAILING,
    (
        "[{share:percent} of its requests|requests] had NaN in their logits ({corrupted:requests} in "
        "{seconds:lasting}): their answers are arbitrary"
    ),
)


def corrupted(case: Case) -> Finding | None:
    """Rule: requests end with a NaN in their logits: what they are answered is arbitrary, and no status says so."""
    engine = case.serving_engine()
    ended = ended_in(case, "corrupted_per_s")
    if engine is None or ended is None or ended.requests < _LEAST_CORRUPTED:
        return None
    level = Level.CRITICAL if _is_higher(case, "corrupted", ended, MOST_FAIL, Level.CRITICAL) else Level.WARN
    share = _share_evidence(case, CORRUPTED_REQUESTS, "corrupted_per_s", ended, 0.0)
    return CORRUPT_ANSWERS.finding(
        parameters=params(share=ended.share, corrupted=ended.requests, seconds=ended.seconds),
        evidence=(share,),
        actions=(CHECK_NANS.action(), TAKE_OUT_OF_BALANCER.action()),
        level=level,
    )


def _instances_parameters(case: Case, engine: Engine) -> Parameters:
    """Instances that take what is turned away, too, as parameters of the action; empty where another verdict on what is
    full counts those who wait, and tells the number."""
    ended = ended_in(case, "rejections_per_s", counted_apart=True)
    if case.limits_before & _FULL or ended is None or ended.share is None or ended.share >= 1.0:
        return {}
    now = max(1, engine.hardware.ranks)
    wanted = steady_count(case, "rejections", now / (1.0 - ended.share))
    if not now < wanted <= MOST_TIMES * now:
        return {}
    return params(instances=float(wanted), now=float(now))


def _share_evidence(case: Case, quantity: Quantity, field: str, ended: Ended, limit: float) -> Evidence:
    """Evidence of the share of requests that ended in a way, with its own window: the engine's rate is that of 10 s."""
    source = case.counter_source(_COUNTER_OF_RATE[field], ended.seconds)
    parameters = params(requests=ended.requests, seconds=ended.seconds)
    if ended.share is None:
        return quantity.evidence(source=source, parameters=parameters)
    return quantity.evidence(ended.share, limit, source=source, parameters=parameters)


def _read_log_action(case: Case, engine: Engine) -> Action:
    """Read the engine's log where its first process writes it."""
    processes = processes_of(case, engine)
    if not processes:
        return READ_ERROR_LOG.action()
    first = processes[0]
    return READ_ERROR_LOG.action(pid=str(first.pid), log=log_of(first), container=first.container[:12])
