"""Facts that an engine tells of its model (`specs.hints`) -> LlmSpec, by itself or together with the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.specs import hints as hint_keys
from gpumon.specs.dimensions import LARGEST_HEAD_DIM, LARGEST_WIDTH, MOST_EXPERTS, MOST_HEADS, MOST_LAYERS
from gpumon.specs.fields import LARGEST_NUMBER
from gpumon.specs.layers import STATE_BYTES
from gpumon.specs.llm import CONVOLUTION, LIGHTNING, MODEL_FORMAT_BYTES, LlmSpec, State, grouped_attention
from gpumon.specs.llm_names import llm_name
from gpumon.specs.llms import LlmCatalogue, LlmRow
from gpumon.specs.modules import HEAD, MLP, ModuleList, counted_parts
from gpumon.specs.not_modelled import ADAPTERS, AUDIO, SPECULATIVE_DRAFTS, VISION
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision
from gpumon.specs.weight_format import WeightFormat, with_weights
from gpumon.specs.weight_words import of_bits, says_nothing, weights_named

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMBT])?", re.IGNORECASE | re.ASCII)
"""A number with a unit: `8B`."""
_UNITS: Final = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
"""Unit -> its factor."""
_LARGEST_COUNTS: Final = {
    hint_keys.LAYERS: MOST_LAYERS,
    hint_keys.HIDDEN: LARGEST_WIDTH,
    hint_keys.HEADS: MOST_HEADS,
    hint_keys.KV_HEADS: MOST_HEADS,
    hint_keys.HEAD_DIM: LARGEST_HEAD_DIM,
    hint_keys.VOCAB: LARGEST_NUMBER,
    hint_keys.EXPERTS: MOST_EXPERTS,
    hint_keys.EXPERTS_PER_TOKEN: MOST_EXPERTS,
}
"""Hint -> the largest value that makes sense."""
_MOST_DIGITS = 19
"""Digits of a dimension that are read at all."""
_MOST_NUMBER_CHARACTERS = 40
"""Characters of a number in words that are read at all."""
_LARGEST_TOTAL = 1e15
"""Most parameters, and most bytes of weights, that make sense."""
_LEAST_BITS = 1.0
_MOST_BITS = 34.0
"""Bits per weight between which bytes of weights make sense."""
_SAME_COUNT = 0.007
"""Counts of parameters this close are the same: biases, norms, and the catalogue's two decimals."""
_COUNT_TOLERANCE = 0.05
"""A count this close does not speak against a row: draft layers may be in it (GLM-4.5-Air: 3.4%)."""
_SIZE_TOLERANCE = 0.15
"""A size in words this close does not speak against a row: it counts the vision encoder ("4.3B" of Gemma-3-4B, whose
text model has 3.88)."""
_LEAST_SHARE = 0.4
"""Least share of a language model in a published total, encoders and draft layers included."""
_SAME_BYTES = 0.03
"""Bytes of weights this close are the same."""
_PADDED_VOCAB = 0.01
"""Vocabularies this close are the same: engines pad them."""
_MOST_EXTRA_LAYERS = 1
"""Layers that an engine may count beyond those of a row: GGUF counts the draft layer of GLM-4.5, too."""
_OPEN_WORDS: Final = frozenset(("gptq", "bnb"))
"""Methods that leave the bits open; in a model's name they mean 4."""
_EQUAL_LAYERS: Final = frozenset(
    (
        "llama", "mistral", "mistral3", "qwen2", "qwen3", "phi2", "phi3", "falcon", "granite", "internlm2", "olmo",
        "command-r", "stablelm", "starcoder2", "gptneox", "gpt2", "bloom", "mpt", "smollm3", "glm4", "exaone",
        "baichuan", "nemotron", "refact", "orion", "arcee", "seed_oss", "gemma",
    )
)  # fmt: skip
"""Architectures whose layers are all alike and attend to everything: full dimensions are then all there is to know."""

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
    "bfloat16": Precision.BF16,
    "bf16": Precision.BF16,
    "float16": Precision.FP16,
    "fp16": Precision.FP16,
    "f16": Precision.FP16,
    "half": Precision.FP16,
}
"""Begin of a word for the KV cache's format -> that format."""
_NO_KV_WORDS: Final = ("", "auto", "none")
"""Words that leave the KV cache to the model's own format."""
CAST_WORDS: Final = {
    "float32": Precision.FP32,
    "float": Precision.FP32,
    "fp32": Precision.FP32,
    "bfloat16": Precision.BF16,
    "bf16": Precision.BF16,
    "float16": Precision.FP16,
    "half": Precision.FP16,
    "fp16": Precision.FP16,
}
"""Word for the format that an engine casts weights to -> that format."""
_CHOSEN_STATES: Final = frozenset(("mamba", "mamba2", "delta net"))
"""States whose format vLLM lets its user choose."""


