"""How an engine's GPUs split into instances, pipeline stages and tensor-parallel shards."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.readings.frame import EngineReading


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
    if count and (not tp or (dp > 1 and tp * stages * dp > count)):
        tp = count // (dp * stages) if count % (dp * stages) == 0 else 0
    return Layout(count, tp, reading.pp, dp)
