"""What `gpumon status` asks for on this host, where another program has taken the port of `gpumon serve-metrics`."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from gpumon.commands.served import served_snapshot
from gpumon.config.options import Options
from gpumon.config.schema import Config, Exporter
from gpumon.outputs.status_line import StatusSnapshot
from gpumon.readings.format import rfc3339

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
NESTED = b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[Config]:
    """The config of a host on which a program answers like this where `serve-metrics` would."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield Config(exporter=Exporter(listen=f"127.0.0.1:{listener.getsockname()[1]}"))


def drip(connection: socket.socket, head: bytes) -> None:
    """Send a byte at a time, each sooner than anybody's patience ends, for half a minute."""
    connection.sendall(head)
    for _ in range(300):
        connection.sendall(b"x")
        time.sleep(0.1)


@pytest.mark.parametrize(
    "answer",
    [
        lambda connection: drip(connection, HEAD + b"Content-Length: 100000\r\n\r\n"),
        lambda connection: drip(connection, HEAD + b"X-Header: "),
        lambda connection: connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(NESTED) + NESTED),
        lambda connection: connection.sendall(b"\x1b[2J" * 1000),
        lambda connection: connection.sendall(HEAD + b"Content-Length: 99999\r\n\r\n{}"),
    ],
    ids=["drips", "drips its head", "nested", "no HTTP", "cut"],
)
def test_whoever_has_the_port_holds_nothing_up(answer: Callable[[socket.socket], None]) -> None:
    with answering(answer) as config:
        begun_s = time.monotonic()
        assert served_snapshot(config, Options(), StatusSnapshot, has_endpoints=False) is None
        assert time.monotonic() - begun_s < 20.0


SERVER = """
import os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
connection.recv(65536)
connection.sendall(sys.argv[2].encode())
connection.recv(65536)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
@pytest.mark.parametrize(
    ("uid", "is_taken"), [(0, True), (64_000, True), (12_345, False)], ids=["root", "service", "another user"]
)
def test_a_snapshot_is_that_of_root_of_this_user_or_of_a_service(uid: int, is_taken: bool) -> None:
    gpu = {"state": "ok", "parent_uuid": "", **dict.fromkeys(("busy_ratio", "mfu_ratio", "mbu_ratio"))}
    snapshot = {"time": rfc3339(time.time()), "simulated": False, "gpus": [gpu], "engines": [], "verdicts": []}
    body = json.dumps(snapshot)
    answer = f"{HEAD.decode()}Content-Length: {len(body)}\r\n\r\n{body}"
    command = [sys.executable, "-c", SERVER, str(uid), answer]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        config = Config(exporter=Exporter(listen=f"127.0.0.1:{server.stdout.readline().strip()}"))
        served = served_snapshot(config, Options(), StatusSnapshot, has_endpoints=False)
        server.kill()
    assert (served is not None) is is_taken
