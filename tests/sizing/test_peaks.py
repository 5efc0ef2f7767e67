"""Requests in flight over the last minutes, and the targets that a scenario of what runs now has from them."""

from __future__ import annotations

import pytest

from gpumon.readings.frame import EndpointState
from gpumon.readings.missing import NOT_EXPOSED
from gpumon.readings.snapshot import Engine
from gpumon.sizing.calibration import Calibration
from gpumon.sizing.live import from_live, live_targets, target_origins
from gpumon.sizing.live_gpus import gpus_held, gpus_here
from gpumon.sizing.peaks import MOST_MODELS, PastLoads, RecentLoads
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.live_scenes import H100, at, engine, gone, gpu


def test_the_peak_is_the_highest_mean_of_ten_seconds() -> None:
    peaks = RecentLoads()
    for second in range(61):
        # An instant of 90 within a step of 40.
        peaks.take(float(second), {"a": 90.0 if second == 25 else 40.0 if 20 <= second < 30 else 10.0})
    found = peaks.peak_loads()["a"]
    assert (found.peak, found.seconds) == (pytest.approx(45.0), 60.0)
    assert found.mean == pytest.approx((50 * 10 + 9 * 40 + 90) / 60)


def test_five_minutes_are_kept_and_a_step_under_way_is_none() -> None:
    peaks = RecentLoads()
    for second in range(700):
        peaks.take(float(second), {"a": 100.0 if second < 300 else 4.0, **({"b": 1.0} if second < 50 else {})})
    assert set(peaks.peak_loads()) == {"a"}
    assert peaks.peak_loads()["a"][:3] == (4.0, 4.0, 300.0)
    peaks.take(10.0, {"a": 7.0})
    assert peaks.peak_loads() == {}


def test_the_mean_of_the_last_minute_is_told_once_a_model_was_seen_before_it() -> None:
    loads = RecentLoads()
    for second in range(60):
        loads.take(float(second), {"a": 10.0})
    assert loads.minute_means() == {}
    for second in range(60, 180):
        loads.take(float(second), {"a": 10.0 if second < 150 else 40.0, **({"b": 1.0} if second > 150 else {})})
    assert loads.minute_means() == {"a": pytest.approx(25.0)}


@each_row(("every_s", "seconds"), [(5, 290.0), (15, 270.0), (30, 240.0), (60, 150.0)])
def test_polls_as_seldom_as_a_prometheus_scrapes_have_a_peak_too(every_s: int, seconds: float) -> None:
    peaks = RecentLoads()
    for second in range(0, 600, every_s):
        peaks.take(float(second), {"a": 40.0 if second % (2 * every_s) else 60.0})
    found = peaks.peak_loads()["a"]
    assert found.mean == pytest.approx(50.0, rel=0.1)
    assert 45.0 <= found.peak <= 55.0
    assert found.seconds >= seconds


def test_models_are_bounded() -> None:
    peaks = RecentLoads()
    for second in range(25):
        peaks.take(float(second), {str(model): 1.0 for model in range(200)})
    assert len(peaks.peak_loads()) == MOST_MODELS


def test_a_target_is_the_peak_of_all_replicas_and_says_so() -> None:
    calibration = Calibration()
    for second in range(301):
        busy = 30.0 if 100 <= second < 120 else 4.0
        calibration.take(at(second, engine(busy, waiting=2.0), engine(busy, "b"), gone("c")))
    shot = at(301, engine(4.0), engine(4.0, "b"))
    scenario = from_live(shot, (), None, calibration.in_flight())
    assert scenario.workload[0].target == 62.0
    assert "targets: the peak of the last 5 min, 62 running + waiting (mean 13)" in scenario.note
    assert from_live(shot, ()).workload[0].target == 8.0
    fuller = from_live(at(301, engine(90.0), engine(4.0, "b")), (), None, calibration.in_flight())
    assert fuller.workload[0].target == 94.0
    assert "62 running + waiting (mean 13), 94 at its end" in fuller.note


@each_row(
    ("engines", "text"),
    [
        ((engine(20.0, waiting=4.0),), "the peak of the last 50 s; 24 in flight at the end"),
        ((engine(40.2),), "the peak of the last 50 s; 40 in flight at the end"),
        ((engine(40.0, waiting=2.0),), "42 in flight at the end; highest mean of 10 s in the last 50 s: 40"),
        (
            (engine(24.0, waiting=70.0, requests_per_s=2.0, rejections_per_s=1.0),),
            "106 in flight at the end, 12 of them turned away; highest mean of 10 s in the last 50 s: 40",
        ),
        ((engine(20.0), gone("b")), "the peak of the last 50 s; at least 20 in flight at the end"),
        (
            (engine(50.0), gone("b")),
            "at least 50 in flight at the end; highest mean of 10 s in the last 50 s: 40",
        ),
        ((engine(20.0, waiting=NOT_EXPOSED),), "the peak of the last 50 s; at least 20 in flight at the end"),
        ((engine(20.0), gone("b", EndpointState.DOWN)), "the peak of the last 50 s; 20 in flight at the end"),
        ((gone(),), None),
    ],
    named=[
        *("below the peak", "at the peak", "above it", "turned away", "a silent replica", "above it at least"),
        *("a queue that is not told", "a replica that has ended", "all silent"),
    ],
)
def test_the_origin_of_a_target_is_true_beside_the_load_of_now(engines: tuple[Engine, ...], text: str | None) -> None:
    """A peak is the mean of a step: at one instant more may be in flight, and a silent replica tells nothing."""
    calibration = Calibration()
    for second in range(60):
        calibration.take(at(second, engine(40.0)))
    assert target_origins(at(60, *engines), calibration.in_flight()).get("llama") == text


