"""Service of an engine, as its row and its page need it: a figure that it cannot have is no gap."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.efficiency.service import ENCODERS, NO_DECODE, NO_TOKENS, ROUTER_KINDS, Service
from gpumon.figures.engine import ENGINE, RATES_OF_WORK
from gpumon.readings.flat import value_of
from gpumon.readings.frame import Phase
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine

_OF_DECODE: Final = frozenset(
    {
        "kv_usage_ratio",
        "kv_pool_tokens",
        "context_tokens",
        "batch",
        "steps_per_s",
        "preemptions_per_s",
        "decode_tokens_per_s",
        "cached_tokens_per_s",
        "mfu_prefill_ratio",
        "mfu_decode_ratio",
        "tokens_per_j",
        "prefill_flops_per_s",
        "decode_flops_per_s",
        "flops_per_decode_token",
        "ttft_s",
        "itl_s",
        "ttft_goal",
        "itl_goal",
        "tpot_goal",
    }
)
"""Fields of engines that generate tokens one after the other."""
_OF_LLMS: Final = frozenset({"prefill_tokens_per_s", "flops_per_s", "peak_flops_per_s", "flops_per_j"})
"""Fields of engines that read or generate tokens."""
_OF_MODEL: Final = frozenset({"params", "active_params", "layers"})
"""Fields of engines whose model is known by its config."""
FIELDS_LACKED: Final = {
    Service.GENERATION: frozenset[str](),
    Service.ENCODING: _OF_DECODE,
    Service.OTHER: _OF_DECODE | _OF_LLMS | _OF_MODEL,
    Service.TRAINING: (_OF_DECODE - {"tokens_per_j"})
    | _OF_MODEL
    | {"prefill_tokens_per_s", "requests_per_s", "running", "waiting", "queue_s", "e2e_s"},
    Service.ROUTING: _OF_DECODE | _OF_LLMS | _OF_MODEL | {"gpu_count", "running", "waiting", "queue_s"},
}
"""Fields of `Engine` that say nothing of such a service where they are missing."""
_LASTING_REASONS: Final = (Reason.NOT_EXPOSED, Reason.NOT_SUPPORTED)
"""Reasons of a figure that will not come later either."""


class MainRate(msgspec.Struct, frozen=True):
    """The rate in place of the decode rate."""

    per_s: Reading
    counted: str
    """The word for what it counts."""


def service_shown(engine: Engine) -> Service:
    """The service of an engine by its phase, its kind, and the rates that it never has; as `efficiency.service` finds
    it for a reading."""
    if engine.phase is Phase.TRAINING:
        return Service.TRAINING
    if engine.kind in ROUTER_KINDS:
        return Service.ROUTING
    if engine.kind in ENCODERS or engine.rates.decode_tokens_per_s == NO_DECODE:
        return Service.ENCODING
    rates = engine.rates
    if rates.decode_tokens_per_s == NO_TOKENS and rates.prefill_tokens_per_s == NO_TOKENS:
        return Service.OTHER
    return Service.GENERATION


def other_rate(engine: Engine) -> MainRate | None:
    """The rate of a training run, of a server of models that are no LLMs, or of a front end; None for all others."""
    service = service_shown(engine)
    if service not in (Service.TRAINING, Service.OTHER, Service.ROUTING):
        return None
    rows = (ENGINE["requests_per_s"],) if service is Service.ROUTING else RATES_OF_WORK
    rates = [MainRate(value_of(engine, row.field), row.short) for row in rows]
    for rate in rates:
        if not isinstance(rate.per_s, Missing):
            return rate
    for rate in rates:  # none is known: one that may still come
        if isinstance(rate.per_s, Missing) and rate.per_s.reason not in _LASTING_REASONS:
            return rate
    return None
