"""A day in fast time: 8 GPUs at 1 s and 4 engines at 2 s through the deriver and the histories; memory must be flat.

python -m tests.perf.bench_memory [--hours 24]
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator

import psutil

from gpumon.efficiency.deriver import Deriver
from gpumon.readings import quantities as q
from gpumon.readings.frame import (
    EndpointState,
    EngineKind,
    EngineReading,
    Frame,
    GpuReading,
    GpuState,
    HistogramReading,
    HostReading,
    RankReading,
)
from gpumon.readings.history import History
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue

GPUS, ENGINES = 8, 4
BOUNDS = (*(0.001 * 1.6**at for at in range(22)), float("inf"))
LLM = llm_catalogue().find("meta-llama/Llama-3.1-8B-Instruct")


def engine(number: int, at_s: float) -> EngineReading:
    """A steadily loaded vLLM engine; its process restarts every six hours."""
    since_s = at_s % 21600
    observed = tuple(min(1.0, (1 + at) / len(BOUNDS)) * since_s * 50 for at in range(len(BOUNDS)))
    histogram = HistogramReading(BOUNDS, observed, since_s, observed[-1])
    counters = {q.DECODE_TOKENS: since_s * 1000, q.PREFILL_COMPUTED: since_s * 5000, q.STEPS: since_s * 50}
    gauges = {q.RUNNING: 20.0 + at_s % 7, q.WAITING: 0.0, q.KV_USAGE: 0.4, q.POOL_TOKENS: 400_000.0}
    names = (q.TTFT, q.ITL, q.E2E, q.QUEUE, q.PROMPT_LENGTH, q.OUTPUT_LENGTH)
    rank = RankReading("0", counters, gauges, dict.fromkeys(names, histogram))
    return EngineReading(
        f"vllm:{8000 + number}",
        f"http://127.0.0.1:{8000 + number}",
        EndpointState.OK,
        at_s,
        kind=EngineKind.VLLM,
        exact_steps=True,
        ranks=(rank,),
        gpus=(f"GPU-{2 * number}", f"GPU-{2 * number + 1}"),
        llm=LLM,
    )


def frames(seconds: int) -> Iterator[Frame]:
    """One frame a second."""
    engines: tuple[EngineReading, ...] = ()
    for at in range(seconds):
        gpus = tuple(
            GpuReading(
                index,
                f"GPU-{index}",
                "NVIDIA H100 80GB HBM3",
                GpuState.OK,
                float(at),
                busy_ratio=0.9,
                dram_active_ratio=0.5,
                energy_j=600.0 * at,
            )
            for index in range(GPUS)
        )
        if at % 2 == 0:
            engines = tuple(engine(number, float(at)) for number in range(ENGINES))
        yield Frame(at, 1e9 + at, float(at), 1.0, HostReading("box"), gpus, engines)


def main() -> None:
    """Print memory hour by hour."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=24)
    hours = parser.parse_args().hours
    deriver, history, process = Deriver(gpu_catalogue()), History(), psutil.Process()
    began_s, rss = time.process_time(), []
    for frame in frames(hours * 3600 + 1):
        derived = deriver.derive(frame)
        history.append(frame.wall_s, derived.points)
        if frame.seq and frame.seq % 3600 == 0:
            gc.collect()
            rss.append(process.memory_info().rss / 1e6)
    cpu_s = time.process_time() - began_s
    print("RSS in MB after each hour:", " ".join(f"{value:.1f}" for value in rss))
    print(f"growth from hour 3 to hour {hours}: {rss[-1] - rss[min(2, len(rss) - 1)]:+.2f} MB")
    print(f"{cpu_s / (hours * 3600) * 1e3:.2f} ms CPU per tick")


if __name__ == "__main__":
    main()
