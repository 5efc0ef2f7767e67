"""MFU of a prefill whose prompts change their length: against the FLOPs of every prompt that got its first token."""

from __future__ import annotations

import bisect
import collections
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpumon.efficiency.flops import head_flops, prefill_flops_per_token
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading, HistogramReading
from gpumon.specs.llm import LlmSpec, grouped_attention
from tests.each_row import each_row
from tests.efficiency.polls import INF, moving, only, poll, rank, there, tracked

LLAMA_8B = LlmSpec(
    name="llama-8b",
    source="test",
    params=8.03e9,
    matmul_params=7.5e9,
    head_params=128256.0 * 4096,
    vocab=128256,
    hidden=4096,
    layers=32,
    heads=32,
    kv_heads=8,
    head_dim=128,
    attention=(grouped_attention(32, heads=32, kv_heads=8, head_dim=128),),
    read_bytes=15.0e9,
)
"""At 8192 tokens the attention is 14% of a prompt's FLOPs."""
VLLM_BUCKETS = (*(float(m * 10**e) for e in range(5) for m in (1, 2, 5)), INF)
SWITCH_S = 100
POLL_S = 2
TTFT_S = 0.4
PREFILLED_PER_S = 20_000.0
"""Tokens: as many of long prompts as of short ones."""


class Prompt(NamedTuple):
    """One request: when its first token and its end come, and its prompt."""

    first_s: float
    end_s: float
    tokens: float


def requests(length: Callable[[float], float], answer_s: float, until_s: float) -> list[Prompt]:
    """Prompts one after the other at an even rate of tokens."""
    made, at_s = [], 0.0
    while at_s < until_s:
        tokens = length(at_s)
        at_s += tokens / PREFILLED_PER_S
        made.append(Prompt(at_s, at_s + answer_s, tokens))
    return made


def histogram(values: Sequence[float]) -> HistogramReading:
    times = collections.Counter(values)
    counts = []
    for bound in VLLM_BUCKETS:
        counts.append(float(sum(count for value, count in times.items() if value <= bound)))
    return HistogramReading(VLLM_BUCKETS, tuple(counts), float(sum(values)), float(len(values)))


def served(prompts: Sequence[Prompt]) -> Callable[[float], EngineReading]:
    """The engine as vLLM counts: a prompt at its first token, its length in the histogram at its end."""
    tokens_each = [prompt.tokens for prompt in prompts]
    firsts_s = [prompt.first_s for prompt in prompts]
    ends_s = [prompt.end_s for prompt in prompts]

    def at(now_s: float) -> EngineReading:
        booked = tokens_each[: bisect.bisect_right(firsts_s, now_s)]
        tokens = float(sum(booked))
        counters = {q.PROMPT_TOKENS: tokens, q.PREFILL_COMPUTED: tokens, q.PREFILL_CACHED: 0.0, q.DECODE_TOKENS: 0.0}
        ended = tokens_each[: bisect.bisect_right(ends_s, now_s)]
        ttft = HistogramReading((TTFT_S, INF), (float(len(booked)),) * 2, TTFT_S * len(booked), float(len(booked)))
        histograms = {q.TTFT: ttft, q.PROMPT_LENGTH: histogram(ended)}
        advance = moving(Advance.PROMPT, q.PROMPT_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED)
        facts = {"kind": EngineKind.VLLM, "llm": LLAMA_8B, "advance": advance, "interval_s": float(POLL_S)}
        return poll(now_s, rank(counters, {q.RUNNING: 1.0}, histograms), **facts)

    return at


def spent(prompts: Sequence[Prompt], start_s: float, end_s: float) -> float:
    """FLOP/s of the prompts that got their first token in between, each by its own length."""
    inside = [one.tokens for one in prompts if start_s < one.first_s <= end_s]
    whole = sum(n * prefill_flops_per_token(LLAMA_8B, n) + head_flops(LLAMA_8B) for n in inside)
    return whole / (end_s - start_s)


def errors(prompts: Sequence[Prompt], start_s: int, end_s: int) -> dict[int, float]:
    """Second -> gpumon's prefill FLOP/s / what was spent in the same 10 s, less 1."""
    seen = tracked(served(prompts), seconds=end_s, step=POLL_S)
    found = {}
    for at_s, derived in zip(range(0, end_s, POLL_S), seen, strict=True):
        if at_s >= start_s:
            flops = there(only(derived.snapshot).efficiency.prefill_flops_per_s)
            found[at_s] = flops / spent(prompts, at_s - 10.0, at_s) - 1.0
    return found


@each_row("answer_s", [0.2, 5.0, 30.0])
@each_row(("before", "then"), [(256.0, 8192.0), (8192.0, 256.0)])
def test_prompts_that_change_their_length_are_right_within_the_window_of_the_rate(
    before: float, then: float, answer_s: float
) -> None:
    prompts = requests(lambda at_s: before if at_s < SWITCH_S else then, answer_s, SWITCH_S + 80)
    found = errors(prompts, SWITCH_S - 20, SWITCH_S + 70)
    assert max(abs(found[at_s]) for at_s in found if at_s <= SWITCH_S) < 0.01
    assert max(abs(found[at_s]) for at_s in found if at_s > SWITCH_S + 10) < 0.05
    assert max(map(abs, found.values())) < 0.09, "while a window holds both kinds"


@each_row("answer_s", [0.2, 30.0])
def test_prompts_of_mixed_lengths_are_weighed_by_their_tokens(answer_s: float) -> None:
    drawn = random.Random(7)
    prompts = requests(lambda _: 30_000.0 if drawn.random() < 0.1 else 400.0, answer_s, 200.0)
    found = list(errors(prompts, 100, 200).values())
    assert max(map(abs, found)) < 0.06
