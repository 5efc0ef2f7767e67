"""Servers with several types of GPU: who stands where, what is short, what a loss costs, and the cheaper split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

import pytest

from gpumon.readings.missing import Missing
from gpumon.sizing.answer import Answer, WorkloadPlan
from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN, NIM_70B

SEVENTY_B = Workload("meta-llama/Llama-3.3-70B-Instruct-FP8", 300.0, prompt_tokens=2000.0, answer_tokens=300.0)
EIGHT_B = Workload("meta-llama/Llama-3.1-8B-Instruct", 3000.0, prompt_tokens=1024.0, answer_tokens=512.0, tp=1)
A100_FIRST = (Server("A100 SXM4 80GB", gpus=4, count=1), Server("H200 SXM 141GB"))
MIXED = Scenario(itl_p95_ms=40, server=A100_FIRST, workload=(EIGHT_B,))
PRICED = KNOWN._replace(prices={"A100 SXM4 80GB": 1.19, "H100 SXM5 80GB": 2.49, "H200 SXM 141GB": 3.5, "L40S": 0.89})


def instances(answer: Answer, at: int = 0) -> dict[str, int]:
    """Type of GPU -> instances of one workload."""
    return {each.gpu: each.instances for each in answer.workloads[at].on}


def test_servers_are_filled_in_the_order_of_the_file():
    answer = plan(MIXED, KNOWN)
    assert not answer.problem
    [first, second] = answer.plans.busy_aware.by_gpu
    assert (first.gpu, first.gpus, first.servers) == ("A100 SXM4 80GB", 4, 1)
    assert second.gpu == "H200 SXM 141GB"
    assert answer.totals.gpus == first.gpus + second.gpus
    assert answer.totals.servers == first.servers + second.servers
    assert isinstance(answer.plans.busy_aware.servers_least, Missing)


@each_row("kind", ["concurrency", "users", "requests_per_s"])
def test_instances_of_two_types_carry_the_target_and_no_more_than_planned(kind):
    """Each type has the load that it is planned with or less, and one instance less of either would be too few."""
    target = {"concurrency": 3000.0, "users": 3000.0, "requests_per_s": 150.0}[kind]
    asked = replace(EIGHT_B, target_kind=kind, target=target, think_s=5.0)
    [row] = plan(replace(MIXED, workload=(asked,)), KNOWN).workloads
    carried = [each.instances * each.capacity_per_instance for each in row.on]
    assert len(carried) == 2
    assert row.concurrency <= sum(carried) * (1 + 1e-9)
    assert row.itl_s <= 0.040
    if kind == "concurrency":
        assert row.concurrency == pytest.approx(3000.0)
        assert row.concurrency > sum(carried) - row.on[1].capacity_per_instance
    elif kind == "requests_per_s":
        assert row.requests_per_s == pytest.approx(150.0)
    else:
        assert row.requests_per_s == pytest.approx(3000.0 / (row.concurrency / row.requests_per_s + 5.0), rel=0.02)


def test_what_fits_only_the_second_type_stands_there_and_says_why():
    scenario = Scenario(server=(Server("L40S", gpus=1, count=3), Server("H100 SXM5 80GB")), workload=(SEVENTY_B,))
    answer = plan(scenario, KNOWN)
    alone = plan(replace(scenario, server=scenario.server[1:]), KNOWN)
    assert not answer.problem
    assert answer.totals.gpus == alone.totals.gpus
    assert any(note.startswith("not on L40S: needs") for note in answer.workloads[0].notes)


def test_each_workload_stands_where_it_can():
    servers = (Server("L40S", gpus=1), Server("H100 SXM5 80GB"))
    answer = plan(Scenario(server=servers, workload=(SEVENTY_B, EIGHT_B)), KNOWN)
    assert not answer.problem
    used = {
        (server.shape, workload)
        for server in answer.plans.busy_aware.layout
        for slot in server.gpus
        for workload in slot.workloads
    }
    assert used == {(1, 0), (0, 1)}


def test_the_order_of_the_file_gives_way_where_it_leaves_no_room():
    """The small model fits both, the large one the H100 alone, and there is one server of each."""
    small = replace(EIGHT_B, target=8.0 * 200.0)
    large = replace(SEVENTY_B, target=100.0)
    servers = (Server("H100 SXM5 80GB", count=1), Server("A100 SXM4 80GB", gpus=16, count=1, nvlink_gpus=1))
    answer = plan(Scenario(itl_p95_ms=40, server=servers, workload=(small, large)), KNOWN)
    assert not answer.problem
    assert set(instances(answer, 1)) == {"H100 SXM5 80GB"}


def test_what_is_here_counts_by_type():
    answer = plan(MIXED, KNOWN, {"A100 SXM4 80GB": 4, "H200 SXM 141GB": 16, "L4": 9})
    needed = answer.totals.gpus
    assert answer.have is not None
    assert (answer.have.gpus, answer.have.short_gpus) == (20, needed - 20)
    assert answer.have.text.startswith(f"fits on {needed:.0f} of 20 GPUs")
    # More A100s than are needed are no H200s.
    short = plan(MIXED, KNOWN, {"A100 SXM4 80GB": 100, "H200 SXM 141GB": 1}).have
    assert short is not None
    assert short.short_gpus == needed - 4 - 1
    assert short.text == f"short {needed - 5:.0f} H200 SXM 141GB"


def test_a_type_that_is_not_needed_is_to_spare():
    few = replace(MIXED, workload=(replace(EIGHT_B, target=100.0),))
    have = plan(few, PRICED, {"A100 SXM4 80GB": 4, "H200 SXM 141GB": 16}).have
    assert have is not None
    assert (have.gpus, have.short_gpus) == (20, -19)
    assert have.text == "fits on 1 of 20 GPUs: frees 19 GPUs, saves 2 servers, 56.00 per hour"


def test_the_lost_server_is_the_one_that_carries_most():
    answer = plan(MIXED, KNOWN)
    [row] = answer.workloads
    instance, server = row.degraded
    [a100, h200] = row.on
    assert instance.instances == row.instances - 1
    assert server.instances == row.instances - 8  # of the H200s, though the A100s come first
    # The rest shares the target by what each type carries; the H200s are farther beyond their room.
    carried = a100.instances * a100.capacity_per_instance + (h200.instances - 8) * h200.capacity_per_instance
    assert server.running == pytest.approx(3000.0 / carried * h200.capacity_per_instance, rel=1e-6)


def seventy_two_b() -> WorkloadPlan:
    """On eight A100, whose first token takes longer, and on H100s, which carry most."""
    servers = (Server("A100 SXM4 80GB", count=1), Server("H100 SXM5 80GB"))
    asked = Workload("Qwen/Qwen2.5-72B-Instruct", 160.0, tp=4, prompt_tokens=6000.0, answer_tokens=500.0)
    [row] = plan(Scenario(itl_p95_ms=50, server=servers, workload=(asked,)), KNOWN).workloads
    assert [each.gpu for each in row.on] == ["A100 SXM4 80GB", "H100 SXM5 80GB"]
    return row


def test_a_loss_shortens_no_latency_whichever_type_is_the_slowest():
    row = seventy_two_b()
    for case in row.degraded:
        assert case.ttft_s > row.ttft_s
        assert case.itl_s > row.itl_s


def test_each_type_has_its_own_load_and_its_own_doubt_in_a_note():
    row = seventy_two_b()
    [a100, h100] = row.on
    share = 160.0 / (a100.instances * a100.capacity_per_instance + h100.instances * h100.capacity_per_instance)
    for each in row.on:
        carried = f"{share * each.capacity_per_instance:.3g} requests each, at most {each.capacity_per_instance:g}"
        assert f"{each.instances} on {each.gpu} (TP 4): {carried}" in row.notes
    assert row.band
    assert any(note.startswith("on A100 SXM4 80GB: ITL not measured: 2x either way") for note in row.notes)


def test_a_rate_that_two_types_can_not_serve_after_a_loss_says_so():
    asked = replace(EIGHT_B, target_kind="requests_per_s", target=150.0)
    [row] = plan(replace(MIXED, itl_p95_ms=None, workload=(asked,)), KNOWN).workloads
    assert row.degraded[-1].text == "the rest cannot serve this rate: the queue grows without end"


def test_counts_are_not_rounded_up_twice():
    """7 of 25 have no place on the first type: 25 x 0.28 is 7.000000000000001."""
    typed = Workload("a model", 25.0, capacity_per_instance=1.0, memory_gb=50.0)
    servers = (Server("H100 SXM5 80GB", gpus=18, count=1), Server("H100 PCIe 80GB"))
    answer = plan(Scenario(server=servers, workload=(typed,)), KNOWN)
    assert answer.totals.instances == 25
    assert instances(answer) == {"H100 SXM5 80GB": 18, "H100 PCIe 80GB": 7}


def test_spare_instances_count_once_over_both_types():
    answer = plan(replace(MIXED, spare_instances=3), KNOWN)
    assert answer.totals.instances == plan(MIXED, KNOWN).totals.instances + 3


def test_spare_servers_are_of_the_first_shape_that_there_are_more_of():
    servers = (Server("A100 SXM4 80GB", count=1), Server("L40S", gpus=4))
    answer = plan(Scenario(itl_p95_ms=50, server=servers, spare_servers=2, workload=(EIGHT_B,)), KNOWN)
    assert (answer.plans.busy_aware.spare_servers, answer.plans.busy_aware.spare_shape) == (2, 1)
    assert sum(each.servers for each in answer.plans.busy_aware.by_gpu) == answer.totals.servers


def test_a_model_that_runs_stays_on_the_gpus_that_it_was_measured_on():
    """The fleet's first type takes what nobody measured; what runs on H100 is planned there."""
    seen = replace(SEVENTY_B, seen=NIM_70B, prompt_tokens=None, answer_tokens=None)
    servers = (Server("A100 SXM4 80GB", count=9), Server("H100 SXM5 80GB", count=9))
    answer = plan(Scenario(itl_p95_ms=100, server=servers, workload=(seen, EIGHT_B)), KNOWN)
    assert set(instances(answer, 0)) == {"H100 SXM5 80GB"}
    assert answer.workloads[0].source.value == "measured"
    assert set(instances(answer, 1)) == {"A100 SXM4 80GB"}


