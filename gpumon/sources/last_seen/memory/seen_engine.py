"""One engine that served: its record, and what only this run of gpumon knows of it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

import msgspec

from gpumon.efficiency.plausible import plausible_engine
from gpumon.efficiency.served_time import has_counted
from gpumon.readings.frame import EndpointState, EngineReading, LastFigures, RankReading
from gpumon.readings.missing import NOT_EXPOSED, WARMING_UP, Reading, number
from gpumon.readings.quantities import DECODE_TOKENS, KV_USAGE, RUNNING, WAITING
from gpumon.sources.last_seen.causes import NO_CAUSE, Cause
from gpumon.sources.last_seen.processes.process_state import ProcessState, Tick
from gpumon.sources.last_seen.records import KnownEngine
from gpumon.triage.engine_down import ended_text

REFUSES_S: Final = 10.0
"""Seconds after which an engine whose process is not known and whose port refuses has ended: a restart of nginx or of
a container's proxy takes less."""
CAUSE_S: Final = 3.0
"""Longest wait for the cause of an end before the end is shown: a stop by systemd is not first called a crash."""
_RATE_S: Final = 10.0
"""Seconds over which the last rate of tokens of an engine is taken."""
AskCause = Callable[[KnownEngine], "Future[Cause]"]
"""Begins to look up how the process of an engine ended."""


class SeenEngine:
    """One engine that served, with what only this run knows of it. Times are monotonic."""

    def __init__(self, record: KnownEngine) -> None:
        self.record = record
        self.answered_s = -math.inf
        """When it answered last in this run."""
        self.token_counts: deque[tuple[float, float]] = deque()
        """Monotonic time and number of the tokens that its process has counted, over the last `_RATE_S`."""
        self.refused_s: float | None = None
        """Since when nothing listens at its URL; None: something does, or nobody knows."""
        self.ended_s: float | None = None
        """When its process was first seen gone, or its port had refused for long enough."""
        self.cause_answer: Future[Cause] | None = None
        """The answer to the question for the cause of its end; None: not asked yet, or taken already."""
        self.last_end_reading: EngineReading | None = None
        """Its last `end_reading`; None: it is to be made anew."""
        self.has_replaced = False
        """Whether it has taken the place of one that ended, or of its own earlier process: it does so once only."""

    @property
    def key(self) -> str:
        """Key of the engine, as in `EngineReading.key`."""
        return self.record.reading.key

    @property
    def has_cause(self) -> bool:
        """Whether the question for the cause of its end is answered."""
        return self.cause_answer is not None and self.cause_answer.done()

    def is_process_gone(self, reading: EngineReading | None, tick: Tick) -> bool:
        """Whether its process is gone; where that is not known, whether its port has refused for long enough."""
        origin = self.record.origin
        if origin.pid:
            return tick.processes.rebooted or origin.id in tick.processes.ended
        if reading is None or reading.state is not EndpointState.REFUSED:
            return False
        return self._refusing_s(tick) >= REFUSES_S

    def _refusing_s(self, tick: Tick) -> float:
        """Seconds for which nothing has listened at its URL; where another run saw it last, since its last answer."""
        refusing_s = tick.now_s - self.refused_s if self.refused_s is not None else 0.0
        if self.answered_s > -math.inf:
            return refusing_s
        return max(refusing_s, tick.wall_s - self.record.served_wall_s)

    def is_old(self, reading: EngineReading) -> bool:
        """Whether this answer was taken before, or is the last one of a process that has ended since."""
        if self.answered_s == reading.monotonic_s:
            return True
        return self.ended_s is not None and reading.monotonic_s <= self.ended_s

    def take_figures(self, reading: EngineReading, answered_wall_s: float) -> None:
        """Note its newest answer, which came at a Unix time."""
        reading, _ = plausible_engine(reading)
        record = self.record
        self.answered_s = reading.monotonic_s
        self.refused_s = None
        if record.reading.gpus and not reading.gpus:
            # It answers, and nothing of it is on a GPU any more: those that it had are what it lacks.
            reading = msgspec.structs.replace(reading, gpus=record.reading.gpus)
        # A prefill engine is done with a prompt between two polls, and no gauge has it.
        has_worked = has_counted(record.reading, reading)
        record.reading = reading
        record.served_wall_s = answered_wall_s
        record.closed_wall_s = 0.0
        record.figures = _last_figures(self.token_counts, reading)
        running = number(record.figures.running)
        waiting = number(record.figures.waiting)
        record.tells_load = running is not None or waiting is not None
        if running or waiting or has_worked:
            record.busy_wall_s = answered_wall_s

    def awaits_cause(self, now_s: float) -> bool:
        """Whether the cause of its end was asked for, and may still come within `CAUSE_S`."""
        if self.cause_answer is None or self.cause_answer.done():
            return False
        return now_s - (self.ended_s or 0.0) < CAUSE_S

    def take_cause(self, processes: ProcessState) -> Cause:
        """The cause of its end, if the answer has come; else the reboot, if there was one. Taken once."""
        cause = NO_CAUSE
        if self.cause_answer is not None and self.cause_answer.done():
            if self.cause_answer.exception() is None:
                cause = self.cause_answer.result()
            self.cause_answer = None
        if processes.rebooted and not cause.code:
            return Cause("reboot")
        return cause

    def end_reading(self, reading: EngineReading | None, tick: Tick) -> EngineReading:
        """The reading after its end: its last figures, and how it ended. The same object while nothing changes.

        `reading`: that of this tick at its URL; None where nobody lists it.
        """
        record = self.record
        interval_s = reading.interval_s if reading is not None else record.reading.interval_s
        if self.last_end_reading is None or self.last_end_reading.interval_s != interval_s:
            assert record.departure is not None, "it has ended"
            monotonic_s = tick.now_s - max(0.0, tick.wall_s - record.served_wall_s)
            ranks: tuple[RankReading, ...] = ()
            if self.answered_s > -math.inf:  # in this run: the figures are not written to the file
                monotonic_s = self.answered_s
                ranks = record.reading.ranks
            self.last_end_reading = msgspec.structs.replace(
                record.reading,
                monotonic_s=monotonic_s,
                ranks=ranks,
                state=EndpointState.DOWN,
                departure=record.departure,
                fault=ended_text(record.departure),
                interval_s=interval_s,
            )
        return self.last_end_reading


