"""One span of a past, taken in moment by moment: means, histograms and settings of each thing, by parts of the span."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.counted import CountedSoFar, RankGrowth
from gpumon.efficiency.facts import (
    CLOCK_FACT,
    Facts,
    clock_text,
    clock_under_load,
    engine_facts,
    gpu_settings,
    host_facts,
)
from gpumon.efficiency.merged import merge_all, merge_known
from gpumon.efficiency.quantiles import merge_common
from gpumon.efficiency.service import engines_in_sums
from gpumon.efficiency.sums import TimeMean
from gpumon.figures.engine import ENGINE
from gpumon.figures.gpu import GPU
from gpumon.readings.flat import getter
from gpumon.readings.frame import EndpointState, EngineReading, GpuProcess, GpuState, HistogramReading
from gpumon.readings.missing import NOT_EXPOSED, SILENT_REASONS, Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Gpu, Snapshot, physical_gpus
from gpumon.readings.text import clean
from gpumon.readings.verdict import URGENCY, Kind, Level, Limit, Verdict

_MOST_PARTS: Final = 6
"""Parts of a span, whose means say how much a figure moves by itself."""
LEAST_PART_S: Final = 10.0
"""Shortest part: rates are means of 10 s, and shorter parts would only repeat them."""
_FIRST_MOMENT_S: Final = 1e-3
"""Seconds that the figures of the first moment stand for, and those of one behind a gap: as good as none, where there
is a later one."""
_IN_OBJECTS: Final = {
    **{f"{goal}_s": f"{goal}.goal_s" for goal in ("ttft_goal", "itl_goal", "tpot_goal")},
    **{f"{latency}_mean_s": f"{latency}_s.mean" for latency in ("ttft", "e2e", "queue")},
    "itl_mean_s": "itl_mean_s",
}
"""Name of a mean -> its figure of an engine; an ITL is that of 10 s, where the others are of 60 s."""
_ENGINE_FIELDS: Final[Mapping[str, Callable[[Engine], Reading]]] = {
    **{row.field: getter(Engine, row.field) for row in ENGINE.compared if "." not in row.field},
    **{name: getter(Engine, path) for name, path in _IN_OBJECTS.items()},
}
"""Figures of an engine that are averaged over the moments."""
_GPU_FIELDS: Final[Mapping[str, Callable[[Gpu], Reading]]] = {row.field: getter(Gpu, row.field) for row in GPU.compared}
"""Figures of a GPU that are averaged over the moments."""
SUMS: Final = ("requests_per_s", "running", "waiting", "prefill_tokens_per_s", "decode_tokens_per_s")
"""Figures of engines that the host has the sums of."""
_NO_ENGINE: Final = Missing(Reason.NO_ENGINE)


class ThingKey(NamedTuple):
    """Identity of a thing."""

    kind: Kind
    key: str


class SpanPart:
    """Figures, counters and histograms of a thing in one part of the span."""

    def __init__(self) -> None:
        self.means: dict[str, TimeMean] = {}
        """Field -> its mean over the time in which it was known."""
        self.stretches: dict[str, list[RankGrowth]] = {}
        """Rank -> what it counted, in a piece of its own from each restart of the engine on. The first one begins with
        the poll before the part, if there is one."""
        self.counted_s = 0.0
        """Seconds between the polls of the stretches."""


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
        """The mean of a figure over the time in which it was known."""
        whole = TimeMean()
        for part in self._parts:
            if field in part.means:
                whole.add_mean(part.means[field])
        return whole.reading(self._reasons.get(field, NOT_EXPOSED))

    def rate(self, counter: str) -> float | None:
        """Growth of a counter per second. None where nothing counts."""
        growths = [growth.counter(counter) for growth in self._growths()]
        known = [growth for growth in growths if growth is not None]
        seconds = sum(part.counted_s for part in self._parts)
        return sum(known) / seconds if known and seconds > 0.0 else None

    def histogram(self, quantity: str) -> HistogramReading | None:
        """Observations in these parts. None where there are none to be had: no such histogram, or one poll alone."""
        observed = [growth.histogram(quantity) for growth in self._growths()]
        return merge_common([histogram for histogram in observed if histogram is not None])

    def _growths(self) -> Iterator[RankGrowth]:
        """All stretches of all ranks."""
        for part in self._parts:
            if part.counted_s > 0.0:
                for stretches in part.stretches.values():
                    yield from stretches


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
        self._exported: set[str] = set()
        """Histograms that it has."""
        self._counted = CountedSoFar()
        self._polled_s = -math.inf
        """When the newest poll was made (monotonic)."""
        self._fastest_hz = 0.0
        """Highest clock under load so far."""

    @property
    def whole(self) -> SpanParts:
        """The whole span."""
        return SpanParts(self.parts, self._reasons, self._exported)

    def by_part(self) -> list[SpanParts]:
        """The parts, one by one."""
        return [SpanParts([part], self._reasons, self._exported) for part in self.parts]

    def begin_anew(self) -> None:
        """Take the next counters as a base line: what was counted in between belongs to a gap."""
        self._counted = CountedSoFar()

    def take(self, part_index: int, figures: Mapping[str, Reading], seconds: float = 1.0) -> None:
        """Take in the figures of a moment, which stand for so many seconds, in the part of this number."""
        means = self.parts[part_index].means
        for field, value in figures.items():
            if isinstance(value, Missing):
                self._reasons[field] = value
            elif math.isfinite(value):
                means.setdefault(field, TimeMean()).add(value, seconds)

    def take_poll(self, part_index: int, reading: EngineReading, wall_s: float) -> None:
        """Take in the counters and histograms of a poll."""
        is_first = self._counted.is_new
        counted = self._counted.take(reading, wall_s)
        if counted is None:
            return
        part = self.parts[part_index]
        if not is_first:
            part.counted_s += reading.monotonic_s - self._polled_s
        self._polled_s = reading.monotonic_s
        for name, growth in counted.ranks.items():
            self._exported.update(growth.now.histograms)
            stretches = part.stretches.setdefault(name, [])
            if stretches and stretches[-1].now is growth.before:
                growth = RankGrowth(stretches.pop().before, growth.now)
            stretches.append(growth)

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
        self.covered_s = 0.0
        """Seconds of it that were seen, without gaps: those of the best known machine."""
        self._covered_s: dict[str, float] = {}
        """Machine -> seconds of it that were seen."""
        self._last_s: dict[str, float] = {}
        """Machine -> Unix time of its last moment."""
        self._parts = max(1, min(_MOST_PARTS, int((end_s - begin_s) / LEAST_PART_S)))
        self._seconds = 0.0
        """Seconds that the figures of the newest moment stand for."""
        self._polled: dict[str, EngineReading] = {}
        """Key of an engine -> its newest poll that was taken in."""

    def take(
        self,
        snapshot: Snapshot,
        wall_s: float,
        readings: Iterable[EngineReading],
        host: str = "",
        *,
        follows_gap: bool = False,
    ) -> None:
        """Take in a moment of a machine. `host`: its name, where there are several; its things then have it before
        their own. `follows_gap`: nothing is known of the time since the moment before."""
        share = (wall_s - self.begin_s) / max(self.end_s - self.begin_s, 1e-9)
        part_index = min(max(int(share * self._parts), 0), self._parts - 1)
        self._seconds = self._advance(wall_s, host, follows_gap=follows_gap)
        self.simulated = self.simulated or snapshot.simulated
        by_key = {reading.key: reading for reading in readings}
        prefix = f"{host}/" if host else ""
        host_span = self._thing_span(Kind.HOST, host, clean(host or snapshot.host.name, 64) or "host")
        host_span.take(part_index, host_figures(snapshot), self._seconds)
        host_span.take_facts(host_facts(snapshot.host, snapshot))
        processes = [process for gpu in snapshot.gpus for process in gpu.reading.processes]
        for engine in snapshot.engines:
            self._take_engine(part_index, wall_s, engine, by_key.get(engine.key), processes, prefix)
        for gpu in snapshot.gpus:
            self._take_gpu(part_index, gpu, prefix)
        for verdict in snapshot.verdicts:
            self._take_verdict(verdict, prefix)

    def _advance(self, wall_s: float, host: str, *, follows_gap: bool) -> float:
        """Move on to a moment of a machine; returns the seconds that its figures stand for."""
        last_s = self._last_s.get(host)
        self._last_s[host] = wall_s
        if last_s is None or follows_gap or wall_s <= last_s:
            for thing, thing_span in self.things.items():
                if thing.key.startswith(f"{host}/") or not host:
                    thing_span.begin_anew()
            return _FIRST_MOMENT_S
        self._covered_s[host] = self._covered_s.get(host, 0.0) + wall_s - last_s
        self.covered_s = max(self.covered_s, self._covered_s[host])
        return wall_s - last_s

    def _thing_span(self, kind: Kind, key: str, name: str) -> ThingSpan:
        """The span of a thing; an empty one for a thing that is seen first."""
        thing = ThingKey(kind, key)
        thing_span = self.things.get(thing)
        if thing_span is None:
            thing_span = ThingSpan(name, self._parts)
            self.things[thing] = thing_span
        return thing_span

    def _take_engine(
        self,
        part_index: int,
        wall_s: float,
        engine: Engine,
        reading: EngineReading | None,
        processes: Sequence[GpuProcess],
        prefix: str,
    ) -> None:
        key = f"{prefix}{engine.key}"
        thing_span = self._thing_span(Kind.ENGINE, key, clean(f"{prefix}{engine.name}", 80))
        thing_span.take(
            part_index, {field: read_figure(engine) for field, read_figure in _ENGINE_FIELDS.items()}, self._seconds
        )
        if reading is None:
            thing_span.take_facts(engine_facts(engine, None, processes))
        elif reading.state is EndpointState.OK and self._polled.get(key) is not reading:
            self._polled[key] = reading
            thing_span.take_poll(part_index, reading, wall_s)
            thing_span.take_facts(engine_facts(engine, reading, processes))

    def _take_gpu(self, part_index: int, gpu: Gpu, prefix: str) -> None:
        name = f"{prefix}gpu {gpu.reading.index}"
        if gpu.reading.mig_profile:
            name = f"{name} {gpu.reading.mig_profile}"
        thing_span = self._thing_span(Kind.GPU, f"{prefix}{gpu.reading.uuid}", name)
        thing_span.take(
            part_index, {field: read_figure(gpu) for field, read_figure in _GPU_FIELDS.items()}, self._seconds
        )
        if gpu.reading.state is GpuState.OK:
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


def _busy_of_all(boards: Sequence[Gpu]) -> Reading:
    """Mean of busy over all GPUs that tell it; missing while one of them does not answer."""
    readings = [gpu.reading.busy_ratio for gpu in boards]
    for reading in readings:
        if isinstance(reading, Missing) and reading.reason in SILENT_REASONS:
            return reading
    return merge_known(GPU["busy_ratio"], readings).value


def host_figures(snapshot: Snapshot) -> dict[str, Reading]:
    """Sums over engines and GPUs, each missing where a part of it is; the mean of busy where a GPU does not answer, and
    not for one that never tells it."""
    engines = engines_in_sums(engine for engine in snapshot.engines if engine.state is EndpointState.OK)
    boards = physical_gpus(snapshot.gpus)
    figures: dict[str, Reading] = {
        "cpu_ratio": snapshot.host.cpu_ratio,
        "power_w": merge_all(GPU["power_w"], [gpu.power_w for gpu in boards]),
        "busy_ratio": _busy_of_all(boards),
        "cost_per_hour": snapshot.costs.cost_per_hour,
    }
    for field in SUMS:
        read_figure = _ENGINE_FIELDS[field]
        parts = [read_figure(engine) for engine in engines]
        figures[field] = merge_all(ENGINE[field], parts) if parts else _NO_ENGINE
    return figures
