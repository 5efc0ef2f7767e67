"""MBU beside the bandwidth that an engine's own GPUs measure: what cannot be is said, steadily, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings import quantities as q
from gpumon.readings.dcgm import DCGM
from gpumon.readings.frame import EngineReading
from gpumon.readings.verdict import Evidence
from gpumon.sources.packaged import gpu_catalogue
from tests.each_row import each_row
from tests.efficiency.polls import engine, frame, gpu, renamed
from tests.efficiency.small_llm import SMALL

Active = Callable[[int], float]
SHARES = pytest.approx((0.48, 0.3), abs=0.04)
"""100 steps/s of one sequence: 16 GB each of 3,350 GB/s."""


def serving(at: int, steps_per_s: float = 100.0, **facts: Any) -> EngineReading:
    counters = {q.DECODE_TOKENS: steps_per_s * at, q.STEPS: steps_per_s * at, q.PREFILL_COMPUTED: 0.0}
    return engine(float(at), counters, **facts)


def said(
    active: Active, seconds: int = 60, extra: tuple[EngineReading, ...] = (), **facts: Any
) -> list[tuple[Evidence, ...]]:
    """What is said of the first engine at each second, its GPUs this active."""
    deriver = Deriver(gpu_catalogue())
    found = []
    for at in range(seconds):
        cards = [gpu(index, float(at), dram_active_ratio=active(at)) for index in range(2)]
        poll = serving(at - at % 2, **facts)
        found.append(deriver.derive(frame(at, tuple(cards), (poll, *extra))).snapshot.engines[0].contradicts)
    return found


def test_more_than_its_gpus_move_cannot_be():
    found = said(lambda _: 0.3)
    assert found[:30] == [()] * 30, "it holds for three windows first"
    (one,) = found[-1]
    assert (one.value, one.limit) == SHARES


@each_row("active", [0.9, 0.46, 0.38], named=["more", "the same", "within the slack"])
def test_what_can_be_is_not_said(active: float):
    assert not any(said(lambda _: active))


def test_it_comes_after_three_windows_and_goes_after_three():
    found = said(lambda at: 0.2 if at < 70 else 0.8, 140)
    shown = [at for at, texts in enumerate(found) if texts]
    assert shown == list(range(shown[0], shown[-1] + 1)), "without a gap"
    assert 30 <= shown[0] <= 36
    assert 100 <= shown[-1] <= 112


def test_a_load_that_goes_up_and_down_is_no_contradiction():
    """A dcgm-exporter's mean of 30 s lags behind the engine's of 10."""

    def dcgm(at: int) -> dict[str, Any]:
        told = max(0, at - at % 30 - 30)
        return {
            "dram_active_ratio": 0.004 * told,
            "activity_source": DCGM,
            "activity_monotonic_s": float(at - at % 30),
            "activity_interval_s": 30.0,
            "from_dcgm": ("dram_active_ratio",),
        }

    deriver = Deriver(gpu_catalogue())
    total = 0.0
    for at in range(240):
        total += 0.9 * at  # steps/s: an MBU of 0.4% more each second, and as much measured
        card = gpu(0, float(at), **dcgm(at))
        poll = engine(float(at), {q.DECODE_TOKENS: total, q.STEPS: total, q.PREFILL_COMPUTED: 0.0})
        assert deriver.derive(frame(at, (card,), (poll,))).snapshot.engines[0].contradicts == ()


def test_only_gpus_that_measure_it_say_anything():
    two = {"gpus": ("GPU-0", "GPU-1")}
    (one,) = said(lambda _: 0.1, **two)[-1]
    assert (one.value, one.limit) == pytest.approx((0.23, 0.1), abs=0.01)
    deriver = Deriver(gpu_catalogue())
    for at in range(60):
        cards = (gpu(0, float(at), dram_active_ratio=0.1), gpu(1, float(at), memory_busy_ratio=0.1))
        found = deriver.derive(frame(at, cards, (serving(at, **two),))).snapshot.engines[0]
        assert found.contradicts == ()


def test_another_engine_on_its_gpu_leaves_it_open():
    other = renamed(serving(0), "other", "http://127.0.0.1:9000")
    assert not any(said(lambda _: 0.3, extra=(other,)))


def test_a_model_that_caches_hold_is_read_from_them():
    assert SMALL.params < 1e9
    assert not any(said(lambda _: 0.0001, llm=SMALL))
