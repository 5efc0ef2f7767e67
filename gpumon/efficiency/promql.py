"""Constants of a model for the efficiency formulas that a Prometheus works out (`outputs/rules.yml`).

The constants are worked out by the very functions of `flops` and `traffic`; FLOPs and bytes of a token are a constant
part, a part per token in context of the full layers, and one of the window layers, which see at most their window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.flops import decode_flops_per_token, head_flops, prefill_flops_per_token
from gpumon.efficiency.traffic import kv_read_bytes
from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision

_FAR_TOKENS: Final = 2.0**20
"""Tokens in context over which the part per token is measured: a power of two, so that nothing is rounded."""

AmountAtContext = Callable[[LlmSpec, float], float]
"""FLOPs or bytes of one token with so many tokens in context."""


class Constant(NamedTuple):
    """One figure of a model: the series that holds it, and what it is."""

    record: str
    value: float
    meaning: str


def model_constants(llm: LlmSpec, gpus: int) -> tuple[Constant, ...]:
    """Constants of a model on engines of `gpus` GPUs each.

    The GPUs of one data-parallel rank are one tensor-parallel group. Without bytes of its weights, their constants
    are left out, and what is made of them is absent.
    """
    decode = _split_by_context(llm, decode_flops_per_token)
    prefill = _split_by_context(llm, lambda spec, tokens: prefill_flops_per_token(spec, 0.0, tokens))
    # The bytes of a BF16 cache give its elements; a formula multiplies them with the engine's own bytes of an element.
    element_bytes = BYTES_PER_ELEMENT[Precision.BF16]
    kv = _split_by_context(llm, lambda spec, tokens: kv_read_bytes(spec, tokens, 1, Precision.BF16))
    missed_experts_ratio = 1.0
    if llm.experts:
        missed_experts_ratio -= llm.experts_per_token / llm.experts
    constants = [
        _constant("decode_flops_per_token", decode.fixed, "2 x parameters multiplied per token"),
        _constant(
            "decode_flops_per_full_position", decode.per_position, "attention, per token in context, full layers"
        ),
        _constant("decode_flops_per_window_position", decode.per_window_position, "the same of the window layers"),
        _constant("prefill_flops_per_token", prefill.fixed, "2 x parameters less the LM head"),
        _constant(
            "prefill_flops_per_full_position", prefill.per_position, "attention, per token in context, full layers"
        ),
        _constant("prefill_flops_per_window_position", prefill.per_window_position, "the same of the window layers"),
        _constant("prompt_flops", head_flops(llm), "the LM head, once per prompt"),
        _constant("window_tokens", float(_window_tokens(llm)), "tokens that a window layer sees"),
        _constant(
            "kv_elements_per_full_position", kv.per_position / element_bytes, "KV read per token in context, one copy"
        ),
        _constant(
            "kv_elements_per_window_position", kv.per_window_position / element_bytes, "the same of the window layers"
        ),
        # The rules multiply it with the GPUs of a rank, at least to 1: GPUs beyond the KV heads read what others read.
        _constant("kv_copies_per_gpu", 1.0 / max(1, llm.kv_heads), "by each GPU of a rank"),
        _constant("kv_element_bytes", BYTES_PER_ELEMENT[llm.kv_precision], "where the engine names no FP8 cache"),
        _constant("state_bytes_per_token", kv.fixed, "state of linear layers, read and written"),
        _constant("engine_gpus", float(gpus), "GPUs of one engine"),
    ]
    if llm.read_bytes > 0.0:
        expert_bytes = llm.experts * llm.expert_read_bytes
        constants += [
            _constant("weight_bytes", llm.read_bytes, "all matmul weights, every expert included"),
            _constant("expert_bytes", expert_bytes, "the experts' part of them"),
            _constant(
                "expert_missed_ratio", missed_experts_ratio, "1 - k/E: share of the experts that one token misses"
            ),
        ]
    return tuple(constants)


def peak_constants(flops_per_s: float, bandwidth_bytes_per_s: float) -> tuple[Constant, ...]:
    """The peaks of one of a model's GPUs; 0 is not known and left out."""
    peaks = (
        _constant("gpu_peak_flops", flops_per_s, "dense FLOP/s of one GPU in the format of this model's matmuls"),
        _constant("gpu_peak_bandwidth", bandwidth_bytes_per_s, "bytes/s of one GPU's memory"),
    )
    return _without_unknown(peaks)


