"""The answer of a sizing as JSON by contract, with its schema (`python -m gpumon.outputs.sizing_data`), and as CSV."""

from __future__ import annotations

import csv
import io
import sys
from typing import Any, Final

import msgspec

from gpumon.outputs.csv_cell import cell
from gpumon.outputs.json import as_object
from gpumon.outputs.schema import definition, document
from gpumon.outputs.sizing_words import SameServers, grouped
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


COLUMNS: Final = (
    *("row", "name", "model", "target", "target_kind", "concurrency", "capacity_per_instance", "instances", "gpus"),
    *("servers", "gpus_per_instance", "tp", "pp", "spares", "limit", "next_limit", "source"),
    *("band_below", "band_above", "band_rows"),
    *("extrapolated", "memory_bytes", "memory_source", "busy_ratio", "running", "itl_s", "ttft_s", "e2e_s"),
    *(
        "tokens_per_s",
        "requests_per_s",
        "power_w",
        "power_source",
        "price_per_hour",
        "price_per_mtok",
        "tokens_per_j",
        "problem",
        "itl_p95_s",
        "ttft_p95_s",
        "servers_shared",
    ),
)
"""Fields of a workload's plan and of the totals, in order. `row` is workload, total or total_without: the sums over the
workloads that have an answer, where others have none."""


def table(answer: Answer) -> str:
    """RFC 4180, with a header. Units as in the names; what is not known is an empty cell, never a 0.

    `memory_bytes` is that of one instance, in the last line that of all. A text that a spreadsheet would take for a
    formula gets an apostrophe in front. Where only some workloads have an answer the line of totals has none, and one
    more has the sums over the others; its `problem` names those that are missing.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for plan in answer.workloads:
        writer.writerow(_cells({"row": "workload", **_fields(plan)}))
    writer.writerow(
        _cells({"row": "total", "name": answer.name, **_fields(answer.totals), "problem": answer.problem}),
    )
    if answer.without:
        without = f"without {', '.join(answer.without)}"
        writer.writerow(
            _cells({"row": "total_without", "name": answer.name, **_fields(answer.totals_without), "problem": without})
        )
    return stream.getvalue()


def _fields(of: msgspec.Struct) -> dict[str, Any]:
    fields = {name: getattr(of, name) for name in of.__struct_fields__}
    band = fields.get("band")
    if not band:
        return fields
    return fields | {"band_below": -band.low, "band_above": band.high, "band_rows": band.rows}


def _cells(fields: dict[str, Any]) -> list[str]:
    return [cell(fields.get(name, "")) for name in COLUMNS]


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(schema()), indent=2) + b"\n")
