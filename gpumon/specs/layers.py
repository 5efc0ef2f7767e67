"""One block of a layer, by its fields in a Hugging Face config: its matrices, its cache and its reach.

Each function is the formula sheet of one kind of block. Matrices have the names of Llama's kin; an architecture says
what its checkpoints call them instead. Biases, norms and convolution kernels are left out (below 0.8% of any model
that is served). Sources: the modelling code of transformers 5, held to it by `tests/data/oracle`.

FLOPs of a recurrent state are the multiplications, additions and divisions of its recurrence. Left out are
exponentials, roots and maxima, and what makes the gates and decays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Final, NamedTuple

import msgspec

from gpumon.specs.dimensions import LARGEST_HEAD_DIM, LARGEST_WIDTH, LONGEST_CONTEXT, MOST_EXPERTS, MOST_HEADS
from gpumon.specs.fields import Fields, json_text
from gpumon.specs.llm import (
    CONVOLUTION,
    LIGHTNING,
    MODEL_FORMAT_BYTES,
    Attention,
    Reach,
    State,
    grouped_attention,
    latent_attention,
)
from gpumon.specs.modules import ATTENTION, EXPERTS, INDEXER, MLP, NUMBER, ROUTER, SHARED, STATE, TABLES, Module, matrix

INDEXER_KEY_BYTES: Final = 1.03125
"""An indexer's keys are FP8 with one 4-byte scale per 128 elements (vLLM, SGLang: 132 bytes per token and layer)."""
STATE_BYTES: Final = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
"""Format of a recurrent state -> bytes per element."""
_QUERY_HEADS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
"""Names of the field with the heads of queries."""
_KV_HEADS: Final = (
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups", "multi_query_group_num", "kv_n_heads",
)  # fmt: skip
"""Names of the field with the heads of keys and values."""
_HEAD_DIM: Final = ("head_dim", "attention_head_dim", "kv_channels", "dim_head")
"""Names of the field with the size of a head."""
_MLP_SIZES: Final = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "hidden_dim")
"""Names of the field with the width of the MLP."""
ENGRAM_TABLE: Final = "engram.embed"
"""Module of a layer's table of n-grams."""
_MOST_TABLE_ROWS: Final = 10_000_000_000
"""Rows of a table of n-grams; DeepSeek-V4.1-Flash has 384 million in each of two."""
_GATE_IN_QUERIES: Final = "attn_output_gate"
"""Qwen's field for the gate of its attention, whose rows are those of the projection of queries."""
_LAGUNA_GATE: Final = "gating"
"""Laguna's field for the gate of its attention: one number per head, unless it says `per-element`."""
_INDEX_TOP_K: Final = 2048
"""`index_topk` of DeepSeek-V3.2 and GLM-5, where a config leaves it out."""
_OLD_INDEXER_FIELDS: Final = {
    "index_n_heads": "sparse_num_index_heads",
    "index_head_dim": "sparse_index_dim",
    "index_block_size": "sparse_block_size",
    "index_topk_blocks": "sparse_topk_blocks",
}
"""Field of an indexer -> its name in older configs of MiniMax-M3."""
_IDENTITIES: Final = "zero_expert_num"
"""Field that counts experts that compute nothing."""
EXPERT_COUNTS: Final = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts", "num_moe_experts")
"""Names of the field with the number of experts."""
TOP_K_FIELDS: Final = (
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "top_k_experts", "moe_k",
    "moe_top_k",
)  # fmt: skip
"""Names of the field with the experts of a token."""
_SHARED_SIZES: Final = (
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_experts_intermediate_size",
)
"""Names of the field with the width of the experts that every token goes through, all together."""
_SHARED_COUNTS: Final = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
"""Names of the field with the number of the experts that every token goes through."""


class Routed(msgspec.Struct, frozen=True):
    """The routed experts of one layer."""

    experts: int
    per_token: int
    """Experts that a token goes through."""


class Block(NamedTuple):
    """One block of one layer: its matrices, each multiplied once per token."""

    modules: tuple[Module, ...]
    attention: tuple[Attention, ...] = ()
    states: tuple[State, ...] = ()
    routed: Routed | None = None
    """Number of experts; `modules` has the matrices of one of them."""
    copies: int = 0
    """Number of sets of weights that all layers with this block share; 0: each layer has its own."""


Builder = Callable[[Fields], Block]
"""Makes a block of a layer from the fields of a config. Raises ValueError that names a field with a fault."""


def hidden_size(fields: Fields) -> int:
    """Width of the residual stream."""
    return fields.integer("hidden_size", "n_embd", "d_model", "dim", "emb_dim", high=LARGEST_WIDTH)


def query_heads(fields: Fields) -> int:
    """Heads of queries in one layer."""
    return fields.integer(*_QUERY_HEADS, high=MOST_HEADS)


def key_value_heads(fields: Fields) -> int:
    """Heads of the KV cache; Falcon's `multi_query` without the new decoder has one. Raises ValueError."""
    if fields.flag("multi_query") and not fields.flag("new_decoder_architecture"):
        return 1
    heads = query_heads(fields)
    kv_heads = fields.integer(*_KV_HEADS, default=heads, high=MOST_HEADS)
    if heads % kv_heads:
        raise fields.error(_KV_HEADS[0], f"{kv_heads} does not divide the {heads} attention heads")
    return kv_heads


