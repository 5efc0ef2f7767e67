"""How an engine's GPUs split into instances, pipeline stages and tensor-parallel shards."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind, EngineReading

DP_ATTENTION: Final = "dp_attention"
"""Key in `EngineReading.info`: `yes` where data-parallel ranks share the tensor-parallel GPUs (SGLang)."""


class Layout(NamedTuple):
    """Sizes of an engine; 0 is not known."""

    gpus: int
    """Of all its ranks."""
    tp: int
    """GPUs that share each layer of one rank."""
    pp: int
    """Pipeline stages of one rank."""
    dp: int
    """Data-parallel ranks, at least 1."""
    together: int = 1
    """Data-parallel ranks, those of other pages included, that have the experts of a MoE once together; 1: each has
    all of them."""
    attention_alone: bool = False
    """The ranks share the tensor-parallel GPUs: all layers but the attention lie on the GPUs of all of them."""


def layout(reading: EngineReading, shown: int, count: int) -> Layout:
    """The sizes of an engine with `count` GPUs (0: not known) whose page shows `shown` data-parallel ranks.

    What the server or its command line says holds. Without it: GPUs / ranks / stages. Where the ranks share the
    tensor-parallel GPUs (SGLang's DP attention: tp 8 and dp 8 on 8 GPUs), each layer's KV cache lies on what is left
    for one rank. A page that adds the ranks up shows one: the command line's number holds if the GPUs agree; else it
    is the page of one rank among several.
    """
    stages = max(reading.pp, 1)
    dp = shown
    if shown == 1 and reading.dp > 1 and count and count == max(reading.tp, 1) * stages * reading.dp:
        dp = reading.dp
    tp = reading.tp
    crowded = bool(count) and dp > 1 and tp * stages * dp > count
    if count and (not tp or crowded):
        tp = count // (dp * stages) if count % (dp * stages) == 0 else 0
    attention = dp > 1 and (crowded or reading.info.get(DP_ATTENTION) == "yes")
    return Layout(count, tp, reading.pp, dp, _together(reading, dp, attention), attention)


def _together(reading: EngineReading, dp: int, attention: bool) -> int:
    """Ray's ranks are replicas, and those of SGLang too, unless their attention alone is data-parallel."""
    if reading.kind is EngineKind.RAY or (reading.kind is EngineKind.SGLANG and reading.tp and not attention):
        return 1
    return max(dp, reading.dp)
