"""aiperf's sweep aggregates: JSON with a list (or, older, a table) of combinations, and their CSV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.sizing.sweeps.record import PER_SECOND, SECONDS, Document, Place, Record, Units, refused, table, to_number
from gpumon.sizing.sweeps.run import LEAST_COMPLETED, Run

_FIGURES: Final[Mapping[str, tuple[tuple[str, ...], Units, str]]] = {
    "itl_s": (("inter_token_latency_avg",), SECONDS, "ms"),
    "itl_p95_s": (("inter_token_latency_p95",), SECONDS, "ms"),
    "ttft_s": (("time_to_first_token_avg", "ttft_avg"), SECONDS, "ms"),
    "ttft_p95_s": (("time_to_first_token_p95", "ttft_p95"), SECONDS, "ms"),
    "e2e_s": (("request_latency_avg",), SECONDS, "ms"),
    "e2e_p95_s": (("request_latency_p95",), SECONDS, "ms"),
    "tokens_per_s": (("output_token_throughput_avg",), PER_SECOND, "tokens/sec"),
    "requests_per_s": (("request_throughput_avg",), PER_SECOND, "requests/sec"),
}
_LENGTHS: Final = {
    "prompt_tokens": ("input_sequence_length_avg", "isl"),
    "answer_tokens": ("output_sequence_length_avg", "osl"),
}


def recognises(document: Document) -> bool:
    """Whether this is such an aggregate."""
    return "per_combination_metrics" in document.fields or "per_value_metrics" in document.fields


def recognises_sheet(document: Document) -> bool:
    """Whether this is its CSV: parameters, then `METRIC_mean`, `METRIC_std`, ..."""
    header = document.header
    return any(name.endswith("_avg_mean") for name in header) and any(_leaf(name) == "concurrency" for name in header)


def read(document: Document) -> list[Run]:
    """A run per combination; what is not swept has to be given. Raises SweepError where runs failed."""
    record = Record(document.fields, document.place)
    all_runs, good = record.number("num_profile_runs"), record.number("num_successful_runs")
    if all_runs and good is not None and good < LEAST_COMPLETED * all_runs:
        raise refused(
            record.place, "num_successful_runs", f"{good:.0f} of {all_runs:.0f} runs succeeded", "all of them"
        )
    meta = record.part("metadata")
    trials = meta.count("num_trials_per_value") or 1
    version = record.text("aiperf_version") or meta.text("aiperf_version")
    return [
        _run(Record(parameters, place), _means(Record(metrics, place)), trials, version)
        for place, parameters, metrics in _combinations(record, meta)
    ]


def read_sheet(document: Document) -> list[Run]:
    """A run per row. Raises SweepError. The CSV names no units: they are those of the JSON beside it."""
    return [
        _run(
            row,
            {name.removesuffix("_mean"): Record({"mean": value}, row.place) for name, value in row.fields.items()},
            1,
            "",
        )
        for row in table(document)
    ]


def _combinations(record: Record, meta: Record) -> list[tuple[Place, Mapping[str, object], Mapping[str, object]]]:
    listed, keyed = record.fields.get("per_combination_metrics"), record.fields.get("per_value_metrics")
    found: list[tuple[Place, Mapping[str, object], Mapping[str, object]]] = []
    if isinstance(listed, list):
        for number, each in enumerate(listed):
            place = record.place.inside(f"per_combination_metrics[{number}]")
            parts = [each.get(name) for name in ("parameters", "metrics")] if isinstance(each, Mapping) else [None]
            if not all(isinstance(part, Mapping) for part in parts):
                raise refused(place, "", "has no parameters and metrics")
            found.append((place, parts[0], parts[1]))  # type: ignore[arg-type]
    elif isinstance(keyed, Mapping):
        name = meta.text("parameter_name") or "concurrency"
        for value, metrics in keyed.items():
            place = record.place.inside(f"per_value_metrics[{value[:20]}]")
            if not isinstance(metrics, Mapping):
                raise refused(place, "", "has no metrics")
            found.append((place, {name: value}, metrics))
    if not found:
        raise refused(record.place, "per_combination_metrics", "is empty")
    return found


def _means(metrics: Record) -> Mapping[str, Record]:
    return {name: metrics.part(name) for name in metrics.fields}


def _run(parameters: Record, metrics: Mapping[str, Record], trials: int, version: str) -> Run:
    figures: dict[str, float | None] = {}
    for field, (names, units, unit) in _FIGURES.items():
        record = next((metrics[name] for name in names if name in metrics), None)
        figures[field] = None if record is None else record.converted("mean", units, unit)
    for field, (metric, swept) in _LENGTHS.items():
        length = metrics[metric].number("mean") if metric in metrics else None
        figures[field] = _swept(parameters, swept) if length is None else length
    concurrency = _swept(parameters, "concurrency")
    if concurrency is None:
        raise refused(parameters.place, "parameters", "have no concurrency", "a sweep over the concurrency")
    return Run(
        place=parameters.place,
        tool=f"aiperf {version}".strip(),
        offered=concurrency,
        weight=trials,
        **figures,  # type: ignore[arg-type]
    )


def _swept(parameters: Record, leaf: str) -> float | None:
    names = [name for name in parameters.fields if _leaf(name) == leaf]
    value = parameters.number(*names) if names else None
    return value if value is not None and to_number(value) else None


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]
