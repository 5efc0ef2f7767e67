"""Source of each shown figure: the texts behind `sources` of a GPU and of an engine, made once and shared."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from gpumon.efficiency.service import Service
from gpumon.efficiency.tracks import MINUTES_S, QUANTILE_S, RATE_S
from gpumon.figures.engine import GAUGE_OF_FIGURE
from gpumon.figures.gpu import IN_ROWS
from gpumon.figures.latency import LATENCIES_OF_ENGINES
from gpumon.readings import quantities as q
from gpumon.readings.amd import AMDSMI, AMDSMI_FIGURES
from gpumon.readings.dcgm import ENGINE_ACTIVE, FREE_BYTES, NAME_OF, XID
from gpumon.readings.flat import flat_fields
from gpumon.readings.nvml import NVML_FIGURES
from gpumon.readings.smi import SMI, SMI_FIGURES
from gpumon.readings.snapshot import BandwidthSource, Gpu
from gpumon.readings.sysfs import AMDGPU_FIGURES, INTEL_FIGURES, SYSFS
from gpumon.readings.text import clean

_COSTS: Final = {
    "unused_cost": "price per hour x unused time",
    "energy_cost": "energy x price of a kWh, at each reading",
}
_SHOWN: Final = flat_fields(Gpu)
ONLY_OF_AMD: Final = "of AMD's GPUs only"
_CALLS: Final = {
    **{figure.field: figure.source for figure in NVML_FIGURES if figure.field in _SHOWN},
    "state": "return codes of the driver's calls, and field 230 (advised recovery)",
    "busy_ratio": "nvmlDeviceGetUtilizationRates gpu",
    "busy_mean_ratio": "mean of busy over the last hour at most, missing time excluded",
    "memory_busy_ratio": "nvmlDeviceGetUtilizationRates memory: a share of time",
    "sm_active_ratio": "GPM metric 2 (SM_UTIL)",
    "sm_occupancy_ratio": "GPM metric 3 (SM_OCCUPANCY)",
    "tensor_active_ratio": "GPM metric 5 (ANY_TENSOR_UTIL)",
    "activity_age_s": "time since SM, tensor and DRAM activity were measured",
    "vram_reserved_bytes": "nvmlDeviceGetMemoryInfo_v2",
    "cost_per_hour": "[prices] of the config",
    "unused_s": "time in which its engines ran no request and counted none; without an engine, readings with busy = 0",
    **_COSTS,
    "memory_temperature_c": "NVML field 82, each 4 s",
    "compute_capability": "nvmlDeviceGetCudaComputeCapability",
    "throttle": "nvmlDeviceGetCurrentClocksEventReasons, else nvmlDeviceGetCurrentClocksThrottleReasons",
    "throttle_s": "NVML fields 74, 76, 77, 79, 269-271 (cumulative), each 4 s, less what they were when gpumon started",
    "xid": "NVML events since gpumon started",
    **dict.fromkeys(("bad_pages", "bad_pages_pending", "xgmi_links", "xgmi_links_up"), ONLY_OF_AMD),
    **dict.fromkeys(("nvlinks", "nvlinks_active", "nvlinks_down"), "nvmlDeviceGetNvLinkState of each link, each 15 s"),
    "nvlink_errors": "NVML fields 38 + 45 + 52 + 59, of NVLink 5 208 + 211 + 215, each 15 s",
    "pcie_replays": "NVML field 94, each 15 s",
    "pcie_tx_bytes_per_s": "GPM metric 20 (PCIE_TX), else nvmlDeviceGetPcieThroughput while an engine may hang",
    "pcie_rx_bytes_per_s": "GPM metric 21 (PCIE_RX), else nvmlDeviceGetPcieThroughput while an engine may hang",
    "pcie_bytes_per_s": "GPM metrics 20 + 21, else nvmlDeviceGetPcieThroughput while an engine may hang",
    "processes": "nvmlDeviceGet{Compute,Graphics,MPSCompute}RunningProcesses, nvmlDeviceGetProcessUtilization "
    "and /proc, each 4 s",
    "mfu_ratio": "sum of the MFU of its engines",
    "mbu_ratio": "sum of the MBU of its engines",
}
"""Fields of a GPU with one source, on every GPU: what NVML gives as it is, then the others."""
_BANDWIDTH: Final = {
    BandwidthSource.GPM: "measured: GPM metric 10 (DRAM_BW_UTIL) x peak, {0}",
    BandwidthSource.DCGM: "measured: DCGM_FI_PROF_DRAM_ACTIVE x peak, mean of the exporter's {1} s",
    BandwidthSource.ENGINE: "modelled: MBU x peak, a lower bound",
    BandwidthSource.ENGINE_MEAN: "modelled: MBU x peak, the mean over its engines' GPUs",
    BandwidthSource.UPPER_BOUND: "estimated: memory busy x peak, {0}, an upper bound",
    BandwidthSource.NONE: "GPM, DCGM, the engines' MBU or memory busy, each x peak",
}
"""Source of the bandwidth, with two things to put in: what it is a mean of, and the exporter's interval in seconds."""
NEWEST: Final = "the newest reading"
_POWER_OF_ENERGY: Final = "nvmlDeviceGetTotalEnergyConsumption: its increase / time"
_NVLINK_FIELDS: Final = {
    "nvlink_tx_bytes_per_s": "NVML field 138, each 4 s",
    "nvlink_rx_bytes_per_s": "NVML field 139, each 4 s",
    "nvlink_bytes_per_s": "NVML fields 138 + 139, each 4 s",
}
_NVLINK_GPM: Final = {
    "nvlink_tx_bytes_per_s": f"GPM metric 61 (NVLINK_TX), else {_NVLINK_FIELDS['nvlink_tx_bytes_per_s']}",
    "nvlink_rx_bytes_per_s": f"GPM metric 60 (NVLINK_RX), else {_NVLINK_FIELDS['nvlink_rx_bytes_per_s']}",
    "nvlink_bytes_per_s": f"GPM metrics 60 + 61, else {_NVLINK_FIELDS['nvlink_bytes_per_s']}",
}
MEMORY_V2: Final = "nvmlDeviceGetMemoryInfo_v2"
MEMORY_V1: Final = "nvmlDeviceGetMemoryInfo: what the driver reserves counts as used"
MEMORY_OF_HOST: Final = "the host's memory (/proc/meminfo): this GPU has none of its own"
_BY_DCGM: Final = {
    "busy_ratio": f"{NAME_OF['busy_ratio']}, else {NAME_OF[ENGINE_ACTIVE]}",
    "vram_total_bytes": f"{NAME_OF['vram_used_bytes']} + {NAME_OF[FREE_BYTES]} + {NAME_OF['vram_reserved_bytes']}",
    "energy_j": f"{NAME_OF['energy_j']}, since gpumon started",
    "xid": f"changes of {NAME_OF[XID]} since gpumon started",
}
"""Fields of a GPU that only a dcgm-exporter tells of, and that are not one metric as it is."""
_BY_SMI: Final = {
    **{column.field: f"{SMI} --query-gpu={column.name}, each 2 s" for column in SMI_FIGURES},
    **dict.fromkeys(_NVLINK_FIELDS, ""),
    "state": "what nvidia-smi prints of the GPU",
    "compute_capability": f"{SMI} --query-gpu=compute_cap",
    "throttle": f"{SMI} --query-gpu=clocks_event_reasons.active, else clocks_throttle_reasons.active",
    "processes": f"{SMI} --query-compute-apps and /proc of that host, each 10 s",
}
"""Fields of a GPU of a host without gpumon."""
SYSFS_INTEL: Final = "sysfs Intel"
"""Intel's GPUs among those that the kernel's files tell of."""
_AMDSMI_SOURCES: Final = {figure.field: figure.source for figure in AMDSMI_FIGURES if figure.field in _SHOWN}
_SYSFS_STATE: Final = "errors of the kernel's files"
_BY_LIBRARY: Final = {
    AMDSMI: {
        "state": "return codes of the library's calls",
        **_AMDSMI_SOURCES,
        "nvlink_bytes_per_s": _AMDSMI_SOURCES["nvlink_tx_bytes_per_s"],
    },
    SYSFS: {
        "state": _SYSFS_STATE,
        **dict.fromkeys(_NVLINK_FIELDS, ""),
        **{figure.field: figure.source for figure in AMDGPU_FIGURES},
    },
    SYSFS_INTEL: {
        "state": _SYSFS_STATE,
        **dict.fromkeys(_NVLINK_FIELDS, ""),
        **{figure.field: figure.source for figure in INTEL_FIGURES},
    },
}
"""`GpuReading.source` -> fields of a GPU that is read by AMD's library, or by the files of the kernel."""
_NOT_SHOWN: Final = frozenset((ENGINE_ACTIVE, FREE_BYTES, "dram_active_ratio"))
"""Metrics that other figures are made of."""
OTHER_LIBRARIES: Final = frozenset(_BY_LIBRARY)
"""Sources of readings other than NVML."""
_OWN_FORMULAS: Final = (
    *("busy_mean_ratio", "activity_age_s", "mfu_ratio", "mbu_ratio"),
    *("cost_per_hour", "unused_s", "unused_cost", "energy_cost"),
)
"""Fields in `_CALLS` that gpumon works out whatever the GPU is read by."""


