"""GPUs that wait for each other: links by the mean of the same seconds as all else."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Limit
from tests.triage.engines import BUSY, PEAK, judged, limits, of_engine, scene
from tests.triage.stage import Family, Of

TP2 = {"tp": 2, "mfu_ratio": 0.08, "mfu_prefill_ratio": 0.04, "mbu_ratio": 0.2}
WAITS = {**BUSY, "tensor_active_ratio": 0.1, "bandwidth_bytes_per_s": 0.2 * PEAK, "processes": ()}
NVLINK = ({"nvlink_bytes_per_s": 3e11}, {"nvlink_bytes_per_s": 2e11}, "NVLink carries 28")
PCIE: Any = (
    {"nvlink_bytes_per_s": NOT_SUPPORTED, "pcie_tx_bytes_per_s": 2e10, "pcie_rx_bytes_per_s": 1e10},
    {"nvlink_bytes_per_s": NOT_SUPPORTED, "pcie_tx_bytes_per_s": 0.0, "pcie_rx_bytes_per_s": 0.0},
    "PCIe carries 16",
)
LINK = {"pcie_width": 16.0, "pcie_generation": 4.0, "gpu_type": "H100 SXM 80GB"}


@pytest.mark.parametrize(("most", "dip", "text"), [NVLINK, ({**PCIE[0]}, {**PCIE[1]}, PCIE[2])])
def test_a_dip_of_a_second_is_no_end_of_a_link_in_use(most: dict[str, Any], dip: dict[str, Any], text: str) -> None:
    kind = {"gpu_type": "L40S"} if "PCIe" in text else {}

    def at(tick: int) -> tuple[Of, ...]:
        card = {**WAITS, **LINK, **kind, **(most if tick % 5 else dip)}
        return scene(TP2, (card, card))(tick)

    last = judged(at, 200)
    assert limits(last) == (Limit.COMMUNICATION,)
    found = of_engine(last, Family.LIMIT)
    assert found is not None
    assert text in found.text
