"""Is an engine there at all: it has ended, is out of reach, was never seen, or starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from gpumon.efficiency.faults import is_free
from gpumon.readings.frame import (
    DRAINS_CONNECTIONS,
    DRAINS_SINCE,
    FILE_LOG,
    LAST_ANSWER,
    SCRAPED,
    START_CPU,
    START_PID,
    START_READ,
    START_VRAM,
    STARTS,
    Departure,
    EndpointState,
    GpuProcess,
    GpuState,
    PartsReport,
    Start,
)
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, number
from gpumon.readings.snapshot import Engine, Gpu, Snapshot
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters
from gpumon.triage.engine_state import listed_pids, pids_of, processes_of, vram_bytes_of, was_holder
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, yes_if
from gpumon.triage.progress.tokens import has_verdict
from gpumon.triage.replicas import replicas_of
from gpumon.triage.sentences import NO_ANSWER, READ_LAST_LOG, RESTART_WHOLE, VRAM_HELD
from gpumon.triage.signals import YES, Case
from gpumon.triage.templates import fill_template

_SINCE: Final = "since {down:minute}[ (answered last at {served:minute})], "
_ENDED: Final = (
    "[pid {pid}, ][{cause=signal}killed by signal {number:count}|{cause=exit}exit code {number:count}"
    "[ (signal {by_signal:count})]|{cause=oom}killed by the kernel, out of memory|{cause=reboot}its host restarted"
    "|{cause=stopped}stopped|{drained=yes}after it had closed its port and drained"
    "|{idle=yes}after 30 s without requests|cause unknown]"
    "[ ({source})]"
)
_RESTARTS_S: Final = 5.0
"""Seconds after it was seen in which an end of unknown cause is not called a crash: a clean restart of a small server
takes as long, and looks at the processes, which find the new one, are 2 s apart and slow on a busy host."""
_WATCHED_S: Final = 15.0
"""Longest time between the last answer and the end that is seen in which gpumon watched, if slowly. After a longer one
it only looks now (a choice): another process would be there by then, and is not waited for."""
_FOUND_LATE_S: Final = 60.0
"""Seconds after the last answer from which on an end is reported with both times: it was somewhere between."""
_GPU_PROCESSES: Final = "processes of its GPUs"
"""Source of what its processes on GPUs do."""
_SOURCES: Final = {"read": "/proc/PID/io", "vram": _GPU_PROCESSES, "cores": "/proc/PID/stat"}
"""Figure of a start -> where it is read."""
_LEFT_SHARE: Final = 0.5
"""Part of a GPU's memory in use, of that at the last answer, up to which an engine's processes are gone: weights and KV
cache are most of it where the engine has the GPU alone, and others on it are listed."""
_DRAIN_ENDS_S: Final = 60.0
"""Seconds after which an engine without a port, a connection or work on its GPUs should have ended: to free its memory
takes some."""
_LOST: Final = frozenset({EndpointState.TIMEOUT, EndpointState.DNS})
"""States of an engine whose host may be gone."""
_SIGNAL_CODES: Final = 128
"""A shell and a container's runtime tell signal N as exit code 128 + N."""


