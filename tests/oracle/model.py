"""Model configs as transformers reads them, and the language part of a model made from one."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig
from transformers.models.auto import modeling_auto as auto

Json = dict[str, Any]

CAUSAL: dict[str, str] = dict(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
# Text encoders: what a server of embeddings, rerankers and classifiers runs. The base model, without pooler and head.
ENCODERS = (
    "albert", "bert", "big_bird", "camembert", "convbert", "data2vec-text", "deberta", "deberta-v2", "distilbert",
    "electra", "ernie", "eurobert", "gte", "jina_embeddings_v3", "megatron-bert", "mobilebert", "modernbert",
    "mpnet", "nomic_bert", "rembert", "roberta", "roberta-prelayernorm", "roformer", "xlm-roberta", "xlm-roberta-xl",
    "xmod",
)  # fmt: skip
# Models of images and text whose text part is no causal LM of its own.
IMAGE_TEXT: dict[str, str] = {
    name: auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[name]
    for name in (
        "cosmos3_edge", "ernie4_5_vl_moe", "glm4v", "glm4v_moe", "glm5_next", "glm_ocr", "granite_docling",
        "hunyuan_vl", "kimi_k25", "minimax_m3_vl", "mistral3", "mistral4", "mistral_large4", "molmo2", "muse_glimmer",
        "muse_spark", "nemotron_h_omni", "paddleocr_vl", "qwen2_5_omni_thinker", "qwen2_5_vl", "qwen2_vl",
        "qwen3_omni_moe_thinker", "qwen3_vl", "qwen3_vl_moe", "step3p7", "unlimited_ocr",
    )
}  # fmt: skip
# Published under a name that transformers lacks, with the fields and the code of one that it has.
_SAME_CODE = {
    "deepseek_ref": "deepseek_v4",
    "kimi_k2": "deepseek_v3",
    "mimo": "qwen2",
    "minimax_m3": "minimax_m3_vl_text",
}


@dataclass(frozen=True)
class Language:
    """The language part of a model: its config, the decoder (or encoder), and the output head beside it, if any."""

    config: PreTrainedConfig
    class_name: str
    body: torch.nn.Module
    head: torch.nn.Module | None

    def modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """Each module once, under its first name."""
        for part in (self.body, self.head):
            if part is not None:
                yield from part.named_modules()

    @property
    def input_table(self) -> torch.nn.Parameter:
        return self.body.get_input_embeddings().weight  # type: ignore[no-any-return,operator,union-attr]


def read_config(config: Json) -> PreTrainedConfig:
    """A config.json as transformers reads it from a folder. Raises what transformers raises."""
    plain = {key: value for key, value in config.items() if key not in ("quantization_config", "auto_map")}
    text = plain.get("text_config")
    if isinstance(text, dict):
        plain["text_config"] = {key: value for key, value in text.items() if key != "quantization_config"}
    if same := _SAME_CODE.get(plain.get("model_type", "")):
        plain["model_type"] = same
    if plain["model_type"] == "step3p7" and text is None:
        plain = {"model_type": "step3p7", "text_config": plain | {"model_type": "step3p5"}}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(plain))
        return AutoConfig.from_pretrained(folder)


def build(config: PreTrainedConfig, encoder: bool = False, device: str = "meta") -> Language:
    """The language part with weights on `device`: of a causal LM, of a model of images and text, or the bare encoder."""
    with torch.device(device):
        if encoder:
            body = AutoModel.from_config(config)
            if getattr(body, "pooler", None) is not None:
                body.pooler = None
            return Language(config, type(body).__name__, body, None)
        if config.model_type in IMAGE_TEXT:
            whole = AutoModelForImageTextToText.from_config(config)
            return Language(
                config.get_text_config(), type(whole).__name__, whole.get_decoder(), whole.get_output_embeddings()
            )
        text = config.get_text_config()
        if text.model_type in CAUSAL:
            whole = AutoModelForCausalLM.from_config(text)
        else:
            whole = getattr(transformers, CAUSAL[config.model_type])(text)
        return Language(text, type(whole).__name__, whole, None)


def versions() -> str:
    return f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
