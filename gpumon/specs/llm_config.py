"""A Hugging Face `config.json` -> LlmSpec: dimensions, layer kinds, experts, stored precision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.specs.architectures import ARCHITECTURES, Architecture, Layer, layer_blocks
from gpumon.specs.config_defaults import CONFIG_DEFAULTS
from gpumon.specs.dimensions import LARGEST_HEAD_DIM, LARGEST_WIDTH, LONGEST_CONTEXT, MOST_LAYERS
from gpumon.specs.fields import FieldError, Fields, RefusedError, json_text
from gpumon.specs.layers import Block, Routed, hidden_size, key_dim, query_heads
from gpumon.specs.llm import MODEL_FORMAT_BYTES, Attention, LlmSpec, State, merge_layers
from gpumon.specs.llm_tensors import llm_from_tensors
from gpumon.specs.module_names import ModuleNames, module_names
from gpumon.specs.module_rules import module_rule
from gpumon.specs.modules import (
    EXPERTS,
    HEAD,
    MLP,
    TABLES,
    Module,
    ModuleKind,
    ModuleList,
    matrix,
    outside_layers,
)
from gpumon.specs.not_modelled import AUDIO, NOT_MODELLED, VISION
from gpumon.specs.precision import Precision
from gpumon.specs.quantization import as_saved, weight_format
from gpumon.specs.stored_tensors import StoredTensors, compare
from gpumon.specs.weight_format import (
    StorageRule,
    StoredWeights,
    WeightFormat,
    stored_weights,
    unquantised,
    with_weights,
)

_SIZE_TOLERANCE: Final = 0.02
"""Share by which the bytes of the files may differ from what the dimensions give. A choice: what `layers` leaves out is
below 0.8%, and rows of the catalogue without a note are within 2% of their published total."""
_BY_CLASS: Final = {"Grok1ForCausalLM": "grok"}
"""Class of a model -> its type, where the config's own type says another."""
_TIED_FIELDS: Final = ("tie_word_embeddings", "tie_embedding")
"""Fields that say whether the LM head is the table of embeddings."""
_GENERATING_CLASSES: Final = ("LMHeadModel", "HeadsModel", "ChatGLMModel", "ChatModel", "OmniModel")
"""Names of classes that generate, though they end in `Model`."""
QUANTIZATION_KEYS: Final = ("quantization_config", "compression_config", "quantization")
"""Fields in which a checkpoint says how it is quantised."""
_SIZES_OF_ALL: Final = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
"""Fields that each whole config of a text part has."""
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
_ENCODER_WIDTHS: Final = ("hidden_size", "embed_dim", "d_model", "width")
_ENCODER_LAYERS: Final = ("depth", "num_hidden_layers", "encoder_layers", "layers", "num_layers")
_ENCODER_MLPS: Final = ("intermediate_size", "encoder_ffn_dim", "mlp_dim")
"""Fields of an encoder's table with its width, its layers and the width of its MLPs."""
_LEAST_ENCODER_BYTES: Final = 2e9
"""Bytes that projectors, resamplers and the like of any encoder may take. A choice, above all that is served."""
_MOST_NOTES: Final = 2
"""Modules that differ in the files that a source names. A choice."""
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
    modules: ModuleList
    weights: WeightFormat
    """How its weights are stored."""


def llm_from_config(
    config: Mapping[str, object],
    name: str,
    source: str,
    weights: Mapping[str, float] | None = None,
    format_at_load: WeightFormat | None = None,
    tensors: StoredTensors | None = None,
) -> LlmSpec:
    """The spec of the LLM that `config` describes; arguments and errors are those of `describe_llm`.

    Of an unknown architecture it is what `tensors` tell of it, where they are given.
    """
    inner, _ = _language_model(config)
    fields = Fields(inner, config)
    if tensors is not None and _is_unknown(fields):
        return _spec_by_tensors(fields, name, source, tensors)
    return describe_llm(config, name, source, weights, format_at_load, tensors).spec


