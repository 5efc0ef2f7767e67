"""Which layers of a Hugging Face config attend to everything, to a window, or are linear; and which are MoE."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.specs.families import Family
from gpumon.specs.fields import Fields, shown


class AttentionLayers(msgspec.Struct, frozen=True):
    """Layers by what their attention sees; `window` in tokens."""

    full: int
    windowed: int = 0
    window: int = 0
    linear: int = 0
    mlp: int | None = None
    """Layers with a dense MLP; None: all that have no experts."""


def attention_layers(fields: Fields, family: Family, layers: int) -> AttentionLayers:
    """Counts the layers; ValueError names the field that is missing or that describes what is not modelled."""
    if family.mamba:
        return _by_letters(fields, layers)
    for name in _NOT_MODELLED:
        if fields.has(name):
            raise fields.error(name, "describes layers that are not modelled")
    for name in _SHARED_PARTS:
        if fields.integer(name, default=0, low=0):
            raise fields.error(name, "describes layers that are not modelled")
    # MiniMax: 1 is attention, 0 lightning attention; M2 lists its layers although all have attention.
    if any(kind != 1 for kind in fields.items("attn_type_list") or ()):
        raise fields.error("attn_type_list", "has layers that are not modelled")
    kinds = fields.items("layer_types")
    if kinds is not None:
        return _by_list(fields, kinds, layers)
    if family.attention_every:
        full = layers // fields.integer("full_attention_interval", default=family.attention_every)
        return AttentionLayers(full, linear=layers - full)
    windowed = _window_layers(fields, family, layers)
    return AttentionLayers(layers - windowed, windowed, _window(fields) if windowed else 0)


def moe_layers(fields: Fields, layers: int) -> int:
    """How many of the layers hold routed experts, for a config that has experts."""
    if fields.has(*_PATTERNS):
        return _letters(fields).count("E")
    listed = fields.items("mlp_layer_types")
    if listed is not None:
        return sum(kind == "sparse" for kind in listed)
    listed = fields.items("moe_layers")
    if listed is not None:
        return len(listed)
    if fields.has("interleave_moe_layer_step"):
        return layers // fields.integer("interleave_moe_layer_step")
    frequency = fields.raw("moe_layer_freq")
    if isinstance(frequency, list):
        return sum(bool(each) for each in frequency)
    dense = fields.integer("first_k_dense_replace", default=0, low=0)
    step = fields.integer("decoder_sparse_step", "moe_layer_freq", default=1)
    skipped = fields.items("mlp_only_layers") or []
    first = step - 1 if fields.has("decoder_sparse_step") else 0
    return sum(i >= dense and i % step == first and i not in skipped for i in range(layers))


def _by_letters(fields: Fields, layers: int) -> AttentionLayers:
    """Nemotron-H: M Mamba2, * attention, - MLP, E experts; a layer is one of them."""
    if fields.has("moe_latent_size"):
        raise fields.error("moe_latent_size", "describes layers that are not modelled")
    pattern = _letters(fields)
    if len(pattern) != layers or set(pattern) - set("M*-E"):
        raise fields.error(_PATTERNS[0], f"{shown(pattern)} is not {layers} letters of M, *, - and E")
    return AttentionLayers(pattern.count("*"), linear=pattern.count("M"), mlp=pattern.count("-"))


def _letters(fields: Fields) -> str:
    """The pattern as published in letters, or as a list of words."""
    words = fields.items(_PATTERNS[1])
    if words is None:
        return fields.text(_PATTERNS[0])
    return "".join(_WORDS.get(word, "?") if isinstance(word, str) else "?" for word in words)


def _by_list(fields: Fields, kinds: list[object], layers: int) -> AttentionLayers:
    if len(kinds) != layers:
        raise fields.error("layer_types", f"has {len(kinds)} entries for {layers} layers")
    counts = {"full": 0, "windowed": 0, "linear": 0}
    for kind in kinds:
        place = _KINDS.get(kind) if isinstance(kind, str) else None
        if place is None:
            raise fields.error("layer_types", f"has {shown(kind)}, which is not modelled")
        counts[place] += 1
    window = _window(fields) if counts["windowed"] else 0
    return AttentionLayers(window=window, **counts)


def _window_layers(fields: Fields, family: Family, layers: int) -> int:
    if family.full_every:
        pattern = fields.raw("sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval")
        period = pattern if isinstance(pattern, int) and pattern > 0 else family.full_every
        return layers - layers // period
    if not fields.has("sliding_window") or not fields.flag("use_sliding_window", default=True):
        return 0
    if fields.has("use_sliding_window"):
        return max(0, layers - fields.integer("max_window_layers", default=0, low=0))
    return layers


def _window(fields: Fields) -> int:
    return fields.integer("attention_chunk_size", "sliding_window", high=100_000_000)


_KINDS: Final = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "windowed",
    "chunked_attention": "windowed",
    "linear_attention": "linear",
}

_PATTERNS: Final = ("hybrid_override_pattern", "layers_block_type")
_WORDS: Final = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
_NOT_MODELLED: Final = (
    "hybrid_override_pattern",
    "hybrid_layer_pattern",
    "layers_block_type",
    "mamba_d_state",
    "mamba_num_heads",
    "ssm_cfg",
    "state_size",
    "linear_attn_config",
    "compress_ratios",
    "block_configs",
    "cross_attention_layers",
)
"""Fields of state-space, lightning, KDA, compressed-attention, searched and cross-attending architectures."""

_SHARED_PARTS: Final = ("hidden_size_per_layer_input", "num_kv_shared_layers")
"""Counts of small Gemmas, 0 in the others: look-up tables per layer, and layers that use the KV cache of others."""
