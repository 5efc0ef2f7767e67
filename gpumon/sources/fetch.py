"""Bounded HTTP: capped time and size, no redirects, no proxy, and every failure told as a state with its fix."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import importlib.util
import ipaddress
import socket
import ssl
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpumon.config.schema import Endpoint
from gpumon.deadline import result_within, timeout
from gpumon.readings.frame import EndpointState
from gpumon.readings.text import clean
from gpumon.sources.api_key import identify_recipient
from gpumon.sources.checked_open import UntrustedFileError, open_trusted, path_of_open
from gpumon.sources.endpoint_url import EndpointUrl
from gpumon.sources.offload import daemon_thread, in_daemon_thread
from gpumon.sources.sockets import connection_of

if TYPE_CHECKING:
    import httpx

ACCEPT: Final = "text/plain;version=0.0.4"
_PLAIN: Final = ("", "identity")
"""Content encodings of a body that is not packed."""
GZIP_OR_ZLIB: Final = 47
"""zlib's wbits: it tells the two by their header."""
KEEP_ALIVE_S: Final = 20.0
"""Seconds for which a quiet connection is kept.

Longer than between two polls: a new connection for each costs a seventh of the whole. Not longer: a firewall may
forget a quiet connection without a word. Where the server closes it before (uvicorn after 5 s), a new one is made; a
request that meets the closing is sent once more (`_send_request`)."""

_CLOSING_S: Final = 0.9
"""Most seconds that closing waits for requests to end, and again for connections: the rest ends without being waited
for. None of them waits for the other end: this is for a machine that has no time."""
_MOST_CAUSES: Final = 50
"""Exceptions that are looked at behind one: a group has one for each address that was tried."""
_MOST_HEADER_CHARS: Final = 500
"""Characters kept of a header of the answer."""
CONNECTED: Final = "connection.connect_tcp.complete"
"""Name of httpcore's trace event for a connection that was just made."""
_CONNECTED_LOCALLY: Final = "connection.connect_unix_socket.complete"
"""The same for a connection to a socket of `unix_socket`."""
_HANDSHAKE_DONE: Final = "connection.start_tls.complete"
_HANDSHAKE_FAILED: Final = "connection.start_tls.failed"
"""Names of httpcore's trace events at the end of a TLS handshake."""
_HEAD_BEGINS: Final = "http11.receive_response_headers.started"
_HEAD_ENDS: Final = ("http11.receive_response_headers.complete", "http11.receive_response_headers.failed")
"""Names of its trace events around the head of an answer."""
_MOST_HEAD_BYTES: Final = 256 * 1024
"""Bytes that are read until the head of an answer has come: httpcore passes over informational answers (1xx) without
end, at half a core. Part of the body may be among them."""
_PIECES_AT_LEAST: Final = 4096
"""Pieces of a body that may be of any size."""
_LEAST_PIECE_BYTES: Final = 16
"""Least mean size of further pieces: each costs 25 µs, so that a body of single bytes would take a core."""

MAY_LOAD: Final = "down, or still loading"
"""Words for an engine that does not listen."""
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
        f"nothing listens on {{at}}: {MAY_LOAD}",
    ),
)
"""Exception -> state and text of the fault, from the most to the least specific."""
NO_ROUTE: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
"""Errors after which the host is as silent as after a time-out: a router or the neighbour table has given up on it."""
NO_TLS: Final = ("TLS connection", "it may speak plain HTTP only (try http://); else ")
"""Words for a time-out before a TLS connection: a server of plain HTTP waits for the end of a request line, which a TLS
handshake does not have."""

_ONE_AT_A_TIME: Final = threading.Lock()
"""Threads that want the same TLS context wait for the first one to make it."""


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


class _Tls(NamedTuple):
    """How the certificate of a server is checked."""

    ca: str
    """Path of the authorities; empty for those of the system."""
    verify: bool


class HttpAnswer(NamedTuple):
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


class _Pool:
    """Connections to a server."""

    def __init__(self, transport: httpx.AsyncHTTPTransport) -> None:
        self.transport = transport
        self.is_over = False
        """Whether no later request uses it: its connections are closed once no request is under way on them."""
        self.is_closing = False
        """Whether its connections are being closed, or are."""


