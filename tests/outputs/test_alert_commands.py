"""Commands of alerts: real programs that read one line of JSON, and those that are slow, fail or are not there."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import psutil

from gpumon.outputs.alert_commands import MOST_WAITING_COMMANDS, AlertCommands
from gpumon.readings.snapshot import RaisedAlert
from gpumon.triage.alerts import AlertChange, AlertRule, parse
from tests.each_row import each_row
from tests.tui import scenes

SCENE = scenes.snapshot()
ALERT = RaisedAlert(
    *("full", "vllm:8000", "kv_usage_ratio 0.97 > 0.95", "2026-01-02T14:00:00Z", 0.97),
    level="warn",
    action="more instances",
)


def change(*command: str, raised: bool = True) -> AlertChange:
    rule = AlertRule("full", parse("engines.kv_usage_ratio > 0.95"), 30.0, 60.0, command=command)
    return AlertChange(rule, ALERT, raised)


def test_a_command_gets_one_line_of_json_for_each_change(tmp_path: Path) -> None:
    file, commands = tmp_path / "lines", AlertCommands()
    for raised in (True, False):
        commands.call(change("sh", "-c", f"cat >> {file}", raised=raised), SCENE)
    commands.wait()
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["state"] for one in told] == ["raised", "cleared"]
    assert {key: told[0][key] for key in ("alert", "scope", "text", "value", "since", "host", "level", "action")} == {
        "alert": "full",
        "scope": "vllm:8000",
        "text": "kv_usage_ratio 0.97 > 0.95",
        "value": 0.97,
        "since": "2026-01-02T14:00:00Z",
        "host": SCENE.host.name,
        "level": "warn",
        "action": "more instances",
    }
    assert commands.fault(SCENE.wall_s) is None


def test_an_alert_without_a_command_starts_nothing() -> None:
    commands = AlertCommands()
    commands.call(change(), SCENE)
    commands.wait()
    assert commands.fault(SCENE.wall_s) is None


@each_row(
    ("command", "said"),
    [
        (("false",), "false ended with exit code 1"),
        (("/nowhere/page",), "/nowhere/page cannot be run: "),
        (("sleep", "60"), "sleep took longer than 0.2 s and was killed"),
    ],
)
def test_a_command_that_fails_is_named_among_the_faults_for_a_while(command: tuple[str, ...], said: str) -> None:
    commands = AlertCommands(timeout_s=0.2 if command[0] == "sleep" else 10.0)
    commands.call(change(*command), SCENE)
    commands.wait()
    fault = commands.fault(SCENE.wall_s)
    assert fault is not None
    assert fault.text.startswith(said)
    assert commands.fault(SCENE.wall_s + 3600.0) is None


def test_what_a_killed_command_has_started_is_killed_too(tmp_path: Path) -> None:
    pids, commands = tmp_path / "pids", AlertCommands(timeout_s=1.0)
    commands.call(change("sh", "-c", f"sleep 600 & sleep 600 & echo $! $$ > {pids}; wait"), SCENE)
    commands.wait()
    end_s = time.monotonic() + 60.0
    while any(alive(int(pid)) for pid in pids.read_text().split()):
        assert time.monotonic() < end_s
        time.sleep(0.02)
    fault = commands.fault(SCENE.wall_s)
    assert fault is not None
    assert "was killed" in fault.text


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_slow_command_holds_nobody_up_and_what_does_not_fit_is_dropped_with_a_word(tmp_path: Path) -> None:
    gate, commands = tmp_path / "gate", AlertCommands()
    slow = change(sys.executable, "-c", f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)")
    before_s = time.thread_time()
    for _ in range(MOST_WAITING_COMMANDS + 5):
        commands.call(slow, SCENE)
    assert time.thread_time() - before_s < 5.0
    fault = commands.fault(SCENE.wall_s)
    assert fault is not None
    assert fault.text.startswith("alerts come faster")
    gate.touch()
