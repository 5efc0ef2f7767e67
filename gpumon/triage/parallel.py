"""GPUs of one instance that wait for each other: a straggler among its ranks, or links that are the limit."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low
from typing import Final

from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters
from gpumon.triage.advice import advice, quantise
from gpumon.triage.engine_use import fits
from gpumon.triage.replicas import apart
from gpumon.triage.signals import (
    Case,
    Finding,
    action,
    finite,
    no_bandwidth,
    no_compute,
    of_gpu,
    params,
    unsure,
)

NVLINK_BYTES_PER_S: Final = (
    (("GB200", "GB300", "B100", "B200", "B300"), 1.8e12),
    (("H100 SXM", "H200", "H20", "GH200"), 9e11),
    (("H800", "A800"), 4e11),
    (("H100", "A100"), 6e11),
    (("V100",), 3e11),
)
"""Names of a type -> NVLink of one GPU, both directions together (data sheets)."""
PCIE_LANE_BYTES_PER_S: Final = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.56e9}
"""Generation -> one lane, one direction (PCI-SIG: 8, 16, 32 GT/s with 128b/130b; 64 GT/s in flits)."""
_FIELDS: Final = {"dram": "bandwidth_bytes_per_s", "sm": "sm_active_ratio"}
SLOW_CLOCK: Final = 0.95
"""Share of the highest clock of its peers below which a GPU's clock explains why it is slow."""
APART: Final = 0.1
"""Least difference in activity that counts between two GPUs."""


def uneven_ranks(case: Case) -> Finding | None:
    """Data-parallel ranks that share the work unevenly: no setting of the scheduler gives a rank what it does not get.

    The GPUs of a rank without work are idle, so that their mean activity says nothing.
    """
    engine = case.served()
    if engine is None or not engine.uneven or (case.mean("running") or 0.0) < 1.0:
        return None
    queue = next((one for one in engine.uneven if one.quantity == "rank_queue"), None)
    said: Parameters = {}
    if queue is not None and not isinstance(queue.value, Missing):
        said = queue.parameters | params(waiting=queue.value)
    proof = (*engine.uneven, *case.work(case.activity()), *case.late())
    queues = queue is not None or case.waiting_mean() >= case.thresholds.queue_waiting
    if queues or case.late():
        level = Level.WARN
    else:
        level = Level.NOTE
    fixes = (action("balance_ranks"),)
    sure = Confidence.MEDIUM if queue is None else Confidence.HIGH
    return apart(case, Finding(Limit.STRAGGLER, "uneven_ranks", said, proof, fixes, level, sure))


def straggler(case: Case) -> Finding | None:
    """A GPU that is slower than its peers. Where its clocks are held down, that is the verdict already."""
    engine, busy = _busy(case)
    if engine is None or Limit.THROTTLED in case.found:
        return None
    # Pipeline stages and data-parallel ranks may differ by their share of the traffic: only one group of TP is alike.
    if engine.hardware.tp < 2 or engine.hardware.tp != len(case.gpus):
        return None
    for name in ("dram", "sm"):
        shares = [
            (gpu, share)
            for gpu in case.gpus
            if (share := case.dram_of(gpu) if name == "dram" else case.gpu_mean(gpu, _FIELDS[name])) is not None
        ]
        if len(shares) < len(case.gpus):
            continue
        most, least = (pick(share for _, share in shares) for pick in (max, min))
        if most - least >= APART and most - least >= case.thresholds.communication_spread_ratio * most:
            return _told(case, busy, _odd(case, shares, name))
    return None


def _busy(case: Case) -> tuple[Engine | None, float]:
    """An engine of several GPUs that are at work, and how busy they are."""
    engine = case.served()
    busy = case.activity().busy
    if engine is None or engine.hardware.tp < 2 or (case.mean("running") or 0.0) < 1.0:
        return None, 0.0
    known = busy is not None and busy >= case.thresholds.communication_busy_ratio
    if known:
        return (engine, busy or 0.0)
    return (None, 0.0)


