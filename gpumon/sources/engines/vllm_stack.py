"""The router of vLLM's production stack. Its names begin with `vllm:` as an engine's do, with a label `server`.

Names and when they move: src/vllm_router/services/metrics_service, stats/request_stats.py and
services/request_service/request.py of vllm-project/production-stack (a6c01db, August 2026). What it says of running
requests is left out: a request whose client hangs up, or whose backend cannot be reached, stays in it for good.
"""

from __future__ import annotations

from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineKind
from gpumon.sources.engines.adapter import EngineRow
from gpumon.sources.engines.front_end import BackendTables, FrontEnd
from gpumon.sources.engines.tables import Tables, rule

STACK_NAMES: Final = (
    "vllm:current_qps",
    "vllm:healthy_pods_total",
    "vllm:num_incoming_requests_total",
    "vllm:avg_decoding_length",
)
"""Names that no engine writes."""
LATENCY: Final = "vllm:request_latency_seconds"


class VllmStackAdapter(FrontEnd):
    """One router."""

    kind = EngineKind.VLLM_STACK
    prefixes = STACK_NAMES
    ready_from = ("vllm:healthy_pods_total",)
    tables = Tables(
        rank_label="",
        model_label="model",
        model_samples=(f"{LATENCY}_count",),
        counters=(
            # As they come in, those that no backend serves included.
            rule(q.REQUESTS, "vllm:num_incoming_requests_total"),
            # No answer came from the backend. Answers with an error are left out: clients' mistakes are among them.
            rule(q.FAILURES, "vllm:request_errors_total"),
        ),
        # It has the requests that ended in an error, too.
        histograms=(rule(q.E2E, LATENCY),),
    )
    backends = BackendTables(
        labels=("server",),
        counters=(
            rule(q.REQUESTS, f"{LATENCY}_count"),
            rule(q.FAILURES, f"{LATENCY}_count", label="status", value="error"),
        ),
        gauges=(rule(q.READY, "vllm:healthy_pods_total"), rule(q.REQUEST_RATE, "vllm:current_qps")),
    )


ENGINE: Final = EngineRow(
    "vLLM production stack",
    VllmStackAdapter,
    port=8001,
    models_path="",
    version_path="/version",
    names_from="a6c01db, August 2026",
)
