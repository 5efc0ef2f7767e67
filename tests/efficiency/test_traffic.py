"""Bytes per step and per second by hand, the distinct experts, and KV sizes of every catalogue model."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency import traffic
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.llm import Attention, LlmSpec, Reach, State, latent_attention
from gpumon.specs.precision import Precision
from tests.each_row import each_row
from tests.efficiency.small_llm import FULL
from tests.efficiency.small_llm import SMALL as DENSE
from tests.records import replace

MOE = replace(DENSE, experts=8, experts_per_token=2, expert_params=50.0, read_bytes=1000.0, expert_read_bytes=100.0)
LATENT = latent_attention(3, heads=4, rank=16, rope_dim=4, key_dim=12, value_dim=8)
MLA = replace(DENSE, attention=(LATENT,), kv_heads=1)

TABLE = Path(__file__).parents[1] / "data" / "kv_bytes.csv"
CELLS = {row["model"]: row for row in csv.DictReader(TABLE.read_text("utf-8").splitlines())}
"""KV bytes per token at 16 bit, worked out from the published dimensions apart from this code: of all layers, and what
a token adds where the context is beyond every window. Two of its rows are not here: DeepSeek-V4-Pro, which it had
without compression, and Phi-3-mini, whose window it did not have."""
INDEX_KEYS = {"deepseek-ai/DeepSeek-V3.2": 61 * 132, "zai-org/GLM-5-FP8": 78 * 132}
"""Bytes of the indexer's FP8 keys with their scales, which the table leaves out. All of them are read."""


def llm(model_id: str) -> LlmSpec:
    found = llm_catalogue().find(model_id)
    assert found is not None
    return found


def test_dense_weights_are_read_once_a_step_whatever_the_batch() -> None:
    assert traffic.weight_read_bytes(DENSE, 1) == traffic.weight_read_bytes(DENSE, 500) == 2000.0


def test_moe_weights_are_the_rest_and_the_distinct_experts() -> None:
    assert traffic.weight_read_bytes(MOE, 0) == 200.0
    assert traffic.weight_read_bytes(MOE, 1) == pytest.approx(200.0 + 2 * 100.0)
    assert traffic.weight_read_bytes(MOE, 2) == pytest.approx(200.0 + 8 * (1 - 0.75**2) * 100.0)
    assert traffic.weight_read_bytes(MOE, 1e6) == pytest.approx(1000.0)


@each_row(
    ("experts", "per_token", "expected"),
    [
        (128, 8, {1: 8, 4: 29, 8: 52, 16: 82, 32: 112, 64: 126, 128: 128}),
        (128, 4, {1: 4, 4: 15, 8: 29, 16: 51, 32: 82, 64: 111, 128: 126}),
        (256, 8, {1: 8, 4: 31, 8: 57, 16: 102, 32: 163, 64: 222, 128: 252}),
        (8, 2, {1: 2, 4: 5.5, 8: 7.2, 16: 7.9, 32: 8}),
    ],
)
def test_distinct_experts(experts: int, per_token: int, expected: dict[int, float]) -> None:
    """The sizing fact sheet's table of E*(1-(1-k/E)^B)."""
    for batch, touched in expected.items():
        rounding = 0.05 if experts == 8 else 0.5
        assert traffic.distinct_experts(experts, per_token, batch) == pytest.approx(touched, abs=rounding)


@given(st.integers(1, 512), st.data(), st.floats(0, 1e5), st.floats(0, 1e5))
def test_weights_read_grow_with_the_batch_and_stay_below_all(
    experts: int, data: st.DataObject, a: float, b: float
) -> None:
    per_token = data.draw(st.integers(1, experts))
    model = replace(MOE, experts=experts, experts_per_token=per_token, read_bytes=experts * 100.0 + 200.0)
    low, high = sorted((a, b))
    read = [traffic.weight_read_bytes(model, batch) for batch in (low, high)]
    assert 200.0 - 1e-6 <= read[0] <= read[1] * (1 + 1e-12) <= model.read_bytes * (1 + 1e-9)


