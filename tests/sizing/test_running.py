"""A plan beside what ran: a play of the simulator is recorded, and `gpumon size --against` reads it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpumon.history.recorder import Recorder
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Quantiles
from gpumon.sizing.answer import NOT_KNOWN, Runs
from gpumon.sizing.plan import detailed_plan, plan
from gpumon.sizing.profile import Origin
from gpumon.sizing.running import ModelEngines, ServedMeans, engines_by_model, running_instances, runs_text
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.sizing.simulate.tails import SimulatedTails
from tests.accuracy.triage import frames
from tests.each_row import each_row
from tests.history.changed import EVERY_S, STEADY
from tests.history.pasts import lived
from tests.program import run_gpumon
from tests.records import replace
from tests.sizing.live_scenes import at, engine, gone
from tests.sizing.questions import KNOWN, NIM_70B, SEVENTY, changed

PLAN = """
[[server]]
gpu = "H100 SXM 80GB"
gpus = 4
[[workload]]
model = "meta-llama/Llama-3.1-8B-Instruct"
target = 60
capacity_per_instance = 20
prompt_tokens = 1800
answer_tokens = 240
[[workload]]
model = "Qwen/Qwen3-8B"
target = 1
prompt_tokens = 1800
answer_tokens = 240
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("planned")
    recorder = Recorder(path / "a.gpumon", {"host": "box"})
    lived((frame for _, frame in frames(STEADY, 120.0, every_s=EVERY_S)), recorder)
    recorder.close()
    (path / "plan.toml").write_text(PLAN)
    return path


def size(folder: Path, *arguments: str, code: int = 0) -> str:
    done = run_gpumon("size", str(folder / "plan.toml"), *arguments)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[dict[str, Any]]:
    """What runs of each workload, from the JSON."""
    told = json.loads(size(folder, "--against", str(folder / "a.gpumon"), "--json"))
    return [workload["runs"] for workload in told["workloads"]]


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    """The same as text."""
    return size(folder, "--against", str(folder / "a.gpumon"))


def test_one_of_three_instances_runs_and_carries_a_part_of_the_load(runs: list[dict[str, Any]], text: str) -> None:
    """5 requests/s of 2.5 s each: 12 or 13 in flight, by Little's law."""
    first = runs[0]
    assert (first["instances"], first["gpus"]) == (1, 1.0)
    assert first["concurrency"] == pytest.approx(12.5, rel=0.2)
    assert first["itl_s"] == pytest.approx(0.010, rel=0.3)
    assert first["itl_predicted_s"] == pytest.approx(first["itl_s"], rel=0.4), "inside the band of the roofline"
    assert "1 of 3 instances, 1 of 3 GPUs" in text
    assert "(plan at this load: " in text


def test_a_model_that_nobody_serves_says_so_and_has_no_figures(runs: list[dict[str, Any]], text: str) -> None:
    assert runs[1]["instances"] == 0
    assert runs[1]["itl_s"] is None
    assert "no engine that answers serves this model" in text


def test_without_it_nothing_is_said_of_what_runs(folder: Path) -> None:
    told = json.loads(size(folder, "--json"))
    assert [workload["runs"] for workload in told["workloads"]] == [None, None]
    said = size(folder, "--against", str(folder / "a.gpumon"), "--from-prometheus", code=2)
    assert "--against compares the plan of a scenario FILE with what ran" in said


@pytest.mark.parametrize(
    ("itl_s", "ttft_s", "text"),
    [
        (0.01796, 0.15, "ITL mean 18ms (plan at this load: 18ms, 0%); TTFT mean 150ms (plan: 122ms, +23%)"),
        (0.0148, 0.3, "ITL mean 15ms (plan at this load: 18ms, -18%); TTFT mean 300ms (plan: 122ms, +146%)"),
        (
            0.18,
            0.4,
            "ITL mean 180ms (plan at this load: 18ms, 10 times that); TTFT mean 400ms (plan: 122ms, 3.3 times that)",
        ),
        (0.018, 18.3, "TTFT mean 18s (plan: 122ms, 150 times that)"),
    ],
)
def test_a_latency_that_is_far_off_the_plan_is_a_multiple_of_it(itl_s: float, ttft_s: float, text: str) -> None:
    assert text_of(itl_s=itl_s, ttft_s=ttft_s).endswith(text)


