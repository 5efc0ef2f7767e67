"""Rules of the derived figures that are easy to break unseen: windows, ranks, precision, staleness, absurd input."""

from __future__ import annotations

import math

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineReading, GpuProcess, GpuState, HistogramReading, RankReading
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.specs.llm import LlmSpec
from tests.efficiency.small_llm import SMALL
from tests.efficiency.test_deriver import H100_BANDWIDTH, LLAMA_8B, engine, frame, gpu, single_stream
from tests.records import replace

INF = float("inf")


@pytest.fixture
def deriver() -> Deriver:
    return Deriver(gpu_catalogue())


def llm(name: str) -> LlmSpec:
    found = llm_catalogue().find(name)
    assert found is not None
    return found


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


def test_speculation_reads_the_weights_once_for_several_tokens(deriver: Deriver):
    for at in range(0, 20, 2):
        counters = {
            q.DECODE_TOKENS: at * 300.0,
            q.STEPS: at * 100.0,
            q.DRAFTS: at * 100.0,
            q.ACCEPTED_TOKENS: at * 200.0,
            q.PREFILL_COMPUTED: 0.0,
        }
        shown = deriver.derive(frame(at, (gpu(at_s=float(at)),), (engine(float(at), counters),))).snapshot.engines[0]
    # One sequence: 100 steps a second read the weights and its KV once each, whatever they yield.
    assert share(shown.efficiency.bytes_per_s) == pytest.approx(100 * (7.504924672e9 * 2 + 1000 * 131072), rel=0.002)


def test_fp8_kv_halves_the_kv_part(deriver: Deriver):
    wide = share(single_stream(deriver).engines[0].efficiency.bytes_per_s)
    narrow = share(
        single_stream(Deriver(gpu_catalogue()), info={"cache_dtype": "fp8_e4m3"}).engines[0].efficiency.bytes_per_s
    )
    assert wide - narrow == pytest.approx(100 * 1000 * 131072 / 2, rel=0.01)


def test_estimated_steps_count_only_the_time_with_requests(deriver: Deriver):
    for at in range(0, 24, 2):
        running = 1.0 if at % 4 else 0.0
        itl = HistogramReading((0.025, INF), (at * 50.0, at * 50.0), at * 0.5, at * 50.0)
        rank = RankReading(
            "0", {q.DECODE_TOKENS: at * 50.0, q.PREFILL_COMPUTED: 0.0}, {q.RUNNING: running}, {q.ITL: itl}
        )
        one = replace(engine(float(at), {}, exact_steps=False), ranks=(rank,))
        shown = deriver.derive(frame(at, (gpu(at_s=float(at)),), (one,))).snapshot.engines[0]
    assert share(shown.rates.steps_per_s) == pytest.approx(0.5 / 0.01, rel=0.1)


def ranks(at: float, count: int, steps: float, tokens: float, kv_usage: float) -> tuple[RankReading, ...]:
    gauges = {q.RUNNING: 64.0, q.KV_USAGE: kv_usage, q.POOL_TOKENS: 640_000.0}
    counters = {q.DECODE_TOKENS: at * tokens, q.STEPS: at * steps, q.PREFILL_COMPUTED: 0.0}
    return tuple(RankReading(str(rank), counters, gauges, {}) for rank in range(count))


def dp(deriver: Deriver, spec: LlmSpec, count: int, *, gpus: int = 8, tokens: float = 1280.0) -> Engine:
    for at in range(0, 20, 2):
        uuids = tuple(f"GPU-{index}" for index in range(gpus))
        one = engine(float(at), {}, gpus=uuids, llm=spec)
        one = replace(one, ranks=ranks(float(at), count, 20.0, tokens, 0.1))
        cards = tuple(gpu(index, float(at)) for index in range(gpus))
        shown = deriver.derive(frame(at, cards, (one,))).snapshot.engines[0]
    return shown


def test_data_parallel_ranks_share_the_experts_of_a_moe(deriver: Deriver):
    spec = llm("deepseek-ai/DeepSeek-V3")
    alone = dp(deriver, spec, 1, tokens=8 * 1280.0)
    split = dp(Deriver(gpu_catalogue()), spec, 8)
    assert share(split.rates.decode_tokens_per_s) == pytest.approx(share(alone.rates.decode_tokens_per_s))
    # The experts are read once for all ranks; attention and shared weights are read by each.
    others = spec.read_bytes - spec.experts * spec.expert_read_bytes
    assert share(split.efficiency.bytes_per_s) < 20.0 * (spec.read_bytes + 7 * others) * 1.3


def test_data_parallel_ranks_of_a_dense_model_read_all_weights_each(deriver: Deriver):
    assert LLAMA_8B is not None
    shown = dp(deriver, LLAMA_8B, 8)
    assert shown.hardware.tp == 1
    kv = 8 * 1280 * 1000 * 131072
    assert share(shown.efficiency.bytes_per_s) == pytest.approx(8 * 20 * 7.504924672e9 * 2 + kv, rel=0.01)
    assert share(shown.load.kv_usage_ratio) == pytest.approx(0.1)


