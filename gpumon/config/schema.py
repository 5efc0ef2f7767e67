"""Every setting: type, range, form, default and meaning. A test compares `config.example.toml` with it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gpumon.config import checks
from gpumon.triage.thresholds import Thresholds

Interval = Annotated[float, msgspec.Meta(ge=0.25, le=3600.0)]
_Positive = Annotated[float, msgspec.Meta(gt=0.0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Price = Annotated[float, msgspec.Meta(ge=1e-6, le=1e9)]
PerEngine = Annotated[int, msgspec.Meta(ge=1, le=1024)]
_Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class General(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often gpumon reads, and how the screen looks."""

    interval_s: Interval = 1.0
    """Seconds between two readings of the GPUs."""
    engine_interval_s: Interval = 2.0
    """Seconds between two polls of an engine: each costs the engine's event loop 5 to 20 ms."""
    theme: checks.ThemeName = "default"
    """A file in themes/ (without .toml)."""
    ascii: bool = False
    """Draw with ASCII only (also chosen where the terminal has no UTF-8)."""
    mouse: bool = True


class HttpServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server that is asked over HTTP or HTTPS."""

    tls_ca: str = ""
    """PEM file of the certificate authority to trust."""
    tls_verify: bool = True
    trust_other_namespace: bool = False
    """Send the key or password also to a server at an address of this host that runs in another network namespace, as a
    container behind a forwarded port does: Linux does not tell who owns it."""


class HttpServerWithKey(HttpServer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server that may want an API key, or a bearer token."""

    api_key_env: checks.KeyEnv = ""
    """Environment variable that holds the API key."""
    api_key_file: checks.KeyFile = ""
    """Path of the file that holds the API key, with a slash in it: a bare word is taken for the key itself."""
    api_key_user: str = ""
    """User of this host whose server the key is for, besides root, gpumon's own user and the owner of the file."""


class Endpoint(HttpServerWithKey, frozen=True, forbid_unknown_fields=True):
    """One serving engine to poll."""

    url: checks.Url
    """Base URL of the server, e.g. http://127.0.0.1:8000; a path such as /metrics may follow. host:port means http://."""
    name: str = ""
    """Shown name; default is kind and port."""
    engine: Literal[
        "auto",
        "vllm",
        "sglang",
        "llamacpp",
        "triton",
        "trtllm",
        "tgi",
        "nim",
        "lmdeploy",
        "dynamo",
        "ray",
        "ollama",
        "tei",
        "aphrodite",
        "tokenspeed",
        "vllm_omni",
        "fastdeploy",
        "max",
        "xinference",
        "sglang_diffusion",
        "litellm",
        "gateway",
        "vllm_stack",
        "vllm_router",
        "smg",
    ] = "auto"
    model: str = ""
    """Name of a [[model]] entry or catalogue row to use instead of what the server reports."""
    gpus: checks.GpuChoice = "auto"
    """Indices of the GPUs that it runs on; auto finds them through the listening process."""
    gpu_type: checks.GpuType = ""
    """GPU type of an engine on another host, e.g. "H100 SXM 80GB"; with gpu_count."""
    gpu_count: Count = 0
    context_tokens: _Positive | None = None
    """Mean tokens in context of a running request, used where the engine does not tell."""


