"""The offer of newer figures: how much more was measured since, and what it would change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpumon.readings.format import age, counted, whole
from gpumon.readings.missing import Missing
from gpumon.sizing.answer import Answer, Basis
from gpumon.sizing.profile import Origin
from gpumon.sizing.ranges import figure_or_range
from gpumon.sizing.scenario import Scenario, Workload
from gpumon.tui.sizing.calculation import waits
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.sizing.versions import FrozenFigures

_NO_ANSWER: Final = "no answer"
"""Text in place of GPUs that are not known."""


class Offer(NamedTuple):
    """Newer figures that would change something, in words."""

    changes: tuple[str, ...]
    """Its changes, the most important first: `14 more points`."""
    newer: str
    """How much newer it is: `2m newer`."""
    need: str
    """GPUs that are needed, now and with it: `need 27 -> 31`; empty where there is no answer either way."""
    asked: Answer | None
    """The answer that it is compared with."""
    figures: FrozenFigures
    """The figures that a key takes."""
    waits: bool = False
    """Whether its need waits for simulated requests."""

    def is_told(self, answer: Answer | None) -> bool:
        """Whether it tells the need for the question of an answer."""
        return not self.waits and self.asked == answer


def offer_of(state: PanelState, newest: FrozenFigures) -> Offer | None:
    """The offer of the newest figures for the question of the panel; None where it would change nothing worth a key."""
    offered = state.version.on_figures(newest).scenario
    changes = [*_changed_points(state.scenario, offered), *_changed_targets(state.scenario, offered)]
    changes += _changed_gpus(state.frozen.here.gpus, newest.here.gpus)
    newer_answer = state.calculation.answer_on(offered, newest.catalogues, newest.here.gpus)
    need = _need_text(state.calculation.answer)
    newer_need = _need_text(newer_answer)
    changes = [*newly_measured(state.calculation.answer, newer_answer), *changes]
    if not changes and need == newer_need:
        return None
    is_waiting = _waits(state.calculation.answer) or _waits(newer_answer)
    if is_waiting:
        verdict = ""  # a mean against a p95 is no change
    elif need != newer_need:
        verdict = f"need {need} -> {newer_need}"
    elif need == _NO_ANSWER:
        verdict = ""
    else:
        verdict = f"need stays {need}"
    newer_s = (newest.wall_s or 0.0) - (state.frozen.wall_s or 0.0)
    return Offer(
        changes=tuple(changes) or ("newer figures",),
        newer=f"{age(newer_s)} newer",
        need=verdict,
        asked=state.calculation.answer,
        figures=newest,
        waits=is_waiting,
    )


def _waits(answer: Answer | None) -> bool:
    """Whether an answer waits for simulated requests."""
    return answer is not None and waits(answer)


def points_of(scenario: Scenario) -> int:
    """Points of running engines that a scenario stands on."""
    return sum(_live_points(workload) for workload in scenario.workload)


def _live_points(workload: Workload) -> int:
    """Points of the running engines of a workload."""
    if workload.seen is None or workload.seen.origin is not Origin.LIVE or workload.profile:
        return 0
    return len(workload.seen.points)


def newly_measured(answer: Answer | None, newer_answer: Answer | None) -> Iterator[str]:
    """The goals whose figures were simulated and are measured by now: that may change the need more than any point."""
    before = _goals_with_basis(answer, Basis.SIMULATED)
    names = before & _goals_with_basis(newer_answer, Basis.MEASURED)
    for name in dict.fromkeys(name for _, name in sorted(names)):
        yield f"{name} as measured"


def _goals_with_basis(answer: Answer | None, basis: Basis) -> set[tuple[str, str]]:
    """The workloads and goals whose figures come from there."""
    goals = set[tuple[str, str]]()
    for plan in answer.workloads if answer is not None else ():
        goals.update((plan.name, goal.name) for goal in plan.goals if goal.basis is basis)
    return goals


def _changed_points(present: Scenario, offered: Scenario) -> Iterator[str]:
    """How many points more the offered scenario has; of fewer ones, how many there are."""
    now = points_of(present)
    then = points_of(offered)
    if then > now:
        yield counted(then - now, "more point")
    elif then < now:
        yield f"{counted(then, 'point')} instead of {now}"


def _changed_targets(present: Scenario, offered: Scenario) -> Iterator[str]:
    """The targets that the load of now would change."""
    changed = [
        (before.target, after.target)
        for before, after in zip(present.workload, offered.workload, strict=True)
        if before.target != after.target
    ]
    if len(changed) == 1:
        ((before_target, after_target),) = changed
        yield f"target {whole(before_target)} -> {whole(after_target)}"
    elif changed:
        yield f"{len(changed)} other targets"


def _changed_gpus(before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> Iterator[str]:
    """The change of the number of GPUs that are here."""
    if before is None or after is None or before == after:
        return
    if sum(before.values()) == sum(after.values()):
        yield "other GPUs here"
    else:
        yield f"GPUs here {sum(before.values())} -> {sum(after.values())}"


def _need_text(answer: Answer | None) -> str:
    """GPUs of an answer: `27`, `27 to 34`, or that there is none."""
    if answer is None:
        return _NO_ANSWER
    gpus = answer.totals_without.gpus if answer.without else answer.totals.gpus
    if isinstance(gpus, Missing):
        return _NO_ANSWER
    return figure_or_range(gpus, answer.gpus_range)
