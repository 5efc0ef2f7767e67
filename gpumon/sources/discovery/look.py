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
    process,
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
_UP: Final = 0x1
_GATEWAY: Final = 0x2
_PROXY_OPTIONS: Final = ("-host-port", "-container-ip", "-container-port")
_ASKED: Final = Launch(EngineKind.UNKNOWN, "a port of [discovery]", command="[discovery] ports")

SERVE_REPLICA: Final = "ray::ServeReplica"
THROUGH_RAY: Final = (
    "its engine was started through Ray by another server: add that server's URL as [[endpoint]], with gpus = [..]"
)

NAME_PATIENCE_S: Final = 0.5
"""How long a look waits for the name of a file: a store on a disk of this host answers in milliseconds."""

FoundEngine = tuple[ProcessRecord, Launch]


class Published(NamedTuple):
    """A port of this host that Docker hands on to a container."""

    host_port: int
    address: str
    port: int


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
    best = -1
    direct = False
    for line in lines:
        words = line.split()
        flags = int(words[3], 16)
        mask = _ip(words[7])
        if flags & _UP and int(address) & mask == _ip(words[1]) and mask > best:
            best = mask
            direct = not flags & _GATEWAY or ipaddress.IPv4Address(_ip(words[2])) in addresses_of()
    return direct and best > 0


def _ip(text: str) -> int:
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
    """From a command line as dockerd writes it (libnetwork/portmapper/proxy_linux.go). Raises ValueError."""
    host_port, address, port = (words[words.index(name) + 1] for name in _PROXY_OPTIONS)
    return Published(int(host_port), address, int(port))


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


PidSets = tuple[frozenset[int], frozenset[int]]
"""Inodes of sockets, and the processes that do not count as holders."""


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
        self._tables: dict[int, list[Listener]] = {}
        self._owned: dict[tuple[int, int, bool], tuple[PidSets, frozenset[int] | None]] = {}
        """By pid and start of a server, and whether all ports were asked about: its family's sockets."""

    def begin(self, servers: Iterable[ProcessRecord]) -> None:
        """Another look at these servers: sockets are read anew."""
        self._ours = network_of()
        self._tables.clear()
        kept = {(server.pid, server.started) for server in servers}
        self._owned = {key: answer for key, answer in self._owned.items() if key[:2] in kept}

    def listeners(self, pid: int | str = OURS) -> list[Listener]:
        """All listening sockets of the network namespace that a process is in."""
        network = network_of(pid)
        if network not in self._tables:
            self._tables[network] = listening(pid)
        return self._tables[network]

    def spot(self, server: ProcessRecord, launched: Launch, gpu_pids: frozenset[int]) -> Spot:
        """The spot of this server's page; `gpu_pids` are those of its processes that run on GPUs."""
        if launched.nowhere:
            return Spot(launched.port, broken=launched.nowhere)
        foreign = network_of(server.pid) not in (0, self._ours)
        table = self.listeners(server.pid if foreign else OURS)
        port = launched.port or launched.usual_port
        at_port = self._at_port(server, table, port)
        if at_port.owned:
            return _reached(server, launched, port, at_port.owned, foreign)
        if launched.port and at_port.listeners:
            return Spot(port, broken=f"port {port} of its command line is held by another process: {ADD_URL}")
        if launched.port:
            return _reached(server, launched, port, (), foreign)
        # The usual port is none of its own while another process has it.
        usual_port = 0 if at_port.listeners else port
        if not at_port.hidden:
            spot = self._search(server, table, gpu_pids)
            return _found(server, launched, spot, usual_port, foreign)
        if not usual_port:
            return Spot(broken=_HIDDEN)
        return _reached(server, launched, usual_port, (), foreign)

    def _at_port(self, server: ProcessRecord, table: Sequence[Listener], port: int) -> _AtPort:
        """The sockets at a port (0: none); where Linux hides whose they are, those of the server's user are its own."""
        listeners: tuple[Listener, ...] = ()
        if port:
            listeners = on_port(table, port)
        owned = self._own(server, listeners)
        if owned is not None:
            return _AtPort(listeners, owned, hidden=False)
        of_user = tuple(listener for listener in listeners if listener.uid == server.uid)
        return _AtPort(listeners, of_user, hidden=True)

    def _search(self, server: ProcessRecord, table: Sequence[Listener], gpu_pids: frozenset[int]) -> Spot | None:
        """The port that the server's family listens on, GPU workers left out; None where that is hidden.

        Of several the only one whose number stands in its command line: a program with an engine in it has options of
        its own.
        """
        owned = self._own(server, table, gpu_pids - {server.pid}, everywhere=True)
        if owned is None:
            return None
        ports = sorted({listener.port for listener in owned})
        named = _named_ports(server, ports)
        if len(ports) > 1 and len(named) != 1:
            some = _first_ports(ports)
            return Spot(broken=f"it listens on ports {some}, and its command line does not tell which: {ADD_URL}")
        port = next(iter(named or ports), 0)
        return Spot(port, listeners=on_port(owned, port))

    def _own(
        self,
        server: ProcessRecord,
        listeners: Sequence[Listener],
        without: frozenset[int] = frozenset(),
        *,
        everywhere: bool = False,
    ) -> tuple[Listener, ...] | None:
        """The `listeners` that the server or a descendant holds; None where Linux hides that from this user.

        To look through a family is dear: once for each set of sockets.
        """
        if not listeners:
            if sockets_of(server.pid) is None:
                return None
            return ()
        key = (server.pid, server.started, everywhere)
        question = (frozenset(listener.inode for listener in listeners), without)
        if key not in self._owned or self._owned[key][0] != question:
            self._owned[key] = (question, _held(server, *question))
        held = self._owned[key][1]
        if held is None:
            return None
        return tuple(listener for listener in listeners if listener.inode in held)


