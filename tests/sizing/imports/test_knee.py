"""The knee of a sweep, on published rows and on curves whose knee is known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sizing.knee import knee
from gpumon.sizing.profile import Point
from tests.each_row import each_row
from tests.sizing.imports.samples import one, read


def point(offered: float, tokens_per_s: float, itl_s: float, ttft_s: float | None = None) -> Point:
    running = min(offered, tokens_per_s * itl_s)
    return Point(running=running, offered=offered, tokens_per_s=tokens_per_s, itl_s=itl_s, ttft_s=ttft_s)


def test_rows_n_queue_between_50_and_100_and_hold_85_5() -> None:
    """NIM, Llama-3.3-70B FP8 TP2, 5000/500: running stops at 85.5, TTFT goes from 0.83 s to 8.0 s."""
    found = knee(one("vllm-bench.jsonl").points)
    assert found.point.offered == 50
    assert found.beyond is not None
    assert found.beyond.offered == 100
    assert found.plateau == pytest.approx(85.5, abs=0.1)
    assert found.rule == "running stops following the load: 85.2 of 100"
    assert one("vllm-bench.jsonl").concurrency == 50


def test_rows_d_of_long_prompts_queue_between_100_and_150() -> None:
    """DLI, Llama-3-8B on 2 x A100, 7000/1000: 113 run whatever is offered."""
    long = next(each for each in read("nim.csv").profiles if each.name.endswith("7000x1000"))
    found = knee(long.points)
    assert found.point.offered == 100
    assert found.beyond is not None
    assert found.beyond.offered == 150
    assert found.plateau == pytest.approx(113.3, abs=0.1)


def test_rows_d_of_short_prompts_never_queue_and_the_bend_at_25_is_advice() -> None:
    """200/1000: from 25 to 50 a request more adds 58.9 tok/s, of 119.8 at first; up to 250 throughput still grows."""
    short = next(each for each in read("nim.csv").profiles if each.name.endswith("tp2-200x1000"))
    found = knee(short.points)
    assert found.point.offered == 250
    assert found.beyond is None
    assert found.advice.startswith("above 25 one more in flight adds 49%")
    assert found.plateau is None


def line(loads: Sequence[int]) -> list[Point]:
    """ITL = 10 + 0.4 b ms at these loads."""
    return [Point(float(load), itl_s=0.010 + 0.0004 * load, offered=float(load)) for load in loads]


@each_row("loads", [(1, 2, 4, 8, 16, 32, 64, 128), (32, 64, 128), (64, 128), (1, 8, 64, 128), (128,)])
def test_the_knee_does_not_depend_on_the_lowest_load_that_was_tested(loads: Sequence[int]) -> None:
    """From 64 to 128 throughput still grows by 16%."""
    assert knee(line(loads)).point.offered == 128


def test_a_doubled_load_that_adds_less_than_a_tenth_does_not_pay() -> None:
    """From 128 to 256 it grows by 9%."""
    found = knee(line((32, 64, 128, 256, 512)))
    assert found.point.offered == 128
    assert found.beyond is not None
    assert found.beyond.offered == 256
    assert found.rule == "twice the load adds 9% throughput"


def test_noise_between_loads_that_lie_close_together_is_no_knee() -> None:
    steady = line((8, 16, 32))
    dip = Point(33.0, itl_s=0.0245, offered=33.0)
    assert knee([*steady, dip, *line((64,))]).point.offered == 64


def test_rows_e_are_single_points() -> None:
    for profile in read("model-analyzer/guide*.csv").profiles:
        assert knee(profile.points).rule == "a single point"
        assert knee(profile.points).beyond is None


def test_a_serial_server_bends_at_once() -> None:
    """Inferences only: throughput stands still, so latency grows with the load."""
    loads = (1.0, 2.0, 4.0, 8.0)
    known = [Point(running=1.0, offered=load, requests_per_s=3.61, e2e_s=load / 3.61) for load in loads]
    assert knee(known).point.offered == 1
    assert knee(known).rule == "running stops following the load: 1.0 of 2"
    unknown = [Point(running=load, offered=load, requests_per_s=3.61, e2e_s=load / 3.61) for load in loads]
    assert knee(unknown).point.offered == 1
    assert knee(unknown).rule == "twice the load adds 0% throughput"


def test_a_jump_of_ttft_beside_growing_throughput_is_no_knee() -> None:
    """Where no goal is set, more load that is served pays, whatever the first token waits for."""
    points = [point(1, 100, 0.01, 0.1), point(2, 200, 0.01, 0.11), point(4, 390, 0.00999, 0.9)]
    assert knee(points).point.offered == 4


def test_a_ttft_that_grows_with_the_load_is_prefill_and_no_queue() -> None:
    points = [point(1, 99, 0.01, 0.1), point(5, 480, 0.0097, 0.4), point(20, 1800, 0.0102, 1.5)]
    assert knee(points).rule == "the sweep ends before a knee"


def test_no_points_no_knee() -> None:
    with pytest.raises(ValueError, match="without points"):
        knee(())


@given(base_ms=st.floats(1, 50), slope_ms=st.floats(0.01, 2), slots=st.integers(4, 400), prefill_ms=st.floats(0.1, 20))
def test_a_load_that_doubles_past_the_slots_of_a_server_stops_near_them(
    base_ms: float, slope_ms: float, slots: int, prefill_ms: float
) -> None:
    """A server with `slots` places and ITL = a + c*b: past them requests wait, so running stands still."""
    points = []
    for load in (2**power for power in range(12)):
        running = min(load, slots)
        itl_s = (base_ms + slope_ms * running) / 1e3
        wait_s = 200 * itl_s * max(0, load - slots) / slots
        points.append(point(load, running / itl_s, itl_s, 0.02 + prefill_ms * running / 1e3 + wait_s))
    found = knee(points)
    assert found.point in points
    assert found.beyond is not None
    assert (found.point.offered or 0) <= 1.34 * slots
    assert found.plateau == pytest.approx(slots)
