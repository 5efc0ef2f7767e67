"""MFU of real engines with models of other architectures than Llama's: within 5% of the real model code's FLOPs.

Nothing here knows how gpumon counts: the FLOPs are the oracle's, per token and per pair of tokens, the tokens are the
client's, and MFU is what `gpumon watch --json` shows.
"""

from __future__ import annotations

import pytest

from tests.accuracy.served import NAMES, Compared, Cost, compare, costs

KINDS = {
    "a Mamba hybrid": {"granitemoehybrid", "nemotron_h"},
    "a linear-attention hybrid": {"qwen3_next"},
    "a mixture of experts with sliding windows": {"gpt_oss"},
    "a mixture of experts with MLA": {"deepseek_v3"},
}
MOST_ERROR = 0.05
MOST_ERROR_OF_A_PART = 0.08
"""Prompts and answers apart: the first token of an answer is booked as decoded, though its prompt's prefill gave it."""


@pytest.fixture(scope="module")
def compared() -> dict[str, Compared]:
    return {each.name: each for each in compare(NAMES)}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_was_served(kind: str):
    assert KINDS[kind] & {model_type for model_type, _ in costs().values()}


@pytest.mark.parametrize("name", NAMES)
def test_mfu_is_what_the_clients_tokens_needed(compared: dict[str, Compared], name: str):
    result = compared[name]
    assert result.shown == pytest.approx(result.prefill + result.decode, rel=MOST_ERROR), result
    assert result.shown_prefill == pytest.approx(result.prefill, rel=MOST_ERROR_OF_A_PART), result
    assert result.shown_decode == pytest.approx(result.decode, rel=MOST_ERROR_OF_A_PART), result


@pytest.mark.parametrize("name", NAMES)
def test_prompts_and_answers_both_weigh(compared: dict[str, Compared], name: str):
    result = compared[name]
    assert 0.2 < result.prefill / (result.prefill + result.decode) < 0.9


def test_attention_weighs_somewhere(compared: dict[str, Compared]):
    assert max(each.attention / (each.prefill + each.decode) for each in compared.values()) > 0.1


def test_pairs_by_hand():
    cost = Cost(token=100.0, head=10.0, full_pair=1.0, window_pair=2.0, window=2, decode_full_pair=5.0)
    # Positions 1, 2, 3 see 1 + 2 + 3 keys, in the window 1 + 2 + 2.
    assert cost.prefill(3) == 3 * 100 + 10 + 6 + 2 * 5
    # The answer's other tokens are at the positions 4 and 5.
    assert cost.decode(3, 3) == 2 * 110 + 5 * (4 + 5) + 2 * (2 + 2)
    assert cost.decode(3, 1) == 0.0
