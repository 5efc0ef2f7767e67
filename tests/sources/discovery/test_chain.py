"""The chain of each process in words: the doctor's lines, and the installed command that finds an engine by itself."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpumon.config.options import Options
from gpumon.config.schema import Config, Endpoint, General
from gpumon.readings.check import Check, CheckState
from gpumon.sources.diagnosis import diagnose
from tests.fakes.nvml.driver import FakeDriver
from tests.program import run_gpumon
from tests.sources.discovery.servers import Servers, free_port
from tests.sources.discovery.test_following import CORE, PAGES

OK, WARN, FAIL, OFF = CheckState.OK, CheckState.WARN, CheckState.FAIL, CheckState.OFF


@pytest.fixture
def driver(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    for name, value in fake_driver.env().items():
        monkeypatch.setenv(name, value)
    return fake_driver


def script(*pids_of: Sequence[int]) -> str:
    """GPUs with these processes."""
    lines = [f"gpu {at} process {pid} 7000" for at, pids in enumerate(pids_of) for pid in pids]
    return "\n".join([f"gpus {len(pids_of)}", *lines, ""])


async def chains(**settings: Any) -> dict[str, Check]:
    """The doctor's lines about processes, by their pid."""
    checks = await diagnose(Config(general=General(interval_s=0.25), **settings), Options())
    assert all(check.text.isprintable() for check in checks)
    return {check.text.split()[1]: check for check in checks if check.area == "process"}


async def test_each_process_has_its_chain(driver: FakeDriver, engines: Servers) -> None:
    good = engines.start(
        "vllm", "serve", "Qwen/Qwen3-8B", "--port", str(free_port()), "--api-key", "sk-secret", pages=PAGES,
        workers=["VLLM::Worker_TP0", "VLLM::Worker_TP1"],
    )  # fmt: skip
    off = engines.start("-m sglang.launch_server", "--model-path", "m", "--port", str(free_port()))
    late = engines.start("vllm", "serve", "x", "--port", str(free_port()), workers=CORE, late=True)
    training = engines.start("train")
    driver.write(script([good.workers[0], off.pid], [good.workers[1], late.workers[0]], [training.pid, 4_000_000]))
    found = await chains()
    words = f"server {good.pid} (vllm serve Qwen/Qwen3-8B) -> port {good.port} -> {good.url}/metrics answers"
    answer = f"see engine vllm:{good.port}"
    assert found[str(good.workers[0])] == Check(
        "process", "gpu 0", OK, f"pid {good.workers[0]} VLLM::Worker_TP0 -> {words}: {answer}"
    )
    assert found[str(good.workers[1])].name == "gpu 1"
    assert (found[str(off.pid)].state, "metrics off: see engine sglang:" in found[str(off.pid)].text) == (OK, True)
    assert "not open yet: see engine vllm:" in found[str(late.workers[0])].text
    assert (found[str(training.pid)].state, "no serving engine" in found[str(training.pid)].text) == (OFF, True)
    assert "another PID namespace" in found["4000000"].text
    assert "sk-secret" not in repr(found)


async def test_memory_that_nobody_visible_holds_is_named(driver: FakeDriver) -> None:
    driver.write("gpus 2\ngpu 1 used_mib 70000\n")
    checks = await diagnose(Config(general=General(interval_s=0.25)), Options())
    (check,) = [check for check in checks if check.area == "process"]
    assert check.text.startswith(
        "GPU 1: more than 4 GiB of its memory are in use by processes that are not in /proc here"
    )
    listed = (Endpoint(url="http://192.0.2.9:8000", gpus=(1,)),)
    checks = await diagnose(Config(general=General(interval_s=0.25), endpoint=listed), Options())
    assert [check for check in checks if check.area == "process"] == []


def test_a_snapshot_shows_an_engine_that_nobody_configured(tmp_path: Path, engines: Servers) -> None:
    server = engines.start(
        "vllm", "serve", "m", "--port", str(free_port()), replay="prometheus-api", workers=["VLLM::EngineCore"]
    )
    driver = FakeDriver(tmp_path)
    driver.write(script([server.workers[0]], []))
    env = driver.env(XDG_CONFIG_HOME=str(tmp_path))

    def snapshot(*options: str) -> dict[str, Any]:
        done = run_gpumon("snapshot", "--json", *options, env=env)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    # On a busy machine a window may hold a single poll, of which there is no rate.
    end_s = time.monotonic() + 60.0
    (engine,) = snapshot()["engines"]
    while engine["decode_tokens_per_s"] is None and time.monotonic() < end_s:
        (engine,) = snapshot()["engines"]
    assert (engine["url"], engine["state"], engine["gpus"]) == (server.url, "ok", [0])
    assert engine["decode_tokens_per_s"] > 0
    at_once = snapshot("--window", "0")
    assert [each["state"] for each in at_once["engines"]] == ["ok"]
    assert at_once["gpus"][0]["processes"][0]["engine"] == engine["name"]
    assert snapshot("--no-discovery", "--window", "0")["engines"] == []
