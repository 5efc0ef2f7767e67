"""What a [[feed]] of the config says beside its quantities: where it is, on which GPUs, and what its tokens cost."""

from __future__ import annotations

import os
from typing import Any, Final

import msgspec

from gpumon.config.schema import Endpoint, Feed
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading, Phase, Training
from gpumon.specs.llm import LlmSpec

FLOPS_PER_PARAMETER: Final = 6.0
"""Of one trained token: 2 forward and 4 backward (Kaplan et al. 2020, section 2.1)."""
PROMPTS: Final = frozenset({q.PROMPT_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED})
FILE: Final = "file:"
"""The URL of a file feed begins so."""


def url_of(feed: Feed) -> str:
    """Its url as it stands in the config; of a file, `file:` with the full path."""
    return feed.url or FILE + os.path.abspath(os.path.expanduser(feed.file or ""))  # noqa: PTH100, PTH111


def endpoint_of(feed: Feed) -> Endpoint:
    """The feed as an endpoint, for all that endpoints and feeds have in common."""
    return Endpoint(
        url=url_of(feed),
        name=feed.name,
        model=feed.model,
        gpus=feed.gpus,
        gpu_type=feed.gpu_type,
        gpu_count=feed.gpu_count,
        api_key_env=feed.api_key_env,
        api_key_file=feed.api_key_file,
        api_key_user=feed.api_key_user,
        tls_ca=feed.tls_ca,
        tls_verify=feed.tls_verify,
        context_tokens=feed.context_tokens,
    )


def as_feed(reading: EngineReading, feed: Feed, part: str) -> EngineReading:
    """A blank reading as one of this feed; `part` is its name where others read the same server or file."""
    changes: dict[str, Any] = {
        "kind": EngineKind.GENERIC,
        "phase": Phase(feed.phase),
        "model": feed.model,
        "part": part,
    }
    return msgspec.structs.replace(reading, training=_training(feed), **changes)


def advance_of(quantity: str, feed: Feed) -> Advance:
    """When a quantity of a feed moves: counters with the work, unless the user says at the end; gauges as they are.

    A server may book a whole prompt at once, when it is done: no rate of it is shorter than the times to first token
    where these are told.
    """
    if quantity in feed.at_end:
        return Advance.END
    if quantity in PROMPTS and q.TTFT in feed.quantities:
        return Advance.PROMPT
    return Advance.SAMPLED if quantity.endswith("_per_s") else Advance.LIVE


def costed(reading: EngineReading, llm: LlmSpec | None) -> Training | None:
    """How its tokens become FLOPs, once its model is known; None where nobody said what a token costs."""
    training = reading.training
    if training is None or training.flops_per_token > 0.0:
        return training
    if llm is None:
        return None
    idle = (llm.experts - llm.experts_per_token) * llm.expert_params if llm.experts else 0.0
    return msgspec.structs.replace(training, flops_per_token=FLOPS_PER_PARAMETER * (llm.params - idle))


def _training(feed: Feed) -> Training | None:
    if feed.phase != "training":
        return None
    by_size = FLOPS_PER_PARAMETER * 1e9 * (feed.params_b or 0.0)
    return Training(feed.flops_per_token or by_size, feed.tokens_per_sample, feed.precision)
