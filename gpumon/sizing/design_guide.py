"""Tables 9 and 10 of Dell's design guide for generative AI inferencing (H19686, July 2023), as profiles."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.sizing.profile import Observed, Origin, Point

_GPU: Final = "H100 PCIe 80GB"
"""Catalogue name of the GPU of the guide's servers."""


class _Throughput(NamedTuple):
    """A row of table 10: a model at what the guide calls its optimal number of concurrent requests."""

    label: str
    """Last part of the profile's name."""
    model: str
    concurrency: float
    """Requests that the client held open."""
    e2e_p95_ms: float
    e2e_ms: float
    """Mean from the request to its last token."""
    queue_ms: float
    """Mean part of `e2e_ms` that a request waits."""
    requests_per_s: float
    memory_gb: float
    busy_ratio: float


class _Memory(NamedTuple):
    """A row of table 9: a model with one request."""

    label: str
    """Last part of the profile's name."""
    model: str
    memory_gb: float
    precision: str
    gpu: str
    """Catalogue name; the guide states the GPU of the NeMo models alone, else it is empty."""


_TABLE_10: Final = (
    _Throughput("nemo-345m", "NeMo-GPT-345M", 4.0, 295.85, 275.34, 206.29, 14.5, 3.1, 0.98),
    _Throughput("nemo-1.3b", "NeMo-GPT-1.3B", 4.0, 406.69, 396.45, 297.04, 10.07, 4.12, 0.99),
    _Throughput("nemo-5b", "NeMo-GPT-5B", 4.0, 1135.52, 1101.13, 824.52, 3.61, 12.41, 0.99),
    _Throughput("nemo-20b", "NeMo-GPT-20B", 16.0, 1112.39, 1099.72, 49.58, 14.51, 44.76, 0.935),
)
_TABLE_9: Final = (
    _Memory("nemo-345m", "NeMo-GPT-345M", 3.1, "bf16", _GPU),
    _Memory("nemo-1.3b", "NeMo-GPT-1.3B", 4.1, "bf16", _GPU),
    _Memory("nemo-5b", "NeMo-GPT-5B", 12.41, "bf16", _GPU),
    _Memory("nemo-20b", "NeMo-GPT-20B", 42.44, "bf16", _GPU),
    _Memory("bloom-7b", "BLOOM-7B1", 16.63, "bf16", ""),
    _Memory("stable-diffusion-2.1", "Stable-Diffusion-2.1", 7.88, "fp16", ""),
    _Memory("llama-2-7b", "Llama-2-7B", 14.2, "fp16", ""),
    _Memory("llama-2-13b", "Llama-2-13B", 29.5, "fp16", ""),
    _Memory("llama-2-70b", "Llama-2-70B", 154.7, "fp16", ""),
)
_WEB_EDITION_ONLY: Final = ("llama-2-13b", "llama-2-70b")
"""Labels of models that stand only in the later web edition (table 13). The 70B's number of GPUs is not stated."""


def guide_profiles() -> tuple[Observed, ...]:
    """Both tables as profiles: `guide-...` from table 10, `guide-memory-...` from table 9.

    Table 10 is of one H100 PCIe in an R760xa each. The guide counts inferences, not tokens, and states no lengths: its
    concurrency and memory can be planned with, its latency holds for its own prompts alone.
    """
    throughput_profiles = [_throughput_profile(row) for row in _TABLE_10]
    memory_profiles = [_memory_profile(row) for row in _TABLE_9]
    return (*throughput_profiles, *memory_profiles)


def _throughput_profile(row: _Throughput) -> Observed:
    """A row of table 10 as a profile with one operating point."""
    # Requests in service, by Little's law: the guide's concurrency counts those in the queue, too.
    running = row.requests_per_s * (row.e2e_ms - row.queue_ms) / 1e3
    point = Point(
        running=running,
        offered=row.concurrency,
        e2e_s=row.e2e_ms / 1e3,
        e2e_p95_s=row.e2e_p95_ms / 1e3,
        requests_per_s=row.requests_per_s,
        busy_ratio=row.busy_ratio,
    )
    return Observed(
        origin=Origin.TABLE,
        name=f"guide-{row.label}",
        model=row.model,
        gpu=_GPU,
        gpus=1,
        tp=1,
        weight_precision="bf16",
        memory_bytes=row.memory_gb * 1e9,
        busy_ratio=row.busy_ratio,
        concurrency=row.concurrency,
        tool="Dell H19686, July 2023, table 10, Triton Model Analyzer",
        points=(point,),
    )


def _memory_profile(row: _Memory) -> Observed:
    """A row of table 9 as a profile without operating points."""
    source = (
        "Dell design guide, web edition, table 13"
        if row.label in _WEB_EDITION_ONLY
        else "Dell H19686, July 2023, table 9"
    )
    gpus = 1 if row.gpu else 0  # the number is not stated
    return Observed(
        origin=Origin.TABLE,
        name=f"guide-memory-{row.label}",
        model=row.model,
        gpu=row.gpu,
        gpus=gpus,
        weight_precision=row.precision,
        memory_bytes=row.memory_gb * 1e9,
        tool=f"{source}, GPU memory with one request",
    )
