"""Bytes that a step must read from GPU memory: weights once, and each sequence's KV cache.

Steps, not tokens, read the weights: Databricks' MBU = (parameter bytes + KV bytes) / time per step / peak, with the
expected number of distinct experts for a MoE. Writes, activations and the prefill's own reads are not in it.
"""

from __future__ import annotations

import msgspec

from gpumon.efficiency.ratio import require_at_least, require_not_negative, require_positive
from gpumon.efficiency.reach import entries_kept, entries_read
from gpumon.specs.llm import Attention, LlmSpec, Reach
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision


def distinct_experts(experts: int, per_token: float, tokens: float) -> float:
    """Expected experts that a step of `tokens` touches: E*(1-(1-k/E)^B), uniform independent routing.

    Real routing is skewed and touches fewer. min(E, B*k), as some tools count, is 55% too many at 16 tokens of 128/8.
    """
    require_not_negative("tokens", tokens)
    if not 0 < per_token <= experts:
        raise ValueError(f"experts_per_token {per_token} is not from 1 to {experts} experts")
    untouched: float = (1.0 - per_token / experts) ** tokens
    return experts * (1.0 - untouched)


class WeightSharing(msgspec.Struct, frozen=True):
    """How data-parallel ranks share weights: which of them read what in a step."""

    group_steps_per_s: float
    """Steps/s of the group that has the experts once: ranks that share experts step together."""
    peers: float = 1.0
    """Groups like this one, on pages of their own, over which the experts are spread, too; this one included."""
    attention_alone: bool = False
    """A rank has only its attention for itself; the other layers lie on the GPUs of all ranks."""


def weight_read_bytes(llm: LlmSpec, batch: float, peers: float = 1.0) -> float:
    """Bytes of the weights that one step of `batch` tokens reads, over all GPUs of the instance.

    Dense: all matmul weights once (the embedding look-up is negligible, the LM head counts). MoE: the rest plus the
    expected distinct experts; where these are spread over `peers` such instances, its part of those that the tokens of
    all of them touch. ValueError on a negative batch or a model without weights.
    """
    require_not_negative("batch", batch)
    read = require_positive("read_bytes", llm.read_bytes)
    if not llm.experts:
        return read
    require_at_least("peers", peers, least=1.0)
    touched = distinct_experts(llm.experts, llm.experts_per_token, batch * peers) / peers
    return read - (llm.experts - touched) * llm.expert_read_bytes


def kv_bytes_per_token(llm: LlmSpec, kv_precision: Precision | None = None, tp: int = 1) -> float:
    """KV cache bytes of one token over all attention layers, with the copies that `tp` ranks keep (1: one copy).

    2*L*Hkv*d*bytes; MLA L*(rank + rope)*bytes. Layers with a window count in full, as does what an indexer keeps: so
    many bytes are written. States of a sequence are not in it (`kv_read_bytes`), nor what is kept of an encoder.
    """
    width = _bytes_per_element(llm, kv_precision)
    own = [attention for attention in llm.attention if not attention.shared and attention.reach is not Reach.CROSS]
    return sum(_entry_bytes(attention, width, tp) / attention.stride for attention in own)


def kv_stored_bytes(llm: LlmSpec, context_tokens: float, tp: int = 1, kv_precision: Precision | None = None) -> float:
    """Bytes that one sequence of `context_tokens` holds over the GPUs of an instance, its states included.

    Layers with a window keep no more than that, as in engines with a KV cache manager for hybrid models (vLLM's
    default). ValueError on a negative context or a tensor-parallel size below 1.
    """
    require_not_negative("context_tokens", context_tokens)
    require_at_least("tp", tp, least=1)
    width = _bytes_per_element(llm, kv_precision)
    kept = sum(_entry_bytes(layers, width, tp) * entries_kept(layers, context_tokens) for layers in llm.attention)
    return kept + state_bytes(llm)


def kv_read_bytes(llm: LlmSpec, context_tokens: float, tp: int = 1, kv_precision: Precision | None = None) -> float:
    """Bytes that one sequence with `context_tokens` reads per step, summed over the GPUs of the instance.

    Layers read the entries that they look at. KV heads divide over `tp` ranks; what cannot be divided is copied and
    read by each: the one latent of MLA `tp` times, fewer KV heads than ranks `tp`/heads times. States are read and
    written each step. ValueError on a negative context or a tensor-parallel size below 1.
    """
    require_not_negative("context_tokens", context_tokens)
    require_at_least("tp", tp, least=1)
    width = _bytes_per_element(llm, kv_precision)
    read = sum(_entry_bytes(layers, width, tp) * entries_read(layers, context_tokens) for layers in llm.attention)
    return read + 2.0 * state_bytes(llm)


