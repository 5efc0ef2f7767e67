"""The processes on a host's GPUs, as `host.sh` tells of them, and the engines among them."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.readings.frame import GpuProcess
from gpumon.readings.text import clean
from gpumon.sources.discovery.command_line import Launch, launch
from gpumon.sources.discovery.shown_command import shown_command
from gpumon.sources.guest.smi import memory_bytes
from gpumon.sources.sockets import Listener, on_port, printed_listener

_ROOT: Final = 0
"""User id of root."""
_MOST_ANCESTORS: Final = 32
"""Ancestors of a process that are looked at: its list comes from outside, and may have a loop."""
_MOST_ENGINES: Final = 64
"""Engines of a host that are read, the lowest pids first."""
_MOST_APPS: Final = 1024
"""Entries of nvidia-smi's list that are read: `host.sh` sends no more."""
_MOST_LINE_CHARACTERS: Final = 16_384
"""Characters of a line that are read: `host.sh` sends 8192 bytes of a process's arguments."""
_MOST_ARGUMENT_CHARACTERS: Final = 512 << 10
"""Characters of the arguments of all processes of a look: what comes behind them has none. 64 of the longest command
lines, or 500 of the usual ones."""
_PID_DIGITS: Final = 9
"""Digits that are read of a pid: Linux has none above 4,194,304, and more digits would cost time to read."""
_UID_DIGITS: Final = 10
"""Digits of the largest user id, 4,294,967,294."""
_UNKNOWN_UID: Final = -1
"""Stands for a user id that the host did not tell."""
_SEPARATOR: Final = "\x1f"
"""Stands between arguments instead of the NUL of /proc/PID/cmdline."""
_LOOPBACK: Final = {4: "127.0.0.1", 6: "[::1]"}
"""Version of IP -> loopback, as a URL has it."""


class GuestProcess(NamedTuple):
    """A process of the host. Texts come from outside: clean them before showing."""

    pid: int
    parent: int
    uid: int
    """-1 where it is not known."""
    argv: tuple[str, ...]


class App(NamedTuple):
    """One process on one GPU, as nvidia-smi lists it."""

    pid: int
    uuid: str
    memory: str
    """Memory in MiB, or nvidia-smi's word for why there is none."""
    name: str


class StartedEngine(NamedTuple):
    """An engine that was started on the host: where its page is, and its GPUs."""

    launch: Launch
    pid: int
    url: str
    """Its URL as seen on that host; empty where it does not listen."""
    target: str
    """Host and port of the URL, as `HOST:PORT`."""
    uuids: tuple[str, ...]
    why: str = ""
    """Why there is no URL; empty where there is one."""


