"""A way to a port of another host: what is left to be said where ssh does not start."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.sources.guest.tunnel import Tunnel


async def test_an_ssh_that_does_not_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    tunnel = Tunnel("gpu-07", "127.0.0.1:8000", str(tmp_path / "socket"))
    tunnel.open()
    try:
        reader, writer = await asyncio.open_unix_connection(tunnel.path)
        assert await asyncio.wait_for(reader.read(), 60.0) == b""
        writer.close()
        await writer.wait_closed()
        assert tunnel.last_words == "ssh does not start: No such file or directory"
    finally:
        await tunnel.close()


OUT_OF_FILES = """
import asyncio, os, resource, socket, sys
from gpumon.sources.guest.tunnel import Tunnel

async def main():
    tunnel = Tunnel("gpu-07", "127.0.0.1:8000", sys.argv[1])
    tunnel.open()
    client = socket.socket(socket.AF_UNIX)
    number = os.dup(0)
    os.close(number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, 4096))
    client.connect(tunnel.path)
    client.setblocking(False)
    while not tunnel.last_words:
        await asyncio.sleep(0.01)
    print(tunnel.last_words, flush=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
    print(tunnel.last_words, flush=True)
    client.close()
    await tunnel.close()

asyncio.run(asyncio.wait_for(main(), 50.0))
"""


def test_a_tunnel_goes_on_once_there_are_open_files_again(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_FILES, str(tmp_path / "socket")],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "no connection: Too many open files",
        "ssh does not start: No such file or directory",
    ]
