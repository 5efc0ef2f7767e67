"""The knee of a sweep: beyond it more load does not pay.

The bounds below are choices: the project has no measurement that they were fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

import msgspec

from gpumon.sizing.profile import Point

_LEAST_FALL: Final = 0.05
"""Share by which running / offered load has to fall from one point to the next to count: less is noise."""
LEAST_GAIN: Final = 0.1
"""Throughput that a doubled load must add for the larger load to be worth its latency."""
BENT: Final = 0.5
"""Share of the throughput that one request more added at first, below which the curve counts as bent; that is advice,
no knee."""
_COMPARED_LOADS: Final = 1.2
"""Smallest factor between two loads whose throughputs are compared."""
_LEAST_FOLLOWED: Final = 0.5
"""Share of a load's growth that running has to grow by: below it the rest waits, whatever TTFT says."""
_MOST_TTFT_GROWTH: Final = 1.5
"""Factor by which TTFT may grow more than the load: beyond it there is a queue; growing with the load is prefill."""
_PLATEAU: Final = 0.25
"""Share of a load's growth below which the growth of running counts as a plateau."""


class Knee(msgspec.Struct, frozen=True):
    """The knee of a sweep."""

    point: Point
    """The last point whose load is worth offering."""
    beyond: Point | None
    """The first point beyond the knee; None: the sweep ends before it."""
    rule: str
    """The finding that decided, as a clause: `running stops following the load: 85.2 of 100`."""
    plateau: float | None = None
    """Sequences that decode together where running stopped to grow, whatever more is offered; None: it still grows."""
    advice: str = ""
    """Load at which throughput began to flatten before the knee, in one clause; empty where it did not."""


def load_of_point(point: Point) -> float:
    """Requests in flight at a point: the x axis of a sweep."""
    if point.offered is None:
        return point.running
    return point.offered


def throughput(point: Point) -> float | None:
    """Output tokens/s, else requests/s, else what follows from the time per token: running / ITL."""
    if point.tokens_per_s is not None:
        return point.tokens_per_s
    if point.requests_per_s is not None:
        return point.requests_per_s
    if point.itl_s:
        return point.running / point.itl_s
    return None


def knee(points: Sequence[Point]) -> Knee:
    """The knee of at least one point: the last load that is worth offering. Raises ValueError for none.

    The first of three rules that finds something decides. Fewer requests are served per second than were sent: an
    overload. Running stops following the offered load by more than 5%: the rest waits. Throughput gains less than 10%
    per doubling of the load: the rest only makes answers slower. Where none does, the sweep ends before a knee and its
    last load stands. A bend of throughput before that is advice: it depends on the lowest load that was tested, and the
    load beyond it still pays.
    """
    if not points:
        raise ValueError("a sweep without points has no knee")
    rising = sorted(points, key=load_of_point)
    plateau = _plateau(rising)
    advice = _bend_advice(rising)
    spaced = _spaced(rising)
    rules = ((_overload_reason, rising), (_queue_reason, rising), (_saturation_reason, spaced))
    for find_reason, compared in rules:
        for before, after in pairwise(compared):
            rule = find_reason(before, after)
            if rule:
                return Knee(point=before, beyond=after, rule=rule, plateau=plateau, advice=advice)
    rule = "the sweep ends before a knee" if len(rising) > 1 else "a single point"
    return Knee(point=rising[-1], beyond=None, rule=rule, plateau=plateau, advice=advice)


def _overload_reason(_before: Point, after: Point) -> str:
    """The clause that a load is an overload; empty where it is none."""
    if not after.overload:
        return ""
    served = f": {after.requests_per_s:.3g} requests/s were served" if after.requests_per_s is not None else ""
    return f"fewer are served than are sent{served}"


def _queue_reason(before: Point, after: Point) -> str:
    """The clause that running fell behind the offered load between two points; empty where it did not.

    A prompt that waits for other prompts of the same burst is no queue: TTFT then grows no faster than the load.
    """
    if _running_share(after) >= _running_share(before) * (1.0 - _LEAST_FALL):
        return ""
    growth = load_of_point(after) - load_of_point(before)
    is_stagnant = growth > 0.0 and after.running - before.running < _LEAST_FOLLOWED * growth
    if not is_stagnant and _ttft_follows_load(before, after):
        return ""
    return f"running stops following the load: {after.running:.1f} of {load_of_point(after):.4g}"


def _ttft_follows_load(before: Point, after: Point) -> bool:
    """Whether TTFT grew no faster than the load between two points."""
    if not before.ttft_s or after.ttft_s is None or load_of_point(before) <= 0.0:
        return False
    return after.ttft_s / before.ttft_s <= _MOST_TTFT_GROWTH * load_of_point(after) / load_of_point(before)


def _running_share(point: Point) -> float:
    """Share of the offered requests that run."""
    load = load_of_point(point)
    if load > 0.0:
        return point.running / load
    return 1.0


def gain_per_doubling(before: float, after: float, growth: float) -> float:
    """Throughput that a doubled load adds, as a share, from two throughputs and the factor between their loads.

    Infinite where there is nothing to compare: no throughput, or no growth of the load.
    """
    if before <= 0.0 or after <= 0.0 or growth <= 1.0:
        return math.inf
    return math.pow(after / before, 1.0 / math.log2(growth)) - 1.0


def _spaced(rising: Sequence[Point]) -> list[Point]:
    """The points at least a fifth of the load apart: between closer ones the noise of a run is more than the gain."""
    points = [rising[0]]
    for point in rising[1:]:
        if load_of_point(point) >= _COMPARED_LOADS * load_of_point(points[-1]):
            points.append(point)
    return points


def _saturation_reason(before: Point, after: Point) -> str:
    """The clause that throughput hardly grew between two points; empty where it grew enough, or is not known."""
    throughput_before = throughput(before)
    throughput_after = throughput(after)
    if throughput_before is None or throughput_after is None or load_of_point(before) <= 0.0:
        return ""
    growth = load_of_point(after) / load_of_point(before)
    gain = gain_per_doubling(throughput_before, throughput_after, growth)
    if gain >= LEAST_GAIN:
        return ""
    return f"twice the load adds {max(0.0, gain):.0%} throughput"


def _bend_advice(rising: Sequence[Point]) -> str:
    """The clause with the load from which on one request more adds less than half of the throughput that one added at
    first; empty where there is no such load."""
    first = rising[0]
    first_throughput = throughput(first)
    if not first_throughput or load_of_point(first) <= 0.0:
        return ""
    for before, after in pairwise(rising):
        throughput_before = throughput(before)
        throughput_after = throughput(after)
        step = load_of_point(after) - load_of_point(before)
        if throughput_before is None or throughput_after is None or step <= 0.0:
            continue
        per_request = (throughput_after - throughput_before) / step
        share = per_request / (first_throughput / load_of_point(first))
        if share < BENT:
            share_text = f"{max(0.0, share):.0%} of the throughput that one added at first"
            return f"above {load_of_point(before):.4g} one more in flight adds {share_text}"
    return ""


def _plateau(rising: Sequence[Point]) -> float | None:
    """Median of running on the plateau at the end of a sweep; None where running still grows there."""
    if len(rising) < 2:
        return None
    before = rising[-2]
    last = rising[-1]
    step = load_of_point(last) - load_of_point(before)
    if step <= 0.0 or last.itl_s is None or (last.running - before.running) / step >= _PLATEAU:
        return None
    most_running = max(point.running for point in rising)
    return median(point.running for point in rising if point.running >= most_running * (1.0 - _LEAST_FALL))
