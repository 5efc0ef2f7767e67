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
from gpumon.sources.discovery.command_line import SECRETS, VARIABLES, Launch, launch
from gpumon.sources.endpoint_url import parse_url
from gpumon.sources.engines.registry import BY_KIND
from gpumon.sources.family import FIRST, Family, Process, descendants, process, program, variables_of
from gpumon.sources.model_files import allowed, container_of, is_blob, ollama_name, reader_of, root_of
from gpumon.sources.offload import daemon_thread
from gpumon.sources.sockets import OURS, IpAddress, Listener, Locator, Place, listening, reached, sockets_of

_LOCAL: Final = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")
"""An address of the namespace's own in fib_trie (net/ipv4/fib_trie.c)."""
_LOOPBACK: Final = f"{1:032x}"
_UP: Final = 0x1
_GATEWAY: Final = 0x2
_PROXY_OPTIONS: Final = ("-host-port", "-container-ip", "-container-port")
ASKED: Final = Launch(EngineKind.UNKNOWN, "a port of [discovery]", command="[discovery] ports")

SERVE_REPLICA: Final = "ray::ServeReplica"
THROUGH_RAY: Final = (
    "its engine was started through Ray by another server: add that server's URL as [[endpoint]], with gpus = [..]"
)

NAME_PATIENCE_S: Final = 0.5
"""How long a look waits for the name of a file: a store on a disk of this host answers in milliseconds."""

Found = tuple[Process, Launch]


class Published(NamedTuple):
    """A port of this host that Docker hands on to a container."""

    host_port: int
    address: str
    port: int


def network_of(pid: int | str = OURS) -> int:
    """A number that two processes share exactly if they are in one network namespace; 0 where it can not be told.

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
    found = (ipaddress.IPv4Address(match) for match in _LOCAL.findall(text))
    return tuple(dict.fromkeys(address for address in found if not address.is_loopback))


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
    for words in (line.split() for line in lines):
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
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "comm").read_bytes().strip() == b"docker-proxy":
                    words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                    found.append(_published(words))
            except (OSError, ValueError):
                continue
    return tuple(found)


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
HIDDEN: Final = (
    "its command line names no port, and Linux hides other users' sockets: run gpumon as that user or as root "
    "(in a container with CAP_SYS_PTRACE), or " + ADD_URL
)


class Spot(NamedTuple):
    """Where a server's page stands, as far as that is known."""

    port: int = 0
    url: str = ""
    listeners: tuple[Listener, ...] = ()
    """Its listening sockets; none: the server has not opened its port yet."""
    broken: str = ""
    """Why there is no way to it, and the fix."""
    foreign: bool = False
    """It is in another network namespace."""


Question = tuple[frozenset[int], frozenset[int]]
"""Inodes of sockets, and the processes that do not count as holders."""


class Places:
    """Finds the spots of one look. What it takes to look through processes is kept for the next look."""

    def __init__(self) -> None:
        self._ours = 0
        self._tables: dict[int, list[Listener]] = {}
        self._owned: dict[tuple[int, int, bool], tuple[Question, frozenset[int] | None]] = {}
        """By pid and start of a server, and whether all ports were asked about: its family's sockets."""

    def begin(self, servers: Iterable[Process]) -> None:
        """Another look at these servers: sockets are read anew."""
        self._ours = network_of()
        self._tables.clear()
        kept = {(server.pid, server.started) for server in servers}
        self._owned = {key: found for key, found in self._owned.items() if key[:2] in kept}

    def listeners(self, pid: int | str = OURS) -> list[Listener]:
        """All listening sockets of the network namespace that a process is in."""
        network = network_of(pid)
        if network not in self._tables:
            self._tables[network] = listening(pid)
        return self._tables[network]

    def spot(self, server: Process, launched: Launch, gpu_pids: frozenset[int]) -> Spot:
        """Where the page of this server stands; `gpu_pids` are those of its processes that run on GPUs."""
        if launched.nowhere:
            return Spot(launched.port, broken=launched.nowhere)
        foreign = network_of(server.pid) not in (0, self._ours)
        table = self.listeners(server.pid) if foreign else self.listeners()
        row = BY_KIND.get(launched.kind) if launched.usual else None
        port = launched.port or (row.port if row is not None else 0)
        on_port = tuple(each for each in table if port and each.port == port)
        owned = self._own(server, on_port)
        hidden = owned is None
        if owned is None:
            owned = tuple(each for each in on_port if each.uid == server.uid)
        if not owned and launched.port and on_port:
            return Spot(port, broken=f"port {port} of its command line is held by another process: {ADD_URL}")
        if not owned and not launched.port and (not hidden or on_port or not port):
            found = None if hidden else self._search(server, table, gpu_pids)
            if found is None or found.broken:
                return found or Spot(broken=HIDDEN)
            port = found.port or (0 if on_port else port)
            owned = found.listeners
        return _reached(server, launched, port, owned, foreign)

    def _search(self, server: Process, table: Sequence[Listener], gpu_pids: frozenset[int]) -> Spot | None:
        """The port that the server's family listens on, GPU workers left out; None where that is hidden.

        Of several the only one whose number stands in its command line: a program with an engine in it has options of
        its own.
        """
        owned = self._own(server, table, gpu_pids - {server.pid}, everywhere=True)
        if owned is None:
            return None
        ports = sorted({each.port for each in owned})
        words = {word.rpartition("=")[2] for word in server.argv}
        named = [port for port in ports if str(port) in words]
        if len(ports) > 1 and len(named) != 1:
            some = ", ".join(map(str, ports[:MOST_PORTS])) + (" ..." if len(ports) > MOST_PORTS else "")
            return Spot(broken=f"it listens on ports {some}, and its command line does not tell which: {ADD_URL}")
        port = next(iter(named or ports), 0)
        return Spot(port, listeners=tuple(each for each in owned if each.port == port))

    def _own(
        self,
        server: Process,
        asked: Sequence[Listener],
        without: frozenset[int] = frozenset(),
        *,
        everywhere: bool = False,
    ) -> tuple[Listener, ...] | None:
        """Those of the sockets that the server or a descendant holds; None where Linux hides that from this user.

        To look through a family is dear: once for each set of sockets.
        """
        if not asked:
            return None if sockets_of(server.pid) is None else ()
        key = (server.pid, server.started, everywhere)
        question = (frozenset(each.inode for each in asked), without)
        if key not in self._owned or self._owned[key][0] != question:
            self._owned[key] = (question, _held(server, *question))
        held = self._owned[key][1]
        return None if held is None else tuple(each for each in asked if each.inode in held)


