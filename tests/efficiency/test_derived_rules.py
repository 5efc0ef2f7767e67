"""Rules of the derived figures that are easy to break unseen: windows, ranks, precision, staleness, absurd input."""

from __future__ import annotations

import math

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineReading, GpuProcess, GpuState, HistogramReading, RankReading
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.sources.packaged import gpu_catalogue
from gpumon.specs.llm import LlmSpec
from tests.efficiency.small_llm import SMALL
from tests.efficiency.test_deriver import H100_BANDWIDTH, LLAMA_8B, engine, frame, gpu
from tests.records import replace

INF = float("inf")


@pytest.fixture
def deriver() -> Deriver:
    return Deriver(gpu_catalogue())


def share(reading: Reading) -> float:
    assert not isinstance(reading, Missing), reading
    return reading


def ttft(observations: dict[float, float], mean_s: float) -> HistogramReading:
    """Cumulative counts of observations by the upper bound of their bucket."""
    bounds = (0.5, 1.0, 20.0, 40.0, INF)
    total, counts = 0.0, []
    for bound in bounds:
        total += observations.get(bound, 0.0)
        counts.append(total)
    return HistogramReading(bounds, tuple(counts), total * mean_s, total)


def test_one_long_prefill_among_short_ones_never_reads_as_more_than_the_gpu_can(deriver: Deriver):
    # 5 prompts of 100 tokens a second, and one of 100,000 that takes 36 s at about half of the peak.
    highest = 0.0
    for at in range(0, 240, 2):
        long_ones = (at + 20) // 60
        observed = ttft({0.5: at * 5.0, 40.0: long_ones}, 0.3)
        lengths = HistogramReading(
            (200.0, 2e5, INF), (at * 5.0, at * 5.0 + long_ones, at * 5.0 + long_ones), at * 500.0 + long_ones * 1e5, 1
        )
        lengths = replace(lengths, count=lengths.counts[-1])
        counters = {q.PREFILL_COMPUTED: at * 500.0 + long_ones * 1e5, q.DECODE_TOKENS: 0.0, q.STEPS: 0.0}
        one = engine(float(at), counters, histograms={q.TTFT: observed, q.PROMPT_LENGTH: lengths})
        shown = deriver.derive(frame(at, (gpu(at_s=float(at)),), (one,))).snapshot.engines[0]
        if not isinstance(shown.efficiency.mfu_ratio, Missing):
            highest = max(highest, shown.efficiency.mfu_ratio)
    assert 0.1 < highest < 1.0


def test_prefill_waits_until_its_window_holds_a_whole_prefill(deriver: Deriver):
    shown: list[Engine] = []
    for at in range(0, 24, 2):
        observed = ttft({20.0: 1.0 if at >= 4 else 0.0}, 15.0)
        counters = {q.PREFILL_COMPUTED: 50_000.0 if at >= 4 else 0.0, q.DECODE_TOKENS: 0.0, q.STEPS: 0.0}
        one = engine(float(at), counters, histograms={q.TTFT: observed})
        shown.append(deriver.derive(frame(at, (gpu(at_s=float(at)),), (one,))).snapshot.engines[0])
    assert shown[3].rates.prefill_tokens_per_s == Missing(Reason.WARMING_UP)
    assert share(shown[-1].rates.prefill_tokens_per_s) == pytest.approx(50_000 / 20, rel=0.15)


@pytest.mark.parametrize("tokens", [1e300, 1e200])
def test_absurd_counters_cost_their_own_row_and_are_named(deriver: Deriver, tokens: float):
    for at in range(0, 8, 2):
        counters = {q.DECODE_TOKENS: at * tokens, q.STEPS: at * 100.0, q.PREFILL_COMPUTED: 0.0}
        absurd = engine(float(at), counters)
        sane = engine(float(at), {q.DECODE_TOKENS: at * 10.0, q.STEPS: at * 10.0}, gpus=("GPU-1",))
        sane = replace(sane, name="sane", url="http://sane")
        cards = (gpu(0, float(at)), gpu(1, float(at)))
        snapshot = deriver.derive(frame(at, cards, (absurd, sane))).snapshot
    assert share(snapshot.engines[1].rates.decode_tokens_per_s) == pytest.approx(10)
    assert snapshot.gpus[0].busy_ratio == 1.0
    for reading in (
        snapshot.engines[0].efficiency.mfu_ratio,
        snapshot.engines[0].efficiency.bytes_per_s,
        snapshot.gpus[0].mfu_ratio,
    ):
        assert isinstance(reading, Missing) or math.isfinite(reading)
    said = any("make no sense" in fault.text for fault in snapshot.faults)
    assert said == (snapshot.engines[0].efficiency.mfu_ratio == Missing(Reason.INVALID))


