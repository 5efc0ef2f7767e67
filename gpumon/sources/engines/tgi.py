"""TGI (text-generation-inference): a page without model, and /info beside it.

Names and meaning: backends/v3/src/backend.rs and router/src/server.rs of huggingface/text-generation-inference. Its
counters carry no `_total`. It tells neither the time to the first token nor which prompt tokens came from its prefix
cache (USE_PREFIX_CACHING), so computed prefill is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind
from gpumon.sources.engines import json_body
from gpumon.sources.engines.adapter import Adapter, EngineRow
from gpumon.sources.engines.failures import Failures
from gpumon.sources.engines.launch_form import LaunchForm
from gpumon.sources.engines.page_figures import PageFigures, Rank
from gpumon.sources.engines.tables import CompanionPage, Metric, Rule, Tables, rule
from gpumon.specs import hints

INFO: Final = CompanionPage("/info", 30.0)
"""Hugging Face's servers (TGI, TEI) tell there which model they serve; it does not change while the process lives."""
TIMES_GIVEN: Final = Metric("tgi_request_skipped_tokens_count")
"""Number of times that requests were given tokens, and (`_sum`) their tokens beyond the first each time: a summary."""
_FAILURES: Final = Failures(
    "tgi_request_failure", "err", client="dropped", turned_away="overloaded", refused=frozenset({"validation"})
)
_INFO_FIELDS: Final = {
    "model_dtype": hints.WEIGHT_PRECISION,
    "max_total_tokens": hints.CONTEXT_LEN,
    "max_input_tokens": "max_input_tokens",
    "max_concurrent_requests": "max_concurrent_requests",
    "max_batch_total_tokens": "max_batch_total_tokens",
    "max_batch_size": "max_batch_size",
}
"""Field of /info -> key in `info`."""


def add_info(figures: PageFigures, keys: Mapping[str, str]) -> None:
    """Put the answer of /info into the figures: model (id, or the folder that it was loaded from), version, and the
    fields that `keys` has, each under its key in `info`."""
    answer = json_body.mapping(json_body.parse_json(figures.bodies.get(INFO.path, b"")))
    for field, key in keys.items():
        text = json_body.text(answer.get(field))
        if text:
            figures.info[key] = text
    figures.model_root = json_body.text(answer.get("model_id"))
    figures.model = figures.model_root
    figures.version = json_body.text(answer.get("version"))
    if figures.model:
        figures.info[hints.MODEL_PATH] = figures.model
    model_type = answer.get("model_type")
    if isinstance(model_type, dict):  # TEI's form: the type is the only key, and has its settings
        model_type = next(iter(model_type), "")
    if isinstance(model_type, str) and model_type:
        figures.info["model_type"] = model_type[: json_body.MOST_CHARS]


class TgiAdapter(Adapter):
    """One TGI server."""

    kind = EngineKind.TGI
    prefixes = ("tgi_",)
    companions = (INFO,)
    from_documentation = True
    tables = Tables(
        rank_label="",
        counters=(
            # At validation: before the request waits, and cached tokens included.
            rule(q.PROMPT_TOKENS, "tgi_request_input_length_sum", advance=Advance.PROMPT),
            # The second metric is for backends that tell nothing of their batches (llama.cpp, TensorRT-LLM).
            Rule(q.DECODE_TOKENS, (TIMES_GIVEN, Metric("tgi_request_generated_tokens_sum", advance=Advance.END))),
            # Prefill and decode are passes of their own, and each reads the weights.
            rule(q.STEPS, "tgi_batch_inference_success", "tgi_batch_inference_count"),
            rule(q.REQUESTS, "tgi_request_success"),
            # Tokens beyond the first each time that some are given: accepted ones of a draft.
            rule(q.ACCEPTED_TOKENS, "tgi_request_skipped_tokens_sum"),
        ),
        gauges=(rule(q.RUNNING, "tgi_batch_current_size"), rule(q.WAITING, "tgi_queue_size")),
        histograms=(
            # A mean of each request, prefill included.
            rule(q.ITL, "tgi_request_mean_time_per_token_duration"),
            rule(q.E2E, "tgi_request_duration"),
            rule(q.QUEUE, "tgi_request_queue_duration"),
            rule(q.PROMPT_LENGTH, "tgi_request_input_length"),
            rule(q.OUTPUT_LENGTH, "tgi_request_generated_tokens"),
        ),
        extra=(_FAILURES.name,),
    )

    def refine(self, figures: PageFigures) -> None:
        """Add model, settings, failures, and all generated tokens."""
        add_info(figures, _INFO_FIELDS)
        _FAILURES.put(figures)
        figures.exact_steps = q.STEPS in figures.live
        if figures.live.get(q.DECODE_TOKENS) == str(TIMES_GIVEN):
            for rank in figures.ranks.values():
                _add_decode_tokens(rank, figures)


def _add_decode_tokens(rank: Rank, figures: PageFigures) -> None:
    """Put all generated tokens into the rank: one for each time that a request is given some, and those beyond it."""
    beyond_first = rank.counters.get(q.ACCEPTED_TOKENS)
    if beyond_first is None:
        # A sum without its second half would be smaller than at the last poll, and read as a restart.
        figures.leave_out(q.DECODE_TOKENS)
        return
    times_given = rank.counters[q.DECODE_TOKENS]
    if beyond_first:  # speculation is on
        figures.put(rank.counters, q.DRAFTS, times_given, str(TIMES_GIVEN))
    else:
        figures.leave_out(q.ACCEPTED_TOKENS)
    figures.put(rank.counters, q.DECODE_TOKENS, times_given + beyond_first, f"{TIMES_GIVEN} + _sum")


ENGINE: Final = EngineRow(
    "TGI",
    TgiAdapter,
    port=3000,
    models_path="",
    names_from="3.3",
    forms=(
        LaunchForm(
            EngineKind.TGI,
            "TGI",
            ("text-generation-launcher", "text-generation-router"),
            options={
                "host": "--hostname",
                "port": "--port -p",
                "model": "--model-id",
                "tp": "--num-shard",
                "key": "--api-key",
                "quantization": "--quantize",
                "kv_dtype": "--kv-cache-dtype",
                "slots": "--max-batch-size",
                "step_tokens": "--max-batch-prefill-tokens",
                "context_tokens": "--max-total-tokens",
                "memory_share": "--cuda-memory-fraction",
                "dtype": "--dtype",
                "draft_tokens": "--speculate",
            },
            variables={
                "port": "PORT",
                "model": "MODEL_ID",
                "tp": "NUM_SHARD",
                "key": "API_KEY",
                "quantization": "QUANTIZE",
                "kv_dtype": "KV_CACHE_DTYPE",
                "slots": "MAX_BATCH_SIZE",
                "step_tokens": "MAX_BATCH_PREFILL_TOKENS",
                "context_tokens": "MAX_TOTAL_TOKENS",
                "memory_share": "CUDA_MEMORY_FRACTION",
                "dtype": "DTYPE",
                "draft_tokens": "SPECULATE",
            },
        ),
        LaunchForm(EngineKind.TGI, "TGI", ("text-generation-server",), part=True),
    ),
)
