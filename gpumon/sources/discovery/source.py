"""Finds the serving engines of this host without configuration, polls them, and follows them as they come and go."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Final

import msgspec

from gpumon.config.schema import Config, Endpoint
from gpumon.deadline import timeout
from gpumon.readings.check import Check, CheckState
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading, Fault, GpuReading
from gpumon.readings.text import clean
from gpumon.sources.discovery.chain import (
    DISCOVERY_SOURCE,
    Chain,
    Notices,
    chain_checks,
    indices_of,
    not_open,
    server_words,
)
from gpumon.sources.discovery.look import DiscoveryLook
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.family import ProcessFamily, lives
from gpumon.sources.last_seen.looks import RunningServer
from gpumon.sources.offload import in_daemon_thread
from gpumon.sources.ownership import Ownership
from gpumon.sources.probe import IDENTITY
from gpumon.sources.source import Contribution, Source

_MOST: Final = 64
"""Engines polled at once."""
_AGAIN_S: Final = 10.0
"""Between two looks."""
SOONEST_S: Final = 2.0
"""The same, where GPU processes came or went, a server is starting, or one is gone."""
GRACE_S: Final = 30.0
"""A server whose processes are gone stays on the screen so long: it may only be restarting."""
_READY_S: Final = 2.0
"""Longest wait for the first look and for what it finds to answer."""
_HANGS_S: Final = 10.0
_SLOW: Final = "looking at the processes of this host hangs: engines that start now are not found"


class _Engine:
    """One server that was found."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.source: EndpointSource | None = None
        self.gone_s: float | None = None
        self.ended: tuple[EngineReading, ...] = ()
        """Its last reading, once its process is gone: its port may be anybody's by now."""


