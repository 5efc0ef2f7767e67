"""How llama.cpp's file types store the single matrices of a model: `Q4_K_M` is a mixture of several of ggml's types.

The choices are those of `llama_tensor_get_type` in llama.cpp (src/llama-quant.cpp): by what a matrix does, by its
layer, and by how many query heads share the values of one. Files of an 8B model are within 0.5% of their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from gpumon.specs.gguf import TYPES, GgmlType
from gpumon.specs.modules import EXPERTS, HEAD, MLP, ROUTER, SHARED, TABLES, ModuleKind, ModuleList

_TYPE_BY_NAME: Final[Mapping[str, GgmlType]] = {ggml.name: ggml for ggml in TYPES.values()}

_FALLBACKS: Final = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_K", "Q3_K"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}
"""Type -> the one of matrices whose rows are no multiple of its block (`tensor_type_fallback`)."""

# What a matrix does, as llama.cpp sorts them.
_QUERIES: Final = "queries"
_KEYS: Final = "keys"
_VALUES: Final = "values"
"""Values, latents of keys and values, and fused projections."""
_OUTPUT: Final = "output"
"""Output of attention."""
_GATE_UP: Final = "gate and up"
_DOWN: Final = "down"
_OTHER: Final = "other"
_ROLE_BY_WORD: Final = {
    "q_proj": _QUERIES,
    "k_proj": _KEYS,
    **dict.fromkeys(
        ("v_proj", "kv_b_proj", "qkv_proj", "query_key_value", "c_attn", "Wqkv", "wqkv", "in_proj_qkv"), _VALUES
    ),
    **dict.fromkeys(("o_proj", "dense", "wo"), _OUTPUT),
    **dict.fromkeys(("gate_proj", "up_proj", "w1", "w3", "c_fc", "fc1", "dense_h_to_4h", "input_linear"), _GATE_UP),
    **dict.fromkeys(("down_proj", "w2", "fc2", "dense_4h_to_h", "output_linear"), _DOWN),
}
"""Last word of a module's name -> its role; `out_proj` and `c_proj` are of attention or of an MLP."""
_UNTIL_DECIDED: Final = ("out_proj", "c_proj")

_NOT_WIDENED: Final = ("Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0")
"""Types of files whose outputs of attention stay as they are in such a model."""
_MOE_OF_EIGHT: Final = 8
"""Experts of Mixtral, for which llama.cpp has choices of its own."""
_MANY_EXPERTS: Final = 4
_MANY_QUERY_HEADS: Final = 4
"""Query heads per KV head, and experts, from which on values get more bits."""
_LAYERS_OF_70B: Final = 80


class _Place(NamedTuple):
    """One matrix in the model."""

    position: int
    """Its place among the layers that have one such."""
    of: int
    """Layers that have one such."""
    shares_values: bool
    """Whether four or more query heads share the values of one."""
    experts: int


_Condition = Callable[[_Place], bool]


def _always(_place: _Place) -> bool:
    """Every matrix."""
    return True


def _shared(place: _Place) -> bool:
    """Matrices of models in which four or more query heads share the values of one."""
    return place.shares_values


def _shared_or_experts(place: _Place) -> bool:
    """The same, and those of models with experts."""
    return place.shares_values or place.experts >= _MANY_EXPERTS


def _in_first(divisor: int) -> _Condition:
    """Matrices in the first layers, one of so many."""
    return lambda place: place.position < place.of // divisor


def _among_first(layers: int) -> _Condition:
    """Matrices in so many first layers."""
    return lambda place: place.position < layers


def _more_bits(place: _Place) -> bool:
    """Matrices in the first and last eighth of the layers, and in every third one between (`use_more_bits`)."""
    eighth = place.of // 8
    return place.position < eighth or place.position >= 7 * place.of // 8 or (place.position - eighth) % 3 == 2


def _middle(place: _Place) -> bool:
    """Matrices between the first and the last eighth of the layers."""
    return place.of // 8 <= place.position < 7 * place.of // 8


class _Choice(NamedTuple):
    """A type that matrices of a role have under a condition."""

    role: str
    applies: _Condition
    type: str


class Mixture(NamedTuple):
    """A file type."""

    type: str
    """Type of the matrices that no choice is for."""
    choices: tuple[_Choice, ...] = ()
    """The first that applies counts."""
    head: str = "Q6_K"
    table: str = ""
    """Look-up table, unless it is the LM head; empty: as other matrices."""


