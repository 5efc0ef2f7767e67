"""Tables 9 and 10 of Dell's design guide for generative AI inferencing (H19686, July 2023), as profiles."""

from __future__ import annotations

from typing import Final

from gpumon.sizing.profile import Observed, Origin, Point

_GPU: Final = "H100 PCIe 80GB"
_QUEUED: Final = 0.5
"""Share of the response from which a request mostly waits."""
_TABLE_10: Final = (
    ("nemo-345m", "NeMo-GPT-345M", 4.0, 295.85, 275.34, 206.29, 14.5, 3.1, 0.98),
    ("nemo-1.3b", "NeMo-GPT-1.3B", 4.0, 406.69, 396.45, 297.04, 10.07, 4.12, 0.99),
    ("nemo-5b", "NeMo-GPT-5B", 4.0, 1135.52, 1101.13, 824.52, 3.61, 12.41, 0.99),
    ("nemo-20b", "NeMo-GPT-20B", 16.0, 1112.39, 1099.72, 49.58, 14.51, 44.76, 0.935),
)
"""A model at what the guide calls its optimal number of concurrent requests: that number, p95, mean and queue of the
response (ms), inferences/s, memory (GB), busy share."""
_TABLE_9: Final = (
    ("nemo-345m", "NeMo-GPT-345M", 3.1, "bf16", _GPU),
    ("nemo-1.3b", "NeMo-GPT-1.3B", 4.1, "bf16", _GPU),
    ("nemo-5b", "NeMo-GPT-5B", 12.41, "bf16", _GPU),
    ("nemo-20b", "NeMo-GPT-20B", 42.44, "bf16", _GPU),
    ("bloom-7b", "BLOOM-7B1", 16.63, "bf16", ""),
    ("stable-diffusion-2.1", "Stable-Diffusion-2.1", 7.88, "fp16", ""),
    ("llama-2-7b", "Llama-2-7B", 14.2, "fp16", ""),
    ("llama-2-13b", "Llama-2-13B", 29.5, "fp16", ""),
    ("llama-2-70b", "Llama-2-70B", 154.7, "fp16", ""),
)
"""GPU memory (GB) with one request, and the precision; the GPU is stated for the NeMo models alone."""
_WEB: Final = ("llama-2-13b", "llama-2-70b")
"""They stand only in the later web edition (table 13); the 70B's number of GPUs is not stated."""


def guide_profiles() -> tuple[Observed, ...]:
    """Both tables as profiles: `guide-...` from table 10, `guide-memory-...` from table 9.

    Table 10 is of one H100 PCIe in an R760xa each. The guide counts inferences, not tokens, and states no lengths: its
    concurrency and memory can be planned with, its latency holds for its own prompts alone.
    """
    swept = [
        Observed(
            origin=Origin.TABLE, name=f"guide-{label}", model=model, gpu=_GPU, gpus=1, tp=1, weight_precision="bf16",
            memory_bytes=gb * 1e9, busy_ratio=busy, concurrency=offered,
            tool="Dell H19686, July 2023, table 10, Triton Model Analyzer",
            # What is in service, by Little's law: the guide's concurrency counts those that queue too.
            points=(Point(rate * (mean_ms - queue_ms) / 1e3, offered=offered, e2e_s=mean_ms / 1e3,
                          e2e_p95_s=p95_ms / 1e3, requests_per_s=rate, busy_ratio=busy),),
        )
        for label, model, offered, p95_ms, mean_ms, queue_ms, rate, gb, busy in _TABLE_10
    ]  # fmt: skip
    loaded = [
        Observed(
            origin=Origin.TABLE, name=f"guide-memory-{label}", model=model, gpu=gpu, gpus=1 if gpu else 0,
            weight_precision=precision, memory_bytes=gb * 1e9,
            tool=("Dell design guide, web edition, table 13" if label in _WEB else "Dell H19686, July 2023, table 9")
            + ", GPU memory with one request",
        )
        for label, model, gb, precision, gpu in _TABLE_9
    ]  # fmt: skip
    return (*swept, *loaded)


def queue_ratio(point: Point) -> float | None:
    """Share of the response that a request waits for its turn: 1 - running / offered, by Little's law.

    None where the offered load is not known.
    """
    if point.offered is None or point.offered <= 0.0:
        return None
    return min(1.0, max(0.0, 1.0 - point.running / point.offered))


def queue_warning(observed: Observed) -> str:
    """Warning if requests mostly queue at the operating point of a profile; empty where they do not.

    Three of the guide's four "optimal" concurrencies are of servers that work on one request at a time.
    """
    for point in observed.points:
        waits = queue_ratio(point)
        offered = point.offered
        if offered is not None and offered == observed.concurrency and waits is not None and waits >= _QUEUED:
            kind = "its slots are full"
            if round(point.running) <= 1:
                kind = "a serial server"
            return (
                f"{waits:.0%} of the response at concurrency {offered:g} is queue: {kind}, concurrency "
                f"{max(1, round(point.running))} gives the same throughput and {point.running / offered:.0%} of the "
                "latency"
            )
    return ""
