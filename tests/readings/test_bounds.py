"""Numbers that a GPU cannot have, by themselves and beside its other figures."""

from __future__ import annotations

from gpumon.figures.gpu import GPU
from gpumon.readings.bounds import drop_impossible, why_impossible
from gpumon.readings.frame import GPU_FIGURES
from gpumon.readings.missing import Missing
from tests.each_row import each_row


@each_row(
    ("field", "value", "why"),
    [
        ("power_w", 800.0, ""),
        ("power_w", 801.0, "more than 2 x its power limit of 400"),
        ("power_w", 25_000.0, "0 to 20000 is possible"),
        ("power_w", -1.0, "0 to 20000 is possible"),
        ("vram_used_bytes", 80e9, ""),
        ("vram_used_bytes", 81e9, "more than its vram total of 8e+10"),
        ("temperature_c", 151.0, "0 to 150 is possible"),
    ],
)
def test_why_a_number_can_not_be_true(field: str, value: float, why: str) -> None:
    beside = {"power_limit_w": 400.0, "vram_total_bytes": 80e9}
    assert why_impossible(GPU, field, {**beside, field: value}) == why


@each_row(
    ("field", "limit", "told"),
    [
        ("power_w", "power_limit_w", -1.0),
        ("vram_used_bytes", "vram_total_bytes", -1.0),
        ("sm_clock_hz", "sm_clock_max_hz", -1.0),
        ("memory_clock_hz", "memory_clock_max_hz", -1.0),
    ],
)
def test_a_limit_that_can_not_be_true_bounds_nothing(field: str, limit: str, told: float) -> None:
    assert why_impossible(GPU, field, {field: 300.0, limit: told}) == ""
    values = {field: 300.0, limit: told}
    assert drop_impossible(GPU, values, GPU_FIGURES)
    assert values[field] == 300.0
    assert isinstance(values[limit], Missing)
