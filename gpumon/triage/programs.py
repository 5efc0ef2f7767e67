"""Rules on programs without a feed, such as training: by the counters of all GPUs of one program at once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from gpumon.efficiency.ratio import mean_known
from gpumon.readings.frame import GpuProcess, Phase
from gpumon.readings.process_words import program_title
from gpumon.readings.snapshot import BandwidthSource, Gpu
from gpumon.readings.text import clean
from gpumon.readings.verdict import Confidence, Evidence, Level, Limit, Team
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params
from gpumon.triage.gpu_figures import gpu_of, is_explained, vram_in_use
from gpumon.triage.gpu_hardware import index_ranges
from gpumon.triage.host import Waits, finding_on_waits, input_starved, waits_of_gpus
from gpumon.triage.samples import AWAKE, Recent
from gpumon.triage.sentences import BUSY, DRAM_ACTIVE, DRAM_AT_MOST, NOT_VISIBLE, OVER_GPUS, SM_ACTIVE, TENSOR_ACTIVE
from gpumon.triage.signals import MINUTE_S, YES, Case, finite, gpu_chart

_RANK_OPTION: Final = re.compile(r"\s--?(?:local|node|global)?[-_]?rank(?:[= ])\S+")
"""The option of a command line by which a launcher tells each process of a program its place."""
_TRAINS: Final = re.compile(
    r"train|finetun|fine[-_]tun|sft|dpo|grpo|torchrun|torch\.distributed|deepspeed|accelerate|fsdp|megatron|lightning"
    r"|nemo|axolotl|pt_data_worker",
    re.IGNORECASE,
)
"""Words of commands that train a model."""
_SERVES: Final = re.compile(
    r"--(?:http[-_]?)?port\b|serv(?:e|er|ing)\b|uvicorn|gunicorn|gradio|streamlit|triton|\b(?:app|api)\.py",
    re.IGNORECASE,
)
"""Words of commands that answer requests: between two of them the ranks of some wait for the first in a collective."""
_FRAMEWORK: Final = re.compile(r"\b(?:python[\d.]*|torchrun|accelerate|deepspeed)\b", re.IGNORECASE)
"""Programs that may run a deep-learning framework: the advice on tensor cores is for those."""
_SPIN_BUSY: Final = 0.95
"""Busy share from which on a GPU may spin in a collective: its kernel runs without a pause."""
_SPIN_DRAM: Final = 0.03
"""Share of the memory bandwidth up to which nothing is computed: polling a flag moves next to nothing."""
_SPIN_TENSOR: Final = 0.01
"""Activity of the tensor cores up to which nothing is computed."""
_SPIN_SM: Final = 0.45
"""SM activity up to which a collective's kernel may be alone: it takes a part of the SMs, arithmetic all of them. A
choice above the 24 blocks of NCCL on the 132 SMs of an H100, 18% (forums.developer.nvidia.com, 339078): more channels,
and GPUs with fewer SMs, show more."""
_SPIN_POWER: Final = 0.4
"""Share of the power limit up to which nothing is computed: a kernel that polls draws little more than a context. A
choice above the 152 W of 700 W of an H100 that hangs in an all-gather, beside 129 W to 137 W of idle ranks
(github.com/NVIDIA/nccl, issue 1550), as limits of other cards lie nearer to that."""
_SPIN_NVLINK_BYTES_PER_S: Final = 5e7
"""NVLink traffic up to which a collective does not go on: one that works moves a thousand times as much."""
_STILL_S: Final = 3.0
"""Seconds without the signs after which a GPU spins no more: one odd sample is none."""
_WORK_DRAM: Final = 0.1
"""Share of the memory bandwidth from which on a GPU has worked."""
_WORK_TENSOR: Final = 0.03
"""Activity of the tensor cores from which on a GPU has worked."""
_HANG_S: Final = 60.0
"""Seconds for which all GPUs of a program spin that are a hang, if they worked before: a collective takes
milliseconds, an evaluation or a save by one rank of another host mostly less than a minute."""
_UNSEEN_HANG_S: Final = 120.0
"""The same for GPUs that were never seen at work: nothing but how still they are tells it then."""
_UNSEEN_DRAM: Final = 0.003
"""Share of the memory bandwidth up to which they compute nothing: small kernels without end read a little more."""
_LONG_HANG_S: Final = 300.0
"""Seconds after which a hang is critical: the longest waits that pass (a large checkpoint of another host) are over."""
_STEADY_POWER: Final = 0.05
"""Most that the power of a GPU that only polls swings, as a share of its mean: work goes in steps."""
_STEADY_S: Final = 30.0
"""Seconds over which that is looked at: a GPU whose work has just ended cools down, and draws less by and by."""
_IDLE_RANK_S: Final = 45.0
"""Seconds for which one rank does nothing, and the others wait for it, from which on it is told."""
_SAVE_S: Final = 20.0
"""Seconds for which all GPUs of a program wait, and the disk is written, from which on a save is told."""
_WRITE_BYTES_PER_S: Final = 2e8
"""Bytes/s written to the disks from which on a checkpoint may be the reason: a log is a thousandth of it."""
_LEAST_STARVED: Final = 0.05
"""Mean busy share below which a program does not compute at all: it loads or waits for something else."""
_SAME_BUSY: Final = 0.25
"""Most by which the busy shares of a program's GPUs differ that wait for the same data."""
_REST_S: Final = 15.0
"""Seconds without any work that are no wait for the next batch: a save, an evaluation, a compiler."""
_PLAIN_S: Final = 120.0
"""Seconds over which arithmetic without tensor cores is judged."""
PLAIN_SM: Final = 0.7
"""SM activity from which on a GPU computes all the time."""
_PLAIN_POWER: Final = 0.5
"""Share of the power limit from which on it is arithmetic that keeps the SMs active, and no wait."""
_PLAIN_DRAM: Final = 0.5
"""Share of the memory bandwidth from which on the memory is the limit: tensor cores would change nothing."""
_GONE_S: Final = 1800.0
"""Seconds for which it is remembered that a program had a process on a GPU."""
_MOST_PIDS: Final = 8
"""Pids of a program that an action names."""

