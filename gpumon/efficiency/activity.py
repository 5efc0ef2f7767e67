"""Place of a GPU on the map of measured activity: its tensor cores over its memory bandwidth, and the region there.

Unlike MFU and MBU both figures are measured by the GPU (GPM, or a dcgm-exporter), so that any program has a place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from gpumon.efficiency.gpu import over_window
from gpumon.efficiency.ratio import divide
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading
from gpumon.readings.snapshot import Gpu


class Region(str, Enum):
    """Limit of a GPU's work, as far as its own counters tell."""

    BOTH = "compute-, memory-bound"
    COMPUTE = "compute-bound"
    MEMORY = "memory-bound"
    PLAIN = "without tensor cores"
    """SMs are active and tensor cores are not: FP32, FP64 or integers, or kernels that wait."""
    WAITING = "launch- or input-bound"
    UNTOLD = "low, cause not measured"
    """It hardly computes or reads, and nothing tells whether it is idle, waits, or works without tensor cores."""
    IDLE = "idle"
    BETWEEN = "below all bounds"
    """At work, and no bound is reached."""


class RegionBounds(msgspec.Struct, frozen=True):
    """Bounds of the regions, as shares."""

    tensor_full: float
    """Tensor activity from which on arithmetic is the limit."""
    dram_full: float
    """Share of the memory bandwidth from which on memory is the limit."""
    tensor_low: float
    """Tensor activity below which a GPU hardly computes."""
    dram_low: float
    """Share of the memory bandwidth below which it hardly reads."""
    sm_full: float
    """SM activity from which on a GPU computes, or waits inside a kernel, all the time."""
    busy_idle: float
    """Busy share up to which it is idle."""


class ActivityPoint(NamedTuple):
    """A GPU on the map."""

    dram: Reading
    """Measured share of the peak bandwidth."""
    pipe: Reading
    """Activity of the tensor cores; of the SMs where that of the tensor cores is not known."""
    by_sm: bool
    """Whether `pipe` is that of the SMs."""
    sm: Reading
    busy: Reading

    @property
    def missing(self) -> Missing | None:
        """Why it has no place; None where it has one."""
        if isinstance(self.pipe, Missing):
            return self.pipe
        if isinstance(self.dram, Missing):
            return self.dram
        return None


def dram_share(gpu: Gpu) -> Reading:
    """The share of its peak bandwidth that a GPU measures; missing where that is modelled, or a share of time."""
    bandwidth = gpu.bandwidth_bytes_per_s
    if gpu.bandwidth_source.is_measured:
        return divide(bandwidth, gpu.bandwidth_peak_bytes_per_s)
    return bandwidth if isinstance(bandwidth, Missing) else NOT_SUPPORTED


def activity_point(gpu: Gpu) -> ActivityPoint:
    """The place of a GPU, by figures of one window."""
    shown = over_window(gpu)
    sm = shown.reading.sm_active_ratio
    tensor = shown.reading.tensor_active_ratio
    by_sm = isinstance(tensor, Missing) and not isinstance(sm, Missing)
    return ActivityPoint(
        dram=dram_share(shown),
        pipe=sm if by_sm else tensor,
        by_sm=by_sm,
        sm=sm,
        busy=shown.reading.busy_ratio,
    )


def region_of(point: ActivityPoint, bounds: RegionBounds) -> Region | None:
    """The region that a GPU is in; None where it has no place."""
    if isinstance(point.pipe, Missing) or isinstance(point.dram, Missing):
        return None
    limit = _limit_at(point.dram, point.pipe, bounds, by_sm=point.by_sm)
    if limit is not None:
        return limit
    if not isinstance(point.busy, Missing) and point.busy <= bounds.busy_idle:
        return Region.IDLE
    if point.pipe >= bounds.tensor_low or point.dram >= bounds.dram_low:
        return Region.BETWEEN
    if isinstance(point.sm, Missing):
        return Region.UNTOLD
    if point.sm >= bounds.sm_full:
        return Region.PLAIN
    # Where SMs are active a kernel runs, so that a GPU of which busy is not known is not idle.
    if isinstance(point.busy, Missing) and point.sm <= bounds.busy_idle:
        return Region.UNTOLD
    return Region.WAITING


def _limit_at(dram: float, pipe: float, bounds: RegionBounds, *, by_sm: bool) -> Region | None:
    """The bound that is reached at a place of the map; None where none is."""
    is_compute = not by_sm and pipe >= bounds.tensor_full
    is_memory = dram >= bounds.dram_full
    if is_compute and is_memory:
        return Region.BOTH
    if is_compute:
        return Region.COMPUTE
    if is_memory:
        return Region.MEMORY
    return None


def shares_of_regions(
    places: Sequence[tuple[float, float]], bounds: RegionBounds, *, by_sm: bool
) -> list[tuple[Region, float]]:
    """Regions of past places (memory bandwidth, tensor activity) with their shares of them, the largest first.

    `Region.WAITING` is all of the low corner there: the places do not tell an idle GPU from one that waits.
    """
    counts: dict[Region, int] = {}
    for dram, pipe in places:
        region = _limit_at(dram, pipe, bounds, by_sm=by_sm)
        if region is None:
            is_low = pipe < bounds.tensor_low and dram < bounds.dram_low
            region = Region.WAITING if is_low else Region.BETWEEN
        counts[region] = counts.get(region, 0) + 1
    shares = [(region, count / len(places)) for region, count in counts.items()]
    return sorted(shares, key=lambda pair: -pair[1])


def trail(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    """Past places, oldest first, at the times at which both figures are known (NaN is a gap)."""
    return [(x, y) for x, y in zip(xs, ys, strict=True) if not math.isnan(x) and not math.isnan(y)]
