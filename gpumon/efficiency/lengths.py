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
_APART = 2.0
"""Mean prompt of the requests that ended / that of those at their first token, from which they are other traffic."""
KV_SHARE = 0.9
"""Share of the KV pool that requests of mixed lengths fill, so plans use it: measured plateaus lie 10 to 12 % below the
formula (NIM 70B: 85.5 of 94)."""


def requests_that_fit(pool_tokens: float, request_tokens: float, share: float = 1.0) -> float:
    """Requests that a KV pool holds when they fill that share of it.

    Triage asks it of the requests that run at this moment, with their mean context; sizing of whole requests (prompt
    and answer, windows and states as they are reserved) and `KV_SHARE`, which is what an engine lets in.
    """
    return share * pool_tokens / request_tokens


def prompt_mean(track: Track) -> Reading:
    """Mean prompt, cached tokens included: of requests that ended, else tokens per first token, else per request."""
    seen = track.long.mean(q.PROMPT_LENGTH)
    if not isinstance(seen, Missing) or seen.reason is not Reason.NOT_EXPOSED:
        return seen
    of_firsts = _per_first_token(track)
    if of_firsts is None:
        return _per_request(track, q.PROMPT_TOKENS)
    return of_firsts


def answer_mean(track: Track) -> Reading:
    """Mean answer: of the requests that ended, else generated tokens per request."""
    seen = track.long.mean(q.OUTPUT_LENGTH)
    if not isinstance(seen, Missing) or seen.reason is not Reason.NOT_EXPOSED:
        return seen
    return _per_request(track, q.DECODE_TOKENS)


def _per_first_token(track: Track) -> Reading | None:
    """Prompt tokens per first token of the window of the quantiles; None where one of the two is not told."""
    if track.long.sum_and_count(q.TTFT) is None or not _prompt_counters(track):
        return None
    booked = _booked(track, track.long)
    return booked.tokens / booked.firsts if booked.firsts > 0.0 else _IDLE


def _prompt_counters(track: Track) -> tuple[str, ...]:
    """Counters that make up all prompt tokens and move with the first token or before it. One that is counted at a
    request's end has the tokens of others than those that get their first token then."""
    for names in ((q.PROMPT_TOKENS,), (q.PREFILL_COMPUTED, q.PREFILL_CACHED)):
        if all(track.moves(name) not in (None, Advance.END) for name in names):
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
    finite = [(bound, count / whole) for bound, count in zip(ended.bounds, ended.counts, strict=True)][:-1]
    return (*finite[:-1], (finite[-1][0], 1.0))


class _Booked(msgspec.Struct, frozen=True):
    """Prompts that got their first token: how many, and of their tokens the sum, and the sum of squares at least."""

    tokens: float
    square: float
    firsts: float


def _booked(track: Track, window: CounterWindow) -> _Booked:
    """Prompts that got their first token in a window; zeros where they are not told.

    Between two polls the squares are those of equal prompts: of no others is the sum less. A prompt that is counted in
    chunks belongs to the poll that has its first token.
    """
    names = _prompt_counters(track)
    tokens = 0.0
    square = 0.0
    count = 0.0
    held = 0.0
    for old, new in pairwise(window.points if names else ()):
        firsts = 0.0
        for name, rank in new.ranks.items():
            before = old.ranks.get(name)
            if before is not None:
                firsts += _firsts(rank) - _firsts(before)
                for counter in names:
                    if counter in before.counters:
                        held += rank.counters[counter] - before.counters[counter]
        if firsts > 0.0:
            tokens = tokens + held
            square = square + held * held / firsts
            count = count + firsts
            held = 0.0
    return _Booked(tokens, square, count)


def _firsts(rank: RankReading) -> float:
    """First tokens that a rank has given."""
    ttft = rank.histograms.get(q.TTFT)
    return 0.0 if ttft is None else ttft.count


def _per_request(track: Track, counter: str) -> Reading:
    """Tokens per request that ended. Of tokens that are counted earlier than that only over enough requests."""
    tokens = track.long.rate(counter)
    if isinstance(tokens, Missing):
        return tokens
    ended = track.long.rate(q.REQUESTS)
    if isinstance(ended, Missing):
        return ended
    count = ended * track.long.length_s
    if count <= 0.0:
        return _IDLE
    together = track.moves(counter) is Advance.END
    if together or count >= ENOUGH:
        return tokens / ended
    return Missing(Reason.FEW)


