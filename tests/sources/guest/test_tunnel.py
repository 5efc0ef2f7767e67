"""A way to a port of another host: what is left to be said where ssh does not start."""

from __future__ import annotations

import asyncio
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