class Fetcher:
    """One server's client: a connection kept open, built at the first request so that starting costs nothing.

    A request that fails or is cut off ends its pool: no later one asks over it, and its connections are closed as soon
    as no request is under way on them. httpcore's pool may keep the place of a request that was cancelled, and of two
    such places none would be left.
    """

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
        self._has_name = not unix_socket and not _is_address(url.host)
        """Whether its host has to be looked up."""
        self._connections = connections
        self._tls = _Tls(tls_ca, verify=tls_verify)
        self._limits = limits
        self._clock = clock
        self._pools: dict[bool, _Pool] = {}
        """By whether requests have a secret: those have a pool of their own, whose connections are checked."""
        self._requests: dict[asyncio.Task[HttpAnswer], _Pool] = {}
        """Tasks that send a request and read its answer, and the connections that they use."""
        self._closing: set[asyncio.Task[None]] = set()
        """Tasks that close the connections of pools that have ended."""
        self._closed = False
        """Whether nothing is asked any more."""
        self._lookup: Future[bool] | None = None
        """The last call that looked the host name up: a resolver that hangs is the only one."""
        self._resolved = False
        """Whether its host name was found, and no request has failed since."""
        self._answered = False
        """Whether the server gave a valid HTTP answer, at least once."""
        self._handshakes: dict[asyncio.Task[Any] | None, Any] = {}
        """Streams whose TLS handshake goes on, by the task of their request."""
        self._head_bytes: dict[asyncio.Task[Any] | None, int] = {}
        """Bytes that have been read of answers whose head goes on, by the task of their request."""
        self._last: tuple[tuple[object, ...], httpx.Request] | None = None
        """Parts of the last request, and the request: a poll is the same as the one before."""

    async def get(self, url: str, key: str = "", most_bytes: int = 0) -> HttpAnswer:
        """GET `url` (on this server), with `key` as bearer token if given. Raises FetchError.

        `most_bytes` is a tighter bound of the body than the one of the limits.
        """
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return await self.send("GET", url, headers, most_bytes=most_bytes)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes = b"", most_bytes: int = 0
    ) -> HttpAnswer:
        """The answer to a request that may be repeated, with these headers besides its own. Raises FetchError."""
        has_secret = self._has_secret(headers)
        pool = await self._pool_for(has_secret=has_secret)
        request = self._build_request(method, url, headers, content)
        body_bytes = most_bytes or self._limits.body_bytes
        is_whole = False
        try:
            await self._resolve()
            self._check_open()
            work = asyncio.create_task(self._send_request(pool.transport, request, body_bytes))
            self._requests[work] = pool
            pool.is_closing = False
            work.add_done_callback(self._forget_request)
            answer = await result_within(self._limits.total_s, work)
            is_whole = True
        except asyncio.TimeoutError:
            raise timed_out(self._limits.total_s) from None
        finally:
            if not is_whole:
                self._resolved = False
                self._end_pool(pool, has_secret=has_secret)
        return answer

    def _forget_request(self, request: asyncio.Task[HttpAnswer]) -> None:
        """Forget a request that has ended, and close its connections where no later one uses them."""
        pool = self._requests.pop(request)
        self._close_unless_used(pool)

    def _end_pool(self, pool: _Pool, *, has_secret: bool) -> None:
        """Let no later request use these connections, and close them unless one still does."""
        if self._pools.get(has_secret) is pool:
            del self._pools[has_secret]
        pool.is_over = True
        self._close_unless_used(pool)

    def _close_unless_used(self, pool: _Pool) -> None:
        """Close connections that no later request uses, unless one is under way on them."""
        if not pool.is_over or pool.is_closing or pool in self._requests.values():
            return
        pool.is_closing = True
        task = asyncio.ensure_future(_close_transport(pool.transport))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _has_secret(self, headers: Mapping[str, str]) -> bool:
        """Whether a request holds a secret: the other end of its connection is checked before it is sent."""
        return self._always_checked or "Authorization" in headers

    async def _pool_for(self, *, has_secret: bool) -> _Pool:
        """The connections of requests with a secret, or of those without; built when they are first needed."""
        pool = self._pools.get(has_secret)
        if pool is None:
            built = _Pool(await self._build_transport())
            self._check_open()
            pool = self._pools.setdefault(has_secret, built)  # one that was built meanwhile is in use
        return pool

    async def close(self) -> None:
        """Cut off the requests that are under way and close the connections, for good; at most some 2 s.

        The requests first: httpcore's pool forgets connections that are closed with it, and one that is made just then
        would stay open.
        """
        self._closed = True
        for request in self._requests:
            request.cancel()
        for has_secret, pool in list(self._pools.items()):
            self._end_pool(pool, has_secret=has_secret)
        if self._requests:
            await asyncio.wait(set(self._requests), timeout=_CLOSING_S)
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSING_S)

    def _check_open(self) -> None:
        """Raises FetchError where it was closed."""
        if self._closed:
            raise FetchError(EndpointState.ERROR, "its connection was closed by gpumon")

    async def _build_transport(self) -> httpx.AsyncHTTPTransport:
        """A transport to the server. Raises FetchError where `tls_ca` cannot be read."""
        tls = self._tls if self._url.secure else None
        try:
            # In a thread: the first import of httpx and the loading of certificates take up to 0.1 s each, and `tls_ca`
            # may lie where nothing answers.
            context = await in_daemon_thread(_load_httpx_and_tls, tls)
        except OSError as error:
            reason = clean(error.strerror or str(error) or type(error).__name__, 80)
            raise FetchError(
                EndpointState.TLS, f"tls_ca is no readable PEM file ({reason}): give the right path"
            ) from None
        import httpx

        # The transport alone, not a client around it: no redirects, cookies, proxies, or log lines, at 2/3 of the cost.
        limits = httpx.Limits(
            max_connections=self._connections,
            max_keepalive_connections=max(1, self._connections - 1),
            keepalive_expiry=KEEP_ALIVE_S,
        )
        uds = self._unix_socket or None
        return httpx.AsyncHTTPTransport(verify=context, trust_env=False, limits=limits, uds=uds)

    async def _follow_connection(self, event: str, info: Mapping[str, Any], *, has_secret: bool) -> None:
        """Check the peer of a new connection for a request with a secret, bound the heads of its answers, and close one
        whose TLS handshake ends badly: httpcore leaves it open where the handshake is cancelled.

        It is httpcore's `trace` extension, called at each step. Raises FetchError.
        """
        task = asyncio.current_task()
        if event == _HEAD_BEGINS:
            self._head_bytes[task] = 0
        elif event in _HEAD_ENDS:
            self._head_bytes.pop(task, None)
        elif event == CONNECTED:
            stream = info["return_value"]
            if has_secret and self._secret is not None:
                await self._check_peer(stream, self._secret)
            if self._url.secure:
                self._handshakes[task] = stream
            self._bound_heads(stream)
        elif event in (_CONNECTED_LOCALLY, _HANDSHAKE_DONE):
            self._handshakes.pop(task, None)
            self._bound_heads(info["return_value"])
        elif event == _HANDSHAKE_FAILED and task in self._handshakes:
            await self._handshakes.pop(task).aclose()

    def _bound_heads(self, stream: Any) -> None:
        """Have no more than `_MOST_HEAD_BYTES` read of a stream for the head of one answer."""
        read = stream.read

        async def read_bounded(max_bytes: int, timeout: float | None = None) -> bytes:
            data: bytes = await read(max_bytes, timeout=timeout)
            task = asyncio.current_task()
            if task in self._head_bytes:
                self._head_bytes[task] += len(data)
                if self._head_bytes[task] > _MOST_HEAD_BYTES:
                    text = f"the head of its answer is larger than {_MOST_HEAD_BYTES >> 10} KiB: is this its page?"
                    raise FetchError(EndpointState.NOT_METRICS, text)
            return data

        stream.read = read_bounded

    async def _check_peer(self, stream: Any, secret: Endpoint) -> None:
        """Check the other end of a connection as soon as it is made, before TLS and before any byte of the request.
        Raises FetchError.
        """
        try:
            connection = connection_of(stream.get_extra_info("socket"))
            answer = await in_daemon_thread(identify_recipient, secret, connection, self._setting)
            if answer.refusal:
                raise FetchError(EndpointState.UNAUTHORIZED, answer.refusal)
        except OSError as error:
            await stream.aclose()
            raise _fetch_error(error, self._url, self._limits) from None
        except BaseException:  # also where it is cancelled: the connection is not left open
            await stream.aclose()
            raise
        self.unverified = not answer.verified

    async def _resolve(self) -> None:
        """Look the host name up once per outage, in a thread that can be left behind.

        A resolver may hang for half a minute and cannot be cancelled; in asyncio's own thread pool that would hold
        up the end of the program.
        """
        if self._resolved or not self._has_name:
            return
        if self._lookup is None or self._lookup.done():
            self._lookup = daemon_thread(self._look_up)
        try:
            async with timeout(self._limits.connect_s):
                exists = await asyncio.wrap_future(self._lookup)
        except asyncio.TimeoutError:
            text = f"no name server answers for {clean(self._url.host, 80)}: check it"
            raise FetchError(EndpointState.DNS, text) from None
        if not exists:
            raise _fetch_error(socket.gaierror(), self._url, self._limits)
        self._resolved = True

    def _look_up(self) -> bool:
        """Whether the host name has an address; in a thread."""
        try:
            socket.getaddrinfo(self._url.host, self._url.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return False
        return True

    def _build_request(self, method: str, url: str, more_headers: Mapping[str, str], content: bytes) -> httpx.Request:
        """The request, or the last one if that was the same. Raises FetchError."""
        import httpx

        made_of = (method, url, more_headers, content)
        if self._last is not None and self._last[0] == made_of:
            return self._last[1]
        headers = {"Accept": ACCEPT, "Accept-Encoding": "identity", "User-Agent": "gpumon", **more_headers}
        # `send` limits the whole: no timer for each read and write.
        timeouts = {"connect": self._limits.connect_s, "read": None, "write": None, "pool": None}
        trace = functools.partial(self._follow_connection, has_secret=self._has_secret(more_headers))
        extensions = {"timeout": timeouts, "trace": trace}
        try:
            request = httpx.Request(method, url, headers=headers, content=content or None, extensions=extensions)
        except (httpx.InvalidURL, UnicodeError):  # the second is that of a name that begins with xn-- and is none
            raise _fetch_error(socket.gaierror(), self._url, self._limits) from None
        self._last = (made_of, request)
        return request

    async def _send_request(
        self, transport: httpx.AsyncHTTPTransport, request: httpx.Request, most_bytes: int, *, may_repeat: bool = True
    ) -> HttpAnswer:
        """The answer to a request, which is repeated where its connection was dropped. Raises FetchError."""
        import httpx

        sent_s = self._clock()
        begun = False
        try:
            response = await transport.handle_async_request(request)
            begun = True
            async with contextlib.aclosing(response):
                body = await _read_body(response, most_bytes)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            failure = _fetch_error(error, self._url, self._limits, begun=begun, answered=self._answered)
            if may_repeat and isinstance(failure, DroppedError):
                # The server may have closed the kept connection just then: that says nothing about it.
                return await self._send_request(transport, request, most_bytes, may_repeat=False)
            raise failure from None
        self._answered = True
        headers = {name: value[:_MOST_HEADER_CHARS] for name, value in response.headers.items()}
        return HttpAnswer(
            status=response.status_code,
            content_type=headers.get("content-type", ""),
            location=headers.get("location", ""),
            body=body,
            sent_s=sent_s,
            ended_s=self._clock(),
            date=headers.get("date", ""),
            server=headers.get("server", ""),
            retry_after=headers.get("retry-after", ""),
        )


async def _close_transport(transport: httpx.AsyncHTTPTransport) -> None:
    """Close all connections of a transport."""
    with contextlib.suppress(Exception):  # a connection that ends badly has ended
        await transport.aclose()


def _load_httpx_and_tls(tls: _Tls | None) -> ssl.SSLContext:
    """Import httpx, and load the TLS context for a server; `tls` is None where it speaks no TLS."""
    # httpx imports a command line of its own where click is installed: 4 MB of click, pygments and rich for nothing.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    importlib.import_module("httpx")
    with _ONE_AT_A_TIME:
        return _tls_context(tls)


@functools.cache
def _tls_context(tls: _Tls | None) -> ssl.SSLContext:
    """The context of all servers with the same settings: loading the authorities takes 20 to 50 ms.

    Raises OSError, and FetchError where others could choose the authorities.
    """
    if tls is None:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca:
        try:
            with open_trusted(Path(tls.ca), "choose which servers {} trusts") as file:
                context = ssl.create_default_context(cafile=path_of_open(file))
        except UntrustedFileError as error:
            raise FetchError(EndpointState.TLS, f"tls_ca: {error}") from None
    else:
        context = ssl.create_default_context()
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _read_body(response: httpx.Response, most_bytes: int) -> bytes:
    """The body, unpacked if it is packed (a Prometheus is asked for that). Raises FetchError beyond `most_bytes`."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in (*_PLAIN, "gzip", "x-gzip", "deflate"):
        raise FetchError(
            EndpointState.NOT_METRICS,
            f"the answer is compressed ({clean(encoding, 20)}), though no compression was asked for",
        )
    unpacker = None if encoding in _PLAIN else zlib.decompressobj(wbits=GZIP_OR_ZLIB)
    parts: list[bytes] = []
    packed_bytes = 0
    body_bytes = 0
    pieces = 0
    async for chunk in response.aiter_raw():
        packed_bytes += len(chunk)
        pieces += 1
        if pieces > _PIECES_AT_LEAST + packed_bytes / _LEAST_PIECE_BYTES:
            raise FetchError(EndpointState.NOT_METRICS, "the answer comes in pieces of a few bytes: it is not read")
        part = chunk
        if unpacker is not None:
            try:
                part = unpacker.decompress(chunk, most_bytes - body_bytes + 1)
            except zlib.error:
                raise FetchError(EndpointState.NOT_METRICS, "the answer is marked as compressed and is not") from None
        body_bytes += len(part)
        if packed_bytes > most_bytes or body_bytes > most_bytes:
            text = f"the answer is larger than {most_bytes / 2**20:g} MiB: is this a metrics page?"
            raise FetchError(EndpointState.TOO_LARGE, text)
        parts.append(part)
    return b"".join(parts)


def _is_address(host: str) -> bool:
    """Whether a host is an IP address, with or without a zone (`fe80::1%eth0`)."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _fetch_error(
    error: Exception, url: EndpointUrl, limits: Limits, *, begun: bool = False, answered: bool = False
) -> FetchError:
    """The error with the state and the fix for an exception of httpx or of the system.

    `begun`: the answer had begun; `answered`: the port gave a valid answer before.
    """
    import httpx

    address = clean(f"{url.host}:{url.port}", 90)
    if isinstance(error, httpx.ConnectTimeout):
        missing = "connection"
        why = ""
        if url.secure:
            missing, why = NO_TLS
        text = (
            f"no {missing} to {address} within {limits.connect_s:g} s: {why}wrong host, a firewall, or the server hangs"
        )
        return FetchError(EndpointState.TIMEOUT, text)
    if isinstance(error, httpx.TimeoutException):
        return timed_out(limits.total_s)
    if isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)):
        if begun:
            return DroppedError(EndpointState.ERROR, f"{address} broke off in the middle of its answer: see its log")
        if answered:
            return DroppedError(EndpointState.ERROR, f"{address} closed the connection (restarting?): see its log")
        hint = "see its log, or try http://" if url.secure else "if it speaks TLS only, use https://"
        return DroppedError(EndpointState.ERROR, f"{address} gave no valid HTTP answer: {hint}")
    return _system_error(error, address)


