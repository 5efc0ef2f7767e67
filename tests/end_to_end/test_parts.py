"""Engines of which one process ends or stands still: real process trees on the fake driver, seen by the program."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.end_to_end.test_departures import BUSY_PAGE, Host, Watch
from tests.fakes.http_server import wait_until
from tests.sources.discovery.servers import Server, Servers, free_port, servers

PAGES = {"/metrics": [200, BUSY_PAGE], "/version": [200, '{"version":"0.32.0"}']}


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Servers]:
    with servers(tmp_path / "engines") as made:
        yield made


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


def serve(host: Host, engines: Servers, *titles: str, **more: Any) -> Server:
    """A vLLM whose processes of these titles are on GPU 0, but for its core where it has workers.

    It names its GPU, by the first characters of the UUID, as CUDA takes them: no other test takes it for its own, once
    it has no core.
    """
    env = {"CUDA_VISIBLE_DEVICES": host.uuids[0][:12], **more.pop("env", {})}
    options = ("serve", "m", "--port", str(free_port()))
    server = engines.start("vllm", *options, pages=PAGES, workers=titles, env=env, **more)
    on_gpu = [pid for pid, title in zip(server.workers, titles, strict=True) if "Worker" in title] or server.workers
    host.processes[0] = on_gpu
    host.place()
    return server


def engine_of(shown: dict[str, Any], server: Server) -> dict[str, Any]:
    """This engine: other tests' servers may be found, too."""
    found: list[dict[str, Any]] = [engine for engine in shown["engines"] if engine["url"] == server.url]
    return found[0] if found else {"state": "", "gpus": []}


def verdict(shown: dict[str, Any], server: Server, cause: str) -> dict[str, Any]:
    """The verdict of this cause on this engine; empty where there is none."""
    found: list[dict[str, Any]] = [
        each for each in shown["verdicts"] if each["key"] == server.url and each["cause"] == cause
    ]
    return found[0] if found else {}


def seen_ok(seen: Watch, server: Server) -> None:
    """Wait until the engine answers, and its tree was looked through."""
    seen.until(lambda shown: engine_of(shown, server)["state"] == "ok")
    end_s = time.monotonic() + 8.0
    seen.until(lambda _: time.monotonic() > end_s)


def until_status_fails(host: Host) -> None:
    """Ask `gpumon status` until it fails: on a busy machine its seconds may be over before processes were looked at."""
    end_s = time.monotonic() + 60.0
    while (status := host.ask("status")).returncode != 1:
        assert "not judged yet" in status.stdout
        assert time.monotonic() < end_s, status.stdout


@pytest.mark.parametrize(
    ("titles", "victim", "role"),
    [
        (["VLLM::EngineCore"], 0, "engine core"),
        (["VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"], 2, "worker TP1"),
    ],
)
def test_a_part_that_is_gone_is_named_within_a_minute(
    host: Host, engines: Servers, watch: Callable[..., Watch], tmp_path: Path, titles: list[str], victim: int, role: str
) -> None:
    server = serve(host, engines, *titles, env={"VLLM_API_KEY": "hunter2"})
    seen = watch()
    seen_ok(seen, server)
    os.kill(server.workers[victim], signal.SIGKILL)  # a zombie from now on: nobody waits for it
    host.processes[0] = [pid for pid in host.processes[0] if pid != server.workers[victim]]
    host.place()
    killed_s = time.monotonic()
    shown = seen.until(lambda shown: verdict(shown, server, "part_gone"))
    assert 29.0 < time.monotonic() - killed_s < 60.0
    told = verdict(shown, server, "part_gone")
    assert told["level"] == "critical"
    assert told["text"].startswith(
        f"{role}, pid {server.workers[victim]}, is gone; API server, pid {server.pid}, lives"
    )
    (action,) = told["actions"]
    assert f"cd {Path.cwd()} && CUDA_VISIBLE_DEVICES={host.uuids[0][:12]} " in action["text"]
    assert " VLLM_API_KEY=*** " in action["text"]
    assert "vllm serve m --port" in action["text"]
    assert "hunter2" not in str(shown)
    assert engine_of(shown, server)["gpus"] == [0]
    assert "free for other work" not in str(shown)
    seen.end()
    until_status_fails(host)
    assert verdict(host.snapshot("--window", "3"), server, "part_gone")


