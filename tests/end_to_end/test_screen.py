"""The installed command in a real terminal, on the fake driver and replayed engines, through the faults of one day."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.fakes.engine import FakeEngine
from tests.fakes.http_server import wait_until
from tests.fakes.nvml.driver import FakeDriver
from tests.terminal import Terminal

GPUMON = str(Path(sys.executable).with_name("gpumon"))


WIDE = pytest.mark.wide
"""Cases for `make properties`: test_process.py has all signals, test_terminal_sizes.py another size in tmux."""


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    made = FakeDriver(tmp_path)
    made.write(made.busy_h100s(8))
    return made


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    with FakeEngine("prometheus-api", start_s=20.0) as made:
        yield made


def environment(driver: FakeDriver) -> dict[str, str]:
    return driver.env(TERM="xterm-256color", LANG="C.UTF-8", XDG_CONFIG_HOME=str(driver.script.parent))


def screen(terminal: Terminal) -> str:
    return "\n".join(terminal.screen())


def wait(terminal: Terminal, shows: Callable[[str], object], seconds: float = 60.0) -> str:
    """Run until the screen shows it; the most that it waits is for a machine that is busy with other tests."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        terminal.run(0.2)
        if shows(text := screen(terminal)):
            return text
    raise AssertionError("never shown:\n" + screen(terminal))


def gpu_rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r"^.?\s*\d+ .*(W|%|–|LOST|STALE)", line)]


def powered(text: str) -> list[str]:
    """Rows of GPUs whose power is known."""
    return [row for row in gpu_rows(text) if "LOST" not in row and re.search(r"\d+W", row)]


def worker_of(terminal: Terminal) -> psutil.Process:
    for process in terminal.tree():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "gpumon.sources.driver" in process.cmdline():
                return process
    raise AssertionError("no worker of the driver")


def assert_all_end(processes: list[psutil.Process]) -> None:
    """None of them outlives the program."""
    _, alive = psutil.wait_procs(processes, timeout=60.0)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            assert process.status() == psutil.STATUS_ZOMBIE


