"""Records with other values of some fields, by the names that they have in JSON."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from gpumon.readings.flat import replace_fields

RecordT = TypeVar("RecordT", bound=msgspec.Struct)


def replace(record: RecordT, **values: Any) -> RecordT:
    """The record with other values: fields of its parts go by their own names."""
    return replace_fields(record, values)
