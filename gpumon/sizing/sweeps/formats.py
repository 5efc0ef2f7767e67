"""The formats of load tests: how each is told by its content, and the runs that it holds. The first that fits counts.

Every reader gives runs in seconds, tokens/s, requests/s, bytes and watts, and raises SweepError for a run that was
cancelled, lost requests, or is no instance that can be planned with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

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
    table,
    to_number,
)

LEAST_COMPLETED: Final = 0.95
"""Share of the requests that have to succeed: a run that lost more did not carry its load."""
_PRECISIONS: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"nvfp4|^fp4", "nvfp4"),
        (r"mxfp4", "mxfp4"),
        (r"int4|w4a16|awq|gptq", "int4"),
        (r"fp8|e4m3|e5m2", "fp8"),
        (r"int8|w8a8|^sq$", "int8"),
        (r"bfloat16|bf16", "bf16"),
        (r"float16|fp16|half", "fp16"),
        (r"float32|fp32", "fp32"),
    )
)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One operating point, in seconds, tokens/s, requests/s, bytes, watts. None and empty: the file does not say."""

    place: Place
    tool: str
    model: str = ""
    variant: str = ""
    """Tells configurations of one model apart that the other fields do not."""
    gpu: str = ""
    """As the file calls it."""
    gpus: int = 0
    tp: int = 0
    pp: int = 0
    weight_precision: str = ""
    kv_precision: str = ""
    time: str = ""
    offered: float | None = None
    open_loop: bool = False
    """The load was a rate: in flight is what Little's law says."""
    prompt_tokens: float | None = None
    answer_tokens: float | None = None
    itl_s: float | None = None
    """Per output token after the first (the TPOT formula)."""
    itl_p95_s: float | None = None
    ttft_s: float | None = None
    ttft_p95_s: float | None = None
    e2e_s: float | None = None
    e2e_p95_s: float | None = None
    queue_s: float | None = None
    """Mean wait in the server, part of `e2e_s`."""
    tokens_per_s: float | None = None
    requests_per_s: float | None = None
    power_w: float | None = None
    busy_ratio: float | None = None
    memory_bytes: float | None = None
    kv_pool_tokens: float | None = None
    max_num_seqs: int = 0
    tokens_per_step: float | None = None
    """Of speculative decoding, where the file tells it."""
    settings: str = ""
    """Of the server, as far as they change what it does: `max-num-batched-tokens8192-block-size16`."""
    weight: int = 1
    watched_gpus: int = 0
    """GPUs that power, busy share and memory are of; 0: those of the instance."""
    key: tuple[str, ...] = ()
    """What a second file about the same measurement calls it."""
    notes: tuple[str, ...] = ()


class Format(NamedTuple):
    """One format. A format that is `read` as None is known and holds no sweep: `instead` says what to import."""

    name: str
    recognises: Callable[[Document], bool]
    read: Callable[[Document], list[Run]] | None
    instead: str = ""


def format_of(document: Document) -> Format:
    """The format of a document. Raises SweepError where none fits, or where it holds no sweep."""
    formats = CSV_FORMATS if document.rows else JSON_FORMATS
    found = next((each for each in formats if each.recognises(document)), None)
    if found is None:
        raise refused(document.place, "", "is the result of no load test that gpumon knows", KNOWN)
    if found.read is None:
        raise refused(document.place, "", f"is {found.name}: not a summary", found.instead)
    return found


def precision(text: str) -> str:
    """The name that gpumon has for a number format, e.g. of `fp8_block`, `bfloat16`, `w4a16`; empty where none fits."""
    lowered = text.lower()
    return next((name for pattern, name in _PRECISIONS if pattern.search(lowered)), "")


def _completed(place: Place, done: float | None, failed: float | None, asked: float | None = None) -> None:
    """Raises SweepError where fewer than 95 % of the requests succeeded, or none did."""
    if done is None:
        return
    if done == 0.0:
        raise refused(place, "completed", "is 0: no request succeeded")
    total = max(asked or 0.0, done + (failed or 0.0))
    if done < LEAST_COMPLETED * total:
        reason = f"{done:.0f} of {total:.0f} requests succeeded"
        raise refused(place, "completed", reason, f"at least {LEAST_COMPLETED:.0%}")


