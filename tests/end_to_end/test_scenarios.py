"""The installed command plays scenarios: real HTTP on loopback, real time, and the verdict at the end of it."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.program import run_gpumon
from tests.terminal import Terminal


def last_snapshot(name: str, count: int, home: Path) -> dict[str, Any]:
    """The last of so many snapshots of a scenario, one a second; verdicts need not hold for long."""
    config = home / "config.toml"
    config.write_text("[triage]\nhold_s = 3.0\n", encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GPUMON_", "XDG_"))}
    options = ("--demo", "--scenario", name, "--json", "--count", str(count), "--config", str(config))
    done = run_gpumon("watch", *options, env={**kept, "HOME": str(home)}, timeout_s=300.0)
    done.check_returncode()
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("name", "count", "scope", "limit", "action"),
    [
        ("reset-required", 4, "gpu 1", "hardware_fault", "drain"),
        ("kv-cache-full", 20, "llama-8b", "kv_cache_full", "--gpu-memory-utilization"),
    ],
)
def test_a_scenario_comes_to_its_verdict(
    name: str, count: int, scope: str, limit: str, action: str, tmp_path: Path
) -> None:
    snapshot = last_snapshot(name, count, tmp_path)
    assert snapshot["simulated"] is True
    assert "(simulated load)" in snapshot["host"]["name"]
    said = {(verdict["scope"], verdict["code"]): verdict for verdict in snapshot["verdicts"]}
    assert (scope, limit) in said
    assert any(action in one["text"] for one in said[scope, limit]["actions"])


def shown_in(text: str, words: set[str]) -> set[str]:
    """Those of the words that a screen shows."""
    return {word for word in words if word in text}


def test_the_screen_plays_a_scenario(tmp_path: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GPUMON_", "XDG_"))}
    env = {**kept, "HOME": str(tmp_path), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    command = [sys.executable, "-m", "gpumon", "demo", "--scenario", "reset-required"]
    with Terminal(command, env, loaded=True) as terminal:
        end_s = time.monotonic() + 60.0
        text = ""
        words = {"SIMULATED", "llama-8b", "drain"}
        while shown_in(text, words) != words and time.monotonic() < end_s:
            terminal.run(0.3)
            text = "\n".join(terminal.screen())
        assert shown_in(text, words) == words
