"""Quantisation configs of published checkpoints: format, bytes per weight, what stays at 16 bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpumon.specs.fields import RefusedError
from gpumon.specs.llm_config import llm_from_config
from gpumon.specs.modules import ModuleKind, ModuleList
from gpumon.specs.precision import Precision
from gpumon.specs.quantization import weight_format
from gpumon.specs.weight_format import WeightFormat, WeightStorage, integer_bytes
from tests.each_row import each_row


def layers(name: str, part: str, numbers: range, experts: int = 0) -> ModuleKind:
    return ModuleKind(name, part, (64, 64), tuple(numbers), experts)


MODULES = ModuleList(
    (
        *(layers(f"self_attn.{name}_proj", "attention", range(32)) for name in "qkvo"),
        layers("linear_attn.in_proj_qkv", "state layers", range(32)),
        layers("linear_attn.out_proj", "state layers", range(32)),
        layers("self_attn.indexer.wq_b", "indexer", range(32)),
        *(layers(f"mlp.{name}_proj", "mlp", range(4)) for name in ("gate", "up", "down")),
        layers("mlp.gate", "router", range(4, 32)),
        *(layers(f"mlp.shared_experts.{name}_proj", "shared", range(4, 32)) for name in ("gate", "up", "down")),
        *(layers(f"mlp.experts.{{}}.{name}_proj", "experts", range(4, 32), 8) for name in ("gate", "up", "down")),
        ModuleKind("lm_head", "head", (64, 64)),
        ModuleKind("model.embed_tokens", "tables", (64, 64)),
    ),
    experts=8,
    experts_per_token=2,
)
"""A mixture of experts with four dense layers, as DeepSeek-V3 has three."""
ALL = ("attention", "state layers", "indexer", "mlp", "shared", "experts")
"""What is narrow unless the checkpoint says otherwise: not the router, the LM head and the tables."""


def formats(weights: WeightFormat, part: str) -> dict[WeightStorage, float]:
    """Format -> share of a part's parameters that are in it."""
    counts: dict[WeightStorage, int] = {}
    for stored in weights.formats_of(MODULES):
        if stored.kind.part == part:
            for storage, count in stored.counts.items():
                counts[storage] = counts.get(storage, 0) + count
    return {storage: count / sum(counts.values()) for storage, count in counts.items()}


def bits(weights: WeightFormat, part: str) -> float:
    """Mean bits of a weight of a part."""
    return 8.0 * sum(share * storage.bytes_per_weight for storage, share in formats(weights, part).items())


def narrow_parts(config: dict[str, Any]) -> set[str]:
    """Parts whose modules are all narrow."""
    weights = weight_format(config, Precision.BF16)
    parts = {kind.part for kind in MODULES.kinds}
    return {part for part in parts if formats(weights, part) == {weights.narrowest: 1.0}}


def wide_parts(config: dict[str, Any]) -> set[str]:
    """Parts whose modules are all at 16 bit."""
    weights = weight_format(config, Precision.BF16)
    parts = {kind.part for kind in MODULES.kinds}
    return {part for part in parts if bits(weights, part) == 16.0}


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
    assert weight_format(config, Precision.BF16).narrowest.activations is activations


def test_experts_in_fp4_of_an_fp8_checkpoint_take_fp8_activations() -> None:
    config = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    experts = weight_format(config, Precision.BF16, "fp4").storage_of("experts")
    assert (experts.precision, experts.activations) == (Precision.MXFP4, Precision.FP8)


@each_row(("config", "precision", "weight_only", "bits"), CASES)
def test_formats(config: dict[str, Any], precision: str, weight_only: bool, bits: float) -> None:
    weights = weight_format(config, Precision.BF16)
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
    assert weight_format(with_cache, Precision.BF16).kv_precision is Precision.FP8
    assert weight_format(group(8, "float", None, 8), Precision.BF16).kv_precision is None
    modelopt = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}
    assert weight_format(modelopt, Precision.BF16).kv_precision is Precision.FP8