_Names = Mapping[str, tuple[str, ...]]
"""Field of a run -> names that the record may have for it, the first that is there."""


def _figures(record: Record, names: _Names, scale: float = 1.0) -> dict[str, Any]:
    return {field: record.number(*known, scale=scale) for field, known in names.items()}


# vllm bench serve --save-result (and `vllm bench sweep serve`), SGLang bench_serving --output-file: one object per run.

_GPU_KEYS: Final = ("gpu", "gpu_type", "gpu_name", "hardware", "hw", "accelerator")
_GPUS_KEYS: Final = ("gpus", "num_gpus", "n_gpus", "gpu_count")
_TP_KEYS: Final = ("tp", "tensor_parallel_size", "tensor-parallel-size", "tp_size")
_PP_KEYS: Final = ("pp", "pipeline_parallel_size", "pipeline-parallel-size", "pp_size")
_PRECISION_KEYS: Final = ("precision", "weight_precision", "quantization", "dtype")
_KV_KEYS: Final = ("kv_cache_dtype", "kv-cache-dtype", "kv_precision")
"""What users pass with `--metadata`, what a sweep merges in from its serve parameters, and SGLang's server_info."""
_SETTINGS: Final = (
    *("max_num_batched_tokens", "gpu_memory_utilization", "block_size", "enable_prefix_caching", "max_model_len"),
    *("enable_chunked_prefill", "data_parallel_size", "enable_expert_parallel", "async_scheduling"),
)
"""Options of a server that a sweep merges into its records, and that change how fast it is."""
_BENCH_MS: Final = {
    "itl_s": ("mean_tpot_ms", "mean_itl_ms"),
    "itl_p95_s": ("p95_tpot_ms",),
    "ttft_s": ("mean_ttft_ms",),
    "ttft_p95_s": ("p95_ttft_ms",),
    "e2e_s": ("mean_e2el_ms", "mean_e2e_latency_ms"),
    "e2e_p95_s": ("p95_e2el_ms", "p95_e2e_latency_ms"),
}
_CHUNKS: Final = "ITL between chunks stands for the time per token: the file has no TPOT"
_ABORTED: Final = 1.5
"""Retokenized output tokens per request below which SGLang gave up after the first token."""


def _is_sglang(document: Document) -> bool:
    fields = document.fields
    return "output_throughput" in fields and (
        "total_output_tokens_retokenized" in fields or "mean_e2e_latency_ms" in fields
    )


def _is_vllm(document: Document) -> bool:
    fields = document.fields
    return "output_throughput" in fields and any(
        f"mean_{name}_ms" in fields for name in ("ttft", "tpot", "itl", "e2el")
    )


def _bench(document: Document) -> list[Run]:
    record = Record(document.fields, document.place)
    server, sglang = record.part("server_info"), _is_sglang(document)
    done = record.number("completed")
    _completed(record.place, done, record.number("failed"), record.number("num_prompts"))
    if sglang:
        _not_aborted(record, record.wanted("completed"))
    offered = record.number("max_concurrency") if record.endless("request_rate") else None
    options = {key.replace("-", "_"): value for key, value in document.fields.items()}
    settings = (f"{name.replace('_', '-')}{options[name]}" for name in _SETTINGS if options.get(name) is not None)
    return [
        Run(
            place=record.place,
            tool=f"SGLang bench_serving {server.text('version')}".strip() if sglang else "vllm bench serve",
            model=server.text("model_path", "served_model_name") or record.text("model_id", "model"),
            gpu=record.text(*_GPU_KEYS),
            gpus=record.count(*_GPUS_KEYS),
            tp=server.count(*_TP_KEYS) or record.count(*_TP_KEYS),
            pp=server.count(*_PP_KEYS) or record.count(*_PP_KEYS),
            weight_precision=precision(server.text("quantization", "dtype") or record.text(*_PRECISION_KEYS)),
            kv_precision=precision(server.text(*_KV_KEYS) or record.text(*_KV_KEYS)),
            time=_date(record.text("date")),
            offered=offered,
            open_loop=offered is None,
            prompt_tokens=record.per_request("total_input_tokens", done),
            answer_tokens=record.per_request("total_output_tokens", done),
            tokens_per_s=record.wanted("output_throughput"),
            requests_per_s=record.number("request_throughput"),
            kv_pool_tokens=server.number("max_total_num_tokens"),
            tokens_per_step=record.number("spec_decode_acceptance_length", "accept_length"),
            max_num_seqs=server.count("max_running_requests") or record.count("max_num_seqs", "max-num-seqs"),
            settings="-".join(settings),
            notes=(_CHUNKS,) if "mean_itl_ms" in record and "mean_tpot_ms" not in record else (),
            **_figures(record, _BENCH_MS, 1e-3),
        )
    ]


