"""The table of exported metrics: which field of a snapshot stands under which name, with unit and help. Numbers and
codes, no sentences. `outputs.samples` reads it forwards, `sources.prometheus.own` backwards."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

PREFIX: Final = "gpumon_"
_UNITS: Final = (
    "bytes_per_second",
    "flops_per_second",
    "seconds",
    "bytes",
    "watts",
    "joules",
    "celsius",
    "hertz",
    "ratio",
)
"""Base units that a name may end with, as OpenMetrics names them."""


class ExportedSample(NamedTuple):
    """One series at one moment."""

    name: str
    """As it stands on the wire: with `_total` or `_info`."""
    labels: dict[str, str]
    value: float


class ExportedMetric(msgspec.Struct, frozen=True):
    """One family of series."""

    name: str
    """Without `_total` and `_info`."""
    kind: str
    """gauge, counter, info, histogram, or summary (of its quantiles alone)."""
    unit: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def sample(self) -> str:
        """The name on the wire."""
        return self.name + {"counter": "_total", "info": "_info"}.get(self.kind, "")

    @property
    def samples(self) -> tuple[str, ...]:
        """All names on the wire: a histogram has three."""
        if self.kind == "histogram":
            return (f"{self.name}_bucket", f"{self.name}_count", f"{self.name}_sum")
        return (self.sample,)


class Field(NamedTuple):
    """One field of a snapshot's object and its series."""

    path: str
    """Attribute, with a dot for one of an object in it: `ttft_s.p95`."""
    sample: str
    """Name on the wire, without `PREFIX`."""
    help: str = ""
    """Empty where a field before it has the same name."""
    fixed: Mapping[str, str] = MappingProxyType({})
    """Labels with the same value at all times, which tell it from other fields of that name."""
    zero_is_unknown: bool = False
    """Whether it is an int whose 0 says that it is not known."""


