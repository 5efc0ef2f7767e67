"""One span of a past, taken in moment by moment: means, histograms and settings of each thing, by parts of the span."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from gpumon.efficiency.facts import (
    CLOCK_FACT,
    Facts,
    clock_text,
    clock_under_load,
    engine_facts,
    gpu_settings,
    host_facts,
)
from gpumon.efficiency.quantiles import merge, merge_common, observations_between
from gpumon.efficiency.ratio import plus
from gpumon.efficiency.service import engines_in_sums
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineReading, GpuState, HistogramReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Gpu, Process, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import URGENCY, Kind, Level, Limit, Verdict

_MOST_PARTS: Final = 6
"""Parts of a span, whose means say how much a figure moves by itself."""
LEAST_PART_S: Final = 10.0
"""Shortest part: rates are means of 10 s, and shorter parts would only repeat them."""
_HISTOGRAMS: Final = (q.TTFT, q.ITL, q.TPOT, q.E2E, q.QUEUE, q.PROMPT_LENGTH, q.OUTPUT_LENGTH)
"""Histograms whose observations in the span are compared."""
_COUNTERS: Final = (
    q.REQUESTS, q.DECODE_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED, q.TRAINED_TOKENS,
    q.PREEMPTIONS, q.FAILURES, q.REJECTIONS,
)  # fmt: skip
"""Counters whose growth over the span is a rate: exact, also where requests come in waves."""
ENGINE_FIELDS: Final[Mapping[str, Callable[[Engine], Reading]]] = {
    "requests_per_s": attrgetter("rates.requests_per_s"),
    "running": attrgetter("load.running"),
    "waiting": attrgetter("load.waiting"),
    "kv_usage_ratio": attrgetter("load.kv_usage_ratio"),
    "prefill_tokens_per_s": attrgetter("rates.prefill_tokens_per_s"),
    "cached_tokens_per_s": attrgetter("rates.cached_tokens_per_s"),
    "decode_tokens_per_s": attrgetter("rates.decode_tokens_per_s"),
    "preemptions_per_s": attrgetter("rates.preemptions_per_s"),
    "failures_per_s": attrgetter("rates.failures_per_s"),
    "rejections_per_s": attrgetter("rates.rejections_per_s"),
    "acceptance_ratio": attrgetter("rates.acceptance_ratio"),
    "trained_tokens_per_s": attrgetter("rates.trained_tokens_per_s"),
    "mfu_ratio": attrgetter("efficiency.mfu_ratio"),
    "mbu_ratio": attrgetter("efficiency.mbu_ratio"),
    "power_w": attrgetter("hardware.power_w"),
    "cost_per_hour": attrgetter("costs.cost_per_hour"),
    "ttft_goal_s": attrgetter("goodput.ttft_goal.goal_s"),
    "itl_goal_s": attrgetter("goodput.itl_goal.goal_s"),
    "tpot_goal_s": attrgetter("goodput.tpot_goal.goal_s"),
    "ttft_mean_s": attrgetter("latency.ttft_s.mean"),
    "itl_mean_s": attrgetter("latency.itl_mean_s"),
    "e2e_mean_s": attrgetter("latency.e2e_s.mean"),
    "queue_mean_s": attrgetter("latency.queue_s.mean"),
}
"""Figures of an engine that are averaged over the moments."""
GPU_FIELDS: Final[Mapping[str, Callable[[Gpu], Reading]]] = {
    "busy_ratio": attrgetter("busy_ratio"),
    "sm_active_ratio": attrgetter("sm_active_ratio"),
    "mfu_ratio": attrgetter("mfu_ratio"),
    "mbu_ratio": attrgetter("mbu_ratio"),
    "bandwidth_bytes_per_s": attrgetter("bandwidth_bytes_per_s"),
    "vram_used_bytes": attrgetter("vram_used_bytes"),
    "power_w": attrgetter("power_w"),
    "temperature_c": attrgetter("temperature_c"),
    "sm_clock_hz": attrgetter("sm_clock_hz"),
    "cost_per_hour": attrgetter("cost_per_hour"),
}
"""Figures of a GPU that are averaged over the moments."""
_SUMS: Final = ("requests_per_s", "running", "waiting", "prefill_tokens_per_s", "decode_tokens_per_s")
"""Figures of engines that the host has the sums of."""


class ThingKey(NamedTuple):
    """Identity of a thing."""

    kind: Kind
    key: str


class CounterMoment(NamedTuple):
    """A counter at one moment (monotonic), by rank."""

    time_s: float
    by_rank: Mapping[str, float]


StateT = TypeVar("StateT")
Stretches = list[tuple[StateT, StateT]]
"""First and last state of a counter or histogram, in a pair of its own from each restart of the engine on."""


class SpanPart:
    """Figures, counters and histograms of a thing in one part of the span."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        """Field -> sum over the moments at which it was known."""
        self.counts: dict[str, int] = {}
        """Field -> number of those moments."""
        self.histograms: dict[str, Stretches[HistogramReading]] = {}
        """Quantity -> states of the histogram. The first one is that before the part, if there is one."""
        self.counters: dict[str, Stretches[CounterMoment]] = {}
        """Counter -> its states, as those of the histograms."""


class SpanParts:
    """Parts of a thing's span, seen as one."""

    def __init__(
        self, parts: Sequence[SpanPart], reasons: Mapping[str, Missing], exported: Collection[str] = frozenset()
    ) -> None:
        """`reasons` say why a field was missing; `exported` are the histograms that the thing has, be it in other
        parts."""
        self._parts = parts
        self._reasons = reasons
        self.exported = exported

    def mean(self, field: str) -> Reading:
        """The mean of a figure over the moments at which it was known."""
        count = sum(part.counts.get(field, 0) for part in self._parts)
        if not count:
            return self._reasons.get(field, NOT_EXPOSED)
        return sum(part.sums.get(field, 0.0) for part in self._parts) / count

    def rate(self, counter: str) -> float | None:
        """Growth of a counter per second. None where nothing counts, or over a restart alone."""
        growth = 0.0
        seconds = 0.0
        for part in self._parts:
            for first, last in part.counters.get(counter, ()):
                increase = _growth(first.by_rank, last.by_rank)
                if increase is not None:
                    growth += increase
                    seconds += last.time_s - first.time_s
        if seconds > 0.0:
            return growth / seconds
        return None

    def histogram(self, quantity: str) -> HistogramReading | None:
        """Observations in these parts. None where there are none to be had: no such histogram, or a restart alone."""
        increases = []
        for part in self._parts:
            for first, last in part.histograms.get(quantity, ()):
                increase = observations_between(first, last)
                if increase is not None:
                    increases.append(increase)
        return merge(increases)


