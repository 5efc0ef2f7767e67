"""Figures derived from the frames and shown: the one truth behind the screen, `--json` and the exporters."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

import msgspec

from gpumon.readings.engine_options import NO_OPTIONS, EngineOptions
from gpumon.readings.flat import Part
from gpumon.readings.frame import Departure, EndpointState, EngineKind, GpuReading, HostReading, Phase
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, WARMING_UP, Missing, Reading, Reason
from gpumon.readings.prices import NO_ENERGY_PRICE, NO_PRICE
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
from gpumon.specs.llm import LlmSpec

SCHEMA = 1
"""Version of the JSON contract; it changes when a field changes its meaning or goes away."""


class BandwidthSource(str, Enum):
    """Source of a GPU's memory bandwidth, best first."""

    GPM = "gpm"
    """Measured by the GPU (NVML GPM DRAM activity x peak)."""
    DCGM = "dcgm"
    """Measured by the GPU, through a dcgm-exporter."""
    ENGINE = "engine"
    """Modelled from the steps of the engines on it: a lower bound."""
    ENGINE_MEAN = "engine_mean"
    """Modelled so, of engines whose GPUs need not read alike: the mean over the GPUs of each."""
    UPPER_BOUND = "upper_bound"
    """NVML utilization.memory x peak: a share of time, so at most this much."""
    NONE = "none"

    @property
    def is_measured(self) -> bool:
        """Whether it is neither modelled nor an upper bound."""
        return self in (BandwidthSource.GPM, BandwidthSource.DCGM)

    @property
    def sign(self) -> str:
        """Sign before a bandwidth that is not measured: `>=` at least, `<=` at most, `~` a mean over GPUs."""
        return _BANDWIDTH_SIGNS.get(self, "")


_BANDWIDTH_SIGNS: Final = {
    BandwidthSource.ENGINE: ">=",
    BandwidthSource.ENGINE_MEAN: "~",
    BandwidthSource.UPPER_BOUND: "<=",
}


class Gpu(msgspec.Struct, frozen=True, gc=False):
    """One GPU, as shown. Ratios 0..1 (MFU and MBU are not clamped), bytes, watts, joules, Hz."""

    reading: GpuReading
    """Newest answer of the driver, safe to print; without figures, and in the state that says why, where it is too old.
    Derived figures have fields here: of `energy_j`, `power_w`, `throttle_s` and `xid` these count."""
    age_s: float
    bandwidth_bytes_per_s: Reading = NOT_SUPPORTED
    """Beside an `mbu_ratio` a mean over the same window; without one the newest reading. So are the next four."""
    busy_window_ratio: Reading = NOT_SUPPORTED
    sm_active_window_ratio: Reading = NOT_SUPPORTED
    tensor_active_window_ratio: Reading = NOT_SUPPORTED
    power_window_w: Reading = NOT_SUPPORTED
    bandwidth_source: BandwidthSource = BandwidthSource.NONE
    bandwidth_peak_bytes_per_s: Reading = NOT_SUPPORTED
    peak_source: str = ""
    """Source of the bandwidth peak and the FLOP peaks; says `unverified` if the catalogue row is."""
    peak_unverified: bool = False
    """MFU stands on a FLOP/s peak that is derived, assumed, or in the catalogue on one source only."""
    bandwidth_peak_unverified: bool = False
    """MBU and the share of the bandwidth stand on a derived, assumed or single-source peak of the memory."""
    mfu_ratio: Reading = NOT_SUPPORTED
    mbu_ratio: Reading = NOT_SUPPORTED
    power_w: Reading = NOT_SUPPORTED
    """As the GPU reports it, else the mean by its energy counter."""
    energy_j: Reading = NOT_SUPPORTED
    """Since gpumon started."""
    nvlink_bytes_per_s: Reading = NOT_SUPPORTED
    """Received plus sent."""
    pcie_bytes_per_s: Reading = NOT_SUPPORTED
    xid: tuple[int, ...] = ()
    """Codes of the driver's Xid errors since gpumon started, newest last."""
    engines: tuple[str, ...] = ()
    """Names of the engines that run on the GPU."""
    busy_mean_ratio: Reading = WARMING_UP
    """Mean of `busy_ratio` since gpumon started (at most an hour), missing time excluded."""
    tokens_per_j: Reading = NOT_SUPPORTED
    """Decode tokens/s of its engines over its mean watts of the same 10 s; `power_w` is that of the last second."""
    flops_peak_per_s: Reading = NOT_SUPPORTED
    """Dense peak at the precision that its engines compute in: the denominator of MFU."""
    flops_peak_precision: str = ""
    """Precision of the peak; several, joined by `+`, if engines differ (the peak is then not defined)."""
    throttle_s: dict[str, float] = {}
    """Seconds throttled since gpumon started, by cause; a cause that the driver does not count is not in it."""
    sources: dict[str, str] = {}
    """Field -> the driver call, GPM metric or formula that it comes from."""
    gpu_type: str = ""
    """Its name in the catalogue, e.g. `H100 SXM 80GB`; empty where it is not in there, and under MIG."""
    activity_age_s: Reading = NOT_SUPPORTED
    """Seconds since they were measured: of a dcgm-exporter, since its page last changed."""
    achievable_ratio: Reading = NOT_SUPPORTED
    """Share of `flops_peak_per_s` that products of large matrices reached on this type of GPU, where a source measured
    it: what the best MFU may come to. No figure is measured against it."""
    cost_per_hour: Reading = NO_PRICE
    """Price of an hour of the GPU (`[prices]`), in the currency of the user, as all costs are."""
    unused_s: Reading = WARMING_UP
    """Since gpumon started: time in which no engine on it ran a request, or without one no kernel ran."""
    unused_cost: Reading = NO_PRICE
    """Price of that time."""
    energy_cost: Reading = NO_ENERGY_PRICE
    """Price of `energy_j`, each part at the price of its hour."""

    @property
    def is_unplaced(self) -> bool:
        """Whether an engine of its host may be on it: no source says which GPUs that engine has.

        Every figure of engines then has this reason.
        """
        return isinstance(self.mfu_ratio, Missing) and self.mfu_ratio.reason is Reason.UNMAPPED

    def is_told(self, field: str) -> bool:
        """Whether the reader of the GPU tells of a field: an exporter may not.

        The sources of another host's GPUs are not known; its own gpumon reads the driver.
        """
        return not self.sources or field in self.sources


