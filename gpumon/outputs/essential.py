"""Series that `gpumon serve-metrics` exports without `--detail`: what cannot be worked out of the others, and is asked
for by the alerts, the dashboard, the fleet screen or an autoscaler."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpumon.readings.exported import PREFIX, ExportedSample

_ALL: Final = frozenset(
    f"{PREFIX}{name}"
    for name in (
        # this gpumon, its sources and its host
        *("source_up", "left_out", "interval_seconds", "snapshot_timestamp_seconds", "process_start_time_seconds"),
        *("build_info", "faults", "missing_info", "self_cpu_ratio", "self_memory_bytes"),
        *("webhook_messages_total", "webhook_waiting_changes", "webhook_up"),
        *("host_info", "host_cpu_ratio", "host_memory_used_bytes", "host_memory_size_bytes"),
        *("host_cost_per_hour", "host_unused_cost_total", "host_gpu_energy_cost_total"),
        # GPUs
        *("gpu_info", "gpu_state", "gpu_age_seconds", "gpu_xid", "gpu_throttled"),
        *("gpu_busy_ratio", "gpu_sm_active_ratio", "gpu_tensor_active_ratio", "gpu_mfu_ratio", "gpu_mbu_ratio"),
        *("gpu_memory_used_bytes", "gpu_memory_size_bytes", "gpu_memory_bandwidth_bytes_per_second"),
        *("gpu_memory_bandwidth_peak_bytes_per_second", "gpu_peak_flops_per_second"),
        *("gpu_power_watts", "gpu_power_limit_watts", "gpu_energy_joules_total"),
        *("gpu_unused_seconds_total", "gpu_unused_cost_total", "gpu_cost_per_hour"),
        # engines
        *("engine_info", "engine_gpu_info", "engine_state", "engine_state_since_timestamp_seconds"),
        *("engine_age_seconds", "engine_ended_timestamp_seconds", "engine_restarts_total", "engine_doubt"),
        *("engine_requests_running", "engine_requests_waiting", "engine_kv_cache_used_ratio"),
        *("engine_kv_cache_size_tokens", "engine_prompt_tokens_mean"),
        *("engine_answer_tokens_mean", "engine_requests_per_second", "engine_goal_counted_total"),
        *("engine_prefill_tokens_per_second", "engine_decode_tokens_per_second", "engine_cached_tokens_per_second"),
        *("engine_preemptions_per_second", "engine_failures_per_second", "engine_rejections_per_second"),
        *("engine_ttft_mean_seconds", "engine_itl_mean_seconds"),
        *("engine_goal_missed_total", "engine_goal_seconds", "engine_goal_observations", "engine_tokens_total"),
        *("engine_mfu_ratio", "engine_mbu_ratio", "engine_flops_per_second", "engine_part_flops_per_second"),
        *("engine_peak_flops_per_second", "engine_memory_bytes_per_second", "engine_peak_memory_bytes_per_second"),
        *("engine_power_watts", "engine_unused_seconds_total", "engine_gpus", "engine_tensor_parallel"),
        *("engine_training_samples_per_second", "engine_training_tokens_per_second"),
        *("engine_inferences_per_second", "engine_backends", "engine_backends_ready"),
        # models: their sums are sums over engines
        *("model_replica_info", "model_replicas_answering", "model_replicas", "model_load_requests"),
        *("model_replica_capacity_requests", "model_needed_replicas", "model_headroom_ratio"),
        *("model_saturation_ratio",),
        # verdicts and alerts
        *("verdict", "verdict_since_timestamp_seconds", "verdict_until_timestamp_seconds", "verdict_affected"),
        *("verdict_caused_by_info", "verdict_acknowledged_until_timestamp_seconds", "verdict_evidence"),
        *("verdict_acknowledged_since_timestamp_seconds", "verdict_unknown_info", "verdict_action_info"),
        *("verdict_parameter", "alert", "alert_since_timestamp_seconds", "alert_value"),
    )
)
"""Metrics of which every series is exported."""
_SOME: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        f"{PREFIX}{name}": labels
        for name, labels in (
            ("events_total", {"kind": "xid"}),
            ("gpu_temperature_celsius", {"sensor": "gpu"}),
            ("engine_ttft_seconds", {"quantile": "0.95"}),
            ("engine_itl_seconds", {"quantile": "0.95"}),
            ("engine_goal_attained_ratio", {"bound": "low"}),
            ("model_ttft_seconds", {"quantile": "0.95"}),
            ("model_itl_seconds", {"quantile": "0.95"}),
        )
    }
)
"""Metric -> the labels of its series that are exported."""
_LEFT_OUT: Final = f"{PREFIX}left_out"
ESSENTIAL_METRICS: Final = _ALL | set(_SOME)
"""Every metric that has a series without `--detail`."""


def is_essential(sample: ExportedSample) -> bool:
    """Whether a sample is exported without `--detail`."""
    if sample.name in _ALL:
        return bool(sample.value) or sample.name != _LEFT_OUT  # that nothing is left out is what is expected
    wanted = _SOME.get(sample.name)
    return wanted is not None and wanted.items() <= sample.labels.items()
