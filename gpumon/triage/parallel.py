"""GPUs of one instance that wait for each other: a straggler among its ranks, or links that are the limit."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low
from typing import Final

from gpumon.efficiency.ratio import mean_known
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters
from gpumon.triage.advice import advice, quantise
from gpumon.triage.engine_use import fits
from gpumon.triage.replicas import apart
from gpumon.triage.signals import (
    Case,
    Finding,
    GpuActivity,
    action,
    finite,
    first_known,
    no_bandwidth,
    no_compute,
    of_gpu,
    params,
    present,
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
_APART: Final = 0.1
"""Least difference in activity that counts between two GPUs."""


def uneven_ranks(case: Case) -> Finding | None:
    """Data-parallel ranks that share the work unevenly: no setting of the scheduler gives a rank what it does not get.

    The GPUs of a rank without work are idle, so that their mean activity says nothing.
    """
    engine = case.served()
    if engine is None or not engine.uneven or (case.mean("running") or 0.0) < 1.0:
        return None
    queue = _longest_queue(engine)
    parameters: Parameters = {}
    confidence = Confidence.MEDIUM
    if queue is not None:
        parameters = queue.parameters | params(waiting=number(queue.value))
        confidence = Confidence.HIGH
    proof = (*engine.uneven, *case.work(case.activity()), *case.late())
    is_felt = bool(case.late()) or case.waiting_mean() >= case.thresholds.queue_waiting
    level = Level.WARN if is_felt or queue is not None else Level.NOTE
    fixes = (action("balance_ranks"),)
    return apart(case, Finding(Limit.STRAGGLER, "uneven_ranks", parameters, proof, fixes, level, confidence))


def _longest_queue(engine: Engine) -> Evidence | None:
    """The queue of the rank on which requests wait while others have room."""
    for evidence in engine.uneven:
        if evidence.quantity == "rank_queue":
            return evidence
    return None


def straggler(case: Case) -> Finding | None:
    """A GPU that is slower than its peers. Where its clocks are held down, that is the verdict already."""
    engine, busy = _busy(case)
    if engine is None or Limit.THROTTLED in case.found:
        return None
    # Pipeline stages and data-parallel ranks may differ by their share of the traffic: only one group of TP is alike.
    if engine.hardware.tp < 2 or engine.hardware.tp != len(case.gpus):
        return None
    for name in ("dram", "sm"):
        shares = _shares(case, name)
        if len(shares) == len(case.gpus) and _is_spread(case, shares):
            return _beside_load(case, busy, _odd(case, shares, name))
    return None


def _shares(case: Case, name: str) -> list[tuple[Gpu, float]]:
    """The activity of each GPU that is known, of its DRAM or its SMs."""
    shares = []
    for gpu in case.gpus:
        if name == "dram":
            share = case.dram_of(gpu)
        else:
            share = case.gpu_mean(gpu, _FIELDS[name])
        if share is not None:
            shares.append((gpu, share))
    return shares


def _is_spread(case: Case, shares: Sequence[tuple[Gpu, float]]) -> bool:
    """Whether the busiest GPU and the least busy one are far apart."""
    most = max(share for _, share in shares)
    least = min(share for _, share in shares)
    return most - least >= max(_APART, case.thresholds.communication_spread_ratio * most)


def _busy(case: Case) -> tuple[Engine | None, float]:
    """An engine of several GPUs that are at work, and how busy they are."""
    engine = case.served()
    busy = case.activity().busy
    if engine is None or engine.hardware.tp < 2 or (case.mean("running") or 0.0) < 1.0:
        return (None, 0.0)
    if busy is not None and busy >= case.thresholds.communication_busy_ratio:
        return (engine, busy)
    return (None, 0.0)


def _beside_load(case: Case, busy: float, finding: Finding) -> Finding:
    """The finding with what the GPUs do, and as urgent as users feel it."""
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
    others = []
    for gpu, share in shares:
        if gpu is not odd:
            others.append(share)
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
    waits = "for_it" if own > rest else "for_each_other"
    parameters |= params(waits=waits)
    fixes.append(action("inspect_gpu", index=index))
    if _may_fit_half(case, len(shares)):
        fixes.append(action("smaller_tp", tp=float(len(shares))))
    return Finding(Limit.STRAGGLER, "straggler", parameters, tuple(proof), tuple(fixes), Level.NOTE)


def _farthest(shares: Sequence[tuple[Gpu, float]]) -> tuple[Gpu, float]:
    """The GPU that is farthest from the middle of all, with its share."""
    middle = median_low(share for _, share in shares)
    odd, odd_share = shares[0]
    for gpu, share in shares[1:]:
        if abs(share - middle) > abs(odd_share - middle):
            odd = gpu
            odd_share = share
    return (odd, odd_share)


def _low_clock(case: Case, odd: Gpu, gpus: Sequence[Gpu]) -> tuple[float, float] | None:
    """SM clock of a GPU and the highest of its group, in Hz, where its own is far lower."""
    clock_hz = case.gpu_mean(odd, "sm_clock_hz")
    if clock_hz is None:
        return None
    highest_hz = clock_hz
    for gpu in gpus:
        highest_hz = max(highest_hz, case.gpu_mean(gpu, "sm_clock_hz") or 0.0)
    if clock_hz >= SLOW_CLOCK * highest_hz:
        return None
    return (clock_hz, highest_hz)


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
    arithmetic = first_known(seen.tensor, case.mean("mfu_ratio"))
    reads = first_known(seen.dram, case.mean("mbu_ratio"))
    if arithmetic is None or reads is None:
        return _unknown_work(engine, seen)
    if arithmetic >= limits.communication_tensor_ratio or reads >= limits.communication_dram_ratio:
        return None
    links = _links(case, engine)
    if links is None:
        return None
    parameters = links.parameters | params(busy=busy, arithmetic=arithmetic, reads=reads)
    return _beside_load(case, busy, links._replace(parameters=parameters))


def _unknown_work(engine: Engine, seen: GpuActivity) -> Finding | None:
    """The answer where nobody tells whether the GPUs compute or read: the figures that are missing."""
    signals = present((no_compute(engine, seen), no_bandwidth(engine, seen)))
    if signals:
        return unsure(signals)
    return None


def _links(case: Case, engine: Engine) -> Finding | None:
    """Traffic over the links between the GPUs that is near their limit."""
    limit = case.thresholds.communication_link_ratio
    nvlink = _nvlink(case)
    if nvlink is not None:
        rate, share = nvlink
        if share < limit:
            return None
        proof = case.of_gpus("nvlink_rate", "nvlink_bytes_per_s", rate, limit=rate / share)
        parameters = params(link="NVLink", rate=rate, link_share=share)
        actions = (*_smaller(case, engine), action("data_parallel"))
        return Finding(Limit.INTERCONNECT_BOUND, "link_full", parameters, (proof,), actions)
    pcie = _pcie(case)
    if pcie is None or _is_joined(case):
        return None
    rate, share = pcie
    if share < limit:
        return None
    proof = case.of_gpus("pcie_rate", "pcie_bytes_per_s", rate, limit=rate / share)
    parameters = params(link="PCIe", rate=rate, link_share=share, tp=float(engine.hardware.tp))
    actions = (*_smaller(case, engine), action("nvlink_gpus"))
    return Finding(Limit.INTERCONNECT_BOUND, "link_full", parameters, (proof,), actions)


def _is_joined(case: Case) -> bool:
    """Whether NVLink is part of the board: PCIe carries no all-reduce then, but offloaded KV cache or weights."""
    return any(_nvlink_peak(gpu) and "PCIe" not in gpu.gpu_type for gpu in case.gpus)


def _smaller(case: Case, engine: Engine) -> tuple[Action, ...]:
    """Half the tensor parallelism, where half the GPUs hold an instance; else what makes its layers talk less."""
    words = advice(engine.kind)
    half = engine.hardware.tp // 2
    stages = engine.hardware.pp or max(1, len(case.gpus) // max(1, engine.hardware.ranks) // engine.hardware.tp)
    fit = fits(case, engine, half * stages, (case.mean("running") or 0.0) / 2.0)
    if fit is False:
        split = action("pipeline_instead", pp_flag=words.pp, pp=2.0 * stages, tp_flag=words.tp, tp=float(half))
        return (*quantise(engine), split)
    if_it_fits = None if fit else "yes"
    tp = float(engine.hardware.tp)
    return (action("halve_tp", tp_flag=words.tp, tp=tp, half=float(half), if_it_fits=if_it_fits),)


def _nvlink(case: Case) -> tuple[float, float] | None:
    """Bytes/s of a GPU over NVLink, and their share of its peak: the mean of the GPUs; None where not known."""
    rates = []
    shares = []
    for gpu in case.gpus:
        moved = case.gpu_mean(gpu, "nvlink_bytes_per_s")
        peak = _nvlink_peak(gpu)
        if moved is not None and peak:
            rates.append(moved)
            shares.append(moved / peak)
    return _means(rates, shares)


def _nvlink_peak(gpu: Gpu) -> float:
    """Bytes/s of a GPU over NVLink at most; 0 where it has none."""
    if "PCIe" in gpu.gpu_type and not gpu.gpu_type.startswith(("A100", "H100")):
        return 0.0
    for types, peak in NVLINK_BYTES_PER_S:
        if gpu.gpu_type.startswith(types):
            return peak
    return 0.0


def _pcie(case: Case) -> tuple[float, float] | None:
    """Bytes/s of a GPU over PCIe in its busier direction, and their share of its link."""
    rates = []
    shares = []
    for gpu in case.gpus:
        sent = case.gpu_mean(gpu, "pcie_tx_bytes_per_s")
        received = case.gpu_mean(gpu, "pcie_rx_bytes_per_s")
        peak = _pcie_peak(gpu)
        if peak and (sent is not None or received is not None):
            busier = max(sent or 0.0, received or 0.0)
            rates.append(busier)
            shares.append(busier / peak)
    return _means(rates, shares)


def _pcie_peak(gpu: Gpu) -> float:
    """Bytes/s of a GPU's PCIe link in one direction; 0 where its lanes or their generation are not known."""
    lanes = finite(gpu.pcie_width)
    generation = finite(gpu.pcie_generation)
    if not lanes or not generation or generation >= 100.0:
        return 0.0
    return lanes * PCIE_LANE_BYTES_PER_S.get(int(generation), 0.0)


def _means(rates: Sequence[float], shares: Sequence[float]) -> tuple[float, float] | None:
    """The mean rate and the mean share; None where no GPU has them."""
    rate = mean_known(rates)
    share = mean_known(shares)
    if rate is None or share is None:
        return None
    return (rate, share)