@pytest.mark.parametrize(
    ("waiting", "load"),
    [
        (59.0, "97 of ? in flight, 59 waiting; ITL"),
        (0.6, "97 of ? in flight, under 1 waiting; ITL"),
        (0.4, "97 of ? in flight; ITL"),
        (0.0, "97 of ? in flight; ITL"),
        (NOT_KNOWN, "97 of ? in flight; ITL"),
    ],
)
def test_a_queue_stands_beside_the_load_that_it_is_a_part_of(waiting: Reading, load: str) -> None:
    """It may be the cause of a late first token, which no plan has; the latencies are of another span, and maybe of
    another engine."""
    assert load in text_of(waiting=waiting)


@pytest.mark.parametrize(
    ("gpus", "text"), [(2.0, "2 of 4 GPUs"), (29.0, "29 (4 planned) GPUs"), (NOT_KNOWN, "? of 4 GPUs")]
)
def test_more_than_is_planned_is_no_share_of_the_plan(gpus: Reading, text: str) -> None:
    scenario = Scenario(server=(Server(gpu="H100 SXM 80GB"),), workload=(Workload(model="Qwen/Qwen3-8B", target=1.0),))
    planned = replace(plan(scenario, KNOWN).workloads[0], gpus=4.0)
    assert f" instances, {text}" in runs_text(planned, Runs(instances=1, gpus=gpus, concurrency=NOT_KNOWN))


def text_of(**runs: Reading) -> str:
    """The words for an engine that runs 97 requests beside a plan for one."""
    scenario = Scenario(server=(Server(gpu="H100 SXM 80GB"),), workload=(Workload(model="Qwen/Qwen3-8B", target=1.0),))
    values = {"itl_s": 0.018, "ttft_s": 0.4} | runs
    known = Runs(instances=1, gpus=1.0, concurrency=97.0, itl_predicted_s=0.018, ttft_predicted_s=0.122)
    return runs_text(plan(scenario, KNOWN).workloads[0], replace(known, **values))


def test_an_engine_on_another_gpu_than_planned_has_no_prediction_and_is_no_part_of_the_plan() -> None:
    """The plan of an H200 at TP 1 predicts nothing of an H100 at TP 4, and 4 of 1 GPUs is no share."""
    model = served_for_a_minute()
    seen = replace(NIM_70B, origin=Origin.LIVE)
    elsewhere = detailed_plan(changed(replace(SEVENTY, server=(Server("H200 SXM 141GB"),)), seen=seen), KNOWN)
    runs = running_instances(elsewhere.demands[0].instance, model, elsewhere.scenario)
    assert not runs.as_planned
    assert (runs.itl_predicted_s, runs.ttft_predicted_s) == (NOT_KNOWN, NOT_KNOWN)
    text = runs_text(elsewhere.answer.workloads[0], runs)
    assert text.startswith("1 instance on ")
    assert "with another GPU, layout or precision than planned" in text
    assert "plan at this load" not in text
    here = detailed_plan(changed(SEVENTY, seen=seen), KNOWN)
    runs = running_instances(here.demands[0].instance, model, here.scenario)
    assert runs.as_planned
    assert runs.itl_predicted_s != NOT_KNOWN


@each_row(
    ("queues", "waiting"),
    [
        ((30.0, 0.0), 30.0),
        ((0.0, 0.0), 0.0),
        ((30.0, NOT_EXPOSED), None),
        ((NOT_EXPOSED, NOT_EXPOSED), None),
    ],
)
def test_the_queue_of_a_model_is_known_where_every_engine_that_tells_its_load_tells_its_queue(
    queues: tuple[Reading, Reading], waiting: float | None
) -> None:
    engines = (engine(8.0, waiting=queues[0]), engine(4.0, "b", waiting=queues[1]), gone("c"))
    (model,) = engines_by_model(at(0, *engines)).values()
    assert (model.running, model.waiting) == (12.0, waiting)
    assert running_instances(None, model, SEVENTY).waiting == (NOT_KNOWN if waiting is None else waiting)


