"""A model of an unknown architecture by the headers of its files: weights, experts and keys and values as names tell.

Its bytes are exact. What its layers compute beside the products with their matrices is not known, so that it has no
FLOPs: the spec says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from gpumon.specs.dimensions import LONGEST_CONTEXT, MOST_EXPERTS, MOST_LAYERS
from gpumon.specs.fields import FieldError, Fields, RefusedError, json_text
from gpumon.specs.layers import EXPERT_COUNTS, INDEXER_KEY_BYTES, TOP_K_FIELDS, key_dim, key_value_heads, query_heads
from gpumon.specs.llm import Attention, LlmSpec, Reach, merge_layers
from gpumon.specs.module_rules import part_of
from gpumon.specs.modules import EXPERTS, HEAD, MLP, NUMBER, ROUTER, TABLES, ModuleKind, ModuleList
from gpumon.specs.not_modelled import VISION
from gpumon.specs.stored_tensors import (
    HEAD_WORDS,
    NOT_READ,
    TABLE_WORDS,
    UNPACKED,
    StoredTensors,
    TensorKind,
    is_beside,
    module_of,
)
from gpumon.specs.weight_format import StoredKind, StoredWeights, WeightFormat, WeightStorage, with_weights

_WEIGHT_WORDS: Final = frozenset(("weight", "qweight", "weight_packed"))
"""Last words of the names of tensors that hold weights; the others are scales, zero points and biases."""
_STACKED_WEIGHTS: Final = ("_proj", "_blocks", "_linear")
"""Ends of the names of tensors that hold those of all experts of a layer."""
_LEAST_WIDE_BITS: Final = 15.0
"""Bits of a weight from which on it is not quantised."""
_WORD_BITS: Final = 32
"""Bits of an element of GPTQ's and AWQ's packed weights."""
_KEY_WORDS: Final = frozenset(("k_proj", "kv_a_proj_with_mqa", "kv_a_proj", "wkv", "wkv_a"))
_VALUE_WORDS: Final = frozenset(("v_proj",))
_FUSED_WORDS: Final = frozenset(("qkv_proj", "query_key_value", "Wqkv", "wqkv", "c_attn", "W_pack"))
"""Last words of modules that make keys or latents, values, and both with the queries."""
_WINDOW_WORD: Final = "sliding_attention"
_STATE_WORDS: Final = frozenset(("A_log", "dt_bias", "f_a_proj", "f_proj", "output_gate"))
"""Last words of tensors and modules beside which projections of keys and values make a state."""
_LINEAR_WORDS: Final = frozenset(("linear_attention", "mamba", "recurrent", "conv", "kda"))
"""Words of `layer_types` for such layers."""
_TABLE_MARKS: Final = ("embed", "position", "wpe", "token_type")
"""Parts of the last words of other look-up tables: positions, types of segments, embeddings per layer."""
_CROSS_MARKS: Final = ("encoder_attn", "cross_attn", "crossattention")
"""Parts of the names of attention to an encoder's output."""
_NOT_TOLD: Final = {
    "num_mem_blocks": "several layers use the same weights",
    "zero_expert_num": "some experts compute nothing",
}
"""Field -> what it says of a model whose tensors do not tell it."""
_INDEX_MARK: Final = "index"
"""Part of the names of an indexer's modules."""
_INDEX_KEY_WORDS: Final = frozenset(("wk", "k_proj", "index_k_proj"))
_LEAST_NAMED_SHARE: Final = 0.99
"""Share of the bytes of the language model that modules with names that are known have to have. A choice."""
_HIDDEN_MIXERS: Final = "attention, states and what else its layers keep"


class _Held(NamedTuple):
    """A module of the files in all its layers."""

    kind: ModuleKind
    bytes: float
    """All layers and experts together."""


