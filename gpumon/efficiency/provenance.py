"""Where each shown figure comes from: the texts behind `sources` of a GPU and of an engine, made once and shared."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from gpumon.efficiency.engine import QUANTILE_S, RATE_S
from gpumon.readings.quantities import (
    DECODE_TOKENS,
    E2E,
    ITL,
    KV_USAGE,
    POOL_TOKENS,
    PREEMPTIONS,
    PREFILL_CACHED,
    PREFILL_COMPUTED,
    QUEUE,
    REQUESTS,
    RUNNING,
    TTFT,
    WAITING,
)
from gpumon.readings.snapshot import BandwidthSource
from gpumon.readings.text import clean

_CALLS: Final = {
    "state": "return codes of the driver's calls, and field 230 (advised recovery)",
    "busy_ratio": "nvmlDeviceGetUtilizationRates gpu",
    "busy_mean_ratio": "mean of busy over the last hour at most, missing time excluded",
    "memory_busy_ratio": "nvmlDeviceGetUtilizationRates memory: a share of time",
    "sm_active_ratio": "GPM metric 2 (SM_UTIL)",
    "sm_occupancy_ratio": "GPM metric 3 (SM_OCCUPANCY)",
    "tensor_active_ratio": "GPM metric 5 (ANY_TENSOR_UTIL)",
    "vram_used_bytes": "nvmlDeviceGetMemoryInfo",
    "vram_total_bytes": "nvmlDeviceGetMemoryInfo",
    "vram_reserved_bytes": "nvmlDeviceGetMemoryInfo_v2",
    "power_limit_w": "nvmlDeviceGetEnforcedPowerLimit, each minute",
    "energy_j": "nvmlDeviceGetTotalEnergyConsumption, since gpumon started",
    "temperature_c": "nvmlDeviceGetTemperatureV",
    "memory_temperature_c": "NVML field 82, each 4 s",
    "sm_clock_hz": "nvmlDeviceGetClockInfo SM",
    "sm_clock_max_hz": "nvmlDeviceGetMaxClockInfo SM, each minute",
    "memory_clock_hz": "nvmlDeviceGetClockInfo MEM",
    "memory_clock_max_hz": "nvmlDeviceGetMaxClockInfo MEM, each minute",
    "compute_capability": "nvmlDeviceGetCudaComputeCapability",
    "throttle": "nvmlDeviceGetCurrentClocksEventReasons",
    "throttle_s": "NVML fields 74, 76-79, 269-271 (cumulative), each 4 s, less what they were when gpumon started",
    "xid": "NVML events since gpumon started",
    "ecc_uncorrected": "nvmlDeviceGetTotalEccErrors uncorrected, since the driver was loaded, each minute",
    "ecc_corrected": "nvmlDeviceGetTotalEccErrors corrected, since the driver was loaded, each minute",
    "remap_pending": "nvmlDeviceGetRemappedRows, each minute",
    "remap_failed": "nvmlDeviceGetRemappedRows, each minute",
    "pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration, each 4 s: idle GPUs train the link down",
    "pcie_generation_max": "nvmlDeviceGetMaxPcieLinkGeneration, each minute",
    "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth, each 4 s",
    "pcie_width_max": "nvmlDeviceGetMaxPcieLinkWidth, each minute",
    "pcie_tx_bytes_per_s": "GPM metric 20 (PCIE_TX)",
    "pcie_rx_bytes_per_s": "GPM metric 21 (PCIE_RX)",
    "pcie_bytes_per_s": "GPM metrics 20 + 21",
    "processes": "nvmlDeviceGet{Compute,Graphics,MPSCompute}RunningProcesses, nvmlDeviceGetProcessUtilization "
    "and /proc, each 4 s",
    "mfu_ratio": "sum of the MFU of its engines",
    "mbu_ratio": "sum of the MBU of its engines",
    "tokens_per_j": "decode tokens/s of its engines, each divided by its GPUs / power",
}
"""Fields of a GPU with one source, on every GPU."""
_BANDWIDTH: Final = {
    BandwidthSource.GPM: f"measured: GPM metric 10 (DRAM_BW_UTIL) x peak, mean of {RATE_S:.0f} s",
    BandwidthSource.DCGM: f"measured: DCGM DRAM active x peak, mean of {RATE_S:.0f} s",
    BandwidthSource.ENGINE: "modelled: MBU x peak, a lower bound",
    BandwidthSource.UPPER_BOUND: f"estimated: memory busy x peak, mean of {RATE_S:.0f} s, an upper bound",
    BandwidthSource.NONE: "GPM, DCGM, the engines' MBU or memory busy, each x peak",
}
_POWER: Final = {
    True: "slope of nvmlDeviceGetTotalEnergyConsumption",
    False: "nvmlDeviceGetPowerUsage",
}
_NVLINK: Final = {
    True: ("GPM metric 61 (NVLINK_TX)", "GPM metric 60 (NVLINK_RX)", "GPM metrics 60 + 61"),
    False: ("NVML field 138, each 4 s", "NVML field 139, each 4 s", "NVML fields 138 + 139, each 4 s"),
}


@lru_cache(maxsize=64)
def gpu_sources(
    bandwidth: BandwidthSource, from_energy: bool, has_gpm: bool, peak_source: str, flops_source: str, precision: str
) -> dict[str, str]:
    """Field of `Gpu` -> its source; one dict for all GPUs and ticks alike: never change it.

    `from_energy`: power is the energy counter's slope; `has_gpm`: NVLink comes from GPM; `peak_source` and
    `flops_source`: of the peaks of bandwidth and FLOP/s; `precision`: of its engines.
    """
    tx, rx, both = _NVLINK[has_gpm]
    return {
        **_CALLS,
        "bandwidth_bytes_per_s": _BANDWIDTH[bandwidth],
        "bandwidth_peak_bytes_per_s": clean(peak_source),
        "flops_peak_per_s": f"dense {precision} peak: {clean(flops_source)}" if precision else "",
        "power_w": _POWER[from_energy],
        "nvlink_tx_bytes_per_s": tx,
        "nvlink_rx_bytes_per_s": rx,
        "nvlink_bytes_per_s": both,
    }


_FORMULAS: Final = {
    "batch": "decode tokens/s / steps/s / tokens per step and sequence",
    "active_params": "N_mm: what one token is multiplied with, LM head included, embedding look-up not",
    "prefill_flops_per_s": "prefill tokens/s x (2 x (N_mm - LM head) + attention over cached + new/2) "
    "+ prompts/s x LM head",
    "flops_per_decode_token": "2 x N_mm + attention over the context",
    "decode_flops_per_s": "decode tokens/s x FLOPs per decode token",
    "flops_per_s": "prefill FLOP/s + decode FLOP/s",
    "mfu_prefill_ratio": "prefill FLOP/s / peak FLOP/s of its GPUs",
    "mfu_decode_ratio": "decode FLOP/s / peak FLOP/s of its GPUs",
    "mfu_ratio": "(prefill FLOPs + decode FLOPs) / (GPUs x dense peak)",
    "weight_bytes": "matmul weights once per step; of a MoE the expected distinct experts of the batch",
    "weight_bytes_per_s": "steps/s x weights of a step",
    "kv_bytes_per_token": "attention layers x KV elements per token x bytes of the KV precision",
    "kv_bytes_per_s": "sequences x steps/s x KV of the context",
    "bytes_per_s": "weights/s + KV/s",
    "mbu_ratio": "(steps/s x weights + tokens/s x KV) / (GPUs x peak bandwidth)",
    "mbu_single_stream_ratio": "parameters x bytes each x tokens/s / peak bandwidth: exact for one stream only",
}
"""Derived figures of an engine whose model is known."""
_COUNTED: Final = {
    "requests_per_s": (REQUESTS, f"over {RATE_S:.0f} s"),
    "preemptions_per_s": (PREEMPTIONS, f"over {RATE_S:.0f} s"),
    "decode_tokens_per_s": (DECODE_TOKENS, f"over {RATE_S:.0f} s"),
    "ttft_s": (TTFT, f"buckets of the last {QUANTILE_S:.0f} s"),
    "itl_s": (ITL, f"buckets of the last {QUANTILE_S:.0f} s"),
    "queue_s": (QUEUE, f"buckets of the last {QUANTILE_S:.0f} s"),
    "e2e_s": (E2E, f"buckets of the last {QUANTILE_S:.0f} s"),
    "running": (RUNNING, ""),
    "waiting": (WAITING, ""),
    "kv_usage_ratio": (KV_USAGE, ""),
    "kv_pool_tokens": (POOL_TOKENS, ""),
}
"""Field -> the quantity that it is read from, and how."""


@lru_cache(maxsize=64)
def engine_sources(
    live: tuple[tuple[str, str], ...],
    prefill_s: float,
    known: tuple[tuple[str, str], ...],
    precision: str,
    peak_sources: tuple[str, str],
) -> dict[str, str]:
    """Field of `Engine` -> its source; shared between ticks: never change it.

    `live` are the metrics by quantity, `known` fields whose text the caller has; `precision` is empty where MFU and
    MBU are not to be had at all; `peak_sources` are those of the FLOP/s and of the bandwidth.
    """
    metrics = dict(live)
    smoothed = f"over {prefill_s:.0f} s, smoothed: a whole prompt is booked at its first token"
    counted = {
        **_COUNTED,
        "prefill_tokens_per_s": (PREFILL_COMPUTED, smoothed),
        "cached_tokens_per_s": (PREFILL_CACHED, smoothed),
    }
    named = dict(known)
    named.update((field, f"{metrics[of]} {how}".rstrip()) for field, (of, how) in counted.items() if metrics.get(of))
    if precision:
        named.update(
            _FORMULAS,
            peak_flops_per_s=f"dense {precision} peak, sum over its GPUs: {peak_sources[0]}",
            peak_bandwidth_bytes_per_s=f"sum over its GPUs: {peak_sources[1]}",
            power_w="sum over its GPUs",
            tokens_per_j="decode tokens/s / power",
            flops_per_j="FLOP/s / power",
        )
    return {field: clean(text) for field, text in named.items() if text}
