"""The end of a log: of a file what was added since, of a command all that it prints. All calls block: for a thread."""

from __future__ import annotations

import json
import os
import re
import selectors
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from gpumon.readings.text import clean
from gpumon.sources.engine_log.places import MOST_LINES_AT_ONCE, LogAccessError, LogCommand, LogFile, LogPlace

MOST_LOG_BYTES: Final = 256 * 1024
"""Bytes of a log that are read at once, from its end."""
_COMMAND_S: Final = 5.0
"""A command that takes longer is ended."""
_END_S: Final = 1.0
"""Longest wait for the end of a command whose output has ended."""
_RUN_AGAIN_S: Final = 3.0
"""Seconds between two runs of a command while its log is looked at."""
_MOST_REST_BYTES: Final = 16 * 1024
"""Bytes kept of a line that has no end yet."""
_MOST_PRINTED_BYTES: Final = 16 * 1024 * 1024
"""Bytes that a command may print before it is ended."""
_CHUNK_BYTES: Final = 64 * 1024
"""Bytes of a command's output that are read at once: a pipe of Linux holds as many."""
_LONGEST_STAMP: Final = 40
"""Characters of a time that a runtime wrote: nanoseconds and an offset take 35."""
_WRAPPED: Final = {
    "kubelet": re.compile(r"(?P<stamp>\S{20,40}) (?:stdout|stderr) [FP] ?"),
    "stamped": re.compile(r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{1,20}) "),
}
"""Prefix of each line, by form: that of the kubelet, and that of `docker logs --timestamps`."""


class Added(NamedTuple):
    """Lines that a log has more than at the last read."""

    lines: Sequence[str] = ()
    rest: str = ""
    """A last line without its end."""
    anew: bool = False
    """Whether these lines take the place of all that was read before."""
    cut: bool = False
    """Whether the log has more lines before them."""
    fault: str = ""
    """Why nothing could be read."""
    stamps: Sequence[str] = ()
    """The time that the kubelet or a container's runtime wrote before each line; empty if a log has no such times."""


NOTHING_ADDED: Final = Added()
_Tail = Callable[[], Added]
"""Reads what was added to a log since the call before."""


def log_tail(place: LogPlace) -> _Tail:
    """The function that reads what was added to a log since the call before."""
    if isinstance(place, LogFile):
        return FileTail(place).read
    if isinstance(place, LogCommand):
        return CommandTail(place).read
    return partial(Added, fault=place.fault)


class FileTail:
    """A file that grows; it may be truncated, or another one may take its place."""

    def __init__(self, place: LogFile) -> None:
        self._place = place
        self._file_id: tuple[int, int] = (0, 0)
        """Device and inode of the file that was read last."""
        self._offset = 0
        """Bytes of it that were read or left out."""
        self._rest = b""
        """A last line without its end."""
        self._lacks_beginning = False
        """The line that was read last began before what was read: it may be of the middle of a prompt."""

    def read(self) -> Added:
        """The lines that were added, at most `MOST_LOG_BYTES`; of a larger gap its end."""
        try:
            with self._place.open() as file:
                status = os.fstat(file.fileno())
                is_anew = self._begins_anew(status)
                if is_anew:
                    self._file_id = (status.st_dev, status.st_ino)
                    self._offset = max(0, status.st_size - MOST_LOG_BYTES)
                    self._rest = b""
                is_cut = is_anew and self._offset > 0
                self._lacks_beginning = is_cut or (self._lacks_beginning and not is_anew)
                data = os.pread(file.fileno(), MOST_LOG_BYTES, self._offset)
        except OSError as error:
            return Added(fault=_reason(error))
        if not data and not is_anew:
            return NOTHING_ADDED
        self._offset += len(data)
        lines, stamps = _unwrap_lines(self._take_ended_lines(data), self._place.form)
        rest = _unwrap_line(self._rest, self._place.form).text
        return Added(lines, rest, is_anew, is_cut, stamps=stamps)

    def _take_ended_lines(self, data: bytes) -> list[bytes]:
        """The lines that end in `data`, but none without its begin; what is behind them is kept for the next time."""
        *ended, rest = (self._rest + data).split(b"\n")
        if self._lacks_beginning:
            if not ended:  # still the same line: it goes on being left out
                self._rest = b""
                return []
            self._lacks_beginning = False
            ended = ended[1:]
        self._rest = rest[:_MOST_REST_BYTES]
        return ended

    def _begins_anew(self, status: os.stat_result) -> bool:
        """Whether the log was cut off or replaced: what was read before does not stand before what comes now."""
        if (status.st_dev, status.st_ino) != self._file_id or status.st_size < self._offset:
            return True
        return status.st_size - self._offset > MOST_LOG_BYTES


