"""Series of many targets told apart: which target each is of, and how the target's own page wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpumon.config.schema import Prometheus
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.answers import Vector

REPLICAS: Final = ("prometheus_replica", "__replica__", "thanos_replica", "receive_replica")
"""Labels that tell two Prometheus apart which scrape the same targets."""
REPLICA: Final = "replica"
"""Usual name of such a label, too; it is one where every target has it."""
EXPORTED: Final = "exported_"
"""Prometheus writes so what a page says under the name of a label that it adds itself."""
UNKNOWN: Final[tuple[str, ...]] = ("job", "instance", *Prometheus().cluster_labels, "namespace", "pod", *REPLICAS)
"""Labels taken for those of the target where there is no `up` of it."""
OF_WORKLOADS: Final = frozenset({"namespace", "pod"})
"""A dcgm-exporter writes them of the pods that use a GPU."""
FORGET_EVERY: Final = 20
"""Moments after which what no answer had in them is forgotten."""
MOST_UNKNOWN: Final = 20_000
"""Targets without `up` that are remembered."""
MOST_SHARED: Final = 20_000
"""Series of engines' pages that are shared by equal pages."""
GPU_PREFIX: Final = "DCGM_"
"""Begin of the names of a dcgm-exporter's metrics."""


LabelPairs = tuple[tuple[str, str], ...]
"""Names and values of the labels that identify a target: `Target.key`."""


