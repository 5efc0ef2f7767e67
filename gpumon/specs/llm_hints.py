"""Facts that an engine tells of its model (`specs.hints`) -> LlmSpec, by itself or together with the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.specs import hints as h
from gpumon.specs.layers import MLP, STATE_BYTES
from gpumon.specs.left_out import ADAPTERS, AUDIO, DRAFTS_LEFT_OUT, VISION
from gpumon.specs.llm import CONVOLUTION, LIGHTNING, MODEL_FORMAT_BYTES, LlmSpec, State, grouped_attention
from gpumon.specs.llm_names import llm_name
from gpumon.specs.llms import LlmCatalogue, LlmRow
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision
from gpumon.specs.weight_format import LlmParts, WeightFormat, with_weights
from gpumon.specs.weight_words import of_bits, says_nothing, weights_named

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMBT])?", re.IGNORECASE | re.ASCII)
_UNITS: Final = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_COUNTS: Final = {
    h.LAYERS: 2000,
    h.HIDDEN: 1_000_000,
    h.HEADS: 100_000,
    h.KV_HEADS: 100_000,
    h.HEAD_DIM: 65_536,
    h.VOCAB: 10_000_000,
    h.EXPERTS: 65_536,
    h.EXPERTS_PER_TOKEN: 65_536,
}
"""Hint -> the largest value that makes sense."""
_MOST = 1e15
"""Most parameters, and most bytes of weights."""
_LEAST_BITS = 1.0
_MOST_BITS = 34.0
_EXACT = 0.007
"""Counts of parameters this close are the same: biases, norms, and the catalogue's two decimals."""
_NEAR = 0.05
"""A count this close does not speak against a row: draft layers may be in it (GLM-4.5-Air: 3.4 %)."""
_ROUGH = 0.15
"""The same for a size in words, which counts the vision encoder: "4.3B" of Gemma-3-4B, whose text model has 3.88."""
_LEAST_SHARE = 0.4
"""Least share of a language model in a published total, encoders and draft layers included."""
_SAME_BYTES = 0.03
_PADDED_VOCAB = 0.01
_DRAFT_LAYERS = 1
"""GGUF counts the draft layer of GLM-4.5 as one more."""
_OPEN: Final = frozenset(("gptq", "bnb"))
"""Methods with more than one number of bits; in a model's name they mean 4."""
_ALIKE: Final = frozenset(
    (
        "llama", "mistral", "mistral3", "qwen2", "qwen3", "phi2", "phi3", "falcon", "granite", "internlm2", "olmo",
        "command-r", "stablelm", "starcoder2", "gptneox", "gpt2", "bloom", "mpt", "smollm3", "glm4", "exaone",
        "baichuan", "nemotron", "refact", "orion", "arcee", "seed_oss", "gemma",
    )
)  # fmt: skip
"""Architectures whose layers are all alike and attend to everything: full dimensions are then all there is to know."""

_CHOSEN_STATES: Final = frozenset(("mamba", "mamba2", "delta net"))
"""States whose format vLLM lets its user choose."""


class _Words(NamedTuple):
    """The hints, read."""

    counts: dict[str, int]
    params: float
    """0 where it does not say."""
    exact: bool
    """`params` is a count and not a size in words."""
    weight_bytes: float
    weights: WeightFormat | None
    precision: str
    """The word behind `weights`, or one that leaves the bits open."""


def from_hints(
    hints: Mapping[str, str], name: str, names: Sequence[str], llms: LlmCatalogue
) -> tuple[LlmSpec | None, list[str]]:
    """The spec as far as the engine's own words are enough and right, and what was against it or is lacking.

    The catalogue gives the dimensions where a row is of this name (`names`, likeliest first) or of exactly these
    figures, and nothing that the engine says speaks against it; the engine's bytes and format then win over the
    row's. Without a row, full dimensions of an architecture with equal layers are enough. Never raises.
    """
    words = _read(hints)
    if not (words.counts or words.params or words.weight_bytes or words.precision):
        return None, []
    problems: list[str] = []
    row = _by_name(words, names, llms, problems)
    if row is not None:
        return _of_row(row, words, names, llms.context(names), "", problems), problems
    row = _by_figures(words, llms)
    if row is not None:
        return _of_row(row, words, names, 0, "found by the engine's figures", problems), problems
    spec, lacking = _by_itself(hints, words, name)
    if lacking:
        what = f"the engine's own words lack {', '.join(lacking)}"
        problems.append(what if problems else f"no catalogue row of this name or these figures; {what}")
    return spec, problems