def _system_error(error: Exception, address: str) -> FetchError:
    """The error for an exception of the system, by the causes that it was raised from."""
    causes = tuple(_causes(error))
    for kind, state, text in CAUSES:
        for cause in causes:
            if isinstance(cause, kind):
                return FetchError(state, text.format(at=address, reason=_reason_of(cause)))
    system = [cause for cause in causes if isinstance(cause, OSError)]
    for cause in system:
        if cause.errno in NO_ROUTE:
            text = f"no route to {address} ({_reason_of(cause)}): check host and network"
            return FetchError(EndpointState.TIMEOUT, text)
    if system:
        text = f"no connection to {address} ({_reason_of(system[0])}): check host and network"
        return FetchError(EndpointState.ERROR, text)
    return FetchError(EndpointState.ERROR, f"the request to {address} failed ({type(error).__name__})")


def timed_out(total_s: float) -> FetchError:
    """The error of an answer that took too long as a whole."""
    return FetchError(EndpointState.TIMEOUT, f"no complete answer within {total_s:g} s: the server hangs or is slow")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and everything that it was raised from, groups opened (one error per address tried)."""
    waiting: list[BaseException] = [error]
    for _ in range(_MOST_CAUSES):
        if not waiting:
            return
        cause = waiting.pop(0)
        yield cause
        waiting += getattr(cause, "exceptions", ())
        waiting += [deeper for deeper in (cause.__cause__, cause.__context__) if deeper is not None]


def _reason_of(cause: BaseException) -> str:
    """The reason in a few words: of a certificate, or the name of the error's number."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        return clean(cause.verify_message or "not trusted", 100)
    return errno.errorcode.get(getattr(cause, "errno", None) or 0, "network error")
