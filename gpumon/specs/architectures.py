"""The architectures that are known: `model_type` of a Hugging Face config -> the blocks of its layers.

A row says which blocks a layer of each kind has, how the config lists the kinds, and what the model type implies where
a published config leaves it out. What has no row is refused: no architecture is guessed from another one's fields.
Sources: configuration and modelling code of transformers 5 and of the models' own repositories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Final

import msgspec

from gpumon.specs.fields import Fields, json_text
from gpumon.specs.layers import (
    ENGRAM_TABLE,
    EXPERT_COUNTS,
    Block,
    Builder,
    Compressed,
    Dense,
    Experts,
    Grouped,
    Latent,
    Mamba2,
    SharedEntries,
    adjusted_mlp,
    attention_experts,
    bailing_linear,
    block_sparse_attention,
    convolved_attention,
    cross_attention,
    differential_attention,
    double_width_mlp,
    dynamic_mask_attention,
    encoder,
    encoder_window_attention,
    engram,
    factorised_attention,
    gated_delta_net,
    gated_query_attention,
    gated_residuals,
    grouped,
    hidden_size,
    hyper_connections,
    key_value_heads,
    kimi_delta,
    laurel,
    layer_n_grams,
    lightning,
    linear_recurrent_unit,
    mamba,
    mlstm,
    per_layer_input,
    query_heads,
    query_sparse_attention,
    relative_attention,
    residual_streams,
    rwkv,
    shared_mlp,
    short_convolution,
    sink_attention,
    windowed,
    zamba_block,
    zamba_link,
)
from gpumon.specs.llm import Reach
from gpumon.specs.modules import MLP, ROUTER, TABLES, Module, matrix
from gpumon.specs.not_modelled import AUDIO, TEXT
from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import WeightStorage

Layer = tuple[str, ...]
"""The blocks of one layer, by name."""
Pattern = Callable[[Fields, int], Sequence[str]]
"""The kind of each layer, from a config and its number of layers."""

# Kinds of layers.
_FULL = "full"
"""Attention over the whole context."""
_WINDOW = "window"
"""Attention over the last tokens."""
CHUNK = "chunk"
"""Attention over the tokens of the same chunk."""
_STATE = "state"
"""A state in place of attention."""
SPARSE = "sparse"
"""Attention over entries that an indexer picks."""
_BORROWED = "borrowed"
"""Sparse attention over the entries that the indexer of an earlier layer picked."""
DENSE = "dense"
"""An MLP that every token goes through."""
_EXPERTS = "experts"
"""An MLP of experts."""
_NONE = "none"
"""A layer in neither of Kimi Linear's lists: no architecture has this kind, so that it is refused."""

_KIND_BY_WORD: Final = {
    "full_attention": _FULL,
    "attention": _FULL,
    "global": _FULL,
    "sliding_attention": _WINDOW,
    "chunked_attention": CHUNK,
    "linear_attention": _STATE,
    "mamba": _STATE,
    "conv": _STATE,
    "recurrent": _STATE,
    "compressed_sparse_attention": "csa",
    "heavily_compressed_attention": "hca",
    "indexed_attention": SPARSE,
    "deepseek_sparse_attention": SPARSE,
    "minimax_m3_sparse": SPARSE,
    "mlp": DENSE,
    "moe": _EXPERTS,
}
"""Words of `layer_types` in all versions of transformers."""
_KIND_LISTS: Final = ("layer_types", "layers_block_type")
"""Fields that list the kind of each layer."""
_KIND_BY_RATIO: Final = {"0": _WINDOW, "4": "csa", "128": "hca"}
"""Entry of DeepSeek-V4's `compress_ratios` -> kind of the layer."""
_PUZZLE_MLP_STEP: Final = 256
"""Widths of Llama-Nemotron's MLPs are multiples of this (vLLM, `_ffn_mult_to_intermediate_size`)."""


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """One family of models."""

    pattern: Pattern
    """Reads the kinds of its layers from the config."""
    blocks: Mapping[str, Builder]
    """Kind of a layer, or name of a block -> its formula."""
    layers: Mapping[str, Layer] = {}
    """Kind of a layer -> its blocks, where they are not the one block of that name. The MLP or the experts that each
    layer has besides are not among them, except with `no_feed_forward`."""
    moe: bool = False
    """Whether the config may count routed experts in place of the MLP; without effect with `no_feed_forward`."""
    dense_beside_experts: bool = False
    """Layers with experts have a dense MLP, too."""
    further_blocks: Layer = ()
    """Blocks that every layer has besides."""
    tied: bool = False
    """The LM head is the embedding table, unless the config says otherwise."""
    added_tables: tuple[str, ...] = ()
    """Fields with the number of rows of tables whose rows are added to the tokens' embeddings: learned positions, and
    the types of segments that BERT tells apart."""
    defaults: Mapping[str, object] = {}
    """Fields that published configs leave out -> their values."""
    once: Callable[[Fields, int], Block] | None = None
    """Makes the block that a token goes through once, outside the layers."""
    flops_unknown: str = ""
    """Why no FLOPs of its models are given; empty: they are."""
    own_storage: Mapping[str, WeightStorage] = {}
    """Modules whose format in quantised checkpoints is none that the config tells."""
    tables: Callable[[Fields, int], Module] | None = None
    """Makes what else is stored, but multiplied with no generated token: look-up tables, and an encoder's projections.
    Its arguments are the config and the number of layers, as those of `once`."""
    by_layer: Callable[[Fields, int], Mapping[str, int]] | None = None
    """Reads the fields that a layer has of its own, by the number of the layer."""
    no_feed_forward: bool = False
    """Layers have no MLP or experts but those that are blocks of their kind."""
    nested: tuple[str, ...] = ()
    """Fields that hold objects with more of the language model's fields."""
    encoder: str = ""
    """Name of the encoder that is left out of a model which answers by a decoder of its own."""
    names: Mapping[str, str] = {}
    """Field -> the one that stands for it in a config of such an encoder and decoder."""


def layer_kinds(fields: Fields, architecture: Architecture, layers: int) -> list[str]:
    """The kind of each layer.

    Raises ValueError where a kind is not modelled for this model type, or kinds are missing. It names the field that
    lists the kinds, or `layer_types` where the config tells them in a field of its own family.
    """
    kinds = architecture.pattern(fields, layers)
    name = next((field for field in _KIND_LISTS if fields.has(field)), "layer_types")
    if len(kinds) > layers and fields.has("num_nextn_predict_layers"):
        kinds = kinds[:layers]  # layers of a draft head stand at the end of such lists
    if len(kinds) != layers:
        raise fields.error(name, f"has {len(kinds)} entries for {layers} layers")
    for kind in kinds:
        if kind not in architecture.blocks and kind not in architecture.layers:
            raise fields.error(name, f"has {json_text(kind)}, which is not modelled for this model type")
    return list(kinds)


def layer_blocks(fields: Fields, architecture: Architecture, layers: int) -> list[Layer]:
    """The names of the blocks of each layer."""
    kinds = layer_kinds(fields, architecture, layers)
    mixers = [architecture.layers.get(kind, (kind,)) for kind in kinds]
    if architecture.no_feed_forward:
        return [(*mixer, *architecture.further_blocks) for mixer in mixers]
    with_experts = _with_experts(fields, architecture, layers)
    blocks = []
    for mixer, has_experts in zip(mixers, with_experts, strict=True):
        feed_forward: Layer = (DENSE,)
        if has_experts and architecture.dense_beside_experts:
            feed_forward = (DENSE, _EXPERTS)
        elif has_experts:
            feed_forward = (_EXPERTS,)
        blocks.append((*mixer, *feed_forward, *architecture.further_blocks))
    return blocks


