"""A frontend and its workers count the same tokens and requests: each stands in a sum once."""

from __future__ import annotations

import pytest

from gpumon.efficiency.service import engines_in_sums
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import TokensTotal
from gpumon.sizing.live import from_live, instances_here
from tests.efficiency.polls import tracked
from tests.efficiency.test_replicas import replica
from tests.records import replace
from tests.sizing.live_scenes import at, engine
from tests.sizing.test_live_points import watched

FRONT = {"kind": EngineKind.DYNAMO, "gpus": (), "gpu_count": Missing(Reason.NO_GPU)}


def test_a_frontend_counts_only_for_models_that_nobody_else_serves():
    front, other = engine(6.0, "front", **FRONT), engine(1.0, "front/b", model="b", **FRONT)
    worker = engine(6.0, "worker", model="LLAMA")
    assert [one.name for one in engines_in_sums((front, worker, other))] == ["worker", "front/b"]
    assert engines_in_sums((front,)) == [front]


def test_charts_count_each_token_once_however_the_model_is_written():
    engines = replica("worker", model="org/Llama-3.1-8B-Instruct"), replica("front", kind=EngineKind.DYNAMO)
    points = tracked(*engines)[-1].points
    assert (points["decode"], points["running"]) == (pytest.approx(100.0), 4.0)


def test_sizing_plans_for_the_requests_of_users_once_and_takes_no_frontend_for_an_instance():
    engines = engine(6.0), engine(6.0, "b", gpus=(1,)), engine(12.0, "front", **FRONT)
    assert from_live(at(0, *engines), ()).workload[0].target == 12.0
    assert instances_here(at(0, *engines)) == {"llama": 2}
    calibration = watched(*engines)
    assert calibration.in_flight()["llama"].peak == 12.0
    assert {name for each in calibration.observed() for name in each.name.split(" +")} == {"b", "1"}


def test_what_generates_no_tokens_is_no_workload_even_while_it_is_down():
    none = Missing(Reason.NOT_SUPPORTED, "it generates no tokens")
    embedder = engine(0.0, "tei:3000", model="bge", kind=EngineKind.TEI, tokens_total=TokensTotal(5.0, 5.0, none))
    for state in (EndpointState.OK, EndpointState.REFUSED):
        scenario = from_live(at(0, engine(4.0), replace(embedder, state=state)), ())
        assert [each.model for each in scenario.workload] == ["llama"]
        assert "tei:3000: left out (it generates no tokens)" in scenario.note