def physical_gpus(gpus: Iterable[Gpu]) -> list[Gpu]:
    """The GPUs without the MIG slices of any."""
    return [gpu for gpu in gpus if not gpu.reading.parent_uuid]


class Quantiles(msgspec.Struct, frozen=True, gc=False):
    """A latency over the last 60 s, in seconds. A quantile at or below `first_bound_s` fell in the first bucket."""

    p50: Reading = NOT_EXPOSED
    p95: Reading = NOT_EXPOSED
    p99: Reading = NOT_EXPOSED
    mean: Reading = NOT_EXPOSED
    p95_low: Reading = NOT_EXPOSED
    """Lower bound of the bucket that p95 fell in: the true p95 lies between this and `p95_high`."""
    p95_high: Reading = NOT_EXPOSED
    """Upper bound of that bucket."""
    first_bound_s: Reading = NOT_EXPOSED
    p50_low: Reading = NOT_EXPOSED
    p50_high: Reading = NOT_EXPOSED
    p99_low: Reading = NOT_EXPOSED
    p99_high: Reading = NOT_EXPOSED
    p90: Reading = NOT_EXPOSED
    """It is in the last bucket, too, where `p95_high` is missing (`invalid`) and it is not below `p95_low`."""


class TokensTotal(msgspec.Struct, frozen=True, gc=False):
    """Tokens counted since gpumon started; restarts of the engine handled."""

    prefill_computed: Reading = WARMING_UP
    prefill_cached: Reading = WARMING_UP
    decode: Reading = WARMING_UP
    trained: Reading = NOT_EXPOSED
    """Tokens of a training run."""
    samples: Reading = NOT_EXPOSED
    """Samples that a training run consumed: no tokens."""


class SinceStart(msgspec.Struct, frozen=True, gc=False):
    """Means since the engine's process started, from its own counters: known at once, and of no use for verdicts."""

    seconds: Reading = NOT_EXPOSED
    """Seconds that the engine's process has run."""
    prefill_tokens_per_s: Reading = NOT_EXPOSED
    decode_tokens_per_s: Reading = NOT_EXPOSED
    requests_per_s: Reading = NOT_EXPOSED
    ttft_s: Reading = NOT_EXPOSED
    itl_s: Reading = NOT_EXPOSED
    ttft_count: Reading = NOT_EXPOSED
    """Observations that `ttft_s` is the mean of."""
    itl_count: Reading = NOT_EXPOSED
    """Observations that `itl_s` is the mean of."""


