"""The processes that sit on the simulated GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gpumon.readings.frame import GpuProcess
from gpumon.sources.simulator.cast import GIB, Actor, Leftover
from gpumon.sources.simulator.training import Run

FIRST_PID = 9_000_001
"""Above the largest pid that Linux can give (2^22): no real process is meant."""
GRAPHS_BYTES = 0.45 * GIB
"""Memory of a vLLM worker beside the share that it was given: CUDA graphs and the context."""


def processes(
    gpu: int, cast: Sequence[Actor], leftovers: Sequence[Leftover], runs: Sequence[Run] = ()
) -> tuple[GpuProcess, ...]:
    """What sits on a GPU: workers of the engines and training runs there, and what else was started or left behind."""
    everyone = (*_workers(cast), *_strays(leftovers), *_trainers(runs))
    return tuple(
        msgspec.structs.replace(process, pid=pid) for pid, (at, process) in enumerate(everyone, FIRST_PID) if at == gpu
    )


def _workers(cast: Sequence[Actor]) -> Iterator[tuple[int, GpuProcess]]:
    """One of each engine on each of its GPUs, named as vLLM names them."""
    for actor in cast:
        for rank, gpus in enumerate(actor.ranks):
            for worker, at in enumerate(gpus):
                yield (
                    at,
                    GpuProcess(
                        0,
                        f"sim:{_title(len(actor.ranks), rank, len(gpus), worker)}",
                        actor.user,
                        actor.gpu_memory_utilization * actor.chip.memory_bytes + GRAPHS_BYTES,
                        actor.container,
                        engine=actor.name,
                        command=actor.command,
                        pod=actor.pod,
                    ),
                )


def _strays(leftovers: Sequence[Leftover]) -> Iterator[tuple[int, GpuProcess]]:
    for left in leftovers:
        yield left.gpu, GpuProcess(0, left.name, left.user, left.vram_bytes, command=left.command)


def _trainers(runs: Sequence[Run]) -> Iterator[tuple[int, GpuProcess]]:
    for run in runs:
        for at in run.gpus:
            yield at, GpuProcess(0, "sim:python", "simulated", run.vram_bytes, engine=run.name, command=run.command)


def _title(ranks: int, rank: int, workers: int, worker: int) -> str:
    """A process title as vLLM sets it: the engine core holds the GPU where there is but one."""
    data_parallel = f"_DP{rank}" if ranks > 1 else ""
    return f"VLLM::Worker{data_parallel}_TP{worker}" if workers > 1 else f"VLLM::EngineCore{data_parallel}"
