"""Formats of the smaller quantisers: bytes of published checkpoints, and what is refused."""

from __future__ import annotations

from typing import Any, Final

import pytest

from gpumon.efficiency.weights import weight_bytes
from gpumon.specs.fields import RefusedError
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llm_config import llm_from_config
from gpumon.specs.precision import Precision
from tests.each_row import each_row

LLAMA_2_7B: Final = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "vocab_size": 32000, "torch_dtype": "float16", "tie_word_embeddings": False,
}  # fmt: skip
LLAMA_3B: Final = {
    "model_type": "llama", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28,
    "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
    "torch_dtype": "bfloat16", "tie_word_embeddings": True,
}  # fmt: skip
LLAMA_70B: Final = {
    **LLAMA_3B, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
    "tie_word_embeddings": False,
}  # fmt: skip
BITNET: Final = {
    "model_type": "bitnet", "hidden_size": 2560, "intermediate_size": 6912, "num_hidden_layers": 30,
    "num_attention_heads": 20, "num_key_value_heads": 5, "vocab_size": 128256, "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
}  # fmt: skip
LINEAR_70B: Final = 80 * (2 * 8192 * (8192 + 1024) + 3 * 8192 * 28672)
TABLES_70B: Final = 2 * 2 * 128256 * 8192
"""Bytes of look-up table and LM head at 16 bit."""
MX: Final = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
FP8: Final = {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}


def read(config: dict[str, Any], **quantization: Any) -> LlmSpec:
    return llm_from_config({**config, "quantization_config": quantization}, "m", "config.json")


@each_row(
    ("config", "quantization", "file_gb"),
    [
        # ISTA-DASLab/Llama-2-7b-AQLM-2Bit-1x16-hf and -2x8-hf: 2.4 and 2.2 GB (README of AQLM), a codebook a matrix.
        (
            LLAMA_2_7B,
            {
                "quant_method": "aqlm", "in_group_size": 8, "nbits_per_codebook": 16, "num_codebooks": 1,
                "out_group_size": 1, "linear_weights_not_to_quantize": ["model.embed_tokens.weight", "lm_head.weight"],
            },
            2.38,
        ),
        (
            LLAMA_2_7B,
            {"quant_method": "aqlm", "in_group_size": 8, "nbits_per_codebook": 8, "num_codebooks": 2},
            2.145,
        ),
        # mlx-community/Llama-3.2-3B-Instruct-4bit: 1.8 GB, look-up table and all.
        (LLAMA_3B, {"group_size": 64, "bits": 4}, 1.807),
        # microsoft/bitnet-b1.58-2B-4T: 1.2 GB; -bf16 has 16 bit and rounds at each step.
        (BITNET, {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}, 1.178),
        (BITNET, {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online"}, 4.826),
        (
            LLAMA_70B,
            {
                "quant_method": "quark", "exclude": ["lm_head"],
                "global_quant_config": {"weight": MX, "input_tensors": {"dtype": "fp4", "is_dynamic": True}},
            },
            (LINEAR_70B * 0.53125 + TABLES_70B) / 1e9,
        ),
        (
            LLAMA_70B,
            {
                "quant_method": "quark", "exclude": ["lm_head", "re:.*k_proj"],
                "global_quant_config": {"weight": FP8, "input_tensors": FP8},
            },
            (LINEAR_70B + 80 * 8192 * 1024 + TABLES_70B) / 1e9,
        ),
        (
            LLAMA_70B,
            {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {}}}},
            (LINEAR_70B * (0.5 + 4 / 128) + TABLES_70B) / 1e9,
        ),
        (
            LLAMA_70B,
            {"quant_method": "torchao", "quant_type": "int8_weight_only", "include_input_output_embeddings": True},
            (LINEAR_70B + TABLES_70B / 2) / 1e9,
        ),
        (
            LLAMA_70B,
            {
                "quant_method": "hqq", "skip_modules": ["lm_head"],
                "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}},
            },
            (LINEAR_70B * (0.5 + 4 / 64) + TABLES_70B) / 1e9,
        ),
        (
            LLAMA_70B,
            {"quant_method": "exl3", "bits": 3.5, "head_bits": 6},
            (LINEAR_70B * 3.5 / 8 + TABLES_70B / 2 * (1 + 6 / 16)) / 1e9,
        ),
    ],
)  # fmt: skip
def test_bytes(config: dict[str, Any], quantization: dict[str, Any], file_gb: float) -> None:
    assert weight_bytes(read(config, **quantization)) == pytest.approx(file_gb * 1e9, rel=0.002)


