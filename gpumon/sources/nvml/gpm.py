"""GPU performance monitoring (Hopper and newer): hardware activity between two samples."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pynvml

from gpumon.readings.missing import WARMING_UP, Missing, Reading, Reason
from gpumon.sources.driver.calls import Calls
from gpumon.specs.units import MIB

CLOSEST_S = 0.15
"""Samples less than 100 ms apart give zeros that look like idle; the guard keeps clear of that."""
_PERCENT = 0.01


class GpmMetric(NamedTuple):
    """One GPM metric: NVML's id, the field it fills, the factor to its unit."""

    id: int
    field: str
    scale: float
    whole_gpu: bool = False
    """PCIe and NVLink mean nothing for a slice."""


GPM_METRICS = (
    GpmMetric(2, "sm_active_ratio", _PERCENT),
    GpmMetric(3, "sm_occupancy_ratio", _PERCENT),
    GpmMetric(5, "tensor_active_ratio", _PERCENT),
    GpmMetric(10, "dram_active_ratio", _PERCENT),
    GpmMetric(20, "pcie_tx_bytes_per_s", MIB, whole_gpu=True),
    GpmMetric(21, "pcie_rx_bytes_per_s", MIB, whole_gpu=True),
    GpmMetric(60, "nvlink_rx_bytes_per_s", MIB, whole_gpu=True),
    GpmMetric(61, "nvlink_tx_bytes_per_s", MIB, whole_gpu=True),
)
"""PCIe as the GPU sees it: TX is device to host. NVLink: receive comes first in NVML's numbering."""

VGPU = pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU
_NO_VGPU = Missing(Reason.NOT_SUPPORTED, "GPM does not work inside a vGPU")
_NO_GPM = Missing(
    Reason.NOT_SUPPORTED, "the driver has no GPM for this GPU: it needs Hopper or newer, and driver 525 or newer"
)
_NO_PERMISSION = Missing(
    Reason.NO_PERMISSION,
    "GPM is restricted to administrators: NVreg_RestrictProfilingToAdminUsers=0 or CAP_PERFMON lifts it",
)
WHOLE_GPU = Missing(Reason.UNDER_MIG, "a figure of the whole GPU, not of a slice")


_CELL = struct.Struct("@IId3P")
"""c_nvmlGpmMetric_t: id, return code, value, three pointers to texts."""


class GpmRequest:
    """The driver's request record for all metrics, made once. Its answers are read from the raw memory.

    pynvml's attribute access costs 1 us each and would be a third of the worker's tick.
    """

    def __init__(self) -> None:
        self.record = pynvml.c_nvmlGpmMetricsGet_t()
        self.record.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self.record.numMetrics = len(GPM_METRICS)
        for i, metric in enumerate(GPM_METRICS):
            self.record.metrics[i].metricId = metric.id
        start = pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
        self._cells = memoryview(self.record).cast("B")[start : start + _CELL.size * len(GPM_METRICS)]

    def answers(self) -> Iterator[tuple[GpmMetric, int, float]]:
        """Each metric with its own return code and its number as NVML gives it."""
        for metric, cell in zip(GPM_METRICS, _CELL.iter_unpack(self._cells), strict=True):
            yield metric, cell[1], cell[2]


