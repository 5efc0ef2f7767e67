"""FLOPs that tokens need, and the peak FLOP/s that they are measured against.

A token costs 2 FLOPs per parameter that it is multiplied with, plus attention: QK^T and AV are 2*heads*head_dim FLOPs
each per layer and token in context (PaLM, arXiv 2204.02311 appendix B: training 6N + 12*L*H*Q*T, forward a third).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.efficiency.ratio import require_not_negative, require_positive
from gpumon.efficiency.reach import entries_read, mean_entries_read
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import FP4, Precision

# A GPU without BF16 (V100, T4) serves a BF16 checkpoint in FP16.
_WIDE: Final = (Precision.BF16, Precision.FP16, Precision.FP32)
"""Formats of 16 bits and more, best first."""
_ARITHMETIC: Final = {
    Precision.FP32: (Precision.FP32,),
    Precision.FP16: (Precision.FP16, Precision.BF16, Precision.FP32),
    Precision.BF16: _WIDE,
    Precision.FP8: (Precision.FP8, *_WIDE),
    Precision.INT8: (Precision.INT8, *_WIDE),
    # Not weight-only means 8-bit activations (W4A8): FP8 where the GPU has it.
    Precision.INT4: (Precision.FP8, Precision.INT8, *_WIDE),
    Precision.MXFP4: (Precision.MXFP4, *_WIDE),
    Precision.NVFP4: (Precision.NVFP4, *_WIDE),
}
"""Format of the weights and activations -> formats that their arithmetic can run in, best first."""


def decode_flops_per_token(llm: LlmSpec, context_tokens: float) -> float:
    """FLOPs of one generated token with `context_tokens` in its context.

    2*N_mm + 4*H*d*(L_full*T + L_window*min(T, window)), in general the sum over all ways of looking back, and what
    updating and reading states takes. MLA decodes in the absorbed form, against the latent itself. ValueError on a
    negative context or a model without matmul parameters.
    """
    _require_known(llm)
    require_not_negative("context_tokens", context_tokens)
    linear = 2.0 * require_positive("matmul_params", llm.matmul_params)
    attention_flops = [
        attention.layers * attention.decode_flops * entries_read(attention, context_tokens)
        for attention in llm.attention
    ]
    return linear + sum(attention_flops) + _state_flops(llm)


def prefill_flops_per_token(llm: LlmSpec, new_tokens: float, cached_tokens: float = 0.0) -> float:
    """Mean FLOPs per token of a prompt of `new_tokens` computed after `cached_tokens` from the prefix cache.

    2*(N_mm - V*h) + 4*H*d*(L_full*m + L_window*w): a causal token sees m = cached + new/2 tokens on average, and w is
    the mean of min(p, window) over its positions p. The LM head is not in it: it runs once per request (`head_flops`).
    MLA prefills with its full keys and values: 2*H*(d_qk + d_v). Over prompts of mixed lengths pass E[n^2]/E[n] as
    `new_tokens`: longer prompts have more tokens, each with more context. ValueError on a negative length.
    """
    _require_known(llm)
    require_not_negative("new_tokens", new_tokens)
    require_not_negative("cached_tokens", cached_tokens)
    linear = 2.0 * require_not_negative("matmul_params without the LM head", llm.matmul_params - llm.head_params)
    attention_flops = []
    for attention in llm.attention:
        entries = mean_entries_read(attention, new_tokens, cached_tokens)
        attention_flops.append(attention.layers * attention.prefill_flops * entries)
    return linear + sum(attention_flops) + _state_flops(llm)


def _require_known(llm: LlmSpec) -> None:
    """ValueError, with the reason, for a model whose FLOPs are not known."""
    if llm.flops_unknown:
        raise ValueError(f"no FLOPs: {llm.flops_unknown}")


def head_flops(llm: LlmSpec) -> float:
    """FLOPs of the LM head for one token, 2*V*h: prefill needs it once per request, decode has it per token."""
    return 2.0 * llm.head_params


def _state_flops(llm: LlmSpec) -> float:
    """FLOPs per token of updating and reading the states of linear attention and of state space layers."""
    return sum(state.layers * state.flops for state in llm.states)


def compute_peak(gpu: GpuSpec, llm: LlmSpec) -> tuple[float, Precision] | None:
    """Dense peak FLOP/s of the format that this model's matmuls run in on this GPU, and that format.

    8-bit weights and activations run at the 8-bit peak, FP4 at the FP4 peak, each where the GPU has one; weight-only
    formats (AWQ, GPTQ) are widened and run at the 16-bit peak, as does any format that the GPU lacks (FP8 on Ampere,
    MXFP4 and NVFP4 on Hopper). FP4 weights with FP8 activations (DeepSeek-V4) run at the FP8 peak of a GPU that has
    FP4, MXFP4 weights without a word on their activations (gpt-oss) at 16 bit (see `assumed`). None where the peak of
    that format is not known: a GPU that has FP8 does not run it at 16 bit.
    """
    if llm.weight_only or (llm.precision in FP4 and llm.precision not in gpu.flops_per_s):
        return _best_peak(gpu, _WIDE)
    if llm.activations is None and llm.precision is Precision.MXFP4:
        return _best_peak(gpu, _WIDE)
    return _best_peak(gpu, _ARITHMETIC[llm.activations or llm.precision])


def assumed(gpu: GpuSpec, llm: LlmSpec) -> bool:
    """Whether `compute_peak` is an assumption: the checkpoint leaves the activations to the engine's kernels.

    MXFP4 weights on a GPU that has FP4: vLLM multiplies gpt-oss with BF16 activations there, and with MXFP8 ones where
    it is told to (VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8, vLLM pull request 23696); no metric tells which.
    """
    activations_unknown = llm.activations is None and not llm.weight_only
    return activations_unknown and llm.precision is Precision.MXFP4 and Precision.MXFP4 in gpu.flops_per_s


def training_peak(gpu: GpuSpec, precision: Precision) -> tuple[float, Precision] | None:
    """Dense peak FLOP/s of the format that a training run's matmuls are in, and that format; as `compute_peak`."""
    return _best_peak(gpu, _ARITHMETIC[precision])


def _best_peak(gpu: GpuSpec, formats: Sequence[Precision]) -> tuple[float, Precision] | None:
    """Peak of the first of these formats that the GPU has, and that format; None where it is not known (0)."""
    for precision in formats:
        if precision not in gpu.flops_per_s:
            continue
        flops_per_s = gpu.flops_per_s[precision]
        if flops_per_s > 0.0:
            return (flops_per_s, precision)
        return None
    return None
