"""The pages of one moment read: GPUs of exporters, engines, and what hosts' own gpumon export.

Each scrape is read once. What is down stays in the memory as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.readings.exported import ExportedSample
from gpumon.readings.frame import EndpointState
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.engines.adapter import EngineRow
from gpumon.sources.engines.detect import Refusal
from gpumon.sources.prometheus.engine import EngineTarget, Scrape, kind_of
from gpumon.sources.prometheus.exporters import ExporterTarget
from gpumon.sources.prometheus.hosts import HostLabels, host_of
from gpumon.sources.prometheus.memory import LabelPairs, Memory
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.own import rebuilt
from gpumon.sources.prometheus.scraped import Scraped, job_of
from gpumon.sources.prometheus.targets import Target
from gpumon.triage.peers import PeerError

OFTEN: Final = 3
"""A page that was not scraped for so many intervals is old."""


OwnPages = dict[LabelPairs, tuple[float, Snapshot | None]]
"""Pages of hosts' own gpumon, each with the time of its scrape and its snapshot; None for a page that is refused."""


class ScrapedExporter(NamedTuple):
    """A dcgm-exporter and its target."""

    target: Target
    exporter: ExporterTarget
    down: bool


class ScrapedEngine(NamedTuple):
    """An engine and its target."""

    target: Target
    engine: EngineTarget


class OwnGpumon(NamedTuple):
    """A host's own gpumon and its target."""

    target: Target
    host: str
    snapshot: Snapshot | None
    """None where it is down, or refused."""
    refusal: str = ""
    """Why what it exports is not read: it is beyond the bounds of a snapshot."""


class Contents(NamedTuple):
    """All that the pages of one moment tell."""

    exporters: Sequence[ScrapedExporter]
    """Exporters that answer come first."""
    owns: Sequence[OwnGpumon]
    engines: Sequence[ScrapedEngine]
    """Engines by the labels of their targets."""


def read_pages(scraped: Scraped, memory: Memory, models: Models, labels: HostLabels) -> Contents:
    """The contents of all pages. The memory keeps the readers of the pages, and learns the jobs."""
    return Contents(
        exporters=_read_exporters(scraped, memory, labels),
        owns=_read_owns(scraped, memory, labels),
        engines=_read_engines(scraped, memory, models),
    )


def _read_exporters(scraped: Scraped, memory: Memory, labels: HostLabels) -> list[ScrapedExporter]:
    kept: dict[LabelPairs, ExporterTarget] = {}
    exporters: list[ScrapedExporter] = []
    for target in _exporter_targets(scraped, memory):
        exporter = memory.exporters.get(target.key) or ExporterTarget(memory.intervals.of(target))
        down = scraped.is_down(target)
        if down:
            exporter.miss()
        elif target not in scraped.moving or not exporter.gpus:
            exporter.take(scraped.scrape(target, scraped.gpus[target]), labels)
        kept[target.key] = exporter
        exporters.append(ScrapedExporter(target, exporter, down))
    memory.exporters = kept
    answering = [target for target, exporter, down in exporters if exporter.gpus and not down]
    _learn_jobs(memory.exporter_jobs, answering, scraped)
    return exporters


def _exporter_targets(scraped: Scraped, memory: Memory) -> list[Target]:
    """The targets with GPUs on their pages, and those that had some before they went down; those that are up first."""
    silent = [target for target in scraped.down if target.key in memory.exporters]
    targets = {*scraped.gpus, *silent} & scraped.counted
    return sorted(targets, key=lambda target: (scraped.is_down(target), not target.known, target.key))


def _learn_jobs(jobs: set[str], answering: Iterable[Target], scraped: Scraped) -> None:
    """Keep in `jobs` those of which all targets that answer are among `answering`."""
    counts = Counter(map(job_of, answering))
    jobs.difference_update(scraped.answering)
    jobs.update(job for job, count in counts.items() if count == scraped.answering[job])


def _read_owns(scraped: Scraped, memory: Memory, labels: HostLabels) -> list[OwnGpumon]:
    """The snapshots that hosts' own gpumon export, each with its host."""
    pages = _read_own_pages(scraped, memory)
    owns = _answering_owns(pages, scraped, memory, labels)
    readable = [target for target in scraped.own if scraped.is_readable(target)]
    _learn_jobs(memory.own_jobs, readable, scraped)
    for target in scraped.down:
        before = memory.ready.get(target.key)
        if before is not None:
            pages[target.key] = before
            owns.append(OwnGpumon(target, _own_host(target, before[1], labels), None))
        elif job_of(target) in memory.own_jobs:
            owns.append(OwnGpumon(target, _own_host(target, None, labels), None))
    memory.ready = pages
    return owns


