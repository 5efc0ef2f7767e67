"""`vllm bench serve --save-result`: JSON or JSON lines, and the merged records of `vllm bench sweep serve`."""

from __future__ import annotations

from typing import Final

from gpumon.sizing.sweeps.record import Document, Record
from gpumon.sizing.sweeps.run import Run, completed, precision

GPU_KEYS: Final = ("gpu", "gpu_type", "gpu_name", "hardware", "hw", "accelerator")
GPUS_KEYS: Final = ("gpus", "num_gpus", "n_gpus", "gpu_count")
TP_KEYS: Final = ("tp", "tensor_parallel_size", "tensor-parallel-size", "tp_size")
PP_KEYS: Final = ("pp", "pipeline_parallel_size", "pipeline-parallel-size", "pp_size")
PRECISION_KEYS: Final = ("precision", "weight_precision", "quantization", "dtype")
KV_KEYS: Final = ("kv_cache_dtype", "kv-cache-dtype", "kv_precision")
"""What users pass with `--metadata`, and what a sweep merges in from its serve parameters."""
SETTINGS: Final = (
    *("max_num_batched_tokens", "gpu_memory_utilization", "block_size", "enable_prefix_caching", "max_model_len"),
    *("enable_chunked_prefill", "data_parallel_size", "enable_expert_parallel", "async_scheduling"),
)
"""Options of a server that a sweep merges into its records, and that change how fast it is."""
_CHUNKS: Final = "ITL between chunks stands for the time per token: the file has no TPOT"


def recognises(document: Document) -> bool:
    """Whether this is one of its records."""
    fields = document.fields
    return "output_throughput" in fields and any(
        f"mean_{name}_ms" in fields for name in ("ttft", "tpot", "itl", "e2el")
    )


def read(document: Document) -> list[Run]:
    """The run of one record. Raises SweepError."""
    record = Record(document.fields, document.place)
    done = record.number("completed")
    completed(record.place, done, record.number("failed"), record.number("num_prompts"))
    endless = record.endless("request_rate")
    offered = record.number("max_concurrency")
    itl_s = record.number("mean_tpot_ms", scale=1e-3)
    return [
        Run(
            place=record.place,
            tool="vllm bench serve",
            model=record.text("model_id", "model"),
            gpu=record.text(*GPU_KEYS),
            gpus=record.count(*GPUS_KEYS),
            tp=record.count(*TP_KEYS),
            pp=record.count(*PP_KEYS),
            weight_precision=precision(record.text(*PRECISION_KEYS)),
            kv_precision=precision(record.text(*KV_KEYS)),
            time=_date(record.text("date")),
            offered=offered if endless else None,
            open_loop=not endless or offered is None,
            prompt_tokens=record.per_request("total_input_tokens", done),
            answer_tokens=record.per_request("total_output_tokens", done),
            itl_s=record.number("mean_itl_ms", scale=1e-3) if itl_s is None else itl_s,
            itl_p95_s=record.number("p95_tpot_ms", scale=1e-3),
            ttft_s=record.number("mean_ttft_ms", scale=1e-3),
            ttft_p95_s=record.number("p95_ttft_ms", scale=1e-3),
            e2e_s=record.number("mean_e2el_ms", scale=1e-3),
            e2e_p95_s=record.number("p95_e2el_ms", scale=1e-3),
            tokens_per_s=record.wanted("output_throughput"),
            requests_per_s=record.number("request_throughput"),
            max_num_seqs=record.count("max_num_seqs", "max-num-seqs"),
            settings=settings_of(document),
            notes=(_CHUNKS,) if itl_s is None and "mean_itl_ms" in record else (),
        )
    ]


def settings_of(document: Document) -> str:
    """The server's options that the record tells, in one word."""
    fields = {key.replace("-", "_"): value for key, value in document.fields.items()}
    return "-".join(f"{name.replace('_', '-')}{fields[name]}" for name in SETTINGS if fields.get(name) is not None)


def _date(text: str) -> str:
    """`20260613-051141` as RFC 3339 without a zone: the tool writes local time."""
    if len(text) == 15 and text[8] == "-" and text.replace("-", "").isdigit():
        return f"{text[:4]}-{text[4:6]}-{text[6:8]}T{text[9:11]}:{text[11:13]}:{text[13:]}"
    return text
