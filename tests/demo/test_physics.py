"""What a step costs: dimensions against published parameter counts, times against published latencies."""

from __future__ import annotations

import pytest

from gpumon.demo.physics import (
    H100,
    LLAMA_8B,
    LLAMA_70B,
    QWEN_30B_A3B,
    EngineStep,
    ModelCopy,
    ModelShape,
    Speed,
)
from gpumon.demo.scenarios import DEMO
from tests.each_row import each_row
from tests.records import replace

LLAMA_70B_BF16 = replace(LLAMA_70B, weight_bytes=2.0)
SPEED = {actor.shape: actor.speed for actor in DEMO.cast}
SPEED[LLAMA_70B_BF16] = SPEED[LLAMA_70B]


@each_row(
    ("shape", "total_b", "active_b", "kv_bytes"),
    [(LLAMA_8B, 8.03, 7.50, 131072), (LLAMA_70B, 70.55, 69.50, 327680), (QWEN_30B_A3B, 30.53, 3.04, 98304)],
)
def test_dimensions_give_the_published_parameter_counts(
    shape: ModelShape, total_b: float, active_b: float, kv_bytes: int
) -> None:
    matmul = shape.shared_params + shape.experts_per_token * shape.expert_params + shape.head_params
    total = shape.shared_params + shape.experts * shape.expert_params + 2 * shape.head_params
    assert total / 1e9 == pytest.approx(total_b, abs=0.01)
    assert matmul / 1e9 == pytest.approx(active_b, abs=0.01)
    assert shape.kv_bytes == kv_bytes


@each_row(
    ("shape", "gpus", "sequences", "published_ms"),
    [
        # aiconfigurator 0.12, vLLM on H100, 1024 in and 1024 out: mean context 1536.
        (LLAMA_8B, 1, 1, 6.21),
        (LLAMA_8B, 1, 32, 9.50),
        (LLAMA_8B, 1, 64, 12.53),
        (LLAMA_8B, 1, 128, 17.75),
        (LLAMA_70B_BF16, 4, 1, 14.92),
        (LLAMA_70B_BF16, 4, 32, 19.37),
        (QWEN_30B_A3B, 1, 1, 4.70),
        (QWEN_30B_A3B, 1, 2, 6.0),
        (QWEN_30B_A3B, 1, 4, 7.9),
    ],
)
def test_decode_steps_last_about_as_long_as_published(
    shape: ModelShape, gpus: int, sequences: int, published_ms: float
) -> None:
    instance = ModelCopy(shape, H100, SPEED[shape], gpus)
    cost = instance.cost(EngineStep(sequences, sequences * 1536.0))
    assert cost.memory_bound
    assert cost.seconds * 1e3 == pytest.approx(published_ms, rel=0.17)


@each_row(
    ("shape", "gpus", "tokens", "published_ms"),
    [
        (LLAMA_8B, 1, 1024, 22.1),
        (LLAMA_8B, 1, 8192, 199.7),
        (LLAMA_70B_BF16, 4, 1024, 67.4),
        (LLAMA_70B_BF16, 4, 8192, 576.8),
    ],
)
def test_prefill_lasts_about_as_long_as_published(
    shape: ModelShape, gpus: int, tokens: int, published_ms: float
) -> None:
    instance = ModelCopy(shape, H100, SPEED[shape], gpus)
    cost = instance.cost(EngineStep(0, 0.0, tokens, tokens * tokens / 2, tokens, 1, 1))
    assert not cost.memory_bound
    assert cost.seconds * 1e3 == pytest.approx(published_ms, rel=0.17)


def test_a_step_by_hand() -> None:
    """Two layers of width 4, two decoding sequences with five tokens in context each."""
    shape = ModelShape(2, 4, 2, 1, 2, 8, 16, weight_bytes=2.0)
    assert shape.shared_params == 2 * (4 * 4 + 2 * 4 * 2 + 4 * 4 + 3 * 4 * 8)
    instance = ModelCopy(shape, H100, Speed(0.5, 0.8, 1e-3, 1e-4), 1)
    cost = instance.cost(EngineStep(2, 10.0))
    assert cost.flops == 2 * 2 * 288 + 2 * 2 * 64 + 4 * 2 * 2 * 2 * 10
    assert cost.weight_bytes == (288 + 64) * 2
    assert cost.kv_bytes == 10 * (2 * 2 * 1 * 2) * 2
    assert cost.dram_bytes == pytest.approx(1.05 * (704 + 160) + 2 * 2 * 2 * (10 * 4 + 4 * 8))
    assert cost.overhead_s == pytest.approx(1.2e-3)


def test_experts_read_grow_from_the_active_ones_to_all() -> None:
    shape = QWEN_30B_A3B
    expert = shape.expert_params * shape.weight_bytes

    def distinct(tokens: int) -> float:
        return (shape.weight_read_bytes(tokens) - shape.weight_read_bytes(0)) / expert

    assert [round(distinct(tokens)) for tokens in (1, 4, 8, 16, 32, 64, 128)] == [8, 29, 52, 82, 112, 126, 128]


@each_row("actor", DEMO.cast, named=lambda actor: actor.name)
def test_memory_of_a_worker_fits_its_share_of_the_card(actor) -> None:
    limits = actor.limits
    pool = limits.kv_pool_blocks * 16 * actor.shape.kv_bytes / len(actor.ranks[0])
    weights = actor.shape.file_bytes / len(actor.ranks[0])
    rest = (actor.activation_gib + actor.other_gib) * (1 << 30)
    assert pool + weights + rest <= actor.gpu_memory_utilization * H100.memory_bytes
    assert (limits.kv_pool_blocks - 1) * 16 >= limits.max_model_len