class _EngineWords(NamedTuple):
    """An engine's own words about its model, as numbers and formats."""

    counts: dict[str, int]
    """Dimensions by hint."""
    params: float
    """0 where it does not say."""
    is_exact: bool
    """Whether `params` is a count and no size in words."""
    weight_bytes: float
    """0 where it does not say."""
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
    words = _read_hints(hints)
    if not (words.counts or words.params or words.weight_bytes or words.precision):
        return None, []
    problems: list[str] = []
    row = _row_by_name(words, names, llms, problems)
    if row is not None:
        return _spec_of_row(row, words, names, llms.context(names), problems), problems
    row = _row_by_figures(words, llms)
    if row is not None:
        by_figures = _spec_of_row(row, words, names, 0, problems)
        if by_figures is not None:
            by_figures = _with_source_note(by_figures, "found by the engine's figures")
        return by_figures, problems
    spec, lacking = _spec_of_words(hints, words, name)
    if lacking:
        problem = f"the engine's own words lack {', '.join(lacking)}"
        if not problems:
            problem = f"no catalogue row of this name or these figures; {problem}"
        problems.append(problem)
    return spec, problems


def with_cast(llm: LlmSpec, hints: Mapping[str, str]) -> LlmSpec:
    """The spec whose weights were cast when the engine loaded them (`--dtype float32`); the KV cache has their format.

    Quantised weights keep theirs: a cast is of what they are multiplied with.
    """
    word = hints.get(hint_keys.DTYPE, "").strip().lower().removeprefix("torch.")
    cast = CAST_WORDS.get(word)
    is_wide = llm.precision in CAST_WORDS.values() and not llm.weight_only
    if cast is None or cast is llm.precision or not is_wide:
        return llm
    times = BYTES_PER_ELEMENT[cast] / BYTES_PER_ELEMENT[llm.precision]
    return msgspec.structs.replace(
        llm,
        source=f"{llm.source}, cast to {word} as the engine says",
        precision=cast,
        kv_precision=cast if llm.kv_precision is llm.precision else llm.kv_precision,
        read_bytes=times * llm.read_bytes,
        expert_read_bytes=times * llm.expert_read_bytes,
        attention_read_bytes=times * llm.attention_read_bytes,
        stored_bytes=times * llm.stored_bytes,
        whole_bytes=times * llm.whole_bytes,
        kv_matrix_bytes=times * llm.kv_matrix_bytes,
    )


def with_kv_dtype(llm: LlmSpec, hints: Mapping[str, str]) -> LlmSpec:
    """The spec with the KV cache's format as the engine words it; unchanged where that says nothing."""
    precision = kv_precision_of(hints.get(hint_keys.KV_DTYPE, ""))
    if precision is None:
        return llm
    return msgspec.structs.replace(llm, kv_precision=precision)


def kv_precision_of(text: str) -> Precision | None:
    """Format of a KV cache by an engine's word for it; None for a word that names none (`is_unknown_kv_word`)."""
    word = _plain_word(text)
    for begin, precision in _KV_WORDS.items():
        if word.startswith(begin):
            return precision
    return None


def is_unknown_kv_word(text: str) -> bool:
    """Whether an engine's word for the format of its KV cache is one whose bytes are not known: `turboquant_k8v4`."""
    return _plain_word(text) not in _NO_KV_WORDS and kv_precision_of(text) is None


def _plain_word(text: str) -> str:
    """The word for a format in lower case, without the name of the library."""
    return text.strip().lower().removeprefix("torch.")


def with_state_dtypes(llm: LlmSpec, hints: Mapping[str, str]) -> LlmSpec:
    """The spec with its states' formats as the engine words them; unchanged where that says nothing.

    As vLLM chooses them (`MambaStateDtypeCalculator`): one format for convolutions and lightning attention, one for the
    states of Mamba and gated delta nets, which without a word of their own have that of the convolutions. The state of
    Kimi delta attention is always of 32 bit.
    """
    states = tuple(_with_format(state, hints) for state in llm.states)
    if states == llm.states:
        return llm
    return msgspec.structs.replace(llm, states=states)


