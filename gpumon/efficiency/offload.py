"""The part of an engine's weights, KV cache and arithmetic that is its GPUs', where some of it is left to the CPU."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from gpumon.readings.frame import CPU_OFFLOAD_GB, GPU_LAYERS, ON_GPU_RATIO, WEIGHTS_ON_CPU, EngineReading
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.text import clean
from gpumon.specs.llm import LlmSpec
from gpumon.specs.units import GIB

ON_CPU: Final = "weights partly on the CPU"


class GpuPart(msgspec.Struct, frozen=True):
    """Shares from 0 to 1 that are the GPUs'; a reason where it is known that not all is, and not how much."""

    weights: Reading
    """Share of the bytes of weights that a step reads."""
    kv: Reading
    """Share of the bytes of the KV cache."""
    arithmetic: Reading
    """Share of the FLOPs."""


WHOLE: Final = GpuPart(weights=1.0, kv=1.0, arithmetic=1.0)
"""The part of an engine that leaves nothing to the CPU."""


def gpu_part(reading: EngineReading, gpus: int) -> GpuPart:
    """The GPUs' part of an engine, of which one instance has so many `gpus` (0: not known)."""
    llm = reading.llm
    info = reading.info
    if llm is None:
        return WHOLE
    if info.get(WEIGHTS_ON_CPU):
        return _unknown_part(clean(info[WEIGHTS_ON_CPU], 80))
    if _number(info.get(ON_GPU_RATIO, "1")) < 1.0:
        return _unknown_part("the engine says so")
    if GPU_LAYERS in info:
        return _part_by_layers(llm, info[GPU_LAYERS])
    if _number(info.get(CPU_OFFLOAD_GB, "0")) > 0.0:
        return _part_without_streamed_weights(llm, _number(info[CPU_OFFLOAD_GB]), gpus)
    return WHOLE


def scaled(amount: Reading, share: Reading) -> Reading:
    """The GPUs' share of an amount; nothing of nothing, whatever the share is."""
    if isinstance(amount, Missing) or amount == 0.0:
        return amount
    if isinstance(share, Missing):
        return share
    return amount * share


def _unknown_part(detail: str) -> GpuPart:
    """The part of an engine of which it is known that not all is the GPUs', and not how much."""
    why = Missing(Reason.NOT_MODELLED, f"{ON_CPU}: {detail}")
    return GpuPart(weights=why, kv=why, arithmetic=why)


def _part_by_layers(llm: LlmSpec, text: str) -> GpuPart:
    """llama.cpp: the first layers are the CPU's, with their KV cache, and the LM head unless all layers are on GPUs.

    The arithmetic of these layers is the CPU's or, for large batches, the GPU's, which copies their weights for that.
    """
    layers = _number(text, default=math.inf)
    if layers < 0.0 or layers >= llm.layers:
        return WHOLE
    why = Missing(Reason.NOT_MODELLED, f"{ON_CPU}: {layers:.0f} of {llm.layers} layers on the GPUs")
    if layers == 0.0:
        return GpuPart(weights=why, kv=why, arithmetic=why)
    share = layers / llm.layers
    head_share = llm.head_params / llm.matmul_params if llm.matmul_params > 0.0 else 0.0
    return GpuPart(weights=share * (1.0 - head_share), kv=share, arithmetic=why)


def _part_without_streamed_weights(llm: LlmSpec, gib: float, gpus: int) -> GpuPart:
    """vLLM and SGLang: a GPU computes with all of its weights, and fetches so much of them from the host's memory."""
    if gpus == 0 or llm.read_bytes <= 0.0:
        why = Missing(Reason.NOT_MODELLED, f"weights partly in the host's memory: {gib:g} GiB of each GPU's")
        return GpuPart(weights=why, kv=1.0, arithmetic=1.0)
    on_gpus = max(0.0, 1.0 - gib * GIB * gpus / llm.read_bytes)
    return GpuPart(weights=on_gpus, kv=1.0, arithmetic=1.0)


def _number(text: str, default: float = 0.0) -> float:
    """The number, or `default` where it is none (`all`, `auto`)."""
    try:
        value = float(text)
    except ValueError:
        return default
    if math.isfinite(value):
        return value
    return default