class Feed(HttpServerWithKey, frozen=True, forbid_unknown_fields=True):
    """Metrics of a server or a training run that gpumon has no adapter for: the user says what is what."""

    url: checks.Url | None = None
    """Metrics page in Prometheus text, e.g. http://127.0.0.1:9100/metrics; without a path, /metrics is asked."""
    file: checks.FileName | None = None
    """Instead of a url: a file that a line of JSON is appended to at every step, such as a training loop writes."""
    name: str = ""
    """Shown name; default is kind and port, or the file's name."""
    phase: Literal["inference", "training"] = "inference"
    """Use of its tokens: served, or trained on."""
    model: str = ""
    """Name of a [[model]] entry, a catalogue row, or a Hugging Face id whose files are here."""
    gpus: checks.GpuChoice = "auto"
    """Indices of the GPUs that it runs on; auto finds them through the process that listens at the url, and not those
    of a training run, which are other processes' too."""
    gpu_type: checks.GpuType = ""
    """GPU type of what runs on other hosts, e.g. "H100 SXM 80GB"; with gpu_count."""
    gpu_count: Count = 0
    interval_s: Interval = 2.0
    """Seconds between two looks."""
    params_b: _Positive | None = None
    """Training: parameters in 1e9, of a mixture of experts those used per token; default those of `model`."""
    flops_per_token: _Positive | None = None
    """Training: FLOPs of one token, forward and backward; default 6 x the parameters."""
    tokens_per_sample: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """Training: tokens of one sample, where the run counts samples; 0: not known."""
    precision: Literal["fp32", "bf16", "fp16", "fp8"] = "bf16"
    """Training: format that the matmuls run in; it decides the FLOP/s peak."""
    context_tokens: _Positive | None = None
    """Mean tokens in context of a running request, where no metric tells."""
    at_end: tuple[str, ...] = ()
    """Token counters that move only when a request ends: no rate of now is made of them."""
    time: str = ""
    """File: key of the moment of a line, in Unix seconds to nanoseconds or ISO 8601; default when the file changed."""
    quantities: dict[str, str] = {}
    """Quantity (`config.feed_rules`) -> metric with labels, or key of the file."""


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dimensions of a model that gpumon cannot find out, or gets wrong."""

    match: str
    """Served model name, or a glob such as "acme/*-70b"."""
    params_b: _Positive
    """All parameters, in 1e9."""
    layers: Annotated[int, msgspec.Meta(ge=1)]
    hidden: Annotated[int, msgspec.Meta(ge=1)]
    heads: Annotated[int, msgspec.Meta(ge=1)]
    active_params_b: _Positive | None = None
    """Parameters used per token (MoE); default params_b."""
    kv_heads: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Default heads."""
    head_dim: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Default hidden / heads."""
    vocab: Count = 0
    """Size of the vocabulary; 0: not known."""
    tied_embeddings: bool = False
    """The LM head is the look-up table (tie_word_embeddings)."""
    window_layers: Count = 0
    window: Count = 0
    kv_lora_rank: Count = 0
    rope_dim: Count = 0
    experts: Count = 0
    experts_per_token: Count = 0
    weight_precision: Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "mxfp4", "nvfp4"] = "bf16"
    weight_only: bool | None = None
    """Whether the arithmetic runs at 16 bit; default: yes for int4, no else."""
    kv_precision: Literal["fp32", "bf16", "fp16", "fp8", "int8"] = "bf16"


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Peaks of a GPU that gpumon does not know: they stand above those of its catalogue."""

    name: str
    """As the driver gives it (`nvidia-smi -L`), e.g. "NVIDIA H20 NVL16"."""
    bf16_tflops: _Positive | None = None
    """Dense (half of what data sheets give with sparsity), in 1e12 FLOP/s, with FP32 accumulation; of FP16, too."""
    fp8_tflops: _Positive | None = None
    int8_tops: _Positive | None = None
    fp4_tflops: _Positive | None = None
    fp32_tflops: _Positive | None = None
    bandwidth_gbs: _Positive | None = None
    """Bandwidth of the memory, in 1e9 bytes/s; default: by the driver's clock and bus width."""
    memory_gb: _Positive | None = None
    """Memory in 1024^3 bytes, for sizing."""


class Discovery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sources that gpumon may look at by itself."""

    enabled: bool = True
    """Find the engines of this host through the processes on its GPUs, and the GPUs of those that are listed here."""
    ports: tuple[Port, ...] = ()
    """Ports of this host to ask as well, though no process on a GPU leads there (a proxy in front of engines)."""


class Dcgm(HttpServerWithKey, frozen=True, forbid_unknown_fields=True):
    """A dcgm-exporter: it measures bandwidth and tensor activity where NVML cannot (Ampere and older)."""

    url: checks.UrlOrNone = ""
    """Its URL, e.g. http://127.0.0.1:9400; empty: none is asked."""
    interval_s: Interval = 5.0
    """Seconds between two polls; the exporter itself measures every 30 s unless it is set otherwise."""


