"""Traffic of an engine that stops or falls to a third within minutes: what is wrong then is somewhere else."""

from __future__ import annotations

import math
from statistics import median
from typing import Final

from gpumon.readings.verdict import Confidence, Level, Limit, Team
from gpumon.triage.change import begin_of_now
from gpumon.triage.engine_use import idle_s
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params
from gpumon.triage.hour import SLOT_S, Arrived
from gpumon.triage.sentences import NO_REQUEST
from gpumon.triage.signals import MINUTE_S, Case

MINUTE_SLOTS: Final = 3
"""Slots of a minute."""
_COMPARED_SLOTS: Final = 9
"""Traffic is held against the least of so many slots before, 3 min, so that a lull is no fall."""
LEAST_SLOTS: Final = 3
"""Slots of before that tell how much traffic there was."""
LOOKED_BACK: Final = 24
"""Slots in which the fall is looked for: those before it, and as long as it is reported."""
_LEAST_EXPECTED: Final = 20.0
"""Requests that would have come, from which on it is no chance that none did: e^-20."""
_FALLEN_SHARE: Final = 1.0 / 3.0
"""Part of the requests that would have come from which on traffic fell."""
_NEARLY_ALL: Final = 0.5
"""Part of the usual traffic from which on it was there: what ebbs away, as at night, is less for some slots."""
_NEARLY_NOTHING: Final = 0.05
"""Part of the usual traffic up to which it is gone, but for a stray request."""
_LARGEST_CHANCE: Final = 1e-3
"""Chance of so few requests at the traffic of before below which it is no chance."""
_IN_FLIGHT_SHARE: Final = 0.7
"""Part of the requests in flight before from which on it is not the clients that ask less: with a third of the traffic
and answers as fast as before a third is in flight."""
REPORTED_S: Final = 300.0
"""Seconds for which traffic that stopped or fell is reported: after that the engine is one with little or no work."""


_UNRELATED_LIMITS: Final = frozenset({Limit.BANDWIDTH_BOUND, Limit.LEAK})
"""Limits that are found beside little traffic, too, and do not explain it."""


REQUESTS_EXPECTED: Final = Quantity(
    "requests_expected", "about {value:requests} requests would have come since, at {before_per_s:rate}/s"
)
REQUESTS_CAME: Final = Quantity(
    "requests_came", "{value:requests} requests came in the last minute, about {limit:requests} would have"
)
CHECK_CLIENTS: Final = Remedy(
    "check_clients",
    "look at what sends its requests: clients, load balancer, DNS, certificates, quotas",
    team=Team.CLIENT,
)


def traffic_fell(case: Case) -> Finding | None:
    """Rule: requests stopped, or fell to a third, while nothing is wrong with the engine."""
    engine = case.serving_engine()
    is_held_back = any(limit not in _UNRELATED_LIMITS for limit in case.found_limits)
    if engine is None or is_held_back or engine.asleep or case.restart_ages_s:
        return None
    quiet_s = idle_s(case)
    if quiet_s is not None:
        return _stopped_finding(case, quiet_s)
    return _fallen_finding(case)


TRAFFIC_STOPPED: Final = Cause(
    "traffic_stopped",
    Limit.TRAFFIC_FELL,
    "no request for {seconds:lasted}, {before_per_s:rate}/s before: its clients have stopped",
)


def _stopped_finding(case: Case, quiet_s: float) -> Finding | None:
    """The finding on an engine without a request for too long to be chance, at the traffic that there was."""
    slots = case.recent.hour.arrived()
    before, since = _split_at_fall(slots, 0.0)
    if quiet_s > REPORTED_S or len(before) < LEAST_SLOTS or _comes_in_batches(before):
        return None
    least = min(slot.requests for slot in before[-_COMPARED_SLOTS:]) / SLOT_S
    expected = least * quiet_s
    came = sum(slot.requests for slot in since)
    gone_s = case.now_s - before[-1].end_s
    if expected < _LEAST_EXPECTED or _chance_of_at_most(came, least * gone_s) >= _LARGEST_CHANCE:
        return None
    usual = _usual_per_s(before)
    if not _stopped_at_once(slots, usual * SLOT_S):
        return None
    parameters = params(seconds=quiet_s, before_per_s=usual)
    source = "least requests/s of 20 s in the 3 min before x time"
    evidence = (
        case.evidence(NO_REQUEST, quiet_s),
        REQUESTS_EXPECTED.evidence(expected, source=source, parameters=params(before_per_s=usual)),
    )
    fixes = (CHECK_CLIENTS.action(),)
    began_s = case.now_s - quiet_s
    return TRAFFIC_STOPPED.finding(
        parameters=parameters,
        evidence=evidence,
        actions=fixes,
        level=Level.NOTE if _had_trough(before) else Level.WARN,
        began_s=began_s,
    )


