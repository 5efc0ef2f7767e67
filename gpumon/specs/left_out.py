"""Names of what the formulas leave out of a model (`LlmSpec.not_modelled`), and why the figures hold without it."""

from __future__ import annotations

from typing import Final

COMPRESSED: Final = "compressed attention"
"""Attention over a compressed KV cache (DeepSeek-V4): FLOPs and bytes are not known. No figure is shown."""
STATE_SPACE: Final = "state-space layers"
"""Mamba layers of a model whose parameters are not split by part: no figure is shown."""
STATE_UPDATE: Final = "state update of the Mamba layers"
"""Their matrices and the bytes of their state count; the recurrence itself is about 1 % of the FLOPs of a decode step
(Nemotron-H-56B: 226e6 elements, some 6 FLOPs each, beside 2 x 55e9)."""
LINEAR_ATTENTION: Final = "linear attention"
"""The same of gated delta nets and KDA: at most 3 % of the FLOPs of a decode step."""
INDEXER: Final = "indexer of the sparse attention"
"""What finds the tokens to attend to in DeepSeek-V3.2 and GLM-5."""
VISION: Final = "vision encoder"
"""Runs once per image, before the prefill: the text's figures are right, the images' work is missing."""
AUDIO: Final = "audio encoder"
MIXED_HEADS: Final = "attention heads that differ by layer"
"""Their mean is used."""
DRAFTS: Final = "speculative drafts"
"""The draft model or head, and verified tokens that were refused: useful work is counted, not what was spent on it."""
ADAPTERS: Final = "LoRA adapters"
"""About 2 x rank x (inputs + outputs) FLOPs per matrix and token: 1 % at rank 16."""
