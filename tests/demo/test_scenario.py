"""What a script does to GPUs, engines and the host of the simulated server."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from gpumon.demo.engine_model import EngineModel, HostHold
from gpumon.demo.gpus import AverageWork, GpuPace
from gpumon.demo.physics import H100
from gpumon.demo.scenario import (
    EngineEffect,
    GpuEffect,
    HostEffect,
    Leftover,
    Scenario,
    boundaries,
    effects_at,
)
from gpumon.demo.scenarios import DEMO, ENGINES, SCENARIOS, demand, host, near, scenario
from gpumon.demo.serving import SimulatedEngine
from gpumon.demo.source import SimulatedHost, SimulatedServer
from gpumon.demo.traffic import Surge, Traffic
from gpumon.readings.frame import GpuReading, GpuState, HostReading
from gpumon.readings.missing import NOT_SUPPORTED, Missing
from tests.demo.truth import engine_truth, server_truth
from tests.records import replace

WALL_S = 1.8e9
CHAT, LARGE = ENGINES["llama-8b"], ENGINES["llama-70b"]
BUSY = (CHAT,)


def staged(*gpu_effects: GpuEffect, **facts: object) -> SimulatedServer:
    """A small server on which something happens, warm."""
    usual = {"name": "test", "about": "", "truth": (), "cast": BUSY, "warm_s": 20.0, "gpu_effects": gpu_effects}
    made = SimulatedServer(Scenario(**{**usual, **facts}), clock=lambda: 5000.0, wall_clock=lambda: WALL_S)
    made.advance(-10.0)
    made.advance(0.0)
    return made


def gpus_at(server: SimulatedServer, at_s: float) -> tuple[GpuReading, ...]:
    """The GPUs after a second of work that ends then."""
    server.advance(at_s - 1.0)
    server.advance(at_s)
    return server.readings(at_s)


def closed(server: SimulatedServer) -> None:
    asyncio.run(server.close())


def test_effects_last_from_their_beginning_to_before_their_end() -> None:
    effects = (GpuEffect(gpus=(0,), from_s=5.0, to_s=9.0), GpuEffect(gpus=(1,)))
    assert effects_at(effects, 4.9) == [effects[1]]
    assert effects_at(effects, 5.0) == [*effects]
    assert effects_at(effects, 9.0) == [effects[1]]
    assert boundaries(effects) == [5.0, 9.0]


def test_a_lost_gpu_says_nothing_but_its_xid() -> None:
    server = staged(GpuEffect(gpus=(1,), from_s=10.0, xid=79, state=GpuState.LOST, state_text="gone"))
    assert gpus_at(server, 9.0)[1].xid == ()
    well, lost = gpus_at(server, 14.0)
    assert (lost.state, lost.state_text, lost.uuid) == (GpuState.LOST, "gone", server.readings(0.0)[1].uuid)
    assert isinstance(lost.power_w, Missing)
    assert [(event.code, event.wall_s) for event in lost.xid] == [(79, WALL_S + 10.0)]
    assert gpus_at(server, 20.0)[1].xid == lost.xid
    assert well.state is GpuState.OK
    closed(server)


def test_slow_clocks_slow_the_engine_and_its_power_and_are_counted() -> None:
    effect = GpuEffect(gpus=(0,), from_s=10.0, throttle=("hw_thermal_slowdown",), clock_share=0.5)
    cast = (replace(CHAT, demand=demand(6.1, 6000, 4)),)
    server = staged(effect, cast=cast)
    before = gpus_at(server, 9.0)[0]
    first = server_truth(server).engines["llama-8b"].flops
    for second in range(10, 60):
        server.advance(float(second))
    slow = gpus_at(server, 60.0)[0]
    rate = (server_truth(server).engines["llama-8b"].flops - first) / 51.0
    assert (before.throttle, slow.throttle) == ((), ("hw_thermal_slowdown",))
    assert before.sm_clock_hz == H100.sm_clock_hz
    assert slow.sm_clock_hz == pytest.approx(H100.sm_clock_hz / 2, abs=15e6)
    assert slow.throttle_s["hw_thermal_slowdown"] == pytest.approx(50.0)
    assert slow.power_w < before.power_w
    assert rate < 0.5 * 0.65 * H100.bf16_flops_per_s
    assert slow.busy_ratio == 1.0
    closed(server)


def test_the_others_wait_for_a_slow_gpu_of_their_rank() -> None:
    effect = GpuEffect(gpus=(1,), clock_share=0.5)
    server = staged(effect, cast=(replace(LARGE, demand=demand(2.4, 3000, 100)),), gpus=4)
    gpus = gpus_at(server, 30.0)
    assert gpus[0].busy_ratio == gpus[1].busy_ratio
    assert gpus[0].sm_active_ratio < 0.8 * gpus[1].sm_active_ratio
    assert gpus[0].tensor_active_ratio < 0.6 * gpus[1].tensor_active_ratio
    closed(server)


def test_figures_and_absent_signals_are_as_the_script_says() -> None:
    server = staged(
        GpuEffect(gpus=(0,), from_s=5.0, figures={"ecc_uncorrected": 2.0}),
        unmeasured=("sm_active_ratio", "tensor_active_ratio", "dram_active_ratio"),
    )
    assert server.readings(0.0)[0].ecc_uncorrected == 0.0
    gpu = gpus_at(server, 6.0)[0]
    assert gpu.ecc_uncorrected == 2.0
    assert (gpu.tensor_active_ratio, gpu.activity_source) == (NOT_SUPPORTED, "")
    closed(server)


def test_a_program_that_is_no_engine_may_work() -> None:
    work = AverageWork(0.8, 0.7, 0.2, 2e14, 0.3)
    server = staged(leftovers=(Leftover(1, 6e10, work=work),))
    gpu = gpus_at(server, 5.0)[1]
    assert (gpu.busy_ratio, gpu.dram_active_ratio, gpu.vram_used_bytes) == (0.8, 0.3, 6e10)
    closed(server)


def test_an_engine_hangs_and_still_takes_requests() -> None:
    engine = SimulatedEngine(BUSY[0], 1, 0.0, WALL_S, (EngineEffect(engine="llama-8b", from_s=20.0, spinning=True),))
    engine.advance(20.0)
    before, running = engine_truth(engine), engine.ranks[0].running
    engine.works(lambda _: GpuPace())
    engine.advance(50.0)
    after = engine_truth(engine)
    assert running > 0
    assert (after.decode_tokens, engine.ranks[0].running) == (before.decode_tokens, running)
    assert after.flops - before.flops <= before.flops / before.steps
    assert engine.ranks[0].waiting > 100
    work = engine.works(lambda _: GpuPace())[0]
    assert (work.busy_ratio, work.dram_ratio) == (1.0, 0.0)


def test_a_new_process_starts_with_empty_counters() -> None:
    engine = SimulatedEngine(
        BUSY[0], 1, 0.0, WALL_S, (EngineEffect(engine="llama-8b", from_s=20.0, to_s=30.0, down=True),)
    )
    engine.advance(19.0)
    assert engine_truth(engine).decode_tokens > 1000
    engine.advance(25.0)
    assert not engine.up
    assert engine.works(lambda _: GpuPace()) == {}
    engine.advance(31.0)
    assert engine.up
    assert 0 <= engine_truth(engine).decode_tokens < 1000
    page = engine.answer("/metrics").body.decode()
    assert "process_start_time_seconds 1.80000002e+09\n" in page  # 75 s before it answers, or once there is room for it


def test_the_host_holds_an_engine_in_a_rhythm() -> None:
    held = HostHold(every_s=6.0, held_s=3.0)
    assert [held.free_s(at_s) for at_s in (0.0, 2.9, 3.0, 5.9, 6.0)] == [0.0, 2.9, 6.0, 6.0, 6.0]
    actor = replace(CHAT, demand=demand(7.0, 600, 250), held=held)
    model = EngineModel(actor.instance, actor.limits, Traffic(actor.demand, 1, 0.0), 0.0, held)
    model.advance(63.0)
    at_rest = model.meter(63.0)
    model.advance(65.9)
    held_on = model.meter(65.9)
    model.advance(69.0)
    assert held_on.busy_s - at_rest.busy_s < 0.1
    assert model.meter(69.0).busy_s - held_on.busy_s > 2.5
    assert model.running > 0


def test_requests_beyond_the_queue_are_turned_away_and_counted() -> None:
    actor = replace(CHAT, demand=demand(12.0, 500, 300), max_num_seqs=4, most_waiting=10)
    server = SimulatedEngine(actor, 1, 0.0, WALL_S)
    server.advance(30.0)
    rank = server.ranks[0]
    assert (rank.waiting, rank.running) == (10, 4)
    assert rank.rejected > 100
    shown = [line for line in server.answer("/metrics").body.decode().splitlines() if "max_num_queued_reqs" in line]
    assert f" {float(rank.rejected)}" in shown[0]


def test_metrics_may_be_left_out_of_a_page() -> None:
    page = SimulatedEngine(replace(CHAT, hidden=("kv_cache_usage_perc",)), 1, 0.0, WALL_S).answer("/metrics").body
    assert b"kv_cache_usage_perc" not in page
    assert b"vllm:num_requests_running" in page


def test_surges_come_and_go() -> None:
    surge = Surge(4.0, 10.0, 0.0, every_s=10.0)
    assert [surge.holds(at_s) for at_s in (3.9, 4.0, 13.9, 14.0)] == [False, True, False, True]
    bursts = demand(3.0, 600, 60, surges=[[0.0, 4.0, 5.0, 10.0], [4.0, 10.0, 0.0, 10.0]])
    assert (bursts.rate_per_s(1.0), bursts.rate_per_s(5.0), bursts.most_per_s) == (15.0, 0.0, 15.0)


def test_the_last_word_of_the_host_counts() -> None:
    effects = (host(iowait_ratio=0.3), HostEffect(from_s=10.0, to_s=20.0, reading=HostReading(cpu_ratio=0.0)))
    early, late = (SimulatedHost(_Real(), effects, lambda at_s=at_s: at_s).read(()) for at_s in (5.0, 15.0))
    assert (early.cpu_ratio, late.cpu_ratio, late.iowait_ratio) == (0.06, 0.0, 0.3)


class _Real:
    def read(self, pids: tuple[int, ...]) -> HostReading:
        return HostReading(name="gpu-07", cpu_ratio=0.9, self_cpu_ratio=0.01 * len(pids))


def test_a_scripted_host_says_so_and_keeps_gpumons_own_cost() -> None:
    server = staged()
    shown = server.host_meter(_Real()).read((1, 2))
    assert (shown.name, shown.cpu_ratio, shown.self_cpu_ratio) == ("gpu-07 (simulated load)", 0.06, 0.02)
    closed(server)


def test_the_host_is_simulated_where_a_script_says_nothing_of_it_too() -> None:
    server = SimulatedServer(replace(DEMO, warm_s=1.0))
    shown = server.host_meter(_Real()).read(())
    assert (shown.cpu_ratio, shown.name) == (0.06, "gpu-07 (simulated load)")
    assert shown.memory_total_bytes == float(1 << 40)
    closed(server)


async def test_an_engine_that_is_gone_refuses_and_comes_back_on_its_port() -> None:
    now_s = [5000.0]
    effect = EngineEffect(engine="llama-8b", from_s=2.0, to_s=4.0, down=True)
    quick = Scenario(name="t", about="", truth=(), cast=BUSY, warm_s=4.0, engine_effects=(effect,))
    server = SimulatedServer(quick, clock=lambda: now_s[0], wall_clock=lambda: WALL_S)
    await server.start()
    await server.ready(60.0)
    url = f"{server.endpoints[0].url}/metrics"
    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
        assert (await client.get(url)).status_code == 200
        now_s[0] += 3.0
        gone = (await server.poll(0.0)).gpus[0]
        with pytest.raises(httpx.TransportError):
            await client.get(url)  # the connection that was open is cut
        with pytest.raises(httpx.ConnectError):
            await client.get(url)
        assert gone.processes == ()
        now_s[0] += 2.0
        back = (await server.poll(0.0)).gpus[0]
        assert (await client.get(url)).status_code == 200
        assert len(back.processes) == 1
    await server.close()


async def test_a_mute_engine_never_answers() -> None:
    effect = EngineEffect(engine="llama-8b", from_s=0.0, mute=True)
    quick = Scenario(name="t", about="", truth=(), cast=BUSY, warm_s=4.0, engine_effects=(effect,))
    server = SimulatedServer(quick)
    await server.start()
    await server.ready(60.0)
    async with httpx.AsyncClient(trust_env=False, timeout=httpx.Timeout(60.0, read=0.3)) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.get(f"{server.endpoints[0].url}/metrics")
    await server.close()


def test_scenarios_are_named_and_told_apart() -> None:
    names = [each.name for each in SCENARIOS]
    assert len(set(names)) == len(names)
    assert len({each.about for each in SCENARIOS}) == len(names)
    assert scenario("kv-cache-full").expected == "kv cache full"
    assert near("kv-cash-full")[0] == "kv-cache-full"
    assert near("thermall") == ["thermal"]
    assert near("kv") == ["kv-cache-full", "metrics-without-kv", "kv-transfer-stuck"]
    with pytest.raises(LookupError):
        scenario("no-such")


def test_a_scenario_is_data() -> None:
    """Nothing in it does anything: what is played can be printed and compared."""
    for each in SCENARIOS:
        assert replace(each) == each
        assert all(truth.from_s < truth.to_s for truth in each.truth)


def test_a_gpu_over_its_power_limit_lowers_its_clock_and_the_prefill_with_it() -> None:
    cast = (replace(CHAT, demand=demand(6.1, 6000, 4)),)
    limited, free = staged(GpuEffect(gpus=(0,), power_limit_w=300.0), cast=cast), staged(cast=cast)
    for server in (limited, free):
        for second in range(60):
            server.advance(float(second))
    slow, fast = limited.readings(0.0)[0], free.readings(0.0)[0]
    assert (slow.power_limit_w, fast.power_limit_w, slow.throttle) == (300.0, 700.0, ("sw_power_cap",))
    assert slow.power_w == pytest.approx(300.0)
    assert slow.sm_clock_hz < 0.75 * fast.sm_clock_hz
    done = [server_truth(server).engines["llama-8b"].prefill_tokens for server in (limited, free)]
    assert done[0] < 0.85 * done[1]
    closed(limited)
    closed(free)


def test_two_programs_on_one_gpu_take_turns() -> None:
    job = Leftover(0, 3e10, work=AverageWork(1.0, 0.95, 0.4, 4e14, 0.3))
    alone, both = staged(gpus=1), staged(gpus=1, leftovers=(job,))
    for server in (alone, both):
        for second in range(60):
            server.advance(float(second))
    slow, fast = (server_truth(server).engines["llama-8b"] for server in (both, alone))
    assert slow.busy_s / slow.steps > 1.3 * fast.busy_s / fast.steps
    gpu = both.readings(0.0)[0]
    assert gpu.busy_ratio == 1.0
    assert len(gpu.processes) == 2
    closed(alone)
    closed(both)


def test_a_process_that_loads_fills_its_memory_and_one_that_sleeps_gives_it_back() -> None:
    loads = EngineEffect(engine="llama-8b", from_s=0.0, to_s=100.0, loading=True)
    sleeps = EngineEffect(engine="llama-8b", from_s=120.0, to_s=140.0, asleep=True)
    server = staged(cast=(replace(CHAT, demand=demand(0.0, 600, 250)),), engine_effects=(loads, sleeps))
    held = []
    for at_s in (10.0, 90.0, 110.0, 130.0, 150.0):
        server.advance(at_s)
        held.append(server.readings(at_s)[0].vram_used_bytes)
    assert held[0] < 4e9 < held[1] < 2e10 < held[2] == held[4]
    assert held[3] < 5e9
    assert b'sleep_state="awake"} 1.0' in server.engines[0].answer("/metrics").body
    closed(server)


def test_a_new_process_has_to_learn_its_prefixes_again() -> None:
    learning = demand(5.0, 1600, 100, returning=1.0, hit_share=0.8, relearn_s=60.0)
    traffic = Traffic(learning, 1, 100.0)
    requests = [traffic.take() for _ in range(1500)]
    shares = [
        sum(each.cached_tokens for each in part) / sum(each.prompt_tokens for each in part)
        for part in (requests[:50], requests[-200:])
    ]
    assert shares[0] < 0.15
    assert shares[1] == pytest.approx(0.8, abs=0.05)


def test_single_requests_come_beside_the_traffic() -> None:
    traffic = Traffic(demand(0.0, 600, 60, singles=((5.0, 9000, 7), (50.0, 8000, 7))), 1, 10.0)
    assert traffic.next_s() == 50.0
    assert traffic.take().prompt_tokens == 8000
    assert traffic.next_s() == float("inf")
