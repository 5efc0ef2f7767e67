"""An engine without tokens: since when, and what its GPUs, processes and links do meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.frame import Advance
from gpumon.readings.missing import NOT_EXPOSED, Reading
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu
from gpumon.readings.verdict import Evidence, Limit, Parameters, Signal
from gpumon.triage.samples import PROCESS_CPU, Recent
from gpumon.triage.signals import NOW_S, TOKEN_TOTALS, Case, GpuActivity, finite, first_known, params
from gpumon.triage.thresholds import Thresholds

SUSPECTED_S: Final = 10.0
"""Seconds without a token from which on a stall is suspected: PCIe is measured, so that a minute of it is known soon
after the first minute of the stall."""
QUIET_S: Final = 60.0
"""An engine of which nothing has moved for a minute hangs: a compile, a transfer or a weight update moves something."""
COVERED_S: Final = 50.0
"""Part of that minute that the samples must reach back: PCIe is measured from `SUSPECTED_S` on, one GPU a tick."""
QUIET_CPU: Final = 0.1
"""Share of a core up to which a process waits: PyTorch's watchdog threads take 1 % to 5 %."""
QUIET_LINK_BYTES_PER_S: Final = 5e6
"""Traffic of a link up to which nothing is transferred: the driver's own housekeeping takes 1 MB/s."""
_LOADING_BYTES_PER_S: Final = 5e7
"""Disk reads of the host from which on somebody loads a file, such as weights."""
_BAND: Final = 2.0
"""How many times as much its GPUs may do while it stands as hung."""
SM_AT_WORK: Final = 0.5
"""SM activity from which on a GPU computes: kernels that wait for other GPUs take a sixth of the SMs (NCCL: 16 to 24
blocks of 132)."""
POWER_AT_WORK: Final = 0.5
"""Share of the power limit from which on a GPU computes: one that spins draws a third."""
_COUNTED_AT_END: Final = Advance.END.value


def without_tokens_s(case: Case) -> float | None:
    """Seconds for which it has had requests and given no token.

    None where it has no request, does not serve, or counts the tokens of a request only when that ends.
    """
    engine = case.served()
    if engine is None or not (case.now("running") or case.now("waiting")):
        return None
    if engine.advances.get("decode_tokens_per_s", _COUNTED_AT_END) == _COUNTED_AT_END:
        return None
    still_s = case.still_s(TOKEN_TOTALS)
    if still_s is None:
        return None
    # An idle night gives no token either, nor does a process that is not there.
    return min(still_s, _loaded_s(case, still_s), case.now_s - case.recent.refused_s)


def suspected(case: Case) -> bool:
    """Whether its GPUs' PCIe traffic is worth measuring: it may hang."""
    seconds = without_tokens_s(case)
    return seconds is not None and seconds >= SUSPECTED_S


def _loaded_s(case: Case, seconds: float) -> float:
    """For how long it has had a request without a break; infinite where no sample of the last seconds shows it without
    one."""
    waiting = dict(case.recent.values("waiting", seconds))
    running = dict(case.recent.values("running", seconds)) or waiting
    free = []
    for at_s, count in running.items():
        if count == 0.0 and not waiting.get(at_s):
            free.append(at_s)
    if free:
        return case.now_s - free[-1]
    return float("inf")


class WorkKind(Enum):
    """Work of an engine's GPUs while no token comes."""

    COMPUTES = "computes"
    """Arithmetic, or what may be: a long prefill, for example."""
    MOVES = "moves"
    """Hardly any kernel, but their memory is read or written: weights or KV cache come in, for example."""
    SPINS = "spins"
    """Busy, with next to no memory traffic and no arithmetic: kernels wait for each other."""
    RESTS = "rests"
    UNKNOWN = "unknown"


class GpuWork(msgspec.Struct, frozen=True):
    """Work of an engine's GPUs, with the figures that show it."""

    work: WorkKind
    evidence: tuple[Evidence, ...] = ()
    parameters: Parameters = {}
    missing: tuple[Signal, ...] = ()
    """Signals that would settle `WorkKind.UNKNOWN`."""


def gpu_work(case: Case, seconds: float) -> GpuWork:
    """Activity of the engine's GPUs in the last seconds."""
    limits = _limits(case)
    seen = case.activity(seconds)
    if not case.gpus or first_known(seen.busy, seen.sm, seen.dram) is None:
        return GpuWork(WorkKind.UNKNOWN, missing=(case.unmeasured(),))
    arithmetic = computes(case, seen, seconds, limits)
    if arithmetic:
        return GpuWork(WorkKind.COMPUTES)
    work = _without_arithmetic(case, seen, seconds, limits)
    if work.work is WorkKind.MOVES and (arithmetic is None or (seen.sm or 0.0) >= SM_AT_WORK):
        return GpuWork(WorkKind.COMPUTES)
    return work


