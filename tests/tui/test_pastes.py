"""Pastes: text up to their end whatever stands in it, bounded, at once; through the filter, and in a real terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.tui.pastes import MOST_PASTED, PasteFilter
from tests.each_row import each_row
from tests.tui.pty_process import PtyProcess, screen
from tests.tui.test_process import assert_restored

BEGIN = b"\x1b[200~"
END = b"\x1b[201~"
LOG_LINE = b"\x1b[31mERROR\x1b[0m 2026-01-01 \x1b]8;;http://x\x07worker 7\x1b]8;;\x07 died \xe2\x9c\x97\r\n"


def filtered(*pieces: bytes) -> tuple[bytes, int]:
    """All that a filter gives on of pieces that come one after the other, and how many pastes were cut."""
    pastes = PasteFilter()
    given_on = b""
    cuts = 0
    for piece in pieces:
        keys, cut = pastes.feed(piece)
        given_on += keys
        cuts += cut
    return given_on, cuts


@each_row(
    ("sent", "read"),
    [
        (b"q\x1b[A\x1b", b"q\x1b[A\x1b"),
        (BEGIN + b"abc" + END, BEGIN + b"abc" + END),
        (b"/" + BEGIN + b"a\x1b[31mb\x1bOQc\x1b" + END + b"\r", b"/" + BEGIN + b"abc" + END + b"\r"),
        (BEGIN + b"q\x03\x1a\tx\ny" + END, BEGIN + b"q\tx\ny" + END),
        (BEGIN + END + b"q", BEGIN + END + b"q"),
        (BEGIN + BEGIN + b"a" + END + END, BEGIN + b"a" + END + END),
        (BEGIN + LOG_LINE + END, BEGIN + "ERROR 2026-01-01 worker 7 died ✗\r\n".encode() + END),
        (BEGIN + b"a" + END + b"x" + BEGIN + b"b" + END, BEGIN + b"a" + END + b"x" + BEGIN + b"b" + END),
    ],
)
def test_what_is_pasted_is_text_up_to_its_end(sent: bytes, read: bytes) -> None:
    assert filtered(sent) == (read, 0)
    assert filtered(*(sent[at : at + 1] for at in range(len(sent)))) == (read, 0), "character by character"


PIECES = st.lists(
    st.sampled_from((BEGIN, END, b"a", b"\x1b", b"\x1b[", b"2", b"00~", b"01~", "é".encode(), b"\x1b[31m"))
)


@given(PIECES, st.integers(1, 9))
def test_where_reads_end_makes_no_difference(pieces: list[bytes], size: int) -> None:
    sent = b"".join(pieces)
    parts = [sent[at : at + size] for at in range(0, len(sent), size)]
    assert filtered(*parts) == filtered(sent)


@each_row("most", [4096, 1 << 20])
def test_what_is_over_the_bound_is_dropped_and_told(most: int) -> None:
    sent = BEGIN + LOG_LINE * 20_000 + END + b"j"
    read, cuts = filtered(*(sent[at : at + most] for at in range(0, len(sent), most)))
    text = read.removeprefix(BEGIN).removesuffix(END + b"j")
    assert cuts == 1
    assert MOST_PASTED - 4 < len(text) <= MOST_PASTED
    assert text.decode().startswith("ERROR 2026-01-01 worker 7 died ✗\r\nERROR")
    assert b"\x1b" not in text


def test_a_paste_whose_end_does_not_come_ends_when_it_is_told_to() -> None:
    pastes = PasteFilter()
    assert pastes.feed(b"/" + BEGIN + b"abc") == (b"/" + BEGIN, False)
    assert pastes.is_open
    assert pastes.end() == (b"abc" + END, False)
    assert not pastes.is_open
    assert pastes.end() == (b"", False)
    assert pastes.feed(b"q") == (b"q", False)


@pytest.fixture
def program() -> Iterator[PtyProcess]:
    """The screen at 120x40, painted."""
    process = screen(120, 40, "live")
    process.read(60.0, lambda written: b" engines " in written and b"vllm:8002" in written)
    yield process
    process.close()


def peak_bytes(process: PtyProcess) -> int:
    """The most memory that the program ever had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.parametrize(
    ("keys", "shown"), [(b"2/", "filter"), (b":", "ERROR"), (b"s", "paste"), (b"?", "paste"), (b"", "paste")]
)
def test_a_log_in_colours_is_pasted_at_once_wherever_it_lands(program: PtyProcess, keys: bytes, shown: str) -> None:
    """It took 94 s and 808 MB, and its escapes were keys."""
    program.type(keys)
    program.read(1.0)
    before = peak_bytes(program)
    sent = BEGIN + LOG_LINE * (300_000 // len(LOG_LINE)) + END
    while sent:
        program.type(sent[:4096])
        sent = sent[4096:]
        program.read(0.001)
    program.read(60.0, lambda _: "longer than 64 KiB" in program.text() and shown in program.text())
    assert "longer than 64 KiB" in program.text()
    assert shown in program.text()
    assert peak_bytes(program) - before < 64 << 20
    program.type(b"\x03")
    assert program.wait(60.0) == 0
    assert_restored(program)
    assert b"Traceback" not in program.written


def test_a_paste_is_one_text_among_keys(program: PtyProcess) -> None:
    program.type(b"2/" + BEGIN + b"8\x1b[31m0\x1bOQ0\x1b[0m1" + END + b"\r")

    def rows() -> str:
        return "".join(line for line in program.text().splitlines() if "Llama" in line)

    # The bytes of one paint may come in two reads.
    program.read(60.0, lambda _: 'filter "8001"' in program.text() and "vllm:8000 " not in rows())
    assert 'filter "8001"' in program.text()
    assert "vllm:8001" in program.text()
    assert "vllm:8000 " not in rows()
    program.type(b"\x1b")
    program.read(1.0)
    program.type(b"qq")
    assert program.wait(60.0) == 0
    assert_restored(program)
