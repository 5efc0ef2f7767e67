"""What is derived from the frames and shown: the one truth behind the screen, `--json` and the exporters."""

from __future__ import annotations

from enum import Enum

import msgspec

from gpumon.readings.frame import EndpointState, EngineKind, GpuState, Phase
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, WARMING_UP, Reading
from gpumon.specs.llm import LlmSpec

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


class Process(msgspec.Struct, frozen=True):
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


class Gpu(msgspec.Struct, frozen=True):
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
    """MFU stands on a FLOP/s peak that is derived, or in the catalogue on one source only."""
    bandwidth_peak_unverified: bool = False
    """The same of MBU and of the share of the bandwidth."""
    mfu_ratio: Reading = NOT_SUPPORTED
    mbu_ratio: Reading = NOT_SUPPORTED
    power_w: Reading = NOT_SUPPORTED
    power_limit_w: Reading = NOT_SUPPORTED
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


class Quantiles(msgspec.Struct, frozen=True):
    """A latency over the last 60 s, in seconds. A quantile at or below `first_bound_s` fell in the first bucket."""

    p50: Reading = NOT_EXPOSED
    p95: Reading = NOT_EXPOSED
    p99: Reading = NOT_EXPOSED
    mean: Reading = NOT_EXPOSED
    p95_low: Reading = NOT_EXPOSED
    """Lower bound of the bucket that p95 fell in: the true p95 lies between this and `p95_high`. So p50 and p99."""
    p95_high: Reading = NOT_EXPOSED
    first_bound_s: Reading = NOT_EXPOSED
    p50_low: Reading = NOT_EXPOSED
    p50_high: Reading = NOT_EXPOSED
    p99_low: Reading = NOT_EXPOSED
    p99_high: Reading = NOT_EXPOSED


class TokensTotal(msgspec.Struct, frozen=True):
    """Tokens counted since gpumon started; restarts of the engine handled."""

    prefill_computed: Reading = WARMING_UP
    prefill_cached: Reading = WARMING_UP
    decode: Reading = WARMING_UP


class Window(msgspec.Struct, frozen=True):
    """What an engine did in the window of its rates, as far as only sizing needs it; None is not known."""

    seconds: float
    """Length of the window."""
    running_least: float
    """Fewest requests running at a poll in it, all ranks."""
    running_most: float
    decoding_mean: float | None = None
    """Mean sequences that decoded: the sum of all gaps between tokens / the window (Little's law)."""
    prefill_ratio: float | None = None
    """Computed prompt tokens / (those + generated tokens)."""
    first_token_s: float | None = None
    """Mean TTFT less the mean time in the queue."""


