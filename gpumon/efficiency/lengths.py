"""How long prompts, answers and contexts are: what attention and the KV cache depend on."""

from __future__ import annotations

from gpumon.efficiency.flow import counter_advance
from gpumon.efficiency.quantiles import ENOUGH, mean, size_biased_mean
from gpumon.efficiency.windows import Track
from gpumon.readings.frame import Advance, EngineReading, HistogramReading
from gpumon.readings.missing import Missing, Reading, Reason, number
from gpumon.readings.quantities import (
    BLOCK_PRODUCT,
    DECODE_TOKENS,
    KV_USAGE,
    OUTPUT_LENGTH,
    POOL_TOKENS,
    PROMPT_LENGTH,
    PROMPT_TOKENS,
    REQUESTS,
    RUNNING,
    TTFT,
    USED_TOKENS,
)

IDLE = Missing(Reason.IDLE)
KV_SHARE = 0.9
"""Of the KV pool that requests of mixed lengths fill, so what is planned with: measured plateaus lie 10 to 12 % below
the formula (NIM 70B: 85.5 of 94)."""


def mean_of(track: Track, quantity: str, window: HistogramReading | None) -> Reading:
    """Mean of a window's observations; warming up where the engine has the histogram and the window does not."""
    return track.not_yet if window is None and track.has_histogram(quantity) else mean(window)


def prompt_mean(reading: EngineReading, track: Track) -> Reading:
    """Mean prompt, cached tokens included: of requests that ended, else tokens per first token, else per request."""
    seen = mean_of(track, PROMPT_LENGTH, track.histogram(PROMPT_LENGTH, track.quantile_s))
    if not isinstance(seen, Missing) or seen.reason is not Reason.NOT_EXPOSED:
        return seen
    of_firsts = _per_first_token(reading, track, track.quantile_s)
    return _per_request(reading, track, PROMPT_TOKENS) if of_firsts is None else of_firsts


def answer_mean(reading: EngineReading, track: Track) -> Reading:
    """Mean answer: of the requests that ended, else generated tokens per request."""
    seen = mean_of(track, OUTPUT_LENGTH, track.histogram(OUTPUT_LENGTH, track.quantile_s))
    if not isinstance(seen, Missing) or seen.reason is not Reason.NOT_EXPOSED:
        return seen
    return _per_request(reading, track, DECODE_TOKENS)


def _per_first_token(reading: EngineReading, track: Track, seconds: float) -> Reading | None:
    """Prompt tokens per first token of the last `seconds`; None where one of the two is not told, or the tokens are
    counted later than the first token: at its end, when others have long had theirs."""
    firsts, tokens = track.histogram(TTFT, seconds), track.rate(PROMPT_TOKENS, seconds)
    ended = counter_advance(reading, track, PROMPT_TOKENS) is Advance.END
    if firsts is None or isinstance(tokens, Missing) or ended:
        return None
    return tokens * track.length_s(seconds) / firsts.count if firsts.count > 0 else IDLE


def _per_request(reading: EngineReading, track: Track, counter: str) -> Reading:
    """Tokens per request that ended. Of tokens that are counted earlier than that only over enough requests."""
    tokens, ended = (track.rate(quantity, track.quantile_s) for quantity in (counter, REQUESTS))
    if isinstance(tokens, Missing) or isinstance(ended, Missing):
        return tokens if isinstance(tokens, Missing) else ended
    count = ended * track.length_s(track.quantile_s)
    if count <= 0.0:
        return IDLE
    together = counter_advance(reading, track, counter) is Advance.END
    return tokens / ended if together or count >= ENOUGH else Missing(Reason.FEW)


def context(reading: EngineReading, track: Track) -> tuple[Reading, str]:
    """Mean tokens in context of a running sequence: KV pool, else recent request lengths, else the config."""
    used = running = 0.0
    exact = not _shared_pool(reading)
    for point in track.inside(track.rate_s):
        for rank in point.ranks.values():
            gauges = rank.gauges
            running += gauges.get(RUNNING, 0.0)
            if USED_TOKENS in gauges:
                used += gauges[USED_TOKENS]
            elif KV_USAGE in gauges and POOL_TOKENS in gauges:
                used += gauges[KV_USAGE] * gauges[POOL_TOKENS]
            else:
                exact = False
    if exact and running > 0 and used > 0:
        return used / running, "KV tokens in use / running"
    prompt, answer = number(prompt_mean(reading, track)), number(answer_mean(reading, track))
    if prompt is not None and answer is not None:
        span_s = track.length_s(track.quantile_s)
        return prompt + answer / 2, f"mean prompt + half the mean answer of the last {span_s:.0f} s"
    if not isinstance(reading.context_tokens, Missing):
        return reading.context_tokens, "config"
    return Missing(Reason.NO_CONTEXT if running > 0 else Reason.IDLE), ""


def pool_tokens(reading: EngineReading, track: Track) -> Reading:
    """Tokens that the KV cache of all ranks holds."""
    shared = Missing(Reason.NOT_MODELLED, "layers of several kinds share the pool: its blocks are not tokens")
    return shared if _shared_pool(reading) else track.gauge(POOL_TOKENS)


def _shared_pool(reading: EngineReading) -> bool:
    """Whether layers of several kinds share a pool of which only the blocks are known."""
    llm = reading.llm
    mixed = llm is not None and not llm.uniform
    return mixed and reading.live.get(POOL_TOKENS, "").endswith(BLOCK_PRODUCT)


def prompt_length(reading: EngineReading, track: Track, window_s: float, context_tokens: Reading) -> Reading:
    """Size-biased mean prompt, cached tokens included; where only the mean is known, that, and else the context.

    The last two are rough, but attention is a few per cent of a prompt's FLOPs up to some thousand tokens.
    """
    biased = size_biased_mean(track.histogram(PROMPT_LENGTH, track.quantile_s))
    if biased is not None:
        return biased
    of_firsts = _per_first_token(reading, track, window_s)
    if of_firsts is not None and not isinstance(of_firsts, Missing):
        return of_firsts
    told = _per_request(reading, track, PROMPT_TOKENS)
    return context_tokens if isinstance(told, Missing) else told
