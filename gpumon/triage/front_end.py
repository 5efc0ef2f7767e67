"""Rules on front ends: routers and proxies, whose requests fail or wait though some of their backends are well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.backends import short_name
from gpumon.efficiency.checks import EMPTY_QUEUE
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.readings.quantities import FAILURES, REJECTIONS
from gpumon.readings.snapshot import Backend, Engine
from gpumon.readings.text import clean
from gpumon.readings.verdict import Evidence, Level, Limit, Team
from gpumon.triage.failing import FAILED_REQUESTS, LEAST_REQUESTS, MOST_FAIL, ended_in, errors_of, rejections_of
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, yes_if
from gpumon.triage.samples import Recent
from gpumon.triage.sentences import CHECK_RETRIES, WAITING
from gpumon.triage.signals import MINUTE_S, PINNED_S, Case, finite, sum_of_all

_NONE_READY_S: Final = 30.0
"""Seconds for which no backend must have got requests: circuit breakers let one through sooner."""
_OUT_S: Final = 60.0
"""Seconds for which a backend must have got none: a restart of a small one is over by then."""
_FAILING_SHARE: Final = 0.5
"""Share of a backend's requests from which on it fails, where the others fail next to none."""
_MOST_FAILING_SHARE_OF_OTHERS: Final = 0.1
"""Share of the others' requests up to which it is that backend: requests that are wrong fail everywhere."""
_MOST_USAGE_WITH_ROOM: Final = 0.6
"""KV cache use up to which a backend has room for what its front end holds."""
_BY_LAST_REQUEST: Final = frozenset({EngineKind.LITELLM})
"""Kinds that call a backend ready or not by its last request alone."""
_MOST_NAMED: Final = 3
"""Backends that are named in a sentence."""
_MOST_NAME: Final = 60
"""Characters of a backend's name in a sentence."""


BACKENDS_READY: Final = Quantity(
    "backends_ready", "{value:count} of {limit:count} backends get requests", field="backends_ready"
)
FAILING_BACKEND: Final = Quantity(
    "failing_backend", "{backend} failed {value:percent} of its requests ({failed:requests} a minute)"
)
BACKENDS_WELL: Final = Quantity("backends_well", "its {value:count} backends answer and fail none of their requests")
BACKENDS_WITH_ROOM: Final = Quantity(
    "backends_with_room",
    ("{value:count} backends: {running:requests} running, none waiting, KV cache at most 60% full"),
)
CHECK_BACKEND: Final = Remedy(
    "check_backend",
    ("see whether {backend} answers, look into its log, and take it out of the front end until then"),
    team=Team.SCHEDULER,
)
CHECK_BACKENDS: Final = Remedy(
    "check_backends",
    (
        "see which backends answer, and what their front end's log says of those that get no "
        "requests (health checks, circuit breaker)"
    ),
    team=Team.SCHEDULER,
)
CHECK_WAY_TO_BACKENDS: Final = Remedy(
    "check_way_to_backends", "its time-outs and the network between it and its backends", team=Team.SCHEDULER
)
CHECK_RATE_LIMITS: Final = Remedy(
    "check_rate_limits", "its queue and its limits of requests and tokens (per key, team or model)", team=Team.SCHEDULER
)
LET_MORE_THROUGH: Final = Remedy(
    "let_more_through",
    ("a higher limit of requests that run at once in the front end (SGLang: --max-concurrent-requests)"),
    team=Team.SCHEDULER,
)


class _Failing(NamedTuple):
    """A backend that fails requests while the others do not."""

    name: str
    share: float
    """Share of its requests that failed."""
    failed: float
    """Requests that failed in a minute."""


NO_BACKEND: Final = Cause(
    "no_backend",
    Limit.FAILING,
    (
        "none of its[ {known:count}] backends gets requests: [{share:percent}|requests] fail or are "
        "turned away ({failed:requests} in {seconds:lasting})"
    ),
    level=Level.CRITICAL,
)


