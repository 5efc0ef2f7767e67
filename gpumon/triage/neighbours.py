"""Another program that is at work on an engine's GPU and costs its requests latency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.service import FRONTENDS
from gpumon.figures.gpu import SHARES_OF_PEAKS
from gpumon.readings.frame import GpuProcess
from gpumon.readings.process_words import program_title
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.readings.text import clean
from gpumon.readings.verdict import Confidence, Evidence, Level, Limit, Parameters
from gpumon.triage.finding import Cause, Finding, Quantity, params
from gpumon.triage.prefix_cache import later_first_tokens
from gpumon.triage.sentences import OWN_GPUS
from gpumon.triage.signals import NOW_S, Case, finite, gpu_chart
from gpumon.triage.speculation import slower_tokens
from gpumon.triage.step_time import step_bytes_s

AT_WORK_SHARE: Final = 0.1
"""Share of the SMs' time from which on another program is at work: a display or an idle context takes less."""
LARGE_SHARE: Final = 0.3
"""Share of the SMs' time from which on another program is reported even where latencies have not changed."""
UNEXPLAINED: Final = 0.25
"""How far a GPU's arithmetic or memory traffic is above the engine's own for others to be at work there."""
POOR_BANDWIDTH: Final = 0.35
"""Share of the peak bandwidth at which a step reads its bytes on a poorly tuned stack."""
SLOW_STEPS: Final = 3.0
"""Times as long as its bytes take at that bandwidth from which on a step waits for something else."""
SLOW_STEP_S: Final = 0.05
"""Shortest step that waits for something else: the host's own part of a step takes 10 to 30 ms at most."""
_MOST_PREFILL: Final = 0.15
"""Prefill MFU up to which the time per token is that of decode steps."""
OWN_LIMIT: Final = 0.5
"""MFU or MBU from which on an engine is slow by itself."""


ITL_ALONE: Final = Quantity(
    "itl_alone",
    "ITL {value:latency}, about {limit:latency} by the bytes that a step reads",
    field="itl_mean_s",
    chart="itl",
)
NEIGHBOUR_SM: Final = Quantity(
    "neighbour_sm", "[{engine}|{process}[ (pid {pid})]] takes {value:percent} of the SMs' time"
)

NEIGHBOUR: Final = Cause(
    "neighbour",
    Limit.GPU_SHARED,
    (
        "it shares {gpu} with [{engine}|{process}[ (pid {pid})][ of {owner}]][, which takes "
        "{share:percent} of its time][; ITL {itl_s:latency}[, {itl_before_s:latency} before|, about "
        "{alone_s:latency} alone]][; TTFT was {ttft_before_s:latency}]"
    ),
    confidence=Confidence.MEDIUM,
)


class Neighbour(NamedTuple):
    """A program on a GPU of the engine that is not its own."""

    gpu: Gpu
    names: Parameters
    """Its name as parameters of the sentence: of an engine, or of a process."""
    sm_ratio: float | None
    """Share of the SMs' time that it takes; None where the driver does not tell."""
    is_at_work: bool
    """It works for sure; else it holds memory while the engine's steps are far too long."""


def neighbour(case: Case) -> Finding | None:
    """Rule: another program works on an engine's GPU, and the engine's latencies are late, or far above those of before
    or what its own steps explain."""
    engine = case.serving_engine()
    if engine is None or not _can_be_held_up(case):
        return None
    slow_step = _slow_step_evidence(case, engine)
    # Where its steps are far too long, a program that only holds memory as far as is known may be why.
    neighbours = _process_neighbours(case, engine, suspected=slow_step is not None)
    neighbours += _engine_neighbours(case, engine)
    program = max(neighbours, key=_order_of_use, default=None)
    if program is None:
        return None
    late = case.late_latencies()
    risen = [latency for latency in (slower_tokens(case), later_first_tokens(case)) if latency is not None]
    is_felt = bool(late or risen) or slow_step is not None
    if not is_felt and (program.sm_ratio is None or program.sm_ratio < LARGE_SHARE):
        return None
    evidence = _neighbour_evidence(program, slow_step)
    evidence += [*risen, *late, *case.work_evidence(case.activity())]
    level = Level.WARN if is_felt and program.is_at_work else Level.NOTE
    own_gpus = OWN_GPUS.action(shared=program.names.get("engine"), process=program.names.get("process"))
    return NEIGHBOUR.finding(
        parameters=_neighbour_parameters(case, program, risen, slow_step),
        evidence=tuple(evidence),
        actions=(own_gpus,),
        level=level,
        confidence=_confidence(case, program, has_risen=bool(risen)),
    )


def _neighbour_evidence(program: Neighbour, slow_step: Evidence | None) -> list[Evidence]:
    """The SM time that the program takes, and the step that takes longer than its own work explains."""
    evidence: list[Evidence] = []
    if program.sm_ratio is not None:
        chart = gpu_chart(program.gpu, "busy")
        evidence.append(NEIGHBOUR_SM.evidence(program.sm_ratio, source="driver", chart=chart, parameters=program.names))
    if slow_step is not None:
        evidence.append(slow_step)
    return evidence


def _neighbour_parameters(
    case: Case, program: Neighbour, risen: Sequence[Evidence], slow_step: Evidence | None
) -> Parameters:
    """Figures of the sentence: the program and its GPU, and the latency beside the one that it should be."""
    gpu = f"gpu {program.gpu.reading.index}"
    parameters = program.names | params(gpu=gpu, share=program.sm_ratio, itl_s=case.mean("itl_mean_s"))
    if risen:
        name = "ttft_before_s" if risen[0].quantity == "ttft_before" else "itl_before_s"
        return parameters | params(**{name: finite(risen[0].limit)})
    if slow_step is not None:
        return parameters | params(alone_s=finite(slow_step.limit))
    return parameters