def _not_aborted(record: Record, done: float) -> None:
    tokens, retokenized = record.number("total_output_tokens"), record.number("total_output_tokens_retokenized")
    if tokens is not None and retokenized is not None and retokenized <= _ABORTED * done < tokens:
        reason = f"is {retokenized:.0f} for {done:.0f} requests that asked for {tokens:.0f} tokens: the server "
        raise refused(record.place, "total_output_tokens_retokenized", f"{reason}aborted them")


def _date(text: str) -> str:
    """`20260613-051141` as RFC 3339 without a zone: vLLM writes local time."""
    if re.fullmatch(r"\d{8}-\d{6}", text):
        return f"{text[:4]}-{text[4:6]}-{text[6:8]}T{text[9:11]}:{text[11:13]}:{text[13:]}"
    return text


# InferenceX (ex InferenceMAX): aggregate rows and the files of its experiments. Latencies in seconds.

_INFERENCEX: Final = {
    "itl_s": ("mean_tpot", "median_tpot"),
    "itl_p95_s": ("p95_tpot",),
    "ttft_s": ("mean_ttft", "median_ttft"),
    "ttft_p95_s": ("p95_ttft",),
    "e2e_s": ("mean_e2el", "median_e2el"),
    "e2e_p95_s": ("p95_e2el",),
    "prompt_tokens": ("isl", "random_input_len"),
    "answer_tokens": ("osl", "random_output_len"),
}
_MEDIAN: Final = "medians stand for means: the file has no means"


def _is_inferencex(document: Document) -> bool:
    fields = document.fields
    return any(name in fields for name in ("mean_ttft", "median_ttft", "mean_tpot", "median_tpot")) and (
        "tput_per_gpu" in fields or "output_throughput" in fields
    )


def _inferencex(document: Document) -> list[Run]:
    record = Record(document.fields, document.place)
    if record.flag("disagg"):
        raise refused(record.place, "disagg", "is true: prefill and decode run apart", "rows of one instance")
    gpus = record.count("num_gpus", "gpus") or record.count("tp") * (record.count("pp") or 1)
    per_gpu = record.number("output_tput_per_gpu")
    if per_gpu is not None and not gpus:
        raise refused(record.place, "tp", "is missing: the throughput is one per GPU")
    tokens_per_s = per_gpu * gpus if per_gpu is not None else record.wanted("output_throughput")
    figures = _figures(record, _INFERENCEX)
    answer = figures["answer_tokens"]
    power = record.number("avg_power_w")
    # With drafts the gap between chunks is a step, and several tokens come in one.
    drafts, step_s = record.text("spec_decoding") not in ("", "none"), record.number("mean_itl", "median_itl")
    return [
        Run(
            place=record.place,
            tool=f"InferenceX {record.text('framework')}".strip(),
            model=record.text("model", "model_id"),
            gpu=record.text("hw", "device"),
            gpus=gpus,
            tp=record.count("tp"),
            pp=record.count("pp"),
            weight_precision=precision(record.text("precision")),
            variant="" if record.count("ep") < 2 else f"ep{record.count('ep')}",
            time=record.text("date"),
            offered=record.wanted("conc", "max_concurrency"),
            tokens_per_s=tokens_per_s,
            requests_per_s=record.number("request_throughput") or (tokens_per_s / answer if answer else None),
            power_w=power * gpus if power and gpus else None,
            tokens_per_step=step_s / figures["itl_s"] if drafts and step_s and figures["itl_s"] else None,
            notes=() if "mean_tpot" in record else (_MEDIAN,),
            **figures,
        )
    ]


# guidellm benchmarks.json: a benchmark per strategy. Layout 2 since 0.7, layouts 1 and none before.

