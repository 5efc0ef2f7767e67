"""The simulated server as the collector and the endpoint source see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from gpumon.demo.physics import H100
from gpumon.demo.scenario import Scenario
from gpumon.demo.scenarios import DEMO
from gpumon.demo.source import FIRST_PID, LONGEST_GAP_S, SimulatedServer
from gpumon.readings.frame import EndpointState, GpuReading, GpuState
from gpumon.readings.missing import Missing
from gpumon.readings.quantities import DECODE_TOKENS, POOL_TOKENS
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.source import Contribution, Source
from tests.demo.truth import server_truth
from tests.records import replace


def warmed(seconds: float) -> Scenario:
    """The demo, which opens sooner."""
    return replace(DEMO, warm_s=seconds)


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now_s = 5000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def server(clock: Clock) -> AsyncIterator[SimulatedServer]:
    made = SimulatedServer(warmed(120.0), clock=clock, wall_clock=lambda: 1.8e9)
    await made.start()
    yield made
    await made.close()


async def warm(server: SimulatedServer) -> Contribution:
    for _ in range(2000):
        contribution = await server.poll(0.0)
        if contribution.gpus[0].state is GpuState.OK:
            return contribution
        await asyncio.sleep(0)
    raise AssertionError("the warm-up does not end")


async def test_it_opens_at_once_and_warms_up_beside(server: SimulatedServer) -> None:
    source: Source = server
    first = await source.poll(0.0)
    assert [gpu.state for gpu in first.gpus] == [GpuState.INITIALISING] * 8
    assert isinstance(first.gpus[0].busy_ratio, Missing)
    assert "simulated" in first.driver
    opened = await warm(server)
    assert [gpu.name for gpu in opened.gpus] == ["NVIDIA H100 80GB HBM3"] * 8
    assert len({gpu.uuid for gpu in opened.gpus}) == 8
    assert [gpu.uuid for gpu in first.gpus] == [gpu.uuid for gpu in opened.gpus]


async def test_endpoints_name_their_gpus_and_answer_real_http(server: SimulatedServer) -> None:
    assert [endpoint.gpus for endpoint in server.endpoints] == [(0, 1, 2, 3), (4,), (5, 6)]
    assert [endpoint.name for endpoint in server.endpoints] == [actor.name for actor in DEMO.cast]
    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
        for endpoint, actor in zip(server.endpoints, DEMO.cast, strict=True):
            page = await client.get(f"{endpoint.url}/metrics")
            assert page.headers["content-type"] == "text/plain; version=1.0.0; charset=utf-8"
            assert f'vllm:generation_tokens_total{{engine="0",model_name="{actor.model}"}}' in page.text
            models = (await client.get(f"{endpoint.url}/v1/models")).json()
            assert models["data"][0]["id"] == actor.model
            assert (await client.get(f"{endpoint.url}/server_info")).status_code == 404


async def test_the_ordinary_endpoint_source_reads_them(server: SimulatedServer) -> None:
    sources = [EndpointSource(endpoint, 0.25) for endpoint in server.endpoints]
    for source in sources:
        await source.start()
    for source, actor in zip(sources, DEMO.cast, strict=True):
        await source.ready(60.0)
        reading = source.reading
        assert (reading.state, reading.fault) == (EndpointState.OK, "")
        assert (reading.name, reading.model, reading.version) == (actor.name, actor.model, "0.32.0")
        assert reading.exact_steps == (len(actor.ranks) == 1)
        assert len(reading.ranks) == len(actor.ranks)
        limits = actor.limits
        pool_tokens = (limits.kv_pool_blocks - 1) * 16
        for rank in reading.ranks:
            assert rank.counters[DECODE_TOKENS] > 0
            assert rank.gauges[POOL_TOKENS] == pytest.approx(pool_tokens)
        await source.close()


async def test_gpus_follow_what_the_engines_do(server: SimulatedServer, clock: Clock) -> None:
    before = (await warm(server)).gpus
    truth = server_truth(server)
    clock.now_s += 10.0
    gpus = (await server.poll(0.0)).gpus
    later = server_truth(server)
    for gpu, earlier in zip(gpus, before, strict=True):
        check_plausible(gpu)
        assert gpu.energy_j - earlier.energy_j == pytest.approx(gpu.power_w * 10.0, rel=1e-3)
        assert gpu.monotonic_s == clock.now_s
    read = (later.engines["llama-70b"].dram_bytes - truth.engines["llama-70b"].dram_bytes) / 10.0
    assert gpus[0].dram_active_ratio == pytest.approx(read / 4 / H100.bytes_per_s)
    flops = later.engines["llama-8b"].flops - truth.engines["llama-8b"].flops
    assert sum(later.gpus[at].flops - truth.gpus[at].flops for at in (5, 6)) == pytest.approx(flops)
    assert later.gpus[0].dram_bytes - truth.gpus[0].dram_bytes == pytest.approx(read * 10.0 / 4)
    assert gpus[0].busy_ratio > 0.9
    assert gpus[0].sm_active_ratio < gpus[0].busy_ratio
    assert gpus[0].nvlink_tx_bytes_per_s > 1e9
    assert gpus[4].nvlink_tx_bytes_per_s == 0.0
    assert gpus[4].tensor_active_ratio < 0.1 < gpus[4].dram_active_ratio


async def test_the_last_gpu_holds_memory_and_does_nothing(server: SimulatedServer) -> None:
    idle = (await warm(server)).gpus[7]
    assert (idle.busy_ratio, idle.sm_active_ratio, idle.dram_active_ratio) == (0.0, 0.0, 0.0)
    assert idle.power_w == pytest.approx(114, abs=3)
    assert idle.vram_used_bytes > 30e9
    assert len(idle.processes) == 1


async def test_processes_are_plainly_simulated(server: SimulatedServer) -> None:
    processes = [process for gpu in (await warm(server)).gpus for process in gpu.processes]
    assert len({process.pid for process in processes}) == 8
    assert all(process.pid >= FIRST_PID > 1 << 22 for process in processes)
    assert all(process.name.startswith("sim:") and process.user == "simulated" for process in processes)
    assert all(process.command.startswith("sim:") for process in processes)


async def test_processes_have_commands_containers_and_shares(server: SimulatedServer) -> None:
    await warm(server)
    gpus = (await server.poll(0.0)).gpus
    on = [gpu.processes[0] for gpu in gpus]
    assert on[0].command.startswith(
        "sim:vllm serve RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic --tensor-parallel-size 4"
    )
    assert "--data-parallel-size 2" in on[5].command
    assert [bool(process.container) for process in on] == [False] * 4 + [True] * 3 + [False]
    assert [bool(process.pod) for process in on] == [False] * 5 + [True] * 2 + [False]
    assert [process.sm_ratio for process in on[:7]] == [gpu.busy_ratio for gpu in gpus[:7]]
    assert isinstance(on[7].sm_ratio, Missing)


async def test_the_power_cap_is_counted_and_the_link_is_whole(server: SimulatedServer, clock: Clock) -> None:
    before = (await warm(server)).gpus
    for _ in range(300):
        clock.now_s += 1.0
        gpus = (await server.poll(0.0)).gpus
    cap = "sw_power_cap"
    grown = [after.throttle_s[cap] - first.throttle_s[cap] for after, first in zip(gpus, before, strict=True)]
    assert 0.0 < grown[6] < 100.0, "prompts of the second Llama 8B burst to the cap now and then"
    assert grown[7] == 0.0
    assert all(seconds == 0.0 for cause, seconds in gpus[0].throttle_s.items() if cause != "sw_power_cap")
    assert {(gpu.pcie_generation, gpu.pcie_generation_max, gpu.pcie_width) for gpu in gpus} == {(5.0, 5.0, 16.0)}
    assert {(gpu.ecc_corrected, gpu.ecc_uncorrected, gpu.remap_failed) for gpu in gpus} == {(0.0, 0.0, 0.0)}


async def test_readings_closer_than_the_counters_resolve_are_one(server: SimulatedServer, clock: Clock) -> None:
    await warm(server)
    clock.now_s += 1.0
    first = (await server.poll(0.0)).gpus[0]
    clock.now_s += 0.01
    second = (await server.poll(0.0)).gpus[0]
    assert (first.dram_active_ratio, first.energy_j) == (second.dram_active_ratio, second.energy_j)


async def test_a_long_pause_of_the_monitor_is_not_caught_up(server: SimulatedServer, clock: Clock) -> None:
    await warm(server)
    start_s = server_truth(server).at_s
    clock.now_s += 8 * 3600.0
    await server.poll(0.0)
    assert server_truth(server).at_s == start_s + LONGEST_GAP_S


async def test_close_during_the_warm_up(clock: Clock) -> None:
    server = SimulatedServer(clock=clock)
    await server.start()
    await asyncio.sleep(0)
    await asyncio.wait_for(server.close(), 60.0)
    async with httpx.AsyncClient(trust_env=False) as client:
        for endpoint in server.endpoints:
            with pytest.raises(httpx.ConnectError):
                await client.get(f"{endpoint.url}/health")


async def test_the_seed_decides(clock: Clock) -> None:
    totals = []
    for seed in (1, 1, 2):
        server = SimulatedServer(warmed(60.0), seed, clock)
        server.advance(30.0)
        totals.append(server_truth(server))
        await server.close()
    assert totals[0] == totals[1]
    assert totals[0] != totals[2]


def test_gpus_stay_plausible_for_five_minutes() -> None:
    server = SimulatedServer(warmed(60.0))
    hottest = most_w = 0.0
    for second in range(0, 300, 2):
        server.advance(float(second))
        for gpu in server.gpus:
            reading = gpu.reading(0.0)
            check_plausible(reading)
            hottest, most_w = max(hottest, reading.temperature_c), max(most_w, reading.power_w)
    asyncio.run(server.close())
    assert 55 <= hottest <= 80
    assert 500 <= most_w <= 700


def check_plausible(gpu: GpuReading) -> None:
    for ratio in (gpu.busy_ratio, gpu.sm_active_ratio, gpu.tensor_active_ratio, gpu.memory_busy_ratio):
        assert 0.0 <= ratio <= 1.0
    assert 0.0 <= gpu.dram_active_ratio <= 0.85
    assert gpu.sm_active_ratio <= gpu.busy_ratio + 0.01
    assert 60 <= gpu.power_w <= gpu.power_limit_w == 700.0
    assert 25 <= gpu.temperature_c <= 85
    assert gpu.vram_used_bytes + gpu.vram_reserved_bytes <= gpu.vram_total_bytes == 81559 * 2**20
    assert 1200e6 <= gpu.sm_clock_hz <= gpu.sm_clock_max_hz
