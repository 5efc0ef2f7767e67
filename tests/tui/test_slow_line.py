"""The real program on a slow line, on one that stalls, and in terminals that answer late, in pieces or never."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator

import pyte
import pytest

from tests.tui.pty_process import PtyProcess, screen
from tests.tui.slow_line import BYTES_PER_S, Glass, SlowTerminal, measure, paused
from tests.tui.test_process import HELP, assert_restored

QUERY, ANSWER = b"\x1b[5n", b"\x1b[0n"


def test_on_64_kbit_per_s_keys_are_answered_and_the_screen_is_up_to_date() -> None:
    """By the time that the line is in use: how long the machine took for its part depends on what else it does."""
    figures = measure(rounds=4)
    assert figures["line_within_200_ms_ratio"] >= 0.95, figures
    assert figures["line_max_s"] <= 0.4, figures
    assert figures["key_max_s"] <= 20.0, figures
    assert figures["clock_age_max_s"] <= 20.0, figures
    assert figures["bytes_per_s"] < BYTES_PER_S


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
            terminal.run(0.5)
        terminal.process.type(b" ")
        terminal.run(4.0)
        assert paused(terminal.glass)
        before = cells(terminal.glass)
        fresh = Glass(100, 30, terminal.process.type)
        terminal.show_on(fresh)
        terminal.process.type(b"r")
        terminal.run(4.0)
        assert cells(fresh) == before
    finally:
        terminal.process.close()


class Answering:
    """A program in a terminal that takes everything at once, and answers as it is told to."""

    def __init__(self, process: PtyProcess) -> None:
        self.process = process
        self.answer: Callable[[int], None] = self.at_once
        self._answered = 0

    def at_once(self, count: int) -> None:
        """As terminals do."""
        self.process.type(ANSWER * count)

    def never(self, count: int) -> None:
        """As terminals do that hang."""

    def run(self, seconds: float, until: Callable[[bytes], bool] | None = None) -> bytes:
        """Read, and answer."""

        def done(written: bytes) -> bool:
            asked = written.count(QUERY)
            if asked > self._answered:
                self.answer(asked - self._answered)
                self._answered = asked
            return until is not None and until(written)

        return self.process.read(seconds, done)


@pytest.fixture
def answering() -> Iterator[Answering]:
    """The screen at 80x24, painted, ticking five times a second, in a terminal that answers."""
    process = screen(80, 24, "busy", "0.2")
    made = Answering(process)
    made.run(60.0, lambda written: b" engines " in written and b"vllm:8002" in written)
    made.run(1.0)
    yield made
    process.close()


def painted(written: bytes) -> bool:
    """Whether more than questions was written."""
    return bool(written.replace(QUERY, b""))


def test_a_terminal_that_hangs_is_not_written_to_and_goes_on_when_it_comes_back(answering: Answering) -> None:
    answering.answer = answering.never
    answering.run(1.5)
    at = len(answering.process.written)
    answering.run(3.5)
    written = answering.process.written[at:]
    assert not painted(written)
    assert 1 <= written.count(QUERY) <= 2, "it is asked again, seldom"
    at = len(answering.process.written)
    answering.answer = answering.at_once
    answering.at_once(8)
    answering.run(60.0, lambda written: painted(written[at:]))
    assert painted(answering.process.written[at:])
    answering.process.type(b"?")
    answering.run(60.0, lambda written: HELP in written[at:])
    assert HELP in answering.process.written[at:]


def test_a_terminal_that_lost_the_questions_goes_on_after_the_next(answering: Answering) -> None:
    answering.answer = answering.never
    answering.run(1.0)
    answering.answer = answering.at_once
    at = len(answering.process.written)
    answering.run(60.0, lambda written: painted(written[at:]))
    assert painted(answering.process.written[at:])


@pytest.mark.parametrize("how", [b"q", b"\x03", signal.SIGTERM])
def test_quitting_does_not_wait_for_a_terminal_that_hangs(answering: Answering, how: bytes | signal.Signals) -> None:
    answering.answer = answering.never
    answering.run(1.5)
    if isinstance(how, bytes):
        answering.process.type(how)
    else:
        os.kill(answering.process.pid, how)
    assert answering.process.wait(60.0) == (0 if isinstance(how, bytes) else 128 + how)
    assert_restored(answering.process)


def test_no_answer_is_left_for_the_shell() -> None:
    """Over a long way the answer to the last question arrives after the key that quits."""
    process = screen(80, 24, "busy", "0.2")
    due: list[float] = []
    asked = came_late = 0
    quit_at_s = 0.0
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s and process.pid:
        process.read(0.01)
        now_s = time.monotonic()
        due += [now_s + 0.12] * (process.written.count(QUERY) - asked)
        asked = process.written.count(QUERY)
        while due and due[0] < now_s:
            due.pop(0)
            came_late += b"\x1b[?1049l" in process.written
            process.type(ANSWER)
        if not quit_at_s and b"vllm:8002" in process.written and due and asked > 12:
            quit_at_s = now_s
            process.type(b"q")
        if quit_at_s and now_s > quit_at_s + 0.6:
            process.wait(60.0)
    assert quit_at_s
    assert came_late == 0
    assert_restored(process)
    process.close()


def test_answers_in_pieces_and_among_keys_are_no_keys(answering: Answering) -> None:
    process = answering.process

    def in_pieces(count: int) -> None:
        for _ in range(count):
            for piece in (b"\x1b", b"[0", b"n"):
                process.type(piece)
                time.sleep(0.003)

    answering.answer = in_pieces
    answering.run(1.0)
    at = len(process.written)
    process.type(b"\x1b[0n?\x1b[0n")
    answering.run(60.0, lambda written: HELP in written[at:])
    assert HELP in process.written[at:]
    at = len(process.written)
    process.type(b"\x1b")
    answering.run(60.0, lambda written: b" engines " in written[at:])
    assert b" engines " in process.written[at:], "a lone Escape is still one"
    process.type(b"q")
    assert process.wait(60.0) == 0
    assert_restored(process)


def test_a_terminal_that_never_answers_is_not_asked_for_ever() -> None:
    process = screen(80, 24, "busy", "0.2")
    process.read(60.0, lambda written: b"vllm:8002" in written)
    process.read(3.0)
    at = len(process.written)
    process.read(2.0)
    written = process.written[at:]
    process.close()
    assert QUERY not in written
    assert len(set(re.findall(rb"\x1b\[(\d+);\d+H", written))) > 3, "it is painted as ever"


def test_a_fast_terminal_is_asked_at_most_twice_a_frame(answering: Answering) -> None:
    at = len(answering.process.written)
    answering.run(3.0)
    written = answering.process.written[at:]
    assert 5 <= written.count(QUERY) <= 2 * 3 * 5 + 8
