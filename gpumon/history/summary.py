"""A part of a past summed up: means from the charts' points, totals from the counters, incidents from the events."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.costs import MILLION, cost_of, energy_cost_of
from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.ratio import minus, plus, times
from gpumon.efficiency.service import engines_in_sums
from gpumon.efficiency.sums import (
    TOKEN_FIELDS,
    CounterGrowth,
    GoodputCount,
    GoodputSum,
    TimeMean,
    UnusedTime,
    all_tokens,
    quotient,
    sum_of_all,
    sum_of_known,
)
from gpumon.efficiency.tracks import START_TOLERANCE_S
from gpumon.history.frame_store import FrameStore, Points
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import EndpointState, EngineReading, Frame
from gpumon.readings.goals import Goals
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.period import EnginePeriod, GpuPeriod, Incident, Period
from gpumon.readings.prices import NO_PRICE, Prices, price_of_hour
from gpumon.readings.snapshot import Engine, Event, EventKind, Gpu, Limit, Snapshot
from gpumon.readings.text import clean
from gpumon.specs.gpus import GpuCatalogue
from gpumon.triage.marks import URGENCY, URGENT
from gpumon.triage.render import event_text

SAMPLE_S: Final = 60.0
"""Seconds between two frames that counters are read from: what they counted in between is in the next one."""
GAP_S: Final = 10.0
"""A longer time without points is a gap."""
_CHUNK_S: Final = 3600.0
"""Seconds of points that are read at a time."""
_LONGEST_S: Final = 60.0
"""Most seconds that one record of points stands for."""
_MEANS: Final = {
    "running_mean": "running",
    "waiting_mean": "waiting",
    "kv_usage_ratio": "kv",
    "mfu_ratio": "mfu",
    "mbu_ratio": "mbu",
}
"""Fields of `EnginePeriod` and the series `NAME@KEY` that they are the means of."""
MOST_LISTED_INCIDENTS: Final = 200
_QUIET: Final = frozenset({EventKind.REPLICAS})
"""Kinds that are no incidents: other events beside them tell the same."""
_EXPLAINED_BY_VERDICT: Final = frozenset({EventKind.GPU, EventKind.THROTTLE})
"""Kinds that say no more than the verdict of the same GPU that they lead to."""
_LEAD_S: Final = 60.0
"""Longest time from such an event to the verdict that it leads to."""


class _Means(NamedTuple):
    """Figures of the points: mean of each series, seconds covered, gaps."""

    means: Mapping[str, TimeMean]
    covered_s: float
    gaps: tuple[tuple[float, float], ...]
    """Unix times from which to which nothing is recorded."""

    def mean(self, series: str, otherwise: Missing = NOT_EXPOSED) -> Reading:
        """Mean of a series; `otherwise` where it has no points."""
        if series in self.means:
            return self.means[series].reading(otherwise)
        return otherwise

    def known_s(self, series: str) -> float:
        """Seconds that the mean of a series is made of."""
        if series in self.means:
            return min(self.means[series].seconds, self.covered_s)
        return 0.0


class _Sample(NamedTuple):
    """A frame that counters are read from."""

    frame: Frame
    follows_gap: bool
    """Time before it is not recorded: what was counted there is left out."""


class _SilentTime:
    """Time of an engine after its last answer and before its end: what it counted then is not known."""

    def __init__(self) -> None:
        self._total_s = 0.0
        """Silent seconds of the processes before that of the last answer."""
        self._last: EngineReading | None = None
        """Last answer."""
        self._last_s = 0.0
        """Unix time of the last answer."""
        self._end_s: float | None = None
        """Unix time at which the process of the last answer ended, where that is known."""

    def begin_anew(self) -> None:
        """Take the next answer as the first one."""
        self._last = None

    def add(self, reading: EngineReading, wall_s: float) -> None:
        """Take in a reading."""
        if reading.state is EndpointState.OK:
            if self._last is not None and _has_restarted(self._last, reading):
                self._total_s += self._silent_s(min(wall_s, max(self._last_s, reading.started_wall_s or wall_s)))
            self._last = reading
            self._last_s = wall_s
            self._end_s = None
        elif reading.departure is not None:
            self._end_s = reading.departure.wall_s

    def seconds(self, to_s: float) -> float:
        """All silent seconds up to a Unix time.

        Silence before an answer of the same process does not count: its counters went on.
        """
        return self._total_s + self._silent_s(to_s)

    def _silent_s(self, to_s: float) -> float:
        """Seconds from the last answer to the end of the process, or to `to_s`; 0 if no poll is missing there."""
        if self._last is None:
            return 0.0
        if self._end_s is not None:
            to_s = min(to_s, self._end_s)
        seconds = to_s - self._last_s
        if seconds > GAP_S:
            return seconds
        return 0.0


class _Counts:
    """Figures of the sampled frames: the things there were, for how long, and the growth of their counters."""

    def __init__(self, prices: Prices, goals: Goals) -> None:
        self.prices = prices
        self.goals = goals
        self.gpus: dict[str, Gpu] = {}
        """By UUID, as they were last."""
        self.seconds: dict[str, float] = {}
        """UUID -> recorded time in which the GPU was there."""
        self.engines: dict[str, Engine] = {}
        """By key, as they were last."""
        self.joules: dict[str, CounterGrowth] = {}
        self.energy_costs: dict[str, Reading] = {}
        self.unused: dict[str, UnusedTime] = {}
        self.tokens: dict[tuple[str, str], CounterGrowth] = {}
        """Key of an engine and field of `TOKEN_FIELDS` -> its tokens."""
        self.silent_times: dict[str, _SilentTime] = {}
        """By key of the engine."""
        self.goodput_counts: dict[str, GoodputCount] = {}
        self.goodput_sums: dict[str, GoodputSum] = {}
        self.host = ""
        self.simulated = False

    def begin_anew(self) -> None:
        """Take the next values of the counters as a base line."""
        for counter in (*self.joules.values(), *self.tokens.values()):
            counter.last = None
        for unused in self.unused.values():
            unused.begin_anew()
        for silent_time in self.silent_times.values():
            silent_time.begin_anew()
        for goodput in self.goodput_counts.values():
            goodput.begin_anew()

    def add(self, frame: Frame, gpus: Sequence[Gpu], engines: Sequence[Engine], seconds: float) -> None:
        """Add a frame with the figures of its GPUs and engines; `seconds`: recorded time since the frame before."""
        self.host = clean(frame.host.name, 64)
        self.simulated = self.simulated or frame.simulated
        per_kwh = self.prices.per_kwh_at(frame.wall_s)
        readings = {reading.key: reading for reading in frame.engines}
        for raw, gpu in zip(frame.gpus, gpus, strict=True):
            self.gpus[gpu.uuid] = gpu
            if gpu.uuid in self.seconds:
                self.seconds[gpu.uuid] += seconds
            else:
                self.seconds[gpu.uuid] = 0.0
            joules = self.joules.setdefault(gpu.uuid, CounterGrowth()).add(raw.energy_j, seconds)
            energy_cost = self.energy_costs.get(gpu.uuid, 0.0)
            self.energy_costs[gpu.uuid] = plus(energy_cost, energy_cost_of(joules, per_kwh))
            own_engines = [engine for engine in engines if gpu.index in engine.hardware.gpus]
            self.unused.setdefault(gpu.uuid, UnusedTime()).add(gpu, own_engines, readings, seconds)
        for reading, engine in zip(frame.engines, engines, strict=True):
            self.engines[engine.key] = engine
            self.silent_times.setdefault(engine.key, _SilentTime()).add(reading, frame.wall_s)
            goodput = self.goodput_counts.setdefault(engine.key, GoodputCount(self.goals))
            self.goodput_sums.setdefault(engine.key, GoodputSum()).add_sum(goodput.take(reading))
            for field, total_field in TOKEN_FIELDS.items():
                # The deriver's totals begin at 0: an engine that started within the period counts from its first token.
                tokens = self.tokens.setdefault((engine.key, field), CounterGrowth(begins_at=0.0))
                total = getattr(engine.tokens_total, total_field)
                if not isinstance(total, Missing):
                    tokens.add(total, seconds)


def summary_of(
    past: FrameStore,
    catalogue: GpuCatalogue,
    prices: Prices,
    from_s: float,
    to_s: float,
    goals: Goals = Goals(),  # noqa: B008 - immutable
) -> Period:
    """The sums of a part of a past, both ends included (Unix time). Reads a disk."""
    means = _means(past, from_s, to_s)
    counts = _Counts(prices, goals)
    samples = _samples(past, from_s, to_s, means.gaps)
    for sample in _derive_samples(samples, lambda: Deriver(catalogue)):
        if sample.follows_gap:
            counts.begin_anew()
        counts.add(sample.frame, sample.snapshot.gpus, sample.snapshot.engines, sample.seconds)
    cards = [gpu for gpu in counts.gpus.values() if not gpu.parent_uuid]
    cards_by_index = Counter(gpu.index for gpu in cards)
    gpus = []
    for gpu in counts.gpus.values():
        # Where a card took the place of another, the series of their index are of both.
        shares_index = cards_by_index[gpu.index] > 1
        gpus.append(_gpu_period(gpu, counts, means, shares_index=shares_index))
    last_s = _last_at_or_before(past, to_s) or to_s
    engines = []
    for engine in counts.engines.values():
        period = _engine_period(engine, counts, means, gpus, to_s - from_s)
        uncounted_s = counts.silent_times[engine.key].seconds(last_s)
        engines.append(msgspec.structs.replace(period, uncounted_s=uncounted_s))
    worst, left_out = incidents(past.events(from_s, to_s), to_s)
    whole = Period(
        begin=rfc3339(from_s),
        end=rfc3339(to_s),
        seconds=to_s - from_s,
        covered_s=means.covered_s,
        gaps=len(means.gaps),
        host=counts.host,
        simulated=counts.simulated,
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
        engines=tuple(sorted(engines, key=lambda engine: engine.name)),
        busy_ratio=means.mean("busy", NOT_SUPPORTED),
        mfu_ratio=means.mean("mfu", NOT_SUPPORTED),
        mbu_ratio=means.mean("mbu", NOT_SUPPORTED),
        incidents=worst,
        incidents_left_out=left_out,
        busy_known_s=means.known_s("busy"),
        mfu_known_s=means.known_s("mfu"),
        mbu_known_s=means.known_s("mbu"),
    )
    uuids = {card.uuid for card in cards}
    return _with_sums(whole, engines_in_sums(counts.engines.values()), uuids, counts)


def _means(past: FrameStore, from_s: float, to_s: float) -> _Means:
    """The means of a part of a past, and how much of it is recorded."""
    means: dict[str, TimeMean] = {}
    gaps: list[tuple[float, float]] = []
    covered_s = 0.0
    last_s: float | None = None
    for points, seconds in _points_with_seconds(past, from_s, to_s):
        begin_s = points.wall_s - points.seconds
        if last_s is not None and begin_s - last_s > GAP_S:
            gaps.append((last_s, begin_s))
        elif last_s is not None and begin_s > last_s:
            # Ticks that came late are no gap: the next one stands for the time before it.
            seconds += begin_s - last_s
        last_s = points.wall_s
        covered_s += seconds
        for series, value in points.values.items():
            means.setdefault(series, TimeMean()).add(value, seconds)
    covered_s += _tail_s(past, from_s, to_s, last_s)
    return _Means(means, min(covered_s, to_s - from_s), tuple(gaps))


def _tail_s(past: FrameStore, from_s: float, to_s: float, last_s: float | None) -> float:
    """Seconds of frames behind the last points (None: there are none): the mean of those is not made yet."""
    begin_s = last_s
    if last_s is None:
        begin_s = _first_at_or_after(past, from_s)
    end_s = _last_at_or_before(past, to_s)
    if begin_s is None or end_s is None or not 0.0 < end_s - begin_s <= GAP_S:
        return 0.0
    return end_s - begin_s


def _first_at_or_after(past: FrameStore, wall_s: float) -> float | None:
    """When the first frame at a time or after it was taken."""
    return past.after(math.nextafter(wall_s, -math.inf))


def _last_at_or_before(past: FrameStore, wall_s: float) -> float | None:
    """When the last frame at a time or before it was taken."""
    return past.before(math.nextafter(wall_s, math.inf))


def _points_with_seconds(past: FrameStore, from_s: float, to_s: float) -> Iterator[tuple[Points, float]]:
    """Points, and for how many of their seconds they count: the first and the last may reach over the ends."""
    begin_s = from_s
    while begin_s < to_s:
        end_s = min(to_s, begin_s + _CHUNK_S)
        for points in past.points(begin_s, end_s + _LONGEST_S):
            inside_s = min(points.wall_s, to_s) - max(points.wall_s - points.seconds, from_s)
            # Each in one chunk; those that reach over the end in the last one.
            in_chunk = begin_s < points.wall_s and (points.wall_s <= end_s or end_s == to_s)
            if inside_s > 0.0 and in_chunk:
                yield points, inside_s
        # A clock that was set leaves years without a frame: they are not walked through.
        next_s = past.after(end_s)
        if next_s is None:
            begin_s = to_s
        else:
            begin_s = max(end_s, next_s - _LONGEST_S)


class DerivedSample(NamedTuple):
    """A frame of a recording that counters are read from, and the figures of that moment."""

    frame: Frame
    snapshot: Snapshot
    seconds: float
    """Recorded time since the frame before."""
    follows_gap: bool
    """The growth of counters since the frame before is not known."""


def derived_samples(
    past: FrameStore, deriver: Callable[[], Deriver], from_s: float, to_s: float
) -> Iterator[DerivedSample]:
    """A frame a minute with its figures, both ends included (Unix time); `deriver` makes a fresh one. Reads a disk."""
    return _derive_samples(_samples(past, from_s, to_s, _means(past, from_s, to_s).gaps), deriver)


def _derive_samples(samples: Iterable[_Sample], make: Callable[[], Deriver]) -> Iterator[DerivedSample]:
    """The figures of frames. Where the clock of the machine began anew (a reboot), so do all counters."""
    deriver = make()
    last: Frame | None = None
    for frame, follows_gap in samples:
        seconds = 0.0
        # Time that the wall clock went through twice, as it was set back: of the first time there are no frames.
        repeated_s = 0.0
        if last is not None:
            seconds = frame.monotonic_s - last.monotonic_s
            repeated_s = seconds - (frame.wall_s - last.wall_s)
        if seconds < 0.0:
            deriver = make()
        if seconds < 0.0 or repeated_s > GAP_S:
            follows_gap = True
        if follows_gap:
            seconds = 0.0
        last = frame
        snapshot = deriver.derive(msgspec.structs.replace(frame, interval_s=SAMPLE_S)).snapshot
        yield DerivedSample(frame, snapshot, seconds, follows_gap)


def _samples(past: FrameStore, from_s: float, to_s: float, gaps: Sequence[tuple[float, float]]) -> Iterator[_Sample]:
    """The first frame, one per minute from there on, and the last one; all of a minute with a gap, or in which an
    engine or a GPU came, went or began anew, as what was counted there is in none of the others."""
    last: Frame | None = None
    for minute_s in _minutes(past, from_s, to_s):
        frames = past.frames(minute_s, minute_s)
        if not frames:
            continue
        samples = [_Sample(frames[-1], follows_gap=False)]
        if last is not None and _has_changed(last, frames[-1], gaps):
            samples = _samples_between(past, last, minute_s)
        for sample in samples:
            last = sample.frame
            yield sample


def _has_changed(last: Frame, frame: Frame, gaps: Sequence[tuple[float, float]]) -> bool:
    """Whether an engine or a GPU came, went or began anew between two frames, or nothing was recorded for a while."""
    if any(begin_s < frame.wall_s and last.wall_s < end_s for begin_s, end_s in gaps):
        return True
    return _counting_things(frame) != _counting_things(last) or _any_restarted(last, frame)


def _samples_between(past: FrameStore, last: Frame, to_s: float) -> list[_Sample]:
    """All frames after the last one, up to a time."""
    samples = []
    since_s = last.wall_s
    for frame in past.frames(last.wall_s, to_s):
        if frame.seq != last.seq:
            samples.append(_Sample(frame, follows_gap=frame.wall_s - since_s > GAP_S + frame.interval_s))
            since_s = frame.wall_s
    return samples


def _minutes(past: FrameStore, from_s: float, to_s: float) -> Iterator[float]:
    """Times of the first frame of each minute, and of the first and the last of all."""
    frame_s = _first_at_or_after(past, from_s)
    last_s = _last_at_or_before(past, to_s)
    while frame_s is not None and last_s is not None and frame_s <= last_s:
        yield frame_s
        if frame_s == last_s:
            return
        # Blocks of a recording begin with a minute: their first frame is read without others.
        next_s = _first_at_or_after(past, (frame_s // SAMPLE_S + 1) * SAMPLE_S)
        if next_s is None or next_s > last_s:
            frame_s = last_s
        else:
            frame_s = next_s


def _counting_things(frame: Frame) -> frozenset[str]:
    """Keys of engines that answer, UUIDs of GPUs that count their energy.

    An engine that does not answer is in the frame with the counters of its last answer.
    """
    things = set()
    for reading in frame.engines:
        if reading.ranks and reading.state is EndpointState.OK:
            things.add(reading.key)
    for gpu in frame.gpus:
        if not isinstance(gpu.energy_j, Missing):
            things.add(gpu.uuid)
    return frozenset(things)


def _any_restarted(last: Frame, frame: Frame) -> bool:
    """Whether an engine is another process than in an earlier frame."""
    earlier = {reading.key: reading for reading in last.engines}
    return any(reading.key in earlier and _has_restarted(earlier[reading.key], reading) for reading in frame.engines)


def _has_restarted(before: EngineReading, now: EngineReading) -> bool:
    """Whether an engine's process started since, or a counter fell: not every engine tells when it started."""
    if abs(now.started_wall_s - before.started_wall_s) > START_TOLERANCE_S:
        return True
    counters_before = {rank.rank: rank.counters for rank in before.ranks}
    for rank in now.ranks:
        earlier = counters_before.get(rank.rank, {})
        if any(value < earlier.get(counter, value) for counter, value in rank.counters.items()):
            return True
    return False


