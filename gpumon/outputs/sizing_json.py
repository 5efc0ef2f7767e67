"""The answer of a sizing as JSON by contract, and its schema: `python -m gpumon.outputs.sizing_json`."""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec

from gpumon.outputs.json import as_object
from gpumon.outputs.schema import definition, document
from gpumon.outputs.sizing_layout import SameServers, grouped
from gpumon.sizing.answer import Answer

SCHEMA: Final = 2
"""Version of this contract; it changes when a field changes its meaning or goes away."""
_LAYOUT: Final = "Equal servers and equal GPUs are told once, with how many there are."


def encode(answer: Answer) -> bytes:
    """The answer as one line of JSON, without a newline: UTF-8, no NaN or Infinity, no control characters."""
    printed = {"schema": SCHEMA, **as_object(answer)}
    for name in answer.plans.__struct_fields__:
        groups = grouped(getattr(answer.plans, name).layout, answer.workloads)
        printed["plans"][name]["layout"] = [as_object(servers) for servers in groups]
    return msgspec.json.encode(printed)


def schema() -> dict[str, Any]:
    """The JSON Schema of it (draft 2020-12). Objects may gain keys: a reader ignores those it does not know."""
    definitions: dict[str, Any] = {}
    root = document(Answer, "gpumon sizing", SCHEMA, definitions)
    servers = definition(SameServers, definitions)
    packed = definitions["Packed"]
    packed["properties"]["layout"] = {"type": "array", "items": servers, "description": _LAYOUT}
    packed["required"].append("layout")
    return {**root, "$defs": dict(sorted(definitions.items()))}


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(schema()), indent=2) + b"\n")
