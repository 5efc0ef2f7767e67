"""Frames in, snapshots out: the same frames give the same snapshots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from gpumon.efficiency.backends import with_polled_backends
from gpumon.efficiency.checks import Contradictions, Member
from gpumon.efficiency.costs import CostLedger, host_costs, summed_costs
from gpumon.efficiency.engine import EngineView, engine_without_figures, known_engine
from gpumon.efficiency.faults import engine_faults, gpu_faults, is_free, may_be_anywhere, source_code
from gpumon.efficiency.gpu import MOST_WINDOW_S, GpuTrack, derive_gpu, without_old
from gpumon.efficiency.peaks import Peak, Peaks
from gpumon.efficiency.plausible import NOTHING_WRONG, plausible
from gpumon.efficiency.points import SumsOfThings, chart_points
from gpumon.efficiency.rates import has_gpus_elsewhere
from gpumon.efficiency.ratio import plus
from gpumon.efficiency.replicas import ReplicaGroups
from gpumon.efficiency.tracks import RATE_S, window_for
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import (
    EndpointState,
    EngineReading,
    Fault,
    Frame,
    GpuReading,
    HistogramReading,
    HostReading,
)
from gpumon.readings.goals import Goals
from gpumon.readings.missing import REMOTE_POWER, Missing, Reading, Reason
from gpumon.readings.prices import FREE, Prices
from gpumon.readings.snapshot import BandwidthSource, Engine, FaultShown, Gpu, Replicas, Self, Snapshot
from gpumon.readings.text import MOST_FAULT, clean
from gpumon.readings.verdict import Evidence
from gpumon.specs.gpus import GpuCatalogue

SEVERAL_SERVERS = "several servers answer at this URL in turn (a load balancer?): poll each by its own URL"
_MOST_GPU_TRACKS: Final = 64
"""Tracks of GPUs that are kept at least. A GPU that is not in a frame mostly comes back (its driver did not answer),
and its energy goes on from its track; MIG slices are made with new UUIDs again and again, so that there is a limit."""

ValueT = TypeVar("ValueT")


class Derived(NamedTuple):
    """A snapshot, this tick's points for the charts (NaN is a gap), and what the frame says that can be true."""

    snapshot: Snapshot
    points: dict[str, float]
    frame: Frame
    """Verdicts are made of it, not of the frame as it came."""


