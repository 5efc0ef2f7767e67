"""Frames to snapshots: an engine's hand-worked MFU and MBU, what it runs on, and when its figures go."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gpumon.efficiency.costs import SHARED_GPU
from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.provenance import ONLY_OF_AMD
from gpumon.figures.engine import ENGINE
from gpumon.readings import quantities as q
from gpumon.readings.flat import flat_fields, value_of
from gpumon.readings.frame import (
    EndpointState,
    EngineKind,
    EngineReading,
    Fault,
    GpuProcess,
    GpuReading,
    HistogramReading,
    RankReading,
)
from gpumon.readings.missing import REMOTE_POWER, Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.specs.llm import LlmSpec
from tests.each_row import each_row
from tests.efficiency.back_ends import BACK_ENDS
from tests.efficiency.polls import H100_BANDWIDTH, H100_FLOPS, INF, LLAMA_8B, engine, frame, gpu, served, there, why
from tests.efficiency.small_llm import SMALL
from tests.records import replace

STREAM = {q.DECODE_TOKENS: 100.0, q.STEPS: 100.0}
"""One sequence of 1000 tokens in context: a step a token."""
BATCH = {q.DECODE_TOKENS: 400.0, q.STEPS: 100.0}
TOKEN_BYTES = 7.504924672e9 * 2 + 1000 * 131072
"""Matmul weights at 2 bytes, and the KV cache of 1000 tokens."""


@pytest.fixture
def deriver() -> Deriver:
    return Deriver(gpu_catalogue())


def observed(count: float, mean: float, *bounds: float) -> HistogramReading:
    """All in the bucket of the highest finite bound."""
    return HistogramReading((*bounds, INF), (*(0.0 for _ in bounds[1:]), count, count), count * mean, count)


# By hand.


def test_mbu_of_one_stream_is_weights_plus_kv_per_token():
    shown = served(STREAM).engines[0].efficiency
    assert shown.bytes_per_s == pytest.approx(TOKEN_BYTES * 100, rel=0.002)
    assert shown.mbu_ratio == pytest.approx(TOKEN_BYTES * 100 / H100_BANDWIDTH, rel=0.002)
    assert shown.mbu_single_stream_ratio == pytest.approx(8.03e9 * 2 * 100 / H100_BANDWIDTH, rel=0.01)


def test_mfu_of_decode_is_two_flops_per_parameter_plus_attention():
    shown = served(STREAM).engines[0]
    expected = 100 * (2 * 7.504924672e9 + 4 * 32 * 128 * 32 * 1000)
    assert shown.efficiency.flops_per_s == pytest.approx(expected, rel=0.002)
    assert shown.efficiency.mfu_decode_ratio == pytest.approx(expected / H100_FLOPS, rel=0.002)
    assert (shown.efficiency.mfu_prefill_ratio, shown.efficiency.precision) == (0.0, "bf16")
    assert (shown.rates.steps_per_s, shown.load.context_tokens) == pytest.approx((100, 1000))


def test_prefill_counts_computed_tokens_with_half_of_the_causal_attention():
    shown = served(
        {q.PREFILL_COMPUTED: 1000.0, q.DECODE_TOKENS: 0.0, q.STEPS: 0.0},
        histograms=lambda at_s: {q.PROMPT_LENGTH: observed(at_s, 1000.0, 900, 1100), q.TTFT: observed(at_s, 0.2, 1)},
    ).engines[0]
    head = 128256 * 4096
    per_token = 2 * (7.504924672e9 - head) + 4 * 32 * 128 * 32 * 500
    assert shown.rates.prefill_tokens_per_s == pytest.approx(1000)
    assert shown.efficiency.flops_per_s == pytest.approx(1000 * per_token + 2 * head, rel=0.005)
    assert shown.efficiency.mfu_ratio == pytest.approx(shown.efficiency.mfu_prefill_ratio)


def test_the_first_token_of_an_answer_is_made_by_the_pass_of_its_prompt():
    """50 answers a second of 2 tokens: 100 tokens/s, of which 50 are decoded."""
    shown = served(STREAM, histograms=lambda at_s: {q.TTFT: observed(50 * at_s, 0.1, 1)}).engines[0]
    assert shown.rates.decode_tokens_per_s == pytest.approx(100)
    per_token = 2 * 7.504924672e9 + 4 * 32 * 128 * 32 * 1000
    assert shown.efficiency.decode_flops_per_s == pytest.approx(50 * per_token, rel=0.002)


def test_the_inputs_of_mfu_and_mbu_by_hand():
    """4 sequences of 1000 tokens in 100 steps a second."""
    shown = served(BATCH, cards=2, seconds=14, llm=SMALL).engines[0]
    # Per position 4 heads x 8 wide, twice 2 FLOPs; three layers see 1000 tokens, two see their window of 100.
    per_token = 2 * 1000 + 4 * 4 * 8 * (3 * 1000 + 2 * 100)
    # Keys and values of 2 KV heads, 8 wide, 2 bytes each; five layers hold them, and read as much as they see.
    kv_read = 2 * 2 * 8 * 2 * (3 * 1000 + 2 * 100)
    expected = {
        "gpu_count": 2.0,
        "power_w": 1000.0,
        "params": 1200.0,
        "active_params": 1000.0,
        "layers": 5.0,
        "batch": 4.0,
        "flops_per_decode_token": per_token,
        "decode_flops_per_s": 400 * per_token,
        "prefill_flops_per_s": 0.0,
        "peak_flops_per_s": 2 * H100_FLOPS,
        "weight_bytes": 2000.0,
        "weight_bytes_per_s": 200_000.0,
        "kv_bytes_per_token": 2 * 2 * 8 * 2 * 5,
        "kv_bytes_per_s": 400 * kv_read,
        "peak_bandwidth_bytes_per_s": 2 * H100_BANDWIDTH,
        "kv_pool_tokens": 100_000.0,
    }
    assert {field: value_of(shown, field) for field in expected} == pytest.approx(expected, rel=0.002)
    assert (shown.dimensions.weight_precision, shown.dimensions.kv_precision) == ("bf16", "bf16")


@each_row(
    ("word", "precision", "token_bytes"),
    [
        ("auto", "bf16", 320.0),
        ("bfloat16", "bf16", 320.0),
        ("fp8_e4m3", "fp8", 160.0),
        ("int8_per_token_head", "int8", 160.0),
        ("float32", "fp32", 640.0),
    ],
)
def test_a_tokens_bytes_are_those_of_the_format_that_the_page_names(word: str, precision: str, token_bytes: float):
    shown = served(BATCH, llm=SMALL, info={"cache_dtype": word}).engines[0]
    assert (shown.dimensions.kv_precision, shown.dimensions.kv_bytes_per_token) == (precision, token_bytes)


def test_a_format_of_the_cache_whose_bytes_are_not_known_is_none_of_the_known_ones():
    shown = served(BATCH, llm=SMALL, info={"cache_dtype": "turboquant_k8v4"}).engines[0]
    unknown = Missing(Reason.NOT_MODELLED, "the bytes of a KV cache in turboquant_k8v4 are not known")
    assert shown.dimensions.kv_precision == "turboquant_k8v4"
    assert shown.dimensions.kv_bytes_per_token == unknown
    assert (shown.efficiency.kv_bytes_per_s, shown.efficiency.mbu_ratio) == (unknown, unknown)
    assert there(shown.efficiency.weight_bytes_per_s) > 0


@pytest.mark.parametrize(
    ("spec", "ended", "expected"),
    [
        # 2% of a pool of 100,000 tokens, by two sequences: of a model of full attention alone that is their context.
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
        lengths = {q.PROMPT_LENGTH: observed(at, 100, 2000), q.OUTPUT_LENGTH: observed(at, 40, 2000)} if ended else {}
        counters = {q.DECODE_TOKENS: at * 60.0, q.PROMPT_TOKENS: at * 100.0}
        gauges = {q.RUNNING: 2.0, q.KV_USAGE: 0.02, q.POOL_TOKENS: 1e5}
        rank = RankReading("0", counters, gauges, {q.TTFT: observed(at, 0.1, 1), **lengths})
        shown = deriver.derive(frame(at, (gpu(at_s=at),), (engine(at, {}, llm=spec, ranks=(rank,)),))).snapshot
    assert there(shown.engines[0].load.context_tokens) == pytest.approx(expected)


def test_blocks_that_layers_of_several_kinds_share_are_no_tokens():
    live = {q.POOL_TOKENS: f"vllm:cache_config_info {q.BLOCK_PRODUCT}"}
    assert why(served(BATCH, llm=SMALL, live=live).engines[0].load.kv_pool_tokens) is Reason.NOT_MODELLED
    assert served(BATCH, live=live).engines[0].load.kv_pool_tokens == 1e5


# GPUs of an engine.


def test_the_engines_figures_are_its_gpus_figures():
    snapshot = served(STREAM)
    assert snapshot.gpus[0].mfu_ratio == snapshot.engines[0].efficiency.mfu_ratio
    assert snapshot.gpus[0].mbu_ratio == snapshot.engines[0].efficiency.mbu_ratio
    assert (snapshot.gpus[0].engines, snapshot.engines[0].hardware.gpus) == (("vllm:8000",), (0,))
    assert snapshot.gpus[0].tokens_per_j == pytest.approx(100 / 500)


def test_tensor_parallel_engines_divide_by_all_their_gpus():
    one, shown = served(STREAM).engines[0].efficiency, served(STREAM, cards=2)
    assert shown.engines[0].hardware.tp == 2
    assert shown.engines[0].efficiency.mfu_ratio == pytest.approx(there(one.mfu_ratio) / 2, rel=0.01)
    assert shown.gpus[0].mbu_ratio == shown.gpus[1].mbu_ratio == pytest.approx(there(one.mbu_ratio) / 2, rel=0.01)


@each_row(
    ("facts", "gpus"),
    [
        ({"tp": 2, "pp": 2}, 4.0),
        ({"tp": 4}, 4.0),
        ({"kind": EngineKind.SGLANG, "tp": 4, "dp": 4, "info": {"dp_attention": "yes"}}, 4.0),
        ({"ranks": tuple(RankReading(str(rank), {q.DECODE_TOKENS: 0.0}, {}, {}) for rank in range(4))}, 4.0),
    ],
)
def test_the_work_of_all_ranks_is_no_share_of_the_gpus_that_are_known_here(facts: dict[str, object], gpus: float):
    """Two GPUs of this host: the others of the engine are on another one, or are not seen from here."""
    snapshot = served(STREAM, cards=2, **facts)
    shown = snapshot.engines[0]
    assert (shown.hardware.gpus, shown.hardware.gpu_count) == ((0, 1), gpus)
    for missing in (shown.efficiency.mfu_ratio, shown.efficiency.mbu_ratio, snapshot.gpus[0].mbu_ratio):
        assert why(missing) is Reason.NO_GPU
    for missing in (shown.hardware.power_w, shown.efficiency.tokens_per_j, shown.costs.energy_j):
        assert missing == REMOTE_POWER


def test_each_gpu_has_its_share_of_the_tokens_of_an_engine_on_several_hosts():
    assert served(STREAM, cards=2, tp=4).gpus[0].tokens_per_j == pytest.approx(100 / 4 / 500)


def test_what_a_gpu_draws_for_two_engines_is_no_measure_of_either(deriver: Deriver):
    for at in range(0, 20, 2):
        one = engine(at, {name: at * per_s for name, per_s in STREAM.items()} | {q.PREFILL_COMPUTED: 0.0})
        two = replace(one, name="vllm:8001", url="http://127.0.0.1:8001")
        both = deriver.derive(frame(at, (gpu(at_s=at),), (one, two))).snapshot
    shown = both.engines[0]
    assert (shown.efficiency.tokens_per_j, shown.efficiency.flops_per_j) == (SHARED_GPU, SHARED_GPU)
    assert shown.hardware.power_w == 500.0
    assert both.gpus[0].tokens_per_j == pytest.approx(2 * 100 / 500)


def test_a_gpu_with_two_engines_sums_them_and_one_missing_is_not_a_zero(deriver: Deriver):
    for at in range(0, 20, 2):
        one = engine(at, {name: at * per_s for name, per_s in STREAM.items()} | {q.PREFILL_COMPUTED: 0.0})
        two = replace(one, name="vllm:8001", url="http://127.0.0.1:8001")
        both = deriver.derive(frame(at, (gpu(at_s=at),), (one, two))).snapshot
    assert both.gpus[0].mfu_ratio == pytest.approx(2 * there(both.engines[0].efficiency.mfu_ratio))
    unknown = replace(two, llm=None)
    after = deriver.derive(frame(20, (gpu(at_s=20.0),), (one, unknown))).snapshot
    assert after.gpus[0].mfu_ratio == Missing(Reason.UNKNOWN_MODEL)


def test_a_remote_engine_is_measured_against_its_configured_gpus():
    shown = served(STREAM, cards=0, gpu_type="H100 SXM 80GB", gpu_count=2).engines[0]
    assert shown.efficiency.mbu_ratio == pytest.approx(TOKEN_BYTES * 100 / (2 * 3.35e12), rel=0.01)
    assert shown.hardware.tp == 2
    assert shown.hardware.power_w == shown.efficiency.tokens_per_j == shown.efficiency.flops_per_j == REMOTE_POWER


def test_an_engine_under_mig_has_no_mfu_on_parent_or_slice():
    parent = gpu(0, 18.0, mig=True)
    piece = replace(gpu(0, 18.0), uuid="MIG-1", parent_uuid="GPU-0", mig_profile="1g.10gb")
    for uuid in ("GPU-0", "MIG-1"):
        deriver = Deriver(gpu_catalogue())
        for at in (16.0, 18.0):
            one = engine(at, {q.DECODE_TOKENS: at * 10, q.STEPS: at * 10, q.PREFILL_COMPUTED: 0.0}, gpus=(uuid,))
            shown = deriver.derive(frame(at, (parent, piece), (one,))).snapshot.engines[0].efficiency
        assert why(shown.mfu_ratio) is why(shown.mbu_ratio) is Reason.UNDER_MIG


def test_a_gpu_on_which_nothing_runs_has_no_engine_wherever_one_runs(deriver: Deriver):
    one = engine(0.0, {q.DECODE_TOKENS: 0.0}, gpus=(), gpus_source="nobody listens here")
    empty = {"vram_used_bytes": 0.6e9, "vram_total_bytes": 80e9}
    gpus = (
        gpu(0, **empty),
        gpu(1, **empty, processes=(GpuProcess(1, "python"),)),
        gpu(2, vram_used_bytes=9e9, vram_total_bytes=80e9),
        gpu(3, **empty, vram_shared=True),
    )
    shown = deriver.derive(frame(0, gpus, (one,))).snapshot
    assert [why(each.mfu_ratio) for each in shown.gpus] == [Reason.NO_ENGINE, *[Reason.UNMAPPED] * 3]
    assert "nobody listens here" in shown.faults[0].text


def test_a_peak_that_is_assumed_is_marked_and_says_so(deriver: Deriver):
    for name, precision, peak, assumed in (
        ("openai/gpt-oss-120b", "bf16", 8 * 2250e12, True),
        ("deepseek-ai/DeepSeek-V4-Flash", "fp8", 8 * 4500e12, False),
    ):
        where = {"gpus": (), "gpu_type": "B200 SXM 180GB", "gpu_count": 8, "llm": llm_catalogue().find(name)}
        shown = served({q.DECODE_TOKENS: 0.0}, seconds=2, cards=0, **where).engines[0]
        assert (shown.efficiency.precision, shown.efficiency.peak_flops_per_s) == (precision, pytest.approx(peak))
        assert shown.efficiency.peak_unverified is assumed
        assert ("assumed" in shown.sources["peak_flops_per_s"]) is assumed


# What is not known.


def test_without_a_model_the_rates_stay_and_the_model_is_unknown():
    shown = served(BATCH, cards=2, llm=None, info={"model_missing": "add this"}).engines[0]
    assert shown.rates.batch == pytest.approx(4.0)
    assert there(shown.efficiency.peak_bandwidth_bytes_per_s) == pytest.approx(2 * H100_BANDWIDTH)
    unknown = ("params", "layers", "weight_bytes", "kv_bytes_per_token", "peak_flops_per_s", "mfu_ratio", "mbu_ratio")
    assert {field: why(value_of(shown, field)) for field in unknown} == dict.fromkeys(unknown, Reason.UNKNOWN_MODEL)
    assert shown.dimensions.weight_precision == shown.dimensions.kv_precision == ""
    assert shown.sources["model"].startswith("add this: `gpumon doctor`")


def test_an_engine_that_is_down_has_no_figures_and_keeps_its_model_and_totals(deriver: Deriver):
    served(STREAM, deriver)
    down = engine(18.0, {}, ranks=(), state=EndpointState.REFUSED, fault="nothing listens")
    snapshot = deriver.derive(frame(19, (gpu(at_s=19.0),), (down,))).snapshot
    shown = snapshot.engines[0]
    for field in ("decode_tokens_per_s", "ttft_s.p95", "batch", "peak_flops_per_s", "kv_pool_tokens", "power_w"):
        assert why(value_of(shown, field)) is Reason.UNREACHABLE, field
    assert (shown.dimensions.layers, shown.hardware.gpu_count) == (32.0, 1.0)
    assert shown.tokens_total.decode == pytest.approx(1800)
    assert [(fault.source, fault.text) for fault in snapshot.faults] == [("vllm:8000", "nothing listens")]


def test_a_state_is_dated_from_when_it_was_seen_first(deriver: Deriver):
    states = [EndpointState.OK, EndpointState.OK, EndpointState.REFUSED, EndpointState.REFUSED, EndpointState.OK]
    polls = [engine(at * 2.0, {q.DECODE_TOKENS: 1.0}, state=state) for at, state in enumerate(states)]
    since = [deriver.derive(frame(at * 2, (), (one,))).snapshot.engines[0].since for at, one in enumerate(polls)]
    assert [text[17:19] for text in since] == ["40", "40", "44", "44", "48"]


def test_one_slow_answer_is_no_outage_but_three_intervals_are(deriver: Deriver):
    served(STREAM, deriver)
    counters = {q.DECODE_TOKENS: 1800.0, q.STEPS: 1800.0, q.PREFILL_COMPUTED: 0.0}
    late = engine(18.0, counters, state=EndpointState.TIMEOUT, fault="no answer in 5 s")
    soon = deriver.derive(frame(21, (gpu(at_s=21.0),), (late,))).snapshot.engines[0]
    assert (soon.state, soon.rates.decode_tokens_per_s) == (EndpointState.TIMEOUT, pytest.approx(100))
    later = deriver.derive(frame(25, (gpu(at_s=25.0),), (late,))).snapshot.engines[0]
    assert later.rates.decode_tokens_per_s == Missing(Reason.STALE)


def test_an_engine_slower_than_its_interval_is_not_stale_for_that(deriver: Deriver):
    for at in (0.0, 0.9, 1.8):
        slow = engine(at, {q.DECODE_TOKENS: at * 100, q.STEPS: at * 100}, interval_s=0.25, latency_s=0.6)
        deriver.derive(frame(at, (gpu(at_s=at),), (slow,)))
    later = deriver.derive(frame(2.6, (gpu(at_s=2.6),), (slow,))).snapshot.engines[0]
    assert later.rates.decode_tokens_per_s == pytest.approx(100)


def test_the_answer_of_a_hidden_balancer_is_named(deriver: Deriver):
    for at in range(8):
        one = engine(float(at), {q.DECODE_TOKENS: 5.0 + at % 2}, started_wall_s=1e9 - 100.0 * (1 + at % 2))
        snapshot = deriver.derive(frame(at, (gpu(at_s=float(at)),), (one,))).snapshot
    assert any("load balancer" in fault.text for fault in snapshot.faults)


# Absurd input.


def test_one_long_prefill_among_short_ones_never_reads_as_more_than_the_gpu_can(deriver: Deriver):
    # 5 prompts of 100 tokens a second, and one of 100,000 that takes 36 s at about half of the peak.
    highest = 0.0
    for at in range(0, 240, 2):
        short, long = at * 5.0, (at + 20) // 60
        both = short + long
        ttft = HistogramReading((0.5, 20.0, 40.0, INF), (short, short, both, both), both * 0.3, both)
        lengths = HistogramReading((200.0, 2e5, INF), (short, both, both), at * 500.0 + long * 1e5, both)
        counters = {q.PREFILL_COMPUTED: at * 500.0 + long * 1e5, q.DECODE_TOKENS: 0.0, q.STEPS: 0.0}
        one = engine(float(at), counters, histograms={q.TTFT: ttft, q.PROMPT_LENGTH: lengths})
        mfu = deriver.derive(frame(at, (gpu(at_s=float(at)),), (one,))).snapshot.engines[0].efficiency.mfu_ratio
        highest = highest if isinstance(mfu, Missing) else max(highest, mfu)
    assert 0.1 < highest < 1.0


def test_prefill_waits_until_its_window_holds_a_whole_prefill(deriver: Deriver):
    shown: list[Engine] = []
    for at in range(0, 24, 2):
        begun = float(at >= 4)
        counters = {q.PREFILL_COMPUTED: 50_000.0 * begun, q.DECODE_TOKENS: 0.0, q.STEPS: 0.0}
        one = engine(float(at), counters, histograms={q.TTFT: observed(begun, 15.0, 1, 20)})
        shown.append(deriver.derive(frame(at, (gpu(at_s=float(at)),), (one,))).snapshot.engines[0])
    assert shown[3].rates.prefill_tokens_per_s == Missing(Reason.WARMING_UP)
    assert shown[-1].rates.prefill_tokens_per_s == pytest.approx(50_000 / 20, rel=0.15)


@pytest.mark.parametrize("tokens", [1e300, 1e200])
def test_absurd_counters_cost_their_own_row_and_are_named(deriver: Deriver, tokens: float):
    for at in range(0, 8, 2):
        absurd = engine(float(at), {q.DECODE_TOKENS: at * tokens, q.STEPS: at * 100.0, q.PREFILL_COMPUTED: 0.0})
        sane = engine(float(at), {q.DECODE_TOKENS: at * 10.0, q.STEPS: at * 10.0}, gpus=("GPU-1",))
        sane = replace(sane, name="sane", url="http://sane")
        snapshot = deriver.derive(frame(at, (gpu(0, float(at)), gpu(1, float(at))), (absurd, sane))).snapshot
    assert snapshot.engines[1].rates.decode_tokens_per_s == pytest.approx(10)
    assert snapshot.gpus[0].reading.busy_ratio == 1.0
    shown = snapshot.engines[0].efficiency
    for reading in (shown.mfu_ratio, shown.bytes_per_s, snapshot.gpus[0].mfu_ratio):
        assert isinstance(reading, Missing) or math.isfinite(reading)
    said = any("make no sense" in fault.text for fault in snapshot.faults)
    assert said == (shown.mfu_ratio == Missing(Reason.INVALID))


def test_more_tokens_than_the_gpu_can_compute_are_not_valid_whatever_is_not_known(deriver: Deriver):
    for at in range(0, 12, 2):
        rank = RankReading("0", {q.DECODE_TOKENS: at * 1e6, q.STEPS: at * 50.0}, {q.RUNNING: 4.0}, {})
        polled: EngineReading = engine(float(at), {}, ranks=(rank,))
        shown = deriver.derive(frame(at, (gpu(at_s=float(at)),), (polled,))).snapshot.engines[0]
    assert shown.rates.decode_tokens_per_s == pytest.approx(1e6)
    assert (why(shown.load.context_tokens), why(shown.efficiency.mfu_ratio)) == (Reason.NO_CONTEXT, Reason.INVALID)


@pytest.mark.parametrize(("busy", "ranks"), [(0.0, 2), (0.5, 2), (0.0, 1)])
def test_a_rank_that_does_nothing_has_not_the_mean_of_its_engine(deriver: Deriver, busy: float, ranks: int):
    for at in range(0, 12, 2):
        counters = {q.DECODE_TOKENS: at * 100.0, q.STEPS: at * 50.0, q.PREFILL_COMPUTED: 0.0, q.PREFILL_CACHED: 0.0}
        gauges = {q.RUNNING: 2.0, q.KV_USAGE: 0.02, q.POOL_TOKENS: 1e5}
        both = (RankReading("0", counters, gauges, {}), RankReading("1", dict.fromkeys(counters, 0.0), gauges, {}))
        polled = engine(float(at), {}, ranks=both[:ranks], gpus=("GPU-0", "GPU-1"))
        gpus = (gpu(0, float(at)), gpu(1, float(at), busy_ratio=busy))
        first, second = deriver.derive(frame(at, gpus, (polled,))).snapshot.gpus
    assert there(first.mfu_ratio) > 0.0
    if busy or ranks == 1:
        assert (second.mfu_ratio, second.mbu_ratio) == (first.mfu_ratio, first.mbu_ratio)
        return
    for reading in (second.mfu_ratio, second.mbu_ratio, second.tokens_per_j):
        assert why(reading) is Reason.IDLE
        assert "rank does nothing" in reading.detail


def test_text_from_outside_is_made_visible(deriver: Deriver):
    hostile = "evil\x1b]0;title\x07\u202egnp"
    card = gpu(processes=(GpuProcess(1, hostile, command="x\x1b[2J" + "y" * 600, container="c" * 99),))
    shown = deriver.derive(frame(0, (card,), faults=(Fault("x", hostile, 0.0),))).snapshot
    (process,) = shown.gpus[0].reading.processes
    assert process.name == "evil\\x1b]0;title\\x07\\u202egnp"
    assert (process.command[:6], len(process.command), len(process.container)) == ("x\\x1b[", 512, 64)
    assert "\x1b" not in shown.faults[0].text


# Sources.

_NO_SOURCE = frozenset({"age_s", "index", "samples_per_s", "trained_tokens_per_s", "params", "layers", "gpu_count"})


def _figures(kind: type[msgspec.Struct]) -> set[str]:
    return {name for name, (_, field) in flat_fields(kind).items() if field.type == Reading} - _NO_SOURCE


def test_every_figure_names_its_source():
    # The sources of `own` and `own_memory` have names that are no fields.
    names = {value for name, value in vars(q).items() if isinstance(value, str) and not name.startswith("OWN_")}
    names |= {row.counts or row.gauge for row in ENGINE.values()}
    snapshot = served(BATCH, cards=2, llm=SMALL, live=dict.fromkeys(names, "vllm:metric"))
    for kind, shown in ((Engine, snapshot.engines[0]), (Gpu, snapshot.gpus[0])):
        assert _figures(kind) - {field for field, text in shown.sources.items() if text} == set()
        assert set(shown.sources) <= flat_fields(kind).keys()


def _is_told(value: Reading) -> bool:
    """Whether a back end gives a number, or another reason for its lack than that it never has one."""
    return not isinstance(value, Missing) or value.reason not in (Reason.NOT_SUPPORTED, Reason.NOT_EXPOSED)


@each_row("read", BACK_ENDS, named=lambda read: read.__name__)
def test_every_figure_of_a_back_end_names_its_source_and_no_other_does(
    read: Callable[[Path], GpuReading], deriver: Deriver, tmp_path: Path
):
    reading = read(tmp_path)
    (shown,) = deriver.derive(frame(reading.monotonic_s, (reading,))).snapshot.gpus
    figures = _figures(GpuReading)
    told = {field for field in figures if _is_told(getattr(reading, field))}
    assert told == {field for field in figures if shown.sources.get(field, ONLY_OF_AMD) not in ("", ONLY_OF_AMD)}
