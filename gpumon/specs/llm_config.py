"""A Hugging Face `config.json` -> LlmSpec: dimensions, layer kinds, experts, stored precision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from gpumon.specs.families import FAMILIES, Family
from gpumon.specs.fields import Fields
from gpumon.specs.layers import AttentionLayers, attention_layers, moe_layers
from gpumon.specs.left_out import AUDIO, INDEXER, LINEAR_ATTENTION, MIXED_HEADS, STATE_UPDATE, VISION
from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import Precision
from gpumon.specs.quantization import weight_format
from gpumon.specs.weight_format import LlmParts, WeightFormat, plain, with_weights

SPARSE_TOP_K: Final = 2048
"""Tokens that DeepSeek sparse attention looks at (`index_topk` of DeepSeek-V3.2 and GLM-5)."""

_AGREE = 0.25
"""A file total this far from what the dimensions give is not used: the checkpoint holds something else too."""


def llm_from_config(
    config: Mapping[str, object],
    name: str,
    source: str,
    weights: Mapping[str, float] | None = None,
    at_load: WeightFormat | None = None,
) -> LlmSpec:
    """The LLM that `config` describes.

    `weights` are the bytes on disk by safetensors type (`{"": total}` where only the total is known); they correct
    the bytes that a step reads. `at_load` is how the engine stores weights that the checkpoint has at 16 bit.
    Parameters are counted from the dimensions, without biases and norms (below 0.1 %).
    Raises ValueError that names the field, where one is missing, absurd, or describes what is not modelled.
    """
    inner, notes = _language_model(config)
    family = FAMILIES.get(Fields(inner, config).text("model_type"), Family())
    fields = Fields(inner, config, family.defaults)
    if fields.flag("is_encoder_decoder"):
        raise fields.error("is_encoder_decoder", "is true: encoder-decoder models are not modelled")
    layers = fields.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers", high=2000)
    hidden = fields.integer("hidden_size", "n_embd", "d_model", high=1_000_000)
    kinds = attention_layers(fields, family, layers)
    spec = _attention(fields, family, LlmSpec(name, source, 0.0, 0.0, 0, hidden, 1, 1, 1, 0), kinds)
    parts = _parts(fields, family, spec, kinds)
    stored = _weights(fields, layers, weights, at_load)
    extra = (*notes, *spec.not_modelled)
    spec = msgspec.structs.replace(with_weights(spec, parts, stored), not_modelled=extra)
    foreign = bool(notes) or fields.integer(*_PREDICT_LAYERS, default=0, low=0) > 0
    return spec if foreign or not weights else _with_file_bytes(spec, parts, sum(weights.values()))


def _language_model(config: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    notes = tuple(note for key, note in _ENCODERS.items() if isinstance(config.get(key), dict))
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, dict):
            deeper, more = _language_model(inner)
            return deeper, tuple(dict.fromkeys((*notes, *more)))
    return config, notes


def _attention(fields: Fields, family: Family, spec: LlmSpec, kinds: AttentionLayers) -> LlmSpec:
    heads = fields.integer("num_attention_heads", "n_head", "n_heads", high=100_000)
    notes: list[str] = []
    if fields.has("num_attention_heads_per_layer", "global_head_dim", "num_global_key_value_heads"):
        notes.append(MIXED_HEADS)
    spec = msgspec.structs.replace(
        spec,
        vocab=fields.integer("vocab_size", "padded_vocab_size", "n_vocab"),
        heads=heads,
        full_layers=kinds.full,
        window_layers=kinds.windowed,
        window=kinds.window,
        linear_layers=kinds.linear,
    )
    if kinds.linear:
        notes.append(STATE_UPDATE if family.mamba else LINEAR_ATTENTION)
        state = _mamba(fields).state if family.mamba else math.prod(_linear_heads(fields)[1:])
        spec = msgspec.structs.replace(spec, linear_state_elements=float(kinds.linear * state))
    spec = _latent(fields, family, spec, notes) if fields.has("kv_lora_rank") else _grouped(fields, spec)
    return msgspec.structs.replace(spec, not_modelled=tuple(notes))


def _grouped(fields: Fields, spec: LlmSpec) -> LlmSpec:
    names = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
    single = fields.flag("multi_query") and not fields.flag("new_decoder_architecture")
    kv_heads = 1 if single else fields.integer(*names, default=spec.heads, high=100_000)
    if spec.heads % kv_heads:
        raise fields.error("num_key_value_heads", f"{kv_heads} does not divide the {spec.heads} attention heads")
    if not fields.has("head_dim", "attention_head_dim") and spec.hidden % spec.heads:
        raise fields.error(
            "head_dim", f"is missing, and hidden_size {spec.hidden} is no multiple of {spec.heads} heads"
        )
    head_dim = fields.integer("head_dim", "attention_head_dim", default=spec.hidden // spec.heads, high=65_536)
    return msgspec.structs.replace(spec, kv_heads=kv_heads, head_dim=head_dim)


def _latent(fields: Fields, family: Family, spec: LlmSpec, notes: list[str]) -> LlmSpec:
    plain_dim = fields.integer("qk_nope_head_dim", high=65_536)
    rope = fields.integer("qk_rope_head_dim", low=0, high=65_536)
    spec = msgspec.structs.replace(
        spec,
        kv_heads=1,
        head_dim=plain_dim,
        kv_lora_rank=fields.integer("kv_lora_rank", high=1_000_000),
        rope_dim=rope,
        qk_head_dim=plain_dim + rope,
        v_head_dim=fields.integer("v_head_dim", high=65_536),
    )
    if not fields.has("index_topk") and not family.sparse:
        return spec
    notes.append(INDEXER)
    top_k = fields.integer("index_topk", default=SPARSE_TOP_K)
    return msgspec.structs.replace(
        spec, full_layers=0, window_layers=spec.full_layers + spec.window_layers, window=top_k
    )


def _parts(fields: Fields, family: Family, spec: LlmSpec, kinds: AttentionLayers) -> LlmParts:
    head = float(spec.vocab * spec.hidden)
    tied = fields.flag("tie_word_embeddings", default=family.tied)
    attention = _attention_params(fields, family, spec)
    matrices = 2 if family.two_matrices else 3
    experts = fields.integer(*_EXPERTS, default=0, low=0, high=65_536)
    sparse = moe_layers(fields, spec.layers) if experts else 0
    plain_mlps = spec.layers - sparse if kinds.mlp is None else kinds.mlp
    wide = fields.integer(*_MLP_SIZES, default=4 * spec.hidden if matrices == 2 else None) if plain_mlps else 0
    mlp = float(matrices * spec.hidden * wide * plain_mlps)
    dense = LlmParts(attention, mlp, head, 0.0 if tied else head)
    if not experts:
        return dense
    size = fields.integer("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    return msgspec.structs.replace(
        dense,
        router=float(spec.hidden * experts * sparse),
        shared=float(matrices * spec.hidden * _shared_size(fields, family, size) * sparse),
        expert=float(matrices * spec.hidden * size * sparse),
        experts=experts,
        experts_per_token=fields.integer(*_TOP_K, high=experts),
    )


def _attention_params(fields: Fields, family: Family, spec: LlmSpec) -> float:
    h, heads = spec.hidden, spec.heads
    attending = spec.full_layers + spec.window_layers
    if spec.kv_lora_rank:
        query_rank = fields.integer("q_lora_rank", default=0, low=0)
        query = query_rank * (h + heads * spec.qk_head_dim) if query_rank else h * heads * spec.qk_head_dim
        up = spec.kv_lora_rank * heads * (spec.head_dim + spec.v_head_dim)
        latent = h * (spec.kv_lora_rank + spec.rope_dim)
        return float(attending * (query + latent + up + heads * spec.v_head_dim * h))
    gated = fields.flag("attn_output_gate", default=family.gated_attention)
    query_and_out = (3 if gated else 2) * heads * spec.head_dim
    total = attending * h * (query_and_out + 2 * spec.kv_heads * spec.head_dim)
    if family.mamba and spec.linear_layers:
        total += spec.linear_layers * _mamba(fields).params(h)
    elif spec.linear_layers:
        key_heads, value_heads, key_dim, value_dim = _linear_heads(fields)
        keys, values = key_heads * key_dim, value_heads * value_dim
        total += spec.linear_layers * h * (2 * keys + 3 * values + 2 * value_heads)
    return float(total)


def _linear_heads(fields: Fields) -> tuple[int, int, int, int]:
    """Key heads, value heads, key and value dimension of a gated delta net."""
    return (
        fields.integer("linear_num_key_heads", high=100_000),
        fields.integer("linear_num_value_heads", high=100_000),
        fields.integer("linear_key_head_dim", high=65_536),
        fields.integer("linear_value_head_dim", high=65_536),
    )


class _Mamba(NamedTuple):
    """Sizes of a Mamba2 layer."""

    heads: int
    head_dim: int
    state_size: int
    groups: int

    @property
    def state(self) -> int:
        """Elements of its state per sequence."""
        return self.heads * self.head_dim * self.state_size

    def params(self, hidden: int) -> int:
        """Of the projections in (gate, input, B, C and time step) and out."""
        inner = self.heads * self.head_dim
        return hidden * (3 * inner + 2 * self.groups * self.state_size + self.heads)


def _mamba(fields: Fields) -> _Mamba:
    return _Mamba(
        fields.integer("mamba_num_heads", high=100_000),
        fields.integer("mamba_head_dim", high=65_536),
        fields.integer("ssm_state_size", high=65_536),
        fields.integer("n_groups", "mamba_n_groups", high=100_000),
    )


def _shared_size(fields: Fields, family: Family, expert_size: int) -> int:
    if family.one_shared:
        return expert_size
    width = fields.integer(*_SHARED_SIZES, default=0, low=0)
    count = fields.integer("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", default=0, low=0)
    return width or count * fields.integer("share_expert_dim", default=expert_size)


def _weights(
    fields: Fields, layers: int, weights: Mapping[str, float] | None, at_load: WeightFormat | None
) -> WeightFormat:
    stored = fields.text("torch_dtype", "dtype").removeprefix("torch.")
    if not stored and weights:
        stored = max(weights, key=lambda each: weights[each]).lower()
    base = _TYPES.get(stored or "bfloat16")
    if base is None:
        raise fields.error("torch_dtype", f"{stored!r} is not known")
    config = next((found for key in QUANTIZATION_KEYS if (found := fields.table(key))), None)
    if config:
        return weight_format(config, base, layers)
    return plain(base) if at_load is None else msgspec.structs.replace(at_load, base=base)


def _with_file_bytes(spec: LlmSpec, parts: LlmParts, total_bytes: float) -> LlmSpec:
    table = parts.embedding * 2.0
    ratio = (total_bytes - table) / spec.read_bytes
    if abs(ratio - 1.0) > _AGREE:
        note = f"{spec.source}; files hold {ratio:.2f} x the bytes that its dimensions give"
        return msgspec.structs.replace(spec, source=note)
    return msgspec.structs.replace(
        spec, read_bytes=spec.read_bytes * ratio, expert_read_bytes=spec.expert_read_bytes * ratio
    )


QUANTIZATION_KEYS: Final = ("quantization_config", "compression_config")
"""Where a checkpoint says how it is quantised."""
_NESTED: Final = ("text_config", "llm_config", "language_config", "thinker_config")
_ENCODERS: Final = {
    "vision_config": VISION,
    "vision_tower": VISION,
    "audio_config": AUDIO,
}
_EXPERTS: Final = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
_TOP_K: Final = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "top_k_experts")
_MLP_SIZES: Final = ("intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
_SHARED_SIZES: Final = (
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
    "moe_shared_expert_intermediate_size",
)
_PREDICT_LAYERS: Final = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""Layers of a draft head: in the files, not in a plain forward pass."""

_TYPES: Final = {
    "bfloat16": Precision.BF16,
    "bf16": Precision.BF16,
    "float16": Precision.FP16,
    "half": Precision.FP16,
    "f16": Precision.FP16,
    # Serving engines load 32-bit checkpoints at 16 bit unless told otherwise.
    "float32": Precision.FP16,
    "f32": Precision.FP16,
    "float": Precision.FP16,
    # Quantised files: the rest of the weights is BF16.
    "f8_e4m3": Precision.BF16,
    "u8": Precision.BF16,
    "i8": Precision.BF16,
    "i32": Precision.BF16,
}