Result = TypeVar("Result")
ProgramKey = tuple[str, ...]
"""Tells one program from others: where it runs, as whom, and by which command."""
_HIDDEN: Final[ProgramKey] = ()
"""Key of what holds memory, and whose processes are not to be seen here: it is taken for one program."""
_HIDDEN_VRAM: Final = 0.05
"""Share of the VRAM in use from which on something is on a GPU on which no process is listed."""


DISK_WRITES: Final = Quantity("disk_writes", "{value:bytes}/s are written to the host's disks")
POWER_SHARE: Final = Quantity("power_share", "power {value:percent} of the limit" + OVER_GPUS)
DUMP_RANKS: Final = Remedy(
    "dump_ranks",
    (
        "py-spy dump --pid PID for each [of {pids}|rank]: one rank stands elsewhere than the others, "
        "or runs another collective (TORCH_NCCL_TRACE_BUFFER_SIZE and TORCH_NCCL_DUMP_ON_TIMEOUT "
        "record which); ranks of other hosts, too"
    ),
    team=Team.OWNER,
)
DUMP_RANK: Final = Remedy("dump_rank", "py-spy dump --pid {pids} shows where this rank stands", team=Team.OWNER)
RESTART_JOB: Final = Remedy(
    "restart_job",
    "[{after=yes}then ]end [{program}|the program] and start it from its last checkpoint",
    team=Team.OWNER,
)
FASTER_CHECKPOINT: Final = Remedy(
    "faster_checkpoint",
    ("normal if it ends: save asynchronously (torch.distributed.checkpoint.async_save), sharded, or to local NVMe"),
    team=Team.OWNER,
)
USE_TENSOR_CORES: Final = Remedy(
    "use_tensor_cores",
    ("nothing to do for a simulation in FP64; a model: bf16 autocast, or torch.set_float32_matmul_precision('high')"),
    team=Team.OWNER,
)