class Window(msgspec.Struct, frozen=True, gc=False):
    """Work of an engine in the window of its rates, as far as only sizing needs it; None is not known."""

    seconds: float
    """Length of the window."""
    running_least: float
    """Fewest requests running at a poll in the window, all ranks."""
    running_most: float
    """Most requests running at a poll in the window, all ranks."""
    decoding_mean: float | None = None
    """Mean sequences that decoded: the sum of all gaps between tokens / the window (Little's law)."""
    first_token_s: float | None = None
    """Mean TTFT less the mean time in the queue, else the time to compute a prompt of mean length."""
    prompt_lengths: tuple[tuple[float, float], ...] = ()
    """Upper bound in tokens, and share of the prompts that are at most so long, of the requests that ended in the
    window of the quantiles; empty where these are few or nothing tells."""
    answer_lengths: tuple[tuple[float, float], ...] = ()
    token_s: float | None = None
    """Mean time per token of the requests that ended, where the engine has no gaps between tokens."""


class OwnEstimate(msgspec.Struct, frozen=True, gc=False):
    """The engine's own estimate of computed FLOPs and moved bytes, all GPUs together, beside gpumon's own figure."""

    flops_per_s: Reading = NOT_EXPOSED
    read_bytes_per_s: Reading = NOT_EXPOSED
    write_bytes_per_s: Reading = NOT_EXPOSED
    flops_ratio: Reading = NOT_EXPOSED
    """FLOPs that the engine counts / those that gpumon computes."""
    read_bytes_ratio: Reading = NOT_EXPOSED
    flops_reason: str = ""
    """Why the FLOPs differ, of what is known of this engine and model; empty where both agree within a tenth."""
    read_bytes_reason: str = ""
    """Why the bytes differ; empty where both agree within a tenth."""


class OwnMemory(msgspec.Struct, frozen=True, gc=False):
    """Memory of one GPU by the engine's own table, beside gpumon's figure of the same; of several ranks the most."""

    weight_bytes: Reading = NOT_EXPOSED
    kv_bytes: Reading = NOT_EXPOSED
    """Its KV pools."""
    graph_bytes: Reading = NOT_EXPOSED
    """Its CUDA graphs."""
    weight_ratio: Reading = NOT_EXPOSED
    """`weight_bytes` / those that the model's files need on one GPU."""
    kv_ratio: Reading = NOT_EXPOSED
    """`kv_bytes` / `kv_pool_tokens` x `kv_bytes_per_token` on one GPU."""


class RankLoad(msgspec.Struct, frozen=True, gc=False):
    """One data-parallel rank's part of an engine's load."""

    rank: str
    decode_tokens_per_s: Reading = NOT_EXPOSED
    running: Reading = NOT_EXPOSED
    waiting: Reading = NOT_EXPOSED
    kv_usage_ratio: Reading = NOT_EXPOSED


class Backend(msgspec.Struct, frozen=True, gc=False):
    """One backend of a front end, by the front end's own figures, over 10 s."""

    address: str
    """As the front end names it: an address, or the name of a pod. Text from outside."""
    engine: str = ""
    """Name of the engine that is polled at this address; empty where none is."""
    ready: Reading = NOT_EXPOSED
    running: Reading = NOT_EXPOSED
    waiting: Reading = NOT_EXPOSED
    requests_per_s: Reading = NOT_EXPOSED
    failures_per_s: Reading = NOT_EXPOSED


class Hardware(Part, frozen=True, gc=False):
    """The GPUs that an engine runs on, and how the engine is split over them."""

    gpus: tuple[int, ...] = ()
    gpus_source: str = ""
    gpu_type: str = ""
    gpu_count: Reading = NOT_EXPOSED
    """GPUs of all ranks."""
    tp: int = 0
    """GPUs that share each layer of one data-parallel rank; 0 where not known."""
    pp: int = 0
    """Pipeline stages of one instance; 0 where not known."""
    ranks: int = 0
    """Data-parallel ranks, each an instance of the model on its own GPUs; 0 where not known."""
    power_w: Reading = NOT_EXPOSED
    """Power of the engine's GPUs, mean of 10 s as the rates are: the watts of `tokens_per_j` and `flops_per_j`."""


class Dimensions(Part, frozen=True, gc=False):
    """Dimensions of the model that an engine serves."""

    llm: LlmSpec | None = None
    model_source: str = ""
    """Source of the model's dimensions; empty if they are not known."""
    params: Reading = NOT_EXPOSED
    active_params: Reading = NOT_EXPOSED
    """N_mm: parameters that one token is multiplied with."""
    layers: Reading = NOT_EXPOSED
    weight_precision: str = ""
    kv_precision: str = ""
    kv_bytes_per_token: Reading = NOT_EXPOSED


