"""SGLang with a diffusion model: requests, queue and latencies; its steps denoise a picture, and are no tokens.

Names and meaning: sglang/multimodal_gen/runtime/observability/metrics.py of sglang 0.5.23 (October 2026).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import DIFFUSION, EngineKind
from gpumon.sources.engines.adapter import Adapter, EngineRow
from gpumon.sources.engines.page_figures import PageFigures
from gpumon.sources.engines.tables import Tables, rule

_rule = partial(rule, prefix="sglang:diffusion_")


class SglangDiffusionAdapter(Adapter):
    """One server; its replicas are ranks."""

    kind = EngineKind.SGLANG_DIFFUSION
    prefixes = ("sglang:diffusion_",)
    from_documentation = True
    tables = Tables(
        rank_label="replica",
        ignored=(("is_warmup", "true"),),
        counters=(
            _rule(q.REQUESTS, "requests_total"),
            # What a server of models that are no LLMs serves.
            _rule(q.INFERENCES, "requests_total", label="status", value="success"),
            _rule(q.FAILURES, "requests_total", label="status", value="error"),
        ),
        gauges=(
            _rule(q.RUNNING, "num_running_reqs"),
            _rule(q.WAITING, "num_queue_reqs"),
            _rule(q.LORA_LOADED, "lora_loaded_adapters"),
        ),
        histograms=(_rule(q.E2E, "request_latency_seconds"), _rule(q.QUEUE, "queue_time_seconds")),
    )

    def refine(self, figures: PageFigures) -> None:
        """Mark it as a model of diffusion, before its first request too."""
        figures.info[DIFFUSION] = "yes"


ENGINE: Final = EngineRow(
    "SGLang diffusion",
    SglangDiffusionAdapter,
    port=30000,
    switch="start it with --enable-metrics",
    names_from="0.5.23, October 2026",
)
