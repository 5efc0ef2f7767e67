"""What is derived of serving engines and training runs, one by one and as replicas of one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from gpumon.readings.frame import EndpointState, EngineKind, Phase
from gpumon.readings.missing import NOT_EXPOSED, WARMING_UP, Reading
from gpumon.specs.llm import LlmSpec

RecordT = TypeVar("RecordT", bound=msgspec.Struct)


class Part(msgspec.Struct, frozen=True, gc=False):
    """A group of an owner's fields by concept; in JSON, charts and conditions its fields are the owner's own."""


@lru_cache(maxsize=64)
def flat_fields(kind: type[msgspec.Struct]) -> dict[str, tuple[str, msgspec.structs.FieldInfo]]:
    """Name of each field as it is flat in JSON -> its dotted path in `kind`, and the field."""
    fields: dict[str, tuple[str, msgspec.structs.FieldInfo]] = {}
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, Part):
            inner = flat_fields(field.type)
            fields |= {name: (f"{field.name}.{path}", of) for name, (path, of) in inner.items()}
        else:
            fields[field.name] = (field.name, field)
    return fields


def flat_path(kind: type[msgspec.Struct], path: str) -> str:
    """Attribute path of a flat one: `ttft_s.p95` is `latency.ttft_s.p95`. What is in no part stays as it is."""
    name, dot, rest = path.partition(".")
    fields = flat_fields(kind)
    return (fields[name][0] if name in fields else name) + dot + rest


@lru_cache(maxsize=512)
def getter(kind: type[msgspec.Struct], path: str) -> Callable[[msgspec.Struct], Any]:
    """Reads a value of `kind` by its flat path, as `mfu_ratio` or `ttft_s.p95`."""
    return attrgetter(flat_path(kind, path))


def value_of(record: msgspec.Struct, path: str) -> Any:
    """The value of a record at a flat path."""
    return getter(type(record), path)(record)


def nested(kind: type[RecordT], values: Mapping[str, Any]) -> RecordT:
    """A record from its fields by flat name. Raises KeyError of a name that it does not have."""
    own, parts = _by_part(kind, values)
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return kind(**own, **{part: types[part](**inside) for part, inside in parts.items()})


def replaced(record: RecordT, values: Mapping[str, Any]) -> RecordT:
    """The record with other values of fields by flat name. Raises KeyError of a name that it does not have."""
    own, parts = _by_part(type(record), values)
    inner = {part: msgspec.structs.replace(getattr(record, part), **inside) for part, inside in parts.items()}
    return msgspec.structs.replace(record, **own, **inner)


def _by_part(kind: type[msgspec.Struct], values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Fields of the record itself, and those of each of its parts."""
    own: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        part, dot, _ = flat_fields(kind)[name][0].partition(".")
        (parts.setdefault(part, {}) if dot else own)[name] = value
    return own, parts


class Quantiles(msgspec.Struct, frozen=True, gc=False):
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


class TokensTotal(msgspec.Struct, frozen=True, gc=False):
    """Tokens counted since gpumon started; restarts of the engine handled."""

    prefill_computed: Reading = WARMING_UP
    prefill_cached: Reading = WARMING_UP
    decode: Reading = WARMING_UP
    trained: Reading = NOT_EXPOSED
    """Of a training run."""
    samples: Reading = NOT_EXPOSED
    """Samples that a training run consumed: no tokens."""


class Window(msgspec.Struct, frozen=True, gc=False):
    """What an engine did in the window of its rates, as far as only sizing needs it; None is not known."""

    seconds: float
    """Length of the window."""
    running_least: float
    """Fewest requests running at a poll in it, all ranks."""
    running_most: float
    decoding_mean: float | None = None
    """Mean sequences that decoded: the sum of all gaps between tokens / the window (Little's law)."""
    first_token_s: float | None = None
    """Mean TTFT less the mean time in the queue."""


