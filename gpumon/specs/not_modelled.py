"""Names of what the formulas leave out of a model (`LlmSpec.not_modelled`), and why the figures hold without it."""

from __future__ import annotations

from typing import Final

VISION: Final = "vision encoder"
"""Runs once per image, before the prefill: the text's figures are right, the images' work is missing."""
AUDIO: Final = "audio encoder"
"""Runs once per recording, before the prefill: the text's figures are right, the sound's work is missing."""
TEXT: Final = "text encoder"
"""Runs once per request, and no counter says how long its text is: keys and values made of it are missing, too."""
SPECULATIVE_DRAFTS: Final = "speculative drafts"
"""The draft model or head, and verified tokens that were refused: useful work is counted, not what was spent on it."""
ADAPTERS: Final = "LoRA adapters"
"""About 2 x rank x (inputs + outputs) FLOPs per matrix and token: 1 % at rank 16."""