class Deriver:
    """Holds the counters' last values and bounded windows; knows no clock and does no I/O.

    Charted sums are a gap for 30 s after a GPU or engine in them was lost, went stale or unreachable, and then go on
    without it (`points.SumsOfThings`): the step to a smaller sum never stands beside the readings as if it were less
    load, and what is lost for good does not blank the chart for good.
    """

    def __init__(
        self,
        catalogue: GpuCatalogue,
        goals: Goals = Goals(),  # noqa: B008 - immutable
        prices: Prices = FREE,
    ) -> None:
        self._peaks = Peaks(catalogue)
        self._ledger = CostLedger(prices)
        self._goals = goals
        self._engines: dict[str, EngineView] = {}
        self._gpus: dict[str, GpuTrack] = {}
        self._chart_sums = SumsOfThings()
        """Sums of the charted series, which remember the parts that have fallen silent."""
        self._fault_since: dict[tuple[str, str], float] = {}
        """(UUID of a GPU or `EngineReading.key`, cause of a fault) -> Unix time since when it is there."""
        self._states: dict[str, tuple[EndpointState, str]] = {}
        """`EngineReading.key` -> the engine's state, and since when (RFC 3339)."""
        self._wrong: dict[str, str] = {}
        """`EngineReading.key` -> what is wrong with the figures of an engine that answers."""
        self._wrong_gauges: Mapping[str, Mapping[str, Missing]] = {}
        """`EngineReading.key` -> gauge of the newest frame -> why it is no reading."""
        self._groups = ReplicaGroups()
        self._contradictions = Contradictions()

    def derive(self, frame: Frame, *, charted: bool = True, engines_known: bool = True) -> Derived:
        """The snapshot of one frame. Frames come in the order of their `monotonic_s`. Without `charted` no points.

        `engines_known` is False while engines are still being looked for: a GPU without one may have one.
        """
        vetted, self._wrong_gauges = plausible(frame)
        frame = without_old(vetted)
        self._forget(frame)
        self._wrong = {key: _told_of_gauges(wrong) for key, wrong in self._wrong_gauges.items()}
        tracked_gpus = self._track_gpus(frame)
        sharers = Counter(uuid for reading in frame.engines for uuid in reading.gpus)
        members, decode_rates = self._derive_engines(frame, tracked_gpus, sharers)
        replicas, deviations = self._groups.group(members, frame.monotonic_s)
        engines = with_polled_backends(_with_deviations(members, deviations))
        gpus = self._derive_gpus(frame, tracked_gpus, engines, engines_known=engines_known)
        engines = self._charge_engines(frame, engines, gpus, sharers)
        snapshot = msgspec.structs.replace(
            snapshot_without_things(frame),
            gpus=gpus,
            engines=self._with_contradictions(frame, engines, gpus),
            costs=host_costs(gpus, engines),
            faults=self._faults(frame),
            replicas=_with_summed_costs(replicas, members, engines),
        )
        if not charted:
            return Derived(snapshot, {}, vetted)
        bandwidths = [_bandwidth_now(reading, gpu) for reading, gpu in zip(frame.gpus, gpus, strict=True)]
        points = chart_points(
            gpus, engines, decode_rates, bandwidths, snapshot.host, self._chart_sums, frame.monotonic_s
        )
        return Derived(snapshot, points, vetted)

    def _track_gpus(self, frame: Frame) -> dict[str, _TrackedGpu]:
        """Take in the readings of all GPUs. Returns their tracks and peaks by UUID."""
        window_s = _gpu_window_s(frame)
        tracked_gpus = {}
        for reading in frame.gpus:
            track = self._gpus.setdefault(reading.uuid, GpuTrack())
            track.take(reading, frame, window_s)
            tracked_gpus[reading.uuid] = _TrackedGpu(track, self._peaks.of_gpu(reading))
        return tracked_gpus

    def window_histogram(self, key: str, quantity: str) -> HistogramReading | None:
        """An engine's (`Engine.key`) observations in the window of its quantiles; None where it has none, or no window.

        With those of other engines they give the quantiles over all their requests (`quantiles.merge_common`).
        """
        view = self._engines.get(key)
        if view is None:
            return None
        return view.track.long.histogram(quantity)

    def _derive_engines(
        self, frame: Frame, tracked_gpus: Mapping[str, _TrackedGpu], sharers: Mapping[str, int]
    ) -> tuple[list[Member], list[Reading]]:
        """The engines, and their decode rates of this tick; `sharers` has the number of engines on each GPU."""
        members: list[Member] = []
        decode_rates: list[Reading] = []
        for reading in frame.engines:
            own_gpus = [tracked_gpus[uuid] for uuid in reading.gpus if uuid in tracked_gpus]
            shares_gpu = any(sharers[uuid] > 1 for uuid in reading.gpus)
            member, decode_rate = self._derive_engine(reading, frame, own_gpus, shares_gpu=shares_gpu)
            members.append(member)
            decode_rates.append(decode_rate)
        return members, decode_rates

    def _derive_engine(
        self, reading: EngineReading, frame: Frame, gpus: Sequence[_TrackedGpu], *, shares_gpu: bool
    ) -> tuple[Member, Reading]:
        """One engine on these GPUs of the host, and its decode rate of this tick; `shares_gpu`: another engine is on
        one of them."""
        view = self._engines.get(reading.key)
        if view is None:
            view = EngineView(self._goals)
            self._engines[reading.key] = view
        track = view.track
        track.wrong_gauges = self._wrong_gauges.get(reading.key, NOTHING_WRONG)
        polled_wall_s = frame.wall_s - (frame.monotonic_s - reading.monotonic_s)
        track.add(reading, polled_wall_s, frame.interval_s)
        view.backends.add(reading, polled_wall_s, frame.interval_s)
        indices = tuple(sorted({gpu.track.reading.index for gpu in gpus}))
        elsewhere = has_gpus_elsewhere(reading, len(gpus))
        if elsewhere:
            power_w: Reading = REMOTE_POWER
            peaks = self._peaks.of_remote(reading)
        else:
            power_w = _power_w(gpus)
            peaks = [gpu.peak for gpu in gpus]
        since = self._state_since(reading, frame.wall_s)
        try:
            engine, rates = view.derive(
                reading,
                now_s=frame.monotonic_s,
                peaks=peaks,
                indices=indices,
                power_w=power_w,
                shares_gpu=shares_gpu,
                since=since,
            )
        except (ValueError, ArithmeticError) as error:
            # What an engine exports is anybody's text: absurd counters cost its own row.
            known = known_engine(reading, track, indices, since)
            age_s = max(0.0, frame.monotonic_s - reading.monotonic_s)
            engine = msgspec.structs.replace(engine_without_figures(known, Missing(Reason.INVALID)), age_s=age_s)
            rates = None
            self._wrong[reading.key] = f"its figures make no sense: {error}"
        if track.several_servers:
            self._wrong.setdefault(reading.key, SEVERAL_SERVERS)
        answers = rates is not None and not engine.asleep
        decode_rate = rates.newest_decode if rates is not None else engine.rates.decode_tokens_per_s
        return Member(reading, engine, track, answers), decode_rate

    def _derive_gpus(
        self,
        frame: Frame,
        tracked_gpus: Mapping[str, _TrackedGpu],
        engines: Sequence[Engine],
        *,
        engines_known: bool,
    ) -> tuple[Gpu, ...]:
        """The GPUs of a frame, each with the figures of the engines on it and with its costs, of which it begins a
        tick."""
        self._ledger.begin(frame)
        any_unmapped = any(may_be_anywhere(engine) for engine in frame.engines)
        engines_on: dict[str, list[Engine]] = {}
        readings_on: dict[str, list[EngineReading]] = {}
        for reading, engine in zip(frame.engines, engines, strict=True):
            for uuid in reading.gpus:
                engines_on.setdefault(uuid, []).append(engine)
                readings_on.setdefault(uuid, []).append(reading)
        gpus = []
        for gpu_reading in frame.gpus:
            if not engines_known:
                reason = Reason.WARMING_UP
            elif any_unmapped and not is_free(gpu_reading):
                reason = Reason.UNMAPPED
            else:
                reason = Reason.NO_ENGINE
            why_no_engine = Missing(reason)
            uuid = gpu_reading.uuid
            tracked = tracked_gpus[uuid]
            own_engines = engines_on.get(uuid, ())
            own_readings = readings_on.get(uuid, ())
            gpu = derive_gpu(tracked.track, tracked.peak, own_engines, own_readings, why_no_engine)
            gpus.append(self._ledger.charge_gpu(gpu, tracked.track, own_engines, why_no_engine))
        return tuple(gpus)

    def _charge_engines(
        self, frame: Frame, engines: Sequence[Engine], gpus: Sequence[Gpu], sharers: Mapping[str, int]
    ) -> list[Engine]:
        """The engines with the costs of their GPUs; `gpus` are those of the frame, in its order."""
        gpu_by_uuid = _by_uuid(frame, gpus)
        priced = []
        for reading, engine in zip(frame.engines, engines, strict=True):
            own_gpus = [gpu_by_uuid[uuid] for uuid in reading.gpus if uuid in gpu_by_uuid]
            most_sharers = max((sharers[uuid] for uuid in reading.gpus), default=0)
            priced.append(self._ledger.charge_engine(reading, engine, own_gpus, most_sharers))
        return priced

    def _with_contradictions(self, frame: Frame, engines: Sequence[Engine], gpus: Sequence[Gpu]) -> tuple[Engine, ...]:
        """The engines, each with what its GPUs contradict. An exporter's figures are means of its own interval."""
        gpu_by_uuid = _by_uuid(frame, gpus)
        placed = [
            (reading.key, engine, [gpu_by_uuid[uuid] for uuid in reading.gpus])
            for reading, engine in zip(frame.engines, engines, strict=True)
            if reading.gpus and gpu_by_uuid.keys() >= set(reading.gpus)
        ]
        window_s = max(_gpu_window_s(frame), *(gpu.activity_interval_s for gpu in frame.gpus), 0.0)
        contradictions = self._contradictions.find(frame.monotonic_s, placed, window_s)
        marked = []
        for reading, engine in zip(frame.engines, engines, strict=True):
            if reading.key in contradictions:
                engine = msgspec.structs.replace(engine, contradicts=contradictions[reading.key])
            marked.append(engine)
        return tuple(marked)

    def _forget(self, frame: Frame) -> None:
        """Drop what belongs to engines and GPUs that are gone, so that memory stays flat."""
        keys = {reading.key for reading in frame.engines}
        self._engines = _with_keys(self._engines, keys)
        self._states = _with_keys(self._states, keys)
        if len(self._gpus) > max(_MOST_GPU_TRACKS, 4 * len(frame.gpus)):
            self._gpus = _with_keys(self._gpus, {reading.uuid for reading in frame.gpus})

    def _state_since(self, reading: EngineReading, wall_s: float) -> str:
        """Time (RFC 3339) since which the engine is in this state; notes a change."""
        if reading.departure is not None:
            return rfc3339(reading.departure.wall_s)
        state, since = self._states.get(reading.key, (None, ""))
        if state is not reading.state:
            since = rfc3339(wall_s)
            self._states[reading.key] = (reading.state, since)
        return since

    def _faults(self, frame: Frame) -> tuple[FaultShown, ...]:
        """The sources' own faults, then those of the GPUs and engines; each dated from when its cause began."""
        faults = [
            _ThingFault(gpu.uuid, source=f"gpu {gpu.index}", cause=cause, text=text)
            for gpu in frame.gpus
            for cause, text in gpu_faults(gpu)
        ]
        for engine in frame.engines:
            for cause, text in engine_faults(engine, self._wrong.get(engine.key, ""), bool(frame.gpus)):
                faults.append(_ThingFault(engine.key, source=engine.name, cause=cause, text=text))
        fault_since = {}
        dated = []
        for fault in faults:
            identity = (fault.key, fault.cause)
            fault_since[identity] = self._fault_since.get(identity, frame.wall_s)
            dated.append(shown_fault(fault.source, fault.text, fault_since[identity], fault.cause))
        self._fault_since = fault_since
        return (*_shown_faults(frame.faults), *dated)


