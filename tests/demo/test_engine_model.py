"""The physics of one rank: conservation, Little's law, peaks, the KV pool, the queue, preemption, determinism."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from gpumon.demo.engine_model import EngineModel, Meter, SchedulerLimits
from gpumon.demo.physics import H100, LLAMA_8B, ModelCopy, Speed
from gpumon.demo.scenario import Actor
from gpumon.demo.scenarios import DEMO
from gpumon.demo.traffic import LogNormalLengths, SimulatedRequest, Traffic, TrafficDemand
from gpumon.sizing.simulate.batch import blocks_of
from tests.each_row import each_row
from tests.records import replace

INSTANCE = ModelCopy(LLAMA_8B, H100, Speed(0.62, 0.8, 0.7e-3, 20e-6), 1)
ROOMY = SchedulerLimits(max_num_seqs=256, max_batched_tokens=2048, max_model_len=32768, kv_pool_blocks=26000)


class Script:
    """Arrivals from a list, which remembers what it gave out."""

    def __init__(self, requests: Sequence[SimulatedRequest]) -> None:
        self._left = list(requests)
        self.given: list[SimulatedRequest] = []

    def next_s(self) -> float:
        return self._left[0].arrival_s if self._left else math.inf

    def take(self) -> SimulatedRequest:
        self.given.append(self._left.pop(0))
        return self.given[-1]

    def answered(self, at_s: float) -> None:
        """Nobody waits for an answer."""


def steady(requests_per_s: float, prompt: int = 500, output: int = 250) -> TrafficDemand:
    return TrafficDemand(
        requests_per_s, LogNormalLengths(prompt, 0.6, 16, 8000), LogNormalLengths(output, 0.6, 8, 2000), swing=0.0
    )


def run(model: EngineModel, from_s: int, to_s: int, look: Callable[[int], None]) -> None:
    for second in range(from_s, to_s):
        model.advance(float(second))
        look(second)


@each_row("limits", [ROOMY, replace(ROOMY, kv_pool_blocks=700, max_model_len=8192)])
def test_every_token_that_came_in_is_counted_once(limits: SchedulerLimits) -> None:
    """Also where the pool is so small that requests are preempted and computed again."""
    source = Traffic(steady(6.0), 3, 0.0)
    script = Script([source.take() for _ in range(800)])
    model = EngineModel(INSTANCE, limits, script)
    model.advance(1e5)
    counters = model.counters
    assert len(script.given) == 800
    assert (model.running, model.waiting) == (0, 0)
    assert counters.prompt_tokens == sum(each.prompt_tokens for each in script.given)
    assert counters.generation_tokens == sum(each.output_tokens for each in script.given)
    assert counters.stopped + counters.cut == counters.e2e.count == counters.ttft.count == 800
    assert counters.itl.count == counters.generation_tokens - 800
    assert counters.itl.total == pytest.approx(counters.decode.total)
    assert counters.queue.total + counters.prefill.total == pytest.approx(counters.ttft.total)
    assert counters.queue.total + counters.inference.total == pytest.approx(counters.e2e.total)
    assert model.blocks.usage_ratio == 0.0
    assert (counters.preemptions > 0) == (limits is not ROOMY)


def test_one_request_by_hand() -> None:
    """A prompt of 5000 in chunks of 2048, then nine decode steps."""
    model = EngineModel(INSTANCE, ROOMY, Script([SimulatedRequest(1.0, 5000, 904, 10)]))
    model.advance(100.0)
    meter, counters = model.meter(100.0), model.counters
    assert meter.steps == 2 + 9
    assert meter.tokens == 4096 + 9
    assert (counters.prompt_tokens, counters.cached_tokens, counters.generation_tokens) == (5000, 904, 10)
    assert counters.iteration_tokens.count == 10, "a step with only an unfinished chunk has no output"
    assert counters.iteration_tokens.total == 4096 + 10
    # Chunks attend to 904 and 2952 tokens before them; decode step i to 5000 + i.
    pairs = 2048 * (904 + 1024) + 2048 * (2952 + 1024) + sum(5000 + i for i in range(1, 10))
    shape = INSTANCE.shape
    by_hand = shape.token_flops * 4105 + 2 * shape.head_params * 10 + shape.score_flops * pairs
    assert meter.flops == pytest.approx(by_hand)
    kv_tokens = 2952 + 5000 + sum(5000 + i for i in range(1, 10))
    assert meter.kv_bytes == pytest.approx(kv_tokens * shape.kv_bytes)
    assert meter.weight_bytes == pytest.approx(11 * shape.weight_read_bytes(1))
    assert meter.busy_s == pytest.approx(counters.e2e.total)


@each_row("actor", DEMO.cast, named=lambda actor: actor.name)
def test_running_is_tokens_per_second_times_inter_token_latency(actor: Actor) -> None:
    """Little's law over ten minutes; the time that a prompt computes belongs to `running` too, not to any ITL."""
    demand = replace(actor.demand, swing=0.0)
    model = EngineModel(actor.instance, actor.limits, Traffic(demand, 5, 0.0))
    model.advance(199.5)
    counters = model.counters
    before = (counters.generation_tokens, counters.itl.total, counters.itl.count, counters.prefill.total)
    running: list[int] = []
    for tick in range(200 * 4, 800 * 4):
        model.advance(tick / 4)
        running.append(model.running)
    tokens_per_s = (counters.generation_tokens - before[0]) / 600
    itl_s = (counters.itl.total - before[1]) / (counters.itl.count - before[2])
    prefilling = (counters.prefill.total - before[3]) / 600
    first_tokens_per_s = counters.ttft.count / 800
    mean = sum(running) / len(running)
    assert mean == pytest.approx((tokens_per_s - first_tokens_per_s) * itl_s + prefilling, rel=0.02)
    if actor.name != "llama-8b":
        assert mean == pytest.approx(tokens_per_s * itl_s, rel=0.05)


