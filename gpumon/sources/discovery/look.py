"""One look: from the processes on the GPUs to their servers, their listening sockets, and the URLs of their pages."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.config import urls
from gpumon.readings.frame import EngineKind
from gpumon.sources.discovery.chain import Chain
from gpumon.sources.discovery.command_line import LAUNCH_VARIABLES, SECRETS, Launch, launch
from gpumon.sources.endpoint_url import parse_url
from gpumon.sources.family import (
    INIT_PID,
    ProcessFamily,
    ProcessRecord,
    descendants,
    executable_path,
    read_process,
    variables_of,
)
from gpumon.sources.model_files import allowed, container_pid, is_blob, ollama_name, reader_of, root_of
from gpumon.sources.offload import daemon_thread
from gpumon.sources.sockets import (
    OURS,
    IpAddress,
    Listener,
    LocalAddress,
    Locator,
    listening,
    on_port,
    reached,
    sockets_of,
)

_LOCAL: Final = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")
"""An address of the namespace's own in fib_trie (net/ipv4/fib_trie.c)."""
_LOOPBACK: Final = f"{1:032x}"
"""::1 as /proc/net/if_inet6 has it."""
_UP: Final = 0x1
"""RTF_UP: the route is in use."""
_GATEWAY: Final = 0x2
"""RTF_GATEWAY: the route leads through a gateway."""
_PROXY_OPTIONS: Final = ("-host-port", "-container-ip", "-container-port")
_PORT_LAUNCH: Final = Launch(EngineKind.UNKNOWN, "a port of [discovery]", command="[discovery] ports")
"""Stands for the command line of whatever listens on a port that the config names."""

SERVE_REPLICA: Final = "ray::ServeReplica"
THROUGH_RAY: Final = (
    "its engine was started through Ray by another server: add that server's URL as [[endpoint]], with gpus = [..]"
)

NAME_PATIENCE_S: Final = 0.5
"""Longest wait of a look for the name of a file: a store on a disk of this host answers in milliseconds."""

MOST_PORTS: Final = 8
"""Ports that are named in a text."""
ADD_URL: Final = "add its URL as [[endpoint]] in the config"
OTHER_NETWORK: Final = (
    "listens on loopback of another network namespace (a container), where nothing outside of it gets to, a published "
    "port neither: start it with --host 0.0.0.0"
)
NO_WAY: Final = (
    "listens in another network namespace (a container) that no network of this one leads to: "
    "publish its port, and add the URL that it has here as [[endpoint]] in the config"
)
_HIDDEN: Final = (
    "its command line names no port, and Linux hides other users' sockets: run gpumon as that user or as root "
    "(in a container with CAP_SYS_PTRACE), or " + ADD_URL
)

FoundEngine = tuple[ProcessRecord, Launch]
"""A process, and its command line as that of an engine."""


class Published(NamedTuple):
    """A port of this host that Docker hands on to a container."""

    host_port: int
    address: str
    """Address of the container."""
    port: int
    """Port in the container."""


def network_of(pid: int | str = OURS) -> int:
    """A number that two processes share exactly if they are in one network namespace; 0 where it cannot be told.

    The namespace's own link (/proc/PID/ns/net) is only for those who may trace the process. Every namespace has
    /proc/net files of its own, though, whose inode numbers anybody may read.
    """
    try:
        return Path(f"/proc/{pid}/net/tcp").stat().st_ino
    except OSError:
        return 0


def addresses_of(pid: int | str = OURS) -> tuple[ipaddress.IPv4Address, ...]:
    """IPv4 addresses of the network namespace that a process is in, loopback left out."""
    try:
        text = Path(f"/proc/{pid}/net/fib_trie").read_text()
    except OSError:
        return ()
    addresses: dict[ipaddress.IPv4Address, None] = {}
    for match in _LOCAL.findall(text):
        address = ipaddress.IPv4Address(match)
        if not address.is_loopback:
            addresses[address] = None
    return tuple(addresses)


