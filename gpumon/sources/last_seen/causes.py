"""How an engine ended: its cause, as systemd, a runtime of containers, the kernel or its output tell it; no guesses.

The record of the end, and the commands that show its log and start it again, are here, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.readings.frame import FILE_LOG, Departure
from gpumon.readings.untrusted import Untrusted
from gpumon.sources.engine_log.places import open_kept
from gpumon.sources.last_seen.processes.origin import UNIT, oom_kills
from gpumon.sources.last_seen.records import SHOWN_AFTER_END_S, SHOWN_AFTER_STOP_S, EngineOrigin, KnownEngine
from gpumon.sources.reading_user import reader_with

_COMMAND_S: Final = 2.0
"""Seconds after which a command is ended: systemd and the runtimes of containers answer in milliseconds."""
PAUSES_S: Final = (0.2, 0.5, 1.0)
"""Pauses between tries: a runtime may learn of an end a moment after /proc shows it."""
MOST_OUTPUT_BYTES: Final = 1 << 20
"""Bytes of a program's output that are read."""
MOST_MESSAGES: Final = 20_000
"""Messages of the kernel that are looked through."""
KERNEL_BUFFER: Final = "/dev/kmsg"
"""Gives one message of the kernel with each read."""
TOGETHER_S: Final = 120.0
"""Seconds before an engine's last answer from which on kernel messages are looked through."""
_MOST_MESSAGE_BYTES: Final = 8192
"""Bytes of one message of the kernel that are read."""
_PROPERTIES: Final = (
    *("ActiveState", "SubState", "Result", "ExecMainPID", "ExecMainCode", "ExecMainStatus"),
    "ExecMainExitTimestampMonotonic",
)
_EXITED: Final = "1"
"""CLD_EXITED of waitid(2), as systemd's ExecMainCode."""
_KILLED: Final = frozenset({"2", "3"})
"""CLD_KILLED and CLD_DUMPED of waitid(2), as systemd's ExecMainCode."""
_ENDED_STATES: Final = frozenset({"inactive", "failed", "deactivating"})
"""ActiveState of a unit whose main process has ended or is being ended."""
_OOM: Final = re.compile(r"[Kk]illed process (\d+) ")
"""The kernel's words for a process that it killed for want of memory."""
_TAIL_BYTES: Final = 16_384
"""Bytes at the end of a server's output that are looked through: a traceback of vLLM has some 6,000."""
_STARTED: Final = re.compile(
    r"non-default args|Initializing an? (?:V1 )?LLM engine|Started server process|server_args=|build(?:_info)?: \d"
)
"""Words of a server that begins (vLLM, uvicorn, SGLang, llama-server): what stands before them in the same file is of
its start, or of another run."""
_TOLD: Final = re.compile(
    r"API server: shutdown triggered|EngineCore: trigger received signal=SIG(?:TERM|INT)"
    r"|Shutting down FastAPI HTTP server|SIGTERM received"
)
"""Words of a server that was told to end by a signal: vLLM, older vLLM, SGLang. What fails after them fails by that:
requests in flight lose their engine (`EngineDeadError`, with its stack), processes that stay are killed."""
_SHUT_DOWN: Final = re.compile(
    r"Application shutdown complete|Finished server process|Gracefully exiting|cleaning up before exit"
)
"""Words of a server that ends in order: uvicorn (vLLM, SGLang, TensorRT-LLM), SGLang's own, llama-server."""
_FAILED: Final = re.compile(
    r"Traceback|EngineDead|EngineCore (?:failed|encountered)|(?:died|exited) unexpectedly|CUDA error|OutOfMemory"
    r"|out of memory|sigquit|Killing",
    re.IGNORECASE,
)
"""Words of a server in which something failed."""
_CONTAINER: Final = re.compile(r"[0-9a-f]{12,64}")
_UNKNOWN_USER: Final = -1
"""User of an origin that an older gpumon has remembered."""
_TERM: Final = 128 + signal.SIGTERM
"""Exit code of a container whose process ended by the SIGTERM of `docker stop`."""
_KERNEL_LOG: Final = ("journalctl", "-k", "-q", "--no-pager", "-o", "cat", "-n", "5000", "-S")
_RUNTIMES: Final = ("docker", "podman")

RunProgram = Callable[[Sequence[str]], str]
"""Runs a command and returns its output, as `program_output` does."""
_IDLE_S: Final = 30.0
"""Seconds without a request before an end after which the end is taken for planned."""
_UNWATCHED_S: Final = 15.0
"""Longest time between the last answer and the end in which it is assumed that no request came."""
_MOST_COMMAND_CHARS: Final = 512
"""Characters of the command line that are kept in a departure."""


