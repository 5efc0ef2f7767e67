"""A dense model with round figures, for sums that can be done by hand."""

from __future__ import annotations

from gpumon.specs.llm import LlmSpec, Reach, grouped_attention

FULL = grouped_attention(3, heads=4, kv_heads=2, head_dim=8)
WINDOW = grouped_attention(2, heads=4, kv_heads=2, head_dim=8, reach=Reach.WINDOW, limit=100)

SMALL = LlmSpec(
    name="small",
    source="test",
    params=1200.0,
    matmul_params=1000.0,
    head_params=200.0,
    vocab=20,
    hidden=10,
    layers=5,
    heads=4,
    kv_heads=2,
    head_dim=8,
    attention=(FULL, WINDOW),
    read_bytes=2000.0,
)
