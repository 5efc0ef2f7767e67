"""The loads of a host between two readings of its pages, put into its snapshot."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from gpumon.readings.flat import replace_fields, value_of
from gpumon.readings.fleet import EngineLoad, GpuLoad, HostFrame
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Engine, Gpu, Snapshot

ThingT = TypeVar("ThingT", Engine, Gpu)


def with_loads(snapshot: Snapshot, host: HostFrame) -> Snapshot:
    """The snapshot with the loads that `host` has. What it lacks a figure of stays so: why is said there."""
    engines = [_with_load(engine, host.engine_loads.get(engine.key)) for engine in snapshot.engines]
    gpus = [_with_load(gpu, host.gpu_loads.get(gpu.reading.uuid)) for gpu in snapshot.gpus]
    return msgspec.structs.replace(snapshot, engines=tuple(engines), gpus=tuple(gpus))


def _with_load(thing: ThingT, load: EngineLoad | GpuLoad | None) -> ThingT:
    """The engine or GPU with its load of now, whose fields have the names of its own."""
    if load is None:
        return thing
    changes = {}
    for field in load.__struct_fields__:
        value = getattr(load, field)
        if value is not None and not isinstance(value_of(thing, field), Missing):
            changes[field] = value
    return replace_fields(thing, changes)