class Load(Part, frozen=True, gc=False):
    """Requests in an engine, their lengths and its KV cache."""

    running: Reading = NOT_EXPOSED
    waiting: Reading = NOT_EXPOSED
    waiting_deferred: Reading = NOT_EXPOSED
    """Part of `waiting` that does not wait for room but for a LoRA slot, a KV transfer or the like."""
    kv_fetch_waiting: Reading = NOT_EXPOSED
    """Waiting requests whose KV cache is elsewhere, and has not been asked for."""
    kv_fetch_running: Reading = NOT_EXPOSED
    """Waiting requests whose KV cache is on its way."""
    kv_fetch_done: Reading = NOT_EXPOSED
    """Waiting requests whose KV cache has come: they wait for room here."""
    lora_slots: Reading = NOT_EXPOSED
    lora_loaded: Reading = NOT_EXPOSED
    """LoRA adapters that take one of those slots."""
    lora_waiting: Reading = NOT_EXPOSED
    """LoRA adapters that requests wait for and that have no slot."""
    router_queue: Reading = NOT_EXPOSED
    backends_known: Reading = NOT_EXPOSED
    backends_ready: Reading = NOT_EXPOSED
    """Backends that the front end sends requests to."""
    running_mean: Reading = NOT_EXPOSED
    """Mean of `running` over the 10 s of the rates."""
    kv_usage_ratio: Reading = NOT_EXPOSED
    kv_pool_tokens: Reading = NOT_EXPOSED
    host_kv_usage_ratio: Reading = NOT_EXPOSED
    """Share in use of the part of the KV cache in the host's memory: SGLang with what is cached, vLLM without."""
    context_tokens: Reading = NOT_EXPOSED
    """Mean tokens in context of a running sequence."""
    prompt_tokens_mean: Reading = NOT_EXPOSED
    """Mean prompt of the requests that ended in the last 60 s, cached tokens included."""
    answer_tokens_mean: Reading = NOT_EXPOSED
    """Mean answer of the requests that ended in the last 60 s."""
    cached_ratio: Reading = NOT_EXPOSED
    """Share of the prompt tokens of the last 60 s that came from the prefix cache."""
    aborted_tokens_mean: Reading = NOT_EXPOSED
    """Mean tokens of the answers of the last 2 min that were given up midway, where enough were."""
    preemptions_mean: Reading = NOT_EXPOSED
    """Mean times that a request of the last 60 s was preempted before it ended."""
    expert_balance_ratio: Reading = NOT_EXPOSED
    """Mean load of the GPUs of expert parallelism / load of the busiest, over the steps of the last 60 s: 1 is even."""
    rank_imbalance: Reading = NOT_EXPOSED
    """Tokens of the busiest data-parallel rank / the mean of all, over the steps of the last 60 s: 1 is even."""
    scheduler_idle_ratio: Reading = NOT_EXPOSED
    """Share of the last 60 s in which its scheduler had no request, mean of the ranks."""
    forward_ratio: Reading = NOT_EXPOSED
    """Share of the last 60 s in which its GPUs computed steps, by the engine's own clock, mean of the ranks."""
    window: Window | None = None


