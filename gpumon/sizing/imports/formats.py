"""The formats of load tests as a table: how each is told by its content, and how a record of it becomes a run.

Readers give seconds, tokens/s, requests/s, bytes and watts, and raise ImportRefused for a run that was cancelled, lost
requests, or is no instance that can be planned with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.sizing.imports.files import Document, Place, Record, refused, to_number

LEAST_COMPLETED: Final = 0.95
"""Share of the requests that have to succeed: a run that lost more did not carry its load."""
_PRECISIONS: Final = (
    (re.compile(r"nvfp4|^fp4"), "nvfp4"),
    (re.compile(r"mxfp4"), "mxfp4"),
    (re.compile(r"int4|w4a16|awq|gptq"), "int4"),
    (re.compile(r"fp8|e4m3|e5m2"), "fp8"),
    (re.compile(r"int8|w8a8|^sq$"), "int8"),
    (re.compile(r"bfloat16|bf16"), "bf16"),
    (re.compile(r"float16|fp16|half"), "fp16"),
    (re.compile(r"float32|fp32"), "fp32"),
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
    key: tuple[str, ...] = ()
    """What a second file about the same measurement calls it."""
    notes: tuple[str, ...] = ()


class Format(NamedTuple):
    """One format."""

    name: str
    recognises: Callable[[Document], bool]
    read: Callable[[Record], Run]
    records: Callable[[Document], Iterable[Record]] = Document.records
    """What a run each is made of."""


def runs_of(document: Document) -> list[Run]:
    """The runs of a document, by the first format that fits. Raises ImportRefused where none does."""
    found = next(
        (each for each in (CSV_FORMATS if document.header else JSON_FORMATS) if each.recognises(document)), None
    )
    if found is None:
        raise refused(document.place, "", "is the result of no load test that gpumon knows", KNOWN)
    return [found.read(record) for record in found.records(document)]


def precision(text: str) -> str:
    """The name that gpumon has for a number format, e.g. of `fp8_block`, `bfloat16`, `w4a16`; empty where none fits."""
    lowered = text.lower()
    return next((name for pattern, name in _PRECISIONS if pattern.search(lowered)), "")


def _completed(place: Place, done: float | None, failed: float | None, asked: float | None = None) -> None:
    """Raises ImportRefused where fewer than 95 % of the requests succeeded, or none did."""
    if done == 0.0:
        raise refused(place, "completed", "is 0: no request succeeded")
    total = max(asked or 0.0, (done or 0.0) + (failed or 0.0))
    if done is not None and done < LEAST_COMPLETED * total:
        reason = f"{done:.0f} of {total:.0f} requests succeeded"
        raise refused(place, "completed", reason, f"at least {LEAST_COMPLETED:.0%}")


def _figures(record: Record, names: Mapping[str, tuple[str, ...]], scale: float = 1.0) -> dict[str, Any]:
    """Field of a run -> the first of the names that the record may have for it."""
    return {field: record.number(*known, scale=scale) for field, known in names.items()}


# vllm bench serve --save-result (and `vllm bench sweep serve`), SGLang bench_serving --output-file: one object per run.

_TP_KEYS: Final = ("tp", "tensor_parallel_size", "tensor-parallel-size", "tp_size")
_PP_KEYS: Final = ("pp", "pipeline_parallel_size", "pipeline-parallel-size", "pp_size")
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
_SGLANG: Final = ("total_output_tokens_retokenized", "mean_e2e_latency_ms")
_VLLM: Final = ("mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms", "mean_e2el_ms")


def _bench(record: Record) -> Run:
    server, sglang = record.part("server_info"), any(name in record for name in _SGLANG)
    done = record.number("completed")
    _completed(record.place, done, record.number("failed"), record.number("num_prompts"))
    tokens, retokenized = record.number("total_output_tokens"), record.number("total_output_tokens_retokenized")
    if sglang and tokens and retokenized is not None and retokenized <= _ABORTED * record.wanted("completed") < tokens:
        reason = f"is {retokenized:.0f} for {done:.0f} requests that asked for {tokens:.0f} tokens: the server "
        raise refused(record.place, "total_output_tokens_retokenized", f"{reason}aborted them")
    endless = "request_rate" not in record or to_number(record.value("request_rate")) == math.inf
    offered = record.number("max_concurrency") if endless else None
    options = {key.replace("-", "_"): value for key, value in record.fields.items()}
    settings = (f"{name.replace('_', '-')}{options[name]}" for name in _SETTINGS if options.get(name) is not None)
    weights = ("quantization", "dtype")
    # vLLM writes its local time as `20260613-051141`.
    date = re.sub(r"^(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)$", r"\1-\2-\3T\4:\5:\6", record.text("date"))
    return Run(
        place=record.place,
        tool=f"SGLang bench_serving {server.text('version')}".strip() if sglang else "vllm bench serve",
        model=server.text("model_path", "served_model_name") or record.text("model_id", "model"),
        gpu=record.text("gpu", "gpu_type", "gpu_name", "hardware", "hw", "accelerator"),
        gpus=record.count("gpus", "num_gpus", "n_gpus", "gpu_count"),
        tp=server.count(*_TP_KEYS) or record.count(*_TP_KEYS),
        pp=server.count(*_PP_KEYS) or record.count(*_PP_KEYS),
        weight_precision=precision(server.text(*weights) or record.text("precision", "weight_precision", *weights)),
        kv_precision=precision(server.text(*_KV_KEYS) or record.text(*_KV_KEYS)),
        time=date,
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
_INFERENCEX_MEANS: Final = ("mean_ttft", "median_ttft", "mean_tpot", "median_tpot")
_MEDIAN: Final = "medians stand for means: the file has no means"


def _inferencex(record: Record) -> Run:
    if record.flag("disagg"):
        raise refused(record.place, "disagg", "is true: prefill and decode run apart", "rows of one instance")
    gpus = record.count("num_gpus", "gpus") or record.count("tp") * (record.count("pp") or 1)
    per_gpu = record.number("output_tput_per_gpu")
    if per_gpu is not None and not gpus:
        raise refused(record.place, "tp", "is missing: the throughput is one per GPU")
    tokens_per_s = per_gpu * gpus if per_gpu is not None else record.wanted("output_throughput")
    figures = _figures(record, _INFERENCEX)
    answer, power = figures["answer_tokens"], record.number("avg_power_w")
    # With drafts the gap between chunks is a step, and several tokens come in one.
    drafts, step_s = record.text("spec_decoding") not in ("", "none"), record.number("mean_itl", "median_itl")
    return Run(
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


# guidellm benchmarks.json: a benchmark per strategy. Layout 2 since 0.7, layout 1 from 0.4 on.

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


def _is_guidellm(document: Document) -> bool:
    found = document.fields.get("benchmarks")
    return isinstance(found, list) and (not found or (isinstance(found[0], Mapping) and "metrics" in found[0]))


def _benchmarks(document: Document) -> Iterable[Record]:
    """Each benchmark, with what the whole report tells of all of them."""
    if not document.fields["benchmarks"]:
        raise refused(document.place, "benchmarks", "is empty")
    report = {name: document.fields.get(name) for name in ("metadata", "args")}
    for number, each in enumerate(document.fields["benchmarks"]):
        place = document.place.inside(f"benchmarks[{number}]")
        if not isinstance(each, Mapping):
            raise refused(place, "", "is no object")
        yield Record({**report, **each}, place)


def _guidellm(record: Record) -> Run:
    metrics, meta = record.part("metrics"), record.part("metadata")
    totals = metrics.part("request_totals")
    if not metrics.fields:
        raise refused(record.place, "metrics", "is missing")
    # Requests that the end of a timed run cut off are `incomplete`: they say nothing against it.
    _completed(record.place, totals.number("successful"), totals.number("errored"))
    strategy = record.part("config", "strategy")
    kind = strategy.text("type_", "type")
    held = strategy.number("streams", "max_concurrency") if kind in ("concurrent", "throughput") else None
    figures: dict[str, Any] = {}
    for field, name, scale in _GUIDELLM:
        found = metrics.part(name, "successful")
        figures[field] = found.number("mean", scale=scale)
        if field in _TAILS:
            figures[_TAILS[field]] = found.part("percentiles").number("p95", scale=scale)
    achieved = metrics.part("request_concurrency", "successful").number("mean")
    return Run(
        place=record.place,
        tool=f"guidellm {meta.text('guidellm_version')}".strip(),
        model=record.part("config", "backend").text("model") or record.part("args").text("model"),
        offered=1.0 if kind == "synchronous" else held or achieved,
        open_loop=held is None and kind != "synchronous",
        notes=(_NEWER,) if meta.count("version") > _NEWEST else (),
        **figures,
    )


# genai-perf and aiperf: JSON of one run with a unit per metric, and its CSV of two tables.

_TAILS: Final = {"itl_s": "itl_p95_s", "ttft_s": "ttft_p95_s", "e2e_s": "e2e_p95_s"}
_TIMES: Final = {"itl_s": "inter_token_latency", "ttft_s": "time_to_first_token", "e2e_s": "request_latency"}
"""Field of a run -> name of the metric. Their ITL is the TPOT formula."""
_RATES: Final = {
    "tokens_per_s": "output_token_throughput",
    "requests_per_s": "request_throughput",
    "prompt_tokens": "input_sequence_length",
    "answer_tokens": "output_sequence_length",
}
_LOADS: Final = (("loadgen",), ("perf_analyzer", "stimulus"), ("phases", "profiling"), ())
"""Where the concurrency stands inside `input_config`, by version."""
_FILE_CONCURRENCY: Final = re.compile(r"concurrency[-_=]?(\d{1,6})(?!\d)", re.IGNORECASE)
_NAMED: Final = "the concurrency is taken from the names of files or folders: genai-perf leaves it out"
_METRIC_ROW: Final = re.compile(r"(?P<name>[^()]+?)\s*(?:\((?P<unit>[^()]*)\))?")


def _is_genai_perf(document: Document) -> bool:
    found = document.fields.get("request_throughput")
    return isinstance(found, Mapping) and "avg" in found


def _genai_perf(record: Record) -> Run:
    for name, wrong in (("was_cancelled", True), ("is_complete", False)):
        if record.flag(name) is wrong:
            raise refused(record.place, name, f"is {str(wrong).lower()}: the run is not complete")
    _completed(
        record.place, record.part("request_count").number("avg"), record.part("error_request_count").number("avg")
    )
    config = record.part("input_config")
    figures: dict[str, Any] = {field: record.part(name).number("avg") for field, name in _RATES.items()}
    for field, name in _TIMES.items():
        metric = record.part(name)
        figures[field] = metric.seconds("avg", metric.text("unit") or "ms")
        figures[_TAILS[field]] = metric.seconds("p95", metric.text("unit") or "ms")
    loads = (config.part(*path).number("concurrency") for path in _LOADS)
    offered = next(filter(None, loads), None)
    notes: tuple[str, ...] = ()
    rated = any(config.part(*path).number("request_rate") for path in _LOADS)
    if offered is None and not rated:
        offered, notes = _from_name(record.place)
    items = config.part("models").fields.get("items")
    model = Record(items[0], record.place).text("name") if isinstance(items, list) and items else ""
    aiperf = "aiperf_version" in record or "benchmark_id" in record
    return Run(
        place=record.place,
        tool=f"aiperf {record.text('aiperf_version')}".strip() if aiperf else "genai-perf",
        model=config.text("model_names", "model") or config.part("endpoint").text("model_names", "model") or model,
        time=record.text("start_time"),
        offered=offered,
        open_loop=offered is None and rated,
        notes=notes,
        **figures,
    )


def _from_name(place: Place) -> tuple[float | None, tuple[str, ...]]:
    """The concurrency that the file leaves out, from its name or folder: the only thing that a name may tell."""
    found = _FILE_CONCURRENCY.findall(place.file)
    return (None, ()) if not found or int(found[-1]) == 0 else (float(found[-1]), (_NAMED,))


def _metrics(document: Document) -> Iterable[Record]:
    """The whole CSV as one record, metric -> its row: a row that begins with `Metric` heads the rows below it."""
    header, metrics = document.header, dict[str, Record]()
    for line, cells in document.rows:
        # A row of the second table may be filled up to the width of the first.
        while len(cells) > len(header) and not cells[-1]:
            cells = cells[:-1]
        if cells[0] == "Metric":
            header = cells
        elif match := _METRIC_ROW.fullmatch(cells[0]):
            row = document.row(line, cells, header)
            fields = {**row.fields, "unit": match["unit"] or "ms"}
            metrics.setdefault(match["name"].lower().replace(" ", "_"), Record(fields, row.place))
    yield Record(metrics, document.place)


def _genai_sheet(record: Record) -> Run:
    """The file tells neither the model nor the load."""
    figures: dict[str, Any] = {}
    for field, name in _RATES.items():
        metric = record.value(name)
        figures[field] = metric.number("avg", "Value") if metric else None
    for field, name in _TIMES.items():
        metric = record.value(name)
        figures[field] = metric.seconds("avg", metric.text("unit")) if metric else None
        figures[_TAILS[field]] = metric.seconds("p95", metric.text("unit")) if metric else None
    offered, notes = _from_name(record.place)
    return Run(place=record.place, tool="genai-perf", offered=offered, notes=notes, **figures)


# aiconfigurator `best_config_topn.csv` and `pareto.csv`: computed, not measured. Latencies in ms.

_COMPUTED: Final = "aiconfigurator computes these figures, nobody measured them"


def _aiconfigurator(record: Record) -> Run:
    if any(name.startswith("(p)") for name in record.fields):
        raise refused(
            record.place, "(p)tp", "prefill and decode run apart in this file", "the `agg` file of the same run"
        )
    prefix = record.number("prefix") or 0.0
    tp, pp, dp, ep = (record.count(name) for name in ("tp", "pp", "dp", "moe_ep"))
    answer, tokens_per_s = record.wanted("osl", least=1.0), record.wanted("tokens/s")
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


def _nim(record: Record) -> Run:
    figures: dict[str, Any] = {}
    for field, name in _TIMES.items():
        unit = record.text(f"{name}-unit") or "ns"
        figures[field] = record.seconds(f"{name}-avg", unit)
        figures[_TAILS[field]] = record.seconds(f"{name}-p95", unit)
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


def is_gpu_sheet(document: Document) -> bool:
    """Whether these are Model Analyzer's GPU columns, of models or of the server alone."""
    return "Model" in document.header and any(f"{name}GPU Memory Usage (MB)" in document.header for name in _PREFIXES)


