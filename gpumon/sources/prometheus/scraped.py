"""The targets of one moment: which of several replicas' accounts count, which targets are up, and the page of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.engine import Scrape
from gpumon.sources.prometheus.hosts import HostLabels
from gpumon.sources.prometheus.intervals import Intervals
from gpumon.sources.prometheus.memory import Memory, ValuesByTarget
from gpumon.sources.prometheus.other_exporters import as_dcgm, exporter_of
from gpumon.sources.prometheus.queries import Answers
from gpumon.sources.prometheus.targets import Target, TargetFinder


class Scraped(NamedTuple):
    """The answers of one moment, by target."""

    at_s: float
    """Unix time that was asked for."""
    up: Mapping[Target, float]
    scraped_s: Mapping[Target, float]
    """Unix time of each target's newest scrape."""
    moving: frozenset[Target]
    """Targets that were scraped while the queries ran: their pages may mix two scrapes."""
    counted: frozenset[Target]
    """One target for each page."""
    with_page: tuple[Target, ...]
    """Counted targets with a page."""
    down: tuple[Target, ...]
    """Counted targets whose `up` is 0."""
    answering: Counter[str]
    """Job -> number of its counted targets that are up."""
    engines: ValuesByTarget
    gpus: ValuesByTarget
    own: ValuesByTarget
    """Series of hosts' own gpumon."""
    other_exporters: Mapping[Target, str]
    """Target of an exporter of GPUs that is no dcgm-exporter -> which it is; its page is rewritten as one."""
    intervals: Intervals
    asked: frozenset[str] | None
    """Addresses whose pages were asked for; None: all."""
    incomplete: frozenset[str]
    """Kinds of pages of which some may be missing."""

    def is_asked(self, target: Target) -> bool:
        """Whether the page of a target was asked for; else what is known of it stays."""
        return self.asked is None or target.instance in self.asked

    def kept(self, kind: str, pages: Container[Target]) -> list[Target]:
        """Counted targets that answer and are not among these pages, where not all pages of this kind were asked for or
        some may be missing."""
        if self.asked is None and kind not in self.incomplete:
            return []
        kept = []
        for target in self.counted:
            is_unread = kind in self.incomplete or not self.is_asked(target)
            if self.up.get(target) and is_unread and target not in pages:
                kept.append(target)
        return kept

    def is_down(self, target: Target) -> bool:
        """Whether the Prometheus says that it cannot scrape the target."""
        return self.up.get(target, 1.0) == 0.0

    def is_readable(self, target: Target) -> bool:
        """Whether the page of a target counts and is of now."""
        return target in self.counted and not self.is_down(target)

    def scrape(self, target: Target, values: dict[Series, float]) -> Scrape:
        """The page of a target with the time of its scrape."""
        scraped_s = self.scraped_s.get(target, self.at_s)
        return Scrape(target, values, scraped_s, self.intervals.of(target))


def job_of(target: Target) -> str:
    """The job that scrapes a target."""
    return target.labels.get("job", "")


def sort_by_target(answers: Answers, memory: Memory, labels: HostLabels) -> Scraped:
    """The answers sorted by target. The memory learns the targets' sizes and clusters."""
    finder = memory.target_finder
    up = finder.take_targets(answers.up)
    scraped_before_s = finder.scrape_times(answers.scraped)
    scraped_s = finder.scrape_times(answers.again)
    engines = _pages_by_target(answers.engines, finder)
    for target, start in _pages_by_target(answers.started, finder).items():
        # A start alone is no page: the server may have refused what goes with it.
        if target in engines:
            engines[target].update(start)
    gpus: ValuesByTarget = {}
    other_exporters: dict[Target, str] = {}
    for target, values in _pages_by_target(answers.gpus, finder).items():
        gpus[target] = as_dcgm(values)
        exporter = exporter_of(values)
        if exporter:
            other_exporters[target] = exporter
    own = _pages_by_target(answers.own, finder)
    pages = {**engines, **gpus, **own}
    patience_s = 2.0 * memory.intervals.most_common(pages)
    counted = memory.replica_choice.one_per_page({**up, **pages}, scraped_s, patience_s)
    counted_set = frozenset(counted)
    with_page = tuple(target for target in pages if target in counted_set)
    _note_targets(with_page, pages, memory, labels, whole=not answers.asked)
    return Scraped(
        at_s=answers.at_s,
        up=up,
        scraped_s={**scraped_before_s, **scraped_s},
        moving=frozenset(target for target, newest_s in scraped_s.items() if scraped_before_s.get(target) != newest_s),
        counted=counted_set,
        with_page=with_page,
        down=tuple(target for target in counted if up.get(target) == 0.0),
        answering=Counter(job_of(target) for target in counted if up.get(target, 0.0)),
        engines=engines,
        gpus=gpus,
        own=own,
        other_exporters=other_exporters,
        intervals=memory.intervals,
        asked=answers.asked,
        incomplete=answers.incomplete,
    )


def _pages_by_target(vectors: Iterable[Vector], finder: TargetFinder) -> ValuesByTarget:
    """The series of each target, as its page wrote them."""
    pages: ValuesByTarget = {}
    for vector in vectors:
        page_series = finder.find(vector.series)
        page = pages.get(page_series.target)
        if page is None:
            page = {}
            pages[page_series.target] = page
        page[page_series.series] = vector.value
    return pages


def _note_targets(
    with_page: Sequence[Target], pages: ValuesByTarget, memory: Memory, labels: HostLabels, *, whole: bool
) -> None:
    """Note in the memory whether the targets are dated, how large their pages are, and their clusters.

    `whole`: the answers have something of each page.
    """
    if whole:
        memory.has_undated_targets = not with_page or any(not target.has_up for target in with_page)
        memory.series_counts = {}
    memory.series_counts |= {target.key: len(pages[target]) for target in with_page}
    for target in with_page:
        cluster = labels.cluster(target.labels)
        if cluster:
            memory.clusters.add(cluster)
