"""Nested records read and made by flat names: JSON, charts, exports and alerts name a field as `mfu_ratio`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Final, TypeVar

import msgspec

RecordT = TypeVar("RecordT", bound=msgspec.Struct)
ValueT = TypeVar("ValueT")
_INTERNAL: Final = "internal"
Internal = Annotated[ValueT, _INTERNAL]
"""Type of a field that only what derives from a record reads: it has no flat name."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """A group of an owner's fields by concept, or the reading that it is derived from; in JSON, charts and conditions
    its fields are the owner's own. Where the owner has one of the same name, the owner's counts."""


@lru_cache(maxsize=64)
def flat_fields(kind: type[msgspec.Struct]) -> dict[str, tuple[str, msgspec.structs.FieldInfo]]:
    """Name of each field as it is flat in JSON -> its dotted path in `kind`, and the field."""
    fields: dict[str, tuple[str, msgspec.structs.FieldInfo]] = {}
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, Part):
            inner = flat_fields(field.type)
            for name, (path, inner_field) in inner.items():
                if name not in kind.__struct_fields__:
                    fields[name] = (f"{field.name}.{path}", inner_field)
        elif _INTERNAL not in getattr(field.type, "__metadata__", ()):
            fields[field.name] = (field.name, field)
    return fields


def flat_path(kind: type[msgspec.Struct], path: str) -> str:
    """Attribute path of a flat one: `ttft_s.p95` is `latency.ttft_s.p95`. What is in no part stays as it is."""
    name, dot, rest = path.partition(".")
    fields = flat_fields(kind)
    if name in fields:
        name, _ = fields[name]
    return f"{name}{dot}{rest}"


@lru_cache(maxsize=512)
def getter(kind: type[msgspec.Struct], path: str) -> Callable[[msgspec.Struct], Any]:
    """A function that reads the value of a flat path, as `mfu_ratio` or `ttft_s.p95`, of records of a kind."""
    return attrgetter(flat_path(kind, path))


def value_of(record: msgspec.Struct, path: str) -> Any:
    """The value of a record at a flat path."""
    return getter(type(record), path)(record)


def make_record(kind: type[RecordT], values: Mapping[str, Any]) -> RecordT:
    """Make a record of its fields by flat name. Raises KeyError for a name that it does not have."""
    types = _part_types(kind)
    if not types:
        return kind(**values)
    own_fields, parts = _split_by_part(kind, values)
    return kind(**own_fields, **{part: types[part](**part_values) for part, part_values in parts.items()})


@lru_cache(maxsize=64)
def _part_types(kind: type[msgspec.Struct]) -> dict[str, type[Part]]:
    """Name of each part of a record -> its type."""
    fields = msgspec.structs.fields(kind)
    return {field.name: field.type for field in fields if isinstance(field.type, type) and issubclass(field.type, Part)}


def replace_fields(record: RecordT, values: Mapping[str, Any]) -> RecordT:
    """The record with other values of fields by flat name. Raises KeyError for a name that it does not have."""
    own_fields, parts = _split_by_part(type(record), values)
    new_parts = {
        part: msgspec.structs.replace(getattr(record, part), **part_values) for part, part_values in parts.items()
    }
    return msgspec.structs.replace(record, **own_fields, **new_parts)


@lru_cache(maxsize=64)
def _part_of_fields(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Name of each field, internal ones too -> the part that it is in; empty for the record's own."""
    parts: dict[str, str] = {}
    for part, part_type in _part_types(kind).items():
        parts |= dict.fromkeys(part_type.__struct_fields__, part)
    return parts | dict.fromkeys(kind.__struct_fields__, "")


def _split_by_part(
    kind: type[msgspec.Struct], values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Fields of the record itself, and those of each of its parts."""
    part_names = _part_of_fields(kind)
    own_fields: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        part = part_names[name]
        if not part:
            own_fields[name] = value
        elif part in parts:
            parts[part][name] = value
        else:
            parts[part] = {name: value}
    return own_fields, parts
