"""Where more load stops to pay: the knee of a sweep (sizing fact sheet, capacity: knee detection on a sweep)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

import msgspec

from gpumon.sizing.profile import Point

BEHIND: Final = 0.05
"""Running falls behind the offered load by more than this share, against the point before."""
TTFT_JUMP: Final = 2.0
SLOPE: Final = 0.5
"""Of the first slope of throughput over concurrency."""
_QUEUEING: Final = 1.5
"""A TTFT that grows by this factor more than the load is a queue; one that grows with the load is prefill."""
_FOLLOWS: Final = 0.5
"""Running that grows by less than this share of what the load grew by waits, whatever TTFT says."""
_PLATEAU: Final = 0.25
"""Running that grows by less than this share of what the load grew by stands on a plateau."""


class Knee(msgspec.Struct, frozen=True):
    """The last point before the knee, the first beyond it (None: the sweep ends before), and what told it."""

    point: Point
    beyond: Point | None
    rule: str
    """One clause for people: `running stops following the load: 85.2 of 100`."""
    plateau: float | None = None
    """Sequences that decode together where running stopped to grow, whatever more is offered."""


def load(point: Point) -> float:
    """Requests in flight at a point: the x axis of a sweep."""
    return point.running if point.offered is None else point.offered


def throughput(point: Point) -> float | None:
    """Output tokens/s, else requests/s."""
    return point.requests_per_s if point.tokens_per_s is None else point.tokens_per_s


def knee(points: Sequence[Point]) -> Knee:
    """The knee of at least one point. Raises ValueError for none.

    A queue is the hard limit, so it is looked for first: the first point where running stops following the offered
    load by more than 5 %, or TTFT is more than twice that of the point before. Both count only where TTFT grew faster
    than the load, or running hardly grew: a prompt that waits for other prompts of the same burst is no queue. Only
    where nothing queued does the bend decide: the last point up to which each step pays at least half of what the
    first one paid per request.
    """
    if not points:
        raise ValueError("a sweep without points has no knee")
    rising = sorted(points, key=load)
    plateau = _plateau(rising)
    for before, after in pairwise(rising):
        if rule := _queued(before, after):
            return Knee(before, after, rule, plateau)
    for before, after in pairwise(rising):
        if rule := _bent(rising[0], before, after):
            return Knee(before, after, rule, plateau)
    rule = "the sweep ends before a knee" if len(rising) > 1 else "a single point"
    return Knee(rising[-1], None, rule, plateau)


def _queued(before: Point, after: Point) -> str:
    """How the load began to queue between two points; empty where it did not."""
    step = load(after) - load(before)
    grown = load(after) / load(before) if load(before) > 0.0 else 1.0
    waits = after.ttft_s / before.ttft_s if before.ttft_s and after.ttft_s is not None else None
    stands = step > 0.0 and after.running - before.running < _FOLLOWS * step
    if waits is not None and waits <= _QUEUEING * grown and not stands:
        return ""
    if _share(after) < _share(before) * (1.0 - BEHIND):
        return f"running stops following the load: {after.running:.1f} of {load(after):.4g}"
    if waits is not None and waits > TTFT_JUMP:
        return f"TTFT jumps to {waits:.1f} times that of the point before"
    return ""


def _share(point: Point) -> float:
    return point.running / load(point) if load(point) > 0.0 else 1.0


def _bent(first: Point, before: Point, after: Point) -> str:
    """How throughput flattened between two points; empty where it did not, or is not known."""
    at_first, at_before, at_after = throughput(first), throughput(before), throughput(after)
    step = load(after) - load(before)
    if at_first is None or at_before is None or at_after is None or load(first) <= 0.0 or step <= 0.0:
        return ""
    share = (at_after - at_before) / step / (at_first / load(first)) if at_first > 0.0 else 1.0
    text = f"one more in flight adds {max(0.0, share):.0%} of the throughput that one added at first"
    return text if share < SLOPE else ""


def _plateau(rising: Sequence[Point]) -> float | None:
    if len(rising) < 2:
        return None
    before, last = rising[-2], rising[-1]
    step = load(last) - load(before)
    if step <= 0.0 or last.itl_s is None or (last.running - before.running) / step >= _PLATEAU:
        return None
    most = max(point.running for point in rising)
    return median(point.running for point in rising if point.running >= most * (1.0 - BEHIND))