def ended(terminal: Terminal, seconds: float = 60.0) -> None:
    """Run until the program is gone: whatever hangs in these tests hangs for ever, so any end is in time."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        terminal.run(0.02)
        if terminal.has_ended():
            return
    raise AssertionError(f"still there after {seconds} s:\n{screen(terminal)}")


def test_gpus_and_an_engine_are_shown_and_q_quits(driver: FakeDriver, engine: FakeEngine):
    with Terminal([GPUMON, "--endpoint", engine.url], environment(driver)) as terminal:
        text = wait(terminal, lambda text: "tiny-lla" in text and "612W" not in text and len(gpu_rows(text)) >= 8)
        assert "H100" in text
        assert "SIMULATED" not in text
        terminal.type(b"q")
        ended(terminal)


def test_a_stopped_worker_makes_rows_stale_and_nothing_else(driver: FakeDriver, engine: FakeEngine):
    # SIGSTOP stands in for a driver call that hangs: the worker neither answers nor dies by itself.
    with Terminal([GPUMON, "--endpoint", engine.url], environment(driver), loaded=True) as terminal:
        wait(terminal, lambda text: "tiny-lla" in text and re.search(r"\d+W", text))
        worker = worker_of(terminal)
        worker.suspend()
        wait(terminal, lambda text: text.count("STALE") >= 8)
        terminal.type(b"?")
        wait(terminal, lambda text: "quit" in text and text.count("STALE") < 8)
        terminal.type(b"\x1b")
        before = screen(terminal)
        wait(terminal, lambda text: "tiny-lla" in text and text != before)
        terminal.type(b"q")
        ended(terminal)
        assert_all_end([worker])


def test_one_lost_gpu_of_eight_costs_one_row(driver: FakeDriver):
    with Terminal([GPUMON], environment(driver), loaded=True) as terminal:
        wait(terminal, lambda text: len(re.findall(r"\d+W", text)) >= 8)
        driver.write(driver.busy_h100s(8) + "\ngpu 5 fault lost\n")
        text = wait(terminal, lambda text: "LOST" in text and len(powered(text)) >= 7)
        assert len([row for row in gpu_rows(text) if "LOST" in row]) == 1


def test_without_a_driver_the_screen_starts_and_says_why(tmp_path: Path, engine: FakeEngine):
    env = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "XDG_CONFIG_HOME": str(tmp_path)}
    env.pop("LD_LIBRARY_PATH", None)
    with Terminal([GPUMON, "--endpoint", engine.url], env, loaded=True) as terminal:
        wait(terminal, lambda text: "tiny-lla" in text and "libnvidia-ml" in text)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(number, marks=WIDE) for number in (signal.SIGHUP, signal.SIGINT))]
)
def test_a_signal_leaves_the_terminal_as_found(driver: FakeDriver, number: signal.Signals):
    with Terminal([GPUMON], environment(driver), loaded=True) as terminal:
        wait(terminal, lambda text: len(re.findall(r"\d+W", text)) >= 8)
        worker = worker_of(terminal)
        os.kill(terminal.pid, number)
        ended(terminal)
        written = b"".join(chunk.text for chunk in terminal.chunks)
        assert written.rfind(b"\x1b[?1049l") > written.rfind(b"\x1b[?1049h") > -1, "the alternate screen was left"
        assert written.rfind(b"\x1b[?1000l") > written.rfind(b"\x1b[?1000h"), "mouse reporting is off"
        assert written.rfind(b"\x1b[?25h") > written.rfind(b"\x1b[?25l"), "the cursor is back"
        assert_all_end([worker])


def test_a_closed_terminal_ends_it_and_its_worker(driver: FakeDriver):
    with Terminal([GPUMON], environment(driver), loaded=True) as terminal:
        wait(terminal, lambda text: len(re.findall(r"\d+W", text)) >= 8)
        processes = terminal.tree()
        terminal.hang_up()
        assert_all_end(processes)


def test_an_engine_that_dies_costs_its_own_row(driver: FakeDriver, engine: FakeEngine):
    with FakeEngine("prometheus-api", start_s=20.0) as other:
        endpoints = ["--endpoint", engine.url, "--endpoint", other.url]
        with Terminal([GPUMON, *endpoints], environment(driver), loaded=True) as terminal:
            wait(terminal, lambda text: text.count("tiny-lla") >= 2)
            other.close()
            wait(terminal, lambda text: "REFUSED" in text and "tiny-lla" in text and len(powered(text)) >= 8)


def test_resizing_in_a_storm_ends_in_a_sane_screen(driver: FakeDriver):
    with Terminal([GPUMON], environment(driver), 120, 40, loaded=True) as terminal:
        wait(terminal, lambda text: len(re.findall(r"\d+W", text)) >= 8)
        for columns, lines in ((20, 3), (200, 60), (1, 1), (80, 24), (61, 15), (300, 80), (80, 24)):
            terminal.resize(columns, lines)
            terminal.run(0.1)
        terminal.forget()
        terminal.type(b"r")
        text = wait(terminal, lambda text: len(re.findall(r"\d+W", text)) >= 8)
        assert len(gpu_rows(text)) >= 8


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), pytest.param(200, 60, marks=WIDE)])
def test_tmux_shows_the_demo(tmp_path: Path, columns: int, lines: int):
    tmux = ["tmux", "-L", f"gpumon-test-{os.getpid()}-{columns}", "-f", "/dev/null"]
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "LANG": "C.UTF-8"}
    command = f"{GPUMON} demo"
    subprocess.run([*tmux, "new-session", "-d", "-x", str(columns), "-y", str(lines), command], env=env, check=True)
    try:
        end_s = time.monotonic() + 60
        text, names = "", ("llama-70b", "qwen-moe", "llama-8b", "SIMULATED")
        while time.monotonic() < end_s and not (all(name in text for name in names) and len(gpu_rows(text)) >= 8):
            time.sleep(0.3)
            text = subprocess.run(
                [*tmux, "capture-pane", "-p"], env=env, capture_output=True, text=True, check=True
            ).stdout
        assert len(gpu_rows(text)) >= 8
        assert all(name in text for name in names)
        assert max(map(len, text.splitlines())) <= columns
        subprocess.run([*tmux, "send-keys", "q"], env=env, check=True)
        there = [*tmux, "has-session"]
        gone = wait_until(lambda: subprocess.run(there, env=env, capture_output=True, check=False).returncode)
        assert gone, "q ended the program"
    finally:
        subprocess.run([*tmux, "kill-server"], env=env, capture_output=True, check=False)