@each_row(
    ("ignore", "wide"),
    [
        (["lm_head"], ()),
        # nvidia/DeepSeek-V3-0324-NVFP4 lists the attention of every layer, gates and norms
        ([f"model.layers.{i}.self_attn*" for i in range(32)] + ["model.layers.3.mlp.gate"], ("attention", "indexer")),
        # moonshotai/Kimi-K2.5: only the experts are narrow
        (
            ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
            ("attention", "indexer", "shared", "mlp"),
        ),
        ([r"re:.*\.self_attn\.(qkv|o)_proj$", r"re:.*\.mlp\.gate$"], ("attention",)),
        (["model.layers.*.mlp.experts"], ("experts",)),
        # Encoders and draft heads are no part of the language model.
        (["model.visual*", "mtp.layers.0.mlp.gate_proj", "model.layers.32.self_attn*", "model.embed_tokens"], ()),
        ([7, None], ()),
        # GPTQ-like skip lists as regular expressions, one per layer or with alternatives.
        ([rf"re:.*layers\.{i}\.mlp\.(gate|up|down)_proj$" for i in range(4)], ("mlp",)),
        ([r"re:.*layers\.(0|1|2|3)\.mlp\.(gate|up|down)_proj$"], ("mlp",)),
        ([r"re:.*layers\.[0-3]\.mlp\..*_proj$"], ("mlp",)),
        ([r"re:.*layers\.\d+\.self_attn\.(q|k|v|o)_proj$"], ("attention",)),
        ([r"re:model\.layers\.\d+\.linear_attn\..*"], ("state layers",)),
    ],
)
def test_parts_that_the_checkpoint_leaves_wide(ignore: list[Any], wide: tuple[str, ...]) -> None:
    config = {**group(4, "int", 32, None), "ignore": ignore}
    assert narrow_parts(config) == set(ALL) - set(wide)
    assert wide_parts(config) == {"router", "head", "tables", *wide}


def test_modules_that_are_left_wide_count_by_themselves() -> None:
    """One of the four projections in 8 of 32 layers, and one of the three of the MLP in 3 of 4."""
    ignore = [f"model.layers.{i}.self_attn.o_proj" for i in range(8)]
    ignore += [f"model.layers.{i}.mlp.down_proj" for i in range(3)]
    weights = weight_format({**group(4, "float", 16, 4), "ignore": ignore}, Precision.BF16)
    assert bits(weights, "attention") == pytest.approx(4.5 + 8 / 32 / 4 * 11.5)
    assert bits(weights, "mlp") == pytest.approx(4.5 + 3 / 4 / 3 * 11.5)
    experts = WeightStorage(Precision.NVFP4, 4.5 / 8, activations=Precision.NVFP4)
    assert formats(weights, "experts") == {experts: 1.0}


def test_a_rule_for_queries_counts_queries_alone() -> None:
    weights = weight_format({**group(8, "float", None, 8), "ignore": [r"re:.*self_attn\.q_proj$"]}, Precision.BF16)
    assert bits(weights, "attention") == pytest.approx(8.0 + 8.0 / 4)
    fused = weight_format({**group(8, "float", None, 8), "ignore": [r"re:.*self_attn\.qkv_proj$"]}, Precision.BF16)
    assert bits(fused, "attention") == pytest.approx(8.0 + 3 * 8.0 / 4)


@each_row(
    ("pattern", "experts"),
    [
        (r"re:.*\.experts\.7\..*", 1),
        (r"re:.*experts\.(0|3)\..*", 2),
        (r"re:.*experts\.[0-5]\.", 6),
        (r"re:.*experts\.\d+\.", 8),
        (r"re:.*experts\.\d\d\.", 0),
        ("model.layers.*.mlp.experts.7.*", 1),
    ],
)
def test_rules_for_single_experts_count_these(pattern: str, experts: int) -> None:
    weights = weight_format({**group(8, "float", None, 8), "ignore": [pattern]}, Precision.BF16)
    assert bits(weights, "experts") == pytest.approx(8.0 + experts)