class ThingSpan:
    """A thing over one span."""

    def __init__(self, name: str, parts: int) -> None:
        self.name = name
        self.parts = [SpanPart() for _ in range(parts)]
        self.facts: Facts = {}
        """Newest settings."""
        self.mixed: set[str] = set()
        """Codes of facts that changed within the span."""
        self._reasons: dict[str, Missing] = {}
        """Field -> why it was missing last."""
        self._newest: dict[str, HistogramReading] = {}
        """Quantity -> its newest histogram."""
        self._counts: dict[str, CounterMoment] = {}
        """Counter -> its newest values."""
        self._fastest_hz = 0.0
        """Highest clock under load so far."""

    @property
    def whole(self) -> SpanParts:
        """The whole span."""
        return SpanParts(self.parts, self._reasons, self._newest.keys())

    def by_part(self) -> list[SpanParts]:
        """The parts, one by one."""
        return [SpanParts([part], self._reasons, self._newest.keys()) for part in self.parts]

    def take(self, part_index: int, figures: Mapping[str, Reading]) -> None:
        """Take in the figures of a moment in the part of this number."""
        part = self.parts[part_index]
        for field, value in figures.items():
            if isinstance(value, Missing):
                self._reasons[field] = value
            elif math.isfinite(value):
                part.sums[field] = part.sums.get(field, 0.0) + value
                part.counts[field] = part.counts.get(field, 0) + 1

    def take_poll(self, part_index: int, reading: EngineReading) -> None:
        """Take in the counters and histograms of a poll."""
        self._take_counters(self.parts[part_index].counters, reading)
        self._take_histograms(self.parts[part_index].histograms, reading)

    def _take_counters(self, counters: dict[str, Stretches[CounterMoment]], reading: EngineReading) -> None:
        """Take the counters of a poll into those of a part."""
        for counter in _COUNTERS:
            by_rank = {rank.rank: rank.counters[counter] for rank in reading.ranks if counter in rank.counters}
            if not by_rank:
                continue
            now = CounterMoment(reading.monotonic_s, by_rank)
            before = self._counts.get(counter)
            if before is not None and _growth(before.by_rank, now.by_rank) is None:
                before = None
            _extend(counters.setdefault(counter, []), before, now)
            self._counts[counter] = now

    def _take_histograms(self, histograms: dict[str, Stretches[HistogramReading]], reading: EngineReading) -> None:
        """Take the histograms of a poll into those of a part."""
        for quantity in _HISTOGRAMS:
            now = _summed_histogram(reading, quantity)
            if now is None:
                continue
            before = self._newest.get(quantity)
            if before is not None and now.count < before.count:
                before = None
            _extend(histograms.setdefault(quantity, []), before, now)
            self._newest[quantity] = now

    def take_facts(self, facts: Mapping[str, str]) -> None:
        """Take in the settings of a moment."""
        for code, value in facts.items():
            if self.facts.get(code, value) != value:
                self.mixed.add(code)
            self.facts[code] = value

    def take_clock(self, gpu: Gpu) -> None:
        """Take in the clock of a busy GPU that nothing but a setting may hold back."""
        clock_hz = clock_under_load(gpu)
        if clock_hz is None:
            return
        self._fastest_hz = max(self._fastest_hz, clock_hz)
        self.facts[CLOCK_FACT] = clock_text(self._fastest_hz)