def no_backend(case: Case) -> Finding | None:
    """Rule: most requests fail or are turned away, as no backend gets any."""
    engine = case.front_end()
    if engine is None or not _none_ready(case):
        return None
    failed = ended_in(case, "failures_per_s")
    rejected = ended_in(case, "rejections_per_s", counted_apart=True)
    seconds = min(MINUTE_S, case.recent.share_seconds)
    requests = 0.0
    shares = []
    sources = []
    for counter, ended in ((FAILURES, failed), (REJECTIONS, rejected)):
        if ended is not None:
            requests += ended.requests
            shares.append(ended.share)
            sources.append(case.counter_source(counter, seconds))
    share = sum_of_all(shares)
    if requests < LEAST_REQUESTS or (share is not None and share < MOST_FAIL):
        return None
    if share is not None:
        share = min(1.0, share)
    backends_known = finite(engine.load.backends_known)
    parameters = params(known=backends_known, share=share, failed=requests, seconds=seconds)
    source = " + ".join(filter(None, sources))
    counted = params(requests=requests, seconds=seconds)
    failed_evidence = FAILED_REQUESTS.evidence(source=source, parameters=counted)
    if share is not None:
        failed_evidence = FAILED_REQUESTS.evidence(share, MOST_FAIL, source=source, parameters=counted)
    evidence = (
        case.evidence(BACKENDS_READY, 0.0, limit=backends_known),
        failed_evidence,
    )
    return NO_BACKEND.finding(parameters, evidence, actions=(CHECK_BACKENDS.action(),))


def _none_ready(case: Case) -> bool:
    """Whether for some time no backend got requests."""
    samples = case.recent.values("backends_ready", _NONE_READY_S)
    if not samples or case.recent.seconds < _NONE_READY_S:
        return False
    return all(ready == 0.0 for _, ready in samples)


def requests_fail(case: Case) -> Finding | None:
    """Rule: requests end in errors at a front end, with the backend that they come from where it is one."""
    engine = case.front_end()
    if engine is None:
        return None
    finding = errors_of(case, engine)
    if finding is None:
        return None
    backend = _failing_backend(engine)
    if backend is not None:
        parameters = finding.parameters | params(backend=backend.name, at=backend.share)
        actions = (CHECK_BACKEND.action(backend=backend.name), *finding.actions)
        return finding._replace(
            parameters=parameters, evidence=(*finding.evidence, _failing_evidence(backend)), actions=actions
        )
    well_backends = _polled_and_well(case, engine)
    if well_backends:
        evidence = (*finding.evidence, BACKENDS_WELL.evidence(float(well_backends)))
        return finding._replace(evidence=evidence, actions=(*finding.actions, CHECK_WAY_TO_BACKENDS.action()))
    return finding


def turns_requests_away(case: Case) -> Finding | None:
    """Rule: a front end turns requests away: its own queue or a limit of rates is full."""
    if case.front_end() is None:
        return None
    return rejections_of(case, (CHECK_RATE_LIMITS.action(), CHECK_RETRIES.action()))


BACKEND_FAILS: Final = Cause(
    "backend_fails",
    Limit.FAILING,
    (
        "its backend {backend} fails {share:percent} of the requests that it gets ({failed:requests} "
        "a minute), the others hardly any"
    ),
)


def backend_fails(case: Case) -> Finding | None:
    """Rule: one backend fails most of its requests and the others hardly any: also where the front end tries again
    elsewhere, or does not count such answers as errors."""
    engine = case.front_end()
    if engine is None or Limit.FAILING in case.found_limits:
        return None
    backend = _failing_backend(engine)
    if backend is None:
        return None
    parameters = params(backend=backend.name, share=backend.share, failed=backend.failed)
    return BACKEND_FAILS.finding(
        parameters=parameters,
        evidence=(_failing_evidence(backend),),
        actions=(CHECK_BACKEND.action(backend=backend.name),),
    )


def _failing_backend(engine: Engine) -> _Failing | None:
    """The one backend that fails most of its requests while the others, as far as there are any, fail next to none."""
    worst = max(engine.backends, key=_failed_share, default=None)
    if worst is None or _failed_share(worst) < _FAILING_SHARE:
        return None
    failed = (finite(worst.failures_per_s) or 0.0) * MINUTE_S
    others = [backend for backend in engine.backends if backend is not worst]
    if failed < LEAST_REQUESTS or not _are_well(others):
        return None
    return _Failing(_name_of(worst), _failed_share(worst), failed)


def _are_well(backends: Sequence[Backend]) -> bool:
    """Whether some of these backends get requests, and all fail next to none."""
    if any(_failed_share(backend) > _MOST_FAILING_SHARE_OF_OTHERS for backend in backends):
        return False
    return any(finite(backend.requests_per_s) for backend in backends)


def _failed_share(backend: Backend) -> float:
    """Share of its requests that failed; 0 where that is not known or it gets none."""
    requests = finite(backend.requests_per_s)
    failures = finite(backend.failures_per_s)
    if not requests or not failures:
        return 0.0
    return min(1.0, failures / requests)


def _failing_evidence(backend: _Failing) -> Evidence:
    """Evidence of a backend that fails requests."""
    return FAILING_BACKEND.evidence(
        backend.share, _FAILING_SHARE, parameters=params(backend=backend.name, failed=backend.failed)
    )


