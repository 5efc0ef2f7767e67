"""How long prompts, answers and contexts are: what attention and the KV cache depend on."""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec

from gpumon.efficiency.quantiles import ENOUGH, size_biased_mean
from gpumon.efficiency.tracks import CounterWindow, Track
from gpumon.readings import quantities as q
from gpumon.readings.frame import POOL_SIZE_UNTOLD, Advance, EngineReading, RankReading
from gpumon.readings.missing import Missing, Reading, Reason, number
from gpumon.specs.llm import Reach

_IDLE = Missing(Reason.IDLE)
IN_USE = "KV tokens in use / running"
"""Source of a context that is known by the use of the KV pool."""
_OTHER_TRAFFIC = 2.0
"""Mean prompt of the requests that ended / that of those at their first token, from which they are other traffic."""
KV_SHARE = 0.9
"""Share of the KV pool that requests of mixed lengths fill, so plans use it: measured plateaus lie 10 to 12% below the
formula (NIM 70B: 85.5 of 94)."""


def requests_that_fit(pool_tokens: float, request_tokens: float, share: float = 1.0) -> float:
    """Requests that a KV pool holds when they fill that share of it.

    Triage asks it of the requests that run at this moment, with their mean context; sizing of whole requests (prompt
    and answer, windows and states as they are reserved) and `KV_SHARE`, which is what an engine lets in.
    """
    return share * pool_tokens / request_tokens


def prompt_mean(track: Track) -> Reading:
    """Mean prompt, cached tokens included: of requests that ended, else tokens per first token, else per request."""
    of_ended = track.long.mean(q.PROMPT_LENGTH)
    if not isinstance(of_ended, Missing) or of_ended.reason is not Reason.NOT_EXPOSED:
        return of_ended
    per_first_token = _per_first_token(track)
    if per_first_token is None:
        return _per_request(track, q.PROMPT_TOKENS)
    return per_first_token


def answer_mean(track: Track) -> Reading:
    """Mean answer: of the requests that ended, else generated tokens per request."""
    of_ended = track.long.mean(q.OUTPUT_LENGTH)
    if not isinstance(of_ended, Missing) or of_ended.reason is not Reason.NOT_EXPOSED:
        return of_ended
    return _per_request(track, q.DECODE_TOKENS)


def _per_first_token(track: Track) -> Reading | None:
    """Prompt tokens per first token in the window of the quantiles; None where one of the two is not exported."""
    if track.long.sum_and_count(q.TTFT) is None or not _prompt_counters(track):
        return None
    prompts = _prompts_begun(track, track.long)
    if prompts.number > 0.0:
        return prompts.tokens / prompts.number
    return _IDLE


def _prompt_counters(track: Track) -> tuple[str, ...]:
    """Counters that make up all prompt tokens and move with the first token or before it; empty where there are none.

    One that moves at a request's end has the tokens of others than those that get their first token then.
    """
    for names in ((q.PROMPT_TOKENS,), (q.PREFILL_COMPUTED, q.PREFILL_CACHED)):
        if all(track.advance_of(name) not in (None, Advance.END) for name in names):
            return names
    return ()


def length_steps(track: Track, quantity: str) -> tuple[tuple[float, float], ...]:
    """Cumulative shares of a histogram of lengths, by upper bound; empty with few observations or without buckets.

    What is in the bucket without an upper bound counts at the last one that there is.
    """
    ended = track.long.histogram(quantity)
    if ended is None or ended.count < ENOUGH or len(ended.bounds) < 2 or not ended.counts[-1]:
        return ()
    whole = ended.counts[-1]
    steps = [(bound, count / whole) for bound, count in zip(ended.bounds[:-1], ended.counts[:-1], strict=True)]
    last_bound, _ = steps[-1]
    return (*steps[:-1], (last_bound, 1.0))


class _PromptsBegun(msgspec.Struct, frozen=True):
    """Prompts that got their first token in a window."""

    tokens: float
    """Sum of their lengths."""
    least_squares: float
    """Sum of the squares of their lengths, at the least."""
    number: float
    """Number of first tokens, so of prompts."""


