"""Memory of an instance against what engines logged, what sweeps ran into, and by hand."""

from __future__ import annotations

import csv
import functools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency import weights
from gpumon.efficiency.traffic import kv_bytes_per_token, kv_stored_bytes
from gpumon.sizing import design_guide, memory
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.specs.llm import LlmSpec, Reach, State, grouped_attention, latent_attention
from gpumon.specs.precision import Precision
from tests.each_row import each_row
from tests.records import replace

GIB = 2.0**30
H100 = 79.65 * GIB
"""As NVML says; vLLM saw 79.18 GiB of it (llm-d-planner)."""
A100 = 80.0 * GIB
DATA = Path(__file__).parents[1] / "data"
LOGGED = list(csv.DictReader((DATA / "engine_memory.csv").read_text().splitlines()))
"""llm-d-planner @e50305a, docs/empirical-vllm-memory-results.md: vLLM 0.11 on H100, measured, GiB per GPU."""
NIM = list(csv.DictReader((DATA / "nim_runs.csv").read_text().splitlines()))
"""docs.nvidia.com NIM LLM benchmarking, 1.8.0, measured; the copy in zivbeker42/llm-guesstimator @cf11e66."""
MULTIMODAL = "Mistral-Small-3.2-24B"
FULL, WINDOW = grouped_attention(3, 4, 2, 8), grouped_attention(2, 4, 2, 8, Reach.WINDOW, 100)
SMALL = LlmSpec(
    name="small", source="test", params=1200.0, matmul_params=1000.0, head_params=200.0, vocab=20, hidden=10, layers=5,
    heads=4, kv_heads=2, head_dim=8, attention=(FULL, WINDOW), read_bytes=2000.0,
)  # fmt: skip
"""Round figures, for sums that can be done by hand."""
MLA = replace(SMALL, kv_heads=1, attention=(latent_attention(3, 4, 16, 4, 8, 8),))
HYBRID = replace(SMALL, attention=(FULL,), states=(State("delta net", 2, 1500.0, 10.0),))


@functools.cache
def usable_llms() -> list[LlmSpec]:
    return [row.spec for row in llm_catalogue().rows if not row.unusable]


USABLE = st.deferred(lambda: st.sampled_from(usable_llms()))
"""Specs are made when a test asks for one, not when the tests are collected."""


def llm(model: str) -> LlmSpec:
    found = llm_catalogue().find(model)
    assert found is not None
    return found


def least_tp(
    spec: LlmSpec, gpu_memory_bytes: float, domain: int, usable_ratio: float, context_tokens: float
) -> int | str:
    found = memory.tensor_parallels(spec, gpu_memory_bytes, domain, usable_ratio, context_tokens)
    return found if isinstance(found, str) else found[0]


def logged_name(row: dict[str, str]) -> str:
    return f"{row['model']} TP{row['tp']} {row['max_len']}"


@each_row("row", LOGGED, named=logged_name)
def test_the_logged_parts_add_up_to_the_usable_memory(row: dict[str, str]) -> None:
    parts = sum(float(row[part]) for part in ("weights_gib", "activation_gib", "non_torch_gib", "kv_gib"))
    assert parts == pytest.approx(float(row["usable_ratio"]) * 79.18, abs=0.01)


def test_the_gpt_oss_120b_row_closes_at_95_per_cent_only() -> None:
    row = next(row for row in LOGGED if row["model"] == "gpt-oss-120b")
    parts = sum(float(row[part]) for part in ("weights_gib", "activation_gib", "non_torch_gib", "kv_gib"))
    assert abs(parts - 0.90 * 79.18) > 3.9
    assert abs(parts - 0.95 * 79.18) < 0.01


@each_row("row", LOGGED, named=logged_name)
def test_loaded_weights_within_2_per_cent_of_what_vllm_logged(row: dict[str, str]) -> None:
    predicted = weights.loaded_bytes(llm(row["model"])) / int(row["tp"]) / GIB
    bound = 0.02 if row["model"] == MULTIMODAL else 0.01
    assert predicted == pytest.approx(float(row["weights_gib"]), rel=bound)