_NEWEST: Final = 2
_NEWER: Final = f"layout of a newer guidellm than the last known one ({_NEWEST}): compare a figure with its own report"
_STRATEGIES: Final = (("config", "strategy"), ("args", "strategy"), ("strategy",))
_MODELS: Final = (("config", "backend"), ("config", "environment"), ("args", "backend"), ("worker",), ("args",))
"""Where the strategy and the model stand in a benchmark, newest layout first."""
_GUIDELLM: Final = (
    ("prompt_tokens", "prompt_token_count", 1.0),
    ("answer_tokens", "output_token_count", 1.0),
    ("itl_s", "inter_token_latency_ms", 1e-3),
    ("ttft_s", "time_to_first_token_ms", 1e-3),
    ("e2e_s", "request_latency", 1.0),
    ("tokens_per_s", "output_tokens_per_second", 1.0),
    ("requests_per_s", "requests_per_second", 1.0),
)


def _is_guidellm(document: Document) -> bool:
    found = document.fields.get("benchmarks")
    return isinstance(found, list) and (not found or (isinstance(found[0], Mapping) and "metrics" in found[0]))


def _guidellm(document: Document) -> list[Run]:
    whole = Record(document.fields, document.place)
    meta = whole.part("metadata")
    tool = f"guidellm {meta.text('guidellm_version')}".strip()
    notes = (_NEWER,) if meta.count("version") > _NEWEST else ()
    benchmarks = document.fields["benchmarks"]
    if not benchmarks:
        raise refused(document.place, "benchmarks", "is empty")
    runs = []
    for number, each in enumerate(benchmarks):
        place = document.place.inside(f"benchmarks[{number}]")
        if not isinstance(each, Mapping):
            raise refused(place, "", "is no object")
        record = Record(each, place)
        # The model stands in the benchmark or in the whole report, by version.
        models = (owner.part(*path) for path in _MODELS for owner in (record, whole))
        model = next(filter(None, (part.text("model", "backend_model", "target_model") for part in models)), "")
        runs.append(msgspec.structs.replace(_guidellm_run(record), tool=tool, model=model, notes=notes))
    return runs


def _guidellm_run(record: Record) -> Run:
    metrics = record.part("metrics")
    if not metrics.fields:
        raise refused(record.place, "metrics", "is missing")
    totals = next(
        (each for each in (metrics.part("request_totals"), record.part("request_totals")) if each.fields),
        record.part("run_stats", "requests_made"),
    )
    # Requests that the end of a timed run cut off are `incomplete`: they say nothing against it.
    _completed(record.place, totals.number("successful"), totals.number("errored"))
    strategy = next((found for path in _STRATEGIES if (found := record.part(*path)).fields), record.part("strategy"))
    kind = strategy.text("type_", "type")
    held = strategy.number("streams", "max_concurrency") if kind in ("concurrent", "throughput") else None
    figures: dict[str, Any] = {}
    for field, name, scale in _GUIDELLM:
        found = metrics.part(name, "successful")
        figures[field] = found.number("mean", scale=scale)
        if field in _TAILS:
            figures[_p95(field)] = found.part("percentiles").number("p95", scale=scale)
    achieved = metrics.part("request_concurrency", "successful").number("mean")
    return Run(
        place=record.place,
        tool="guidellm",
        offered=1.0 if kind == "synchronous" else held or achieved,
        open_loop=held is None and kind != "synchronous",
        **figures,
    )


# genai-perf and aiperf: JSON of one run with a unit per metric, its CSV of two tables, and aiperf's sweep aggregates.

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
_LOADS: Final = (("loadgen",), ("perf_analyzer", "stimulus"), ("phases", "profiling"), ("load",), ())
"""Where the concurrency stands inside `input_config`, by version."""
_FILE_CONCURRENCY: Final = re.compile(r"concurrency[-_=]?(\d{1,6})(?!\d)", re.IGNORECASE)
_NAMED: Final = "the concurrency is taken from the names of files or folders: genai-perf leaves it out"
_METRIC_ROW: Final = re.compile(r"(?P<name>[^()]+?)\s*(?:\((?P<unit>[^()]*)\))?")
_GPU_METRICS: Final = (
    ("power_w", "gpu_power_usage", WATTS, "W"),
    ("busy_ratio", "gpu_utilization", RATIO, "%"),
    ("memory_bytes", "gpu_memory_used", BYTES, "GB"),
)