class _ThingFault(NamedTuple):
    """A fault of a GPU or an engine."""

    key: str
    """UUID of the GPU, or `EngineReading.key`."""
    source: str
    """Its name."""
    cause: str
    text: str


def _told_of_gauges(wrong: Mapping[str, Missing]) -> str:
    """A line on gauges of an engine that cannot be."""
    told = [f"{name}: {why.detail}" for name, why in sorted(wrong.items())]
    return "; ".join(told)


def _with_keys(entries: Mapping[str, ValueT], keys: Container[str]) -> dict[str, ValueT]:
    """The entries of these keys alone."""
    return {key: value for key, value in entries.items() if key in keys}


def _by_uuid(frame: Frame, gpus: Sequence[Gpu]) -> dict[str, Gpu]:
    """The GPUs of a frame by the UUID of their reading: `Gpu.uuid` is made safe to print, and may differ from it."""
    return {reading.uuid: gpu for reading, gpu in zip(frame.gpus, gpus, strict=True)}


def _with_deviations(members: Sequence[Member], deviations: Mapping[str, tuple[Evidence, ...]]) -> list[Engine]:
    """The engines, each with how it deviates from its replicas; `deviations` are by `EngineReading.key`."""
    engines = []
    for member in members:
        engine = member.engine
        if member.reading.key in deviations:
            engine = msgspec.structs.replace(engine, deviates=deviations[member.reading.key])
        engines.append(engine)
    return engines