ENDED_FIGURE: Final = Quantity("ended", _ENDED)
PROCESS_ENDED: Final = Quantity("process_ended", "[pid {pid}|its process] is gone")
OFF_ITS_GPUS: Final = Quantity("off_its_gpus", "[{pids}|its processes] no longer on its GPUs")
LOAD_AT_END: Final = Quantity(
    "load_at_end",
    (
        "at its last answer: [{value:requests} running, {waiting:requests} waiting|{value:requests} "
        "running|{waiting:requests} waiting]"
    ),
)
REFUSES: Final = Quantity("refuses", "nothing listens there")
PORT_CLOSED: Final = Quantity("port_closed", "its port is closed for {value:lasted}, and its process lives")
OPEN_CONNECTIONS: Final = Quantity("open_connections", "{value:count} connections to it are open")
STARTING_READ: Final = Quantity("starting_read", "reads {value:bytes}/s from disk")
STARTING_VRAM: Final = Quantity("starting_vram", "its processes hold {value:gib} of VRAM")
STARTING_CORES: Final = Quantity("starting_cores", "{value:decimal} CPU cores busy")
_START_FIGURES: Final = {"read": STARTING_READ, "vram": STARTING_VRAM, "cores": STARTING_CORES}
"""Figure of a start -> its evidence."""
START_AGAIN: Final = Remedy(
    "start_again",
    (
        "[{left=yes}after the end of [{pids}|what is left of it]: |{unseen=yes}if it has ended: "
        "][{start} starts it again|start it again[: {command:command}]]"
    ),
)
CHECK_URL: Final = Remedy(
    "check_url",
    (
        "curl -sS {url}/metrics shows whether a server is there: start it, correct the URL, or take "
        "its [[endpoint]] out of the config"
    ),
)
CHECK_HOST: Final = Remedy(
    "check_host",
    ("[ping -c 3 {host} and ]curl -sS -m 5 {url}/health shows whether it answers; then read its log on its host"),
)

CRASHED: Final = Cause(
    "crashed",
    Limit.DOWN,
    _SINCE + _ENDED,
)
STOPPED: Final = Cause(
    "stopped",
    Limit.DOWN,
    _SINCE + _ENDED,
)
LOADING_WEIGHTS: Final = Cause(
    "loading_weights",
    Limit.STARTING,
    "loads its weights[: reads {read:bytes}/s from disk][, VRAM {vram:gib}]",
    level=Level.OK,
)
COMPILING: Final = Cause(
    "compiling",
    Limit.STARTING,
    "compiles kernels and graphs[: {cores:decimal} CPU cores busy][, VRAM {vram:gib}]",
    level=Level.OK,
)
STARTING: Final = Cause(
    "starting",
    Limit.STARTING,
    "its process[ (pid {pid})] runs and does not listen yet[, VRAM {vram:gib}]",
    level=Level.OK,
)

STARTS_DOING: Final[Mapping[str, Cause]] = {
    Start.LOADING_WEIGHTS.value: LOADING_WEIGHTS,
    Start.COMPILING.value: COMPILING,
    Start.STARTING.value: STARTING,
}
"""`Start` that a reading tells -> cause of the verdict."""


def departure_parameters(departure: Departure) -> Parameters:
    """Parameters of the sentence about an engine's end."""
    found_late = not departure.source and departure.wall_s - departure.served_wall_s > _FOUND_LATE_S
    by_signal = departure.cause == "exit" and departure.number > _SIGNAL_CODES
    parameters = params(down=departure.wall_s)
    if found_late and departure.served_wall_s:
        parameters |= params(served=departure.served_wall_s)
    if departure.pid:
        parameters |= params(pid=str(departure.pid))
    parameters |= params(cause=departure.cause, number=float(departure.number))
    if by_signal:
        parameters |= params(by_signal=float(departure.number - _SIGNAL_CODES))
    if departure.drained:
        parameters |= params(drained=YES)
    elif departure.planned and not departure.cause:
        parameters |= params(idle=YES)
    return parameters | params(source=departure.source)


def ended_text(departure: Departure) -> str:
    """How an engine ended, without the time: `pid 4121, killed by signal 9 (systemd vllm.service)`."""
    return fill_template(_ENDED, departure_parameters(departure))


