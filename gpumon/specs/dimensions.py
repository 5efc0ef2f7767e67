"""The dimensions of LLMs: bounds beyond which none makes sense, and what the parameters of such a model can be."""

from __future__ import annotations

from typing import Final

import msgspec

# More than these make no sense: a file that has more is broken, or made to do harm.
MOST_LAYERS: Final = 2000
MOST_HEADS: Final = 100_000
"""Heads of a layer."""
LARGEST_WIDTH: Final = 1_000_000
"""Elements of the residual stream, or of another vector of a whole layer."""
LARGEST_HEAD_DIM: Final = 65_536
"""Elements of a head, or of a recurrent state per channel."""
MOST_EXPERTS: Final = 65_536
"""Routed experts of a layer."""
LONGEST_CONTEXT: Final = 100_000_000
"""Tokens of a context, a window or a chunk."""

_LARGEST_FACTOR: Final = 5.0
"""Largest factor between an LLM's multiplied parameters and the size of its dimensions, in either direction.

Of the catalogue the farthest up is Qwen2-57B-A14B (3.7 times, a shared expert of 5.7 x hidden beside eight more), then
Gemma 3 270M (3.0, a head as large as its layers) and Gemma 2 27B (2.6, MLPs of 8 x hidden); the farthest down is
DeepSeek-V4-Pro (0.6, heads wider than their weights), then those whose layers have no MLP of their own (Nemotron-H:
0.7).
"""
MOST_VOCAB: Final = 300_000
"""Vocabulary of a model whose own is not known. The largest in use: 262,208 (Gemma 3)."""


class UsedParameters(msgspec.Struct, frozen=True):
    """Parameters used per token: what is typical of some dimensions, and the bounds of what can be."""

    typical: float
    least: float
    most: float


def used_parameters(
    layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, vocab: int = 0
) -> UsedParameters:
    """The parameters that a token goes through: projections of attention, and MLPs of 8 x hidden^2 a layer.

    8 x hidden^2 are two matrices of 4 x hidden (GPT), or three of 8/3 x hidden (Llama). Of a mixture of experts the
    experts of one token are as large as that in all. `most` has the look-up table and the LM head in it.
    """
    attention = 2 * hidden * head_dim * (heads + kv_heads)
    typical = float(layers * (attention + 8 * hidden**2))
    tables = 2 * (vocab or MOST_VOCAB) * hidden
    return UsedParameters(typical=typical, least=typical / _LARGEST_FACTOR, most=typical * _LARGEST_FACTOR + tables)
