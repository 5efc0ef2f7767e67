"""Files are the judge: each module of the list beside the tensors of the headers, both ways."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gpumon.specs.fields import RefusedError
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llm_config import llm_from_config
from gpumon.specs.precision import Precision
from tests.each_row import each_row
from tests.specs import checkpoint_files as files
from tests.specs.checkpoint_files import Tensor, block_fp8, gptq, llama, nvfp4, plain
from tests.specs.test_llm_config import CONFIGS, LLAMA, MINILM, WHISPER

QUANTISED = Path(__file__).resolve().parents[1] / "data" / "quantised"
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
EXTRA = [tensor for layer in range(32) for tensor in plain(f"model.layers.{layer}.moe.extra", 4096, 4096)]
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def read(config: dict[str, Any], tensors: Iterable[Tensor] | None = None) -> LlmSpec:
    if tensors is None:
        return llm_from_config(config, "model", "test")
    stored = files.stored(tensors)
    return llm_from_config(config, "model", "test", stored.bytes_by_type(), None, stored)


def qwen35(method: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((QUANTISED / f"moe-{method}.json").read_text(encoding="utf-8"))
    return config


@each_row(
    ("config", "tensors"),
    [
        (LLAMA, list(llama(LLAMA))),
        (LLAMA, list(llama(LLAMA, names="phi3"))),
        (LLAMA, list(llama(LLAMA, path="model.language_model."))),
        (LLAMA, list(llama(LLAMA, lambda *shape: plain(*shape, "F32")))),
        ({**LLAMA, "tie_word_embeddings": True}, list(llama(LLAMA))),
        ({**LLAMA, "tie_word_embeddings": True}, list(llama(LLAMA, head=False))),
        ({**LLAMA, "quantization_config": GPTQ}, list(llama(LLAMA, gptq))),
        ({**LLAMA, "quantization_config": FP8}, list(llama(LLAMA, block_fp8))),
        (
            {**LLAMA, "quantization_config": NVFP4},
            list(llama(LLAMA, nvfp4)),
        ),
        (CONFIGS["gpt-oss-120b"], list(files.gpt_oss(CONFIGS["gpt-oss-120b"]))),
        (WHISPER, list(files.whisper(WHISPER))),
    ],
)
def test_files_that_hold_what_the_list_has_agree(config: dict[str, Any], tensors: list[Tensor]) -> None:
    assert read(config, tensors) == read(config)


def test_a_multimodal_mixture_with_a_draft_layer_and_an_encoder_is_the_list_of_its_language_model() -> None:
    config = qwen35("gptq-dynamic")
    tensors = list(files.qwen35_moe(config, gptq))
    spec = read(config, tensors)
    assert spec == read(config)
    beside = ("visual", "mtp", "g_idx")
    language_bytes = sum(files.size(tensor) for tensor in tensors if not any(word in tensor[0] for word in beside))
    assert spec.stored_bytes == pytest.approx(language_bytes, rel=0.01)


def test_a_module_that_is_wide_in_the_files_has_their_bytes_and_is_named() -> None:
    """Experts at 16 bit though the config says 4."""
    config = qwen35("gptq-dynamic")
    spec = read(config, files.qwen35_moe(config))
    assert spec.stored_bytes == pytest.approx(2.0 * spec.params, rel=0.001)
    assert spec.precision is Precision.BF16
    assert "mlp.experts.{}.gate_proj 21.475 GB in the files, 5.578 by config.json" in spec.source


def test_attention_that_is_narrow_in_the_files_has_their_bytes() -> None:
    """A list that leaves attention out, and files that do not."""
    config = {**LLAMA, "quantization_config": {**FP8, "modules_to_not_convert": ["self_attn"]}}
    spec = read(config, llama(LLAMA, block_fp8))
    assert spec.stored_bytes == pytest.approx(read({**LLAMA, "quantization_config": FP8}).stored_bytes, rel=0.001)
    assert "self_attn.q_proj 0.537 GB in the files, 1.074 by config.json" in spec.source


@each_row(
    ("tensors", "problem"),
    [
        (llama({**LLAMA, "num_hidden_layers": 30}), "num_hidden_layers is 32, and the files have 30 layers"),
        (llama({**LLAMA, "num_hidden_layers": 64}), "num_hidden_layers is 32, and the files have 64 layers"),
        (
            llama({**LLAMA, "intermediate_size": 28672}),
            r"mlp.gate_proj has 1,879.0e6 weights by config.json, 3,758.1e6 in the files",
        ),
        (
            llama({**LLAMA, "num_key_value_heads": 16}),
            r"self_attn.k_proj has 134.2e6 weights by config.json, 268.4e6 in the files",
        ),
        (llama(LLAMA, block_fp8), r"self_attn.q_proj has 8.0 bits per weight in the files, and no field says how"),
        (
            [*llama(LLAMA), *EXTRA],
            r"the files have 1.074 GB of moe.extra, which the config does not speak of",
        ),
        (
            [tensor for tensor in llama(LLAMA) if ".up_proj" not in tensor[0]],
            r"mlp.up_proj has 3.758 GB by config.json, and the files have none",
        ),
    ],
)
def test_files_that_speak_against_the_config_refuse_it(tensors: Iterable[Tensor], problem: str) -> None:
    with pytest.raises(RefusedError, match=problem):
        read(LLAMA, tensors)


def test_other_names_for_modules_of_the_same_size_are_no_contradiction() -> None:
    renamed = [(name.replace("self_attn", "attention.self"), *rest) for name, *rest in llama(LLAMA)]
    assert read(LLAMA, renamed) == read(LLAMA)


def test_a_draft_layer_behind_the_others_is_the_configs_own() -> None:
    config = {**LLAMA, "num_nextn_predict_layers": 1}
    assert read(config, llama({**LLAMA, "num_hidden_layers": 33})) == read(config)


def test_a_model_that_embeds_is_saved_without_the_head_that_its_config_speaks_of() -> None:
    spec = read({**LLAMA, "tie_word_embeddings": False}, llama(LLAMA, head=False))
    assert spec.head_params == 0.0


def bert(config: dict[str, Any]) -> list[Tensor]:
    """sentence-transformers' MiniLM: names of a family that has no list of its own here."""
    hidden = config["hidden_size"]
    width = config["intermediate_size"]
    rows = {"word": config["vocab_size"], "position": config["max_position_embeddings"], "token_type": 2}
    tensors = [(f"embeddings.{name}_embeddings.weight", "F32", (count, hidden)) for name, count in rows.items()]
    for layer in range(config["num_hidden_layers"]):
        begin = f"encoder.layer.{layer}"
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            tensors += [(f"{begin}.{name}.weight", "F32", (hidden, hidden)), (f"{begin}.{name}.bias", "F32", (hidden,))]
        tensors.append((f"{begin}.intermediate.dense.weight", "F32", (width, hidden)))
        tensors.append((f"{begin}.output.dense.weight", "F32", (hidden, width)))
    return tensors


def test_a_family_with_names_of_its_own_agrees_by_its_total_and_its_layers() -> None:
    spec = read(MINILM, bert(MINILM))
    assert spec.source == "test, 32-bit weights loaded at 16 bit"
    assert (spec.params, spec.stored_bytes) == (read(MINILM).params, read(MINILM).stored_bytes)
    with pytest.raises(RefusedError, match="num_hidden_layers is 6, and the files have 12 layers"):
        read(MINILM, bert({**MINILM, "num_hidden_layers": 12}))
    with pytest.raises(RefusedError, match=r"the files have .* GB of .*, which the config does not speak of"):
        read(MINILM, bert({**MINILM, "intermediate_size": 3072}))