RANK_IDLE: Final = Cause(
    "rank_idle",
    Limit.HUNG,
    "does nothing, with {others:gpus} of {program} (gpu {on}) waiting for it in a collective for {seconds:lasted}",
)


class ProgramGpus(NamedTuple):
    """One program without a page of its own, and all GPUs that it is alone on."""

    key: ProgramKey
    name: str
    command: str
    gpus: tuple[Gpu, ...]
    pids: tuple[int, ...]
    left: tuple[Gpu, ...]
    """GPUs on which it had a process and has none now, while the others run on."""

    @property
    def indices(self) -> str:
        """Its GPUs: `0-7`."""
        return index_ranges(sorted(gpu.reading.index for gpu in self.gpus))

    @property
    def trains(self) -> bool:
        """Whether its command trains a model."""
        return bool(_TRAINS.search(self.command))

    @property
    def serves(self) -> bool:
        """Whether it waits for requests, by its command."""
        return bool(_SERVES.search(self.command)) and not self.trains


class _Group(NamedTuple):
    """The GPUs and pids of a program, while they are gathered."""

    processes: list[GpuProcess]
    gpus: list[Gpu]


def programs_by_gpu(case: Case) -> Mapping[str, ProgramGpus]:
    """UUID of a GPU -> the program that is alone on it; worked out once for each sample of the host."""
    worked_out = case.host_recent.worked_out
    known: Mapping[str, ProgramGpus] | None = worked_out.get("programs")
    if known is None:
        known = _group_programs(case)
        worked_out["programs"] = known
    return known


def program_of(case: Case) -> ProgramGpus | None:
    """The program of the GPU of a case."""
    return programs_by_gpu(case).get(case.key)


def once_for(case: Case, program: ProgramGpus, work: Callable[[Case, ProgramGpus], Result]) -> Result:
    """The result of a function of a program, worked out once for each sample: it is asked for on each of its GPUs."""
    worked_out = case.host_recent.worked_out
    key = (work, program.key)
    if key not in worked_out:
        worked_out[key] = work(case, program)
    result: Result = worked_out[key]
    return result


def _group_programs(case: Case) -> dict[str, ProgramGpus]:
    """The programs of all GPUs, with what is remembered of the GPUs brought up to now."""
    served: set[str] = set()
    for engine in case.frame.engines:
        if engine.phase is Phase.INFERENCE:
            served.update(engine.gpus)
    groups: dict[ProgramKey, _Group] = {}
    for gpu in case.snapshot.gpus:
        recent = case.recents[gpu.reading.uuid]
        key = key_of(gpu)
        if gpu.reading.uuid in served or key is None:
            continue
        _note_work(recent, gpu, case.now_s)
        if recent.program[0] != key:
            recent.program_since_s = case.now_s
        recent.program = (key, case.now_s)
        group = groups.setdefault(key, _Group([], []))
        group.gpus.append(gpu)
        group.processes.extend(gpu.reading.processes)
    by_gpu = {}
    for key, group in groups.items():
        program = ProgramGpus(
            key=key,
            name=_name_of(group.processes, len(group.gpus)),
            command=group.processes[0].command if group.processes else "",
            gpus=tuple(group.gpus),
            pids=tuple(dict.fromkeys(process.pid for process in group.processes)),
            left=tuple(_gpus_left(case, key)),
        )
        for gpu in group.gpus:
            by_gpu[gpu.reading.uuid] = program
    return by_gpu


def _gpus_left(case: Case, key: ProgramKey) -> Iterator[Gpu]:
    """GPUs that nothing runs on, and that a program had a process on not long ago."""
    for gpu in case.snapshot.gpus:
        last_key, seen_s = case.recents[gpu.reading.uuid].program
        if last_key == key and not gpu.reading.processes and 0.0 < case.now_s - seen_s <= _GONE_S:
            yield gpu


