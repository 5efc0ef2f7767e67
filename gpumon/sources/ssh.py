"""A started ssh: what it prints, how it ended, and its end whatever its children hold open."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import Sequence
from typing import Final, cast

from gpumon.readings.text import clean
from gpumon.triage.peers import MOST_SNAPSHOT_BYTES

_OPTIONS: Final = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5"),
    *("-o", "ServerAliveCountMax=3", "-o", "ClearAllForwardings=yes", "-o", "ControlMaster=no"),
    *("-o", "ForwardAgent=no", "-o", "ForwardX11=no"),
)
"""No terminal, no question, an end within 15 s where the network is gone, and nothing that stays in the background (a
shared connection that is there is used). Neither the user's agent nor the display is lent to the host: the connection
stands for days, and whoever is root there could use them all the while. The rest is the user's own config."""
HANG_UP_S: Final = 1.0
"""Longest wait for ssh to end by itself when it is asked to; then it is killed."""
_END_S: Final = 2.0
"""Longest wait for ssh's last words once its output has ended: what it started may keep stderr open for long, and
asyncio waits for that, too."""
_LAST_LINES: Final = 3
_LAST_CHARACTERS: Final = 300
"""Lines and characters of stderr that are shown."""
MOST_STDERR_BYTES: Final = 4096
"""Bytes kept of what ssh, and the program on the host, wrote to stderr last."""
_STDERR: Final = 2
"""Number of that pipe."""
_STDERR_PIECE_BYTES: Final = 256 << 10
"""Bytes that are read at once: as much as a pipe has, so that the end is reached soon."""
_STDERR_PAUSE_S: Final = 0.05
"""Pause before more of stderr is read, where much came at once: a host that floods it would cost half a core."""


class SshConnection:
    """One ssh with pipes. Whoever opens it calls `hang_up`."""

    def __init__(self, transport: asyncio.SubprocessTransport, process: asyncio.subprocess.Process) -> None:
        self._transport = transport
        self._process = process
        self._stderr = bytearray()
        self._tasks = {asyncio.create_task(self._keep_stderr()), asyncio.create_task(self._wait())}

    async def readline(self) -> bytes:
        """The next line of its output; empty at the end. Raises ValueError for a line beyond `MOST_SNAPSHOT_BYTES`."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    async def send(self, data: bytes) -> None:
        """Write to its input. A connection that has ended takes nothing: its output tells that."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    def end_input(self) -> None:
        """Send nothing more: what runs on the host sees the end of its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def exit_code(self) -> int:
        """The exit code, once its output has ended; -1 where it still runs."""
        await asyncio.wait(self._tasks, timeout=_END_S)
        code = self._process.returncode
        if code is None:
            return -1
        return code

    @property
    def last_words(self) -> str:
        """The last lines that were written to stderr, as one line; without ssh's own warnings."""
        lines = map(str.strip, re.split(r"[\r\n]+", self._stderr.decode("utf-8", "replace")))
        told = [line for line in lines if line and not line.startswith(("Warning: Permanently added", "@@@"))]
        return clean(" ".join(told[-_LAST_LINES:]), _LAST_CHARACTERS)

    async def ended(self) -> None:
        """Wait until it has ended and all was read that it said."""
        await asyncio.wait(self._tasks)

    async def hang_up(self) -> None:
        """End it and close its pipes, whoever else holds their other ends; returns when it is gone."""
        for task in self._tasks:
            task.cancel()
        try:
            if self._transport.get_returncode() is None:
                with contextlib.suppress(ProcessLookupError):
                    self._transport.terminate()
                await self._await_exit()
        finally:
            self._transport.close()  # kills it where it still runs
            await self._process.wait()

    async def _await_exit(self) -> None:
        """Wait until the process has ended, whether or not its pipes have; at most `HANG_UP_S`."""
        end_s = time.monotonic() + HANG_UP_S
        while self._transport.get_returncode() is None and time.monotonic() < end_s:
            await asyncio.sleep(0.01)

    async def _keep_stderr(self) -> None:
        """Read stderr to its end, and keep its last bytes."""
        assert self._process.stderr is not None
        pipe = cast("asyncio.ReadTransport", self._transport.get_pipe_transport(_STDERR))
        while part := await self._process.stderr.read(_STDERR_PIECE_BYTES):
            self._stderr += part
            del self._stderr[:-MOST_STDERR_BYTES]
            if len(part) > MOST_STDERR_BYTES:
                pipe.pause_reading()  # else all that comes meanwhile is kept
                await asyncio.sleep(_STDERR_PAUSE_S)
                pipe.resume_reading()

    async def _wait(self) -> None:
        """Wait until the process and its pipes have ended."""
        await self._process.wait()


async def connect(address: str, command: str, *, writes: bool = False) -> SshConnection:
    """Run a command in the shell of a host. `writes`: something is sent to its input. Raises FileNotFoundError."""
    stdin = asyncio.subprocess.PIPE if writes else asyncio.subprocess.DEVNULL
    return await _start((*_OPTIONS, "--", address, command), stdin, stdout=asyncio.subprocess.PIPE)


async def carry(address: str, target: str, channel: socket.socket) -> SshConnection:
    """Connect a socket with a port of a host (`HOST:PORT`, as that host sees it). Raises FileNotFoundError."""
    return await _start((*_OPTIONS, "-W", target, "--", address), channel.fileno(), channel.fileno())


async def _start(command: Sequence[str], stdin: int, stdout: int) -> SshConnection:
    """Start ssh in a session of its own: `asyncio.create_subprocess_exec` gives no way to close a process's pipes.

    Once begun, a start is completed, and ended where it is no longer wanted: a transport of asyncio that is cancelled
    before its pipes are connected waits until everybody else has closed them.
    """
    starting = asyncio.create_task(_open(command, stdin, stdout))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait({starting})
        if starting.exception() is None:
            await starting.result().hang_up()
        raise


async def _open(command: Sequence[str], stdin: int, stdout: int) -> SshConnection:
    """A started ssh and its pipes. Raises FileNotFoundError."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: asyncio.subprocess.SubprocessStreamProtocol(MOST_SNAPSHOT_BYTES, loop),
        *command,
        stdin=stdin,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    return SshConnection(transport, asyncio.subprocess.Process(transport, protocol, loop))
