"""A very small HTTP/1.1 server for GET on 127.0.0.1, on a port that the system chooses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from http import HTTPStatus

import msgspec

MOST_HEAD_BYTES = 16384
"""Longest request line with headers."""


class PageAnswer(msgspec.Struct, frozen=True):
    """Status, content type (empty for none) and body."""

    status: int
    content_type: str
    body: bytes


SILENCE = PageAnswer(0, "", b"")
"""No answer, ever: the connection stays open."""
NOT_FOUND = PageAnswer(404, "application/json", b'{"detail":"Not Found"}')


class LoopbackServer:
    """Answers GET with what `answer` says for the path (without its query). Other methods get 405.

    The port is known at once: the socket listens from the start, and whoever connects before `start` waits.
    """

    def __init__(self, answer: Callable[[str], PageAnswer | None]) -> None:
        """`answer` gives None where the process behind it has just ended: the client is hung up on."""
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        """The connections."""

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Begin to answer, in the running event loop."""
        self._server = await asyncio.start_server(self._serve, sock=self._socket, limit=MOST_HEAD_BYTES)

    async def listen(self, *, up: bool) -> None:
        """Go down as a process does that ends, or come back on the same port."""
        if up and self._server is None:
            self._socket = socket.create_server(("127.0.0.1", self.port))
            await self.start()
        elif not up and self._server is not None:
            await self.close()
            self._server = None

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        for writer in tuple(self._open):
            writer.transport.abort()
        if self._server is None:
            self._socket.close()
            return
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client: requests one after the other, kept alive until it hangs up or errs."""
        self._open.add(writer)
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                self._answer_request(head.decode("latin-1").split("\r\n"), writer)
                await writer.drain()
        except asyncio.LimitOverrunError:
            _send(writer, _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), keep=False)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    def _answer_request(self, lines: list[str], writer: asyncio.StreamWriter) -> None:
        """Answer a request, of which `lines` are the request line and the headers."""
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            _send(writer, _plain(HTTPStatus.BAD_REQUEST), keep=False)
            return
        method, target, version = words
        if method != "GET":
            # A body may follow, which nobody here reads: hang up.
            _send(writer, _plain(HTTPStatus.METHOD_NOT_ALLOWED), keep=False)
            return
        hangs_up = any(line.lower().replace(" ", "") == "connection:close" for line in lines[1:])
        answer = self._answer(target.partition("?")[0])
        if answer is None:
            writer.transport.abort()
        elif answer is not SILENCE:
            _send(writer, answer, keep=not hangs_up and version == "HTTP/1.1")


def _send(writer: asyncio.StreamWriter, answer: PageAnswer, *, keep: bool) -> None:
    """Send an answer, and hang up afterwards unless the connection is kept."""
    head = [
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        "server: gpumon-simulator",
        f"content-length: {len(answer.body)}",
    ]
    if answer.content_type:
        head.append(f"content-type: {answer.content_type}")
    if not keep:
        head.append("connection: close")
    writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + answer.body)
    if not keep:
        writer.close()


def _plain(status: HTTPStatus) -> PageAnswer:
    """The answer that has nothing but a status and its phrase."""
    return PageAnswer(status, "text/plain; charset=utf-8", status.phrase.encode())
