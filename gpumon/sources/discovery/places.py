"""Where a server's page stands: the listening socket that is its own, and the URL that leads there from here."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind
from gpumon.sources.discovery.command_line import Launch
from gpumon.sources.discovery.namespaces import OURS, addresses_of, has_ipv6_loopback, network_of, on_link
from gpumon.sources.engines.registry import BY_KIND
from gpumon.sources.family import Process, descendants
from gpumon.sources.sockets import IpAddress, Listener, listening, sockets_of

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
        port = launched.port or (_usual_port(launched.kind) if launched.usual else 0)
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
            port, owned = found.port or (0 if on_port else port), found.listeners
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


def _usual_port(kind: EngineKind) -> int:
    row = BY_KIND.get(kind)
    return row.port if row is not None else 0


def _reached(server: Process, launched: Launch, port: int, owned: tuple[Listener, ...], foreign: bool) -> Spot:
    """The spot, with the URL that leads there from here."""
    addresses = [each.address for each in owned] if owned else [_named(launched.host)]
    host = _foreign_host(server, addresses) if foreign else _host(addresses)
    if foreign and owned and not host:
        return Spot(port, broken=OTHER_NETWORK if all(map(_loopback, addresses)) else NO_WAY, foreign=True)
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


def _host(addresses: Iterable[IpAddress]) -> IpAddress:
    """The way to a socket of this network namespace: loopback where it listens there, else its own address."""
    ways = [_way(address) for address in addresses]
    return min(ways, key=lambda way: (not way.is_loopback, way.version, int(way)))


def _way(address: IpAddress) -> IpAddress:
    if not address.is_unspecified:
        return address
    # A server may listen on :: where IPv6 is switched off: then it is reached by IPv4 only.
    return ipaddress.ip_address("::1" if address.version == 6 and has_ipv6_loopback() else "127.0.0.1")


def _foreign_host(server: Process, addresses: Sequence[IpAddress]) -> IpAddress | None:
    """An address of a socket's own network namespace that a network of this one leads straight to."""
    own = [address for address in addresses if not address.is_unspecified]
    if len(own) < len(addresses):
        own += addresses_of(server.pid)
    ways = (address for address in own if isinstance(address, ipaddress.IPv4Address) and not address.is_loopback)
    return next((way for way in ways if on_link(way)), None)


def _loopback(address: IpAddress) -> bool:
    return address.is_loopback
