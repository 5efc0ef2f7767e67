"""An answer in HTTP/1.1: the same whatever pieces it arrives in, and an error where it is none."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sources.http1 import AnswerReader, Connection, Head, ProtocolError, connect, request_bytes

WITH_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
IN_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=1\r\nhe\r\n3\r\nllo\r\n0\r\nA: b\r\n\r\n"
TO_THE_END = b"HTTP/1.0 200 OK\nServer: a\n\nhello"
AFTER_A_HINT = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + WITH_LENGTH


class Kept:
    """Keeps a body."""

    def __init__(self) -> None:
        self.text = b""

    def add(self, piece: bytes) -> None:
        self.text += piece


def reader() -> AnswerReader[Kept]:
    return AnswerReader(lambda _head: Kept())


@given(st.sampled_from([WITH_LENGTH, IN_CHUNKS, TO_THE_END, AFTER_A_HINT]), st.lists(st.integers(1, 90), max_size=8))
def test_the_pieces_make_no_difference(answer: bytes, cuts: list[int]) -> None:
    reading = reader()
    begin = 0
    for end in [*sorted(set(cuts)), len(answer)]:
        reading.feed(answer[begin:end])
        begin = max(begin, end)
    if not reading.complete:
        reading.end()
    assert reading.head is not None
    assert (reading.head.status, reading.body.text, reading.complete) == (200, b"hello", True)


def head_of(answer: bytes) -> Head:
    reading = reader()
    reading.feed(answer)
    assert reading.head is not None
    return reading.head


def test_headers() -> None:
    head = head_of(b"HTTP/1.1 204 \r\nA: 1\r\na: 2\r\nB:  x\ty\t\r\n  z\r\nC: \xc3\xa9\r\nD: \xe9\r\n\r\n")
    assert dict(head.headers) == {"a": "1, 2", "b": "x\ty z", "c": "\xe9", "d": "\xe9"}


@pytest.mark.parametrize(
    ("answer", "keeps_open"),
    [
        (b"HTTP/1.1 204 x\r\n\r\n", True),
        (b"HTTP/1.1 204 x\r\nConnection: Close\r\n\r\n", False),
        (b"HTTP/1.0 204 x\r\n\r\n", False),
    ],
)
def test_a_connection_is_kept_where_the_server_keeps_it(answer: bytes, keeps_open: bool) -> None:
    assert head_of(answer).keeps_open is keeps_open


NO_ANSWERS = {
    "TLS": b"\x15\x03\x01\x00\x02\x02\x16",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a blank before the colon": b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
    "no colon": b"HTTP/1.1 200 OK\r\nab\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "an unknown coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "no size of a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a chunk that is too long": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    "more than its length": WITH_LENGTH + b"!",
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
    "a line of a chunk without end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 5000,
    "trailers without end": IN_CHUNKS[:-2] + b"A: b\r\n" * 20_000,
}


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_what_is_no_answer_is_refused_as_soon_as_it_shows(name: str) -> None:
    with pytest.raises(ProtocolError):
        reader().feed(NO_ANSWERS[name])


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", WITH_LENGTH[:-1], IN_CHUNKS[:-1]])
def test_half_an_answer(answer: bytes) -> None:
    reading = reader()
    reading.feed(answer)
    with pytest.raises(ProtocolError):
        reading.end()


def test_a_request_as_it_is_sent() -> None:
    sent = request_bytes("GET", "http://b\xfccher.example:80/\xe4?q=a b", {"A": "b"}, b"")
    assert sent == b"GET /%C3%A4?q=a%20b HTTP/1.1\r\nHost: xn--bcher-kva.example\r\nA: b\r\n\r\n"
    sent = request_bytes("POST", "https://[::1]:9", {}, b"x")
    assert sent == b"POST / HTTP/1.1\r\nHost: [::1]:9\r\nContent-Length: 1\r\n\r\nx"


@pytest.mark.parametrize("text", ["a\r\nB: c", "a\0", "a\x7f"])
def test_a_header_cannot_bring_another_one(text: str) -> None:
    with pytest.raises(ValueError, match="control character"):
        request_bytes("GET", "http://a", {"A": text}, b"")


@contextlib.asynccontextmanager
async def listening(answer: bytes = WITH_LENGTH) -> AsyncIterator[int]:
    """The port of a server on 127.0.0.1 that answers every request with the same bytes."""

    async def serve(requests: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await requests.readuntil(b"\r\n\r\n")
                answers.write(answer)
        answers.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def asked(connection: Connection, within_s: float = 60.0) -> bytes:
    reading = reader()
    await connection.ask(b"GET / HTTP/1.1\r\n\r\n", reading, within_s)
    return reading.body.text


async def test_an_address_that_refuses_does_not_hide_the_next_one() -> None:
    async with listening() as port:
        connection = await connect(("127.0.0.2", "127.0.0.1"), port, "", 60.0)
        assert connection.socket.getpeername()[0] == "127.0.0.1"
        assert [await asked(connection) for _ in range(2)] == [b"hello", b"hello"]
        connection.close()


async def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    async with listening(WITH_LENGTH + b"HTTP/1.1 200 OK\r\n\r\n") as port:
        connection = await connect(("127.0.0.1",), port, "", 60.0)
        with pytest.raises(ProtocolError):
            await asked(connection)
        assert not connection.open


async def test_a_request_that_is_given_up_is_not_answered_by_a_later_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = await connect(("127.0.0.1",), silent.getsockname()[1], "", 60.0)
        with pytest.raises(asyncio.TimeoutError):
            await asked(connection, within_s=0.0)
        assert not connection.open
