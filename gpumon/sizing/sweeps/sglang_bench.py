"""SGLang `bench_serving --output-file`: JSON lines, one object per run."""

from __future__ import annotations

from typing import Final

from gpumon.sizing.sweeps.record import Document, Record, refused
from gpumon.sizing.sweeps.run import Run, completed, precision
from gpumon.sizing.sweeps.vllm_bench import GPU_KEYS, GPUS_KEYS

_ABORTED: Final = 1.5
"""Retokenized output tokens per request below which the server gave up after the first token."""


def recognises(document: Document) -> bool:
    """Whether this is one of its records: `e2e_latency` where vLLM writes `e2el`."""
    fields = document.fields
    return "output_throughput" in fields and (
        "total_output_tokens_retokenized" in fields or "mean_e2e_latency_ms" in fields
    )


def read(document: Document) -> list[Run]:
    """The run of one record. Raises SweepError, also for a run that the server aborted."""
    record = Record(document.fields, document.place)
    done = record.wanted("completed")
    completed(record.place, done, record.number("failed"), record.number("num_prompts"))
    _whole(record, done)
    server = record.part("server_info")
    offered = record.number("max_concurrency") if record.endless("request_rate") else None
    tp = server.count("tp_size", "tp") or record.count("tp_size", "tp")
    return [
        Run(
            place=record.place,
            tool=f"SGLang bench_serving {server.text('version')}".strip(),
            model=server.text("model_path", "served_model_name") or record.text("model_id", "model"),
            gpu=record.text(*GPU_KEYS),
            gpus=record.count(*GPUS_KEYS),
            tp=tp,
            pp=server.count("pp_size"),
            weight_precision=precision(server.text("quantization", "dtype")),
            kv_precision=precision(server.text("kv_cache_dtype")),
            offered=offered,
            open_loop=offered is None,
            prompt_tokens=record.per_request("total_input_tokens", done),
            answer_tokens=record.per_request("total_output_tokens", done),
            itl_s=record.number("mean_tpot_ms", scale=1e-3),
            itl_p95_s=record.number("p95_tpot_ms", scale=1e-3),
            ttft_s=record.number("mean_ttft_ms", scale=1e-3),
            ttft_p95_s=record.number("p95_ttft_ms", scale=1e-3),
            e2e_s=record.number("mean_e2e_latency_ms", scale=1e-3),
            e2e_p95_s=record.number("p95_e2e_latency_ms", scale=1e-3),
            tokens_per_s=record.wanted("output_throughput"),
            requests_per_s=record.number("request_throughput"),
            kv_pool_tokens=server.number("max_total_num_tokens"),
            max_num_seqs=server.count("max_running_requests"),
        )
    ]


def _whole(record: Record, done: float) -> None:
    tokens, retokenized = record.number("total_output_tokens"), record.number("total_output_tokens_retokenized")
    if tokens is not None and retokenized is not None and retokenized <= _ABORTED * done < tokens:
        raise refused(
            record.place,
            "total_output_tokens_retokenized",
            f"is {retokenized:.0f} for {done:.0f} requests that asked for {tokens:.0f} tokens: the server aborted them",
        )
