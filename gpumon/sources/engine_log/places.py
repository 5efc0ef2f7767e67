"""The place of an engine's log: a file, the journal of its unit, its container's or its pod's log."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from gpumon.config.ownership import user_name
from gpumon.readings.text import clean
from gpumon.readings.untrusted import Untrusted
from gpumon.sources.checked_open import kernel_devices, open_file
from gpumon.sources.driver.names import CONTAINER
from gpumon.sources.engine_log.outputs import Output, behind_pipe, outputs_of
from gpumon.sources.family import read_process
from gpumon.sources.file_views import has_own_root, root_of
from gpumon.sources.last_seen.processes.origin import UNIT
from gpumon.sources.last_seen.processes.tree import has_ended
from gpumon.sources.last_seen.records import EngineOrigin
from gpumon.sources.reading_user import ReadingUser, reader_of, reader_with

LOGS: Final = Path("/var/log")
"""The folder in which the kubelet keeps logs of containers."""
MOST_LINES_AT_ONCE: Final = 2000
"""Lines that a command is asked for."""
_SHOWN_LINES: Final = 100
"""Lines that a command which is shown to the user asks for."""
_MOST_LINKS: Final = 4096
"""Links of the kubelet's folder that are looked through."""
_POD_FILE: Final = re.compile(r"pods/[\w.-]{1,253}_[\w.-]{1,253}_[0-9a-f-]{1,64}/[\w.-]{1,253}/\d{1,6}\.log")
_CONTAINER_ID: Final = re.compile(r"[0-9a-f]{64}")
_MOST_PATH_CHARACTERS: Final = 200
"""Characters of a path that are shown."""
_DOCKER_ID_CHARACTERS: Final = 12
"""Characters of a container's id that `docker ps` shows."""
_READ_PERMISSION: Final = 4
"""The bit of a file's mode, as `ReadingUser.may` takes it."""


class LogFile(NamedTuple):
    """A file that is read from its end."""

    words: str
    """Name of the log, as the user reads it: `file /var/log/vllm.log`."""
    open: Callable[[], BinaryIO]
    """Opens it for reading; raises OSError, with the reason in words."""
    command: str
    """Command by which the user can look at the log; empty where there is none."""
    form: str = ""
    """`kubelet` or `json`: how each line is wrapped; empty: not at all."""


class LogCommand(NamedTuple):
    """Commands that print its end; the first one that is installed and works counts."""

    words: str
    """As in `LogFile`."""
    alternatives: tuple[tuple[str, ...], ...]
    """Arguments of each command that gpumon runs, the program first."""
    command: str
    """The command for the user, as in `LogFile`."""
    form: str = ""
    """`stamped`: a time stands before each line; empty: nothing does."""


class NoLog(NamedTuple):
    """No log can be read here."""

    fault: str
    """Why none can be read."""
    command: str = ""
    """As in `LogFile`, like `words`: the user may be able to read what gpumon cannot."""
    words: str = ""


LogPlace = LogFile | LogCommand | NoLog


class LogAccessError(PermissionError):
    """A log may not be opened, or is none; its text says why."""


def places_of(origin: EngineOrigin, logs: Path = LOGS) -> tuple[LogPlace, ...]:
    """The places of a server's log, the likeliest first; one `NoLog` where there is none. Blocks: for a thread."""
    is_live = bool(origin.pid) and not has_ended(origin.id)
    outputs = outputs_of(origin.pid) if is_live else []
    files = [_live_file(origin, output) for output in outputs if output.is_file]
    if not is_live and origin.output:
        files.append(_kept_file(origin))
    if not files and not origin.container:
        files = _files_behind_pipes(origin, outputs)
    if files:
        return tuple(files)
    return (_managed_log(origin, outputs, logs, is_live=is_live),)


def _managed_log(origin: EngineOrigin, outputs: list[Output], logs: Path, *, is_live: bool) -> LogPlace:
    """The log of a server whose output goes to no file: its pod's, its container's or its unit's."""
    if origin.pod:
        return _pod_log(origin, logs, is_live=is_live)
    if origin.container:
        return _container_log(origin)
    if origin.unit and UNIT.fullmatch(origin.unit):
        return _unit_journal(origin)
    return NoLog(_why_no_log(origin, outputs, is_live=is_live))