def _found(server: ProcessRecord, launched: Launch, spot: Spot | None, usual_port: int, foreign: bool) -> Spot:
    """The spot that a search came to, with its URL; a server that has no port yet is expected at its usual one."""
    if spot is None:
        return Spot(broken=_HIDDEN)
    if spot.broken:
        return spot
    return _reached(server, launched, spot.port or usual_port, spot.listeners, foreign)


def _named_ports(server: ProcessRecord, ports: Iterable[int]) -> list[int]:
    """The ports whose numbers stand in the command line of a server."""
    words = {word.rpartition("=")[2] for word in server.argv}
    return [port for port in ports if str(port) in words]


def _first_ports(ports: Sequence[int]) -> str:
    shown = ", ".join(map(str, ports[:MOST_PORTS]))
    if len(ports) > MOST_PORTS:
        return f"{shown} ..."
    return shown


def _held(server: ProcessRecord, inodes: frozenset[int], without: frozenset[int]) -> frozenset[int] | None:
    own = sockets_of(server.pid)
    if own is None:
        return None
    if not without and own & inodes:
        return own & inodes
    sockets = set(own)
    for pid in descendants(server.pid) - without:
        sockets |= sockets_of(pid) or frozenset()
    return inodes & sockets


def _reached(server: ProcessRecord, launched: Launch, port: int, owned: tuple[Listener, ...], foreign: bool) -> Spot:
    """The spot, with the URL that leads there from here."""
    addresses = [listener.address for listener in owned]
    if not owned:
        addresses = [_named(launched.host)]
    host: IpAddress | None = min(map(_way, addresses), key=_nearness)
    if foreign:
        host = _foreign_host(server, addresses)
        if owned and not host:
            return Spot(port, broken=_no_way(addresses), foreign=True)
    if not host or not port:
        return Spot(port, listeners=owned, foreign=foreign)
    if host.version == 6:
        shown = f"[{host}]"
    else:
        shown = str(host)
    scheme = "https" if launched.secure else "http"
    url = f"{scheme}://{shown}:{port}{launched.prefix}"
    return Spot(port, url, owned, foreign=foreign)


