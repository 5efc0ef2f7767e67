"""Simulations as text and as JSON by contract."""

from __future__ import annotations

import json
from pathlib import Path

from gpumon.outputs.simulation import report
from gpumon.outputs.simulation_data import encode, schema
from gpumon.sizing.length_tail import Lengths, LengthShare
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.sizing.simulate.conditions import Conditions
from gpumon.sizing.simulate.experiment import Simulation, simulate
from tests.outputs.validator import problems
from tests.records import replace
from tests.sizing.questions import KNOWN

DOCS = Path(__file__).parents[2] / "docs"


def answers() -> list[Simulation]:
    chat = Workload("Qwen/Qwen3-32B", 6, "requests_per_s", prompt_tokens=1000, answer_tokens=200, ttft_p95_ms=800)
    unknown = Workload("\x1b[31mno model", 1, prompt_tokens=10, answer_tokens=10)
    scenario = Scenario(server=(Server("H100 SXM5 80GB"),), workload=(chat, unknown))
    conditions = Conditions(seconds=60.0, replicas=2)
    return [simulate(workload, scenario, KNOWN, conditions) for workload in scenario.workload]


def test_json_is_by_its_schema() -> None:
    found = json.loads(encode(answers()))
    assert list(problems(found, schema())) == []
    first, second = found["simulations"]
    assert first["figures"][0]["requests"] > 200
    assert len(first["figures"][0]["queue"]) == 60
    assert first["goal_itl_s"] is None
    assert second["figures"] == []
    assert second["problem"]


def test_the_schema_in_the_docs_is_the_one_of_the_types() -> None:
    written = json.loads((DOCS / "simulate.schema.json").read_text(encoding="utf-8"))
    assert written == schema(), "run: make schema"


def test_the_text_has_percentiles_beside_the_formula() -> None:
    text = report(answers(), 120)
    lines = text.splitlines()
    assert lines[0].startswith("Qwen/Qwen3-32B: 2 replicas of TP ")
    titles = next(line for line in lines if " p95 " in line).split()
    assert titles == ["mean", "p50", "p95", "p99", "goal", "p95", "formula", "mean"]
    assert next(line for line in lines if line.startswith("  TTFT")).count("ms") >= 5
    assert any(line.startswith("  goals       held; goodput") for line in lines)
    assert any(line.startswith("  waiting") for line in lines)
    assert "not simulated: the time of a step" in text or "not simulated:" in text
    assert "\x1b" not in text
    assert max(map(len, lines)) <= 120


def test_goodput_is_of_the_goals_that_a_request_has() -> None:
    """No single request has a mean over the tokens of all."""
    chat = Workload("Qwen/Qwen3-32B", 6, "requests_per_s", prompt_tokens=1000, answer_tokens=200, itl_mean_ms=1)
    scenario = Scenario(server=(Server("H100 SXM5 80GB"),), workload=(chat,))
    goals = {
        "missed: ITL mean": chat,
        "missed: ITL mean; goodput (E2E of each request within its goal)": replace(chat, e2e_p95_ms=90000),
        "missed: ITL p95, ITL mean; goodput (TTFT and TPOT of each request within their goals)": replace(
            chat, itl_p95_ms=1, ttft_p95_ms=90000
        ),
    }
    for words, workload in goals.items():
        answer = simulate(workload, scenario, KNOWN, Conditions(seconds=60.0, replicas=2))
        line = next(line for line in report([answer], 200).splitlines() if line.startswith("  goals"))
        assert line.removeprefix("  goals       ").partition(") ")[0].removesuffix(")") == words.removesuffix(")")
    (found,) = json.loads(encode([simulate(chat, scenario, KNOWN, Conditions(seconds=60.0, replicas=2))]))[
        "simulations"
    ]
    assert found["figures"][0]["goodput_ratio"] is None


def test_the_layout_of_a_replica_has_its_ranks() -> None:
    """16 GPUs are no two replicas of TP 1."""
    asked = Workload("deepseek-ai/DeepSeek-V3", 8, prompt_tokens=500, answer_tokens=50, tp=1, dp=8)
    scenario = Scenario(server=(Server("H200 SXM 141GB"),), workload=(asked,))
    answer = simulate(asked, scenario, KNOWN, Conditions(seconds=60.0, replicas=2))
    assert (answer.tp, answer.pp, answer.dp, answer.gpus) == (1, 1, 8, 16)
    assert (
        report([answer], 120).splitlines()[0].startswith("deepseek-ai/DeepSeek-V3: 2 replicas of TP 1 x DP 8 on 16 x")
    )


def test_a_goal_is_not_held_where_requests_are_refused() -> None:
    """All of them are longer than the cache, then one in ten."""
    chat = Workload("Qwen/Qwen3-32B", 6, "requests_per_s", prompt_tokens=1000, answer_tokens=200, ttft_p95_ms=9000)
    spread = Lengths(prompt=(LengthShare(500.0, 0.9), LengthShare(8000.0, 1.0)))
    none = replace(chat, kv_pool_tokens=100)
    some = replace(chat, kv_pool_tokens=6000, lengths=spread)
    scenario = Scenario(server=(Server("H100 SXM5 80GB"),), workload=(none, some))
    conditions = Conditions(seconds=60.0, replicas=8)
    first, second = (report([simulate(one, scenario, KNOWN, conditions)], 120) for one in scenario.workload)
    assert "not held: no request was served" in first
    assert "waiting" not in first
    assert "not held: requests are longer than the KV cache" in second
    assert "refused, longer than the KV cache" in " ".join(second.split())