def _files_behind_pipes(origin: EngineOrigin, outputs: Sequence[Output]) -> list[LogFile]:
    """The files that the readers of its pipes write, such as those of `tee`."""
    pipes = dict.fromkeys(output.target for output in outputs if stat.S_ISFIFO(output.mode))
    return [_live_file(origin, output) for pipe in pipes for output in behind_pipe(pipe) if output.is_file]


def _live_file(origin: EngineOrigin, output: Output) -> LogFile:
    """A file that a process has open: it is opened through that very descriptor, whatever its name leads to by now."""
    path = clean(output.target, _MOST_PATH_CHARACTERS)

    def open_live() -> BinaryIO:
        if has_ended(origin.id):
            raise LogAccessError("its process has ended")
        return open_descriptor(output)

    is_named_here = not output.target.endswith(" (deleted)")
    with contextlib.suppress(OSError):
        is_named_here = is_named_here and not has_own_root(output.pid)
    if not is_named_here:  # it has no name any more, or one in a container: the process has it open
        typed_path = f"/proc/{output.pid}/fd/{output.descriptor}"
    else:
        typed_path = output.target
    return LogFile(f"file {path}", open_live, _tail_command(typed_path))


def open_descriptor(output: Output) -> BinaryIO:
    """Open for reading what a process has open for writing, with the rights of that process's user.

    Only a regular file of a real file system. Raises OSError.
    """
    handle = os.open(f"/proc/{output.pid}/fd/{output.descriptor}", os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        _check_access(reader_of(output.pid), status, output.pid)
        descriptor = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(handle)
    return cast("BinaryIO", os.fdopen(descriptor, "rb", buffering=0))


def _check_access(reader: ReadingUser | None, status: os.stat_result, pid: int) -> None:
    """Raise LogAccessError for what is no regular file, or what the engine's user may not read."""
    kernels = kernel_devices(Path("/")) | kernel_devices(Path(root_of(pid)))
    # /proc and /sys have regular files, too: reading some of them changes something.
    if not stat.S_ISREG(status.st_mode) or status.st_dev in kernels:
        raise LogAccessError("is no regular file")
    if reader is not None and not reader.may(status, _READ_PERMISSION):
        raise LogAccessError(f"{reader.name} may not read it, so gpumon does not")


def _kept_file(origin: EngineOrigin) -> LogFile:
    """The file that a server wrote which has ended: opened with its user's rights, and only if no link stands there."""
    path = Path(origin.output)
    words = f"file {clean(origin.output, _MOST_PATH_CHARACTERS)}"
    return LogFile(words, lambda: open_kept(path, reader_with(origin.uid)), _tail_command(origin.output))


def open_kept(path: Path, reader: ReadingUser | None) -> BinaryIO:
    """Open a file by the name under which it was seen. A link on the way means that another one is meant now.

    `reader`: the user who must be allowed to read it; None: the user of gpumon. Raises OSError.
    """
    try:
        status = os.lstat(path)
    except OSError as error:
        raise LogAccessError(error.strerror or "cannot be opened") from error
    if stat.S_ISLNK(status.st_mode):
        raise LogAccessError("a link stands in its place")
    if not stat.S_ISREG(status.st_mode):
        raise LogAccessError("is no regular file")
    try:
        file = open_file(path, reader)
    except PermissionError as error:
        whose = reader.name if reader is not None else "this user"
        raise LogAccessError(f"{whose} may not read it, so gpumon does not") from error
    try:
        # `lstat` looked at the last name only: a folder above it may be a link.
        if Path(f"/proc/self/fd/{file.fileno()}").readlink() != path:
            raise LogAccessError("a link stands in its place")
    except BaseException:  # whatever it is, the file is not left open
        file.close()
        raise
    return file


def _pod_log(origin: EngineOrigin, logs: Path, *, is_live: bool) -> LogPlace:
    """The file of the kubelet where this user may read it; else the command, which gpumon does not run.

    It would need a login to the cluster.
    """
    namespace, _, name = origin.pod.rpartition("/")
    space = Untrusted(namespace).of_form("name")
    pod = Untrusted(name).of_form("name")
    command = ""
    if pod and bool(space) == bool(namespace):
        command = f"kubectl logs{f' -n {space}' if space else ''} {pod} --tail={_SHOWN_LINES}"
        if not is_live:
            command += " --previous"
    words = f"log of pod {clean(origin.pod)}"
    file = pod_file(origin.container, logs)
    if file is None:
        return NoLog("this user cannot read the pod's log in /var/log/pods", command, words)
    path, form = file
    return LogFile(words, lambda: open_kept(path, None), command, form)


def pod_file(container: str, logs: Path = LOGS) -> tuple[Path, str] | None:
    """The kubelet's file of a container's log, and how its lines are wrapped; None where there is none to be read."""
    if not _CONTAINER_ID.fullmatch(container):
        return None
    try:
        with os.scandir(logs / "containers") as entries:
            links = [entry.path for entry in islice(entries, _MOST_LINKS)]
    except OSError:
        return None
    for link in links:
        if not link.endswith(f"-{container}.log"):
            continue
        with contextlib.suppress(OSError):
            return _pod_file_at(Path(link).readlink(), container, logs)
    return None


def _pod_file_at(path: Path, container: str, logs: Path) -> tuple[Path, str] | None:
    """The file that the kubelet's link names: in the folder of pods, or Docker's own file of that container."""
    if not path.is_relative_to(logs) or not _POD_FILE.fullmatch(str(path.relative_to(logs))):
        return None
    form = "kubelet"
    if path.is_symlink():  # with Docker, the kubelet's file leads to Docker's own
        path = path.readlink()
        form = "json"
        if path != Path(f"/var/lib/docker/containers/{container}/{container}-json.log"):
            return None
    if os.access(path, os.R_OK):
        return (path, form)
    return None


def _container_log(origin: EngineOrigin) -> LogPlace:
    """The log of a container, by docker or podman."""
    if not CONTAINER.fullmatch(origin.container):
        return NoLog("it runs in a container whose id is not known")
    short_id = origin.container[:_DOCKER_ID_CHARACTERS]
    arguments = ("logs", "--timestamps", "--tail", str(MOST_LINES_AT_ONCE), origin.container)
    return LogCommand(
        words=f"log of container {short_id}",
        alternatives=(("docker", *arguments), ("podman", *arguments)),
        command=f"docker logs --tail {_SHOWN_LINES} {short_id}",
        form="stamped",
    )


def _unit_journal(origin: EngineOrigin) -> LogPlace:
    """The journal of a systemd unit."""
    program: tuple[str, ...] = ("journalctl", "--user") if origin.is_user_unit else ("journalctl",)
    unit = Untrusted(origin.unit).of_form("name")
    run = (*program, "-u", origin.unit, "-n", str(MOST_LINES_AT_ONCE), "-o", "cat", "--no-pager", "-q")
    return LogCommand(
        words=f"journal of {clean(origin.unit)}",
        alternatives=(run,),
        command=f"{' '.join(program)} -u {unit} -n {_SHOWN_LINES}" if unit else "",
    )


def _tail_command(path: str) -> str:
    """The command that shows the end of a file; empty where the path cannot be typed."""
    argument = Untrusted(path).of_form("argument")
    return f"tail -n {_SHOWN_LINES} {argument}" if argument else ""


def _why_no_log(origin: EngineOrigin, outputs: list[Output], *, is_live: bool) -> str:
    """Why no log can be read."""
    if not origin.pid:
        return "no process of this host is known that serves it"
    if not is_live:
        return "its process has ended, and where its output went is not known"
    if not outputs:
        server = read_process(origin.pid)
        whose = f"user {user_name(server.uid)}" if server is not None else "another user"
        return f"Linux hides from this user where the output of {whose}'s process {origin.pid} goes"
    return f"its output goes to {_target_words(outputs[0])}"


def _target_words(output: Output) -> str:
    """Words for the target of a descriptor that is no file with a name."""
    target = clean(output.target, _MOST_PATH_CHARACTERS)
    if target == "/dev/null":
        return "/dev/null: it is not kept"
    if target.startswith("/dev/"):
        return f"the terminal {target}: it is not kept"
    if stat.S_ISFIFO(output.mode):
        return f"a pipe ({target}), and no file is known behind it"
    return f"{target}, which is no file"