class EngineRates(Part, frozen=True, gc=False):
    """Rates of an engine per second: over 10 s, prefill over the longer of 10 s and the longest TTFT."""

    prefill_tokens_per_s: Reading = NOT_EXPOSED
    """Computed prefill: tokens from the prefix cache are not in it."""
    decode_tokens_per_s: Reading = NOT_EXPOSED
    cached_tokens_per_s: Reading = NOT_EXPOSED
    decode_mean_tokens_per_s: Reading = NOT_EXPOSED
    """Mean over the last 10 minutes at most: the only rate of engines that count a request's tokens at its end."""
    requests_per_s: Reading = NOT_EXPOSED
    steps_per_s: Reading = NOT_EXPOSED
    tokens_per_step: Reading = NOT_EXPOSED
    acceptance_ratio: Reading = NOT_EXPOSED
    batch: Reading = NOT_EXPOSED
    """Mean sequences per step of one rank."""
    preemptions_per_s: Reading = NOT_EXPOSED
    failures_per_s: Reading = NOT_EXPOSED
    """Requests per second that ended in an error."""
    aborts_per_s: Reading = NOT_EXPOSED
    rejections_per_s: Reading = NOT_EXPOSED
    """Requests per second that were turned away, as the queue or all workers were full."""
    refused_per_s: Reading = NOT_EXPOSED
    """Requests per second that were answered with HTTP 4xx: the prompt is too long, or the request is wrong."""
    corrupted_per_s: Reading = NOT_EXPOSED
    kv_stored_bytes_per_s: Reading = NOT_EXPOSED
    """KV cache copied from the GPUs to the host's memory, a disk or a store."""
    kv_loaded_bytes_per_s: Reading = NOT_EXPOSED
    """KV cache copied back from there."""
    kv_transferred_bytes_per_s: Reading = NOT_EXPOSED
    """KV cache from or to another engine."""
    kv_transfer_failures_per_s: Reading = NOT_EXPOSED
    kv_expired_per_s: Reading = NOT_EXPOSED
    """Requests per second whose KV cache was kept for another engine that did not take it in time."""
    prefill_retries_per_s: Reading = NOT_EXPOSED
    """Prompts per second whose prefill was begun before the other half had room, and was put off."""
    kv_late_reads_per_s: Reading = NOT_EXPOSED
    """Reads of KV cache per second that ended after it was given up: it may have held other requests by then."""
    kv_tier_written_bytes_per_s: Reading = NOT_EXPOSED
    """KV cache copied from the host's memory to the tiers behind it: a disk, a store, another host."""
    kv_tier_read_bytes_per_s: Reading = NOT_EXPOSED
    """KV cache copied back from those tiers to the host's memory."""
    kv_copy_failures_per_s: Reading = NOT_EXPOSED
    """Copies of KV cache per second to or from host memory, a disk or a store that failed or found no room."""
    inferences_per_s: Reading = NOT_EXPOSED
    samples_per_s: Reading = NOT_EXPOSED
    """Samples per second of a training run, all its GPUs together."""
    trained_tokens_per_s: Reading = NOT_EXPOSED
    """Tokens per second of a training run, all its GPUs together."""


class Latency(Part, frozen=True, gc=False):
    """How long requests and tokens take inside the engine, in seconds: HTTP and the way to the user are not in it."""

    ttft_s: Quantiles = Quantiles()
    itl_s: Quantiles = Quantiles()
    queue_s: Quantiles = Quantiles()
    e2e_s: Quantiles = Quantiles()
    tpot_s: Quantiles = Quantiles()
    """Time per token after the first, over requests that ended: one mean of each."""
    prefill_s: Quantiles = Quantiles()
    """From the start of a request's first step to its first token: TTFT without the queue."""
    decode_s: Quantiles = Quantiles()
    """From a request's first token to its last one."""
    prefill_token_s: Reading = NOT_EXPOSED
    """Seconds of prefill per computed prompt token, mean of 60 s, where the engine counts such seconds."""
    itl_mean_s: Reading = NOT_EXPOSED
    """Mean time per token after a request's first over those 10 s; `itl_s` is of the last 60 s."""


class Group(msgspec.Struct, frozen=True, gc=False):
    """Readings of an engine that stand together, in JSON as an object of their own."""


class WithinGoal(Group, frozen=True, gc=False):
    """Share of requests, or of tokens, of the last 2 minutes whose latency inside the engine was within a goal."""

    low_ratio: Reading = NOT_EXPOSED
    """The true share lies between this and `high_ratio`: they are equal where the goal is the bound of a bucket."""
    high_ratio: Reading = NOT_EXPOSED
    goal_s: Reading = NOT_EXPOSED
    count: Reading = NOT_EXPOSED
    """Number of those requests, or tokens."""
    users_low_ratio: Reading = NOT_EXPOSED
    """The share as users see it lies between this and `high_ratio`: HTTP adds up to 25 ms to a TTFT inside the engine,
    and nothing to the time per token."""


class Goodput(Part, frozen=True, gc=False):
    """Shares of what was served within the goals of the config, or within those that are assumed."""

    ttft_goal: WithinGoal = WithinGoal()
    """Requests by their TTFT."""
    itl_goal: WithinGoal = WithinGoal()
    """Tokens by the gap before them, as the engine observes gaps."""
    tpot_goal: WithinGoal = WithinGoal()
    """Requests that ended, by their mean time per token after the first; the goal is that of `itl_goal`."""
    ttft_goal_assumed: bool = False
    """The config has no such goal: 1 s is assumed."""
    itl_goal_assumed: bool = False
    """The config has no such goal: 50 ms are assumed."""


