"""Quantisation configs of published checkpoints: format, bytes per weight, what stays at 16 bit."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.specs.precision import Precision
from gpumon.specs.llm import RefusedError
from gpumon.specs.quantization import weight_format
from gpumon.specs.weight_format import LINEAR, integer_bytes

LAYERS = 32


def group(bits: int, kind: str, size: int | None, activations: int | None, **more: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": bits, "type": kind, "group_size": size, "symmetric": True, **more},
                "input_activations": None if activations is None else {"num_bits": activations, "type": kind},
            }
        },
        "ignore": ["lm_head"],
    }


CASES = [
    ({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}, "fp8", False, 8),
    ({"quant_method": "fbgemm_fp8"}, "fp8", False, 8),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "int4", True, 4.156),
    ({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}, "int4", True, 4.625),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": True}, "int4", True, 4.125),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True}, "int8", True, 8),
    ({"quant_method": "gptq_marlin", "bits": 3, "group_size": 128, "sym": True}, "int4", True, 3.125),
    ({"quant_method": "mxfp4"}, "mxfp4", False, 4.25),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8", False, 8),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, "nvfp4", False, 4.5),
    ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}, "int4", True, 4.16),
    ({"quant_method": "modelopt_fp4", "quant_algo": "NVFP4"}, "nvfp4", False, 4.5),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "int4", True, 4.127),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", True, 4.5),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", False, 8),
    (group(8, "float", None, 8), "fp8", False, 8),
    (group(8, "float", None, None), "fp8", True, 8),
    (group(8, "int", None, 8), "int8", False, 8),
    (group(8, "int", None, None), "int8", True, 8),
    (group(4, "int", 128, None), "int4", True, 4.125),
    (group(4, "int", 128, 8), "int4", False, 4.125),
    (group(4, "float", 16, 4), "nvfp4", False, 4.5),
    (group(4, "float", 16, None), "nvfp4", True, 4.5),
    (group(4, "float", 32, None), "mxfp4", True, 4.25),
]


@pytest.mark.parametrize(("config", "precision", "weight_only", "bits"), CASES)
def test_formats(config: dict[str, Any], precision: str, weight_only: bool, bits: float) -> None:
    weights = weight_format(config, Precision.BF16, LAYERS)
    assert weights.precision is Precision(precision)
    assert weights.weight_only is weight_only
    assert weights.bytes_per_weight * 8 == pytest.approx(bits, abs=0.002)
    assert weights.base is Precision.BF16


def test_kv_cache_of_the_checkpoint() -> None:
    with_cache = {**group(8, "float", None, 8), "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    assert weight_format(with_cache, Precision.BF16, LAYERS).kv_precision is Precision.FP8
    assert weight_format(group(8, "float", None, 8), Precision.BF16, LAYERS).kv_precision is None
    modelopt = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}
    assert weight_format(modelopt, Precision.BF16, LAYERS).kv_precision is Precision.FP8


@pytest.mark.parametrize(
    ("ignore", "covers"),
    [
        (["lm_head"], LINEAR),
        # nvidia/DeepSeek-V3-0324-NVFP4 lists the attention of every layer, gates and norms
        (
            [f"model.layers.{i}.self_attn*" for i in range(32)] + ["model.layers.3.mlp.gate"],
            ("mlp", "shared", "experts"),
        ),
        (["model.layers.0.self_attn*", "model.layers.1.self_attn*"], LINEAR),
        # moonshotai/Kimi-K2.5: only the experts are narrow
        (
            ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
            ("experts",),
        ),
        ([r"re:.*\.self_attn\.q_proj$", r"re:.*\.mlp\.gate$"], ("mlp", "shared", "experts")),
        (["model.layers.*.mlp.experts"], ("attention", "mlp", "shared")),
        (["re:(a+)+$" * 50, 7, None], LINEAR),
    ],
)
def test_parts_that_the_checkpoint_leaves_wide(ignore: list[Any], covers: tuple[str, ...]) -> None:
    assert weight_format({**group(4, "int", 32, None), "ignore": ignore}, Precision.BF16, LAYERS).covers == covers


def test_gpt_oss_narrows_its_experts_only_and_gptq_may_narrow_the_head() -> None:
    assert weight_format({"quant_method": "mxfp4"}, Precision.BF16, LAYERS).covers == ("experts",)
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "lm_head": True}
    assert "head" in weight_format(gptq, Precision.BF16, LAYERS).covers


def test_of_mixed_formats_the_narrowest_holds_most_weights() -> None:
    mixed = group(8, "float", None, 8)
    mixed["config_groups"]["group_1"] = group(4, "float", 16, 4)["config_groups"]["group_0"]
    assert weight_format(mixed, Precision.BF16, LAYERS).precision is Precision.NVFP4


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, "quant_method '' is not known (known: auto-round, awq"),
        ({"quant_method": "aqlm"}, "quant_method 'aqlm' is not known"),
        ({"quant_method": 4}, "quant_method 4 is not a text"),
        ({"quant_method": "awq", "bits": 7}, "bits 7"),
        ({"quant_method": "awq", "bits": 64}, "bits 64 is not a whole number from 2 to 8"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED"}, "quant_algo 'MIXED' is not known"),
        ({"quant_method": "compressed-tensors"}, "config_groups is missing or empty"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": 1}}, "config_groups.group_0: 1"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {}}}, "group_0: weights is missing"),
        (group(6, "float", None, 8), "group_0.weights: num_bits 6 of type 'float' is not known"),
        (group(7, "int", None, 8), "num_bits 7"),
        ({**group(8, "int", None, 8), "ignore": "lm_head"}, "ignore 'lm_head' is not a list"),
    ],
)
def test_what_is_not_known_is_named(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match="quantization_config") as error:
        weight_format(config, Precision.BF16, LAYERS)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("bits", "size", "zero", "expected"), [(4, 128, True, 0.52), (4, 32, True, 0.58), (8, -1, False, 1.0)]
)
def test_bytes_of_an_integer_weight(bits: int, size: int, zero: bool, expected: float) -> None:
    assert integer_bytes(bits, size, zero) == pytest.approx(expected, abs=0.005)


CHECKPOINT: dict[str, object] = {"quant_method": "compressed-tensors"}
MODELOPT: dict[str, object] = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
EIGHT_BITS: dict[str, object] = {"dynamic": False, "num_bits": 8, "type": "float"}


@pytest.mark.parametrize(
    ("config", "weights", "cache"),
    [
        ({**MODELOPT, "kv_cache_scheme": EIGHT_BITS}, Precision.NVFP4, Precision.FP8),
        ({**MODELOPT, "kv_cache_quant_algo": "NVFP4"}, Precision.NVFP4, Precision.NVFP4),
        ({**MODELOPT, "kv_cache_quant_algo": None, "kv_cache_scheme": None}, Precision.NVFP4, None),
        ({**CHECKPOINT, "format": "dense", "kv_cache_scheme": EIGHT_BITS}, Precision.BF16, Precision.FP8),
        ({**CHECKPOINT, "config_groups": {}, "kv_cache_scheme": EIGHT_BITS}, Precision.BF16, Precision.FP8),
    ],
)
def test_the_format_of_the_kv_cache(config: dict[str, object], weights: Precision, cache: Precision | None) -> None:
    found = weight_format(config, Precision.BF16, 32)
    assert (found.precision, found.kv_precision) == (weights, cache)


def test_a_scheme_of_the_kv_cache_that_makes_no_sense_is_named() -> None:
    with pytest.raises(RefusedError, match="kv_cache_scheme: num_bits 'x' is not a whole number"):
        weight_format({**MODELOPT, "kv_cache_scheme": {"num_bits": "x"}}, Precision.BF16, 32)
