"""The loopback HTTP server, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import httpx
import pytest

from gpumon.demo.server import LoopbackServer, PageAnswer


def answer(path: str) -> PageAnswer:
    if path == "/echo":
        return PageAnswer(200, "text/plain", b"x" * 100_000)
    return PageAnswer(404, "application/json", b"{}")


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    made = LoopbackServer(answer)
    await made.start()
    yield made
    await made.close()


async def raw(server: LoopbackServer, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(sent)
    received = await asyncio.wait_for(reader.read(), 60.0)
    writer.close()
    await writer.wait_closed()
    return received


async def test_get_over_one_kept_connection(server: LoopbackServer) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        for _ in range(3):
            response = await client.get(f"{server.url}/echo?name[]=a")
            assert (response.status_code, len(response.content)) == (200, 100_000)
            assert response.headers["content-type"] == "text/plain"
        assert (await client.get(f"{server.url}/nothing")).status_code == 404
        assert len(server._open) == 1


async def test_other_methods_are_refused(server: LoopbackServer) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.post(f"{server.url}/echo", content=b"body")).status_code == 405
        assert (await client.head(f"{server.url}/echo")).status_code == 405


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"GET /echo\r\n\r\n", b"GET /echo SPDY/3\r\n\r\n"])
async def test_no_http_is_a_bad_request(server: LoopbackServer, sent: bytes) -> None:
    assert (await raw(server, sent)).startswith(b"HTTP/1.1 400 ")


async def test_an_endless_head_is_cut_off(server: LoopbackServer) -> None:
    assert (await raw(server, b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000)).startswith(b"HTTP/1.1 431 ")


async def test_a_head_in_pieces_and_two_requests_at_once(server: LoopbackServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /no HTTP/1.1\r\nhost: a\r")
    await asyncio.sleep(0.05)
    writer.write(b"\n\r\nGET /no HTTP/1.1\r\nConnection: close\r\n\r\n")
    received = await asyncio.wait_for(reader.read(), 60.0)
    writer.close()
    await writer.wait_closed()
    assert received.count(b"HTTP/1.1 404 Not Found\r\n") == 2


async def test_ports_are_the_systems_choice_and_only_on_loopback() -> None:
    servers = [LoopbackServer(answer) for _ in range(4)]
    for each in servers:
        assert each._socket.getsockname()[0] == "127.0.0.1"
    assert len({each.port for each in servers}) == 4
    for each in servers:
        await each.close()


async def test_who_connects_early_is_answered_after_the_start() -> None:
    server = LoopbackServer(answer)
    async with httpx.AsyncClient(trust_env=False) as client:
        early = asyncio.create_task(client.get(f"{server.url}/echo"))
        await asyncio.sleep(0.1)
        assert not early.done()
        await server.start()
        assert (await early).status_code == 200
    await server.close()


async def test_close_cuts_connections_and_frees_the_port(server: LoopbackServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /no HTTP/1.1\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    await asyncio.wait_for(server.close(), 60.0)
    assert await asyncio.wait_for(reader.read(), 60.0) == b"{}"
    writer.close()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", server.port), timeout=60.0):
        pass
