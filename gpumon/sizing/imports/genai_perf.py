"""genai-perf and aiperf: JSON of one run with a unit per metric, and its CSV of two tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from gpumon.sizing.imports.files import Document, FilePlace, Record, refusal
from gpumon.sizing.imports.runs import TAILS, BenchmarkRun, LeftOut, check_completed

TIMES: Final = {"itl_s": "inter_token_latency", "ttft_s": "time_to_first_token", "e2e_s": "request_latency"}
"""Field of a run -> name of the metric. Their ITL is the TPOT formula."""
_RATES: Final = {
    "tokens_per_s": "output_token_throughput",
    "requests_per_s": "request_throughput",
    "prompt_tokens": "input_sequence_length",
    "answer_tokens": "output_sequence_length",
}
_LOADS: Final = (("loadgen",), ("perf_analyzer", "stimulus"), ("phases", "profiling"), ())
"""Place of the concurrency inside `input_config`, by version; aiperf 0.10 has a list of phases instead."""
_RATE_KEYS: Final = ("request_rate", "rate")
_MODEL_OPTIONS: Final = ("--model", "--model-names", "-m")
_FILE_CONCURRENCY: Final = re.compile(r"concurrency[-_=]?(\d{1,6})(?!\d)", re.IGNORECASE)
_NAMED: Final = "the concurrency is taken from the names of files or folders: genai-perf leaves it out"
_TELEMETRY: Final = "telemetry_data is not taken: its GPUs are all of the host, not those of the instance"
_METRIC_ROW: Final = re.compile(r"(?P<name>[^()]+?)\s*(?:\((?P<unit>[^()]*)\))?")


class _Load(NamedTuple):
    """The load of a run: requests in flight, or a rate (`rated`); neither where the file does not tell."""

    offered: float | None
    rated: bool


def is_run(document: Document) -> bool:
    """Whether this is the summary of one run."""
    throughput = document.fields.get("request_throughput")
    return isinstance(throughput, Mapping) and "avg" in throughput


def read_run(record: Record) -> BenchmarkRun:
    """The run of a JSON summary."""
    for name, wrong in (("was_cancelled", True), ("is_complete", False)):
        if record.flag(name) is wrong:
            raise refusal(record.place, name, f"is {str(wrong).lower()}: the run is not complete")
    done = record.part("request_count").number("avg")
    check_completed(record.place, done, record.part("error_request_count").number("avg"))
    load = _load(record)
    notes: tuple[str, ...] = ()
    if load.offered is None and not load.rated:
        offered, notes = _from_name(record.place)
        load = _Load(offered, rated=False)
    if record.part("telemetry_data", "endpoints").fields:
        notes = (*notes, _TELEMETRY)
    return BenchmarkRun(
        place=record.place,
        tool=_tool(record),
        model=_model(record),
        time=record.text("start_time"),
        offered=load.offered,
        open_loop=load.offered is None and load.rated,
        notes=notes,
        **_figures(record),
    )


def _figures(record: Record) -> dict[str, Any]:
    """Latencies, rates and lengths."""
    figures: dict[str, Any] = {field: record.part(name).number("avg") for field, name in _RATES.items()}
    for field, name in TIMES.items():
        metric = record.part(name)
        unit = metric.text("unit") or "ms"
        figures[field] = metric.seconds("avg", unit)
        figures[TAILS[field]] = metric.seconds("p95", unit)
    return figures


def _tool(record: Record) -> str:
    if "aiperf_version" in record or "benchmark_id" in record:
        return f"aiperf {record.text('aiperf_version')}".strip()
    return "genai-perf"


def _model(record: Record) -> str:
    """The one model of a run: of its config, else of the command line that started it; empty where it has several."""
    config = record.part("input_config")
    name = config.text("model_names", "model") or config.part("endpoint").text("model_names", "model")
    if name:
        return name
    items = config.part("models").fields.get("items")
    if isinstance(items, list) and len(items) == 1 and isinstance(items[0], Mapping):
        return Record(items[0], record.place).text("name")
    return _option(record.part("run_info").text("cli_command"), _MODEL_OPTIONS)


def _option(command: str, names: Iterable[str]) -> str:
    """The value of an option in a command line; empty where it is not there, or is a list."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    for word, after in pairwise(words):
        if word in names and not after.startswith("-") and "," not in after:
            return after
    return ""