def test_a_queue_over_some_moments_is_the_mean_of_those_that_tell_it() -> None:
    means = ServedMeans()
    for second, waiting in enumerate((10.0, NOT_EXPOSED, 20.0)):
        means.take(at(second, engine(8.0, waiting=waiting)))
    (model,) = means.by_model().values()
    assert model.waiting == 15.0
    silent = ServedMeans()
    silent.take(at(0, engine(8.0, waiting=NOT_EXPOSED)))
    (model,) = silent.by_model().values()
    assert model.waiting is None


def served_for_a_minute(minute: float | None = 8.0, **facts: Any) -> ModelEngines:
    """An engine that runs 8 requests, and ran so many on average in the last minute; None: nobody saw that."""
    snapshot = at(0, engine(8.0, **facts))
    name = snapshot.engines[0].model
    (model,) = engines_by_model(snapshot, {} if minute is None else {name: minute}).values()
    return model


def test_a_latency_of_a_minute_stands_beside_the_plan_at_the_load_of_that_minute() -> None:
    """One moment has other requests than the minute: 8 run now, 24 did on average."""
    planned = detailed_plan(changed(replace(SEVENTY, itl_p95_ms=None), itl_tail_ratio=1.5), KNOWN)
    instance = planned.demands[0].instance
    assert instance is not None
    runs = running_instances(instance, served_for_a_minute(24.0, **MEASURED_P95), planned.scenario)
    assert runs.ttft_predicted_s == instance.ttft_s(24.0)
    assert runs.itl_predicted_s == instance.itl_s(8.0), "the mean ITL is that of seconds"
    (itl,) = (p95 for p95 in runs.p95 if p95.name == "ITL p95")
    assert itl.predicted_s == pytest.approx(1.5 * instance.itl_s(24.0))
    awaited = running_instances(instance, served_for_a_minute(None, **MEASURED_P95), planned.scenario)
    text = runs_text(planned.answer.workloads[0], awaited)
    assert "TTFT mean 200ms (plan: once the load is known for 60 s)" in text


def test_the_minute_of_a_model_is_that_of_all_names_it_is_served_under() -> None:
    """Two engines that spell one model differently are one model; one that was not seen for a minute leaves it open."""
    first = engine(8.0)
    second = replace(engine(4.0, "b"), model=first.model.upper())
    snapshot = at(0, first, second)
    (model,) = engines_by_model(snapshot, {first.model: 24.0, second.model: 6.0}).values()
    assert model.running_minute == 30.0
    (model,) = engines_by_model(snapshot, {first.model: 24.0}).values()
    assert model.running_minute is None


def runs_beside(scenario: Scenario, **facts: Any) -> str:
    """The words for the 70B plan of a scenario beside an engine that runs 8 requests."""
    model = served_for_a_minute(**facts)
    planned = detailed_plan(scenario, KNOWN._replace(tails=SimulatedTails()))
    return runs_text(
        planned.answer.workloads[0], running_instances(planned.demands[0].instance, model, planned.scenario)
    )


MEASURED_P95 = {
    "itl_s": Quantiles(p95=0.030, mean=0.02),
    "tpot_s": Quantiles(p95=0.024, mean=0.02),
    "ttft_s": Quantiles(p95=0.4, mean=0.2),
}


def test_a_p95_that_runs_stands_beside_the_p95_of_the_plan_and_not_beside_its_mean() -> None:
    """Without a goal: p95 / mean of the ITL is typed, and that of the TTFT is not known."""
    text = runs_beside(changed(replace(SEVENTY, itl_p95_ms=None), itl_tail_ratio=1.5), **MEASURED_P95)
    assert re.search(r"ITL p95 30ms \(plan at this load: \d+ms, [+-]\d+%\); TTFT mean 200ms \(plan: \d+ms, ", text)
    assert "ITL mean" not in text
    assert "TTFT p95" not in text


