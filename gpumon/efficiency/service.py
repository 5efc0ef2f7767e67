"""What an engine does with its model: it decides which figures it can have at all, and which engines add up."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import EMBEDDINGS, SERVES, EngineKind, EngineReading, Phase
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine
from gpumon.specs.llm_names import llm_name

NO_DECODE: Final = Missing(Reason.NOT_SUPPORTED, "it generates no tokens")
NO_TOKENS: Final = Missing(Reason.NOT_SUPPORTED, "it serves no language model")
NO_SERVING: Final = Missing(Reason.NOT_SUPPORTED, "it trains")
DENOISES: Final = Missing(Reason.NOT_MODELLED, "a diffusion model: its steps denoise a canvas and are no tokens")
BY_NATURE: Final = frozenset({NO_DECODE, NO_TOKENS, NO_SERVING})
"""Why a figure can never be there: it is no gap, and there is nothing to be done about it."""
ENCODERS: Final = frozenset({EngineKind.TEI})
"""Kinds that turn text into vectors: each token of a text sees all others, and none is generated."""
_OF_TOKENS: Final = (q.DECODE_TOKENS, q.DECODE_RATE, q.PREFILL_COMPUTED, q.PREFILL_RATE)


class Service(Enum):
    """The kinds of work."""

    GENERATION = "generation"
    """Prefill and decode."""
    ENCODING = "encoding"
    """Prefill alone."""
    OTHER = "other"
    """A model that is no LLM: items, no tokens."""
    TRAINING = "training"


def service_of(reading: EngineReading) -> Service:
    """By phase, kind, and what is counted."""
    if reading.phase is Phase.TRAINING:
        return Service.TRAINING
    if reading.kind in ENCODERS or reading.info.get(SERVES) == EMBEDDINGS:
        return Service.ENCODING
    no_llm = q.INFERENCES in reading.live and not any(quantity in reading.live for quantity in _OF_TOKENS)
    return Service.OTHER if no_llm else Service.GENERATION


WITHOUT_DECODE: Final = {
    Service.ENCODING: NO_DECODE,
    Service.OTHER: NO_TOKENS,
    Service.TRAINING: NO_SERVING,
}
"""Why there is no decode."""
WITHOUT_PREFILL: Final = {Service.OTHER: NO_TOKENS, Service.TRAINING: NO_SERVING}
"""Why there is no prefill."""

FRONTENDS: Final = frozenset({EngineKind.DYNAMO})
"""Kinds that pass requests on: their workers hold the GPUs, serve the model, and count the same tokens."""


def adding_up(engines: Iterable[Engine]) -> list[Engine]:
    """The engines of a sum, each token and request in it once: without frontends of models that others here serve."""
    every = list(engines)
    served = {model_key(engine.model) for engine in every if engine.kind not in FRONTENDS}
    return [engine for engine in every if engine.kind not in FRONTENDS or model_key(engine.model) not in served]


@lru_cache(maxsize=512)
def model_key(model: str) -> tuple[str, ...]:
    """What is equal for the names of one model, however they are written; empty for no name."""
    return llm_name(model).key or ((model,) if model else ())
