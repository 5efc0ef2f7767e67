"""A GGUF header -> LlmSpec: exact parameters and bytes by the tensors, dimensions by the metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.specs import hints as h
from gpumon.specs.fields import FieldError, Fields, json_text
from gpumon.specs.gguf import TYPES, GgufHeader, Tensor
from gpumon.specs.left_out import AUDIO, VISION
from gpumon.specs.llm import Attention, LlmSpec, Reach, State, grouped_attention, latent_attention, merge_layers
from gpumon.specs.precision import Precision
from gpumon.specs.weight_words import of_bits

_KEYS: Final[dict[str, str]] = {
    h.LAYERS: "block_count",
    h.HIDDEN: "embedding_length",
    h.HEADS: "attention.head_count",
    h.KV_HEADS: "attention.head_count_kv",
    h.HEAD_DIM: "attention.key_length",
    h.VOCAB: "vocab_size",
    h.EXPERTS: "expert_count",
    h.EXPERTS_PER_TOKEN: "expert_used_count",
    h.CONTEXT_LEN: "context_length",
}
"""Hint -> key of GGUF metadata after `ARCHITECTURE.`; Ollama's /api/show gives the same keys as `model_info`."""

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_OLD_EXPERT = re.compile(r"ffn_(?:gate|up|down)\.\d+\.")
_LOOK_UP = ("position_embd.", "token_types.", "per_layer_token_embd.")
_ENCODERS: Final = {"v.": VISION, "mm.": VISION, "a.": AUDIO}
"""Begin of the tensors that Ollama keeps beside the language model's own."""
_PRECISIONS: Final = {
    "F32": Precision.FP32,
    "F16": Precision.FP16,
    "BF16": Precision.BF16,
    "MXFP4": Precision.MXFP4,
    "NVFP4": Precision.NVFP4,
}
_PERIODS: Final = {
    "afmoe": 4,
    "cohere2": 4,
    "exaone4": 4,
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gpt-oss": 2,
    "gptoss": 2,
    "llama4": 4,
    "olmo2": 4,
}
"""Architecture -> every how manyth layer sees everything (llama.cpp's `set_swa_pattern`), the others a window."""
_WINDOWS: Final = {"gemma2": 4096, "llama4": 8192}
"""Windows that older files leave out."""
_IGNORED_WINDOW: Final = frozenset(("phi3",))
"""llama.cpp lets all their layers see everything, whatever the file says (llama.cpp pull request 13676)."""


class _Sums(NamedTuple):
    """Parameters and bytes by what a step does with them."""

    looked_up: list[float]
    resident: list[float]
    experts: list[float]
    vectors: list[float]
    kinds: dict[int, float]
    """ggml type -> parameters of the matrices in it."""


def llm_from_gguf(header: GgufHeader, name: str, source: str) -> LlmSpec:
    """The LLM in a GGUF file; its parameters and bytes are sums over its tensors, so any mix of types is exact.

    Draft layers are left out: a plain forward pass does not run them. Raises ValueError that names the field or
    tensor, where one is missing, absurd, or describes what is not modelled.
    """
    fields = Fields(header.metadata, where="GGUF header")
    own = _Own(fields)
    own.check(header)
    layers = own.integer(_KEYS[h.LAYERS], high=2000)
    drafts = own.integer("nextn_predict_layers", default=0, low=0, high=layers)
    tensors = _sorted_tensors(header, layers - drafts)
    experts = own.integer(_KEYS[h.EXPERTS], default=0, low=0, high=65_536)
    sums = _sums(tensors.language_model, experts)
    vocab = _vocabulary(fields, tensors.language_model)
    hidden = own.integer(_KEYS[h.HIDDEN], high=1_000_000)
    spec = LlmSpec(name, source, 0.0, 0.0, float(vocab * hidden), vocab, hidden, len(tensors.blocks), 1, 1, 1)
    spec = _layers(own, spec, tensors.blocks)
    used = 0
    if experts:
        used = own.integer(_KEYS[h.EXPERTS_PER_TOKEN], high=experts)
    spec = _weighed(spec, sums, experts, used)
    return msgspec.structs.replace(spec, not_modelled=tuple(dict.fromkeys(tensors.encoders)))


