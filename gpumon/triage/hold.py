"""Hysteresis: what was found must hold for a while to become the verdict, and be gone as long to go.

Where several take turns, none of them holds for so long: the one that was found most of that time becomes it.
The level of the one that stands rises at once, and falls after as long.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.readings.verdict import Level, Limit
from gpumon.triage.marks import URGENCY

RETURNS_S: Final = 600.0
"""Seconds after a note went in which it does not come again: a figure that is near its threshold for good crosses it
every minute, and a line that comes and goes is read each time. So it changes twice in ten minutes at most."""
_SAME_BEGINNING_S: Final = 2.0
"""Seconds up to which two beginnings are that of one cause: they are known by samples of a second."""


class _Beginning(NamedTuple):
    """When the cause of a verdict began."""

    monotonic_s: float
    shown_wall_s: float
    """Unix time that is shown: in whole seconds."""


class Hold:
    """The verdict that stands in one family of a thing. Times are monotonic unless they are named `wall_s`."""

    def __init__(self, now_s: float, wall_s: float) -> None:
        self._stood_s: dict[Limit, float] = {}
        """When each verdict stood last."""
        self._stand(None, wall_s, now_s, wall_s)

    def _stand(self, limit: Limit | None, since_wall_s: float, now_s: float, wall_s: float) -> None:
        """Make a finding the verdict that stands."""
        self.limit = limit
        """The verdict that stands; None: nothing."""
        self.pending = limit
        """Limit that was found last; None: nothing."""
        self.since_wall_s = since_wall_s
        """Since when the verdict that stands was found."""
        self._pending_since_s = now_s
        self._pending_since_wall_s = wall_s
        """Since when `pending` was found without a break, on both clocks."""
        self._before: dict[Limit | None, float] = {}
        """Finding before `pending` -> seconds for which it came since the verdict that stands was found last."""
        self._level: Level | None = None
        """Level of the verdict that stands."""
        self._lower_s: float | None = None
        """Since when it was found at a lower level."""
        self._beginning: _Beginning | None = None
        """When the cause of the verdict that stands began."""

    def _found_s(self, now_s: float) -> dict[Limit | None, float]:
        """Finding -> seconds for which it came since the verdict that stands was found last."""
        return {**self._before, self.pending: self._before.get(self.pending, 0.0) + now_s - self._pending_since_s}

    def take(self, limit: Limit | None, hold_s: float, now_s: float, wall_s: float) -> Limit | None:
        """Take in a finding (None: nothing). Returns the verdict that stands then."""
        if self.limit is not None:
            self._stood_s[self.limit] = now_s
        if limit is self.limit:
            self.pending = limit
            self._before = {}
            return limit
        if limit is not self.pending:
            if self.pending is self.limit:
                self._before = {}
            else:
                self._before = self._found_s(now_s)
            self.pending = limit
            self._pending_since_s = now_s
            self._pending_since_wall_s = wall_s
        found_s = self._found_s(now_s)
        is_most_frequent = sum(found_s.values()) >= hold_s and found_s[limit] >= max(found_s.values())
        if is_most_frequent or now_s - self._pending_since_s >= hold_s:
            self._stand(limit, self._pending_since_wall_s, now_s, wall_s)
        return self.limit

    def pending_s(self, now_s: float) -> float:
        """Seconds for which a finding has come without a break that is not the verdict that stands; 0 without one."""
        if self.pending is self.limit:
            return 0.0
        return now_s - self._pending_since_s

    def went_lately(self, limit: Limit, now_s: float) -> bool:
        """Whether a verdict that does not stand any more stood in the last `RETURNS_S`."""
        stood_s = self._stood_s.get(limit)
        return limit is not self.limit and stood_s is not None and now_s - stood_s < RETURNS_S

    def begin_anew(self) -> None:
        """Forget which verdicts stood: after a trouble they are news again."""
        self._stood_s = {}

    def absent_s(self, now_s: float) -> float:
        """For how long the verdict that stands has not been found."""
        if self.pending is self.limit:
            return 0.0
        return sum(self._found_s(now_s).values())

    def level(self, found: Level, hold_s: float, now_s: float) -> Level:
        """The level of the verdict that stands, after it was found at this one."""
        if self._level is not None and URGENCY[found] > URGENCY[self._level]:
            if self._lower_s is None:
                self._lower_s = now_s
            if now_s - self._lower_s < hold_s:
                return self._level
        self._level = found
        self._lower_s = None
        return found

    def began_wall_s(self, began_s: float, ahead_s: float) -> float:
        """Unix time at which the cause of the verdict that stands began, where that was before it was found.

        `began_s` is monotonic, `ahead_s` how far Unix time is ahead of that. It is in whole seconds, and worked out
        once: clocks drift, and are set.
        """
        if self._beginning is None or abs(began_s - self._beginning.monotonic_s) > _SAME_BEGINNING_S:
            wall_s = began_s + ahead_s
            if wall_s < self.since_wall_s:
                shown_wall_s = float(round(wall_s))
            else:
                shown_wall_s = self.since_wall_s
            self._beginning = _Beginning(began_s, shown_wall_s)
        return self._beginning.shown_wall_s
