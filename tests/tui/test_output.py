"""The way of frames to a terminal that takes nothing: what is given up on leaving, and what comes through."""

from __future__ import annotations

import os
import select
import threading
import tty
from collections.abc import Iterator
from queue import Queue
from typing import NamedTuple

import pytest

from gpumon.tui.output import TerminalOutput

FRAME = "x" * 100_000
"""More than any terminal's buffer takes."""
RESTORES = "\x1b[?1049l\x1b[?25h"
TIMEOUT_S = 60.0


class Line(NamedTuple):
    """A terminal that nobody reads, and the way to it."""

    master: int
    output: TerminalOutput
    texts: Queue[str | None]
    writer: threading.Thread
    """Writes the texts, as Textual's thread does; it is not started yet."""

    def give(self, text: str) -> None:
        """Give a text to the thread that writes."""
        self.output.expect()
        self.texts.put(text)

    def end(self) -> str:
        """What the terminal gets, once all was written."""
        self.texts.put(None)
        self.writer.join(TIMEOUT_S)
        assert not self.writer.is_alive()
        received = b""
        while select.select([self.master], [], [], 0.2)[0]:
            received += os.read(self.master, 1 << 16)
        return received.decode()


@pytest.fixture
def line() -> Iterator[Line]:
    master, slave = os.openpty()
    tty.setraw(slave)
    texts: Queue[str | None] = Queue(30)
    with open(slave, "w", encoding="utf-8", closefd=False) as stream:
        output = TerminalOutput(stream, lambda: None)

    def write_all() -> None:
        while (text := texts.get()) is not None:
            output.write(text)

    yield Line(master, output, texts, threading.Thread(target=write_all, daemon=True))
    os.close(master)
    os.close(slave)


def test_a_frame_that_nobody_has_begun_to_write_is_given_up_too(line: Line) -> None:
    """On a busy machine the thread that writes gets to it only after the screen has begun to leave."""
    line.give(FRAME)
    line.give(FRAME)
    line.output.abandon()
    line.give(RESTORES)
    line.writer.start()
    assert line.end() == RESTORES


def test_a_frame_in_the_middle_and_all_behind_it_are_given_up(line: Line) -> None:
    line.writer.start()
    for _ in range(3):
        line.give(FRAME)
    assert not line.output.takes_all()
    line.output.abandon()
    line.give(RESTORES)
    assert line.end().lstrip("x") == RESTORES


def test_what_a_terminal_takes_is_given_up_by_nobody(line: Line) -> None:
    line.writer.start()
    line.give("a frame")
    line.output.abandon()
    line.give(RESTORES)
    assert line.end() == f"a frame{RESTORES}"