class OwnEstimate(msgspec.Struct, frozen=True, gc=False):
    """What the engine says that it computed and moved, all GPUs together, beside gpumon's own figure."""

    flops_per_s: Reading = NOT_EXPOSED
    read_bytes_per_s: Reading = NOT_EXPOSED
    write_bytes_per_s: Reading = NOT_EXPOSED
    flops_ratio: Reading = NOT_EXPOSED
    """Its FLOPs / gpumon's."""
    read_bytes_ratio: Reading = NOT_EXPOSED
    notes: tuple[str, ...] = ()
    """For each that is more than 25 % apart: why, as far as it is known."""


class RankLoad(msgspec.Struct, frozen=True, gc=False):
    """One data-parallel rank's part of its engine."""

    rank: str
    decode_tokens_per_s: Reading = NOT_EXPOSED
    running: Reading = NOT_EXPOSED
    waiting: Reading = NOT_EXPOSED
    kv_usage_ratio: Reading = NOT_EXPOSED


class Hardware(Part, frozen=True, gc=False):
    """The GPUs that an engine runs on, and how it is split over them."""

    gpus: tuple[int, ...] = ()
    gpus_source: str = ""
    gpu_type: str = ""
    gpu_count: Reading = NOT_EXPOSED
    """GPUs of all its ranks."""
    tp: int = 0
    """GPUs that share each layer of one data-parallel rank; 0 where not known."""
    pp: int = 0
    """Pipeline stages of one instance; 0 where not known."""
    ranks: int = 0
    """Data-parallel ranks, each an instance of the model on its own GPUs; 0 where not known."""
    power_w: Reading = NOT_EXPOSED
    """Of its GPUs, mean of 10 s as the rates are: the watts of `tokens_per_j` and `flops_per_j`."""


class Dimensions(Part, frozen=True, gc=False):
    """What is known of the model that an engine serves."""

    llm: LlmSpec | None = None
    model_source: str = ""
    """Where the model's dimensions come from; empty where they are not known."""
    params: Reading = NOT_EXPOSED
    """Parameters of the model."""
    active_params: Reading = NOT_EXPOSED
    """N_mm: parameters that one token is multiplied with."""
    layers: Reading = NOT_EXPOSED
    weight_precision: str = ""
    kv_precision: str = ""
    kv_bytes_per_token: Reading = NOT_EXPOSED
    """KV cache of one token in context, one copy."""


class Load(Part, frozen=True, gc=False):
    """Requests in an engine, their lengths and its KV cache."""

    running: Reading = NOT_EXPOSED
    waiting: Reading = NOT_EXPOSED
    waiting_deferred: Reading = NOT_EXPOSED
    """Those of `waiting` that do not wait for room but for a LoRA slot, a KV transfer or the like."""
    router_queue: Reading = NOT_EXPOSED
    """Requests that its router holds and has given to no worker yet."""
    running_mean: Reading = NOT_EXPOSED
    """Mean of `running` over the 10 s of the rates."""
    kv_usage_ratio: Reading = NOT_EXPOSED
    kv_pool_tokens: Reading = NOT_EXPOSED
    """Tokens that its KV cache holds, all ranks."""
    context_tokens: Reading = NOT_EXPOSED
    """Mean tokens in context of a running sequence."""
    prompt_tokens_mean: Reading = NOT_EXPOSED
    """Mean prompt of the requests that ended in the last 60 s, cached tokens included."""
    answer_tokens_mean: Reading = NOT_EXPOSED
    """Mean answer of those requests."""
    cached_ratio: Reading = NOT_EXPOSED
    """Share of the prompt tokens of the last 60 s that came from the prefix cache."""
    window: Window | None = None


