"""A recording as CSV rows: of each moment one per GPU, engine and host. JSON lines are those of `outputs.json`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any, Final

from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figure
from gpumon.figures.gpu import GPU
from gpumon.figures.host import HOST
from gpumon.outputs.csv_cell import cell
from gpumon.readings.flat import value_of
from gpumon.readings.frame import HostReading
from gpumon.readings.snapshot import Engine, Gpu, Kind, Level, Snapshot

_GPU_ROWS: Final = tuple(row for row in GPU.values() if row.in_csv)
_ENGINE_ROWS: Final = tuple(row for row in ENGINE.values() if row.in_csv)
_HOST_ROWS: Final = tuple(row for row in HOST.values() if row.in_csv)

CSV_COLUMNS: Final = (
    *("time", "host", "kind", "name", "model", "state", "verdicts"),
    *dict.fromkeys(row.flat_name for row in (*_GPU_ROWS, *sorted(_ENGINE_ROWS, key=lambda row: "." in row.field))),
    *(row.flat_name for row in _HOST_ROWS),
)
"""Units as in the names; a value that is not there is an empty cell, never a 0. Latencies come last of an engine."""


def csv_header() -> str:
    """The first line."""
    return _line(list(CSV_COLUMNS))


def csv_rows(snapshot: Snapshot) -> str:
    """The lines of one moment."""
    lines = [_line([cell(row.get(column, "")) for column in CSV_COLUMNS]) for row in _thing_rows(snapshot)]
    return "".join(lines)


def _thing_rows(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """A row per GPU, engine and host: column -> value."""
    for gpu in snapshot.gpus:
        row = {"name": f"gpu {gpu.reading.index}", "model": gpu.reading.name, "state": gpu.reading.state.value}
        yield {**_common_cells(snapshot, "gpu", gpu.reading.uuid), **row, **_figures(gpu, _GPU_ROWS)}
    for engine in snapshot.engines:
        row = {"name": engine.name, "model": engine.model, "state": engine.state.value}
        yield {**_common_cells(snapshot, "engine", engine.key), **row, **_figures(engine, _ENGINE_ROWS)}
    host = _figures(snapshot.host, _HOST_ROWS)
    yield {**_common_cells(snapshot, Kind.HOST.value, ""), "name": Kind.HOST.value, **host}


def _figures(thing: Gpu | Engine | HostReading, rows: Iterable[Figure]) -> dict[str, Any]:
    """Column -> figure of a thing."""
    return {row.flat_name: value_of(thing, row.field) for row in rows}


def _common_cells(snapshot: Snapshot, kind: str, key: str) -> dict[str, Any]:
    """The cells that every row has, with the codes of the thing's verdicts."""
    codes = [
        verdict.code.value
        for verdict in snapshot.verdicts
        if verdict.kind.value == kind and verdict.key == key and verdict.level is not Level.OK
    ]
    return {"time": snapshot.time, "host": snapshot.host.name, "kind": kind, "verdicts": " ".join(codes)}


def _line(cells: list[Any]) -> str:
    """One line of CSV, quoted where it must be."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\r\n").writerow(cells)
    return stream.getvalue()
