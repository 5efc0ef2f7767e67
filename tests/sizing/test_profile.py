"""Which of several engines of one model a plan stands on: whichever was polled last, it is the same one."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from gpumon.readings.snapshot import Engine
from gpumon.sizing.calibration import MOST_REPLICAS, Calibration
from gpumon.sizing.live import from_live
from gpumon.sizing.profile import Observed, Origin, Point, best_profile
from gpumon.sizing.resolve import resolve
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.tui.sizing.versions import FrozenFigures, Version
from tests.each_row import each_row
from tests.sizing.live_scenes import at, engine, gpu
from tests.sizing.questions import KNOWN

UNPLACED: dict[str, Any] = {"gpus": (), "gpu_count": 0.0, "tp": 0, "kv_pool_tokens": 900_000.0}
"""An engine of which nobody tells the GPUs, with a KV pool of its own."""


def fleet() -> tuple[Engine, ...]:
    """Two alike on a GPU each, one on two GPUs, and one that nobody can place."""
    on_two: dict[str, Any] = {"gpus": (2, 3), "gpu_count": 2.0, "tp": 2}
    return (
        engine(8.0, "a"),
        engine(9.0, "b", gpus=(1,)),
        engine(8.0, "c", **on_two),
        engine(8.0, "d", **UNPLACED),
    )


@each_row("ages", list(permutations((0.1, 2.0, 4.0, 4.9))))
def test_it_is_what_most_engines_are_whichever_was_scraped_last(ages: tuple[float, ...]):
    calibration = Calibration()
    gpus = tuple(gpu(index, name) for index, name in enumerate("abcc"))
    for second in range(0, 60, 5):
        engines = (
            engine(8.0, one.name, age_s=age_s, gpus=one.hardware.gpus, gpu_count=one.hardware.gpu_count,
                   tp=one.hardware.tp, kv_pool_tokens=one.load.kv_pool_tokens)
            for one, age_s in zip(fleet(), ages, strict=True)
        )  # fmt: skip
        shot = at(second, *engines, gpus=gpus)
        calibration.take(shot)
    (workload,) = from_live(shot, calibration.observed()).workload
    assert workload.seen is not None
    assert (workload.seen.name, workload.seen.gpus) == ("a +1", 1)


def observed(name: str, gpus: int = 0, points: int = 0) -> Observed:
    return Observed(Origin.LIVE, name, "llama", tuple(Point(float(at + 1), 0.01) for at in range(points)), gpus=gpus)


def test_the_number_of_gpus_goes_before_points_and_these_before_what_was_taken():
    unplaced, placed, measured, other = observed("u", 0, 3), observed("p", 2), observed("m", 2, 1), observed("o", 2, 1)
    assert best_profile("llama", (unplaced, placed)) is placed
    assert best_profile("llama", (unplaced, placed, measured)) is measured
    assert best_profile("llama", (measured, other), other) is other
    assert best_profile("llama", (unplaced, other, measured), unplaced) is other
    assert best_profile("qwen", (unplaced, placed)) is None


def test_a_row_that_began_without_gpus_follows_the_engine_that_has_some():
    calibration = Calibration()
    calibration.take(at(0, engine(8.0, "d", **UNPLACED)))
    scenario = from_live(at(0, engine(8.0, "d", **UNPLACED)), calibration.observed())
    calibration.take(at(5, *fleet(), gpus=tuple(gpu(index, name) for index, name in enumerate("abcc"))))
    frozen = FrozenFigures(KNOWN, observed=calibration.observed())
    (workload,) = Version.of_what_runs(scenario).on_figures(frozen).scenario.workload
    assert workload.seen is not None
    assert workload.seen.gpus == 1


def test_as_many_settings_as_a_fleet_has_keep_their_points():
    calibration = Calibration()
    engines = [engine(8.0, f"vllm:{number}", kv_pool_tokens=1e5 * 1.12**number) for number in range(MOST_REPLICAS)]
    for second in range(0, 40, 5):
        calibration.take(at(second, *engines))
    assert len([each for each in calibration.observed() if each.points]) == MOST_REPLICAS


@each_row(("pool", "gpus"), [(None, 2), (111_104.0, 4), (400_000.0, 4), (800_000.0, 8), (9e9, 2)])
def test_where_no_gpus_are_told_they_hold_the_pool_that_the_engine_has(pool: float | None, gpus: int):
    seen = Observed(Origin.LIVE, "vllm", "meta-llama/Llama-3.3-70B-Instruct", weight_precision="bf16",
                    kv_precision="bf16", kv_pool_tokens=pool, prompt_tokens=1000.0, answer_tokens=200.0)  # fmt: skip
    workload = Workload(seen.model, 10.0, seen=seen)
    instance = resolve(workload, Scenario(server=(Server("H100 SXM5 80GB"),), workload=(workload,)), KNOWN)
    assert not instance.problem
    assert (instance.gpus, instance.tp) == (gpus, gpus)
