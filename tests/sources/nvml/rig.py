"""A real worker on the fake driver, with short timings, and the waiting that tests need."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from gpumon.readings.frame import GpuReading
from gpumon.sources.driver.mute import MutePatience
from gpumon.sources.driver.source import DriverSource, Spawn, WorkerPatience
from gpumon.sources.driver.source import spawn as start_worker
from gpumon.sources.driver.wire import Timings
from gpumon.sources.source import Contribution
from tests import program
from tests.fakes.nvml import driver as fakes
from tests.fakes.nvml.driver import FakeDriver

INTERVAL_S = 0.2
TIMINGS = Timings(
    slow_s=0.3, energy_s=0.0, minute_s=0.5, init_retry_s=0.3, reprobe_s=0.4, permission_s=0.8, backoff_s=0.3
)
MUTE = MutePatience()
LIMITS = WorkerPatience(init_s=10.0, answer_s=2.0, die_s=0.3, backoff_s=0.2, backoff_most_s=0.8)


WORKER: Final = [sys.executable, "-m", "gpumon.sources.driver"]
"""Beginning of the command line of a worker."""


def fork_worker(command: Sequence[str], env: Mapping[str, str] | None) -> Any:
    """Start a worker as `start_worker` does, by a fork where that is the same, which saves 0.1 s of processor time."""
    if env is None or list(command[:3]) != WORKER or program.differs_at_start(env):
        return start_worker(command, env)
    run = program.Run(list(command[3:]), dict(env), str(fakes.ROOT), program.DRIVER_PROGRAM, in_session=True)
    theirs_in, ours_in = os.pipe()
    ours_out, theirs_out = os.pipe()
    ours_err, theirs_err = os.pipe()
    theirs = [theirs_in, theirs_out, theirs_err]
    process = program.Process(
        run,
        theirs,
        stdin=os.fdopen(ours_in, "wb", buffering=0),
        stdout=os.fdopen(ours_out, "rb", buffering=0),
        stderr=os.fdopen(ours_err, "rb", buffering=0),
    )
    for descriptor in theirs:
        os.close(descriptor)
    return process


class Rig:
    """Polls a source as the collector does."""

    def __init__(self, source: DriverSource) -> None:
        self.source = source

    async def poll(self) -> Contribution:
        """One tick: the poll, then the rest of the interval."""
        found = await self.source.poll(time.monotonic())
        await asyncio.sleep(INTERVAL_S)
        return found

    async def until(self, accept: Callable[[Contribution], bool], within_s: float = 60.0) -> Contribution:
        """The first contribution that `accept` takes."""
        end_s = time.monotonic() + within_s
        while True:
            found = await self.poll()
            if accept(found):
                return found
            assert time.monotonic() < end_s, f"not within {within_s} s: {found}"

    async def gpus(self, ticks: int = 3) -> tuple[GpuReading, ...]:
        """The readings once the driver is open and was read `ticks` more times: GPM needs two samples."""
        found = await self.until(lambda found: bool(found.gpus))
        for _ in range(ticks):
            last_s = newest_s(found)
            found = await self.until(lambda found, last_s=last_s: newest_s(found) > last_s)  # type: ignore[misc]
        return found.gpus


def newest_s(found: Contribution) -> float:
    """When the GPU was read that was read last."""
    return max(gpu.monotonic_s for gpu in found.gpus)


@asynccontextmanager
async def running(
    driver: FakeDriver,
    script: str,
    *,
    timings: Timings = TIMINGS,
    limits: WorkerPatience = LIMITS,
    mute: MutePatience = MUTE,
    env: dict[str, str] | None = None,
    spawn: Spawn = fork_worker,
) -> AsyncIterator[Rig]:
    """A started source on the fake driver, with `env` on top; closed at the end."""
    driver.write(script)
    whole_env = driver.env(**(env or {}))
    source = DriverSource(INTERVAL_S, env=whole_env, timings=timings, limits=limits, mute=mute, spawn_worker=spawn)
    await source.start()
    try:
        yield Rig(source)
    finally:
        await source.close()


def faults(found: Contribution) -> str:
    """All fault texts of a contribution."""
    return "; ".join(fault.text for fault in found.faults)


def library_with(extra: str, folder: Path) -> dict[str, str]:
    """The fake driver library with one more C file of this folder in it, as the variable that makes programs use it."""
    gcc = shutil.which("gcc")
    assert gcc is not None, "the fake NVIDIA driver needs a C compiler: apt-get install gcc libc6-dev"
    exports = folder / "exports.map"
    exports.write_text("{ global: nvml*; local: *; };\n")
    flags = ["-std=gnu11", "-O0", *fakes.LIBRARY_FLAGS, f"-Wl,--version-script,{exports}"]
    sources = [*(fakes.HERE / "src").glob("*.c"), Path(__file__).parent / extra]
    subprocess.run([gcc, *flags, "-o", folder / fakes.SONAME, *sources, "-lm", "-lpthread"], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}