def context(reading: EngineReading, track: Track) -> tuple[Reading, str]:
    """Mean tokens in context of a running sequence: KV pool, else recent request lengths, else the config.

    Of a sequence with states or windows a share of the pool is used whatever its length (vLLM 0.32 gives a pool's
    tokens for sequences of the longest context): its lengths come first, of requests that ended or are under way.
    """
    pool = _pool_use(track)
    held = pool.held
    if held is None or _shared_pool(reading):
        by_ended = _by_ended(track)
        if by_ended is not None:
            return by_ended
    elif pool.counted or not _mixed(reading):
        return held, IN_USE
    else:
        return _by_ended(track) or _by_first_tokens(track) or (held, IN_USE)
    if not isinstance(reading.context_tokens, Missing):
        return reading.context_tokens, "config"
    return Missing(Reason.NO_CONTEXT if pool.running > 0 else Reason.IDLE), ""


class _PoolUse(msgspec.Struct, frozen=True):
    """Use of the KV pool, summed over the ranks at the polls of the window of the rates."""

    used: float
    """Tokens."""
    running: float
    """Requests."""
    known: bool
    """Each rank told at each poll."""
    counted: bool
    """The engine counts tokens; else they are a share of the pool."""

    @property
    def held(self) -> float | None:
        """Tokens per request; None where they are not known, or nothing ran."""
        if not self.known or self.running <= 0 or self.used <= 0:
            return None
        return self.used / self.running


def _pool_use(track: Track) -> _PoolUse:
    used = 0.0
    running = 0.0
    known = True
    counted = True
    for point in track.short.inside:
        for rank in point.ranks.values():
            gauges = rank.gauges
            running += gauges.get(q.RUNNING, 0.0)
            if q.USED_TOKENS in gauges:
                used += gauges[q.USED_TOKENS]
            elif q.KV_USAGE in gauges and q.POOL_TOKENS in gauges:
                used += gauges[q.KV_USAGE] * gauges[q.POOL_TOKENS]
                counted = False
            else:
                known = False
    return _PoolUse(used, running, known, counted)


def _by_ended(track: Track) -> tuple[float, str] | None:
    """Context by the lengths of requests that ended, and its source; None where they are not known."""
    prompt = number(prompt_mean(track))
    answer = number(answer_mean(track))
    if prompt is None or answer is None:
        return None
    return prompt + answer / 2, f"mean prompt + half the mean answer of the last {track.long.length_s:.0f} s"


def _by_first_tokens(track: Track) -> tuple[float, str] | None:
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
    shared = Missing(Reason.NOT_MODELLED, "layers of several kinds share the pool: its blocks are not tokens")
    if POOL_SIZE_UNTOLD in reading.info:
        return Missing(Reason.NOT_EXPOSED, reading.info[POOL_SIZE_UNTOLD])
    if _shared_pool(reading):
        return shared
    return track.gauge(q.POOL_TOKENS)


def _mixed(reading: EngineReading) -> bool:
    """Whether the model has layers whose cache does not grow with the context: states, windows."""
    llm = reading.llm
    return llm is not None and bool(llm.states or llm.attention_layers(Reach.WINDOW, Reach.CHUNK))


def _shared_pool(reading: EngineReading) -> bool:
    """Whether layers of several kinds share a pool of which only the blocks are known."""
    return _mixed(reading) and reading.live.get(q.POOL_TOKENS, "").endswith(q.BLOCK_PRODUCT)


def prompt_length(track: Track, prefill: CounterWindow, context_tokens: Reading) -> Reading:
    """Size-biased mean prompt, cached tokens included, of the prompts of the prefill rate over its window.

    The histogram has the lengths of requests that ended: those of the shortest window with enough of them, unless they
    were much longer than the prompts that get their first tokens in it. These give E[n^2] / E[n] at the least: prompts
    of one poll that differ make it more. Where only the mean is known, that, and else the context: rough, but attention
    is a few per cent of a prompt's FLOPs up to some thousand tokens.
    """
    booked = _booked(track, prefill)
    least = booked.square / booked.tokens if booked.tokens > 0.0 else 0.0
    ended = _ended_prompt(track, prefill, booked)
    if ended is not None:
        return max(ended, least)
    if least > 0.0:
        return least
    mean = _per_request(track, q.PROMPT_TOKENS)
    if isinstance(mean, Missing):
        return context_tokens
    return mean


def _ended_prompt(track: Track, prefill: CounterWindow, booked: _Booked) -> float | None:
    """Size-biased mean prompt of requests that ended in the shortest window with enough of them.

    None where they were much longer than those that got their first token in it; `booked` are those of the prefill's.
    """
    longest_s = max(track.quantile_s, prefill.seconds)
    for times in (1.0, 2.0, 4.0, math.inf):
        window = track.window(min(times * prefill.seconds, longest_s))
        ended = window.histogram(q.PROMPT_LENGTH)
        if ended is None or (ended.count < ENOUGH and window.seconds < longest_s):
            continue
        biased = size_biased_mean(ended)
        if biased is None:
            continue
        if window.seconds != prefill.seconds:
            booked = _booked(track, window)
        if ended.sum * booked.firsts <= _APART * booked.tokens * ended.count:
            return biased
    return None