def _gpu_period(gpu: Gpu, counts: _Counts, means: _Means, *, shares_index: bool) -> GpuPeriod:
    """The GPU's figures of the period; `shares_index`: another card had its index, so that no series is its own."""
    joules = counts.joules[gpu.uuid]
    slice_ = bool(gpu.parent_uuid)

    def mean(series: str) -> Reading:
        if slice_ or shares_index:
            return NOT_SUPPORTED
        return means.mean(f"{series}:{gpu.index}", NOT_SUPPORTED)

    busy = mean("busy")
    energy_j: Reading = NOT_SUPPORTED
    power_w = mean("power")
    energy_cost: Reading = NOT_SUPPORTED
    if joules.seconds:
        energy_j = joules.total
        if isinstance(power_w, Missing):
            power_w = joules.total / joules.seconds
        energy_cost = counts.energy_costs[gpu.uuid]
    # A price is that of a card: its slices have none of their own.
    cost: Reading = NO_PRICE
    unused_s: Reading = NOT_SUPPORTED
    unused_cost: Reading = NO_PRICE
    if not slice_:
        per_hour = price_of_hour(gpu.gpu_type, counts.prices.per_gpu_hour)
        unused_s = counts.unused[gpu.uuid].reading
        cost = cost_of(per_hour, counts.seconds[gpu.uuid])
        unused_cost = cost_of(per_hour, unused_s)
    return GpuPeriod(
        index=gpu.index,
        uuid=gpu.uuid,
        name=clean(gpu.name, 64),
        busy_ratio=busy,
        mfu_ratio=mean("mfu"),
        mbu_ratio=mean("mbu"),
        power_w=power_w,
        energy_j=energy_j,
        cost=cost,
        idle_cost=times(cost, minus(1.0, busy)),
        energy_cost=energy_cost,
        unused_s=unused_s,
        unused_cost=unused_cost,
    )


