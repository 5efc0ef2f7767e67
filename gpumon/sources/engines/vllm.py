"""vLLM: metric names of its engine V1 (from 0.8 on), and the figures that need more than a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import DIFFUSION, EMBEDDINGS, SERVES, SLEEPING, UNTOLD, Advance, EngineKind, EngineReading
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
    first_label,
    labels_of,
    picked,
    started_wall_s,
    usable,
)
from gpumon.sources.engines.derived import Remainder
from gpumon.sources.engines.dynamo import WORKER_KV_USAGE, WORKER_REQUESTS, worker_place
from gpumon.sources.exposition import Scan

PREFIX: Final = "vllm:"
CONFIG: Final = "vllm:cache_config_info"
REJECTIONS: Final = "vllm:admission_rejections_total"
"""Of the API server: it has no label `engine` (from 0.33 on)."""
SLEEP: Final = "vllm:engine_sleep_state"
SLEEPS: Final = {
    "weights_offloaded": "weights in the host's memory (sleep level 1)",
    "discard_all": "weights and KV cache discarded (sleep level 2)",
}
"""Values of its label `sleep_state` but `awake`."""
OF_RUST: Final = "vLLM's front end in Rust writes no cache_config_info"
"""Its page (from 0.30 on) is OpenMetrics, and has no start time of the process either; it is one API server
(rust/src/metrics)."""
DENOISING: Final = "vllm:diffusion_num_denoising_steps_total"
"""Only of diffusion models."""
EXTERNAL_HITS: Final = "vllm:external_prefix_cache_hits_total"
RUNNING: Final = "vllm:num_requests_running"
MODEL_NAMES: Final = ("vllm:generation_tokens_total", RUNNING, "vllm:prompt_tokens_total")
SIGNS: Final = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:cache_config_info")
"""An engine writes one of them at least (the router of vLLM's production stack neither), unless something between lets
only some series through: then it has what runs."""
ROUTER: Final = (
    "vllm:current_qps",
    "vllm:healthy_pods_total",
    "vllm:num_incoming_requests_total",
    "vllm:avg_decoding_length",
)
"""Names of that router, which tells what runs, too."""
AT_FIRST_TOKEN: Final = frozenset({q.PROMPT_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED})
TOKEN_QUERIES: Final = "vllm:prefix_cache_queries_total"
"""Stands beside the hits in tokens."""
BLOCK_HITS: Final = "vllm:gpu_prefix_cache_hits_total"
"""In blocks, not tokens (0.8)."""
V1_COUNTERS: Final = (TOKEN_QUERIES, "vllm:gpu_prefix_cache_queries_total")
"""V0 never had them; the first V1 pages (0.8) have them and no label `engine` yet."""
V0: Final = (
    "vLLM's old engine V0 is not supported: what it counts means other things; use the engine V1 (the only one from "
    "0.11 on; VLLM_USE_V1=1 before)"
)
KEPT_SETTINGS: Final = (
    "cache_dtype",
    "block_size",
    "num_gpu_blocks",
    "kv_cache_size_tokens",
    "kv_cache_max_concurrency",
    "gpu_memory_utilization",
    "enable_prefix_caching",
    "sliding_window",
)
MAMBA_SETTINGS: Final = ("mamba_block_size", "mamba_page_size_padded")
"""Set only where some layers keep a state instead of KV: blocks x block size is then not the pool in tokens."""


def _rule(quantity: str, *names: str) -> Rule:
    return Rule(quantity, tuple(Metric(PREFIX + name) for name in names))


TABLES: Final = Tables(
    rank_label="engine",
    counters=(
        _rule(q.PROMPT_TOKENS, "prompt_tokens_total"),
        # From 0.16 on. Before that it is worked out below.
        Rule(
            q.PREFILL_COMPUTED, (Metric("vllm:prompt_tokens_by_source_total", label="source", value="local_compute"),)
        ),
        # From 0.16 on; prefix hits (tokens, from 0.9 on) are counted at admission, before the prompt is.
        _rule(q.PREFILL_CACHED, "prompt_tokens_cached_total", "prefix_cache_hits_total"),
        _rule(q.DECODE_TOKENS, "generation_tokens_total"),
        # A histogram in spite of its name: an observation per step that produced output.
        _rule(q.STEPS, "iteration_tokens_total_count"),
        # Aborted and failed ones too, in spite of its name.
        _rule(q.REQUESTS, "request_success_total"),
        Rule(q.FAILURES, (Metric("vllm:request_success_total", label="finished_reason", value="error"),)),
        _rule(q.PREEMPTIONS, "num_preemptions_total"),
        # KV cache beyond the GPUs: offloading as from 0.24 on, and as from 0.16 on; Mooncake's store.
        Rule(
            q.KV_STORED_BYTES,
            (
                Metric("vllm:kv_offload_store_bytes_total"),
                Metric("vllm:kv_offload_total_bytes_total", label="transfer_type", value="GPU_to_CPU"),
                Metric("vllm:mooncake_store_operation_bytes_total", label="operation", value="save_put"),
            ),
        ),
        Rule(
            q.KV_LOADED_BYTES,
            (
                Metric("vllm:kv_offload_load_bytes_total"),
                Metric("vllm:kv_offload_total_bytes_total", label="transfer_type", value="CPU_to_GPU"),
                Metric("vllm:mooncake_store_operation_bytes_total", label="operation", value="load_get"),
            ),
        ),
        # Between engines, counted by the one that reads (or, where the other pushes, writes): a histogram's sum.
        _rule(q.KV_TRANSFERRED_BYTES, "nixl_bytes_transferred_sum"),
        _rule(q.KV_TRANSFER_FAILURES, "nixl_num_failed_transfers_total"),
        _rule(q.DRAFTS, "spec_decode_num_drafts_total"),
        _rule(q.ACCEPTED_TOKENS, "spec_decode_num_accepted_tokens_total"),
        # From 0.17 on, with --enable-mfu-metrics.
        _rule(q.OWN_FLOPS, "estimated_flops_per_gpu_total"),
        _rule(q.OWN_READ_BYTES, "estimated_read_bytes_per_gpu_total"),
        _rule(q.OWN_WRITE_BYTES, "estimated_write_bytes_per_gpu_total"),
    ),
    gauges=(
        _rule(q.RUNNING, "num_requests_running"),
        _rule(q.WAITING, "num_requests_waiting"),
        # From 0.20 on; the others wait for room (`capacity`).
        Rule(q.WAITING_DEFERRED, (Metric("vllm:num_requests_waiting_by_reason", label="reason", value="deferred"),)),
        # The old name alone in 0.8, hidden from 0.11 on; a Dynamo worker says it a second time.
        Rule(
            q.KV_USAGE,
            tuple(map(Metric, ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", *WORKER_KV_USAGE))),
        ),
    ),
    histograms=(
        _rule(q.TTFT, "time_to_first_token_seconds"),
        # The same observations under a new name from 0.10.2 on; both are there until 0.11.
        _rule(q.ITL, "inter_token_latency_seconds", "time_per_output_token_seconds"),
        _rule(q.E2E, "e2e_request_latency_seconds"),
        _rule(q.QUEUE, "request_queue_time_seconds"),
        # From 0.11 on.
        _rule(q.TPOT, "request_time_per_output_token_seconds"),
        _rule(q.PROMPT_LENGTH, "request_prompt_tokens"),
        _rule(q.OUTPUT_LENGTH, "request_generation_tokens"),
    ),
    extra=(
        *(CONFIG, REJECTIONS, SLEEP, DENOISING, EXTERNAL_HITS, BLOCK_HITS),
        *(*V1_COUNTERS, WORKER_REQUESTS),
    ),
)


class VllmAdapter(Adapter):
    """One vLLM server. Data-parallel ranks come as readings of their own, by their `engine` label."""

    kind = EngineKind.VLLM
    tables = TABLES
    prefixes = (PREFIX,)

    def __init__(self) -> None:
        super().__init__()
        self._computed = Remainder()

    @classmethod
    def claims(cls, page: Page) -> bool:
        """A router in front of engines has `vllm:` series, too, but none of an engine's own."""
        runs = RUNNING in page.names and page.names.isdisjoint(ROUTER)
        return runs or any(name in page.names for name in SIGNS)

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EngineReading:  # noqa: ARG002
        """The page in canonical quantities; no rank where it has no series of vLLM's engine V1."""
        found = by_name(scan)
        self.unsupported = V0 if _is_v0(found) else ""
        figures = self.collect({} if self.unsupported else found)
        ranks, live, advance, info = figures
        info |= {**_settings(labels_of(found, CONFIG)), **worker_place(found), **_sleep(found)}
        self._add_hits(figures, found)
        self._work_out_prefill(figures)
        _add_pools(figures, found)
        _add_rejections(figures, found)
        if _pools(ranks):
            info[SERVES] = EMBEDDINGS
        if DENOISING in found:
            info[DIFFUSION] = "yes"
        started = started_wall_s(found)
        in_rust = scan.open_metrics and not started and not found.get(CONFIG)
        if in_rust:
            info[UNTOLD] = OF_RUST
        advance.update(dict.fromkeys(AT_FIRST_TOKEN & live.keys(), Advance.PROMPT))
        return self.reading(
            figures,
            model=first_label(found, "model_name", MODEL_NAMES),
            started_wall_s=started,
            exact_steps=q.STEPS in live and (in_rust or self._one_api_server(started)),
        )

    def _one_api_server(self, started_wall_s: float) -> bool:
        """Whether each step is counted once: by one API server. Where there are several, no start time is written."""
        return started_wall_s > 0.0

    def _add_hits(self, figures: Figures, found: Mapping[str, Found]) -> None:
        """Cached tokens where `prompt_tokens_cached_total` is not there (before 0.16)."""
        ranks, live, _, info = figures
        if live.get(q.PREFILL_CACHED) == "vllm:prompt_tokens_cached_total":
            return
        if q.PREFILL_CACHED not in live and (q.PREFILL_CACHED in self._chosen or found.get(TOKEN_QUERIES)):
            return
        block = _positive(info.get("block_size", ""))
        name, tokens = (EXTERNAL_HITS, 1.0) if q.PREFILL_CACHED in live else (BLOCK_HITS, block)
        for series, value in found.get(name, ()) if tokens else ():
            rank = ranks.get(series.labels.get(TABLES.rank_label, "0"))
            if rank is not None and usable(value):
                rank.counters[q.PREFILL_CACHED] = rank.counters.get(q.PREFILL_CACHED, 0.0) + value * tokens
                live.setdefault(q.PREFILL_CACHED, f"{BLOCK_HITS} x block_size")

    def _work_out_prefill(self, figures: Figures) -> None:
        """Computed prefill = prompt - cached, where the engine does not count it (before 0.16).

        Prefix hits are counted at admission, the prompt later: the difference must not be seen to fall.
        """
        ranks, live, _, info = figures
        if q.PREFILL_COMPUTED in self._chosen or q.PROMPT_TOKENS not in live:
            return
        cached_by = live.get(q.PREFILL_CACHED, "")
        if not cached_by and info.get("enable_prefix_caching") != "False":
            return
        for rank in ranks.values():
            prompt = rank.counters.get(q.PROMPT_TOKENS)
            cached = rank.counters.get(q.PREFILL_CACHED) if cached_by else 0.0
            if prompt is None or cached is None:
                continue
            rank.counters[q.PREFILL_COMPUTED] = self._computed.of(rank.name, prompt, cached)
        if "hits" in cached_by:
            cached_by += " (last resort: hits count at admission)"
        live[q.PREFILL_COMPUTED] = f"{live[q.PROMPT_TOKENS]} - {cached_by or '0 (prefix caching is off)'}"


def _is_v0(found: Mapping[str, Found]) -> bool:
    """Whether no series has the label `engine`, and none of V1's counters is there."""
    series = [one for name in ("vllm:generation_tokens_total", RUNNING) for one, _ in found.get(name, ())]
    return bool(series) and not any("engine" in one.labels for one in series) and not any(map(found.get, V1_COUNTERS))


def _settings(labels: Mapping[str, str]) -> dict[str, str]:
    """The settings worth keeping of the first rank's `cache_config_info`; `hybrid` where the pool is not plain KV."""
    info = {name: labels[name] for name in KEPT_SETTINGS if labels.get(name, "None") != "None"}
    if _hybrid(labels):
        info["hybrid"] = "yes"
    return info


def _hybrid(labels: Mapping[str, str]) -> bool:
    return any(labels.get(name, "None") != "None" for name in MAMBA_SETTINGS)


def _add_pools(figures: Figures, found: Mapping[str, Found]) -> None:
    """KV pool of each rank in tokens: `kv_cache_size_tokens` (from 0.24 on), else blocks x block size.

    `num_gpu_blocks` is the sum over all ranks (vllm/v1/engine/core_client.py adds up what each engine reports).
    """
    ranks, configs = figures.ranks, found.get(CONFIG, ())
    for series, _ in configs:
        labels = series.labels
        size, source = _positive(labels.get("kv_cache_size_tokens", "")), "kv_cache_size_tokens"
        if not size and not _hybrid(labels):
            blocks = _positive(labels.get("num_gpu_blocks", "")) / max(len(ranks), len(configs), 1)
            size, source = blocks * _positive(labels.get("block_size", "")), q.BLOCK_PRODUCT
        if not size:
            continue
        one = labels.get(TABLES.rank_label)
        for rank in ranks.values():
            if one is None or rank.name == one:
                rank.gauges[q.POOL_TOKENS] = size
                figures.live[q.POOL_TOKENS] = f"{CONFIG} {source}"


def _add_rejections(figures: Figures, found: Mapping[str, Found]) -> None:
    """What the API server turned away, whatever rank it would have been for: the first has it."""
    refused = picked(found, Metric(REJECTIONS))
    if refused and figures.ranks:
        figures.ranks[min(figures.ranks)].counters[q.REJECTIONS] = sum(value for _, value in refused)
        figures.live[q.REJECTIONS] = REJECTIONS


def _sleep(found: Mapping[str, Found]) -> dict[str, str]:
    """How all ranks sleep; nothing where one is awake, or none says how it is."""
    states = [one.labels.get("sleep_state", "") for one, value in found.get(SLEEP, ()) if value == 1.0]
    return {} if not states or "awake" in states else {SLEEPING: SLEEPS.get(states[0], states[0])}


def _pools(ranks: Mapping[str, Rank]) -> bool:
    """Whether it makes vectors or scores: a prompt is counted with its first output, and a generation's is a token."""
    prompts, ended, generated = (
        sum(rank.counters.get(name, 0.0) for rank in ranks.values())
        for name in (q.PROMPT_TOKENS, q.REQUESTS, q.DECODE_TOKENS)
    )
    return prompts > 0.0 and ended > 0.0 and generated == 0.0


def _positive(text: str) -> float:
    """A label's number, or 0 where it is none (`None`, empty, out of range)."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if usable(value) else 0.0