class Prometheus(HttpServerWithKey, frozen=True, forbid_unknown_fields=True):
    """A Prometheus, or what answers as one (Thanos, Mimir, VictoriaMetrics): the fleet's screen reads it."""

    url: checks.UrlOrNone = ""
    """Base URL of its API, e.g. http://prometheus:9090 or https://mimir/prometheus; empty: this host alone is shown."""
    match: checks.Matchers = ""
    """Label matchers that every query gets, e.g. cluster="a",env=~"prod.*"."""
    host_labels: checks.LabelNames = ("node", "nodename", "kubernetes_node", "host", "Hostname", "hostname", "instance")
    """Labels that name a series' machine, the best first; of `instance` the port is left out."""
    cluster_labels: checks.LabelNames = (
        *("cluster", "cluster_name", "k8s_cluster_name", "k8s_cluster", "kubernetes_cluster"),
    )
    """Labels that tell clusters apart, the best first: hosts and pods of one name in two of them are two."""
    interval_s: Annotated[float, msgspec.Meta(ge=1.0, le=3600.0)] = 15.0
    """Seconds between two refreshes; more often than the targets are scraped shows nothing new."""
    timeout_s: Annotated[float, msgspec.Meta(ge=1.0, le=300.0)] = 20.0
    """Longest wait for one answer."""
    user: str = ""
    """Name for basic auth."""
    password_env: checks.KeyEnv = ""
    """Environment variable that holds its password."""
    password_file: checks.KeyFile = ""
    """Path of the file that holds its password, with a slash in it."""
    tenant: checks.Tenant = ""
    """Sent as X-Scope-OrgID (Mimir, Loki's relatives)."""
    gpus_per_engine: dict[str, PerEngine] = {}
    """GPUs of one engine, by a glob of its model's name, where no label tells them."""


class Fleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of a fleet's screen."""

    owners: checks.OwnerLabels = ()
    """Labels by which rows can be grouped beside hosts and models, in this order; empty: `namespace`, and labels that
    group what the fleet has."""


class Host(HttpServer, frozen=True, forbid_unknown_fields=True):
    """A machine of the fleet that is reached without a Prometheus: by ssh, or its `gpumon serve-metrics`."""

    address: checks.HostAddress
    """A host as ssh takes it (gpu-07, user@gpu-08), or the URL of its serve-metrics (https://gpu-07:9454)."""
    name: str = ""
    """Shown name; default is the address without user and scheme."""
    command: checks.CommandText = "gpumon"
    """Command that runs gpumon there, as its shell takes it; `watch --json` is added. A URL does not use it."""
    install: bool = False
    """If the command is not found: run gpumon there from a temporary folder, which is removed at the end."""
    wheels: str = ""
    """Folder of wheels for hosts whose Python is another one than here; empty: ~/.cache/gpumon/wheels."""
    user: str = ""
    """Name for basic auth at a URL."""
    password_env: checks.KeyEnv = ""
    """Environment variable that holds its password."""
    password_file: checks.KeyFile = ""
    """Path of the file that holds its password, with a slash in it."""
    password_user: str = ""
    """User of this host whose server the password is for, besides root, gpumon's own user and the owner of the file."""


class Exporter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `gpumon serve-metrics`, and its clients."""

    listen: checks.ListenAddress = "127.0.0.1:9454"
    """Address and port; another address than loopback's shows the figures to whoever reaches it."""
    tls_cert: str = ""
    """PEM file of the server's certificate (with its chain); with `tls_key` it speaks HTTPS."""
    tls_key: str = ""
    """PEM file of the certificate's key."""
    user: checks.UserName = ""
    """Name for basic auth; empty: everybody may read."""
    password_env: checks.KeyEnv = ""
    """Environment variable that holds its password."""
    password_file: checks.KeyFile = ""
    """Path of the file that holds its password, with a slash in it."""
    detail: bool = False
    """Export every series, also what can be worked out of others or is seldom asked for."""


