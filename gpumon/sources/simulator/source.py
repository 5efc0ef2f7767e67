"""The simulated server as a source: GPUs, the host, and engines that answer on loopback ports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

import msgspec

from gpumon.config.schema import Endpoint, Feed
from gpumon.readings.frame import GpuProcess, GpuReading, GpuState, HostReading, XidEvent
from gpumon.readings.missing import NOT_SUPPORTED, Missing, number
from gpumon.sources.simulator.gpus import Pace, SimulatedGpu, Work, shared
from gpumon.sources.simulator.physics import GIB
from gpumon.sources.simulator.scenario import GpuEffect, HostEffect, Scenario, lasting
from gpumon.sources.simulator.scenarios import DEMO, QUIET_HOST
from gpumon.sources.simulator.server import SILENCE, Answer, LoopbackServer
from gpumon.sources.simulator.serving import SimulatedEngine
from gpumon.sources.simulator.training import SimulatedRun
from gpumon.sources.source import Contribution
from gpumon.triage.thresholds import Thresholds

DRIVER, CUDA = "580.95.05 (simulated)", "13.0"
SLICE_S = 4.0
"""Simulated seconds of the warm-up worked off at a time: some milliseconds, between which the screen paints."""
LONGEST_GAP_S = 30.0
"""After a longer pause of the monitor (suspended, debugger) the simulated server has paused as well."""
SHORTEST_S = 0.1
"""Two readings closer than this are one, as with the real activity counters."""
FIRST_PID = 9_000_001
"""Above the largest pid that Linux can give (2^22): no real process is meant."""
GRAPHS_BYTES = 0.45 * GIB
"""Memory of a vLLM worker beside the share that it was given: CUDA graphs and the context."""

_NO_WORK: Final = Work()
_ACTIVITY: Final = frozenset({"sm_active_ratio", "tensor_active_ratio", "dram_active_ratio"})
_OWN: Final = frozenset({"name", "driver", "cuda", "self_cpu_ratio", "self_pss_bytes"})
"""Of a host's reading what is always the real one's: gpumon runs there."""


class SimulatedServer:
    """A `Source` for the GPUs; its engines are polled at `endpoints` like any other.

    Simulated time is zero when the warm-up ends, and then goes with `clock` (monotonic); `wall_clock` dates the start.
    """

    def __init__(
        self,
        scenario: Scenario = DEMO,
        seed: int = 1,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._scenario = scenario
        self._clock = clock
        self._zero_wall_s = wall_clock()
        """Unix time of the simulated time zero: events keep their dates. Set again when the warm-up ends."""
        self._wall_clock = wall_clock
        self._read_s = clock()
        start_s = self.at_s = self._reached_s = -scenario.warm_s
        """Simulated time."""
        started_wall_s = self._zero_wall_s + start_s
        self.engines = tuple(
            SimulatedEngine(actor, seed + at, start_s, started_wall_s, scenario.engine_effects)
            for at, actor in enumerate(scenario.cast)
        )
        runs = tuple(SimulatedRun(run, start_s, started_wall_s) for run in scenario.runs)
        self._strays = {left.gpu: left.work for left in scenario.leftovers}
        processes = tuple(_processes(scenario))
        self.gpus = tuple(
            SimulatedGpu(scenario.chip, index, tuple(process for at, process in processes if at == index))
            for index in range(scenario.gpus)
        )
        self.acts: tuple[SimulatedEngine | SimulatedRun, ...] = (*self.engines, *runs)
        """The engines, then the training runs."""
        self._servers = tuple(LoopbackServer(self._answers(act)) for act in self.acts)
        self._warming: asyncio.Task[None] | None = None
        self.warm = False
        """The warm-up is over, and the servers answer."""
        self.endpoints: tuple[Endpoint, ...] = tuple(
            Endpoint(url=server.url, name=actor.name, engine="vllm", gpus=actor.gpus)
            for server, actor in zip(self._servers, scenario.cast, strict=False)
        )
        """One entry per engine; whoever polls before the warm-up is over waits for its end."""
        self.feeds: tuple[Feed, ...] = tuple(
            run.feed(f"{server.url}/metrics")
            for server, run in zip(self._servers[len(self.engines) :], scenario.runs, strict=True)
        )
        """One entry per training run."""

    def host_meter(self, real: HostMeter) -> HostMeter:
        """The host of the scenario: what this machine does has no part in the play."""
        return SimulatedHost(real, self._scenario.host_effects, lambda: self.at_s)

    def thresholds(self, usual: Thresholds) -> Thresholds:
        """Those of the config; a scenario of idleness is not waited for as long as in earnest."""
        idle_s = self._scenario.idle_s
        return usual if idle_s is None else msgspec.structs.replace(usual, idle_s=idle_s, gpu_idle_s=idle_s)

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
            gpus = tuple(gpu.initialising(monotonic_s) for gpu in self.gpus)
            return Contribution(gpus=gpus, driver=DRIVER, cuda=CUDA)
        self.advance(self._simulated_s())
        for server, act in zip(self._servers, self.acts, strict=True):
            await server.listen(up=act.up)
        return Contribution(gpus=self.readings(self._read_s), driver=DRIVER, cuda=CUDA)

    def readings(self, monotonic_s: float) -> tuple[GpuReading, ...]:
        """The GPUs, as they are after the last `advance`."""
        vram = {engine.actor.name: engine.vram_share for engine in self.engines}
        return tuple(self._reading(_resized(gpu.reading(monotonic_s), vram)) for gpu in self.gpus)

    def _reading(self, reading: GpuReading) -> GpuReading:
        """A GPU's reading with the effects on it."""
        at_s = self.at_s
        mine = [effect for effect in self._scenario.gpu_effects if reading.index in effect.gpus]
        fields: dict[str, object] = dict.fromkeys(self._scenario.unmeasured, NOT_SUPPORTED)
        if fields.keys() >= _ACTIVITY:
            fields["activity_source"] = ""
        # Those that have come since the warm-up: the driver's events begin with the monitor.
        xid = tuple(
            XidEvent(effect.xid, self._zero_wall_s + effect.from_s)
            for effect in mine
            if effect.xid and 0.0 <= effect.from_s <= at_s
        )
        for effect in lasting(mine, at_s):
            if effect.state is GpuState.LOST:
                own = (reading.index, reading.uuid, reading.name, effect.state, reading.monotonic_s, effect.state_text)
                return GpuReading(*own, source=reading.source, xid=xid)
            fields |= effect.figures
            if effect.state is not GpuState.OK:
                fields |= {"state": effect.state, "state_text": effect.state_text}
            if effect.throttle:
                fields["throttle"] = tuple(sorted({*reading.throttle, *effect.throttle}))
                fields["throttle_s"] = _throttled(reading.throttle_s, mine, at_s)
        return msgspec.structs.replace(reading, **{"xid": xid, **fields})

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
        self.at_s = max(self.at_s, to_s)
        for act in self.acts:
            act.advance(self.at_s)
        seconds = self.at_s - self._reached_s
        if seconds >= SHORTEST_S:
            self._reached_s = self.at_s
            self._work_gpus(seconds)

    def _work_gpus(self, seconds: float) -> None:
        now = lasting(self._scenario.gpu_effects, self.at_s)

        def pace(gpu: int) -> Pace:
            return Pace(self.gpus[gpu].clock_share, self._strays.get(gpu, _NO_WORK).busy_ratio)

        works = dict(self._strays)
        for act in self.acts:
            for gpu, work in act.works(pace).items():
                works[gpu] = shared(work, works[gpu]) if gpu in works else work
        for card in self.gpus:
            mine = [effect for effect in now if card.index in effect.gpus]
            clock = min((effect.clock_share for effect in mine), default=1.0)
            limit_w = min((effect.power_limit_w for effect in mine), default=float("inf"))
            card.advance(seconds, works.get(card.index, _NO_WORK), clock, limit_w)

    def _simulated_s(self) -> float:
        """Simulated time now; a long gap between two looks at the clock counts as a pause of the server too."""
        now_s = self._clock()
        gap_s, self._read_s = now_s - self._read_s, now_s
        return self.at_s + min(max(gap_s, 0.0), LONGEST_GAP_S)

    def _answers(self, act: SimulatedEngine | SimulatedRun) -> Callable[[str], Answer | None]:
        def answer(path: str) -> Answer | None:
            self.at_s = self._simulated_s()
            act.advance(self.at_s)
            return SILENCE if act.mute else act.answer(path) if act.up else None

        return answer

    async def _warm_up(self) -> None:
        while self.at_s < 0.0:
            self.advance(min(0.0, self.at_s + SLICE_S))
            await asyncio.sleep(0)
        self._read_s, self._zero_wall_s = self._clock(), self._wall_clock()
        for server in self._servers:
            await server.start()
        self.warm = True


