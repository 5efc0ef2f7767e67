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
from gpumon.readings.frame import EngineKind, Phase
from gpumon.readings.missing import number
from gpumon.readings.process_words import name_processes, program_text, titled
from gpumon.readings.snapshot import Gpu, Process
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Confidence, Evidence, Kind, Level, Limit, Parameters, Signal
from gpumon.triage.advice import advice
from gpumon.triage.engine_state import processes_of
from gpumon.triage.replicas import apart
from gpumon.triage.samples import Recent
from gpumon.triage.signals import (
    MINUTE_S,
    Case,
    Finding,
    action,
    finite,
    of_gpu,
    params,
    unsure,
)
from gpumon.triage.thresholds import Thresholds

_WINDOW_S: Final = 120.0
_LEAST_S: Final = 30.0
"""Seconds of samples that are needed; at 1 s they show periods of 4 s and more."""
LEAST_SAMPLES: Final = 15
HARDLY: Final = 0.9
"""Mean busy share above which drops cost next to nothing."""
FULL_LEFT_BYTES: Final = float(1 << 30)
"""Bytes left at which a host of any size is full."""
MOST_CONSUMERS: Final = 3
_LEAST_CORES: Final = 0.5
"""Cores that a process on a GPU uses at least to be named as one that fills them."""
SPINNER: Final = re.compile(r"\bsglang\b", re.IGNORECASE)
"""Processes of an engine whose scheduler keeps a core at 100 % while it is idle (sglang#9863)."""
_FIGURES: Final = (
    ("cpu", "cpu_ratio", "cpu_high_ratio", "/proc/stat", "cpu@host"),
    ("busiest_core", "busiest_core_ratio", "core_high_ratio", "/proc/stat", "core@host"),
    ("cpu_pressure", "cpu_pressure_ratio", "cpu_pressure_ratio", "/proc/pressure/cpu", ""),
    ("iowait", "iowait_ratio", "iowait_high_ratio", "/proc/stat", "iowait@host"),
    ("io_pressure", "io_pressure_ratio", "io_pressure_ratio", "/proc/pressure/io", "io@host"),
    ("disk_busy", "disk_busy_ratio", "disk_busy_ratio", "/proc/diskstats", "disk@host"),
    ("network_received", "network_rx_bytes_per_s", "network_bytes_per_s", "/proc/net/dev", "net@host"),
)
"""Quantity, sampled field, its threshold, source and chart."""


class _Cause(NamedTuple):
    """A cause of a slow host."""

    code: Limit
    quantity: str
    part: str
    """Part of the host: the action goes by it."""
    confidence: Confidence


