"""Bounded HTTP: capped time and size, no redirects, no proxy, and every failure told as a state with its fix."""

from __future__ import annotations

import asyncio
import errno
import functools
import ipaddress
import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from gpumon.config.schema import Endpoint
from gpumon.readings.frame import EndpointState
from gpumon.readings.text import clean
from gpumon.sources.api_key import recipient
from gpumon.sources.endpoint_url import EndpointUrl
from gpumon.sources.http1 import (
    AddressesError,
    AnswerReader,
    Connection,
    ConnectTimeoutError,
    Head,
    ProtocolError,
    connect,
    request_bytes,
)
from gpumon.sources.offload import in_daemon_thread
from gpumon.sources.sockets import connection_of

ACCEPT: Final = "text/plain;version=0.0.4"
PLAIN: Final = ("", "identity")
PACKED: Final = ("gzip", "x-gzip", "deflate")
GZIP_OR_ZLIB: Final = 47
"""zlib's wbits: it tells the two by their header."""
KEEP_ALIVE_S: Final = 20.0
"""Longer than between two polls: a connection for each costs a seventh of the whole. Not longer than that: what stands
between may forget a quiet connection without a word. Where the server closes it before
(uvicorn after 5 s), a new one is made; a request that meets the closing is sent once more (`_attempts`)."""

CAUSES: Final = (
    (
        ssl.SSLCertVerificationError,
        EndpointState.TLS,
        "the certificate of {at} is not valid ({reason}): set tls_ca to its authority, or tls_verify = false",
    ),
    (ssl.SSLError, EndpointState.TLS, "no TLS connection to {at}: does it speak plain HTTP only? Try http://"),
    (
        socket.gaierror,
        EndpointState.DNS,
        "{at}: host name not known: check its spelling, the name server or /etc/hosts",
    ),
    (
        ConnectionRefusedError,
        EndpointState.REFUSED,
        "nothing listens on {at}: down, or still loading",
    ),
)
"""The innermost cause decides, from the most to the least specific."""
NO_ROUTE: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
"""Errors after which the host is as silent as after a time-out: a router or the neighbour table has given up on it."""
NO_TLS: Final = ("TLS connection", "it may speak plain HTTP only (try http://); else ")
"""A server of plain HTTP may wait for the end of the line that a handshake is not."""
NO_TCP: Final = ("connection", "")

_ONE_AT_A_TIME: Final = threading.Lock()


class FetchError(Exception):
    """No complete answer: `state` and one line with the fix. Its text holds nothing of headers, keys or bodies."""

    def __init__(self, state: EndpointState, text: str) -> None:
        super().__init__(text)
        self.state = state
        self.text = text


class DroppedError(FetchError):
    """The connection ended before an answer."""


class Limits(NamedTuple):
    """Bounds of one request. The size holds for the body as sent and as unpacked."""

    connect_s: float = 2.0
    total_s: float = 5.0
    body_bytes: int = 8 * 1024 * 1024


class Answer(NamedTuple):
    """A complete answer. Times are on the clock that the fetcher was given."""

    status: int
    content_type: str
    location: str
    body: bytes
    sent_s: float
    ended_s: float
    date: str = ""
    """The server's own time, as its header says it."""
    server: str = ""
    """Name and version of the server, as its header says them."""
    retry_after: str = ""
    """When it may be asked again, as its header says it."""


