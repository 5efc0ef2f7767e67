"""Whether engines serve requests, by what they count and what they run: a request that begins and ends between two
answers is in no gauge, and one that takes minutes is in no counter yet."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.snapshot import Engine


def has_counted(before: EngineReading, now: EngineReading) -> bool:
    """Whether an engine has counted tokens or requests between two answers. A series that one of the two lacks tells
    nothing, unless the first answer was read to its end: it begins with its first count."""
    ranks_before = {rank.rank: rank.counters for rank in before.ranks}
    absent = 0.0 if before.whole else math.inf
    for rank in now.ranks:
        counters_before = ranks_before.get(rank.rank)
        if counters_before is None:
            continue
        for name in q.WORK:
            if rank.counters.get(name, 0.0) > counters_before.get(name, absent):
                return True
    return False


def running_requests(reading: EngineReading) -> Reading:
    """Requests that run on all ranks of an engine in this very reading."""
    running = [rank.gauges[q.RUNNING] for rank in reading.ranks if q.RUNNING in rank.gauges]
    if running:
        return math.fsum(running)
    return NOT_EXPOSED


def _request_s_between(before: EngineReading, now: EngineReading) -> float | None:
    """Seconds of the requests that ended between two answers, added up; None where they are not counted."""
    sums_before = {rank.rank: rank.histograms[q.E2E].sum for rank in before.ranks if q.E2E in rank.histograms}
    growths = [
        max(0.0, rank.histograms[q.E2E].sum - sums_before[rank.rank])
        for rank in now.ranks
        if rank.rank in sums_before and q.E2E in rank.histograms
    ]
    return math.fsum(growths) if growths else None


class Served(NamedTuple):
    """Work of an engine between two answers."""

    seconds: float
    """Seconds in which it served requests, as far as can be told."""
    has_counted: bool
    """Whether a counter of tokens or requests moved."""


NOTHING_SERVED = Served(0.0, has_counted=False)


def served_between(before: EngineReading, now: EngineReading, seconds: float) -> Served:
    """Work of an engine in the `seconds` between two answers.

    With requests running at one of both, half of the time, unless a counter shows that it was more, or, where none
    runs any more, that it was nothing. A counter that moved stands for the times of the requests that ended, and for
    all of the time where these are not counted.
    """
    runs = bool(number(running_requests(now)))
    ran = bool(number(running_requests(before)))
    counted = has_counted(before, now)
    by_gauges_s = seconds * (int(runs) + int(ran)) / 2
    if not counted:
        counts_work = any(name in rank.counters for rank in now.ranks for name in q.WORK)
        if not runs and counts_work:
            return NOTHING_SERVED
        return Served(by_gauges_s, has_counted=False)
    request_s = _request_s_between(before, now)
    by_counters_s = seconds if request_s is None else min(seconds, request_s)
    return Served(max(by_gauges_s, by_counters_s), has_counted=True)


class UnusedTime:
    """Time in which none of some engines served a request, from look to look."""

    __slots__ = ("_answers", "_waiting_s", "seconds", "total")

    def __init__(self) -> None:
        self._answers: dict[str, EngineReading] = {}
        """`Engine.key` -> the answer that was taken in last."""
        self._waiting_s = 0.0
        """Time since then, while a later answer is awaited."""
        self.total = 0.0
        self.seconds = 0.0
        """Time in which it is known whether a request was served."""

    def begin_anew(self) -> None:
        """Take the next answers as a base line."""
        self._answers = {}
        self._waiting_s = 0.0

    def add(
        self,
        engines: Sequence[Engine],
        readings: Mapping[str, EngineReading],
        seconds: float,
        otherwise: Reading,
        *,
        kernel_runs: bool = True,
    ) -> Reading:
        """Take in a look `seconds` after the one before, and return how many of these were unused.

        `readings`: raw ones by `Engine.key`; where there is none of these engines, `otherwise` are the unused seconds.
        A GPU on which no kernel runs (`kernel_runs`) is unused, whichever engine does not answer. Time since answers
        that were taken in before is told by the next ones.
        """
        if self._awaits_answer(engines, readings):
            self._waiting_s += seconds
            return 0.0
        seconds += self._waiting_s
        self._waiting_s = 0.0
        unused = otherwise
        if any(engine.key in readings for engine in engines):
            unused = self._unused_by_engines(engines, readings, seconds, kernel_runs=kernel_runs)
        if not isinstance(unused, Missing):
            unused = min(unused, seconds)
            self.total += unused
            self.seconds += seconds
        return unused

    def _awaits_answer(self, engines: Sequence[Engine], readings: Mapping[str, EngineReading]) -> bool:
        """Whether one of the engines answers, and its answer is the one that was taken in before."""
        for engine in engines:
            reading = readings.get(engine.key)
            last = self._answers.get(engine.key)
            if reading is None or last is None or reading.state is not EndpointState.OK:
                continue
            if reading.monotonic_s == last.monotonic_s:
                return True
        return False

    def _unused_by_engines(
        self, engines: Sequence[Engine], readings: Mapping[str, EngineReading], seconds: float, *, kernel_runs: bool
    ) -> Reading:
        """Seconds in which no request was served, or why that is not known."""
        served_s = 0.0
        why_unknown: Missing | None = None
        for engine in engines:
            served = self._served(engine, readings.get(engine.key), seconds)
            if isinstance(served, Missing):
                why_unknown = served
            else:
                served_s += served
        self._keep({engine.key for engine in engines})
        if why_unknown is not None and kernel_runs and served_s < seconds:
            return why_unknown
        return max(0.0, seconds - served_s)

    def _keep(self, keys: Collection[str]) -> None:
        """Forget the answers of engines that are no more: some are started anew every minute, at another port."""
        for key in self._answers.keys() - keys:
            del self._answers[key]

    def _served(self, engine: Engine, reading: EngineReading | None, seconds: float) -> Reading:
        """Seconds in which an engine served requests; one that is down or sleeps serves none."""
        if engine.state is EndpointState.DOWN or engine.asleep:
            return 0.0
        if engine.state is not EndpointState.OK:
            return Missing(Reason.UNREACHABLE)
        if reading is None or isinstance(engine.load.running, Missing):
            return engine.load.running
        before = self._answers.get(engine.key)
        self._answers[engine.key] = reading
        if before is None:
            return seconds if number(running_requests(reading)) else 0.0
        return served_between(before, reading, seconds).seconds

    @property
    def reading(self) -> Reading:
        """The time; missing where it was never known."""
        return self.total if self.seconds else NOT_EXPOSED