def _engine_period(
    engine: Engine, counts: _Counts, means: _Means, gpus: Sequence[GpuPeriod], seconds: float
) -> EnginePeriod:
    """The engine's figures of a period of `seconds`; `gpus` are those of the whole host."""
    totals = {field: counts.tokens[engine.key, field].reading for field in TOKEN_FIELDS}
    own_means = {}
    for field, series in _MEANS.items():
        own_means[field] = means.mean(f"{series}@{engine.key}")
    energy: Reading = Missing(Reason.NO_GPU)
    cost: Reading = Missing(Reason.NO_GPU)
    energy_cost: Reading = Missing(Reason.NO_GPU)
    own_gpus = [gpu for gpu in gpus if gpu.index in engine.hardware.gpus]
    if own_gpus and not _shares_gpus(engine, counts):
        energy = sum_of_all([gpu.energy_j for gpu in own_gpus])
        cost = sum_of_all([gpu.cost for gpu in own_gpus])
        energy_cost = sum_of_all([gpu.energy_cost for gpu in own_gpus])
    generated_tokens = sum_of_known([totals["decode_tokens"], totals["trained_tokens"]])
    return EnginePeriod(
        name=engine.name,
        key=engine.key,
        model=clean(engine.model, 200),
        kind=engine.kind.value,
        **totals,
        **own_means,
        decode_tokens_per_s=quotient(totals["decode_tokens"], seconds),
        energy_j=energy,
        tokens_per_j=quotient(generated_tokens, energy),
        cost_per_million_tokens=times(quotient(cost, generated_tokens), MILLION),
        cost=cost,
        energy_cost=energy_cost,
        cost_per_million_all_tokens=times(quotient(cost, all_tokens(totals)), MILLION),
        goodput=counts.goodput_sums[engine.key].period(),
    )