@each_row("row", LOGGED, named=logged_name)
def test_kv_pool_within_0_6_gib_of_what_vllm_logged(row: dict[str, str]) -> None:
    tp, ratio = int(row["tp"]), float(row["usable_ratio"])
    predicted = memory.pool_bytes(llm(row["model"]), H100, tp, ratio) / tp / GIB
    # The encoder's weights are not known here, nor that it steps with 2.1 GiB of activations instead of 5.2.
    bound = 2.3 if row["model"] == MULTIMODAL else 0.6
    assert abs(predicted - float(row["kv_gib"])) < bound


def test_pool_in_tokens_matches_vllm_where_its_bytes_are_given() -> None:
    mistral = llm(MULTIMODAL)
    assert kv_stored_bytes(mistral, 1.0) == 163_840
    # vLLM printed 28.20 GiB and 184,832 tokens; hf-mem #60: 5.38 GiB and 78,384 tokens, all 36 layers of gpt-oss-120b.
    assert round(kv_stored_bytes(mistral, 184_832) / GIB, 2) == 28.20
    assert round(kv_bytes_per_token(llm("gpt-oss-120b")) * 78_384 / GIB, 2) == 5.38


def test_a_model_that_vllm_could_not_start_does_not_fit_here_either() -> None:
    """llm-d-planner: Llama-3.3-70B-FP8 on one H100 had -1.44 GiB for KV; Qwen3-32B had none for 32,000 tokens."""
    assert memory.pool_tokens(llm("Llama-3.3-70B-FP8"), H100, 1, 1, 0.9) == 0.0
    assert least_tp(llm("Llama-3.3-70B-FP8"), H100, 8, 0.9, 16_000) == 2
    assert least_tp(llm("Qwen3-32B"), H100, 8, 0.9, 16_000) == 1
    assert least_tp(llm("Qwen3-32B"), H100, 8, 0.9, 32_000) == 2
    assert least_tp(llm("DeepSeek-R1"), H100, 8, 0.9, 16_000) != 1


def test_gpt_oss_120b_file() -> None:
    """hf-mem: the safetensors files sum up to 65,248,815,744 B."""
    assert weights.weight_bytes(llm("gpt-oss-120b")) == pytest.approx(65_248_815_744, rel=0.005)


def test_an_untied_embedding_is_stored_but_not_read() -> None:
    dense = llm("Llama-3.1-8B")
    assert weights.weight_bytes(dense) == pytest.approx(8.03e9 * 2)
    fp8 = llm("Llama-3.1-8B-FP8")
    table = 128_256 * 4096
    assert weights.weight_bytes(fp8) == pytest.approx(8.03e9 + 2 * table, rel=0.002)
    assert weights.weight_bytes(fp8) - fp8.read_bytes == pytest.approx(2 * table, rel=0.02)
    assert weights.weight_bytes(llm("Llama-3.2-3B-FP8")) == llm("Llama-3.2-3B-FP8").read_bytes


def test_weights_of_a_model_without_weights_are_an_error() -> None:
    with pytest.raises(ValueError, match="read_bytes"):
        weights.weight_bytes(replace(SMALL, read_bytes=0.0, stored_bytes=0.0))


def test_every_usable_catalogue_row_has_weights() -> None:
    for spec in usable_llms():
        bytes_per_param = weights.weight_bytes(spec) / spec.params
        assert 0.5 < bytes_per_param <= 2.0, spec.name


def knees(model: str) -> list[float]:
    """Tokens held where a sweep ran full: running = tokens/s x ITL, each with its whole prompt and answer."""
    return [
        float(row["tokens_per_s"]) * float(row["itl_ms"]) / 1e3 * (float(row["prompt"]) + float(row["answer"]))
        for row in NIM
        if row["model"] == model and float(row["ttft_ms"]) > 3_000
    ]


def test_one_pool_explains_four_mixes_of_a_sweep() -> None:
    """[NIM] 70B runs full at 470,000 tokens for 5000/500, 1000/1000, 500/2000 and 20000/2000 alike."""
    held = knees("Llama-3.3-70B-FP8")
    assert len(held) == 11
    assert min(held) > 450_000
    assert max(held) < 472_000