class ExporterPart(msgspec.Struct, frozen=True):
    """Part of a dcgm-exporter in the figures of a GPU."""

    fields: tuple[str, ...] = ()
    """Fields of `Gpu` that it measured."""
    interval_s: int = 0
    """Seconds that each of its figures is a mean of."""
    alone: bool = False
    """All of the GPU's figures come from it."""
    smi: bool = False
    """They come from nvidia-smi, without an exporter."""
    reader: str = ""
    """They come from another library than NVML: `AMDSMI`, `SYSFS`, or `SYSFS_INTEL`."""


NO_EXPORTER: Final = ExporterPart()


@lru_cache(maxsize=64)
def gpu_sources(
    *,
    bandwidth: BandwidthSource,
    from_energy: bool,
    has_gpm: bool,
    memory_call: str,
    peak_source: str,
    flops_source: str,
    precision: str,
    achieved_source: str = "",
    window_s: int = round(RATE_S),
    exporter: ExporterPart = NO_EXPORTER,
    bandwidth_is_mean: bool = True,
) -> dict[str, str]:
    """Field of `Gpu` -> its source; one dict for all GPUs and ticks alike: never change it.

    `from_energy`: power comes from the energy counter; `has_gpm`: NVLink may come from GPM; `memory_call` gave the
    VRAM; `peak_source` and `flops_source`: of the peaks of bandwidth and FLOP/s; `precision`: of its engines;
    `achieved_source`: who measured the share of the peak that can be had; `window_s`: length of the means;
    `bandwidth_is_mean`: bandwidth is such a mean, else the newest reading.
    """
    span = f"mean of {window_s} s" if bandwidth_is_mean else NEWEST
    nvlink = _NVLINK_GPM if has_gpm else _NVLINK_FIELDS
    flops_peak = f"dense {precision} peak: {clean(flops_source)}" if precision else ""
    achievable = f"products of large matrices in {precision}: {achieved_source}" if achieved_source else ""
    sources = {
        **_CALLS,
        "bandwidth_bytes_per_s": _BANDWIDTH[bandwidth].format(span, exporter.interval_s),
        **{field: f"{row.name}, {span}" for field, row in IN_ROWS.items()},
        "bandwidth_peak_bytes_per_s": clean(peak_source),
        "flops_peak_per_s": flops_peak,
        "achievable_ratio": achievable,
        "vram_used_bytes": memory_call,
        "vram_total_bytes": memory_call,
        "tokens_per_j": f"decode tokens/s of its engines, each divided by its GPUs / power, mean of {window_s} s",
        **nvlink,
    }
    if from_energy:
        sources["power_w"] = _POWER_OF_ENERGY
    if exporter.alone:
        sources = _without_calls(sources) | _exporter_sources(from_energy, exporter.interval_s)
    if exporter.smi:
        sources = _without_calls(sources) | _BY_SMI
    if exporter.reader:
        sources = _without_calls(sources) | _BY_LIBRARY[exporter.reader]
    return sources | _measured_by(exporter)