def _shares_gpus(engine: Engine, counts: _Counts) -> bool:
    """Whether another engine ran on one of its GPUs."""
    own_gpus = set(engine.hardware.gpus)
    for other in counts.engines.values():
        if other.key != engine.key and not own_gpus.isdisjoint(other.hardware.gpus):
            return True
    return False


def _with_sums(period: Period, engines: Iterable[Engine], cards: Collection[str], counts: _Counts) -> Period:
    """The period with the sums over its engines and GPUs; `cards`: UUIDs of GPUs that are no slices of others."""
    keys = {engine.key for engine in engines}
    in_totals = [engine for engine in period.engines if engine.key in keys]
    sums = {}
    for field in TOKEN_FIELDS:
        sums[field] = sum_of_known([getattr(engine, field) for engine in in_totals])
    goodput = GoodputSum()
    for key in keys:
        goodput.add_sum(counts.goodput_sums[key])
    gpus = [gpu for gpu in period.gpus if gpu.uuid in cards]
    energy = _sum_over(gpus, "energy_j")
    cost = _sum_over(gpus, "cost")
    generated_tokens = sum_of_known([sums["decode_tokens"], sums["trained_tokens"]])
    return msgspec.structs.replace(
        period,
        **sums,
        energy_j=energy,
        tokens_per_j=quotient(generated_tokens, energy),
        cost=cost,
        idle_cost=_sum_over(gpus, "idle_cost"),
        cost_per_million_tokens=times(quotient(cost, generated_tokens), MILLION),
        energy_cost=_sum_over(gpus, "energy_cost"),
        unused_gpu_s=_sum_over(gpus, "unused_s"),
        unused_cost=_sum_over(gpus, "unused_cost"),
        cost_per_million_all_tokens=times(quotient(cost, all_tokens(sums)), MILLION),
        goodput=goodput.period(),
    )


