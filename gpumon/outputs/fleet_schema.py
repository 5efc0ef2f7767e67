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
    how = {"enum": ["one", "merged", "worst"]}
    definitions["RowLatency"] = _object_schema(value=_FIGURE, how=how, is_least={"type": "boolean"})
    definitions["Row"] = _row_schema(definitions)
    row = {"$ref": "#/$defs/Row"}
    maintenance = {**_object_schema(who=_TEXT, reason=_TEXT, until=_TEXT, since=_TEXT), "type": ["object", "null"]}
    host = _object_schema(
        name=_TEXT,
        labels={"type": "object", "additionalProperties": _TEXT},
        state=_SCHEMA_OF_TYPE["HostState"],
        seen={"type": ["string", "null"]},
        own_gpumon={"type": "boolean"},
        maintenance=maintenance,
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
        capacity=_capacity_schema(),
        common_faults={"type": "array", "items": _common_fault_schema()},
    )
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "gpumon snapshot of a fleet"}
    return {**head, **root, "$defs": dict(sorted(definitions.items()))}


def _list_of(item: dict[str, Any]) -> dict[str, Any]:
    """The schema of a list."""
    return {"type": "array", "items": item}


def _map_of(value: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object whose keys are names."""
    return {"type": "object", "additionalProperties": value}


def _capacity_schema() -> dict[str, Any]:
    """The schema of what is free (`outputs.capacity`)."""
    found = _object_schema(
        gpu_type=_TEXT,
        gpus=_WHOLE,
        uses=_map_of(_WHOLE),
        largest_tp=_WHOLE,
        largest_on=_TEXTS,
        fits=_map_of(_WHOLE),
        fragmented_ratio=_FIGURE,
    )
    domain = _object_schema(
        host=_TEXT,
        gpu_type=_TEXT,
        link={"enum": ["NVLink", "PCIe", ""]},
        gpus=_WHOLE,
        uses=_map_of(_WHOLE),
        free=_list_of(_WHOLE),
        largest_tp=_WHOLE,
    )
    spare = _object_schema(
        model=_TEXT,
        replicas=_WHOLE,
        gpu_type=_TEXT,
        gpus_each=_FIGURE,
        more=_FIGURE,
        running=_FIGURE,
        waiting=_FIGURE,
        kv_usage_ratio=_FIGURE,
    )
    version = _object_schema(version=_TEXT, hosts=_TEXTS)
    return _object_schema(
        types=_list_of(found),
        domains=_list_of(domain),
        models=_list_of(spare),
        groups=_map_of(_map_of(_object_schema(free=_WHOLE, gpus=_WHOLE))),
        versions=_list_of(_object_schema(program=_TEXT, versions=_list_of(version))),
    )


def _common_fault_schema() -> dict[str, Any]:
    """The schema of a fault of several hosts."""
    label = {**_object_schema(name=_TEXT, value=_TEXT), "type": ["object", "null"]}
    return _object_schema(name=_TEXT, level={"enum": [level.value for level in Level]}, hosts=_TEXTS, label=label)


def _row_schema(definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a row; those of the types in it are added to `definitions`."""
    types = FleetRow.__annotations__
    texts = docs_of(FleetRow)
    properties = {
        name: {
            **_SCHEMA_OF_TYPE.get(types[name], {"$ref": f"#/$defs/{types[name]}"}),
            **description(texts.get(name, "")),
        }
        for name in ROW_KEYS
    }
    reasons = {"type": "object", "additionalProperties": definition(Reason, definitions)}
    return _object_schema(**properties, missing=reasons)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(schema()), indent=2) + b"\n")
