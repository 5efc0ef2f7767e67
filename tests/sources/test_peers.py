"""The two ends of a TCP connection as Linux lists them, and what follows for a key."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.config.schema import Endpoint
from gpumon.sources.api_key import SENT_UNVERIFIED, identify_recipient
from gpumon.sources.sockets import (
    PeerState,
    TcpConnection,
    _netlink_end,
    _printed_end,
    _reversed,
    connection_of,
    peer_of,
)


def connected(server: socket.socket, host: str = "") -> socket.socket:
    return socket.create_connection((host or server.getsockname()[0], server.getsockname()[1]))


@pytest.mark.parametrize(
    ("bound", "to"), [("127.0.0.1", ""), ("0.0.0.0", "127.0.0.2"), ("::1", ""), ("::", "::ffff:127.0.0.1")]
)
def test_both_ends_are_those_of_proc(bound: str, to: str) -> None:
    """The kernel's answer by netlink against its own table in /proc, which is read where a sandbox has no netlink."""
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    with (
        socket.create_server((bound, 0), family=family, dualstack_ipv6=bound == "::") as server,
        connected(server, to) as client,
    ):
        connection = connection_of(client)
        for accepted in (False, True):
            other = server.accept()[0] if accepted else None
            for end in (connection, _reversed(connection)):
                asked = _netlink_end(end)
                assert asked is not None
                assert asked == _printed_end(end)
            state = PeerState.OWNED if accepted else PeerState.WAITING
            assert peer_of(connection).state is state
            if other is not None:
                assert peer_of(connection).uid == os.geteuid()
                other.close()
        assert peer_of(connection).state is PeerState.ENDED
        assert _netlink_end(connection._replace(local_port=1)) is None


HIDDEN = """
import ctypes, socket, sys
from gpumon.config.schema import Endpoint
from gpumon.sources.api_key import identify_recipient
from gpumon.sources.sockets import connection_of, peer_of

with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
    server.accept()
    connection = connection_of(client)
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):
        sys.exit(ctypes.get_errno())
    print(peer_of(connection).state.value)
    for trusted in (False, True):
        endpoint = Endpoint(url="http://x", api_key_env="K", trust_other_namespace=trusted)
        answer = identify_recipient(endpoint, connection)
        print(answer.refusal or "sent", answer.verified, sep="|")
"""
"""A connection of one network namespace, looked at from another one: unshare(2) with CLONE_NEWNET."""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a network namespace")
def test_a_peer_in_another_network_namespace_gets_it_only_where_the_config_says_so() -> None:
    done = subprocess.run([sys.executable, "-c", HIDDEN], capture_output=True, text=True, check=True)
    state, refused, trusted = done.stdout.splitlines()
    assert state == "hidden"
    assert "set trust_other_namespace = true" in refused
    assert trusted == "sent|False"


def test_another_host_is_asked_as_before_and_not_verified() -> None:
    far = TcpConnection(ipaddress.ip_address("192.0.2.1"), 40000, ipaddress.ip_address("192.0.2.7"), 8000, 1)
    assert peer_of(far).state is PeerState.ELSEWHERE
    answer = identify_recipient(Endpoint(url="http://192.0.2.7:8000", api_key_env="K"), far)
    assert (answer.refusal, answer.verified) == ("", False)
    over_tls = identify_recipient(Endpoint(url="https://192.0.2.7:8000", api_key_env="K"), far)
    assert over_tls.verified


FAR_SERVER = """
import socket, subprocess, sys
sys.stdin.readline()
for words in (["addr", "add", "10.89.7.2/24", "dev", "far"], ["link", "set", "far", "up"]):
    subprocess.run(["ip", *words], check=True)
listener = socket.create_server(("10.89.7.2", 8000))
print("listens", flush=True)
while True:
    one, _ = listener.accept()
    while text := one.recv(65536):
        known = b"Bearer open-sesame" in text
        page = b"llamacpp:tokens_predicted_total 5\\n" if known else b""
        head = f"HTTP/1.1 {200 if known else 401} X\\r\\nContent-Length: {len(page)}\\r\\nConnection: close\\r\\n\\r\\n"
        one.sendall(head.encode() + page)
        break
    one.close()
"""
FAR_CLIENT = """
import asyncio, ctypes, os, subprocess, sys
from tests.sources.polling import polling, until

def ip(*words):
    subprocess.run(["ip", *words], check=True)

assert ctypes.CDLL(None).unshare(0x40000000) == 0
words = ["setpriv", "--pdeathsig", "KILL", "unshare", "-n", sys.executable, "-c", sys.argv[1]]
far = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
here = os.readlink("/proc/self/ns/net")
while os.readlink(f"/proc/{far.pid}/ns/net") == here:
    pass
ip("link", "add", "near", "type", "veth", "peer", "name", "far")
ip("link", "set", "far", "netns", str(far.pid))
ip("addr", "add", "10.89.7.1/24", "dev", "near")
ip("link", "set", "near", "up")
far.stdin.write(b"\\n")
far.stdin.flush()
assert far.stdout.readline() == b"listens\\n"

async def main():
    async with polling("http://10.89.7.2:8000", engine="llamacpp", api_key_env="FAR_KEY") as source:
        assert await until(lambda: source.reading.state.value == "ok", 20.0), source.reading
        for fault in source.newest().faults:
            print(fault.text)

try:
    asyncio.run(main())
finally:
    far.kill()
"""
"""Two network namespaces joined by a cable: what is on the other one is another host."""

needs_network = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="only root with iproute2 can lay a cable between two hosts"
)


@needs_network
def test_a_key_that_went_to_another_host_is_called_unverified() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAR_CLIENT, FAR_SERVER],
        env={**os.environ, "FAR_KEY": "open-sesame"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [SENT_UNVERIFIED.format(secret="key")]
