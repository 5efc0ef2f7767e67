"""The rate of what an engine counts: from which of its series, and how much of a rate of now it is."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.efficiency.windows import Track
from gpumon.readings.frame import Advance, EngineReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.quantities import DECODE_RATE, DECODE_TOKENS, RUNNING

NOT_LIVE: Final = Missing(Reason.NOT_LIVE)
_COUNTER: Final = {
    Advance.LIVE: "{metric} over {span_s} s",
    Advance.PROMPT: "{metric} over {span_s} s, smoothed: a whole prompt is booked at its first token",
    Advance.DERIVED: "worked out: {metric}, over {span_s} s",
    Advance.SAMPLED: "sampled: {metric}, over {span_s} s",
    Advance.END: "{metric}: counted when a request ends, so there is no rate of now",
}
_GAUGE: Final = {
    Advance.DERIVED: "worked out: {metric}, mean of {span_s} s",
    Advance.SAMPLED: "sampled: {metric}, mean of {span_s} s",
}
COARSE: Final = 100.0
"""Tokens below which one more or less in a window is more than 1 % of its rate."""
_WEAKEST: Final = tuple(Advance(name) for name in ("live", "prompt", "derived", "sampled", "end"))


class Flow(NamedTuple):
    """An amount per second."""

    per_s: Reading
    advance: Advance | None = None
    """When the series behind it moves; None where there is none."""
    source: str = ""


NOWHERE: Final = Flow(NOT_EXPOSED)


def flow(
    reading: EngineReading, track: Track, counter: str, gauge: str = "", seconds: float = 0.0, steady_s: float = 0.0
) -> Flow:
    """The rate of a counter over `seconds` (0: the window of the rates), else the engine's own gauge of that rate.

    Few tokens make a coarse rate: it is that of `steady_s`, where that is the same to within a token (`_finer`).

    A counter that moves when a request ends is 0 for as long as one runs and then jumps by all of it: it gives no rate
    of now. The engine's gauge does, as the mean of its samples.
    """
    seconds = seconds or track.rate_s
    moves = counter_advance(reading, track, counter)
    if moves is not None and moves is not Advance.END:
        seconds = _finer(track, counter, seconds, steady_s) if steady_s else seconds
        return Flow(track.rate(counter, seconds), moves, _said(_COUNTER[moves], reading, counter, track, seconds))
    samples = track.samples(gauge, track.rate_s) if gauge else []
    if samples:
        how = gauge_advance(reading, gauge)
        text = _said(_GAUGE[how], reading, gauge, track, track.rate_s)
        return Flow(0.0 if _rests(track, counter) else sum(samples) / len(samples), how, text)
    if moves is None:
        return Flow(NOT_EXPOSED, source=reading.live.get(counter, ""))
    return Flow(NOT_LIVE, moves, _said(_COUNTER[moves], reading, counter, track, seconds))


def _finer(track: Track, counter: str, seconds: float, steady_s: float) -> float:
    """The longer window where the shorter one has few tokens, and the two tell the same to within one of them."""
    brief, span_s = number(track.rate(counter, seconds)), track.length_s(seconds)
    if not brief or brief * span_s >= COARSE:
        return seconds
    steady = number(track.rate(counter, steady_s))
    return steady_s if steady is not None and abs(steady - brief) * span_s <= 1.0 else seconds


def newest(reading: EngineReading, track: Track, counter: str, gauge: str) -> Reading:
    """The same between the two newest polls, for charts."""
    moves = counter_advance(reading, track, counter)
    if moves is not None and moves is not Advance.END:
        return track.rate(counter, 0.0)
    samples = track.samples(gauge, 0.0)
    if not samples:
        return NOT_EXPOSED if moves is None else NOT_LIVE
    return 0.0 if _rests(track, counter) else samples[-1]


def rank_decode(reading: EngineReading, track: Track, rank: str) -> Reading:
    """Tokens/s that one rank generated over the window of the rates, from the series that the whole is from."""
    moves = counter_advance(reading, track, DECODE_TOKENS)
    if moves is not None and moves is not Advance.END:
        return track.rank_rate(rank, DECODE_TOKENS, track.rate_s)
    samples = track.rank_samples(rank, DECODE_RATE, track.rate_s)
    if not samples:
        return NOT_EXPOSED if moves is None else NOT_LIVE
    return sum(samples) / len(samples)


def counter_advance(reading: EngineReading, track: Track, counter: str) -> Advance | None:
    """When a counter moves; None where it is not exported."""
    return reading.advance.get(counter, Advance.LIVE) if track.counts(counter) else None


def gauge_advance(reading: EngineReading, gauge: str) -> Advance:
    """A gauge of a rate is a sample, unless the adapter works it out."""
    return Advance.DERIVED if reading.advance.get(gauge) is Advance.DERIVED else Advance.SAMPLED


def weakest(advances: Iterable[Advance | None]) -> Advance | None:
    """The one that is least of a rate of now: that of a figure made of several."""
    known = [advance for advance in advances if advance is not None]
    return max(known, key=_WEAKEST.index, default=None)


def _rests(track: Track, counter: str) -> bool:
    """Whether nothing ran at any poll of the window and nothing ended in it: a gauge then shows what was.

    SGLang before 0.5.7 leaves its last throughput standing when the last request has ended.
    """
    ended = track.rate(counter, track.rate_s)
    running = track.samples(RUNNING, track.rate_s)
    return ended == 0.0 and bool(running) and not any(running)


def _said(text: str, reading: EngineReading, quantity: str, track: Track, seconds: float) -> str:
    metric = reading.live.get(quantity, "")
    return _filled(text, metric, max(1, round(track.length_s(seconds)))) if metric else ""


@lru_cache(maxsize=256)
def _filled(text: str, metric: str, span_s: int) -> str:
    return text.format(metric=metric, span_s=span_s)
