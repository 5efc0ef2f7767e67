"""TGI (text-generation-inference): a page without model, and /info beside it.

Names and meaning: backends/v3/src/backend.rs and router/src/server.rs of huggingface/text-generation-inference. Its
counters carry no `_total`. It tells neither the time to the first token nor which prompt tokens came from its prefix
cache (USE_PREFIX_CACHING), so computed prefill is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading
from gpumon.sources.engines import json_body
from gpumon.sources.engines.adapter import (
    NO_BODIES,
    Adapter,
    Bodies,
    Companion,
    Figures,
    Found,
    Metric,
    Rank,
    Rule,
    Tables,
    by_name,
    picked,
)
from gpumon.sources.engines.derived import Failures, Integral
from gpumon.sources.exposition import Scan
from gpumon.specs import hints

PREFIX: Final = "tgi_"
INFO: Final = Companion("/info", 30.0)
"""Hugging Face's servers (TGI, TEI) tell there which model they serve; it does not change while the process lives."""
EMITTED: Final = Metric("tgi_request_skipped_tokens_count")
"""Of a request, each time that it is given tokens: a summary, in older versions a histogram."""
SKIPPED: Final = Metric("tgi_request_skipped_tokens_sum")
"""Tokens beyond the first each time: accepted ones of a draft."""
DECODES: Final = Metric("tgi_batch_inference_count", "method", "decode")
BATCH: Final = Metric("tgi_batch_current_size")
FAILURES: Final = Failures("tgi_request_failure", "err", client="dropped")
KEPT: Final = {
    "model_dtype": hints.WEIGHT_PRECISION,
    "max_total_tokens": hints.CONTEXT_LEN,
    "max_input_tokens": "max_input_tokens",
    "max_concurrent_requests": "max_concurrent_requests",
    "max_batch_total_tokens": "max_batch_total_tokens",
    "max_batch_size": "max_batch_size",
}
"""Field of /info -> key in `info`."""

TABLES: Final = Tables(
    rank_label="",
    counters=(
        # At validation: before the request waits, and cached tokens included.
        Rule(q.PROMPT_TOKENS, (Metric("tgi_request_input_length_sum", advance=Advance.PROMPT),)),
        # The second of backends that tell nothing of their batches (llama.cpp's, TensorRT-LLM's).
        Rule(q.DECODE_TOKENS, (EMITTED, Metric("tgi_request_generated_tokens_sum", advance=Advance.END))),
        # Prefill and decode are passes of their own, and each reads the weights.
        Rule(q.STEPS, (Metric("tgi_batch_inference_success"), Metric(DECODES.name))),
        Rule(q.REQUESTS, (Metric("tgi_request_success"),)),
        Rule(q.ACCEPTED_TOKENS, (SKIPPED,)),
    ),
    gauges=(
        Rule(q.RUNNING, (BATCH,)),
        Rule(q.WAITING, (Metric("tgi_queue_size"),)),
    ),
    histograms=(
        # A mean of each request, prefill included.
        Rule(q.ITL, (Metric("tgi_request_mean_time_per_token_duration"),)),
        Rule(q.E2E, (Metric("tgi_request_duration"),)),
        Rule(q.QUEUE, (Metric("tgi_request_queue_duration"),)),
        Rule(q.PROMPT_LENGTH, (Metric("tgi_request_input_length"),)),
        Rule(q.OUTPUT_LENGTH, (Metric("tgi_request_generated_tokens"),)),
    ),
    extra=(FAILURES.name,),
)


class Told(NamedTuple):
    """What /info says; text from outside, empty where it does not say."""

    model: str
    """Hugging Face id, or the folder that it was loaded from."""
    version: str


def add_info(figures: Figures, bodies: Bodies, kept: Mapping[str, str]) -> Told:
    """The answer of /info, with its fields `kept` under their keys in `info`."""
    said = json_body.mapping(json_body.decoded(bodies.get(INFO.path, b"")))
    figures.info.update((key, text) for field, key in kept.items() if (text := json_body.text(said.get(field))))
    model = json_body.text(said.get("model_id"))
    if model:
        figures.info[hints.MODEL_PATH] = model
    kind = said.get("model_type")
    named = next(iter(kind), "") if isinstance(kind, dict) else kind
    if isinstance(named, str) and named:
        figures.info["model_type"] = named[: json_body.MOST_CHARS]
    return Told(model, json_body.text(said.get("version")))


class TgiAdapter(Adapter):
    """One TGI server."""

    kind = EngineKind.TGI
    tables = TABLES
    prefixes = (PREFIX,)
    companions = (INFO,)
    from_documentation = True

    def __init__(self) -> None:
        super().__init__()
        self._decoded = Integral()
        self._added_up = False

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EngineReading:
        """The page in canonical quantities."""
        found = by_name(scan)
        figures = self.collect(found)
        model, version = add_info(figures, bodies, KEPT)
        for rank in figures.ranks.values():
            FAILURES.put(rank, figures, found)
            self._decode(rank, figures, found)
        return self.reading(
            figures, model=model, model_root=model, version=version, exact_steps=q.STEPS in figures.live
        )

    def _decode(self, rank: Rank, figures: Figures, found: Mapping[str, Found]) -> None:
        """Generated tokens: one each time that a request is given some, and those beyond it; where that is not told,
        steps x batch size, without each request's first token."""
        live = figures.live
        decodes, batch = picked(found, DECODES), picked(found, BATCH)
        if live.get(q.DECODE_TOKENS) == str(EMITTED):
            beyond = rank.counters.get(q.ACCEPTED_TOKENS)
            if beyond is None:
                # Half of it would read as a restart.
                del rank.counters[q.DECODE_TOKENS], live[q.DECODE_TOKENS]
                return
            if beyond:
                rank.counters[q.DRAFTS] = rank.counters[q.DECODE_TOKENS]
                live[q.DRAFTS] = str(EMITTED)
            else:
                del rank.counters[q.ACCEPTED_TOKENS], live[q.ACCEPTED_TOKENS]
            rank.counters[q.DECODE_TOKENS] += beyond
            live[q.DECODE_TOKENS] = f"{EMITTED} + _sum"
        elif decodes and batch and self._chosen.get(q.DECODE_TOKENS) != 0:
            steps = sum(value for _, value in decodes)
            rank.counters[q.DECODE_TOKENS] = self._decoded.add(steps, max(value for _, value in batch))
            live[q.DECODE_TOKENS] = f"{DECODES} x {BATCH}, added up poll by poll"
            figures.advance[q.DECODE_TOKENS] = Advance.DERIVED
            self._added_up = True
        elif self._added_up and q.DECODE_TOKENS in live:
            # The tokens of ended requests do not go on from there.
            del rank.counters[q.DECODE_TOKENS], live[q.DECODE_TOKENS]
            figures.advance.pop(q.DECODE_TOKENS, None)
