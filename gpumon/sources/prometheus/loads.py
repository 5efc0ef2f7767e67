"""Reads the load of each engine and GPU of a large fleet at every refresh, from a few series of each.

The pages of its hosts are read in turn (`turns`); these figures stand in their rows until the next turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gpumon.readings.fleet import EngineLoad, GpuLoad
from gpumon.readings.missing import number
from gpumon.sources.dcgm_page import gpu_fields, read_page
from gpumon.sources.endpoint import NO_SCAN
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.engine_load import EngineLoadReader
from gpumon.sources.prometheus.exporters import gpu_name
from gpumon.sources.prometheus.memory import Memory
from gpumon.sources.prometheus.queries import Answers
from gpumon.sources.prometheus.scraped import Scraped
from gpumon.sources.prometheus.targets import LabelPairs, Target, TargetFinder

EngineLoads = Mapping[LabelPairs, Mapping[str, EngineLoad]]
"""Target -> part of its page (a model, where there are several) -> load of that engine."""
_NO_LOADS: Final[EngineLoads] = {}


def read_engine_loads(answers: Answers, scraped: Scraped, memory: Memory) -> EngineLoads:
    """The loads of the engines that are known, by target. Those of a target that is down are left out."""
    if not answers.engine_loads:
        return _NO_LOADS
    loads: dict[LabelPairs, Mapping[str, EngineLoad]] = {}
    readers: dict[LabelPairs, EngineLoadReader] = {}
    for target, values in _by_target(answers.engine_loads, memory.target_finder).items():
        engine = memory.engines.get(target.key)
        if engine is None or not scraped.is_readable(target):
            continue
        reader = memory.load_readers.get(target.key)
        if reader is None or reader.row is not engine.row:
            reader = EngineLoadReader(engine.row)
        readers[target.key] = reader
        if target not in scraped.moving:
            reader.take(values, scraped.scraped_s.get(target, scraped.at_s))
        loads[target.key] = reader.loads
    memory.load_readers = readers
    return loads


def read_gpu_loads(answers: Answers, scraped: Scraped, memory: Memory) -> dict[str, GpuLoad]:
    """UUID of each GPU and slice -> its load; of two exporters the first that answers counts."""
    loads: dict[str, GpuLoad] = {}
    for target, values in _by_target(answers.gpu_loads, memory.target_finder).items():
        if not scraped.is_readable(target):
            continue
        page = read_page(NO_SCAN._replace(values=values))
        for identity in page.gpus:
            fields = gpu_fields(page, identity)
            load = GpuLoad(*(number(fields[field]) for field in GpuLoad.__struct_fields__))
            loads.setdefault(gpu_name(identity.uuid, identity.instance), load)
    return loads


def _by_target(vectors: Iterable[Vector], finder: TargetFinder) -> dict[Target, dict[Series, float]]:
    """The series of each target, as its page wrote them."""
    pages: dict[Target, dict[Series, float]] = {}
    for vector in vectors:
        page_series = finder.find(vector.series)
        pages.setdefault(page_series.target, {})[page_series.series] = vector.value
    return pages


def unread_addresses(answers: Answers, memory: Memory) -> frozenset[str]:
    """Addresses with engines or GPUs whose pages were never read."""
    known = {dict(key).get("instance", "") for key in (*memory.engines, *memory.exporters)}
    told = {vector.series.labels.get("instance", "") for vector in (*answers.engine_loads, *answers.gpu_loads)}
    return frozenset(told - known - {""})
