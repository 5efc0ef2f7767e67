"""The answer of a sizing as JSON by contract, with its schema (`python -m gpumon.outputs.sizing_data`), and as CSV."""

from __future__ import annotations

import csv
import functools
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpumon.outputs.csv_cell import cell
from gpumon.outputs.json import as_object
from gpumon.outputs.schema import definition, document
from gpumon.readings.missing import Missing
from gpumon.sizing.answer import Answer, Compared, GpuSlot, JudgedGoal, PlacedServer, WorkloadPlan

_SCHEMA: Final = 2
"""Version of this contract; it changes when a field changes its meaning or goes away."""
_LAYOUT: Final = "Equal servers and equal GPUs are told once, with how many there are."
"""Sentence of the schema on `layout`, which is not the field of `Packed`."""


class SameGpus(msgspec.Struct, frozen=True):
    """GPUs of one server on which the same instances stand."""

    times: int
    """How many such GPUs, or groups of GPUs, the server has."""
    gpus: int
    """GPUs of one group: more than 1 where an instance stands on several."""
    workloads: tuple[int, ...]
    """Indices in `workloads`, one for each instance, the largest first; none: the GPU is free."""
    memory_bytes: float
    """Taken on each GPU."""
    busy_ratio: float
    """Sum of the busy shares that are known, on each GPU."""


class SameServers(msgspec.Struct, frozen=True):
    """Servers that are filled alike."""

    times: int
    """How many there are."""
    shape: int
    """Index of the [[server]] of the scenario."""
    gpus: int
    """GPUs of one such server."""
    filled: tuple[SameGpus, ...]


def group_servers(layout: Sequence[PlacedServer], workloads: Sequence[WorkloadPlan]) -> tuple[SameServers, ...]:
    """The servers of a layout, alike ones once, in the order of the layout."""
    ranks = {}
    for number, workload in enumerate(workloads):
        size_bytes = 0.0 if isinstance(workload.memory_bytes, Missing) else workload.memory_bytes
        ranks[number] = (-size_bytes, number)
    same_servers: dict[tuple[object, ...], SameServers] = {}
    for server in layout:
        filled = tuple(_group_gpus(server.gpus, ranks))
        # Memory and busy shares follow from the workloads, but for the last digits.
        content = tuple((same.gpus, same.workloads, same.times) for same in filled)
        key = (server.shape, content)
        times = same_servers[key].times + 1 if key in same_servers else 1
        same_servers[key] = SameServers(times, server.shape, gpus=len(server.gpus), filled=filled)
    return tuple(same_servers.values())


def _group_gpus(slots: Sequence[GpuSlot], ranks: Mapping[int, tuple[float, int]]) -> Iterator[SameGpus]:
    """The GPUs of a server, alike ones once: single GPUs, and groups of GPUs that hold one instance together.

    Groups of many GPUs come first, free GPUs last. `ranks`: index of a workload -> its rank among the workloads of a
    GPU.
    """
    groups: dict[object, list[GpuSlot]] = {}
    for number, slot in enumerate(slots):
        group: tuple[object, ...] = ("gpu", number) if slot.group < 0 else ("group", slot.group, slot.workloads)
        groups.setdefault(group, []).append(slot)
    same_gpus: dict[tuple[int, tuple[int, ...]], SameGpus] = {}
    for members in groups.values():
        first = members[0]
        workloads = tuple(sorted(first.workloads, key=lambda number: ranks.get(number, (0.0, number))))
        key = (len(members), workloads)
        times = same_gpus[key].times + 1 if key in same_gpus else 1
        same_gpus[key] = SameGpus(
            times,
            gpus=len(members),
            workloads=workloads,
            memory_bytes=first.memory_bytes,
            busy_ratio=first.busy_ratio,
        )
    yield from sorted(same_gpus.values(), key=lambda same: (not same.workloads, -same.gpus))