def down(case: Case) -> Finding | None:
    """Rule: an engine served, and its process has ended: by a crash, or because somebody stopped it."""
    engine = case.engine
    if engine is None or engine.state is not EndpointState.DOWN or not engine.departure:
        return None
    departure = engine.departure[0]
    if _may_be_restarting(case, departure):
        return None
    parameters = departure_parameters(departure)
    began_s = case.now_s - max(0.0, case.frame.wall_s - departure.wall_s)
    processes_left = _processes_left(case, engine)
    # Started again after the end of what is left of it, and only if it has ended where nobody can tell.
    left = processes_left or ()
    is_unseen = processes_left is None and not departure.pid
    start = START_AGAIN.action(
        start=departure.start,
        command=departure.command,
        pids=pids_of(left),
        left=yes_if(left),
        unseen=yes_if(is_unseen),
    )
    answered_s = max(0.0, case.frame.wall_s - departure.served_wall_s)
    evidence = (
        NO_ANSWER.evidence(answered_s, source=engine.url),
        *_evidence_of_processes(case, departure, processes_left),
        *_evidence_of_load(departure),
    )
    if departure.planned:
        return STOPPED.finding(
            parameters=parameters,
            evidence=evidence,
            actions=(start,),
            level=Level.WARN,
            began_s=began_s,
        )
    if departure.log.startswith(FILE_LOG):
        read_log = READ_LAST_LOG.action(ended=YES, file=departure.log.removeprefix(FILE_LOG))
    else:
        read_log = READ_LAST_LOG.action(ended=YES, log=departure.log)
    return CRASHED.finding(
        parameters=parameters,
        evidence=evidence,
        actions=(read_log, start),
        level=level_beside_replicas(case, engine),
        began_s=began_s,
    )


def _may_be_restarting(case: Case, departure: Departure) -> bool:
    """Whether it ended so short a time ago, for no known cause, that another process may be about to take its place."""
    if departure.planned or departure.cause or not departure.pid:
        return False
    if departure.wall_s - departure.served_wall_s >= _WATCHED_S:
        return False
    return case.frame.wall_s - departure.wall_s < _RESTARTS_S


def engines_just_ended(snapshot: Snapshot) -> Iterator[Engine]:
    """Engines whose process has ended, and of which no verdict says it yet: they may be restarting."""
    for engine in snapshot.engines:
        if engine.state is EndpointState.DOWN and not has_verdict(snapshot, engine):
            yield engine


def _processes_left(case: Case, engine: Engine) -> list[GpuProcess] | None:
    """The processes of its last answer that are still on a GPU; None where nobody can tell.

    That is so where a GPU that they were on does not list its processes, or a process serves other engines, too.
    """
    if not case.recent.holders:
        return None
    left = {}
    for gpu in case.snapshot.gpus:
        for process in gpu.reading.processes:
            if not was_holder(case, process):
                continue
            if process.engine not in ("", engine.name):
                return None
            left[process.pid] = process
    if not left and not _have_left(case):
        return None
    return list(left.values())


def _have_left(case: Case) -> bool:
    """Whether each GPU that its processes were on tells that they are gone, not only that it lists none."""
    gpus = {gpu.reading.uuid: gpu for gpu in case.snapshot.gpus}
    types = {holder.type for holder in case.recent.holders.values()}
    for uuid, held_bytes in case.recent.held_bytes.items():
        gpu = gpus.get(uuid)
        if gpu is None or gpu.reading.state is not GpuState.OK:
            return False
        # A list that the driver does not give is empty, too: others in it, or memory that is free, say that it is read.
        is_listed = any(process.type in types for process in gpu.reading.processes)
        if not is_listed and not _is_freed(gpu, held_bytes):
            return False
    return True


def _is_freed(gpu: Gpu, held_bytes: float | None) -> bool:
    """Whether much of the memory that was in use on a GPU is free now."""
    used_bytes = number(gpu.reading.vram_used_bytes)
    return used_bytes is not None and held_bytes is not None and used_bytes <= _LEFT_SHARE * held_bytes


def _evidence_of_processes(
    case: Case, departure: Departure, processes_left: Sequence[GpuProcess] | None
) -> Iterator[Evidence]:
    """Whether its processes are gone or still there, as far as that is known."""
    if departure.pid:
        yield PROCESS_ENDED.evidence(source="/proc", parameters=params(pid=str(departure.pid)))
    if processes_left:
        held: Reading = NOT_EXPOSED
        vram_bytes = vram_bytes_of(processes_left)
        if vram_bytes is not None:
            held = vram_bytes
        yield VRAM_HELD.evidence(held, source=_GPU_PROCESSES, parameters=params(pids=pids_of(processes_left)))
    elif processes_left is not None and not departure.pid:
        pids = listed_pids(sorted(case.recent.holders))
        yield OFF_ITS_GPUS.evidence(source=_GPU_PROCESSES, parameters=params(pids=pids))