def _told(case: Case, busy: float, finding: Finding) -> Finding:
    """With what the GPUs do, and as urgent as users feel it."""
    slow = case.late()
    waiting = case.mean("waiting") or 0.0
    if slow or waiting >= case.thresholds.queue_waiting:
        level = Level.WARN
    else:
        level = Level.NOTE
    proof = (
        *finding.evidence,
        case.of_gpus("busy", "busy_ratio", busy, "busy"),
        *case.work(case.activity()),
        *slow,
    )
    return apart(case, finding._replace(evidence=proof, level=level))


def _odd(case: Case, shares: Sequence[tuple[Gpu, float]], name: str) -> Finding:
    """The GPU that lies apart from the others; one that works longer for the same is the slow one."""
    odd, own = _farthest(shares)
    others = [share for gpu, share in shares if gpu is not odd]
    rest = sum(others) / len(others)
    source = odd.sources.get(_FIELDS[name], "")
    index = float(odd.index)
    proof = [Evidence(f"{name}_beside_peers", own, rest, source, of_gpu(odd, name), params(index=index))]
    parameters = params(
        index=index,
        activity="DRAM" if name == "dram" else "SM",
        share=own,
        peers_share=rest,
        peers=float(len(others)),
    )
    fixes: list[Action] = []
    clocks = _low_clock(case, odd, [gpu for gpu, _ in shares])
    if clocks is not None:
        clock_hz, peers_hz = clocks
        chart = of_gpu(odd, "clock")
        proof.append(Evidence("clock_beside_peers", clock_hz, peers_hz, "SM clock", chart, params(index=index)))
        parameters |= params(clock_hz=clock_hz, peers_clock_hz=peers_hz)
        fixes.append(action("reset_locked_clocks", index=index))
    parameters |= params(waits="for_it" if own > rest else "for_each_other")
    fixes.append(action("inspect_gpu", index=index))
    if _may_fit_half(case, len(shares)):
        fixes.append(action("smaller_tp", tp=float(len(shares))))
    return Finding(Limit.STRAGGLER, "straggler", parameters, tuple(proof), tuple(fixes), Level.NOTE)


def _farthest(shares: Sequence[tuple[Gpu, float]]) -> tuple[Gpu, float]:
    """The GPU that is farthest from the middle of all, with its share."""
    middle = median_low(share for _, share in shares)
    farthest = shares[0]
    for gpu, share in shares[1:]:
        if abs(share - middle) > abs(farthest[1] - middle):
            farthest = gpu, share
    return farthest


def _low_clock(case: Case, odd: Gpu, gpus: Sequence[Gpu]) -> tuple[float, float] | None:
    """SM clock of a GPU and the highest of its group, in Hz, where its own is far lower."""
    clock_hz = case.gpu_mean(odd, "sm_clock_hz")
    clocks = [case.gpu_mean(gpu, "sm_clock_hz") for gpu in gpus]
    highest_hz = max((clock for clock in clocks if clock is not None), default=None)
    if clock_hz is None or highest_hz is None or clock_hz >= SLOW_CLOCK * highest_hz:
        return None
    return clock_hz, highest_hz


