"""The metrics of a vLLM 0.32 page as data: name, help text, label sets, and where the value comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpumon.sources.simulator.counters import Histogram
from gpumon.sources.simulator.engine_model import EngineModel

Labels = tuple[tuple[str, str], ...]
Scalars = Callable[[EngineModel], Sequence[float]]
Family = tuple[str, str, tuple[Labels, ...], Scalars]
"""Name (without _total), help text, extra labels of each series, values in their order."""

ALONE: tuple[Labels, ...] = ((),)


def _by(label: str, *values: str) -> tuple[Labels, ...]:
    return tuple(((label, value),) for value in values)


def _zeros(count: int) -> Scalars:
    zeros = (0.0,) * count
    return lambda _: zeros


def _computed(rank: EngineModel) -> Sequence[float]:
    counters = rank.counters
    return (counters.prompt_tokens - counters.cached_tokens, counters.cached_tokens, 0.0)


_FLOPS_HELP = "(for Model Flops Utilization calculations)."

GAUGES: tuple[Family, ...] = (
    (
        "vllm:num_requests_running",
        "Number of requests in model execution batches.",
        ALONE,
        lambda rank: (rank.running,),
    ),
    ("vllm:num_requests_waiting", "Number of requests waiting to be processed.", ALONE, lambda rank: (rank.waiting,)),
    (
        "vllm:num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
        "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). "
        "Sum of all reasons equals vllm:num_requests_waiting.",
        _by("reason", "capacity", "deferred"),
        lambda rank: (rank.waiting, 0.0),
    ),
    (
        "vllm:engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
        "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        _by("sleep_state", "awake", "weights_offloaded", "discard_all"),
        lambda _: (1.0, 0.0, 0.0),
    ),
    (
        "vllm:kv_cache_usage_perc",
        "KV-cache usage. 1 means 100 percent usage.",
        ALONE,
        lambda rank: (rank.blocks.usage_ratio,),
    ),
)

ESTIMATES: tuple[Family, ...] = tuple(
    (f"vllm:estimated_{what}_per_gpu", f"Estimated number of {text} {_FLOPS_HELP}", ALONE, _zeros(1))
    for what, text in (
        ("flops", "floating point operations per GPU"),
        ("read_bytes", "bytes read from memory per GPU"),
        ("write_bytes", "bytes written to memory per GPU"),
    )
)
"""Zero, as on a server without --enable-mfu-metrics."""

COUNTERS: tuple[Family, ...] = (
    (
        "vllm:prefix_cache_queries",
        "Prefix cache queries, in terms of number of queried tokens.",
        ALONE,
        lambda rank: (rank.counters.cache_queries,),
    ),
    (
        "vllm:prefix_cache_hits",
        "Prefix cache hits, in terms of number of cached tokens.",
        ALONE,
        lambda rank: (rank.counters.cache_hits,),
    ),
    (
        "vllm:external_prefix_cache_queries",
        "External prefix cache queries from KV connector cross-instance cache sharing, "
        "in terms of number of queried tokens.",
        ALONE,
        _zeros(1),
    ),
    (
        "vllm:external_prefix_cache_hits",
        "External prefix cache hits from KV connector cross-instance cache sharing, "
        "in terms of number of cached tokens.",
        ALONE,
        _zeros(1),
    ),
    (
        "vllm:mm_cache_queries",
        "Multi-modal cache queries, in terms of number of queried items.",
        ALONE,
        _zeros(1),
    ),
    ("vllm:mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", ALONE, _zeros(1)),
    (
        "vllm:num_preemptions",
        "Cumulative number of preemption from the engine.",
        ALONE,
        lambda rank: (rank.counters.preemptions,),
    ),
    ("vllm:prompt_tokens", "Number of prefill tokens processed.", ALONE, lambda rank: (rank.counters.prompt_tokens,)),
    (
        "vllm:prompt_tokens_by_source",
        "Number of prompt tokens by source.",
        _by("source", "local_compute", "local_cache_hit", "external_kv_transfer"),
        _computed,
    ),
    (
        "vllm:prompt_tokens_cached",
        "Number of cached prompt tokens (local + external).",
        ALONE,
        lambda rank: (rank.counters.cached_tokens,),
    ),
    (
        "vllm:prompt_tokens_cached_by_source",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), "
        "disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; "
        "sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        _by("source", "device", "host", "p2p", "disk", "external_unspecified"),
        lambda rank: (rank.counters.cache_hits, 0.0, 0.0, 0.0, 0.0),
    ),
    (
        "vllm:generation_tokens",
        "Number of generation tokens processed.",
        ALONE,
        lambda rank: (rank.counters.generation_tokens,),
    ),
    (
        "vllm:request_success",
        "Count of successfully processed requests.",
        _by("finished_reason", "stop", "length", "abort", "error", "repetition"),
        lambda rank: tuple(rank.counters.finished.values()),
    ),
)

REJECTIONS = (
    "vllm:admission_rejections",
    "Number of admission attempts rejected by a queue limit, by reason.",
    ("max_num_queued_reqs", "max_num_queued_tokens"),
)
"""The one vLLM counter without an `engine` label."""

HISTOGRAMS: tuple[tuple[str, str, Callable[[EngineModel], Histogram]], ...] = (
    (
        "vllm:request_prompt_tokens",
        "Number of prefill tokens processed.",
        lambda rank: rank.counters.request_prompt_tokens,
    ),
    (
        "vllm:request_generation_tokens",
        "Number of generation tokens processed.",
        lambda rank: rank.counters.request_generation_tokens,
    ),
    (
        "vllm:iteration_tokens_total",
        "Histogram of number of tokens per engine_step.",
        lambda rank: rank.counters.iteration_tokens,
    ),
    (
        "vllm:request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        lambda rank: rank.counters.request_max_tokens,
    ),
    ("vllm:request_params_n", "Histogram of the n request parameter.", lambda rank: rank.counters.request_n),
    (
        "vllm:request_params_max_tokens",
        "Histogram of the max_tokens request parameter.",
        lambda rank: rank.counters.request_max_tokens_param,
    ),
    (
        "vllm:time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        lambda rank: rank.counters.ttft,
    ),
    (
        "vllm:inter_token_latency_seconds",
        "Histogram of inter-token latency in seconds.",
        lambda rank: rank.counters.itl,
    ),
    (
        "vllm:request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        lambda rank: rank.counters.time_per_token,
    ),
    (
        "vllm:e2e_request_latency_seconds",
        "Histogram of e2e request latency in seconds.",
        lambda rank: rank.counters.e2e,
    ),
    (
        "vllm:request_queue_time_seconds",
        "Histogram of time spent in WAITING phase for request.",
        lambda rank: rank.counters.queue,
    ),
    (
        "vllm:request_inference_time_seconds",
        "Histogram of time spent in RUNNING phase for request.",
        lambda rank: rank.counters.inference,
    ),
    (
        "vllm:request_prefill_time_seconds",
        "Histogram of time spent in PREFILL phase for request.",
        lambda rank: rank.counters.prefill,
    ),
    (
        "vllm:request_decode_time_seconds",
        "Histogram of time spent in DECODE phase for request.",
        lambda rank: rank.counters.decode,
    ),
    (
        "vllm:request_num_preemptions",
        "Histogram of the number of times a request was preempted.",
        lambda rank: rank.counters.request_preemptions,
    ),
    (
        "vllm:request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        lambda rank: rank.counters.request_computed_tokens,
    ),
)

CACHE_CONFIG: dict[str, str] = {
    "_block_size_resolved": "True",
    "block_size": "16",
    "cache_dtype": "auto",
    "cache_hit_alignment_tokens": "None",
    "effective_attention_block_size": "16",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "enable_prefix_caching": "True",
    "hash_block_size": "None",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_cache_layout": "None",
    "kv_offloading_backend": "native",
    "kv_offloading_size": "None",
    "kv_sharing_fast_prefill": "False",
    "mamba_block_size": "None",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_page_size_padded": "None",
    "mamba_ssm_cache_dtype": "float32",
    "num_cpu_blocks": "None",
    "num_gpu_blocks_override": "None",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": "None",
    "replayssm_buffer_len": "16",
    "skip_page_size_padded": "None",
    "sliding_window": "None",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
    "user_specified_block_size": "False",
}
"""Labels of vllm:cache_config_info that do not depend on the server."""
