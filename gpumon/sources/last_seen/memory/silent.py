"""Readings of engines that give none: those that served and do not answer, and those that start."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from gpumon.readings.frame import (
    DRAINS_CONNECTIONS,
    DRAINS_SINCE,
    LAST_ANSWER,
    START_CPU,
    START_PID,
    START_READ,
    START_VRAM,
    STARTS,
    Departure,
    EndpointState,
    EnginePart,
    EngineReading,
    GpuReading,
    PartsReport,
    Start,
)
from gpumon.readings.missing import number
from gpumon.sources.last_seen.causes import restart_command
from gpumon.sources.last_seen.processes.process_state import ServerWork, Tick
from gpumon.sources.last_seen.records import EngineOrigin, KnownEngine
from gpumon.triage.engine_down import ended_text, starting_text

NEVER_SERVED: Final = "never seen serving: check that the URL is right and the server was started"
_LOADING_BYTES_PER_S: Final = 20e6
"""Disk reads or growth of VRAM from which on an engine loads its weights: a slow network mount reaches that."""
_COMPILING_CORES: Final = 0.5
"""CPU cores that a server keeps busy while it compiles kernels; one that waits for others takes none."""
VRAM_S: Final = 10.0
"""Seconds over which the growth of a starting engine's VRAM is taken."""


def reading_without_answer(record: KnownEngine, reading: EngineReading) -> EngineReading:
    """The reading of an engine that served and does not answer: named as it was, with when it answered last."""
    if not reading.ranks:
        reading = msgspec.structs.replace(
            record.reading, state=reading.state, fault=reading.fault, monotonic_s=reading.monotonic_s, ranks=()
        )
    return msgspec.structs.replace(reading, info={**reading.info, LAST_ANSWER: f"{record.served_wall_s:.0f}"})


def draining_reading(record: KnownEngine, reading: EngineReading, tick: Tick) -> EngineReading:
    """The reading of an engine that has closed its port while its process goes on."""
    origin = record.origin
    reading = reading_without_answer(record, reading)
    info = {
        **reading.info,
        DRAINS_SINCE: f"{record.closed_wall_s:.0f}",
        DRAINS_CONNECTIONS: str(tick.processes.closed.get(origin.id, 0)),
    }
    server = EnginePart("server", origin.pid)
    report = PartsReport((server,), listens=False, restart=restart_command(origin), command=origin.relaunch)
    return msgspec.structs.replace(reading, state=EndpointState.DRAINING, fault="", info=info, parts=report)


def long_gone_reading(reading: EngineReading, departure: Departure) -> EngineReading:
    """The row of an endpoint of the config whose end is old: it has no verdict any more."""
    return msgspec.structs.replace(
        reading, fault=f"{ended_text(departure)}; take it out of the config if it does not come back"
    )


def never_served_reading(reading: EngineReading) -> EngineReading:
    """An endpoint of the config at which nothing listens, and at which no engine was ever seen."""
    if reading.state is not EndpointState.REFUSED or reading.found_by == "discovery":
        return reading
    return msgspec.structs.replace(reading, fault=f"{reading.fault}; {NEVER_SERVED}")


def without_taken_gpus(readings: Sequence[EngineReading]) -> tuple[EngineReading, ...]:
    """The readings, in which an engine that has ended, or half of it, is not on a GPU any more that another took."""
    in_use: set[str] = set()
    for reading in readings:
        if not _has_left(reading):
            in_use.update(reading.gpus)
    shown = []
    for reading in readings:
        if _has_left(reading) and not in_use.isdisjoint(reading.gpus):
            free = tuple(uuid for uuid in reading.gpus if uuid not in in_use)
            reading = msgspec.structs.replace(reading, gpus=free)
        shown.append(reading)
    return tuple(shown)


