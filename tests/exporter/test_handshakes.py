"""TLS handshakes with the HTTP server: an address waits for few of another's, whatever that one's clients do."""

from __future__ import annotations

import contextlib
import gc
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from gpumon.outputs import http
from gpumon.outputs.http import MOST_OF_PEER, HttpResponse, HttpServer, listening_socket
from tests.exporter.test_http_server import answered, held
from tests.fakes.http_server import self_signed, wait_until

HONEST = "127.0.0.1"
HOSTILE = 50


class TlsServer:
    """A server whose thread stands still in the answer to `/gate` until that is opened."""

    def __init__(self, folder: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self_signed(folder))
        context.sni_callback = self._on_hello
        listener = listening_socket("127.0.0.1", 0)
        self.port: int = listener.getsockname()[1]
        self.hellos: list[str] = []
        """Names that clients called the server by, in the order in which their handshakes were computed."""
        self.hellos_before: dict[str, int] = {}
        """Path -> how many handshakes were computed before it was asked for."""
        self.gate_reached = threading.Event()
        self.gate_open = threading.Event()
        self.server = HttpServer(listener, self._answer, tls=context)
        self.server.start()

    def _on_hello(self, _: object, name: str | None, __: ssl.SSLContext) -> None:
        self.hellos.append(name or "")

    def _answer(self, path: str, _: Mapping[str, str]) -> HttpResponse:
        self.hellos_before[path] = len(self.hellos)
        if path == "/gate":
            self.gate_reached.set()
            assert self.gate_open.wait(60.0)
        return HttpResponse(200, b"hello\n")

    def stand_still(self, stack: contextlib.ExitStack) -> None:
        """Keep the server busy until `gate_open` is set."""
        stack.callback(self.gate_open.set)
        client = stack.enter_context(Client(self.port, HONEST, "gate"))
        client.finish_handshake()
        client.send(b"GET /gate HTTP/1.1\r\n\r\n")
        assert self.gate_reached.wait(60.0)
        self.hellos.clear()


class Client:
    """A TLS client that sends what a test tells it to, and no more."""

    def __init__(self, port: int, address: str, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 30.0, (address, 0))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        assert self._waits(self._tls.do_handshake)
        self.hello = self._outgoing.read()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send_hello(self) -> None:
        self.socket.sendall(self.hello)

    def compute_handshake(self) -> bytes:
        """The last bytes of a handshake whose hello was sent."""
        while self._waits(self._tls.do_handshake):
            self._receive()
        return self._outgoing.read()

    def _waits(self, step: Callable[[], object]) -> bool:
        """Whether a step waits for what the server is still to send."""
        try:
            step()
        except ssl.SSLWantReadError:
            return True
        return False

    def _receive(self) -> None:
        received = self.socket.recv(65536)
        assert received, "the server has ended the connection"
        self._incoming.write(received)

    def close_notify(self) -> bytes:
        """The bytes that end TLS."""
        assert self._waits(self._tls.unwrap)
        return self._outgoing.read()

    def finish_handshake(self) -> None:
        self.send_hello()
        self.socket.sendall(self.compute_handshake())

    def send(self, request: bytes) -> None:
        self._tls.write(request)
        self.socket.sendall(self._outgoing.read())

    def get(self) -> bytearray:
        """The answer to a request."""
        self.send(b"GET / HTTP/1.0\r\n\r\n")
        return self.read()

    def read(self) -> bytearray:
        """What the server answers."""
        received = bytearray()
        while not received.endswith(b"hello\n"):
            if self._waits(lambda: received.extend(self._tls.read(65536))):
                self._receive()
        return received


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[TlsServer]:
    tls = TlsServer(tmp_path)
    yield tls
    tls.gate_open.set()
    tls.server.close()
    assert not any(thread.name == "http" for thread in threading.enumerate())
    gc.collect()  # a socket or a transport that nobody closed is a warning, which fails the test


@pytest.mark.parametrize("addresses", [1, 10])
def test_an_address_waits_for_one_handshake_of_each_other(tls: TlsServer, addresses: int) -> None:
    """All hostile handshakes have begun before the honest client's: the server takes them up at once."""
    with contextlib.ExitStack() as stack:
        tls.stand_still(stack)
        for number in range(HOSTILE):
            hostile = Client(tls.port, f"127.0.0.{2 + number % addresses}", "hostile")
            stack.enter_context(hostile).send_hello()
        honest = stack.enter_context(Client(tls.port, HONEST, "honest"))
        honest.send_hello()
        tls.gate_open.set()
        honest.socket.sendall(honest.compute_handshake())
        assert honest.get()
        assert wait_until(lambda: len(tls.hellos) == HOSTILE + 1)
    assert tls.hellos.index("honest") <= addresses + 2, tls.hellos


def test_clients_of_an_address_wait_in_their_order(tls: TlsServer) -> None:
    names = [f"client-{number}" for number in range(10)]
    with contextlib.ExitStack() as stack:
        tls.stand_still(stack)
        for name in names:
            stack.enter_context(Client(tls.port, HONEST, name)).send_hello()
        tls.gate_open.set()
        assert wait_until(lambda: len(tls.hellos) == len(names))
    assert tls.hellos == names


def test_clients_that_send_no_whole_step_hold_up_nobody_of_their_address(tls: TlsServer) -> None:
    """Some are mute, some send half a hello, some send no end of their handshake."""
    with contextlib.ExitStack() as stack:
        for number in range(HOSTILE):
            hostile = stack.enter_context(Client(tls.port, HONEST, "hostile"))
            hostile.socket.sendall((b"", hostile.hello[:100], hostile.hello)[number % 3])
        honest = stack.enter_context(Client(tls.port, HONEST, "honest"))
        honest.finish_handshake()
        assert honest.get()