def _without_arithmetic(case: Case, seen: GpuActivity, seconds: float, limits: Thresholds) -> GpuWork:
    """Work of GPUs that do no arithmetic: by their memory traffic where it is measured, else by how busy they are."""
    if seen.dram is not None:
        return _by_memory(case, seen, seconds, limits)
    idle = _idle(case, seen, limits)
    if idle is not None:
        return idle
    return _by_upper_bound(case, seen, seconds, limits)


def _limits(case: Case) -> Thresholds:
    """The thresholds; wider where the engine stands as hung, so that it does not come and go at an edge."""
    limits = case.thresholds
    if Limit.HUNG not in case.near:
        return limits
    return msgspec.structs.replace(
        limits,
        stalled_busy_ratio=_BAND * limits.stalled_busy_ratio,
        stalled_dram_ratio=_BAND * limits.stalled_dram_ratio,
    )


def computes(case: Case, seen: GpuActivity, seconds: float, limits: Thresholds) -> bool | None:
    """Whether its GPUs do arithmetic: by tensor activity, else SM activity or power; None: nothing tells."""
    if seen.tensor is not None:
        return seen.tensor > limits.stalled_tensor_ratio
    are_working = []
    if seen.sm is not None:
        are_working.append(seen.sm >= SM_AT_WORK)
    for gpu in case.gpus:
        watts = case.gpu_mean(gpu, "power_w", seconds)
        limit = finite(gpu.power_limit_w)
        if watts is not None and limit:
            are_working.append(watts >= POWER_AT_WORK * limit)
    if are_working:
        return any(are_working)
    return None


def _by_memory(case: Case, seen: GpuActivity, seconds: float, limits: Thresholds) -> GpuWork:
    """By the measured memory traffic of the busiest of its GPUs."""
    most = max((case.dram_of(gpu, seconds) or 0.0 for gpu in case.gpus), default=0.0)
    active = seen.sm if seen.busy is None else seen.busy
    work = WorkKind.RESTS
    if most > limits.stalled_dram_ratio:
        work = WorkKind.MOVES
    elif active is not None and active > limits.stalled_busy_ratio:
        work = WorkKind.SPINS
    proof = case.of_gpus("dram_active", "bandwidth_bytes_per_s", most, "dram", limits.stalled_dram_ratio)
    return GpuWork(work, (proof,), params(dram=most, busy=seen.busy, tensor=seen.tensor))


def _idle(case: Case, seen: GpuActivity, limits: Thresholds) -> GpuWork | None:
    """By SM activity or the busy share, if one of them is next to nothing."""
    least = limits.stalled_busy_ratio
    for name, field, value in (("sm", "sm_active_ratio", seen.sm), ("busy", "busy_ratio", seen.busy)):
        if value is not None and value <= least:
            proof = case.of_gpus(f"{name}_share", field, value, name, least)
            return GpuWork(WorkKind.RESTS, (proof,), params(**{name: value}))
    return None


def _by_upper_bound(case: Case, seen: GpuActivity, seconds: float, limits: Thresholds) -> GpuWork:
    """By the share of time in which their memory was used at all: busy GPUs that hardly ever do that spin."""
    most = 0.0
    for gpu in case.gpus:
        bound = _memory_bound(case, gpu, seconds)
        if bound is None:
            return GpuWork(WorkKind.UNKNOWN, missing=(Signal("dram", fix="needs_hopper"),))
        most = max(most, bound)
    work = WorkKind.MOVES if most > limits.stalled_dram_ratio else WorkKind.SPINS
    proof = case.of_gpus("dram_at_most", "bandwidth_bytes_per_s", most, "dram", limits.stalled_dram_ratio)
    return GpuWork(work, (proof,), params(dram=most, busy=seen.busy, tensor=seen.tensor))


def _memory_bound(case: Case, gpu: Gpu, seconds: float) -> float | None:
    """Share of time in which a GPU's memory was used: the most that its share of the bandwidth can be."""
    if gpu.bandwidth_source is not BandwidthSource.UPPER_BOUND:
        return None
    peak = finite(gpu.bandwidth_peak_bytes_per_s)
    moved = case.gpu_mean(gpu, "bandwidth_bytes_per_s", seconds)
    if not peak or moved is None:
        return None
    return moved / peak


class Sign(NamedTuple):
    """A figure that may speak for work."""

    name: str
    """Parameter of a verdict's sentence."""
    quantity: str
    """Quantity of its evidence."""
    value: float | None
    """None: not measured."""
    quiet: float
    """Most that it may be where nothing is done."""
    source: str = ""
    chart: str = ""
    always: bool = False
    """It is named in the evidence also where it is not measured: without it an engine never counts as quiet."""

    @property
    def at_work(self) -> bool:
        """Whether it speaks for work."""
        return self.value is not None and self.value > self.quiet

    def evidence(self) -> Evidence:
        """The figure, or that it is not known."""
        value: Reading = NOT_EXPOSED if self.value is None else self.value
        return Evidence(self.quantity, value, source=self.source, chart=self.chart)


