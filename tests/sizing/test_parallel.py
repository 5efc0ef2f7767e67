"""TP and PP that nobody typed, and servers with more GPUs and NVLink domains than most."""

from __future__ import annotations

from typing import Any

from gpumon.readings.missing import Missing
from gpumon.sizing import memory
from gpumon.sizing.answer import WorkloadPlan
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.each_row import each_row
from tests.sizing.questions import KNOWN

H100 = "H100 SXM5 80GB"
EIGHT_B, HUGE = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-405B"


def planned(model: str, server: Server, target: float = 1.0, **fields: Any) -> WorkloadPlan:
    workload = Workload(model, target, **{"prompt_tokens": 2000.0, "answer_tokens": 300.0, **fields})
    [row] = plan(Scenario(server=(server,), workload=(workload,)), KNOWN).workloads
    return row


def test_what_pp_is_advised_for_it_then_helps() -> None:
    """405B at 16 bit: 838 GB over servers of four H100, of which two are too few."""
    two = Server(H100, 4, count=2)
    assert planned(HUGE, two).problem.endswith("a narrower precision or PP")
    four = Server(H100, 4)
    assert planned(HUGE, four, pp=2).problem.endswith("a narrower precision or more PP")
    open_row = planned(HUGE, four)
    assert (open_row.problem, open_row.tp, open_row.pp, open_row.servers) == ("", 4, 4, 4.0)
    row = planned(HUGE, four, pp=3)
    assert (row.problem, row.tp, row.gpus_per_instance, row.servers) == ("", 4, 12, 3.0)


def test_the_least_tp_holds_a_request_in_the_share_of_the_pool_that_is_planned_with() -> None:
    llm, size = KNOWN.llm(EIGHT_B), KNOWN.gpus.find(H100).memory_bytes
    assert llm is not None
    pool = memory.pool_tokens(llm, size, 1, 1, 0.92)
    for share, tps in ((0.89, (1, 2, 4, 8)), (0.95, (2, 4, 8))):
        assert memory.tensor_parallels(llm, size, 8, 0.92, share * pool / 0.9) == tps
    long = planned(EIGHT_B, Server(H100), prompt_tokens=140_000.0)
    assert "longer than the model's context of 131,072" in long.problem


def test_an_nvlink_domain_has_no_more_gpus_than_its_server() -> None:
    assert planned(HUGE, Server(H100, 8, nvlink_gpus=72)) == planned(HUGE, Server(H100, 8))


@each_row("domain", [0, 2, 72])
def test_hundreds_of_tp_groups_in_one_server_are_placed(domain: int) -> None:
    row = planned(EIGHT_B, Server(H100, 576, nvlink_gpus=domain), 500.0, tp=2, capacity_per_instance=1.0)
    assert (row.problem, row.gpus, row.servers) == ("", 1000.0, 2.0)


def test_an_engine_that_showed_no_tokens_at_all_is_no_error() -> None:
    seen = Observed(Origin.LIVE, "a", EIGHT_B, (Point(3.0, 0.01),), gpu=H100, gpus=1, tp=1, prompt_tokens=900.0,
                    answer_tokens=0.0, prefix_hit_ratio=1.0, kv_pool_tokens=4e5)  # fmt: skip
    row = planned(EIGHT_B, Server(H100), prompt_tokens=None, answer_tokens=None, seen=seen)
    assert row.problem or not isinstance(row.instances, Missing)
