"""What is remembered of a GPU: power and means over equal windows, through gaps, resets and calls that fail."""

from __future__ import annotations

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.gpu import GpuTrack
from gpumon.readings import quantities as q
from gpumon.readings.frame import GpuReading
from gpumon.readings.missing import NOT_SUPPORTED, WARMING_UP, Missing, Reading, Reason
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.packaged import gpu_catalogue
from tests.efficiency.small_llm import SMALL
from tests.efficiency.test_deriver import engine, frame, gpu

LONGEST_S = 4.0
GPUS = ("GPU-0",)


@pytest.fixture
def track() -> GpuTrack:
    return GpuTrack()


def number(reading: Reading) -> float:
    assert not isinstance(reading, Missing), reading
    return reading


def reading(at_s: float, **facts: object) -> GpuReading:
    return gpu(0, at_s, **facts)


def load_then_idle(seconds: int, **facts: object) -> list[Snapshot]:
    """400 tok/s at 700 W until second 40, then nothing at 80 W; the engine is asked every 2 s."""
    deriver, shown = Deriver(gpu_catalogue()), []
    tokens = joules = 0.0
    for at in range(seconds):
        if at:
            tokens += 400.0 if at <= 40 else 0.0
            joules += 700.0 if at <= 40 else 80.0
        if at % 2 == 0:
            counters = {q.DECODE_TOKENS: tokens, q.STEPS: tokens / 4, q.PREFILL_COMPUTED: 0.0}
            polled = engine(float(at), counters, gpus=GPUS, llm=SMALL)
        watts = 700.0 if at <= 40 else 80.0
        card = gpu(0, float(at), **{"energy_j": joules, "power_w": watts, **facts})
        shown.append(deriver.derive(frame(at, (card,), (polled,))).snapshot)
    return shown


@pytest.mark.parametrize("facts", [{}, {"energy_j": NOT_SUPPORTED}])
def test_after_the_load_ends_a_joule_gives_no_more_than_it_did(facts: dict[str, object]) -> None:
    shown = load_then_idle(60, **facts)
    assert number(shown[40].gpus[0].tokens_per_j) == pytest.approx(400 / 700, rel=0.01)
    for at in range(41, 60):
        one, card = shown[at].engines[0], shown[at].gpus[0]
        for got in (one.efficiency.tokens_per_j, card.tokens_per_j):
            # Between two polls the watts are up to 2 s newer than the tokens.
            assert number(got) <= 1.4 * 400 / 700, at
        assert number(one.efficiency.tokens_per_j) == pytest.approx(number(card.tokens_per_j))
    assert number(shown[46].engines[0].hardware.power_w) == pytest.approx((4 * 700 + 6 * 80) / 10)
    assert number(shown[46].engines[0].efficiency.tokens_per_j) == pytest.approx(4 * 400 / (4 * 700 + 6 * 80))
    assert number(shown[46].gpus[0].power_w) == pytest.approx(80.0)


def test_power_after_a_gap_is_not_the_mean_of_the_gap(track: GpuTrack) -> None:
    for at in range(1, 11):
        track.add(reading(at, energy_j=700.0 * at), LONGEST_S)
    assert (track.power_w, track.mean_power_w) == (700.0, 700.0)
    track.add(reading(610.0, energy_j=7000.0 + 600 * 70.0, power_w=690.0), LONGEST_S)
    assert track.power_w == WARMING_UP
    assert track.mean_power_w == 690.0, "the driver's figure"
    assert number(track.energy_j) == pytest.approx(9 * 700.0 + 600 * 70.0), "the energy of the gap counts"
    track.add(reading(611.0, energy_j=7000.0 + 600 * 70.0 + 700.0), LONGEST_S)
    assert (track.power_w, track.mean_power_w) == (700.0, 700.0)


@pytest.mark.parametrize("jump_j", [1e12, -1e12, 1e5])
def test_a_counter_that_jumps_is_a_new_base_line_and_no_power(track: GpuTrack, jump_j: float) -> None:
    for at in range(1, 21):
        before_j = 2e12 + 700.0 * at
        track.add(reading(at, energy_j=before_j + (jump_j if at > 10 else 0.0), power_w=690.0), LONGEST_S)
        if at == 11:
            assert track.power_w == WARMING_UP
            assert track.mean_power_w == 690.0, "the driver's figure"
        elif at > 2:
            assert (track.power_w, track.mean_power_w) == (700.0, 700.0), at
    assert number(track.energy_j) == pytest.approx(18 * 700.0)


def test_a_mean_weighs_each_reading_by_the_time_it_stands_for(track: GpuTrack) -> None:
    for at_s, active in ((1.0, 0.0), (1.25, 0.0), (1.5, 0.0), (1.75, 0.0), (2.0, 0.0), (10.0, 1.0)):
        track.add(reading(at_s, dram_active_ratio=active), 99.0)
    assert track.recent("dram_active_ratio") == pytest.approx(8 / 9)


def test_a_mean_is_of_the_window_and_of_what_was_known_in_it(track: GpuTrack) -> None:
    track.add(reading(0.0, dram_active_ratio=1.0), 99.0)
    assert track.recent("dram_active_ratio") == 1.0
    for at_s, active in ((8.0, 1.0), (15.0, Missing(Reason.ERROR)), (16.0, 0.0)):
        track.add(reading(at_s, dram_active_ratio=active), 99.0)
    # Of the 10 s up to now: 2 s of 1, 7 s not known, 1 s of 0.
    assert track.recent("dram_active_ratio") == pytest.approx(2 / 3)
    track.add(reading(17.0, dram_active_ratio=Missing(Reason.ERROR)), 99.0)
    assert track.recent("dram_active_ratio") == Missing(Reason.ERROR)


def test_busy_of_more_than_an_hour_ago_does_not_count(track: GpuTrack) -> None:
    at_s = 0.0
    for _ in range(1800):
        at_s += 1.0
        track.add(reading(at_s, busy_ratio=1.0), LONGEST_S)
    at_s += 5 * 3600.0
    track.add(reading(at_s, busy_ratio=0.0), LONGEST_S)
    assert track.busy_mean_ratio == WARMING_UP
    for _ in range(300):
        at_s += 1.0
        track.add(reading(at_s, busy_ratio=0.0), LONGEST_S)
    assert track.busy_mean_ratio == 0.0


def test_a_cause_that_is_missing_alone_goes_on_where_it_was(track: GpuTrack) -> None:
    for at in range(0, 64, 4):
        counted = {"sw_power_cap": 100.0 + at} | ({} if 8 <= at < 48 else {"reliability": 10.0 + at})
        track.add(reading(float(at), throttle_s=counted), LONGEST_S)
    assert track.throttle_s == {"sw_power_cap": 60.0, "reliability": 60.0}