_CAUSES: Final = (
    _Cause(Limit.HOST_DISK, "io_pressure", "disk", Confidence.HIGH),
    _Cause(Limit.HOST_DISK, "iowait", "disk", Confidence.HIGH),
    _Cause(Limit.HOST_CPU, "cpu", "cpu", Confidence.HIGH),
    _Cause(Limit.HOST_CPU, "cpu_pressure", "cpu", Confidence.MEDIUM),
    _Cause(Limit.HOST_DISK, "disk_busy", "disk", Confidence.MEDIUM),
    # Which core is not known: it may be another program's, so that it is never more than a hint.
    _Cause(Limit.HOST_CPU, "busiest_core", "core", Confidence.LOW),
    _Cause(Limit.HOST_NETWORK, "network_received", "network", Confidence.LOW),
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

    def evidence(self, of: Evidence) -> Evidence:
        """The figure with the rhythm."""
        parameters = params(period=self.period_s, upper=self.upper, lower=self.lower)
        return msgspec.structs.replace(of, parameters=of.parameters | parameters)


def rhythm_in(samples: Sequence[tuple[float, float]], limits: Thresholds) -> Rhythm | None:
    """The rhythm of (s, busy share) samples, oldest first: at least some drops below half of the upper level, evenly
    spaced, the last of them not long ago."""
    values = sorted([value for _, value in samples])
    if len(values) < LEAST_SAMPLES:
        return None
    upper = values[int(0.9 * (len(values) - 1))]
    if upper < limits.starved_upper_ratio or values[0] >= upper / 2.0:
        return None
    drops = _drops(samples, upper / 2.0)
    if len(drops) < max(2.0, limits.starved_drops):
        return None
    gaps = [after - before for before, after in pairwise(drops)]
    period_s = fmean(gaps)
    spread_s = math.sqrt(fmean([(gap - period_s) ** 2 for gap in gaps]))
    newest_s, _ = samples[-1]
    if spread_s > limits.starved_regular_ratio * period_s or newest_s - drops[-1] > 2.0 * period_s:
        return None
    lower_values = values[: bisect_left(values, upper / 2.0)]
    return Rhythm(period_s, len(drops), upper, fmean(lower_values))


def _drops(samples: Sequence[tuple[float, float]], half: float) -> list[float]:
    """Times at which the busy share fell below half of its upper level."""
    drops = []
    for (_, before), (now_s, now) in pairwise(samples):
        if before >= half > now:
            drops.append(now_s)
    return drops


def rhythm_of(case: Case) -> Rhythm | None:
    """The rhythm in which its GPUs are busy: of the first one that tells, as a step takes all of them."""
    for gpu in case.gpus:
        recent = case.others[gpu.uuid]
        if recent.last("busy_ratio") is not None:
            return rhythm_in(recent.values("busy_ratio", _WINDOW_S), case.thresholds)
    return None


def even_drops(case: Case) -> Finding | None:
    """An engine's GPUs that stop in a rhythm: queues and waits come of that, so it is asked before them."""
    if _low_busy(case) is None or _pending(case) is None or rhythm_of(case) is None:
        return None
    answer = input_starved(case)
    if answer is None or answer.code is Limit.UNKNOWN:
        return None
    return answer


def input_starved(case: Case) -> Finding | None:
    """GPUs that wait for their host with requests or steps pending."""
    busy = _low_busy(case)
    if busy is None:
        return None
    pending = _pending(case)
    if pending is None:
        return None
    rhythm = rhythm_of(case)
    if rhythm is None and (case.kind is Kind.GPU or busy >= case.thresholds.starved_busy_ratio):
        return None
    source = "nvmlDeviceGetUtilizationRates"
    chart = of_gpu(case.gpus[0], "busy")
    if rhythm is None:
        parameters = params(busy=busy)
        shown = Evidence("busy", busy, source=source, chart=chart)
    else:
        parameters = params(period=rhythm.period_s, upper=rhythm.upper, lower=rhythm.lower)
        shown = rhythm.evidence(Evidence("busy_drops", busy, source=source, chart=chart))
    return _judged(case, parameters, (shown, pending), is_even=rhythm is not None)


def _low_busy(case: Case) -> float | None:
    """Mean busy share of the GPUs, where drops could have cost something and nothing else explains them."""
    if Limit.HUNG in case.found or not case.gpus or case.recent.seconds < _LEAST_S:
        return None
    if case.kind is Kind.GPU and case.engines:
        return None
    busy = mean_known(_busy(case, gpu) for gpu in case.gpus)
    if busy is None or busy >= HARDLY:
        return None
    return busy


def _busy(case: Case, gpu: Gpu) -> float | None:
    """Mean busy share of a GPU in the last minute."""
    return finite(case.others[gpu.uuid].mean("busy_ratio", MINUTE_S))


def _judged(case: Case, said: Parameters, proof: tuple[Evidence, ...], *, is_even: bool) -> Finding | None:
    """The finding on GPUs that wait, by what of their host is over its threshold. `is_even`: they wait in a rhythm."""
    figures = _figures_of_host(case)
    elsewhere = _other_host(case)
    if elsewhere or not figures.keys() & {"cpu", "busiest_core", "iowait"}:
        return unsure((Signal("host_load", parameters=params(host=elsewhere)),), proof)
    spins = _spins(case)
    evidence = (*proof, *figures.values())
    cause = _cause(figures, spins=spins)
    if cause is not None:
        pending = "steps" if _trains(case) else "requests"
        waits = params(pending=pending, part=cause.quantity, value=number(figures[cause.quantity].value))
        return _waits_for(case, cause, said | waits, evidence, is_even=is_even)
    if not is_even or case.kind is Kind.GPU:
        return None
    return _waits_for_unknown(case, evidence, spins=spins)


def _other_host(case: Case) -> str:
    """The host of its GPUs, where that is not this one: nothing is known of its load."""
    for gpu in case.gpus:
        if gpu.host:
            return gpu.host
    return ""


def _waits_for_unknown(case: Case, evidence: tuple[Evidence, ...], *, spins: bool) -> Finding:
    """The finding on GPUs that wait in a rhythm, where nothing of their host is over its threshold."""
    parameters: Parameters = {}
    if spins:
        parameters = params(spins="yes")
    if _trains(case):
        look = action("profile_steps")
    else:
        look = profile(case)
    return unsure((Signal("input_wait", parameters=parameters),), evidence, actions=(look,))


def _figures_of_host(case: Case) -> dict[str, Evidence]:
    """The host's figures by quantity; empty where nothing is known of it."""
    host = case.others.get("")
    if host is None:
        return {}
    return {evidence.quantity: evidence for evidence in _figures(host, case.thresholds)}


def _trains(case: Case) -> bool:
    """Whether the GPUs' work is training, as far as anybody can tell."""
    return case.engine is None or case.engine.phase is Phase.TRAINING


def _cause(figures: Mapping[str, Evidence], *, spins: bool) -> _Cause | None:
    """The first cause whose figure is over its threshold. A core that an engine spins on is none."""
    for cause in _CAUSES:
        if spins and cause.part == "core":
            continue
        if _is_over(figures.get(cause.quantity)):
            return cause
    return None


def _is_over(evidence: Evidence | None) -> bool:
    """Whether a figure is over its threshold."""
    if evidence is None:
        return False
    value = finite(evidence.value)
    limit = finite(evidence.limit)
    return value is not None and limit is not None and value > limit


def _waits_for(
    case: Case, cause: _Cause, said: Parameters, evidence: tuple[Evidence, ...], *, is_even: bool
) -> Finding:
    """The finding on GPUs that wait for a part of their host."""
    slow = case.late()
    is_engine = case.kind is Kind.ENGINE
    if is_engine and (slow or cause.part != "core"):
        level = Level.WARN
    else:
        level = Level.NOTE
    if is_engine and is_even:
        confidence = cause.confidence
    else:
        confidence = Confidence.LOW
    actions = tuple(_actions(case, cause))
    finding = Finding(cause.code, "waits_for_host", said, (*evidence, *slow), actions, level, confidence)
    if cause.part == "cpu":
        finding = _names_consumers(case, finding)
    return apart(case, finding)


def _actions(case: Case, cause: _Cause) -> Iterator[Action]:
    """Actions against a full part of the host, the best first."""
    trains = _trains(case)
    if case.engine is not None and not trains and cause.part in ("cpu", "core"):
        flag = advice(case.engine.kind).front_end
        if flag:
            yield action("more_front_ends", flag=flag)
    work = "training" if trains else "serving"
    yield action(f"{work}_{cause.part}")
    if cause.part == "core":
        yield profile(case)


def profile(case: Case) -> Action:
    """How to see what its thread does. Of a server the process on the GPU is known, whose parent takes the requests."""
    engine = case.engine
    here: Sequence[Process] = ()
    if case.gpu is not None:
        here = case.gpu.processes
    elif engine is not None:
        here = processes_of(case, engine)
    if not here:
        return action("profile_process", pid="PID")
    pid = str(here[0].pid)
    if engine is not None and engine.phase is not Phase.TRAINING:
        return action("profile_process", pid=pid, parent="yes")
    return action("profile_process", pid=pid)


def is_called(pattern: re.Pattern[str], process: Process) -> bool:
    """Whether a process has such a name, title or script."""
    return bool(pattern.search(process.name) or pattern.search(titled(process)))


def _spins(case: Case) -> bool:
    """Whether an engine is here that keeps a core at work while it waits."""
    if any(engine.kind is EngineKind.SGLANG for engine in case.snapshot.engines):
        return True
    for gpu in case.snapshot.gpus:
        if any(is_called(SPINNER, process) for process in gpu.processes):
            return True
    return False


def _pending(case: Case) -> Evidence | None:
    """Proof that there was work all the time; None if there was none, or it did not go on."""
    if case.gpu is not None:
        return _programs(case.gpu)
    if case.engine is None:
        return None
    if case.engine.phase is Phase.TRAINING:
        return _steps(case)
    return _requests(case)


def _programs(gpu: Gpu) -> Evidence | None:
    """The programs on a GPU."""
    if not gpu.processes:
        return None
    return Evidence("processes", float(len(gpu.processes)), parameters=params(processes=name_processes(gpu.processes)))


def _steps(case: Case) -> Evidence | None:
    """The rate of a training run, in tokens or, where it does not count these, in samples."""
    tokens = finite(case.recent.mean("trained_tokens_per_s", _WINDOW_S))
    if tokens is not None:
        if tokens:
            return Evidence("token_rate", tokens, source="steps", chart=f"decode@{case.key}")
        return None
    samples = finite(case.recent.mean("samples_per_s", _WINDOW_S))
    if samples:
        return Evidence("sample_rate", samples, source="steps")
    return None


def _requests(case: Case) -> Evidence | None:
    """Requests of a server, where some ran all the time and came on."""
    recent = case.recent
    running = []
    for _, value in recent.values("running", MINUTE_S):
        if finite(value) is not None:
            running.append(value)
    if not recent.last("running") or not running or min(running) <= 0.0:
        return None
    rates: list[float] = []
    for field in ("decode_tokens_per_s", "prefill_tokens_per_s", "inferences_per_s"):
        rate = finite(recent.mean(field, MINUTE_S))
        if rate is not None:
            rates.append(rate)
    if rates and sum(rates) <= 0.0:  # an engine that shows no token may do other work
        return None
    return case.evidence("running_always", "running", min(running), "running", most=max(running))


def _figures(host: Recent, limits: Thresholds, seconds: float = MINUTE_S) -> Iterator[Evidence]:
    """The host's figures beside their thresholds."""
    for quantity, field, threshold, source, chart in _FIGURES:
        value = finite(host.mean(field, seconds))
        if value is not None:
            yield Evidence(quantity, value, getattr(limits, threshold), source, chart)


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
        for process in gpu.processes:
            cores = finite(process.cpu_ratio)
            if cores is not None and cores >= _LEAST_CORES:
                by_pid[process.pid] = _Consumer(cores, program_text(process))
    return sorted(by_pid.values(), key=lambda consumer: -consumer.cores)[:MOST_CONSUMERS]


def _names_consumers(case: Case, finding: Finding) -> Finding:
    """The finding with who uses the cores."""
    consumers = _consumers(case)
    if not consumers:
        return finding
    proof = list(finding.evidence)
    for consumer in consumers:
        name = params(process=consumer.name)
        proof.append(Evidence("cpu_process", consumer.cores, source="processes of this host", parameters=name))
    first = params(process=consumers[0].name, cores=consumers[0].cores)
    return finding._replace(parameters=finding.parameters | first, evidence=tuple(proof))


def cpu_saturated(case: Case) -> Finding | None:
    """All cores at work, and tasks that wait for one. A note while no GPU and no user notices."""
    limits = case.thresholds
    cpu = _mean(case, "cpu_ratio")
    pressure = _mean(case, "cpu_pressure_ratio")
    if cpu is None or cpu < limits.cpu_high_ratio or (pressure is not None and pressure < limits.cpu_pressure_ratio):
        return None
    proof = _figures_named(case, ("cpu", "cpu_pressure"))
    sure = Confidence.MEDIUM if pressure is None else Confidence.HIGH
    parameters = params(cpu=cpu, pressure=pressure)
    level = Level.NOTE
    gpus = None
    if case.gpus:
        gpus = "yes"
    fixes: tuple[Action, ...] = (action("free_cores", gpus=gpus),)
    if _is_felt(case):
        level = Level.WARN
        parameters |= params(felt="yes")
    elif case.gpus:
        parameters |= params(felt="no")
        fixes = ()
    return _names_consumers(case, Finding(Limit.HOST_CPU, "cpu_full", parameters, proof, fixes, level, sure))


def _is_felt(case: Case) -> bool:
    """Whether a server's users wait, or a training run's GPUs do."""
    return _training_waits(case) or any(case.suffers(engine) for engine in case.engines)


def _training_waits(case: Case) -> bool:
    """Whether a GPU of a training run is idle now and then."""
    trained: set[str] = set()
    for reading in case.frame.engines:
        if reading.phase is Phase.TRAINING:
            trained.update(reading.gpus)
    for gpu in case.gpus:
        if gpu.uuid in trained:
            busy = _busy(case, gpu)
            if busy is not None and busy < HARDLY:
                return True
    return False


def _figures_named(case: Case, quantities: Collection[str]) -> tuple[Evidence, ...]:
    """Some of the host's figures beside their thresholds."""
    named = []
    for evidence in _figures(case.recent, case.thresholds):
        if evidence.quantity in quantities:
            named.append(evidence)
    return tuple(named)


def disk_waits(case: Case) -> Finding | None:
    """Tasks that wait for a disk much of the time."""
    limits = case.thresholds
    pressure = _mean(case, "io_pressure_ratio")
    disk = _mean(case, "disk_busy_ratio")
    if pressure is None or pressure < limits.io_pressure_ratio or (disk is not None and disk < limits.disk_busy_ratio):
        return None
    proof = _figures_named(case, ("io_pressure", "iowait", "disk_busy"))
    fixes = (action("find_reader"),)
    parameters = params(pressure=pressure)
    return Finding(Limit.HOST_DISK, "disk_full", parameters, proof, fixes, Level.NOTE, Confidence.MEDIUM)


def host_memory_full(case: Case) -> Finding | None:
    """Near the point where the kernel kills a process: that is often an engine."""
    host = case.snapshot.host
    limits = case.thresholds
    used = finite(host.memory_used_bytes)
    total = finite(host.memory_total_bytes)
    if used is None or not total:
        return None
    pressure = _mean(case, "memory_pressure_ratio")
    waits = pressure is not None and pressure > limits.memory_pressure_ratio
    full = used > limits.host_memory_ratio * total
    if not full and not waits:
        return None
    parameters = params(left=total - used, share=used / total)
    if waits:
        parameters |= params(pressure=pressure)
    proof = tuple(_memory_proof(limits, used, total, pressure))
    if used < limits.host_memory_tight_ratio * total:
        # The kernel counts tasks that wait at a cgroup's limit, too: the host itself has memory left.
        fix = action("raise_cgroup_limit")
        return Finding(Limit.MEMORY_FULL, "cgroup_full", parameters, proof, (fix,), Level.NOTE, Confidence.LOW)
    fix = action("less_host_memory")
    if not full:
        code = "host_memory_waits"
        return Finding(Limit.MEMORY_FULL, code, parameters, proof, (fix,), Level.WARN, Confidence.MEDIUM)
    level = Level.CRITICAL if waits or total - used < FULL_LEFT_BYTES else Level.WARN
    return Finding(Limit.MEMORY_FULL, "host_memory_full", parameters, proof, (fix,), level, Confidence.HIGH)


def _memory_proof(limits: Thresholds, used: float, total: float, pressure: float | None) -> Iterator[Evidence]:
    """Use of the host's memory, and the share of the time in which tasks wait for it."""
    left = params(left=total - used)
    yield Evidence("host_memory", used / total, limits.host_memory_ratio, "/proc/meminfo", parameters=left)
    if pressure is not None:
        yield Evidence("memory_pressure", pressure, limits.memory_pressure_ratio, "/proc/pressure/memory")


def _mean(case: Case, field: str) -> float | None:
    return finite(case.recent.mean(field, MINUTE_S))