def _processes(scenario: Scenario) -> Iterator[tuple[int, GpuProcess]]:
    """GPU and process of each worker of an engine, named as vLLM names them, of what else runs, and of the trainers."""
    pid = FIRST_PID
    for actor in scenario.cast:
        for rank, gpus in enumerate(actor.ranks):
            for worker, at in enumerate(gpus):
                # The engine core holds the GPU where there is but one.
                title = "VLLM::Worker" if len(gpus) > 1 else "VLLM::EngineCore"
                title += f"_DP{rank}" if len(actor.ranks) > 1 else ""
                title += f"_TP{worker}" if len(gpus) > 1 else ""
                vram_bytes = actor.gpu_memory_utilization * actor.chip.memory_bytes + GRAPHS_BYTES
                yield (
                    at,
                    GpuProcess(
                        pid,
                        f"sim:{title}",
                        actor.user,
                        vram_bytes,
                        actor.container,
                        engine=actor.name,
                        command=actor.command,
                        pod=actor.pod,
                    ),
                )
                pid += 1
    for left in scenario.leftovers:
        yield left.gpu, GpuProcess(pid, left.name, left.user, left.vram_bytes, command=left.command)
        pid += 1
    for run in scenario.runs:
        for at in run.gpus:
            yield at, GpuProcess(pid, "sim:python", "simulated", run.vram_bytes, engine=run.name, command=run.command)
            pid += 1


