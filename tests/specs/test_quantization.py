"""Quantisation configs of published checkpoints: format, bytes per weight, what stays at 16 bit."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.specs.fields import RefusedError
from gpumon.specs.precision import Precision
from gpumon.specs.quantization import weight_format
from gpumon.specs.weight_format import WeightStorage, integer_bytes
from tests.each_row import each_row

LAYERS = {"attention": 32, "mlp": 4, "shared": 28, "router": 28, "experts": 28}
"""A mixture of experts with four dense layers, as DeepSeek-V3 has three."""
ALL = ("attention", "state layers", "indexer", "mlp", "shared", "experts")
"""What is narrow unless the checkpoint says otherwise: not the router, the LM head and the tables."""


def narrow_parts(config: dict[str, Any]) -> set[str]:
    """Parts whose layers are all narrow."""
    weights = weight_format(config, Precision.BF16, LAYERS)
    return {part for part, stored in weights.parts.items() if stored == weights.narrowest}


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


@each_row(
    ("config", "activations"),
    [
        ({"quant_method": "mxfp4"}, None),
        (group(4, "float", 32, None), None),
        (group(4, "float", 32, 8), Precision.FP8),
        (group(4, "float", 32, 4), Precision.MXFP4),
        (group(4, "float", 16, 4), Precision.NVFP4),
    ],
)
def test_activations_of_fp4_weights(config: dict[str, Any], activations: Precision | None) -> None:
    assert weight_format(config, Precision.BF16, LAYERS).narrowest.activations is activations


def test_experts_in_fp4_of_an_fp8_checkpoint_take_fp8_activations() -> None:
    config = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    experts = weight_format(config, Precision.BF16, LAYERS, "fp4").storage_of("experts")
    assert (experts.precision, experts.activations) == (Precision.MXFP4, Precision.FP8)


@each_row(("config", "precision", "weight_only", "bits"), CASES)
def test_formats(config: dict[str, Any], precision: str, weight_only: bool, bits: float) -> None:
    weights = weight_format(config, Precision.BF16, LAYERS)
    stored = weights.storage_of("experts")
    assert stored == weights.narrowest
    assert stored.precision is Precision(precision)
    assert stored.weight_only is weight_only
    assert stored.bytes_per_weight * 8 == pytest.approx(bits, abs=0.002)
    assert weights.base is Precision.BF16
    for part in ("router", "head", ""):
        assert weights.storage_of(part) == WeightStorage(Precision.BF16, 2.0)


def test_kv_cache_of_the_checkpoint() -> None:
    with_cache = {**group(8, "float", None, 8), "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    assert weight_format(with_cache, Precision.BF16, LAYERS).kv_precision is Precision.FP8
    assert weight_format(group(8, "float", None, 8), Precision.BF16, LAYERS).kv_precision is None
    modelopt = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}
    assert weight_format(modelopt, Precision.BF16, LAYERS).kv_precision is Precision.FP8


@each_row(
    ("ignore", "wide"),
    [
        (["lm_head"], ()),
        # nvidia/DeepSeek-V3-0324-NVFP4 lists the attention of every layer, gates and norms
        ([f"model.layers.{i}.self_attn*" for i in range(32)] + ["model.layers.3.mlp.gate"], ("attention",)),
        # moonshotai/Kimi-K2.5: only the experts are narrow
        (
            ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
            ("attention", "shared", "mlp"),
        ),
        ([r"re:.*\.self_attn\.q_proj$", r"re:.*\.mlp\.gate$"], ("attention",)),
        (["model.layers.*.mlp.experts"], ("experts",)),
        # Encoders and draft heads are no part of the language model.
        (["model.visual*", "mtp.layers.0.mlp.gate_proj", "model.layers.32.self_attn*", "model.embed_tokens"], ()),
        (["re:(a+)+$" * 50, 7, None], ()),
    ],
)
def test_parts_that_the_checkpoint_leaves_wide(ignore: list[Any], wide: tuple[str, ...]) -> None:
    assert narrow_parts({**group(4, "int", 32, None), "ignore": ignore}) == set(ALL) - set(wide)


def test_layers_that_are_left_wide_count_by_their_share() -> None:
    """4.5 bits in 24 of 32 layers and 16 in the others; of the dense MLP one of its four layers."""
    ignore = [f"model.layers.{i}.self_attn.o_proj" for i in range(8)]
    ignore += [f"model.layers.{i}.mlp.down_proj" for i in range(3)]
    weights = weight_format({**group(4, "float", 16, 4), "ignore": ignore}, Precision.BF16, LAYERS)
    assert weights.storage_of("attention") == WeightStorage(
        Precision.NVFP4, (24 * 4.5 + 8 * 16) / 32 / 8, activations=Precision.NVFP4
    )
    assert weights.storage_of("mlp") == WeightStorage(Precision.BF16, (4.5 + 3 * 16) / 4 / 8)
    assert weights.storage_of("experts") == WeightStorage(Precision.NVFP4, 4.5 / 8, activations=Precision.NVFP4)


def test_layers_that_bitsandbytes_skips() -> None:
    """unsloth's dynamic checkpoints name the MLPs of single layers."""
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}
    skipped = {**config, "llm_int8_skip_modules": ["lm_head", "router", "model.layers.1.mlp"]}
    narrow = weight_format(config, Precision.BF16, LAYERS).storage_of("mlp").bytes_per_weight
    weights = weight_format(skipped, Precision.BF16, LAYERS)
    assert weights.storage_of("mlp").bytes_per_weight == pytest.approx((3 * narrow + 2.0) / 4)
    assert weights.storage_of("attention").bytes_per_weight == narrow


