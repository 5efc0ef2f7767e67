"""Hugging Face configs: layer kinds, experts, stored types, what files say against them, and bad fields.

That parameters, FLOPs and caches are those of the real model code is held in `test_oracle.py`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency.traffic import kv_bytes_per_token, kv_read_bytes, kv_stored_bytes
from gpumon.efficiency.weights import weight_bytes
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.fields import RefusedError
from gpumon.specs.llm import LlmSpec, Reach
from gpumon.specs.llm_config import llm_from_config
from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import quantised_linear
from tests.each_row import each_row

DATA: Final = Path(__file__).parents[1] / "data"
CONFIGS: dict[str, dict[str, Any]] = json.loads((DATA / "model_configs.json").read_text("utf-8"))
LLAMA = CONFIGS["Llama-3.1-8B"]
MOE = {"model_type": "mixtral"}


def catalogue_config(name: str) -> dict[str, Any]:
    row = llm_catalogue().row(name)
    assert row is not None
    config: dict[str, Any] = json.loads(bytes(row.config))
    return config


def read(config: dict[str, Any], weights: dict[str, float] | None = None) -> LlmSpec:
    return llm_from_config(config, "model", "test", weights)


@each_row(
    ("name", "looks"),
    [
        ("Gemma-2-9B", [("window", 21, 4096), ("full", 21, 0)]),
        ("Gemma-3-4B", [("window", 29, 1024), ("full", 5, 0)]),
        ("Gemma-3-27B", [("window", 52, 1024), ("full", 10, 0)]),
        ("gpt-oss-120b", [("window", 18, 128), ("full", 18, 0)]),
        ("Mistral-7B-v0.1", [("window", 32, 4096)]),
        ("Mistral-7B-v0.3", [("full", 32, 0)]),
        ("Llama-4-Scout-17B-16E", [("chunk", 36, 8192), ("full", 12, 0)]),
        ("Qwen2.5-7B", [("full", 28, 0)]),
        ("DeepSeek-V3.2", [("top", 61, 2048), ("index", 61, 0)]),
        ("GLM-5", [("top", 78, 2048), ("index", 78, 0)]),
    ],
)
def test_what_the_layers_look_at(name: str, looks: list[tuple[str, int, int]]) -> None:
    spec = read(CONFIGS[name])
    assert [(each.reach.value, each.layers, each.limit) for each in spec.attention] == looks


def test_an_unknown_architecture_is_refused_whatever_its_fields() -> None:
    """It is taken for no other one, though its fields are those of a Llama."""
    with pytest.raises(ValueError, match="model_type 'lama' is not a known architecture"):
        read({**LLAMA, "model_type": "lama"})
    with pytest.raises(ValueError, match="model_type is missing"):
        read({key: value for key, value in LLAMA.items() if key != "model_type"})


def test_an_architecture_whose_figures_would_be_wrong_says_why() -> None:
    with pytest.raises(ValueError, match=r"diffusion_gemma' is not modelled: it computes a block .* several times"):
        read({**LLAMA, "model_type": "diffusion_gemma"})


WHISPER: Final = {
    "architectures": ["WhisperForConditionalGeneration"],
    "d_model": 1280,
    "decoder_attention_heads": 20,
    "decoder_ffn_dim": 5120,
    "decoder_layers": 4,
    "encoder_layers": 32,
    "is_encoder_decoder": True,
    "max_source_positions": 1500,
    "max_target_positions": 448,
    "model_type": "whisper",
    "num_hidden_layers": 32,
    "torch_dtype": "float16",
    "vocab_size": 51866,
}


def test_whisper_reads_the_positions_of_its_encoder_at_each_token() -> None:
    spec = read(WHISPER)
    one_layer = 2 * 1280
    assert spec.layers == 4
    assert spec.not_modelled == ("audio encoder",)
    assert kv_bytes_per_token(spec) == 4 * one_layer * 2
    assert kv_read_bytes(spec, 100.0) == 4 * one_layer * 2 * (100 + 1500)
    assert kv_stored_bytes(spec, 0.0) == 4 * one_layer * 2 * 1500
    projections = 2 * 4 * 1280 * 1280
    positions = 448 * 1280
    assert spec.params - spec.matmul_params == projections + positions


def test_a_decoder_without_its_encoder_of_text_is_not_the_whole_model() -> None:
    bart = {**WHISPER, "model_type": "bart", "max_position_embeddings": 1024}
    with pytest.raises(ValueError, match="is_encoder_decoder is true: no counter says how long the texts"):
        read({**bart, "architectures": ["BartForConditionalGeneration"]})
    assert read({**bart, "architectures": ["BartForCausalLM"]}).not_modelled == ("text encoder",)


def test_grok_is_known_by_its_class() -> None:
    """Its config has the model type of another model, which makes texts of images."""
    config = catalogue_config("Grok-2") | {"model_type": "git", "architectures": ["Grok1ForCausalLM"]}
    assert read(config).params == pytest.approx(269.5e9, rel=0.001)
    with pytest.raises(ValueError, match="'git' is not modelled"):
        read(config | {"architectures": ["GitForCausalLM"]})
    assert read(config | {"architectures": [["x"], {}, 7, "Grok1ForCausalLM"]}).params == read(config).params


def test_experts_that_compute_nothing_leave_a_whole_number() -> None:
    config = catalogue_config("LongCat-Flash")
    assert read(config).experts_per_token == 8
    with pytest.raises(ValueError, match="zero_expert_num 100 leaves no whole number of the 12 experts"):
        read({**config, "zero_expert_num": 100})


@each_row("name", ["gpt-oss-120b", "Gemma-3-27B", "Gemma-2-9B"])
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
    found = {each.reach.value: (each.layers, each.limit) for each in read(config).attention}
    assert found == {"full": (21, 0), "window": (7, 4096)}


def test_a_vision_model_is_read_as_its_language_model_with_a_note() -> None:
    assert read(CONFIGS["Mistral-Small-3.2-24B"]).not_modelled == ("vision encoder",)
    assert read(CONFIGS["Qwen3.5-397B-A17B"]).not_modelled == ("vision encoder",)


@each_row(
    ("architectures", "head"),
    [
        (None, 32000 * 64),
        (["LlamaForCausalLM"], 32000 * 64),
        (["LlamaModel"], 0),
        (["LlamaForSequenceClassification"], 0),
        (["GPT2LMHeadModel"], 32000 * 64),
    ],
)
def test_a_checkpoint_without_an_lm_head_multiplies_none(architectures: list[str] | None, head: int) -> None:
    small = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128}
    spec = read({**LLAMA, **small, "vocab_size": 32000, "architectures": architectures})
    assert spec.head_params == head
    layers = 32 * (4 * 64 * 64 + 3 * 64 * 128)
    assert spec.matmul_params == layers + head
    assert spec.params == layers + head + 32000 * 64


def test_defaults_that_published_configs_leave_out() -> None:
    """google/gemma-3-4b-it names neither heads nor vocabulary."""
    spec = read(CONFIGS["Gemma-3-4B"])
    assert (spec.heads, spec.kv_heads, spec.head_dim, spec.vocab) == (8, 4, 256, 262_208)


@each_row(
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
    moe = {"model_type": "mixtral", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
    spec = read({**LLAMA, **moe, **change})
    assert spec.expert_params == 3 * 4096 * 512 * sparse
    dense = 3 * 4096 * 14336 * (32 - sparse)
    attention = 32 * 4096 * (2 * 4096 + 2 * 1024)
    head = 128256 * 4096
    assert spec.matmul_params == attention + dense + head + sparse * 4096 * 8 + 2 * spec.expert_params
    assert spec.params == spec.matmul_params + 6 * spec.expert_params + head


@each_row(
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


def files_of(config: dict[str, Any]) -> float:
    """Bytes that the files of this model have: 16 bit, with the look-up table."""
    spec = read(config)
    return spec.params * 2.0


@each_row("share", [0.981, 1.0, 1.019])
def test_files_that_hold_what_the_dimensions_give_agree(share: float) -> None:
    assert read(LLAMA, {"": files_of(LLAMA) * share}) == read(LLAMA)


@each_row("share", [0.5, 0.979, 1.021, 4.0])
def test_files_that_hold_something_else_refuse_the_model(share: float) -> None:
    with pytest.raises(ValueError, match=r"gives 16\.060 GB of weights, and the files hold .* GB \([+-]") as error:
        read(LLAMA, {"": files_of(LLAMA) * share})
    assert f"({share - 1.0:+.1%})" in str(error.value)


def test_files_of_32_bit_hold_twice_the_bytes_that_are_loaded() -> None:
    config = {**LLAMA, "torch_dtype": "float32"}
    spec = read(config, {"F32": files_of(LLAMA) * 2.0})
    assert spec.read_bytes == read(LLAMA).read_bytes
    assert spec.source.endswith(", 32-bit weights loaded at 16 bit")


def test_files_of_gptq_hold_the_zero_points_of_symmetric_weights_too() -> None:
    """`qzeros` in groups of 32: 2.5% of this model, which kernels do not read."""
    saved = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    symmetric = {**CONFIGS["Qwen2.5-72B"], "quantization_config": {**saved, "sym": True}}
    asymmetric = {**CONFIGS["Qwen2.5-72B"], "quantization_config": {**saved, "sym": False}}
    read_by_kernels, held = read(symmetric), read(asymmetric)
    tables = (held.params - held.matmul_params) * 2.0
    files = {"": held.read_bytes + tables}
    assert files[""] > 1.02 * (read_by_kernels.read_bytes + tables)
    assert read(symmetric, files) == read_by_kernels


@each_row(
    ("change", "problem"),
    [
        ({"model_type": "nomic_bert", "num_experts": 8}, "not known to have experts"),
        ({"model_type": "doge", "num_experts": 8, "is_moe": True}, "not known to have experts"),
        ({"cross_attention_layers": [3]}, "layers that are not modelled"),
        ({"quantization_config": {"quant_method": "gptq"}}, "bits is missing"),
    ],
)
def test_an_architecture_or_a_format_that_is_not_known_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(RefusedError, match=problem):
        read({**LLAMA, **change})


MINILM = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
"""sentence-transformers/all-MiniLM-L6-v2, whose config tells no type."""


@each_row(
    ("config", "held"),
    [
        # What the models' pages on Hugging Face count in the files: 752 M, 7.22 B and 81.3 B parameters; 90.9 MB.
        (CONFIGS["Qwen3-0.6B"], {"BF16": 1.5033e9}),  # 0.156 B are a copy of the look-up table
        (CONFIGS["Falcon-7B"], {"": 14.434e9}),  # the same: 0.295 B
        (CONFIGS["Qwen3-Next-80B-A3B"], {"": 162.65e9}),  # 1.6 B are a draft layer's
        (CONFIGS["gpt-oss-120b"], {"": 65_248_815_744}),
        (MINILM, {"F32": 90.9e6, "I64": 4096}),
        (MINILM, {"": 90.9e6}),
    ],
)
def test_files_of_published_models_agree(config: dict[str, Any], held: dict[str, float]) -> None:
    assert read(config, held).params == read(config).params


def test_a_model_that_embeds_is_saved_without_the_head_that_its_config_speaks_of() -> None:
    """Qwen3-Embedding-8B: 7.57e9 parameters, and `tie_word_embeddings` false."""
    sizes = {"num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
    config = {**LLAMA, **sizes, "model_type": "qwen3", "intermediate_size": 12288, "vocab_size": 151_665}
    bare = read({**config, "tie_word_embeddings": False}, {"": 15.134e9})
    assert bare.head_params == 0.0
    assert bare.params * 2.0 == pytest.approx(15.134e9, rel=0.001)
    # Where the config does not say that the two differ, one table may be both: then the figures would lack the head.
    with pytest.raises(ValueError, match="the files hold"):
        read({key: value for key, value in config.items() if key != "tie_word_embeddings"}, {"": 15.134e9})


def test_a_class_that_generates_has_a_head_whatever_its_name() -> None:
    """glm-4-9b-chat: `ChatGLMModel`, 9.40e9 parameters."""
    sizes = {"num_layers": 40, "hidden_size": 4096, "num_attention_heads": 32, "multi_query_group_num": 2}
    config = {"model_type": "chatglm", "architectures": ["ChatGLMModel"], **sizes, "kv_channels": 128}
    config |= {"ffn_hidden_size": 13696, "padded_vocab_size": 151_552, "tie_word_embeddings": False}
    assert read(config, {"": 18_799_902_784}).head_params == 151_552 * 4096


def test_a_decoder_that_embeds_without_a_causal_mask_is_an_encoder() -> None:
    """gte-Qwen2: `is_causal` false."""
    spec = read({**CONFIGS["Qwen2.5-7B"], "is_causal": False})
    assert [(each.reach.value, each.layers, each.elements) for each in spec.attention] == [("encoder", 28, 0.0)]


def test_minicpm_is_tied_and_minimax_m1_is_known() -> None:
    sizes = {"num_hidden_layers": 40, "hidden_size": 2304, "num_attention_heads": 36, "num_key_value_heads": 36}
    minicpm = {"model_type": "minicpm", **sizes, "intermediate_size": 5760, "vocab_size": 122_753}
    assert read(minicpm).params == pytest.approx(2.7247e9, rel=0.001)
    sizes = {"num_hidden_layers": 80, "hidden_size": 6144, "num_attention_heads": 64, "num_key_value_heads": 8}
    m1 = {"model_type": "minimax_m1", **sizes, "intermediate_size": 9216, "vocab_size": 200_064, "head_dim": 128}
    m1 |= {"num_local_experts": 32, "num_experts_per_tok": 2, "attn_type_list": [*[0] * 7, 1] * 10}
    spec = read(m1)
    assert spec.params == pytest.approx(456e9, rel=0.005)
    assert spec.matmul_params == pytest.approx(45.9e9, rel=0.03)


def test_an_encoder_or_a_draft_layer_may_come_on_top() -> None:
    """DeepSeek-V3's files hold 688.6 GB, with 11.5e9 parameters of its draft layer; Mistral-Small-3.2's 48.0 GB, with
    those of its encoder and projector."""
    assert read(CONFIGS["DeepSeek-V3"], {"": 688.6e9}) == read(CONFIGS["DeepSeek-V3"])
    vision = CONFIGS["Mistral-Small-3.2-24B"]
    assert read(vision, {"": 48.0e9}) == read(vision)
    for share in (0.9, 1.1, 2.0):
        with pytest.raises(ValueError, match=rf"gives 47\.144 GB of weights, and the files hold {int(share * 47.144)}"):
            read(vision, {"": files_of(vision) * share})
    untold = {**vision, "vision_config": {"model_type": "pixtral"}}
    assert read(untold, {"": files_of(vision) * 1.1}) == read(vision)
    with pytest.raises(ValueError, match="the files hold"):
        read(untold, {"": files_of(vision) * 2.1})


@each_row(
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
        ({"num_key_value_heads": 7}, "num_key_value_heads 7 does not divide the 32"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"intermediate_size": [1, 2]}, "intermediate_size"),
        ({"torch_dtype": "float7"}, "torch_dtype 'float7' is not known"),
        ({"torch_dtype": 16}, "torch_dtype 16 is not a text"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings 'no' is not true or false"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for 32 layers"),
        ({"layer_types": ["mamba"] * 32}, "layer_types has 'state', which is not modelled for this model type"),
        ({"layer_types": [["x"]] * 32}, "layer_types has \"['x']\""),
        ({"layer_types": "full"}, "layer_types 'full' is not a list"),
        ({"layer_types": ["sliding_attention"] * 32}, "sliding_window is missing"),
        ({"layer_types": ["chunked_attention"] * 32}, "attention_chunk_size is missing"),
        ({"model_type": "qwen3_next"}, "linear_num_key_heads is missing"),
        ({"num_experts": 8}, "num_experts is there, and this model type is not known to have experts"),
        ({**MOE, "num_experts": 8}, "num_experts_per_tok is missing"),
        (
            {**MOE, "num_experts": 8, "num_experts_per_tok": 9},
            "num_experts_per_tok 9 is not a whole number from 1 to 8",
        ),
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, "qk_nope_head_dim is missing"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder is true"),
        ({"cross_attention_layers": [3, 8]}, "cross_attention_layers describes"),
        ({"feed_forward_type": "geglu"}, "feed_forward_type describes"),
        ({**MOE, "num_experts": 8, "mlp_layer_types": ["x"] * 100_001}, "mlp_layer_types has 100001 entries"),
        (
            {
                "model_type": "kimi_linear",
                "linear_attn_config": {"full_attn_layers": [[1]], "kda_layers": [{}], "num_heads": 1},
            },
            "layer_types has 'none', which is not modelled",
        ),
        ({"model_type": "nemotron_h"}, "layer_types has 0 entries for 32 layers"),
        ({"model_type": "recurrent_gemma", "block_types": ["lstm"]}, "layer_types has 'lstm', which is not modelled"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "X" * 32}, "has 'X', which is not modelled"),
        ({"model_type": "nemotron_h", "layers_block_type": ["mamba", 3]}, "layers_block_type has 2 entries for 32"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M" * 32}, "mamba_num_heads is missing"),
        ({"model_type": "kimi_linear"}, "linear_attn_config does not list full_attn_layers and kda_layers"),
        ({"model_type": "minimax_m2", "attn_type_list": [0, 1]}, "attn_type_list has layers that are not modelled"),
        ({"model_type": "deepseek_v4"}, "layer_types and compress_ratios are missing"),
        ({"model_type": "deepseek_v4", "compress_ratios": [7] * 32}, "has '7', which is not modelled"),
        ({"model_type": "nemotron-nas"}, "block_configs has no attention for layer 0"),
        ({"model_type": "xlstm"}, "num_heads is missing"),
        ({"quantization_config": 4}, "quantization_config 4 is not an object"),
        ({"model_type": ["llama"]}, "model_type ['llama'] is not a text"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=r"config\.json: ") as error:
        read({**LLAMA, **change})
    assert problem in str(error.value)
    assert len(str(error.value)) < 200


def test_a_pattern_of_words_is_one_of_letters() -> None:
    words = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    config = CONFIGS["Nemotron-3-Nano-30B-A3B"]
    listed = {key: value for key, value in config.items() if key != "hybrid_override_pattern"}
    listed["layers_block_type"] = [words[letter] for letter in str(config["hybrid_override_pattern"])]
    assert read(listed) == read(config)


def test_weights_that_are_narrowed_at_load() -> None:
    exact, table = read(LLAMA), 128256 * 4096
    spec = llm_from_config(LLAMA, "model", "test", format_at_load=quantised_linear(Precision.FP8))
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
        assert spec.params >= spec.matmul_params - spec.head_params > 0
        assert spec.read_bytes > 0


def test_deepseek_v41_is_as_large_as_its_published_files() -> None:
    """Its index says 510,286,023,000 bytes: with three draft layers of 128 experts (7.3 GB) and a vision encoder."""
    config = json.loads((DATA / "deepseek_v41.json").read_text("utf-8"))
    described = llm_from_config(config, "DeepSeek-V4.1-Flash", "config.json", {"": 510_286_023_000.0})
    drafts = 3 * 128 * 3 * 5120 * 2304 * 0.53125
    assert weight_bytes(described) + drafts == pytest.approx(510.286e9, rel=0.005)
    assert described.matmul_params == pytest.approx(16.1e9, rel=0.01)
    assert "half of its layers" in described.flops_unknown  # of prompts (vLLM's decoder replay)
    made = [each for each in described.attention if each.stride == 2 and each.reach is Reach.TOP]
    assert sorted((each.layers, each.shared) for each in made) == [(3, False), (15, True)]
    with pytest.raises(ValueError, match="engram_num_embeddings"):
        read({**config, "text_config": config["text_config"] | {"engram_num_embeddings": ["many"]}})


def test_a_text_part_without_what_has_its_default_is_read_as_its_class_reads_it() -> None:
    """LLaVA 1.5 7B and LLaVA-NeXT Mistral 7B: only what differs from the defaults of their classes was saved."""
    part = {"model_type": "llama", "max_position_embeddings": 4096, "torch_dtype": "float16", "vocab_size": 32064}
    llava = {"model_type": "llava", "text_config": part, "vision_config": {"hidden_size": 1024}}
    assert read(llava).params == pytest.approx(6.739e9, rel=0.001)
    mistral = {
        "model_type": "mistral", "intermediate_size": 14336, "num_key_value_heads": 8, "sliding_window": None,
        "vocab_size": 32064,
    }  # fmt: skip
    found = read({**llava, "text_config": mistral})
    assert found.params == pytest.approx(7.242e9, rel=0.001)
    assert [each.reach for each in found.attention] == [Reach.FULL]  # null is said
    with pytest.raises(ValueError, match="hidden_size is missing"):
        read({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100})
