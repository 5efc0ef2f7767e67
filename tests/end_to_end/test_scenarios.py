"""The installed command plays scenarios: real HTTP on loopback, real time, and the verdict at the end of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.program import started, user_environment
from tests.terminal import Terminal

PATIENCE_S = 60.0


def verdict_of(scenario: str, scope: str, code: str, home: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first snapshot of a scenario with a verdict, and the verdict; verdicts need not hold for long."""
    config = home / "config.toml"
    config.write_text("[triage]\nhold_s = 3.0\n", encoding="utf-8")
    options = ("--demo", "--scenario", scenario, "--json", "--config", str(config))
    command = [sys.executable, "-m", "gpumon", "watch", *options]
    with started(command, env=user_environment(home), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            end_s = time.monotonic() + PATIENCE_S
            for line in process.stdout:
                snapshot: dict[str, Any] = json.loads(line)
                for verdict in snapshot["verdicts"]:
                    if (verdict["scope"], verdict["code"]) == (scope, code):
                        return snapshot, verdict
                assert time.monotonic() < end_s, snapshot["verdicts"]
        finally:
            process.terminate()
    raise AssertionError(f"it ended with {process.returncode}")


@pytest.mark.parametrize(
    ("name", "scope", "code", "action"),
    [
        ("reset-required", "gpu 1", "hardware_fault", "drain"),
        ("kv-cache-full", "llama-8b", "kv_cache_full", "--gpu-memory-utilization"),
    ],
)
def test_a_scenario_comes_to_its_verdict(name: str, scope: str, code: str, action: str, tmp_path: Path) -> None:
    snapshot, verdict = verdict_of(name, scope, code, tmp_path)
    assert snapshot["simulated"] is True
    assert "(simulated load)" in snapshot["host"]["name"]
    assert any(action in each["text"] for each in verdict["actions"])


def shown_in(text: str, words: set[str]) -> set[str]:
    """Those of the words that a screen shows."""
    return {word for word in words if word in text}


def test_the_screen_plays_a_scenario(tmp_path: Path) -> None:
    env = user_environment(tmp_path, TERM="xterm-256color", LANG="C.UTF-8")
    command = [sys.executable, "-m", "gpumon", "demo", "--scenario", "reset-required"]
    with Terminal(command, env, loaded=True) as terminal:
        end_s = time.monotonic() + 60.0
        text = ""
        words = {"SIMULATED", "llama-8b", "drain"}
        while shown_in(text, words) != words and time.monotonic() < end_s:
            terminal.run(0.3)
            text = "\n".join(terminal.screen())
        assert shown_in(text, words) == words