def key_dim(fields: Fields) -> int:
    """Elements of one head's key."""
    hidden = hidden_size(fields)
    heads = query_heads(fields)
    if not fields.has(*_HEAD_DIM) and hidden % heads:
        # GLM-4-MoE's own code rounds down.
        return hidden // heads
    return fields.integer(*_HEAD_DIM, default=hidden // heads, high=LARGEST_HEAD_DIM)


class Grouped(msgspec.Struct, frozen=True):
    """Multi-head, grouped-query or multi-query attention."""

    reach: Reach = Reach.FULL
    limit_fields: tuple[str, ...] = ("sliding_window",)
    """Names of the field with the tokens of the window or chunk."""
    gate: str = ""
    """Gate of the output: `wide` as the heads' output, `head` one number per head."""
    gate_field: str = ""
    """Field that switches a wide gate off, or Laguna's, which says whether it is wide."""
    names: Mapping[str, str] = {}
    """Field -> the one that stands for it in these layers (MiMo's `swa_head_dim`)."""
    key_is_value_field: str = ""
    """Field that says there is no projection of values: keys serve for both (the cache still holds two)."""
    shared_cache: bool = False
    """Reads the keys and values of another layer."""

    def __call__(self, fields: Fields) -> Block:
        layer_fields = fields.with_first({name: fields.raw(other) for name, other in self.names.items()})
        hidden = hidden_size(layer_fields)
        heads = query_heads(layer_fields)
        kv_heads = key_value_heads(layer_fields)
        dim = key_dim(layer_fields)
        # DeepSeek-OCR has 0 here: it switches latent attention off, and its values are as wide as its keys.
        value_dim = layer_fields.integer("v_head_dim", default=dim, low=0, high=LARGEST_HEAD_DIM) or dim
        reach, limit = self._reach(layer_fields)
        keys = kv_heads * dim
        values = 0 if self.key_is_value_field and layer_fields.flag(self.key_is_value_field) else kv_heads * value_dim
        attention = grouped_attention(
            1, heads=heads, kv_heads=kv_heads, head_dim=dim, reach=reach, limit=limit, value_dim=value_dim
        )
        queries = heads * dim
        gate = self._gate(layer_fields, heads, value_dim)
        if self.gate_field == _GATE_IN_QUERIES:
            queries += gate
            gate = 0
        if self.shared_cache:
            keys = 0
            values = 0
            attention = msgspec.structs.replace(attention, shared=True)
        modules = (
            matrix("self_attn.q_proj", ATTENTION, queries, hidden),
            matrix("self_attn.k_proj", ATTENTION, keys, hidden),
            matrix("self_attn.v_proj", ATTENTION, values, hidden),
            matrix("self_attn.o_proj", ATTENTION, hidden, heads * value_dim),
            matrix("self_attn.gate_proj", ATTENTION, gate, hidden),
        )
        return Block(modules, (attention,))

    def _reach(self, fields: Fields) -> tuple[Reach, int]:
        """Reach of its tokens, and the limit in tokens (0: none).

        A config may say that tokens see those behind them, too, as in an encoder.
        """
        limit = 0
        if self.reach in (Reach.WINDOW, Reach.CHUNK):
            limit = fields.integer(*self.limit_fields, high=LONGEST_CONTEXT)
        both_sides = fields.raw("use_bidirectional_attention") in (True, "all") or fields.raw("is_causal") is False
        if self.reach is Reach.ENCODER or both_sides:
            return Reach.ENCODER, limit
        return self.reach, limit

    def _gate(self, fields: Fields, heads: int, value_dim: int) -> int:
        """Outputs of the gate's projection; 0 without a gate."""
        if self.gate_field == _LAGUNA_GATE:
            is_wide = fields.raw(_LAGUNA_GATE) == "per-element"
        elif self.gate_field:
            is_wide = fields.flag(self.gate_field, default=True)  # Qwen3-Next has the gate, and no field for it
            if not is_wide:
                return 0
        elif self.gate:
            is_wide = self.gate == "wide"
        else:
            return 0
        if is_wide:
            return heads * value_dim
        return heads


def differential_attention(fields: Fields) -> Block:
    """DiffLlama (arXiv 2410.05258): the difference of two attentions over the same cache, each over all heads."""
    block = grouped(fields)
    (attention,) = block.attention
    twice = msgspec.structs.replace(
        attention, decode_flops=2.0 * attention.decode_flops, prefill_flops=2.0 * attention.prefill_flops
    )
    return block._replace(attention=(twice,))


def factorised_attention(fields: Fields) -> Block:
    """Step3's multi-matrix factorisation attention (arXiv 2507.19427): queries by way of `share_q_dim` elements."""
    hidden = hidden_size(fields)
    heads = query_heads(fields)
    kv_heads = key_value_heads(fields)
    dim = key_dim(fields)
    rank = fields.integer("share_q_dim", high=LARGEST_WIDTH)
    modules = (
        matrix("self_attn.q_proj", ATTENTION, rank, hidden),
        matrix("self_attn.wq", ATTENTION, heads * dim, rank),
        matrix("self_attn.k_proj", ATTENTION, kv_heads * dim, hidden),
        matrix("self_attn.v_proj", ATTENTION, kv_heads * dim, hidden),
        matrix("self_attn.o_proj", ATTENTION, hidden, heads * dim),
    )
    attention = grouped_attention(1, heads=heads, kv_heads=kv_heads, head_dim=dim)
    return Block(modules, (attention,))


def attention_experts(fields: Fields) -> Block:
    """JetMoE (arXiv 2404.07413): queries and outputs of the chosen experts; keys and values are those of all."""
    hidden = hidden_size(fields)
    kv_heads = key_value_heads(fields)
    dim = key_dim(fields)
    experts = expert_count(fields)
    experts_per_token = fields.integer(*TOP_K_FIELDS, high=experts)
    modules = (
        matrix("self_attention.kv_proj", ATTENTION, 2 * kv_heads * dim, hidden),
        matrix("self_attention.experts.router", ROUTER, experts, hidden),
        # Queries and outputs of an expert have as many heads as the cache.
        matrix(f"self_attention.experts.{NUMBER}.input_linear", EXPERTS, kv_heads * dim, hidden),
        matrix(f"self_attention.experts.{NUMBER}.output_linear", EXPERTS, hidden, kv_heads * dim),
    )
    attention = grouped_attention(1, heads=kv_heads * experts_per_token, kv_heads=kv_heads, head_dim=dim)
    return Block(modules, (attention,), routed=Routed(experts, experts_per_token))


def convolved_attention(fields: Fields) -> Block:
    """ZAYA1's compressed convolutional attention (arXiv 2510.04476), and the MLP that routes to its experts.

    Queries and keys go through two convolutions, the second one over whole heads; half of each value is of the token
    before.
    """
    block = grouped(fields)
    dim = key_dim(fields)
    channels = (query_heads(fields) + key_value_heads(fields)) * dim
    # Kernels of the two convolutions, in tokens: over each channel alone, and over all channels of a head.
    channel_kernel = fields.integer("cca_time0")
    head_kernel = fields.integer("cca_time1")
    convolutions = State(
        kind=CONVOLUTION,
        layers=1,
        elements=float(channels * (channel_kernel + head_kernel - 2)),
        flops=2.0 * channels * channel_kernel + 2.0 * channels * dim * head_kernel,
    )
    delayed = State(kind="delayed value", layers=1, elements=key_value_heads(fields) * dim / 2.0, flops=0.0)
    width = fields.integer("router_hidden_size")
    routers = (
        matrix("mlp.router.down_proj", ROUTER, width, hidden_size(fields)),
        matrix("mlp.router.mlp", ROUTER, 2, width, width),
    )
    return Block((*block.modules, *routers), block.attention, (convolutions, delayed))


def cross_attention(fields: Fields) -> Block:
    """Attention to an encoder's output: a token meets the queries and the output projection.

    Without `max_source_positions` the encoder's text has any length, and only the projections are counted.
    """
    hidden = hidden_size(fields)
    heads = query_heads(fields)
    positions = fields.integer("max_source_positions", default=0, low=0)
    modules = (
        matrix("encoder_attn.q_proj", ATTENTION, hidden, hidden),
        matrix("encoder_attn.out_proj", ATTENTION, hidden, hidden),
    )
    if not positions:
        return Block(modules)
    attention = grouped_attention(
        1, heads=heads, kv_heads=heads, head_dim=hidden // heads, reach=Reach.CROSS, limit=positions
    )
    return Block(modules, (attention,))


def relative_attention(block: Grouped) -> Builder:
    """Makes the attention of Inkling from a plain one.

    It has learned biases by distance, and short convolutions of keys, values and both residual branches.
    """

    def build(fields: Fields) -> Block:
        built = block(fields)
        hidden = hidden_size(fields)
        (attention,) = built.attention
        biases = matrix("self_attn.r_proj", ATTENTION, query_heads(fields) * fields.integer("d_rel"), hidden)
        kernel = fields.integer("conv_kernel_size", "sconv_kernel_size", default=4)
        convolutions = _convolution(int(attention.elements) + 2 * hidden, kernel)
        return Block((*built.modules, biases), (attention,), (convolutions,))

    return build


def sink_attention(block: Builder, *, dynamic: bool) -> Builder:
    """Makes the attention of Inkling 2 from Inkling's: with a sink per head that is computed of the token.

    `dynamic`: the kernels of the convolutions of keys and values are computed, too.
    """

    def build(fields: Fields) -> Block:
        built = block(fields)
        hidden = hidden_size(fields)
        kernels = 0
        if dynamic:
            kernel = fields.integer("conv_kernel_size", "sconv_kernel_size", default=4)
            kernels = 2 * key_value_heads(fields) * kernel
        modules = (
            matrix("self_attn.sink_proj", ATTENTION, query_heads(fields), hidden),
            matrix("self_attn.sconv.weight_proj", ATTENTION, kernels, hidden),
        )
        return built._replace(modules=(*built.modules, *modules))

    return build


def dynamic_mask_attention(fields: Fields) -> Block:
    """Doge: attention to the `keep_window_size` tokens with the highest gate, which is computed of their values."""
    block = grouped(fields)
    heads = query_heads(fields)
    kv_heads = key_value_heads(fields)
    dim = key_dim(fields)
    picked_tokens = fields.integer("keep_window_size", high=LONGEST_CONTEXT)
    # All values of a token to one number per KV head.
    gate = matrix("self_attn.dt_proj", ATTENTION, kv_heads, kv_heads * dim)
    attention = grouped_attention(1, heads=heads, kv_heads=kv_heads, head_dim=dim, reach=Reach.TOP, limit=picked_tokens)
    return Block((*block.modules, gate), (attention,))


def encoder_window_attention(fields: Fields) -> Block:
    """ModernBERT's local layers: half of `local_attention` tokens on either side."""
    block = grouped(fields)
    window = fields.integer("local_attention", high=LONGEST_CONTEXT)
    attention = grouped_attention(
        1,
        heads=query_heads(fields),
        kv_heads=key_value_heads(fields),
        head_dim=key_dim(fields),
        reach=Reach.ENCODER,
        limit=window,
    )
    return block._replace(attention=(attention,))


# Builders without a choice, beside the functions above and below.
grouped: Final = Grouped()
windowed: Final = Grouped(Reach.WINDOW)
encoder: Final = Grouped(Reach.ENCODER)


def _optional_size(fields: Fields, name: str, default: int = 0) -> int:
    """A size that a config may leave out, or have as 0."""
    return fields.integer(name, default=default, low=0, high=LARGEST_WIDTH)


class Latent(msgspec.Struct, frozen=True):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434)."""

    gate: str = ""
    """Gate of the output: `wide` as the heads' output, `head` one number per head."""
    gate_field: str = ""
    """Field that switches a wide gate on."""
    indexed: bool = False
    """Looks at the `index_topk` tokens that an indexer picks (DeepSeek-V3.2)."""
    shares_indexer: bool = False
    """The indexer is that of another layer."""
    window: bool = False
    """Sees the last `sliding_window` tokens."""
    pool_field: str = ""
    """Field with the tokens of a pool, which an indexer knows by one key; empty: it has a key for each token."""
    without_positions: bool = False
    """All elements of a key go through the latent (Mistral Large 4's layers without rotary positions)."""
    shared_cache: bool = False
    """Reads the latents of another layer."""

    def __call__(self, fields: Fields) -> Block:
        hidden = hidden_size(fields)
        heads = query_heads(fields)
        rank = fields.integer("kv_lora_rank", high=LARGEST_WIDTH)
        plain = fields.integer("qk_nope_head_dim", high=LARGEST_HEAD_DIM)
        rope = fields.integer("qk_rope_head_dim", low=0, high=LARGEST_HEAD_DIM)
        if self.without_positions:
            plain += rope
            rope = 0
        value = fields.integer("v_head_dim", high=LARGEST_HEAD_DIM)
        query_rank = _optional_size(fields, "q_lora_rank")
        queries = heads * (plain + rope)
        query_modules: tuple[Module, ...]
        if query_rank:
            query_modules = (
                matrix("self_attn.q_a_proj", ATTENTION, query_rank, hidden),
                matrix("self_attn.q_b_proj", ATTENTION, queries, query_rank),
            )
        else:
            query_modules = (matrix("self_attn.q_proj", ATTENTION, queries, hidden),)
        modules = (
            *query_modules,
            # Into the latent that the cache holds, and out of it: keys and values of all heads.
            matrix("self_attn.kv_a_proj_with_mqa", ATTENTION, 0 if self.shared_cache else rank + rope, hidden),
            matrix("self_attn.kv_b_proj", ATTENTION, heads * (plain + value), rank),
            matrix("self_attn.o_proj", ATTENTION, hidden, heads * value),
            matrix("self_attn.g_proj", ATTENTION, self._gate(fields, heads, value), hidden),
        )
        reach = Reach.FULL
        limit = 0
        if self.indexed:
            reach = Reach.TOP
            limit = fields.integer("index_topk", default=_INDEX_TOP_K)
        if self.window:
            reach = Reach.WINDOW
            limit = fields.integer("sliding_window", high=LONGEST_CONTEXT)
        attention = latent_attention(
            1,
            heads=heads,
            rank=rank,
            rope_dim=rope,
            key_dim=plain + rope,
            value_dim=value,
            reach=reach,
            limit=limit,
        )
        if self.shared_cache:
            attention = msgspec.structs.replace(attention, shared=True)
        if not self.indexed or self.shares_indexer:
            return Block(modules, (attention,))
        indexer = _indexer(fields, query_rank or hidden)
        stride = 1
        if self.pool_field:
            stride = fields.integer(self.pool_field)
            gate = matrix(
                "self_attn.indexer.index_kpool_compress_gate", INDEXER, fields.integer("index_head_dim"), hidden
            )
            indexer = (*indexer, gate)
        return Block((*modules, *indexer), (attention, _index_keys(fields, stride)))

    def _gate(self, fields: Fields, heads: int, value_dim: int) -> int:
        """Outputs of the gate's projection; 0 without a gate."""
        if self.gate == "head":
            return heads
        if self.gate == "wide" or (self.gate_field and fields.flag(self.gate_field)):
            return heads * value_dim
        return 0


