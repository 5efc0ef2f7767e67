"""GPUs of one instance that wait for each other: a straggler among its ranks, or links that are the limit."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low
from typing import Final

from gpumon.efficiency.ratio import mean_known
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters, Team
from gpumon.triage.advice import advice, quantise
from gpumon.triage.engine_use import fits
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, unsure, yes_if
from gpumon.triage.links import slow_links
from gpumon.triage.replicas import with_replica_comparison
from gpumon.triage.sentences import BUSY, INSPECT_GPU, OVER_GPUS, RESET_LOCKED_CLOCKS, SPARE
from gpumon.triage.signals import (
    Case,
    finite,
    first_known,
    gpu_chart,
    missing_bandwidth,
    missing_compute,
    present_signals,
)

NVLINK_BYTES_PER_S: Final = (
    (("GB200", "GB300", "B100", "B200", "B300"), 1.8e12),
    (("H100 SXM", "H200", "H20", "GH200"), 9e11),
    (("H800", "A800"), 4e11),
    (("H100", "A100"), 6e11),
    (("V100",), 3e11),
)
"""Begins of the names of types -> NVLink of one GPU, bytes/s of both directions together (data sheets). The first match
counts: `H100 SXM` stands before `H100`."""
PCIE_LANE_BYTES_PER_S: Final = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.56e9}
"""Generation -> one lane, one direction (PCI-SIG: 8, 16, 32 GT/s with 128b/130b; 64 GT/s in flits)."""
_BRIDGED_TYPES: Final = ("A100", "H100")
"""GPUs whose PCIe cards take NVLink bridges."""
_SOURCE_FIELDS: Final = {"dram": "bandwidth_bytes_per_s", "sm": "sm_active_ratio"}
"""Kind of activity -> field of `Gpu` whose source says where it comes from."""
SLOW_CLOCK: Final = 0.95
"""Share of the highest clock of its peers below which a GPU's clock explains why it is slow."""
_UNEVEN_TIMES: Final = 2.0
"""Times the mean work that the busiest GPU or rank has in a step, from which on half of the others' time is waiting."""
_LEAST_SPREAD_REQUESTS: Final = 64.0
"""Running requests from which on their tokens spread over experts and ranks by more than chance."""
_LEAST_SPREAD: Final = 0.1
"""Least difference in activity that counts between two GPUs."""


EXPERT_BALANCE: Final = Quantity(
    "expert_balance",
    "the busiest GPU of its experts does {times:factor} the mean (balance {value:percent})",
    field="expert_balance_ratio",
)
RANK_IMBALANCE: Final = Quantity(
    "rank_imbalance", "the busiest rank runs {value:factor} the mean tokens of all", field="rank_imbalance"
)
DRAM_BESIDE_PEERS: Final = Quantity(
    "dram_beside_peers", "gpu {index:count}: memory bandwidth {value:percent}, its peers {limit:percent}"
)
SM_BESIDE_PEERS: Final = Quantity(
    "sm_beside_peers", "gpu {index:count}: SM {value:percent} active, its peers {limit:percent}"
)
CLOCK_BESIDE_PEERS: Final = Quantity(
    "clock_beside_peers", "gpu {index:count}: SM clock {value:ghz} GHz, its peers {limit:ghz} GHz"
)
RANK_QUEUE: Final = Quantity(
    "rank_queue",
    (
        "queue: rank {rank} has {value:requests} waiting and runs {running:requests}, rank {other} "
        "runs {other_running:requests} and has none waiting"
    ),
)
NVLINK_RATE: Final = Quantity(
    "nvlink_rate", "NVLink {value:bytes}/s of {limit:bytes}/s" + OVER_GPUS, field="nvlink_bytes_per_s"
)
PCIE_RATE: Final = Quantity(
    "pcie_rate", "PCIe {value:bytes}/s of {limit:bytes}/s" + OVER_GPUS, field="pcie_bytes_per_s"
)
REBALANCE_EXPERTS: Final = Remedy(
    "rebalance_experts",
    ("let it move experts by load (--enable-eplb), with more redundant ones (--ep-num-redundant-experts)"),
)
BALANCE_RANKS: Final = Remedy(
    "balance_ranks", "route by load (fewest requests, or prefix-aware with a cap) over the ranks", team=Team.SCHEDULER
)
SMALLER_TP: Final = Remedy("smaller_tp", "else lower the tensor parallelism of {tp:count}")
HALVE_TP: Final = Remedy(
    "halve_tp",
    ("lower {tp_flag} from {tp:count} to {half:count} with twice the instances[{if_it_fits=yes}, if the model fits]"),
)
PIPELINE_INSTEAD: Final = Remedy(
    "pipeline_instead", "{pp_flag} {pp:count} with {tp_flag} {tp:count} (stages talk less than ranks)"
)
DATA_PARALLEL: Final = Remedy("data_parallel", "data parallelism instead")
NVLINK_GPUS: Final = Remedy("nvlink_gpus", "GPUs that NVLink joins (nvidia-smi topo -m)", team=Team.SCHEDULER)

