"""TensorRT-LLM (trtllm-serve): its Prometheus page. The JSON records of its iterations are never asked for.

Names and meaning: tensorrt_llm/metrics/collector.py and tensorrt_llm/serve/openai_server.py of NVIDIA/TensorRT-LLM.
Its token counters move when a request ends. What moves with the iterations needs `enable_iter_perf_stats`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading, HistogramReading
from gpumon.sources.engines.adapter import (
    NO_BODIES,
    Adapter,
    Bodies,
    Figures,
    Found,
    Metric,
    Page,
    Rank,
    Rule,
    Tables,
    by_name,
    labels_of,
    only_mean,
    picked,
    started_wall_s,
    usable,
    whole_number,
)
from gpumon.sources.engines.derived import Failures, Remainder
from gpumon.sources.engines.dynamo import WORKER_KV_USAGE, WORKER_REQUESTS, worker_place
from gpumon.sources.exposition import Scan
from gpumon.specs import hints

PROMETHEUS: Final = "/prometheus/metrics"
RECORDS: Final = "/metrics"
"""Gives each record to the first who asks. A Dynamo worker has its Prometheus page there."""
PREFIXES: Final = ("trtllm_", "trtllm:")
"""The second is Dynamo's, until 0.7."""
SWITCH: Final = (
    "return_perf_metrics: true and enable_iter_perf_stats: true in the YAML of trtllm-serve --config "
    "(--extra_llm_api_options)"
)
FIRST: Final = "e2e_request_latency_seconds"
"""One of the five names of versions until 1.2, which have no prefix yet."""
SIGN: Final = b'engine_type="'
"""A label of all its metrics."""
UNTOLD: Final = "undefined"
"""What old versions call their model."""
MODEL: Final = "trtllm_model_config_info"
PARALLEL: Final = "trtllm_parallel_config_info"
SPECULATIVE: Final = "trtllm_speculative_config_info"
CACHE: Final = "trtllm_kv_cache_config_info"
KEPT: Final = {
    MODEL: {"quantization": hints.QUANTIZATION, "max_model_len": hints.CONTEXT_LEN, "gpu_type": "gpu_type"},
    PARALLEL: {"gpu_count": "gpu_count", "expert_parallel_size": "expert_parallel_size"},
    SPECULATIVE: {"spec_method": hints.SPECULATION, "spec_num_tokens": "spec_num_tokens"},
    CACHE: {"cache_dtype": "cache_dtype", "enable_block_reuse": "enable_block_reuse"},
}
"""Label -> key in `info`, of each metric that tells a configuration."""
SUCCESSES: Final = "request_success_total"
FAILURES: Final = Failures("trtllm_request_error_total", "http_code")
SCHEDULED: Final = Metric("trtllm_scheduled_batch_size")
"""Of each executor rank; 0 when it has nothing to run."""
GENERATING: Final = Metric("trtllm_num_generation_requests")
BLOCKS: Final = "trtllm_kv_cache_max_blocks"
BLOCK: Final = "trtllm_kv_cache_tokens_per_block"
ITERATION: Final = (
    "trtllm_iteration_latency_seconds",
    "trtllm_num_requests_completed_total",
    "trtllm_prefill_batch_tokens_count",
)
"""They stay as they are for as long as no iteration ends; the first is another after each."""
STILL: Final = 2
"""Polls in a row without an iteration after which the engine counts as idle: one long prefill may outlast a poll."""
ENOUGH: Final = 10
"""Ended requests whose mean time per token is taken."""


def _old(name: str) -> tuple[Metric, ...]:
    """A metric that was there before the prefix."""
    return tuple(Metric(prefix + name) for prefix in (*PREFIXES, ""))


def _rule(quantity: str, name: str, advance: Advance = Advance.LIVE) -> Rule:
    return Rule(quantity, (Metric(PREFIXES[0] + name, advance=advance),))


