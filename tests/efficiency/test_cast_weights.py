"""Weights that the engine casts when it loads them: bytes, peak and MBU by hand."""

from __future__ import annotations

import pytest

from gpumon.efficiency.flops import compute_peak
from gpumon.efficiency.traffic import kv_bytes_per_token
from gpumon.sources.model_facts import look_up
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import Precision
from tests.each_row import each_row

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
MULTIPLIED = 8_030_261_248 - 128_256 * 4096
"""Parameters of Llama 3.1 8B without its embedding table, which is looked up."""


def spec_of(dtype: str, **more: str) -> LlmSpec:
    found = look_up(LLAMA, "", (), llm_catalogue(), (), {"dtype": dtype, **more}).spec
    assert found is not None
    return found


def test_float32_is_four_bytes_a_weight_and_has_the_peak_without_tensor_cores() -> None:
    """30.0 GB a step: at 20 ms and 3.35 TB/s that is 45% MBU; read as bf16 it would be 22%."""
    spec = spec_of("float32")
    assert spec.read_bytes == pytest.approx(4.0 * MULTIPLIED, rel=0.001)
    assert spec.precision is Precision.FP32
    assert spec.read_bytes / 0.020 / 3.35e12 == pytest.approx(0.448, abs=0.002)
    # Keys and values of 32 layers, 8 heads of 128, in four bytes each.
    assert kv_bytes_per_token(spec) == 2 * 32 * 8 * 128 * 4.0
    peak = compute_peak(gpu_catalogue().find("H100 SXM 80GB"), spec)
    assert peak is not None
    assert peak == (pytest.approx(67e12, rel=0.01), Precision.FP32)


@each_row(
    ("hints", "bytes_per_weight"),
    [
        ({"dtype": "auto"}, 2.0),
        ({"dtype": "bfloat16"}, 2.0),
        ({"dtype": "half"}, 2.0),
        ({"dtype": "nonsense"}, 2.0),
        ({"dtype": "torch.float32"}, 4.0),
    ],
)
def test_the_words_of_a_cast(hints: dict[str, str], bytes_per_weight: float) -> None:
    assert spec_of(**hints).read_bytes == pytest.approx(bytes_per_weight * MULTIPLIED, rel=0.001)


def test_a_kv_cache_of_its_own_format_and_quantised_weights_are_not_cast() -> None:
    assert kv_bytes_per_token(spec_of("float32", kv_dtype="fp8")) == 2 * 32 * 8 * 128 * 1.0
    narrow = look_up(
        "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "", (), llm_catalogue(), (), {"dtype": "float32"}
    ).spec
    assert narrow is not None
    assert narrow.precision is Precision.FP8
