"""`vllm bench serve --save-result` (and `vllm bench sweep serve`), SGLang's `bench_serving --output-file`.

Both write JSON, an object per run, with nearly the same keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from gpumon.sizing.imports.files import Document, Record, refusal, to_number
from gpumon.sizing.imports.runs import MEDIANS, BenchmarkRun, check_completed, fields_by_name, precision

_THROUGHPUT: Final = "output_throughput"
_SGLANG_KEYS: Final = ("total_output_tokens_retokenized", "mean_e2e_latency_ms", "median_e2e_latency_ms")
"""Keys that only SGLang writes."""
_LATENCY_KEYS: Final = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
"""Keys of which a file of vLLM has at least one, as a mean or as a median."""
# Keys of settings, in `--metadata`, in the serve parameters that a sweep merges in, and in SGLang's `server_info`.
_TP_KEYS: Final = ("tp", "tensor_parallel_size", "tensor-parallel-size", "tp_size")
_PP_KEYS: Final = ("pp", "pipeline_parallel_size", "pipeline-parallel-size", "pp_size")
_KV_KEYS: Final = ("kv_cache_dtype", "kv-cache-dtype", "kv_precision")
_SERVER_OPTIONS: Final = (
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
_LATENCIES_MS: Final = {
    "itl_s": ("mean_tpot_ms", "mean_itl_ms", "median_tpot_ms", "median_itl_ms"),
    "tpot_p95_s": ("p95_tpot_ms",),
    "itl_p95_s": ("p95_itl_ms",),
    "ttft_s": ("mean_ttft_ms", "median_ttft_ms"),
    "ttft_p95_s": ("p95_ttft_ms",),
    "e2e_s": ("mean_e2el_ms", "mean_e2e_latency_ms", "median_e2el_ms", "median_e2e_latency_ms"),
    "e2e_p95_s": ("p95_e2el_ms", "p95_e2e_latency_ms"),
}
"""Field of a run -> keys of a latency in ms, the preferred one first."""
_ITL_OF_CHUNKS: Final = "ITL between chunks stands for the time per token: the file has no TPOT"
_ABORTED_TOKENS: Final = 1.5
"""Retokenized output tokens per request below which SGLang gave up after the first token."""
_COMPACT_TIME: Final = re.compile(r"^(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)$")
"""vLLM writes its local time as `20260613-051141`."""


def is_sglang(document: Document) -> bool:
    """Whether this is a run of SGLang's benchmark."""
    return _THROUGHPUT in document.names and any(key in document.names for key in _SGLANG_KEYS)


def is_vllm(document: Document) -> bool:
    """Whether this is a run of vLLM's benchmark; SGLang's files have these keys, too."""
    return _THROUGHPUT in document.names and any(
        f"{kind}_{key}" in document.names for key in _LATENCY_KEYS for kind in ("mean", "median")
    )


def read_run(record: Record) -> BenchmarkRun:
    """The run of a record of either benchmark. Raises ImportRefused for one that lost requests or aborted them."""
    server = record.part("server_info")
    done = record.number("completed")
    check_completed(record.place, done, record.number("failed"), record.number("num_prompts"))
    tool = "vllm bench serve"
    if any(name in record for name in _SGLANG_KEYS):
        _check_answered(record)
        tool = f"SGLang bench_serving {server.text('version')}".strip()
    rate = _sent_per_s(record)
    offered = record.number("max_concurrency") if rate is None else None
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
        sent_per_s=rate,
        completed=done,
        prompt_tokens=record.per_request("total_input_tokens", done),
        answer_tokens=record.per_request("total_output_tokens", done),
        tokens_per_s=record.required_number(_THROUGHPUT),
        requests_per_s=record.number("request_throughput"),
        kv_pool_tokens=server.number("max_total_num_tokens"),
        tokens_per_step=record.number("spec_decode_acceptance_length", "accept_length"),
        max_num_seqs=server.count("max_running_requests") or record.count("max_num_seqs", "max-num-seqs"),
        of_medians=_has_medians(record),
        settings=_settings_text(record),
        notes=tuple(_notes(record)),
        **fields_by_name(record, _LATENCIES_MS, 1e-3),
    )


def _sent_per_s(record: Record) -> float | None:
    """Requests per second that the client sends; None where it holds a number of them open."""
    if "request_rate" in record and to_number(record.value("request_rate")) != math.inf:
        return record.number("request_rate")
    return None


def _has_medians(record: Record) -> bool:
    """Whether the time per token is there as a median alone."""
    has_mean = "mean_tpot_ms" in record or "mean_itl_ms" in record
    return not has_mean and ("median_tpot_ms" in record or "median_itl_ms" in record)


def _notes(record: Record) -> Iterator[str]:
    """Notes on figures that stand for others."""
    if _has_medians(record):
        yield MEDIANS
    names = ("mean_tpot_ms", "mean_itl_ms", "median_tpot_ms", "median_itl_ms")
    used = next((name for name in names if name in record), "")
    if used.endswith("_itl_ms"):
        yield _ITL_OF_CHUNKS


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


def _settings_text(record: Record) -> str:
    """The options of the server that a sweep merged in: `max-num-batched-tokens8192-block-size16`."""
    options = {key.replace("-", "_"): value for key, value in record.fields.items()}
    parts = [f"{name.replace('_', '-')}{options[name]}" for name in _SERVER_OPTIONS if options.get(name) is not None]
    return "-".join(parts)