def _has_left(reading: EngineReading) -> bool:
    """Whether nothing of an engine may be on its GPUs any more: it has ended, or a process of it is gone."""
    return reading.state is EndpointState.DOWN or (reading.parts is not None and reading.parts.listens)


class StartingServers:
    """Words for the rows of servers that start; it remembers how much VRAM they held in the last seconds."""

    def __init__(self) -> None:
        self._vram_samples: dict[str, deque[tuple[float, float]]] = {}
        """URL -> monotonic time and bytes of VRAM, of the last `VRAM_S`."""

    def keep_only(self, urls: set[str]) -> None:
        """Forget the servers at all other URLs."""
        for url in self._vram_samples.keys() - urls:
            del self._vram_samples[url]

    def starting_reading(
        self, reading: EngineReading, records: Sequence[KnownEngine], gpus: Sequence[GpuReading], tick: Tick
    ) -> EngineReading | None:
        """The reading of a server that runs and does not listen yet; None where there is no such process.

        `records`: the engines that served at its URL. A process that served is not starting: it closed its port, or
        hangs.
        """
        processes = tick.processes
        origin = processes.servers.get(reading.url)
        if origin is None or origin.id in processes.ended or reading.url in processes.listening:
            return None
        if reading.state not in (EndpointState.REFUSED, EndpointState.STARTING):
            return None
        if any(record.origin.id == origin.id for record in records):
            return None
        info = {**reading.info, **self._start_info(reading.url, origin, gpus, tick)}
        model = records[0].reading.model if not reading.model and records else reading.model
        return msgspec.structs.replace(
            reading, state=EndpointState.STARTING, info=info, model=model, fault=starting_text(info)
        )

    def _start_info(self, url: str, origin: EngineOrigin, gpus: Sequence[GpuReading], tick: Tick) -> dict[str, str]:
        """Work of a starting server, as `info` of its reading has it."""
        work = tick.processes.works.get(origin.id, ServerWork())
        vram_bytes = _vram_bytes(origin, gpus)
        growth_bytes_per_s = 0.0 if vram_bytes is None else self._vram_growth(url, vram_bytes, tick.now_s)
        info = {STARTS: _start_phase(work, growth_bytes_per_s).value, START_PID: str(origin.pid)}
        figures = {START_READ: work.read_bytes_per_s, START_CPU: work.cpu_cores, START_VRAM: vram_bytes}
        for name, value in figures.items():
            if value is not None:
                info[name] = f"{value:.3g}"
        return info

    def _vram_growth(self, url: str, vram_bytes: float, now_s: float) -> float:
        """Growth of a server's VRAM over the last `VRAM_S`, in bytes/s; 0 at its first sample, which this notes."""
        samples = self._vram_samples.setdefault(url, deque())
        samples.append((now_s, vram_bytes))
        while now_s - samples[0][0] > VRAM_S:
            samples.popleft()
        oldest_s, oldest_bytes = samples[0]
        if now_s > oldest_s:
            return (vram_bytes - oldest_bytes) / (now_s - oldest_s)
        return 0.0


def _vram_bytes(origin: EngineOrigin, gpus: Sequence[GpuReading]) -> float | None:
    """VRAM that a server's processes hold on all GPUs, in bytes; None where none is known."""
    sizes = []
    for gpu in gpus:
        for process in gpu.processes:
            size = number(process.vram_bytes)
            if size is not None and process.pid in origin.gpu_pids and process.type != "graphics":
                sizes.append(size)
    if sizes:
        return sum(sizes)
    return None


def _start_phase(work: ServerWork, vram_bytes_per_s: float) -> Start:
    """Phase of a starting server, by its disk reads, VRAM growth and CPU."""
    if max(work.read_bytes_per_s or 0.0, vram_bytes_per_s) >= _LOADING_BYTES_PER_S:
        return Start.LOADING_WEIGHTS
    if (work.cpu_cores or 0.0) >= _COMPILING_CORES:
        return Start.COMPILING
    return Start.STARTING
