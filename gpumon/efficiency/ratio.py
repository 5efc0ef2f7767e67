"""The three ratios: busy, MFU and MBU. None is clamped: a figure above 1 says that a table or a model is wrong."""

from __future__ import annotations

from gpumon.efficiency.checks import checked, positive


def mfu(flops_per_s: float, n_gpus: float, peak_flops_per_s: float) -> float:
    """Model FLOPs utilisation: FLOP/s that the tokens needed / (GPUs x dense peak of the compute precision).

    The share of the throughput that the chips could reach at most (PaLM, arXiv 2204.02311): 20 of a possible 100
    tokens/s is 0.2. ValueError on negative rates, or without GPUs or peak.
    """
    return checked("flops_per_s", flops_per_s) / (checked("n_gpus", n_gpus, 1) * positive("peak", peak_flops_per_s))


def mbu(bytes_per_s: float, n_gpus: float, peak_bytes_per_s: float) -> float:
    """Model bandwidth utilisation: bytes/s that the steps must read / (GPUs x peak memory bandwidth).

    500 GB/s of 1 TB/s is 0.5 (Databricks, LLM inference performance engineering). ValueError on negative rates, or
    without GPUs or peak.
    """
    return checked("bytes_per_s", bytes_per_s) / (checked("n_gpus", n_gpus, 1) * positive("peak", peak_bytes_per_s))


def busy(busy_s: float, elapsed_s: float) -> float:
    """Share of `elapsed_s` in which at least one kernel ran: 5 of 10 hours is 0.5. ValueError without elapsed time."""
    return checked("busy_s", busy_s) / positive("elapsed_s", elapsed_s)