class Target(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One page that is scraped. Texts are from outside. There is one object for each."""

    labels: dict[str, str]
    """Labels that Prometheus adds, without the label of a replica."""
    key: LabelPairs
    """Equal for the same page, whichever replica scrapes it."""
    replica: str
    """Which of several Prometheus this is from."""
    has_up: bool
    """Whether there is an `up` of it."""

    @property
    def instance(self) -> str:
        """Address that is scraped, unless it was relabelled."""
        return self.labels.get("instance", "")


class PageSeries(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A series as its page wrote it."""

    target: Target
    series: Series
    """With the labels that the page gave it, without those of the target."""
    candidates: tuple[Target, ...]
    """Targets that it was chosen from."""


class TargetFinder:
    """Finds the target of each series. That is remembered while the targets stay the same."""

    def __init__(self) -> None:
        self._targets: dict[frozenset[tuple[str, str]], Target] = {}
        """Labels with the replica -> the target."""
        self._candidates: dict[tuple[str, str], tuple[Target, ...]] = {}
        """Job and instance -> the targets there."""
        self._older: dict[Series, PageSeries] = {}
        """Series whose target was found before the last `FORGET_EVERY` moments began."""
        self._recent: dict[Series, PageSeries] = {}
        """Series whose target was found, or asked for, since then."""
        self._shared: dict[tuple[str, frozenset[tuple[str, str]]], Series] = {}
        """Name and labels of a series as the page of an engine wrote it -> the one object for all such pages.

        So a page that is read again after a while has the same series, and hundreds of engines share theirs.
        """
        self._replicas: tuple[str, ...] = REPLICAS
        """Labels that name a replica of Prometheus."""
        self._frames = 0
        """Moments so far."""

    def take_targets(self, up: Iterable[Vector]) -> dict[Target, float]:
        """Take in the targets that there are now; returns the value of `up` of each. To be called before the others."""
        samples = list(up)
        self._choose_replica_labels(samples)
        values = {self.target_of_up(sample.series.labels): sample.value for sample in samples}
        self._remember_targets(values)
        self._remember_candidates(values)
        return values

    def _choose_replica_labels(self, up: Sequence[Vector]) -> None:
        """Choose the labels that name a replica of Prometheus: `replica` does where all targets have it."""
        all_have_it = bool(up) and all(REPLICA in sample.series.labels for sample in up)
        replicas = (*REPLICAS, REPLICA) if all_have_it else REPLICAS
        if replicas != self._replicas:
            self._replicas = replicas
            self._targets = {}
            self._older = {}
            self._recent = {}

    def _remember_targets(self, targets: Iterable[Target]) -> None:
        """Keep the targets with an `up`, and those without one up to a bound."""
        without_up = {id_: target for id_, target in self._targets.items() if not target.has_up}
        self._targets = {frozenset(target.labels.items()) | {("", target.replica)}: target for target in targets}
        if len(without_up) <= MOST_UNKNOWN:
            self._targets |= without_up
        else:
            self._recent = {}

    def _remember_candidates(self, known_targets: Iterable[Target]) -> None:
        """Note which targets each job has at each address; where these changed, series are looked at anew."""
        by_address: dict[tuple[str, str], list[Target]] = {}
        for target in known_targets:
            by_address.setdefault(_job_and_instance(target.labels), []).append(target)
        fresh = {address: tuple(targets) for address, targets in by_address.items()}
        self._frames += 1
        if fresh == self._candidates and self._frames % FORGET_EVERY != 0:
            return
        # Candidates that are the same stay the same objects: `find` compares by identity.
        for address, targets in fresh.items():
            if self._candidates.get(address) == targets:
                fresh[address] = self._candidates[address]
        self._candidates = fresh
        self._older = self._recent
        self._recent = {}

    def differing_labels(self) -> frozenset[str]:
        """Names of the labels in which targets of one job and address differ; replicas of a target do not."""
        names: set[str] = set()
        for targets in self._candidates.values():
            pairs = [set(target.key) for target in targets]
            names.update(name for name, _ in pairs[0].union(*pairs) - pairs[0].intersection(*pairs))
        return frozenset(names)

    def forget(self) -> None:
        """Forget the series that were not asked for since the last call."""
        self._older = self._recent
        self._recent = {}

    def target_of_up(self, labels: Mapping[str, str]) -> Target:
        """The target whose `up`, or the time of whose `up`, has these labels."""
        id_ = self._target_id(labels)
        target = self._targets.get(id_)
        if target is None:
            target_labels = self._without_replicas(labels)
            key = tuple(sorted(target_labels.items()))
            target = Target(target_labels, key, self._replica(labels), has_up=True)
            self._targets[id_] = target
        return target

    def _target_id(self, labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
        """Identity of a target: its labels and its replica."""
        return frozenset({*self._without_replicas(labels).items(), ("", self._replica(labels))})

    def _without_replicas(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels without those that name a replica of Prometheus."""
        return {name: value for name, value in labels.items() if name not in self._replicas}

    def _replica(self, labels: Mapping[str, str]) -> str:
        """The replica of Prometheus that these labels name; empty where they name none."""
        return "/".join(labels[name] for name in self._replicas if name in labels)

    def scrape_times(self, scraped: Iterable[Vector]) -> dict[Target, float]:
        """When each target was scraped (Unix time), by its `up`, or where it has none by its series."""
        scraped_s: dict[Target, float] = {}
        for sample in scraped:
            target = self._targets.get(self._target_id(sample.series.labels))
            if target is None:
                target = self.find(sample.series).target
                if target.has_up:
                    continue
            scraped_s[target] = max(sample.value, scraped_s.get(target, 0.0))
        return scraped_s

    def find(self, series: Series) -> PageSeries:
        """The target of a series, and the series as the page of that target wrote it."""
        page_series = self._recent.get(series)
        if page_series is not None:
            return page_series
        candidates = self._candidates.get(_job_and_instance(series.labels), ())
        page_series = self._older.get(series)
        if page_series is None or page_series.candidates is not candidates:
            page_series = self._find_anew(series, candidates)
        self._recent[series] = page_series
        return page_series

    def _find_anew(self, series: Series, candidates: tuple[Target, ...]) -> PageSeries:
        """The target of a series, and the series without the labels that Prometheus has added."""
        target = self._best_candidate(series.labels, candidates)
        if target is None:
            target = self._target_without_up(series)
        page_labels: dict[str, str] = {}
        for name, value in series.labels.items():
            if name in self._replicas or target.labels.get(name) == value or EXPORTED + name in series.labels:
                continue
            page_name = name.removeprefix(EXPORTED)
            # Without a label of the plain name, the page itself wrote `exported_`.
            if page_name not in target.labels and page_name not in series.labels:
                page_name = name
            page_labels[page_name] = value
        return PageSeries(target, self._page_series(series.name, page_labels), candidates)

    def _page_series(self, name: str, labels: dict[str, str]) -> Series:
        """A series as a page wrote it. Those of a GPU have its UUID: no other page has the same."""
        if name.startswith(GPU_PREFIX):
            return Series(name, labels)
        if len(self._shared) >= MOST_SHARED:
            self._shared = {}
        return self._shared.setdefault((name, frozenset(labels.items())), Series(name, labels))

    def _best_candidate(self, labels: Mapping[str, str], candidates: tuple[Target, ...]) -> Target | None:
        """The candidate whose labels the series has most of. A page may overwrite some (`honor_labels`)."""
        if not candidates:
            return None
        replica = self._replica(labels)

        def fit(target: Target) -> tuple[bool, int, int]:
            """How well a target fits: its replica, fewest labels that differ, most labels in common."""
            common = sum(labels.get(name) == value for name, value in target.labels.items())
            return target.replica == replica, common - len(target.labels), common

        if len(candidates) > 1:
            return max(candidates, key=fit)
        return candidates[0]

    def _target_without_up(self, series: Series) -> Target:
        """The target of a series without an `up`: by the labels that it has of those that Prometheus adds."""
        is_gpu = series.name.startswith(GPU_PREFIX)
        labels = {
            name: series.labels[name]
            for name in UNKNOWN
            if name in series.labels and not (is_gpu and name in OF_WORKLOADS)
        }
        target_labels = self._without_replicas(labels)
        replica = self._replica(labels)
        id_ = frozenset({*target_labels.items(), ("", replica), ("", "no up")})
        target = self._targets.get(id_)
        if target is None:
            target = Target(target_labels, tuple(sorted(target_labels.items())), replica, has_up=False)
            self._targets[id_] = target
        return target


def _job_and_instance(labels: Mapping[str, str]) -> tuple[str, str]:
    """Job and address of a target."""
    return labels.get("job", ""), labels.get("instance", "")


class ReplicaChoice:
    """Chooses among several replicas' accounts of one page: the last chosen, unless it has fallen behind."""

    def __init__(self) -> None:
        self._last: dict[tuple[tuple[str, str], ...], str] = {}
        """Page -> the replica that was chosen last."""
        self.repeated = 0
        """Pages that the newest answer told more than once."""

    def one_per_page(
        self, targets: Iterable[Target], scraped_s: Mapping[Target, float], patience_s: float
    ) -> list[Target]:
        """One target for each page: of replicas the chosen one.

        `patience_s`: seconds that the last chosen replica may be behind the newest.
        """
        by_page: dict[tuple[tuple[str, str], ...], list[Target]] = {}
        for target in targets:
            by_page.setdefault(target.key, []).append(target)
        self.repeated = sum(len(replicas) > 1 for replicas in by_page.values())
        chosen = []
        for replicas in by_page.values():
            if len(replicas) == 1:
                chosen.append(replicas[0])
            else:
                chosen.append(self._choose(replicas, scraped_s, patience_s))
        self._last = {target.key: target.replica for target in chosen if len(by_page[target.key]) > 1}
        return chosen

    def _choose(self, replicas: list[Target], scraped_s: Mapping[Target, float], patience_s: float) -> Target:
        """The replica of a page that was chosen last, else the newest."""
        newest = max(replicas, key=lambda target: (scraped_s.get(target, 0.0), target.replica))
        last = self._last.get(newest.key)
        for target in replicas:
            if target.replica == last and scraped_s.get(target, 0.0) >= scraped_s.get(newest, 0.0) - patience_s:
                return target
        return newest
