"""A Hugging Face `config.json` -> LlmSpec: dimensions, layer kinds, experts, stored precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.specs.architectures import ARCHITECTURES, Architecture, Layer, layer_blocks
from gpumon.specs.fields import Fields, RefusedError, json_text
from gpumon.specs.layers import HEAD, Block, Routed, hidden_size, key_dim, query_heads
from gpumon.specs.left_out import AUDIO, VISION
from gpumon.specs.llm import Attention, LlmSpec, State, merge_layers
from gpumon.specs.precision import Precision
from gpumon.specs.quantization import as_saved, weight_format
from gpumon.specs.weight_format import LlmParts, WeightFormat, unquantised, with_weights

_AGREE: Final = 0.02
"""Bytes of the files this far from what the dimensions give are a contradiction."""


class Described(NamedTuple):
    """Description of a model by its config."""

    spec: LlmSpec
    parts: LlmParts
    weights: WeightFormat


def llm_from_config(
    config: Mapping[str, object],
    name: str,
    source: str,
    weights: Mapping[str, float] | None = None,
    at_load: WeightFormat | None = None,
) -> LlmSpec:
    """The LLM that `config` describes; as `describe_llm`, of which it is the spec."""
    return describe_llm(config, name, source, weights, at_load).spec


def describe_llm(
    config: Mapping[str, object],
    name: str,
    source: str,
    weights: Mapping[str, float] | None = None,
    at_load: WeightFormat | None = None,
) -> Described:
    """The LLM that `config` describes.

    `weights` are the bytes on disk by safetensors type (`{"": total}` where only the total is known); what the
    dimensions give must agree with them. `at_load` is how the engine stores weights that the checkpoint has at 16 bit.
    Parameters are those of matrix products and look-up tables, without biases and norms (below 0.8 %).
    Raises ValueError that names the field, where one is missing, absurd, or describes what is not modelled;
    RefusedError (one of them) where the architecture or the format is not known, or the files say otherwise.
    """
    inner, notes = _language_model(config)
    fields, architecture = _known(Fields(inner, config))
    if isinstance(config.get("text_config"), dict) and isinstance(config.get("tie_word_embeddings"), bool):
        # The class of the whole model decides, not that of its language model.
        fields = fields.with_first({"tie_word_embeddings": config["tie_word_embeddings"]})
    notes = (*notes, *_encoder_left_out(fields, architecture))
    count = _layer_count(fields)
    layers = layer_blocks(fields, architecture, count)
    built = _built(fields, architecture, layers)
    parts = _parts(fields, architecture, built, count)
    stored = _weights(fields, built, weights, at_load)
    if weights and at_load is None:
        saved = _weights(fields, built, weights, at_load, saved=True)
        parts = _as_held(fields, architecture, parts, saved, weights, count, foreign=bool(notes))
    attention = _attention(built)
    narrowed = ""
    if _dtype(fields, weights) in _WIDER:
        narrowed = ", 32-bit weights loaded at 16 bit"
    spec = LlmSpec(
        name=name,
        source=f"{source}{narrowed}",
        params=0.0,
        matmul_params=0.0,
        head_params=0.0,
        vocab=_vocabulary(fields),
        hidden=hidden_size(fields),
        layers=count,
        heads=_heads(fields, attention),
        kv_heads=max((look.heads for look in attention), default=1),
        head_dim=_head_dim(fields, attention),
        attention=attention,
        states=_states(built),
        not_modelled=notes,
        max_context=fields.integer(*_CONTEXT, default=0, low=0, high=100_000_000),
    )
    return Described(with_weights(spec, parts, stored), parts, stored)


def _encoder_left_out(fields: Fields, architecture: Architecture) -> tuple[str, ...]:
    """The encoder beside the decoder that is modelled. ValueError where one without the other makes no sense.

    An encoder of sound has the same number of positions in each request; the length of a text that is to be
    translated or summed up is told by no counter.
    """
    if architecture.encoder == AUDIO:
        return (AUDIO,)
    decodes_alone = any(str(name).endswith("ForCausalLM") for name in fields.items("architectures") or ())
    if architecture.encoder and decodes_alone:
        return (architecture.encoder,)
    if architecture.encoder or fields.flag("is_encoder_decoder"):
        raise fields.error("is_encoder_decoder", "is true: no counter says how long the texts of its encoder are")
    return ()


def _layer_count(fields: Fields) -> int:
    """Number of layers; a config that lists the kind of each layer need not tell it."""
    kinds = fields.raw("hybrid_override_pattern", "layers_block_type", "layer_types")
    default = None
    if isinstance(kinds, (str, list)) and kinds:
        default = len(kinds)
    return fields.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers", default=default, high=2000)


def _attention(built: Mapping[_Key, int]) -> tuple[Attention, ...]:
    """How all layers look back, alike ones as one."""
    looks = []
    for key, count in built.items():
        for attention in key.attention:
            looks.append(msgspec.structs.replace(attention, layers=count))
    return merge_layers(looks)


def _language_model(config: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    notes = tuple(note for key, note in _ENCODERS.items() if isinstance(config.get(key), dict))
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, dict):
            deeper, more = _language_model(inner)
            return deeper, tuple(dict.fromkeys((*notes, *more)))
    return config, notes


def _known(fields: Fields) -> tuple[Fields, Architecture]:
    model_type = _model_type(fields)
    if not model_type:
        raise fields.error("model_type", "is missing: it names the architecture")
    if model_type in _REFUSED:
        why = f"{json_text(model_type)} is not modelled: {_REFUSED[model_type]}"
        raise fields.refusal("model_type", why)
    architecture = ARCHITECTURES.get(model_type)
    if architecture is None:
        raise fields.refusal("model_type", f"{json_text(model_type)} is not a known architecture")
    for name in _NOT_MODELLED:
        if fields.has(name):
            raise fields.refusal(name, "describes layers that are not modelled")
    for name in architecture.nested:
        fields = fields.with_last(fields.table(name) or {})
    own = {name: fields.raw(other) for name, other in architecture.names.items()}
    return fields.with_first(own).with_last(architecture.defaults), architecture


def _model_type(fields: Fields) -> str:
    """The type by which an architecture is known; Grok-2's own config says that of another model."""
    for name in fields.items("architectures") or ():
        if name in _BY_CLASS:
            return _BY_CLASS[str(name)]
    return fields.text("model_type")


