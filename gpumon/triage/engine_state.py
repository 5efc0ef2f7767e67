"""Is an engine broken: it does not answer, restarts again and again, or runs on GPUs that are broken."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.service import FRONTENDS
from gpumon.readings.frame import EndpointState, GpuProcess, GpuState, Phase
from gpumon.readings.missing import NOT_EXPOSED, Reading, number
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.readings.verdict import Action, Confidence, Family, Level, Limit, Parameters, Verdict
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, yes_if
from gpumon.triage.marks import GPU_DEGRADED
from gpumon.triage.progress.tokens import SUSPECTED_S, without_tokens_s
from gpumon.triage.progress.work import WorkKind, gpu_work
from gpumon.triage.samples import KEPT_S, Recent, holder_of
from gpumon.triage.sentences import CLOCK, LAST_END, NO_ANSWER, READ_LAST_LOG, STARTS, VRAM_HELD
from gpumon.triage.signals import NOW_S, TOKEN_TOTALS, YES, Case, finite

_MOST_NAMED: Final = 4
"""Pids that a sentence has."""
_SILENT: Final = frozenset({EndpointState.TIMEOUT, EndpointState.REFUSED})
BROKEN: Final = frozenset({GpuState.LOST, GpuState.MUTE, GpuState.RESET_REQUIRED})
"""States of a GPU on which nothing new can run."""
_READINGS_LATE: Final = 2.0
"""Readings of a GPU from the last one in which it was whole until the last token before it broke is read, at most."""
LINK_FAULTS: Final = frozenset({"pcie_slow", "nvlinks_down", "link_errors"})
"""Causes of verdicts on a GPU that slow down what it exchanges with others: an engine on one GPU hardly feels them."""
_LEAST_GPUS_OF_GROUP: Final = 2
_MUTE_TIMES: Final = 2.0
"""Times `silent_s` for which an engine that gpumon never saw answer must be silent: it may have just begun."""
_STEADY: Final = 0.9
"""Part of the memory that stays in use while an engine hangs; one that loads its model fills it meanwhile."""


RESTARTS: Final = Quantity("restarts", "{value:count} restarts in {seconds:lasting}")
SAVE_STACKS_AND_RESTART: Final = Remedy(
    "save_stacks_and_restart",
    (
        "[{otherwise=yes}else ]save its log[ ({log=journal}journalctl _PID={pid}, or where its "
        "output goes)| ({log} logs {container})] and the stacks[ of {pids}] (py-spy dump[ --pid "
        "{pid}]), look for Xid and NCCL errors, then restart it"
    ),
)

WAIT_OR_CHECK: Final = Remedy(
    "wait_or_check",
    (
        "[py-spy dump --pid {pid}|py-spy dump of its process] and its log[ ({log=journal}journalctl "
        "-f _PID={pid})| ({log} logs {container})] show what it does[{paused=yes}; continue it where "
        "it was paused|{late=yes}; restart it only if its stacks do not change|{silent=yes}; wait up to "
        "{seconds:count} s: a giant prompt, an adapter being loaded or a profile being written may "
        "hold its server up|; wait up to {seconds:count} s for compiles, weight updates, KV transfers]"
    ),
)

UNRESPONSIVE: Final = Cause(
    "unresponsive",
    Limit.UNRESPONSIVE,
    (
        "[{how=refuses}refuses connections|does not answer] for {seconds:lasted} while its processes "
        "hold [{vram_bytes:gib}|their GPU]"
    ),
    level=Level.CRITICAL,
    confidence=Confidence.MEDIUM,
)
RESTART_LOOP: Final = Cause(
    "restart_loop",
    Limit.UNRESPONSIVE,
    "crash loop[: each start ended after about {length:lasting}]" + LAST_END + STARTS,
)
DEGRADED: Final = Cause(
    GPU_DEGRADED,
    Limit.HARDWARE_FAULT,
    (
        "its {gpu} {fault:fault}[ ({xid:xid})][ ({link})][, at "
        + CLOCK
        + "][{waits=for_it}: its other GPUs wait for [{gpus}|it]]"
    ),
)


def unresponsive(case: Case) -> Finding | None:
    """Rule: an engine does not answer, and the processes of before still hold their GPU: nobody restarted it."""
    engine = case.engine
    if engine is None or engine.kind in FRONTENDS or engine.state not in _SILENT:
        return None
    seconds = finite(engine.age_s)
    if seconds is None or seconds < case.thresholds.silent_s:
        return None
    processes = _remaining_processes(case)
    if not processes or _was_started_anew(case, min(seconds, KEPT_S)):
        return None
    vram_bytes = vram_bytes_of(processes)
    held: Reading = vram_bytes if vram_bytes is not None else NOT_EXPOSED
    pids = params(pids=pids_of(processes))
    work = gpu_work(case, NOW_S)
    evidence = (
        NO_ANSWER.evidence(seconds, limit=case.thresholds.silent_s, source=engine.url),
        VRAM_HELD.evidence(held, source="processes of its GPUs", parameters=pids),
        *work.evidence,
    )
    how = "refuses" if engine.state is EndpointState.REFUSED else "silent"
    parameters = params(seconds=seconds, how=how, vram_bytes=vram_bytes)
    return UNRESPONSIVE.finding(
        parameters=parameters,
        evidence=evidence,
        actions=(_check_or_restart(case, processes, seconds, work.work),),
        began_s=case.now_s - seconds,
    )


NEVER_ANSWERED: Final = Cause(
    "never_answered",
    Limit.UNRESPONSIVE,
    (
        "has not answered since gpumon came, {seconds:lasted} by now, while its processes hold "
        "[{vram_bytes:gib}|their GPU]"
    ),
    level=Level.CRITICAL,
    confidence=Confidence.MEDIUM,
)


def mute(case: Case) -> Finding | None:
    """Rule: an engine has given no answer since gpumon came, and its processes are on their GPUs all the time."""
    engine = case.engine
    if engine is None or engine.kind in FRONTENDS or engine.state is not EndpointState.TIMEOUT or case.recent.holders:
        return None
    seconds = finite(engine.age_s)
    processes = processes_of(case, engine)
    least_s = _MUTE_TIMES * case.thresholds.silent_s
    if seconds is None or seconds < least_s or not processes or _was_started_anew(case, min(seconds, KEPT_S)):
        return None
    vram_bytes = vram_bytes_of(processes)
    held: Reading = NOT_EXPOSED if vram_bytes is None else vram_bytes
    work = gpu_work(case, NOW_S)
    return NEVER_ANSWERED.finding(
        parameters=params(seconds=seconds, vram_bytes=vram_bytes),
        evidence=(
            NO_ANSWER.evidence(seconds, limit=least_s, source=engine.url),
            VRAM_HELD.evidence(held, source="processes of its GPUs", parameters=params(pids=pids_of(processes))),
            *work.evidence,
        ),
        actions=(_check_or_restart(case, processes, seconds, work.work),),
        began_s=case.now_s - seconds,
    )


def _check_or_restart(case: Case, processes: Sequence[GpuProcess], seconds: float, work: WorkKind) -> Action:
    """Look at what an engine does that has given no answer for so long; restart it after `hung_s`.

    Before, and where nothing tells what its GPUs do, it may be at work: the process that answers is on no GPU, so that
    neither these nor the processes on them show whether it rests.
    """
    is_late = seconds >= case.thresholds.hung_s
    if not is_late or work is WorkKind.UNKNOWN:
        return wait_or_check(case, processes, is_silent=True, is_late=is_late)
    return look_and_restart(processes)


def _remaining_processes(case: Case) -> list[GpuProcess]:
    """The processes that held its GPUs when it answered last; none where one of them has ended."""
    on_gpus = [process for gpu in case.gpus for process in gpu.reading.processes]
    running = {process.pid: process for process in on_gpus if was_holder(case, process)}
    if len(running) < len(case.recent.holders):
        return []
    return list(running.values())


def was_holder(case: Case, process: GpuProcess) -> bool:
    """Whether a process on a GPU is one of those that the engine had when it answered last."""
    holder = case.recent.holders.get(process.pid)
    if holder is None:
        return False
    return holder.is_same(holder_of(process, case.frame.wall_s - case.frame.monotonic_s))


def vram_bytes_of(processes: Sequence[GpuProcess]) -> float | None:
    """Memory that the processes hold together; None where the driver tells of none."""
    total = finite(sum(number(process.vram_bytes) or 0.0 for process in processes))
    return total or None


def _was_started_anew(case: Case, seconds: float) -> bool:
    """Whether its GPUs work, or their memory came or went in the last seconds: it loads its model."""
    activity = case.activity()
    is_busy = (activity.busy or 0.0) > case.thresholds.stalled_busy_ratio
    if is_busy and (activity.dram is None or activity.dram > 0.0):
        return True
    for gpu in case.gpus:
        recent = case.recents.get(gpu.reading.uuid)
        if recent is None or not _is_steady(recent, seconds):
            return True
    return False


def _is_steady(recent: Recent, seconds: float) -> bool:
    """Whether the memory in use of a GPU is known, and hardly moved in the last seconds."""
    used = [value for _, value in recent.values("vram_used_bytes", seconds)]
    return bool(used) and min(used) >= _STEADY * max(used)


def restarting(case: Case) -> Finding | None:
    """Rule: an engine's process ends and begins anew again and again, and loses requests each time."""
    engine = case.engine
    ages_s = case.restart_ages_s
    if engine is None or engine.kind in FRONTENDS or len(ages_s) < case.thresholds.restarts:
        return None
    if any(departure.planned for departure in engine.departure):
        return None
    times = float(len(ages_s))
    newest_wall_s = case.frame.wall_s - min(ages_s)
    parameters = params(times=times, seconds=max(ages_s), newest=newest_wall_s, restarts=YES)
    evidence = (RESTARTS.evidence(times, limit=case.thresholds.restarts, source=engine.url, parameters=parameters),)
    has_replica = any(other.model == engine.model and other.key != engine.key for other in case.snapshot.engines)
    level = Level.WARN if has_replica else Level.CRITICAL
    return RESTART_LOOP.finding(
        parameters=parameters,
        evidence=evidence,
        actions=(READ_LAST_LOG.action(),),
        level=level,
        began_s=case.now_s - max(ages_s),
    )


