"""Servers of several shapes, and of no shape at all."""

from __future__ import annotations

from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.sizing.servers import _freed_servers_of_type
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN, NIM_70B, changed

SEVENTY_B = Workload("meta-llama/Llama-3.3-70B-Instruct-FP8", 300.0, prompt_tokens=2000.0, answer_tokens=300.0)
EIGHT_B = Workload("meta-llama/Llama-3.1-8B-Instruct", 3000.0, prompt_tokens=1024.0, answer_tokens=512.0, tp=1)


def test_counts_are_not_rounded_up_twice() -> None:
    """7 of 25 have no place on the first shape."""
    typed = Workload("a model", 25.0, capacity_per_instance=1.0, memory_gb=50.0)
    servers = (Server("H100 SXM5 80GB", gpus=18, count=1), Server("H100 SXM5 80GB"))
    answer = plan(Scenario(server=servers, workload=(typed,)), KNOWN)
    assert (answer.totals.instances, answer.totals.servers) == (25, 2)


def test_spare_servers_are_of_the_first_shape_that_there_are_more_of() -> None:
    few, many = (Server("L40S", gpus=4, count=number) for number in (1, 900))
    for servers, at in (((few, Server("L40S")), 1), ((many, few), 0)):
        answer = plan(Scenario(itl_p95_ms=50, server=servers, spare_servers=2, workload=(EIGHT_B,)), KNOWN)
        assert answer.plans.busy_aware.spare_shape == at


@each_row("first", [0, 1])
def test_without_a_server_all_stand_on_the_same_and_it_is_said(first: int) -> None:
    """Engines on different GPUs: none may be sized on one kind and placed on the other."""
    gpus = ("A100 SXM4 80GB", "H100 SXM5 80GB")
    rows = [replace(SEVENTY_B, seen=replace(NIM_70B, gpu=gpu)) for gpu in gpus]
    workloads = (rows[first], rows[1 - first])
    answer = plan(Scenario(workload=workloads), KNOWN)
    given = plan(Scenario(server=(Server(gpus[first]),), workload=workloads), KNOWN)
    assert [row.instances for row in answer.workloads] == [row.instances for row in given.workloads]
    assert answer.warnings[0] == f"no server is given: assumed 8 x {gpus[first]}, as measured"
    assert not any("no server" in warning for warning in given.warnings)


def test_a_bad_profile_names_itself_without_a_server() -> None:
    assert "no profile" in plan(changed(Scenario(workload=(EIGHT_B,)), profile="nothing"), KNOWN).problem


@each_row(("here", "needed", "freed"), [(16, 1, 1), (15, 1, 0), (8, 1, 0), (7, 0, 0), (23, 0, 2), (8, 2, 0)])
def test_a_server_of_which_some_gpus_are_here_is_no_server_to_free(here: int, needed: int, freed: int) -> None:
    scenario = Scenario(server=(Server("H100 SXM5 80GB", gpus=8),))
    assert _freed_servers_of_type("H100 SXM5 80GB", here, needed, scenario) == {0: freed}