def _extend(stretches: Stretches[StateT], before: StateT | None, now: StateT) -> None:
    """Take in the newest state. `before` is the state at the last poll; None at the first one and after a restart."""
    if before is None:
        stretches.append((now, now))
    elif stretches:
        first, _ = stretches[-1]
        stretches[-1] = (first, now)
    else:
        stretches.append((before, now))


def _growth(before: Mapping[str, float], now: Mapping[str, float]) -> float | None:
    """Growth of a counter over the ranks that both moments have; None where one of them began anew."""
    growth = 0.0
    for rank, value in now.items():
        increase = value - before.get(rank, value)
        if increase < 0.0:
            return None
        growth += increase
    return growth


def _summed_histogram(reading: EngineReading, quantity: str) -> HistogramReading | None:
    """A histogram summed over the ranks; None where none has it, or their bounds differ."""
    histograms = [rank.histograms[quantity] for rank in reading.ranks if quantity in rank.histograms]
    return merge_common(histograms)


class VerdictSpan(NamedTuple):
    """A verdict, as it stood last, and how often it stood."""

    verdict: Verdict
    level: Level
    moments: int


VerdictPlace = tuple[Kind, str, Limit, str]
"""Kind and key of a thing, limit and cause."""


class TakenSpan:
    """One of the two spans that are compared: everything that was seen in it."""

    def __init__(self, begin_s: float, end_s: float) -> None:
        self.begin_s = begin_s
        self.end_s = end_s
        self.things: dict[ThingKey, ThingSpan] = {}
        self.verdicts: dict[VerdictPlace, VerdictSpan] = {}
        self.moments = 0
        """Moments of it that were taken in, each of all machines."""
        self.simulated = False
        self.first_s = math.inf
        self.last_s = -math.inf
        """Unix times of the first and the last moment."""
        self._parts = max(1, min(_MOST_PARTS, int((end_s - begin_s) / LEAST_PART_S)))
        self._polled: dict[str, EngineReading] = {}
        """Key of an engine -> its newest poll that was taken in."""

    def take(self, snapshot: Snapshot, wall_s: float, readings: Iterable[EngineReading], host: str = "") -> None:
        """Take in a moment of a machine. `host`: its name, where there are several; its things then have it before
        their own."""
        part_index = self._part_index(wall_s)
        self.first_s = min(self.first_s, wall_s)
        self.last_s = max(self.last_s, wall_s)
        self.simulated = self.simulated or snapshot.simulated
        by_key = {reading.key: reading for reading in readings}
        prefix = f"{host}/" if host else ""
        self._take_host(part_index, snapshot, host)
        processes: list[Process] = []
        for gpu in snapshot.gpus:
            processes += gpu.processes
        for engine in snapshot.engines:
            self._take_engine(part_index, engine, by_key.get(engine.key), processes, prefix)
        for gpu in snapshot.gpus:
            self._take_gpu(part_index, gpu, prefix)
        for verdict in snapshot.verdicts:
            self._take_verdict(verdict, prefix)

    def _part_index(self, wall_s: float) -> int:
        """Number of the part that a time lies in."""
        share = (wall_s - self.begin_s) / max(self.end_s - self.begin_s, 1e-9)
        return min(max(int(share * self._parts), 0), self._parts - 1)

    def _thing_span(self, kind: Kind, key: str, name: str) -> ThingSpan:
        """The span of a thing; an empty one for a thing that is seen first."""
        thing = ThingKey(kind, key)
        thing_span = self.things.get(thing)
        if thing_span is None:
            thing_span = ThingSpan(name, self._parts)
            self.things[thing] = thing_span
        return thing_span

    def _take_host(self, part_index: int, snapshot: Snapshot, host: str) -> None:
        thing_span = self._thing_span(Kind.HOST, host, clean(host or snapshot.host.name, 64) or "host")
        thing_span.take(part_index, host_figures(snapshot))
        thing_span.take_facts(host_facts(snapshot.host, snapshot))

    def _take_engine(
        self, part_index: int, engine: Engine, reading: EngineReading | None, processes: Sequence[Process], prefix: str
    ) -> None:
        key = f"{prefix}{engine.key}"
        thing_span = self._thing_span(Kind.ENGINE, key, clean(f"{prefix}{engine.name}", 80))
        thing_span.take(part_index, {field: read_figure(engine) for field, read_figure in ENGINE_FIELDS.items()})
        if reading is None:
            thing_span.take_facts(engine_facts(engine, None, processes))
        elif reading.state is EndpointState.OK and self._polled.get(key) is not reading:
            self._polled[key] = reading
            thing_span.take_poll(part_index, reading)
            thing_span.take_facts(engine_facts(engine, reading, processes))

    def _take_gpu(self, part_index: int, gpu: Gpu, prefix: str) -> None:
        name = f"{prefix}gpu {gpu.index}"
        if gpu.mig_profile:
            name = f"{name} {gpu.mig_profile}"
        thing_span = self._thing_span(Kind.GPU, f"{prefix}{gpu.uuid}", name)
        thing_span.take(part_index, {field: read_figure(gpu) for field, read_figure in GPU_FIELDS.items()})
        if gpu.state is GpuState.OK:
            thing_span.take_facts(gpu_settings(gpu))
            thing_span.take_clock(gpu)

    def _take_verdict(self, verdict: Verdict, prefix: str) -> None:
        """Count a verdict that stands, with the most urgent level that it had.

        That something is well, or not judged yet, is no verdict here.
        """
        if verdict.level is Level.OK or verdict.code is Limit.EVALUATING:
            return
        place = (verdict.kind, f"{prefix}{verdict.key}", verdict.code, verdict.cause)
        level: Level = verdict.level
        moments = 1
        span_before = self.verdicts.get(place)
        if span_before is not None:
            level = min(level, span_before.level, key=URGENCY.__getitem__)
            moments += span_before.moments
        self.verdicts[place] = VerdictSpan(verdict, level, moments)