def ended_again(case: Case) -> Finding | None:
    """Rule: the restart loop of an engine that is down once more: that says more than this end alone."""
    if case.engine is None or not case.engine.departure:
        return None
    return restarting(case)


def degraded(case: Case) -> Finding | None:
    """Rule: an engine answers on a GPU that is broken or whose clocks are held down, by that GPU's verdict."""
    engine = case.engine
    if engine is None or engine.kind in FRONTENDS or engine.state is not EndpointState.OK:
        return None
    faults = _gpu_faults(case)
    if not faults:
        return None
    order = list(Limit)
    worst = min(faults, key=lambda fault: (fault.verdict.level is not Level.CRITICAL, order.index(fault.verdict.code)))
    parameters = _fault_parameters(case, worst, number_of_faults=len(faults))
    parameters |= _wait_parameters(case, engine, worst, faults)
    level = Level.CRITICAL if worst.verdict.level is Level.CRITICAL and case.suffers(engine) else Level.WARN
    return DEGRADED.finding(
        limit=worst.verdict.code,
        parameters=parameters,
        evidence=worst.verdict.evidence,
        actions=worst.verdict.actions,
        level=level,
        confidence=worst.verdict.confidence,
    )


class _GpuFault(NamedTuple):
    """A GPU that is broken or slow, with the verdict that says so."""

    gpu: Gpu
    verdict: Verdict