def test_a_stopped_process_is_named_at_once_also_by_a_fresh_status(
    host: Host, engines: Servers, watch: Callable[..., Watch]
) -> None:
    server = serve(host, engines, "VLLM::EngineCore")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        until_status_fails(host)
        shown = host.snapshot("--window", "4")
        told = verdict(shown, server, "part_stopped")
        assert f"pid {server.pid}, is stopped (state T)" in told["text"]
        assert told["actions"][0]["text"].startswith(f"kill -CONT {server.pid}")
    finally:
        os.kill(server.pid, signal.SIGCONT)
    seen = watch()
    seen_ok(seen, server)
    os.kill(server.workers[0], signal.SIGSTOP)
    stopped_s = time.monotonic()
    seen.until(lambda shown: verdict(shown, server, "part_stopped"))
    assert time.monotonic() - stopped_s < 15.0
    os.kill(server.workers[0], signal.SIGCONT)
    seen.until(lambda shown: not verdict(shown, server, "part_stopped"), 20.0)
    seen.end()


def test_a_worker_that_is_replaced_and_a_helper_that_ends_are_no_loss(
    host: Host, engines: Servers, watch: Callable[..., Watch]
) -> None:
    titles = ["VLLM::EngineCore", "VLLM::Worker_TP0", TRACKER]
    server = serve(host, engines, *titles)
    seen = watch()
    seen_ok(seen, server)
    os.kill(server.workers[2], signal.SIGKILL)
    os.kill(server.workers[1], signal.SIGKILL)
    server.add_worker("VLLM::Worker_TP0")
    host.processes[0] = [server.workers[-1]]
    host.place()
    end_s = time.monotonic() + 42.0
    shown = seen.until(lambda shown: time.monotonic() > end_s or verdict(shown, server, "part_gone"), 90.0)
    assert not verdict(shown, server, "part_gone")
    seen.end()


def test_a_core_that_was_gone_before_gpumon_came_is_missed(host: Host, engines: Servers) -> None:
    server = serve(host, engines, "VLLM::EngineCore")
    os.kill(server.workers[0], signal.SIGKILL)
    host.processes[0] = []
    host.place()
    status = host.ask("status")
    assert status.returncode == 1, status.stdout
    told = verdict(host.snapshot("--window", "3"), server, "part_gone")
    assert told["text"].startswith(f"engine core is gone; API server, pid {server.pid}, lives")
    host.uuids[0] = "GPU-5f1c77d2-0b6e-4d1a-9a53-6c2e8f00a101"
    host.place()
    assert not verdict(host.snapshot("--window", "3"), server, "part_gone"), "it was given a GPU that is not here"


TRACKER = "python -B -c from multiprocessing.resource_tracker import main;main(31)"


def test_a_server_whose_core_is_on_another_host_lacks_nothing(host: Host, engines: Servers) -> None:
    begun = [
        engines.start("vllm", "serve", "m", "--port", str(free_port()), *more, pages=PAGES, workers=[TRACKER, *workers])
        for more, workers in (
            (["--data-parallel-size-local", "0"], []),
            (["--data-parallel-backend=ray"], []),
            ([], ["VLLM::EngineCore"]),
        )
    ]
    found = {engine["url"] for engine in host.snapshot("--window", "3")["engines"]}
    assert found.isdisjoint({server.url for server in begun}), "nothing of them is on a GPU of this host"


def test_a_server_that_drains_after_sigterm_is_neither_refused_nor_crashed(
    host: Host, engines: Servers, watch: Callable[..., Watch]
) -> None:
    server = serve(host, engines, "VLLM::EngineCore", drain_s=25.0)
    seen = watch()
    seen_ok(seen, server)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        ours = client.getsockname()
        # One that waits to be accepted is reset as the port closes.
        assert wait_until(lambda: ours in [each.raddr for each in psutil.Process(server.pid).net_connections("tcp")])
        os.kill(server.pid, signal.SIGTERM)
        shown = seen.until(lambda shown: engine_of(shown, server)["state"] == "draining")
        told = verdict(shown, server, "draining")
        assert (told["code"], told["level"]) == ("draining", "note")
        assert "1 connections are still open" in told["text"]
        shown = seen.until(lambda shown: engine_of(shown, server)["state"] != "draining")
    host.processes[0] = []
    host.place()
    shown = seen.until(lambda shown: verdict(shown, server, "stopped"))
    assert "after it had closed its port and drained" in verdict(shown, server, "stopped")["text"]
    seen.end()


