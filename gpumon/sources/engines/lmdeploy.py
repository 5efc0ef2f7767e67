"""LMDeploy's api_server: metric names of its source (lmdeploy/metrics/loggers.py, stats.py)."""

from __future__ import annotations

from functools import partial
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind
from gpumon.sources.engines.adapter import Adapter, EngineRow
from gpumon.sources.engines.launch_form import NODE, Catch, LaunchForm
from gpumon.sources.engines.page_figures import PageFigures, whole_number
from gpumon.sources.engines.tables import Tables, rule
from gpumon.specs import hints

_CONFIG: Final = "lmdeploy:backend_config_info"
KV_BITS: Final = {"4": "int4", "8": "int8"}
"""Value of `quant_policy` (bits) -> format of the KV cache."""
FORMATS: Final = frozenset(("awq", "gptq", "fp8", "mxfp4"))
"""Values of model_format that say how the weights are stored; `hf` does not."""

_rule = partial(rule, prefix="lmdeploy:")


class LmdeployAdapter(Adapter):
    """One LMDeploy API server; each data-parallel rank has one of its own, with a port of its own."""

    kind = EngineKind.LMDEPLOY
    prefixes = ("lmdeploy:",)
    from_documentation = True
    tables = Tables(
        rank_label="engine",
        model_label="model_name",
        model_samples=("lmdeploy:generation_tokens_total", "lmdeploy:num_requests_running"),
        counters=(
            _rule(q.PROMPT_TOKENS, "prompt_tokens_total", advance=Advance.PROMPT),
            _rule(q.PREFILL_CACHED, "cached_tokens_total", advance=Advance.END),
            _rule(q.DECODE_TOKENS, "generation_tokens_total"),
            _rule(q.REQUESTS, "request_success_total"),
            _rule(q.ABORTS, "request_success_total", label="finished_reason", value="ResponseType.CANCEL"),
            # A gauge by its type, and a count by its meaning.
            _rule(q.FAILURES, "num_requests_failed"),
            _rule(q.DRAFTS, "spec_decode_num_drafts_total"),
            _rule(q.DRAFTED_TOKENS, "spec_decode_num_draft_tokens_total"),
            _rule(q.ACCEPTED_TOKENS, "spec_decode_num_accepted_tokens_total"),
            # No q.STEPS: lmdeploy:iteration_tokens_total has one observation per output of a request, not per step.
        ),
        gauges=(
            _rule(q.RUNNING, "num_requests_running"),
            _rule(q.WAITING, "num_requests_waiting"),
            _rule(q.KV_USAGE, "gpu_cache_usage_perc"),
        ),
        histograms=(
            _rule(q.TTFT, "time_to_first_token_seconds"),
            # The time of a step.
            _rule(q.ITL, "iter_token_latency"),
            _rule(q.E2E, "e2e_request_latency_seconds"),
            _rule(q.QUEUE, "request_queue_time_seconds"),
            _rule(q.PROMPT_LENGTH, "request_prompt_tokens"),
            _rule(q.OUTPUT_LENGTH, "request_generation_tokens"),
        ),
        extra=(_CONFIG,),
    )

    def refine(self, figures: PageFigures) -> None:
        """Add computed prefill, and the settings of its backend."""
        labels = figures.labels(_CONFIG)
        self.work_out_prefill(figures, cache_off=labels.get("enable_prefix_caching") == "False")
        most_running = whole_number(labels.get("max_batch_size", ""))
        if most_running:
            for rank in figures.ranks.values():
                figures.put(rank.gauges, q.MOST_RUNNING, float(most_running), f"{_CONFIG} max_batch_size")
        weight_format = labels.get("model_format", "")
        if weight_format not in FORMATS:
            weight_format = ""
        settings = {
            hints.CONTEXT_LEN: labels.get("session_len", ""),
            hints.WEIGHT_PRECISION: weight_format,
            hints.KV_DTYPE: KV_BITS.get(labels.get("quant_policy", ""), ""),
        }
        for key, text in settings.items():
            if text not in ("", "None"):
                figures.info[key] = text
        figures.tp = whole_number(labels.get("tp", ""))
        figures.dp = whole_number(labels.get("dp", ""))


ENGINE: Final = EngineRow(
    "LMDeploy",
    LmdeployAdapter,
    port=23333,
    names_from="0.16",
    forms=(
        LaunchForm(
            EngineKind.LMDEPLOY,
            "LMDeploy",
            ("lmdeploy serve api_server", "lmdeploy.serve.openai.api_server"),
            options={
                "host": "--server-name",
                "port": "--server-port",
                "model": "--model-path",
                "served_name": "--model-name",
                "tp": "--tp",
                "dp": "--dp",
                "off": "--disable-metrics",
                "key": "--api-keys",
                "tls": "--ssl",
                "slots": "--max-batch-size",
                "step_tokens": "--max-prefill-token-num",
                "context_tokens": "--session-len",
                "memory_share": "--cache-max-entry-count",
                "prefix_caching": "--enable-prefix-caching",
                "eager": "--eager-mode",
                "ep_size": "--ep",
                "dtype": "--dtype",
            },
            abbreviates=True,
            positional=True,
            catches=(Catch("--node-rank", NODE, ("0",)),),
        ),
    ),
)
