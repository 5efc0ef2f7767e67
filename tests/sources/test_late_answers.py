"""Answers that come about when their deadline does, for long: nothing stays taken, and the next good answer is read."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from gpumon.readings.frame import EndpointState
from gpumon.sources.endpoint_url import parse_url
from gpumon.sources.fetch import Fetcher, FetchError, Limits
from tests.fakes.http_server import LoopbackServer, Reply, Request, self_signed
from tests.sources.polling import PATIENT, QUICK, polling, until, vllm

DEADLINE_S: Final = 0.04
BODY: Final = b"vllm:generation_tokens_total 1\n" * 1000
HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(BODY)
WAYS: Final = (
    "headers late",
    "rest of the body late",
    "body cut",
    "body dripping",
    "closed without a word",
    "not read",
)
TOGETHER: Final = 20
"""Clients at once: more of them are late by their own doing on a busy machine."""


class LateServer:
    """A server whose answers are late by about the deadline, each in another way, until it is `well`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._talks: set[asyncio.Task[None]] = set()
        self.well = False

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer what comes over one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    await self._answer(reader, writer)
        finally:
            self._talks.discard(task)
            writer.transport.abort()

    async def end(self) -> None:
        """End what is under way."""
        for task in self._talks:
            task.cancel()
        if self._talks:
            await asyncio.wait(self._talks)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        way = "" if self.well else self._random.choice(WAYS)
        late_s = DEADLINE_S * self._random.uniform(0.8, 1.2)
        if way == "not read":
            await asyncio.sleep(late_s)
        await reader.readuntil(b"\r\n\r\n")
        if way == "headers late":
            await asyncio.sleep(late_s)
        elif way == "closed without a word":
            await asyncio.sleep(late_s)
            raise BrokenPipeError
        writer.write(HEAD)
        sent = 0
        if way in ("rest of the body late", "body cut"):
            sent = 500
            writer.write(BODY[:sent])
            await asyncio.sleep(late_s)
        if way == "body cut":
            raise BrokenPipeError
        while way == "body dripping" and sent < len(BODY):
            writer.write(BODY[sent : sent + 5000])
            sent += 5000
            await asyncio.sleep(late_s / 7)
        writer.write(BODY[sent:])
        await writer.drain()


@contextlib.asynccontextmanager
async def late_server(seed: int, tls: tuple[Path, Path] | None = None) -> AsyncIterator[tuple[LateServer, str]]:
    """A late server, and its URL."""
    late = LateServer(seed)
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
    server = await asyncio.start_server(late.talk, "127.0.0.1", 0, ssl=context)
    try:
        port = server.sockets[0].getsockname()[1]
        yield late, f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
    finally:
        server.close()
        await late.end()