class _Tensors(NamedTuple):
    """Tensors of a file by what they belong to."""

    language_model: list[Tensor]
    blocks: dict[int, set[str]]
    """Number of a layer -> names of its tensors, without `blk.N.`."""
    encoders: list[str]
    """Parts of the file that are left out: a note for each tensor of an encoder."""


def _sorted_tensors(header: GgufHeader, layers: int) -> _Tensors:
    """The tensors of the language model's first `layers` layers; what lies behind them drafts tokens."""
    tensors = _Tensors([], {}, [])
    for tensor in header.tensors:
        encoder = _encoder(tensor)
        place = _BLOCK.match(tensor.name)
        if encoder:
            tensors.encoders.append(encoder)
        elif place is None:
            tensors.language_model.append(tensor)
        elif int(place[1]) < layers:
            tensors.language_model.append(tensor)
            tensors.blocks.setdefault(int(place[1]), set()).add(place[2])
    return tensors


def _encoder(tensor: Tensor) -> str:
    """The encoder that a tensor belongs to; empty where it is the language model's."""
    for begin, note in _ENCODERS.items():
        if tensor.name.startswith(begin):
            return note
    return ""


def _vocabulary(fields: Fields, tensors: Sequence[Tensor]) -> int:
    """Rows of the look-up table. ValueError without one."""
    for tensor in tensors:
        if tensor.name == "token_embd.weight" and len(tensor.shape) == 2:
            return tensor.shape[1]
    raise fields.error("token_embd.weight", "is missing, or no matrix")


