"""The screen in terminals of odd and changing sizes, in multiplexers, and after a stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyte
import pytest

from tests.end_to_end.test_terminals import DEMO, FAULTS, running
from tests.tui.pty_process import PtyProcess, screen
from tests.tui.slow_line import Glass


class Window:
    """A process in a terminal that can be resized, and shows what is written at each size."""

    def __init__(self, process: PtyProcess, width: int, height: int) -> None:
        self.process = process
        self.glass = Glass(max(1, width), max(1, height))
        self._stream = pyte.ByteStream(self.glass)
        self._fed = 0

    def run(self, seconds: float) -> None:
        """Show what is written meanwhile."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            written = self.process.read(min(0.02, seconds))
            self._stream.feed(written[self._fed :])
            self._fed = len(written)

    def until(self, shows: Callable[[], object]) -> None:
        """Run until the screen shows something; returns, too, once patience with a busy machine is over."""
        end_s = time.monotonic() + 60.0
        while not shows() and time.monotonic() < end_s:
            self.run(0.2)

    def resize(self, width: int, height: int) -> None:
        """Another size; what stood there stays, as in terminals."""
        self.process.resize(width, height)
        self.glass.resize(max(1, height), max(1, width))

    def lines(self) -> list[str]:
        """The screen without the clock and how old the reading is, which are not the same twice."""
        title, *rest = self.glass.display
        return [re.sub(r"(● |! no reading).*", "", title).rstrip(), *(line.rstrip() for line in rest)]


def fresh(width: int, height: int) -> list[str]:
    """What a new program shows at that size."""
    with running(width, height, "live") as process:
        window = Window(process, width, height)
        window.run(0.5)
        return window.lines()


def test_a_start_without_a_size_and_sizes_later() -> None:
    process = screen(0, 0, "live")
    try:
        window = Window(process, 80, 24)
        window.run(1.0)
        assert process.wait(0.05) is None
        for width, height in ((80, 24), (20, 3), (120, 40)):
            window.resize(width, height)
            window.until(lambda: any("gpu" in line.lower() for line in window.lines()))
            assert any("gpu" in line.lower() for line in window.lines())
        expected = fresh(120, 40)
        window.until(lambda: window.lines() == expected)
        assert window.lines() == expected
    finally:
        process.close()


def test_fifty_sizes_in_a_second_end_in_the_last_one() -> None:
    """No line half drawn, none left over from another size, and the work is over soon after."""
    with running(120, 40, "live") as process:
        window = Window(process, 120, 40)
        window.run(0.2)
        cpu_s = process.cpu_s()
        for step in range(50):
            window.resize(60 + 7 * step % 100, 15 + 5 * step % 40)
            window.run(0.02)
        window.resize(100, 30)
        expected = fresh(100, 30)
        window.until(lambda: window.lines() == expected)
        assert window.lines() == expected
        assert process.cpu_s() - cpu_s < 2.5
        cpu_s = process.cpu_s()
        window.run(1.0)
        assert process.cpu_s() - cpu_s < 0.3


