"""Things of which everything is known, and their detail pages without an application around them."""

from __future__ import annotations

from gpumon.config.schema import Config
from gpumon.config.themes import load_theme
from gpumon.readings.format import cells
from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Gpu, Quantiles, Snapshot, TokensTotal
from gpumon.tui.pages.detail import DetailPage
from gpumon.tui.palette import Palette
from gpumon.tui.terminal import Depth
from gpumon.tui.view import View
from tests.records import replace
from tests.tui import scenes

VIEW = View(Config())
NOW_S = scenes.WALL_S
PEAK_SOURCE = "catalogue; bandwidth: the driver's max memory clock x 2 x bus width / 8"

# A 70B model in FP8 on four H100, worked out by hand: 2 x 69.5e9 + 4 x 64 x 128 x 80 x 3000 FLOPs per decode token.
TOKEN_FLOPS = 2 * 69.5e9 + 4 * 64 * 128 * 80 * 3000
DECODE, STEPS, BATCH, CONTEXT = 1600.0, 50.0, 32.0, 3000.0
PREFILL_FLOPS, DECODE_FLOPS = 8000.0 * 142e9, DECODE * TOKEN_FLOPS
WEIGHTS, KV = STEPS * 70.55e9, BATCH * STEPS * CONTEXT * 327680.0
FLOPS_PEAK, BYTES_PEAK = 4 * 1978.9e12, 4 * 3.352e12
POWER = 1800.0
SMOOTHED = "over 10 s, smoothed: a whole prompt is booked at its first token"
ENGINE_SOURCES = {
    "steps_per_s": "vllm:iteration_tokens_total_count over 10 s",
    "context_tokens": "KV tokens in use / running",
    "decode_tokens_per_s": "vllm:generation_tokens_total over 10 s",
    "prefill_tokens_per_s": f'vllm:prompt_tokens_by_source_total{{source="local_compute"}} {SMOOTHED}',
    "cached_tokens_per_s": f"vllm:prompt_tokens_cached_total {SMOOTHED}",
    "requests_per_s": "vllm:request_success_total over 10 s",
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_usage_ratio": "vllm:kv_cache_usage_perc",
    "kv_pool_tokens": "vllm:cache_config_info kv_cache_size_tokens",
    "ttft_s": "vllm:time_to_first_token_seconds buckets of the last 60 s",
    "itl_s": "vllm:inter_token_latency_seconds buckets of the last 60 s",
    "batch": "decode tokens/s / steps/s / tokens per step and sequence",
    "mfu_ratio": "(prefill FLOPs + decode FLOPs) / (GPUs x dense peak)",
    "mbu_ratio": "(steps/s x weights + tokens/s x KV) / (GPUs x peak bandwidth)",
    "mbu_single_stream_ratio": "parameters x bytes each x tokens/s / peak bandwidth: exact for one stream only",
    "peak_flops_per_s": "dense fp8 peak, sum over its GPUs: catalogue",
    "power_w": "sum over its GPUs",
}
GPU_SOURCES = {
    "busy_ratio": "nvmlDeviceGetUtilizationRates gpu",
    "sm_active_ratio": "GPM metric 2 (SM_UTIL)",
    "bandwidth_bytes_per_s": "measured: GPM metric 10 (DRAM_BW_UTIL) x peak, mean of 10 s",
    "power_w": "slope of nvmlDeviceGetTotalEnergyConsumption",
    "throttle_s": "NVML fields 74, 76, 77, 79, 269-271 (cumulative), each 4 s, less what they were when gpumon started",
    "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth, each 4 s",
    "ecc_corrected": "nvmlDeviceGetTotalEccErrors corrected, since the driver was loaded, each minute",
    "mfu_ratio": "sum of the MFU of its engines",
}


