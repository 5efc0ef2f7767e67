"""The loads of a host between two readings of its pages, put into its snapshot."""

from __future__ import annotations

import msgspec

from gpumon.readings.flat import replace_fields
from gpumon.readings.fleet import EngineLoad, GpuLoad, HostFrame
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Engine, Gpu, Snapshot


def with_loads(snapshot: Snapshot, host: HostFrame) -> Snapshot:
    """The snapshot with the loads that `host` has. What it lacks a figure of stays so: why is said there."""
    engines = []
    for engine in snapshot.engines:
        load = host.engine_loads.get(engine.key)
        engines.append(engine if load is None else _engine_with_load(engine, load))
    gpus = []
    for gpu in snapshot.gpus:
        gpu_load = host.gpu_loads.get(gpu.reading.uuid)
        gpus.append(gpu if gpu_load is None else _gpu_with_load(gpu, gpu_load))
    return msgspec.structs.replace(snapshot, engines=tuple(engines), gpus=tuple(gpus))


def _engine_with_load(engine: Engine, load: EngineLoad) -> Engine:
    """The engine with its load of now."""
    figures = {
        "running": (engine.load.running, load.running),
        "waiting": (engine.load.waiting, load.waiting),
        "kv_usage_ratio": (engine.load.kv_usage_ratio, load.kv_usage_ratio),
        "decode_tokens_per_s": (engine.rates.decode_tokens_per_s, load.decode_tokens_per_s),
    }
    changes = {
        name: now for name, (before, now) in figures.items() if now is not None and not isinstance(before, Missing)
    }
    return replace_fields(engine, changes)


def _gpu_with_load(gpu: Gpu, load: GpuLoad) -> Gpu:
    """The GPU with its load of now."""
    changes = {}
    if load.busy_ratio is not None and not isinstance(gpu.reading.busy_ratio, Missing):
        changes["busy_ratio"] = load.busy_ratio
    if load.vram_used_bytes is not None and not isinstance(gpu.reading.vram_used_bytes, Missing):
        changes["vram_used_bytes"] = load.vram_used_bytes
    if load.power_w is not None and not isinstance(gpu.power_w, Missing):
        changes["power_w"] = load.power_w
    return replace_fields(gpu, changes)
