"""vLLM: metric names of its engine V1 (from 0.9 on), and the figures that need more than a table.

Names and when they move: vllm/v1/metrics/loggers.py and stats.py of vllm-project/vllm.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from operator import itemgetter
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import (
    CPU_OFFLOAD_GB,
    DIFFUSION,
    EMBEDDINGS,
    POOL_SIZE_UNTOLD,
    SERVES,
    SLEEPING,
    Advance,
    EngineKind,
)
from gpumon.sources.engines import vllm_stack
from gpumon.sources.engines.adapter import Adapter, EngineRow, FirstAnswer
from gpumon.sources.engines.dynamo import WORKER_KV_USAGE, WORKER_REQUESTS, worker_place
from gpumon.sources.engines.failures import put_refusals
from gpumon.sources.engines.launch_form import HOST_PORT, UNIX_SOCKET, Catch, LaunchForm
from gpumon.sources.engines.page_figures import PageFigures, is_usable, series_sum, whole_number
from gpumon.sources.engines.tables import FoundSeries, Metric, Rule, Tables, rule
from gpumon.specs import hints

CACHE_CONFIG_INFO: Final = "vllm:cache_config_info"
_REJECTIONS: Final = "vllm:admission_rejections_total"
"""Requests that the API server turned away: without a label `engine` (from 0.33 on)."""
_ANSWERS: Final = "http_requests_total"
"""Answers of the API server, by path, method and class of status (`2xx`), counted when an answer ends."""
GENERATES: Final = frozenset({"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"})
"""Paths whose answers are requests of the engine: health checks and lists of models are none."""
LORAS: Final = "vllm:lora_requests_info"
"""Its labels tell which adapters run and are waited for; its value is when that was so (Unix time)."""
LATEST_UNIX_S: Final = 3e9
"""In 2065: a later time is the sum over several processes, whose labels tell nothing."""
SLEEP: Final = "vllm:engine_sleep_state"
SLEEPS: Final = {
    "weights_offloaded": "weights in the host's memory (sleep level 1)",
    "discard_all": "weights and KV cache discarded (sleep level 2)",
}
"""Values of its label `sleep_state` but `awake`."""
RUST_FRONT_END: Final = "vLLM's front end in Rust writes no cache_config_info"
"""Its page (from 0.30 on) is OpenMetrics, and has no start time of the process either; it is one API server
(rust/src/metrics)."""
DENOISING: Final = "vllm:diffusion_num_denoising_steps_total"
"""Only of diffusion models."""
EXTERNAL_HITS: Final = "vllm:external_prefix_cache_hits_total"
TRANSFERS: Final = (Metric("vllm:nixl_bytes_transferred_count"), Metric("vllm:mooncake_bytes_transferred_count"))
"""Each engine that exchanges KV cache has one of them, before its first transfer, too."""
FETCHED_TOKENS: Final = Metric("vllm:prompt_tokens_by_source_total", "source", "external_kv_transfer")
"""Prompt tokens whose KV cache came from another engine, where one of those carries it; else from a store."""
COPY_FAILURES: Final = (
    Metric("vllm:kv_offload_allocation_failure_total"),
    Metric("vllm:kv_offload_tiering_promotion_job_failures_total"),
    Metric("vllm:kv_offload_tiering_cascade_job_failures_total"),
    Metric("vllm:kv_offload_tiering_promotion_allocation_failures_total"),
    # Blocks, of operations that failed in whole or in part.
    Metric("vllm:mooncake_store_operation_failed_keys_total"),
    Metric("vllm:hf3fs_num_failed_load_total"),
    Metric("vllm:hf3fs_num_failed_save_total"),
    Metric("vllm:umbp_transfer_failed_total"),
    # Blocks that the tiers behind the host's memory were too slow for.
    Metric("vllm:kv_offload_tiering_backpressure_blocks_dropped_total"),
    # Blocks; simple offloading counts no bytes.
    Metric("vllm:simple_kv_offload_save_outcomes_total", "outcome", "dropped_cpu_full"),
)
"""Copies to and from the host's memory, the tiers behind it and a store that failed or found no room. Most of them are
there from the first failure on."""
OPERATIONS: Final = {
    q.WEIGHT_UPDATES: "vllm:rl_weight_update_operations_in_flight",
    q.SLEEP_OPERATIONS: "vllm:sleep_mode_operations_in_flight",
}
"""Gauges of the API server, by operation and without a label `engine`; there from the first operation on."""
_RUNNING: Final = "vllm:num_requests_running"
_ENGINE_NAMES: Final = frozenset({"vllm:generation_tokens_total", "vllm:prompt_tokens_total", CACHE_CONFIG_INFO})
"""An engine writes one of them at least (the router of vLLM's production stack neither), unless something between lets
only some series through: then it has what runs."""
KEPT_SETTINGS: Final = (
    "cache_dtype",
    "block_size",
    "num_gpu_blocks",
    "kv_cache_size_tokens",
    "gpu_memory_utilization",
    "enable_prefix_caching",
    "sliding_window",
    CPU_OFFLOAD_GB,
)
"""Labels of `CACHE_CONFIG_INFO` that go into `info` under their own names."""
MAMBA_SETTINGS: Final = ("mamba_block_size", "mamba_page_size_padded")
"""Set only where some layers keep a state instead of KV: blocks x block size is then not the pool in tokens."""
STATE_FORMATS: Final = {
    "mamba_ssm_cache_dtype": hints.STATE_DTYPE,
    "mamba_cache_dtype": hints.CONVOLUTION_DTYPE,
}
"""Formats of what such layers keep -> key in `info`; `auto` is the model's own."""

UNSET: Final = ("auto", "None", "")
"""Values of a label that set nothing."""

_rule = partial(rule, prefix="vllm:")
_prompt = partial(_rule, advance=Advance.PROMPT)
_BY_TIER: Final = "vllm:prompt_tokens_cached_by_source_total"
"""Counted at admission, from 0.33 on."""
_BY_SOURCE: Final = "vllm:prompt_tokens_by_source_total"


def _cached_by(quantity: str, tier: str, source: str = "") -> Rule:
    """Cached prompt tokens of one tier, else of the source that has it before 0.33."""
    metrics = [Metric(_BY_TIER, "source", tier, Advance.PROMPT)]
    if source:
        metrics.append(Metric(_BY_SOURCE, "source", source, Advance.PROMPT))
    return Rule(quantity, tuple(metrics))


def _accepted_at(position: int, quantity: str) -> Rule:
    """Accepted tokens at one position of the drafts."""
    return _rule(quantity, "spec_decode_num_accepted_tokens_per_pos_total", label="position", value=str(position))


TABLES: Final = Tables(
    rank_label="engine",
    model_label="model_name",
    model_samples=("vllm:generation_tokens_total", _RUNNING, "vllm:prompt_tokens_total"),
    counters=(
        _prompt(q.PROMPT_TOKENS, "prompt_tokens_total"),
        # From 0.16 on. Before that it is worked out below.
        _prompt(q.PREFILL_COMPUTED, "prompt_tokens_by_source_total", label="source", value="local_compute"),
        # From 0.16 on; prefix hits are counted at admission, before the prompt is.
        _prompt(q.PREFILL_CACHED, "prompt_tokens_cached_total", "prefix_cache_hits_total"),
        _rule(q.DECODE_TOKENS, "generation_tokens_total"),
        # A histogram in spite of its name: an observation per step that produced output.
        _rule(q.STEPS, "iteration_tokens_total_count"),
        # Aborted and failed ones too, in spite of its name.
        _rule(q.REQUESTS, "request_success_total"),
        _rule(q.FAILURES, "request_success_total", label="finished_reason", value="error"),
        # The client gave up or disconnected.
        _rule(q.ABORTS, "request_success_total", label="finished_reason", value="abort"),
        _rule(q.STOPPED, "request_success_total", label="finished_reason", value="stop"),
        _rule(q.CUT, "request_success_total", label="finished_reason", value="length"),
        # With VLLM_COMPUTE_NANS_IN_LOGITS=1 only.
        _rule(q.CORRUPTED, "corrupted_requests_total"),
        _rule(q.PREEMPTIONS, "num_preemptions_total"),
        _rule(q.TRANSFER_SECONDS, "nixl_xfer_time_seconds_sum"),
        _cached_by(q.CACHED_DEVICE, "device", "local_cache_hit"),
        _cached_by(q.CACHED_HOST, "host"),
        _cached_by(q.CACHED_DISK, "disk"),
        _cached_by(q.CACHED_PEER, "p2p"),
        _cached_by(q.CACHED_EXTERNAL, "external_unspecified", "external_kv_transfer"),
        # KV cache beyond the GPUs: offloading as from 0.24 on, and as from 0.16 on; Mooncake's store.
        Rule(
            q.KV_STORED_BYTES,
            (
                Metric("vllm:kv_offload_store_bytes_total"),
                Metric("vllm:kv_offload_total_bytes_total", "transfer_type", "GPU_to_CPU"),
                Metric("vllm:mooncake_store_operation_bytes_total", "operation", "save_put"),
            ),
        ),
        Rule(
            q.KV_LOADED_BYTES,
            (
                Metric("vllm:kv_offload_load_bytes_total"),
                Metric("vllm:kv_offload_total_bytes_total", "transfer_type", "CPU_to_GPU"),
                Metric("vllm:mooncake_store_operation_bytes_total", "operation", "load_get"),
            ),
        ),
        # Between engines, counted by the one that reads (NIXL) or that pushes (Mooncake): a histogram's sum.
        _rule(q.KV_TRANSFERRED_BYTES, "nixl_bytes_transferred_sum", "mooncake_bytes_transferred_sum"),
        Rule(
            q.KV_TRANSFER_FAILURES,
            (Metric("vllm:nixl_num_failed_transfers_total"), Metric("vllm:mooncake_num_failed_transfers_total")),
            also=("vllm:mooncake_num_failed_recvs_total",),
        ),
        # On the prefill side: its lease ended before the decode side had fetched it.
        _rule(q.KV_EXPIRED, "nixl_num_kv_expired_reqs_total", "mooncake_num_kv_expired_reqs_total"),
        # One for each rank that reads; its blocks may have been given to other requests (from 0.33 on).
        _rule(q.KV_LATE_READS, "nixl_num_notifications_after_expiry_total"),
        # By tier behind the host's memory.
        _rule(q.KV_TIER_WRITTEN_BYTES, "kv_offload_tiering_write_bytes_total"),
        _rule(q.KV_TIER_READ_BYTES, "kv_offload_tiering_read_bytes_total"),
        _rule(q.DRAFTS, "spec_decode_num_drafts_total"),
        _rule(q.DRAFTED_TOKENS, "spec_decode_num_draft_tokens_total"),
        _rule(q.ACCEPTED_TOKENS, "spec_decode_num_accepted_tokens_total"),
        *(_accepted_at(position, quantity) for position, quantity in enumerate(q.ACCEPTED_AT)),
        # From 0.17 on, with --enable-mfu-metrics.
        _rule(q.OWN_FLOPS, "estimated_flops_per_gpu_total"),
        _rule(q.OWN_READ_BYTES, "estimated_read_bytes_per_gpu_total"),
        _rule(q.OWN_WRITE_BYTES, "estimated_write_bytes_per_gpu_total"),
    ),
    gauges=(
        _rule(q.RUNNING, "num_requests_running"),
        _rule(q.WAITING, "num_requests_waiting"),
        # From 0.32 on, of an engine that gets KV cache from others.
        *(
            _rule(quantity, "num_requests_kv_fetch_by_stage", label="stage", value=stage)
            for quantity, stage in (
                (q.KV_FETCH_WAITING, "waiting_to_start"),
                (q.KV_FETCH_RUNNING, "in_progress"),
                (q.KV_FETCH_DONE, "completed_waiting"),
            )
        ),
        # From 0.20 on; the others wait for room (`capacity`).
        _rule(q.WAITING_DEFERRED, "num_requests_waiting_by_reason", label="reason", value="deferred"),
        # The second until 0.10; a Dynamo worker says it once more.
        rule(q.KV_USAGE, "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", *WORKER_KV_USAGE),
        # Without what is only cached there and may be overwritten.
        _rule(q.HOST_KV_USAGE, "kv_offload_cpu_cache_usage_perc"),
    ),
    histograms=(
        _rule(q.TTFT, "time_to_first_token_seconds"),
        # The same observations under a new name from 0.10.2 on; both are there until 0.11.
        _rule(q.ITL, "inter_token_latency_seconds", "time_per_output_token_seconds"),
        _rule(q.E2E, "e2e_request_latency_seconds"),
        _rule(q.QUEUE, "request_queue_time_seconds"),
        _rule(q.PREFILL_TIME, "request_prefill_time_seconds"),
        _rule(q.DECODE_TIME, "request_decode_time_seconds"),
        # From 0.11 on.
        _rule(q.TPOT, "request_time_per_output_token_seconds"),
        _rule(q.PROMPT_LENGTH, "request_prompt_tokens"),
        _rule(q.OUTPUT_LENGTH, "request_generation_tokens"),
        # From 0.32 on.
        _rule(q.REQUEST_PREEMPTIONS, "request_num_preemptions"),
    ),
    extra=(
        CACHE_CONFIG_INFO,
        _REJECTIONS,
        _ANSWERS,
        LORAS,
        SLEEP,
        DENOISING,
        EXTERNAL_HITS,
        WORKER_REQUESTS,
        *(metric.name for metric in (*TRANSFERS, *COPY_FAILURES)),
        FETCHED_TOKENS.name,
        *OPERATIONS.values(),
    ),
)


class _UnseenErrors:
    """Errors that the API server answered with and that the engine knows nothing of, since the first page."""

    def __init__(self) -> None:
        self.total = 0.0
        """Number of these errors."""
        self._answered = 0.0
        """Errors that the API server has answered with so far."""
        self._engine_failures = 0.0
        """Failed requests that the engine has counted so far."""

    def add(self, answered: float, engine_failures: float) -> None:
        """Take in what both have counted by now: an error that both counted in the same interval is one."""
        if answered < self._answered or engine_failures < self._engine_failures:  # a restart
            self.total = 0.0
            self._answered = 0.0
            self._engine_failures = 0.0
        unseen = (answered - self._answered) - (engine_failures - self._engine_failures)
        self.total += max(0.0, unseen)
        self._answered = answered
        self._engine_failures = engine_failures


def _add_settings(figures: PageFigures) -> None:
    """Put settings and state into `info`: cache formats, the place of its workers, and whether it sleeps."""
    info = figures.info
    labels = figures.labels(CACHE_CONFIG_INFO)
    for name in KEPT_SETTINGS:
        if labels.get(name, "None") != "None":
            info[name] = labels[name]
    for name, key in STATE_FORMATS.items():
        if labels.get(name, "auto") not in UNSET:
            info[key] = labels[name]
    info |= worker_place(figures)
    if _is_hybrid(labels):
        info["hybrid"] = "yes"
    states = [series.labels.get("sleep_state", "") for series, value in figures.samples.get(SLEEP, ()) if value == 1.0]
    if states and "awake" not in states:  # asleep only where all ranks are
        info[SLEEPING] = SLEEPS.get(states[0], states[0])


def _add_counts_of_server(figures: PageFigures) -> None:
    """Add what the API server counts itself to the first rank, whatever rank it is for.

    It counts the requests that it turned away, and the operations on weights and sleep that it waits for.
    """
    first_rank = figures.first_rank
    if first_rank is None:
        return
    rejections = figures.samples_of(Metric(_REJECTIONS))
    if rejections:
        figures.put(first_rank.counters, q.REJECTIONS, series_sum(rejections), _REJECTIONS)
    for quantity, name in OPERATIONS.items():
        operations = figures.samples_of(Metric(name))
        if operations:
            figures.put(first_rank.gauges, quantity, series_sum(operations), name)


def _add_refusals(figures: PageFigures) -> None:
    """Add the requests for tokens that the API server answered with a status of 400 to 499, as one class."""
    if _ANSWERS not in figures.samples:
        return
    asked = [
        (series, value)
        for series, value in figures.samples_of(Metric(_ANSWERS, "method", "POST"))
        if series.labels.get("handler") in GENERATES
    ]
    put_refusals(figures, asked, "status", _ANSWERS)


class VllmAdapter(Adapter):
    """One vLLM server. Data-parallel ranks come as readings of their own, by their `engine` label."""

    kind = EngineKind.VLLM
    tables = TABLES
    prefixes = ("vllm:",)

    def __init__(self) -> None:
        super().__init__()
        self._unseen_errors = _UnseenErrors()

    @classmethod
    def claims(cls, page: FirstAnswer) -> bool:
        """Whether this is an engine's page: a router in front of engines has `vllm:` series, too, but none of these."""
        return bool(_ENGINE_NAMES & page.names) or (
            _RUNNING in page.names and page.names.isdisjoint(vllm_stack.STACK_NAMES)
        )

    def refine(self, figures: PageFigures) -> None:
        """Add what the tables cannot say: settings, prefill of old versions, pools, LoRA, failures, kind of work."""
        info = figures.info
        _add_settings(figures)
        self._add_prefill(figures)
        if self._decodes_for_others(figures):
            info["role"] = "decode"
        self._add_pools(figures)
        _add_loras(figures)
        _add_counts_of_server(figures)
        _add_refusals(figures)
        self._add_unfinished(figures)
        self._add_copy_failures(figures)
        if _is_pooling(figures):
            info[SERVES] = EMBEDDINGS
        if DENOISING in figures.samples:
            info[DIFFUSION] = "yes"
        in_rust = figures.open_metrics and not figures.started_wall_s and not figures.samples.get(CACHE_CONFIG_INFO)
        if in_rust:
            info[POOL_SIZE_UNTOLD] = RUST_FRONT_END
        figures.exact_steps = q.STEPS in figures.live and (in_rust or self._one_api_server(figures.started_wall_s))

    def _add_prefill(self, figures: PageFigures) -> None:
        """Add computed prefill for versions before 0.16, which do not count it: prompts less what came from a cache.

        The cache may be another engine's.
        """
        by_hits = "hits" in figures.live.get(q.PREFILL_CACHED, "")
        if by_hits:
            self._count(figures, q.PREFILL_CACHED, Metric(EXTERNAL_HITS))
        self.work_out_prefill(figures, cache_off=figures.info.get("enable_prefix_caching") == "False")
        if by_hits and q.PREFILL_COMPUTED in figures.live:
            figures.live[q.PREFILL_COMPUTED] += " (last resort: hits count at admission)"

    def _add_unfinished(self, figures: PageFigures) -> None:
        """Add the requests that the engine counts nowhere: answered with an error before they reached it, or given up.

        The API server has answered them, so they are what it has more than the engine.
        """
        ranks = [figures.ranks[name] for name in sorted(figures.ranks)]
        needed = {q.REQUESTS, q.FAILURES, q.ABORTS}
        answers = figures.samples_of(Metric(_ANSWERS, "method", "POST"))
        if not answers or not ranks or not all(rank.counters.keys() >= needed for rank in ranks):
            return
        served = _answers_of_class(answers, "2")
        errors = _answers_of_class(answers, "5")
        ended = sum(rank.counters[q.REQUESTS] for rank in ranks)
        known_errors = sum(rank.counters[q.FAILURES] + rank.counters.get(q.REJECTIONS, 0.0) for rank in ranks)
        self._unseen_errors.add(errors, known_errors)
        unseen = self._unseen_errors.total
        given_up = self.remainder(_ANSWERS, served + errors - unseen, ended)
        first_counters = ranks[0].counters
        first_counters[q.FAILURES] += unseen
        first_counters[q.ABORTS] += given_up
        first_counters[q.REQUESTS] += unseen + given_up
        figures.live[q.FAILURES] += f' + {_ANSWERS}{{status="5xx"}}'
        figures.live[q.ABORTS] += f" + {_ANSWERS} - {figures.live[q.REQUESTS]}"

    def _add_copy_failures(self, figures: PageFigures) -> None:
        """Add the copies of KV cache that failed, of all kinds that the page has."""
        names = [str(metric) for metric in COPY_FAILURES if self._count(figures, q.KV_COPY_FAILURES, metric)]
        if names:
            figures.live[q.KV_COPY_FAILURES] = " + ".join(names)

    def _count(self, figures: PageFigures, quantity: str, metric: Metric) -> bool:
        """Add the series of a metric to a counter of their ranks; returns whether there are any."""
        samples = figures.samples_of(metric)
        for series, value in samples:
            rank = figures.ranks.get(self.tables.rank_of(series))
            if rank is not None:
                rank.counters[quantity] = rank.counters.get(quantity, 0.0) + value
        return bool(samples)

    @staticmethod
    def _decodes_for_others(figures: PageFigures) -> bool:
        """Whether other engines prefill most of its prompts: it is then no replica of those that do."""
        if not any(map(figures.samples_of, TRANSFERS)):
            return False
        prompts = figures.counter_total(q.PROMPT_TOKENS)
        fetched = figures.total(FETCHED_TOKENS)
        return fetched > prompts / 2

    def _one_api_server(self, started_wall_s: float) -> bool:
        """Whether there is one API server, so that each step is counted once: several write no start time."""
        return started_wall_s > 0.0

    def _add_pools(self, figures: PageFigures) -> None:
        """Add the KV pool of each rank in tokens: `kv_cache_size_tokens` (from 0.24 on), else blocks x block size.

        `num_gpu_blocks` is the sum over all ranks (vllm/v1/engine/core_client.py adds up what each engine reports).
        """
        configs = figures.samples.get(CACHE_CONFIG_INFO, ())
        for series, _ in configs:
            labels = series.labels
            size = _positive(labels.get("kv_cache_size_tokens", ""))
            source = "kv_cache_size_tokens"
            if not size and not _is_hybrid(labels):
                blocks = _positive(labels.get("num_gpu_blocks", "")) / max(len(figures.ranks), len(configs), 1)
                size = blocks * _positive(labels.get("block_size", ""))
                source = q.BLOCK_PRODUCT
            if size:
                for rank in figures.ranks.values():
                    if labels.get(self.tables.rank_label) in (None, rank.name):
                        figures.put(rank.gauges, q.POOL_TOKENS, size, f"{CACHE_CONFIG_INFO} {source}")


def _answers_of_class(answers: FoundSeries, first_digit: str) -> float:
    """Requests for tokens that were answered with a status that begins so."""
    answered = 0.0
    for series, value in answers:
        status = series.labels.get("status", "")
        if series.labels.get("handler") in GENERATES and status.startswith(first_digit):
            answered += value
    return answered


def _add_loras(figures: PageFigures) -> None:
    """Add the slots of LoRA adapters, and the adapters that have one or are waited for, by the newest series."""
    dated = [(value, series.labels) for series, value in figures.samples.get(LORAS, ()) if 0.0 < value < LATEST_UNIX_S]
    first_rank = figures.first_rank
    if not dated or first_rank is None:
        return
    _, labels = max(dated, key=itemgetter(0))
    loaded = _adapter_names(labels.get("running_lora_adapters", ""))
    waiting = _adapter_names(labels.get("waiting_lora_adapters", ""))
    gauges = first_rank.gauges
    slots = whole_number(labels.get("max_lora", ""))
    if slots:
        figures.put(gauges, q.LORA_SLOTS, float(slots), f"{LORAS} max_lora")
        figures.put(gauges, q.LORA_LOADED, float(len(loaded)), f"{LORAS} running_lora_adapters")
        figures.put(gauges, q.LORA_WAITING, float(len(waiting - loaded)), f"{LORAS} waiting_lora_adapters")


def _adapter_names(text: str) -> set[str]:
    """Names in a label that holds several."""
    return {name.strip() for name in text.split(",") if name.strip()}


def _is_hybrid(labels: Mapping[str, str]) -> bool:
    """Whether some layers of the model keep a state instead of KV, by the labels of `CACHE_CONFIG_INFO`."""
    return any(labels.get(name, "None") != "None" for name in MAMBA_SETTINGS)


def _is_pooling(figures: PageFigures) -> bool:
    """Whether it makes vectors or scores: requests have ended and left no token.

    A prompt is counted with its first output: the first request of a model that generates does not look the same.
    """
    has_ended = figures.counter_total(q.PROMPT_TOKENS) > 0.0 and figures.counter_total(q.REQUESTS) > 0.0
    return has_ended and figures.counter_total(q.DECODE_TOKENS) == 0.0


def _positive(text: str) -> float:
    """A label's number; 0 where it is none (`None`, empty, out of range)."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    if is_usable(value):
        return value
    return 0.0


VLLM_OPTIONS: Final = {
    **HOST_PORT,
    "model": "--model",
    "served_name": "--served-model-name",
    "tp": "--tensor-parallel-size -tp",
    "pp": "--pipeline-parallel-size -pp",
    "dp": "--data-parallel-size -dp",
    "off": "--disable-log-stats",
    "key": "--api-key",
    "tls": "--ssl-keyfile --ssl-certfile",
    "quantization": "--quantization -q",
    "kv_dtype": "--kv-cache-dtype",
    "state_dtype": "--mamba-ssm-cache-dtype",
    "convolution_dtype": "--mamba-cache-dtype",
    "cpu_offload_gb": "--cpu-offload-gb",
    "file": "--config",
    "slots": "--max-num-seqs",
    "step_tokens": "--max-num-batched-tokens",
    "context_tokens": "--max-model-len",
    "memory_share": "--gpu-memory-utilization",
    "eager": "--enforce-eager",
    "prefix_caching": "--enable-prefix-caching",
    "chunked_prefill": "--enable-chunked-prefill",
    "expert_parallel": "--enable-expert-parallel -ep",
    "lora": "--enable-lora",
    "lora_slots": "--max-loras",
    "dtype": "--dtype",
    "speculation_config": "--speculative-config",
    "compilation_config": "--compilation-config -cc",
    "optimisation": "--optimization-level",
}
CATCHES: Final = (
    Catch("--headless", "it is a headless node: its metrics are on the head node; add that node's URL"),
    Catch("--uds", UNIX_SOCKET),
    Catch("--grpc", "it serves gRPC only: start it without --grpc"),
)
ENGINE: Final = EngineRow(
    "vLLM",
    VllmAdapter,
    port=8000,
    version_path="/version",
    names_from="0.33.0, November 2026",
    forms=(
        LaunchForm(
            EngineKind.VLLM,
            "vLLM",
            ("vllm serve", "vllm-omni serve", "vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main serve"),
            options=VLLM_OPTIONS,
            variables={"key": "VLLM_API_KEY"},
            abbreviates=True,
            positional=True,
            catches=CATCHES,
        ),
        LaunchForm(
            EngineKind.VLLM,
            "vLLM",
            ("vllm.entrypoints.api_server",),
            options=VLLM_OPTIONS,
            abbreviates=True,
            why_no_page="vLLM's demonstration server has no metrics: start it with vllm serve",
        ),
    ),
    instead=(EngineKind.VLLM_OMNI,),
)
