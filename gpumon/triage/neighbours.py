"""Another program that is at work on an engine's GPU and costs its requests latency."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.efficiency.service import FRONTENDS
from gpumon.readings.missing import Missing
from gpumon.readings.process_words import titled
from gpumon.readings.snapshot import Engine, Gpu, Process
from gpumon.readings.text import clean
from gpumon.readings.verdict import Confidence, Evidence, Level, Limit, Parameters
from gpumon.triage.lost_gains import later_first_tokens, slower_tokens
from gpumon.triage.signals import NOW_S, Case, Finding, action, finite, of_gpu, params

TAKES: Final = 0.1
"""Share of the SMs' time from which on another program is at work: a display or an idle context takes less."""
TAKES_MUCH: Final = 0.3
"""The same from which on it is told also where latencies have always been as they are."""
UNEXPLAINED: Final = 0.25
"""How far a GPU's arithmetic or memory traffic is above the engine's own for others to be at work there."""
OWN_LIMIT: Final = 0.5
"""MFU or MBU from which on an engine is slow by itself."""


class Neighbour(NamedTuple):
    """A program on a GPU of the engine that is not its own."""

    gpu: Gpu
    said: Parameters
    """Names of its sentence."""
    sm_ratio: float | None
    """Share of the SMs' time that it takes; None where the driver does not tell."""


def neighbour(case: Case) -> Finding | None:
    """Another program works on its GPU, and its latencies are late or far above those of before."""
    engine = case.served()
    if engine is None or not case.gpus or (case.mean("running") or 0.0) <= 0.0 or _is_at_its_limit(case):
        return None
    beside = _busiest(case, engine)
    if beside is None:
        return None
    slow = case.late()
    risen = [one for one in (slower_tokens(case), later_first_tokens(case)) if one is not None]
    takes = beside.sm_ratio
    if not (slow or risen) and (takes is None or takes < TAKES_MUCH):
        return None
    proof: list[Evidence] = []
    if takes is not None:
        proof.append(
            Evidence("neighbour_sm", takes, source="driver", chart=of_gpu(beside.gpu, "busy"), parameters=beside.said)
        )
    proof += [*risen, *slow, *case.work(case.activity())]
    itl_s = case.mean("itl_mean_s")
    said = beside.said | params(gpu=f"gpu {beside.gpu.index}", share=takes, itl_s=itl_s)
    if risen:
        before = risen[0].limit
        quantity = "ttft_before_s" if risen[0].quantity == "ttft_before" else "itl_before_s"
        if not isinstance(before, Missing):
            said |= {quantity: before}
    level = Level.WARN if slow or risen else Level.NOTE
    sure = Confidence.HIGH if risen and takes is not None else Confidence.MEDIUM
    fixes = (action("own_gpus", shared=str(beside.said.get("process", beside.said.get("engine", "")))),)
    return Finding(Limit.GPU_SHARED, "neighbour", said, tuple(proof), fixes, level, sure)


def _is_at_its_limit(case: Case) -> bool:
    """The engine's own work fills its GPUs."""
    return any((case.mean(field) or 0.0) >= OWN_LIMIT for field in ("mfu_ratio", "mbu_ratio"))


def _busiest(case: Case, engine: Engine) -> Neighbour | None:
    """Of the programs at work beside the engine the one that takes most."""
    found = [*_processes(case, engine), *_engines(case, engine)]
    return max(found, key=_weight) if found else None


def _weight(beside: Neighbour) -> float:
    return -1.0 if beside.sm_ratio is None else beside.sm_ratio


def _processes(case: Case, engine: Engine) -> list[Neighbour]:
    """Processes of no engine that are at work on its GPUs, where its own is among the processes there."""
    found = []
    for gpu in case.gpus:
        own = [process for process in gpu.processes if process.engine == engine.name]
        others = [process for process in gpu.processes if not process.engine]
        for process in others if own else ():
            takes = finite(process.sm_ratio)
            at_work = _is_unexplained(case, gpu) and _holds(case, gpu, process) if takes is None else takes >= TAKES
            if at_work:
                said = params(process=titled(process), pid=str(process.pid), owner=clean(process.user, 24))
                found.append(Neighbour(gpu, said, takes))
    return found


def _holds(case: Case, gpu: Gpu, process: Process) -> bool:
    """Whether a process holds more memory than a bare context."""
    held, total = finite(process.vram_bytes), finite(gpu.vram_total_bytes)
    return held is None or not total or held > case.thresholds.held_ratio * total


def _is_unexplained(case: Case, gpu: Gpu) -> bool:
    """Whether a GPU computes or reads far more than the engine needs."""
    tensor, mfu = case.gpu_mean(gpu, "tensor_active_ratio"), case.mean("mfu_ratio")
    dram, mbu = case.dram_of(gpu), case.mean("mbu_ratio")
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
            found.append(Neighbour(gpu, params(engine=other.name), takes))
    return found


def _works(case: Case, other: Engine) -> bool:
    recent = case.others.get(other.key)
    return recent is not None and (recent.mean("running", NOW_S) or 0.0) > 0.0
