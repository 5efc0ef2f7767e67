"""Engines that say what cannot be, and engines that became something else: no crash, and nothing of it is believed."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Engine, Window
from gpumon.sizing.calibration import Calibration
from gpumon.sizing.live import from_live, own_models
from gpumon.sizing.live_gpus import gpus_here
from gpumon.sizing.plan import plan
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.live_scenes import NONE, at, engine, gone, gpu
from tests.sizing.questions import KNOWN

FIGURES = (
    "running", "running_mean", "waiting", "kv_usage_ratio", "itl_mean_s", "decode_tokens_per_s",
    "prefill_tokens_per_s", "requests_per_s", "prompt_tokens_mean", "answer_tokens_mean", "cached_ratio",
    "kv_pool_tokens", "gpu_count", "power_w",
)  # fmt: skip
WRONG = (-1.0, 1e300, math.inf, -math.inf, math.nan)


def broken(load: float, name: str, **facts: Any) -> Engine:
    return replace(engine(load, name), **facts)


@each_row("wrong", WRONG)
@each_row("name", FIGURES)
def test_a_figure_that_can_not_be_is_not_believed(name: str, wrong: float) -> None:
    calibration = Calibration()
    for tick in range(0, 60, 10):
        calibration.take(at(float(tick), broken(8.0, "vllm:8000", **{name: wrong})))
    for seen in calibration.observed():
        values = [value for value in msgspec.structs.astuple(seen) if isinstance(value, float)]
        points = [value for point in seen.points for value in msgspec.structs.astuple(point) if value is not None]
        assert all(0 <= value <= 1e12 for value in (*values, *points))


STEPS = (
    ((100.0, 0.5), (1e308, 1.0)),
    ((100.0, 0.0), (200.0, 1.0)),
    ((math.nan, 1.0),),
    ((5.0, math.nan), (6.0, 1.0)),
    ((6.0, 0.5), (5.0, 1.0)),
    ((0.0, 0.5), (math.inf, 1.0)),
)
"""Histograms of lengths, most of which are none."""


def _lengths(steps: tuple[tuple[float, float], ...]) -> Window:
    return Window(10.0, 8.0, 8.0, 8.0, 0.1, steps, steps)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"load": st.sampled_from([1.0, 2.0, 4.0, 8.0, 32.0]), "name": st.sampled_from(["a", "b"])},
            optional={
                **{name: st.sampled_from([*WRONG, 0.0, 3.0, NONE]) for name in FIGURES},
                "ranks": st.sampled_from([0, 1, 8]),
                "tp": st.sampled_from([0, 1, 2]),
                "model": st.sampled_from(["", "llama", "meta-llama/Llama-3.1-8B-Instruct"]),
                "gpus": st.just(()),
                "gpu_type": st.sampled_from(["", "H100 SXM 80GB", "zzz"]),
                "window": st.sampled_from(
                    [None, Window(math.inf, 1.0, math.nan, -5.0, math.nan), *(_lengths(steps) for steps in STEPS)]
                ),
                "age_s": st.sampled_from([-5.0, 1e9, math.nan]),
            },
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_any_snapshots_give_an_answer_or_a_reason(ticks: list[dict[str, Any]], leaves: bool) -> None:
    calibration = Calibration()
    newest = at(0.0)
    for number, facts in enumerate(ticks):
        facts = dict(facts)
        last = broken(facts.pop("load"), facts.pop("name"), **facts)
        newest = at(10.0 * number, gone(last.name) if leaves and number == len(ticks) - 1 else last)
        calibration.take(newest)
    scenario = from_live(newest, calibration.observed())
    assert all(math.isfinite(workload.target) and workload.target >= 1.0 for workload in scenario.workload)
    answer = plan(scenario, KNOWN._replace(own=own_models(newest), prices={}), dict(gpus_here(newest)))
    for row in answer.workloads:
        assert bool(row.problem) == isinstance(row.instances, Missing)
        figures = [value for value in msgspec.structs.astuple(row) if isinstance(value, float)]
        assert all(math.isfinite(value) and value >= 0 for value in figures)


def test_what_a_model_showed_keeps_the_engines_name_when_that_serves_another_one() -> None:
    calibration = Calibration()
    for tick in range(0, 40, 10):
        calibration.take(at(float(tick), engine(8.0)))
    for tick in range(40, 80, 10):
        calibration.take(at(float(tick), engine(8.0, model="qwen")))
    seen = {each.model: each for each in calibration.observed()}
    assert (seen["llama"].name, seen["qwen"].name) == ("vllm:8000", "vllm:8000")
    assert seen["llama"].time == "2026-01-02T00:00:30.000Z"


def test_what_is_not_known_is_not_called_idle() -> None:
    note = from_live(at(0.0, gone()), ()).note
    assert "nothing in flight" not in note
    assert "llama: what it had in flight is not known, so its target is 1" in note


def test_a_gpu_of_an_engine_without_figures_stays_planned_with() -> None:
    scenario = from_live(at(0.0, gone(), gpus=(gpu(),)), ())
    assert [(server.gpu, server.gpus) for server in scenario.server] == [("H100 SXM 80GB", 1)]
