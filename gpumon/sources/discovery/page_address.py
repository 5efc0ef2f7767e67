"""The port and the URL of a server's page: where its processes listen, and how that is reached from here."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.sources.discovery.command_line import Launch
from gpumon.sources.discovery.network import addresses_of, is_on_link, network_of
from gpumon.sources.family import ProcessRecord, descendants
from gpumon.sources.sockets import OURS, IpAddress, Listener, find_listeners, on_port, sockets_of

_IPV6_LOOPBACK: Final = f"{1:032x}"
"""::1 as /proc/net/if_inet6 has it."""
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


class PageAddress(NamedTuple):
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


class _PortSockets(NamedTuple):
    """The sockets that listen on one port, and those of them that are the server's."""

    listeners: tuple[Listener, ...]
    owned: tuple[Listener, ...]
    hidden: bool
    """Linux hides from this user who holds them."""


class PageLocator:
    """Finds the addresses of one look. What it takes to look through processes is kept for the next look."""

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
            self._tables[network] = find_listeners(pid)
        return self._tables[network]

    def locate(self, server: ProcessRecord, launched: Launch, gpu_pids: frozenset[int]) -> PageAddress:
        """The address of this server's page; `gpu_pids` are those of its processes that run on GPUs.

        It is at the port of its command line, else at the usual one if the server has that, else at the one that its
        processes are found to listen on.
        """
        if launched.why_no_page:
            return PageAddress(launched.port, broken=launched.why_no_page)
        is_foreign = network_of(server.pid) not in (0, self._ours)
        listeners = self.listeners(server.pid if is_foreign else OURS)
        port = launched.port or launched.usual_port
        at_port = self._sockets_at(server, listeners, port)
        if at_port.owned:
            return _address_at(server, launched, port, at_port.owned, foreign=is_foreign)
        if launched.port:
            if at_port.listeners:
                return PageAddress(
                    port, broken=f"port {port} of its command line is held by another process: {ADD_URL}"
                )
            return _address_at(server, launched, port, (), foreign=is_foreign)
        # The usual port is not this server's while another process has it.
        usual_port = 0 if at_port.listeners else port
        if at_port.hidden:
            if not usual_port:
                return PageAddress(broken=_HIDDEN)
            return _address_at(server, launched, usual_port, (), foreign=is_foreign)
        address = self._search(server, listeners, gpu_pids)
        return _address_of_search(server, launched, address, usual_port, foreign=is_foreign)

    def _sockets_at(self, server: ProcessRecord, listeners: Sequence[Listener], port: int) -> _PortSockets:
        """The `listeners` at a port (0: none). Where Linux hides whose they are, those of the server's user count."""
        at_port: tuple[Listener, ...] = on_port(listeners, port) if port else ()
        owned = self._owned_listeners(server, at_port)
        if owned is not None:
            return _PortSockets(at_port, owned, hidden=False)
        of_user = tuple(listener for listener in at_port if listener.uid == server.uid)
        return _PortSockets(at_port, of_user, hidden=True)

    def _search(
        self, server: ProcessRecord, listeners: Sequence[Listener], gpu_pids: frozenset[int]
    ) -> PageAddress | None:
        """The address at which the server's family listens, GPU workers left out; None where that is hidden.

        With several ports it is the only one whose number stands in its command line: a program with an engine in it
        has options of its own.
        """
        owned = self._owned_listeners(server, listeners, gpu_pids - {server.pid}, everywhere=True)
        if owned is None:
            return None
        ports = sorted({listener.port for listener in owned})
        words = {word.rpartition("=")[2] for word in server.argv}
        named_ports = [port for port in ports if str(port) in words]
        if len(ports) > 1 and len(named_ports) != 1:
            shown = _shown_ports(ports)
            return PageAddress(
                broken=f"it listens on ports {shown}, and its command line does not tell which: {ADD_URL}"
            )
        port = next(iter(named_ports or ports), 0)
        return PageAddress(port, listeners=on_port(owned, port))

    def _owned_listeners(
        self,
        server: ProcessRecord,
        listeners: Sequence[Listener],
        without: frozenset[int] = frozenset(),
        *,
        everywhere: bool = False,
    ) -> tuple[Listener, ...] | None:
        """The `listeners` that the server or a descendant holds; None where Linux hides that from this user.

        `without`: processes that do not count. `everywhere`: all sockets are asked about, not those of one port. To
        look through a family is dear: it is done once for each set of sockets.
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


def _address_of_search(
    server: ProcessRecord, launched: Launch, address: PageAddress | None, usual_port: int, *, foreign: bool
) -> PageAddress:
    """The address that a search came to, with its URL. A server that has no port yet is expected at its usual one."""
    if address is None:
        return PageAddress(broken=_HIDDEN)
    if address.broken:
        return address
    return _address_at(server, launched, address.port or usual_port, address.listeners, foreign=foreign)


def _shown_ports(ports: Sequence[int]) -> str:
    """The first of these ports as a text."""
    shown = ", ".join(map(str, ports[:MOST_PORTS]))
    if len(ports) > MOST_PORTS:
        return f"{shown} ..."
    return shown


def _held_inodes(server: ProcessRecord, inodes: frozenset[int], without: frozenset[int]) -> frozenset[int] | None:
    """The `inodes` of sockets that a server or a descendant holds; None where Linux hides that from this user.

    `without`: processes that do not count. If there are none and the server holds some sockets itself, its descendants
    are not looked at.
    """
    own_sockets = sockets_of(server.pid)
    if own_sockets is None:
        return None
    if not without and own_sockets & inodes:
        return own_sockets & inodes
    sockets = set(own_sockets)
    for pid in descendants(server.pid) - without:
        sockets |= sockets_of(pid) or frozenset()
    return inodes & sockets


def _address_at(
    server: ProcessRecord, launched: Launch, port: int, owned: tuple[Listener, ...], *, foreign: bool
) -> PageAddress:
    """The address at a port of the server, with the URL that leads there from here.

    `owned` are its sockets there; without any, its command line says where they will be. `foreign`: it is in another
    network namespace.
    """
    if owned:
        addresses = [listener.address for listener in owned]
    else:
        addresses = [_named_address(launched.host)]
    host: IpAddress | None
    if foreign:
        host = _foreign_host(server, addresses)
        if owned and not host:
            no_way = OTHER_NETWORK if all(address.is_loopback for address in addresses) else NO_WAY
            return PageAddress(port, broken=no_way, foreign=True)
    else:
        host = min(map(_address_from_here, addresses), key=_nearness)
    if not host or not port:
        return PageAddress(port, listeners=owned, foreign=foreign)
    host_text = f"[{host}]" if host.version == 6 else str(host)
    scheme = "https" if launched.secure else "http"
    url = f"{scheme}://{host_text}:{port}{launched.prefix}"
    return PageAddress(port, url, owned, foreign=foreign)


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
    has_loopback = any(line.partition(" ")[0] == _IPV6_LOOPBACK for line in lines)
    return ipaddress.ip_address("::1" if has_loopback else "127.0.0.1")


def _foreign_host(server: ProcessRecord, addresses: Sequence[IpAddress]) -> IpAddress | None:
    """An address of a socket's own network namespace that a network of this one leads straight to."""
    candidates = [address for address in addresses if not address.is_unspecified]
    if len(candidates) < len(addresses):
        candidates += addresses_of(server.pid)
    for address in candidates:
        if isinstance(address, ipaddress.IPv4Address) and not address.is_loopback and is_on_link(address):
            return address
    return None