def _p95(field: str) -> str:
    return f"{field[:-2]}_p95_s"


def _is_genai_perf(document: Document) -> bool:
    found = document.fields.get("request_throughput")
    return isinstance(found, Mapping) and "avg" in found


def _genai_perf(document: Document) -> list[Run]:
    record = Record(document.fields, document.place)
    if record.flag("was_cancelled"):
        raise refused(record.place, "was_cancelled", "is true: the run is not complete")
    if record.flag("is_complete") is False:
        raise refused(record.place, "is_complete", "is false: the run is not complete")
    done = record.part("request_count").number("avg")
    _completed(record.place, done, record.part("error_request_count").number("avg"))
    config = record.part("input_config")
    figures: dict[str, Any] = {}
    for field, (name, units, unit) in _METRICS.items():
        figures[field] = record.part(name).converted("avg", units, unit)
        if field in _TAILS:
            figures[_p95(field)] = record.part(name).converted("p95", units, unit)
    offered, notes = _offered(config, record, document.place)
    aiperf = "aiperf_version" in record or "benchmark_id" in record
    return [
        Run(
            place=record.place,
            tool=f"aiperf {record.text('aiperf_version')}".strip() if aiperf else "genai-perf",
            model=_genai_model(config, record),
            time=record.text("start_time"),
            offered=offered,
            open_loop=offered is None and config.sought("request_rate") is not None,
            notes=notes,
            **figures,
            **_telemetry(record),
        )
    ]


def _offered(config: Record, record: Record, place: Place) -> tuple[float | None, tuple[str, ...]]:
    varied = record.part("run_info", "variation_values")
    names = [name for name in varied.fields if _leaf(name) == "concurrency"]
    found = next(filter(None, (config.part(*path).number("concurrency") for path in _LOADS)), None)
    found = found or (varied.number(*names) if names else config.sought("concurrency"))
    if found:
        return found, ()
    return _from_name(place) if config.sought("request_rate") is None else (None, ())


def _from_name(place: Place) -> tuple[float | None, tuple[str, ...]]:
    """The concurrency that the file leaves out, from its name or folder: the only thing that a name may tell."""
    found = _FILE_CONCURRENCY.findall(place.file)
    return (None, ()) if not found or int(found[-1]) == 0 else (float(found[-1]), (_NAMED,))


def _genai_model(config: Record, record: Record) -> str:
    places = (config, config.part("endpoint"), config.part("models"), record)
    items = config.part("models").fields.get("items")
    first = items[0] if isinstance(items, list) and items else None
    named = Record(first, config.place).text("name") if isinstance(first, Mapping) else ""
    return next(filter(None, (each.text("model_names", "model", "models") for each in places)), named)


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
    if len(names) != 1:
        return {}
    found: dict[str, Any] = {"gpu": names.pop(), "watched_gpus": len(gpus)}
    for field, metric, units, unit in _GPU_METRICS:
        total = _sum([gpu.part("metrics", metric).converted("avg", units, unit) for gpu in gpus])
        found[field] = total if total is None or field != "busy_ratio" else min(1.0, total / len(gpus))
    return found


