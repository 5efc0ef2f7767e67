"""Kernels that fall short of the shares that most reach: of some formats, layers and vendors; and the least step.

Each constant was fitted on rows of tests/data/measured-2026.csv, and is judged on models that it was not fitted on
(docs/sizing-accuracy.md).
"""

from __future__ import annotations

from typing import Final

from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import FP4, Precision

LEAST_STEP_S: Final = 3.5e-3
"""Seconds that no step is below: a host launches its kernels and reads its tokens.

1.5 billion parameters on an H100 PCIe take 4.1 ms (vLLM 0.8.5) and Nemotron-3-Nano on two B200 2.9 ms (vLLM 0.16),
whatever they read; a slow host takes 11 ms.
"""
DELTA_NET_TIMES: Final = 4.0
"""Bytes of the KV cache that take as long as one byte of a gated delta net's state. Fitted on Qwen3.8-27B."""
NVFP4_BYTE_S: Final = 6.2e-12
"""Seconds that one SM takes to unpack a byte of a dense model's NVFP4 weights, beside reading it. Fitted on
Qwen3.8-27B."""
ROCM_TIMES: Final = 2.1
"""Times that a step takes on CDNA3, by the shares of peaks that NVIDIA's GPUs reach. Fitted on three rows of MI300X."""
RANKS_WAIT: Final = 0.5
"""Share of the time that a data-parallel rank computes its own part of a prompt that the other ranks wait.

Ranks that share experts step together, and engines even prompts out over them more or less: the choice between none
and all that is nearest on 62 rows of TensorRT-LLM.
"""
_ROCM: Final = "CDNA3"
_DELTA_NET: Final = "delta net"


def widens_experts(llm: LlmSpec, gpu: GpuSpec) -> bool:
    """Whether kernels widen the experts' weights as they read them (Marlin): INT4, and FP4 on a GPU without it."""
    if not llm.experts:
        return False
    if llm.precision in FP4:
        return llm.precision not in gpu.flops_per_s
    return llm.weight_only or llm.precision is Precision.INT4


def unpacking_s(llm: LlmSpec, gpu: GpuSpec, read_bytes: float) -> float:
    """Seconds that a GPU takes to unpack the weights that it reads; experts' kernels hide it."""
    if llm.precision is not Precision.NVFP4 or llm.experts or gpu.sm_count <= 0.0:
        return 0.0
    return read_bytes * NVFP4_BYTE_S / gpu.sm_count


def slow_state_bytes(llm: LlmSpec, verified: float) -> float:
    """Bytes of the KV cache that take as long as what a step needs for delta nets beyond reading and writing each
    state once: the recurrence is slow, and the state after each of `verified` tokens is kept until one is chosen."""
    states = [state for state in llm.states if state.kind == _DELTA_NET]
    state_bytes = sum(state.layers * state.elements * state.bytes_per_element for state in states)
    return state_bytes * (DELTA_NET_TIMES * (1.0 + verified) - 2.0)


def step_times(gpu: GpuSpec) -> float:
    """Times that a step takes, by the shares of peaks that NVIDIA's GPUs reach."""
    return ROCM_TIMES if gpu.architecture == _ROCM else 1.0