def llm_from_tensors(
    config: Fields, name: str, source: str, tensors: StoredTensors, weights: WeightFormat, *, generates: bool
) -> LlmSpec:
    """The model that these files hold, as far as names and shapes tell it.

    `weights`: how the config says that weights are stored; `generates`: whether it has an LM head. Raises RefusedError
    where the files name no layers, no look-up table, no keys and values, or say of large matrices not what they are;
    ValueError where no field says how many experts a token goes through.
    """
    _refuse_by_config(config)
    layers = min(tensors.layer_count(), config.integer("num_hidden_layers", default=MOST_LAYERS, high=MOST_LAYERS))
    if not layers:
        raise _refusal(config, "its files name no layers")
    held = _modules(config, tensors, layers, weights, generates=generates)
    experts = max((module.kind.experts for module in held), default=0)
    if not experts and _counts_experts(config):
        raise _refusal(config, "its files name no experts, though its config counts some")
    modules = ModuleList(
        kinds=tuple(module.kind for module in held),
        experts=experts,
        experts_per_token=config.integer(*TOP_K_FIELDS, high=experts) if experts else 0,
    )
    table = _table(held)
    if table is None:
        raise _refusal(config, "its files name no look-up table")
    vocabulary = table.shape[0]
    hidden = table.shape[-1]
    attention, notes = _attention(config, tensors, layers, hidden, weights)
    if any(is_beside(kind.path or kind.name) for kind in tensors.kinds):
        notes = (*notes, VISION)
    model_type = json_text(config.text("model_type"))
    spec = LlmSpec(
        name=name,
        source=f"{source}, by the names of its tensors: model_type {model_type} is not a known architecture",
        params=0.0,  # `with_weights` fills in the parameters
        matmul_params=0.0,
        head_params=0.0,
        vocab=vocabulary,
        hidden=hidden,
        layers=layers,
        heads=_told(config, query_heads),
        kv_heads=max((layer.kv_heads for layer in attention), default=1),
        head_dim=_told(config, key_dim),
        attention=attention,
        not_modelled=notes,
        max_context=config.integer("max_position_embeddings", default=0, low=0, high=LONGEST_CONTEXT),
        flops_unknown=f"model_type {model_type} is not a known architecture: what its layers compute beside "
        "the products with their matrices is not known",
    )
    stored = StoredWeights([StoredKind(module.kind, _counts(module, weights)) for module in held])
    return with_weights(spec, modules, weights, stored)


def _refuse_by_config(config: Fields) -> None:
    """Raise RefusedError for a model whose config says that its tensors do not tell what a step reads."""
    for field, problem in _NOT_TOLD.items():
        if config.raw(field):
            raise _refusal(config, f"{field} says that {problem}")
    if config.flag("is_encoder_decoder"):
        raise _refusal(config, "no counter says how long the texts of its encoder are")


def _counts_experts(config: Fields) -> bool:
    """Whether the config counts experts to choose from."""
    count = config.raw(*EXPERT_COUNTS)
    return isinstance(count, int) and count > 1


def _refusal(config: Fields, problem: str) -> RefusedError:
    """The error that the files of an unknown architecture do not tell enough."""
    model_type = json_text(config.text("model_type"))
    return config.refusal("model_type", f"{model_type} is not a known architecture, and {problem}")


def _told(config: Fields, read: Callable[[Fields], int]) -> int:
    """A dimension of the config; 1 where it has none."""
    try:
        return read(config)
    except (FieldError, ZeroDivisionError):
        return 1


def _modules(
    config: Fields, tensors: StoredTensors, layers: int, weights: WeightFormat, *, generates: bool
) -> list[_Held]:
    """The modules of the language model; a tied LM head is the look-up table. Raises RefusedError where most names of
    the weights say nothing."""
    sizes: dict[tuple[str, str], list[TensorKind]] = {}
    main_path = tensors.main_path()
    for kind in tensors.kinds:
        if is_beside(kind.path or kind.name) or kind.name.endswith(NOT_READ) or kind.path not in ("", main_path):
            continue
        sizes.setdefault((kind.path, module_of(kind)), []).append(kind)
    has_head = tensors.has_head() or not generates
    held = []
    unnamed: dict[str, float] = {}
    for (path, module), kinds in sizes.items():
        found = _module(path, module, kinds, tensors, layers, weights, has_head=has_head)
        if found is not None:
            held.append(found)
        else:
            unnamed[module] = sum(tensors.bytes_in(kind, layers) for kind in kinds)
    named_bytes = sum(found.bytes for found in held)
    if named_bytes < _LEAST_NAMED_SHARE * (named_bytes + sum(unnamed.values())):
        largest = max(unnamed, key=lambda module: unnamed[module])
        raise _refusal(config, f"the weights of {largest[:60]} are not told by its name")
    return held