class Engine(msgspec.Struct, frozen=True):
    """One serving engine, as shown. Rates over 10 s, prefill over the longer of 10 s and the longest TTFT."""

    name: str
    kind: EngineKind
    phase: Phase
    url: str
    state: EndpointState
    age_s: float
    fault: str = ""
    version: str = ""
    model: str = ""
    model_source: str = ""
    """Where the model's dimensions come from; empty where they are not known."""
    gpus: tuple[int, ...] = ()
    gpus_source: str = ""
    gpu_type: str = ""
    tp: int = 0
    """GPUs of one data-parallel rank; 0 where not known."""
    running: Reading = NOT_EXPOSED
    waiting: Reading = NOT_EXPOSED
    kv_usage_ratio: Reading = NOT_EXPOSED
    prefill_tokens_per_s: Reading = NOT_EXPOSED
    """Computed prefill: tokens from the prefix cache are not in it."""
    decode_tokens_per_s: Reading = NOT_EXPOSED
    cached_tokens_per_s: Reading = NOT_EXPOSED
    requests_per_s: Reading = NOT_EXPOSED
    steps_per_s: Reading = NOT_EXPOSED
    context_tokens: Reading = NOT_EXPOSED
    """Mean tokens in context of a running sequence."""
    ttft_s: Quantiles = Quantiles()
    itl_s: Quantiles = Quantiles()
    queue_s: Quantiles = Quantiles()
    e2e_s: Quantiles = Quantiles()
    preemptions_per_s: Reading = NOT_EXPOSED
    tokens_total: TokensTotal = TokensTotal()
    mfu_ratio: Reading = NOT_EXPOSED
    mfu_prefill_ratio: Reading = NOT_EXPOSED
    mfu_decode_ratio: Reading = NOT_EXPOSED
    mbu_ratio: Reading = NOT_EXPOSED
    mbu_single_stream_ratio: Reading = NOT_EXPOSED
    """Parameters x bytes per parameter x tokens/s / peak: the textbook form, exact for one stream only."""
    flops_per_s: Reading = NOT_EXPOSED
    bytes_per_s: Reading = NOT_EXPOSED
    tokens_per_j: Reading = NOT_EXPOSED
    flops_per_j: Reading = NOT_EXPOSED
    samples_per_s: Reading = NOT_EXPOSED
    peak_unverified: bool = False
    """MFU stands on a FLOP/s peak that is derived, or in the catalogue on one source only."""
    bandwidth_peak_unverified: bool = False
    """The same of MBU."""
    precision: str = ""
    """Precision that the arithmetic runs in: it decides the FLOP/s peak."""
    sources: dict[str, str] = {}
    """Quantity -> the metric or formula that it comes from."""
    since: str = ""
    """RFC 3339: since when `state` is what it is, as far back as gpumon looked."""
    gpu_count: Reading = NOT_EXPOSED
    """GPUs of all its ranks."""
    power_w: Reading = NOT_EXPOSED
    """Of its GPUs, mean of 10 s as the rates are: the watts of `tokens_per_j` and `flops_per_j`."""
    params: Reading = NOT_EXPOSED
    """Parameters of the model."""
    active_params: Reading = NOT_EXPOSED
    """N_mm: parameters that one token is multiplied with."""
    layers: Reading = NOT_EXPOSED
    weight_precision: str = ""
    kv_precision: str = ""
    flops_per_decode_token: Reading = NOT_EXPOSED
    """At `context_tokens`; decode FLOP/s = decode tokens/s x this."""
    prefill_flops_per_s: Reading = NOT_EXPOSED
    decode_flops_per_s: Reading = NOT_EXPOSED
    peak_flops_per_s: Reading = NOT_EXPOSED
    """Dense peak of `precision`, sum over its GPUs: MFU's denominator."""
    batch: Reading = NOT_EXPOSED
    """Mean sequences per step of one rank."""
    weight_bytes: Reading = NOT_EXPOSED
    """Weights that one step reads at this batch; bytes/s = steps/s x this + what the KV cache costs."""
    kv_bytes_per_token: Reading = NOT_EXPOSED
    """KV cache of one token in context, one copy."""
    weight_bytes_per_s: Reading = NOT_EXPOSED
    kv_bytes_per_s: Reading = NOT_EXPOSED
    peak_bandwidth_bytes_per_s: Reading = NOT_EXPOSED
    """Sum over its GPUs: MBU's denominator."""
    kv_pool_tokens: Reading = NOT_EXPOSED
    """Tokens that its KV cache holds, all ranks."""
    ranks: int = 0
    """Data-parallel ranks, each an instance of the model on its own GPUs; 0 where not known."""
    running_mean: Reading = NOT_EXPOSED
    """Mean of `running` over the 10 s of the rates."""
    itl_mean_s: Reading = NOT_EXPOSED
    """Mean time per token after a request's first over those 10 s; `itl_s` is of the last 60 s."""
    prompt_tokens_mean: Reading = NOT_EXPOSED
    """Mean prompt of the requests that ended in the last 60 s, cached tokens included."""
    answer_tokens_mean: Reading = NOT_EXPOSED
    """Mean answer of those requests."""
    cached_ratio: Reading = NOT_EXPOSED
    """Share of the prompt tokens of the last 60 s that came from the prefix cache."""
    window: Window | None = None
    llm: LlmSpec | None = None


class Verdict(msgspec.Struct, frozen=True):
    """What limits an engine, a GPU or the host, with its evidence and the next action."""

    scope: str
    limit: str
    evidence: tuple[str, ...]
    action: str
    confidence: str
    since: str


class FaultShown(msgspec.Struct, frozen=True):
    """Something that does not work right now. `since` is RFC 3339."""

    source: str
    text: str
    since: str


class Host(msgspec.Struct, frozen=True):
    """The machine that gpumon runs on."""

    name: str
    driver: str
    cuda: str
    cpu_ratio: Reading
    memory_used_bytes: Reading
    memory_total_bytes: Reading


class Self(msgspec.Struct, frozen=True):
    """What gpumon costs: share of one core, and proportional memory, of the monitor and its worker."""

    cpu_ratio: Reading
    pss_bytes: Reading


class Snapshot(msgspec.Struct, frozen=True, eq=False):
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