def _prompts_begun(track: Track, window: CounterWindow) -> _PromptsBegun:
    """Prompts that got their first token in a window; zeros where they are not exported.

    Between two polls the squares are those of equal prompts: of no others is the sum less. A prompt that is counted in
    chunks belongs to the poll that has its first token.
    """
    names = _prompt_counters(track)
    tokens = 0.0
    squares = 0.0
    number = 0.0
    pending_tokens = 0.0
    points = window.points if names else []
    for old, new in pairwise(points):
        first_tokens = 0.0
        for name, rank in new.ranks.items():
            before = old.ranks.get(name)
            if before is not None:
                first_tokens += _first_tokens(rank) - _first_tokens(before)
                for counter in names:
                    if counter in before.counters:
                        pending_tokens += rank.counters[counter] - before.counters[counter]
        if first_tokens > 0.0:
            tokens += pending_tokens
            squares += pending_tokens * pending_tokens / first_tokens
            number += first_tokens
            pending_tokens = 0.0
    return _PromptsBegun(tokens=tokens, least_squares=squares, number=number)


def _first_tokens(rank: RankReading) -> float:
    """First tokens that a rank has given."""
    ttft = rank.histograms.get(q.TTFT)
    if ttft is None:
        return 0.0
    return ttft.count


def _per_request(track: Track, counter: str) -> Reading:
    """Tokens per request that ended; for tokens that are counted earlier than that only over enough requests."""
    tokens = track.long.rate(counter)
    if isinstance(tokens, Missing):
        return tokens
    ended = track.long.rate(q.REQUESTS)
    if isinstance(ended, Missing):
        return ended
    count = ended * track.long.length_s
    if count <= 0.0:
        return _IDLE
    is_counted_at_end = track.advance_of(counter) is Advance.END
    if is_counted_at_end or count >= ENOUGH:
        return tokens / ended
    return Missing(Reason.FEW)


def context(reading: EngineReading, track: Track) -> tuple[Reading, str]:
    """Mean tokens in context of a running sequence: KV pool, else recent request lengths, else the config.

    Of a sequence with states or windows a share of the pool is used whatever its length (vLLM 0.32 gives a pool's
    tokens for sequences of the longest context): its lengths come first, of requests that ended or are under way.
    """
    pool = _use_of_pool(track)
    in_use = pool.tokens_per_request
    if in_use is None or _is_pool_shared(reading):
        of_ended = context_of_ended(track)
        if of_ended is not None:
            return of_ended
    elif pool.is_counted or not _has_layers_of_fixed_size(reading):
        return in_use, IN_USE
    else:
        return context_of_ended(track) or _context_of_begun(track) or (in_use, IN_USE)
    if not isinstance(reading.context_tokens, Missing):
        return reading.context_tokens, "config"
    if pool.running > 0:
        return Missing(Reason.NO_CONTEXT), ""
    return _IDLE, ""


class _PoolUse(msgspec.Struct, frozen=True):
    """Use of the KV pool, summed over the ranks at the polls of the window of the rates."""

    used: float
    """Tokens."""
    running: float
    """Requests."""
    is_complete: bool
    """Each rank had them at each poll."""
    is_counted: bool
    """The engine counts tokens; else they are a share of the pool."""

    @property
    def tokens_per_request(self) -> float | None:
        """Tokens per request; None where they are not known, or nothing ran."""
        if not self.is_complete or self.running <= 0 or self.used <= 0:
            return None
        return self.used / self.running


def _use_of_pool(track: Track) -> _PoolUse:
    """Use of the KV pool in the window of the rates, by requests: what was in use while none ran is nobody's."""
    held = _held_by_nobody(track)
    used = 0.0
    running = 0.0
    is_complete = True
    is_counted = True
    for point in track.short.inside:
        for rank in point.ranks.values():
            gauges = rank.gauges
            running += gauges.get(q.RUNNING, 0.0)
            if q.USED_TOKENS in gauges:
                used += gauges[q.USED_TOKENS]
            elif q.KV_USAGE in gauges and q.POOL_TOKENS in gauges:
                share = max(0.0, gauges[q.KV_USAGE] - held)
                used += share * gauges[q.POOL_TOKENS]
                is_counted = False
            else:
                is_complete = False
    return _PoolUse(used=used, running=running, is_complete=is_complete, is_counted=is_counted)


