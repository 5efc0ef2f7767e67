"""Engines that are found: real processes on GPUs of the fake driver, real pages, how these are followed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gpumon.config.schema import Endpoint
from gpumon.efficiency.facts import options_of
from gpumon.readings.frame import SERVER_COMMAND, EndpointState, EngineKind, EngineReading, GpuReading
from gpumon.sources.attachment import EngineResolver
from gpumon.sources.discovery.source import EngineDiscovery
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.ownership import Ownership
from tests.fakes.http_server import LoopbackServer
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.discovery.servers import Servers, free_port, gpus
from tests.sources.nvml.rig import running
from tests.sources.polling import PAGE, until, vllm

OK, STARTING, REFUSED = EndpointState.OK, EndpointState.STARTING, EndpointState.REFUSED
PAGES: dict[str, Any] = {"/metrics": [200, PAGE.decode()], "/version": [200, '{"version":"0.32.0"}']}
CORE = ["VLLM::EngineCore"]


class Followed:
    """A discovery that is told the GPUs as the collector tells them, and what it has by now."""

    def __init__(self, configured: Sequence[str], **settings: Any) -> None:
        self.owner = Ownership()
        self.endpoints: dict[str, Endpoint] = {}
        self.polled = [EndpointSource(Endpoint(url=url), 0.1) for url in configured]
        quick = {"again_s": 0.1, "soonest_s": 0.05, "grace_s": 0.4, **settings}
        self.discovery = EngineDiscovery(
            0.1, configured=self.polled, endpoints=self.endpoints, owner=self.owner, **quick
        )
        self.gpus: tuple[GpuReading, ...] = ()
        self.readings: tuple[EngineReading, ...] = ()
        self.faults: list[str] = []

    def see(self, gpus: tuple[GpuReading, ...]) -> None:
        """A frame."""
        self.gpus = gpus
        self.discovery.see(gpus)

    async def look(self) -> tuple[EngineReading, ...]:
        """What a tick would get, with its GPUs."""
        found = await self.discovery.poll(time.monotonic())
        facts = EngineResolver(self.endpoints, (), self.owner)
        self.readings = tuple(facts.attach(reading, self.gpus) for reading in found.engines)
        self.faults = [fault.text for fault in found.faults]
        return self.readings

    async def until(self, true: Callable[[], object], within_s: float = 60.0) -> None:
        """Tick until it is so."""
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s:
            await self.look()
            if true():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"not so: {self.readings} {self.faults} {self.discovery.chains}")

    def states(self) -> list[EndpointState]:
        """Of all engines."""
        return [reading.state for reading in self.readings]


@asynccontextmanager
async def following(*configured: str, **settings: Any) -> AsyncIterator[Followed]:
    followed = Followed(configured, **settings)
    await followed.discovery.start()
    for each in followed.polled:
        await each.start()
    try:
        yield followed
    finally:
        await asyncio.gather(followed.discovery.close(), *(each.close() for each in followed.polled))


async def test_an_engine_over_two_gpus_is_found_through_the_driver(engines: Servers, fake_driver: FakeDriver) -> None:
    server = engines.start(
        "vllm", "serve", "some/model", "--port", str(free_port()), "-tp", "2", replay="vllm-basic",
        workers=["VLLM::Worker_TP0", "VLLM::Worker_TP1"],
    )  # fmt: skip
    lines = [f"gpu {at} process {pid} 70000" for at, pid in enumerate(server.workers)]
    async with running(fake_driver, "\n".join(["gpus 4", *lines, ""])) as rig, following() as followed:
        followed.see(await rig.gpus(0))
        await followed.until(lambda: followed.states() == [OK] and followed.readings[0].version)
    (reading,) = followed.readings
    assert (reading.url, reading.kind, reading.found_by) == (server.url, EngineKind.VLLM, "discovery")
    assert reading.gpus == tuple(gpu.uuid for gpu in followed.gpus[:2])
    assert (reading.tp, reading.model, reading.gpus_source) == (2, "tiny-llama", "process")
    assert followed.faults == []


async def test_the_command_line_of_the_server_is_told_without_its_secrets(engines: Servers) -> None:
    """GPU processes have titles of their own: `VLLM::EngineCore` says nothing of the options."""
    server = engines.start(
        "vllm", "serve", "some/model", "--port", str(free_port()), "--max-num-seqs", "64", "--api-key", "sk-secret-1",
        pages=PAGES, workers=CORE,
    )  # fmt: skip
    async with following() as followed:
        followed.see(gpus(server.workers))
        await followed.until(lambda: followed.states() == [OK] and SERVER_COMMAND in followed.readings[0].info)
    facts = options_of(followed.readings[0].info[SERVER_COMMAND])
    assert facts["option --max-num-seqs"] == "64"
    assert facts["option --api-key"] == "***"
    assert "sk-secret" not in str(followed.readings)


async def test_options_are_those_of_the_server_above_the_process_on_the_gpu(engines: Servers) -> None:
    """The process on the GPU has the title `VLLM::EngineCore`; its parent was given the options."""
    server = engines.start(
        "vllm", "serve", "some/model", "--port", str(free_port()), "--max-num-seqs", "16", "--enforce-eager",
        replay="vllm-basic", workers=CORE,
    )  # fmt: skip
    async with following() as followed:
        followed.see(gpus(server.workers))
        await followed.until(lambda: followed.states() == [OK] and SERVER_COMMAND in followed.readings[0].info)
    options = followed.readings[0].options
    assert (options.told("slots"), options.sources["slots"]) == (
        16.0,
        f"--max-num-seqs of its command line (pid {server.pid})",
    )
    assert options.is_on("eager")
    assert options.is_off("expert_parallel")
    # Nobody tells how many tokens a step may have: vLLM's own default is an assumption.
    assert options.told("step_tokens") is None
    assert options.is_assumed("step_tokens")


async def test_options_in_the_file_that_a_command_line_names_count_below_it(engines: Servers, tmp_path: Path) -> None:
    """vLLM's `--config`; without the right to read it, nothing is said to be off or a default of its own."""
    config = tmp_path / "vllm.yaml"
    limits = "max_num_seqs: 24  # of one rank\nenforce-eager: true\nmax-num-batched-tokens: '8k'\n"
    config.write_text(f"# limits\n{limits}port: 1\nlist:\n  - a: 1\n")
    server = engines.start(
        "vllm", "serve", "some/model", "--port", str(free_port()), "--config", str(config),
        "--max-num-batched-tokens", "4096",
        replay="vllm-basic", workers=CORE,
    )  # fmt: skip
    unread = engines.start(
        "vllm", "serve", "some/model", "--port", str(free_port()), "--config", str(tmp_path / "none.yaml"),
        replay="vllm-basic", workers=CORE,
    )  # fmt: skip
    async with following() as followed:
        followed.see(gpus([*server.workers, *unread.workers]))
        await followed.until(
            lambda: followed.states() == [OK, OK] and all(SERVER_COMMAND in one.info for one in followed.readings)
        )
    told = {reading.url: reading.options for reading in followed.readings}
    options = told[server.url]
    assert (options.told("slots"), options.told("step_tokens")) == (24.0, 4096.0)
    assert options.sources["slots"] == f"--max-num-seqs of vllm.yaml (pid {server.pid})"
    assert options.is_on("eager")
    assert options.is_off("expert_parallel")
    assert not told[unread.url].is_off("eager")
    assert told[unread.url].is_assumed("slots")


