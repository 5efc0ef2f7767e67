"""Readings of engines that served and do not answer, as their rows show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gpumon.readings.frame import (
    DRAINS_CONNECTIONS,
    DRAINS_SINCE,
    LAST_ANSWER,
    Departure,
    EndpointState,
    EnginePart,
    EngineReading,
    PartsReport,
)
from gpumon.sources.last_seen.around import Tick
from gpumon.sources.last_seen.departures import restart_command
from gpumon.sources.last_seen.records import KnownEngine
from gpumon.triage.engine_down import ended_text

NEVER_SERVED: Final = "never seen serving: check that the URL is right and the server was started"


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
        DRAINS_CONNECTIONS: str(tick.around.closed.get(origin.id, 0)),
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