def _without_calls(sources: dict[str, str]) -> dict[str, str]:
    """The sources that are formulas: a GPU that the driver does not tell of has no others."""
    return {field: text for field, text in sources.items() if field in _OWN_FORMULAS or field not in _CALLS}


def _measured_by(exporter: ExporterPart) -> dict[str, str]:
    """The sources of the figures that a dcgm-exporter measured."""
    mean = f"mean of the exporter's {exporter.interval_s} s"
    sources = {field: f"{NAME_OF[field]}, {mean}" for field in exporter.fields if field not in _NOT_SHOWN}
    for link in ("pcie", "nvlink"):
        sent = f"{link}_tx_bytes_per_s"
        received = f"{link}_rx_bytes_per_s"
        if sent in exporter.fields and received in exporter.fields:
            sources[f"{link}_bytes_per_s"] = f"{NAME_OF[sent]} + {NAME_OF[received]}"
    return sources


def _exporter_sources(from_energy: bool, interval_s: int) -> dict[str, str]:
    """The sources of a GPU that only a dcgm-exporter tells of."""
    sources = {
        field: f"{name}, each {interval_s} s" for field, name in (NAME_OF | _BY_DCGM).items() if field not in _NOT_SHOWN
    }
    if from_energy:
        sources["power_w"] = f"increase of {NAME_OF['energy_j']} / time"
    return sources | dict.fromkeys(_NVLINK_FIELDS, "")


