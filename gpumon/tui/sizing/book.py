"""The scenario that is worked on, and the way back: undo and redo over immutable scenarios."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from msgspec.structs import replace

from gpumon.sizing.scenario import Scenario, Workload

MOST: Final = 200
"""Steps that can be taken back."""


class Tie(NamedTuple):
    """What of a workload goes on with what runs here, as far as nobody typed something else."""

    figures: bool = False
    """What its engines showed."""
    target: bool = False

    def follows(self, workload: Workload) -> bool:
        """Whether its target is as it runs: users and requests per second are none that run."""
        return self.target and workload.target_kind == "concurrency"


class Page(NamedTuple):
    """A scenario, and what of it is as it runs: a value that is only the same is not."""

    scenario: Scenario
    ties: tuple[Tie, ...] = ()
    """One for each workload."""
    begun: Scenario | None = None
    """What ran, without workloads: servers and goals that are the same were not typed. None for a file."""

    @classmethod
    def of(cls, scenario: Scenario, *, runs: bool) -> Page:
        """A page of its own: of what runs here, or of a file."""
        ties = (Tie(figures=runs, target=runs),) * len(scenario.workload)
        return cls(scenario, ties, replace(scenario, workload=()) if runs else None)

    def typed(self, chosen: Collection[int]) -> Page:
        """With targets of these workloads that follow no more."""
        return self._replace(
            ties=tuple(tie._replace(target=tie.target and at not in chosen) for at, tie in enumerate(self.ties))
        )


class Book:
    """Every change is a page; changes of one field in a row are one. What was measured since is on every page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._before: list[Page] = []
        self._after: list[Page] = []
        self._field = ""
        self._settled = 0
        """Pages before the one that was saved, loaded, or is as it runs."""

    @property
    def present(self) -> Scenario:
        """The scenario of this page."""
        return self.page.scenario

    def put(self, page: Page, field: str = "") -> bool:
        """Go on with another page; returns whether it is another. Changes of the same `field` in a row are one."""
        if page == self.page:
            return False
        if not field or field != self._field or not self._before:
            self._settled -= len(self._before) >= MOST
            self._before = [*self._before[1 - MOST :], self.page]
        self._field, self._after = field, []
        self.page = page
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

    def _turn(self, there: list[Page], here: list[Page]) -> bool:
        self._field = ""
        if not there:
            return False
        here.append(self.page)
        self.page = there.pop()
        return True

    def renew(self, renewed: Callable[[Page], Page]) -> bool:
        """Take over what was measured since, on every page and without one for it; returns whether that changed the
        present one."""
        before = self.page
        self.page = renewed(before)
        self._before, self._after = [*map(renewed, self._before)], [*map(renewed, self._after)]
        return self.page is not before

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