def test_kv_by_hand() -> None:
    assert traffic.kv_bytes_per_token(DENSE) == 5 * 2 * 2 * 8 * 2
    assert traffic.kv_bytes_per_token(DENSE, Precision.FP8) == 5 * 2 * 2 * 8
    assert traffic.kv_bytes_per_token(MLA) == 3 * 20 * 2
    assert traffic.kv_read_bytes(DENSE, 50) == 5 * 50 * 64
    assert traffic.kv_read_bytes(DENSE, 1000) == (3 * 1000 + 2 * 100) * 64


def test_what_can_not_be_divided_is_read_by_every_rank() -> None:
    assert traffic.kv_read_bytes(MLA, 10, tp=8) == 8 * traffic.kv_read_bytes(MLA, 10)
    assert traffic.kv_read_bytes(DENSE, 10, tp=2) == traffic.kv_read_bytes(DENSE, 10)
    assert traffic.kv_read_bytes(DENSE, 10, tp=8) == 4 * traffic.kv_read_bytes(DENSE, 10)


def test_a_linear_state_is_read_and_written_each_step_at_any_context() -> None:
    state = State("delta net", 4, elements=125.0, flops=875.0)
    hybrid = replace(DENSE, attention=(FULL,), states=(state,))
    assert traffic.kv_read_bytes(hybrid, 0) == 2 * 500 * 2
    assert traffic.kv_read_bytes(hybrid, 10) == 2000 + 3 * 10 * 64
    assert traffic.kv_stored_bytes(hybrid, 10) == 1000 + 3 * 10 * 64
    wide = replace(hybrid, states=(replace(state, bytes_per_element=4.0),))
    assert traffic.state_bytes(wide) == 2 * traffic.state_bytes(hybrid) == 2000


def test_an_indexer_reads_all_of_its_own_keys_and_its_layer_the_chosen_entries() -> None:
    """Keys of 8 elements in FP8, as written: 1 byte each whatever the cache has."""
    chosen = replace(LATENT, reach=Reach.TOP, limit=64)
    keys = Attention(Reach.INDEX, 3, 160.0, 160.0, elements=8.0, bytes_per_element=1.0)
    sparse = replace(MLA, attention=(chosen, keys))
    assert traffic.kv_bytes_per_token(sparse) == 3 * 20 * 2 + 3 * 8
    assert traffic.kv_read_bytes(sparse, 1000) == 3 * 64 * 20 * 2 + 3 * 1000 * 8
    assert traffic.kv_stored_bytes(sparse, 1000) == 3 * 1000 * (20 * 2 + 8)


def test_a_layer_that_shares_a_cache_reads_it_and_keeps_nothing() -> None:
    borrowed = replace(FULL, layers=1, shared=True)
    model = replace(DENSE, attention=(FULL, borrowed))
    assert traffic.kv_bytes_per_token(model) == 3 * 64
    assert traffic.kv_stored_bytes(model, 10) == 3 * 64 * 10
    assert traffic.kv_read_bytes(model, 10) == 4 * 64 * 10


@each_row("name", CELLS)
def test_kv_of_known_models(name: str) -> None:
    model, cells = llm(name), CELLS[name]
    keys = INDEX_KEYS.get(name, 0)
    assert traffic.kv_bytes_per_token(model, Precision.BF16) == float(cells["kv_bytes_per_token_bf16"]) + keys
    far = 1e5
    marginal = traffic.kv_read_bytes(model, far + 1, 1, Precision.BF16)
    marginal -= traffic.kv_read_bytes(model, far, 1, Precision.BF16)
    assert marginal == pytest.approx(keys or float(cells["beyond_window"]), abs=2.0)


@each_row(
    ("model_id", "bytes_per_token"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 131_072),
        ("Qwen/Qwen3-32B", 262_144),
        ("deepseek-ai/DeepSeek-V3", 70_272),
        ("openai/gpt-oss-120b", 73_728),
        ("google/gemma-3-27b-it", 507_904),
        ("Mistral-Small-3.2-24B-Instruct-2506", 163_840),
        ("tiiuae/falcon-7b", 8_192),
    ],
)
def test_kv_bytes_that_engines_report(model_id: str, bytes_per_token: float) -> None:
    assert traffic.kv_bytes_per_token(llm(model_id), Precision.BF16) == bytes_per_token


