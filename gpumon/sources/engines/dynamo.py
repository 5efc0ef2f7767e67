"""The frontend of NVIDIA Dynamo: what users see of each model. Its workers are engines with endpoints of their own;
what a worker writes beside its engine's metrics is read by that engine's adapter, with the names that stand here."""

from __future__ import annotations

from functools import partial
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind
from gpumon.sources.engines.adapter import Adapter, EngineRow
from gpumon.sources.engines.launch_form import LaunchForm
from gpumon.sources.engines.page_figures import PageFigures, Rank
from gpumon.sources.engines.tables import Metric, Tables, rule
from gpumon.sources.exposition import Series

_PREFIX: Final = "dynamo_frontend_"
_CONTEXT: Final = f"{_PREFIX}model_context_length"
CACHED_COUNT: Final = f"{_PREFIX}cached_tokens_count"
"""Requests whose cached tokens are known."""

WORKER_REQUESTS: Final = "dynamo_component_requests_total"
WORKER_KV_USAGE: Final = ("dynamo_component_gpu_cache_usage_percent",)
"""Share of the KV cache in use, 0 to 1 in spite of the name."""


def worker_place(figures: PageFigures) -> dict[str, str]:
    """Which part of a deployment a worker is, such as `backend` or `prefill`; empty where it is no Dynamo worker."""
    labels = figures.labels(WORKER_REQUESTS)
    return {name: labels[name] for name in ("dynamo_namespace", "dynamo_component") if labels.get(name)}


_rule = partial(rule, prefix=_PREFIX)


class DynamoAdapter(Adapter):
    """One frontend, a part for each model that it serves."""

    kind = EngineKind.DYNAMO
    prefixes = (_PREFIX,)
    from_documentation = True
    tables = Tables(
        rank_label="",
        part_label="model",
        counters=(
            _rule(q.DECODE_TOKENS, "output_tokens_total"),
            # Observed with the first token (lib/llm/src/http/service/metrics.rs, `observe_response`).
            _rule(q.PROMPT_TOKENS, "input_sequence_tokens_sum", advance=Advance.PROMPT),
            # Observed once the worker tells, as late as at the end.
            _rule(q.PREFILL_CACHED, "cached_tokens_sum", advance=Advance.END),
            _rule(q.REQUESTS, "requests_total"),
            _rule(q.FAILURES, "requests_total", label="status", value="error"),
            _rule(q.REJECTIONS, "model_rejection_total"),
        ),
        gauges=(
            # Requests that are with an engine or on the way to it; the second metric counts from the HTTP request on.
            _rule(q.RUNNING, "inflight_requests", "active_requests"),
            # Until its first token: queueing and prefill alike.
            _rule(q.WAITING, "queued_requests"),
            # By kind of worker and class of policy; with a label `model` in newer versions only.
            rule(q.ROUTER_QUEUE, f"{_PREFIX}router_queue_pending_requests", added=True),
        ),
        histograms=(
            _rule(q.TTFT, "time_to_first_token_seconds"),
            _rule(q.ITL, "inter_token_latency_seconds"),
            _rule(q.E2E, "request_duration_seconds"),
            _rule(q.PROMPT_LENGTH, "input_sequence_tokens"),
            _rule(q.OUTPUT_LENGTH, "output_sequence_tokens"),
        ),
        extra=(_CONTEXT, CACHED_COUNT),
    )

    def part_of(self, series: Series) -> str:
        """The model that a series is of, in lower case: traffic has it so, settings have its true name."""
        return super().part_of(series).casefold()

    def refine(self, figures: PageFigures) -> None:
        """Take waiting requests off the running ones, and add computed prefill and the context length."""
        figures.model = figures.first_label("model", (_CONTEXT, f"{_PREFIX}output_tokens_total"))
        if not figures.model:  # somebody asked for a model that nobody serves
            figures.ranks.clear()
        figures.info["frontend"] = "yes"  # its tokens are those of its workers: never add the two
        for _, context in figures.samples.get(_CONTEXT, ()):
            if context >= 1.0:
                figures.info["context_len"] = f"{context:.0f}"
                break
        for rank in figures.ranks.values():
            _take_off_waiting(rank, figures)
            self._add_prefill(rank, figures)

    def _add_prefill(self, rank: Rank, figures: PageFigures) -> None:
        """Add computed prefill: input without cached tokens.

        Cached tokens are known of some requests only; the others (yet to be told) are taken to have as many.
        """
        requests_with_known_cache = figures.total(Metric(CACHED_COUNT))
        prompt = rank.counters.get(q.PROMPT_TOKENS)
        cached = rank.counters.get(q.PREFILL_CACHED)
        prompt_lengths = rank.histograms.get(q.PROMPT_LENGTH)
        if prompt is None or cached is None or prompt_lengths is None or requests_with_known_cache <= 0.0:
            return
        computed = self.remainder(rank.name, prompt, cached * prompt_lengths.count / requests_with_known_cache)
        cached_source = "cached_tokens_sum x input_sequence_tokens_count / cached_tokens_count"
        source = f"{figures.live[q.PROMPT_TOKENS]} - {cached_source}"
        figures.put(rank.counters, q.PREFILL_COMPUTED, computed, source, Advance.PROMPT)