def test_experts_that_are_listed_one_by_one() -> None:
    names = [f"model.layers.{layer}.mlp.experts.{expert}.down_proj" for layer in range(4, 32) for expert in (1, 9)]
    weights = weight_format({**group(8, "float", None, 8), "ignore": names}, Precision.BF16)
    assert bits(weights, "experts") == pytest.approx(8.0 + 8.0 / 8 / 3)


def test_globs_and_names_below_another_path_are_the_same_modules() -> None:
    for begin in ("model.language_model.layers", "language_model.model.layers", "model.layers"):
        weights = weight_format({**group(8, "float", None, 8), "ignore": [f"{begin}.4.mlp*"]}, Precision.BF16)
        assert bits(weights, "experts") == pytest.approx(8.0 + 8.0 / 28)
        assert bits(weights, "attention") == 8.0
        named = weight_format({**group(8, "float", None, 8), "ignore": [f"{begin}.4.mlp.experts"]}, Precision.BF16)
        assert bits(named, "experts") == pytest.approx(8.0 + 8.0 / 28)


def test_words_of_other_families_speak_of_the_part() -> None:
    weights = weight_format({**group(8, "float", None, 8), "ignore": ["attn", "*.ffn.fc1"]}, Precision.BF16)
    assert (bits(weights, "attention"), bits(weights, "mlp")) == (16.0, 16.0)


GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}


def test_modules_that_gptqs_dynamic_rules_leave_wide_or_give_other_bits() -> None:
    rules = {"-:.*attn.*": {}, "-:.*shared_expert.*": {}, "+:.*layers\\.[0-1]\\.mlp.*": {"bits": 8}, "lm_head": {}}
    weights = weight_format({**GPTQ, "dynamic": rules}, Precision.BF16)
    for part in ("attention", "state layers", "indexer", "shared", "head"):
        assert bits(weights, part) == 16.0
    assert bits(weights, "experts") == pytest.approx(4.125)
    assert bits(weights, "mlp") == pytest.approx((2 * 4.125 + 2 * 8.125) / 4)


def test_modules_that_autorounds_extra_config_leaves_wide_or_gives_other_bits() -> None:
    """Names one by one, as AutoRound writes them."""
    extra: dict[str, Any] = {
        f"model.layers.{i}.self_attn.{name}_proj": {"bits": 16} for i in range(32) for name in "qkvo"
    }
    extra |= {f"model.layers.{i}.mlp.down_proj": {"bits": 8, "group_size": 32} for i in range(2)}
    config = {**GPTQ, "quant_method": "auto-round", "extra_config": extra}
    weights = weight_format(config, Precision.BF16)
    assert bits(weights, "attention") == 16.0
    assert bits(weights, "mlp") == pytest.approx(4.125 + 2 / 4 / 3 * (8.5 - 4.125))
    assert bits(weights, "experts") == pytest.approx(4.125)


def test_the_first_rule_and_the_first_group_that_match_count() -> None:
    """GPTQModel and vLLM return at the first pattern that fits."""
    first = {"+:.*down_proj.*": {"bits": 8}, "-:.*mlp.*": {}, "+:.*q_proj.*": {"group_size": 32}}
    weights = weight_format({**GPTQ, "dynamic": first}, Precision.BF16)
    assert bits(weights, "mlp") == pytest.approx((8.125 + 2 * 16) / 3)
    assert bits(weights, "attention") == pytest.approx((4.5 + 3 * 4.125) / 4)
    groups = group(8, "float", None, 8)
    groups["config_groups"]["group_0"]["targets"] = [r"re:.*self_attn.*"]
    groups["config_groups"]["group_1"] = group(4, "float", 16, 4)["config_groups"]["group_0"]
    groups["config_groups"]["group_1"]["targets"] = [r"re:.*_proj$"]
    mixed = weight_format(groups, Precision.BF16)
    assert (bits(mixed, "attention"), bits(mixed, "experts")) == (8.0, 4.5)


def test_a_name_of_autorounds_counts_more_than_a_pattern() -> None:
    extra = {"model.layers.0.mlp.up_proj": {"bits": 16}, r".*mlp\.up_proj": {"bits": 8}}
    weights = weight_format({**GPTQ, "quant_method": "auto-round", "extra_config": extra}, Precision.BF16)
    assert bits(weights, "mlp") == pytest.approx(4.125 * 2 / 3 + (16 + 3 * 8.125) / 4 / 3)