def test_the_same_type_may_come_again_behind_another():
    """What is here first, then more of the first type."""
    servers = (Server("A100 SXM4 80GB", count=1), Server("H100 SXM5 80GB", count=1), Server("A100 SXM4 80GB"))
    answer = plan(replace(MIXED, server=servers), KNOWN)
    [first, second] = answer.plans.busy_aware.by_gpu
    assert (first.gpu, second.gpu, second.gpus) == ("A100 SXM4 80GB", "H100 SXM5 80GB", 8)
    assert first.servers > 1
    assert len(answer.workloads[0].on) == 2


def test_without_prices_the_order_of_the_file_stays():
    half = KNOWN._replace(prices={"H200 SXM 141GB": 0.01})
    assert instances(plan(MIXED, half)) == instances(plan(MIXED, KNOWN))


def per_hour(servers: Iterable[Server]) -> float:
    """Price of all these servers."""
    return sum(each.count * each.gpus * PRICED.prices[each.gpu] for each in servers)


def capped(scenario: Scenario, most_per_hour: float) -> Iterator[Scenario]:
    """The same question with every number of servers of either type that costs no more, in both orders."""
    for servers in (scenario.server, scenario.server[::-1]):
        for counts in product(range(9), repeat=2):
            used = tuple(replace(each, count=n) for each, n in zip(servers, counts, strict=True) if n)
            if used and per_hour(used) <= 1.001 * most_per_hour:
                yield replace(scenario, server=used)


