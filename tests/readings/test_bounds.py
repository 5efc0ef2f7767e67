"""Numbers that a GPU cannot have, by themselves and beside its other figures."""

from __future__ import annotations

from gpumon.figures.gpu import GPU
from gpumon.readings.bounds import why_impossible
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