_BY_CLASS: Final = {"Grok1ForCausalLM": "grok"}


class _Key(NamedTuple):
    """A block as it is built: layers in which it is the same count together."""

    name: str
    params: tuple[tuple[str, float], ...]
    attention: tuple[Attention, ...]
    states: tuple[State, ...]
    routed: Routed | None
    copies: int


def _built(fields: Fields, architecture: Architecture, layers: Sequence[Layer]) -> dict[_Key, int]:
    """How often each block occurs; each different one is built once."""
    # transformers pads the numbers of layers with zeros.
    tables = {key.lstrip("0"): table for key, table in (fields.table("per_layer_config") or {}).items()}
    overrides = []
    for layer in range(len(layers)):
        overrides.append(_overrides(fields, architecture, layer, tables.get(str(layer or ""))))
    counted = Counter((name, own) for blocks, own in zip(layers, overrides, strict=True) for name in blocks)
    built: dict[_Key, int] = {}
    for (name, own), count in counted.items():
        block: Block = architecture.blocks[name](fields.with_first(dict(own)) if own else fields)
        key = _Key(name, tuple(block.params.items()), block.attention, block.states, block.routed, block.copies)
        built[key] = built.get(key, 0) + count
    return built


def _overrides(fields: Fields, architecture: Architecture, layer: int, table: object) -> tuple[tuple[str, int], ...]:
    """Fields that this layer has of its own: transformers' `per_layer_config`, and numbers listed by layer."""
    if architecture.by_layer:
        own = dict(architecture.by_layer(fields, layer))
    else:
        own = {}
    for name, target in _BY_LAYER.items():
        listed = fields.raw(name)
        if isinstance(listed, list) and layer < len(listed) and isinstance(listed[layer], int):
            own[target] = listed[layer]
    if isinstance(table, dict):
        own.update((name, value) for name, value in table.items() if isinstance(value, int))
    return tuple(own.items())


def _parts(fields: Fields, architecture: Architecture, built: Mapping[_Key, int], layers: int) -> LlmParts:
    """Parameters of the whole model by what a step does with them."""
    multiplied, repeated = _multiplied(built)
    experts, per_token, expert = _experts(fields, built)
    if architecture.once:
        for part, params in architecture.once(fields, layers).params.items():
            multiplied[part] = multiplied.get(part, 0.0) + params
    width = fields.integer(*_EMBEDDING_SIZES, default=hidden_size(fields))
    has_head = _has_head(fields)
    if width != hidden_size(fields):
        projections = 2 if has_head else 1
        multiplied["mlp"] = multiplied.get("mlp", 0.0) + float(projections * width * hidden_size(fields))
    table = float(_vocabulary(fields) * width)
    head = table if has_head else 0.0
    own_table = 0.0 if _tied(fields, architecture) and has_head else table
    positions = sum(fields.integer(name, default=0, low=0) for name in architecture.positions) * width
    further_tables = architecture.tables(fields, layers) if architecture.tables else 0.0
    return LlmParts(
        multiplied=multiplied,
        head=head,
        tables=own_table + positions + further_tables,
        expert=expert,
        experts=experts,
        experts_per_token=per_token,
        repeated=repeated,
    )