def _with_experts(fields: Fields, architecture: Architecture, layers: int) -> list[bool]:
    """Whether each layer has routed experts, in all ways in which configs tell it: lists of layers before rules."""
    if not _has_any_experts(fields, architecture):
        return [False] * layers
    listed = _listed_experts(fields, layers)
    if listed is not None:
        return listed
    numbered = _expert_layer_numbers(fields)
    if numbered is not None:
        return [layer in numbered for layer in range(layers)]
    return [_has_experts_by_number(fields, layer) for layer in range(layers)]


def _has_any_experts(fields: Fields, architecture: Architecture) -> bool:
    """Whether any layer has routed experts. ValueError where a family that is known to have none counts some."""
    if not _counts_experts(fields):
        return False
    if architecture.moe:
        return fields.flag("enable_moe_block", default=True)  # Gemma 4
    if fields.flag("is_moe", default=True):  # Doge counts experts in every config, and has them with this flag alone
        why = "is there, and this model type is not known to have experts"
        raise fields.refusal(next(name for name in EXPERT_COUNTS if fields.has(name)), why)
    return False


def _listed_experts(fields: Fields, layers: int) -> list[bool] | None:
    """Whether each layer has experts, where the config has one entry for each layer; None where it has none."""
    kinds = fields.items("mlp_layer_types")
    if kinds is not None:
        return [kind != "dense" for kind in _first_entries(fields, "mlp_layer_types", kinds, layers)]
    frequencies = fields.raw("moe_layer_freq")
    if isinstance(frequencies, list):
        return [bool(number) for number in _first_entries(fields, "moe_layer_freq", frequencies, layers)]
    return None


def _counts_experts(fields: Fields) -> bool:
    """Whether the config counts experts to choose from: a single one is a plain MLP in Jamba and others."""
    count = fields.raw(*EXPERT_COUNTS)
    least = 1 if fields.has("moe_topk") else 2  # Hunyuan's code builds a router for a single expert, too
    if isinstance(count, list):  # a number per layer
        return True
    return isinstance(count, int) and count >= least


def _expert_layer_numbers(fields: Fields) -> list[object] | None:
    """Numbers of the layers with experts, as a list or as a text with commas; None where there is neither."""
    numbered = fields.raw("moe_layers", "moe_layers_enum")
    if isinstance(numbered, str):
        return [int(word) for word in numbered.split(",") if word.strip().isdecimal()]
    if isinstance(numbered, list):
        return numbered
    return None


def _has_experts_by_number(fields: Fields, layer: int) -> bool:
    """Whether a layer has experts by its number, counted from 0, in the fields of the family."""
    if fields.has("expert_layer_period"):  # Jamba
        return layer % fields.integer("expert_layer_period") == fields.integer("expert_layer_offset", low=0)
    if fields.has("moe_layer_start_index", "moe_layer_interval"):  # ERNIE 4.5
        return _is_in_interval(fields, layer)
    if fields.has("interleave_moe_layer_step"):  # Llama 4
        step = fields.integer("interleave_moe_layer_step")
        return layer % step == step - 1
    dense_layers = fields.items("mlp_only_layers") or ()
    if fields.has("decoder_sparse_step"):  # Qwen
        step = fields.integer("decoder_sparse_step")
        return (layer + 1) % step == 0 and layer not in dense_layers
    dense = fields.integer("first_k_dense_replace", "num_dense_layers", "dense_mlp_idx", default=0, low=0)
    step = fields.integer("moe_layer_freq", default=1)
    return layer >= dense and layer % step == 0 and layer not in dense_layers


def _is_in_interval(fields: Fields, layer: int) -> bool:
    """Whether a layer is every nth one between the first and the last layer with experts (-1: no last one)."""
    last = fields.integer("moe_layer_end_index", default=-1, low=-1)
    first = fields.integer("moe_layer_start_index", default=0, low=0)
    step = fields.integer("moe_layer_interval", default=1)
    if layer < first or (last >= 0 and layer > last):
        return False
    return (layer + 1) % step == 0


def _first_entries(fields: Fields, name: str, entries: list[object], layers: int) -> list[object]:
    """One entry for each layer: entries of a draft head stand behind them. Raises ValueError where some are missing."""
    if len(entries) < layers:
        raise fields.error(name, f"has {len(entries)} entries for {layers} layers")
    return entries[:layers]


# Patterns: the kind of each layer.


def _listed(pattern_if_unlisted: Pattern) -> Pattern:
    """The kinds as the config lists them, in the words of any version of transformers; else by another pattern."""

    def kinds_of(fields: Fields, layers: int) -> Sequence[str]:
        entries = fields.items(*_KIND_LISTS)
        if entries is None:
            return pattern_if_unlisted(fields, layers)
        kinds = []
        for entry in entries:
            if isinstance(entry, str):
                kinds.append(_KIND_BY_WORD.get(entry, entry))
            else:
                kinds.append(json_text(entry))  # `layer_kinds` refuses it, and names it
        return kinds

    return kinds_of


def _all(kind: str) -> Pattern:
    """All layers are of one kind."""
    return lambda _fields, layers: [kind] * layers


def _needs_list(fields: Fields, _layers: int) -> Sequence[str]:
    """The pattern of families whose config must list the kinds: always raises ValueError."""
    raise fields.error("layer_types", "is missing")


def _last_of_each(default_period: int, *names: str, rest: str = _WINDOW) -> Pattern:
    """The last of each n layers sees everything, the others are `rest`.

    n is the number in the first of the fields `names` that is there, else `default_period`.
    """

    def kinds_of(fields: Fields, layers: int) -> Sequence[str]:
        value = fields.raw(*names)
        period = value if isinstance(value, int) and value > 0 else default_period
        return [_FULL if (layer + 1) % period == 0 else rest for layer in range(layers)]

    return kinds_of


def _first_of_each(default_period: int, name: str) -> Pattern:
    """The first of each n layers sees everything, the others a window (ModernBERT).

    n is the number in the field `name`, else `default_period`.
    """

    def kinds_of(fields: Fields, layers: int) -> Sequence[str]:
        period = fields.integer(name, default=default_period)
        return [_WINDOW if layer % period else _FULL for layer in range(layers)]

    return kinds_of


def _window_if_set(fields: Fields, layers: int) -> Sequence[str]:
    """Mistral, Phi-3, StarCoder2: all layers have the window, where there is one."""
    window = fields.raw("sliding_window")
    if isinstance(window, int) and window > 0 and fields.flag("use_sliding_window", default=True):
        return [_WINDOW] * layers
    return [_FULL] * layers


def _window_above(fields: Fields, layers: int) -> Sequence[str]:
    """Qwen: only with `use_sliding_window`, and from `max_window_layers` on."""
    if not fields.flag("use_sliding_window") or not fields.has("sliding_window"):
        return [_FULL] * layers
    first = fields.integer("max_window_layers", default=0, low=0)
    return [_WINDOW if layer >= first else _FULL for layer in range(layers)]


