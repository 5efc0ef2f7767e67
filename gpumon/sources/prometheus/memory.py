"""What a frame is made of, and what stays from one moment of a fleet to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.readings.snapshot import Snapshot
from gpumon.sources.engines.registry import Row
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.engine import Engine
from gpumon.sources.prometheus.exporters import Exporter
from gpumon.sources.prometheus.intervals import Intervals
from gpumon.sources.prometheus.machines import Machines
from gpumon.sources.prometheus.targets import Choice, Placer, Target

Key = tuple[tuple[str, str], ...]
Pages = dict[Target, dict[Series, float]]


class Answers(NamedTuple):
    """What was asked for one moment; in the order of `Queries`, and at the end the first again."""

    at_s: float
    scraped: Sequence[Vector]
    up: Sequence[Vector]
    engines: Sequence[Vector]
    started: Sequence[Vector]
    gpus: Sequence[Vector]
    own: Sequence[Vector]
    again: Sequence[Vector]


class Memory:
    """What stays from one moment to the next."""

    def __init__(self, default_s: float) -> None:
        self.placer = Placer()
        self.choice = Choice()
        self.intervals = Intervals(default_s)
        self.engines: dict[Key, Engine] = {}
        self.exporters: dict[Key, Exporter] = {}
        self.ready: dict[Key, tuple[float, Snapshot | None]] = {}
        self.jobs: dict[str, Row] = {}
        """Jobs all of whose targets are engines of one kind."""
        self.exporter_jobs: set[str] = set()
        """Jobs all of whose targets are dcgm-exporters."""
        self.own_jobs: set[str] = set()
        """Jobs all of whose targets are gpumon."""
        self.hosts: dict[str, tuple[Target, ...]] = {}
        """Host, as it is shown -> its targets."""
        self.sizes: dict[Key, int] = {}
        """Series of each target."""
        self.undated = True
        """There are targets without `up`, or may be."""
        self.machines = Machines()
        self.clusters: set[str] = set()
        """That there ever were: one more must not rename a host twice."""
        self.since: dict[str, float] = {}

    def series_of(self, targets: Sequence[Target]) -> int:
        """How many series these targets have, as far as that is known."""
        return sum(self.sizes.get(target.key, 0) for target in targets)

    def names_of(self, host: str) -> frozenset[str]:
        """The names that labels may give a host that is shown under this one."""
        bare = host.removeprefix(next((f"{one}/" for one in self.clusters if host.startswith(f"{one}/")), ""))
        aliases = (alias.name for alias, kept in self.machines.pairs() if kept.name == bare)
        return frozenset((host, bare, *aliases))

    def beside(self) -> Memory:
        """A fresh one for another time, with what is so at any time."""
        other = Memory(0.0)
        other.intervals, other.jobs, other.clusters = self.intervals.copy(), dict(self.jobs), set(self.clusters)
        other.exporter_jobs, other.own_jobs = set(self.exporter_jobs), set(self.own_jobs)
        other.machines, other.undated = self.machines.copy(), self.undated
        return other
