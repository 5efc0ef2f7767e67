"""Holds a JSON value to docs/schema.json: the part of JSON Schema that the file uses, and stricter on unknown keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value),
}
_KNOWN = {
    *("$schema", "$defs", "$ref", "title", "description", "type", "const", "enum", "anyOf", "maxLength", "items"),
    *("properties", "required", "additionalProperties", "propertyNames"),
}


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any] | None = None, at: str = "$") -> Iterator[str]:
    """What of `value` does not fit; a schema keyword that this file does not know is a problem too."""
    root = schema if root is None else root
    if unknown := set(schema) - _KNOWN:
        yield f"{at}: unknown keywords {unknown}"
    if "$ref" in schema:
        yield from problems(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, at)
    if "anyOf" in schema and all(list(problems(value, one, root, at)) for one in schema["anyOf"]):
        yield f"{at}: {value!r:.40} fits none of the choices"
    types = schema.get("type", [])
    if types and not any(_TYPES[name](value) for name in ([types] if isinstance(types, str) else types)):
        yield f"{at}: {value!r:.40} is no {types}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r:.40} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r:.40} is none of {schema['enum']}"
    if isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        yield f"{at}: too long"
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from problems(item, schema["items"], root, f"{at}[{index}]")
    if isinstance(value, dict):
        yield from _object(value, schema, root, at)


def _object(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], at: str) -> Iterator[str]:
    known = schema.get("properties", {})
    for key in schema.get("required", []):
        if key not in value:
            yield f"{at}: {key} is not there"
    for key, item in value.items():
        if key in known:
            yield from problems(item, known[key], root, f"{at}.{key}")
        elif "additionalProperties" in schema:
            yield from problems(item, schema["additionalProperties"], root, f"{at}.{key}")
        elif known:
            yield f"{at}: {key} is not in the schema"
        if "propertyNames" in schema:
            yield from problems(key, schema["propertyNames"], root, f"{at} key")