def _sum(values: Sequence[float | None]) -> float | None:
    """None where one of them is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _is_genai_sheet(document: Document) -> bool:
    return document.header[:2] == ("Metric", "avg")


def _genai_sheet(document: Document) -> list[Run]:
    """The file tells neither the model nor the load. A row that begins with `Metric` heads the rows below it."""
    header: tuple[str, ...] = ()
    metrics: dict[str, tuple[Record, str]] = {}
    for row in document.rows:
        place, cells = document.place._replace(line=row.line), row.cells
        if cells[0] == "Metric":
            header = cells
            continue
        # A row of the second table may be filled up to the width of the first.
        while len(cells) > len(header) and not cells[-1]:
            cells = cells[:-1]
        if len(cells) != len(header):
            raise refused(place, cells[0], f"has {len(cells)} cells", f"{len(header)}, as the header has")
        if match := _METRIC_ROW.fullmatch(cells[0]):
            name = match["name"].lower().replace(" ", "_")
            metrics.setdefault(name, (Record(dict(zip(header, cells, strict=True)), place), match["unit"] or ""))
    figures: dict[str, Any] = {}
    for field, (name, units, unit) in _METRICS.items():
        if name in metrics:
            record, written = metrics[name]
            scale = factor(units, written or unit, record.place, name)
            figures[field] = record.number("avg", "Value", scale=scale)
            if field in _TAILS:
                figures[_p95(field)] = record.number("p95", scale=scale)
    offered, notes = _from_name(document.place)
    return [Run(place=document.place, tool="genai-perf", offered=offered, notes=notes, **figures)]


def _is_aiperf_sweep(document: Document) -> bool:
    return "per_combination_metrics" in document.fields or "per_value_metrics" in document.fields


def _is_aiperf_sheet(document: Document) -> bool:
    """Parameters, then `METRIC_mean`, `METRIC_std`, ..."""
    header = document.header
    return any(name.endswith("_avg_mean") for name in header) and any(_leaf(name) == "concurrency" for name in header)


def _aiperf_sweep(document: Document) -> list[Run]:
    """A run per combination; what is not swept has to be given."""
    record = Record(document.fields, document.place)
    planned, good = record.number("num_profile_runs"), record.number("num_successful_runs")
    if planned and good is not None and good < LEAST_COMPLETED * planned:
        raise refused(record.place, "num_successful_runs", f"{good:.0f} of {planned:.0f} runs succeeded", "all of them")
    meta = record.part("metadata")
    trials = meta.count("num_trials_per_value") or 1
    tool = f"aiperf {record.text('aiperf_version') or meta.text('aiperf_version')}".strip()
    return [
        _combination(parameters, {name: metrics.part(name) for name in metrics.fields}, trials, tool)
        for parameters, metrics in _combinations(record, meta)
    ]


def _aiperf_sheet(document: Document) -> list[Run]:
    """A run per row. The CSV names no units: they are those of the JSON beside it."""
    return [
        _combination(
            row,
            {name.removesuffix("_mean"): Record({"mean": value}, row.place) for name, value in row.fields.items()},
            1,
            "aiperf",
        )
        for row in table(document)
    ]


def _combinations(record: Record, meta: Record) -> list[tuple[Record, Record]]:
    """Parameters and metrics of each combination: a list, in older files an object by the value of one parameter."""
    listed, keyed = record.fields.get("per_combination_metrics"), record.fields.get("per_value_metrics")
    found: list[tuple[Record, Record]] = []
    if isinstance(listed, list):
        for number, each in enumerate(listed):
            place = record.place.inside(f"per_combination_metrics[{number}]")
            parts = [each.get(name) if isinstance(each, Mapping) else None for name in ("parameters", "metrics")]
            if not all(isinstance(part, Mapping) for part in parts):
                raise refused(place, "", "has no parameters and metrics")
            found.append((Record(parts[0] or {}, place), Record(parts[1] or {}, place)))
    elif isinstance(keyed, Mapping):
        name = meta.text("parameter_name") or "concurrency"
        for value, metrics in keyed.items():
            place = record.place.inside(f"per_value_metrics[{value[:20]}]")
            if not isinstance(metrics, Mapping):
                raise refused(place, "", "has no metrics")
            found.append((Record({name: value}, place), Record(metrics, place)))
    if not found:
        raise refused(record.place, "per_combination_metrics", "is empty")
    return found


def _combination(parameters: Record, metrics: Mapping[str, Record], trials: int, tool: str) -> Run:
    figures: dict[str, Any] = {}
    for field, (name, units, unit) in _METRICS.items():
        for at, suffix in ((field, "avg"), *(((_p95(field), "p95"),) if field in _TAILS else ())):
            # Older files call the TTFT by its abbreviation.
            known = (f"{name}_{suffix}", f"ttft_{suffix}" if field == "ttft_s" else "")
            record = next((metrics[each] for each in known if each in metrics), None)
            figures[at] = None if record is None else record.converted("mean", units, unit)
    for field, swept in (("prompt_tokens", "isl"), ("answer_tokens", "osl")):
        if figures[field] is None:
            figures[field] = _swept(parameters, swept)
    concurrency = _swept(parameters, "concurrency")
    if concurrency is None:
        raise refused(parameters.place, "parameters", "have no concurrency", "a sweep over the concurrency")
    return Run(place=parameters.place, tool=tool, offered=concurrency, weight=trials, **figures)


def _swept(parameters: Record, leaf: str) -> float | None:
    names = [name for name in parameters.fields if _leaf(name) == leaf]
    value = parameters.number(*names) if names else None
    return value if value is not None and to_number(value) else None


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


# aiconfigurator `best_config_topn.csv` and `pareto.csv`: computed, not measured. Latencies in ms.

_AICONFIGURATOR: Final = frozenset(("tokens/s/gpu", "tokens/s/user", "ttft", "tpot", "concurrency"))
_COMPUTED: Final = "aiconfigurator computes these figures, nobody measured them"


def _aiconfigurator(document: Document) -> list[Run]:
    if any(name.startswith("(p)") for name in document.header):
        place = document.place._replace(line=document.rows[0].line)
        raise refused(place, "(p)tp", "prefill and decode run apart in this file", "the `agg` file of the same run")
    return [_configuration(record) for record in table(document)]


def _configuration(record: Record) -> Run:
    prefix = record.number("prefix") or 0.0
    tp, pp, dp, ep = (record.count(name) for name in ("tp", "pp", "dp", "moe_ep"))
    answer = record.wanted("osl", least=1.0)
    tokens_per_s = record.wanted("tokens/s")
    return Run(
        place=record.place,
        tool=f"aiconfigurator {record.text('backend')} {record.text('version')}".strip(),
        model=record.text("model"),
        variant="-".join(f"{name}{size}" for name, size in (("dp", dp), ("ep", ep)) if size > 1),
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
        notes=(_COMPUTED, *([f"{prefix:.0f} tokens of each prompt were cached"] if prefix > 0.0 else [])),
    )


# The flat CSV of NVIDIA's NIM benchmarks and sizing course: a row per run, times in ns.

_NIM: Final = frozenset(("input_config-concurrency", "output_token_throughput-avg"))


def _nim(document: Document) -> list[Run]:
    return [_nim_run(record) for record in table(document)]


def _nim_run(record: Record) -> Run:
    figures: dict[str, Any] = {}
    for field in _TAILS:
        metric = _METRICS[field][0]
        for at, statistic in ((field, "avg"), (_p95(field), "p95")):
            value = record.number(f"{metric}-{statistic}")
            unit = record.text(f"{metric}-unit") or "ns"
            figures[at] = None if value is None else value * factor(SECONDS, unit, record.place, f"{metric}-unit")
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
        tokens_per_s=record.wanted("output_token_throughput-avg"),
        requests_per_s=record.number("request_throughput-avg"),
        **figures,
    )


# Triton Model Analyzer: metrics-model-inference.csv, and metrics-model-gpu.csv beside it.

_ANALYZER_KEY: Final = ("Model", "Batch", "Concurrency", "Request Rate", "Model Config Path")
_ANALYZER_MS: Final = {
    "itl_s": ("Avg Inter Token Latency (ms)",),
    "itl_p95_s": ("p95 Inter Token Latency (ms)",),
    "ttft_s": ("Avg Time To First Token (ms)",),
    "ttft_p95_s": ("p95 Time To First Token (ms)",),
    "e2e_s": ("Avg Latency (ms)",),
    "e2e_p95_s": ("p95 Latency (ms)",),
    "queue_s": ("Server Queue time (ms)",),
}
_PREFIXES: Final = ("Max ", "Average ", "")
_LITTLE: Final = "mean latency = concurrency / throughput: the file has no `Avg Latency (ms)`"


def _is_analyzer(document: Document) -> bool:
    return "Model" in document.header and "Throughput (infer/sec)" in document.header


def is_gpu_sheet(document: Document) -> bool:
    """Whether these are Model Analyzer's GPU columns, of models or of the server alone."""
    return "Model" in document.header and any(
        f"{prefix}GPU Memory Usage (MB)" in document.header for prefix in _PREFIXES
    )


