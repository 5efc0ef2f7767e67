"""Steady loads of engines as promtool's input series, and what gpumon's own formulas make of the same rates."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.efficiency import flops, ratio, traffic
from gpumon.efficiency.quantiles import size_biased_mean
from gpumon.outputs.rules import ONE_TWO_FIVE, SGLANG_BOUNDS
from gpumon.readings.frame import HistogramReading
from gpumon.specs.llm import LlmSpec
from gpumon.specs.precision import Precision

STEP_S = 15
STEPS = 60
PEAK, BANDWIDTH = 9.89e14, 3.35e12
PROMPT_BUCKETS = {100.0: 1.0, 500.0: 3.0, 1000.0: 4.0, 5000.0: 5.0}
"""Prompts/s up to a bound of both engines; between them the lower ones' count stands."""


class Load(NamedTuple):
    """Per second, where it is a rate."""

    decode: float = 1200.0
    computed: float = 4000.0
    cached: float = 1000.0
    prompts: float = 5.0
    prompt_mean: float = 900.0
    answer_mean: float = 240.0
    steps: tuple[float, ...] = (25.0,)
    """Of each rank."""
    running: float = 48.0
    waiting: float = 2.0
    """Of each rank."""
    usage: float = 0.25
    pool: float = 400000.0
    accepted_per_draft: float = 0.0
    gpus: int = 8
    ranks: int = 0
    """Those that are told; 0: those on the page."""
    fp8_cache: bool = False


class Expected(NamedTuple):
    """By the pure functions."""

    context: float
    biased: float
    decode_flops: float
    prefill_flops: float
    mfu: float
    mbu: float


def counter(name: str, labels: str, per_s: float) -> str:
    return f"  - {{series: '{name}{{{labels}}}', values: '0+{per_s * STEP_S!r}x{STEPS}'}}"


def gauge(name: str, labels: str, value: float) -> str:
    return f"  - {{series: '{name}{{{labels}}}', values: '{value!r}x{STEPS}'}}"


def histogram(name: str, labels: str, load: Load, bounds: tuple[float, ...], mean: float) -> list[str]:
    lines = []
    for bound in bounds:
        below = max((count for known, count in PROMPT_BUCKETS.items() if known <= bound), default=0.0)
        lines.append(counter(f"{name}_bucket", f'{labels}, le="{bound}"', below))
    lines.append(counter(f"{name}_bucket", f'{labels}, le="+Inf"', load.prompts))
    return [*lines, counter(f"{name}_count", labels, load.prompts), counter(f"{name}_sum", labels, load.prompts * mean)]


def vllm(load: Load, model: str, target: str = 'job="vllm", instance="gpu01:8000"') -> list[str]:
    """The series of one server with a rank for each entry of `steps`, the load shared evenly."""
    ranks = len(load.steps)
    lines = [gauge("process_start_time_seconds", target, 1.0)]
    if load.fp8_cache:
        lines.append(gauge("vllm:cache_config_info", f'{target}, engine="0", cache_dtype="fp8_e4m3"', 1.0))
    for rank, steps in enumerate(load.steps):
        labels = f'{target}, model_name="{model}", engine="{rank}"'
        lines += [
            gauge("vllm:num_requests_running", labels, load.running / ranks),
            gauge("vllm:num_requests_waiting", labels, load.waiting),
            gauge("vllm:kv_cache_usage_perc", labels, load.usage),
            counter("vllm:generation_tokens_total", labels, load.decode / ranks),
            counter("vllm:iteration_tokens_total_count", labels, steps),
            counter("vllm:prompt_tokens_by_source_total", f'{labels}, source="local_compute"', load.computed / ranks),
            counter("vllm:prompt_tokens_by_source_total", f'{labels}, source="local_cache_hit"', load.cached / ranks),
            counter("vllm:prompt_tokens_cached_total", labels, load.cached / ranks),
            counter("vllm:time_to_first_token_seconds_count", labels, load.prompts / ranks),
        ]
        if load.accepted_per_draft:
            drafts = load.decode / ranks / (1.0 + load.accepted_per_draft)
            lines.append(counter("vllm:spec_decode_num_drafts_total", labels, drafts))
            accepted = drafts * load.accepted_per_draft
            lines.append(counter("vllm:spec_decode_num_accepted_tokens_total", labels, accepted))
    labels = f'{target}, model_name="{model}", engine="0"'
    lines += histogram("vllm:request_prompt_tokens", labels, load, ONE_TWO_FIVE[:13], load.prompt_mean)
    return lines + histogram("vllm:request_generation_tokens", labels, load, ONE_TWO_FIVE[:13], load.answer_mean)