def _module(
    path: str,
    module: str,
    kinds: list[TensorKind],
    tensors: StoredTensors,
    layers: int,
    weights: WeightFormat,
    *,
    has_head: bool,
) -> _Held | None:
    """One module by its tensors; None where none of them is in the layers of the model."""
    numbers = tuple(sorted({layer for kind in kinds for layer in tensors.layers_of(kind) if layer < layers}))
    params = sum(_weights_of(kind, weights) * tensors.count_in(kind, layers) for kind in kinds)
    size = sum(tensors.bytes_in(kind, layers) for kind in kinds)
    if not params or not numbers:
        return None
    part = _part(path, module, has_head=has_head)
    experts = _experts(module, kinds, tensors, numbers[0]) if part == EXPERTS else 0
    places = (len(numbers) if path else 1) * max(1, experts)
    shape: tuple[int, ...] = (round(params / places),)
    if part in (TABLES, HEAD):
        shape = max((kind.shape for kind in kinds), key=math.prod)
    return _Held(ModuleKind(module, part, shape, numbers if path else (), experts), size)


def _experts(module: str, kinds: list[TensorKind], tensors: StoredTensors, layer: int) -> int:
    """Experts of one layer: by the numbers in their names, else by the first dimension of a tensor of all."""
    if NUMBER in module:
        return max(tensors.count_of_layer(kind, layer) for kind in kinds)
    return min(MOST_EXPERTS, max(kind.shape[0] for kind in kinds if len(kind.shape) > 2))


def _part(path: str, module: str, *, has_head: bool) -> str:
    """The part of a model that a module is of, by its name."""
    word = module.rpartition(".")[2]
    if any(mark in module for mark in _CROSS_MARKS) and word in _KEY_WORDS | _VALUE_WORDS:
        return TABLES  # multiplied once per request
    if path:
        is_router = word in ("gate", "router")
        part = ROUTER if is_router else part_of(f"{module}.")
        return part or MLP
    if word in TABLE_WORDS:
        return TABLES if has_head else HEAD
    if any(mark in word for mark in _TABLE_MARKS):
        return TABLES
    return HEAD if word in HEAD_WORDS else MLP


def _weights_of(kind: TensorKind, weights: WeightFormat) -> float:
    """Weights in one tensor; 0 in scales, zero points, biases and norms."""
    word = kind.name.rpartition(".")[2]
    if len(kind.shape) < 2 or not (word in _WEIGHT_WORDS or word.endswith(_STACKED_WEIGHTS)):
        return 0.0
    elements = float(math.prod(kind.shape))
    if kind.dtype in UNPACKED and kind.dtype != "I8":
        return elements
    bits = math.floor(8.0 * weights.narrowest.bytes_per_weight)
    if kind.dtype == "I32":
        return elements * _WORD_BITS / max(1, bits)
    return elements * 8 // max(1, min(8, bits))


def _counts(held: _Held, weights: WeightFormat) -> Mapping[WeightStorage, int]:
    """The format of a module's weights, by the bytes that the files hold of them."""
    kind = held.kind
    per_weight = held.bytes / kind.all_params
    storage = weights.wide if 8.0 * per_weight >= _LEAST_WIDE_BITS else weights.narrowest
    return {storage._replace(bytes_per_weight=per_weight, bytes_per_matrix=0.0): kind.places * max(1, kind.experts)}


def _table(held: list[_Held]) -> ModuleKind | None:
    """The look-up table."""
    for module in held:
        if not module.kind.layers and module.kind.name.rpartition(".")[2] in TABLE_WORDS:
            return module.kind
    return None


class _Caches:
    """Elements that layers keep of each token, by the rows of the matrices that make them."""

    def __init__(self) -> None:
        self.keys: dict[int, float] = {}
        """Keys, latents, or keys and values of a fused matrix."""
        self.values: dict[int, float] = {}
        self.index_keys: dict[int, float] = {}
        self.fused: set[int] = set()
        self.is_latent = False

    def add(self, module: str, layers: Iterable[int], rows: float) -> None:
        """Take in a matrix of some layers that makes so many elements a token, if it makes keys or values."""
        word = module.rpartition(".")[2]
        if _INDEX_MARK in module:
            if word in _INDEX_KEY_WORDS:
                self.index_keys.update(dict.fromkeys(layers, rows))
        elif word in _KEY_WORDS:
            for layer in layers:
                self.keys[layer] = self.keys.get(layer, 0.0) + rows
                self.is_latent = self.is_latent or word != "k_proj"
        elif word in _VALUE_WORDS:
            for layer in layers:
                self.values[layer] = self.values.get(layer, 0.0) + rows

    def add_fused(self, layers: Iterable[int], rows: float) -> None:
        """Take in a matrix of some layers that makes queries, keys and values: `rows` are those of keys and values."""
        self.keys.update(dict.fromkeys(layers, rows))
        self.fused.update(layers)

    def elements(self) -> dict[int, float]:
        """Layer -> elements of its cache; without a matrix of their own, values are as wide as keys."""
        found = {}
        for layer, rows in self.keys.items():
            has_own = self.is_latent or layer in self.fused
            found[layer] = rows if has_own else rows + self.values.get(layer, rows)
        return found


