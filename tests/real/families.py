"""Makes small models with random weights of architectures that are not a Llama, every kind of their layers in each.

    VLLM_VENV/bin/python tests/real/families.py FOLDER [NAME ...]

Runs with vLLM's packages (torch, transformers, tokenizers). Widths are small; their proportions are near those of the
released models: the state of Mamba2 is 1/32 of the hidden size wide, a latent of MLA is 4 heads.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from models import tokenizer

VOCABULARY: Final = 10_240
CONTEXT: Final = 4096
COMMON: Final = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 3,
    "tie_word_embeddings": False,
}
MODELS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "tiny-granite-hybrid": (
        "granitemoehybrid",
        {
            "num_hidden_layers": 6,
            "layer_types": ["linear_attention", "linear_attention", "full_attention"] * 2,
            "intermediate_size": 256,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 512,
            "mamba_n_heads": 32,
            "mamba_d_head": 32,
            "mamba_d_state": 16,
            "mamba_n_groups": 1,
            "attention_multiplier": 0.125,
            "position_embedding_type": "rope",
        },
    ),
    "tiny-nemotron-h": (
        "nemotron_h",
        {
            "layers_block_type": ["mamba", "mlp", "mamba", "mlp", "attention", "mlp"] * 2,
            "head_dim": 64,
            "intermediate_size": 1024,
            "mamba_num_heads": 32,
            "mamba_head_dim": 32,
            "ssm_state_size": 16,
            "n_groups": 2,
        },
    ),
    "tiny-qwen3-next": (
        "qwen3_next",
        {
            "num_hidden_layers": 8,
            "head_dim": 64,
            "intermediate_size": 1024,
            "linear_num_key_heads": 8,
            "linear_num_value_heads": 16,
            "linear_key_head_dim": 64,
            "linear_value_head_dim": 64,
            "num_experts": 16,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 256,
            "shared_expert_intermediate_size": 256,
        },
    ),
    "tiny-gpt-oss": (
        "gpt_oss",
        {
            "num_hidden_layers": 6,
            "head_dim": 64,
            "intermediate_size": 512,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "sliding_window": 128,
        },
    ),
    "tiny-deepseek-v3": (
        "deepseek_v3",
        {
            "num_hidden_layers": 6,
            "num_key_value_heads": 8,
            "intermediate_size": 1024,
            "first_k_dense_replace": 1,
            "n_routed_experts": 16,
            "n_shared_experts": 1,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 256,
            "n_group": 1,
            "topk_group": 1,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "q_lora_rank": 256,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "num_nextn_predict_layers": 0,
        },
    ),
}
"""Name -> `model_type` and what differs from `COMMON`."""


def save(into: Path, model_type: str, fields: dict[str, Any], words: Any) -> None:
    """A model with random weights in 16 bit, and its tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **{**COMMON, **fields}))
    model.to(torch.bfloat16).save_pretrained(into)
    words.save_pretrained(into)
    print(into, sum(each.numel() for each in model.parameters()))


def main() -> None:
    """Make those that are named, or all."""
    into = Path(sys.argv[1])
    words = tokenizer(VOCABULARY, CONTEXT)
    for name in sys.argv[2:] or MODELS:
        save(into / name, *MODELS[name], words)


if __name__ == "__main__":
    main()
