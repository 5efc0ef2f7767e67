"""A frame that is not derived, as triage samples it: what was read in it, and the rest as it was derived last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpumon.readings.frame import Frame, GpuReading, HostReading
from gpumon.readings.snapshot import Kind, Snapshot
from gpumon.triage.scene import SAMPLED

_READ: Final = (*(field for field in SAMPLED[Kind.GPU] if field in GpuReading.__struct_fields__), "throttle")
_OF_HOST: Final = tuple(field for field in SAMPLED[Kind.HOST] if field in HostReading.__struct_fields__)


def as_read(frame: Frame, before: Snapshot, derived: Mapping[str, Mapping[str, Any]]) -> Snapshot:
    """The last snapshot with this frame's own figures of the host, the GPUs and the engines.

    `derived`: those that are not read but worked out, by uuid or `Engine.key` (`Deriver.follow`).
    """
    read = {gpu.uuid: gpu for gpu in frame.gpus}
    gpus = tuple(
        msgspec.structs.replace(
            gpu, **{field: getattr(read[gpu.uuid], field) for field in _READ}, **derived.get(gpu.uuid, {})
        )
        if gpu.uuid in read
        else gpu
        for gpu in before.gpus
    )
    host = msgspec.structs.replace(before.host, **{field: getattr(frame.host, field) for field in _OF_HOST})
    engines = tuple(
        msgspec.structs.replace(engine, **derived[engine.key]) if engine.key in derived else engine
        for engine in before.engines
    )
    return msgspec.structs.replace(before, host=host, gpus=gpus, engines=engines)
