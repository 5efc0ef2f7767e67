"""What-ifs of one workload, and the smallest plan that holds the goals."""

from __future__ import annotations

import pytest

from gpumon.readings.missing import Missing
from gpumon.sizing.length_tail import Lengths, LengthShare
from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Scenario, Server, TargetKind, Workload
from gpumon.sizing.search import demand_of
from gpumon.sizing.simulate.conditions import Conditions
from gpumon.sizing.simulate.experiment import Simulation, simulate, sketch
from gpumon.sizing.simulate.fewest import SMALL_STEPS, decide_by_simulation, fewest_gpus
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN

CHAT = Workload(
    "Qwen/Qwen3-32B", 12, target_kind="requests_per_s", prompt_tokens=1000, answer_tokens=200, ttft_p95_ms=800
)
ASKED = Conditions(seconds=60.0)


def on(workload: Workload, gpu: str = "H100 SXM5 80GB") -> Scenario:
    return Scenario(server=(Server(gpu),), workload=(workload,))


def answered(asked: Conditions, workload: Workload = CHAT, gpu: str = "H100 SXM5 80GB") -> Simulation:
    answer = simulate(workload, on(workload, gpu), KNOWN, asked)
    assert answer.problem == ""
    return answer


def ttft_p95_s(answer: Simulation) -> float:
    (figures,) = answer.figures
    assert not isinstance(figures.ttft_s.p95, Missing)
    return figures.ttft_s.p95


def test_more_replicas_wait_less() -> None:
    one = answered(ASKED._replace(replicas=1), replace(CHAT, tp=1))
    four = answered(ASKED._replace(replicas=4), replace(CHAT, tp=1))
    assert ttft_p95_s(four) < ttft_p95_s(one)
    assert four.gpus == 4


def test_more_tp_and_a_faster_gpu_decode_faster() -> None:
    base = answered(ASKED._replace(replicas=2), replace(CHAT, tp=2)).figures[0]
    more = answered(ASKED._replace(replicas=2), replace(CHAT, tp=4)).figures[0]
    faster = answered(ASKED._replace(replicas=2), replace(CHAT, tp=2), "H200 SXM 141GB").figures[0]
    assert more.itl_s.mean < base.itl_s.mean
    assert faster.itl_s.mean < base.itl_s.mean


def test_small_steps_shorten_the_longest_gaps() -> None:
    large = answered(ASKED._replace(replicas=1), replace(CHAT, max_num_batched_tokens=8192)).figures[0]
    small = answered(ASKED._replace(replicas=1), replace(CHAT, max_num_batched_tokens=512)).figures[0]
    assert small.itl_s.p99 < large.itl_s.p99


def test_bursts_wait_longer_than_even_arrivals() -> None:
    even = answered(ASKED._replace(replicas=1, burstiness=10.0))
    bursts = answered(ASKED._replace(replicas=1, burstiness=0.2))
    assert ttft_p95_s(bursts) > ttft_p95_s(even)


def test_it_stands_beside_the_formula() -> None:
    answer = answered(ASKED)
    (figures,) = answer.figures
    assert answer.replicas == round(plan(on(CHAT), KNOWN).workloads[0].instances)  # type: ignore[arg-type]
    assert figures.itl_s.mean == pytest.approx(answer.formula.itl_s, rel=0.3)


def test_the_least_plan_holds_and_one_less_does_not() -> None:
    workload = replace(CHAT, target=60.0, tp=2)
    found = fewest_gpus(workload, on(workload), KNOWN, ASKED)
    count = found.demand.needed_instances
    assert count > 1
    assert simulate(workload, on(workload), KNOWN, ASKED._replace(replicas=count)).holds
    assert not simulate(workload, on(workload), KNOWN, ASKED._replace(replicas=count - 1)).holds


def test_the_least_plan_is_over_the_tps_that_hold_the_model() -> None:
    found = fewest_gpus(CHAT, on(CHAT), KNOWN, ASKED)
    gpus = found.demand.needed_instances * found.demand.instance.gpus
    for tp in (1, 2, 4):
        typed = replace(CHAT, tp=tp)
        own = fewest_gpus(typed, on(typed), KNOWN, ASKED)
        assert gpus <= own.demand.needed_instances * own.demand.instance.gpus


def test_spare_instances_count_among_the_fewest_gpus() -> None:
    """3 instances of TP 1 or 1 of TP 2 hold the goal; with two spare ones these are 5 and 6 GPUs."""
    workload = replace(CHAT, target=5.0, spare_instances=2)
    found = fewest_gpus(workload, on(workload), KNOWN, ASKED._replace(seconds=30.0))
    assert (found.demand.instance.tp, found.demand.gpus) == (1, 5.0)


def test_a_request_every_hour_has_a_plan() -> None:
    workload = replace(CHAT, target=1.0 / 3600.0)
    found = fewest_gpus(workload, on(workload), KNOWN, Conditions())
    assert found.demand.needed_instances == 1
    assert found.figures.requests == pytest.approx(200, rel=0.3)


