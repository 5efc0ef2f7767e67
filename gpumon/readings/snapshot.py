"""What is derived from the frames and shown: the one truth behind the screen, `--json` and the exporters."""

from __future__ import annotations

from enum import Enum

import msgspec

from gpumon.readings.engine_snapshot import Engine as Engine
from gpumon.readings.engine_snapshot import OwnEstimate as OwnEstimate
from gpumon.readings.engine_snapshot import Quantiles as Quantiles
from gpumon.readings.engine_snapshot import RankLoad as RankLoad
from gpumon.readings.engine_snapshot import Replicas as Replicas
from gpumon.readings.engine_snapshot import TokensTotal as TokensTotal
from gpumon.readings.engine_snapshot import Window as Window
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import NOT_SUPPORTED, WARMING_UP, Reading
from gpumon.readings.verdict import Confidence as Confidence
from gpumon.readings.verdict import Event as Event
from gpumon.readings.verdict import EventKind as EventKind
from gpumon.readings.verdict import Evidence as Evidence
from gpumon.readings.verdict import Family as Family
from gpumon.readings.verdict import Kind as Kind
from gpumon.readings.verdict import Level as Level
from gpumon.readings.verdict import Limit as Limit
from gpumon.readings.verdict import RaisedAlert as RaisedAlert
from gpumon.readings.verdict import Verdict as Verdict

SCHEMA = 1
"""Version of the JSON contract; it changes when a field changes its meaning or goes away."""


class BandwidthSource(str, Enum):
    """Where a GPU's memory bandwidth comes from, best first."""

    GPM = "gpm"
    """Measured by the GPU (NVML GPM DRAM activity x peak)."""
    DCGM = "dcgm"
    """Measured by the GPU, through a dcgm-exporter."""
    ENGINE = "engine"
    """Modelled from the steps of the engines on it: a lower bound."""
    UPPER_BOUND = "upper_bound"
    """NVML utilization.memory x peak: a share of time, so at most this much."""
    NONE = "none"


class Process(msgspec.Struct, frozen=True, gc=False):
    """A process on a GPU."""

    pid: int
    name: str
    user: str
    vram_bytes: Reading
    container: str
    engine: str
    command: str = ""
    """Command line, at most 512 characters; empty where the kernel hides it."""
    sm_ratio: Reading = NOT_SUPPORTED
    """Share of the SMs' time that was this process's (NVML, newest sample of the last 4 s)."""
    type: str = "compute"
    """compute, graphics, or mps."""
    pod: str = ""
    """Kubernetes pod, as far as its cgroup path tells: the pod's uid."""


class Gpu(msgspec.Struct, frozen=True, gc=False):
    """One GPU, as shown. Ratios 0..1 (MFU and MBU are not clamped), bytes, watts, joules, Hz."""

    index: int
    uuid: str
    name: str
    state: GpuState
    age_s: float
    state_text: str = ""
    busy_ratio: Reading = NOT_SUPPORTED
    sm_active_ratio: Reading = NOT_SUPPORTED
    tensor_active_ratio: Reading = NOT_SUPPORTED
    vram_used_bytes: Reading = NOT_SUPPORTED
    vram_total_bytes: Reading = NOT_SUPPORTED
    vram_shared: bool = False
    bandwidth_bytes_per_s: Reading = NOT_SUPPORTED
    bandwidth_source: BandwidthSource = BandwidthSource.NONE
    bandwidth_peak_bytes_per_s: Reading = NOT_SUPPORTED
    peak_source: str = ""
    """Where the bandwidth peak and the FLOP peaks come from; says `unverified` where the catalogue row is."""
    peak_unverified: bool = False
    """MFU stands on a FLOP/s peak that is derived, assumed, or in the catalogue on one source only."""
    bandwidth_peak_unverified: bool = False
    """The same of MBU and of the share of the bandwidth."""
    mfu_ratio: Reading = NOT_SUPPORTED
    mbu_ratio: Reading = NOT_SUPPORTED
    power_w: Reading = NOT_SUPPORTED
    power_limit_w: Reading = NOT_SUPPORTED
    power_default_w: Reading = NOT_SUPPORTED
    """Power limit that the card has by itself: one below it was set by somebody."""
    energy_j: Reading = NOT_SUPPORTED
    """Since gpumon started."""
    temperature_c: Reading = NOT_SUPPORTED
    sm_clock_hz: Reading = NOT_SUPPORTED
    nvlink_bytes_per_s: Reading = NOT_SUPPORTED
    """Received plus sent."""
    pcie_bytes_per_s: Reading = NOT_SUPPORTED
    throttle: tuple[str, ...] = ()
    xid: tuple[int, ...] = ()
    ecc_uncorrected: Reading = NOT_SUPPORTED
    remap_pending: Reading = NOT_SUPPORTED
    engines: tuple[str, ...] = ()
    """Names of the engines that run on it."""
    processes: tuple[Process, ...] = ()
    busy_mean_ratio: Reading = WARMING_UP
    """Mean of `busy_ratio` since gpumon started (at most an hour), missing time excluded."""
    tokens_per_j: Reading = NOT_SUPPORTED
    """Decode tokens/s of its engines over its mean watts of the same 10 s; `power_w` is that of the last second."""
    parent_uuid: str = ""
    mig_profile: str = ""
    compute_capability: str = ""
    """CUDA's, e.g. `9.0`."""
    memory_temperature_c: Reading = NOT_SUPPORTED
    sm_occupancy_ratio: Reading = NOT_SUPPORTED
    """Resident warps / the most that fit (GPM); good kernels run at low occupancy too."""
    memory_busy_ratio: Reading = NOT_SUPPORTED
    """Share of time in which the memory was read or written at all: no share of its bandwidth."""
    sm_clock_max_hz: Reading = NOT_SUPPORTED
    memory_clock_hz: Reading = NOT_SUPPORTED
    memory_clock_max_hz: Reading = NOT_SUPPORTED
    vram_reserved_bytes: Reading = NOT_SUPPORTED
    """Held by the driver itself; not in `vram_used_bytes`."""
    flops_peak_per_s: Reading = NOT_SUPPORTED
    """Dense peak at the precision that its engines compute in: the denominator of MFU."""
    flops_peak_precision: str = ""
    """That precision; several, joined by `+`, where engines differ (the peak is then not defined)."""
    pcie_tx_bytes_per_s: Reading = NOT_SUPPORTED
    """Device to host."""
    pcie_rx_bytes_per_s: Reading = NOT_SUPPORTED
    nvlink_tx_bytes_per_s: Reading = NOT_SUPPORTED
    nvlink_rx_bytes_per_s: Reading = NOT_SUPPORTED
    pcie_generation: Reading = NOT_SUPPORTED
    """Of the link as it is trained now: an idle GPU trains it down."""
    pcie_generation_max: Reading = NOT_SUPPORTED
    """The most that this GPU and its slot can do."""
    pcie_width: Reading = NOT_SUPPORTED
    """Lanes of the link as it is now."""
    pcie_width_max: Reading = NOT_SUPPORTED
    ecc_corrected: Reading = NOT_SUPPORTED
    remap_failed: Reading = NOT_SUPPORTED
    throttle_s: dict[str, float] = {}
    """Seconds throttled since gpumon started, by cause; a cause that the driver does not count is not in it."""
    sources: dict[str, str] = {}
    """Field -> the driver call, GPM metric or formula that it comes from."""
    gpu_type: str = ""
    """Its name in the catalogue, e.g. `H100 SXM 80GB`; empty where it is not in there, and under MIG."""
    host: str = ""
    """Name that a dcgm-exporter gives its machine; empty for a GPU that NVML lists."""
    activity_source: str = ""
    """Where SM, tensor and DRAM activity come from: `gpm`, `dcgm`, or empty where nothing measures them."""
    activity_age_s: Reading = NOT_SUPPORTED
    """Seconds since they were measured: of a dcgm-exporter, since its page last changed."""
    achievable_ratio: Reading = NOT_SUPPORTED
    """Share of `flops_peak_per_s` that products of large matrices reached on this type of GPU, where a source measured
    it: what the best MFU may come to. No figure is measured against it."""