class Screen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of the screen, and its units."""

    memory_unit: Literal["GiB", "GB"] = "GiB"
    """VRAM in GiB (2^30 bytes), as GPU tools show it, or in GB (10^9), as data sheets do."""
    temperature_unit: Literal["C", "F"] = "C"
    glyphs: Literal["auto", "braille", "blocks", "ascii"] = "auto"
    """Characters of the charts; auto: braille where the terminal can."""
    span_s: Annotated[float, msgspec.Meta(ge=60.0, le=7200.0)] = 300.0
    """Seconds that the charts go back."""
    hidden_columns: checks.ColumnNames = ()
    """Columns not to show: pane.column, such as "gpus.power"."""
    hide_clients: bool = False
    """Leave the clients' addresses out of the page of requests."""


class Levels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From where on a figure is marked. Shares are 0..1."""

    vram_warn: _Share = 0.95
    """Engines fill their pool on purpose: only a nearly full GPU is worth a mark."""
    vram_critical: _Share = 0.99
    kv_warn: _Share = 0.9
    """KV cache: above this, requests wait or are preempted soon."""
    kv_critical: _Share = 0.98
    temperature_warn_c: _Positive = 83.0
    """Celsius; data centre GPUs slow down at about 87."""
    temperature_critical_c: _Positive = 90.0
    low_use: _Share = 0.1
    """A GPU that is busy while its MFU and its MBU are both below this is marked `low eff.`."""
    low_use_busy: _Share = 0.5
    """Busy from this share on, for that mark."""


class Goals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Latencies that are promised to users, in milliseconds: what is above is marked. None by default."""

    ttft_p95_ms: _Positive | None = None
    tpot_p95_ms: _Positive | None = None
    """Mean time between the tokens of a request, its p95 over requests."""
    itl_p95_ms: _Positive | None = None
    """Gap between two tokens."""
    itl_mean_ms: _Positive | None = None
    e2e_p95_ms: _Positive | None = None


class Sizing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """First values of the sizing panel."""

    gpu: checks.PlannedGpu = ""
    """Type of GPU in a server, e.g. "H100 SXM 80GB" or "p5.48xlarge"; empty: as seen."""
    gpus: Annotated[int, msgspec.Meta(ge=0, le=576)] = 0
    """GPUs of one server; 0: as seen."""
    planning_factor: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.8
    """Share of a worked-out capacity that is planned with."""
    usable_memory_ratio: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.92
    """Share of a GPU's memory that engines may take (vLLM's gpu_memory_utilization)."""
    packing: Literal["busy", "memory"] = "busy"
    """Instances share a GPU by memory and busy share, or by memory alone."""
    spare_instances: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """Spare instances of each workload."""
    spare_servers: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices of GPUs and energy, in the currency of the user. There is no default: without a price no cost is shown."""

    gpu_hour: Price | None = None
    """Price of one hour of every GPU that `by_type` does not name."""
    kwh: Price | None = None
    """Price of one kWh at all hours that `kwh_hours` does not name."""
    by_type: dict[str, Price] = {}
    """Type of GPU -> price of one hour."""
    kwh_hours: dict[str, Price] = {}
    """Hours of the day (`22:00-06:00`, local time) -> price of one kWh."""


class Recorder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The flight recorder of the screen, and what `gpumon record` keeps."""

    minutes: Annotated[float, msgspec.Meta(ge=0.0, le=1440.0)] = 30.0
    """Minutes that the screen keeps in memory and can go back; 0: none."""
    memory_mb: Annotated[float, msgspec.Meta(ge=1.0, le=4096.0)] = 24.0
    """Most memory for that, in 10^6 bytes: with many engines the minutes get fewer."""
    keep_days: Annotated[float, msgspec.Meta(gt=0.0, le=3650.0)] = 7.0
    """Days that `gpumon record` keeps in its file; older frames make room for new ones."""
    keep_gb: Annotated[float, msgspec.Meta(ge=0.01, le=10000.0)] = 2.0
    """Size that the file of `gpumon record` may reach, in 10^9 bytes."""


