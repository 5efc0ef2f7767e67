"""Training runs and servers that generate nothing: which figures they have, and none that they cannot have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpumon.efficiency.costs import SHARED_GPU
from gpumon.efficiency.deriver import Deriver
from gpumon.readings import quantities as q
from gpumon.readings.flat import value_of
from gpumon.readings.frame import EngineKind, EngineReading, Phase, Training
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sources.packaged import gpu_catalogue
from gpumon.specs.llm import Reach, grouped_attention
from tests.each_row import each_row
from tests.efficiency.polls import (
    H100_FLOPS,
    INF,
    after,
    engine,
    frame,
    gpu,
    observed,
    only,
    poll,
    rank,
    steady,
    there,
    tracked,
    why,
)
from tests.efficiency.small_llm import SMALL
from tests.records import replace

SEVEN_B = Training(flops_per_token=6 * 7e9)
NO_SERVING = ("prefill_tokens_per_s", "decode_tokens_per_s", "cached_tokens_per_s", "decode_mean_tokens_per_s",
              "tokens_per_step", "mfu_prefill_ratio", "mfu_decode_ratio")  # fmt: skip


def run(training: Training | None = SEVEN_B, **facts: Any) -> dict[str, Any]:
    return {"kind": EngineKind.GENERIC, "phase": Phase.TRAINING, "training": training, "llm": None, **facts}


def test_mfu_of_a_run_that_counts_tokens():
    shown = only(after(steady({q.TRAINED_TOKENS: 80_000.0}, **run(gpu_count=8)), seconds=60))
    assert there(shown.rates.trained_tokens_per_s) == pytest.approx(80_000.0)
    assert there(shown.efficiency.mfu_ratio) == pytest.approx(80_000 * 42e9 / (8 * H100_FLOPS), rel=1e-3)
    assert there(shown.efficiency.flops_per_s) == pytest.approx(80_000 * 42e9)
    assert shown.efficiency.precision == "bf16"
    assert why(shown.efficiency.mbu_ratio) is why(shown.efficiency.bytes_per_s) is Reason.NOT_MODELLED
    for field in NO_SERVING:
        assert why(value_of(shown, field)) is Reason.NOT_SUPPORTED, field
    assert why(shown.rates.samples_per_s) is Reason.NOT_EXPOSED
    assert shown.advances["mfu_ratio"] == "live"
    assert shown.sources["mfu_ratio"].startswith("trained FLOPs")
    assert shown.sources["trained_tokens_per_s"] == f"metric:{q.TRAINED_TOKENS} between whole steps"
    assert there(shown.tokens_total.trained) == pytest.approx(58 * 80_000.0)
    assert why(shown.tokens_total.samples) is Reason.NOT_EXPOSED


def test_samples_and_tokens_give_each_other():
    training = replace(SEVEN_B, tokens_per_sample=4096.0)
    samples = only(after(steady({q.SAMPLES: 16.0}, **run(training)), seconds=60))
    assert there(samples.rates.samples_per_s) == pytest.approx(16.0)
    assert there(samples.rates.trained_tokens_per_s) == pytest.approx(16 * 4096)
    assert samples.sources["trained_tokens_per_s"].endswith("x 4096 tokens per sample")
    assert samples.advances["trained_tokens_per_s"] == "derived"
    tokens = only(after(steady({q.TRAINED_TOKENS: 8192.0}, **run(training)), seconds=60))
    assert there(tokens.rates.samples_per_s) == pytest.approx(2.0)
    gauge = only(after(steady({}, {q.SAMPLE_RATE: 3.0}, **run(training)), seconds=60))
    assert (gauge.rates.samples_per_s, gauge.rates.trained_tokens_per_s) == (3.0, 3 * 4096.0)
    assert there(gauge.efficiency.mfu_ratio) > 0
    alone = only(after(steady({}, {q.SAMPLE_RATE: 3.0}, **run()), seconds=60))
    assert why(alone.efficiency.mfu_ratio) is Reason.NOT_EXPOSED


@each_row("step_s", [3.0, 7.0, 31.0, 90.0])
def test_a_counter_that_jumps_once_a_step_gives_neither_zero_nor_spikes(step_s: float):
    def trained(at_s: float) -> EngineReading:
        return poll(at_s, rank({q.TRAINED_TOKENS: at_s // step_s * 1e6}), **run())

    seen = [only(found.snapshot).rates.trained_tokens_per_s for found in tracked(trained, seconds=800)]
    known = [there(reading) for reading in seen if not isinstance(reading, Missing)]
    assert isinstance(seen[1], Missing)
    assert len(known) > len(seen) / 2
    # Polls date a step to 2 s, at both ends.
    assert max(abs(rate * step_s / 1e6 - 1.0) for rate in known[20:]) <= 2.0 / 30.0 + 0.01
    assert all(not isinstance(reading, Missing) for reading in seen[-50:])


def test_a_run_that_hangs_falls_to_zero():
    def trained(at_s: float) -> EngineReading:
        return poll(at_s, rank({q.TRAINED_TOKENS: min(at_s, 300.0) // 10 * 1e6}), **run())

    seen = [there(only(found.snapshot).rates.trained_tokens_per_s) for found in tracked(trained, seconds=1200)[30:]]
    assert seen[160] < seen[140] < seen[110] == pytest.approx(1e5, rel=0.1)
    assert seen[-1] == 0.0


def test_a_run_whose_cost_is_not_known_has_rates_and_no_mfu():
    shown = only(after(steady({q.TRAINED_TOKENS: 1000.0}, **run(None)), seconds=60))
    assert there(shown.rates.trained_tokens_per_s) == pytest.approx(1000.0)
    assert why(shown.efficiency.mfu_ratio) is why(shown.efficiency.flops_per_s) is Reason.UNKNOWN_MODEL
    odd = Training(1e9, precision="fp7")
    assert (
        why(only(after(steady({q.TRAINED_TOKENS: 1000.0}, **run(odd)), seconds=60)).efficiency.mfu_ratio)
        is Reason.UNKNOWN_GPU
    )


def test_a_gpu_adds_a_training_run_to_what_it_serves_and_misses_no_bandwidth():
    deriver = Deriver(gpu_catalogue())
    for at in range(0, 60, 2):
        trains = poll(float(at), rank({q.TRAINED_TOKENS: at * 1e4}), gpu_type="", gpu_count=0, gpus=("GPU-0",), **run())
        serves = engine(float(at), {q.DECODE_TOKENS: at * 100.0, q.STEPS: at * 100.0, q.PREFILL_COMPUTED: 0.0})
        found = deriver.derive(frame(at, (gpu(at_s=float(at), dram_active_ratio=0.5),), (trains, serves))).snapshot
    run_mfu, served_mfu = (there(one.efficiency.mfu_ratio) for one in found.engines)
    assert there(found.gpus[0].mfu_ratio) == pytest.approx(run_mfu + served_mfu)
    assert why(found.gpus[0].mbu_ratio) is Reason.NOT_MODELLED
    assert there(found.gpus[0].bandwidth_bytes_per_s) > 0
    assert found.engines[0].efficiency.tokens_per_j == SHARED_GPU
    alone = deriver.derive(frame(60, (gpu(at_s=60.0),), (trains,))).snapshot.engines[0].efficiency
    assert there(alone.tokens_per_j) == pytest.approx(1e4 / 500)
    assert there(alone.flops_per_j) == pytest.approx(1e4 * 42e9 / 500)


# Encoders.


def encoder(at_s: float) -> EngineReading:
    """200 texts of 100 tokens a second."""
    lengths = {q.PROMPT_LENGTH: observed(at_s * 200.0, 100.0, (100.0, 512.0, INF))}
    counters = {q.PREFILL_COMPUTED: at_s * 20_000.0, q.REQUESTS: at_s * 200.0, q.INFERENCES: at_s * 200.0}
    return poll(at_s, rank(counters, {q.WAITING: 1.0}, lengths), kind=EngineKind.TEI, llm=BOTH_SIDES)


BOTH_SIDES = replace(
    SMALL,
    head_params=0.0,
    attention=(
        grouped_attention(3, heads=4, kv_heads=2, head_dim=8, reach=Reach.ENCODER),
        grouped_attention(2, heads=4, kv_heads=2, head_dim=8, reach=Reach.ENCODER, limit=60),
    ),
)


def test_a_causal_model_that_embeds_sees_what_is_before_a_token():
    shown = only(after(lambda at_s: replace(encoder(at_s), llm=SMALL)))
    # Without its LM head of 200; the window of two layers is as long as the text.
    assert there(shown.efficiency.flops_per_s) == pytest.approx(20_000 * (2 * 800 + 4 * 4 * 8 * (3 * 50 + 2 * 50)))


def test_an_encoder_has_prefill_alone_and_every_token_sees_the_whole_text():
    shown = only(after(encoder))
    # 2 x 1000, and 4 x 4 heads x 8 wide over 100 tokens in three layers, over the 60 around it in two.
    per_token = 2 * 1000 + 4 * 4 * 8 * (3 * 100 + 2 * 60)
    assert there(shown.efficiency.flops_per_s) == pytest.approx(20_000 * per_token)
    assert shown.efficiency.mfu_ratio == shown.efficiency.mfu_prefill_ratio
    assert there(shown.efficiency.mfu_ratio) == pytest.approx(20_000 * per_token / H100_FLOPS, rel=1e-3)
    no_decode = (
        shown.rates.decode_tokens_per_s, shown.rates.decode_mean_tokens_per_s, shown.rates.tokens_per_step,
        shown.efficiency.mfu_decode_ratio, shown.efficiency.tokens_per_j, shown.efficiency.flops_per_decode_token,
        shown.tokens_total.decode, shown.load.context_tokens,
    )  # fmt: skip
    assert {why(reading) for reading in no_decode} == {Reason.NOT_SUPPORTED}
    assert why(shown.efficiency.mbu_ratio) is Reason.NOT_MODELLED
    assert there(shown.rates.inferences_per_s) == pytest.approx(200.0)
    assert there(shown.load.prompt_tokens_mean) == pytest.approx(100.0)
    assert shown.sources["mfu_ratio"] == "prefill FLOPs / (GPUs x dense peak)"


# Servers of models that are no LLMs.


def images(**facts: Any) -> Callable[[float], EngineReading]:
    per_s = {q.INFERENCES: 640.0, q.REQUESTS: 80.0, q.FAILURES: 0.5}
    return steady(per_s, {q.WAITING: 3.0}, kind=EngineKind.TRITON, part="resnet50", model="resnet50", **facts)


@each_row("llm", [None, SMALL])
def test_a_model_that_is_no_llm_has_inferences_and_no_tokens(llm: object):
    shown = only(after(images(llm=llm)))
    assert there(shown.rates.inferences_per_s) == pytest.approx(640.0)
    assert there(shown.rates.requests_per_s) == pytest.approx(80.0)
    assert (there(shown.rates.failures_per_s), shown.load.waiting) == (pytest.approx(0.5), 3.0)
    tokens: tuple[Reading, ...] = (
        shown.rates.decode_tokens_per_s,
        shown.rates.prefill_tokens_per_s,
        shown.tokens_total.decode,
    )
    assert {why(reading) for reading in tokens} == {Reason.NOT_SUPPORTED}
    shares = (
        shown.efficiency.mfu_ratio,
        shown.efficiency.mbu_ratio,
        shown.efficiency.flops_per_s,
        shown.efficiency.peak_flops_per_s,
    )
    assert {why(reading) for reading in shares} == {Reason.NOT_MODELLED}
