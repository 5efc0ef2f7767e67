"""Options with which an engine runs, as facts: each with its value and who tells it."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, number

ASSUMED: Final = "assumed"
"""Word in the source of an option that nobody tells: it is the engine's default."""

UNSEEN_COMMAND: Final = "its command line is not known here"
"""Words in the source of a default of an engine whose command line nobody sees: it may have another value."""


class EngineOptions(msgspec.Struct, frozen=True, gc=False):
    """Options of an engine. Limits are those of one data-parallel rank; switches are 1 (on) or 0 (off)."""

    slots: Reading = NOT_EXPOSED
    """Requests that one rank runs at once."""
    step_tokens: Reading = NOT_EXPOSED
    """Tokens that one step computes at most."""
    context_tokens: Reading = NOT_EXPOSED
    """Tokens of the longest request, prompt and answer together."""
    memory_share_ratio: Reading = NOT_EXPOSED
    """Share of a GPU's memory that the engine takes, or of what is free of it, as the engine counts it."""
    eager: Reading = NOT_EXPOSED
    """1: each kernel of a decode step is launched by the CPU, without CUDA graphs."""
    prefix_caching: Reading = NOT_EXPOSED
    chunked_prefill: Reading = NOT_EXPOSED
    expert_parallel: Reading = NOT_EXPOSED
    """1: each GPU holds whole experts; 0: each expert is split over the GPUs."""
    lora_slots: Reading = NOT_EXPOSED
    """LoRA adapters of one batch; 0: it serves none."""
    draft_tokens: Reading = NOT_EXPOSED
    """Tokens that speculation drafts for each step; 0: no speculation."""
    tp: Reading = NOT_EXPOSED
    pp: Reading = NOT_EXPOSED
    dp: Reading = NOT_EXPOSED
    dtype: str = ""
    """Format of the weights that are not quantised, in the engine's words; empty: not told, as for the next ones."""
    kv_dtype: str = ""
    quantization: str = ""
    speculation: str = ""
    """Method or draft model of speculation."""
    sources: dict[str, str] = {}
    """Option -> who tells it: `--max-num-seqs of its command line (pid 48)`, a metric, or a default that is assumed."""

    def is_assumed(self, name: str) -> bool:
        """Whether an option is the engine's default, which nobody tells."""
        return ASSUMED in self.sources.get(name, "")

    def told(self, name: str) -> float | None:
        """The number of an option that is not assumed; None where it is not known."""
        value: Reading = getattr(self, name)
        if isinstance(value, Missing) or self.is_assumed(name):
            return None
        return value

    def is_off(self, name: str) -> bool:
        """Whether it is known that a switch is off."""
        return self.told(name) == 0.0

    def is_on(self, name: str) -> bool:
        """Whether it is known that a switch is on."""
        return self.told(name) == 1.0

    def completed_by(self, other: EngineOptions) -> EngineOptions:
        """These options, with those that only the other record has."""
        fields: dict[str, object] = {}
        sources = dict(self.sources)
        for name in OPTION_NAMES:
            if is_told(getattr(self, name)) or not is_told(getattr(other, name)):
                continue
            fields[name] = getattr(other, name)
            sources[name] = other.sources.get(name, "")
        if not fields:
            return self
        return msgspec.structs.replace(self, **fields, sources=sources)


OPTION_NAMES: Final = tuple(name for name in EngineOptions.__struct_fields__ if name != "sources")
"""Names of all options."""
TEXT_OPTIONS: Final = ("dtype", "kv_dtype", "quantization", "speculation")
"""Options that are words; all others are numbers."""
SWITCHES: Final = ("eager", "prefix_caching", "chunked_prefill", "expert_parallel")
"""Options that are on or off."""
NO_OPTIONS: Final = EngineOptions()


def is_told(value: Reading | str) -> bool:
    """Whether the value of an option is known."""
    if isinstance(value, str):
        return bool(value)
    return number(value) is not None
