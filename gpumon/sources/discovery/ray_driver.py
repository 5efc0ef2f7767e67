"""Ray: which server of this host handed its work to the workers of a raylet."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from gpumon.sources.discovery.command_line import Launch, launch
from gpumon.sources.family import Descent, Process, all_pids, process
from gpumon.sources.sockets import connected, sockets_of

GCS: Final = re.compile(r"--gcs[-_]address=(\S{1,256}):(\d{1,5})(?!\d)")
"""Where the cluster's control service listens; its drivers keep a connection open to it. A raylet has it as an option,
or in the command of its workers (ray/_private/services.py)."""


class Drivers:
    """The servers behind raylets at one moment: each raylet is looked at once, however many workers it has."""

    def __init__(self, descent: Descent) -> None:
        self.descent = descent
        self._known: dict[int, tuple[Process, Launch] | None] = {}

    def of(self, raylet: Process) -> tuple[Process, Launch] | None:
        """The only server on this host that is connected to the raylet's cluster; None where there is none, or several.

        A server counts with all that came of it: vLLM's engine core is the one that talks to Ray. Other users' sockets
        are hidden without root. Looks at every process of the host.
        """
        if raylet.pid not in self._known:
            links = _links(raylet)
            found = [each for each in _servers() if _holds(each[0].pid, links, self.descent)] if links else []
            self._known[raylet.pid] = found[0] if len(found) == 1 else None
        return self._known[raylet.pid]


def _links(raylet: Process) -> frozenset[int]:
    """Inodes of the sockets that are connected to its control service."""
    found = GCS.search(" ".join(raylet.argv))
    try:
        address = ipaddress.ip_address(found[1].strip("[]")) if found else None
    except ValueError:
        return frozenset()
    return connected(address, int(found[2]), raylet.pid) if found and address else frozenset()


def _servers() -> list[tuple[Process, Launch]]:
    """Processes that were started as a server, the outermost of each; a job of Ray's may be one."""
    seen = map(process, all_pids())
    told = {one.pid: (one, found) for one in seen if one is not None and (found := launch(one.argv)) is not None}
    servers = {pid: each for pid, each in told.items() if not each[1].part and not each[1].wrapper}
    return [each for each in servers.values() if each[0].parent not in servers]


def _holds(pid: int, links: frozenset[int], descent: Descent) -> bool:
    return any(links & (sockets_of(each) or frozenset()) for each in (pid, *descent.of(pid)))
