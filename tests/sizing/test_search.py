"""Questions that other tools were asked too: goals decide, and TP is searched."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from gpumon.sizing.answer import WorkloadPlan
from gpumon.sizing.design_guide import guide_profiles
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN

H100, A100 = "H100 SXM5 80GB", "A100 SXM4 80GB"
QWEN, SEVENTY_B = "Qwen/Qwen3-32B", "meta-llama/Llama-3.3-70B-Instruct"


def planned(model: str, gpu: str, users: float, goal_ms: float | None = None, **fields: Any) -> WorkloadPlan:
    workload = Workload(model, users, **{"prompt_tokens": 4000.0, "answer_tokens": 500.0, **fields})
    [row] = plan(Scenario(itl_p95_ms=goal_ms, server=(Server(gpu),), workload=(workload,)), KNOWN).workloads
    return row


def test_qwen3_32b_for_100_users_within_a_tp_step_of_aiconfigurators_6_gpus() -> None:
    row = planned(QWEN, H100, 100, 40.0)
    assert (row.tp, row.problem) == (2, "")
    assert 4 <= row.gpus <= 8
    # The difference is the headroom of the planning factor.
    workload = Workload(QWEN, 100, prompt_tokens=4000.0, answer_tokens=500.0)
    full = Scenario(itl_p95_ms=40.0, planning_factor=1.0, server=(Server(H100),), workload=(workload,))
    assert plan(full, KNOWN).totals.gpus == 6


def test_an_8_bit_70b_for_50_users_without_a_goal_stands_on_two_a100() -> None:
    """The least TP that holds it has room for one request; two GPUs hold all of them."""
    for precision in ("int8", "w8a8"):
        row = planned(SEVENTY_B, A100, 50, weight_precision=precision, prompt_tokens=1000.0, answer_tokens=200.0)
        assert (row.tp, row.gpus) == (2, 2)


def test_a_typed_tp_stays_and_the_better_one_is_named() -> None:
    row = planned(QWEN, H100, 100, 40.0, tp=1)
    assert (row.tp, row.gpus) == (1, 34)
    assert "TP 2 would take 8 GPUs instead of 34" in row.notes


@each_row(("users", "tp"), [(0, 2), (1, 1), (8, 2), (100, 2), (100, 4)])
def test_another_tp_is_named_only_where_it_saves_gpus(users: float, tp: int) -> None:
    named = [note for note in planned(QWEN, H100, users, 40.0, tp=tp).notes if "would take" in note]
    best = planned(QWEN, H100, users, 40.0)
    typed = planned(QWEN, H100, users, 40.0, tp=tp)
    saves = not typed.problem and best.gpus < typed.gpus
    assert bool(named) == saves
    assert not any("inf" in note for note in named)


@each_row("domain", [1, 2])
def test_tp_beyond_an_nvlink_domain_goes_over_pcie(domain: int) -> None:
    workload = Workload(SEVENTY_B, 50, prompt_tokens=1000.0, answer_tokens=200.0, weight_precision="w8a8")
    shape = Server(A100, 8, nvlink_gpus=domain)
    scenario = Scenario(itl_p95_ms=60.0, server=(shape,), workload=(workload,))
    [whole] = plan(replace(scenario, server=(Server(A100, 8),)), KNOWN).workloads
    [row] = plan(scenario, KNOWN).workloads
    assert not row.problem
    assert isinstance(row.gpus, float)
    assert isinstance(whole.gpus, float)
    assert row.gpus >= whole.gpus


SWEEP = Observed(
    Origin.SWEEP, "sweep", QWEN, tuple(Point(b, 0.012 + 0.0004 * b) for b in (1.0, 4.0, 8.0, 16.0)), gpu=H100, gpus=2,
    tp=2, prompt_tokens=4000.0, answer_tokens=500.0, concurrency=8.0, kv_pool_tokens=1e6,
)  # fmt: skip


def test_a_goal_decides_and_the_knee_is_advice() -> None:
    """ITL 40 ms is met at 70; throughput stopped following at 8; loads up to 16 were measured."""
    row = planned(QWEN, H100, 100, 40.0, seen=SWEEP)
    assert row.limit == "ITL"
    assert row.limits[0].concurrency == pytest.approx(70.0, rel=0.01)
    assert row.extrapolated
    assert row.band.low < -0.05
    inside = planned(QWEN, H100, 100, 18.0, seen=SWEEP)
    assert (inside.limit, inside.extrapolated) == ("ITL", False)
    without = planned(QWEN, H100, 100, seen=SWEEP)
    assert (without.limit, without.capacity_per_instance) == ("knee", 8.0)


SWEEP_TOKENS: dict[str, Any] = {"prompt_tokens": 1024.0, "answer_tokens": 200.0}


def of_sweep(prompt_tokens: float, *loads: float) -> WorkloadPlan:
    """A plan without a goal by a sweep of TP 2 with ITL = 10 + 0.4 b ms."""
    points = tuple(Point(load, itl_s=0.010 + 0.0004 * load, offered=load) for load in loads)
    sweep = Observed(Origin.SWEEP, "s", QWEN, points, gpu=H100, gpus=2, tp=2, concurrency=loads[-1], **SWEEP_TOKENS)
    return planned(QWEN, H100, 200, seen=sweep, **(SWEEP_TOKENS | {"prompt_tokens": prompt_tokens}))


@each_row("prompt_tokens", [1024.0, 1130.0, 1800.0, 2000.0, 2400.0, 3000.0, 4000.0])
def test_sweeps_of_one_server_plan_alike_whichever_loads_were_tested(prompt_tokens: float) -> None:
    """Where the end of a sweep lies just below the KV limit, the share of the KV limit that is planned with binds."""
    rows = [
        of_sweep(prompt_tokens, *loads)
        for loads in ((1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0), (32.0, 64.0, 128.0), (64.0, 96.0, 128.0))
    ]
    assert len({(row.gpus, row.capacity_per_instance, row.limit) for row in rows}) == 1


def test_a_longer_prompt_never_lets_an_instance_carry_more_and_no_step_is_a_cliff() -> None:
    capacities = [
        of_sweep(float(prompt), 1.0, 8.0, 64.0, 128.0).capacity_per_instance for prompt in range(1300, 4100, 100)
    ]
    for shorter, longer in pairwise(capacities):
        assert shorter * 0.88 < longer <= shorter


def test_a_guide_profile_on_another_gpu_says_which_its_table_is_for() -> None:
    [row] = plan(
        Scenario(server=(Server("L40S"),), workload=(Workload("NeMo-GPT-20B", 8, profile="guide-nemo-20b"),)),
        KNOWN._replace(profiles={each.name: each for each in guide_profiles()}),
    ).workloads
    assert "the table of guide-nemo-20b was measured on H100 PCIe 80GB" in row.problem


@each_row(("loads", "scaled"), [((40.0,), True), ((1.0, 4.0, 8.0, 16.0, 40.0), False)])
def test_one_measured_load_is_no_line_and_the_row_says_so(loads: tuple[float, ...], scaled: bool) -> None:
    points = tuple(Point(b, 0.012 + 0.0004 * b) for b in loads)
    seen = replace(SWEEP, origin=Origin.LIVE, points=points, concurrency=None)
    row = planned(QWEN, H100, 100, 40.0, seen=seen)
    said = f"roofline scaled to 1 point at {loads[0]:.0f} running: too few load levels for a fit"
    assert (said in row.notes) == scaled
    assert row.band.text.endswith(" reference rows")