def test_layers_that_bitsandbytes_skips() -> None:
    """unsloth's dynamic checkpoints name the MLPs of single layers."""
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}
    skipped = {**config, "llm_int8_skip_modules": ["lm_head", "router", "model.layers.1.mlp"]}
    narrow = weight_format(config, Precision.BF16).storage_of("mlp").bytes_per_weight
    weights = weight_format(skipped, Precision.BF16)
    assert bits(weights, "mlp") == pytest.approx((3 * 8 * narrow + 16.0) / 4)
    assert bits(weights, "attention") == pytest.approx(8 * narrow)


def test_whole_layers_that_are_left_wide() -> None:
    """The first layers of a checkpoint in BF16: of each part as many as named, at most all."""
    ignore = [f"model.layers.{i}" for i in range(4)]
    weights = weight_format({**group(8, "float", None, 8), "ignore": ignore}, Precision.BF16)
    assert bits(weights, "attention") == pytest.approx((28 * 8 + 4 * 16) / 32)
    assert bits(weights, "mlp") == 16.0


def test_gpt_oss_narrows_its_experts_only_and_gptq_may_narrow_the_head() -> None:
    assert narrow_parts({"quant_method": "mxfp4"}) == {"experts"}
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "lm_head": True}
    assert narrow_parts(gptq) == {*ALL, "head"}


def test_of_mixed_formats_for_all_layers_the_narrowest_holds_most_weights() -> None:
    mixed = group(8, "float", None, 8)
    mixed["config_groups"]["group_1"] = group(4, "float", 16, 4)["config_groups"]["group_0"]
    assert weight_format(mixed, Precision.BF16).storage_of("mlp").precision is Precision.NVFP4


def test_groups_that_name_their_modules_hold_for_these() -> None:
    """Attention in FP8 and experts in NVFP4, as compressed-tensors has it."""
    mixed = group(8, "float", None, 8)
    mixed["config_groups"]["group_0"]["targets"] = [r"re:.*self_attn.*_proj$"]
    mixed["config_groups"]["group_1"] = group(4, "float", 16, 4)["config_groups"]["group_0"]
    mixed["config_groups"]["group_1"]["targets"] = [r"re:.*experts.*"]
    weights = weight_format(mixed, Precision.BF16)
    experts = WeightStorage(Precision.NVFP4, 4.5 / 8, activations=Precision.NVFP4)
    assert formats(weights, "attention") == {WeightStorage(Precision.FP8, 1.0): 1.0}
    assert formats(weights, "experts") == {experts: 1.0}
    # The experts that every token goes through have the word in their name, too.
    assert formats(weights, "shared") == {experts: 1.0}
    assert bits(weights, "mlp") == 16.0


def test_modelopts_modules_with_a_format_each() -> None:
    """Queries in FP8 in 16 of 32 layers, in NVFP4 in 8, and in the other 8 at 16 bit."""
    how = {f"model.layers.{i}.self_attn.q_proj": {"quant_algo": "FP8" if i < 16 else "NVFP4"} for i in range(24)}
    how |= {f"model.layers.{i}.mlp.experts": {"quant_algo": "NVFP4"} for i in range(4, 32)}
    how["lm_head"] = {"quant_algo": "FP8"}
    how["model.layers.5.mlp.gate"] = {"quant_algo": None}
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": how}
    weights = weight_format(mixed, Precision.BF16)
    assert bits(weights, "attention") == pytest.approx(((16 * 8 + 8 * 4.5 + 8 * 16) / 32 + 3 * 16) / 4)
    assert formats(weights, "experts") == {WeightStorage(Precision.NVFP4, 4.5 / 8): 1.0}
    assert formats(weights, "head") == {WeightStorage(Precision.FP8, 1.0): 1.0}
    assert (bits(weights, "mlp"), bits(weights, "router")) == (16.0, 16.0)


