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
"""After so many moments what no answer had in them is forgotten."""
MOST_UNKNOWN: Final = 20_000
"""Targets without `up` that are remembered."""
GPU_PREFIX: Final = "DCGM_"


class Target(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One page that is scraped. Texts are from outside. There is one object for each."""

    labels: dict[str, str]
    """Labels that Prometheus adds, without the label of a replica."""
    key: tuple[tuple[str, str], ...]
    """Equal for the same page, whichever replica scrapes it."""
    replica: str
    """Which of several Prometheus this is from."""
    known: bool
    """Whether there is an `up` of it."""

    @property
    def instance(self) -> str:
        """Address that is scraped, unless it was relabelled."""
        return self.labels.get("instance", "")


class PageSeries(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A series as its page wrote it."""

    target: Target
    own: Series
    candidates: tuple[Target, ...]
    """Targets that it was chosen from."""


class Placer:
    """Finds each series' target. What it found is remembered while the targets stay the same."""

    def __init__(self) -> None:
        self._targets: dict[frozenset[tuple[str, str]], Target] = {}
        self._candidates: dict[tuple[str, str], tuple[Target, ...]] = {}
        self._placed: dict[Series, PageSeries] = {}
        self._used: dict[Series, PageSeries] = {}
        self._replicas: tuple[str, ...] = REPLICAS
        self._frames = 0

    def know(self, up: Iterable[Vector]) -> dict[Target, float]:
        """The targets there are, each with the value of `up`; to be called before the others."""
        samples = list(up)
        self._choose_replica_labels(samples)
        values = {self.of_up(sample.series.labels): sample.value for sample in samples}
        self._remember_targets(values)
        self._remember_candidates(values)
        return values

    def _choose_replica_labels(self, up: Sequence[Vector]) -> None:
        """`replica` names a replica of Prometheus where all targets have it; else it is a label of theirs."""
        every = bool(up) and all(REPLICA in sample.series.labels for sample in up)
        replicas = (*REPLICAS, REPLICA) if every else REPLICAS
        if replicas != self._replicas:
            self._replicas = replicas
            self._targets = {}
            self._placed = {}
            self._used = {}

    def _remember_targets(self, known: Iterable[Target]) -> None:
        """Keep the targets with an `up`, and those without one up to a bound."""
        unknown = {}
        for id_, target in self._targets.items():
            if not target.known:
                unknown[id_] = target
        self._targets = {frozenset(target.labels.items()) | _replica_pair(target): target for target in known}
        if len(unknown) <= MOST_UNKNOWN:
            self._targets |= unknown
        else:
            self._used = {}

    def _remember_candidates(self, known: Iterable[Target]) -> None:
        """Note which targets are at each place; what was placed by others is forgotten."""
        by_place: dict[tuple[str, str], list[Target]] = {}
        for target in known:
            by_place.setdefault(_place(target.labels), []).append(target)
        fresh = {place: tuple(targets) for place, targets in by_place.items()}
        self._frames += 1
        if fresh == self._candidates and self._frames % FORGET_EVERY != 0:
            return
        # Candidates that are the same stay the same objects: `place` compares by identity.
        for place, targets in fresh.items():
            if self._candidates.get(place) == targets:
                fresh[place] = self._candidates[place]
        self._candidates = fresh
        self._placed = self._used
        self._used = {}

    def of_up(self, labels: Mapping[str, str]) -> Target:
        """The target whose `up` (or its time) has these labels."""
        id_ = self._id(labels)
        target = self._targets.get(id_)
        if target is None:
            kept = self._without_replicas(labels)
            target = Target(kept, tuple(sorted(kept.items())), self._replica(labels), known=True)
            self._targets[id_] = target
        return target

    def _id(self, labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
        kept = self._without_replicas(labels)
        return frozenset({*kept.items(), ("", self._replica(labels))})

    def _without_replicas(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels without those that name a replica of Prometheus."""
        kept: dict[str, str] = {}
        for name, value in labels.items():
            if name not in self._replicas:
                kept[name] = value
        return kept

    def _replica(self, labels: Mapping[str, str]) -> str:
        """The replica of Prometheus that these labels name; empty where they name none."""
        return "/".join(labels[name] for name in self._replicas if name in labels)

    def dates(self, scraped: Iterable[Vector]) -> dict[Target, float]:
        """When each target was scraped (Unix time), by its `up`, or where it has none by its series."""
        dates: dict[Target, float] = {}
        for sample in scraped:
            target = self._targets.get(self._id(sample.series.labels))
            if target is None:
                target = self.place(sample.series).target
                if target.known:
                    continue
            dates[target] = max(sample.value, dates.get(target, 0.0))
        return dates

    def place(self, series: Series) -> PageSeries:
        """The target of a series, and the series as the page of that target wrote it."""
        placed = self._used.get(series)
        if placed is not None:
            return placed
        labels = series.labels
        candidates = self._candidates.get((labels.get("job", ""), labels.get("instance", "")), ())
        placed = self._placed.get(series)
        if placed is None or placed.candidates is not candidates:
            placed = self._new(series, candidates)
        self._used[series] = placed
        return placed

    def _new(self, series: Series, candidates: tuple[Target, ...]) -> PageSeries:
        target = self._best(series.labels, candidates)
        if target is None:
            target = self._unknown(series)
        theirs = target.labels
        own: dict[str, str] = {}
        for name, value in series.labels.items():
            if name in self._replicas or theirs.get(name) == value or EXPORTED + name in series.labels:
                continue
            plain = name.removeprefix(EXPORTED)
            own[plain if plain in theirs or plain in series.labels else name] = value
        return PageSeries(target, Series(series.name, own), candidates)

    def _best(self, labels: Mapping[str, str], candidates: tuple[Target, ...]) -> Target | None:
        """The candidate whose labels the series has most of. A page may overwrite some (`honor_labels`)."""
        if not candidates:
            return None
        replica = self._replica(labels)

        def shared(target: Target) -> tuple[bool, int, int]:
            same = sum(labels.get(name) == value for name, value in target.labels.items())
            return target.replica == replica, same - len(target.labels), same

        if len(candidates) > 1:
            return max(candidates, key=shared)
        return candidates[0]

    def _unknown(self, series: Series) -> Target:
        """The target of a series without an `up`: by the labels that it has of those that Prometheus adds."""
        is_gpu = series.name.startswith(GPU_PREFIX)
        labels: dict[str, str] = {}
        for name in UNKNOWN:
            if name in series.labels and not (is_gpu and name in OF_WORKLOADS):
                labels[name] = series.labels[name]
        kept = self._without_replicas(labels)
        replica = self._replica(labels)
        id_ = frozenset({*kept.items(), ("", replica), ("", "no up")})
        target = self._targets.get(id_)
        if target is None:
            target = Target(kept, tuple(sorted(kept.items())), replica, known=False)
            self._targets[id_] = target
        return target


def _place(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("job", ""), labels.get("instance", "")


def _replica_pair(target: Target) -> frozenset[tuple[str, str]]:
    return frozenset({("", target.replica)})


class ReplicaChoice:
    """Chooses among several replicas' accounts of one page: the last chosen, unless it has fallen behind."""

    def __init__(self) -> None:
        self._last: dict[tuple[tuple[str, str], ...], str] = {}
        self.repeated = 0
        """Pages that the newest answer told more than once."""

    def of(self, targets: Iterable[Target], scraped_s: Mapping[Target, float], patience_s: float) -> list[Target]:
        """One target for each page."""
        by_page: dict[tuple[tuple[str, str], ...], list[Target]] = {}
        for target in targets:
            by_page.setdefault(target.key, []).append(target)
        self.repeated = sum(len(several) > 1 for several in by_page.values())
        kept = []
        for several in by_page.values():
            if len(several) == 1:
                kept.append(several[0])
            else:
                kept.append(self._one(several, scraped_s, patience_s))
        self._last = {target.key: target.replica for target in kept if len(by_page[target.key]) > 1}
        return kept

    def _one(self, several: list[Target], scraped_s: Mapping[Target, float], patience_s: float) -> Target:
        newest = max(several, key=lambda target: (scraped_s.get(target, 0.0), target.replica))
        last = self._last.get(newest.key)
        for target in several:
            if target.replica == last and scraped_s.get(target, 0.0) >= scraped_s.get(newest, 0.0) - patience_s:
                return target
        return newest
