"""Recorded traffic of engines, by model: arrivals over time and the lengths of requests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpumon.efficiency.plausible import plausible_engine
from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineReading, HistogramReading, Phase
from gpumon.sizing.simulate.measured_run import LATENCIES, MeasuredRun, RunRecorder
from gpumon.sizing.simulate.requests import ArrivalPace, Draw, RequestShape, constant, histogram

MOST_GAP_S: Final = 86400.0
"""Longest time between two readings, in seconds. A longer one is left out: nobody knows when its requests came, and a
clock that was set wrong for a moment would be decades of nothing."""
_STEP_S: Final = 10.0
"""Shortest step in which arrivals are counted, in seconds; within one they are random."""
_MOST_MODELS: Final = 64
"""Models whose traffic is recorded: names come from outside."""
_ROUNDING: Final = 1e-6
"""Share of a step that rounding of Unix times may add to a span."""


class RecordedTraffic(NamedTuple):
    """The traffic of one model."""

    paces: tuple[ArrivalPace, ...]
    """Arrivals in steps of one length, from time 0 on."""
    requests: float
    prompt: Draw | None
    """Draws the length of a prompt; None: it is not known."""
    answer: Draw | None
    """Draws the length of an answer; None: it is not known."""
    hit_ratio: float
    """Share of the prompt tokens that came from the prefix cache."""
    basis: str
    """Source of the lengths, as a note says it."""
    notes: tuple[str, ...] = ()
    timing: str = "as recorded"
    """Source of the times, as the arrivals are told."""
    has_prefixes: bool = False
    """Whether its requests say what they begin with: an engine counts its hits alone."""
    measured: MeasuredRun | None = None
    """Latencies and throughput of the engines meanwhile; None where nothing tells them."""

    @property
    def seconds(self) -> float:
        """Seconds that it lasts."""
        if self.paces:
            return self.paces[-1].end_s
        return 0.0

    def busiest(self, seconds: float) -> RecordedTraffic:
        """The stretch of at most so many seconds in which most requests arrived."""
        if self.seconds <= seconds:
            return self
        step_s = self.paces[0].end_s - self.paces[0].start_s
        count = max(1, int(seconds / step_s))
        starts = range(len(self.paces) - count + 1)
        first = max(starts, key=lambda start: sum(pace.rate for pace in self.paces[start : start + count]))
        busiest_paces = self.paces[first : first + count]
        begin_s = busiest_paces[0].start_s
        paces = [ArrivalPace(pace.start_s - begin_s, pace.end_s - begin_s, pace.rate) for pace in busiest_paces]
        return self._replace(paces=tuple(paces), requests=sum(pace.rate for pace in paces) * step_s)

    def shape(self, longest: float) -> RequestShape:
        """The shape of its requests, up to `longest` tokens. Raises ValueError where their lengths are not known."""
        if self.prompt is None or self.answer is None:
            raise ValueError("the lengths of the recorded requests are not known: give --prompt and --answer")
        return RequestShape(self.prompt, self.answer, self.hit_ratio, longest=longest)


class _LengthDraw(NamedTuple):
    """A draw of lengths, and its source."""

    draw: Draw | None = None
    """None: nothing."""
    by_histogram: bool = False
    """Whether it has their distribution; else they are all as long as their mean."""


class _Lengths:
    """Lengths of prompts, or of answers, of all engines of a model."""

    def __init__(self) -> None:
        self.bounds: tuple[float, ...] = ()
        """Upper bounds of the buckets."""
        self.counts: list[float] = []
        """Requests in each bucket alone."""
        self.tokens = 0.0
        """Tokens of the requests in the histogram."""
        self.requests = 0.0
        """Requests in the histogram."""
        self.counted_tokens = 0.0
        """Tokens by a counter, for engines without a histogram."""

    def add(self, old: HistogramReading | None, new: HistogramReading | None) -> None:
        """Add the growth of an engine's histogram. A restart, and other buckets than the first ones, are left out."""
        if old is None or new is None or old.bounds != new.bounds:
            return
        if new.count < old.count:  # the engine was started anew
            return
        if self.bounds != new.bounds:
            if self.counts:
                return
            self.bounds = new.bounds
            self.counts = [0.0] * len(new.counts)
        # Counts of a reading are cumulative: each has the requests of all buckets below it, too.
        growth_below = 0.0
        for bucket, (old_count, new_count) in enumerate(zip(old.counts, new.counts, strict=True)):
            growth = new_count - old_count
            self.counts[bucket] += max(0.0, growth - growth_below)
            growth_below = max(growth_below, growth)
        self.tokens += new.sum - old.sum
        self.requests += new.count - old.count

    def draw(self, ended_requests: float) -> _LengthDraw:
        """A draw of lengths. `ended_requests`: number of them, for the mean of engines that only count tokens."""
        if self.requests >= 1.0 and self.tokens > 0.0:
            mean = self.tokens / self.requests
            finite = [bound for bound in self.bounds if bound < math.inf]
            if not finite or sum(self.counts) <= 0.0:  # a summary has sum and number alone
                return _LengthDraw(constant(mean))
            beyond = sum(self.counts[len(finite) :])
            counts = [*self.counts[: len(finite)], beyond]
            return _LengthDraw(histogram(finite, counts, mean), by_histogram=True)
        if self.counted_tokens > 0.0 and ended_requests >= 1.0:
            return _LengthDraw(constant(self.counted_tokens / ended_requests))
        return _LengthDraw()