def on_link(address: ipaddress.IPv4Address) -> bool:
    """Whether a cable or bridge of this namespace leads straight to that address, as to a container's.

    What goes through a gateway may end at a stranger who has the same address, unless the gateway is this host (as with
    Cilium). Columns as in route(8); numbers are hexadecimal, addresses in the host's byte order.
    """
    try:
        lines = Path("/proc/net/route").read_text().splitlines()[1:]
    except OSError:
        return False
    longest_mask = -1
    is_direct = False
    for line in lines:
        words = line.split()
        destination = _route_number(words[1])
        gateway = _route_number(words[2])
        flags = int(words[3], 16)
        mask = _route_number(words[7])
        if flags & _UP and int(address) & mask == destination and mask > longest_mask:
            longest_mask = mask
            is_direct = not flags & _GATEWAY or ipaddress.IPv4Address(gateway) in addresses_of()
    # Mask 0 is that of the default route, which leads anywhere.
    return is_direct and longest_mask > 0


def _route_number(text: str) -> int:
    """The number of an address or mask of a route: its bytes stand the other way round."""
    return int.from_bytes(bytes.fromhex(text)[::-1], "big")


def published() -> tuple[Published, ...]:
    """Ports that Docker's user-land proxy hands on. Looks at every process of the host: not for every tick."""
    ports = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "comm").read_bytes().strip() == b"docker-proxy":
                    words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                    ports.append(_published(words))
            except (OSError, ValueError):
                continue
    return tuple(ports)


def _published(words: list[str]) -> Published:
    """The port of a proxy's command line as dockerd writes it (libnetwork/portmapper/proxy_linux.go). Raises
    ValueError."""
    host_port, address, port = (words[words.index(name) + 1] for name in _PROXY_OPTIONS)
    return Published(int(host_port), address, int(port))


class Spot(NamedTuple):
    """The port and URL of a server's page, as far as they are known."""

    port: int = 0
    url: str = ""
    listeners: tuple[Listener, ...] = ()
    """Its listening sockets; none: the server has not opened its port yet."""
    broken: str = ""
    """Why there is no way to it, and the fix."""
    foreign: bool = False
    """It is in another network namespace."""


SocketQuestion = tuple[frozenset[int], frozenset[int]]
"""Inodes of sockets, and the processes that do not count as their holders."""


class _AtPort(NamedTuple):
    """The sockets that listen on one port, and those of them that are the server's."""

    listeners: tuple[Listener, ...]
    owned: tuple[Listener, ...]
    hidden: bool
    """Linux hides from this user who holds them."""