def _sum_over(gpus: Sequence[GpuPeriod], field: str) -> Reading:
    """The sum of a figure over GPUs; the first reason where one lacks it."""
    return sum_of_all([getattr(gpu, field) for gpu in gpus])


def incidents(events: Sequence[Event], to_s: float) -> tuple[tuple[Incident, ...], int]:
    """Incidents up to a time, the most urgent and longest first, at most `MOST_LISTED_INCIDENTS`; and how many more.

    A change of verdict ends the incident that its thing was in; a change of its level does not, and the worst is told.
    An incident that began before the first event is not known. The same event of the same thing is one incident.
    """
    verdicts = _standing_verdicts(events, to_s)
    repeated_events: dict[tuple[EventKind, str, str], list[Event]] = {}
    for event in events:
        if event.kind is EventKind.VERDICT or event.level not in URGENT or event.kind in _QUIET:
            continue
        if event.kind in _EXPLAINED_BY_VERDICT and any(_led_to(event, verdict) for verdict in verdicts):
            continue
        repeated_events.setdefault((event.kind, event.scope, event_text(event)), []).append(event)
    all_incidents = []
    for verdict in verdicts:
        all_incidents.append(_incident_of_verdict(verdict))
    for repeats in repeated_events.values():
        all_incidents.append(_incident_of_events(repeats))
    all_incidents.sort(key=lambda incident: (URGENCY[incident.level], -incident.seconds, incident.begin))
    return tuple(all_incidents[:MOST_LISTED_INCIDENTS]), max(0, len(all_incidents) - MOST_LISTED_INCIDENTS)