def _multiplied(built: Mapping[_Key, int]) -> tuple[dict[str, float], dict[str, float]]:
    """Parameters that a token is multiplied with, by part; and how many of them are copies of shared blocks."""
    multiplied: dict[str, float] = {}
    repeated: dict[str, float] = {}
    for key, count in built.items():
        for part, params in key.params:
            multiplied[part] = multiplied.get(part, 0.0) + params * count
            if key.copies:
                repeated[part] = repeated.get(part, 0.0) + params * max(0, count - key.copies)
    return multiplied, repeated


def _experts(fields: Fields, built: Mapping[_Key, int]) -> tuple[int, int, float]:
    """Experts of a layer, how many of them a token goes through, and the parameters of one over all layers."""
    params: dict[tuple[int, int], float] = {}
    for key, count in built.items():
        if key.routed:
            shape = (key.routed.experts, key.routed.per_token)
            params[shape] = params.get(shape, 0.0) + key.routed.params * count
    if len(params) > 1:
        raise fields.error("num_experts", "differs by layer, which is not modelled")
    for (experts, per_token), expert in params.items():
        return experts, per_token, expert
    return 0, 0, 0.0


def _has_head(fields: Fields) -> bool:
    """Whether the checkpoint has an LM head: not where it is said to be the bare model, or one that classifies."""
    names = []
    for name in fields.items("architectures") or ():
        if isinstance(name, str):
            names.append(name)
    for name in names:
        is_bare = name.endswith("Model") and not name.endswith(_WITH_HEAD)
        if not is_bare and "Classification" not in name:
            return True
    return not names


def _tied(fields: Fields, architecture: Architecture) -> bool:
    return fields.flag(*_TIES, default=architecture.tied)


_TIES: Final = ("tie_word_embeddings", "tie_embedding")
_WITH_HEAD: Final = ("LMHeadModel", "HeadsModel", "ChatGLMModel", "ChatModel", "OmniModel")
"""Names of classes that generate, though they end in `Model`."""


def _vocabulary(fields: Fields) -> int:
    return fields.integer("padded_vocab_size", "vocab_size", "n_vocab")


def _heads(fields: Fields, attention: Sequence[Attention]) -> int:
    if attention:
        return query_heads(fields)
    return 1


def _head_dim(fields: Fields, attention: Sequence[Attention]) -> int:
    if not attention:
        return 1
    return fields.integer("qk_nope_head_dim", default=0, low=0, high=65_536) or key_dim(fields)


def _states(built: Mapping[_Key, int]) -> tuple[State, ...]:
    counted: dict[State, int] = {}
    for key, count in built.items():
        for state in key.states:
            counted[state] = counted.get(state, 0) + count
    return tuple(msgspec.structs.replace(state, layers=count) for state, count in counted.items())


def _weights(
    fields: Fields,
    built: Mapping[_Key, int],
    weights: Mapping[str, float] | None,
    at_load: WeightFormat | None,
    *,
    saved: bool = False,
) -> WeightFormat:
    """How an engine reads the weights, or how they are `saved`."""
    base = _TYPES.get(_dtype(fields, weights))
    if base is None:
        raise fields.error("torch_dtype", f"{_dtype(fields, weights)!r} is not known")
    config = _quantization(fields)
    if config:
        if saved:
            config = as_saved(config)
        return weight_format(config, base, _layers_of(built), fields.text("expert_dtype"))
    if at_load is None:
        return unquantised(base)
    return msgspec.structs.replace(at_load, base=base)


def _layers_of(built: Mapping[_Key, int]) -> dict[str, int]:
    """Layers that have each part."""
    layers: dict[str, int] = {}
    for key, count in built.items():
        parts = [part for part, _ in key.params]
        if key.routed:
            parts.append("experts")
        for part in parts:
            layers[part] = layers.get(part, 0) + count
    return layers


def _quantization(fields: Fields) -> Mapping[str, object] | None:
    """The table of the config that says how the weights are quantised; None without one."""
    for key in QUANTIZATION_KEYS:
        table = fields.table(key)
        if table:
            return table
    return None


def _dtype(fields: Fields, weights: Mapping[str, float] | None) -> str:
    stored = fields.text("torch_dtype", "dtype").removeprefix("torch.")
    if not stored and weights:
        stored = max(weights, key=lambda name: weights[name]).lower()
    return stored or "bfloat16"


