"""Names of LLMs in the wild -> a key that leaves out who published it and how it was quantised."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from gpumon.specs.precision import Precision
from gpumon.specs.weight_format import WeightFormat
from gpumon.specs.weight_words import GGUF_BITS, GGUF_WIDE, NAMED_FORMATS, weights_named

_MOST_CHARACTERS = 512
"""Characters of a name that are looked at."""
_CACHE_FOLDER = re.compile(r"models--(?P<org>[^/]+?)--(?P<name>[^/]+)")
"""A folder in the cache of Hugging Face."""
_FILE_ENDING = re.compile(r"[-.]gguf$")
"""The ending of a GGUF file."""
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
"""The number of a part of a model in several files."""
_GGUF_TYPE = re.compile(r"[-_.:](?P<type>(?:ud-)?(?:i?q\d(?:_[a-z0-9]+)*|f16|bf16|f32))$")
"""The type of its weights at the end of the name of a GGUF file; `ud-` marks Unsloth's dynamic quantisation, whose
mixtures differ by model and release (docs.unsloth.ai, "Dynamic 2.0 GGUFs"): no name tells their bits."""
GGUF: Final = "gguf"
"""Word of a repository of GGUF files whose name has no type."""
_SEPARATORS = re.compile(r"[-_:\s]+")
"""Characters between the words of a name."""
_WORD_NUMBER = re.compile(r"([a-z]+)(\d+(?:\.\d+)?)")
"""A word with a number: `llama3`."""
_SIZE = re.compile(r"(?:\d+x)?\d+(?:\.\d+)?[bm]")
"""A number of parameters: `8b`, `8x7b`."""
_DATE = re.compile(r"\d{4}|\d{6}|\d{8}")
"""A number that is a date: `2507`."""

_BY_PRIORITY: Final = tuple(NAMED_FORMATS)
"""Words for formats, the most telling first."""
_PUBLISHERS: Final = frozenset(("meta", "nvidia"))
"""Words before the model's own name in some ids: `Meta-Llama-3.1-8B`, `NVIDIA-Nemotron-3-Nano-4B-BF16`."""
_TUNING_WORDS: Final = frozenset(
    ("instruct", "chat", "it", "base", "pt", "thinking", "think", "reasoning", "sft", "dpo", "abliterated")
)
"""Words that change neither the dimensions nor, mostly, the stored format."""
_FILE_WORDS: Final = frozenset(
    ("hf", "gguf", "mlx", "dynamic", "block", "kv", "marlin", "unsloth", "quantized", "autoround", "qat", "quant")
)
"""Words for files and quantisers."""
_STORAGE_WORDS: Final = frozenset(
    (
        *("v1", "v2", "v3", "preview", "experimental", "mixed", "asym", "sym", "only", "static", "pertensor", "tensor"),
        *("g32", "g64", "g128", "w4a4", "ct", "qad", "dwq"),
    )
)
"""Words that say more of the storage where they stand behind its format: `NVFP4-v2`, `FP8-Static-PerTensor`."""

NameKey: TypeAlias = tuple[str, ...]
"""Words of a name, in lower case; a number behind a word is a word of its own: `qwen3` is `qwen 3`."""


class LlmName(msgspec.Struct, frozen=True):
    """Facts about a model that its name tells."""

    key: NameKey
    """Words that identify the dimensions."""
    exact: NameKey
    """`key` with the words of tuning and the date: tunings of one model may be stored in different formats."""
    weights: WeightFormat | None = None
    """Stored format, where the name tells it."""
    hint: str = ""
    """Word of the name for it."""


@lru_cache(maxsize=1024)
def llm_name(text: str) -> LlmName:
    """Takes a model id or path apart: organisation, file ending, tuning and quantisation suffixes.

    A size, a version or any other word stays in the key, so that two sizes never meet. A date (four, six or eight
    digits) is left out only where a size stands beside it: `Qwen3-4B-Instruct-2507` is `qwen 3 4b`,
    `Mistral-Large-2407` stays whole.
    """
    words, hint = _words_and_format(_model_name(text))
    if not hint and is_gguf_name(text):
        hint = GGUF
    exact = _without_storage_words(words)
    return LlmName(
        key=_key(_without_tuning_words(exact)), exact=_key(exact), weights=_stored_format(hint, words), hint=hint
    )


def is_gguf_name(text: str) -> bool:
    """Whether a name is that of a GGUF file or of a repository of such files."""
    return GGUF in text[:_MOST_CHARACTERS].lower().rpartition("/")[2]


def _model_name(text: str) -> str:
    """The model's own name in an id or path, in lower case, without the organisation and the file's ending."""
    name = text[:_MOST_CHARACTERS].strip().rstrip("/")
    cached = _CACHE_FOLDER.search(name)
    if cached:
        name = cached["name"]
    else:
        name = name.rsplit("/", 1)[-1]
    return _SHARD.sub("", _FILE_ENDING.sub("", name.lower()))


def _words_and_format(name: str) -> tuple[list[str], str]:
    """The words of a name before a GGUF type, and the word of its format: that type, else the most telling one."""
    gguf = _GGUF_TYPE.search(name)
    if gguf:
        name = name[: gguf.start()]
    name = name.replace("quantized.", "")  # RedHatAI writes `quantized.w8a8`
    words = [word for word in _SEPARATORS.split(name) if word]
    if gguf:
        return words, gguf["type"]
    formats = [word for word in words if word in NAMED_FORMATS]
    return words, min(formats, key=_BY_PRIORITY.index, default="")


def _without_tuning_words(words: list[str]) -> list[str]:
    """The words that tell the dimensions; a date is one of them where no size stands beside it."""
    sized = any(_SIZE.fullmatch(word) for word in words)
    return [word for word in words if word not in _TUNING_WORDS and not (sized and _DATE.fullmatch(word))]


def _without_storage_words(words: list[str]) -> list[str]:
    """The words without those for the storage, and without a publisher's name before the model's."""
    remaining: list[str] = []
    is_behind_format = False
    for place, word in enumerate(words):
        if place == 0 and word in _PUBLISHERS and len(words) > 1:
            continue
        if word in NAMED_FORMATS:
            is_behind_format = True
        elif word not in _FILE_WORDS and not (is_behind_format and word in _STORAGE_WORDS):
            remaining.append(word)
    return remaining


def _key(words: list[str]) -> NameKey:
    """The words as a key: a number behind a word (`qwen3`) is a word of its own."""
    parts: list[str] = []
    for word in words:
        numbered = _WORD_NUMBER.fullmatch(word)
        if numbered:
            parts += numbered.groups()
        else:
            parts.append(word)
    return tuple(map(sys.intern, parts))  # few words make the thousands of names of the catalogue


def _stored_format(hint: str, words: list[str]) -> WeightFormat | None:
    """The format that a name's word means; with `kv` beside it that of the KV cache, too."""
    if hint in GGUF_BITS or hint in GGUF_WIDE:
        weights = weights_named(hint)
    else:
        weights = NAMED_FORMATS.get(hint)
    if weights is not None and hint == "fp8" and "kv" in words:
        return msgspec.structs.replace(weights, kv_precision=Precision.FP8)
    return weights
