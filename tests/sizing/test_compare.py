"""Types of GPU side by side: the same question on each, with the same freedom."""

from __future__ import annotations

import pytest

from gpumon.readings.missing import Missing
from gpumon.sizing.answer import Compared, Source
from gpumon.sizing.compare import Comparison, compare, gpu_types
from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.records import replace
from tests.sizing.questions import GUIDE, KNOWN, NIM_70B, SEVENTY, changed

PRICED = KNOWN._replace(prices={"H100 SXM5 80GB": 2.49, "H200 SXM 141GB": 3.3, "A100 SXM4 80GB": 1.19})
QWEN = Scenario(
    itl_p95_ms=40.0,
    server=(Server("H100 SXM 80GB"),),
    workload=(Workload("Qwen/Qwen3-32B", 100.0, prompt_tokens=4000.0, answer_tokens=500.0),),
)


def by_gpu(comparison: Comparison) -> dict[str, Compared]:
    """The rows that are like for like."""
    return {row.gpu: row for row in comparison.rows if not row.as_planned}


def test_the_types_of_the_scenario_stand_first():
    found = by_gpu(compare(SEVENTY, KNOWN, ("H100 SXM 80GB", "H200 SXM 141GB", "A100 SXM4 80GB", "L40S")))
    assert list(found) == ["H100 SXM5 80GB", "H200 SXM 141GB", "A100 SXM4 80GB", "L40S"]
    assert found["H200 SXM 141GB"].workloads[0].source is Source.RESCALED
    gpus = {name: row.totals.gpus for name, row in found.items()}
    assert gpus["H200 SXM 141GB"] < gpus["H100 SXM5 80GB"] < gpus["A100 SXM4 80GB"] < gpus["L40S"]
    assert next(iter(by_gpu(compare(SEVENTY, KNOWN)))) == "H100 SXM5 80GB"


def test_the_tp_that_runs_is_no_advantage_and_no_burden():
    """An engine at TP 4 keeps it in the plan; side by side with others its type takes what is best, too."""
    at_four = replace(NIM_70B, tp=4, gpus=4)
    scenario = changed(SEVENTY, seen=at_four, target=4.0)
    assert plan(scenario, KNOWN).workloads[0].tp == 4
    comparison = compare(scenario, KNOWN, ("H100 SXM 80GB", "A100 SXM4 80GB"))
    [now, *rows] = comparison.rows
    assert (now.as_planned, now.gpu, now.workloads[0].tp) == (True, "H100 SXM5 80GB", 4)
    h100 = by_gpu(comparison)["H100 SXM5 80GB"]
    assert h100.totals.gpus < now.totals.gpus
    assert h100.workloads[0].source is Source.RESCALED
    assert not any(row.as_planned for row in rows)


def test_a_typed_tp_is_held_on_every_type():
    comparison = compare(changed(QWEN, tp=4), KNOWN)
    assert {row.workloads[0].tp for row in comparison.rows} == {4}
    assert "TP as typed on each type" in comparison.like_for_like
    assert "TP of the fewest GPUs on each type" in compare(QWEN, KNOWN).like_for_like


def test_each_type_has_the_tp_that_takes_the_fewest_gpus():
    for name, row in by_gpu(compare(QWEN, KNOWN)).items():
        for tp in (1, 2, 4, 8):
            held = plan(changed(replace(QWEN, server=(Server(name),)), tp=tp), KNOWN)
            assert held.problem or held.totals.gpus >= row.totals.gpus


def test_watts_side_by_side_are_the_boards_limits():
    lukewarm = changed(SEVENTY, seen=replace(NIM_70B, power_w=300.0))
    assert plan(lukewarm, KNOWN).workloads[0].power_source == "seen"
    rows = by_gpu(compare(lukewarm, KNOWN, ("H100 SXM 80GB", "H200 SXM 141GB"))).values()
    assert [row.totals.power_w / row.totals.gpus for row in rows] == pytest.approx([700.0, 700.0])
    assert {row.workloads[0].power_source for row in rows} == {"limit"}


def test_the_best_of_each_figure_is_marked_and_nothing_where_all_are_the_same():
    found = by_gpu(compare(QWEN, PRICED, ("H100 SXM5 80GB", "H200 SXM 141GB", "A100 SXM4 80GB")))
    for key, best in (("gpus", min), ("price_per_hour", min), ("power_w", min), ("tokens_per_j", max)):
        value = best(getattr(row.totals, key) for row in found.values())
        marked = [getattr(row.totals, key) for row in found.values() if key in row.best]
        assert marked
        assert marked == pytest.approx([value] * len(marked), rel=0.005)
    assert all(not row.best for row in compare(QWEN, PRICED, ("H100 SXM5 80GB",)).rows)


