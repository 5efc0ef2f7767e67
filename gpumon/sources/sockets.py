"""TCP sockets of this host: who listens for a URL, which processes hold them, who has the other end of a connection."""

from __future__ import annotations

import enum
import ipaddress
import math
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.sources.endpoint_url import parse_url

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

ANOTHER_HOST = "it runs on another host: set gpu_type and gpu_count for this endpoint in the config"

UNRESOLVED_S = 60.0
"""Seconds between two tries to resolve a host name."""
_MOST_URLS = 1024
"""URLs of which a `Locator` remembers the place."""

OURS: Final = "self"
"""Stands for gpumon's own process in /proc."""
_LISTENING: Final = "0A"
_CONNECTED: Final = "01"
"""States of sockets in /proc/net/tcp."""
_LISTEN = f" {_LISTENING} "
"""The state of a listening socket in a line of /proc/net/tcp."""

# Messages of sock_diag(7), by linux/netlink.h and linux/inet_diag.h. A request is a `nlmsghdr` (length, type, flags,
# number, port) and an `inet_diag_req_v2` (family, protocol, extensions, padding, states, and the socket's
# `inet_diag_sockid`: ports, addresses, interface, cookie). An answer is a `nlmsghdr` and an `inet_diag_msg`.
_HEADER = struct.Struct("=IH10x")
"""Length and type of an answer."""
_DUMP_REQUEST = struct.Struct("=IHHIIBBHI48x")
"""A request with an empty `inet_diag_sockid`: all sockets are asked for."""
_LOCAL_END = struct.Struct("!20xH2x16s")
"""Local port and address of an answer."""
_OWNER = struct.Struct("=80xII")
"""User and inode of an answer."""
_STATE = struct.Struct("=17xB")
"""State of the socket of an answer."""
_ONE_REQUEST = struct.Struct("=IHHIIBBHI")
"""A request up to its `inet_diag_sockid`, which `_PORTS` and `_INTERFACE` make."""
_PORTS = struct.Struct("!HH16s16s")
"""Local and remote port, local and remote address, in the order of bytes of the network."""
_INTERFACE = struct.Struct("=I8s")
"""Interface and cookie."""
_NO_COOKIE: Final = b"\xff" * 8
"""Any socket with these ends (INET_DIAG_NOCOOKIE)."""
_SOCK_DIAG = 20
"""Type of requests and answers (SOCK_DIAG_BY_FAMILY)."""
_NETLINK_SOCK_DIAG = 4
"""Protocol of the netlink socket."""
_DONE = 3
"""Type of the message behind the last answer (NLMSG_DONE)."""
_DUMP_FLAGS = 0x301
"""Ask for all: NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH."""
_ONE_FLAGS = 1
"""Ask for one: NLM_F_REQUEST."""
_MOST_ANSWER_BYTES = 65536
"""Bytes that are read at once: the kernel sends at most 32 KiB."""
_TCP_LISTEN = 10
"""State of a listening socket (linux/tcp_states.h)."""
_ESTABLISHED = 1
"""State of a connection."""
_ANY_STATE = 0xFFFFFFFF
"""One bit for each state: all."""
_NOT_YET = frozenset({3, 12})
"""States before a connection: SYN_RECV and NEW_SYN_RECV."""
_NETLINK_S = 2.0
"""Longest wait for an answer of the kernel."""
_SOCKET = "socket:["
"""Begin of the link of an open file that is a socket; its inode follows."""
_LOOPBACK = frozenset({ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")})


class LocalAddress(NamedTuple):
    """The address and port of this host that a URL leads to."""

    addresses: frozenset[IpAddress]
    port: int


class Listener(NamedTuple):
    """One listening socket: where, its inode, and the user who owns it."""

    address: IpAddress
    port: int
    inode: int
    uid: int


class TcpConnection(NamedTuple):
    """A TCP connection that this process has made: both ends, and the inode of its own socket.

    An IPv4 address mapped into IPv6 stands here as IPv4.
    """

    local: IpAddress
    local_port: int
    remote: IpAddress
    remote_port: int
    inode: int
    interface: int = 0
    """Index of the interface of a link-local IPv6 address."""


class PeerState(enum.Enum):
    """State of the other end of a connection, as Linux reports it."""

    OWNED = "owned"
    """It is a socket of this network namespace, and a user of this host owns it."""
    WAITING = "waiting"
    """No process has accepted it yet: it waits in the queue of a listening socket."""
    ENDED = "ended"
    """It was closed already."""
    HIDDEN = "hidden"
    """The address is this host's, and the socket is in another network namespace, or is not shown."""
    ELSEWHERE = "elsewhere"
    """The address is another host's."""


class Peer(NamedTuple):
    """The other end of a connection."""

    state: PeerState
    uid: int = -1
    """User who owns it where it is `OWNED`; else -1."""


class _End(NamedTuple):
    """One end of a connection as the kernel lists it. The inode is 0 until a process accepts it."""

    state: int
    uid: int
    inode: int


def locate(url: str) -> LocalAddress | str:
    """The place on this host that `url` leads to, or why there is none. May wait for a name server."""
    try:
        _, _, host, port, _ = parse_url(url)
    except ValueError:
        return "the URL cannot be read"
    if host == "localhost":
        return LocalAddress(_LOOPBACK, port)
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return "its host name cannot be resolved right now"
    addresses = frozenset(_reached_address(str(entry[4][0])) for entry in entries)
    own = _on_this_host(addresses)
    if own:
        return LocalAddress(own, port)
    return ANOTHER_HOST


def _on_this_host(addresses: frozenset[IpAddress]) -> frozenset[IpAddress]:
    """The addresses that are of this host. The host's own are looked up only where that is needed."""
    loopback = frozenset(address for address in addresses if address.is_loopback)
    if loopback == addresses:
        return loopback
    return loopback | (addresses & _own_addresses())


def _reached_address(text: str) -> IpAddress:
    """The address that a connection to this one reaches: Linux takes the unspecified address for loopback."""
    address = _unmapped(ipaddress.ip_address(text.partition("%")[0]))
    if not address.is_unspecified:
        return address
    return ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")


class Locator:
    """`locate` that remembers.

    A name that does not resolve is asked for again only after a while: each time may take long, and others wait.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places: dict[str, tuple[LocalAddress | str, float]] = {}
        """URL -> where it leads to, and until when that is taken for right (monotonic)."""

    def __call__(self, url: str) -> LocalAddress | str:
        """As `locate`."""
        known = self._places.pop(url, None)
        if known is None or self._clock() >= known[1]:
            place = locate(url)
            is_resolved = isinstance(place, LocalAddress) or place == ANOTHER_HOST
            until_s = math.inf if is_resolved else self._clock() + UNRESOLVED_S
            known = (place, until_s)
        self._places[url] = known
        while len(self._places) > _MOST_URLS:
            del self._places[next(iter(self._places))]
        return known[0]


def _own_addresses() -> frozenset[IpAddress]:
    """The addresses of all interfaces of this host; empty where they cannot be read."""
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    try:
        cards = psutil.net_if_addrs()
    except OSError:
        return frozenset()
    texts = [entry.address for entries in cards.values() for entry in entries if entry.family in families]
    return frozenset(ipaddress.ip_address(text.split("%")[0]) for text in texts)


def find_listeners(pid: int | str = OURS) -> list[Listener]:
    """All listening TCP sockets of the network namespace that a process is in; this one's by default.

    The kernel is asked for listening sockets only (sock_diag(7)): for /proc/net/tcp it walks all connections of the
    host, which takes 8 ms on a small one. That of another namespace, or where a sandbox has no netlink, is read all
    the same.
    """
    if pid == OURS:
        with suppress(OSError):
            return [*_netlink_listeners(socket.AF_INET), *_netlink_listeners(socket.AF_INET6)]
    return [printed_listener(line) for line in _tcp_lines(pid) if _LISTEN in line]


def _netlink_listeners(family: int) -> Iterator[Listener]:
    """The listening sockets by sock_diag(7). Raises OSError.

    Structs `inet_diag_req_v2` and `inet_diag_msg` of linux/inet_diag.h.
    """
    states = 1 << _TCP_LISTEN
    request = _DUMP_REQUEST.pack(
        *(_DUMP_REQUEST.size, _SOCK_DIAG, _DUMP_FLAGS, 0, 0),
        *(family, socket.IPPROTO_TCP, 0, states),
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(_NETLINK_S)
        link.send(request)
        while True:
            answer = link.recv(_MOST_ANSWER_BYTES)
            while answer:
                length, kind = _HEADER.unpack_from(answer)
                if kind == _DONE:
                    return
                if kind != _SOCK_DIAG:
                    raise OSError("the kernel does not list sockets by netlink")
                port, raw = _LOCAL_END.unpack_from(answer)
                uid, inode = _OWNER.unpack_from(answer)
                if family == socket.AF_INET:
                    raw = raw[:4]  # the field has room for IPv6
                yield Listener(_unmapped(ipaddress.ip_address(raw)), port, inode, uid)
                answer = answer[(length + 3) & ~3 :]  # messages begin at multiples of 4 bytes


def printed_listener(line: str) -> Listener:
    """A line of /proc/net/tcp or tcp6. Raises ValueError and IndexError where it is none."""
    words = line.split()
    address, port = _parse_end(words[1])
    return Listener(address, port, inode=int(words[9]), uid=int(words[7]))


def _tcp_lines(pid: int | str) -> Iterator[str]:
    """All TCP sockets of a process's network namespace, one a line.

    Columns by proc(5): number, local, remote, state, queues, timer, retransmits, uid, timeout, inode.
    """
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            yield from Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]


def open_at(pid: int, port: int) -> tuple[bool, int] | None:
    """Whether somebody listens on a port of a process's network namespace, and how many connections are open there.

    None where Linux hides that.
    """
    is_read = False
    listens = False
    connections = 0
    ending = f":{port:04X}"
    for line in _tcp_lines(pid):
        is_read = True
        words = line.split(maxsplit=4)
        if len(words) > 4 and words[1].endswith(ending):
            listens = listens or words[3] == _LISTENING
            connections += words[3] == _CONNECTED
    return (listens, connections) if is_read else None


def connection_of(connected: socket.socket) -> TcpConnection:
    """The two ends of a connected TCP socket. Raises OSError if it is no longer connected."""
    local = connected.getsockname()
    remote = connected.getpeername()
    address = ipaddress.ip_address(remote[0].partition("%")[0])
    interface = remote[3] if address.is_link_local and len(remote) == 4 else 0
    inode = os.fstat(connected.fileno()).st_ino
    own_address = _unmapped(ipaddress.ip_address(local[0].partition("%")[0]))
    return TcpConnection(own_address, local[1], _unmapped(address), remote[1], inode, interface)


def peer_of(connection: TcpConnection) -> Peer:
    """Who has the other end of a connection, by its exact addresses and ports.

    Whether the kernel can be asked at all shows at this end: where it is not found, nothing is known of the other one.
    """
    find_end = _netlink_end
    own = find_end(connection)
    if own is None or own.inode != connection.inode:
        find_end = _printed_end
        own = find_end(connection)
    other = find_end(_reversed(connection)) if own is not None and own.inode == connection.inode else None
    if other is None:
        if _is_of_this_host(connection):
            return Peer(PeerState.HIDDEN)
        return Peer(PeerState.ELSEWHERE)
    if other.state in _NOT_YET:
        return Peer(PeerState.WAITING)
    if other.state != _ESTABLISHED:
        return Peer(PeerState.ENDED)
    # Until a process accepts a connection, older kernels list it as root's.
    if other.inode == 0:
        return Peer(PeerState.WAITING)
    return Peer(PeerState.OWNED, other.uid)


def _reversed(connection: TcpConnection) -> TcpConnection:
    """The connection as the other end has it."""
    return connection._replace(
        local=connection.remote,
        local_port=connection.remote_port,
        remote=connection.local,
        remote_port=connection.local_port,
    )


def _is_of_this_host(connection: TcpConnection) -> bool:
    """Whether a connection leads to an address of this host."""
    remote = connection.remote
    return remote.is_loopback or remote == connection.local or remote in _own_addresses()


def _netlink_end(connection: TcpConnection) -> _End | None:
    """The local end of a connection by sock_diag(7); None if the kernel has none in this network namespace.

    The kernel answers with a listening socket on that port where it finds no such connection.
    """
    family = socket.AF_INET if connection.local.version == 4 else socket.AF_INET6
    ports = _PORTS.pack(
        connection.local_port, connection.remote_port, connection.local.packed, connection.remote.packed
    )
    socket_id = ports + _INTERFACE.pack(connection.interface, _NO_COOKIE)
    head = _ONE_REQUEST.pack(
        *(_ONE_REQUEST.size + len(socket_id), _SOCK_DIAG, _ONE_FLAGS, 0, 0),
        *(family, socket.IPPROTO_TCP, 0, _ANY_STATE),
    )
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
            link.settimeout(_NETLINK_S)
            link.send(head + socket_id)
            answer = link.recv(_MOST_ANSWER_BYTES)
    except OSError:
        return None
    _, kind = _HEADER.unpack_from(answer)
    if kind != _SOCK_DIAG:
        return None
    (state,) = _STATE.unpack_from(answer)
    if state == _TCP_LISTEN:
        return None
    uid, inode = _OWNER.unpack_from(answer)
    return _End(state, uid, inode)


def _printed_end(connection: TcpConnection) -> _End | None:
    """The local end of a connection from /proc/net/tcp, for a sandbox without netlink."""
    local = (connection.local, connection.local_port)
    remote = (connection.remote, connection.remote_port)
    for line in _tcp_lines(OURS):
        words = line.split()
        if _parse_end(words[1]) == local and _parse_end(words[2]) == remote:
            return _End(state=int(words[3], 16), uid=int(words[7]), inode=int(words[9]))
    return None


def reached(place: LocalAddress, sockets: Iterable[Listener]) -> tuple[Listener, ...]:
    """The sockets that a connection to `place` reaches; one bound to that very address wins over a wildcard."""
    candidates = on_port(sockets, place.port)
    exact = tuple(listener for listener in candidates if listener.address in place.addresses)
    return exact or tuple(listener for listener in candidates if listener.address.is_unspecified)


def on_port(sockets: Iterable[Listener], port: int) -> tuple[Listener, ...]:
    """The sockets that listen on a port, at whatever address."""
    return tuple(listener for listener in sockets if listener.port == port)


def _parse_end(text: str) -> tuple[IpAddress, int]:
    """Address and port of one end as the kernel prints them: 32-bit words in the host's byte order, in hex."""
    words, _, port = text.partition(":")
    raw = b"".join(bytes.fromhex(words[i : i + 8])[::-1] for i in range(0, len(words), 8))
    return _unmapped(ipaddress.ip_address(raw)), int(port, 16)


def _unmapped(address: IpAddress) -> IpAddress:
    """The address; of an IPv4 address that is mapped into IPv6, that IPv4 address."""
    return getattr(address, "ipv4_mapped", None) or address


def socket_holders(inodes: Iterable[int], pids: Iterable[int]) -> frozenset[int]:
    """The processes among `pids` that hold one of these sockets open, as far as Linux shows that to this user."""
    sockets = frozenset(inodes)
    return frozenset(pid for pid in pids if not sockets.isdisjoint(sockets_of(pid) or ()))


def sockets_of(pid: int) -> frozenset[int] | None:
    """Inodes of the sockets that a process holds open; None where Linux hides them from this user.

    Root without CAP_SYS_PTRACE (in a container) sees that there are open files, and not which.
    """
    try:
        links = [_link(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except PermissionError:
        return None
    except OSError:
        return frozenset()
    return frozenset(int(link[len(_SOCKET) : -1]) for link in links if link.startswith(_SOCKET))


def _link(entry: Path) -> str:
    """Target of a link; empty where the file was closed meanwhile."""
    try:
        return str(entry.readlink())
    except FileNotFoundError:
        return ""