class Outcomes(Group, frozen=True, gc=False):
    """Numbers of requests by how they ended."""

    ended: Reading = NOT_EXPOSED
    """All that the engine counts as ended; those turned away are not in it."""
    stopped: Reading = NOT_EXPOSED
    """With a stop token or text: the answer is whole."""
    cut: Reading = NOT_EXPOSED
    """At the length that the answer may have."""
    aborted: Reading = NOT_EXPOSED
    """Given up by their client, or cancelled."""
    failed: Reading = NOT_EXPOSED
    """With an error."""
    rejected: Reading = NOT_EXPOSED
    """Turned away before they ran."""
    refused: Reading = NOT_EXPOSED
    """Answered with HTTP 4xx: the prompt is too long, or the request is wrong. Not in `ended`."""
    corrupted: Reading = NOT_EXPOSED
    """Ended with a NaN in their logits. Also in `ended`."""
    aborted_midway: Reading = NOT_EXPOSED
    """The part of `aborted` that had got its first token: first tokens less the answers that came to their end, and
    less the growth of what runs. Not known since the start."""


class Lengths(Group, frozen=True, gc=False):
    """Tokens of prompts, or of answers, of the requests that ended in the last 2 minutes."""

    mean: Reading = NOT_EXPOSED
    p50: Reading = NOT_EXPOSED
    p95: Reading = NOT_EXPOSED
    p50_low: Reading = NOT_EXPOSED
    """Lower bound of the bucket that p50 fell in."""
    p50_high: Reading = NOT_EXPOSED
    """Upper bound of that bucket."""
    p95_low: Reading = NOT_EXPOSED
    """Lower bound of the bucket that p95 fell in."""
    p95_high: Reading = NOT_EXPOSED
    """Upper bound of that bucket."""
    longest_low: Reading = NOT_EXPOSED
    """The longest since the engine started has more tokens than this: the lower bound of its bucket."""
    longest_high: Reading = NOT_EXPOSED
    """The longest since the engine started has at most so many tokens."""


class Phases(Group, frozen=True, gc=False):
    """Mean seconds that requests spent in each phase, of those that ended in the last 2 minutes: together `e2e_s`."""

    e2e_s: Reading = NOT_EXPOSED
    queue_s: Reading = NOT_EXPOSED
    """Until they were first scheduled, without `transfer_s`."""
    transfer_s: Reading = NOT_EXPOSED
    """Until their KV cache had come from another engine."""
    prefill_s: Reading = NOT_EXPOSED
    decode_s: Reading = NOT_EXPOSED
    rest_s: Reading = NOT_EXPOSED
    """The rest of `e2e_s`: tokenising, and the way through the API server."""


class CachedBy(Group, frozen=True, gc=False):
    """Sources of the prompt tokens of the last 2 minutes that needed no prefill: shares of them."""

    device_ratio: Reading = NOT_EXPOSED
    """The prefix cache in the GPUs' memory."""
    host_ratio: Reading = NOT_EXPOSED
    """The host's memory."""
    disk_ratio: Reading = NOT_EXPOSED
    """A disk or a store."""
    peer_ratio: Reading = NOT_EXPOSED
    """Another engine."""
    external_ratio: Reading = NOT_EXPOSED
    """Outside of the GPUs: the engine does not tell where."""


class Seen(Group, frozen=True, gc=False):
    """Counts and peaks of an engine since gpumon started."""

    seconds: Reading = WARMING_UP
    """Time between answers, without that in which it gave none."""
    requests: Reading = NOT_EXPOSED
    """Requests that ended; restarts of the engine handled."""
    peak_running: Reading = NOT_EXPOSED
    """Most requests that ran at a poll."""
    peak_waiting: Reading = NOT_EXPOSED
    busy_ratio: Reading = WARMING_UP
    """Share of `seconds` in which at least one request ran."""


class Served(Part, frozen=True, gc=False):
    """Figures of the requests of an engine's users."""

    outcomes: Outcomes = Outcomes()
    """In the last 2 minutes."""
    outcomes_since_start: Outcomes = Outcomes()
    """Since the engine's process started."""
    prompt_tokens: Lengths = Lengths()
    answer_tokens: Lengths = Lengths()
    phases: Phases = Phases()
    accepted_by_position: tuple[float, ...] = ()
    """Share of the drafts of the last 2 minutes whose token at this place was accepted; empty without speculation."""
    cached_by: CachedBy = CachedBy()
    seen: Seen = Seen()