def test_what_a_vision_encoder_leaves_out_is_said_and_the_text_is_measured(deriver: Deriver):
    assert LLAMA_8B is not None
    spec = replace(LLAMA_8B, not_modelled=("vision encoder",))
    shown = single_stream(deriver, llm=spec).engines[0]
    assert share(shown.efficiency.mfu_ratio) > 0
    assert share(shown.efficiency.mbu_ratio) > 0
    assert "not modelled: vision encoder" in shown.sources["model"]


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


def test_a_falling_histogram_sum_is_a_reset_and_no_negative_context(deriver: Deriver):
    def observed(count: float, total: float) -> HistogramReading:
        return HistogramReading((1000.0, INF), (count, count), total, count)

    for at, total in ((0, 9000.0), (2, 9500.0), (4, 10.0), (6, 20.0)):
        lengths = {q.PROMPT_LENGTH: observed(at + 10.0, total), q.OUTPUT_LENGTH: observed(at + 10.0, total)}
        one = engine(float(at), {q.DECODE_TOKENS: at * 10.0, q.STEPS: at * 10.0}, histograms=lengths)
        shown = deriver.derive(frame(at, (gpu(at_s=float(at)),), (one,))).snapshot.engines[0]
        assert isinstance(shown.load.context_tokens, Missing) or shown.load.context_tokens >= 0


@pytest.mark.parametrize("state", [GpuState.RESET_REQUIRED, GpuState.ERROR, GpuState.NO_PERMISSION])
def test_every_state_that_is_read_goes_stale(deriver: Deriver, state: GpuState):
    old = replace(gpu(at_s=0.0), state=state)
    shown = deriver.derive(frame(10, (old,))).snapshot.gpus[0]
    assert shown.state is state
    assert shown.busy_ratio == shown.power_w == Missing(Reason.STALE)


def test_power_of_a_gpu_that_no_longer_tells_its_energy_is_not_the_old_one(deriver: Deriver):
    for at in range(4):
        deriver.derive(frame(at, (gpu(at_s=float(at), energy_j=600.0 * at),)))
    silent = gpu(at_s=4.0, energy_j=Missing(Reason.ERROR), power_w=Missing(Reason.ERROR))
    shown = deriver.derive(frame(4, (silent,))).snapshot.gpus[0]
    assert shown.power_w == shown.energy_j == Missing(Reason.ERROR)


def test_an_early_second_reading_does_not_change_power(deriver: Deriver):
    for at, energy_j in ((0.0, 0.0), (1.0, 600.0), (1.02, 600.0), (2.0, 1200.0)):
        shown = deriver.derive(frame(at, (gpu(at_s=at, energy_j=energy_j),))).snapshot.gpus[0]
    assert share(shown.power_w) == pytest.approx(600.0)


def test_an_energy_counter_that_fell_is_no_negative_power(deriver: Deriver):
    for at, energy_j in ((0, 5000.0), (1, 5600.0), (2, 50.0), (3, 650.0)):
        shown = deriver.derive(frame(at, (gpu(at_s=float(at), energy_j=energy_j),))).snapshot.gpus[0]
        assert isinstance(shown.power_w, Missing) or shown.power_w >= 0
    assert share(shown.energy_j) == pytest.approx(1200.0)


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


def test_tokens_per_joule_of_a_gpu_counts_its_share_of_the_tokens(deriver: Deriver):
    for at in range(0, 20, 2):
        counters = {q.DECODE_TOKENS: at * 100.0, q.STEPS: at * 100.0, q.PREFILL_COMPUTED: 0.0}
        pair = tuple(gpu(index, float(at)) for index in range(2))
        both = engine(float(at), counters, gpus=("GPU-0", "GPU-1"))
        snapshot = deriver.derive(frame(at, pair, (both,))).snapshot
    assert share(snapshot.gpus[0].tokens_per_j) == pytest.approx(50 / 500)
    assert share(snapshot.engines[0].efficiency.tokens_per_j) == pytest.approx(100 / 1000)


def test_context_of_recent_lengths_is_the_prompt_and_half_the_answer(deriver: Deriver):
    for at in range(0, 20, 2):
        count = at * 5.0
        prompt = HistogramReading((2000.0, INF), (count, count), count * 1000, count)
        answer = HistogramReading((2000.0, INF), (count, count), count * 400, count)
        rank = RankReading(
            "0", {q.DECODE_TOKENS: at * 9.0}, {q.RUNNING: 2.0}, {q.PROMPT_LENGTH: prompt, q.OUTPUT_LENGTH: answer}
        )
        one = replace(engine(float(at), {}), ranks=(rank,))
        shown = deriver.derive(frame(at, (gpu(at_s=float(at)),), (one,))).snapshot.engines[0]
    assert share(shown.load.context_tokens) == pytest.approx(1200)


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


def test_the_peak_of_the_bandwidth_is_the_one_of_mbu(deriver: Deriver):
    snapshot = single_stream(deriver)
    assert snapshot.gpus[0].bandwidth_peak_bytes_per_s == H100_BANDWIDTH
    assert share(snapshot.engines[0].efficiency.mbu_ratio) == pytest.approx(
        share(snapshot.engines[0].efficiency.bytes_per_s) / H100_BANDWIDTH
    )


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
