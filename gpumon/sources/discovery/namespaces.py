"""Network namespaces: which one a process is in, its addresses there, and whether they can be reached from here."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Final, NamedTuple

OURS: Final = "self"
_LOCAL: Final = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")
"""An address of the namespace's own in fib_trie (net/ipv4/fib_trie.c)."""
_LOOPBACK: Final = f"{1:032x}"
_UP: Final = 0x1
_GATEWAY: Final = 0x2
_PROXY_OPTIONS: Final = ("-host-port", "-container-ip", "-container-port")


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


def has_ipv6_loopback() -> bool:
    """Whether ::1 is an address of this network namespace. Columns of if_inet6: address, index, prefix, scope, ..."""
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return False
    return any(line.partition(" ")[0] == _LOOPBACK for line in lines)


def on_link(address: ipaddress.IPv4Address) -> bool:
    """Whether a cable or bridge of this namespace leads straight to that address, as to a container's.

    What goes through a gateway may end at a stranger who has the same address, unless the gateway is this host (as with
    Cilium). Columns as in route(8); numbers are hexadecimal, addresses in the host's byte order.
    """
    try:
        lines = Path("/proc/net/route").read_text().splitlines()[1:]
    except OSError:
        return False
    best, direct = -1, False
    for words in (line.split() for line in lines):
        flags, mask = int(words[3], 16), _ip(words[7])
        if flags & _UP and int(address) & mask == _ip(words[1]) and mask > best:
            best, direct = mask, not flags & _GATEWAY or ipaddress.IPv4Address(_ip(words[2])) in addresses_of()
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
