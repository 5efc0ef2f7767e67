"""Names of LLMs in the wild -> a key that leaves out who published it and how it was quantised."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import WeightFormat
from gpumon.specs.weight_words import GGUF_BITS, GGUF_WIDE, NAMED_FORMATS, weights_named

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
    hints = [word for word in words if word in NAMED_FORMATS]
    hint = gguf["type"] if gguf else min(hints, key=_PRIORITY.index, default="")
    return LlmName(_key(words), _format(hint, words), hint)


def _key(words: list[str]) -> tuple[str, ...]:
    sized = any(_SIZE.fullmatch(word) for word in words)
    key: list[str] = []
    for place, word in enumerate(words):
        if (
            word in NAMED_FORMATS
            or word in _NOISE
            or (sized and _DATE.fullmatch(word))
            or (place == 0 and word == "meta")
        ):
            continue
        number = _WORD_NUMBER.fullmatch(word)
        key.extend(number.groups() if number else (word,))
    return tuple(key)


def _format(hint: str, words: list[str]) -> WeightFormat | None:
    weights = weights_named(hint) if hint in GGUF_BITS or hint in GGUF_WIDE else NAMED_FORMATS.get(hint)
    if weights is not None and hint == "fp8" and "kv" in words:
        return msgspec.structs.replace(weights, kv_precision=Precision.FP8)
    return weights


_PRIORITY: Final = tuple(NAMED_FORMATS)

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