_FORMULAS: Final = {
    "active_params": "N_mm: what one token is multiplied with, LM head included, embedding look-up not",
    "prefill_flops_per_s": "prefill tokens/s x (2 x (N_mm - LM head) + attention over cached + new/2) "
    "+ prompts/s x 2 x LM head",
    "flops_per_decode_token": "2 x N_mm + attention over the context",
    "decode_flops_per_s": "(decode tokens/s - first tokens/s) x FLOPs per decode token",
    "flops_per_s": "prefill FLOP/s + decode FLOP/s",
    "mfu_prefill_ratio": "prefill FLOP/s / peak FLOP/s of its GPUs",
    "mfu_decode_ratio": "decode FLOP/s / peak FLOP/s of its GPUs",
    "mfu_ratio": "(prefill FLOPs + decode FLOPs) / (GPUs x dense peak)",
    "weight_bytes": "matmul weights once per step; of a MoE the expected distinct experts of the batch",
    "weight_bytes_per_s": "steps/s x weights of a step",
    "kv_bytes_per_token": "attention layers x KV elements per token x bytes of the KV precision",
    "kv_bytes_per_s": "decode tokens/s / tokens per step and sequence x KV of the context",
    "bytes_per_s": "weights/s + KV/s",
    "mbu_ratio": "(steps/s x weights + decode tokens/s / tokens per step and sequence x KV of the context) "
    "/ (GPUs x peak bandwidth)",
    "mbu_single_stream_ratio": "parameters x bytes each x tokens/s / peak bandwidth: exact for one stream only",
    "flops_per_j": "FLOP/s, prefill of {0.prefill} s and decode of {0.rate} s / power of {0.rate} s",
}
"""Derived figures of an engine that generates, whose model is known; `Spans` to put in."""
_ENCODER_FORMULAS: Final = {
    "active_params": _FORMULAS["active_params"],
    "prefill_flops_per_s": "prefill tokens/s x (2 x (N_mm - LM head) + attention over the whole text)",
    "flops_per_s": "prefill FLOP/s",
    "mfu_prefill_ratio": _FORMULAS["mfu_prefill_ratio"],
    "mfu_ratio": "prefill FLOPs / (GPUs x dense peak)",
    "flops_per_j": "FLOP/s of {0.prefill} s / power of {0.rate} s",
}
_TRAINING_FORMULAS: Final = {
    "flops_per_s": "trained tokens/s x FLOPs per token, forward and backward",
    "mfu_ratio": "trained FLOPs / (GPUs x dense peak)",
    "flops_per_j": "FLOP/s between whole steps / power of {0.rate} s",
    "tokens_per_j": "trained tokens/s / power",
}
_FORMULAS_OF_SERVICE: Final = {
    Service.GENERATION: _FORMULAS,
    Service.ENCODING: _ENCODER_FORMULAS,
    Service.TRAINING: _TRAINING_FORMULAS,
}
_WITHOUT_MODEL: Final = {
    "batch": "decode tokens/s / steps/s / tokens per step and sequence",
    "power_w": "sum over its GPUs, mean of {0.rate} s as the token rates are: the driver's watts, else the increase of "
    "the energy counter / time",
    "tokens_per_j": "decode tokens/s / power",
    "cost_per_hour": "sum over its GPUs, [prices] of the config",
    "cost_per_million_output_tokens": "price per hour / (decode tokens/s x 3600) x 1e6",
    "cost_per_million_all_tokens": "price per hour / ((prefill + cached + decode tokens/s) x 3600) x 1e6",
    "unused_s": "time in which no request ran and none was counted",
    "energy_j": "sum over its GPUs, increase of the energy counters",
    **_COSTS,
}
"""Derived figures of every engine; `Spans` to put in."""
_FROM_METRICS: Final = {
    "decode_mean_tokens_per_s": (q.DECODE_TOKENS, "mean of the last 10 min at most"),
    **{field: (quantity, "") for field, quantity in GAUGE_OF_FIGURE.items()},
    **{latency.field: (latency.quantity, "buckets of the last {0.quantile} s") for latency in LATENCIES_OF_ENGINES},
    "ttft_goal": (q.TTFT, "buckets of the last {0.minutes} s"),
    "itl_goal": (q.ITL, "buckets of the last {0.minutes} s"),
    "tpot_goal": (q.TPOT, "buckets of the last {0.minutes} s"),
    "outcomes": (q.REQUESTS, "by reason, over {0.minutes} s"),
    "prompt_tokens": (q.PROMPT_LENGTH, "buckets of the last {0.minutes} s"),
    "answer_tokens": (q.OUTPUT_LENGTH, "buckets of the last {0.minutes} s"),
    "phases": (q.E2E, "and the times of its parts, mean of {0.minutes} s"),
    "accepted_by_position": (q.ACCEPTED_AT[0], "of all positions / drafts, over {0.minutes} s"),
    "cached_by": (q.CACHED_DEVICE, "and of the other sources, over {0.minutes} s"),
    "running_mean": (q.RUNNING, "mean of {0.rate} s"),
    "prompt_tokens_mean": (q.PROMPT_LENGTH, "sum / count over {0.quantile} s"),
    "answer_tokens_mean": (q.OUTPUT_LENGTH, "sum / count over {0.quantile} s"),
    "cached_ratio": (q.PREFILL_CACHED, "/ all prompt tokens, over {0.quantile} s"),
    "aborted_tokens_mean": (q.ABORTS, "midway, by tokens that belong to no answer that ended, over {0.minutes} s"),
    "preemptions_mean": (q.REQUEST_PREEMPTIONS, "sum / count over {0.quantile} s"),
    "expert_balance_ratio": (q.EXPERT_BALANCE, "sum / count over {0.quantile} s"),
    "rank_imbalance": (q.RANK_IMBALANCE, "sum / count over {0.quantile} s"),
    "scheduler_idle_ratio": (q.SCHEDULER_IDLE_S, "per second, over {0.quantile} s"),
    "forward_ratio": (q.FORWARD_S, "per second, over {0.quantile} s"),
    "kv_usage_ratio": (q.KV_USAGE, ""),
    "kv_pool_tokens": (q.POOL_TOKENS, ""),
    "aborts_per_s": (q.ABORTS, "over {0.rate} s"),
    "own_flops": (q.OWN_FLOPS, "over {0.prefill} s, mean of the ranks x GPUs"),
    "own_read_bytes": (q.OWN_READ_BYTES, "over {0.rate} s, mean of the ranks x GPUs"),
    "own_write_bytes": (q.OWN_WRITE_BYTES, "over {0.rate} s, mean of the ranks x GPUs"),
    "own_weight_bytes": (q.OWN_WEIGHT_BYTES, "of one GPU"),
    "own_kv_bytes": (q.OWN_KV_BYTES, "of one GPU"),
    "own_graph_bytes": (q.OWN_GRAPH_BYTES, "of one GPU, all phases"),
    "host_kv_usage_ratio": (q.HOST_KV_USAGE, ""),
    "prefill_token_s": (q.PREFILL_SECONDS, "/ computed tokens, over {0.quantile} s"),
}
"""Field -> the quantity that it is read from, and how and over which window, with the `Spans` to put in."""