UNEVEN_RANKS: Final = Cause(
    "uneven_ranks",
    Limit.STRAGGLER,
    (
        "[rank {other} runs {other_running:requests} while rank {rank} runs {running:requests} and "
        "has {waiting:requests} waiting|its ranks share the work unevenly]" + SPARE
    ),
)
UNEVEN_EXPERTS: Final = Cause(
    "uneven_experts",
    Limit.STRAGGLER,
    "expert parallelism is uneven: the busiest GPU does {times:factor} the mean, and all wait for it",
    confidence=Confidence.MEDIUM,
)
UNEVEN_ATTENTION: Final = Cause(
    "uneven_attention",
    Limit.STRAGGLER,
    "the busiest of its data-parallel ranks runs {times:factor} the mean tokens, and all wait for it at each step",
    confidence=Confidence.MEDIUM,
)


def uneven_ranks(case: Case) -> Finding | None:
    """Rule: data-parallel ranks share the work unevenly.

    No setting of the scheduler gives a rank what it does not get.
    The GPUs of a rank without work are idle, so that their mean activity says nothing.
    """
    engine = case.serving_engine()
    if engine is None or not engine.uneven or (case.mean("running") or 0.0) < 1.0:
        return None
    queue = _uneven_queue(engine)
    parameters: Parameters = {}
    confidence = Confidence.MEDIUM
    if queue is not None:
        parameters = queue.parameters | params(waiting=number(queue.value))
        confidence = Confidence.HIGH
    late = case.late_latencies()
    is_felt = bool(late) or case.waiting_mean() >= case.thresholds.queue_waiting
    finding = UNEVEN_RANKS.finding(
        parameters=parameters,
        evidence=(*engine.uneven, *case.work_evidence(case.activity()), *late),
        actions=(BALANCE_RANKS.action(),),
        level=_level(is_felt=is_felt or queue is not None),
        confidence=confidence,
    )
    return with_replica_comparison(case, finding)


def uneven_steps(case: Case) -> Finding | None:
    """Rule: in each step the GPUs of an engine wait for the one with the most work, by the engine's own figures.

    Few tokens spread unevenly by chance, over experts and over ranks.
    """
    engine = case.serving_engine()
    running = case.mean("running") or 0.0
    if engine is None or running < _LEAST_SPREAD_REQUESTS:
        return None
    balance = finite(engine.load.expert_balance_ratio)
    times = finite(engine.load.rank_imbalance)
    if balance and 1.0 / balance >= _UNEVEN_TIMES:
        evidence = case.evidence(EXPERT_BALANCE, balance, times=1.0 / balance)
        return _uneven_finding(case, UNEVEN_EXPERTS, 1.0 / balance, evidence, REBALANCE_EXPERTS.action())
    if times is not None and times >= _UNEVEN_TIMES:
        evidence = case.evidence(RANK_IMBALANCE, times)
        return _uneven_finding(case, UNEVEN_ATTENTION, times, evidence, BALANCE_RANKS.action())
    return None


