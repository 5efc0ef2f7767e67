"""The formats of load tests as tables: how a format is recognised by its content, and how a record becomes a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.sizing.imports import (
    aiconfigurator,
    bench_serving,
    genai_perf,
    guidellm,
    inference_perf,
    inferencex,
    model_analyzer,
    nim,
)
from gpumon.sizing.imports.files import Document, ImportProblem, Record, refusal
from gpumon.sizing.imports.runs import BenchmarkRun, LeftOut


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


def _no_records(_document: Document) -> tuple[Record, ...]:
    """The records of a file without runs."""
    return ()


COMPANIONS: Final = (
    CompanionFile(genai_perf.is_genai_request, "requests one by one: import the summary of the run"),
    CompanionFile(genai_perf.is_raw, "prompts, answers or requests one by one: import the summary of the run"),
    CompanionFile(genai_perf.is_pooled, "several runs pooled: import the summary of each run"),
    CompanionFile(inference_perf.is_inference_request, "requests one by one: import the stage_N files"),
    CompanionFile(inference_perf.is_sessions, "sessions, not requests: import the stage_N files"),
)
"""Files that tools write beside their results."""
# The first that recognises a document counts, so SGLang stands above vLLM, whose keys its files have, too.
JSON_FORMATS: Final = (
    Format("genai-perf or aiperf", genai_perf.is_run, genai_perf.read_run),
    Format("guidellm", guidellm.is_guidellm, guidellm.read_benchmark, guidellm.benchmarks),
    Format("inference-perf", inference_perf.is_report, inference_perf.read_stage),
    Format("SGLang bench_serving", bench_serving.is_sglang, bench_serving.read_run),
    Format("InferenceX", inferencex.is_inferencex, inferencex.read_row),
    Format("vllm bench serve", bench_serving.is_vllm, bench_serving.read_run),
)
CSV_FORMATS: Final = (
    Format("Triton Model Analyzer", model_analyzer.is_run_sheet, model_analyzer.read_row),
    # It holds no runs: `gpu_usage` adds its rows to those of the file beside it.
    Format("Triton Model Analyzer, GPUs", model_analyzer.is_gpu_sheet, model_analyzer.read_row, _no_records),
    Format("genai-perf or aiperf CSV", genai_perf.is_sheet, genai_perf.read_sheet, genai_perf.metrics),
    Format("aiconfigurator", aiconfigurator.is_aiconfigurator, aiconfigurator.read_row),
    Format("NIM flat CSV", nim.is_nim, nim.read_row),
)
_KNOWN: Final = (
    "Triton Model Analyzer CSV, genai-perf or aiperf JSON or CSV of a run, vllm bench serve JSON, InferenceX JSON, "
    "guidellm JSON, inference-perf stage JSON, SGLang bench_serving JSONL, aiconfigurator CSV, NIM CSV"
)


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
    formats: Sequence[Format] = CSV_FORMATS if document.header else JSON_FORMATS
    for candidate in formats:
        if candidate.recognises(document):
            return candidate
    raise refusal(document.place, "", "is the result of no load test that gpumon knows", _KNOWN)


def _add_run(format_: Format, record: Record, document_runs: DocumentRuns) -> None:
    """Add the run of one record, or why none is made of it."""
    try:
        document_runs.runs.append(format_.read(record))
    except LeftOut as left_out:
        document_runs.left_out.append(left_out.problem)
