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
from gpumon.readings.text import clean
from gpumon.sources.engines.adapter import EngineRow
from gpumon.sources.engines.detect import Refusal
from gpumon.sources.prometheus.engine import EngineTarget, Scrape, kind_of
from gpumon.sources.prometheus.exporters import ExporterTarget
from gpumon.sources.prometheus.hosts import HostLabels, host_of
from gpumon.sources.prometheus.memory import Memory
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.own import rebuild_snapshot
from gpumon.sources.prometheus.scraped import Scraped, job_of
from gpumon.sources.prometheus.targets import LabelPairs, Target
from gpumon.triage.peers import PeerError

BUILD_INFO: Final = "gpumon_build_info"
"""Series of every gpumon, with its version."""
_NO_FIGURES: Final = Refusal(
    EndpointState.METRICS_OFF,
    "its page has no figures of an engine any more: metrics were switched off, or nothing was served since a restart",
)
_NO_FIGURES_S: Final = 3600.0
"""Seconds after its last figures in which an engine is shown whose page has none any more: then it has left."""
OLD_INTERVALS: Final = 3
"""Intervals without a scrape after which a page is old."""


OwnPages = dict[LabelPairs, tuple[float, Snapshot | None]]
"""Pages of hosts' own gpumon, each with the time of its scrape and its snapshot; None for a page that is refused."""


class ScrapedExporter(NamedTuple):
    """A dcgm-exporter and its target."""

    target: Target
    exporter: ExporterTarget
    down: bool
    """The Prometheus cannot scrape it: its GPUs are as they were."""


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
    own_gpumons: Sequence[OwnGpumon]
    """Hosts' own gpumon, those that answer first."""
    engines: Sequence[ScrapedEngine]
    """Engines by the labels of their targets."""


def read_pages(scraped: Scraped, memory: Memory, models: Models, labels: HostLabels) -> Contents:
    """The contents of all pages. The memory keeps the readers of the pages, and learns the jobs."""
    return Contents(
        exporters=_read_exporters(scraped, memory, labels),
        own_gpumons=_read_own_gpumons(scraped, memory, labels),
        engines=_read_engines(scraped, memory, models),
    )


def _read_exporters(scraped: Scraped, memory: Memory, labels: HostLabels) -> list[ScrapedExporter]:
    """The GPUs of the dcgm-exporters; those of one that is down are as they were."""
    by_key: dict[LabelPairs, ExporterTarget] = {}
    exporters: list[ScrapedExporter] = []
    for target in _exporter_targets(scraped, memory):
        exporter = memory.exporters.get(target.key) or ExporterTarget(memory.intervals.of(target))
        down = scraped.is_down(target)
        if down:
            exporter.miss()
        elif target not in scraped.gpus:
            pass  # it was not asked for: its GPUs are as they were
        elif target not in scraped.moving or not exporter.gpus:
            exporter.take(scraped.scrape(target, scraped.gpus[target]), labels)
        by_key[target.key] = exporter
        exporters.append(ScrapedExporter(target, exporter, down))
    memory.exporters = by_key
    answering = [target for target, exporter, down in exporters if exporter.gpus and not down]
    _learn_jobs(memory.exporter_jobs, answering, scraped)
    return exporters


def _exporter_targets(scraped: Scraped, memory: Memory) -> list[Target]:
    """The targets with GPUs on their pages, and those that had some and are down or were not asked for; those that are
    up first."""
    unread = (*scraped.down, *scraped.kept("gpus", scraped.gpus))
    silent = [target for target in unread if target.key in memory.exporters]
    targets = {*scraped.gpus, *silent} & scraped.counted

    def counted_last(target: Target) -> tuple[bool, bool, bool, LabelPairs]:
        """Sort key: what is up first, then what is dated; a dcgm-exporter tells more than others."""
        return scraped.is_down(target), target in scraped.other_exporters, not target.has_up, target.key

    return sorted(targets, key=counted_last)


