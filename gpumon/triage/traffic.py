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

_MINUTE_SLOTS: Final = 3
"""Slots of a minute."""
_COMPARED_SLOTS: Final = 9
"""Slots before the fall, 3 min, that traffic of now is held against: their median is the usual, and against their
least it has to be no chance, so that a lull is no fall."""
_LEAST_SLOTS_BEFORE: Final = 3
"""Slots before the fall that tell how much traffic there was."""
_LOOKED_BACK_SLOTS: Final = 24
"""Slots in which the fall is looked for: those before it, and as long as it is reported."""
_LEAST_EXPECTED: Final = 20.0
"""Requests that would have come, from which on it is no chance that none did: e^-20."""
_FALLEN_SHARE: Final = 1.0 / 3.0
"""Part of the requests that would have come from which on traffic fell."""
_PRESENT_SHARE: Final = 0.5
"""Part of the usual traffic from which on a slot has it: what ebbs away, as at night, is less for some slots."""
_GONE_SHARE: Final = 0.05
"""Part of the usual traffic up to which a slot has none, but for a stray request."""
_LARGEST_CHANCE: Final = 1e-3
"""Chance of so few requests at the traffic of before below which it is no chance."""
_IN_FLIGHT_SHARE: Final = 0.7
"""Part of the requests in flight before from which on it is not the clients that ask less: with a third of the traffic
and answers as fast as before a third is in flight."""
_REPORTED_S: Final = 300.0
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
    "no request for {seconds:lasted}, {before_per_s:rate}/s before: nothing reaches it any more",
)


def _stopped_finding(case: Case, quiet_s: float) -> Finding | None:
    """The finding on an engine without a request for too long to be chance, at the traffic that there was.

    `quiet_s`: seconds since anything of its requests moved (`idle_s`).
    """
    slots = case.recent.hour.arrived()
    before, since = _split_at_fall(slots, 0.0)
    if quiet_s > _REPORTED_S or len(before) < _LEAST_SLOTS_BEFORE or _comes_in_batches(before):
        return None
    least_per_s = min(slot.requests for slot in before[-_COMPARED_SLOTS:]) / SLOT_S
    expected = least_per_s * quiet_s
    came = sum(slot.requests for slot in since)
    # Stray requests may have come since traffic fell, so that this is longer ago than `quiet_s`.
    fallen_s = case.now_s - before[-1].end_s
    if expected < _LEAST_EXPECTED or _chance_of_at_most(came, least_per_s * fallen_s) >= _LARGEST_CHANCE:
        return None
    usual_per_s = _usual_per_s(before)
    if not _stopped_at_once(slots, usual_per_s * SLOT_S):
        return None
    source = "least requests/s of 20 s in the 3 min before x time"
    evidence = (
        case.evidence(NO_REQUEST, quiet_s),
        REQUESTS_EXPECTED.evidence(expected, source=source, parameters=params(before_per_s=usual_per_s)),
    )
    return TRAFFIC_STOPPED.finding(
        parameters=params(seconds=quiet_s, before_per_s=usual_per_s),
        evidence=evidence,
        actions=(CHECK_CLIENTS.action(),),
        level=Level.NOTE if _had_trough(before) else Level.WARN,
        began_s=case.now_s - quiet_s,
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
    newest = slots[-_MINUTE_SLOTS:]
    came = sum(slot.requests for slot in newest)
    before, since = _split_at_fall(slots, came / _MINUTE_SLOTS)
    if not _MINUTE_SLOTS <= len(since) <= _REPORTED_S / SLOT_S or len(before) < _LEAST_SLOTS_BEFORE:
        return None
    usual_per_s = _usual_per_s(before)
    if newest[-1].requests > _FALLEN_SHARE * usual_per_s * SLOT_S:  # it has come back
        return None
    if _waits_for_answers(case, before[-1].end_s):
        return None
    least_of_minute = min(slot.requests for slot in before[-_COMPARED_SLOTS:]) * _MINUTE_SLOTS
    expected = usual_per_s * MINUTE_S
    if least_of_minute < _LEAST_EXPECTED or came > _FALLEN_SHARE * expected:
        return None
    if _chance_of_at_most(came, least_of_minute) >= _LARGEST_CHANCE:
        return None
    parameters = params(now_per_s=came / MINUTE_S, before_per_s=usual_per_s)
    source = "requests/s x time + requests in flight"
    evidence = (REQUESTS_CAME.evidence(came, limit=expected, source=source, parameters=parameters),)
    return TRAFFIC_FELL.finding(parameters, evidence, actions=(CHECK_CLIENTS.action(),))


def _waits_for_answers(case: Case, until_s: float) -> bool:
    """Whether as many requests are in flight as before, or nearly: each takes longer, and its client sends the next one
    later. What is wrong then is the engine, or the answers are longer."""
    before = [slot.in_flight for slot in case.recent.hour.slots if slot.end_s <= until_s and slot.in_flight is not None]
    running = case.mean("running", MINUTE_S)
    if not before or running is None:
        return False
    return running + case.waiting_mean() >= _IN_FLIGHT_SHARE * median(before)


def _split_at_fall(slots: list[Arrived], now_per_slot: float) -> tuple[list[Arrived], list[Arrived]]:
    """The slots before traffic fell to `now_per_slot` (requests of a slot), and those since.

    The last one before the fall is left out of both, as the fall may be in it.
    """
    begin = begin_of_now([slot.requests for slot in slots], now_per_slot, _LOOKED_BACK_SLOTS)
    return slots[: max(0, begin - 1)], slots[begin:]


def _usual_per_s(before: list[Arrived]) -> float:
    """Requests per second of the minutes before the fall."""
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


def _stopped_at_once(slots: list[Arrived], usual_per_slot: float) -> bool:
    """Whether at most one slot lies between the last one with the usual traffic and those with none: it did not ebb
    away. `usual_per_slot`: requests of a slot before."""
    between = 0
    for slot in reversed(slots):
        if slot.requests >= _PRESENT_SHARE * usual_per_slot:
            break
        if between or slot.requests > _GONE_SHARE * usual_per_slot:
            between += 1
    return between <= 1


def _had_trough(before: list[Arrived]) -> bool:
    """Whether there was a minute with a third of the usual traffic in the hour before, after a time with more: it comes
    and goes by the clock."""
    low = _FALLEN_SHARE * _usual_per_s(before) * SLOT_S
    slots_below = 0
    has_begun = False
    for slot in before:
        if slot.requests > low:
            has_begun = True
            slots_below = 0
            continue
        slots_below += 1
        if has_begun and slots_below >= _MINUTE_SLOTS:
            return True
    return False


def _chance_of_at_most(came: float, expected: float) -> float:
    """Chance of at most `came` requests where `expected` are expected, 0 to 1 (Poisson)."""
    most = math.floor(came)
    # Logarithms, as the factorial of a large count is no float.
    log_chances = [count * math.log(expected) - expected - math.lgamma(count + 1.0) for count in range(most + 1)]
    return sum(map(math.exp, log_chances))