def _small_mixture(kind: str, *, early: str, output: str, table: str) -> Mixture:
    """The types below 3 bits, of which values have 4.5."""
    choices = (
        _Choice(_VALUES, _shared_or_experts, "Q4_K"),
        _Choice(_VALUES, _always, early),
        _Choice(_DOWN, _in_first(8), early),
        _Choice(_OUTPUT, _always, output),
    )
    return Mixture(kind, choices, head="Q5_K", table=table)


MIXTURES: Final[Mapping[str, Mixture]] = {
    "q2_k_s": Mixture("Q2_K", (_Choice(_VALUES, _shared, "Q4_K"), _Choice(_DOWN, _in_first(8), "Q4_K"))),
    "q2_k": Mixture(
        "Q2_K",
        (
            _Choice(_VALUES, _shared, "Q4_K"),
            _Choice(_VALUES, _always, "Q3_K"),
            _Choice(_DOWN, _always, "Q3_K"),
            _Choice(_OUTPUT, _always, "Q3_K"),
        ),
    ),
    "q3_k_s": Mixture("Q3_K"),
    "q3_k_m": Mixture(
        "Q3_K",
        (
            _Choice(_VALUES, _among_first(2), "Q5_K"),
            _Choice(_VALUES, _always, "Q4_K"),
            _Choice(_DOWN, _in_first(16), "Q5_K"),
            _Choice(_DOWN, _always, "Q4_K"),
            _Choice(_OUTPUT, _always, "Q4_K"),
        ),
    ),
    "q3_k_l": Mixture("Q3_K", tuple(_Choice(role, _always, "Q5_K") for role in (_VALUES, _DOWN, _OUTPUT))),
    "q4_0": Mixture("Q4_0"),
    "q4_1": Mixture("Q4_1"),
    "q4_k_s": Mixture("Q4_K", (_Choice(_VALUES, _among_first(4), "Q5_K"), _Choice(_DOWN, _in_first(8), "Q5_K"))),
    "q4_k_m": Mixture("Q4_K", (_Choice(_VALUES, _more_bits, "Q6_K"), _Choice(_DOWN, _more_bits, "Q6_K"))),
    "q5_0": Mixture("Q5_0"),
    "q5_1": Mixture("Q5_1"),
    "q5_k_s": Mixture("Q5_K"),
    "q5_k_m": Mixture("Q5_K", (_Choice(_VALUES, _more_bits, "Q6_K"), _Choice(_DOWN, _more_bits, "Q6_K"))),
    "q6_k": Mixture("Q6_K"),
    "q8_0": Mixture("Q8_0", head="Q8_0"),
    "iq1_s": _small_mixture("IQ1_S", early="Q2_K", output="IQ2_XXS", table="Q2_K"),
    "iq1_m": _small_mixture("IQ1_M", early="Q2_K", output="IQ2_XXS", table="Q2_K"),
    "iq2_xxs": _small_mixture("IQ2_XXS", early="Q2_K", output="IQ2_XXS", table="Q2_K"),
    "iq2_xs": _small_mixture("IQ2_XS", early="Q2_K", output="IQ2_XS", table="Q2_K"),
    "iq2_s": _small_mixture("IQ2_XS", early="IQ3_S", output="IQ3_S", table="IQ3_S"),
    "iq2_m": _small_mixture("IQ2_S", early="IQ3_S", output="IQ3_S", table="IQ3_S"),
    "iq3_xxs": Mixture(
        "IQ3_XXS",
        (
            _Choice(_VALUES, _shared, "Q4_K"),
            _Choice(_KEYS, _always, "IQ2_S"),
            _Choice(_QUERIES, _always, "IQ2_S"),
            _Choice(_OUTPUT, _always, "IQ3_S"),
        ),
        head="Q5_K",
        table="IQ3_S",
    ),
    "iq3_xs": Mixture(
        "IQ3_S",
        (
            _Choice(_VALUES, _shared, "Q4_K"),
            _Choice(_KEYS, _always, "IQ3_XXS"),
            _Choice(_QUERIES, _always, "IQ3_XXS"),
            _Choice(_GATE_UP, _middle, "IQ3_XXS"),
        ),
    ),
    "iq3_s": Mixture("IQ3_S", (_Choice(_VALUES, _shared, "Q4_K"),)),
    "iq3_m": Mixture(
        "IQ3_S",
        (
            _Choice(_VALUES, _always, "Q4_K"),
            _Choice(_DOWN, _in_first(8), "Q4_K"),
            _Choice(_OUTPUT, _always, "Q4_K"),
        ),
    ),
    "iq4_xs": Mixture("IQ4_XS", (_Choice(_VALUES, _shared, "Q5_K"),)),
    "iq4_nl": Mixture("IQ4_NL", (_Choice(_VALUES, _shared, "Q5_K"),)),
    # Experts in MXFP4, all other matrices in Q8_0: how gpt-oss is published.
    "mxfp4_moe": Mixture("Q8_0", head="Q8_0"),
}
"""File type -> how it stores matrices. IQ types need an importance matrix, so that what is chosen without one is not
here; Q4_0 and Q5_0 of publishers that have one store an eighth of the down projections with half a bit more."""


