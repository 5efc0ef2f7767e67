"""A Hugging Face `config.json` -> LlmSpec: dimensions, layer kinds, experts, stored precision."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.specs.architectures import ARCHITECTURES, Architecture, Layer, layer_blocks
from gpumon.specs.dimensions import LARGEST_HEAD_DIM, LONGEST_CONTEXT, MOST_LAYERS
from gpumon.specs.fields import Fields, RefusedError, json_text
from gpumon.specs.layers import EXPERTS, HEAD, MLP, Block, Routed, hidden_size, key_dim, query_heads
from gpumon.specs.llm import MODEL_FORMAT_BYTES, Attention, LlmSpec, State, merge_layers
from gpumon.specs.not_modelled import AUDIO, VISION
from gpumon.specs.precision import Precision
from gpumon.specs.quantization import as_saved, weight_format
from gpumon.specs.weight_format import LlmParts, WeightFormat, unquantised, with_weights

_SIZE_TOLERANCE: Final = 0.02
"""Share by which the bytes of the files may differ from what the dimensions give. A choice: what `layers` leaves out is
below 0.8 %, and rows of the catalogue without a note are within 2 % of their published total."""
_BY_CLASS: Final = {"Grok1ForCausalLM": "grok"}
"""Class of a model -> its type, where the config's own type says another."""
_TIED_FIELDS: Final = ("tie_word_embeddings", "tie_embedding")
"""Fields that say whether the LM head is the table of embeddings."""
_GENERATING_CLASSES: Final = ("LMHeadModel", "HeadsModel", "ChatGLMModel", "ChatModel", "OmniModel")
"""Names of classes that generate, though they end in `Model`."""
QUANTIZATION_KEYS: Final = ("quantization_config", "compression_config")
"""Fields in which a checkpoint says how it is quantised."""
_DIFFUSION = "it computes a block of tokens several times over (diffusion), and no counter says how often"
_REFUSED_TYPES: Final = {
    "diffusion_gemma": _DIFFUSION,
    "diffusion_gemma_text": _DIFFUSION,
}
"""Model types that are known, and why no figure of them would be right."""
_LANGUAGE_MODELS: Final = ("text_config", "llm_config", "language_config", "thinker_config")
"""Fields under which the config of a multimodal model has that of its language model."""
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
"""Field that is there where a model has an encoder -> the note on what is left out."""
_EMBEDDING_SIZES: Final = ("embedding_size", "word_embed_proj_dim", "input_embedding_size")
"""Fields with the width of the look-up table where it is not that of the layers."""
_DRAFT_LAYERS: Final = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""Layers of a draft head: in the files, not in a plain forward pass."""
_CONTEXT_FIELDS: Final = ("max_position_embeddings", "model_max_length", "max_seq_len", "n_positions", "seq_length")
"""Fields with the longest context, the best first."""
_LISTED_BY_LAYER: Final = {
    "intermediate_size": "intermediate_size",
    "moe_intermediate_size": "moe_intermediate_size",
    "num_attention_heads_per_layer": "num_attention_heads",
    "num_key_value_heads_per_layer": "num_key_value_heads",
    "moe_topk": "moe_topk",
    "num_shared_expert": "num_shared_expert",
}
"""Lists with a number per layer -> the field that they stand for."""
_FIELDS_NOT_MODELLED: Final = ("cross_attention_layers", "ssm_cfg", "feed_forward_type")
"""Fields of cross-attending layers and other parts that no row of the table has (jina-embeddings-v2's gated MLPs,
which call themselves BERT)."""

_WIDE_TYPES: Final = ("float32", "f32", "float")
"""32-bit types: serving engines load such checkpoints at 16 bit unless told otherwise."""
_PRECISION_BY_TYPE: Final = {
    "bfloat16": Precision.BF16,
    "bf16": Precision.BF16,
    "float16": Precision.FP16,
    "half": Precision.FP16,
    "f16": Precision.FP16,
    **dict.fromkeys(_WIDE_TYPES, Precision.FP16),
    # Quantised files: the rest of the weights is BF16.
    "f8_e4m3": Precision.BF16,
    "u8": Precision.BF16,
    "i8": Precision.BF16,
    "i32": Precision.BF16,
}
"""Type of the weights as configs name it -> its format."""


class Described(NamedTuple):
    """Description of a model by its config."""

    spec: LlmSpec
    parts: LlmParts
    weights: WeightFormat
    """How its weights are stored."""


def llm_from_config(
    config: Mapping[str, object],
    name: str,
    source: str,
    weights: Mapping[str, float] | None = None,
    format_at_load: WeightFormat | None = None,
) -> LlmSpec:
    """The spec of the LLM that `config` describes; arguments and errors are those of `describe_llm`."""
    return describe_llm(config, name, source, weights, format_at_load).spec


def describe_llm(
    config: Mapping[str, object],
    name: str,
    source: str,
    weights: Mapping[str, float] | None = None,
    format_at_load: WeightFormat | None = None,
) -> Described:
    """The LLM that `config` describes.

    `weights` are the bytes on disk by safetensors type (`{"": total}` where only the total is known); what the
    dimensions give must agree with them. `format_at_load` is how the engine stores weights that the checkpoint has at
    16 bit. Parameters are those of matrix products and look-up tables, without biases and norms (below 0.8 %).
    Raises ValueError that names the field, where one is missing, absurd, or describes what is not modelled;
    RefusedError (one of them) where the architecture or the format is not known, or the files say otherwise.
    """
    inner, notes = _language_model(config)
    fields, architecture = _known_architecture(Fields(inner, config))
    if isinstance(config.get("text_config"), dict) and isinstance(config.get("tie_word_embeddings"), bool):
        # The class of the whole model decides, not that of its language model.
        fields = fields.with_first({"tie_word_embeddings": config["tie_word_embeddings"]})
    notes = (*notes, *_encoder_left_out(fields, architecture))
    layer_count = _layer_count(fields)
    layers = layer_blocks(fields, architecture, layer_count)
    blocks = _count_blocks(fields, architecture, layers)
    parts = _model_parts(fields, architecture, blocks, layer_count)
    stored = _stored_weights(fields, blocks, weights, format_at_load)
    if weights and format_at_load is None:
        saved = _stored_weights(fields, blocks, weights, format_at_load, saved=True)
        parts = _parts_in_files(fields, architecture, parts, saved, weights, layer_count, has_encoders=bool(notes))
    attention = _attention(blocks)
    narrowed = ""
    if _stored_type(fields, weights) in _WIDE_TYPES:
        narrowed = ", 32-bit weights loaded at 16 bit"
    spec = LlmSpec(
        name=name,
        source=f"{source}{narrowed}",
        params=0.0,  # `with_weights` fills in the parameters
        matmul_params=0.0,
        head_params=0.0,
        vocab=_vocabulary(fields),
        hidden=hidden_size(fields),
        layers=layer_count,
        heads=_heads(fields, attention),
        kv_heads=max((layers.kv_heads for layers in attention), default=1),
        head_dim=_head_dim(fields, attention),
        attention=attention,
        states=_states(blocks),
        not_modelled=notes,
        max_context=fields.integer(*_CONTEXT_FIELDS, default=0, low=0, high=LONGEST_CONTEXT),
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
    return fields.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers", default=default, high=MOST_LAYERS)


def _attention(blocks: Mapping[_BuiltBlock, int]) -> tuple[Attention, ...]:
    """The attentions of all layers, alike ones merged."""
    attentions = []
    for block, count in blocks.items():
        for attention in block.attention:
            attentions.append(msgspec.structs.replace(attention, layers=count))
    return merge_layers(attentions)


def _language_model(config: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """The object that describes the language model, and a note for each kind of encoder beside it."""
    notes = tuple(note for key, note in _ENCODERS.items() if isinstance(config.get(key), dict))
    for key in _LANGUAGE_MODELS:
        inner = config.get(key)
        if isinstance(inner, dict):
            deeper, more = _language_model(inner)
            return deeper, tuple(dict.fromkeys((*notes, *more)))
    return config, notes


def _known_architecture(fields: Fields) -> tuple[Fields, Architecture]:
    """The architecture, and the fields with what it implies. Raises RefusedError where it is not known or modelled."""
    model_type = _model_type(fields)
    if not model_type:
        raise fields.error("model_type", "is missing: it names the architecture")
    if model_type in _REFUSED_TYPES:
        why = f"{json_text(model_type)} is not modelled: {_REFUSED_TYPES[model_type]}"
        raise fields.refusal("model_type", why)
    architecture = ARCHITECTURES.get(model_type)
    if architecture is None:
        raise fields.refusal("model_type", f"{json_text(model_type)} is not a known architecture")
    for name in _FIELDS_NOT_MODELLED:
        if fields.has(name):
            raise fields.refusal(name, "describes layers that are not modelled")
    for name in architecture.nested:
        fields = fields.with_last(fields.table(name) or {})
    renamed = {name: fields.raw(other) for name, other in architecture.names.items()}
    return fields.with_first(renamed).with_last(architecture.defaults), architecture


def _model_type(fields: Fields) -> str:
    """The type by which an architecture is known; Grok-2's own config says that of another model."""
    for name in fields.items("architectures") or ():
        if name in _BY_CLASS:
            return _BY_CLASS[str(name)]
    return fields.text("model_type")


