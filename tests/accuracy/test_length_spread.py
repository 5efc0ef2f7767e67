"""The spread of lengths, from the histograms of an engine's page, against the lengths that were drawn."""

from __future__ import annotations

import math

import pytest

from gpumon.config.scenario_file import parse_scenario, scenario_toml
from gpumon.demo.traffic import LogNormalLengths
from gpumon.sizing.calibration import Calibration
from gpumon.sizing.length_tail import moments_of
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Observed
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue, network_catalogue
from tests.accuracy.calibration import GPU
from tests.accuracy.pages import Where, snapshots
from tests.accuracy.staircase import ACTORS, Staircase
from tests.records import replace

ACTOR = ACTORS["llama-8b"]
SIGMA = 0.7
PROMPTS = LogNormalLengths(3000.0, SIGMA, 128, 16000)
ANSWERS = LogNormalLengths(120.0, SIGMA, 8, 1024)


def seen() -> Observed:
    """What gpumon learns of an engine in three minutes with 24 requests in flight."""
    load = Staircase(ACTOR, [(180.0, 24)], seed=3, prompt=PROMPTS, answer=ANSWERS, hit=0.0)
    calibration = Calibration()
    for snapshot in snapshots(load.pages(), Where(llm_catalogue().find(ACTOR.model), GPU, 1)):
        calibration.take(snapshot)
    return calibration.observed()[0]


def test_a_running_engine_tells_how_its_lengths_spread() -> None:
    """Of a log-normal, the root of the mean square is exp(sigma^2 / 2) times the mean; buckets of 1, 2, 5 blur it."""
    found = seen()
    assert found.lengths is not None
    expected = math.exp(SIGMA**2 / 2.0)
    for steps in (found.lengths.prompt, found.lengths.answer):
        moments = moments_of(steps)
        assert math.sqrt(moments.square) / moments.mean == pytest.approx(expected, rel=0.08)
    workload = Workload(ACTOR.model, 400.0, seen=found, kv_pool_tokens=100_000.0)
    scenario = Scenario(server=(Server(GPU),), workload=(workload,))
    known = Catalogues(gpu_catalogue(), llm_catalogue(), networks=network_catalogue())
    plans = [plan(asked, known).workloads[0] for asked in (scenario, parse_scenario(scenario_toml(scenario)))]
    assert plans[0] == plans[1]
    without = replace(workload, seen=replace(found, lengths=None))
    blind = plan(replace(scenario, workload=(without,)), known).workloads[0]
    held, by_mean = (each.limits[0] for each in (plans[0], blind))
    assert held.kind.value == by_mean.kind.value == "KV"
    assert held.concurrency < by_mean.concurrency
    assert "with the spread of the lengths p95" in held.text