def cause_of(record: KnownEngine) -> Cause:
    """How the process of an engine ended. Blocks for a few seconds at most: for a thread."""
    for pause_s in (*PAUSES_S, 0.0):
        cause = look_up_cause(record, program_output)
        if cause.code or not (record.origin.unit or record.origin.container):
            return cause
        time.sleep(pause_s)
    return NO_CAUSE


def look_up_cause(record: KnownEngine, ask: RunProgram) -> Cause:
    """The cause of an engine's end, with `ask` to run the commands; `NO_CAUSE` where nothing tells it."""
    origin = record.origin
    cause = NO_CAUSE
    if origin.container:
        cause = cause_by_container(origin, ask)
    elif origin.unit:
        cause = cause_by_unit(origin, ask)
    if cause.code in ("oom", "stopped"):
        return cause
    # An OOM kill may look like any other SIGKILL to systemd and to runtimes: the kernel knows better.
    killed = cause_by_kernel_log(origin, record.served_wall_s, ask)
    if killed is not NO_CAUSE:
        return killed._replace(wall_s=cause.wall_s)
    if cause.code:
        return cause
    killed = cause_by_cgroup(origin)
    if killed is not NO_CAUSE:
        return killed
    return cause_by_output(origin)


def cause_by_unit(origin: EngineOrigin, ask: RunProgram) -> Cause:
    """The cause by the unit's state, as `systemctl show` reports it.

    See https://www.freedesktop.org/software/systemd/man/org.freedesktop.systemd1.html.
    """
    if not UNIT.fullmatch(origin.unit):
        return NO_CAUSE
    user = ("--user",) if origin.is_user_unit else ()
    text = ask(("systemctl", *user, "show", "-p", ",".join(_PROPERTIES), "--", origin.unit))
    properties = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    is_main = properties.get("ExecMainPID", "") == str(origin.pid)
    if not is_main and properties.get("ActiveState", "") not in _ENDED_STATES:
        # The unit goes on: this was a process in it.
        return NO_CAUSE
    return unit_cause(properties, f"systemd {origin.unit}")


def unit_cause(properties: Mapping[str, str], source: str) -> Cause:
    """The cause by the properties of a unit."""
    result = properties.get("Result", "")
    status = _small_number(properties.get("ExecMainStatus", ""))
    ended_wall_s = _ended_wall_s(properties.get("ExecMainExitTimestampMonotonic", ""))
    code = properties.get("ExecMainCode", "")
    if result == "oom-kill":
        return Cause("oom", 0, planned=False, source=source, wall_s=ended_wall_s)
    if result == "success":
        if code not in (_EXITED, *_KILLED):
            # It never ran.
            return NO_CAUSE
        return Cause("stopped", 0, planned=True, source=source, wall_s=ended_wall_s)
    if code in _KILLED:
        return Cause("signal", status, planned=False, source=source, wall_s=ended_wall_s)
    if code == _EXITED:
        return Cause("exit", status, planned=False, source=source, wall_s=ended_wall_s)
    return NO_CAUSE


def cause_by_container(origin: EngineOrigin, ask: RunProgram) -> Cause:
    """The cause by the container's state, as its runtime reports it."""
    if not _CONTAINER.fullmatch(origin.container):
        return NO_CAUSE
    for runtime in _RUNTIMES:
        text = ask((runtime, "inspect", "--format", "{{json .State}}", origin.container))
        with contextlib.suppress(msgspec.MsgspecError):
            state = msgspec.json.decode(text or "null", type=dict[str, Any])
            return container_cause(state, runtime)
    return NO_CAUSE


def container_cause(state: Mapping[str, Any], runtime: str) -> Cause:
    """The cause by the `State` of `docker inspect`."""
    number = state.get("ExitCode")
    if state.get("Running") or not isinstance(number, int):
        return NO_CAUSE
    ended_wall_s = 0.0
    with contextlib.suppress(ValueError, TypeError):
        # Nanoseconds are more digits than Python reads before 3.11.
        text = re.sub(r"(\.\d{6})\d+", r"\1", str(state.get("FinishedAt", ""))).replace("Z", "+00:00")
        ended_wall_s = max(0.0, datetime.fromisoformat(text).timestamp())
    if state.get("OOMKilled"):
        return Cause("oom", 0, planned=False, source=runtime, wall_s=ended_wall_s)
    if number in (0, _TERM):
        return Cause("stopped", number, planned=True, source=runtime, wall_s=ended_wall_s)
    return Cause("exit", number, planned=False, source=runtime, wall_s=ended_wall_s)


