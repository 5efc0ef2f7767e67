"""Steps per second from the best source there is, speculation, and how GPUs split into ranks and stages; by hand."""

from __future__ import annotations

from typing import Any, Final

import pytest

from gpumon.efficiency.rates import Layout, layout_of
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading, HistogramReading
from gpumon.readings.missing import NOT_EXPOSED, Reason
from gpumon.readings.snapshot import Engine
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from gpumon.specs.llm import LlmSpec
from tests.each_row import each_row
from tests.efficiency.polls import INF, after, moving, only, poll, rank, steady, there, why
from tests.efficiency.small_llm import SMALL
from tests.fakes.engine import Capture
from tests.records import replace


def gaps(at_s: float, per_s: float, gap_s: float) -> HistogramReading:
    """So many gaps a second, all of one length."""
    count = at_s * per_s
    return HistogramReading((0.001, 1.0, INF), (0.0, count, count), count * gap_s, count)


def with_gaps(per_s: float, gap_s: float, gauges: dict[str, float], **facts: Any) -> Engine:
    def engine(at_s: float) -> EngineReading:
        counters = {name: at_s * rate for name, rate in facts.get("counters", {q.DECODE_TOKENS: 400.0}).items()}
        told = {name: fact for name, fact in facts.items() if name != "counters"}
        return poll(at_s, rank(counters, gauges, {q.ITL: gaps(at_s, per_s, gap_s)}), **told)

    return only(after(engine))


# The ladder.


def test_an_exact_counter_is_taken_as_it_is():
    shown = with_gaps(400.0, 0.02, {q.RUNNING: 8.0}, exact_steps=True, counters={q.DECODE_TOKENS: 400.0, q.STEPS: 60.0})
    assert there(shown.rates.steps_per_s) == pytest.approx(60.0)
    assert shown.sources["steps_per_s"] == f"metric:{q.STEPS} over 10 s"
    assert shown.advances["steps_per_s"] == "live"


def test_a_counter_that_is_worked_out_is_an_estimate():
    facts = {"advance": moving(Advance.DERIVED, q.STEPS), "counters": {q.DECODE_TOKENS: 400.0, q.STEPS: 60.0}}
    shown = with_gaps(400.0, 0.02, {q.RUNNING: 8.0}, **facts)
    assert there(shown.rates.steps_per_s) == pytest.approx(60.0)
    assert shown.sources["steps_per_s"].startswith("estimated: metric:steps over 10 s")
    assert shown.advances["steps_per_s"] == shown.advances["mbu_ratio"] == "derived"


def test_a_counter_that_several_processes_write_is_not_used():
    """One that is neither exact nor an estimate counts each step once per API server."""
    shown = with_gaps(400.0, 0.02, {q.RUNNING: 8.0}, counters={q.DECODE_TOKENS: 400.0, q.STEPS: 240.0})
    assert there(shown.rates.steps_per_s) == pytest.approx(1 / 0.02)
    assert shown.sources["steps_per_s"] == "estimated: duty / mean ITL, per rank"


def test_without_gaps_it_is_tokens_over_the_requests_that_ran():
    # 400 tokens/s of 8 sequences: 50 steps/s; a batch of 8 reads the weights once a step.
    shown = only(after(steady({q.DECODE_TOKENS: 400.0}, {q.RUNNING: 8.0, q.USED_TOKENS: 800.0})))
    assert there(shown.rates.steps_per_s) == pytest.approx(50.0)
    assert there(shown.rates.batch) == pytest.approx(8.0)
    assert there(shown.efficiency.weight_bytes_per_s) == pytest.approx(50.0 * 2000.0)
    assert shown.sources["steps_per_s"] == "estimated: decode tokens/s / requests running / tokens per step"


def test_pauses_do_not_make_the_batch_smaller():
    """Half of the time 8 sequences at 50 steps/s, else none: 25 steps/s of 8, not 50 of 4."""

    def engine(at_s: float) -> EngineReading:
        return poll(at_s, rank({q.DECODE_TOKENS: at_s * 200.0}, {q.RUNNING: 8.0 if at_s % 4 else 0.0}))

    shown = only(after(engine, seconds=22))
    assert there(shown.rates.steps_per_s) == pytest.approx(25.0)
    assert there(shown.rates.batch) == pytest.approx(8.0)