def test_the_configs_own_word_for_its_experts() -> None:
    """DeepSeek-V4: FP8 but for the experts, which are `fp4` (MXFP4)."""
    weights = weight_format({"quant_method": "fp8"}, Precision.BF16, "fp4")
    assert weights.storage_of("attention").precision is Precision.FP8
    assert weights.storage_of("experts") == WeightStorage(Precision.MXFP4, 4.25 / 8, activations=Precision.FP8)
    with pytest.raises(RefusedError, match="expert_dtype 'int3' is not known"):
        weight_format({"quant_method": "fp8"}, Precision.BF16, "int3")


@each_row(
    ("config", "problem"),
    [
        ({}, "quant_method '' is not known (known: aqlm, auto-round, awq"),
        ({"quant_method": "quip"}, "quant_method 'quip' is not known"),
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
        ({**group(8, "int", None, 8), "ignore": ["re:(a+)+$"]}, "expression '(a+)+$' is too complicated"),
        ({**group(8, "int", None, 8), "ignore": ["re:(.|.)*x"]}, "expression '(.|.)*x' is too complicated"),
        ({**group(8, "int", None, 8), "ignore": [f"re:{'.?' * 23}x"]}, "is too complicated"),
        ({**group(8, "int", None, 8), "ignore": [f"re:{'.*' * 5}x"]}, "is too complicated"),
        ({**group(8, "int", None, 8), "ignore": [f"re:{'(.|.)' * 40}x"]}, "is too complicated"),
        ({**group(8, "int", None, 8), "ignore": [f"re:{'(m|mo)(o|od)' * 20}x"]}, "is too complicated"),
        ({**group(8, "int", None, 8), "ignore": ["re:(mlp"]}, "'(mlp' is no regular expression"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*mlp.*": {"bits": 7}}}, "bits 7 is not 2, 3, 4"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {".*mlp.*": 8}}, "8 is not an object"),
        ({**group(8, "int", None, 8), "ignore": "lm_head"}, "ignore 'lm_head' is not a list"),
    ],
)
def test_what_is_not_known_is_named(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match="quantization_config") as error:
        weight_format(config, Precision.BF16)
    assert problem in str(error.value)


def test_expressions_that_are_many_are_not_tried_for_hours() -> None:
    """Each of them takes a second, and one that fits the first expert alone a second for each of the others."""
    configs = json.loads((Path(__file__).parents[1] / "data" / "model_configs.json").read_text())
    kimi = next(config for config in configs.values() if config.get("model_type") == "kimi_k2")
    many = ["re:.*.*.*.*experts.0.gate_proj", *(f"re:.*.*.*.*x{number}" for number in range(300))]
    quantised = {**kimi, "quantization_config": {**group(8, "int", None, 8), "ignore": many}}
    with pytest.raises(ValueError, match="too complicated to be tried on all modules"):
        llm_from_config(quantised, "m", "t")


@pytest.mark.parametrize(
    "expression",
    [
        rf"^model\.layers\.(?:{'|'.join(map(str, range(61)))})\..*mlp.*(gate|up)_proj.*$",
        r".*layers\.\d+\.mlp\.experts\.\d+\.(gate|up|down)_proj.*",
        r".*\.(self_attn|linear_attn)\.(q|k|v|o)_proj$",
        r"(.*self_attn.*|.*mlp\.gate)?$",
    ],
)
def test_expressions_as_checkpoints_have_them_are_tried(expression: str) -> None:
    weights = weight_format({**group(8, "int", None, 8), "ignore": [f"re:{expression}"]}, Precision.BF16)
    assert weights.rules[0].modules.text == f"re:{expression}"


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
    found = weight_format(config, Precision.BF16)
    assert (found.storage_of("mlp").precision, found.kv_precision) == (weights, cache)


def test_a_scheme_of_the_kv_cache_that_makes_no_sense_is_named() -> None:
    with pytest.raises(RefusedError, match="kv_cache_scheme: num_bits 'x' is not a whole number"):
        weight_format({**MODELOPT, "kv_cache_scheme": {"num_bits": "x"}}, Precision.BF16)