class EngineRates(Part, frozen=True, gc=False):
    """What an engine does per second: over 10 s, prefill over the longer of 10 s and the longest TTFT."""

    prefill_tokens_per_s: Reading = NOT_EXPOSED
    """Computed prefill: tokens from the prefix cache are not in it."""
    decode_tokens_per_s: Reading = NOT_EXPOSED
    cached_tokens_per_s: Reading = NOT_EXPOSED
    decode_mean_tokens_per_s: Reading = NOT_EXPOSED
    """Mean over the last 10 minutes at most: the only rate of engines that count a request's tokens at its end."""
    requests_per_s: Reading = NOT_EXPOSED
    steps_per_s: Reading = NOT_EXPOSED
    tokens_per_step: Reading = NOT_EXPOSED
    """Tokens per step and sequence: 1 without speculation."""
    batch: Reading = NOT_EXPOSED
    """Mean sequences per step of one rank."""
    preemptions_per_s: Reading = NOT_EXPOSED
    failures_per_s: Reading = NOT_EXPOSED
    """Requests per second that ended in an error."""
    aborts_per_s: Reading = NOT_EXPOSED
    """Requests per second that their client gave up, or that somebody cancelled."""
    rejections_per_s: Reading = NOT_EXPOSED
    """Requests per second that were turned away, as the queue or all workers were full."""
    forward_ratio: Reading = NOT_EXPOSED
    """Share of the time in which its GPU ran a forward pass, mean of its ranks."""
    scheduler_idle_ratio: Reading = NOT_EXPOSED
    """Share of the time in which its scheduler had nothing to run and nothing in its queues."""
    host_ratio: Reading = NOT_EXPOSED
    """The rest: there was work and no forward pass ran, so that the GPU waited for the host."""
    kv_stored_bytes_per_s: Reading = NOT_EXPOSED
    """KV cache copied from the GPUs to the host's memory, a disk or a store."""
    kv_loaded_bytes_per_s: Reading = NOT_EXPOSED
    """KV cache copied back from there."""
    kv_transferred_bytes_per_s: Reading = NOT_EXPOSED
    """KV cache from or to another engine."""
    kv_transfer_failures_per_s: Reading = NOT_EXPOSED
    inferences_per_s: Reading = NOT_EXPOSED
    """Items per second of a server of models that are no LLMs."""
    samples_per_s: Reading = NOT_EXPOSED
    """Of a training run, all its GPUs together."""
    trained_tokens_per_s: Reading = NOT_EXPOSED
    """Of a training run, all its GPUs together."""


class Latency(Part, frozen=True, gc=False):
    """How long requests and tokens take, in seconds."""

    ttft_s: Quantiles = Quantiles()
    itl_s: Quantiles = Quantiles()
    queue_s: Quantiles = Quantiles()
    e2e_s: Quantiles = Quantiles()
    tpot_s: Quantiles = Quantiles()
    """Time per token after the first, over requests that ended: one mean of each."""
    itl_mean_s: Reading = NOT_EXPOSED
    """Mean time per token after a request's first over those 10 s; `itl_s` is of the last 60 s."""


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
    """The same of MBU."""
    tokens_per_j: Reading = NOT_EXPOSED
    flops_per_j: Reading = NOT_EXPOSED
    own: OwnEstimate = OwnEstimate()
    """The engine's own count of its FLOPs and bytes."""


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
    uneven: tuple[str, ...] = ()
    """What its ranks share unevenly, in words with figures."""
    deviates: tuple[str, ...] = ()
    """In what it does worse than the other replicas of its model, or that it gets less to do, in words with figures."""
    contradicts: tuple[str, ...] = ()
    """Figures of it that cannot be right beside what its own GPUs measure, in words with both."""
    asleep: str = ""
    """How it rests on purpose (vLLM's and llama.cpp's sleep mode); empty while it is awake."""
    hardware: Hardware = Hardware()
    dimensions: Dimensions = Dimensions()
    load: Load = Load()
    rates: EngineRates = EngineRates()
    latency: Latency = Latency()
    efficiency: Efficiency = Efficiency()

    @property
    def key(self) -> str:
        """Tells engines apart for good: two models of one server share its URL."""
        return f"{self.url}#{self.part}" if self.part else self.url


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
    mfu_ratio: Reading = NOT_EXPOSED
    """Of all their GPUs together."""
    mbu_ratio: Reading = NOT_EXPOSED
    deviating: tuple[str, ...] = ()
    """Names of the replicas that stand apart (`Engine.deviates`)."""
    mapped: int = 0
    """How many of those that answer run on GPUs that are known: MFU and MBU are over these, where there are any."""