def test_without_anything_to_go_by_there_are_none():
    assert only(after(steady({q.DECODE_TOKENS: 400.0}))).rates.steps_per_s == NOT_EXPOSED
    unseen = only(after(steady({q.DECODE_TOKENS: 400.0}, {q.RUNNING: 0.0})))
    assert why(unseen.rates.steps_per_s) is why(unseen.efficiency.mbu_ratio) is Reason.FEW
    between_polls = with_gaps(50.0, 0.02, {q.RUNNING: 0.0}, counters={q.DECODE_TOKENS: 50.0})
    for missing in (between_polls.rates.steps_per_s, between_polls.rates.batch, between_polls.efficiency.mbu_ratio):
        assert why(missing) is Reason.FEW, "tokens come, so that it makes steps: how many, no poll tells"
    ended = steady({q.DECODE_TOKENS: 400.0}, {q.RUNNING: 4.0}, advance=moving(Advance.END, q.DECODE_TOKENS))
    assert why(only(after(ended)).rates.steps_per_s) is Reason.NOT_LIVE


def test_an_idle_engine_has_true_zeros():
    shown = only(after(steady({q.DECODE_TOKENS: 0.0}, {q.RUNNING: 0.0})))
    assert (shown.rates.decode_tokens_per_s, shown.rates.steps_per_s, shown.efficiency.mbu_ratio) == (0.0, 0.0, 0.0)


# Speculation.


def test_the_engines_own_mean_of_accepted_tokens_is_speculation():
    """600 tokens/s of 4 sequences that get 3 a step: 50 steps/s, each sequence's KV read 50 times a second."""
    gauges = {q.RUNNING: 4.0, q.MEAN_ACCEPTED: 3.0, q.USED_TOKENS: 400.0}
    shown = only(after(steady({q.DECODE_TOKENS: 600.0}, gauges)))
    assert (shown.rates.tokens_per_step, there(shown.rates.steps_per_s)) == (3.0, pytest.approx(50.0))
    assert there(shown.rates.batch) == pytest.approx(4.0)
    kv = 2 * 2 * 8 * 2 * (3 * 100 + 2 * 100)
    assert there(shown.efficiency.kv_bytes_per_s) == pytest.approx(200.0 * kv)
    assert shown.sources["tokens_per_step"] == f"mean of metric:{q.MEAN_ACCEPTED}"


def test_acceptance_is_that_of_the_ranks_that_make_steps():
    def engine(at_s: float) -> EngineReading:
        speculates = {q.ACCEPTANCE: 0.6, q.MEAN_ACCEPTED: 3.0}
        rests = {q.ACCEPTANCE: 0.0, q.MEAN_ACCEPTED: 0.0}
        return poll(at_s, rank({}, speculates), rank({}, rests, name="1"), rank({}, name="2"))

    assert there(only(after(engine)).rates.acceptance_ratio) == pytest.approx(0.6)


@each_row(
    ("kind", "metric", "step_s"),
    [
        (EngineKind.VLLM, "vllm:inter_token_latency_seconds", 0.06),
        (EngineKind.RAY, "ray_vllm_inter_token_latency_seconds", 0.06),
        (EngineKind.SGLANG, "sglang:inter_token_latency_seconds", 0.18),
        (EngineKind.TENSORRT_LLM, "trtllm_time_per_output_token_seconds", 0.18),
    ],
)
def test_a_gap_is_a_step_or_a_token_by_engine(kind: EngineKind, metric: str, step_s: float):
    """Gaps of 60 ms with 3 tokens a step: vLLM notes each step, SGLang each token of it."""
    gauges = {q.RUNNING: 4.0, q.MEAN_ACCEPTED: 3.0}
    shown = with_gaps(66.0, 0.06, gauges, kind=kind, live={q.ITL: metric})
    assert there(shown.rates.steps_per_s) == pytest.approx(1 / step_s)
    assert there(shown.latency.itl_mean_s) == pytest.approx(step_s / 3)
    assert ("tokens per step" in shown.sources["itl_mean_s"]) == (step_s == 0.06)


def test_an_engine_that_never_drafted_does_not_speculate():
    def of(drafts: float, accepted: float, decode: float = 10.0, since: float = 0.0) -> Engine:
        per_s = {q.DECODE_TOKENS: decode, q.DRAFTS: drafts, q.ACCEPTED_TOKENS: accepted}
        return only(after(lambda at_s: poll(at_s, rank({name: since + at_s * rate for name, rate in per_s.items()}))))

    assert of(0.0, 0.0).rates.tokens_per_step == 1.0
    assert of(0.0, 0.0, decode=0.0).rates.tokens_per_step == 1.0
    assert there(of(5.0, 10.0).rates.tokens_per_step) == pytest.approx(3.0)
    assert why(of(0.0, 0.0, decode=0.0, since=9.0).rates.tokens_per_step) is Reason.IDLE
    assert only(after(steady({q.DECODE_TOKENS: 9.0}, {q.MEAN_ACCEPTED: 0.0}))).rates.tokens_per_step == 1.0


