"""The screen in the terminals that people have: multiplexers, few colours or none, ASCII, Kitty's keys, odd sizes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyte
import pytest

from tests.tui.pty_process import PtyProcess, screen
from tests.tui.slow_line import Glass
from tests.tui.test_process import HELP, MODES_SET, PAINTED, assert_restored

GPUMON = str(Path(sys.executable).with_name("gpumon"))
DEMO = [GPUMON, "demo", "--scenario", "healthy-chat"]
"""One engine on two GPUs: half the work of the whole demo."""
SGR = re.compile(rb"\x1b\[([\d;]*)m")


def also(*values: object) -> list[object]:
    """Further cases, for `make properties`."""
    return [pytest.param(value, marks=pytest.mark.wide) for value in values]


def colours(written: bytes) -> set[int]:
    """All numbers in codes for colours and attributes."""
    return {int(number) for codes in SGR.findall(written) for number in codes.split(b";") if number}


@contextlib.contextmanager
def running(width: int, height: int, *arguments: str, **environ: str) -> Iterator[PtyProcess]:
    """The screen, painted."""
    process = screen(width, height, *arguments, **environ)
    try:
        process.read(60.0, lambda written: PAINTED in written and b"8002" in written)
        process.read(0.4)
        yield process
    finally:
        process.close()


FAULTS = "one_lost"
"""A scene with all levels: fine, warning, critical."""


def test_truecolor_where_the_terminal_says_so() -> None:
    with running(80, 24, FAULTS) as process:
        assert b"38;2;" in process.written
        assert b"38;5;" not in process.written


@pytest.mark.parametrize("terminal", ["screen-256color", *also("xterm-256color", "tmux-256color")])
def test_256_colours_without_colorterm(terminal: str) -> None:
    with running(80, 24, FAULTS, TERM=terminal, COLORTERM="") as process:
        assert b"38;5;" in process.written
        assert b"38;2;" not in process.written


@pytest.mark.parametrize("terminal", ["screen", "linux", *also("xterm")])
def test_16_colours(terminal: str) -> None:
    """Of the bright ones none: the Linux console shows them as blinking or not at all."""
    with running(80, 24, FAULTS, TERM=terminal, COLORTERM="") as process:
        used = colours(process.written)
        assert not used & {38, 48}
        assert not used & set(range(90, 108))
        assert used & set(range(30, 38))


@pytest.mark.parametrize(
    "environ",
    [{"TERM": "linux"}, {"LANG": "C"}, *also({"LC_ALL": "POSIX"}, {"LANG": "en_US.ISO-8859-1"})],
    ids=["linux", "C", "POSIX", "latin1"],
)
def test_ascii_where_there_is_no_unicode(environ: dict[str, str]) -> None:
    with running(120, 40, FAULTS, **environ) as process:
        process.type(b"?")
        process.read(60.0, lambda written: HELP in written)
        assert process.written.isascii()
        text = process.text()
        assert "gpumon" in text
        assert "#" in text or "=" in text


@pytest.mark.parametrize("terminal", ["xterm-kitty", "linux", *also("xterm-256color", "screen")])
def test_no_color_writes_no_colour(terminal: str) -> None:
    """Bold and reverse are what is left to mark levels with."""
    with running(80, 24, FAULTS, TERM=terminal, NO_COLOR="1") as process:
        assert max(colours(process.written)) < 10
        assert colours(process.written) & {1, 7}
        assert "LOST" in process.text()


def test_no_mouse_leaves_the_mouse_to_the_terminal(tmp_path: Path) -> None:
    process = PtyProcess(
        [GPUMON, "demo", "--scenario", "healthy-chat", "--no-mouse"], 80, 24, loaded=True, XDG_CONFIG_HOME=str(tmp_path)
    )
    try:
        process.read(60.0, lambda written: PAINTED in written)
        process.read(0.5)
        assert PAINTED in process.written
        modes = {int(mode) for mode, value in MODES_SET.findall(process.written) if value == b"h"}
        assert not modes & {9, 1000, 1001, 1002, 1003, 1005, 1006, 1015, 1016}
        process.type(b"q")
        assert process.wait(60.0) == 0
    finally:
        process.close()


def test_kittys_keys() -> None:
    """As a terminal sends them that was asked for all keys as codes with their text (`CSI > 25 u`)."""
    with running(80, 24, "live") as process:
        assert b"\x1b[>25u" in process.written

        def press(key: bytes, shows: str, gone: str = "\0") -> None:
            process.type(key)
            end_s = time.monotonic() + 60.0
            while time.monotonic() < end_s:
                process.read(0.1)
                text = process.text()
                if shows in text and gone not in text:
                    return
            raise AssertionError(f"{key!r}:\n{text}")

        press(b"\x1b[47;2;63u", "never quits")  # ?
        press(b"\x1b[27u", " engines ", "never quits")  # Esc
        press(b"\x1b[B", "▸ 1")  # down
        press(b"\x1b[1;1A", "▸ 0")  # up, as some send it
        press(b"\x1b[106;;106u", "▸ 1")  # j
        press(b"\x1b[32;;32u", "PAUSED")  # space
        press(b"\x1b[32;;32u", " engines ", "PAUSED")
        press(b"\x1b[13u", "Esc back")  # Enter
        press(b"\x1b[27u", " engines ", "Esc back")
        process.type(b"\x1b[99;5u")  # ctrl+c
        assert process.wait(60.0) == 0
        assert_restored(process)


def test_escape_at_any_time_after_another_key_needs_no_third_one() -> None:
    with running(120, 40, "live") as process:
        for wait_s in (0.05, 0.35, 0.5, 0.6):
            process.read(0.7)
            process.type(b"?")
            process.read(wait_s)
            before = len(process.written)
            process.type(b"\x1b")
            process.read(60.0, lambda written, before=before: b" engines " in written[before:])  # type: ignore[misc]
            assert b" engines " in process.written[before:], f"{wait_s} s after the key"


def test_q_as_kitty_sends_it_with_its_text() -> None:
    with running(80, 24, "live") as process:
        process.type(b"\x1b[113;;113u")
        assert process.wait(60.0) == 0


def test_ctrl_s_and_ctrl_q_do_not_hold_the_screen() -> None:
    with running(80, 24, "busy", "0.2") as process:
        process.type(b"\x13")
        before = len(process.written)
        process.read(1.5)
        assert len(process.written) > before + 200
        process.type(b"\x11")
        process.read(0.5)
        assert process.wait(0.1) is None
        process.type(b"q")
        assert process.wait(60.0) == 0
        assert_restored(process)


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
        window.run(1.5)
        assert process.wait(0.05) is None
        for width, height in ((80, 24), (20, 3), (120, 40)):
            window.resize(width, height)
            window.run(1.0)
            assert any("gpu" in line.lower() for line in window.lines())
        assert window.lines() == fresh(120, 40)
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
        window.run(1.5)
        assert process.cpu_s() - cpu_s < 2.5
        cpu_s = process.cpu_s()
        window.run(1.0)
        assert process.cpu_s() - cpu_s < 0.3
        assert window.lines() == fresh(100, 30)


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
        one.process.type(b"\x1b")
        one.wait_for(" engines ")
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


def test_a_stop_of_seconds_is_made_up_for(tmp_path: Path) -> None:
    """A laptop asleep: SIGSTOP, and the clock is right again after SIGCONT."""
    with running(80, 24, "busy") as process:
        os.kill(process.pid, signal.SIGSTOP)
        process.read(2.2)
        os.kill(process.pid, signal.SIGCONT)
        window = Window(process, 80, 24)
        window.run(2.0)
        clock = re.search(r"\d\d:\d\d:\d\d", window.glass.display[0])
        assert clock is not None
        hours, minutes, seconds = map(int, clock.group().split(":"))
        now = time.localtime()
        late_s = (now.tm_hour - hours) * 3600 + (now.tm_min - minutes) * 60 + now.tm_sec - seconds
        assert late_s % 86400 in (0, 1, 2)


@pytest.mark.parametrize(
    ("size", "environ"), [((100, 30), {"COLUMNS": "99999", "LINES": "99999"}), ((65535, 65535), {}), ((2000, 40), {})]
)
def test_sizes_that_nobody_has_are_cut(size: tuple[int, int], environ: dict[str, str]) -> None:
    with running(*size, FAULTS, **environ) as process:
        assert psutil.Process(process.pid).memory_info().rss < 200e6
        moves = {tuple(map(int, move)) for move in re.findall(rb"\x1b\[(\d+);(\d+)H", bytes(process.written))}
    assert max(line for line, _ in moves) <= min(size[1], 500)
    assert max(column for _, column in moves) <= min(size[0], 500)
