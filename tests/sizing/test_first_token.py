"""A TTFT goal decides GPUs where TTFT was measured on the engine, and is printed beside its estimate elsewhere."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gpumon.readings.missing import Missing
from gpumon.sizing.answer import WorkloadPlan
from gpumon.sizing.first_token import engine_of
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN

QWEN, H100 = "Qwen/Qwen3-32B", "H100 SXM 80GB"
GOALS_MS = tuple(300.0 + 100.0 * step for step in range(18))
"""300 to 2,000 ms."""


def swept(loads: tuple[float, ...], tool: str) -> Observed:
    """TTFT = 100 + 10 b ms, ITL = 12 + 0.3 b ms."""
    points = tuple(Point(load, 0.012 + 0.0003 * load, load, 0.1 + 0.01 * load) for load in loads)
    return Observed(
        Origin.SWEEP, "sweep", QWEN, points, tool=tool, gpu=H100, gpus=2, tp=2, weight_precision="fp8",
        prompt_tokens=4000.0, answer_tokens=500.0, kv_pool_tokens=1e6,
    )  # fmt: skip


def asked(goal_ms: float, seen: Observed | None = None, factor: float = 0.8, *, assume: bool = False) -> WorkloadPlan:
    """Qwen3-32B on H100, 100 in flight of 4,000/500, ITL goal 40 ms."""
    workload = Workload(QWEN, 100, prompt_tokens=4000.0, answer_tokens=500.0, weight_precision="fp8", tp=2, seen=seen)
    scenario = Scenario(
        itl_p95_ms=40.0, ttft_p95_ms=goal_ms, assume_ttft=assume, planning_factor=factor, server=(Server(H100),),
        workload=(workload,),
    )  # fmt: skip
    [row] = plan(scenario, KNOWN).workloads
    return row


def gpus(row: WorkloadPlan) -> float:
    assert not isinstance(row.gpus, Missing), row.problem
    return row.gpus


def test_without_a_measurement_the_goal_costs_no_gpu_and_the_note_says_so() -> None:
    free = asked(10_000.0)
    for goal_ms in GOALS_MS:
        row = asked(goal_ms)
        assert gpus(row) == gpus(free)
        assert any(note.startswith("TTFT goal not used: not measured on this engine") for note in row.notes)
        assert row.ttft_band.rows


def short_answers(loads: tuple[float, ...], wait_s: float = 0.0) -> Observed:
    """A sweep whose prompts take 200 ms of 2.3 s, so that 8% of what the client holds open does not decode; from the
    second load on, requests may wait for admission, too."""
    points: list[Point] = []
    for load in loads:
        itl_s = 0.010 + 0.0004 * load
        ttft_s = 0.2 + 0.002 * load + (wait_s if load > 1.0 else 0.0)
        e2e_s = ttft_s + itl_s * 199.0
        running = load / e2e_s * 200.0 * itl_s
        points.append(Point(running, itl_s, load, ttft_s, e2e_s, requests_per_s=load / e2e_s))
    return replace(swept(loads, "sglang bench_serving"), points=tuple(points))


def test_prompts_that_are_computed_are_no_wait() -> None:
    """A client with one request open tells how long a prompt takes alone."""
    loads = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    assert asked(500.0, short_answers(loads)).ttft_basis == "fit of 6 loads"
    assert "fit" not in asked(500.0, short_answers(loads, wait_s=2.0)).ttft_basis
    assert "fit" not in asked(500.0, short_answers(loads[1:4])).ttft_basis


@each_row("factor", [0.8, 1.0])
@each_row(
    ("seen", "assume"),
    [
        (swept((1.0, 8.0, 32.0, 64.0), "SGLang bench_serving 0.5"), False),
        (swept((16.0,), "vllm bench serve"), False),
        (None, True),
    ],
    named=["three loads", "one load of vLLM", "assumed"],
)
def test_capacity_rises_with_the_goal_without_jumps(seen: Observed | None, assume: bool, factor: float) -> None:
    rows = [asked(goal_ms, seen, factor, assume=assume) for goal_ms in GOALS_MS]
    bounds = [each.concurrency for row in rows for each in row.limits if each.kind.value == "TTFT"]
    bounds = [bound for bound in bounds if bound > 0.0]
    assert len(bounds) > len(GOALS_MS) / 2
    # As much more with every 100 ms: no jump, and no cap that hides the line.
    steps = [after - before for before, after in pairwise(bounds)]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-6)
    assert steps[0] > 0.0
    capacities = [row.capacity_per_instance for row in rows if not row.problem]
    assert all(isinstance(capacity, float) for capacity in capacities)
    assert capacities == sorted(capacities)
    counts = [gpus(row) for row in rows if not row.problem]
    assert counts == sorted(counts, reverse=True)
    assert counts


def test_a_fit_of_three_loads_decides() -> None:
    row = asked(400.0, swept((1.0, 8.0, 32.0, 64.0), "SGLang bench_serving 0.5"))
    assert row.limit == "TTFT"
    assert row.limits[0].concurrency == pytest.approx(30.0, rel=0.02)
    assert row.ttft_basis == "fit of 4 loads"
    assert not any("not used" in note for note in row.notes)


@each_row(("tool", "decides"), [("vllm bench serve", True), ("SGLang bench_serving 0.5", False)])
def test_one_load_is_enough_for_vllm_alone(tool: str, decides: bool) -> None:
    row = asked(200.0, swept((16.0,), tool))
    assert ("TTFT" in {each.kind.value for each in row.limits}) is decides
    assert "scaled to one load" in row.ttft_basis


def test_another_tp_is_not_measured() -> None:
    seen = replace(swept((1.0, 8.0, 32.0, 64.0), "vllm bench serve"), gpus=4, tp=4)
    row = asked(200.0, seen)
    assert "TTFT" not in {each.kind.value for each in row.limits}
    assert any("not used" in note for note in row.notes)


def test_other_lengths_of_the_measured_engine_still_decide() -> None:
    """No cliff where the answers are a little longer."""
    seen = replace(swept((1.0, 8.0, 32.0, 64.0), "vllm bench serve"), answer_tokens=400.0)
    assert asked(400.0, seen).limits[0].concurrency == pytest.approx(30.0, rel=0.05)


def test_a_goal_inside_the_band_of_its_estimate_is_a_warning() -> None:
    workload = Workload(QWEN, 100, prompt_tokens=4000.0, answer_tokens=500.0, weight_precision="fp8", tp=2)
    scenario = Scenario(itl_p95_ms=40.0, server=(Server(H100),), workload=(workload,))
    estimate_s = plan(scenario, KNOWN).workloads[0].ttft_s
    assert isinstance(estimate_s, float)
    said = [plan(replace(scenario, ttft_p95_ms=share * estimate_s * 1e3), KNOWN).warnings for share in (1.0, 0.1, 9.0)]
    assert any("lies inside its estimate" in warning for warning in said[0])
    assert any("above its goal" in warning for warning in said[1])
    assert not said[2]


@each_row(
    ("server", "model", "more"),
    [
        ("A100 SXM4 80GB", QWEN, {}),
        ("L40S", QWEN, {"tp": 4}),
        ("L4", QWEN, {"tp": 4}),
        (H100, QWEN, {"pp": 2}),
        ("B200 SXM 180GB", "GLM-5", {"tp": 8}),
    ],
    named=["A100", "L40S", "L4", "PP 2", "indexer"],
)
def test_no_band_where_no_reference_row_is_of_such_a_server(server: str, model: str, more: dict[str, int]) -> None:
    workload = Workload(model, 10, prompt_tokens=1000.0, answer_tokens=500.0, weight_precision="fp8", **more)
    [row] = plan(Scenario(itl_p95_ms=80.0, server=(Server(server),), workload=(workload,)), KNOWN).workloads
    assert not row.problem
    assert not row.band
    assert not row.ttft_band
    assert any("no reference row" in note for note in row.notes)


def test_a_computed_sweep_has_no_band_of_measured_ones() -> None:
    row = asked(10_000.0, swept((1.0, 8.0, 32.0, 64.0), "aiconfigurator trtllm 1.0"))
    assert not row.band
    assert any("nobody measured" in note for note in row.notes)


@each_row(
    ("tool", "engine"),
    [
        ("vllm 0.32.0", "vllm"),
        ("vllm bench serve", "vllm"),
        ("SGLang bench_serving 0.5", "sglang"),
        ("InferenceX trtllm", "trtllm"),
        ("aiconfigurator tensorrt-llm", "trtllm"),
        ("genai-perf", ""),
    ],
)
def test_the_engine_is_told_by_the_tool(tool: str, engine: str) -> None:
    assert engine_of(tool) == engine
