"""Makes the catalogue of LLMs (`make catalogue`): configs of tests/data/catalogue -> gpumon/specs/data/llms.jsonl.

`models.jsonl` has one model a line: what it is called, where its figures are from, its published totals, and its
config, or the id of the published config.json in tests/data/oracle/released.jsonl that it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_DATA: Final = Path(__file__).parent / "data"
CATALOGUE: Final = Path(__file__).parents[1] / "gpumon" / "specs" / "data" / "llms.jsonl"

COLUMNS: Final = (
    "name",
    "hf_id",
    "aliases",
    "source",
    "verified",
    "max_context",
    "contexts",
    "params_b",
    "active_b",
    "note",
)

_ENCODERS: Final = re.compile(r"(vision|audio|sound|speech|talker|code2wav|projector|token2wav)_config|vision_tower")
_DROPPED: Final = re.compile(
    r"(^_|dropout|pdrop|token_id|token_index|^(bos|eos|pad|sep|unk)_|rope_|rope$|rotary|initializer|(^|_)eps(ilon)?$"
    r"|transformers_version|auto_map|use_cache|label|^output_|^num_(beams|beam_groups|return_sequences|labels)$"
    r"|^(top_[pk]|temperature|typical_p|do_sample|early_stopping|max_length|min_length|length_penalty|prefix|problem_type"
    r"|diversity_penalty|repetition_penalty|no_repeat_ngram_size|encoder_no_repeat_ngram_size|bad_words_ids"
    r"|(begin_)?suppress_tokens|exponential_decay_length_penalty|remove_invalid_values|return_dict.*|torchscript"
    r"|tf_legacy_loss|task_specific_params|pruned_heads|finetuning_task|tokenizer_class|use_bfloat16|pretraining_tp"
    r"|is_decoder|add_cross_attention|cross_attention_hidden_size|tie_encoder_decoder|chunk_size_feed_forward|ignore_index"
    r"|.*_placeholder|aux_loss_alpha|router_(aux|z)_loss.*|router_jitter_noise|seq_aux|ep_size|softcapping|.*softcapping"
    r"|norm_topk_prob|topk_method|scoring_func|routed_scaling_factor|moe_router_.*|time_step_.*|time_step|swiglu_.*"
    r"|use_mamba_kernels|residual_in_fp32|rescale_prenorm_residual|query_pre_attn_scalar|attention_multiplier"
    r"|boi_.*|eoi_.*|image_.*|video_.*|vision_.*_id|vision_feature_.*|process_image_mode|img_.*|observer.*"
    r"|layernorm_.*|max_window_layers|kernel_options|mtp_loss.*)$)"
)
"""Fields that no formula needs."""
_KEPT: Final = frozenset(("output_vocab_size", "qk_rope_head_dim", "no_rope_layers", "time_step_rank"))
"""Fields that are needed although they look like those."""


def stripped(config: dict[str, Any]) -> dict[str, Any]:
    """The fields of a config.json that the reader of configs may need; an encoder is left as an empty object."""
    kept: dict[str, Any] = {}
    for key, value in sorted(config.items()):
        if _ENCODERS.fullmatch(key) and value is not None:
            kept[key] = {}
        elif key in _KEPT or not _DROPPED.search(key):
            kept[key] = stripped(value) if isinstance(value, dict) else value
    return kept


def rows() -> Iterator[dict[str, Any]]:
    """The rows of the catalogue, in the order of their names."""
    published = released()
    for model in sorted(_lines("catalogue/models.jsonl"), key=lambda each: _natural(each["name"])):
        config = published[model["released"]] if "released" in model else model["config"]
        yield {key: model[key] for key in COLUMNS if key in model} | {"config": stripped(config)}


def text() -> str:
    """The catalogue's file."""
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows())


def released() -> dict[str, dict[str, Any]]:
    """config.json files as published, by id."""
    return {each["id"]: each["config"] for each in _lines("oracle/released.jsonl")}


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_DATA / name).read_text("utf-8").splitlines()]


def _natural(name: str) -> list[tuple[float, str]]:
    """Numbers in the order of their size."""
    parts = re.split(r"(\d+(?:\.\d+)?)", name.lower())
    return [(float(part), "") if at % 2 else (-1.0, part) for at, part in enumerate(parts)]


if __name__ == "__main__":
    CATALOGUE.write_text(text(), "utf-8")
