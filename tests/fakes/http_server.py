"""A small threaded HTTP server on loopback whose every answer, delay and misbehaviour is the test's choice."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

TLS_HELLO = b"\x16"
"""First byte of a client that speaks TLS."""


class Request(NamedTuple):
    """A request as received; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


class Reply(NamedTuple):
    """An answer. A body in pieces is sent chunked, `delay_s` before each piece; `raw` replaces everything."""

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    content_type: str = "text/plain; version=0.0.4; charset=utf-8"
    headers: Mapping[str, str] = {}
    delay_s: float = 0.0
    raw: bytes | None = None


class LoopbackServer:
    """Answers what `answer` says, one thread per connection. The port is kept also while it refuses connections."""

    def __init__(self, answer: Callable[[Request], Reply], port: int = 0, tls: tuple[Path, Path] | None = None) -> None:
        self._answer = answer
        self._context = None
        if tls is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*tls)
        self._place = bound(port)
        self.port: int = self._place.getsockname()[1]
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.closed = threading.Event()
        self.requests: list[Request] = []
        self.connections = 0

    @property
    def url(self) -> str:
        """Base URL."""
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> LoopbackServer:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def listening(self) -> bool:
        """Whether connections are accepted."""
        return self._listener is not None

    def listen(self) -> None:
        """Accept connections."""
        if self._listener is None:
            self._listener = bound(self.port)
            self._listener.listen(128)
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def refuse(self) -> None:
        """Cut every connection and refuse new ones, as a dead server does."""
        with self._lock:
            listener = self._listener
            self._listener = None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop for good."""
        self.closed.set()
        self.refuse()
        self._place.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = listener.accept()
                # Here, not in its own thread: that may begin after `refuse`, and would be served for ever.
                with self._lock:
                    is_late = self._listener is not listener
                    if not is_late:
                        self._open.add(one)
                if is_late:
                    one.close()
                    return
                self.connections += 1
                threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError, ValueError):
                secured = self._context.wrap_socket(one, server_side=True) if self._context else one
                with secured, secured.makefile("rb") as stream:
                    if stream.peek(1)[:1] == TLS_HELLO:
                        secured.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                        return
                    while (request := _request(stream)) is not None:
                        self.requests.append(request)
                        if not self._send(secured, self._answer(request)):
                            return
        finally:
            with self._lock:
                self._open.discard(one)
            one.close()

    def _send(self, to: socket.socket, reply: Reply) -> bool:
        """Send; returns whether the connection goes on."""
        if reply.raw is not None:
            to.sendall(reply.raw)
            return False
        whole = isinstance(reply.body, bytes)
        framing = {"Content-Length": str(len(reply.body))} if whole else {"Transfer-Encoding": "chunked"}
        headers = {"Content-Type": reply.content_type, **framing, **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in headers.items() if value)]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        if whole:
            self.closed.wait(reply.delay_s)
            to.sendall(head + reply.body)
            return True
        to.sendall(head)
        for piece in reply.body:
            if self.closed.wait(reply.delay_s):
                return False
            to.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        to.sendall(b"0\r\n\r\n")
        return True


def self_signed(folder: Path, name: str = "127.0.0.1") -> tuple[Path, Path]:
    """A certificate that nobody trusts, and its key, made by openssl for 127.0.0.1."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{name}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *kind, *names, *files], check=True, capture_output=True)
    return certificate, key


def wait_until(true: Callable[[], object], timeout_s: float = 60.0) -> bool:
    """Whether it becomes true in time."""
    end_s = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.01)
    return True


def bound(port: int) -> socket.socket:
    """A socket on that port of loopback, or on a free one, that does not listen yet."""
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", port))
    return one


def _request(stream: object) -> Request | None:
    readline = stream.readline  # type: ignore[attr-defined]
    words = readline(65536).decode("latin-1").split()
    if len(words) != 3:
        return None
    headers = {}
    while line := readline(65536).decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = int(headers.get("content-length", 0))
    body = stream.read(length) if length else b""  # type: ignore[attr-defined]
    if len(body) < length:  # the client has gone
        return None
    return Request(words[0], words[1], headers, body)
