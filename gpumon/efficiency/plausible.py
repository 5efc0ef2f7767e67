"""The entrance of all frames: figures that no machine, GPU, process or engine can have are no readings, whoever sent
them, and they drive no figure, verdict or plan."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter, is_
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.figures.figure import Figures
from gpumon.figures.gpu import GPU
from gpumon.figures.host import HOST
from gpumon.figures.process import PROCESS
from gpumon.figures.quantity import GAUGES
from gpumon.readings.bounds import drop_impossible, invalid_reading, why_impossible
from gpumon.readings.frame import GPU_FIGURES, EngineReading, Frame, GpuProcess, GpuReading, HostReading, RankReading
from gpumon.readings.missing import Missing

NOTHING_WRONG: Final[Mapping[str, Missing]] = MappingProxyType({})
"""For an engine whose gauges can all be."""


class _Bounded(NamedTuple):
    """The figures of a kind of record that are held against their rows."""

    rows: Figures
    fields: tuple[str, ...]
    values: attrgetter[tuple[Any, ...]]
    """Gets all of them at once."""

    @classmethod
    def of(cls, rows: Figures, fields: tuple[str, ...]) -> _Bounded:
        """These fields of a record."""
        return cls(rows, fields, attrgetter(*fields))

    def wrong(self, record: object, source: str) -> dict[str, Any]:
        """All figures of a record, with a reason in the place of each that cannot be true; none where all can."""
        figures = dict(zip(self.fields, self.values(record), strict=True))
        return figures if drop_impossible(self.rows, figures, self.fields, source) else {}


_GPU: Final = _Bounded.of(GPU, GPU_FIGURES)
_HOST: Final = _Bounded.of(HOST, tuple(field for field in HostReading.__struct_fields__ if field in HOST))
_PROCESS: Final = _Bounded.of(PROCESS, tuple(PROCESS))


class Plausible(NamedTuple):
    """A frame without numbers that cannot be, and which gauges were wrong."""

    frame: Frame
    wrong: Mapping[str, Mapping[str, Missing]]
    """`EngineReading.key` -> gauge -> why it is no reading."""


def plausible(frame: Frame) -> Plausible:
    """The frame with the figures of its host, GPUs, processes and engines that can be true; the same frame where all
    can. All frames come by here: those of this host, of exporters, of a Prometheus, over ssh, and of recordings."""
    wrong: dict[str, Mapping[str, Missing]] = {}
    engines = []
    for reading in frame.engines:
        vetted, why = plausible_engine(reading)
        if why:
            wrong[reading.key] = why
        engines.append(vetted)
    gpus = tuple(map(_plausible_gpu, frame.gpus))
    wrong_of_host = _HOST.wrong(frame.host, "the host")
    is_same = all(map(is_, gpus, frame.gpus)) and all(map(is_, engines, frame.engines))
    if is_same and not wrong_of_host:
        return Plausible(frame, wrong)
    host = msgspec.structs.replace(frame.host, **wrong_of_host)
    return Plausible(msgspec.structs.replace(frame, host=host, gpus=gpus, engines=tuple(engines)), wrong)


def _plausible_gpu(gpu: GpuReading) -> GpuReading:
    """The GPU with a reason in the place of each figure that cannot be true; the same GPU where all can."""
    source = gpu.source or "the driver"
    figures = _GPU.wrong(gpu, source)
    processes = tuple(_plausible_process(process, source) for process in gpu.processes)
    if figures or not all(map(is_, processes, gpu.processes)):
        return msgspec.structs.replace(gpu, **figures, processes=processes)
    return gpu


def _plausible_process(process: GpuProcess, source: str) -> GpuProcess:
    """The process likewise."""
    figures = _PROCESS.wrong(process, source)
    return msgspec.structs.replace(process, **figures) if figures else process


def plausible_engine(reading: EngineReading) -> tuple[EngineReading, Mapping[str, Missing]]:
    """The reading without the gauges that cannot be true, its earlier polls and its backends likewise; and gauge -> why
    it is no reading, of the newest poll. The same reading where all can."""
    why = _wrong_gauges(reading.ranks)
    earlier = tuple(plausible_engine(poll)[0] for poll in reading.earlier)
    why_of_backends = _wrong_gauges(reading.backends)
    if not why and not why_of_backends and all(map(is_, earlier, reading.earlier)):
        return reading, NOTHING_WRONG
    vetted = msgspec.structs.replace(
        reading,
        ranks=_without_gauges(reading.ranks, why),
        backends=_without_gauges(reading.backends, why_of_backends),
        earlier=earlier,
    )
    return vetted, why


def _wrong_gauges(ranks: tuple[RankReading, ...]) -> dict[str, Missing]:
    """Gauge -> why it is no reading, of those that any rank has wrong."""
    wrong: dict[str, Missing] = {}
    for rank in ranks:
        for name, value in rank.gauges.items():
            why = why_impossible(GAUGES, name, rank.gauges) if name in GAUGES else ""
            if why:
                wrong[name] = invalid_reading(value, why, "its page")
    return wrong


def _without_gauges(ranks: tuple[RankReading, ...], names: Mapping[str, Missing]) -> tuple[RankReading, ...]:
    """The ranks without these gauges: what one rank has wrong is no sum."""
    if not names:
        return ranks
    vetted = []
    for rank in ranks:
        gauges = {name: value for name, value in rank.gauges.items() if name not in names}
        vetted.append(msgspec.structs.replace(rank, gauges=gauges))
    return tuple(vetted)
