"""Undo and redo over scenarios, what follows the engines, and the values of fields that nobody typed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.sizing.peaks import PeakLoad
from gpumon.sizing.scenario import Scenario, Workload
from gpumon.tui.sizing.fields import Place, field
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.sizing.versions import MOST_STEPS, Newest, UndoList, Version
from gpumon.tui.sizing.what_ifs import plan_for
from tests.sizing.questions import KNOWN

TARGET = Place("workload", 0, field("workload", "target"))


def of(target: float, *, runs: bool = False) -> Version:
    return Version.of(Scenario(workload=(Workload("m", target),)), runs=runs)


def targets(version: Version) -> list[float]:
    return [each.target for each in version.scenario.workload]


def test_changes_of_one_place_in_a_row_are_one_step() -> None:
    undo = UndoList(of(1))
    for target in (2, 3, 4):
        undo.put(of(target), TARGET)
    undo.seal()
    undo.put(of(5), TARGET)
    assert undo.changes == 2
    assert undo.move(-1)
    assert undo.present == of(4)
    assert undo.move(-1)
    assert undo.present == of(1)
    assert not undo.move(-1)


def test_changes_are_counted_from_what_was_saved() -> None:
    undo = UndoList(of(1))
    undo.put(of(2))
    undo.settle()
    assert undo.changes == 0
    undo.move(-1)
    assert undo.changes == 1


@given(st.lists(st.sampled_from(["put", "undo", "redo"]), max_size=400))
def test_any_walk_leads_where_a_plain_list_would(walk: list[str]) -> None:
    undo, versions, at = UndoList(of(1)), [of(1)], 0
    for number, step in enumerate(walk, start=2):
        if step == "put":
            undo.put(of(number))
            versions = [*versions[: at + 1], of(number)][-MOST_STEPS - 1 :]
            at = len(versions) - 1
        else:
            there = at + (1 if step == "redo" else -1)
            moved = 0 <= there < len(versions)
            assert undo.move(1 if step == "redo" else -1) == moved
            at = there if moved else at
        assert undo.present == versions[at]


def test_only_targets_that_nobody_typed_follow_what_runs() -> None:
    two = Scenario(workload=(Workload("m", 8.0), Workload("m", 8.0)))
    newest = Newest((), {"m": 9.0})
    assert targets(Version.of(two, runs=True).typed({1}).followed(newest)) == [9.0, 8.0]
    assert targets(Version.of(two, runs=False).followed(newest)) == [8.0, 8.0]
    unchanged = Version.of(two, runs=True)
    assert unchanged.followed(Newest((), {"other": 9.0})) is unchanged


def test_a_recorded_load_is_a_target_in_flight_or_a_second_and_stays() -> None:
    rows = (
        Workload("m", 8.0),
        Workload("m", 2.0, target_kind="requests_per_s"),
        Workload("m", 9.0, target_kind="users"),
    )
    state = PanelState(KNOWN, Scenario(workload=rows))
    assert plan_for(state, {"m": PeakLoad(40.4, 20.0, 3600.0, requests_per_s=0.5)}, "p95 recorded")
    assert targets(state.undo.present) == [40.0, 0.5, 9.0]
    state.renew(Newest((), {"m": 12.0}))
    assert targets(state.undo.present) == [40.0, 0.5, 9.0]
    assert not plan_for(state, {"other": PeakLoad(1.0, 1.0, 60.0)}, "p95 recorded")