def gated_query_attention(fields: Fields) -> Block:
    """A.X-K2: both the latents of the queries and their norm make queries and a gate; the input has a gated norm."""
    block = Latent(indexed=True)(fields)
    heads = query_heads(fields)
    rank = fields.integer("q_lora_rank")
    key = fields.integer("qk_nope_head_dim") + fields.integer("qk_rope_head_dim")
    gated = (
        matrix("self_attn.q_b_proj_second", ATTENTION, heads * key, rank),
        matrix("self_attn.q_gates", ATTENTION, 2 * heads * fields.integer("v_head_dim"), rank),
        matrix("self_attn.gated_norm", ATTENTION, 2 * fields.integer("gated_norm_rank"), hidden_size(fields)),
    )
    return block._replace(modules=(*block.modules, *gated))


def _indexer(fields: Fields, query_width: int) -> tuple[Module, ...]:
    """Matrices of an indexer: queries from `query_width` elements; one key, and a weight per head, from the input."""
    heads = fields.integer("index_n_heads")
    dim = fields.integer("index_head_dim")
    return (
        matrix("self_attn.indexer.wq_b", INDEXER, heads * dim, query_width),
        matrix("self_attn.indexer.wk", INDEXER, dim, hidden_size(fields)),
        matrix("self_attn.indexer.weights_proj", INDEXER, heads, hidden_size(fields)),
    )


