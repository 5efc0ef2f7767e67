"""What engines meet and survive: errors, clients that hang up, speculation, KV from elsewhere, adapters, pauses."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpumon.demo.counters import Counters
from gpumon.demo.engine_model import EngineModel
from gpumon.demo.physics import H100, LLAMA_8B, ModelCopy, Speed
from gpumon.demo.scenario import Actor, EngineCondition, EngineEffect, EnginePause, Scenario
from gpumon.demo.scenarios import ENGINES, SCENARIOS, demand
from gpumon.demo.serving import SimulatedEngine
from gpumon.demo.source import SimulatedServer
from gpumon.demo.speculation import DraftSettings
from gpumon.demo.traffic import Patience, SimulatedRequest, Surge, Traffic
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from tests.demo.test_engine_model import ROOMY, Script
from tests.each_row import each_row
from tests.records import replace

INSTANCE = ModelCopy(LLAMA_8B, H100, Speed(0.62, 0.8, 0.7e-3, 20e-6), 1)
CHAT = ENGINES["llama-8b"]
STARTED = 1.8e9


def requests(count: int, every_s: float, **facts: object) -> list[SimulatedRequest]:
    usual = {"prompt_tokens": 1000, "cached_tokens": 0, "output_tokens": 100}
    return [SimulatedRequest(arrival_s=at * every_s, **{**usual, **facts}) for at in range(count)]


def counted(model: EngineModel, to_s: float = 1e4) -> Counters:
    model.advance(to_s)
    return model.counters


def page_of(engine: SimulatedEngine) -> dict[str, float]:
    """Sums of the series of a page, by name; and by name and label where a label tells series apart."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(engine.answer("/metrics").body.decode()):
        for sample in family.samples:
            labels = {key: text for key, text in sample.labels.items() if key not in ("engine", "model_name", "le")}
            for name in {sample.name, " ".join([sample.name, *labels.values()])}:
                sums[name] = sums.get(name, 0.0) + sample.value
    return sums


def engine_of(actor: Actor, until_s: float, *conditions: EngineCondition) -> SimulatedEngine:
    engine = SimulatedEngine(actor, 1, 0.0, STARTED, conditions=conditions)
    for second in range(int(until_s) + 1):
        engine.advance(float(second))
    return engine


@each_row("share", [0.15, 0.9])
def test_a_share_of_the_requests_fails_after_the_first_token(share: float) -> None:
    model = EngineModel(INSTANCE, ROOMY, Script(requests(200, 0.2)))
    model.failing_share = share
    counters = counted(model)
    assert counters.failed == pytest.approx(200 * share, abs=1)
    assert counters.failed + counters.stopped == counters.e2e.count == 200
    assert counters.generation_tokens == counters.failed + 100 * counters.stopped
    assert model.blocks.usage_ratio == 0.0


def test_errors_come_and_go_with_their_condition_and_the_process_stays() -> None:
    condition = EngineCondition(engine=CHAT.name, failing_share=1.0, from_s=30.0, to_s=60.0)
    engine = engine_of(CHAT, 30.0, condition)
    assert "http_requests_total 5xx" not in " ".join(page_of(engine))
    engine.advance(60.0)
    failed = page_of(engine)["vllm:request_success_total error"]
    assert failed > 100.0
    engine.advance(100.0)
    page = page_of(engine)
    # Those that were admitted a moment before the end of the condition still fail.
    assert failed <= page["vllm:request_success_total error"] < failed + 5.0
    assert page["vllm:request_success_total stop"] > 0.0
    assert page["process_start_time_seconds"] < STARTED


@each_row("counts_aborts", [True, False])
def test_clients_hang_up_wherever_their_request_is(counts_aborts: bool) -> None:
    """In the queue, in prefill, and in decode; no block is lost, and nothing waits for them."""
    limits = replace(ROOMY, max_num_seqs=4, counts_aborts=counts_aborts)
    patient = requests(20, 0.5)
    hasty = [
        replace(each, patience_s=patience_s)
        for each, patience_s in zip(patient, [0.01, 0.3, 0.9, 9.0] * 5, strict=True)
    ]
    model = EngineModel(INSTANCE, limits, Script(hasty))
    counters = counted(model)
    assert (model.running, model.waiting, model.blocks.usage_ratio) == (0, 0, 0.0)
    given_up = 20 - counters.stopped
    assert 10 <= given_up <= 15
    assert counters.answered == 20
    assert counters.aborted == (given_up if counts_aborts else 0)
    assert counters.e2e.count == counters.stopped + counters.aborted


