"""Alerts of the installed command: in JSON, to a program, and past one that hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.program import started

CONFIG = """
[general]
interval_s = 0.25

[[alert]]
name = "anything"
when = "gpus[0].vram_total_bytes > 1"
for_s = 0.5
title = true
command = ["sh", "-c", "cat >> {file}"]

[[alert]]
when = "gpus[1].vram_total_bytes > 1"
for_s = 0
command = ["{python}", "-c", "import time; time.sleep(60)"]

[[alert]]
when = "gpus.temperature_c > 1000"
for_s = 0
"""


def test_an_alert_is_in_the_json_and_its_program_is_told_once_while_another_hangs(tmp_path: Path) -> None:
    told = tmp_path / "told"
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(file=told, python=sys.executable))
    command = [sys.executable, "-m", "gpumon", "watch", "--demo", "--json", "--config", str(config)]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watch:
        assert watch.stdout is not None
        shown: list[list[str]] = []
        times: list[str] = []
        for line in watch.stdout:
            snapshot = json.loads(line)
            shown.append([alert["name"] for alert in snapshot["alerts"]])
            times.append(snapshot["time"])
            if ("anything" in shown[-1] and len(shown) > 16) or len(shown) > 200:
                break
        watch.terminate()
        watch.communicate(timeout=60)
    first = next(at for at, names in enumerate(shown) if "anything" in names)
    assert first >= 1, "it has to hold for half a second first"
    assert all("anything" in names for names in shown[first:])
    assert ["gpus[1].vram_total_bytes > 1"] in shown
    assert not any("gpus.temperature_c > 1000" in names for names in shown)
    assert len(times) == len(set(times))
    (line,) = told.read_text().splitlines()
    assert {key: json.loads(line)[key] for key in ("alert", "state", "scope", "simulated")} == {
        "alert": "anything",
        "state": "raised",
        "scope": "gpu 0",
        "simulated": True,
    }
