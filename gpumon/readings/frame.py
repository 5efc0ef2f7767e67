"""Raw readings of one tick, as the sources gave them: what a recording keeps.

Thousands of these and of what is shown are kept, and none can be in a cycle: the garbage collector need not look at
them (`gc=False`).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from gpumon.readings.engine_options import NO_OPTIONS, EngineOptions
from gpumon.readings.flat import Internal, Part
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, Reading
from gpumon.readings.text import clean
from gpumon.specs.llm import LlmSpec

MODEL_AWAITED = "model_awaited"
"""Key in `EngineReading.info`: there is no `llm` because the model is still looked for."""
SLEEPING: Final = "sleeping"
"""Key in `EngineReading.info`: the server rests on purpose, and how; absent or empty while it is awake."""
FAILURES_BY_CAUSE: Final = "failures_by_cause"
"""Key in `EngineReading.info`: why requests failed since the engine started, with counts; text from outside."""
REFUSALS_BY_CAUSE: Final = "refusals_by_cause"
"""Key in `EngineReading.info`: why requests were refused, as they were wrong, since the engine started, with counts;
text from outside."""
SERVES: Final = "serves"
EMBEDDINGS: Final = "embeddings"
"""`EngineReading.info[SERVES]` of a server that turns texts into vectors or scores, and generates nothing."""
DIFFUSION: Final = "diffusion"
"""Key in `EngineReading.info`: the model writes by denoising, so that its steps are no tokens."""
POOL_SIZE_UNTOLD: Final = "untold"
"""Key in `EngineReading.info`: why the server does not tell how large its KV pool is."""
GPU_LAYERS: Final = "gpu_layers"
"""Key in `EngineReading.info`: how many of the model's layers are on its GPUs (llama.cpp); text from outside."""
WEIGHTS_ON_CPU: Final = "weights_on_cpu"
"""Key in `EngineReading.info`: the option that leaves some weights to the CPU; how many it does not say."""
SERVER_COMMAND: Final = "server_command"
"""Key in `EngineReading.info`: the command line of its server, without what may be a secret. Text from outside."""
SIMULATED: Final = "sim:"
"""Begin of names and commands of simulated processes."""
OPTIONS_UNREAD: Final = "options_unread"
"""Key beside `SERVER_COMMAND`: the file with further options that could not be read. Text from outside."""
CPU_OFFLOAD_GB: Final = "cpu_offload_gb"
"""Key in `EngineReading.info`: GiB of each GPU's weights that are in the host's memory (vLLM, SGLang)."""
ON_GPU_RATIO: Final = "on_gpu_ratio"
"""Key in `EngineReading.info`: share of the model's memory that is the GPUs' (Ollama)."""
TOKENS_OFF = "tokens_off"
"""Key in `EngineReading.info`: the server counts no tokens; the value is the option to start it with."""
SCRAPED: Final = "prometheus"
"""`EngineReading.found_by` of an engine that a Prometheus scrapes."""
LAST_ANSWER: Final = "served"
"""Key in `EngineReading.info` of an engine that does not answer and did before: when it answered last (Unix time)."""
STARTS: Final = "starts"
"""Key in `EngineReading.info`: the process runs and does not listen yet; the value is one of `Start`: what it does."""
START_READ: Final = "starts_read_bytes_per_s"
"""Key beside `STARTS`: bytes/s that the process reads from disks."""
START_VRAM: Final = "starts_vram_bytes"
"""Key beside `STARTS`: VRAM that the process holds."""
START_CPU: Final = "starts_cpu_cores"
"""Key beside `STARTS`: CPU cores that the process keeps busy."""
START_PID: Final = "starts_pid"
"""Key beside `STARTS`: pid of the process."""
DRAINS_SINCE: Final = "drains_since"
"""Key in `EngineReading.info` of an engine that drains: since when its port is closed (Unix time)."""
DRAINS_CONNECTIONS: Final = "drains_connections"
"""Key beside `DRAINS_SINCE`: connections to the closed port that are still open."""
MOST_PART: Final = 40
"""Most characters of a model that stand in an engine's name."""


