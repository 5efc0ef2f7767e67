"""The search over TP, stages and ranks, on one server and on several; more of anything never turns it round."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.sizing.layouts import Layout, layouts_of, searched_text
from gpumon.sizing.plan import plan
from gpumon.sizing.resolve import ground_of
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sizing.search import demand_of
from gpumon.specs.gpus import GpuCatalogue
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN

KIMI = "moonshotai/Kimi-K2-Instruct"
DEEPSEEK = "deepseek-ai/DeepSeek-V3"
HUGE = "meta-llama/Llama-3.1-405B-Instruct"
SEVENTY_B = "meta-llama/Llama-3.3-70B-Instruct"
H100 = "H100 SXM5 80GB"
H200 = "H200 SXM 141GB"


def asked(model: str, target: float, gpu: str = H200, server: Server | None = None, **fields: Any) -> Scenario:
    """One workload with 4,000 tokens in and 1,000 out, where nothing else is given."""
    lengths = {"prompt_tokens": 4000.0, "answer_tokens": 1000.0}
    return Scenario(server=(server or Server(gpu),), workload=(Workload(model, target, **{**lengths, **fields}),))


def layouts(scenario: Scenario) -> list[Layout]:
    """The layouts that are tried for the only workload."""
    ground = ground_of(scenario.workload[0], scenario, KNOWN)
    assert ground is not None
    return list(layouts_of(ground))


@each_row(
    ("model", "target", "gpu", "most_gpus"),
    [
        (KIMI, 64.0, H200, 16),
        (KIMI, 512.0, H200, 64),
        (HUGE, 64.0, H100, 16),
        (HUGE, 64.0, "A100 SXM4 80GB", 16),
    ],
)
def test_models_of_more_than_a_server(model: str, target: float, gpu: str, most_gpus: int) -> None:
    answer = plan(asked(model, target, gpu), KNOWN)
    [row] = answer.workloads
    assert not answer.problem
    assert isinstance(row.gpus, float)
    assert row.gpus <= most_gpus
    assert row.gpus_per_instance == 16
    assert answer.totals.servers == row.gpus / 8
    assert row.searched.endswith("layouts")
    assert row.network == answer.workloads[0].network != ""


def test_the_others_stand_beside_the_plan() -> None:
    [row] = plan(asked(HUGE, 64.0, H100), KNOWN).workloads
    assert (row.layout, row.gpus) == ("TP 8 x PP 2", 16.0)
    [note] = [text for text in row.notes if text.startswith("TP 8 x PP 2 takes 16 GPUs; ")]
    assert note.endswith("; best of other kinds: TP 16 32 GPUs (44 requests each, limited by KV)")
    [other] = row.alternatives
    assert (other.layout, other.gpus, other.limit, other.capacity_per_instance) == ("TP 16", 32, "KV", 44.0)
    assert row.searched == "TP 1 to 16, PP 2 to 8: 8 layouts"


def test_a_layout_that_was_typed_stays_and_the_better_one_is_named() -> None:
    [row] = plan(asked(HUGE, 64.0, H100, tp=16), KNOWN).workloads
    assert (row.layout, row.gpus, row.searched) == ("TP 16", 32.0, "")
    assert "TP 8 x PP 2 would take 16 GPUs instead of 32" in row.notes


def test_space() -> None:
    dense = layouts(asked(HUGE, 64.0, H100))
    assert Layout(16) in dense
    assert Layout(8, 8) in dense
    assert Layout(4, 2) not in dense  # inside an NVLink domain TP does that
    assert all(layout.dp == 1 for layout in dense)
    experts = layouts(asked(DEEPSEEK, 64.0))
    assert {Layout(1, dp=8), Layout(1, dp=16), Layout(8, dp=2), Layout(1, dp=32)} <= set(experts)
    over_pcie = layouts(asked(SEVENTY_B, 64.0, "L40S"))
    assert {Layout(1, 8), Layout(4, 2), Layout(8)} <= set(over_pcie)
    assert max(layout.gpus for layout in over_pcie) == 8  # nobody named a network
    named = layouts(asked(SEVENTY_B, 64.0, server=Server("L40S", network="Ethernet 25")))
    assert Layout(8, 2) in named
    assert Layout(16) not in named  # not over TCP
    few = layouts(asked(HUGE, 64.0, server=Server(H100, count=2)))
    assert max(layout.gpus for layout in few) == 16


def test_words() -> None:
    assert searched_text([Layout(1), Layout(2), Layout(2, 2)]) == "TP 1 to 2, PP 2"
    assert Layout(8, 2).text == "TP 8 x PP 2"
    assert Layout(2, dp=8).gpus == 16


def test_few_requests_of_many_are_said() -> None:
    scenario = asked(SEVENTY_B, 500.0, "L40S", itl_p95_ms=50.0)
    [row] = plan(scenario, KNOWN).workloads
    assert isinstance(row.capacity_per_instance, float)
    assert row.capacity_per_instance < 8
    assert any(note.startswith("each of ") and "more TP, narrower weights" in note for note in row.notes)
    [few] = plan(asked(SEVENTY_B, 9.0 * row.capacity_per_instance, "L40S", itl_p95_ms=50.0), KNOWN).workloads
    assert not any(note.startswith("each of ") for note in few.notes)


EIGHT_B = "meta-llama/Llama-3.1-8B-Instruct"
MODELS = (KIMI, DEEPSEEK, HUGE, SEVENTY_B, EIGHT_B, "Qwen/Qwen3-30B-A3B", "openai/gpt-oss-120b")
GPUS = (H100, H200, "A100 SXM4 80GB", "L40S", "B200 SXM 180GB", "GeForce RTX 4090", "H100 PCIe 80GB")


def faster(gpu: str, factor: float) -> Catalogues:
    """The catalogues with more memory bandwidth in one type of GPU."""
    spec = KNOWN.gpus.find(gpu)
    quick = replace(spec, bandwidth_bytes_per_s=spec.bandwidth_bytes_per_s * factor)
    by_short = {key: quick if row == spec else row for key, row in KNOWN.gpus.by_short.items()}
    return KNOWN._replace(gpus=GpuCatalogue(KNOWN.gpus.by_name, by_short))


def gpus_of(scenario: Scenario, known: Catalogues = KNOWN) -> float:
    """GPUs that the plan takes; infinite without one."""
    return demand_of(scenario.workload[0], scenario, known).gpus


@st.composite
def questions(draw: st.DrawFn) -> Scenario:
    """A workload without anything measured, with goals or without."""
    fields = {
        "target_kind": draw(st.sampled_from(["concurrency", "requests_per_s", "users"])),
        "prompt_tokens": float(draw(st.integers(100, 30_000))),
        "answer_tokens": float(draw(st.integers(50, 2000))),
        "itl_p95_ms": draw(st.none() | st.floats(8.0, 200.0)),
        "e2e_p95_ms": draw(st.none() | st.floats(2e3, 2e5)),
        "kv_pool_tokens": draw(st.none() | st.floats(1e4, 3e6)),
        "spare_instances": draw(st.integers(0, 2)),
    }
    server = Server(draw(st.sampled_from(GPUS)), draw(st.sampled_from([1, 2, 4, 8])))
    target = draw(st.floats(0.5, 3000.0))
    scenario = asked(draw(st.sampled_from(MODELS)), target, server=server, **fields)
    return replace(scenario, usable_memory_ratio=draw(st.floats(0.7, 0.9)))


WAYS = ("target", "goal", "context", "memory", "pool", "bandwidth", "network")


@settings(max_examples=300, deadline=None)
@given(questions(), st.sampled_from(WAYS), st.floats(1.01, 4.0))
def test_more_load_never_takes_fewer_gpus_and_more_of_a_gpu_never_more(
    scenario: Scenario, way: str, factor: float
) -> None:
    """`python -m tests.sizing.test_layouts` looks at 2,000 of them."""
    check_monotone(scenario, way, factor)


def check_monotone(scenario: Scenario, way: str, factor: float) -> None:
    [workload] = scenario.workload
    [server] = scenario.server
    known = KNOWN
    changed = workload
    worse = True
    if way == "target":
        changed = replace(workload, target=workload.target * factor)
    elif way == "goal":
        changed = replace(workload, itl_p95_ms=(workload.itl_p95_ms or 300.0) / factor)
    elif way == "context":
        changed = replace(workload, prompt_tokens=(workload.prompt_tokens or 1.0) * factor)
    else:
        worse = False
    harder = replace(scenario, workload=(changed,))
    if way == "memory":
        harder = replace(scenario, usable_memory_ratio=min(0.95, scenario.usable_memory_ratio * factor))
    elif way == "pool":
        pool_tokens = workload.kv_pool_tokens or 1e5
        harder = replace(scenario, workload=(replace(workload, kv_pool_tokens=pool_tokens * factor),))
        scenario = replace(scenario, workload=(replace(workload, kv_pool_tokens=pool_tokens),))
    elif way == "bandwidth":
        known = faster(server.gpu, factor)
    elif way == "network":
        scenario = replace(scenario, server=(replace(server, network="RoCE", network_gb_per_s=20.0),))
        harder = replace(scenario, server=(replace(server, network="RoCE", network_gb_per_s=20.0 * factor),))
    before = gpus_of(scenario)
    after = gpus_of(harder, known)
    if worse:
        assert after >= before or math.isinf(after), (before, after)
    else:
        assert after <= before, (before, after)


if __name__ == "__main__":
    cases = given(questions(), st.sampled_from(WAYS), st.floats(1.01, 4.0))
    settings(max_examples=2000, deadline=None)(cases(check_monotone))()