def work_signs(case: Case, engine: Engine) -> tuple[Sign, ...]:
    """Signs of work beside its GPUs: its processes, the links of its GPUs, KV transfers, the host's disks."""
    return (
        Sign("cpu", "process_cpu", case.now(PROCESS_CPU), QUIET_CPU, "/proc, each 4 s", always=True),
        Sign("pcie", "pcie_traffic", _most_pcie(case), QUIET_LINK_BYTES_PER_S, _gpu_source(case, "pcie"), always=True),
        Sign("nvlink", "nvlink_traffic", _most_nvlink(case), QUIET_LINK_BYTES_PER_S, _gpu_source(case, "nvlink")),
        Sign("kv", "kv_transfer_rate", _kv_moved(engine), 0.0, engine.sources.get("kv_transferred_bytes_per_s", "")),
        Sign("disk", "disk_reads", finite(case.snapshot.host.disk_read_bytes_per_s), _LOADING_BYTES_PER_S, "/proc"),
    )


def sign_evidence(figures: Iterable[Sign]) -> tuple[Evidence, ...]:
    """Evidence of the signs: known figures, and those without which nothing counts as quiet."""
    evidence = []
    for sign in figures:
        if sign.value is not None or sign.always:
            evidence.append(sign.evidence())
    return tuple(evidence)


def work_parameters(figures: Iterable[Sign]) -> Parameters:
    """Figures that speak for work, for a verdict's sentence."""
    parameters: Parameters = {}
    for sign in figures:
        if sign.at_work:
            parameters |= params(**{sign.name: sign.value})
    return parameters


def all_quiet(case: Case, engine: Engine, seconds: float) -> bool:
    """Whether its processes, PCIe and its GPUs were measured for `QUIET_S`, and did nothing.

    A figure that is missing does not count as quiet. NVLink and KV transfers do not exist everywhere: there only what
    moves speaks against it.
    """
    if seconds < QUIET_S or gpu_work(case, QUIET_S).work is not WorkKind.RESTS:
        return False
    if not _stayed_below(case.recent, PROCESS_CPU, QUIET_CPU):
        return False
    moved_elsewhere = _kv_moved(engine) or (_most_nvlink(case) or 0.0) > QUIET_LINK_BYTES_PER_S
    return not moved_elsewhere and all(_pcie_quiet(case, gpu) for gpu in case.gpus)


def _pcie_quiet(case: Case, gpu: Gpu) -> bool:
    recent = case.others.get(gpu.uuid)
    if recent is None:
        return False
    fields = ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s")
    return all(_stayed_below(recent, field, QUIET_LINK_BYTES_PER_S) for field in fields)


def _stayed_below(recent: Recent, field: str, most: float) -> bool:
    """Whether a field is known for the last minute, and was never above `most`."""
    values = recent.values(field, QUIET_S)
    if not values:
        return False
    first_s, _ = values[0]
    last_s, _ = values[-1]
    if last_s - first_s < COVERED_S:
        return False
    return all(value <= most for _, value in values)


def _most_pcie(case: Case) -> float | None:
    """Traffic of the GPU that has most, both ways, in bytes/s; None where it is not measured for any of them."""
    known = []
    for gpu in case.gpus:
        sent = case.gpu_mean(gpu, "pcie_tx_bytes_per_s", NOW_S)
        received = case.gpu_mean(gpu, "pcie_rx_bytes_per_s", NOW_S)
        if sent is not None and received is not None:
            known.append(sent + received)
    return max(known, default=None)


def _most_nvlink(case: Case) -> float | None:
    """Traffic over NVLink of the GPU that has most, in bytes/s; None where it is not measured for any of them."""
    return max(case.gpu_means("nvlink_bytes_per_s", NOW_S), default=None)


def _gpu_source(case: Case, link: str) -> str:
    if case.gpus:
        return case.gpus[0].sources.get(f"{link}_bytes_per_s", "")
    return ""


def _kv_moved(engine: Engine) -> float | None:
    """KV cache that comes or goes, in bytes/s; None where the engine does not tell."""
    rates = engine.rates
    parts = (rates.kv_transferred_bytes_per_s, rates.kv_loaded_bytes_per_s, rates.kv_stored_bytes_per_s)
    known = []
    for part in parts:
        rate = finite(part)
        if rate is not None:
            known.append(rate)
    if known:
        return sum(known)
    return None
