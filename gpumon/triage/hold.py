"""Hysteresis: what was found must hold for a while to become the verdict, and be gone as long to go.

Where several take turns, none of them holds for so long: the one that was found most of that time becomes it.
The level of the one that stands rises at once, and falls after as long.
"""

from __future__ import annotations

from typing import Final

from gpumon.readings.verdict import Level, Limit
from gpumon.triage.marks import URGENCY

_SAME_S: Final = 2.0
"""Up to so far apart two beginnings are that of one cause: it is known by samples of a second."""


class Hold:
    """The verdict that stands in one family of a thing. Times are monotonic unless they are named `wall_s`."""

    def __init__(self, now_s: float, wall_s: float) -> None:
        self._stand(None, wall_s, now_s, wall_s)

    def _stand(self, limit: Limit | None, since_wall_s: float, now_s: float, wall_s: float) -> None:
        self.limit = limit
        self.coming = limit
        """The verdict that stands, and what was found last; None: nothing."""
        self.since_wall_s = since_wall_s
        self._coming_s = now_s
        self._coming_wall_s = wall_s
        """Since when it was found without a break."""
        self._before: dict[Limit | None, float] = {}
        """Seconds for which each other finding came since the verdict that stands was found last."""
        self._level: Level | None = None
        self._lower_s: float | None = None
        """Since when it was found at a lower level."""
        self._onset: tuple[float, float] | None = None
        """When the cause of the verdict that stands began: monotonic, and the Unix time that is told."""

    def _turns(self, now_s: float) -> dict[Limit | None, float]:
        """Seconds for which each was found since the verdict that stands was."""
        return {**self._before, self.coming: self._before.get(self.coming, 0.0) + now_s - self._coming_s}

    def take(self, found: Limit | None, hold_s: float, now_s: float, wall_s: float) -> Limit | None:
        """The verdict that stands after this finding."""
        if found is self.limit:
            self.coming = found
            self._before = {}
            return found
        if found is not self.coming:
            if self.coming is self.limit:
                self._before = {}
            else:
                self._before = self._turns(now_s)
            self.coming = found
            self._coming_s = now_s
            self._coming_wall_s = wall_s
        turns = self._turns(now_s)
        most = sum(turns.values()) >= hold_s and turns[found] >= max(turns.values())
        if most or now_s - self._coming_s >= hold_s:
            self._stand(found, self._coming_wall_s, now_s, wall_s)
        return self.limit

    def coming_s(self, now_s: float) -> float:
        """Seconds for which a finding has come without a break that is not the verdict that stands; 0 without one."""
        return 0.0 if self.coming is self.limit else now_s - self._coming_s

    def gone_s(self, now_s: float) -> float:
        """For how long the verdict that stands has not been found."""
        if self.coming is self.limit:
            return 0.0
        return sum(self._turns(now_s).values())

    def level(self, found: Level, hold_s: float, now_s: float) -> Level:
        """The level of the verdict that stands, after it was found at this one."""
        if self._level is not None and URGENCY[found] > URGENCY[self._level]:
            self._lower_s = now_s if self._lower_s is None else self._lower_s
            if now_s - self._lower_s < hold_s:
                return self._level
        self._level = found
        self._lower_s = None
        return found

    def onset_s(self, began_s: float, ahead_s: float) -> float:
        """Unix time at which the cause of the verdict that stands began, where that was before it was found.

        `began_s` is monotonic, `ahead_s` how far Unix time is ahead of that. It is told in whole seconds, and worked
        out once: clocks drift, and are set.
        """
        if self._onset is None or abs(began_s - self._onset[0]) > _SAME_S:
            wall_s = began_s + ahead_s
            if wall_s < self.since_wall_s:
                told_s = float(round(wall_s))
            else:
                told_s = self.since_wall_s
            self._onset = began_s, told_s
        return self._onset[1]
