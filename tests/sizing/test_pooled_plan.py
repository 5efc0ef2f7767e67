"""Prefill and decode on pools of their own as a plan: instances on servers, sums, price and power."""

from __future__ import annotations

import pytest

from gpumon.readings.missing import Missing, number
from gpumon.sizing.compare import compare
from gpumon.sizing.plan import plan
from gpumon.sizing.pooled_plan import has_pools, pooled_plan
from gpumon.sizing.scenario import Disaggregated, Scenario, Server, Workload
from tests.records import replace
from tests.sizing.questions import KNOWN

SEVENTY_B = "meta-llama/Llama-3.3-70B-Instruct-FP8"
H100 = "H100 SXM5 80GB"
DOCUMENTS = Workload(
    SEVENTY_B, 12.0, "requests_per_s", "documents", prompt_tokens=8000.0, answer_tokens=300.0, itl_p95_ms=30.0,
    disaggregated=Disaggregated(prefill_tp=2, decode_tp=4, link_gb_per_s=50.0),
)  # fmt: skip
CHAT = Workload("meta-llama/Llama-3.1-8B-Instruct", 64.0, prompt_tokens=1000.0, answer_tokens=300.0, itl_p95_ms=30.0)
SCENARIO = Scenario(server=(Server(H100),), workload=(DOCUMENTS, CHAT))


def test_both_pools_stand_on_servers() -> None:
    whole = plan(SCENARIO, KNOWN)
    pooled = pooled_plan(SCENARIO, KNOWN)
    answer = pooled.answer
    split = whole.workloads[0].disaggregated
    assert split is not None
    assert split.prefill is not None
    assert split.decode is not None
    prefill, decode, chat = answer.workloads
    assert [workload.name for workload in pooled.scenario.workload] == ["documents: prefill", "documents: decode", ""]
    assert (prefill.pool, decode.pool, chat.pool) == ("prefill", "decode", "")
    assert (prefill.instances, prefill.gpus, prefill.tp) == (split.prefill.instances, split.prefill.gpus, 2)
    assert (decode.instances, decode.gpus, decode.tp) == (split.decode.instances, split.decode.gpus, 4)
    assert number(answer.totals.gpus) == number(split.gpus) + number(chat.gpus)
    assert answer.totals.servers == -(-number(answer.totals.gpus) // 8)
    placed = {slot.workloads for server in answer.plans.busy_aware.layout for slot in server.gpus}
    assert {(0,), (1,), (2,)} <= placed


def test_sums_price_and_power_are_those_of_the_pools() -> None:
    answer = pooled_plan(SCENARIO, KNOWN).answer
    prefill, decode, chat = answer.workloads
    assert decode.tokens_per_s == pytest.approx(12.0 * 300.0)
    assert isinstance(prefill.tokens_per_s, Missing)
    assert number(answer.totals.tokens_per_s) == pytest.approx(number(decode.tokens_per_s) + number(chat.tokens_per_s))
    assert answer.totals.price_per_hour == pytest.approx(number(answer.totals.servers) * 8 * 2.49)
    assert answer.totals.power_w == pytest.approx(number(answer.totals.gpus) * 700.0)
    assert (prefill.requests_per_s, decode.requests_per_s) == (12.0, 12.0)
    assert (prefill.target, prefill.target_kind) == (12.0, "requests_per_s")
    assert decode.e2e_s == pytest.approx(number(decode.ttft_s) + 299.0 * split_itl_s())


def test_a_ttft_goal_that_pools_are_not_planned_by_is_said() -> None:
    with_goal = replace(SCENARIO, workload=(replace(DOCUMENTS, ttft_p95_ms=500.0),))
    _, decode = pooled_plan(with_goal, KNOWN).answer.workloads
    assert any(note.startswith("TTFT goal not used") for note in decode.notes)
    _, decode = pooled_plan(replace(with_goal, assume_ttft=True), KNOWN).answer.workloads
    assert not any(note.startswith("TTFT goal not used") for note in decode.notes)


def split_itl_s() -> float:
    """Mean ITL of the decode pool as planned."""
    split = plan(SCENARIO, KNOWN).workloads[0].disaggregated
    assert split is not None
    return number(split.itl_s) or 0.0


def test_pools_of_a_model_that_no_server_holds() -> None:
    """Kimi K2 with 4,000 tokens takes two servers of H200: so does each instance of both pools."""
    kimi = Workload(
        "moonshotai/Kimi-K2-Instruct", 64.0, prompt_tokens=4000.0, answer_tokens=1000.0,
        disaggregated=Disaggregated(link_gb_per_s=50.0),
    )  # fmt: skip
    answer = pooled_plan(Scenario(server=(Server("H200 SXM 141GB"),), workload=(kimi,)), KNOWN).answer
    assert not answer.problem
    assert [row.gpus_per_instance for row in answer.workloads] == [16, 16]
    assert number(answer.totals.servers) >= 4


def test_a_workload_without_pools_is_as_it_was() -> None:
    alone = replace(SCENARIO, workload=(CHAT,))
    assert not has_pools(alone)
    assert pooled_plan(alone, KNOWN).answer == plan(alone, KNOWN)


def test_pools_that_cannot_be_say_why() -> None:
    short = replace(DOCUMENTS, disaggregated=Disaggregated(prefill_tp=3))
    answer = pooled_plan(replace(SCENARIO, workload=(short, CHAT)), KNOWN).answer
    assert answer.problem == "documents: prefill: TP 3 does not divide the 64 heads: engines refuse it"
    assert answer.without == ("documents: prefill", "documents: decode")


def test_types_are_compared_with_pools_and_without() -> None:
    rows = compare(SCENARIO, KNOWN, (H100, "H200 SXM 141GB"), with_pools=True).rows
    kinds = [(row.gpu, row.pooled, row.as_planned) for row in rows]
    assert kinds == [
        (H100, False, False),
        (H100, True, False),
        ("H200 SXM 141GB", False, False),
        ("H200 SXM 141GB", True, False),
    ]
    pooled = pooled_plan(SCENARIO, KNOWN).answer
    assert rows[1].totals == pooled.totals
    best = min(number(row.totals.gpus) or 0.0 for row in rows)
    assert all(("gpus" in row.best) == (number(row.totals.gpus) == best) for row in rows)
    assert not any(row.pooled for row in compare(SCENARIO, KNOWN, (H100,)).rows)
