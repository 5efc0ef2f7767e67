"""Who a key or a password is sent to: the owner of the connected socket, with real servers of other users."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpumon.config.schema import Dcgm, Host
from gpumon.readings.frame import EndpointState
from gpumon.sources.dcgm import DcgmSource
from gpumon.sources.remote import Remote
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.discovery.servers import free_port
from tests.sources.polling import HURRIED, PATIENT, polling, until

SESAME = "open-sesame-1234"
OTHER = pwd.getpwnam("nobody")
SERVER = """
import os, socket, sys, threading, time
uid, host, port, habit = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if ":" in host:
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
if habit == "accepts only with data":
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 60)
listener.bind((host, port))
listener.listen(16)
print("listens", flush=True)

def serve(one):
    while text := one.recv(65536):
        print(text, flush=True)
        one.sendall(b"HTTP/1.1 401 No\\r\\nContent-Length: 0\\r\\n\\r\\n")

connections = 0
while True:
    if habit == "accepts late":
        time.sleep(1.3)
    one, _ = listener.accept()
    connections += 1
    if habit == f"listens until connection {connections}":
        listener.close()
        serve(one)
        break
    threading.Thread(target=serve, args=(one,), daemon=True).start()
while True:
    time.sleep(60.0)
"""
"""A server that answers everything with 401 on connections that it keeps, and prints what it gets."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user as well")


@contextmanager
def serving(uid: int, log: Path, host: str = "127.0.0.1", port: int = 0, habit: str = "") -> Iterator[int]:
    """The port of a server of this user."""
    port = port or free_port()
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", SERVER, str(uid), host, str(port), habit], stdout=file)
    try:
        while b"listens" not in log.read_bytes():
            assert process.poll() is None
            time.sleep(0.01)
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "key"
    path.write_text(SESAME)
    monkeypatch.setenv("THE_KEY", SESAME)
    return path


@pytest.fixture
def both_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose /etc/hosts gives localhost both addresses, `::1` first."""
    look_up = socket.getaddrinfo

    def answer(host: object, port: object, *words: object, **named: object) -> object:
        if host not in ("localhost", b"localhost"):
            return look_up(host, port, *words, **named)  # type: ignore[arg-type]
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


def requests_in(log: Path) -> int:
    return log.read_bytes().count(b"GET ")


def each_and_all(firsts: Sequence[object], seconds: Sequence[object]) -> list[Any]:
    """All pairs: each first with the first second and the other way round in every run, the others as wide cases."""
    pairs = []
    for first in firsts:
        for second in seconds:
            always = first == firsts[0] or second == seconds[0]
            pairs.append(pytest.param(first, second, marks=() if always else pytest.mark.wide))
    return pairs


HABITS = ("", "accepts late", "accepts only with data", "listens until connection 1", "listens until connection 2")
ADDRESSES = ("http://127.0.0.1", "http://0.0.0.0", "http://[::ffff:127.0.0.1]")


@needs_root
@pytest.mark.parametrize(("url", "habit"), each_and_all(ADDRESSES, HABITS))
async def test_a_server_of_another_user_gets_no_key(key: Path, tmp_path: Path, url: str, habit: str) -> None:
    log = tmp_path / "log"
    with serving(OTHER.pw_uid, log, habit=habit) as port:
        async with polling(f"{url}:{port}", engine="vllm", api_key_env="THE_KEY") as source:
            assert await until(lambda: source.reading.state in (EndpointState.UNAUTHORIZED, EndpointState.REFUSED))
            await asyncio.sleep(0.5)
            assert requests_in(log) >= 1
            if "until" not in habit:
                assert "belongs to nobody" in source.reading.fault
                assert 'set api_key_user = "nobody"' in source.reading.fault
    assert SESAME not in log.read_text()


@needs_root
@pytest.mark.parametrize("where", ["env", "file"])
async def test_who_took_the_port_of_a_server_that_is_down_gets_no_key(key: Path, tmp_path: Path, where: str) -> None:
    given = {"api_key_env": "THE_KEY"} if where == "env" else {"api_key_file": str(key)}
    log = tmp_path / "log"
    with serving(OTHER.pw_uid, log) as port:
        url = f"http://127.0.0.1:{port}"
        async with polling(url, engine="vllm", **given) as source:
            assert await until(lambda: source.reading.state is EndpointState.UNAUTHORIZED)
            assert await until(lambda: log.read_text().count("/metrics") > 3)
            fault = source.reading.fault
        dcgm = DcgmSource(Dcgm(url=url, interval_s=0.5, **given), limits=PATIENT, back_off=HURRIED)
        await dcgm.start()
        await dcgm.ready(60.0)
        (told,) = (await dcgm.poll(0.0)).faults
        await dcgm.close()
    assert SESAME not in log.read_text()
    for text in (fault, told.text):
        assert "the server on this port belongs to nobody" in text
        assert 'api_key_user = "nobody"' in text
        assert SESAME not in text


@needs_root
@pytest.mark.usefixtures("both_addresses")
async def test_the_port_of_localhost_may_be_two_users(key: Path, tmp_path: Path) -> None:
    """The engine listens on 127.0.0.1, and another user on the same port of `::1`, which is tried first."""
    with serving(0, tmp_path / "engine") as port, serving(OTHER.pw_uid, tmp_path / "thief", "::", port):
        async with polling(f"http://localhost:{port}", engine="vllm", api_key_env="THE_KEY") as source:
            assert await until(lambda: "belongs to nobody" in source.reading.fault)
            assert await until(lambda: requests_in(tmp_path / "thief") > 2)
    assert SESAME not in (tmp_path / "thief").read_text()


@needs_root
async def test_root_on_the_same_port_does_not_vouch_for_another_user(key: Path, tmp_path: Path) -> None:
    """Nobody has accepted the connection, so that it may be in the queue of either."""
    habit = "accepts only with data"
    with (
        serving(0, tmp_path / "engine", "0.0.0.0", habit=habit) as port,
        serving(OTHER.pw_uid, tmp_path / "thief", "::", port, habit),
    ):
        async with polling(f"http://[::1]:{port}", engine="vllm", api_key_env="THE_KEY") as source:
            assert await until(lambda: "belongs to nobody" in source.reading.fault)
            assert await until(lambda: requests_in(tmp_path / "thief") > 1)
    assert SESAME not in (tmp_path / "thief").read_text()


OWN = (
    ("http://127.0.0.1", "127.0.0.1"),
    ("http://0.0.0.0", "127.0.0.1"),
    ("http://[::ffff:127.0.0.1]", "0.0.0.0"),
    ("http://[::1]", "::"),
    ("http://[::]", "::1"),
)
"""The URL's beginning, and the address that the server listens on."""


