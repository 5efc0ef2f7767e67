"""Points gathered from running engines: which windows count, what they are filed under, what stays."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.engine_options import EngineOptions
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Quantiles, Window
from gpumon.sizing.calibration import MOST_REPLICAS, Calibration, tail_ratio
from gpumon.sizing.profile import MOST_POINTS, Observed, Origin, Point
from gpumon.sizing.traffic_mix import MOST_WINDOWS, MeanLengths, MixPoints
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.live_scenes import BASE_S, H100, SLOPE_S, at, engine, gone, gpu


def watched(*engines: Engine, seconds: int = 60, start: int = 0, into: Calibration | None = None) -> Calibration:
    """So many ticks of the same engines; polls come every 2 s."""
    calibration = into if into is not None else Calibration()
    for tick in range(start, start + seconds):
        aged = tuple(replace(one, age_s=0.4 + tick % 2) for one in engines)
        calibration.take(at(tick, *aged))
    return calibration


def only(calibration: Calibration) -> Observed:
    (observed,) = calibration.observed()
    return observed


def test_a_steady_engine_gives_one_point_with_a_weight_of_its_windows():
    seen = only(watched(engine(8.0), seconds=60))
    (point,) = seen.points
    assert point.running == 8.0
    assert point.itl_s == pytest.approx(BASE_S + 8 * SLOPE_S)
    assert point.weight == 6
    assert (point.ttft_s, point.power_w, point.busy_ratio) == (0.1, 500.0, pytest.approx(0.9))


def test_what_was_seen_is_all_there():
    seen = only(watched(engine(8.0)))
    assert (seen.origin, seen.name, seen.model, seen.tool) == (Origin.LIVE, "vllm:8000", "llama", "vllm 0.32.0")
    assert (seen.gpu, seen.gpus, seen.tp, seen.pp) == (H100, 1, 1, 1)
    assert (seen.weight_precision, seen.kv_precision) == ("fp8", "fp8")
    assert (seen.prompt_tokens, seen.answer_tokens, seen.prefix_hit_ratio) == (1000.0, 200.0, 0.25)
    assert (seen.kv_pool_tokens, seen.memory_bytes, seen.power_w) == (400_000.0, 70e9, 500.0)
    assert seen.itl_tail_ratio == pytest.approx(1.5)
    assert seen.max_num_seqs is None
    assert seen.time == "2026-01-02T00:00:59.000Z"


def test_what_speculation_gave_is_told():
    assert only(watched(engine(8.0, tokens_per_step=2.4))).tokens_per_step == 2.4
    drafted = only(watched(engine(8.0, tokens_per_step=2.4, acceptance_ratio=0.35)))
    assert drafted.drafted_per_step == pytest.approx(4.0)
    assert only(watched(engine(8.0, tokens_per_step=2.4, acceptance_ratio=0.0))).drafted_per_step is None
    assert only(watched(engine(8.0, tokens_per_step=Missing(Reason.IDLE)))).tokens_per_step is None
    assert only(watched(engine(8.0, tokens_per_step=1e9))).tokens_per_step is None


@each_row(
    ("running", "spread", "counts"),
    [(8.0, 4.0, True), (8.0, 4.2, False), (2.0, 2.0, True), (2.0, 2.2, False), (40.0, 20.0, True), (1.0, 2.0, False)],
)
def test_a_window_counts_only_while_concurrency_is_steady(running: float, spread: float, counts: bool):
    assert bool(only(watched(engine(running, spread=spread))).points) is counts


@each_row(
    "facts",
    [
        {"itl_mean_s": Missing(Reason.RESET)},
        {"window": None},
        {"window": Window(2.0, 8.0, 8.0, 8.0)},
        {"running_mean": Missing(Reason.WARMING_UP)},
        {"prompt_tokens_mean": Missing(Reason.IDLE)},
        {"ranks": 16},
    ],
)
def test_a_reset_a_restart_a_start_and_an_unknown_mix_give_no_point(facts: dict[str, Any]):
    assert only(watched(engine(8.0, **facts))).points == ()


def test_lengths_are_known_without_a_steady_window():
    found = only(watched(engine(0.4)))
    assert found.points == ()
    busy = only(watched(engine(24.0)))
    assert (found.prompt_tokens, found.answer_tokens) == (busy.prompt_tokens, busy.answer_tokens)
    assert found.prompt_tokens is not None


def test_windows_do_not_straddle_a_step():
    calibration = watched(engine(4.0), seconds=21)
    for tick in range(21, 30):
        calibration.take(at(tick, engine(9.0, age_s=0.4, spread=12.0)))
    seen = only(watched(engine(16.0), seconds=30, start=30, into=calibration))
    assert [(point.running, point.weight) for point in seen.points] == [(4.0, 3), (16.0, 3)]


def test_an_engine_that_goes_stays_as_it_was_with_its_time():
    calibration = watched(engine(8.0), seconds=40)
    before = only(calibration)
    for tick in range(40, 400):
        calibration.take(at(tick, gone()))
    assert only(calibration) == before
    assert before.time == "2026-01-02T00:00:39.000Z"
    calibration.take(at(400))
    assert only(calibration) == before


def test_engines_of_one_model_with_the_same_settings_pool_their_points():
    seen = only(watched(engine(4.0), engine(12.0, "vllm:8001"), seconds=30))
    assert [point.running for point in seen.points] == [4.0, 12.0]
    assert seen.name == "vllm:8000 +1"


@each_row(
    "change",
    [{"model": "other"}, {"weight_precision": "bf16"}, {"kv_pool_tokens": 300_000.0}, {"version": "0.32.01"},
     {"gpu_count": 2.0, "tp": 2}],
)  # fmt: skip
def test_a_restart_with_other_settings_starts_anew(change: dict[str, Any]):
    calibration = watched(engine(8.0), seconds=40)
    watched(engine(8.0, **change), seconds=40, start=40, into=calibration)
    newest, older = calibration.observed()
    assert newest.time > older.time
    assert [len(newest.points), len(older.points)] == [1, 1]
    assert newest.points[0].weight == 4


def test_what_is_known_late_is_no_change_of_settings():
    calibration = watched(engine(8.0, version="", weight_precision="", gpus=(), gpu_count=0.0, tp=0), seconds=30)
    seen = only(watched(engine(8.0), seconds=30, start=30, into=calibration))
    assert seen.points[0].weight == 6
    assert (seen.gpu, seen.weight_precision, seen.tool) == (H100, "fp8", "vllm 0.32.0")


def test_a_pool_a_little_off_is_the_same_setting():
    calibration = watched(engine(8.0), seconds=20)
    assert only(watched(engine(8.0, kv_pool_tokens=385_000.0), seconds=20, start=20, into=calibration))


def test_another_traffic_mix_is_kept_apart_and_comes_back():
    calibration = watched(engine(8.0), seconds=60)
    long = {"prompt_tokens_mean": 8000.0, "itl_mean_s": 0.05, "requests_per_s": 20.0}
    watched(engine(8.0, **long), seconds=40, start=60, into=calibration)
    assert [point.itl_s for point in only(calibration).points] == [0.05]
    assert only(calibration).prompt_tokens == 8000.0
    watched(engine(8.0, requests_per_s=20.0), seconds=20, start=100, into=calibration)
    assert [(point.itl_s, point.weight) for point in only(calibration).points] == [(pytest.approx(0.014), 8)]


def test_the_mean_of_few_requests_may_stray_further_than_that_of_many():
    mix = MixPoints(MeanLengths(1000.0, 200.0, 0.0))
    assert mix.covers(MeanLengths(1700.0, 200.0, 0.0), requests=4)
    assert not mix.covers(MeanLengths(1700.0, 200.0, 0.0), requests=1000)
    assert mix.covers(MeanLengths(1450.0, 200.0, 0.0), requests=1000)
    assert not mix.covers(MeanLengths(1000.0, 200.0, 0.5), requests=1000)


def test_figures_are_those_of_one_rank():
    two = engine(16.0, ranks=2, gpus=(0, 1), gpu_count=2.0, decode_tokens_per_s=800.0)
    calibration = Calibration()
    for tick in range(30):
        calibration.take(at(tick, replace(two, age_s=0.4), gpus=(gpu(0), gpu(1))))
    seen = only(calibration)
    assert (seen.points[0].running, seen.points[0].tokens_per_s, seen.points[0].power_w) == (8.0, 400.0, 250.0)
    assert (seen.kv_pool_tokens, seen.gpus, seen.memory_bytes) == (200_000.0, 1, 70e9)


def test_the_engines_own_limit_is_seen_where_it_lets_nobody_in():
    held = engine(16.0, waiting=5.0)
    assert only(watched(held)).max_num_seqs == 16
    assert only(watched(engine(16.0, waiting=5.0, kv_usage_ratio=0.95))).max_num_seqs is None
    untold = Missing(Reason.NOT_EXPOSED)  # its KV pool may be what is full
    assert only(watched(engine(16.0, waiting=5.0, kv_usage_ratio=untold))).max_num_seqs is None
    more = watched(held)
    assert only(watched(engine(24.0), start=60, into=more)).max_num_seqs is None
    calibration = Calibration()
    for tick in range(3):
        told = replace(engine(4.0), options=EngineOptions(slots=48.0, context_tokens=8192.0))
        calibration.take(at(tick, told, gpus=(gpu(),)))
    assert (only(calibration).max_num_seqs, only(calibration).max_model_len) == (48, 8192)


def test_memory_of_a_gpu_with_hidden_processes_is_taken_whole_only_where_it_is_alone():
    calibration = Calibration()
    calibration.take(at(0, engine(4.0), gpus=(gpu(processes=(), vram_used_bytes=60e9),)))
    assert only(calibration).memory_bytes == 60e9
    shared = Calibration()
    shared.take(at(0, engine(4.0), gpus=(gpu(processes=(), vram_used_bytes=60e9, engines=("vllm:8000", "b")),)))
    assert only(shared).memory_bytes is None


def test_busy_of_a_shared_gpu_is_nobodys():
    calibration = Calibration()
    for tick in range(30):
        calibration.take(at(tick, engine(8.0, age_s=0.4), gpus=(gpu(engines=("vllm:8000", "b")),)))
    assert only(calibration).points[0].busy_ratio is None


@each_row(
    ("low", "high", "p95", "expected"),
    [(0.025, 0.05, 0.03, 1.5), (0.0, 0.01, 0.009, None), (0.01, 0.025, 0.02, None), (0.025, None, 0.04, None),
     (0.015, 0.025, 0.015, 1.0)],
)  # fmt: skip
def test_a_tail_from_a_coarse_or_open_bucket_is_none(
    low: float, high: float | None, p95: float, expected: float | None
):
    upper = Missing(Reason.INVALID) if high is None else high
    found = tail_ratio(Quantiles(p95=p95, mean=0.02, p95_low=low, p95_high=upper))
    assert found == (None if expected is None else pytest.approx(expected))
    few = Missing(Reason.FEW)
    assert tail_ratio(Quantiles(p95=few, mean=0.02, p95_low=few, p95_high=few)) is None


def test_old_windows_go_and_there_are_never_more_than_64_points():
    mix = MixPoints(MeanLengths(1000.0, 200.0, 0.0))
    for number in range(2000):
        mix.add(number * 10.0, Point(1.0 + number % 500, 0.02), MeanLengths(1000.0, 200.0, 0.0))
    points = mix.points()
    assert len(points) <= MOST_POINTS
    assert all(point.weight <= MOST_WINDOWS for point in points)
    mix.add(1e6, Point(8.0, 0.02), MeanLengths(1000.0, 200.0, 0.0))
    assert [point.running for point in mix.points()] == [8.0]


def test_half_a_day_of_many_engines_stays_small():
    calibration = Calibration()
    for tick in range(0, 43200, 120):
        load = 1.0 + (tick // 120) % 300
        engines = tuple(engine(load + number, f"vllm:{number}", model=f"m{number % 20}") for number in range(20))
        calibration.take(at(tick, *engines, gpus=()))
    assert len(calibration.observed()) <= MOST_REPLICAS
    assert all(len(observed.points) <= MOST_POINTS for observed in calibration.observed())
    assert _size(calibration) < 5e6


def test_a_clock_set_back_does_not_stop_it():
    calibration = watched(engine(8.0), seconds=30, start=3600)
    assert only(watched(engine(8.0), seconds=30, into=calibration)).points[0].weight > 3


@given(st.lists(st.tuples(st.floats(0.0, 1e7), st.floats(1e-9, 1e3)), max_size=40), st.floats(1.0, 1e6))
def test_any_figures_give_points_in_order_or_none(loads: list[tuple[float, float]], prompt: float):
    calibration = Calibration()
    for tick, (running, itl_s) in enumerate(loads):
        one = engine(running, itl_mean_s=itl_s, prompt_tokens_mean=prompt, decode_tokens_per_s=running)
        calibration.take(at(10.0 * tick, one))
    for observed in calibration.observed():
        counts = [point.running for point in observed.points]
        assert counts == sorted(counts)
        assert all(math.isfinite(count) and count >= 1.0 for count in counts)


def _size(thing: object, known: set[int] | None = None) -> int:
    """Bytes of an object and all that it holds, each once."""
    known = set() if known is None else known
    if id(thing) in known or isinstance(thing, type):
        return 0
    known.add(id(thing))
    parts: list[object] = list(getattr(thing, "__dict__", {}).values())
    parts += [getattr(thing, name) for name in getattr(thing, "__struct_fields__", ())]
    if isinstance(thing, dict):
        parts += [*thing, *thing.values()]
    elif hasattr(thing, "__iter__") and not isinstance(thing, str | bytes):
        parts += list(thing)
    return sys.getsizeof(thing) + sum(_size(part, known) for part in parts)