def test_an_engine_that_nobody_waits_for_has_nothing_to_do() -> None:
    model = EngineModel(INSTANCE, ROOMY, Script(requests(50, 0.1, output_tokens=4000, patience_s=2.0)))
    model.advance(20.0)
    done = model.counters.generation_tokens
    model.advance(60.0)
    assert model.running == 0
    assert model.counters.generation_tokens == done


def speculative(acceptance: float) -> EngineModel:
    return EngineModel(
        INSTANCE,
        ROOMY,
        Script(requests(40, 0.4, output_tokens=500)),
        speculation=DraftSettings(3, acceptance, 0.0008),
    )


def test_speculation_gives_the_same_answers_in_fewer_steps() -> None:
    plain = EngineModel(INSTANCE, ROOMY, Script(requests(40, 0.4, output_tokens=500)))
    sharp, dull = speculative(0.72), speculative(0.04)
    for model in (plain, sharp, dull):
        model.advance(1e4)
        assert model.counters.generation_tokens == 40 * 500
        assert model.counters.stopped == 40
    for model, acceptance in ((sharp, 0.72), (dull, 0.04)):
        counters = model.counters
        assert counters.accepted_tokens / counters.draft_tokens == pytest.approx(acceptance, rel=0.02)
        assert sum(counters.accepted_at) == pytest.approx(counters.accepted_tokens)
        assert counters.accepted_at[0] >= counters.accepted_at[1] >= counters.accepted_at[2]
    assert sharp.counters.e2e.total < 0.6 * plain.counters.e2e.total
    assert dull.counters.e2e.total > plain.counters.e2e.total


@each_row("acceptance", [0.0, 0.04, 0.5, 1.0])
def test_the_places_in_a_draft_share_its_acceptance(acceptance: float) -> None:
    shares = DraftSettings(4, acceptance, 0.0).by_position
    assert sum(shares) == pytest.approx(1.0)
    assert list(shares) == sorted(shares, reverse=True)


def test_kv_from_elsewhere_is_waited_for_and_not_computed() -> None:
    limits = replace(ROOMY, link_bytes_per_s=1e9)
    model = EngineModel(INSTANCE, limits, Script(requests(50, 0.5, fetched_tokens=999)))
    model.advance(1.0)
    counters = counted(model)
    # A prompt has 131 MB of KV.
    assert counters.ttft.total / 50 > 999 * LLAMA_8B.kv_bytes / 1e9
    assert (counters.fetched_tokens, counters.computed_tokens) == (50 * 999, 50)
    assert counters.fetches.total == 50 * 999 * LLAMA_8B.kv_bytes
    assert model.blocks.usage_ratio == 0.0


def test_a_stuck_link_defers_requests_and_loses_none() -> None:
    limits = replace(ROOMY, link_bytes_per_s=2e10)
    model = EngineModel(INSTANCE, limits, Script(requests(100, 0.5, fetched_tokens=999)))
    model.advance(20.0)
    assert model.link is not None
    model.link.stick(20.0)
    model.advance(40.0)
    assert (model.running, model.deferred, model.for_capacity) == (0, model.waiting, 0)
    assert model.deferred == pytest.approx(40, abs=2)
    model.link.go_on(40.0)
    model.advance(45.0)
    assert model.deferred <= 1
    model.advance(1e4)
    assert model.counters.stopped == 100


def test_requests_whose_clients_hung_up_leave_the_link_and_their_blocks() -> None:
    limits = replace(ROOMY, link_bytes_per_s=2e10)
    model = EngineModel(INSTANCE, limits, Script(requests(10, 0.1, fetched_tokens=999, patience_s=5.0)))
    assert model.link is not None
    model.link.stick(0.0)
    model.advance(4.0)
    assert model.deferred == 10
    model.advance(20.0)
    assert (model.waiting, model.blocks.usage_ratio) == (0, 0.0)


