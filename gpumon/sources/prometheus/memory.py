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

_USUAL_INTERVALS_S: Final = (1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)
NEAR: Final = 0.08
"""Scrapes come a little early or late: what is so near to a usual interval is that one."""
_LEAST_INTERVAL_S: Final = 0.1
"""Two scrapes are never closer: points that are come from one scrape."""
NEWEST: Final = 5
"""Newest times between two scrapes that are looked at: a scrape may be left out, and an interval may change."""
_MOST_NAMES: Final = 20_000
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
        """Learn from the scrapes of a target or two of each job: the median of the newest times between two of them."""
        for matrix in matrices:
            times = [at_s for at_s, _ in matrix.points]
            gaps = []
            for earlier_s, later_s in pairwise(times):
                if later_s - earlier_s > _LEAST_INTERVAL_S:
                    gaps.append(later_s - earlier_s)
            if gaps:
                self._learned[matrix.series.labels.get("job", "")] = _usual_interval(median(gaps[-NEWEST:]))

    def of(self, target: Target) -> float:
        """Seconds between two scrapes of a target."""
        return self._learned.get(target.labels.get("job", ""), self._default_s)

    def lacks(self, jobs: Iterable[str]) -> bool:
        """Whether nothing was learned of one of these jobs."""
        return any(job not in self._learned for job in jobs)

    def most_common(self, targets: Iterable[Target]) -> float:
        """The interval that most of these targets have."""
        counts = Counter(self.of(target) for target in targets)
        if counts:
            return counts.most_common(1)[0][0]
        return self._default_s


def _usual_interval(seconds: float) -> float:
    """The usual interval that is near to these seconds; where none is, the seconds themselves."""
    nearest = min(_USUAL_INTERVALS_S, key=lambda usual_s: abs(usual_s - seconds) / usual_s)
    if abs(nearest - seconds) <= NEAR * nearest:
        return nearest
    return max(_LEAST_INTERVAL_S, seconds)


class MachinePlace(NamedTuple):
    """A machine by its labels. Texts are from outside."""

    cluster: str
    """Empty where there is one cluster, or where no label tells it."""
    name: str


class KnownMachines:
    """Which names are of one machine. What was found stays, so that a host is not renamed when an exporter pauses."""

    def __init__(self) -> None:
        self._shown: dict[MachinePlace, MachinePlace] = {}
        """Name that is another's -> the name under which that machine is shown."""

    def copy(self) -> KnownMachines:
        """The machines as known now."""
        other = KnownMachines()
        other._shown = dict(self._shown)
        return other

    def of(self, place: MachinePlace) -> MachinePlace:
        """The name under which this machine is shown."""
        return self._shown.get(place, place)

    def pairs(self) -> tuple[tuple[MachinePlace, MachinePlace], ...]:
        """Each name that is another's, and the name under which that machine is shown."""
        return tuple(self._shown.items())

    def take(
        self, gpus: Mapping[MachinePlace, Collection[str]], best: Collection[MachinePlace]
    ) -> list[tuple[MachinePlace, MachinePlace]]:
        """Take in the UUIDs that each name's exporters tell of now; returns which names are another's now, and whose.

        Two names whose GPUs were found to differ since are two machines again. The name that is kept is one of `best`,
        else one with a cluster, else the first. Two of `best` (where a gpumon runs, which knows its machine) are two.
        """
        self._separate(gpus)
        for places in _places_by_uuid(gpus).values():
            if len(places) > 1 and sum(place in best for place in places) < 2:
                self._merge(places, best)
        renamed = []
        for alias, shown in self._shown.items():
            if alias in gpus and alias.name != shown.name:
                renamed.append((alias, shown))
        return renamed

    def _separate(self, gpus: Mapping[MachinePlace, Collection[str]]) -> None:
        """Forget that two names are one machine where no GPU of theirs is the same."""
        for alias, shown in list(self._shown.items()):
            if alias in gpus and shown in gpus and set(gpus[alias]).isdisjoint(gpus[shown]):
                del self._shown[alias]

    def show_under(self, alias: MachinePlace, shown: MachinePlace) -> None:
        """Take two names for one machine, which is shown under the second one."""
        if alias != shown and len(self._shown) < _MOST_NAMES:
            # What was shown under the alias has to follow it.
            for other_alias, other_shown in self._shown.items():
                if other_shown == alias:
                    self._shown[other_alias] = shown
            self._shown[alias] = shown

    def _merge(self, names: Collection[MachinePlace], best: Collection[MachinePlace]) -> None:
        """Take all these names for one machine."""
        shown_already = [place for place in map(self.of, names) if place in self._shown.values()]
        if shown_already:
            shown = shown_already[0]
        else:
            shown = min(names, key=lambda place: (place not in best, not place.cluster, place))
        for place in {*names, *map(self.of, names)}:
            self.show_under(place, shown)


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
        self.own_pages: dict[LabelPairs, tuple[float, Snapshot | None]] = {}
        """Target of a host's own gpumon -> time of its scrape, and its snapshot; None for a page that is refused."""
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
        """Text or key of a fault -> Unix time since when it holds."""
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
        aliases = (alias.name for alias, shown in self.machines.pairs() if shown.name == bare)
        return frozenset((host, bare, *aliases))

    def beside(self) -> Memory:
        """A fresh memory for moments of another time, with what is so at any time."""
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