async def test_the_pages_of_a_server_with_a_prefix_are_asked_below_it(engines: Servers) -> None:
    slots = '[{"id": 0, "n_ctx": 512, "is_processing": false, "next_token": [{"n_decoded": 0}]}]'
    server = engines.start(
        "llama-server", "-m", "/m.gguf", "--port", str(free_port()), "--api-prefix", "/chat/",
        pages={"/chat/slots": [200, slots]},
    )  # fmt: skip
    async with following() as followed:
        followed.see(gpus([server.pid]))
        await followed.until(lambda: followed.states() == [OK])
        assert followed.readings[0].url == f"{server.url}/chat"
        assert followed.readings[0].gpus == ("GPU-0",)
    assert {path.split("/")[1] for path in server.asked} == {"chat"}


async def test_an_engine_appears_restarts_and_is_dropped(engines: Servers) -> None:
    port = str(free_port())
    async with following(grace_s=1.5) as followed:
        followed.see(gpus(()))
        await followed.until(lambda: followed.discovery.chains == ())
        first = engines.start("vllm", "serve", "m", "--port", port, pages=PAGES, workers=CORE, late=True)
        followed.see(gpus(first.workers))
        await followed.until(lambda: followed.states() == [STARTING])
        assert followed.readings[0].fault == (
            f"server {first.pid} (vllm serve m), port {port}: not open yet: it is loading its model"
        )
        assert followed.readings[0].gpus == ("GPU-0",)
        first.open()
        await followed.until(lambda: followed.states() == [OK])
        first.kill()
        followed.see(gpus(()))
        await followed.until(lambda: followed.states() == [REFUSED] and "has ended" in followed.readings[0].fault)
        second = engines.start("vllm", "serve", "m", "--port", port, pages=PAGES, workers=CORE)
        followed.see(gpus(second.workers))
        await followed.until(lambda: followed.states() == [OK] and followed.readings[0].gpus == ("GPU-0",))
        assert followed.owner.pids_of(second.url) == set(second.workers)
        second.kill()
        followed.see(gpus(()))
        await followed.until(lambda: followed.states() == [])
        assert followed.endpoints == {}