def _resized(reading: GpuReading, vram: dict[str, float]) -> GpuReading:
    """The processes with what they hold now: `vram` has the share by engine; one with nothing has ended."""
    if all(vram.get(process.engine, 1.0) == 1.0 for process in reading.processes):
        return reading
    left = tuple(
        msgspec.structs.replace(process, vram_bytes=share * (number(process.vram_bytes) or 0.0))
        for process in reading.processes
        if (share := vram.get(process.engine, 1.0)) > 0.0
    )
    used_bytes = sum(number(process.vram_bytes) or 0.0 for process in left)
    return msgspec.structs.replace(reading, processes=left, vram_used_bytes=used_bytes)


def _throttled(counted_s: dict[str, float], effects: Iterable[GpuEffect], at_s: float) -> dict[str, float]:
    """The driver's counters: they run as long as a cause lasts. An effect without a beginning is an hour old."""
    counters = dict(counted_s)
    for effect in effects:
        seconds = min(at_s, effect.to_s) - max(effect.from_s, -3600.0)
        for cause in effect.throttle:
            if cause in counters:
                counters[cause] += max(0.0, seconds)
    return counters


class HostMeter(Protocol):
    """Reads the machine and gpumon's own cost."""

    def read(self, pids: tuple[int, ...]) -> HostReading:
        """The newest figures; `pids` are gpumon's child processes."""


class SimulatedHost:
    """The host of a scenario: its load is simulated, gpumon's own cost is the real one's."""

    def __init__(self, real: HostMeter, effects: tuple[HostEffect, ...], at_s: Callable[[], float]) -> None:
        self._real, self.at_s = real, at_s
        self._effects = (QUIET_HOST, *effects)

    def read(self, pids: tuple[int, ...]) -> HostReading:
        """The figures of this moment; of two effects that give one the later counts."""
        real = self._real.read(pids)
        fields = {field: getattr(real, field) for field in _OWN}
        for effect in lasting(self._effects, self.at_s()):
            for field in HostReading.__struct_fields__:
                value = getattr(effect.reading, field)
                if field not in _OWN and not isinstance(value, Missing) and value != ():
                    fields[field] = value
        return msgspec.structs.replace(HostReading(), **{**fields, "name": f"{real.name} (simulated load)"})
