"""The /metrics page of a simulated vLLM 0.32 server, in the text format and order of the real one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.sources.simulator.engine_model import EngineModel
from gpumon.sources.simulator.scenario import Actor

Labels = tuple[tuple[str, str], ...]
Values = Callable[[], Iterable[float]]
Block = tuple[str, tuple[str, ...], Values]
"""Header lines, the series' names with their labels, and what reads their values."""


class Family(NamedTuple):
    """One metric of each rank."""

    name: str
    """Without `_total`."""
    text: str
    """Its help."""
    read: Callable[[EngineModel], Sequence[float]] = lambda _: (0.0,)
    """The value of each series."""
    label: str = ""
    """What tells its series apart; empty where it has one."""
    values: tuple[str, ...] = ("",)
    """Of that label, in the page's order."""


def _computed(rank: EngineModel) -> Sequence[float]:
    counters = rank.counters
    return (counters.prompt_tokens - counters.cached_tokens, counters.cached_tokens, 0.0)


GAUGES: Final = (
    Family("vllm:num_requests_running", "Number of requests in model execution batches.", lambda rank: (rank.running,)),
    Family("vllm:num_requests_waiting", "Number of requests waiting to be processed.", lambda rank: (rank.waiting,)),
    Family(
        "vllm:num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
        "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). "
        "Sum of all reasons equals vllm:num_requests_waiting.",
        lambda rank: (rank.waiting, 0.0),
        "reason",
        ("capacity", "deferred"),
    ),
    Family(
        "vllm:engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
        "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        lambda rank: (float(not rank.asleep), float(rank.asleep), 0.0),
        "sleep_state",
        ("awake", "weights_offloaded", "discard_all"),
    ),
    Family(
        "vllm:kv_cache_usage_perc",
        "KV-cache usage. 1 means 100 percent usage.",
        lambda rank: (rank.blocks.usage_ratio,),
    ),
)

_FLOPS: Final = "(for Model Flops Utilization calculations)."
ESTIMATES: Final = (
    Family("vllm:estimated_flops_per_gpu", f"Estimated number of floating point operations per GPU {_FLOPS}"),
    Family("vllm:estimated_read_bytes_per_gpu", f"Estimated number of bytes read from memory per GPU {_FLOPS}"),
    Family("vllm:estimated_write_bytes_per_gpu", f"Estimated number of bytes written to memory per GPU {_FLOPS}"),
)
"""Zero, as on a server without --enable-mfu-metrics."""

COUNTERS: Final = (
    Family(
        "vllm:prefix_cache_queries",
        "Prefix cache queries, in terms of number of queried tokens.",
        lambda rank: (rank.counters.cache_queries,),
    ),
    Family(
        "vllm:prefix_cache_hits",
        "Prefix cache hits, in terms of number of cached tokens.",
        lambda rank: (rank.counters.cache_hits,),
    ),
    Family(
        "vllm:external_prefix_cache_queries",
        "External prefix cache queries from KV connector cross-instance cache sharing, "
        "in terms of number of queried tokens.",
    ),
    Family(
        "vllm:external_prefix_cache_hits",
        "External prefix cache hits from KV connector cross-instance cache sharing, "
        "in terms of number of cached tokens.",
    ),
    Family("vllm:mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items."),
    Family("vllm:mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items."),
    Family(
        "vllm:num_preemptions",
        "Cumulative number of preemption from the engine.",
        lambda rank: (rank.counters.preemptions,),
    ),
    Family("vllm:prompt_tokens", "Number of prefill tokens processed.", lambda rank: (rank.counters.prompt_tokens,)),
    Family(
        "vllm:prompt_tokens_by_source",
        "Number of prompt tokens by source.",
        _computed,
        "source",
        ("local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    Family(
        "vllm:prompt_tokens_cached",
        "Number of cached prompt tokens (local + external).",
        lambda rank: (rank.counters.cached_tokens,),
    ),
    Family(
        "vllm:prompt_tokens_cached_by_source",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), "
        "disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; "
        "sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        lambda rank: (rank.counters.cache_hits, 0.0, 0.0, 0.0, 0.0),
        "source",
        ("device", "host", "p2p", "disk", "external_unspecified"),
    ),
    Family(
        "vllm:generation_tokens",
        "Number of generation tokens processed.",
        lambda rank: (rank.counters.generation_tokens,),
    ),
    Family(
        "vllm:request_success",
        "Count of successfully processed requests.",
        lambda rank: tuple(rank.counters.finished.values()),
        "finished_reason",
        ("stop", "length", "abort", "error", "repetition"),
    ),
)

REJECTIONS: Final = ("max_num_queued_reqs", "max_num_queued_tokens")
"""Reasons of vllm:admission_rejections, the one vLLM counter without an `engine` label."""

