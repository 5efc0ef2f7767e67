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
_MEANS: Final = {
    "tokens_per_s": "output_token_throughput",
    "requests_per_s": "request_throughput",
    "prompt_tokens": "input_sequence_length",
    "answer_tokens": "output_sequence_length",
}
"""Field of a run -> name of the metric, without a unit of time."""
_LOAD_PATHS: Final = (("loadgen",), ("perf_analyzer", "stimulus"), ("phases", "profiling"), ())
"""Place of the concurrency inside `input_config`, by version; aiperf 0.10 has a list of phases instead."""
_RATE_KEYS: Final = ("request_rate", "rate")
_MODEL_OPTIONS: Final = ("--model", "--model-names", "-m")
_FILE_CONCURRENCY: Final = re.compile(r"concurrency[-_=]?(\d{1,6})(?!\d)", re.IGNORECASE)
_FROM_NAME: Final = "the concurrency is taken from the names of files or folders: genai-perf leaves it out"
_TELEMETRY: Final = "telemetry_data is not taken: its GPUs are all of the host, not those of the instance"
_METRIC_ROW: Final = re.compile(r"(?P<name>[^()]*[^()\s])\s*(?:\((?P<unit>[^()]*)\))?")
"""First cell of a row of the CSV: `Request Latency (ms)`."""


class _Load(NamedTuple):
    """The load of a run: requests in flight, or a rate; neither where the file does not tell."""

    offered: float | None
    """Requests in flight."""
    sent_per_s: float | None = None
    """Requests per second."""


def is_run(document: Document) -> bool:
    """Whether this is the summary of one run."""
    throughput = document.fields.get("request_throughput")
    return isinstance(throughput, Mapping) and "avg" in throughput


def read_run(record: Record) -> BenchmarkRun:
    """The run of a JSON summary. Raises ImportRefused for one that was cancelled or lost requests."""
    if record.flag("was_cancelled"):
        raise refusal(record.place, "was_cancelled", "is true: the run is not complete")
    if record.flag("is_complete") is False:  # None in files that do not have it
        raise refusal(record.place, "is_complete", "is false: the run is not complete")
    done = record.part("request_count").number("avg")
    check_completed(record.place, done, record.part("error_request_count").number("avg"))
    load = _load(record)
    notes: tuple[str, ...] = ()
    if load.offered is None and load.sent_per_s is None:
        offered, notes = _concurrency_in_name(record.place)
        load = _Load(offered)
    if record.part("telemetry_data", "endpoints").fields:
        notes = (*notes, _TELEMETRY)
    return BenchmarkRun(
        place=record.place,
        tool=_tool(record),
        model=_model(record),
        time=record.text("start_time"),
        offered=load.offered,
        open_loop=load.offered is None and load.sent_per_s is not None,
        sent_per_s=load.sent_per_s,
        completed=done,
        notes=notes,
        **_figures(record),
    )


def _figures(record: Record) -> dict[str, Any]:
    """Latencies, rates and lengths of a JSON summary, as fields of a run."""
    figures: dict[str, Any] = {field: record.part(name).number("avg") for field, name in _MEANS.items()}
    for field, name in TIMES.items():
        metric = record.part(name)
        unit = metric.text("unit") or "ms"
        figures[field] = metric.seconds("avg", unit)
        figures[TAILS[field]] = metric.seconds("p95", unit)
    return figures


def _tool(record: Record) -> str:
    """The tool that wrote a JSON summary, with its version if it has one."""
    if "aiperf_version" in record or "benchmark_id" in record:
        return f"aiperf {record.text('aiperf_version')}".strip()
    return "genai-perf"


def _model(record: Record) -> str:
    """The only model of a run, from its config, or else the command line that started it; empty if it has several."""
    config = record.part("input_config")
    name = config.text("model_names", "model") or config.part("endpoint").text("model_names", "model")
    if name:
        return name
    items = config.part("models").fields.get("items")
    if isinstance(items, list) and len(items) == 1 and isinstance(items[0], Mapping):
        return Record(items[0], record.place).text("name")
    return _option(record.part("run_info").text("cli_command"), _MODEL_OPTIONS)


def _option(command: str, names: Iterable[str]) -> str:
    """The value of an option in a command line, by any of its names; empty if it is not there, or is a list."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    for word, value in pairwise(words):
        if word in names and not value.startswith("-") and "," not in value:
            return value
    return ""


def _load(record: Record) -> _Load:
    """The load of the run, without its warmup."""
    config = record.part("input_config")
    phases = config.fields.get("phases")
    if isinstance(phases, list):
        return _load_of_phases(phases, record.place)
    parts = [config.part(*path) for path in _LOAD_PATHS]
    offered = next(filter(None, (part.number("concurrency") for part in parts)), None)
    sent_per_s = next(filter(None, (part.number(*_RATE_KEYS) for part in parts)), None)
    return _Load(offered, sent_per_s)


def _load_of_phases(phases: list[Any], place: FilePlace) -> _Load:
    """The load of the phases that are in the results.

    Raises LeftOut where they have several loads, as the figures are of all phases together.
    """
    loads = set()
    for phase in phases:
        if isinstance(phase, Mapping) and phase.get("exclude_from_results") is not True:
            record = Record(phase, place)
            loads.add((record.number("concurrency"), record.number(*_RATE_KEYS)))
    if len(loads) > 1:
        reason = "several loads in one summary: import the summaries of its phases"
        raise LeftOut(place, "input_config.phases", reason)
    if not loads:
        return _Load(None)
    offered, rate = loads.pop()
    return _Load(offered, rate)


def _concurrency_in_name(place: FilePlace) -> tuple[float | None, tuple[str, ...]]:
    """The concurrency that a file leaves out, from its name or folder, with the note on that.

    None, without a note, if it is not there. It is the only fact that a name is trusted with.
    """
    numbers = _FILE_CONCURRENCY.findall(place.file)
    if not numbers or int(numbers[-1]) == 0:
        return None, ()
    return float(numbers[-1]), (_FROM_NAME,)


# Files that aiperf and genai-perf write beside the summary.


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
    first = data[0] if isinstance(data, list) and data else None
    return isinstance(first, Mapping) and ("payloads" in first or "response_text" in first)


def is_pooled(document: Document) -> bool:
    """Whether this pools several runs: `profile_export_aiperf_collated.json`."""
    return "combined" in document.fields and "per_run" in document.fields


# The CSV.


def metrics(document: Document) -> Iterator[Record]:
    """The whole CSV as one record: name of a metric -> its row.

    A row that begins with `Metric` is the header of the rows below it.
    """
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


def is_sheet(document: Document) -> bool:
    """Whether this is the CSV of a run."""
    return document.header[:2] == ("Metric", "avg")


def read_sheet(record: Record) -> BenchmarkRun:
    """The run of a CSV; the file has neither the model nor the load."""
    figures: dict[str, Any] = {}
    for field, name in _MEANS.items():
        row = record.value(name)
        if row:
            figures[field] = row.number("avg", "Value")  # the second table has one figure per row
    for field, name in TIMES.items():
        row = record.value(name)
        if row:
            unit = row.text("unit")
            figures[field] = row.seconds("avg", unit)
            figures[TAILS[field]] = row.seconds("p95", unit)
    offered, notes = _concurrency_in_name(record.place)
    return BenchmarkRun(place=record.place, tool="genai-perf", offered=offered, notes=notes, **figures)