def _analyzer(document: Document) -> list[Run]:
    return [_analyzer_run(record) for record in table(document)]


def _gpu_sheet(document: Document) -> list[Run]:
    """No runs: `with_usage` reads this file. Its rows are checked here."""
    with_usage((), (document,))
    return []


def with_usage(runs: Sequence[Run], sheets: Iterable[Document]) -> list[Run]:
    """The runs with memory (MB of 1e6 bytes), busy share and power of their GPUs, where a GPU file tells them."""
    rows: dict[tuple[str, ...], list[Record]] = {}
    for sheet in sheets:
        for record in table(sheet):
            rows.setdefault(_key(record), []).append(record)
    usage = {key: _usage(records) for key, records in rows.items()}
    return [msgspec.structs.replace(run, **usage[run.key]) if run.key in usage else run for run in runs]


def _key(record: Record) -> tuple[str, ...]:
    return tuple(record.text(name) for name in _ANALYZER_KEY)


def _usage(records: Sequence[Record]) -> dict[str, Any]:
    """Of all GPUs of one measurement together."""

    def total(name: str, scale: float) -> float | None:
        return _sum([record.number(*(f"{prefix}{name}" for prefix in _PREFIXES), scale=scale) for record in records])

    busy = total("GPU Utilization (%)", 1e-2)
    return {
        "gpus": len(records),
        "memory_bytes": total("GPU Memory Usage (MB)", 1e6),
        "busy_ratio": None if busy is None else min(1.0, busy / len(records)),
        "power_w": total("GPU Power Usage (W)", 1.0),
    }


