"""The installed command without a screen: the JSON contract on the fake driver and a replayed engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpumon.commands.watch import TOO_SHORT
from tests.fakes.engine import FakeEngine
from tests.fakes.http_server import wait_until
from tests.fakes.nvml.driver import FakeDriver
from tests.program import run_gpumon, started

GPUMON = str(Path(sys.executable).with_name("gpumon"))


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    made = FakeDriver(tmp_path)
    made.write(made.busy_h100s(8))
    return made


def lines(driver: FakeDriver, *arguments: str) -> list[dict[str, Any]]:
    env = driver.env(XDG_CONFIG_HOME=str(driver.script.parent))
    done = run_gpumon(*arguments, env=env)
    done.check_returncode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_an_engine_is_found_on_the_gpus_of_its_process(driver: FakeDriver):
    # This test's process serves the engine, and the fake driver says that it holds all eight GPUs.
    with FakeEngine("prometheus-api", start_s=20.0) as engine:
        last = lines(driver, "watch", "--json", "--count", "8", "--endpoint", engine.url)[-1]
    one = last["engines"][0]
    assert one["state"] == "ok"
    assert one["gpus"] == list(range(8))
    assert one["sources"]["gpus"] == "process"
    assert one["decode_tokens_per_s"] > 50
    assert one["mfu_ratio"] is None
    assert one["missing"]["mfu_ratio"] == "unknown_model"
    assert all(gpu["engines"] == [one["name"]] for gpu in last["gpus"])
    assert all(process["engine"] == one["name"] for gpu in last["gpus"] for process in gpu["processes"])
    assert last["gpus"][0]["bandwidth_source"] == "gpm"
    assert not last["simulated"]


def test_energy_and_hours_of_the_driver_have_the_prices_of_the_config(driver: FakeDriver):
    config = driver.script.parent / "gpumon" / "config.toml"
    config.parent.mkdir()
    config.write_text("[general]\ninterval_s = 0.25\n[prices]\ngpu_hour = 2.5\nkwh = 0.3\n", encoding="utf-8")
    last = lines(driver, "watch", "--json", "--count", "12")[-1]
    gpus = last["gpus"]
    assert all(gpu["energy_j"] > 0.0 for gpu in gpus)
    for gpu in gpus:
        assert gpu["cost_per_hour"] == 2.5
        assert gpu["energy_cost"] == pytest.approx(gpu["energy_j"] / 3.6e6 * 0.3)
        assert gpu["unused_cost"] == pytest.approx(gpu["unused_s"] / 3600.0 * 2.5)
    costs = last["costs"]
    assert costs["cost_per_hour"] == 20.0
    for total, field in (("energy_j", "energy_j"), ("energy_cost", "energy_cost"), ("unused_cost", "unused_cost")):
        assert costs[total] == pytest.approx(sum(gpu[field] for gpu in gpus)), field
    assert costs["missing"] == {
        "cost_per_million_output_tokens": "not_exposed",
        "cost_per_million_all_tokens": "not_exposed",
    }


def test_a_hanging_driver_does_not_silence_the_engines(driver: FakeDriver):
    driver.write("init hang\n" + driver.busy_h100s(8))
    with FakeEngine("prometheus-api", start_s=20.0) as engine:
        shown = lines(driver, "watch", "--json", "--count", "4", "--endpoint", engine.url)
    assert shown[-1]["engines"][0]["state"] == "ok"
    assert shown[-1]["gpus"] == []
    assert any("initialising" in fault["text"] for fault in shown[-1]["faults"])


def test_watch_can_be_interrupted_while_the_driver_hangs(driver: FakeDriver):
    driver.write("init hang\n" + driver.busy_h100s(8))
    running = started([GPUMON, "watch", "--json"], env=driver.env(), stdout=subprocess.DEVNULL)
    assert wait_until(lambda: psutil.Process(running.pid).children())  # the worker that opens the driver
    running.send_signal(signal.SIGINT)
    assert running.wait(60.0) == 0


def test_a_duration_counts_from_the_start_and_a_watch_that_read_nothing_says_so(driver: FakeDriver):
    driver.write("init hang\n" + driver.busy_h100s(8))
    done = run_gpumon("watch", "--json", "--duration", "2", env=driver.env())
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"gpumon: {TOO_SHORT}\n")


def test_the_demo_says_simulated_and_knows_its_models(tmp_path: Path):
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(
        [GPUMON, "snapshot", "--demo", "--json"], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    snapshot = json.loads(done.stdout)
    assert snapshot["simulated"] is True
    assert len(snapshot["gpus"]) == 8
    assert len(snapshot["engines"]) == 3
    assert all(0.0 < engine["mfu_ratio"] < 1.0 for engine in snapshot["engines"] if engine["decode_tokens_per_s"])
    assert all(0.0 < engine["mbu_ratio"] < 1.0 for engine in snapshot["engines"] if engine["decode_tokens_per_s"])
