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
from gpumon.readings.untrusted import MOST_URL, Untrusted
from gpumon.sources.discovery.chain import (
    DISCOVERY_SOURCE,
    Chain,
    Notices,
    chain_checks,
    indices_of,
    not_open_text,
    server_words,
)
from gpumon.sources.discovery.coreless import CORES
from gpumon.sources.discovery.look import DiscoveryLook
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.family import ProcessFamily, is_alive
from gpumon.sources.last_seen.processes.server_looks import RunningServer
from gpumon.sources.offload import in_daemon_thread
from gpumon.sources.ownership import Ownership
from gpumon.sources.probe import IDENTITY
from gpumon.sources.source import Contribution, Source

_MOST_ENGINES: Final = 64
"""Engines polled at once."""
_LOOK_EVERY_S: Final = 10.0
"""Seconds between two looks."""
SOONEST_S: Final = 2.0
"""Seconds between two looks where GPU processes came or went, a server is starting, or one is gone."""
GRACE_S: Final = 30.0
"""Seconds for which a server whose processes are gone stays on the screen: it may only be restarting."""
_READY_S: Final = 2.0
"""Longest wait for the first look and for what it finds to answer."""
_HANGS_S: Final = 10.0
"""Seconds after which a look that has not ended is named as a fault."""
_SLOW: Final = "looking at the processes of this host hangs: engines that start now are not found"


