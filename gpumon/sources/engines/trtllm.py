"""TensorRT-LLM (trtllm-serve): its Prometheus page. The JSON records of its iterations are never asked for.

Names and meaning: tensorrt_llm/metrics/collector.py and tensorrt_llm/serve/openai_server.py of NVIDIA/TensorRT-LLM
(1.3). Its token counters move when a request ends. What moves with the iterations needs `enable_iter_perf_stats`.
Dynamo once put `trtllm:` before the five names that versions until 1.1 have without a prefix: its workers are read, too
(docs/backends/trtllm/prometheus.md of ai-dynamo/dynamo with TensorRT-LLM 1.1).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading
from gpumon.sources.engines.adapter import METRICS_PATH, Adapter, EngineRow
from gpumon.sources.engines.dynamo import WORKER_KV_USAGE, WORKER_REQUESTS, worker_place
from gpumon.sources.engines.failures import REFUSALS, Failures
from gpumon.sources.engines.histograms import only_mean
from gpumon.sources.engines.launch_form import HOST_PORT, LaunchForm
from gpumon.sources.engines.page_figures import NO_BODIES, Bodies, PageFigures, Rank, is_usable, whole_number
from gpumon.sources.engines.renaming import Renaming
from gpumon.sources.engines.tables import Metric, Rule, Tables, rule
from gpumon.sources.exposition import Scan
from gpumon.specs import hints

PROMETHEUS: Final = "/prometheus/metrics"
RECORDS: Final = METRICS_PATH
"""Gives each record to the first who asks. A Dynamo worker has its Prometheus page there."""
_SWITCH: Final = (
    "return_perf_metrics: true and enable_iter_perf_stats: true in the YAML of trtllm-serve --config "
    "(--extra_llm_api_options)"
)
_MODEL_CONFIG: Final = "trtllm_model_config_info"
PARALLEL: Final = "trtllm_parallel_config_info"
_SETTINGS: Final = {
    _MODEL_CONFIG: {"quantization": hints.QUANTIZATION, "max_model_len": hints.CONTEXT_LEN},
    "trtllm_speculative_config_info": {"spec_method": hints.SPECULATION},
    "trtllm_kv_cache_config_info": {"cache_dtype": "cache_dtype", "enable_block_reuse": "enable_block_reuse"},
}
"""Label -> key in `info`, of each metric that tells a configuration."""
_SUCCESSES: Final = "trtllm_request_success_total"
_FAILURES: Final = Failures("trtllm_request_error_total", "http_code", refused=REFUSALS)
SCHEDULED: Final = Metric("trtllm_scheduled_batch_size")
"""Scheduled requests of each executor rank; 0 when it has nothing to run."""
_GENERATING: Final = Metric("trtllm_num_generation_requests")
_BLOCKS: Final = "trtllm_kv_cache_max_blocks"
_BLOCK_TOKENS: Final = "trtllm_kv_cache_tokens_per_block"
_LEAST_ENDED: Final = 10
"""Ended requests whose mean time per token is taken."""

_PREFIX: Final = "trtllm_"
OLD_PREFIX: Final = "trtllm:"

_rule = partial(rule, prefix=_PREFIX)


class TrtllmAdapter(Adapter):
    """One trtllm-serve, or a Dynamo worker that runs TensorRT-LLM."""

    kind = EngineKind.TENSORRT_LLM
    prefixes = (_PREFIX, OLD_PREFIX)
    from_documentation = True
    tables = Tables(
        rank_label="",
        model_label="model_name",
        repeated=("rank", "pid"),
        counters=(
            _rule(q.PROMPT_TOKENS, "prompt_tokens_total", advance=Advance.END),
            # A histogram: an observation for each iteration with prefill in it.
            _rule(q.PREFILL_COMPUTED, "prefill_batch_tokens_sum"),
            Rule(
                q.PREFILL_CACHED,
                (
                    Metric("trtllm_prompt_cache_hit_tokens_total"),
                    Metric("trtllm_prompt_cached_tokens_total", advance=Advance.END),
                ),
            ),
            _rule(q.DECODE_TOKENS, "generation_tokens_total", advance=Advance.END),
            rule(q.REQUESTS, _SUCCESSES),
            # `cancelled` and `timeout` besides (tensorrt_llm/executor/result.py).
            rule(q.STOPPED, _SUCCESSES, label="finished_reason", value="stop"),
            rule(q.CUT, _SUCCESSES, label="finished_reason", value="length"),
            _rule(q.KV_STORED_BYTES, "kv_cache_offload_bytes_total"),
            _rule(q.KV_LOADED_BYTES, "kv_cache_onboard_bytes_total"),
            _rule(q.DRAFTED_TOKENS, "spec_decode_num_draft_tokens_total"),
            _rule(q.ACCEPTED_TOKENS, "spec_decode_num_accepted_tokens_total"),
        ),
        gauges=(
            Rule(q.RUNNING, (Metric("trtllm_num_requests_running"), SCHEDULED)),
            _rule(q.WAITING, "num_requests_waiting"),
            _rule(q.MOST_RUNNING, "max_num_active_requests"),
            rule(q.KV_USAGE, "trtllm_kv_cache_utilization", *WORKER_KV_USAGE),
            _rule(q.MEAN_ACCEPTED, "spec_decode_acceptance_length"),
        ),
        histograms=(
            _rule(q.TTFT, "time_to_first_token_seconds"),
            # A mean of each request, not of each token.
            _rule(q.ITL, "time_per_output_token_seconds"),
            _rule(q.E2E, "e2e_request_latency_seconds"),
            _rule(q.QUEUE, "request_queue_time_seconds"),
            _rule(q.PREFILL_TIME, "request_prefill_time_seconds"),
            _rule(q.DECODE_TIME, "request_decode_time_seconds"),
        ),
        extra=(
            _FAILURES.name,
            SCHEDULED.name,
            _GENERATING.name,
            _BLOCKS,
            _BLOCK_TOKENS,
            PARALLEL,
            *_SETTINGS,
            WORKER_REQUESTS,
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        self._last_itl = (0.0, 0.0)
        """Sum and count of the times per token when their mean was taken last."""
        self._token_s = 0.0
        """The mean time per token that was taken last; 0: none yet."""
        self._renaming = Renaming(OLD_PREFIX, _PREFIX)

    @property
    def wanted_names(self) -> frozenset[str]:
        """Names of its samples, with either prefix."""
        names = super().wanted_names
        return names | self._renaming.page_names(names)

    def page_names(self, name: str) -> frozenset[str]:
        """A name of the tables with either prefix."""
        return self._renaming.page_names((name,)) | {name}

    def read(
        self, scan: Scan, bodies: Bodies = NO_BODIES, part: str = "", started_wall_s: float = 0.0
    ) -> EngineReading:
        """The page as a reading, whose sources have the names that the page has."""
        if not any(series.name.startswith(OLD_PREFIX) for series in scan.values):
            return super().read(scan, bodies, part, started_wall_s)
        reading = super().read(self._renaming.rename_page(scan), bodies, part, started_wall_s)
        return self._renaming.rename_sources(reading)

    def refine(self, figures: PageFigures) -> None:
        """Add prefill without iteration statistics, mean lengths, the pool, the decode rate, and the configuration."""
        scheduled = [value for _, value in figures.samples_of(SCHEDULED)]
        idle = bool(scheduled) and max(scheduled) == 0.0
        _FAILURES.put(figures)
        self.work_out_prefill(figures)
        for rank in figures.ranks.values():
            # Less than a token per step is what is written where nothing was drafted.
            if rank.gauges.get(q.MEAN_ACCEPTED, 1.0) < 1.0:
                figures.leave_out(q.MEAN_ACCEPTED)
            _add_lengths(rank, figures)
            pool = _largest(figures, _BLOCKS) * _largest(figures, _BLOCK_TOKENS)
            if pool > 0.0:
                figures.put(rank.gauges, q.POOL_TOKENS, pool, f"{_BLOCKS} x {_BLOCK_TOKENS}: {q.BLOCK_PRODUCT}")
            self._add_rate(rank, figures, idle=idle)
            if q.RUNNING in rank.gauges:
                # Its own gauge stays at what the last iteration had.
                if idle:
                    rank.gauges[q.RUNNING] = 0.0
                figures.live[q.RUNNING] += ", 0 while nothing is scheduled"
        self._take_settings(figures)

    def _take_settings(self, figures: PageFigures) -> None:
        """Put model, parallelism and settings into the figures."""
        config = figures.labels(_MODEL_CONFIG)
        parallel = figures.labels(PARALLEL)
        info = figures.info
        for name, keys in _SETTINGS.items():
            labels = figures.labels(name)
            for label, key in keys.items():
                if labels.get(label, "None") not in ("", "None"):
                    info[key] = labels[label]
        if config.get("quantization") == "none" and config.get("dtype", "auto") != "auto":
            info[hints.WEIGHT_PRECISION] = config["dtype"]
        if "cache_dtype" in info:
            info[hints.KV_DTYPE] = info["cache_dtype"]
        info |= worker_place(figures)
        figures.model = config.get("served_model_name") or figures.model
        figures.model_root = config.get("model", "")
        figures.tp = whole_number(parallel.get("tensor_parallel_size", ""))
        figures.pp = whole_number(parallel.get("pipeline_parallel_size", ""))

    def _add_rate(self, rank: Rank, figures: PageFigures, *, idle: bool) -> None:
        """Add the decode rate of this moment: each generating request gets a token in the mean time per token of the
        last `_LEAST_ENDED` or more requests that ended.

        Not by `iteration_latency_seconds`: with the overlap scheduler, which is the default, an iteration is measured
        over about two loops (tensorrt_llm/_torch/pyexecutor/py_executor.py, _process_iter_stats).
        """
        self._take_token_time(rank)
        generating = [value for _, value in figures.samples_of(_GENERATING)]
        if not generating or not self._token_s:
            return
        rate = 0.0 if idle else max(generating) / self._token_s
        if is_usable(rate):
            source = f"{_GENERATING} / mean time per output token of the requests that ended last"
            figures.put(rank.gauges, q.DECODE_RATE, rate, source, Advance.DERIVED)

    def _take_token_time(self, rank: Rank) -> None:
        """Note the mean time per token, once enough requests have ended since the last time."""
        itl = rank.histograms.get(q.ITL)
        if itl is None:
            return
        last_sum, last_count = self._last_itl
        seconds = itl.sum - last_sum
        ended = itl.count - last_count
        if seconds < 0.0 or ended < 0.0:  # a restart
            seconds = itl.sum
            ended = itl.count
        if ended >= _LEAST_ENDED or (ended > 0.0 and not self._token_s):
            self._token_s = seconds / ended
            self._last_itl = (itl.sum, itl.count)


def _largest(figures: PageFigures, name: str) -> float:
    """The largest value of a metric; 0 without one."""
    return max((value for _, value in figures.samples_of(Metric(name))), default=0.0)


def _add_lengths(rank: Rank, figures: PageFigures) -> None:
    """Add the mean lengths of ended requests, from the counters that move as they end."""
    served = figures.total(Metric(_SUCCESSES))
    for quantity, tokens in ((q.PROMPT_LENGTH, q.PROMPT_TOKENS), (q.OUTPUT_LENGTH, q.DECODE_TOKENS)):
        mean = only_mean(rank.counters[tokens], served) if tokens in rank.counters and served else None
        if mean is not None:
            rank.histograms[quantity] = mean
            figures.live[quantity] = f"{figures.live[tokens]} / {_SUCCESSES}"


ENGINE: Final = EngineRow(
    "TensorRT-LLM",
    TrtllmAdapter,
    port=8000,
    paths=(PROMETHEUS, RECORDS),
    names_from="1.3 at 050f80d, 2026",
    switch=_SWITCH,
    drain_paths=(RECORDS,),
    version_path="/version",
    forms=(
        LaunchForm(
            EngineKind.TENSORRT_LLM,
            "TensorRT-LLM",
            ("trtllm-serve serve", "trtllm-serve", "tensorrt_llm.commands.serve serve", "tensorrt_llm.commands.serve"),
            options={
                **HOST_PORT,
                "served_name": "--served-model-name",
                "tp": "--tp-size --tensor-parallel-size",
                "pp": "--pp-size --pipeline-parallel-size",
                "file": "--extra-llm-api-options --config",
                "slots": "--max-batch-size",
                "step_tokens": "--max-num-tokens",
                "context_tokens": "--max-seq-len",
                "memory_share": "--kv-cache-free-gpu-memory-fraction --free-gpu-memory-fraction",
                "kv_dtype": "--kv-cache-dtype",
                "ep_size": "--ep-size --moe-expert-parallel-size",
                "chunked_prefill": "--enable-chunked-prefill",
            },
            positional=True,
            other_commands=("disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve"),
        ),
    ),
)
