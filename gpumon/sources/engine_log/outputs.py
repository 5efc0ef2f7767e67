"""Targets of a process's output, as /proc tells them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.sources.family import all_pids, read_process

LOG_OPTIONS: Final = ("--log-file",)
"""Options of engines (llama.cpp) that name a file for the log."""
_STANDARD_INPUT: Final = 0
_STANDARD_ERROR: Final = 2
_STANDARD: Final = (1, _STANDARD_ERROR)
"""Descriptors of standard output and error."""
_MOST_DESCRIPTORS: Final = 64
"""Descriptors of one process that are looked at: a log is opened early."""
_WRITES: Final = (os.O_WRONLY, os.O_RDWR)
"""Access modes of a descriptor that is written to."""


class Output(NamedTuple):
    """A descriptor that a process writes to."""

    pid: int
    descriptor: int
    target: str
    """Its target: a path as that process sees it, `pipe:[123]`, `socket:[123]`. Text from outside."""
    mode: int
    """Type of what it leads to, as `st_mode` has it."""
    file_id: tuple[int, int]
    """Device and inode."""

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file, with a name or deleted."""
        return stat.S_ISREG(self.mode)


def targets_of(pid: int) -> dict[int, str]:
    """Descriptor that a process writes its log to -> what it leads to; empty where Linux hides that from this user.

    They are that of an option's file, standard output and standard error, in this order. Asks no file system: one that
    hangs holds nothing up here.
    """
    targets = {descriptor: _target(pid, descriptor) for descriptor in (*_log_descriptors(pid), *_STANDARD)}
    return {descriptor: target for descriptor, target in targets.items() if target}


def outputs_of(pid: int) -> list[Output]:
    """The outputs that a process writes its log to, each thing once. May hang where its file system does."""
    outputs: dict[tuple[int, int], Output] = {}
    for descriptor in targets_of(pid):
        output = _output(pid, descriptor)
        if output is not None:
            outputs.setdefault(output.file_id, output)
    return list(outputs.values())


def behind_pipe(pipe: str) -> list[Output]:
    """Files that the reader of a pipe (`pipe:[123]`) writes, as `tee` does. Looks at every process of the host."""
    for pid in all_pids():
        if _target(pid, _STANDARD_INPUT) == pipe:
            files = []
            for descriptor in _written(pid):
                if descriptor == _STANDARD_ERROR:  # its own words
                    continue
                output = _output(pid, descriptor)
                if output is not None and output.is_file:
                    files.append(output)
            return files
    return []


def _output(pid: int, descriptor: int) -> Output | None:
    """An open file of a process; None where it is closed, or Linux hides it from this user."""
    try:
        status = Path(f"/proc/{pid}/fd/{descriptor}").stat()
    except OSError:
        return None
    target = _target(pid, descriptor)
    return Output(pid, descriptor, target, status.st_mode, (status.st_dev, status.st_ino))


def _target(pid: int, descriptor: int) -> str:
    """The target of a descriptor; empty where Linux hides it from this user."""
    try:
        return str(Path(f"/proc/{pid}/fd/{descriptor}").readlink())
    except OSError:
        return ""


def _log_descriptors(pid: int) -> Iterator[int]:
    """Descriptors of the file that an option names."""
    server = read_process(pid)
    if server is None:
        return
    for name in _named_logs(server.argv):
        try:
            path = os.path.normpath(Path(f"/proc/{pid}/cwd").readlink() / name)
        except OSError:
            continue
        for descriptor in _written(pid):
            if _target(pid, descriptor) == path:
                yield descriptor


def _named_logs(argv: tuple[str, ...]) -> Iterator[str]:
    """Paths of the files that the options of a command line name, as `--log-file PATH` or `--log-file=PATH`."""
    for word, next_word in zip_longest(argv, argv[1:], fillvalue=""):
        name, sign, joined_value = word.partition("=")
        value = joined_value if sign else next_word
        if name in LOG_OPTIONS and value:
            yield value


def _written(pid: int) -> list[int]:
    """Descriptors that a process may write to, the lowest of them."""
    try:
        names = sorted(int(entry.name) for entry in Path(f"/proc/{pid}/fdinfo").iterdir())
    except OSError:
        return []
    return [descriptor for descriptor in names[:_MOST_DESCRIPTORS] if _is_written(pid, descriptor)]


def _is_written(pid: int, descriptor: int) -> bool:
    """Whether a descriptor was opened for writing (proc_pid_fdinfo(5): `flags` in octal)."""
    try:
        lines = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text(errors="replace").splitlines()
    except OSError:
        return False
    for line in lines:
        name, _, value = line.partition(":")
        if name == "flags":
            return int(value.strip(), 8) & os.O_ACCMODE in _WRITES
    return False
