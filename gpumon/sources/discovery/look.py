"""One look: from the processes on the GPUs to their servers, their listening sockets, and the URLs of their pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.config import urls
from gpumon.readings.frame import EngineKind
from gpumon.sources.checked_open import allowed
from gpumon.sources.discovery.chain import Chain
from gpumon.sources.discovery.command_line import Launch
from gpumon.sources.discovery.coreless import CorelessServers
from gpumon.sources.discovery.network import published
from gpumon.sources.discovery.page_address import PageAddress, PageLocator
from gpumon.sources.discovery.servers import EngineProcess, server_in
from gpumon.sources.endpoint_url import parse_url
from gpumon.sources.family import ProcessFamily, ProcessRecord
from gpumon.sources.file_views import container_pid, root_of
from gpumon.sources.model_files import is_blob, ollama_name
from gpumon.sources.offload import daemon_thread
from gpumon.sources.reading_user import reader_of
from gpumon.sources.sockets import LocalAddress, Locator, reached

_PORT_LAUNCH: Final = Launch(EngineKind.UNKNOWN, "a port of [discovery]", command="[discovery] ports")
"""Stands for the command line of whatever listens on a port that the config names."""
NAME_PATIENCE_S: Final = 0.5
"""Longest wait of a look for the name of a file: a store on a disk of this host answers in milliseconds."""


class DiscoveryLook:
    """Follows the chains of GPU processes, a look with each call. For a thread, one call at a time: /proc, sockets and
    name servers can be slow, and can hang."""

    def __init__(self, configured: Sequence[str] = (), ports: Sequence[int] = ()) -> None:
        """`configured` are the URLs that the config lists; `ports` are looked at even without a GPU process."""
        self._configured = tuple(configured)
        self._ports = tuple(ports)
        self._locator = PageLocator()
        self._coreless = CorelessServers()
        self._locate = Locator()
        self._stored_names: dict[tuple[int, int], Future[str]] = {}
        """Pid and start of a server -> Ollama's name of the file that it was given, once it is read.

        It is read in a thread, as the file's folder may hang."""
        self._pids_met: set[int] = set()
        """Processes that /proc had once: without it now, they ended, and NVML's list is a little older."""

    def __call__(self, family: ProcessFamily, uuids: Collection[str] = ()) -> tuple[Chain, ...]:
        """The chains of the processes on the GPUs of these UUIDs, one for each server; broken ones say where."""
        absent = self._absent_pids(family)
        groups = self._groups_of(family, uuids)
        self._begin(groups)
        server_chains = [self._follow(group.server, tuple(group.members)) for group in groups]
        # One that does not listen either only begins, or ends.
        server_chains = [chain for chain in server_chains if chain.processes or chain.listens]
        if absent:
            server_chains.append(Chain((), absent=absent))
        return (*self._mark_configured(server_chains), *self._chains_of_ports(server_chains))

    def _absent_pids(self, family: ProcessFamily) -> tuple[int, ...]:
        """GPU processes that /proc never had; one that it had once has ended."""
        chains = family.chains
        self._pids_met = {pid for pid in chains if chains[pid] or pid in self._pids_met}
        return tuple(sorted(chains.keys() - self._pids_met))

    def _groups_of(self, family: ProcessFamily, uuids: Collection[str]) -> list[_Group]:
        """The processes on GPUs by their servers, and servers that have none there any more."""
        groups = _group_by_server(ancestors for _, ancestors in sorted(family.chains.items()) if ancestors)
        pids = [group.server.process.pid for group in groups if group.server is not None]
        return [*groups, *(_Group(server, []) for server in self._coreless.find(pids, uuids))]

    def _begin(self, groups: Iterable[_Group]) -> None:
        """Begin a look at the servers of these groups: what is remembered of others goes."""
        servers = [group.server.process for group in groups if group.server is not None]
        self._locator.begin(servers)
        keys = {(server.pid, server.started) for server in servers}
        self._stored_names = {key: name for key, name in self._stored_names.items() if key in keys}

    def _follow(self, engine: EngineProcess | None, members: tuple[ProcessRecord, ...]) -> Chain:
        """The chain from processes on GPUs (`members`) to the page of their server."""
        if engine is None:
            return Chain(members)
        server = engine.process
        launched = self._with_stored_name(server, engine.launch)
        gpu_pids = frozenset(member.pid for member in members)
        address = self._locator.locate(server, launched, gpu_pids)
        return Chain(
            members,
            server=server,
            launch=launched,
            port=address.port,
            url=address.url,
            listens=bool(address.listeners),
            broken=address.broken,
            configured=self._configured_url(address),
            foreign=address.foreign,
            folder=_folder(server, launched.model),
        )

    def _with_stored_name(self, server: ProcessRecord, launched: Launch) -> Launch:
        """The launch with the name that Ollama's store has for its file; a later look has it if not this."""
        is_nameless = launched.kind is EngineKind.LLAMA_CPP and not launched.served_name
        if not is_nameless or not allowed(launched.model) or not is_blob(Path(launched.model)):
            return launched
        return launched._replace(stored_as=self._stored_name(server, launched.model))

    def _stored_name(self, server: ProcessRecord, model: str) -> str:
        """The name of a file of Ollama's store; empty while there is none.

        Without a name yet, it is asked for again: its manifest may still come.
        """
        key = (server.pid, server.started)
        answer = self._stored_names.get(key)
        if answer is None:
            root = root_of(server.pid) if container_pid(server.pid) else ""
            answer = daemon_thread(ollama_name, Path(f"{root}{model}"), reader_of(server.pid))
            self._stored_names[key] = answer
            wait([answer], NAME_PATIENCE_S)
        if not answer.done():
            return ""
        name = answer.result() if answer.exception() is None else ""
        if not name:
            del self._stored_names[key]
        return name

    def _configured_url(self, address: PageAddress) -> str:
        """The URL of the config that leads to this very socket, or to this port while nobody listens there."""
        if not address.url:
            return ""
        for url in self._configured:
            if urls.server_of_url(url) == urls.server_of_url(address.url) or self._leads_to(url, address):
                return url
        return ""

    def _leads_to(self, url: str, address: PageAddress) -> bool:
        """Whether another spelling of the URL leads to this address: by the sockets that are reached there."""
        if address.foreign or parse_url(url).port != address.port:
            return False
        place = self._locate(url)
        if not isinstance(place, LocalAddress):
            return False
        listeners = reached(place, self._locator.listeners())
        return not listeners or not address.listeners or bool(set(listeners) & set(address.listeners))

    def _mark_configured(self, chains: Sequence[Chain]) -> list[Chain]:
        """The chains, of which those into containers are marked as the config's where it has their published ports."""
        if not self._configured or not any(chain.foreign and not chain.configured for chain in chains):
            return [*chains]
        published_ports = _published_ports()
        local_urls = [url for url in self._configured if isinstance(self._locate(url), LocalAddress)]
        marked_chains = []
        for chain in chains:
            if chain.foreign and chain.url and not chain.configured:
                chain_url = parse_url(chain.url)
                host_ports = published_ports.get((chain_url.host, chain_url.port), set())
                configured = next((url for url in local_urls if parse_url(url).port in host_ports), "")
                chain = chain._replace(configured=configured)
            marked_chains.append(chain)
        return marked_chains

    def _chains_of_ports(self, chains: Iterable[Chain]) -> list[Chain]:
        """A chain for each port that the config names, where somebody listens and none of the `chains` leads there."""
        followed_ports = {chain.port for chain in chains if chain.url and not chain.foreign}
        port_chains = []
        for port in self._ports:
            place = self._locate(f"http://localhost:{port}")
            if port in followed_ports or not isinstance(place, LocalAddress):
                continue
            listeners = reached(place, self._locator.listeners())
            if not listeners:
                continue
            address = PageAddress(port, f"http://127.0.0.1:{port}", listeners)
            configured = self._configured_url(address)
            port_chains.append(
                Chain((), launch=_PORT_LAUNCH, port=port, url=address.url, listens=True, configured=configured)
            )
        return port_chains


