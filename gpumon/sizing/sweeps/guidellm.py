"""guidellm `benchmarks.json`: a benchmark per strategy. Layout 2 since 0.7, layouts 1 and none before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.sizing.sweeps.record import Document, Record, refused
from gpumon.sizing.sweeps.run import Run, completed

_NEWEST: Final = 2
_NEWER: Final = f"layout of a newer guidellm than the last known one ({_NEWEST}): compare a figure with its own report"
_STRATEGIES: Final = (("config", "strategy"), ("args", "strategy"), ("strategy",))
_MODELS: Final = (("config", "backend"), ("config", "environment"), ("args", "backend"), ("worker",), ("args",))
"""Where the strategy and the model stand in a benchmark, newest layout first."""


def recognises(document: Document) -> bool:
    """Whether this is such a report."""
    found = document.fields.get("benchmarks")
    return isinstance(found, list) and (not found or (isinstance(found[0], Mapping) and "metrics" in found[0]))


def read(document: Document) -> list[Run]:
    """A run per benchmark that is no search for the limits. Raises SweepError."""
    whole = Record(document.fields, document.place)
    meta = whole.part("metadata")
    version = meta.count("version")
    tool = f"guidellm {meta.text('guidellm_version')}".strip()
    notes = (_NEWER,) if version > _NEWEST else ()
    benchmarks = document.fields["benchmarks"]
    if not benchmarks:
        raise refused(document.place, "benchmarks", "is empty")
    runs = []
    for number, each in enumerate(benchmarks):
        place = document.place.inside(f"benchmarks[{number}]")
        if not isinstance(each, Mapping):
            raise refused(place, "", "is no object")
        runs.append(_run(Record(each, place), whole, tool, notes))
    return runs


def _run(record: Record, whole: Record, tool: str, notes: tuple[str, ...]) -> Run:
    metrics = record.part("metrics")
    if not metrics.fields:
        raise refused(record.place, "metrics", "is missing")
    totals = next(
        (each for each in (metrics.part("request_totals"), record.part("request_totals")) if each.fields),
        record.part("run_stats", "requests_made"),
    )
    # Requests that the end of a timed run cut off are `incomplete`: they say nothing against it.
    completed(record.place, totals.number("successful"), totals.number("errored"))
    strategy = next((found for path in _STRATEGIES if (found := record.part(*path)).fields), record.part("strategy"))
    kind = strategy.text("type_", "type")
    held = strategy.number("streams", "max_concurrency") if kind in ("concurrent", "throughput") else None
    achieved = _mean(metrics, "request_concurrency")
    offered = 1.0 if kind == "synchronous" else held or achieved
    return Run(
        place=record.place,
        tool=tool,
        model=_model(record, whole),
        offered=offered,
        open_loop=held is None and kind != "synchronous",
        prompt_tokens=_mean(metrics, "prompt_token_count"),
        answer_tokens=_mean(metrics, "output_token_count"),
        itl_s=_mean(metrics, "inter_token_latency_ms", 1e-3),
        itl_p95_s=_p95(metrics, "inter_token_latency_ms", 1e-3),
        ttft_s=_mean(metrics, "time_to_first_token_ms", 1e-3),
        ttft_p95_s=_p95(metrics, "time_to_first_token_ms", 1e-3),
        e2e_s=_mean(metrics, "request_latency"),
        e2e_p95_s=_p95(metrics, "request_latency"),
        tokens_per_s=_mean(metrics, "output_tokens_per_second"),
        requests_per_s=_mean(metrics, "requests_per_second"),
        notes=notes,
    )


def _mean(metrics: Record, name: str, scale: float = 1.0) -> float | None:
    return metrics.part(name, "successful").number("mean", scale=scale)


def _p95(metrics: Record, name: str, scale: float = 1.0) -> float | None:
    return metrics.part(name, "successful", "percentiles").number("p95", scale=scale)


def _model(record: Record, whole: Record) -> str:
    for path in _MODELS:
        for each in (record, whole):
            if found := each.part(*path).text("model", "backend_model", "target_model"):
                return found
    return ""