def _take_off_waiting(rank: Rank, figures: PageFigures) -> None:
    """Put running requests: those in flight without those that wait for their first token."""
    if q.RUNNING not in rank.gauges or q.WAITING not in rank.gauges:
        return
    live = figures.live
    running = max(0.0, rank.gauges[q.RUNNING] - rank.gauges[q.WAITING])
    source = f"{live[q.RUNNING]} - {live[q.WAITING].removeprefix(_PREFIX)}"
    figures.put(rank.gauges, q.RUNNING, running, source, Advance.DERIVED)


ENGINE: Final = EngineRow(
    "Dynamo",
    DynamoAdapter,
    port=8000,
    models_path="",
    names_from="1.6",
    forms=(
        LaunchForm(
            EngineKind.DYNAMO,
            "Dynamo",
            ("dynamo.vllm", "dynamo.sglang", "dynamo.trtllm", "dynamo.llama_cpp", "dynamo.mocker"),
            options={
                "model": "--model --model-path",
                "served_name": "--served-model-name",
                "quantization": "--quantization -q",
                "kv_dtype": "--kv-cache-dtype",
                "tp": "--tensor-parallel-size -tp --tp-size --tp",
                "pp": "--pipeline-parallel-size -pp --pp-size --pp",
                "dp": "--data-parallel-size -dp --dp-size --dp",
                "slots": "--max-num-seqs --max-running-requests --max-batch-size",
                "step_tokens": "--max-num-batched-tokens --max-num-tokens",
                "context_tokens": "--max-model-len --context-length --max-seq-len",
                "memory_share": "--gpu-memory-utilization --mem-fraction-static --free-gpu-memory-fraction",
                "eager": "--enforce-eager --disable-cuda-graph",
                "prefix_caching": "--enable-prefix-caching",
                "chunked_prefill": "--enable-chunked-prefill",
                "chunk_tokens": "--chunked-prefill-size",
                "expert_parallel": "--enable-expert-parallel -ep",
                "lora": "--enable-lora",
                "lora_slots": "--max-loras --max-loras-per-batch",
                "dtype": "--dtype",
                "speculation": "--speculative-algorithm",
                "draft_tokens": "--speculative-num-draft-tokens",
                "speculation_config": "--speculative-config",
                "compilation_config": "--compilation-config -cc",
                "optimisation": "--optimization-level",
            },
            inverse={"prefix_caching": "--disable-radix-cache"},
            abbreviates=True,
            variables={"host": "DYN_SYSTEM_HOST", "port": "DYN_SYSTEM_PORT"},
            takes_usual_port=False,
            why_no_port="its metrics are off: start it with DYN_SYSTEM_PORT=8081 (a free port) in its environment",
        ),
    ),
)
