"""TEI (text-embeddings-inference): encoders, so there is prefill and no decode. /info beside the page tells the model.

Names and meaning: core/src/infer.rs, queue.rs and tokenization.rs and router/src/lib.rs of
huggingface/text-embeddings-inference. Its counters carry no `_total`.
"""

from __future__ import annotations

from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind
from gpumon.sources.engines.adapter import Adapter, EngineRow
from gpumon.sources.engines.failures import Failures
from gpumon.sources.engines.launch_form import LaunchForm
from gpumon.sources.engines.page_figures import PageFigures
from gpumon.sources.engines.tables import Tables, rule
from gpumon.sources.engines.tgi import INFO, add_info
from gpumon.specs import hints

_FAILURES: Final = Failures(
    "te_request_failure",
    "err",
    client="dropped",
    turned_away="overloaded",
    refused=frozenset({"validation", "tokenization"}),
    besides=False,
)
"""A request of several texts counts once for each that failed."""
_INFO_FIELDS: Final = {
    "model_dtype": hints.WEIGHT_PRECISION,
    "max_input_length": hints.CONTEXT_LEN,
    "max_batch_tokens": "max_batch_tokens",
    "max_batch_requests": "max_batch_requests",
    "max_concurrent_requests": "max_concurrent_requests",
    "max_client_batch_size": "max_client_batch_size",
}
"""Field of /info -> key in `info`."""


class TeiAdapter(Adapter):
    """One TEI server."""

    kind = EngineKind.TEI
    prefixes = ("te_request_", "te_embed_", "te_predict_", "te_batch_", "te_queue_size")
    companions = (INFO,)
    from_documentation = True
    tables = Tables(
        rank_label="",
        counters=(
            # Each text as it is tokenised: before it waits, and whether it will be computed or not.
            rule(q.PROMPT_TOKENS, "te_request_input_length_sum", advance=Advance.PROMPT),
            # Each batch as it goes to the GPU, without padding.
            rule(q.PREFILL_COMPUTED, "te_batch_next_tokens_sum"),
            # As they come in, failed ones included.
            rule(q.REQUESTS, "te_request_count"),
            # Texts; a classifier's or reranker's are predictions.
            rule(q.INFERENCES, "te_embed_success", "te_predict_success"),
        ),
        # In texts.
        gauges=(rule(q.WAITING, "te_queue_size"),),
        histograms=(
            rule(q.E2E, "te_request_duration"),
            rule(q.QUEUE, "te_request_queue_duration"),
            rule(q.PROMPT_LENGTH, "te_request_input_length"),
        ),
        extra=(_FAILURES.name,),
    )

    def refine(self, figures: PageFigures) -> None:
        """Add model, version, settings and failures."""
        add_info(figures, _INFO_FIELDS)
        _FAILURES.put(figures)


ENGINE: Final = EngineRow(
    "TEI",
    TeiAdapter,
    port=3000,
    models_path="",
    names_from="0d124dc",
    forms=(
        LaunchForm(
            EngineKind.TEI,
            "Text Embeddings Inference",
            ("text-embeddings-router",),
            options={
                "host": "--hostname",
                "port": "--port -p",
                "model": "--model-id",
                "served_name": "--served-model-name",
                "key": "--api-key",
            },
            variables={"port": "PORT", "model": "MODEL_ID", "key": "API_KEY"},
        ),
    ),
)