def _uneven_finding(case: Case, cause: Cause, times: float, evidence: Evidence, action: Action) -> Finding:
    """The finding on steps in which one GPU or rank has so many times the mean work."""
    late = case.late_latencies()
    return cause.finding(
        parameters=params(times=times),
        evidence=(evidence, *case.work_evidence(case.activity()), *late),
        actions=(action,),
        level=_level(is_felt=bool(late)),
    )


def _level(*, is_felt: bool) -> Level:
    """A warning where users feel it, else a note."""
    if is_felt:
        return Level.WARN
    return Level.NOTE


def _uneven_queue(engine: Engine) -> Evidence | None:
    """The queue of the rank on which requests wait while others have room."""
    for evidence in engine.uneven:
        if evidence.quantity == RANK_QUEUE.code:
            return evidence
    return None


def straggler(case: Case) -> Finding | None:
    """Rule: a GPU that is slower than its peers. Where its clocks are held down, that is the verdict already."""
    busy_engine = _busy_engine(case)
    if busy_engine is None or Limit.THROTTLED in case.found_limits or any(slow_links(case)):
        return None
    engine, busy = busy_engine
    # Pipeline stages and data-parallel ranks may differ by their share of the traffic: only one group of TP is alike.
    if engine.hardware.tp != len(case.gpus):
        return None
    # Memory traffic before SM activity: kernels that wait for other GPUs keep SMs active, too.
    for name in ("dram", "sm"):
        shares = _shares(case, name)
        if len(shares) == len(case.gpus) and _is_spread(case, shares):
            return _with_load(case, busy, _odd_gpu_finding(case, shares, name))
    return None


def _shares(case: Case, name: str) -> list[tuple[Gpu, float]]:
    """The activity of each GPU that is known, of its DRAM or its SMs."""
    shares = []
    for gpu in case.gpus:
        share = case.dram_of(gpu) if name == "dram" else case.gpu_mean(gpu, "sm_active_ratio")
        if share is not None:
            shares.append((gpu, share))
    return shares


def _is_spread(case: Case, shares: Sequence[tuple[Gpu, float]]) -> bool:
    """Whether the busiest GPU and the least busy one are far apart."""
    most = max(share for _, share in shares)
    least = min(share for _, share in shares)
    return most - least >= max(_LEAST_SPREAD, case.thresholds.communication_spread_ratio * most)


def _busy_engine(case: Case) -> tuple[Engine, float] | None:
    """The engine and the mean busy share of its GPUs, if it is tensor-parallel, runs requests, and they are at work."""
    engine = case.serving_engine()
    busy = case.activity().busy
    if engine is None or engine.hardware.tp < 2 or (case.mean("running") or 0.0) < 1.0:
        return None
    if busy is None or busy < case.thresholds.communication_busy_ratio:
        return None
    return engine, busy


def _with_load(case: Case, busy: float, finding: Finding) -> Finding:
    """The finding with the load of the GPUs, and as urgent as users feel it."""
    late = case.late_latencies()
    is_felt = bool(late) or (case.mean("waiting") or 0.0) >= case.thresholds.queue_waiting
    evidence = (
        *finding.evidence,
        case.gpu_evidence(BUSY, busy),
        *case.work_evidence(case.activity()),
        *late,
    )
    return with_replica_comparison(case, finding._replace(evidence=evidence, level=_level(is_felt=is_felt)))


STRAGGLER: Final = Cause(
    "straggler",
    Limit.STRAGGLER,
    (
        "gpu {index:count} is at {share:percent} {activity:quantity}, its peer{peers:others} at "
        "{peers_share:percent}[, with its clock at {clock_hz:ghz} of {peers_clock_hz:ghz} GHz]: "
        "[{waits=for_it}they wait for it|the ranks wait for each other]" + SPARE
    ),
    level=Level.NOTE,
)