class _Engine:
    """One server that was found."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.source: EndpointSource | None = None
        """Polls it; None before its port is open, and once its process is gone."""
        self.gone_s: float | None = None
        """Since when no chain leads to it (monotonic); None while one does."""
        self.last_readings: tuple[EngineReading, ...] = ()
        """Its last readings, once its process is gone: its port may be anybody's by now."""


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
        again_s: float = _LOOK_EVERY_S,
        soonest_s: float = SOONEST_S,
        grace_s: float = GRACE_S,
    ) -> None:
        """`configured` are polled already; `endpoints` takes what is found, by URL.

        `hardware` is asked for the GPUs before the first frame is there. `ports` are looked at even without a GPU
        process. `again_s`, `soonest_s` and `grace_s` are there for tests.
        """
        self.chains: tuple[Chain, ...] = ()
        self._interval_s = interval_s
        self._configured = tuple(configured)
        self._endpoints: MutableMapping[str, Endpoint] = {} if endpoints is None else endpoints
        self._owner = owner or Ownership()
        self._hardware = hardware
        self._soonest_s = min(soonest_s, again_s)
        self._look_every_s = again_s
        self._grace_s = grace_s
        self._look = DiscoveryLook([source.url.base for source in self._configured], ports)
        self._engines: dict[str, _Engine] = {}
        """URL -> the engine that was found there, in the order of their ports."""
        self._gpus: tuple[GpuReading, ...] = ()
        self._pids: frozenset[int] | None = None
        """Processes that compute on them; None before the first frame."""
        self._news = asyncio.Event()
        """Set when these processes change."""
        self._first_look = asyncio.Event()
        """Set when the first look is over."""
        self._look_began_s: float | None = None
        """When the look that runs now began (monotonic); None between two looks."""
        self._task: asyncio.Task[None] | None = None
        self._closing_tasks: set[asyncio.Task[None]] = set()
        """Close the connections of engines that are not polled any more."""
        claimed: set[int] = set()
        for source in self._configured:
            if source.endpoint.gpus != "auto":
                claimed.update(source.endpoint.gpus)
        self._notices = Notices(frozenset(claimed))
        self._own_fault = ""
        """The fault of gpumon itself that ended the last look; empty where none did."""

    def see(self, gpus: tuple[GpuReading, ...]) -> None:
        """Take the GPUs of the newest frame. Returns at once."""
        self._gpus = gpus
        # Those that only draw do not count.
        pids = frozenset(process.pid for gpu in gpus for process in gpu.processes if process.type != "graphics")
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
                await self._first_look.wait()
        left_s = max(0.0, end_s - time.monotonic())
        await asyncio.gather(*(source.ready(left_s) for source in self._sources()))

    async def poll(self, monotonic_s: float) -> Contribution:
        """The readings of the engines that were found, and the chains that broke. Returns at once."""
        return self._contribution(monotonic_s)

    def newest(self) -> Contribution:
        """The readings and broken chains of this moment."""
        return self._contribution(time.monotonic())

    def _contribution(self, now_s: float) -> Contribution:
        """Readings of all servers that were found, also of those that are not polled, and the present faults."""
        readings: list[EngineReading] = []
        faults: list[Fault] = []
        for engine in self._engines.values():
            if engine.source is not None:
                newest = engine.source.newest()
                engine_readings = newest.engines
                faults += newest.faults
            elif engine.last_readings:
                engine_readings = engine.last_readings
            else:
                engine_readings = (_unpolled(engine.chain, self._interval_s, now_s),)
            readings += [self._with_fix(reading, engine.chain) for reading in engine_readings]
        for chain in self.chains:
            if chain.unreached and self._notices.concern(chain, self._gpus):
                readings.append(self._with_fix(_unpolled(chain, self._interval_s, now_s), chain))
        return Contribution(engines=tuple(readings), faults=(*faults, *self._faults(now_s)))

    def servers(self) -> tuple[RunningServer, ...] | None:
        """The servers that run on this host by the newest look; None before the first."""
        if not self._first_look.is_set():
            return None
        running = []
        for chain in self.chains:
            url = chain.configured or chain.url
            if chain.server is not None and url:
                server = RunningServer(
                    url,
                    server=chain.server,
                    gpu_pids=tuple(sorted(chain.pids)),
                    listens=chain.listens,
                    passing=_is_started_by_ollama(chain),
                    kind=chain.kind,
                    port=chain.port,
                    coreless=not chain.processes and chain.kind in CORES,
                )
                running.append(server)
        return tuple(running)

    def set_interval(self, seconds: float) -> None:
        """Nothing changes: engines are polled and looked for at a cadence of their own."""

    async def close(self) -> None:
        """Stop looking, and polling what was found."""
        tasks = [task for task in (self._task, *self._closing_tasks) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*(source.close() for source in self._sources()), return_exceptions=True)
        if tasks:
            await asyncio.wait(tasks, timeout=0.1)
        self._task = None

    def checks(self, readings: Iterable[EngineReading]) -> list[Check]:
        """The doctor's look at the chains; `readings` are those of all engines."""
        texts = (*self._own_texts(), *self._notices.unseen(self._gpus))
        warnings = [Check("process", DISCOVERY_SOURCE, CheckState.WARN, text) for text in texts]
        return [*chain_checks(self.chains, readings, self._gpus), *warnings]

    def _sources(self) -> list[EndpointSource]:
        """The sources of the engines that are polled."""
        return [engine.source for engine in self._engines.values() if engine.source is not None]

    async def _run(self) -> None:
        """Look for engines again and again, until this task is cancelled."""
        while True:
            if self._pids is None:
                await self._news.wait()
            self._news.clear()
            self._look_began_s = time.monotonic()
            try:
                chains = await in_daemon_thread(self._look_up_chains, self._pids or frozenset())
                await self._adopt(chains)
                self._own_fault = ""
            except Exception as error:  # a fault of gpumon's own costs discovery only
                self._own_fault = f"gpumon failed while it looked for engines ({type(error).__name__}): please report"
            self._look_began_s = None
            self._first_look.set()
            await asyncio.sleep(self._soonest_s)
            # A server that is starting or gone is looked at again soon.
            if all(engine.chain.listens and engine.gone_s is None for engine in self._engines.values()):
                with contextlib.suppress(asyncio.TimeoutError):
                    async with timeout(self._look_every_s - self._soonest_s):
                        await self._news.wait()

    def _look_up_chains(self, pids: frozenset[int]) -> tuple[Chain, ...]:
        """A look at the processes; servers of the config that no chain leads to are found by their sockets."""
        family = ProcessFamily(pids)
        chains = self._look(family, [gpu.uuid for gpu in self._gpus])
        reached = {chain.configured for chain in chains}
        unreached = [source.url.base for source in self._configured if source.url.base not in reached]
        if unreached:
            self._owner.look(unreached, family)
        return chains

    async def _adopt(self, chains: tuple[Chain, ...]) -> None:
        """Begin to poll the servers that are new, and stop where one is gone for good."""
        self._tell_owners(chains)
        self.chains = chains
        by_url = _chains_by_url(chains)
        for url, chain in by_url.items():
            if url in self._engines or len(self._engines) < _MOST_ENGINES:
                await self._follow(url, chain)
        self._drop_gone(by_url)
        self._engines = dict(sorted(self._engines.items(), key=lambda item: (item[1].chain.port, item[0])))
        # The endpoints of the config, too, get what the command lines of their processes say.
        by_configured = {chain.configured: chain for chain in chains}
        for source in self._configured:
            configured_chain = by_configured.get(source.url.base)
            if configured_chain is None:
                source.join_process = None
            else:
                source.join_process = partial(self._with_launch, configured_chain)

    def _drop_gone(self, by_url: Mapping[str, Chain]) -> None:
        """Drop the engines that no chain leads to any more, once they are gone for good."""
        servers = {_server_id(chain): url for url, chain in by_url.items()}
        for url in [url for url in self._engines if url not in by_url]:
            engine = self._engines[url]
            has_moved = servers.get(_server_id(engine.chain), url) != url
            if self._end_if_gone(engine, time.monotonic(), has_moved=has_moved):
                self._drop(url)

    def _tell_owners(self, chains: tuple[Chain, ...]) -> None:
        """Tell the owner which processes are behind servers that discovery does not poll.

        A server that had processes at the last look, and has none now, is told of, too.
        """
        pids_of = {_url_elsewhere(chain): chain.pids for chain in chains}
        for chain in self.chains:
            pids_of.setdefault(_url_elsewhere(chain), frozenset())
        pids_of.pop("", None)
        for url, pids in pids_of.items():
            self._owner.tell(url, pids)

    def _end_if_gone(self, engine: _Engine, now_s: float, *, has_moved: bool) -> bool:
        """Show an engine that no chain leads to as ended, unless its process lives.

        `has_moved`: its process serves at another URL now. Returns whether it is gone for good.
        """
        server = engine.chain.server
        if not has_moved and server is not None and is_alive(server):
            engine.gone_s = None
            return False
        if engine.gone_s is None:
            engine.gone_s = now_s
        if has_moved:
            return True
        if server is not None and not engine.last_readings:
            self._end(engine, now_s)
        # Ollama ends the server of a model that nobody asks for: that is no failure.
        return _is_started_by_ollama(engine.chain) or now_s - engine.gone_s >= self._grace_s

    def _end(self, engine: _Engine, now_s: float) -> None:
        """Show an engine whose process has ended as that, and ask it nothing more."""
        if engine.source is not None:
            readings = engine.source.readings
        else:
            readings = (_unpolled(engine.chain, self._interval_s, now_s),)
        fault = f"{server_words(engine.chain)} has ended"
        engine.last_readings = tuple(
            msgspec.structs.replace(reading, state=EndpointState.REFUSED, fault=fault) for reading in readings
        )
        self._hang_up(engine)

    async def _follow(self, url: str, chain: Chain) -> None:
        """Take the newest chain of a URL, and begin to poll it once its port is open."""
        engine = self._engines.setdefault(url, _Engine(chain))
        if _server_id(engine.chain) != _server_id(chain):
            # Another process: what was learnt of the last one does not hold.
            self._hang_up(engine)
        engine.chain = chain
        engine.gone_s = None
        engine.last_readings = ()
        self._owner.tell(url, chain.pids)
        if chain.listens and engine.source is None:
            name = "auto" if chain.kind is EngineKind.UNKNOWN else chain.kind.value
            endpoint = msgspec.convert({"url": url, "engine": name}, Endpoint)
            self._endpoints[url] = endpoint
            engine.source = EndpointSource(endpoint, self._interval_s, found_by=DISCOVERY_SOURCE)
            await engine.source.start()

    def _drop(self, url: str) -> None:
        """Forget an engine."""
        engine = self._engines.pop(url)
        self._hang_up(engine)
        self._endpoints.pop(url, None)
        self._owner.forget(url)

    def _hang_up(self, engine: _Engine) -> None:
        """Stop polling it; its connection is closed beside the rest."""
        if engine.source is not None:
            task = asyncio.ensure_future(engine.source.close())
            self._closing_tasks.add(task)
            task.add_done_callback(self._closing_tasks.discard)
            engine.source = None

    def _with_fix(self, reading: EngineReading, chain: Chain) -> EngineReading:
        """The reading of a server that was found, with how to give it what it asks for."""
        if reading.state in (EndpointState.UNAUTHORIZED, EndpointState.TLS):
            fix = f"add [[endpoint]] url = {Untrusted(reading.url).in_config(MOST_URL)} with that to the config"
            reading = msgspec.structs.replace(reading, fault=f"{reading.fault}; it was found by itself: {fix}")
        return self._with_launch(chain, reading)

    def _with_launch(self, chain: Chain, reading: EngineReading) -> EngineReading:
        """The reading, with what the command line says where the server itself does not."""
        tp, pp, dp = chain.ranks(len(indices_of(chain.pids, self._gpus)))
        model = reading.model or clean(chain.model)
        model_root = reading.model_root
        if chain.launch is not None:
            # llama-server calls a model of Ollama's by the name of its file.
            model = chain.launch.stored_as or model
            model_root = model_root or chain.launch.model
        info = reading.info
        # Only once the server was asked: what it says itself goes before.
        if IDENTITY in info:
            info = {**info, **chain.info_entries(info)}
        return msgspec.structs.replace(
            reading,
            model=model,
            info=info,
            model_root=model_root,
            tp=reading.tp or tp,
            pp=reading.pp or pp,
            dp=reading.dp or dp,
            options=reading.options.completed_by(chain.options),
        )

    def _faults(self, now_s: float) -> list[Fault]:
        """The present faults of discovery."""
        passing = (*self._notices.broken(self.chains, self._gpus), *self._notices.unseen(self._gpus))
        certain = list(self._own_texts())
        if self._look_began_s is not None and now_s - self._look_began_s > _HANGS_S:
            certain.insert(0, _SLOW)
        return self._notices.faults(certain, passing, now_s, is_first_look_over=self._first_look.is_set())

    def _own_texts(self) -> Iterable[str]:
        """Faults of gpumon's own, and limits that were reached."""
        if self._own_fault:
            yield self._own_fault
        if len(self._engines) >= _MOST_ENGINES:
            yield f"more than {_MOST_ENGINES} engines: the others are not polled"


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


