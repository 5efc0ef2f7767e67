"""The end of a real file that is appended to, replaced, cut, emptied, taken away, or was never a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.sources.feeds.file import WINDOW_BYTES, Tail, TooLongError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "steps.jsonl"


def looked(tail: Tail) -> tuple[bytes, ...]:
    found = tail.read()
    assert found is not None
    return found[0]


def last(tail: Tail) -> bytes:
    return looked(tail)[-1]


def test_the_last_complete_line_counts_and_a_partial_one_waits(file: Path):
    tail = Tail(str(file))
    file.write_bytes(b'{"a":1}\n{"a":2}\n{"a":')
    assert looked(tail) == (b'{"a":1}', b'{"a":2}')
    with file.open("ab") as end:
        end.write(b"3}\n")
    assert last(tail) == b'{"a":3}'


def test_what_did_not_change_is_not_read_again(file: Path):
    tail = Tail(str(file))
    file.write_bytes(b"1\n")
    assert last(tail) == b"1"
    before = file.stat().st_atime_ns
    assert tail.read() is None
    assert file.stat().st_atime_ns == before
    with file.open("ab") as end:
        end.write(b"2\n")
    assert last(tail) == b"2"


def test_a_file_that_was_replaced_or_truncated_is_read_anew(file: Path, tmp_path: Path):
    tail = Tail(str(file))
    file.write_bytes(b"1\n2\n")
    assert last(tail) == b"2"
    (tmp_path / "new").write_bytes(b"7\n8\n")
    (tmp_path / "new").rename(file)
    assert last(tail) == b"8"
    os.truncate(file, 2)
    assert last(tail) == b"7"
    os.truncate(file, 0)
    assert looked(tail) == ()


def test_of_a_huge_file_the_end_is_read(file: Path):
    with file.open("wb") as made:
        made.seek(2**33)
        made.write(b"\nlost its beginning in the window\n" + b"x" * 100 + b"\nlast\n")
    found = looked(Tail(str(file)))
    assert found[-1] == b"last"
    assert sum(map(len, found)) <= WINDOW_BYTES


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_longer_than_the_window_is_no_line(file: Path, end: bytes):
    file.write_bytes(b"1\n" + b"x" * (WINDOW_BYTES + 5) + end)
    with pytest.raises(TooLongError, match="64 KiB"):
        Tail(str(file)).read()


def test_no_file_no_right_no_regular_file(file: Path, tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        Tail(str(file)).read()
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="no regular file"):
            Tail(str(path)).read()
