"""FLOPs per token by hand, by property, and the peak that they are measured against."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency import flops
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec, State, latent_attention
from gpumon.specs.precision import Precision
from tests.each_row import each_row
from tests.efficiency.small_llm import FULL, SMALL
from tests.records import replace

LATENT = latent_attention(3, heads=4, rank=16, rope_dim=4, key_dim=12, value_dim=8)
MLA = replace(SMALL, attention=(LATENT,), kv_heads=1)


def llm(model_id: str) -> LlmSpec:
    found = llm_catalogue().find(model_id)
    assert found is not None
    return found


def gpu(name: str) -> GpuSpec:
    return gpu_catalogue().find(name)


@each_row(
    ("context", "expected"),
    [
        (0, 2 * 1000),
        (50, 2000 + 4 * 4 * 8 * (3 * 50 + 2 * 50)),
        (1000, 2000 + 4 * 4 * 8 * (3 * 1000 + 2 * 100)),
    ],
)
def test_decode_by_hand(context: float, expected: float) -> None:
    assert flops.decode_flops_per_token(SMALL, context) == expected


@each_row(
    ("new", "cached", "expected"),
    [
        (0, 0, 2 * (1000 - 200)),
        (100, 0, 1600 + 128 * (3 * 50 + 2 * 50)),
        (100, 400, 1600 + 128 * (3 * 450 + 2 * 100)),
        # The window is full from the 100th token on: 100 tokens see 50 on average, 100 see 100.
        (200, 0, 1600 + 128 * (3 * 100 + 2 * 75)),
    ],
)
def test_prefill_by_hand(new: float, cached: float, expected: float) -> None:
    assert flops.prefill_flops_per_token(SMALL, new, cached) == expected


def test_the_head_is_counted_once_a_request_in_prefill_and_in_each_decode_token() -> None:
    assert flops.head_flops(SMALL) == 2 * 20 * 10
    lone_token = flops.prefill_flops_per_token(SMALL, 0.0) + flops.head_flops(SMALL)
    assert lone_token == flops.decode_flops_per_token(SMALL, 0.0)


def test_mla_decodes_absorbed_and_prefills_in_full() -> None:
    assert flops.decode_flops_per_token(MLA, 10) == 2000 + 2 * 4 * (16 + 4 + 16) * 3 * 10
    assert flops.prefill_flops_per_token(MLA, 20) == 1600 + 2 * 4 * (12 + 8) * 3 * 10


def test_a_state_is_updated_and_read_by_each_token_at_any_context() -> None:
    state = State("delta net", 4, elements=500.0, flops=3500.0)
    hybrid = replace(SMALL, attention=(FULL,), states=(state,))
    assert flops.decode_flops_per_token(hybrid, 10) == 2000 + 4 * 3500 + 128 * 3 * 10
    assert flops.prefill_flops_per_token(hybrid, 20) == 1600 + 4 * 3500 + 128 * 3 * 10


def test_palm_forward_pass() -> None:
    """2N + 4*L*H*Q*T (arXiv 2204.02311, appendix B, a third of the training count) for a dense model."""
    model = llm("meta-llama/Llama-3.1-8B")
    assert flops.decode_flops_per_token(model, 4096) == 2 * model.matmul_params + 4 * 32 * 32 * 128 * 4096


@given(st.floats(0, 1e7), st.floats(0, 1e7))
def test_decode_grows_with_the_context(a: float, b: float) -> None:
    low, high = sorted((a, b))
    for model in (SMALL, MLA):
        assert flops.decode_flops_per_token(model, low) <= flops.decode_flops_per_token(model, high)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_prompt_in_two_parts_costs_what_it_costs_at_once(first: float, second: float) -> None:
    for model in (SMALL, MLA):
        at_once = (first + second) * flops.prefill_flops_per_token(model, first + second)
        parts = first * flops.prefill_flops_per_token(model, first)
        parts += second * flops.prefill_flops_per_token(model, second, first)
        assert parts == pytest.approx(at_once)


@each_row("bad", [-1.0, math.nan, math.inf])
def test_bad_lengths_are_named(bad: float) -> None:
    with pytest.raises(ValueError, match="context_tokens"):
        flops.decode_flops_per_token(SMALL, bad)
    with pytest.raises(ValueError, match="new_tokens"):
        flops.prefill_flops_per_token(SMALL, bad)
    with pytest.raises(ValueError, match="cached_tokens"):
        flops.prefill_flops_per_token(SMALL, 1.0, bad)


@each_row(
    ("gpu_name", "model_id", "precision", "tflops"),
    [
        ("H100 SXM 80GB", "Llama-3.1-8B", Precision.BF16, 989.4),
        ("H100 SXM 80GB", "Llama-3.1-8B-FP8", Precision.FP8, 1978.9),
        ("A100 SXM 80GB", "Llama-3.1-8B-FP8", Precision.BF16, 312.0),
        ("A100 SXM 80GB", "Llama-3.1-8B-quantized.w8a8", Precision.INT8, 624.0),
        ("A100 SXM 80GB", "Llama-3.1-8B-quantized.w8a16", Precision.BF16, 312.0),
        ("H100 SXM 80GB", "Llama-3.1-8B-AWQ", Precision.BF16, 989.4),
        ("B200 SXM 180GB", "Llama-3.1-8B-AWQ", Precision.BF16, 2250.0),
        ("H100 SXM 80GB", "Llama-3.1-8B-W4A8", Precision.FP8, 1978.9),
        ("A100 SXM 80GB", "Llama-3.1-8B-W4A8", Precision.INT8, 624.0),
        ("H100 SXM 80GB", "openai/gpt-oss-120b", Precision.BF16, 989.4),
        ("B200 SXM 180GB", "openai/gpt-oss-120b", Precision.BF16, 2250.0),
        ("H100 SXM 80GB", "deepseek-ai/DeepSeek-V4-Flash", Precision.BF16, 989.4),
        ("B200 SXM 180GB", "deepseek-ai/DeepSeek-V4-Flash", Precision.FP8, 4500.0),
        ("B200 SXM 180GB", "moonshotai/Kimi-K3", Precision.BF16, 2250.0),
        ("H200 SXM 141GB", "nvidia/Llama-3.3-70B-Instruct-NVFP4", Precision.BF16, 989.4),
        ("B200 SXM 180GB", "nvidia/Llama-3.3-70B-Instruct-NVFP4", Precision.NVFP4, 9000.0),
        ("B200 SXM 180GB", "Llama-3.3-70B-Instruct-NVFP4A16", Precision.BF16, 2250.0),
        ("T4", "Llama-3.1-8B", Precision.FP16, 65.0),
        ("V100 SXM2 32GB", "Llama-2-7b-hf", Precision.FP16, 125.0),
        ("RTX 5090", "Llama-3.1-8B-FP8", Precision.FP8, 838.0),
        ("RTX 4090", "Llama-3.1-8B-FP8", Precision.FP8, 330.3),
    ],
)
def test_the_peak_is_that_of_the_arithmetic(gpu_name: str, model_id: str, precision: Precision, tflops: float) -> None:
    assert flops.compute_peak(gpu(gpu_name), llm(model_id)) == (pytest.approx(tflops * 1e12), precision)


@each_row(
    ("gpu_name", "model_id", "assumed"),
    [
        ("B200 SXM 180GB", "openai/gpt-oss-120b", True),
        ("H100 SXM 80GB", "openai/gpt-oss-120b", False),
        ("B200 SXM 180GB", "deepseek-ai/DeepSeek-V4-Flash", False),
        ("B200 SXM 180GB", "moonshotai/Kimi-K3", False),
        ("B200 SXM 180GB", "nvidia/Llama-3.3-70B-Instruct-NVFP4", False),
    ],
)
def test_the_peak_is_assumed_where_nothing_tells_the_activations(gpu_name: str, model_id: str, assumed: bool) -> None:
    assert flops.assumed(gpu(gpu_name), llm(model_id)) is assumed


def test_no_peak_is_none_and_never_zero() -> None:
    unknown = GpuSpec("x", "", 1e12, 0.0, {Precision.FP8: 0.0})
    assert flops.compute_peak(unknown, SMALL) is None
