"""Gauges and growths that no engine can have: they are no readings, whoever sent them, and drive no figure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from gpumon.readings import quantities as q
from gpumon.readings.bounds import invalid_reading
from gpumon.readings.frame import EngineReading, Frame
from gpumon.readings.missing import Missing

MOST_REQUESTS: Final = 1e6
"""Requests of one rank at once: a server that holds as many open connections is beyond what Linux and Python do."""
MOST_RATIO: Final = 1.05
"""Share of a pool; pages round, and count blocks that are being freed."""
MOST_OF_GAUGES: Final[Mapping[str, float]] = {
    **dict.fromkeys(
        (q.RUNNING, q.WAITING, q.WAITING_DEFERRED, q.PAUSED, q.ROUTER_QUEUE, q.MOST_RUNNING), MOST_REQUESTS
    ),
    **dict.fromkeys((q.KV_USAGE, q.HOST_KV_USAGE, q.ACCEPTANCE), MOST_RATIO),
    **dict.fromkeys((q.DECODE_RATE, q.PREFILL_RATE), 1e10),
    **dict.fromkeys((q.OWN_WEIGHT_BYTES, q.OWN_KV_BYTES, q.OWN_GRAPH_BYTES), 1e13),
}
"""Gauge of one rank -> the largest number that it can have; the least is 0."""
MOST_PER_S: Final[Mapping[str, float]] = {
    **dict.fromkeys((q.PROMPT_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED, q.DECODE_TOKENS), 1e10),
    **dict.fromkeys((q.REQUESTS, q.ABORTS, q.FAILURES, q.REJECTIONS, q.PREEMPTIONS, q.STEPS), 1e8),
}
"""Counter -> the fastest growth per second that one rank can have.

A rack of 72 GB200 computes about 1e6 prompt tokens/s of a small model and finds some ten times as many in its cache:
1e10 is a thousand times that.
"""


NOTHING_WRONG: Final[Mapping[str, Missing]] = MappingProxyType({})
"""For an engine whose gauges can all be."""


class Plausible(NamedTuple):
    """A frame without gauges that cannot be, and what was wrong."""

    frame: Frame
    wrong: Mapping[str, Mapping[str, Missing]]
    """`EngineReading.key` -> gauge -> why it is no reading."""


def plausible(frame: Frame) -> Plausible:
    """The frame with the gauges of its engines that can be true; the same frame where all can."""
    wrong: dict[str, dict[str, Missing]] = {}
    engines = []
    for reading in frame.engines:
        why = _wrong_gauges(reading)
        if why:
            wrong[reading.key] = why
            reading = _without_gauges(reading, why)
        engines.append(reading)
    if not wrong:
        return Plausible(frame, wrong)
    return Plausible(msgspec.structs.replace(frame, engines=tuple(engines)), wrong)


def _wrong_gauges(reading: EngineReading) -> dict[str, Missing]:
    """Gauge -> why it is no reading, of those that any rank has wrong."""
    wrong: dict[str, Missing] = {}
    for rank in reading.ranks:
        for name, value in rank.gauges.items():
            most = MOST_OF_GAUGES.get(name)
            if most is not None and not 0.0 <= value <= most:
                wrong[name] = invalid_reading(value, f"0 to {most:g} is possible", "its page")
    return wrong


def _without_gauges(reading: EngineReading, names: Mapping[str, Missing]) -> EngineReading:
    """The reading without these gauges, on any rank: what one rank has wrong is no sum."""
    ranks = []
    for rank in reading.ranks:
        gauges = {name: value for name, value in rank.gauges.items() if name not in names}
        ranks.append(msgspec.structs.replace(rank, gauges=gauges))
    return msgspec.structs.replace(reading, ranks=tuple(ranks))
