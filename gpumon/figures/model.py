"""Figures of a model that several engines serve."""

from __future__ import annotations

from typing import Final

from gpumon.figures.figure import Exported, Figure, Figures
from gpumon.figures.latency import LATENCIES, goal_figures, latency_figures
from gpumon.figures.merge import Merge
from gpumon.figures.unit import (
    JOULES,
    MONEY,
    NUMBER,
    PER_S,
    REQUESTS,
    SECONDS,
    SHARE,
    TOKENS_PER_S,
)

MODEL: Final = Figures(
    Figure(
        "answering",
        NUMBER,
        exported=Exported("model_replicas_answering", "Engines of one model that give figures.", zero_is_unknown=True),
    ),
    Figure(
        "mapped",
        NUMBER,
        exported=Exported(
            "model_replicas_mapped", "Those of them that run on GPUs that are known.", zero_is_unknown=True
        ),
    ),
    Figure(
        "running",
        REQUESTS,
        merge=Merge.SUM,
        exported=Exported("model_requests_running", "Requests that all replicas work on."),
    ),
    Figure(
        "waiting",
        REQUESTS,
        merge=Merge.SUM,
        exported=Exported("model_requests_waiting", "Requests in all replicas' queues."),
    ),
    Figure(
        "kv_usage_ratio",
        SHARE,
        merge=Merge.MEAN,
        exported=Exported("model_kv_cache_used_ratio", "Share of the KV cache in use now, mean of the replicas."),
    ),
    Figure(
        "prefill_tokens_per_s",
        TOKENS_PER_S,
        merge=Merge.SUM,
        exported=Exported("model_prefill_tokens_per_second", "Prompt tokens that all replicas compute."),
    ),
    Figure(
        "decode_tokens_per_s",
        TOKENS_PER_S,
        merge=Merge.SUM,
        exported=Exported("model_decode_tokens_per_second", "Tokens that all replicas generate."),
    ),
    Figure(
        "requests_per_s",
        PER_S,
        merge=Merge.SUM,
        exported=Exported("model_requests_per_second", "Requests that ended at any replica."),
    ),
    *latency_figures("model", *LATENCIES),
    *goal_figures("model"),
    Figure(
        "mfu_ratio",
        SHARE,
        merge=Merge.QUOTIENT,
        quotient_of=("flops_per_s", "peak_flops_per_s"),
        exported=Exported("model_mfu_ratio", "Model FLOPs utilization of all replicas' GPUs."),
    ),
    Figure(
        "mbu_ratio",
        SHARE,
        merge=Merge.QUOTIENT,
        quotient_of=("bytes_per_s", "peak_bandwidth_bytes_per_s"),
        exported=Exported("model_mbu_ratio", "Model bandwidth utilization of all replicas' GPUs."),
    ),
    Figure("cost_per_hour", MONEY, merge=Merge.SUM),
    Figure("cost_per_million_output_tokens", MONEY),
    Figure("cost_per_million_all_tokens", MONEY),
    Figure(
        "unused_s",
        SECONDS,
        merge=Merge.SUM,
    ),
    Figure(
        "unused_cost",
        MONEY,
        merge=Merge.SUM,
    ),
    Figure(
        "energy_j",
        JOULES,
        merge=Merge.SUM,
    ),
    Figure(
        "energy_cost",
        MONEY,
        merge=Merge.SUM,
    ),
)
"""Figures of a model over all its replicas."""
