"""A recording as CSV rows: of each moment one per GPU, engine and host. JSON lines are those of `outputs.json`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any, Final

from gpumon.outputs.csv_cell import cell
from gpumon.readings.flat import value_of
from gpumon.readings.snapshot import Kind, Level, Snapshot

_GPU_FIELDS: Final = (
    *("busy_ratio", "sm_active_ratio", "tensor_active_ratio", "vram_used_bytes", "vram_total_bytes"),
    *("bandwidth_bytes_per_s", "mfu_ratio", "mbu_ratio", "power_w", "temperature_c", "sm_clock_hz", "tokens_per_j"),
)
"""Figures of a GPU."""
_ENGINE_FIELDS: Final = (
    *("running", "waiting", "kv_usage_ratio", "prefill_tokens_per_s", "decode_tokens_per_s", "cached_tokens_per_s"),
    *("requests_per_s", "mfu_ratio", "mbu_ratio", "power_w", "tokens_per_j", "trained_tokens_per_s"),
)
"""Figures of an engine."""
_HOST_FIELDS: Final = (
    *("cpu_ratio", "busiest_core_ratio", "iowait_ratio", "memory_used_bytes", "memory_total_bytes"),
    *("cpu_pressure_ratio", "io_pressure_ratio", "memory_pressure_ratio"),
    *("disk_read_bytes_per_s", "disk_write_bytes_per_s", "disk_busy_ratio"),
    *("network_rx_bytes_per_s", "network_tx_bytes_per_s"),
)
"""Figures of the host."""
_LATENCIES: Final = ("ttft", "itl", "queue", "e2e")
_LATENCY_PARTS: Final = ("mean", "p50", "p95", "p99")
_LATENCY_FIELDS: Final = {
    f"{latency}_{part}_s": f"{latency}_s.{part}" for latency in _LATENCIES for part in _LATENCY_PARTS
}
"""Column of each part of a latency -> its field."""
CSV_COLUMNS: Final = (
    *("time", "host", "kind", "name", "model", "state", "verdicts"),
    *dict.fromkeys((*_GPU_FIELDS, *_ENGINE_FIELDS)),
    *_LATENCY_FIELDS,
    *_HOST_FIELDS,
)
"""Units as in the names; a value that is not there is an empty cell, never a 0."""


def csv_header() -> str:
    """The first line."""
    return _line(list(CSV_COLUMNS))


def csv_rows(snapshot: Snapshot) -> str:
    """The lines of one moment."""
    lines = []
    for row in _thing_rows(snapshot):
        lines.append(_line([cell(row.get(column, "")) for column in CSV_COLUMNS]))
    return "".join(lines)


def _thing_rows(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """A row per GPU, engine and host: column -> value."""
    for gpu in snapshot.gpus:
        row = {"name": f"gpu {gpu.index}", "model": gpu.name, "state": gpu.state.value}
        yield {**_common_cells(snapshot, "gpu", gpu.uuid), **row, **{name: getattr(gpu, name) for name in _GPU_FIELDS}}
    for engine in snapshot.engines:
        row = {"name": engine.name, "model": engine.model, "state": engine.state.value}
        latencies = {column: value_of(engine, field) for column, field in _LATENCY_FIELDS.items()}
        figures = {name: value_of(engine, name) for name in _ENGINE_FIELDS}
        yield {**_common_cells(snapshot, "engine", engine.key), **row, **figures, **latencies}
    host = {name: getattr(snapshot.host, name) for name in _HOST_FIELDS}
    yield {**_common_cells(snapshot, Kind.HOST.value, ""), "name": Kind.HOST.value, **host}


def _common_cells(snapshot: Snapshot, kind: str, key: str) -> dict[str, Any]:
    """The cells that every row has, with the codes of the thing's verdicts."""
    codes = []
    for verdict in snapshot.verdicts:
        if verdict.kind.value == kind and verdict.key == key and verdict.level is not Level.OK:
            codes.append(verdict.code.value)
    return {"time": snapshot.time, "host": snapshot.host.name, "kind": kind, "verdicts": " ".join(codes)}


def _line(cells: list[Any]) -> str:
    """One line of CSV, quoted where it must be."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\r\n").writerow(cells)
    return stream.getvalue()