TRAFFIC_FELL: Final = Cause(
    "traffic_fell",
    Limit.TRAFFIC_FELL,
    "{now_per_s:rate} requests/s in the last minute, {before_per_s:rate}/s before",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)


def _fallen_finding(case: Case) -> Finding | None:
    """The finding where at most a third of the requests of before came in the last minute."""
    slots = case.recent.hour.arrived()
    newest = slots[-MINUTE_SLOTS:]
    came = sum(slot.requests for slot in newest)
    before, since = _split_at_fall(slots, came / MINUTE_SLOTS)
    if not MINUTE_SLOTS <= len(since) <= REPORTED_S / SLOT_S or len(before) < LEAST_SLOTS:
        return None
    usual = _usual_per_s(before)
    if newest[-1].requests > _FALLEN_SHARE * usual * SLOT_S:  # it has come back
        return None
    if _waits_for_answers(case, before[-1].end_s):
        return None
    least = min(slot.requests for slot in before[-_COMPARED_SLOTS:]) * MINUTE_SLOTS
    expected = usual * MINUTE_S
    if least < _LEAST_EXPECTED or came > _FALLEN_SHARE * expected or _chance_of_at_most(came, least) >= _LARGEST_CHANCE:
        return None
    parameters = params(now_per_s=came / MINUTE_S, before_per_s=usual)
    source = "requests/s x time + requests in flight"
    evidence = (REQUESTS_CAME.evidence(came, limit=expected, source=source, parameters=parameters),)
    fixes = (CHECK_CLIENTS.action(),)
    return TRAFFIC_FELL.finding(
        parameters=parameters,
        evidence=evidence,
        actions=fixes,
    )


def _waits_for_answers(case: Case, until_s: float) -> bool:
    """Whether as many requests are in flight as before, or nearly: each takes longer, and its client sends the next one
    later. What is wrong then is the engine, or the answers are longer."""
    before = [slot.in_flight for slot in case.recent.hour.slots if slot.end_s <= until_s and slot.in_flight is not None]
    running = case.mean("running", MINUTE_S)
    if not before or running is None:
        return False
    return running + case.waiting_mean() >= _IN_FLIGHT_SHARE * median(before)


def _split_at_fall(slots: list[Arrived], now: float) -> tuple[list[Arrived], list[Arrived]]:
    """The slots before the last ones with as few requests as now, and those last ones.

    The last slot of before is left out of both, as it may have the fall in it.
    """
    begin = begin_of_now([slot.requests for slot in slots], now, LOOKED_BACK)
    return slots[: max(0, begin - 1)], slots[begin:]


def _usual_per_s(before: list[Arrived]) -> float:
    """Requests per second of the minutes before."""
    return median(slot.requests for slot in before[-_COMPARED_SLOTS:]) / SLOT_S


def _comes_in_batches(before: list[Arrived]) -> bool:
    """Whether there was a pause before, after its first request: its traffic comes in batches."""
    counts = [slot.requests for slot in before]
    has_begun = False
    for count in counts:
        if count >= 1.0:
            has_begun = True
        elif has_begun:
            return True
    return False


def _stopped_at_once(slots: list[Arrived], usual: float) -> bool:
    """Whether traffic was there up to the slot in which it stopped; `usual`: requests of a slot before."""
    between = 0
    for slot in reversed(slots):
        if slot.requests >= _NEARLY_ALL * usual:
            break
        if between or slot.requests > _NEARLY_NOTHING * usual:
            between += 1
    return between <= 1


def _had_trough(before: list[Arrived]) -> bool:
    """Whether there was a minute with a third of the usual traffic in the hour before, after a time with more: what
    comes and goes by the clock has stopped before, and came again."""
    low = _FALLEN_SHARE * _usual_per_s(before) * SLOT_S
    slots_below = 0
    has_begun = False
    for slot in before:
        if slot.requests > low:
            has_begun = True
            slots_below = 0
            continue
        slots_below += 1
        if has_begun and slots_below >= MINUTE_SLOTS:
            return True
    return False


def _chance_of_at_most(came: float, expected: float) -> float:
    """Chance of at most `came` requests where `expected` are expected, 0 to 1 (Poisson)."""
    most = math.floor(came)
    # Logarithms, as the factorial of a large count is no float.
    log_chances = [count * math.log(expected) - expected - math.lgamma(count + 1.0) for count in range(most + 1)]
    return sum(map(math.exp, log_chances))
