"""Work of an engine without tokens: what its GPUs, processes and links do meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.missing import NOT_EXPOSED, Reading
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu
from gpumon.readings.verdict import Evidence, Limit, Parameters, Signal
from gpumon.triage.finding import Quantity, params
from gpumon.triage.samples import PROCESS_CPU, Recent
from gpumon.triage.sentences import DRAM_ACTIVE, DRAM_AT_MOST, OVER_GPUS
from gpumon.triage.signals import NOW_S, Case, GpuActivity, finite, first_known
from gpumon.triage.thresholds import Thresholds

QUIET_S: Final = 60.0
"""An engine of which nothing has moved for a minute hangs: a compile, a transfer or a weight update moves something."""
COVERED_S: Final = 50.0
"""Part of that minute that the samples must reach back: PCIe is measured from `SUSPECTED_S` on, one GPU a tick."""
QUIET_CPU: Final = 0.1
"""Share of a core up to which a process waits: PyTorch's watchdog threads take 1% to 5%."""
QUIET_LINK_BYTES_PER_S: Final = 5e6
"""Traffic of a link up to which nothing is transferred: the driver's own housekeeping takes 1 MB/s."""
_LOADING_BYTES_PER_S: Final = 5e7
"""Disk reads of the host from which on somebody loads a file, such as weights."""
_HUNG_BAND: Final = 2.0
"""Factor of the thresholds of its GPUs' work while it stands as hung (hysteresis)."""
SM_AT_WORK: Final = 0.5
"""SM activity from which on a GPU computes: kernels that wait for other GPUs take a sixth of the SMs (NCCL: 16 to 24
blocks of 132)."""
POWER_AT_WORK: Final = 0.5
"""Share of the power limit from which on a GPU computes: one that spins draws a third."""


PROCESS_CPU_FIGURE: Final = Quantity(
    "process_cpu", "CPU of its busiest process (or what it started) [{value:percent} of a core|not known]"
)
PCIE_TRAFFIC: Final = Quantity("pcie_traffic", "PCIe [{value:bytes}/s|not measured]")
NVLINK_TRAFFIC: Final = Quantity("nvlink_traffic", "NVLink {value:bytes}/s")
KV_TRANSFER_RATE: Final = Quantity("kv_transfer_rate", "KV cache moved {value:bytes}/s")
DISK_READS: Final = Quantity("disk_reads", "the host's disks read {value:bytes}/s")
SM_SHARE: Final = Quantity("sm_share", "SM {value:percent} active" + OVER_GPUS, field="sm_active_ratio")
BUSY_SHARE: Final = Quantity("busy_share", "busy {value:percent}" + OVER_GPUS, field="busy_ratio")


class WorkKind(Enum):
    """Work of an engine's GPUs while no token comes."""

    COMPUTES = "computes"
    """Arithmetic, or what may be: a long prefill, for example."""
    MOVES = "moves"
    """Hardly any kernel, but their memory is read or written: weights or KV cache come in, for example."""
    SPINS = "spins"
    """Busy, with next to no memory traffic and no arithmetic: kernels wait for each other."""
    RESTS = "rests"
    """Next to no kernel and no memory traffic."""
    UNKNOWN = "unknown"


class GpuWork(msgspec.Struct, frozen=True):
    """Work of an engine's GPUs, with the figures that show it."""

    work: WorkKind
    evidence: tuple[Evidence, ...] = ()
    parameters: Parameters = {}
    missing: tuple[Signal, ...] = ()
    """Signals that would settle `WorkKind.UNKNOWN`."""


def gpu_work(case: Case, seconds: float) -> GpuWork:
    """Work of the engine's GPUs in the last seconds."""
    limits = _stall_limits(case)
    activity = case.activity(seconds)
    if not case.gpus or first_known(activity.busy, activity.sm, activity.dram) is None:
        return GpuWork(WorkKind.UNKNOWN, missing=(case.unmeasured(),))
    arithmetic = computes(case, activity, seconds, limits)
    if arithmetic:
        return GpuWork(WorkKind.COMPUTES)
    work = _work_without_arithmetic(case, activity, seconds, limits)
    if work.work is WorkKind.MOVES and (arithmetic is None or (activity.sm or 0.0) >= SM_AT_WORK):
        return GpuWork(WorkKind.COMPUTES)
    return work