@pytest.mark.parametrize(("place", "habit"), each_and_all(OWN, HABITS[:3]))
async def test_a_server_of_ones_own_gets_it(key: Path, tmp_path: Path, place: tuple[str, str], habit: str) -> None:
    url, host = place
    log = tmp_path / "log"
    with serving(os.geteuid(), log, host, habit=habit) as port:
        async with polling(f"{url}:{port}", engine="vllm", api_key_file=str(key)):
            assert await until(lambda: f"Bearer {SESAME}" in log.read_text())


@needs_root
@pytest.mark.parametrize("habit", ["", "accepts only with data"])
async def test_the_user_that_the_config_names_gets_it_and_so_does_the_owner_of_its_file(
    key: Path, tmp_path: Path, habit: str
) -> None:
    os.chown(key, OTHER.pw_uid, -1)
    for given in ({"api_key_env": "THE_KEY", "api_key_user": "nobody"}, {"api_key_file": str(key)}):
        log = tmp_path / "log"
        with serving(OTHER.pw_uid, log, habit=habit) as port:
            async with polling(f"http://127.0.0.1:{port}", engine="vllm", **given):
                assert await until(lambda log=log: f"Bearer {SESAME}" in log.read_text())  # type: ignore[misc]


@needs_root
@pytest.mark.parametrize("address", ["http://127.0.0.1", "http://0.0.0.0", "http://[::ffff:127.0.0.1]"])
async def test_a_host_of_another_user_gets_no_password_before_its_user_is_named(
    key: Path, tmp_path: Path, address: str
) -> None:
    log = tmp_path / "log"
    with serving(OTHER.pw_uid, log) as port:
        url = f"{address}:{port}"

        async def run(password_user: str, done: Callable[[Remote], object]) -> str:
            host = Host(address=url, user="ops", password_file=str(key), password_user=password_user)
            remote = Remote(host, 1.0, time.time)
            task = asyncio.create_task(remote.run())
            assert await until(lambda: done(remote))
            fault = remote.fault
            task.cancel()
            await asyncio.wait({task})
            return fault

        fault = await run("", lambda remote: "belongs to nobody" in remote.fault)
        assert 'set password_user = "nobody"' in fault
        assert requests_in(log) == 0
        await run("nobody", lambda _: requests_in(log))
        assert b"Authorization: Basic" in log.read_bytes()


async def test_a_checked_connection_is_kept(key: Path) -> None:
    """Each poll with the key would else cost a connection and a look at its owner."""

    def guarded(request: Request) -> Reply:
        known = request.headers.get("authorization") == f"Bearer {SESAME}"
        return Reply(200, b"llamacpp:tokens_predicted_total 5\n") if known else Reply(401, b"")

    with LoopbackServer(guarded) as server:
        async with polling(server.url, engine="llamacpp", api_key_file=str(key)) as source:
            assert await until(lambda: len(server.requests) > 20)
            assert source.reading.state is EndpointState.OK
        assert server.connections < 6, (
            "one without the key and one with it, and on a busy machine one that was too slow"
        )