class FaultShown(msgspec.Struct, frozen=True, gc=False):
    """Something that does not work right now. `since` is RFC 3339."""

    source: str
    text: str
    since: str
    code: str = ""
    """Of a GPU or an engine: its cause, e.g. `hw_thermal_slowdown`, `ecc`, `lost`."""


class Host(msgspec.Struct, frozen=True, gc=False):
    """The machine that gpumon runs on."""

    name: str
    driver: str
    cuda: str
    cpu_ratio: Reading
    memory_used_bytes: Reading
    memory_total_bytes: Reading
    busiest_core_ratio: Reading = NOT_SUPPORTED
    """Share of time in which the busiest core worked: 1 beside a low `cpu_ratio` is one thread at its limit."""
    iowait_ratio: Reading = NOT_SUPPORTED
    """Share of all cores' time in which they waited for a disk with nothing else to do."""
    cpu_pressure_ratio: Reading = NOT_SUPPORTED
    """Share of time in which some task waited for a core (Linux PSI, `some`, mean of 10 s)."""
    io_pressure_ratio: Reading = NOT_SUPPORTED
    """Share of time in which some task waited for a disk (Linux PSI, `some`, mean of 10 s)."""
    memory_pressure_ratio: Reading = NOT_SUPPORTED
    disk_read_bytes_per_s: Reading = NOT_SUPPORTED
    disk_write_bytes_per_s: Reading = NOT_SUPPORTED
    disk_busy_ratio: Reading = NOT_SUPPORTED
    """Share of time in which the busiest disk had a request in flight."""
    network_rx_bytes_per_s: Reading = NOT_SUPPORTED
    """Of all interfaces with a device; where none has one (a container), of all but loopback."""
    network_tx_bytes_per_s: Reading = NOT_SUPPORTED


class Self(msgspec.Struct, frozen=True, gc=False):
    """What gpumon costs: share of one core, and proportional memory, of the monitor and its worker."""

    cpu_ratio: Reading
    pss_bytes: Reading


class Snapshot(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Everything shown at one moment; compared by identity. `time` is RFC 3339 in UTC."""

    time: str
    wall_s: float
    simulated: bool
    interval_s: float
    host: Host
    self_cost: Self
    gpus: tuple[Gpu, ...] = ()
    engines: tuple[Engine, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    faults: tuple[FaultShown, ...] = ()
    replicas: tuple[Replicas, ...] = ()
    """One for each model that two or more engines serve."""
    events: tuple[Event, ...] = ()
    """What happened since the snapshot before this one."""
    alerts: tuple[RaisedAlert, ...] = ()
    """Alerts of the config that hold."""
    counted_since: str = ""
    """Of a moment of the past: since when what is said to be counted since gpumon started is counted in it (RFC 3339);
    empty of now."""
