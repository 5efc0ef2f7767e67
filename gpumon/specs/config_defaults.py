"""Defaults of configuration classes of transformers 5.24.0 for multimodal configs that lack some.

Written by `python -m tests.oracle.config_defaults`. Older releases left out what has its default (LLaVA, Gemma 3).
"""

from __future__ import annotations

from typing import Final

CONFIG_DEFAULTS: Final[dict[str, str]] = {
    "apertus1p5_text": (
        "vocab_size=266752 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 "
        "num_attention_heads=32 max_position_embeddings=65536 tie_word_embeddings=false"
    ),
    "aria_text": (
        "vocab_size=32000 hidden_size=4096 intermediate_size=4096 num_hidden_layers=32 num_attention_heads=32 "
        "max_position_embeddings=2048 tie_word_embeddings=false moe_num_experts=8 moe_topk=2 "
        "moe_num_shared_experts=2"
    ),
    "bart": ("vocab_size=50265 max_position_embeddings=1024 tie_word_embeddings=true"),
    "bert": (
        "vocab_size=30522 hidden_size=768 num_hidden_layers=12 num_attention_heads=12 intermediate_size=3072 "
        "max_position_embeddings=512 tie_word_embeddings=true"
    ),
    "blip_text_model": (
        "vocab_size=30524 hidden_size=768 intermediate_size=3072 num_hidden_layers=12 num_attention_heads=8 "
        "max_position_embeddings=512 tie_word_embeddings=true"
    ),
    "chameleon": (
        "vocab_size=65536 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 "
        "num_attention_heads=32 num_key_value_heads=32 max_position_embeddings=4096 tie_word_embeddings=false"
    ),
    "cohere2": (
        "vocab_size=256000 hidden_size=8192 intermediate_size=22528 num_hidden_layers=40 "
        "num_attention_heads=64 max_position_embeddings=8192 tie_word_embeddings=true sliding_window=4096"
    ),
    "cohere_compass_text": (
        "vocab_size=256000 hidden_size=8192 intermediate_size=22528 num_hidden_layers=40 "
        "num_attention_heads=64 max_position_embeddings=8192 tie_word_embeddings=true sliding_window=4096"
    ),
    "cosmos3_edge_text": (
        "vocab_size=131072 hidden_size=2048 intermediate_size=9216 num_hidden_layers=28 "
        "num_attention_heads=16 num_key_value_heads=8 max_position_embeddings=131072 "
        "tie_word_embeddings=false head_dim=128"
    ),
    "deepseek_ocr2_text": (
        "vocab_size=102400 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 "
        "num_attention_heads=32 max_position_embeddings=2048 tie_word_embeddings=false n_routed_experts=64 "
        "n_shared_experts=2 moe_intermediate_size=1407"
    ),
    "deepseek_v3": (
        "vocab_size=129280 hidden_size=7168 intermediate_size=18432 moe_intermediate_size=2048 "
        "num_hidden_layers=61 num_attention_heads=128 num_key_value_heads=128 n_shared_experts=1 "
        "n_routed_experts=256 kv_lora_rank=512 q_lora_rank=1536 qk_rope_head_dim=64 v_head_dim=128 "
        "qk_nope_head_dim=128 num_experts_per_tok=8 first_k_dense_replace=3 max_position_embeddings=4096 "
        "tie_word_embeddings=false num_mtp_layers=1"
    ),
    "diffusion_gemma_text": (
        "vocab_size=262144 hidden_size=2304 intermediate_size=9216 num_hidden_layers=30 num_attention_heads=8 "
        "num_key_value_heads=4 head_dim=256 max_position_embeddings=131072 tie_word_embeddings=true "
        "sliding_window=512"
    ),
    "dots3_note_text": (
        "vocab_size=152064 hidden_size=5120 intermediate_size=13824 moe_intermediate_size=1536 "
        "num_hidden_layers=46 num_attention_heads=128 num_key_value_heads=128 n_shared_experts=1 "
        "n_routed_experts=256 kv_lora_rank=512 q_lora_rank=1024 qk_rope_head_dim=64 v_head_dim=128 "
        "qk_nope_head_dim=128 num_experts_per_tok=8 max_position_embeddings=524288 tie_word_embeddings=false "
        "index_topk=2048 index_head_dim=128 index_n_heads=64 head_dim=256 "
        "shared_experts_intermediate_size=1536"
    ),
    "emu3_text_model": (
        "vocab_size=184622 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 "
        "num_attention_heads=32 num_key_value_heads=8 max_position_embeddings=9216 tie_word_embeddings=false"
    ),
    "ernie4_5_vl_moe_text": (
        "vocab_size=103424 hidden_size=2560 intermediate_size=12288 num_hidden_layers=28 "
        "num_attention_heads=20 num_key_value_heads=4 max_position_embeddings=131072 tie_word_embeddings=true "
        "moe_k=6 moe_num_experts=64 moe_num_shared_experts=2"
    ),
    "evolla": (
        "vocab_size=128256 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 "
        "num_attention_heads=32 num_key_value_heads=8 max_position_embeddings=8192 tie_word_embeddings=false"
    ),
    "exaone4": (
        "vocab_size=102400 hidden_size=4096 intermediate_size=16384 num_hidden_layers=32 "
        "num_attention_heads=32 num_key_value_heads=32 max_position_embeddings=2048 tie_word_embeddings=false "
        "sliding_window=4096 sliding_window_pattern=4"
    ),
    "gemma": (
        "vocab_size=256000 hidden_size=3072 intermediate_size=24576 num_hidden_layers=28 "
        "num_attention_heads=16 num_key_value_heads=16 head_dim=256 max_position_embeddings=8192 "
        "tie_word_embeddings=true"
    ),
    "gemma3_text": (
        "vocab_size=262208 hidden_size=2304 intermediate_size=9216 num_hidden_layers=26 num_attention_heads=8 "
        "num_key_value_heads=4 head_dim=256 max_position_embeddings=131072 tie_word_embeddings=true "
        "sliding_window=4096"
    ),
    "gemma3n_text": (
        "vocab_size=262400 hidden_size=2048 intermediate_size=16384 num_hidden_layers=35 "
        "num_attention_heads=8 num_key_value_heads=2 head_dim=256 max_position_embeddings=32768 "
        "tie_word_embeddings=true sliding_window=512 vocab_size_per_layer_input=262144 "
        "hidden_size_per_layer_input=256 altup_num_inputs=4 num_kv_shared_layers=15 laurel_rank=64"
    ),
    "gemma4_text": (
        "vocab_size=262144 hidden_size=2304 intermediate_size=9216 num_hidden_layers=30 num_attention_heads=8 "
        "num_key_value_heads=4 head_dim=256 max_position_embeddings=131072 tie_word_embeddings=true "
        "sliding_window=512 vocab_size_per_layer_input=262144 hidden_size_per_layer_input=256 "
        "num_kv_shared_layers=0"
    ),
    "gemma4_unified_text": (
        "vocab_size=262144 hidden_size=2304 intermediate_size=9216 num_hidden_layers=30 num_attention_heads=8 "
        "num_key_value_heads=4 head_dim=256 max_position_embeddings=262144 tie_word_embeddings=true "
        "sliding_window=1024 num_kv_shared_layers=0"
    ),
    "git": (
        "vocab_size=30522 hidden_size=768 num_hidden_layers=6 num_attention_heads=12 intermediate_size=3072 "
        "max_position_embeddings=1024 tie_word_embeddings=false"
    ),
    "glm4v_moe_text": (
        "vocab_size=151424 hidden_size=4096 intermediate_size=10944 num_hidden_layers=46 "
        "num_attention_heads=96 num_key_value_heads=8 max_position_embeddings=65536 tie_word_embeddings=false "
        "moe_intermediate_size=1408 num_experts_per_tok=8 n_shared_experts=1 n_routed_experts=128 "
        "first_k_dense_replace=1"
    ),
    "glm4v_text": (
        "vocab_size=151552 hidden_size=4096 intermediate_size=13696 num_hidden_layers=40 "
        "num_attention_heads=32 num_key_value_heads=2 max_position_embeddings=32768"
    ),
    "glm5_next_text": (
        "vocab_size=154880 hidden_size=4096 intermediate_size=12288 moe_intermediate_size=2048 "
        "num_hidden_layers=45 num_attention_heads=64 num_key_value_heads=64 n_shared_experts=1 "
        "n_routed_experts=288 kv_lora_rank=512 q_lora_rank=1536 qk_rope_head_dim=0 v_head_dim=256 "
        "qk_nope_head_dim=256 num_experts_per_tok=8 max_position_embeddings=1048576 tie_word_embeddings=false "
        "index_topk=2048 index_head_dim=128 index_n_heads=32 head_dim=0 linear_head_dim=128 "
        "linear_num_heads=64 linear_conv_kernel_dim=4 index_kpool=16 index_kpool_always_select_tail=true"
    ),
    "glm_ocr_text": (
        "vocab_size=59392 hidden_size=1024 intermediate_size=4096 num_hidden_layers=16 num_attention_heads=16 "
        "num_key_value_heads=8 max_position_embeddings=131072"
    ),
    "granite4_vision_text": (
        "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 "
        "num_attention_heads=32 max_position_embeddings=2048 tie_word_embeddings=false"
    ),
    "granite_docling_text": (
        "vocab_size=133800 hidden_size=1024 intermediate_size=2048 num_hidden_layers=28 "
        "num_attention_heads=16 num_key_value_heads=4 max_position_embeddings=32768 tie_word_embeddings=true"
    ),
    "hunyuan_vl_text": (
        "vocab_size=290943 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 "
        "num_attention_heads=32 max_position_embeddings=2048 tie_word_embeddings=true"
    ),
    "hy_v4_vl_text": (
        "vocab_size=120832 hidden_size=6144 intermediate_size=18432 moe_intermediate_size=2048 "
        "num_hidden_layers=78 num_attention_heads=64 num_key_value_heads=32 head_dim=256 "
        "max_position_embeddings=262144 tie_word_embeddings=false n_routed_experts=256 n_shared_experts=1 "
        "num_experts_per_tok=8 q_lora_rank=2048 kv_lora_rank=512 qk_nope_head_dim=192 qk_rope_head_dim=64 "
        "v_head_dim=256 index_topk=2048 index_head_dim=128 index_n_heads=32"
    ),
    "hyperclovax": (
        "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 "
        "num_attention_heads=32 max_position_embeddings=2048 tie_word_embeddings=false"
    ),
    "idefics": (
        "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 "
        "num_attention_heads=32 tie_word_embeddings=false max_position_embeddings=2048"
    ),
    "inkling2_loop_text": (
        "vocab_size=201024 hidden_size=2304 num_hidden_layers=24 num_attention_heads=24 num_key_value_heads=8 "
        "head_dim=128 swa_head_dim=128 sliding_window_size=1024 max_position_embeddings=1048576 "
        "conv_kernel_size=4 moe_intermediate_size=1152 n_routed_experts=128 num_experts_per_tok=8 "
        "loop_gate_rank=64"
    ),
    "inkling2_text": (
        "vocab_size=201024 hidden_size=4608 num_hidden_layers=48 num_attention_heads=48 num_key_value_heads=8 "
        "head_dim=128 swa_head_dim=128 sliding_window_size=1024 max_position_embeddings=1048576 "
        "conv_kernel_size=4 moe_intermediate_size=2304 n_routed_experts=384 num_experts_per_tok=8"
    ),
    "inkling_text": (
        "vocab_size=201024 hidden_size=6144 num_hidden_layers=66 num_attention_heads=64 num_key_value_heads=8 "
        "head_dim=128 swa_head_dim=128 sliding_window_size=512 max_position_embeddings=131072 "
        "conv_kernel_size=4 intermediate_size=24576 moe_intermediate_size=3072 n_routed_experts=256 "
        "num_experts_per_tok=6 n_shared_experts=2"
    ),
    "kosmos_2_5_text_model": ("vocab_size=108481 max_position_embeddings=4096 tie_word_embeddings=true"),
    "kosmos_2_text_model": ("vocab_size=65037 max_position_embeddings=2048 tie_word_embeddings=true"),
    "lfm2": (
        "vocab_size=65536 hidden_size=2560 intermediate_size=12288 num_hidden_layers=32 "
        "num_attention_heads=32 num_key_value_heads=8 max_position_embeddings=128000 tie_word_embeddings=true "
        "conv_bias=false conv_L_cache=3"
    ),
    "lfm3": (
        "vocab_size=128000 hidden_size=2048 intermediate_size=7680 num_hidden_layers=24 "
        "num_attention_heads=16 num_key_value_heads=4 max_position_embeddings=128000 tie_word_embeddings=true "
        "conv_bias=false conv_L_cache=7 head_dim=128 sliding_window=256"
    ),
    "llama": (
        "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 "
        "num_attention_heads=32 max_position_embeddings=2048 tie_word_embeddings=false"
    ),
    "llama4_text": (
        "vocab_size=202048 hidden_size=5120 intermediate_size=8192 intermediate_size_mlp=16384 "
        "num_hidden_layers=48 num_attention_heads=40 num_key_value_heads=8 head_dim=128 "
        "max_position_embeddings=131072 tie_word_embeddings=false num_experts_per_tok=1 num_local_experts=16 "
        "interleave_moe_layer_step=1 no_rope_layer_interval=4 attention_chunk_size=8192"
    ),
    "minimax_m3_vl_text": (
        "vocab_size=200064 hidden_size=6144 intermediate_size=3072 num_hidden_layers=60 "
        "num_attention_heads=64 num_key_value_heads=4 head_dim=128 max_position_embeddings=524288 "
        "tie_word_embeddings=false num_experts_per_tok=4 num_local_experts=128 dense_intermediate_size=12288 "
        "shared_intermediate_size=3072 index_n_heads=4 index_head_dim=128 index_block_size=128 "
        "index_topk_blocks=16 index_local_blocks=1"
    ),
    "mistral": (
        "vocab_size=32000 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 "
        "num_attention_heads=32 num_key_value_heads=8 max_position_embeddings=131072 "
        "tie_word_embeddings=false sliding_window=4096"
    ),
    "mistral4": (
        "vocab_size=131072 hidden_size=4096 intermediate_size=12288 moe_intermediate_size=2048 "
        "num_hidden_layers=36 num_attention_heads=32 num_key_value_heads=32 n_shared_experts=1 "
        "n_routed_experts=128 kv_lora_rank=256 q_lora_rank=1024 qk_rope_head_dim=64 v_head_dim=128 "
        "qk_nope_head_dim=64 num_experts_per_tok=4 first_k_dense_replace=0 max_position_embeddings=1048576 "
        "tie_word_embeddings=false"
    ),
    "mistral_large4_text": (
        "vocab_size=204800 hidden_size=6144 intermediate_size=24576 moe_intermediate_size=6144 "
        "num_hidden_layers=72 num_attention_heads=64 num_key_value_heads=64 n_shared_experts=1 "
        "n_routed_experts=128 kv_lora_rank=512 qk_rope_head_dim=64 v_head_dim=128 qk_nope_head_dim=64 "
        "num_experts_per_tok=4 max_position_embeddings=1048576 tie_word_embeddings=false index_topk=2048 "
        "index_head_dim=128 index_n_heads=32 head_dim=64 first_k_dense_replace=1"
    ),
    "mllama_text_model": (
        "vocab_size=128256 hidden_size=4096 num_hidden_layers=40 num_attention_heads=32 num_key_value_heads=8 "
        "intermediate_size=14336 max_position_embeddings=131072 tie_word_embeddings=false"
    ),
    "molmo2_text": (
        "hidden_size=4096 num_attention_heads=32 num_key_value_heads=8 head_dim=128 vocab_size=151936 "
        "num_hidden_layers=36 intermediate_size=12288 max_position_embeddings=36864 tie_word_embeddings=false"
    ),
    "muse_glimmer_text": (
        "vocab_size=202048 hidden_size=6656 intermediate_size=19968 num_hidden_layers=52 "
        "num_attention_heads=32 num_key_value_heads=2 head_dim=128 max_position_embeddings=131072 "
        "tie_word_embeddings=false sliding_window=2048"
    ),
    "muse_spark_text": (
        "vocab_size=202048 hidden_size=8192 intermediate_size=16384 num_hidden_layers=62 "
        "num_attention_heads=128 num_key_value_heads=16 head_dim=64 max_position_embeddings=1048576 "
        "tie_word_embeddings=false sliding_window=2048 moe_intermediate_size=4096 num_local_experts=256 "
        "num_experts_per_tok=8 moe_hidden_size=4096"
    ),
    "nemotron_h": (
        "vocab_size=131072 hidden_size=4096 tie_word_embeddings=false num_logits_to_keep=1 "
        "num_attention_heads=32 num_key_value_heads=8 head_dim=128 max_position_embeddings=4096 "
        "intermediate_size=21504 mamba_head_dim=64 conv_kernel=4 n_routed_experts=8 n_shared_experts=1 "
        "moe_intermediate_size=7688 moe_shared_expert_intermediate_size=7688 moe_shared_expert_overlap=true "
        "num_experts_per_tok=2 num_nextn_predict_layers=0"
    ),
    "opt": (
        "vocab_size=50272 hidden_size=768 num_hidden_layers=12 max_position_embeddings=2048 "
        "num_attention_heads=12 tie_word_embeddings=true"
    ),
    "paddleocr_vl_text": (
        "vocab_size=103424 hidden_size=1024 intermediate_size=3072 num_hidden_layers=18 "
        "num_attention_heads=16 num_key_value_heads=2 max_position_embeddings=131072 tie_word_embeddings=true "
        "head_dim=128"
    ),
    "persimmon": (
        "vocab_size=262144 hidden_size=4096 intermediate_size=16384 num_hidden_layers=36 "
        "num_attention_heads=64 max_position_embeddings=16384 tie_word_embeddings=false"
    ),
    "pix2struct_text_model": ("vocab_size=50244 hidden_size=768 num_layers=12 num_heads=12 tie_word_embeddings=false"),
    "pp_formulanet_text": ("vocab_size=50000 max_position_embeddings=2560 tie_word_embeddings=false"),
    "qwen2": (
        "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32 "
        "num_attention_heads=32 num_key_value_heads=32 max_position_embeddings=32768 "
        "tie_word_embeddings=false use_sliding_window=false sliding_window=4096 max_window_layers=28"
    ),
    "qwen2_5_omni_text": (
        "vocab_size=152064 hidden_size=3584 intermediate_size=18944 num_hidden_layers=28 "
        "num_attention_heads=28 num_key_value_heads=4 max_position_embeddings=32768 use_sliding_window=false "
        "sliding_window=32768 max_window_layers=28 tie_word_embeddings=true"
    ),
    "qwen2_5_vl_text": (
        "vocab_size=152064 hidden_size=8192 intermediate_size=29568 num_hidden_layers=80 "
        "num_attention_heads=64 num_key_value_heads=8 max_position_embeddings=32768 use_sliding_window=false "
        "sliding_window=4096 max_window_layers=80"
    ),
    "qwen2_vl_text": (
        "vocab_size=152064 hidden_size=8192 intermediate_size=29568 num_hidden_layers=80 "
        "num_attention_heads=64 num_key_value_heads=8 max_position_embeddings=32768 use_sliding_window=false "
        "sliding_window=4096 max_window_layers=80"
    ),
    "qwen3": (
        "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32 "
        "num_attention_heads=32 num_key_value_heads=32 head_dim=128 max_position_embeddings=32768 "
        "tie_word_embeddings=false use_sliding_window=false sliding_window=4096 max_window_layers=28"
    ),
    "qwen3_5_moe_text": (
        "vocab_size=248320 hidden_size=2048 num_hidden_layers=40 num_attention_heads=16 num_key_value_heads=2 "
        "max_position_embeddings=32768 tie_word_embeddings=false head_dim=256 linear_conv_kernel_dim=4 "
        "linear_key_head_dim=128 linear_value_head_dim=128 linear_num_key_heads=16 linear_num_value_heads=32 "
        "moe_intermediate_size=512 shared_expert_intermediate_size=512 num_experts_per_tok=8 num_experts=256"
    ),
    "qwen3_5_text": (
        "vocab_size=248320 hidden_size=4096 intermediate_size=12288 num_hidden_layers=32 "
        "num_attention_heads=16 num_key_value_heads=4 max_position_embeddings=32768 tie_word_embeddings=false "
        "head_dim=256 linear_conv_kernel_dim=4 linear_key_head_dim=128 linear_value_head_dim=128 "
        "linear_num_key_heads=16 linear_num_value_heads=32"
    ),
    "qwen3_omni_moe_text": (
        "vocab_size=3584 hidden_size=2048 intermediate_size=18944 num_hidden_layers=28 num_attention_heads=28 "
        "num_key_value_heads=4 max_position_embeddings=32768 decoder_sparse_step=1 moe_intermediate_size=768 "
        "num_experts_per_tok=8 num_experts=128"
    ),
    "qwen3_vl_moe_text": (
        "vocab_size=151936 hidden_size=2048 intermediate_size=5632 num_hidden_layers=24 "
        "num_attention_heads=16 num_key_value_heads=16 max_position_embeddings=128000 "
        "tie_word_embeddings=true decoder_sparse_step=1 moe_intermediate_size=1408 num_experts_per_tok=4 "
        "num_experts=60"
    ),
    "qwen3_vl_text": (
        "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32 "
        "num_attention_heads=32 num_key_value_heads=32 head_dim=128 max_position_embeddings=128000"
    ),
    "qwen4_exp_text": (
        "vocab_size=248320 hidden_size=2048 num_hidden_layers=40 num_attention_heads=16 num_key_value_heads=2 "
        "max_position_embeddings=32768 tie_word_embeddings=false head_dim=256 linear_conv_kernel_dim=4 "
        "linear_key_head_dim=128 linear_value_head_dim=128 linear_num_key_heads=16 linear_num_value_heads=32 "
        "moe_intermediate_size=512 shared_expert_intermediate_size=512 num_experts_per_tok=10 num_experts=512"
    ),
    "step3p5": (
        "vocab_size=128815 hidden_size=4096 intermediate_size=11264 num_hidden_layers=45 "
        "num_attention_heads=64 num_key_value_heads=8 head_dim=128 max_position_embeddings=128000 "
        "tie_word_embeddings=false num_experts_per_tok=8 num_local_experts=128 moe_intermediate_size=1280 "
        "n_routed_experts=288"
    ),
    "t5gemma2_decoder": (
        "vocab_size=262208 hidden_size=2304 intermediate_size=9216 num_hidden_layers=26 num_attention_heads=8 "
        "num_key_value_heads=4 head_dim=256 max_position_embeddings=131072 tie_word_embeddings=true "
        "sliding_window=4096"
    ),
    "udop": ("vocab_size=33201 num_layers=24 num_heads=16 num_channels=3 tie_word_embeddings=true"),
    "unlimited_ocr_text": (
        "vocab_size=129280 hidden_size=1280 intermediate_size=6848 num_hidden_layers=12 "
        "num_attention_heads=10 num_key_value_heads=10 max_position_embeddings=32768 "
        "tie_word_embeddings=false n_routed_experts=64 n_shared_experts=2 num_experts_per_tok=6 "
        "moe_intermediate_size=896 sliding_window=128"
    ),
}
"""Type of a text part -> its fields with their defaults, as `field=value`."""