class Efficiency(Part, frozen=True, gc=False):
    """FLOPs and bytes that the tokens needed, beside the peaks of the GPUs."""

    mfu_ratio: Reading = NOT_EXPOSED
    mfu_prefill_ratio: Reading = NOT_EXPOSED
    mfu_decode_ratio: Reading = NOT_EXPOSED
    mbu_ratio: Reading = NOT_EXPOSED
    mbu_single_stream_ratio: Reading = NOT_EXPOSED
    """Parameters x bytes per parameter x tokens/s / peak: the textbook form, exact for one stream only."""
    flops_per_s: Reading = NOT_EXPOSED
    prefill_flops_per_s: Reading = NOT_EXPOSED
    decode_flops_per_s: Reading = NOT_EXPOSED
    flops_per_decode_token: Reading = NOT_EXPOSED
    """At `context_tokens`; decode FLOP/s = decode tokens/s x this."""
    peak_flops_per_s: Reading = NOT_EXPOSED
    """Dense peak of `precision`, sum over its GPUs: MFU's denominator."""
    peak_unverified: bool = False
    """MFU stands on a FLOP/s peak that is derived, assumed, or in the catalogue on one source only."""
    precision: str = ""
    """Precision that the arithmetic runs in: it decides the FLOP/s peak."""
    bytes_per_s: Reading = NOT_EXPOSED
    weight_bytes: Reading = NOT_EXPOSED
    """Weights that one step reads at this batch; bytes/s = steps/s x this + what the KV cache costs."""
    weight_bytes_per_s: Reading = NOT_EXPOSED
    kv_bytes_per_s: Reading = NOT_EXPOSED
    peak_bandwidth_bytes_per_s: Reading = NOT_EXPOSED
    """Sum over its GPUs: MBU's denominator."""
    bandwidth_peak_unverified: bool = False
    """MBU stands on a derived, assumed or single-source peak of the memory."""
    tokens_per_j: Reading = NOT_EXPOSED
    flops_per_j: Reading = NOT_EXPOSED
    own: OwnEstimate = OwnEstimate()
    """The engine's own count of its FLOPs and bytes."""
    own_memory: OwnMemory = OwnMemory()
    """The engine's own table of its memory."""


class EngineCosts(Part, frozen=True, gc=False):
    """Costs of the GPUs of an engine, in the currency of the user. None for an engine that shares a GPU with others."""

    cost_per_hour: Reading = NO_PRICE
    cost_per_million_output_tokens: Reading = NO_PRICE
    """At the decode rate of now."""
    cost_per_million_all_tokens: Reading = NO_PRICE
    """At the rates of now: prompt tokens, cached ones included, and generated ones."""
    unused_s: Reading = WARMING_UP
    """Since gpumon saw it first: time in which it ran no request."""
    unused_cost: Reading = NO_PRICE
    energy_j: Reading = WARMING_UP
    """Energy of its GPUs since gpumon saw it first. Missing for good after it has shared one."""
    energy_cost: Reading = NO_ENERGY_PRICE
    """Price of that energy, each part at the price of its hour."""


class HostCosts(msgspec.Struct, frozen=True, gc=False):
    """Costs of all GPUs of the machine; a sum that lacks one of them is missing."""

    cost_per_hour: Reading = NO_PRICE
    cost_per_million_output_tokens: Reading = NO_PRICE
    """Price of an hour of all GPUs, also of unused ones, over what all engines generate now."""
    cost_per_million_all_tokens: Reading = NO_PRICE
    """Price of an hour of all GPUs over all tokens of now: prompts, cached ones included, and generated ones."""
    unused_gpu_s: Reading = WARMING_UP
    """GPU-seconds since gpumon started in which no engine on the GPU ran a request, or without one no kernel ran."""
    unused_cost: Reading = NO_PRICE
    energy_j: Reading = NOT_SUPPORTED
    """Since gpumon started."""
    energy_cost: Reading = NO_ENERGY_PRICE