def with_kv_dtype(llm: LlmSpec, hints: Mapping[str, str]) -> LlmSpec:
    """The spec with the KV cache's format as the engine words it; unchanged where that says nothing."""
    word = hints.get(h.KV_DTYPE, "").strip().lower().removeprefix("torch.")
    precision = next((known for begin, known in _KV_WORDS.items() if word.startswith(begin)), None)
    if precision is None:
        return llm
    return msgspec.structs.replace(llm, kv_precision=precision)


def with_state_dtypes(llm: LlmSpec, hints: Mapping[str, str]) -> LlmSpec:
    """The spec with its states' formats as the engine words them; unchanged where that says nothing.

    As vLLM chooses them (`MambaStateDtypeCalculator`): one format for convolutions and lightning attention, one for the
    states of Mamba and gated delta nets, which without a word of their own have that of the convolutions. The state of
    Kimi delta attention is always of 32 bit.
    """
    states = tuple(_with_dtype(state, hints) for state in llm.states)
    if states == llm.states:
        return llm
    return msgspec.structs.replace(llm, states=states)


def _with_dtype(state: State, hints: Mapping[str, str]) -> State:
    convolution = _bytes_of_state(hints.get(h.CONVOLUTION_DTYPE, ""))
    size: float | None = None
    if state.kind in (CONVOLUTION, LIGHTNING):
        size = convolution
    elif state.kind in _CHOSEN_STATES:
        size = _bytes_of_state(hints.get(h.STATE_DTYPE, ""))
        if size is None and state.bytes_per_element == MODEL_FORMAT_BYTES:
            size = convolution
    if size is None:
        return state
    return msgspec.structs.replace(state, bytes_per_element=size)


def _bytes_of_state(word: str) -> float | None:
    return STATE_BYTES.get(word.strip().lower().removeprefix("torch."))


def left_out_by(hints: Mapping[str, str]) -> tuple[str, ...]:
    """Work of an engine beside the model's forward pass, that no figure counts."""
    left_out = [(h.SPECULATION, DRAFTS_LEFT_OUT), (h.LORA, ADAPTERS)]
    notes = []
    for key, note in left_out:
        if not says_nothing(hints.get(key, "")) and hints[key].strip() != "0":
            notes.append(note)
    modalities = hints.get(h.MODALITIES, "").lower()
    return (*notes, *(note for word, note in (("vision", VISION), ("audio", AUDIO)) if word in modalities))


def quantised_at_load(hints: Mapping[str, str]) -> tuple[WeightFormat | None, str]:
    """The narrow format that the engine says its weights have, and its word; None where it names none, or a wide one.

    Right for a checkpoint that is not quantised itself.
    """
    weights, word = _format(hints)
    if weights is None or weights.narrowest.wide:
        return (None, word)
    return (weights, word)


def _read(hints: Mapping[str, str]) -> _Words:
    counts: dict[str, int] = {}
    for key, most in _COUNTS.items():
        text = hints.get(key, "").strip()
        if text.isascii() and text.isdecimal() and len(text) < 20 and 0 < int(text) <= most:
            counts[key] = int(text)
    params = _number(hints.get(h.PARAMS, ""))
    exact = True
    if not params:
        params = _number(hints.get(h.PARAMETER_SIZE, ""))
        exact = False
    weights, word = _format(hints)
    return _Words(counts, params, exact, _number(hints.get(h.WEIGHT_BYTES, "")), weights, word)


def _number(text: str) -> float:
    match = _SIZE.fullmatch(text.strip())
    if match is None or len(text) > 40:
        return 0.0
    value = float(match["number"]) * _UNITS[(match["unit"] or "").upper()]
    return value if 1.0 <= value <= _MOST else 0.0


def _format(hints: Mapping[str, str]) -> tuple[WeightFormat | None, str]:
    """The most telling of the two words, and its format; None where the word leaves the bits open.

    A narrow format tells most. A 16-bit type tells least: it is the arithmetic's, whatever the weights are stored in.
    """
    formats = []
    for hint in (h.WEIGHT_PRECISION, h.QUANTIZATION):
        word = hints.get(hint, "")
        if says_nothing(word):
            continue
        weights = None
        if word.strip().lower() not in _OPEN:
            weights = weights_named(word)
        formats.append((weights, word.strip()[:40]))
    return min(formats, key=lambda named: _vagueness(named[0]), default=(None, ""))


def _vagueness(weights: WeightFormat | None) -> int:
    """Order of formats, the most telling first."""
    if weights is None:
        return 1
    return 2 if weights.narrowest.wide else 0


