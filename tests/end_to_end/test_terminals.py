"""The screen in the terminals that people have: few colours or none, ASCII, Kitty's keys, Ctrl+S."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tui.pty_process import PtyProcess, screen
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
        for key in (b"\x13", b"\x11"):
            process.type(key)
            enough = len(process.written) + 200
            process.read(60.0, lambda written, enough=enough: len(written) > enough)  # type: ignore[misc]
            assert len(process.written) > enough
        assert process.wait(0.1) is None
        process.type(b"q")
        assert process.wait(60.0) == 0
        assert_restored(process)
