"""The flat CSV of NVIDIA's NIM benchmarks and sizing course: a row per run."""

from __future__ import annotations

from typing import Any, Final

from gpumon.sizing.imports import genai_perf
from gpumon.sizing.imports.files import Document, Record
from gpumon.sizing.imports.runs import TAILS, BenchmarkRun, precision

_COLUMNS: Final = ("input_config-concurrency", "output_token_throughput-avg")
"""Columns by which a file is recognised."""
_UNIT: Final = "ns"
"""Unit of a time in a file without a column for its unit."""


def is_nim(document: Document) -> bool:
    """Whether this is such a file."""
    return all(column in document.names for column in _COLUMNS)


def read_row(record: Record) -> BenchmarkRun:
    """The run of a row."""
    figures: dict[str, Any] = {}
    for field, name in genai_perf.TIMES.items():
        unit = record.text(f"{name}-unit") or _UNIT
        figures[field] = record.seconds(f"{name}-avg", unit)
        figures[TAILS[field]] = record.seconds(f"{name}-p95", unit)
    return BenchmarkRun(
        place=record.place,
        tool=record.text("task_inputs-execution_type") or "NIM",
        model=record.text("task_inputs-model", "input_config-model"),
        gpu=record.text("task_inputs-GPU"),
        gpus=record.count("task_inputs-n_gpus"),
        # An instance of these benchmarks is one tensor-parallel group.
        tp=record.count("task_inputs-tp") or record.count("task_inputs-n_gpus"),
        weight_precision=precision(record.text("task_inputs-precision")),
        offered=record.required_number("input_config-concurrency", least=1.0),
        prompt_tokens=record.number("input_config-synthetic_input_tokens_mean", "num_input_token-avg"),
        answer_tokens=record.number("input_config-output_tokens_mean", "num_output_token-avg"),
        tokens_per_s=record.required_number("output_token_throughput-avg"),
        requests_per_s=record.number("request_throughput-avg"),
        **figures,
    )