class Spans(msgspec.Struct, frozen=True):
    """Lengths of the windows of an engine's figures, in seconds."""

    rate: int = round(RATE_S)
    prefill: int = round(RATE_S)
    quantile: int = round(QUANTILE_S)
    minutes: int = round(MINUTES_S)


@lru_cache(maxsize=64)  # 18 kB each, and windows that grow make others each second
def engine_sources(
    live: tuple[tuple[str, str], ...],
    spans_s: Spans,
    given: tuple[tuple[str, str], ...],
    precision: str,
    peak_sources: tuple[str, str],
    formulas: Service | None,
) -> dict[str, str]:
    """Field of `Engine` -> its source; shared between ticks: never change it.

    `live` are the metrics by quantity, `given` the fields whose text the caller has; `precision` is empty without a
    FLOP/s peak; `peak_sources` are those of the FLOP/s and of the bandwidth, empty where nothing tells them;
    `formulas`: what the engine does, None where its model is not known.
    """
    named = {field: clean(text) for field, text in given}
    named |= _window_sources(live, spans_s, formulas)
    if precision:
        named["peak_flops_per_s"] = clean(f"dense {precision} peak, sum over its GPUs: {peak_sources[0]}")
    if peak_sources[1]:
        named["peak_bandwidth_bytes_per_s"] = clean(f"sum over its GPUs: {peak_sources[1]}")
    return {field: text for field, text in named.items() if text}


@lru_cache(maxsize=64)
def _window_sources(live: tuple[tuple[str, str], ...], spans_s: Spans, formulas: Service | None) -> Mapping[str, str]:
    """Field -> its source, of those that only metrics and windows decide: windows grow for some minutes, and engines of
    one kind have the same."""
    metrics = dict(live)
    named = {
        field: clean(f"{metrics[quantity]} {window.format(spans_s)}".rstrip())
        for field, (quantity, window) in _FROM_METRICS.items()
        if metrics.get(quantity)
    }
    derived = dict(_WITHOUT_MODEL)
    if formulas is not None:
        derived |= _FORMULAS_OF_SERVICE.get(formulas, {})
    for field, text in derived.items():
        named[field] = clean(text.format(spans_s))
    return named