def _wait_parameters(case: Case, engine: Engine, worst: _GpuFault, faults: Sequence[_GpuFault]) -> Parameters:
    """Parameters that say that its other GPUs wait for those which are broken, or for the only one that is slow."""
    broken = broken_gpus(case)
    if broken:
        quiet_s = without_tokens_s(case)
        if quiet_s is None or quiet_s < SUSPECTED_S or not is_broken_waited_for(case, engine, broken, TOKEN_TOTALS):
            return {}
        if broken != [worst.gpu]:
            return params(waits="for_it", gpus=gpu_names(broken))
        return params(waits="for_it")
    is_only_one = len({fault.gpu.reading.uuid for fault in faults}) == 1
    is_slow = worst.verdict.code is Limit.THROTTLED
    if is_only_one and is_slow and _is_one_group(case, engine):
        return params(waits="for_it")
    return {}


def broken_gpus(case: Case) -> list[Gpu]:
    """Its GPUs on which nothing can run."""
    return [gpu for gpu in case.gpus if gpu.reading.state in BROKEN]


def gpu_names(gpus: Sequence[Gpu]) -> str:
    """Names of GPUs as `peers_waited_for` reads them: `gpu 0 and gpu 1`."""
    return " and ".join(f"gpu {gpu.reading.index}" for gpu in gpus)


def is_broken_waited_for(case: Case, engine: Engine, broken: Sequence[Gpu], totals: tuple[str, ...]) -> bool:
    """Whether the engine's other GPUs wait for the broken ones: they are of one group, and none of these counters has
    moved since the last of them broke. A GPU may be lost for the driver alone, and go on to compute."""
    unmoved_s = case.unmoved_s(totals)
    if unmoved_s is None or len(broken) == len(case.gpus) or not _is_one_group(case, engine):
        return False
    moved_s = case.now_s - unmoved_s
    # The GPU broke after its last whole reading, and the last token before that is read a little later.
    late_s = _READINGS_LATE * case.frame.interval_s
    if case.reading is not None:
        late_s += case.reading.interval_s
    for gpu in broken:
        recent = case.recents.get(gpu.reading.uuid)
        if recent is not None and math.isfinite(recent.whole_s) and moved_s > recent.whole_s + late_s:
            return False
    return True


def _is_one_group(case: Case, engine: Engine) -> bool:
    """Whether its GPUs end each layer or step together: one tensor-parallel group, or a training run. Data-parallel
    ranks of a server do not wait for each other."""
    if engine.phase is Phase.TRAINING:
        return len(case.gpus) > 1
    return engine.hardware.tp == len(case.gpus) > 1