TABLES: Final = Tables(
    rank_label="",
    repeated=("rank", "pid"),
    counters=(
        _rule(q.PROMPT_TOKENS, "prompt_tokens_total", Advance.END),
        # A histogram: an observation for each iteration with prefill in it.
        _rule(q.PREFILL_COMPUTED, "prefill_batch_tokens_sum"),
        Rule(
            q.PREFILL_CACHED,
            (
                Metric("trtllm_prompt_cache_hit_tokens_total"),
                Metric("trtllm_prompt_cached_tokens_total", advance=Advance.END),
            ),
        ),
        _rule(q.DECODE_TOKENS, "generation_tokens_total", Advance.END),
        Rule(q.REQUESTS, _old(SUCCESSES)),
        _rule(q.ACCEPTED_TOKENS, "spec_decode_num_accepted_tokens_total"),
    ),
    gauges=(
        Rule(q.RUNNING, (Metric("trtllm_num_requests_running"), SCHEDULED)),
        _rule(q.WAITING, "num_requests_waiting"),
        _rule(q.MOST_RUNNING, "max_num_active_requests"),
        Rule(q.KV_USAGE, tuple(map(Metric, ("trtllm_kv_cache_utilization", *WORKER_KV_USAGE)))),
        _rule(q.MEAN_ACCEPTED, "spec_decode_acceptance_length"),
    ),
    histograms=(
        Rule(q.TTFT, _old("time_to_first_token_seconds")),
        # A mean of each request, not of each token.
        Rule(q.ITL, _old("time_per_output_token_seconds")),
        Rule(q.E2E, _old(FIRST)),
        Rule(q.QUEUE, _old("request_queue_time_seconds")),
    ),
    extra=(
        FAILURES.name,
        SCHEDULED.name,
        GENERATING.name,
        BLOCKS,
        BLOCK,
        *ITERATION,
        *KEPT,
        WORKER_REQUESTS,
    ),
)


class TrtllmAdapter(Adapter):
    """One trtllm-serve, or a Dynamo worker that runs TensorRT-LLM."""

    kind = EngineKind.TENSORRT_LLM
    tables = TABLES
    prefixes = PREFIXES
    from_documentation = True

    def __init__(self) -> None:
        super().__init__()
        self._computed = Remainder()
        self._iteration: list[float] = []
        self._still = 0
        self._ended = HistogramReading((), (), 0.0, 0.0)
        self._token_s = 0.0

    @classmethod
    def claims(cls, page: Page) -> bool:
        """A page without prefixes is told by a label."""
        if super().claims(page):
            return True
        return f"{FIRST}_count" in page.names and (page.path == PROMETHEUS or SIGN in page.body)

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EngineReading:  # noqa: ARG002
        """The Prometheus page in canonical quantities."""
        found = by_name(scan)
        figures = self.collect(found)
        ranks, live = figures.ranks, figures.live
        moving, idle = self._watch(found)
        for rank in ranks.values():
            FAILURES.put(rank, figures, found)
            self._work_out_prefill(rank, figures)
            _drop_nothing(rank, live)
            _add_lengths(rank, live, found)
            _add_pool(rank, live, found)
            self._add_rate(rank, figures, found, moving=moving and not idle)
            if q.RUNNING in rank.gauges:
                # Its own gauge stays at what the last iteration had.
                rank.gauges[q.RUNNING] *= not idle
                live[q.RUNNING] += ", 0 while nothing is scheduled"
        figures.info.update(_settings(found), **worker_place(found))
        config, parallel = labels_of(found, MODEL), labels_of(found, PARALLEL)
        return self.reading(
            figures,
            model=config.get("served_model_name") or _model(found),
            model_root=config.get("model", ""),
            started_wall_s=started_wall_s(found),
            tp=whole_number(parallel.get("tensor_parallel_size", "")),
            pp=whole_number(parallel.get("pipeline_parallel_size", "")),
        )

    def _watch(self, found: Mapping[str, Found]) -> tuple[bool, bool]:
        """Whether an iteration ended since the last poll, and whether nothing runs, as far as the page can tell."""
        seen = [value for name in ITERATION for value in sorted(value for _, value in found.get(name, ()))]
        still = bool(seen) and seen == self._iteration
        self._iteration = seen
        self._still = self._still + 1 if still else 0
        scheduled = [value for _, value in picked(found, SCHEDULED)]
        return not still, max(scheduled) == 0.0 if scheduled else self._still >= STILL

    def _work_out_prefill(self, rank: Rank, figures: Figures) -> None:
        """Without iteration statistics, the prompts of ended requests less what came from the cache."""
        prompt, cached = (rank.counters.get(name) for name in (q.PROMPT_TOKENS, q.PREFILL_CACHED))
        if q.PREFILL_COMPUTED not in self._chosen and prompt is not None and cached is not None:
            rank.counters[q.PREFILL_COMPUTED] = self._computed.of(rank.name, prompt, cached)
            figures.live[q.PREFILL_COMPUTED] = f"{figures.live[q.PROMPT_TOKENS]} - {figures.live[q.PREFILL_CACHED]}"
            figures.advance[q.PREFILL_COMPUTED] = Advance.END

    def _add_rate(self, rank: Rank, figures: Figures, found: Mapping[str, Found], *, moving: bool) -> None:
        """Decode rate of a moment: each generating request gets a token in the mean time per token.

        Not by `iteration_latency_seconds`: with the overlap scheduler, which is the default, an iteration is measured
        over about two loops (tensorrt_llm/_torch/pyexecutor/py_executor.py, _process_iter_stats).
        """
        token_s = self._mean_token_s(rank.histograms.get(q.ITL))
        generating = [value for _, value in picked(found, GENERATING)]
        if not generating or not token_s:
            return
        rate = max(generating) / token_s if moving else 0.0
        if usable(rate):
            rank.gauges[q.DECODE_RATE] = rate
            figures.live[q.DECODE_RATE] = f"{GENERATING} / mean time per output token of the requests that ended last"
            figures.advance[q.DECODE_RATE] = Advance.DERIVED

    def _mean_token_s(self, itl: HistogramReading | None) -> float:
        """Seconds per token of the last `ENOUGH` or more requests that ended; 0 where none has."""
        if itl is None:
            return self._token_s
        if itl.count < self._ended.count or itl.sum < self._ended.sum:
            self._ended = HistogramReading((), (), 0.0, 0.0)
        ended = itl.count - self._ended.count
        if ended >= ENOUGH or (ended > 0.0 and not self._token_s):
            self._token_s = (itl.sum - self._ended.sum) / ended
            self._ended = itl
        return self._token_s


