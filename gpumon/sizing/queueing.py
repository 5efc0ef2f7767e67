"""Queueing at the operating point of a profile, by Little's law."""

from __future__ import annotations

from typing import Final

from gpumon.sizing.profile import Observed, Point

_MOSTLY_QUEUED: Final = 0.5
"""Share of the response from which on a request mostly waits."""


def queue_ratio(point: Point) -> float | None:
    """Share of the response that a request waits for its turn: 1 - running / offered, by Little's law.

    None where the offered load is not known.
    """
    if point.offered is None or point.offered <= 0.0:
        return None
    return min(1.0, max(0.0, 1.0 - point.running / point.offered))


def queue_warning(observed: Observed) -> str:
    """Warning if requests mostly queue at the operating point of a profile; empty where they do not.

    Three of the four "optimal" concurrencies in `design_guide` are of servers that work on one request at a time.
    """
    for point in observed.points:
        offered = point.offered
        if offered is None or offered != observed.concurrency:  # not the operating point
            continue
        ratio = queue_ratio(point)
        if ratio is None or ratio < _MOSTLY_QUEUED:
            continue
        kind = "a serial server" if round(point.running) <= 1 else "its slots are full"
        return (
            f"{ratio:.0%} of the response at concurrency {offered:g} is queue: {kind}, concurrency "
            f"{max(1, round(point.running))} gives the same throughput and {point.running / offered:.0%} of the "
            "latency"
        )
    return ""