def _evidence_of_load(departure: Departure) -> Iterator[Evidence]:
    """The requests that it had at its last answer, as far as that told them."""
    running = departure.figures.running
    waiting = number(departure.figures.waiting)
    if not isinstance(running, Missing) or waiting is not None:
        yield LOAD_AT_END.evidence(running, parameters=params(waiting=waiting))


def level_beside_replicas(case: Case, engine: Engine) -> Level:
    """Critical, unless other replicas of its model serve and nobody waits for them."""
    others = [replica for replica, _ in replicas_of(case, engine) if replica.key != engine.key]
    if others and not any(case.suffers(replica) for replica in others):
        return Level.WARN
    return Level.CRITICAL


ENGINE_ENDED: Final = Cause(
    "engine_ended",
    Limit.IDLE,
    "nothing runs on it: its engine {engine} went down at {down:minute}",
    level=Level.NOTE,
)


def gpu_left(case: Case) -> Finding | None:
    """Rule: a GPU is free because the engine on it has ended; the engine's verdict holds the actions."""
    reading = case.gpu_reading
    ended = [engine for engine in case.engines if engine.departure]
    if reading is None or not ended or len(ended) < len(case.engines) or not is_free(reading):
        return None
    departure = ended[0].departure[0]
    began_s = case.now_s - max(0.0, case.frame.wall_s - departure.wall_s)
    parameters = params(engine=ended[0].name, down=departure.wall_s)
    evidence = (ENDED_FIGURE.evidence(NOT_EXPOSED, parameters=departure_parameters(departure)),)
    return ENGINE_ENDED.finding(
        parameters=parameters,
        evidence=evidence,
        began_s=began_s,
    )


UNREACHABLE: Final = Cause(
    "unreachable",
    Limit.UNRESPONSIVE,
    "no answer for {seconds:lasted}: it, its host or the network to it (no process of it is known here)",
    confidence=Confidence.MEDIUM,
)


def unreachable(case: Case) -> Finding | None:
    """Rule: an engine served, and now nothing comes back; no process of it is known on this host."""
    engine = case.engine
    reading = case.reading
    if engine is None or reading is None or case.recent.holders or not _is_out_of_reach(engine):
        return None
    if processes_of(case, engine):
        return None  # it is here, and silent: `engine_state.mute`
    served = reading.info.get(LAST_ANSWER, "")
    if not served:
        return None
    seconds = max(0.0, case.frame.wall_s - float(served))
    if seconds < case.thresholds.silent_s:
        return None
    evidence = (NO_ANSWER.evidence(seconds, limit=case.thresholds.silent_s, source=engine.url),)
    return UNREACHABLE.finding(
        parameters=params(seconds=seconds, served=float(served)),
        evidence=evidence,
        actions=(CHECK_HOST.action(host=urlsplit(engine.url).hostname or "", url=engine.url),),
        level=level_beside_replicas(case, engine),
        began_s=case.now_s - seconds,
    )


def _is_out_of_reach(engine: Engine) -> bool:
    """Whether nothing comes back from it; of one that a Prometheus scrapes it is only known that it does not answer."""
    if engine.found_by == SCRAPED:
        return engine.state is EndpointState.REFUSED
    return engine.state in _LOST


NEVER_SERVED: Final = Cause(
    "never_served",
    Limit.DOWN,
    "nothing listens at its URL, and it was never seen serving",
)


def never_served(case: Case) -> Finding | None:
    """Rule: nothing listens at a URL of the config, and no engine was ever seen there."""
    engine = case.engine
    reading = case.reading
    if engine is None or reading is None or engine.state is not EndpointState.REFUSED:
        return None
    if engine.found_by != "config" or LAST_ANSWER in reading.info or reading.ranks:
        return None
    return NEVER_SERVED.finding(
        parameters={},
        evidence=(REFUSES.evidence(source=engine.url),),
        actions=(CHECK_URL.action(url=engine.url),),
    )