def _answering_owns(pages: OwnPages, scraped: Scraped, memory: Memory, labels: HostLabels) -> list[OwnGpumon]:
    """Hosts' own gpumon that answer: each with a snapshot that is not old, or with why its page is refused."""
    owns: list[OwnGpumon] = []
    for target in scraped.own:
        if not scraped.is_readable(target):
            continue
        scraped_s, snapshot = pages[target.key]
        old = scraped.at_s - scraped_s > OFTEN * memory.intervals.of(target)
        refusal = memory.refused.get(target.key, "")
        if snapshot is not None and not old:
            owns.append(OwnGpumon(target, _own_host(target, snapshot, labels), snapshot))
        elif refusal:
            owns.append(OwnGpumon(target, _own_host(target, None, labels), None, refusal))
    return owns


def _read_own_pages(scraped: Scraped, memory: Memory) -> OwnPages:
    """The pages of hosts' own gpumon that answer."""
    pages: OwnPages = {}
    for target, values in scraped.own.items():
        if scraped.is_readable(target):
            pages[target.key] = _snapshot(scraped.scrape(target, values), target in scraped.moving, memory)
    return pages


def _snapshot(scrape: Scrape, moving: bool, memory: Memory) -> tuple[float, Snapshot | None]:
    """The snapshot of a page with the time of its scrape; that of before while the page may mix two scrapes."""
    before = memory.ready.get(scrape.target.key)
    if before is not None and (moving or before[0] == scrape.scraped_s):
        return before
    return scrape.scraped_s, _rebuilt(scrape, memory)


def _rebuilt(scrape: Scrape, memory: Memory) -> Snapshot | None:
    """Snapshot that a host's own gpumon exports; None for other exporters, or where it exceeds the limits."""
    samples = (ExportedSample(series.name, series.labels, value) for series, value in scrape.values.items())
    memory.refused.pop(scrape.target.key, None)
    try:
        return rebuilt(samples, scrape.scraped_s, scrape.interval_s)
    except PeerError as error:
        memory.refused[scrape.target.key] = str(error)
        return None


def _own_host(target: Target, snapshot: Snapshot | None, labels: HostLabels) -> str:
    own = {}
    if snapshot is not None:
        own = {"Hostname": snapshot.host.name}
    return host_of(target.labels, own, labels.hosts)


def _read_engines(scraped: Scraped, memory: Memory, models: Models) -> list[ScrapedEngine]:
    """The engines by their targets' labels; one that is down is as it was."""
    engines = _read_answering(scraped, memory, models)
    _learn_engine_jobs(engines, scraped, memory)
    for target in scraped.down:
        engine = memory.engines.get(target.key) or _engine_of(memory.jobs.get(job_of(target)))
        if engine is not None:
            engine.fail(target, scraped.at_s, memory.intervals.of(target))
            engines.append(ScrapedEngine(target, engine))
    memory.engines = {target.key: engine for target, engine in engines}
    return sorted(engines, key=lambda scraped_engine: scraped_engine.target.key)


def _read_answering(scraped: Scraped, memory: Memory, models: Models) -> list[ScrapedEngine]:
    """The engines whose targets are up; a page that may mix two scrapes is not read."""
    engines: list[ScrapedEngine] = []
    for target, values in scraped.engines.items():
        if not scraped.is_readable(target):
            continue
        engine = memory.engines.get(target.key)
        if engine is None or target not in scraped.moving:
            engine = _read(engine, scraped.scrape(target, values), models)
        if engine is not None and engine.readings:
            engines.append(ScrapedEngine(target, engine))
    return engines


def _engine_of(row: EngineRow | None) -> EngineTarget | None:
    if row is None:
        return None
    return EngineTarget(row)


def _read(engine: EngineTarget | None, scrape: Scrape, models: Models) -> EngineTarget | None:
    """The engine with this scrape read; another where the page is of another kind now."""
    try:
        return _read_page(engine, scrape, models)
    except Exception as error:  # a fault of gpumon's own costs this row only
        failed = engine or _engine_of(kind_of(scrape.values))
        if failed is not None:
            text = f"gpumon failed on this page ({type(error).__name__}): please report"
            failed.fail(scrape.target, scrape.scraped_s, scrape.interval_s, Refusal(EndpointState.ERROR, text))
        return failed


def _read_page(engine: EngineTarget | None, scrape: Scrape, models: Models) -> EngineTarget | None:
    if engine is not None and engine.take(scrape, models):
        return engine
    fresh = _engine_of(kind_of(scrape.values))
    if fresh is not None and fresh.take(scrape, models):
        return fresh
    return None


def _learn_engine_jobs(engines: Sequence[ScrapedEngine], scraped: Scraped, memory: Memory) -> None:
    """A target that is down is taken for an engine only in a job where all that is up is one."""
    rows: dict[str, list[EngineRow]] = {}
    for target, engine in engines:
        rows.setdefault(job_of(target), []).append(engine.row)
    for job, several in rows.items():
        kinds = {row.kind for row in several}
        if len(kinds) == 1 and len(several) == scraped.answering[job]:
            memory.jobs[job] = several[0]
        else:
            memory.jobs.pop(job, None)
