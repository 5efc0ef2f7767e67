"""The simulated training run: steps at the pace of the slower of loader and GPUs, counted on a page."""

from __future__ import annotations

import pytest

from gpumon.demo.gpus import GpuPace
from gpumon.demo.physics import H100
from gpumon.demo.scenarios import PRETRAIN
from gpumon.demo.training import Loader, SimulatedRun, TrainingRun
from tests.records import replace


def full(_: int) -> GpuPace:
    return GpuPace()


def run_for(run: TrainingRun, seconds: float) -> SimulatedRun:
    made = SimulatedRun(run, 0.0, 1.8e9)
    made.advance(seconds)
    return made


def test_a_step_takes_its_flops_over_the_speed() -> None:
    flops = 6.0 * PRETRAIN.params * PRETRAIN.tokens_per_step
    assert PRETRAIN.params == pytest.approx(8.03e9, rel=0.01)
    assert PRETRAIN.step_s == pytest.approx(flops / (4 * H100.bf16_flops_per_s * 0.44))


def test_gpus_that_never_wait_are_busy_all_the_time() -> None:
    run = run_for(PRETRAIN, 40.0)
    run.works(full)
    steps = run.steps
    run.advance(100.0)
    work = run.works(full)
    assert set(work) == {0, 1, 2, 3}
    assert work[0].busy_ratio == pytest.approx(1.0, abs=0.01)
    assert work[0].mfu_ratio == pytest.approx(0.44, abs=0.01)
    assert run.steps - steps == pytest.approx(60.0 / PRETRAIN.step_s, abs=1)


def test_the_slowest_clock_sets_the_pace() -> None:
    run = run_for(PRETRAIN, 40.0)
    run.works(lambda gpu: GpuPace(clock=0.5 if gpu == 2 else 1.0))
    steps = run.steps
    run.advance(100.0)
    work = run.works(full)
    assert work[0].busy_ratio == pytest.approx(1.0, abs=0.01)
    assert work[0].mfu_ratio == pytest.approx(0.22, abs=0.01)
    assert run.steps - steps == pytest.approx(30.0 / PRETRAIN.step_s, abs=1)


def test_a_slow_loader_sets_the_pace() -> None:
    slow = replace(PRETRAIN, loader=Loader(batches=4, every_s=6.5))
    run = run_for(slow, 65.0)
    before = run.steps
    run.advance(130.0)
    assert run.steps - before == pytest.approx(40, abs=4)
    busy = []
    for second in range(131, 151):
        run.advance(float(second))
        busy.append(run.works(full)[0].busy_ratio)
    assert max(busy[1:]) == pytest.approx(1.0)
    assert min(busy[1:]) == 0.0


def test_the_page_counts_steps_and_tokens() -> None:
    run = run_for(PRETRAIN, 60.0)
    text = run.answer("/metrics").body.decode()
    assert f"train_steps_total {run.steps}\n" in text
    assert f"train_tokens_total {run.steps * 32768}\n" in text
    assert run.answer("/health").status == 404
    feed = PRETRAIN.feed("http://127.0.0.1:1/metrics")
    assert (feed.phase, feed.gpus, feed.name) == ("training", (0, 1, 2, 3), "pretrain-8b")
    assert set(feed.quantities.values()) == {"train_steps_total", "train_tokens_total"}
