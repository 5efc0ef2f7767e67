"""GGUF headers: the same figures as the config.json of the model, exact bytes, every kind of layer, bad headers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency.flops import decode_flops_per_token
from gpumon.efficiency.traffic import kv_bytes_per_token, kv_read_bytes
from gpumon.specs.gguf import TYPES, GgufHeader, Tensor
from gpumon.specs.llm import LlmSpec, Reach, State
from gpumon.specs.llm_config import llm_from_config
from gpumon.specs.llm_gguf import llm_from_gguf
from gpumon.specs.precision import Precision
from tests.each_row import each_row
from tests.records import replace
from tests.specs.gguf_tables import BF16, F16, F32, MXFP4, Q4_K, header, matrices, q4_k_m

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "model_configs.json").read_text("utf-8")
)
LLAMA = CONFIGS["Llama-3.1-8B"]


def read(found: GgufHeader) -> LlmSpec:
    return llm_from_gguf(found, "model", "x.gguf")


def changed(found: GgufHeader, **keys: object) -> GgufHeader:
    """With other metadata below its architecture; None takes a key out."""
    own = str(found.metadata["general.architecture"])
    new = {f"{own}.{name.replace('__', '.')}": value for name, value in keys.items()}
    return GgufHeader({k: v for k, v in {**found.metadata, **new}.items() if v is not None}, found.tensors)


def with_tensors(found: GgufHeader, *more: Tensor) -> GgufHeader:
    return GgufHeader(found.metadata, (*found.tensors, *more))


def kinds_of(spec: LlmSpec) -> tuple[int, int, int]:
    """Layers that see everything, those with a window, and the window."""
    windows = {each.limit for each in spec.attention if each.reach is Reach.WINDOW}
    return spec.attention_layers(Reach.FULL), spec.attention_layers(Reach.WINDOW), max(windows, default=0)


@each_row("name", ["Llama-2-7B", "Llama-3.1-8B", "Llama-3.2-1B", "Qwen3-8B", "Qwen3-30B-A3B", "Mixtral-8x7B"])
def test_the_same_figures_as_the_config_of_the_same_model(name: str) -> None:
    config = CONFIGS[name]
    spec, other = read(header(config, matrices(BF16))), llm_from_config(config, "model", "config.json")
    assert spec.matmul_params == other.matmul_params
    assert spec.params == pytest.approx(other.params, rel=0.0002)  # norms
    assert spec.read_bytes == pytest.approx(other.read_bytes, rel=0.0002)
    assert (spec.expert_params, spec.expert_read_bytes) == (other.expert_params, other.expert_read_bytes)
    assert (spec.experts, spec.experts_per_token) == (other.experts, other.experts_per_token)
    assert kv_bytes_per_token(spec) == kv_bytes_per_token(other)
    assert decode_flops_per_token(spec, 3000) == decode_flops_per_token(other, 3000)
    assert (spec.precision, spec.weight_only) == (Precision.BF16, False)
    assert spec.not_modelled == ()


def test_llama_3_1_8b_in_q4_k_m_has_the_published_size() -> None:
    """4.58 GiB and 4.89 bits per weight (llama.cpp's quantize README)."""
    spec = read(header(LLAMA, q4_k_m(32)))
    assert round(spec.stored_bytes / 2**30, 2) == 4.58
    assert round(8 * spec.stored_bytes / spec.params, 2) == 4.89
    assert spec.read_bytes == spec.stored_bytes - 128256 * 4096 * 144 / 256  # less the look-up table, in Q4_K
    assert (spec.precision, spec.weight_only) == (Precision.INT4, True)
    assert spec.source == "x.gguf (mostly Q4_K, 4.92 bits per weight)"


def test_experts_in_mxfp4_and_the_rest_at_16_bit() -> None:
    config = {**CONFIGS["gpt-oss-20b"], "moe_intermediate_size": 2880}
    kinds = lambda name: MXFP4 if "_exps" in name else BF16  # noqa: E731
    found = header(config, kinds, "gpt-oss", attention__sliding_window=128)
    spec, other = read(found), llm_from_config(CONFIGS["gpt-oss-20b"], "model", "config.json")
    assert spec.expert_read_bytes == pytest.approx(other.expert_read_bytes)
    assert spec.read_bytes == pytest.approx(other.read_bytes, rel=0.0002)
    assert kinds_of(spec) == (12, 12, 128)
    assert (spec.precision, spec.weight_only) == (Precision.MXFP4, False)
    assert kv_read_bytes(spec, 5000) == kv_read_bytes(other, 5000)


@each_row(
    ("architecture", "keys", "kinds"),
    [
        ("gemma2", {"attention__sliding_window": 4096}, (16, 16, 4096)),
        ("gemma2", {}, (16, 16, 4096)),
        ("gemma3", {"attention__sliding_window": 512}, (5, 27, 512)),
        ("gemma3", {}, (32, 0, 0)),
        ("llama4", {}, (8, 24, 8192)),
        ("cohere2", {"attention__sliding_window": 4096}, (8, 24, 4096)),
        ("phi3", {"attention__sliding_window": 2047}, (32, 0, 0)),
        ("new", {"attention__sliding_window": 64, "attention__sliding_window_pattern": 2}, (16, 16, 64)),
        ("new", {"attention__sliding_window": 64, "attention__sliding_window_pattern": [1, 1, 1, 0] * 8}, (8, 24, 64)),
        ("new", {"attention__sliding_window": 64, "attention__sliding_window_pattern": 1}, (32, 0, 0)),
        ("llama", {"attention__sliding_window": 0}, (32, 0, 0)),
    ],
)
def test_which_layers_have_a_window(architecture: str, keys: dict[str, Any], kinds: tuple[int, ...]) -> None:
    spec = read(header(LLAMA, matrices(F16), architecture, **keys))
    assert kinds_of(spec) == kinds


def test_keys_and_values_of_different_width_count_by_their_mean() -> None:
    spec = read(changed(header(LLAMA, matrices(F16)), attention__key_length=192, attention__value_length=128))
    assert kv_bytes_per_token(spec) == 32 * 8 * (192 + 128) * 2
    assert decode_flops_per_token(spec, 1000) - decode_flops_per_token(spec, 0) == 2 * 32 * (192 + 128) * 1000 * 32


def test_heads_that_differ_by_layer_are_exact() -> None:
    groups, heads = [8, 4] * 16, [32, 32, 16, 32] * 8
    spec = read(changed(header(LLAMA, matrices(F16)), attention__head_count_kv=groups, attention__head_count=heads))
    assert kv_bytes_per_token(spec) == 2 * 128 * 2 * sum(groups)
    assert kv_read_bytes(spec, 10, tp=8) == 10 * 2 * 128 * 2 * 8 * 32  # 4 KV heads lie on 8 GPUs twice
    assert decode_flops_per_token(spec, 1000) - decode_flops_per_token(spec, 0) == 4 * 128 * 1000 * sum(heads)
    assert (spec.heads, spec.not_modelled) == (32, ())


def test_window_layers_may_have_heads_of_their_own_width() -> None:
    """Gemma 4: keys and values of 256 in the window layers, of 512 in the others."""
    keys = {"attention__sliding_window": 1024, "attention__key_length": 512, "attention__value_length": 512}
    narrow = {"attention__key_length_swa": 256, "attention__value_length_swa": 256}
    spec = read(changed(header(LLAMA, matrices(F16), "gemma3"), **keys, **narrow))
    assert kinds_of(spec) == (5, 27, 1024)
    assert kv_read_bytes(spec, 5000) == (5 * 5000 * 512 + 27 * 1024 * 256) * 2 * 8 * 2


def mla(split: bool) -> GgufHeader:
    """The attention of DeepSeek-V2-Lite in a file of two layers; the experts are left out."""
    heads, hidden = 16, 2048
    tensors = [Tensor("token_embd.weight", (hidden, 102400), F16), Tensor("output.weight", (hidden, 102400), F16)]
    for layer in range(2):
        begin = f"blk.{layer}.attn_"
        tensors += [
            Tensor(f"{begin}q.weight", (hidden, heads * 192), F16),
            Tensor(f"{begin}kv_a_mqa.weight", (hidden, 576), F16),
            Tensor(f"{begin}kv_b.weight", (512, heads * 256), F16),
            Tensor(f"{begin}output.weight", (heads * 128, hidden), F16),
        ]
        if split:
            tensors.append(Tensor(f"{begin}k_b.weight", (128, 512, heads), F16))
            tensors.append(Tensor(f"{begin}v_b.weight", (512, 128, heads), F16))
    own = {
        "block_count": 2,
        "embedding_length": hidden,
        "attention.head_count": heads,
        "attention.head_count_kv": 1 if split else heads,
        "attention.key_length": 576 if split else 192,
        "attention.value_length": 512 if split else 128,
        "attention.kv_lora_rank": 512,
        "rope.dimension_count": 64,
    }
    if split:
        own |= {"attention.key_length_mla": 192, "attention.value_length_mla": 128}
    data = {"general.architecture": "deepseek2", **{f"deepseek2.{key}": value for key, value in own.items()}}
    return GgufHeader(data, tuple(tensors))


def test_latent_attention_with_its_split_projections() -> None:
    spec = read(mla(split=True))
    config = {**CONFIGS["DeepSeek-V2-Lite"], "num_hidden_layers": 2, "first_k_dense_replace": 2}
    other = llm_from_config(config, "model", "config.json")
    assert kv_bytes_per_token(spec) == 2 * 576 * 2 == kv_bytes_per_token(other)
    grown = decode_flops_per_token(spec, 1000) - decode_flops_per_token(spec, 0)
    assert grown == decode_flops_per_token(other, 1000) - decode_flops_per_token(other, 0)
    assert spec.attention == other.attention
    assert spec.latent
    mlps = 2 * 3 * 2048 * config["intermediate_size"]
    assert spec.matmul_params == other.matmul_params - mlps  # kv_b and its halves are counted once


def test_an_old_file_without_the_split_projections_runs_as_plain_attention() -> None:
    """llama.cpp caches full keys and values then: 16 x (192 + 128) elements per token and layer."""
    spec = read(mla(split=False))
    assert not spec.latent
    assert kv_bytes_per_token(spec) == 2 * 16 * 320 * 2


def test_sparse_attention_sees_its_top_tokens_and_its_indexer_all() -> None:
    """llama.cpp keeps the indexer's keys in the format of the cache."""
    indexer = {f"attention__indexer__{name}": value for name, value in (("head_count", 64), ("key_length", 128))}
    spec = read(changed(mla(split=True), attention__indexer__top_k=2048, **indexer))
    assert [(each.reach, each.layers, each.limit) for each in spec.attention] == [
        (Reach.TOP, 2, 2048),
        (Reach.INDEX, 2, 0),
    ]
    assert kv_read_bytes(spec, 5000) == 2 * (2048 * 576 + 5000 * 128) * 2
    assert decode_flops_per_token(spec, 5000) - decode_flops_per_token(spec, 0) == 2 * (
        2048 * 2 * 16 * (2 * 512 + 64) + 5000 * 2 * 64 * 128
    )
    assert spec.not_modelled == ()


def hybrid(architecture: str, linear: Iterable[int], layers: int, **keys: object) -> GgufHeader:
    """A Llama whose layers of `linear` are recurrent instead."""
    found = header({**LLAMA, "num_hidden_layers": layers}, matrices(BF16), architecture, **keys)
    begins = tuple(f"blk.{layer}.attn_" for layer in linear)
    kept = [each for each in found.tensors if not each.name.startswith(begins)]
    for layer in linear:
        kept.append(Tensor(f"blk.{layer}.ssm_in.weight", (4096, 10304), BF16))
        kept.append(Tensor(f"blk.{layer}.ssm_out.weight", (4096, 4096), BF16))
        kept.append(Tensor(f"blk.{layer}.attn_norm.weight", (4096,), F32))
    return GgufHeader(found.metadata, tuple(kept))


@each_row(("architecture", "kind", "flops"), [("nemotron_h", "mamba2", 5), ("qwen3next", "delta net", 7)])
def test_recurrent_layers_have_a_state_and_no_cache(architecture: str, kind: str, flops: int) -> None:
    """llama.cpp keeps states at 32 bit; each is read and written by a step."""
    spec = read(hybrid(architecture, (0, 1, 2), 4, ssm__inner_size=4096, ssm__state_size=128))
    elements = 4096 * 128
    assert spec.states == (State(kind, 3, elements, flops * elements, 4.0),)
    assert (kinds_of(spec), spec.state_layers) == ((1, 0, 0), 3)
    assert kv_bytes_per_token(spec) == 2 * 8 * 128 * 2
    assert kv_read_bytes(spec, 100) == 100 * 2 * 8 * 128 * 2 + 2 * 3 * elements * 4
    without = replace(spec, states=())
    assert decode_flops_per_token(spec, 9) - decode_flops_per_token(without, 9) == 3 * flops * elements
    assert spec.not_modelled == ()


def test_kimi_delta_attention_has_a_square_state_per_head() -> None:
    spec = read(hybrid("kimi-linear", (0,), 2, kda__head_dim=128))
    assert sum(each.layers * each.elements for each in spec.states) == 32 * 128 * 128
    assert [state.kind for state in spec.states] == ["delta net"]


def test_layers_that_are_only_an_mlp_have_neither() -> None:
    found = header({**LLAMA, "num_hidden_layers": 3}, matrices(BF16), "nemotron_h")
    mlp_only = [
        each for each in found.tensors if not each.name.startswith("blk.1.attn_q") and "blk.1.attn_k" not in each.name
    ]
    spec = read(changed(GgufHeader(found.metadata, tuple(mlp_only)), attention__head_count_kv=[8, 0, 8]))
    assert (kinds_of(spec), spec.states) == ((2, 0, 0), ())


def test_draft_layers_and_encoders_are_left_out() -> None:
    plain = header(LLAMA, matrices(F16))
    extra = (
        Tensor("blk.32.attn_q.weight", (4096, 4096), F16),
        Tensor("blk.32.nextn.eh_proj.weight", (8192, 4096), F16),
        Tensor("v.blk.0.attn_q.weight", (1152, 1152), F16),
        Tensor("mm.mm_input_projection.weight", (1152, 4096), F16),
    )
    spec = read(changed(with_tensors(plain, *extra), block_count=33, nextn_predict_layers=1))
    assert (spec.params, spec.read_bytes, spec.layers) == (read(plain).params, read(plain).read_bytes, 32)
    assert spec.not_modelled == ("vision encoder",)


def test_tables_that_are_only_looked_up_are_not_read_by_a_step() -> None:
    plain = header(LLAMA, matrices(F16))
    spec = read(with_tensors(plain, Tensor("per_layer_token_embd.weight", (8192, 262144), F16)))
    assert spec.read_bytes == read(plain).read_bytes
    assert spec.params == read(plain).params + 8192 * 262144


def test_old_mixtral_files_with_a_tensor_per_expert() -> None:
    config = CONFIGS["Mixtral-8x7B"]
    new = header(config, matrices(F16))
    old = []
    for tensor in new.tensors:
        if "_exps." in tensor.name:
            part = tensor.name.replace("_exps.weight", "")
            old += [Tensor(f"{part}.{index}.weight", tensor.shape[:2], F16) for index in range(8)]
        else:
            old.append(tensor)
    assert msgspec.structs.asdict(read(GgufHeader(new.metadata, tuple(old)))) == msgspec.structs.asdict(read(new))


@each_row(
    ("found", "problem"),
    [
        (GgufHeader({}, ()), "general.architecture is missing"),
        (GgufHeader({"general.architecture": "llama", "general.type": "adapter"}, ()), "is 'adapter': no model"),
        (GgufHeader({"general.architecture": "bert", "bert.attention.causal": False}, ()), "encoders are not modelled"),
        (changed(header(LLAMA, matrices(F16)), block_count=None), "llama.block_count is missing"),
        (changed(header(LLAMA, matrices(F16)), block_count=10**6), "llama.block_count 1000000 is not a whole number"),
        (changed(header(LLAMA, matrices(F16)), attention__head_count=[32] * 3), "is not 32 whole numbers"),
        (changed(header(LLAMA, matrices(F16)), attention__head_count=[0] * 32), "is 0 for a layer with attention"),
        (changed(header(LLAMA, matrices(F16)), attention__shared_kv_layers=10), "shared_kv_layers describes layers"),
        (header(LLAMA, matrices(F16), "new", attention__sliding_window=64), "which layers have it is not known"),
        (header(LLAMA, matrices(77)), "has type 77, which is not known"),
        (header({**LLAMA, "hidden_size": 4100}, matrices(Q4_K)), "no multiple of the 256 of a Q4_K block"),
        (changed(header(CONFIGS["Mixtral-8x7B"], matrices(F16)), expert_count=None), "without an expert_count"),
        (GgufHeader(header(LLAMA, matrices(F16)).metadata, ()), "token_embd.weight is missing"),
        (with_tensors(header(LLAMA, matrices(F16)), Tensor("blk.0.time_mix_k.weight", (8, 8), F16)), "time_mix_*"),
        (with_tensors(header(LLAMA, matrices(F16)), Tensor("enc.blk.0.attn_q.weight", (8, 8), F16)), "encoder-decoder"),
    ],
)
def test_what_is_missing_absurd_or_not_modelled_is_named(found: GgufHeader, problem: str) -> None:
    with pytest.raises(ValueError, match="GGUF header") as error:
        read(found)
    assert problem in str(error.value)


def test_more_heads_than_the_model_is_wide_divide_by_nothing() -> None:
    found = changed(
        header(LLAMA, matrices(F16)),
        embedding_length=16,
        attention__key_length=None,
        attention__value_length=None,
    )
    assert read(found).head_dim == 1


def test_every_type_of_ggml_has_whole_blocks() -> None:
    assert Tensor("x", (512, 3), Q4_K).bytes == 2 * 3 * 144
    for kind, stored in TYPES.items():
        assert Tensor("x", (stored.elements * 4, 5), kind).bytes == 20 * stored.bytes
        assert 1.0 <= 8 * stored.bytes / stored.elements <= 64.0


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv", "attention.key_length",
        "expert_count", "expert_used_count", "attention.sliding_window", "attention.sliding_window_pattern",
        "ssm.inner_size", "nextn_predict_layers", "kda.head_dim", "attention.kv_lora_rank",
    ]
)  # fmt: skip


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.booleans())
def test_any_metadata_gives_a_spec_or_a_reason(keys: dict[str, object], latent: bool) -> None:
    found = mla(split=True) if latent else hybrid("qwen3next", (0, 1), 4, ssm__inner_size=64, ssm__state_size=8)
    changed_ = changed(found, **{name.replace(".", "__"): value for name, value in keys.items()})
    try:
        spec = read(changed_)
    except ValueError as error:
        assert str(error).startswith("GGUF header")  # noqa: PT017 - either outcome is right
        return
    assert spec.matmul_params > 0
    assert decode_flops_per_token(spec, 100) > 0
    assert kv_read_bytes(spec, 100) >= 0
