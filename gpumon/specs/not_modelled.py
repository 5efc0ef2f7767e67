"""Names of what the formulas leave out of a model (`LlmSpec.not_modelled`), and models that are not modelled at all."""

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
"""About 2 x rank x (inputs + outputs) FLOPs per matrix and token: 1% at rank 16."""

_DIFFUSION: Final = "it computes a block of tokens several times over (diffusion), and no counter says how often"
_LOOPS: Final = "a token goes through some of its layers several times over"
_OLD: Final = "it is older than what is served today, and its attention or its input is one of its own"
_PARTNER: Final = "it is a part of another model, and answers no requests of its own"
_ENCODER_PAIR: Final = "it attends to an encoder whose length of text no counter tells"
NOT_MODELLED: Final = {
    **dict.fromkeys(
        ("big_bird", "cpmant", "prophetnet", "reformer", "rembert", "roc_bert", "xlnet", "xmod", "evolla", "idefics"),
        _OLD,
    ),
    **dict.fromkeys(
        ("blip", "chameleon", "git", "kosmos-2", "kosmos-2.5", "kosmos_2_text_model", "kosmos_2_5_text_model"), _OLD
    ),
    **dict.fromkeys(("bigbird_pegasus", "pix2struct", "pp_formulanet", "t5gemma2", "udop"), _ENCODER_PAIR),
    **dict.fromkeys(
        (
            *("gemma4_assistant", "gemma4_unified_assistant", "moshi", "moss_transcribe_diarize", "musicgen"),
            *("musicgen_melody", "pi0"),
        ),
        _PARTNER,
    ),
    **dict.fromkeys(("diffusion_gemma", "diffusion_gemma_text"), _DIFFUSION),
    **dict.fromkeys(("dory", "hrm_text", "inkling2_loop_text"), _LOOPS),
    "blt": "it joins bytes to patches of a length that no counter tells",
    "ernie4_5_vl_moe_text": "it has a second set of experts for images, of another width",
    "mllama_text_model": "some of its layers attend to an image, and do nothing without one",
    "unlimited_ocr_text": "its windows hold the whole prompt besides the last tokens",
    "deepseek_ocr2_text": "its default config tells no sizes, and its encoder is a language model, too",
}
"""Model types of transformers that are known and refused -> why no figure of them is given. `make architectures` prints
the types of the newest release that are neither here nor modelled."""
