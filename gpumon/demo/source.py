"""The simulated server as a source: GPUs, the host, and engines that answer on loopback ports."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.config.schema import Endpoint, Feed
from gpumon.demo.gpus import AverageWork, GpuPace, SimulatedGpu, combine_programs
from gpumon.demo.scenario import (
    MUTE_AFTER_S,
    Actor,
    GpuEffect,
    HostEffect,
    Leftover,
    Program,
    Scenario,
    effects_at,
)
from gpumon.demo.scenarios import DEMO, QUIET_HOST
from gpumon.demo.server import SILENCE, LoopbackServer, PageAnswer
from gpumon.demo.serving import SimulatedEngine
from gpumon.demo.traffic import Handover
from gpumon.demo.training import SimulatedRun
from gpumon.readings.frame import GpuProcess, GpuReading, GpuState, HostReading, PartState, XidEvent
from gpumon.readings.goals import Goals
from gpumon.readings.missing import NOT_SUPPORTED, WARMING_UP, Missing, Reading, number
from gpumon.sources.last_seen.processes.process_state import ProcessState, ServerWork
from gpumon.sources.last_seen.records import EngineOrigin, ProcessId, ProcessPart
from gpumon.sources.source import Contribution, HostMeter
from gpumon.specs.units import GIB
from gpumon.triage.thresholds import Thresholds

DRIVER = "580.95.05 (simulated)"
CUDA = "13.0"
SLICE_S = 4.0
"""Simulated seconds of the warm-up worked off at a time: some milliseconds, between which the screen paints."""
LONGEST_GAP_S = 30.0
"""After a longer pause of the monitor (suspended, debugger) the simulated server has paused as well."""
SHORTEST_S = 0.1
"""Two readings closer than this are one, as with the real activity counters."""
FIRST_SERVER_PID = 9_500_001
"""Pid of the first engine's API server."""
FIRST_PID = 9_000_001
"""Above the largest pid that Linux can give (2^22): no real process is meant."""
GRAPHS_BYTES = 0.45 * GIB
"""Memory of a vLLM worker beside the share that it was given: CUDA graphs and the context."""

