"""`q` in the installed command ends it at once and restores the terminal, whatever hangs meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.test_terminals import GPUMON
from tests.fakes.engine import FakeEngine
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.fakes.nvml.driver import FakeDriver
from tests.tui.pty_process import PtyProcess
from tests.tui.test_process import assert_restored

PATIENCE_S = 60.0
"""For a machine that is busy with other tests."""
HUNG_S = 300
"""The longest wait for an answer that may be set: whoever waits for it is not back within the patience."""
SIZE = 120, 40


class Gate:
    """Whether servers answer; a request that comes while it is shut waits until the test is over."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.waiting = 0

    def reply(self, path: str, reply: Reply) -> Reply:
        """The answer of an engine, once it may come."""
        if not self.open.is_set():
            self.waiting += 1
        self.open.wait()
        return reply

    def nothing(self, request: Request) -> Reply:
        """An empty answer, once it may come."""
        return self.reply(request.path, Reply())


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


def until(process: PtyProcess, holds: Callable[[str], object]) -> None:
    """Read what is painted until it holds of the screen's text."""
    process.read(PATIENCE_S, lambda _: bool(holds(process.text())))
    text = process.text()
    assert holds(text), text


def quits(process: PtyProcess) -> None:
    """`q` is pressed, and the program ends as if nothing was wrong."""
    process.type(b"q")
    assert process.wait(PATIENCE_S) == 0
    assert_restored(process)


def test_while_the_driver_and_all_engines_hang_and_the_recorder_runs(tmp_path: Path, gate: Gate) -> None:
    driver = FakeDriver(tmp_path)
    driver.write(driver.busy_h100s(2))
    with (
        FakeEngine("prometheus-api", start_s=20.0, change=gate.reply) as first,
        FakeEngine("vllm-poisson", start_s=20.0, change=gate.reply) as second,
    ):
        command = [GPUMON, "--endpoint", first.url, "--endpoint", second.url]
        process = PtyProcess(command, *SIZE, loaded=True, **driver.env(XDG_CONFIG_HOME=str(tmp_path)))
        try:
            until(process, lambda text: "tiny-lla" in text and "H100" in text)
            process.type(b"[")  # into what the recorder has, and on from there
            until(process, lambda text: "AGO" in text)
            gate.open.clear()
            driver.write(f"{driver.busy_h100s(2)}\ngpu 0 call nvmlDeviceGetPowerUsage hang\n")
            process.type(b" ")
            until(process, lambda text: "AGO" not in text and "STALE" in text and gate.waiting >= 2)
            quits(process)
            assert not gate.open.is_set()
        finally:
            process.close()


def test_while_the_prometheus_of_a_fleet_hangs(tmp_path: Path, gate: Gate) -> None:
    (tmp_path / "config.toml").write_text(f"[prometheus]\ntimeout_s = {HUNG_S}\n")
    gate.open.clear()
    with LoopbackServer(gate.nothing) as server:
        command = [GPUMON, "--prometheus", server.url, "--config", str(tmp_path / "config.toml")]
        process = PtyProcess(command, *SIZE, loaded=True, XDG_CONFIG_HOME=str(tmp_path))
        try:
            until(process, lambda text: "waiting for its first answer" in text and gate.waiting)
            quits(process)
            assert not gate.open.is_set()
        finally:
            process.close()