def test_rests_of_hellos_are_computed_in_turns_too(tls: TlsServer) -> None:
    """All clients have had a turn with half a hello; the other halves come while the server stands still."""
    with contextlib.ExitStack() as stack:
        hostile = [stack.enter_context(Client(tls.port, "127.0.0.2", "hostile")) for _ in range(HOSTILE)]
        for client in hostile:
            client.socket.sendall(client.hello[:100])
        assert wait_until(lambda: held(tls.port) >= HOSTILE)
        tls.stand_still(stack)
        for client in hostile:
            client.socket.sendall(client.hello[100:])
        honest = stack.enter_context(Client(tls.port, HONEST, "honest"))
        honest.send_hello()
        tls.gate_open.set()
        assert wait_until(lambda: len(tls.hellos) == HOSTILE + 1)
    assert tls.hellos.index("honest") < 10, tls.hellos


def test_a_client_whose_hello_was_answered_does_not_wait_for_all_others_again(tls: TlsServer) -> None:
    with contextlib.ExitStack() as stack:
        hostile = [stack.enter_context(Client(tls.port, f"127.0.0.{2 + number}", "hostile")) for number in range(20)]
        honest = stack.enter_context(Client(tls.port, HONEST, "honest"))
        honest.send_hello()
        end = honest.compute_handshake()
        assert wait_until(lambda: held(tls.port) == len(hostile) + 1)
        tls.stand_still(stack)
        for client in hostile:
            client.send_hello()
        honest.socket.sendall(end)
        honest.send(b"GET /honest HTTP/1.0\r\n\r\n")
        tls.gate_open.set()
        assert wait_until(lambda: len(tls.hellos) == len(hostile))
        assert wait_until(lambda: "/honest" in tls.hellos_before)
    assert tls.hellos_before["/honest"] < 10


def test_a_client_that_sends_nothing_costs_nothing(tls: TlsServer) -> None:
    with Client(tls.port, HONEST, "half") as half:
        half.socket.sendall(half.hello[:100])
        assert wait_until(lambda: held(tls.port))
        before_s = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - before_s < 0.1


def test_nothing_is_computed_for_a_client_that_has_closed(tls: TlsServer) -> None:
    with contextlib.ExitStack() as stack:
        tls.stand_still(stack)
        for _ in range(HOSTILE):
            with Client(tls.port, "127.0.0.2", "hostile") as hostile:
                hostile.send_hello()
        honest = stack.enter_context(Client(tls.port, "127.0.0.2", "honest"))
        honest.send_hello()
        tls.gate_open.set()
        honest.socket.sendall(honest.compute_handshake())
        assert honest.get()
    assert tls.hellos == ["honest"]


def test_a_client_that_asks_and_closes_its_side_with_the_end_of_its_handshake_is_answered(tls: TlsServer) -> None:
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(Client(tls.port, HONEST, "asks once"))
        client.send_hello()
        end = client.compute_handshake()
        tls.stand_still(stack)
        client.socket.sendall(end)
        client.send(b"GET /once HTTP/1.0\r\n\r\n")
        client.socket.shutdown(socket.SHUT_WR)
        tls.gate_open.set()
        assert wait_until(lambda: "/once" in tls.hellos_before)
        assert client.read()


def test_a_handshake_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch, tls: TlsServer) -> None:
    monkeypatch.setattr(http, "HEAD_S", 0.05)
    with Client(tls.port, HONEST, "half") as half:
        half.socket.sendall(half.hello[:100])
        assert answered(half.socket) == b""


def test_a_connection_that_ends_with_its_handshake_says_nothing(
    tls: TlsServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "asyncio"), Client(tls.port, HONEST, "short") as short:
        short.send_hello()
        end = short.compute_handshake() + short.close_notify()
        short.socket.sendall(end)
        answered(short.socket)
    assert not caplog.records


def test_waiting_connections_make_room_and_leave_no_descriptor(tls: TlsServer) -> None:
    before = descriptors()
    with contextlib.ExitStack() as stack:
        for _ in range(3 * MOST_OF_PEER):
            half = stack.enter_context(Client(tls.port, HONEST, "half"))
            with contextlib.suppress(OSError):  # ended by now to make room
                half.socket.sendall(half.hello[:100])
        honest = stack.enter_context(Client(tls.port, HONEST, "honest"))
        honest.finish_handshake()
        assert honest.get()
        assert wait_until(lambda: held(tls.port) <= MOST_OF_PEER)
    assert wait_until(lambda: descriptors() == before)


def test_close_ends_connections_that_wait_for_their_turn(tmp_path: Path) -> None:
    before = descriptors()
    tls = TlsServer(tmp_path)
    with contextlib.ExitStack() as stack:
        tls.stand_still(stack)
        waiting = [stack.enter_context(Client(tls.port, HONEST, "waits")) for _ in range(HOSTILE)]
        for client in waiting:
            client.send_hello()
        threading.Timer(0.05, tls.gate_open.set).start()
        tls.server.close()
        for client in waiting:
            answered(client.socket)
    assert descriptors() == before
    gc.collect()


def test_close_ends_connections_whose_clients_do_not_end_them(tmp_path: Path) -> None:
    before = descriptors()
    tls = TlsServer(tmp_path)
    with Client(tls.port, HONEST, "stays") as client:
        client.finish_handshake()
        assert client.get()
        tls.server.close()
        assert descriptors() == before + 1, "the client's"
    gc.collect()


def descriptors() -> int:
    """Open descriptors of this process, the server's among them."""
    return len(list(Path("/proc/self/fd").iterdir()))