def bits_by_layer(file_type: str, modules: ModuleList) -> list[Mapping[int, float]]:
    """For each kind of `modules`: layer -> bits of a weight of it; of what is outside the layers, layer -1."""
    mixture = MIXTURES[file_type]
    layers = 1 + max((max(kind.layers) for kind in modules.kinds if kind.layers), default=0)
    shares_values = _shares_values(modules)
    by_kind: list[Mapping[int, float]] = []
    for kind in modules.kinds:
        own = sorted(_layers_alike(kind, modules)) if _role(kind) is _VALUES else range(layers)
        order = {layer: index for index, layer in enumerate(own)}
        bits = {}
        for layer in kind.layers or (-1,):
            place = _Place(order.get(layer, 0), len(order), shares_values, modules.experts)
            bits[layer] = _bits(_type_of(mixture, file_type, kind, place, layers), kind)
        by_kind.append(bits)
    return by_kind


def _layers_alike(kind: ModuleKind, modules: ModuleList) -> set[int]:
    """Numbers of all layers with a module of this name: those of other widths are counted in one row."""
    return {layer for other in modules.kinds if other.name == kind.name for layer in other.layers}


def _role(kind: ModuleKind) -> str:
    """The role of a matrix, as llama.cpp sorts them."""
    word = kind.name.rpartition(".")[2]
    if word in _UNTIL_DECIDED:
        if kind.part in (MLP, SHARED, EXPERTS):
            return _DOWN
        return _OUTPUT if "attn" in kind.name else _OTHER
    return _ROLE_BY_WORD.get(word, _OTHER)


def _shares_values(modules: ModuleList) -> bool:
    """Whether four or more query heads share the values of one; with latents one head has all."""
    rows: dict[str, int] = {}
    for kind in modules.kinds:
        rows.setdefault(kind.name.rpartition(".")[2], kind.shape[0])
    if "kv_b_proj" in rows:
        return True
    outputs = {kind.name.rpartition(".")[2]: kind.shape[-1] for kind in modules.kinds if "attn" in kind.name}
    queries = outputs.get("o_proj") or rows.get("q_proj", 0)  # with a gate, queries have twice the rows
    return queries >= _MANY_QUERY_HEADS * rows.get("v_proj", queries)


def _type_of(mixture: Mixture, file_type: str, kind: ModuleKind, place: _Place, layers: int) -> str:
    """The type that llama.cpp gives a matrix."""
    by_part = {ROUTER: "F32", HEAD: mixture.head, TABLES: mixture.table or mixture.type}
    if kind.part in by_part:
        return by_part[kind.part]
    if file_type == "mxfp4_moe":
        return "MXFP4" if kind.part == EXPERTS else mixture.type
    role = _role(kind)
    chosen = _chosen_type(mixture, role, place)
    if role is _VALUES and layers == _LAYERS_OF_70B and place.shares_values and chosen in ("Q3_K", "Q4_K"):
        return "Q5_K"
    return chosen


def _chosen_type(mixture: Mixture, role: str, place: _Place) -> str:
    """The type of the first choice that applies to a matrix, else that of the file; with eight experts, attention is
    wider."""
    if place.experts == _MOE_OF_EIGHT and role in (_VALUES, _KEYS):
        return "Q8_0"
    if place.experts == _MOE_OF_EIGHT and role is _OUTPUT and mixture.type not in _NOT_WIDENED:
        return "Q5_K"
    return next(
        (choice.type for choice in mixture.choices if choice.role is role and choice.applies(place)), mixture.type
    )


def _bits(name: str, kind: ModuleKind) -> float:
    """Bits of a weight of this type, or of the one that stands in where a row is no multiple of its block."""
    ggml = _TYPE_BY_NAME[name]
    if kind.shape[-1] % ggml.elements:
        ggml = _TYPE_BY_NAME[_FALLBACKS.get(name, "F16")]
    if kind.shape[-1] % ggml.elements:
        ggml = _TYPE_BY_NAME["F16"]
    return 8.0 * ggml.bytes / ggml.elements
