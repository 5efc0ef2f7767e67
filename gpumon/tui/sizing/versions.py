"""Versions of the scenario in the sizing panel: what was typed, what follows the engines, and undo."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import replace

from gpumon.sizing.profile import Observed, Origin, best_profile
from gpumon.sizing.scenario import Scenario, Workload
from gpumon.tui.sizing.fields import FieldPlace

MOST_STEPS: Final = 200
"""Steps that can be undone."""
AS_IT_RUNS: Final = "live"
"""Source of a target that goes on with what runs here."""


class Newest(NamedTuple):
    """Newest figures of the engines."""

    observed: Sequence[Observed] = ()
    targets: Mapping[str, float] = MappingProxyType({})
    """Served model name -> requests in flight to plan for (`live.targets`); none for one that falls silent."""


class Follows(NamedTuple):
    """The part of a workload that nobody typed."""

    figures: bool = False
    """Whether its figures are those of its engines, and go on with them."""
    target: str = ""
    """Source of its target: `AS_IT_RUNS`, or a name for the p95 of the past; empty: it was typed."""

    def target_of(self, workload: Workload) -> str:
        """The source of its target; engines count requests in flight, so any other target was typed."""
        return self.target if workload.target_kind == "concurrency" else ""

    def updated(self, workload: Workload, newest: Newest) -> Workload:
        """The workload with the newest figures; the same one where nothing is new."""
        return self._with_figures(self._with_target(workload, newest), newest)

    def _with_target(self, workload: Workload, newest: Newest) -> Workload:
        target = newest.targets.get(workload.model, workload.target)
        if self.target_of(workload) != AS_IT_RUNS or target == workload.target:
            return workload
        return replace(workload, target=target)

    def _with_figures(self, workload: Workload, newest: Newest) -> Workload:
        live = workload.seen is None or workload.seen.origin is Origin.LIVE
        if not self.figures or not live or workload.profile:
            return workload
        seen = best_profile(workload.model, newest.observed, workload.seen)
        if seen is None or seen == workload.seen:
            return workload
        return replace(workload, seen=seen)


class Version(NamedTuple):
    """A scenario, and what of it nobody typed: a value that is only the same was typed."""

    scenario: Scenario
    follows: tuple[Follows, ...] = ()
    """One for each workload."""
    started: Scenario | None = None
    """The scenario of what ran, without workloads: servers and goals that are the same were not typed; None: a file."""

    @classmethod
    def of(cls, scenario: Scenario, *, runs: bool, target: str = AS_IT_RUNS) -> Version:
        """The version of what runs here, with targets of that source; or of a file."""
        if not runs:
            return cls(scenario, (Follows(),) * len(scenario.workload))
        follows = Follows(figures=True, target=target)
        return cls(scenario, (follows,) * len(scenario.workload), replace(scenario, workload=()))

    def with_typed_targets(self, chosen: Collection[int]) -> Version:
        """The version in which somebody typed the targets of these workloads."""
        follows = list(self.follows)
        for number in chosen:
            follows[number] = follows[number]._replace(target="")
        return self._replace(follows=tuple(follows))

    def followed(self, newest: Newest) -> Version:
        """The version with the newest figures; the same one where nothing is new.

        An engine that is not among the newest changes nothing: its row keeps what was seen last.
        """
        workloads = self.scenario.workload
        updated = tuple(
            follows.updated(workload, newest) for workload, follows in zip(workloads, self.follows, strict=True)
        )
        if all(new is old for new, old in zip(updated, workloads, strict=True)):
            return self
        return self._replace(scenario=replace(self.scenario, workload=updated))

    def with_workload(self, workload: Workload, follows: Follows) -> Version:
        """The version with one more workload, the last one."""
        scenario = replace(self.scenario, workload=(*self.scenario.workload, workload))
        return self._replace(scenario=scenario, follows=(*self.follows, follows))

    def without_workload(self, number: int) -> Version:
        """The version without one of its workloads."""
        workloads = list(self.scenario.workload)
        follows = list(self.follows)
        del workloads[number]
        del follows[number]
        scenario = replace(self.scenario, workload=tuple(workloads))
        return self._replace(scenario=scenario, follows=tuple(follows))


class UndoList:
    """Versions, and the one that is worked on. Changes of one place in a row are one version."""

    def __init__(self, version: Version) -> None:
        self._versions = [version]
        self._at = 0
        self._saved = 0
        """The version that was saved, loaded, or is as it runs."""
        self._place: FieldPlace | None = None
        """The place that the last version changed; None where the next change is a version of its own."""

    @property
    def version(self) -> Version:
        """The version that is worked on."""
        return self._versions[self._at]

    @version.setter
    def version(self, version: Version) -> None:
        """Replace the version that is worked on; this is no step that can be undone."""
        self._versions[self._at] = version

    @property
    def changes(self) -> int:
        """Versions between this one and the one that was saved, loaded, or is as it runs."""
        return abs(self._at - self._saved)

    def put(self, version: Version, place: FieldPlace | None = None) -> bool:
        """Go on with another version; returns whether it is another."""
        if version == self.version:
            return False
        same_place = place is not None and place == self._place and self._at > 0
        if same_place:
            kept = self._at
        else:
            kept = self._at + 1
        versions = [*self._versions[:kept], version]
        dropped = max(0, len(versions) - MOST_STEPS - 1)
        self._versions = versions[dropped:]
        self._saved -= dropped
        self._place = place
        self._at = len(self._versions) - 1
        return True

    def seal(self) -> None:
        """The next change is a version of its own, whatever its place."""
        self._place = None

    def move(self, step: int) -> bool:
        """Undo (-1) or redo (1); returns whether there is something."""
        self.seal()
        if not 0 <= self._at + step < len(self._versions):
            return False
        self._at += step
        return True

    def settle(self) -> None:
        """From this version on changes are counted."""
        self._saved = self._at
        self.seal()
