"""Words for how weights are stored, as model names and engines use them -> the stored format."""

from __future__ import annotations

import re
from typing import Final

from gpumon.specs.layers import HEAD
from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import LINEAR, WeightFormat, WeightStorage, quantised_linear, unquantised

_DETAIL = re.compile(r"\s+-\s+(?P<detail>\w+).*")
"""Words behind a GGUF type: ` - Medium`."""

NAMED_FORMATS: Final[dict[str, WeightFormat]] = {
    "nvfp4a16": quantised_linear(Precision.NVFP4, weight_only=True),
    "nvfp4": quantised_linear(Precision.NVFP4),
    "mxfp4": quantised_linear(Precision.MXFP4),
    "mxfp8": quantised_linear(Precision.FP8),
    "fp4": quantised_linear(Precision.NVFP4),
    "fp8": quantised_linear(Precision.FP8),
    "w8a8": quantised_linear(Precision.INT8),
    "w8a16": quantised_linear(Precision.INT8, weight_only=True),
    "w4a8": quantised_linear(Precision.INT4),
    "w4a16": quantised_linear(Precision.INT4, weight_only=True),
    "int8": quantised_linear(Precision.INT8, weight_only=True),
    "8bit": quantised_linear(Precision.INT8, weight_only=True),
    "int4": quantised_linear(Precision.INT4, weight_only=True),
    "4bit": quantised_linear(Precision.INT4, weight_only=True),
    "awq": quantised_linear(Precision.INT4, weight_only=True),
    "gptq": quantised_linear(Precision.INT4, weight_only=True),
    "bnb": quantised_linear(Precision.INT4, weight_only=True),
    "bf16": unquantised(Precision.BF16),
    "fp16": unquantised(Precision.FP16),
}
"""Words that name a stored format, the most telling first: `GPTQ-Int8` is 8 bit, `AWQ-INT4` is 4 bit."""

GGUF_WIDE: Final = {"f16": Precision.FP16, "bf16": Precision.BF16, "f32": Precision.FP32}
"""llama.cpp's file types without quantisation."""

GGUF_BITS: Final[dict[str, float]] = {
    "q2_k_s": 2.97,
    "q2_k": 3.16,
    "q3_k_s": 3.64,
    "q3_k_m": 4.00,
    "q3_k_l": 4.30,
    "q4_0": 4.64,
    "q4_1": 5.11,
    "q4_k_s": 4.67,
    "q4_k_m": 4.89,
    "q5_0": 5.57,
    "q5_1": 6.04,
    "q5_k_s": 5.57,
    "q5_k_m": 5.70,
    "q6_k": 6.56,
    "q8_0": 8.50,
    "iq2_xxs": 2.38,
    "iq2_xs": 2.59,
    "iq2_s": 2.74,
    "iq2_m": 2.93,
    "iq3_xxs": 3.25,
    "iq3_xs": 3.50,
    "iq3_s": 3.66,
    "iq3_m": 3.76,
    "iq4_xs": 4.46,
    "iq4_nl": 4.68,
}
"""Bits per weight of llama.cpp's file types, all tensors of an 8B model together (llama.cpp's quantize README)."""

_SYNONYMS: Final = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "float32": "f32",
    "float": "f32",
    "fp32": "f32",
    "awq_marlin": "awq",
    "bitsandbytes_nf4": "bnb",
    "bitsandbytes_fp4": "bnb",
    "eetq": "int8",
    "fbgemm_fp8": "fp8",
    "modelopt_fp8": "fp8",
    "w8a8_fp8": "fp8",
    "fp8_e4m3": "fp8",
    "float8_e4m3fn": "fp8",
    "modelopt_fp4": "nvfp4",
    "petit_nvfp4": "nvfp4",
    "w8a8_int8": "w8a8",
}
"""Engines' words -> the words above (vLLM and SGLang `--quantization`, TGI `--quantize`, torch types)."""

# Most bits per weight of a whole file: the mean is above the format's own by scales, and by tensors kept wider. Each
# bound lies between two of llama.cpp's file types: Q4_K_M (4.89) and Q4_1 (5.11), Q8_0 (8.5) and F16, F16 and F32.
_MOST_BITS_OF_INT4: Final = 5.0
_MOST_BITS_OF_INT8: Final = 15.0
_MOST_BITS_OF_BF16: Final = 24.0

_EMPTY_WORDS: Final = frozenset(("", "none", "null", "auto", "false", "no"))
"""Values of an option that say nothing."""


def says_nothing(word: str) -> bool:
    """Whether an engine's word for its quantisation or format means that there is none, or that the file decides."""
    return word.strip().lower() in _EMPTY_WORDS


def weights_named(word: str) -> WeightFormat | None:
    """The stored format that a word names (`fp8`, `awq_marlin`, `torch.bfloat16`, `Q4_K_M`, `Q4_K - Medium`).

    None where the word leaves the bits open (`compressed-tensors`, `modelopt`, `quark`) or is not known.
    """
    text = word.strip().lower().removeprefix("(guessed)").strip().removeprefix("all ").removesuffix(" moe")
    detail = _DETAIL.search(text)
    if detail is not None:
        text = text[: detail.start()]
        sized = f"{text}_{detail['detail'][:1]}"
        if sized in GGUF_BITS:
            text = sized
    text = text.removeprefix("torch.").replace("-", "_")
    if text in GGUF_BITS:
        return of_bits(GGUF_BITS[text])
    text = _SYNONYMS.get(text, text)
    precision = GGUF_WIDE.get(text)
    if precision is not None:
        return unquantised(precision)
    return NAMED_FORMATS.get(text)


def of_bits(bits: float) -> WeightFormat:
    """All matmul weights, the LM head too, at this mean number of bits, widened for the arithmetic: GGUF files."""
    if bits < _MOST_BITS_OF_INT4:
        precision = Precision.INT4
    elif bits < _MOST_BITS_OF_INT8:
        precision = Precision.INT8
    elif bits <= _MOST_BITS_OF_BF16:
        precision = Precision.BF16
    else:
        precision = Precision.FP32
    stored = WeightStorage(precision, bits / 8.0, weight_only=bits < _MOST_BITS_OF_INT8)
    return WeightFormat(dict.fromkeys((*LINEAR, HEAD), stored))
