"""NVIDIA NIM for LLMs: 1.x writes vLLM's names without their prefix; 2.x writes vLLM's or SGLang's own."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading
from gpumon.sources.engines import json_body
from gpumon.sources.engines.adapter import METRICS_PATH, Adapter, EngineRow, FirstAnswer
from gpumon.sources.engines.launch_form import LaunchForm
from gpumon.sources.engines.page_figures import NO_BODIES, Bodies, PageFigures, named_samples, usable_samples
from gpumon.sources.engines.sglang import SglangAdapter
from gpumon.sources.engines.tables import CompanionPage, Metric, Tables, rule
from gpumon.sources.engines.vllm import VLLM_OPTIONS, VllmAdapter
from gpumon.sources.exposition import Scan

PATH: Final = "/v1/metrics"
"""Path of NIM's metrics page."""
_VERSION: Final = CompanionPage("/v1/version", 3600.0)
"""Page with the version, asked for once an hour: it does not change while the process lives."""
_MOST_RUNNING: Final = "num_request_max"
_KV_USAGE: Final = "gpu_cache_usage_perc"
_TOKENS: Final = frozenset(("generation_tokens_total", "prompt_tokens_total"))
"""Names that any exporter may use: they are NIM's only beside `_MOST_RUNNING` or `_KV_USAGE`."""
WITH_REUSE: Final = " (includes cached tokens where NIM_ENABLE_KV_CACHE_REUSE is on; it is off by default)"
WRAPPED: Final = (VllmAdapter, SglangAdapter)
"""Adapters of the engines that a 2.x container may wrap."""


class NimAdapter(Adapter):
    """One NIM container. What it wraps is read by the adapter of that engine where it writes that engine's names."""

    kind = EngineKind.NIM
    companions = (_VERSION,)
    from_documentation = True
    tables = Tables(
        rank_label="engine",
        model_label="model_name",
        counters=(
            rule(q.PROMPT_TOKENS, "prompt_tokens_total", advance=Advance.PROMPT),
            rule(q.PREFILL_COMPUTED, "prompt_tokens_total", advance=Advance.PROMPT),
            rule(q.DECODE_TOKENS, "generation_tokens_total"),
            # The first has all reasons, the second until 1.0 too, and later only those of success.
            rule(q.REQUESTS, "request_finish_total", "request_success_total"),
            # Whatever is neither `stop` nor `length`: aborted requests are in it.
            rule(q.FAILURES, "request_failure_total"),
            rule(q.STOPPED, "request_finish_total", label="finished_reason", value="stop"),
            rule(q.CUT, "request_finish_total", label="finished_reason", value="length"),
        ),
        gauges=(
            rule(q.RUNNING, "num_requests_running"),
            rule(q.WAITING, "num_requests_waiting"),
            rule(q.KV_USAGE, _KV_USAGE),
            rule(q.MOST_RUNNING, _MOST_RUNNING),
        ),
        histograms=(
            rule(q.TTFT, "time_to_first_token_seconds"),
            rule(q.ITL, "time_per_output_token_seconds"),
            rule(q.E2E, "e2e_request_latency_seconds"),
            rule(q.PROMPT_LENGTH, "request_prompt_tokens"),
            rule(q.OUTPUT_LENGTH, "request_generation_tokens"),
        ),
    )

    def __init__(self) -> None:
        super().__init__()
        self._wrapped = tuple(adapter() for adapter in WRAPPED)

    @classmethod
    def claims(cls, page: FirstAnswer) -> bool:
        """Whether the page has figures that only NIM has under these names, or a wrapped engine's under NIM's path."""
        if _MOST_RUNNING in page.names or (_KV_USAGE in page.names and _TOKENS & page.names):
            return True
        return page.path == PATH and any(adapter.claims(page) for adapter in WRAPPED)

    @property
    def wanted_names(self) -> frozenset[str]:
        """Names of all samples that the wrapped engines use, too."""
        return super().wanted_names.union(*(adapter.wanted_names for adapter in self._wrapped))

    def read_all(self, scan: Scan, bodies: Bodies = NO_BODIES) -> tuple[EngineReading, ...]:
        """The reading of the wrapped engine where the page has its names, else one by NIM's own names; or none.

        NIM's own gauge tells the most requests that a wrapped engine may run.
        """
        samples = named_samples(scan.values).by_name
        most_running = usable_samples(samples, Metric(_MOST_RUNNING))
        for adapter in self._wrapped:
            reading = adapter.read(scan, bodies)
            self.cut = adapter.cut
            if reading.ranks:
                if most_running:
                    reading = _with_most_running(reading, most_running[0][1])
                return (self._as_nim(reading, bodies),)
        if not (most_running or usable_samples(samples, Metric(_KV_USAGE))):
            return ()  # the names that are left may be of any exporter
        reading = self.read(scan, bodies)
        if reading.ranks:
            return (self._as_nim(reading, bodies),)
        return ()

    def _as_nim(self, reading: EngineReading, bodies: Bodies) -> EngineReading:
        """The reading as one of NIM, with its version."""
        version = json_body.mapping(json_body.parse_json(bodies.get(_VERSION.path, b"")))
        return msgspec.structs.replace(
            reading,
            kind=self.kind,
            from_documentation=self.from_documentation,
            version=json_body.text(version.get("release")),
        )

    def refine(self, figures: PageFigures) -> None:
        """Note what the prefill of a 1.x container includes."""
        if q.PREFILL_COMPUTED in figures.live:
            figures.live[q.PREFILL_COMPUTED] += WITH_REUSE


def _with_most_running(reading: EngineReading, most_running: float) -> EngineReading:
    """The reading with the most requests that run at once, unless its engine tells them. With several ranks it is not
    known whether that is the number of each."""
    if len(reading.ranks) != 1 or q.MOST_RUNNING in reading.live:
        return reading
    (rank,) = reading.ranks
    rank = msgspec.structs.replace(rank, gauges={**rank.gauges, q.MOST_RUNNING: most_running})
    live = {**reading.live, q.MOST_RUNNING: _MOST_RUNNING}
    return msgspec.structs.replace(reading, ranks=(rank,), live=live)


_VARIABLES: Final = {
    "port": "NIM_SERVER_PORT NIM_HTTP_API_PORT",
    "model": "NIM_MODEL_NAME",
    "served_name": "NIM_SERVED_MODEL_NAME",
}
ENGINE: Final = EngineRow(
    "NIM",
    NimAdapter,
    port=8000,
    paths=(PATH, METRICS_PATH),
    names_from="1.8 and 2.0",
    forms=(
        LaunchForm(
            EngineKind.NIM,
            "NIM",
            (
                "nim_llm_sdk.entrypoints.launch",
                "nim_llm_sdk.entrypoints.openai.api_server",
                "vllm_nvext.entrypoints.openai.api_server",
            ),
            options=VLLM_OPTIONS,
            variables=_VARIABLES,
        ),
        LaunchForm(
            EngineKind.NIM,
            "NIM",
            ("/opt/nim/start_server.sh", "/opt/nim/start-server.sh"),
            options={"port": "--port"},
            variables=_VARIABLES,
            wrapper=True,
        ),
    ),
)
