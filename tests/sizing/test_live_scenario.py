"""The scenario of what runs now, and the GPUs that there are."""

from __future__ import annotations

from gpumon.readings.frame import EndpointState, GpuState, Phase
from gpumon.readings.missing import Missing, Reason
from gpumon.sizing.live import from_live, instances_here, own_models
from gpumon.sizing.live_gpus import gpus_here
from gpumon.sizing.peaks import in_flight, request_rates
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.scenario import Scenario, Server
from gpumon.sources.packaged import llm_catalogue
from tests.records import replace
from tests.sizing.live_scenes import H100, at, engine, gone, gpu
from tests.sizing.questions import KNOWN

BIG = "openai/gpt-oss-20b"
SMALL = "meta-llama/Llama-3.1-8B-Instruct"
SEEN = Observed(Origin.LIVE, "vllm:8000", "llama", (Point(6.0, 0.01, weight=3), Point(20.0, 0.02)), time="T")


def test_one_workload_per_model_with_what_is_in_flight():
    engines = (engine(8.0, waiting=2.0), engine(5.0, "b"), engine(3.0, "c", model="qwen"))
    scenario = from_live(at(0, *engines), (SEEN,))
    assert [(each.model, each.target, each.seen) for each in scenario.workload] == [
        ("llama", 15.0, SEEN),
        ("qwen", 3.0, None),
    ]
    assert scenario.server == (Server(H100, gpus=1),)
    assert scenario.note == ""


def test_requests_that_are_turned_away_are_in_the_target():
    """Two of three are let in while 8 run: 4 more would."""
    turns_away = engine(8.0, waiting=2.0, requests_per_s=2.0, rejections_per_s=1.0)
    scenario = from_live(at(0, turns_away), ())
    assert scenario.workload[0].target == 14.0
    assert "llama: requests are turned away, 4 more would run: the target has them, too" in scenario.note
    assert in_flight(at(0, turns_away)) == {"llama": 14.0}
    assert request_rates(at(0, turns_away)) == {"llama": 3.0}


def test_an_idle_model_is_planned_with_one_and_says_so():
    scenario = from_live(at(0, engine(0.0)), ())
    assert scenario.workload[0].target == 1.0
    assert "llama: nothing in flight now, so its target is 1" in scenario.note


def test_an_engine_that_is_gone_keeps_what_it_usually_had_and_never_needs_nothing():
    scenario = from_live(at(0, gone()), (SEEN,))
    assert (scenario.workload[0].target, scenario.workload[0].seen) == (6.0, SEEN)
    assert "vllm:8000: no figures now (refused, last seen T)" in scenario.note


def test_the_state_in_the_note_is_that_of_the_engine_without_figures():
    scenario = from_live(at(0, engine(8.0), gone("vllm:8001")), ())
    assert "vllm:8001: no figures now (refused)" in scenario.note
    assert from_live(at(0, gone()), ()).workload[0].target == 1.0


def test_the_newest_with_points_is_what_a_model_was_seen_to_do():
    fresh = replace(SEEN, points=(), name="fresh")
    assert from_live(at(0, engine(4.0)), (fresh, SEEN)).workload[0].seen == SEEN
    assert from_live(at(0, engine(4.0)), (fresh,)).workload[0].seen == fresh


def test_goals_prices_and_a_given_server_stay():
    base = Scenario(name="mine", itl_p95_ms=40.0, server=(Server("H200 SXM 141GB", 8, price_per_gpu_hour=3.0),))
    scenario = from_live(at(0, engine(4.0)), (), base)
    assert (scenario.name, scenario.itl_p95_ms, scenario.server) == ("mine", 40.0, base.server)
    assert len(scenario.workload) == 1


