"""Engines that end: real processes that are killed really, on the fake driver, seen by the installed command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.engine import FakeEngine
from tests.fakes.nvml.driver import FakeDriver
from tests.program import run_gpumon, started
from tests.sources.discovery.servers import Server, Servers, free_port, servers

GPUMON = str(Path(sys.executable).with_name("gpumon"))
IDLE_PAGE = (
    'vllm:generation_tokens_total{engine="0",model_name="m"} 7\n'
    'vllm:num_requests_running{engine="0",model_name="m"} 0\n'
    'vllm:num_requests_waiting{engine="0",model_name="m"} 0\n'
    "process_start_time_seconds 1700000000\n"
)
BUSY_PAGE = IDLE_PAGE.replace(
    'num_requests_running{engine="0",model_name="m"} 0', 'num_requests_running{engine="0",model_name="m"} 5'
)


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Servers]:
    with servers(tmp_path / "engines") as made:
        yield made


class Host:
    """A host of fake GPUs, on which engines run and gpumon looks at them."""

    def __init__(self, folder: Path, engines: Servers) -> None:
        self.driver = FakeDriver(folder)
        self._folder = folder
        self._engines = engines
        self.env = self.driver.env(XDG_CONFIG_HOME=str(folder), XDG_STATE_HOME=str(folder / "state"))
        self.processes: dict[int, list[int]] = {}
        self.uuids = [f"GPU-{uuid.uuid5(uuid.NAMESPACE_URL, f'{folder}/{gpu}')}" for gpu in range(2)]
        """Those of its GPUs alone: servers that were given them are no other test's."""
        self.place()

    def serve(self, gpu: int, page: str = BUSY_PAGE, port: int = 0) -> Server:
        """A vLLM on a GPU."""
        pages = {"/metrics": [200, page], "/version": [200, '{"version":"0.32.0"}']}
        server = self._engines.start(
            "vllm", "serve", "m", "--port", str(port or free_port()), pages=pages, workers=["VLLM::EngineCore"]
        )
        self.processes[gpu] = server.workers
        self.place()
        return server

    def kill(self, gpu: int, server: Server) -> None:
        """`kill -9`, and its VRAM is free."""
        server.kill()
        del self.processes[gpu]
        self.place()

    def place(self) -> None:
        """Tell the driver who is on which GPU."""
        lines = [f"gpu {gpu} uuid {name}" for gpu, name in enumerate(self.uuids)]
        lines += [f"gpu {gpu} process {pid} 70000" for gpu, pids in self.processes.items() for pid in pids]
        self.driver.write("\n".join(["gpus 2", *lines, ""]))

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run gpumon to its end."""
        return run_gpumon(*arguments, env=self.env, timeout_s=90.0)

    def snapshot(self, *arguments: str) -> dict[str, Any]:
        """What it shows."""
        done = self.ask("snapshot", "--json", "--window", "0", *arguments)
        assert done.returncode == 0, done.stderr
        shown: dict[str, Any] = json.loads(done.stdout)
        return shown

    def until_it_answers(self) -> None:
        """Look until the engine is found and answers: on a busy machine that takes more than one look."""
        end_s = time.monotonic() + 60.0
        while states(self.snapshot()) != ["ok"]:
            assert time.monotonic() < end_s

    @property
    def state_file(self) -> Path:
        """Where gpumon keeps the engines that it saw."""
        (file,) = (self._folder / "state" / "gpumon").iterdir()
        return file

    def know_it_longer_by(self, seconds: float) -> None:
        """Let the state file say that its engine was seen first, idle, so many seconds earlier."""
        state = json.loads(self.state_file.read_text())
        (engine,) = state["engines"]
        engine["begun_wall_s"] -= seconds
        self.state_file.write_text(json.dumps(state))


class Watch:
    """`gpumon watch --json` that goes on."""

    def __init__(self, host: Host, *arguments: str) -> None:
        self.process = started(
            [GPUMON, "watch", "--json", "--interval", "0.5", *arguments],
            env=host.env,
            stdout=subprocess.PIPE,
        )

    def until(self, true: Callable[[dict[str, Any]], object], within_s: float = 60.0) -> dict[str, Any]:
        """The first snapshot of which it is so."""
        assert self.process.stdout is not None
        end_s = time.monotonic() + within_s
        for line in self.process.stdout:
            shown: dict[str, Any] = json.loads(line)
            if true(shown):
                return shown
            assert time.monotonic() < end_s, (shown["engines"], shown["verdicts"], shown["faults"])
        raise AssertionError("it ended")

    def end(self) -> None:
        """As Ctrl+C does."""
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=20)


@pytest.fixture
def host(tmp_path: Path, engines: Servers) -> Host:
    return Host(tmp_path, engines)


@pytest.fixture
def watch(host: Host) -> Iterator[Callable[..., Watch]]:
    begun: list[Watch] = []

    def begin(*arguments: str) -> Watch:
        begun.append(Watch(host, *arguments))
        return begun[-1]

    yield begin
    for one in begun:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def states(shown: dict[str, Any]) -> list[str]:
    return [engine["state"] for engine in shown["engines"]]


def is_told_down(shown: dict[str, Any]) -> bool:
    """Whether a verdict says that an engine is down: it waits for a moment whether another takes its place."""
    return "down" in [verdict["code"] for verdict in shown["verdicts"]]


def verdict_of(shown: dict[str, Any], code: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [verdict for verdict in shown["verdicts"] if verdict["code"] == code]
    assert found, shown["verdicts"]
    return found[0]


def test_a_killed_engine_stays_as_down_until_it_serves_again(host: Host, watch: Callable[..., Watch]) -> None:
    server = host.serve(0)
    seen = watch()
    seen.until(lambda shown: states(shown) == ["ok"])
    host.kill(0, server)
    seen.until(lambda shown: states(shown) == ["down"])
    shown = seen.until(is_told_down)
    (engine,) = shown["engines"]
    (departure,) = engine["departure"]
    assert (departure["pid"], departure["planned"], departure["cause"]) == (server.pid, False, "")
    assert engine["model"] == "m"
    verdict = verdict_of(shown, "down")
    assert (verdict["cause"], verdict["level"]) == ("crashed", "critical")
    assert f"pid {server.pid}, cause unknown" in verdict["text"]
    assert verdict["actions"][0]["code"] == "read_last_log"
    assert "verdict_began" in [event["code"] for event in shown["events"]] or not shown["events"]

    seen.end()
    status = host.ask("status")
    assert status.returncode == 1
    assert "1 engine down" in status.stdout
    again = host.snapshot()
    assert again["engines"][0]["departure"] == [departure]

    host.serve(0, port=server.port)
    back = watch()
    back.until(lambda shown: states(shown) == ["ok"])
    back.end()
    assert host.ask("status").returncode == 0


def test_a_gpumon_that_starts_after_the_crash_knows_of_it(host: Host) -> None:
    server = host.serve(0)
    host.until_it_answers()
    host.kill(0, server)
    status = host.ask("status")
    assert status.returncode == 1
    assert "1 engine down" in status.stdout
    (engine,) = host.snapshot()["engines"]
    assert (engine["state"], engine["departure"][0]["pid"]) == ("down", server.pid)


def test_a_restart_while_no_gpumon_ran_is_no_end(host: Host, watch: Callable[..., Watch]) -> None:
    first = host.serve(0)
    host.until_it_answers()
    host.kill(0, first)
    second = host.serve(0, port=first.port)
    status = host.ask("status")
    assert "engine down" not in status.stdout
    assert status.returncode == 0
    host.until_it_answers()
    host.kill(0, second)
    third = host.serve(0, port=first.port)
    seen = watch()
    for _ in range(8):
        shown = seen.until(lambda _: True)
        assert "down" not in states(shown)
        assert "down" not in [verdict["code"] for verdict in shown["verdicts"]]
    seen.until(lambda shown: states(shown) == ["ok"])
    seen.end()
    host.kill(0, third)
    assert host.ask("status").returncode == 1


def test_an_endpoint_given_once_is_down_also_for_a_status_without_it(host: Host) -> None:
    server = host.serve(0)
    shown = host.snapshot("--endpoint", f"http://127.0.0.1:{server.port}")
    assert states(shown) == ["ok"]
    host.kill(0, server)
    status = host.ask("status")
    assert "1 engine down" in status.stdout
    assert status.returncode == 1


def test_one_of_two_replicas_that_dies_is_missed(host: Host, watch: Callable[..., Watch]) -> None:
    first = host.serve(0)
    host.serve(1)
    seen = watch()
    seen.until(lambda shown: states(shown) == ["ok", "ok"] and shown["replicas"])
    host.kill(0, first)
    shown = seen.until(is_told_down)
    (replicas,) = shown["replicas"]
    assert (len(replicas["engines"]), replicas["answering"]) == (2, 1)
    assert verdict_of(shown, "down")["level"] == "warn"
    seen.end()
    assert host.ask("status").returncode == 1


def test_an_idle_engine_that_is_terminated_was_stopped(host: Host, watch: Callable[..., Watch]) -> None:
    server = host.serve(0, IDLE_PAGE)
    host.until_it_answers()
    host.know_it_longer_by(60.0)
    seen = watch()
    seen.until(lambda shown: states(shown) == ["ok"])
    os.kill(server.pid, signal.SIGTERM)
    host.kill(0, server)
    shown = seen.until(lambda shown: states(shown) == ["down"])
    verdict = verdict_of(shown, "down")
    assert (verdict["cause"], verdict["level"]) == ("stopped", "warn")
    seen.end()
    status = host.ask("status")
    assert (status.returncode, "1 engine stopped" in status.stdout) == (0, True)


def test_a_configured_endpoint_that_dies_is_down_after_ten_seconds(host: Host, watch: Callable[..., Watch]) -> None:
    engine = FakeEngine("vllm-basic", start_s=20.0).start()
    url = engine.url
    seen = watch("--endpoint", url, "--no-discovery")
    seen.until(lambda shown: states(shown) == ["ok"])
    engine.close()
    died_s = time.monotonic()
    refused = seen.until(lambda shown: states(shown) == ["refused"])
    assert "down, or still loading" in refused["engines"][0]["fault"]
    assert "is the engine up" not in refused["engines"][0]["fault"]
    shown = seen.until(lambda shown: states(shown) == ["down"])
    assert time.monotonic() - died_s >= 9.0
    assert verdict_of(shown, "down")["cause"] == "crashed"
    seen.end()
    assert host.ask("status", "--endpoint", url, "--no-discovery").returncode == 1


def test_a_url_at_which_nothing_was_ever_seen_says_so(host: Host) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    shown = host.snapshot("--endpoint", url)
    assert states(shown) == ["refused"]
    assert "never seen serving" in shown["engines"][0]["fault"]
    verdict = verdict_of(shown, "down")
    assert (verdict["cause"], verdict["level"]) == ("never_served", "warn")
    assert host.ask("status", "--endpoint", url).returncode == 0


def test_a_state_file_that_can_not_be_used_costs_nothing(host: Host) -> None:
    server = host.serve(0)
    host.until_it_answers()
    file = host.state_file
    assert file.stat().st_mode & 0o777 == 0o600
    for damaged in (file.read_bytes()[:-40], b'{"version": 1, "host": "another", "boot": "x"}'):
        file.write_bytes(damaged)
        host.until_it_answers()
        (engine,) = json.loads(file.read_bytes())["engines"]
        assert engine["origin"]["pid"] == server.pid
    file.unlink()
    file.parent.rmdir()
    file.parent.write_text("not a folder")
    host.until_it_answers()
    host.kill(0, server)
    assert host.ask("status").returncode == 0


@pytest.mark.parametrize("configured", [False, True])
def test_an_engine_whose_process_left_its_gpu_is_not_told_to_set_gpus(
    host: Host, watch: Callable[..., Watch], configured: bool
) -> None:
    """So the driver lists an engine while the kernel tears it down: it is on no GPU, and its socket is still open."""
    server = host.serve(0)
    (worker,) = server.workers
    seen = watch(*(("--endpoint", server.url) if configured else ()))
    seen.until(lambda shown: states(shown) == ["ok"] and shown["engines"][0]["gpus"] == [0])
    del host.processes[0]
    host.place()
    told: list[str] = []
    seen.until(lambda shown: not shown["gpus"][0]["processes"])

    def is_unmapped(shown: dict[str, Any]) -> bool:
        told.extend(fault["text"] for fault in shown["faults"])
        return shown["engines"][0]["gpus"] == []

    shown = seen.until(is_unmapped)
    assert states(shown) == ["ok"]
    assert told, "why there is no MFU is a fault"
    for text in told:
        assert f"its process {worker} no longer runs on a GPU" in text
    seen.end()
