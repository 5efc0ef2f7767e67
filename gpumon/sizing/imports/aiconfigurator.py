"""aiconfigurator: `best_config_topn.csv` and `pareto.csv`, a row per configuration. Latencies in ms."""

from __future__ import annotations

from typing import Final

from gpumon.sizing.imports.files import Document, Record
from gpumon.sizing.imports.runs import BenchmarkRun, LeftOut, precision

_COLUMNS: Final = ("tokens/s/gpu", "tokens/s/user", "tpot", "concurrency")
"""Columns by which its files are recognised."""
_COMPUTED: Final = "aiconfigurator computes these figures, nobody measured them"


def is_aiconfigurator(document: Document) -> bool:
    """Whether this is one of its files."""
    return all(column in document.names for column in _COLUMNS)


def read_row(record: Record) -> BenchmarkRun:
    """The run that a row of aiconfigurator predicts. Raises LeftOut for disaggregated serving."""
    if any(name.startswith("(p)") for name in record.fields):
        raise LeftOut(
            record.place, "(p)tp", "prefill and decode run apart in this file", "the `agg` file of the same run"
        )
    notes = [_COMPUTED]
    cached = record.number("prefix")
    if cached:
        notes.append(f"{cached:.0f} tokens of each prompt were cached")
    tp = record.count("tp")
    pp = record.count("pp")
    dp = record.count("dp")
    ep = record.count("moe_ep")
    answer = record.required_number("osl", least=1.0)
    tokens_per_s = record.required_number("tokens/s")
    return BenchmarkRun(
        place=record.place,
        tool=f"aiconfigurator {record.text('backend')} {record.text('version')}".strip(),
        model=record.text("model"),
        variant=_ranks_variant(dp, ep),
        gpu=record.text("system"),
        gpus=record.count("num_total_gpus") or max(1, tp) * max(1, pp) * max(1, dp),
        tp=tp,
        pp=pp,
        weight_precision=precision(record.text("gemm")),
        kv_precision=precision(record.text("kvcache")),
        offered=record.required_number("concurrency", least=1.0),
        prompt_tokens=record.required_number("isl"),
        answer_tokens=answer,
        itl_s=record.required_number("tpot", scale=1e-3),
        ttft_s=record.required_number("ttft", scale=1e-3),
        e2e_s=record.number("request_latency", scale=1e-3),
        tokens_per_s=tokens_per_s,
        requests_per_s=record.number("seq/s") or tokens_per_s / answer,
        notes=tuple(notes),
    )


def _ranks_variant(dp: int, ep: int) -> str:
    """Name of the data-parallel and expert-parallel ranks of an instance: `dp8-ep8`; empty for one of each."""
    parts = []
    if dp > 1:
        parts.append(f"dp{dp}")
    if ep > 1:
        parts.append(f"ep{ep}")
    return "-".join(parts)
