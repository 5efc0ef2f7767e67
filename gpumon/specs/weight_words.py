"""Words for how weights are stored, as model names and engines use them -> the stored format."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gpumon.specs.modules import EXPERTS, HEAD, MLP, SHARED, TABLES
from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import LINEAR, WeightFormat, quantised_linear, storage_of_bits, unquantised

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


class FileType(NamedTuple):
    """Mean bits per weight of one of llama.cpp's file types, by what the weights do."""

    attention: float
    mlp: float
    """MLPs and experts."""
    head: float
    table: float
    """Look-up table, unless it is the LM head: that has the head's bits."""


def _all_alike(bits: float) -> FileType:
    """A file type of which only the mean over all tensors is known."""
    return FileType(bits, bits, bits, bits)


MXFP4_MOE: Final = "mxfp4_moe"
"""llama.cpp's file type of gpt-oss."""
_Q6_K: Final = 6.5625
"""Bits of the LM head in nearly all file types."""

GGUF_BITS: Final[dict[str, FileType]] = {
    "q2_k_s": FileType(3.0, 2.6875, _Q6_K, 2.625),
    "q2_k": FileType(3.1375, 2.896, _Q6_K, 2.625),
    "q3_k_s": FileType(3.4375, 3.4375, _Q6_K, 3.4375),
    "q3_k_m": FileType(3.975, 3.8125, _Q6_K, 3.4375),
    "q3_k_l": FileType(4.469, 4.125, _Q6_K, 3.4375),
    "q4_0": FileType(4.5, 4.5, _Q6_K, 4.5),
    "q4_1": FileType(5.0, 5.0, _Q6_K, 5.0),
    "q4_k_s": FileType(4.513, 4.542, _Q6_K, 4.5),
    "q4_k_m": FileType(4.603, 4.844, _Q6_K, 4.5),
    "q5_0": FileType(5.5, 5.5, _Q6_K, 5.5),
    "q5_1": FileType(6.0, 6.0, _Q6_K, 6.0),
    "q5_k_s": FileType(5.5, 5.5, _Q6_K, 5.5),
    "q5_k_m": FileType(5.553, 5.677, _Q6_K, 5.5),
    "q6_k": _all_alike(_Q6_K),
    "q8_0": _all_alike(8.5),
    "iq1_s": _all_alike(2.00),
    "iq1_m": _all_alike(2.15),
    "iq2_xxs": _all_alike(2.38),
    "iq2_xs": _all_alike(2.59),
    "iq2_s": _all_alike(2.74),
    "iq2_m": _all_alike(2.93),
    "iq3_xxs": _all_alike(3.25),
    "iq3_xs": _all_alike(3.50),
    "iq3_s": _all_alike(3.66),
    "iq3_m": _all_alike(3.76),
    "iq4_xs": FileType(4.375, 4.302, _Q6_K, 4.25),
    "iq4_nl": FileType(4.6, 4.542, _Q6_K, 4.5),
    MXFP4_MOE: FileType(8.5, 4.25, 8.5, 8.5),
}
"""Bits per weight of llama.cpp's file types, where of a model its parts alone are known, and not its matrices
(`gguf_mixture` has these).

The types of tensors are those of `llama_tensor_get_type` in llama.cpp: with `_M` values and down projections have more
bits in half of the layers (Q4_K 4.5, Q5_K 5.5, Q6_K 6.5625), with Q3_K and Q2_K attention's output, too. Values are
taken as a tenth of attention, as in Llama-3.1-8B; in Llama-3.3-70B they are an eighteenth, 0.4% of the bits. Of the IQ
types the mean over all tensors of an 8B model is known (llama.cpp's quantize README).
"""

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

_EMPTY_WORDS: Final = frozenset(("", "none", "null", "auto", "false", "no"))
"""Values of an option that say nothing."""


def says_nothing(word: str) -> bool:
    """Whether an engine's word for its quantisation or format means that there is none, or that the file decides."""
    return word.strip().lower() in _EMPTY_WORDS


def weights_named(word: str) -> WeightFormat | None:
    """The stored format that a word names (`fp8`, `awq_marlin`, `torch.bfloat16`, `Q4_K_M`, `Q4_K - Medium`).

    None where the word leaves the bits open (`compressed-tensors`, `modelopt`, `quark`) or is not known.
    """
    text = word.strip().lower().removeprefix("(guessed)").strip().removeprefix("all ")
    text = text.replace(" moe", "_moe")
    detail = _DETAIL.search(text)
    if detail is not None:
        text = text[: detail.start()]
        sized = f"{text}_{detail['detail'][:1]}"
        if sized in GGUF_BITS:
            text = sized
    text = text.removeprefix("torch.").replace("-", "_")
    if text in GGUF_BITS:
        return _of_file_type(text)
    text = _SYNONYMS.get(text, text)
    precision = GGUF_WIDE.get(text)
    if precision is not None:
        return unquantised(precision)
    return NAMED_FORMATS.get(text)


def _of_file_type(file_type: str) -> WeightFormat:
    """All weights of a GGUF file as its type has them."""
    bits = GGUF_BITS[file_type]
    parts = dict.fromkeys(LINEAR, storage_of_bits(bits.attention))
    parts |= dict.fromkeys((MLP, SHARED, EXPERTS), storage_of_bits(bits.mlp))
    parts |= {HEAD: storage_of_bits(bits.head), TABLES: storage_of_bits(bits.table)}
    return WeightFormat(parts, file_type=file_type)


def of_bits(bits: float) -> WeightFormat:
    """All matmul weights, the LM head too, at this mean number of bits, widened for the arithmetic: GGUF files."""
    return WeightFormat(dict.fromkeys((*LINEAR, HEAD), storage_of_bits(bits)))