class CommandTail:
    """A command that prints the end of a log; it is run again every few seconds."""

    def __init__(self, place: LogCommand) -> None:
        self._place = place
        self._ran_s = float("-inf")
        """Monotonic time of the last run."""
        self._printed: bytes | None = None
        """All that it printed last; None: it failed, or did not run yet."""
        self._lines: list[bytes] = []
        """The lines that it printed last."""

    def read(self) -> Added:
        """The printed lines that were not there last time; all of them where none of last time's is there any more.

        Nothing before `_RUN_AGAIN_S` have passed.
        """
        if time.monotonic() - self._ran_s < _RUN_AGAIN_S:
            return NOTHING_ADDED
        printed = b""
        fault = "no program that shows it is installed"
        for command in self._place.alternatives:
            if shutil.which(command[0]) is None:
                continue
            printed, fault = run_bounded(command)
            if not fault:
                break
        self._ran_s = time.monotonic()
        if fault:
            self._printed = None
            self._lines = []
            return Added(fault=fault)
        if printed == self._printed:
            return NOTHING_ADDED
        self._printed = printed
        return self._added_lines(printed)

    def _added_lines(self, printed: bytes) -> Added:
        """The lines behind those that were printed last time; they are kept for the next time."""
        *ended, rest = printed.split(b"\n")
        is_cut = len(printed) >= MOST_LOG_BYTES
        if is_cut:
            ended = ended[1:]  # the first one lacks its beginning
        is_cut = is_cut or len(ended) >= MOST_LINES_AT_ONCE
        known = shared_lines(self._lines, ended)
        self._lines = ended
        lines, stamps = _unwrap_lines(ended[known:], self._place.form)
        unended = _unwrap_line(rest, self._place.form).text
        is_anew = known == 0
        return Added(lines, unended, anew=is_anew, cut=is_cut and is_anew, stamps=stamps)


def shared_lines(before: Sequence[bytes], after: Sequence[bytes]) -> int:
    """The largest number of lines that both end `before` and begin `after`, in their order."""
    for size in range(min(len(before), len(after)), 0, -1):
        start = len(before) - size
        if before[start] == after[0] and before[start:] == after[:size]:
            return size
    return 0


def run_bounded(command: Sequence[str]) -> tuple[bytes, str]:
    """The last `MOST_LOG_BYTES` that a program prints, and why it failed; empty where it did not."""
    environ = {**os.environ, "LC_ALL": "C"}
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ
        )
    except OSError as error:
        return b"", _reason(error)
    with process:
        printed, is_whole = _drain(process)
        if not is_whole:
            process.kill()
        code = _exit_code(process)
    if not is_whole:
        return b"", f"{command[0]} did not end within {_COMMAND_S:.0f} s, or printed too much"
    if code:
        last_words = f"{command[0]} failed with exit code {code}"
        for line in _decoded(printed).splitlines():
            if line.strip():
                last_words = line
        return b"", clean(last_words)
    return printed, ""


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process whose output has ended; 0 of one that lives on for `_END_S`, which is killed."""
    try:
        return process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return 0


def _drain(process: subprocess.Popen[bytes]) -> tuple[bytes, bool]:
    """The end of what a process prints, and whether it printed all of it within `_COMMAND_S` and the bound of bytes."""
    assert process.stdout is not None
    # Small chunks are joined, so that any two neighbours have more than one chunk's bytes: these are never too few.
    chunks: deque[bytes] = deque(maxlen=MOST_LOG_BYTES // _CHUNK_BYTES * 2)
    size = 0
    end_s = time.monotonic() + _COMMAND_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while size < _MOST_PRINTED_BYTES and selector.select(max(0.0, end_s - time.monotonic())):
            chunk = os.read(process.stdout.fileno(), _CHUNK_BYTES)
            if not chunk:
                return b"".join(chunks)[-MOST_LOG_BYTES:], True
            size += len(chunk)
            if chunks and len(chunks[-1]) + len(chunk) <= _CHUNK_BYTES:
                chunks[-1] += chunk
            else:
                chunks.append(chunk)
    return b"", False


class _UnwrappedLine(NamedTuple):
    """A line as the engine wrote it, and the time that the kubelet or a runtime wrote before it."""

    text: str
    stamp: str = ""


def _unwrap_lines(lines: Sequence[bytes], form: str) -> tuple[list[str], list[str]]:
    """Lines as the engine wrote them, and the time that was written before each; no times where a log has none."""
    texts = []
    stamps = []
    for line in lines:
        unwrapped = _unwrap_line(line, form)
        texts.append(unwrapped.text)
        if form:
            stamps.append(unwrapped.stamp)
    return texts, stamps


def _unwrap_line(line: bytes, form: str) -> _UnwrappedLine:
    """A line of a log, without what the kubelet or a container's runtime wrote around it (`form`, as of its place)."""
    text = _decoded(line)
    pattern = _WRAPPED.get(form)
    if pattern is not None:
        prefix = pattern.match(text)
        if prefix is None:
            return _UnwrappedLine(text)
        return _UnwrappedLine(text[prefix.end() :], prefix["stamp"])
    if form == "json" and text:
        return _unwrap_json(text)
    return _UnwrappedLine(text)


def _unwrap_json(text: str) -> _UnwrappedLine:
    """A line of Docker's own file."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return _UnwrappedLine(text)
    if not isinstance(entry, dict):
        return _UnwrappedLine(text)
    return _UnwrappedLine(str(entry.get("log", "")).rstrip("\n"), str(entry.get("time", ""))[:_LONGEST_STAMP])


def _decoded(line: bytes) -> str:
    """Text of a log's bytes; what is no UTF-8 is a replacement character."""
    return line.decode("utf-8", "replace")


def _reason(error: OSError) -> str:
    """Why a log cannot be read, in words."""
    if isinstance(error, LogAccessError):
        return str(error)
    return clean(error.strerror or str(error) or "cannot be read")


def first_record(lines: Sequence[str], begins: Callable[[str], bool], most: int = 200) -> int:
    """Index of the first line that begins a record: those before may be the end of a prompt.

    Only the first `most` lines are looked at; 0 where none of them begins one.
    """
    for index, line in enumerate(lines[:most]):
        if begins(line):
            return index
    return 0
