"""Triton Model Analyzer: `metrics-model-inference.csv`, and `metrics-model-gpu.csv` beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gpumon.sizing.imports.files import Document, Record
from gpumon.sizing.imports.runs import BenchmarkRun, fields_by_name

_REQUESTS: Final = "Throughput (infer/sec)"
_KEY_COLUMNS: Final = ("Model", "Batch", "Concurrency", "Request Rate", "Model Config Path")
"""Columns of both files that together name a measurement."""
_LATENCIES_MS: Final = {
    "itl_s": ("Avg Inter Token Latency (ms)",),
    "tpot_p95_s": ("p95 Inter Token Latency (ms)",),
    "ttft_s": ("Avg Time To First Token (ms)",),
    "ttft_p95_s": ("p95 Time To First Token (ms)",),
    "e2e_s": ("Avg Latency (ms)",),
    "e2e_p95_s": ("p95 Latency (ms)",),
    "queue_s": ("Server Queue time (ms)",),
}
_GPU_PREFIXES: Final = ("Max ", "Average ", "")
"""Words before the name of a figure of a GPU, by version."""
_BY_LITTLES_LAW: Final = "mean latency = concurrency / throughput: the file has no `Avg Latency (ms)`"


def is_run_sheet(document: Document) -> bool:
    """Whether this is its file on the runs of models."""
    return "Model" in document.names and _REQUESTS in document.names


def is_gpu_sheet(document: Document) -> bool:
    """Whether this is Model Analyzer's file on GPUs, be it with models or with the server alone."""
    if "Model" not in document.names:
        return False
    return any(f"{prefix}GPU Memory Usage (MB)" in document.names for prefix in _GPU_PREFIXES)


def gpu_usage(sheets: Iterable[Document]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Measurement (`BenchmarkRun.key`) -> fields of its run: GPUs, and memory, busy share and power of them all."""
    rows: dict[tuple[str, ...], list[Record]] = {}  # a row per GPU
    for sheet in sheets:
        for record in sheet.records():
            rows.setdefault(_measurement_key(record), []).append(record)
    usage = {}
    for key, records in rows.items():
        busy_ratio = _sum_over_gpus(records, "GPU Utilization (%)", 1e-2)
        if busy_ratio is not None:
            busy_ratio = min(1.0, busy_ratio / len(records))
        usage[key] = {
            "gpus": len(records),
            "memory_bytes": _sum_over_gpus(records, "GPU Memory Usage (MB)", 1e6),  # MB of 1e6 bytes
            "busy_ratio": busy_ratio,
            "power_w": _sum_over_gpus(records, "GPU Power Usage (W)"),
        }
    return usage


def _measurement_key(record: Record) -> tuple[str, ...]:
    """The measurement that a row of either file is about."""
    return tuple(record.text(column) for column in _KEY_COLUMNS)


def _sum_over_gpus(records: Sequence[Record], name: str, scale: float = 1.0) -> float | None:
    """The sum of a figure over the rows of all GPUs; None if it is missing on one."""
    names = [f"{prefix}{name}" for prefix in _GPU_PREFIXES]
    values = [record.number(*names, scale=scale) for record in records]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def read_row(record: Record) -> BenchmarkRun:
    """The run of a row of `metrics-model-inference.csv`."""
    batch = record.number("Batch", least=1.0) or 1.0
    offered = record.number("Concurrency", least=1.0)
    requests_per_s = record.required_number(_REQUESTS) / batch
    figures = fields_by_name(record, _LATENCIES_MS, 1e-3)
    notes = (_BY_LITTLES_LAW,) if offered is not None and figures["e2e_s"] is None and requests_per_s > 0.0 else ()
    variant = [record.text("Model Config Path")]
    if batch > 1.0:
        variant.append(f"batch{batch:.0f}")
    return BenchmarkRun(
        place=record.place,
        tool="Triton Model Analyzer",
        model=record.text("Model"),
        variant="-".join(filter(None, variant)),
        key=_measurement_key(record),
        offered=offered,
        open_loop=offered is None,
        # The label says infer/sec, the figure is tokens/s.
        tokens_per_s=record.number("Output Token Throughput (infer/sec)", "Output Token Throughput (tokens/sec)"),
        requests_per_s=requests_per_s,
        notes=notes,
        **figures,
    )
