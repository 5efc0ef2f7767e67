"""Dimensions of an LLM, as far as FLOPs and bytes need them.

Recordings hold `LlmSpec`, `Attention` and `State` as lists, whose fields go by their place: a new field stands last.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

import msgspec

from gpumon.specs.precision import Precision


class Reach(str, Enum):
    """Reach of a token in an attention layer."""

    FULL = "full"
    WINDOW = "window"
    """The last `limit` tokens."""
    CHUNK = "chunk"
    """The tokens before it in its own chunk of `limit` tokens (Llama 4)."""
    TOP = "top"
    """The `limit` entries that an indexer chose among all (DeepSeek sparse attention, MiniMax-M3)."""
    INDEX = "index"
    """The keys of such an indexer: all of them are scored."""
    ENCODER = "encoder"
    """All tokens of the text, also those behind it; nothing is cached."""
    CROSS = "cross"
    """The `limit` positions of an encoder's output, from the first token on: keys and values made once per request."""


class Attention(msgspec.Struct, frozen=True, array_like=True):
    """One way in which layers look back at the context, and what they keep of it.

    A layer may look back in several ways: sparse attention at the entries that its indexer chose, and its indexer at
    all of its own keys; compressed attention at a window of tokens and at one entry per `stride` tokens.
    """

    reach: Reach
    layers: int
    decode_flops: float
    """FLOPs per layer, new token and entry looked at: QK^T and AV, 2*heads*(key dim + value dim)."""
    prefill_flops: float
    """FLOPs of a prompt's tokens likewise; MLA keeps latents, and multiplies full keys and values in prefill."""
    elements: float
    """Cached elements of one entry and layer, one copy: what a step reads per entry looked at."""
    kv_heads: int = 1
    """KV heads over which tensor parallelism can divide the cache; 1 (MLA, indexers): each rank has all of it."""
    limit: int = 0
    """Most entries looked at; 0: all."""
    stride: int = 1
    """Tokens per cached entry."""
    shared: bool = False
    """Reads the cache of another layer, keeps nothing of its own."""
    bytes_per_element: float = 0.0
    """Format of a cache that has its own (an indexer's FP8 keys); 0: the KV cache's."""


MODEL_FORMAT_BYTES: Final = 2.0
"""Bytes per element of a state that is kept in the type of the model, 16 bit."""
# Kinds of states that other code asks for.
CONVOLUTION: Final = "convolution"
LIGHTNING: Final = "lightning"


class State(msgspec.Struct, frozen=True, array_like=True):
    """State that layers keep of a sequence whatever its length: a recurrent state or the tail of a convolution."""

    kind: str
    """Name of what it is: `mamba2`, `delta net`, `convolution`, ..."""
    layers: int
    elements: float
    """Elements of one sequence, per layer."""
    flops: float
    """FLOPs of updating and reading it, per token and layer."""
    bytes_per_element: float = MODEL_FORMAT_BYTES