def gpu_usage(sheets: Iterable[Document]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Measurement (`Run.key`) -> GPUs, memory (MB of 1e6 bytes), busy share and power, all GPUs of it together."""
    rows: dict[tuple[str, ...], list[Record]] = {}
    for sheet in sheets:
        for record in sheet.records():
            rows.setdefault(tuple(map(record.text, _ANALYZER_KEY)), []).append(record)

    def total(records: list[Record], name: str, scale: float) -> float | None:
        values = [record.number(*(f"{prefix}{name}" for prefix in _PREFIXES), scale=scale) for record in records]
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    usage = {}
    for key, records in rows.items():
        busy = total(records, "GPU Utilization (%)", 1e-2)
        usage[key] = {
            "gpus": len(records),
            "memory_bytes": total(records, "GPU Memory Usage (MB)", 1e6),
            "busy_ratio": None if busy is None else min(1.0, busy / len(records)),
            "power_w": total(records, "GPU Power Usage (W)", 1.0),
        }
    return usage


def _analyzer(record: Record) -> Run:
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
        key=tuple(map(record.text, _ANALYZER_KEY)),
        offered=offered,
        open_loop=offered is None,
        # The label says infer/sec, the figure is tokens/s.
        tokens_per_s=record.number("Output Token Throughput (infer/sec)", "Output Token Throughput (tokens/sec)"),
        requests_per_s=requests_per_s,
        notes=(_LITTLE,) if little else (),
        **figures,
    )


def _has(*groups: tuple[str, ...]) -> Callable[[Document], bool]:
    """Whether a document has a field or column of each group."""
    return lambda document: all(any(name in (document.header or document.fields) for name in names) for names in groups)


JSON_FORMATS: Final = (
    Format("genai-perf or aiperf", _is_genai_perf, _genai_perf),
    Format("guidellm", _is_guidellm, _guidellm, _benchmarks),
    Format("SGLang bench_serving", _has(("output_throughput",), _SGLANG), _bench),
    Format("InferenceX", _has(("output_throughput", "tput_per_gpu"), _INFERENCEX_MEANS), _inferencex),
    Format("vllm bench serve", _has(("output_throughput",), _VLLM), _bench),
)
CSV_FORMATS: Final = (
    Format("Triton Model Analyzer", _has(("Model",), ("Throughput (infer/sec)",)), _analyzer),
    # No runs: `gpu_usage` reads this file.
    Format("Triton Model Analyzer, GPUs", is_gpu_sheet, _analyzer, lambda _: ()),
    Format("genai-perf or aiperf CSV", lambda sheet: sheet.header[:2] == ("Metric", "avg"), _genai_sheet, _metrics),
    Format("aiconfigurator", _has(("tokens/s/gpu",), ("tokens/s/user",), ("tpot",), ("concurrency",)), _aiconfigurator),
    Format("NIM flat CSV", _has(("input_config-concurrency",), ("output_token_throughput-avg",)), _nim),
)
"""The first that fits counts."""
KNOWN: Final = (
    "Triton Model Analyzer CSV, genai-perf or aiperf JSON or CSV of a run, vllm bench serve JSON, InferenceX JSON, "
    "guidellm JSON, SGLang bench_serving JSONL, aiconfigurator CSV, NIM CSV"
)