def _held(server: Process, inodes: frozenset[int], without: frozenset[int]) -> frozenset[int] | None:
    own = sockets_of(server.pid)
    if own is None:
        return None
    if not without and own & inodes:
        return own & inodes
    found = set(own)
    for pid in descendants(server.pid) - without:
        found |= sockets_of(pid) or frozenset()
    return inodes & found


def _reached(server: Process, launched: Launch, port: int, owned: tuple[Listener, ...], foreign: bool) -> Spot:
    """The spot, with the URL that leads there from here."""
    addresses = [each.address for each in owned] if owned else [_named(launched.host)]
    ways = sorted(map(_way, addresses), key=lambda way: (not way.is_loopback, way.version, int(way)))
    host = _foreign_host(server, addresses) if foreign else ways[0]
    if foreign and owned and not host:
        return Spot(port, broken=OTHER_NETWORK if all(each.is_loopback for each in addresses) else NO_WAY, foreign=True)
    if not host or not port:
        return Spot(port, listeners=owned, foreign=foreign)
    shown = f"[{host}]" if host.version == 6 else str(host)
    url = f"{'https' if launched.secure else 'http'}://{shown}:{port}{launched.prefix}"
    return Spot(port, url, owned, foreign=foreign)


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


def _foreign_host(server: Process, addresses: Sequence[IpAddress]) -> IpAddress | None:
    """An address of a socket's own network namespace that a network of this one leads straight to."""
    own = [address for address in addresses if not address.is_unspecified]
    if len(own) < len(addresses):
        own += addresses_of(server.pid)
    ways = (address for address in own if isinstance(address, ipaddress.IPv4Address) and not address.is_loopback)
    return next((way for way in ways if on_link(way)), None)