def _latent_unless_off(fields: Fields, layers: int) -> Sequence[str]:
    """DeepSeek's small models (DeepSeek-OCR) switch MLA off."""
    if fields.flag("use_mla", default=True):
        return [_FULL] * layers
    return ["plain"] * layers


def _kinds_of_flags(flags: Iterable[object], kind: str) -> list[str]:
    """The attention of layers that are flagged one by one: `kind` where the flag is set, else full."""
    return [kind if flag else _FULL for flag in flags]


def _llama4(fields: Fields, layers: int) -> Sequence[str]:
    """Llama 4: `no_rope_layers` are 1 for a layer with chunks; else every fourth layer sees everything."""
    flags = fields.items("no_rope_layers")
    if flags:
        return _kinds_of_flags(flags, CHUNK)
    return _last_of_each(4, "no_rope_layer_interval", rest=CHUNK)(fields, layers)


def _exaone4(fields: Fields, layers: int) -> Sequence[str]:
    """EXAONE 4: `sliding_window_pattern` is a number or letters (`LLLG`), with letters the last layer is global."""
    if not fields.has("sliding_window"):
        return [_FULL] * layers
    letters = fields.raw("sliding_window_pattern")
    if isinstance(letters, str) and letters:
        kinds = [_FULL if letters[layer % len(letters)] == "G" else _WINDOW for layer in range(layers)]
        return [*kinds[:-1], _FULL]
    return _last_of_each(4, "sliding_window_pattern")(fields, layers)


def _gpt_neo(fields: Fields, _layers: int) -> Sequence[str]:
    """GPT-Neo: `attention_layers` lists `local` and `global`."""
    words = fields.items("attention_layers")
    if words is None:
        raise fields.error("attention_layers", "is missing")
    return [_WINDOW if word == "local" else _FULL for word in words]


def _mimo(fields: Fields, layers: int) -> Sequence[str]:
    """MiMo-V2: `hybrid_layer_pattern` is 1 for a window; else the first and every sixth layer see everything."""
    flags = fields.items("hybrid_layer_pattern")
    if flags is not None:
        return _kinds_of_flags(flags, _WINDOW)
    return [_FULL if layer == 0 or (layer + 1) % 6 == 0 else _WINDOW for layer in range(layers)]


def _inkling(fields: Fields, layers: int) -> Sequence[str]:
    """Inkling: `local_layer_ids` are the layers with a window; without it these are all but every sixth."""
    windows = fields.items("local_layer_ids")
    if windows is None:
        windows = [layer for layer in range(layers) if (layer + 1) % 6]
    return ["hybrid_sliding" if layer in windows else "hybrid" for layer in range(layers)]


def _cycle(*names: str) -> Pattern:
    """The kinds of a short list, in one of the fields `names`, over and over (RecurrentGemma)."""

    def kinds_of(fields: Fields, layers: int) -> Sequence[str]:
        cycle = fields.items(*names)
        if not cycle:
            raise fields.error(names[0], "is missing")
        words = [str(cycle[layer % len(cycle)]) for layer in range(layers)]
        return [_KIND_BY_WORD.get(word, word) for word in words]

    return kinds_of


def _minimax(fields: Fields, _layers: int) -> Sequence[str]:
    """MiniMax-01 and M1: `attn_type_list` is 1 for full attention, 0 for lightning."""
    numbers = fields.items("attn_type_list")
    if numbers is None:
        raise fields.error("layer_types", "and attn_type_list are missing")
    return [_FULL if number == 1 else _STATE for number in numbers]


def _minimax_m2(fields: Fields, layers: int) -> Sequence[str]:
    """MiniMax-M2: full attention alone. Raises ValueError where MiniMax-M1's field says that a layer has another."""
    if any(number != 1 for number in fields.items("attn_type_list") or ()):
        raise fields.error("attn_type_list", "has layers that are not modelled")
    return [_FULL] * layers


def _minimax_m3(fields: Fields, layers: int) -> Sequence[str]:
    """MiniMax-M3: `sparse_attention_freq` is 1 for a layer with an indexer; without it none has one."""
    flags = Fields(fields.table("sparse_attention_config") or {}).items("sparse_attention_freq")
    if flags is None:
        return [_FULL] * layers
    return _kinds_of_flags(flags, SPARSE)


def _kimi(fields: Fields, layers: int) -> Sequence[str]:
    """Kimi Linear: `full_attn_layers` and `kda_layers` list the numbers of the layers of each kind."""
    table = Fields(fields.table("linear_attn_config") or {}, where="linear_attn_config")
    full = table.items("full_attn_layers")
    linear = table.items("kda_layers")
    if full is None or linear is None:
        raise fields.error("linear_attn_config", "does not list full_attn_layers and kda_layers")
    kinds = [_NONE] * layers
    for layer in range(layers):
        # Layers are counted from 1 in both lists.
        if layer + 1 in full:
            kinds[layer] = _FULL
        elif layer + 1 in linear:
            kinds[layer] = _STATE
    return kinds


def _groups(fields: Fields, layers: int) -> Sequence[str]:
    """Ling and Ring: the last layer of each group sees everything, and so do all behind the last whole group."""
    size = fields.integer("layer_group_size")
    layers_in_groups = layers // size * size
    return [_FULL if (layer + 1) % size == 0 or layer >= layers_in_groups else _STATE for layer in range(layers)]


def _jamba(fields: Fields, layers: int) -> Sequence[str]:
    """Jamba: one layer of each `attn_layer_period` has attention, the one `attn_layer_offset` behind its first."""
    period = fields.integer("attn_layer_period")
    offset = fields.integer("attn_layer_offset", low=0)
    return [_FULL if layer % period == offset else _STATE for layer in range(layers)]


def _bamba(fields: Fields, layers: int) -> Sequence[str]:
    """Bamba: `attn_layer_indices` are the layers with attention; without it none has any, as in its own code."""
    full = fields.items("attn_layer_indices") or ()
    return [_FULL if layer in full else _STATE for layer in range(layers)]


def _lfm2(fields: Fields, layers: int) -> Sequence[str]:
    """LFM2: `full_attn_idxs` are the layers with attention."""
    full = fields.items("full_attn_idxs")
    if full is None:
        raise fields.error("layer_types", "and full_attn_idxs are missing")
    return [_FULL if layer in full else _STATE for layer in range(layers)]


def _nemotron_h(fields: Fields, _layers: int) -> Sequence[str]:
    """Nemotron-H: `hybrid_override_pattern` has a letter for each layer, which is a mixer, an MLP or experts."""
    letters = fields.text("hybrid_override_pattern")
    return [{"M": _STATE, "*": _FULL, "-": DENSE, "E": _EXPERTS}.get(letter, letter) for letter in letters]


def _deepseek_v4(fields: Fields, layers: int) -> Sequence[str]:
    """DeepSeek-V4: `compress_ratios` has the tokens per compressed entry of each layer."""
    ratios = fields.items("compress_ratios")
    if ratios is None:
        raise fields.error("layer_types", "and compress_ratios are missing")
    return [_KIND_BY_RATIO.get(str(ratio), str(ratio)) for ratio in ratios[:layers]]


