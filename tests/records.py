"""Records with other values of some fields, by the names that they have in JSON."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from gpumon.readings.flat import make_record, replace_fields
from gpumon.readings.frame import GpuState
from gpumon.readings.snapshot import Gpu

RecordT = TypeVar("RecordT", bound=msgspec.Struct)


def replace(record: RecordT, **values: Any) -> RecordT:
    """The record with other values: fields of its parts go by their own names."""
    return replace_fields(record, values)


def make_gpu(
    index: int = 0, uuid: str = "", name: str = "", state: GpuState = GpuState.OK, age_s: float = 0.0, **values: Any
) -> Gpu:
    """A GPU with these fields, those of its reading among them."""
    return make_record(Gpu, {"index": index, "uuid": uuid, "name": name, "state": state, "age_s": age_s, **values})