class _BuiltBlock(NamedTuple):
    """A `Block` that can be a key: layers in which it is the same are counted together."""

    name: str
    params: tuple[tuple[str, float], ...]
    attention: tuple[Attention, ...]
    states: tuple[State, ...]
    routed: Routed | None
    copies: int


def _count_blocks(fields: Fields, architecture: Architecture, layers: Sequence[Layer]) -> dict[_BuiltBlock, int]:
    """How many layers have each block; each different one is built once."""
    # transformers pads the numbers of layers with zeros.
    tables = {key.lstrip("0"): table for key, table in (fields.table("per_layer_config") or {}).items()}
    overrides = []
    for layer in range(len(layers)):
        overrides.append(_fields_of_layer(fields, architecture, layer, tables.get(str(layer or ""))))
    layer_counts: Counter[tuple[str, tuple[tuple[str, int], ...]]] = Counter()
    for names, layer_fields in zip(layers, overrides, strict=True):
        for name in names:
            layer_counts[name, layer_fields] += 1
    blocks: dict[_BuiltBlock, int] = {}
    for (name, layer_fields), count in layer_counts.items():
        block: Block = architecture.blocks[name](fields.with_first(dict(layer_fields)))
        built = _BuiltBlock(
            name=name,
            params=tuple(block.params.items()),
            attention=block.attention,
            states=block.states,
            routed=block.routed,
            copies=block.copies,
        )
        blocks[built] = blocks.get(built, 0) + count
    return blocks