class Client:
    """A fetcher of a late server, whose deadline can be moved: a machine that is busy is no late server."""

    def __init__(self, url: str) -> None:
        self.url = parse_url(url)
        self.fetcher = Fetcher(self.url, tls_ca="", tls_verify=False, limits=PATIENT, clock=time.monotonic)

    def _limit(self, limits: Limits) -> None:
        """Move the deadline; the request that is kept from the last poll has the old one."""
        self.fetcher._limits = limits
        self.fetcher._last = None

    async def fails(self, times: int) -> None:
        """Ask so often, with the short deadline; answers that come in time are welcome."""
        self._limit(Limits(DEADLINE_S, DEADLINE_S))
        for _ in range(times):
            with contextlib.suppress(FetchError):
                await self.fetcher.get(self.url.metrics)

    async def is_told(self) -> bool:
        """Whether the next answer is read."""
        self._limit(PATIENT)
        return (await self.fetcher.get(self.url.metrics)).body == BODY


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_ten_deadlines_in_a_row_and_the_next_good_answer_is_read_two_hundred_times() -> None:
    told = 0
    async with late_server(1) as (server, url):
        for _ in range(200 // TOGETHER):
            clients = [Client(url) for _ in range(TOGETHER)]
            server.well = False
            # Three at a time over two connections, as where the page is asked for while models are.
            await asyncio.gather(*(client.fails(times) for client in clients for times in (4, 3, 3)))
            server.well = True
            told += sum(await asyncio.gather(*(client.is_told() for client in clients)))
            await asyncio.gather(*(client.fetcher.close() for client in clients))
    assert told == 200


@pytest.mark.parametrize("secure", [False, True])
async def test_requests_that_are_cut_off_leave_no_descriptor_open(secure: bool, tmp_path: Path) -> None:
    tls = self_signed(tmp_path) if secure else None
    async with late_server(2, tls) as (server, url):
        client = Client(url)
        assert await after_a_well_moment(server, client)
        before = open_descriptors()
        for _ in range(5):
            server.well = False
            await asyncio.gather(*(client.fails(4) for _ in range(3)))
            assert await after_a_well_moment(server, client)
        # Of the late server's own ends, closed when it next looks.
        assert await until(lambda: open_descriptors() <= before)
        await client.fetcher.close()


async def after_a_well_moment(server: LateServer, client: Client) -> bool:
    server.well = True
    return await client.is_told()


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("step", range(30))
async def test_a_request_that_is_cancelled_at_any_step_leaves_nothing_taken(
    step: int, secure: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tls = self_signed(tmp_path_factory.mktemp("tls")) if secure else None
    async with late_server(3, tls) as (server, url):
        server.well = True
        client = Client(url)
        assert await client.is_told()
        await client.fetcher.close()
        before = open_descriptors()
        again = Client(url)
        for _ in range(4):
            task = asyncio.create_task(again.is_told())
            for _ in range(step):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
        assert await again.is_told()
        assert await until(lambda: open_descriptors() <= before + 2)  # both ends of the one connection
        await again.fetcher.close()


@pytest.mark.parametrize("step", range(40))
async def test_a_client_that_is_closed_at_any_step_of_a_request_leaves_no_connection(step: int) -> None:
    async with late_server(5) as (server, url):
        server.well = True
        before = open_descriptors()
        client = Client(url)
        assert await client.is_told()
        tasks = [asyncio.create_task(client.is_told()) for _ in range(2)]
        for _ in range(step):
            await asyncio.sleep(0)
        await client.fetcher.close()
        await asyncio.wait(tasks)
        # Nothing is left to be closed: there may be no loop any more that would do it.
        assert not client.fetcher._requests
        assert not client.fetcher._closing
        for task in tasks:
            assert isinstance(task.exception(), FetchError) or task.result()
        assert await until(lambda: open_descriptors() <= before)


async def test_the_monitor_has_figures_again_at_the_next_poll() -> None:
    slow = False

    def answer(request: Request) -> Reply:
        return vllm(request)._replace(delay_s=QUICK.total_s if slow and request.path == "/metrics" else 0.0)

    with LoopbackServer(answer) as server:
        async with polling(server.url, limits=QUICK) as source:
            for _ in range(3):
                slow = True
                assert await until(lambda: source.reading.state is EndpointState.TIMEOUT)
                asked = len(server.requests)
                assert await until(lambda asked=asked: len(server.requests) > asked)
                slow = False
                assert await until(lambda: source.reading.state is EndpointState.OK)


async def test_more_requests_than_connections_take_turns() -> None:
    async with late_server(4) as (server, url):
        server.well = True
        client = Client(url)
        assert all(await asyncio.gather(*(client.is_told() for _ in range(12))))
        await client.fetcher.close()


def addresses_of(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Have every host name stand for these addresses."""

    def looked_up(_: str, port: int, *__: object, **___: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)


@pytest.mark.parametrize("first", ["127.0.0.2", "127.255.255.255"])
async def test_of_a_name_with_two_addresses_the_one_that_answers_is_used(
    monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    with LoopbackServer(vllm) as server:
        addresses_of(monkeypatch, first, "127.0.0.1")
        async with polling(f"http://gpu-07:{server.port}") as source:
            assert source.reading.state is EndpointState.OK


async def test_an_address_that_swallows_packets_does_not_keep_the_next_one_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LoopbackServer(vllm) as server, contextlib.ExitStack() as ends:
        full = ends.enter_context(socket.socket())
        full.bind(("127.0.0.2", server.port))
        full.listen(0)
        for _ in range(4):  # beyond its backlog nothing is answered
            waiting = ends.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.2", server.port))
        addresses_of(monkeypatch, "127.0.0.2", "127.0.0.1")
        before = open_descriptors()
        async with polling(f"http://gpu-07:{server.port}") as source:
            assert source.reading.state is EndpointState.OK
        assert await until(lambda: open_descriptors() <= before)


async def test_two_requests_at_once_share_the_look_up_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def slow(_: str, port: int, *kinds: int, **more_kinds: int) -> object:
        time.sleep(0.1)
        return real("127.0.0.1", port, *kinds, **more_kinds)

    async with late_server(5) as (server, url):
        server.well = True
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        client = Client(url.replace("127.0.0.1", "gpu-07"))
        assert all(await asyncio.gather(client.is_told(), client.is_told()))
        await client.fetcher.close()
