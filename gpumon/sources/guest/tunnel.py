"""A way to a port of another host through ssh that no other user of this machine can take."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from typing import Any, Final

from gpumon.sources.ssh import carry

_BACKLOG: Final = 4
"""Connections that wait until one is taken: gpumon makes few at a time."""
_PAUSE_S: Final = 1.0
"""Seconds until a connection is taken again where there were no more open files."""


class Tunnel:
    """A Unix socket in a folder of this user alone; each connection to it is one `ssh -W`.

    A forwarded TCP port (`ssh -L`) would be open to every user here.
    """

    def __init__(self, address: str, target: str, path: str) -> None:
        """`address` of the host as ssh takes it, `target` (`HOST:PORT`) as seen from there."""
        self.path = path
        self.last_words = ""
        """Last words of the ssh that failed last; empty where none did."""
        self._address = address
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Listen. Raises OSError."""
        self._listener.bind(self.path)
        self._listener.listen(_BACKLOG)
        self._start_task(self._accept())

    async def close(self) -> None:
        """End all connections; returns when their ssh are gone."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._listener.close()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task, and keep it until it has ended."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        """Take connections from the socket, for ever, and carry each to the host."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                channel, _ = await loop.sock_accept(self._listener)
            except OSError as error:  # noqa: PERF203 - no more open files to be had, for now
                self.last_words = f"no connection: {error.strerror}"
                await asyncio.sleep(_PAUSE_S)
            else:
                self._start_task(self._carry(channel))

    async def _carry(self, channel: socket.socket) -> None:
        """Carry one connection from its begin to its end."""
        with contextlib.closing(channel):
            try:
                connection = await carry(self._address, self._target, channel)
            except OSError as error:  # no ssh here, or no more processes to be had
                self.last_words = f"ssh does not start: {error.strerror}"
                return
        try:
            await connection.ended()
            code = await connection.exit_code()
            self.last_words = ""
            if code:
                self.last_words = connection.last_words
        finally:
            await connection.hang_up()
