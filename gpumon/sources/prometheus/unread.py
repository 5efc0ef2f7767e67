"""Exporters of GPUs that a Prometheus scrapes and gpumon does not read: each is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gpumon.readings.text import clean
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.queries import join_matchers

_UNREAD: Final[Mapping[str, str]] = {
    "node_hwmon_chip_names": "node_exporter's hwmon",
    "node_drm_gpu_busy_percent": "node_exporter's drm",
    "nvidia_gpu_duty_cycle": "nvidia_gpu_prometheus_exporter",
    "nvidia_gpu_memory_used_mb": "gpu-exporter",
    "habanalabs_utilization": "Habana's exporter",
    "neuroncore_utilization_ratio": "neuron-monitor",
}
"""A series of an exporter that is not read -> the exporter."""
_GPU_CHIPS: Final = 'chip_name=~"amdgpu|nouveau|nvidia|xe|i915"'
"""Matcher of GPUs among the chips that hwmon lists."""
UNREAD: Final = (
    "{} (job {}) tells of GPUs and is not read: dcgm-exporter, nvidia_gpu_exporter, AMD's device-metrics-exporter, "
    "all-smi and gpumon serve-metrics are"
)


def unread_query(match: str) -> str:
    """The query for exporters of GPUs that are not read: a series for each of them and its job."""
    names = "|".join(name for name in sorted(_UNREAD) if name != "node_hwmon_chip_names")
    only = join_matchers(f'__name__=~"{names}"', match)
    chips = join_matchers(_GPU_CHIPS, match)
    return f"count by (__name__, job) ({{{only}}} or node_hwmon_chip_names{{{chips}}})"


def unread_notices(answer: Iterable[Vector]) -> list[str]:
    """A notice for each exporter that is not read."""
    notices = []
    for vector in answer:
        exporter = _UNREAD.get(vector.series.name)
        if exporter:
            notices.append(UNREAD.format(exporter, clean(vector.series.labels.get("job", ""), 60)))
    return sorted(notices)
