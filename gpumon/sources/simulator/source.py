"""The simulated server as a source: eight GPUs, and engines that answer on loopback ports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from gpumon.config.schema import Endpoint, Feed
from gpumon.readings.frame import GpuReading
from gpumon.sources.simulator.cast import CAST, H100, LEFTOVERS, Actor, Leftover
from gpumon.sources.simulator.effects import HostMeter, ScriptedHost, scripted
from gpumon.sources.simulator.gpus import SimulatedGpu, Work
from gpumon.sources.simulator.occupants import processes
from gpumon.sources.simulator.physics import Chip
from gpumon.sources.simulator.scenario import Scenario
from gpumon.sources.simulator.script import Script, standing
from gpumon.sources.simulator.server import SILENCE, Answer, LoopbackServer
from gpumon.sources.simulator.serving import EngineTruth, SimulatedEngine
from gpumon.sources.simulator.training import Run, SimulatedRun
from gpumon.sources.source import Contribution
from gpumon.triage.thresholds import Thresholds

GPUS = 8
DRIVER, CUDA = "580.95.05 (simulated)", "13.0"
WARM_S = 600.0
"""Simulated time before the demo opens, so that it opens on a server at work."""
SLICE_S = 4.0
"""Simulated seconds of that worked off at a time: some milliseconds, between which the screen paints."""
LONGEST_GAP_S = 30.0
"""After a longer pause of the monitor (suspended, debugger) the simulated server has paused as well."""
SHORTEST_S = 0.1
"""Two readings closer than this are one, as with the real activity counters."""


NOTHING_HAPPENS = Script()
_NO_WORK = Work()


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
        *,
        runs: tuple[Run, ...] = (),
        chip: Chip = H100,
        gpus: int = GPUS,
        script: Script = NOTHING_HAPPENS,
        idle_s: float | None = None,
    ) -> None:
        self._clock = clock
        self._zero_wall_s = wall_clock()
        """Unix time of the simulated time zero: events keep their dates. Set again when the warm-up ends."""
        self._wall_clock = wall_clock
        self._read_s = clock()
        self._at_s = self._reached_s = -warm_s
        started_wall_s = self._zero_wall_s - warm_s
        self._engines = tuple(
            SimulatedEngine(actor, seed + number, -warm_s, started_wall_s, script.engines)
            for number, actor in enumerate(cast)
        )
        self._runs = tuple(SimulatedRun(run, -warm_s, started_wall_s) for run in runs)
        self._script, self._idle_s = script, idle_s
        self._strays = {left.gpu: left.work for left in leftovers}
        self._gpus = tuple(SimulatedGpu(chip, index, processes(index, cast, leftovers, runs)) for index in range(gpus))
        self.acts: tuple[SimulatedEngine | SimulatedRun, ...] = (*self._engines, *self._runs)
        """The engines, then the training runs."""
        self._servers = tuple(LoopbackServer(self._answers(act)) for act in self.acts)
        self._warming: asyncio.Task[None] | None = None
        self.warm = False
        """The warm-up is over, and the servers answer."""
        self.endpoints: tuple[Endpoint, ...] = tuple(
            Endpoint(url=server.url, name=actor.name, engine="vllm", gpus=actor.gpus)
            for server, actor in zip(self._servers, cast, strict=False)
        )
        """One entry per engine; whoever polls before the warm-up is over waits for its end."""
        self.feeds: tuple[Feed, ...] = tuple(
            run.feed(f"{server.url}/metrics") for server, run in zip(self._servers[len(cast) :], runs, strict=True)
        )
        """One entry per training run."""

    def host_meter(self, real: HostMeter) -> HostMeter:
        """The host as the script has it: what this machine does has no part in the play."""
        return ScriptedHost(real, self._script.host, lambda: self._at_s)

    def thresholds(self, usual: Thresholds) -> Thresholds:
        """Those of the config; a scenario of idleness is not waited for as long as in earnest."""
        return impatient(usual, self._idle_s)

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
        for server, act in zip(self._servers, self.acts, strict=True):
            await server.listen(up=act.up)
        return Contribution(gpus=self.readings(self._read_s), driver=DRIVER, cuda=CUDA)

    def readings(self, monotonic_s: float) -> tuple[GpuReading, ...]:
        """The GPUs, as they are after the last `advance`."""
        at_s = self._at_s
        gone = frozenset(engine.actor.name for engine in self._engines if not engine.up)
        return tuple(
            scripted(gpu.reading(monotonic_s), self._script, at_s, self._zero_wall_s, gone) for gpu in self._gpus
        )

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
        for act in self.acts:
            act.advance(self._at_s)
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
        now = standing(self._script.gpus, self._at_s)

        def share(gpu: int) -> float:
            return min((spell.clock_share for spell in now if gpu in spell.gpus), default=1.0)

        works = dict(self._strays)
        for act in self.acts:
            works |= act.works(share)
        for card in self._gpus:
            card.advance(seconds, works.get(card.index, _NO_WORK), share(card.index))

    def _simulated_s(self) -> float:
        """Simulated time now; a long gap between two looks at the clock counts as a pause of the server too."""
        now_s = self._clock()
        gap_s, self._read_s = now_s - self._read_s, now_s
        return self._at_s + min(max(gap_s, 0.0), LONGEST_GAP_S)

    def _answers(self, act: SimulatedEngine | SimulatedRun) -> Callable[[str], Answer | None]:
        def answer(path: str) -> Answer | None:
            self._at_s = self._simulated_s()
            act.advance(self._at_s)
            return SILENCE if act.mute else act.answer(path) if act.up else None

        return answer

    async def _warm_up(self) -> None:
        while self._at_s < 0.0:
            self.advance(min(0.0, self._at_s + SLICE_S))
            await asyncio.sleep(0)
        self._read_s, self._zero_wall_s = self._clock(), self._wall_clock()
        for server in self._servers:
            await server.start()
        self.warm = True


def impatient(usual: Thresholds, idle_s: float | None) -> Thresholds:
    """Thresholds by which things count as idle sooner, where a scenario wants that."""
    return usual if idle_s is None else msgspec.structs.replace(usual, idle_s=idle_s, gpu_idle_s=idle_s)


def play(
    scenario: Scenario,
    seed: int = 1,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], float] = time.time,
) -> SimulatedServer:
    """The server of a scenario."""
    return SimulatedServer(
        seed,
        scenario.cast,
        scenario.leftovers,
        scenario.warm_s,
        clock,
        wall_clock,
        runs=scenario.runs,
        chip=scenario.chip,
        gpus=scenario.gpus,
        script=scenario.script,
        idle_s=scenario.idle_s,
    )
