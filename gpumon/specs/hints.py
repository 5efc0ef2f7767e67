"""The keys under which an engine's own words about its model travel in `EngineReading.info`, and their reading.

All values are text from outside, as the engine words them: numbers as decimal digits (`8030261248`), no units. An
adapter sets the keys that its engine answers and leaves out the others; a value that makes no sense is left out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MODEL_PATH: Final = "model_path"
"""Folder, .gguf file or Hugging Face id that the weights are from; absolute where the adapter can make it so."""
ARCHITECTURE: Final = "architecture"
"""`llama`, `qwen3moe` (GGUF), `LlamaForCausalLM` or `llama` (Hugging Face)."""
PARAMS: Final = "params"
"""All parameters, embeddings included: a count, not billions."""
WEIGHT_BYTES: Final = "weight_bytes"
"""Bytes of all weights as they are stored, over all GPUs of the instance; never an allocator's figure."""
LAYERS: Final = "layers"
HIDDEN: Final = "hidden"
"""Width of the residual stream."""
HEADS: Final = "heads"
KV_HEADS: Final = "kv_heads"
HEAD_DIM: Final = "head_dim"
VOCAB: Final = "vocab"
EXPERTS: Final = "experts"
"""Routed experts of one layer."""
EXPERTS_PER_TOKEN: Final = "experts_per_token"
WEIGHT_PRECISION: Final = "weight_precision"
"""Format of the weights: `fp8`, `awq`, `Q4_K_M`, `Q4_K - Medium`, `mxfp4`, `bfloat16`, `torch.float16`."""
KV_DTYPE: Final = "kv_dtype"
"""Format of the KV cache: `fp8_e4m3`, `q8_0`, `bf16`; `auto` is the weights' own."""
STATE_DTYPE: Final = "state_dtype"
"""Format of recurrent states (Mamba, gated delta nets): `float32`, `bfloat16`; absent where the engine leaves it to
the model."""
CONVOLUTION_DTYPE: Final = "convolution_dtype"
"""Format of what short convolutions and lightning attention keep of a sequence; absent: the model's own."""
DTYPE: Final = "dtype"
"""Format to which the engine casts weights that are not quantised: `float32`, `half`; `auto` leaves them."""
PARAMETER_SIZE: Final = "parameter_size"
"""All parameters in words: `8.0B`, `751.63M`."""
CONTEXT_LEN: Final = "context_len"
"""Most tokens of one request."""
QUANTIZATION: Final = "quantization"
"""The engine's name of its quantisation method where that is not the format itself: `compressed-tensors`, `modelopt`,
`gptq_marlin`; `none` or an empty text where it says that there is none."""
SPECULATION: Final = "speculation"
"""Draft of tokens: `EAGLE3`, `ngram`, `draft model`; absent without speculation."""
LORA: Final = "lora"
"""Names or number of the LoRA adapters that are served beside the model; absent without."""
MODALITIES: Final = "modalities"
"""Inputs beside text, with commas between: `vision,audio`; absent for text alone."""

STORAGE_HINTS: Final = (WEIGHT_PRECISION, QUANTIZATION, DTYPE, KV_DTYPE, STATE_DTYPE, CONVOLUTION_DTYPE)
"""How the model is stored."""
SPEC_HINTS: Final = (
    MODEL_PATH,
    ARCHITECTURE,
    PARAMS,
    WEIGHT_BYTES,
    LAYERS,
    HIDDEN,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    VOCAB,
    EXPERTS,
    EXPERTS_PER_TOKEN,
    PARAMETER_SIZE,
    *STORAGE_HINTS,
)
"""Hints that decide a model's spec."""
HINTS: Final = frozenset((*SPEC_HINTS, CONTEXT_LEN, SPECULATION, LORA, MODALITIES))
"""All keys."""


def hints_of(info: Mapping[str, str]) -> dict[str, str]:
    """The part of an engine's `info` that is about its model."""
    return {key: text for key, text in info.items() if key in HINTS and text}