def _index_keys(fields: Fields, stride: int = 1) -> Attention:
    """The keys that an indexer scores, one per `stride` tokens, as an attention of their own."""
    heads = fields.integer("index_n_heads")
    dim = fields.integer("index_head_dim")
    flops = 2.0 * heads * dim
    return Attention(
        reach=Reach.INDEX,
        layers=1,
        decode_flops=flops,
        prefill_flops=flops,
        elements=float(dim),
        stride=stride,
        bytes_per_element=INDEXER_KEY_BYTES,
    )


def block_sparse_attention(fields: Fields) -> Block:
    """MiniMax-M3: grouped attention over the blocks of tokens that an indexer with one key of its own chose."""
    legacy = fields.table("sparse_attention_config") or {}
    indexer_fields = fields.with_first({name: legacy.get(other) for name, other in _OLD_INDEXER_FIELDS.items()})
    hidden = hidden_size(indexer_fields)
    heads = indexer_fields.integer("index_n_heads")
    dim = indexer_fields.integer("index_head_dim")
    dense = grouped(indexer_fields)
    picked_tokens = indexer_fields.integer("index_topk_blocks") * indexer_fields.integer("index_block_size")
    attention = grouped_attention(
        1,
        heads=query_heads(indexer_fields),
        kv_heads=key_value_heads(indexer_fields),
        head_dim=key_dim(indexer_fields),
        reach=Reach.TOP,
        limit=picked_tokens,
    )
    indexer = (
        matrix("self_attn.index_q_proj", INDEXER, heads * dim, hidden),
        matrix("self_attn.index_k_proj", INDEXER, dim, hidden),
    )
    return Block((*dense.modules, *indexer), (attention, _index_keys(indexer_fields)))


class Compressed(msgspec.Struct, frozen=True):
    """DeepSeek-V4: one key for all heads, which is the value, too.

    A token sees a window of tokens, and before it one compressed entry per `stride` tokens.
    """

    rate_name: str = ""
    """Key of `compress_rates` with the stride; empty: there is no compression, only the window."""
    stride: int = 1
    """Tokens per compressed entry where the config does not say."""
    sparse: bool = False
    """Only the compressed entries that an indexer chose are looked at."""

    def __call__(self, fields: Fields) -> Block:
        hidden = hidden_size(fields)
        heads = query_heads(fields)
        dim = fields.integer("head_dim", high=LARGEST_HEAD_DIM)
        query_rank = fields.integer("q_lora_rank")
        output_rank = fields.integer("o_lora_rank")
        groups = fields.integer("o_groups")
        flops = 4.0 * heads * dim  # a multiplication and an addition for the score, and two for the output
        window = fields.integer("sliding_window", high=LONGEST_CONTEXT)
        nearby = Attention(
            reach=Reach.WINDOW,
            layers=1,
            decode_flops=flops,
            prefill_flops=flops,
            elements=float(dim),
            limit=window,
        )
        modules = (
            matrix("self_attn.q_a_proj", ATTENTION, query_rank, hidden),
            matrix("self_attn.q_b_proj", ATTENTION, heads * dim, query_rank),
            matrix("self_attn.kv_proj", ATTENTION, dim, hidden),
            # Each group's heads to the rank of the outputs.
            matrix("self_attn.o_a_proj", ATTENTION, output_rank, heads * dim),
            matrix("self_attn.o_b_proj", ATTENTION, hidden, groups * output_rank),
            *_hyper_connections(fields),
        )
        if not self.rate_name:
            return Block(modules, (nearby,))
        rates = fields.table("compress_rates") or {}
        stride = Fields(rates).integer(self.rate_name, default=self.stride)
        compressed = msgspec.structs.replace(nearby, reach=Reach.FULL, limit=0, stride=stride)
        if not self.sparse:
            return Block((*modules, *_compressor("self_attn.compressor", ATTENTION, dim, hidden)), (nearby, compressed))
        picked_entries = msgspec.structs.replace(compressed, reach=Reach.TOP, limit=fields.integer("index_topk"))
        index_heads = fields.integer("index_n_heads")
        index_dim = fields.integer("index_head_dim")
        sparse_modules = (
            # Entries overlap: each is made of two halves.
            *_compressor("self_attn.compressor", ATTENTION, 2 * dim, hidden),
            *_compressor("self_attn.compressor.indexer", INDEXER, 2 * index_dim, hidden),
            matrix("self_attn.compressor.indexer.q_b_proj", INDEXER, index_heads * index_dim, query_rank),
            matrix("self_attn.compressor.indexer.weights_proj", INDEXER, index_heads, hidden),
        )
        return Block((*modules, *sparse_modules), (nearby, picked_entries, _index_keys(fields, stride)))


class SharedEntries(msgspec.Struct, frozen=True):
    """DeepSeek-V4.1: a window, and before it the compressed entries of the last layer that makes some.

    `kv_source_layer_ids` make entries and keys of the indexer, `index_source_layer_ids` choose among them, and the
    layers behind each read what those made (vLLM 0.33, `models/deepseek_v41`).
    """

    stride: int
    """Tokens per entry."""
    makes_entries: bool
    chooses: bool
    """Its indexer chooses the entries that it and the layers behind it look at."""

    def __call__(self, fields: Fields) -> Block:
        modules, (nearby,), *_ = Compressed()(fields)
        hidden = hidden_size(fields)
        dim = fields.integer("head_dim", high=LARGEST_HEAD_DIM)
        index_heads = fields.integer("index_n_heads")
        index_dim = fields.integer("index_head_dim")
        entries = msgspec.structs.replace(
            nearby,
            reach=Reach.TOP,
            limit=fields.integer("index_topk"),
            stride=self.stride,
            shared=not self.makes_entries,
        )
        attention = [nearby, entries]
        if self.makes_entries:
            # A single token needs no weight among those of its entry.
            gate = dim if self.stride > 1 else 0
            modules += (
                matrix("self_attn.compressor.wkv", INDEXER, dim, hidden),
                matrix("self_attn.compressor.wgate", INDEXER, gate, hidden),
                matrix("self_attn.indexer.wk", INDEXER, index_dim, dim),
            )
        if self.chooses:
            modules += (
                matrix("self_attn.indexer.wq_b", INDEXER, index_heads * index_dim, fields.integer("q_lora_rank")),
                matrix("self_attn.indexer.weights_proj", INDEXER, index_heads, hidden),
            )
            keys = _index_keys(fields, self.stride)
            attention.append(msgspec.structs.replace(keys, shared=not self.makes_entries))
        return Block(modules, tuple(attention))