class _TrackedGpu(NamedTuple):
    """A GPU of a frame: its past, and its peaks."""

    track: GpuTrack
    peak: Peak


def _power_w(gpus: Sequence[_TrackedGpu]) -> Reading:
    """Mean power of an engine's GPUs together, in W."""
    if not gpus:
        return Missing(Reason.NO_GPU)
    return plus(*(gpu.track.mean_power_w for gpu in gpus))


def _bandwidth_now(reading: GpuReading, gpu: Gpu) -> Reading:
    """Bandwidth of a GPU at this tick (bytes/s) where it is measured, else the mean that is shown."""
    active = reading.dram_active_ratio
    peak = gpu.bandwidth_peak_bytes_per_s
    measured = gpu.bandwidth_source is BandwidthSource.GPM
    if not measured or isinstance(active, Missing) or isinstance(peak, Missing):
        return gpu.bandwidth_bytes_per_s
    return active * peak


def _gpu_window_s(frame: Frame) -> float:
    """Window of the GPUs' means: that of the engines' rates, of seldom polled engines at most `MOST_WINDOW_S`."""
    engines_s = max((reading.interval_s for reading in frame.engines), default=0.0)
    return max(window_for(RATE_S, frame.interval_s), min(window_for(RATE_S, engines_s), MOST_WINDOW_S))


