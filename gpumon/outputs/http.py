"""A small HTTP server of GET requests in a thread of its own: it knows a callable, and nothing of what it serves."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import hashlib
import hmac
import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from weakref import WeakSet

from gpumon.deadline import timeout
from gpumon.outputs.handshakes import Handshakes, TlsStreamProtocol

MOST_CONNECTIONS: Final = 96
"""Open at once; one more ends the one that has been quiet for longest."""
MOST_OF_PEER: Final = 64
"""Open at once of one address: a scraper has one or two, a browser six, an address translator many."""
MOST_HEAD: Final = 8192
"""Bytes of a request's head."""
HEAD_S: Final = 10.0
"""Longest time from the first byte of a request to its last, and of a TLS handshake."""
_IDLE_S: Final = 120.0
"""Longest time between two requests of a connection."""
_SEND_S: Final = 20.0
"""Longest time that a client takes for an answer."""
_CLOSE_S: Final = 5.0
"""Longest time that a client takes for the rest of the last answer of its connection."""
_ACCEPT_AGAIN_S: Final = 0.1
"""Time until the next attempt to accept a connection, after one failed."""
_WITHOUT_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Codes of `accept` for which an open connection is in the way: this process or the host has too many files open, or
the kernel has no memory left."""
_MAKE_ROOM_AGAIN_S: Final = 0.002
"""Time until the next attempt to make room for a connection, where all others are still to be answered."""
_WAITING_CONNECTIONS: Final = 512
"""Connections that wait in the kernel to be accepted: one that finds no room there comes again after a second."""
_FIRST_REQUEST_S: Final = 0.1
"""Time that a new connection has for its first request, while others wait for its place."""
_ACCEPTED_AT_ONCE: Final = 16
"""Connections accepted in one turn of the loop: an honest one may be the last of those that wait in the kernel."""
STATUS_WORDS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
"""Status codes of this server's answers."""
_HOST_HEADER: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_.-]+))(?::\d{1,5})?", re.ASCII | re.IGNORECASE)
"""A `Host` header line: an address in brackets or a name, and perhaps a port."""
_SCHEME_AND_HOST: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
"""Begin of a request's target as a proxy is sent it."""
_BREAKS_IN_LINE: Final = re.compile(r"\r(?!\n)|(?<!\r)\n|\0")
"""A CR, an LF or a NUL by itself: a proxy in front may read another line there, such as the length of a body
(RFC 9112, 2.2)."""
_SINGLE_HEADERS: Final = ("host", "content-length")
"""Header lines of which two are an error (RFC 9112, 3.2 and 6.3)."""


class HttpRequest(NamedTuple):
    """A request of a client."""

    method: str
    path: str
    """Path without its query."""
    headers: Mapping[str, str]
    """Header lines by name in lower case."""
    keep_alive: bool
    """Whether the connection goes on behind the answer."""


class HttpResponse(NamedTuple):
    """The answer to a request."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}


class Login(NamedTuple):
    """Name and password of basic auth; only their digest is kept."""

    digest: bytes

    @classmethod
    def of(cls, user: str, password: str) -> Login:
        """The login of a user."""
        return cls(hashlib.sha256(f"{user}:{password}".encode()).digest())

    def admits(self, authorization: str) -> bool:
        """Whether an `Authorization` header is this login; takes the same time whatever is wrong with it."""
        scheme, _, word = authorization.partition(" ")
        credentials = b""
        if scheme.lower() == "basic":
            with contextlib.suppress(ValueError):
                credentials = base64.b64decode(word.strip(), validate=True)
        return hmac.compare_digest(hashlib.sha256(credentials).digest(), self.digest)


def listening_socket(host: str, port: int) -> socket.socket:
    """A TCP socket that listens at a host's first address. Raises OSError."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = addresses[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(_WAITING_CONNECTIONS)
    except OSError:
        listener.close()
        raise
    return listener


def host_in_header(header: str) -> str:
    """Name or address in a `Host` header line, in lower case, without port and brackets; empty where it is none."""
    parts = _HOST_HEADER.fullmatch(header)
    if parts:
        return (parts[1] or parts[2]).lower()
    return ""


@dataclass
class _Connection:
    """An open connection."""

    peer: str
    """Address at the other end."""
    socket: socket.socket | None
    """None once there is a transport, which closes it."""
    used_s: float
    """Time at which it was opened or last answered."""
    has_asked: bool = False
    """Whether a request of it has come."""
    is_answered: bool = False
    """Whether a request of it was answered."""
    transport: asyncio.WriteTransport | None = None
    """Ends it without waiting for what is not sent yet."""

    def close_socket(self) -> None:
        """Close the socket of a connection that was ended before it had a transport to do so."""
        if self.socket is not None:
            self.socket.close()


