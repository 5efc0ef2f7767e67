"""What the pages of one moment say, target by target: each is read once, and what is down stays as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.readings.exported import Sample
from gpumon.readings.frame import EndpointState
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.engines.detect import Refusal
from gpumon.sources.engines.registry import Row
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.engine import Engine, Scrape, kind_of
from gpumon.sources.prometheus.exporters import Exporter
from gpumon.sources.prometheus.hosts import CLUSTER, host_of
from gpumon.sources.prometheus.memory import Answers, Key, Memory, Pages
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.own import rebuilt
from gpumon.sources.prometheus.targets import Target

OFTEN: Final = 3
"""A page that was not scraped for so many intervals is old."""
Found = Sequence[tuple[Target, Engine]]


class Own(NamedTuple):
    """A host's own gpumon."""

    target: Target
    name: str
    """Of its host."""
    ready: Snapshot | None
    """None where it is down."""


class Taking:
    """One use. The memory keeps what the next moment needs."""

    def __init__(self, answers: Answers, memory: Memory, models: Models, ladder: Sequence[str]) -> None:
        self._answers = answers
        self._memory = memory
        self._models = models
        self._ladder = ladder

    def _take(self) -> tuple[list[Target], list[Own], Found]:
        """The targets that count, hosts' own gpumon, and the engines."""
        answers, memory = self._answers, self._memory
        placer = memory.placer
        self._up = placer.know(answers.up)
        first, self._scraped = (placer.dates(each) for each in (answers.scraped, answers.again))
        self._moving = {target for target, at_s in self._scraped.items() if first.get(target) != at_s}
        engines, gpus, own = (
            self._pages(each) for each in ((*answers.engines, *answers.started), answers.gpus, answers.own)
        )
        pages = {**engines, **gpus, **own}
        patience_s = 2.0 * memory.intervals.most(pages)
        self._chosen = frozenset(memory.choice.of({**self._up, **pages}, self._scraped, patience_s))
        here = [target for target in pages if target in self._chosen]
        memory.undated = not here or any(not target.known for target in here)
        memory.sizes = {target.key: len(pages[target]) for target in here}
        memory.clusters |= {cluster for target in here if (cluster := target.labels.get(CLUSTER, ""))}
        self._down = [target for target in self._chosen if self._is_down(target)]
        self._answering = Counter(job_of(target) for target, up in self._up.items() if up and target in self._chosen)
        self._take_exporters(gpus)
        return here, self._take_own(own), self._take_engines(engines)

    def _pages(self, vectors: Iterable[Vector]) -> Pages:
        """The series of each target, as its page wrote them."""
        pages: Pages = {}
        place = self._memory.placer.place
        for vector in vectors:
            placed = place(vector.series)
            page = pages.get(placed.target)
            if page is None:
                page = pages[placed.target] = {}
            page[placed.own] = vector.value
        return pages

    def _scrape(self, target: Target, values: dict[Series, float]) -> Scrape:
        at_s = self._scraped.get(target, self._answers.at_s)
        return Scrape(target, values, at_s, self._memory.intervals.of(target))

    def _is_down(self, target: Target) -> bool:
        return self._up.get(target, 1.0) == 0.0

    def _take_exporters(self, pages: Pages) -> None:
        memory, kept = self._memory, {}
        silent = (target for target in self._down if target.key in memory.exporters)
        order = sorted({*pages, *silent} & self._chosen, key=lambda one: (self._is_down(one), not one.known, one.key))
        for target in order:
            exporter = memory.exporters.get(target.key) or Exporter(memory.intervals.of(target))
            kept[target.key] = exporter
            if self._is_down(target):
                exporter.miss()
            elif not (target in self._moving and exporter.gpus):
                exporter.take(self._scrape(target, pages[target]), self._ladder)
        memory.exporters = kept
        self._exporters = [(target, kept[target.key]) for target in order]
        answering = (target for target, one in self._exporters if one.gpus and not self._is_down(target))
        self._learn(memory.exporter_jobs, answering)

    def _take_engines(self, pages: Pages) -> list[tuple[Target, Engine]]:
        """The engines by their targets' labels; one that is down is as it was."""
        memory = self._memory
        kept: dict[Key, Engine] = {}
        found: list[tuple[Target, Engine]] = []
        for target, values in pages.items():
            if target not in self._chosen or self._is_down(target):
                continue
            engine = memory.engines.get(target.key)
            if not (engine is not None and target in self._moving):
                engine = self._read(engine, self._scrape(target, values))
            if engine is not None and engine.readings:
                kept[target.key] = engine
                found.append((target, engine))
        self._learn_jobs(found)
        for target in self._down:
            row = memory.jobs.get(job_of(target))
            engine = memory.engines.get(target.key) or (Engine(row) if row is not None else None)
            if engine is not None:
                engine.fail(target, self._answers.at_s, memory.intervals.of(target))
                kept[target.key] = engine
                found.append((target, engine))
        memory.engines = kept
        return sorted(found, key=lambda each: each[0].key)

    def _read(self, engine: Engine | None, scrape: Scrape) -> Engine | None:
        """The engine with this scrape read; another where the page is of another kind now."""
        try:
            return self._read_page(engine, scrape)
        except Exception as error:  # a fault of gpumon's own costs this row only
            row = kind_of(scrape.values)
            failed = engine or (Engine(row) if row is not None else None)
            if failed is not None:
                text = f"gpumon failed on this page ({type(error).__name__}): please report"
                failed.fail(scrape.target, scrape.scraped_s, scrape.interval_s, Refusal(EndpointState.ERROR, text))
            return failed

    def _read_page(self, engine: Engine | None, scrape: Scrape) -> Engine | None:
        if engine is not None and engine.take(scrape, self._models):
            return engine
        row = kind_of(scrape.values)
        if row is None:
            return None
        fresh = Engine(row)
        return fresh if fresh.take(scrape, self._models) else None

    def _learn_jobs(self, found: Sequence[tuple[Target, Engine]]) -> None:
        """A target that is down is taken for an engine only in a job where all that is up is one."""
        rows: dict[str, list[Row]] = {}
        for target, engine in found:
            rows.setdefault(job_of(target), []).append(engine.row)
        for job, several in rows.items():
            if len({row.kind for row in several}) == 1 and len(several) == self._answering[job]:
                self._memory.jobs[job] = several[0]
            else:
                self._memory.jobs.pop(job, None)

    def _learn(self, jobs: set[str], answering: Iterable[Target]) -> None:
        """The same of other jobs: those all of whose targets that answer are among these."""
        found = Counter(map(job_of, answering))
        jobs.difference_update(self._answering)
        jobs.update(job for job, count in found.items() if count == self._answering[job])

    def _take_own(self, pages: Pages) -> list[Own]:
        """What hosts' own gpumon export, each with its host; None for one that is down."""
        kept: dict[Key, tuple[float, Snapshot | None]] = {}
        found: list[Own] = []
        for target, values in pages.items():
            if target not in self._chosen or self._is_down(target):
                continue
            scrape = self._scrape(target, values)
            known = self._memory.ready.get(target.key)
            if known is None or (known[0] != scrape.scraped_s and target not in self._moving):
                samples = (Sample(series.name, series.labels, value) for series, value in values.items())
                known = scrape.scraped_s, rebuilt(samples, scrape.scraped_s, scrape.interval_s)
            kept[target.key] = known
            old = self._answers.at_s - known[0] > OFTEN * scrape.interval_s
            if known[1] is not None and not old:
                found.append(Own(target, self._own_host(target, known[1]), known[1]))
        self._learn(self._memory.own_jobs, (target for target in pages if target.key in kept))
        for target in self._down:
            seen = self._memory.ready.get(target.key)
            if seen is not None:
                kept[target.key] = seen
            if seen is not None or job_of(target) in self._memory.own_jobs:
                found.append(Own(target, self._own_host(target, seen[1] if seen is not None else None), None))
        self._memory.ready = kept
        return found

    def _own_host(self, target: Target, seen: Snapshot | None) -> str:
        return host_of(target.labels, {"Hostname": seen.host.name} if seen is not None else {}, self._ladder)


def job_of(target: Target) -> str:
    """The job that scrapes a target."""
    return target.labels.get("job", "")