HOST_TEXTS: Final = {"name": "name", "driver": "driver", "cuda": "cuda"}
"""Label of `gpumon_host_info` -> field."""
GPU_LABELS: Final = ("gpu", "uuid")
"""Labels of the series of a GPU."""
GPU: Final = (
    Field("busy_ratio", "gpu_busy_ratio", "Share of time in which some kernel ran (NVML utilization.gpu)."),
    Field("busy_mean_ratio", "gpu_busy_mean_ratio", "Mean of gpumon_gpu_busy_ratio since gpumon started, 1 h at most."),
    Field("busy_window_ratio", "gpu_window_ratio", "As rows show it: mean of the window of MBU.", {"of": "busy"}),
    Field("sm_active_window_ratio", "gpu_window_ratio", "", {"of": "sm_active"}),
    Field("tensor_active_window_ratio", "gpu_window_ratio", "", {"of": "tensor_active"}),
    Field("power_window_w", "gpu_window_power_watts", "Power, mean of the window of MBU."),
    Field("sm_active_ratio", "gpu_sm_active_ratio", "Share of time in which the SMs had a warp."),
    Field("sm_occupancy_ratio", "gpu_sm_occupancy_ratio", "Resident warps / the most that fit."),
    Field("tensor_active_ratio", "gpu_tensor_active_ratio", "Share of time in which the tensor cores worked."),
    Field("memory_busy_ratio", "gpu_memory_busy_ratio", "Share of time in which memory was accessed; no bandwidth."),
    Field("vram_used_bytes", "gpu_memory_used_bytes", "Memory that processes hold."),
    Field("vram_total_bytes", "gpu_memory_size_bytes", "Memory of the GPU."),
    Field("vram_reserved_bytes", "gpu_memory_reserved_bytes", "Memory that the driver itself holds."),
    Field("bandwidth_bytes_per_s", "gpu_memory_bandwidth_bytes_per_second", "Memory read and written."),
    Field(
        "bandwidth_peak_bytes_per_s", "gpu_memory_bandwidth_peak_bytes_per_second", "Peak of the memory's bandwidth."
    ),
    Field("flops_peak_per_s", "gpu_peak_flops_per_second", "Dense peak at the precision of its engines."),
    Field("achievable_ratio", "gpu_achievable_ratio", "Share of its dense peak that large matrix products reached."),
    Field("mfu_ratio", "gpu_mfu_ratio", "Model FLOPs utilization: FLOP/s of its engines' models / its peak."),
    Field("mbu_ratio", "gpu_mbu_ratio", "Model bandwidth utilization: bytes that its engines' models need / its peak."),
    Field("power_w", "gpu_power_watts", "Power of the last second."),
    Field("power_limit_w", "gpu_power_limit_watts", "Power limit in force."),
    Field("power_default_w", "gpu_power_default_watts", "Power limit that the card has from its maker."),
    Field("energy_j", "gpu_energy_joules_total", "Energy since gpumon started."),
    Field("cost_per_hour", "gpu_cost_per_hour", "Price of an hour of the GPU, in the currency of the config."),
    Field(
        "unused_s",
        "gpu_unused_seconds_total",
        "Time in which no engine on it ran a request, or without one no kernel ran.",
    ),
    Field("unused_cost", "gpu_unused_cost_total", "Price of that time."),
    Field("energy_cost", "gpu_energy_cost_total", "Price of its energy since gpumon started."),
    Field("temperature_c", "gpu_temperature_celsius", "Temperature of the GPU.", {"sensor": "gpu"}),
    Field("memory_temperature_c", "gpu_temperature_celsius", "", {"sensor": "memory"}),
    Field("fan_ratio", "gpu_fan_ratio", "Speed of its fan / full speed, as the driver wants it."),
    Field("sm_clock_hz", "gpu_clock_hertz", "Clock now.", {"clock": "sm"}),
    Field("memory_clock_hz", "gpu_clock_hertz", "", {"clock": "memory"}),
    Field("sm_clock_max_hz", "gpu_clock_max_hertz", "Highest clock.", {"clock": "sm"}),
    Field("memory_clock_max_hz", "gpu_clock_max_hertz", "", {"clock": "memory"}),
    Field("nvlink_bytes_per_s", "gpu_nvlink_bytes_per_second", "NVLink, both directions."),
    Field("nvlink_tx_bytes_per_s", "gpu_nvlink_way_bytes_per_second", "Each direction of it.", {"direction": "tx"}),
    Field("nvlink_rx_bytes_per_s", "gpu_nvlink_way_bytes_per_second", "", {"direction": "rx"}),
    Field("pcie_bytes_per_s", "gpu_pcie_bytes_per_second", "PCIe, both directions."),
    Field("pcie_tx_bytes_per_s", "gpu_pcie_way_bytes_per_second", "Each of it (tx: to host).", {"direction": "tx"}),
    Field("pcie_rx_bytes_per_s", "gpu_pcie_way_bytes_per_second", "", {"direction": "rx"}),
    Field("pcie_generation", "gpu_pcie_generation", "Generation of the PCIe link.", {"at": "now"}),
    Field("pcie_generation_max", "gpu_pcie_generation", "", {"at": "most"}),
    Field("pcie_width", "gpu_pcie_lanes", "Lanes of the PCIe link.", {"at": "now"}),
    Field("pcie_width_max", "gpu_pcie_lanes", "", {"at": "most"}),
    Field("ecc_corrected", "gpu_ecc_errors_total", "ECC errors that the driver counts.", {"kind": "corrected"}),
    Field("ecc_uncorrected", "gpu_ecc_errors_total", "", {"kind": "uncorrected"}),
    Field("remap_pending", "gpu_row_remap", "Row remapping that is pending or has failed.", {"state": "pending"}),
    Field("remap_failed", "gpu_row_remap", "", {"state": "failed"}),
    Field("bad_pages", "gpu_bad_pages", "Memory pages out of use or to be.", {"state": "all"}),
    Field("bad_pages_pending", "gpu_bad_pages", "", {"state": "pending"}),
    Field("nvlinks", "gpu_nvlinks", "NVLinks of the GPU, and those that are up.", {"state": "all"}),
    Field("nvlinks_active", "gpu_nvlinks", "", {"state": "up"}),
    Field("nvlink_errors", "gpu_link_errors_total", "Errors of links that the driver counts.", {"link": "nvlink"}),
    Field("pcie_replays", "gpu_link_errors_total", "", {"link": "pcie"}),
    Field("xgmi_links", "gpu_xgmi_links", "XGMI links to other GPUs (AMD).", {"state": "all"}),
    Field("xgmi_links_up", "gpu_xgmi_links", "", {"state": "up"}),
    Field("persistence_mode", "gpu_persistence_mode", "1: the driver keeps the GPU open without a process."),
    Field("ecc_mode", "gpu_ecc_mode", "1: ECC is on."),
    Field("tokens_per_j", "gpu_tokens_per_joule", "Decode tokens of its engines / its energy, over 10 s."),
    Field("activity_age_s", "gpu_activity_age_seconds", "Age of SM active, tensor active and memory bandwidth."),
)
"""Figures of a GPU."""
GPU_TEXTS: Final = {
    "name": "name",
    "type": "gpu_type",
    "machine": "host",
    "parent": "parent_uuid",
    "mig_profile": "mig_profile",
    "compute_capability": "compute_capability",
    "bandwidth_source": "bandwidth_source",
    "activity_source": "activity_source",
    "peak_source": "peak_source",
    "precision": "flops_peak_precision",
    "shared_memory": "vram_shared",
    "peak_unverified": "peak_unverified",
    "bandwidth_peak_unverified": "bandwidth_peak_unverified",
}
"""Label of `gpumon_gpu_info` -> field."""

_LATENCIES: Final = (
    ("ttft_s", "ttft", "Time to the first token"),
    ("itl_s", "itl", "Time per token after the first"),
    ("queue_s", "queue", "Time in the queue"),
    ("e2e_s", "e2e", "Time of whole requests"),
)
"""Field of `Latency`, its word in names, and what it is."""
_TPOT: Final = ("tpot_s", "tpot", "Mean time per token after the first of each request that ended")
"""As in `_LATENCIES`; only engines have it."""
_GOALS: Final = (
    ("ttft_goal", "ttft", "requests"),
    ("itl_goal", "itl", "tokens"),
    ("tpot_goal", "tpot", "requests"),
)
"""Field of `Goodput`, its latency, and what the share is of."""
_WINDOW: Final = {"window": "60s"}
"""Label of the quantiles that names their window."""
_QUANTILES: Final = (("p50", "0.5"), ("p95", "0.95"), ("p99", "0.99"))
"""Field of `Quantiles`, and its value of the label `quantile`."""