class _Group(NamedTuple):
    """Processes on GPUs that work for one server; without a server a process is a group of its own."""

    server: EngineProcess | None
    members: list[ProcessRecord]


def _group_by_server(ancestries: Iterable[Sequence[ProcessRecord]]) -> list[_Group]:
    """Processes on GPUs, grouped by their servers; each is the first of its ancestry."""
    groups: list[_Group] = []
    by_pid: dict[int, _Group] = {}
    for ancestry in ancestries:
        engine = server_in(ancestry)
        group = _Group(engine, [])
        if engine is not None:
            group = by_pid.setdefault(engine.process.pid, group)
        if not group.members:  # it is a new one
            groups.append(group)
        group.members.append(ancestry[0])
    return groups


def _published_ports() -> dict[tuple[str, int], set[int]]:
    """Address and port of a container -> the ports of this host that lead there."""
    ports: dict[tuple[str, int], set[int]] = {}
    for container_port in published():
        target = (container_port.address, container_port.port)
        ports.setdefault(target, set()).add(container_port.host_port)
    return ports


def _folder(server: ProcessRecord, model: str) -> str:
    """The folder that a relative path of the command line is in; empty for other paths and for ids."""
    # An id of Hugging Face has one slash at most, and no dot at its beginning.
    is_path = model.startswith(".") or model.endswith(".gguf") or model.count("/") > 1
    if model.startswith(("/", "~")) or not is_path:
        return ""
    try:
        return str(Path(f"/proc/{server.pid}/cwd").readlink())
    except OSError:
        return ""