def test_the_p95_that_a_goal_judges_is_told_whether_or_not_it_is_measured() -> None:
    goals = replace(SEVENTY, itl_p95_ms=None, tpot_p95_ms=60.0, ttft_p95_ms=3000.0, e2e_p95_ms=90_000.0)
    text = runs_beside(changed(goals), **MEASURED_P95)
    assert re.search(r"TPOT p95 24ms \(plan at this load: \d+ms, [+-]\d+%\)", text), "simulated at the load that runs"
    assert re.search(r"TTFT p95 400ms \(plan: \d+ms, ", text)
    assert text.endswith("E2E p95 not measured")


@pytest.mark.parametrize(
    ("value_s", "low_s", "high_s", "words"),
    [
        (0.03, 0.02, 0.04, "both in 20–40 ms"),
        (0.03, 0.0, 0.04, "both below 40 ms"),
        (0.05, 0.02, Missing(Reason.INVALID), "both above 20 ms"),
        (0.03, 0.02, 0.035, "-46..-4%"),
        (0.03, 0.0, 0.035, "-4% or less"),
        (0.05, 0.04, 0.06, "+9..+65%"),
        (0.08, 0.075, 0.2, "2 to 5.5 times that"),
        (0.05, 0.04, Missing(Reason.INVALID), "+9% or more"),
        (0.5, 0.4, Missing(Reason.INVALID), "10 times that or more"),
        (0.03, NOT_KNOWN, NOT_KNOWN, "-18%"),
    ],
)
def test_a_p95_is_off_the_plan_by_what_its_bucket_allows(
    value_s: float, low_s: Reading, high_s: Reading, words: str
) -> None:
    """The measured one lies somewhere in its bucket of the histogram: nothing tells it from a planned one in that
    bucket, and from another one it is as far off as the bounds are."""
    measured = Quantiles(p95=value_s, mean=0.02, p95_low=low_s, p95_high=high_s)
    text = runs_beside(changed(replace(SEVENTY, itl_p95_ms=None), itl_tail_ratio=1.5), itl_s=measured)
    assert f"(plan at this load: 37ms, {words})" in text


def test_a_p95_without_one_in_the_plan_says_so_and_the_means_are_compared() -> None:
    model = served_for_a_minute(**MEASURED_P95)
    planned = detailed_plan(changed(replace(SEVENTY, itl_p95_ms=60.0)), KNOWN)
    runs = running_instances(planned.demands[0].instance, model, planned.scenario)
    text = runs_text(planned.answer.workloads[0], runs)
    assert "ITL p95 30ms (plan: p95 neither measured nor simulated); ITL mean " in text


def test_the_p95_of_several_engines_is_the_longest_and_over_some_moments_their_mean() -> None:
    slow = engine(4.0, "b", ttft_s=Quantiles(p95=2.0, mean=0.2))
    means = ServedMeans()
    means.take(at(0, engine(8.0, ttft_s=Quantiles(p95=0.4, mean=0.2)), slow))
    (model,) = means.by_model().values()
    assert model.quantiles["ttft_s"].p95 == 2.0
    means.take(at(1, engine(12.0, ttft_s=Quantiles(p95=1.0, mean=0.2))))
    (model,) = means.by_model().values()
    assert model.quantiles["ttft_s"].p95 == pytest.approx(1.5), "weighted by what ran: 12 and 12"


LAST = Missing(Reason.INVALID)
SILENT = replace(engine(4.0, "b"), running=NOT_EXPOSED, running_mean=NOT_EXPOSED)
"""A second engine, which does not tell how many requests it runs."""


