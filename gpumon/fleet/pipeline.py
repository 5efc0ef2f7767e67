"""One host of a fleet from moment to moment: its readings to snapshots, verdicts and points for charts."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.deriver import Derived, shown_fault, snapshot_without_things
from gpumon.efficiency.points import SumsOfThings, chart_points
from gpumon.efficiency.tracks import GAP_INTERVALS
from gpumon.fleet.blank import without_figures
from gpumon.fleet.snapshot import HostState
from gpumon.readings.fleet import HostFrame
from gpumon.readings.frame import EndpointState, Fault, Frame, GpuState, HostReading
from gpumon.readings.merge import with_unique_names
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, FaultShown, Snapshot
from gpumon.readings.text import clean
from gpumon.triage.fresh import MakeDeriver

_STALE: Final = Missing(Reason.STALE)


class HostMoment(NamedTuple):
    """Snapshot, chart points and state of a host at one moment."""

    snapshot: Snapshot
    points: dict[str, float]
    """For the charts; NaN is a gap."""
    state: HostState


class HostPipeline:
    """Takes the frames of one host in their order. Knows no clock: all times are the frames' Unix times."""

    def __init__(self, make_deriver: MakeDeriver, *, charted: bool = True, judged: bool = True) -> None:
        """`charted`: whether there are points for charts, which cost as much as a tenth of a moment. `judged`: whether
        there are verdicts; moments that are far apart give none."""
        self._make_deriver = make_deriver
        self._charted = charted
        self._judged = judged
        self.deriver, self._triage = make_deriver()
        self._totals = SumsOfThings()
        self._seq = 0
        self._last_s = float("-inf")
        """Unix time of the last frame."""

    def take(self, host: HostFrame, wall_s: float, interval_s: float) -> HostMoment:
        """Derive the host at `wall_s`. Frames come every `interval_s`, which is not shorter than its scrape interval.

        A frame of before the last one (a clock was set back) begins anew. A failure costs this host's figures alone.
        """
        if wall_s < self._last_s:
            self.deriver, self._triage = self._make_deriver()
            self._totals = SumsOfThings()
        self._last_s = wall_s
        frame = self._frame(host, wall_s, interval_s)
        try:
            if host.exported_snapshot is None:
                derived = self.deriver.derive(frame, charted=self._charted)
                snapshot = self._judge(derived)
                state = HostState.STARTING if host.is_starting else state_of(snapshot, host.exporters_down)
                return HostMoment(snapshot, derived.points, state)
            exported = host.exported_snapshot
            if host.engines:
                exported = self._with_engines(exported, frame)
            return self._exported_moment(host, exported, wall_s, interval_s)
        except Exception as error:  # what one host's series lead to costs its own row
            self.deriver, self._triage = self._make_deriver()
            text = f"gpumon failed on these series, please report: {clean(f'{type(error).__name__}: {error}', 200)}"
            return HostMoment(snapshot_without_things(frame, Fault("gpumon", text, wall_s)), {}, HostState.OK)

    def _frame(self, host: HostFrame, wall_s: float, interval_s: float) -> Frame:
        """The series of a host as a frame of one machine."""
        self._seq += 1
        return Frame(
            seq=self._seq,
            wall_s=wall_s,
            monotonic_s=wall_s,
            interval_s=interval_s,
            host=HostReading(name=host.name),
            gpus=host.gpus,
            engines=with_unique_names(host.engines),
            faults=host.faults,
        )

    def _judge(self, derived: Derived) -> Snapshot:
        """The snapshot with its verdicts, if there are to be any."""
        if self._judged:
            return self._triage.judge(derived.frame, derived.snapshot)
        return derived.snapshot

    def _with_engines(self, exported: Snapshot, frame: Frame) -> Snapshot:
        """The snapshot of the host's own gpumon, with the engines that it lacks and their verdicts."""
        beside = self._judge(self.deriver.derive(frame, charted=False))
        keys = {engine.key for engine in beside.engines}
        verdicts = tuple(verdict for verdict in beside.verdicts if verdict.key in keys)
        return msgspec.structs.replace(
            exported,
            engines=(*exported.engines, *beside.engines),
            verdicts=(*exported.verdicts, *verdicts),
            events=(*exported.events, *beside.events),
        )

    def _exported_moment(self, host: HostFrame, exported: Snapshot, wall_s: float, interval_s: float) -> HostMoment:
        """The moment as the host's own gpumon worked it out; without figures once it is older than 3 of its own
        scrapes, which may be fewer than those of the host's other targets."""
        shown = exported
        if host.faults:
            faults = list(exported.faults)
            for fault in host.faults:
                faults.append(shown_fault(fault.source, fault.text, fault.since_wall_s))
            shown = msgspec.structs.replace(exported, faults=tuple(faults))
        if wall_s - exported.wall_s > GAP_INTERVALS * max(exported.interval_s, interval_s):
            if not host.is_starting:
                text = f"no new figures since {exported.time}: is its gpumon still running?"
                stale = FaultShown("gpumon", text, exported.time)
                shown = msgspec.structs.replace(shown, faults=(*shown.faults, stale))
            shown = without_figures(shown, _STALE)
            return HostMoment(shown, {}, HostState.STARTING if host.is_starting else HostState.STALE)
        state = state_of(shown, host.exporters_down)
        if state is HostState.UNREACHABLE:  # its gpumon answers, whatever that cannot reach
            state = HostState.OK
        return HostMoment(shown, self._points(shown), state)

    def _points(self, snapshot: Snapshot) -> dict[str, float]:
        """Points for the charts from the figures of the host's own gpumon."""
        if not self._charted:
            return {}
        decode_rates = [engine.rates.decode_tokens_per_s for engine in snapshot.engines]
        bandwidths = [gpu.bandwidth_bytes_per_s for gpu in snapshot.gpus]
        return chart_points(
            snapshot.gpus, snapshot.engines, decode_rates, bandwidths, snapshot.host, self._totals, snapshot.wall_s
        )


def state_of(snapshot: Snapshot, exporters_down: int = 0) -> HostState:
    """The state of a host that is in the frame.

    A silent engine makes no host partial: its own row says so.
    """
    gpus_answer = any(gpu.reading.state is not GpuState.STALE for gpu in snapshot.gpus)
    if not gpus_answer and not any(_is_fresh(engine) for engine in snapshot.engines):
        return _silent_state(snapshot)
    if exporters_down or (snapshot.gpus and not gpus_answer):
        return HostState.PARTIAL
    return HostState.OK


def _silent_state(snapshot: Snapshot) -> HostState:
    """The state of a host of which no GPU and no engine has new figures."""
    if snapshot.gpus or any(engine.state is EndpointState.OK for engine in snapshot.engines):
        return HostState.STALE
    if any(engine.state is EndpointState.STARTING for engine in snapshot.engines):
        return HostState.STARTING
    if snapshot.engines or snapshot.faults:
        return HostState.UNREACHABLE
    return HostState.OK


def _is_fresh(engine: Engine) -> bool:
    """Whether an engine answered within its windows: a stale one has no gauge."""
    running = engine.load.running
    stale = isinstance(running, Missing) and running.reason is Reason.STALE
    return engine.state is EndpointState.OK and not stale
