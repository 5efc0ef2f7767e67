"""The traffic of engines as they were seen: arrivals over time and the lengths of requests, by model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineReading, HistogramReading, Phase
from gpumon.sizing.simulate.requests import ArrivalPace, Draw, RequestShape, constant, histogram

MOST_GAP_S: Final = 86400.0
"""A longer time without readings is left out: nobody knows when its requests came, and a clock that was set wrong for a
moment would be decades of nothing."""
_STEP_S: Final = 10.0
"""Arrivals are counted in steps of so long at least; within one they are random."""
_MOST_MODELS: Final = 64
_ROUNDING: Final = 1e-6
"""Share of a step that rounding of Unix times may add to a span."""


class RecordedTraffic(NamedTuple):
    """The traffic of one model."""

    paces: tuple[ArrivalPace, ...]
    """Arrivals step by step, from time 0 on."""
    requests: float
    prompt: Draw | None
    """None: the length of prompts was not seen."""
    answer: Draw | None
    hit_ratio: float
    """Share of the prompt tokens that came from the prefix cache."""
    basis: str
    """Source of the lengths, as a note says it."""

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.paces[-1].end_s if self.paces else 0.0

    def busiest(self, seconds: float) -> RecordedTraffic:
        """The stretch of at most so many seconds in which most requests arrived."""
        if self.seconds <= seconds:
            return self
        step_s = self.paces[0].end_s - self.paces[0].start_s
        count = max(1, int(seconds / step_s))
        starts = range(len(self.paces) - count + 1)
        first = max(starts, key=lambda at: sum(pace.rate for pace in self.paces[at : at + count]))
        kept = self.paces[first : first + count]
        from_s = kept[0].start_s
        paces = tuple(ArrivalPace(pace.start_s - from_s, pace.end_s - from_s, pace.rate) for pace in kept)
        return self._replace(paces=paces, requests=sum(pace.rate for pace in kept) * step_s)

    def shape(self, longest: float) -> RequestShape:
        """How its requests look. ValueError where their lengths were not seen."""
        if self.prompt is None or self.answer is None:
            raise ValueError("the lengths of the recorded requests are not known: give --prompt and --answer")
        return RequestShape(self.prompt, self.answer, self.hit_ratio, longest=longest)


class _Lengths:
    """Growth of a histogram of lengths over all engines of a model, and of the tokens behind it."""

    def __init__(self) -> None:
        self.bounds: tuple[float, ...] = ()
        self.counts: list[float] = []
        self.tokens = 0.0
        self.requests = 0.0
        self.counted_tokens = 0.0
        """Tokens by a counter, where there is no histogram."""

    def add(self, old: HistogramReading | None, new: HistogramReading | None) -> None:
        """Take what a histogram grew by; a restart, and other buckets than before, are left out."""
        if old is None or new is None or old.bounds != new.bounds or new.count < old.count:
            return
        if self.bounds != new.bounds:
            if self.counts:
                return
            self.bounds = new.bounds
            self.counts = [0.0] * len(new.counts)
        below = 0.0
        for at, (before, now) in enumerate(zip(old.counts, new.counts, strict=True)):
            up_to = now - before
            self.counts[at] += max(0.0, up_to - below)
            below = max(below, up_to)
        self.tokens += new.sum - old.sum
        self.requests += new.count - old.count

    def draw(self, ended: float) -> tuple[Draw | None, bool]:
        """Draws a length, and whether it does so from a histogram; `ended`: requests that ended."""
        if self.requests >= 1.0 and self.tokens > 0.0:
            mean = self.tokens / self.requests
            finite = []
            for bound in self.bounds:
                if bound < math.inf:
                    finite.append(bound)
            if not finite or sum(self.counts) <= 0.0:  # sum and number alone, as a summary has them
                return constant(mean), False
            counts = [*self.counts[: len(finite)], sum(self.counts[len(finite) :])]
            return histogram(finite, counts, mean), True
        if self.counted_tokens > 0.0 and ended >= 1.0:
            return constant(self.counted_tokens / ended), False
        return None, False


class _Last(NamedTuple):
    """The last figures of one rank of an engine."""

    wall_s: float
    ended: float
    in_flight: float
    prompt: HistogramReading | None
    answer: HistogramReading | None
    counters: Mapping[str, float]


class _Model:
    """Traffic of one model, all its engines."""

    def __init__(self) -> None:
        self.arrivals: dict[int, float] = {}
        self.ended = 0.0
        self.prompts = _Lengths()
        self.answers = _Lengths()
        self.prompt_tokens = 0.0
        self.cached_tokens = 0.0
        self.last: dict[tuple[str, str, str, str], _Last] = {}


class TrafficSeen:
    """Takes the readings of engines in their order of time, and tells what was asked of them."""

    def __init__(self, step_s: float = _STEP_S) -> None:
        """`step_s`: at least as long as readings are apart."""
        self._step_s = max(_STEP_S, step_s)
        self._models: dict[str, _Model] = {}
        self._from_s: float | None = None
        self._to_s = 0.0

    def take(self, wall_s: float, engines: Iterable[EngineReading], host: str = "") -> None:
        """Take the engines of one moment (Unix time) in; `host`: the machine of a fleet that they are of."""
        if self._from_s is None:
            self._from_s = wall_s
        elif wall_s - self._to_s > MOST_GAP_S:
            self._from_s += wall_s - self._to_s
        self._to_s = max(self._to_s, wall_s)
        for engine in engines:
            if not engine.model or engine.phase is not Phase.INFERENCE:
                continue
            if engine.model not in self._models and len(self._models) >= _MOST_MODELS:
                continue
            self._take(wall_s, engine, host, self._models.setdefault(engine.model, _Model()))

    def _take(self, wall_s: float, engine: EngineReading, host: str, model: _Model) -> None:
        for rank in engine.ranks:
            if q.REQUESTS not in rank.counters:
                continue
            key = (host, engine.url, engine.part, rank.rank)
            now = _Last(
                wall_s=wall_s,
                ended=rank.counters[q.REQUESTS],
                in_flight=rank.gauges.get(q.RUNNING, 0.0) + rank.gauges.get(q.WAITING, 0.0),
                prompt=rank.histograms.get(q.PROMPT_LENGTH),
                answer=rank.histograms.get(q.OUTPUT_LENGTH),
                counters=rank.counters,
            )
            last = model.last.get(key)
            model.last[key] = now
            if last is not None and now.ended >= last.ended and 0.0 < now.wall_s - last.wall_s <= MOST_GAP_S:
                self._grown(model, last, now)

    def _grown(self, model: _Model, last: _Last, now: _Last) -> None:
        """Count arrivals, lengths and tokens of an engine between two readings."""
        ended = now.ended - last.ended
        arrived = max(0.0, ended + now.in_flight - last.in_flight)
        self._spread(model, last.wall_s, now.wall_s, arrived)
        model.ended += ended
        model.prompts.add(last.prompt, now.prompt)
        model.answers.add(last.answer, now.answer)
        model.prompts.counted_tokens += _grew(last, now, q.PROMPT_TOKENS)
        model.answers.counted_tokens += _grew(last, now, q.DECODE_TOKENS)
        cached = _grew(last, now, q.PREFILL_CACHED)
        computed = _grew(last, now, q.PREFILL_COMPUTED)
        model.cached_tokens += cached
        model.prompt_tokens += cached + computed if computed else _grew(last, now, q.PROMPT_TOKENS)

    def _spread(self, model: _Model, last_s: float, now_s: float, arrived: float) -> None:
        """Count arrivals evenly over the time between two readings, which may be many steps: an engine that was not
        reached for an hour had no burst at the middle of it."""
        start_s = self._from_s if self._from_s is not None else 0.0
        begin_s = last_s - start_s
        end_s = now_s - start_s
        for step in range(int(begin_s // self._step_s), math.ceil(end_s / self._step_s - _ROUNDING)):
            inside_s = min(end_s, (step + 1) * self._step_s) - max(begin_s, step * self._step_s)
            model.arrivals[step] = model.arrivals.get(step, 0.0) + arrived * inside_s / (end_s - begin_s)

    def found(self) -> dict[str, RecordedTraffic]:
        """By served model name; of models of which no request was seen to arrive there is nothing."""
        by_model = {}
        for name, model in self._models.items():
            if sum(model.arrivals.values()) > 0:
                by_model[name] = self._recorded(model)
        return by_model

    def _recorded(self, model: _Model) -> RecordedTraffic:
        step_s = self._step_s
        last = max(model.arrivals)
        paces = []
        for step in range(last + 1):
            arrived = model.arrivals.get(step, 0.0)
            paces.append(ArrivalPace(step * step_s, (step + 1) * step_s, arrived / step_s))
        prompt, prompt_bucketed = model.prompts.draw(model.ended)
        answer, answer_bucketed = model.answers.draw(model.ended)
        basis = "the engine's histograms"
        if not (prompt_bucketed and answer_bucketed):
            basis = "their means alone: the engine has no histogram of them"
        if model.prompt_tokens > 0.0:
            hits = min(1.0, model.cached_tokens / model.prompt_tokens)
        else:
            hits = 0.0
        return RecordedTraffic(tuple(paces), sum(model.arrivals.values()), prompt, answer, hits, basis)


def _grew(last: _Last, now: _Last, counter: str) -> float:
    """By how much a counter grew; 0 where it is not there or was set back."""
    if counter not in last.counters or counter not in now.counters:
        return 0.0
    return max(0.0, now.counters[counter] - last.counters[counter])
