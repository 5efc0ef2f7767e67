"""Entries of the KV cache that a token looks at, and that a sequence keeps, by the kind of attention.

A layer with a stride has one entry for each `stride` tokens; `limit` counts entries.
"""

from __future__ import annotations

from gpumon.specs.llm import Attention, Reach


def entries_read(attention: Attention, context_tokens: float) -> float:
    """Entries that one token with `context_tokens` in its context looks at, in each layer.

    A chunk begins anew each `limit` tokens: beyond the first one a token has seen half of its own on average.
    """
    if attention.reach is Reach.CROSS:
        return float(attention.limit)
    limit = attention.limit * attention.stride
    if not limit or context_tokens <= limit:
        return context_tokens / attention.stride
    if attention.reach is Reach.CHUNK:
        return limit / 2.0
    return float(attention.limit)


def mean_entries_read(attention: Attention, new_tokens: float, cached_tokens: float = 0.0) -> float:
    """The mean of `entries_read` over the tokens of a prompt: `new_tokens` behind `cached_tokens`.

    A causal token sees half of the new ones on average, one in a window at most that: the mean of min(p, limit) over
    the positions p. An encoder's tokens see the whole text.
    """
    if attention.reach is Reach.CROSS:
        return float(attention.limit)
    limit = attention.limit * attention.stride
    end = cached_tokens + new_tokens
    if attention.reach is Reach.ENCODER:
        if limit:
            return min(end, limit)
        return end
    if new_tokens <= 0.0:
        return entries_read(attention, cached_tokens)
    if not limit or end <= limit:
        return (cached_tokens + new_tokens / 2.0) / attention.stride
    return (_sum_read(attention, end) - _sum_read(attention, cached_tokens)) / new_tokens / attention.stride


def entries_kept(attention: Attention, context_tokens: float) -> float:
    """Entries that a sequence of `context_tokens` keeps in each layer; a window's engine frees what lies before it."""
    if attention.shared:
        return 0.0
    if attention.reach is Reach.CROSS:
        return float(attention.limit)
    held = context_tokens
    if attention.reach in (Reach.WINDOW, Reach.CHUNK) and attention.limit:
        held = min(held, attention.limit)
    return held / attention.stride


def _sum_read(attention: Attention, position: float) -> float:
    """The integral of `entries_read` x stride from the first token to `position`, of attention with a limit."""
    limit = float(attention.limit * attention.stride)
    if position <= limit:
        return position**2 / 2.0
    if attention.reach is Reach.CHUNK:
        full_chunks, rest = divmod(position, limit)
        return full_chunks * limit**2 / 2.0 + rest**2 / 2.0
    return limit**2 / 2.0 + limit * (position - limit)