def test_a_sequence_without_a_draft_makes_a_step_too():
    """Of 100 steps a second 60 have a draft, which gives 2 tokens more: 220 tokens, not 3 a step."""
    per_s = {q.DECODE_TOKENS: 220.0, q.DRAFTS: 60.0, q.ACCEPTED_TOKENS: 120.0}
    assert there(only(after(steady(per_s))).rates.tokens_per_step) == pytest.approx(2.2)
    worked_out = steady(per_s, advance=moving(Advance.DERIVED, q.DRAFTS))
    assert there(only(after(worked_out)).rates.tokens_per_step) == pytest.approx(3.0)


def test_the_tokens_of_a_recorded_speculation_are_its_gaps_times_tokens_per_step():
    """n-grams are drafted only where they were found: 10 s of which a third has none, by what the engine itself saw."""
    capture, adapter = Capture("vllm-ngram"), VllmAdapter()
    scan = Scanner(adapter.wanted_names).scan

    def read(at_s: float) -> EngineReading:
        (page,) = adapter.read_all(scan(capture.answer("metrics", at_s).body))
        return poll(at_s, *page.ranks, kind=EngineKind.VLLM, live=dict(page.live), exact_steps=page.exact_steps)

    shown = only(after(read, start=30, seconds=12))
    window, decode = shown.load.window, there(shown.rates.decode_tokens_per_s)
    gaps = [read(at_s).ranks[0].histograms[q.ITL].count for at_s in (30, 40)]
    assert window is not None
    assert window.seconds == 10.0
    assert shown.rates.tokens_per_step == pytest.approx(2.13, abs=0.01)
    assert decode * window.seconds == pytest.approx((gaps[1] - gaps[0]) * 2.13, rel=0.02)
    assert shown.latency.itl_mean_s == pytest.approx(window.decoding_mean / decode, rel=0.02)


# Layout.


@each_row(
    ("told", "shown", "count", "expected"),
    [
        ({}, 1, 4, Layout(4, 4, 0, 1)),
        ({}, 4, 4, Layout(4, 1, 0, 4, 4)),
        ({}, 3, 4, Layout(4, 0, 0, 3, 3)),
        ({}, 1, 0, Layout(0, 0, 0, 1)),
        ({"tp": 2}, 1, 0, Layout(0, 2, 0, 1)),
        # Two stages of tensor-parallel pairs, told or told in part.
        ({"tp": 2, "pp": 2}, 1, 4, Layout(4, 2, 2, 1)),
        ({"pp": 2}, 1, 4, Layout(4, 2, 2, 1)),
        ({"tp": 2}, 2, 4, Layout(4, 2, 0, 2)),
        # DP attention: the ranks share the tensor-parallel GPUs.
        ({"tp": 8, "dp": 8}, 8, 8, Layout(8, 1, 0, 8, 8, attention_alone=True)),
        ({"tp": 8, "dp": 2}, 2, 8, Layout(8, 4, 0, 2, 2, attention_alone=True)),
        ({"tp": 1, "dp": 8, "info": {"dp_attention": "yes"}}, 8, 8, Layout(8, 1, 0, 8, 8, attention_alone=True)),
        # A page that adds its ranks up, and the page of one rank among several.
        ({"tp": 2, "dp": 4}, 1, 8, Layout(8, 2, 0, 4)),
        ({"tp": 2, "dp": 4}, 1, 2, Layout(2, 2, 0, 1)),
        # vLLM spreads the experts over all its ranks, wherever their pages are; Ray's ranks are replicas.
        ({"tp": 1, "dp": 8, "kind": EngineKind.VLLM}, 8, 8, Layout(8, 1, 0, 8, 8)),
        ({"tp": 1, "dp": 8, "kind": EngineKind.VLLM}, 1, 1, Layout(1, 1, 0, 1, 8)),
        ({"tp": 1, "dp": 8, "kind": EngineKind.VLLM}, 2, 2, Layout(2, 1, 0, 2, 8)),
        ({"kind": EngineKind.RAY}, 4, 4, Layout(4, 1, 0, 4)),
    ],
)
def test_gpus_split_into_ranks_stages_and_shards(told: dict[str, Any], shown: int, count: int, expected: Layout):
    assert layout_of(poll(0.0, **told), shown, count) == expected