class Multiplexer:
    """A command line of tmux or screen whose server is ended with the test."""

    def __init__(self, client: list[str], width: int, height: int, environ: dict[str, str]) -> None:
        self.process = PtyProcess(client, width, height, **environ)
        self.window = Window(self.process, width, height)

    def wait_for(self, *texts: str, seconds: float = 60.0) -> str:
        """Run until the screen shows all of it."""
        end_s = time.monotonic() + seconds
        text = ""
        while time.monotonic() < end_s:
            self.window.run(0.3)
            text = "\n".join(self.window.glass.display)
            if all(wanted in text for wanted in texts):
                return text
        raise AssertionError(f"{texts} never shown:\n{text}")


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Settings of nobody."""
    (tmp_path / "run").mkdir(mode=0o700)
    return {
        "XDG_CONFIG_HOME": str(tmp_path),
        "HOME": str(tmp_path),
        "SCREENDIR": str(tmp_path / "run"),
        "TMUX": "",
        "STY": "",
    }


def test_a_detached_tmux_session_is_right_when_attached_at_another_size(home: dict[str, str]) -> None:
    tmux = ["/usr/bin/env", "tmux", "-L", f"gpumon-attach-{os.getpid()}", "-f", "/dev/null"]
    first = Multiplexer([*tmux, "new-session", *DEMO], 80, 24, home)
    second = None
    try:
        first.wait_for("SIMULATED", "llama-8b", "q quit")
        first.process.type(b"\x02d")  # detach
        assert first.process.wait(60.0) == 0
        time.sleep(1.5)
        second = Multiplexer([*tmux, "attach-session"], 120, 41, home)
        end_s = time.monotonic() + 60.0
        rows = 0
        last = ""
        while (rows < 2 or not last.endswith("q quit")) and time.monotonic() < end_s:
            text = second.wait_for("SIMULATED", "llama-8b", "q quit", "history")
            rows = sum(bool(re.match(r"^.?\s*\d+ .*(W|%) ", line)) for line in text.splitlines())
            last = text.splitlines()[39].rstrip()
        assert rows >= 2, text
        assert last.endswith("q quit"), text
        second.process.type(b"q")
        assert second.process.wait(60.0) == 0
    finally:
        subprocess.run([*tmux, "kill-server"], env={**os.environ, **home}, capture_output=True, check=False)
        first.process.close()
        if second is not None:
            second.process.close()


@pytest.mark.parametrize("inside", ["screen", "screen-256color"])
def test_gnu_screen(home: dict[str, str], inside: str) -> None:
    """Its own TERM inside, 16 colours or 256, although COLORTERM comes from the terminal around it."""
    name = f"gpumon-{os.getpid()}"
    gnu = ["/usr/bin/env", "screen", "-U", "-T", inside, "-S", name]
    one = Multiplexer([*gnu, *DEMO], 100, 30, home)
    try:
        text = one.wait_for("SIMULATED", "llama-8b", "q quit")
        assert text.splitlines()[0].startswith(" gpumon ")
        one.process.type(b"?")
        one.wait_for("never quits")
        one.process.type(b"q")  # the help closes, and nothing else does
        one.wait_for("q quit")
        one.process.type(b" ")
        one.wait_for("PAUSED")
        one.process.type(b"qq")  # to what is live, and out
        assert one.process.wait(60.0) is not None
    finally:
        subprocess.run(
            ["/usr/bin/env", "screen", "-S", name, "-X", "quit"],
            env={**os.environ, **home},
            capture_output=True,
            check=False,
        )
        one.process.close()


def test_a_stop_of_seconds_is_made_up_for() -> None:
    """A laptop asleep: SIGSTOP, and the clock is right again after SIGCONT."""
    with running(80, 24, "busy") as process:
        os.kill(process.pid, signal.SIGSTOP)
        process.read(2.2)
        os.kill(process.pid, signal.SIGCONT)
        window = Window(process, 80, 24)
        window.until(lambda: late_s(window) in (0, 1))
        assert late_s(window) in (0, 1)


def late_s(window: Window) -> int | None:
    """Seconds by which the title's clock is late; None if none is shown."""
    clock = re.search(r"(\d\d):(\d\d):(\d\d)", window.glass.display[0])
    if clock is None:
        return None
    hours, minutes, seconds = map(int, clock.groups())
    now = time.localtime()
    return ((now.tm_hour - hours) * 3600 + (now.tm_min - minutes) * 60 + now.tm_sec - seconds) % 86400


@pytest.mark.parametrize(
    ("size", "environ"), [((100, 30), {"COLUMNS": "99999", "LINES": "99999"}), ((65535, 65535), {}), ((2000, 40), {})]
)
def test_sizes_that_nobody_has_are_cut(size: tuple[int, int], environ: dict[str, str]) -> None:
    with running(*size, FAULTS, **environ) as process:
        assert psutil.Process(process.pid).memory_info().rss < 200e6
        moves = {tuple(map(int, move)) for move in re.findall(rb"\x1b\[(\d+);(\d+)H", bytes(process.written))}
    assert max(line for line, _ in moves) <= min(size[1], 500)
    assert max(column for _, column in moves) <= min(size[0], 500)