def key_of(gpu: Gpu) -> ProgramKey | None:
    """The key of the one program whose processes are on a GPU; None where there is none, or several."""
    keys = {_key_of_process(process) for process in gpu.reading.processes if process.type == "compute"}
    if len(keys) == 1:
        return keys.pop()
    vram = vram_in_use(gpu)
    if not gpu.reading.processes and vram is not None and vram[0] > _HIDDEN_VRAM * vram[1]:
        return _HIDDEN
    return None


def _key_of_process(process: GpuProcess) -> ProgramKey:
    """The key of a process: the same for all ranks of a program."""
    command = _RANK_OPTION.sub("", process.command) or process.name
    return (process.job, process.pod, process.container, process.user, command)


def _name_of(processes: Sequence[GpuProcess], gpus: int) -> str:
    """The name of a program by one of its processes, of `gpus` that it has."""
    if not processes:
        return NOT_VISIBLE
    process = processes[0]
    user = f" of {clean(process.user, 24)}" if process.user else ""
    if gpus > 1:
        return f"{program_title(process)}{user}"
    return f"{program_title(process)} (pid {process.pid}){user}"


def _dram_share(rate: float | None, gpu: Gpu) -> float | None:
    """Memory traffic as a share of the peak; where nothing measures it, the most that it may be."""
    peak = finite(gpu.bandwidth_peak_bytes_per_s)
    if rate is None or not peak:
        return None
    return rate / peak


def _power_share(watts: float | None, gpu: Gpu) -> float | None:
    """Power as a share of the limit."""
    limit_w = finite(gpu.reading.power_limit_w)
    if watts is None or not limit_w:
        return None
    return watts / limit_w


def _note_work(recent: Recent, gpu: Gpu, now_s: float) -> None:
    """Note since when a GPU spins, and when it worked last, by its newest sample."""
    dram = _dram_share(recent.last("bandwidth_bytes_per_s"), gpu)
    tensor = recent.last("tensor_active_ratio")
    if (dram or 0.0) >= _WORK_DRAM or (tensor or 0.0) >= _WORK_TENSOR:
        recent.worked_s = now_s
    if _spins(recent, gpu, dram):
        recent.spun_s = now_s
        recent.spins_since_s = min(recent.spins_since_s, now_s)
    elif now_s - recent.spun_s > _STILL_S:
        recent.spins_since_s = math.inf


def _spins(recent: Recent, gpu: Gpu, dram: float | None) -> bool:
    """Whether a kernel runs on a GPU all the time that computes nothing and moves nothing, by its newest sample.

    Where neither tensor cores nor power are told it is not known.
    """
    busy = recent.last("busy_ratio")
    if busy is None or busy < _SPIN_BUSY or dram is None or dram >= _SPIN_DRAM:
        return False
    tensor = recent.last("tensor_active_ratio")
    power = _power_share(recent.last("power_w"), gpu)
    if tensor is None and power is None:
        return False
    signs = (
        (tensor, _SPIN_TENSOR),
        (recent.last("sm_active_ratio"), _SPIN_SM),
        (power, _SPIN_POWER),
        (recent.last("nvlink_bytes_per_s"), _SPIN_NVLINK_BYTES_PER_S),
    )
    return all(value is None or value < most for value, most in signs)


def _spinning_s(case: Case, gpus: Sequence[Gpu]) -> float:
    """For how long all of some GPUs have spun; 0 where one does not."""
    since_s = max(case.recents[gpu.reading.uuid].spins_since_s for gpu in gpus)
    return max(0.0, case.now_s - since_s)


def _idle_s(case: Case, gpu: Gpu) -> float:
    """For how long a GPU has done nothing, as far as it was sampled; 0 where it works."""
    recent = case.recents[gpu.reading.uuid]
    if recent.last("awake") != 0.0:
        return 0.0
    return recent.steady_s("awake")