def describe_llm(
    config: Mapping[str, object],
    name: str,
    source: str,
    weights: Mapping[str, float] | None = None,
    format_at_load: WeightFormat | None = None,
    tensors: StoredTensors | None = None,
) -> Described:
    """The LLM that `config` describes.

    `weights` are the bytes on disk by safetensors type (`{"": total}` where only the total is known); what the
    dimensions give must agree with them. `format_at_load` is how the engine stores weights that the checkpoint has at
    16 bit. `tensors` are those of the files' headers: where they are known, each module is compared with its own, and
    has the bytes of the files where these differ. Parameters are those of matrix products and look-up tables, without
    biases and norms (below 0.8%). Raises ValueError that names the field, where one is missing, absurd, or describes
    what is not modelled; RefusedError (one of them) where the architecture or the format is not known, or the files say
    otherwise.
    """
    inner, notes = _language_model(config)
    fields, architecture = _known_architecture(Fields(inner, config, _left_out_defaults(inner, config)))
    if isinstance(config.get("text_config"), dict) and isinstance(config.get("tie_word_embeddings"), bool):
        # The class of the whole model decides, not that of its language model.
        fields = fields.with_first({"tie_word_embeddings": config["tie_word_embeddings"]})
    notes = (*notes, *_encoder_left_out(fields, architecture))
    layer_count = _layer_count(fields)
    layers = layer_blocks(fields, architecture, layer_count)
    blocks = _build_blocks(fields, architecture, layers)
    modules = _list_modules(fields, architecture, blocks, layer_count)
    stored = _weight_format(fields, architecture, weights, format_at_load)
    in_files: StoredWeights | None = None
    file_notes: tuple[str, ...] = ()
    if tensors is not None and format_at_load is None:
        saved = _weight_format(fields, architecture, weights, format_at_load, saved=True)
        if fields.raw(*_TIED_FIELDS) is False and not tensors.has_head():
            modules = modules.without(HEAD)  # a model that embeds texts
        _refuse_other_layers(fields, tensors.layer_count(), layer_count)
        kinds, file_notes = compare(
            stored_weights(modules, stored), stored_weights(modules, saved), tensors, layer_count, stored
        )
        in_files = StoredWeights(kinds)
    elif weights and format_at_load is None:
        saved = _weight_format(fields, architecture, weights, format_at_load, saved=True)
        language_bytes = stored_weights(modules, saved).total_bytes
        encoder_bytes = _most_encoder_bytes(config, language_bytes) if notes else 0.0
        modules = _modules_in_files(fields, architecture, modules, saved, weights, layer_count, encoder_bytes)
    attention = _attention(blocks)
    narrowed = ", 32-bit weights loaded at 16 bit" if _stored_type(fields, weights) in _WIDE_TYPES else ""
    by_files = "".join(f", {note}" for note in file_notes[:_MOST_NOTES])
    spec = LlmSpec(
        name=name,
        source=f"{source}{narrowed}{by_files}",
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
        flops_unknown=architecture.flops_unknown,
        max_context=fields.integer(*_CONTEXT_FIELDS, default=0, low=0, high=LONGEST_CONTEXT),
    )
    return Described(with_weights(spec, modules, stored, in_files), modules, stored)


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
    default = len(kinds) if isinstance(kinds, (str, list)) and kinds else None
    return fields.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers", default=default, high=MOST_LAYERS)


def _attention(blocks: Mapping[_BuiltBlock, Sequence[int]]) -> tuple[Attention, ...]:
    """The attentions of all layers, alike ones merged."""
    return merge_layers(
        msgspec.structs.replace(attention, layers=len(numbers))
        for block, numbers in blocks.items()
        for attention in block.attention
    )


def _language_model(config: Mapping[str, object]) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """The object that describes the language model, and a note for each kind of encoder beside it."""
    notes = tuple(note for key, note in _ENCODERS.items() if isinstance(config.get(key), dict))
    for key in _LANGUAGE_MODELS:
        inner = config.get(key)
        if isinstance(inner, dict):
            deeper, more = _language_model(inner)
            return deeper, tuple(dict.fromkeys((*notes, *more)))
    return config, notes


