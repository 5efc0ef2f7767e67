"""Undo and redo over scenarios, what follows the engines, and the values of fields that nobody typed."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.efficiency.service import model_key
from gpumon.readings.snapshot import Quantiles
from gpumon.sizing.peaks import PeakLoad
from gpumon.sizing.running import ModelEngines
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.tui.sizing.calculation import Here
from gpumon.tui.sizing.fields import FieldPlace, field_of, with_value
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.sizing.versions import MOST_STEPS, FrozenFigures, UndoList, Version
from gpumon.tui.sizing.what_ifs import add_server, plan_for
from tests.sizing.questions import KNOWN

TARGET = FieldPlace("workload", 0, field_of("workload", "target"))


def of(target: float, *, runs: bool = False) -> Version:
    make = Version.of_what_runs if runs else Version.of_file
    return make(Scenario(workload=(Workload("m", target),)))


def targets(version: Version) -> list[float]:
    return [each.target for each in version.scenario.workload]


def panel(*shapes: Server, target: float = 200.0) -> PanelState:
    """The panel on one model and these servers."""
    model = Workload("meta-llama/Llama-3.1-8B-Instruct", target, prompt_tokens=1000.0, answer_tokens=300.0)
    return PanelState(KNOWN, Scenario(server=shapes, workload=(model,)))


def test_changes_of_one_place_in_a_row_are_one_step() -> None:
    undo = UndoList(of(1))
    for target in (2, 3, 4):
        undo.put(of(target), TARGET)
    undo.seal()
    undo.put(of(5), TARGET)
    assert undo.changes == 2
    assert undo.move(-1)
    assert undo.version == of(4)
    assert undo.move(-1)
    assert undo.version == of(1)
    assert not undo.move(-1)


def test_changes_are_counted_from_what_was_saved() -> None:
    undo = UndoList(of(1))
    undo.put(of(2))
    undo.mark_saved()
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
        assert undo.version == versions[at]


def test_only_targets_that_nobody_typed_follow_what_runs() -> None:
    two = Scenario(workload=(Workload("m", 8.0), Workload("m", 8.0)))
    frozen = FrozenFigures(KNOWN, targets={"m": 9.0})
    assert targets(Version.of_what_runs(two).with_typed_targets({1}).on_figures(frozen)) == [9.0, 8.0]
    assert targets(Version.of_file(two).on_figures(frozen)) == [8.0, 8.0]
    unchanged = Version.of_what_runs(two)
    assert unchanged.on_figures(FrozenFigures(KNOWN, targets={"other": 9.0})) is unchanged


def test_a_recorded_load_is_a_target_in_flight_or_a_second_and_stays() -> None:
    rows = (
        Workload("m", 8.0),
        Workload("m", 2.0, target_kind="requests_per_s"),
        Workload("m", 9.0, target_kind="users"),
    )
    state = PanelState(KNOWN, Scenario(workload=rows))
    assert plan_for(state, {"m": PeakLoad(40.4, 20.0, 3600.0, requests_per_s=0.5)}, "p95 recorded")
    assert targets(state.undo.version) == [40.0, 0.5, 9.0]
    state.renew(FrozenFigures(KNOWN, targets={"m": 12.0}))
    assert targets(state.undo.version) == [40.0, 0.5, 9.0]
    assert not plan_for(state, {"other": PeakLoad(1.0, 1.0, 60.0)}, "p95 recorded")


def test_newer_engines_stand_beside_the_plan_though_nothing_of_the_question_is_new() -> None:
    state = panel(Server("H100 SXM 80GB"))
    key = model_key(state.present.workload[0].model)
    for p95_s in (0.2, 0.9):
        engines = ModelEngines(1, 1.0, 12.0, 12.0, 0.0, 0.02, 0.1, {"ttft_s": Quantiles(p95=p95_s)}, telling=1)
        state.renew(FrozenFigures(KNOWN, Here(served={key: engines})))
        runs = state.calculation.runs(0)
        assert runs is not None
        assert [latency.value_s for latency in runs.p95] == [p95_s]


def servers(state: PanelState) -> list[tuple[str, int, int]]:
    return [(each.gpu, each.gpus, each.count) for each in state.present.server]


def test_more_servers_are_filled_behind_those_that_are_here() -> None:
    """What is here has its number then, so that the new type is used at all."""
    state = panel(Server("H100 SXM 80GB"), target=2000.0)
    state.calculation.use(KNOWN, Here({"H100 SXM5 80GB": 19}))
    state.answer()
    add_server(state, "A100 SXM4 80GB")
    assert servers(state) == [("H100 SXM 80GB", 8, 2), ("A100 SXM4 80GB", 8, 0)]
    assert state.place == FieldPlace("server", 1, field_of("server", "gpus"))
    state.put(with_value(state.present, TARGET, 20_000.0))
    answer = state.calculation.answer
    assert answer is not None
    assert not answer.problem
    assert answer.plans.busy_aware.by_gpu[0].servers == 2
    assert len(answer.workloads[0].on) == 2
    assert state.undo_or_redo(-1)
    assert state.undo_or_redo(-1)
    assert servers(state) == [("H100 SXM 80GB", 8, 0)]


def test_without_a_look_at_what_is_here_the_plan_tells_the_number() -> None:
    state = panel(Server("H100 SXM 80GB"), target=20_000.0)
    answer = state.calculation.answer
    assert answer is not None
    add_server(state, "L40S")
    assert servers(state)[0][2] == answer.totals.servers


def test_another_type_is_of_the_server_under_the_cursor() -> None:
    state = panel(Server("H100 SXM 80GB", count=2), Server("A100 SXM4 80GB", gpus=4))
    state.go_to(2)
    state.use_gpu("L40S")
    assert servers(state) == [("H100 SXM 80GB", 8, 2), ("L40S", 4, 0)]
    state.go_to()
    state.use_gpu("H200 SXM 141GB")
    assert servers(state) == [("H200 SXM 141GB", 8, 0)]


def test_from_another_row_all_servers_of_one_type_change() -> None:
    state = panel(Server("H100 SXM 80GB", count=2), Server("H100 SXM 80GB", gpus=4))
    state.use_gpu("L40S")
    assert servers(state) == [("L40S", 8, 2), ("L40S", 4, 0)]


def test_a_typed_price_is_that_of_its_type_and_comes_back_with_it() -> None:
    state = panel(Server("H100 SXM 80GB", price_per_gpu_hour=3.0))
    state.use_gpu("A100 SXM4 80GB")
    assert state.present.server[0].price_per_gpu_hour is None
    by_type = {row.gpu: row.totals.price_per_hour for row in state.calculation.comparison.rows}
    assert by_type["H100 SXM5 80GB"] == 24.0
    state.calculation.use(KNOWN._replace(prices={"A100 SXM4 80GB": 1.0}), Here())
    state.use_gpu("H100 SXM5 80GB")
    assert state.present.server[0].price_per_gpu_hour == 3.0
    state.go_to(1)
    state.cell = 2
    assert state.remove()
    state.use_gpu("A100 SXM4 80GB")
    state.use_gpu("H100 SXM5 80GB")
    assert state.present.server[0].price_per_gpu_hour is None


def test_another_layout_stands_beside_the_needs_in_the_one_before() -> None:
    model = Workload("meta-llama/Llama-3.3-70B-Instruct", 200.0, prompt_tokens=1000.0, answer_tokens=300.0)
    state = PanelState(KNOWN, Scenario(server=(Server("H200 SXM 141GB"),), workload=(model,)))
    reasons = {}
    for goal_ms in (40.0, 30.0, 20.0, 12.0):
        state.put(replace(state.present, itl_mean_ms=goal_ms))
        plan = state.calculation.plan(0)
        assert plan is not None
        reasons[plan.layout, goal_ms] = state.calculation.layout_reason(0)
    assert reasons["TP 2", 40.0] == ""
    assert re.fullmatch(r"was TP 2, which would take \d+ GPUs now", reasons["TP 4", 30.0])
    assert reasons["TP 4", 20.0] == ""
    assert reasons["TP 8", 12.0].startswith("was TP 4: not even one request at a time")
    state.use_gpu("H100 SXM5 80GB")
    assert state.calculation.layout_reason(0) in ("", "was TP 8 on H200 SXM 141GB")
    tp = FieldPlace("workload", 0, field_of("workload", "tp"))
    state.put(replace(state.present, itl_mean_ms=None))
    state.put_value(tp, 8)
    assert state.calculation.layout_reason(0) == ""  # it was typed