def _chains_by_url(chains: Iterable[Chain]) -> dict[str, Chain]:
    """The chains to poll by URL. Of two with one URL the one that listens; if both do, with the processes of both."""
    by_url: dict[str, Chain] = {}
    for chain in sorted(chains, key=lambda chain: not chain.listens):
        if chain.url and not chain.configured:
            first = by_url.setdefault(chain.url, chain)
            # Two that listen at one port share it: they are one server.
            if first is not chain and chain.listens:
                by_url[chain.url] = first._replace(processes=(*first.processes, *chain.processes))
    return by_url


def _server_id(chain: Chain) -> tuple[int, int] | str:
    """Identity of a server among those at its URL: pid and start of its process, or the URL where that is not known."""
    if chain.server is None:
        return chain.url
    return chain.server.pid, chain.server.started


def _is_started_by_ollama(chain: Chain) -> bool:
    """Whether Ollama started this server for a model: it starts and ends such at will."""
    return chain.launch is not None and bool(chain.launch.stored_as)


def _url_elsewhere(chain: Chain) -> str:
    """The URL of a chain's row that discovery does not poll; empty where there is none."""
    return chain.configured or chain.unreached


def _unpolled(chain: Chain, interval_s: float, now_s: float) -> EngineReading:
    """The reading of a server whose port is not open yet, or to which nothing leads from here."""
    kind = chain.kind
    name = f"{chain.kind.value}:{chain.port}"
    if chain.unreached:
        url = chain.unreached
        state = EndpointState.REFUSED
        fault = f"{server_words(chain)} {chain.broken}"
    else:
        url = chain.url
        state = EndpointState.STARTING
        fault = f"{server_words(chain)}, port {chain.port}: {not_open_text(chain)}"
    return EngineReading(
        name,
        url,
        state,
        now_s,
        kind=kind,
        fault=fault,
        interval_s=interval_s,
        found_by=DISCOVERY_SOURCE,
    )
