"""What a script does to GPUs, engines and the host of the simulated server."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from gpumon.readings.frame import GpuReading, GpuState, HostReading
from gpumon.readings.missing import NOT_SUPPORTED, Missing
from gpumon.sources.simulator.cast import H100, Leftover
from gpumon.sources.simulator.effects import told
from gpumon.sources.simulator.engine_model import EngineModel, Held
from gpumon.sources.simulator.gpus import Work
from gpumon.sources.simulator.scenario import Scenario
from gpumon.sources.simulator.scenarios import SCENARIOS, near, scenario
from gpumon.sources.simulator.scenarios_engines import CHAT, LARGE, of, steady
from gpumon.sources.simulator.script import EngineSpell, GpuSpell, HostSpell, Script, boundaries, host, standing
from gpumon.sources.simulator.serving import SimulatedEngine
from gpumon.sources.simulator.source import SimulatedServer, play
from gpumon.sources.simulator.traffic import Demand, Surge, Traffic
from tests.records import replace

WALL_S = 1.8e9
BUSY = of(CHAT, demand=steady(6.0, 1800, 240))


def staged(script: Script, **facts: object) -> SimulatedServer:
    """A small server with a script, warm."""
    usual = {"name": "test", "about": "", "scope": "gpu 0", "expected": "healthy", "cast": BUSY, "warm_s": 20.0}
    made = play(Scenario(**{**usual, "script": script, **facts}), clock=lambda: 5000.0, wall_clock=lambda: WALL_S)
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


def test_spells_stand_from_their_beginning_to_before_their_end() -> None:
    spells = (GpuSpell(gpus=(0,), from_s=5.0, to_s=9.0), GpuSpell(gpus=(1,)))
    assert standing(spells, 4.9) == [spells[1]]
    assert standing(spells, 5.0) == [*spells]
    assert standing(spells, 9.0) == [spells[1]]
    assert boundaries(spells) == [5.0, 9.0]


def test_a_lost_gpu_says_nothing_but_its_xid() -> None:
    server = staged(Script(gpus=(GpuSpell(gpus=(1,), from_s=10.0, xid=79, state=GpuState.LOST, state_text="gone"),)))
    assert gpus_at(server, 9.0)[1].xid == ()
    well, lost = gpus_at(server, 14.0)
    assert (lost.state, lost.state_text, lost.uuid) == (GpuState.LOST, "gone", server.readings(0.0)[1].uuid)
    assert isinstance(lost.power_w, Missing)
    assert [(event.code, event.wall_s) for event in lost.xid] == [(79, WALL_S + 10.0)]
    assert gpus_at(server, 20.0)[1].xid == lost.xid
    assert well.state is GpuState.OK
    closed(server)


def test_slow_clocks_slow_the_engine_and_its_power_and_are_counted() -> None:
    script = Script(gpus=(GpuSpell(gpus=(0,), from_s=10.0, throttle=("hw_thermal_slowdown",), clock_share=0.5),))
    cast = of(CHAT, demand=steady(6.1, 6000, 4))
    server = staged(script, cast=cast)
    before = gpus_at(server, 9.0)[0]
    first = server.truth().engines["llama-8b"].flops
    for second in range(10, 60):
        server.advance(float(second))
    slow = gpus_at(server, 60.0)[0]
    rate = (server.truth().engines["llama-8b"].flops - first) / 51.0
    assert (before.throttle, slow.throttle) == ((), ("hw_thermal_slowdown",))
    assert before.sm_clock_hz == H100.sm_clock_hz
    assert slow.sm_clock_hz == pytest.approx(H100.sm_clock_hz / 2, abs=15e6)
    assert slow.throttle_s["hw_thermal_slowdown"] == pytest.approx(50.0)
    assert slow.power_w < before.power_w
    assert rate < 0.5 * 0.65 * H100.bf16_flops_per_s
    assert slow.busy_ratio == 1.0
    closed(server)


def test_the_others_wait_for_a_slow_gpu_of_their_rank() -> None:
    script = Script(gpus=(GpuSpell(gpus=(1,), clock_share=0.5),))
    server = staged(script, cast=of(LARGE, demand=steady(2.4, 3000, 100)), gpus=4)
    gpus = gpus_at(server, 30.0)
    assert gpus[0].busy_ratio == gpus[1].busy_ratio
    assert gpus[0].sm_active_ratio < 0.8 * gpus[1].sm_active_ratio
    assert gpus[0].tensor_active_ratio < 0.6 * gpus[1].tensor_active_ratio
    closed(server)


def test_figures_and_absent_signals_are_as_the_script_says() -> None:
    script = Script(
        gpus=(GpuSpell(gpus=(0,), from_s=5.0, figures={"ecc_uncorrected": 2.0}),),
        unmeasured=("sm_active_ratio", "tensor_active_ratio", "dram_active_ratio"),
    )
    server = staged(script)
    assert server.readings(0.0)[0].ecc_uncorrected == 0.0
    gpu = gpus_at(server, 6.0)[0]
    assert gpu.ecc_uncorrected == 2.0
    assert (gpu.tensor_active_ratio, gpu.activity_source) == (NOT_SUPPORTED, "")
    closed(server)


def test_a_program_that_is_no_engine_may_work() -> None:
    work = Work(0.8, 0.7, 0.2, 2e14, 0.3)
    server = staged(Script(), leftovers=(Leftover(1, "sim:python", 6e10, work=work),))
    gpu = gpus_at(server, 5.0)[1]
    assert (gpu.busy_ratio, gpu.dram_active_ratio, gpu.vram_used_bytes) == (0.8, 0.3, 6e10)
    closed(server)


def test_an_engine_hangs_and_still_takes_requests() -> None:
    engine = SimulatedEngine(BUSY[0], 1, 0.0, WALL_S, (EngineSpell(engine="llama-8b", from_s=20.0, spinning=True),))
    engine.advance(20.0)
    before, running = engine.truth(), engine.ranks[0].running
    engine.works(lambda _: 1.0)
    engine.advance(50.0)
    after = engine.truth()
    assert running > 0
    assert (after.decode_tokens, engine.ranks[0].running) == (before.decode_tokens, running)
    assert after.flops - before.flops <= before.flops / before.steps
    assert engine.ranks[0].waiting > 100
    work = engine.works(lambda _: 1.0)[0]
    assert (work.busy_ratio, work.dram_ratio) == (1.0, 0.0)


def test_a_new_process_starts_with_empty_counters() -> None:
    engine = SimulatedEngine(
        BUSY[0], 1, 0.0, WALL_S, (EngineSpell(engine="llama-8b", from_s=20.0, to_s=30.0, down=True),)
    )
    engine.advance(19.0)
    assert engine.truth().decode_tokens > 1000
    engine.advance(25.0)
    assert not engine.up
    assert engine.works(lambda _: 1.0) == {}
    engine.advance(31.0)
    assert engine.up
    assert 0 <= engine.truth().decode_tokens < 1000
    page = engine.answer("/metrics").body.decode()
    assert "process_start_time_seconds 1.799999955e+09\n" in page  # a process starts 75 s before it answers


def test_the_host_holds_an_engine_in_a_rhythm() -> None:
    held = Held(every_s=6.0, held_s=3.0)
    assert [held.free_s(at_s) for at_s in (0.0, 2.9, 3.0, 5.9, 6.0)] == [0.0, 2.9, 6.0, 6.0, 6.0]
    (actor,) = of(CHAT, demand=steady(7.0, 600, 250), held=held)
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
    (actor,) = of(CHAT, demand=steady(12.0, 500, 300), max_num_seqs=4, most_waiting=10)
    engine = SimulatedEngine(actor, 1, 0.0, WALL_S)
    engine.advance(30.0)
    rank = engine.ranks[0]
    assert (rank.waiting, rank.running) == (10, 4)
    assert rank.rejected > 100
    shown = [line for line in engine.answer("/metrics").body.decode().splitlines() if "max_num_queued_reqs" in line]
    assert f" {float(rank.rejected)}" in shown[0]


def test_metrics_may_be_left_out_of_a_page() -> None:
    engine = SimulatedEngine(of(CHAT, hidden=("kv_cache_usage_perc",))[0], 1, 0.0, WALL_S)
    page = engine.answer("/metrics").body
    assert b"kv_cache_usage_perc" not in page
    assert b"vllm:num_requests_running" in page


def test_surges_come_and_go() -> None:
    surge = Surge(4.0, 10.0, 0.0, every_s=10.0)
    assert [surge.holds(at_s) for at_s in (3.9, 4.0, 13.9, 14.0)] == [False, True, False, True]
    demand: Demand = steady(3.0, 600, 60, Surge(0.0, 4.0, 5.0, 10.0), surge)
    assert (demand.rate_per_s(1.0), demand.rate_per_s(5.0), demand.most_per_s) == (15.0, 0.0, 15.0)


def test_the_last_word_of_the_host_counts() -> None:
    spells = (host(iowait_ratio=0.3), HostSpell(from_s=10.0, to_s=20.0, reading=HostReading(cpu_ratio=0.0)))
    assert (told(spells, 5.0).cpu_ratio, told(spells, 15.0).cpu_ratio) == (0.06, 0.0)
    assert told(spells, 15.0).iowait_ratio == 0.3


class _Real:
    def read(self, pids: tuple[int, ...]) -> HostReading:
        return HostReading(name="gpu-07", cpu_ratio=0.9, self_cpu_ratio=0.01 * len(pids))


def test_a_scripted_host_says_so_and_keeps_gpumons_own_cost() -> None:
    server = staged(Script(host=(host(),)))
    shown = server.host_meter(_Real()).read((1, 2))
    assert (shown.name, shown.cpu_ratio, shown.self_cpu_ratio) == ("gpu-07 (simulated load)", 0.06, 0.02)
    closed(server)


def test_the_host_is_simulated_where_a_script_says_nothing_of_it_too() -> None:
    server = SimulatedServer(warm_s=1.0)
    shown = server.host_meter(_Real()).read(())
    assert (shown.cpu_ratio, shown.name) == (0.06, "gpu-07 (simulated load)")
    assert shown.memory_total_bytes == float(1 << 40)
    closed(server)


async def test_an_engine_that_is_gone_refuses_and_comes_back_on_its_port() -> None:
    now_s = [5000.0]
    spell = EngineSpell(engine="llama-8b", from_s=2.0, to_s=4.0, down=True)
    quick = Scenario(
        name="t", about="", scope="x", expected="healthy", cast=BUSY, warm_s=4.0, script=Script(engines=(spell,))
    )
    server = play(quick, clock=lambda: now_s[0], wall_clock=lambda: WALL_S)
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
    spell = EngineSpell(engine="llama-8b", from_s=0.0, mute=True)
    quick = Scenario(
        name="t", about="", scope="x", expected="stalled", cast=BUSY, warm_s=4.0, script=Script(engines=(spell,))
    )
    server = play(quick)
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
    assert all(each.script.host for each in SCENARIOS)
    assert scenario("kv-cache-full").expected == "kv_cache"
    assert near("kv-cash-full")[0] == "kv-cache-full"
    assert near("thermall") == ["thermal"]
    assert near("kv") == ["kv-cache-full", "metrics-without-kv"]
    with pytest.raises(LookupError):
        scenario("no-such")


def test_a_scenario_is_data() -> None:
    """Nothing in it does anything: what is played can be printed and compared."""
    for each in SCENARIOS:
        assert replace(each) == each
        assert each.from_s < each.to_s
