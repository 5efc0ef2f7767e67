"""How many cached entries a token looks at, by the kind of attention, and how many a sequence keeps."""

from __future__ import annotations

import math

from gpumon.specs.llm import Attention, Reach


def seen(attention: Attention, context_tokens: float) -> float:
    """Entries that one token with `context_tokens` in its context looks at, in each layer.

    A chunk begins anew each `limit` tokens: beyond the first one a token has seen half of its own on average.
    """
    limit = _limit_tokens(attention)
    if attention.reach is Reach.CHUNK and context_tokens > limit:
        return limit / 2.0
    return min(context_tokens, limit) / attention.stride


def mean_seen(attention: Attention, new_tokens: float, cached_tokens: float = 0.0) -> float:
    """The mean of `seen` over the tokens of a prompt: `new_tokens` behind `cached_tokens`.

    A causal token sees half of the new ones on average, one in a window at most that: the mean of min(p, limit) over
    the positions p. An encoder's tokens see the whole text.
    """
    if attention.reach is Reach.ENCODER:
        return min(cached_tokens + new_tokens, _limit_tokens(attention))
    if new_tokens <= 0.0:
        return seen(attention, cached_tokens)
    whole = _sum_seen(attention, cached_tokens + new_tokens) - _sum_seen(attention, cached_tokens)
    return whole / new_tokens / attention.stride


def kept(attention: Attention, context_tokens: float) -> float:
    """Entries that a sequence of `context_tokens` keeps in each layer; a window's engine frees what lies before it."""
    if attention.shared:
        return 0.0
    held = context_tokens
    if attention.reach in (Reach.WINDOW, Reach.CHUNK) and attention.limit:
        held = min(held, attention.limit)
    return held / attention.stride


def _limit_tokens(attention: Attention) -> float:
    return float(attention.limit * attention.stride) if attention.limit else math.inf


def _sum_seen(attention: Attention, position: float) -> float:
    """The integral of `seen` x stride from the first token to `position`."""
    limit = _limit_tokens(attention)
    if position <= limit:
        return position**2 / 2.0
    if attention.reach is Reach.CHUNK:
        chunks, rest = divmod(position, limit)
        return chunks * limit**2 / 2.0 + rest**2 / 2.0
    return limit**2 / 2.0 + limit * (position - limit)