def _by_name(words: _Words, names: Iterable[str], llms: LlmCatalogue, problems: list[str]) -> LlmRow | None:
    for name in names:
        row = llms.row(name)
        if row is None:
            continue
        against = row.unusable or _against(row, words)
        if not against:
            return row
        if row.unusable:
            is_other = f": {row.unusable}"
        else:
            is_other = f" is another model: {against}"
        problems.append(f"catalogue row {row.name}{is_other}")
    return None


def _against(row: LlmRow, words: _Words) -> str:
    """The first figure of the engine that this row does not have; empty where all fit."""
    spec = row.spec
    for key, row_count in _row_counts(spec).items():
        engine_count = words.counts.get(key, row_count)
        spare = _DRAFT_LAYERS if key == h.LAYERS else 0
        if not row_count <= engine_count <= row_count + spare:
            return f"the engine says {key} {engine_count}, the row {row_count}"
    vocab = words.counts.get(h.VOCAB, spec.vocab)
    if abs(vocab - spec.vocab) > _PADDED_VOCAB * spec.vocab:
        return f"the engine says {h.VOCAB} {vocab}, the row {spec.vocab}"
    if words.params and abs(words.params / spec.params - 1.0) > (_NEAR if words.exact else _ROUGH):
        return f"the engine says {words.params / 1e9:.2f}e9 parameters, the row {spec.params / 1e9:.2f}e9"
    return ""


def _row_counts(spec: LlmSpec) -> dict[str, int]:
    """The row's dimensions by hint; KV heads only where all layers have as many."""
    counts = {h.LAYERS: spec.layers, h.HIDDEN: spec.hidden, h.EXPERTS: spec.experts, h.HEADS: spec.heads}
    if not spec.latent and len({attention.heads for attention in spec.attention}) == 1:
        counts[h.KV_HEADS] = spec.kv_heads
    return counts


def _by_figures(words: _Words, llms: LlmCatalogue) -> LlmRow | None:
    """The row with exactly these parameters, width and vocabulary; None where rows of different shape have them."""
    counts = words.counts
    if not words.exact or not words.params or h.HIDDEN not in counts or h.VOCAB not in counts:
        return None
    rows = [row for row in llms.rows if _has_figures(row, words)]
    if len({_shape(row.spec) for row in rows}) == 1:
        return rows[0]
    return None


def _has_figures(row: LlmRow, words: _Words) -> bool:
    """Whether a row has the engine's parameters and vocabulary, and no other figure speaks against it."""
    # A row's spec is built when it is asked for: its published size rules most of them out before.
    if not _LEAST_SHARE < words.params / (row.params_b * 1e9) < 1.0 + _NEAR:
        return False
    if row.unusable or row.spec.vocab != words.counts[h.VOCAB]:
        return False
    has_params = abs(words.params / row.spec.params - 1.0) <= _EXACT
    return has_params and not _against(row, words)


def _shape(spec: LlmSpec) -> tuple[object, ...]:
    return (spec.attention, spec.states, spec.experts, spec.experts_per_token, spec.hidden, spec.heads, spec.vocab)


def _weights_told(words: _Words, names: Sequence[str]) -> tuple[WeightFormat | None, str]:
    """The format of the weights and who tells it: the engine where its word is narrow, else the model's name."""
    if words.weights is not None and not words.weights.narrowest.wide:
        return words.weights, f"{words.precision} as the engine says"
    for name in names:
        model = llm_name(name)
        if model.weights is not None:
            return model.weights, f"{model.hint} by its name"
    return None, ""


def _of_row(
    row: LlmRow, words: _Words, names: Sequence[str], context: int, by: str, problems: list[str]
) -> LlmSpec | None:
    """The row's dimensions with the engine's bytes or format; None where it leaves the bits open."""
    weights, source = _weights_told(words, names)
    if weights is None or weights.narrowest[::2] == row.native.narrowest[::2]:
        spec = row.spec
    else:
        spec = row.stored_as(weights, source)
    if words.weight_bytes:
        spec = _with_bytes(row, spec, words)
    elif words.precision and words.weights is None and weights is None:
        problems.append(
            f"catalogue row {row.name}: the engine calls its weights {words.precision!a}, "
            "which leaves open how many bits they have"
        )
        return None
    return _said(msgspec.structs.replace(spec, max_context=context), by)


