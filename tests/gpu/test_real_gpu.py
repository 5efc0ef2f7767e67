"""On a real NVIDIA GPU: what gpumon reads, against kernels whose bytes and FLOPs are known.

python -m pytest -m gpu tests/gpu          # needs a GPU of Hopper or newer, and torch with CUDA
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Gpu
from gpumon.sources.driver.source import DriverSource
from gpumon.sources.packaged import gpu_catalogue
from gpumon.specs.gpu import GpuFacts
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


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[IO[str]]:
    """A Python program on the GPU, and what it prints from `ready` on; it must end well by itself."""
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        yield program.stdout
        assert program.wait(30) == 0


def while_running(program: str, seconds: float = 12.0) -> tuple[list[Gpu], float]:
    """The GPU in the steady middle of a program, and the rate that the program measured itself."""
    with running("-c", textwrap.dedent(program).format(seconds=seconds)) as printed:
        assert printed.readline().strip() == "ready", "the kernel program did not start: is torch with CUDA there?"
        shown = watch(seconds - 3.0)
        return shown[3:], float(printed.readline())


class Serving(NamedTuple):
    """A served model in its steady middle: what gpumon printed, and the program's own account."""

    gpus: list[dict[str, Any]]
    engines: list[dict[str, Any]]
    account: dict[str, float]

    def of_gpu(self, field: str) -> float:
        """Mean of a figure of the GPU."""
        return mean([gpu[field] for gpu in self.gpus])

    def of_engine(self, field: str) -> float:
        """Mean of a figure of the engine."""
        return mean([engine[field] for engine in self.engines])


def serving(work: str, seconds: float = 28.0) -> Serving:
    """Serve a Llama of 8 billion parameters, and watch it by the command."""
    with running("-m", "tests.gpu.llama", work, str(seconds)) as printed:
        ready, url = printed.readline().split()
        assert ready == "ready", "the model was not served: is torch with CUDA there?"
        command = ["-m", "gpumon", "watch", "--json", "--endpoint", url, "--duration", str(seconds - 4.0)]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
        frames = [json.loads(line) for line in done.stdout.splitlines()]
        # Rates are means of 10 s.
        steady = [frame for frame in frames[13:] if frame["engines"]]
        account = json.loads(printed.readline())
    return Serving([frame["gpus"][0] for frame in steady], [frame["engines"][0] for frame in steady], account)


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
    spec = gpu_catalogue().match(GpuFacts(shown[0].name))
    assert spec is not None
    share = flops_per_s / spec.flops_per_s[Precision.BF16]
    active = mean([number(gpu.tensor_active_ratio) for gpu in shown])
    assert 0.3 < share < 1.1
    assert share * 0.9 < active <= 1.0, "the pipe is active at least as long as its arithmetic takes at the peak"


def test_mbu_of_decoding_is_the_bandwidth_that_the_gpu_measures():
    served = serving("decode")
    tokens_per_s = served.account["tokens"] / served.account["seconds"]
    assert served.of_engine("decode_tokens_per_s") == pytest.approx(tokens_per_s, rel=0.02)
    measured = served.of_gpu("bandwidth_bytes_per_s")
    assert {gpu["bandwidth_source"] for gpu in served.gpus} == {"gpm"}
    derived = served.of_engine("bytes_per_s")
    # Activations and writes are not derived.
    assert 0.95 * measured < derived < 1.01 * measured


def test_mfu_of_prefill_is_the_flops_that_torch_counts():
    served = serving("prefill")
    flops_per_s = served.account["prompts"] * served.account["flops"] / served.account["seconds"]
    assert served.of_engine("flops_per_s") == pytest.approx(flops_per_s, rel=0.02)
    mfu, active = served.of_engine("mfu_ratio"), served.of_gpu("tensor_active_ratio")
    assert 0.9 * mfu < active <= 1.0, "tensor cores are active at least as long as their arithmetic takes at the peak"
