"""The real program in a real terminal: what it leaves behind however it ends, and what it writes meanwhile."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest

from tests.each_row import each_row
from tests.tui.pty_process import PtyProcess, screen

PAINTED = b" engines "
HELP = b"never quits"  # of the help page
RESTORED = (
    b"\x1b[?1049l",  # back from the alternate screen
    b"\x1b[?25h",  # cursor
    b"\x1b[<u",  # Kitty keys
    b"\x1b[?1000l",  # mouse
    b"\x1b[?1006l",
    b"\x1b[?2004l",  # bracketed paste
    b"\x1b[?1004l",  # focus events
    b"\x1b[?7h",  # line wrap
)
MODES_SET = re.compile(rb"\x1b\[\?(\d+)([hl])")


@pytest.fixture
def program() -> Iterator[PtyProcess]:
    """The screen at 80x24, painted, on a busy server."""
    process = screen(80, 24, "busy")
    process.read(60.0, lambda written: PAINTED in written and b"vllm:8002" in written)
    yield process
    process.close()


def assert_restored(process: PtyProcess, since: int = 0) -> None:
    """Every mode that was switched on is off again, in the right order, and the line settings are what they were."""
    written = process.written[since:]
    for sequence in RESTORED:
        assert sequence in written
    state = dict(MODES_SET.findall(process.written))
    wanted = {b"25": b"h", b"7": b"h"}
    assert {mode: value for mode, value in state.items() if value != wanted.get(mode, b"l")} == {}
    assert written.rindex(b"\x1b[<u") < written.rindex(b"\x1b[?1049l")
    assert process.modes_now() == process.modes


NO_END = {
    *(signal.SIGKILL, signal.SIGSTOP),  # nobody can handle them
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE),  # from the processor: a handler would spin
    *(signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH),  # ignored unless they are handled
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),  # they stop a program
    *(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them
}
ENDING = sorted(
    number for number in signal.valid_signals() - NO_END if number <= signal.SIGRTMIN or number == signal.SIGRTMAX
)
"""Signals that end a program; of the real-time ones the first and the last."""


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_it_and_restores_the_terminal(program: PtyProcess, number: int) -> None:
    os.kill(program.pid, number)
    assert program.wait(60.0) == 128 + number
    assert_restored(program)


@pytest.mark.parametrize("key", [b"q", b"\x03", b"\x1b[113u"])
def test_a_key_ends_it_and_restores_the_terminal(program: PtyProcess, key: bytes) -> None:
    """The last key is `q` as the Kitty keyboard protocol sends it."""
    program.type(key)
    assert program.wait(60.0) == 0
    assert_restored(program)


@pytest.mark.parametrize(
    "keys", [b"q\x1bOQ", b"q?", b"qqq", b"q/abc\r", b"q:", b"qs400\r", b"\x03\x1bOP", b"q\x1b[<0;5;5M", b"q\r", b"qR"]
)
def test_keys_behind_the_one_that_ends_it_do_nothing(program: PtyProcess, keys: bytes) -> None:
    """A slow connection brings several keys in one read."""
    program.type(keys)
    assert program.wait(60.0) == 0
    assert_restored(program)
    assert b"Traceback" not in program.written


def test_escape_alone_does_not_end_it(program: PtyProcess) -> None:
    program.type(b"\x1b")
    program.read(0.5)
    assert program.wait(0.1) is None


GARBAGE = (
    b"\x1b[103:71;2;71u",
    b"\xff\xfe\x80",
    b"\x1b[<9999999999;1;1M",
    b"\x1b[;;;;;;;u",
    b"\x1b[M\x00\x00\x00",
    b"\x1b[200~q\x03 pasted\x1b[201~",
    b"\x1b]0;title\x07",
    b"\x1bP1$r0m\x1b\\",
    b"\x1b[?2048;9$y",
    b"\x1b[1;99999999999999999999R",
    bytes(range(128, 256)),
)


def test_no_garbage_from_the_terminal_ends_it(program: PtyProcess) -> None:
    for garbage in GARBAGE:
        program.type(garbage)
        program.read(0.15)
        assert program.wait(0.02) is None, garbage
    before = len(program.written)
    for _ in range(12):  # on a busy machine the two keys may come as one
        program.type(b"\x1b")
        program.read(0.4)
        program.type(b"?")
        program.read(5.0, lambda written: HELP in written[before:])
        if HELP in program.written[before:]:
            break
    assert HELP in program.written[before:]
    program.type(b"qq")  # out of the help, and out
    assert program.wait(60.0) == 0
    assert_restored(program)


def test_a_closed_terminal_ends_it(program: PtyProcess) -> None:
    program.hang_up()
    assert program.wait(60.0) is not None


@each_row("delay_s", [0.05, 0.35])
def test_a_signal_while_it_starts_ends_it(delay_s: float) -> None:
    process = screen(80, 24)
    process.read(delay_s)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60.0) in (-signal.SIGTERM, 128 + signal.SIGTERM)
    if b"\x1b[?1049h" in process.written:
        assert_restored(process)
    process.close()


@pytest.mark.parametrize("how", ["key", "signal"])
def test_it_stops_for_the_shell_and_comes_back(program: PtyProcess, how: str) -> None:
    before = len(program.written)
    if how == "key":
        program.type(b"\x1a")
    else:
        os.kill(program.pid, signal.SIGTSTP)
    program.read(60.0, lambda _: state_of(program) == "T")
    assert state_of(program) == "T"
    program.read(0.2)
    assert_restored(program, before)
    back = len(program.written)
    os.kill(program.pid, signal.SIGCONT)
    program.read(60.0, lambda written: PAINTED in written[back:])
    assert b"\x1b[?1049h" in program.written[back:]
    assert PAINTED in program.written[back:]
    program.type(b"?")
    program.read(60.0, lambda written: HELP in written[back:])
    assert HELP in program.written[back:]
    program.type(b"qq")  # out of the help, and out
    assert program.wait(60.0) == 0
    assert_restored(program, back)


def test_a_stop_that_no_one_can_catch_is_survived(program: PtyProcess) -> None:
    os.kill(program.pid, signal.SIGSTOP)
    program.read(0.3)
    back = len(program.written)
    os.kill(program.pid, signal.SIGCONT)
    program.read(60.0, lambda written: PAINTED in written[back:])
    assert PAINTED in program.written[back:]
    program.type(b"q")
    assert program.wait(60.0) == 0
    assert_restored(program)


def state_of(process: PtyProcess) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_nothing_is_left_of_what_stood_there_before_the_first_figures() -> None:
    width, height = 80, 24
    command = [sys.executable, "-m", "gpumon", "demo", "--scenario", "healthy-chat"]
    process = PtyProcess(command, width, height, loaded=True)
    process.read(60.0, lambda written: b"SIMULATED" in written and b"llama" in written)
    process.read(1.0)
    process.close()
    terminal = pyte.Screen(width, height)
    pyte.ByteStream(terminal).feed(re.sub(rb"\x1b\[[>?][0-9;]*[$]?[pu]", b"", process.written))
    assert "starting" not in terminal.display[0]
    assert "SIMULATED" in terminal.display[0]


def test_many_patches_leave_what_a_fresh_paint_shows() -> None:
    """Ticks, a scroll, help and back, a zoom; then the display is frozen and painted anew."""
    width, height = 120, 40
    process = screen(width, height, "busy", "0.05")
    terminal = pyte.Screen(width, height)
    stream = pyte.ByteStream(terminal)
    process.read(60.0, lambda written: b"vllm:8002" in written)
    for keys in (b"2", b"j", b"?", b"\x1b", b"3", b"z", b"z", b"\t"):
        process.type(keys)
        process.read(0.3)
    process.read(0.5)
    process.type(b" ")
    process.read(60.0, lambda written: b"PAUSED" in written)
    process.read(0.4)
    at = len(process.written)
    stream.feed(process.written)
    patched = [dict(terminal.buffer[y]) for y in range(height)]
    shown = list(terminal.display)
    terminal.reset()
    process.type(b"r")
    fed = at
    end_s = time.monotonic() + 60.0
    while list(terminal.display) != shown and time.monotonic() < end_s:
        process.read(0.2)
        stream.feed(process.written[fed:])
        fed = len(process.written)
    process.close()
    assert list(terminal.display) == shown
    assert "PAUSED" in shown[0]
    for y in range(height):
        for x in range(width):
            old, new = patched[y].get(x, terminal.default_char), terminal.buffer[y][x]
            assert (old.data, old.bg) == (new.data, new.bg)
            assert old.data == " " or (old.fg, old.bold) == (new.fg, new.bold)


def test_the_first_paint_does_not_wait_for_the_collector() -> None:
    """The collector of this feed blocks the whole program when it starts."""
    process = screen(80, 24, "slow")
    process.read(60.0, lambda written: PAINTED in written)
    assert b"starting" in process.written
    process.close()


def test_a_resize_storm_ends_at_the_last_size(program: PtyProcess) -> None:
    for width, height in ((200, 60), (1, 1), (20, 3), (0, 0), (60, 15), (300, 90), (100, 30)):
        program.resize(width, height)
        program.read(0.03)
    before = len(program.written)
    last = ""
    for _ in range(20):
        program.type(b"r")
        program.read(0.5)
        terminal = pyte.Screen(100, 30)
        pyte.ByteStream(terminal).feed(program.written[before:])
        last = terminal.display[29]
        if "q quit" in last:
            break
    assert "q quit" in last
    program.type(b"q")
    assert program.wait(60.0) == 0


@each_row(("width", "height"), [(1, 1), (0, 0)])
def test_a_tiny_terminal_is_no_reason_to_fail(width: int, height: int) -> None:
    process = screen(width, height, "live")
    process.read(1.0)
    assert process.wait(0.1) is None
    process.type(b"q")
    assert process.wait(60.0) == 0
    assert_restored(process)


@each_row("unread_s", [0.4, 1.8])
def test_a_terminal_that_takes_nothing_cannot_hold_it(unread_s: float) -> None:
    """Nobody reads: first the terminal's buffer fills, then the writer's queue."""
    process = screen(120, 40, "busy", "0.05")
    process.read(60.0, lambda written: b"vllm:8002" in written)
    time.sleep(unread_s)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(60.0, reads=False) is not None
    process.read(1.0)
    assert_restored(process)
    process.close()


@each_row("scene", ["broken", "failing"])
def test_a_collector_that_fails_ends_it_with_its_error(scene: str) -> None:
    process = screen(80, 24, scene)
    assert process.wait(60.0) == 1
    process.read(0.3)
    assert_restored(process)
    end = process.written.rindex(b"\x1b[?1049l")
    assert b"RuntimeError: no such source" in process.written[end:]
    process.close()


def test_a_bug_ends_it_without_the_values_of_local_variables() -> None:
    """They hold settings, keys of the environment, and texts of others."""
    process = screen(80, 24, "faulty", FAULTY_PASSWORD="swordfish")
    process.read(60.0, lambda written: PAINTED in written)
    process.type(b"r")
    process.wait(60.0)
    process.read(0.3)
    assert_restored(process)
    last_words = process.written[process.written.rindex(b"\x1b[?1049l") :]
    assert b"RuntimeError: no such reading: 9" in last_words
    assert b"swordfish" not in last_words
    process.close()


def test_no_colour_and_no_unicode_where_there_is_none() -> None:
    process = screen(80, 24, "one_lost", NO_COLOR="1", LC_ALL="C")
    process.read(60.0, lambda written: b"LOST" in written)
    process.read(0.3)
    process.close()
    assert process.written.isascii()
    assert b"38;" not in process.written
    assert b"48;" not in process.written


def test_the_mouse_reports_no_motion() -> None:
    process = screen(80, 24, "live")
    process.read(60.0, lambda written: PAINTED in written)
    process.close()
    modes = dict(MODES_SET.findall(process.written))
    assert (modes[b"1000"], modes[b"1003"]) == (b"h", b"l")


def rows_painted(written: bytes) -> set[int]:
    """Rows of the screen that something was written to."""
    return {int(row) for row in re.findall(rb"\x1b\[(\d+);\d+H", written)}


def test_a_still_server_costs_the_clock_alone() -> None:
    process = screen(120, 40, "still", "0.25")
    process.read(60.0, lambda written: b"vllm:8002" in written)
    before = 0
    while rows_painted(process.written[before:]) - {1}:  # the first paint, on a busy machine in pieces
        before = len(process.written)
        process.read(0.7)
    before = len(process.written)
    began_s = time.monotonic()
    process.read(2.0)
    spent = process.written[before:]
    took_s = time.monotonic() - began_s
    process.close()
    assert 0 < len(spent) < 120 * (took_s + 1.0)
    assert rows_painted(spent) == {1}


def test_the_bytes_of_a_busy_server_stay_in_their_budget() -> None:
    """3 kB/s on average at 120x40 with 8 busy GPUs and moving charts; a tick is a second of the feed's clock."""
    process = screen(120, 40, "busy", "0.1")
    process.read(60.0, lambda written: b"vllm:8002" in written)
    process.read(1.0)
    before = len(process.written)
    process.read(2.0)
    per_tick = (len(process.written) - before) / 20
    process.close()
    assert 100 < per_tick < 3000