def starting(case: Case) -> Finding | None:
    """Rule: an engine's process runs and does not listen yet: what it does, by what it reads, takes and computes."""
    engine = case.engine
    reading = case.reading
    if engine is None or reading is None or engine.state is not EndpointState.STARTING:
        return None
    doing = reading.info.get(STARTS, "")
    if doing not in STARTS_DOING:
        return None
    if doing == Start.COMPILING.value and engine.options.is_on("eager"):
        doing = Start.STARTING.value  # its cores are busy with something else
    parameters = starting_parameters(reading.info)
    evidence = tuple(
        _START_FIGURES[name].evidence(value, source=_SOURCES[name])
        for name, value in parameters.items()
        if isinstance(value, float)
    )
    return STARTS_DOING[doing].finding(parameters=parameters, evidence=evidence)


DRAINING: Final = Cause(
    "draining",
    Limit.DRAINING,
    (
        "draining: takes no new requests, [{open=yes}{connections:count} connections are still "
        "open|nothing is connected any more]"
    ),
    level=Level.NOTE,
)
DRAIN_HANGS: Final = Cause(
    "drain_hangs",
    Limit.UNRESPONSIVE,
    (
        "its port has been closed for {seconds:lasted}, and it has not ended: nothing is "
        "connected[{rests=yes}, and its GPUs rest]"
    ),
    confidence=Confidence.MEDIUM,
)


def draining(case: Case) -> Finding | None:
    """Rule: an engine has closed its port and its process goes on: it is being stopped, and ends what runs."""
    engine = case.engine
    reading = case.reading
    if engine is None or reading is None or engine.state is not EndpointState.DRAINING:
        return None
    seconds = max(0.0, case.frame.wall_s - float(reading.info.get(DRAINS_SINCE, "0")))
    connections = float(reading.info.get(DRAINS_CONNECTIONS, "0"))
    parameters = params(seconds=seconds, connections=connections, open=yes_if(connections))
    evidence = (
        PORT_CLOSED.evidence(seconds, source=engine.url),
        OPEN_CONNECTIONS.evidence(connections, source="/proc/PID/net/tcp"),
    )
    began_s = case.now_s - seconds
    busy = case.activity().busy
    is_busy = busy is not None and busy > case.thresholds.stalled_busy_ratio
    if connections or is_busy or seconds < _DRAIN_ENDS_S:
        return DRAINING.finding(
            parameters=parameters,
            evidence=evidence,
            began_s=began_s,
        )
    return DRAIN_HANGS.finding(
        parameters=parameters | params(rests=yes_if(busy is not None)),
        evidence=evidence,
        actions=(_end_and_start(reading.parts),),
        level=Level.WARN if busy is None else Level.CRITICAL,
        began_s=began_s,
    )


def _end_and_start(report: PartsReport | None) -> Action:
    """End what is left of an engine, and start it anew."""
    if report is None:
        return RESTART_WHOLE.action()
    kill = " ".join(str(part.pid) for part in report.parts)
    return RESTART_WHOLE.action(restart=report.restart, command=report.command, kill=kill)


def starting_parameters(info: Mapping[str, str]) -> Parameters:
    """Parameters of the sentence about a start, as far as they are known."""
    parameters: Parameters = params(pid=info.get(START_PID, ""))
    for name, key in (("read", START_READ), ("vram", START_VRAM), ("cores", START_CPU)):
        if key in info:
            parameters[name] = float(info[key])
    return parameters


def starting_text(info: Mapping[str, str]) -> str:
    """Sentence about a starting server: `loads its weights: reads 1.2 GB/s from disk, VRAM 14 GiB`."""
    return fill_template(STARTS_DOING[info[STARTS]].words, starting_parameters(info))