def _caches(config: Fields, tensors: StoredTensors, layers: int, hidden: int, weights: WeightFormat) -> _Caches:
    """The caches of all layers but those that keep a state."""
    caches = _Caches()
    main_path = tensors.main_path()
    states = _state_layers(config, tensors, layers)
    for kind in tensors.kinds:
        is_weight = len(kind.shape) == 2 and kind.name.rpartition(".")[2] in _WEIGHT_WORDS
        if kind.path != main_path or not is_weight or any(mark in kind.name for mark in _CROSS_MARKS):
            continue
        module = module_of(kind)
        without_keys = states.get("", set()) | states.get(module.partition(".")[0], set())
        own_layers = [layer for layer in tensors.layers_of(kind) - without_keys if layer < layers]
        if _INDEX_MARK in module or module.rpartition(".")[2] not in _FUSED_WORDS:
            caches.add(module, own_layers, _weights_of(kind, weights) / hidden)
        elif own_layers:
            caches.add_fused(own_layers, 2.0 * _told(config, key_value_heads) * _told(config, key_dim))
    return caches


def _state_layers(config: Fields, tensors: StoredTensors, layers: int) -> dict[str, set[int]]:
    """Holder of the modules of a state -> its layers, by their tensors; "" -> those that the config lists."""
    main_path = tensors.main_path()
    by_holder: dict[str, set[int]] = {}
    for kind in tensors.kinds:
        words = kind.name.split(".")
        if kind.path == main_path and _STATE_WORDS & set(words):
            by_holder.setdefault(words[0], set()).update(tensors.layers_of(kind))
    listed = config.raw("layer_types")
    if isinstance(listed, list):
        by_holder[""] = {layer for layer, word in enumerate(listed[:layers]) if str(word) in _LINEAR_WORDS}
    return by_holder


def _attention(
    config: Fields, tensors: StoredTensors, layers: int, hidden: int, weights: WeightFormat
) -> tuple[tuple[Attention, ...], tuple[str, ...]]:
    """The caches of layers, and notes on layers whose memory is not known. Raises RefusedError where none is told."""
    caches = _caches(config, tensors, layers, hidden, weights)
    elements = caches.elements()
    if not elements and not any(_state_layers(config, tensors, layers).values()):
        raise _refusal(config, "its files name no keys and values")
    heads = 1 if caches.is_latent else _told(config, key_value_heads)
    windows = _windowed_layers(config, layers)
    limit = config.integer("sliding_window", default=0, low=0, high=LONGEST_CONTEXT) if windows else 0
    attentions = []
    for layer, size in elements.items():
        reach = Reach.WINDOW if layer in windows else Reach.FULL
        attentions.append(_cached(reach, size, heads, limit if reach is Reach.WINDOW else 0))
    for size in caches.index_keys.values():
        index = _cached(Reach.INDEX, size, 1, 0)
        attentions.append(msgspec.structs.replace(index, bytes_per_element=INDEXER_KEY_BYTES))
    notes = (f"{_HIDDEN_MIXERS} in {layers - len(elements)} of {layers} layers",) if len(elements) < layers else ()
    return merge_layers(attentions), notes


def _cached(reach: Reach, elements: float, heads: int, limit: int) -> Attention:
    """The cache of one layer; its FLOPs are not known."""
    return Attention(
        reach=reach,
        layers=1,
        decode_flops=0.0,
        prefill_flops=0.0,
        elements=elements,
        kv_heads=heads,
        limit=limit,
    )


def _windowed_layers(config: Fields, layers: int) -> set[int]:
    """Numbers of the layers that the config lists with a window."""
    kinds = config.raw("layer_types")
    if not isinstance(kinds, list) or not config.has("sliding_window"):
        return set()
    return {layer for layer, kind in enumerate(kinds[:layers]) if kind == _WINDOW_WORD}