def test_predicted_pools_of_the_nim_sweeps() -> None:
    """No assumption of vLLM is TensorRT-LLM's, so the bound is wide: -11% for the 70B, +1% for the 8B."""
    seventy = memory.variant(llm_catalogue(), "Llama-3.3-70B-FP8", llm("Llama-3.3-70B-FP8"), "", "fp8")
    eight = memory.variant(llm_catalogue(), "Llama-3.1-8B-FP8", llm("Llama-3.1-8B-FP8"), "", "fp8")
    assert memory.pool_tokens(seventy, H100, 2, 2, 0.9) / 470_000 == pytest.approx(0.895, abs=0.01)
    assert memory.pool_tokens(eight, H100, 1, 1, 0.9) / max(knees("Llama-3.1-8B-FP8")) == pytest.approx(1.005, abs=0.01)


def test_predicted_running_of_the_sizing_course() -> None:
    """[DLI] Llama-3-8B FP16 TP2 on A100, 7000/1000: 113 ran together, 120 fit by this pool."""
    running = memory.pool_tokens(llm("Llama-3-8B"), A100, 2, 2, 0.9) / 8_000
    assert running == pytest.approx(120.3, abs=0.2)
    assert running / 113 < 1.07


@each_row(
    ("model", "kv", "params_bytes", "tokens", "predicted"),
    [("Llama-3.3-70B-FP8", "fp8", 70.55e9, 5_500, 94), ("Llama-3-8B", "", 2 * 8.03e9, 8_000, 127)],
)
def test_the_fact_sheets_own_predictions(
    model: str, kv: str, params_bytes: float, tokens: float, predicted: float
) -> None:
    """94 and about 127 come from TensorRT-LLM's rule: 0.9 of what is free of 80 GiB after weights and 3.5 GiB a GPU."""
    free = 0.9 * (2 * (80.0 - 3.5) * GIB - params_bytes)
    spec = memory.variant(llm_catalogue(), model, llm(model), "", kv)
    assert round(free / kv_stored_bytes(spec, tokens, tp=2)) == predicted


def test_small_gpus_step_with_fewer_tokens() -> None:
    """vLLM's log of an 8B model at 2,048 tokens a step: 1.26 GiB; an L4 does serve one."""
    eight = llm("Llama-3.1-8B")
    l4 = gpu_catalogue().find("L4")
    startup = memory.startup_of(l4)
    activation = memory.overhead_bytes(eight, 1, startup) - 0.13 * GIB
    assert activation / GIB == pytest.approx(1.26, abs=0.15)
    assert memory.tensor_parallels(eight, l4.memory_bytes, 1, 0.92, 8_192, startup=startup) == (1,)


def test_the_pool_by_hand() -> None:
    # 5 layers x 2 x 2 heads x 8 x 2 B = 320 B a token; two GPUs of 80 GiB, half of each usable.
    # Beside them the driver's 0.5 GiB, NCCL's 0.55, and 39 B for each of 1,024 sequences and 20 entries.
    beside = 0.55 * GIB + 39.0 * 1024 * 20
    left = 2 * (39.75 * GIB - beside) - 2400.0
    assert memory.pool_bytes(SMALL, 80 * GIB, 2, 0.5) == pytest.approx(left)
    assert memory.pool_tokens(SMALL, 80 * GIB, 2, 2, 0.5) == pytest.approx(left / 320.0)
    assert memory.instance_bytes(SMALL, 2, 2, 10, 50) == pytest.approx(2400.0 + 2 * beside + 10 * 50 * 320.0)


def test_what_can_not_be_divided_is_copied() -> None:
    assert kv_stored_bytes(SMALL, 1.0, tp=2) == kv_stored_bytes(SMALL, 1.0)
    assert kv_stored_bytes(SMALL, 1.0, tp=8) == 4 * kv_stored_bytes(SMALL, 1.0)
    assert kv_stored_bytes(MLA, 1.0, tp=4) == 4 * kv_stored_bytes(MLA, 1.0)
    # One token of DeepSeek-V3, BF16: 70,272 B, on each of eight ranks.
    assert kv_stored_bytes(llm("DeepSeek-V3"), 1.0, tp=8) == 8 * 70_272


