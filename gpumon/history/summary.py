"""A part of a past summed up: means from the charts' points, totals from the counters, incidents from the events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.money import cost_of
from gpumon.efficiency.ratio import minus, plus, times
from gpumon.efficiency.restarts import is_other_process
from gpumon.efficiency.service import engines_in_sums
from gpumon.efficiency.span_counters import PerToken, SpanCounters, per_token
from gpumon.efficiency.sums import (
    TOKEN_FIELDS,
    GoodputTotal,
    quotient,
    sum_of_all,
    sum_of_known,
)
from gpumon.figures.charted import SERIES_OF
from gpumon.figures.gpu import SHARES_OF_PEAKS, USE
from gpumon.history.frame_store import FrameStore
from gpumon.history.incidents import incidents
from gpumon.history.points import GAP_S, PointMeans, last_at_or_before, means_of_points
from gpumon.history.sampling import derive_samples, sampled_frames
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import EndpointState, EngineReading, Frame
from gpumon.readings.goals import Goals
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.period import EnginePeriod, GpuPeriod, Period
from gpumon.readings.prices import NO_PRICE, Prices, price_of_hour
from gpumon.readings.snapshot import Engine, Gpu, physical_gpus
from gpumon.readings.text import clean
from gpumon.specs.gpus import GpuCatalogue

_SERIES_OF_ENGINES: Final = {
    "running_mean": SERIES_OF["running"],
    "waiting_mean": SERIES_OF["waiting"],
    **{field: SERIES_OF[field] for field in ("kv_usage_ratio", *SHARES_OF_PEAKS)},
}
"""Field of `EnginePeriod` -> NAME of the series `NAME@KEY` whose mean it is."""
_LONGEST_NAME: Final = 64
"""Characters of the name of a host or GPU in a report."""
_LONGEST_MODEL: Final = 200
"""Characters of the name of a model in a report."""
_MOST_UNCOUNTED: Final = 0.02
"""Share of the time of which the tokens of an engine may be unknown for what the rest has a price of all its time."""
_ENERGY_LAG_S: Final = 30.0
"""Seconds by which counts of energy, which is read every 10 s, may begin later and end earlier than all others."""
_PART_OF_ENERGY: Final = Missing(Reason.LOST, "the energy of a GPU is known for a part of the time")
_NO_PRICE_OF_TOKENS: Final[Mapping[str, Reading]] = dict.fromkeys(
    PerToken._fields, Missing(Reason.UNREACHABLE, "an engine did not answer for a part of the time")
)


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
        """Unix time at which the process of the last answer ended, or did not listen any more, where that is known."""
        self._asked_s = 0.0
        """Unix time of the last poll, answered or not: one that is listed no more is asked no more."""

    def begin_anew(self) -> None:
        """Take the next answer as the first one."""
        self._last = None

    def add(self, reading: EngineReading, wall_s: float) -> None:
        """Take in a reading."""
        self._asked_s = wall_s
        if reading.state is EndpointState.OK:
            if self._last is not None and is_other_process(self._last, reading):
                self._total_s += self._silent_s(min(wall_s, max(self._last_s, reading.started_wall_s or wall_s)))
            self._last = reading
            self._last_s = wall_s
            self._end_s = None
        elif reading.departure is not None:
            self._end_s = reading.departure.wall_s
        elif reading.state is EndpointState.REFUSED and self._end_s is None:
            self._end_s = wall_s  # nothing listens there any more

    def seconds(self, to_s: float) -> float:
        """All silent seconds up to a Unix time.

        Silence before an answer of the same process does not count: its counters went on.
        """
        return self._total_s + self._silent_s(to_s)

    def unanswered_s(self, to_s: float) -> float:
        """The silent seconds in which it was asked."""
        return self.seconds(min(to_s, self._asked_s))

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


class _CounterSums:
    """Figures of the sampled frames: the things there were, for how long, and the growth of their counters."""

    def __init__(self, prices: Prices, goals: Goals) -> None:
        self.prices = prices
        self.gpus: dict[str, Gpu] = {}
        """UUID -> the GPU as it was last."""
        self.seconds: dict[str, float] = {}
        """UUID -> recorded time in which the GPU was there."""
        self.engines: dict[str, Engine] = {}
        """Key -> the engine as it was last."""
        self.counters = SpanCounters(prices, goals, tokens_begin_at=0.0)
        """Counters from one frame to the next. The deriver's totals begin at 0: an engine that started within the
        period counts from its first token."""
        self.energy_costs: dict[str, Reading] = {}
        """UUID -> price of the energy of a GPU."""
        self.silent_times: dict[str, _SilentTime] = {}
        """Key of an engine -> the time in which its counters were not read."""
        self.goodput_totals: dict[str, GoodputTotal] = {}
        """Key of an engine -> its requests that kept their goals."""
        self.host = ""
        self.simulated = False

    def lacks_tokens(self, key: str, last_s: float, covered_s: float) -> bool:
        """Whether so much of an engine's time has no known tokens that the others have no price of all of it."""
        return self.silent_times[key].unanswered_s(last_s) > _MOST_UNCOUNTED * covered_s

    def energy_of_tokens(self, energy_j: Reading, uuids: Iterable[str]) -> Reading:
        """The energy of some GPUs for tokens of all the time; missing where that of a part of the time is not known."""
        if isinstance(energy_j, Missing):
            return energy_j
        for uuid in uuids:
            known_s = self.counters.energy[uuid].seconds
            if known_s + _ENERGY_LAG_S < (1.0 - _MOST_UNCOUNTED) * self.seconds[uuid]:
                return _PART_OF_ENERGY
        return energy_j

    def begin_anew(self) -> None:
        """Take the next values of the counters as a base line."""
        self.counters.begin_anew()
        for silent_time in self.silent_times.values():
            silent_time.begin_anew()

    def add(self, frame: Frame, gpus: Sequence[Gpu], engines: Sequence[Engine], seconds: float) -> None:
        """Add a frame with the figures of its GPUs and engines; `seconds`: recorded time since the frame before."""
        self.host = clean(frame.host.name, _LONGEST_NAME)
        self.simulated = self.simulated or frame.simulated
        readings = {reading.key: reading for reading in frame.engines}
        for raw, gpu in zip(frame.gpus, gpus, strict=True):
            uuid = gpu.reading.uuid
            self.gpus[uuid] = gpu
            self.seconds[uuid] = self.seconds[uuid] + seconds if uuid in self.seconds else 0.0
            own_engines = [engine for engine in engines if gpu.reading.index in engine.hardware.gpus]
            growth = self.counters.take_gpu(
                gpu, raw.energy_j, own_engines, readings, seconds=seconds, wall_s=frame.wall_s
            )
            if not isinstance(growth.energy_j, Missing):
                self.energy_costs[uuid] = plus(self.energy_costs.get(uuid, 0.0), growth.energy_cost)
        for reading, engine in zip(frame.engines, engines, strict=True):
            self.engines[engine.key] = engine
            self.silent_times.setdefault(engine.key, _SilentTime()).add(reading, frame.wall_s)
            served = self.counters.take_engine(engine, reading, seconds=seconds, wall_s=frame.wall_s)
            goodput = self.goodput_totals.setdefault(engine.key, GoodputTotal())
            if served.goodput is not None:
                goodput.add_sum(served.goodput)