def _indexed(fields: Fields, layers: int) -> Sequence[str]:
    """GLM-5.2: layers with an indexer are sparse; the others borrow the choice of the last one before them that has it.

    The config has a word or a letter for each layer; else the first `index_skip_topk_offset` layers have an indexer,
    and after them every `index_topk_freq`th. Defaults of both are those of its code in transformers.
    """
    words = fields.items("indexer_types")
    pattern = fields.raw("index_topk_pattern")
    if words is None and isinstance(pattern, str):
        words = ["shared" if letter == "S" else "full" for letter in pattern]
    if words is None:
        step = fields.integer("index_topk_freq", default=1)
        offset = fields.integer("index_skip_topk_offset", default=2, low=0)
        words = ["shared" if max(layer - offset + 1, 0) % step else "full" for layer in range(layers)]
    return [SPARSE if word == "full" else _BORROWED for word in words]


def _glm5_next(fields: Fields, layers: int) -> Sequence[str]:
    """GLM-5.3-Flash: three layers with a state before each with sparse attention, unless the config lists the kinds."""
    indexed = _indexed(fields, layers)
    listed = _listed(_last_of_each(4, rest=_STATE))(fields, layers)
    return [kind if kind == _STATE else indexed[layer] for layer, kind in enumerate(listed)]


def _mistral_large4(fields: Fields, layers: int) -> Sequence[str]:
    """Mistral Large 4: `no_rope_layers` is 0 for a layer without positions, `kv_source_layers` names whose latents it
    reads. Defaults: its configuration class in transformers.
    """
    step = fields.integer("no_rope_layer_interval", default=4)
    positions = fields.items("no_rope_layers") or [int((layer + 1) % step != 0) for layer in range(layers)]
    sources = fields.items("kv_source_layers") or list(range(layers))
    if min(len(positions), len(sources)) < layers:
        raise fields.error("kv_source_layers", f"or no_rope_layers has less than {layers} entries")
    return [
        _latent_kind(kind, positions[layer] == 0, sources[layer] != layer)
        for layer, kind in enumerate(_indexed(fields, layers))
    ]


def _latent_kind(kind: str, without_positions: bool, shared_cache: bool) -> str:
    """Name of the kind of one of Mistral Large 4's layers."""
    return f"{kind}{' without positions' if without_positions else ''}{' of shared latents' if shared_cache else ''}"


def _deepseek_v41(fields: Fields, layers: int) -> Sequence[str]:
    """DeepSeek-V4.1: `compress_ratios` has the tokens per entry of each layer, 0 for a window alone."""
    ratios = fields.items("compress_ratios")
    if ratios is None:
        raise fields.error("compress_ratios", "is missing")
    entry_sources = fields.items("kv_source_layer_ids") or ()
    choice_sources = fields.items("index_source_layer_ids") or ()
    memories = fields.items("engram_layer_ids") or ()
    kinds = []
    for layer, ratio in enumerate(ratios[:layers]):
        kind = _WINDOW if ratio == 0 else _entry_kind(ratio, layer in entry_sources, layer in choice_sources)
        kinds.append(f"{kind} and engram" if layer in memories else kind)
    return kinds


def _qwen4(fields: Fields, layers: int) -> Sequence[str]:
    """Qwen 4: the last layer of each `full_attention_interval` has attention; `ple_layer_ids` count from 1."""
    memories = fields.items("ple_layer_ids") or ()
    kinds = []
    for layer, kind in enumerate(_listed(_last_of_each(4, "full_attention_interval", rest=_STATE))(fields, layers)):
        mixer = SPARSE if kind == _FULL else kind
        kinds.append(f"{mixer} and n-grams" if layer + 1 in memories else mixer)
    return kinds


def _entry_kind(stride: object, makes_entries: bool, chooses: bool) -> str:
    """Name of the kind of one of DeepSeek-V4.1's layers with compressed entries."""
    return f"entries of {stride}{', made' if makes_entries else ''}{', chosen' if chooses else ''}"


def _with_shared_caches(pattern: Pattern) -> Pattern:
    """Gemma 3n and 4: the kinds that the config lists, else those of `pattern`, with `shared` before the last of them.

    The last `num_kv_shared_layers` layers read the cache of layers before them.
    """

    def kinds_of(fields: Fields, layers: int) -> Sequence[str]:
        listed_kinds = _listed(pattern)(fields, layers)
        first_shared = layers - fields.integer("num_kv_shared_layers", default=0, low=0)
        return [kind if layer < first_shared else f"shared {kind}" for layer, kind in enumerate(listed_kinds)]

    return kinds_of


def _gemma4(fields: Fields, layers: int) -> Sequence[str]:
    """Gemma 4: every sixth layer sees everything, and so does the last."""
    return [*_last_of_each(6)(fields, layers)[:-1], _FULL]


def _puzzle_kinds(fields: Fields, layers: int) -> Sequence[str]:
    """Llama-Nemotron: each layer has attention, an MLP, both or neither (Puzzle, arXiv 2411.19146)."""
    return [
        " and ".join(part for part in ("attention", "ffn") if _has_puzzle_part(fields, layer, part))
        for layer in range(layers)
    ]


def _has_puzzle_part(fields: Fields, layer: int, part: str) -> bool:
    """Whether a layer of Llama-Nemotron has `attention` or `ffn`. Raises ValueError where that is not modelled."""
    part_fields = _puzzle_part(fields, layer, part)
    if part_fields.flag("replace_with_linear") or part_fields.has("sparsify", "window_length", "num_sink_tokens"):
        raise fields.error("block_configs", f"layer {layer}: a linear, sparse or window {part} is not modelled")
    return not part_fields.flag("no_op")


def _puzzle_part(fields: Fields, layer: int, part: str) -> Fields:
    """The config's entry for `attention` or `ffn` of a layer. Raises ValueError without one."""
    blocks = fields.items("block_configs")
    block = blocks[layer] if blocks is not None and layer < len(blocks) else None
    entry = block.get(part) if isinstance(block, dict) else None
    if not isinstance(entry, dict):
        raise fields.error("block_configs", f"has no {part} for layer {layer}")
    return Fields(entry, where=f"block_configs of layer {layer}")