def collective_hang(case: Case) -> Finding | None:
    """Rule: all GPUs of a program wait in a collective, in which nothing moves: a rank did not come to it."""
    program = program_of(case)
    if program is None or len(program.gpus) < 2 or program.left:
        return None
    return once_for(case, program, _hang_of)


COLLECTIVE_HANG: Final = Cause(
    "collective_hang",
    Limit.HUNG,
    (
        "{program} has waited in a collective for {seconds:lasted} on gpu {on}: busy, no "
        "arithmetic[, memory bandwidth {dram:percent}][, power {power:percent} of the limit]: a rank "
        "did not come to it, or the way to it is broken"
    ),
)


def _hang_of(case: Case, program: ProgramGpus) -> Finding | None:
    """The finding on a program whose GPUs have all spun for long; None where they did not."""
    spinning_s = _spinning_s(case, program.gpus)
    if spinning_s < _HANG_S or (spinning_s < _LONG_HANG_S and _may_save(case)):
        return None
    spin = _spin_of(case, program.gpus)
    has_worked = any(case.recents[gpu.reading.uuid].worked_s > -math.inf for gpu in program.gpus)
    if not (has_worked or _never_moves(spin, spinning_s)) or not _is_steady(case, program.gpus):
        return None
    is_certain = has_worked and spinning_s >= _LONG_HANG_S
    return COLLECTIVE_HANG.finding(
        parameters=params(
            program=program.name, on=program.indices, seconds=spinning_s, dram=spin.dram, power=spin.power
        ),
        evidence=tuple(_spin_evidence(case, program.gpus)),
        actions=(
            DUMP_RANKS.action(pids=_pids_text(program.pids) or None),
            RESTART_JOB.action(program=program.name if program.pids else None, after=YES),
        ),
        level=Level.CRITICAL if is_certain else Level.WARN,
        confidence=Confidence.HIGH if has_worked else Confidence.MEDIUM,
        began_s=case.now_s - spinning_s,
    )


def _never_moves(spin: _Spin, seconds: float) -> bool:
    """Whether GPUs that were never seen at work have spun for so long, and so still, that they hang."""
    return seconds >= _UNSEEN_HANG_S and (spin.dram or 0.0) < _UNSEEN_DRAM


def _is_steady(case: Case, gpus: Sequence[Gpu]) -> bool:
    """Whether the power of all these GPUs stands still, as far as it is told: work swings."""
    for gpu in gpus:
        watts = [value for _, value in case.recents[gpu.reading.uuid].values("power_w", _STEADY_S)]
        mean = mean_known(watts)
        if mean and max(watts) - min(watts) > _STEADY_POWER * mean:
            return False
    return True


class _Spin(NamedTuple):
    """Figures of GPUs that spin: means over the last minute and over all of them; None where they are not known."""

    busy: float | None
    sm: float | None
    tensor: float | None
    dram: float | None
    power: float | None


def _spin_of(case: Case, gpus: Sequence[Gpu]) -> _Spin:
    """The figures of some GPUs that spin."""

    def mean(field: str) -> float | None:
        return mean_known(case.recents[gpu.reading.uuid].mean(field, MINUTE_S) for gpu in gpus)

    drams = []
    powers = []
    for gpu in gpus:
        recent = case.recents[gpu.reading.uuid]
        drams.append(_dram_share(recent.mean("bandwidth_bytes_per_s", MINUTE_S), gpu))
        powers.append(_power_share(recent.mean("power_w", MINUTE_S), gpu))
    return _Spin(
        busy=mean("busy_ratio"),
        sm=mean("sm_active_ratio"),
        tensor=mean("tensor_active_ratio"),
        dram=mean_known(drams),
        power=mean_known(powers),
    )