def test_gpus_that_can_not_be_planned_with_are_left_out_with_the_reason():
    under_mig = Missing(Reason.UNDER_MIG)
    gpus = (
        gpu(0),
        gpu(1),
        gpu(2, state=GpuState.LOST),
        gpu(3, gpu_type="", bandwidth_peak_bytes_per_s=under_mig),
        gpu(3, gpu_type="", parent_uuid="GPU-3", bandwidth_peak_bytes_per_s=under_mig),
        gpu(4, gpu_type=""),
        gpu(5, gpu_type="L40S"),
    )
    shot = at(0, engine(4.0), gpus=gpus)
    scenario = from_live(shot, ())
    assert scenario.server == (Server(H100, 2, count=1), Server("L40S", 1, count=1), Server(H100, 2))
    assert "GPU 2: left out (lost)" in scenario.note
    assert "GPU 3: left out (MIG: its slices are not whole GPUs)" in scenario.note
    assert scenario.note.count("GPU 3") == 1
    assert "GPU 4: left out (NVIDIA H100 80GB HBM3 is not in the catalogue)" in scenario.note
    assert gpus_here(shot) == ((H100, 2), ("NVIDIA H100 80GB HBM3 (not in the catalogue)", 1), ("L40S", 1))


def test_a_remote_engine_brings_its_gpus():
    remote = engine(4.0, gpus=(), gpu_type="H200 SXM 141GB", gpu_count=2.0)
    shot = at(0, remote, gpus=())
    assert gpus_here(shot) == (("H200 SXM 141GB", 2),)
    scenario = from_live(shot, ())
    assert scenario.server == (Server("H200 SXM 141GB", 8),)
    assert "assumed to have 8 GPUs each" in scenario.note


def test_nothing_here_is_an_empty_question():
    scenario = from_live(at(0, gpus=()), ())
    assert (scenario.workload, scenario.server) == ((), ())
    assert gpus_here(at(0, gpus=())) == ()


def test_training_and_nameless_engines_are_no_workloads():
    starting = engine(1.0, "x", model="", state=EndpointState.STARTING)
    scenario = from_live(at(0, engine(4.0, phase=Phase.TRAINING), starting), ())
    assert scenario.workload == ()
    assert "x: its model is not known" in scenario.note


def test_dimensions_of_running_models_are_their_own():
    llm = llm_catalogue().find("meta-llama/Llama-3.1-8B-Instruct")
    assert own_models(at(0, engine(1.0, llm=llm), engine(1.0, "b", model="unknown"))) == {"llama": llm}


def test_instances_here_are_ranks_of_engines_that_answer():
    shot = at(0, engine(4.0, ranks=2), engine(1.0, "b"), gone("c"), engine(1.0, "d", model="other"))
    assert instances_here(shot) == {"llama": 3, "other": 1}


def test_a_fleet_of_two_types_is_planned_on_both_and_grows_by_the_one_that_serves_most():
    """Two hosts of H100 that serve one model, and one of A100 that serves another."""
    a100 = "A100 SXM4 80GB"
    h100s = [gpu(at, "big", host=host) for host in ("n1", "n2") for at in range(2)]
    a100s = [gpu(at, "small", host="n3", gpu_type=a100) for at in range(2)]
    engines = (engine(30.0, "n1/big", model=BIG), engine(20.0, "n3/small", model=SMALL, gpu_type=a100))
    shot = at(0, *engines, gpus=(*h100s, *a100s))
    scenario = from_live(shot, ())
    assert scenario.server == (Server(H100, 2, count=2), Server(a100, 2, count=1), Server(H100, 2))
    assert f"servers here: 2 of 2 x {H100}, 1 of 2 x {a100}" in scenario.note
    seen = {
        model: Observed(
            Origin.LIVE, model, model, gpu=name, gpus=1, tp=1, prompt_tokens=500.0, answer_tokens=200.0,
            points=tuple(Point(load, 0.010 + 0.0003 * load, weight=3) for load in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)),
        )
        for model, name in ((BIG, H100), (SMALL, a100))
    }  # fmt: skip
    measured = from_live(shot, tuple(seen.values()))
    answer = plan(measured, KNOWN, dict(gpus_here(shot)))
    assert not answer.problem
    assert [[each.gpu for each in row.on] for row in answer.workloads] == [["H100 SXM5 80GB"], [a100]]
    assert answer.have is not None
    assert answer.have.text.startswith(f"fits on {answer.totals.gpus:.0f} of 6 GPUs")
