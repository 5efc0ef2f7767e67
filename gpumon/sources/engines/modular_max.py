"""MAX (Modular): the series of `max serve`, as OpenTelemetry's exporter for Prometheus names them.

Names and when they move: max/serve/telemetry/metrics.py, serve/router/openai_routes.py, serve/scheduler/utils.py and
serve/pipelines/llm.py of max 26.7.0 (2026). The exporter adds the unit and `_total` to a name
(opentelemetry-exporter-prometheus 0.66b2).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind
from gpumon.sources.engines.adapter import Adapter, EngineRow
from gpumon.sources.engines.failures import put_refusals
from gpumon.sources.engines.histograms import Scaled
from gpumon.sources.engines.launch_form import LaunchForm
from gpumon.sources.engines.page_figures import PageFigures, Rank
from gpumon.sources.engines.tables import Metric, Rule, Tables, rule
from gpumon.sources.engines.vllm import GENERATES

_ANSWERS: Final = "maxserve_request_count_total"
"""Answers by HTTP status (`code`) and `path`."""
_USED: Final = Metric("maxserve_cache_num_used_blocks")
_BLOCKS: Final = Metric("maxserve_cache_num_total_blocks")
_HITS: Final = "maxserve_cache_hits_tokens_total"
_LOAD: Final = "maxserve_pipeline_load_total"
"""Loads of a pipeline, by its model, which no other series names."""
_TIMES: Final = (q.TTFT, q.ITL, q.TPOT, q.E2E)
"""Histograms that are in milliseconds."""
_SWITCH: Final = "add the URL with MAX_SERVE_METRICS_ENDPOINT_PORT (8001), unless MAX_SERVE_DISABLE_TELEMETRY is set"

_rule = partial(rule, prefix="maxserve_")


class MaxAdapter(Adapter):
    """One `max serve`."""

    kind = EngineKind.MAX
    prefixes = ("maxserve_",)
    from_documentation = True
    tables = Tables(
        rank_label="",
        model_label="model",
        model_samples=(_LOAD,),
        counters=(
            # When the request ends; prompts only where hits and misses are not known (`put_prompts`).
            _rule(q.PROMPT_TOKENS, "num_input_tokens_total", advance=Advance.END),
            _rule(q.DECODE_TOKENS, "num_output_tokens_total", advance=Advance.END),
            # With the prefill batch that a request comes into.
            _rule(q.PREFILL_COMPUTED, "cache_misses_tokens_total", advance=Advance.PROMPT),
            rule(q.PREFILL_CACHED, _HITS, advance=Advance.PROMPT),
            rule(q.CACHED_DEVICE, _HITS, label="tier", value="g0", advance=Advance.PROMPT),
            rule(q.CACHED_EXTERNAL, _HITS, label="tier", value="external", advance=Advance.PROMPT),
            # A request that ended, whatever became of it; `request_count` counts a stream as it begins.
            _rule(q.REQUESTS, "request_time_milliseconds_count"),
            _rule(q.PREEMPTIONS, "cache_preemption_count_total"),
            _rule(q.KV_STORED_BYTES, "cache_d2h_bytes_copied_bytes_total"),
            _rule(q.KV_LOADED_BYTES, "cache_h2d_bytes_copied_bytes_total"),
            _rule(q.KV_TIER_WRITTEN_BYTES, "cache_disk_bytes_written_bytes_total"),
            _rule(q.KV_TIER_READ_BYTES, "cache_disk_bytes_read_bytes_total"),
            _rule(q.KV_COPY_FAILURES, "cache_connector_load_failures_loads_total"),
        ),
        gauges=(
            # All that the API server has: those that wait are taken off below.
            _rule(q.RUNNING, "num_requests_running"),
            Rule(
                q.WAITING,
                (Metric("maxserve_num_requests_queued"),),
                added=True,
                also=("maxserve_num_requests_awaiting_admission",),
            ),
        ),
        histograms=(
            _rule(q.TTFT, "time_to_first_token_milliseconds"),
            # Between two chunks of an answer.
            _rule(q.ITL, "itl_milliseconds"),
            _rule(q.TPOT, "time_per_output_token_milliseconds"),
            _rule(q.E2E, "request_time_milliseconds"),
            _rule(q.PROMPT_LENGTH, "input_tokens_per_request_tokens"),
            _rule(q.OUTPUT_LENGTH, "output_tokens_per_request_tokens"),
        ),
        extra=(_ANSWERS, _USED.name, _BLOCKS.name, _LOAD),
    )

    def __init__(self) -> None:
        super().__init__()
        self._scaled = Scaled(0.001)
        """The histograms in seconds."""

    def refine(self, figures: PageFigures) -> None:
        """Bring histograms to seconds; add prompts, requests that run, KV use, and failed requests."""
        rank = figures.first_rank  # the only one: no label tells ranks apart, and its figures are those of the page
        if rank is None:
            return
        self._scaled.put(rank, _TIMES)
        counted = (figures.live.get(quantity, "") for quantity in (q.PREFILL_COMPUTED, q.PREFILL_CACHED))
        figures.put_prompts(rank, " + ".join(counted))
        _take_off_waiting(rank, figures)
        _add_usage(rank, figures)
        _add_failures(rank, figures)


def _take_off_waiting(rank: Rank, figures: PageFigures) -> None:
    """Put running requests: those in the server without those that wait."""
    if q.RUNNING not in rank.gauges or q.WAITING not in rank.gauges:
        figures.leave_out(q.RUNNING)
        return
    running = max(0.0, rank.gauges[q.RUNNING] - rank.gauges[q.WAITING])
    source = f"{figures.live[q.RUNNING]} - ({figures.live[q.WAITING]})"
    figures.put(rank.gauges, q.RUNNING, running, source, Advance.DERIVED)


def _add_usage(rank: Rank, figures: PageFigures) -> None:
    """Add the share of the KV cache's blocks that is in use."""
    blocks = figures.total(_BLOCKS)
    if blocks > 0.0 and figures.samples_of(_USED):
        used = figures.total(_USED)
        figures.put(rank.gauges, q.KV_USAGE, used / blocks, f"{_USED} / {_BLOCKS}")


def _add_failures(rank: Rank, figures: PageFigures) -> None:
    """Add the requests for tokens that were answered with an error of the server, and those that were refused."""
    answers = []
    failed = 0.0
    for series, value in figures.samples_of(Metric(_ANSWERS)):
        if series.labels.get("path") in GENERATES:
            answers.append((series, value))
            if series.labels.get("code", "").startswith("5"):
                failed += value
    if answers:
        figures.put(rank.counters, q.FAILURES, failed, f'{_ANSWERS}{{code="5xx"}}')
        put_refusals(figures, answers, "code", _ANSWERS)


ENGINE: Final = EngineRow(
    "MAX",
    MaxAdapter,
    port=8001,
    switch=_SWITCH,
    names_from="26.7.0, 2026",
    models_path="",
    forms=(
        LaunchForm(
            EngineKind.MAX,
            "MAX",
            ("max serve", "max._entrypoints.pipelines serve", "max.entrypoints.pipelines serve"),
            options={"host": "--host", "model": "--model --model-path", "quantization": "--quantization-encoding"},
            variables={"port": "MAX_SERVE_METRICS_ENDPOINT_PORT", "host": "MAX_SERVE_HOST"},
        ),
    ),
)