def _held_by_nobody(track: Track) -> float:
    """Share of the KV pool that was in use when nothing ran or waited last, in the window of the quantiles; 0 where
    something always did. Blocks that aborted requests have left stay so."""
    for point in reversed(track.long.inside):
        gauges = [rank.gauges for rank in point.ranks.values()]
        is_idle = all(each.get(q.RUNNING) == 0.0 and not each.get(q.WAITING) for each in gauges)
        if gauges and is_idle:
            return min(each.get(q.KV_USAGE, 0.0) for each in gauges)
    return 0.0


def context_of_ended(track: Track) -> tuple[float, str] | None:
    """Context by the lengths of requests that ended, and its source; None where they are not known."""
    prompt = number(prompt_mean(track))
    answer = number(answer_mean(track))
    if prompt is None or answer is None:
        return None
    return prompt + answer / 2, f"mean prompt + half the mean answer of the last {track.long.length_s:.0f} s"


def _context_of_begun(track: Track) -> tuple[float, str] | None:
    """Context by requests that are under way, and its source; None where it is not known."""
    span_s = track.long.length_s
    prompt = _per_first_token(track)
    firsts = track.long.sum_and_count(q.TTFT)
    decoded = number(track.long.rate(q.DECODE_TOKENS))
    if not isinstance(prompt, float) or firsts is None or firsts.observations <= 0.0 or decoded is None:
        return None
    generated = decoded * span_s / firsts.observations
    return prompt + generated / 2, f"mean prompt + half the tokens per first token of the last {span_s:.0f} s"


def all_pool_tokens(reading: EngineReading, track: Track) -> Reading:
    """Tokens that the KV cache of all ranks holds."""
    if POOL_SIZE_UNTOLD in reading.info:
        return Missing(Reason.NOT_EXPOSED, reading.info[POOL_SIZE_UNTOLD])
    if _is_pool_shared(reading):
        return Missing(Reason.NOT_MODELLED, "layers of several kinds share the pool: its blocks are not tokens")
    return track.gauge(q.POOL_TOKENS)


def _has_layers_of_fixed_size(reading: EngineReading) -> bool:
    """Whether the model has layers whose cache does not grow with the context: states, windows."""
    llm = reading.llm
    return llm is not None and bool(llm.states or llm.attention_layers(Reach.WINDOW, Reach.CHUNK))


def _is_pool_shared(reading: EngineReading) -> bool:
    """Whether layers of several kinds share a pool of which only the blocks are known."""
    return _has_layers_of_fixed_size(reading) and reading.live.get(q.POOL_TOKENS, "").endswith(q.BLOCK_PRODUCT)


def prompt_length(track: Track, prefill: CounterWindow, context_tokens: Reading) -> Reading:
    """Size-biased mean prompt, cached tokens included, of the prompts of the prefill rate over its window.

    The histogram has the lengths of requests that ended: those of the shortest window with enough of them, unless they
    were much longer than the prompts that get their first tokens in it. These give E[n^2] / E[n] at the least: prompts
    of one poll that differ make it more. Where only the mean is known, that, and else the context: rough, but attention
    is a few per cent of a prompt's FLOPs up to some thousand tokens.
    """
    begun = _prompts_begun(track, prefill)
    least = begun.least_squares / begun.tokens if begun.tokens > 0.0 else 0.0
    ended = _ended_prompt(track, prefill, begun)
    if ended is not None:
        return max(ended, least)
    if least > 0.0:
        return least
    mean = _per_request(track, q.PROMPT_TOKENS)
    if isinstance(mean, Missing):
        return context_tokens
    return mean


def _ended_prompt(track: Track, prefill: CounterWindow, begun: _PromptsBegun) -> float | None:
    """Size-biased mean prompt of requests that ended in the shortest window with enough of them.

    None where they were much longer than those that got their first token in it; `begun` are those of the window of the
    prefill rate.
    """
    longest_s = max(track.quantile_s, prefill.seconds)
    for times in (1.0, 2.0, 4.0, math.inf):  # the last one is the longest window
        window = track.window(min(times * prefill.seconds, longest_s))
        ended = window.histogram(q.PROMPT_LENGTH)
        if ended is None or (ended.count < ENOUGH and window.seconds < longest_s):
            continue
        biased = size_biased_mean(ended)
        if biased is None:
            continue
        if window.seconds != prefill.seconds:
            begun = _prompts_begun(track, window)
        if ended.sum * begun.number <= _OTHER_TRAFFIC * begun.tokens * ended.count:
            return biased
    return None
