"""LiteLLM's proxy, with its `prometheus` callback. A backend is a deployment, named by the address of its API.

Names and when they move: litellm/integrations/prometheus.py, proxy/middleware/in_flight_requests_middleware.py and
router_utils/cooldown_callbacks.py of litellm 1.108.7 (November 2026); 1.110.2 has the same names. Everything but the
requests in flight is counted when a request ends.
"""

from __future__ import annotations

from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind
from gpumon.sources.engines.adapter import METRICS_PATH, EngineRow
from gpumon.sources.engines.failures import note_causes
from gpumon.sources.engines.front_end import BackendTables, FrontEnd, kind_of_status, put_answers, samples_of_name
from gpumon.sources.engines.page_figures import PageFigures, series_sum
from gpumon.sources.engines.tables import FoundSeries, Tables, rule

ANSWERED: Final = "litellm_proxy_total_requests_metric_total"
"""Requests by status. Those for no model (health checks, lists of models) have an empty `requested_model`."""
REQUESTED: Final = "requested_model"
"""Label with the model that a request asked for."""
_FAILED: Final = "litellm_proxy_failed_requests_metric_total"
STATUS: Final = "exception_status"
_STATE: Final = "litellm_deployment_state"
"""State of a deployment: 0 after a request that it served, 1 after one that failed. 2 is written under another model's
name when it is cooled down, and is never taken back: it tells nothing of now."""
LAST_FAILED: Final = 1.0
"""State of a deployment whose last request failed."""
_BACKEND_ANSWERED: Final = "litellm_deployment_success_responses_total"
BACKEND_FAILED: Final = "litellm_deployment_failure_responses_total"
IN_FLIGHT: Final = "litellm_in_flight_requests"
OWN_REQUEST: Final = 1.0
"""Requests in flight that are the one for the metrics page itself."""


class LiteLlmAdapter(FrontEnd):
    """One proxy."""

    kind = EngineKind.LITELLM
    prefixes = ("litellm_",)
    ready_from = (_STATE,)
    tables = Tables(
        rank_label="",
        model_label=REQUESTED,
        model_samples=(_BACKEND_ANSWERED,),
        gauges=(rule(q.RUNNING, IN_FLIGHT),),
        histograms=(
            # To the first token of the backend's stream; requests without a stream have none.
            rule(q.TTFT, "litellm_llm_api_time_to_first_token_metric"),
            rule(q.E2E, "litellm_request_total_latency_metric"),
            rule(q.QUEUE, "litellm_request_queue_time_seconds"),
        ),
        extra=(ANSWERED, _FAILED, _STATE, BACKEND_FAILED, _BACKEND_ANSWERED),
    )
    backends = BackendTables(
        labels=("api_base",), counters=(rule(q.REQUESTS, "litellm_deployment_total_requests_total"),)
    )

    def work_out(self, figures: PageFigures) -> None:
        """Take the request for this page off the running ones; add requests and failures by status, and the
        deployments' state."""
        for rank in figures.ranks.values():
            if q.RUNNING in rank.gauges:
                running = max(0.0, rank.gauges[q.RUNNING] - OWN_REQUEST)
                figures.put(rank.gauges, q.RUNNING, running, f"{IN_FLIGHT} - 1", Advance.DERIVED)
        # Requests for a model that ended, well or not.
        ended = _for_models(samples_of_name(figures, ANSWERED))
        first_rank = figures.first_rank
        if first_rank is not None and ended:
            figures.put(first_rank.counters, q.REQUESTS, series_sum(ended), ANSWERED)
        failed = _for_models(samples_of_name(figures, _FAILED))
        put_answers(figures, failed, STATUS, _FAILED)
        note_causes(figures, _failures_by_cause(failed))
        self._put_states(figures)
        self._put_failures(figures)

    def _put_states(self, figures: PageFigures) -> None:
        """Note which deployments are ready: all but those whose last request failed."""
        for name, samples in self.by_backend(samples_of_name(figures, _STATE)).items():
            states = [state for series, state in samples if series.labels.get("model_id") and state <= LAST_FAILED]
            if states:
                self.backend_of(figures, name).gauges[q.READY] = float(max(states) < LAST_FAILED)

    def _put_failures(self, figures: PageFigures) -> None:
        """Add the requests that failed at each deployment, without those that were wrong themselves."""
        for name, samples in self.by_backend(samples_of_name(figures, BACKEND_FAILED)).items():
            failed = [sample for sample in samples if kind_of_status(sample[0].labels.get(STATUS, "")) == q.FAILURES]
            self.backend_of(figures, name).counters[q.FAILURES] = series_sum(failed)


def _for_models(samples: FoundSeries) -> FoundSeries:
    """The samples of requests for a model, and those without the label: their version does not tell."""
    return [sample for sample in samples if sample[0].labels.get(REQUESTED, REQUESTED)]


def _failures_by_cause(failed: FoundSeries) -> dict[str, float]:
    """Failed requests by status and the class of the exception, such as `500 Openai.InternalServerError`."""
    causes: dict[str, float] = {}
    for series, value in failed:
        status = series.labels.get(STATUS, "")
        if kind_of_status(status) == q.FAILURES:
            cause = f"{status} {series.labels.get('exception_class', '')}".strip()
            causes[cause] = causes.get(cause, 0.0) + value
    return causes


ENGINE: Final = EngineRow(
    "LiteLLM",
    LiteLlmAdapter,
    port=4000,
    # The page without the slash redirects to that with it.
    paths=(f"{METRICS_PATH}/", METRICS_PATH),
    switch='start it with callbacks: ["prometheus"] under litellm_settings in its config',
    models_path="",
    names_from="1.110.2, November 2026",
)
