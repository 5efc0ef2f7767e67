"""What a `model_type` of Hugging Face transformers implies where its published config.json does not say it."""

from __future__ import annotations

from typing import Final

import msgspec


class Family(msgspec.Struct, frozen=True):
    """Traits of one model type (transformers' configuration and modelling code)."""

    two_matrices: bool = False
    """The MLP is not gated: two matrices instead of three."""
    tied: bool = False
    """The LM head is the embedding table."""
    full_every: int = 0
    """Every how manyth layer sees everything, the others a window; 0: the config alone decides."""
    attention_every: int = 0
    """Every how manyth layer has attention, the others are gated delta nets; 0: all have."""
    gated_attention: bool = False
    """Attention has an output gate as wide as the queries."""
    one_shared: bool = False
    """One shared expert of the routed size that no field names."""
    mamba: bool = False
    """Its layers are Mamba2, attention, MLP or experts, as a pattern of letters says."""
    sparse: bool = False
    """DeepSeek sparse attention, even where `index_topk` is left out."""
    defaults: dict[str, object] = {}
    """Fields that published configs leave out."""


_HYBRID = Family(attention_every=4, gated_attention=True)
_GEMMA3: Final[dict[str, object]] = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262_208,
    "sliding_window": 4096,
}

FAMILIES: Final[dict[str, Family]] = {
    "RefinedWeb": Family(two_matrices=True, tied=True),
    "RefinedWebModel": Family(two_matrices=True, tied=True),
    "bloom": Family(two_matrices=True, tied=True),
    "codegen": Family(two_matrices=True),
    "cohere": Family(tied=True),
    "cohere2": Family(tied=True, full_every=4),
    "deepseek_v32": Family(sparse=True),
    "falcon": Family(two_matrices=True, tied=True),
    "gemma": Family(tied=True, defaults={"head_dim": 256}),
    "gemma2": Family(tied=True, full_every=2, defaults={"head_dim": 256, "sliding_window": 4096}),
    "gemma3": Family(tied=True, full_every=6),
    "gemma3_text": Family(tied=True, full_every=6, defaults=_GEMMA3),
    "gemma4": Family(tied=True),
    "gemma4_text": Family(tied=True),
    "glm_moe_dsa": Family(sparse=True),
    "gpt2": Family(two_matrices=True, tied=True),
    "gpt_bigcode": Family(two_matrices=True, tied=True),
    "gpt_neo": Family(two_matrices=True, tied=True),
    "gpt_neox": Family(two_matrices=True),
    "gpt_oss": Family(full_every=2),
    "gptj": Family(two_matrices=True),
    "llama4": Family(full_every=4, one_shared=True),
    "llama4_text": Family(full_every=4, one_shared=True),
    "mpt": Family(two_matrices=True, tied=True),
    "nemotron": Family(two_matrices=True),
    "nemotron_h": Family(two_matrices=True, mamba=True),
    "opt": Family(two_matrices=True, tied=True),
    "phi": Family(two_matrices=True),
    "qwen3_5": _HYBRID,
    "qwen3_5_moe": _HYBRID,
    "qwen3_5_moe_text": _HYBRID,
    "qwen3_5_text": _HYBRID,
    "qwen3_next": _HYBRID,
    "starcoder2": Family(two_matrices=True, tied=True),
}