def encode(answer: Answer) -> bytes:
    """The answer as one line of JSON, without a newline: UTF-8, no NaN or Infinity, no control characters."""
    printed = {"schema": _SCHEMA, **as_object(answer)}
    for name in answer.plans.__struct_fields__:
        groups = group_servers(getattr(answer.plans, name).layout, answer.workloads)
        printed["plans"][name]["layout"] = [as_object(servers) for servers in groups]
    return msgspec.json.encode(printed)


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON Schema of it (draft 2020-12). Objects may gain keys: a reader ignores those it does not know."""
    definitions: dict[str, Any] = {}
    root = document(Answer, "gpumon sizing", _SCHEMA, definitions)
    servers = definition(SameServers, definitions)
    packed = definitions["Packed"]
    packed["properties"]["layout"] = {"type": "array", "items": servers, "description": _LAYOUT}
    packed["required"].append("layout")
    return {**root, "$defs": dict(sorted(definitions.items()))}


PLAN_COLUMNS: Final = (
    *("row", "name", "model", "target", "target_kind", "concurrency", "capacity_per_instance", "instances", "gpus"),
    *("servers", "gpus_per_instance", "tp", "pp", "spares", "limit", "next_limit", "source", "band_below"),
    *("band_above", "band_rows", "extrapolated", "memory_bytes", "memory_source", "busy_ratio", "running", "itl_s"),
    *("ttft_s", "e2e_s", "tokens_per_s", "requests_per_s", "power_w", "power_source", "price_per_hour"),
    *("price_per_mtok", "tokens_per_j", "problem", "itl_p95_s", "ttft_p95_s", "servers_shared"),
    *("dp", "tokens_per_step", "disaggregated_gpus", "disaggregated_saving_ratio", "goals", "layout"),
    *("searched", "network", "gpus_low", "gpus_high", "pool"),
)
"""Fields of a workload's plan and of the totals, in order. `row` is workload, total, total_without (the sums over the
workloads that have an answer, where others have none) or compared (the totals on another type of GPU, its name)."""


def csv_table(answer: Answer) -> str:
    """RFC 4180, with a header. Units as in the names; what is not known is an empty cell, never a 0.

    `memory_bytes` is that of one instance, in the last line that of all. A text that a spreadsheet would take for a
    formula gets an apostrophe in front. Where only some workloads have an answer the line of totals has none, and one
    more has the sums over the others; its `problem` names those that are missing.
    """
    rows: list[dict[str, Any]] = [{"row": "workload", **_fields(plan)} for plan in answer.workloads]
    total = {**_fields(answer.totals), "problem": answer.problem}
    if answer.gpus_range is not None and not answer.without:
        total |= {"gpus_low": answer.gpus_range.low, "gpus_high": answer.gpus_range.high}
    rows.append({"row": "total", "name": answer.name, **total})
    if answer.without:
        fields = {**_fields(answer.totals_without), "problem": f"without {', '.join(answer.without)}"}
        rows.append({"row": "total_without", "name": answer.name, **fields})
    for compared in answer.compared:
        rows.append(_compared_row(compared))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(PLAN_COLUMNS)
    for row in rows:
        writer.writerow([cell(row.get(name, "")) for name in PLAN_COLUMNS])
    return stream.getvalue()


def _compared_row(compared: Compared) -> dict[str, Any]:
    """The row of a compared type of GPU; of a single workload with its TP, limit, latencies and source, too."""
    plan_fields: dict[str, Any] = {}
    if len(compared.workloads) == 1 and not compared.problem:
        plan_fields = _fields(compared.workloads[0])
    name = compared.gpu
    if compared.as_planned:
        name = f"{compared.gpu} (as planned)"
    elif compared.pooled:
        name = f"{compared.gpu} (prefill and decode apart)"
    # Totals are behind the plan, whose fields of the same names they replace.
    totals = _fields(compared.totals)
    return {**plan_fields, "row": "compared", "name": name, **totals, "problem": compared.problem}


def _fields(figures: msgspec.Struct) -> dict[str, Any]:
    """The fields of a plan or of totals by name, with those of its band and its pools as columns of their own."""
    fields = {name: getattr(figures, name) for name in figures.__struct_fields__}
    disaggregated = fields.get("disaggregated")
    if disaggregated is not None:
        fields["disaggregated_gpus"] = disaggregated.gpus
        fields["disaggregated_saving_ratio"] = disaggregated.saving_ratio
    fields["goals"] = "; ".join(map(_goal_cell, fields.get("goals", ())))
    gpus_range = fields.get("gpus_range")
    if gpus_range is not None:
        fields |= {"gpus_low": gpus_range.low, "gpus_high": gpus_range.high}
    band = fields.get("band")
    if band:
        fields |= {"band_below": -band.low, "band_above": band.high, "band_rows": band.rows}
    return fields


def _goal_cell(goal: JudgedGoal) -> str:
    """A goal with the figure that it judges, both in seconds, and its basis: `TPOT p95 0.0332 of 0.04 simulated`."""
    value = "?" if isinstance(goal.value_s, Missing) else f"{goal.value_s:.6g}"
    return f"{goal.name} {value} of {goal.goal_s:.6g} {goal.basis.value}"


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(schema()), indent=2) + b"\n")
