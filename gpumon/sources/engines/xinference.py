"""Xinference: the metrics of one worker, which runs models in engines of its own choice (vLLM, SGLang, transformers).

Names and when they move: xinference/core/metrics.py and core/model.py of xinference 4.1 (October 2026), in the text
format of aioprometheus. The page of a supervisor tells of its workers and models, and counts no tokens.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind
from gpumon.sources.engines.adapter import Adapter, EngineRow, FirstAnswer
from gpumon.sources.engines.launch_form import LaunchForm
from gpumon.sources.engines.page_figures import PageFigures
from gpumon.sources.engines.tables import Metric, Tables, rule
from gpumon.specs import hints

SERVING: Final = "xinference:model_serve_count"
_ENDED: Final = "xinference:time_to_first_token_seconds_count"
"""Answers that have ended: the time is observed then."""
CALLS: Final = "xinference:model_request_duration_seconds_count"
"""Calls that have returned: that of a stream returns when it begins, any other when the answer is there."""
_QUANTIZATION: Final = "quantization"
KIND: Final = "model_type"
LLM: Final = "LLM"
"""Value of that label of the models that have tokens."""
SUPERVISOR: Final = "xinference:supervisor_uptime_seconds"
UNSAID: Final = (
    "its metrics are on a port that changes: start it with --metrics-exporter-host 0.0.0.0 and "
    "--metrics-exporter-port PORT"
)

_rule = partial(rule, prefix="xinference:")


class XinferenceAdapter(Adapter):
    """One worker, a part for each model that it runs; the replicas of a model are its ranks."""

    kind = EngineKind.XINFERENCE
    prefixes = ("xinference:",)
    from_documentation = True
    tables = Tables(
        rank_label="replica_index",
        part_label="model_uid",
        model_label="model_name",
        model_samples=(SERVING, _ENDED),
        # An answer that is no stream has its whole time as the time to its first token.
        ignored=(("stream", "false"),),
        counters=(
            _rule(q.PROMPT_TOKENS, "input_tokens_total_counter", advance=Advance.END),
            _rule(q.DECODE_TOKENS, "output_tokens_total_counter", advance=Advance.END),
            _rule(q.FAILURES, "model_request_errors_total"),
        ),
        # Those that the model was given, whether or not its engine lets them wait.
        gauges=(rule(q.RUNNING, SERVING),),
        histograms=(_rule(q.TTFT, "time_to_first_token_seconds"),),
        extra=(CALLS,),
    )

    @classmethod
    def claims(cls, page: FirstAnswer) -> bool:
        """Whether it is the page of a worker."""
        return super().claims(page) and SUPERVISOR not in page.names

    def refine(self, figures: PageFigures) -> None:
        """Add the quantization of the model, and the calls of models that are no LLMs."""
        quantization = figures.first_label(_QUANTIZATION, (SERVING, _ENDED))
        if quantization not in ("", "none"):
            figures.info[hints.QUANTIZATION] = quantization
        if figures.first_label(KIND, (SERVING, _ENDED)) in ("", LLM):
            return
        for series, value in figures.samples_of(Metric(CALLS)):
            rank = figures.ranks.get(series.labels.get(self.tables.rank_label, ""))
            if rank is not None:
                figures.put(rank.counters, q.INFERENCES, value, CALLS)


ENGINE: Final = EngineRow(
    "Xinference",
    XinferenceAdapter,
    port=9998,
    models_path="",
    names_from="4.1.0, October 2026",
    forms=(
        LaunchForm(
            EngineKind.XINFERENCE,
            "Xinference",
            ("xinference-worker", "xinference-local", "xinference.deploy.worker", "xinference.deploy.local"),
            options={
                "host": "--metrics-exporter-host -MH --host -H",
                "port": "--metrics-exporter-port -mp",
            },
            takes_usual_port=False,
            why_no_port=UNSAID,
        ),
    ),
)
