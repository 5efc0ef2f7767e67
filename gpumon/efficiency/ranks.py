"""What each data-parallel rank of an engine does, and what they share unevenly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.efficiency.flow import rank_decode
from gpumon.efficiency.windows import RATE_S, Track
from gpumon.readings.frame import EngineReading
from gpumon.readings.missing import NOT_EXPOSED, Reading, number
from gpumon.readings.quantities import KV_USAGE, RUNNING, WAITING
from gpumon.readings.snapshot import RankLoad
from gpumon.readings.text import clean

FULL: Final = 0.9
"""Share of the 10 s that a window has to have before ranks are compared: a shorter one is chance."""
LEAST_SHARE: Final = 0.7
"""A rank that gives less than this share of the mean works less than the others: tokens/s of equal ranks differ by
some per cent, and by one request in four where a balancer does its best with the fewest below."""
LEAST_RUNNING: Final = 4.0
"""Requests per rank below which ranks differ because there are too few requests to share."""
LEAST_TOKENS_PER_S: Final = 20.0
"""Per rank; below it one request more or less is the whole difference."""
QUEUED: Final = 1.0
"""Mean requests waiting on a rank that make it a queue."""
FREE_SHARE: Final = 0.5
"""A rank without a queue that runs less than this share of what the queueing one runs could have taken some."""
KV_APART: Final = 0.3
"""Difference of the KV usage of two ranks: requests of equal lengths spread by far less."""


def rank_loads(reading: EngineReading, track: Track) -> tuple[RankLoad, ...]:
    """Each rank's part, means of the window of the rates; empty with one rank."""
    ranks = track.points[-1].ranks if track.points else {}
    if len(ranks) < 2:
        return ()
    return tuple(
        RankLoad(
            clean(rank, 32),
            rank_decode(reading, track, rank),
            *(_mean(track.rank_samples(rank, quantity, track.rate_s)) for quantity in (RUNNING, WAITING, KV_USAGE)),
        )
        for rank in ranks
    )


def uneven(loads: Sequence[RankLoad], track: Track) -> tuple[str, ...]:
    """What the ranks share unevenly, in words with figures; nothing before the window is full for all of them."""
    pair = track.window(track.rate_s)
    if len(loads) < 2 or pair is None or track.length_s(track.rate_s) < FULL * RATE_S:
        return ()
    if pair[0].ranks.keys() != pair[1].ranks.keys():
        return ()
    return tuple(text for text in (_decode(loads), _queue(loads), _kv(loads)) if text)


def _decode(loads: Sequence[RankLoad]) -> str:
    rates = _known(loads, "decode_tokens_per_s")
    running = _known(loads, "running")
    if len(rates) < len(loads) or sum(running) / len(loads) < LEAST_RUNNING:
        return ""
    mean = sum(rates) / len(rates)
    least = min(range(len(loads)), key=rates.__getitem__)
    if mean < LEAST_TOKENS_PER_S or rates[least] >= LEAST_SHARE * mean:
        return ""
    return f"decode: rank {loads[least].rank} gives {rates[least]:,.0f} tok/s, the mean of the ranks is {mean:,.0f}"


def _queue(loads: Sequence[RankLoad]) -> str:
    waiting, running = _known(loads, "waiting"), _known(loads, "running")
    if len(waiting) < len(loads) or len(running) < len(loads):
        return ""
    most = max(range(len(loads)), key=waiting.__getitem__)
    least = min(range(len(loads)), key=lambda at: (waiting[at] > 0.0, running[at]))
    if waiting[most] < QUEUED or waiting[least] > 0.0 or running[least] >= FREE_SHARE * running[most]:
        return ""
    return (
        f"queue: rank {loads[most].rank} has {waiting[most]:,.1f} waiting and runs {running[most]:,.1f}, "
        f"rank {loads[least].rank} runs {running[least]:,.1f} and has none waiting"
    )


def _kv(loads: Sequence[RankLoad]) -> str:
    usage = _known(loads, "kv_usage_ratio")
    if len(usage) < len(loads) or max(usage) - min(usage) <= KV_APART:
        return ""
    most, least = (pick(range(len(loads)), key=usage.__getitem__) for pick in (max, min))
    return f"KV cache: rank {loads[most].rank} uses {usage[most]:.0%}, rank {loads[least].rank} {usage[least]:.0%}"


def _known(loads: Sequence[RankLoad], field: str) -> list[float]:
    return [value for load in loads if (value := number(getattr(load, field))) is not None]


def _mean(samples: Sequence[float]) -> Reading:
    return sum(samples) / len(samples) if samples else NOT_EXPOSED