def _latency_fields(owner: str, *more: tuple[str, str, str]) -> tuple[Field, ...]:
    """Quantiles, their buckets and means of the latencies of an `engine` or a `model`."""
    fields = []
    for attribute, word, text in (*_LATENCIES, *more):
        name = f"{owner}_{word}"
        for path, quantile in _QUANTILES:
            fixed = {"quantile": quantile, **_WINDOW}
            fields.append(Field(f"{attribute}.{path}", f"{name}_seconds", f"{text}, of the last 60 s.", fixed))
            for end in ("low", "high"):
                words = f"{text}: the histogram's bucket that the quantile fell in."
                bound = {"of": path, "bound": end}
                fields.append(Field(f"{attribute}.{path}_{end}", f"{name}_bound_seconds", words, bound))
        fields.append(Field(f"{attribute}.mean", f"{name}_mean_seconds", f"{text}, mean of the last 60 s."))
        words = f"{text}: end of the histogram's first bucket; a quantile below it is known no better."
        fields.append(Field(f"{attribute}.first_bound_s", f"{name}_first_bound_seconds", words))
    return tuple(fields)


def _goal_fields(owner: str) -> tuple[Field, ...]:
    """Shares within the goals, by what is counted; the least and the largest share that can be true."""
    fields = []
    for attribute, latency, counted in _GOALS:
        name = f"{owner}_goal"
        fixed = {"latency": latency, "of": counted}
        for end in ("low", "high"):
            text = "Share of the last 2 min within the goal: at least low (with HTTP users_low), at most high."
            fields.append(Field(f"{attribute}.{end}_ratio", f"{name}_attained_ratio", text, {**fixed, "bound": end}))
        users = {**fixed, "bound": "users_low"}
        fields.append(Field(f"{attribute}.users_low_ratio", f"{name}_attained_ratio", "", users))
        fields.append(Field(f"{attribute}.goal_s", f"{name}_seconds", "The goal, or the assumed one.", fixed))
        fields.append(Field(f"{attribute}.count", f"{name}_observations", "Number of what is counted.", fixed))
    return tuple(fields)


def _served_fields() -> tuple[Field, ...]:
    """Outcomes, lengths and phases of requests, cached tokens by where they came from, and what gpumon has seen."""
    fields = []
    for outcome in (
        "ended",
        "stopped",
        "cut",
        "aborted",
        "aborted_midway",
        "failed",
        "corrupted",
        "rejected",
        "refused",
    ):
        fixed = {"outcome": outcome}
        text = "Requests of the last 2 min by how they ended."
        fields.append(Field(f"outcomes.{outcome}", "engine_recent_requests", text, fixed))
        if outcome == "aborted_midway":  # not counted since the start
            continue
        text = "Requests by how they ended, by the engine's own counters."
        fields.append(Field(f"outcomes_since_start.{outcome}", "engine_requests_total", text, fixed))
    for attribute, kind in (("prompt_tokens", "prompt"), ("answer_tokens", "answer")):
        for figure in ("mean", "p50", "p95"):
            text = "Tokens of the requests that ended in the last 2 min."
            fields.append(Field(f"{attribute}.{figure}", "engine_length_tokens", text, {"of": kind, "figure": figure}))
        for figure in ("p50", "p95", "longest"):
            for bound in ("low", "high"):
                text = "The bucket of a length; `longest`: since the engine started."
                fixed = {"of": kind, "figure": figure, "bound": bound}
                fields.append(Field(f"{attribute}.{figure}_{bound}", "engine_length_bound_tokens", text, fixed))
    for phase in ("e2e", "queue", "transfer", "prefill", "decode", "rest"):
        text = "Mean time of a request's phases in the last 2 min; `e2e` is their sum."
        fields.append(Field(f"phases.{phase}_s", "engine_phase_seconds", text, {"phase": phase}))
    for tier in ("device", "host", "disk", "peer", "external"):
        text = "Share of the cached prompt tokens of the last 2 min by where they came from."
        fields.append(Field(f"cached_by.{tier}_ratio", "engine_prompt_cached_by_ratio", text, {"source": tier}))
    return (
        *fields,
        Field("seen.seconds", "engine_seen_seconds", "Time in which gpumon watched it."),
        Field("seen.requests", "engine_seen_requests_total", "Requests that ended since gpumon started."),
        Field("seen.peak_running", "engine_requests_peak", "Most at a poll since gpumon started.", {"of": "running"}),
        Field("seen.peak_waiting", "engine_requests_peak", "", {"of": "waiting"}),
        Field("seen.busy_ratio", "engine_busy_ratio", "Share of time with a request since gpumon started."),
    )


