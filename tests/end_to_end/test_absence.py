"""What an earlier run saw and this one does not: the installed command on the fake driver, with a real state folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.http_server import LoopbackServer, Reply
from tests.fakes.nvml.driver import FakeDriver
from tests.program import run_gpumon, started
from tests.sources.discovery.servers import Servers, free_port, servers

GPUMON = str(Path(sys.executable).with_name("gpumon"))
URGENT = ("critical", "warn")
PAGE = (
    'vllm:generation_tokens_total{engine="0",model_name="m"} 7\n'
    'vllm:num_requests_running{engine="0",model_name="m"} 5\n'
    "process_start_time_seconds 1700000000\n"
)


class Host:
    """A host of fake GPUs, and a user of it with a state folder."""

    def __init__(self, folder: Path) -> None:
        self.driver = FakeDriver(folder)
        self.env = self.driver.env(XDG_CONFIG_HOME=str(folder), XDG_STATE_HOME=str(folder / "state"))

    def snapshot(self, *options: str, prefix: tuple[str, ...] = (), **variables: str) -> dict[str, Any]:
        """A one-shot snapshot; `prefix` is a command that runs it."""
        command = [*prefix, GPUMON, "snapshot", "--json", "--window", "0", *options]
        env = {**self.env, **variables}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=90.0, check=True)
        shown: dict[str, Any] = json.loads(done.stdout)
        return shown

    def status(self, *options: str, **variables: str) -> int:
        """The exit code of `gpumon status`."""
        return run_gpumon("status", *options, env={**self.env, **variables}, timeout_s=90.0).returncode


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def states(shown: dict[str, Any]) -> list[str]:
    return [gpu["state"] for gpu in shown["gpus"]]


def urgent(shown: dict[str, Any]) -> list[str]:
    return [verdict["text"] for verdict in shown["verdicts"] if verdict["level"] in URGENT]


def note_of(shown: dict[str, Any]) -> str:
    (note,) = (verdict for verdict in shown["verdicts"] if verdict["code"] == "not_visible")
    assert (note["level"], note["scope"]) == ("note", "host")
    text: str = note["text"]
    return text


def test_a_job_with_one_gpu_of_four_has_lost_none(host: Host) -> None:
    host.driver.write("gpus 4\n")
    assert states(host.snapshot()) == ["ok"] * 4
    host.driver.write("gpus 1\n")
    job = {"SLURM_JOB_ID": "77", "CUDA_VISIBLE_DEVICES": "0"}
    shown = host.snapshot(**job)
    assert (states(shown), urgent(shown), shown["faults"]) == (["ok"], [], [])
    text = note_of(shown)
    assert text.startswith(
        "gpu 1-3 not visible here since the last start: CUDA_VISIBLE_DEVICES=0, SLURM_JOB_ID=77 (seen "
    )
    assert text.endswith("with 4 GPUs)")
    assert host.status(**job) == 0
    assert host.status() == 0
    host.driver.write("gpus 4\n")
    shown = host.snapshot()
    assert (states(shown), [verdict["code"] for verdict in shown["verdicts"]]) == (["ok"] * 4, [])


def test_sixty_four_gpus_then_two_are_one_note(host: Host) -> None:
    host.driver.write("gpus 64\n")
    host.snapshot()
    host.driver.write("gpus 2\n")
    shown = host.snapshot()
    assert (len(shown["gpus"]), urgent(shown), len(shown["verdicts"])) == (2, [], 1)
    assert note_of(shown).startswith("gpu 2-63 not visible here")
    assert host.status() == 0


def test_a_container_that_is_started_anew_on_another_gpu_has_lost_none(host: Host) -> None:
    host.driver.write("gpus 1\ngpu 0 uuid GPU-5f1c77d2-0b6e-4d1a-9a53-6c2e8f00a101\n")
    host.snapshot()
    host.driver.write("gpus 1\ngpu 0 uuid GPU-5f1c77d2-0b6e-4d1a-9a53-6c2e8f00a102\n")
    shown = host.snapshot()
    assert (states(shown), urgent(shown)) == (["ok"], [])
    assert note_of(shown).startswith("GPU-5f1c77d2-0b6e-4d1a-9a53-6c2e8f00a101 not visible here")


def test_another_user_knows_nothing_of_it(host: Host, tmp_path: Path) -> None:
    host.driver.write("gpus 4\n")
    host.snapshot()
    host.driver.write("gpus 1\n")
    assert host.snapshot(XDG_STATE_HOME=str(tmp_path / "other"))["verdicts"] == []


def exporter_page(host: str, gpus: int) -> str:
    lines = ["# TYPE DCGM_FI_DEV_GPU_UTIL gauge"]
    for gpu in range(gpus):
        device = f'gpu="{gpu}",UUID="GPU-{host}-{gpu}",device="nvidia{gpu}",modelName="NVIDIA H100"'
        labels = f'{device},Hostname="{host}",DCGM_FI_DRIVER_VERSION="580.65"'
        lines.append(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 40")
        lines.append(f"DCGM_FI_DEV_FB_USED{{{labels}}} 4000")
    return "\n".join([*lines, ""])


def test_one_exporter_then_another_and_the_same_with_fewer_gpus(host: Host) -> None:
    pages = {"a": exporter_page("node-a", 2), "b": exporter_page("node-b", 1)}

    def answer(request: object) -> Reply:
        return Reply(body=pages[request.path.split("/")[1]].encode())  # type: ignore[attr-defined]

    with LoopbackServer(answer) as server:

        def ask(name: str) -> dict[str, Any]:
            return host.snapshot("--no-nvml", "--no-discovery", "--dcgm", f"{server.url}/{name}")

        assert states(ask("a")) == ["ok", "ok"]
        shown = ask("b")
        assert (states(shown), shown["verdicts"]) == (["ok"], [])
        assert host.status("--no-nvml", "--no-discovery", "--dcgm", f"{server.url}/b") == 0
        pages["a"] = exporter_page("node-a", 1)
        shown = ask("a")
        assert (states(shown), urgent(shown)) == (["ok"], [])
        assert f"by dcgm-exporter {server.url}/a" in note_of(shown)


class Watch:
    """`gpumon watch --json` that goes on."""

    def __init__(self, env: dict[str, str]) -> None:
        command = [GPUMON, "watch", "--json", "--interval", "0.5", "--no-discovery"]
        self.process = started(command, env=env, stdout=subprocess.PIPE)

    def until(self, is_so: Callable[[dict[str, Any]], object], within_s: float = 60.0) -> dict[str, Any]:
        """The first snapshot of which it is so."""
        assert self.process.stdout is not None
        end_s = time.monotonic() + within_s
        for line in self.process.stdout:
            shown: dict[str, Any] = json.loads(line)
            if is_so(shown):
                return shown
            assert time.monotonic() < end_s, (shown["gpus"], shown["verdicts"], shown["faults"])
        raise AssertionError("it ended")


@contextmanager
def watching(host: Host) -> Iterator[Watch]:
    watch = Watch(host.env)
    try:
        yield watch
    finally:
        watch.process.send_signal(signal.SIGINT)
        watch.process.communicate(timeout=20)


@pytest.mark.parametrize("how", ["list", "code", "worker"])
def test_a_gpu_that_is_lost_within_a_run_is_critical(how: str, host: Host) -> None:
    host.driver.write("gpus 3\ngpu * process 1 70000\n")
    with watching(host) as watch:
        watch.until(lambda shown: states(shown) == ["ok"] * 3)
        script = "gpus 3\ngpu 2 fault lost\n" if how == "code" else "gpus 2\n"
        host.driver.write(script)
        if how == "worker":
            kill_workers(watch.process.pid)
        shown = watch.until(lambda shown: "lost" in states(shown))
        assert states(shown) == ["ok", "ok", "lost"]
        critical = [verdict["cause"] for verdict in shown["verdicts"] if verdict["level"] == "critical"]
        assert critical == ["lost"]


def kill_workers(pid: int) -> None:
    """Kill the processes that talk to the driver for a gpumon."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Servers]:
    with servers(tmp_path / "engines") as made:
        yield made


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_an_engine_of_another_namespace_is_not_called_crashed(host: Host, engines: Servers) -> None:
    """In a container with the home folder mounted no pid and no port of the host is there, and the host has both."""
    pages = {"/metrics": [200, PAGE], "/version": [200, '{"version":"0.32.0"}']}
    server = engines.start("vllm", "serve", "m", "--port", str(free_port()), pages=pages, workers=["VLLM::EngineCore"])
    host.driver.write(f"gpus 1\ngpu 0 process {server.workers[0]} 70000\n")
    end_s = time.monotonic() + 120.0
    # On a busy machine a look at the processes may take longer than a snapshot without a window waits for it.
    while [engine["state"] for engine in host.snapshot("--window", "3")["engines"]] != ["ok"]:
        assert time.monotonic() < end_s
    pids = ("unshare", "--pid", "--fork", "--mount-proc")
    networks = ("unshare", "--net")
    for prefix in (pids, networks, (*pids, "--net")):
        shown = host.snapshot(prefix=prefix)
        assert [engine["state"] for engine in shown["engines"] if engine["state"] == "down"] == []
        assert urgent(shown) == []
    assert [engine["state"] for engine in host.snapshot()["engines"]] == ["ok"]
    server.kill()
    host.driver.write("gpus 1\n")
    shown = host.snapshot()
    assert [engine["state"] for engine in shown["engines"]] == ["down"], "the host still knows it"
