"""Engine steps per second, and how many tokens a step gives a sequence."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.efficiency.flow import counter_advance, rank_decode
from gpumon.efficiency.layout import Layout
from gpumon.efficiency.windows import Track
from gpumon.readings.frame import Advance, EngineKind, EngineReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.quantities import ACCEPTED_TOKENS, DECODE_TOKENS, DRAFTS, ITL, MEAN_ACCEPTED, RUNNING, STEPS

IDLE: Final = Missing(Reason.IDLE)
GAPS: Final = "estimated: duty / mean ITL, per rank"
TOKENS: Final = "estimated: decode tokens/s / requests running / tokens per step"
STEP_GAPS: Final = frozenset({EngineKind.VLLM, EngineKind.LMDEPLOY})
"""Engines whose ITL is a gap between outputs, however many tokens one brings; others divide it by its tokens."""


class Steps(NamedTuple):
    """Steps per second of each rank; or why there are none."""

    by_rank: list[float] | Missing
    source: str = ""
    advance: Advance | None = None


def steps(reading: EngineReading, track: Track, laid: Layout, tokens_per_step: float, decode: Reading) -> Steps:
    """The best of four: an exact counter, one that is worked out, duty / mean ITL, tokens/s / running requests."""
    pair = track.window(track.rate_s)
    if pair is None:
        return Steps(track.not_yet)
    span_s, metric = track.length_s(track.rate_s), reading.live.get(STEPS, "step counter")
    moves = counter_advance(reading, track, STEPS)
    if reading.exact_steps:
        return Steps(track.rank_rates(STEPS, track.rate_s) or NOT_EXPOSED, f"{metric} over {span_s:.0f} s", moves)
    if moves is Advance.DERIVED:
        counted = track.rank_rates(STEPS, track.rate_s)
        return Steps(counted or track.not_yet, f"estimated: {metric} over {span_s:.0f} s", moves)
    by_gaps = _by_gaps(reading, track, laid, tokens_per_step)
    if by_gaps:
        return Steps(by_gaps, GAPS, Advance.DERIVED)
    by_tokens = _by_tokens(reading, track, laid, tokens_per_step)
    if by_gaps is not None and (decode == 0.0 or isinstance(by_tokens, Missing)):
        return Steps(IDLE, GAPS, Advance.DERIVED)
    return Steps(by_tokens) if isinstance(by_tokens, Missing) else Steps(by_tokens, TOKENS, Advance.DERIVED)


def speculation(reading: EngineReading, track: Track, decode: Reading) -> Reading:
    """Tokens per step and sequence: from the counters of drafts, else the engine's own gauge, else 1."""
    if track.counts(DRAFTS):
        drafts, accepted = (track.rate(quantity, track.rate_s) for quantity in (DRAFTS, ACCEPTED_TOKENS))
        if not track.counted(DRAFTS):
            return 1.0
        if isinstance(drafts, Missing):
            return drafts
        if drafts > 0.0:
            return _drafted(drafts, number(accepted) or 0.0, _beside(reading, track, number(decode)))
        return IDLE if decode == 0.0 else 1.0
    ranks = track.points[-1].ranks if track.points else ()
    told = [mean for rank in ranks for mean in track.rank_samples(rank, MEAN_ACCEPTED, track.rate_s) if mean > 0.0]
    return max(1.0, sum(told) / len(told)) if told else 1.0


def _drafted(drafts: float, accepted: float, decode: float | None) -> float:
    """A step gives a sequence one token more than it accepts. Not each has a draft in each step (n-grams that were not
    found before have none): all tokens over those that were not accepted; accepted per draft is the most that it is."""
    most = 1.0 + accepted / drafts
    return min(most, decode / (decode - accepted)) if decode is not None and decode > accepted else most


def _beside(reading: EngineReading, track: Track, decode: float | None) -> float | None:
    """Tokens/s that move together with the drafts, as the counters of a running engine do."""
    moves = (counter_advance(reading, track, quantity) for quantity in (DECODE_TOKENS, DRAFTS, ACCEPTED_TOKENS))
    return decode if all(each is Advance.LIVE for each in moves) else None


def tokens_per_gap(reading: EngineReading, tokens_per_step: float) -> float:
    """Tokens of a sequence that one observation of its ITL stands for."""
    return tokens_per_step if gaps_are_steps(reading) else 1.0


def gaps_are_steps(reading: EngineReading) -> bool:
    """Whether one observation of the ITL is one step, and not one token."""
    return reading.kind in STEP_GAPS or "vllm" in reading.live.get(ITL, "")


def _by_gaps(reading: EngineReading, track: Track, laid: Layout, tokens_per_step: float) -> list[float] | None:
    """Of each rank that had a gap; None where there is no ITL or no gauge of what runs."""
    found: list[float] = []
    steps_per_gap = tokens_per_gap(reading, tokens_per_step) / tokens_per_step
    for rank in track.points[-1].ranks:
        duty = number(track.duty(rank, track.rate_s))
        gap_s = track.rank_mean(rank, ITL, track.rate_s)
        if duty is None or (isinstance(gap_s, Missing) and gap_s.reason is not Reason.IDLE):
            return None
        if not isinstance(gap_s, Missing) and gap_s > 0:
            found += _all(laid, track, duty * steps_per_gap / gap_s * _in_pipe(laid, track, rank))
    return found


def _by_tokens(reading: EngineReading, track: Track, laid: Layout, tokens_per_step: float) -> list[float] | Missing:
    """Tokens/s over the requests that ran while any did: a share of them was in its prefill, so it is the least."""
    found: list[float] = []
    for rank in track.points[-1].ranks:
        decode = rank_decode(reading, track, rank)
        if isinstance(decode, Missing):
            return decode
        batch = _running(track, rank)
        if decode > 0.0 and batch is None:
            known = bool(track.rank_samples(rank, RUNNING, track.rate_s))
            return Missing(Reason.FEW, "no poll met a running request") if known else NOT_EXPOSED
        made = decode * _in_pipe(laid, track, rank) / (batch * tokens_per_step) if batch else 0.0
        found += _all(laid, track, made)
    return found


def _running(track: Track, rank: str) -> float | None:
    """Mean requests of a rank over the polls at which it had one; None where no poll met one."""
    busy = [running for running in track.rank_samples(rank, RUNNING, track.rate_s) if running > 0.0]
    return sum(busy) / len(busy) if busy else None


def _in_pipe(laid: Layout, track: Track, rank: str) -> float:
    """Batches that a pipeline works on at once: one for each stage, as far as there are requests for that."""
    return min(float(laid.pp), max(1.0, _running(track, rank) or 1.0)) if laid.pp > 1 else 1.0


def _all(laid: Layout, track: Track, made: float) -> list[float]:
    """One rank's steps for each rank that it stands for: a page may add the ranks up."""
    return [made] * max(1, laid.dp // len(track.points[-1].ranks))
