"""Counts of an engine from answer to answer: one rule of restarts, first counts, lost answers and jumps, for totals,
shares within goals and comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.births import at_zero, born_series, series_of, with_highest, with_zeros
from gpumon.efficiency.quantiles import merge_common, observations_between
from gpumon.efficiency.restarts import RESTARTED_BELOW, ProcessSeen, ProcessWatch, began_anew
from gpumon.figures.quantity import COUNTERS
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EndpointState, EngineReading, HistogramReading, RankReading

RANK_GONE_S: Final = 10.0
"""A rank that no answer held for this long is gone, if that are more than `RANK_GONE_ANSWERS` answers."""
RANK_GONE_ANSWERS: Final = 3
AS_LONG_AS_S: Final = 1.0
"""Shortest time for which a counter's growth is held against what can be true: answers are not dated to less."""

_LEAST_JUMP_PER_S: Final = min(row.largest for row in COUNTERS.values())
"""Growth per second below which no counter has jumped."""


def most_per_s(counter: str) -> float:
    """The fastest growth per second of one rank's counter that can be true."""
    row = COUNTERS.get(counter)
    return math.inf if row is None else row.largest


class RankGrowth(NamedTuple):
    """A rank of an engine at two answers."""

    before: RankReading
    """Series as they stood at the answer before; at 0 where they began since, and as now where they are not known."""
    now: RankReading
    """Series that this answer lacked or had less of stand as before."""

    def counter(self, name: str) -> float | None:
        """Growth of a counter; None where the rank has no such counter."""
        counted = self.now.counters.get(name)
        if counted is None:
            return None
        return counted - self.before.counters.get(name, counted)

    def histogram(self, name: str) -> HistogramReading | None:
        """Observations of a histogram; None where it is not known at both answers."""
        return observations_between(self.before.histograms.get(name), self.now.histograms.get(name))


class EngineGrowth(NamedTuple):
    """An engine at two answers."""

    ranks: Mapping[str, RankGrowth]
    process: ProcessSeen
    born: Mapping[str, frozenset[str]]
    """Rank -> series that came with their first count, and stood at 0 before."""
    changed: frozenset[str]
    """Counters that move at another time than before (`Advance`): other series, with base lines of their own."""

    def counter(self, name: str) -> float | None:
        """Growth of a counter over all ranks; None where none has it."""
        growths = [growth.counter(name) for growth in self.ranks.values()]
        known = [growth for growth in growths if growth is not None]
        return math.fsum(known) if known else None

    def histogram(self, name: str) -> HistogramReading | None:
        """Observations of a histogram over all ranks; None where none has it, or their bounds differ."""
        observed = [growth.histogram(name) for growth in self.ranks.values()]
        return merge_common([histogram for histogram in observed if histogram is not None])


class _Missed(NamedTuple):
    """A rank that the last answers lacked."""

    answers: int
    since_s: float
    """When an answer had it last (monotonic)."""


