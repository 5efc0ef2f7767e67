"""Figures that cannot be have a reason instead of an answer, wherever in the question they stand."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.missing import Missing
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Point
from gpumon.sizing.scenario import (
    RANGES,
    SCENARIO_RANGES,
    SEEN_RANGES,
    SERVER_RANGES,
    Scenario,
    Server,
    checked_profile,
)
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN, NIM_70B, SEVENTY, changed


def named(fields: dict[str, Any]) -> str:
    """What a message says before the figure: words, and the name in the file."""
    name = next(iter(fields))
    tables = {**SEEN_RANGES, **SERVER_RANGES, **SCENARIO_RANGES, **RANGES}
    return f"{tables[name].label} ({name})"


@each_row(
    "fields",
    [
        {"planning_factor": 0.0}, {"planning_factor": 2.0}, {"planning_factor": math.nan},
        {"usable_memory_ratio": 0.0}, {"usable_memory_ratio": 64.0}, {"usable_memory_ratio": math.inf},
        {"spare_instances": -20}, {"spare_servers": -1},
    ],
    named=str,
)  # fmt: skip
def test_of_the_scenario(fields: dict[str, Any]) -> None:
    answer = plan(replace(SEVENTY, **fields), KNOWN)
    assert f"{named(fields)} is" in answer.problem
    assert isinstance(answer.totals.instances, Missing)


@each_row(
    "fields",
    [
        {"nvlink_gpus": -1}, {"count": -1}, {"price_per_gpu_hour": -1.0}, {"price_per_gpu_hour": 0.0},
        {"price_per_hour": math.nan},
        {"gpu_power_w": -4.0}, {"gpu_power_w": math.inf}, {"gpus": 0},
    ],
    named=str,
)  # fmt: skip
def test_of_any_server(fields: dict[str, Any]) -> None:
    wrong = replace(Server("H100 SXM5 80GB"), **fields)
    for servers in ((wrong,), (Server("H100 SXM5 80GB"), wrong)):
        answer = plan(replace(SEVENTY, server=servers), KNOWN)
        assert "it must be from" in answer.problem or "give it from" in answer.problem
        assert isinstance(answer.totals.price_per_hour, Missing)


@each_row(
    "fields",
    [{"prefix_hit_ratio": 1e4}, {"prompt_tokens": -1.0}, {"answer_tokens": math.inf}, {"ttft_tail_ratio": math.nan}],
    named=str,
)
def test_of_what_was_seen(fields: dict[str, Any]) -> None:
    answer = plan(changed(SEVENTY, seen=replace(NIM_70B, **fields)), KNOWN)
    assert f"what was seen of NIM Llama-3.3-70B: {named(fields)} is" in answer.problem


def test_points_that_no_engine_shows_are_dropped() -> None:
    wrong = (Point(1e300, 0.05), Point(3.0, math.nan), Point(4.0, 0.02, power_w=-1.0), Point(math.nan, 0.02))
    seen = replace(NIM_70B, points=(*NIM_70B.points, *wrong))
    assert checked_profile(seen).points == NIM_70B.points
    assert checked_profile(NIM_70B) == NIM_70B
    before, after = plan(SEVENTY, KNOWN), plan(changed(SEVENTY, seen=seen), KNOWN)
    assert after.workloads[0].instances == before.workloads[0].instances


ABSURD = st.sampled_from([0.0, -1.0, -1e9, 1e-9, 0.5, 1.0, 7.0, 1e9, 1e300, math.inf, -math.inf, math.nan])
COUNT = st.sampled_from([-1, 0, 1, 3, 8, 1000, 10**9])


def fields_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of the figures of a struct, each absurd."""
    every = {
        name: ABSURD if "float" in str(text) else COUNT
        for name, text in kind.__annotations__.items()
        if str(text).split(" |")[0] in ("float", "int")
    }
    return st.lists(st.sampled_from(sorted(every)), max_size=2, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: every[name] for name in names})
    )


@given(fields_of(Scenario), fields_of(Server), fields_of(type(NIM_70B)), fields_of(Point))
def test_whatever_stands_there_is_an_answer_or_a_reason(
    scenario: dict[str, Any], server: dict[str, Any], seen: dict[str, Any], point: dict[str, Any]
) -> None:
    points = (*NIM_70B.points[:-1], replace(NIM_70B.points[-1], **point))
    asked = changed(SEVENTY, seen=replace(NIM_70B, points=points, **seen))
    shape = replace(Server("H100 SXM5 80GB"), **server)
    answer = plan(replace(asked, server=(shape,), **scenario), KNOWN, {"H100 SXM5 80GB": 8})
    for part in (answer.totals, *answer.workloads):
        figures = [value for value in msgspec.structs.astuple(part) if isinstance(value, float)]
        assert all(math.isfinite(value) and value >= 0 for value in figures), part
    assert bool(answer.problem) == isinstance(answer.totals.instances, Missing)
