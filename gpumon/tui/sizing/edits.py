"""The scenario that is worked on: what is typed into it, undo and redo, and what follows the engines that run here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from gpumon.readings.format import age, cells, cut
from gpumon.sizing.profile import Observed, Origin, seen_of
from gpumon.sizing.scenario import Scenario, Workload
from gpumon.tui.line import Piece
from gpumon.tui.sizing.fields import Place, with_value
from gpumon.tui.text_field import TextField

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


class Undo:
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


class Edit:
    """One field being typed into, over the scenario as it was before."""

    def __init__(self, place: Place, before: Scenario, text: str = "") -> None:
        self.fresh = not text
        """Whether it is typed from nothing: then the arrows leave it."""
        self.place = place
        self.before = before
        self.text = TextField(text)
        self.scenario: Scenario | None = None
        """With what is typed so far; None while that is no value."""
        self.reason = ""
        """Why it is none."""
        self._read()

    def take(self, key: str, character: str | None) -> bool:
        """One key; returns whether it was for the text: of characters only those that a number may have are."""
        if self.fresh and key in ("left", "right"):
            return False
        kind = self.place.field.kind
        if character is not None and character.isprintable() and (kind is None or not kind.takes(character)):
            return False
        if not self.text.take(key, character):
            return False
        self._read()
        return True

    def insert(self, text: str) -> None:
        """Pasted text."""
        self.text.insert(text)
        self._read()

    def _read(self) -> None:
        try:
            value: Any = self.place.field.read(self.text.text)
        except (ValueError, OverflowError) as wrong:
            self.scenario, self.reason = None, str(wrong)
        else:
            self.scenario, self.reason = with_value(self.before, self.place, value), ""

    def pieces(self, width: int) -> list[Piece]:
        """The text with its cursor in `width` cells; of one that is too long, what stands before the cursor."""
        text, at = self.text.text, self.text.at
        before, under, after = text[:at], text[at : at + 1] or " ", text[at + 1 :]
        while before and cells(before + under) > width:
            before = before[1:]
        after = cut(after, max(0, width - cells(before + under)))
        tone = "strong@" if not self.reason else "warn@"
        blank = " " * max(0, width - cells(before + under + after))
        return [(before, tone), (under, "badge_paused"), (after + blank, tone)]


FROZEN_S = 30.0
"""Seconds without an engine's figures from which its row says how old they are."""


class Newest(NamedTuple):
    """What the engines show now."""

    observed: Sequence[Observed] = ()
    targets: Mapping[str, float] = MappingProxyType({})
    """Served model name -> requests in flight to plan for (`live.targets`); none for one that falls silent."""


class Follower:
    """Brings pages up to date: what of their workloads follows what runs here."""

    def __init__(self, newest: Newest) -> None:
        self._newest = newest
        self._known: dict[tuple[int, Tie], tuple[Workload, Workload]] = {}
        """By identity: pages on the way back mostly have the same rows."""

    def renewed(self, page: Page) -> Page:
        """The page with the newest figures; the same one where nothing is new.

        An engine that is not among the newest changes nothing: its row keeps what was seen last.
        """
        before = page.scenario.workload
        workloads = tuple(self._renewed(workload, tie) for workload, tie in zip(before, page.ties, strict=True))
        if all(now is each for now, each in zip(workloads, before, strict=True)):
            return page
        return page._replace(scenario=replace(page.scenario, workload=workloads))

    def _renewed(self, workload: Workload, tie: Tie) -> Workload:
        key = id(workload), tie
        if key not in self._known:
            self._known[key] = workload, self._seen(self._target(workload, tie), tie)
        return self._known[key][1]

    def _target(self, workload: Workload, tie: Tie) -> Workload:
        now = self._newest.targets.get(workload.model, workload.target)
        return replace(workload, target=now) if tie.follows(workload) and now != workload.target else workload

    def _seen(self, workload: Workload, tie: Tie) -> Workload:
        if (
            not tie.figures
            or workload.profile
            or (workload.seen is not None and workload.seen.origin is not Origin.LIVE)
        ):
            return workload
        found = seen_of(workload.model, self._newest.observed, workload.seen)
        return workload if found is None or found == workload.seen else replace(workload, seen=found)


def ages(scenario: Scenario, now_s: float) -> dict[int, str]:
    """Workloads that stand on figures of an engine that has none now -> how old they are."""
    found: dict[int, str] = {}
    for at, workload in enumerate(scenario.workload):
        seen = workload.seen
        if seen is None or seen.origin is not Origin.LIVE or workload.profile or not seen.time:
            continue
        old_s = now_s - _when(seen.time)
        if old_s > FROZEN_S:
            found[at] = age(old_s)
    return found


def _when(time: str) -> float:
    """Seconds since 1970 of an RFC 3339 time; now-ish is not claimed for what is none."""
    try:
        return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
