"""A very small HTTP/1.1 server for GET on 127.0.0.1, on a port that the system chooses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from http import HTTPStatus

import msgspec

MOST_HEAD_BYTES = 16384


class Answer(msgspec.Struct, frozen=True):
    """Status, content type (empty for none) and body."""

    status: int
    content_type: str
    body: bytes


SILENCE = Answer(0, "", b"")
"""No answer, ever: the connection stays open."""
NOT_FOUND = Answer(404, "application/json", b'{"detail":"Not Found"}')


class LoopbackServer:
    """Answers GET with what `answer` says for the path (without its query). Other methods get 405.

    The port is known at once: the socket listens from the start, and whoever connects before `start` waits.
    """

    def __init__(self, answer: Callable[[str], Answer | None]) -> None:
        """`answer` gives None where the process behind it has just ended: the client is hung up on."""
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Transport] = set()

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Begin to answer, in the running event loop."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self._answer, self._open), sock=self._socket)

    async def listen(self, *, up: bool) -> None:
        """Go down as a process does that ends, or come back on the same port."""
        if up and self._server is None:
            self._socket = socket.create_server(("127.0.0.1", self.port))
            self._socket.setblocking(False)
            await self.start()
        elif not up and self._server is not None:
            await self.close()
            self._server = None

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        for transport in tuple(self._open):
            transport.abort()
        if self._server is None:
            self._socket.close()
            return
        self._server.close()
        await self._server.wait_closed()


class _Connection(asyncio.Protocol):
    """One client: requests one after the other, kept alive until it hangs up or errs."""

    def __init__(self, answer: Callable[[str], Answer | None], others: set[asyncio.Transport]) -> None:
        self._answer = answer
        self._others = others
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._others.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._others.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while not self._transport.is_closing():
            head, end, rest = self._received.partition(b"\r\n\r\n")
            if not end:
                if len(head) > MOST_HEAD_BYTES:
                    self._send(_plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), keep=False)
                return
            self._received = rest
            self._request(head)

    def _request(self, head: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._send(_plain(HTTPStatus.BAD_REQUEST), keep=False)
        elif words[0] != "GET":
            # A body may follow, which nobody here reads: hang up.
            self._send(_plain(HTTPStatus.METHOD_NOT_ALLOWED), keep=False)
        else:
            close = any(line.lower().replace(" ", "") == "connection:close" for line in lines[1:])
            answer = self._answer(words[1].partition("?")[0])
            if answer is None:
                self._transport.abort()
            elif answer is not SILENCE:
                self._send(answer, keep=not close and words[2] == "HTTP/1.1")

    def _send(self, answer: Answer, keep: bool) -> None:
        head = [
            f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
            "server: gpumon-simulator",
            f"content-length: {len(answer.body)}",
        ]
        if answer.content_type:
            head.append(f"content-type: {answer.content_type}")
        if not keep:
            head.append("connection: close")
        self._transport.write("\r\n".join([*head, "", ""]).encode("latin-1") + answer.body)
        if not keep:
            self._transport.close()


def _plain(status: HTTPStatus) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", status.phrase.encode())
