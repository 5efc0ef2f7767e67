"""A small HTTP server of GET requests in a thread of its own: it knows a callable, and nothing of what it serves."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from gpumon.deadline import timeout

MOST_CONNECTIONS: Final = 32
"""Open at once; one more ends the one that has been quiet for longest."""
MOST_OF_PEER: Final = 16
"""Open at once of one address: a scraper has one or two, a browser six."""
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
"""Time until the next attempt to accept a connection, after the process had too many files open."""
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
        listener.listen(MOST_CONNECTIONS)
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
        self._tls = tls
        self._login = login
        self._loop = asyncio.new_event_loop()
        self._accept_timer: asyncio.TimerHandle | None = None
        """Begins to accept again, after the process had too many files open."""
        self._used_s: dict[asyncio.Task[None], float] = {}
        """Open connections, and when each was opened or last answered."""
        self._sockets: dict[asyncio.Task[None], socket.socket] = {}
        """Sockets of connections that have no transport yet, which would close them."""
        self._transports: dict[asyncio.Task[None], asyncio.WriteTransport] = {}
        """Transports of connections, to end them by."""
        self._peers: dict[asyncio.Task[None], str] = {}
        """Addresses at the other ends of open connections."""
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Serve from now on; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop, whatever clients do; takes a fraction of a second."""
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
        if self._accept_timer is not None:
            self._accept_timer.cancel()
        tasks = tuple(self._used_s)
        for task in tasks:
            self._end_connection(task)
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
        """Take one connection: what else waits to be accepted must not hold up what is being served."""
        try:
            connection, address = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # it is gone again
            return
        except OSError:  # this process has too many files open
            self._loop.remove_reader(self._listener)
            self._accept_timer = self._loop.call_later(_ACCEPT_AGAIN_S, self._accept_from_now)
            return
        connection.setblocking(False)
        peer = address[0]
        of_peer = [task for task in self._used_s if self._peers[task] == peer]
        if len(of_peer) >= MOST_OF_PEER:
            self._end_quietest(of_peer)
        elif len(self._used_s) >= MOST_CONNECTIONS:
            self._end_quietest(self._used_s)
        task = self._loop.create_task(self._serve(connection))
        self._used_s[task] = self._loop.time()
        self._peers[task] = peer
        self._sockets[task] = connection
        task.add_done_callback(self._close_socket)

    def _end_quietest(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """End the connection that has been quiet for longest."""
        self._end_connection(min(tasks, key=lambda task: self._used_s[task]))

    def _end_connection(self, task: asyncio.Task[None]) -> None:
        """End a connection: its task, and its transport without waiting for what is not sent yet."""
        self._used_s.pop(task, None)
        self._peers.pop(task, None)
        task.cancel()
        transport = self._transports.pop(task, None)
        if transport is not None:
            transport.abort()

    def _close_socket(self, task: asyncio.Task[None]) -> None:
        """Close the socket of a connection that was ended before it had a transport to do so."""
        connection = self._sockets.pop(task, None)
        if connection is not None:
            connection.close()

    async def _serve(self, connection: socket.socket) -> None:
        """A connection, from its TLS handshake to its end."""
        task = asyncio.current_task()
        assert task is not None
        reader = asyncio.StreamReader(limit=MOST_HEAD, loop=self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        handshake_s = HEAD_S if self._tls else None
        try:
            base_transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls, ssl_handshake_timeout=handshake_s
            )
            del self._sockets[task]
            transport = cast("asyncio.WriteTransport", base_transport)
            self._transports[task] = transport
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            while await self._exchange(reader, writer):
                if task not in self._used_s:
                    return
                self._used_s[task] = self._loop.time()
                await asyncio.sleep(0)  # the others' turn: a client may have sent many requests at once
            writer.close()
            self._loop.call_later(_CLOSE_S, self._transports.pop(task).abort)
        except (OSError, EOFError, KeyError, asyncio.TimeoutError, asyncio.CancelledError):
            pass
        finally:
            self._end_connection(task)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; returns whether the connection goes on."""
        async with timeout(_IDLE_S):
            first_byte = await reader.readexactly(1)
        try:
            async with timeout(HEAD_S):
                rest_of_head = await reader.readuntil(b"\r\n\r\n")
            request = _parse_request(first_byte + rest_of_head)
            method = request.method
            keep_alive = request.keep_alive
            answer = self._respond(request)
        except asyncio.TimeoutError:
            method = "GET"
            answer = HttpResponse(408, b"the request did not end in time\n")
            keep_alive = False
        except asyncio.LimitOverrunError:
            method = "GET"
            answer = HttpResponse(431, b"the request is too long\n")
            keep_alive = False
        except ValueError:
            method = "GET"
            answer = HttpResponse(400, b"this is no HTTP request\n")
            keep_alive = False
        body = b"" if method == "HEAD" else answer.body
        writer.write(_head_of(answer, keep_alive=keep_alive) + body)
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
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
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
