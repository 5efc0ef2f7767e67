"""The conversation with the shell of a host without gpumon, over one ssh (`host.sh` is its other end)."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from gpumon.deadline import timeout
from gpumon.readings.text import clean
from gpumon.sources.guest.wheels import PythonThere
from gpumon.sources.ssh import SshConnection, connect

FIRST_ANSWER_S: Final = 60.0
"""Longest wait for the first answer: login, start-up files of the shell, and up to six Pythons on a busy host."""
_ANSWER_S: Final = 120.0
"""Longest wait for any further answer: nvidia-smi opens the driver at every call, which takes up to 90 s on eight GPUs
without persistence mode."""
_MOST_LINES: Final = 20_000
"""Lines of one answer."""
_MOST_BYTES: Final = 16 << 20
"""Bytes of one answer: `host.sh` sends 8 kB of each of 256 processes, of those that started them, and the ports."""
MOST_PYTHONS: Final = 16
"""Pythons of one host that are looked at."""
_PYTHON: Final = re.compile(r"gpumon-python python3(\.[0-9]{1,2})? ")
"""Begin of a line that tells of a Python."""
_END: Final = b"gpumon-end "
"""Begin of the line behind an answer; the exit code follows."""
_PROGRAMS: Final = {"FACTS": "facts.py", "RUNNER": "runner.py"}
"""Variable of `host.sh` -> the program that it holds."""


class ShellError(Exception):
    """The conversation broke off: one line with the reason, where the host gave one."""


class ShellAnswer(msgspec.Struct, frozen=True):
    """Answer to one request: its lines, and the exit code of the program that gave them."""

    lines: tuple[str, ...]
    code: int


class Shell:
    """A shell on a host that answers requests. `close` ends all that it started there."""

    def __init__(self, connection: SshConnection) -> None:
        self.connection = connection

    async def pythons(self) -> tuple[tuple[str, PythonThere], ...]:
        """Programs that are a Python 3 there, each with its facts, the usual one first. Raises ShellError."""
        answer = await self._answer(FIRST_ANSWER_S)
        programs: list[tuple[str, PythonThere]] = []
        lines = [line for line in answer.lines if _PYTHON.match(line)]  # start-up files may print anything before
        for line in lines[:MOST_PYTHONS]:
            _, program, facts = line.split(" ", 2)
            try:
                programs.append((program, msgspec.json.decode(facts, type=PythonThere)))
            except msgspec.DecodeError:
                raise ShellError(
                    f"{program} there tells something else than facts of itself, or of a platform that is not known"
                ) from None
        return tuple(programs)

    async def run(self, program: str, archive: bytes) -> None:
        """Run gpumon there from an archive; from now on the connection's output is that of gpumon."""
        await self.connection.send(f"run {len(archive)} {program}\n".encode())
        await self.connection.send(archive)

    async def ask(self, request: str) -> ShellAnswer:
        """The answer to a request. Raises ShellError."""
        await self.connection.send(f"{request}\n".encode())
        return await self._answer(_ANSWER_S)

    async def close(self) -> None:
        """Hang up: the shell there sees the end of its input, and ends."""
        await self.connection.hang_up()

    async def _answer(self, patience_s: float) -> ShellAnswer:
        """The lines up to the next end. Raises ShellError."""
        try:
            async with timeout(patience_s):
                return await self._lines()
        except asyncio.TimeoutError:
            raise ShellError(f"no answer for {patience_s:.0f} s: its shell or nvidia-smi hangs") from None

    async def _lines(self) -> ShellAnswer:
        """The lines of an answer up to its end mark, with the exit code. Raises ShellError."""
        lines: list[str] = []
        bytes_left = _MOST_BYTES
        while line := await self._readline():
            if line.startswith(_END):
                code = clean(line[len(_END) :].decode("utf-8", "replace").strip(), 8)
                return ShellAnswer(tuple(lines), int(code) if code.isdecimal() else -1)
            lines.append(line.decode("utf-8", "replace").rstrip("\n"))
            if len(lines) > _MOST_LINES:
                raise ShellError(f"it answers with more than {_MOST_LINES} lines")
            bytes_left -= len(line)
            if bytes_left < 0:
                raise ShellError(f"it answers with more than {_MOST_BYTES >> 20} MiB")
        await self.connection.exit_code()
        raise ShellError(self.connection.last_words or "its shell ended")

    async def _readline(self) -> bytes:
        """The next line; empty at the end. Raises ShellError for one that is too long."""
        try:
            return await self.connection.readline()
        except ValueError:
            raise ShellError("it answers with a line of more than 2 MiB") from None


async def open_shell(address: str) -> Shell:
    """Log in and start the script. Raises FileNotFoundError where there is no ssh."""
    script = script_text().encode()
    connection = await connect(address, first_words(len(script)), writes=True)
    await connection.send(script)
    return Shell(connection)


def first_words(size: int) -> str:
    """The command of ssh: the shell that reads the script of so many bytes, and nothing more, from its input.

    Every login shell takes it as it is, and the script is not seen among the processes. A shell that is given a script
    as its input reads ahead, and would swallow what follows.
    """
    return f"sh -c 'eval \"$(dd bs=1 count={size} 2>/dev/null)\"'"


@cache
def script_text() -> str:
    """`host.sh` with the Python programs that it runs, as variables."""
    folder = Path(__file__).parent
    variables = [f"{name}={shlex.quote((folder / file).read_text())}" for name, file in _PROGRAMS.items()]
    return "\n".join([*variables, (folder / "host.sh").read_text()])


def first_lines(lines: Sequence[str]) -> str:
    """The first lines of an answer that is none, as one line."""
    return clean(" ".join(line.strip() for line in lines[:3] if line.strip()), 200)
