"""Figures that no GPU and gauges that no engine can have: no readings, whoever sent them, and they drive no figure."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter, is_
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from gpumon.figures.gpu import GPU
from gpumon.figures.quantity import GAUGES
from gpumon.readings.bounds import drop_impossible, invalid_reading, why_impossible
from gpumon.readings.frame import GPU_FIGURES, EngineReading, Frame, GpuReading
from gpumon.readings.missing import Missing

NOTHING_WRONG: Final[Mapping[str, Missing]] = MappingProxyType({})
"""For an engine whose gauges can all be."""


_FIGURES_OF_GPU: Final = attrgetter(*GPU_FIGURES)
"""Gets all figures of a GPU at once."""


class Plausible(NamedTuple):
    """A frame without numbers that cannot be, and which gauges were wrong."""

    frame: Frame
    wrong: Mapping[str, Mapping[str, Missing]]
    """`EngineReading.key` -> gauge -> why it is no reading."""


def plausible(frame: Frame) -> Plausible:
    """The frame with the figures of its GPUs and the gauges of its engines that can be true; the same frame where all
    can. All frames come by here: those of this host, of exporters, of a Prometheus, and of recordings."""
    wrong: dict[str, dict[str, Missing]] = {}
    engines = []
    for reading in frame.engines:
        why = _wrong_gauges(reading)
        if why:
            wrong[reading.key] = why
            reading = _without_gauges(reading, why)
        engines.append(reading)
    gpus = tuple(map(_plausible_gpu, frame.gpus))
    if not wrong and all(map(is_, gpus, frame.gpus)):
        return Plausible(frame, wrong)
    return Plausible(msgspec.structs.replace(frame, gpus=gpus, engines=tuple(engines)), wrong)


def _plausible_gpu(gpu: GpuReading) -> GpuReading:
    """The GPU with a reason in the place of each figure that cannot be true; the same GPU where all can."""
    figures = dict(zip(GPU_FIGURES, _FIGURES_OF_GPU(gpu), strict=True))
    if drop_impossible(GPU, figures, GPU_FIGURES, gpu.source or "the driver"):
        return msgspec.structs.replace(gpu, **figures)
    return gpu


def _wrong_gauges(reading: EngineReading) -> dict[str, Missing]:
    """Gauge -> why it is no reading, of those that any rank has wrong."""
    wrong: dict[str, Missing] = {}
    for rank in reading.ranks:
        for name, value in rank.gauges.items():
            why = why_impossible(GAUGES, name, rank.gauges) if name in GAUGES else ""
            if why:
                wrong[name] = invalid_reading(value, why, "its page")
    return wrong


def _without_gauges(reading: EngineReading, names: Mapping[str, Missing]) -> EngineReading:
    """The reading without these gauges, on any rank: what one rank has wrong is no sum."""
    ranks = []
    for rank in reading.ranks:
        gauges = {name: value for name, value in rank.gauges.items() if name not in names}
        ranks.append(msgspec.structs.replace(rank, gauges=gauges))
    return msgspec.structs.replace(reading, ranks=tuple(ranks))
