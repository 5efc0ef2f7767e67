"""Flow control over made-up lines: a clock that is moved by hand, a line that carries bytes at a speed."""

from __future__ import annotations

import math
from collections import deque

import pytest

from gpumon.tui.flow import AT_FIRST, FIRST_S, LEAST, LOST_S, REPEAT_S, SILENT_S, TARGET_S, Flow
from gpumon.tui.output import Answers, Keys


class Line:
    """A flow, and a line with a speed and a delay at whose end a terminal answers."""

    def __init__(self, bytes_per_s: float, delay_s: float = 0.0) -> None:
        self.flow = Flow()
        self.now_s = 100.0
        self.bytes_per_s, self.delay_s = bytes_per_s, delay_s
        self._free_s = 0.0
        self._due: deque[float] = deque()

    def write(self, size: int) -> None:
        """A frame, with a question ahead where the line is idle, and one behind."""
        if self.flow.idle(self.now_s):
            self._ask()
        self.flow.wrote(size)
        self._free_s = max(self._free_s, self.now_s) + size / self.bytes_per_s
        if self.flow.worth_asking(self.now_s):
            self._ask()

    def _ask(self) -> None:
        self.flow.asked(self.now_s)
        self._due.append(max(self._free_s, self.now_s) + self.delay_s)

    def run(self, seconds: float) -> None:
        """Time passes; answers arrive."""
        end_s = self.now_s + seconds
        while self._due and self._due[0] <= end_s:
            self.now_s = self._due.popleft()
            self.flow.answered(self.now_s)
        self.now_s = end_s

    def room(self) -> float:
        """What may be written now."""
        return self.flow.room(self.now_s)


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("bytes_per_s", [2_000.0, 8_000.0, 40_000.0])
def test_a_slow_line_gets_what_it_carries_in_the_target_time(bytes_per_s: float, delay_s: float) -> None:
    line = Line(bytes_per_s, delay_s)
    line.write(6000)
    line.run(20.0)
    for _ in range(20):
        line.write(int(line.room()))
        line.run(2.0)
    assert line.flow.window == pytest.approx(max(LEAST, bytes_per_s * TARGET_S), rel=0.05)
    line.write(int(line.room()))
    assert line.room() < 1


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.3])
def test_a_fast_line_has_no_limit(delay_s: float) -> None:
    line = Line(10_000_000.0, delay_s)
    line.write(6000)
    line.run(1.0)
    for _ in range(10):
        assert math.isinf(line.room())
        line.write(2000)
        assert math.isinf(line.room())
        line.run(1.0)


def test_a_line_that_becomes_fast_is_used() -> None:
    line = Line(8_000.0, 0.02)
    line.write(6000)
    line.run(5.0)
    line.bytes_per_s = 10_000_000.0
    for _ in range(5):
        line.write(int(min(line.room(), 2000)))
        line.run(1.0)
    assert math.isinf(line.room())


def test_a_line_that_becomes_slow_is_noticed() -> None:
    line = Line(10_000_000.0, 0.02)
    line.write(6000)
    line.run(1.0)
    line.bytes_per_s = 8_000.0
    line.write(4000)
    assert math.isinf(line.room())
    line.run(0.45)
    assert line.room() == 0
    line.run(1.0)
    assert line.room() == pytest.approx(8_000.0 * TARGET_S, rel=0.05)


def test_before_the_first_answer_a_first_paint_fits_but_not_two() -> None:
    line = Line(8_000.0, 0.1)
    line.write(5000)
    assert line.room() == AT_FIRST - 5000


def test_a_silent_terminal_is_taken_for_a_fast_one_and_not_asked_for_ever() -> None:
    line = Line(8_000.0, 1e9)
    line.write(5000)
    line.run(FIRST_S + 0.01)
    assert math.isinf(line.room())
    line.run(SILENT_S)
    assert not line.flow.worth_asking(line.now_s)
    assert line.flow.answers is False
    assert math.isinf(line.room())
    assert not line.flow.due(line.now_s)


def test_a_terminal_that_stops_answering_is_asked_again_and_goes_on_where_it_was() -> None:
    line = Line(10_000_000.0, 0.01)
    line.write(6000)
    line.run(1.0)
    line.delay_s = 60.0
    line.write(1000)
    line.run(1.0)
    assert line.room() == 0
    assert not line.flow.due(line.now_s)
    assert not line.flow.wants_repeat(line.now_s)
    line.run(REPEAT_S[0])
    assert line.flow.wants_repeat(line.now_s)
    line.flow.asked(line.now_s)
    assert not line.flow.wants_repeat(line.now_s)
    line.run(100.0)
    assert line.room() > 0
    assert line.flow.on_the_way == 0


def test_answers_that_were_lost_are_not_waited_for() -> None:
    line = Line(10_000_000.0, 0.01)
    line.write(6000)
    line.run(1.0)
    line.write(1000)
    line._due.clear()
    line.run(REPEAT_S[0] + 0.1)
    assert line.flow.wants_repeat(line.now_s)
    line._ask()
    line.run(LOST_S + 0.1)
    assert line.room() > 0
    assert line.flow.on_the_way == 0


@pytest.mark.parametrize(
    ("pieces", "left", "answers"),
    [
        ((b"\x1b[0n",), b"", 1),
        ((b"j\x1b[0nk",), b"jk", 1),
        ((b"\x1b[0n\x1b[0n",), b"", 2),
        ((b"j\x1b", b"[0n"), b"j", 1),
        ((b"\x1b[", b"0", b"nq"), b"q", 1),
        ((b"\x1b[A\x1b[0n\x1b[B",), b"\x1b[A\x1b[B", 1),
        ((b"\x1b", b"[A"), b"\x1b[A", 0),
        ((b"\x1b", None), b"\x1b", 0),
        ((b"\x1b[0", None, b"\x1b[0n"), b"\x1b[0", 1),
        ((b"\x1b\x1b[0n", None), b"\x1b", 1),
    ],
)
def test_answers_are_taken_out_of_the_keys(pieces: tuple[bytes | None, ...], left: bytes, answers: int) -> None:
    taker, kept, count = Answers(), b"", 0
    for piece in pieces:
        rest, found = taker.take(piece, due=True)
        kept += rest or b""
        count += found
    assert (kept, count) == (left, answers)


def test_nothing_is_held_back_where_no_answer_is_due() -> None:
    taker = Answers()
    assert taker.take(b"\x1b", due=False) == (b"\x1b", 0)
    assert taker.take(None, due=False) == (None, 0)


def test_a_character_in_two_pieces_is_one_key() -> None:
    keys = Keys(debug=False)
    events = [*keys.events("é".encode()[:1]), *keys.events("é".encode()[1:]), *keys.events(b"q")]
    assert [getattr(event, "character", None) for event in events] == ["é", "q"]