def _no_way(addresses: Sequence[IpAddress]) -> str:
    """Why nothing leads to these addresses of another network namespace."""
    if all(address.is_loopback for address in addresses):
        return OTHER_NETWORK
    return NO_WAY


def _nearness(address: IpAddress) -> tuple[bool, int, int]:
    """Order of addresses: loopback first, IPv4 before IPv6."""
    return (not address.is_loopback, address.version, int(address))


def _named(host: str) -> IpAddress:
    """The address that a command line names; every one where it names none, or a host name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return ipaddress.IPv4Address(0)


def _way(address: IpAddress) -> IpAddress:
    """The way to a socket of this network namespace: loopback where it listens on every address."""
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
    own = [address for address in addresses if not address.is_unspecified]
    if len(own) < len(addresses):
        own += addresses_of(server.pid)
    for address in own:
        if isinstance(address, ipaddress.IPv4Address) and not address.is_loopback and on_link(address):
            return address
    return None


class DiscoveryLook:
    """Called in a thread, one call at a time: /proc, sockets and name servers can be slow, and can hang."""

    def __init__(self, configured: Sequence[str] = (), ports: Sequence[int] = ()) -> None:
        """`configured` are the URLs that the config lists; `ports` are looked at even without a GPU process."""
        self._configured = tuple(configured)
        self._ports = tuple(ports)
        self._places = Places()
        self._place = Locator()
        self._stored: dict[tuple[int, int], Future[str]] = {}
        """By pid and start of a server: Ollama's name of the file that it was given. The file's folder may hang."""
        self._met: set[int] = set()
        """Processes that /proc had once: without it now, they ended, and NVML's list is a little older."""

    def __call__(self, family: ProcessFamily) -> tuple[Chain, ...]:
        """The chains of the processes on the GPUs, one for each server; broken ones say where."""
        chains = family.chains
        gpu_pids = chains.keys()
        self._met = {pid for pid in gpu_pids if chains[pid] or pid in self._met}
        absent = tuple(sorted(gpu_pids - self._met))
        groups = _by_server(chain for _, chain in sorted(chains.items()) if chain)
        self._begin(groups)
        followed = [self._followed(group.server, tuple(group.members)) for group in groups]
        if absent:
            followed.append(Chain((), absent=absent))
        return (*self._unless_configured(followed), *self._asked_ports(followed))

    def _begin(self, groups: Iterable[_Group]) -> None:
        """Another look at the servers of these groups: what is kept of others goes."""
        servers = []
        for group in groups:
            if group.server is not None:
                servers.append(group.server[0])
        self._places.begin(servers)
        keys = {(server.pid, server.started) for server in servers}
        self._stored = {key: name for key, name in self._stored.items() if key in keys}

    def _followed(self, server_in_chain: FoundEngine | None, members: tuple[ProcessRecord, ...]) -> Chain:
        if server_in_chain is None:
            return Chain(members)
        server, launched = server_in_chain
        launched = self._named(server, launched)
        spot = self._places.spot(server, launched, frozenset(member.pid for member in members))
        return Chain(
            members,
            server=server,
            launch=launched,
            port=spot.port,
            url=spot.url,
            listens=bool(spot.listeners),
            broken=spot.broken,
            configured=self._same(spot),
            foreign=spot.foreign,
            folder=_folder(server, launched.model),
        )

    def _named(self, server: ProcessRecord, launched: Launch) -> Launch:
        """The launch with the name that Ollama's store has for its file; a later look has it if not this."""
        named_here = launched.kind is EngineKind.LLAMA_CPP and not launched.served_name
        if not named_here or not allowed(launched.model) or not is_blob(Path(launched.model)):
            return launched
        return launched._replace(stored_as=self._stored_name(server, launched.model))

    def _stored_name(self, server: ProcessRecord, model: str) -> str:
        """The name of a file of Ollama's store; empty while there is none.

        Without a name yet, it is asked for again: its manifest may still come.
        """
        key = (server.pid, server.started)
        asked = self._stored.get(key)
        if asked is None:
            root = ""
            if container_pid(server.pid):
                root = root_of(server.pid)
            asked = daemon_thread(ollama_name, Path(f"{root}{model}"), reader_of(server.pid))
            self._stored[key] = asked
            wait([asked], NAME_PATIENCE_S)
        if not asked.done():
            return ""
        name = ""
        if asked.exception() is None:
            name = asked.result()
        if not name:
            del self._stored[key]
        return name

    def _same(self, spot: Spot) -> str:
        """The URL of the config that leads to this very socket, or to this port while nobody listens there."""
        if spot.url:
            for url in self._configured:
                if urls.server_of_url(url) == urls.server_of_url(spot.url):
                    return url
                if spot.foreign or parse_url(url).port != spot.port:
                    continue
                place = self._place(url)
                if isinstance(place, LocalAddress):
                    there = reached(place, self._places.listeners())
                    if not there or not spot.listeners or set(there) & set(spot.listeners):
                        return url
        return ""

    def _unless_configured(self, chains: Sequence[Chain]) -> list[Chain]:
        """The chains; one into a container is the config's too where the config has its published port."""
        if not self._configured or not any(chain.foreign and not chain.configured for chain in chains):
            return [*chains]
        ports_here = _published_ports()
        local = [url for url in self._configured if isinstance(self._place(url), LocalAddress)]
        marked = []
        for chain in chains:
            configured = chain.configured
            if not configured and chain.foreign and chain.url:
                _, _, host, port, _ = parse_url(chain.url)
                configured = _url_with_port(local, ports_here.get((host, port), set()))
            marked.append(chain._replace(configured=configured))
        return marked

    def _asked_ports(self, chains: Iterable[Chain]) -> list[Chain]:
        """The ports that the user named, where somebody listens and no chain leads there."""
        known = set()
        for chain in chains:
            if chain.url and not chain.foreign:
                known.add(chain.port)
        asked = []
        for port in self._ports:
            place = self._place(f"http://localhost:{port}")
            if port in known or not isinstance(place, LocalAddress):
                continue
            listeners = reached(place, self._places.listeners())
            if not listeners:
                continue
            spot = Spot(port, f"http://127.0.0.1:{port}", listeners)
            configured = self._same(spot)
            asked.append(Chain((), launch=_ASKED, port=port, url=spot.url, listens=True, configured=configured))
        return asked