def test_the_origin_of_a_target_names_longer_steps_where_polls_are_seldom() -> None:
    peaks = RecentLoads()
    for second in range(0, 300, 15):
        peaks.take(float(second), {"llama": 40.0})
    (text,) = target_origins(at(300, engine(42.0)), peaks.peak_loads()).values()
    assert text == "42 in flight at the end; highest mean of 30 s in the last 4 min: 40"


def test_targets_are_those_of_a_new_scenario_and_none_of_what_fell_silent() -> None:
    calibration = Calibration()
    for second in range(60):
        calibration.take(at(second, engine(9.0), engine(5.0, "b", model="qwen")))
    shot = at(60, engine(3.0), replace(gone("b"), model="qwen"))
    assert live_targets(shot, calibration.in_flight()) == {"llama": 9.0}
    assert live_targets(shot, {}) == {"llama": 3.0}
    assert live_targets(at(60, engine(61.0)), calibration.in_flight()) == {"llama": 61.0}
    assert live_targets(at(60, engine(0.0)), {}) == {"llama": 1.0}
    assert [each.target for each in from_live(shot, (), None, calibration.in_flight()).workload] == [9.0, 5.0]


def test_idle_minutes_give_a_target_of_one() -> None:
    calibration = Calibration()
    for second in range(60):
        calibration.take(at(second, engine(0.0)))
    scenario = from_live(at(60, engine(0.0)), (), None, calibration.in_flight())
    assert scenario.workload[0].target == 1.0
    assert "llama: nothing in flight now" in scenario.note


def test_a_gpu_that_something_else_holds_is_not_here_to_plan_with() -> None:
    stranger = gpu(1).reading.processes[0]
    trains = type(stranger)(9, "train\x1b_lora", "u", 38e9, "", "")
    idle = {"engines": (), "vram_total_bytes": 80e9}
    gpus = (
        gpu(0, vram_used_bytes=70e9, vram_total_bytes=80e9),
        gpu(1, **idle, vram_used_bytes=38.4e9, processes=(trains,)),
        gpu(2, **idle, vram_used_bytes=0.6e9, processes=()),
        gpu(3, **idle, vram_used_bytes=20e9, processes=()),
    )
    shot = at(0, engine(4.0), gpus=gpus)
    assert gpus_here(shot) == ((H100, 2),)
    note = from_live(shot, ()).note
    assert "GPU 1: in use by train\\x1b_lora, 38.4 GB" in note
    assert "GPU 3: in use by a process that cannot be seen, 20.0 GB" in note
    assert "GPU 2" not in note
    assert gpus_held(shot) == tuple(part for part in note.split("; ") if "in use" in part)
    # It may be that of an engine whose GPUs nobody told.
    assert gpus_here(at(0, engine(4.0, gpus=()), gpus=gpus)) == ((H100, 3),)


def test_what_is_held_is_told_once_for_each_host() -> None:
    idle = {"engines": (), "vram_total_bytes": 80e9, "processes": ()}
    used = {"a": (70e9, 70e9), "b": (0.5e9, 0.5e9), "c": (0.5e9, 70e9)}
    gpus = tuple(
        gpu(at, **idle, vram_used_bytes=taken, host=host)
        for host, all_ in used.items()
        for at, taken in enumerate(all_)
    )
    assert gpus_held(at(0, gpus=gpus)) == (
        "a GPU of a: in use by a process that cannot be seen, 70.0 GB x 2",
        "a GPU of c: in use by a process that cannot be seen, 70.0 GB",
    )


def test_the_p95_of_a_past_is_of_minutes() -> None:
    """One minute of twenty at 100, the others at 10; a rate that is told in some of them."""
    past = PastLoads()
    for second in range(0, 1200, 10):
        minute = second // 60
        past.take(float(second), {"a": 100.0 if minute == 7 else 10.0}, {"a": 2.0} if minute < 10 else {})
    found = past.peak_loads()["a"]
    assert (found.peak, found.seconds, found.what, found.requests_per_s) == (10.0, 1200.0, "p95", 2.0)
    assert found.mean == pytest.approx(14.5)
    past.take(1200.0, {"a": 100.0}, {})
    past.take(1260.0, {"a": 100.0}, {})
    assert past.peak_loads()["a"].peak == 100.0


def test_the_steps_at_both_ends_of_a_past_count_as_far_as_they_were_seen() -> None:
    past = PastLoads()
    for second in range(50, 50 + 754):
        past.take(float(second), {"a": 10.0}, {})
    assert past.peak_loads()["a"].seconds == 754.0


def test_machines_add_up_step_by_step() -> None:
    """Two of them are never loaded together: the p95 of their sum is not the sum of theirs."""
    machines = [PastLoads(600.0), PastLoads(600.0)]
    for step in range(20):
        for number, machine in enumerate(machines):
            machine.take(600.0 * step + 7.0 * number, {"a": 40.0 if step % 2 == number else 10.0}, {"a": 1.0})
    found = machines[0].peak_loads(machines[1])["a"]
    assert (found.peak, found.mean, found.requests_per_s, found.seconds) == (50.0, 50.0, 2.0, 12000.0)
