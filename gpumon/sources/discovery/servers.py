"""The server that a process on a GPU works for, by the command lines of the process and its ancestors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind
from gpumon.sources.discovery.command_line import LAUNCH_VARIABLES, SECRETS, Launch, launch, with_file
from gpumon.sources.discovery.options_file import options_in, read_options_file
from gpumon.sources.family import INIT_PID, ProcessRecord, descendants, executable_path, read_process, variables_of

SERVE_REPLICA: Final = "ray::ServeReplica"
THROUGH_RAY: Final = (
    "its engine was started through Ray by another server: add that server's URL as [[endpoint]], with gpus = [..]"
)


class EngineProcess(NamedTuple):
    """A process whose command line is that of an engine, or of a part of one."""

    process: ProcessRecord
    launch: Launch


def server_in(chain: Sequence[ProcessRecord]) -> EngineProcess | None:
    """The server that a process on a GPU works for, from its ancestors, itself first; None: no engine known.

    The outermost one that was started as a server; a wrapper only where there is no other. Where titles alone tell
    the engine, it runs inside another program: the parent of its outermost process.
    """
    servers: list[EngineProcess] = []
    parts: list[EngineProcess] = []
    engines = _engines_of(chain)
    for engine in engines:
        if engine.launch.part:
            parts.append(engine)
        elif not engine.launch.wrapper:
            servers.append(engine)
    if servers:
        return _outermost(servers)
    wrapper = _wrapper_of(engines, {part.launch.kind for part in parts})
    if wrapper is not None:
        return wrapper
    if not parts:
        return None
    worker = parts[-1]
    return EngineProcess(_program_around(worker.process, chain), worker.launch)


def _engines_of(chain: Sequence[ProcessRecord]) -> list[EngineProcess]:
    """The processes of the chain whose command lines are those of an engine."""
    launches = [(process, launch(process.argv)) for process in chain]
    return [EngineProcess(process, launched) for process, launched in launches if launched is not None]


def _outermost(servers: Sequence[EngineProcess]) -> EngineProcess:
    """The outermost server; the innermost one where the outermost starts engines of that kind as servers."""
    innermost = servers[0]
    outermost = servers[-1]
    starts_innermost = innermost.launch.kind in outermost.launch.servers_below
    return _with_settings(innermost if starts_innermost else outermost)


def _wrapper_of(engines: Sequence[EngineProcess], kinds: set[EngineKind]) -> EngineProcess | None:
    """The innermost wrapper; `kinds` are those of the engine's workers. None if no wrapper leads to a server.

    Ray's counts for workers of Ray alone.
    """
    for engine in engines:
        kind = engine.launch.kind
        if not engine.launch.wrapper or (kind is EngineKind.RAY and kind not in kinds):
            continue
        if kind is EngineKind.RAY and not _serves_through_ray(engine.process):
            return EngineProcess(engine.process, engine.launch._replace(why_no_page=THROUGH_RAY))
        return _with_settings(engine)
    return None


def _serves_through_ray(wrapper: ProcessRecord) -> bool:
    """Whether Ray Serve runs below it: a server outside Ray may have its workers there, too."""
    for pid in descendants(wrapper.pid):
        worker = read_process(pid)
        if worker is not None and "".join(worker.argv[:1]).startswith(SERVE_REPLICA):
            return True
    return False


def _program_around(worker: ProcessRecord, chain: Sequence[ProcessRecord]) -> ProcessRecord:
    """The Python program that the engine of this worker runs in; the worker itself if its parent is none.

    What started that program does not count; the first process adopts anything.
    """
    ancestors = chain[chain.index(worker) + 1 :]
    if not ancestors or ancestors[0].pid == INIT_PID:
        return worker
    parent = ancestors[0]
    for path in (*parent.argv[:1], executable_path(parent.pid)):
        if "python" in path.rpartition("/")[2]:
            return parent
    return worker


def _with_settings(server: EngineProcess) -> EngineProcess:
    """The server as its command line, the environment of its process and the file that it names tell it: the latter two
    as far as this user may read them."""
    process = server.process
    launched = server.launch
    variables = variables_of(process.pid, LAUNCH_VARIABLES)
    if variables is not None:
        for name in SECRETS & variables.keys():
            variables[name] = "set"  # that there is a key is all that counts
        launched = launch(process.argv, variables) or launched
    text = read_options_file((process.pid, process.started), launched.file) if launched.file else None
    if text is not None:
        launched = with_file(launched, process.argv, options_in(text))
    return EngineProcess(process, launched)
