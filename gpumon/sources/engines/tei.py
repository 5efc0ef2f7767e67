"""TEI (text-embeddings-inference): encoders, so there is prefill and no decode. /info beside the page tells the model.

Names and meaning: core/src/infer.rs, queue.rs and tokenization.rs and router/src/lib.rs of
huggingface/text-embeddings-inference. Its counters carry no `_total`.
"""

from __future__ import annotations

from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading
from gpumon.sources.engines.adapter import (
    NO_BODIES,
    Adapter,
    Bodies,
    Metric,
    Rule,
    Tables,
    by_name,
)
from gpumon.sources.engines.derived import Failures
from gpumon.sources.engines.tgi import INFO, add_info
from gpumon.sources.exposition import Scan
from gpumon.specs import hints

FAILURES: Final = Failures("te_request_failure", "err", client="dropped", besides=False)
"""A request of several texts counts once for each that failed."""
KEPT: Final = {
    "model_dtype": hints.WEIGHT_PRECISION,
    "max_input_length": hints.CONTEXT_LEN,
    "max_batch_tokens": "max_batch_tokens",
    "max_batch_requests": "max_batch_requests",
    "max_concurrent_requests": "max_concurrent_requests",
    "max_client_batch_size": "max_client_batch_size",
}
"""Field of /info -> key in `info`."""

TABLES: Final = Tables(
    rank_label="",
    counters=(
        # Each text as it is tokenised: before it waits, and whether it will be computed or not.
        Rule(q.PROMPT_TOKENS, (Metric("te_request_input_length_sum", advance=Advance.PROMPT),)),
        # Each batch as it goes to the GPU, without padding.
        Rule(q.PREFILL_COMPUTED, (Metric("te_batch_next_tokens_sum"),)),
        # As they come in, failed ones included.
        Rule(q.REQUESTS, (Metric("te_request_count"),)),
        # Texts; a classifier's or reranker's are predictions.
        Rule(q.INFERENCES, (Metric("te_embed_success"), Metric("te_predict_success"))),
    ),
    # In texts.
    gauges=(Rule(q.WAITING, (Metric("te_queue_size"),)),),
    histograms=(
        Rule(q.E2E, (Metric("te_request_duration"),)),
        Rule(q.QUEUE, (Metric("te_request_queue_duration"),)),
        Rule(q.PROMPT_LENGTH, (Metric("te_request_input_length"),)),
    ),
    extra=(FAILURES.name,),
)


class TeiAdapter(Adapter):
    """One TEI server."""

    kind = EngineKind.TEI
    tables = TABLES
    prefixes = ("te_request_", "te_embed_", "te_predict_", "te_batch_", "te_queue_size")
    companions = (INFO,)
    from_documentation = True

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EngineReading:
        """The page in canonical quantities."""
        found = by_name(scan)
        figures = self.collect(found)
        model, version = add_info(figures, bodies, KEPT)
        for rank in figures.ranks.values():
            FAILURES.put(rank, figures, found)
        return self.reading(figures, model=model, model_root=model, version=version)
