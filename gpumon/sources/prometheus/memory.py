"""Parts of a frame, and memory from one moment of a fleet to the next: how often each job is scraped, and which names
are of one machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from gpumon.readings.frame import XidEvent
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.engines.adapter import EngineRow
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.answers import Matrix, Vector
from gpumon.sources.prometheus.engine import EngineTarget
from gpumon.sources.prometheus.exporters import ExporterTarget
from gpumon.sources.prometheus.hosts import Pod
from gpumon.sources.prometheus.targets import Placer, ReplicaChoice, Target

_USUAL_S: Final = (1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)
NEAR: Final = 0.08
"""Scrapes come a little early or late: what is so near to a usual interval is that one."""
_LEAST_S: Final = 0.1
NEWEST: Final = 5
"""So many of the newest times between two scrapes are looked at: a scrape may be left out, an interval may change."""
_MOST: Final = 20_000
"""Names that are remembered."""
LabelPairs = tuple[tuple[str, str], ...]
ValuesByTarget = dict[Target, dict[Series, float]]


class Intervals:
    """Seconds between two scrapes, by job: all targets of a job have one."""

    def __init__(self, default_s: float) -> None:
        self._default_s = default_s
        self._learned: dict[str, float] = {}

    def copy(self) -> Intervals:
        """The intervals as known now."""
        other = Intervals(self._default_s)
        other._learned = dict(self._learned)
        return other

    def learn(self, matrices: Iterable[Matrix]) -> None:
        """The scrapes of a target or two of each job: the median of the newest times between."""
        for matrix in matrices:
            times = [at_s for at_s, _ in matrix.points]
            gaps = []
            for before, after in pairwise(times):
                if after - before > _LEAST_S:
                    gaps.append(after - before)
            if gaps:
                self._learned[matrix.series.labels.get("job", "")] = _usual(median(gaps[-NEWEST:]))

    def of(self, target: Target) -> float:
        """Seconds between two scrapes of a target."""
        return self._learned.get(target.labels.get("job", ""), self._default_s)

    def lacks(self, jobs: Iterable[str]) -> bool:
        """Whether nothing was learned of one of these jobs."""
        return any(job not in self._learned for job in jobs)

    def most(self, targets: Iterable[Target]) -> float:
        """The interval that most of these have."""
        counts = Counter(self.of(target) for target in targets)
        if counts:
            return counts.most_common(1)[0][0]
        return self._default_s


def _usual(seconds: float) -> float:
    nearest = min(_USUAL_S, key=lambda usual_s: abs(usual_s - seconds) / usual_s)
    if abs(nearest - seconds) <= NEAR * nearest:
        return nearest
    return max(_LEAST_S, seconds)


class MachinePlace(NamedTuple):
    """A machine by its labels. Texts are from outside."""

    cluster: str
    """Empty where there is one cluster, or where no label tells it."""
    name: str


class KnownMachines:
    """Which names are of one machine. What was found stays, so that a host is not renamed when an exporter pauses."""

    def __init__(self) -> None:
        self._kept: dict[MachinePlace, MachinePlace] = {}

    def copy(self) -> KnownMachines:
        """The machines as known now."""
        other = KnownMachines()
        other._kept = dict(self._kept)
        return other

    def of(self, place: MachinePlace) -> MachinePlace:
        """The name under which this machine is shown."""
        return self._kept.get(place, place)

    def pairs(self) -> tuple[tuple[MachinePlace, MachinePlace], ...]:
        """Each name that is another's, and that one."""
        return tuple(self._kept.items())

    def see(
        self, gpus: Mapping[MachinePlace, Collection[str]], best: Collection[MachinePlace]
    ) -> list[tuple[MachinePlace, MachinePlace]]:
        """Take in the UUIDs that each name's exporters tell of now; which names are another's now, and whose.

        Two names whose GPUs were found to differ since are two machines again. The name that is kept is one of `best`,
        else one with a cluster, else the first. Two of `best` (where a gpumon runs, which knows its machine) are two.
        """
        self._part(gpus)
        for places in _places_by_uuid(gpus).values():
            if len(places) > 1 and sum(place in best for place in places) < 2:
                self._join(places, best)
        see = []
        for alias, kept in self._kept.items():
            if alias in gpus and alias.name != kept.name:
                see.append((alias, kept))
        return see

    def _part(self, gpus: Mapping[MachinePlace, Collection[str]]) -> None:
        """Forget that two names are one machine where no GPU of theirs is the same."""
        for alias, kept in list(self._kept.items()):
            if alias in gpus and kept in gpus and set(gpus[alias]).isdisjoint(gpus[kept]):
                del self._kept[alias]

    def lend(self, alias: MachinePlace, kept: MachinePlace) -> None:
        """These two are one machine, shown under the second name."""
        if alias != kept and len(self._kept) < _MOST:
            for other, shown in self._kept.items():
                if shown == alias:
                    self._kept[other] = kept
            self._kept[alias] = kept

    def _join(self, several: Collection[MachinePlace], best: Collection[MachinePlace]) -> None:
        known = [place for place in map(self.of, several) if place in self._kept.values()]
        if known:
            kept = known[0]
        else:
            kept = min(several, key=lambda place: (place not in best, not place.cluster, place))
        for place in {*several, *map(self.of, several)}:
            self.lend(place, kept)


