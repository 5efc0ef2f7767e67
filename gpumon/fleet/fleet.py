"""All hosts of a fleet from moment to moment: frames in, fleet snapshots out. Pure, and a host at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from gpumon.efficiency.deriver import shown_fault
from gpumon.fleet.blank import without_figures
from gpumon.fleet.loads import with_loads
from gpumon.fleet.pipeline import HostMoment, HostPipeline
from gpumon.fleet.snapshot import NOTHING_YET, FleetSnapshot, HostShown, HostState, Latencies
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import Fault
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.quantities import ITL, TTFT
from gpumon.readings.snapshot import Snapshot
from gpumon.triage.fresh import MakeDeriver

GONE_HOST_S: Final = 600.0
"""Seconds for which a host that left the Prometheus is shown, as gone."""
_STALE: Final = Missing(Reason.STALE)


class Fleet:
    """Holds what each host's figures are derived from; no history of any. The same frames give the same snapshots."""

    def __init__(self, make_deriver: MakeDeriver, interval_s: float = 0.0) -> None:
        """Begin without a host.

        `make_deriver` makes the deriver and the triage of a host. `interval_s`: seconds between two frames, where that
        is longer than between two scrapes.
        """
        self.interval_s = interval_s
        self.snapshot: FleetSnapshot = NOTHING_YET
        self._make_deriver = make_deriver
        self._pipelines: dict[str, HostPipeline] = {}
        self._shown: dict[str, HostShown] = {}

    def take(self, frame: FleetFrame) -> None:
        """Take a frame in; afterwards `snapshot` is that of it."""
        for _ in self.steps(frame):
            pass

    def steps(self, frame: FleetFrame) -> Iterator[None]:
        """Take a frame in; afterwards `snapshot` is that of it.

        Yields after each host, so that the event loop can run. A frame that is no answer leaves the hosts, and their
        time, as they were known last.
        """
        faults = tuple(shown_fault(fault.source, fault.text, fault.since_wall_s) for fault in frame.faults)
        if not frame.answered:
            self.snapshot = msgspec.structs.replace(
                self.snapshot, faults=faults, queries=frame.queries, cost_s=frame.cost_s, answered=False
            )
            return
        for host in frame.hosts:
            if host.is_read:
                self._take(host, frame.wall_s, frame.turn_s)
            else:
                self._take_loads(host, frame.wall_s)
            yield
        for name in frame.merged_hosts:
            self._shown.pop(name, None)
            self._pipelines.pop(name, None)
        self._age_out({host.name for host in frame.hosts}, frame.wall_s)
        self.snapshot = FleetSnapshot(
            time=rfc3339(frame.wall_s),
            wall_s=frame.wall_s,
            interval_s=frame.interval_s,
            hosts=tuple(self._shown[name] for name in sorted(self._shown)),
            faults=faults,
            queries=frame.queries,
            cost_s=frame.cost_s,
            proposals=frame.proposals,
        )

    def take_before(self, frame: FleetFrame) -> Iterator[None]:
        """Take in a moment before the first one of its hosts, so that they have rates. Yields after each host."""
        for host in frame.hosts:
            if host.is_read:
                self._pipeline(host.name).take(host, frame.wall_s, self._interval_of(host, frame.turn_s))
                yield

    def lacks(self, host: str) -> bool:
        """Whether no page of this host was taken in so far."""
        return host not in self._pipelines

    def mark_late(self, why: Fault) -> None:
        """Blank everything that ages: the newest answer is older than 3 intervals.

        `why` is added to the faults, unless the answer already failed.
        """
        fleet = self.snapshot
        faults = fleet.faults
        if fleet.answered:
            faults = (shown_fault(why.source, why.text, why.since_wall_s), *faults)
        self.snapshot = msgspec.structs.replace(
            fleet,
            hosts=tuple(_late(host) for host in fleet.hosts),
            faults=faults,
            answered=False,
            late=True,
        )

    def _pipeline(self, host: str) -> HostPipeline:
        """The pipeline that derives the figures of a host; a new one for a host that has none."""
        if host not in self._pipelines:
            self._pipelines[host] = HostPipeline(self._make_deriver, charted=False)
        return self._pipelines[host]

    def _interval_of(self, host: HostFrame, turn_s: float) -> float:
        """Seconds between two frames of a host."""
        return max(host.interval_s, self.interval_s, turn_s)

    def _take(self, host: HostFrame, wall_s: float, turn_s: float) -> None:
        """Derive one host from its frame, and show it."""
        pipeline = self._pipeline(host.name)
        self._show(host, wall_s, pipeline, pipeline.take(host, wall_s, self._interval_of(host, turn_s)))

    def _take_loads(self, host: HostFrame, wall_s: float) -> None:
        """Show a host whose pages were not read: as it was read last, with its loads of now."""
        shown = self._shown.get(host.name)
        if shown is None or host.name not in self._pipelines:
            first_look = HostPipeline(self._make_deriver, charted=False, judged=False)
            self._show(host, wall_s, first_look, first_look.take(host, wall_s, self._interval_of(host, 0.0)))
        else:
            snapshot = with_loads(shown.snapshot, host)
            self._shown[host.name] = msgspec.structs.replace(
                shown, snapshot=snapshot, seen_wall_s=wall_s, taken_out=host.taken_out
            )

    def _show(self, host: HostFrame, wall_s: float, pipeline: HostPipeline, moment: HostMoment) -> None:
        """Show a host at a moment."""
        own_gpumon = host.exported_snapshot is not None
        latencies: dict[str, Latencies] = {} if own_gpumon else _latencies(pipeline, moment.snapshot)
        self._shown[host.name] = HostShown(
            name=host.name,
            labels=host.labels,
            snapshot=moment.snapshot,
            state=moment.state,
            seen_wall_s=wall_s,
            exporters_down=host.exporters_down,
            worker_gpus=host.worker_gpus,
            own_gpumon=own_gpumon,
            latencies=latencies,
            owners=host.owners,
            taken_out=host.taken_out,
            gpumon_version=host.gpumon_version,
        )

    def _age_out(self, names: set[str], wall_s: float) -> None:
        """Show the hosts that are not among the `names` of a frame as gone, and forget them after a while."""
        for name, shown in list(self._shown.items()):
            if name in names:
                continue
            self._pipelines.pop(name, None)
            if not 0.0 <= wall_s - shown.seen_wall_s <= GONE_HOST_S:  # the clock may go back
                del self._shown[name]
            elif shown.state is not HostState.GONE:
                self._shown[name] = msgspec.structs.replace(shown, state=HostState.GONE, latencies={})


def _late(host: HostShown) -> HostShown:
    """A host after 3 intervals without any answer: stale, without figures."""
    state = HostState.STALE if host.state in (HostState.OK, HostState.PARTIAL) else host.state
    return msgspec.structs.replace(host, snapshot=without_figures(host.snapshot, _STALE), state=state, latencies={})


def _latencies(pipeline: HostPipeline, snapshot: Snapshot) -> dict[str, Latencies]:
    """TTFT and ITL histograms of each engine, by its key, to be merged over hosts."""
    latencies = {}
    for engine in snapshot.engines:
        ttft = pipeline.deriver.window_histogram(engine.key, TTFT)
        itl = pipeline.deriver.window_histogram(engine.key, ITL)
        if ttft is not None or itl is not None:
            latencies[engine.key] = Latencies(ttft, itl)
    return latencies