def _drop_nothing(rank: Rank, live: dict[str, str]) -> None:
    """Tokens per step are 1 at least: less is what is written where nothing was drafted."""
    if rank.gauges.get(q.MEAN_ACCEPTED, 1.0) < 1.0:
        del rank.gauges[q.MEAN_ACCEPTED]
        live.pop(q.MEAN_ACCEPTED, None)


def _add_lengths(rank: Rank, live: dict[str, str], found: Mapping[str, Found]) -> None:
    """Mean lengths of ended requests, from the counters that move as they end."""
    served = sum(value for _, value in picked(found, Metric(PREFIXES[0] + SUCCESSES)))
    for quantity, tokens in ((q.PROMPT_LENGTH, q.PROMPT_TOKENS), (q.OUTPUT_LENGTH, q.DECODE_TOKENS)):
        mean = only_mean(rank.counters[tokens], served) if tokens in rank.counters and served else None
        if mean is not None:
            rank.histograms[quantity] = mean
            live[quantity] = f"{live[tokens]} / {PREFIXES[0]}{SUCCESSES}"


def _add_pool(rank: Rank, live: dict[str, str], found: Mapping[str, Found]) -> None:
    blocks, size = (max((value for _, value in picked(found, Metric(name))), default=0.0) for name in (BLOCKS, BLOCK))
    if (pool := blocks * size) > 0.0 and usable(pool):
        rank.gauges[q.POOL_TOKENS] = pool
        live[q.POOL_TOKENS] = f"{BLOCKS} x {BLOCK}: {q.BLOCK_PRODUCT}"


def _settings(found: Mapping[str, Found]) -> dict[str, str]:
    info: dict[str, str] = {}
    for name, keys in KEPT.items():
        labels = labels_of(found, name)
        info |= {key: labels[label] for label, key in keys.items() if labels.get(label, "None") not in ("", "None")}
        if name == MODEL and labels.get("quantization") == "none" and labels.get("dtype", "auto") != "auto":
            info[hints.WEIGHT_PRECISION] = labels["dtype"]
    if "cache_dtype" in info:
        info[hints.KV_DTYPE] = info["cache_dtype"]
    return info


def _model(found: Mapping[str, Found]) -> str:
    names = (one.labels.get("model_name", "") for series in found.values() for one, _ in series)
    return next((name for name in names if name not in ("", UNTOLD)), "")
