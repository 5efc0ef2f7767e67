"""The endpoint picker of llm-d and of the Kubernetes gateway API's inference extension. A backend is a pod.

Names and when they move: docs/metrics.md, pkg/epp/metrics and pkg/epp/metrics/collectors/inference_pool.go of
llm-d/llm-d-router (ebab687, August 2026), and pkg/epp/metrics/metrics.go of kubernetes-sigs/
gateway-api-inference-extension from 0.3 to 1.6. Newer versions write each figure under a new name and the old one.
"""

from __future__ import annotations

from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineKind
from gpumon.sources.engines.adapter import EngineRow
from gpumon.sources.engines.failures import note_causes
from gpumon.sources.engines.front_end import BackendTables, FrontEnd, samples_of_name
from gpumon.sources.engines.page_figures import PageFigures
from gpumon.sources.engines.tables import Metric, Tables, rule

_LLM_D: Final = "llm_d_epp_"
"""Prefix of all figures since llm-d's router; the older ones follow."""
_OBJECTIVE: Final = "inference_objective_"
_MODEL: Final = "inference_model_"
"""The same figures before 0.5 of the inference extension."""
_POOL: Final = "inference_pool_"
_EXTENSION: Final = "inference_extension_"
_SCHEDULER: Final = "llm_d_inference_scheduler_"
_REQUESTS: Final = (f"{_LLM_D}request_total", f"{_OBJECTIVE}request_total", f"{_MODEL}request_total")
_ERRORS: Final = (f"{_LLM_D}request_error_total", f"{_OBJECTIVE}request_error_total", f"{_MODEL}request_error_total")
_CODE: Final = "error_code"
_NO_ROOM: Final = "ResourceExhausted"
"""Code of a request for which there was no room."""
_CLIENTS_OWN: Final = frozenset({"BadRequest", "Unauthorized", "Forbidden", "NotFound", "PreconditionFailed"})
"""Codes of requests that were wrong themselves (pkg/common/error/error.go)."""
_RANK_MARK: Final = "-rank-"
"""Between a pod's name and the number of one of its ports."""


class GatewayAdapter(FrontEnd):
    """One endpoint picker, with the pods that it picks from as backends. `FrontEnd` calls `work_out`."""

    kind = EngineKind.GATEWAY
    prefixes = (_LLM_D, _OBJECTIVE, _MODEL, _POOL, _EXTENSION, _SCHEDULER)
    from_documentation = True
    tables = Tables(
        rank_label="",
        model_label="model_name",
        model_samples=_REQUESTS,
        counters=(rule(q.REQUESTS, *_REQUESTS),),
        gauges=(
            rule(
                q.RUNNING,
                f"{_LLM_D}request_running",
                f"{_OBJECTIVE}running_requests",
                f"{_MODEL}running_requests",
                added=True,
            ),
            # Held by its flow control, with that switched on.
            rule(q.WAITING, f"{_LLM_D}flow_control_queue_size", f"{_EXTENSION}flow_control_queue_size", added=True),
            rule(q.BACKENDS_READY, f"{_LLM_D}ready_endpoints", f"{_POOL}ready_pods", added=True),
        ),
        histograms=(
            rule(q.TTFT, f"{_LLM_D}request_ttft_seconds", f"{_OBJECTIVE}request_ttft_seconds"),
            rule(q.ITL, f"{_LLM_D}request_streaming_itl_seconds"),
            rule(q.TPOT, f"{_LLM_D}request_streaming_tpot_seconds", f"{_OBJECTIVE}request_tpot_seconds"),
            rule(
                q.E2E,
                f"{_LLM_D}request_duration_seconds",
                f"{_OBJECTIVE}request_duration_seconds",
                f"{_MODEL}request_duration_seconds",
            ),
            rule(
                q.QUEUE,
                f"{_LLM_D}flow_control_request_queue_duration_seconds",
                f"{_EXTENSION}flow_control_request_queue_duration_seconds",
            ),
            rule(
                q.PROMPT_LENGTH, f"{_LLM_D}request_input_tokens", f"{_OBJECTIVE}input_tokens", f"{_MODEL}input_tokens"
            ),
            rule(
                q.OUTPUT_LENGTH,
                f"{_LLM_D}request_output_tokens",
                f"{_OBJECTIVE}output_tokens",
                f"{_MODEL}output_tokens",
            ),
        ),
        extra=_ERRORS,
    )
    backends = BackendTables(
        labels=("model_server_endpoint", "model_server_pod", "endpoint_name", "pod_name"),
        counters=(rule(q.REQUESTS, f"{_LLM_D}scheduler_attempts_total", f"{_EXTENSION}scheduler_attempts_total"),),
        gauges=(
            rule(q.WAITING, f"{_LLM_D}per_endpoint_queue_size", f"{_POOL}per_pod_queue_size", added=True),
            rule(q.RUNNING, f"{_LLM_D}inflight_requests", added=True),
        ),
    )

    def backend_name(self, label: str) -> str:
        """Name of the pod, without the mark and the number of one of its ports."""
        pod, mark, number = label.rpartition(_RANK_MARK)
        if mark and number.isdecimal():
            return pod
        return label

    def work_out(self, figures: PageFigures) -> None:
        """Keep the pods that are there, and add failures and rejections by the code of the error."""
        _drop_gone_pods(figures)
        rank = figures.first_rank
        errors = next((name for name in _ERRORS if samples_of_name(figures, name)), "")
        if rank is None or not errors:
            return
        failed: dict[str, float] = {}
        rejected = 0.0
        for series, value in samples_of_name(figures, errors):
            code = series.labels.get(_CODE, "")
            if code == _NO_ROOM:
                rejected += value
            elif code not in _CLIENTS_OWN:
                failed[code] = failed.get(code, 0.0) + value
        figures.put(rank.counters, q.FAILURES, sum(failed.values()), f"{errors} by {_CODE}")
        figures.put(rank.counters, q.REJECTIONS, rejected, str(Metric(errors, _CODE, _NO_ROOM)))
        note_causes(figures, failed)


def _drop_gone_pods(figures: PageFigures) -> None:
    """Drop the pods that have counts alone while others have gauges: the counts of a pod stay when it is replaced."""
    live_pods = {name: pod for name, pod in figures.backends.items() if pod.gauges}
    if live_pods:
        figures.backends = live_pods


ENGINE: Final = EngineRow(
    "llm-d, inference gateway",
    GatewayAdapter,
    port=9090,
    models_path="",
    names_from="llm-d-router ebab687, August 2026; inference extension 0.3 to 1.6",
)
