"""Means since an engine's process started: what its counters say at the first poll, when no window is filled yet."""

from __future__ import annotations

from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineReading
from gpumon.readings.missing import NOT_EXPOSED, WARMING_UP, Reading
from gpumon.readings.snapshot import SinceStart

_LEAST_S: Final = 60.0
"""Shortest life of which there is a mean: a poll dates it to some seconds."""
_COUNTED: Final = frozenset({Advance.LIVE, Advance.PROMPT, Advance.END})
"""Counters of the engine itself; what gpumon works out or samples begins with its first poll."""


def since_start(reading: EngineReading, wall_s: float, *, several_servers: bool) -> SinceStart:
    """The means of a poll that was made at `wall_s`. Not known where several processes answer in turn, or where the
    engine does not say when it started."""
    if not reading.started_wall_s or several_servers or not reading.ranks:
        return SinceStart()
    length_s = wall_s - reading.started_wall_s
    if length_s < _LEAST_S:
        return SinceStart(WARMING_UP, WARMING_UP, WARMING_UP, WARMING_UP, WARMING_UP, WARMING_UP)
    return SinceStart(
        seconds=length_s,
        prefill_tokens_per_s=_rate(reading, q.PREFILL_COMPUTED, length_s),
        decode_tokens_per_s=_rate(reading, q.DECODE_TOKENS, length_s),
        requests_per_s=_rate(reading, q.REQUESTS, length_s),
        ttft_s=_mean(reading, q.TTFT),
        itl_s=NOT_EXPOSED if _speculates(reading) else _mean(reading, q.ITL),
    )


def _rate(reading: EngineReading, counter: str, length_s: float) -> Reading:
    """A counter of all ranks per second."""
    if reading.advance.get(counter, Advance.LIVE) not in _COUNTED:
        return NOT_EXPOSED
    counts = []
    for rank in reading.ranks:
        if counter not in rank.counters:
            return NOT_EXPOSED
        counts.append(rank.counters[counter])
    return sum(counts) / length_s


def _mean(reading: EngineReading, histogram: str) -> Reading:
    """The mean of everything that a histogram of all ranks has observed."""
    total = 0.0
    count = 0.0
    for rank in reading.ranks:
        observed = rank.histograms.get(histogram)
        if observed is not None:
            total += observed.sum
            count += observed.count
    return total / count if count > 0.0 else NOT_EXPOSED


def _speculates(reading: EngineReading) -> bool:
    """Whether steps bring several tokens, so that a gap between steps is no time between tokens."""
    return any(rank.counters.get(q.DRAFTS, 0.0) > 0.0 for rank in reading.ranks)