def test_more_tokens_than_the_gpu_can_compute_are_not_valid_whatever_is_not_known(deriver: Deriver):
    for at in range(0, 12, 2):
        ranks = (RankReading("0", {q.DECODE_TOKENS: at * 1e6, q.STEPS: at * 50.0}, {q.RUNNING: 4.0}, {}),)
        one = replace(engine(float(at), {}), ranks=ranks)
        shown = deriver.derive(frame(at, (gpu(at_s=float(at)),), (one,))).snapshot.engines[0]
    assert shown.rates.decode_tokens_per_s == pytest.approx(1e6)
    assert shown.load.context_tokens == Missing(Reason.NO_CONTEXT)
    assert isinstance(shown.efficiency.mfu_ratio, Missing)
    assert shown.efficiency.mfu_ratio.reason is Reason.INVALID


def mig(snapshot: Snapshot) -> set[Reading]:
    return {snapshot.engines[0].efficiency.mfu_ratio, snapshot.engines[0].efficiency.mbu_ratio}


def test_an_engine_under_mig_has_no_mfu_on_parent_or_slice(deriver: Deriver):
    parent = gpu(0, 18.0, mig=True)
    piece = replace(gpu(0, 18.0), uuid="MIG-1", parent_uuid="GPU-0", mig_profile="1g.10gb")
    for uuid in ("GPU-0", "MIG-1"):
        fresh = Deriver(gpu_catalogue())
        for at in (16.0, 18.0):
            one = engine(at, {q.DECODE_TOKENS: at * 10, q.STEPS: at * 10, q.PREFILL_COMPUTED: 0.0}, gpus=(uuid,))
            snapshot = fresh.derive(frame(at, (parent, piece), (one,))).snapshot
        assert mig(snapshot) == {Missing(Reason.UNDER_MIG)}


def test_an_engine_slower_than_its_interval_is_not_stale_for_that(deriver: Deriver):
    counters = {q.DECODE_TOKENS: 0.0, q.STEPS: 0.0}
    for at in (0.0, 0.9, 1.8):
        slow = engine(at, dict.fromkeys(counters, at * 100), interval_s=0.25, latency_s=0.6)
        deriver.derive(frame(at, (gpu(at_s=at),), (slow,)))
    later = deriver.derive(frame(2.6, (gpu(at_s=2.6),), (slow,))).snapshot.engines[0]
    assert share(later.rates.decode_tokens_per_s) == pytest.approx(100)


def test_the_answer_of_a_hidden_balancer_is_named(deriver: Deriver):
    for at in range(8):
        started = 1e9 - 100.0 * (1 + at % 2)
        one: EngineReading = engine(float(at), {q.DECODE_TOKENS: 5.0 + at % 2}, started_wall_s=started)
        snapshot = deriver.derive(frame(at, (gpu(at_s=float(at)),), (one,))).snapshot
    assert any("load balancer" in fault.text for fault in snapshot.faults)


@pytest.mark.parametrize(
    ("spec", "ended", "expected"),
    [
        # 2 % of a pool of 100,000 tokens, by two sequences: of a model of full attention alone that is their context.
        (LLAMA_8B, True, 1000.0),
        # Windows take some of it whatever the length: the lengths of requests that ended or are under way come first.
        (SMALL, True, 100.0 + 40.0 / 2),
        (SMALL, False, 100.0 + 60.0 / 2),
    ],
    ids=["full attention", "windows", "windows, none has ended"],
)
def test_a_share_of_a_pool_is_no_context_where_windows_and_states_take_some_of_it(
    deriver: Deriver, spec: LlmSpec, ended: bool, expected: float
):
    for at in range(0, 20, 2):
        begun = at * 1.0
        lengths = {
            name: HistogramReading((2000.0, INF), (begun, begun), begun * tokens, begun)
            for name, tokens in ((q.PROMPT_LENGTH, 100), (q.OUTPUT_LENGTH, 40))
        }
        firsts = {q.TTFT: HistogramReading((1.0, INF), (begun, begun), begun * 0.1, begun)}
        counters = {q.DECODE_TOKENS: begun * 60.0, q.PROMPT_TOKENS: begun * 100.0}
        gauges = {q.RUNNING: 2.0, q.KV_USAGE: 0.02, q.POOL_TOKENS: 1e5}
        rank = RankReading("0", counters, gauges, {**firsts, **(lengths if ended else {})})
        one = replace(engine(float(at), {}, llm=spec), ranks=(rank,))
        shown = deriver.derive(frame(at, (gpu(at_s=float(at)),), (one,))).snapshot.engines[0]
    assert share(shown.load.context_tokens) == pytest.approx(expected)


