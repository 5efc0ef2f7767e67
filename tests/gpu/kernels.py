"""Programs on a real GPU whose bytes and FLOPs are known, and what gpumon shows meanwhile.

python -m tests.gpu.kernels        # the table in docs/accuracy.md; needs a GPU of Hopper or newer, torch with CUDA
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import IO, Any, Final, NamedTuple

from gpumon.efficiency.deriver import Deriver
from gpumon.readings.flat import value_of
from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Gpu
from gpumon.sources.driver.source import DriverSource
from gpumon.sources.packaged import gpu_catalogue
from gpumon.specs.gpu import GpuFacts
from gpumon.specs.precision import Precision

COPY: Final = """
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

MATMUL: Final = """
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

RATES_S: Final = 13
"""Seconds until the means of 10 s have no start-up in them."""


class Steady(NamedTuple):
    """A GPU in the steady middle of a program, and the rate that the program measured itself."""

    gpus: list[Gpu]
    rate: float

    def mean(self, field: str) -> float:
        """Mean of a figure."""
        return mean([number(value_of(gpu, field)) for gpu in self.gpus])


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

    def per_s(self, count: str) -> float:
        """A count of the program's own, per second."""
        return self.account[count] / self.account["seconds"]


class Compared(NamedTuple):
    """A figure of gpumon's beside what the program or the GPU says itself."""

    what: str
    shown: float
    true: float
    unit: str


def mean(values: Sequence[float | None]) -> float:
    """Mean of what is known. Raises AssertionError if nothing is."""
    known = [value for value in values if value is not None]
    assert known, "no reading at all"
    return sum(known) / len(known)


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
    """A Python program on the GPU, and what it prints; it must end well by itself."""
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        yield program.stdout
        assert program.wait(30) == 0


def while_running(program: str, seconds: float = 12.0) -> Steady:
    """Watch the GPU while a program runs."""
    with running("-c", textwrap.dedent(program).format(seconds=seconds)) as printed:
        assert printed.readline().strip() == "ready", "the kernel program did not start: is torch with CUDA there?"
        shown = watch(seconds - 3.0)
        return Steady(shown[3:], float(printed.readline()))


def serving(work: str, seconds: float = 28.0) -> Serving:
    """Serve a Llama of 8 billion parameters, and watch it by the command."""
    with running("-m", "tests.gpu.llama", work, str(seconds)) as printed:
        ready, url = printed.readline().split()
        assert ready == "ready", "the model was not served: is torch with CUDA there?"
        command = ["-m", "gpumon", "watch", "--json", "--endpoint", url, "--duration", str(seconds - 4.0)]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
        frames = [json.loads(line) for line in done.stdout.splitlines()]
        steady = [frame for frame in frames[RATES_S:] if frame["engines"]]
        account = json.loads(printed.readline())
    return Serving([frame["gpus"][0] for frame in steady], [frame["engines"][0] for frame in steady], account)


def bf16_peak(name: str) -> float:
    """Dense BF16 FLOP/s of a GPU by the catalogue."""
    spec = gpu_catalogue().match(GpuFacts(name))
    assert spec is not None, name
    return spec.flops_per_s[Precision.BF16]


copying: Final = partial(while_running, COPY)
multiplying: Final = partial(while_running, MATMUL)
decoding: Final = partial(serving, "decode")
prefilling: Final = partial(serving, "prefill")


def compared() -> Iterator[Compared]:
    """Run all programs, and hold gpumon's figures against theirs."""
    copied = copying()
    yield Compared(
        "bandwidth of a copy (GPM) / bytes that it moves", copied.mean("bandwidth_bytes_per_s"), copied.rate, "B/s"
    )
    multiplied = multiplying()
    peak = bf16_peak(multiplied.gpus[0].reading.name)
    share = multiplied.rate / peak
    yield Compared(
        "tensor activity of BF16 products (GPM) / their share of the peak",
        multiplied.mean("tensor_active_ratio"),
        share,
        "",
    )
    decoded = decoding()
    yield Compared(
        "decode tokens/s / the program's count",
        decoded.of_engine("decode_tokens_per_s"),
        decoded.per_s("tokens"),
        "tok/s",
    )
    yield Compared(
        "bytes/s of decoding (MBU) / bandwidth that the GPU measures (GPM)",
        decoded.of_engine("bytes_per_s"),
        decoded.of_gpu("bandwidth_bytes_per_s"),
        "B/s",
    )
    prefilled = prefilling()
    flops_per_s = prefilled.per_s("prompts") * prefilled.account["flops"]
    yield Compared("FLOP/s of prefill (MFU) / torch's count", prefilled.of_engine("flops_per_s"), flops_per_s, "FLOP/s")
    yield Compared(
        "MFU of prefill / tensor activity (GPM)",
        prefilled.of_engine("mfu_ratio"),
        prefilled.of_gpu("tensor_active_ratio"),
        "",
    )


def main() -> None:
    """Print the table."""
    print("| figure / what it is held against | gpumon | held against | ratio |\n|---|---|---|---|")
    for row in compared():
        print(f"| {row.what} | {row.shown:.4g} {row.unit} | {row.true:.4g} {row.unit} | {row.shown / row.true:.3f} |")


if __name__ == "__main__":
    main()
