"""Means since an engine's process started: what its counters say at the first poll, when no window is filled yet."""

from __future__ import annotations

from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineReading
from gpumon.readings.missing import NOT_EXPOSED, WARMING_UP, Reading
from gpumon.readings.snapshot import SinceStart

_LEAST_S: Final = 60.0
"""Shortest life of a process that has a mean: a poll dates its start to some seconds."""
_COUNTED_BY_ENGINE: Final = frozenset({Advance.LIVE, Advance.PROMPT, Advance.END})
"""How counters of the engine itself move; what gpumon works out or samples begins with its first poll."""


def since_start(reading: EngineReading, wall_s: float, *, several_servers: bool) -> SinceStart:
    """The means of a poll that was made at `wall_s` (Unix time).

    Not known where several processes answer in turn, or where the engine does not say when it started.
    """
    if not reading.started_wall_s or several_servers or not reading.ranks:
        return SinceStart()
    length_s = wall_s - reading.started_wall_s
    if length_s < _LEAST_S:
        return SinceStart(**dict.fromkeys(SinceStart.__struct_fields__, WARMING_UP))
    ttft_s, ttft_count = _mean_and_count(reading, q.TTFT)
    itl_s: Reading = NOT_EXPOSED
    itl_count: Reading = NOT_EXPOSED
    # Where steps bring several tokens a gap between steps is no time between tokens.
    if not any(rank.counters.get(q.DRAFTS, 0.0) > 0.0 for rank in reading.ranks):
        itl_s, itl_count = _mean_and_count(reading, q.ITL)
    return SinceStart(
        seconds=length_s,
        prefill_tokens_per_s=_rate(reading, q.PREFILL_COMPUTED, length_s),
        decode_tokens_per_s=_rate(reading, q.DECODE_TOKENS, length_s),
        requests_per_s=_rate(reading, q.REQUESTS, length_s),
        ttft_s=ttft_s,
        itl_s=itl_s,
        ttft_count=ttft_count,
        itl_count=itl_count,
    )


def _rate(reading: EngineReading, counter: str, length_s: float) -> Reading:
    """A counter of all ranks per second of `length_s`."""
    if reading.advance.get(counter, Advance.LIVE) not in _COUNTED_BY_ENGINE:
        return NOT_EXPOSED
    if any(counter not in rank.counters for rank in reading.ranks):
        return NOT_EXPOSED
    return sum(rank.counters[counter] for rank in reading.ranks) / length_s


def _mean_and_count(reading: EngineReading, histogram: str) -> tuple[Reading, Reading]:
    """The mean of everything that a histogram of all ranks has observed, and the number of observations."""
    total = 0.0
    count = 0.0
    for rank in reading.ranks:
        observed = rank.histograms.get(histogram)
        if observed is not None:
            total += observed.sum
            count += observed.count
    if count <= 0.0:
        return NOT_EXPOSED, NOT_EXPOSED
    return total / count, count
