"""Facts about a fleet that stay from one moment to the next: readers of pages, intervals of jobs, names of machines."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from gpumon.readings.fleet import LabelsLine
from gpumon.readings.frame import XidEvent
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.engines.adapter import EngineRow
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.alike_loads import LoadTracks
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.engine import EngineTarget
from gpumon.sources.prometheus.engine_load import EngineLoadReader
from gpumon.sources.prometheus.expected_engines import NO_ENGINES, KnownEngines
from gpumon.sources.prometheus.exporters import ExporterTarget
from gpumon.sources.prometheus.hosts import Pod
from gpumon.sources.prometheus.intervals import Intervals
from gpumon.sources.prometheus.machine_names import KnownMachines, MachineId
from gpumon.sources.prometheus.targets import LabelPairs, ReplicaChoice, Target, TargetFinder

ValuesByTarget = dict[Target, dict[Series, float]]
"""Target -> the series of its page, with their values."""


class Proposal(NamedTuple):
    """A notice, and the line of the config that it proposes; None where there is none."""

    notice: str
    line: LabelsLine | None = None


NO_PROPOSAL: Final = Proposal("")


class ExpectedGpu(NamedTuple):
    """A GPU that was there in the last two days, as it was seen last."""

    target: Target
    """The exporter that showed it."""
    name: str
    """Name that labels give its machine."""
    gpu_index: int
    model: str
    """Name as the exporter writes it. Text from outside."""
    seen_s: float
    """Unix time of its last sample."""
    xid: int = 0
    """The Xid that its exporter showed last; 0 for none."""
    dated: bool = False
    """Whether `seen_s` is exact."""
    machine_id: MachineId | None = None
    """The machine that showed it; None where gpumon did not see it itself."""
    indices: frozenset[int] = frozenset()
    """Every index that it had in the last two days: those of its neighbours move up when a GPU is gone."""


class Memory:
    """Facts about a fleet's targets and machines. Each newest moment adds to them."""

    def __init__(self, intervals: Intervals) -> None:
        """`intervals`: the scrape intervals of jobs, as far as they are known."""
        self.target_finder = TargetFinder()
        self.replica_choice = ReplicaChoice()
        """Chooses which of several Prometheus replicas' accounts of a page is read."""
        self.intervals = intervals
        self.engines: dict[LabelPairs, EngineTarget] = {}
        """Readers of the engines' pages, by target."""
        self.exporters: dict[LabelPairs, ExporterTarget] = {}
        """Readers of the dcgm-exporters' pages, by target."""
        self.load_readers: dict[LabelPairs, EngineLoadReader] = {}
        """Readers of the engines' loads, by target."""
        self.up: list[Vector] = []
        """`up` of the targets, each as it was told last."""
        self.glanced: set[LabelPairs] = set()
        """Targets of which a first look had the loads alone; their pages were not read yet."""
        self.own_pages: dict[LabelPairs, tuple[float, Snapshot | None]] = {}
        """Target of a host's own gpumon -> time of its scrape, and its snapshot; None for a page that is refused."""
        self.own_versions: dict[LabelPairs, str] = {}
        """Target of a host's own gpumon -> its version."""
        self.own_page_refusals: dict[LabelPairs, str] = {}
        """Target of a host's own gpumon -> why its page is not read."""
        self.jobs: dict[str, EngineRow] = {}
        """Jobs all of whose targets are engines of one kind."""
        self.exporter_jobs: set[str] = set()
        """Jobs all of whose targets are dcgm-exporters."""
        self.own_jobs: set[str] = set()
        """Jobs all of whose targets are gpumon."""
        self.hosts: dict[str, tuple[Target, ...]] = {}
        """Host, as it is shown -> its targets."""
        self.series_counts: dict[LabelPairs, int] = {}
        """Target -> number of its series."""
        self.has_undated_targets = True
        """Whether some targets have no `up`: scrape times then need a query of their series. True before the first
        moment."""
        self.machines = KnownMachines()
        """The names that labels give a machine, and the one under which it is shown."""
        self.clusters: set[str] = set()
        """All clusters that there ever were. Once there are two, hosts are called `CLUSTER/HOST`: a cluster that comes
        and goes must not rename them to and fro."""
        self.fault_since_s: dict[str, float] = {}
        """Text or key of a fault -> Unix time since when it holds."""
        self.idle_since_s: dict[str, float] = {}
        """UUID -> Unix time since when that GPU has done nothing."""
        self.xids: dict[str, XidEvent] = {}
        """UUID -> the Xid that its exporter shows, dated by the first sample that the Prometheus has of it."""
        self.proposal: tuple[object, Proposal] = (None, NO_PROPOSAL)
        """The targets for which a line of the config was looked for last, and what was found."""
        self.load_tracks = LoadTracks()
        """Loads of engines and GPUs that are apart and that no label brings together."""
        self.known_engines: KnownEngines = NO_ENGINES
        """The engines of the last day, as far as they were looked up."""
        self.unread_targets: dict[str, int] = {}
        """Job -> number of its targets that are up and on no host."""
        self.unread: tuple[str, ...] = ()
        """Notices of exporters of GPUs that are scraped and not read."""
        self.expected_gpus: dict[str, ExpectedGpu] = {}
        """UUID -> a GPU that was there in the last two days, as far as it was looked up or seen."""
        self.cordons: dict[MachineId, str] = {}
        """Cluster and node that a scheduler has taken out -> how."""
        self.pods: dict[Pod, str] = {}
        """Pod -> the name of its host, as a dcgm-exporter told it last."""

    def note_glance(self) -> None:
        """Note that all that was read so far was a first look."""
        self.glanced = {*self.engines, *self.exporters}

    def begin_anew(self, instances: Container[str] | None) -> None:
        """Forget what a first look had of the targets at these addresses (None: of all), as their pages are read."""
        for key in list(self.glanced):
            if instances is None or dict(key).get("instance", "") in instances:
                self.glanced.remove(key)
                self.engines.pop(key, None)
                self.exporters.pop(key, None)

    def count_series(self, targets: Sequence[Target]) -> int:
        """Number of series that these targets have, as far as that is known."""
        return sum(self.series_counts.get(target.key, 0) for target in targets)

    def aliases_of(self, host: str) -> frozenset[str]:
        """The names that labels may give the host that is shown as `host`, which may be `CLUSTER/NAME`."""
        bare = host
        for cluster in self.clusters:
            if host.startswith(f"{cluster}/"):
                bare = host.removeprefix(f"{cluster}/")
                break
        aliases = (alias.name for alias, shown in self.machines.pairs() if shown.name == bare)
        return frozenset((host, bare, *aliases))

    def for_other_times(self) -> Memory:
        """A fresh memory for moments of the past: only the facts that hold at any time are copied.

        Readers of pages, faults and idle times are of the newest moment and begin anew.
        """
        other = Memory(self.intervals.copy())
        other.jobs = dict(self.jobs)
        other.exporter_jobs = set(self.exporter_jobs)
        other.own_jobs = set(self.own_jobs)
        other.has_undated_targets = self.has_undated_targets
        other.machines = self.machines.copy()
        other.clusters = set(self.clusters)
        other.pods = dict(self.pods)
        other.xids = dict(self.xids)
        return other
