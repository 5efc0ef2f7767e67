"""Blocks that several layers use (Zamba) are stored once, in the format of their own part."""

from __future__ import annotations

import pytest

from gpumon.specs.layers import ATTENTION, MLP
from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import LlmParts, WeightFormat, WeightStorage


def test_a_shared_block_is_stored_once_in_its_own_format() -> None:
    int4 = WeightStorage(Precision.INT4, 0.52)
    weights = WeightFormat({ATTENTION: int4, MLP: int4})
    parts = LlmParts(multiplied={ATTENTION: 6e9, MLP: 4e9}, head=1e8, repeated={ATTENTION: 3e9, MLP: 1e9})
    assert parts.total == pytest.approx(6.1e9)
    assert parts.stored_bytes(weights) == pytest.approx(6e9 * 0.52 + 1e8 * 2.0)
