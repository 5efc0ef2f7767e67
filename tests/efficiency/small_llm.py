"""A dense model with round figures, for sums that can be done by hand."""

from __future__ import annotations

from gpumon.specs.llm import LlmSpec

SMALL = LlmSpec(
    name="small",
    source="test",
    params=1200.0,
    matmul_params=1000.0,
    vocab=20,
    hidden=10,
    heads=4,
    kv_heads=2,
    head_dim=8,
    full_layers=3,
    window_layers=2,
    window=100,
    read_bytes=2000.0,
)