async def test_nothing_is_asked_of_who_takes_the_port_of_an_engine_that_ended(engines: Servers) -> None:
    port = str(free_port())
    async with following(grace_s=1.0) as followed:
        server = engines.start("vllm", "serve", "m", "--port", port, pages=PAGES, workers=CORE)
        followed.see(gpus(server.workers))
        await followed.until(lambda: followed.states() == [OK])
        server.kill()
        followed.see(gpus(()))
        await followed.until(lambda: "has ended" in followed.readings[0].fault)
        other = engines.start("shop", "--port", port, pages=PAGES)
        await followed.until(lambda: followed.states() == [])
        assert other.asked == []


async def test_a_key_that_is_needed_is_said_with_the_lines_to_add(engines: Servers) -> None:
    key = "sk-never-shown"
    server = engines.start(
        "llama-server", "--metrics", "-m", "m", "--api-key", key, "--port", str(free_port()), key=key
    )
    async with following() as followed:
        followed.see(gpus([server.pid]))
        await followed.until(lambda: followed.states() == [EndpointState.UNAUTHORIZED])
        fault = followed.readings[0].fault
        assert "api_key_env" in fault
        assert f'[[endpoint]] url = "{server.url}"' in fault
        assert key not in repr((followed.readings, followed.faults, followed.discovery.checks(followed.readings)))


async def test_nothing_is_asked_without_a_gpu_process(engines: Servers) -> None:
    loose = engines.start("vllm", "serve", "m", "--port", str(free_port()), pages=PAGES, workers=CORE)
    desk = engines.start("vllm", "serve", "m", "--port", str(free_port()), pages=PAGES, workers=CORE)
    trained = engines.start("train", "--port", str(free_port()), pages=PAGES)
    with LoopbackServer(vllm) as other:
        async with following() as followed:
            shown = (*gpus([trained.pid, os.getpid()]), *gpus(desk.workers, kind="graphics"))
            for _ in range(10):
                followed.see(shown)
                await followed.look()
                await asyncio.sleep(0.05)
            assert followed.readings == ()
        assert (loose.asked, desk.asked, trained.asked, other.connections) == ([], [], [], 0)


async def test_what_the_config_lists_is_not_polled_twice(engines: Servers) -> None:
    server = engines.start("vllm", "serve", "m", "--port", str(free_port()), pages=PAGES, workers=CORE)
    async with following(f"http://localhost:{server.port}/metrics") as followed:
        followed.see(gpus(server.workers))
        await followed.until(lambda: followed.discovery.chains and followed.discovery.chains[0].configured)
        assert await until(lambda: followed.polled[0].reading.state is OK)
        assert followed.readings == ()
        assert followed.owner.pids_of(followed.polled[0].reading.url) == set(server.workers)
