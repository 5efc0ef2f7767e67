"""The simulated server as a source: eight GPUs, and engines that answer on loopback ports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from gpumon.config.schema import Endpoint
from gpumon.readings.frame import GpuProcess
from gpumon.sources.simulator.cast import CAST, GIB, H100, LEFTOVERS, Actor, Leftover
from gpumon.sources.simulator.engine_model import Meter
from gpumon.sources.simulator.gpus import SimulatedGpu, Work, work_between
from gpumon.sources.simulator.server import Answer, LoopbackServer
from gpumon.sources.simulator.serving import EngineTruth, SimulatedEngine
from gpumon.sources.source import Contribution

GPUS = 8
DRIVER, CUDA = "580.95.05 (simulated)", "13.0"
FIRST_PID = 9_000_001
"""Above the largest pid that Linux can give (2^22): no real process is meant."""
GRAPHS_BYTES = 0.45 * GIB
"""Memory of a vLLM worker beside the share that it was given: CUDA graphs and the context."""
WARM_S = 600.0
"""Simulated time before the demo opens, so that it opens on a server at work."""
SLICE_S = 4.0
"""Simulated seconds of that worked off at a time: some milliseconds, between which the screen paints."""
LONGEST_GAP_S = 30.0
"""After a longer pause of the monitor (suspended, debugger) the simulated server has paused as well."""
SHORTEST_S = 0.1
"""Two readings closer than this are one, as with the real activity counters."""


class GpuTruth(msgspec.Struct, frozen=True):
    """What a GPU has done since the simulation began: FLOPs, HBM bytes, and joules since its driver was loaded."""

    index: int
    flops: float
    dram_bytes: float
    energy_j: float


class Truth(msgspec.Struct, frozen=True):
    """What really happened until `at_s` of simulated time, to hold derived figures against."""

    at_s: float
    engines: dict[str, EngineTruth]
    gpus: tuple[GpuTruth, ...]


class SimulatedServer:
    """A `Source` for the GPUs; its engines are polled at `endpoints` like any other.

    Simulated time is zero when the warm-up ends, and then goes with `clock` (monotonic); `wall_clock` dates the start.
    """

    def __init__(
        self,
        seed: int = 1,
        cast: tuple[Actor, ...] = CAST,
        leftovers: tuple[Leftover, ...] = LEFTOVERS,
        warm_s: float = WARM_S,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._read_s = clock()
        self._at_s = self._reached_s = -warm_s
        started_wall_s = wall_clock() - warm_s
        self._engines = tuple(
            SimulatedEngine(actor, seed + number, -warm_s, started_wall_s) for number, actor in enumerate(cast)
        )
        self._gpus = tuple(SimulatedGpu(H100, index, _processes(index, cast, leftovers)) for index in range(GPUS))
        self._meters: dict[tuple[int, ...], Meter] = {gpus: Meter() for actor in cast for gpus in actor.ranks}
        self._servers = tuple(LoopbackServer(self._answers(engine)) for engine in self._engines)
        self._warming: asyncio.Task[None] | None = None
        self.warm = False
        """The warm-up is over, and the servers answer."""
        self.endpoints: tuple[Endpoint, ...] = tuple(
            Endpoint(url=server.url, name=actor.name, engine="vllm", gpus=actor.gpus)
            for server, actor in zip(self._servers, cast, strict=True)
        )
        """One entry per engine; whoever polls before the warm-up is over waits for its end."""

    async def start(self) -> None:
        """Begin the warm-up; the servers answer after it."""
        self._warming = asyncio.create_task(self._warm_up(), name="simulator warm-up")

    async def ready(self, timeout_s: float) -> None:
        """Wait for the end of the warm-up."""
        if self._warming is not None:
            await asyncio.wait({self._warming}, timeout=timeout_s)

    async def poll(self, monotonic_s: float) -> Contribution:
        """The GPUs as they are now; `initialising` while the warm-up lasts."""
        if not self.warm:
            if self._warming is not None and self._warming.done():
                self._warming.result()
            gpus = tuple(gpu.initialising(monotonic_s) for gpu in self._gpus)
            return Contribution(gpus=gpus, driver=DRIVER, cuda=CUDA)
        self.advance(self._simulated_s())
        gpus = tuple(gpu.reading(self._read_s) for gpu in self._gpus)
        return Contribution(gpus=gpus, driver=DRIVER, cuda=CUDA)

    def set_interval(self, seconds: float) -> None:
        """Simulated time goes with the clock, whatever the ticks do."""

    async def close(self) -> None:
        """Stop the warm-up, the servers and every connection."""
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.gather(self._warming, return_exceptions=True)
        for server in self._servers:
            await server.close()

    def advance(self, to_s: float) -> None:
        """Let engines and GPUs work until `to_s` of simulated time (zero is the end of the warm-up)."""
        self._at_s = max(self._at_s, to_s)
        for engine in self._engines:
            engine.advance(self._at_s)
        seconds = self._at_s - self._reached_s
        if seconds >= SHORTEST_S:
            self._reached_s = self._at_s
            self._work_gpus(seconds)

    def truth(self) -> Truth:
        """What really happened so far."""
        engines = {engine.actor.name: engine.truth() for engine in self._engines}
        gpus = tuple(GpuTruth(index, gpu.flops, gpu.dram_bytes, gpu.energy_j) for index, gpu in enumerate(self._gpus))
        return Truth(self._at_s, engines, gpus)

    def _work_gpus(self, seconds: float) -> None:
        works = [Work()] * GPUS
        for engine in self._engines:
            for gpus, meter in zip(engine.actor.ranks, engine.meters(), strict=True):
                work = work_between(engine.actor.instance, self._meters[gpus], meter, seconds)
                self._meters[gpus] = meter
                for gpu in gpus:
                    works[gpu] = work
        for card, work in zip(self._gpus, works, strict=True):
            card.advance(seconds, work)

    def _simulated_s(self) -> float:
        """Simulated time now; a long gap between two looks at the clock counts as a pause of the server too."""
        now_s = self._clock()
        gap_s, self._read_s = now_s - self._read_s, now_s
        return self._at_s + min(max(gap_s, 0.0), LONGEST_GAP_S)

    def _answers(self, engine: SimulatedEngine) -> Callable[[str], Answer]:
        def answer(path: str) -> Answer:
            self._at_s = self._simulated_s()
            engine.advance(self._at_s)
            return engine.answer(path)

        return answer

    async def _warm_up(self) -> None:
        while self._at_s < 0.0:
            self.advance(min(0.0, self._at_s + SLICE_S))
            await asyncio.sleep(0)
        self._read_s = self._clock()
        for server in self._servers:
            await server.start()
        self.warm = True


def _title(ranks: int, rank: int, workers: int, worker: int) -> str:
    """A process title as vLLM sets it: the engine core holds the GPU where there is but one."""
    data_parallel = f"_DP{rank}" if ranks > 1 else ""
    return f"VLLM::Worker{data_parallel}_TP{worker}" if workers > 1 else f"VLLM::EngineCore{data_parallel}"


def _processes(gpu: int, cast: tuple[Actor, ...], leftovers: tuple[Leftover, ...]) -> tuple[GpuProcess, ...]:
    """What sits on a GPU: a worker of each engine there, named as vLLM names them, and what was left behind."""
    found: list[GpuProcess] = []
    pid = FIRST_PID
    for actor in cast:
        for rank, gpus in enumerate(actor.ranks):
            for worker, at in enumerate(gpus):
                title = _title(len(actor.ranks), rank, len(gpus), worker)
                vram_bytes = actor.gpu_memory_utilization * H100.memory_bytes + GRAPHS_BYTES
                if at == gpu:
                    found.append(
                        GpuProcess(
                            pid,
                            f"sim:{title}",
                            actor.user,
                            vram_bytes,
                            actor.container,
                            engine=actor.name,
                            command=actor.command,
                            pod=actor.pod,
                        )
                    )
                pid += 1
    for left in leftovers:
        if left.gpu == gpu:
            found.append(GpuProcess(pid, left.name, left.user, left.vram_bytes, command=left.command))
        pid += 1
    return tuple(found)