HISTOGRAMS: Final = (
    ("request_prompt_tokens", "Number of prefill tokens processed.", "request_prompt_tokens"),
    ("request_generation_tokens", "Number of generation tokens processed.", "request_generation_tokens"),
    ("iteration_tokens_total", "Histogram of number of tokens per engine_step.", "iteration_tokens"),
    (
        "request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        "request_max_tokens",
    ),
    ("request_params_n", "Histogram of the n request parameter.", "request_n"),
    ("request_params_max_tokens", "Histogram of the max_tokens request parameter.", "request_max_tokens_param"),
    ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", "ttft"),
    ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", "itl"),
    (
        "request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        "time_per_token",
    ),
    ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", "e2e"),
    ("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", "queue"),
    ("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", "inference"),
    ("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", "prefill"),
    ("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", "decode"),
    ("request_num_preemptions", "Histogram of the number of times a request was preempted.", "request_preemptions"),
    (
        "request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        "request_computed_tokens",
    ),
)
"""Name without `vllm:`, help, and the histogram of `Counters` that it shows."""

CACHE_CONFIG: Final = dict(
    re.findall(
        r"(\S+)=(\S+)",
        """
        _block_size_resolved=True block_size=16 cache_dtype=auto cache_hit_alignment_tokens=None
        effective_attention_block_size=16 enable_mamba_shared_prefix_checkpoint=False enable_prefix_caching=True
        hash_block_size=None is_attention_free=False kv_cache_dtype_skip_layers=[] kv_cache_layout=None
        kv_offloading_backend=native kv_offloading_size=None kv_sharing_fast_prefill=False mamba_block_size=None
        mamba_cache_dtype=auto mamba_cache_mode=none mamba_page_size_padded=None mamba_ssm_cache_dtype=float32
        num_cpu_blocks=None num_gpu_blocks_override=None prefix_cache_retention_interval=0
        prefix_caching_hash_algo=sha256 prefix_match_unit=None replayssm_buffer_len=16 skip_page_size_padded=None
        sliding_window=None swa_bounded_replay=True use_kda_recoverssm=False use_replayssm=False
        user_specified_block_size=False""",
    )
)
"""Labels of vllm:cache_config_info that do not depend on the server."""


def go_number(value: float) -> str:
    """A number as Prometheus prints it: like Go, so that a million is 1e+06."""
    text = repr(float(value))
    if not 1e6 <= value < 1e16:
        return text
    whole, _, fraction = text.partition(".")
    mantissa = f"{whole[0]}.{whole[1:]}{fraction}".rstrip("0").rstrip(".")
    return f"{mantissa}e+{len(whole) - 1:02d}"


def _series(name: str, labels: Labels) -> str:
    text = ",".join(f'{key}="{value}"' for key, value in sorted(labels))
    return f"{name}{{{text}}} " if labels else f"{name} "


def _header(name: str, text: str, kind: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}"


