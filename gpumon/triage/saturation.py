"""Signs that a resource of an engine is at its limit: the arithmetic, the memory bandwidth, or the way in."""

from __future__ import annotations

from typing import Final

from gpumon.readings.snapshot import Engine
from gpumon.triage.samples import KEPT_S
from gpumon.triage.signals import MINUTE_S, Case, GpuActivity, finite

MOSTLY: Final = 0.5
"""Share of a whole from which on a part is most of it: prefill of the arithmetic, weights of the reads."""
_LEAST_DRAM_BESIDE_MBU: Final = 0.55
"""DRAM activity that a high MBU must come with, where it is measured."""


def arithmetic_is_full(case: Case, activity: GpuActivity) -> bool:
    """Whether the GPUs compute all they can, by the tensor cores' activity or by MFU."""
    limits = case.thresholds
    if activity.tensor is not None and activity.tensor >= limits.compute_tensor_ratio:
        return True
    mfu = case.mean("mfu_ratio")
    if mfu is None:
        return False
    if mfu * drafts_times(case) >= limits.compute_mfu_ratio:
        return True
    if case.waiting_mean() < limits.queue_waiting or mfu < limits.compute_queued_mfu_ratio:
        return False
    return prefill_share(case) is not None and not case.is_pinned()


def prefill_share(case: Case) -> float | None:
    """Part of the MFU that is prefill's, where that is most of it; None elsewhere, and where either is not known."""
    mfu = case.mean("mfu_ratio")
    prefill = case.mean("mfu_prefill_ratio")
    if mfu is None or prefill is None or prefill < MOSTLY * mfu:
        return None
    return min(1.0, prefill / mfu) if mfu else 0.0


def drafts_times(case: Case) -> float:
    """Tokens that a decode step computes for each that it yields: drafts that are not accepted are no part of MFU.

    1 without speculation, and where prompts are most of the arithmetic.
    """
    engine = case.engine
    prefill = case.mean("mfu_prefill_ratio") or 0.0
    if engine is None or prefill >= MOSTLY * (case.mean("mfu_ratio") or 0.0):
        return 1.0
    per_step = finite(engine.rates.tokens_per_step)
    acceptance = case.mean("acceptance_ratio")
    drafted = engine.options.told("draft_tokens")
    if not drafted and per_step and acceptance:
        drafted = (per_step - 1.0) / acceptance
    if not drafted or not per_step:
        return 1.0
    return max(1.0, (1.0 + drafted) / per_step)


def arithmetic_was_full(case: Case) -> bool:
    """Whether the GPUs computed all they could while requests waited, whose lateness is still in the latencies."""
    mfu = while_waiting(case, "mfu_ratio")
    return bool(mfu) and sum(mfu) / len(mfu) >= case.thresholds.compute_queued_mfu_ratio


def arithmetic_filled_minute(case: Case) -> bool:
    """Whether the GPUs computed all they could for half of the last minute and more, as quantiles of that minute show:
    by the tensor cores' activity where it is measured, else by MFU."""
    is_full = [
        tensor >= case.thresholds.compute_tensor_ratio
        for gpu in case.gpus
        for _, tensor in case.recents[gpu.reading.uuid].values("tensor_active_ratio", MINUTE_S)
    ]
    if is_full:
        return sum(is_full) >= MOSTLY * len(is_full)
    return (case.mean("mfu_ratio", MINUTE_S) or 0.0) >= case.thresholds.compute_queued_mfu_ratio


def bandwidth_is_full(case: Case, activity: GpuActivity) -> bool:
    """Whether memory is read as fast as it can be; measured DRAM activity outweighs MBU."""
    limits = case.thresholds
    if activity.dram is not None and activity.dram >= limits.bandwidth_dram_ratio:
        return True
    mbu = case.mean("mbu_ratio")
    if mbu is None or mbu < limits.bandwidth_mbu_ratio:
        return False
    return activity.dram is None or activity.dram >= _LEAST_DRAM_BESIDE_MBU


def queued_share(engine: Engine) -> float | None:
    """Part of the mean time to first token that is spent waiting, 0 to 1; None where one of both is not known."""
    queued_s = finite(engine.latency.queue_s.mean)
    ttft_s = finite(engine.latency.ttft_s.mean)
    if queued_s is None or not ttft_s:
        return None
    return min(queued_s / ttft_s, 1.0)


def moments_of_waiting(case: Case) -> set[float]:
    """Times (monotonic) of the samples of the last minutes at which requests waited."""
    least = case.thresholds.queue_waiting
    return {sampled_s for sampled_s, count in case.recent.values("waiting", KEPT_S) if count >= least}


def while_waiting(case: Case, field: str) -> list[float]:
    """Samples of a figure over the last minutes, of the moments at which requests waited."""
    moments = moments_of_waiting(case)
    return [value for sampled_s, value in case.recent.values(field, KEPT_S) if sampled_s in moments]
