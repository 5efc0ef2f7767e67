"""Figures of a machine in a span: sums and means of all its parts, or none."""

from __future__ import annotations

from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.span import host_figures
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sources.packaged import gpu_catalogue
from tests.each_row import each_row
from tests.efficiency.polls import frame, gpu

UNTOLD = Missing(Reason.NOT_SUPPORTED, "not under MIG")


@each_row(
    ("facts", "expected"),
    [
        ({"busy_ratio": 0.5}, 0.75),
        ({"busy_ratio": UNTOLD}, 1.0),  # it never tells
        ({"state": GpuState.LOST}, Missing(Reason.LOST)),
    ],
)
def test_busy_is_no_mean_of_the_gpus_that_are_left(facts: dict[str, object], expected: Reading) -> None:
    snapshot = Deriver(gpu_catalogue()).derive(frame(0.0, (gpu(0), gpu(1, **facts)))).snapshot
    assert host_figures(snapshot)["busy_ratio"] == expected