def full_engine(**changed: object) -> Engine:
    """An engine of which everything is known, with figures that fit each other."""
    values_ = scenes.engine(0)
    full = replace(
        values_,
        model_source="catalogue row Llama-3.3-70B",
        gpus_source="process",
        since="2025-10-09T08:50:22.000Z",
        running=32.0,
        decode_tokens_per_s=DECODE,
        prefill_tokens_per_s=8000.0,
        steps_per_s=STEPS,
        context_tokens=CONTEXT,
        batch=BATCH,
        preemptions_per_s=0.0,
        gpu_count=4.0,
        params=70.55e9,
        active_params=69.5e9,
        layers=80.0,
        weight_precision="fp8",
        kv_precision="bf16",
        precision="fp8",
        power_w=POWER,
        flops_per_decode_token=TOKEN_FLOPS,
        prefill_flops_per_s=PREFILL_FLOPS,
        decode_flops_per_s=DECODE_FLOPS,
        flops_per_s=PREFILL_FLOPS + DECODE_FLOPS,
        peak_flops_per_s=FLOPS_PEAK,
        mfu_prefill_ratio=PREFILL_FLOPS / FLOPS_PEAK,
        mfu_decode_ratio=DECODE_FLOPS / FLOPS_PEAK,
        mfu_ratio=(PREFILL_FLOPS + DECODE_FLOPS) / FLOPS_PEAK,
        weight_bytes=70.55e9,
        kv_bytes_per_token=327680.0,
        weight_bytes_per_s=WEIGHTS,
        kv_bytes_per_s=KV,
        bytes_per_s=WEIGHTS + KV,
        peak_bandwidth_bytes_per_s=BYTES_PEAK,
        mbu_ratio=(WEIGHTS + KV) / BYTES_PEAK,
        mbu_single_stream_ratio=70.55e9 * DECODE / BYTES_PEAK,
        tokens_per_j=DECODE / POWER,
        flops_per_j=(PREFILL_FLOPS + DECODE_FLOPS) / POWER,
        kv_pool_tokens=647168.0,
        ttft_s=Quantiles(0.14, 0.21, 0.4, 0.15, 0.1, 0.25, 0.001, 0.1, 0.25, 0.25, 0.5, 0.19),
        itl_s=Quantiles(0.021, 0.04, 0.06, 0.022, 0.025, 0.05, 0.01, 0.01, 0.025, 0.05, 0.075, 0.03),
        queue_s=Quantiles(0.1, 0.2, 0.29, 0.05, 0.0, 0.3, 0.3, 0.0, 0.3, 0.0, 0.3, 0.2),
        e2e_s=Quantiles(6.0, 25.0, 40.0, 8.0, 20.0, 30.0, 0.3, 5.0, 10.0, 40.0, Missing(Reason.INVALID), 20.0),
        tokens_total=TokensTotal(123456.0, 45678.0, 98765.0),
        sources=ENGINE_SOURCES,
    )
    return replace(full, **changed)


def full_gpu(index: int = 0, **changed: object) -> Gpu:
    """A GPU of which everything is known."""
    worker = GpuProcess(
        4242 + index,
        "VLLM::Worker_TP0",
        "ai",
        70e9,
        "3f2a91",
        engine="vllm:8000",
        command="vllm serve meta-llama/Llama-3.3-70B",
        sm_ratio=0.97,
    )
    full = replace(
        scenes.gpu(index),
        mfu_ratio=(PREFILL_FLOPS + DECODE_FLOPS) / FLOPS_PEAK,
        mbu_ratio=(WEIGHTS + KV) / BYTES_PEAK,
        memory_temperature_c=71.0,
        sm_occupancy_ratio=0.24,
        memory_busy_ratio=0.58,
        busy_mean_ratio=0.9,
        energy_j=1.25e6,
        sm_clock_max_hz=1.98e9,
        memory_clock_hz=2.619e9,
        memory_clock_max_hz=2.619e9,
        vram_reserved_bytes=0.55 * scenes.GIB,
        flops_peak_per_s=1978.9e12,
        flops_peak_precision="fp8",
        peak_source=PEAK_SOURCE,
        pcie_tx_bytes_per_s=3.0e6,
        pcie_rx_bytes_per_s=8.0e6,
        nvlink_tx_bytes_per_s=46e9,
        nvlink_rx_bytes_per_s=46e9,
        pcie_generation=1.0,
        pcie_generation_max=5.0,
        pcie_width=8.0,
        pcie_width_max=16.0,
        ecc_corrected=2.0,
        ecc_uncorrected=0.0,
        remap_pending=0.0,
        remap_failed=0.0,
        persistence_mode=1.0,
        ecc_mode=1.0,
        throttle=("sw_power_cap",),
        throttle_s={"sw_power_cap": 12.5, "hw_thermal_slowdown": 0.0},
        processes=(worker,),
        compute_capability="9.0",
        sources=GPU_SOURCES,
    )
    return replace(full, **changed)


def full_snapshot(**changed: object) -> Snapshot:
    """Four GPUs and an engine on them."""
    made = replace(scenes.snapshot(0, 0), gpus=tuple(full_gpu(index) for index in range(4)), engines=(full_engine(),))
    return replace(made, **changed)


def page_of(snapshot: Snapshot, kind: str, key: str) -> DetailPage:
    """The page of a thing, unfolded, without an application around it."""
    page = DetailPage(Palette(load_theme("default"), Depth.TRUE), VIEW)
    page.show(snapshot)
    page.look_at((kind, key))
    page.toggle_fold()
    return page


def whole(page: DetailPage, width: int) -> list[str]:
    """The title, and all lines."""
    rows = [*page.head(width), *page.body(width, 20)]
    assert all(sum(cells(text) for text, _ in row) <= width for row in rows)
    return [page.title(), *("".join(text for text, _ in row).rstrip() for row in rows)]


def flat(page: DetailPage, width: int = 120) -> str:
    """All lines as one text with single blanks."""
    return " ".join(" ".join(whole(page, width)).split())


def things(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Keys of all that has a page."""
    found = [("gpu", gpu.reading.uuid) for gpu in snapshot.gpus] + [
        ("engine", engine.url) for engine in snapshot.engines
    ]
    return found + [("process", str(each.pid)) for gpu in snapshot.gpus for each in gpu.reading.processes]