class CountedSoFar:
    """Counts of one engine up to its newest answer, rank by rank."""

    def __init__(self) -> None:
        self.processes = ProcessWatch()
        self._last_s = -math.inf
        """When the newest good answer was read (monotonic)."""
        self._ranks: dict[str, RankReading] = {}
        """Rank -> the highest that each of its series stood at in this process."""
        self._missed: dict[str, _Missed] = {}
        """Rank -> answers that lacked it since it was seen last."""
        self._whole_answers: dict[str, int] = {}
        """Rank -> answers of this process that had it and were read to their end."""
        self._jumped: set[tuple[str, str]] = set()
        """Rank and counter of those whose newest value is no count: the next one is a base line."""
        self._advances: dict[str, Advance] = {}
        """Quantity -> when it moves, as the last answer that had it said."""

    @property
    def is_new(self) -> bool:
        """Whether no answer was taken in yet."""
        return self._last_s == -math.inf

    def take(self, reading: EngineReading, wall_s: float) -> EngineGrowth | None:
        """Take in an answer of a Unix time, and return what was counted since the one before; None where the engine
        did not answer, or this answer was taken in before."""
        self.processes.look(wall_s)
        if reading.state is not EndpointState.OK or reading.monotonic_s <= self._last_s or not reading.ranks:
            return None
        process = self.processes.note(reading, wall_s)
        if process.is_other:
            self._ranks = {}
            self._whole_answers = {}
        changed = self._changed_advances(reading)
        elapsed_s = max(AS_LONG_AS_S, reading.monotonic_s - self._last_s)
        ranks = {}
        born = {}
        for rank in reading.ranks:
            last = self._ranks.get(rank.rank)
            if last is not None and not self._is_anew(reading, last, rank):
                born[rank.rank] = self._born(last, reading, rank)
                last = with_zeros(last, rank, born[rank.rank]) if born[rank.rank] else last
            elif last is not None or process.is_new:
                last = at_zero(rank)
            else:
                last = rank
            before = self._with_base_lines(last, reading, rank, changed, elapsed_s)
            ranks[rank.rank] = RankGrowth(before, with_highest(before, rank))
        self._remember(reading, ranks)
        return EngineGrowth(ranks, process, born, changed)

    def _changed_advances(self, reading: EngineReading) -> frozenset[str]:
        """Counters that move at another time than at the last answer that had them."""
        changed = []
        for name in reading.live:
            advance = reading.advance.get(name, Advance.LIVE)
            if self._advances.get(name, advance) is not advance:
                changed.append(name)
            self._advances[name] = advance
        return frozenset(changed)

    def _is_anew(self, reading: EngineReading, last: RankReading, rank: RankReading) -> bool:
        """Whether a process that does not tell when it started is another one than before: not told by a page on which
        nothing was counted yet."""
        return not reading.started_wall_s and any(last.counters.values()) and began_anew(last, rank)

    def _born(self, last: RankReading, reading: EngineReading, rank: RankReading) -> frozenset[str]:
        """Series of a rank that stood at 0 before they came."""
        born = born_series(last, reading, rank, self._whole_answers.get(rank.rank, 0))
        answered = [last.counters[name] for name in (q.DECODE_TOKENS, q.REQUESTS) if name in last.counters]
        if answered and not any(answered):
            # It had answered nothing, so that a histogram which was not there was empty.
            born |= rank.histograms.keys() - series_of(last)
        return born

    def _with_base_lines(
        self, last: RankReading, reading: EngineReading, rank: RankReading, changed: frozenset[str], elapsed_s: float
    ) -> RankReading:
        """The rank as it was before, with base lines of now for counters whose growth is not known, and of 0 for those
        that an adapter works out and that began anew."""
        base_lines = {}
        counted = last.counters
        unknown = {name for place, name in self._jumped if place == rank.rank} | changed
        for name, now in rank.counters.items():
            growth = now - counted.get(name, now)
            if name in unknown:
                self._jumped.discard((rank.rank, name))
                base_lines[name] = now
            elif growth < 0.0:
                if now < RESTARTED_BELOW * counted[name] and reading.advance.get(name) is Advance.DERIVED:
                    base_lines[name] = 0.0
            elif growth > _LEAST_JUMP_PER_S * elapsed_s and growth > most_per_s(name) * elapsed_s:
                self._jumped.add((rank.rank, name))
                base_lines[name] = now
        if not base_lines:
            return last
        return msgspec.structs.replace(last, counters={**last.counters, **base_lines})

    def _remember(self, reading: EngineReading, ranks: Mapping[str, RankGrowth]) -> None:
        """Keep what the ranks have counted; one absent from an answer is not gone, one absent for long is."""
        self._last_s = reading.monotonic_s
        for name, growth in ranks.items():
            self._ranks[name] = growth.now
            self._whole_answers[name] = self._whole_answers.get(name, 0) + reading.whole
            self._missed[name] = _Missed(0, self._last_s)
        for name, missed in tuple(self._missed.items()):
            if name in ranks:
                continue
            self._missed[name] = missed._replace(answers=missed.answers + 1)
            if missed.answers >= RANK_GONE_ANSWERS and self._last_s - missed.since_s > RANK_GONE_S:
                del self._missed[name]
                self._whole_answers.pop(name, None)
                self._ranks.pop(name, None)
