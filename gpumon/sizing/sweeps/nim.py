"""The flat CSV of NVIDIA's NIM benchmarks and sizing course: a row per run, times in ns."""

from __future__ import annotations

from typing import Final

from gpumon.sizing.sweeps.record import SECONDS, Document, Record, factor, table
from gpumon.sizing.sweeps.run import Run, precision

_COLUMNS: Final = frozenset(("input_config-concurrency", "output_token_throughput-avg"))


def recognises(document: Document) -> bool:
    """Whether these are its columns."""
    return _COLUMNS.issubset(document.header)


def read(document: Document) -> list[Run]:
    """A run per row. Raises SweepError."""
    return [_run(record) for record in table(document)]


def _run(record: Record) -> Run:
    return Run(
        place=record.place,
        tool=record.text("task_inputs-execution_type") or "NIM",
        model=record.text("task_inputs-model", "input_config-model"),
        gpu=record.text("task_inputs-GPU"),
        gpus=record.count("task_inputs-n_gpus"),
        # An instance of these benchmarks is one tensor-parallel group.
        tp=record.count("task_inputs-tp") or record.count("task_inputs-n_gpus"),
        weight_precision=precision(record.text("task_inputs-precision")),
        offered=record.wanted("input_config-concurrency", least=1.0),
        prompt_tokens=record.number("input_config-synthetic_input_tokens_mean", "num_input_token-avg"),
        answer_tokens=record.number("input_config-output_tokens_mean", "num_output_token-avg"),
        itl_s=_seconds(record, "inter_token_latency", "avg"),
        itl_p95_s=_seconds(record, "inter_token_latency", "p95"),
        ttft_s=_seconds(record, "time_to_first_token", "avg"),
        ttft_p95_s=_seconds(record, "time_to_first_token", "p95"),
        e2e_s=_seconds(record, "request_latency", "avg"),
        e2e_p95_s=_seconds(record, "request_latency", "p95"),
        tokens_per_s=record.wanted("output_token_throughput-avg"),
        requests_per_s=record.number("request_throughput-avg"),
    )


def _seconds(record: Record, metric: str, statistic: str) -> float | None:
    value = record.number(f"{metric}-{statistic}")
    unit = f"{metric}-unit"
    return None if value is None else value * factor(SECONDS, record.text(unit) or "ns", record.place, unit)