def _analyzer_run(record: Record) -> Run:
    batch = record.number("Batch", least=1.0) or 1.0
    offered = record.number("Concurrency", least=1.0)
    requests_per_s = record.wanted("Throughput (infer/sec)") / batch
    figures = _figures(record, _ANALYZER_MS, 1e-3)
    little = offered is not None and figures["e2e_s"] is None and requests_per_s > 0.0
    parts = (record.text("Model Config Path"), f"batch{batch:.0f}" if batch > 1.0 else "")
    return Run(
        place=record.place,
        tool="Triton Model Analyzer",
        model=record.text("Model"),
        variant="-".join(filter(None, parts)),
        key=_key(record),
        offered=offered,
        open_loop=offered is None,
        # The label says infer/sec, the figure is tokens/s.
        tokens_per_s=record.number("Output Token Throughput (infer/sec)", "Output Token Throughput (tokens/sec)"),
        requests_per_s=requests_per_s,
        notes=(_LITTLE,) if little else (),
        **figures,
    )


def _is_requests(document: Document) -> bool:
    return isinstance(document.fields.get("metadata"), Mapping) and "metrics" in document.fields


def _is_confidence(document: Document) -> bool:
    meta = document.fields.get("metadata")
    return isinstance(meta, Mapping) and meta.get("aggregation_type") == "confidence"


JSON_FORMATS: Final = (
    Format("aiperf sweep", _is_aiperf_sweep, _aiperf_sweep),
    Format("genai-perf or aiperf", _is_genai_perf, _genai_perf),
    Format("guidellm", _is_guidellm, _guidellm),
    Format("SGLang bench_serving", _is_sglang, _bench),
    Format("InferenceX", _is_inferencex, _inferencex),
    Format("vllm bench serve", _is_vllm, _bench),
    Format(
        "aiperf confidence", _is_confidence, None, "profile_export_aiperf_sweep.json, or profile_export_aiperf.json"
    ),
    Format("requests of aiperf", _is_requests, None, "profile_export_aiperf.json, which sums them up"),
)
CSV_FORMATS: Final = (
    Format("Triton Model Analyzer", _is_analyzer, _analyzer),
    Format("Triton Model Analyzer, GPUs", is_gpu_sheet, _gpu_sheet),
    Format("genai-perf or aiperf CSV", _is_genai_sheet, _genai_sheet),
    Format("aiperf sweep CSV", _is_aiperf_sheet, _aiperf_sheet),
    Format("aiconfigurator", lambda document: _AICONFIGURATOR.issubset(document.header), _aiconfigurator),
    Format("NIM flat CSV", lambda document: _NIM.issubset(document.header), _nim),
    Format(
        "guidellm CSV",
        lambda document: len(document.rows) > 2 and "Run Info" in document.header,
        None,
        "benchmarks.json of the same run",
    ),
)
KNOWN: Final = (
    "Triton Model Analyzer CSV, genai-perf JSON or CSV, aiperf JSON or CSV and its sweep aggregate, "
    "vllm bench serve JSON, InferenceX JSON, guidellm JSON, SGLang bench_serving JSONL, aiconfigurator CSV, NIM CSV"
)
