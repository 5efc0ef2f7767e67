"""Looks at the processes of engines beside a collector's ticks: where they run, what they do, whether they live."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind, PartState
from gpumon.sources.family import ProcessRecord
from gpumon.sources.last_seen.processes.look import (
    LookOrder,
    ProcessLook,
    RestartScan,
    ServerProcesses,
    Use,
    look_at_processes,
    works,
)
from gpumon.sources.last_seen.processes.process_state import ProcessState
from gpumon.sources.last_seen.processes.tree import PartsScan
from gpumon.sources.last_seen.records import NO_ORIGIN, EngineOrigin, ProcessId
from gpumon.sources.offload import daemon_thread, finished

SERVER_LOOK_S: Final = 1.0
"""Seconds between two looks at the processes of engines."""
_SCAN_S: Final = 30.0
"""Seconds between two looks through all processes of the host for those of the engines: 30 ms for 2,000 of them."""
_SCAN_SOON_S: Final = 5.0
"""The same while a process of an engine is gone: another one may take its place."""


class RunningServer(NamedTuple):
    """A server that runs on this host, as discovery follows it."""

    url: str
    """URL at which it is polled."""
    server: ProcessRecord
    gpu_pids: tuple[int, ...]
    listens: bool
    """Whether its port is open."""
    passing: bool = False
    """Whether another server starts and ends it at will."""
    kind: EngineKind = EngineKind.UNKNOWN
    coreless: bool = False
    """Whether the process that would answer is gone, by its tree and the GPUs."""
    port: int = 0
    """Port that it listens on in its own network namespace; 0: not known."""

    @property
    def id(self) -> ProcessId:
        """Pid and start: together they name one process of this boot."""
        return self.server.pid, self.server.started


Servers = Callable[[], "tuple[RunningServer, ...] | None"]
"""Returns the servers that run on this host; None before the first look."""


class ServerLooks:
    """Looks at the processes of engines and keeps what the last look saw.

    All calls but `finish` return at once: /proc is read in a thread.
    """

    def __init__(
        self,
        servers: Servers | None,
        simulated: Callable[[], ProcessState] | None = None,
        look_s: float = SERVER_LOOK_S,
    ) -> None:
        """`servers` is discovery's; None: processes are not looked at.

        `simulated` tells what is known of the simulated processes of the demo.
        """
        self._servers = servers
        self._simulated = simulated
        self._look_s = look_s
        self._looking: Future[ProcessLook] | None = None
        """The look that is under way."""
        self._looked_s = float("-inf")
        """Monotonic time at which the last look began."""
        self._origins: Mapping[ProcessId, EngineOrigin] = {}
        """`ProcessLook.origins` of the last look that is over; the next two are its `states` and `uses`."""
        self._states: Mapping[ProcessId, PartState] = {}
        self._uses: Mapping[ProcessId, Use] = {}
        self._closed: Mapping[ProcessId, int] = {}
        self._restarts: Mapping[ProcessId, EngineOrigin] = {}
        self._scan = PartsScan()
        self._restart_scan = RestartScan()
        self._scanned_s = float("-inf")
        """Monotonic time at which the trees of servers were looked through last."""
        self._state = ProcessState()
        """The result of `state` at the last tick."""

    def begin(self, watched: Iterable[EngineOrigin], refusing: Collection[ProcessId] = ()) -> None:
        """Begin a look, also at whether those `watched` live, unless one is under way.

        `refusing`: servers that refuse connections.
        """
        if self._servers is None or self._looking is not None:
            return
        running = self._servers() or ()
        servers = {
            server.id: ServerProcesses(server.server, server.gpu_pids, server.kind, server.coreless, server.port)
            for server in running
        }
        self._looked_s = time.monotonic()
        order = LookOrder(
            servers=servers,
            known_origins=dict(self._origins),
            watched=list(watched),
            starting=[server.id for server in running if not server.listens],
            scanned=self._scanned_servers(running),
            refusing=frozenset(refusing),
        )
        self._looking = daemon_thread(look_at_processes, order, self._scan, self._restart_scan)

    def _scanned_servers(self, running: Iterable[RunningServer]) -> list[ProcessId]:
        """The servers whose trees are to be looked through in this look: all that serve, or none."""
        serving = [server.id for server in running if server.listens]
        has_new = any(not self._origins[key].parts for key in serving if key in self._origins)
        is_one_gone = PartState.GONE in self._states.values()
        pause_s = _SCAN_SOON_S if has_new or is_one_gone else _SCAN_S
        if not serving or self._looked_s - self._scanned_s < pause_s:
            return []
        self._scanned_s = self._looked_s
        return serving

    def is_due(self, now_s: float) -> bool:
        """Whether the newest look is old enough for another one."""
        return now_s - self._looked_s >= self._look_s

    async def finish(self, most_s: float) -> None:
        """Wait for the look that is under way."""
        if self._looking is not None:
            await finished(self._looking, most_s)

    def state(self, *, rebooted: bool) -> ProcessState:
        """The state of the engines' processes as known by now; `rebooted` is passed on to it."""
        if self._simulated is not None:
            return self._simulated()
        self._take_look()
        running = self._servers() if self._servers is not None else None
        servers: dict[str, EngineOrigin] = {}
        listening: set[str] = set()
        passing: set[str] = set()
        for server in running or ():
            servers[server.url] = self._origin(server)
            if server.listens:
                listening.add(server.url)
            if server.passing:
                passing.add(server.url)
        self._state = self._state._replace(
            servers=servers,
            listening=frozenset(listening),
            passing=frozenset(passing),
            ended=frozenset(key for key, state in self._states.items() if state is PartState.GONE),
            states=self._states,
            closed=self._closed,
            restarts=self._restarts,
            looks=running is not None,
            rebooted=rebooted,
            slept_s=time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic(),
        )
        return self._state

    def server_at(self, url: str) -> EngineOrigin:
        """The server that runs at a URL as of the last tick; an empty one where there is none."""
        return self._state.servers.get(url, NO_ORIGIN)

    def _origin(self, running: RunningServer) -> EngineOrigin:
        """Origin of a server; before the first look at it only its process."""
        origin = self._origins.get(running.id)
        if origin is not None:
            return origin
        return EngineOrigin(running.server.pid, running.server.started, running.gpu_pids)

    def _take_look(self) -> None:
        """Take over the results of the last look, once it is over."""
        if self._looking is None or not self._looking.done():
            return
        looking = self._looking
        self._looking = None
        if looking.exception() is not None:
            return
        look = looking.result()
        new_works = works(self._uses, look.uses)
        if new_works:
            self._state = self._state._replace(works=new_works)
        self._origins = look.origins
        self._states = look.states
        self._closed = look.closed
        self._restarts = look.restarts
        self._uses = look.uses