def cause_by_kernel_log(origin: EngineOrigin, served_wall_s: float, ask: RunProgram) -> Cause:
    """The cause by the kernel's log: whether the kernel killed one of its processes for want of memory."""
    pids = {str(pid) for pid in (origin.pid, *origin.gpu_pids) if pid}
    since = f"@{max(0.0, served_wall_s - TOGETHER_S):.0f}"
    text = kernel_messages(origin.started_s) or ask((*_KERNEL_LOG, since))
    if any(match in pids for match in _OOM.findall(text)):
        return Cause("oom", 0, planned=False, source="kernel log")
    return NO_CAUSE


def cause_by_cgroup(origin: EngineOrigin) -> Cause:
    """The cause by its cgroup: whether that counts a kill more than when the process lived."""
    kills = oom_kills(origin.cgroup)
    if 0 <= origin.oom_kills < kills:
        return Cause("oom", 0, planned=False, source="memory.events of its cgroup")
    return NO_CAUSE


def cause_by_output(origin: EngineOrigin) -> Cause:
    """The cause by the end of the file that its output went to: whether that says that it was told to end."""
    if not origin.output:
        return NO_CAUSE
    try:
        with open_kept(Path(origin.output), reader_with(origin.uid)) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL_BYTES))
            tail = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return NO_CAUSE
    if not was_told_to_end(tail):
        return NO_CAUSE
    return Cause("stopped", 0, planned=True, source="its log")


def was_told_to_end(output: str) -> bool:
    """Whether the output of a server that has ended says that it was told to: before anything failed, or it has shut
    down and nothing failed. One whose engine fails shuts down in the same words, after those of the failure."""
    last_run = _STARTED.split(output)[-1]
    told = _TOLD.search(last_run)
    failed = _FAILED.search(last_run)
    if told is not None and failed is not None:
        return told.start() < failed.start()
    return failed is None and (told is not None or _SHUT_DOWN.search(last_run) is not None)


