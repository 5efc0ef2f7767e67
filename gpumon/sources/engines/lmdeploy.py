"""LMDeploy's api_server: metric names up to 0.16, read in its source (lmdeploy/metrics/loggers.py, stats.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading
from gpumon.sources.engines.adapter import (
    NO_BODIES,
    Adapter,
    Bodies,
    Figures,
    Metric,
    Rule,
    Tables,
    by_name,
    first_label,
    labels_of,
    started_wall_s,
    whole_number,
)
from gpumon.sources.engines.derived import Remainder
from gpumon.sources.exposition import Scan
from gpumon.specs import hints

PREFIX: Final = "lmdeploy:"
CONFIG: Final = "lmdeploy:backend_config_info"
MODEL_NAMES: Final = ("lmdeploy:generation_tokens_total", "lmdeploy:num_requests_running")
KV_BITS: Final = {"4": "int4", "8": "int8"}
"""quant_policy -> format of the KV cache."""
FORMATS: Final = frozenset(("awq", "gptq", "fp8", "mxfp4"))
"""Those of model_format that say how the weights are stored; `hf` does not."""


def _rule(quantity: str, *names: str, advance: Advance = Advance.LIVE) -> Rule:
    return Rule(quantity, tuple(Metric(PREFIX + name, advance=advance) for name in names))


TABLES: Final = Tables(
    rank_label="engine",
    counters=(
        _rule(q.PROMPT_TOKENS, "prompt_tokens_total", advance=Advance.PROMPT),
        _rule(q.PREFILL_CACHED, "cached_tokens_total", advance=Advance.END),
        _rule(q.DECODE_TOKENS, "generation_tokens_total"),
        _rule(q.REQUESTS, "request_success_total"),
        # A gauge by its type, and a count by its meaning.
        _rule(q.FAILURES, "num_requests_failed"),
        _rule(q.DRAFTS, "spec_decode_num_drafts_total"),
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
    extra=(CONFIG,),
)


class LmdeployAdapter(Adapter):
    """One LMDeploy API server; each data-parallel rank has one of its own, with a port of its own."""

    kind = EngineKind.LMDEPLOY
    tables = TABLES
    prefixes = (PREFIX,)
    from_documentation = True

    def __init__(self) -> None:
        super().__init__()
        self._computed = Remainder()

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EngineReading:  # noqa: ARG002
        """The page in canonical quantities; no rank where it has none of them."""
        found = by_name(scan)
        figures = self.collect(found)
        labels = labels_of(found, CONFIG)
        self._work_out_prefill(figures, cache_off=labels.get("enable_prefix_caching") == "False")
        if most := whole_number(labels.get("max_batch_size", "")):
            for rank in figures.ranks.values():
                rank.gauges[q.MOST_RUNNING] = float(most)
                figures.live[q.MOST_RUNNING] = f"{CONFIG} max_batch_size"
        figures.info.update(_settings(labels))
        return self.reading(
            figures,
            model=first_label(found, "model_name", MODEL_NAMES),
            started_wall_s=started_wall_s(found),
            tp=whole_number(labels.get("tp", "")),
            dp=whole_number(labels.get("dp", "")),
        )

    def _work_out_prefill(self, figures: Figures, *, cache_off: bool) -> None:
        """Computed prefill = prompt - cached. The cached part is known only when a request ends: until then its
        prompt counts in full, and the difference waits until it is caught up. So it is right in the long run, and
        once anything was cached no rate of now."""
        ranks, live, advance, _ = figures
        if q.PROMPT_TOKENS not in live or not (q.PREFILL_CACHED in live or cache_off):
            return
        for rank in ranks.values():
            prompt = rank.counters.get(q.PROMPT_TOKENS)
            cached = rank.counters.get(q.PREFILL_CACHED, None if q.PREFILL_CACHED in live else 0.0)
            if prompt is not None and cached is not None:
                rank.counters[q.PREFILL_COMPUTED] = self._computed.of(rank.name, prompt, cached)
        less = live.get(q.PREFILL_CACHED, "0 (prefix caching is off)")
        live[q.PREFILL_COMPUTED] = f"{live[q.PROMPT_TOKENS]} - {less}"
        hits = any(rank.counters.get(q.PREFILL_CACHED) for rank in ranks.values())
        advance[q.PREFILL_COMPUTED] = Advance.END if hits else Advance.PROMPT


def _settings(labels: Mapping[str, str]) -> dict[str, str]:
    """The settings worth keeping of `backend_config_info`, which the first versions leave empty."""
    said = {
        hints.CONTEXT_LEN: labels.get("session_len", ""),
        hints.WEIGHT_PRECISION: labels.get("model_format", "") if labels.get("model_format") in FORMATS else "",
        hints.KV_DTYPE: KV_BITS.get(labels.get("quant_policy", ""), ""),
    }
    return {key: text for key, text in said.items() if text not in ("", "None")}