class _Group(NamedTuple):
    """Processes on GPUs that work for one server; without a server a process is a group of its own."""

    server: FoundEngine | None
    members: list[ProcessRecord]


def _by_server(chains: Iterable[Sequence[ProcessRecord]]) -> list[_Group]:
    """The first process of each chain, grouped by the servers in the chains."""
    groups: list[_Group] = []
    by_pid: dict[int, _Group] = {}
    for chain in chains:
        server = server_in(chain)
        group = _Group(server, [])
        if server is not None:
            group = by_pid.setdefault(server[0].pid, group)
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


def _url_with_port(urls_here: Sequence[str], ports: set[int]) -> str:
    """The first of the URLs that names one of these ports; empty if none does."""
    for url in urls_here:
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
    innermost = servers[0]
    outermost = servers[-1]
    server, launched = outermost
    if innermost[1].kind in launched.apart:
        server, launched = innermost
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
        return wrapper, launched._replace(nowhere=THROUGH_RAY)
    return None


def _serves_through_ray(wrapper: ProcessRecord) -> bool:
    """Whether Ray Serve runs below it: a server outside Ray may have its workers there, too."""
    for pid in descendants(wrapper.pid):
        worker = process(pid)
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
    if model.startswith(("/", "~")) or not (model.startswith(".") or model.endswith(".gguf") or model.count("/") > 1):
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
