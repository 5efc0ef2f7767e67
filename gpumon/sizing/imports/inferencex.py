"""InferenceX (ex InferenceMAX): aggregate rows and the files of its experiments, as JSON. Latencies in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpumon.sizing.imports.files import Document, Record, refusal
from gpumon.sizing.imports.runs import MEDIANS, BenchmarkRun, LeftOut, fields_by_name, precision

_FIELDS: Final = {
    "itl_s": ("mean_tpot", "median_tpot"),
    "tpot_p95_s": ("p95_tpot",),
    "itl_p95_s": ("p95_itl",),
    "ttft_s": ("mean_ttft", "median_ttft"),
    "ttft_p95_s": ("p95_ttft",),
    "e2e_s": ("mean_e2el", "median_e2el"),
    "e2e_p95_s": ("p95_e2el",),
    "prompt_tokens": ("isl", "random_input_len"),
    "answer_tokens": ("osl", "random_output_len"),
}
"""Field of a run -> keys, the preferred one first."""
_THROUGHPUTS: Final = ("output_throughput", "tput_per_gpu")
_MEANS: Final = ("mean_ttft", "median_ttft", "mean_tpot", "median_tpot")
"""A file has at least one key of each of these two."""
_NO_DRAFTS: Final = ("", "none", "off", "false", "0")
"""Values of a key for speculative decoding that say that there is none."""


def is_inferencex(document: Document) -> bool:
    """Whether this is a row or a file of InferenceX."""
    has_throughput = any(key in document.names for key in _THROUGHPUTS)
    return has_throughput and any(key in document.names for key in _MEANS)


def read_row(record: Record) -> BenchmarkRun:
    """The run of a row of InferenceX. Raises LeftOut for disaggregated serving."""
    if record.flag("disagg"):
        raise LeftOut(record.place, "disagg", "is true: prefill and decode run apart", "rows of one instance")
    gpus = record.count("num_gpus", "gpus") or record.count("tp") * (record.count("pp") or 1)
    tokens_per_s = _tokens_per_s(record, gpus)
    figures = fields_by_name(record, _FIELDS)
    answer = figures["answer_tokens"]
    requests_per_s = record.number("request_throughput") or None
    if requests_per_s is None and answer:
        requests_per_s = tokens_per_s / answer
    power_w = record.number("avg_power_w")  # mean of one GPU
    if power_w is not None:
        power_w *= gpus
    drafts = _drafts(record)
    tokens_per_step = _tokens_per_step(record, figures["itl_s"]) if drafts else None
    return BenchmarkRun(
        place=record.place,
        tool=f"InferenceX {record.text('framework')}".strip(),
        model=record.text("model", "model_id"),
        gpu=record.text("hw", "device"),
        gpus=gpus,
        tp=record.count("tp"),
        pp=record.count("pp"),
        weight_precision=precision(record.text("precision")),
        variant=_variant(record, drafts),
        time=record.text("date"),
        offered=record.required_number("conc", "max_concurrency"),
        tokens_per_s=tokens_per_s,
        requests_per_s=requests_per_s,
        power_w=power_w or None,
        tokens_per_step=tokens_per_step,
        of_medians="mean_tpot" not in record,
        notes=tuple(_notes(record, drafts, tokens_per_step)),
        **figures,
    )


def _notes(record: Record, drafts: str, tokens_per_step: float | None) -> Iterator[str]:
    """Notes on figures that stand for others, and on those that are missing."""
    if "mean_tpot" not in record:
        yield MEDIANS
    if drafts and tokens_per_step is None:
        yield f"tokens per step of {drafts} are not known: the file has no gap between chunks (mean_itl)"


def _tokens_per_s(record: Record, gpus: int) -> float:
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


def _variant(record: Record, drafts: str) -> str:
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