def _work_without_arithmetic(case: Case, activity: GpuActivity, seconds: float, limits: Thresholds) -> GpuWork:
    """Work of GPUs that do no arithmetic: by their memory traffic where it is measured, else by how busy they are."""
    if activity.dram is not None:
        return _work_by_memory(case, activity, seconds, limits)
    idle = _rest_by_activity(case, activity, limits)
    if idle is not None:
        return idle
    return _work_by_upper_bound(case, activity, seconds, limits)


def _stall_limits(case: Case) -> Thresholds:
    """The thresholds of a stall; wider where the engine stands as hung, so that it does not come and go at an edge."""
    limits = case.thresholds
    if Limit.HUNG not in case.limits_before:
        return limits
    return msgspec.structs.replace(
        limits,
        stalled_busy_ratio=_HUNG_BAND * limits.stalled_busy_ratio,
        stalled_dram_ratio=_HUNG_BAND * limits.stalled_dram_ratio,
    )


def computes(case: Case, activity: GpuActivity, seconds: float, limits: Thresholds) -> bool | None:
    """Whether its GPUs do arithmetic: by tensor activity, else SM activity or power; None: nothing tells."""
    if activity.tensor is not None:
        return activity.tensor > limits.stalled_tensor_ratio
    are_working = []
    if activity.sm is not None:
        are_working.append(activity.sm >= SM_AT_WORK)
    for gpu in case.gpus:
        watts = case.gpu_mean(gpu, "power_w", seconds)
        limit = finite(gpu.reading.power_limit_w)
        if watts is not None and limit:
            are_working.append(watts >= POWER_AT_WORK * limit)
    if are_working:
        return any(are_working)
    return None


def _work_by_memory(case: Case, activity: GpuActivity, seconds: float, limits: Thresholds) -> GpuWork:
    """Work of GPUs by the measured memory traffic of the busiest."""
    busiest = max((case.dram_of(gpu, seconds) or 0.0 for gpu in case.gpus), default=0.0)
    busy = first_known(activity.busy, activity.sm)
    work = WorkKind.RESTS
    if busiest > limits.stalled_dram_ratio:
        work = WorkKind.MOVES
    elif busy is not None and busy > limits.stalled_busy_ratio:
        work = WorkKind.SPINS
    evidence = case.gpu_evidence(DRAM_ACTIVE, busiest, limit=limits.stalled_dram_ratio)
    return GpuWork(
        work, evidence=(evidence,), parameters=params(dram=busiest, busy=activity.busy, tensor=activity.tensor)
    )


def _rest_by_activity(case: Case, activity: GpuActivity, limits: Thresholds) -> GpuWork | None:
    """`RESTS` by SM activity or the busy share, if one of them is next to nothing; else None."""
    least = limits.stalled_busy_ratio
    for quantity, value in ((SM_SHARE, activity.sm), (BUSY_SHARE, activity.busy)):
        if value is not None and value <= least:
            evidence = case.gpu_evidence(quantity, value, limit=least)
            return GpuWork(WorkKind.RESTS, evidence=(evidence,), parameters=params(**{quantity.series: value}))
    return None


def _work_by_upper_bound(case: Case, activity: GpuActivity, seconds: float, limits: Thresholds) -> GpuWork:
    """Work of busy GPUs by the share of time in which their memory was used at all: those that hardly ever use it
    spin."""
    busiest = 0.0
    for gpu in case.gpus:
        bound = _memory_bound(case, gpu, seconds)
        if bound is None:
            return GpuWork(WorkKind.UNKNOWN, missing=(Signal("dram", fix="needs_hopper"),))
        busiest = max(busiest, bound)
    work = WorkKind.MOVES if busiest > limits.stalled_dram_ratio else WorkKind.SPINS
    evidence = case.gpu_evidence(DRAM_AT_MOST, busiest, limit=limits.stalled_dram_ratio)
    return GpuWork(
        work, evidence=(evidence,), parameters=params(dram=busiest, busy=activity.busy, tensor=activity.tensor)
    )


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
    quantity: Quantity
    value: float | None
    """None: not measured."""
    quiet: float
    """Most that it may be where nothing is done."""
    source: str = ""
    chart: str = ""
    is_required: bool = False
    """Without it an engine never counts as quiet, so that the evidence names it also where it is not measured."""

    def evidence(self) -> Evidence:
        """The figure, or that it is not known."""
        value: Reading = self.value if self.value is not None else NOT_EXPOSED
        return self.quantity.evidence(value, source=self.source, chart=self.chart)


