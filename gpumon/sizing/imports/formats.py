"""The formats of load tests as tables: how a format is recognised by its content, and how a record becomes a run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from gpumon.sizing.imports import genai_perf, inference_perf
from gpumon.sizing.imports.files import Document, ImportProblem, Record, refusal, to_number
from gpumon.sizing.imports.guidellm import benchmarks, is_guidellm, read_benchmark
from gpumon.sizing.imports.runs import TAILS, BenchmarkRun, LeftOut, check_completed, fields_by_name, precision


class Format(NamedTuple):
    """One format of results."""

    name: str
    recognises: Callable[[Document], bool]
    read: Callable[[Record], BenchmarkRun]
    records: Callable[[Document], Iterable[Record]] = Document.records
    """Splits a document into records, one per run."""


class CompanionFile(NamedTuple):
    """A file that a tool writes beside its results."""

    recognises: Callable[[Document], bool]
    reason: str
    """Why no profile is made of it."""


class DocumentRuns(NamedTuple):
    """The runs that were found in a document."""

    runs: list[BenchmarkRun]
    left_out: list[ImportProblem]
    """Parts that no profile is made of, and why."""


def runs_of(document: Document) -> DocumentRuns:
    """The runs of a document, by the first format that fits. Raises ImportRefused where none does."""
    for companion in COMPANIONS:
        if companion.recognises(document):
            return DocumentRuns([], [ImportProblem(document.place, "", companion.reason)])
    format_ = _format_of(document)
    document_runs = DocumentRuns([], [])
    for record in format_.records(document):
        _add_run(format_, record, document_runs)
    return document_runs


def _format_of(document: Document) -> Format:
    """The first format that recognises a document. Raises ImportRefused where none does."""
    formats: Sequence[Format] = JSON_FORMATS
    if document.header:
        formats = CSV_FORMATS
    for candidate in formats:
        if candidate.recognises(document):
            return candidate
    raise refusal(document.place, "", "is the result of no load test that gpumon knows", KNOWN)


def _add_run(format_: Format, record: Record, document_runs: DocumentRuns) -> None:
    """Add the run of one record, or why none is made of it."""
    try:
        document_runs.runs.append(format_.read(record))
    except LeftOut as left_out:
        document_runs.left_out.append(left_out.problem)


# vllm bench serve --save-result (and `vllm bench sweep serve`), SGLang bench_serving --output-file: one object per run.

_TP_KEYS: Final = ("tp", "tensor_parallel_size", "tensor-parallel-size", "tp_size")
_PP_KEYS: Final = ("pp", "pipeline_parallel_size", "pipeline-parallel-size", "pp_size")
_KV_KEYS: Final = ("kv_cache_dtype", "kv-cache-dtype", "kv_precision")
"""Precision of the KV cache. These keys are those of `--metadata`, of the serve parameters that a sweep merges in, and
of SGLang's server_info."""
_SETTINGS: Final = (
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "block_size",
    "enable_prefix_caching",
    "max_model_len",
    "enable_chunked_prefill",
    "data_parallel_size",
    "enable_expert_parallel",
    "async_scheduling",
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
"""Field of a run -> keys of a latency in ms, the preferred one first."""
_ITL_OF_CHUNKS: Final = "ITL between chunks stands for the time per token: the file has no TPOT"
_ABORTED_TOKENS: Final = 1.5
"""Retokenized output tokens per request below which SGLang gave up after the first token."""
_COMPACT_TIME: Final = re.compile(r"^(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)$")
"""vLLM writes its local time as `20260613-051141`."""
_SGLANG_KEYS: Final = ("total_output_tokens_retokenized", "mean_e2e_latency_ms")
_VLLM_KEYS: Final = ("mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms", "mean_e2el_ms")


def _read_bench(record: Record) -> BenchmarkRun:
    """The run of a record of vLLM's or SGLang's benchmark, which have nearly the same keys."""
    server = record.part("server_info")
    done = record.number("completed")
    check_completed(record.place, done, record.number("failed"), record.number("num_prompts"))
    tool = "vllm bench serve"
    if any(name in record for name in _SGLANG_KEYS):
        _check_answered(record)
        tool = f"SGLang bench_serving {server.text('version')}".strip()
    offered = _bench_concurrency(record)
    weights = ("quantization", "dtype")
    return BenchmarkRun(
        place=record.place,
        tool=tool,
        model=server.text("model_path", "served_model_name") or record.text("model_id", "model"),
        gpu=record.text("gpu", "gpu_type", "gpu_name", "hardware", "hw", "accelerator"),
        gpus=record.count("gpus", "num_gpus", "n_gpus", "gpu_count"),
        tp=server.count(*_TP_KEYS) or record.count(*_TP_KEYS),
        pp=server.count(*_PP_KEYS) or record.count(*_PP_KEYS),
        weight_precision=precision(server.text(*weights) or record.text("precision", "weight_precision", *weights)),
        kv_precision=precision(server.text(*_KV_KEYS) or record.text(*_KV_KEYS)),
        time=_COMPACT_TIME.sub(r"\1-\2-\3T\4:\5:\6", record.text("date")),
        offered=offered,
        open_loop=offered is None,
        prompt_tokens=record.per_request("total_input_tokens", done),
        answer_tokens=record.per_request("total_output_tokens", done),
        tokens_per_s=record.required_number("output_throughput"),
        requests_per_s=record.number("request_throughput"),
        kv_pool_tokens=server.number("max_total_num_tokens"),
        tokens_per_step=record.number("spec_decode_acceptance_length", "accept_length"),
        max_num_seqs=server.count("max_running_requests") or record.count("max_num_seqs", "max-num-seqs"),
        settings="-".join(_settings(record)),
        notes=_bench_notes(record),
        **fields_by_name(record, _BENCH_MS, 1e-3),
    )


def _bench_concurrency(record: Record) -> float | None:
    """Requests that the client holds open; None where it sends them at a rate."""
    if "request_rate" in record and to_number(record.value("request_rate")) != math.inf:
        return None
    return record.number("max_concurrency")


def _bench_notes(record: Record) -> tuple[str, ...]:
    """Notes on figures that stand for others."""
    if "mean_itl_ms" in record and "mean_tpot_ms" not in record:
        return (_ITL_OF_CHUNKS,)
    return ()


def _check_answered(record: Record) -> None:
    """Raises ImportRefused where SGLang gave up on its requests after the first token."""
    wanted_tokens = record.number("total_output_tokens")
    real_tokens = record.number("total_output_tokens_retokenized")
    if not wanted_tokens or real_tokens is None:
        return
    done = record.required_number("completed")
    if real_tokens <= _ABORTED_TOKENS * done < wanted_tokens:
        reason = f"is {real_tokens:.0f} for {done:.0f} requests that asked for {wanted_tokens:.0f} tokens"
        raise refusal(record.place, "total_output_tokens_retokenized", f"{reason}: the server aborted them")


def _settings(record: Record) -> Iterator[str]:
    """The options of the server that a sweep merged in: `block-size16`."""
    options = {key.replace("-", "_"): value for key, value in record.fields.items()}
    for name in _SETTINGS:
        if options.get(name) is not None:
            yield f"{name.replace('_', '-')}{options[name]}"


# InferenceX (ex InferenceMAX): aggregate rows and the files of its experiments. Latencies in seconds.

_INFERENCEX_FIELDS: Final = {
    "itl_s": ("mean_tpot", "median_tpot"),
    "itl_p95_s": ("p95_tpot",),
    "ttft_s": ("mean_ttft", "median_ttft"),
    "ttft_p95_s": ("p95_ttft",),
    "e2e_s": ("mean_e2el", "median_e2el"),
    "e2e_p95_s": ("p95_e2el",),
    "prompt_tokens": ("isl", "random_input_len"),
    "answer_tokens": ("osl", "random_output_len"),
}
"""Field of a run -> keys, the preferred one first."""
_INFERENCEX_MEANS: Final = ("mean_ttft", "median_ttft", "mean_tpot", "median_tpot")
_MEDIANS: Final = "medians stand for means: the file has no means"
_NO_DRAFTS: Final = ("", "none", "off", "false", "0")
"""Values of a key for speculative decoding that say that there is none."""


def _read_inferencex(record: Record) -> BenchmarkRun:
    """The run of a row of InferenceX. Raises LeftOut for disaggregated serving."""
    if record.flag("disagg"):
        raise LeftOut(record.place, "disagg", "is true: prefill and decode run apart", "rows of one instance")
    gpus = record.count("num_gpus", "gpus") or record.count("tp") * (record.count("pp") or 1)
    tokens_per_s = _inferencex_tokens_per_s(record, gpus)
    figures = fields_by_name(record, _INFERENCEX_FIELDS)
    answer = figures["answer_tokens"]
    requests_per_s = record.number("request_throughput") or None
    if requests_per_s is None and answer:
        requests_per_s = tokens_per_s / answer
    power_w = record.number("avg_power_w")  # mean of one GPU
    if power_w is not None:
        power_w *= gpus
    drafts = _drafts(record)
    tokens_per_step = None
    if drafts:
        tokens_per_step = _tokens_per_step(record, figures["itl_s"])
    return BenchmarkRun(
        place=record.place,
        tool=f"InferenceX {record.text('framework')}".strip(),
        model=record.text("model", "model_id"),
        gpu=record.text("hw", "device"),
        gpus=gpus,
        tp=record.count("tp"),
        pp=record.count("pp"),
        weight_precision=precision(record.text("precision")),
        variant=_inferencex_variant(record, drafts),
        time=record.text("date"),
        offered=record.required_number("conc", "max_concurrency"),
        tokens_per_s=tokens_per_s,
        requests_per_s=requests_per_s,
        power_w=power_w or None,
        tokens_per_step=tokens_per_step,
        notes=tuple(_inferencex_notes(record, drafts, tokens_per_step)),
        **figures,
    )


def _inferencex_notes(record: Record, drafts: str, tokens_per_step: float | None) -> Iterator[str]:
    """Notes on figures that stand for others, and on those that are missing."""
    if "mean_tpot" not in record:
        yield _MEDIANS
    if drafts and tokens_per_step is None:
        yield f"tokens per step of {drafts} are not known: the file has no gap between chunks (mean_itl)"


def _inferencex_tokens_per_s(record: Record, gpus: int) -> float:
    """Output tokens/s of all GPUs; newer files have those of one GPU."""
    per_gpu = record.number("output_tput_per_gpu")
    if per_gpu is None:
        return record.required_number("output_throughput")
    if not gpus:
        raise refusal(record.place, "tp", "is missing: the throughput is one per GPU")
    return per_gpu * gpus


def _drafts(record: Record) -> str:
    """The kind of speculative decoding; empty for none. Files of 2025 have `mtp` (`on`, `off`) for `spec_decoding`."""
    method = record.text("spec_decoding").lower()
    if method not in _NO_DRAFTS:
        return method
    if record.text("mtp").lower() not in _NO_DRAFTS:
        return "mtp"
    return ""


def _tokens_per_step(record: Record, itl_s: float | None) -> float | None:
    """Tokens per step of speculative decoding: the gap between chunks is a step. None where that is not known."""
    step_s = record.number("mean_itl", "median_itl")
    if step_s and itl_s:
        return step_s / itl_s
    return None


def _inferencex_variant(record: Record, drafts: str) -> str:
    """Name of the server among those of one model, GPU and TP: expert parallel, data parallel attention, drafts."""
    parts = []
    ep = record.count("ep")
    if ep > 1:
        parts.append(f"ep{ep}")
    if record.flag("dp_attention"):
        parts.append("dpa")
    if drafts:
        parts.append(drafts)
    return "-".join(parts)


# aiconfigurator `best_config_topn.csv` and `pareto.csv`: computed, not measured. Latencies in ms.

_COMPUTED: Final = "aiconfigurator computes these figures, nobody measured them"


def _ranks_variant(dp: int, ep: int) -> str:
    """Name of the data-parallel and expert-parallel ranks of an instance: `dp8-ep8`; empty for one of each."""
    parts = []
    if dp > 1:
        parts.append(f"dp{dp}")
    if ep > 1:
        parts.append(f"ep{ep}")
    return "-".join(parts)


def _read_aiconfigurator(record: Record) -> BenchmarkRun:
    """The run that a row of aiconfigurator predicts. Raises LeftOut for disaggregated serving."""
    if any(name.startswith("(p)") for name in record.fields):
        raise LeftOut(
            record.place, "(p)tp", "prefill and decode run apart in this file", "the `agg` file of the same run"
        )
    notes = [_COMPUTED]
    cached = record.number("prefix")
    if cached:
        notes.append(f"{cached:.0f} tokens of each prompt were cached")
    tp = record.count("tp")
    pp = record.count("pp")
    dp = record.count("dp")
    ep = record.count("moe_ep")
    answer = record.required_number("osl", least=1.0)
    tokens_per_s = record.required_number("tokens/s")
    return BenchmarkRun(
        place=record.place,
        tool=f"aiconfigurator {record.text('backend')} {record.text('version')}".strip(),
        model=record.text("model"),
        variant=_ranks_variant(dp, ep),
        gpu=record.text("system"),
        gpus=record.count("num_total_gpus") or max(1, tp) * max(1, pp) * max(1, dp),
        tp=tp,
        pp=pp,
        weight_precision=precision(record.text("gemm")),
        kv_precision=precision(record.text("kvcache")),
        offered=record.required_number("concurrency", least=1.0),
        prompt_tokens=record.required_number("isl"),
        answer_tokens=answer,
        itl_s=record.required_number("tpot", scale=1e-3),
        ttft_s=record.required_number("ttft", scale=1e-3),
        e2e_s=record.number("request_latency", scale=1e-3),
        tokens_per_s=tokens_per_s,
        requests_per_s=record.number("seq/s") or tokens_per_s / answer,
        notes=tuple(notes),
    )


# The flat CSV of NVIDIA's NIM benchmarks and sizing course: a row per run, times in ns.


def _read_nim(record: Record) -> BenchmarkRun:
    """The run of a row."""
    figures: dict[str, Any] = {}
    for field, name in genai_perf.TIMES.items():
        unit = record.text(f"{name}-unit") or "ns"
        figures[field] = record.seconds(f"{name}-avg", unit)
        figures[TAILS[field]] = record.seconds(f"{name}-p95", unit)
    return BenchmarkRun(
        place=record.place,
        tool=record.text("task_inputs-execution_type") or "NIM",
        model=record.text("task_inputs-model", "input_config-model"),
        gpu=record.text("task_inputs-GPU"),
        gpus=record.count("task_inputs-n_gpus"),
        # An instance of these benchmarks is one tensor-parallel group.
        tp=record.count("task_inputs-tp") or record.count("task_inputs-n_gpus"),
        weight_precision=precision(record.text("task_inputs-precision")),
        offered=record.required_number("input_config-concurrency", least=1.0),
        prompt_tokens=record.number("input_config-synthetic_input_tokens_mean", "num_input_token-avg"),
        answer_tokens=record.number("input_config-output_tokens_mean", "num_output_token-avg"),
        tokens_per_s=record.required_number("output_token_throughput-avg"),
        requests_per_s=record.number("request_throughput-avg"),
        **figures,
    )


# Triton Model Analyzer: metrics-model-inference.csv, and metrics-model-gpu.csv beside it.

_ANALYZER_KEY: Final = ("Model", "Batch", "Concurrency", "Request Rate", "Model Config Path")
"""Columns of both files that together name a measurement."""
_ANALYZER_MS: Final = {
    "itl_s": ("Avg Inter Token Latency (ms)",),
    "itl_p95_s": ("p95 Inter Token Latency (ms)",),
    "ttft_s": ("Avg Time To First Token (ms)",),
    "ttft_p95_s": ("p95 Time To First Token (ms)",),
    "e2e_s": ("Avg Latency (ms)",),
    "e2e_p95_s": ("p95 Latency (ms)",),
    "queue_s": ("Server Queue time (ms)",),
}
_GPU_PREFIXES: Final = ("Max ", "Average ", "")
"""Words before the name of a figure of a GPU, by version."""
_BY_LITTLES_LAW: Final = "mean latency = concurrency / throughput: the file has no `Avg Latency (ms)`"


def is_gpu_sheet(document: Document) -> bool:
    """Whether this is Model Analyzer's file on GPUs, be it with models or with the server alone."""
    if "Model" not in document.header:
        return False
    return any(f"{prefix}GPU Memory Usage (MB)" in document.header for prefix in _GPU_PREFIXES)


def gpu_usage(sheets: Iterable[Document]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Measurement (`BenchmarkRun.key`) -> fields of its run: GPUs, and memory, busy share and power of them all."""
    rows: dict[tuple[str, ...], list[Record]] = {}  # a row per GPU
    for sheet in sheets:
        for record in sheet.records():
            rows.setdefault(_analyzer_key(record), []).append(record)
    usage = {}
    for key, records in rows.items():
        busy_ratio = _sum_over_gpus(records, "GPU Utilization (%)", 1e-2)
        if busy_ratio is not None:
            busy_ratio = min(1.0, busy_ratio / len(records))
        usage[key] = {
            "gpus": len(records),
            "memory_bytes": _sum_over_gpus(records, "GPU Memory Usage (MB)", 1e6),  # MB of 1e6 bytes
            "busy_ratio": busy_ratio,
            "power_w": _sum_over_gpus(records, "GPU Power Usage (W)"),
        }
    return usage


def _analyzer_key(record: Record) -> tuple[str, ...]:
    """The measurement that a row of either file is about."""
    return tuple(record.text(column) for column in _ANALYZER_KEY)


def _sum_over_gpus(records: Sequence[Record], name: str, scale: float = 1.0) -> float | None:
    """The sum of a figure over the rows of all GPUs; None if it is missing on one."""
    names = [f"{prefix}{name}" for prefix in _GPU_PREFIXES]
    known = []
    for record in records:
        value = record.number(*names, scale=scale)
        if value is not None:
            known.append(value)
    if len(known) < len(records):
        return None
    return sum(known)


def _read_analyzer(record: Record) -> BenchmarkRun:
    """The run of a row of `metrics-model-inference.csv`."""
    batch = record.number("Batch", least=1.0) or 1.0
    offered = record.number("Concurrency", least=1.0)
    requests_per_s = record.required_number("Throughput (infer/sec)") / batch
    figures = fields_by_name(record, _ANALYZER_MS, 1e-3)
    notes: tuple[str, ...] = ()
    if offered is not None and figures["e2e_s"] is None and requests_per_s > 0.0:
        notes = (_BY_LITTLES_LAW,)
    variant = [record.text("Model Config Path")]
    if batch > 1.0:
        variant.append(f"batch{batch:.0f}")
    return BenchmarkRun(
        place=record.place,
        tool="Triton Model Analyzer",
        model=record.text("Model"),
        variant="-".join(filter(None, variant)),
        key=_analyzer_key(record),
        offered=offered,
        open_loop=offered is None,
        # The label says infer/sec, the figure is tokens/s.
        tokens_per_s=record.number("Output Token Throughput (infer/sec)", "Output Token Throughput (tokens/sec)"),
        requests_per_s=requests_per_s,
        notes=notes,
        **figures,
    )


def _has(*groups: tuple[str, ...]) -> Callable[[Document], bool]:
    """A test whether a document has, of each group, at least one field or column."""

    def recognises(document: Document) -> bool:
        names = document.header or document.fields
        return all(any(name in names for name in group) for group in groups)

    return recognises


def _is_genai_sheet(document: Document) -> bool:
    """Whether this is the CSV of genai-perf or aiperf."""
    return document.header[:2] == ("Metric", "avg")


COMPANIONS: Final = (
    CompanionFile(genai_perf.is_genai_request, "requests one by one: import the summary of the run"),
    CompanionFile(genai_perf.is_raw, "prompts, answers or requests one by one: import the summary of the run"),
    CompanionFile(genai_perf.is_pooled, "several runs pooled: import the summary of each run"),
    CompanionFile(inference_perf.is_inference_request, "requests one by one: import the stage_N files"),
    CompanionFile(inference_perf.is_sessions, "sessions, not requests: import the stage_N files"),
)
"""Files that tools write beside their results."""
JSON_FORMATS: Final = (
    Format("genai-perf or aiperf", genai_perf.is_run, genai_perf.read_run),
    Format("guidellm", is_guidellm, read_benchmark, benchmarks),
    Format("inference-perf", inference_perf.is_report, inference_perf.read_stage),
    Format("SGLang bench_serving", _has(("output_throughput",), _SGLANG_KEYS), _read_bench),
    Format("InferenceX", _has(("output_throughput", "tput_per_gpu"), _INFERENCEX_MEANS), _read_inferencex),
    Format("vllm bench serve", _has(("output_throughput",), _VLLM_KEYS), _read_bench),
)
CSV_FORMATS: Final = (
    Format("Triton Model Analyzer", _has(("Model",), ("Throughput (infer/sec)",)), _read_analyzer),
    # No runs: `gpu_usage` reads this file.
    Format("Triton Model Analyzer, GPUs", is_gpu_sheet, _read_analyzer, lambda _: ()),
    Format("genai-perf or aiperf CSV", _is_genai_sheet, genai_perf.read_sheet, genai_perf.metrics),
    Format(
        "aiconfigurator", _has(("tokens/s/gpu",), ("tokens/s/user",), ("tpot",), ("concurrency",)), _read_aiconfigurator
    ),
    Format("NIM flat CSV", _has(("input_config-concurrency",), ("output_token_throughput-avg",)), _read_nim),
)
"""Formats by the kind of file; the first that recognises a document counts."""
KNOWN: Final = (
    "Triton Model Analyzer CSV, genai-perf or aiperf JSON or CSV of a run, vllm bench serve JSON, InferenceX JSON, "
    "guidellm JSON, inference-perf stage JSON, SGLang bench_serving JSONL, aiconfigurator CSV, NIM CSV"
)