def summary_of(
    past: FrameStore,
    catalogue: GpuCatalogue,
    prices: Prices,
    from_s: float,
    to_s: float,
    goals: Goals = Goals(),  # noqa: B008 - immutable
) -> Period:
    """The sums of a part of a past, both ends included (Unix time). Reads a disk."""
    means = means_of_points(past, from_s, to_s)
    counts = _CounterSums(prices, goals)
    samples = sampled_frames(past, from_s, to_s, means.gaps)
    for sample in derive_samples(samples, lambda: Deriver(catalogue)):
        if sample.follows_gap:
            counts.begin_anew()
        counts.add(sample.frame, sample.snapshot.gpus, sample.snapshot.engines, sample.seconds)
    cards = physical_gpus(counts.gpus.values())
    cards_by_index = Counter(gpu.reading.index for gpu in cards)
    gpus = []
    for gpu in counts.gpus.values():
        # Where a card took the place of another, the series of their index are of both.
        shares_index = cards_by_index[gpu.reading.index] > 1
        gpus.append(_gpu_period(gpu, counts, means, shares_index=shares_index))
    last_s = last_at_or_before(past, to_s) or to_s
    engines = []
    for engine in counts.engines.values():
        period = _engine_period(engine, counts, means, gpus)
        uncounted_s = counts.silent_times[engine.key].seconds(last_s)
        if counts.lacks_tokens(engine.key, last_s, means.covered_s):
            period = msgspec.structs.replace(period, **_NO_PRICE_OF_TOKENS)
        engines.append(msgspec.structs.replace(period, uncounted_s=uncounted_s))
    worst, left_out = incidents(past.events(from_s, to_s), to_s)
    busy_series = [f"busy:{index}" for index in cards_by_index]
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
        busy_ratio=means.mean_of(busy_series, NOT_SUPPORTED),
        mfu_ratio=means.mean("mfu", NOT_SUPPORTED),
        mbu_ratio=means.mean("mbu", NOT_SUPPORTED),
        incidents=worst,
        incidents_left_out=left_out,
        busy_known_s=max(map(means.known_s, busy_series), default=0.0),
        mfu_known_s=means.known_s("mfu"),
        mbu_known_s=means.known_s("mbu"),
    )
    uuids = {card.reading.uuid for card in cards}
    return _with_totals(whole, engines_in_sums(counts.engines.values()), uuids, counts, last_s)


