"""What an LLM is, as far as FLOPs and bytes need it."""

from __future__ import annotations

import msgspec

from gpumon.specs.precision import Precision


class LlmSpec(msgspec.Struct, frozen=True, array_like=True):
    """Dimensions of one LLM. Counts of parameters are numbers (not billions); `source` says who gave them.

    Attention is one of two shapes: `kv_lora_rank` > 0 is MLA (`rope_dim` shared key elements beside the latent,
    `qk_head_dim` and `v_head_dim` per head in prefill), else MHA/GQA/MQA of `kv_heads` x `head_dim`.
    """

    name: str
    source: str
    params: float
    """All parameters."""
    matmul_params: float
    """N_mm: parameters multiplied per token: active experts, attention, LM head; no embedding look-up."""
    vocab: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    full_layers: int
    """Layers whose attention sees the whole context."""
    window_layers: int = 0
    window: int = 0
    """Tokens that a sliding-window layer sees."""
    linear_layers: int = 0
    """Layers with a constant state instead of attention."""
    linear_state_elements: float = 0.0
    """Elements of that state per sequence, all linear layers."""
    kv_lora_rank: int = 0
    rope_dim: int = 0
    qk_head_dim: int = 0
    v_head_dim: int = 0
    experts: int = 0
    """Routed experts of one MoE layer; 0 is dense."""
    experts_per_token: int = 0
    expert_params: float = 0.0
    """Parameters of one routed expert index summed over all MoE layers."""
    precision: Precision = Precision.BF16
    """Format of the matmul weights (of the experts, where they differ)."""
    weight_only: bool = False
    """Weights are widened before the arithmetic (AWQ, GPTQ, MXFP4 on Hopper): it runs at the 16-bit peak."""
    kv_precision: Precision = Precision.BF16
    read_bytes: float = 0.0
    """Bytes of all matmul weights, every expert included: what a step with all experts touched reads."""
    expert_read_bytes: float = 0.0
    """Bytes of one routed expert index summed over all MoE layers."""
    not_modelled: tuple[str, ...] = ()
    """Parts of the architecture that the formulas leave out (vision encoder, state-space layers, ...)."""
    full_kv_elements: int = 0
    """KV elements per token of one full layer where it differs from the window layers (Gemma 4); 0: it does not."""
    stored_bytes: float = 0.0
    """Bytes of all stored weights, where a file's own table or the engine tells them; 0: they follow from the rest."""

    @property
    def layers(self) -> int:
        """Layers of all kinds."""
        return self.full_layers + self.window_layers + self.linear_layers