class GuestLook(NamedTuple):
    """One look at the processes of a host."""

    apps: tuple[App, ...]
    processes: dict[int, GuestProcess]
    listeners: tuple[Listener, ...]

    def by_uuid(self) -> dict[str, tuple[GpuProcess, ...]]:
        """UUID of a GPU -> the processes on it."""
        processes: dict[str, list[GpuProcess]] = {}
        commands = {
            pid: clean(shown_command(self.processes[pid].argv), 512)
            for pid in {app.pid for app in self.apps}
            if pid in self.processes and self.processes[pid].argv
        }
        for app in self.apps:
            shown = GpuProcess(
                pid=app.pid,
                name=clean(app.name.rpartition("/")[2], 60),
                vram_bytes=memory_bytes(app.memory),
                command=commands.get(app.pid, ""),
            )
            processes.setdefault(app.uuid, []).append(shown)
        return {uuid: tuple(on_gpu) for uuid, on_gpu in processes.items()}

    def servers(self) -> tuple[StartedEngine, ...]:
        """The engines that these processes work for, each once, the lowest pids first."""
        uuids: dict[int, list[str]] = {}
        launches: dict[int, tuple[GuestProcess, Launch]] = {}
        known: dict[int, Launch | None] = {}
        for app in self.apps:
            server = self._server_of(app.pid, known)
            if server is not None:
                process, _ = server
                launches[process.pid] = server
                uuids.setdefault(process.pid, []).append(app.uuid)
        servers = []
        for pid, (process, launched) in sorted(launches.items())[:_MOST_ENGINES]:
            engine_uuids = tuple(dict.fromkeys(uuids[pid]))
            servers.append(self._started_engine(process, launched, engine_uuids))
        return tuple(servers)

    def _server_of(self, pid: int, known: dict[int, Launch | None]) -> tuple[GuestProcess, Launch] | None:
        """The server that a process on a GPU works for; None where none is known.

        It is the outermost of the process and its ancestors that was started as a server, unless that only hands
        requests on to the innermost. `known`: what command lines that were read before start, by pid.
        """
        servers: list[tuple[GuestProcess, Launch]] = []
        process = self.processes.get(pid)
        for _ in range(_MOST_ANCESTORS):
            if process is None:
                break
            if process.pid not in known:
                known[process.pid] = launch(process.argv)
            launched = known[process.pid]
            if launched is not None and not launched.part and not launched.wrapper:
                servers.append((process, launched))
            process = self.processes.get(process.parent)
        if not servers:
            return None
        innermost = servers[0]
        outermost = servers[-1]
        _, innermost_launch = innermost
        _, outermost_launch = outermost
        if innermost_launch.kind in outermost_launch.servers_below:
            return innermost
        return outermost

    def _started_engine(self, process: GuestProcess, launched: Launch, uuids: tuple[str, ...]) -> StartedEngine:
        """The server with its URL, or why it has none.

        It has one if its port is open, and held by a process of the same user or of root (a proxy).
        """
        server = StartedEngine(launched, process.pid, "", "", uuids)
        if launched.why_no_page:
            return server._replace(why=launched.why_no_page)
        port = launched.port or launched.usual_port
        if not port:
            return server._replace(why="its command line names no port")
        listeners = on_port(self.listeners, port)
        own = [listener for listener in listeners if listener.uid in (process.uid, _ROOT)]
        if listeners and not own:
            return server._replace(why=f"port {port} is held by another user's process")
        if not own:
            return server._replace(why=f"port {port} is not open: it is loading, or in a container's own network")
        host = _address_to_reach(own)
        scheme = "https" if launched.secure else "http"
        return server._replace(url=f"{scheme}://{host}:{port}{launched.prefix}", target=f"{host}:{port}")


def parse_look(lines: Sequence[str]) -> GuestLook:
    """The look in an answer to the request `processes`; lines of other kinds, and what is beyond bounds, are left
    out."""
    apps: list[App] = []
    processes: dict[int, GuestProcess] = {}
    listeners: list[Listener] = []
    characters_left = _MOST_ARGUMENT_CHARACTERS
    for line in lines:
        kind, _, rest = line[:_MOST_LINE_CHARACTERS].partition(" ")
        if kind == "app" and len(apps) < _MOST_APPS:
            cells = [cell.strip() for cell in rest.split(",", 3)]
            if len(cells) == 4 and cells[0].isdecimal():
                apps.append(App(int(cells[0][:_PID_DIGITS]), clean(cells[1], 80), cells[2], cells[3]))
        elif kind == "process":
            process = _parse_process(rest)
            if process is not None:
                characters_left -= len(rest)
                argv = process.argv if characters_left > 0 else ()
                processes[process.pid] = process._replace(argv=argv)
        elif kind == "listens":
            try:
                listeners.append(printed_listener(rest))
            except (ValueError, IndexError):
                continue
    return GuestLook(tuple(apps), processes, tuple(listeners))


def _parse_process(text: str) -> GuestProcess | None:
    """The process of one line (pid, parent, user and arguments); None where the line is malformed."""
    words = text.split(" ", 3)
    if len(words) != 4:
        return None
    pid, parent, user, arguments = words
    if not pid.isdecimal() or not parent.isdecimal():
        return None
    uid = int(user[:_UID_DIGITS]) if user.isdecimal() else _UNKNOWN_UID
    argv: tuple[str, ...] = ()
    arguments = arguments.rstrip(_SEPARATOR)
    if arguments:
        argv = tuple(arguments.split(_SEPARATOR))
    return GuestProcess(int(pid[:_PID_DIGITS]), int(parent[:_PID_DIGITS]), uid, argv)


def _address_to_reach(listeners: Sequence[Listener]) -> str:
    """The address to connect to on that host: loopback where it listens there or everywhere, IPv4 first."""
    addresses = sorted(
        (listener.address for listener in listeners),
        key=lambda address: (not (address.is_loopback or address.is_unspecified), address.version),
    )
    address = addresses[0]
    if address.is_unspecified:
        return _LOOPBACK[address.version]
    if isinstance(address, ipaddress.IPv6Address):
        return f"[{address}]"
    return str(address)
