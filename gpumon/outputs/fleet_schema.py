"""JSON Schema of a fleet as `--prometheus URL --json` prints it: `python -m gpumon.outputs.fleet_schema`."""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec

from gpumon.fleet.row import FleetRow
from gpumon.fleet.snapshot import HostState
from gpumon.outputs.fleet import ROW_KEYS
from gpumon.outputs.schema import definition, description, docs_of, document
from gpumon.readings.missing import Reason
from gpumon.readings.snapshot import SCHEMA, BandwidthSource, FaultShown, Level, Snapshot

_TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer"}
_FIGURE: Final = {"type": ["number", "null"]}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_SCHEMA_OF_TYPE: Final[dict[str, dict[str, Any]]] = {
    "str": _TEXT,
    "int": _WHOLE,
    "int | Missing": {"type": ["integer", "null"]},
    "Reading": _FIGURE,
    "tuple[str, ...]": _TEXTS,
    "tuple[tuple[str, int], ...]": {
        "type": "array",
        "items": {"type": "array", "items": {"type": ["string", "integer"]}},
    },
    "BandwidthSource": {"enum": [source.value for source in BandwidthSource]},
    "Level | None": {"enum": [*(level.value for level in Level), None]},
    "HostState": {"enum": [state.value for state in HostState]},
}
"""Type of a field of a row, as it is written there -> the schema of what is printed."""


def _object_schema(**properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object that always has all these keys."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def schema() -> dict[str, Any]:
    """The schema as a JSON value (draft 2020-12)."""
    definitions: dict[str, Any] = {}
    snapshot = document(Snapshot, "", SCHEMA, definitions)
    definitions["Snapshot"] = {name: snapshot[name] for name in ("type", "properties", "required")}
    definitions["Known"] = _object_schema(value=_FIGURE, gpus=_WHOLE, of=_WHOLE)
    definitions["RowLatency"] = _object_schema(value=_FIGURE, how={"enum": ["one", "merged", "worst"]})
    definitions["Row"] = _row_schema(definitions)
    row = {"$ref": "#/$defs/Row"}
    host = _object_schema(
        name=_TEXT,
        labels={"type": "object", "additionalProperties": _TEXT},
        state=_SCHEMA_OF_TYPE["HostState"],
        seen={"type": ["string", "null"]},
        own_gpumon={"type": "boolean"},
        figures=row,
        snapshot={"$ref": "#/$defs/Snapshot"},
    )
    root = _object_schema(
        schema={"const": SCHEMA},
        time={"type": ["string", "null"]},
        interval_s={"type": "number"},
        queries=_WHOLE,
        cost_s={"type": "number"},
        faults={"type": "array", "items": definition(FaultShown, definitions)},
        hosts={"type": "array", "items": host},
        models={"type": "array", "items": row},
        owners={"type": "object", "additionalProperties": {"type": "array", "items": row}},
        total=row,
    )
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "gpumon snapshot of a fleet"}
    return {**head, **root, "$defs": dict(sorted(definitions.items()))}


def _row_schema(definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a row; those of the types in it are added to `definitions`."""
    types = FleetRow.__annotations__
    texts = docs_of(FleetRow)
    properties = {}
    for name in ROW_KEYS:
        properties[name] = {
            **_SCHEMA_OF_TYPE.get(types[name], {"$ref": f"#/$defs/{types[name]}"}),
            **description(texts.get(name, "")),
        }
    reasons = {"type": "object", "additionalProperties": definition(Reason, definitions)}
    return _object_schema(**properties, missing=reasons)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(schema()), indent=2) + b"\n")
