"""Hugging Face configs: real shapes against the catalogue's totals, layer kinds, experts, and bad files."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency.traffic import kv_bytes_per_token
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llm_config import llm_from_config
from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import narrow

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "model_configs.json").read_text("utf-8")
)
ROWS = {row.name: row.spec for row in llm_catalogue().rows}
LLAMA = CONFIGS["Llama-3.1-8B"]


def read(config: dict[str, Any], weights: dict[str, float] | None = None) -> LlmSpec:
    return llm_from_config(config, "model", "test", weights)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_real_config_gives_the_published_totals(name: str) -> None:
    """Parameters, active parameters, bytes, KV cache and layer kinds as in the catalogue (rounded to 0.01 B)."""
    spec, row = read(CONFIGS[name]), ROWS[name]
    rounding = 6e6
    assert spec.params == pytest.approx(row.params, abs=rounding)
    assert spec.matmul_params == pytest.approx(row.matmul_params, abs=rounding)
    assert spec.read_bytes == pytest.approx(row.read_bytes, rel=0.002, abs=2 * rounding)
    assert spec.expert_params == row.expert_params
    assert (spec.experts, spec.experts_per_token) == (row.experts, row.experts_per_token)
    assert kv_bytes_per_token(spec, Precision.BF16) == kv_bytes_per_token(row, Precision.BF16)
    assert spec.linear_state_elements == row.linear_state_elements
    assert (spec.kv_lora_rank, spec.rope_dim, spec.qk_head_dim) == (row.kv_lora_rank, row.rope_dim, row.qk_head_dim)
    if name != "Phi-3-mini-3.8B":  # its config has a window of 2,047 of 4,096, the catalogue leaves that out
        assert (spec.full_layers, spec.window_layers) == (row.full_layers, row.window_layers)


@pytest.mark.parametrize(
    ("name", "full", "windowed", "window"),
    [
        ("Gemma-2-9B", 21, 21, 4096),
        ("Gemma-3-4B", 5, 29, 1024),
        ("Gemma-3-27B", 10, 52, 1024),
        ("gpt-oss-120b", 18, 18, 128),
        ("Mistral-7B-v0.1", 0, 32, 4096),
        ("Mistral-7B-v0.3", 32, 0, 0),
        ("Llama-4-Scout-17B-16E", 12, 36, 8192),
        ("Qwen2.5-7B", 28, 0, 0),
        ("DeepSeek-V3.2", 0, 61, 2048),
        ("GLM-5", 0, 78, 2048),
    ],
)
def test_windows(name: str, full: int, windowed: int, window: int) -> None:
    spec = read(CONFIGS[name])
    assert (spec.full_layers, spec.window_layers, spec.window) == (full, windowed, window)


@pytest.mark.parametrize("name", ["gpt-oss-120b", "Gemma-3-27B", "Gemma-2-9B"])
def test_layer_types_and_the_model_types_own_pattern_agree(name: str) -> None:
    config = json.loads(json.dumps(CONFIGS[name]))
    inner = config.get("text_config", config)
    layers, full = inner["num_hidden_layers"], {"gpt-oss-120b": 2, "Gemma-3-27B": 6, "Gemma-2-9B": 2}[name]
    inner["layer_types"] = ["full_attention" if (i + 1) % full == 0 else "sliding_attention" for i in range(layers)]
    listed = read(config)
    del inner["layer_types"]
    assert read(config) == listed


def test_qwen_with_its_window_switched_on() -> None:
    config = {**CONFIGS["Qwen2.5-7B"], "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 21}
    spec = read(config)
    assert (spec.full_layers, spec.window_layers, spec.window) == (21, 7, 4096)


def test_a_vision_model_is_read_as_its_language_model_with_a_note() -> None:
    spec = read(CONFIGS["Mistral-Small-3.2-24B"])
    assert spec.not_modelled == ("vision encoder",)
    assert read(CONFIGS["Qwen3.5-397B-A17B"]).not_modelled == ("vision encoder", "linear attention")


def test_defaults_that_published_configs_leave_out() -> None:
    """google/gemma-3-4b-it names neither heads nor vocabulary."""
    spec = read(CONFIGS["Gemma-3-4B"])
    assert (spec.heads, spec.kv_heads, spec.head_dim, spec.vocab) == (8, 4, 256, 262_208)


@pytest.mark.parametrize(
    ("change", "sparse"),
    [
        ({"first_k_dense_replace": 3}, 29),
        ({"decoder_sparse_step": 2}, 16),
        ({"decoder_sparse_step": 1, "mlp_only_layers": [0, 1]}, 30),
        ({"mlp_layer_types": ["dense"] + ["sparse"] * 31}, 31),
        ({"moe_layer_freq": [0] * 2 + [1] * 30}, 30),
        ({"interleave_moe_layer_step": 2}, 16),
        ({"moe_layers": [1, 3, 5]}, 3),
        ({"first_k_dense_replace": None}, 32),
    ],
)
def test_which_layers_have_experts(change: dict[str, Any], sparse: int) -> None:
    moe = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
    spec = read({**LLAMA, **moe, **change})
    assert spec.expert_params == 3 * 4096 * 512 * sparse
    dense = 3 * 4096 * 14336 * (32 - sparse)
    attention = 32 * 4096 * (2 * 4096 + 2 * 1024)
    head = 128256 * 4096
    assert spec.matmul_params == attention + dense + head + sparse * 4096 * 8 + 2 * spec.expert_params
    assert spec.params == spec.matmul_params + 6 * spec.expert_params + head


@pytest.mark.parametrize(
    ("stored", "precision"),
    [
        ("bfloat16", Precision.BF16),
        ("float16", Precision.FP16),
        ("torch.bfloat16", Precision.BF16),
        ("float32", Precision.FP16),
    ],
)
def test_stored_type(stored: str, precision: Precision) -> None:
    spec = read({**LLAMA, "torch_dtype": stored})
    assert (spec.precision, spec.kv_precision) == (precision, precision)
    assert spec.read_bytes == spec.matmul_params * 2


def test_without_a_type_the_files_tell_it() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "torch_dtype"}
    assert read(config).precision is Precision.BF16
    assert read(config, {"F16": 16e9, "F32": 1e6}).precision is Precision.FP16


def test_the_files_total_corrects_the_bytes_read() -> None:
    exact = read(LLAMA)
    table = exact.vocab * exact.hidden * 2
    spec = read(LLAMA, {"": (exact.read_bytes + table) * 1.0 + 0.01 * exact.read_bytes})
    assert spec.read_bytes == pytest.approx(1.01 * exact.read_bytes)
    assert spec.params == exact.params


def test_a_files_total_that_can_not_be_the_weights_is_told_and_not_used() -> None:
    spec = read(LLAMA, {"": 64e9})
    assert spec.read_bytes == read(LLAMA).read_bytes
    assert spec.source == "test; files hold 4.19 x the bytes that its dimensions give"


def test_a_draft_head_or_an_encoder_in_the_files_is_left_out() -> None:
    """DeepSeek-V3's files hold 685 GB, with 11.5 B parameters of its draft layer."""
    spec = read(CONFIGS["DeepSeek-V3"], {"": 688.6e9})
    assert spec.read_bytes == read(CONFIGS["DeepSeek-V3"]).read_bytes


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"num_hidden_layers": 0}, "num_hidden_layers 0 is not a whole number from 1 to 2000"),
        ({"num_hidden_layers": True}, "num_hidden_layers True"),
        ({"num_hidden_layers": 32.5}, "num_hidden_layers 32.5"),
        ({"hidden_size": "4096"}, "hidden_size '4096'"),
        ({"hidden_size": 10**30}, "hidden_size 1000000"),
        ({"hidden_size": -1}, "hidden_size -1"),
        ({"num_attention_heads": None}, "num_attention_heads is missing"),
        ({"num_attention_heads": 33, "num_key_value_heads": 33}, "head_dim is missing"),
        ({"num_key_value_heads": 7}, "num_key_value_heads 7 does not divide the 32"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"intermediate_size": [1, 2]}, "intermediate_size"),
        ({"torch_dtype": "float7"}, "torch_dtype 'float7' is not known"),
        ({"torch_dtype": 16}, "torch_dtype 16 is not a text"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings 'no' is not true or false"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for 32 layers"),
        ({"layer_types": ["mamba"] * 32}, "layer_types has 'mamba', which is not modelled"),
        ({"layer_types": [["x"]] * 32}, "layer_types has ['x']"),
        ({"layer_types": "full"}, "layer_types 'full' is not a list"),
        ({"layer_types": ["sliding_attention"] * 32}, "attention_chunk_size is missing"),
        ({"layer_types": ["linear_attention"] * 32}, "linear_num_key_heads is missing"),
        ({"num_experts": 8}, "num_experts_per_tok is missing"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok 9 is not a whole number from 1 to 8"),
        ({"kv_lora_rank": 512}, "qk_nope_head_dim is missing"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder is true"),
        ({"hybrid_override_pattern": "M-M*"}, "hybrid_override_pattern describes layers that are not modelled"),
        ({"compress_ratios": [4, 128]}, "compress_ratios describes"),
        ({"cross_attention_layers": [3, 8]}, "cross_attention_layers describes"),
        ({"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input describes"),
        ({"num_kv_shared_layers": 10}, "num_kv_shared_layers describes"),
        ({"model_type": "nemotron_h"}, "hybrid_override_pattern '' is not 32 letters of M, *, - and E"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "X" * 32}, "is not 32 letters"),
        ({"model_type": "nemotron_h", "layers_block_type": ["mamba", 3]}, "is not 32 letters"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M" * 32}, "mamba_num_heads is missing"),
        ({"model_type": "nemotron_h", "moe_latent_size": 1024}, "moe_latent_size describes"),
        ({"linear_attn_config": {}}, "linear_attn_config describes"),
        ({"attn_type_list": [0, 1]}, "attn_type_list has layers that are not modelled"),
        ({"quantization_config": 4}, "quantization_config 4 is not an object"),
        ({"model_type": ["llama"]}, "model_type ['llama'] is not a text"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=r"config\.json: ") as error:
        read({**LLAMA, **change})
    assert problem in str(error.value)
    assert len(str(error.value)) < 200


NEMOTRON_H = {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-" * 5,
    "num_hidden_layers": 118,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "attention_head_dim": 128,
    "intermediate_size": 32768,
    "vocab_size": 131072,
    "mamba_num_heads": 256,
    "mamba_head_dim": 64,
    "ssm_state_size": 256,
    "n_groups": 8,
}


def test_mamba_layers_count_by_their_matrices_and_their_state() -> None:
    """Nemotron-H-56B: 54 Mamba2, 54 MLP and 10 attention layers give the published 56e9."""
    spec, row = read(NEMOTRON_H), ROWS["Nemotron-H-56B"]
    assert (spec.full_layers, spec.linear_layers) == (10, 54)
    assert spec.params == pytest.approx(56e9, rel=0.01)
    assert spec.params == pytest.approx(row.params, rel=0.001)
    assert spec.matmul_params == spec.params - 131072 * 8192
    assert spec.linear_state_elements == row.linear_state_elements == 54 * 256 * 64 * 256
    assert kv_bytes_per_token(spec) == kv_bytes_per_token(row) == 40_960
    assert spec.not_modelled == ("state update of the Mamba layers",)


def test_a_pattern_of_words_is_one_of_letters() -> None:
    words = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    for config in (NEMOTRON_H, CONFIGS["Nemotron-3-Nano-30B-A3B"]):
        listed = {key: value for key, value in config.items() if key != "hybrid_override_pattern"}
        listed["layers_block_type"] = [words[letter] for letter in str(config["hybrid_override_pattern"])]
        assert read(listed) == read(config)


def test_weights_that_are_narrowed_at_load() -> None:
    exact, table = read(LLAMA), 128256 * 4096
    spec = llm_from_config(LLAMA, "model", "test", at_load=narrow(Precision.FP8))
    assert (spec.precision, spec.kv_precision) == (Precision.FP8, Precision.BF16)
    assert spec.read_bytes == exact.matmul_params - table + 2 * table


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
KEYS = sorted({key for config in CONFIGS.values() for key in [*config, *config.get("text_config", {})]})


@given(st.sampled_from(sorted(CONFIGS)), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4))
def test_any_json_gives_a_spec_or_a_value_error(name: str, change: dict[str, Any]) -> None:
    spec = None
    with suppress(ValueError):
        spec = read({**CONFIGS[name], **change})
    if spec is not None:
        assert spec.params >= spec.matmul_params - spec.vocab * spec.hidden > 0
        assert spec.read_bytes > 0