class Places:
    """Finds the spots of one look. What it takes to look through processes is kept for the next look."""

    def __init__(self) -> None:
        self._ours = 0
        """The network namespace of gpumon."""
        self._tables: dict[int, list[Listener]] = {}
        """Network namespace -> its listening sockets."""
        self._owned: dict[tuple[int, int, bool], tuple[SocketQuestion, frozenset[int] | None]] = {}
        """By pid and start of a server, and whether all ports were asked about: its family's sockets."""

    def begin(self, servers: Iterable[ProcessRecord]) -> None:
        """Begin a look at these servers: sockets are read anew."""
        self._ours = network_of()
        self._tables.clear()
        server_ids = {(server.pid, server.started) for server in servers}
        self._owned = {key: answer for key, answer in self._owned.items() if key[:2] in server_ids}

    def listeners(self, pid: int | str = OURS) -> list[Listener]:
        """All listening sockets of the network namespace that a process is in."""
        network = network_of(pid)
        if network not in self._tables:
            self._tables[network] = listening(pid)
        return self._tables[network]

    def find_spot(self, server: ProcessRecord, launched: Launch, gpu_pids: frozenset[int]) -> Spot:
        """The spot of this server's page; `gpu_pids` are those of its processes that run on GPUs.

        It is at the port of its command line, else at the usual one if the server has that, else at the one that its
        processes are found to listen on.
        """
        if launched.why_no_page:
            return Spot(launched.port, broken=launched.why_no_page)
        is_foreign = network_of(server.pid) not in (0, self._ours)
        table = self.listeners(server.pid if is_foreign else OURS)
        port = launched.port or launched.usual_port
        at_port = self._at_port(server, table, port)
        if at_port.owned:
            return _spot_at(server, launched, port, at_port.owned, foreign=is_foreign)
        if launched.port and at_port.listeners:
            return Spot(port, broken=f"port {port} of its command line is held by another process: {ADD_URL}")
        if launched.port:
            return _spot_at(server, launched, port, (), foreign=is_foreign)
        # The usual port is not this server's while another process has it.
        usual_port = 0 if at_port.listeners else port
        if at_port.hidden and usual_port:
            return _spot_at(server, launched, usual_port, (), foreign=is_foreign)
        if at_port.hidden:
            return Spot(broken=_HIDDEN)
        spot = self._search(server, table, gpu_pids)
        return _spot_of_search(server, launched, spot, usual_port, foreign=is_foreign)

    def _at_port(self, server: ProcessRecord, table: Sequence[Listener], port: int) -> _AtPort:
        """The sockets at a port (0: none); where Linux hides whose they are, those of the server's user are its own."""
        listeners: tuple[Listener, ...] = ()
        if port:
            listeners = on_port(table, port)
        owned = self._owned_listeners(server, listeners)
        if owned is not None:
            return _AtPort(listeners, owned, hidden=False)
        of_user = tuple(listener for listener in listeners if listener.uid == server.uid)
        return _AtPort(listeners, of_user, hidden=True)

    def _search(self, server: ProcessRecord, table: Sequence[Listener], gpu_pids: frozenset[int]) -> Spot | None:
        """The spot at which the server's family listens, GPU workers left out; None where that is hidden.

        With several ports it is the only one whose number stands in its command line: a program with an engine in it
        has options of its own.
        """
        owned = self._owned_listeners(server, table, gpu_pids - {server.pid}, everywhere=True)
        if owned is None:
            return None
        ports = sorted({listener.port for listener in owned})
        named_ports = _named_ports(server, ports)
        if len(ports) > 1 and len(named_ports) != 1:
            shown = _shown_ports(ports)
            return Spot(broken=f"it listens on ports {shown}, and its command line does not tell which: {ADD_URL}")
        port = next(iter(named_ports or ports), 0)
        return Spot(port, listeners=on_port(owned, port))

    def _owned_listeners(
        self,
        server: ProcessRecord,
        listeners: Sequence[Listener],
        without: frozenset[int] = frozenset(),
        *,
        everywhere: bool = False,
    ) -> tuple[Listener, ...] | None:
        """The `listeners` that the server or a descendant holds, those `without` left out; None where Linux hides that
        from this user.

        To look through a family is dear: it is done once for each set of sockets. `everywhere`: all sockets are asked
        about, not those of one port.
        """
        if not listeners:
            if sockets_of(server.pid) is None:
                return None
            return ()
        key = (server.pid, server.started, everywhere)
        inodes = frozenset(listener.inode for listener in listeners)
        question = (inodes, without)
        last_question, held = self._owned.get(key, (None, None))
        if question != last_question:
            held = _held_inodes(server, inodes, without)
            self._owned[key] = (question, held)
        if held is None:
            return None
        return tuple(listener for listener in listeners if listener.inode in held)


def _spot_of_search(
    server: ProcessRecord, launched: Launch, spot: Spot | None, usual_port: int, *, foreign: bool
) -> Spot:
    """The spot that a search came to, with its URL. A server that has no port yet is expected at its usual one."""
    if spot is None:
        return Spot(broken=_HIDDEN)
    if spot.broken:
        return spot
    return _spot_at(server, launched, spot.port or usual_port, spot.listeners, foreign=foreign)


def _named_ports(server: ProcessRecord, ports: Iterable[int]) -> list[int]:
    """The ports whose numbers stand in the command line of a server."""
    words = {word.rpartition("=")[2] for word in server.argv}
    return [port for port in ports if str(port) in words]


def _shown_ports(ports: Sequence[int]) -> str:
    """The first of these ports as a text."""
    shown = ", ".join(map(str, ports[:MOST_PORTS]))
    if len(ports) > MOST_PORTS:
        return f"{shown} ..."
    return shown


def _held_inodes(server: ProcessRecord, inodes: frozenset[int], without: frozenset[int]) -> frozenset[int] | None:
    """The `inodes` of sockets that a server or a descendant holds, those `without` left out; None where Linux hides
    that from this user. Where the server itself holds some, its descendants are not looked at, unless some are left
    out."""
    own_sockets = sockets_of(server.pid)
    if own_sockets is None:
        return None
    if not without and own_sockets & inodes:
        return own_sockets & inodes
    sockets = set(own_sockets)
    for pid in descendants(server.pid) - without:
        sockets |= sockets_of(pid) or frozenset()
    return inodes & sockets