_LONGEST_AGO_S: Final = -3600.0
"""Simulated time at which an effect without a beginning began, for the driver's counters."""
_NO_WORK: Final = AverageWork()
_ACTIVITY: Final = frozenset({"sm_active_ratio", "tensor_active_ratio", "dram_active_ratio"})
"""The activity figures of a `GpuReading`."""
_REAL_FIELDS: Final = frozenset({"name", "driver", "cuda", "self_cpu_ratio", "self_pss_bytes"})
"""Fields of a host's reading that are always the real host's: gpumon runs there."""


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
        """Monotonic time at which `clock` was read last."""
        start_s = -scenario.warm_s
        self.at_s = start_s
        """Simulated time."""
        self._reached_s = start_s
        """Simulated time up to which the GPUs have worked."""
        started_wall_s = self._zero_wall_s + start_s
        self.engines = _engines(scenario, seed, start_s, started_wall_s)
        runs = tuple(SimulatedRun(run, start_s, started_wall_s) for run in scenario.runs)
        processes = tuple(_processes(scenario, self.engines))
        self._running = {running.process.pid: running for running in processes}
        self.gpus = _gpus(scenario, processes)
        self.acts: tuple[SimulatedEngine | SimulatedRun, ...] = (*self.engines, *runs)
        """The engines, then the training runs."""
        self.ports = tuple(_ports(self.engines, runs))
        """Port of each endpoint, then of each feed."""
        self._last_readings: dict[int, GpuReading] = {}
        """Index -> newest reading of each GPU whose calls return."""
        self._servers = tuple(LoopbackServer(self._answers(port)) for port in self.ports)
        self._warming: asyncio.Task[None] | None = None
        self.warm = False
        """The warm-up is over, and the servers answer."""
        self.in_past = False
        """A past is played, of which gpumon has seen nothing."""
        self.past_to_s = 0.0
        """Simulated time at which that past ends: pictures are of a time after zero, when there is trouble."""
        urls = [server.url for server in self._servers]
        self.endpoints = _endpoints(scenario, urls)
        """One entry per engine; whoever polls before the warm-up is over waits for its end."""
        self.feeds = _feeds(scenario, urls[len(self.endpoints) :])
        """One entry per training run."""

    def host_meter(self, real: HostMeter) -> HostMeter:
        """The host of the scenario: what this machine does has no part in the play."""
        return SimulatedHost(real, self._scenario.host_effects, lambda: self.at_s, lambda: self.in_past)

    def thresholds(self, usual: Thresholds) -> Thresholds:
        """The thresholds of the config; a scenario of idleness is not waited for as long as in earnest."""
        idle_s = self._scenario.idle_s
        if idle_s is None:
            return usual
        return msgspec.structs.replace(usual, idle_s=idle_s, gpu_idle_s=idle_s)

    def goals(self, usual: Goals) -> Goals:
        """The goals of the config, or those that a scenario is about."""
        if self._scenario.goals == Goals():
            return usual
        return self._scenario.goals

    async def start(self) -> None:
        """Begin the warm-up, unless a past was played in its place; the servers answer after it."""
        if self.warm:
            return
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
            gpus = tuple(gpu.initialising_reading(monotonic_s) for gpu in self.gpus)
            return Contribution(gpus=gpus, driver=DRIVER, cuda=CUDA)
        self.advance(self.now_s())
        for server, port in zip(self._servers, self.ports, strict=True):
            await server.listen(up=port.up)
        return self.contribution(self._read_s)

    def process_state(self) -> ProcessState:
        """Known state of the engines' processes."""
        urls = {endpoint.name: endpoint.url for endpoint in self.endpoints}
        servers: dict[str, EngineOrigin] = {}
        listening: set[str] = set()
        ended: set[ProcessId] = set()
        states: dict[ProcessId, PartState] = {}
        closed: dict[ProcessId, int] = {}
        works: dict[ProcessId, ServerWork] = {}
        for server_pid, engine in enumerate(self.engines, FIRST_SERVER_PID):
            origin = self._origin(engine, server_pid)
            if engine.ended:
                ended.add(origin.id)
                continue
            url = urls[engine.actor.endpoint]
            servers[url] = origin
            ended.update(part.id for part in origin.parts if self._has_left(engine, part.pid))
            if engine.is_stopped:
                states[origin.id] = PartState.STOPPED
            if engine.starts:
                ended.add((origin.pid, engine.life - 1))
                works[origin.id] = ServerWork(engine.read_bytes_per_s, engine.cpu_cores)
            elif engine.closed:
                closed[origin.id] = engine.open_connections
            else:
                listening.add(url)
        return ProcessState(
            servers=servers,
            listening=frozenset(listening),
            ended=frozenset(ended),
            states=states,
            closed=closed,
            works=works,
        )

    def _origin(self, engine: SimulatedEngine, server_pid: int) -> EngineOrigin:
        """The processes of an engine, as they began."""
        parts = [ProcessPart("API server", server_pid, engine.life)]
        for pid, running in self._running.items():
            if running.engine is engine:
                title = running.process.name.partition("::")[2]
                role = title.replace("EngineCore", "engine core").replace("Worker", "worker").replace("_", " ")
                parts.append(ProcessPart(role, pid, engine.life))
        command = engine.actor.command
        return EngineOrigin(
            pid=server_pid,
            started=engine.life,
            gpu_pids=tuple(part.pid for part in parts[1:]),
            command=command,
            parts=tuple(parts),
        )

    def _has_left(self, engine: SimulatedEngine, pid: int) -> bool:
        """Whether this process of an engine is gone while others of it live."""
        running = self._running.get(pid)
        return running is not None and running.gpu in engine.left_gpus

    def readings(self, monotonic_s: float) -> tuple[GpuReading, ...]:
        """The GPUs, as they are after the last `advance`."""
        readings = []
        for gpu in self.gpus:
            reading = self._with_processes(gpu.reading(monotonic_s))
            readings.append(self._unless_mute(self._with_effects(reading)))
        return tuple(readings)

    def _unless_mute(self, reading: GpuReading) -> GpuReading:
        """A GPU's reading; while the driver's calls for it do not return, the last one before that."""
        for effect in effects_at(self._scenario.gpu_effects, self.at_s):
            if effect.mute and reading.index in effect.gpus:
                last = self._last_readings.get(reading.index, reading)
                if self.at_s - effect.from_s < MUTE_AFTER_S:
                    return last
                return msgspec.structs.replace(last, state=GpuState.MUTE, state_text="nvmlDeviceGetPowerUsage")
        self._last_readings[reading.index] = reading
        return reading

    def _with_processes(self, reading: GpuReading) -> GpuReading:
        """A GPU's reading with its processes as they are now: one that holds nothing has ended, or not begun."""
        processes: list[GpuProcess] = []
        used_bytes = 0.0
        for process in reading.processes:
            running = self._running[process.pid]
            share = running.vram_share(self.at_s)
            if share > 0.0:
                vram_bytes = share * (number(process.vram_bytes) or 0.0) + running.leaked_bytes(self.at_s)
                cores = running.cpu_cores(self.at_s)
                used_bytes += vram_bytes
                if not running.is_hidden:
                    processes.append(msgspec.structs.replace(process, vram_bytes=vram_bytes, cpu_ratio=cores))
        return msgspec.structs.replace(reading, processes=tuple(processes), vram_used_bytes=used_bytes)

    def _with_effects(self, reading: GpuReading) -> GpuReading:
        """A GPU's reading with the effects on it; of a lost GPU nothing is read but what tells which one it is."""
        effects = [effect for effect in self._scenario.gpu_effects if reading.index in effect.gpus]
        xid = self._xids(effects)
        fields: dict[str, object] = {"xid": xid, **dict.fromkeys(self._scenario.unmeasured, NOT_SUPPORTED)}
        if fields.keys() >= _ACTIVITY:  # nothing measures activity there
            fields["activity_source"] = ""
        for effect in effects_at(effects, self.at_s):
            if effect.state is GpuState.LOST:
                return GpuReading(
                    index=reading.index,
                    uuid=reading.uuid,
                    name=reading.name,
                    state=effect.state,
                    monotonic_s=reading.monotonic_s,
                    state_text=effect.state_text,
                    source=reading.source,
                    xid=xid,
                )
            fields |= effect.figures
            if effect.nvlinks_down:
                fields["nvlinks_down"] = effect.nvlinks_down
                fields["nvlinks_active"] = (number(reading.nvlinks) or 0.0) - len(effect.nvlinks_down)
            if effect.own_namespace:
                fields["own_namespace"] = True
            if effect.state is not GpuState.OK:
                fields["state"] = effect.state
                fields["state_text"] = effect.state_text
            if effect.throttle:
                fields["throttle"] = tuple(sorted({*reading.throttle, *effect.throttle}))
                fields["throttle_s"] = _with_throttle_time(reading.throttle_s, effects, self.at_s)
        return msgspec.structs.replace(reading, **fields)

    def _xids(self, effects: Iterable[GpuEffect]) -> tuple[XidEvent, ...]:
        """Xid errors that have come since the warm-up: the driver's events begin with the monitor."""
        return tuple(
            XidEvent(effect.xid, self._zero_wall_s + effect.from_s)
            for effect in effects
            if effect.xid and 0.0 <= effect.from_s <= self.at_s
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
        self.at_s = max(self.at_s, to_s)
        for act in self.acts:
            act.advance(self.at_s)
        seconds = self.at_s - self._reached_s
        if seconds >= SHORTEST_S:
            self._reached_s = self.at_s
            self._work_gpus(seconds)

    def _work_gpus(self, seconds: float) -> None:
        """Let the GPUs work for so many seconds, under what slows them down now."""
        effects = effects_at(self._scenario.gpu_effects, self.at_s)
        works = self._works(seconds)
        for gpu in self.gpus:
            on_gpu = [effect for effect in effects if gpu.index in effect.gpus]
            clock_share = min((effect.clock_share for effect in on_gpu), default=1.0)
            limit_w = min((effect.power_limit_w for effect in on_gpu), default=math.inf)
            gpu.advance(seconds, works.get(gpu.index, _NO_WORK), clock_share, limit_w)

    def _works(self, seconds: float) -> dict[int, AverageWork]:
        """Work of each GPU in the last seconds, by its index: that of engines, of runs and of what else is there."""
        works = {leftover.gpu: leftover.work for leftover in effects_at(self._scenario.leftovers, self.at_s)}
        for program in self._scenario.programs:
            for gpu in program.gpus:
                stage = program.stage_at(gpu, self.at_s)
                if stage is not None:
                    works[gpu] = stage.work_between(self.at_s - seconds, self.at_s)
        leftover_busy_ratios = {gpu: work.busy_ratio for gpu, work in works.items()}

        def pace(gpu: int) -> GpuPace:
            return GpuPace(self.gpus[gpu].clock_share, leftover_busy_ratios.get(gpu, 0.0))

        for act in self.acts:
            for gpu, work in act.works(pace).items():
                if gpu in works:
                    works[gpu] = combine_programs(work, works[gpu])
                else:
                    works[gpu] = work
        return works

    def now_s(self) -> float:
        """Simulated time now; a long gap between two looks at the clock counts as a pause of the server too."""
        now_s = self._clock()
        gap_s = now_s - self._read_s
        self._read_s = now_s
        return self.at_s + min(max(gap_s, 0.0), LONGEST_GAP_S)

    def _answers(self, port: SimulatedEndpoint) -> Callable[[str], PageAnswer | None]:
        """The function that answers requests at this endpoint."""

        def answer(path: str) -> PageAnswer | None:
            self.at_s = self.now_s()
            port.advance(self.at_s)
            if port.mute:
                return SILENCE
            if port.up:
                return port.answer(path)
            return None

        return answer

    async def _warm_up(self) -> None:
        """Play the time before zero, giving way to other tasks, then open the servers."""
        while self.at_s < 0.0:
            self.advance(min(0.0, self.at_s + SLICE_S))
            await asyncio.sleep(0)
        self.date_zero()
        await self.open()

    def date_zero(self) -> tuple[float, float]:
        """Let simulated time zero be now; returns the monotonic and the Unix time of it."""
        self._read_s = self._clock()
        self._zero_wall_s = self._wall_clock()
        return self._read_s, self._zero_wall_s

    async def open(self) -> None:
        """Let the servers answer: simulated time goes with the clock from now on."""
        for server in self._servers:
            await server.start()
        self.in_past = False
        self.warm = True

    def contribution(self, monotonic_s: float) -> Contribution:
        """The GPUs, as they are after the last `advance`."""
        return Contribution(gpus=self.readings(monotonic_s), driver=DRIVER, cuda=CUDA)


class SimulatedEndpoint:
    """One port: the engine or training run that answers there, and engines that take its place later."""

    def __init__(self, acts: tuple[SimulatedEngine | SimulatedRun, ...]) -> None:
        self._acts = acts

    @property
    def _act(self) -> SimulatedEngine | SimulatedRun:
        """The one that listens; the first one where none does."""
        for act in self._acts:
            if act.up:
                return act
        return self._acts[0]

    @property
    def up(self) -> bool:
        """Somebody listens."""
        return self._act.up and not self._act.closed

    @property
    def mute(self) -> bool:
        """Connections are taken, and nothing is answered."""
        return self._act.mute

    def advance(self, to_s: float) -> None:
        """Let all of them work until `to_s`."""
        for act in self._acts:
            act.advance(to_s)

    def answer(self, path: str) -> PageAnswer:
        """Answer to GET `path` by the engine or run that listens."""
        return self._act.answer(path)


def _engines(scenario: Scenario, seed: int, start_s: float, started_wall_s: float) -> tuple[SimulatedEngine, ...]:
    """The engines of a scenario, each with a seed of its own."""
    handovers = {actor.hands_over_to: Handover() for actor in scenario.cast if actor.hands_over_to}
    return tuple(
        SimulatedEngine(
            actor,
            engine_seed,
            start_s,
            started_wall_s,
            scenario.engine_effects,
            scenario.engine_conditions,
            handovers,
        )
        for engine_seed, actor in enumerate(scenario.cast, seed)
    )


def _gpus(scenario: Scenario, processes: Sequence[SimulatedProcess]) -> tuple[SimulatedGpu, ...]:
    """The GPUs of a scenario with the processes on them."""
    on_gpu: dict[int, list[GpuProcess]] = {}
    for running in processes:
        on_gpu.setdefault(running.gpu, []).append(running.process)
    return tuple(SimulatedGpu(scenario.chip, index, tuple(on_gpu.get(index, ()))) for index in range(scenario.gpus))


def _endpoints(scenario: Scenario, urls: Sequence[str]) -> tuple[Endpoint, ...]:
    """An endpoint for each engine that has a port of its own; `urls` begins with theirs."""
    actors = [actor for actor in scenario.cast if not actor.port_of]
    return tuple(
        Endpoint(url=url, name=actor.name, engine="vllm", gpus=actor.gpus)
        for url, actor in zip(urls, actors, strict=False)
    )


def _feeds(scenario: Scenario, urls: Sequence[str]) -> tuple[Feed, ...]:
    """A feed for each training run."""
    return tuple(run.feed(f"{url}/metrics") for url, run in zip(urls, scenario.runs, strict=True))


def _ports(engines: tuple[SimulatedEngine, ...], runs: tuple[SimulatedRun, ...]) -> Iterator[SimulatedEndpoint]:
    """The endpoints of engines that have a port of their own, with those that share it, and of training runs."""
    for engine in engines:
        if not engine.actor.port_of:
            followers = [follower for follower in engines if follower.actor.port_of == engine.actor.name]
            yield SimulatedEndpoint((engine, *followers))
    for run in runs:
        yield SimulatedEndpoint((run,))


class SimulatedProcess(NamedTuple):
    """A process on a GPU, and what it belongs to."""

    gpu: int
    process: GpuProcess
    engine: SimulatedEngine | None = None
    leftover: Leftover | None = None
    program: Program | None = None

    def vram_share(self, at_s: float) -> float:
        """Share of its memory that it holds now: 0 where there is no such process."""
        if self.engine is not None:
            return self.engine.vram_share_of(self.gpu)
        if self.leftover is not None and not effects_at((self.leftover,), at_s):
            return 0.0
        if self.program is not None:
            lasts = bool(effects_at((self.program,), at_s)) and at_s < self.program.ended.get(self.gpu, math.inf)
            return float(lasts)
        return 1.0

    def leaked_bytes(self, at_s: float) -> float:
        """Memory by which it has grown since it began."""
        if self.leftover is None or not self.leftover.leak_bytes_per_s:
            return 0.0
        return self.leftover.leak_bytes_per_s * max(0.0, at_s - max(0.0, self.leftover.from_s))

    @property
    def is_hidden(self) -> bool:
        """Whether no list of processes has it."""
        owner = self.leftover or self.program
        return owner is not None and owner.hidden

    def cpu_cores(self, at_s: float) -> Reading:
        """CPU cores that it keeps busy at a moment."""
        if self.engine is not None:
            return self.engine.cpu_cores
        if self.leftover is not None:
            return min(1.0, self.leftover.work.busy_ratio)
        if self.program is not None:
            stage = self.program.stage_at(self.gpu, at_s)
            return 0.0 if stage is None else stage.cores
        return 1.0


def _processes(scenario: Scenario, engines: tuple[SimulatedEngine, ...]) -> Iterator[SimulatedProcess]:
    """Each worker of an engine, named as vLLM names them, then what else runs, and the trainers."""
    pids = itertools.count(FIRST_PID)
    for engine in engines:
        for rank, gpus in enumerate(engine.actor.ranks):
            for worker, gpu in enumerate(gpus):
                yield SimulatedProcess(gpu, _worker(engine.actor, rank, worker, next(pids)), engine)
    for leftover in scenario.leftovers:
        process = GpuProcess(next(pids), leftover.name, leftover.user, leftover.vram_bytes, command=leftover.command)
        yield SimulatedProcess(leftover.gpu, process, leftover=leftover)
    for program in scenario.programs:
        for gpu in program.gpus:
            process = GpuProcess(next(pids), program.name, program.user, program.vram_bytes, command=program.command)
            yield SimulatedProcess(gpu, process, program=program)
    for run in scenario.runs:
        for gpu in run.gpus:
            process = GpuProcess(
                next(pids), "sim:python", "simulated", run.vram_bytes, engine=run.name, command=run.command
            )
            yield SimulatedProcess(gpu, process)


def _worker(actor: Actor, rank: int, worker: int, pid: int) -> GpuProcess:
    """A process of an engine; the engine core holds the GPU where there is but one."""
    several = len(actor.ranks[rank]) > 1
    title = "VLLM::Worker" if several else "VLLM::EngineCore"
    if len(actor.ranks) > 1:
        title += f"_DP{rank}"
    if several:
        title += f"_TP{worker}"
    return GpuProcess(
        pid=pid,
        name=f"sim:{title}",
        user=actor.user,
        vram_bytes=actor.gpu_memory_utilization * actor.chip.memory_bytes + GRAPHS_BYTES,
        container=actor.container,
        engine=actor.endpoint,
        command=title if actor.command_hidden else actor.command,
        pod=actor.pod,
    )


def _with_throttle_time(counted_s: dict[str, float], effects: Iterable[GpuEffect], at_s: float) -> dict[str, float]:
    """The driver's counters of throttling by cause, in seconds, with the time that the effects have lasted."""
    counters = dict(counted_s)
    for effect in effects:
        seconds = min(at_s, effect.to_s) - max(effect.from_s, _LONGEST_AGO_S)
        for cause in effect.throttle:
            if cause in counters:
                counters[cause] += max(0.0, seconds)
    return counters


class SimulatedHost:
    """The host of a scenario: its load is simulated, gpumon's own cost is the real one's."""

    def __init__(
        self,
        real: HostMeter,
        effects: tuple[HostEffect, ...],
        at_s: Callable[[], float],
        in_past: Callable[[], bool] = lambda: False,
    ) -> None:
        self._real = real
        self._at_s = at_s
        self._in_past = in_past
        self._effects = (QUIET_HOST, *effects)
        self._before: HostReading | None = None
        """The answer of `_real_reading_of_past`; None: it was not needed yet."""

    def read(self, pids: tuple[int, ...]) -> HostReading:
        """The figures of this moment; where two effects give the same figure, the later one counts."""
        real = self._real_reading_of_past(pids) if self._in_past() else self._real.read(pids)
        fields = {field: getattr(real, field) for field in _REAL_FIELDS}
        for effect in effects_at(self._effects, self._at_s()):
            for field in HostReading.__struct_fields__:
                value = getattr(effect.reading, field)
                if field not in _REAL_FIELDS and not isinstance(value, Missing) and value != ():
                    fields[field] = value
            if effect.leak_bytes_per_s:
                grown = fields["memory_used_bytes"] + effect.leak_bytes_per_s * (self._at_s() - effect.from_s)
                fields["memory_used_bytes"] = min(grown, fields["memory_total_bytes"])
        return msgspec.structs.replace(HostReading(), **{**fields, "name": f"{real.name} (simulated load)"})

    def _real_reading_of_past(self, pids: tuple[int, ...]) -> HostReading:
        """The real host's figures for a moment of the past that is played: read once, without gpumon's own cost."""
        if self._before is None:
            real = self._real.read(pids)
            self._before = msgspec.structs.replace(real, self_cpu_ratio=WARMING_UP, self_pss_bytes=WARMING_UP)
        return self._before
