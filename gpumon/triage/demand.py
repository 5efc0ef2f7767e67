"""Load of an engine as its clients ask for it: with what it turned away, and in whole instances that do not waver."""

from __future__ import annotations

import math
from typing import Final

from gpumon.efficiency import service
from gpumon.triage.signals import MINUTE_S, Case

WAVERS: Final = 0.25
"""Part of an instance by which the load of some seconds wavers about the same need: a number that was advised stays
until the need has left it by more."""


def turned_away(case: Case) -> float:
    """Requests that would run beside the others had the engine not turned them away."""
    rejected_per_s = case.mean("rejections_per_s", MINUTE_S)
    served_per_s = case.mean("requests_per_s", MINUTE_S)
    running = case.mean("running", MINUTE_S)
    if not rejected_per_s or not served_per_s or running is None:
        return 0.0
    return service.turned_away_requests(running, served_per_s, rejected_per_s)


def steady_count(case: Case, limit: str, need: float) -> int:
    """Whole instances for a need by what is full; the number that was advised last while the need wavers about it."""
    last = case.recent.advised.get(limit)
    if last is not None and last - 1.0 - WAVERS < need <= last + WAVERS:
        return last
    count = math.ceil(need)
    case.recent.advised[limit] = count
    return count
