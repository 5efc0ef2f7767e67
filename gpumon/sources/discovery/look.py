"""One look: from the processes on the GPUs to their servers, and from there to the URLs of their pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Final

from gpumon.config import urls
from gpumon.readings.frame import EngineKind
from gpumon.sources.discovery.chain import Chain
from gpumon.sources.discovery.command_line import SECRETS, VARIABLES, Launch, launch
from gpumon.sources.discovery.namespaces import Published, published
from gpumon.sources.discovery.places import Places, Spot
from gpumon.sources.endpoint_url import parse_url
from gpumon.sources.family import FIRST, Family, Process, descendants, process, program, variables_of
from gpumon.sources.model_files import allowed, container_of, is_blob, ollama_name, reader_of, root_of
from gpumon.sources.offload import daemon_thread
from gpumon.sources.sockets import Locator, Place, reached

ASKED: Final = Launch(EngineKind.UNKNOWN, "a port of [discovery]", command="[discovery] ports")

SERVE_REPLICA: Final = "ray::ServeReplica"
THROUGH_RAY: Final = (
    "its engine was started through Ray by another server: add that server's URL as [[endpoint]], with gpus = [..]"
)

NAME_PATIENCE_S: Final = 0.5
"""How long a look waits for the name of a file: a store on a disk of this host answers in milliseconds."""

Found = tuple[Process, Launch]


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

    def _unless_configured(self, chains: Iterable[Chain]) -> list[Chain]:
        """The chains; one into a container is the config's too where the config has its published port."""
        seen = list(chains)
        if not self._configured or not any(chain.foreign and not chain.configured for chain in seen):
            return seen
        ports = published()
        return [chain._replace(configured=self._through(ports, chain)) if chain.foreign else chain for chain in seen]

    def _through(self, ports: Sequence[Published], chain: Chain) -> str:
        """The URL of the config that is a published port of this chain's container; else what was known before."""
        there = parse_url(chain.url)[2:4] if chain.url else ()
        here = {each.host_port for each in ports if (each.address, each.port) == there}
        for url in self._configured if not chain.configured else ():
            if parse_url(url).port in here and isinstance(self._place(url), Place):
                return url
        return chain.configured

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
    after = chain.index(worker) + 1
    return (chain[after] if after < len(chain) and _embeds(chain[after]) else worker), part


def _embeds(parent: Process) -> bool:
    """Whether a parent can be the program that an engine runs in, and not what started that program.

    Never the first process: it also adopts what a server leaves behind.
    """
    programs = (*parent.argv[:1], program(parent.pid))
    return parent.pid != FIRST and any("python" in path.rpartition("/")[2] for path in programs)


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
