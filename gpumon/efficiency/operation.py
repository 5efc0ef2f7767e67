"""How many sequences ran, how fast and with what traffic: the figures that sizing fits its curves to."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from gpumon.efficiency.flow import counter_advance
from gpumon.efficiency.lengths import answer_mean, mean_of, prompt_mean
from gpumon.efficiency.quantiles import ENOUGH
from gpumon.efficiency.rates import Rates
from gpumon.efficiency.steps import tokens_per_gap
from gpumon.efficiency.windows import Point, Track, sum_known
from gpumon.readings.frame import Advance, EngineReading, HistogramReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.quantities import (
    ITL,
    PREFILL_CACHED,
    PREFILL_COMPUTED,
    PROMPT_TOKENS,
    QUEUE,
    REQUESTS,
    RUNNING,
    TTFT,
)
from gpumon.readings.snapshot import Window

EVERY_GAP = 0.5
"""Gaps / tokens below which not every gap is in the histogram: first tokens have none, and short answers many."""
TWICE = Missing(Reason.INVALID, "prefix hits exceed the prompts: the engine counts waiting requests again")


def operation(reading: EngineReading, track: Track, found: Rates, ranks: int) -> dict[str, Any]:
    """The figures by field of `Engine`: concurrency and ITL over the rate window, lengths over that of the quantiles.

    With speculation a step gives a sequence several tokens at one gap, where the engine counts gaps between steps.
    """
    load = _load(track)
    per_gap = tokens_per_gap(reading, found.tokens_per_step)
    gaps = track.histogram(ITL, track.rate_s)
    gap_s = mean_of(track, ITL, gaps)
    return {
        "ranks": ranks,
        "running_mean": (NOT_EXPOSED if len(track.points) > 1 else track.not_yet) if load is None else load[0],
        "itl_mean_s": gap_s if isinstance(gap_s, Missing) else gap_s / per_gap,
        "prompt_tokens_mean": prompt_mean(reading, track),
        "answer_tokens_mean": answer_mean(reading, track),
        "cached_ratio": _cached(reading, track),
        "window": None if load is None else _window(track, found, load, gaps, per_gap),
    }


def _window(
    track: Track, found: Rates, load: tuple[float, float, float], gaps: HistogramReading | None, per_gap: float
) -> Window:
    span_s = track.length_s(track.rate_s)
    ttft_s, queue_s = (number(mean_of(track, of, track.histogram(of, track.rate_s))) for of in (TTFT, QUEUE))
    return Window(
        seconds=span_s,
        running_least=load[1],
        running_most=load[2],
        decoding_mean=_decoding(gaps, number(found.decode), span_s, per_gap),
        first_token_s=None if ttft_s is None else max(0.0, ttft_s - (queue_s or 0.0)),
    )


def _decoding(gaps: HistogramReading | None, generated: float | None, span_s: float, per_gap: float) -> float | None:
    """Sum of all gaps between tokens / window. None where the histogram has one mean per request, not every gap."""
    if gaps is None or generated is None or gaps.count * per_gap < EVERY_GAP * generated * span_s:
        return None
    return gaps.sum / span_s


def _load(track: Track) -> tuple[float, float, float] | None:
    """Mean over time, least and most of the running gauge within the rate window, summed over the ranks."""
    pair = track.window(track.rate_s)
    if pair is None:
        return None
    inside = [point for point in track.points if point.monotonic_s >= pair[0].monotonic_s]
    seen = [(point.monotonic_s, running) for point in inside if (running := _running(point)) is not None]
    if len(seen) < 2:
        return None
    area = sum((b + a) / 2 * (t - s) for (s, a), (t, b) in pairwise(seen))
    counts = [running for _, running in seen]
    return area / (seen[-1][0] - seen[0][0]), min(counts), max(counts)


def _running(point: Point) -> float | None:
    return sum_known(rank.gauges.get(RUNNING) for rank in point.ranks.values())


def _cached(reading: EngineReading, track: Track) -> Reading:
    """Share of the prompt tokens that came from the prefix cache.

    Of the counters of tokens, never of prefix queries: a request that waits is queried again at each step. vLLM before
    0.16 has only hits, which suffer from the same: more of them than prompt tokens are no figure.
    """
    cached, computed = (track.rate(quantity, track.quantile_s) for quantity in (PREFILL_CACHED, PREFILL_COMPUTED))
    if isinstance(cached, Missing):
        return cached
    if "hits" in reading.live.get(PREFILL_CACHED, ""):
        prompt = track.rate(PROMPT_TOKENS, track.quantile_s)
        if isinstance(prompt, Missing):
            return prompt
        return TWICE if cached > prompt else (cached / prompt if prompt > 0 else Missing(Reason.IDLE))
    if isinstance(computed, Missing):
        return computed
    late = [counter_advance(reading, track, of) is Advance.END for of in (PREFILL_CACHED, PREFILL_COMPUTED)]
    ended = number(track.rate(REQUESTS, track.quantile_s)) or 0.0
    if late[0] is not late[1] and ended * track.length_s(track.quantile_s) < ENOUGH:
        return Missing(Reason.FEW, "cached and computed tokens are counted at different moments of a request")
    return cached / (cached + computed) if cached + computed > 0 else Missing(Reason.IDLE)
