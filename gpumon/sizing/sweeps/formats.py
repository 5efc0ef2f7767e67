"""The table of formats: how each is recognised by its content, and who reads it. The first that fits counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from gpumon.sizing.sweeps import (
    aiconfigurator,
    aiperf_sweep,
    genai_perf,
    guidellm,
    inferencex,
    model_analyzer,
    nim,
    sglang_bench,
    vllm_bench,
)
from gpumon.sizing.sweeps.record import Document, refused
from gpumon.sizing.sweeps.run import Run


class Format(NamedTuple):
    """One format. A format that is `read` as None is known and holds no sweep: `instead` says what to import."""

    name: str
    recognises: Callable[[Document], bool]
    read: Callable[[Document], list[Run]] | None
    instead: str = ""


def _requests(document: Document) -> bool:
    return isinstance(document.fields.get("metadata"), Mapping) and "metrics" in document.fields


def _confidence(document: Document) -> bool:
    meta = document.fields.get("metadata")
    return isinstance(meta, Mapping) and meta.get("aggregation_type") == "confidence"


def _guidellm_sheet(document: Document) -> bool:
    return len(document.rows) > 2 and "Run Info" in document.header


JSON_FORMATS: Final = (
    Format("aiperf sweep", aiperf_sweep.recognises, aiperf_sweep.read),
    Format("genai-perf or aiperf", genai_perf.recognises, genai_perf.read),
    Format("guidellm", guidellm.recognises, guidellm.read),
    Format("SGLang bench_serving", sglang_bench.recognises, sglang_bench.read),
    Format("InferenceX", inferencex.recognises, inferencex.read),
    Format("vllm bench serve", vllm_bench.recognises, vllm_bench.read),
    Format("aiperf confidence", _confidence, None, "profile_export_aiperf_sweep.json, or profile_export_aiperf.json"),
    Format("requests of aiperf", _requests, None, "profile_export_aiperf.json, which sums them up"),
)
CSV_FORMATS: Final = (
    Format("Triton Model Analyzer", model_analyzer.recognises, model_analyzer.read),
    Format("Triton Model Analyzer, GPUs", model_analyzer.recognises_gpu, model_analyzer.read_gpu),
    Format("genai-perf or aiperf CSV", genai_perf.recognises_sheet, genai_perf.read_sheet),
    Format("aiperf sweep CSV", aiperf_sweep.recognises_sheet, aiperf_sweep.read_sheet),
    Format("aiconfigurator", aiconfigurator.recognises, aiconfigurator.read),
    Format("NIM flat CSV", nim.recognises, nim.read),
    Format("guidellm CSV", _guidellm_sheet, None, "benchmarks.json of the same run"),
)
"""Format, how it is told, and its reader."""
KNOWN: Final = (
    "Triton Model Analyzer CSV, genai-perf JSON or CSV, aiperf JSON or CSV and its sweep aggregate, "
    "vllm bench serve JSON, InferenceX JSON, guidellm JSON, SGLang bench_serving JSONL, aiconfigurator CSV, NIM CSV"
)


def format_of(document: Document) -> Format:
    """The format of a document. Raises SweepError where none fits, or where it holds no sweep."""
    table = CSV_FORMATS if document.rows else JSON_FORMATS
    found = next((each for each in table if each.recognises(document)), None)
    if found is None:
        raise refused(document.place, "", "is the result of no load test that gpumon knows", KNOWN)
    if found.read is None:
        raise refused(document.place, "", f"is {found.name}: not a summary", found.instead)
    return found
