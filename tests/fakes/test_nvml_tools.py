"""Existing monitors on the fake driver: their numbers must be the script's, which keeps the fake honest."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyte

from tests.fakes.nvml.driver import FakeDriver

BIN = Path(sys.executable).parent

SERVER = """
driver 575.57.08
cuda 12090
gpus 5
profile h100-sxm
gpu 0 busy 91
gpu 0 used_mib 70123
gpu 0 power_w 612.4
gpu 0 temp_c 66
gpu 0 process {pid} 70000 compute 87
gpu 1 profile a100-sxm
gpu 1 busy 12
gpu 1 power_w 88
gpu 1 temp_c 41
gpu 1 process {pid} 2048
gpu 2 profile l4
gpu 2 busy 100
gpu 2 enc 35
gpu 2 dec 17
gpu 2 power_limit_w 60
gpu 3 profile rtx4090
gpu 3 fan 55
gpu 3 process {pid} 100 graphics
gpu 3 ecc 0
gpu 4 profile gb10
gpu 4 busy 33
gpu 4 process {pid} 30000
"""


def run(driver: FakeDriver, *command: str) -> str:
    done = subprocess.run(
        [BIN / command[0], *command[1:]], env=driver.env(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    return done.stdout


def gpustat(driver: FakeDriver) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run(driver, "gpustat", "--json"))
    return answer


def test_gpustat_reads_the_scripts_numbers_and_sees_a_live_process(fake_driver: FakeDriver) -> None:
    fake_driver.write(SERVER.format(pid=os.getpid()))
    answer = gpustat(fake_driver)
    assert answer["driver_version"] == "575.57.08"
    keys = (
        "name",
        "utilization.gpu",
        "memory.used",
        "memory.total",
        "power.draw",
        "enforced.power.limit",
        "temperature.gpu",
        "fan.speed",
    )
    assert [tuple(gpu[key] for key in keys) for gpu in answer["gpus"]] == [
        ("NVIDIA H100 80GB HBM3", 91, 70123, 81559, 612, 700, 66, None),
        ("NVIDIA A100-SXM4-80GB", 12, 2048, 81920, 88, 400, 41, None),
        ("NVIDIA L4", 100, 0, 23034, 16, 60, 30, None),
        ("NVIDIA GeForce RTX 4090", 0, 100, 24564, 22, 450, 30, 55),
        ("NVIDIA GB10", 33, None, None, 5, None, 30, None),
    ]
    assert [(gpu["utilization.enc"], gpu["utilization.dec"]) for gpu in answer["gpus"]][2] == (35, 17)

    processes = [gpu["processes"] for gpu in answer["gpus"]]
    seen = [[(p["pid"], p["gpu_memory_usage"]) for p in gpu] for gpu in processes]
    assert seen == [[(os.getpid(), mib)] if mib else [] for mib in (70000, 2048, 0, 100, 30000)]
    assert processes[0][0]["full_command"] == psutil.Process().cmdline()


def test_gpustat_with_16_gpus_and_a_lost_one(fake_driver: FakeDriver) -> None:
    lines = [f"gpu {n} busy {50 + n}\ngpu {n} used_mib {1000 * n}" for n in range(16)]
    fake_driver.write("\n".join(["gpus 16", "profile h100-sxm", *lines, "gpu 9 fault lost"]))
    gpus = gpustat(fake_driver)["gpus"]
    alive = [gpu for gpu in gpus if gpu["index"] != 9]
    assert len({gpu["uuid"] for gpu in alive}) == 15
    assert [gpu["utilization.gpu"] for gpu in alive] == [50 + n for n in range(16) if n != 9]
    assert [gpu["memory.used"] for gpu in alive] == [1000 * n for n in range(16) if n != 9]
    assert "lost" in gpus[9]["name"]


def test_nvitop_prints_the_scripts_numbers(fake_driver: FakeDriver) -> None:
    fake_driver.write(SERVER.format(pid=os.getpid()))
    text = run(fake_driver, "nvitop", "-1")
    assert "Driver Version: 575.57.08" in text
    assert "CUDA Driver Version: 12.9" in text
    rows = re.findall(r"│ *(N/A|\d+%) +(\d+)C +P(\d) +(\d+)W / (N/A|\d+W) │ +(\S+) / (\S+) │ +(\d+)%", text)
    assert rows == [
        ("N/A", "66", "0", "612", "700W", "68.48GiB", "79.65GiB", "91"),
        ("N/A", "41", "0", "88", "400W", "2048MiB", "80.00GiB", "12"),
        ("N/A", "30", "0", "16", "60W", "0B", "22.49GiB", "100"),
        ("55%", "30", "0", "22", "450W", "100.0MiB", "23.99GiB", "0"),
        ("N/A", "30", "0", "5", "N/A", *rows[4][5:7], "33"),  # nvitop shows the host's memory for GB10
    ]
    ecc = re.findall(r"│ +\d  (\S.*?) +On │ \S+ Off │ +(\S+) +(\S+) │", text)
    assert ecc == [
        ("H100 80GB HBM3", "Disabled", "0"),
        ("A100-SXM4-80GB", "Disabled", "0"),
        ("L4", "N/A", "0"),
        ("GeForce RTX 4090", "N/A", "N/A"),
        ("GB10", "N/A", "N/A"),
    ]
    processes = re.findall(rf"│ +(\d) +{os.getpid()} (\S+) +\S+ +(\S+iB) +(\d+) ", text)
    assert [row[:3] for row in processes] == [
        ("0", "C", "68.36GiB"),
        ("1", "C", "2048MiB"),
        ("3", "G", "100.0MiB"),
        ("4", "C", "29.30GiB"),
    ]
    assert processes[0][3] == "87"


def test_nvitop_prints_mig_slices(fake_driver: FakeDriver) -> None:
    fake_driver.write(f"gpus 1\nprofile h100-mig\ngpu 0/1 process {os.getpid()} 5000\n")
    text = run(fake_driver, "nvitop", "-1")
    assert re.search(r"Enabled +0 │", text)
    assert re.findall(r"│ (0:\d) +(\S+) @ GI/CI: (\S+) │ +(\S+) / (\S+) │ BAR1: +(\S+)", text) == [
        ("0:0", "3g.40gb", "1/0", "0B", "39.50GiB", "0B"),
        ("0:1", "3g.40gb", "2/0", "5000MiB", "39.50GiB", "0B"),
    ]


def watch(driver: FakeDriver, command: list[str], shows: Callable[[str], bool]) -> tuple[str, int | None]:
    """Run a screen program in a 160x50 terminal and press q once it shows what it should: its screen, its exit status.

    What it shows within a minute is its screen.
    """
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    screen = pyte.Screen(160, 50)
    stream = pyte.ByteStream(screen)
    text = ""
    env = driver.env(TERM="xterm-256color", LC_ALL="C.UTF-8")
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=env) as process:
        os.close(terminal)
        try:
            end = time.monotonic() + 60.0
            while not shows(text) and time.monotonic() < end and process.poll() is None:
                if select.select([controller], [], [], 0.1)[0]:
                    stream.feed(os.read(controller, 65536))
                    text = "\n".join(screen.display)
            alive = process.poll() is None
            os.write(controller, b"q")
            drain_until_exit(controller, process)
        finally:
            process.kill()
            os.close(controller)
    return text, process.returncode if alive else None


def drain_until_exit(controller: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        if select.select([controller], [], [], 0.05)[0]:
            try:
                os.read(controller, 65536)
            except OSError:  # EIO: the program closed the terminal
                return


def test_nvitops_screen_runs(fake_driver: FakeDriver) -> None:
    mixed = "gpu 1 profile h100-mig\ngpu 2 fault lost\ngpu 3 profile gb10\n"
    fake_driver.write(fake_driver.busy_h100s(4) + mixed)
    sampled = "nvmlDeviceGetUtilizationRates"

    def is_whole(screen: str) -> bool:
        named = all(text in screen for text in ("H100 80GB HBM3", "3g.40gb", "GPU is Lost"))
        return named and fake_driver.calls()[sampled] > 4

    screen, status = watch(fake_driver, [str(BIN / "nvitop"), "--monitor", "full"], is_whole)
    assert status == 0
    assert is_whole(screen), screen
    assert "Traceback" not in screen
