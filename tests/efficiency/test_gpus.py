"""What is shown of a GPU: power and means through gaps and resets, its states, bandwidth and peaks."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.config import schema
from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.gpu import MOST_POWER_W, GpuTrack, over_window
from gpumon.efficiency.provenance import NEWEST
from gpumon.efficiency.sums import CounterGrowth
from gpumon.readings import quantities as q
from gpumon.readings.engine_options import EngineOptions
from gpumon.readings.frame import EngineKind, GpuState
from gpumon.readings.missing import NOT_SUPPORTED, WARMING_UP, Missing, Reading, Reason
from gpumon.readings.snapshot import BandwidthSource, Gpu, Snapshot
from gpumon.sources.packaged import gpu_catalogue
from gpumon.specs.precision import Precision
from tests.efficiency.polls import H100_BANDWIDTH, engine, frame, gpu, rank, served, there, why
from tests.efficiency.small_llm import SMALL
from tests.records import replace

LONGEST_S = 4.0
FP8 = replace(SMALL, precision=Precision.FP8)
BATCH = {q.DECODE_TOKENS: 400.0, q.STEPS: 100.0}


@pytest.fixture
def track() -> GpuTrack:
    return GpuTrack()


@pytest.fixture
def deriver() -> Deriver:
    return Deriver(gpu_catalogue())


def shown(deriver: Deriver, at_s: float, state: GpuState = GpuState.OK, read_s: float | None = None) -> Gpu:
    """A GPU in a state, read at a moment (now)."""
    card = replace(gpu(at_s=at_s if read_s is None else read_s), state=state)
    return deriver.derive(frame(at_s, (card,))).snapshot.gpus[0]


# Energy, means and time throttled.


def take(track: GpuTrack, at_s: float, **facts: Any) -> None:
    """One reading at a moment (now)."""
    card = gpu(0, at_s, **facts)
    track.take(card, frame(at_s, (card,)), 10.0)


@pytest.mark.parametrize("facts", [{}, {"energy_j": NOT_SUPPORTED}])
def test_after_the_load_ends_a_joule_gives_no_more_than_it_did(deriver: Deriver, facts: dict[str, object]) -> None:
    """400 tok/s at 700 W until second 40, then nothing at 80 W; the engine is asked every 2 s."""
    seen: list[Snapshot] = []
    for at in range(60):
        tokens, joules = 400.0 * min(at, 40), 700.0 * min(at, 40) + 80.0 * max(0, at - 40)
        if at % 2 == 0:
            counters = {q.DECODE_TOKENS: tokens, q.STEPS: tokens / 4, q.PREFILL_COMPUTED: 0.0}
            polled = engine(float(at), counters, llm=SMALL)
        card = gpu(0, float(at), **{"energy_j": joules, "power_w": 700.0 if at <= 40 else 80.0, **facts})
        seen.append(deriver.derive(frame(at, (card,), (polled,))).snapshot)
    assert there(seen[40].gpus[0].tokens_per_j) == pytest.approx(400 / 700, rel=0.01)
    for at in range(41, 60):
        one, card = seen[at].engines[0], seen[at].gpus[0]
        # Between two polls the watts are up to 2 s newer than the tokens.
        assert there(one.efficiency.tokens_per_j) <= 1.4 * 400 / 700, at
        assert there(one.efficiency.tokens_per_j) == pytest.approx(there(card.tokens_per_j))
    assert seen[46].engines[0].hardware.power_w == pytest.approx((4 * 700 + 6 * 80) / 10)
    assert seen[46].engines[0].efficiency.tokens_per_j == pytest.approx(4 * 400 / (4 * 700 + 6 * 80))
    assert seen[46].gpus[0].power_w == pytest.approx(80.0)


def test_an_energy_counter_that_fell_began_anew_and_one_that_jumped_is_a_base_line_as_in_a_report(
    track: GpuTrack,
) -> None:
    """The driver was loaded anew: what it has counted since is energy. 1e9 J in a second are none."""
    growth = CounterGrowth(most_per_s=MOST_POWER_W)
    for at, joules in enumerate((5e6, 5e6 + 700.0, 300.0, 1000.0)):
        take(track, float(at), energy_j=joules)
        growth.add(joules, 1.0)
    assert track.energy_j == growth.reading == 700.0 + 300.0 + 700.0
    for at, joules in ((4.0, 1e9), (5.0, 1e9 + 500.0)):
        take(track, at, energy_j=joules)
        growth.add(joules, 1.0)
    assert track.energy_j == growth.reading == 2200.0


def test_power_is_what_the_gpu_reports_also_where_its_energy_counter_moves_in_steps(track: GpuTrack) -> None:
    """An H200's counter moves every 100 ms: from tick to tick its slope is up to a tenth off, above the limit, too."""
    for at in range(1, 31):
        steps = (at + at % 3 * 0.04) // 0.1
        take(track, at, energy_j=70.0 * steps, power_w=699.0)
        assert track.power == (699.0, False)
    assert track.mean_power_w == pytest.approx(699.0)