class Gpm:
    """The activity of one GPU, or of the MIG slice `slice_of` = (handle of the GPU, GPU instance id)."""

    def __init__(self, calls: Calls, handle: Any, request: GpmRequest, slice_of: tuple[Any, int] | None = None) -> None:
        self._calls = calls
        self._handle = handle
        self._request = request
        self._slice_of = slice_of
        self._samples: list[Any] = []
        """The driver's records of the last two samples, the older first."""
        self._sampled_s: float | None = None
        """When the newer was taken (monotonic)."""
        self._unavailable: Missing | None = None
        """Why GPM cannot work here; None: it may."""
        self._is_probed = False
        self._values: dict[str, Reading] = {}
        """Figures of the last read."""

    def read(self) -> dict[str, Reading]:
        """Means since the last read by field name; the last values again where that was less than 150 ms ago.

        By the time of each sample: a tick begins long before that where it reads other GPUs and slow calls first.
        """
        if not self._is_probed:
            self._unavailable = self._probe()
            self._is_probed = True
        if self._unavailable is not None:
            return _for_all_metrics(self._unavailable)
        if self._sampled_s is None or time.monotonic() - self._sampled_s >= CLOSEST_S:
            self._values = self._measure()
        return self._values

    @property
    def source(self) -> str:
        """The `activity_source` of the reading: `gpm` where the last read gave a number."""
        if any(value.__class__ is float for value in self._values.values()):
            return "gpm"
        return ""

    def free(self) -> None:
        """Give the sample records back to the driver; the object is of no use afterwards."""
        for sample in self._samples:
            self._calls.read("nvmlGpmSampleFree", sample)
        self._samples = []

    def _probe(self) -> Missing | None:
        """Why GPM cannot work here; None where it may. Inside a vGPU drivers claim support, so that is asked first."""
        mode = self._calls.read("nvmlDeviceGetVirtualizationMode", self._handle)
        if mode == VGPU:
            return _NO_VGPU
        support = self._calls.read("nvmlGpmQueryDeviceSupport", self._handle)
        if isinstance(support, Missing):
            if support.reason is Reason.NOT_SUPPORTED:
                return _explain_missing(support)
            return None
        if support.isSupportedDevice:
            return None
        return _NO_GPM

    def _measure(self) -> dict[str, Reading]:
        """Take a sample: the means since the one before."""
        if not self._samples and not self._allocate():
            return _for_all_metrics(Missing(Reason.ERROR, "the driver has no memory for GPM samples"))
        older, newer = self._samples
        # The new sample goes into the record of the older one.
        answer = self._sample_into(older)
        if isinstance(answer, Missing):
            self._sampled_s = None
            return _for_all_metrics(_explain_missing(answer))
        self._samples.reverse()
        is_first = self._sampled_s is None
        self._sampled_s = time.monotonic()
        if is_first:
            return _for_all_metrics(WARMING_UP)
        return self._difference(newer, older)

    def _allocate(self) -> bool:
        """Get the two records from the driver; whether it had memory for both."""
        samples = [self._calls.read("nvmlGpmSampleAlloc") for _ in range(2)]
        if not any(isinstance(sample, Missing) for sample in samples):
            self._samples = samples
        else:
            self._samples = []
        return bool(self._samples)

    def _sample_into(self, sample: Any) -> Any:
        """Let the driver fill a sample record; returns Missing where it cannot."""
        if self._slice_of is None:
            return self._calls.read("nvmlGpmSampleGet", self._handle, sample)
        return self._calls.read("nvmlGpmMigSampleGet", *self._slice_of, sample)

    def _difference(self, before: Any, after: Any) -> dict[str, Reading]:
        """Means between two samples by field name."""
        record = self._request.record
        record.sample1 = before
        record.sample2 = after
        answer = self._calls.read("nvmlGpmMetricsGet", record)
        if isinstance(answer, Missing):
            return _for_all_metrics(_explain_missing(answer))
        values: dict[str, Reading] = {}
        for metric, code, number in self._request.answers():
            if metric.whole_gpu and self._slice_of is not None:
                values[metric.field] = WHOLE_GPU
            elif code:
                values[metric.field] = Missing(self._calls.meaning(code).reason)
            else:
                values[metric.field] = number * metric.scale
        return values


def _for_all_metrics(missing: Missing) -> dict[str, Reading]:
    """No metric, for this reason."""
    return {metric.field: missing for metric in GPM_METRICS}


def _explain_missing(missing: Missing) -> Missing:
    """The reason in words, where a call of GPM is not supported or not permitted."""
    if missing.reason is Reason.NOT_SUPPORTED:
        return _NO_GPM
    if missing.reason is Reason.NO_PERMISSION:
        return _NO_PERMISSION
    return missing