def test_attention_by_data_parallel_ranks_holds_the_latent_once() -> None:
    deepseek = replace(llm("DeepSeek-V3"), whole_bytes=0.0)
    tensor = memory.pool_tokens(deepseek, 141e9, 8, 8, 0.9)
    assert memory.pool_tokens(deepseek, 141e9, 8, 1, 0.9) == pytest.approx(8 * tensor)


def test_ranks_hold_whole_what_tensor_parallelism_does_not_divide() -> None:
    """DeepSeek-V3 in FP8: 58 routers of 7,168 x 256 at 16 bit, and 61 layers of 7,168 x (1,536 + 576) elements; one GPU
    of eight holds 1.0 GB more than an eighth. Llama-3.3-70B: from nine ranks on its eight KV heads are copied."""
    deepseek = llm("DeepSeek-V3")
    whole_bytes = 58 * 7168 * 256 * 2.0 + 61 * 7168 * (1536 + 576)
    assert deepseek.whole_bytes == pytest.approx(whole_bytes, rel=0.001)
    eight = weights.loaded_bytes(deepseek, tp=8)
    assert eight - weights.weight_bytes(deepseek) == pytest.approx(7 * whole_bytes, rel=0.001)
    two_ranks = weights.loaded_bytes(deepseek, dp=2, tp=4)
    assert two_ranks - weights.loaded_bytes(deepseek, dp=2) == pytest.approx(2 * 3 * whole_bytes, rel=0.001)
    llama = llm("Llama-3.3-70B")
    assert weights.loaded_bytes(llama, tp=8) == weights.weight_bytes(llama)
    keys_and_values = 80 * 2 * 8192 * 1024 * 2.0
    assert weights.loaded_bytes(llama, tp=16) - weights.weight_bytes(llama) == pytest.approx(keys_and_values)


def test_a_linear_layers_state_is_taken_per_request() -> None:
    per_token = 3 * 2 * 2 * 8 * 2.0
    assert kv_stored_bytes(HYBRID, 100.0) == 100 * per_token + 6000.0
    assert memory.request_tokens(HYBRID, 100.0) == pytest.approx(100 + 6000.0 / per_token)
    assert memory.request_tokens(replace(SMALL, attention=(FULL,)), 100.0) == 100.0


def test_a_window_holds_no_more_than_itself() -> None:
    """2 x 2 heads x 8 x 2 B a token: three layers hold 1,000 of them, two no more than 100."""
    assert kv_stored_bytes(SMALL, 1000.0) == 64.0 * (3 * 1000 + 2 * 100)
    assert memory.request_tokens(SMALL, 1000.0) == pytest.approx(64.0 * 3200 / 320.0)


POOLS = list(csv.DictReader((DATA / "kv_pools.csv").read_text().splitlines()))
"""KV caches of start-up logs as users posted them; `note` says where and of which version. No constant is set by them:
those are from engine_memory.csv, one log of four H100 and the sizes that CUDA sees."""
CARDS = {"A100 SXM 40GB": "A100 SXM4 40GB"}
"""Names of the rows where the catalogue has another."""
NO_CARD = "16 GB card"
KNOWN_POOLS = [row for row in POOLS if row["weight_precision"] and row["gpu"] and not row["gpu"].startswith(NO_CARD)]
MULTIMODAL_POOL = "Qwen3-VL-30B-A3B"
"""Its encoder takes memory that is not known here."""


def pool_error(row: dict[str, str]) -> tuple[float, float]:
    """Predicted over posted KV cache, minus 1, and how far it is off in GiB of each GPU."""
    spec = memory.variant(llm_catalogue(), row["model"], llm(row["model"]), row["weight_precision"].split()[0], "")
    gpu = gpu_catalogue().find(CARDS.get(row["gpu"], row["gpu"]))
    tp = int(row["tp"])
    startup = memory.startup_of(gpu, row["engine"])
    predicted = (
        memory.pool_bytes(spec, gpu.memory_bytes, tp, float(row["gpu_memory_utilization"]), startup=startup) / tp
    )
    if row["posted_kv_tokens"]:
        posted = float(row["posted_kv_tokens"]) * kv_bytes_per_token(spec, tp=tp) / tp
    else:
        posted = float(row["posted_kv_gib_per_gpu"]) * GIB
    return predicted / posted - 1.0, (predicted - posted) / GIB