def test_power_by_energy_is_a_mean_and_not_that_of_a_gap(track: GpuTrack) -> None:
    def power_w(at_s: float, energy_j: float) -> Reading:
        take(track, at_s, energy_j=energy_j, power_w=NOT_SUPPORTED)
        return track.power[0]

    assert power_w(1.0, 700.0) == NOT_SUPPORTED
    for at in range(2, 11):
        assert power_w(at, 700.0 * at) == 700.0
    assert (track.power, track.mean_power_w) == ((700.0, True), 700.0)
    assert power_w(610.0, 7000.0 + 600 * 70.0) == NOT_SUPPORTED
    assert track.energy_j == pytest.approx(9 * 700.0 + 600 * 70.0), "the energy of the gap counts"
    assert power_w(611.0, 7000.0 + 600 * 70.0 + 700.0) == 700.0


def test_an_energy_counter_that_stands_still_gives_no_power(track: GpuTrack) -> None:
    for at in range(1, 41):
        take(track, at, energy_j=700.0 * min(at, 15), power_w=NOT_SUPPORTED)
    assert track.power == (NOT_SUPPORTED, False)
    assert track.mean_power_w == NOT_SUPPORTED


def test_energy_that_is_read_every_ten_seconds_counts_as_a_whole(track: GpuTrack) -> None:
    for at in range(1, 32):
        take(track, at, energy_j=700.0 * (at // 10 * 10), power_w=690.0)
    assert track.energy_j == pytest.approx(30 * 700.0)


def test_a_counter_that_was_not_read_right_after_a_gap_gives_no_power_that_is_too_high(track: GpuTrack) -> None:
    """The counter is read every 10 s: the first reading after the gap still has its value from before."""
    for at in (*range(16), *range(22, 52)):
        take(track, at, energy_j=700.0 * (at // 12 * 12), power_w=NOT_SUPPORTED)
        power_w, _ = track.power
        assert power_w in (NOT_SUPPORTED, 700.0), at
    assert track.power == (700.0, True)
    assert track.energy_j == pytest.approx(48 * 700.0)


def test_energy_of_the_time_in_which_the_counter_could_not_be_read_counts(track: GpuTrack) -> None:
    for at in range(41):
        failed = 20 <= at < 30
        energy_j = Missing(Reason.ERROR) if failed else 700.0 * (at // 10 * 10)
        take(track, at, energy_j=energy_j, power_w=NOT_SUPPORTED)
        power_w, _ = track.power
        assert power_w in (NOT_SUPPORTED, 700.0), at
    assert track.energy_j == pytest.approx(40 * 700.0)


def test_energy_is_not_counted_over_a_reading_that_cannot_be_true(track: GpuTrack) -> None:
    for at in range(41):
        invalid = 20 <= at < 30
        energy_j = Missing(Reason.INVALID) if invalid else 700.0 * (at // 10 * 10) + (5e4 if at >= 30 else 0.0)
        take(track, at, energy_j=energy_j)
    assert track.energy_j == pytest.approx(20 * 700.0)


@pytest.mark.parametrize("jump_j", [1e12, -1e12, 1e5])
def test_a_counter_that_jumps_is_a_new_base_line_and_no_power(track: GpuTrack, jump_j: float) -> None:
    for at in range(1, 21):
        jumped_j = jump_j if at > 10 else 0.0
        energy_j = 2e12 + 700.0 * at + jumped_j
        take(track, at, energy_j=energy_j, power_w=NOT_SUPPORTED)
        expected = (NOT_SUPPORTED, False) if at in (1, 11) else (700.0, True)
        assert track.power == expected, at
    assert track.energy_j == pytest.approx(18 * 700.0)


def test_a_mean_weighs_each_reading_by_the_time_it_stands_for(track: GpuTrack) -> None:
    for at_s, active in ((1.0, 0.0), (1.25, 0.0), (1.5, 0.0), (1.75, 0.0), (2.0, 0.0), (10.0, 1.0)):
        track.add(gpu(0, at_s, dram_active_ratio=active), 99.0)
    assert track.recent_mean("dram_active_ratio") == pytest.approx(8 / 9)


def test_a_mean_is_of_the_window_and_of_what_was_known_in_it(track: GpuTrack) -> None:
    track.add(gpu(0, 0.0, dram_active_ratio=1.0), 99.0)
    assert track.recent_mean("dram_active_ratio") == 1.0
    for at_s, active in ((8.0, 1.0), (15.0, Missing(Reason.ERROR)), (16.0, 0.0)):
        track.add(gpu(0, at_s, dram_active_ratio=active), 99.0)
    # Of the 10 s up to now: 2 s of 1, 7 s not known, 1 s of 0.
    assert track.recent_mean("dram_active_ratio") == pytest.approx(2 / 3)
    track.add(gpu(0, 17.0, dram_active_ratio=Missing(Reason.ERROR)), 99.0)
    assert track.recent_mean("dram_active_ratio") == Missing(Reason.ERROR)


def test_busy_is_a_mean_of_the_last_hour_and_missing_time_is_left_out(track: GpuTrack) -> None:
    for at in range(600):
        track.add(gpu(0, float(at), busy_ratio=1.0 if at <= 300 else 0.0), LONGEST_S)
    assert track.busy_mean_ratio == pytest.approx(0.5, abs=0.002)
    track.add(gpu(0, 2400.0, busy_ratio=1.0), LONGEST_S)
    assert track.busy_mean_ratio == pytest.approx(0.5, abs=0.002)
    track.add(gpu(0, 9000.0, busy_ratio=0.0), LONGEST_S)
    assert track.busy_mean_ratio == WARMING_UP


@pytest.mark.parametrize("strange_s", [12.0, 0.0, 1.8e10, 5100.0])
def test_time_throttled_is_the_growth_of_the_drivers_counters(track: GpuTrack, strange_s: float) -> None:
    """One that is missing for a while goes on where it was; one that fell or outran the clock is a new base line."""
    for at_s, counted_s in ((0, 5000.0), (4, 5002.0), (5, None), (8, 5003.5), (12, strange_s), (16, strange_s + 1.0)):
        counted = {} if counted_s is None else {"sw_power_cap": counted_s, "reliability": 7.0}
        track.add(gpu(0, float(at_s), throttle_s=counted), 99.0)
    assert track.throttle_s == {"sw_power_cap": 4.5, "reliability": 0.0}


# States.


@pytest.mark.parametrize("state", [GpuState.OK, GpuState.RESET_REQUIRED, GpuState.ERROR, GpuState.NO_PERMISSION])
def test_rows_go_stale_after_three_intervals_and_lose_their_figures(deriver: Deriver, state: GpuState) -> None:
    fresh, stale = shown(deriver, 3.0, state, 0.0), shown(deriver, 4.0, state, 0.0)
    assert (fresh.reading.busy_ratio, stale.age_s) == (1.0, 4.0)
    assert stale.reading.state is (GpuState.STALE if state is GpuState.OK else state)
    assert stale.reading.busy_ratio == stale.power_w == Missing(Reason.STALE)


@pytest.mark.parametrize("state", [GpuState.LOST, GpuState.ERROR])
def test_the_age_of_a_silent_gpu_counts_from_its_last_answer_however_often_it_is_tried(
    deriver: Deriver, state: GpuState
) -> None:
    ages = [shown(deriver, float(at), GpuState.OK if at < 5 else state).age_s for at in range(15)]
    assert ages == [0.0 if at < 5 else at - 4.0 for at in range(15)]
    assert shown(deriver, 601.0).age_s == 0.0


def test_a_sick_gpu_is_a_fault_with_the_fix_and_its_date_stays(deriver: Deriver) -> None:
    for at in range(3):
        lost = replace(gpu(0, 0.0), state=GpuState.LOST, state_text="Xid 79")
        hot = gpu(1, float(at), throttle=("hw_thermal_slowdown", "sw_power_cap"), remap_failed=1.0, ecc_uncorrected=3.0)
        snapshot = deriver.derive(frame(at, (lost, hot, gpu(2, float(at))))).snapshot
    assert {(fault.source, fault.code) for fault in snapshot.faults} == {
        ("gpu 0", "lost"),
        ("gpu 1", "remap_failed"),
        ("gpu 1", "ecc"),
        ("gpu 1", "hw_thermal_slowdown"),
    }
    assert len({fault.since for fault in snapshot.faults}) == 1
    assert "Xid 79" in snapshot.faults[0].text
    assert [each.reading.busy_ratio for each in snapshot.gpus] == [Missing(Reason.LOST), 1.0, 1.0]


# Bandwidth and peaks.


@pytest.mark.parametrize(
    ("facts", "source", "expected"),
    [
        ({"dram_active_ratio": 0.69}, BandwidthSource.GPM, 0.69),
        ({"memory_busy_ratio": 0.9}, BandwidthSource.UPPER_BOUND, 0.9),
        ({}, BandwidthSource.NONE, None),
    ],
)
def test_bandwidth_takes_the_best_source(
    deriver: Deriver, facts: dict[str, float], source: BandwidthSource, expected: float | None
) -> None:
    one = deriver.derive(frame(0, (gpu(**facts),))).snapshot.gpus[0]
    assert one.bandwidth_source is source
    if expected is None:
        assert one.bandwidth_bytes_per_s == NOT_SUPPORTED
    else:
        assert one.bandwidth_bytes_per_s == pytest.approx(expected * H100_BANDWIDTH)


def test_the_engines_bytes_are_a_lower_bound_that_gives_way_where_they_are_none() -> None:
    card = {"memory_busy_ratio": 0.33}
    busy, idle = served(BATCH, card=card), served({q.DECODE_TOKENS: 0.0, q.STEPS: 0.0}, card=card).gpus[0]
    assert busy.gpus[0].bandwidth_source is BandwidthSource.ENGINE
    assert busy.gpus[0].bandwidth_bytes_per_s == pytest.approx(there(busy.engines[0].efficiency.bytes_per_s))
    assert idle.bandwidth_source is BandwidthSource.UPPER_BOUND
    assert idle.bandwidth_bytes_per_s == pytest.approx(0.33 * H100_BANDWIDTH)


@pytest.mark.parametrize(
    ("facts", "source"),
    [
        ({"tp": 2}, BandwidthSource.ENGINE),
        ({"tp": 1, "pp": 2}, BandwidthSource.ENGINE_MEAN),
        ({"tp": 1, "dp": 2}, BandwidthSource.ENGINE_MEAN),
        ({"tp": 2, "dp": 2}, BandwidthSource.ENGINE_MEAN),
        ({}, BandwidthSource.ENGINE_MEAN),
        ({"tp": 2, "options": EngineOptions(expert_parallel=1.0)}, BandwidthSource.ENGINE_MEAN),
    ],
)
def test_of_gpus_that_need_not_read_alike_the_modelled_bytes_are_a_mean_and_no_bound(
    facts: dict[str, Any], source: BandwidthSource
) -> None:
    first, second = served(BATCH, cards=2, **facts).gpus
    assert (first.bandwidth_source, second.bandwidth_source) == (source, source)
    assert there(first.bandwidth_bytes_per_s) > 0.0


def test_of_ranks_that_share_the_gpus_the_modelled_bytes_are_a_mean_and_no_bound() -> None:
    deriver = Deriver(gpu_catalogue())
    for at in range(0, 20, 2):
        counters = {name: at * rate for name, rate in BATCH.items()}
        gauges = {q.RUNNING: 1.0, q.KV_USAGE: 0.01, q.POOL_TOKENS: 100_000.0}
        ranks = (rank(counters, gauges), rank(counters, gauges, name="1"))
        told = engine(float(at), counters, gpus=("GPU-0", "GPU-1"), tp=2, kind=EngineKind.SGLANG)
        polled = replace(told, ranks=ranks)
        snapshot = deriver.derive(frame(at, (gpu(0, float(at)), gpu(1, float(at))), (polled,))).snapshot
    assert {card.bandwidth_source for card in snapshot.gpus} == {BandwidthSource.ENGINE_MEAN}


def test_of_gpus_with_other_peaks_the_modelled_bytes_are_a_mean_and_no_bound() -> None:
    deriver = Deriver(gpu_catalogue())
    for at in range(0, 20, 2):
        polled = engine(float(at), {name: at * rate for name, rate in BATCH.items()}, gpus=("GPU-0", "GPU-1"), tp=2)
        cards = (gpu(0, float(at)), gpu(1, float(at), memory_clock_max_hz=1593e6))
        snapshot = deriver.derive(frame(at, cards, (polled,))).snapshot
    assert {card.bandwidth_source for card in snapshot.gpus} == {BandwidthSource.ENGINE_MEAN}


def test_shown_bandwidth_is_a_mean_as_long_as_the_window_of_mbu(deriver: Deriver) -> None:
    for at in range(20):
        card = gpu(at_s=float(at), dram_active_ratio=0.8 if at % 2 else 0.4)
        counters = {q.DECODE_TOKENS: 400.0 * at, q.STEPS: 100.0 * at}
        derived = deriver.derive(frame(at, (card,), (engine(float(at), counters, llm=SMALL),)))
    (shown,) = derived.snapshot.gpus
    assert not isinstance(shown.mbu_ratio, Missing)
    assert shown.bandwidth_bytes_per_s == pytest.approx(0.6 * H100_BANDWIDTH, rel=0.05)
    assert shown.sources["bandwidth_bytes_per_s"].endswith("mean of 10 s")
    assert derived.points["bandwidth"] == pytest.approx(0.8 * H100_BANDWIDTH)


@pytest.mark.parametrize("field", ["dram_active_ratio", "memory_busy_ratio"])
def test_bandwidth_without_an_mbu_beside_it_is_that_of_now_as_busy_is(deriver: Deriver, field: str) -> None:
    """An engine is killed at second 16: its GPU does nothing, and shows no traffic of what was."""
    for at in range(20):
        runs = at < 16
        card = gpu(at_s=float(at), busy_ratio=1.0 if runs else 0.0, **{field: 0.8 if runs else 0.0})
        counters = {q.DECODE_TOKENS: 400.0 * at, q.STEPS: 100.0 * at}
        engines = (engine(float(at), counters, llm=SMALL),) if runs else ()
        (shown,) = deriver.derive(frame(at, (card,), engines)).snapshot.gpus
    assert (shown.reading.busy_ratio, shown.bandwidth_bytes_per_s) == (0.0, 0.0)
    assert NEWEST in shown.sources["bandwidth_bytes_per_s"]


def test_a_peak_on_one_source_is_marked_wherever_it_is_used(deriver: Deriver) -> None:
    old = replace(gpu(0), name="Tesla P100-PCIE-16GB", vram_total_bytes=16 * 2.0**30)
    bare = replace(old, uuid="GPU-1", index=1, memory_clock_max_hz=NOT_SUPPORTED)
    cards = deriver.derive(frame(0, (gpu(2), old, bare))).snapshot.gpus
    marks = [(one.peak_unverified, one.bandwidth_peak_unverified) for one in cards]
    assert marks == [(False, False), (True, False), (True, True)]


def test_the_flops_peak_is_that_of_the_engines_arithmetic(deriver: Deriver) -> None:
    card = served(BATCH, cards=2, llm=FP8).gpus[0]
    assert (card.flops_peak_per_s, card.flops_peak_precision) == (1978.9e12, "fp8")
    assert "fp8" in card.sources["flops_peak_per_s"]
    other = engine(14.0, {q.DECODE_TOKENS: 0.0}, llm=SMALL)
    both = (engine(14.0, {}, llm=FP8), replace(other, url="http://127.0.0.1:9000"))
    mixed = deriver.derive(frame(14, (gpu(0, 14.0), gpu(1, 14.0)), both)).snapshot.gpus
    assert (why(mixed[0].flops_peak_per_s), mixed[0].flops_peak_precision) == (Reason.NOT_MODELLED, "bf16+fp8")
    assert why(mixed[1].flops_peak_per_s) is Reason.NO_ENGINE


def test_the_share_of_the_peak_that_can_be_had_stands_beside_it_and_changes_no_figure() -> None:
    seen = served(BATCH, cards=2, llm=FP8)
    assert seen.gpus[0].achievable_ratio == pytest.approx(1402.6 / 1978.9)
    assert "stas00/ml-engineering" in seen.gpus[0].sources["achievable_ratio"]
    done = seen.engines[0].efficiency
    assert done.mfu_ratio == pytest.approx(there(done.flops_per_s) / (2 * 1978.9e12)), "against the whole peak"
    half = served(BATCH, llm=replace(SMALL, precision=Precision.FP16)).gpus[0]
    assert (half.flops_peak_per_s, why(half.achievable_ratio)) == (989.4e12, Reason.UNKNOWN_GPU)


def test_an_export_variant_has_no_mfu_until_the_config_tells_its_peaks() -> None:
    name = "NVIDIA H20 NVL16"
    silent = served(BATCH, card={"name": name}, llm=FP8).engines[0].efficiency
    assert why(silent.mfu_ratio) is Reason.UNKNOWN_GPU
    assert there(silent.mbu_ratio) > 0.0, "the driver tells the bandwidth"
    told = served(BATCH, Deriver(gpu_catalogue((schema.Gpu(name, fp8_tflops=296.0),))), card={"name": name}, llm=FP8)
    done = told.engines[0].efficiency
    assert done.mfu_ratio == pytest.approx(there(done.flops_per_s) / 296e12)
    assert told.gpus[0].peak_source.startswith("config (unverified)")
    assert told.gpus[0].gpu_type == "H20 NVL16"


def test_sources_follow_what_the_gpu_can_do(deriver: Deriver) -> None:
    plain = deriver.derive(frame(0, (gpu(vram_used_bytes=1e9),))).snapshot.gpus[0].sources
    assert plain["power_w"] == "nvmlDeviceGetPowerUsage"
    assert plain["nvlink_tx_bytes_per_s"] == "NVML field 138, each 4 s"
    assert plain["vram_used_bytes"].startswith("nvmlDeviceGetMemoryInfo: ")
    for at in (1.0, 2.0):
        facts = {"energy_j": 1e6 + 500 * at, "power_w": NOT_SUPPORTED}
        card = gpu(0, at, sm_active_ratio=0.5, dram_active_ratio=0.4, **facts)
        rich = deriver.derive(frame(at, (card,))).snapshot.gpus[0].sources
    assert rich["bandwidth_bytes_per_s"].startswith("measured: GPM")
    assert "EnergyConsumption" in rich["power_w"]
    assert "GPM metric 61" in rich["nvlink_tx_bytes_per_s"]


WINDOW_FIELDS = ("busy_window_ratio", "sm_active_window_ratio", "tensor_active_window_ratio", "power_window_w")


def test_all_figures_of_a_row_are_of_one_window_also_in_the_second_in_which_the_work_ends(deriver: Deriver) -> None:
    """An engine's GPU that was busy for 20 s rests in the newest reading: its row is no contradiction."""
    for at in range(0, 21, 2):
        works = at < 20
        card = gpu(
            0, float(at), busy_ratio=float(works), sm_active_ratio=0.8 * works, dram_active_ratio=0.4 * works,
            power_w=600.0 if works else 100.0,
        )  # fmt: skip
        counters = {q.PREFILL_COMPUTED: 0.0, q.PREFILL_CACHED: 0.0, q.DECODE_TOKENS: 50.0 * at, q.STEPS: 50.0 * at}
        (newest,) = deriver.derive(frame(float(at), (card,), (engine(float(at), counters),))).snapshot.gpus
    row = over_window(newest)
    assert newest.reading.busy_ratio == newest.reading.sm_active_ratio == 0.0
    assert there(row.bandwidth_bytes_per_s) == pytest.approx(0.8 * 0.4 * H100_BANDWIDTH)
    assert row.reading.busy_ratio == pytest.approx(0.8)
    assert row.reading.sm_active_ratio == pytest.approx(0.8 * 0.8)
    assert row.power_w == pytest.approx(500.0)
    old = replace(newest, **dict.fromkeys(WINDOW_FIELDS, NOT_SUPPORTED))
    assert over_window(old) == old, "a gpumon of before tells no such means"
