"""The snapshot of a host that nothing new is known of: only what does not age is left in it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from gpumon.efficiency.served import all_missing
from gpumon.readings.flat import flat_fields, replace_fields
from gpumon.readings.frame import GpuState, HostReading
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Engine, Gpu, Group, Quantiles, Snapshot

_AGELESS: Final = frozenset(
    {
        # of a GPU
        "bandwidth_peak_bytes_per_s",
        "flops_peak_per_s",
        "achievable_ratio",
        # of the machine
        "memory_total_bytes",
        # of an engine
        "gpu_count",
        "peak_flops_per_s",
        "peak_bandwidth_bytes_per_s",
    }
)
"""Readings that do not age: they are facts of the hardware."""


def without_figures(snapshot: Snapshot, why: Missing, older_s: float = 0.0) -> Snapshot:
    """The snapshot of a host that nothing new is known of: the machine, its GPUs and engines without figures.

    Verdicts, replicas, events and alerts are left out.

    `why`: the reason that its figures get. `older_s`: seconds since the snapshot, by which all in it is older now.
    """
    gpus = [_blank_gpu(gpu, why, older_s) for gpu in snapshot.gpus]
    engines = [_blank_engine(engine, why, older_s) for engine in snapshot.engines]
    return msgspec.structs.replace(
        snapshot,
        host=msgspec.structs.replace(snapshot.host, **_missing_fields(HostReading, why)),
        gpus=tuple(gpus),
        engines=tuple(engines),
        verdicts=(),
        replicas=(),
        events=(),
        alerts=(),
    )


def _blank_gpu(gpu: Gpu, why: Missing, older_s: float) -> Gpu:
    """The GPU without figures."""
    fields = {
        "state": GpuState.STALE,
        "age_s": gpu.age_s + older_s,
        "throttle": (),
        "processes": (),
        **_missing_fields(Gpu, why),
    }
    return replace_fields(gpu, fields)


def _blank_engine(engine: Engine, why: Missing, older_s: float) -> Engine:
    """The engine without figures."""
    fields = {
        "age_s": engine.age_s + older_s,
        "window": None,
        "rank_loads": (),
        "backends": (),
        "uneven": (),
        **_missing_fields(Engine, why),
    }
    return replace_fields(engine, fields)


@lru_cache(maxsize=16)
def _missing_fields(kind: type[msgspec.Struct], why: Missing) -> dict[str, Any]:
    """Field -> its value without figures, for each field of a host, a GPU or an engine that ages."""
    missing_quantiles = Quantiles(*(why for _ in Quantiles.__struct_fields__))
    fields: dict[str, Any] = {}
    for _, field in flat_fields(kind).values():
        if field.type == Reading and field.name not in _AGELESS:
            fields[field.name] = why
        elif field.type is Quantiles:
            fields[field.name] = missing_quantiles
        elif isinstance(field.type, type) and issubclass(field.type, Group):
            fields[field.name] = all_missing(field.type, why)
    return fields