def test_single_modules_of_mlx() -> None:
    """An entry for a module has bits of its own, or says that it is not quantised."""
    table = {"bits": 4, "group_size": 64}
    plain = weight_bytes(llm_from_config({**LLAMA_3B, "quantization": table}, "m", "config.json"))
    entry = {"model.layers.0.mlp.up_proj": {"bits": 8, "group_size": 64}, "model.layers.1.mlp.up_proj": False}
    mixed = weight_bytes(llm_from_config({**LLAMA_3B, "quantization": {**table, **entry}}, "m", "config.json"))
    assert mixed - plain == pytest.approx(3072 * 8192 * (0.5 + 2.0 - 0.5625), rel=0.001)
    assert (
        llm_from_config({**LLAMA_3B, "quantization": {**table, "mode": "mxfp4"}}, "m", "c").precision is Precision.MXFP4
    )


def test_modules_of_torchao_hqq_and_exl3() -> None:
    int8 = {"_type": "Int8WeightOnlyConfig", "_data": {"group_size": None}}
    by_module = {"module_fqn_to_config": {"_default": int8, "re:.*down_proj": None}}
    mixed = read(LLAMA_3B, quant_method="torchao", quant_type={"default": {"_type": "FqnToConfig", "_data": by_module}})
    down = 28 * 3072 * 8192
    linear = 28 * (2 * 3072 * (3072 + 1024) + 3 * 3072 * 8192)
    table = 2 * 128256 * 3072
    assert weight_bytes(mixed) == pytest.approx(linear + down + table, rel=0.001)
    params = {"weight_quant_params": {"nbits": 3, "group_size": 64}}
    hqq = read(LLAMA_3B, quant_method="hqq", quant_config={"mlp.down_proj": params})
    assert weight_bytes(hqq) == pytest.approx(2 * linear + table - down * (2 - 0.4 - 4 / 64), rel=0.001)
    storage = {"model.layers.0.mlp.up_proj": {"quant_format": "exl3", "bits_per_weight": 4}}
    exl3 = read(LLAMA_3B, quant_method="exl3", bits=4.0, tensor_storage=storage)
    assert weight_bytes(exl3) == pytest.approx(2 * linear + table - 3072 * 8192 * 1.5, rel=0.0001)


def test_activations_and_kv_cache_of_quark() -> None:
    spec = read(
        LLAMA_70B,
        quant_method="quark",
        global_quant_config={"weight": MX, "input_tensors": {"dtype": "fp4"}},
        kv_cache_quant_config={"*k_proj": {"output_tensors": {"dtype": "fp8_e4m3"}}},
        layer_quant_config={"*down_proj": {"weight": [FP8, {"dtype": "int4", "qscheme": "per_channel"}]}},
    )
    assert (spec.precision, spec.activations, spec.kv_precision) == (Precision.MXFP4, Precision.MXFP4, Precision.FP8)
    odd = {"weight": MX, "input_tensors": {"dtype": ["fp4"]}}
    assert read(LLAMA_70B, quant_method="quark", global_quant_config=odd).activations is None


@each_row(
    ("quantization", "why"),
    [
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "bfp16"}}}, "dtype"),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "IntxWeightOnlyConfig"}}}, "quant_type"),
        ({"quant_method": "torchao"}, "quant_type"),
        ({"quant_method": "hqq"}, "quant_config is missing"),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 5}}}, "nbits"),
        (
            {
                "quant_method": "hqq",
                "quant_config": {"weight_quant_params": {"nbits": 4}, "scale_quant_params": {"nbits": 8}},
            },
            "scale_quant_params",
        ),
        ({"quant_method": "mlx", "bits": 4, "group_size": 64, "mode": "other"}, "mode"),
        ({"quant_method": "aqlm"}, "nbits_per_codebook is missing"),
        ({"quant_method": "bitnet", "quantization_mode": "later"}, "quantization_mode"),
        ({"quant_method": "exl3"}, "bits"),
        ({"quant_method": "exl3", "bits": 4, "scope": "routed_experts_only"}, "tensor_storage is not"),
    ],
)  # fmt: skip
def test_what_a_config_leaves_open_is_refused(quantization: dict[str, Any], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        read(LLAMA_3B, **quantization)