def test_whole_layers_that_are_left_wide() -> None:
    """The first layers of a checkpoint in BF16: of each part as many as named, at most all."""
    ignore = [f"model.layers.{i}" for i in range(4)]
    weights = weight_format({**group(8, "float", None, 8), "ignore": ignore}, Precision.BF16, LAYERS)
    assert weights.storage_of("attention").bytes_per_weight == pytest.approx((28 * 1.0 + 4 * 2.0) / 32)
    assert weights.storage_of("mlp") == WeightStorage(Precision.BF16, 2.0)
    assert "mlp" not in weights.parts


def test_gpt_oss_narrows_its_experts_only_and_gptq_may_narrow_the_head() -> None:
    assert narrow_parts({"quant_method": "mxfp4"}) == {"experts"}
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "lm_head": True}
    assert narrow_parts(gptq) == {*ALL, "head"}


def test_of_mixed_formats_for_all_layers_the_narrowest_holds_most_weights() -> None:
    mixed = group(8, "float", None, 8)
    mixed["config_groups"]["group_1"] = group(4, "float", 16, 4)["config_groups"]["group_0"]
    assert weight_format(mixed, Precision.BF16, LAYERS).storage_of("mlp").precision is Precision.NVFP4


def test_groups_that_name_their_modules_hold_for_these() -> None:
    """Attention in FP8 and experts in NVFP4, as compressed-tensors has it."""
    mixed = group(8, "float", None, 8)
    mixed["config_groups"]["group_0"]["targets"] = [r"re:.*self_attn.*_proj$"]
    mixed["config_groups"]["group_1"] = group(4, "float", 16, 4)["config_groups"]["group_0"]
    mixed["config_groups"]["group_1"]["targets"] = [r"re:.*experts.*"]
    weights = weight_format(mixed, Precision.BF16, LAYERS)
    experts = WeightStorage(Precision.NVFP4, 4.5 / 8, activations=Precision.NVFP4)
    assert dict(weights.parts) == {"attention": WeightStorage(Precision.FP8, 1.0), "experts": experts}


def test_modelopts_modules_with_a_format_each() -> None:
    """FP8 attention in 16 of 32 layers, NVFP4 in 8, the other 8 at 16 bit; the larger share names the format."""
    how = {f"model.layers.{i}.self_attn.q_proj": {"quant_algo": "FP8" if i < 16 else "NVFP4"} for i in range(24)}
    how |= {f"model.layers.{i}.mlp.experts": {"quant_algo": "NVFP4"} for i in range(4, 32)}
    how["lm_head"] = {"quant_algo": "FP8"}
    how["model.layers.5.mlp.gate"] = {"quant_algo": None}
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": how}
    weights = weight_format(mixed, Precision.BF16, LAYERS)
    assert weights.storage_of("attention") == WeightStorage(Precision.FP8, (16 * 8 + 8 * 4.5 + 8 * 16) / 32 / 8)
    assert weights.storage_of("experts") == WeightStorage(Precision.NVFP4, 4.5 / 8)
    assert weights.storage_of("head") == WeightStorage(Precision.FP8, 1.0)
    assert set(weights.parts) == {"attention", "experts", "head"}


def test_the_configs_own_word_for_its_experts() -> None:
    """DeepSeek-V4: FP8 but for the experts, which are `fp4` (MXFP4)."""
    weights = weight_format({"quant_method": "fp8"}, Precision.BF16, LAYERS, "fp4")
    assert weights.storage_of("attention").precision is Precision.FP8
    assert weights.storage_of("experts") == WeightStorage(Precision.MXFP4, 4.25 / 8, activations=Precision.FP8)
    with pytest.raises(RefusedError, match="expert_dtype 'int3' is not known"):
        weight_format({"quant_method": "fp8"}, Precision.BF16, LAYERS, "int3")


@each_row(
    ("config", "problem"),
    [
        ({}, "quant_method '' is not known (known: auto-round, awq"),
        ({"quant_method": "aqlm"}, "quant_method 'aqlm' is not known"),
        ({"quant_method": 4}, "quant_method 4 is not a text"),
        ({"quant_method": "awq", "bits": 7}, "bits 7"),
        ({"quant_method": "gptq"}, "bits is missing"),
        ({"quant_method": "awq", "bits": 64}, "bits 64 is not a whole number from 2 to 8"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED"}, "quant_algo 'MIXED' is not known"),
        (
            {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {}},
            "quantized_layers is missing or empty, and quant_algo is MIXED_PRECISION",
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "FP8", "quantized_layers": {"x.mlp": {"quant_algo": "FP3"}}},
            "quantization_config: quant_algo 'FP3' is not known",
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "FP8", "quantized_layers": {"x.mlp": 4}},
            "quantized_layers of 'x.mlp': 4 is not an object",
        ),
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


@each_row(("bits", "size", "zero", "expected"), [(4, 128, True, 0.52), (4, 32, True, 0.58), (8, -1, False, 1.0)])
def test_bytes_of_an_integer_weight(bits: int, size: int, zero: bool, expected: float) -> None:
    assert integer_bytes(bits, size, zero) == pytest.approx(expected, abs=0.005)


CHECKPOINT: dict[str, object] = {"quant_method": "compressed-tensors"}
MODELOPT: dict[str, object] = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
EIGHT_BITS: dict[str, object] = {"dynamic": False, "num_bits": 8, "type": "float"}


@each_row(
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
    found = weight_format(config, Precision.BF16, LAYERS)
    assert (found.storage_of("mlp").precision, found.kv_precision) == (weights, cache)


def test_a_scheme_of_the_kv_cache_that_makes_no_sense_is_named() -> None:
    with pytest.raises(RefusedError, match="kv_cache_scheme: num_bits 'x' is not a whole number"):
        weight_format({**MODELOPT, "kv_cache_scheme": {"num_bits": "x"}}, Precision.BF16, LAYERS)
