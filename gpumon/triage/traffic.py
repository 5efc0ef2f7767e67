"""Traffic of an engine that stops or falls to a third within minutes: what is wrong then is somewhere else."""

from __future__ import annotations

import math
from typing import Final

from gpumon.readings.verdict import Confidence, Evidence, Level, Limit
from gpumon.triage.engine_use import idle_s
from gpumon.triage.hour import SLOT_S, Arrivals
from gpumon.triage.signals import MINUTE_S, Case, Finding, action, params

BEFORE_S: Final = 180.0
"""Traffic is held against so long of what was before: the least of it, so that a lull is no fall."""
LEAST_SLOTS: Final = 3
"""Slots of before that tell how much traffic there was: a minute."""
EXPECTED: Final = 20.0
"""Requests that would have come from which on none is no chance: e^-20."""
THIRD: Final = 1.0 / 3.0
"""Part of the requests that would have come from which on traffic fell."""
CHANCE: Final = 1e-3
"""Chance of so few requests at the traffic of before below which it is no chance."""
TOLD_S: Final = 300.0
"""Traffic that stopped is told for so long: then the engine is one without work."""


def fell(case: Case) -> Finding | None:
    """Requests stopped, or fell to a third, while nothing is wrong with the engine."""
    engine = case.served()
    if engine is None or case.found or engine.asleep or case.restarts_s:
        return None
    quiet_s = idle_s(case)
    if quiet_s is not None:
        return _stopped(case, quiet_s)
    return _fallen(case)


def _stopped(case: Case, quiet_s: float) -> Finding | None:
    """No request for long enough to be no chance, at the traffic that there was."""
    end_s = case.now_s - quiet_s
    if quiet_s > TOLD_S:
        return None
    # The last slots before the end may have the end in them.
    seen = [slot for slot in case.recent.hour.arrivals() if slot.end_s <= end_s]
    per_s = _least_per_s(seen, end_s)
    if per_s is None or per_s * quiet_s < EXPECTED or _pauses(seen):
        return None
    said = params(seconds=quiet_s, before_per_s=per_s)
    expected = per_s * quiet_s
    proof = (
        case.evidence("no_request", "running", quiet_s, "running"),
        Evidence("requests_expected", expected, source="least requests/s of 20 s in the 3 min before", parameters=said),
    )
    fixes = (action("check_clients"),)
    return Finding(Limit.TRAFFIC_FELL, "traffic_stopped", said, proof, fixes, Level.WARN, began_s=end_s)


def _fallen(case: Case) -> Finding | None:
    """At most a third of the requests of before came in the last minute."""
    slots = case.recent.hour.arrivals()
    count = round(MINUTE_S / SLOT_S)
    newest, seen = slots[-count:], slots[:-count]
    if len(newest) < count or not seen:
        return None
    per_s = _least_per_s(seen, seen[-1].end_s)
    if per_s is None or per_s * MINUTE_S < EXPECTED:
        return None
    came = sum(slot.count for slot in newest)
    expected = per_s * MINUTE_S
    if came > THIRD * expected or _chance(came, expected) >= CHANCE:
        return None
    said = params(now_per_s=came / MINUTE_S, before_per_s=per_s)
    proof = (Evidence("requests_came", came, expected, "requests/s x time + requests in flight", parameters=said),)
    fixes = (action("check_clients"),)
    return Finding(Limit.TRAFFIC_FELL, "traffic_fell", said, proof, fixes, Level.NOTE, Confidence.MEDIUM)


def _least_per_s(seen: list[Arrivals], end_s: float) -> float | None:
    """The least requests per second of a slot in the minutes before; None where too little was seen."""
    last = [slot.count / SLOT_S for slot in seen if slot.end_s > end_s - BEFORE_S]
    return min(last) if len(last) >= LEAST_SLOTS else None


def _pauses(seen: list[Arrivals]) -> bool:
    """Whether there was a pause before, after its first request: its traffic comes in batches."""
    counts = [slot.count for slot in seen]
    first = next((at for at, count in enumerate(counts) if count >= 1.0), len(counts))
    return any(count < 1.0 for count in counts[first:])


def _chance(came: float, expected: float) -> float:
    """Chance of at most so many requests where so many are expected (Poisson)."""
    most = math.floor(came)
    logs = [count * math.log(expected) - expected - math.lgamma(count + 1.0) for count in range(most + 1)]
    return sum(map(math.exp, logs))