@pytest.mark.parametrize("kind", ["users", "concurrency"])
def test_a_part_of_a_client_is_one(kind: TargetKind) -> None:
    workload = replace(CHAT, target=1e-4, target_kind=kind, think_s=60.0)
    found = fewest_gpus(workload, on(workload), KNOWN, Conditions())
    assert found.demand.needed_instances == 1
    assert found.figures.requests < 2000


def test_there_is_no_picture_of_more_requests_than_a_keystroke_has_time_for() -> None:
    """100,000 clients of a small model send 16 million requests in four times the formula's mean time of one."""
    crowd = Workload("Qwen/Qwen2.5-0.5B-Instruct", 100_000, prompt_tokens=10, answer_tokens=10)
    scenario = on(crowd, "B200 SXM 180GB")
    drawn = sketch(demand_of(crowd, scenario, KNOWN), scenario, KNOWN)
    assert drawn.figures == ()
    assert drawn.problem == "the clients send more than 50,000 requests: too many to simulate"


def test_a_time_of_few_requests_one_after_the_other_is_noted() -> None:
    assert not any("longer --duration" in note for note in answered(ASKED).notes)
    long = answered(ASKED._replace(seconds=10.0), replace(CHAT, answer_tokens=400))
    assert any(note.endswith("count too much; give a longer --duration, or a longer trace") for note in long.notes)


def test_where_no_request_arrives_there_is_no_answer() -> None:
    workload = replace(CHAT, target=1e-6)
    answer = simulate(workload, on(workload), KNOWN, ASKED)
    assert answer.figures == ()
    assert "no request arrives in the simulated time" in answer.problem


def test_more_replicas_do_not_help_a_request_longer_than_the_cache() -> None:
    spread = Lengths(prompt=(LengthShare(500.0, 0.9), LengthShare(8000.0, 1.0)))
    workload = replace(CHAT, tp=2, kv_pool_tokens=6000, lengths=spread)
    with pytest.raises(ValueError, match="longer than the KV cache of an instance: more GPUs per instance"):
        fewest_gpus(workload, on(workload), KNOWN, ASKED)


@each_row(
    ("workload", "why"),
    [
        (replace(CHAT, ttft_p95_ms=None), "no goal to simulate for"),
        (replace(CHAT, target=2.0, ttft_p95_ms=1.0), "no number of replicas up to 512"),
        (Workload("no/such-model", 1.0, ttft_p95_ms=100), "is not known|lengths are not known"),
        (replace(CHAT, model="meta-llama/Llama-3.1-405B-Instruct", tp=1), "more TP|larger GPU|not even one"),
    ],
)
def test_why_there_is_no_least_plan(workload: Workload, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        fewest_gpus(workload, on(workload), KNOWN, ASKED)


def test_the_plan_takes_what_the_simulation_decided() -> None:
    scenario = on(replace(CHAT, target=8.0, tp=1))
    answer = plan(scenario, KNOWN, decide=decide_by_simulation)
    (row,) = answer.workloads
    demand = decide_by_simulation(scenario.workload[0], scenario, KNOWN)
    assert (row.instances, row.tp) == (demand.needed_instances, demand.instance.tp)
    assert row.notes[0].startswith(f"by simulation: {demand.needed_instances} instance")
    assert "by formula" in row.notes[0]


@pytest.mark.parametrize(("itl_ms", "fewer"), [(45.0, True), (22.0, False)])
def test_smaller_steps_are_named_where_they_take_fewer_gpus(itl_ms: float, fewer: bool) -> None:
    """Each step with a prompt is a long gap, so that a goal on the p95 of the ITL takes replicas that shorter steps
    save. Below the ITL of those, nothing does."""
    workload = replace(CHAT, target=6.0, tp=2, ttft_p95_ms=2000.0, itl_p95_ms=itl_ms)
    small = replace(workload, max_num_batched_tokens=SMALL_STEPS)
    [row] = plan(on(workload), KNOWN, decide=decide_by_simulation).workloads
    [other] = plan(on(small), KNOWN, decide=decide_by_simulation).workloads
    named = [note for note in (*row.notes, *other.notes) if "max_num_batched_tokens" in note]
    assert (other.gpus < row.gpus) is fewer
    saved = f"max_num_batched_tokens = 512 would take {other.gpus:.0f} GPUs instead of {row.gpus:.0f} in the simulation"
    assert named == [saved] * fewer


def test_what_the_simulation_can_not_hold_has_no_plan() -> None:
    scenario = on(replace(CHAT, target=2.0, ttft_p95_ms=1.0, tp=1))
    answer = plan(scenario, KNOWN, decide=decide_by_simulation)
    assert "by simulation: no number of replicas" in answer.problem


def test_of_several_types_of_gpu_the_first_is_played() -> None:
    servers = (Server("H100 SXM5 80GB"), Server("A100 SXM4 80GB"))
    scenario = Scenario(server=servers, workload=(CHAT,))
    answer = simulate(CHAT, scenario, KNOWN, ASKED)
    assert answer.gpu == "H100 SXM5 80GB"
    assert answer.notes[-1] == "played on H100 SXM5 80GB alone, the first type of GPU of the scenario"