def _left_out_defaults(inner: Mapping[str, object], config: Mapping[str, object]) -> dict[str, object]:
    """Fields that the text part of a multimodal config leaves out, with the defaults of its configuration class.

    A part that lacks one of the sizes that every model has was saved without what has its default; others are whole.
    """
    if inner is config or all(name in inner for name in _SIZES_OF_ALL):
        return {}
    words = CONFIG_DEFAULTS.get(str(inner.get("model_type")), "").split()
    defaults = (word.partition("=") for word in words)
    return {name: _default_value(value) for name, _, value in defaults if name not in inner}


def _default_value(text: str) -> object:
    """A default as JSON has it."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdecimal() else text


def _known_architecture(fields: Fields) -> tuple[Fields, Architecture]:
    """The architecture, and the fields with what it implies. Raises RefusedError where it is not known or modelled."""
    model_type = _model_type(fields)
    if not model_type:
        raise fields.error("model_type", "is missing: it names the architecture")
    if model_type in NOT_MODELLED:
        why = f"{json_text(model_type)} is not modelled: {NOT_MODELLED[model_type]}"
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


def _is_unknown(fields: Fields) -> bool:
    """Whether a config has a model type that no architecture is known of; one that is refused is known."""
    model_type = _model_type(fields)
    return bool(model_type) and model_type not in ARCHITECTURES and model_type not in NOT_MODELLED


def _spec_by_tensors(fields: Fields, name: str, source: str, tensors: StoredTensors) -> LlmSpec:
    """A model of an unknown architecture as its files have it. RefusedError where they do not tell enough."""
    try:
        base = _PRECISION_BY_TYPE.get(_stored_type(fields, tensors.bytes_by_type()), Precision.BF16)
        quantization = _quantization(fields)
        weights = weight_format(quantization, base) if quantization else unquantised(base)
        return llm_from_tensors(fields, name, source, tensors, weights, generates=_has_head(fields))
    except RefusedError:
        raise
    except ValueError as error:
        problem = f"is not a known architecture, and its files do not tell enough: {error}"
        raise fields.refusal("model_type", f"{json_text(_model_type(fields))} {problem}") from None


def _model_type(fields: Fields) -> str:
    """The type by which an architecture is known; Grok-2's own config says that of another model."""
    for name in fields.items("architectures") or ():
        if isinstance(name, str) and name in _BY_CLASS:
            return _BY_CLASS[name]
    return fields.text("model_type")


class _BuiltBlock(NamedTuple):
    """A `Block` that can be a key: layers in which it is the same are counted together."""

    name: str
    modules: tuple[Module, ...]
    attention: tuple[Attention, ...]
    states: tuple[State, ...]
    routed: Routed | None
    copies: int


def _build_blocks(
    fields: Fields, architecture: Architecture, layers: Sequence[Layer]
) -> dict[_BuiltBlock, tuple[int, ...]]:
    """Numbers of the layers that have each block; each different one is built once."""
    # transformers pads the numbers of layers with zeros.
    tables = {key.lstrip("0"): table for key, table in (fields.table("per_layer_config") or {}).items()}
    overrides = [
        _fields_of_layer(fields, architecture, layer, tables.get(str(layer or ""))) for layer in range(len(layers))
    ]
    layers_with: dict[tuple[str, tuple[tuple[str, int], ...]], list[int]] = {}
    for number, (names, layer_fields) in enumerate(zip(layers, overrides, strict=True)):
        for name in names:
            layers_with.setdefault((name, layer_fields), []).append(number)
    blocks: dict[_BuiltBlock, tuple[int, ...]] = {}
    for (name, layer_fields), numbers in layers_with.items():
        block: Block = architecture.blocks[name](fields.with_first(dict(layer_fields)))
        built = _BuiltBlock(
            name=name,
            modules=block.modules,
            attention=block.attention,
            states=block.states,
            routed=block.routed,
            copies=block.copies,
        )
        blocks[built] = (*blocks.get(built, ()), *numbers)
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