class GpuState(str, Enum):
    """Health of one GPU as the driver reports it."""

    OK = "ok"
    INITIALISING = "initialising"
    STALE = "stale"
    """The driver worker has not answered for 3 intervals."""
    MUTE = "mute"
    """The driver's calls for this GPU do not return; its figures are those of before."""
    LOST = "lost"
    """Fallen off the bus or hot-unplugged (NVML GPU_IS_LOST)."""
    RESET_REQUIRED = "reset_required"
    NO_PERMISSION = "no_permission"
    ERROR = "error"


class EndpointState(str, Enum):
    """Result of the last poll of an engine endpoint."""

    OK = "ok"
    STARTING = "starting"
    """Not polled yet, or the server answers 503 while it loads."""
    DOWN = "down"
    """The process of a server that answered before has ended: `EngineReading.departure` says what is known of it."""
    DRAINING = "draining"
    """It has closed its port and its process goes on: it ends what runs. `EngineReading.info` has since when."""
    REFUSED = "refused"
    TIMEOUT = "timeout"
    DNS = "dns"
    TLS = "tls"
    UNAUTHORIZED = "unauthorized"
    METRICS_OFF = "metrics_off"
    """The server answers, but its metrics are switched off; the fault text names the flag."""
    HTTP_ERROR = "http_error"
    NOT_METRICS = "not_metrics"
    """The answer is no Prometheus text (HTML, JSON, binary)."""
    WRONG_ENGINE = "wrong_engine"
    """Metrics, but none of an engine that gpumon knows."""
    TOO_LARGE = "too_large"
    ERROR = "error"


class EngineKind(str, Enum):
    """Serving engines with an adapter."""

    UNKNOWN = "unknown"
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMA_CPP = "llamacpp"
    TRITON = "triton"
    TENSORRT_LLM = "trtllm"
    TGI = "tgi"
    NIM = "nim"
    LMDEPLOY = "lmdeploy"
    DYNAMO = "dynamo"
    RAY = "ray"
    """Ray Serve LLM: vLLM's or SGLang's series under Ray's names."""
    OLLAMA = "ollama"
    TEI = "tei"
    """Text Embeddings Inference: no decode at all."""
    APHRODITE = "aphrodite"
    TOKENSPEED = "tokenspeed"
    VLLM_OMNI = "vllm_omni"
    """Pipelines of several models (text, sound, pictures); its pages hold vLLM's series by stage besides."""
    FASTDEPLOY = "fastdeploy"
    MAX = "max"
    XINFERENCE = "xinference"
    SGLANG_DIFFUSION = "sglang_diffusion"
    """SGLang with a diffusion model: it makes pictures and videos, and no tokens."""
    LITELLM = "litellm"
    GATEWAY = "gateway"
    """Endpoint picker of llm-d and of the Kubernetes gateway API's inference extension."""
    VLLM_STACK = "vllm_stack"
    """Router of vLLM's production stack."""
    VLLM_ROUTER = "vllm_router"
    """vLLM's router in Rust (vllm-project/router)."""
    SMG = "smg"
    """SGLang's router, and the model gateway that it became."""
    GENERIC = "generic"
    """A feed that the user described in the config."""


class Advance(str, Enum):
    """When a quantity moves while a long answer is being generated."""

    LIVE = "live"
    """With the engine's steps."""
    PROMPT = "prompt"
    """A whole prompt at once, when its first token is there."""
    END = "end"
    """Only when a request ends: no live rate can be had from it."""
    SAMPLED = "sampled"
    """The engine's own figure of a moment, or of its last few steps."""
    DERIVED = "derived"
    """Worked out from other series, by the formula that `live` names."""


class Phase(str, Enum):
    """Kind of an engine's tokens: forward passes for users, or training steps."""

    INFERENCE = "inference"
    TRAINING = "training"