def _with_format(state: State, hints: Mapping[str, str]) -> State:
    """A state with its format as the engine words it."""
    convolution = _bytes_of_state(hints.get(hint_keys.CONVOLUTION_DTYPE, ""))
    size: float | None = None
    if state.kind in (CONVOLUTION, LIGHTNING):
        size = convolution
    elif state.kind in _CHOSEN_STATES:
        size = _bytes_of_state(hints.get(hint_keys.STATE_DTYPE, ""))
        if size is None and state.bytes_per_element == MODEL_FORMAT_BYTES:
            size = convolution
    if size is None:
        return state
    return msgspec.structs.replace(state, bytes_per_element=size)


def _bytes_of_state(word: str) -> float | None:
    """Bytes per element of a state in a format; None for a word that is no format."""
    return STATE_BYTES.get(word.strip().lower().removeprefix("torch."))


def left_out_by(hints: Mapping[str, str]) -> tuple[str, ...]:
    """Work of an engine beside the model's forward pass, that no figure counts."""
    notes = [
        note
        for key, note in ((hint_keys.SPECULATION, SPECULATIVE_DRAFTS), (hint_keys.LORA, ADAPTERS))
        if not says_nothing(hints.get(key, "")) and hints[key].strip() != "0"
    ]
    modalities = hints.get(hint_keys.MODALITIES, "").lower()
    for word, note in (("vision", VISION), ("audio", AUDIO)):
        if word in modalities:
            notes.append(note)
    return tuple(notes)


def quantised_at_load(hints: Mapping[str, str]) -> tuple[WeightFormat | None, str]:
    """The narrow format that the engine says its weights have, and its word; None where it names none, or a wide one.

    Right for a checkpoint that is not quantised itself.
    """
    weights, word = _stated_format(hints)
    if weights is None or weights.narrowest.wide:
        return (None, word)
    return (weights, word)


def _read_hints(hints: Mapping[str, str]) -> _EngineWords:
    """The hints as numbers and formats; what makes no sense is left out."""
    counts: dict[str, int] = {}
    for key, most in _LARGEST_COUNTS.items():
        text = hints.get(key, "").strip()
        if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and 0 < int(text) <= most:
            counts[key] = int(text)
    params = _read_number(hints.get(hint_keys.PARAMS, ""))
    is_exact = True
    if not params:
        params = _read_number(hints.get(hint_keys.PARAMETER_SIZE, ""))
        is_exact = False
    weights, word = _stated_format(hints)
    return _EngineWords(
        counts=counts,
        params=params,
        is_exact=is_exact,
        weight_bytes=_read_number(hints.get(hint_keys.WEIGHT_BYTES, "")),
        weights=weights,
        precision=word,
    )


def _read_number(text: str) -> float:
    """A number in words (`8030261248`, `8.0B`); 0 where it is none, or makes no sense."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or len(text) > _MOST_NUMBER_CHARACTERS:
        return 0.0
    value = float(match["number"]) * _UNITS[(match["unit"] or "").upper()]
    if 1.0 <= value <= _LARGEST_TOTAL:
        return value
    return 0.0


def _stated_format(hints: Mapping[str, str]) -> tuple[WeightFormat | None, str]:
    """The most telling of the two words, and its format; None where the word leaves the bits open.

    A narrow format tells most. A 16-bit type tells least: it is the arithmetic's, whatever the weights are stored in.
    """
    formats = []
    for hint in (hint_keys.WEIGHT_PRECISION, hint_keys.QUANTIZATION):
        word = hints.get(hint, "")
        if says_nothing(word):
            continue
        weights = weights_named(word) if word.strip().lower() not in _OPEN_WORDS else None
        formats.append((weights, word.strip()[:40]))
    return min(formats, key=lambda named: _vagueness(named[0]), default=(None, ""))


def _vagueness(weights: WeightFormat | None) -> int:
    """Sort key of formats, the most telling first: narrow ones, a word that leaves the bits open, wide ones."""
    if weights is None:
        return 1
    if weights.narrowest.wide:
        return 2
    return 0


def _row_by_name(words: _EngineWords, names: Iterable[str], llms: LlmCatalogue, problems: list[str]) -> LlmRow | None:
    """The row of one of these names that fits the engine's words; why others do not goes into `problems`."""
    for name in names:
        row = llms.row(name)
        if row is None:
            continue
        if row.unusable:
            problems.append(f"catalogue row {row.name}: {row.unusable}")
            continue
        contradiction = _contradiction(row, words)
        if not contradiction:
            return row
        problems.append(f"catalogue row {row.name} is another model: {contradiction}")
    return None