def _gpu_period(gpu: Gpu, counts: _CounterSums, means: PointMeans, *, shares_index: bool) -> GpuPeriod:
    """The GPU's figures of the period; `shares_index`: another card had its index, so that no series is its own."""
    joules = counts.counters.energy[gpu.reading.uuid]
    is_slice = bool(gpu.reading.parent_uuid)

    def mean(field: str) -> Reading:
        if is_slice or shares_index:
            return NOT_SUPPORTED
        return means.mean(f"{SERIES_OF[field]}:{gpu.reading.index}", NOT_SUPPORTED)

    use = {field: mean(field) for field in USE}
    # Of the rest of its time nobody knows whether it was idle.
    known_s = means.known_s(f"{SERIES_OF['busy_ratio']}:{gpu.reading.index}")
    seen_s = counts.seconds[gpu.reading.uuid]
    share_with_busy = min(1.0, known_s / seen_s) if seen_s > 0.0 else 1.0
    energy_j: Reading = NOT_SUPPORTED
    power_w = mean("power_w")
    energy_cost: Reading = NOT_SUPPORTED
    if joules.seconds:
        energy_j = joules.total
        if isinstance(power_w, Missing):
            power_w = joules.total / joules.seconds
        energy_cost = counts.energy_costs.get(gpu.reading.uuid, 0.0)
    # A price is that of a card: its slices have none of their own.
    cost: Reading = NO_PRICE
    unused_s: Reading = NOT_SUPPORTED
    unused_cost: Reading = NO_PRICE
    if not is_slice:
        per_hour = price_of_hour(gpu.gpu_type, counts.prices.per_gpu_hour)
        unused_s = counts.counters.unused[gpu.reading.uuid].reading
        cost = cost_of(per_hour, counts.seconds[gpu.reading.uuid])
        unused_cost = cost_of(per_hour, unused_s)
    return GpuPeriod(
        index=gpu.reading.index,
        uuid=gpu.reading.uuid,
        name=clean(gpu.reading.name, _LONGEST_NAME),
        **use,
        power_w=power_w,
        energy_j=energy_j,
        cost=cost,
        idle_cost=times(times(cost, minus(1.0, use["busy_ratio"])), share_with_busy),
        energy_cost=energy_cost,
        unused_s=unused_s,
        unused_cost=unused_cost,
    )


