"""Seven engines in trouble at once: a process tree each, on the fake driver, as the installed command sees them.

Verdicts that need half a minute or more of before, as of traffic that stops, of an offline batch, and of prompts that
fill the KV cache, come in virtual time (tests/accuracy/test_triage.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.fakes.nvml.driver import FakeDriver
from tests.program import started
from tests.sources.discovery.servers import Server, free_port, servers

GPUMON = str(Path(sys.executable).with_name("gpumon"))
WATCHED_S = 150.0
"""Seconds until the slowest of them must be named on a machine that is busy with other tests."""
CONFIG = "[general]\nengine_interval_s = 1\n[triage]\nhold_s = 4.0\nstalled_s = 8.0\n"
"""Shorter than by default: what holds for so long holds for longer, too."""


class Trouble(NamedTuple):
    """An engine of a scenario, and the verdict that has to come."""

    scenario: str
    from_s: float
    """Simulated time of its scenario at which gpumon begins to watch."""
    verdict: str
    """Code and cause."""
    levels: tuple[str, ...]
    first: str
    """Code of the first action."""
    stalls_s: float = -1.0
    """Simulated time from which on its GPU does nothing; below zero: it works."""
    gpus: int = 1


TROUBLES = (
    # Those that stall after some seconds are started last.
    Trouble("error-storm", 55.0, "failing/errors", ("critical",), "read_error_log"),
    Trouble("client-aborts", 55.0, "failing/aborts_midway", ("warn",), "check_answer_timeouts"),
    Trouble("rejections", 0.0, "failing/rejections", ("warn",), "more_instances"),
    Trouble("lora-slots", 0.0, "lora_slots_full/lora_slots", ("warn", "critical"), "raise_lora_slots"),
    Trouble("starved-rank", 20.0, "straggler/uneven_ranks", ("warn", "critical"), "balance_ranks", gpus=4),
    Trouble("weight-sync", 55.0, "hung/no_tokens", ("warn",), "wait_or_check", stalls_s=60.0),
    Trouble("kv-transfer-stuck", 55.0, "kv_transfer/kv_transfer_waits", ("warn",), "check_prefill_side", stalls_s=60.0),
)


class Said(NamedTuple):
    """A verdict of an engine at one moment."""

    after_s: float
    code: str
    cause: str
    level: str
    first: str


def said(folder: Path) -> dict[str, list[Said]]:
    """All verdicts of each engine, by the scenario that it plays."""
    (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
    driver = FakeDriver(folder)
    with servers(folder / "engines") as made:
        running: dict[str, Server] = {}
        for trouble in TROUBLES:
            play = {"scenario": trouble.scenario, "from_s": trouble.from_s, "model": f"test/{trouble.scenario}"}
            running[trouble.scenario] = made.start(
                *("vllm", "serve", f"test/{trouble.scenario}", "--port", str(free_port())),
                play=play,
                workers=["VLLM::EngineCore"] * trouble.gpus,
            )
        driver.write(_driver_script(running))
        return _watched(driver, folder, running)


def _driver_script(running: dict[str, Server]) -> str:
    """A GPU for each worker: at work, or until its engine makes no more steps."""
    workers = [(trouble, pid) for trouble in TROUBLES for pid in running[trouble.scenario].workers]
    lines = [f"gpus {len(workers)}", "profile h100-sxm"]
    for gpu, (trouble, pid) in enumerate(workers):
        stalls_s = time.time() + trouble.stalls_s - trouble.from_s
        for key, value in {"busy": 90, "sm": 60, "tensor": 20, "dram": 45, "power_w": 420}.items():
            idle = 90 if key == "power_w" else 0
            figure = f"ramp:{value}:{idle}:1:{stalls_s:.0f}" if trouble.stalls_s >= 0.0 else str(value)
            lines.append(f"gpu {gpu} {key} {figure}")
        lines.append(f"gpu {gpu} process {pid} 60000")
    return "\n".join([*lines, ""])


def _watched(driver: FakeDriver, folder: Path, running: dict[str, Server]) -> dict[str, list[Said]]:
    """What `gpumon watch --json` says until each verdict stands as it should, or the time is over."""
    env = driver.env(XDG_STATE_HOME=str(folder / "state"), XDG_CONFIG_HOME=str(folder))
    command = [GPUMON, "watch", "--json", "--config", str(folder / "config.toml")]
    seen: dict[str, list[Said]] = {trouble.scenario: [] for trouble in TROUBLES}
    by_port = {server.port: name for name, server in running.items()}
    begun_s = time.monotonic()
    with started(command, env=env, stdout=subprocess.PIPE) as gpumon:
        assert gpumon.stdout is not None
        for line in gpumon.stdout:
            after_s = time.monotonic() - begun_s
            _note(json.loads(line), by_port, after_s, seen)
            if after_s > WATCHED_S or not any(wrong(trouble, seen) for trouble in TROUBLES):
                break
        gpumon.terminate()
    return seen


def _note(shown: dict[str, Any], by_port: dict[int, str], after_s: float, seen: dict[str, list[Said]]) -> None:
    scenarios = {engine["name"]: by_port.get(int(engine["url"].rpartition(":")[2])) for engine in shown["engines"]}
    for verdict in shown["verdicts"]:
        name = scenarios.get(verdict["scope"])
        if name is not None:
            first = verdict["actions"][0]["code"] if verdict["actions"] else ""
            seen[name].append(Said(after_s, verdict["code"], verdict["cause"], verdict["level"], first))


def named(trouble: Trouble, seen: dict[str, list[Said]]) -> list[Said]:
    """When and how its verdict stood."""
    code, _, cause = trouble.verdict.partition("/")
    return [one for one in seen[trouble.scenario] if (one.code, one.cause) == (code, cause)]


def wrong(trouble: Trouble, seen: dict[str, list[Said]]) -> str:
    """What an expert would object to; empty: nothing."""
    all_said = seen[trouble.scenario]
    found = named(trouble, seen)
    if not found:
        return f"never named: {sorted({one._replace(after_s=0.0) for one in all_said})}"
    last = found[-1]
    if last.level not in trouble.levels or last.first != trouble.first:
        return f"named otherwise: {last}"
    if any(one.code == "healthy" and found[0].after_s < one.after_s <= last.after_s for one in all_said):
        return "healthy beside it"
    if any(one.first == "save_stacks_and_restart" for one in all_said):
        return "a restart would end the requests that run"
    return ""


def test_engines_in_trouble_are_named_with_what_to_do(tmp_path: Path) -> None:
    """All at once: each needs its time, and none costs much."""
    seen = said(tmp_path)
    objections = {trouble.scenario: wrong(trouble, seen) for trouble in TROUBLES}
    assert {name: text for name, text in objections.items() if text} == {}