def _spin_evidence(case: Case, gpus: Sequence[Gpu]) -> Iterator[Evidence]:
    """Evidence that GPUs are busy and compute nothing."""
    spin = _spin_of(case, gpus)
    over = params(gpus=float(len(gpus)))
    first = gpus[0]
    source = first.reading.activity_source or "GPM"
    dram = DRAM_AT_MOST if first.bandwidth_source is BandwidthSource.UPPER_BOUND else DRAM_ACTIVE
    figures = (
        BUSY.evidence(spin.busy or 0.0, source=first.sources.get("busy_ratio", ""), chart=gpu_chart(first, "busy")),
        _known(SM_ACTIVE, spin.sm, _SPIN_SM, source),
        _known(TENSOR_ACTIVE, spin.tensor, _SPIN_TENSOR, source),
        _known(dram, spin.dram, _SPIN_DRAM, source),
        _known(POWER_SHARE, spin.power, _SPIN_POWER, first.sources.get("power_w", "")),
    )
    for evidence in figures:
        if evidence is not None:
            yield msgspec.structs.replace(evidence, parameters=over)


def _known(quantity: Quantity, value: float | None, limit: float, source: str) -> Evidence | None:
    """Evidence of a figure, where it is known."""
    return None if value is None else quantity.evidence(value, limit=limit, source=source)


RANK_GONE: Final = Cause(
    "rank_gone",
    Limit.HUNG,
    (
        "its process is gone, with {others:gpus} of {program} (gpu {on}) waiting for it in a "
        "collective for {seconds:lasted}"
    ),
    level=Level.CRITICAL,
)


def idle_rank(case: Case) -> Finding | None:
    """Rule: a GPU of a program does nothing, or its process is gone, and all others wait for it in a collective."""
    program = _program_with_gap(case)
    if program is None or program.serves or not program.command:
        return None
    gpu = gpu_of(case)
    wait = once_for(case, program, _wait_for_ranks)
    if wait is None or gpu in wait.gpus:
        return None
    parameters = params(
        program=program.name,
        others=float(len(wait.gpus)),
        on=index_ranges(sorted(other.reading.index for other in wait.gpus)),
        seconds=wait.seconds,
    )
    finding = RANK_GONE.finding(
        parameters=parameters,
        evidence=wait.evidence,
        actions=(RESTART_JOB.action(program=program.name),),
        began_s=case.now_s - wait.seconds,
    )
    if gpu in program.left:
        return finding
    dump = DUMP_RANK.action(pids=_pids_text([process.pid for process in gpu.reading.processes]))
    level = Level.CRITICAL if program.trains and wait.seconds >= _LONG_HANG_S else Level.WARN
    confidence = Confidence.HIGH if program.trains else Confidence.LOW  # another one may wait for a request
    restart = RESTART_JOB.action(program=program.name, after=YES)
    return finding._replace(cause=RANK_IDLE.code, actions=(dump, restart), level=level, confidence=confidence)


class _RankWait(NamedTuple):
    """GPUs of a program that wait for its other ranks."""

    gpus: list[Gpu]
    seconds: float
    evidence: tuple[Evidence, ...]


def _wait_for_ranks(case: Case, program: ProgramGpus) -> _RankWait | None:
    """The GPUs of a program that have waited long for its idle ones; None where none does."""
    waiting = _gpus_that_wait(case, program)
    if not waiting:
        return None
    seconds = _spinning_s(case, waiting)
    if seconds < _IDLE_RANK_S or (seconds < _LONG_HANG_S and _may_save(case)):
        return None
    return _RankWait(waiting, seconds, tuple(_spin_evidence(case, waiting)))


def _gpus_that_wait(case: Case, program: ProgramGpus) -> list[Gpu]:
    """The GPUs of a program that may wait for the idle ones; none where nothing is idle, or more than half is: then
    each of its GPUs does something else."""
    waiting = [gpu for gpu in program.gpus if _idle_s(case, gpu) < _IDLE_RANK_S]
    idle = len(program.gpus) + len(program.left) - len(waiting)
    return waiting if 0 < idle <= len(waiting) else []


