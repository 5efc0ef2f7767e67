"""A training run: tokens and samples per second from counters that move once per step, and its FLOPs."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from gpumon.efficiency.flow import NOWHERE, Flow, counter_advance, flow
from gpumon.efficiency.windows import MOST_KEPT_S, Track
from gpumon.readings.frame import Advance, EngineReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.quantities import SAMPLE_RATE, SAMPLES, TRAINED_RATE, TRAINED_TOKENS

WHOLE_STEPS_S: Final = 30.0
"""Shortest time between the two steps that a rate lies between: polls date a step to 2 s, so to 7 % of it."""
LEAST_POLLS: Final = 3.0
OVERDUE: Final = 2.0
"""A step that takes so many times as long as the longest one seen is waited for: from then on the rate falls."""

NO_COST: Final = Missing(Reason.UNKNOWN_MODEL, "the FLOPs of a token are not known")


def trained(reading: EngineReading, track: Track) -> tuple[Flow, Flow]:
    """Tokens and samples per second; what only one of them tells gives the other, by the tokens of a sample."""
    tokens = _stepped(reading, track, TRAINED_TOKENS, TRAINED_RATE)
    samples = _stepped(reading, track, SAMPLES, SAMPLE_RATE)
    each = reading.training.tokens_per_sample if reading.training is not None else 0.0
    if each > 0.0 and tokens.advance is None and samples.advance is not None:
        tokens = _scaled(samples, each, f"x {each:g} tokens per sample")
    elif each > 0.0 and samples.advance is None and tokens.advance is not None:
        samples = _scaled(tokens, 1.0 / each, f"/ {each:g} tokens per sample")
    return tokens, samples


def training_flops(reading: EngineReading, tokens_per_s: Reading) -> Reading:
    """FLOP/s of the tokens trained, over all GPUs: tokens/s x FLOPs per token, forward and backward."""
    if reading.training is None:
        return NO_COST
    return tokens_per_s if isinstance(tokens_per_s, Missing) else tokens_per_s * reading.training.flops_per_token


def _scaled(of: Flow, factor: float, how: str) -> Flow:
    per_s = of.per_s if isinstance(of.per_s, Missing) else of.per_s * factor
    return Flow(per_s, Advance.DERIVED, f"{of.source} {how}" if of.source else "")


def _stepped(reading: EngineReading, track: Track, counter: str, gauge: str = "") -> Flow:
    moves = counter_advance(reading, track, counter)
    if moves is None or moves is Advance.END:
        return flow(reading, track, counter, gauge) if gauge or moves is not None else NOWHERE
    metric = reading.live.get(counter, "")
    return Flow(stepped_rate(track, counter), moves, f"{metric} between whole steps" if metric else "")


def stepped_rate(track: Track, counter: str) -> Reading:
    """Increase per second of a counter that stands still during a step and jumps at its end.

    From one jump to another, so that it is neither 0 within a step nor a spike after it. The newest jump is the end,
    until the next one is overdue: then it is now, and the rate of a run that hangs falls to 0 within ten minutes.
    """
    ranks = track.points[-1].ranks.keys() if track.points else ()
    alike = (point for point in track.points if point.ranks.keys() == ranks)  # a rank that joins is no step
    seen = [(point.monotonic_s, total) for point in alike if (total := point.total(counter)) is not None]
    if len(seen) < 2:
        return track.not_yet if track.counts(counter) else NOT_EXPOSED
    (first_s, first), (now_s, newest) = seen[0], seen[-1]
    jumps = [after for before, after in pairwise(seen) if after[1] > before[1]]
    if len(jumps) < 2:
        whole = now_s - first_s >= MOST_KEPT_S - 2 * track.cadence_s
        return (newest - first) / (now_s - first_s) if whole else track.not_yet
    end_s = jumps[-1][0]
    span_s = max(WHOLE_STEPS_S, LEAST_POLLS * track.cadence_s)
    start_s, start = next((jump for jump in reversed(jumps) if end_s - jump[0] >= span_s), jumps[0])
    if end_s - start_s < LEAST_POLLS * track.cadence_s:
        return track.not_yet
    longest_s = max(after[0] - before[0] for before, after in pairwise(jumps) if before[0] >= start_s)
    end_s = now_s if now_s - end_s > OVERDUE * max(longest_s, track.cadence_s) else end_s
    return max(0.0, newest - start) / (end_s - start_s)