def _odd_gpu_finding(case: Case, shares: Sequence[tuple[Gpu, float]], name: str) -> Finding:
    """The finding on the GPU that lies farthest from the others."""
    odd_gpu, odd_share = _farthest(shares)
    peers_share = mean_known(share for gpu, share in shares if gpu is not odd_gpu) or 0.0
    index = float(odd_gpu.reading.index)
    source = odd_gpu.sources.get(_SOURCE_FIELDS[name], "")
    chart = gpu_chart(odd_gpu, name)
    evidence = [
        (SM_BESIDE_PEERS if name == "sm" else DRAM_BESIDE_PEERS).evidence(
            odd_share,
            limit=peers_share,
            source=source,
            chart=chart,
            parameters=params(index=index),
        )
    ]
    parameters = params(
        index=index,
        activity=name.upper(),
        share=odd_share,
        peers_share=peers_share,
        peers=float(len(shares) - 1),
    )
    actions: list[Action] = []
    clocks = _low_clock(case, odd_gpu, [gpu for gpu, _ in shares])
    if clocks is not None:
        clock_hz, peers_hz = clocks
        chart = gpu_chart(odd_gpu, "clock")
        evidence.append(
            CLOCK_BESIDE_PEERS.evidence(
                clock_hz, limit=peers_hz, source="SM clock", chart=chart, parameters=params(index=index)
            )
        )
        parameters |= params(clock_hz=clock_hz, peers_clock_hz=peers_hz)
        actions.append(RESET_LOCKED_CLOCKS.action(index=index))
    if odd_share > peers_share:
        waits = "for_it"  # it works longer for the same: the slow one
    else:
        waits = "for_each_other"  # it waits more than the others do, and nothing says for which of them
    parameters |= params(waits=waits)
    actions.append(INSPECT_GPU.action(index=index))
    if _may_fit_half(case, len(shares)):
        actions.append(SMALLER_TP.action(tp=float(len(shares))))
    return STRAGGLER.finding(
        parameters=parameters,
        evidence=tuple(evidence),
        actions=tuple(actions),
    )


def _farthest(shares: Sequence[tuple[Gpu, float]]) -> tuple[Gpu, float]:
    """The GPU that is farthest from the middle of all, with its share."""
    middle = median_low(share for _, share in shares)
    odd_gpu, odd_share = shares[0]
    for gpu, share in shares[1:]:
        if abs(share - middle) > abs(odd_share - middle):
            odd_gpu = gpu
            odd_share = share
    return (odd_gpu, odd_share)


def _low_clock(case: Case, odd_gpu: Gpu, gpus: Sequence[Gpu]) -> tuple[float, float] | None:
    """SM clock of a GPU and the highest of its group, in Hz, where its own is far lower."""
    clock_hz = case.gpu_mean(odd_gpu, "sm_clock_hz")
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
    """Rule: busy GPUs of one instance that neither compute nor read memory, while their links carry much."""
    busy_engine = _busy_engine(case)
    if busy_engine is None or any(slow_links(case)):
        return None  # where a link is broken, the verdict on its GPU says what to do
    engine, busy = busy_engine
    limits = case.thresholds
    activity = case.activity()
    arithmetic = first_known(activity.tensor, case.mean("mfu_ratio"))
    reads = first_known(activity.dram, case.mean("mbu_ratio"))
    if arithmetic is None or reads is None:
        signals = present_signals((missing_compute(engine, activity), missing_bandwidth(engine, activity)))
        return unsure(signals) if signals else None
    if arithmetic >= limits.communication_tensor_ratio or reads >= limits.communication_dram_ratio:
        return None
    finding = _full_link_finding(case, engine)
    if finding is None:
        return None
    parameters = finding.parameters | params(busy=busy, arithmetic=arithmetic, reads=reads)
    return _with_load(case, busy, finding._replace(parameters=parameters))


def links_are_full(case: Case) -> bool:
    """Whether the links between its GPUs are what an instance waits for."""
    finding = interconnect(case)
    return finding is not None and finding.code is Limit.INTERCONNECT_BOUND


LINK_FULL: Final = Cause(
    "link_full",
    Limit.INTERCONNECT_BOUND,
    (
        "GPUs {busy:percent} busy, arithmetic {arithmetic:percent}, memory bandwidth "
        "{reads:percent}: {link} carries {rate:bytes}/s, {link_share:percent} of its peak[: tensor "
        "parallelism of {tp:count} over PCIe]" + SPARE
    ),
)


