"""A snapshot of which only what does not age is left: of a host that nothing new is known of."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from gpumon.efficiency.served import all_missing
from gpumon.readings.flat import flat_fields, replaced
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Engine, Gpu, Group, Quantiles, Snapshot

_FIXED: Final = frozenset(
    {
        *("bandwidth_peak_bytes_per_s", "flops_peak_per_s", "achievable_ratio"),
        *("gpu_count", "peak_flops_per_s", "peak_bandwidth_bytes_per_s"),
    }
)
"""Readings that do not age."""


def without_figures(snapshot: Snapshot, why: Missing, older_s: float = 0.0) -> Snapshot:
    """The snapshot of a host that nothing new is known of: what it has and serves, and no figure of it.

    `older_s`: seconds since the snapshot, by which all in it is older now.
    """
    blank = {kind: _blank(kind, why) for kind in (Gpu, Engine)}
    gpus = (
        msgspec.structs.replace(
            gpu, state=GpuState.STALE, age_s=gpu.age_s + older_s, throttle=(), processes=(), **blank[Gpu]
        )
        for gpu in snapshot.gpus
    )
    engines = (
        replaced(
            engine,
            {
                "age_s": engine.age_s + older_s,
                "window": None,
                "rank_loads": (),
                "backends": (),
                "uneven": (),
                **blank[Engine],
            },
        )
        for engine in snapshot.engines
    )
    return msgspec.structs.replace(
        snapshot, gpus=tuple(gpus), engines=tuple(engines), verdicts=(), replicas=(), events=(), alerts=()
    )


@lru_cache(maxsize=16)
def _blank(kind: type[msgspec.Struct], why: Missing) -> dict[str, Any]:
    """A value for each reading of a GPU or an engine that ages."""
    none = Quantiles(*(why for _ in Quantiles.__struct_fields__))
    fields: dict[str, Any] = {}
    for _, field in flat_fields(kind).values():
        if field.type == Reading and field.name not in _FIXED:
            fields[field.name] = why
        elif field.type is Quantiles:
            fields[field.name] = none
        elif isinstance(field.type, type) and issubclass(field.type, Group):
            fields[field.name] = all_missing(field.type, why)
    return fields
