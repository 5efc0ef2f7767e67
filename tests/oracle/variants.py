"""Configs for the kinds of layer that neither a default nor a released file here has.

On the meta device at the size of the family's released model; on the CPU, scaled down, where the model's code needs
values (it picks out each expert's tokens, or calls `.item()`).
"""

from typing import Any

_SMALL = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 320, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 4,
}  # fmt: skip

VARIANTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "bamba/attention": ("bamba", {"attn_layer_indices": [9, 18, 27]}, "meta"),
    "exaone4/sliding": ("exaone4", {"sliding_window": 4096, "sliding_window_pattern": 4}, "meta"),
    "falcon/grouped": (
        "falcon",
        {"new_decoder_architecture": True, "num_kv_heads": 8, "hidden_size": 4096, "num_attention_heads": 64},
        "meta",
    ),
    "falcon/alibi": ("falcon", {"alibi": True, "multi_query": False, "parallel_attn": False}, "meta"),
    "gemma3n/small": (
        "gemma3n_text",
        {
            **_SMALL, "num_hidden_layers": 10, "num_kv_shared_layers": 5, "head_dim": 32,
            "vocab_size_per_layer_input": 512, "hidden_size_per_layer_input": 16, "laurel_rank": 8,
            "sliding_window": 64, "activation_sparsity_pattern": [0.0] * 10,
        },
        "cpu",
    ),
    "granitemoehybrid/attention": (
        "granitemoehybrid",
        {
            "hidden_size": 1536, "intermediate_size": 512, "shared_intermediate_size": 1024, "num_hidden_layers": 40,
            "num_attention_heads": 12, "num_key_value_heads": 4, "num_local_experts": 64, "num_experts_per_tok": 6,
            "layer_types": ["attention" if layer in (5, 15, 25, 35) else "mamba" for layer in range(40)],
            "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128,
        },
        "meta",
    ),
    "hunyuan_v1_moe/a13b": (
        "hunyuan_v1_moe",
        {
            "head_dim": 128, "num_key_value_heads": 8, "intermediate_size": 3072, "num_experts": 64, "moe_topk": 8,
            "vocab_size": 128167,
        },
        "meta",
    ),
    "jetmoe/small": ("jetmoe", {
        "vocab_size": 512, "hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 4,
        "num_key_value_heads": 2, "kv_channels": 32,
    }, "cpu"),
    "lfm2/conv": (
        "lfm2",
        {
            "num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 12288,
            "layer_types": ["full_attention" if layer in (2, 5, 8, 10, 12, 14) else "conv" for layer in range(16)],
        },
        "meta",
    ),
    "longcat_flash/small": (
        "longcat_flash",
        {
            "vocab_size": 512, "hidden_size": 128, "ffn_hidden_size": 320, "num_layers": 2, "num_attention_heads": 4,
            "q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
            "head_dim": 16, "n_routed_experts": 8, "zero_expert_num": 4, "expert_ffn_hidden_size": 64, "moe_topk": 3,
        },
        "cpu",
    ),
    "dbrx/small": (
        "dbrx",
        {
            "d_model": 128, "n_heads": 4, "n_layers": 3, "vocab_size": 512,
            "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000},
            "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 8, "moe_top_k": 2},
        },
        "cpu",
    ),
    # The sizes of Qwen3.8-Flash-Next, as quoted in public tests of its kernels; by default it has no indexer.
    "qwen4_exp/next": (
        "qwen4_exp_text",
        {
            "hidden_size": 2560, "num_attention_heads": 24, "num_key_value_heads": 2, "head_dim": 256,
            "linear_num_key_heads": 16, "linear_num_value_heads": 48, "indexer_n_heads": 4, "indexer_kv_heads": 1,
            "indexer_head_dim": 128, "indexer_compress_ratio": 4, "indexer_budget": 2048, "num_experts": 512,
            "num_experts_per_tok": 10, "moe_intermediate_size": 640, "shared_expert_intermediate_size": 640,
            "ple_layer_ids": [2], "eos_token_id": 248044,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25},
        },
        "meta",
    ),
    "step3p7/small": (
        "step3p7",
        {
            "text_config": {
                "model_type": "step3p5", **_SMALL, "num_hidden_layers": 8, "head_dim": 32, "sliding_window": 64,
                "num_sliding_attention_heads": 6, "n_routed_experts": 8, "num_experts_per_tok": 2,
                "moe_intermediate_size": 64, "share_expert_dim": 64,
                "layer_types": ["full_attention" if layer % 4 == 0 else "sliding_attention" for layer in range(8)],
            },
        },
        "cpu",
    ),
    "nemotron_h/small": (
        "nemotron_h",
        {"vocab_size": 512, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32},
        "cpu",
    ),
    "phi3/sliding": ("phi3", {"sliding_window": 2047}, "meta"),
    "qwen2/sliding": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 1024, "max_window_layers": 16, "num_key_value_heads": 8},
        "meta",
    ),
    # The same models small on the CPU: the code that picks out each expert's tokens multiplies as many.
    "qwen3_moe/small": (
        "qwen3_moe",
        {**_SMALL, "head_dim": 32, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
        "cpu",
    ),
    "mixtral/small": ("mixtral", {**_SMALL, "num_local_experts": 8, "num_experts_per_tok": 2}, "cpu"),
    "llama/small": ("llama", _SMALL, "cpu"),
    "qwen3_next/small": (
        "qwen3_next",
        {
            **_SMALL, "head_dim": 32, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 64, "linear_key_head_dim": 16, "linear_value_head_dim": 32,
            "linear_num_key_heads": 4, "linear_num_value_heads": 8,
        },
        "cpu",
    ),
}  # fmt: skip