def kernel_messages(since_boot_s: float) -> str:
    """Kernel messages from so many seconds after boot on; empty where this user may not read them."""
    try:
        buffer = os.open(KERNEL_BUFFER, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    lines: list[str] = []
    try:
        for _ in range(MOST_MESSAGES):
            try:
                message = os.read(buffer, _MOST_MESSAGE_BYTES).decode("utf-8", "replace")
            except BlockingIOError:
                break
            except OSError:
                continue  # overwritten meanwhile (EPIPE)
            # `priority,sequence,microseconds,flags;text` (Documentation/ABI/testing/dev-kmsg)
            fields = message.partition(";")[0].split(",")
            if len(fields) > 2 and fields[2].isdecimal() and int(fields[2]) / 1e6 >= since_boot_s:
                lines.append(message)
    finally:
        os.close(buffer)
    return "".join(lines)


def program_output(command: Sequence[str]) -> str:
    """Output of a program; empty where it is not installed, fails, or takes too long."""
    program = shutil.which(command[0])
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_COMMAND_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    if done.returncode == 0:
        return done.stdout[:MOST_OUTPUT_BYTES].decode("utf-8", "replace")
    return ""


def _small_number(text: str) -> int:
    """The number in a text; 0 where it is none, or too long for a status."""
    if text.isdecimal() and len(text) < 10:
        return int(text)
    return 0


def _ended_wall_s(monotonic_us: str) -> float:
    """Unix time of a moment on the kernel's monotonic clock in microseconds; 0: it is not told."""
    ended_us = int(monotonic_us) if monotonic_us.isdecimal() and len(monotonic_us) < 19 else 0
    if not ended_us:
        return 0.0
    return time.time() - (time.monotonic() - ended_us / 1e6)


class Cause(NamedTuple):
    """How a process ended, and who says so."""

    code: str = ""
    """Code of the cause, as in `Departure.cause`."""
    number: int = 0
    """Exit status or signal, by the code."""
    planned: bool = False
    """Whether somebody stopped it on purpose."""
    source: str = ""
    """Who says so, such as `systemd vllm.service`."""
    wall_s: float = 0.0
    """Unix time of the end; 0 where nobody tells."""


NO_CAUSE: Final = Cause()


def make_departure(record: KnownEngine, cause: Cause, noted_wall_s: float) -> Departure:
    """The end of an engine, with what is known of its cause; `noted_wall_s`: when it was noted (Unix time)."""
    origin = record.origin
    ended_wall_s = cause.wall_s if record.served_wall_s <= cause.wall_s <= noted_wall_s else noted_wall_s
    drained = record.closed_wall_s > 0.0
    # One that had closed its port and went on was asked to end, whatever its exit code says.
    was_asked = drained and cause.code != "oom"
    ended_idle = not cause.code and _was_idle(record, ended_wall_s)
    return Departure(
        wall_s=ended_wall_s,
        served_wall_s=record.served_wall_s,
        pid=origin.pid,
        cause=cause.code,
        number=cause.number,
        planned=cause.planned or was_asked or ended_idle,
        source=cause.source,
        unit=origin.unit,
        container=origin.container,
        command=command_of(origin),
        log=log_command(origin),
        start=start_command(origin),
        figures=record.figures,
        drained=drained,
    )


def _was_idle(record: KnownEngine, ended_wall_s: float) -> bool:
    """Whether nothing ran or waited in the time before its end, and that was seen."""
    if not record.tells_load or ended_wall_s - record.served_wall_s > _UNWATCHED_S:
        return False
    idle_since_s = max(record.busy_wall_s, record.begun_wall_s)
    return record.served_wall_s - idle_since_s >= _IDLE_S - _UNWATCHED_S and ended_wall_s - idle_since_s >= _IDLE_S


def log_command(origin: EngineOrigin) -> str:
    """The command that shows the end of its log; empty where none is known, or its name fits into no command."""
    if origin.output:
        return f"{FILE_LOG}{origin.output}"
    if origin.pod:
        option, name = _pod_words(origin)
        return f"kubectl logs{option} {name} --previous --tail=100" if name else ""
    container, unit, option = _container_and_unit(origin)
    if container:
        return f"docker logs --tail 100 {container}"
    if unit:
        return f"journalctl{option} -u {unit} -n 100"
    return ""


def command_of(origin: EngineOrigin) -> str:
    """The command that started it, to be typed again; without its folder and variables where they are not known.

    Empty for one of another user that is not whole, as it would not begin with that user, and for one that has been
    started in another file system.
    """
    if origin.relaunch:
        return origin.relaunch
    is_own = origin.uid in (os.geteuid(), _UNKNOWN_USER)
    return origin.command[:_MOST_COMMAND_CHARS] if is_own and not origin.runs_elsewhere else ""


def _pod_words(origin: EngineOrigin) -> tuple[str, str]:
    """The option with its pod's namespace, and its pod's name, as a command takes them; empty where one is none."""
    namespace, _, name = origin.pod.rpartition("/")
    space = Untrusted(namespace).of_form("name")
    if namespace and not space:
        return "", ""
    return f" -n {space}" if space else "", Untrusted(name).of_form("name")


def _container_and_unit(origin: EngineOrigin) -> tuple[str, str, str]:
    """Its container's id, its unit, and the option for a user's unit, as a command takes them."""
    container = Untrusted(origin.container[:12]).of_form("container")
    unit = "" if origin.container else Untrusted(origin.unit).of_form("name")
    return container, unit, " --user" if origin.is_user_unit else ""


def start_command(origin: EngineOrigin) -> str:
    """The command that starts it again; empty where none is known, and for pods, which Kubernetes starts itself."""
    if origin.pod:
        return ""
    container, unit, option = _container_and_unit(origin)
    if container:
        return f"docker start {container}"
    return f"systemctl{option} start {unit}" if unit else ""


def restart_command(origin: EngineOrigin) -> str:
    """The command that ends what runs of it and starts it again; empty where none is known."""
    if origin.pod:
        space, name = _pod_words(origin)
        return f"kubectl delete pod{space} {name}" if name else ""
    container, unit, option = _container_and_unit(origin)
    if container:
        return f"docker restart {container}"
    return f"systemctl{option} restart {unit}" if unit else ""


def unfreeze_command(origin: EngineOrigin) -> str:
    """The command that lets a frozen engine go on; empty where none is known."""
    container, unit, option = _container_and_unit(origin)
    if container:
        return f"docker unpause {container}"
    return f"systemctl{option} thaw {unit}" if unit else ""


def is_over(departure: Departure, wall_s: float) -> bool:
    """Whether an end is old enough to be forgotten; one that lies in the future was dated by a clock that was wrong."""
    shown_s = SHOWN_AFTER_STOP_S if departure.planned else SHOWN_AFTER_END_S
    return abs(wall_s - departure.wall_s) > shown_s
