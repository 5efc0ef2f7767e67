"""The common part of feeds with a page and feeds with a file: endpoint, kind of reading, when their counts move."""

from __future__ import annotations

import os
from typing import Any, Final

import msgspec

from gpumon.config.schema import Endpoint, Feed
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading, Phase, Training
from gpumon.sources.endpoint_url import FILE
from gpumon.specs.llm import LlmSpec

_FLOPS_PER_PARAMETER: Final = 6.0
"""FLOPs of one trained token per parameter: 2 forward and 4 backward (Kaplan et al. 2020, section 2.1)."""
_PROMPTS: Final = frozenset({q.PROMPT_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED})
"""Quantities of prompts, which a server may count when a prompt is done."""


def url_of(feed: Feed) -> str:
    """The feed's url as it stands in the config; for a file, `file:` with the full path."""
    return feed.url or FILE + os.path.abspath(os.path.expanduser(feed.file or ""))  # noqa: PTH100, PTH111 - a path as text, without its links resolved


def endpoint_of(feed: Feed) -> Endpoint:
    """The feed as an endpoint, for all that endpoints and feeds have in common."""
    settings: dict[str, Any] = {"url": url_of(feed)}
    for name in Endpoint.__struct_fields__:
        if name in Feed.__struct_fields__ and name != "url":
            settings[name] = getattr(feed, name)
    return msgspec.convert(settings, Endpoint)


def as_feed(reading: EngineReading, feed: Feed, part: str) -> EngineReading:
    """The reading with the kind, phase and model of this feed, and for training with the FLOPs of a token.

    `part` is the feed's name where others read the same server or file, else empty.
    """
    training = None
    if feed.phase == "training":
        flops_per_token = feed.flops_per_token or _FLOPS_PER_PARAMETER * 1e9 * (feed.params_b or 0.0)
        training = Training(flops_per_token, feed.tokens_per_sample, feed.precision)
    return msgspec.structs.replace(
        reading, kind=EngineKind.GENERIC, phase=Phase(feed.phase), model=feed.model, part=part, training=training
    )


def advance_of(quantity: str, feed: Feed) -> Advance:
    """When a quantity of a feed moves: with the work, unless the user says at the end of a request.

    A server may count a whole prompt at once, when it is done. Where times to first token are told, rates of prompts
    are therefore taken over no shorter time than those.
    """
    if quantity in feed.at_end:
        return Advance.END
    if quantity in _PROMPTS and q.TTFT in feed.quantities:
        return Advance.PROMPT
    if quantity.endswith("_per_s"):
        return Advance.SAMPLED
    return Advance.LIVE


def training_with_cost(training: Training, llm: LlmSpec | None) -> Training | None:
    """The training with the FLOPs of a token, by the config or the model; None where nobody said what a token costs."""
    if training.flops_per_token > 0.0:
        return training
    if llm is None:
        return None
    # Those of the experts that a token is not routed to.
    unused_params = (llm.experts - llm.experts_per_token) * llm.expert_params if llm.experts else 0.0
    return msgspec.structs.replace(training, flops_per_token=_FLOPS_PER_PARAMETER * (llm.params - unused_params))
