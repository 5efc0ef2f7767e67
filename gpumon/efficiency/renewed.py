"""How old a GPU's figures may be, where a dcgm-exporter measures them at a pace of its own."""

from __future__ import annotations

from typing import Any

import msgspec

from gpumon.efficiency.windows import GAP
from gpumon.readings.dcgm import DCGM
from gpumon.readings.frame import Frame, GpuReading
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.text import clean

_STALE = Missing(Reason.STALE, "the dcgm-exporter has not measured it anew for 3 of its intervals")


def pace_s(reading: GpuReading, interval_s: float) -> float:
    """Seconds between two readings of a GPU in frames that come every `interval_s`."""
    return max(interval_s, reading.activity_interval_s) if reading.source == DCGM else interval_s


def activity_age_s(reading: GpuReading, age_s: float) -> Reading:
    """Seconds since a GPU's activity was measured; `age_s` since it was read."""
    if not reading.activity_source:
        return NOT_SUPPORTED
    measured_s = reading.activity_monotonic_s if reading.activity_source == DCGM else reading.monotonic_s
    return max(0.0, age_s + reading.monotonic_s - measured_s)


def renewed(frame: Frame) -> Frame:
    """The frame without those figures of a dcgm-exporter that stand still for longer than 3 of its intervals.

    Their GPU itself may be read as ever (by NVML, or because the exporter's other figures move).
    """
    if not any(_stands_still(gpu, frame) for gpu in frame.gpus):
        return frame
    gpus = (
        msgspec.structs.replace(gpu, **dict.fromkeys(gpu.from_dcgm, _STALE)) if _stands_still(gpu, frame) else gpu
        for gpu in frame.gpus
    )
    return msgspec.structs.replace(frame, gpus=tuple(gpus))


def _stands_still(gpu: GpuReading, frame: Frame) -> bool:
    if not gpu.from_dcgm:
        return False
    return frame.monotonic_s - gpu.activity_monotonic_s > GAP * max(gpu.activity_interval_s, frame.interval_s)


def from_elsewhere(reading: GpuReading, age_s: float) -> dict[str, Any]:
    """What is told of a GPU that is not, or not only, read through NVML here."""
    return {
        "host": clean(reading.host, 64),
        "activity_source": reading.activity_source,
        "activity_age_s": activity_age_s(reading, age_s),
    }
