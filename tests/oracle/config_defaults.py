"""Writes gpumon/specs/config_defaults.py: what configuration classes of transformers have where a config says nothing.

Older releases of transformers saved the text part of a multimodal model without the fields that have their default.
`python -m tests.oracle.config_defaults`, in the venv of the oracle.
"""

import dataclasses
import re
import textwrap
from pathlib import Path

from transformers import __version__
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.oracle.architectures import text_type
from tests.oracle.model import auto

TARGET = Path(__file__).parents[2] / "gpumon" / "specs" / "config_defaults.py"
_FIELDS = re.compile(
    r"vocab_size.*|hidden_size.*|.*intermediate_size.*|num_.*|head_dim|.*_head_dim|.*_rank|n_.*_experts|.*experts.*|tie_word_embeddings"
    r"|sliding_window.*|use_sliding_window|max_window_layers|moe_.*|first_k_dense_replace|.*interleave.*step|no_rope_layer_interval"
    r"|attention_chunk_size|altup_num_inputs|linear_.*|attn_output_gate|max_position_embeddings|decoder_sparse_step|conv_.*|index_.*"
)
_DROPPED = re.compile(r".*(token|jitter|coef|aux|dropout|eps|num_labels|num_beams).*")
_HEAD = '''"""Defaults of configuration classes of transformers {version} for multimodal configs that lack some.

Written by `python -m tests.oracle.config_defaults`. Older releases left out what has its default (LLaVA, Gemma 3).
"""

from __future__ import annotations

from typing import Final

CONFIG_DEFAULTS: Final[dict[str, str]] = {{
'''


def fields_of(name: str) -> str:
    """`field=value` of all sizes and switches with a default that is no null."""
    found = []
    for field in dataclasses.fields(CONFIG_MAPPING[name]):
        plain = isinstance(field.default, int | str) and not isinstance(field.default, type)
        if plain and _FIELDS.fullmatch(field.name) and not _DROPPED.fullmatch(field.name):
            value = str(field.default).lower() if isinstance(field.default, bool) else field.default
            found.append(f"{field.name}={value}")
    return " ".join(found)


def main() -> None:
    names = {text_type(name) for name in auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    lines = []
    for name in sorted(names & set(CONFIG_MAPPING)):
        parts = textwrap.wrap(fields_of(name), 100)
        if not parts:
            continue
        texts = "\n".join(f'        "{part}{" " if part is not parts[-1] else ""}"' for part in parts)
        lines.append(f'    "{name}": (\n{texts}\n    ),\n')
    end = '}\n"""Type of a text part -> its fields with their defaults, as `field=value`."""\n'
    TARGET.write_text(_HEAD.format(version=__version__) + "".join(lines) + end)


if __name__ == "__main__":
    main()