@each_row(("target", "gpus"), [(120.0, (8, 2)), (1500.0, (8, 2)), (2600.0, (4, 8))])
def test_no_other_number_of_servers_costs_less(target, gpus):
    servers = (Server("A100 SXM4 80GB", gpus=gpus[0]), Server("H100 SXM5 80GB", gpus=gpus[1]))
    scenario = Scenario(itl_p95_ms=40, server=servers, workload=(replace(EIGHT_B, target=target),))
    answer = plan(scenario, PRICED)
    answers = [plan(each, PRICED) for each in capped(scenario, answer.totals.price_per_hour)]
    least = min(each.totals.price_per_hour for each in answers if not each.problem)
    assert answer.totals.price_per_hour == pytest.approx(least)
    in_order = plan(scenario, KNOWN._replace(prices={"A100 SXM4 80GB": 1.19}))
    assert answer.totals.price_per_hour + answer.plans.busy_aware.saving_per_hour == pytest.approx(
        in_order.totals.price_per_hour
    )


def test_twenty_models_on_three_types_have_an_answer():
    many = tuple(replace(EIGHT_B, name=f"model {at}", target=50.0 + 13.0 * at, tp=None) for at in range(20))
    servers = (Server("A100 SXM4 80GB", count=2), Server("H100 SXM5 80GB", count=2), Server("L40S", gpus=4))
    answer = plan(Scenario(itl_p95_ms=60, server=servers, workload=many), PRICED)
    assert not answer.problem
    assert answer.totals.instances == sum(each.instances for each in answer.workloads)


@each_row("target", [40.0, 300.0, 1376.0])
def test_a_plan_over_several_types_is_never_dearer_than_one_of_them(target):
    """As a fleet poses it: what is here of each type first, then more of the first one."""
    h100 = Server("H100 SXM5 80GB", count=1)
    servers = (h100, Server("A100 SXM4 80GB", gpus=4, count=1), replace(h100, count=0))
    models = (
        replace(SEVENTY_B, target=target),
        replace(EIGHT_B, target=target, tp=None),
        replace(EIGHT_B, name="another", target=target / 4.0, prompt_tokens=4000.0),
    )
    scenario = Scenario(server=servers, workload=models)
    mixed = plan(scenario, PRICED)
    alone = plan(replace(scenario, server=(servers[2],)), PRICED)
    assert not mixed.problem
    assert mixed.totals.price_per_hour <= alone.totals.price_per_hour


def test_spare_servers_beyond_what_is_left_have_no_plan():
    """3 of 4 servers are needed."""
    servers = (Server("A100 SXM4 80GB", count=4),)
    one = plan(Scenario(itl_p95_ms=50, server=servers, spare_servers=1, workload=(EIGHT_B,)), KNOWN)
    two = plan(Scenario(itl_p95_ms=50, server=servers, spare_servers=2, workload=(EIGHT_B,)), KNOWN)
    assert one.totals.servers == 4
    assert not one.problem
    assert "no type of server has that many left" in two.problem


def test_spare_servers_are_of_a_type_in_use_where_enough_are_left():
    servers = (Server("L40S", count=9), Server("A100 SXM4 80GB"))
    answer = plan(Scenario(itl_p95_ms=50, server=servers, spare_servers=1, workload=(EIGHT_B,)), KNOWN)
    [row] = answer.plans.busy_aware.by_gpu
    assert (row.gpu, row.servers, answer.plans.busy_aware.spare_shape) == ("L40S", 8, 0)