def test_four_slots_serve_twelve_adapters_in_turns() -> None:
    script = Script(
        [replace(each, adapter=f"a{number % 12}") for number, each in enumerate(requests(240, 0.05, output_tokens=300))]
    )
    model = EngineModel(INSTANCE, replace(ROOMY, max_loras=4), script)
    most, deferred = 0, 0
    for second in range(200):
        model.advance(float(second))
        most = max(most, len(model.running_adapters))
        deferred = max(deferred, model.deferred)
        assert model.deferred + model.for_capacity == model.waiting
    assert most == 4
    assert deferred > 50
    assert model.counters.stopped == 240


def test_a_pause_makes_no_token_and_loses_none() -> None:
    model = EngineModel(INSTANCE, ROOMY, Script(requests(100, 0.2, output_tokens=200)))
    model.advance(5.0)
    model.pause(50.0)
    model.advance(6.0)
    done = model.counters.generation_tokens
    model.advance(49.0)
    assert model.counters.generation_tokens == done
    assert model.running > 0
    assert model.waiting == pytest.approx(75, abs=1)
    assert counted(model).stopped == 100


def test_a_pause_shows_in_what_the_process_and_its_gpus_do() -> None:
    pause = EnginePause(cores=14.0, busy_ratio=0.1, pcie_bytes_per_s=9e9)
    condition = EngineCondition(engine=CHAT.name, pause=pause, from_s=10.0, to_s=40.0)
    scenario = Scenario(name="t", about="", truth=(), cast=(CHAT,), warm_s=20.0, engine_conditions=(condition,))
    server = SimulatedServer(scenario, clock=lambda: 0.0, wall_clock=lambda: STARTED)
    for second in range(-20, 31):
        server.advance(float(second))
    gpu = server.readings(0.0)[0]
    assert gpu.processes[0].cpu_ratio == 14.0
    assert gpu.busy_ratio == 0.1
    assert gpu.pcie_rx_bytes_per_s == pytest.approx(9e9, rel=0.01)
    for second in range(31, 51):
        server.advance(float(second))
    assert server.readings(0.0)[0].busy_ratio > 0.5
    asyncio.run(server.close())


def pair() -> Scenario:
    (scenario,) = [each for each in SCENARIOS if each.name == "prefill-decode-pair"]
    return scenario


def test_what_one_engine_prefills_the_other_decodes() -> None:
    server = SimulatedServer(pair(), clock=lambda: 0.0, wall_clock=lambda: STARTED)
    for second in range(-120, 61):
        server.advance(float(second))
    first, second_ = (engine.ranks[0].counters for engine in server.engines)
    assert first.generation_tokens == first.cut > 800
    assert first.cut - second_.ttft.count <= 3
    assert second_.fetched_tokens == second_.prompt_tokens - second_.ttft.count
    page = page_of(server.engines[1])
    assert page["vllm:nixl_bytes_transferred_sum"] == second_.fetches.total
    assert page["vllm:prompt_tokens_by_source_total external_kv_transfer"] == second_.fetched_tokens
    assert page["vllm:prompt_tokens_by_source_total local_compute"] == second_.ttft.count
    assert page_of(server.engines[0])["vllm:nixl_bytes_transferred_sum"] == 0.0, "counted by the one that reads"
    adapter = VllmAdapter()
    pages = [adapter.read(Scanner(adapter.wanted_names).scan(each.answer("/metrics").body)) for each in server.engines]
    assert [read.info.get("role") for read in pages] == [None, "decode"]
    asyncio.run(server.close())