def _spot_at(server: ProcessRecord, launched: Launch, port: int, owned: tuple[Listener, ...], *, foreign: bool) -> Spot:
    """The spot at a port of the server, with the URL that leads there from here; `owned` are its sockets there."""
    addresses = [listener.address for listener in owned]
    if not owned:
        addresses = [_named_address(launched.host)]
    host: IpAddress | None = min(map(_address_from_here, addresses), key=_nearness)
    if foreign:
        host = _foreign_host(server, addresses)
        if owned and not host:
            return Spot(port, broken=_no_way_text(addresses), foreign=True)
    if not host or not port:
        return Spot(port, listeners=owned, foreign=foreign)
    host_text = str(host)
    if host.version == 6:
        host_text = f"[{host}]"
    scheme = "https" if launched.secure else "http"
    url = f"{scheme}://{host_text}:{port}{launched.prefix}"
    return Spot(port, url, owned, foreign=foreign)


def _no_way_text(addresses: Sequence[IpAddress]) -> str:
    """Why nothing leads to these addresses of another network namespace."""
    if all(address.is_loopback for address in addresses):
        return OTHER_NETWORK
    return NO_WAY


def _nearness(address: IpAddress) -> tuple[bool, int, int]:
    """Order of addresses: loopback first, IPv4 before IPv6."""
    return (not address.is_loopback, address.version, int(address))


def _named_address(host: str) -> IpAddress:
    """The address that a command line names; every one where it names none, or a host name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return ipaddress.IPv4Address(0)


def _address_from_here(address: IpAddress) -> IpAddress:
    """The address at which a socket of this network namespace is reached: loopback where it listens on all."""
    if not address.is_unspecified:
        return address
    if address.version == 4:
        return ipaddress.IPv4Address("127.0.0.1")
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        lines = []
    # A server may listen on :: where IPv6 is switched off: then it is reached by IPv4 only.
    has_loopback = any(line.partition(" ")[0] == _LOOPBACK for line in lines)
    return ipaddress.ip_address("::1" if has_loopback else "127.0.0.1")


def _foreign_host(server: ProcessRecord, addresses: Sequence[IpAddress]) -> IpAddress | None:
    """An address of a socket's own network namespace that a network of this one leads straight to."""
    candidates = [address for address in addresses if not address.is_unspecified]
    if len(candidates) < len(addresses):
        candidates += addresses_of(server.pid)
    for address in candidates:
        if isinstance(address, ipaddress.IPv4Address) and not address.is_loopback and on_link(address):
            return address
    return None