def _fields_of_layer(
    fields: Fields, architecture: Architecture, layer: int, table: object
) -> tuple[tuple[str, int], ...]:
    """Fields that this layer has of its own: transformers' `per_layer_config`, and numbers listed by layer."""
    overrides: dict[str, int] = {}
    if architecture.by_layer:
        overrides.update(architecture.by_layer(fields, layer))
    for name, target in _LISTED_BY_LAYER.items():
        listed = fields.raw(name)
        if isinstance(listed, list) and layer < len(listed) and isinstance(listed[layer], int):
            overrides[target] = listed[layer]
    if isinstance(table, dict):
        for name, value in table.items():
            if isinstance(value, int):
                overrides[name] = value
    return tuple(overrides.items())


def _model_parts(
    fields: Fields, architecture: Architecture, blocks: Mapping[_BuiltBlock, int], layers: int
) -> LlmParts:
    """Parameters of the whole model by what a step does with them."""
    multiplied, repeated = _multiplied_params(blocks)
    routed = _routed_experts(fields, blocks)
    if architecture.once:
        for part, params in architecture.once(fields, layers).params.items():
            multiplied[part] = multiplied.get(part, 0.0) + params
    width = fields.integer(*_EMBEDDING_SIZES, default=hidden_size(fields))
    has_head = _has_head(fields)
    if width != hidden_size(fields):
        projections = 1
        if has_head:
            projections = 2
        multiplied[MLP] = multiplied.get(MLP, 0.0) + float(projections * width * hidden_size(fields))
    embedding = float(_vocabulary(fields) * width)
    head = 0.0
    tables = embedding
    if has_head:
        head = embedding
        if _is_head_tied(fields, architecture):
            tables = 0.0
    tables += sum(fields.integer(name, default=0, low=0) for name in architecture.added_tables) * width
    if architecture.tables:
        tables += architecture.tables(fields, layers)
    return LlmParts(
        multiplied=multiplied,
        head=head,
        tables=tables,
        expert=routed.params,
        experts=routed.experts,
        experts_per_token=routed.per_token,
        repeated=repeated,
    )


