"""The server that a process on a GPU works for, by the command lines of the process and its ancestors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.readings.frame import EngineKind
from gpumon.sources.discovery.command_line import LAUNCH_VARIABLES, SECRETS, Launch, launch, with_file
from gpumon.sources.discovery.options_file import options_in, read_options_file
from gpumon.sources.family import INIT_PID, ProcessRecord, descendants, executable_path, read_process, variables_of

SERVE_REPLICA: Final = "ray::ServeReplica"
THROUGH_RAY: Final = (
    "its engine was started through Ray by another server: add that server's URL as [[endpoint]], with gpus = [..]"
)
FoundEngine = tuple[ProcessRecord, Launch]
"""A process, and its command line as that of an engine."""


def server_in(chain: Sequence[ProcessRecord]) -> FoundEngine | None:
    """The server that a process on a GPU works for, from its ancestors, itself first; None: no engine known.

    The outermost one that was started as a server; a wrapper only where there is no other. Where titles alone tell
    the engine, it runs inside another program: the parent of its outermost process.
    """
    servers: list[FoundEngine] = []
    parts: list[FoundEngine] = []
    launches = _launches(chain)
    for process, launched in launches:
        if launched.part:
            parts.append((process, launched))
        elif not launched.wrapper:
            servers.append((process, launched))
    if servers:
        return _outermost(servers)
    wrapper = _wrapper_of(launches, {launched.kind for _, launched in parts})
    if wrapper is not None:
        return wrapper
    if not parts:
        return None
    worker, launched = parts[-1]
    return _program_around(worker, chain), launched


def _launches(chain: Sequence[ProcessRecord]) -> list[FoundEngine]:
    """The processes of the chain whose command lines are those of an engine."""
    launches = [(process, launch(process.argv)) for process in chain]
    return [(process, launched) for process, launched in launches if launched is not None]


def _outermost(servers: Sequence[FoundEngine]) -> FoundEngine:
    """The outermost server; the innermost one where the outermost starts engines of that kind as servers."""
    server, launched = servers[-1]
    _, innermost = servers[0]
    if innermost.kind in launched.servers_below:
        server, launched = servers[0]
    return server, _with_variables(server, launched)


def _wrapper_of(launches: Sequence[FoundEngine], kinds: set[EngineKind]) -> FoundEngine | None:
    """The innermost wrapper; `kinds` are those of the engine's workers. None if no wrapper leads to a server.

    Ray's counts for workers of Ray alone.
    """
    for wrapper, launched in launches:
        if not launched.wrapper:
            continue
        if launched.kind is not EngineKind.RAY:
            return wrapper, _with_variables(wrapper, launched)
        if launched.kind not in kinds:
            continue
        if _serves_through_ray(wrapper):
            return wrapper, _with_variables(wrapper, launched)
        return wrapper, launched._replace(why_no_page=THROUGH_RAY)
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


def _with_variables(server: ProcessRecord, launched: Launch) -> Launch:
    """The launch as the command line and the environment of the process tell it, if Linux shows the latter."""
    variables = variables_of(server.pid, LAUNCH_VARIABLES)
    if variables is None:
        return _with_file(server, launched)
    for name in SECRETS & variables.keys():
        variables[name] = "set"  # that there is a key is all that counts
    return _with_file(server, launch(server.argv, variables) or launched)


def _with_file(server: ProcessRecord, launched: Launch) -> Launch:
    """The launch with the options of the file that it names, if this user may read it."""
    if not launched.file:
        return launched
    text = read_options_file((server.pid, server.started), launched.file)
    if text is None:
        return launched
    return with_file(launched, server.argv, options_in(text))
