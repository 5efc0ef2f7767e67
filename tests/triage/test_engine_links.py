"""GPUs that wait for each other: links by the mean of the same seconds as all else."""

from __future__ import annotations

from typing import Any

from gpumon.readings.missing import NOT_SUPPORTED
from tests.triage.engines import BUSY, PEAK

TP2 = {"tp": 2, "mfu_ratio": 0.08, "mfu_prefill_ratio": 0.04, "mbu_ratio": 0.2}
WAITS = {**BUSY, "tensor_active_ratio": 0.1, "bandwidth_bytes_per_s": 0.2 * PEAK, "processes": ()}
NVLINK = ({"nvlink_bytes_per_s": 3e11}, {"nvlink_bytes_per_s": 2e11}, "NVLink carries 28")
PCIE: Any = (
    {"nvlink_bytes_per_s": NOT_SUPPORTED, "pcie_tx_bytes_per_s": 2e10, "pcie_rx_bytes_per_s": 1e10},
    {"nvlink_bytes_per_s": NOT_SUPPORTED, "pcie_tx_bytes_per_s": 0.0, "pcie_rx_bytes_per_s": 0.0},
    "PCIe carries 16",
)
LINK = {"pcie_width": 16.0, "pcie_generation": 4.0, "gpu_type": "H100 SXM 80GB"}
