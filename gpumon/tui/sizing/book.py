"""The scenario that is worked on, and the way back: undo and redo over immutable scenarios."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpumon.sizing.scenario import Scenario

MOST: Final = 200
"""Steps that can be taken back."""


class Book:
    """Every change is a page; changes of one field in a row are one. What was measured since is on every page."""

    def __init__(self, scenario: Scenario) -> None:
        self.present = scenario
        self._before: list[Scenario] = []
        self._after: list[Scenario] = []
        self._field = ""
        self._settled = 0
        """Pages before the one that was saved, loaded, or is as it runs."""

    def put(self, scenario: Scenario, field: str = "") -> bool:
        """Go on with another scenario; returns whether it is another. Changes of the same `field` in a row are one."""
        if scenario == self.present:
            return False
        if not field or field != self._field or not self._before:
            self._settled -= len(self._before) >= MOST
            self._before = [*self._before[1 - MOST :], self.present]
        self._field, self._after = field, []
        self.present = scenario
        return True

    def seal(self) -> None:
        """The next change is a page of its own, whatever its field."""
        self._field = ""

    def undo(self) -> bool:
        """Back to the page before; returns whether there is one."""
        return self._turn(self._before, self._after)

    def redo(self) -> bool:
        """Forth again; returns whether there is something."""
        return self._turn(self._after, self._before)

    def _turn(self, there: list[Scenario], here: list[Scenario]) -> bool:
        self._field = ""
        if not there:
            return False
        here.append(self.present)
        self.present = there.pop()
        return True

    def renew(self, renewed: Callable[[Scenario], Scenario]) -> bool:
        """Take over what was measured since, on every page and without one for it; returns whether that changed the
        present one."""
        before = self.present
        self.present = renewed(before)
        self._before, self._after = [*map(renewed, self._before)], [*map(renewed, self._after)]
        return self.present is not before

    def settle(self) -> None:
        """From this page on changes are counted."""
        self._settled = len(self._before)
        self.seal()

    @property
    def changes(self) -> int:
        """Pages between this one and the settled one."""
        return abs(len(self._before) - self._settled)

    @property
    def steps(self) -> tuple[int, int]:
        """Pages before and after this one."""
        return len(self._before), len(self._after)