def host_figures(snapshot: Snapshot) -> dict[str, Reading]:
    """Sums over engines and GPUs, each missing where a part of it is."""
    engines = engines_in_sums(engine for engine in snapshot.engines if engine.state is EndpointState.OK)
    boards = [gpu for gpu in snapshot.gpus if not gpu.parent_uuid]
    figures: dict[str, Reading] = {
        "cpu_ratio": snapshot.host.cpu_ratio,
        "power_w": _sum(gpu.power_w for gpu in boards),
        "busy_ratio": _mean(gpu.busy_ratio for gpu in boards),
        "cost_per_hour": snapshot.costs.cost_per_hour,
    }
    for field in _SUMS:
        read_figure = ENGINE_FIELDS[field]
        figures[field] = _sum(read_figure(engine) for engine in engines)
    return figures


def _sum(parts: Iterable[Reading]) -> Reading:
    """The sum; missing where a part is, or where there is none."""
    values = [*parts]
    if values:
        return plus(*values)
    return Missing(Reason.NO_ENGINE)


def _mean(parts: Iterable[Any]) -> Reading:
    """The mean of the parts that are known."""
    values = [value for value in parts if not isinstance(value, Missing)]
    if values:
        return float(sum(values) / len(values))
    return NOT_EXPOSED