def _learn_jobs(jobs: set[str], answering: Iterable[Target], scraped: Scraped) -> None:
    """Keep in `jobs` those of which all targets that answer are among `answering`."""
    counts = Counter(map(job_of, answering))
    jobs.difference_update(scraped.answering)
    jobs.update(job for job, count in counts.items() if count == scraped.answering[job])


def _read_own_gpumons(scraped: Scraped, memory: Memory, labels: HostLabels) -> list[OwnGpumon]:
    """The snapshots that hosts' own gpumon export, each with its host."""
    pages = _read_own_pages(scraped, memory)
    own_gpumons = _answering_gpumons(pages, scraped, memory, labels)
    readable = [target for target in scraped.own if scraped.is_readable(target)]
    for target in scraped.kept("own", scraped.own):
        last_page = memory.own_pages.get(target.key)
        if last_page is not None:
            pages[target.key] = last_page
            _, snapshot = last_page
            readable.append(target)
            refusal = memory.own_page_refusals.get(target.key, "")
            if snapshot is not None or refusal:
                own_gpumons.append(OwnGpumon(target, _own_host(target, snapshot, labels), snapshot, refusal))
    _learn_jobs(memory.own_jobs, readable, scraped)
    for target in scraped.down:
        last_page = memory.own_pages.get(target.key)
        if last_page is not None:
            pages[target.key] = last_page
            _, snapshot = last_page
            own_gpumons.append(OwnGpumon(target, _own_host(target, snapshot, labels), None))
        elif job_of(target) in memory.own_jobs:
            own_gpumons.append(OwnGpumon(target, _own_host(target, None, labels), None))
    memory.own_pages = pages
    memory.own_versions = {key: version for key, version in memory.own_versions.items() if key in pages}
    return own_gpumons


def _answering_gpumons(pages: OwnPages, scraped: Scraped, memory: Memory, labels: HostLabels) -> list[OwnGpumon]:
    """Hosts' own gpumon that answer: each with a snapshot that is not old, or with why its page is refused."""
    own_gpumons: list[OwnGpumon] = []
    for target in scraped.own:
        if not scraped.is_readable(target):
            continue
        scraped_s, snapshot = pages[target.key]
        is_old = scraped.at_s - scraped_s > OLD_INTERVALS * memory.intervals.of(target)
        refusal = memory.own_page_refusals.get(target.key, "")
        if snapshot is not None and not is_old:
            own_gpumons.append(OwnGpumon(target, _own_host(target, snapshot, labels), snapshot))
        elif refusal:
            own_gpumons.append(OwnGpumon(target, _own_host(target, None, labels), None, refusal))
    return own_gpumons


def _read_own_pages(scraped: Scraped, memory: Memory) -> OwnPages:
    """The pages of hosts' own gpumon that answer."""
    pages: OwnPages = {}
    for target, values in scraped.own.items():
        if scraped.is_readable(target):
            scrape = scraped.scrape(target, values)
            pages[target.key] = _dated_snapshot(scrape, memory, is_moving=target in scraped.moving)
    return pages


def _dated_snapshot(scrape: Scrape, memory: Memory, *, is_moving: bool) -> tuple[float, Snapshot | None]:
    """The time of a page's scrape, and its snapshot; the last ones while the page may mix two scrapes (`is_moving`)."""
    last_page = memory.own_pages.get(scrape.target.key)
    if last_page is not None and (is_moving or last_page[0] == scrape.scraped_s):
        return last_page
    return scrape.scraped_s, _rebuild(scrape, memory)