def _multiplied_params(blocks: Mapping[_BuiltBlock, int]) -> tuple[dict[str, float], dict[str, float]]:
    """Parameters that a token is multiplied with, by part; and how many of them are copies of shared blocks."""
    multiplied: dict[str, float] = {}
    repeated: dict[str, float] = {}
    for block, count in blocks.items():
        for part, params in block.params:
            multiplied[part] = multiplied.get(part, 0.0) + params * count
            if block.copies:
                repeated[part] = repeated.get(part, 0.0) + params * max(0, count - block.copies)
    return multiplied, repeated


def _routed_experts(fields: Fields, blocks: Mapping[_BuiltBlock, int]) -> Routed:
    """The routed experts of the model, with the parameters of one expert of each layer added up."""
    params: dict[tuple[int, int], float] = {}
    for block, count in blocks.items():
        if block.routed:
            shape = (block.routed.experts, block.routed.per_token)
            params[shape] = params.get(shape, 0.0) + block.routed.params * count
    if len(params) > 1:
        raise fields.error("num_experts", "differs by layer, which is not modelled")
    for (experts, per_token), expert_params in params.items():
        return Routed(experts, per_token, expert_params)
    return Routed(experts=0, per_token=0, params=0.0)


def _has_head(fields: Fields) -> bool:
    """Whether the checkpoint has an LM head: not where it is said to be the bare model, or one that classifies."""
    names = []
    for name in fields.items("architectures") or ():
        if isinstance(name, str):
            names.append(name)
    for name in names:
        is_bare = name.endswith("Model") and not name.endswith(_GENERATING_CLASSES)
        if not is_bare and "Classification" not in name:
            return True
    return not names


def _is_head_tied(fields: Fields, architecture: Architecture) -> bool:
    """Whether the LM head is the look-up table."""
    return fields.flag(*_TIED_FIELDS, default=architecture.tied)


def _vocabulary(fields: Fields) -> int:
    """Rows of the look-up table and of the LM head."""
    return fields.integer("padded_vocab_size", "vocab_size", "n_vocab")


def _heads(fields: Fields, attention: Sequence[Attention]) -> int:
    """Query heads; 1 without attention."""
    if attention:
        return query_heads(fields)
    return 1


def _head_dim(fields: Fields, attention: Sequence[Attention]) -> int:
    """Width of a key, for MLA without its rope part; 1 without attention."""
    if not attention:
        return 1
    return fields.integer("qk_nope_head_dim", default=0, low=0, high=LARGEST_HEAD_DIM) or key_dim(fields)


def _states(blocks: Mapping[_BuiltBlock, int]) -> tuple[State, ...]:
    """The states of all layers, alike ones merged."""
    counts: dict[State, int] = {}
    for block, count in blocks.items():
        for state in block.states:
            counts[state] = counts.get(state, 0) + count
    return tuple(msgspec.structs.replace(state, layers=count) for state, count in counts.items())


