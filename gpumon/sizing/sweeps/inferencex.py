"""InferenceX (ex InferenceMAX): aggregate rows and the files of its experiments. Latencies in seconds."""

from __future__ import annotations

from typing import Final

from gpumon.sizing.sweeps.record import Document, Record, refused
from gpumon.sizing.sweeps.run import Run, precision

_MEDIAN: Final = "medians stand for means: the file has no means"


def recognises(document: Document) -> bool:
    """Whether this is one of its records: latencies without `_ms`."""
    fields = document.fields
    return any(name in fields for name in ("mean_ttft", "median_ttft", "mean_tpot", "median_tpot")) and (
        "tput_per_gpu" in fields or "output_throughput" in fields
    )


def read(document: Document) -> list[Run]:
    """The run of one record. Raises SweepError; a disaggregated row is no instance that can be planned with."""
    record = Record(document.fields, document.place)
    if record.flag("disagg"):
        raise refused(record.place, "disagg", "is true: prefill and decode run apart", "rows of one instance")
    gpus = record.count("num_gpus", "gpus") or record.count("tp") * (record.count("pp") or 1)
    per_gpu = record.number("output_tput_per_gpu")
    if per_gpu is not None and not gpus:
        raise refused(record.place, "tp", "is missing: the throughput is one per GPU")
    prompt, answer = record.number("isl", "random_input_len"), record.number("osl", "random_output_len")
    tokens_per_s = per_gpu * gpus if per_gpu is not None else record.wanted("output_throughput")
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
            prompt_tokens=prompt,
            answer_tokens=answer,
            itl_s=record.number("mean_tpot", "median_tpot"),
            itl_p95_s=record.number("p95_tpot"),
            ttft_s=record.number("mean_ttft", "median_ttft"),
            ttft_p95_s=record.number("p95_ttft"),
            e2e_s=record.number("mean_e2el", "median_e2el"),
            e2e_p95_s=record.number("p95_e2el"),
            tokens_per_s=tokens_per_s,
            requests_per_s=record.number("request_throughput") or (tokens_per_s / answer if answer else None),
            power_w=_power(record, gpus),
            notes=() if "mean_tpot" in record else (_MEDIAN,),
        )
    ]


def _power(record: Record, gpus: int) -> float | None:
    """Of all GPUs: the file has the mean of one."""
    mean = record.number("avg_power_w")
    return mean * gpus if mean and gpus else None