@pytest.mark.parametrize("actor", DEMO.cast, ids=lambda actor: actor.name)
@pytest.mark.parametrize(
    ("load", "seconds", "most_beside"),
    [
        (1.0, 400, 1.15),
        (6.0, 300, 1.3),
        pytest.param(1.0, 7200, 1.15, marks=pytest.mark.wide),
        pytest.param(6.0, 3600, 1.3, marks=pytest.mark.wide),
    ],
)
def test_no_second_exceeds_the_peaks(actor: Actor, load: float, seconds: int, most_beside: float) -> None:
    """At the cast's own load and far beyond what the instance can serve (it then mostly prefills: more activations)."""
    limits = replace(actor.limits, max_num_seqs=128)
    demand = replace(actor.demand, requests_per_s=actor.demand.requests_per_s * load)
    instance = actor.instance
    model = EngineModel(instance, limits, Traffic(demand, 11, 0.0))
    last = Meter()
    pool = limits.kv_pool_blocks - 1

    def look(second: int) -> None:
        nonlocal last
        meter = model.meter(second)
        assert 0.0 <= meter.busy_s - last.busy_s <= 1.0 + 1e-6
        assert 0.0 <= meter.flops - last.flops <= 0.75 * instance.peak_flops_per_s
        assert 0.0 <= meter.dram_bytes - last.dram_bytes <= 0.85 * instance.gpus * H100.bytes_per_s
        assert meter.weight_bytes + meter.kv_bytes <= meter.dram_bytes + 1.0
        assert 0 <= model.blocks.free <= pool
        assert model.running <= 128
        last = meter

    run(model, 1, seconds, look)
    share = last.dram_bytes / (last.weight_bytes + last.kv_bytes)
    assert 1.05 <= share <= most_beside
    if load > 1.0 and actor.name != "qwen-moe":
        assert model.waiting > 100
        assert last.busy_s > 0.985 * seconds


def test_the_pool_holds_what_the_running_requests_hold() -> None:
    model = EngineModel(INSTANCE, ROOMY, Traffic(steady(8.0), 2, 0.0))
    highest = 0.0

    def look(_: int) -> None:
        nonlocal highest
        batch = model._batch
        held = 0
        for sequence in batch.running:
            gained = batch.step - sequence.joined if sequence.decodes else 0
            held += blocks_of(sequence.tokens + gained)
        assert ROOMY.kv_pool_blocks - 1 - model.blocks.free == held
        highest = max(highest, model.blocks.usage_ratio)

    run(model, 1, 300, look)
    assert highest > 0.02


