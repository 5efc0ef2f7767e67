"""Recorded traffic beside its own simulation: on engines that do what their points say, and on those that do not."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineReading, HistogramReading, RankReading
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Quantiles
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.resolve import resolve
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sizing.search import Demand
from gpumon.sizing.simulate.conditions import Conditions, source_of
from gpumon.sizing.simulate.experiment import Simulation, simulate
from gpumon.sizing.simulate.fewest import decide_by_simulation
from gpumon.sizing.simulate.router import ROUTERS
from gpumon.sizing.simulate.run import play
from gpumon.sizing.simulate.scheduler import ServedRequest
from gpumon.sizing.simulate.self_check import MOST_ERROR, SelfCheck, check_recording
from gpumon.sizing.simulate.setup import setup_of
from gpumon.sizing.simulate.traffic import RecordedTraffic, TrafficRecorder
from gpumon.sources.engines.adapter import Adapter
from gpumon.sources.engines.sglang import SglangAdapter
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from tests.each_row import each_row
from tests.fakes.engine import Capture
from tests.records import replace
from tests.sizing.questions import KNOWN

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
H100 = "H100 SXM5 80GB"
SEEN = Observed(
    Origin.LIVE, "vllm:8000", MODEL,
    tuple(Point(load, itl_s=0.008 + 0.0002 * load, ttft_s=0.05 + 0.001 * load) for load in (1.0, 2.0, 4.0, 8.0, 32.0)),
    gpu=H100, gpus=1, tp=1, tool="vllm 0.11.0", prompt_tokens=500.0, answer_tokens=200.0, kv_pool_tokens=400_000.0,
    max_num_seqs=256, max_num_batched_tokens=8192,
)  # fmt: skip
WORKLOAD = Workload(MODEL, 4.0, target_kind="requests_per_s", seen=SEEN)
SCENARIO = Scenario(server=(Server(H100),), workload=(WORKLOAD,))
SECONDS = 300.0
BOUNDS = tuple(0.002 * 1.05**step for step in range(240))


def histogram(values: Sequence[float]) -> HistogramReading:
    bounds = (*BOUNDS, math.inf)
    counts = tuple(float(sum(value <= bound for value in values)) for bound in bounds)
    return HistogramReading(bounds, counts, sum(values), float(len(values)))


def played(seen: Observed = SEEN, per_s: float = 4.0, seconds: float = SECONDS, seed: int = 7) -> list[ServedRequest]:
    """Four requests a second for five minutes on an engine that does what its points say."""
    workload = replace(WORKLOAD, seen=seen, target=per_s)
    instance = resolve(workload, SCENARIO, KNOWN)
    setup = setup_of(instance, SCENARIO, KNOWN)
    source = source_of(Demand(workload, instance), Conditions(seconds=seconds, seed=seed))
    return play(source, setup.cost, setup.limits, 1, ROUTERS["least-loaded"](), setup.delay_s).served


def reading(served: Sequence[ServedRequest], now_s: float, slower: float) -> EngineReading:
    """The engine's page at a moment, with latencies so many times as long."""
    ended = [one for one in served if one.end_s <= now_s]
    running = sum(one.request.arrival_s <= now_s < one.end_s for one in served)
    counters = {
        q.REQUESTS: float(len(ended)),
        q.PROMPT_TOKENS: 500.0 * len(ended),
        q.DECODE_TOKENS: float(sum(one.request.answer for one in ended)),
    }
    histograms = {
        q.TTFT: histogram([slower * one.ttft_s for one in ended]),
        q.TPOT: histogram([slower * one.mean_gap_s for one in ended]),
        q.E2E: histogram([slower * one.e2e_s for one in ended]),
    }
    rank = RankReading("0", counters, {q.RUNNING: float(running), q.WAITING: 0.0}, histograms)
    return EngineReading("e", "http://a", EndpointState.OK, 0.0, model=MODEL, ranks=(rank,))


def recorded(slower: float = 1.0, per_s: float = 4.0, until_s: int = 300, seed: int = 7) -> RecordedTraffic:
    recorder = TrafficRecorder()
    served = played(per_s=per_s, seconds=float(until_s), seed=seed)
    for second in range(30, until_s, 5):
        recorder.take(1e9 + second, [reading(served, float(second), slower)])
    return recorder.by_model()[MODEL]


def checked(traffic: RecordedTraffic, workload: Workload = WORKLOAD) -> SelfCheck:
    found = check_recording(workload, SCENARIO, KNOWN, traffic)
    assert found is not None
    return found.check


def test_an_engine_that_does_what_its_points_say_agrees_with_itself() -> None:
    found = checked(recorded())
    assert [figure.name for figure in found.figures] == [
        "TTFT mean", "TTFT p95", "TPOT mean", "TPOT p95", "E2E mean", "E2E p95", "throughput",
    ]  # fmt: skip
    assert not found.refuted
    assert found.instances == 1
    assert found.in_flight == pytest.approx(4.0 * found.figures[4].measured, rel=0.1)
    for figure in found.figures:
        assert abs(figure.error_ratio) < 0.15, figure


def test_one_that_is_slower_than_its_points_refutes_them_and_the_figure_is_named() -> None:
    found = checked(recorded(slower=2.0))
    assert found.refuted
    assert "measured" in found.text
    assert f"at {found.in_flight:.3g} in flight each (-" in found.text
    worst = max(abs(figure.error_ratio) for figure in found.figures)
    assert worst > MOST_ERROR


