"""How an engine ended: the cause, the record of it, and the commands that show its log and start it again."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.readings.frame import FILE_LOG, Departure
from gpumon.sources.last_seen.records import SHOWN_AFTER_END_S, SHOWN_AFTER_STOP_S, EngineOrigin, KnownEngine

_IDLE_S: Final = 30.0
"""Seconds without a request before an end after which the end is taken for planned."""
_UNWATCHED_S: Final = 15.0
"""Longest time between the last answer and the end in which it is assumed that no request came."""
_MOST_COMMAND_CHARS: Final = 512
"""Characters of the command line that are kept in a departure."""


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
    ended_wall_s = noted_wall_s
    if record.served_wall_s <= cause.wall_s <= noted_wall_s:
        ended_wall_s = cause.wall_s
    drained = record.closed_wall_s > 0.0
    return Departure(
        wall_s=ended_wall_s,
        served_wall_s=record.served_wall_s,
        pid=origin.pid,
        cause=cause.code,
        number=cause.number,
        # One that had closed its port and went on was asked to end, whatever its exit code says.
        planned=cause.planned or (drained and cause.code != "oom") or _ended_idle(record, cause, ended_wall_s),
        source=cause.source,
        unit=origin.unit,
        container=origin.container,
        command=origin.relaunch or origin.command[:_MOST_COMMAND_CHARS],
        log=log_command(origin),
        start=start_command(origin),
        figures=record.figures,
        drained=drained,
    )


def _ended_idle(record: KnownEngine, cause: Cause, ended_wall_s: float) -> bool:
    """Whether it ended for no known cause while it had nothing to do."""
    return not cause.code and _was_idle(record, ended_wall_s)


def _was_idle(record: KnownEngine, ended_wall_s: float) -> bool:
    """Whether nothing ran or waited in the time before its end, and that was seen."""
    if not record.tells_load or ended_wall_s - record.served_wall_s > _UNWATCHED_S:
        return False
    idle_since_s = max(record.busy_wall_s, record.begun_wall_s)
    return record.served_wall_s - idle_since_s >= _IDLE_S - _UNWATCHED_S and ended_wall_s - idle_since_s >= _IDLE_S


def log_command(origin: EngineOrigin) -> str:
    """The command that shows the end of its log; empty where none is known."""
    if origin.output:
        return f"{FILE_LOG}{origin.output}"
    if origin.pod:
        namespace, _, name = origin.pod.rpartition("/")
        option = f" -n {namespace}" if namespace else ""
        return f"kubectl logs{option} {name} --previous --tail=100"
    if origin.container:
        return f"docker logs --tail 100 {origin.container[:12]}"
    if origin.unit:
        option = " --user" if origin.is_user_unit else ""
        return f"journalctl{option} -u {origin.unit} -n 100"
    return ""


def start_command(origin: EngineOrigin) -> str:
    """The command that starts it again; empty where none is known, and for pods, which Kubernetes starts itself."""
    if origin.pod:
        return ""
    if origin.container:
        return f"docker start {origin.container[:12]}"
    if origin.unit:
        option = " --user" if origin.is_user_unit else ""
        return f"systemctl{option} start {origin.unit}"
    return ""


def restart_command(origin: EngineOrigin) -> str:
    """The command that ends what runs of it and starts it again; empty where none is known."""
    if origin.pod:
        namespace, _, name = origin.pod.rpartition("/")
        option = f" -n {namespace}" if namespace else ""
        return f"kubectl delete pod{option} {name}"
    if origin.container:
        return f"docker restart {origin.container[:12]}"
    if origin.unit:
        option = " --user" if origin.is_user_unit else ""
        return f"systemctl{option} restart {origin.unit}"
    return ""


def unfreeze_command(origin: EngineOrigin) -> str:
    """The command that lets a frozen engine go on; empty where none is known."""
    if origin.container:
        return f"docker unpause {origin.container[:12]}"
    if origin.unit:
        option = " --user" if origin.is_user_unit else ""
        return f"systemctl{option} thaw {origin.unit}"
    return ""


def is_over(departure: Departure, wall_s: float) -> bool:
    """Whether an end is old enough to be forgotten; one that lies in the future was dated by a clock that was wrong."""
    shown_s = SHOWN_AFTER_STOP_S if departure.planned else SHOWN_AFTER_END_S
    return abs(wall_s - departure.wall_s) > shown_s