class _Own:
    """Fields below the file's own architecture."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.architecture = fields.text("general.architecture")

    def raw(self, key: str) -> object:
        return self.fields.raw(f"{self.architecture}.{key}")

    def integer(self, key: str, default: int | None = None, low: int = 1, high: int = 10_000_000) -> int:
        return self.fields.integer(f"{self.architecture}.{key}", default=default, low=low, high=high)

    def by_layer(self, key: str, layers: int, default: int | None = None) -> list[int]:
        """One number for each layer; the file may give one for all."""
        value = self.raw(key)
        if not isinstance(value, list):
            return [self.integer(key, default, low=0, high=100_000)] * layers
        if len(value) < layers or not all(isinstance(number, int) and 0 <= number <= 100_000 for number in value):
            raise self.error(key, f"{json_text(value)} is not {layers} whole numbers")
        return [int(number) for number in value[:layers]]

    def error(self, key: str, problem: str) -> FieldError:
        return self.fields.error(f"{self.architecture}.{key}", problem)

    def check(self, header: GgufHeader) -> None:
        """ValueError where this is no decoder."""
        if not self.architecture:
            raise self.fields.error("general.architecture", "is missing")
        kind = self.fields.text("general.type") or "model"
        if kind != "model":
            raise self.fields.error("general.type", f"is {json_text(kind)}: no model, but a part of one")
        if self.raw("attention.causal") is False:
            raise self.error("attention.causal", "is false: encoders are not modelled")
        for part in ("enc.", "dec."):
            if any(tensor.name.startswith(part) for tensor in header.tensors):
                raise self.fields.error(f"{part}*", "are tensors of an encoder-decoder, which is not modelled")


def _sums(tensors: Sequence[Tensor], experts: int) -> _Sums:
    sums = _Sums([0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], {})
    names = {tensor.name for tensor in tensors}
    is_tied = "output.weight" not in names
    for tensor in tensors:
        if tensor.name.endswith("attn_kv_b.weight") and tensor.name.replace("kv_b", "k_b") in names:
            continue
        part = _part(sums, tensor, is_tied=is_tied)
        if part is sums.experts and not experts:
            raise ValueError(f"GGUF header: tensor {tensor.name[:80]!a} without an expert_count")
        part[0] += tensor.elements
        part[1] += tensor.bytes
        if part is sums.resident or part is sums.experts:
            sums.kinds[tensor.kind] = sums.kinds.get(tensor.kind, 0.0) + tensor.elements
    return sums


def _part(sums: _Sums, tensor: Tensor, *, is_tied: bool) -> list[float]:
    """The sum that a tensor belongs to, by its name and shape."""
    name = tensor.name
    if name.startswith(_LOOK_UP) or (name == "token_embd.weight" and not is_tied):
        return sums.looked_up
    if len(tensor.shape) < 2 or not name.endswith(".weight"):
        return sums.vectors
    if "_exps." in name or _OLD_EXPERT.search(name) is not None:
        return sums.experts
    return sums.resident


def _weighed(spec: LlmSpec, sums: _Sums, experts: int, used: int) -> LlmSpec:
    expert, expert_bytes = (total / experts if experts else 0.0 for total in sums.experts)
    matrices = sums.resident[0] + sums.experts[0]
    if matrices <= 0.0:
        raise ValueError("GGUF header: has no matrices")
    bits = 8.0 * (sums.resident[1] + sums.experts[1]) / matrices
    most = TYPES[max(sums.kinds, key=lambda kind: sums.kinds[kind])].name
    precision = _PRECISIONS.get(most) or of_bits(bits).narrowest.precision
    return msgspec.structs.replace(
        spec,
        source=f"{spec.source} (mostly {most}, {bits:.2f} bits per weight)",
        params=sums.looked_up[0] + matrices + sums.vectors[0],
        matmul_params=sums.resident[0] + used * expert,
        experts=experts,
        experts_per_token=used,
        expert_params=expert,
        precision=precision,
        weight_only=most not in _PRECISIONS,
        kv_precision=Precision.FP16,
        read_bytes=sums.resident[1] + sums.experts[1] + sums.vectors[1],
        expert_read_bytes=expert_bytes,
        stored_bytes=sums.looked_up[1] + sums.resident[1] + sums.experts[1] + sums.vectors[1],
    )


def _layers(own: _Own, spec: LlmSpec, blocks: Mapping[int, set[str]]) -> LlmSpec:
    """Layers by what they look back at and keep."""
    attending = [layer for layer in sorted(blocks) if _attends(blocks[layer])]
    linear = [layer for layer in sorted(blocks) if _has(blocks[layer], "ssm_")]
    for part in ("time_mix_", "cross_attn_"):
        if _any_has(blocks, part):
            raise own.fields.error(f"blk.*.{part}*", "are layers that are not modelled")
    if not attending and not linear:
        raise own.fields.error("blk.*", "has no layer with attention")
    spec = msgspec.structs.replace(spec, states=_states(own, linear))
    if _any_has(blocks, "attn_k_b."):
        return _latent(own, spec, len(attending))
    return _grouped(own, spec, attending)


def _attends(parts: set[str]) -> bool:
    fused = _has(parts, "attn_qkv.") and not _has(parts, "ssm_")
    return fused or _has(parts, "attn_k.") or _has(parts, "attn_kv_a_mqa.")


def _has(parts: set[str], begin: str) -> bool:
    return any(part.startswith(begin) for part in parts)


def _any_has(blocks: Mapping[int, set[str]], begin: str) -> bool:
    return any(_has(parts, begin) for parts in blocks.values())


def _states(own: _Own, linear: Sequence[int]) -> tuple[State, ...]:
    """The recurrent state of linear layers, which llama.cpp keeps at 32 bit: inner x state size, or KDA's heads."""
    if not linear:
        return ()
    kind, flops = ("delta net", 7.0) if own.architecture.startswith("qwen3") else ("mamba2", 5.0)
    if own.raw("kda.head_dim") is not None:
        heads = max(own.by_layer(_KEYS[h.HEADS], max(linear) + 1))
        kind = "delta net"
        flops = 7.0
        elements = float(heads * own.integer("kda.head_dim", high=65_536) ** 2)
    else:
        inner = own.integer("ssm.inner_size", high=10_000_000)
        elements = float(inner * own.integer("ssm.state_size", high=65_536))
    return (State(kind, len(linear), elements, flops * elements, 4.0),)


