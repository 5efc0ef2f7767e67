"""The configs that are counted: released ones as they were published, and each architecture's own default."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from tests.oracle.model import CAUSAL, ENCODERS, IMAGE_TEXT, Json
from tests.oracle.variants import VARIANTS

# The default config of these can't be built: a field is null or missing. It gets what the family's released model has.
_PATCHES: dict[str, tuple[Json, str]] = {
    "cohere_compass_text": (
        {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 50000.0}}},
        "any rotary base: it changes no count",
    ),
    "dbrx": ({"attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000}}, "databricks/dbrx-instruct"),
    "deepseek_v2": ({"num_experts_per_tok": 6}, "deepseek-ai/DeepSeek-V2-Lite"),
    "dots1": (
        {"n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1},
        "rednote-hilab/dots.llm1.base",
    ),
    "hunyuan_v1_dense": ({"head_dim": 128}, "tencent/Hunyuan-7B-Instruct"),
    "hunyuan_v1_moe": ({"head_dim": 128}, "tencent/Hunyuan-A13B-Instruct"),
    "hunyuan_vl": ({"text_config": {"head_dim": 128}}, "tencent/HunyuanOCR"),
    "lfm2_moe": (
        {
            "num_hidden_layers": 24,
            "layer_types": ["full_attention" if layer in (2, 6, 10, 14, 18, 21) else "conv" for layer in range(24)],
        },
        "LiquidAI/LFM2-8B-A1B",
    ),
    "ministral": ({"head_dim": 128}, "mistralai/Ministral-8B-Instruct-2410"),
    "nemotron": ({"num_key_value_heads": 8}, "nvidia/nemotron-4-15b"),
}
# Decoders of speech and drafts that have no sizes of their own, and a model that isn't a decoder by default.
_LEFT_OUT = {
    "gemma4_assistant", "gemma4_unified_assistant", "moss_transcribe_diarize", "musicgen", "musicgen_melody",
    "reformer",
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """One model to count: `config` as its config.json stands on disk, `quantization` its hf_quant_config.json."""

    id: str
    kind: str
    config: Json
    note: str
    device: str = "meta"


def read(folder: Path) -> list[Source]:
    """All that is counted: released.jsonl (published files), defaults.jsonl and variants.jsonl (written here)."""
    return [
        Source(row["id"], kind, row["config"], row.get("note", ""), row.get("device", "meta"))
        for kind in ("released", "defaults", "variants")
        for row in map(json.loads, (folder / f"{kind}.jsonl").read_text().splitlines())
    ]


def write_variants(path: Path) -> None:
    """Configs for the kinds of layer that no default and no released file has, complete as the defaults are."""
    with path.open("w") as file:
        for name, (model_type, fields, device) in VARIANTS.items():
            config = CONFIG_MAPPING[model_type](**fields)
            config.architectures = [{**IMAGE_TEXT, **CAUSAL}[model_type]]
            written = json.loads(config.to_json_string(use_diff=False))
            del written["_name_or_path"]
            file.write(json.dumps({"id": name, "device": device, "config": written}) + "\n")


def write_defaults(path: Path) -> None:
    """Every text architecture's default: `config` is its `to_dict()`, complete, with `architectures` set.

    `unsaved` are the keys that `save_pretrained` would leave out, as they have the value that every config has without
    saying so: a published file lacks them.
    """
    with path.open("w") as file:
        for name in sorted({*CAUSAL, *ENCODERS, *IMAGE_TEXT} - _LEFT_OUT):
            patch, published = _PATCHES.get(name, ({}, ""))
            config = CONFIG_MAPPING[name](**patch)
            config.architectures = [(MODEL_MAPPING_NAMES if name in ENCODERS else {**IMAGE_TEXT, **CAUSAL})[name]]
            written = json.loads(config.to_json_string(use_diff=False))
            del written["_name_or_path"]
            row = {"id": name, "note": f"{', '.join(patch)}: {published}" if patch else "", "config": written}
            file.write(json.dumps(row | {"unsaved": sorted(_unsaved(config, written))}) + "\n")


def _unsaved(config: PreTrainedConfig, written: Json) -> Iterator[str]:
    saved = config.to_diff_dict()
    for key, value in written.items():
        if key not in saved:
            yield key
        elif key == "text_config" and isinstance(value, dict):
            yield from (f"{key}.{inner}" for inner in value if inner not in saved[key])
