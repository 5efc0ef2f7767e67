"""What placing instances on servers costs: `python -m tests.perf.bench_placement`, or `pytest -m perf` on this file.

Least, median and most milliseconds of processor time over random questions; and by how many GPUs the placement may
be off at most (GPUs taken less the lower bound): how many questions are off at all, and the most.
"""

from __future__ import annotations

import random
import statistics
import time

import pytest

from gpumon.sizing.placement import InstanceBlock, ServerShape, place
from gpumon.sizing.scenario import Packing

SHAPE = ServerShape(gpus=8, domain=8, memory_bytes=0.92 * 80e9)
ROUNDS = 30
QUESTIONS: tuple[tuple[str, int, int, Packing, tuple[float, float], float], ...] = (
    ("500 instances, 6 models, by busy share", 6, 500, "busy", (2, 60), 100),
    ("500 instances, 6 models, by memory", 6, 500, "memory", (2, 60), 100),
    ("500 instances, 6 small models, by memory", 6, 500, "memory", (2, 15), 100),
    ("64 x 8 GPUs, 10 models, by busy share", 10, 1200, "busy", (2, 60), 200),
    ("64 x 8 GPUs, 10 models, by memory", 10, 1200, "memory", (2, 60), 200),
    ("64 x 8 GPUs, 10 small models, by memory", 10, 2500, "memory", (2, 25), 200),
    ("500 instances, 20 models, by busy share", 20, 500, "busy", (2, 60), 200),
    ("1e6 instances, 6 models, by busy share", 6, 10**6, "busy", (2, 60), 200),
)


def question(rng: random.Random, models: int, instances: int, memory_gb: tuple[float, float]) -> list[InstanceBlock]:
    """Models of one GPU, their number of instances cut at random."""
    cuts = sorted(rng.sample(range(1, instances), models - 1))
    counts = [end - start for start, end in zip((0, *cuts), (*cuts, instances), strict=True)]
    return [
        InstanceBlock(at, count, 1, 1, rng.uniform(*memory_gb) * 1e9, rng.uniform(0.05, 0.9))
        for at, count in enumerate(counts)
    ]


def bench(
    models: int, instances: int, packing: Packing, memory_gb: tuple[float, float]
) -> tuple[list[float], list[int]]:
    """Milliseconds and gaps."""
    rng = random.Random(1)
    taken, gaps = [], []
    for _ in range(ROUNDS):
        blocks = question(rng, models, instances, memory_gb)
        began = time.process_time()
        placed = place(blocks, [SHAPE], packing)
        taken.append((time.process_time() - began) * 1e3)
        gaps.append(placed.gpus - placed.least_gpus)
    return taken, gaps


@pytest.mark.perf
@pytest.mark.parametrize("asked", QUESTIONS, ids=[row[0] for row in QUESTIONS])
def test_placement_is_fast(asked: tuple[str, int, int, Packing, tuple[float, float], float]) -> None:
    """The median, as a busy machine makes single ones slow."""
    words, models, instances, packing, memory_gb, limit_ms = asked
    taken, gaps = bench(models, instances, packing, memory_gb)
    print(_line(words, taken, gaps))
    assert statistics.median(taken) < limit_ms


def _line(words: str, taken: list[float], gaps: list[int]) -> str:
    off = (
        f"{sum(gap > 0 for gap in gaps)} of {len(gaps)} not proved, most {max(gaps)} GPUs"
        if any(gaps)
        else "all proved"
    )
    return f"{words:42} {min(taken):7.1f} {statistics.median(taken):7.1f} {max(taken):7.1f} ms   {off}"


if __name__ == "__main__":
    for row in QUESTIONS:
        print(_line(row[0], *bench(*row[1:5])))
