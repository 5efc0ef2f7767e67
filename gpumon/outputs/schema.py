"""JSON Schema of what `--json` prints, from the types: `python -m gpumon.outputs.schema > docs/schema.json`."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
from collections.abc import Mapping
from enum import Enum
from types import UnionType
from typing import Any, Final, get_args, get_origin

import msgspec

from gpumon.outputs.json import ABSENT_FIELDS, LISTED, MOST_CHARACTERS, RENDERED, printed_fields
from gpumon.readings.catalogue import FIGURES_OF_THINGS, NO_FIGURES
from gpumon.readings.flat import Part
from gpumon.readings.frame import GpuProcess, HostReading
from gpumon.readings.missing import Reading, Reason
from gpumon.readings.snapshot import SCHEMA, Snapshot

_PLAIN_TYPES: dict[Any, dict[str, Any]] = {
    Reading: {"type": ["number", "null"]},
    float: {"type": "number"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    str: {"type": "string", "maxLength": MOST_CHARACTERS},
}
"""Type -> its schema."""
_PUBLISHED_NAMES: Final[Mapping[type, str]] = {GpuProcess: "Process", HostReading: "Host"}
"""Types whose name in the schema is not that in the code."""
_NEVER_PRINTED = [field.value for field in ABSENT_FIELDS.values()]
"""Values that say "none", and are printed as null."""


@functools.cache
def schema() -> dict[str, Any]:
    """The schema as a JSON value (draft 2020-12). Objects may gain keys: a reader ignores those it does not know."""
    definitions: dict[str, Any] = {}
    root = document(Snapshot, "gpumon snapshot", SCHEMA, definitions)
    return {**root, "$defs": dict(sorted(definitions.items()))}


def document(kind: type[msgspec.Struct], title: str, version: int, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a whole document, without its `$defs`: those are added to `definitions`."""
    root = _struct_schema(kind, definitions)
    root["properties"] = {
        "schema": {"const": version, "description": "Version of this contract."},
        **root["properties"],
    }
    root["required"].insert(0, "schema")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **root}


def _struct_schema(kind: type[msgspec.Struct], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object, with the readings' reasons under `missing`."""
    fields = printed_fields(kind)
    docs = {row.field: row.text for row in FIGURES_OF_THINGS.get(kind, NO_FIGURES).values()} | docs_of(kind)
    properties = {}
    for key, (name, field) in fields.items():
        type_schema = _type_schema(field.type, definitions)
        if key in ABSENT_FIELDS:
            type_schema = {"anyOf": [type_schema, {"type": "null"}]}
        properties[key] = {**type_schema, **description(docs.get(name, ""))}
    for key in RENDERED.get(kind, {}):
        properties[key] = dict(_PLAIN_TYPES[str])
    for key, (item_type, _) in LISTED.get(kind, {}).items():
        properties[key] = {"type": "array", "items": definition(item_type, definitions)}
    nullable = [key for key, (_, field) in fields.items() if field.type == Reading or key in ABSENT_FIELDS]
    if any(field.type == Reading for _, field in fields.values()):
        properties["missing"] = {
            "type": "object",
            "description": "Key of each null in this object -> the reason.",
            "propertyNames": {"enum": nullable},
            "additionalProperties": definition(Reason, definitions),
        }
    return {
        "type": "object",
        **description(inspect.getdoc(kind) or ""),
        "properties": properties,
        "required": list(properties),
    }


def _type_schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field's type; other types are added to `definitions`."""
    if kind in _PLAIN_TYPES:
        return dict(_PLAIN_TYPES[kind])
    if kind == float | str:
        return {"type": ["number", "string"]}
    if get_origin(kind) is UnionType and type(None) in get_args(kind):
        other = next(argument for argument in get_args(kind) if argument is not type(None))
        return {"anyOf": [_type_schema(other, definitions), {"type": "null"}]}
    if get_origin(kind) is tuple:
        return {"type": "array", "items": _type_schema(get_args(kind)[0], definitions)}
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": _type_schema(get_args(kind)[1], definitions)}
    return definition(kind, definitions)


def definition(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """A reference to a type, which is added to `definitions`."""
    name = _PUBLISHED_NAMES.get(kind, kind.__name__)
    if name not in definitions:
        definitions[name] = {}  # a type that refers to itself ends here
        if issubclass(kind, Enum):
            definitions[name] = _enum_schema(kind)
        elif issubclass(kind, msgspec.Struct):
            definitions[name] = _struct_schema(kind, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _enum_schema(kind: type[Enum]) -> dict[str, Any]:
    """The schema of an enumeration: the values that are printed, and the meanings of all."""
    docs = docs_of(kind)
    meanings = []
    values = []
    for member in kind:
        if member.name in docs:
            meanings.append(f"{member.value}: {docs[member.name]}")
        if not any(member is nothing for nothing in _NEVER_PRINTED):
            values.append(member.value)
    text = " ".join([inspect.getdoc(kind) or "", *meanings])
    return {**description(text), "enum": values}


def description(text: str) -> dict[str, str]:
    """A text as the schema's description; nothing where there is none."""
    if text:
        return {"description": " ".join(text.split())}
    return {}


def docs_of(kind: type) -> dict[str, str]:
    """The text under each field or member of a class: Python does not keep it, so it is read from the source."""
    body = _classes_of(kind.__module__)[kind.__name__].body
    docs: dict[str, str] = {}
    for part in _flattened_types(kind):
        docs |= docs_of(part)
    for base in kind.__bases__:
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            docs |= docs_of(base)
    for statement, below in itertools.pairwise(body):
        target: ast.expr | None = None
        if isinstance(statement, ast.AnnAssign):
            target = statement.target
        elif isinstance(statement, ast.Assign):
            target = statement.targets[0]
        if isinstance(target, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            docs[target.id] = str(below.value.value)
    return docs


@functools.cache
def _classes_of(module: str) -> dict[str, ast.ClassDef]:
    """Classes of a module as they are written, by their names."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _flattened_types(kind: type) -> list[type[Part]]:
    """Types of the fields whose own fields are printed in their place."""
    if not issubclass(kind, msgspec.Struct):
        return []
    return [
        field.type
        for field in msgspec.structs.fields(kind)
        if isinstance(field.type, type) and issubclass(field.type, Part)
    ]


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(schema()), indent=2) + b"\n")
