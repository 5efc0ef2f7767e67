"""HTTP/1.1 as a client speaks it: a connection that is kept, one request at a time, and its answer read within bounds.

Nothing of a request is automatic here: no redirects, no cookies, no proxies, no log lines.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlsplit

MOST_HEAD_BYTES: Final = 100 * 1024
"""Bytes of the status line and the headers, or of the trailers of a body in chunks, that are read."""
MOST_CHUNK_LINE: Final = 4096
"""Bytes of the line before a chunk that are read."""
STAGGER_S: Final = 0.25
"""Head start of each address of a host, before the next one is tried beside it (RFC 8305)."""
INFORMATIONAL: Final = 200
"""Statuses below this one come before the answer."""
WITHOUT_BODY: Final = frozenset({204, 304})
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_START: Final = b"HTTP/"
_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")
_STATUS: Final = re.compile(rb"HTTP/([0-9])\.([0-9]) ([0-9]{3})(?: [^\r\n]*)?\r?")
_HEADER: Final = re.compile(rb"([-!#$%&'*+.^_`|~0-9A-Za-z]+):[ \t]*([^\x00]*?)[ \t\r]*")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r?")
_LENGTH: Final = re.compile("[0-9]{1,18}")
_SAFE: Final = "/%:@!$&'()*+,;=~-._?"
"""Characters of a path and a query that are sent as they are."""


class ProtocolError(Exception):
    """The server's bytes are no valid answer, or end in the middle of one. Its text holds nothing of them."""


class ConnectTimeoutError(Exception):
    """No connection within the time for it."""


class AddressesError(Exception):
    """None of a host's addresses takes a connection."""

    def __init__(self, exceptions: Sequence[OSError]) -> None:
        super().__init__("no address takes a connection")
        self.exceptions = exceptions


class Head(NamedTuple):
    """Status and headers of an answer; names in lower case, of several headers of one name the values joined."""

    status: int
    headers: Mapping[str, str]
    keeps_open: bool
    """Whether the connection may be used again."""


class Body(Protocol):
    """Takes the body of an answer, piece by piece."""

    def add(self, piece: bytes) -> None:
        """Take a piece; what it raises ends the reading."""


BodyT = TypeVar("BodyT", bound=Body)


