"""guidellm `benchmarks.json`: a benchmark per strategy. Layout 2 since 0.7, layout 1 from 0.4 on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpumon.sizing.imports.files import Document, Record, refusal
from gpumon.sizing.imports.runs import TAILS, BenchmarkRun, check_completed

_NEWEST: Final = 2
_NEWER: Final = f"layout of a newer guidellm than the last known one ({_NEWEST}): compare a figure with its own report"
_GUIDELLM: Final = (
    ("prompt_tokens", "prompt_token_count", 1.0),
    ("answer_tokens", "output_token_count", 1.0),
    ("itl_s", "inter_token_latency_ms", 1e-3),
    ("ttft_s", "time_to_first_token_ms", 1e-3),
    ("e2e_s", "request_latency", 1.0),
    ("tokens_per_s", "output_tokens_per_second", 1.0),
    ("requests_per_s", "requests_per_second", 1.0),
)


def is_guidellm(document: Document) -> bool:
    """Whether this is a report of guidellm; one without a benchmark is refused by name."""
    listed = document.fields.get("benchmarks")
    if not isinstance(listed, list):
        return False
    return not listed or (isinstance(listed[0], Mapping) and "metrics" in listed[0])


def benchmarks(document: Document) -> Iterator[Record]:
    """Each benchmark, with what the whole report tells of all of them."""
    if not document.fields["benchmarks"]:
        raise refusal(document.place, "benchmarks", "is empty")
    report = {name: document.fields.get(name) for name in ("metadata", "args")}
    for number, benchmark in enumerate(document.fields["benchmarks"]):
        place = document.place.inside(f"benchmarks[{number}]")
        if not isinstance(benchmark, Mapping):
            raise refusal(place, "", "is no object")
        yield Record({**report, **benchmark}, place)


def read_benchmark(record: Record) -> BenchmarkRun:
    """The run of one benchmark."""
    metrics = record.part("metrics")
    meta = record.part("metadata")
    totals = metrics.part("request_totals")
    if not metrics.fields:
        raise refusal(record.place, "metrics", "is missing")
    # Requests that the end of a timed run cut off are `incomplete`: they say nothing against it.
    check_completed(record.place, totals.number("successful"), totals.number("errored"))
    strategy = record.part("config", "strategy")
    kind = strategy.text("type_", "type")
    held = None
    if kind in ("concurrent", "throughput"):
        held = strategy.number("streams", "max_concurrency")
    figures: dict[str, Any] = {}
    for field, name, scale in _GUIDELLM:
        distribution = metrics.part(name, "successful")
        figures[field] = distribution.number("mean", scale=scale)
        if field in TAILS:
            figures[TAILS[field]] = distribution.part("percentiles").number("p95", scale=scale)
    achieved = metrics.part("request_concurrency", "successful").number("mean")
    return BenchmarkRun(
        place=record.place,
        tool=f"guidellm {meta.text('guidellm_version')}".strip(),
        model=record.part("config", "backend").text("model") or record.part("args").text("model"),
        offered=1.0 if kind == "synchronous" else held or achieved,
        open_loop=held is None and kind != "synchronous",
        notes=(_NEWER,) if meta.count("version") > _NEWEST else (),
        **figures,
    )