@each_row(
    ("model_id", "gib"),
    [
        ("meta-llama/Llama-3.1-8B", 14.99),
        ("Qwen/Qwen3-32B", 61.03),
        ("Llama-3.3-70B-Instruct-FP8-dynamic", 2 * 33.88),
        ("Qwen/Qwen3-0.6B", 1.12),
    ],
)
def test_weights_are_what_vllm_loads(model_id: str, gib: float) -> None:
    """llm-d-planner's empirical vLLM 0.11 results on an H100: GiB of weights, embedding table included."""
    model = llm(model_id)
    table = (model.params - model.matmul_params) if not model.experts else 0.0
    assert (model.read_bytes + 2 * table) / 2**30 == pytest.approx(gib, rel=0.01)


def test_bytes_per_second_by_hand() -> None:
    assert traffic.step_bytes_per_s(DENSE, 10.0, 40.0, 50.0) == 10 * 2000 + 40 * traffic.kv_read_bytes(DENSE, 50)
    speculative = traffic.step_bytes_per_s(DENSE, 10.0, 40.0, 50.0, tokens_per_step=2.0)
    assert speculative == 10 * 2000 + 20 * traffic.kv_read_bytes(DENSE, 50)
    assert traffic.step_bytes_per_s(DENSE, 0.0, 0.0, 50.0) == 0.0


def test_single_stream_is_parameters_times_bytes_times_tokens() -> None:
    assert traffic.single_stream_bytes_per_s(DENSE, 7.0) == 1200 * 2 * 7
    assert traffic.single_stream_bytes_per_s(llm("meta-llama/Llama-3.1-8B"), 100.0) == pytest.approx(
        8.03e9 * 2 * 100, rel=0.001
    )


@given(st.floats(0.01, 1e4), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1, 8))
def test_bytes_are_never_below_the_weights_nor_above_the_batch_of_streams(
    steps: float, tokens: float, context: float, tau: float
) -> None:
    moved = traffic.step_bytes_per_s(DENSE, steps, tokens, context, tau)
    assert moved >= steps * DENSE.read_bytes
    assert moved <= steps * DENSE.read_bytes + tokens * traffic.kv_read_bytes(DENSE, context) + 1e-6


@each_row("bad", [-1.0, math.nan, math.inf])
def test_bad_rates_are_named(bad: float) -> None:
    with pytest.raises(ValueError, match="steps_per_s"):
        traffic.step_bytes_per_s(DENSE, bad, 1.0, 1.0)
    with pytest.raises(ValueError, match="decode_tokens_per_s"):
        traffic.step_bytes_per_s(DENSE, 1.0, bad, 1.0)
    with pytest.raises(ValueError, match="context_tokens"):
        traffic.step_bytes_per_s(DENSE, 1.0, 1.0, bad)
    with pytest.raises(ValueError, match="batch"):
        traffic.weight_read_bytes(DENSE, bad)
    with pytest.raises(ValueError, match="tokens_per_s"):
        traffic.single_stream_bytes_per_s(DENSE, bad)


def test_experts_that_are_spread_over_peers_are_read_in_parts() -> None:
    """8 experts, 2 per token: 4 tokens of each of 2 peers touch 8*(1 - 0.75^8) experts, of which each reads half."""
    touched = 8 * (1 - 0.75**8) / 2
    assert traffic.weight_read_bytes(MOE, 4.0, 2.0) == pytest.approx(200.0 + 100.0 * touched)
    with pytest.raises(ValueError, match="peers"):
        traffic.weight_read_bytes(MOE, 4.0, 0.5)
    with pytest.raises(ValueError, match="group_steps_per_s"):
        traffic.weight_bytes_per_s(MOE, 10.0, 40.0, traffic.WeightSharing(0.0))
