"""A fleet at one moment: what its screen, its table and its JSON show."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from gpumon.readings.fleet import LabelsLine
from gpumon.readings.frame import HistogramReading
from gpumon.readings.snapshot import FaultShown, Snapshot
from gpumon.readings.verdict import Acknowledged


class HostState(str, Enum):
    """Freshness of what is known of a host, the best first."""

    OK = "ok"
    PARTIAL = "partial"
    """Something of it answers, and one of its exporters does not."""
    STARTING = "starting"
    """It was reached a moment ago, or is being reached, and has no figures yet."""
    STALE = "stale"
    """Nothing of it is newer than 3 of its intervals: its figures are missing."""
    UNREACHABLE = "unreachable"
    """The Prometheus knows it, and none of its exporters and engines answers."""
    GONE = "gone"
    """The Prometheus has nothing of it any more: what is shown is its last moment."""


class Latencies(msgspec.Struct, frozen=True):
    """An engine's TTFT and ITL histograms in the window of its quantiles; None where there is none, or no window."""

    ttft: HistogramReading | None = None
    itl: HistogramReading | None = None


class HostShown(msgspec.Struct, frozen=True, eq=False):
    """One host, as shown. `name` and `labels` are text from outside: escape before showing."""

    name: str
    labels: Mapping[str, str]
    snapshot: Snapshot
    state: HostState = HostState.OK
    seen_wall_s: float = 0.0
    """Unix time of the last frame that had it."""
    exporters_down: int = 0
    """Exporters of it that do not answer."""
    worker_gpus: Mapping[str, tuple[str, ...]] = {}
    """`Engine.key` -> UUIDs of the GPUs of its worker pods, most of them on other hosts."""
    own_gpumon: bool = False
    """Whether a gpumon on the host worked the snapshot out; else it was derived here, from exporters and engines."""
    latencies: Mapping[str, Latencies] = {}
    """By `Engine.key`; empty for a host with its own gpumon, which exports no histograms."""
    maintenance: Acknowledged | None = None
    """Who works on the host, and until when (empty: until its scheduler takes it in again): what is wrong there is
    nobody's trouble meanwhile."""
    gpumon_version: str = ""
    """Version of the gpumon that runs on it; empty: none does, or it is not known. Text from outside."""
    taken_out: str = ""
    """How a scheduler has taken it out; empty: it has not."""
    owners: Mapping[str, Mapping[str, str]] = {}
    """UUID of a GPU or `Engine.key` -> labels of its pod and its series, as `HostFrame.owners`."""


class FleetSnapshot(msgspec.Struct, frozen=True, eq=False):
    """All hosts at one moment. `time` is RFC 3339 in UTC; 0 in `wall_s`: there was no answer yet."""

    time: str
    wall_s: float
    interval_s: float
    """Seconds between two scrapes, as most hosts have it."""
    hosts: tuple[HostShown, ...] = ()
    """By name. A host that is gone stays among them for some minutes."""
    faults: tuple[FaultShown, ...] = ()
    queries: int = 0
    """Requests that the answer took."""
    cost_s: float = 0.0
    """Seconds from the first request to the last answer."""
    answered: bool = True
    """False: the Prometheus did not answer when it was asked last, so hosts and time are those of the answer before."""
    proposals: tuple[LabelsLine, ...] = ()
    """Lines of the config that `faults` propose."""
    late: bool = False
    """Whether that answer is older than 3 intervals: no host has figures."""

    def host(self, name: str) -> HostShown | None:
        """The host of a name; None where there is none."""
        return next((host for host in self.hosts if host.name == name), None)


NOTHING_YET = FleetSnapshot("", 0.0, 0.0)
"""Before the first answer."""
