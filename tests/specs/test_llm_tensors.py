"""An unknown architecture by the headers of its files: as exact as the list of the same model under its own name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from gpumon.efficiency.flops import decode_flops_per_token, prefill_flops_per_token
from gpumon.efficiency.traffic import kv_bytes_per_token, weight_read_bytes
from gpumon.specs.fields import RefusedError
from gpumon.specs.llm import LlmSpec, Reach
from gpumon.specs.llm_config import llm_from_config
from tests.each_row import each_row
from tests.specs import checkpoint_files as files
from tests.specs.checkpoint_files import Tensor, block_fp8, gptq, llama, nvfp4
from tests.specs.test_llm_config import CONFIGS, LLAMA
from tests.specs.test_stored_tensors import FP8, GPTQ, NVFP4, qwen35

GPT_OSS = CONFIGS["gpt-oss-120b"]


def under_a_new_name(config: dict[str, Any]) -> dict[str, Any]:
    """The same dimensions of an architecture that is not known."""
    renamed: dict[str, Any] = json.loads(json.dumps(config))
    renamed["model_type"] = f"{config['model_type']}_next"
    if "text_config" in renamed:
        renamed["text_config"]["model_type"] = renamed["model_type"]
    return renamed


def read(config: dict[str, Any], tensors: Iterable[Tensor]) -> LlmSpec:
    stored = files.stored(tensors)
    return llm_from_config(config, "model", "test", stored.bytes_by_type(), None, stored)


@each_row(
    ("config", "tensors"),
    [
        (LLAMA, list(llama(LLAMA))),
        ({**LLAMA, "tie_word_embeddings": True}, list(llama(LLAMA, head=False))),
        ({**LLAMA, "quantization_config": GPTQ}, list(llama(LLAMA, gptq))),
        ({**LLAMA, "quantization_config": FP8}, list(llama(LLAMA, block_fp8))),
        ({**LLAMA, "quantization_config": NVFP4}, list(llama(LLAMA, nvfp4))),
        (GPT_OSS, list(files.gpt_oss(GPT_OSS))),
        (qwen35("gptq-dynamic"), list(files.qwen35_moe(qwen35("gptq-dynamic"), gptq))),
    ],
)
def test_bytes_and_experts_are_those_of_the_same_model_under_its_own_name(
    config: dict[str, Any], tensors: list[Tensor]
) -> None:
    known = llm_from_config(config, "model", "test")
    spec = read(under_a_new_name(config), tensors)
    assert spec.params == pytest.approx(known.params, rel=0.001)
    assert spec.matmul_params == pytest.approx(known.matmul_params, rel=0.001)
    assert spec.stored_bytes == pytest.approx(known.stored_bytes, rel=0.01)
    for batch in (1.0, 64.0):
        assert weight_read_bytes(spec, batch) == pytest.approx(weight_read_bytes(known, batch), rel=0.01)
    assert (spec.experts, spec.experts_per_token, spec.layers) == (known.experts, known.experts_per_token, known.layers)
    assert (spec.heads, spec.kv_heads, spec.head_dim) == (known.heads, known.kv_heads, known.head_dim)
    assert kv_bytes_per_token(spec) == kv_bytes_per_token(known)
    assert (spec.precision, spec.weight_only) == (known.precision, known.weight_only)


def test_it_is_marked_and_has_no_flops() -> None:
    spec = read(under_a_new_name(LLAMA), llama(LLAMA))
    assert "by the names of its tensors: model_type 'llama_next' is not a known architecture" in spec.source
    for flops in (decode_flops_per_token, prefill_flops_per_token):
        with pytest.raises(ValueError, match="model_type 'llama_next' is not a known architecture: what its layers"):
            flops(spec, 1000.0)


def test_layers_without_keys_and_values_are_said_to_be_left_out_and_windows_are_those_of_the_config() -> None:
    config = qwen35("gptq-dynamic")
    spec = read(under_a_new_name(config), files.qwen35_moe(config))
    assert spec.not_modelled == ("attention, states and what else its layers keep in 30 of 40 layers", "vision encoder")
    gpt_oss = read(under_a_new_name({**GPT_OSS, "layer_types": WINDOWS}), files.gpt_oss(GPT_OSS))
    assert {(each.reach, each.layers, each.limit) for each in gpt_oss.attention} == {
        (Reach.FULL, 18, 0),
        (Reach.WINDOW, 18, 128),
    }


def test_words_of_layers_that_are_no_text_are_none() -> None:
    odd = under_a_new_name({**LLAMA, "layer_types": [["mamba"], {}, 7]})
    assert read(odd, llama(LLAMA)).attention == read(under_a_new_name(LLAMA), llama(LLAMA)).attention


WINDOWS = ["sliding_attention", "full_attention"] * 18


@each_row(
    ("config", "tensors", "problem"),
    [
        (
            {key: value for key, value in GPT_OSS.items() if key != "num_experts_per_tok"}
            | {"experts_per_token": None},
            files.gpt_oss(GPT_OSS),
            "its files do not tell enough: config.json: num_experts_per_tok is missing",
        ),
        (LLAMA, [("a.weight", "BF16", (8, 8))], "its files name no layers"),
        (LLAMA, [tensor for tensor in llama(LLAMA) if "embed" not in tensor[0]], "its files name no look-up table"),
    ],
)
def test_files_that_do_not_tell_enough_refuse_it(
    config: dict[str, Any], tensors: Iterable[Tensor], problem: str
) -> None:
    with pytest.raises(RefusedError, match=problem):
        read(under_a_new_name(config), tensors)


def test_without_headers_it_stays_refused() -> None:
    with pytest.raises(RefusedError, match="model_type 'llama_next' is not a known architecture"):
        llm_from_config(under_a_new_name(LLAMA), "model", "test", {"": 16e9})