class DiscoveryLook:
    """Follows the chains of GPU processes, a look with each call. For a thread, one call at a time: /proc, sockets and
    name servers can be slow, and can hang."""

    def __init__(self, configured: Sequence[str] = (), ports: Sequence[int] = ()) -> None:
        """`configured` are the URLs that the config lists; `ports` are looked at even without a GPU process."""
        self._configured = tuple(configured)
        self._ports = tuple(ports)
        self._places = Places()
        self._locate = Locator()
        self._stored: dict[tuple[int, int], Future[str]] = {}
        """By pid and start of a server: Ollama's name of the file that it was given. The file's folder may hang."""
        self._pids_met: set[int] = set()
        """Processes that /proc had once: without it now, they ended, and NVML's list is a little older."""

    def __call__(self, family: ProcessFamily) -> tuple[Chain, ...]:
        """The chains of the processes on the GPUs, one for each server; broken ones say where."""
        chains = family.chains
        gpu_pids = chains.keys()
        self._pids_met = {pid for pid in gpu_pids if chains[pid] or pid in self._pids_met}
        absent = tuple(sorted(gpu_pids - self._pids_met))
        groups = _group_by_server(chain for _, chain in sorted(chains.items()) if chain)
        self._begin(groups)
        followed = [self._follow(group.server, tuple(group.members)) for group in groups]
        if absent:
            followed.append(Chain((), absent=absent))
        return (*self._mark_configured(followed), *self._chains_of_ports(followed))

    def _begin(self, groups: Iterable[_Group]) -> None:
        """Begin a look at the servers of these groups: what is remembered of others goes."""
        servers = []
        for group in groups:
            if group.server is not None:
                servers.append(group.server[0])
        self._places.begin(servers)
        keys = {(server.pid, server.started) for server in servers}
        self._stored = {key: name for key, name in self._stored.items() if key in keys}

    def _follow(self, engine: FoundEngine | None, members: tuple[ProcessRecord, ...]) -> Chain:
        """The chain from processes on GPUs (`members`) to the page of their server."""
        if engine is None:
            return Chain(members)
        server, launched = engine
        launched = self._with_stored_name(server, launched)
        gpu_pids = frozenset(member.pid for member in members)
        spot = self._places.find_spot(server, launched, gpu_pids)
        return Chain(
            members,
            server=server,
            launch=launched,
            port=spot.port,
            url=spot.url,
            listens=bool(spot.listeners),
            broken=spot.broken,
            configured=self._configured_url(spot),
            foreign=spot.foreign,
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
        answer = self._stored.get(key)
        if answer is None:
            root = ""
            if container_pid(server.pid):
                root = root_of(server.pid)
            answer = daemon_thread(ollama_name, Path(f"{root}{model}"), reader_of(server.pid))
            self._stored[key] = answer
            wait([answer], NAME_PATIENCE_S)
        if not answer.done():
            return ""
        name = ""
        if answer.exception() is None:
            name = answer.result()
        if not name:
            del self._stored[key]
        return name

    def _configured_url(self, spot: Spot) -> str:
        """The URL of the config that leads to this very socket, or to this port while nobody listens there."""
        if spot.url:
            for url in self._configured:
                if urls.server_of_url(url) == urls.server_of_url(spot.url):
                    return url
                if spot.foreign or parse_url(url).port != spot.port:
                    continue
                place = self._locate(url)
                if isinstance(place, LocalAddress):
                    listeners = reached(place, self._places.listeners())
                    if not listeners or not spot.listeners or set(listeners) & set(spot.listeners):
                        return url
        return ""

    def _mark_configured(self, chains: Sequence[Chain]) -> list[Chain]:
        """The chains, of which those into containers are marked as the config's where it has their published ports."""
        if not self._configured or not any(chain.foreign and not chain.configured for chain in chains):
            return [*chains]
        published_ports = _published_ports()
        local_urls = [url for url in self._configured if isinstance(self._locate(url), LocalAddress)]
        marked = []
        for chain in chains:
            configured = chain.configured
            if not configured and chain.foreign and chain.url:
                _, _, host, port, _ = parse_url(chain.url)
                configured = _url_with_port(local_urls, published_ports.get((host, port), set()))
            marked.append(chain._replace(configured=configured))
        return marked

    def _chains_of_ports(self, chains: Iterable[Chain]) -> list[Chain]:
        """A chain for each port that the user named, where somebody listens and none of the `chains` leads there."""
        followed_ports = set()
        for chain in chains:
            if chain.url and not chain.foreign:
                followed_ports.add(chain.port)
        port_chains = []
        for port in self._ports:
            place = self._locate(f"http://localhost:{port}")
            if port in followed_ports or not isinstance(place, LocalAddress):
                continue
            listeners = reached(place, self._places.listeners())
            if not listeners:
                continue
            spot = Spot(port, f"http://127.0.0.1:{port}", listeners)
            configured = self._configured_url(spot)
            port_chains.append(
                Chain((), launch=_PORT_LAUNCH, port=port, url=spot.url, listens=True, configured=configured)
            )
        return port_chains


class _Group(NamedTuple):
    """Processes on GPUs that work for one server; without a server a process is a group of its own."""

    server: FoundEngine | None
    members: list[ProcessRecord]


def _group_by_server(chains: Iterable[Sequence[ProcessRecord]]) -> list[_Group]:
    """The first process of each chain, grouped by the servers in the chains."""
    groups: list[_Group] = []
    by_pid: dict[int, _Group] = {}
    for chain in chains:
        engine = server_in(chain)
        group = _Group(engine, [])
        if engine is not None:
            server, _ = engine
            group = by_pid.setdefault(server.pid, group)
        if not group.members:
            groups.append(group)
        group.members.append(chain[0])
    return groups


def _published_ports() -> dict[tuple[object, ...], set[int]]:
    """Address and port of a container -> the ports of this host that lead there."""
    ports: dict[tuple[object, ...], set[int]] = {}
    for container_port in published():
        target = (container_port.address, container_port.port)
        ports.setdefault(target, set()).add(container_port.host_port)
    return ports


def _url_with_port(candidates: Sequence[str], ports: set[int]) -> str:
    """The first of the URLs that names one of these ports; empty if none does."""
    for url in candidates:
        if parse_url(url).port in ports:
            return url
    return ""


def server_in(chain: Sequence[ProcessRecord]) -> FoundEngine | None:
    """The server that a process on a GPU works for, from its ancestors, itself first; None: no engine known.

    The outermost one that was started as a server; a wrapper only where there is no other. Where titles alone tell
    the engine, it runs inside another program: the parent of its outermost process.
    """
    servers: list[FoundEngine] = []
    parts: list[FoundEngine] = []
    launches = _launches(chain)
    for member, launched in launches:
        if launched.part:
            parts.append((member, launched))
        elif not launched.wrapper:
            servers.append((member, launched))
    if servers:
        return _outermost(servers)
    wrapper = _wrapper_of(launches, {launched.kind for _, launched in parts})
    if wrapper is not None:
        return wrapper
    if not parts:
        return None
    worker, launched = parts[-1]
    return _program_around(worker, chain), launched


def _launches(chain: Sequence[ProcessRecord]) -> list[FoundEngine]:
    """The processes of the chain whose command lines are those of an engine."""
    launches = []
    for member in chain:
        launched = launch(member.argv)
        if launched is not None:
            launches.append((member, launched))
    return launches


def _outermost(servers: Sequence[FoundEngine]) -> FoundEngine:
    """The outermost server; the innermost one where the outermost starts engines of that kind as servers."""
    server, launched = servers[-1]
    _, innermost = servers[0]
    if innermost.kind in launched.servers_below:
        server, launched = servers[0]
    return server, _with_variables(server, launched)


def _wrapper_of(launches: Sequence[FoundEngine], kinds: set[EngineKind]) -> FoundEngine | None:
    """The innermost wrapper; `kinds` are those of the engine's workers. None if no wrapper leads to a server.

    Ray's counts for workers of Ray alone.
    """
    for wrapper, launched in launches:
        if not launched.wrapper:
            continue
        if launched.kind is not EngineKind.RAY:
            return wrapper, _with_variables(wrapper, launched)
        if launched.kind not in kinds:
            continue
        if _serves_through_ray(wrapper):
            return wrapper, _with_variables(wrapper, launched)
        return wrapper, launched._replace(why_no_page=THROUGH_RAY)
    return None


def _serves_through_ray(wrapper: ProcessRecord) -> bool:
    """Whether Ray Serve runs below it: a server outside Ray may have its workers there, too."""
    for pid in descendants(wrapper.pid):
        worker = read_process(pid)
        if worker is not None and "".join(worker.argv[:1]).startswith(SERVE_REPLICA):
            return True
    return False


def _program_around(worker: ProcessRecord, chain: Sequence[ProcessRecord]) -> ProcessRecord:
    """The Python program that the engine of this worker runs in; the worker itself if its parent is none.

    What started that program does not count; the first process adopts anything.
    """
    parent = next(iter(chain[chain.index(worker) + 1 :]), None)
    if parent is None or parent.pid == INIT_PID:
        return worker
    for path in (*parent.argv[:1], executable_path(parent.pid)):
        if "python" in path.rpartition("/")[2]:
            return parent
    return worker


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


def _with_variables(server: ProcessRecord, launched: Launch) -> Launch:
    """The launch as the command line and the environment of the process tell it."""
    variables = variables_of(server.pid, LAUNCH_VARIABLES)
    if variables is None:
        return launched
    shown = {}
    for name, value in variables.items():
        if name in SECRETS:
            shown[name] = "set"
        else:
            shown[name] = value
    return launch(server.argv, shown) or launched