def _program_with_gap(case: Case) -> ProgramGpus | None:
    """The program of the GPU of a case, or the one that had a process on it and runs on elsewhere."""
    programs = programs_by_gpu(case)
    program = programs.get(case.key)
    if program is not None:
        return program
    for other in programs.values():
        if any(gpu.reading.uuid == case.key for gpu in other.left):
            return other
    return None


def _written_per_s(case: Case) -> float | None:
    """Bytes/s written to the host's disks lately; None where that is not known."""
    return finite(case.host_recent.mean("disk_write_bytes_per_s", _SAVE_S))


def _may_save(case: Case) -> bool:
    """Whether the disks are written as a checkpoint does it, or nobody knows."""
    written = _written_per_s(case)
    return written is None or written >= _WRITE_BYTES_PER_S


def checkpoint(case: Case) -> Finding | None:
    """Rule: GPUs of a program that worked wait, all or for one, while the host's disks are written."""
    program = program_of(case)
    written = _written_per_s(case)
    if program is None or written is None or written < _WRITE_BYTES_PER_S:
        return None
    return once_for(case, program, _save_of)


CHECKPOINT: Final = Cause(
    "checkpoint",
    Limit.HOST_DISK,
    "a checkpoint, as it seems: {disk:bytes}/s are written, and {program} on gpu {on} has waited for {seconds:lasted}",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)


def _save_of(case: Case, program: ProgramGpus) -> Finding | None:
    """The finding on a program whose GPUs wait while the disks are written; None where they do not."""
    written = _written_per_s(case) or 0.0
    waiting_s = min(max(_idle_s(case, gpu), _spinning_s(case, (gpu,))) for gpu in program.gpus)
    worked_s = max(case.recents[gpu.reading.uuid].worked_s for gpu in program.gpus)
    if waiting_s < _SAVE_S or worked_s == -math.inf:
        return None
    parameters = params(program=program.name, on=program.indices, seconds=waiting_s, disk=written)
    evidence = [DISK_WRITES.evidence(written, limit=_WRITE_BYTES_PER_S, source="/proc/diskstats")]
    return CHECKPOINT.finding(
        parameters=parameters,
        evidence=tuple(evidence),
        actions=(FASTER_CHECKPOINT.action(program=program.name),),
        began_s=case.now_s - waiting_s,
    )


def starved(case: Case) -> Finding | None:
    """Rule: all GPUs of a training program wait for their host, a part of which is at its limit."""
    program = program_of(case)
    if program is None or waits_for_rank(case):
        return None
    waits = waits_of_gpus(case)
    if waits is None or not _waits_in_each_round(case, program, waits):
        return None
    finding = finding_on_waits(case, waits)
    if finding is None or finding.code is Limit.UNKNOWN or finding.parameters.get("part") == "busiest_core":
        return finding
    confidence = Confidence.LOW if waits.rhythm is None else Confidence.MEDIUM
    return finding._replace(level=Level.WARN, confidence=confidence)


def _waits_in_each_round(case: Case, program: ProgramGpus, waits: Waits) -> bool:
    """Whether the wait of a program's GPUs is part of each of its rounds, and the same for all of them."""
    # Training goes round in a loop: several GPUs in one rhythm, and nobody to answer.
    is_loop = waits.rhythm is not None and len(program.gpus) > 1 and bool(program.command) and not program.serves
    if not (program.trains or is_loop):
        return False
    if waits.rhythm is None and not _LEAST_STARVED < waits.busy < case.thresholds.starved_busy_ratio:
        return False
    return once_for(case, program, _busy_spread) <= _SAME_BUSY and _longest_rest_s(case.recent) <= _REST_S


def _busy_spread(case: Case, program: ProgramGpus) -> float:
    """Difference between the busy shares of a program's busiest and idlest GPU in the last minute."""
    busy = [finite(case.recents[gpu.reading.uuid].mean("busy_ratio", MINUTE_S)) or 0.0 for gpu in program.gpus]
    return max(busy) - min(busy)