def _latent(own: _Own, spec: LlmSpec, attending: int) -> LlmSpec:
    """MLA, whose file holds the split projections that the absorbed form needs; older files run as plain attention."""
    rank = own.integer("attention.kv_lora_rank", high=1_000_000)
    rope = own.integer("rope.dimension_count", high=65_536)
    key = own.integer("attention.key_length_mla", high=65_536)
    value = own.integer("attention.value_length_mla", high=65_536)
    heads = own.integer(_KEYS[h.HEADS], high=100_000)
    top = own.integer("attention.indexer.top_k", default=0, low=0)
    looks = [latent_attention(attending, heads, rank, rope, key, value, Reach.TOP if top else Reach.FULL, top)]
    if top:
        index_heads, index_dim = (own.integer(f"attention.indexer.{part}") for part in ("head_count", "key_length"))
        flops = 2.0 * index_heads * index_dim
        looks.append(Attention(Reach.INDEX, attending, flops, flops, float(index_dim)))
    return msgspec.structs.replace(spec, heads=heads, head_dim=max(1, key - rope), attention=tuple(looks))


def _grouped(own: _Own, spec: LlmSpec, attending: Sequence[int]) -> LlmSpec:
    if own.integer("attention.shared_kv_layers", default=0, low=0):
        raise own.error("attention.shared_kv_layers", "describes layers that are not modelled")
    if not attending:
        return spec
    count = max(attending) + 1
    heads = own.by_layer(_KEYS[h.HEADS], count)
    groups = own.by_layer(_KEYS[h.KV_HEADS], count, default=max(heads))
    if heads[attending[0]] <= 0:
        raise own.error(_KEYS[h.HEADS], "is 0 for a layer with attention")
    wide = own.integer(_KEYS[h.HEAD_DIM], default=max(1, spec.hidden // heads[attending[0]]), high=65_536)
    dims = {False: (wide, own.integer("attention.value_length", default=wide, high=65_536))}
    narrow = own.integer("attention.key_length_swa", default=wide, high=65_536)
    dims[True] = (narrow, own.integer("attention.value_length_swa", default=dims[False][1], high=65_536))
    window, windowed = _windows(own, attending)
    looks = []
    for layer in attending:
        inside = layer in windowed
        reach, limit = (Reach.WINDOW, window) if inside else (Reach.FULL, 0)
        key, value = dims[inside]
        looks.append(grouped_attention(1, heads[layer], max(1, groups[layer]), key, reach, limit, value))
    attention = merge_layers(looks)
    most = max(attention, key=lambda look: look.layers)
    return msgspec.structs.replace(
        spec,
        heads=max(heads[layer] for layer in attending),
        kv_heads=most.heads,
        head_dim=dims[most.reach is Reach.WINDOW][0],
        attention=attention,
    )


def _windows(own: _Own, attending: Sequence[int]) -> tuple[int, frozenset[int]]:
    """The window in tokens, and the layers that have one."""
    window = own.integer("attention.sliding_window", default=_WINDOWS.get(own.architecture, 0), low=0, high=100_000_000)
    if not window or own.architecture in _IGNORED_WINDOW:
        return 0, frozenset()
    pattern = own.raw("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        return window, frozenset(layer for layer in attending if layer < len(pattern) and pattern[layer])
    period = _full_period(own, pattern)
    if period is None:
        raise own.error("attention.sliding_window", f"is {window}, and which layers have it is not known")
    return window, frozenset(layer for layer in attending if layer % period < period - 1)


def _full_period(own: _Own, pattern: object) -> int | None:
    """Every how manyth layer sees everything: by the file, else by the architecture; None where neither tells it."""
    if isinstance(pattern, int) and pattern > 0:
        return pattern
    return _PERIODS.get(own.architecture)