def engram(fields: Fields) -> Block:
    """DeepSeek-V4.1's memory of n-grams: rows of a table, projected to a key per residual stream and a value."""
    grams = fields.integer("engram_max_ngram_size") - 1
    width = grams * fields.integer("engram_n_heads") * fields.integer("engram_head_dim")
    outputs = hidden_size(fields) * (fields.integer("hc_mult") + 1)
    # The tables of its layers differ by some rows.
    tables = fields.items("engram_num_embeddings") or ()
    counts = [count for count in tables if isinstance(count, int) and 0 < count < _MOST_TABLE_ROWS]
    if not counts or len(counts) < len(tables):
        raise fields.error("engram_num_embeddings", f"{json_text(tables)} is no list of numbers of rows")
    rows = round(sum(counts) / len(counts))
    table = matrix(ENGRAM_TABLE, TABLES, rows, fields.integer("engram_head_dim"))
    return Block((matrix("engram.wkv", MLP, outputs, width), table))


def query_sparse_attention(fields: Fields) -> Block:
    """Qwen 4: gated attention over the `indexer_budget` tokens of the blocks that an indexer chose.

    The indexer scores one key, the mean of those of `indexer_compress_ratio` tokens, for each block.
    """
    heads = fields.integer("indexer_n_heads")
    dim = fields.integer("indexer_head_dim")
    hidden = hidden_size(fields)
    block = Grouped(gate_field=_GATE_IN_QUERIES)(fields)
    (dense,) = block.attention
    attention = msgspec.structs.replace(dense, reach=Reach.TOP, limit=fields.integer("indexer_budget"))
    rows = (heads + fields.integer("indexer_kv_heads")) * dim
    indexer = matrix("self_attn.indexer.index_qk_proj", INDEXER, rows, hidden)
    index_fields = fields.with_first({"index_n_heads": heads, "index_head_dim": dim})
    keys = _index_keys(index_fields, fields.integer("indexer_compress_ratio"))
    return Block((*block.modules, indexer), (attention, keys))


def gated_residuals(fields: Fields) -> Block:
    """Qwen 4: the low-rank mixers of `hc_count` residual streams, around a layer's attention and its experts."""
    streams = fields.integer("hc_count") * hidden_size(fields)
    rank = fields.integer("hc_lowrank")
    modules = []
    for name in ("attn_hyper_connection", "mlp_hyper_connection"):
        modules.append(matrix(f"{name}.input_mix_weight_down", ROUTER, rank, streams))
        modules.append(matrix(f"{name}.input_mix_weight_up", ROUTER, streams, rank))
        modules.append(matrix(f"{name}.block_inject_weight", ROUTER, fields.integer("hc_count"), streams))
    return Block(tuple(modules))


