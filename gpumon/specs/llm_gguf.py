"""A GGUF header -> LlmSpec: exact parameters and bytes by the tensors, dimensions by the metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpumon.specs import hints as hint_keys
from gpumon.specs.dimensions import (
    LARGEST_HEAD_DIM,
    LARGEST_WIDTH,
    LONGEST_CONTEXT,
    MOST_EXPERTS,
    MOST_HEADS,
    MOST_LAYERS,
)
from gpumon.specs.fields import LARGEST_NUMBER, FieldError, Fields, json_text
from gpumon.specs.gguf import TYPES, GgufHeader, Tensor
from gpumon.specs.llm import Attention, LlmSpec, Reach, State, grouped_attention, latent_attention, merge_layers
from gpumon.specs.not_modelled import AUDIO, VISION
from gpumon.specs.precision import Precision
from gpumon.specs.weight_words import of_bits

_KEYS: Final[dict[str, str]] = {
    hint_keys.LAYERS: "block_count",
    hint_keys.HIDDEN: "embedding_length",
    hint_keys.HEADS: "attention.head_count",
    hint_keys.KV_HEADS: "attention.head_count_kv",
    hint_keys.HEAD_DIM: "attention.key_length",
    hint_keys.VOCAB: "vocab_size",
    hint_keys.EXPERTS: "expert_count",
    hint_keys.EXPERTS_PER_TOKEN: "expert_used_count",
    hint_keys.CONTEXT_LEN: "context_length",
}
"""Hint -> key of GGUF metadata after `ARCHITECTURE.`; Ollama's /api/show gives the same keys as `model_info`."""

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
"""Name of a tensor in a layer: the number of the layer, and the rest."""
_OLD_EXPERT = re.compile(r"ffn_(?:gate|up|down)\.\d+\.")
"""Name of an expert in files from before experts were one tensor."""
_LOOK_UP_TABLES = ("position_embd.", "token_types.", "per_layer_token_embd.")
"""Names of tensors that are looked up, not multiplied."""
_ENCODERS: Final = {"v.": VISION, "mm.": VISION, "a.": AUDIO}
"""Begin of the names of tensors that Ollama keeps beside the language model's own -> the note on what is left out."""
_PRECISIONS: Final = {
    "F32": Precision.FP32,
    "F16": Precision.FP16,
    "BF16": Precision.BF16,
    "MXFP4": Precision.MXFP4,
    "NVFP4": Precision.NVFP4,
}
"""Type of a tensor -> its format."""
_FULL_PERIODS: Final = {
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
_DEFAULT_WINDOWS: Final = {"gemma2": 4096, "llama4": 8192}
"""Windows that older files leave out."""
_IGNORED_WINDOW: Final = frozenset(("phi3",))
"""llama.cpp lets all their layers see everything, whatever the file says (llama.cpp pull request 13676)."""


class _TensorSum:
    """Parameters and bytes of some tensors together."""

    def __init__(self) -> None:
        self.params = 0.0
        self.bytes = 0.0


class _Sums:
    """Sums over the tensors by what a step does with them."""

    def __init__(self) -> None:
        self.looked_up = _TensorSum()
        """Look-up tables, of which a token takes a row."""
        self.resident = _TensorSum()
        """Matrices that every token is multiplied with."""
        self.experts = _TensorSum()
        """Matrices of all routed experts."""
        self.vectors = _TensorSum()
        """Norms, biases and the like."""
        self.params_by_type: dict[int, float] = {}
        """ggml type -> parameters of the matrices in it."""


def llm_from_gguf(header: GgufHeader, name: str, source: str) -> LlmSpec:
    """The LLM in a GGUF file; its parameters and bytes are sums over its tensors, so any mix of types is exact.

    Draft layers are left out: a plain forward pass does not run them. Raises ValueError that names the field or
    tensor, where one is missing, absurd, or describes what is not modelled.
    """
    fields = Fields(header.metadata, where="GGUF header")
    model = _ModelFields(fields)
    model.check(header)
    layers = model.integer(_KEYS[hint_keys.LAYERS], high=MOST_LAYERS)
    drafts = model.integer("nextn_predict_layers", default=0, low=0, high=layers)
    tensors, blocks, encoders = _sort_tensors(header, layers - drafts)
    experts = model.integer(_KEYS[hint_keys.EXPERTS], default=0, low=0, high=MOST_EXPERTS)
    sums = _sum_tensors(tensors, has_experts=experts > 0)
    vocab = _vocabulary(fields, tensors)
    hidden = model.integer(_KEYS[hint_keys.HIDDEN], high=LARGEST_WIDTH)
    spec = LlmSpec(
        name=name,
        source=source,
        params=0.0,  # what is 0 or 1 here is filled in below
        matmul_params=0.0,
        head_params=float(vocab * hidden),
        vocab=vocab,
        hidden=hidden,
        layers=len(blocks),
        heads=1,
        kv_heads=1,
        head_dim=1,
    )
    spec = _with_layers(model, spec, blocks)
    experts_per_token = model.integer(_KEYS[hint_keys.EXPERTS_PER_TOKEN], high=experts) if experts else 0
    spec = _with_weights(spec, sums, experts, experts_per_token)
    return msgspec.structs.replace(spec, not_modelled=tuple(dict.fromkeys(encoders)))


def _sort_tensors(header: GgufHeader, layers: int) -> tuple[list[Tensor], dict[int, set[str]], list[str]]:
    """The tensors of the language model's first `layers` layers; layer -> names of its tensors without `blk.N.`; and a
    note for each tensor of an encoder, which is left out. What lies behind these layers drafts tokens."""
    language_model: list[Tensor] = []
    blocks: dict[int, set[str]] = {}
    encoders: list[str] = []
    for tensor in header.tensors:
        encoder = next((note for begin, note in _ENCODERS.items() if tensor.name.startswith(begin)), "")
        block = _BLOCK.match(tensor.name)
        if encoder:
            encoders.append(encoder)
        elif block is None:
            language_model.append(tensor)
        elif int(block[1]) < layers:
            language_model.append(tensor)
            blocks.setdefault(int(block[1]), set()).add(block[2])
    return language_model, blocks, encoders


def _vocabulary(fields: Fields, tensors: Sequence[Tensor]) -> int:
    """Rows of the look-up table. ValueError without one."""
    for tensor in tensors:
        if tensor.name == "token_embd.weight" and len(tensor.shape) == 2:
            return tensor.shape[1]
    raise fields.error("token_embd.weight", "is missing, or no matrix")


class _ModelFields:
    """The fields of a file whose names begin with that of its architecture: `llama.block_count`."""

    def __init__(self, fields: Fields) -> None:
        self.file_fields = fields
        self.architecture = fields.text("general.architecture")

    def raw(self, key: str) -> object:
        """A value as the file has it; None where it is not there."""
        return self.file_fields.raw(f"{self.architecture}.{key}")

    def integer(self, key: str, default: int | None = None, low: int = 1, high: int = LARGEST_NUMBER) -> int:
        """A whole number from `low` to `high`; ValueError where it is absent without a default, or out of range."""
        return self.file_fields.integer(f"{self.architecture}.{key}", default=default, low=low, high=high)

    def heads_by_layer(self, key: str, layers: int, default: int | None = None) -> list[int]:
        """The number of heads in each layer; the file may give one for all. Raises ValueError."""
        value = self.raw(key)
        if not isinstance(value, list):
            return [self.integer(key, default, low=0, high=MOST_HEADS)] * layers
        if len(value) < layers or not all(isinstance(number, int) and 0 <= number <= MOST_HEADS for number in value):
            raise self.error(key, f"{json_text(value)} is not {layers} whole numbers")
        return [int(number) for number in value[:layers]]

    def error(self, key: str, problem: str) -> FieldError:
        """The error to raise about one field."""
        return self.file_fields.error(f"{self.architecture}.{key}", problem)

    def check(self, header: GgufHeader) -> None:
        """ValueError where this is no decoder."""
        if not self.architecture:
            raise self.file_fields.error("general.architecture", "is missing")
        kind = self.file_fields.text("general.type") or "model"
        if kind != "model":
            raise self.file_fields.error("general.type", f"is {json_text(kind)}: no model, but a part of one")
        if self.raw("attention.causal") is False:
            raise self.error("attention.causal", "is false: encoders are not modelled")
        for part in ("enc.", "dec."):
            if any(tensor.name.startswith(part) for tensor in header.tensors):
                raise self.file_fields.error(f"{part}*", "are tensors of an encoder-decoder, which is not modelled")


def _sum_tensors(tensors: Sequence[Tensor], *, has_experts: bool) -> _Sums:
    """Sums over the tensors of the language model. Raises ValueError."""
    sums = _Sums()
    names = {tensor.name for tensor in tensors}
    is_tied = "output.weight" not in names
    for tensor in tensors:
        if tensor.name.endswith("attn_kv_b.weight") and tensor.name.replace("kv_b", "k_b") in names:
            continue  # MLA: the file has this matrix once more, split into the two that are used
        tensor_sum = _sum_for(sums, tensor, is_tied=is_tied)
        if tensor_sum is sums.experts and not has_experts:
            raise ValueError(f"GGUF header: tensor {tensor.name[:80]!a} without an expert_count")
        tensor_sum.params += tensor.elements
        tensor_sum.bytes += tensor.bytes
        if tensor_sum is sums.resident or tensor_sum is sums.experts:
            sums.params_by_type[tensor.kind] = sums.params_by_type.get(tensor.kind, 0.0) + tensor.elements
    return sums


def _sum_for(sums: _Sums, tensor: Tensor, *, is_tied: bool) -> _TensorSum:
    """The sum that a tensor belongs to, by its name and shape; `is_tied`: the LM head is the look-up table."""
    name = tensor.name
    if name.startswith(_LOOK_UP_TABLES) or (name == "token_embd.weight" and not is_tied):
        return sums.looked_up
    if len(tensor.shape) < 2 or not name.endswith(".weight"):
        return sums.vectors
    if "_exps." in name or _OLD_EXPERT.search(name) is not None:
        return sums.experts
    return sums.resident


def _with_weights(spec: LlmSpec, sums: _Sums, experts: int, experts_per_token: int) -> LlmSpec:
    """The spec with parameters and bytes; `experts` are those of one layer."""
    expert_params = 0.0
    expert_bytes = 0.0
    if experts:
        expert_params = sums.experts.params / experts
        expert_bytes = sums.experts.bytes / experts
    matrix_params = sums.resident.params + sums.experts.params
    matrix_bytes = sums.resident.bytes + sums.experts.bytes
    if matrix_params <= 0.0:
        raise ValueError("GGUF header: has no matrices")
    bits = 8.0 * matrix_bytes / matrix_params
    main_type = TYPES[max(sums.params_by_type, key=lambda number: sums.params_by_type[number])].name
    precision = _PRECISIONS.get(main_type) or of_bits(bits).narrowest.precision
    return msgspec.structs.replace(
        spec,
        source=f"{spec.source} (mostly {main_type}, {bits:.2f} bits per weight)",
        params=sums.looked_up.params + matrix_params + sums.vectors.params,
        matmul_params=sums.resident.params + experts_per_token * expert_params,
        experts=experts,
        experts_per_token=experts_per_token,
        expert_params=expert_params,
        precision=precision,
        weight_only=main_type not in _PRECISIONS,
        kv_precision=Precision.FP16,
        read_bytes=matrix_bytes + sums.vectors.bytes,
        expert_read_bytes=expert_bytes,
        stored_bytes=sums.looked_up.bytes + matrix_bytes + sums.vectors.bytes,
    )


def _with_layers(model: _ModelFields, spec: LlmSpec, blocks: Mapping[int, set[str]]) -> LlmSpec:
    """The spec with what its layers look back at and keep. Raises ValueError where they are not modelled."""
    attending = [layer for layer in sorted(blocks) if _has_attention(blocks[layer])]
    recurrent = [layer for layer in sorted(blocks) if _has_tensor(blocks[layer], "ssm_")]
    for part in ("time_mix_", "cross_attn_"):
        if _any_has_tensor(blocks, part):
            raise model.file_fields.error(f"blk.*.{part}*", "are layers that are not modelled")
    if not attending and not recurrent:
        raise model.file_fields.error("blk.*", "has no layer with attention")
    spec = msgspec.structs.replace(spec, states=_states(model, recurrent))
    if _any_has_tensor(blocks, "attn_k_b."):
        return _with_latent_attention(model, spec, len(attending))
    return _with_grouped_attention(model, spec, attending)


def _has_attention(parts: set[str]) -> bool:
    """Whether a layer with these tensors looks back; a fused projection beside an SSM's is a linear layer's."""
    fused = _has_tensor(parts, "attn_qkv.") and not _has_tensor(parts, "ssm_")
    return fused or _has_tensor(parts, "attn_k.") or _has_tensor(parts, "attn_kv_a_mqa.")


def _has_tensor(parts: set[str], begin: str) -> bool:
    """Whether a layer has a tensor whose name begins so."""
    return any(part.startswith(begin) for part in parts)


def _any_has_tensor(blocks: Mapping[int, set[str]], begin: str) -> bool:
    """Whether any layer has a tensor whose name begins so."""
    return any(_has_tensor(parts, begin) for parts in blocks.values())


def _states(model: _ModelFields, layers: Sequence[int]) -> tuple[State, ...]:
    """The recurrent state of these layers, which llama.cpp keeps at 32 bit; () without such a layer.

    Its elements are the inner width x the state size, or with Kimi delta attention heads x head size^2.
    """
    if not layers:
        return ()
    has_kda = model.raw("kda.head_dim") is not None
    kind = "mamba2"
    flops_per_element = 5.0  # as in `layers.Mamba2` and `layers.gated_delta_net`
    if has_kda or model.architecture.startswith("qwen3"):
        kind = "delta net"
        flops_per_element = 7.0
    if has_kda:
        heads = max(model.heads_by_layer(_KEYS[hint_keys.HEADS], max(layers) + 1))
        elements = float(heads * model.integer("kda.head_dim", high=LARGEST_HEAD_DIM) ** 2)
    else:
        inner = model.integer("ssm.inner_size")
        elements = float(inner * model.integer("ssm.state_size", high=LARGEST_HEAD_DIM))
    state = State(
        kind=kind,
        layers=len(layers),
        elements=elements,
        flops=flops_per_element * elements,
        bytes_per_element=4.0,
    )
    return (state,)


def _with_latent_attention(model: _ModelFields, spec: LlmSpec, attending: int) -> LlmSpec:
    """The spec with MLA: the file has the split projections of the absorbed form; older ones run as plain attention."""
    rank = model.integer("attention.kv_lora_rank", high=LARGEST_WIDTH)
    rope = model.integer("rope.dimension_count", high=LARGEST_HEAD_DIM)
    key = model.integer("attention.key_length_mla", high=LARGEST_HEAD_DIM)
    value = model.integer("attention.value_length_mla", high=LARGEST_HEAD_DIM)
    heads = model.integer(_KEYS[hint_keys.HEADS], high=MOST_HEADS)
    top_k = model.integer("attention.indexer.top_k", default=0, low=0)
    reach = Reach.TOP if top_k else Reach.FULL
    latent = latent_attention(
        attending,
        heads=heads,
        rank=rank,
        rope_dim=rope,
        key_dim=key,
        value_dim=value,
        reach=reach,
        limit=top_k,
    )
    attentions = [latent]
    if top_k:
        index_heads = model.integer("attention.indexer.head_count")
        index_dim = model.integer("attention.indexer.key_length")
        flops = 2.0 * index_heads * index_dim
        indexer = Attention(
            reach=Reach.INDEX,
            layers=attending,
            decode_flops=flops,
            prefill_flops=flops,
            elements=float(index_dim),
        )
        attentions.append(indexer)
    return msgspec.structs.replace(spec, heads=heads, head_dim=max(1, key - rope), attention=tuple(attentions))


def _with_grouped_attention(model: _ModelFields, spec: LlmSpec, attending: Sequence[int]) -> LlmSpec:
    """The spec with the attention of these layers, full or with a window."""
    if model.integer("attention.shared_kv_layers", default=0, low=0):
        raise model.error("attention.shared_kv_layers", "describes layers that are not modelled")
    if not attending:
        return spec
    count = max(attending) + 1
    heads = model.heads_by_layer(_KEYS[hint_keys.HEADS], count)
    kv_heads = model.heads_by_layer(_KEYS[hint_keys.KV_HEADS], count, default=max(heads))
    if heads[attending[0]] <= 0:
        raise model.error(_KEYS[hint_keys.HEADS], "is 0 for a layer with attention")
    default_dim = max(1, spec.hidden // heads[attending[0]])
    key_dims = {Reach.FULL: model.integer(_KEYS[hint_keys.HEAD_DIM], default=default_dim, high=LARGEST_HEAD_DIM)}
    value_dims = {
        Reach.FULL: model.integer("attention.value_length", default=key_dims[Reach.FULL], high=LARGEST_HEAD_DIM),
    }
    for dims, key in ((key_dims, "attention.key_length_swa"), (value_dims, "attention.value_length_swa")):
        dims[Reach.WINDOW] = model.integer(key, default=dims[Reach.FULL], high=LARGEST_HEAD_DIM)
    window, windowed = _windows(model, attending)
    attentions = []
    for layer in attending:
        reach = Reach.WINDOW if layer in windowed else Reach.FULL
        attention = grouped_attention(
            1,
            heads=heads[layer],
            kv_heads=max(1, kv_heads[layer]),
            head_dim=key_dims[reach],
            reach=reach,
            limit=window if layer in windowed else 0,
            value_dim=value_dims[reach],
        )
        attentions.append(attention)
    merged = merge_layers(attentions)
    most = max(merged, key=lambda attention: attention.layers)
    return msgspec.structs.replace(
        spec,
        heads=max(heads[layer] for layer in attending),
        kv_heads=most.kv_heads,
        head_dim=key_dims[most.reach],
        attention=merged,
    )


def _windows(model: _ModelFields, attending: Sequence[int]) -> tuple[int, frozenset[int]]:
    """The window in tokens, and the layers that have one."""
    window = model.integer(
        "attention.sliding_window", default=_DEFAULT_WINDOWS.get(model.architecture, 0), low=0, high=LONGEST_CONTEXT
    )
    if not window or model.architecture in _IGNORED_WINDOW:
        return 0, frozenset()
    pattern = model.raw("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        return window, frozenset(layer for layer in attending if layer < len(pattern) and pattern[layer])
    # Every how manyth layer sees everything: by the file, else by the architecture.
    period = pattern if isinstance(pattern, int) and pattern > 0 else _FULL_PERIODS.get(model.architecture)
    if period is None:
        raise model.error("attention.sliding_window", f"is {window}, and which layers have it is not known")
    return window, frozenset(layer for layer in attending if layer % period < period - 1)