def _with_bytes(row: LlmRow, spec: LlmSpec, words: _Words) -> LlmSpec:
    """The engine's bytes: the row's own split where it gives the same total, else their mean over all weights."""
    total = words.weight_bytes
    modelled = spec.read_bytes + row.parts.tables * BYTES_PER_ELEMENT[row.native.base]
    if abs(total / modelled - 1.0) <= _SAME_BYTES:
        spec = _said(spec, f"{total / 1e9:.2f} GB as the engine says")
        return msgspec.structs.replace(spec, stored_bytes=total)
    bits = 8.0 * total / (words.params if words.exact and words.params else spec.params)
    if not _LEAST_BITS <= bits <= _MOST_BITS:
        return _said(spec, f"without the engine's {total:.4g} bytes: they would be {bits:.2g} bits per weight")
    mean = row.stored_as(of_bits(bits), f"{total / 1e9:.2f} GB as the engine says: {bits:.2f} bits per weight")
    mean = msgspec.structs.replace(mean, stored_bytes=total)
    narrowest = words.weights.narrowest if words.weights else None
    if narrowest is None or narrowest.wide:
        return mean
    return msgspec.structs.replace(
        mean, precision=narrowest.precision, weight_only=narrowest.weight_only, activations=narrowest.activations
    )


def _said(spec: LlmSpec, text: str) -> LlmSpec:
    if text:
        return msgspec.structs.replace(spec, source=f"{spec.source}, {text}")
    return spec


def _by_itself(hints: Mapping[str, str], words: _Words, name: str) -> tuple[LlmSpec | None, list[str]]:
    """A spec of the engine's words alone, or what they lack."""
    lacking = _lacking(hints, words)
    if lacking:
        return None, lacking
    weights = words.weights
    if words.weight_bytes or weights is None:
        weights = of_bits(min(_MOST_BITS, max(_LEAST_BITS, 8.0 * words.weight_bytes / words.params)))
    spec = _uniform_spec(words.counts, name)
    head = min(float(spec.vocab * spec.hidden), words.params / 2.0)
    parts = LlmParts({MLP: words.params - head}, head)
    return msgspec.structs.replace(with_weights(spec, parts, weights), stored_bytes=words.weight_bytes), []


def _lacking(hints: Mapping[str, str], words: _Words) -> list[str]:
    """Hints that an engine would have to give besides for its words alone to describe the model."""
    lacking = [key for key in (h.LAYERS, h.HIDDEN, h.HEADS) if key not in words.counts]
    if not words.params:
        lacking.append(h.PARAMS)
    if not words.weight_bytes and not _tells_bits(hints, words.weights):
        lacking.append(f"{h.WEIGHT_BYTES} or a {h.WEIGHT_PRECISION} that tells the bits")
    architecture = _architecture(hints.get(h.ARCHITECTURE, ""))
    if architecture not in _ALIKE:
        if architecture:
            known = f"the layers of {architecture[:40]!a}"
        else:
            known = h.ARCHITECTURE
        lacking.append(known)
    if words.counts.get(h.EXPERTS):
        lacking.append("the size of an expert")
    return lacking


def _tells_bits(hints: Mapping[str, str], weights: WeightFormat | None) -> bool:
    """Whether the engine's word is the format of its weights: a wide one only where it says that nothing is narrow."""
    if weights is None:
        return False
    return not weights.narrowest.wide or says_nothing(hints.get(h.QUANTIZATION, "?"))


def _uniform_spec(counts: Mapping[str, int], name: str) -> LlmSpec:
    """A model whose layers are all alike, by the engine's dimensions; its parameters are still 0."""
    heads = counts[h.HEADS]
    hidden = counts[h.HIDDEN]
    kv_heads = counts.get(h.KV_HEADS, heads)
    head_dim = counts.get(h.HEAD_DIM, max(1, hidden // heads))
    return LlmSpec(
        name=name,
        source="the engine's own words (the look-up table is counted as multiplied)",
        params=0.0,
        matmul_params=0.0,
        head_params=0.0,
        vocab=counts.get(h.VOCAB, 0),
        hidden=hidden,
        layers=counts[h.LAYERS],
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        attention=(grouped_attention(counts[h.LAYERS], heads, kv_heads, head_dim),),
    )


def _architecture(word: str) -> str:
    """`LlamaForCausalLM` and `llama` are the same."""
    text = word.strip().lower()
    return text.removesuffix("forcausallm").removesuffix("model") or text


_KV_WORDS: Final = {
    "fp8": Precision.FP8,
    "float8": Precision.FP8,
    "q8": Precision.INT8,
    "int8": Precision.INT8,
    "q4": Precision.INT4,
    "int4": Precision.INT4,
    "iq4": Precision.INT4,
    "q5": Precision.INT8,
    "nvfp4": Precision.NVFP4,
    "fp4": Precision.NVFP4,
    "float32": Precision.FP32,
    "fp32": Precision.FP32,
    "f32": Precision.FP32,
}
"""Begin of a word for the KV cache's format -> that format; 16-bit ones are what every spec has."""
