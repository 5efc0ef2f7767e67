"""An instance as the simulation needs it: what it keeps of the curve, and what it refuses to guess."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpumon.readings.missing import Missing
from gpumon.sizing.latency import Mix
from gpumon.sizing.resolve import resolve
from gpumon.sizing.roofline import InstanceSetting, roofline
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sizing.search import demand_of
from gpumon.sizing.simulate.conditions import Conditions, source_of
from gpumon.sizing.simulate.experiment import simulate
from gpumon.sizing.simulate.setup import Setup, setup_of, step_terms
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN, NIM_70B

H100 = Server("H100 SXM5 80GB")
CHAT = Workload("Qwen/Qwen3-32B", 32, tp=2, prompt_tokens=1000, answer_tokens=200)
SEVENTY = Workload("meta-llama/Llama-3.3-70B-Instruct-FP8", 25, seen=NIM_70B)


def scenario(workload: Workload, **more: Any) -> Scenario:
    return Scenario(server=(H100,), workload=(workload,), **more)


def replica(workload: Workload, known: Catalogues = KNOWN) -> Setup:
    asked = scenario(workload)
    return setup_of(resolve(workload, asked, known), asked, known)


@each_row("name", ["Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.3-70B-Instruct"])
def test_a_step_split_into_its_terms_is_the_curve_again(name: str) -> None:
    llm = KNOWN.llm(name)
    assert llm is not None
    mix = Mix(2000.0, 400.0, 0.25)
    setting = InstanceSetting(llm, KNOWN.gpus.find("H100 SXM5 80GB"), 4, 4, mix)
    curve = roofline(setting)
    cost = step_terms(curve, setting)
    new = mix.new_tokens
    prompt_s = cost.prompt_token_s * new + cost.pair_s * new * (new / 2.0 + mix.prompt_tokens - new)
    each_s = cost.sequence_s + cost.kv_token_s * mix.context_tokens + prompt_s / mix.answer_tokens
    assert each_s == pytest.approx(curve.slope_s, rel=1e-6)
    assert cost.base_s == curve.base_s


@each_row("clients", [8, 32, 100])
def test_the_simulated_itl_is_near_the_curve_below_the_knee(clients: int) -> None:
    workload = Workload("Qwen/Qwen3-32B", clients, tp=2, prompt_tokens=1000, answer_tokens=200)
    answer = simulate(workload, scenario(workload), KNOWN, Conditions(replicas=1, seconds=120.0, answer_variation=0.2))
    (figures,) = answer.figures
    assert not isinstance(answer.formula.itl_s, Missing)
    assert figures.itl_s.mean == pytest.approx(answer.formula.itl_s, rel=0.1)


@each_row(
    ("clients", "itl_ms", "rate", "ttft_ms"),
    [
        (1, 18.58, 51.7, 407),
        (25, 38.75, 623, 689),
        (50, 59.73, 814, 835),
        (150, 92.86, 921, 34794),
        (250, 93.2, 920, 88605),
    ],
)
def test_a_measured_server_below_and_beyond_its_kv_cache(
    clients: int, itl_ms: float, rate: float, ttft_ms: float
) -> None:
    """NVIDIA's own figures of a 70B model; the fit has seen neither 150 nor 250 clients."""
    workload = Workload(SEVENTY.model, clients, seen=NIM_70B)
    answer = simulate(workload, scenario(workload), KNOWN, Conditions(replicas=1, seconds=1500.0))
    (figures,) = answer.figures
    assert figures.itl_s.mean * 1e3 == pytest.approx(itl_ms, rel=0.15)
    assert figures.tokens_per_s == pytest.approx(rate, rel=0.08)
    assert figures.ttft_s.mean * 1e3 == pytest.approx(ttft_ms, rel=0.42)
    assert (figures.most_waiting > 20) == (clients > 100)


def test_a_measured_ttft_at_one_request_is_met() -> None:
    found = replica(SEVENTY)
    assert found.delay_s > 0.0
    assert not any("estimate" in note for note in found.notes)


def test_bounds_are_typed_then_seen_then_the_engines_defaults() -> None:
    assert replica(replace(CHAT, max_num_seqs=7, max_num_batched_tokens=512)).limits[:2] == (7, 512)
    default = replica(CHAT)
    assert default.limits[:2] == (1024, 8192)
    assert any("vLLM's default for this GPU" in note for note in default.notes)
    asked = Scenario(server=(Server("A100 SXM4 80GB"),), workload=(CHAT,))
    assert setup_of(resolve(CHAT, asked, KNOWN), asked, KNOWN).limits[:2] == (256, 2048)


def test_each_data_parallel_rank_has_the_defaults_of_an_engine() -> None:
    ranks = Workload("Qwen/Qwen3-30B-A3B", 8, prompt_tokens=1000, answer_tokens=200, tp=1, dp=4)
    found = replica(ranks)
    assert found.limits[:2] == (4 * 1024, 4 * 8192)
    assert "4 data-parallel ranks are played as one engine with their KV caches and bounds together" in found.notes


@each_row(
    ("workload", "why"),
    [
        (
            Workload("no/such-model", 8, prompt_tokens=100, answer_tokens=10),
            r"no model 'no/such-model' is known.*\[\[model\]\]",
        ),
        (Workload("Qwen/Qwen3-32B", 8), "--prompt and --answer"),
        (
            Workload("Qwen/Qwen3-32B", 8, prompt_tokens=100, answer_tokens=10, profile="none"),
            "there is no profile 'none'",
        ),
    ],
)
def test_what_is_not_known_is_refused_with_what_mends_it(workload: Workload, why: str) -> None:
    answer = simulate(workload, scenario(workload), KNOWN, Conditions(replicas=1))
    assert answer.figures == ()
    assert not answer.holds
    assert re.search(why, answer.problem), answer.problem


def test_a_measured_engine_of_an_unknown_model_needs_its_prefill_rate() -> None:
    seen = replace(NIM_70B, model="own/model")
    workload = Workload("own/model", 8, seen=seen)
    answer = simulate(workload, scenario(workload), KNOWN, Conditions(replicas=1, seconds=120.0))
    assert "--prefill-rate" in answer.problem
    typed = Workload("own/model", 8, seen=seen, prefill_tokens_per_s=14000.0)
    (figures,) = simulate(typed, scenario(typed), KNOWN, Conditions(replicas=1, seconds=120.0)).figures
    assert not isinstance(figures.itl_s.mean, Missing)


def test_no_simulated_request_is_longer_than_the_measured_engine_takes() -> None:
    """`--max-model-len` of the engine stands below the model's own context."""
    chat = replace(SEVENTY, target=5.0, target_kind="requests_per_s")
    longest = []
    for seen in (NIM_70B, replace(NIM_70B, max_model_len=4096)):
        workload = replace(chat, seen=seen)
        demand = demand_of(workload, scenario(workload), KNOWN)
        requests = source_of(demand, Conditions(prompt_variation=2.0, seconds=300.0)).first()
        longest.append(max(request.prompt + request.answer for request in requests))
    assert longest[1] <= 4096 < longest[0]