def test_offloaded_kv_comes_from_the_host() -> None:
    actor = replace(
        CHAT,
        demand=demand(4, 4000, 100, returning=1.0, hit_share=0.3, fetched_share=0.5),
        link_bytes_per_s=2.4e10,
        offloads=True,
    )
    page = page_of(engine_of(actor, 60.0))
    device = page["vllm:prompt_tokens_cached_by_source_total device"]
    host = page["vllm:prompt_tokens_cached_by_source_total host"]
    assert device + host == page["vllm:prefix_cache_hits_total"] + page["vllm:external_prefix_cache_hits_total"]
    assert page["vllm:kv_offload_load_bytes_total"] == pytest.approx(host * LLAMA_8B.kv_bytes, rel=0.02)
    computed = page["vllm:prompt_tokens_by_source_total local_compute"]
    assert page["vllm:kv_offload_store_bytes_total"] == computed * LLAMA_8B.kv_bytes
    assert computed + page["vllm:prompt_tokens_cached_total"] == page["vllm:prompt_tokens_total"]


def lora_series(engine: SimulatedEngine) -> list[tuple[dict[str, str], float]]:
    families = text_string_to_metric_families(engine.answer("/metrics").body.decode())
    samples = [sample for family in families for sample in family.samples]
    return [(sample.labels, sample.value) for sample in samples if sample.name == "vllm:lora_requests_info"]


def test_the_newest_of_the_lora_series_is_that_of_the_moment() -> None:
    actor = replace(CHAT, demand=demand(6, 900, 240, adapters=12), max_loras=4)
    engine = engine_of(actor, 30.0)
    first = lora_series(engine)
    assert len(first) == 1
    engine.advance(60.0)
    newest, wall_s = max(lora_series(engine), key=lambda series: series[1])
    assert wall_s == STARTED + 60.0
    assert newest["max_lora"] == "4"
    assert newest["running_lora_adapters"] == ",".join(engine.ranks[0].running_adapters)
    assert len(newest["running_lora_adapters"].split(",")) == 4


def test_another_model_takes_over_a_port() -> None:
    heir = replace(CHAT, name="heir", model="other", port_of=CHAT.name)
    effects = (
        EngineEffect(engine=CHAT.name, down=True, from_s=10.0),
        EngineEffect(engine="heir", down=True, from_s=-1000.0, to_s=20.0),
        EngineEffect(engine="heir", compiling=True, from_s=20.0, to_s=30.0),
    )
    scenario = Scenario(name="t", about="", truth=(), cast=(CHAT, heir), warm_s=20.0, engine_effects=effects)
    server = SimulatedServer(scenario, clock=lambda: 0.0, wall_clock=lambda: STARTED)
    assert [endpoint.name for endpoint in server.endpoints] == [CHAT.name]
    (port,) = server.ports
    seen: list[tuple[bool, bool, list[str]]] = []
    for at_s in (0.0, 15.0, 25.0, 35.0):
        server.advance(at_s)
        text = port.answer("/v1/models").body if port.up else b""
        commands = [process.command.split()[2] for process in server.readings(0.0)[0].processes]
        seen.append((port.up, b"other" in text, commands))
    assert seen == [(True, False, [CHAT.model]), (False, False, []), (False, False, ["other"]), (True, True, ["other"])]
    asyncio.run(server.close())


def lengths_of(traffic: Traffic, to_s: float) -> Sequence[SimulatedRequest]:
    taken: list[SimulatedRequest] = []
    while traffic.next_s() <= to_s:
        taken.append(traffic.take())
    return taken


def test_batches_hits_and_patience_come_when_the_demand_says() -> None:
    surges = (Surge(100.0, math.inf, 0.02),)
    wanted = demand(5, 1000, 100, returning=1.0, hit_share=0.8, batches=[[50, 300]])
    wanted = replace(wanted, hit_surges=surges, patience=(Patience(100.0, 200.0, 3.0),))
    requests_ = lengths_of(Traffic(wanted, 1, 0.0), 300.0)
    assert sum(each.arrival_s == 50.0 for each in requests_) == 300
    before = [each for each in requests_ if each.arrival_s < 100.0 and each.arrival_s != 50.0]
    after = [each for each in requests_ if each.arrival_s >= 100.0]
    for part, share in ((before, 0.8), (after, 0.05)):
        hits = sum(each.cached_tokens for each in part) / sum(each.prompt_tokens for each in part)
        assert hits == pytest.approx(share, abs=0.05)
    assert {each.patience_s for each in after if each.arrival_s < 200.0} == {3.0}
    assert {each.patience_s for each in before} == {math.inf}