def _as_held(
    fields: Fields,
    architecture: Architecture,
    parts: LlmParts,
    stored: WeightFormat,
    weights: Mapping[str, float],
    layers: int,
    *,
    foreign: bool,
) -> LlmParts:
    """`parts` as the files hold them; RefusedError where these do not hold what the dimensions give.

    Encoders of other modalities and layers that draft tokens may come on top, and so may a copy of the look-up table
    that a tied LM head is saved as (Qwen3-0.6B). A model that embeds texts may be saved without the head that its
    config speaks of (Qwen3-Embedding-8B): then it has none.
    """
    expected = parts.stored_bytes(stored)
    head = parts.head * stored.of(HEAD).bytes_per_weight
    drafts = fields.integer(*_DRAFT_LAYERS, default=0, low=0)
    on_top = drafts * (2.0 * (expected - parts.tables * 2.0) / layers + 2.0 * parts.tables * 2.0)
    held = _bytes_at_16_bit(fields, stored, weights)
    for total in held:
        if expected * (1.0 - _AGREE) <= total and (foreign or total <= expected * (1.0 + _AGREE) + on_top):
            return parts
        if _tied(fields, architecture) and _close(total, expected + head):
            return parts
        if fields.raw(*_TIES) is False and _close(total, expected - head):
            return msgspec.structs.replace(parts, head=0.0)
    raise RefusedError(
        f"config.json gives {expected / 1e9:.3f} GB of weights, and the files hold {held[0] / 1e9:.3f} GB "
        f"({held[0] / expected - 1.0:+.1%}): the architecture or the format is not the one that is known here",
        "config.json: the size of the weights",
    )


def _close(total: float, expected: float) -> bool:
    return abs(total / expected - 1.0) <= _AGREE


def _bytes_at_16_bit(fields: Fields, stored: WeightFormat, weights: Mapping[str, float]) -> tuple[float, ...]:
    """Bytes of the files as an engine loads them, which narrows 32 bit; both readings where no type is told."""
    if stored.parts:
        return (sum(weights.values()),)
    halved = sum(total / (2.0 if name.upper() == "F32" else 1.0) for name, total in weights.items())
    if "" not in weights:
        return (halved,)
    dtype = ""
    if fields.has("torch_dtype", "dtype"):
        dtype = _dtype(fields, None)
    return {"float32": (halved / 2.0,), "float": (halved / 2.0,), "": (halved, halved / 2.0)}.get(dtype, (halved,))


QUANTIZATION_KEYS: Final = ("quantization_config", "compression_config")
"""Fields in which a checkpoint says how it is quantised."""
_DIFFUSION = "it computes a block of tokens several times over (diffusion), and no counter says how often"
_REFUSED: Final = {
    "diffusion_gemma": _DIFFUSION,
    "diffusion_gemma_text": _DIFFUSION,
}
"""Model types that are known, and why no figure of them would be right."""
_NESTED: Final = ("text_config", "llm_config", "language_config", "thinker_config")
_ENCODERS: Final = {
    "vision_config": VISION,
    "vision_tower": VISION,
    "visual": VISION,  # Qwen-VL
    "vit_config": VISION,  # Ovis
    "visual_tokenizer_config": VISION,
    "embd_layer": VISION,  # Phi-3-vision, Phi-4-multimodal
    "audio_config": AUDIO,
    "audio_processor": AUDIO,
}
_EMBEDDING_SIZES: Final = ("embedding_size", "word_embed_proj_dim", "input_embedding_size")
_DRAFT_LAYERS: Final = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""Layers of a draft head: in the files, not in a plain forward pass."""
_CONTEXT: Final = ("max_position_embeddings", "model_max_length", "max_seq_len", "n_positions", "seq_length")
_BY_LAYER: Final = {
    "intermediate_size": "intermediate_size",
    "moe_intermediate_size": "moe_intermediate_size",
    "num_attention_heads_per_layer": "num_attention_heads",
    "num_key_value_heads_per_layer": "num_key_value_heads",
    "moe_topk": "moe_topk",
    "num_shared_expert": "num_shared_expert",
}
"""Lists with a number per layer -> the field that they stand for."""
_NOT_MODELLED: Final = ("cross_attention_layers", "ssm_cfg", "feed_forward_type")
"""Fields of cross-attending layers and other parts that no row of the table has (jina-embeddings-v2's gated MLPs,
which call themselves BERT)."""

_WIDER: Final = ("float32", "f32", "float")
"""Serving engines load such checkpoints at 16 bit unless told otherwise."""
_TYPES: Final = {
    "bfloat16": Precision.BF16,
    "bf16": Precision.BF16,
    "float16": Precision.FP16,
    "half": Precision.FP16,
    "f16": Precision.FP16,
    **dict.fromkeys(_WIDER, Precision.FP16),
    # Quantised files: the rest of the weights is BF16.
    "f8_e4m3": Precision.BF16,
    "u8": Precision.BF16,
    "i8": Precision.BF16,
    "i32": Precision.BF16,
}
