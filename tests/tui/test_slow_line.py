"""The real program on a slow line, in a terminal that takes nothing, and in one that sends what is no key."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator

import pyte
import pytest

from tests.tui.pty_process import PtyProcess, screen
from tests.tui.slow_line import BYTES_PER_S, Glass, SlowTerminal, paused
from tests.tui.test_process import HELP, assert_restored


def cells(glass: pyte.Screen) -> list[list[tuple[str, str, str, bool]]]:
    """What stands in each cell, and how; a blank has no colour of its own."""
    rows = []
    for y in range(glass.lines):
        row = [glass.buffer[y][x] for x in range(glass.columns)]
        rows.append([(c.data, c.bg, *((c.fg, c.bold) if c.data != " " else ("", False))) for c in row])
    return rows


def test_what_was_painted_bit_by_bit_is_what_a_fresh_paint_shows() -> None:
    """Ticks ten times as often as the line can take, pages, a zoom, another size; then all of it anew, undisturbed."""
    command = [sys.executable, "-m", "tests.tui.screen_driver", "busy", "0.1"]
    terminal = SlowTerminal(command, 100, 30, BYTES_PER_S)
    try:
        terminal.run(60.0, lambda: "quit" in terminal.glass.row(29))
        for keys in (b"?", b"\x1b", b"2", b"j", b"z", b"z", b"\t", b"3", b"z", b"z"):
            terminal.process.type(keys)
            terminal.run(0.3)
        terminal.process.type(b" ")
        terminal.run(60.0, lambda: paused(terminal.glass))
        until_still(terminal)
        assert paused(terminal.glass)
        before = cells(terminal.glass)
        fresh = Glass(100, 30)
        terminal.show_on(fresh)
        terminal.process.type(b"r")
        terminal.run(60.0, lambda: cells(fresh) == before)
        assert cells(fresh) == before
    finally:
        terminal.process.close()


def until_still(terminal: SlowTerminal) -> None:
    """Carry what is under way, until nothing comes for a second."""
    arrived = -1
    while terminal.arrived > arrived:
        arrived = terminal.arrived
        terminal.run(1.0)


@pytest.fixture
def painted() -> Iterator[PtyProcess]:
    """The screen at 200x60, painted, ticking five times a second."""
    process = screen(200, 60, "busy", "0.2")
    process.read(60.0, lambda written: b" engines " in written and b"vllm:8002" in written)
    yield process
    process.close()


def backlog(process: PtyProcess) -> int:
    """Bytes that come until nothing more does for a while."""
    at = len(process.written)
    process.read(0.15)
    return len(process.written) - at


UNREAD_S = 3.0
MOST_BACKLOG = 1 << 16
"""Bytes; without a bound it would be 110 kB by then."""


def test_a_terminal_that_takes_nothing_gets_no_backlog_and_goes_on_when_it_comes_back() -> None:
    process = screen(200, 60, "busy", "0.05")
    try:
        process.read(60.0, lambda written: b" engines " in written and b"vllm:8002" in written)
        time.sleep(UNREAD_S)
        assert backlog(process) < MOST_BACKLOG, "what changed meanwhile is painted once"
        at = len(process.written)
        process.type(b"?")
        process.read(60.0, lambda written: HELP in written[at:])
        assert HELP in process.written[at:]
    finally:
        process.close()


@pytest.mark.parametrize("how", [b"q", signal.SIGTERM])
def test_quitting_does_not_wait_for_a_terminal_that_takes_nothing(
    painted: PtyProcess, how: bytes | signal.Signals
) -> None:
    time.sleep(2.0)
    if isinstance(how, bytes):
        painted.type(how)
    else:
        os.kill(painted.pid, how)
    time.sleep(1.0)
    painted.read(60.0, lambda written: b"\x1b[?1049l" in written)
    assert painted.wait(60.0) == (0 if isinstance(how, bytes) else 128 + how)
    assert_restored(painted)


NO_KEYS = ((b"\x1b[0n",), (b"\x1b", b"[0", b"n"), (b"\xff\xfe\x80",))
"""Answers to questions that somebody else asked, whole and in pieces, and bytes that are no text."""


def test_what_is_no_key_does_no_harm(painted: PtyProcess) -> None:
    for sent in NO_KEYS:
        for piece in sent:
            painted.type(piece)
            time.sleep(0.003)
        painted.read(0.6)
        at = len(painted.written)
        painted.type(b"?")
        painted.read(60.0, lambda written, at=at: HELP in written[at:])  # type: ignore[misc]
        assert HELP in painted.written[at:]
        at = len(painted.written)
        painted.type(b"q")  # out of the help
        painted.read(60.0, lambda written, at=at: b" engines " in written[at:])  # type: ignore[misc]
        assert b" engines " in painted.written[at:]
    painted.type(b"q")
    painted.read(60.0, lambda written: b"\x1b[?1049l" in written)
    assert painted.wait(60.0) == 0
    assert_restored(painted)
