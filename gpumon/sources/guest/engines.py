"""Polls the engines of a host without gpumon through ssh, with the adapters that poll those of this machine."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gpumon.config.schema import Endpoint
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading
from gpumon.readings.text import clean
from gpumon.sources.discovery.chain import Chain
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.fetch import Limits
from gpumon.sources.guest.processes import StartedEngine
from gpumon.sources.guest.tunnel import Tunnel
from gpumon.sources.prometheus.models import Models

_POLL_S: Final = 2.0
_LIMITS: Final = Limits(connect_s=2.0, total_s=20.0)
"""The first request waits for a login."""
_MOST_PATH: Final = 60
"""Characters of a folder for sockets: Linux takes paths of 107."""
_FOUND_BY: Final = "discovery"
NO_KEY: Final = "no key is sent through ssh: install gpumon on that host"


class _Polled(NamedTuple):
    server: StartedEngine
    source: EndpointSource
    tunnel: Tunnel


class Engines:
    """The engines of one host, by URL. `close` ends all connections."""

    def __init__(self, address: str, models: Models, wall: Callable[[], float]) -> None:
        self._address = address
        self._models = models
        self._wall = wall
        self._polled: dict[str, _Polled] = {}
        self._unpolled: tuple[StartedEngine, ...] = ()
        self._folder: Path | None = None
        self._numbers = 0

    async def adopt(self, servers: Sequence[StartedEngine]) -> None:
        """Poll these servers from now on, and no others."""
        by_url = {server.url: server for server in servers if server.url}
        self._unpolled = tuple(server for server in servers if not server.url)
        for url, polled in tuple(self._polled.items()):
            server = by_url.get(url)
            if server is None or server.pid != polled.server.pid:
                del self._polled[url]
                await _close(polled)
        for url, server in by_url.items():
            if url not in self._polled:
                self._polled[url] = await self._follow(server)
            else:
                polled = self._polled[url]._replace(server=server)
                polled.source.joined = partial(_joined, server, polled.tunnel)
                self._polled[url] = polled

    def readings(self) -> tuple[EngineReading, ...]:
        """The newest reading of each, with model and GPUs."""
        readings: list[EngineReading] = []
        for polled in self._polled.values():
            contribution = polled.source.newest()
            readings += (self._models.attach(reading, polled.source.endpoint) for reading in contribution.engines)
        readings += (_blank(server, self._wall()) for server in self._unpolled)
        return tuple(readings)

    async def close(self) -> None:
        """Stop polling and hang up."""
        try:
            await asyncio.gather(*map(_close, self._polled.values()))
        finally:
            self._polled.clear()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    async def _follow(self, server: StartedEngine) -> _Polled:
        """Open a tunnel to a server and poll it there."""
        kind = server.launch.kind
        name = "auto" if kind is EngineKind.UNKNOWN else kind.value
        endpoint = msgspec.convert({"url": server.url, "engine": name}, Endpoint)
        tunnel = Tunnel(self._address, server.target, self._socket_path())
        tunnel.open()
        source = EndpointSource(
            endpoint,
            _POLL_S,
            self._wall,
            limits=_LIMITS,
            wall=self._wall,
            found_by=_FOUND_BY,
            unix_socket=tunnel.path,
        )
        source.joined = partial(_joined, server, tunnel)
        await source.start()
        return _Polled(server, source, tunnel)

    def _socket_path(self) -> str:
        """A new path in a folder that no other user can look into."""
        if self._folder is None:
            usual = tempfile.gettempdir()
            self._folder = Path(
                tempfile.mkdtemp(prefix="gpumon-ssh-", dir=usual if len(usual) < _MOST_PATH else "/tmp")
            )
        self._numbers += 1
        return str(self._folder / str(self._numbers))


async def _close(polled: _Polled) -> None:
    await polled.source.close()
    await polled.tunnel.close()


def _joined(server: StartedEngine, tunnel: Tunnel, reading: EngineReading) -> EngineReading:
    """The reading with what the process tells beside its pages, and with ssh's reason where there is no answer."""
    chain = Chain((), launch=server.launch, url=server.url)
    fault = reading.fault
    if reading.state is EndpointState.UNAUTHORIZED:
        fault = f"it wants an API key, and {NO_KEY}"
    elif reading.state is not EndpointState.OK and tunnel.last_words:
        fault = f"through ssh: {tunnel.last_words}"
    return msgspec.structs.replace(
        reading,
        fault=fault,
        model=reading.model or clean(server.launch.served_name or server.launch.model),
        model_root=reading.model_root or server.launch.model,
        info={**reading.info, **chain.hints(reading.info)},
        tp=reading.tp or server.launch.tp,
        pp=reading.pp or server.launch.pp,
        dp=reading.dp or server.launch.dp,
        gpus=server.uuids,
        gpus_source="process",
    )


def _blank(server: StartedEngine, now_s: float) -> EngineReading:
    """The reading of a server without a page."""
    kind = server.launch.kind
    words = " ".join(filter(None, (server.launch.command, server.launch.model)))
    return EngineReading(
        f"{kind.value}:{server.pid}",
        f"process:{server.pid}",
        EndpointState.STARTING if "not open" in server.why else EndpointState.REFUSED,
        now_s,
        kind,
        fault=f"server {server.pid} ({clean(words, 120)}): {server.why}",
        found_by=_FOUND_BY,
        gpus=server.uuids,
        gpus_source="process",
    )