def waits_for_host(case: Case) -> Finding | None:
    """Rule: a GPU of any program waits for its host in a rhythm; one that answers requests waits for those."""
    program = program_of(case)
    if program is not None and (program.serves or waits_for_rank(case)):
        return None
    return input_starved(case)


def _longest_rest_s(recent: Recent) -> float:
    """Longest time in the last minute for which a GPU did nothing."""
    longest_s = 0.0
    began_s: float | None = None
    for sampled_s, busy in recent.values("busy_ratio", MINUTE_S):
        if busy > AWAKE:
            began_s = None
            continue
        if began_s is None:
            began_s = sampled_s
        longest_s = max(longest_s, sampled_s - began_s)
    return longest_s


NO_TENSOR_CORES: Final = Cause(
    "no_tensor_cores",
    Limit.LOW_EFFICIENCY,
    (
        "FP32 or FP64, without tensor cores: {program} on gpu {on} with SM active {sm:percent}, "
        "power {power:percent} of the limit"
    ),
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)


def without_tensor_cores(case: Case) -> Finding | None:
    """Rule: a program of a framework computes all the time, and its tensor cores do nothing: FP32 or FP64."""
    program = program_of(case)
    if program is None or is_explained(case) or not _FRAMEWORK.search(f"{program.command} {program.name}"):
        return None
    gpu = gpu_of(case)
    plain = _plain_arithmetic(case, gpu)
    if plain is None:
        return None
    source = gpu.reading.activity_source or "GPM"
    evidence = (
        SM_ACTIVE.evidence(plain.sm, limit=PLAIN_SM, source=source, chart=gpu_chart(gpu, "sm")),
        TENSOR_ACTIVE.evidence(plain.tensor, limit=_SPIN_TENSOR, source=source, chart=gpu_chart(gpu, "tensor")),
        DRAM_ACTIVE.evidence(plain.dram, limit=_PLAIN_DRAM, source=source),
        POWER_SHARE.evidence(plain.power, limit=_PLAIN_POWER, source=gpu.sources.get("power_w", "")),
    )
    return NO_TENSOR_CORES.finding(
        parameters=params(program=program.name, on=program.indices, sm=plain.sm, power=plain.power),
        evidence=evidence,
        actions=(USE_TENSOR_CORES.action(program=program.name),),
    )


class _PlainArithmetic(NamedTuple):
    """Means of a GPU that computes all the time without its tensor cores: shares of time, of the peak, of the limit."""

    sm: float
    tensor: float
    dram: float
    power: float


def _plain_arithmetic(case: Case, gpu: Gpu) -> _PlainArithmetic | None:
    """The figures of a GPU that computes without tensor cores; None where it does not, or nothing measures that."""
    recent = case.recent
    if recent.seconds < _PLAIN_S:
        return None
    sm = finite(recent.mean("sm_active_ratio", _PLAIN_S))
    tensor = finite(recent.mean("tensor_active_ratio", _PLAIN_S))
    power = _power_share(finite(recent.mean("power_w", _PLAIN_S)), gpu)
    dram = _dram_share(finite(recent.mean("bandwidth_bytes_per_s", _PLAIN_S)), gpu)
    if sm is None or tensor is None or power is None or dram is None:
        return None
    computes = sm >= PLAIN_SM and power >= _PLAIN_POWER
    if not computes or tensor >= _SPIN_TENSOR or dram >= _PLAIN_DRAM:
        return None
    return _PlainArithmetic(sm, tensor, dram, power)


def waits_for_rank(case: Case) -> bool:
    """Whether the GPU of a case waits in a collective: another verdict says why, and its use is no question then."""
    program = program_of(case)
    return (
        program is not None and len(program.gpus) + len(program.left) > 1 and _spinning_s(case, (gpu_of(case),)) > 0.0
    )


def _pids_text(pids: Sequence[int]) -> str:
    """Pids for a shell: `4711 4712`."""
    return " ".join(str(pid) for pid in pids[:_MOST_PIDS])
