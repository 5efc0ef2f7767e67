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
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.readings.text import clean
from gpumon.sources.engine_log.places import MOST_LINES, LogAccessError, LogCommand, LogFile, NoLog, Place

MOST_LOG_BYTES: Final = 256 * 1024
"""Bytes of a log that are read at once, from its end."""
COMMAND_S: Final = 5.0
"""A command that takes longer is ended."""
AGAIN_S: Final = 3.0
"""Seconds between two runs of a command while its log is looked at."""
_MOST_REST: Final = 16 * 1024
"""Bytes kept of a line that has no end yet."""
_MOST_READ: Final = 16 * 1024 * 1024
"""Bytes that a command may print before it is ended."""
_CHUNK: Final = 64 * 1024
_KUBELET_LINE: Final = re.compile(r"\S{20,40} (?:stdout|stderr) [FP] ?")


class Added(NamedTuple):
    """Lines that a log has more than at the last read."""

    lines: Sequence[str] = ()
    rest: str = ""
    """A last line without its end."""
    anew: bool = False
    """They take the place of all that was read before."""
    cut: bool = False
    """There is more before them."""
    fault: str = ""
    """Why nothing could be read."""


NOTHING_ADDED: Final = Added()
_Tail = Callable[[], Added]


def tail_of(place: Place) -> _Tail:
    """Reads what is added to a log since the call before."""
    if isinstance(place, LogFile):
        return FileTail(place).read
    if isinstance(place, LogCommand):
        return CommandTail(place.commands).read
    return lambda: _none(place)


def _none(place: NoLog) -> Added:
    return Added(fault=place.fault)


class FileTail:
    """A file that grows; it may be truncated, or another one may take its place."""

    def __init__(self, place: LogFile) -> None:
        self._place = place
        self._file_id: tuple[int, int] = (0, 0)
        self._offset = 0
        self._rest = b""
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
        lines = [_unwrapped(line, self._place.form) for line in self._ended_lines(data)]
        return Added(lines, _unwrapped(self._rest, self._place.form), is_anew, is_cut)

    def _ended_lines(self, data: bytes) -> list[bytes]:
        """The lines that end in `data`; the line behind them is kept for the next time."""
        *ended, rest = (self._rest + data).split(b"\n")
        if self._lacks_beginning:
            self._lacks_beginning = not ended
            rest = rest if ended else b""
            ended = ended[1:]
        self._rest = rest[:_MOST_REST]
        return ended

    def _begins_anew(self, status: os.stat_result) -> bool:
        """Whether the log was cut off or replaced: what was read before does not stand before what comes now."""
        if (status.st_dev, status.st_ino) != self._file_id or status.st_size < self._offset:
            return True
        return status.st_size - self._offset > MOST_LOG_BYTES


class CommandTail:
    """A command that prints the end of a log; it is run again every few seconds."""

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self._commands = commands
        self._ran_s = float("-inf")
        self._printed: bytes | None = None

    def read(self) -> Added:
        """All lines, where they are others than before."""
        if time.monotonic() - self._ran_s < AGAIN_S:
            return NOTHING_ADDED
        printed = b""
        fault = "no program that shows it is installed"
        for command in self._commands:
            if shutil.which(command[0]) is None:
                continue
            printed, fault = run_bounded(command)
            if not fault:
                break
        self._ran_s = time.monotonic()
        if fault:
            self._printed = None
            return Added(fault=fault)
        if printed == self._printed:
            return NOTHING_ADDED
        self._printed = printed
        lines = [_decoded(line) for line in printed.split(b"\n")]
        if len(printed) >= MOST_LOG_BYTES:
            lines = lines[1:] or [""]  # the first one lacks its beginning
            return Added(lines[:-1], lines[-1], anew=True, cut=True)
        return Added(lines[:-1], lines[-1], anew=True, cut=len(lines) > MOST_LINES)


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
        printed, is_whole = _drained(process)
        if not is_whole:
            process.kill()
        code = _exit_code(process)
    if not is_whole:
        return b"", f"{command[0]} did not end within {COMMAND_S:.0f} s, or printed too much"
    if code:
        lines = []
        for line in _decoded(printed).splitlines():
            if line.strip():
                lines.append(line)
        return b"", clean(lines[-1] if lines else f"{command[0]} failed with exit code {code}")
    return printed, ""


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process whose output has ended; 0 of one that lives on for a second, which is killed."""
    try:
        return process.wait(1.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return 0


def _drained(process: subprocess.Popen[bytes]) -> tuple[bytes, bool]:
    """The end of what a process prints, and whether it printed all of it in time."""
    assert process.stdout is not None
    chunks: deque[bytes] = deque(maxlen=MOST_LOG_BYTES // _CHUNK * 2)
    size = 0
    end_s = time.monotonic() + COMMAND_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while size < _MOST_READ and selector.select(max(0.0, end_s - time.monotonic())):
            chunk = os.read(process.stdout.fileno(), _CHUNK)
            if not chunk:
                return b"".join(chunks)[-MOST_LOG_BYTES:], True
            size += len(chunk)
            if chunks and len(chunks[-1]) + len(chunk) <= _CHUNK:
                chunks[-1] += chunk
            else:
                chunks.append(chunk)
    return b"", False


def _unwrapped(line: bytes, form: str) -> str:
    """A line of a log, without what the kubelet or Docker wrote around it."""
    text = _decoded(line)
    if form == "kubelet":
        return _KUBELET_LINE.sub("", text, count=1)
    if form == "json" and text:
        try:
            entry = json.loads(text)
        except ValueError:
            return text
        if isinstance(entry, dict):
            return str(entry.get("log", "")).rstrip("\n")
        return text
    return text


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _reason(error: OSError) -> str:
    if isinstance(error, LogAccessError):
        return str(error)
    return clean(error.strerror or str(error) or "cannot be read")


def whole_records(lines: Sequence[str], begins: Callable[[str], bool], most: int = 200) -> Iterable[str]:
    """The lines from the first record on: those before may be the end of a prompt. All where no record is near."""
    for index, line in enumerate(lines[:most]):
        if begins(line):
            return lines[index:]
    return lines