class Alert(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When to call somebody; there is none by default."""

    when: checks.When
    """A verdict (`kv_cache_full`, `hardware_fault`, ...), or a figure with a limit: `engines.kv_usage_ratio > 0.95`."""
    name: str = ""
    """How the alert is called; default is `when`."""
    for_s: Annotated[float, msgspec.Meta(ge=0.0, le=86400.0)] = 30.0
    """Seconds that it must hold before it is raised."""
    clear_s: Annotated[float, msgspec.Meta(ge=0.0, le=86400.0)] = 60.0
    """Seconds that it must be gone before it is over."""
    bell: bool = False
    """Ring the terminal's bell."""
    title: bool = False
    """Mark the title line."""
    command: checks.Program = ()
    """A program and its arguments: it gets one line of JSON on its standard input when the alert begins and ends."""


class Webhook(HttpServerWithKey, frozen=True, forbid_unknown_fields=True):
    """A receiver of verdicts over HTTP; none by default. Its key is a bearer token, or PagerDuty's routing key."""

    kind: Literal["json", "slack", "pagerduty", "alertmanager"] = "json"
    """Form of the messages."""
    name: str = ""
    """Shown name; default is the kind."""
    url: checks.WebhookUrl = ""
    """URL, if it is no secret: of an Alertmanager its base; of PagerDuty default is its own."""
    url_env: checks.KeyEnv = ""
    """Environment variable that holds the URL."""
    url_file: checks.KeyFile = ""
    """Path of the file that holds the URL, with a slash in it."""
    level: Literal["critical", "warn", "note"] = "warn"
    """Least level of what is sent."""
    silence: checks.Silences = ()
    """Verdicts that are not sent: CODE, CODE[NAME], CODE[NAME] HH:MM-HH:MM (local time); `*` is every code."""
    group_s: Annotated[float, msgspec.Meta(ge=0.0, le=3600.0)] = 10.0
    """Seconds that a change waits for others, to go out as one message."""
    repeat_s: Annotated[float, msgspec.Meta(ge=0.0, le=604800.0)] | None = None
    """Seconds after which what still stands is sent again; 0: never. Default 60 for an Alertmanager, else 14400."""
    timeout_s: Annotated[float, msgspec.Meta(ge=0.1, le=60.0)] = 10.0
    """Longest wait for an answer."""
    retry_s: Annotated[float, msgspec.Meta(ge=0.1, le=300.0)] = 2.0
    """Seconds to the first retry; each further one waits twice as long, up to 5 minutes."""
    simulated: bool = False
    """Send verdicts of the simulated server, too."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings."""

    general: General = General()
    screen: Screen = Screen()
    levels: Levels = Levels()
    goals: Goals = Goals()
    prices: Prices = Prices()
    keys: dict[str, str] = {}
    """Id of a command (`config.keymap`) -> its keys, with commas between them."""
    endpoint: tuple[Endpoint, ...] = ()
    feed: tuple[Feed, ...] = ()
    model: tuple[Model, ...] = ()
    gpu: tuple[Gpu, ...] = ()
    discovery: Discovery = Discovery()
    dcgm: Dcgm = Dcgm()
    sizing: Sizing = Sizing()
    triage: Thresholds = Thresholds()
    recorder: Recorder = Recorder()
    alert: tuple[Alert, ...] = ()
    webhook: tuple[Webhook, ...] = ()
    prometheus: Prometheus = Prometheus()
    host: tuple[Host, ...] = ()
    fleet: Fleet = Fleet()
    exporter: Exporter = Exporter()
