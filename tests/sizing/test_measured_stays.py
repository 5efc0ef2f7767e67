"""What was seen stays what it is: typed again it changes nothing, a little off a little, elsewhere it is not that."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.sizing.answer import LimitKind, Source, WorkloadPlan
from gpumon.sizing.live import from_live
from gpumon.sizing.measured_instance import SAME_MIX
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.live_scenes import at, gpu
from tests.sizing.questions import KNOWN, NIM_70B, SEVENTY, changed

SEEN = replace(NIM_70B, prefix_hit_ratio=0.2, itl_tail_ratio=1.1, ttft_tail_ratio=1.3)
ASKED = changed(SEVENTY, seen=SEEN)


def row(scenario: Scenario) -> WorkloadPlan:
    return plan(scenario, KNOWN).workloads[0]


def seen_with(**fields: Any) -> Scenario:
    return changed(ASKED, seen=replace(SEEN, **fields))


@each_row(
    "fields",
    [
        {"prompt_tokens": 5000.0}, {"answer_tokens": 500.0}, {"prefix_hit_ratio": 0.2}, {"weight_precision": "fp8"},
        {"kv_precision": "fp8"}, {"tp": 2}, {"pp": 1}, {"kv_pool_tokens": SEEN.kv_pool_tokens},
        {"itl_tail_ratio": 1.1},
    ],
    named=str,
)  # fmt: skip
def test_typing_what_was_seen_changes_nothing(fields: dict[str, Any]) -> None:
    before, after = row(ASKED), row(changed(ASKED, **fields))
    for name in ("capacity_per_instance", "instances", "itl_s", "ttft_s", "source", "memory_bytes", "band"):
        assert getattr(after, name) == getattr(before, name), name


def test_a_precision_that_was_not_recorded_is_the_published_one() -> None:
    """Typing it is no what-if."""
    scenario = seen_with(weight_precision="", kv_precision="")
    assert row(changed(scenario, weight_precision="fp8")).source is Source.MEASURED
    assert row(changed(scenario, weight_precision="bf16", tp=2)).source is not Source.MEASURED


@each_row("name", ["prompt_tokens", "answer_tokens"])
@each_row("share", [1.0 - SAME_MIX, 1.0 + SAME_MIX])
def test_no_step_where_lengths_count_as_others(name: str, share: float) -> None:
    length = getattr(SEEN, name)
    measured, other = (
        row(changed(ASKED, **{name: length * (1.0 + (share - 1.0) * near)})) for near in (0.9999, 1.0001)
    )  # fmt: skip
    assert (measured.source, other.source) == (Source.MEASURED, Source.RESCALED)
    for one, two in zip(measured.limits, other.limits, strict=True):
        assert one.concurrency == pytest.approx(two.concurrency, rel=1e-3)


def test_no_step_at_a_hit_ratio_a_little_off() -> None:
    """Though more were seen to run than the pool's formula gives."""
    scenario = seen_with(kv_pool_tokens=200_000.0)
    base = row(changed(scenario, prefix_hit_ratio=0.2))
    for hit in (0.199, 0.201):
        assert row(changed(scenario, prefix_hit_ratio=hit)).limits[0].concurrency == pytest.approx(
            base.limits[0].concurrency, rel=2e-3
        )


def test_lengths_within_the_mix_still_count() -> None:
    shorter, longer = (row(changed(ASKED, prompt_tokens=tokens)) for tokens in (4600.0, 5400.0))
    assert (shorter.source, longer.source) == (Source.MEASURED, Source.MEASURED)
    assert {kind: [limit.concurrency for limit in shorter.limits if limit.kind is kind] > [
        limit.concurrency for limit in longer.limits if limit.kind is kind
    ] for kind in (LimitKind.ITL, LimitKind.KV)} == {LimitKind.ITL: True, LimitKind.KV: True}  # fmt: skip


def test_a_gpu_by_another_of_its_names_is_the_same_gpu() -> None:
    assert row(seen_with(gpu="H100 SXM 80GB")).source is Source.MEASURED
    have = plan(ASKED, KNOWN, {"H100 SXM 80GB": 16}).have
    assert have is not None
    assert have.short_gpus == 0