def pool_name(row: dict[str, str]) -> str:
    return f"{row['model']} {row['gpu']} {row['engine']}"


@each_row("row", KNOWN_POOLS, named=pool_name)
def test_posted_kv_pools(row: dict[str, str]) -> None:
    """Within 4% of the pool, or within 1 GiB of the GPU where weights leave little of it."""
    ratio, gib = pool_error(row)
    bound = 2.0 if row["model"] == MULTIMODAL_POOL else 1.0
    assert abs(ratio) <= 0.041 or abs(gib) <= bound, (ratio, gib)


def test_posted_kv_pools_as_a_whole() -> None:
    assert len(KNOWN_POOLS) == 21
    ratios = sorted(abs(pool_error(row)[0]) for row in KNOWN_POOLS)
    assert ratios[len(ratios) // 2] < 0.02


def test_the_constant_of_the_peak_holds_with_any_log_left_out() -> None:
    """Bytes per sequence and entry of the vocabulary, of the eight logs of an H100 that is no multimodal model."""
    seen = []
    for row in LOGGED:
        if row["model"] != MULTIMODAL:
            peak = float(row["activation_gib"]) * GIB
            seen.append(peak / (1024 * llm(row["model"]).vocab))
    assert len(seen) == 8
    shipped = memory.overhead_bytes(replace(SMALL, vocab=1), 1) - memory.overhead_bytes(replace(SMALL, vocab=0), 1)
    for at in range(len(seen)):
        others = sorted(seen[:at] + seen[at + 1 :])
        assert others[len(others) // 2] * 1024 == pytest.approx(shipped, rel=0.03)


def test_an_a100_of_any_size_starts_as_a_small_gpu_does() -> None:
    """vLLM lets it run 256 sequences, other GPUs of 80 GB 1,024."""
    gpus = gpu_catalogue()
    assert memory.startup_of(gpus.find("A100 SXM4 80GB")).sequences == 256
    assert memory.startup_of(gpus.find("H100 SXM 80GB")).sequences == 1024
    assert memory.startup_of(gpus.find("L4")).sequences == 256


def test_the_share_of_sglang_holds_no_activations() -> None:
    h100 = gpu_catalogue().find("H100 SXM 80GB")
    eight = llm("Llama-3.1-8B")
    room = h100.memory_bytes, 1, 0.9
    more = memory.pool_bytes(eight, *room, startup=memory.startup_of(h100, "sglang"))
    less = memory.pool_bytes(eight, *room, startup=memory.startup_of(h100, "vllm"))
    assert more - less == pytest.approx(39.0 * 1024 * eight.vocab)


def test_olmo_3_as_the_hybrid_manager_reserves_it() -> None:
    """5.14 GiB per request of 34,048 tokens; counted in full it would be 16.6."""
    assert kv_stored_bytes(llm("Olmo-3-7B"), 34_048.0) / GIB == pytest.approx(5.14, rel=0.15)


def test_without_attention_layers_only_requests_count() -> None:
    state_only = replace(HYBRID, attention=())
    assert memory.pool_tokens(state_only, H100, 1, 1, 0.9) == math.inf
    assert memory.request_tokens(state_only, 100.0) == math.inf
    assert kv_stored_bytes(state_only, 100.0) == 6000.0


def test_the_rule_against_the_guides_own_rows() -> None:
    """Dell H19686 table 9: 2.1 GB per 1e9 parameters is low by up to 15% above 5e9 and useless below."""
    rows = {
        row.model: row.memory_bytes for row in design_guide.guide_profiles() if row.name.startswith("guide-memory-")
    }
    params = {model: llm(model).params for model in rows if not model.startswith("Stable")}
    for model, count in params.items():
        measured = rows[model]
        assert measured is not None
        short = 1.0 - memory.rule_bytes(count) / measured
        assert (-0.01 <= short <= 0.15) if count > 5e9 else short > 0.3, model
        if model.startswith("NeMo"):
            assert abs(2.0 * count + 2.4e9 - measured) < 0.94e9


def test_least_tp_takes_the_smallest_that_fits() -> None:
    h100 = gpu_catalogue().find("H100 SXM 80GB").memory_bytes
    assert least_tp(llm("Llama-3.1-8B"), h100, 8, 0.92, 8_192) == 1
    assert least_tp(llm("Llama-3.3-70B"), h100, 8, 0.92, 8_192) == 2
    assert least_tp(llm("Llama-3.3-70B"), h100, 8, 0.92, 16_384) == 4
    assert least_tp(llm("Llama-3.3-70B"), gpu_catalogue().find("H200 SXM 141GB").memory_bytes, 8, 0.92, 1) == 2
    assert isinstance(least_tp(llm("Llama-3.3-70B"), h100, 3, 0.92, 16_384), str)


def test_why_none_fits() -> None:
    said = least_tp(llm("Llama-3.1-405B"), 80e9, 8, 0.92, 8_192)
    assert said == ("needs 862 GB, 8 x 80 GB holds 585 GB usable: more GPUs per server, a narrower precision or PP")


def test_heads_that_do_not_divide_are_not_split() -> None:
    """Falcon-7B has 71 query heads: one GPU or none. Phi-4's 40 and 10 divide by two, not by four."""
    said = least_tp(llm("Falcon-7B"), 16e9, 8, 0.92, 2_048)
    assert isinstance(said, str)
    assert "71 heads do not divide over 2" in said
    phi = least_tp(llm("Phi-4-14B"), 16e9, 8, 0.92, 2_048)
    assert isinstance(phi, str)
    assert phi.startswith("needs ")
    assert "2 x 16 GB" in phi
    assert "10 KV heads do not divide over 4" in phi


@each_row(
    ("model", "precision", "gigabytes"),
    [
        ("Llama-3.1-8B", "fp8", 9.08),
        ("Llama-3.1-8B", "int4", 5.73),
        ("Llama-3.1-8B", "bf16", 16.06),
        ("Llama-3.3-70B-FP8", "bf16", 141.1),
        ("gpt-oss-120b", "bf16", 233.6),
        ("DeepSeek-V3", "nvfp4", 380.1),
    ],
)
def test_a_variant_stores_its_weights_in_the_other_precision(model: str, precision: str, gigabytes: float) -> None:
    other = memory.variant(llm_catalogue(), model, llm(model), precision, "")
    assert other.precision is Precision(precision)
    assert other.params == llm(model).params
    assert weights.weight_bytes(other) / 1e9 == pytest.approx(gigabytes, rel=0.001)


def test_a_variant_is_what_the_catalogue_finds_by_that_name() -> None:
    named = llm("Llama-3.1-8B-AWQ")
    made = memory.variant(llm_catalogue(), "Llama-3.1-8B", llm("Llama-3.1-8B"), "int4", "")
    assert made.weight_only
    assert (made.read_bytes, made.precision) == (named.read_bytes, named.precision)


def test_a_model_outside_the_catalogue_scales_by_its_own_counts() -> None:
    """A spec knows its head, experts and the rest: within 1% of the catalogue's parts."""
    for model in ("Llama-3.1-8B", "Qwen3-235B-A22B", "gpt-oss-120b"):
        for precision in ("fp8", "int4", "mxfp4"):
            listed = memory.variant(llm_catalogue(), model, llm(model), precision, "")
            own = memory.variant(llm_catalogue(), "nobody/has-this", llm(model), precision, "")
            assert own.read_bytes == pytest.approx(listed.read_bytes, rel=0.01)


def test_dimensions_of_its_own_are_not_overruled_by_the_catalogue() -> None:
    """A running engine's config.json with other dimensions under a known name keeps its own bytes."""
    own = memory.variant(llm_catalogue(), "Llama-3.1-8B", SMALL, "fp8", "")
    assert own.read_bytes == pytest.approx(800.0 + 2 * 200.0)
    assert own.hidden == SMALL.hidden


def test_kv_precision_alone_halves_the_cache_and_leaves_the_weights() -> None:
    base = llm("Llama-3.1-8B")
    other = memory.variant(llm_catalogue(), base.name, base, "", "fp8")
    assert kv_stored_bytes(other, 10) == kv_stored_bytes(base, 10) / 2
    assert weights.weight_bytes(other) == weights.weight_bytes(base)
    assert memory.variant(llm_catalogue(), base.name, base, "bf16", "") is base


@each_row(("weights", "cache", "field"), [("fp7", "", "weight_precision"), ("", "q4", "kv_precision")])
def test_an_unknown_precision_names_those_there_are(weights: str, cache: str, field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} .* is none of fp32, bf16, fp16, fp8, int8, int4, mxfp4, nvfp4"):
        memory.variant(llm_catalogue(), "Llama-3.1-8B", llm("Llama-3.1-8B"), weights, cache)


@each_row(
    ("call", "named"),
    [
        (lambda: memory.pool_tokens(SMALL, 0.0, 1, 1, 0.9), "gpu_memory_bytes"),
        (lambda: memory.pool_tokens(SMALL, 1e9, 0, 1, 0.9), "gpus"),
        (lambda: memory.pool_tokens(SMALL, 1e9, 1, 0, 0.9), "tp"),
        (lambda: memory.pool_tokens(SMALL, 1e9, 1, 1, 1.01), "usable_ratio"),
        (lambda: memory.pool_tokens(SMALL, 1e9, 1, 1, 0.0), "usable_ratio"),
        (lambda: memory.instance_bytes(SMALL, 1, 1, -1, 10), "running"),
        (lambda: kv_stored_bytes(SMALL, math.nan), "context_tokens"),
        (lambda: least_tp(SMALL, 1e9, 0, 0.9, 10), "domain"),
        (lambda: memory.rule_bytes(-1.0), "params"),
    ],
)
def test_impossible_inputs_are_named(call: object, named: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=named):
        call()


@given(
    spec=USABLE,
    memory_gb=st.floats(8.0, 300.0),
    domain=st.integers(1, 72),
    ratio=st.floats(0.1, 1.0),
    context=st.floats(0.0, 1e6),
)
def test_least_tp_fits_and_is_least(spec: LlmSpec, memory_gb: float, domain: int, ratio: float, context: float) -> None:
    found = least_tp(spec, memory_gb * 1e9, domain, ratio, context)
    if isinstance(found, str):
        assert found.startswith("needs ")
        return
    assert found <= domain
    assert spec.heads % found == 0
    assert memory.pool_bytes(spec, memory_gb * 1e9, found, ratio) >= kv_stored_bytes(spec, context, found)
    half = found // 2
    if half:
        small = memory.pool_bytes(spec, memory_gb * 1e9, half, ratio)
        assert small < max(1.0, kv_stored_bytes(spec, context, half)) or spec.kv_heads % half


@given(spec=USABLE, memory_gb=st.floats(8.0, 300.0), ratio=st.floats(0.1, 0.99))
def test_more_memory_never_holds_fewer_tokens(spec: LlmSpec, memory_gb: float, ratio: float) -> None:
    held = memory.pool_tokens(spec, memory_gb * 1e9, 8, 8, ratio)
    assert held >= 0.0
    assert memory.pool_tokens(spec, memory_gb * 1e9, 8, 8, ratio + 0.01) >= held


def test_layers_with_fewer_kv_heads_than_ranks_are_copied_on_their_own() -> None:
    """Gemma-4-12B: 8 heads in the layers with a window divide over 8 ranks, the one head of the others is copied."""
    llm = llm_catalogue().find("google/gemma-4-12B-it")
    assert llm is not None
    one, eight = (memory.pool_tokens(llm, 80e9, 8, tp, 0.9) for tp in (1, 8))
    assert one / eight == pytest.approx(4 / 3, rel=1e-3)
