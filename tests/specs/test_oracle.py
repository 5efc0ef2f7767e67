"""Every figure that follows from a config is what the real model code has, multiplies and keeps; or it is refused.

The counts are those of `make oracle` (tests/oracle): transformers' own models on the meta device, PyTorch's FLOP
counter and the real caches. `tests.specs.oracle_table` prints what is right and what is refused for docs/models.md.
"""

from __future__ import annotations

import functools
from typing import Final

import pytest

from gpumon.efficiency.reach import entries_kept
from gpumon.specs.llm import CONVOLUTION, Attention, LlmSpec, Reach
from tests.each_row import each_row
from tests.specs import oracle, oracle_table
from tests.specs.oracle import Row, number

COUNTED: Final = [row for row in oracle.rows("parameters") if row["params"]]


@functools.cache
def read() -> list[Row]:
    """Counted models that are not refused."""
    return [row for row in COUNTED if not oracle.refusal(row)]


@functools.cache
def runs() -> list[Row]:
    """Runs of models that are not refused, with their FLOPs."""
    return [row for row in oracle.rows("flops") if row["phase"] and not oracle.refusal(row)]


@functools.cache
def caches() -> list[Row]:
    """Caches of models that are not refused."""
    held = [row for row in oracle.rows("caches") if number(row, "tokens") and row["id"] not in WHOLE]
    return [row for row in held if not oracle.refusal(row)]


