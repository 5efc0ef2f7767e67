"""NVIDIA NIM for LLMs: 1.x writes vLLM's names without their prefix; 2.x writes vLLM's or SGLang's own."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading
from gpumon.sources.engines import json_body
from gpumon.sources.engines.adapter import (
    NO_BODIES,
    Adapter,
    Bodies,
    Companion,
    Metric,
    Page,
    Rule,
    Tables,
    by_name,
    first_label,
    picked,
    started_wall_s,
)
from gpumon.sources.engines.sglang import SglangAdapter
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scan

PATH: Final = "/v1/metrics"
VERSION: Final = "/v1/version"
VERSION_EVERY_S: Final = 3600.0
MOST: Final = "num_request_max"
KV_USAGE: Final = "gpu_cache_usage_perc"
TOKENS: Final = ("generation_tokens_total", "prompt_tokens_total")
"""Names that any exporter may use: they are NIM's only beside `MOST` or `KV_USAGE`."""
REUSE: Final = " (includes cached tokens where NIM_ENABLE_KV_CACHE_REUSE is on; it is off by default)"

TABLES: Final = Tables(
    rank_label="engine",
    counters=(
        Rule(q.PROMPT_TOKENS, (Metric("prompt_tokens_total", advance=Advance.PROMPT),)),
        Rule(q.PREFILL_COMPUTED, (Metric("prompt_tokens_total", advance=Advance.PROMPT),)),
        Rule(q.DECODE_TOKENS, (Metric("generation_tokens_total"),)),
        # The first has all reasons, the second until 1.0 too, and later only those of success.
        Rule(q.REQUESTS, (Metric("request_finish_total"), Metric("request_success_total"))),
        # Whatever is neither `stop` nor `length`: aborted requests are in it.
        Rule(q.FAILURES, (Metric("request_failure_total"),)),
    ),
    gauges=(
        Rule(q.RUNNING, (Metric("num_requests_running"),)),
        Rule(q.WAITING, (Metric("num_requests_waiting"),)),
        Rule(q.KV_USAGE, (Metric(KV_USAGE),)),
        Rule(q.MOST_RUNNING, (Metric(MOST),)),
    ),
    histograms=(
        Rule(q.TTFT, (Metric("time_to_first_token_seconds"),)),
        Rule(q.ITL, (Metric("time_per_output_token_seconds"),)),
        Rule(q.E2E, (Metric("e2e_request_latency_seconds"),)),
        Rule(q.PROMPT_LENGTH, (Metric("request_prompt_tokens"),)),
        Rule(q.OUTPUT_LENGTH, (Metric("request_generation_tokens"),)),
    ),
)


class NimAdapter(Adapter):
    """One NIM container. What it wraps is read by the adapter of that engine where it writes that engine's names."""

    kind = EngineKind.NIM
    tables = TABLES
    companions = (Companion(VERSION, VERSION_EVERY_S),)
    from_documentation = True
    wrapped: ClassVar[tuple[type[Adapter], ...]] = (VllmAdapter, SglangAdapter)

    def __init__(self) -> None:
        super().__init__()
        self._inside = tuple(adapter() for adapter in self.wrapped)

    @classmethod
    def claims(cls, page: Page) -> bool:
        """Its path tells, or figures that none of the engines inside has under these names."""
        if MOST in page.names or (KV_USAGE in page.names and any(name in page.names for name in TOKENS)):
            return True
        return page.path == PATH and any(adapter.claims(page) for adapter in cls.wrapped)

    @property
    def wanted(self) -> frozenset[str]:
        """Those of the wrapped engines, too."""
        return super().wanted.union(*(adapter.wanted for adapter in self._inside))

    def read_all(self, scan: Scan, bodies: Bodies = NO_BODIES) -> tuple[EngineReading, ...]:
        """A page for each model, as the engine inside has them."""
        version = json_body.text(json_body.mapping(json_body.decoded(bodies.get(VERSION, b""))).get("release"))
        for adapter in self._inside:
            readings = adapter.read_all(scan, bodies)
            self.cut, self.unsupported = adapter.cut, adapter.unsupported
            if readings or self.unsupported:
                return tuple(self._as_own(reading, scan, version) for reading in readings)
        reading = self.read(scan, bodies)
        return (msgspec.structs.replace(reading, version=version),) if reading.ranks else ()

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EngineReading:  # noqa: ARG002
        """The page of a 1.x container."""
        found = by_name(scan)
        signed = any(picked(found, Metric(name)) for name in (MOST, KV_USAGE))
        figures = self.collect(found if signed else {})
        if q.PREFILL_COMPUTED in figures.live:
            figures.live[q.PREFILL_COMPUTED] += REUSE
        return self.reading(
            figures, model=first_label(found, "model_name", found), started_wall_s=started_wall_s(found)
        )

    def _as_own(self, inside: EngineReading, scan: Scan, version: str) -> EngineReading:
        """What the engine inside reads, with the most requests that NIM says it may run."""
        own = msgspec.structs.replace(
            inside, kind=self.kind, from_documentation=self.from_documentation, version=version
        )
        most = picked(by_name(scan), Metric(MOST))
        if not most or len(own.ranks) != 1 or q.MOST_RUNNING in own.live:
            return own
        rank = own.ranks[0]
        with_most = msgspec.structs.replace(rank, gauges={**rank.gauges, q.MOST_RUNNING: most[0][1]})
        return msgspec.structs.replace(own, ranks=(with_most,), live={**own.live, q.MOST_RUNNING: MOST})