class _StandingVerdict(NamedTuple):
    """An urgent verdict, from its beginning to its end."""

    event: Event
    """The event with which it began, with its worst level."""
    end_s: float
    ended: bool
    """False where it stood until the end of the period."""


def _standing_verdicts(events: Sequence[Event], to_s: float) -> list[_StandingVerdict]:
    """The urgent verdicts of a period that ends at `to_s`."""
    verdicts: list[_StandingVerdict] = []
    standing: dict[tuple[str, str], Event] = {}
    for event in events:
        if event.kind is not EventKind.VERDICT:
            continue
        thing = (event.key, event.scope)
        begin_event = standing.pop(thing, None)
        if begin_event is not None and _goes_on(begin_event, event):
            standing[thing] = _worse(begin_event, event)
            continue
        if begin_event is not None:
            verdicts.append(_StandingVerdict(begin_event, event.wall_s, ended=True))
        if event.level in URGENT:
            standing[thing] = event
    for begin_event in standing.values():
        verdicts.append(_StandingVerdict(begin_event, to_s, ended=False))
    return verdicts


def _goes_on(begin_event: Event, event: Event) -> bool:
    """Whether an event is but another level of the verdict that began."""
    code = _verdict_code(begin_event)
    return event.level in URGENT and code is not None and code is _verdict_code(event)