@each_row(
    ("buckets", "low_s", "high_s"),
    [
        (((0.25, 0.5), (0.25, 0.5)), 0.25, 0.5),
        (((0.25, 0.5), (0.5, 1.0)), 0.375, 0.75),
        (((0.25, 0.5), (80.0, LAST)), 40.125, LAST),
        (((0.25, 0.5), (NOT_EXPOSED, NOT_EXPOSED)), NOT_KNOWN, NOT_KNOWN),
    ],
)
def test_a_p95_over_some_moments_lies_between_the_means_of_its_bounds(
    buckets: tuple[tuple[Reading, Reading], ...], low_s: Reading, high_s: Reading
) -> None:
    """One in the last bucket of the histogram is a least value, and so is a mean with it."""
    means = ServedMeans()
    for second, (low, high) in enumerate(buckets):
        means.take(at(second, engine(8.0, ttft_s=Quantiles(p95=0.3, mean=0.2, p95_low=low, p95_high=high))))
    (model,) = means.by_model().values()
    told = model.quantiles["ttft_s"]
    assert (told.p95_low, told.p95_high) == (low_s, high_s)


def test_a_p95_in_the_last_bucket_is_told_as_a_least_value() -> None:
    goals = replace(SEVENTY, itl_p95_ms=None, ttft_p95_ms=3000.0)
    late = Quantiles(p95=80.0, mean=40.0, p95_low=80.0, p95_high=LAST)
    text = runs_beside(changed(goals), ttft_s=late)
    assert re.search(r"; TTFT p95 >80s \(plan: \d+ms, [\d,]+ times that or more\)", text)


def test_the_load_of_an_instance_is_that_of_the_engines_that_tell_it() -> None:
    """One of two engines does not tell how many requests it runs: the other one is not half as full for that."""
    first = engine(24.0)
    planned = detailed_plan(changed(replace(SEVENTY, itl_p95_ms=None)), KNOWN)
    instance = planned.demands[0].instance
    assert instance is not None
    snapshot = at(0, first, SILENT)
    (model,) = engines_by_model(snapshot, {first.model: 20.0}).values()
    means = ServedMeans()
    means.take(snapshot)
    (over_a_span,) = means.by_model().values()
    runs = running_instances(instance, model, planned.scenario)
    assert runs.itl_predicted_s == instance.itl_s(24.0)
    assert runs.ttft_predicted_s == instance.ttft_s(20.0)
    assert running_instances(instance, over_a_span, planned.scenario).itl_predicted_s == instance.itl_s(24.0)


def test_the_load_of_an_instance_over_a_span_is_that_of_as_many_as_ran_then() -> None:
    """A second one that started at its end has not halved the load of the first."""
    means = ServedMeans()
    for second in range(9):
        means.take(at(second, engine(24.0)))
    means.take(at(9, engine(24.0), engine(24.0, "b")))
    (model,) = means.by_model().values()
    planned = detailed_plan(changed(replace(SEVENTY, itl_p95_ms=None)), KNOWN)
    instance = planned.demands[0].instance
    assert instance is not None
    predicted_s = running_instances(instance, model, planned.scenario).itl_predicted_s
    assert predicted_s == pytest.approx(instance.itl_s(24.0))


@each_row(
    ("second", "words"),
    [
        (engine(4.0, "b"), "12 of "),
        (engine(4.0, "b", waiting=NOT_EXPOSED), "at least 12 of "),
        (SILENT, "at least 8 of "),
        (gone("b"), "8 of "),
    ],
)
def test_requests_in_flight_are_a_least_number_where_an_engine_does_not_tell_its_own(
    second: Engine, words: str
) -> None:
    snapshot = at(0, engine(8.0), second)
    (model,) = engines_by_model(snapshot).values()
    means = ServedMeans()
    means.take(snapshot)
    (over_a_span,) = means.by_model().values()
    planned = detailed_plan(changed(SEVENTY), KNOWN)
    for engines in (model, over_a_span):
        runs = running_instances(planned.demands[0].instance, engines, planned.scenario)
        assert f" GPUs, {words}" in runs_text(planned.answer.workloads[0], runs)
