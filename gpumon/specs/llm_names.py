"""Names of LLMs in the wild -> a key that leaves out who published it and how it was quantised."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import LINEAR, WeightFormat, narrow, plain

_MAX_NAME = 512
_PATH = re.compile(r"models--(?P<org>[^/]+?)--(?P<name>[^/]+)")
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_GGUF = re.compile(r"[-_.:](?:ud-)?(?P<type>i?q\d(?:_[a-z0-9]+)*|f16|bf16|f32)$")
_SPLIT = re.compile(r"[-_:\s]+")
_WORD_NUMBER = re.compile(r"([a-z]+)(\d+(?:\.\d+)?)")
_SIZE = re.compile(r"(?:\d+x)?\d+(?:\.\d+)?[bm]")
_DATE = re.compile(r"\d{4}")


class LlmName(msgspec.Struct, frozen=True):
    """`key` identifies the dimensions; `weights` is the stored format where the name tells it, `hint` the word."""

    key: tuple[str, ...]
    weights: WeightFormat | None = None
    hint: str = ""


def llm_name(text: str) -> LlmName:
    """Takes a model id or path apart: organisation, file ending, tuning and quantisation suffixes.

    A size, a version or any other word stays in the key, so that two sizes never meet. A date (four digits) is left
    out only where a size stands beside it: `Qwen3-4B-Instruct-2507` is `qwen 3 4b`, `Mistral-Large-2407` stays whole.
    """
    name = text[:_MAX_NAME].strip().rstrip("/")
    cached = _PATH.search(name)
    name = (cached["name"] if cached else name.rsplit("/", 1)[-1]).lower()
    name = _SHARD.sub("", name.removesuffix(".gguf"))
    gguf = _GGUF.search(name)
    if gguf:
        name = name[: gguf.start()]
    words = [word for word in _SPLIT.split(name.replace("quantized.", "")) if word]
    hints = [word for word in words if word in _HINTS]
    hint = gguf["type"] if gguf else min(hints, key=_PRIORITY.index, default="")
    return LlmName(_key(words), _format(hint, words), hint)


def _key(words: list[str]) -> tuple[str, ...]:
    sized = any(_SIZE.fullmatch(word) for word in words)
    key: list[str] = []
    for place, word in enumerate(words):
        if word in _HINTS or word in _NOISE or (sized and _DATE.fullmatch(word)) or (place == 0 and word == "meta"):
            continue
        number = _WORD_NUMBER.fullmatch(word)
        key.extend(number.groups() if number else (word,))
    return tuple(key)


def _format(hint: str, words: list[str]) -> WeightFormat | None:
    if hint in _GGUF_BITS:
        bits = _GGUF_BITS[hint]
        precision = Precision.INT4 if bits < 5.0 else Precision.INT8
        return WeightFormat(precision, bits / 8.0, weight_only=True, covers=(*LINEAR, "head"))
    if hint in _GGUF_WIDE:
        return plain(_GGUF_WIDE[hint])
    weights = _HINTS.get(hint)
    if weights is not None and hint == "fp8" and "kv" in words:
        return msgspec.structs.replace(weights, kv_precision=Precision.FP8)
    return weights


_HINTS: Final[dict[str, WeightFormat]] = {
    "nvfp4a16": narrow(Precision.NVFP4, weight_only=True),
    "nvfp4": narrow(Precision.NVFP4),
    "mxfp4": narrow(Precision.MXFP4),
    "fp4": narrow(Precision.NVFP4),
    "fp8": narrow(Precision.FP8),
    "w8a8": narrow(Precision.INT8),
    "w8a16": narrow(Precision.INT8, weight_only=True),
    "w4a8": narrow(Precision.INT4),
    "w4a16": narrow(Precision.INT4, weight_only=True),
    "int8": narrow(Precision.INT8, weight_only=True),
    "8bit": narrow(Precision.INT8, weight_only=True),
    "int4": narrow(Precision.INT4, weight_only=True),
    "4bit": narrow(Precision.INT4, weight_only=True),
    "awq": narrow(Precision.INT4, weight_only=True),
    "gptq": narrow(Precision.INT4, weight_only=True),
    "bnb": narrow(Precision.INT4, weight_only=True),
    "bf16": plain(Precision.BF16),
    "fp16": plain(Precision.FP16),
}
"""Words that name a stored format, the most telling first: `GPTQ-Int8` is 8 bit, `AWQ-INT4` is 4 bit."""

_PRIORITY: Final = tuple(_HINTS)

_NOISE: Final = frozenset(
    (
        "instruct",
        "chat",
        "it",
        "hf",
        "base",
        "gguf",
        "dynamic",
        "block",
        "kv",
        "marlin",
        "unsloth",
        "quantized",
        "autoround",
        "g32",
        "g64",
        "g128",
        "quant",
    )
)
"""Words that change neither the dimensions nor the stored format."""

_GGUF_WIDE: Final = {"f16": Precision.FP16, "bf16": Precision.BF16, "f32": Precision.FP32}

_GGUF_BITS: Final[dict[str, float]] = {
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