ENCODER_DECODERS: Final = {
    *("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "mvp", "pegasus", "plbart"),
    *("prophetnet", "trocr", "whisper"),
}


def named(row: Row) -> str:
    tokens = f" {row['phase']} {row['tokens']}+{row['context']}" if "phase" in row else ""
    return f"{row['id']} {row['class']}{tokens}"


def test_parameters() -> None:
    assert [named(row) for row in read() if not oracle.right(row, oracle.spec(row))] == []


def test_nearly_all_models_are_known_and_the_others_are_refused_with_a_reason() -> None:
    """At least 95% of the released and 85% of the default decoders and encoders."""
    for kind, least in (("released", 0.95), ("defaults", 0.85)):
        ids = {row["id"] for row in COUNTED if row["kind"] == kind} - ENCODER_DECODERS
        known = {row["id"] for row in read() if row["kind"] == kind}
        # Of what transformers has gained since, no share is promised.
        asked = ids if kind == "released" else ids & oracle_table.ASKED
        assert len(known & asked) >= least * len(asked)
    for row in COUNTED:
        assert row["kind"] == "variants" or not (why := oracle.refusal(row)) or "model_type" in why


def test_docs_say_what_is_right_and_what_is_refused() -> None:
    assert oracle_table.section() in oracle_table.DOCS.read_text("utf-8")


# What the real code does beyond the formula, by model type: share of the figure.
ALL_EXPERTS: Final = ("llama4", "llama4_text")
"""Its eager code multiplies every expert; servers those of the token."""
STREAMS: Final = {"gemma3n": 0.1, "gemma3n_text": 0.1, "deepseek_v4": 0.02, "inkling2": 0.04, "inkling2_text": 0.04}
"""Products that mix residual streams or groups of heads are counted with attention."""
OTHER_WINDOW: Final = ("gemma3n", "gemma3n_text", "mimo_v2_flash")

WHOLE: Final = ("gpt_neo", "falcon/grouped")
"""Their code masks the window instead of keeping only that, or repeats the KV heads for all heads in the cache."""


@each_row("row", runs, named)
def test_flops_of_matrices(row: Row) -> None:
    """Per token: linear layers and the token's experts. MLA's projections of the cache are those of one token."""
    found, tokens = oracle.spec(row), number(row, "tokens")
    linear = number(row, "linear") + number(row, "experts")
    if row["phase"] == "decode" and found.latent:
        linear += number(row, "linear_cached") / _cached(found, row)
    if row["model_type"] in ALL_EXPERTS:
        linear -= number(row, "experts") * (1.0 - found.experts_per_token / found.experts)
    assert 2.0 * (found.matmul_params - found.head_params) * tokens == pytest.approx(linear, rel=0.03)
    assert 2.0 * found.head_params * tokens == pytest.approx(number(row, "head"), rel=0.001)


@each_row("row", runs, named)
def test_flops_of_attention(row: Row) -> None:
    """Per pair of tokens. Eager prefill multiplies the whole square, masked; sparse attention all pairs, masked too."""
    found = oracle.spec(row)
    looked = {True: 0.0, False: 0.0}
    crossed = 0.0
    for each in found.attention:
        flops = each.layers * each.prefill_flops * _pairs(each, row)
        if each.reach is Reach.CROSS:
            crossed += flops
        else:
            looked[each.reach is Reach.INDEX] += flops
    # How long the text beside a decoder of text pairs is, no config says: what attends to it is left out.
    assert crossed == pytest.approx(number(row, "cross") if crossed else 0.0, rel=0.001)
    spare = STREAMS.get(row["model_type"], 0.01)
    masks = any(each.reach in (Reach.CHUNK, Reach.ENCODER) for each in found.attention) or row["id"] in WHOLE
    if not (row["phase"] == "decode" and masks):
        assert looked[False] == pytest.approx(number(row, "attention"), rel=max(0.03, spare))
    assert looked[True] == pytest.approx(number(row, "indexer"), rel=0.02, abs=0.005 * number(row, "total"))


def _cached(found: LlmSpec, row: Row) -> float:
    """Tokens of the cache that a step of MLA projects anew: the mean over its layers."""
    layers = sum(each.layers for each in found.attention if each.reach is not Reach.INDEX)
    seen = sum(each.layers * _pairs(each, row) for each in found.attention if each.reach is not Reach.INDEX)
    return seen / layers


def _pairs(attention: Attention, row: Row) -> float:
    tokens, context = number(row, "tokens"), number(row, "context")
    if attention.reach is Reach.CROSS:
        return tokens * attention.limit
    if row["phase"] == "prefill":
        return tokens * tokens / attention.stride
    whole = context + 1.0
    return min(whole, attention.limit if attention.reach is Reach.WINDOW else whole) / attention.stride


@each_row("row", caches, named)
def test_elements_of_the_cache(row: Row) -> None:
    """Exact, but for what transformers keeps otherwise than servers: one token less of a window, one input more of a
    convolution, DeepSeek-V4's one tensor under the names of keys and of values."""
    found, tokens = oracle.spec(row), number(row, "tokens")
    held = {
        reach: sum(
            each.layers * each.elements * entries_kept(each, tokens) for each in found.attention if each.reach is reach
        )
        for reach in Reach
    }
    windows = [each for each in found.attention if each.reach in (Reach.WINDOW, Reach.CHUNK) and not each.shared]
    less = sum(each.layers * each.elements for each in windows if tokens >= each.limit)
    if any(each.stride > 1 for each in found.attention):
        assert held[Reach.WINDOW] - less <= number(row, "keys") <= held[Reach.WINDOW] * 1.02
        rest = held[Reach.TOP] + held[Reach.FULL] + held[Reach.INDEX]
        assert rest == pytest.approx(number(row, "compressed"), rel=0.03)
        return
    assert held[Reach.CROSS] in (0.0, number(row, "cross_keys") + number(row, "cross_values"))
    whole = sum(held.values()) - held[Reach.INDEX] - held[Reach.CROSS]
    spare = 0.011 if row["model_type"] in OTHER_WINDOW else 0.0
    assert whole - less <= (number(row, "keys") + number(row, "values")) * (1 + spare)
    assert number(row, "keys") + number(row, "values") <= whole * (1 + spare)
    # MiniMax-M3's and MiniMax-01's own classes of cache are listed under `other`.
    assert held[Reach.INDEX] == number(row, "indexer_keys") or held[Reach.INDEX] == number(row, "other")


SAME_FORMAT: Final = frozenset(
    ("bailing_hybrid", "kimi_linear", "lfm2", "lfm2_moe", "minimax", "nemotron_h", "qwen3_5", "qwen3_5_moe")
)
"""Families whose published configs make vLLM keep states as transformers does."""
ONLY_TRANSFORMERS: Final = frozenset(("rwkv",))
"""Families that vLLM does not serve, counted by the defaults of their config class."""


def counted_alike() -> list[Row]:
    """Models of these families; of the first ones the published models."""
    rows = []
    for row in caches():
        is_published = row["model_type"] in SAME_FORMAT and row["kind"] == "released"
        if is_published or row["model_type"] in ONLY_TRANSFORMERS:
            rows.append(row)
    return rows


@each_row("row", counted_alike, named)
def test_states_of_32_bit(row: Row) -> None:
    states = oracle.spec(row).states
    assert sum(each.layers * each.elements for each in states if each.bytes_per_element == 4.0) == number(
        row, "float32"
    )


@each_row("row", caches, named)
def test_elements_of_states(row: Row) -> None:
    found = oracle.spec(row)
    recurrent = sum(each.layers * each.elements for each in found.states if each.kind != CONVOLUTION)
    assert recurrent in (number(row, "recurrent_states"), number(row, "other"))
    inputs = sum(each.layers * each.elements for each in found.states if each.kind == CONVOLUTION)
    assert number(row, "conv_states") * 0.6 <= inputs <= number(row, "conv_states")
