"""Another program that is at work on an engine's GPU and costs its requests latency."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.efficiency.service import FRONTENDS
from gpumon.readings.process_words import titled
from gpumon.readings.snapshot import Engine, Gpu, Process
from gpumon.readings.text import clean
from gpumon.readings.verdict import Confidence, Evidence, Level, Limit, Parameters
from gpumon.triage.lost_gains import later_first_tokens, slower_tokens
from gpumon.triage.signals import NOW_S, Case, Finding, action, finite, of_gpu, params

TAKES: Final = 0.1
"""Share of the SMs' time from which on another program is at work: a display or an idle context takes less."""
TAKES_MUCH: Final = 0.3
"""Share of the SMs' time from which on it is reported even where latencies have not changed."""
UNEXPLAINED: Final = 0.25
"""How far a GPU's arithmetic or memory traffic is above the engine's own for others to be at work there."""
POOR: Final = 0.35
"""Share of the peak bandwidth at which a step reads its bytes on a poorly tuned stack."""
SLOW_STEPS: Final = 3.0
"""Times so long as that from which on a step waits for something else."""
SLOW_STEP_S: Final = 0.05
"""Shortest step that does: the host's own part of a step takes 10 to 30 ms at most."""
MOST_PREFILL: Final = 0.15
"""Prefill MFU up to which the time per token is that of decode steps."""
OWN_LIMIT: Final = 0.5
"""MFU or MBU from which on an engine is slow by itself."""


class Neighbour(NamedTuple):
    """A program on a GPU of the engine that is not its own."""

    gpu: Gpu
    said: Parameters
    """Names of its sentence."""
    sm_ratio: float | None
    """Share of the SMs' time that it takes; None where the driver does not tell."""
    is_at_work: bool
    """It works for sure; else it holds memory while the engine's steps are far too long."""


def neighbour(case: Case) -> Finding | None:
    """Another program works on its GPU, and its latencies are late, far above those of before, or far above what its
    own steps explain."""
    engine = case.served()
    if engine is None or not case.gpus or (case.mean("running") or 0.0) <= 0.0 or _is_at_its_limit(case):
        return None
    steps = _slow_steps(case, engine)
    beside = _busiest(case, engine, suspected=steps is not None)
    if beside is None:
        return None
    slow = case.late()
    risen = [one for one in (slower_tokens(case), later_first_tokens(case)) if one is not None]
    takes = beside.sm_ratio
    costs = bool(slow or risen or steps is not None)
    if not costs and (takes is None or takes < TAKES_MUCH):
        return None
    proof: list[Evidence] = []
    if takes is not None:
        chart = of_gpu(beside.gpu, "busy")
        proof.append(Evidence("neighbour_sm", takes, source="driver", chart=chart, parameters=beside.said))
    if steps is not None:
        proof.append(steps)
    proof += [*risen, *slow, *case.work(case.activity())]
    said = beside.said | params(gpu=f"gpu {beside.gpu.index}", share=takes, itl_s=case.mean("itl_mean_s"))
    if risen:
        said |= _of_before(risen[0])
    elif steps is not None:
        said |= params(alone_s=finite(steps.limit))
    level = Level.WARN if costs and beside.is_at_work else Level.NOTE
    fixes = (action("own_gpus", shared=str(beside.said.get("process", beside.said.get("engine", "")))),)
    sure = _confidence(beside, risen=bool(risen))
    return Finding(Limit.GPU_SHARED, "neighbour", said, tuple(proof), fixes, level, sure)


def _of_before(risen: Evidence) -> Parameters:
    """The latency of before, as the sentence names it."""
    name = "ttft_before_s" if risen.quantity == "ttft_before" else "itl_before_s"
    return params(**{name: finite(risen.limit)})


def _confidence(beside: Neighbour, *, risen: bool) -> Confidence:
    if not beside.is_at_work:
        return Confidence.LOW
    return Confidence.HIGH if risen and beside.sm_ratio is not None else Confidence.MEDIUM