def _places_by_uuid(gpus: Mapping[MachinePlace, Collection[str]]) -> dict[str, list[MachinePlace]]:
    """UUID of a GPU -> the names that tell of it."""
    places: dict[str, list[MachinePlace]] = {}
    for place, uuids in gpus.items():
        for uuid in uuids:
            places.setdefault(uuid, []).append(place)
    return places


class Answers(NamedTuple):
    """The answers for one moment; in the order of `Queries`, and at the end the first again."""

    at_s: float
    scraped: Sequence[Vector]
    up: Sequence[Vector]
    engines: Sequence[Vector]
    started: Sequence[Vector]
    gpus: Sequence[Vector]
    own: Sequence[Vector]
    again: Sequence[Vector]


class Memory:
    """Facts that stay from one moment to the next."""

    def __init__(self, default_s: float) -> None:
        self.placer = Placer()
        self.choice = ReplicaChoice()
        self.intervals = Intervals(default_s)
        self.engines: dict[LabelPairs, EngineTarget] = {}
        self.exporters: dict[LabelPairs, ExporterTarget] = {}
        self.ready: dict[LabelPairs, tuple[float, Snapshot | None]] = {}
        self.refused: dict[LabelPairs, str] = {}
        """Why what a host's own gpumon exports is not read."""
        self.jobs: dict[str, EngineRow] = {}
        """Jobs all of whose targets are engines of one kind."""
        self.exporter_jobs: set[str] = set()
        """Jobs all of whose targets are dcgm-exporters."""
        self.own_jobs: set[str] = set()
        """Jobs all of whose targets are gpumon."""
        self.hosts: dict[str, tuple[Target, ...]] = {}
        """Host, as it is shown -> its targets."""
        self.sizes: dict[LabelPairs, int] = {}
        """Series of each target."""
        self.undated = True
        """There are targets without `up`, or may be."""
        self.machines = KnownMachines()
        self.clusters: set[str] = set()
        """All clusters that there ever were: one more must not rename a host twice."""
        self.since: dict[str, float] = {}
        self.idle_since_s: dict[str, float] = {}
        """UUID -> Unix time since when that GPU has done nothing."""
        self.xids: dict[str, XidEvent] = {}
        """UUID -> the Xid that its exporter has told since before it was first looked at."""
        self.pods: dict[Pod, str] = {}
        """Pod -> the name of its host, as a dcgm-exporter told it last."""

    def series_of(self, targets: Sequence[Target]) -> int:
        """How many series these targets have, as far as that is known."""
        return sum(self.sizes.get(target.key, 0) for target in targets)

    def names_of(self, host: str) -> frozenset[str]:
        """The names that labels may give a host that is shown under this one."""
        bare = host
        for cluster in self.clusters:
            if host.startswith(f"{cluster}/"):
                bare = host.removeprefix(f"{cluster}/")
                break
        aliases = (alias.name for alias, kept in self.machines.pairs() if kept.name == bare)
        return frozenset((host, bare, *aliases))

    def beside(self) -> Memory:
        """A fresh one for another time, with what is so at any time."""
        other = Memory(0.0)
        other.intervals = self.intervals.copy()
        other.jobs = dict(self.jobs)
        other.clusters = set(self.clusters)
        other.exporter_jobs = set(self.exporter_jobs)
        other.own_jobs = set(self.own_jobs)
        other.machines = self.machines.copy()
        other.undated = self.undated
        other.pods = dict(self.pods)
        return other