class Look:
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

    def __call__(self, gpu_pids: frozenset[int]) -> tuple[Chain, ...]:
        """The chains of these processes, one for each server; broken ones say where."""
        chains = Family(gpu_pids).chains
        self._met = {pid for pid in gpu_pids if chains[pid] or pid in self._met}
        absent = tuple(sorted(gpu_pids - self._met))
        groups: dict[int, tuple[Found | None, list[Process]]] = {}
        for _, chain in sorted(chains.items()):
            if chain:
                found = server_in(chain)
                groups.setdefault(found[0].pid if found else -chain[0].pid, (found, []))[1].append(chain[0])
        servers = [found[0] for found, _ in groups.values() if found is not None]
        self._places.begin(servers)
        self._stored = {key: self._stored[key] for one in servers if (key := (one.pid, one.started)) in self._stored}
        seen = [self._followed(found, tuple(members)) for found, members in groups.values()]
        seen += [Chain((), absent=absent)] if absent else []
        return (*self._unless_configured(seen), *self._asked_ports(seen))

    def _followed(self, found: Found | None, members: tuple[Process, ...]) -> Chain:
        if found is None:
            return Chain(members)
        server, launched = found
        launched = self._named(server, launched)
        spot = self._places.spot(server, launched, frozenset(one.pid for one in members))
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

    def _named(self, server: Process, launched: Launch) -> Launch:
        """What Ollama gave a file of its store has a name that only the store knows; a later look has it if not this.

        Without a name yet, it is asked for again: its manifest may still come.
        """
        named_here = launched.kind is EngineKind.LLAMA_CPP and not launched.served_name
        if not named_here or not allowed(launched.model) or not is_blob(Path(launched.model)):
            return launched
        key = (server.pid, server.started)
        asked = self._stored.get(key)
        if asked is None:
            root = root_of(server.pid) if container_of(server.pid) else ""
            asked = self._stored[key] = daemon_thread(
                ollama_name, Path(f"{root}{launched.model}"), reader_of(server.pid)
            )
            wait([asked], NAME_PATIENCE_S)
        name = "" if not asked.done() or asked.exception() else asked.result()
        if asked.done() and not name:
            del self._stored[key]
        return launched._replace(stored_as=name)

    def _same(self, spot: Spot) -> str:
        """The URL of the config that leads to this very socket, or to this port while nobody listens there."""
        for url in self._configured if spot.url else ():
            if urls.server(url) == urls.server(spot.url):
                return url
            if spot.foreign or parse_url(url).port != spot.port:
                continue
            place = self._place(url)
            if isinstance(place, Place):
                there = reached(place, self._places.listeners())
                if not there or not spot.listeners or set(there) & set(spot.listeners):
                    return url
        return ""

    def _unless_configured(self, chains: Sequence[Chain]) -> list[Chain]:
        """The chains; one into a container is the config's too where the config has its published port."""
        if not self._configured or not any(chain.foreign and not chain.configured for chain in chains):
            return [*chains]
        here: dict[tuple[object, ...], set[int]] = {}
        for each in published():
            here.setdefault((each.address, each.port), set()).add(each.host_port)
        local = [url for url in self._configured if isinstance(self._place(url), Place)]
        found = []
        for chain in chains:
            ports = here.get(parse_url(chain.url)[2:4], set()) if chain.foreign and chain.url else set()
            through = next((url for url in local if parse_url(url).port in ports), "")
            found.append(chain._replace(configured=chain.configured or through))
        return found

    def _asked_ports(self, chains: Iterable[Chain]) -> list[Chain]:
        """The ports that the user named, where somebody listens and no chain leads there."""
        known = {chain.port for chain in chains if chain.url and not chain.foreign}
        found = []
        for port in self._ports:
            place = self._place(f"http://localhost:{port}")
            there = reached(place, self._places.listeners()) if isinstance(place, Place) else ()
            if there and port not in known:
                spot = Spot(port, f"http://127.0.0.1:{port}", there)
                configured = self._same(spot)
                found.append(Chain((), launch=ASKED, port=port, url=spot.url, listens=True, configured=configured))
        return found


def server_in(chain: Sequence[Process]) -> Found | None:
    """The server that a process on a GPU works for, from its ancestors, itself first; None: no engine known.

    The outermost one that was started as a server; a wrapper only where there is no other. Where titles alone tell
    the engine, it runs inside another program: the parent of its outermost process.
    """
    told = [(one, found) for one in chain if (found := launch(one.argv)) is not None]
    servers = [each for each in told if not each[1].part and not each[1].wrapper]
    parts = [each for each in told if each[1].part]
    if servers:
        chosen = servers[0] if servers[0][1].kind in servers[-1][1].apart else servers[-1]
        return chosen[0], _with_variables(*chosen)
    for one, found in told:
        if found.wrapper and found.kind is not EngineKind.RAY:
            return one, _with_variables(one, found)
        if found.wrapper and any(part.kind is found.kind for _, part in parts):
            # A server outside Ray may have its workers there, too.
            workers = filter(None, map(process, descendants(one.pid)))
            serves = any("".join(worker.argv[:1]).startswith(SERVE_REPLICA) for worker in workers)
            return one, _with_variables(one, found) if serves else found._replace(nowhere=THROUGH_RAY)
    if not parts:
        return None
    worker, part = parts[-1]
    parent = next(iter(chain[chain.index(worker) + 1 :]), None)
    # The program that the engine runs in, and not what started that program; the first process adopts anything.
    inside = (*parent.argv[:1], program(parent.pid)) if parent is not None and parent.pid != FIRST else ()
    embeds = any("python" in path.rpartition("/")[2] for path in inside)
    return (parent if parent is not None and embeds else worker), part


def _folder(server: Process, model: str) -> str:
    """The folder that a relative path of the command line is in; empty for other paths and for ids."""
    if model.startswith(("/", "~")) or not (model.startswith(".") or model.endswith(".gguf") or model.count("/") > 1):
        return ""
    try:
        return str(Path(f"/proc/{server.pid}/cwd").readlink())
    except OSError:
        return ""


def _with_variables(one: Process, found: Launch) -> Launch:
    variables = variables_of(one.pid, VARIABLES)
    if variables is None:
        return found
    told = {name: "set" if name in SECRETS else value for name, value in variables.items()}
    return launch(one.argv, told) or found