def work_signs(case: Case, engine: Engine) -> tuple[Sign, ...]:
    """Signs of work beside its GPUs: its processes, the links of its GPUs, KV transfers, the host's disks."""
    return (
        Sign(
            name="cpu",
            quantity=PROCESS_CPU_FIGURE,
            value=case.newest(PROCESS_CPU),
            quiet=QUIET_CPU,
            source="/proc, each 4 s",
            is_required=True,
        ),
        Sign(
            name="pcie",
            quantity=PCIE_TRAFFIC,
            value=_most_pcie(case),
            quiet=QUIET_LINK_BYTES_PER_S,
            source=_gpu_source(case, "pcie"),
            is_required=True,
        ),
        Sign(
            name="nvlink",
            quantity=NVLINK_TRAFFIC,
            value=_most_nvlink(case),
            quiet=QUIET_LINK_BYTES_PER_S,
            source=_gpu_source(case, "nvlink"),
        ),
        Sign(
            name="kv",
            quantity=KV_TRANSFER_RATE,
            value=_kv_moved(engine),
            quiet=0.0,
            source=engine.sources.get("kv_transferred_bytes_per_s", ""),
        ),
        Sign(
            name="disk",
            quantity=DISK_READS,
            value=finite(case.snapshot.host.disk_read_bytes_per_s),
            quiet=_LOADING_BYTES_PER_S,
            source="/proc",
        ),
    )


def sign_evidence(signs: Iterable[Sign]) -> tuple[Evidence, ...]:
    """Evidence of the signs: known figures, and those without which nothing counts as quiet."""
    return tuple(sign.evidence() for sign in signs if sign.value is not None or sign.is_required)


def work_parameters(signs: Iterable[Sign]) -> Parameters:
    """Figures that speak for work, for a verdict's sentence."""
    return params(**{sign.name: sign.value for sign in signs if sign.value is not None and sign.value > sign.quiet})


def nothing_moves(case: Case, engine: Engine, seconds: float) -> bool:
    """Whether its processes, PCIe and its GPUs were measured for `QUIET_S`, and did nothing.

    A figure that is missing does not count as quiet. NVLink and KV transfers do not exist everywhere: there only what
    moves speaks against it.
    """
    if seconds < QUIET_S or gpu_work(case, QUIET_S).work is not WorkKind.RESTS:
        return False
    if not _stayed_below(case.recent, PROCESS_CPU, QUIET_CPU):
        return False
    moved_elsewhere = _kv_moved(engine) or (_most_nvlink(case) or 0.0) > QUIET_LINK_BYTES_PER_S
    return not moved_elsewhere and all(_is_pcie_quiet(case, gpu) for gpu in case.gpus)


def _is_pcie_quiet(case: Case, gpu: Gpu) -> bool:
    """Whether a GPU's PCIe traffic was measured for the last minute, and hardly anything moved."""
    recent = case.recents.get(gpu.reading.uuid)
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
    rates = []
    for gpu in case.gpus:
        sent = case.gpu_mean(gpu, "pcie_tx_bytes_per_s", NOW_S)
        received = case.gpu_mean(gpu, "pcie_rx_bytes_per_s", NOW_S)
        if sent is not None and received is not None:
            rates.append(sent + received)
    return max(rates, default=None)


def _most_nvlink(case: Case) -> float | None:
    """Traffic over NVLink of the GPU that has most, in bytes/s; None where it is not measured for any of them."""
    return max(case.gpu_means("nvlink_bytes_per_s", NOW_S), default=None)


def _gpu_source(case: Case, link: str) -> str:
    """Source of the traffic of a link of its GPUs, as the first has it."""
    if case.gpus:
        return case.gpus[0].sources.get(f"{link}_bytes_per_s", "")
    return ""


def _kv_moved(engine: Engine) -> float | None:
    """KV cache that comes or goes, in bytes/s; None where the engine does not tell."""
    rates = engine.rates
    parts = (rates.kv_transferred_bytes_per_s, rates.kv_loaded_bytes_per_s, rates.kv_stored_bytes_per_s)
    known_rates = [rate for rate in map(finite, parts) if rate is not None]
    if known_rates:
        return sum(known_rates)
    return None
