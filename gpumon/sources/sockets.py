"""Listening TCP sockets of this host: which belong to a URL, and which processes hold them (Linux /proc)."""

from __future__ import annotations

import ipaddress
import math
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
"""Between two tries to resolve a host name."""
MOST_URLS = 1024

OURS: Final = "self"
_LISTEN = " 0A "
_HEADER = struct.Struct("=IH10x")
"""Of a netlink message: length, type."""
_REQUEST = struct.Struct("=IHHIIBBHI48x")
_LOCAL_END = struct.Struct("!20xH2x16s")
_OWNER = struct.Struct("=80xII")
_SOCK_DIAG, _NETLINK_SOCK_DIAG, _DONE, _DUMP, _TCP_LISTEN = 20, 4, 3, 0x301, 10
_NETLINK_S = 2.0
_SOCKET = "socket:["
_LOOPBACK = frozenset({ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")})


class Place(NamedTuple):
    """Where a URL leads to on this host."""

    addresses: frozenset[IpAddress]
    port: int


class Listener(NamedTuple):
    """One listening socket: where, its inode, and the user who owns it."""

    address: IpAddress
    port: int
    inode: int
    uid: int


def locate(url: str) -> Place | str:
    """The place on this host that `url` leads to, or why there is none. May wait for a name server."""
    try:
        _, _, host, port, _ = parse_url(url)
    except ValueError:
        return "the URL can not be read"
    if host == "localhost":
        return Place(_LOOPBACK, port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return "its host name can not be resolved right now"
    addresses = frozenset(ipaddress.ip_address(str(entry[4][0]).split("%")[0]) for entry in found)
    here = frozenset() if all(address.is_loopback for address in addresses) else _own_addresses()
    own = frozenset(address for address in addresses if address.is_loopback or address in here)
    return Place(own, port) if own else ANOTHER_HOST


class Locator:
    """`locate` that remembers. A name that does not resolve is asked for again after a while: each time may take long,
    and other servers wait meanwhile."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: dict[str, tuple[Place | str, float]] = {}
        """By URL: where it leads to, and until when that holds."""

    def __call__(self, url: str) -> Place | str:
        """As `locate`."""
        known = self._found.pop(url, None)
        if known is None or self._clock() >= known[1]:
            place = locate(url)
            lasts = isinstance(place, Place) or place == ANOTHER_HOST
            known = place, math.inf if lasts else self._clock() + UNRESOLVED_S
        self._found[url] = known
        while len(self._found) > MOST_URLS:
            del self._found[next(iter(self._found))]
        return known[0]


def _own_addresses() -> frozenset[IpAddress]:
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    try:
        cards = psutil.net_if_addrs()
    except OSError:
        return frozenset()
    texts = [entry.address for entries in cards.values() for entry in entries if entry.family in families]
    return frozenset(ipaddress.ip_address(text.split("%")[0]) for text in texts)


def listening(pid: int | str = OURS) -> list[Listener]:
    """All listening TCP sockets of the network namespace that a process is in; this one's by default.

    The kernel is asked for listening sockets only (sock_diag(7)): for /proc/net/tcp it walks all connections of the
    host, which takes 8 ms on a small one. That of another namespace, or where a sandbox has no netlink, is read all
    the same.
    """
    if pid == OURS:
        with suppress(OSError):
            return [*_dumped(socket.AF_INET), *_dumped(socket.AF_INET6)]
    return _printed(pid)


def _dumped(family: int) -> Iterator[Listener]:
    """By sock_diag(7), structs `inet_diag_req_v2` and `inet_diag_msg` of linux/inet_diag.h. Raises OSError."""
    ask = _REQUEST.pack(_REQUEST.size, _SOCK_DIAG, _DUMP, 0, 0, family, socket.IPPROTO_TCP, 0, 1 << _TCP_LISTEN)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(_NETLINK_S)
        link.send(ask)
        while True:
            answer = link.recv(65536)
            while answer:
                length, kind = _HEADER.unpack_from(answer)
                if kind == _DONE:
                    return
                if kind != _SOCK_DIAG:
                    raise OSError("the kernel does not list sockets by netlink")
                (port, raw), (uid, inode) = _LOCAL_END.unpack_from(answer), _OWNER.unpack_from(answer)
                address = ipaddress.ip_address(raw[:4] if family == socket.AF_INET else raw)
                yield Listener(_mapped(address), port, inode, uid)
                answer = answer[(length + 3) & ~3 :]


def _printed(pid: int | str) -> list[Listener]:
    """Columns by proc(5): number, local, remote, state, queues, timer, retransmits, uid, timeout, inode."""
    found = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
            words = (line.split() for line in lines if _LISTEN in line)
            found += [Listener(*_end(each[1]), int(each[9]), int(each[7])) for each in words]
    return found


def reached(place: Place, sockets: Iterable[Listener]) -> tuple[Listener, ...]:
    """The sockets that a connection to `place` reaches; one bound to that very address wins over a wildcard."""
    on_port = [listener for listener in sockets if listener.port == place.port]
    exact = tuple(listener for listener in on_port if listener.address in place.addresses)
    return exact or tuple(listener for listener in on_port if listener.address.is_unspecified)


def _end(text: str) -> tuple[IpAddress, int]:
    """The kernel prints addresses as 32-bit words in the host's byte order; v4 in v6 counts as v4."""
    words, _, port = text.partition(":")
    raw = b"".join(bytes.fromhex(words[i : i + 8])[::-1] for i in range(0, len(words), 8))
    return _mapped(ipaddress.ip_address(raw)), int(port, 16)


def _mapped(address: IpAddress) -> IpAddress:
    return getattr(address, "ipv4_mapped", None) or address


def holders(inodes: Iterable[int], pids: Iterable[int]) -> frozenset[int]:
    """Those of the processes that hold one of the sockets open and may be looked into."""
    wanted = frozenset(inodes)
    return frozenset(pid for pid in pids if not wanted.isdisjoint(sockets_of(pid) or ()))


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
    try:
        return str(entry.readlink())
    except FileNotFoundError:
        return ""