def test_a_figure_that_no_type_has_is_no_column():
    titles = [figure.title for figure in compare(QWEN, PRICED).shown]
    assert {"$/h", "$/1M tok", "max power", "tok/J", "limit", "TP"} <= set(titles)
    unpriced = compare(QWEN, KNOWN._replace(prices={}))
    assert not {"$/h", "$/1M tok"}.intersection(figure.title for figure in unpriced.shown)
    assert unpriced.unpriced


def test_a_latency_that_is_not_known_is_no_column():
    comparison = compare(GUIDE, KNOWN, ("H100 PCIe 80GB",))
    assert not comparison.rows[0].problem
    assert isinstance(comparison.rows[0].workloads[0].itl_s, Missing)
    titles = [figure.title for figure in comparison.shown]
    assert "GPUs" in titles
    assert "ITL mean" not in titles


@pytest.mark.parametrize(
    ("goal", "title"),
    [("tpot_p95_ms", "TPOT p95"), ("itl_p95_ms", "ITL p95"), ("itl_mean_ms", "ITL mean"), ("ttft_p95_ms", "ITL mean")],
)
def test_the_time_per_token_is_the_one_that_the_goal_judges(goal: str, title: str):
    scenario = replace(SEVENTY, **{"itl_p95_ms": None, goal: 400.0})
    tailed = changed(scenario, seen=replace(NIM_70B, tpot_tail_ratio=1.5, itl_tail_ratio=2.0))
    comparison = compare(tailed, KNOWN, ("H100 SXM5 80GB",))
    (shown,) = (figure.title for figure in comparison.shown if figure.key == "itl_s")
    assert shown == title


def test_a_type_that_misses_the_goal_says_so():
    found = by_gpu(compare(replace(SEVENTY, itl_p95_ms=22.0), KNOWN, ("H100 SXM5 80GB", "L40S")))
    assert isinstance(found["L40S"].totals.gpus, Missing)
    assert "goal 22.0 ms" in found["L40S"].problem
    assert not found["H100 SXM5 80GB"].problem


def test_a_smaller_gpu_takes_more_of_them_per_instance():
    assert by_gpu(compare(SEVENTY, KNOWN, ("L4",)))["L4"].workloads[0].tp > 2


def test_a_number_of_servers_is_no_limit_of_the_comparison():
    """One server is there, which is too few: the comparison says what each type would take."""
    scenario = changed(replace(QWEN, server=(Server("H100 SXM 80GB", count=1),)), target=5000.0)
    assert plan(scenario, KNOWN).problem
    found = by_gpu(compare(scenario, KNOWN, ("H100 SXM5 80GB",)))
    assert not found["H100 SXM5 80GB"].problem


def test_a_plan_over_several_types_stands_above_each_of_them():
    servers = (Server("A100 SXM4 80GB", count=1), Server("H100 SXM 80GB"))
    [now, *rows] = compare(changed(replace(QWEN, server=servers), target=1000.0), KNOWN).rows
    assert (now.as_planned, now.gpu) == (True, "A100 SXM4 80GB + H100 SXM5 80GB")
    assert [row.gpu for row in rows][:2] == ["A100 SXM4 80GB", "H100 SXM5 80GB"]
    assert rows[1].totals.gpus <= now.totals.gpus <= rows[0].totals.gpus


def test_types_are_named_as_people_name_them():
    assert gpu_types("H100, h200,B200,A100", KNOWN) == (
        "H100 SXM5 80GB", "H200 SXM 141GB", "B200 SXM 180GB", "A100 SXM4 80GB",
    )  # fmt: skip
    assert gpu_types("H100 NVL 94GB", KNOWN) == ("H100 NVL 94GB",)
    said = replace(QWEN, server=(Server("p5.48xlarge"),))
    whole = replace(QWEN, server=(Server("H100 SXM5 80GB"),))
    taken = "p5.48xlarge is 8 x H100 SXM5 80GB, network EFA 400"
    assert plan(said, KNOWN).warnings == (taken, *plan(whole, KNOWN).warnings)
    assert plan(said, KNOWN).totals == plan(whole, KNOWN).totals
    with pytest.raises(ValueError, match="unknown GPU type 'H1000'"):
        gpu_types("H100,H1000", KNOWN)


def test_a_comparison_that_goes_on_with_another_is_the_same():
    """As it is drawn at every keystroke: one target changed, then a goal of all."""
    two = replace(QWEN, workload=(*QWEN.workload, replace(QWEN.workload[0], name="second", target=40.0)))
    before = compare(two, PRICED)
    changed_one = changed(two, at=1, target=400.0)
    assert compare(changed_one, PRICED, before=before).rows == compare(changed_one, PRICED).rows
    faster = replace(changed_one, itl_p95_ms=25.0)
    assert compare(faster, PRICED, before=before).rows == compare(faster, PRICED).rows
