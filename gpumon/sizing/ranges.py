"""The range of GPUs of a plan that stands on too few measured loads: the answers at both ends of its error band."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.accuracy import NO_BAND, Band
from gpumon.sizing.answer import Answer, GpuRange, WorkloadPlan
from gpumon.sizing.fit import few_loads_text
from gpumon.sizing.instance_latency import LEAST_BUCKETS
from gpumon.sizing.live_gpus import first_few
from gpumon.sizing.profile import Observed, Point
from gpumon.sizing.scenario import Catalogues, Scenario, Workload
from gpumon.sizing.search import Demand

_LEAST_SHARE: Final = 0.05
"""Share of a measured latency that stays at the fast end of the widest band."""


class Ends(NamedTuple):
    """The question at both ends of the bands of what was measured at too few loads."""

    fast: Scenario
    slow: Scenario
    reasons: tuple[str, ...]
    """Why the latencies of each workload are known too little; empty where they are not."""


def ends_of(answer: Answer, demands: Sequence[Demand], scenario: Scenario, catalogues: Catalogues) -> Ends | None:
    """The ends of a plan that stands on too few measured loads; None for another one."""
    reasons = tuple(_few_loads(demand) for demand in demands)
    if not any(reasons):
        return None
    fast = _at_end(scenario, answer.workloads, reasons, catalogues, slow=False)
    slow = _at_end(scenario, answer.workloads, reasons, catalogues, slow=True)
    return Ends(fast, slow, reasons)


class Counts(NamedTuple):
    """GPUs and servers at one end; missing where no number is enough."""

    gpus: Reading
    servers: Reading


class EndCounts(NamedTuple):
    """GPUs and servers at one end, of each workload and of all together."""

    workloads: tuple[Counts, ...]
    totals: Counts


def with_range(answer: Answer, fast: EndCounts, slow: EndCounts, reasons: Sequence[str]) -> Answer:
    """The answer with the range of GPUs between its ends.

    Sums that leave workloads out have none.
    """
    workloads = []
    for plan, fast_counts, slow_counts, reason in zip(
        answer.workloads, fast.workloads, slow.workloads, reasons, strict=True
    ):
        gpus_range = None
        if reason:
            gpus_range = _range_of(Counts(plan.gpus, plan.servers), fast_counts, slow_counts, reason)
        workloads.append(msgspec.structs.replace(plan, gpus_range=gpus_range))
    middle = Counts(answer.totals.gpus, answer.totals.servers)
    total = _range_of(middle, fast.totals, slow.totals, _reason(workloads))
    return msgspec.structs.replace(answer, workloads=tuple(workloads), gpus_range=total)


def _range_of(middle: Counts, fast: Counts, slow: Counts, reason: str) -> GpuRange | None:
    """The range from one end to the other; None where both come to the same number, or there is no answer."""
    if isinstance(middle.gpus, Missing):
        return None
    gpus_range = GpuRange(
        low=_least(fast.gpus, middle.gpus),
        high=_most(middle.gpus, slow.gpus),
        servers_low=_least(fast.servers, middle.servers),
        servers_high=_most(middle.servers, slow.servers),
        reason=reason,
    )
    return None if gpus_range.low == gpus_range.high else gpus_range


def _least(end: Reading, middle: Reading) -> Reading:
    """The smaller one of two numbers; the one that is known where only one is."""
    if isinstance(end, Missing):
        return middle
    return end if isinstance(middle, Missing) else min(end, middle)


def _most(middle: Reading, end: Reading) -> Reading:
    """The larger one of two numbers; missing where no number is enough at the end."""
    if isinstance(end, Missing) or isinstance(middle, Missing):
        return end
    return max(end, middle)


def _reason(plans: Sequence[WorkloadPlan]) -> str:
    """The reasons of all ranges, with the names of their workloads where not all have the same one."""
    reasons: dict[str, list[str]] = {}
    for plan in plans:
        if plan.gpus_range is not None:
            reasons.setdefault(plan.gpus_range.reason, []).append(plan.name)
    parts = []
    for reason, names in reasons.items():
        if len(names) == len(plans):
            parts.append(reason)
        else:
            parts.append(f"{', '.join(first_few(names, 'workloads'))} {reason}")
    return "; ".join(parts)


def figure_or_range(gpus: Reading, gpus_range: GpuRange | None) -> str:
    """A number of GPUs, or the range of it: `31`, `27 to 34`, `27 or more`; a dash where it is not known."""
    if gpus_range is not None:
        return range_text(gpus_range.low, gpus_range.high)
    return "–" if isinstance(gpus, Missing) else f"{gpus:,.0f}"


def range_text(low: Reading, high: Reading) -> str:
    """A range in words: `27 to 34`, `27 or more`, `up to 34`; one number where both ends are the same."""
    if isinstance(low, Missing) and isinstance(high, Missing):
        return "–"
    if isinstance(high, Missing):
        return f"{low:,.0f} or more"
    if isinstance(low, Missing):
        return f"up to {high:,.0f}"
    if low == high:
        return f"{low:,.0f}"
    return f"{low:,.0f} to {high:,.0f}"


def _few_loads(demand: Demand) -> str:
    """Why the latencies of a workload are known too little for one number; empty where they are not, or were typed."""
    seen = demand.instance.seen
    if seen is None or demand.problem or demand.workload.capacity_per_instance:
        return ""
    return few_loads_text(seen.points, LEAST_BUCKETS[seen.origin])


def _at_end(
    scenario: Scenario,
    plans: Sequence[WorkloadPlan],
    reasons: Sequence[str],
    catalogues: Catalogues,
    *,
    slow: bool,
) -> Scenario:
    """The scenario with the profiles that are of too few loads at one end of their bands."""
    workloads = []
    for workload, plan, reason in zip(scenario.workload, plans, reasons, strict=True):
        seen = catalogues.profile_of(workload)
        if reason and seen is not None:
            itl_ratio = _end_of(plan.band, slow=slow)
            ttft_ratio = _end_of(plan.ttft_band, slow=slow)
            workload = _on_scaled_profile(workload, seen, itl_ratio, ttft_ratio)
        workloads.append(workload)
    return msgspec.structs.replace(scenario, workload=tuple(workloads))


def _end_of(band: Band, *, slow: bool) -> float:
    """Factor from a predicted latency to one end of its band; 1 where there is no band."""
    if band == NO_BAND:
        return 1.0
    return max(_LEAST_SHARE, 1.0 + (band.high if slow else band.low))


@lru_cache(maxsize=256)
def _on_scaled_profile(workload: Workload, seen: Observed, itl_ratio: float, ttft_ratio: float) -> Workload:
    """The workload with a profile whose latencies are times a factor, in place of its own one.

    Cached, so that it is the same object at each keystroke, whose needs are not worked out anew.
    """
    points = tuple(_scaled_point(point, itl_ratio, ttft_ratio) for point in seen.points)
    return msgspec.structs.replace(workload, seen=msgspec.structs.replace(seen, points=points), profile="")


def _scaled_point(point: Point, itl_ratio: float, ttft_ratio: float) -> Point:
    """A point with its latencies times a factor, and the throughput that follows from them."""
    return msgspec.structs.replace(
        point,
        itl_s=_times(point.itl_s, itl_ratio),
        tpot_p95_s=_times(point.tpot_p95_s, itl_ratio),
        itl_p95_s=_times(point.itl_p95_s, itl_ratio),
        ttft_s=_times(point.ttft_s, ttft_ratio),
        ttft_p95_s=_times(point.ttft_p95_s, ttft_ratio),
        e2e_s=_times(point.e2e_s, itl_ratio),
        e2e_p95_s=_times(point.e2e_p95_s, itl_ratio),
        tokens_per_s=_times(point.tokens_per_s, 1.0 / itl_ratio),
        requests_per_s=_times(point.requests_per_s, 1.0 / itl_ratio),
    )


def _times(value: float | None, factor: float) -> float | None:
    """A figure times a factor; None where it was not measured."""
    return None if value is None else value * factor