class LlmSpec(msgspec.Struct, frozen=True, array_like=True):
    """Dimensions of one LLM. Counts of parameters are numbers (not billions); `source` says who gave them."""

    name: str
    source: str
    params: float
    """All parameters."""
    matmul_params: float
    """N_mm: parameters multiplied per token: active experts, attention, LM head; no embedding look-up.

    What runs several times per token (Zamba's shared blocks) counts as often.
    """
    head_params: float
    """Part of `matmul_params` in the LM head, vocabulary x hidden: prefill needs it once per request; 0: no head."""
    vocab: int
    hidden: int
    layers: int
    heads: int
    """Query heads, where layers differ the most."""
    kv_heads: int
    """KV heads of a layer; where layers differ, the most of one, or in a GGUF file those of most layers. 1 with MLA."""
    head_dim: int
    """Width of a key, in most layers."""
    attention: tuple[Attention, ...] = ()
    states: tuple[State, ...] = ()
    experts: int = 0
    """Routed experts of one MoE layer; 0 is dense."""
    experts_per_token: int = 0
    expert_params: float = 0.0
    """Parameters of one expert of each MoE layer, all layers added up."""
    precision: Precision = Precision.BF16
    """Format that most of a token's multiplied weights are stored in."""
    weight_only: bool = False
    """Weights of that format are widened before the arithmetic (AWQ, GPTQ, MXFP4 on Hopper): 16-bit peak."""
    kv_precision: Precision = Precision.BF16
    read_bytes: float = 0.0
    """Bytes of all matmul weights, every expert included: what a step with all experts touched reads."""
    expert_read_bytes: float = 0.0
    """Bytes of one expert of each MoE layer, all layers added up."""
    attention_read_bytes: float = 0.0
    """Part of `read_bytes` in attention and state layers, which each data-parallel rank holds whole; 0: not known."""
    not_modelled: tuple[str, ...] = ()
    """Parts that the figures leave out (vision encoder, drafts, ...)."""
    stored_bytes: float = 0.0
    """Bytes of all stored weights, where a file's own table or the engine tells them; 0: they follow from the rest."""
    max_context: int = 0
    """Tokens, as published; 0: not known."""
    activations: Precision | None = None
    """Format of what most of its weights are multiplied with, where the checkpoint tells one narrower than 16 bit."""
    whole_bytes: float = 0.0
    """Bytes of the matrices that each tensor-parallel rank holds whole: routers, indexers, projections into latents."""
    kv_matrix_bytes: float = 0.0
    """Bytes of the matrices of keys and values, which ranks beyond the number of KV heads hold once more."""
    flops_unknown: str = ""
    """Why the FLOPs of a token are not known; empty where they are."""
    known_blocks: int = 0
    """Mixers (attention, recurrences) and feed-forward parts of all layers; 0: not known."""
    known_moe_layers: int = 0
    """Layers with routed experts; 0: not known, or dense."""

    @property
    def blocks(self) -> int:
        """Mixers and feed-forward parts of all layers: two per layer, unless the model is known to have others."""
        return self.known_blocks or 2 * self.layers

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts: all of a mixture of experts, unless it is known to have dense ones."""
        if not self.experts:
            return 0
        return self.known_moe_layers or self.layers

    @property
    def latent(self) -> bool:
        """Whether its cache holds latents that tensor parallelism cannot divide (MLA and alike)."""
        for attention in self.attention:
            # Only MLA multiplies differently in prefill.
            if attention.kv_heads == 1 and attention.decode_flops != attention.prefill_flops:
                return True
        return False

    def attention_layers(self, *reaches: Reach) -> int:
        """Layers that look back in one of these ways."""
        return sum(attention.layers for attention in self.attention if attention.reach in reaches)

    @property
    def state_layers(self) -> int:
        """Layers with a recurrent state; without any, the layers with a convolution alone."""
        recurrent = sum(state.layers for state in self.states if state.kind != CONVOLUTION)
        return recurrent or sum(state.layers for state in self.states)

    @property
    def uniform(self) -> bool:
        """Whether each token of the cache costs the same whatever the context: full attention alone."""
        return not self.states and all(attention.reach in (Reach.FULL, Reach.ENCODER) for attention in self.attention)


def merge_layers(attentions: Iterable[Attention]) -> tuple[Attention, ...]:
    """The attentions, those that differ only in their layers merged."""
    layers: dict[Attention, int] = {}
    for attention in attentions:
        without_layers = msgspec.structs.replace(attention, layers=0)
        layers[without_layers] = layers.get(without_layers, 0) + attention.layers
    return tuple(
        msgspec.structs.replace(without_layers, layers=count) for without_layers, count in layers.items() if count
    )


def grouped_attention(
    layers: int, heads: int, kv_heads: int, head_dim: int, reach: Reach = Reach.FULL, limit: int = 0, value_dim: int = 0
) -> Attention:
    """Multi-head, grouped-query or multi-query attention: QK^T and AV are 2*H*d FLOPs each (PaLM, appendix B).

    `value_dim` is 0 where values are as wide as keys.
    """
    dims = head_dim + (value_dim or head_dim)
    flops = 2.0 * heads * dims
    if reach is Reach.ENCODER:
        cached = 0.0
    else:
        cached = float(kv_heads * dims)
    return Attention(
        reach=reach,
        layers=layers,
        decode_flops=flops,
        prefill_flops=flops,
        elements=cached,
        kv_heads=kv_heads,
        limit=limit,
    )


def latent_attention(
    layers: int,
    heads: int,
    rank: int,
    rope_dim: int,
    key_dim: int,
    value_dim: int,
    reach: Reach = Reach.FULL,
    limit: int = 0,
) -> Attention:
    """MLA. Decode is absorbed, against the latent itself: 2*H*((rank + rope) + rank); prefill 2*H*(key + value dim).

    DeepSeek-V2, arXiv 2405.04434; the cache is one latent and one rope key per layer.
    """
    decode = 2.0 * heads * (2 * rank + rope_dim)
    prefill = 2.0 * heads * (key_dim + value_dim)
    return Attention(
        reach=reach,
        layers=layers,
        decode_flops=decode,
        prefill_flops=prefill,
        elements=float(rank + rope_dim),
        kv_heads=1,
        limit=limit,
    )
