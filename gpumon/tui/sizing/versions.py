"""Versions of the scenario in the sizing panel: what was typed, what follows the engines, and undo."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import replace

from gpumon.sizing.profile import Observed, Origin, best_profile
from gpumon.sizing.scenario import Catalogues, Scenario, Workload
from gpumon.tui.sizing.calculation import Here
from gpumon.tui.sizing.fields import FieldPlace

MOST_STEPS: Final = 200
"""Steps that can be undone."""
AS_IT_RUNS: Final = "as it ran"
"""Source of a target that is the load of what runs here."""


class FrozenFigures(NamedTuple):
    """Figures of the engines and GPUs at one moment: the panel works on them until a key takes newer ones."""

    catalogues: Catalogues
    here: Here = Here()
    observed: Sequence[Observed] = ()
    """Profiles of the engines."""
    targets: Mapping[str, float] = MappingProxyType({})
    """Served model name -> requests in flight to plan for (`live.live_targets`); a model that falls silent is not in
    it."""
    wall_s: float | None = None
    """Unix time of the moment; None: nothing was looked at yet."""


class Follows(NamedTuple):
    """The part of a workload that nobody typed, and that newer figures bring up to date."""

    figures: bool = False
    """Whether its figures are those of its engines."""
    target: str = ""
    """Source of its target: `AS_IT_RUNS`, or a name for the p95 of the past; empty: it was typed."""

    def target_source(self, workload: Workload) -> str:
        """The source of a workload's target; empty: it was typed."""
        if workload.target_kind == "concurrency":
            return self.target
        return ""  # engines count requests in flight: a target of another kind was typed

    def on_figures(self, workload: Workload, frozen: FrozenFigures) -> Workload:
        """The workload with its target and its engines' figures as frozen; the same object where nothing is new."""
        return self._with_figures(self._with_target(workload, frozen), frozen)

    def _with_target(self, workload: Workload, frozen: FrozenFigures) -> Workload:
        """The workload with the frozen target, if its target follows what runs."""
        target = frozen.targets.get(workload.model, workload.target)
        if self.target_source(workload) != AS_IT_RUNS or target == workload.target:
            return workload
        return replace(workload, target=target)

    def _with_figures(self, workload: Workload, frozen: FrozenFigures) -> Workload:
        """The workload with the frozen figures of its engines, if its figures follow them."""
        is_live = workload.seen is None or workload.seen.origin is Origin.LIVE
        if not self.figures or not is_live or workload.profile:
            return workload
        seen = best_profile(workload.model, frozen.observed, workload.seen)
        if seen is None or seen == workload.seen:
            return workload
        return replace(workload, seen=seen)


class Version(NamedTuple):
    """A scenario, and what of it nobody typed. A typed value counts as typed even if it is the one that was there."""

    scenario: Scenario
    follows: tuple[Follows, ...] = ()
    """One for each workload."""
    started: Scenario | None = None
    """The scenario of what ran at the start, without workloads: servers and goals that are the same were not typed.
    None: the scenario is of a file."""

    @classmethod
    def of_what_runs(cls, scenario: Scenario) -> Version:
        """The version of what runs here: its figures and targets follow the engines."""
        follows = Follows(figures=True, target=AS_IT_RUNS)
        return cls(scenario, (follows,) * len(scenario.workload), started=replace(scenario, workload=()))

    @classmethod
    def of_file(cls, scenario: Scenario) -> Version:
        """The version of a file: nothing of it follows the engines."""
        return cls(scenario, (Follows(),) * len(scenario.workload))

    def with_typed_targets(self, numbers: Collection[int]) -> Version:
        """The version in which somebody typed the targets of the workloads of these numbers."""
        follows = list(self.follows)
        for number in numbers:
            follows[number] = follows[number]._replace(target="")
        return self._replace(follows=tuple(follows))

    def on_figures(self, frozen: FrozenFigures) -> Version:
        """The version with frozen targets and figures; the same object where nothing is new.

        A model that they do not have changes nothing: its row keeps what was seen last.
        """
        workloads = self.scenario.workload
        updated = []
        is_new = False
        for workload, follows in zip(workloads, self.follows, strict=True):
            new_workload = follows.on_figures(workload, frozen)
            updated.append(new_workload)
            is_new = is_new or new_workload is not workload
        if not is_new:
            return self
        return self._replace(scenario=replace(self.scenario, workload=tuple(updated)))

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
        self._position = 0
        """Position of the version that is worked on."""
        self._saved_position = 0
        """Position of the version that was saved, loaded, or is as it runs; below 0: it was dropped."""
        self._place: FieldPlace | None = None
        """The place that the last version changed; None where the next change is a version of its own."""

    @property
    def version(self) -> Version:
        """The version that is worked on."""
        return self._versions[self._position]

    @version.setter
    def version(self, version: Version) -> None:
        """Replace the version that is worked on; this is no step that can be undone."""
        self._versions[self._position] = version

    @property
    def untouched(self) -> bool:
        """Whether nothing was ever changed, undone changes included."""
        return len(self._versions) == 1

    @property
    def changes(self) -> int:
        """Versions between this one and the one that was saved, loaded, or is as it runs."""
        return abs(self._position - self._saved_position)

    def put(self, version: Version, place: FieldPlace | None = None) -> bool:
        """Go on with another version; returns whether it differs from the present one. `place`: the only value that
        changed; None: there may be several."""
        if version == self.version:
            return False
        is_same_place = place is not None and place == self._place and self._position > 0
        # At the same place the new version takes the place of the present one.
        kept_versions = self._position if is_same_place else self._position + 1
        versions = [*self._versions[:kept_versions], version]
        dropped = max(0, len(versions) - MOST_STEPS - 1)
        self._versions = versions[dropped:]
        self._saved_position -= dropped
        self._place = place
        self._position = len(self._versions) - 1
        return True

    def seal(self) -> None:
        """Make the next change a version of its own, whatever its place."""
        self._place = None

    def move(self, step: int) -> bool:
        """Undo (-1) or redo (1) one version; returns whether there was one."""
        self.seal()
        if not 0 <= self._position + step < len(self._versions):
            return False
        self._position += step
        return True

    def mark_saved(self) -> None:
        """Count changes from the present version on."""
        self._saved_position = self._position
        self.seal()