class Fetcher:
    """One server's client: connections that are kept open, made at the first request so that starting costs nothing."""

    def __init__(
        self,
        url: EndpointUrl,
        *,
        tls_ca: str,
        tls_verify: bool,
        limits: Limits,
        clock: Callable[[], float],
        connections: int = 2,
        secret: Endpoint | None = None,
        setting: str = "api_key",
        unix_socket: str = "",
        always_checked: bool = False,
    ) -> None:
        """`connections`: so many requests are under way at once. `secret`: whose key is sent, where one is.

        `setting`: what the config calls that key, before `_user`. `unix_socket`: path of a socket that leads to the
        server, where it is on another machine; the URL is as that machine sees it. `always_checked`: its URL or its
        bodies are a secret, so that the other end of each connection is checked.
        """
        self._url = url
        self._secret = secret
        self._setting = setting
        self._always_checked = always_checked
        self.unverified = False
        """Whether a secret went to a server that could not be identified."""
        self._unix_socket = unix_socket
        self._tls = (tls_ca, tls_verify)
        self._limits = limits
        self._clock = clock
        self._pool = _Pool(connections)
        self._keyed_pool = _Pool(connections)
        """For requests with a secret alone: each of its connections is checked before anything is sent on it."""
        self._looking = False
        self._answered = False
        """It gave a valid HTTP answer, at least once."""
        self._last: tuple[tuple[object, ...], bytes] | None = None
        """Parts of the last request, and its bytes: a poll is the same as the one before."""

    async def get(self, url: str, key: str = "", most_bytes: int = 0) -> Answer:
        """GET `url` (on this server), with `key` as bearer token if given. Raises FetchError.

        `most_bytes` is a tighter bound of the body than the one of the limits.
        """
        return await self.send("GET", url, {"Authorization": f"Bearer {key}"} if key else {}, most_bytes=most_bytes)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes = b"", most_bytes: int = 0
    ) -> Answer:
        """The answer to a request that may be repeated, with these headers besides its own. Raises FetchError."""
        has_secret = self._always_checked or "Authorization" in headers
        pool = self._keyed_pool if has_secret else self._pool
        request = self._request(method, url, headers, content)
        most = most_bytes or self._limits.body_bytes
        end_s = asyncio.get_running_loop().time() + self._limits.total_s
        try:
            await pool.take_turn(end_s)
            try:
                try:
                    return await self._once(pool, request, most, end_s)
                except DroppedError:
                    # The server may have closed the kept connection just then: that says nothing about it.
                    return await self._once(pool, request, most, end_s)
            finally:
                pool.end_turn()
        except asyncio.TimeoutError:
            raise timed_out(self._limits.total_s) from None

    async def close(self) -> None:
        """Close the connections."""
        self._pool.close()
        self._keyed_pool.close()
        await asyncio.sleep(0)  # their sockets are closed in the next round of the event loop

    async def _once(self, pool: _Pool, request: bytes, most: int, end_s: float) -> Answer:
        """The answer to a request, on a kept or on a new connection. Raises FetchError, asyncio.TimeoutError."""
        sent_s = self._clock()
        connection = pool.kept()
        if connection is None:
            connection = await asyncio.wait_for(self._connected(checked=pool is self._keyed_pool), _left_s(end_s))
        reader = AnswerReader(partial(_body_of, most))
        try:
            head = await connection.ask(request, reader, _left_s(end_s))
        except asyncio.TimeoutError:  # an OSError, too, since Python 3.11
            raise
        except (ProtocolError, OSError):
            raise self._dropped(begun=reader.head is not None) from None
        pool.keep(connection)
        self._answered = True
        names = ("content-type", "location", "date", "server", "retry-after")
        kind, location, date, server, retry_after = (head.headers.get(name, "")[:500] for name in names)
        body = reader.body.whole()
        return Answer(head.status, kind, location, body, sent_s, self._clock(), date, server, retry_after)

    async def _connected(self, *, checked: bool) -> Connection:
        """A new connection; `checked`: its peer may get the secret. Raises FetchError."""
        connect_s = self._limits.connect_s
        context = await self._tls_context()
        addresses = await self._resolve()
        try:
            connection = await connect(addresses, self._url.port, self._unix_socket, connect_s)
        except (ConnectTimeoutError, AddressesError, OSError) as error:
            raise fault(error, self._url, connect_s) from None
        try:
            if checked:
                await self._check_peer(connection)
            if context is not None:
                await asyncio.wait_for(connection.secure(context, self._url.host), connect_s)
        except asyncio.TimeoutError:
            connection.close()
            raise fault(ConnectTimeoutError(), self._url, connect_s) from None
        except OSError as error:
            connection.close()
            raise fault(error, self._url, connect_s) from None
        except BaseException:  # also where it is cancelled: the connection is not left open
            connection.close()
            raise
        return connection

    async def _tls_context(self) -> ssl.SSLContext | None:
        """What TLS is agreed on with; None where the server speaks none. Raises FetchError."""
        if not self._url.secure:
            return None
        try:
            # In a thread: to load the authorities takes up to 0.05 s, and `tls_ca` may lie where nothing answers.
            return await in_daemon_thread(_context_of, *self._tls)
        except OSError as error:
            reason = clean(error.strerror or type(error).__name__, 80)
            raise FetchError(
                EndpointState.TLS, f"tls_ca is no readable PEM file ({reason}): give the right path"
            ) from None

    async def _check_peer(self, connection: Connection) -> None:
        """Check who gets a secret, as soon as the connection is made: before TLS, and before any byte of the request.

        Raises FetchError, OSError.
        """
        if self._secret is None:
            return
        ends = connection_of(connection.socket)
        answer = await in_daemon_thread(recipient, self._secret, ends, self._setting)
        if answer.refusal:
            raise FetchError(EndpointState.UNAUTHORIZED, answer.refusal)
        self.unverified = not answer.verified

    async def _resolve(self) -> Sequence[str]:
        """The addresses of the host, looked up in a thread that can be left behind. Raises FetchError.

        A resolver may hang for half a minute and cannot be cancelled; in asyncio's own thread pool that would hold
        up the end of the program.
        """
        if self._unix_socket or _is_address(self._url.host):
            return (self._url.host,)
        silent = FetchError(EndpointState.DNS, f"no name server answers for {clean(self._url.host, 80)}: check it")
        if self._looking:
            raise silent
        self._looking = True
        try:
            addresses = await asyncio.wait_for(in_daemon_thread(self._look_up), self._limits.connect_s)
        except asyncio.TimeoutError:
            raise silent from None
        if not addresses:
            raise fault(socket.gaierror(), self._url, self._limits.connect_s)
        return addresses

    def _look_up(self) -> Sequence[str]:
        """The addresses that the resolver has for the host, in its order; none where it knows none."""
        try:
            found = socket.getaddrinfo(self._url.host, self._url.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return ()
        finally:
            self._looking = False
        addresses: dict[str, None] = {}
        for *_, address in found:
            addresses[str(address[0])] = None
        return tuple(addresses)

    def _request(self, method: str, url: str, more: Mapping[str, str], content: bytes) -> bytes:
        """The bytes of a request. Raises FetchError."""
        made_of = (method, url, more, content)
        if self._last is not None and self._last[0] == made_of:
            return self._last[1]
        headers = {"Accept": ACCEPT, "Accept-Encoding": "identity", "User-Agent": "gpumon", **more}
        try:
            request = request_bytes(method, url, headers, content)
        except UnicodeError:
            raise fault(socket.gaierror(), self._url, self._limits.connect_s) from None
        except ValueError:
            address = clean(f"{self._url.host}:{self._url.port}", 90)
            text = f"the request to {address} cannot be sent: its key has a control character"
            raise FetchError(EndpointState.ERROR, text) from None
        self._last = (made_of, request)
        return request

    def _dropped(self, *, begun: bool) -> DroppedError:
        """The failure of a connection that ended before its answer; `begun`: after the head of that."""
        address = clean(f"{self._url.host}:{self._url.port}", 90)
        if begun:
            text = f"{address} broke off in the middle of its answer: see its log"
        elif self._answered:
            text = f"{address} closed the connection (restarting?): see its log"
        elif self._url.secure:
            text = f"{address} gave no valid HTTP answer: see its log, or try http://"
        else:
            text = f"{address} gave no valid HTTP answer: if it speaks TLS only, use https://"
        return DroppedError(EndpointState.ERROR, text)


class _Pool:
    """The connections of one kind to one server."""

    def __init__(self, most: int) -> None:
        self._turns = asyncio.Semaphore(most)
        self._most_kept = max(1, most - 1)
        self._idle: list[Connection] = []

    async def take_turn(self, end_s: float) -> None:
        """Wait until a request may be sent, at most to this moment of the event loop. Raises asyncio.TimeoutError."""
        if self._turns.locked():
            await asyncio.wait_for(self._turns.acquire(), _left_s(end_s))
        else:
            await self._turns.acquire()

    def end_turn(self) -> None:
        """Let the next request be sent."""
        self._turns.release()

    def kept(self) -> Connection | None:
        """A connection that waits for a request; None where there is none, or only ones that waited for too long."""
        now_s = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.open and now_s - connection.idle_since_s < KEEP_ALIVE_S:
                return connection
            connection.close()
        return None

    def keep(self, connection: Connection) -> None:
        """Keep a connection for a request to come, if it is still open."""
        if connection.open and len(self._idle) < self._most_kept:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close what is kept."""
        while self._idle:
            self._idle.pop().close()


class _Body:
    """The body of an answer, unpacked if it is packed (a Prometheus is asked for that), and bounded."""

    def __init__(self, most: int, *, packed: bool) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._raw_bytes = 0
        self._bytes = 0
        self._unpacker = zlib.decompressobj(wbits=GZIP_OR_ZLIB) if packed else None

    def add(self, piece: bytes) -> None:
        """Take a piece as it was sent. Raises FetchError beyond the bound, which is that of the unpacked one, too."""
        self._raw_bytes += len(piece)
        if self._unpacker is not None:
            try:
                piece = self._unpacker.decompress(piece, self._most - self._bytes + 1)
            except zlib.error:
                raise FetchError(EndpointState.NOT_METRICS, "the answer is marked as compressed and is not") from None
        self._bytes += len(piece)
        if self._raw_bytes > self._most or self._bytes > self._most:
            text = f"the answer is larger than {self._most / 2**20:g} MiB: is this a metrics page?"
            raise FetchError(EndpointState.TOO_LARGE, text)
        self._parts.append(piece)

    def whole(self) -> bytes:
        """All of it."""
        return b"".join(self._parts)


def _body_of(most: int, head: Head) -> _Body:
    """What takes the body of an answer, at most so many bytes. Raises FetchError for a packing nobody asked for."""
    encoding = head.headers.get("content-encoding", "").strip().lower()
    if encoding not in (*PLAIN, *PACKED):
        raise FetchError(
            EndpointState.NOT_METRICS,
            f"the answer is compressed ({clean(encoding, 20)}), though no compression was asked for",
        )
    return _Body(most, packed=encoding in PACKED)


def _left_s(end_s: float) -> float:
    """Seconds to a moment of the event loop."""
    return max(0.0, end_s - asyncio.get_running_loop().time())


@functools.cache
def _context_of(ca: str, verify: bool) -> ssl.SSLContext:
    """One context for all endpoints with the same settings: loading the authorities takes 20 to 50 ms."""
    with _ONE_AT_A_TIME:
        context = ssl.create_default_context(cafile=ca or None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def fault(error: Exception, url: EndpointUrl, connect_s: float) -> FetchError:
    """The failure behind an exception of the attempt to connect."""
    address = clean(f"{url.host}:{url.port}", 90)
    if isinstance(error, ConnectTimeoutError):
        if url.secure:
            what, why = NO_TLS
        else:
            what, why = NO_TCP
        text = f"no {what} to {address} within {connect_s:g} s: {why}wrong host, a firewall, or the server hangs"
        return FetchError(EndpointState.TIMEOUT, text)
    return _system_fault(error, address)


def _system_fault(error: Exception, address: str) -> FetchError:
    """The failure behind an exception by what it was raised from."""
    causes = tuple(_causes(error))
    for kind, state, text in CAUSES:
        for cause in causes:
            if isinstance(cause, kind):
                return FetchError(state, text.format(at=address, reason=_reason(cause)))
    system = [cause for cause in causes if isinstance(cause, OSError)]
    for cause in system:
        if cause.errno in NO_ROUTE:
            text = f"no route to {address} ({_reason(cause)}): check host and network"
            return FetchError(EndpointState.TIMEOUT, text)
    if system:
        text = f"no connection to {address} ({_reason(system[0])}): check host and network"
        return FetchError(EndpointState.ERROR, text)
    return FetchError(EndpointState.ERROR, f"the request to {address} failed ({type(error).__name__})")


def timed_out(total_s: float) -> FetchError:
    """The whole answer took too long."""
    return FetchError(EndpointState.TIMEOUT, f"no complete answer within {total_s:g} s: the server hangs or is slow")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and everything that it was raised from, groups opened (one error per address tried)."""
    waiting: list[BaseException] = [error]
    for _ in range(50):
        if not waiting:
            return
        cause = waiting.pop(0)
        yield cause
        waiting += getattr(cause, "exceptions", ())
        waiting += [deeper for deeper in (cause.__cause__, cause.__context__) if deeper is not None]


def _reason(cause: BaseException) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return clean(cause.verify_message or "not trusted", 100)
    return errno.errorcode.get(getattr(cause, "errno", None) or 0, "network error")
