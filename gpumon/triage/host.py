"""Is the host the limit? Its cores, disks and memory; and GPUs that wait for it in a rhythm with requests pending."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.ratio import mean_known
from gpumon.readings.frame import EngineKind, GpuProcess, Phase
from gpumon.readings.missing import number
from gpumon.readings.process_words import name_processes, program_text, program_title
from gpumon.readings.snapshot import Gpu
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Confidence, Evidence, Kind, Level, Limit, Parameters, Signal, Team
from gpumon.specs.units import GIB
from gpumon.triage.advice import advice
from gpumon.triage.engine_state import processes_of
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, unsure, yes_if
from gpumon.triage.kv_transfer import ROLE
from gpumon.triage.onset import rise_in_hour, wall_s
from gpumon.triage.replicas import with_replica_comparison
from gpumon.triage.samples import Recent
from gpumon.triage.sentences import (
    BUSY,
    BUSY_DROPS,
    FIND_READER,
    LESS_HOST_MEMORY,
    MORE_FRONT_ENDS,
    PROFILE_STEPS,
    SAMPLE_RATE,
    TOKEN_RATE,
)
from gpumon.triage.signals import MINUTE_S, YES, Case, finite, gpu_chart
from gpumon.triage.thresholds import Thresholds

CPU_PRESSURE: Final = Quantity("cpu_pressure", "tasks wait for a core {value:percent} of the time, mean of 60 s")
CPU: Final = Quantity("cpu", "CPU {value:percent} of all cores, mean of 60 s")
BUSIEST_CORE: Final = Quantity("busiest_core", "busiest core {value:percent}, mean of 60 s")
_WINDOW_S: Final = 120.0
"""Seconds in which a rhythm is looked for."""
_LEAST_S: Final = 30.0
"""Seconds of samples without which there is no rhythm; samples of 1 s show periods of 4 s and more."""
LEAST_SAMPLES: Final = 15
"""Samples without which there is no rhythm, where they come more seldom."""
NEARLY_ALWAYS_BUSY: Final = 0.9
"""Mean busy share above which drops cost next to nothing."""
_SCHEDULER_IDLE: Final = 0.05
"""Share of a minute without requests up to which a scheduler was at work all the time."""
_FORWARD: Final = 0.6
"""Share of a minute in steps up to which GPUs wait for a scheduler at work: with overlap they compute 90% and more."""
FULL_LEFT_BYTES: Final = GIB
"""Bytes left at which a host of any size is full."""
MOST_CONSUMERS: Final = 3
"""Processes that are named as those that fill the cores."""
_LEAST_CORES: Final = 0.5
"""Cores that a process on a GPU uses at least to be named as one that fills them."""
_ROSE_TIMES: Final = 1.25
"""Times its share of before from which on a figure of the host has risen."""
_ROSE_SHARE: Final = 0.25
"""Share by which it has to rise to be named."""
SPINNER: Final = re.compile(r"\bsglang\b", re.IGNORECASE)
"""Processes of an engine whose scheduler keeps a core at 100% while it is idle (sglang#9863)."""


SCHEDULER_IDLE: Final = Quantity(
    "scheduler_idle", "its scheduler was without requests {value:percent} of the time", field="scheduler_idle_ratio"
)
FORWARD: Final = Quantity(
    "forward", "its GPUs computed steps {value:percent} of the time, by its own clock", field="forward_ratio"
)
RUNNING_ALWAYS: Final = Quantity(
    "running_always", "{value:requests} to {most:requests} requests ran at all times", field="running"
)
PROCESSES: Final = Quantity("processes", "on it: {processes}")
CPU_PROCESS: Final = Quantity("cpu_process", "{process} uses {value:cores}")
IOWAIT: Final = Quantity("iowait", "iowait {value:percent} of all cores, mean of 60 s")
IO_PRESSURE: Final = Quantity("io_pressure", "tasks wait for a disk {value:percent} of the time, mean of 60 s")
DISK_BUSY: Final = Quantity("disk_busy", "busiest disk {value:percent} busy, mean of 60 s")
NETWORK_RECEIVED: Final = Quantity("network_received", "receives {value:bytes}/s, mean of 60 s")
HOST_MEMORY: Final = Quantity("host_memory", "memory {value:percent}: {left:gib} left")
MEMORY_PRESSURE: Final = Quantity("memory_pressure", "tasks wait for memory {value:percent} of the time, mean of 60 s")
PROFILE_PROCESS: Final = Remedy(
    "profile_process", "py-spy dump --pid {pid}[{parent=yes} (and of its parent)] shows what it does"
)
TRAINING_DISK: Final = Remedy(
    "training_disk",
    (
        "training data from disk: put it on local NVMe, in larger files (shards), raise num_workers "
        "and prefetch_factor, save checkpoints in the background"
    ),
    team=Team.OWNER,
)
TRAINING_CPU: Final = Remedy(
    "training_cpu",
    (
        "data loading is CPU-bound: prepare (tokenise, decode, augment) ahead of time or on the GPU; "
        "num_workers up to the free cores, persistent_workers=True, prefetch_factor=4, "
        "pin_memory=True with non_blocking copies"
    ),
    team=Team.OWNER,
)
TRAINING_CORE: Final = Remedy(
    "training_core",
    (
        "one thread feeds the GPUs: DataLoader(num_workers > 0, prefetch_factor=4, "
        "persistent_workers=True, pin_memory=True)"
    ),
    team=Team.OWNER,
)
TRAINING_NETWORK: Final = Remedy(
    "training_network",
    ("training data over the network: copy it to local NVMe first, or raise num_workers and prefetch_factor"),
    team=Team.OWNER,
)
SERVING_DISK: Final = Remedy(
    "serving_disk",
    ("something reads or writes a disk: KV offload, model swapping, logs; iotop -o names it; move it to NVMe"),
    team=Team.HOST,
)
SERVING_CPU: Final = Remedy(
    "serving_cpu",
    ("give the server cores of its own: move other jobs away, pin it (taskset, numactl), raise its CPU limit"),
    team=Team.HOST,
)
SERVING_CORE: Final = Remedy(
    "serving_core", "find the thread that takes a whole core (top -H): it may hold the requests back"
)
SERVING_NETWORK: Final = Remedy("serving_network", "the network feeds it: check who receives (nethogs)", team=Team.HOST)
FREE_CORES: Final = Remedy(
    "free_cores",
    (
        "[{gpus=yes}CPU work for the GPUs is delayed: ]move other jobs away, fewer workers than "
        "cores, pin the engine (taskset)"
    ),
    team=Team.HOST,
)
RAISE_CGROUP_LIMIT: Final = Remedy(
    "raise_cgroup_limit",
    (
        "systemd-cgtop -m shows which is at its limit, its memory.events counts how often; raise it "
        "(docker update --memory, resources.limits.memory, MemoryMax=)"
    ),
    team=Team.HOST,
)

WAITS_FOR_HOST: Final = Cause(
    "waits_for_host",
    Limit.HOST_CPU,
    (
        "[busy drops every {period:seconds} from {upper:percent} to {lower:percent}|busy "
        "{busy:percent}] with {pending} pending: waits for {part:host_part}[; {process} uses "
        "{cores:cores}]"
    ),
)


class _HostFigure(NamedTuple):
    """A figure of the host that may be the limit."""

    quantity: Quantity
    field: str
    """Sampled field of `Host`."""
    threshold: str
    """Field of `Thresholds`."""
    source: str
    chart: str
    """Series of its chart; empty where it has none."""


_FIGURES: Final = (
    _HostFigure(CPU, field="cpu_ratio", threshold="cpu_high_ratio", source="/proc/stat", chart="cpu@host"),
    _HostFigure(
        BUSIEST_CORE, field="busiest_core_ratio", threshold="core_high_ratio", source="/proc/stat", chart="core@host"
    ),
    _HostFigure(
        CPU_PRESSURE,
        field="cpu_pressure_ratio",
        threshold="cpu_pressure_ratio",
        source="/proc/pressure/cpu",
        chart="",
    ),
    _HostFigure(IOWAIT, field="iowait_ratio", threshold="iowait_high_ratio", source="/proc/stat", chart="iowait@host"),
    _HostFigure(
        IO_PRESSURE,
        field="io_pressure_ratio",
        threshold="io_pressure_ratio",
        source="/proc/pressure/io",
        chart="io@host",
    ),
    _HostFigure(
        DISK_BUSY, field="disk_busy_ratio", threshold="disk_busy_ratio", source="/proc/diskstats", chart="disk@host"
    ),
    _HostFigure(
        NETWORK_RECEIVED,
        field="network_rx_bytes_per_s",
        threshold="network_bytes_per_s",
        source="/proc/net/dev",
        chart="net@host",
    ),
)


_TRAINING_FIXES: Final = {
    "disk": TRAINING_DISK,
    "cpu": TRAINING_CPU,
    "core": TRAINING_CORE,
    "network": TRAINING_NETWORK,
}
"""Part of the host -> what makes a training run wait less for it."""
_SERVING_FIXES: Final = {
    "disk": SERVING_DISK,
    "cpu": SERVING_CPU,
    "core": SERVING_CORE,
    "network": SERVING_NETWORK,
}
"""Part of the host -> what makes a server wait less for it."""


class _HostLimit(NamedTuple):
    """A figure that makes a part of the host the limit."""

    code: Limit
    quantity: Quantity
    part: str
    """Part of the host, by which the action goes."""
    confidence: Confidence


_HOST_LIMITS: Final = (
    _HostLimit(Limit.HOST_DISK, quantity=IO_PRESSURE, part="disk", confidence=Confidence.HIGH),
    _HostLimit(Limit.HOST_DISK, quantity=IOWAIT, part="disk", confidence=Confidence.HIGH),
    _HostLimit(Limit.HOST_CPU, quantity=CPU, part="cpu", confidence=Confidence.HIGH),
    _HostLimit(Limit.HOST_CPU, quantity=CPU_PRESSURE, part="cpu", confidence=Confidence.MEDIUM),
    _HostLimit(Limit.HOST_DISK, quantity=DISK_BUSY, part="disk", confidence=Confidence.MEDIUM),
    # Which core is not known: it may be another program's, so that it is never more than a hint.
    _HostLimit(Limit.HOST_CPU, quantity=BUSIEST_CORE, part="core", confidence=Confidence.LOW),
    _HostLimit(Limit.HOST_NETWORK, quantity=NETWORK_RECEIVED, part="network", confidence=Confidence.LOW),
)
"""The most telling first."""


class Rhythm(NamedTuple):
    """Drops of a busy share that come at even distances."""

    period_s: float
    drops: int
    upper: float
    """Busy share that it reaches between the drops (9th decile)."""
    lower: float
    """Its mean in the drops."""

    @property
    def parameters(self) -> Parameters:
        """The rhythm as parameters of a sentence."""
        return params(period=self.period_s, upper=self.upper, lower=self.lower)

    def add_to(self, evidence: Evidence) -> Evidence:
        """Evidence of the busy share, with the rhythm."""
        return msgspec.structs.replace(evidence, parameters=evidence.parameters | self.parameters)


def rhythm_in(samples: Sequence[tuple[float, float]], limits: Thresholds) -> Rhythm | None:
    """The rhythm of (s, busy share) samples, oldest first: at least some drops below half of the upper level, evenly
    spaced, the last of them not long ago."""
    values = sorted([value for _, value in samples])
    if len(values) < LEAST_SAMPLES:
        return None
    upper = values[int(0.9 * (len(values) - 1))]  # 9th decile
    if upper < limits.starved_upper_ratio or values[0] >= upper / 2.0:
        return None
    drops = times_of_drops(samples, upper / 2.0)
    if len(drops) < max(2.0, limits.starved_drops):
        return None
    gaps = [after - before for before, after in pairwise(drops)]
    period_s = fmean(gaps)
    deviation_s = math.sqrt(fmean([(gap - period_s) ** 2 for gap in gaps]))
    newest_s, _ = samples[-1]
    if deviation_s > limits.starved_regular_ratio * period_s or newest_s - drops[-1] > 2.0 * period_s:
        return None
    lower_values = values[: bisect_left(values, upper / 2.0)]
    return Rhythm(period_s, drops=len(drops), upper=upper, lower=fmean(lower_values))


def times_of_drops(samples: Sequence[tuple[float, float]], half: float) -> list[float]:
    """Times at which the busy share fell below half of its upper level."""
    return [now_s for (_, before), (now_s, now) in pairwise(samples) if before >= half > now]


def rhythm_of(case: Case) -> Rhythm | None:
    """The rhythm in which its GPUs are busy: of the first GPU with a busy share, as a step takes all of them."""
    for gpu in case.gpus:
        recent = case.recents[gpu.reading.uuid]
        if recent.last("busy_ratio") is not None:
            return rhythm_in(recent.values("busy_ratio", _WINDOW_S), case.thresholds)
    return None


def even_drops(case: Case) -> Finding | None:
    """Rule: an engine's GPUs that wait for their host in a rhythm.

    Asked before the rules on queues, as queues and waits come of it; `input_starved` is asked after them, and finds
    GPUs that wait without a rhythm, too.
    """
    waits = waits_of_gpus(case)
    if waits is None or waits.rhythm is None:
        return None
    finding = finding_on_waits(case, waits)
    if finding is None or finding.code is Limit.UNKNOWN:
        return None
    return finding


def input_starved(case: Case) -> Finding | None:
    """Rule: GPUs that wait for their host with requests or steps pending."""
    waits = waits_of_gpus(case)
    if waits is None:
        return None
    # Without a rhythm a GPU that is merely used little looks the same, unless an engine's requests are pending on it.
    if waits.rhythm is None and (case.kind is Kind.GPU or waits.busy >= case.thresholds.starved_busy_ratio):
        return None
    return finding_on_waits(case, waits)


SCHEDULER_BOUND: Final = Cause(
    "scheduler_bound",
    Limit.HOST_CPU,
    (
        "its GPUs compute steps {forward:percent} of the time, while its scheduler is without "
        "requests only {idle:percent} of it: the scheduler's own work holds them back"
    ),
    confidence=Confidence.MEDIUM,
)


def scheduler_bound(case: Case) -> Finding | None:
    """Rule: the scheduler of an engine always has requests, and its GPUs do not always have a step: by its own
    clocks."""
    engine = case.serving_engine()
    if engine is None or ROLE in case.info or case.found_limits:
        return None
    idle = finite(engine.load.scheduler_idle_ratio)
    forward = finite(engine.load.forward_ratio)
    if idle is None or not forward or idle > _SCHEDULER_IDLE or forward > _FORWARD or case.after_stall():
        return None
    late = case.late_latencies()
    level = Level.WARN if late else Level.NOTE
    evidence = (
        case.evidence(FORWARD, forward, limit=_FORWARD),
        case.evidence(SCHEDULER_IDLE, idle, limit=_SCHEDULER_IDLE),
    )
    return SCHEDULER_BOUND.finding(
        parameters=params(forward=forward, idle=idle),
        evidence=(*evidence, *late),
        actions=(SERVING_CPU.action(), profile_action(case)),
        level=level,
    )


class Waits(NamedTuple):
    """GPUs that are not busy all the time though there is work."""

    busy: float
    """Their mean busy share."""
    pending: Evidence
    """Proof that there was work all the time."""
    rhythm: Rhythm | None
    """The rhythm in which they wait, if there is one."""


def waits_of_gpus(case: Case) -> Waits | None:
    """The waits of the GPUs; None where they hardly wait, or have no work."""
    busy = _busy_with_waits(case)
    if busy is None:
        return None
    pending = _pending_work(case)
    if pending is None:
        return None
    return Waits(busy, pending, rhythm_of(case))


def finding_on_waits(case: Case, waits: Waits) -> Finding | None:
    """The finding on GPUs that wait, by what of their host is over its threshold; None where nothing explains it."""
    source = case.gpus[0].sources.get("busy_ratio", "")
    chart = gpu_chart(case.gpus[0], "busy")
    if waits.rhythm is None:
        parameters = params(busy=waits.busy)
        busy = BUSY.evidence(waits.busy, source=source, chart=chart)
    else:
        parameters = waits.rhythm.parameters
        busy = waits.rhythm.add_to(BUSY_DROPS.evidence(waits.busy, source=source, chart=chart))
    return _finding_by_host_load(case, parameters, (busy, waits.pending), is_even=waits.rhythm is not None)


def _busy_with_waits(case: Case) -> float | None:
    """Mean busy share of the GPUs, where drops could have cost something and nothing else explains them."""
    if Limit.HUNG in case.found_limits or not case.gpus or case.recent.seconds < _LEAST_S:
        return None
    if case.kind is Kind.GPU and case.engines:
        return None
    busy = mean_known(_busy_mean(case, gpu) for gpu in case.gpus)
    if busy is None or busy >= NEARLY_ALWAYS_BUSY:
        return None
    return busy


def _busy_mean(case: Case, gpu: Gpu) -> float | None:
    """Mean busy share of a GPU in the last minute."""
    return finite(case.recents[gpu.reading.uuid].mean("busy_ratio", MINUTE_S))


def _finding_by_host_load(
    case: Case, parameters: Parameters, evidence_of_waits: tuple[Evidence, ...], *, is_even: bool
) -> Finding | None:
    """The finding on GPUs that wait, by what of their host is over its threshold. `is_even`: they wait in a rhythm."""
    figures = {proof.quantity: proof for proof in _host_evidence(case.host_recent, case.thresholds)}
    # Nothing is known of the load of another host that its GPUs are on.
    other_host = next((gpu.reading.host for gpu in case.gpus if gpu.reading.host), "")
    if other_host or not figures.keys() & {CPU.code, BUSIEST_CORE.code, IOWAIT.code}:
        return unsure((Signal("host_load", parameters=params(host=other_host)),), evidence_of_waits)
    spins = _spins(case)
    evidence = (*evidence_of_waits, *figures.values())
    host_limit = _first_limit(figures, spins=spins)
    if host_limit is not None:
        pending_kind = "steps" if _trains(case) else "requests"
        value = number(figures[host_limit.quantity.code].value)
        figure_of_host = params(pending=pending_kind, part=host_limit.quantity.code, value=value)
        return _explained_finding(case, host_limit, parameters | figure_of_host, evidence, is_even=is_even)
    if not is_even or case.kind is Kind.GPU:
        return None
    profile = PROFILE_STEPS.action() if _trains(case) else profile_action(case)
    return unsure((Signal("input_wait", parameters=params(spins=yes_if(spins))),), evidence, actions=(profile,))


def _trains(case: Case) -> bool:
    """Whether the GPUs' work is training, as far as anybody can tell."""
    return case.engine is None or case.engine.phase is Phase.TRAINING


def _first_limit(figures: Mapping[str, Evidence], *, spins: bool) -> _HostLimit | None:
    """The first limit whose figure is over its threshold. A core that an engine spins on is none."""
    for host_limit in _HOST_LIMITS:
        if spins and host_limit.part == "core":
            continue
        if _is_over(figures.get(host_limit.quantity.code)):
            return host_limit
    return None


def _is_over(evidence: Evidence | None) -> bool:
    """Whether a figure is over its threshold."""
    if evidence is None:
        return False
    value = finite(evidence.value)
    limit = finite(evidence.limit)
    return value is not None and limit is not None and value > limit


def _explained_finding(
    case: Case, host_limit: _HostLimit, parameters: Parameters, evidence: tuple[Evidence, ...], *, is_even: bool
) -> Finding:
    """The finding on GPUs that wait for a part of their host."""
    late = case.late_latencies()
    is_engine = case.kind is Kind.ENGINE
    level = Level.WARN if is_engine and (late or host_limit.part != "core") else Level.NOTE
    confidence = host_limit.confidence if is_engine and is_even else Confidence.LOW
    actions = tuple(_actions(case, host_limit))
    finding = WAITS_FOR_HOST.finding(
        limit=host_limit.code,
        parameters=parameters,
        evidence=(*evidence, *late),
        actions=actions,
        level=level,
        confidence=confidence,
    )
    if host_limit.part == "cpu":
        finding = with_consumers(case, finding)
    return with_replica_comparison(case, finding)


def _actions(case: Case, host_limit: _HostLimit) -> Iterator[Action]:
    """Actions against a full part of the host, the best first."""
    trains = _trains(case)
    # Where all cores are full, further processes have none to run on.
    if case.engine is not None and not trains and host_limit.part == "core":
        flag = advice(case.engine.kind).front_end
        if flag:
            yield MORE_FRONT_ENDS.action(flag=flag)
    if trains:
        yield _TRAINING_FIXES[host_limit.part].action()
    else:
        yield _SERVING_FIXES[host_limit.part].action()
    if host_limit.part == "core":
        yield profile_action(case)


def profile_action(case: Case) -> Action:
    """Profile the process on the GPU; of a server its parent, which takes the requests."""
    engine = case.engine
    processes: Sequence[GpuProcess] = ()
    if case.gpu is not None:
        processes = case.gpu.reading.processes
    elif engine is not None:
        processes = processes_of(case, engine)
    if not processes:
        return PROFILE_PROCESS.action(pid="PID")
    pid = str(processes[0].pid)
    if engine is not None and engine.phase is not Phase.TRAINING:
        return PROFILE_PROCESS.action(pid=pid, parent=YES)
    return PROFILE_PROCESS.action(pid=pid)


def has_name(pattern: re.Pattern[str], process: GpuProcess) -> bool:
    """Whether a process has such a name, title or script."""
    return bool(pattern.search(process.name) or pattern.search(program_title(process)))


def _spins(case: Case) -> bool:
    """Whether an engine is here that keeps a core at work while it waits."""
    if any(engine.kind is EngineKind.SGLANG for engine in case.snapshot.engines):
        return True
    for gpu in case.snapshot.gpus:
        if any(has_name(SPINNER, process) for process in gpu.reading.processes):
            return True
    return False


def _pending_work(case: Case) -> Evidence | None:
    """Evidence that there was work all the time; None where there was none, or it did not go on."""
    if case.gpu is not None:
        processes = case.gpu.reading.processes
        if not processes:
            return None
        return PROCESSES.evidence(float(len(processes)), parameters=params(processes=name_processes(processes)))
    if case.engine is None:
        return None
    if case.engine.phase is Phase.TRAINING:
        return _steps_evidence(case)
    return _requests_evidence(case)


def _steps_evidence(case: Case) -> Evidence | None:
    """Evidence of a training run's rate, in tokens or else in samples; None where it stands still."""
    tokens = finite(case.recent.mean("trained_tokens_per_s", _WINDOW_S))
    if tokens is not None:
        if tokens:
            return TOKEN_RATE.evidence(tokens, source="steps", chart=f"decode@{case.key}")
        return None
    samples = finite(case.recent.mean("samples_per_s", _WINDOW_S))
    if samples:
        return SAMPLE_RATE.evidence(samples, source="steps")
    return None


def _requests_evidence(case: Case) -> Evidence | None:
    """Evidence of a server's requests; None unless some ran all the time and made progress."""
    recent = case.recent
    running = [value for _, value in recent.values("running", MINUTE_S) if finite(value) is not None]
    if not recent.last("running") or not running or min(running) <= 0.0:
        return None
    fields = ("decode_tokens_per_s", "prefill_tokens_per_s", "inferences_per_s")
    rates = [finite(recent.mean(field, MINUTE_S)) for field in fields]
    known_rates = [rate for rate in rates if rate is not None]
    if known_rates and sum(known_rates) <= 0.0:  # an engine that shows no token may do other work
        return None
    return case.evidence(RUNNING_ALWAYS, min(running), most=max(running))


def _host_evidence(host: Recent, limits: Thresholds) -> Iterator[Evidence]:
    """The host's figures of the last minute beside their thresholds."""
    for figure in _FIGURES:
        value = finite(host.mean(figure.field, MINUTE_S))
        if value is not None:
            yield figure.quantity.evidence(
                value,
                limit=getattr(limits, figure.threshold),
                source=figure.source,
                chart=figure.chart,
            )


class _Consumer(NamedTuple):
    """A process that uses the host's cores."""

    cores: float
    name: str


def _consumers(case: Case) -> list[_Consumer]:
    """The processes that use most of the cores, the largest first, as far as they are known."""
    by_pid: dict[int, _Consumer] = {}
    for consumer in case.frame.host.consumers:
        name = f"{clean(consumer.name, 32) or 'a process'} (pid {consumer.pid})"
        if consumer.user:
            name += f" of {clean(consumer.user, 24)}"
        by_pid[consumer.pid] = _Consumer(consumer.cores, name)
    for gpu in case.snapshot.gpus:
        for process in gpu.reading.processes:
            cores = finite(process.cpu_ratio)
            if cores is not None and cores >= _LEAST_CORES:
                by_pid[process.pid] = _Consumer(cores, program_text(process))
    return sorted(by_pid.values(), key=lambda consumer: -consumer.cores)[:MOST_CONSUMERS]


def with_consumers(case: Case, finding: Finding) -> Finding:
    """The finding with who uses the cores."""
    consumers = _consumers(case)
    if not consumers:
        return finding
    evidence = list(finding.evidence)
    for consumer in consumers:
        name = params(process=consumer.name)
        evidence.append(CPU_PROCESS.evidence(consumer.cores, source="processes of this host", parameters=name))
    first = params(process=consumers[0].name, cores=consumers[0].cores)
    return finding._replace(parameters=finding.parameters | first, evidence=tuple(evidence))


CPU_FULL: Final = Cause(
    "cpu_full",
    Limit.HOST_CPU,
    (
        "CPU {cpu:percent} of all cores[ ({before:percent} until {fell:clock})][: {process} uses "
        "{cores:cores}][; tasks wait for a core {pressure:percent} of the time][{felt=no}; no GPU is seen "
        "to wait for it]"
    ),
)


def cpu_saturated(case: Case) -> Finding | None:
    """Rule: the cores are nearly full, and tasks wait for one. A note while no GPU and no user notices."""
    limits = case.thresholds
    cpu = _mean(case, "cpu_ratio")
    pressure = _mean(case, "cpu_pressure_ratio")
    if cpu is None or cpu < limits.cpu_high_ratio or (pressure is not None and pressure < limits.cpu_pressure_ratio):
        return None
    evidence = _evidence_named(case, {CPU.code, CPU_PRESSURE.code})
    confidence = Confidence.MEDIUM if pressure is None else Confidence.HIGH
    parameters = params(cpu=cpu, pressure=pressure) | _before_rise(case, "cpu_ratio", cpu)
    level = Level.NOTE
    actions: tuple[Action, ...] = (FREE_CORES.action(gpus=yes_if(case.gpus)),)
    if _is_felt(case):
        level = Level.WARN
        parameters |= params(felt=YES)
    elif case.gpus:
        parameters |= params(felt="no")  # the sentence says that nobody waits for it
        actions = ()
    return with_consumers(
        case,
        CPU_FULL.finding(
            parameters=parameters,
            evidence=evidence,
            actions=actions,
            level=level,
            confidence=confidence,
        ),
    )


def _before_rise(case: Case, field: str, now: float) -> Parameters:
    """The share that a figure had before it rose to that of now, and when, for a sentence; empty where it did not."""
    change = rise_in_hour(case.recent, field, now, _ROSE_TIMES)
    if change is None or now - change.before < _ROSE_SHARE:
        return {}
    return params(before=change.before, fell=wall_s(case, change.began_s))


def _is_felt(case: Case) -> bool:
    """Whether a server's users wait, or the GPUs of a training run or program do."""
    if _training_waits(case) or any(case.suffers(engine) for engine in case.engines):
        return True
    for verdicts in case.standing.values():
        if any(verdict.code is Limit.HOST_CPU and verdict.level is Level.WARN for verdict in verdicts):
            return True
    return False


def _training_waits(case: Case) -> bool:
    """Whether a GPU of a training run is idle now and then."""
    runs = [reading for reading in case.frame.engines if reading.phase is Phase.TRAINING]
    trained = {uuid for run in runs for uuid in run.gpus}
    for gpu in case.gpus:
        if gpu.reading.uuid in trained:
            busy = _busy_mean(case, gpu)
            if busy is not None and busy < NEARLY_ALWAYS_BUSY:
                return True
    return False


def _evidence_named(case: Case, quantities: Collection[str]) -> tuple[Evidence, ...]:
    """Some of the host's figures beside their thresholds."""
    return tuple(
        evidence for evidence in _host_evidence(case.recent, case.thresholds) if evidence.quantity in quantities
    )


DISK_FULL: Final = Cause(
    "disk_full",
    Limit.HOST_DISK,
    (
        "tasks wait for a disk {pressure:percent} of the time[; the busiest was {before:percent} "
        "busy until {fell:clock}]"
    ),
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)


def disk_waits(case: Case) -> Finding | None:
    """Rule: tasks that wait for a disk much of the time."""
    limits = case.thresholds
    pressure = _mean(case, "io_pressure_ratio")
    disk = _mean(case, "disk_busy_ratio")
    if pressure is None or pressure < limits.io_pressure_ratio or (disk is not None and disk < limits.disk_busy_ratio):
        return None
    evidence = _evidence_named(case, {IO_PRESSURE.code, IOWAIT.code, DISK_BUSY.code})
    rise = _before_rise(case, "disk_busy_ratio", disk) if disk is not None else {}
    return DISK_FULL.finding(
        parameters=params(pressure=pressure) | rise,
        evidence=evidence,
        actions=(FIND_READER.action(),),
    )


HOST_MEMORY_FULL: Final = Cause(
    "host_memory_full",
    Limit.MEMORY_FULL,
    "memory {share:percent} used, {left:gib} left: the kernel may soon kill a process",
)
HOST_MEMORY_WAITS: Final = Cause(
    "host_memory_waits",
    Limit.MEMORY_FULL,
    "memory {share:percent} used, {left:gib} left: tasks wait for it {pressure:percent} of the time",
    confidence=Confidence.MEDIUM,
)
CGROUP_FULL: Final = Cause(
    "cgroup_full",
    Limit.MEMORY_FULL,
    "tasks wait for memory {pressure:percent} of the time, with {left:gib} left: likely a container's limit",
    level=Level.NOTE,
    confidence=Confidence.LOW,
)


def host_memory_full(case: Case) -> Finding | None:
    """Rule: the host is nearly out of memory, or tasks wait for it: the kernel soon kills one, often an engine."""
    host = case.snapshot.host
    limits = case.thresholds
    used = finite(host.memory_used_bytes)
    total = finite(host.memory_total_bytes)
    if used is None or not total:
        return None
    pressure = _mean(case, "memory_pressure_ratio")
    tasks_wait = pressure is not None and pressure > limits.memory_pressure_ratio
    is_full = used > limits.host_memory_ratio * total
    if not is_full and not tasks_wait:
        return None
    parameters = params(left=total - used, share=used / total)
    if tasks_wait:
        parameters |= params(pressure=pressure)
    evidence = tuple(_memory_evidence(limits, used, total, pressure))
    if used < limits.host_memory_tight_ratio * total:
        in_use = [value for _, value in case.recent.values("memory_used_bytes", MINUTE_S)]
        if max(in_use, default=used) >= limits.host_memory_tight_ratio * total:
            return None  # the tasks waited while the host's memory was short, in the same minute
        # The kernel counts tasks that wait at a cgroup's limit, too: the host itself has memory left.
        return CGROUP_FULL.finding(parameters, evidence, (RAISE_CGROUP_LIMIT.action(),))
    actions = (LESS_HOST_MEMORY.action(),)
    if not is_full:
        return HOST_MEMORY_WAITS.finding(parameters, evidence, actions)
    is_critical = tasks_wait or total - used < FULL_LEFT_BYTES
    return HOST_MEMORY_FULL.finding(
        parameters=parameters,
        evidence=evidence,
        actions=actions,
        level=Level.CRITICAL if is_critical else Level.WARN,
    )


def _memory_evidence(limits: Thresholds, used: float, total: float, pressure: float | None) -> Iterator[Evidence]:
    """Use of the host's memory, and the share of the time in which tasks wait for it."""
    left = params(left=total - used)
    yield HOST_MEMORY.evidence(used / total, limit=limits.host_memory_ratio, source="/proc/meminfo", parameters=left)
    if pressure is not None:
        yield MEMORY_PRESSURE.evidence(pressure, limit=limits.memory_pressure_ratio, source="/proc/pressure/memory")


def _mean(case: Case, field: str) -> float | None:
    """Mean of a sampled field in the last minute."""
    return finite(case.recent.mean(field, MINUTE_S))