def _may_fit_half(case: Case, tp: int) -> bool:
    """Whether half the GPUs may hold the model and half its requests; also where that is not known."""
    if case.engine is None:
        return True
    running = case.mean("running") or 0.0
    return fits(case, case.engine, tp // 2, running / 2.0) is not False


def interconnect(case: Case) -> Finding | None:
    """Busy GPUs of one instance that neither compute nor read memory, while their links carry much."""
    engine, busy = _busy(case)
    if engine is None or engine.hardware.tp < 2:
        return None
    limits = case.thresholds
    seen = case.activity()
    if seen.tensor is None:
        arithmetic = case.mean("mfu_ratio")
    else:
        arithmetic = seen.tensor
    if seen.dram is None:
        reads = case.mean("mbu_ratio")
    else:
        reads = seen.dram
    if arithmetic is None or reads is None:
        lacking = tuple(one for one in (no_compute(engine, seen), no_bandwidth(engine, seen)) if one)
        if lacking:
            return unsure(lacking)
        return None
    if arithmetic >= limits.communication_tensor_ratio or reads >= limits.communication_dram_ratio:
        return None
    found = _links(case, engine)
    if found is None:
        return None
    said = found.parameters | params(busy=busy, arithmetic=arithmetic, reads=reads)
    return _told(case, busy, found._replace(parameters=said))


def _links(case: Case, engine: Engine) -> Finding | None:
    """Traffic over the links between the GPUs that is near their limit."""
    nvlink = _nvlink(case)
    pcie = _pcie(case)
    smaller = _smaller(case, engine)
    limit = case.thresholds.communication_link_ratio
    code = Limit.INTERCONNECT_BOUND
    tp = float(engine.hardware.tp)
    if nvlink is not None and nvlink[1] >= limit:
        proof = (case.of_gpus("nvlink_rate", "nvlink_bytes_per_s", nvlink[0], limit=nvlink[0] / nvlink[1]),)
        said = params(link="NVLink", rate=nvlink[0], link_share=nvlink[1])
        return Finding(code, "link_full", said, proof, (*smaller, action("data_parallel")))
    # Where NVLink is part of the board, PCIe carries no all-reduce: offloaded KV cache, or weights that load.
    joined = any(_nvlink_peak(gpu) and "PCIe" not in gpu.gpu_type for gpu in case.gpus)
    if pcie is not None and pcie[1] >= limit and nvlink is None and not joined:
        proof = (case.of_gpus("pcie_rate", "pcie_bytes_per_s", pcie[0], limit=pcie[0] / pcie[1]),)
        said = params(link="PCIe", rate=pcie[0], link_share=pcie[1], tp=tp)
        return Finding(code, "link_full", said, proof, (*smaller, action("nvlink_gpus")))
    return None


def _smaller(case: Case, engine: Engine) -> tuple[Action, ...]:
    """Half the tensor parallelism, where half the GPUs hold an instance; else what makes its layers talk less."""
    words = advice(engine.kind)
    half = engine.hardware.tp // 2
    stages = engine.hardware.pp or max(1, len(case.gpus) // max(1, engine.hardware.ranks) // engine.hardware.tp)
    fit = fits(case, engine, half * stages, (case.mean("running") or 0.0) / 2.0)
    if fit is False:
        split = action("pipeline_instead", pp_flag=words.pp, pp=2.0 * stages, tp_flag=words.tp, tp=float(half))
        return (*quantise(engine), split)
    unless = None if fit else "yes"
    return (action("halve_tp", tp_flag=words.tp, tp=float(engine.hardware.tp), half=float(half), if_it_fits=unless),)


def _nvlink(case: Case) -> tuple[float, float] | None:
    """Bytes/s of a GPU over NVLink, and their share of its peak: the mean of the GPUs; None where not known."""
    found = []
    for gpu in case.gpus:
        moved = case.gpu_mean(gpu, "nvlink_bytes_per_s")
        peak = _nvlink_peak(gpu)
        if moved is not None and peak:
            found.append((moved, moved / peak))
    return _mean(found)


def _nvlink_peak(gpu: Gpu) -> float:
    if "PCIe" in gpu.gpu_type and not gpu.gpu_type.startswith(("A100", "H100")):
        return 0.0
    return next((peak for words, peak in NVLINK_BYTES_PER_S if gpu.gpu_type.startswith(words)), 0.0)


def _pcie(case: Case) -> tuple[float, float] | None:
    """Bytes/s of a GPU over PCIe in its busier direction, and their share of its link."""
    found = []
    for gpu in case.gpus:
        sides = (case.gpu_mean(gpu, f"pcie_{side}_bytes_per_s") for side in ("tx", "rx"))
        ways = [way for way in sides if way is not None]
        lanes = finite(gpu.pcie_width)
        generation = finite(gpu.pcie_generation)
        if generation and generation < 100.0:
            lane = PCIE_LANE_BYTES_PER_S.get(int(generation), 0.0)
        else:
            lane = 0.0
        if ways and lanes and lane:
            found.append((max(ways), max(ways) / (lanes * lane)))
    return _mean(found)


def _mean(found: list[tuple[float, float]]) -> tuple[float, float] | None:
    if not found:
        return None
    rate, share = (sum(part) / len(found) for part in zip(*found, strict=True))
    return rate, share
