"""Frames to snapshots: hand-worked MFU and MBU, attribution, staleness, the bandwidth ladder, gaps."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpumon
from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import (
    Advance,
    EndpointState,
    EngineKind,
    EngineReading,
    Fault,
    Frame,
    GpuProcess,
    GpuReading,
    GpuState,
    HistogramReading,
    HostReading,
    RankReading,
)
from gpumon.readings.missing import REMOTE_POWER, Missing, Reason
from gpumon.readings.quantities import (
    DECODE_TOKENS,
    KV_USAGE,
    POOL_TOKENS,
    PREFILL_CACHED,
    PREFILL_COMPUTED,
    PROMPT_LENGTH,
    PROMPT_TOKENS,
    RUNNING,
    STEPS,
    TTFT,
)
from gpumon.readings.snapshot import BandwidthSource, Snapshot
from gpumon.specs.gpus import GpuCatalogue, parse_gpus
from gpumon.specs.llms import parse_llms
from tests.records import replace

DATA = Path(gpumon.__file__).parent / "specs" / "data"
LLAMA_8B = parse_llms((DATA / "llms.jsonl").read_text()).find("meta-llama/Llama-3.1-8B-Instruct")
H100 = "NVIDIA H100 80GB HBM3"
H100_FLOPS = 989e12
H100_BANDWIDTH = 2619e6 * 2 * 5120 / 8
"""Maximum memory clock 2619 MHz, double data rate, 5120-bit bus."""
INF = float("inf")
AT_FIRST_TOKEN = dict.fromkeys((PROMPT_TOKENS, PREFILL_COMPUTED, PREFILL_CACHED), Advance.PROMPT)
"""As the vLLM adapter says it."""


@pytest.fixture(scope="module")
def catalogue() -> GpuCatalogue:
    return parse_gpus((DATA / "gpus.csv").read_text())


def gpu(index: int = 0, at_s: float = 0.0, **facts: object) -> GpuReading:
    base: dict[str, object] = {
        "busy_ratio": 1.0,
        "vram_total_bytes": 81559 * 2.0**20,
        "memory_clock_max_hz": 2619e6,
        "memory_bus_bits": 5120.0,
        "power_w": 500.0,
    }
    return GpuReading(index, f"GPU-{index}", H100, GpuState.OK, at_s, **{**base, **facts})


def engine(
    at_s: float, counters: dict[str, float], *, gpus: tuple[str, ...] = ("GPU-0",), **facts: object
) -> EngineReading:
    gauges = {RUNNING: 1.0, KV_USAGE: 0.01, POOL_TOKENS: 100_000.0}
    ranks = (RankReading("0", counters, gauges, facts.pop("histograms", {})),)
    base: dict[str, object] = {"interval_s": 2.0, "llm": LLAMA_8B, "exact_steps": True, "kind": EngineKind.VLLM}
    base["advance"] = AT_FIRST_TOKEN
    return EngineReading(
        "vllm:8000", "http://127.0.0.1:8000", EndpointState.OK, at_s, ranks=ranks, gpus=gpus, **{**base, **facts}
    )


def frame(at_s: float, gpus: tuple[GpuReading, ...], engines: tuple[EngineReading, ...] = (), **facts: object) -> Frame:
    return Frame(int(at_s), 1e9 + at_s, at_s, 1.0, HostReading("box"), gpus, engines, **facts)


def single_stream(deriver: Deriver, seconds: int = 20, rate: float = 100.0, **facts: object) -> Snapshot:
    """One sequence of 1000 tokens in context decoding at `rate`: a step a token."""
    for at in range(0, seconds, 2):
        counters = {DECODE_TOKENS: at * rate, STEPS: at * rate, PREFILL_COMPUTED: 0.0, PREFILL_CACHED: 0.0}
        derived = deriver.derive(frame(at, (gpu(at_s=float(at)),), (engine(float(at), counters, **facts),)))
    return derived.snapshot


def test_mbu_of_one_stream_is_weights_plus_kv_per_token(catalogue: GpuCatalogue):
    shown = single_stream(Deriver(catalogue)).engines[0]
    # 7.50e9 matmul parameters of 2 bytes, and 1000 tokens of 131072 bytes of KV, 100 times a second.
    expected = (7.504924672e9 * 2 + 1000 * 131072) * 100
    assert shown.efficiency.bytes_per_s == pytest.approx(expected, rel=0.002)
    assert shown.efficiency.mbu_ratio == pytest.approx(expected / H100_BANDWIDTH, rel=0.002)
    assert shown.efficiency.mbu_single_stream_ratio == pytest.approx(8.03e9 * 2 * 100 / H100_BANDWIDTH, rel=0.01)


def test_mfu_of_decode_is_two_flops_per_parameter_plus_attention(catalogue: GpuCatalogue):
    shown = single_stream(Deriver(catalogue)).engines[0]
    expected = 100 * (2 * 7.504924672e9 + 4 * 32 * 128 * 32 * 1000)
    assert shown.efficiency.flops_per_s == pytest.approx(expected, rel=0.002)
    assert shown.efficiency.mfu_decode_ratio == pytest.approx(expected / H100_FLOPS, rel=0.002)
    assert shown.efficiency.mfu_prefill_ratio == 0.0
    assert shown.efficiency.precision == "bf16"
    assert shown.rates.steps_per_s == pytest.approx(100)
    assert shown.load.context_tokens == pytest.approx(1000)


def test_the_engines_figures_are_its_gpus_figures(catalogue: GpuCatalogue):
    snapshot = single_stream(Deriver(catalogue))
    assert snapshot.gpus[0].mfu_ratio == snapshot.engines[0].efficiency.mfu_ratio
    assert snapshot.gpus[0].mbu_ratio == snapshot.engines[0].efficiency.mbu_ratio
    assert snapshot.gpus[0].engines == ("vllm:8000",)
    assert snapshot.engines[0].hardware.gpus == (0,)
    assert snapshot.gpus[0].tokens_per_j == pytest.approx(100 / 500)


def test_prefill_counts_computed_tokens_with_half_of_the_causal_attention(catalogue: GpuCatalogue):
    deriver = Deriver(catalogue)
    for at in range(0, 20, 2):
        lengths = HistogramReading((900.0, 1100.0, INF), (0.0, at, at), 1000.0 * at, at)
        ttft = HistogramReading((1.0, INF), (at, at), 0.2 * at, at)
        counters = {PREFILL_COMPUTED: 1000.0 * at, PREFILL_CACHED: 0.0, DECODE_TOKENS: 0.0, STEPS: 0.0}
        one = engine(float(at), counters, histograms={PROMPT_LENGTH: lengths, TTFT: ttft})
        shown = deriver.derive(frame(at, (gpu(at_s=float(at)),), (one,))).snapshot.engines[0]
    head = 128256 * 4096
    per_token = 2 * (7.504924672e9 - head) + 4 * 32 * 128 * 32 * 500
    assert shown.rates.prefill_tokens_per_s == pytest.approx(1000)
    assert shown.efficiency.flops_per_s == pytest.approx(1000 * per_token + 2 * head, rel=0.005)
    assert shown.efficiency.mfu_ratio == pytest.approx(shown.efficiency.mfu_prefill_ratio)


def test_the_first_token_of_an_answer_is_made_by_the_pass_of_its_prompt(catalogue: GpuCatalogue):
    """50 answers a second of 2 tokens: 100 tokens/s, of which 50 are decoded."""
    deriver = Deriver(catalogue)
    for at in range(0, 20, 2):
        ttft = HistogramReading((1.0, INF), (50.0 * at, 50.0 * at), 5.0 * at, 50.0 * at)
        counters = {DECODE_TOKENS: at * 100.0, STEPS: at * 100.0, PREFILL_COMPUTED: 0.0, PREFILL_CACHED: 0.0}
        one = engine(float(at), counters, histograms={TTFT: ttft})
        shown = deriver.derive(frame(at, (gpu(at_s=float(at)),), (one,))).snapshot.engines[0]
    assert shown.rates.decode_tokens_per_s == pytest.approx(100)
    per_token = 2 * 7.504924672e9 + 4 * 32 * 128 * 32 * 1000
    assert shown.efficiency.decode_flops_per_s == pytest.approx(50 * per_token, rel=0.002)


def test_tensor_parallel_engines_divide_by_all_their_gpus(catalogue: GpuCatalogue):
    one = single_stream(Deriver(catalogue)).engines[0]
    deriver = Deriver(catalogue)
    for at in range(0, 20, 2):
        counters = {DECODE_TOKENS: at * 100.0, STEPS: at * 100.0, PREFILL_COMPUTED: 0.0}
        pair = tuple(gpu(index, float(at)) for index in range(2))
        shown = deriver.derive(frame(at, pair, (engine(float(at), counters, gpus=("GPU-0", "GPU-1")),))).snapshot
    assert shown.engines[0].hardware.tp == 2
    assert shown.engines[0].efficiency.mfu_ratio == pytest.approx(one.efficiency.mfu_ratio / 2, rel=0.01)
    assert shown.gpus[0].mbu_ratio == shown.gpus[1].mbu_ratio == pytest.approx(one.efficiency.mbu_ratio / 2, rel=0.01)


def test_a_gpu_with_two_engines_sums_them_and_one_missing_is_not_a_zero(catalogue: GpuCatalogue):
    deriver = Deriver(catalogue)
    for at in range(0, 20, 2):
        counters = {DECODE_TOKENS: at * 100.0, STEPS: at * 100.0, PREFILL_COMPUTED: 0.0}
        one = engine(float(at), counters)
        two = replace(one, name="vllm:8001", url="http://127.0.0.1:8001")
        both = deriver.derive(frame(at, (gpu(at_s=float(at)),), (one, two))).snapshot
    assert both.gpus[0].mfu_ratio == pytest.approx(2 * both.engines[0].efficiency.mfu_ratio)
    unknown = replace(two, llm=None)
    after = deriver.derive(frame(20, (gpu(at_s=20.0),), (one, unknown))).snapshot
    assert after.gpus[0].mfu_ratio == Missing(Reason.UNKNOWN_MODEL)


@pytest.mark.parametrize(
    ("facts", "source", "expected"),
    [
        ({"dram_active_ratio": 0.69}, BandwidthSource.GPM, 0.69 * H100_BANDWIDTH),
        ({"memory_busy_ratio": 0.9}, BandwidthSource.UPPER_BOUND, 0.9 * H100_BANDWIDTH),
        ({}, BandwidthSource.NONE, Missing(Reason.NOT_SUPPORTED)),
    ],
)
def test_bandwidth_takes_the_best_source(
    catalogue: GpuCatalogue, facts: dict[str, float], source: BandwidthSource, expected: object
):
    shown = Deriver(catalogue).derive(frame(0, (gpu(**facts),))).snapshot.gpus[0]
    assert shown.bandwidth_source is source
    assert shown.bandwidth_bytes_per_s == (expected if isinstance(expected, Missing) else pytest.approx(expected))


def test_rows_go_stale_after_three_intervals_and_lose_their_figures(catalogue: GpuCatalogue):
    deriver = Deriver(catalogue)
    fresh = deriver.derive(frame(3, (gpu(at_s=0.0),))).snapshot.gpus[0]
    stale = deriver.derive(frame(4, (gpu(at_s=0.0),))).snapshot.gpus[0]
    assert (fresh.state, stale.state) == (GpuState.OK, GpuState.STALE)
    assert stale.age_s == 4.0
    assert stale.busy_ratio == stale.power_w == Missing(Reason.STALE)


def test_a_lost_gpu_has_no_figures_and_costs_no_other(catalogue: GpuCatalogue):
    lost = gpu(1, state_text="Xid 79")
    lost = replace(lost, state=GpuState.LOST)
    shown = Deriver(catalogue).derive(frame(0, (gpu(0), lost))).snapshot.gpus
    assert shown[1].busy_ratio == Missing(Reason.LOST)
    assert shown[0].busy_ratio == 1.0


@pytest.mark.parametrize("state", [GpuState.LOST, GpuState.ERROR])
def test_the_age_of_a_silent_gpu_counts_from_its_last_answer_however_often_it_is_tried(
    catalogue: GpuCatalogue, state: GpuState
):
    deriver = Deriver(catalogue)
    for at in range(15):
        read = gpu(at_s=float(at))
        silent = read if at < 5 else replace(read, state=state)
        shown = deriver.derive(frame(at, (silent,))).snapshot.gpus[0]
        assert shown.age_s == (0.0 if at < 5 else at - 4.0)
    assert deriver.derive(frame(601, (gpu(at_s=601.0),))).snapshot.gpus[0].age_s == 0.0


def test_busy_is_a_mean_over_time_and_missing_time_is_left_out(catalogue: GpuCatalogue):
    # The seed definition in small: busy 5 of 10 hours is 50 %; half an hour without readings changes nothing.
    deriver = Deriver(catalogue)
    for at in range(600):
        busy = 1.0 if at <= 300 else 0.0
        shown = deriver.derive(frame(at, (gpu(at_s=float(at), busy_ratio=busy),))).snapshot.gpus[0]
    assert shown.busy_mean_ratio == pytest.approx(0.5, abs=0.002)
    after = deriver.derive(frame(2400, (gpu(at_s=2400.0, busy_ratio=1.0),))).snapshot.gpus[0]
    assert after.busy_mean_ratio == pytest.approx(0.5, abs=0.002)


def test_an_unreachable_engine_has_no_figures_and_keeps_its_totals(catalogue: GpuCatalogue):
    deriver = Deriver(catalogue)
    single_stream(deriver)
    down = EngineReading("vllm:8000", "http://127.0.0.1:8000", EndpointState.REFUSED, 18.0, fault="nothing listens")
    snapshot = deriver.derive(frame(19, (gpu(at_s=19.0),), (down,))).snapshot
    assert snapshot.engines[0].rates.decode_tokens_per_s == Missing(Reason.UNREACHABLE)
    assert snapshot.engines[0].latency.ttft_s.p95 == Missing(Reason.UNREACHABLE)
    assert snapshot.engines[0].tokens_total.decode == pytest.approx(1800)
    assert snapshot.faults[0].source == "vllm:8000"
    assert snapshot.faults[0].text == "nothing listens"


def test_one_slow_answer_is_no_outage_but_three_intervals_are(catalogue: GpuCatalogue):
    deriver = Deriver(catalogue)
    single_stream(deriver)
    counters = {DECODE_TOKENS: 1800.0, STEPS: 1800.0, PREFILL_COMPUTED: 0.0}
    late = replace(engine(18.0, counters), state=EndpointState.TIMEOUT, fault="no answer in 5 s")
    soon = deriver.derive(frame(21, (gpu(at_s=21.0),), (late,))).snapshot.engines[0]
    assert soon.rates.decode_tokens_per_s == pytest.approx(100)
    assert soon.state is EndpointState.TIMEOUT
    later = deriver.derive(frame(25, (gpu(at_s=25.0),), (late,))).snapshot.engines[0]
    assert later.rates.decode_tokens_per_s == Missing(Reason.STALE)


def test_text_from_outside_is_made_visible(catalogue: GpuCatalogue):
    hostile = "evil\x1b]0;title\x07\u202egnp"
    shown = (
        Deriver(catalogue)
        .derive(frame(0, (gpu(processes=(GpuProcess(1, hostile),)),), faults=(Fault("x", hostile, 0.0),)))
        .snapshot
    )
    assert shown.gpus[0].processes[0].name == "evil\\x1b]0;title\\x07\\u202egnp"
    assert "\x1b" not in shown.faults[0].text


def test_a_remote_engine_is_measured_against_its_configured_gpus(catalogue: GpuCatalogue):
    deriver = Deriver(catalogue)
    for at in range(0, 20, 2):
        counters = {DECODE_TOKENS: at * 100.0, STEPS: at * 100.0, PREFILL_COMPUTED: 0.0}
        one = engine(float(at), counters, gpus=(), gpu_type="H100 SXM 80GB", gpu_count=2)
        shown = deriver.derive(frame(at, (), (one,))).snapshot.engines[0]
    assert shown.efficiency.mbu_ratio == pytest.approx(
        (7.504924672e9 * 2 + 1000 * 131072) * 100 / (2 * 3.35e12), rel=0.01
    )
    assert shown.hardware.tp == 2
    assert shown.hardware.power_w == shown.efficiency.tokens_per_j == shown.efficiency.flops_per_j == REMOTE_POWER


def test_a_peak_that_is_assumed_is_marked_and_says_so(catalogue: GpuCatalogue):
    llms = parse_llms((DATA / "llms.jsonl").read_text())
    for name, precision, peak, assumed in (
        ("openai/gpt-oss-120b", "bf16", 8 * 2250e12, True),
        ("deepseek-ai/DeepSeek-V4-Flash", "fp8", 8 * 4500e12, False),
    ):
        llm = llms.find(name)
        one = engine(0.0, {DECODE_TOKENS: 0.0}, gpus=(), gpu_type="B200 SXM 180GB", gpu_count=8, llm=llm)
        shown = Deriver(catalogue).derive(frame(0, (), (one,))).snapshot.engines[0]
        assert (shown.efficiency.precision, shown.efficiency.peak_flops_per_s) == (precision, pytest.approx(peak))
        assert shown.efficiency.peak_unverified is assumed
        assert ("assumed" in shown.sources["peak_flops_per_s"]) is assumed