def _confidence(case: Case, program: Neighbour, *, has_risen: bool) -> Confidence:
    """How sure it is that the program costs latency: high where both its SM time and the rise were measured; a step
    less where the engine may fill the GPU by itself, as its own share of the peaks is not known."""
    is_measured = has_risen and program.sm_ratio is not None
    is_own_work_known = all(case.mean(field) is not None for field in SHARES_OF_PEAKS)
    if not program.is_at_work or not (is_measured or is_own_work_known):
        return Confidence.LOW
    if is_measured and is_own_work_known:
        return Confidence.HIGH
    return Confidence.MEDIUM


def _slow_step_evidence(case: Case, engine: Engine) -> Evidence | None:
    """The time per token beside what its steps take alone, where it is far longer: by the bytes that they read."""
    itl_s = case.mean("itl_mean_s")
    prefill = case.mean("mfu_prefill_ratio")
    bytes_s = step_bytes_s(engine)
    if itl_s is None or prefill is None or prefill > _MOST_PREFILL or bytes_s is None:
        return None
    alone_s = bytes_s / POOR_BANDWIDTH
    per_step = finite(engine.rates.tokens_per_step) or 1.0
    if itl_s * per_step < max(SLOW_STEP_S, SLOW_STEPS * alone_s):
        return None
    return case.evidence(ITL_ALONE, itl_s, limit=alone_s / per_step)


def _can_be_held_up(case: Case) -> bool:
    """Whether the engine has requests on known GPUs, and does not fill these with its own work as far as that is
    known."""
    running = case.mean("running") or 0.0
    if not case.gpus or running <= 0.0:
        return False
    return all((case.mean(field) or 0.0) < OWN_LIMIT for field in SHARES_OF_PEAKS)


def _order_of_use(program: Neighbour) -> tuple[bool, float]:
    """Order of programs by what they take: one whose SM time is not known comes after those that are at work."""
    if program.sm_ratio is None:
        return (program.is_at_work, -1.0)
    return (program.is_at_work, program.sm_ratio)


def _process_neighbours(case: Case, engine: Engine, *, suspected: bool) -> list[Neighbour]:
    """Processes of no engine that are at work on its GPUs, where its own is among the processes there."""
    neighbours = []
    for gpu in case.gpus:
        if all(process.engine != engine.name for process in gpu.reading.processes):
            continue
        for process in gpu.reading.processes:
            if process.engine:
                continue
            is_at_work = _is_at_work(case, gpu, process)
            may_be_at_work = suspected and finite(process.sm_ratio) is None and _holds_memory(case, gpu, process)
            if is_at_work or may_be_at_work:
                names = params(process=program_title(process), pid=str(process.pid), owner=clean(process.user, 24))
                neighbours.append(Neighbour(gpu, names, finite(process.sm_ratio), is_at_work))
    return neighbours


def _is_at_work(case: Case, gpu: Gpu, process: GpuProcess) -> bool:
    """Whether a process takes SM time; where that is not known, whether it explains what the GPU does."""
    sm_ratio = finite(process.sm_ratio)
    if sm_ratio is not None:
        return sm_ratio >= AT_WORK_SHARE
    return _holds_memory(case, gpu, process) and _does_more_than_engine(case, gpu)


def _holds_memory(case: Case, gpu: Gpu, process: GpuProcess) -> bool:
    """Whether a process holds more memory than a bare context; also where that is not known."""
    held = finite(process.vram_bytes)
    total = finite(gpu.reading.vram_total_bytes)
    return held is None or not total or held > case.thresholds.held_ratio * total


def _does_more_than_engine(case: Case, gpu: Gpu) -> bool:
    """Whether a GPU computes or reads far more than the engine needs."""
    tensor = case.gpu_mean(gpu, "tensor_active_ratio")
    mfu = case.mean("mfu_ratio")
    dram = case.dram_of(gpu)
    mbu = case.mean("mbu_ratio")
    computes = tensor is not None and mfu is not None and tensor - mfu >= UNEXPLAINED
    reads = dram is not None and mbu is not None and dram - mbu >= UNEXPLAINED
    return computes or reads


def _engine_neighbours(case: Case, engine: Engine) -> list[Neighbour]:
    """Other engines with requests on its GPUs."""
    neighbours = []
    for other, reading in zip(case.snapshot.engines, case.frame.engines, strict=True):
        if other.key == engine.key or other.kind in FRONTENDS:
            continue
        gpu = next((own for uuid in reading.gpus for own in case.gpus if own.reading.uuid == uuid), None)
        if gpu is None or not _has_requests(case, other):
            continue
        sm_ratio = _sm_share_of_engine(gpu, other)
        if sm_ratio is None or sm_ratio >= AT_WORK_SHARE:
            neighbours.append(Neighbour(gpu, params(engine=other.name), sm_ratio, is_at_work=True))
    return neighbours


def _sm_share_of_engine(gpu: Gpu, engine: Engine) -> float | None:
    """Share of the SMs' time that an engine's processes take; None where the driver does not tell."""
    shares = [finite(process.sm_ratio) for process in gpu.reading.processes if process.engine == engine.name]
    known_shares = [share for share in shares if share is not None]
    if known_shares:
        return sum(known_shares)
    return None


def _has_requests(case: Case, other: Engine) -> bool:
    """Whether another engine runs requests now."""
    recent = case.recents.get(other.key)
    return recent is not None and (recent.mean("running", NOW_S) or 0.0) > 0.0
