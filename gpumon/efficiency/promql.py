"""Constants of a model for the efficiency formulas that a Prometheus works out (`outputs/rules.yml`).

The constants are worked out by the very functions of `flops` and `traffic`; FLOPs and bytes of a token are a constant
part, a part per token in context of the full layers, and one of the window layers, which see at most their window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.flops import decode_flops_per_token, head_flops, prefill_flops_per_token
from gpumon.efficiency.traffic import kv_read_bytes
from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import BYTES_PER_ELEMENT, Precision

FAR: Final = 2.0**20
"""Tokens in context over which the part per token is measured: a power of two, so that nothing is rounded."""


class Constant(NamedTuple):
    """One figure of a model: the series that holds it, and what it is."""

    record: str
    value: float
    meaning: str


def model_constants(llm: LlmSpec, gpus: int) -> tuple[Constant, ...]:
    """Constants of a model on engines of `gpus` GPUs each, those of a rank one tensor-parallel group.

    Without bytes of its weights, their constants are left out, and what is made of them is absent.
    """
    decode = _parts(llm, decode_flops_per_token)
    prefill = _parts(llm, lambda one, tokens: prefill_flops_per_token(one, 0.0, tokens))
    width = BYTES_PER_ELEMENT[Precision.BF16]
    kv = _parts(llm, lambda one, tokens: kv_read_bytes(one, tokens, 1, Precision.BF16))
    missed = 1.0 - llm.experts_per_token / llm.experts if llm.experts else 1.0
    constants = [
        Constant(_of("decode_flops_per_token"), decode[0], "2 x parameters multiplied per token"),
        Constant(_of("decode_flops_per_full_position"), decode[1], "attention, per token in context, full layers"),
        Constant(_of("decode_flops_per_window_position"), decode[2], "the same of the window layers"),
        Constant(_of("prefill_flops_per_token"), prefill[0], "2 x parameters less the LM head"),
        Constant(_of("prefill_flops_per_full_position"), prefill[1], "attention, per token in context, full layers"),
        Constant(_of("prefill_flops_per_window_position"), prefill[2], "the same of the window layers"),
        Constant(_of("prompt_flops"), head_flops(llm), "the LM head, once per prompt"),
        Constant(_of("window_tokens"), float(_window(llm)), "tokens that a window layer sees"),
        Constant(_of("kv_elements_per_full_position"), kv[1] / width, "KV read per token in context, one copy"),
        Constant(_of("kv_elements_per_window_position"), kv[2] / width, "the same of the window layers"),
        Constant(_of("kv_copies_per_gpu"), 1.0 / max(1, llm.kv_heads), "by each GPU of a rank"),
        Constant(_of("kv_element_bytes"), BYTES_PER_ELEMENT[llm.kv_precision], "where the engine names no FP8 cache"),
        Constant(_of("state_bytes_per_token"), kv[0], "state of linear layers, read and written"),
        Constant(_of("engine_gpus"), float(gpus), "GPUs of one engine"),
    ]
    if llm.read_bytes > 0.0:
        experts = llm.experts * llm.expert_read_bytes
        constants += [
            Constant(_of("weight_bytes"), llm.read_bytes, "all matmul weights, every expert included"),
            Constant(_of("expert_bytes"), experts, "the experts' part of them"),
            Constant(_of("expert_missed_ratio"), missed, "1 - k/E: share of the experts that one token misses"),
        ]
    return tuple(constants)


def peak_constants(flops_per_s: float, bandwidth_bytes_per_s: float) -> tuple[Constant, ...]:
    """The peaks of one of a model's GPUs; 0 is not known and left out."""
    peaks = (
        Constant(_of("gpu_peak_flops"), flops_per_s, "dense FLOP/s of one GPU in the format of this model's matmuls"),
        Constant(_of("gpu_peak_bandwidth"), bandwidth_bytes_per_s, "bytes/s of one GPU's memory"),
    )
    constants = []
    for constant in peaks:
        if constant.value > 0.0:
            constants.append(constant)
    return tuple(constants)


def untold_constants(pool_tokens: float, context_tokens: float, ranks: int = 0) -> tuple[Constant, ...]:
    """Constants that no counter tells, 0 where one is not known.

    Tokens of an engine's KV pool, the context where nothing else gives it, and data-parallel ranks of an engine whose
    page shows fewer.
    """
    constants = (
        Constant(_of("kv_pool_tokens"), pool_tokens, "tokens of each rank's KV pool, from cache_config_info"),
        Constant(_of("context_tokens"), context_tokens, "mean context where no series tells it (--context)"),
        Constant(_of("engine_ranks"), float(ranks), "data-parallel ranks of one engine, instead of those on its page"),
    )
    result = []
    for constant in constants:
        if constant.value > 0.0:
            result.append(constant)
    return tuple(result)


def _of(what: str) -> str:
    return f"gpumon:model_{what}:const"


def _parts(llm: LlmSpec, of: Callable[[LlmSpec, float], float]) -> tuple[float, float, float]:
    """The constant part, and the parts per token in context of what sees all of it and of what sees a limited part.

    PromQL has one limit per model: that of the layers which cost most in it. Others are taken as if the context were
    beyond their limit.
    """
    main = _window(llm)
    whole = []
    limited = []
    others = []
    for attention in llm.attention:
        if not attention.limit:
            whole.append(attention)
        elif attention.limit * attention.stride == main:
            limited.append(attention)
        else:
            others.append(attention)
    base = of(msgspec.structs.replace(llm, attention=tuple(others)), FAR)
    full = (of(msgspec.structs.replace(llm, attention=tuple(whole)), FAR) - of(llm, 0.0)) / FAR
    if not main:
        return base, full, 0.0
    window = (of(msgspec.structs.replace(llm, attention=tuple(limited)), float(main)) - of(llm, 0.0)) / main
    return base, full, window


def _window(llm: LlmSpec) -> int:
    """The limit in tokens of the layers that cost most in it; 0: nothing is limited."""
    costs: dict[int, float] = {}
    for look in llm.attention:
        if look.limit:
            tokens = look.limit * look.stride
            costs[tokens] = costs.get(tokens, 0.0) + look.layers * look.decode_flops * look.limit
    return max(costs, key=lambda tokens: costs[tokens], default=0)


class Weight(NamedTuple):
    """Part of one bound of a histogram of lengths in its moments."""

    le: str
    """Bound as `le` without `.0`; "0": of all observations, the others: of those above the bound."""
    first: float
    second: float


def bucket_weights(bounds: tuple[float, ...]) -> tuple[Weight, ...]:
    """Weights that make the first two moments of a cumulative histogram from how many observations lie above a bound.

    Each bucket's mid-point is that of the bucket below and what it is higher. What is above the last bound of a page
    counts with the mid-point of the bucket that would follow.
    """
    middles = []
    for low, high in zip((0.0, *bounds), (*bounds, 2.0 * bounds[-1]), strict=True):
        middles.append((low + high) / 2.0)
    steps = zip(bounds, middles, middles[1:], strict=False)
    weights = [Weight("0", middles[0], middles[0] ** 2)]
    for bound, low, high in steps:
        weights.append(Weight(f"{bound:.10g}", high - low, high**2 - low**2))
    return tuple(weights)