def test_a_sick_gpu_is_a_fault_with_the_fix_and_its_date_stays(deriver: Deriver):
    for at in range(3):
        lost = replace(gpu(0, 0.0), state=GpuState.LOST, state_text="Xid 79")
        hot = gpu(1, float(at), throttle=("hw_thermal_slowdown", "sw_power_cap"), remap_failed=1.0, ecc_uncorrected=3.0)
        snapshot = deriver.derive(frame(at, (lost, hot, gpu(2, float(at))))).snapshot
    faults = {(fault.source, fault.text.split(":")[0]) for fault in snapshot.faults}
    assert faults == {
        ("gpu 0", "has fallen off the bus"),
        ("gpu 1", "a memory row could not be remapped"),
        ("gpu 1", "3 uncorrected memory errors (ECC)"),
        ("gpu 1", "is slowed down by heat (hardware)"),
    }
    assert len({fault.since for fault in snapshot.faults}) == 1
    assert "Xid 79" in snapshot.faults[0].text


def test_an_engine_on_unknown_gpus_is_named_and_no_gpu_is_called_free(deriver: Deriver):
    one = engine(0.0, {q.DECODE_TOKENS: 0.0}, gpus=(), gpus_source="nobody listens here")
    snapshot = deriver.derive(frame(0, (gpu(),), (one,))).snapshot
    assert snapshot.gpus[0].mfu_ratio == Missing(Reason.UNMAPPED)
    assert "nobody listens here" in snapshot.faults[0].text


def test_a_gpu_on_which_nothing_runs_has_no_engine_wherever_one_runs(deriver: Deriver):
    one = engine(0.0, {q.DECODE_TOKENS: 0.0}, gpus=(), gpus_source="nobody listens here")
    empty = {"vram_used_bytes": 0.6e9, "vram_total_bytes": 80e9}
    gpus = (
        gpu(0, **empty),
        gpu(1, **empty, processes=(GpuProcess(1, "python"),)),
        gpu(2, vram_used_bytes=9e9, vram_total_bytes=80e9),
        gpu(3, **empty, vram_shared=True),
    )
    shown = deriver.derive(frame(0, gpus, (one,))).snapshot.gpus
    reasons = [Reason.NO_ENGINE, *[Reason.UNMAPPED] * 3]
    assert [each.mfu_ratio for each in shown] == [Missing(reason) for reason in reasons]


def test_a_lower_bound_of_nothing_gives_way_to_the_upper_bound(deriver: Deriver):
    for at in range(0, 20, 2):
        idle = engine(float(at), {q.DECODE_TOKENS: 0.0, q.STEPS: 0.0, q.PREFILL_COMPUTED: 0.0})
        shown = deriver.derive(frame(at, (gpu(at_s=float(at), memory_busy_ratio=0.33),), (idle,))).snapshot.gpus[0]
    assert shown.bandwidth_source.value == "upper_bound"
    assert share(shown.bandwidth_bytes_per_s) == pytest.approx(0.33 * H100_BANDWIDTH)


def test_shown_bandwidth_is_a_mean_as_long_as_the_window_of_mbu(deriver: Deriver):
    for at in range(20):
        derived = deriver.derive(frame(at, (gpu(at_s=float(at), dram_active_ratio=0.8 if at % 2 else 0.4),)))
    assert share(derived.snapshot.gpus[0].bandwidth_bytes_per_s) == pytest.approx(0.6 * H100_BANDWIDTH, rel=0.05)
    assert derived.points["bandwidth"] == pytest.approx(0.8 * H100_BANDWIDTH)


def test_a_peak_on_one_source_is_marked_wherever_it_is_used(deriver: Deriver):
    old = replace(gpu(0), name="Tesla P100-PCIE-16GB", vram_total_bytes=16 * 2.0**30)
    bare = replace(old, uuid="GPU-1", index=1, memory_clock_max_hz=Missing(Reason.NOT_SUPPORTED))
    shown = deriver.derive(frame(0, (gpu(2), old, bare))).snapshot.gpus
    assert [(one.peak_unverified, one.bandwidth_peak_unverified) for one in shown] == [
        (False, False),
        (True, False),
        (True, True),
    ]
