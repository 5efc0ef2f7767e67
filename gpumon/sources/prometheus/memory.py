"""Memory from one moment of a fleet to the next: readers of pages, intervals of jobs, names of machines."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.readings.frame import XidEvent
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.engines.adapter import EngineRow
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.engine import EngineTarget
from gpumon.sources.prometheus.exporters import ExporterTarget
from gpumon.sources.prometheus.hosts import Pod
from gpumon.sources.prometheus.intervals import Intervals
from gpumon.sources.prometheus.machine_names import KnownMachines
from gpumon.sources.prometheus.targets import ReplicaChoice, Target, TargetFinder

LabelPairs = tuple[tuple[str, str], ...]
ValuesByTarget = dict[Target, dict[Series, float]]


class Memory:
    """Facts that stay from one moment to the next."""

    def __init__(self, default_s: float) -> None:
        self.target_finder = TargetFinder()
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