def snapshot_without_things(frame: Frame, *faults: Fault) -> Snapshot:
    """A snapshot of the host and the faults only; `faults` come beside those of the frame."""
    return Snapshot(
        time=rfc3339(frame.wall_s),
        wall_s=frame.wall_s,
        simulated=frame.simulated,
        interval_s=frame.interval_s,
        host=_host(frame.host),
        self_cost=Self(frame.host.self_cpu_ratio, frame.host.self_pss_bytes),
        faults=_shown_faults((*frame.faults, *faults)),
    )


def _shown_faults(faults: Iterable[Fault]) -> tuple[FaultShown, ...]:
    """Faults of the sources, safe to print."""
    return tuple(shown_fault(fault.source, fault.text, fault.since_wall_s, source_code(fault.text)) for fault in faults)


def shown_fault(source: str, text: str, since_wall_s: float, code: str = "") -> FaultShown:
    """A fault, safe to print."""
    return FaultShown(clean(source), clean(text, MOST_FAULT), rfc3339(since_wall_s), code)


def _host(host: HostReading) -> HostReading:
    """The host as it was read, with its texts safe to print and without what only triage reads."""
    return msgspec.structs.replace(
        host,
        name=clean(host.name, 64),
        driver=clean(host.driver, 32),
        cuda=clean(host.cuda, 32),
        consumers=(),
        unseen_gpus=(),
    )


def _with_summed_costs(
    groups: Sequence[Replicas], members: Sequence[Member], engines: Sequence[Engine]
) -> tuple[Replicas, ...]:
    """The replicas of each model with the costs of those that answer."""
    answering = {engine.name: engine for member, engine in zip(members, engines, strict=True) if member.answers}
    priced = []
    for group in groups:
        costs = summed_costs([answering[name] for name in group.engines if name in answering])
        priced.append(msgspec.structs.replace(group, costs=costs))
    return tuple(priced)
