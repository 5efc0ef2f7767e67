"""TLS handshakes of a server in turns: however many clients of an address begin one, another address waits for one.

A handshake is computed in the thread that serves everybody; a signature of RSA 4096 takes 7 ms of it. asyncio computes
a step as soon as it has read it, so a connection that waits for its turn does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary


class _Turns:
    """Turns of connections: one at a time, and of each address only one among those that wait to be next."""

    def __init__(self) -> None:
        self._next = asyncio.Lock()
        self._of_peers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By address, held by its connection that waits for `_next` or has it: the others wait in their order."""

    @contextlib.asynccontextmanager
    async def turn(self, peer: str) -> AsyncIterator[None]:
        """A turn of a connection of this address."""
        of_peer = self._of_peers.setdefault(peer, asyncio.Lock())
        async with of_peer, self._next:
            yield


class Handshakes:
    """Begins TLS on accepted connections, a step of one of them at a time: each address in its turn."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._first_steps = _Turns()
        """For the first step of each connection: it signs, which takes longest."""
        self._later_steps = _Turns()
        """For all others: a client that has its signature does not wait for those of other addresses again."""

    async def encrypt(
        self, transport: asyncio.Transport, peer: str, protocol: asyncio.StreamReaderProtocol, most_s: float
    ) -> asyncio.Transport:
        """The transport of `protocol` after a handshake over `transport`, which must not have read anything yet.

        `most_s`: longest time of the handshake and of its waits for a turn. Raises OSError.
        """
        arrivals: socket.socket = transport.get_extra_info("socket").dup()  # asyncio lets nobody watch its own
        steps = asyncio.create_task(self._read_in_turns(transport, arrivals, peer))
        steps.add_done_callback(lambda _: arrivals.close())
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                transport, protocol, self._tls, server_side=True, ssl_handshake_timeout=most_s
            )
        finally:
            steps.cancel()
        if encrypted is None:
            raise ConnectionResetError
        protocol.connection_made(encrypted)
        transport.resume_reading()
        return encrypted

    async def _read_in_turns(self, transport: asyncio.Transport, arrivals: socket.socket, peer: str) -> None:
        """Let a handshake read what has arrived, and so compute its next step, in turns until this is cancelled.

        A client that has sent nothing since its last step waits for no turn.
        """
        await asyncio.sleep(0)  # `start_tls` begins to read
        turns = self._first_steps
        while True:
            transport.pause_reading()
            await _wait_readable(arrivals)
            async with turns.turn(peer):
                # A client that has its signature may have asked and closed its side already: it still reads the answer.
                if turns is self._first_steps and _is_given_up(arrivals):
                    transport.abort()
                    return
                transport.resume_reading()
                await asyncio.sleep(0)  # the loop finds it readable
                await asyncio.sleep(0)  # it is read
            turns = self._later_steps


async def _wait_readable(connection: socket.socket) -> None:
    """Wait until something has arrived, or the other side has closed."""
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    loop.add_reader(connection, is_readable.set)
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(connection)


def _is_given_up(connection: socket.socket) -> bool:
    """Whether the other side has closed, whatever it sent before: it can send no further step."""
    closed = select.poll()
    closed.register(connection, select.POLLRDHUP)
    return bool(closed.poll(0))


class TlsStreamProtocol(asyncio.StreamReaderProtocol):
    """Protocol of a reader over TLS, which cannot be half closed."""

    def eof_received(self) -> bool:
        """False: asyncio warns about True, which it is told by default if the end comes with the handshake's."""
        super().eof_received()
        return False
