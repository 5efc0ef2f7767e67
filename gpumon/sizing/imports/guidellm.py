"""guidellm `benchmarks.json`: a benchmark per strategy. Layout 2 since 0.7, layout 1 from 0.4 on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from gpumon.sizing.imports.files import Document, Record, refusal
from gpumon.sizing.imports.runs import TAILS, BenchmarkRun, check_completed

_LAST_LAYOUT: Final = 2
"""Newest layout that was tried."""
_NEWER: Final = (
    f"layout of a newer guidellm than the last known one ({_LAST_LAYOUT}): compare a figure with its own report"
)


class _Metric(NamedTuple):
    """A metric of guidellm, and what it is multiplied with in a run."""

    name: str
    scale: float = 1.0


_METRICS: Final = {
    "prompt_tokens": _Metric("prompt_token_count"),
    "answer_tokens": _Metric("output_token_count"),
    "itl_s": _Metric("inter_token_latency_ms", 1e-3),
    "ttft_s": _Metric("time_to_first_token_ms", 1e-3),
    "e2e_s": _Metric("request_latency"),
    "tokens_per_s": _Metric("output_tokens_per_second"),
    "requests_per_s": _Metric("requests_per_second"),
}
"""Field of a run -> metric."""


def is_guidellm(document: Document) -> bool:
    """Whether this is a report of guidellm, be it one without a benchmark, which `benchmarks` refuses."""
    entries = document.fields.get("benchmarks")
    if not isinstance(entries, list):
        return False
    return not entries or (isinstance(entries[0], Mapping) and "metrics" in entries[0])


def benchmarks(document: Document) -> Iterator[Record]:
    """Each benchmark as a record, with the fields of the report that hold for all of them. Raises ImportRefused."""
    if not document.fields["benchmarks"]:
        raise refusal(document.place, "benchmarks", "is empty")
    report = {name: document.fields.get(name) for name in ("metadata", "args")}
    for number, benchmark in enumerate(document.fields["benchmarks"]):
        place = document.place.inside(f"benchmarks[{number}]")
        if not isinstance(benchmark, Mapping):
            raise refusal(place, "", "is no object")
        yield Record({**report, **benchmark}, place)


def read_benchmark(record: Record) -> BenchmarkRun:
    """The run of one benchmark. Raises ImportRefused for one without figures, or that lost requests."""
    metrics = record.part("metrics")
    meta = record.part("metadata")
    totals = metrics.part("request_totals")
    if not metrics.fields:
        raise refusal(record.place, "metrics", "is missing")
    # Requests that the end of a timed run cut off are `incomplete`. They are no failures.
    check_completed(record.place, totals.number("successful"), totals.number("errored"))
    strategy = record.part("config", "strategy")
    kind = strategy.text("type_", "type")
    held_open = None
    if kind == "synchronous":
        held_open = 1.0
    elif kind in ("concurrent", "throughput"):
        held_open = strategy.number("streams", "max_concurrency")
    figures: dict[str, Any] = {}
    for field, metric in _METRICS.items():
        distribution = metrics.part(metric.name, "successful")
        figures[field] = distribution.number("mean", scale=metric.scale)
        if field in TAILS:
            figures[TAILS[field]] = distribution.part("percentiles").number("p95", scale=metric.scale)
    achieved = metrics.part("request_concurrency", "successful").number("mean")
    notes: tuple[str, ...] = (_NEWER,) if meta.count("version") > _LAST_LAYOUT else ()
    return BenchmarkRun(
        place=record.place,
        tool=f"guidellm {meta.text('guidellm_version')}".strip(),
        model=record.part("config", "backend").text("model") or record.part("args").text("model"),
        offered=held_open or achieved,
        open_loop=held_open is None,
        sent_per_s=strategy.number("rate") if kind in ("constant", "poisson", "async") else None,
        completed=totals.number("successful"),
        notes=notes,
        **figures,
    )
