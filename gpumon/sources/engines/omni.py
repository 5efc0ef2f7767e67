"""vLLM-Omni: pipelines of several models, of which each stage is an engine with vLLM's series.

Names and when they move: vllm_omni/metrics/definitions.py, metrics/prometheus.py and entrypoints/omni_base.py of
vllm-omni 0.30 (September 2026). Its `vllm:` series have the labels `stage` and `replica` in the place of `engine`: they
are of several models (a thinker, a talker, a vocoder), which never add up to one, so they are not read.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import DIFFUSION, EngineKind
from gpumon.sources.engines.adapter import Adapter, EngineRow
from gpumon.sources.engines.failures import note_causes
from gpumon.sources.engines.page_figures import PageFigures
from gpumon.sources.engines.tables import Metric, Tables, rule

_ENDED: Final = "vllm_omni:requests_success_total"
"""All that ended, by reason: `abort` where one failed, whyever."""
_FAILED: Final = Metric("vllm_omni:requests_failed_total")
GIVEN_UP: Final = frozenset({"client_abort", "client_disconnect"})
"""Values of its label `reason` that are the client's doing."""
_STEPS: Final = Metric("vllm_omni:num_inference_steps_count")
"""Observed for requests with a stage that denoises."""

_rule = partial(rule, prefix="vllm_omni:")


class OmniAdapter(Adapter):
    """One pipeline.

    No tokens: its counters add up those of all stages, which are tokens of different models.
    """

    kind = EngineKind.VLLM_OMNI
    prefixes = ("vllm_omni:",)
    from_documentation = True
    tables = Tables(
        rank_label="",
        model_label="model_name",
        model_samples=("vllm_omni:num_requests_running", _ENDED),
        counters=(
            rule(q.REQUESTS, _ENDED),
            rule(q.STOPPED, _ENDED, label="finished_reason", value="stop"),
            rule(q.CUT, _ENDED, label="finished_reason", value="length"),
        ),
        gauges=(_rule(q.RUNNING, "num_requests_running"), _rule(q.WAITING, "num_requests_waiting")),
        histograms=(_rule(q.E2E, "e2e_request_latency_s"), _rule(q.QUEUE, "request_queue_wait_s")),
        extra=(_FAILED.name, _STEPS.name),
    )

    def refine(self, figures: PageFigures) -> None:
        """Add failed requests apart from those that were given up, and whether it makes pictures."""
        if figures.total(_STEPS):
            figures.info[DIFFUSION] = "yes"
        causes: dict[str, float] = {}
        for series, value in figures.samples_of(_FAILED):
            cause = series.labels.get("reason", "")
            causes[cause] = causes.get(cause, 0.0) + value
        if not causes:
            return
        given_up = sum(value for cause, value in causes.items() if cause in GIVEN_UP)
        failed = sum(causes.values()) - given_up
        for rank in figures.ranks.values():
            figures.put(rank.counters, q.FAILURES, failed, str(_FAILED))
            figures.put(rank.counters, q.ABORTS, given_up, f'{_FAILED}{{reason="client_..."}}')
        note_causes(figures, causes)


ENGINE: Final = EngineRow(
    "vLLM-Omni", OmniAdapter, port=8000, version_path="/version", names_from="0.30.0, September 2026"
)
