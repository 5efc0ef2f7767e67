"""Model configs as transformers reads them, and the language part of a model made from one."""

import json
import tempfile
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
        "apertus1p5", "cosmos3_edge", "deepseek_ocr2", "ernie4_5_vl_moe", "glm4v", "glm4v_moe", "glm5_next", "glm_ocr",
        "granite4_vision", "granite_docling", "hunyuan_vl", "hy_v4_vl", "inkling2", "inkling2_loop", "kimi_k25",
        "minimax_m3_vl", "mistral3", "mistral4", "mistral_large4", "molmo2", "muse_glimmer", "muse_spark",
        "nemotron_h_omni", "paddleocr_vl", "qwen2_5_omni_thinker", "qwen2_5_vl", "qwen2_vl", "qwen3_omni_moe_thinker",
        "qwen3_vl", "qwen3_vl_moe", "step3p7", "unlimited_ocr",
    )
}  # fmt: skip
# Their positions count from the padding token on.
_POSITIONS_FROM_PADDING = (
    "camembert", "data2vec-text", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
)  # fmt: skip
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

    @property
    def parts(self) -> list[torch.nn.Module]:
        return [part for part in (self.body, self.head) if part is not None]

    @property
    def decodes(self) -> bool:
        """Whether it has an output head: an encoder alone has none."""
        return self.head is not None or self.body.get_output_embeddings() is not None  # type: ignore[operator]

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
    if plain["model_type"] == "nemotron-nas":
        heads_in_group = next(
            filter(None, (block["attention"]["n_heads_in_group"] for block in plain["block_configs"]))
        )
        plain |= {"model_type": "llama", "intermediate_size": plain["hidden_size"]}
        plain["num_key_value_heads"] = plain["num_attention_heads"] // heads_in_group
    if plain["model_type"] == "step3p7" and text is None:
        plain = {"model_type": "step3p7", "text_config": plain | {"model_type": "step3p5"}}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(plain))
        return AutoConfig.from_pretrained(folder)


def build(config: PreTrainedConfig, encoder: bool = False, device: str = "meta") -> Language:
    """The language part with weights on `device`: of a causal LM, of a model of images and text, or the bare encoder.

    Attention is the eager code; experts are the code that multiplies the chosen ones only, where the model has it.
    """
    for part in {id(part): part for part in (config, config.get_text_config())}.values():
        part._attn_implementation = "eager"
        part._experts_implementation = "batched_mm" if device == "meta" else "eager"
        if config.model_type not in _POSITIONS_FROM_PADDING:
            part.__dict__["pad_token_id"] = None  # it would only look for padding, in values that the meta device lacks
        part.dtype = torch.bfloat16 if device == "meta" and not encoder else torch.float32
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
        _leave_out_what_no_text_meets(whole)
        if blocks := getattr(text, "block_configs", None):
            for layer, block in zip(whole.model.layers, blocks, strict=True):
                _as_block(layer, block, text)
        return Language(text, type(whole).__name__, whole, None)


def _leave_out_what_no_text_meets(whole: torch.nn.Module) -> None:
    """Phi-4-multimodal's towers, which are a part of its decoder; rows of LongCat's experts that no checkpoint has.

    transformers makes the first of two matrices for its identity experts, too, which multiply nothing.
    """
    for module in whole.modules():
        if getattr(module, "embed_tokens_extend", None) is not None:
            module.embed_tokens_extend = _TextOnly()
        if getattr(module, "zero_expert_num", 0) and hasattr(module, "gate_up_proj"):
            module.gate_up_proj = torch.nn.Parameter(module.gate_up_proj[: module.num_routed_experts])


class _TextOnly(torch.nn.Module):
    def forward(self, input_ids: torch.Tensor, inputs_embeds: torch.Tensor, **_: object) -> torch.Tensor:
        return inputs_embeds


class _NoAttention(torch.nn.Module):
    def forward(self, hidden_states: torch.Tensor, **_: object) -> tuple[torch.Tensor, None]:
        return torch.zeros_like(hidden_states), None


def _as_block(layer: torch.nn.Module, block: Json, config: PreTrainedConfig) -> None:
    """A Llama layer as Llama-Nemotron's `block_configs` say: of another width of MLP, or without attention.

    The width is two thirds of `ffn_mult` times the hidden size, rounded up to 256 (`modeling_decilm.py`, published with
    the model). Other kinds of block (linear attention, windows) aren't known here and raise.
    """
    attention, ffn = block["attention"], block["ffn"]
    odd = ("replace_with_linear", "sparsify", "num_sink_tokens", "window_length")
    if ffn["no_op"] or any(part.get(name) for part in (attention, ffn) for name in odd):
        raise ValueError(f"a block of another kind: {block}")
    width = -(-int(2 * ffn["ffn_mult"] * config.hidden_size / 3) // 256) * 256
    mlp = layer.mlp
    layer.mlp = type(mlp)(type(config)(**{**config.to_dict(), "intermediate_size": width}))
    if attention["no_op"]:
        layer.self_attn, layer.input_layernorm = _NoAttention(), torch.nn.Identity()


def versions() -> str:
    return f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