class AnswerReader(Generic[BodyT]):
    """Reads one answer from the bytes that arrive; does no I/O. Its methods raise ProtocolError."""

    def __init__(self, body_of: Callable[[Head], BodyT]) -> None:
        """`body_of` gives what takes the body of an answer with this head."""
        self.head: Head | None = None
        """Status and headers, once they are there."""
        self.complete = False
        """Whether the whole answer was read."""
        self._body_of = body_of
        self._body: BodyT | None = None
        self._read: Callable[[], bool] = self._read_head
        """Takes what it can of the bytes at hand; returns whether it got on: not where it needs more of them."""
        self._data = b""
        """The bytes at hand."""
        self._place = 0
        """How many of them are taken."""
        self._left = 0
        """Bytes of the body, or of the chunk, that are still to come."""
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take the bytes that arrived."""
        self._data += data
        while not self.complete and self._place < len(self._data) and self._read():
            pass
        self._data = self._data[self._place :]
        self._place = 0
        if self.complete and self._data:
            raise ProtocolError("bytes after the answer")

    def end(self) -> None:
        """Take the end of the connection: that of a body which has no other."""
        if self._read != self._read_rest:
            raise ProtocolError("the connection ended within the answer")
        self.complete = True

    def _line(self, most: int) -> bytes | None:
        """The next line without its end; None while it is not complete."""
        end = self._data.find(b"\n", self._place)
        if (end if end >= 0 else len(self._data)) - self._place > most:
            raise ProtocolError("a line is too long")
        if end < 0:
            return None
        line = self._data[self._place : end]
        self._place = end + 1
        return line

    def _piece(self) -> bytes:
        """The bytes at hand of a body that has so many left."""
        piece = self._data[self._place : self._place + self._left]
        self._place += len(piece)
        self._left -= len(piece)
        return piece

    def _read_head(self) -> bool:
        begun = self._data[self._place : self._place + len(_START)]
        if not _START.startswith(begun):
            raise ProtocolError("no HTTP")
        end = _END_OF_HEAD.search(self._data, self._place)
        read = len(self._data) if end is None else end.start()
        if read - self._place > MOST_HEAD_BYTES:
            raise ProtocolError("the headers are too long")
        if end is None:
            return False
        head = _head(self._data[self._place : end.start()].split(b"\n"))
        self._place = end.end()
        if head.status < INFORMATIONAL:
            return True
        self.head = head
        self._body = self._body_of(head)
        self._begin_body(head)
        return True

    def _begin_body(self, head: Head) -> None:
        """Choose how the body is read: by its chunks, by its length, or to the end of the connection."""
        coding = head.headers.get("transfer-encoding")
        length = head.headers.get("content-length")
        if head.status in WITHOUT_BODY:
            self.complete = True
        elif coding is not None:
            if coding.strip().lower() != "chunked":
                raise ProtocolError("an unknown transfer coding")
            self._read = self._read_chunk_size
        elif length is not None:
            self._left = _length(length)
            self._read = self._read_length
            self.complete = not self._left
        else:
            self._read = self._read_rest

    @property
    def body(self) -> BodyT:
        """What takes the body; not before the head is there."""
        assert self._body is not None, "no head yet"
        return self._body

    def _read_length(self) -> bool:
        self.body.add(self._piece())
        self.complete = not self._left
        return True

    def _read_rest(self) -> bool:
        self._left = len(self._data)
        self.body.add(self._piece())
        return True

    def _read_chunk_size(self) -> bool:
        line = self._line(MOST_CHUNK_LINE)
        if line is None:
            return False
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise ProtocolError("no size of a chunk")
        self._left = int(size[1], 16)
        if self._left:
            self._read = self._read_chunk
        else:
            self._read = self._read_trailer
        return True

    def _read_chunk(self) -> bool:
        self.body.add(self._piece())
        if not self._left:
            self._read = self._read_chunk_end
        return True

    def _read_chunk_end(self) -> bool:
        line = self._line(len(b"\r"))
        if line is None:
            return False
        if line.strip():
            raise ProtocolError("a chunk is longer than its size")
        self._read = self._read_chunk_size
        return True

    def _read_trailer(self) -> bool:
        line = self._line(MOST_HEAD_BYTES)
        if line is None:
            return False
        self._trailer_bytes += len(line) + 1
        if self._trailer_bytes > MOST_HEAD_BYTES:
            raise ProtocolError("the trailers are too long")
        self.complete = not line.strip()
        return True


def _head(lines: Sequence[bytes]) -> Head:
    """Status and headers from their lines."""
    status = _STATUS.fullmatch(lines[0])
    if status is None:
        raise ProtocolError("no status line")
    headers: dict[str, str] = {}
    for line in _unfolded(lines[1:]):
        header = _HEADER.fullmatch(line)
        if header is None:
            raise ProtocolError("an invalid header")
        name = header[1].decode("ascii").lower()
        value = _text(header[2])
        if name in headers:
            value = f"{headers[name]}, {value}"
        headers[name] = value
    options = headers.get("connection", "").lower()
    is_new = (status[1], status[2]) >= (b"1", b"1")
    return Head(int(status[3]), headers, keeps_open=is_new and "close" not in options)


def _unfolded(lines: Sequence[bytes]) -> list[bytes]:
    """Headers of one line each: a line that begins with a blank goes on with the one before."""
    unfolded: list[bytes] = []
    for line in lines:
        if line[:1] in (b" ", b"\t") and unfolded:
            unfolded[-1] = unfolded[-1].rstrip() + b" " + line.strip()
        else:
            unfolded.append(line)
    return unfolded


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _length(text: str) -> int:
    """The length of a body; the same one may be said twice."""
    lengths = {part.strip() for part in text.split(",")}
    length = lengths.pop()
    if lengths or _LENGTH.fullmatch(length) is None:
        raise ProtocolError("no valid length")
    return int(length)


def request_bytes(method: str, url: str, headers: Mapping[str, str], content: bytes) -> bytes:
    """A request as it is sent. Raises ValueError where the URL or a header cannot be sent."""
    split = urlsplit(url)
    host = (split.hostname or "").encode("idna").decode("ascii")
    if ":" in host:
        host = f"[{host}]"
    if split.port not in (None, DEFAULT_PORTS.get(split.scheme)):
        host = f"{host}:{split.port}"
    target = quote(split.path, _SAFE) or "/"
    if split.query:
        target = f"{target}?{quote(split.query, _SAFE)}"
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    for name, value in headers.items():
        lines.append(f"{name}: {value}")
    if content:
        lines.append(f"Content-Length: {len(content)}")
    for line in lines:
        if not line.isprintable():
            raise ValueError("a header has a control character")
    return "\r\n".join([*lines, "", ""]).encode() + content


class Connection(asyncio.Protocol):
    """One connection to a server, open from `connection_made` on until `open` is false."""

    def __init__(self) -> None:
        self.open = False
        self.idle_since_s = 0.0
        """When its last answer was complete, on the clock of the event loop."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader: AnswerReader[Any] | None = None
        self._answered: asyncio.Future[Head] | None = None

    @property
    def socket(self) -> socket.socket:
        """The connected socket, to look at its two ends."""
        assert self._transport is not None, "not connected"
        connected: socket.socket = self._transport.get_extra_info("socket")
        return connected

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Speak TLS from now on. Raises OSError (an SSLError, too)."""
        assert self._transport is not None, "not connected"
        transport = await self._loop.start_tls(self._transport, self, context, server_hostname=host)
        if transport is None:
            raise ConnectionResetError("closed before TLS was agreed on")
        self._transport = transport

    async def ask(self, request: bytes, reader: AnswerReader[Any], within_s: float) -> Head:
        """Send a request, and wait for the end of its answer.

        Raises ProtocolError, OSError, asyncio.TimeoutError, and what the body of the reader raises.
        """
        assert self._transport is not None, "not connected"
        answered: asyncio.Future[Head] = self._loop.create_future()
        self._answered = answered
        self._reader = reader
        timer = self._loop.call_later(within_s, self._fail, asyncio.TimeoutError())
        try:
            self._transport.write(request)
            return await answered
        except BaseException:  # also where it is cancelled: what comes of this request is not read as another's answer
            self.close()
            raise
        finally:
            timer.cancel()
            self._answered = None
            self._reader = None

    def close(self) -> None:
        """Hang up, at once."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready for a request."""
        assert isinstance(transport, asyncio.Transport), "not a stream"
        self._transport = transport
        self.open = True

    def data_received(self, data: bytes) -> None:
        """Take bytes of the answer; a server that speaks without being asked is hung up on."""
        reader = self._reader
        if reader is None:
            self.close()
            return
        try:
            reader.feed(data)
        except Exception as error:  # handed to the one who waits for the answer
            self._fail(error)
            return
        if reader.complete:
            self._finish(reader)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection ended: that is the end of an answer that has no other."""
        self.open = False
        reader = self._reader
        if reader is None:
            return
        try:
            if error is not None:
                raise error
            reader.end()
        except Exception as fault:  # handed to the one who waits for the answer
            self._fail(fault)
            return
        self._finish(reader)

    def _finish(self, reader: AnswerReader[Any]) -> None:
        self.idle_since_s = self._loop.time()
        assert reader.head is not None, "complete without a head"
        if not reader.head.keeps_open:
            self.close()
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(reader.head)

    def _fail(self, error: Exception) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)


async def connect(addresses: Sequence[str], port: int, unix_socket: str, within_s: float) -> Connection:
    """A connection to the first of a server's addresses that takes one, or to a socket of this host.

    Raises ConnectTimeoutError; OSError or AddressesError where none takes one.
    """
    loop = asyncio.get_running_loop()

    async def to_socket() -> Connection:
        _, connection = await loop.create_unix_connection(Connection, unix_socket)
        return connection

    async def to_address(address: str) -> Connection:
        _, connection = await loop.create_connection(Connection, address, port)
        return connection

    if unix_socket:
        attempt = to_socket()
    elif len(addresses) == 1:
        attempt = to_address(addresses[0])
    else:
        attempt = _first_of([partial(to_address, address) for address in addresses])
    try:
        return await asyncio.wait_for(attempt, within_s)
    except asyncio.TimeoutError:
        raise ConnectTimeoutError from None


async def _first_of(attempts: Sequence[Callable[[], Coroutine[Any, Any, Connection]]]) -> Connection:
    """The first attempt that succeeds; each begins a moment after the one before, or as soon as that one failed."""
    coming = list(attempts)
    waiting: set[asyncio.Task[Connection]] = set()
    made: list[Connection] = []
    errors: list[OSError] = []
    try:
        while not made and (coming or waiting):
            pause_s = None
            if coming:
                waiting.add(asyncio.create_task(coming.pop(0)()))
                pause_s = STAGGER_S
            done, waiting = await asyncio.wait(waiting, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is None:
                    made.append(task.result())
                elif isinstance(error, OSError):
                    errors.append(error)
                else:
                    raise error
    finally:
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting)
    for connection in made[1:]:
        connection.close()
    if not made:
        raise AddressesError(errors)
    return made[0]