class Engine(msgspec.Struct, frozen=True, gc=False):
    """One serving engine, as shown."""

    name: str
    kind: EngineKind
    phase: Phase
    url: str
    state: EndpointState
    age_s: float
    fault: str = ""
    version: str = ""
    model: str = ""
    tokens_total: TokensTotal = TokensTotal()
    since_start: SinceStart = SinceStart()
    sources: dict[str, str] = {}
    """Quantity -> the metric or formula that it comes from."""
    since: str = ""
    """RFC 3339: since when `state` is what it is, as far back as gpumon looked."""
    part: str = ""
    """Which of several models of one server this is; empty where it has one."""
    found_by: str = ""
    """config or discovery."""
    from_documentation: bool = False
    """Its adapter was written from documentation and never held against a recording of a real engine."""
    advances: dict[str, str] = {}
    """Field -> when it moves: `live`, `prompt`, `end`, `sampled` or `derived` (`readings.frame.Advance`)."""
    rank_loads: tuple[RankLoad, ...] = ()
    """Each data-parallel rank's part; empty with one rank."""
    backends: tuple[Backend, ...] = ()
    """Backends of a front end; none of what serves itself."""
    uneven: tuple[Evidence, ...] = ()
    """Figures that its ranks share unevenly."""
    deviates: tuple[Evidence, ...] = ()
    """Figures in which the engine does worse than the other replicas of its model, or gets less to do."""
    contradicts: tuple[Evidence, ...] = ()
    """Figures of the engine that cannot be right beside what its own GPUs measure."""
    departure: tuple[Departure, ...] = ()
    """How the engine ended: one where `state` is `down`, else none."""
    asleep: str = ""
    """How the engine rests on purpose (vLLM's and llama.cpp's sleep mode); empty while it is awake."""
    hardware: Hardware = Hardware()
    dimensions: Dimensions = Dimensions()
    load: Load = Load()
    rates: EngineRates = EngineRates()
    latency: Latency = Latency()
    goodput: Goodput = Goodput()
    served: Served = Served()
    efficiency: Efficiency = Efficiency()
    costs: EngineCosts = EngineCosts()
    options: EngineOptions = NO_OPTIONS
    """Its limits, switches and formats, each with who tells it."""

    @property
    def key(self) -> str:
        """Tells engines apart for good: two models of one server share its URL."""
        if self.part:
            return f"{self.url}#{self.part}"
        return self.url


class Replicas(msgspec.Struct, frozen=True, gc=False):
    """Two or more engines that serve one model: their sums, and their latencies over all requests of all of them."""

    model: str
    engines: tuple[str, ...]
    """Names, in the order of `Snapshot.engines`."""
    answering: int
    """How many of them gave figures: the sums are over these."""
    running: Reading = NOT_EXPOSED
    waiting: Reading = NOT_EXPOSED
    kv_usage_ratio: Reading = NOT_EXPOSED
    """Mean over the replicas."""
    prefill_tokens_per_s: Reading = NOT_EXPOSED
    decode_tokens_per_s: Reading = NOT_EXPOSED
    requests_per_s: Reading = NOT_EXPOSED
    ttft_s: Quantiles = Quantiles()
    itl_s: Quantiles = Quantiles()
    queue_s: Quantiles = Quantiles()
    e2e_s: Quantiles = Quantiles()
    ttft_goal: WithinGoal = WithinGoal()
    itl_goal: WithinGoal = WithinGoal()
    tpot_goal: WithinGoal = WithinGoal()
    mfu_ratio: Reading = NOT_EXPOSED
    """MFU of all their GPUs together."""
    mbu_ratio: Reading = NOT_EXPOSED
    deviating: tuple[str, ...] = ()
    """Names of the replicas that stand apart (`Engine.deviates`)."""
    mapped: int = 0
    """How many of those that answer run on GPUs that are known: MFU and MBU are over these, where there are any."""
    costs: EngineCosts = EngineCosts()
    """Sums over those that answer; the price of tokens is that of all their GPUs over all their tokens."""

    @property
    def title(self) -> str:
        """`4 replicas`; `3/4 replicas` where one gives no figures."""
        total = len(self.engines)
        return f"{total} replicas" if self.answering == total else f"{self.answering}/{total} replicas"


class FaultShown(msgspec.Struct, frozen=True, gc=False):
    """Something that does not work right now. `since` is RFC 3339."""

    source: str
    text: str
    since: str
    code: str = ""
    """Cause of the state of a GPU or an engine, e.g. `hw_thermal_slowdown`, `ecc`, `lost`; `no_driver`."""


class Self(msgspec.Struct, frozen=True, gc=False):
    """Cost of gpumon: share of one core, and proportional memory, of the monitor and its worker."""

    cpu_ratio: Reading
    pss_bytes: Reading


class Snapshot(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Everything shown at one moment; compared by identity. `time` is RFC 3339 in UTC."""

    time: str
    wall_s: float
    simulated: bool
    interval_s: float
    host: HostReading
    self_cost: Self
    gpus: tuple[Gpu, ...] = ()
    engines: tuple[Engine, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    faults: tuple[FaultShown, ...] = ()
    replicas: tuple[Replicas, ...] = ()
    """One for each model that two or more engines serve."""
    events: tuple[Event, ...] = ()
    """Events since the snapshot before this one."""
    alerts: tuple[RaisedAlert, ...] = ()
    """Alerts of the config that hold."""
    costs: HostCosts = HostCosts()
    counted_since: str = ""
    """Start (RFC 3339) of the counts of a moment of the past that are else since gpumon started; empty for now."""
