"""Hysteresis: what was found must hold for a while to become the verdict, and be gone as long to go.

Where several take turns, none of them holds for so long: the one that was found most of that time becomes it.
The level of the one that stands rises at once, and falls after as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.readings.verdict import Family, Level, Limit

SAME_S: Final = 2.0
"""Up to so far apart two beginnings are that of one cause: it is known by samples of a second."""
_URGENCY: Final = {level: at for at, level in enumerate(Level)}


class _Held(NamedTuple):
    limit: Limit | None
    """The verdict that stands; None: nothing was found."""
    since_wall_s: float
    coming: Limit | None
    """What was found last, where it is another."""
    coming_s: float
    """Monotonic time since which it was found without a break."""
    coming_wall_s: float
    before: tuple[tuple[Limit | None, float], ...] = ()
    """What was found before it, since the verdict that stands was: for how many seconds each."""
    level: Level | None = None
    """Of the verdict that stands; None: it was not given yet."""
    lower_s: float | None = None
    """Monotonic time since which it was found at a lower level."""
    onset: tuple[float, float] | None = None
    """When the cause of the verdict that stands began: monotonic, and the Unix time that is told."""

    def turns(self, now_s: float) -> dict[Limit | None, float]:
        """Seconds for which each was found since the verdict that stands was."""
        return {**dict(self.before), self.coming: dict(self.before).get(self.coming, 0.0) + now_s - self.coming_s}

    def is_due(self, hold_s: float, now_s: float) -> bool:
        """Whether what is coming held for long enough; or nobody did, and it was found most."""
        if now_s - self.coming_s >= hold_s:
            return True
        turns = self.turns(now_s)
        return sum(turns.values()) >= hold_s and turns[self.coming] >= max(turns.values())


_NONE: Final[Mapping[Family, _Held]] = {}


class Holds:
    """The verdicts that stand, by thing and family."""

    def __init__(self) -> None:
        self._held: dict[str, dict[Family, _Held]] = {}

    def limit(self, key: str, family: Family) -> Limit | None:
        """The verdict that stands."""
        held = self._held.get(key, _NONE).get(family)
        return None if held is None else held.limit

    def near(self, key: str) -> frozenset[Limit]:
        """The verdicts that stand on a thing, and those about to."""
        found = []
        for held in self._held.get(key, _NONE).values():
            found += [limit for limit in (held.limit, held.coming) if limit is not None]
        return frozenset(found)

    def take(
        self, key: str, family: Family, found: Limit | None, hold_s: float, now_s: float, wall_s: float
    ) -> tuple[Limit | None, float]:
        """The verdict that stands after this finding, and since when (Unix time)."""
        of = self._held.setdefault(key, {})
        held = of.get(family)
        if held is None:
            held = _Held(None, wall_s, None, now_s, wall_s)
        elif found is held.coming is held.limit:
            return found, held.since_wall_s
        if found is held.limit:
            held = held._replace(coming=found, before=())
        else:
            if found is not held.coming:
                before = () if held.coming is held.limit else tuple(held.turns(now_s).items())
                held = held._replace(coming=found, coming_s=now_s, coming_wall_s=wall_s, before=before)
            if held.is_due(hold_s, now_s):
                held = _Held(found, held.coming_wall_s, found, now_s, wall_s)
        of[family] = held
        return held.limit, held.since_wall_s

    def gone_s(self, key: str, family: Family, now_s: float) -> float:
        """For how long the verdict that stands has not been found."""
        held = self._held.get(key, _NONE).get(family)
        return 0.0 if held is None or held.coming is held.limit else sum(held.turns(now_s).values())

    def level(self, key: str, family: Family, found: Level, hold_s: float, now_s: float) -> Level:
        """The level of the verdict that stands, after it was found at this one."""
        of = self._held[key]
        held = of[family]
        if held.level is not None and _URGENCY[found] > _URGENCY[held.level]:
            lower_s = now_s if held.lower_s is None else held.lower_s
            if now_s - lower_s < hold_s:
                of[family] = held._replace(lower_s=lower_s)
                return held.level
        if (held.level, held.lower_s) != (found, None):
            of[family] = held._replace(level=found, lower_s=None)
        return found

    def onset_s(self, key: str, family: Family, began_s: float, ahead_s: float) -> float:
        """Unix time at which the cause of the verdict that stands began, where that was before it was found.

        `began_s` is monotonic, `ahead_s` how far Unix time is ahead of that. It is told in whole seconds, and worked
        out once: clocks drift, and are set.
        """
        of = self._held[key]
        held = of[family]
        if held.onset is not None and abs(began_s - held.onset[0]) <= SAME_S:
            return held.onset[1]
        wall_s = began_s + ahead_s
        told_s = float(round(wall_s)) if wall_s < held.since_wall_s else held.since_wall_s
        of[family] = held._replace(onset=(began_s, told_s))
        return told_s

    def forget(self, keys: set[str]) -> None:
        """Drop what is about things that are not among `keys`."""
        self._held = {key: of for key, of in self._held.items() if key in keys}