def _worse(begin_event: Event, event: Event) -> Event:
    """The verdict that began; as it was told when its level changed, where that is the more urgent one."""
    if URGENCY[begin_event.level] <= URGENCY[event.level]:
        return begin_event
    return msgspec.structs.replace(begin_event, verdict=event.verdict, level=event.level)


def _verdict_code(event: Event) -> Limit | None:
    """Code of the verdict that an event is about; None where it is over, or was recorded as a sentence alone."""
    if event.verdict is not None and event.code != "verdict_over":
        return event.verdict.code
    return None


def _led_to(event: Event, verdict: _StandingVerdict) -> bool:
    """Whether an event happened to the same GPU just before a verdict, or while it stood."""
    if event.key != verdict.event.key:
        return False
    return _begin_s(verdict.event) - _LEAD_S <= event.wall_s <= verdict.end_s


def _begin_s(event: Event) -> float:
    """When began what an event tells of."""
    return event.since_s or event.wall_s


def _incident_of_events(repeats: Sequence[Event]) -> Incident:
    """The incident of one event that may have happened several times."""
    first = repeats[0]
    last = repeats[-1]
    text = event_text(first)
    end = ""
    if len(repeats) > 1:
        text = f"{text} ({len(repeats)} times)"
        end = rfc3339(last.wall_s)
    return Incident(
        kind=first.kind,
        scope=first.scope,
        text=text,
        level=first.level,
        begin=rfc3339(first.wall_s),
        end=end,
        seconds=last.wall_s - first.wall_s,
    )


def _incident_of_verdict(verdict: _StandingVerdict) -> Incident:
    """The incident of a verdict, from its beginning to its end."""
    begin_s = _begin_s(verdict.event)
    return Incident(
        kind=verdict.event.kind,
        scope=verdict.event.scope,
        text=event_text(verdict.event),
        level=verdict.event.level,
        begin=rfc3339(begin_s),
        end=rfc3339(verdict.end_s),
        seconds=max(0.0, verdict.end_s - begin_s),
        ended=verdict.ended,
    )