def test_a_clean_restart_of_a_small_server_is_no_crash(
    host: Host, engines: Servers, watch: Callable[..., Watch]
) -> None:
    port = free_port()
    page = {"/metrics": [200, "llamacpp:requests_processing 1\nllamacpp:tokens_predicted_total 7\n"]}
    first = engines.start("llama-server", "--port", str(port), "--metrics", "-m", "m.gguf", pages=page)
    host.processes[0] = [first.pid]
    host.place()
    seen = watch()
    seen_ok(seen, first)
    first.kill()
    second = engines.start("llama-server", "--port", str(port), "--metrics", "-m", "m.gguf", pages=page)
    host.processes[0] = [second.pid]
    host.place()
    end_s = time.monotonic() + 20.0

    def is_over(shown: dict[str, Any]) -> bool:
        assert not verdict(shown, first, "crashed")
        return time.monotonic() > end_s

    shown = seen.until(is_over)
    assert engine_of(shown, second)["state"] == "ok"
    seen.end()


def test_a_restart_that_is_on_no_gpu_yet_is_no_crash(host: Host, engines: Servers, watch: Callable[..., Watch]) -> None:
    """As SGLang and vLLM do for a minute while they import: neither a port nor a GPU leads to the new process."""
    # A model of its own: an engine of another test that serves the same one would take its place.
    pages = {**PAGES, "/metrics": [200, BUSY_PAGE.replace('"m"', '"comes-back"')]}
    command = ("vllm", "serve", "comes-back", "--port", str(free_port()))
    first = engines.start(*command, pages=pages, workers=["VLLM::EngineCore"])
    host.processes[0] = first.workers
    host.place()
    seen = watch()
    seen_ok(seen, first)
    first.kill()
    second = engines.start(*command, pages=pages, late=True)
    host.processes[0] = []
    host.place()
    end_s = time.monotonic() + 20.0

    def is_over(shown: dict[str, Any]) -> bool:
        assert not verdict(shown, first, "crashed")
        return time.monotonic() > end_s

    shown = seen.until(is_over)
    assert engine_of(shown, first)["state"] == "starting"
    assert f"pid {second.pid}" in str(shown["verdicts"])
    assert engine_of(host.snapshot("--window", "2"), first)["state"] == "starting"
    second.kill()
    seen.until(lambda shown: engine_of(shown, first)["state"] == "down")
    seen.end()


def test_starts_that_end_while_they_load_are_told_as_one_loop(
    host: Host, engines: Servers, watch: Callable[..., Watch]
) -> None:
    port = free_port()
    seen = watch()
    seen.until(lambda shown: shown["gpus"])
    server = start_late(host, engines, port)
    until_told_of(seen, server)
    end_start(host, seen, server)
    server = start_late(host, engines, port)
    second = verdict(seen.until(lambda shown: verdict(shown, server, "start_failed")), server, "start_failed")
    assert second["level"] == "warn"
    assert second["text"].startswith("start 2 in ")
    assert "before its first token" in second["text"]
    end_start(host, seen, server)
    server = start_late(host, engines, port)
    told = verdict(seen.until(lambda shown: verdict(shown, server, "load_loop")), server, "load_loop")
    assert told["level"] == "critical"
    assert told["text"].startswith("crash loop while it loads: ")
    seen.end()


def test_starts_that_end_soon_after_they_serve_are_told_with_their_count(
    host: Host, engines: Servers, watch: Callable[..., Watch]
) -> None:
    seen = watch()
    seen.until(lambda shown: shown["gpus"])
    server = host.serve(0)
    port = server.port
    seen_ok(seen, server)
    end_start(host, seen, server, state="ok")
    server = start_late(host, engines, port)
    second = verdict(seen.until(lambda shown: verdict(shown, server, "start_failed")), server, "start_failed")
    assert second["level"] == "warn"
    assert second["text"].startswith("start 2 in ")
    assert "with requests running" in second["text"]
    end_start(host, seen, server)
    server = start_late(host, engines, port)
    shown = seen.until(lambda shown: "3 starts" in verdict(shown, server, "restart_loop").get("text", ""))
    told = verdict(shown, server, "restart_loop")
    assert told["level"] == "critical"
    assert told["text"].startswith("crash loop: each start ended after about ")
    seen.end()


def end_start(host: Host, seen: Watch, server: Server, state: str = "starting") -> None:
    """End a server that is in this state, and wait until that is seen."""
    server.kill()
    host.processes[0] = []
    host.place()
    seen.until(lambda shown: engine_of(shown, server)["state"] != state)


def start_late(host: Host, engines: Servers, port: int) -> Server:
    """A vLLM that loads for ever."""
    server = engines.start("vllm", "serve", "m", "--port", str(port), late=True, workers=["VLLM::EngineCore"])
    server.port = port
    host.processes[0] = server.workers
    host.place()
    return server


def until_told_of(seen: Watch, server: Server) -> None:
    """Wait until a verdict names this process."""
    seen.until(lambda shown: f"pid {server.pid}" in str(shown["verdicts"]))
