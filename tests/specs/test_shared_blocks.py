"""Blocks that several layers use (Zamba) are stored once, in the format of their own part."""

from __future__ import annotations

import pytest

from gpumon.specs.modules import ATTENTION, HEAD, MLP, ModuleKind, ModuleList
from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import WeightFormat, WeightStorage, stored_weights


def test_a_shared_block_is_stored_once_in_its_own_format() -> None:
    int4 = WeightStorage(Precision.INT4, 0.52)
    weights = WeightFormat({ATTENTION: int4, MLP: int4})
    modules = ModuleList(
        (
            ModuleKind("self_attn.qkv_proj", ATTENTION, (10**9,), tuple(range(6)), copies=3),
            ModuleKind("mlp.up_proj", MLP, (10**9,), tuple(range(4)), copies=3),
            ModuleKind("lm_head", HEAD, (10**8,)),
        )
    )
    assert modules.total == pytest.approx(6.1e9)
    assert modules.active == pytest.approx(10.1e9)
    assert stored_weights(modules, weights).total_bytes == pytest.approx(6e9 * 0.52 + 1e8 * 2.0)
    assert stored_weights(modules, weights).all_read_bytes == pytest.approx(10e9 * 0.52 + 1e8 * 2.0)