ENGINE_LABELS: Final = ("engine",)
"""Labels of the series of an engine."""
EXPORTED_ENGINE: Final = (
    Field("running", "engine_requests_running", "Requests that are being worked on now."),
    Field("running_mean", "engine_requests_running_mean", "Mean of gpumon_engine_requests_running over 10 s."),
    Field("waiting", "engine_requests_waiting", "Requests in the queue now."),
    Field("waiting_deferred", "engine_requests_deferred", "Those of them that do not wait for room."),
    Field("lora_slots", "engine_lora_slots", "LoRA adapters that it can serve at once."),
    Field(
        "lora_loaded", "engine_lora_adapters", "LoRA adapters with a slot, and those waited for.", {"state": "loaded"}
    ),
    Field("lora_waiting", "engine_lora_adapters", "", {"state": "waiting"}),
    Field("router_queue", "engine_router_queue_requests", "Requests that its router has given to no worker yet."),
    Field("backends_known", "engine_backends", "Backends of a front end."),
    Field("backends_ready", "engine_backends_ready", "Those of them that it sends requests to."),
    Field("kv_usage_ratio", "engine_kv_cache_used_ratio", "Share of the KV cache in use now, mean of the ranks."),
    Field("kv_pool_tokens", "engine_kv_cache_size_tokens", "Tokens that the KV cache holds, all ranks."),
    Field("prefill_tokens_per_s", "engine_prefill_tokens_per_second", "Prompt tokens computed; none of the cache."),
    Field("decode_tokens_per_s", "engine_decode_tokens_per_second", "Tokens generated, over 10 s."),
    Field("cached_tokens_per_s", "engine_cached_tokens_per_second", "Prompt tokens from the prefix cache."),
    Field("decode_mean_tokens_per_s", "engine_decode_mean_tokens_per_second", "Mean of 10 minutes at most."),
    Field("requests_per_s", "engine_requests_per_second", "Requests that ended, over 10 s."),
    Field("failures_per_s", "engine_failures_per_second", "Requests that ended in an error."),
    Field("rejections_per_s", "engine_rejections_per_second", "Requests turned away before they ran."),
    *(
        Field(
            f"kv_fetch_{stage}", "engine_kv_fetches", "Waiting requests by how far their KV cache is.", {"stage": stage}
        )
        for stage in ("waiting", "running", "done")
    ),
    Field("aborted_tokens_mean", "engine_aborted_tokens_mean", "Mean tokens of answers that were given up midway."),
    Field("preemptions_mean", "engine_preemptions_per_request", "Mean of the requests of the last 60 s that ended."),
    Field(
        "expert_balance_ratio", "engine_expert_balance_ratio", "Mean load of the experts' GPUs / that of the busiest."
    ),
    Field("rank_imbalance", "engine_rank_imbalance", "Tokens of the busiest rank in a step / the mean of all."),
    Field(
        "scheduler_idle_ratio", "engine_scheduler_idle_ratio", "Share of 60 s in which its scheduler had no request."
    ),
    Field("forward_ratio", "engine_forward_ratio", "Share of 60 s in which its GPUs computed steps, by its own clock."),
    Field(
        "prefill_retries_per_s", "engine_prefill_retries_per_second", "Prompts that were put off after their prefill."
    ),
    Field("refused_per_s", "engine_refused_per_second", "Requests that were answered with HTTP 4xx."),
    Field("corrupted_per_s", "engine_corrupted_per_second", "Requests that ended with a NaN in their logits."),
    Field("kv_stored_bytes_per_s", "engine_kv_stored_bytes_per_second", "KV cache copied from the GPUs to a tier."),
    Field("kv_loaded_bytes_per_s", "engine_kv_loaded_bytes_per_second", "KV cache copied back to the GPUs."),
    Field("kv_transferred_bytes_per_s", "engine_kv_transferred_bytes_per_second", "KV cache of another engine's."),
    Field("kv_transfer_failures_per_s", "engine_kv_transfer_failures_per_second", "Transfers of KV that failed."),
    Field(
        "kv_expired_per_s", "engine_kv_expired_requests_per_second", "Requests whose KV cache no engine took in time."
    ),
    Field("kv_late_reads_per_s", "engine_kv_late_reads_per_second", "Reads of KV cache after it was given up."),
    Field(
        "kv_tier_written_bytes_per_s",
        "engine_kv_tier_written_bytes_per_second",
        "KV cache from host memory to a disk or store.",
    ),
    Field(
        "kv_tier_read_bytes_per_s",
        "engine_kv_tier_read_bytes_per_second",
        "KV cache from a disk or store to host memory.",
    ),
    Field(
        "kv_copy_failures_per_s",
        "engine_kv_copy_failures_per_second",
        "Copies of KV cache that failed or found no room.",
    ),
    Field("aborts_per_s", "engine_aborts_per_second", "Requests that their client gave up, or somebody cancelled."),
    Field("inferences_per_s", "engine_inferences_per_second", "Items of a server of models that are no LLMs."),
    Field("steps_per_s", "engine_steps_per_second", "Forward passes."),
    Field("preemptions_per_s", "engine_preemptions_per_second", "Requests thrown out of the KV cache."),
    Field("tokens_per_step", "engine_tokens_per_step", "Tokens per step and sequence: 1 without speculation."),
    Field("acceptance_ratio", "engine_speculation_accepted_ratio", "Share of the draft tokens that were accepted."),
    Field("batch", "engine_batch_sequences", "Mean sequences per step of one rank."),
    Field("context_tokens", "engine_context_tokens", "Mean tokens in context of a running sequence."),
    Field("prompt_tokens_mean", "engine_prompt_tokens_mean", "Mean prompt of the requests of the last 60 s."),
    Field("answer_tokens_mean", "engine_answer_tokens_mean", "Mean answer of the requests of the last 60 s."),
    Field("cached_ratio", "engine_prompt_cached_ratio", "Share of prompt tokens from the prefix cache, 60 s."),
    Field("prefill_token_s", "engine_prefill_token_seconds", "Seconds of prefill per computed prompt token, 60 s."),
    Field("itl_mean_s", "engine_itl_mean_10s_seconds", "Mean time per token after the first, over 10 s."),
    *_latency_fields("engine", _TPOT),
    *_goal_fields("engine"),
    *_served_fields(),
    Field("tokens_total.prefill_computed", "engine_tokens_total", "Since gpumon started.", {"kind": "prefill"}),
    Field("tokens_total.prefill_cached", "engine_tokens_total", "", {"kind": "cached"}),
    Field("tokens_total.decode", "engine_tokens_total", "", {"kind": "decode"}),
    Field("tokens_total.trained", "engine_tokens_total", "", {"kind": "trained"}),
    Field("tokens_total.samples", "engine_training_samples_total", "Samples that a training run consumed."),
    Field("samples_per_s", "engine_training_samples_per_second", "Samples of a training run, all its GPUs."),
    Field("trained_tokens_per_s", "engine_training_tokens_per_second", "Tokens of a training run, all its GPUs."),
    Field("mfu_ratio", "engine_mfu_ratio", "Model FLOPs utilization: FLOP/s of its model / peak."),
    Field("mfu_prefill_ratio", "engine_mfu_part_ratio", "What it consists of.", {"part": "prefill"}),
    Field("mfu_decode_ratio", "engine_mfu_part_ratio", "", {"part": "decode"}),
    Field("mbu_ratio", "engine_mbu_ratio", "Model bandwidth utilization: bytes that its steps need / peak."),
    Field("mbu_single_stream_ratio", "engine_mbu_single_stream_ratio", "Parameters x bytes x tokens/s / peak."),
    Field("flops_per_s", "engine_flops_per_second", "FLOP/s of its model."),
    Field("prefill_flops_per_s", "engine_part_flops_per_second", "What they consist of.", {"part": "prefill"}),
    Field("decode_flops_per_s", "engine_part_flops_per_second", "", {"part": "decode"}),
    Field("bytes_per_s", "engine_memory_bytes_per_second", "Bytes that its steps read and write."),
    Field("weight_bytes_per_s", "engine_memory_part_bytes_per_second", "What they consist of.", {"part": "weights"}),
    Field("kv_bytes_per_s", "engine_memory_part_bytes_per_second", "", {"part": "kv"}),
    Field("power_w", "engine_power_watts", "Power of its GPUs, mean of 10 s."),
    Field("tokens_per_j", "engine_tokens_per_joule", "Decode tokens / energy of its GPUs."),
    Field("flops_per_j", "engine_flops_per_joule", "FLOPs of its model / energy of its GPUs."),
    Field("cost_per_hour", "engine_cost_per_hour", "Price of an hour of its GPUs, in the currency of the config."),
    Field("cost_per_million_output_tokens", "engine_cost_per_million_tokens", "At the rates of now.", {"of": "output"}),
    Field("cost_per_million_all_tokens", "engine_cost_per_million_tokens", "", {"of": "all"}),
    Field("unused_s", "engine_unused_seconds_total", "Time in which it ran no request."),
    Field("unused_cost", "engine_unused_cost_total", "Price of its GPUs in that time."),
    Field("energy_j", "engine_energy_joules_total", "Energy of its GPUs since gpumon saw it first."),
    Field("energy_cost", "engine_energy_cost_total", "Price of that energy."),
    Field("gpu_count", "engine_gpus", "GPUs that it runs on."),
    Field("params", "engine_model_parameters", "Parameters of its model."),
    Field("active_params", "engine_model_active_parameters", "Those of them that a token uses."),
    Field("layers", "engine_model_layers", "Layers of its model."),
    Field("weight_bytes", "engine_model_step_weight_bytes", "Weights that one step reads at this batch."),
    Field("kv_bytes_per_token", "engine_model_kv_token_bytes", "KV cache of one token in context, one copy."),
    Field("flops_per_decode_token", "engine_model_decode_token_flops", "FLOPs of a token at the present context."),
    Field("peak_flops_per_s", "engine_peak_flops_per_second", "Dense peak of its GPUs: MFU's denominator."),
    Field("peak_bandwidth_bytes_per_s", "engine_peak_memory_bytes_per_second", "Of its GPUs: MBU's denominator."),
    Field("own.flops_per_s", "engine_own_flops_per_second", "FLOP/s by the engine's own count."),
    Field("own.read_bytes_per_s", "engine_own_memory_bytes_per_second", "By its own count.", {"direction": "read"}),
    Field("own.write_bytes_per_s", "engine_own_memory_bytes_per_second", "", {"direction": "write"}),
    Field("own.flops_ratio", "engine_own_flops_ratio", "The engine's own FLOP/s / gpumon's."),
    Field("own.read_bytes_ratio", "engine_own_read_bytes_ratio", "The engine's own bytes read / gpumon's."),
    Field("own_memory.weight_bytes", "engine_own_memory_size_bytes", "By its own table, one GPU.", {"of": "weights"}),
    Field("own_memory.kv_bytes", "engine_own_memory_size_bytes", "", {"of": "kv"}),
    Field("own_memory.graph_bytes", "engine_own_memory_size_bytes", "", {"of": "graphs"}),
    Field("own_memory.weight_ratio", "engine_own_memory_ratio", "That / gpumon's figure.", {"of": "weights"}),
    Field("own_memory.kv_ratio", "engine_own_memory_ratio", "", {"of": "kv"}),
    Field("tp", "engine_tensor_parallel", "GPUs that share each layer of one rank.", zero_is_unknown=True),
    Field("pp", "engine_pipeline_parallel", "Pipeline stages of one instance.", zero_is_unknown=True),
    Field("ranks", "engine_data_parallel", "Instances of the model on their own GPUs.", zero_is_unknown=True),
)
"""Figures of an engine."""
ENGINE_TEXTS: Final = {
    "kind": "kind",
    "phase": "phase",
    "url": "url",
    "part": "part",
    "version": "version",
    "model": "model",
    "model_source": "model_source",
    "gpu_type": "gpu_type",
    "precision": "precision",
    "weight_precision": "weight_precision",
    "kv_precision": "kv_precision",
    "asleep": "asleep",
    "found_by": "found_by",
    "from_documentation": "from_documentation",
    "ttft_goal_assumed": "ttft_goal_assumed",
    "itl_goal_assumed": "itl_goal_assumed",
    "peak_unverified": "peak_unverified",
    "bandwidth_peak_unverified": "bandwidth_peak_unverified",
}
"""Label of `gpumon_engine_info` -> field."""
RANK_LABELS: Final = ("engine", "rank")
"""Labels of the series of a rank."""
RANK: Final = (
    Field("running", "engine_rank_requests_running", "Requests that a data-parallel rank works on, mean of 10 s."),
    Field("waiting", "engine_rank_requests_waiting", "Requests in a rank's queue, mean of 10 s."),
    Field("kv_usage_ratio", "engine_rank_kv_cache_used_ratio", "Share of a rank's KV cache in use, mean of 10 s."),
    Field("decode_tokens_per_s", "engine_rank_decode_tokens_per_second", "Tokens that a rank generates, over 10 s."),
)
"""Figures of a data-parallel rank."""
BACKEND_LABELS: Final = ("engine", "backend", "polled_as")
"""Labels of the series of a backend."""
BACKEND: Final = (
    Field("ready", "engine_backend_ready", "1 where a front end sends requests to this backend, else 0."),
    Field("running", "engine_backend_requests_running", "Requests that a front end has at this backend."),
    Field("waiting", "engine_backend_requests_waiting", "Requests in the backend's queue, as its front end knows."),
    Field("requests_per_s", "engine_backend_requests_per_second", "Requests to this backend, over 10 s."),
    Field("failures_per_s", "engine_backend_failures_per_second", "Requests that failed at this backend, over 10 s."),
)
"""Figures of a backend of a front end."""
MODEL_LABELS: Final = ("model",)
"""Labels of the series of a model."""
EXPORTED_MODEL: Final = (
    Field("answering", "model_replicas_answering", "Engines of one model that give figures.", zero_is_unknown=True),
    Field("mapped", "model_replicas_mapped", "Those of them that run on GPUs that are known.", zero_is_unknown=True),
    Field("running", "model_requests_running", "Requests that all replicas work on."),
    Field("waiting", "model_requests_waiting", "Requests in all replicas' queues."),
    Field("kv_usage_ratio", "model_kv_cache_used_ratio", "Share of the KV cache in use now, mean of the replicas."),
    Field("prefill_tokens_per_s", "model_prefill_tokens_per_second", "Prompt tokens that all replicas compute."),
    Field("decode_tokens_per_s", "model_decode_tokens_per_second", "Tokens that all replicas generate."),
    Field("requests_per_s", "model_requests_per_second", "Requests that ended at any replica."),
    *_latency_fields("model"),
    *_goal_fields("model"),
    Field("mfu_ratio", "model_mfu_ratio", "Model FLOPs utilization of all replicas' GPUs."),
    Field("mbu_ratio", "model_mbu_ratio", "Model bandwidth utilization of all replicas' GPUs."),
)
"""Figures of a model over all its replicas."""
EXPORTED_HOST: Final = (
    Field("cpu_ratio", "host_cpu_ratio", "Share of all cores' time."),
    Field("busiest_core_ratio", "host_busiest_core_ratio", "Share of the busiest core's time."),
    Field("iowait_ratio", "host_iowait_ratio", "Share of all cores' time that waited for a disk."),
    Field("memory_used_bytes", "host_memory_used_bytes", "Memory in use."),
    Field("memory_total_bytes", "host_memory_size_bytes", "Memory of the host."),
    Field("cpu_pressure_ratio", "host_pressure_ratio", "Linux PSI, some, mean of 10 s.", {"resource": "cpu"}),
    Field("io_pressure_ratio", "host_pressure_ratio", "", {"resource": "io"}),
    Field("memory_pressure_ratio", "host_pressure_ratio", "", {"resource": "memory"}),
    Field("disk_read_bytes_per_s", "host_disk_bytes_per_second", "Disks, by direction.", {"direction": "read"}),
    Field("disk_write_bytes_per_s", "host_disk_bytes_per_second", "", {"direction": "write"}),
    Field("disk_busy_ratio", "host_disk_busy_ratio", "Share of time in which the busiest disk had a request."),
    Field("network_rx_bytes_per_s", "host_network_bytes_per_second", "Network.", {"direction": "rx"}),
    Field("network_tx_bytes_per_s", "host_network_bytes_per_second", "", {"direction": "tx"}),
)
"""Figures of the host."""
COSTS: Final = (
    Field("cost_per_hour", "host_cost_per_hour", "Price of an hour of all GPUs, in the currency of the config."),
    Field("cost_per_million_output_tokens", "host_cost_per_million_tokens", "At the rates of now.", {"of": "output"}),
    Field("cost_per_million_all_tokens", "host_cost_per_million_tokens", "", {"of": "all"}),
    Field("unused_gpu_s", "host_unused_gpu_seconds_total", "GPU-seconds without a request, or with nobody on the GPU."),
    Field("unused_cost", "host_unused_cost_total", "Price of that time."),
    Field("energy_j", "host_gpu_energy_joules_total", "Energy of all GPUs since gpumon started."),
    Field("energy_cost", "host_gpu_energy_cost_total", "Price of that energy."),
)
"""Costs of all GPUs together."""
SELF: Final = (
    Field("cpu_ratio", "self_cpu_ratio", "What gpumon costs: share of one core, its worker included."),
    Field("pss_bytes", "self_memory_bytes", "What gpumon costs: proportional memory (PSS)."),
)
"""Costs of gpumon itself."""
DOUBTS: Final = ("uneven", "deviates", "contradicts")
"""Fields of an engine that hold findings: it is exported that there are some."""
ENDED_LABELS: Final = (*ENGINE_LABELS, "cause", "number", "planned")
"""Labels of the ends of an engine."""
_DOUBT_LABELS: Final = (*ENGINE_LABELS, "doubt")
"""Labels of the findings of an engine."""
VERDICT_LABELS: Final = ("kind", "thing", "family")
"""Labels of all series of a verdict."""
HISTOGRAMS: Final = {attribute: f"engine_{word}_distribution_seconds" for attribute, word, _ in _LATENCIES}
"""Quantity (`readings.quantities`) -> family of its buckets, those of all ranks added up."""