@each_row(
    ("per_s", "until_s", "seed", "figure"),
    [
        (0.2, 150, 1, "throughput"),
        (2.0, 60, 0, "TTFT p95"),
        (16.0, 41, 0, "throughput"),
    ],
)
def test_a_few_requests_refute_nothing(per_s: float, until_s: int, seed: int, figure: str) -> None:
    """Of an engine that does what its points say: as many as arrived by chance, a p95 of which two requests are longer,
    and requests that had begun before the recording or end after it."""
    found = checked(recorded(per_s=per_s, until_s=until_s, seed=seed), replace(WORKLOAD, target=per_s))
    error = next(one.error_ratio for one in found.figures if one.name == figure)
    assert (abs(error) > MOST_ERROR, found.refuted) == (True, False)
    assert re.search(r"%, of \d+ requests: too few to refute anything\)$", found.text)


def test_a_p95_beyond_the_end_of_its_histogram_refutes_none_that_is_longer() -> None:
    """It was measured as a least value."""
    traffic = recorded()
    assert traffic.measured is not None
    beyond = Quantiles(p95=1.0, p95_low=1.0, p95_high=Missing(Reason.INVALID))
    found = checked(traffic._replace(measured=traffic.measured._replace(latencies={q.E2E: beyond}, tokens_per_s=0.0)))
    (figure,) = (figure for figure in found.figures if figure.name == "E2E p95")
    assert (figure.error_ratio, figure.is_least, found.refuted) == (0.0, True, False)
    assert ", measured >1.0s, at " in found.text
    longer = Quantiles(p95=60.0, p95_low=60.0, p95_high=Missing(Reason.INVALID))
    found = checked(traffic._replace(measured=traffic.measured._replace(latencies={q.E2E: longer}, tokens_per_s=0.0)))
    assert found.refuted


def answer(traffic: RecordedTraffic, scenario: Scenario = SCENARIO, workload: Workload = WORKLOAD) -> Simulation:
    return simulate(workload, scenario, KNOWN, Conditions(replicas=1), traffic)


def test_no_goal_is_held_by_a_fit_that_is_refuted() -> None:
    easy = replace(WORKLOAD, ttft_p95_ms=60_000.0)
    assert answer(recorded(), workload=easy).holds
    refuted = answer(recorded(slower=2.0), workload=easy)
    assert refuted.check is not None
    assert (refuted.holds, refuted.problem, len(refuted.figures)) == (False, "", 1)


def test_what_is_typed_changes_what_is_played_but_not_what_is_checked() -> None:
    traffic = recorded()
    plain = answer(traffic)
    typed = answer(traffic, workload=replace(WORKLOAD, max_num_seqs=2, tp=2, kv_pool_tokens=20_000.0))
    assert typed.check == plain.check
    assert typed.max_num_seqs == 2


def test_a_plan_by_simulation_is_none_where_its_recording_refutes_it() -> None:
    goal = replace(WORKLOAD, ttft_p95_ms=60_000.0)
    assert not decide_by_simulation(goal, SCENARIO, KNOWN, {MODEL: recorded()}).problem
    refuted = decide_by_simulation(goal, SCENARIO, KNOWN, {MODEL: recorded(slower=2.0)})
    assert refuted.problem.startswith("by simulation: its fit is refuted by what was recorded: ")


def from_capture(name: str, adapter: Adapter) -> RecordedTraffic:
    """The traffic and the latencies that a real engine's pages tell."""
    scanner = Scanner(adapter.wanted_names)
    recorder = TrafficRecorder()
    for scrape in Capture(name).scrapes:
        if scrape.status == 200:
            found = adapter.read(scanner.scan(scrape.body))
            told: dict[str, Any] = {"ranks": found.ranks, "model": "tiny-llama"}
            one = EngineReading("e", "http://a", EndpointState.OK, scrape.t, **told)
            recorder.take(1e9 + scrape.t, [one])
    return recorder.by_model()["tiny-llama"]


@each_row(("name", "adapter"), [("vllm-poisson", VllmAdapter), ("sglang-basic", SglangAdapter)])
def test_a_gpu_never_answers_for_a_server_that_ran_on_its_cpu(name: str, adapter: type[Adapter]) -> None:
    """Real engines on two cores, with too few loads for a line: an H100's model says a hundredth of what they took."""
    traffic = from_capture(name, adapter())
    assert traffic.measured is not None
    seen = Observed(Origin.LIVE, "e", "tiny-llama", prompt_tokens=200.0, answer_tokens=100.0, kv_pool_tokens=20_000.0)
    catalogues: Catalogues = KNOWN._replace(own={"tiny-llama": KNOWN.llm("TinyLlama-1.1B")})
    workload = Workload("tiny-llama", 4.0, seen=seen)
    found = simulate(workload, SCENARIO, catalogues, Conditions(replicas=1), traffic)
    assert found.figures == ()
    assert found.problem.startswith("not known: nothing was measured that tells what a step of these engines takes")
    assert f"a model of {H100} is refuted by what was recorded: " in found.problem
    assert found.check is not None
    assert found.check.refuted


def test_without_latencies_and_tokens_nothing_is_compared() -> None:
    recorder = TrafficRecorder()
    for second in range(0, 60, 5):
        rank = RankReading("0", {q.REQUESTS: float(second)}, {q.RUNNING: 3.0, q.WAITING: 0.0}, {})
        recorder.take(1e9 + second, [EngineReading("e", "http://a", EndpointState.OK, 0.0, model=MODEL, ranks=(rank,))])
    found = checked(recorder.by_model()[MODEL])
    assert (found.refuted, found.figures) == (False, ())
    assert found.text.startswith(
        "not compared with what was recorded: the lengths of the recorded requests are not known"
    )
