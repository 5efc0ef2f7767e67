"""Rows of 2025 and 2026: classes that silicon.csv lacks, by constants that few of them were fitted to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import median

import pytest

from gpumon.sizing.roofline import roofline
from tests.accuracy.silicon_rows import FEW_PROMPTS, RECENT, Row, read
from tests.each_row import each_row


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    found, left = read(RECENT)
    assert left == Counter({FEW_PROMPTS: 5})
    return found


def off(row: Row) -> float:
    """Predicted over measured ITL, minus 1."""
    return roofline(row.setting).itl_s(row.running) / row.itl_s - 1.0


CLASSES: dict[str, Callable[[Row], bool]] = {
    "layers of one mixer or one feed-forward part": lambda row: "Nemotron-3-Nano" in row.model,
    "1.5 billion parameters": lambda row: "1.5B" in row.model,
    "TP through host memory": lambda row: row.gpu == "RTX 4090" and row.tp > 1,
    "delta nets": lambda row: "Qwen3.8" in row.model and not row.setting.speculation.tokens,
    "drafters": lambda row: row.setting.speculation.tokens > 0.0,
    "MI300X": lambda row: row.gpu == "MI300X",
    "one GPU, dense, 16 bit": lambda row: row.tp == 1 and row.gpu in ("RTX 4090", "H100 PCIe 80GB"),
}


@each_row("named", CLASSES)
def test_no_class_is_far_off(rows: list[Row], named: str) -> None:
    errors = [off(row) for row in rows if CLASSES[named](row)]
    assert len(errors) >= 3
    assert abs(median(errors)) < 0.21, errors
    assert median(map(abs, errors)) < 0.25, errors
    assert max(map(abs, errors)) < 0.4, errors


def test_rows_that_no_constant_was_fitted_to(rows: list[Row]) -> None:
    """Llama and Qwen of 7 and 8 billion parameters on one GPU, and Granite."""
    sizes = ("7B", "8B", "8b")
    errors = [off(row) for row in rows if row.tp == 1 and row.gpu != "MI300X" and row.model.endswith(sizes)]
    assert len(errors) > 10
    assert abs(median(errors)) < 0.05
    assert median(map(abs, errors)) < 0.15
