"""Triton Model Analyzer: `metrics-model-inference.csv`, and `metrics-model-gpu.csv` beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpumon.sizing.sweeps.record import Document, Record, table
from gpumon.sizing.sweeps.run import Run

TOOL: Final = "Triton Model Analyzer"
_KEY: Final = ("Model", "Batch", "Concurrency", "Request Rate", "Model Config Path")
_PREFIXES: Final = ("Max ", "Average ", "")
_LITTLE: Final = "mean latency = concurrency / throughput: the file has no `Avg Latency (ms)`"

Usage = Mapping[tuple[str, ...], "Gpus"]


class Gpus(msgspec.Struct, frozen=True):
    """What all GPUs of one measurement took together."""

    count: int
    memory_bytes: float | None
    busy_ratio: float | None
    power_w: float | None


def recognises(document: Document) -> bool:
    """Whether these are its inference columns."""
    return "Model" in document.header and "Throughput (infer/sec)" in document.header


def recognises_gpu(document: Document) -> bool:
    """Whether these are its GPU columns, of models or of the server alone."""
    return "Model" in document.header and any(
        f"{prefix}GPU Memory Usage (MB)" in document.header for prefix in _PREFIXES
    )


def read(document: Document) -> list[Run]:
    """A run per row, without what the GPU file adds. Raises SweepError."""
    return [_run(record) for record in table(document)]


def read_gpu(document: Document) -> list[Run]:
    """No runs: `usage` reads this file. Its rows are checked here. Raises SweepError."""
    usage((document,))
    return []


def usage(sheets: Iterable[Document]) -> Usage:
    """Memory (MB of 1e6 bytes), busy share and power per measurement, summed over its GPUs. Raises SweepError."""
    rows: dict[tuple[str, ...], list[Record]] = {}
    for sheet in sheets:
        for record in table(sheet):
            rows.setdefault(_key(record), []).append(record)
    return {key: _gpus(records) for key, records in rows.items()}


def with_usage(runs: Sequence[Run], found: Usage) -> list[Run]:
    """The runs with what their GPUs took, where a GPU file tells it."""
    return [
        msgspec.structs.replace(
            run,
            gpus=gpus.count,
            memory_bytes=gpus.memory_bytes,
            busy_ratio=gpus.busy_ratio,
            power_w=gpus.power_w,
        )
        if (gpus := found.get(run.key)) is not None
        else run
        for run in runs
    ]


def _key(record: Record) -> tuple[str, ...]:
    return tuple(record.text(name) for name in _KEY)


def _gpus(records: Sequence[Record]) -> Gpus:
    busy = _all(records, "GPU Utilization (%)", 1e-2)
    memory = _all(records, "GPU Memory Usage (MB)", 1e6)
    power = _all(records, "GPU Power Usage (W)", 1.0)
    return Gpus(
        count=len(records),
        memory_bytes=None if memory is None else sum(memory),
        busy_ratio=None if busy is None else min(1.0, sum(busy) / len(busy)),
        power_w=None if power is None else sum(power),
    )


def _all(records: Sequence[Record], name: str, scale: float) -> list[float] | None:
    values = [record.number(*(f"{prefix}{name}" for prefix in _PREFIXES), scale=scale) for record in records]
    known = [value for value in values if value is not None]
    return known if known and len(known) == len(values) else None


def _run(record: Record) -> Run:
    batch = record.number("Batch", least=1.0) or 1.0
    offered = record.number("Concurrency", least=1.0)
    requests_per_s = record.wanted("Throughput (infer/sec)") / batch
    e2e_s = _ms(record, "Avg Latency (ms)")
    tokens = _first(record, "Output Token Throughput (infer/sec)", "Output Token Throughput (tokens/sec)")
    config = record.text("Model Config Path")
    little = offered is not None and e2e_s is None and requests_per_s > 0.0
    return Run(
        place=record.place,
        tool=TOOL,
        model=record.text("Model"),
        variant="-".join([*([config] if config else []), *([f"batch{batch:.0f}"] if batch > 1.0 else [])]),
        key=_key(record),
        offered=offered,
        open_loop=offered is None,
        itl_s=_ms(record, "Avg Inter Token Latency (ms)"),
        itl_p95_s=_ms(record, "p95 Inter Token Latency (ms)"),
        ttft_s=_ms(record, "Avg Time To First Token (ms)"),
        ttft_p95_s=_ms(record, "p95 Time To First Token (ms)"),
        e2e_s=e2e_s,
        e2e_p95_s=_ms(record, "p95 Latency (ms)"),
        queue_s=_ms(record, "Server Queue time (ms)"),
        # The label says infer/sec, the figure is tokens/s.
        tokens_per_s=tokens,
        requests_per_s=requests_per_s,
        notes=(_LITTLE,) if little else (),
    )


def _ms(record: Record, name: str) -> float | None:
    return record.number(name, scale=1e-3)


def _first(record: Record, *names: str) -> float | None:
    return next((value for name in names if (value := record.number(name)) is not None), None)