def test_a_queue_builds_under_overload_and_drains_after_it() -> None:
    limits = replace(ROOMY, max_num_seqs=32)
    rush = Traffic(steady(30.0), 4, 0.0)
    model = EngineModel(INSTANCE, limits, Script([rush.take() for _ in range(3000)]))
    queue: list[int] = []
    run(model, 1, 100, lambda _: queue.append(model.waiting))
    assert model.running == 32
    assert queue[-1] > queue[len(queue) // 2] > queue[10] > 0
    waited = model.counters.ttft.total / model.counters.ttft.count
    assert waited > 5.0
    model.advance(2000.0)
    assert (model.waiting, model.running) == (0, 0)
    assert model.counters.e2e.count == 3000


def test_a_full_pool_preempts_the_newest_and_loses_nothing() -> None:
    limits = replace(ROOMY, kv_pool_blocks=65, max_model_len=1024)
    model = EngineModel(
        INSTANCE, limits, Script([SimulatedRequest(0.0, 400, 0, 200), SimulatedRequest(0.1, 400, 0, 200)])
    )
    model.advance(60.0)
    counters = model.counters
    assert counters.preemptions == 1
    assert counters.generation_tokens == 400
    assert counters.request_preemptions.total == 1
    assert model.meter(60.0).tokens > 800 + 398 + 400, "the second prompt and its tokens were computed twice"
    assert counters.prompt_tokens == 800, "but vLLM counts a prompt once"


def test_a_request_beyond_the_context_is_cut() -> None:
    model = EngineModel(INSTANCE, ROOMY, Script([SimulatedRequest(0.0, 40000, 39000, 100)]))
    model.advance(100.0)
    assert model.counters.prompt_tokens == 32767
    assert (model.counters.stopped, model.counters.cut) == (0, 1)


def test_same_seed_same_run_and_another_seed_another() -> None:
    def outcome(seed: int) -> tuple[float, int, int]:
        actor = DEMO.cast[0]
        model = EngineModel(actor.instance, actor.limits, Traffic(actor.demand, seed, 0.0))
        model.advance(200.0)
        return model.meter(200.0).flops, model.counters.generation_tokens, model.counters.prompt_tokens

    assert outcome(1) == outcome(1)
    assert outcome(1) != outcome(2)


@each_row("actor", DEMO.cast, named=lambda actor: actor.name)
def test_how_often_it_is_looked_at_changes_nothing(actor: Actor) -> None:
    models = [EngineModel(actor.instance, actor.limits, Traffic(actor.demand, 9, 0.0)) for _ in range(2)]
    models[0].advance(200.0)
    for tick in range(1, 200 * 13 + 1):
        models[1].advance(tick / 13)
    one, other = (model.meter(200.0) for model in models)
    assert models[0].counters.generation_tokens == pytest.approx(models[1].counters.generation_tokens, abs=200)
    assert one.flops == pytest.approx(other.flops, rel=2e-3)
    assert one.dram_bytes == pytest.approx(other.dram_bytes, rel=2e-3)
    assert one.busy_s == pytest.approx(other.busy_s, rel=2e-3)


def test_the_meter_moves_within_a_step() -> None:
    """A long prefill does not appear in one tick: its work is spread over the time that it takes."""
    limits = replace(ROOMY, max_batched_tokens=16384)
    model = EngineModel(INSTANCE, limits, Script([SimulatedRequest(0.0, 16000, 0, 1)]))
    seen: list[float] = []
    for tick in range(1, 5):
        model.advance(tick / 10)
        meter = model.meter(tick / 10)
        assert meter.busy_s == pytest.approx(tick / 10)
        seen.append(meter.flops)
    assert model.counters.prompt_tokens == 0
    assert seen == pytest.approx([seen[0] * tick for tick in range(1, 5)])