def sglang(load: Load, model: str, repeats: int = 2) -> list[str]:
    """One server whose tensor-parallel ranks all report the same."""
    target = f'job="sglang", instance="{model}:30000", model_name="{model}", engine_type="unified"'
    lines = []
    for rank in range(repeats):
        labels = f'{target}, tp_rank="{rank}", pp_rank="0", moe_ep_rank="0"'
        seen = load.usage * load.pool
        lines += [
            gauge("sglang:num_running_reqs", f'{labels}, pid="1{rank}"', load.running),
            gauge("sglang:num_queue_reqs", labels, 2.0),
            gauge("sglang:full_token_usage", labels, load.usage),
            gauge("sglang:decode_sum_seq_lens", labels, seen),
            counter("sglang:realtime_tokens_total", f'{labels}, mode="decode"', load.decode - load.prompts),
            counter("sglang:realtime_tokens_total", f'{labels}, mode="prefill_compute"', load.computed),
            counter("sglang:realtime_tokens_total", f'{labels}, mode="prefill_cache"', load.cached),
            counter("sglang:cuda_graph_passes_total", f'{labels}, mode="decode_full"', load.steps[0]),
        ]
    lines.append(counter("sglang:time_to_first_token_seconds_count", f'{target}, is_streaming="true"', load.prompts))
    lines += histogram("sglang:prompt_tokens_histogram", target, load, SGLANG_BOUNDS[:20], load.prompt_mean)
    return lines + histogram("sglang:generation_tokens_histogram", target, load, SGLANG_BOUNDS[:20], load.answer_mean)


def llamacpp(load: Load, model: str) -> list[str]:
    """One server; its target has the label model_name from the scrape config."""
    labels = f'job="llamacpp", instance="gpu03:8080", model_name="{model}"'
    steps = load.steps[0]
    return [
        gauge("llamacpp:requests_processing", labels, load.running),
        gauge("llamacpp:requests_deferred", labels, 2.0),
        counter("llamacpp:n_decode_total", labels, steps),
        counter("llamacpp:tokens_predicted_total", labels, load.decode),
        counter("llamacpp:prompt_tokens_total", labels, load.computed),
    ]


def dcgm(host: str, gpu: int, busy: float, watts: float) -> list[str]:
    labels = f'job="dcgm", instance="{host}:9400", Hostname="{host}", gpu="{gpu}", UUID="GPU-{host}-{gpu}"'
    labels += ', modelName="NVIDIA H100 80GB HBM3"'
    return [
        gauge("DCGM_FI_PROF_DRAM_ACTIVE", labels, 0.45),
        # The exporter repeats a GPU for each pod that shares it.
        *(gauge("DCGM_FI_DEV_GPU_UTIL", f'{labels}, pod="{pod}"', busy * 100.0) for pod in ("a", "b")),
        counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", labels, watts * 1000.0),
        gauge("DCGM_FI_DEV_FB_USED", labels, 60000.0),
        gauge("DCGM_FI_DEV_FB_FREE", labels, 20000.0),
        gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", labels, 0.3),
    ]


def expected(
    llm: LlmSpec, load: Load, bounds: tuple[float, ...], context: float | None = None, *, apart: bool = False
) -> Expected:
    """The Deriver's formulas on these rates. `apart`: without histograms, `context` is the length of prompts, too."""
    tokens = load.usage * load.pool * len(load.steps) / load.running if context is None else context
    counts = tuple(max((n for known, n in PROMPT_BUCKETS.items() if known <= bound), default=0.0) for bound in bounds)
    seen = HistogramReading(
        (*bounds, float("inf")), (*counts, load.prompts), load.prompts * load.prompt_mean, load.prompts
    )
    biased = tokens if apart else size_biased_mean(seen)
    assert biased is not None
    hit = load.cached / (load.cached + load.computed)
    per_prompt = flops.prefill_flops_per_token(llm, biased * (1 - hit), biased * hit)
    prefill = load.computed * per_prompt + (0.0 if apart else load.prompts * flops.head_flops(llm))
    after_first = load.decode - (0.0 if apart else load.prompts)
    decode = after_first * flops.decode_flops_per_token(llm, tokens)
    group = max(load.steps)
    moved = traffic.step_bytes_per_s(
        llm,
        sum(load.steps),
        load.decode,
        tokens,
        1.0 + load.accepted_per_draft,
        load.gpus // (load.ranks or len(load.steps)),
        Precision.FP8 if load.fp8_cache else None,
        traffic.WeightSharing(group),
    )
    return Expected(
        tokens,
        biased,
        decode,
        prefill,
        ratio.mfu(prefill + decode, load.gpus, PEAK),
        ratio.mbu(moved, load.gpus, BANDWIDTH),
    )
