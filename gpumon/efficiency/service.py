"""Kind of work that an engine does: it decides which figures there can be, and which engines add up."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import (
    DIFFUSION,
    EMBEDDINGS,
    MODEL_AWAITED,
    SERVES,
    EndpointState,
    EngineKind,
    EngineReading,
    Phase,
)
from gpumon.readings.missing import WARMING_UP, Missing, Reason
from gpumon.readings.snapshot import Engine
from gpumon.specs.llm_names import llm_name

NO_DECODE: Final = Missing(Reason.NOT_SUPPORTED, "it generates no tokens")
NO_TOKENS: Final = Missing(Reason.NOT_SUPPORTED, "it serves no language model")
NO_SERVING: Final = Missing(Reason.NOT_SUPPORTED, "it trains")
NO_WORK: Final = Missing(Reason.NOT_SUPPORTED, "it passes requests on: its backends have tokens, KV cache and GPUs")
DENOISES: Final = Missing(Reason.NOT_MODELLED, "a diffusion model: its steps denoise a canvas and are no tokens")
BY_NATURE: Final = frozenset({NO_DECODE, NO_TOKENS, NO_SERVING, NO_WORK})
"""Why a figure can never be there: it is no gap, and there is nothing to be done about it."""
ENCODERS: Final = frozenset({EngineKind.TEI})
"""Kinds that turn text into vectors: each token of a text sees all others, and none is generated."""
NO_LLMS: Final = frozenset({EngineKind.SGLANG_DIFFUSION})
"""Kinds that serve no language model."""
_TOKEN_COUNTS: Final = (q.DECODE_TOKENS, q.DECODE_RATE, q.PREFILL_COMPUTED, q.PREFILL_RATE)
"""Quantities of which a server of a language model has at least one."""


class Service(Enum):
    """The kinds of work."""

    GENERATION = "generation"
    """Prefill and decode."""
    ENCODING = "encoding"
    """Prefill alone."""
    OTHER = "other"
    """A model that is no LLM: items, no tokens."""
    TRAINING = "training"
    ROUTING = "routing"
    """No work on a GPU: requests go on to backends."""


ROUTER_KINDS: Final = frozenset(
    {EngineKind.LITELLM, EngineKind.GATEWAY, EngineKind.VLLM_STACK, EngineKind.VLLM_ROUTER, EngineKind.SMG}
)
"""Kinds that pass requests on and count nothing of the work: their figures are never in a sum."""
FRONTENDS: Final = ROUTER_KINDS | {EngineKind.DYNAMO}
"""Kinds that pass requests on: their workers hold the GPUs, serve the model, and count the same tokens."""


def service_of(reading: EngineReading) -> Service:
    """The kind of work that an engine does, by its phase, its kind, and what it counts."""
    if reading.phase is Phase.TRAINING:
        return Service.TRAINING
    if reading.kind in ROUTER_KINDS:
        return Service.ROUTING
    if reading.kind in ENCODERS or reading.info.get(SERVES) == EMBEDDINGS:
        return Service.ENCODING
    if reading.kind in NO_LLMS:
        return Service.OTHER
    counts_tokens = any(quantity in reading.live for quantity in _TOKEN_COUNTS)
    if q.INFERENCES in reading.live and not counts_tokens:
        return Service.OTHER
    return Service.GENERATION


WITHOUT_DECODE: Final = {
    Service.ENCODING: NO_DECODE,
    Service.OTHER: NO_TOKENS,
    Service.TRAINING: NO_SERVING,
    Service.ROUTING: NO_WORK,
}
"""Why there is no decode."""
WITHOUT_PREFILL: Final = {Service.OTHER: NO_TOKENS, Service.TRAINING: NO_SERVING, Service.ROUTING: NO_WORK}
"""Why there is no prefill."""

NO_LLM_IN_TRAINING: Final = Missing(
    Reason.NOT_EXPOSED, "a training run has no model: its feed says the FLOPs of a token"
)
NO_COST: Final = Missing(Reason.UNKNOWN_MODEL, "the FLOPs of a token are not known")
NO_BYTES: Final = {
    Service.ENCODING: Missing(Reason.NOT_MODELLED, "how often an encoder reads its weights is not exported"),
    Service.OTHER: Missing(Reason.NOT_MODELLED, "it serves no language model"),
    Service.TRAINING: Missing(Reason.NOT_MODELLED, "what a training step reads is not modelled"),
    Service.ROUTING: NO_WORK,
}
"""Why the bytes that it reads are not known."""


def no_formula(reading: EngineReading, service: Service) -> Missing:
    """Why neither its FLOPs nor its bytes can be worked out, of a service that is no generation of tokens."""
    if DIFFUSION in reading.info:
        return DENOISES
    return NO_BYTES[service]


def no_model(reading: EngineReading) -> Missing:
    """Why an engine has no model: it is still looked up, not known, or nobody answers who could tell it."""
    if reading.training is not None:
        return NO_LLM_IN_TRAINING
    if reading.kind in ROUTER_KINDS:
        return NO_WORK
    if MODEL_AWAITED in reading.info:
        return WARMING_UP
    if reading.state is not EndpointState.OK and "model_missing" not in reading.info:
        return Missing(Reason.UNREACHABLE)
    return Missing(Reason.UNKNOWN_MODEL)


def no_flops(reading: EngineReading) -> Missing | None:
    """Why no FLOPs can be worked out of what an engine does; None where they can."""
    service = service_of(reading)
    if service is Service.TRAINING:
        # A feed says the FLOPs of a token itself; other training runs do not, and have no model to work them out.
        if reading.training is None:
            return NO_COST
        return None
    if service in (Service.OTHER, Service.ROUTING):
        return no_formula(reading, service)
    if reading.llm is None:
        return no_model(reading)
    return None


def turned_away_requests(running: float, served_per_s: float, rejected_per_s: float) -> float:
    """Requests that would run beside the `running` ones had none been turned away.

    By Little's law: those that come in a second x how long one that is let in runs.
    """
    if served_per_s <= 0.0:
        return 0.0
    return rejected_per_s * running / served_per_s


def engines_in_sums(engines: Iterable[Engine]) -> list[Engine]:
    """The engines of a sum, each token and request in it once: without routers, and without frontends of models that
    others here serve."""
    without_routers = [engine for engine in engines if engine.kind not in ROUTER_KINDS]
    served_models = {model_key(engine.model) for engine in without_routers if engine.kind not in FRONTENDS}
    return [
        engine
        for engine in without_routers
        if engine.kind not in FRONTENDS or model_key(engine.model) not in served_models
    ]


@lru_cache(maxsize=512)
def model_key(model: str) -> tuple[str, ...]:
    """Key that is equal for all names of one model, however they are written; empty for no name."""
    key = llm_name(model).key
    if key or not model:
        return key
    return (model,)