class GpuProcess(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A process on a GPU."""

    pid: int
    name: str = ""
    user: str = ""
    vram_bytes: Reading = NOT_SUPPORTED
    container: str = ""
    sm_ratio: Reading = NOT_SUPPORTED
    """Share of the SMs' time that was this process's (NVML, newest sample of the last 4 s)."""
    type: str = "compute"
    """compute, graphics, or mps."""
    engine: str = ""
    """Name of the engine that it belongs to, where that is known."""
    command: str = ""
    """Command line, at most 512 characters; empty where the kernel hides it."""
    pod: str = ""
    """Kubernetes pod, as far as its cgroup path tells: the pod's uid."""
    pod_name: str = ""
    """`namespace/name` of the pod, or its name alone, where gpumon may read that."""
    job: str = ""
    """Slurm job."""
    cpu_ratio: Reading = NOT_EXPOSED
    """Time of the process on the host's cores: 1 is one core."""
    rss_bytes: Reading = NOT_EXPOSED
    """Host memory that the process holds."""
    started_s: float = 0.0
    """When the process began (Unix time); 0 where that is not known."""
    children_cpu_ratio: Reading = NOT_EXPOSED
    """Time on the host's cores of the processes that it started, such as compilers: 1 is one core."""
    container_name: str = ""
    """Name of the container, where Docker tells it to gpumon's user."""


OFF_THE_BUS: Final = 79
"""Xid of a GPU that has fallen off the bus."""


class XidEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One Xid error event of the driver. `wall_s` is Unix time of arrival."""

    code: int
    wall_s: float


class GpuReading(Part, frozen=True, array_like=True, gc=False):
    """One GPU as NVML reports it. Ratios 0..1; activity ratios are GPM's means over the last interval.

    Texts, those of its processes too, come from outside; those of a `Gpu` are safe to print.

    `monotonic_s` is when it was read, on the clock of `Frame.monotonic_s`.
    """

    index: int
    uuid: str
    name: str
    state: GpuState
    monotonic_s: Internal[float] = 0.0
    state_text: str = ""
    busy_ratio: Reading = NOT_SUPPORTED
    memory_busy_ratio: Reading = NOT_SUPPORTED
    """Share of time in which the memory was read or written at all: no share of its bandwidth."""
    sm_active_ratio: Reading = NOT_SUPPORTED
    sm_occupancy_ratio: Reading = NOT_SUPPORTED
    """Resident warps / the most that fit (GPM); good kernels run at low occupancy too."""
    tensor_active_ratio: Reading = NOT_SUPPORTED
    dram_active_ratio: Internal[Reading] = NOT_SUPPORTED
    pcie_tx_bytes_per_s: Reading = NOT_SUPPORTED
    """Device to host."""
    pcie_rx_bytes_per_s: Reading = NOT_SUPPORTED
    nvlink_tx_bytes_per_s: Reading = NOT_SUPPORTED
    nvlink_rx_bytes_per_s: Reading = NOT_SUPPORTED
    vram_used_bytes: Reading = NOT_SUPPORTED
    vram_total_bytes: Reading = NOT_SUPPORTED
    vram_reserved_bytes: Reading = NOT_SUPPORTED
    """Held by the driver itself; not in `vram_used_bytes`."""
    vram_shared: bool = False
    """True where the GPU uses the host's memory (GB10, Thor): the figures are the host's."""
    power_w: Reading = NOT_SUPPORTED
    """As the driver reports it: mean of 1 s, or the instant value on GA100 and older."""
    power_limit_w: Reading = NOT_SUPPORTED
    energy_j: Reading = NOT_SUPPORTED
    """Counter since the driver was loaded."""
    temperature_c: Reading = NOT_SUPPORTED
    memory_temperature_c: Reading = NOT_SUPPORTED
    sm_clock_hz: Reading = NOT_SUPPORTED
    sm_clock_max_hz: Reading = NOT_SUPPORTED
    memory_clock_hz: Reading = NOT_SUPPORTED
    memory_clock_max_hz: Reading = NOT_SUPPORTED
    memory_bus_bits: Internal[Reading] = NOT_SUPPORTED
    sm_count: Internal[Reading] = NOT_SUPPORTED
    compute_capability: str = ""
    """CUDA's, e.g. `9.0`."""
    throttle: tuple[str, ...] = ()
    """Names of the active clock event reasons that the driver reports (`idle` is left out)."""
    xid: tuple[XidEvent, ...] = ()
    """Xid events since gpumon started, newest last, at most 16."""
    ecc_uncorrected: Reading = NOT_SUPPORTED
    ecc_corrected: Reading = NOT_SUPPORTED
    remap_pending: Reading = NOT_SUPPORTED
    remap_failed: Reading = NOT_SUPPORTED
    pcie_generation: Reading = NOT_SUPPORTED
    """Generation of the link as it is trained now: an idle GPU trains it down."""
    pcie_width: Reading = NOT_SUPPORTED
    """Lanes of the link as it is now."""
    pcie_width_max: Reading = NOT_SUPPORTED
    mig: Internal[bool] = False
    """MIG is enabled on this GPU (it is then a parent; its slices follow as readings of their own)."""
    parent_uuid: str = ""
    mig_profile: str = ""
    processes: tuple[GpuProcess, ...] = ()
    pcie_generation_max: Reading = NOT_SUPPORTED
    """The most that this GPU and its slot can do."""
    throttle_s: dict[str, float] = msgspec.field(default_factory=dict)
    """The driver's own counters by cause, in seconds since it was loaded; only those that this GPU has."""
    activity_source: str = ""
    """Source of SM active, tensor active and memory bandwidth: `gpm`, `dcgm`, or empty where nothing measures them."""
    activity_monotonic_s: Internal[float] = 0.0
    """When a dcgm-exporter last changed them; 0 where they are as old as the rest."""
    source: Internal[str] = "nvml"
    """Who reports this GPU: `nvml`, `amdsmi`, `sysfs` (the kernel's files alone), `dcgm` (dcgm-exporter alone),
    `nvidia-smi` or `simulator`."""
    from_dcgm: Internal[tuple[str, ...]] = ()
    """Fields that a dcgm-exporter measured: they are as old as `activity_monotonic_s` says."""
    activity_interval_s: Internal[float] = 0.0
    """Seconds between two of the exporter's measurements, as they were seen to come; 0 without an exporter."""
    host: str = ""
    """Name that a dcgm-exporter gives its machine; empty for a GPU that NVML lists."""
    mig_instance: Internal[str] = ""
    """Id of a slice's GPU instance, by which DCGM tells the slices of a GPU apart."""
    architecture: Internal[int] = 0
    """NVML_DEVICE_ARCH_*: 9 Hopper, 10 Blackwell, 13 Rubin; 0: not told."""
    power_default_w: Reading = NOT_SUPPORTED
    """Power limit that the card has by itself: one below it was set by somebody."""
    idle_since_wall_s: Internal[float] = 0.0
    """Unix time since when it did nothing, as a Prometheus tells of the day before it was first seen; 0: not told."""
    fan_ratio: Reading = NOT_SUPPORTED
    """Share of the fan's full speed, as the driver wants it."""
    persistence_mode: Reading = NOT_SUPPORTED
    """1: the driver keeps the GPU open while no process uses it; 0: it does not."""
    ecc_mode: Reading = NOT_SUPPORTED
    """1: the GPU's memory corrects errors; 0: that is switched off."""
    memory_peak_bytes_per_s: Internal[Reading] = NOT_SUPPORTED
    """Peak bandwidth of its memory, where the driver has it as one figure (AMD SMI)."""
    bad_pages: Reading = NOT_SUPPORTED
    """Pages of its memory that are taken out of use, or wait for it."""
    bad_pages_pending: Reading = NOT_SUPPORTED
    """Pages that wait to be taken out of use."""
    xgmi_links: Reading = NOT_SUPPORTED
    """Links to other GPUs (AMD's XGMI); their traffic is in `nvlink_*`."""
    xgmi_links_up: Reading = NOT_SUPPORTED
    """Links that are up."""
    bus_id: Internal[str] = ""
    """PCI address as sysfs writes it (`0000:41:00.0`); empty: not told."""
    nvlinks: Reading = NOT_SUPPORTED
    """NVLinks that the GPU has."""
    nvlinks_active: Reading = NOT_SUPPORTED
    """NVLinks that are up: a pair under a bridge uses some of them only."""
    nvlinks_down: tuple[int, ...] = ()
    """Numbers of the NVLinks that are not up."""
    nvlink_errors: Reading = NOT_SUPPORTED
    """CRC errors, replays and recoveries of all its NVLinks, since the driver was loaded."""
    pcie_replays: Reading = NOT_SUPPORTED
    """Packets that were sent again over PCIe, since the driver was loaded."""
    lists_processes: Internal[bool] = True
    """The driver gives a list of the processes on the GPU, be it empty."""
    own_namespace: Internal[bool] = False
    """The driver was asked from inside a pid namespace: it lists the processes of that one only."""
    standing_xid: Internal[int] = 0
    """Code of the last Xid error, which a dcgm-exporter shows until the GPU is reset; 0: none, or not told."""


GPU_FIGURES: Final = tuple(field.name for field in msgspec.structs.fields(GpuReading) if field.default is NOT_SUPPORTED)
"""Names of all fields of a GpuReading that are a Reading."""


class HistogramReading(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A Prometheus histogram: cumulative `counts` up to each upper bound in `bounds` (last is +Inf)."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float
    count: float


class RankReading(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The series of one data-parallel rank, by canonical quantity (`readings.quantities`)."""

    rank: str
    counters: dict[str, float]
    gauges: dict[str, float]
    histograms: dict[str, HistogramReading]


class Training(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How the tokens or samples of a training run become FLOPs."""

    flops_per_token: float
    """Forward and backward of one token, over all GPUs: 6 x parameters (Kaplan et al. 2020, 2.1), or the user's."""
    tokens_per_sample: float = 0.0
    """Tokens of a sample, if a run counts samples; 0: it counts tokens."""
    precision: str = "bf16"
    """Format that its matmuls run in: it decides the FLOP/s peak."""


FILE_LOG: Final = "tail -n 100 "
"""`Departure.log` begins so where its log is a file, whose path follows."""


class LastFigures(msgspec.Struct, frozen=True, gc=False):
    """Figures of an engine from its last answer."""

    running: Reading = NOT_EXPOSED
    waiting: Reading = NOT_EXPOSED
    """Requests that ran, and those that waited."""
    kv_usage_ratio: Reading = NOT_EXPOSED
    """Mean over the engine's ranks."""
    decode_tokens_per_s: Reading = NOT_EXPOSED
    """Over the engine's last 10 s."""


class Departure(msgspec.Struct, frozen=True, gc=False):
    """The end of an engine that served. Times are Unix times."""

    wall_s: float
    """When the engine's process was first seen gone."""
    served_wall_s: float = 0.0
    """When the engine answered last."""
    pid: int = 0
    """0: not known."""
    cause: str = ""
    """`signal`, `exit`, `oom` (the kernel killed it for want of memory), `reboot` (of its host) or `stopped`; empty:
    not known."""
    number: int = 0
    """Number of the signal, or the exit code."""
    planned: bool = False
    """Somebody stopped it, by what `source` says, or as it had closed its port before, or had nothing to do."""
    source: str = ""
    """Who tells the cause: `systemd vllm.service`, `docker`, `kernel log`; empty: nobody."""
    unit: str = ""
    """systemd unit that ran the engine. Text from outside."""
    container: str = ""
    """Id of the container that ran the engine."""
    command: str = ""
    """Folder, variables and command line that started it, as a shell takes them; at most 1,536 characters. Text from
    outside."""
    log: str = ""
    """Command that shows the end of its log; empty: it is not known where that is."""
    start: str = ""
    """Command of systemd or of the container's runtime that starts it again; empty: not known."""
    figures: LastFigures = LastFigures()
    drained: bool = False
    """It had closed its port, and went on for a while."""


class PartState(str, Enum):
    """Condition of one process of an engine."""

    RUNS = "runs"
    GONE = "gone"
    """It was there, and its pid is nobody's now, another's, or a zombie's."""
    STOPPED = "stopped"
    """State T of proc_pid_stat(5): SIGSTOP or SIGTSTP."""
    TRACED = "traced"
    """State t: a debugger holds it."""
    UNINTERRUPTIBLE = "uninterruptible"
    """State D, at every look for a while."""
    THREAD_UNINTERRUPTIBLE = "thread_uninterruptible"
    """One of its threads is in state D at every look for a while; its first thread is not."""
    FROZEN = "frozen"
    """Its cgroup is frozen, as by `docker pause`."""


class EnginePart(msgspec.Struct, frozen=True, gc=False):
    """One process of an engine."""

    role: str
    """Its work in the engine: `engine core`, `worker TP0`, `API server`."""
    pid: int = 0
    """0: no such process was ever seen here."""
    state: PartState = PartState.RUNS
    since_wall_s: float = 0.0
    """Unix time since when it is in that state, as far as that was seen; 0 for one that runs."""


class PartsReport(msgspec.Struct, frozen=True, gc=False):
    """The processes of an engine of which one is gone or stands still, and how the engine is started anew."""

    parts: tuple[EnginePart, ...]
    """Processes in trouble first, the others behind them."""
    listens: bool = True
    """Its port is open."""
    restart: str = ""
    """Command of systemd, the container's runtime or Kubernetes that starts it anew; empty: not known."""
    unfreeze: str = ""
    """Command that lets a frozen one go on; empty: not known."""
    command: str = ""
    """Folder, variables and command line that started it, as a shell takes them. Text from outside."""


class FailedStarts(msgspec.Struct, frozen=True, gc=False):
    """Starts of an engine that ended before its first token, or soon after it with requests running."""

    ended: int
    first_wall_s: float
    """When the first of them began (Unix time)."""
    length_s: float
    """How long they took until their ends, as a median."""
    pid: int
    """Process of the newest start."""
    runs: bool
    """Whether that one still runs; else nothing has been started since."""
    log: str = ""
    """Command that shows the end of its log; empty: it is not known where that is."""
    began_wall_s: float = 0.0
    """When the newest start began (Unix time)."""
    served: bool = False
    """Whether one of them had given tokens before its end."""
    cause: str = ""
    """How the last of them ended, as in `Departure.cause`; empty: not known."""
    number: int = 0
    """Number of the signal, or the exit code."""


class Start(str, Enum):
    """Phase of an engine's start, before it serves, in `EngineReading.info[STARTS]`."""

    LOADING_WEIGHTS = "loading_weights"
    COMPILING = "compiling"
    STARTING = "starting"


class EngineReading(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One poll of one serving endpoint.

    `monotonic_s` is the middle between sending the request and its last byte, of the last good answer: the moment
    that the counters stand for. Text fields come from outside: escape before showing.
    """

    name: str
    url: str
    state: EndpointState
    monotonic_s: float
    kind: EngineKind = EngineKind.UNKNOWN
    phase: Phase = Phase.INFERENCE
    fault: str = ""
    """Fault and its fix, in one line; empty when state is ok."""
    interval_s: float = 2.0
    latency_s: float = 0.0
    version: str = ""
    model: str = ""
    model_root: str = ""
    started_wall_s: float = 0.0
    """Unix time at which the engine's process started; 0 where it is not exported."""
    exact_steps: bool = False
    """The engine's step counter counts every step once (vLLM: one API server, no multiprocess exporter)."""
    live: dict[str, str] = {}
    """Quantity -> metric that it was read from, for `sources`."""
    info: dict[str, str] = {}
    """Static settings that the engine exports (cache dtype, block size, ...)."""
    ranks: tuple[RankReading, ...] = ()
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that this engine runs on; empty where not known."""
    gpus_source: str = ""
    """config, process, remote, simulated, or the reason why `gpus` is empty."""
    gpu_type: str = ""
    """Catalogue name of the GPU type of a remote engine (config); else empty."""
    gpu_count: int = 0
    llm: LlmSpec | None = None
    context_tokens: Reading = NOT_EXPOSED
    """Mean context length from the config, where the user gave one."""
    part: str = ""
    """Which of several models that one server reports on a page; empty where it reports one. Text from outside."""
    advance: dict[str, Advance] = {}
    """Quantity -> when it moves; one that is in `live` and not in here is `Advance.LIVE`."""
    from_documentation: bool = False
    """Whether the engine's adapter was never held against a recording of a real engine."""
    tp: int = 0
    """Tensor-parallel GPUs of one instance, as the server or its command line says; 0: not known."""
    pp: int = 0
    """Pipeline stages of one instance; 0: not known."""
    dp: int = 0
    """Data-parallel ranks; 0: not known."""
    training: Training | None = None
    """Cost of a step of a training run; only with `Phase.TRAINING`."""
    found_by: str = ""
    """`config` or `discovery`; empty where neither."""
    earlier: tuple[EngineReading, ...] = ()
    """Good readings before this one, the oldest first, that its source had at hand when it began."""
    departure: Departure | None = None
    """How the engine ended; only with `EndpointState.DOWN`."""
    whole: bool = False
    """The page was read to its end: a series that `ranks` lacks was not on it."""
    absent_s: float | None = None
    """Moment of an earlier whole answer of this process, the newest one that had nothing of this model."""
    backends: tuple[RankReading, ...] = ()
    """A front end's figures of each of its backends, whose address or name stands as `rank`. Text from outside."""
    options: EngineOptions = NO_OPTIONS
    """Its limits, switches and formats. Text from outside."""
    parts: PartsReport | None = None
    """Its processes, where one of them is gone or stands still while others live."""
    failed_starts: FailedStarts | None = None
    """Its last starts, where they ended before a token came."""

    @property
    def key(self) -> str:
        """Tells readings apart for good: two parts of one server share their URL."""
        if self.part:
            return f"{self.url}#{self.part}"
        return self.url

    @property
    def server_name(self) -> str:
        """The name that all models of its server have together."""
        return self.name.removesuffix(part_of_name(self.part))


def part_of_name(part: str) -> str:
    """How the name of one of several models of a server ends; empty where it reports one."""
    if part:
        return f"/{clean(part, MOST_PART)}"
    return ""


class HostProcess(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A process of the host that uses much of its cores. `name` and `user` are text from outside."""

    pid: int
    name: str = ""
    user: str = ""
    cores: float = 0.0
    """CPU time over time: 2 is two cores."""


class UnseenGpus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """GPUs that were listed before and are not to be seen here now: no sign that anything is wrong with them."""

    indices: tuple[int, ...]
    seen_wall_s: float
    """When they were listed last (Unix time)."""
    pid: int
    """Process of the gpumon that saw them."""
    count: int
    """GPUs that it saw together."""
    asked: str = ""
    """The exporter that told of them; empty: the driver of this host."""
    why: str = ""
    """The limit that hides them, as far as one is known. Text from outside."""
    in_this_run: bool = False
    """Whether it was this gpumon."""
    uuids: tuple[str, ...] = ()
    """UUIDs of those whose index another GPU has now; they are not among `indices`."""


class HostReading(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The machine that gpumon runs on."""

    name: str = ""
    driver: str = ""
    cuda: str = ""
    cpu_ratio: Reading = NOT_SUPPORTED
    """Share of all cores' time."""
    memory_used_bytes: Reading = NOT_SUPPORTED
    memory_total_bytes: Reading = NOT_SUPPORTED
    self_cpu_ratio: Internal[Reading] = NOT_SUPPORTED
    """CPU time of gpumon and its worker, as a share of one core."""
    self_pss_bytes: Internal[Reading] = NOT_SUPPORTED
    busiest_core_ratio: Reading = NOT_SUPPORTED
    """Share of time in which the busiest core worked: 1 beside a low `cpu_ratio` is one thread at its limit."""
    iowait_ratio: Reading = NOT_SUPPORTED
    """Share of all cores' time in which they waited for a disk with nothing else to do."""
    cpu_pressure_ratio: Reading = NOT_SUPPORTED
    """Share of time in which some task waited for a core (Linux PSI, `some`, mean of 10 s)."""
    io_pressure_ratio: Reading = NOT_SUPPORTED
    """Share of time in which some task waited for a disk (Linux PSI, `some`, mean of 10 s)."""
    memory_pressure_ratio: Reading = NOT_SUPPORTED
    """Share of time in which some task waited for memory (Linux PSI, `some`, mean of 10 s)."""
    disk_read_bytes_per_s: Reading = NOT_SUPPORTED
    disk_write_bytes_per_s: Reading = NOT_SUPPORTED
    disk_busy_ratio: Reading = NOT_SUPPORTED
    network_rx_bytes_per_s: Reading = NOT_SUPPORTED
    """Traffic of all interfaces with a device; if there are none (a container), of all but loopback."""
    network_tx_bytes_per_s: Reading = NOT_SUPPORTED
    consumers: Internal[tuple[HostProcess, ...]] = ()
    """Processes that use most of the cores, the largest first; only while nearly all cores are in use."""
    unseen_gpus: Internal[tuple[UnseenGpus, ...]] = ()


NO_DRIVER: Final = "no NVIDIA driver library"
"""Begin of the fault of a host on which no driver was ever installed, as recordings have it, too."""


class Fault(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something that does not work right now: which source, what and the fix, and since when (Unix time)."""

    source: str
    text: str
    since_wall_s: float


class Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All raw readings of one tick. `monotonic_s` orders frames; `wall_s` (Unix time) labels them."""

    seq: int
    wall_s: float
    monotonic_s: float
    interval_s: float
    host: HostReading
    gpus: tuple[GpuReading, ...] = ()
    engines: tuple[EngineReading, ...] = ()
    faults: tuple[Fault, ...] = ()
    simulated: bool = False