class HttpServer:
    """Serves what `answer` gives for a path and header lines (lower-case names), until `close`."""

    def __init__(
        self,
        listener: socket.socket,
        answer: Callable[[str, Mapping[str, str]], HttpResponse],
        *,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
    ) -> None:
        """`answer` is called in the server's thread, one call at a time."""
        self._listener = listener
        self._answer = answer
        self._handshakes = Handshakes(tls) if tls is not None else None
        self._login = login
        self._loop = asyncio.new_event_loop()
        self._next_attempt: asyncio.TimerHandle | None = None
        """Begins to accept again, after there was no room, or no connection could be accepted."""
        self._without_room: _Connection | None = None
        """A connection for which there is no room yet."""
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._closing: WeakSet[asyncio.WriteTransport] = WeakSet()
        """Transports of connections that are over, whose clients are still to read the rest."""
        self._turn = asyncio.Lock()
        """Held by the connection that is answered: the others wait in the order in which they asked."""
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Serve from now on; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop, whatever clients do; takes a fraction of a second."""
        if self._thread.ident is None:  # it could not be started
            self._loop.close()
        else:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(2.0)
        self._listener.close()

    def _run(self) -> None:
        """Serve in this thread until the loop is stopped, then end all connections."""
        loop = self._loop
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(lambda *_: None)  # what clients do is no news
        self._listener.setblocking(False)
        self._accept_from_now()
        loop.run_forever()
        loop.remove_reader(self._listener)
        if self._next_attempt is not None:
            self._next_attempt.cancel()
        if self._without_room is not None:
            self._without_room.close_socket()
        tasks = tuple(self._connections)
        for task in tasks:
            self._end_connection(task)
        for transport in self._closing:
            transport.abort()
        with contextlib.suppress(Exception):  # nothing is served any more: the loop is closed whatever is raised
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
            loop.run_until_complete(asyncio.sleep(0.01))  # transports close their sockets a turn later
        loop.close()

    def _accept_from_now(self) -> None:
        """Accept connections from now on.

        A task that waits in `sock_accept` loses the connection that comes as it is cancelled: nobody closes that.
        """
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        """Take a few connections: what else waits to be accepted must not hold up what is being served."""
        for _ in range(_ACCEPTED_AT_ONCE):
            if not self._accept_one():
                return

    def _accept_one(self) -> bool:
        """Take one connection; returns whether to go on."""
        try:
            connection, address = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # none waits, or it is gone again
            return False
        except OSError as fault:  # it stays in the way, or is one that the network or a firewall has ended
            if fault.errno in _WITHOUT_ROOM:
                self._end_quietest(self._connections)
            self._loop.remove_reader(self._listener)
            self._next_attempt = self._loop.call_later(_ACCEPT_AGAIN_S, self._accept_from_now)
            return False
        connection.setblocking(False)
        self._admit(_Connection(address[0], connection, self._loop.time()), connection)
        return self._without_room is None

    def _admit(self, connection: _Connection, accepted: socket.socket) -> None:
        """Serve a connection once there is room for it; meanwhile no other is accepted."""
        if not self._make_room(connection.peer):
            self._loop.remove_reader(self._listener)
            self._next_attempt = self._loop.call_later(_MAKE_ROOM_AGAIN_S, self._admit, connection, accepted)
            self._without_room = connection
            return
        if self._without_room is not None:
            self._without_room = None
            self._accept_from_now()
        connection.used_s = self._loop.time()
        task = self._loop.create_task(self._serve(connection, accepted))
        self._connections[task] = connection
        task.add_done_callback(lambda _: connection.close_socket())

    def _make_room(self, peer: str) -> bool:
        """End a connection if there are too many: of this peer if it has its share, else of whoever has most.

        False where none can be ended by now: each is to have an answer to its first request.
        """
        of_peers = Counter(connection.peer for connection in self._connections.values())
        if of_peers[peer] < MOST_OF_PEER:
            if len(self._connections) < MOST_CONNECTIONS:
                return True
            peer = of_peers.most_common(1)[0][0]
        return self._end_quietest([task for task, held in self._connections.items() if held.peer == peer])

    def _end_quietest(self, tasks: Iterable[asyncio.Task[None]]) -> bool:
        """End the connection that has been quiet for longest; False where each is still to have its first answer."""
        quiet = [task for task in tasks if not self._is_new(self._connections[task])]
        if not quiet:
            return False
        self._end_connection(min(quiet, key=lambda task: self._connections[task].used_s))
        return True

    def _is_new(self, connection: _Connection) -> bool:
        """Whether a connection is still to have its first answer."""
        if connection.is_answered:
            return False
        return connection.has_asked or self._loop.time() - connection.used_s < _FIRST_REQUEST_S

    def _end_connection(self, task: asyncio.Task[None]) -> None:
        """End a connection: its task, and its transport without waiting for what is not sent yet."""
        connection = self._connections.pop(task, None)
        if connection is None:
            return
        task.cancel()
        if connection.transport is not None:
            connection.transport.abort()

    async def _serve(self, connection: _Connection, accepted: socket.socket) -> None:
        """A connection, from its TLS handshake to its end."""
        task = asyncio.current_task()
        assert task is not None
        reader = asyncio.StreamReader(limit=MOST_HEAD, loop=self._loop)
        try:
            transport, protocol = await self._open(connection, accepted, reader)
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            while await self._exchange(connection, reader, writer):
                if task not in self._connections:
                    return
            writer.close()
            connection.transport = None
            self._closing.add(transport)
            self._loop.call_later(_CLOSE_S, transport.abort)
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.CancelledError):
            pass
        finally:
            self._end_connection(task)

    async def _open(
        self, connection: _Connection, accepted: socket.socket, reader: asyncio.StreamReader
    ) -> tuple[asyncio.WriteTransport, asyncio.StreamReaderProtocol]:
        """The transport of a connection after its TLS handshake, and the protocol that feeds `reader` from it."""
        is_plain = self._handshakes is None
        protocol = asyncio.StreamReaderProtocol(reader) if is_plain else TlsStreamProtocol(reader)
        first_protocol = protocol if is_plain else asyncio.Protocol()  # no byte comes before its handshake begins
        transport, _ = await self._loop.connect_accepted_socket(lambda: first_protocol, accepted)
        connection.socket = None
        connection.transport = transport
        if self._handshakes is not None:
            transport = await self._handshakes.encrypt(transport, connection.peer, protocol, HEAD_S)
            connection.transport = transport
        return transport, protocol

    async def _exchange(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """One request and its answer; returns whether the connection goes on."""
        async with timeout(_IDLE_S):
            first_byte = await reader.readexactly(1)
        request: HttpRequest | None = None
        try:
            async with timeout(HEAD_S):
                rest_of_head = await reader.readuntil(b"\r\n\r\n")
            request = _parse_request(first_byte + rest_of_head)
        except asyncio.TimeoutError:
            answer = HttpResponse(408, b"the request did not end in time\n")
        except asyncio.LimitOverrunError:
            answer = HttpResponse(431, b"the request is too long\n")
        except ValueError:
            answer = HttpResponse(400, b"this is no HTTP request\n")
        connection.has_asked = True
        async with self._turn:
            keep_alive = request is not None and request.keep_alive
            is_head = request is not None and request.method == "HEAD"
            if request is not None:
                answer = self._respond(request)
            body = b"" if is_head else answer.body
            writer.write(_head_of(answer, keep_alive=keep_alive) + body)
            connection.used_s = self._loop.time()
            connection.is_answered = True
            await asyncio.sleep(0)  # connections are accepted and requests read between two answers
        async with timeout(_SEND_S):
            await writer.drain()
        return keep_alive

    def _respond(self, request: HttpRequest) -> HttpResponse:
        """The answer to a request, after the checks of login and method."""
        if self._login is not None and not self._login.admits(request.headers.get("authorization", "")):
            return HttpResponse(
                401, b"name and password, please\n", headers={"WWW-Authenticate": 'Basic realm="gpumon"'}
            )
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(405, b"only GET and HEAD\n", headers={"Allow": "GET, HEAD"})
        try:
            return self._answer(request.path, request.headers)
        except Exception as bug:  # whatever a page fails on costs that page
            return HttpResponse(500, f"gpumon failed on this page, please report: {type(bug).__name__}\n".encode())


def _parse_request(head: bytes) -> HttpRequest:
    """The request of a head. Raises ValueError."""
    text = head.decode("latin-1").removesuffix("\r\n\r\n")
    if _BREAKS_IN_LINE.search(text):
        raise ValueError(text)
    first, *lines = text.split("\r\n")
    method, target, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    headers = _parse_headers(lines)
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    keep_alive = _is_kept_alive(version, headers.get("connection", "").lower()) and not has_body
    if _SCHEME_AND_HOST.match(target):
        target = _SCHEME_AND_HOST.sub("", target, count=1)  # as it is asked of a proxy
    return HttpRequest(method, target.partition("?")[0] or "/", headers, keep_alive)


def _parse_headers(lines: Sequence[str]) -> dict[str, str]:
    """The header lines by name in lower case. Raises ValueError."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        key = name.lower()
        if not colon or not name or name != name.strip():
            raise ValueError(line)
        if key in _SINGLE_HEADERS and key in headers:
            raise ValueError(line)
        headers[key] = value.strip()
    return headers


def _is_kept_alive(version: str, connection: str) -> bool:
    """Whether the connection goes on behind the answer, by the version and the header line `Connection`."""
    if "close" in connection:
        return False
    return version != "HTTP/1.0" or "keep-alive" in connection


def _head_of(answer: HttpResponse, *, keep_alive: bool) -> bytes:
    """Status line and header lines of an answer, with the empty line behind them."""
    connection = "keep-alive" if keep_alive else "close"
    headers = {
        "Content-Type": answer.content_type,
        "Content-Length": str(len(answer.body)),
        "Connection": connection,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'",
        **answer.headers,
    }
    lines = [f"HTTP/1.1 {answer.status} {STATUS_WORDS[answer.status]}"]
    for name, text in headers.items():
        lines.append(f"{name}: {text}")
    return "\r\n".join((*lines, "", "")).encode("latin-1")
