"""The endpoint picker of llm-d and of the Kubernetes gateway API's inference extension. A backend is a pod.

Names and when they move: docs/metrics.md, pkg/epp/metrics and pkg/epp/metrics/collectors/inference_pool.go of
llm-d/llm-d-router (ebab687, August 2026), and pkg/epp/metrics/metrics.go of kubernetes-sigs/
gateway-api-inference-extension from 0.3 to 1.6. Newer versions write each figure under a new name and the old one.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineKind
from gpumon.sources.engines.adapter import EngineRow
from gpumon.sources.engines.failures import note_causes
from gpumon.sources.engines.front_end import BackendTables, FrontEnd, samples_of_name
from gpumon.sources.engines.page_figures import PageFigures
from gpumon.sources.engines.tables import Metric, Rule, Tables, rule

NEW: Final = "llm_d_epp_"
"""Prefix of all figures since llm-d's router; the older ones follow."""
OBJECTIVE: Final = "inference_objective_"
_MODEL: Final = "inference_model_"
"""Before 0.5 of the inference extension."""
_POOL: Final = "inference_pool_"
EXTENSION: Final = "inference_extension_"
SCHEDULER: Final = "llm_d_inference_scheduler_"
_REQUESTS: Final = (f"{NEW}request_total", f"{OBJECTIVE}request_total", f"{_MODEL}request_total")
_ERRORS: Final = (f"{NEW}request_error_total", f"{OBJECTIVE}request_error_total", f"{_MODEL}request_error_total")
CODE: Final = "error_code"
_NO_ROOM: Final = "ResourceExhausted"
"""Code of a request for which there was no room."""
CLIENTS_OWN: Final = frozenset({"BadRequest", "Unauthorized", "Forbidden", "NotFound", "PreconditionFailed"})
"""Codes of requests that were wrong themselves (pkg/common/error/error.go)."""
_RANK_MARK: Final = "-rank-"
"""Between a pod's name and the number of one of its ports."""


def _rule(quantity: str, new: str, *older: str) -> Rule:
    """A rule of a figure under its new name, and under the names that it had."""
    return rule(quantity, f"{NEW}{new}", *older)


_added_rule = partial(Rule, added=True)
"""A rule of a figure whose series are added up."""


def _metrics_of_names(*names: str) -> tuple[Metric, ...]:
    """Metrics that differ in name only."""
    return tuple(map(Metric, names))


class GatewayAdapter(FrontEnd):
    """One endpoint picker."""

    kind = EngineKind.GATEWAY
    prefixes = (NEW, OBJECTIVE, _MODEL, _POOL, EXTENSION, SCHEDULER)
    from_documentation = True
    tables = Tables(
        rank_label="",
        model=("model_name", *_REQUESTS),
        counters=(rule(q.REQUESTS, *_REQUESTS),),
        gauges=(
            _added_rule(
                q.RUNNING,
                _metrics_of_names(f"{NEW}request_running", f"{OBJECTIVE}running_requests", f"{_MODEL}running_requests"),
            ),
            # Held by its flow control, with that switched on.
            _added_rule(
                q.WAITING, _metrics_of_names(f"{NEW}flow_control_queue_size", f"{EXTENSION}flow_control_queue_size")
            ),
            _added_rule(q.BACKENDS_READY, _metrics_of_names(f"{NEW}ready_endpoints", f"{_POOL}ready_pods")),
        ),
        histograms=(
            _rule(q.TTFT, "request_ttft_seconds", f"{OBJECTIVE}request_ttft_seconds"),
            _rule(q.ITL, "request_streaming_itl_seconds"),
            _rule(q.TPOT, "request_streaming_tpot_seconds", f"{OBJECTIVE}request_tpot_seconds"),
            _rule(
                q.E2E,
                "request_duration_seconds",
                f"{OBJECTIVE}request_duration_seconds",
                f"{_MODEL}request_duration_seconds",
            ),
            _rule(
                q.QUEUE,
                "flow_control_request_queue_duration_seconds",
                f"{EXTENSION}flow_control_request_queue_duration_seconds",
            ),
            _rule(q.PROMPT_LENGTH, "request_input_tokens", f"{OBJECTIVE}input_tokens", f"{_MODEL}input_tokens"),
            _rule(q.OUTPUT_LENGTH, "request_output_tokens", f"{OBJECTIVE}output_tokens", f"{_MODEL}output_tokens"),
        ),
        extra=_ERRORS,
    )
    backends = BackendTables(
        labels=("model_server_endpoint", "model_server_pod", "endpoint_name", "pod_name"),
        counters=(rule(q.REQUESTS, f"{NEW}scheduler_attempts_total", f"{EXTENSION}scheduler_attempts_total"),),
        gauges=(
            _added_rule(q.WAITING, _metrics_of_names(f"{NEW}per_endpoint_queue_size", f"{_POOL}per_pod_queue_size")),
            _added_rule(q.RUNNING, _metrics_of_names(f"{NEW}inflight_requests")),
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
            code = series.labels.get(CODE, "")
            if code == _NO_ROOM:
                rejected += value
            elif code not in CLIENTS_OWN:
                failed[code] = failed.get(code, 0.0) + value
        figures.put(rank.counters, q.FAILURES, sum(failed.values()), f"{errors} by {CODE}")
        figures.put(rank.counters, q.REJECTIONS, rejected, str(Metric(errors, CODE, _NO_ROOM)))
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