def state_bytes(llm: LlmSpec) -> float:
    """Bytes of the states that one sequence keeps whatever its length."""
    return sum(state.layers * state.elements * state.bytes_per_element for state in llm.states)


def _bytes_per_element(llm: LlmSpec, kv_precision: Precision | None) -> float:
    """Bytes of one element of the KV cache in this precision, else in that of the model."""
    return BYTES_PER_ELEMENT[kv_precision or llm.kv_precision]


def _entry_bytes(attention: Attention, width: float, tp: int) -> float:
    """Bytes of one entry of the cache in all these layers, with the copies of heads that cannot be divided.

    `width` are the bytes of an element, unless the layers have their own.
    """
    copies = max(1.0, tp / attention.kv_heads)
    return attention.layers * attention.elements * (attention.bytes_per_element or width) * copies


def step_bytes_per_s(
    llm: LlmSpec,
    steps_per_s: float,
    decode_tokens_per_s: float,
    context_tokens: float,
    tokens_per_step: float = 1.0,
    tp: int = 1,
    kv_precision: Precision | None = None,
    spread: WeightSharing | None = None,
) -> float:
    """Bytes per second that the decode steps of one instance read: steps/s * W_read(B) + decode/s * KV(T) / tau.

    Data-parallel ranks read all weights each, but share the experts of a MoE: pass the sum of their steps, and how they
    share as `spread` (vLLM shards experts over all ranks, which then step together).

    `tokens_per_step` is tau, tokens per step and sequence (1 without speculation): a sequence's KV is read once per
    step, whatever it yields. B, the tokens whose experts a step touches, is decode tokens per step. ValueError on
    negative rates; 0 where there are no steps.
    """
    require_not_negative("steps_per_s", steps_per_s)
    require_not_negative("decode_tokens_per_s", decode_tokens_per_s)
    require_at_least("tokens_per_step", tokens_per_step, least=1.0)
    if steps_per_s == 0.0:
        return 0.0
    weights = weight_bytes_per_s(llm, steps_per_s, decode_tokens_per_s, spread)
    return weights + decode_tokens_per_s / tokens_per_step * kv_read_bytes(llm, context_tokens, tp, kv_precision)


def weight_bytes_per_s(
    llm: LlmSpec, steps_per_s: float, decode_tokens_per_s: float, spread: WeightSharing | None = None
) -> float:
    """The weights' part of `step_bytes_per_s`: steps/s * W_read(B), of a MoE with its experts shared by the ranks."""
    group = WeightSharing(require_positive("steps_per_s", steps_per_s)) if spread is None else spread
    group_steps_per_s = require_positive("group_steps_per_s", group.group_steps_per_s)
    but_experts = llm.read_bytes - llm.experts * llm.expert_read_bytes
    # Where attention alone is data-parallel, its bytes, if they are known; else all but the experts.
    own = (llm.attention_read_bytes or but_experts) if group.attention_alone else but_experts
    # The group reads the experts once per step of its own; further steps of its ranks read what each has for itself.
    of_group = group_steps_per_s * weight_read_bytes(llm, decode_tokens_per_s / group_steps_per_s, group.peers)
    return of_group + (steps_per_s - group_steps_per_s) * own


def single_stream_bytes_per_s(llm: LlmSpec, tokens_per_s: float) -> float:
    """The textbook form: parameters x bytes per parameter x tokens/s.

    Exact for one stream of a dense model without speculation (C. Huyen, AI Engineering, chapter 9); batching makes it
    too large by about the batch, as all sequences of a step share one read of the weights.
    """
    require_not_negative("tokens_per_s", tokens_per_s)
    stored = llm.matmul_params + (llm.experts - llm.experts_per_token) * llm.expert_params
    bytes_per_parameter = llm.read_bytes / require_positive("matmul_params", stored)  # every expert included
    return llm.params * bytes_per_parameter * tokens_per_s