def _full_link_finding(case: Case, engine: Engine) -> Finding | None:
    """The finding on links between the GPUs that carry much of what they can; None where they do not."""
    limit = case.thresholds.communication_link_ratio
    nvlink = _nvlink(case)
    if nvlink is not None:
        rate, share = nvlink
        if share < limit:
            return None
        evidence = case.gpu_evidence(NVLINK_RATE, rate, limit=rate / share)
        parameters = params(link="NVLink", rate=rate, link_share=share)
        return LINK_FULL.finding(
            parameters=parameters,
            evidence=(evidence,),
            actions=(*_smaller_tp_actions(case, engine), DATA_PARALLEL.action()),
        )
    pcie = _pcie(case)
    if pcie is None or _has_nvlink_on_board(case):
        return None
    rate, share = pcie
    if share < limit:
        return None
    evidence = case.gpu_evidence(PCIE_RATE, rate, limit=rate / share)
    parameters = params(link="PCIe", rate=rate, link_share=share, tp=float(engine.hardware.tp))
    return LINK_FULL.finding(
        parameters=parameters,
        evidence=(evidence,),
        actions=(*_smaller_tp_actions(case, engine), NVLINK_GPUS.action()),
    )


def _has_nvlink_on_board(case: Case) -> bool:
    """Whether NVLink is part of the board: PCIe carries no all-reduce then, but offloaded KV cache or weights."""
    return any(_nvlink_peak(gpu) and "PCIe" not in gpu.gpu_type for gpu in case.gpus)


def _smaller_tp_actions(case: Case, engine: Engine) -> tuple[Action, ...]:
    """Actions for half the tensor parallelism, where half the GPUs hold an instance; else for less traffic."""
    words = advice(engine.kind)
    half = engine.hardware.tp // 2
    stages = _pipeline_stages(case, engine)
    fit = fits(case, engine, half * stages, (case.mean("running") or 0.0) / 2.0)
    if fit is False:
        split = PIPELINE_INSTEAD.action(pp_flag=words.pp, pp=2.0 * stages, tp_flag=words.tp, tp=float(half))
        return (*quantise(engine), split)
    parameters = params(tp_flag=words.tp, tp=float(engine.hardware.tp), half=float(half))
    parameters |= params(if_it_fits=yes_if(fit is None))
    return (HALVE_TP.action(**parameters),)


def _pipeline_stages(case: Case, engine: Engine) -> int:
    """Pipeline stages of one rank; where they are not known, as many as its GPUs make up."""
    if engine.hardware.pp:
        return engine.hardware.pp
    gpus_of_rank = len(case.gpus) // max(1, engine.hardware.ranks)
    return max(1, gpus_of_rank // engine.hardware.tp)


def _nvlink(case: Case) -> tuple[float, float] | None:
    """Bytes/s of a GPU over NVLink, and their share of its peak: the mean of the GPUs; None where not known."""
    rates = []
    shares = []
    for gpu in case.gpus:
        rate = case.gpu_mean(gpu, "nvlink_bytes_per_s")
        peak = _nvlink_peak(gpu)
        if rate is not None and peak:
            rates.append(rate)
            shares.append(rate / peak)
    return _mean_rate_and_share(rates, shares)


def _nvlink_peak(gpu: Gpu) -> float:
    """Bytes/s of a GPU over NVLink at most; 0 where it has none."""
    if "PCIe" in gpu.gpu_type and not gpu.gpu_type.startswith(_BRIDGED_TYPES):
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
    return _mean_rate_and_share(rates, shares)


def _pcie_peak(gpu: Gpu) -> float:
    """Bytes/s of a GPU's PCIe link in one direction; 0 where its lanes or their generation are not known."""
    lanes = finite(gpu.reading.pcie_width)
    generation = finite(gpu.reading.pcie_generation)
    if not lanes or not generation:
        return 0.0
    return lanes * PCIE_LANE_BYTES_PER_S.get(int(generation), 0.0)


def _mean_rate_and_share(rates: Sequence[float], shares: Sequence[float]) -> tuple[float, float] | None:
    """The mean rate and the mean share; None where no GPU has them."""
    rate = mean_known(rates)
    share = mean_known(shares)
    if rate is None or share is None:
        return None
    return (rate, share)
