"""A plan on too few measured loads is a range of GPUs: the plans at both ends of its error band."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.outputs.sizing import markdown, report
from gpumon.outputs.sizing_data import csv_table, encode
from gpumon.readings.missing import Missing, Reason
from gpumon.sizing.accuracy import band_of
from gpumon.sizing.plan import detailed_plan, plan
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.ranges import range_text
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.sizing.questions import KNOWN

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
GPU = "H100 SXM5 80GB"
UNKNOWN = Missing(Reason.INFEASIBLE)


def seen(*loads: float, origin: Origin = Origin.LIVE) -> Observed:
    """An engine that was measured at these loads: ITL = 7 ms + 0.1 ms a sequence."""
    points = tuple(Point(load, itl_s=0.007 + 0.0001 * load) for load in loads)
    return Observed(
        origin, "vllm:8000", MODEL, points, gpu=GPU, gpus=1, tp=1, prompt_tokens=1000.0, answer_tokens=300.0
    )


def question(*loads: float, target: float = 4000.0, origin: Origin = Origin.LIVE) -> Scenario:
    workload = Workload(MODEL, target, seen=seen(*loads, origin=origin))
    return Scenario(server=(Server(GPU),), itl_p95_ms=20.0, workload=(workload,))


def test_one_load_is_a_range_whose_ends_are_the_plans_at_the_ends_of_its_band() -> None:
    asked = question(24.0)
    answer = plan(asked, KNOWN)
    (workload,) = answer.workloads
    band = band_of("one load", 1, moe=False)
    assert workload.gpus_range is not None
    assert workload.gpus_range.reason == "measured at one load only"
    for end, share in (("low", workload.band.low), ("high", workload.band.high)):
        point = msgspec.structs.replace(asked.workload[0].seen.points[0], itl_s=(0.0094) * (1.0 + share))  # type: ignore[union-attr]
        moved = msgspec.structs.replace(asked.workload[0].seen, points=(point,))  # type: ignore[type-var]
        there = msgspec.structs.replace(asked, workload=(msgspec.structs.replace(asked.workload[0], seen=moved),))
        assert plan(there, KNOWN).workloads[0].gpus == getattr(workload.gpus_range, end)
    assert workload.gpus_range.low < workload.gpus < workload.gpus_range.high  # type: ignore[operator]
    assert workload.band.high >= band.high
    assert answer.gpus_range is not None
    assert (answer.gpus_range.low, answer.gpus_range.high) == (workload.gpus_range.low, workload.gpus_range.high)


@pytest.mark.parametrize(("goal", "figure"), [("tpot_p95_ms", "tpot_p95_s"), ("itl_p95_ms", "itl_p95_s")])
def test_a_measured_p95_is_at_both_ends_of_the_band_with_its_mean(goal: str, figure: str) -> None:
    asked = question(24.0)
    point = Point(24.0, itl_s=0.0094, **{figure: 0.0110})
    with_tail = msgspec.structs.replace(asked.workload[0].seen, points=(point,))  # type: ignore[type-var]
    workload = msgspec.structs.replace(asked.workload[0], seen=with_tail)
    goals = {"itl_p95_ms": None, goal: 20.0}
    asked = msgspec.structs.replace(asked, workload=(workload,), **goals)
    (planned,) = plan(asked, KNOWN).workloads
    assert planned.gpus_range is not None
    for end, share in (("low", planned.band.low), ("high", planned.band.high)):
        moved = Point(24.0, itl_s=0.0094 * (1.0 + share), **{figure: 0.0110 * (1.0 + share)})
        there = msgspec.structs.replace(with_tail, points=(moved,))
        at_end = msgspec.structs.replace(asked, workload=(msgspec.structs.replace(workload, seen=there),))
        assert plan(at_end, KNOWN).workloads[0].gpus == getattr(planned.gpus_range, end)


def test_enough_loads_have_one_number() -> None:
    assert plan(question(2.0, 4.0, 8.0, 16.0, 32.0), KNOWN).gpus_range is None
    assert plan(question(4.0, 64.0, origin=Origin.SWEEP), KNOWN).gpus_range is None
    near = plan(question(20.0, 21.0, 22.0, 24.0, 26.0, 29.0), KNOWN).gpus_range
    assert near is not None
    assert re.fullmatch(r"measured at \d loads only, 20 to 29 running", near.reason)


def test_a_typed_capacity_has_one_number() -> None:
    asked = question(24.0)
    typed = msgspec.structs.replace(asked.workload[0], capacity_per_instance=50.0)
    assert plan(msgspec.structs.replace(asked, workload=(typed,)), KNOWN).gpus_range is None


def test_a_range_without_an_answer_at_its_slow_end_is_so_many_or_more() -> None:
    answer = plan(msgspec.structs.replace(question(1.0), itl_p95_ms=7.1 * 1.02), KNOWN)
    assert not answer.problem
    assert answer.gpus_range is not None
    assert isinstance(answer.gpus_range.high, Missing)
    assert "or more" in range_text(answer.gpus_range.low, answer.gpus_range.high)


def test_each_output_has_the_range_and_its_reason() -> None:
    asked = question(24.0)
    answer = plan(asked, KNOWN)
    assert answer.gpus_range is not None
    span = range_text(answer.gpus_range.low, answer.gpus_range.high)
    assert " to " in span
    for text in (report(answer, asked), markdown(answer, asked)):
        assert f"{span} GPUs" in text
        assert "measured at one load only" in text
    printed = json.loads(encode(answer))
    assert printed["gpus_range"]["low"] == answer.gpus_range.low
    assert printed["workloads"][0]["gpus_range"]["reason"] == "measured at one load only"
    assert f",{answer.gpus_range.low:.0f},{answer.gpus_range.high:.0f}" in csv_table(answer)  # type: ignore[str-format]


def test_a_range_over_several_workloads_names_those_that_it_comes_from() -> None:
    asked = question(24.0)
    other = Workload("openai/gpt-oss-20b", 64.0, prompt_tokens=1000.0, answer_tokens=300.0)
    answer = plan(msgspec.structs.replace(asked, workload=(*asked.workload, other)), KNOWN)
    assert answer.gpus_range is not None
    assert answer.gpus_range.reason == f"{MODEL} measured at one load only"
    assert answer.workloads[1].gpus_range is None


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (27.0, 34.0, "27 to 34"),
        (5.0, 5.0, "5"),
        (27.0, UNKNOWN, "27 or more"),
        (UNKNOWN, 1234.0, "up to 1,234"),
        (UNKNOWN, UNKNOWN, "–"),
    ],
)
def test_a_range_in_words(low: float, high: float, text: str) -> None:
    assert range_text(low, high) == text


@settings(max_examples=settings.default.max_examples // 2)
@given(st.lists(st.floats(1.0, 1e5), min_size=2, max_size=3), st.floats(1.0, 200.0))
def test_a_plan_that_goes_on_from_another_one_has_the_same_range(targets: list[float], load: float) -> None:
    before = None
    for target in targets:
        asked = question(load, target=target)
        before = detailed_plan(asked, KNOWN, before=before)
        assert before.answer == plan(asked, KNOWN)
