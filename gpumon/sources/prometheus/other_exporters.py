"""Exporters of GPUs other than NVIDIA's dcgm-exporter: their series rewritten as that one would write them.

nvidia_gpu_exporter (nvidia-smi), AMD's device-metrics-exporter and all-smi have busy, memory, power and temperature.
Names and labels are those of their pages; AMD's may have the prefix `amd_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.hosts import PODS

_NVIDIA_SMI: Final = "nvidia_gpu_exporter"
_AMD: Final = "AMD's device-metrics-exporter"
_ALL_SMI: Final = "all-smi"
_INFO: Final = "nvidia_smi_gpu_info"
"""Series of nvidia_gpu_exporter with the index and the name of a GPU, which its others lack."""
_KEPT: Final = frozenset({"node", "nodename", "host", "Hostname", "hostname"}.union(*PODS))
"""Labels of a page that stay as they are: places and pods."""
_GPU_UUID: Final = "GPU-"


class _Rewritten(NamedTuple):
    """A series of another exporter as one of DCGM's."""

    exporter: str
    name: str
    """Name that a dcgm-exporter writes."""
    factor: float = 1.0


_SERIES: Final[Mapping[str, _Rewritten]] = {
    "nvidia_smi_utilization_gpu_ratio": _Rewritten(_NVIDIA_SMI, "DCGM_FI_DEV_GPU_UTIL", 100.0),
    "nvidia_smi_utilization_memory_ratio": _Rewritten(_NVIDIA_SMI, "DCGM_FI_DEV_MEM_COPY_UTIL", 100.0),
    "nvidia_smi_memory_used_bytes": _Rewritten(_NVIDIA_SMI, "DCGM_FI_DEV_FB_USED_BYTES"),
    "nvidia_smi_memory_free_bytes": _Rewritten(_NVIDIA_SMI, "DCGM_FI_DEV_FB_FREE_BYTES"),
    "nvidia_smi_memory_total_bytes": _Rewritten(_NVIDIA_SMI, "DCGM_FI_DEV_FB_CAPACITY_BYTES"),
    "nvidia_smi_power_draw_watts": _Rewritten(_NVIDIA_SMI, "DCGM_FI_DEV_POWER_USAGE"),
    "nvidia_smi_enforced_power_limit_watts": _Rewritten(_NVIDIA_SMI, "DCGM_FI_DEV_ENFORCED_POWER_LIMIT"),
    "nvidia_smi_temperature_gpu": _Rewritten(_NVIDIA_SMI, "DCGM_FI_DEV_GPU_TEMP"),
    "nvidia_smi_temperature_memory": _Rewritten(_NVIDIA_SMI, "DCGM_FI_DEV_MEMORY_TEMP"),
    "nvidia_smi_clocks_current_sm_clock_hz": _Rewritten(_NVIDIA_SMI, "DCGM_FI_DEV_SM_CLOCK_HERTZ"),
    "nvidia_smi_ecc_errors_uncorrected_volatile_total": _Rewritten(_NVIDIA_SMI, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
    **{
        f"{prefix}gpu_{name}": _Rewritten(_AMD, dcgm_name)
        for prefix in ("", "amd_")
        for name, dcgm_name in (
            ("gfx_activity", "DCGM_FI_DEV_GPU_UTIL"),
            ("used_vram", "DCGM_FI_DEV_FB_USED"),
            ("total_vram", "DCGM_FI_DEV_FB_TOTAL"),
            ("package_power", "DCGM_FI_DEV_POWER_USAGE"),
            ("power_usage", "DCGM_FI_DEV_POWER_USAGE"),
            ("junction_temperature", "DCGM_FI_DEV_GPU_TEMP"),
            ("memory_temperature", "DCGM_FI_DEV_MEMORY_TEMP"),
        )
    },
    "all_smi_gpu_utilization": _Rewritten(_ALL_SMI, "DCGM_FI_DEV_GPU_UTIL"),
    "all_smi_gpu_memory_used_bytes": _Rewritten(_ALL_SMI, "DCGM_FI_DEV_FB_USED_BYTES"),
    "all_smi_gpu_memory_total_bytes": _Rewritten(_ALL_SMI, "DCGM_FI_DEV_FB_CAPACITY_BYTES"),
    "all_smi_gpu_power_consumption_watts": _Rewritten(_ALL_SMI, "DCGM_FI_DEV_POWER_USAGE"),
    "all_smi_gpu_temperature_celsius": _Rewritten(_ALL_SMI, "DCGM_FI_DEV_GPU_TEMP"),
    "all_smi_gpu_frequency_mhz": _Rewritten(_ALL_SMI, "DCGM_FI_DEV_SM_CLOCK"),
}
OTHER_NAMES: Final = frozenset(_SERIES) | {_INFO}
"""The sample names of other exporters that are read."""
READ_IN_PART: Final = "{} GPUs come from {}: it has busy, memory, power and temperature, and no memory bandwidth"


def as_dcgm(values: Mapping[Series, float]) -> dict[Series, float]:
    """The page of an exporter, with the series of other exporters as a dcgm-exporter would write them."""
    if not any(series.name in OTHER_NAMES for series in values):
        return dict(values)
    infos = {series.labels.get("uuid", ""): series.labels for series in values if series.name == _INFO}
    page: dict[Series, float] = {}
    for series, value in values.items():
        rewritten = _SERIES.get(series.name)
        if rewritten is not None:
            page[Series(rewritten.name, _dcgm_labels(series, infos))] = value * rewritten.factor
        elif series.name != _INFO:
            page[series] = value
    return page


def exporter_of(values: Iterable[Series]) -> str:
    """The other exporter that wrote a page; empty for a dcgm-exporter."""
    return next((_SERIES[series.name].exporter for series in values if series.name in _SERIES), "")


def _dcgm_labels(series: Series, infos: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The labels of a GPU of another exporter, under the names of a dcgm-exporter."""
    labels = series.labels
    kept = {name: value for name, value in labels.items() if name in _KEPT}
    exporter = _SERIES[series.name].exporter
    if exporter == _NVIDIA_SMI:
        uuid = labels.get("uuid", "")
        info = infos.get(uuid, {})
        uuid = uuid if uuid.startswith((_GPU_UUID, "MIG-")) else _GPU_UUID + uuid
        return {**kept, "UUID": uuid, "gpu": info.get("index", ""), "modelName": info.get("name", "")}
    if exporter == _AMD:
        uuid = labels.get("gpu_uuid") or labels.get("serial_number", "")
        if not any(map(str.isdecimal, uuid)):  # none, or `N/A`: the index is one of each host
            uuid = f"{labels.get('hostname', '')}/{labels.get('gpu_id', '')}"
        name = labels.get("card_series") or labels.get("card_model", "")
        return {**kept, "UUID": uuid, "gpu": labels.get("gpu_id", ""), "modelName": name}
    kept.setdefault("Hostname", labels.get("instance", ""))
    uuid = labels.get("uuid", "")
    return {**kept, "UUID": uuid, "gpu": labels.get("index", ""), "modelName": labels.get("gpu", "")}
