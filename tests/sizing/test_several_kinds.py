"""Servers with several kinds of GPU: who stands where, what is short, and what a lost server costs."""

from __future__ import annotations

import pytest

from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.records import replace
from tests.sizing.questions import KNOWN, NIM_70B, changed

SEVENTY_B = Workload("meta-llama/Llama-3.3-70B-Instruct-FP8", 300.0, prompt_tokens=2000.0, answer_tokens=300.0)
EIGHT_B = Workload("meta-llama/Llama-3.1-8B-Instruct", 3000.0, prompt_tokens=1024.0, answer_tokens=512.0, tp=1)
A100_FIRST = (Server("A100 SXM4 80GB", gpus=4, count=1), Server("H200 SXM 141GB"))


def test_what_fits_only_the_second_kind_stands_there() -> None:
    scenario = Scenario(server=(Server("L40S", gpus=1, count=3), Server("H100 SXM5 80GB")), workload=(SEVENTY_B,))
    answer = plan(scenario, KNOWN)
    alone = plan(replace(scenario, server=scenario.server[1:]), KNOWN)
    assert not answer.problem
    assert answer.totals.gpus == alone.totals.gpus
    assert any(note.startswith("not on L40S: needs") for note in answer.workloads[0].notes)


def test_each_workload_stands_where_it_can() -> None:
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


def test_what_is_here_counts_by_kind() -> None:
    scenario = Scenario(itl_p95_ms=40, server=A100_FIRST, workload=(EIGHT_B,))
    answer = plan(scenario, KNOWN, {"A100 SXM4 80GB": 4, "H200 SXM 141GB": 16, "L4": 9})
    need = answer.totals.gpus
    assert answer.have is not None
    assert (answer.have.gpus, answer.have.short_gpus) == (20, need - 20)
    assert answer.have.text.startswith(f"fits on {need:.0f} of 20 GPUs")
    # More A100s than are needed are no H200s.
    short = plan(scenario, KNOWN, {"A100 SXM4 80GB": 100, "H200 SXM 141GB": 1}).have
    assert short is not None
    assert short.short_gpus == need - 4 - 1


def test_the_lost_server_is_the_one_that_carries_most() -> None:
    [row] = plan(Scenario(itl_p95_ms=40, server=A100_FIRST, workload=(EIGHT_B,)), KNOWN).workloads
    instance, server = row.degraded
    assert instance.instances == row.instances - 1
    assert server.instances == row.instances - 8  # of the H200s, though the A100s come first
    # What is left shares 3,000 by what each kind carries; the H200s, which carry more, are the ones that tell.
    a100, h200 = (float(note.split("at most ")[1].split(" ")[0]) for note in row.notes if " requests each" in note)
    left = row.instances - 4 - 8
    assert server.running == pytest.approx(3000 / (4 * a100 + left * h200) * a100) or left <= 0


def test_counts_are_not_rounded_up_twice() -> None:
    """7 of 25 have no place on the first kind: 25 x 0.28 is 7.000000000000001."""
    typed = Workload("a model", 25.0, capacity_per_instance=1.0, memory_gb=50.0)
    servers = (Server("H100 SXM5 80GB", gpus=18, count=1), Server("H100 PCIe 80GB"))
    assert plan(Scenario(server=servers, workload=(typed,)), KNOWN).totals.instances == 25


@pytest.mark.parametrize("first", [0, 1])
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


def test_spare_servers_are_of_the_first_shape_that_there_are_more_of() -> None:
    servers = (Server("A100 SXM4 80GB", count=1), Server("L40S", gpus=4))
    answer = plan(Scenario(itl_p95_ms=50, server=servers, spare_servers=2, workload=(EIGHT_B,)), KNOWN)
    assert (answer.plans.busy_aware.spare_servers, answer.plans.busy_aware.spare_shape) == (2, 1)
    several = (Server("A100 SXM4 80GB", count=9), Server("H100 SXM5 80GB", count=1))
    answer = plan(Scenario(itl_p95_ms=50, server=several, spare_servers=2, workload=(EIGHT_B,)), KNOWN)
    assert answer.plans.busy_aware.spare_shape == 0
