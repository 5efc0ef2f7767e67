"""Tables 9 and 10 of Dell's design guide for generative AI inferencing (H19686, July 2023), as profiles."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.sizing.profile import Observed, Origin, Point

_TABLE_10_TOOL: Final = "Dell H19686, July 2023, table 10, Triton Model Analyzer"
_TABLE_9_TOOL: Final = "Dell H19686, July 2023, table 9"
_TABLE_13_TOOL: Final = "Dell design guide, web edition, table 13"
_GPU: Final = "H100 PCIe 80GB"
_QUEUED: Final = 0.5
"""Share of the response from which a request mostly waits."""


class _Swept(NamedTuple):
    """A column of table 10: a model at what the guide calls its optimal number of concurrent requests."""

    label: str
    model: str
    concurrency: float
    p95_ms: float
    response_ms: float
    queue_ms: float
    inferences_per_s: float
    memory_gb: float
    busy_ratio: float


class _Loaded(NamedTuple):
    """A row of table 9: GPU memory with one request."""

    label: str
    model: str
    memory_gb: float
    precision: str
    table: str
    gpu: str = ""
    """Stated for the NeMo models alone."""


def guide_profiles() -> tuple[Observed, ...]:
    """Both tables as profiles: `guide-...` from table 10, `guide-memory-...` from table 9.

    Table 10 is of one H100 PCIe in an R760xa each. The guide counts inferences, not tokens, and states no lengths: its
    concurrency and memory can be planned with, its latency holds for its own prompts alone. Two rows of `guide-memory`
    (Llama-2-13B and 70B) stand only in the later web edition (table 13); the 70B's number of GPUs is not stated.
    """
    return (*(_swept(row) for row in _TABLE_10), *(_loaded(row) for row in _TABLE_9))


def queue_ratio(point: Point) -> float | None:
    """Share of the response that a request waits for its turn: 1 - running / offered, by Little's law.

    None where the offered load is not known.
    """
    if point.offered is None or point.offered <= 0.0:
        return None
    return min(1.0, max(0.0, 1.0 - point.running / point.offered))


def queue_warning(observed: Observed) -> str:
    """What to know where requests mostly queue at the operating point of a profile; empty where they do not.

    Three of the guide's four "optimal" concurrencies are of servers that work on one request at a time.
    """
    best = observed.concurrency
    if best is None:
        return ""
    for point in observed.points:
        waits = queue_ratio(point)
        if point.offered == best and waits is not None and waits >= _QUEUED:
            return _queued(point, best, waits)
    return ""


def _queued(point: Point, offered: float, waits: float) -> str:
    kind = "a serial server" if round(point.running) <= 1 else "its slots are full"
    return (
        f"{waits:.0%} of the response at concurrency {offered:g} is queue: {kind}, concurrency "
        f"{max(1, round(point.running))} gives the same throughput and {point.running / offered:.0%} of the latency"
    )


def _swept(row: _Swept) -> Observed:
    service_s = (row.response_ms - row.queue_ms) / 1e3
    point = Point(
        # What is in service, by Little's law: the guide's concurrency counts those that queue too.
        running=row.inferences_per_s * service_s,
        offered=row.concurrency,
        e2e_s=row.response_ms / 1e3,
        e2e_p95_s=row.p95_ms / 1e3,
        requests_per_s=row.inferences_per_s,
        busy_ratio=row.busy_ratio,
    )
    return Observed(
        origin=Origin.TABLE,
        name=f"guide-{row.label}",
        model=row.model,
        points=(point,),
        tool=_TABLE_10_TOOL,
        gpu=_GPU,
        gpus=1,
        tp=1,
        weight_precision="bf16",
        memory_bytes=row.memory_gb * 1e9,
        busy_ratio=row.busy_ratio,
        concurrency=row.concurrency,
    )


def _loaded(row: _Loaded) -> Observed:
    return Observed(
        origin=Origin.TABLE,
        name=f"guide-memory-{row.label}",
        model=row.model,
        tool=f"{row.table}, GPU memory with one request",
        gpu=row.gpu,
        gpus=1 if row.gpu else 0,
        weight_precision=row.precision,
        memory_bytes=row.memory_gb * 1e9,
    )


_TABLE_10: Final = (
    _Swept("nemo-345m", "NeMo-GPT-345M", 4.0, 295.85, 275.34, 206.29, 14.5, 3.1, 0.98),
    _Swept("nemo-1.3b", "NeMo-GPT-1.3B", 4.0, 406.69, 396.45, 297.04, 10.07, 4.12, 0.99),
    _Swept("nemo-5b", "NeMo-GPT-5B", 4.0, 1135.52, 1101.13, 824.52, 3.61, 12.41, 0.99),
    _Swept("nemo-20b", "NeMo-GPT-20B", 16.0, 1112.39, 1099.72, 49.58, 14.51, 44.76, 0.935),
)

_TABLE_9: Final = (
    _Loaded("nemo-345m", "NeMo-GPT-345M", 3.1, "bf16", _TABLE_9_TOOL, _GPU),
    _Loaded("nemo-1.3b", "NeMo-GPT-1.3B", 4.1, "bf16", _TABLE_9_TOOL, _GPU),
    _Loaded("nemo-5b", "NeMo-GPT-5B", 12.41, "bf16", _TABLE_9_TOOL, _GPU),
    _Loaded("nemo-20b", "NeMo-GPT-20B", 42.44, "bf16", _TABLE_9_TOOL, _GPU),
    _Loaded("bloom-7b", "BLOOM-7B1", 16.63, "bf16", _TABLE_9_TOOL),
    _Loaded("stable-diffusion-2.1", "Stable-Diffusion-2.1", 7.88, "fp16", _TABLE_9_TOOL),
    _Loaded("llama-2-7b", "Llama-2-7B", 14.2, "fp16", _TABLE_9_TOOL),
    _Loaded("llama-2-13b", "Llama-2-13B", 29.5, "fp16", _TABLE_13_TOOL),
    _Loaded("llama-2-70b", "Llama-2-70B", 154.7, "fp16", _TABLE_13_TOOL),
)