def _rebuild(scrape: Scrape, memory: Memory) -> Snapshot | None:
    """Snapshot that a host's own gpumon exports; None for other exporters, or where it exceeds the limits."""
    samples = (ExportedSample(series.name, series.labels, value) for series, value in scrape.values.items())
    memory.own_page_refusals.pop(scrape.target.key, None)
    for series in scrape.values:
        if series.name == BUILD_INFO:
            memory.own_versions[scrape.target.key] = clean(series.labels.get("version", ""), 40)
    try:
        return rebuild_snapshot(samples, scrape.scraped_s, scrape.interval_s)
    except PeerError as error:
        memory.own_page_refusals[scrape.target.key] = str(error)
        return None


def _own_host(target: Target, snapshot: Snapshot | None, labels: HostLabels) -> str:
    """Host of a gpumon, by the labels of its target, else by what it says itself."""
    page_labels = {"Hostname": snapshot.host.name} if snapshot is not None else {}
    return host_of(target.labels, page_labels, labels.hosts)


def _read_engines(scraped: Scraped, memory: Memory, models: Models) -> list[ScrapedEngine]:
    """The engines by their targets' labels; one that is down, or has no figures any more, is as it was."""
    engines = _read_answering(scraped, memory, models)
    for target in scraped.kept("engines", scraped.engines):
        kept_engine = memory.engines.get(target.key)
        if kept_engine is not None:
            engines.append(ScrapedEngine(target, kept_engine))
    _learn_engine_jobs(engines, scraped, memory)
    for target in scraped.down:
        row = memory.jobs.get(job_of(target)) or memory.known_engines.rows.get((job_of(target), target.instance))
        engine = memory.engines.get(target.key) or _new_engine(row)
        if engine is not None:
            engine.fail(target, scraped.at_s, memory.intervals.of(target))
            engines.append(ScrapedEngine(target, engine))
    for target in scraped.counted.difference(target for target, _ in engines):
        engine = memory.engines.get(target.key)
        if engine is not None and scraped.at_s - engine.read_s < _NO_FIGURES_S:
            engine.fail(target, scraped.at_s, memory.intervals.of(target), _NO_FIGURES)
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
            engine = _read_safely(engine, scraped.scrape(target, values), models)
        if engine is not None and engine.readings:
            engines.append(ScrapedEngine(target, engine))
    return engines


def _new_engine(row: EngineRow | None) -> EngineTarget | None:
    """A reader of this kind of engine; None where the kind is not known."""
    if row is None:
        return None
    return EngineTarget(row)


def _read_safely(engine: EngineTarget | None, scrape: Scrape, models: Models) -> EngineTarget | None:
    """The engine with this scrape read; another where the page is of another kind now."""
    try:
        return _read_page(engine, scrape, models)
    except Exception as error:  # a fault of gpumon's own costs this row only
        failed = engine or _new_engine(kind_of(scrape.values))
        if failed is not None:
            text = f"gpumon failed on this page ({type(error).__name__}): please report"
            failed.fail(scrape.target, scrape.scraped_s, scrape.interval_s, Refusal(EndpointState.ERROR, text))
        return failed


def _read_page(engine: EngineTarget | None, scrape: Scrape, models: Models) -> EngineTarget | None:
    """The engine with this scrape read, or a new one of the kind that the page is of; None where no engine reads it."""
    if engine is not None and engine.take(scrape, models):
        return engine
    fresh = _new_engine(kind_of(scrape.values))
    if fresh is not None and fresh.take(scrape, models):
        return fresh
    return None


def _learn_engine_jobs(engines: Sequence[ScrapedEngine], scraped: Scraped, memory: Memory) -> None:
    """Learn the jobs all of whose targets that are up are engines of one kind: what is down in them is one, too."""
    rows_by_job: dict[str, list[EngineRow]] = {}
    for target, engine in engines:
        rows_by_job.setdefault(job_of(target), []).append(engine.row)
    for job, rows in rows_by_job.items():
        kinds = {row.kind for row in rows}
        if len(kinds) == 1 and len(rows) == scraped.answering[job]:
            memory.jobs[job] = rows[0]
        else:
            memory.jobs.pop(job, None)
