"""The worked examples of docs/feeds.md, taken out of the document and run with the installed command."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.fakes.nvml.driver import FakeDriver
from tests.program import run_gpumon

DOCUMENT = (Path(__file__).parent.parent.parent / "docs" / "feeds.md").read_text(encoding="utf-8")
PEAK = 989.4e12
"""Dense bf16 FLOP/s of an H100 SXM (NVIDIA's data sheet)."""


def block(kind: str, below: str) -> str:
    """The first fenced block of this kind below a heading."""
    found = re.search(rf"^## {below}$.*?^```{kind}\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert found is not None, (kind, below)
    return found[1]


def watched(folder: Path, config: str, count: int, driver: FakeDriver | None = None) -> dict[str, Any]:
    """The last of so many lines, on a host with the GPUs of this driver; without one, NVML is left alone."""
    return all_watched(folder, config, count, driver)[-1]


def all_watched(folder: Path, config: str, count: int, driver: FakeDriver | None = None) -> list[dict[str, Any]]:
    """All of so many lines."""
    (folder / "config.toml").write_text(config, encoding="utf-8")
    arguments = ["watch", "--json", "--count", str(count), "--interval", "0.25", "--config", "config.toml"]
    env = {**os.environ, "XDG_CONFIG_HOME": str(folder), "HF_HOME": str(folder), **(driver.env() if driver else {})}
    if driver is None:
        arguments.append("--no-nvml")
    done = run_gpumon(*arguments, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_server_of_your_own(tmp_path: Path, fake_driver: FakeDriver):
    fake_driver.write("gpus 2\nprofile h100-sxm\n")
    page = block("text", "A server of your own")
    began_s = time.monotonic()

    def answer(request: Request) -> Reply:
        if request.path != "/metrics":
            return Reply(404, b"no")
        past_s = time.monotonic() - began_s
        steps = round(100 * past_s)
        tokens = 120000 + round(400 * past_s)
        now = page.replace("} 120000", f"}} {tokens}")
        for count in (19000, 20000):
            now = now.replace(f"}} {count}\n", f"}} {count + steps}\n")
        return Reply(200, now.replace("} 300\n", f"}} {300 + 0.015 * steps}\n").encode())

    with LoopbackServer(answer) as server:
        config = block("toml", "A server of your own").replace("http://127.0.0.1:9100", server.url)
        assert server.url in config
        lines = all_watched(tmp_path, config + "\n[discovery]\nenabled = false\n", 20, fake_driver)
    shown = lines[-1]
    (engine,) = shown["engines"]
    assert (engine["name"], engine["kind"], engine["state"]) == ("acme", "generic", "ok")
    rates = [line["engines"][0]["decode_tokens_per_s"] for line in lines]
    known = [rate for rate in rates if rate is not None]
    # The median: on a busy machine answers are late by seconds; another metric of the page grows by a quarter of that.
    assert statistics.median(known) == pytest.approx(400, rel=0.3)
    assert (engine["running"], engine["waiting"]) == (6, 1)
    assert engine["prefill_tokens_per_s"] == 0
    assert engine["itl_s"]["mean"] == pytest.approx(0.015, rel=0.01)
    # 2 x the multiplied parameters and 4 x heads x head_dim x layers x context, of two H100.
    flops = engine["decode_tokens_per_s"] * (2 * 7.5e9 + 4 * 32 * 128 * 32 * 1500)
    assert engine["mfu_ratio"] == pytest.approx(flops / (2 * PEAK), rel=0.02)
    assert 0 < engine["mbu_ratio"] < 1
    assert [gpu["engines"] for gpu in shown["gpus"]] == [["acme"], ["acme"]]
    assert engine["tokens_per_j"] > 0
    assert shown["faults"] == []


def test_a_training_run(tmp_path: Path):
    # The loop of the document, with steps of 5 s of which none is waited for.
    setting = (
        "import time as clock\n"
        "real, now_s = clock.time, clock.time() - 250.0\n"
        "clock.time = lambda: now_s\n"
        "batches, tokens_per_step = range(50), 2_000_000\n"
        "def train(batch):\n"
        "    global now_s\n"
        "    now_s += 5.0\n"
    )
    loop = block("python", "A training run")
    assert len([line for line in loop.splitlines() if "log" in line or "import" in line]) == 3
    subprocess.run([sys.executable, "-c", setting + loop], cwd=tmp_path, timeout=60, check=True)
    shown = watched(tmp_path, block("toml", "A training run") + "\n[discovery]\nenabled = false\n", 16)
    (engine,) = shown["engines"]
    assert (engine["name"], engine["phase"], engine["state"]) == ("pretrain", "training", "ok")
    assert engine["trained_tokens_per_s"] == pytest.approx(400_000, rel=1e-3)
    assert engine["mfu_ratio"] == pytest.approx(400_000 * 6 * 8.03e9 / (64 * PEAK), rel=1e-3)
    assert engine["precision"] == "bf16"
    assert engine["decode_tokens_per_s"] is None
    assert engine["missing"]["decode_tokens_per_s"] == "not_supported"
    assert shown["faults"] == []


def test_a_rate_that_the_trainer_says_itself_and_samples_over_cards(tmp_path: Path):
    log = tmp_path / "steps.jsonl"
    log.write_text(json.dumps({"train": {"samples/s": 128.0}, "loss": 2.5}) + "\n")
    config = """
[[feed]]
file = "steps.jsonl"
phase = "training"
flops_per_token = 25e9
tokens_per_sample = 1024
precision = "fp16"
gpu_type = "A100 SXM 80GB"
gpu_count = 8
[feed.quantities]
samples_per_s = "train.samples/s"
"""
    shown = watched(tmp_path, config, 8)
    (engine,) = shown["engines"]
    assert engine["name"] == "steps"
    assert engine["samples_per_s"] == pytest.approx(128)
    assert engine["trained_tokens_per_s"] == pytest.approx(128 * 1024)
    assert engine["mfu_ratio"] == pytest.approx(128 * 1024 * 25e9 / (8 * 312e12), rel=1e-3)
    assert engine["advances"]["samples_per_s"] == "sampled"


def test_tokens_per_second_by_the_trainers_own_gauge(tmp_path: Path):
    with LoopbackServer(lambda _: Reply(200, b'train_tps{rank="0"} 1000\ntrain_tps{rank="1"} 1500\n')) as server:
        config = f"""
[[feed]]
url = "{server.url}"
phase = "training"
params_b = 7
gpu_type = "H100 SXM 80GB"
gpu_count = 2
interval_s = 0.25
[feed.quantities]
trained_tokens_per_s = "train_tps"
"""
        shown = watched(tmp_path, config, 8)
    (engine,) = shown["engines"]
    assert engine["trained_tokens_per_s"] == pytest.approx(2500)
    assert engine["mfu_ratio"] == pytest.approx(2500 * 42e9 / (2 * PEAK), rel=1e-3)


def test_training_stands_beside_inference_and_the_doctor_reads_both(tmp_path: Path):
    (tmp_path / "steps.jsonl").write_text('{"tokens": 1}\n')
    config = """
[discovery]
enabled = false
[[endpoint]]
url = "http://127.0.0.1:9"
[[feed]]
file = "steps.jsonl"
phase = "training"
[feed.quantities]
trained_tokens = "tokens"
[[feed]]
file = "absent.jsonl"
phase = "training"
params_b = 7
[feed.quantities]
trained_tokens = "tokens"
"""
    shown = watched(tmp_path, config, 8)
    assert [(engine["kind"], engine["state"]) for engine in shown["engines"]] == [
        ("unknown", "refused"),
        ("generic", "ok"),
        ("generic", "starting"),
    ]
    assert shown["engines"][1]["missing"]["mfu_ratio"] == "unknown_model"
    environ = {**os.environ, "COLUMNS": "200"}
    done = run_gpumon("doctor", "--no-nvml", "--config", "config.toml", cwd=tmp_path, env=environ)
    said = " ".join(done.stdout.split())
    assert "is read as a feed (training)" in said
    assert "trained_tokens = tokens" in said
    assert "add to this [[feed]]: params_b" in said
    assert "has the run started, and is the path right?" in said
