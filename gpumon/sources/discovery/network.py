"""Network namespaces: which one a process is in, its addresses, and which of them are reached from this one."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.sources.sockets import OURS, find_listeners

_LOCAL: Final = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")
"""An address of the namespace's own in fib_trie (net/ipv4/fib_trie.c)."""
_UP: Final = 0x1
"""RTF_UP: the route is in use."""
_GATEWAY: Final = 0x2
"""RTF_GATEWAY: the route leads through a gateway."""
_INTERFACES: Final = Path("/sys/class/net")
_PROXY_OPTIONS: Final = ("-host-port", "-container-ip", "-container-port")
"""Options of docker-proxy that give the fields of `Published`, in their order."""


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
    addresses = dict.fromkeys(map(ipaddress.IPv4Address, _LOCAL.findall(text)))
    return tuple(address for address in addresses if not address.is_loopback)


def is_on_link(address: ipaddress.IPv4Address) -> bool:
    """Whether a virtual cable or bridge of this namespace leads straight to that address, as to a container's.

    What goes through a gateway may end at a stranger who has the same address, unless the gateway is this host (as with
    Cilium). So may what goes through a network card: any user may give another host's address to a namespace of his
    own, and would have gpumon ask that host, which he may not reach himself.
    Columns as in route(8); numbers are hexadecimal, addresses in the host's byte order.
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
        leads_there = flags & _UP and int(address) & mask == destination
        if leads_there and mask > longest_mask:  # the route with the longest mask is the one that is used
            longest_mask = mask
            is_here = not flags & _GATEWAY or ipaddress.IPv4Address(gateway) in addresses_of()
            is_direct = is_here and not leads_out(_INTERFACES / words[0])
    # Mask 0 is that of the default route, which leads anywhere.
    return is_direct and longest_mask > 0


def leads_out(interface: Path) -> bool:
    """Whether an interface, by its folder in /sys, is that of a network card, or lies on one as a bond or a VLAN does.

    A bridge may have a card among its ports: containers are there all the same.
    """
    if (interface / "device").exists():
        return True
    is_bridge = (interface / "bridge").exists()
    return not is_bridge and any(map(leads_out, interface.glob("lower_*")))


def _route_number(text: str) -> int:
    """The number of an address or mask of a route: its bytes stand the other way round."""
    return int.from_bytes(bytes.fromhex(text)[::-1], "big")


def published() -> tuple[Published, ...]:
    """Ports that Docker's user-land proxy hands on. Looks at every process of the host: not for every tick.

    Any process can call itself so: the port has to be that of its user.
    """
    ports = []
    owners = {(listener.port, listener.uid) for listener in find_listeners()}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "comm").read_bytes().strip() == b"docker-proxy":
                    words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                    port = _published(words)
                    if (port.host_port, entry.stat().st_uid) in owners:
                        ports.append(port)
            except (OSError, ValueError):
                continue
    return tuple(ports)


def _published(words: list[str]) -> Published:
    """The port of a proxy's command line as dockerd writes it (libnetwork/portmapper/proxy_linux.go). Raises
    ValueError."""
    host_port, address, port = (words[words.index(name) + 1] for name in _PROXY_OPTIONS)
    return Published(int(host_port), address, int(port))