def _name_of(backend: Backend) -> str:
    """Name of the engine that is polled there; else host and port, or the name that its front end has for it."""
    return clean(backend.engine or short_name(backend.address), _MOST_NAME)


def _polled_and_well(case: Case, engine: Engine) -> int:
    """Backends that are polled, answer and fail nothing; 0 where one of them is not polled, not well, or does not count
    what it fails."""
    by_name = {other.name: other for other in case.snapshot.engines}
    for backend in engine.backends:
        polled = by_name.get(backend.engine)
        if polled is None or polled.state is not EndpointState.OK or finite(polled.rates.failures_per_s) != 0.0:
            return 0
    return len(engine.backends)


BACKEND_OUT: Final = Cause(
    "backend_out",
    Limit.FAILING,
    "{out:count} of {known:count} backends [{one=yes}gets|get] no requests[: {backend}]",
    level=Level.NOTE,
)


def backend_out(case: Case) -> Finding | None:
    """Rule: for a minute a backend, or all of them, got no requests; one that loads its model gets none yet."""
    engine = case.front_end()
    if engine is None or engine.kind in _BY_LAST_REQUEST or case.recent.seconds < _OUT_S:
        return None
    known = finite(engine.load.backends_known)
    ready_counts = [count for _, count in case.recent.values("backends_ready", _OUT_S)]
    if not known or not ready_counts or max(ready_counts) >= known:
        return None
    ready = ready_counts[-1]
    loading = _loading_backends(case, engine)
    out = known - ready - len(loading)
    if out <= 0.0:
        return None
    names = [_name_of(backend) for backend in engine.backends if backend.ready == 0.0 and backend not in loading]
    parameters = params(out=out, known=known, backend=_listed_names(names), one=yes_if(out == 1.0))
    evidence = case.evidence(BACKENDS_READY, ready, limit=known)
    return BACKEND_OUT.finding(parameters, (evidence,), actions=(CHECK_BACKENDS.action(),))


def _loading_backends(case: Case, engine: Engine) -> list[Backend]:
    """Backends that get no requests and whose engines, which are polled, load their model."""
    loading = {other.name for other in case.snapshot.engines if other.state is EndpointState.STARTING}
    return [backend for backend in engine.backends if backend.ready == 0.0 and backend.engine in loading]


def _listed_names(names: Sequence[str]) -> str:
    """The first of the names, and how many more there are."""
    text = ", ".join(names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        text += f" and {len(names) - _MOST_NAMED} more"
    return text


FRONT_QUEUE: Final = Cause(
    "front_queue",
    Limit.QUEUE_LIMIT,
    (
        "{waiting:requests} requests wait in it, while its {backends:count} backends have room "
        "({running:requests} running, none waiting)"
    ),
)


def front_end_queue(case: Case) -> Finding | None:
    """Rule: requests wait in a front end while all of its backends have room: its own limit holds them."""
    engine = case.front_end()
    waiting = case.mean("waiting", PINNED_S)
    if engine is None or waiting is None or waiting < case.thresholds.queue_waiting:
        return None
    running = _running_in_all_with_room(case, engine)
    if running is None:
        return None
    number = float(len(engine.backends))
    parameters = params(waiting=waiting, backends=number, running=running)
    evidence = (
        case.evidence(WAITING, waiting, limit=case.thresholds.queue_waiting),
        BACKENDS_WITH_ROOM.evidence(number, parameters=params(running=running)),
    )
    return FRONT_QUEUE.finding(
        parameters=parameters,
        evidence=evidence,
        actions=(LET_MORE_THROUGH.action(),),
    )


def _running_in_all_with_room(case: Case, engine: Engine) -> float | None:
    """Requests that run in all backends; None unless each is polled, has no queue, and has room in its KV cache."""
    by_name = {other.name: other for other in case.snapshot.engines}
    running: list[float | None] = []
    for backend in engine.backends:
        polled = by_name.get(backend.engine)
        if polled is None or polled.state is not EndpointState.OK:
            return None
        running.append(_running_with_room(case.recents[polled.key]))
    return sum_of_all(running) if running else None


def _running_with_room(recent: Recent) -> float | None:
    """Requests that run in an engine without a queue and with room in its KV cache; None of any other."""
    waiting = recent.mean("waiting", PINNED_S)
    usage = recent.mean("kv_usage_ratio", PINNED_S)
    if waiting is None or usage is None or waiting > EMPTY_QUEUE or usage > _MOST_USAGE_WITH_ROOM:
        return None
    return recent.mean("running", PINNED_S)