class _OtherMetric(NamedTuple):
    """A metric that is no single field of a snapshot."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]


_OTHER_METRICS: Final = (
    *(
        _OtherMetric(
            HISTOGRAMS[attribute],
            "histogram",
            f"{text}, of all requests since the engine began.",
            (*ENGINE_LABELS, "le"),
        )
        for attribute, _, text in _LATENCIES
    ),
    _OtherMetric(
        "source_up", "gauge", "1: the source answers; 0: it does not, and its series are absent.", ("source", "name")
    ),
    _OtherMetric("host", "info", "The machine.", (*HOST_TEXTS, "simulated")),
    _OtherMetric("gpu", "info", "What a GPU is.", (*GPU_LABELS, *GPU_TEXTS)),
    _OtherMetric("gpu_state", "gauge", "1 for the state that the GPU is in.", (*GPU_LABELS, "state")),
    _OtherMetric("gpu_age_seconds", "gauge", "Since the GPU was read.", GPU_LABELS),
    _OtherMetric("gpu_throttled", "gauge", "1 for each cause that holds the clocks down now.", (*GPU_LABELS, "cause")),
    _OtherMetric("gpu_throttle_seconds", "counter", "Time throttled since gpumon started.", (*GPU_LABELS, "cause")),
    _OtherMetric("gpu_xid", "gauge", "1 for each Xid error that the driver reported.", (*GPU_LABELS, "xid")),
    _OtherMetric("engine", "info", "What an engine is.", (*ENGINE_LABELS, *ENGINE_TEXTS)),
    _OtherMetric("engine_state", "gauge", "1 for what the last poll came to.", (*ENGINE_LABELS, "state")),
    _OtherMetric("engine_state_since_timestamp_seconds", "gauge", "Since when the state is so.", ENGINE_LABELS),
    _OtherMetric("engine_ended_timestamp_seconds", "gauge", "When the engine ended, and how.", ENDED_LABELS),
    _OtherMetric("engine_age_seconds", "gauge", "Since the engine was read.", ENGINE_LABELS),
    _OtherMetric("engine_gpu", "info", "Which engine runs on which GPU.", (*ENGINE_LABELS, *GPU_LABELS)),
    _OtherMetric(
        "engine_doubt", "gauge", "1 for each: uneven ranks, unlike its replicas, figures at odds.", _DOUBT_LABELS
    ),
    _OtherMetric(
        "engine_speculation_position_accepted_ratio",
        "gauge",
        "Share of drafts whose token at this position was accepted, 2 min.",
        (*ENGINE_LABELS, "position"),
    ),
    _OtherMetric("engine_restarts", "counter", "Restarts that gpumon saw since it started.", ENGINE_LABELS),
    _OtherMetric("model_replica", "info", "Which engines serve a model.", ("model", "engine", "deviating")),
    _OtherMetric(
        "verdict", "gauge", "1 for each verdict.", (*VERDICT_LABELS, "scope", "code", "cause", "level", "confidence")
    ),
    _OtherMetric("verdict_since_timestamp_seconds", "gauge", "Since when a verdict holds.", VERDICT_LABELS),
    _OtherMetric(
        "verdict_until_timestamp_seconds", "gauge", "When it was last so, of one on its way out.", VERDICT_LABELS
    ),
    _OtherMetric(
        "verdict_affected",
        "gauge",
        "Things that suffer from a verdict, or GPUs that wait for it.",
        (*VERDICT_LABELS, "of"),
    ),
    _OtherMetric(
        "verdict_caused_by", "info", "The verdict that this one is a consequence of.", (*VERDICT_LABELS, "id")
    ),
    _OtherMetric(
        "verdict_acknowledged_until_timestamp_seconds",
        "gauge",
        "Until when somebody has acknowledged a verdict.",
        (*VERDICT_LABELS, "who"),
    ),
    _OtherMetric(
        "verdict_acknowledged_since_timestamp_seconds", "gauge", "When a verdict was acknowledged.", VERDICT_LABELS
    ),
    _OtherMetric(
        "verdict_unknown", "info", "A signal that a verdict lacks.", (*VERDICT_LABELS, "at", "code", "reason", "fix")
    ),
    _OtherMetric(
        "verdict_evidence",
        "gauge",
        "A verdict's figures, in base units.",
        (*VERDICT_LABELS, "at", "quantity", "source", "chart"),
    ),
    _OtherMetric("verdict_action", "info", "What to try, the best first.", (*VERDICT_LABELS, "at", "code")),
    _OtherMetric(
        "verdict_parameter",
        "gauge",
        "What else its sentence has: a figure, or 1 for a name (text).",
        (*VERDICT_LABELS, "of", "name", "text"),
    ),
    _OtherMetric("alert", "gauge", "1 for each alert of the config that holds.", ("alert", "scope")),
    _OtherMetric("alert_since_timestamp_seconds", "gauge", "Since when an alert holds.", ("alert", "scope")),
    _OtherMetric("alert_value", "gauge", "The figure that raised an alert.", ("alert", "scope")),
    _OtherMetric(
        "webhook_messages",
        "counter",
        "Messages to a webhook; `failed` counts attempts, `dropped` changes.",
        ("webhook", "result"),
    ),
    _OtherMetric("webhook_waiting_changes", "gauge", "Changes that wait for a webhook's receiver.", ("webhook",)),
    _OtherMetric(
        "webhook_up",
        "gauge",
        "1: the receiver takes what is sent; 0: changes wait. Absent: another gpumon sends.",
        ("webhook",),
    ),
    _OtherMetric("faults", "gauge", "Things that do not work right now.", ("source",)),
    _OtherMetric("missing", "info", "Why a series is absent.", ("of", "thing", "field", "reason")),
    _OtherMetric("events", "counter", "Events since gpumon started.", ("kind",)),
    _OtherMetric("left_out", "gauge", "Things that are not on this page because there are too many.", ("what",)),
    _OtherMetric("interval_seconds", "gauge", "Between two snapshots.", ()),
    _OtherMetric("snapshot_timestamp_seconds", "gauge", "When this snapshot was taken.", ()),
    _OtherMetric("process_start_time_seconds", "gauge", "When this gpumon started; each change is a restart.", ()),
    _OtherMetric("build", "info", "Which gpumon this is.", ("version", "python")),
)
"""All families but those of the fields above."""


def _unit_of(name: str) -> str:
    """The unit that a name ends with; empty without one."""
    for unit in _UNITS:
        if name.endswith(f"_{unit}"):
            return unit
    return ""


def _make_metrics() -> tuple[ExportedMetric, ...]:
    """All families, by name: those of the tables of fields, and the others."""
    metrics: dict[str, ExportedMetric] = {}
    for other in _OTHER_METRICS:
        unit = ""
        if other.kind != "info":
            unit = _unit_of(other.name)
        metrics[other.name] = ExportedMetric(PREFIX + other.name, other.kind, unit, other.help, other.labels)
    tables: tuple[tuple[tuple[Field, ...], tuple[str, ...]], ...] = (
        (GPU, GPU_LABELS),
        (EXPORTED_ENGINE, ENGINE_LABELS),
        (RANK, RANK_LABELS),
        (BACKEND, BACKEND_LABELS),
        (EXPORTED_MODEL, MODEL_LABELS),
        (EXPORTED_HOST, ()),
        (COSTS, ()),
        (SELF, ()),
    )
    for fields, labels in tables:
        for field in fields:
            name = field.sample.removesuffix("_total")
            kind = "gauge"
            if name != field.sample:
                kind = "counter"
            elif "quantile" in field.fixed:
                kind = "summary"
            metric = ExportedMetric(PREFIX + name, kind, _unit_of(name), field.help, (*labels, *field.fixed))
            metrics.setdefault(name, metric)
    return tuple(sorted(metrics.values(), key=lambda metric: metric.name))


EXPORTED_METRICS: Final = _make_metrics()
"""Every family, by name."""
SAMPLE_NAMES: Final = frozenset(metric.sample for metric in EXPORTED_METRICS if metric.kind != "histogram")
"""Every name on the wire but those of histograms, which no snapshot is made of."""

SOMEBODY: Final = "a process"
PRIVATE: Final[Mapping[str, str]] = {
    "process": SOMEBODY,
    "processes": SOMEBODY,
    "pid": "PID",
    "pids": "",
    "owner": "",
    "command": "",
    "file": "",
}
"""Parameters of verdicts that name processes and users -> what stands for them outside of their host."""