def _contradiction(row: LlmRow, words: _EngineWords) -> str:
    """The first figure of the engine that this row does not have; empty where all fit."""
    spec = row.spec
    for key, row_count in _row_counts(spec).items():
        engine_count = words.counts.get(key, row_count)
        allowed_excess = _MOST_EXTRA_LAYERS if key == hint_keys.LAYERS else 0
        if not row_count <= engine_count <= row_count + allowed_excess:
            return f"the engine says {key} {engine_count}, the row {row_count}"
    vocab = words.counts.get(hint_keys.VOCAB, spec.vocab)
    if abs(vocab - spec.vocab) > _PADDED_VOCAB * spec.vocab:
        return f"the engine says {hint_keys.VOCAB} {vocab}, the row {spec.vocab}"
    tolerance = _COUNT_TOLERANCE if words.is_exact else _SIZE_TOLERANCE
    if words.params and abs(words.params / spec.params - 1.0) > tolerance:
        return f"the engine says {words.params / 1e9:.2f}e9 parameters, the row {spec.params / 1e9:.2f}e9"
    return ""


def _row_counts(spec: LlmSpec) -> dict[str, int]:
    """The row's dimensions by hint; KV heads only where all layers have as many."""
    counts = {
        hint_keys.LAYERS: spec.layers,
        hint_keys.HIDDEN: spec.hidden,
        hint_keys.EXPERTS: spec.experts,
        hint_keys.HEADS: spec.heads,
    }
    if not spec.latent and len({attention.kv_heads for attention in spec.attention}) == 1:
        counts[hint_keys.KV_HEADS] = spec.kv_heads
    return counts


def _row_by_figures(words: _EngineWords, llms: LlmCatalogue) -> LlmRow | None:
    """The row with exactly these parameters, width and vocabulary; None where rows of different shape have them."""
    counts = words.counts
    if not words.is_exact or not words.params or hint_keys.HIDDEN not in counts or hint_keys.VOCAB not in counts:
        return None
    rows = [row for row in llms.rows if _has_figures(row, words)]
    if len({_shape(row.spec) for row in rows}) == 1:
        return rows[0]
    return None


def _has_figures(row: LlmRow, words: _EngineWords) -> bool:
    """Whether a row has the engine's parameters and vocabulary, and no other figure speaks against it."""
    # A row's spec is built when it is asked for: its published size rules most of them out before.
    if not _LEAST_SHARE < words.params / (row.params_b * 1e9) < 1.0 + _COUNT_TOLERANCE:
        return False
    if row.unusable or row.spec.vocab != words.counts[hint_keys.VOCAB]:
        return False
    has_params = abs(words.params / row.spec.params - 1.0) <= _SAME_COUNT
    return has_params and not _contradiction(row, words)


def _shape(spec: LlmSpec) -> tuple[object, ...]:
    """All that figures depend on: rows with the same are the same model."""
    return (spec.attention, spec.states, spec.experts, spec.experts_per_token, spec.hidden, spec.heads, spec.vocab)


def _known_weights(words: _EngineWords, names: Sequence[str]) -> tuple[WeightFormat | None, str]:
    """The format of the weights and who tells it: the engine where its word is narrow, else the model's name."""
    if words.weights is not None and not words.weights.narrowest.wide:
        return words.weights, f"{words.precision} as the engine says"
    for name in names:
        model = llm_name(name)
        if model.weights is not None:
            return model.weights, f"{model.hint} by its name"
    return None, ""


def _spec_of_row(
    row: LlmRow, words: _EngineWords, names: Sequence[str], context: int, problems: list[str]
) -> LlmSpec | None:
    """The row's dimensions with the engine's bytes or format; `context`: tokens that the release allows.

    None, and why in `problems`, where the engine's word leaves the bits open.
    """
    weights, source = _known_weights(words, names)
    if weights is None or _is_same_format(weights, row.native):
        spec = row.spec
        if weights is not None and weights.file_type:
            # gpt-oss: the same experts, and the rest at 16 bit or in a file type of llama.cpp's.
            by_file_type = row.stored_as(weights, source)
            spec = min(by_file_type, spec, key=lambda known: abs(known.stored_bytes - words.weight_bytes))
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
    return msgspec.structs.replace(spec, max_context=context)


def _is_same_format(weights: WeightFormat, other: WeightFormat) -> bool:
    """Whether two formats are called by the same one, whatever its scales take."""
    narrowest = weights.narrowest
    return (narrowest.precision, narrowest.weight_only) == (other.narrowest.precision, other.narrowest.weight_only)