def _load(record: Record) -> _Load:
    """The load of the run, without its warmup."""
    config = record.part("input_config")
    phases = config.fields.get("phases")
    if isinstance(phases, list):
        return _of_phases(phases, record.place)
    parts = [config.part(*path) for path in _LOADS]
    offered = next(filter(None, (part.number("concurrency") for part in parts)), None)
    rated = any(part.number(*_RATE_KEYS) for part in parts)
    return _Load(offered, rated)


def _of_phases(phases: list[Any], place: FilePlace) -> _Load:
    """The load of the phases that count. Raises LeftOut where they have several: the figures are of all together."""
    counted = []
    for phase in phases:
        if isinstance(phase, Mapping) and phase.get("exclude_from_results") is not True:
            counted.append(Record(phase, place))
    loads = {(phase.number("concurrency"), phase.number(*_RATE_KEYS)) for phase in counted}
    if len(loads) > 1:
        reason = "several loads in one summary: import the summaries of its phases"
        raise LeftOut(place, "input_config.phases", reason)
    offered, rate = loads.pop() if loads else (None, None)
    return _Load(offered, rated=rate is not None)


def _from_name(place: FilePlace) -> tuple[float | None, tuple[str, ...]]:
    """The concurrency that the file leaves out, from its name or folder: the only thing that a name may tell."""
    numbers = _FILE_CONCURRENCY.findall(place.file)
    if not numbers or int(numbers[-1]) == 0:
        return (None, ())
    return (float(numbers[-1]), (_NAMED,))


# What aiperf and genai-perf write beside the summary.


def is_genai_request(document: Document) -> bool:
    """Whether this is one request of `profile_export.jsonl`."""
    fields = document.fields
    metadata = fields.get("metadata")
    return isinstance(metadata, Mapping) and "x_request_id" in metadata and "metrics" in fields


def is_raw(document: Document) -> bool:
    """Whether this is `profile_export.json` of genai-perf, or the prompts or answers of a run."""
    experiments = document.fields.get("experiments")
    if isinstance(experiments, list):
        return "endpoint_type" in document.fields or "service_kind" in document.fields
    data = document.fields.get("data")
    first = None
    if isinstance(data, list) and data:
        first = data[0]
    return isinstance(first, Mapping) and ("payloads" in first or "response_text" in first)


def is_pooled(document: Document) -> bool:
    """Whether this pools several runs: `profile_export_aiperf_collated.json`."""
    return "combined" in document.fields and "per_run" in document.fields


# The CSV.


def metrics(document: Document) -> Iterator[Record]:
    """The whole CSV as one record, metric -> its row: a row that begins with `Metric` heads the rows below it."""
    header = document.header
    rows = dict[str, Record]()
    for line, cells in document.rows:
        # A row of the second table may be filled up to the width of the first.
        while len(cells) > len(header) and not cells[-1]:
            cells = cells[:-1]
        if cells[0] == "Metric":
            header = cells
        elif match := _METRIC_ROW.fullmatch(cells[0]):
            row = document.row(line, cells, header)
            fields = {**row.fields, "unit": match["unit"] or "ms"}
            rows.setdefault(match["name"].lower().replace(" ", "_"), Record(fields, row.place))
    yield Record(rows, document.place)


def read_sheet(record: Record) -> BenchmarkRun:
    """The run of a CSV; the file tells neither the model nor the load."""
    figures: dict[str, Any] = {}
    for field, name in _RATES.items():
        metric = record.value(name)
        figures[field] = metric.number("avg", "Value") if metric else None
    for field, name in TIMES.items():
        metric = record.value(name)
        figures[field] = metric.seconds("avg", metric.text("unit")) if metric else None
        figures[TAILS[field]] = metric.seconds("p95", metric.text("unit")) if metric else None
    offered, notes = _from_name(record.place)
    return BenchmarkRun(place=record.place, tool="genai-perf", offered=offered, notes=notes, **figures)
