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
from gpumon.sources.discovery.launch_options import with_place
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.fetch import Limits
from gpumon.sources.guest.processes import StartedEngine
from gpumon.sources.guest.tunnel import Tunnel
from gpumon.sources.prometheus.models import Models

_POLL_S: Final = 2.0
"""Seconds between two polls of an engine."""
_LIMITS: Final = Limits(connect_s=2.0, total_s=20.0)
"""Bounds of a request: the first one waits for ssh to log in."""
_MOST_FOLDER_CHARACTERS: Final = 60
"""Longest name of a folder for sockets: Linux takes paths of 107 characters, subfolder and file included."""
_FOUND_BY: Final = "discovery"
NO_KEY: Final = "no key is sent through ssh: install gpumon on that host"


class _PolledServer(NamedTuple):
    """A server that is polled, and the tunnel through which."""

    server: StartedEngine
    source: EndpointSource
    tunnel: Tunnel


class GuestEngines:
    """Polls the engines of one host, each through a tunnel of its own. `close` ends all connections."""

    def __init__(self, address: str, models: Models, wall: Callable[[], float]) -> None:
        self._address = address
        self._models = models
        self._wall = wall
        self._polled: dict[str, _PolledServer] = {}
        """URL on that host -> the server there."""
        self._unpolled: tuple[StartedEngine, ...] = ()
        """Servers without a page."""
        self._folder: Path | None = None
        """Folder of the sockets at which tunnels begin; None until there is one."""
        self._socket_count = 0
        """Sockets made so far: each has its number as its name."""

    async def adopt(self, servers: Sequence[StartedEngine]) -> None:
        """Poll these servers from now on, and no others."""
        by_url = {server.url: server for server in servers if server.url}
        self._unpolled = tuple(server for server in servers if not server.url)
        for url, polled in tuple(self._polled.items()):
            server = by_url.get(url)
            if server is None or server.pid != polled.server.pid:  # it ended, or was started anew
                del self._polled[url]
                await _close(polled)
        for url, server in by_url.items():
            if url not in self._polled:
                self._polled[url] = await self._start_polling(server)
            else:  # the newest look at its process may know more of it
                polled = self._polled[url]._replace(server=server)
                polled.source.join_process = partial(_join_process, server, polled.tunnel)
                self._polled[url] = polled

    def readings(self) -> tuple[EngineReading, ...]:
        """The newest reading of each engine, with model and GPUs; one without figures for a server without a page."""
        readings: list[EngineReading] = []
        for polled in self._polled.values():
            contribution = polled.source.newest()
            readings += (self._models.attach(reading, polled.source.endpoint) for reading in contribution.engines)
        readings += (_reading_without_page(server, self._wall()) for server in self._unpolled)
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

    async def _start_polling(self, server: StartedEngine) -> _PolledServer:
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
        source.join_process = partial(_join_process, server, tunnel)
        await source.start()
        return _PolledServer(server, source, tunnel)

    def _socket_path(self) -> str:
        """A new path for a socket, in a folder that no other user can look into."""
        if self._folder is None:
            parent = tempfile.gettempdir()
            if len(parent) >= _MOST_FOLDER_CHARACTERS:
                parent = "/tmp"
            self._folder = Path(tempfile.mkdtemp(prefix="gpumon-ssh-", dir=parent))
        self._socket_count += 1
        return str(self._folder / str(self._socket_count))


async def _close(polled: _PolledServer) -> None:
    await polled.source.close()
    await polled.tunnel.close()


def _join_process(server: StartedEngine, tunnel: Tunnel, reading: EngineReading) -> EngineReading:
    """The reading with the facts of its process (options, GPUs), and with ssh's words where there is no answer."""
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
        options=reading.options.completed_by(with_place(server.launch.options, f"pid {server.pid}")),
    )


def _reading_without_page(server: StartedEngine, wall_s: float) -> EngineReading:
    """The reading of a server whose page is not known: only what its process tells, and why."""
    kind = server.launch.kind
    words = " ".join(filter(None, (server.launch.command, server.launch.model)))
    return EngineReading(
        f"{kind.value}:{server.pid}",
        f"process:{server.pid}",
        EndpointState.STARTING if "not open" in server.why else EndpointState.REFUSED,
        wall_s,
        kind,
        fault=f"server {server.pid} ({clean(words, 120)}): {server.why}",
        found_by=_FOUND_BY,
        gpus=server.uuids,
        gpus_source="process",
    )