def test_all_gpus_of_an_instance_count() -> None:
    """Two GPUs beyond TP are pipeline stages; TP that was not recorded is all of them."""
    stages = row(seen_with(gpus=4))
    assert (stages.gpus_per_instance, stages.tp, stages.pp, stages.source) == (4, 2, 2, Source.MEASURED)
    unknown = seen_with(tp=0)
    assert row(unknown).tp == 2
    same = row(changed(unknown, prompt_tokens=4000.0)).itl_s
    assert same == pytest.approx(row(changed(ASKED, prompt_tokens=4000.0)).itl_s, rel=1e-9)


def test_another_model_is_not_measured_by_it() -> None:
    asked = changed(ASKED, model="meta-llama/Llama-3.1-8B-Instruct")
    other = row(asked)
    assert other.source is Source.RESCALED
    assert other.memory_source == "model"
    assert row(changed(ASKED, model="nobody/knows-it")).source is not Source.MEASURED


def test_a_gpu_that_was_not_recorded_is_said() -> None:
    assert any("not known: assumed to be H100 SXM5 80GB" in note for note in row(seen_with(gpu="")).notes)


SWEPT = Observed(
    Origin.SWEEP, "knee", "nobody/knows-it", gpu="H100 SXM5 80GB", gpus=1, prompt_tokens=1000.0, answer_tokens=200.0,
    concurrency=32.0, memory_bytes=60e9,
    points=(Point(8.0, offered=8.0, ttft_s=0.2, e2e_s=4.0), Point(32.0, offered=32.0, ttft_s=0.4, e2e_s=8.0)),
)  # fmt: skip
OF_SWEEP = Scenario(
    server=(Server("H100 SXM5 80GB"),), workload=(Workload("nobody/knows-it", 64.0, target_kind="users", seen=SWEPT),)
)


def test_a_sweep_holds_for_its_own_lengths_alone() -> None:
    own = row(OF_SWEEP)
    assert (own.capacity_per_instance, own.instances, own.e2e_s) == (32, 2, 8.0)
    other = plan(changed(OF_SWEEP, prompt_tokens=8000.0), KNOWN)
    assert "not known" in other.problem


def test_a_response_time_of_other_gpus_is_not_taken_over() -> None:
    elsewhere = replace(OF_SWEEP, server=(Server("A100 SXM4 80GB"),))
    assert "need a response time" in plan(changed(elsewhere, capacity_per_instance=32.0), KNOWN).problem


def test_goals_that_nothing_is_known_of_are_said() -> None:
    notes = row(replace(OF_SWEEP, itl_p95_ms=50.0, e2e_p95_ms=100.0)).notes
    assert "the ITL and E2E goal is not checked: its latency is not known" in notes


def test_which_tail_is_not_known_is_said() -> None:
    goals = {"itl_p95_ms": 100.0, "ttft_p95_ms": 5000.0}
    scenario = changed(seen_with(ttft_tail_ratio=None), **goals)
    assert any(note.startswith("p95 / mean of the TTFT is") for note in row(scenario).notes)
    typed = changed(seen_with(itl_tail_ratio=None), itl_tail_ratio=1.0, **goals)
    assert not any("p95 / mean" in note for note in row(typed).notes)


def test_far_beyond_what_was_measured_elsewhere_is_extrapolated() -> None:
    few = replace(SEEN, points=SEEN.points[:3])  # up to 25 running
    scenario = replace(changed(ASKED, seen=few), server=(Server("B200 SXM 180GB"),))
    answer = plan(scenario, KNOWN)
    assert answer.workloads[0].source is Source.RESCALED
    assert answer.workloads[0].extrapolated
    assert any("extrapolated" in warning for warning in answer.warnings)


def test_the_gpus_that_serve_are_planned_with_first() -> None:
    idle = gpu(0, "nobody", engines=(), processes=(), gpu_type="A100 SXM4 80GB")
    scenario = from_live(at(0.0, gpus=(idle, gpu(1))), ())
    types = [(server.gpu, server.count) for server in scenario.server]
    assert types == [("H100 SXM 80GB", 1), ("A100 SXM4 80GB", 1), ("H100 SXM 80GB", 0)]