class EngineDiscovery:
    """A source of engines. `see` is told the GPUs of every frame; a thread of its own looks at their processes."""

    def __init__(
        self,
        interval_s: float,
        *,
        configured: Sequence[EndpointSource] = (),
        endpoints: MutableMapping[str, Endpoint] | None = None,
        owner: Ownership | None = None,
        hardware: Source | None = None,
        ports: Sequence[int] = (),
        again_s: float = _AGAIN_S,
        soonest_s: float = SOONEST_S,
        grace_s: float = GRACE_S,
    ) -> None:
        """`configured` are polled already; `endpoints` takes what is found, by URL; `hardware` is asked for the GPUs
        before the first frame is there."""
        self.chains: tuple[Chain, ...] = ()
        self._interval_s = interval_s
        self._configured = tuple(configured)
        self._endpoints: MutableMapping[str, Endpoint] = {} if endpoints is None else endpoints
        self._owner = owner or Ownership()
        self._hardware = hardware
        self._soonest_s = min(soonest_s, again_s)
        self._again_s = again_s
        self._grace_s = grace_s
        self._look = DiscoveryLook([source.url.base for source in self._configured], ports)
        self._engines: dict[str, _Engine] = {}
        """By URL, in the order of their ports."""
        self._gpus: tuple[GpuReading, ...] = ()
        self._pids: frozenset[int] | None = None
        self._news = asyncio.Event()
        self._looked = asyncio.Event()
        self._asked_s: float | None = None
        """When the look that runs now began."""
        self._task: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        given: set[int] = set()
        for source in self._configured:
            if source.endpoint.gpus != "auto":
                given.update(source.endpoint.gpus)
        self._notices = Notices(frozenset(given))
        self._trouble = ""

    def see(self, gpus: tuple[GpuReading, ...]) -> None:
        """The GPUs of the newest frame. Returns at once."""
        self._gpus = gpus
        pids = _computing(gpus)
        if pids != self._pids:
            self._pids = pids
            self._news.set()

    async def start(self) -> None:
        """Begin to look as soon as the GPUs are known."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def ready(self, timeout_s: float) -> None:
        """Wait for the GPUs as long as it takes them, then at most `_READY_S` for engines and their first answers."""
        end_s = time.monotonic() + timeout_s
        if self._hardware is not None and self._pids is None:
            await self._hardware.ready(timeout_s)
            self.see((await self._hardware.poll(time.monotonic())).gpus)
        end_s = min(end_s, time.monotonic() + _READY_S)
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout(max(0.0, end_s - time.monotonic())):
                await self._looked.wait()
        left_s = max(0.0, end_s - time.monotonic())
        await asyncio.gather(*(source.ready(left_s) for source in self._polled()))

    async def poll(self, monotonic_s: float) -> Contribution:
        """The readings of the engines that were found, and the chains that broke. At once."""
        return self._contribution(monotonic_s)

    def newest(self) -> Contribution:
        """The same of this moment."""
        return self._contribution(time.monotonic())

    def _contribution(self, now_s: float) -> Contribution:
        readings: list[EngineReading] = []
        faults: list[Fault] = []
        for engine in self._engines.values():
            told = engine.ended or (_unpolled(engine.chain, self._interval_s, now_s),)
            if engine.source is not None:
                part = engine.source.newest()
                told = part.engines
                faults = [*faults, *part.faults]
            readings += [self._told(reading, engine.chain) for reading in told]
        for chain in self.chains:
            if chain.unreached and self._notices.concern(chain, self._gpus):
                readings.append(self._told(_unpolled(chain, self._interval_s, now_s), chain))
        return Contribution(engines=tuple(readings), faults=(*faults, *self._faults(now_s)))

    def servers(self) -> tuple[RunningServer, ...] | None:
        """The servers that run on this host by the newest look; None before the first."""
        if not self._looked.is_set():
            return None
        servers = []
        for chain in self.chains:
            url = chain.configured or chain.url
            if chain.server is not None and url:
                passing = chain.launch is not None and bool(chain.launch.stored_as)
                servers.append(RunningServer(url, chain.server, tuple(sorted(chain.pids)), chain.listens, passing))
        return tuple(servers)

    def set_interval(self, seconds: float) -> None:
        """Engines are polled and looked for at a cadence of their own."""

    async def close(self) -> None:
        """Stop looking, and polling what was found."""
        tasks = [task for task in (self._task, *self._ending) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*(source.close() for source in self._polled()), return_exceptions=True)
        if tasks:
            await asyncio.wait(tasks, timeout=0.1)
        self._task = None

    def checks(self, readings: Iterable[EngineReading]) -> list[Check]:
        """The doctor's look at the chains; `readings` are those of all engines."""
        texts = (*self._own_texts(), *self._notices.unseen(self._gpus))
        rest = (Check("process", DISCOVERY_SOURCE, CheckState.WARN, text) for text in texts)
        return [*chain_checks(self.chains, readings, self._gpus), *rest]

    def _polled(self) -> list[EndpointSource]:
        polled = []
        for engine in self._engines.values():
            if engine.source is not None:
                polled.append(engine.source)
        return polled

    async def _run(self) -> None:
        while True:
            if self._pids is None:
                await self._news.wait()
            self._news.clear()
            self._asked_s = time.monotonic()
            try:
                chains = await in_daemon_thread(self._chains, self._pids or frozenset())
                await self._adopt(chains)
                self._trouble = ""
            except Exception as error:  # a fault of gpumon's own costs discovery only
                self._trouble = f"gpumon failed while it looked for engines ({type(error).__name__}): please report"
            self._asked_s = None
            self._looked.set()
            await asyncio.sleep(self._soonest_s)
            # A server that is starting or gone is looked at again soon.
            if all(engine.chain.listens and engine.gone_s is None for engine in self._engines.values()):
                with contextlib.suppress(asyncio.TimeoutError):
                    async with timeout(self._again_s - self._soonest_s):
                        await self._news.wait()

    def _chains(self, pids: frozenset[int]) -> tuple[Chain, ...]:
        """A look at the processes; servers of the config that no chain leads to are found by their sockets."""
        family = ProcessFamily(pids)
        chains = self._look(family)
        known = {chain.configured for chain in chains}
        rest = []
        for source in self._configured:
            if source.url.base not in known:
                rest.append(source.url.base)
        if rest:
            self._owner.look(rest, family)
        return chains

    async def _adopt(self, chains: tuple[Chain, ...]) -> None:
        """Begin to poll what is new, and end it where a server is gone for good."""
        self._tell_owners(chains)
        self.chains = chains
        wanted = _by_url(chains)
        for url, chain in wanted.items():
            if url in self._engines or len(self._engines) < _MOST:
                await self._follow(url, chain)
        self._drop_gone(wanted)
        self._engines = dict(sorted(self._engines.items(), key=lambda item: (item[1].chain.port, item[0])))
        # The endpoints of the config have what their processes tell, as those have that were found.
        by_configured = {chain.configured: chain for chain in chains}
        for source in self._configured:
            known = by_configured.get(source.url.base)
            if known is None:
                source.joined = None
            else:
                source.joined = partial(self._joined, known)

    def _drop_gone(self, wanted: Mapping[str, Chain]) -> None:
        """End the engines that no chain leads to any more, once they are gone for good."""
        servers = {_server(chain): url for url, chain in wanted.items()}
        for url in [url for url in self._engines if url not in wanted]:
            engine = self._engines[url]
            has_moved = servers.get(_server(engine.chain), url) != url
            if self._end_if_gone(engine, time.monotonic(), has_moved=has_moved):
                self._drop(url)

    def _tell_owners(self, chains: tuple[Chain, ...]) -> None:
        """Tell which processes are behind servers that are polled elsewhere, and of those before that none is now."""
        given = {_elsewhere(chain): chain.pids for chain in chains}
        for chain in self.chains:
            given.setdefault(_elsewhere(chain), frozenset())
        given.pop("", None)
        for url, pids in given.items():
            self._owner.tell(url, pids)

    def _end_if_gone(self, engine: _Engine, now_s: float, *, has_moved: bool) -> bool:
        """Say of an engine that no chain leads to that it has ended, unless its process lives. Returns whether it is
        gone for good."""
        server = engine.chain.server
        if not has_moved and server is not None and lives(server):
            engine.gone_s = None
            return False
        if engine.gone_s is None:
            engine.gone_s = now_s
        if has_moved:
            return True
        if server is not None and not engine.ended:
            self._end(engine, now_s)
        # Ollama ends the server of a model that nobody asks for: that is no failure.
        is_unloaded = engine.chain.launch is not None and bool(engine.chain.launch.stored_as)
        return is_unloaded or now_s - engine.gone_s >= self._grace_s

    def _end(self, engine: _Engine, now_s: float) -> None:
        """Show an engine whose process has ended as that, and ask it nothing more."""
        last = engine.source.readings if engine.source is not None else ()
        if engine.source is None:
            last = (_unpolled(engine.chain, self._interval_s, now_s),)
        fault = f"{server_words(engine.chain)} has ended"
        ended = []
        for reading in last:
            ended.append(msgspec.structs.replace(reading, state=EndpointState.REFUSED, fault=fault))
        engine.ended = tuple(ended)
        self._hang_up(engine)

    async def _follow(self, url: str, chain: Chain) -> None:
        engine = self._engines.setdefault(url, _Engine(chain))
        if _server(engine.chain) != _server(chain):
            self._hang_up(engine)  # another process: what was learnt of the last one does not hold
        engine.chain = chain
        engine.gone_s = None
        engine.ended = ()
        self._owner.tell(url, chain.pids)
        if chain.listens and engine.source is None:
            name = "auto" if chain.kind is EngineKind.UNKNOWN else chain.kind.value
            endpoint = msgspec.convert({"url": url, "engine": name}, Endpoint)
            self._endpoints[url] = endpoint
            engine.source = EndpointSource(endpoint, self._interval_s, found_by=DISCOVERY_SOURCE)
            await engine.source.start()

    def _drop(self, url: str) -> None:
        engine = self._engines.pop(url)
        self._hang_up(engine)
        self._endpoints.pop(url, None)
        self._owner.forget(url)

    def _hang_up(self, engine: _Engine) -> None:
        """Stop polling it; its connection is closed beside the rest."""
        if engine.source is not None:
            task = asyncio.ensure_future(engine.source.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            engine.source = None

    def _told(self, reading: EngineReading, chain: Chain) -> EngineReading:
        """The reading of a server that was found, with how to give it what it asks for."""
        if reading.state in (EndpointState.UNAUTHORIZED, EndpointState.TLS):
            fix = f'add [[endpoint]] url = "{reading.url}" with that to the config'
            reading = msgspec.structs.replace(reading, fault=f"{reading.fault}; it was found by itself: {fix}")
        return self._joined(chain, reading)

    def _joined(self, chain: Chain, reading: EngineReading) -> EngineReading:
        """The reading, with what the command line says where the server itself does not."""
        tp, pp, dp = chain.ranks(len(indices_of(chain.pids, self._gpus)))
        return msgspec.structs.replace(
            reading,
            model=(chain.launch.stored_as if chain.launch is not None else "") or reading.model or clean(chain.model),
            info={**reading.info, **chain.told(reading.info)} if IDENTITY in reading.info else reading.info,
            model_root=reading.model_root or (chain.launch.model if chain.launch is not None else ""),
            tp=reading.tp or tp,
            pp=reading.pp or pp,
            dp=reading.dp or dp,
        )

    def _faults(self, now_s: float) -> list[Fault]:
        slow = self._asked_s is not None and now_s - self._asked_s > _HANGS_S
        passing = (*self._notices.broken(self.chains, self._gpus), *self._notices.unseen(self._gpus))
        certain = [*([_SLOW] if slow else []), *self._own_texts()]
        return self._notices.faults(certain, passing, now_s, looked=self._looked.is_set())

    def _own_texts(self) -> Iterable[str]:
        if self._trouble:
            yield self._trouble
        if len(self._engines) >= _MOST:
            yield f"more than {_MOST} engines: the others are not polled"


def discover(
    config: Config,
    polled: Sequence[EndpointSource],
    endpoints: MutableMapping[str, Endpoint],
    owner: Ownership,
    hardware: Source | None,
) -> EngineDiscovery | None:
    """The discovery that the config asks for; None without GPUs to begin at. `endpoints` takes what is found."""
    if hardware is None:
        return None
    return EngineDiscovery(
        config.general.engine_interval_s,
        configured=polled,
        endpoints=endpoints,
        owner=owner,
        hardware=hardware,
        ports=config.discovery.ports,
    )


def _by_url(chains: Iterable[Chain]) -> dict[str, Chain]:
    """The chains to poll by URL: of two with one URL, the one that listens; its processes are those of both then."""
    by_url: dict[str, Chain] = {}
    for chain in sorted(chains, key=lambda chain: not chain.listens):
        if chain.url and not chain.configured:
            first = by_url.setdefault(chain.url, chain)
            if first is not chain and chain.listens:
                by_url[chain.url] = first._replace(processes=(*first.processes, *chain.processes))
    return by_url


def _server(chain: Chain) -> tuple[int, int] | str:
    """Identity of a server among those at its URL."""
    return (chain.server.pid, chain.server.started) if chain.server is not None else chain.url


def _computing(gpus: Iterable[GpuReading]) -> frozenset[int]:
    """Processes on the GPUs, but for those that only draw."""
    pids: set[int] = set()
    for gpu in gpus:
        pids.update(process.pid for process in gpu.processes if process.type != "graphics")
    return frozenset(pids)


def _elsewhere(chain: Chain) -> str:
    """The URL of the row that it has without being polled by discovery; empty where there is none."""
    return chain.configured or chain.unreached


def _unpolled(chain: Chain, interval_s: float, now_s: float) -> EngineReading:
    """The reading of a server whose port is not open yet, or to which nothing leads from here."""
    kind = chain.kind
    name = f"{chain.kind.value}:{chain.port}"
    if chain.unreached:
        blank = EngineReading(name, chain.unreached, EndpointState.REFUSED, now_s, kind)
        text = f"{server_words(chain)} {chain.broken}"
    else:
        blank = EngineReading(name, chain.url, EndpointState.STARTING, now_s, kind)
        text = f"{server_words(chain)}, port {chain.port}: {not_open(chain)}"
    return msgspec.structs.replace(blank, fault=text, interval_s=interval_s, found_by=DISCOVERY_SOURCE)