def untold_constants(pool_tokens: float, context_tokens: float, ranks: int = 0) -> tuple[Constant, ...]:
    """Constants that no counter tells, 0 where one is not known.

    Tokens of an engine's KV pool, the context where nothing else gives it, and data-parallel ranks of an engine whose
    page shows fewer.
    """
    constants = (
        _constant("kv_pool_tokens", pool_tokens, "tokens of each rank's KV pool, from cache_config_info"),
        _constant("context_tokens", context_tokens, "mean context where no series tells it (--context)"),
        _constant("engine_ranks", float(ranks), "data-parallel ranks of one engine, instead of those on its page"),
    )
    return _without_unknown(constants)


def _without_unknown(constants: Iterable[Constant]) -> tuple[Constant, ...]:
    """The constants that are above 0: a 0 is not known."""
    known = [constant for constant in constants if constant.value > 0.0]
    return tuple(known)


def _constant(figure: str, value: float, meaning: str) -> Constant:
    """A figure of a model, with the name of its series."""
    return Constant(f"gpumon:model_{figure}:const", value, meaning)


class _ContextParts(NamedTuple):
    """FLOPs or bytes of one token."""

    fixed: float
    """Part that is the same for each context."""
    per_position: float
    """Part for each token in context, of layers that see all of it."""
    per_window_position: float
    """Part for each token in the window, of layers that see no more."""


def _split_by_context(llm: LlmSpec, amount: AmountAtContext) -> _ContextParts:
    """An amount of one token, split by what it grows with.

    PromQL has one limit per model: that of the layers which cost most in it. Others are taken as if the context were
    beyond their limit.
    """
    window_tokens = _window_tokens(llm)
    whole = []
    limited = []
    others = []
    for attention in llm.attention:
        if not attention.limit:
            whole.append(attention)
        elif attention.limit * attention.stride == window_tokens:
            limited.append(attention)
        else:
            others.append(attention)
    without_context = amount(llm, 0.0)
    fixed = amount(msgspec.structs.replace(llm, attention=tuple(others)), _FAR_TOKENS)
    full = amount(msgspec.structs.replace(llm, attention=tuple(whole)), _FAR_TOKENS) - without_context
    per_position = full / _FAR_TOKENS
    if not window_tokens:
        return _ContextParts(fixed, per_position, 0.0)
    window = amount(msgspec.structs.replace(llm, attention=tuple(limited)), float(window_tokens)) - without_context
    return _ContextParts(fixed, per_position, window / window_tokens)


def _window_tokens(llm: LlmSpec) -> int:
    """The limit in tokens of the layers that cost most in it; 0: nothing is limited."""
    costs: dict[int, float] = {}
    for attention in llm.attention:
        if attention.limit:
            tokens = attention.limit * attention.stride
            flops = attention.layers * attention.decode_flops * attention.limit
            costs[tokens] = costs.get(tokens, 0.0) + flops
    return max(costs, key=lambda tokens: costs[tokens], default=0)


class Weight(NamedTuple):
    """Part that one observation above a bound of a histogram has in the sums of lengths and of their squares."""

    le: str
    """Bound as `le` without `.0`. "0" weighs all observations, any other bound those above it."""
    first: float
    """Part of the sum of lengths, in tokens."""
    second: float
    """Part of the sum of the squares of lengths."""


def bucket_weights(bounds: tuple[float, ...]) -> tuple[Weight, ...]:
    """Weights that make the first two moments of a cumulative histogram from how many observations lie above a bound.

    The sum of all lengths is the first mid-point x all observations, and for each bound how much the mid-point above it
    is higher than the one below x the observations above it. What is above the last bound of a page counts with the
    mid-point of the bucket that would follow.
    """
    middles = [(low + high) / 2.0 for low, high in zip((0.0, *bounds), (*bounds, 2.0 * bounds[-1]), strict=True)]
    weights = [Weight("0", middles[0], middles[0] ** 2)]
    for bound, (below, above) in zip(bounds, pairwise(middles), strict=True):
        weights.append(Weight(f"{bound:.10g}", above - below, above**2 - below**2))
    return tuple(weights)