class MetricsPage:
    """Everything of the page but the numbers is made once; `text` reads the ranks' counters.

    One rank is one process: the page then has `process_*` and `_created` series. Several ranks share a multiprocess
    exporter, which has neither, and puts gauges and histograms before the counters.
    """

    def __init__(self, actor: Actor, ranks: Sequence[EngineModel], started_wall_s: float) -> None:
        self._actor = actor
        self._ranks = tuple(ranks)
        self._started_wall_s = started_wall_s
        self._alone = len(self._ranks) == 1
        counters = [block for family in COUNTERS for block in self._scalars(family, "counter")]
        estimates = [block for family in ESTIMATES for block in self._scalars(family, "counter")]
        gauges = [block for family in GAUGES for block in self._scalars(family, "gauge")]
        histograms = [block for row in HISTOGRAMS for block in self._histogram(*row)]
        config, (rejections, requests) = self._cache_config(), self._without_engine()
        blocks = (
            (*self._process(), *estimates, *gauges, *counters, *rejections, *histograms, config, *requests)
            if self._alone
            else (*gauges, config, *histograms, *estimates, *counters, *rejections, *requests)
        )
        self._blocks: tuple[Block, ...] = tuple(
            (head, names, values)
            for head, names, values in blocks
            if not any(hidden in names[0] for hidden in actor.hidden)
        )

    def text(self) -> str:
        """The page as it is now."""
        lines: list[str] = []
        for header, series, values in self._blocks:
            lines.append(header)
            lines.extend(name + go_number(value) for name, value in zip(series, values(), strict=True))
        lines.append("")
        return "\n".join(lines)

    def _labels(self, rank: int, *extra: tuple[str, str]) -> Labels:
        return (("engine", str(rank)), ("model_name", self._actor.model), *extra)

    def _process(self) -> Iterable[Block]:
        version: Labels = (("implementation", "CPython"), ("major", "3"), ("minor", "12"), ("version", "3.12.11"))
        head = _header("python_info", "Python platform information", "gauge")
        yield head, (_series("python_info", version),), lambda: (1.0,)
        name = "process_start_time_seconds"
        head = _header(name, "Start time of the process since unix epoch in seconds.", "gauge")
        yield head, (f"{name} ",), lambda: (self._started_wall_s - STARTING_S,)

    def _scalars(self, family: Family, kind: str) -> Iterable[Block]:
        ranks = self._ranks
        # The real exporter lists a label value for all engines before the next one.
        order = [(rank, at) for at in range(len(family.values)) for rank in range(len(ranks))]
        extras = [((family.label, value),) if family.label else () for value in family.values]
        labels = [self._labels(rank, *extras[at]) for rank, at in order]

        def values() -> Iterable[float]:
            read_of = [family.read(rank) for rank in ranks]
            return [read_of[rank][at] for rank, at in order]

        if kind == "counter":
            yield from self._counter(family.name, family.text, labels, values)
        else:
            series = tuple(_series(family.name, each) for each in labels)
            yield _header(family.name, family.text, kind), series, values

    def _counter(self, name: str, text: str, labels: Sequence[Labels], values: Values) -> Iterable[Block]:
        yield (
            _header(f"{name}_total", text, "counter"),
            tuple(_series(f"{name}_total", each) for each in labels),
            values,
        )
        yield from self._created(name, text, labels)

    def _created(self, name: str, text: str, labels: Sequence[Labels]) -> Iterable[Block]:
        if self._alone:
            series = tuple(_series(f"{name}_created", each) for each in labels)
            values = (self._started_wall_s,) * len(series)
            yield _header(f"{name}_created", text, "gauge"), series, lambda: values

    def _histogram(self, short: str, text: str, field: str) -> Iterable[Block]:
        name, histograms = f"vllm:{short}", [getattr(rank.counters, field) for rank in self._ranks]
        series: list[str] = []
        for rank, histogram in enumerate(histograms):
            labels = self._labels(rank)
            bounds = (*(repr(bound) for bound in histogram.bounds), "+Inf")
            buckets = [_series(f"{name}_bucket", (*labels, ("le", bound))) for bound in bounds]
            total, count = _series(f"{name}_sum", labels), _series(f"{name}_count", labels)
            series += [*buckets, count, total] if self._alone else [total, *buckets, count]

        def values() -> Iterable[float]:
            for histogram in histograms:
                head, tail = ((), (histogram.total,)) if self._alone else ((histogram.total,), ())
                yield from (*head, *histogram.cumulative(), float(histogram.count), *tail)

        yield _header(name, text, "histogram"), tuple(series), values
        yield from self._created(name, text, [self._labels(rank) for rank in range(len(histograms))])

    def _cache_config(self) -> Block:
        limits = self._ranks[0].limits
        tokens = (limits.kv_pool_blocks - 1) * 16
        config = CACHE_CONFIG | {
            "gpu_memory_utilization": str(self._actor.gpu_memory_utilization),
            # As seen on a real server with two ranks: each rank shows the blocks of both, but its own tokens.
            "num_gpu_blocks": str(limits.kv_pool_blocks * len(self._ranks)),
            "kv_cache_size_tokens": str(tokens),
            "kv_cache_max_concurrency": str(round(tokens / limits.max_model_len, 2)),
            "kv_cache_memory_bytes": str(int(self._actor.kv_pool_bytes)),
        }
        name = "vllm:cache_config_info"
        series = tuple(_series(name, (("engine", str(rank)), *config.items())) for rank in range(len(self._ranks)))
        ones = (1.0,) * len(series)
        return _header(name, "Information of the LLMEngine CacheConfig", "gauge"), series, lambda: ones

    def _without_engine(self) -> tuple[Iterable[Block], Iterable[Block]]:
        """Rejected requests, of which the simulated engines have the first reason only; and answers by HTTP status."""
        ranks, model = self._ranks, ("model_name", self._actor.model)
        rejections = self._counter(
            "vllm:admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            [(model, ("reason", reason)) for reason in REJECTIONS],
            lambda: (sum(rank.rejected for rank in ranks), 0.0),
        )
        answers = self._counter(
            "http_requests",
            "Total number of requests by method, status and handler.",
            [(("handler", "/v1/chat/completions"), ("method", "POST"), ("status", "2xx"))],
            lambda: (sum(rank.counters.e2e.count for rank in ranks),),
        )
        return rejections, answers


STARTING_S: Final = 75.0
"""A process starts that long before it answers: weights, compilation, CUDA graphs."""
