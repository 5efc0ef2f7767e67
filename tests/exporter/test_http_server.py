"""The HTTP server against clients that are slow, many, or talk nonsense; all over real sockets."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import psutil
import pytest

from gpumon.outputs import http
from gpumon.outputs.http import (
    MOST_CONNECTIONS,
    MOST_OF_PEER,
    HttpResponse,
    HttpServer,
    Login,
    host_in_header,
    listening_socket,
)
from tests.each_row import each_row
from tests.exporter.served import get
from tests.fakes.http_server import wait_until

LARGE = b"x" * 4_000_000


def pages(path: str, headers: Mapping[str, str]) -> HttpResponse:
    if path == "/bug":
        raise RuntimeError("secret")
    if path not in ("/", "/metrics", "/large"):
        return HttpResponse(404, path.encode())
    return HttpResponse(200, LARGE if path == "/large" else b"hello\n")


@contextlib.contextmanager
def served(answer: Callable[[str, Mapping[str, str]], HttpResponse]) -> Iterator[int]:
    """The port of a server with these answers."""
    listener = listening_socket("127.0.0.1", 0)
    server = HttpServer(listener, answer)
    server.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.close()


@pytest.fixture
def port() -> Iterator[int]:
    try:
        with served(pages) as port:
            yield port
    finally:
        assert not any(thread.name == "http" for thread in threading.enumerate())


def opened(port: int) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), timeout=60.0)
    one.settimeout(30.0)
    return one


def answered(one: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := one.recv(65536):
            received += piece
    return received


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /metrics?name[]=x HTTP/1.0\r\nHost: x\r\n\r\n", b"200"),
        (b"GET /bug HTTP/1.0\r\n\r\n", b"500"),
        (b"DELETE / HTTP/1.0\r\n\r\n", b"405"),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"405"),
        (b"GET /\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nContent-Length : 5\r\n\r\nhello", b"400"),
        (b"GET / HTTP/1.1\r\nX: y\r\n Content-Length: 5\r\n\r\nhello", b"400"),
        (b"GET / HTTP/2.0\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\ncontent-length: 0\r\n\r\nhello", b"400"),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", b"400"),
        (b"GET HTTP://x:1/metrics?a=http://y/z HTTP/1.0\r\nHost: x\r\n\r\n", b"200"),
        (b"GET http://x:1 HTTP/1.0\r\nHost: x\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\nX: y\nContent-Length: 5\r\n\r\nhello", b"400"),
        (b"GET / HTTP/1.1\r\nX: y\rContent-Length: 5\r\n\r\nhello", b"400"),
        (b"GET / HTTP/1.1\r\nX: y\r\r\n\r\n", b"400"),
        (b"GET /\0 HTTP/1.0\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nCookie: " + b"x" * 70_000 + b"\r\n\r\n", b"431"),
    ],
)
def test_every_request_gets_an_answer_and_the_connection_ends(port: int, request_: bytes, status: bytes) -> None:
    with opened(port) as one:
        one.sendall(request_)
        head = answered(one)
    assert head.startswith(b"HTTP/1.1 " + status) or (status == b"431" and head == b"")
    assert b"secret" not in head


@pytest.mark.parametrize(
    "body", [b"Content-Length: 30", b"Transfer-Encoding: chunked", b"transfer-encoding: gzip, chunked"]
)
def test_a_request_within_the_body_of_another_is_not_answered(port: int, body: bytes) -> None:
    with opened(port) as one:
        one.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n" + body + b"\r\n\r\nGET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answered(one).count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("path", [b"/", b"/nowhere", b"/bug"])
def test_a_page_may_load_nothing_and_is_kept_nowhere(port: int, path: bytes) -> None:
    with opened(port) as one:
        one.sendall(b"GET " + path + b" HTTP/1.0\r\n\r\n")
        lines = answered(one).partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert b"Content-Security-Policy: default-src 'none'" in lines
    assert b"X-Content-Type-Options: nosniff" in lines
    assert b"Cache-Control: no-store" in lines


def test_a_connection_serves_many_requests(port: int) -> None:
    with opened(port) as one:
        for _ in range(3):
            one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            received = b""
            while not received.endswith(b"hello\n"):
                received += one.recv(4096)
            assert b"Connection: keep-alive" in received


def test_connections_that_never_ask_make_room_for_one_that_does(port: int) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(opened(port)) for _ in range(3 * MOST_CONNECTIONS)]
        for one in slow:
            with contextlib.suppress(OSError):
                one.sendall(b"GET / HT")
        assert get(f"http://127.0.0.1:{port}/").body == b"hello\n"
        assert wait_until(lambda: held(port) <= MOST_OF_PEER)


def held(port: int) -> int:
    """Connections that the server has accepted and holds; it is in this process."""
    each = psutil.Process().net_connections("tcp")
    return sum(one.laddr.port == port and one.status == psutil.CONN_ESTABLISHED for one in each)


def test_clients_that_do_not_read_hold_up_nobody(port: int) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(opened(port)).sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert get(f"http://127.0.0.1:{port}/large").body == LARGE


def test_a_client_that_asks_much_at_once_holds_up_nobody() -> None:
    """Five connections with 200 requests each, whose answers nobody reads: each has its turn, and no more."""
    answered_paths: list[str] = []

    def answer(path: str, _: Mapping[str, str]) -> HttpResponse:
        answered_paths.append(path)
        time.sleep(0.002)
        return HttpResponse(200, b"hello\n")

    with served(answer) as port, contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(opened(port)).sendall(b"GET /snapshot.json HTTP/1.1\r\n\r\n" * 200)
        assert wait_until(lambda: answered_paths)
        before = len(answered_paths)
        assert get(f"http://127.0.0.1:{port}/metrics").body == b"hello\n"
    assert before < 900, "it asked while they were answered"
    assert answered_paths.index("/metrics") - before < 150, "a few turns of five connections, and not all of 1000"


class _Gate:
    """Answers every path at once, but keeps the server in the answer to `/gate` until it is opened."""

    def __init__(self) -> None:
        self.answered_paths: list[str] = []
        self.is_reached = threading.Event()
        self.is_open = threading.Event()

    def answer(self, path: str, _: Mapping[str, str]) -> HttpResponse:
        self.answered_paths.append(path)
        if path == "/gate":
            self.is_reached.set()
            assert self.is_open.wait(60.0)
        else:
            time.sleep(0.02)  # so that who waits for a turn waits longer than a new connection may be quiet
        return HttpResponse(200, b"hello\n")


@each_row(("before", "behind"), [(50, 0), (MOST_OF_PEER + 40, MOST_OF_PEER + 40)])
def test_an_honest_request_has_its_turn_among_hostile_connections(before: int, behind: int) -> None:
    """The first are there before the server takes any of them; the others come while the honest one waits for its
    turn, longer than a connection may be quiet."""
    gate = _Gate()
    with served(gate.answer) as port, contextlib.ExitStack() as stack:
        stack.callback(gate.is_open.set)
        stack.enter_context(opened(port)).sendall(b"GET /gate HTTP/1.1\r\n\r\n")
        assert gate.is_reached.wait(60.0)
        for number in range(before):
            _attack(stack, port, number)
        honest = stack.enter_context(opened(port))
        honest.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        gate.is_open.set()
        time.sleep(0.2)
        for number in range(behind):
            _attack(stack, port, number)
        assert answered(honest).endswith(b"hello\n"), "it was ended to make room for others"
    assert gate.answered_paths.index("/metrics") <= 2 * (before + behind)


def _attack(stack: contextlib.ExitStack, port: int, number: int) -> None:
    """A connection that asks much at once and reads nothing, one that never ends its request, or one that is mute."""
    sent = (b"GET /snapshot.json HTTP/1.1\r\n\r\n" * 200, b"GET / HT", b"")
    one = stack.enter_context(opened(port))
    with contextlib.suppress(OSError):  # ended by now to make room
        one.sendall(sent[number % len(sent)])


def test_answers_are_given_one_by_one_in_the_order_of_the_requests() -> None:
    """What came with the first request of a connection waits for the first request of every other."""
    gate = _Gate()
    with served(gate.answer) as port, contextlib.ExitStack() as stack:
        stack.callback(gate.is_open.set)
        asking = [stack.enter_context(opened(port)) for _ in range(5)]
        for one in asking:
            one.sendall(b"GET /first HTTP/1.1\r\n\r\n")
            one.recv(65536)
        asking[0].sendall(b"GET /gate HTTP/1.1\r\n\r\n")
        assert gate.is_reached.wait(60.0)
        for number, one in enumerate(asking):
            one.sendall(f"GET /{number} HTTP/1.1\r\n\r\n".encode() * 3)
        gate.is_open.set()
        for one in asking:
            one.shutdown(socket.SHUT_WR)
            answered(one)
    of_rounds = gate.answered_paths[6:]
    assert sorted(of_rounds) == sorted(f"/{number}" for number in range(5) for _ in range(3))
    for begin in (0, 5, 10):
        assert len(set(of_rounds[begin : begin + 5])) == 5, of_rounds


def test_a_process_without_a_free_descriptor_ends_the_quietest_connection() -> None:
    listener = listening_socket("127.0.0.1", 0)
    server = HttpServer(listener, pages)
    server.start()
    port = listener.getsockname()[1]
    own_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with contextlib.ExitStack() as stack:
            quiet = stack.enter_context(opened(port))
            quiet.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert quiet.recv(65536)
            one = socket.socket()
            stack.enter_context(one)
            one.settimeout(60.0)
            resource.setrlimit(resource.RLIMIT_NOFILE, (one.fileno() + 8, own_limit[1]))
            with contextlib.suppress(OSError):
                while True:
                    stack.callback(os.close, os.dup(quiet.fileno()))
            one.connect(("127.0.0.1", port))
            one.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert answered(one).endswith(b"hello\n")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, own_limit)
        server.close()


class _RefusingListener(socket.socket):
    """A listening socket whose kernel refuses the next connection once, as accept(2) says of a firewall of the host."""

    refusals = 0

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if self.refusals:
            self.refusals -= 1
            raise PermissionError(errno.EPERM, "")
        return super().accept()


def test_a_connection_that_the_kernel_refuses_ends_no_other() -> None:
    plain = listening_socket("127.0.0.1", 0)
    listener = _RefusingListener(fileno=plain.detach())
    server = HttpServer(listener, pages)
    server.start()
    port = listener.getsockname()[1]
    try:
        with opened(port) as quiet:
            quiet.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert quiet.recv(65536)
            listener.refusals = 1
            with opened(port) as other:
                other.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert answered(other).endswith(b"hello\n")
            assert listener.refusals == 0
            quiet.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert answered(quiet).endswith(b"hello\n")
    finally:
        server.close()


def test_one_address_takes_no_more_than_its_share(port: int) -> None:
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60.0, ("127.0.0.2", 0)))
        many = [stack.enter_context(opened(port)) for _ in range(3 * MOST_OF_PEER)]
        assert wait_until(lambda: held(port) <= MOST_OF_PEER + 1)
        for one in (other, many[-1]):
            one.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert answered(one).endswith(b"hello\n")


def test_a_request_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(http, "HEAD_S", 0.05)
    with opened(port) as one:
        one.sendall(b"GET / HT")
        assert answered(one).startswith(b"HTTP/1.1 408")


def test_close_ends_open_connections() -> None:
    listener = listening_socket("127.0.0.1", 0)
    server = HttpServer(listener, pages)
    server.start()
    with opened(listener.getsockname()[1]) as one:
        one.sendall(b"GET /la")
        server.close()
        assert answered(one) == b""
    assert wait_until(lambda: not any(thread.name == "http" for thread in threading.enumerate()))


def test_a_server_whose_thread_could_not_be_started_lets_go_of_its_port() -> None:
    listener = listening_socket("127.0.0.1", 0)
    port = listener.getsockname()[1]
    HttpServer(listener, pages).close()
    listening_socket("127.0.0.1", port).close()
    gc.collect()


def test_a_connection_that_comes_while_it_closes_is_closed() -> None:
    """A socket that nobody closes is a warning as it is collected, which fails the test."""
    for _ in range(20):
        listener = listening_socket("127.0.0.1", 0)
        server = HttpServer(listener, pages)
        server.start()
        with opened(listener.getsockname()[1]) as one:
            server.close()
            assert answered(one) == b""
    gc.collect()


def test_connections_for_which_there_is_no_room_are_closed_too() -> None:
    listener = listening_socket("127.0.0.1", 0)
    server = HttpServer(listener, pages)
    server.start()
    with contextlib.ExitStack() as stack:
        port = listener.getsockname()[1]
        clients = [stack.enter_context(opened(port)) for _ in range(MOST_OF_PEER + 20)]
        time.sleep(0.02)
        server.close()
        for client in clients:
            assert answered(client) == b""
    gc.collect()


@each_row(
    ("header", "host"),
    [
        ("127.0.0.1:9454", "127.0.0.1"),
        ("[::1]:9454", "::1"),
        ("[FE80::1]", "fe80::1"),
        ("LocalHost", "localhost"),
        ("gpu-07.example:80", "gpu-07.example"),
        ("", ""),
        ("127.0.0.1:abc", ""),
        ("evil@127.0.0.1", ""),
        ("127.0.0.1, evil.example", ""),
        ("127.0.0.1;x", ""),
        ("[::1", ""),
        ("127.0.0.1/evil", ""),
    ],
)
def test_a_host_line_names_one_host_or_none(header: str, host: str) -> None:
    assert host_in_header(header) == host


@each_row(
    ("authorization", "right"),
    [
        ("Basic dXNlcjpww6Rzcw==", True),
        ("basic dXNlcjpww6Rzcw==", True),
        ("Basic dXNlcjpwYXNz", False),
        ("Bearer dXNlcjpww6Rzcw==", False),
        ("Basic", False),
        ("Basic !!!", False),
        ("Basic \xff", False),
        ("", False),
    ],
)
def test_a_login_admits_its_own_user_alone(authorization: str, right: bool) -> None:
    assert Login.of("user", "päss").admits(authorization) is right


@pytest.mark.parametrize("path", ["/", "/missing", "/bug"])
def test_the_answer_to_head_has_the_length_of_the_body_and_no_body(port: int, path: str) -> None:
    with opened(port) as one:
        one.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        head, _, body = answered(one).partition(b"\r\n\r\n")
    with opened(port) as one:
        one.sendall(f"HEAD {path} HTTP/1.0\r\n\r\n".encode())
        assert answered(one) == head + b"\r\n\r\n"
    assert f"Content-Length: {len(body)}\r\n".encode() in head
