"""genai-perf and aiperf exports of one run: JSON with a unit per metric, and their CSV of two tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gpumon.sizing.sweeps.record import (
    BYTES,
    COUNT,
    PER_SECOND,
    RATIO,
    SECONDS,
    WATTS,
    Document,
    Place,
    Record,
    Units,
    factor,
    refused,
)
from gpumon.sizing.sweeps.run import Run, completed

_METRICS: Final[Mapping[str, tuple[str, Units, str]]] = {
    "itl_s": ("inter_token_latency", SECONDS, "ms"),
    "ttft_s": ("time_to_first_token", SECONDS, "ms"),
    "e2e_s": ("request_latency", SECONDS, "ms"),
    "tokens_per_s": ("output_token_throughput", PER_SECOND, "tokens/sec"),
    "requests_per_s": ("request_throughput", PER_SECOND, "requests/sec"),
    "prompt_tokens": ("input_sequence_length", COUNT, "tokens"),
    "answer_tokens": ("output_sequence_length", COUNT, "tokens"),
}
"""Field of a run -> name of the metric, its units, and the unit where the file names none. ITL is the TPOT formula."""
_TAILS: Final = ("itl_s", "ttft_s", "e2e_s")
_LOADS: Final = (
    ("loadgen",),
    ("perf_analyzer", "stimulus"),
    ("phases", "profiling"),
    ("load",),
    (),
)
"""Where the concurrency stands inside `input_config`, by version."""
_FILE_CONCURRENCY: Final = re.compile(r"concurrency[-_=]?(\d{1,6})(?!\d)", re.IGNORECASE)
_NAMED: Final = "the concurrency is taken from the names of files or folders: genai-perf leaves it out"
_METRIC_ROW: Final = re.compile(r"(?P<name>[^()]+?)\s*(?:\((?P<unit>[^()]*)\))?")


def recognises(document: Document) -> bool:
    """Whether this is such an export: metrics that are objects with an average."""
    found = document.fields.get("request_throughput")
    return isinstance(found, Mapping) and "avg" in found


def recognises_sheet(document: Document) -> bool:
    """Whether this is such a CSV."""
    return document.header[:2] == ("Metric", "avg")


def read(document: Document) -> list[Run]:
    """The run of one JSON export. Raises SweepError, also for a run that was cancelled or lost requests."""
    record = Record(document.fields, document.place)
    _whole(record)
    aiperf = "aiperf_version" in record or "benchmark_id" in record
    config = record.part("input_config")
    figures = {name: _average(record, *how) for name, how in _METRICS.items()}
    figures |= {f"{name[:-2]}_p95_s": _tail(record, *_METRICS[name]) for name in _TAILS}
    offered, said = _offered(config, record, document.place)
    rate = config.sought("request_rate")
    return [
        Run(
            place=record.place,
            tool=f"aiperf {record.text('aiperf_version')}".strip() if aiperf else "genai-perf",
            model=_model(config, record),
            time=record.text("start_time"),
            offered=offered,
            open_loop=offered is None and rate is not None,
            notes=said,
            **figures,  # type: ignore[arg-type]
            **_telemetry(record),
        )
    ]


def read_sheet(document: Document) -> list[Run]:
    """The run of one CSV export: the file tells neither the model nor the load. Raises SweepError."""
    metrics = _rows(document)
    figures: dict[str, float | None] = {}
    for field, (name, units, unit) in _METRICS.items():
        found = metrics.get(name)
        if found is not None:
            record, written = found
            scale = factor(units, written or unit, record.place, name)
            figures[field] = record.number("avg", "Value", scale=scale)
            if field in _TAILS:
                figures[f"{field[:-2]}_p95_s"] = record.number("p95", scale=scale)
    offered, said = _from_name(document.place)
    return [Run(place=document.place, tool="genai-perf", offered=offered, notes=said, **figures)]  # type: ignore[arg-type]


def _rows(document: Document) -> Mapping[str, tuple[Record, str]]:
    """Metric -> its row and unit. A row that begins with `Metric` heads the rows below it."""
    header: tuple[str, ...] = ()
    found: dict[str, tuple[Record, str]] = {}
    for row in document.rows:
        place = document.place._replace(line=row.line)
        if row.cells[0] == "Metric":
            header = row.cells
            continue
        cells = row.cells
        # A row of the second table may be filled up to the width of the first.
        while len(cells) > len(header) and not cells[-1]:
            cells = cells[:-1]
        if len(cells) != len(header):
            raise refused(place, cells[0], f"has {len(cells)} cells", f"{len(header)}, as the header has")
        match = _METRIC_ROW.fullmatch(cells[0])
        if match:
            name = match["name"].lower().replace(" ", "_")
            found.setdefault(name, (Record(dict(zip(header, cells, strict=True)), place), match["unit"] or ""))
    return found


def _average(record: Record, name: str, units: Units, unit: str) -> float | None:
    return record.part(name).converted("avg", units, unit)


def _tail(record: Record, name: str, units: Units, unit: str) -> float | None:
    return record.part(name).converted("p95", units, unit)


def _whole(record: Record) -> None:
    if record.flag("was_cancelled"):
        raise refused(record.place, "was_cancelled", "is true: the run is not complete")
    if record.flag("is_complete") is False:
        raise refused(record.place, "is_complete", "is false: the run is not complete")
    done = record.part("request_count").number("avg")
    completed(record.place, done, record.part("error_request_count").number("avg"))


def _offered(config: Record, record: Record, place: Place) -> tuple[float | None, tuple[str, ...]]:
    for path in _LOADS:
        found = config.part(*path).number("concurrency")
        if found:
            return found, ()
    varied = record.part("run_info", "variation_values")
    names = [name for name in varied.fields if name.rpartition(".")[2] == "concurrency"]
    found = varied.number(*names) if names else config.sought("concurrency")
    if found:
        return found, ()
    return _from_name(place) if config.sought("request_rate") is None else (None, ())


def _from_name(place: Place) -> tuple[float | None, tuple[str, ...]]:
    """The concurrency that the file leaves out, from its name or folder: the only thing that a name may tell."""
    found = _FILE_CONCURRENCY.findall(place.file)
    if not found or int(found[-1]) == 0:
        return None, ()
    return float(found[-1]), (_NAMED,)


def _model(config: Record, record: Record) -> str:
    places = (config, config.part("endpoint"), config.part("models"), record)
    found = next((text for each in places if (text := each.text("model_names", "model", "models"))), "")
    if found:
        return found
    items = config.part("models").fields.get("items")
    first = items[0] if isinstance(items, list) and items else None
    return Record(first, config.place).text("name") if isinstance(first, Mapping) else ""


def _telemetry(record: Record) -> dict[str, Any]:
    """Power, busy share and memory of the GPUs that aiperf watched: all of a host, so only where it names them."""
    gpus = [
        Record(gpu, record.place.inside("telemetry_data"))
        for endpoint in record.part("telemetry_data", "endpoints").fields.values()
        if isinstance(endpoint, Mapping) and isinstance(endpoint.get("gpus"), Mapping)
        for gpu in endpoint["gpus"].values()
        if isinstance(gpu, Mapping)
    ]
    names = {gpu.text("gpu_name") for gpu in gpus}
    if not gpus or len(names) != 1:
        return {}
    watched = [gpu.part("metrics") for gpu in gpus]
    power = [each.part("gpu_power_usage").converted("avg", WATTS, "W") for each in watched]
    busy = [each.part("gpu_utilization").converted("avg", RATIO, "%") for each in watched]
    memory = [each.part("gpu_memory_used").converted("avg", BYTES, "GB") for each in watched]
    return {
        "gpu": names.pop(),
        "watched_gpus": len(gpus),
        "power_w": _sum(power),
        "busy_ratio": None if (total := _sum(busy)) is None else min(1.0, total / len(busy)),
        "memory_bytes": _sum(memory),
    }


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