def test_a_pipeline_works_on_a_batch_in_each_stage():
    """Each sequence gets a token in 20 ms; in that time two batches of 4 pass through: 100 steps, not 50."""
    shown = with_gaps(400.0, 0.02, {q.RUNNING: 8.0, q.USED_TOKENS: 800.0}, pp=2, gpu_count=2)
    assert there(shown.rates.steps_per_s) == pytest.approx(100.0)
    assert there(shown.rates.batch) == pytest.approx(4.0)
    alone = with_gaps(50.0, 0.02, {q.RUNNING: 1.0}, pp=2, gpu_count=2, counters={q.DECODE_TOKENS: 50.0})
    assert there(alone.rates.steps_per_s) == pytest.approx(50.0)


MOE: Final = replace(
    SMALL, experts=8, experts_per_token=2, expert_params=50.0, read_bytes=1000.0, expert_read_bytes=100.0
)
"""200 bytes that every step reads, and 8 experts of 100; a token goes through two of them."""


def weights_per_s(*ranks: str, llm: LlmSpec = MOE, **facts: Any) -> float:
    """Of so many ranks that each make 10 steps/s of 4 sequences."""

    def engine(at_s: float) -> EngineReading:
        counters = {q.DECODE_TOKENS: at_s * 40.0, q.STEPS: at_s * 10.0}
        each = (rank(counters, {q.RUNNING: 4.0, q.USED_TOKENS: 400.0}, name=name) for name in ranks)
        return poll(at_s, *each, llm=llm, exact_steps=True, **facts)

    return there(only(after(engine)).efficiency.weight_bytes_per_s)


def touched(tokens: float) -> float:
    return 8 * (1 - 0.75**tokens)


def test_ranks_that_share_experts_read_them_once_together():
    """One rank or two: those of the two touch what 8 tokens touch, and each has the rest for itself."""
    vllm = {"kind": EngineKind.VLLM, "gpu_count": 2}
    assert weights_per_s("0", kind=EngineKind.VLLM) == pytest.approx(10 * (200 + 100 * touched(4)))
    assert weights_per_s("0", "1", **vllm) == pytest.approx(10 * (2 * 200 + 100 * touched(8)))


def test_ranks_that_are_replicas_read_their_own_experts():
    own = 2 * 10 * (200 + 100 * touched(4))
    assert weights_per_s("0", "1", kind=EngineKind.RAY, gpu_count=2) == pytest.approx(own)
    assert weights_per_s("0", "1", kind=EngineKind.SGLANG, tp=1, dp=2, gpu_count=2) == pytest.approx(own)


def test_the_server_of_one_rank_reads_its_part_of_the_experts_of_all():
    """vLLM's ranks behind a balancer of one's own: eight servers of one GPU each, of which this is one."""
    told = {"kind": EngineKind.VLLM, "tp": 1, "dp": 8, "gpu_count": 1}
    assert weights_per_s("0", **told) == pytest.approx(10 * (200 + 100 * touched(32) / 8))


def test_of_data_parallel_attention_a_rank_has_its_attention_alone():
    """A dense model on two GPUs: 5 layers of 2 x 10 x 6 x 8 parameters at 2 bytes each are read by both ranks."""
    attention = 5 * 2 * 10 * 6 * 8 * 2
    llm = replace(SMALL, matmul_params=10_000.0, read_bytes=20_000.0, attention_read_bytes=float(attention))
    dense = weights_per_s("0", "1", llm=llm, tp=2, dp=2, gpu_count=2)
    assert dense == pytest.approx(10 * (20_000 + attention))
    assert weights_per_s("0", "1", llm=llm, tp=1, dp=2, gpu_count=2) == pytest.approx(2 * 10 * 20_000)


def test_kv_heads_that_can_not_be_divided_are_copied_by_the_told_tensor_parallel_size():
    spec: LlmSpec = SMALL
    engine = steady({q.DECODE_TOKENS: 10.0}, {q.RUNNING: 1.0, q.USED_TOKENS: 100.0}, tp=4, pp=2, gpu_count=8, llm=spec)
    shown = only(after(engine))
    # Two KV heads on four GPUs: each is read twice; the stages read their own layers once.
    assert there(shown.efficiency.kv_bytes_per_s) == pytest.approx(10.0 * 2 * 2 * 2 * 8 * 2 * (3 * 100 + 2 * 100))


def test_a_pipeline_without_gaps_works_on_a_batch_in_each_stage_too():
    """400 tokens/s of 8 requests, in two batches of 4 at once: 100 steps/s. A single request has one batch."""
    told = {"pp": 2, "gpu_count": 2}
    shown = only(after(steady({q.DECODE_TOKENS: 400.0}, {q.RUNNING: 8.0}, **told)))
    assert there(shown.rates.steps_per_s) == pytest.approx(100.0)
    alone = only(after(steady({q.DECODE_TOKENS: 50.0}, {q.RUNNING: 1.0}, **told)))
    assert there(alone.rates.steps_per_s) == pytest.approx(50.0)