def _fault_parameters(case: Case, worst: _GpuFault, *, number_of_faults: int) -> Parameters:
    """Parameters of the sentence on an engine's worst GPU, with the figures that its own verdict has."""
    parameters = params(
        gpu=f"gpu {worst.gpu.reading.index}",
        fault=worst.verdict.cause,
        of=float(len(case.gpus)),
        bad=float(number_of_faults),
    )
    for name in ("clock_hz", "clock_max_hz", "xid", "link"):
        if name in worst.verdict.parameters:
            parameters[name] = worst.verdict.parameters[name]
    return parameters


def _gpu_faults(case: Case) -> list[_GpuFault]:
    """The faults of the engine's GPUs, each with its verdict."""
    faults = []
    for gpu in case.gpus:
        for verdict in case.standing.get(gpu.reading.uuid, ()):
            if _is_bad(verdict) and not (verdict.cause in LINK_FAULTS and len(case.gpus) < _LEAST_GPUS_OF_GROUP):
                faults.append(_GpuFault(gpu, verdict))
    return faults


def _is_bad(verdict: Verdict) -> bool:
    """Whether a verdict on a GPU means that it is broken or slow right now."""
    return verdict.family is Family.STATE and verdict.level in (Level.CRITICAL, Level.WARN) and not verdict.until


def processes_of(case: Case, engine: Engine) -> list[GpuProcess]:
    """Its processes on its GPUs."""
    return list(processes_on_gpus(engine, case.gpus).values())


def processes_on_gpus(engine: Engine, gpus: Sequence[Gpu]) -> dict[int, GpuProcess]:
    """Pid -> process of an engine on these GPUs; where it has them alone, whatever runs there."""
    on_gpus = [process for gpu in gpus for process in gpu.reading.processes]
    by_pid = {process.pid: process for process in on_gpus if process.engine == engine.name}
    if by_pid or not all(gpu.engines in ((), (engine.name,)) for gpu in gpus):
        return by_pid
    return {process.pid: process for process in on_gpus if not process.engine}


def busiest_cpu(processes: Iterable[GpuProcess]) -> float | None:
    """CPU of the busiest of these processes or of what it started, where 1 is one core.

    A compiler works in a child while the engine's own process sleeps. None where it is not known of all of them.
    """
    busiest: float | None = None
    for process in processes:
        own = finite(process.cpu_ratio)
        if own is None:
            return None
        children = finite(process.children_cpu_ratio) or 0.0
        busiest = max(busiest or 0.0, own, children)
    return busiest


def pids_of(processes: Sequence[GpuProcess]) -> str:
    """Pids of the first ones, for a sentence: `pid 4711, 4712 and 6 more`; empty where there is none."""
    return listed_pids([process.pid for process in processes])


def listed_pids(pids: Sequence[int]) -> str:
    """The first of these pids, as `pids_of` lists them."""
    if not pids:
        return ""
    shown = ", ".join(map(str, pids[:_MOST_NAMED]))
    more = f" and {len(pids) - _MOST_NAMED} more" if len(pids) > _MOST_NAMED else ""
    return f"pid {shown}{more}"


def log_of(process: GpuProcess | None) -> str:
    """Who keeps the log of a process: `journal`, `docker` or `crictl`; empty where there is no process."""
    if process is None:
        return ""
    if not process.container:
        return "journal"
    if process.pod:
        return "crictl"
    return "docker"


def wait_or_check(
    case: Case,
    processes: Sequence[GpuProcess],
    *,
    is_paused: bool = False,
    is_silent: bool = False,
    is_late: bool = False,
) -> Action:
    """The action to wait, or to look at what an engine does: the stacks of its first process, and its log.

    `is_paused`: somebody holds its requests; `is_silent`: its server gives no answer; `is_late`: it has taken longer
    than a compile or a load does.
    """
    parameters = params(
        seconds=case.thresholds.hung_s, paused=yes_if(is_paused), silent=yes_if(is_silent), late=yes_if(is_late)
    )
    return WAIT_OR_CHECK.action(**parameters, **_where_to_look(processes))


def look_and_restart(processes: Sequence[GpuProcess]) -> Action:
    """Save what tells of the hang, then restart; the log is where the process's cgroup says."""
    return SAVE_STACKS_AND_RESTART.action(**_where_to_look(processes))


def _where_to_look(processes: Sequence[GpuProcess]) -> Parameters:
    """Parameters that name the processes, and where the first one writes its log; empty where there is none."""
    if not processes:
        return {}
    first = processes[0]
    return params(pids=pids_of(processes), pid=str(first.pid), log=log_of(first), container=first.container[:12])
