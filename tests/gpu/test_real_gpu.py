"""On a real NVIDIA GPU: what gpumon reads, against kernels whose bytes and FLOPs are known.

python -m pytest -m gpu tests/gpu          # needs a GPU of Hopper or newer, and torch with CUDA
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Gpu
from gpumon.sources.driver.source import DriverSource
from gpumon.sources.packaged import gpu_catalogue
from gpumon.specs.precision import Precision

pytestmark = pytest.mark.gpu

COPY = """
    import time, torch
    a = torch.empty(4 << 30, dtype=torch.uint8, device="cuda"); b = torch.empty_like(a)
    torch.cuda.synchronize(); print("ready", flush=True)
    began, copies = time.monotonic(), 0
    while time.monotonic() - began < {seconds}:
        for _ in range(20): b.copy_(a)
        torch.cuda.synchronize(); copies += 20
    print(copies * 2 * a.numel() / (time.monotonic() - began))
"""
"""Prints bytes/s: each copy reads and writes 4 GiB."""

MATMUL = """
    import time, torch
    n = 8192
    a = torch.randn(n, n, dtype=torch.bfloat16, device="cuda"); b = torch.randn_like(a)
    torch.cuda.synchronize(); print("ready", flush=True)
    began, done = time.monotonic(), 0
    while time.monotonic() - began < {seconds}:
        for _ in range(50): a @ b
        torch.cuda.synchronize(); done += 50
    print(done * 2 * n ** 3 / (time.monotonic() - began))
"""
"""Prints FLOP/s of dense BF16 products."""


def watch(seconds: float) -> list[Gpu]:
    """GPU 0 once a second through the real worker."""

    async def collect() -> list[Gpu]:
        source, deriver, shown = DriverSource(1.0), Deriver(gpu_catalogue()), []
        await source.start()
        await source.ready(90.0)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            await asyncio.sleep(1.0)
            now_s = time.monotonic()
            part = await source.poll(now_s)
            frame = Frame(len(shown), time.time(), now_s, 1.0, HostReading(), part.gpus)
            shown.append(deriver.derive(frame).snapshot.gpus[0])
        await source.close()
        return shown

    return asyncio.run(collect())


def while_running(program: str, seconds: float = 12.0) -> tuple[list[Gpu], float]:
    """The GPU in the steady middle of a program, and the rate that the program measured itself."""
    code = textwrap.dedent(program).format(seconds=seconds)
    running = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stdout.readline().strip() == "ready", "the kernel program did not start: is torch with CUDA there?"
    shown = watch(seconds - 3.0)
    rate = float(running.stdout.readline())
    assert running.wait(30) == 0
    return shown[3:], rate


@pytest.fixture(scope="module")
def copying() -> tuple[list[Gpu], float]:
    return while_running(COPY)


def mean(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    assert known, "no reading at all"
    return sum(known) / len(known)


def test_measured_bandwidth_is_the_bytes_that_a_copy_moves(copying: tuple[list[Gpu], float]):
    shown, bytes_per_s = copying
    assert {gpu.bandwidth_source.value for gpu in shown} == {"gpm"}
    assert mean([number(gpu.bandwidth_bytes_per_s) for gpu in shown]) == pytest.approx(bytes_per_s, rel=0.1)


def test_a_copy_is_busy_and_uses_no_tensor_cores(copying: tuple[list[Gpu], float]):
    shown, _ = copying
    assert mean([number(gpu.busy_ratio) for gpu in shown]) > 0.9
    assert mean([number(gpu.tensor_active_ratio) for gpu in shown]) < 0.02


def test_memory_holds_what_was_allocated(copying: tuple[list[Gpu], float]):
    shown, _ = copying
    assert mean([number(gpu.vram_used_bytes) for gpu in shown]) > 8 * 2**30
    assert any(number(process.vram_bytes) for gpu in shown for process in gpu.processes)


def test_tensor_activity_bounds_the_flops_of_a_product():
    shown, flops_per_s = while_running(MATMUL)
    spec = gpu_catalogue().match(shown[0].name, number(shown[0].vram_total_bytes))
    assert spec is not None
    share = flops_per_s / spec.flops_per_s[Precision.BF16]
    active = mean([number(gpu.tensor_active_ratio) for gpu in shown])
    assert 0.3 < share < 1.1
    assert share * 0.9 < active <= 1.0, "the pipe is active at least as long as its arithmetic takes at the peak"
