"""aiconfigurator `best_config_topn.csv` and `pareto.csv`: computed, not measured. Latencies in ms."""

from __future__ import annotations

from typing import Final

from gpumon.sizing.sweeps.record import Document, Record, refused, table
from gpumon.sizing.sweeps.run import Run, precision

_COLUMNS: Final = frozenset(("tokens/s/gpu", "tokens/s/user", "ttft", "tpot", "concurrency"))
_COMPUTED: Final = "aiconfigurator computes these figures, nobody measured them"


def recognises(document: Document) -> bool:
    """Whether these are its columns."""
    return _COLUMNS.issubset(document.header)


def read(document: Document) -> list[Run]:
    """A run per row. Raises SweepError; rows that run prefill and decode apart are no instance to plan with."""
    if any(name.startswith("(p)") for name in document.header):
        place = document.place._replace(line=document.rows[0].line)
        raise refused(place, "(p)tp", "prefill and decode run apart in this file", "the `agg` file of the same run")
    return [_run(record) for record in table(document)]


def _run(record: Record) -> Run:
    prefix = record.number("prefix") or 0.0
    tp, pp, dp = record.count("tp"), record.count("pp"), record.count("dp")
    ep = record.count("moe_ep")
    answer = record.wanted("osl", least=1.0)
    tokens_per_s = record.wanted("tokens/s")
    return Run(
        place=record.place,
        tool=f"aiconfigurator {record.text('backend')} {record.text('version')}".strip(),
        model=record.text("model"),
        variant="-".join([*(f"dp{dp}" for _ in range(dp > 1)), *(f"ep{ep}" for _ in range(ep > 1))]),
        gpu=record.text("system"),
        gpus=record.count("num_total_gpus") or max(1, tp) * max(1, pp) * max(1, dp),
        tp=tp,
        pp=pp,
        weight_precision=precision(record.text("gemm")),
        kv_precision=precision(record.text("kvcache")),
        offered=record.wanted("concurrency", least=1.0),
        prompt_tokens=record.wanted("isl"),
        answer_tokens=answer,
        itl_s=record.wanted("tpot", scale=1e-3),
        ttft_s=record.wanted("ttft", scale=1e-3),
        e2e_s=record.number("request_latency", scale=1e-3),
        tokens_per_s=tokens_per_s,
        requests_per_s=record.number("seq/s") or tokens_per_s / answer,
        notes=(_COMPUTED, *(f"{prefix:.0f} tokens of each prompt were cached" for _ in range(prefix > 0.0))),
    )