def layer_n_grams(fields: Fields) -> Block:
    """Qwen 4: rows of a table of n-grams, projected to a key for each residual stream and a value, and a convolution.

    Each of its heads has the rows of the next prime above `ngram_vocab_size_base`: by 1 in 100,000 more.
    """
    hidden = hidden_size(fields)
    streams = fields.integer("hc_count") * hidden
    width = fields.integer("ple_embed_dim", default=hidden)
    size = fields.integer("ngram_size")
    heads = (size - 1) * fields.integer("heads_per_ngram")
    rows = heads * fields.integer("ngram_vocab_size_base", high=_MOST_TABLE_ROWS)
    modules = (
        matrix("ple.key_proj", MLP, streams, width),
        matrix("ple.value_proj", MLP, hidden, width),
        matrix("ple.ple_embedding.ngram_embedding", TABLES, rows, width // heads),
    )
    kernel = fields.integer("ple_conv_kernel_size", default=4)
    inputs = float(streams * (kernel - 1) * size)
    convolution = State(kind=CONVOLUTION, layers=1, elements=inputs, flops=2.0 * streams * kernel)
    return Block(modules, (), (convolution,))


def hyper_connections(fields: Fields) -> Block:
    """The mixers of a layer's residual streams as a block of their own (GLM-5.3-Flash)."""
    return Block(_hyper_connections(fields))


def _compressor(name: str, part: str, outputs: int, hidden: int) -> tuple[Module, ...]:
    """The matrices that make compressed entries, and those of the weights of the tokens in them."""
    return (
        matrix(f"{name}.kv_proj", part, outputs, hidden),
        matrix(f"{name}.gate_proj", part, outputs, hidden),
    )


def _hyper_connections(fields: Fields) -> tuple[Module, ...]:
    """The two mixers of a layer's `hc_mult` residual streams: around its attention and its experts."""
    streams = _optional_size(fields, "hc_mult")
    all_streams = streams * hidden_size(fields)
    mixed = streams * streams + 2 * streams  # stream to stream, into the block and out of it
    return (matrix("attn_hc.fn", ROUTER, mixed, all_streams), matrix("ffn_hc.fn", ROUTER, mixed, all_streams))


def gated_delta_net(fields: Fields) -> Block:
    """Gated delta net (Qwen3-Next, arXiv 2412.06464): 7 FLOPs per element of the state and token.

    Decay 1, key times state 2, rank-one update 2, query times state 2.
    """
    key_heads = fields.integer("linear_num_key_heads", high=MOST_HEADS)
    value_heads = fields.integer("linear_num_value_heads", high=MOST_HEADS)
    keys = key_heads * fields.integer("linear_key_head_dim", high=LARGEST_HEAD_DIM)
    value_dim = fields.integer("linear_value_head_dim", high=LARGEST_HEAD_DIM)
    values = value_heads * value_dim
    hidden = hidden_size(fields)
    modules = (
        matrix("linear_attn.in_proj_qkv", STATE, 2 * keys + values, hidden),
        matrix("linear_attn.in_proj_z", STATE, values, hidden),
        matrix("linear_attn.in_proj_b", STATE, value_heads, hidden),
        matrix("linear_attn.in_proj_a", STATE, value_heads, hidden),
        matrix("linear_attn.out_proj", STATE, hidden, values),
    )
    elements = float(keys // key_heads * values)
    kernel = fields.integer("linear_conv_kernel_dim", default=4)
    # vLLM takes what Qwen3.5's config says; Qwen3-Next's says nothing.
    state_bytes = _state_bytes(fields, "mamba_ssm_dtype")
    state = _recurrent_state("delta net", elements, flops_per_element=7.0, bytes_per_element=state_bytes)
    return Block(modules, (), (state, _convolution(2 * keys + values, kernel)))


def kimi_delta(fields: Fields, full_rank: bool = False) -> Block:
    """Kimi delta attention: a gated delta net whose decay is per channel (Kimi Linear, arXiv 2510.26692).

    `full_rank`: the projections of decay and gate have full rank, whatever the config says.
    """
    legacy = fields.table("linear_attn_config") or {}
    linear_fields = fields.with_first(
        {
            "linear_num_heads": legacy.get("num_heads"),
            "linear_head_dim": legacy.get("head_dim"),
            "linear_conv_kernel_dim": legacy.get("short_conv_kernel_size"),
            "use_full_rank_gate": legacy.get("use_full_rank_gate"),
        }
    )
    hidden = hidden_size(linear_fields)
    heads = linear_fields.integer("linear_num_heads")
    dim = linear_fields.integer("linear_head_dim")
    width = heads * dim
    has_full_gate = full_rank or linear_fields.flag("use_full_rank_gate")
    modules = (
        *(matrix(f"self_attn.{name}_proj", STATE, width, hidden) for name in "qkv"),
        *_low_rank("self_attn.f", width, hidden, 0 if full_rank else dim),
        *_low_rank("self_attn.g", width, hidden, 0 if has_full_gate else dim),
        matrix("self_attn.b_proj", STATE, heads, hidden),
        matrix("self_attn.o_proj", STATE, hidden, width),
    )
    kernel = linear_fields.integer("linear_conv_kernel_dim", "short_conv_kernel_size", default=4)
    state = _recurrent_state("kimi delta", float(width * dim), flops_per_element=7.0, bytes_per_element=4.0)
    return Block(modules, (), (state, _convolution(3 * width, kernel)))


def _low_rank(name: str, width: int, hidden: int, rank: int) -> tuple[Module, ...]:
    """A projection by way of `rank` elements; one matrix with 0."""
    if not rank:
        return (matrix(f"{name}_proj", STATE, width, hidden),)
    return (matrix(f"{name}_a_proj", STATE, rank, hidden), matrix(f"{name}_b_proj", STATE, width, rank))


def bailing_linear(fields: Fields) -> Block:
    """The state layers of Ling: lightning attention in 2.5 and 2.6, Kimi delta attention with full-rank gates in 3."""
    is_ling_3 = fields.has("linear_num_heads", "short_conv_kernel_size", "kda_safe_gate", "kda_lower_bound")
    if not is_ling_3:
        return lightning(fields)
    return kimi_delta(
        fields.with_first(
            {
                "linear_num_heads": fields.raw("linear_num_heads", "num_attention_heads"),
                "linear_head_dim": fields.raw("linear_head_dim", "v_head_dim"),
            }
        ),
        full_rank=True,
    )


class Mamba2(msgspec.Struct, frozen=True):
    """Mamba-2 (arXiv 2405.21060): 5 FLOPs per element of the state and token (decay 1, update 2, read 2)."""

    head_fields: tuple[str, ...] = ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
    """Names of the field with the number of heads."""
    head_dim_fields: tuple[str, ...] = ("mamba_head_dim", "mamba_d_head", "mamba_headdim")
    """Names of the field with the size of a head."""
    dtype_field: str = ""
    """Field with the format of the state; empty: no field has it."""
    default_bytes: float = MODEL_FORMAT_BYTES
    """Bytes per element of the state where the config does not say."""

    def __call__(self, fields: Fields) -> Block:
        hidden = hidden_size(fields)
        heads = fields.integer(*self.head_fields, high=MOST_HEADS)
        inner = _optional_size(fields, "mamba_d_ssm") or fields.integer("expand", "mamba_expand", default=2) * hidden
        if fields.raw(*self.head_dim_fields) != "auto":  # `auto` (Bamba): inner width / heads
            inner = heads * fields.integer(*self.head_dim_fields, default=inner // heads, high=LARGEST_HEAD_DIM)
        states = fields.integer("ssm_state_size", "mamba_d_state", "state_size", high=LARGEST_HEAD_DIM)
        groups = fields.integer("n_groups", "mamba_n_groups", "mamba_ngroups", default=1, high=MOST_HEADS)
        mixed = inner + 2 * groups * states  # goes through the convolution: x, B and C
        gate = inner
        time_steps = heads
        modules = (
            matrix("mamba.in_proj", STATE, gate + mixed + time_steps, hidden),
            matrix("mamba.out_proj", STATE, hidden, inner),
        )
        elements = float(inner * states)
        kernel = fields.integer("conv_kernel", "mamba_d_conv", default=4)
        state_bytes = _state_bytes(fields, self.dtype_field, self.default_bytes)
        state = _recurrent_state("mamba2", elements, flops_per_element=5.0, bytes_per_element=state_bytes)
        return Block(modules, (), (state, _convolution(mixed, kernel)))


def mamba(fields: Fields) -> Block:
    """Mamba (arXiv 2312.00752): FLOPs as Mamba-2, with a projection of rank `dt_rank` for the time step."""
    hidden = hidden_size(fields)
    inner = fields.integer("expand", "mamba_expand", default=2) * hidden
    inner = _optional_size(fields, "mamba_inner", inner)
    states = fields.integer("state_size", "mamba_d_state", high=LARGEST_HEAD_DIM)
    rank = fields.raw("time_step_rank", "mamba_dt_rank")
    if not (isinstance(rank, int) and not isinstance(rank, bool) and rank > 0):
        rank = ceil(hidden / 16)  # as `auto` and an absent field are read by its own code
    modules = (
        matrix("mamba.in_proj", STATE, 2 * inner, hidden),
        matrix("mamba.x_proj", STATE, rank + 2 * states, inner),
        matrix("mamba.dt_proj", STATE, inner, rank),
        matrix("mamba.out_proj", STATE, hidden, inner),
    )
    elements = float(inner * states)
    state = _recurrent_state("mamba", elements, flops_per_element=5.0)
    kernel = fields.integer("conv_kernel", "mamba_d_conv", default=4)
    return Block(modules, (), (state, _convolution(inner, kernel)))


def lightning(fields: Fields) -> Block:
    """Lightning attention with an output gate (MiniMax-01, arXiv 2501.08313; Ring-linear); FLOPs as Mamba-2."""
    hidden = hidden_size(fields)
    heads = query_heads(fields)
    dim = key_dim(fields)
    state = _recurrent_state(LIGHTNING, float(heads * dim * dim), flops_per_element=5.0)
    modules = (
        matrix("self_attn.qkv_proj", STATE, 3 * heads * dim, hidden),
        matrix("self_attn.output_gate", STATE, heads * dim, hidden),
        matrix("self_attn.out_proj", STATE, hidden, heads * dim),
    )
    return Block(modules, (), (state,))


def short_convolution(fields: Fields) -> Block:
    """LFM2's gated short convolution."""
    hidden = hidden_size(fields)
    modules = (
        matrix("conv.in_proj", STATE, 3 * hidden, hidden),  # two of the three ways in are gates
        matrix("conv.out_proj", STATE, hidden, hidden),
    )
    return Block(modules, (), (_convolution(hidden, fields.integer("conv_L_cache")),))


def linear_recurrent_unit(fields: Fields) -> Block:
    """RG-LRU of RecurrentGemma (arXiv 2402.19427); its two gates are block-diagonal over the heads.

    6 FLOPs per channel and token, by its recurrence: h = a h + sqrt(1 - a^2) (i x). The state has 32 bits in any model
    (`RecurrentGemmaRecurrentBlock` of transformers). Defaults: `RecurrentGemmaConfig`.
    """
    hidden = hidden_size(fields)
    width = fields.integer("lru_width", default=hidden_size(fields))
    modules = (
        matrix("temporal_block.linear_x", STATE, width, hidden),
        matrix("temporal_block.linear_y", STATE, width, hidden),
        matrix("temporal_block.linear_out", STATE, hidden, width),
        matrix("temporal_block.rg_lru.gates", STATE, 2, width // query_heads(fields), width),
    )
    state = _recurrent_state("lru", float(width), flops_per_element=6.0, bytes_per_element=4.0)
    kernel = fields.integer("conv1d_width", default=4)
    return Block(modules, (), (state, _convolution(width, kernel)))


def rwkv(fields: Fields) -> Block:
    """RWKV-4 (arXiv 2305.13048): time mixing of four matrices, channel mixing of three.

    12 FLOPs per channel and token, by `rwkv_linear_attention_cpu` of transformers: numerator 3 and denominator 2, once
    for the output and once for the state, then their quotient and the gate of the receptance. The sums have 32 bits
    in any model, the tokens before have the model's format (`RwkvModel.forward`). Defaults: `RwkvConfig`.
    """
    hidden = hidden_size(fields)
    width = fields.integer("attention_hidden_size", default=hidden)
    mixed_width = fields.integer("intermediate_size", default=4 * hidden)
    sums = _recurrent_state("rwkv", float(3 * width), flops_per_element=4.0, bytes_per_element=4.0)
    # The token before, for either mixing.
    tokens = _recurrent_state("rwkv tokens", float(2 * hidden), flops_per_element=0.0)
    modules = (
        *(matrix(f"attention.{name}", STATE, width, hidden) for name in ("key", "value", "receptance")),
        matrix("attention.output", STATE, hidden, width),
        matrix("feed_forward.key", MLP, mixed_width, hidden),
        matrix("feed_forward.receptance", MLP, hidden, hidden),
        matrix("feed_forward.value", MLP, hidden, mixed_width),
    )
    return Block(modules, (), (sums, tokens))


def mlstm(fields: Fields) -> Block:
    """xLSTM 7B (arXiv 2503.13427): matrix memories, and a gated MLP whose width is rounded up to a multiple.

    5 FLOPs per element of the memories and token, as Mamba-2: decay 1, key times value 2, query times memory 2
    (`mlstm_recurrent_step_native` of transformers; its norm and gates are left out). 32 bits are the default
    of `inference_state_dtype`. Defaults: `xLSTMConfig`.
    """
    hidden = hidden_size(fields)
    heads = fields.integer("num_heads")
    keys = int(hidden * _factor(fields, "qk_dim_factor", 0.5))
    values = int(hidden * _factor(fields, "v_dim_factor", 1.0))
    step = fields.integer("ffn_round_up_to_multiple_of", default=64)
    width = step * ceil(int(hidden * _factor(fields, "ffn_proj_factor", 2.667)) / step)
    modules = (
        matrix("mlstm_layer.q", STATE, keys, hidden),
        matrix("mlstm_layer.k", STATE, keys, hidden),
        matrix("mlstm_layer.v", STATE, values, hidden),
        matrix("mlstm_layer.ogate_preact", STATE, values, hidden),
        matrix("mlstm_layer.igate_preact", STATE, heads, hidden),
        matrix("mlstm_layer.fgate_preact", STATE, heads, hidden),
        matrix("mlstm_layer.out_proj", STATE, hidden, values),
        *_mlp("ffn", MLP, hidden, width),
    )
    memory = float(keys // heads * values)
    state = State(
        kind="mlstm",
        layers=1,
        elements=memory + keys + heads,  # the matrices, their norm, and a maximum per head
        flops=5.0 * memory,
        bytes_per_element=4.0,
    )
    return Block(modules, (), (state,))


def _factor(fields: Fields, name: str, default: float) -> float:
    """The number in a field, above 0 and below 100, else `default`. Raises ValueError."""
    value = fields.raw(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < 100.0:
        raise fields.error(name, f"{json_text(value)} is not a number up to 100")
    return float(value)


def residual_streams(fields: Fields) -> Block:
    """Hunyuan 4: the mixers of its `hc_mult` residual streams, two per layer."""
    streams = _optional_size(fields, "hc_mult")
    mixed = 2 * streams * streams
    hidden = hidden_size(fields)
    return Block((matrix("attn_hc.fn", ROUTER, mixed, hidden), matrix("ffn_hc.fn", ROUTER, mixed, hidden)))


def _convolution(channels: int, kernel: int) -> State:
    """The state of a causal depthwise convolution over `kernel` tokens: its last `kernel - 1` inputs."""
    return State(
        kind=CONVOLUTION,
        layers=1,
        elements=float(channels * (kernel - 1)),
        flops=2.0 * channels * kernel,
    )


def _recurrent_state(
    kind: str, elements: float, *, flops_per_element: float, bytes_per_element: float = MODEL_FORMAT_BYTES
) -> State:
    """The state of one layer, each of whose elements is updated and read once per token."""
    return State(
        kind=kind,
        layers=1,
        elements=elements,
        flops=flops_per_element * elements,
        bytes_per_element=bytes_per_element,
    )


def _state_bytes(fields: Fields, dtype_field: str, default_bytes: float = MODEL_FORMAT_BYTES) -> float:
    """Bytes per element of a recurrent state as vLLM keeps it: by the word in `dtype_field`, else the default."""
    word = fields.text(dtype_field) if dtype_field else ""
    return STATE_BYTES.get(word.removeprefix("torch."), default_bytes)


def _mlp(name: str, part: str, hidden: int, width: int, matrices: int = 3) -> tuple[Module, ...]:
    """The matrices of an MLP of this width: with a gate, or of the plain two."""
    down = matrix(f"{name}.down_proj", part, hidden, width)
    up = matrix(f"{name}.up_proj", part, width, hidden)
    if matrices == 2:
        return (up, down)
    return (matrix(f"{name}.gate_proj", part, width, hidden), up, down)


class Dense(msgspec.Struct, frozen=True):
    """A dense MLP of 3 matrices (gated) or 2."""

    matrices: int = 3
    size_fields: tuple[str, ...] = _MLP_SIZES
    """Names of the field with the width."""
    halved: bool = False
    """The field counts gate and input together: the width is half of it (Qwen 1, RecurrentGemma)."""

    def __call__(self, fields: Fields) -> Block:
        hidden = hidden_size(fields)
        default = None
        if self.matrices == 2:  # older families, which may have a factor in place of the width
            default = hidden * fields.integer("expansion_ratio", "intermediate_multiple_size", default=4)
        width = fields.integer(*self.size_fields, default=default)
        if self.halved:
            width //= 2
        return Block(_mlp("mlp", MLP, hidden, width, self.matrices))


def double_width_mlp(fields: Fields) -> Block:
    """Additional MLP of Gemma 4's layers without a cache of their own: as much again as the others have."""
    if fields.flag("use_double_wide_mlp"):
        return Dense()(fields)
    return Block(())


def adjusted_mlp(fields: Fields) -> Block:
    """MLP of LFM2: two thirds of the width that the field says, rounded up to a multiple."""
    width = fields.integer("block_ff_dim", "intermediate_size")
    if fields.flag("block_auto_adjust_ff_dim", default=True):
        width = int(_factor(fields, "block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
        step = fields.integer("block_multiple_of", default=256)
        width = step * ceil(width / step)
    return Block(_mlp("mlp", MLP, hidden_size(fields), width))


class Experts(msgspec.Struct, frozen=True):
    """Routed experts with their router, and the experts that all tokens share."""

    matrices: int = 3
    """Matrices of one expert: 3 (gated) or 2."""
    size_fields: tuple[str, ...] = (
        "moe_intermediate_size",
        "expert_intermediate_size",
        "intermediate_size",
        "expert_ffn_hidden_size",
    )
    """Names of the field with the width of a routed expert."""
    shared: int = 0
    """Shared experts of the routed size where no field counts them."""
    gates_shared: bool = False
    """The output of the shared expert, where there is one, has a gate: one number per token (Qwen)."""

    def __call__(self, fields: Fields) -> Block:
        hidden = hidden_size(fields)
        experts = expert_count(fields)
        experts_per_token = fields.integer(*TOP_K_FIELDS, high=experts)
        identities = _optional_size(fields, _IDENTITIES)
        per_token = _computing_experts(fields, experts_per_token, experts, identities)
        size = fields.integer(*self.size_fields)
        # Nemotron 3 and others: experts work in a narrower space, with a projection into it and one out of it.
        latent = _optional_size(fields, "moe_latent_size") or fields.integer(
            "routed_expert_hidden_size", "moe_hidden_size", default=0, low=0
        )
        shared_size = self._shared_size(fields, size)
        has_gate = shared_size > 0 and self.gates_shared
        shared_name = "mlp.shared_expert" if self.gates_shared else "mlp.shared_experts"
        modules = (
            matrix("mlp.gate", ROUTER, experts + identities, hidden),
            *_mlp(shared_name, SHARED, hidden, shared_size, self.matrices),
            matrix("mlp.shared_expert_gate", SHARED, 1 if has_gate else 0, hidden),
            matrix("mlp.latent_proj_down", SHARED, latent, hidden),
            matrix("mlp.latent_proj_up", SHARED, hidden, latent),
            *_mlp(f"mlp.experts.{NUMBER}", EXPERTS, latent or hidden, size, self.matrices),
        )
        return Block(modules, routed=Routed(experts, per_token))

    def _shared_size(self, fields: Fields, size: int) -> int:
        """Width of all shared experts together; `size` is that of a routed one."""
        width = fields.integer(*_SHARED_SIZES, default=-1, low=0)
        if width >= 0:
            return width
        expert_size = fields.integer("share_expert_dim", default=size)
        return expert_size * fields.integer(*_SHARED_COUNTS, default=self.shared, low=0)


def _computing_experts(fields: Fields, experts_per_token: int, experts: int, identities: int) -> int:
    """Mean number of the experts of a token that compute something. Raises RefusedError where it is not whole.

    `experts` compute and `identities` do not; the router is trained to choose each as often.
    LongCat-Flash (arXiv 2509.01322): 8 of 12, as 512 of its 768 experts compute. A token may meet all or none of them.
    """
    whole, rest = divmod(experts_per_token * experts, experts + identities)
    if rest:
        raise fields.refusal(
            _IDENTITIES, f"{identities} leaves no whole number of the {experts_per_token} experts of a token"
        )
    return whole


def expert_count(fields: Fields) -> int:
    """Routed experts of one layer."""
    return fields.integer(*EXPERT_COUNTS, high=MOST_EXPERTS)


def shared_mlp(fields: Fields) -> Block:
    """The MLP of Granite 4's layers without experts: what stands beside the experts in the others."""
    return Block(_mlp("shared_mlp", SHARED, hidden_size(fields), fields.integer("shared_intermediate_size")))


def zamba_block(fields: Fields) -> Block:
    """The transformer block whose weights several places of Zamba and Zamba2 share.

    Its input is the hidden state beside the token's embedding: twice as wide as the other layers'.
    """
    hidden = hidden_size(fields)
    heads = query_heads(fields)
    kv_heads = key_value_heads(fields)
    dim = fields.integer("attention_head_dim", default=2 * hidden // heads, high=LARGEST_HEAD_DIM)
    width = fields.integer("intermediate_size", default=4 * hidden)
    modules = (
        matrix("shared_transf.self_attn.q_proj", ATTENTION, heads * dim, 2 * hidden),
        matrix("shared_transf.self_attn.k_proj", ATTENTION, kv_heads * dim, 2 * hidden),
        matrix("shared_transf.self_attn.v_proj", ATTENTION, kv_heads * dim, 2 * hidden),
        matrix("shared_transf.self_attn.o_proj", ATTENTION, hidden, heads * dim),
        *_mlp("shared_transf.feed_forward", MLP, hidden, width),
    )
    copies = fields.integer("num_mem_blocks", default=1)
    cached = grouped_attention(1, heads=heads, kv_heads=kv_heads, head_dim=dim)
    return Block(modules, (cached,), copies=copies)


def zamba_link(fields: Fields) -> Block:
    """The weights that each place of Zamba2's shared block has of its own: a projection and low-rank adapters."""
    hidden = hidden_size(fields)
    rank = _optional_size(fields, "adapter_rank")
    width = hidden + 2 * fields.integer("intermediate_size", default=4 * hidden)
    if fields.flag("use_shared_attention_adapter"):
        width += 3 * 4 * hidden  # of queries, keys and values, each twice as wide as `hidden` at both ends
    return Block((matrix("linear", ATTENTION, hidden, hidden), matrix("adapters", MLP, rank, width)))


def per_layer_input(fields: Fields) -> Block:
    """Gemma 3n and 4: a gate and a projection for the layer's own embedding of the token."""
    width = _optional_size(fields, "hidden_size_per_layer_input")
    hidden = hidden_size(fields)
    return Block(
        (
            matrix("per_layer_input_gate", MLP, width, hidden),
            matrix("per_layer_projection", MLP, hidden, width),
        )
    )


def laurel(fields: Fields) -> Block:
    """Gemma 3n: a low-rank residual, and the mixer of the `altup_num_inputs` residual streams."""
    streams = fields.integer("altup_num_inputs")
    hidden = hidden_size(fields)
    rank = fields.integer("laurel_rank")
    modules = (
        matrix("laurel.linear_left", MLP, rank, hidden),
        matrix("laurel.linear_right", MLP, hidden, rank),
        matrix("altup.modality_router", MLP, streams, hidden),
        # Prediction, stream to stream, and correction, by the router's outputs.
        matrix("altup.prediction_coefs", MLP, streams * streams, streams),
        matrix("altup.correction_coefs", MLP, streams, streams),
    )
    return Block(modules)