def _stored_weights(
    fields: Fields,
    blocks: Mapping[_BuiltBlock, int],
    weights: Mapping[str, float] | None,
    format_at_load: WeightFormat | None,
    *,
    saved: bool = False,
) -> WeightFormat:
    """How an engine reads the weights, or how they are `saved`."""
    base = _PRECISION_BY_TYPE.get(_stored_type(fields, weights))
    if base is None:
        raise fields.error("torch_dtype", f"{_stored_type(fields, weights)!r} is not known")
    config = _quantization(fields)
    if config:
        if saved:
            config = as_saved(config)
        return weight_format(config, base, _layers_by_part(blocks), fields.text("expert_dtype"))
    if format_at_load is None:
        return unquantised(base)
    return msgspec.structs.replace(format_at_load, base=base)


def _layers_by_part(blocks: Mapping[_BuiltBlock, int]) -> dict[str, int]:
    """How many layers have each part."""
    layers: dict[str, int] = {}
    for block, count in blocks.items():
        parts = [part for part, _ in block.params]
        if block.routed:
            parts.append(EXPERTS)
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


def _stored_type(fields: Fields, weights: Mapping[str, float] | None) -> str:
    """Type of the weights as the config says, else that of most bytes in the files, else the usual one."""
    stored = fields.text("torch_dtype", "dtype").removeprefix("torch.")
    if not stored and weights:
        stored = max(weights, key=lambda name: weights[name]).lower()
    return stored or "bfloat16"


def _parts_in_files(
    fields: Fields,
    architecture: Architecture,
    parts: LlmParts,
    stored: WeightFormat,
    weights: Mapping[str, float],
    layers: int,
    *,
    has_encoders: bool,
) -> LlmParts:
    """`parts` as the files hold them; RefusedError where these do not hold what the dimensions give.

    Encoders of other modalities and layers that draft tokens may come on top, and so may a copy of the look-up table
    that a tied LM head is saved as (Qwen3-0.6B). A model that embeds texts may be saved without the head that its
    config speaks of (Qwen3-Embedding-8B): then it has none.
    """
    expected = parts.stored_bytes(stored)
    head = parts.head * stored.storage_of(HEAD).bytes_per_weight
    drafts = fields.integer(*_DRAFT_LAYERS, default=0, low=0)
    # A draft layer is at most twice as large as the others, with a look-up table and a head of its own, at 16 bit.
    tables = parts.tables * MODEL_FORMAT_BYTES
    most_drafts = drafts * (2.0 * (expected - tables) / layers + 2.0 * tables)
    most = expected * (1.0 + _SIZE_TOLERANCE) + most_drafts
    if has_encoders:
        most = math.inf
    totals = _bytes_at_16_bit(fields, stored, weights)
    for total in totals:
        if expected * (1.0 - _SIZE_TOLERANCE) <= total <= most:
            return parts
        if _is_head_tied(fields, architecture) and _agrees(total, expected + head):
            return parts
        if fields.raw(*_TIED_FIELDS) is False and _agrees(total, expected - head):
            return msgspec.structs.replace(parts, head=0.0)
    raise RefusedError(
        f"config.json gives {expected / 1e9:.3f} GB of weights, and the files hold {totals[0] / 1e9:.3f} GB "
        f"({totals[0] / expected - 1.0:+.1%}): the architecture or the format is not the one that is known here",
        "config.json: the size of the weights",
    )


def _agrees(total: float, expected: float) -> bool:
    """Whether bytes of files are those that are expected."""
    return abs(total / expected - 1.0) <= _SIZE_TOLERANCE


def _bytes_at_16_bit(fields: Fields, stored: WeightFormat, weights: Mapping[str, float]) -> tuple[float, ...]:
    """Bytes of the files as an engine loads them, which narrows 32 bit; both readings where no type is told."""
    if stored.parts:
        return (sum(weights.values()),)
    loaded = 0.0
    for name, total in weights.items():
        if name.upper() == "F32":
            loaded += total / 2.0
        else:
            loaded += total
    if "" not in weights:
        return (loaded,)
    if not fields.has("torch_dtype", "dtype"):
        return (loaded, loaded / 2.0)
    if _stored_type(fields, None) in ("float32", "float"):
        return (loaded / 2.0,)
    return (loaded,)
