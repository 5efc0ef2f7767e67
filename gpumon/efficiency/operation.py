"""How many sequences ran, how fast and with what traffic: the figures that sizing fits its curves to."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from gpumon.efficiency.quantiles import mean
from gpumon.efficiency.windows import Point, Track, sum_known
from gpumon.readings.frame import EngineReading, HistogramReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.quantities import (
    DECODE_TOKENS,
    ITL,
    OUTPUT_LENGTH,
    PREFILL_CACHED,
    PREFILL_COMPUTED,
    PROMPT_LENGTH,
    PROMPT_TOKENS,
    QUEUE,
    RUNNING,
    TTFT,
)
from gpumon.readings.snapshot import Window

TWICE = Missing(Reason.INVALID, "prefix hits exceed the prompts: the engine counts waiting requests again")


def operation(reading: EngineReading, track: Track, tokens_per_step: float) -> dict[str, Any]:
    """The figures by field of `Engine`: concurrency and ITL over the rate window, lengths over that of the quantiles.

    `tokens_per_step` is per sequence: 1 without speculation, whose steps give several tokens at one gap.
    """
    load = _load(track)
    gaps = track.histogram(ITL, track.rate_s)
    gap_s = _of(track, ITL, gaps)
    return {
        "ranks": len(track.points[-1].ranks) if track.points else 0,
        "running_mean": (NOT_EXPOSED if len(track.points) > 1 else track.not_yet) if load is None else load[0],
        "itl_mean_s": gap_s if isinstance(gap_s, Missing) else gap_s / tokens_per_step,
        "prompt_tokens_mean": _prompt(track),
        "answer_tokens_mean": _of(track, OUTPUT_LENGTH, track.histogram(OUTPUT_LENGTH, track.quantile_s)),
        "cached_ratio": _cached(reading, track),
        "window": None if load is None else _window(track, load, gaps),
    }


def _window(track: Track, load: tuple[float, float, float], gaps: HistogramReading | None) -> Window:
    span_s = track.length_s(track.rate_s)
    prefill, decode = (track.rate(quantity, track.rate_s) for quantity in (PREFILL_COMPUTED, DECODE_TOKENS))
    computed, generated = number(prefill), number(decode)
    total = None if computed is None or generated is None else computed + generated
    ttft_s, queue_s = (number(_of(track, of, track.histogram(of, track.rate_s))) for of in (TTFT, QUEUE))
    return Window(
        seconds=span_s,
        running_least=load[1],
        running_most=load[2],
        decoding_mean=None if gaps is None else gaps.sum / span_s,
        prefill_ratio=computed / total if computed is not None and total else None,
        first_token_s=None if ttft_s is None else max(0.0, ttft_s - (queue_s or 0.0)),
    )


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


def _of(track: Track, quantity: str, window: HistogramReading | None) -> Reading:
    return track.not_yet if window is None and track.has_histogram(quantity) else mean(window)


def _prompt(track: Track) -> Reading:
    """Mean prompt: of the requests that ended, else prompt tokens per first token of a request."""
    seen = _of(track, PROMPT_LENGTH, track.histogram(PROMPT_LENGTH, track.quantile_s))
    if not isinstance(seen, Missing) or seen.reason is not Reason.NOT_EXPOSED:
        return seen
    firsts, tokens = track.histogram(TTFT, track.quantile_s), track.rate(PROMPT_TOKENS, track.quantile_s)
    if isinstance(tokens, Missing) or firsts is None:
        return tokens if isinstance(tokens, Missing) else NOT_EXPOSED
    return tokens * track.length_s(track.quantile_s) / firsts.count if firsts.count > 0 else Missing(Reason.IDLE)


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
    return cached / (cached + computed) if cached + computed > 0 else Missing(Reason.IDLE)
