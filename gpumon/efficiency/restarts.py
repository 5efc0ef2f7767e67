"""Restarts of an engine between two answers: one rule for its totals, its windows and its requests within goals."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineReading, RankReading

START_TOLERANCE_S: Final = 1.0
"""Start times of one process differ by so much: pages have them rounded, or from the age of the process."""
RESTARTED_BELOW: Final = 0.5
"""Share of its last value below which a counter that fell has begun anew: an old answer that came late has more."""
CLOCK_SLACK_S: Final = 60.0
"""Seconds that the clock of an engine's host may be behind: a process that took the place of another has started after
the last answer of that one, whatever its page says."""
_MOST_PROCESSES: Final = 4
"""Servers that are told apart behind a balancer."""


def growth_of(before: float, now: float) -> float:
    """Growth of a counter that begins at 0 with its process or its driver: one that fell began anew."""
    return now - before if now >= before else now


class ProcessSeen(NamedTuple):
    """The process that gave an answer, beside the one that gave the answer before."""

    is_other: bool
    is_new: bool
    """It has started since the answer before, or the first look: all that it counted is of that time."""


class ProcessWatch:
    """The processes that answer for an engine, by the start times of their pages."""

    def __init__(self) -> None:
        self.several_servers = False
        """The process start time changed back: a balancer sends the polls to several servers in turn."""
        self.good_wall_s = float("inf")
        """Unix time of the last good poll; before it, of the first look."""
        self._started: deque[float] = deque(maxlen=_MOST_PROCESSES)
        """Start times (Unix) of the processes that answered, the newest one last."""

    def look(self, wall_s: float) -> None:
        """Take in that the engine was asked at `wall_s`, whether it answered or not."""
        if self.good_wall_s == float("inf"):
            self.good_wall_s = wall_s

    def note(self, reading: EngineReading, wall_s: float) -> ProcessSeen:
        """Take in a good answer made at `wall_s`."""
        self.look(wall_s)
        is_other = self._note_start(reading.started_wall_s)
        slack_s = CLOCK_SLACK_S if len(self._started) > 1 and not self.several_servers else 0.0
        is_new = reading.started_wall_s > self.good_wall_s - slack_s
        self.good_wall_s = wall_s
        return ProcessSeen(is_other, is_new)

    def _note_start(self, started: float) -> bool:
        """Note when the process that answered started. Returns whether it is not the one that answered before."""
        if not started:
            return False
        is_same = [abs(started - earlier) <= START_TOLERANCE_S for earlier in self._started]
        self.several_servers = self.several_servers or (any(is_same) and not is_same[-1])
        if not any(is_same):
            self._started.append(started)
        elif not is_same[-1]:
            # Turned by so many, the process that answered is the last one, which is the newest.
            self._started.rotate(-1 - is_same.index(True))
        return bool(is_same) and not is_same[-1]  # nothing is known of a process before the first


def began_anew(old: RankReading | None, new: RankReading) -> bool:
    """Whether a process that does not tell its start time is another: each of its counters fell deep at once."""
    if old is None:
        return True
    for name, before in old.counters.items():
        if before and new.counters.get(name, 0.0) >= RESTARTED_BELOW * before:
            return False
    return True


def is_other_process(before: EngineReading, now: EngineReading) -> bool:
    """Whether another process gave an answer than the one before: by the start times of their pages, and without these
    by the counters of all ranks that both have."""
    if before.started_wall_s and now.started_wall_s:
        return abs(now.started_wall_s - before.started_wall_s) > START_TOLERANCE_S
    ranks_before = {rank.rank: rank for rank in before.ranks}
    in_both = [rank for rank in now.ranks if rank.rank in ranks_before]
    return bool(in_both) and all(began_anew(ranks_before[rank.rank], rank) for rank in in_both)