def _slow_steps(case: Case, engine: Engine) -> Evidence | None:
    """The time per token beside what its steps take alone, where it is far longer: by the bytes that they read."""
    itl_s = case.mean("itl_mean_s")
    prefill = case.mean("mfu_prefill_ratio")
    steps_per_s = finite(engine.rates.steps_per_s)
    kv = finite(engine.efficiency.kv_bytes_per_s)
    weights = finite(engine.efficiency.weight_bytes)
    peak = finite(engine.efficiency.peak_bandwidth_bytes_per_s)
    if itl_s is None or prefill is None or prefill > MOST_PREFILL:
        return None
    if not steps_per_s or not weights or not peak or kv is None:
        return None
    of_a_rank = peak / max(1, engine.hardware.ranks)
    alone_s = (weights + kv / steps_per_s) / of_a_rank / POOR
    per_step = finite(engine.rates.tokens_per_step) or 1.0
    if itl_s * per_step < max(SLOW_STEP_S, SLOW_STEPS * alone_s):
        return None
    return case.evidence("itl_alone", "itl_mean_s", itl_s, "itl", alone_s / per_step)


def _is_at_its_limit(case: Case) -> bool:
    """The engine's own work fills its GPUs."""
    return any((case.mean(field) or 0.0) >= OWN_LIMIT for field in ("mfu_ratio", "mbu_ratio"))


def _busiest(case: Case, engine: Engine, *, suspected: bool) -> Neighbour | None:
    """The program at work beside the engine that takes most; where one is `suspected`, also one that only
    holds memory as far as is known."""
    found = [*_processes(case, engine, suspected=suspected), *_engines(case, engine)]
    return max(found, key=_weight) if found else None


def _weight(beside: Neighbour) -> tuple[bool, float]:
    return beside.is_at_work, -1.0 if beside.sm_ratio is None else beside.sm_ratio


def _processes(case: Case, engine: Engine, *, suspected: bool) -> list[Neighbour]:
    """Processes of no engine that are at work on its GPUs, where its own is among the processes there."""
    found = []
    for gpu in case.gpus:
        own = [process for process in gpu.processes if process.engine == engine.name]
        others = [process for process in gpu.processes if not process.engine]
        for process in others if own else ():
            takes = finite(process.sm_ratio)
            holds = _holds(case, gpu, process)
            works = holds and _is_unexplained(case, gpu) if takes is None else takes >= TAKES
            if works or (suspected and takes is None and holds):
                said = params(process=titled(process), pid=str(process.pid), owner=clean(process.user, 24))
                found.append(Neighbour(gpu, said, takes, works))
    return found


def _holds(case: Case, gpu: Gpu, process: Process) -> bool:
    """Whether a process holds more memory than a bare context."""
    held = finite(process.vram_bytes)
    total = finite(gpu.vram_total_bytes)
    return held is None or not total or held > case.thresholds.held_ratio * total


def _is_unexplained(case: Case, gpu: Gpu) -> bool:
    """Whether a GPU computes or reads far more than the engine needs."""
    tensor = case.gpu_mean(gpu, "tensor_active_ratio")
    mfu = case.mean("mfu_ratio")
    dram = case.dram_of(gpu)
    mbu = case.mean("mbu_ratio")
    computes = tensor is not None and mfu is not None and tensor - mfu >= UNEXPLAINED
    reads = dram is not None and mbu is not None and dram - mbu >= UNEXPLAINED
    return computes or reads


def _engines(case: Case, engine: Engine) -> list[Neighbour]:
    """Other engines with requests on its GPUs."""
    here = {gpu.uuid: gpu for gpu in case.gpus}
    found = []
    for other, reading in zip(case.snapshot.engines, case.frame.engines, strict=True):
        shared = [uuid for uuid in reading.gpus if uuid in here]
        if other.key == engine.key or other.kind in FRONTENDS or not shared or not _works(case, other):
            continue
        gpu = here[shared[0]]
        shares = [finite(process.sm_ratio) for process in gpu.processes if process.engine == other.name]
        known = [share for share in shares if share is not None]
        takes = sum(known) if known else None
        if takes is None or takes >= TAKES:
            found.append(Neighbour(gpu, params(engine=other.name), takes, is_at_work=True))
    return found


def _works(case: Case, other: Engine) -> bool:
    recent = case.others.get(other.key)
    return recent is not None and (recent.mean("running", NOW_S) or 0.0) > 0.0