def _list_modules(
    fields: Fields, architecture: Architecture, blocks: Mapping[_BuiltBlock, Sequence[int]], layers: int
) -> ModuleList:
    """The matrices of the whole model."""
    names = module_names(_model_type(fields))
    routed = _routed_experts(fields, blocks)
    kinds = [
        _kind_in_layers(module, block, numbers, names)
        for block, numbers in blocks.items()
        for module in block.modules
        if module.params
    ]
    outside = [*_tables_and_head(fields, architecture, names)]
    if architecture.once:
        outside += architecture.once(fields, layers).modules
    if architecture.tables:
        outside.append(architecture.tables(fields, layers))
    return ModuleList(
        kinds=(*kinds, *outside_layers(outside)),
        layer_paths=names.layer_paths,
        experts=routed.experts,
        experts_per_token=routed.per_token,
    )


def _kind_in_layers(module: Module, block: _BuiltBlock, numbers: Sequence[int], names: ModuleNames) -> ModuleKind:
    """A module of a block, in the layers that have the block."""
    is_routed = block.routed is not None and module.part == EXPERTS
    return ModuleKind(
        name=names.name_of(module.name),
        part=module.part,
        shape=module.shape,
        layers=tuple(numbers),
        experts=block.routed.experts if block.routed is not None and is_routed else 0,
        copies=block.copies,
    )


def _tables_and_head(fields: Fields, architecture: Architecture, names: ModuleNames) -> list[Module]:
    """Look-up tables, LM head, and the projections between them and the layers where their width is another one."""
    hidden = hidden_size(fields)
    width = fields.integer(*_EMBEDDING_SIZES, default=hidden)
    vocabulary = _vocabulary(fields)
    has_head = _has_head(fields)
    modules = []
    if width != hidden:
        modules.append(matrix("model.project_in", MLP, hidden, width))
        if has_head:
            modules.append(matrix("model.project_out", MLP, width, hidden))
    if has_head:
        # Apertus 1.5 answers with words alone, and reads pieces of pictures and sounds, too.
        answers = fields.integer("output_vocab_size", "unpadded_vocab_size", default=vocabulary, high=vocabulary)
        modules.append(matrix(names.head, HEAD, answers, width))
    if not has_head or not _is_head_tied(fields, architecture):
        modules.append(matrix(names.table, TABLES, vocabulary, width))
    for name in architecture.added_tables:
        modules.append(matrix(f"model.{name}", TABLES, fields.integer(name, default=0, low=0), width))
    return modules


def _routed_experts(fields: Fields, blocks: Iterable[_BuiltBlock]) -> Routed:
    """The routed experts of a layer that has some."""
    numbers = {block.routed for block in blocks if block.routed is not None}
    if len(numbers) > 1:
        raise fields.error("num_experts", "differs by layer, which is not modelled")
    return next(iter(numbers), Routed(experts=0, per_token=0))


def _has_head(fields: Fields) -> bool:
    """Whether the checkpoint has an LM head: not where it is said to be the bare model, or one that classifies."""
    names = [name for name in fields.items("architectures") or () if isinstance(name, str)]
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


def _states(blocks: Mapping[_BuiltBlock, Sequence[int]]) -> tuple[State, ...]:
    """The states of all layers, alike ones merged."""
    counts: dict[State, int] = {}
    for block, numbers in blocks.items():
        for state in block.states:
            counts[state] = counts.get(state, 0) + len(numbers)
    return tuple(msgspec.structs.replace(state, layers=count) for state, count in counts.items())


