"""Options of an engine in words: their names, their values and who tells them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gpumon.readings.engine_options import OPTION_NAMES, SWITCHES, EngineOptions, is_told
from gpumon.readings.format import count
from gpumon.readings.text import clean

OPTION_LABELS: Final[Mapping[str, str]] = {
    "slots": "requests at once",
    "step_tokens": "tokens of a step",
    "context_tokens": "longest request",
    "memory_share_ratio": "memory share",
    "eager": "eager mode",
    "prefix_caching": "prefix caching",
    "chunked_prefill": "chunked prefill",
    "expert_parallel": "expert parallel",
    "lora_slots": "LoRA adapters",
    "draft_tokens": "draft tokens",
    "tp": "tensor parallel",
    "pp": "pipeline stages",
    "dp": "data parallel",
    "dtype": "weights at 16/32 bit",
    "kv_dtype": "KV cache format",
    "quantization": "quantisation",
    "speculation": "speculation",
}
"""Option -> its name."""
SWITCH_WORDS: Final = {0.0: "off", 1.0: "on"}
"""Reading of a switch -> its word."""
_MOST_CHARACTERS: Final = 80
"""Characters of a value or a source."""


def option_words(options: EngineOptions) -> Iterator[tuple[str, str, str]]:
    """Label, value and source of each option that is known, in words."""
    for name in OPTION_NAMES:
        value = getattr(options, name)
        if is_told(value):
            source = clean(options.sources.get(name, ""), _MOST_CHARACTERS)
            yield OPTION_LABELS[name], option_text(name, value), source


def option_text(name: str, value: float | str) -> str:
    """The value of an option, as its engine would be told it."""
    if isinstance(value, str):
        return clean(value, _MOST_CHARACTERS)
    if name in SWITCHES:
        return SWITCH_WORDS.get(value, count(value))
    if name == "memory_share_ratio":
        return f"{value:g}"
    return count(value)