def _last_figures(token_counts: deque[tuple[float, float]], reading: EngineReading) -> LastFigures:
    """Figures of an engine at a good reading. `token_counts` gets the newest count, as in `_tokens_per_s`."""
    usage = _gauge_values(reading, KV_USAGE)
    mean_usage: Reading = sum(usage) / len(usage) if usage else NOT_EXPOSED
    return LastFigures(
        running=_sum_of_known(_gauge_values(reading, RUNNING)),
        waiting=_sum_of_known(_gauge_values(reading, WAITING)),
        kv_usage_ratio=mean_usage,
        decode_tokens_per_s=_tokens_per_s(token_counts, reading),
    )


def _gauge_values(reading: EngineReading, name: str) -> list[float]:
    """The values of a gauge, of the ranks that have it."""
    return [rank.gauges[name] for rank in reading.ranks if name in rank.gauges]


def _sum_of_known(values: Sequence[float]) -> Reading:
    """The sum of some values; missing where there is none."""
    if values:
        return sum(values)
    return NOT_EXPOSED


def _tokens_per_s(token_counts: deque[tuple[float, float]], reading: EngineReading) -> Reading:
    """Tokens/s over the last `_RATE_S`; warming up before the second answer of a process.

    Adds the count of this reading to `token_counts`, and drops those that a rate over `_RATE_S` does not need.
    """
    counters = [rank.counters[DECODE_TOKENS] for rank in reading.ranks if DECODE_TOKENS in rank.counters]
    total = number(_sum_of_known(counters))
    if total is None:
        token_counts.clear()
        return NOT_EXPOSED
    if token_counts and total < token_counts[-1][1]:  # its counters began anew
        token_counts.clear()
    token_counts.append((reading.monotonic_s, total))
    while len(token_counts) > 2 and token_counts[1][0] <= reading.monotonic_s - _RATE_S:
        token_counts.popleft()
    oldest_s, oldest_total = token_counts[0]
    if reading.monotonic_s > oldest_s:
        return (total - oldest_total) / (reading.monotonic_s - oldest_s)
    return WARMING_UP