def _weight_format(
    fields: Fields,
    architecture: Architecture,
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
        # DeepSeek-V4 has the word beside the method, V4.1 within.
        expert_format = fields.text("expert_dtype") or Fields(config, where="quantization_config").text("expert_dtype")
        stored = weight_format(config, base, expert_format)
        own_rules = [StorageRule(module_rule(name), held) for name, held in architecture.own_storage.items()]
        return msgspec.structs.replace(stored, rules=(*stored.rules, *own_rules))
    if format_at_load is None:
        return unquantised(base)
    return msgspec.structs.replace(format_at_load, base=base)


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


def _most_encoder_bytes(config: Mapping[str, object], language_bytes: float) -> float:
    """Most bytes that the encoders beside a language model of so many bytes may take in the files.

    Where a table of the config does not tell width and layers: as much again as the language model; encoders that are
    served are smaller.
    """
    most_bytes = _LEAST_ENCODER_BYTES
    for key in _ENCODERS:
        table = config.get(key)
        if not isinstance(table, dict):
            continue
        try:
            most_bytes += _most_bytes_of_encoder(Fields(table, where=key))
        except FieldError:
            return max(most_bytes, language_bytes)
    return most_bytes


def _most_bytes_of_encoder(encoder: Fields) -> float:
    """Twice the bytes of a transformer of this width and these layers at 16 bit: projectors, adapters and tables come
    on top. Raises FieldError where they are not told."""
    width = encoder.integer(*_ENCODER_WIDTHS, high=LARGEST_WIDTH)
    layers = encoder.integer(*_ENCODER_LAYERS, high=MOST_LAYERS)
    mlp_width = encoder.integer(*_ENCODER_MLPS, default=4 * width)
    params = layers * (4 * width * width + 3 * width * mlp_width)
    return 2.0 * MODEL_FORMAT_BYTES * params


def _modules_in_files(
    fields: Fields,
    architecture: Architecture,
    modules: ModuleList,
    stored: WeightFormat,
    weights: Mapping[str, float],
    layers: int,
    most_encoder_bytes: float,
) -> ModuleList:
    """`modules` as the files hold them; RefusedError where these do not hold what the dimensions give.

    Encoders of other modalities and layers that draft tokens may come on top, and so may a copy of the look-up table
    that a tied LM head is saved as (Qwen3-0.6B). A model that embeds texts may be saved without the head that its
    config speaks of (Qwen3-Embedding-8B): then it has none.
    """
    held = stored_weights(modules, stored)
    expected = held.total_bytes
    head = held.read_bytes(HEAD)
    drafts = fields.integer(*_DRAFT_LAYERS, default=0, low=0)
    # A draft layer is at most twice as large as the others, with a look-up table and a head of its own, at 16 bit.
    tables = modules.tables * MODEL_FORMAT_BYTES
    most_drafts = drafts * (2.0 * (expected - tables) / layers + 2.0 * tables)
    most = expected * (1.0 + _SIZE_TOLERANCE) + most_drafts + most_encoder_bytes
    totals = _bytes_at_16_bit(fields, stored, weights)
    for total in totals:
        if expected * (1.0 - _SIZE_TOLERANCE) <= total <= most:
            return modules
        if _is_head_tied(fields, architecture) and _agrees(total, expected + head):
            return modules
        if fields.raw(*_TIED_FIELDS) is False and _agrees(total, expected - head):
            return modules.without(HEAD)
    raise RefusedError(
        f"config.json gives {expected / 1e9:.3f} GB of weights, and the files hold {totals[0] / 1e9:.3f} GB "
        f"({totals[0] / expected - 1.0:+.1%}): the architecture or the format is not the one that is known here",
        "config.json: the size of the weights",
    )


def _refuse_other_layers(fields: Fields, in_files: int, layers: int) -> None:
    """Raise RefusedError where the files have other layers than the config counts, with those that draft tokens.

    Files of some old families number no layers.
    """
    drafts = fields.integer(*_DRAFT_LAYERS, default=0, low=0)
    if in_files and not layers <= in_files <= layers + drafts:
        raise fields.refusal("num_hidden_layers", f"is {layers}, and the files have {in_files} layers")


def _agrees(total: float, expected: float) -> bool:
    """Whether bytes of files are those that are expected."""
    return abs(total / expected - 1.0) <= _SIZE_TOLERANCE


def _bytes_at_16_bit(fields: Fields, stored: WeightFormat, weights: Mapping[str, float]) -> tuple[float, ...]:
    """Bytes of the files as an engine loads them, which narrows 32 bit; both readings where no type is told."""
    if stored.parts or stored.rules:
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