def _engine_period(engine: Engine, counts: _CounterSums, means: PointMeans, gpus: Sequence[GpuPeriod]) -> EnginePeriod:
    """The engine's figures of a period; `gpus` are those of the whole host."""
    tokens = counts.counters.tokens
    totals = {field: tokens[engine.key, field].reading for field in TOKEN_FIELDS}
    own_means = {field: means.mean(f"{series}@{engine.key}") for field, series in _SERIES_OF_ENGINES.items()}
    energy: Reading = Missing(Reason.NO_GPU)
    cost: Reading = Missing(Reason.NO_GPU)
    energy_cost: Reading = Missing(Reason.NO_GPU)
    own_gpus = [gpu for gpu in gpus if gpu.index in engine.hardware.gpus]
    if own_gpus and not _shares_gpus(engine, counts):
        energy = sum_of_all([gpu.energy_j for gpu in own_gpus])
        cost = sum_of_all([gpu.cost for gpu in own_gpus])
        energy_cost = sum_of_all([gpu.energy_cost for gpu in own_gpus])
    energy_of_tokens = counts.energy_of_tokens(energy, [gpu.uuid for gpu in own_gpus])
    return EnginePeriod(
        name=engine.name,
        key=engine.key,
        model=clean(engine.model, _LONGEST_MODEL),
        kind=engine.kind.value,
        **totals,
        **own_means,
        decode_tokens_per_s=quotient(totals["decode_tokens"], tokens[engine.key, "decode_tokens"].seconds),
        energy_j=energy,
        cost=cost,
        energy_cost=energy_cost,
        **per_token(totals, energy_of_tokens, cost)._asdict(),
        goodput=counts.goodput_totals[engine.key].period(),
    )


def _shares_gpus(engine: Engine, counts: _CounterSums) -> bool:
    """Whether another engine ran on one of its GPUs."""
    own_gpus = set(engine.hardware.gpus)
    for other in counts.engines.values():
        if other.key != engine.key and not own_gpus.isdisjoint(other.hardware.gpus):
            return True
    return False


def _with_totals(
    period: Period, engines: Iterable[Engine], cards: Collection[str], counts: _CounterSums, last_s: float
) -> Period:
    """The period with the sums over its engines and GPUs; `cards`: UUIDs of GPUs that are no slices of others;
    `last_s`: the last moment (Unix time)."""
    keys = {engine.key for engine in engines}
    in_totals = [engine for engine in period.engines if engine.key in keys]
    sums = {field: sum_of_known(getattr(engine, field) for engine in in_totals) for field in TOKEN_FIELDS}
    goodput = GoodputTotal()
    for key in keys:
        goodput.add_sum(counts.goodput_totals[key])
    gpus = [gpu for gpu in period.gpus if gpu.uuid in cards]
    energy_j = _sum_over(gpus, "energy_j")
    cost = _sum_over(gpus, "cost")
    prices = per_token(sums, counts.energy_of_tokens(energy_j, [gpu.uuid for gpu in gpus]), cost)._asdict()
    if any(counts.lacks_tokens(key, last_s, period.covered_s) for key in keys):
        prices = dict(_NO_PRICE_OF_TOKENS)
    return msgspec.structs.replace(
        period,
        **sums,
        energy_j=energy_j,
        cost=cost,
        idle_cost=_sum_over(gpus, "idle_cost"),
        energy_cost=_sum_over(gpus, "energy_cost"),
        unused_gpu_s=_sum_over(gpus, "unused_s"),
        unused_cost=_sum_over(gpus, "unused_cost"),
        **prices,
        goodput=goodput.period(),
    )


def _sum_over(gpus: Sequence[GpuPeriod], field: str) -> Reading:
    """The sum of a figure over GPUs; the first reason where one lacks it."""
    return sum_of_all([getattr(gpu, field) for gpu in gpus])