class _RankReading(NamedTuple):
    """One reading of one rank of an engine."""

    wall_s: float
    """Unix time."""
    ended: float
    """Requests that ended, since the engine started."""
    in_flight: float
    """Requests that run or wait."""
    prompt: HistogramReading | None
    """Lengths of prompts."""
    answer: HistogramReading | None
    """Lengths of answers."""
    counters: Mapping[str, float]
    histograms: Mapping[str, HistogramReading]


class _Model:
    """Traffic of one model over all its engines."""

    def __init__(self) -> None:
        self.arrivals: dict[int, float] = {}
        """Number of a step -> requests that arrived in it."""
        self.ended = 0.0
        """Requests that ended."""
        self.prompts = _Lengths()
        self.answers = _Lengths()
        self.prompt_tokens = 0.0
        self.cached_tokens = 0.0
        self.run = RunRecorder()
        self.last: dict[tuple[str, str, str, str], _RankReading] = {}
        """Host, URL, part and rank of an engine -> its last reading."""


class TrafficRecorder:
    """Takes the readings of engines in their order of time, and makes their traffic of them."""

    def __init__(self, step_s: float = _STEP_S) -> None:
        """`step_s`: seconds of a step in which arrivals are counted, not shorter than the time between two readings."""
        self._step_s = max(_STEP_S, step_s)
        self._models: dict[str, _Model] = {}
        self._begin_s: float | None = None
        """Unix time of the begin; moved on by each time that is left out."""
        self._newest_s = 0.0
        """Unix time of the newest reading."""

    def take(self, wall_s: float, engines: Iterable[EngineReading], host: str = "") -> None:
        """Take the engines of one moment (Unix time); `host`: the machine of a fleet that they are on.

        Engines without a model, and those of other models beyond the first 64, are left out.
        """
        if self._begin_s is None:
            self._begin_s = wall_s
        elif wall_s - self._newest_s > MOST_GAP_S:
            self._begin_s += wall_s - self._newest_s
        self._newest_s = max(self._newest_s, wall_s)
        for engine in engines:
            if not engine.model or engine.phase is not Phase.INFERENCE:
                continue
            if engine.model not in self._models and len(self._models) >= _MOST_MODELS:
                continue
            self._take_engine(wall_s, engine, host, self._models.setdefault(engine.model, _Model()))

    def _take_engine(self, wall_s: float, engine: EngineReading, host: str, model: _Model) -> None:
        """Count what each rank of an engine did since its reading before; not over a restart or a long gap."""
        engine, _ = plausible_engine(engine)
        for rank in engine.ranks:
            if q.REQUESTS not in rank.counters:
                continue
            key = (host, engine.url, engine.part, rank.rank)
            now = _RankReading(
                wall_s=wall_s,
                ended=rank.counters[q.REQUESTS],
                in_flight=rank.gauges.get(q.RUNNING, 0.0) + rank.gauges.get(q.WAITING, 0.0),
                prompt=rank.histograms.get(q.PROMPT_LENGTH),
                answer=rank.histograms.get(q.OUTPUT_LENGTH),
                counters=rank.counters,
                histograms=rank.histograms,
            )
            last = model.last.get(key)
            model.last[key] = now
            if last is not None and now.ended >= last.ended and 0.0 < now.wall_s - last.wall_s <= MOST_GAP_S:
                self._add_growth(model, last, now)
                _add_run(model.run, key, last, now)

    def _add_growth(self, model: _Model, last: _RankReading, now: _RankReading) -> None:
        """Count arrivals, lengths and tokens of a rank between two readings."""
        ended = now.ended - last.ended
        arrived = max(0.0, ended + now.in_flight - last.in_flight)
        self._spread_arrivals(model, last.wall_s, now.wall_s, arrived)
        model.ended += ended
        model.prompts.add(last.prompt, now.prompt)
        model.answers.add(last.answer, now.answer)
        model.prompts.counted_tokens += _growth(last, now, q.PROMPT_TOKENS)
        model.answers.counted_tokens += _growth(last, now, q.DECODE_TOKENS)
        cached = _growth(last, now, q.PREFILL_CACHED)
        computed = _growth(last, now, q.PREFILL_COMPUTED)
        model.cached_tokens += cached
        if computed:
            model.prompt_tokens += cached + computed
        else:
            model.prompt_tokens += _growth(last, now, q.PROMPT_TOKENS)

    def _spread_arrivals(self, model: _Model, last_s: float, now_s: float, arrived: float) -> None:
        """Count arrivals evenly over the time between two readings, which may be many steps: an engine that was not
        reached for an hour had no burst at the middle of it."""
        origin_s = self._begin_s or 0.0
        begin_s = last_s - origin_s
        end_s = now_s - origin_s
        for step in range(int(begin_s // self._step_s), math.ceil(end_s / self._step_s - _ROUNDING)):
            inside_s = min(end_s, (step + 1) * self._step_s) - max(begin_s, step * self._step_s)
            model.arrivals[step] = model.arrivals.get(step, 0.0) + arrived * inside_s / (end_s - begin_s)

    def by_model(self) -> dict[str, RecordedTraffic]:
        """Served model name -> its traffic, of the models for which a request arrived."""
        return {
            name: self._traffic_of(model) for name, model in self._models.items() if sum(model.arrivals.values()) > 0
        }

    def _traffic_of(self, model: _Model) -> RecordedTraffic:
        """The traffic of a model for which requests arrived."""
        step_s = self._step_s
        last_step = max(model.arrivals)
        paces = []
        for step in range(last_step + 1):
            arrived = model.arrivals.get(step, 0.0)
            paces.append(ArrivalPace(step * step_s, (step + 1) * step_s, arrived / step_s))
        prompt = model.prompts.draw(model.ended)
        answer = model.answers.draw(model.ended)
        basis = "the engine's histograms"
        if not (prompt.by_histogram and answer.by_histogram):
            basis = "their means alone: the engine has no histogram of them"
        hit_ratio = min(1.0, model.cached_tokens / model.prompt_tokens) if model.prompt_tokens > 0.0 else 0.0
        return RecordedTraffic(
            paces=tuple(paces),
            requests=sum(model.arrivals.values()),
            prompt=prompt.draw,
            answer=answer.draw,
            hit_ratio=hit_ratio,
            basis=basis,
            measured=model.run.run(),
        )


def _add_run(run: RunRecorder, rank: tuple[str, str, str, str], last: _RankReading, now: _RankReading) -> None:
    """Add what a rank did between two readings."""
    histograms = {name: (last.histograms.get(name), now.histograms.get(name)) for name in LATENCIES}
    in_flight = (last.in_flight + now.in_flight) / 2.0
    run.add(rank, now.wall_s - last.wall_s, in_flight, _growth(last, now, q.DECODE_TOKENS), histograms)


def _growth(last: _RankReading, now: _RankReading, counter: str) -> float:
    """Growth of a counter between two readings; 0 where it is absent or was set back."""
    if counter not in last.counters or counter not in now.counters:
        return 0.0
    return max(0.0, now.counters[counter] - last.counters[counter])