def _with_bytes(row: LlmRow, spec: LlmSpec, words: _EngineWords) -> LlmSpec:
    """The engine's bytes: the row's own split where it gives the same total, else their mean over all weights."""
    total = words.weight_bytes
    modelled = spec.stored_bytes
    if abs(total / modelled - 1.0) <= _SAME_BYTES:
        spec = _with_source_note(spec, f"{total / 1e9:.2f} GB as the engine says")
        return msgspec.structs.replace(spec, stored_bytes=total)
    params = words.params if words.is_exact and words.params else spec.params
    bits = 8.0 * total / params
    if not _LEAST_BITS <= bits <= _MOST_BITS:
        return _with_source_note(
            spec, f"without the engine's {total:.4g} bytes: they would be {bits:.2g} bits per weight"
        )
    mean = row.stored_as(of_bits(bits), f"{total / 1e9:.2f} GB as the engine says: {bits:.2f} bits per weight")
    mean = msgspec.structs.replace(mean, stored_bytes=total)
    if words.weights is None or words.weights.narrowest.wide:
        return mean
    narrowest = words.weights.narrowest
    return msgspec.structs.replace(
        mean, precision=narrowest.precision, weight_only=narrowest.weight_only, activations=narrowest.activations
    )


def _with_source_note(spec: LlmSpec, note: str) -> LlmSpec:
    """The spec whose source has one more note."""
    return msgspec.structs.replace(spec, source=f"{spec.source}, {note}")


def _spec_of_words(hints: Mapping[str, str], words: _EngineWords, name: str) -> tuple[LlmSpec | None, list[str]]:
    """A spec of the engine's words alone, or what they lack."""
    lacking = _lacking_hints(hints, words)
    if lacking:
        return None, lacking
    weights = words.weights
    if words.weight_bytes or weights is None:
        weights = of_bits(min(_MOST_BITS, max(_LEAST_BITS, 8.0 * words.weight_bytes / words.params)))
    spec = _uniform_spec(words.counts, name)
    head = min(float(spec.vocab * spec.hidden), words.params / 2.0)
    modules = ModuleList(counted_parts({MLP: words.params - head, HEAD: head}))
    spec = with_weights(spec, modules, weights)
    return msgspec.structs.replace(spec, stored_bytes=words.weight_bytes or spec.stored_bytes), []


def _lacking_hints(hints: Mapping[str, str], words: _EngineWords) -> list[str]:
    """Hints that an engine would have to give besides for its words alone to describe the model."""
    lacking = [key for key in (hint_keys.LAYERS, hint_keys.HIDDEN, hint_keys.HEADS) if key not in words.counts]
    if not words.params:
        lacking.append(hint_keys.PARAMS)
    if not words.weight_bytes and not _tells_bits(hints, words.weights):
        lacking.append(f"{hint_keys.WEIGHT_BYTES} or a {hint_keys.WEIGHT_PRECISION} that tells the bits")
    text = hints.get(hint_keys.ARCHITECTURE, "").strip().lower()
    # `llama` for `LlamaForCausalLM`.
    architecture = text.removesuffix("forcausallm").removesuffix("model") or text
    if architecture not in _EQUAL_LAYERS:
        lacking_layers = f"the layers of {architecture[:40]!a}" if architecture else hint_keys.ARCHITECTURE
        lacking.append(lacking_layers)
    if words.counts.get(hint_keys.EXPERTS):
        lacking.append("the size of an expert")
    return lacking


def _tells_bits(hints: Mapping[str, str], weights: WeightFormat | None) -> bool:
    """Whether the engine's word is the format of its weights: a wide one only where it says that nothing is narrow."""
    if weights is None:
        return False
    return not weights.narrowest.wide or says_nothing(hints.get(hint_keys.QUANTIZATION, "?"))


def _uniform_spec(counts: Mapping[str, int], name: str) -> LlmSpec:
    """A model whose layers are all alike, by the engine's dimensions; its parameters are still 0."""
    heads = counts[hint_keys.HEADS]
    hidden = counts[hint_keys.HIDDEN]
    kv_heads = counts.get(hint_keys.KV_HEADS, heads)
    head_dim = counts.get(hint_keys.HEAD_DIM, max(1, hidden // heads))
    return LlmSpec(
        name=name,
        source="the engine's own words (the look-up table is counted as multiplied)",
        params=0.0,
        matmul_params=0.0,
        head_params=0.0,
        vocab=counts.get(hint_keys.VOCAB, 0),
        hidden=hidden,
        layers=counts[hint_keys.LAYERS],
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        attention=(grouped_attention(counts[hint_keys.LAYERS], heads, kv_heads, head_dim),),
    )