def _puzzle_sizes(fields: Fields, layer: int) -> dict[str, int]:
    """Sizes of a layer of Llama-Nemotron: KV heads by the heads that share one, MLP by a multiple of the width.

    Raises ValueError where a part is not modelled.
    """
    sizes = {}
    if _has_puzzle_part(fields, layer, "attention"):
        heads_per_kv_head = _puzzle_part(fields, layer, "attention").integer("n_heads_in_group")
        sizes["num_key_value_heads"] = max(1, query_heads(fields) // heads_per_kv_head)
    if _has_puzzle_part(fields, layer, "ffn"):
        multiple = _puzzle_part(fields, layer, "ffn").raw("ffn_mult")
        if not isinstance(multiple, (int, float)) or not 0.0 < multiple < 100.0:
            raise fields.error(
                "block_configs", f"layer {layer}: ffn_mult {json_text(multiple)} is not a number up to 100"
            )
        # Its own code: two thirds of the multiple, as a gated MLP has three matrices in place of two, rounded up.
        width = int(2 * multiple * hidden_size(fields) / 3)
        sizes["intermediate_size"] = ceil(width / _PUZZLE_MLP_STEP) * _PUZZLE_MLP_STEP
    return sizes


def _hyper_head(fields: Fields, _layers: int) -> Block:
    """The mixer of residual streams before the LM head (DeepSeek-V4, Hunyuan 4).

    It counts as router, as the mixers of the layers do: quantised checkpoints leave both as they are.
    """
    streams = fields.integer("hc_mult", default=0, low=0)
    return Block((matrix("hc_head", ROUTER, streams, streams * hidden_size(fields)),))


def _stream_mixer(fields: Fields, _layers: int) -> Block:
    """The mixer of residual streams before Qwen 4's LM head."""
    streams = fields.integer("hc_count") * hidden_size(fields)
    rank = fields.integer("hc_lowrank")
    return Block(
        (
            matrix("model.hyper_connection_mixer.input_mix_weight_down", ROUTER, rank, streams),
            matrix("model.hyper_connection_mixer.input_mix_weight_up", ROUTER, streams, rank),
        )
    )


def _altup(fields: Fields, layers: int) -> Block:
    """Gemma 3n: projections into and out of the further residual streams, and of the layers' own embeddings."""
    hidden = hidden_size(fields)
    further_streams = fields.integer("altup_num_inputs") - 1
    projections = (
        matrix("altup_projections", MLP, further_streams, hidden, hidden),
        matrix("altup_unembed_projections", MLP, further_streams, hidden, hidden),
    )
    return Block((*projections, *_layer_embeddings(fields, layers).modules))


def _layer_embeddings(fields: Fields, layers: int) -> Block:
    """Gemma 3n and 4: the projection of a token to an embedding for each layer."""
    width = fields.integer("hidden_size_per_layer_input", default=0, low=0)
    return Block((matrix("per_layer_model_projection", MLP, layers * width, hidden_size(fields)),))


def _layer_embedding_tables(fields: Fields, layers: int) -> Module:
    """Gemma 3n and 4: a look-up table with a row of `hidden_size_per_layer_input` elements per layer and token."""
    width = fields.integer("hidden_size_per_layer_input", default=0, low=0)
    rows = fields.integer("vocab_size_per_layer_input", default=0, low=0)
    return matrix("embed_tokens_per_layer", TABLES, rows, layers * width)


_ATTENTION: Final[dict[str, Builder]] = {
    _FULL: grouped,
    _WINDOW: windowed,
    CHUNK: Grouped(Reach.CHUNK, limit_fields=("attention_chunk_size",)),
}
"""Mixers of most architectures by kind of layer."""
_LATENT: Final[dict[str, Builder]] = {
    _FULL: Latent(),
    SPARSE: Latent(indexed=True),
    _BORROWED: Latent(indexed=True, shares_indexer=True),
}
"""Mixers of DeepSeek's latent attention by kind of layer."""


def _family(
    blocks: Mapping[str, Builder] = _ATTENTION,
    *,
    mlp: Builder = Dense(),  # noqa: B008 - frozen
    experts: Builder = Experts(),  # noqa: B008 - frozen
    pattern_if_unlisted: Pattern = _all(_FULL),  # noqa: B008 - frozen
    fixed_pattern: Pattern | None = None,
    layers: Mapping[str, Layer] | None = None,
    moe: bool = False,
    dense_beside_experts: bool = False,
    further_blocks: Layer = (),
    tied: bool = False,
    added_tables: tuple[str, ...] = (),
    defaults: Mapping[str, object] | None = None,
    once: Callable[[Fields, int], Block] | None = None,
    flops_unknown: str = "",
    own_storage: Mapping[str, WeightStorage] | None = None,
    tables: Callable[[Fields, int], Module] | None = None,
    by_layer: Callable[[Fields, int], Mapping[str, int]] | None = None,
    no_feed_forward: bool = False,
    nested: tuple[str, ...] = (),
    encoder: str = "",
    names: Mapping[str, str] | None = None,
) -> Architecture:
    """An architecture whose defaults are those of Llama; `blocks` are its mixers by kind.

    `pattern_if_unlisted`: the kinds of layers where the config does not list them in `layer_types`; `fixed_pattern`:
    a pattern that does not look there, as all layers are alike, or that reads the lists itself.
    """
    all_blocks = {DENSE: mlp, _EXPERTS: experts, **blocks}
    return Architecture(
        pattern=fixed_pattern or _listed(pattern_if_unlisted),
        blocks=all_blocks,
        layers=layers or {},
        moe=moe,
        dense_beside_experts=dense_beside_experts,
        further_blocks=further_blocks,
        tied=tied,
        added_tables=added_tables,
        defaults=defaults or {},
        once=once,
        flops_unknown=flops_unknown,
        own_storage=own_storage or {},
        tables=tables,
        by_layer=by_layer,
        no_feed_forward=no_feed_forward,
        nested=nested,
        encoder=encoder,
        names=names or {},
    )


def _rows_of(architecture: Architecture, model_types: str) -> dict[str, Architecture]:
    """Rows of the table for several model types, given with blanks between."""
    return dict.fromkeys(model_types.split(), architecture)


_PLAIN_MLP: Final = Dense(matrices=2)
"""An MLP without a gate."""
_LLAMA: Final = _family()
_LLAMA_MOE: Final = _family(moe=True)
_PLAIN: Final = _family(mlp=_PLAIN_MLP)
_GPT2: Final = _family(mlp=_PLAIN_MLP, tied=True, added_tables=("n_positions",))
_WINDOWED: Final = _family(pattern_if_unlisted=_window_if_set)
_QWEN: Final = _family(pattern_if_unlisted=_window_above)
_QWEN_MOE: Final = _family(pattern_if_unlisted=_window_above, moe=True, experts=Experts(gates_shared=True))
_DEEPSEEK: Final = _family({**_LATENT, "plain": grouped}, fixed_pattern=_latent_unless_off, moe=True)
_DEEPSEEK_SPARSE: Final = _family(
    _LATENT, fixed_pattern=_all(SPARSE), moe=True, defaults={"index_n_heads": 64, "index_head_dim": 128}
)
_DELTA: Final = _family(
    {_FULL: Grouped(gate_field="attn_output_gate"), _STATE: gated_delta_net},
    pattern_if_unlisted=_last_of_each(4, "full_attention_interval", rest=_STATE),
    moe=True,
    experts=Experts(gates_shared=True),
)
_BERT: Final = _family(
    {_FULL: encoder}, mlp=_PLAIN_MLP, tied=True, added_tables=("max_position_embeddings", "type_vocab_size")
)
_ROTARY_ENCODER: Final = _family({_FULL: encoder}, tied=True, added_tables=("type_vocab_size",))
_GEMMA: Final = _family(tied=True, defaults={"head_dim": 256})
_GEMMA2: Final = _family(
    pattern_if_unlisted=_last_of_each(2), tied=True, defaults={"head_dim": 256, "sliding_window": 4096}
)
_GEMMA3: Final = _family(
    pattern_if_unlisted=_last_of_each(6, "sliding_window_pattern", "_sliding_window_pattern"),
    tied=True,
    defaults={
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262_208,
        "sliding_window": 4096,
    },
)
_GEMMA3N: Final = _family(
    {
        _FULL: grouped,
        _WINDOW: windowed,
        f"shared {_FULL}": Grouped(shared_cache=True),
        f"shared {_WINDOW}": Grouped(Reach.WINDOW, shared_cache=True),
        "layer embedding": per_layer_input,
        "laurel": laurel,
    },
    fixed_pattern=_with_shared_caches(_last_of_each(5)),
    further_blocks=("layer embedding", "laurel"),
    tied=True,
    once=_altup,
    tables=_layer_embedding_tables,
)
_GEMMA4_FULL: Final = Grouped(
    names={"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"},
    key_is_value_field="attention_k_eq_v",
)
_GEMMA4: Final = _family(
    {
        _FULL: _GEMMA4_FULL,
        _WINDOW: windowed,
        f"shared {_FULL}": msgspec.structs.replace(_GEMMA4_FULL, shared_cache=True),
        f"shared {_WINDOW}": Grouped(Reach.WINDOW, shared_cache=True),
        "second half": double_width_mlp,
        "layer embedding": per_layer_input,
    },
    # Their MLP is twice as wide as that of the other layers.
    layers={kind: (kind, "second half") for kind in (f"shared {_FULL}", f"shared {_WINDOW}")},
    fixed_pattern=_with_shared_caches(_gemma4),
    moe=True,
    dense_beside_experts=True,
    further_blocks=("layer embedding",),
    tied=True,
    once=_layer_embeddings,
    tables=_layer_embedding_tables,
)
_STEP_WINDOW: Final = Grouped(Reach.WINDOW, gate="head", names={"num_attention_heads": "num_sliding_attention_heads"})

_INKLING_WINDOW: Final = Grouped(
    Reach.WINDOW,
    limit_fields=("sliding_window_size",),
    names={name: f"swa_{name}" for name in ("num_attention_heads", "num_key_value_heads", "head_dim")},
)


def _mimo_window(fields: Fields) -> Block:
    """MiMo-V2: window layers have sizes of their own; where no field has them, twice the KV heads."""
    window_fields = {name: fields.raw(f"swa_{name}") for name in ("num_attention_heads", "head_dim", "v_head_dim")}
    window_fields["num_key_value_heads"] = fields.raw("swa_num_key_value_heads") or 2 * key_value_heads(fields)
    return windowed(fields.with_first(window_fields))


_NEMOTRON_H: Final = _family(
    # Only 32 bit is known to lose no accuracy: vLLM's default for this family, whatever the model's type is.
    {_FULL: grouped, _STATE: Mamba2(dtype_field="mamba_ssm_cache_dtype", default_bytes=4.0)},
    mlp=_PLAIN_MLP,
    experts=Experts(matrices=2),
    pattern_if_unlisted=_nemotron_h,
    no_feed_forward=True,
)
_DEEPSEEK_V4: Final = _family(
    {
        _WINDOW: Compressed(),
        "csa": Compressed(rate_name="compressed_sparse_attention", stride=4, sparse=True),
        "hca": Compressed(rate_name="heavily_compressed_attention", stride=128),
    },
    pattern_if_unlisted=_deepseek_v4,
    moe=True,
    once=_hyper_head,
)
_MISTRAL_LARGE4: Final[dict[str, Builder]] = {
    _latent_kind(kind, without_positions, shared): Latent(
        indexed=True, shares_indexer=kind == _BORROWED, without_positions=without_positions, shared_cache=shared
    )
    for kind in (SPARSE, _BORROWED)
    for without_positions in (False, True)
    for shared in (False, True)
}
_ENTRIES: Final[dict[str, Builder]] = {
    _entry_kind(stride, made, chosen): SharedEntries(stride, made, chosen)
    for stride in (1, 2)
    for made in (False, True)
    for chosen in (False, True)
}
_DEEPSEEK_V41: Final = _family(
    {_WINDOW: Compressed(), "engram": engram, **_ENTRIES},
    layers={f"{kind} and engram": (kind, "engram") for kind in (_WINDOW, *_ENTRIES)},
    fixed_pattern=_deepseek_v41,
    moe=True,
    flops_unknown="engines may take prompts through half of its layers, and no counter says whether they do",
    own_storage={ENGRAM_TABLE: WeightStorage(Precision.FP8, 1.03125)},  # a byte of scale for 32 elements
)
_MINIMAX_M3: Final = _family(
    {_FULL: grouped, SPARSE: block_sparse_attention},
    mlp=Dense(size_fields=("dense_intermediate_size", "intermediate_size")),
    pattern_if_unlisted=_minimax_m3,
    moe=True,
)
_KIMI: Final = _family(
    {_FULL: Latent(gate_field="mla_use_output_gate"), _STATE: kimi_delta}, pattern_if_unlisted=_kimi, moe=True
)
_LLAMA4: Final = _family(
    pattern_if_unlisted=_llama4,
    moe=True,
    mlp=Dense(size_fields=("intermediate_size_mlp", "intermediate_size")),
    experts=Experts(shared=1),
)
_LFM2: Final[dict[str, Builder]] = {_FULL: grouped, _STATE: short_convolution}
_LONGCAT: Final = _family(
    {_FULL: Latent()},
    mlp=Dense(size_fields=("ffn_hidden_size",)),
    experts=Experts(size_fields=("expert_ffn_hidden_size",)),
    layers={"two and experts": (_FULL, DENSE, _FULL, DENSE, _EXPERTS)},
    fixed_pattern=_all("two and experts"),
    no_feed_forward=True,
)


def _encoder_projections(fields: Fields, layers: int) -> Module:
    """Projections of an encoder's output to keys and values: a request needs them once, and no token after that."""
    return matrix("encoder_attn.key_value_proj", TABLES, 2 * layers, hidden_size(fields), hidden_size(fields))


_DECODER_NAMES: Final = {
    "num_hidden_layers": "decoder_layers",
    "num_attention_heads": "decoder_attention_heads",
    "intermediate_size": "decoder_ffn_dim",
}
"""Names that fields have in the configs of models with an encoder and a decoder."""


def _decoder(encoder: str, positions: str) -> Architecture:
    """The decoder beside an encoder (BART, Whisper): its `positions` are a learned or a fixed table."""
    return _family(
        {_FULL: grouped, "cross": cross_attention},
        mlp=_PLAIN_MLP,
        layers={"both": (_FULL, "cross", DENSE)},
        fixed_pattern=_all("both"),
        no_feed_forward=True,
        tied=True,
        added_tables=("max_position_embeddings",),
        tables=_encoder_projections,
        encoder=encoder,
        names={**_DECODER_NAMES, "max_position_embeddings": positions},
    )


_HEADWISE: Final[dict[str, Builder]] = {_FULL: Grouped(gate="head"), _WINDOW: Grouped(Reach.WINDOW, gate="head")}
"""Mixers with a gate per head."""
_GATED: Final[dict[str, Builder]] = {_FULL: Grouped(gate="wide"), _WINDOW: Grouped(Reach.WINDOW, gate="wide")}
"""Mixers with a gate as wide as their output."""

ARCHITECTURES: Final[dict[str, Architecture]] = {
    **_rows_of(
        _LLAMA,
        "llama aquila baichuan bitnet chatglm exaone glm glm4 granite helium hyperclovax internlm2 internlm3 mimo olmo "
        "olmo2 orion seed_oss stablelm yi emu3_text_model iquestcoder glm4v_text glm_ocr_text granite_docling_text "
        "ministral3 cwm granite_swa olmo3 smollm3 hunyuan_v1_dense hunyuan_vl_text granite4_vision_text",
    ),
    **_rows_of(_WINDOWED, "mistral ministral phi3 phi3_v phi4mm phi4_multimodal"),
    **_rows_of(
        _QWEN,
        "qwen2 qwen3 qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text qwen2_audio qwen3_vl_text "
        "qwen3_asr_text",
    ),
    **_rows_of(_QWEN_MOE, "qwen2_moe qwen3_moe qwen3_vl_moe_text qwen3_omni_moe_text qwen3_omni_moe_text_thinker"),
    **_rows_of(
        _LLAMA_MOE,
        "mixtral deepseek olmoe flex_olmo granitemoe granitemoeshared granitemoe_swa phimoe glm4_moe glm4v_moe_text "
        "hy_v3 solar_open dots1 bailing_moe bailing_moe_v2 mellum kolibri1 flint aria_text sarvam_moe",
    ),
    "dbrx": _family(moe=True, experts=Experts(size_fields=("ffn_hidden_size",)), nested=("attn_config", "ffn_config")),
    "hunyuan_v1_moe": _family(moe=True, experts=Experts(shared=1)),
    "grok": _family(moe=True, dense_beside_experts=True),
    "step3_text": _family({_FULL: factorised_attention}, moe=True, experts=Experts(shared=1)),
    "jetmoe": _family({_FULL: attention_experts}, moe=True, tied=True),
    "diffllama": _family({_FULL: differential_attention}),
    "zaya": _family({"hybrid": convolved_attention}, pattern_if_unlisted=_all("hybrid"), moe=True, tied=True),
    "longcat_flash": _LONGCAT,
    **_rows_of(
        _decoder(TEXT, "max_position_embeddings"),
        "bart blenderbot blenderbot-small marian mbart mvp pegasus plbart trocr",
    ),
    "whisper": _decoder(AUDIO, "max_target_positions"),
    **_rows_of(
        _PLAIN,
        "apertus apertus1p5_text arcee codegen cosmos3_edge_text gpt_neox gptj jais2 nanochat nemotron persimmon phi",
    ),
    **_rows_of(_GPT2, "gpt2 gpt_bigcode openai-gpt"),
    **_rows_of(
        _family(mlp=_PLAIN_MLP, tied=True), "bloom falcon gpt_neox_japanese mpt RefinedWeb RefinedWebModel xglm"
    ),
    **_rows_of(_family(mlp=_PLAIN_MLP, tied=True, added_tables=("max_position_embeddings",)), "biogpt opt"),
    "starcoder2": _family(mlp=_PLAIN_MLP, tied=True, pattern_if_unlisted=_window_if_set),
    "gpt_neo": _family(
        {_FULL: grouped, _WINDOW: Grouped(Reach.WINDOW, limit_fields=("window_size",))},
        mlp=_PLAIN_MLP,
        fixed_pattern=_gpt_neo,
        tied=True,
        added_tables=("max_position_embeddings",),
    ),
    "ctrl": _family(mlp=Dense(matrices=2, size_fields=("dff",)), tied=True),
    "doge": _family({_FULL: dynamic_mask_attention}),
    "rwkv": _family({_STATE: rwkv}, fixed_pattern=_all(_STATE), no_feed_forward=True),
    "xlstm": _family({_STATE: mlstm}, fixed_pattern=_all(_STATE), no_feed_forward=True),
    "qwen": _family(mlp=Dense(halved=True)),
    **_rows_of(_family(tied=True), "ernie4_5 minicpm paddleocr_vl_text"),
    "ernie4_5_moe": _family(tied=True, moe=True),
    "cohere": _family(tied=True),
    "cohere_compass_text": _family(pattern_if_unlisted=_needs_list, tied=True),
    "cohere2": _family(pattern_if_unlisted=_last_of_each(4, "sliding_window_pattern"), tied=True),
    "cohere2_moe": _family(pattern_if_unlisted=_last_of_each(4, "sliding_window_pattern"), tied=True, moe=True),
    "gemma": _GEMMA,
    **_rows_of(_GEMMA2, "gemma2 vaultgemma"),
    **_rows_of(_GEMMA3, "gemma3 gemma3_text"),
    **_rows_of(_GEMMA3N, "gemma3n gemma3n_text"),
    **_rows_of(_GEMMA4, "gemma4 gemma4_text gemma4_unified_text"),
    "gpt_oss": _family(pattern_if_unlisted=_last_of_each(2), moe=True),
    **_rows_of(_family(pattern_if_unlisted=_exaone4, moe=True), "exaone4 exaone_moe"),
    **_rows_of(_LLAMA4, "llama4 llama4_text"),
    "afmoe": _family(_GATED, pattern_if_unlisted=_last_of_each(4, "global_attn_every_n_layers"), moe=True),
    "laguna": _family(
        {_FULL: Grouped(gate_field="gating"), _WINDOW: Grouped(Reach.WINDOW, gate_field="gating")},
        pattern_if_unlisted=_needs_list,
        moe=True,
    ),
    **_rows_of(
        _family(
            {_FULL: Grouped(gate="head"), _WINDOW: _STEP_WINDOW},
            moe=True,
            experts=Experts(shared=1),
            defaults={"first_k_dense_replace": 3},
        ),
        "step3p5 step3p7",
    ),
    **_rows_of(
        _family({_FULL: grouped, _WINDOW: _mimo_window}, pattern_if_unlisted=_mimo, moe=True), "mimo_v2 mimo_v2_flash"
    ),
    "muse_glimmer_text": _family(_GATED, pattern_if_unlisted=_needs_list),
    **_rows_of(_family(_GATED, pattern_if_unlisted=_needs_list, moe=True), "beam muse_spark_text"),
    "molmo2_text": _family(added_tables=("additional_vocab_size",)),
    "voxtral_realtime_text": _family(pattern_if_unlisted=_window_if_set, tied=True),
    **_rows_of(
        _family(
            {"hybrid": relative_attention(grouped), "hybrid_sliding": relative_attention(_INKLING_WINDOW)},
            mlp=Dense(size_fields=("dense_intermediate_size", "intermediate_size")),
            pattern_if_unlisted=_inkling,
            moe=True,
        ),
        "inkling_text inkling_mm_model",
    ),
    "inkling2_text": _family(
        {
            "hybrid": sink_attention(relative_attention(Grouped(gate="wide")), dynamic=True),
            "hybrid_sliding": sink_attention(
                relative_attention(msgspec.structs.replace(_INKLING_WINDOW, gate="wide")), dynamic=False
            ),
        },
        pattern_if_unlisted=_inkling,
        moe=True,
    ),
    **_rows_of(_DEEPSEEK, "deepseek_v3 kimi_k2 kimi_k25 axk1 glm4_moe_lite minicpm3 mistral4 youtu sarvam_mla"),
    # transformers leaves it open; all models of this type that DeepSeek published have six.
    "deepseek_v2": msgspec.structs.replace(_DEEPSEEK, defaults={"num_experts_per_tok": 6}),
    "deepseek_v32": _DEEPSEEK_SPARSE,
    "axk2": _family({SPARSE: gated_query_attention}, fixed_pattern=_all(SPARSE), moe=True),
    "glm_moe_dsa": _family(
        _LATENT, fixed_pattern=_indexed, moe=True, defaults={"index_n_heads": 32, "index_head_dim": 128}
    ),
    "dots3_note_text": _family(
        {SPARSE: Latent(gate="head", indexed=True), _WINDOW: Latent(gate="head", window=True)},
        pattern_if_unlisted=_needs_list,
        moe=True,
    ),
    **_rows_of(
        _family(
            {
                SPARSE: Latent(gate="wide", indexed=True),
                _BORROWED: Latent(gate="wide", indexed=True, shares_indexer=True),
                "streams": residual_streams,
            },
            fixed_pattern=_indexed,
            moe=True,
            further_blocks=("streams",),
            once=_hyper_head,
        ),
        "hy_v4 hy_v4_vl_text",
    ),
    **_rows_of(_DEEPSEEK_V4, "deepseek_v4 deepseek_ref"),
    **_rows_of(_DEEPSEEK_V41, "deepseek_v41 deepseek_v41_text"),
    "mistral_large4_text": _family(
        _MISTRAL_LARGE4, fixed_pattern=_mistral_large4, moe=True, defaults={"first_k_dense_replace": 1}
    ),
    "glm5_next_text": _family(
        {
            SPARSE: Latent(indexed=True, pool_field="index_kpool"),
            _BORROWED: Latent(indexed=True, shares_indexer=True),
            _STATE: kimi_delta,
            "streams": hyper_connections,
        },
        fixed_pattern=_glm5_next,
        moe=True,
        further_blocks=("streams",),
        defaults={"index_n_heads": 32, "index_head_dim": 128, "index_kpool": 16, "first_k_dense_replace": 3},
    ),
    **_rows_of(
        _family({_FULL: grouped, _STATE: lightning}, pattern_if_unlisted=_minimax, moe=True),
        "minimax minimax_m1 minimax_text_01",
    ),
    "minimax_m2": _family(fixed_pattern=_minimax_m2, moe=True),
    **_rows_of(_MINIMAX_M3, "minimax_m3 minimax_m3_vl minimax_m3_text minimax_m3_vl_text"),
    **_rows_of(_DELTA, "qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text"),
    # Its files hold a draft layer that no field counts.
    "qwen3_next": msgspec.structs.replace(_DELTA, defaults={"mtp_num_hidden_layers": 1}),
    **_rows_of(
        _family(
            {
                SPARSE: query_sparse_attention,
                _STATE: gated_delta_net,
                "n-grams": layer_n_grams,
                "streams": gated_residuals,
            },
            layers={f"{kind} and n-grams": (kind, "n-grams") for kind in (SPARSE, _STATE)},
            fixed_pattern=_qwen4,
            experts=Experts(gates_shared=True),
            moe=True,
            further_blocks=("streams",),
            once=_stream_mixer,
        ),
        "qwen4_exp qwen4_exp_text",
    ),
    "olmo_hybrid": _family({_FULL: grouped, _STATE: gated_delta_net}, pattern_if_unlisted=_needs_list),
    "lara_mini": _family({**_ATTENTION, _STATE: gated_delta_net}, pattern_if_unlisted=_needs_list, moe=True, tied=True),
    "kimi_linear": _KIMI,
    "bailing_hybrid": _family(
        {_FULL: Latent(gate="head"), _STATE: bailing_linear}, pattern_if_unlisted=_groups, moe=True
    ),
    "bailing_moe_linear": _family({_FULL: grouped, _STATE: lightning}, pattern_if_unlisted=_groups, moe=True),
    "nemotron_h": _NEMOTRON_H,
    "nemotron-nas": _family(
        layers={"attention and ffn": (_FULL, DENSE), "attention": (_FULL,), "ffn": (DENSE,), "": ()},
        fixed_pattern=_puzzle_kinds,
        by_layer=_puzzle_sizes,
        no_feed_forward=True,
    ),
    "bamba": _family({_FULL: grouped, _STATE: Mamba2()}, pattern_if_unlisted=_bamba),
    "falcon_h1": _family(
        {_FULL: grouped, _STATE: Mamba2()}, layers={"both": (_FULL, _STATE)}, fixed_pattern=_all("both")
    ),
    "granitemoehybrid": _family(
        {_FULL: grouped, _STATE: Mamba2()}, mlp=shared_mlp, pattern_if_unlisted=_all(_STATE), moe=True
    ),
    "jamba": _family({_FULL: grouped, _STATE: mamba}, pattern_if_unlisted=_jamba, moe=True),
    "zamba2": _family(
        {_STATE: Mamba2(), "block": zamba_block, "link": zamba_link},
        layers={"hybrid": ("block", "link", _STATE)},
        pattern_if_unlisted=_needs_list,
        tied=True,
        no_feed_forward=True,
    ),
    "zamba": _family(
        {_STATE: mamba, "block": zamba_block, "link": zamba_link},
        layers={"hybrid": ("block", "link", _STATE)},
        pattern_if_unlisted=_needs_list,
        tied=True,
        no_feed_forward=True,
        defaults={"num_mem_blocks": 1},
    ),
    "lfm2": _family(_LFM2, mlp=adjusted_mlp, pattern_if_unlisted=_lfm2, tied=True),
    "lfm3": _family({**_HEADWISE, _STATE: short_convolution}, pattern_if_unlisted=_needs_list, tied=True),
    "lfm2_moe": _family(_LFM2, pattern_if_unlisted=_needs_list, moe=True, tied=True),
    "recurrent_gemma": _family(
        {_FULL: Grouped(Reach.WINDOW, limit_fields=("attention_window_size",)), _STATE: linear_recurrent_unit},
        mlp=Dense(halved=True),
        fixed_pattern=_cycle("block_types", "_block_types"),
        tied=True,
    ),
    "mamba2": _family(
        {_STATE: Mamba2(head_fields=("num_heads",), head_dim_fields=("head_dim",))},
        fixed_pattern=_all(_STATE),
        no_feed_forward=True,
    ),
    **_rows_of(
        _family({_STATE: mamba}, fixed_pattern=_all(_STATE), no_feed_forward=True, tied=True), "mamba falcon_mamba"
    ),
    **_rows_of(
        _BERT,
        "bert bert-generation camembert data2vec-text electra ernie megatron-bert roberta roberta-prelayernorm "
        "xlm-roberta xlm-roberta-xl mpnet distilbert roformer",
    ),
    "xlm": _family({_FULL: encoder}, mlp=_PLAIN_MLP, tied=True, added_tables=("max_position_embeddings",)),
    "jina_embeddings_v3": _family({_FULL: encoder}, mlp=_PLAIN_MLP, tied=True, added_tables=("type_vocab_size",)),
    **_rows_of(_ROTARY_ENCODER, "nomic_bert gte new"),
    "eurobert": _family({_FULL: encoder}),
    "modernbert": _family(
        {_FULL: encoder, _WINDOW: encoder_window_attention},
        pattern_if_unlisted=_first_of_each(3, "global_attn_every_n_layers"),
        tied=True,
    ),
    "modernbert-decoder": _family(
        {_FULL: grouped, _WINDOW: Grouped(Reach.WINDOW, limit_fields=("sliding_window", "local_attention"))},
        pattern_if_unlisted=_first_of_each(3, "global_attn_every_n_layers"),
        tied=True,
    ),
}
"""Name of an architecture (`model_type`) -> how its layers are built."""
