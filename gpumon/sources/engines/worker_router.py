"""Routers in Rust that call their backends workers: SGLang's, which became a model gateway (SMG), and vLLM's, which is
made of the first.

Names and when they move: sgl-model-gateway/src/observability/metrics.rs of sgl-project/sglang (sglang-router 0.2.1 and
0.3.2), model_gateway/src/observability/metrics.rs of smg-project/smg (f8daa88, August 2026), vllm-router 0.1.17.
"""

from __future__ import annotations

from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind
from gpumon.sources.engines.adapter import EngineRow
from gpumon.sources.engines.front_end import BackendTables, FrontEnd, samples_of_name
from gpumon.sources.engines.page_figures import PageFigures
from gpumon.sources.engines.tables import Metric, Rule, Tables, rule

SMG: Final = "smg_"
SGL: Final = "sgl_router_"
_VLLM: Final = "vllm_router_"
OPEN: Final = 1.0
"""State of a circuit breaker that keeps all requests from its worker; 0: closed, 2: it lets one through."""
PORT: Final = 29000
"""Default port of their metrics."""
HEALTH: Final = (f"{SMG}worker_health", f"{SGL}worker_health", f"{_VLLM}worker_health")
BREAKERS: Final = (f"{SMG}worker_cb_state", f"{SGL}cb_state", f"{_VLLM}cb_state")
AGES: Final = f"{SMG}http_inflight_request_age_count"
"""HTTP requests in the router by their age, as a thread of it counts them every few seconds."""


class WorkerRouter(FrontEnd):
    """A router that reports health and circuit breakers of its workers."""

    ready_from = (*HEALTH, *BREAKERS)

    def work_out(self, figures: PageFigures) -> None:
        """Mark workers whose circuit breaker is open as not ready: they get no requests, however healthy they are."""
        for name in BREAKERS:
            for worker, samples in self.by_backend(samples_of_name(figures, name)).items():
                gauges = self.backend_of(figures, worker).gauges
                if q.READY in gauges and any(state == OPEN for _, state in samples):
                    gauges[q.READY] = 0.0


class SmgAdapter(WorkerRouter):
    """One router of SGLang, or model gateway."""

    kind = EngineKind.SMG
    prefixes = (SMG, SGL)
    tables = Tables(
        rank_label="",
        model_label="model",
        model_samples=(f"{SMG}router_request_duration_seconds_count", f"{SMG}worker_pool_size"),
        counters=(
            # When they are routed; the older router counts those that were answered.
            rule(q.REQUESTS, f"{SMG}router_requests_total", f"{SGL}requests_total"),
            # The last try failed, too; also where it tries once only.
            rule(q.FAILURES, f"{SMG}worker_retries_exhausted_total", f"{SGL}retries_exhausted_total"),
            rule(q.REJECTIONS, f"{SMG}admission_queue_rejected_total"),
        ),
        gauges=(
            rule(q.RUNNING, AGES, advance=Advance.SAMPLED, added=True),
            rule(q.WAITING, f"{SMG}admission_queue_depth"),
        ),
        histograms=(
            # Through gRPC only: over HTTP it does not look into the answers.
            rule(q.TTFT, f"{SMG}router_ttft_seconds"),
            rule(q.TPOT, f"{SMG}router_tpot_seconds"),
            rule(q.E2E, f"{SMG}router_request_duration_seconds", f"{SGL}generate_duration_seconds"),
        ),
        extra=BREAKERS,
    )
    backends = BackendTables(
        labels=("worker",),
        counters=(
            rule(q.REQUESTS, f"{SMG}worker_cb_outcomes_total", f"{SGL}processed_requests_total"),
            Rule(
                q.FAILURES,
                (
                    Metric(f"{SMG}worker_cb_outcomes_total", "outcome", "failure"),
                    Metric(f"{SGL}cb_outcomes_total", "outcome", "failure"),
                ),
            ),
        ),
        gauges=(
            rule(q.READY, f"{SMG}worker_health", f"{SGL}worker_health"),
            rule(q.RUNNING, f"{SMG}worker_requests_active", f"{SGL}running_requests"),
        ),
    )


class VllmRouterAdapter(WorkerRouter):
    """One router of vllm-project/router."""

    kind = EngineKind.VLLM_ROUTER
    prefixes = (_VLLM,)
    tables = Tables(
        rank_label="",
        counters=(
            # Those that were answered, and those whose last try failed.
            Rule(q.REQUESTS, (Metric(f"{_VLLM}requests_total"),), also=(f"{_VLLM}retries_exhausted_total",)),
            rule(q.FAILURES, f"{_VLLM}retries_exhausted_total"),
        ),
        histograms=(rule(q.E2E, f"{_VLLM}generate_duration_seconds"),),
        extra=BREAKERS,
    )
    backends = BackendTables(
        labels=("worker",),
        counters=(
            rule(q.REQUESTS, f"{_VLLM}processed_requests_total"),
            rule(q.FAILURES, f"{_VLLM}cb_outcomes_total", label="outcome", value="failure"),
        ),
        gauges=(rule(q.READY, f"{_VLLM}worker_health"), rule(q.RUNNING, f"{_VLLM}running_requests")),
    )


ENGINE: Final = EngineRow(
    "SGLang router (SMG)",
    SmgAdapter,
    port=PORT,
    models_path="",
    names_from="0.2.1 and 0.3.2, November 2026; smg f8daa88, August 2026",
)
VLLM_ENGINE: Final = EngineRow(
    "vLLM router", VllmRouterAdapter, port=PORT, models_path="", names_from="0.1.17, November 2026"
)
