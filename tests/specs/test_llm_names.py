"""Names of models in the wild: what is taken off, what stays, and that sizes never meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.llm_names import llm_name
from gpumon.specs.precision import Precision

CATALOGUE = llm_catalogue()


@pytest.mark.parametrize(
    ("model_id", "row"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("LLAMA-3.1-8B", "Llama-3.1-8B"),
        ("llama3.1:8b", "Llama-3.1-8B"),
        ("llama3.1:8b-instruct-q4_K_M", "Llama-3.1-8B"),
        ("/models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "Llama-3.1-8B"),
        ("Meta-Llama-3.1-8B-Instruct-Q8_0-00001-of-00002.gguf", "Llama-3.1-8B"),
        ("/srv/hub/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0e9e39f249a16976", "Llama-3.1-8B"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "Llama-3.1-8B"),
        ("meta-llama/Meta-Llama-3-8B", "Llama-3-8B"),
        ("TheBloke/Llama-2-7B-Chat-GPTQ", "Llama-2-7B"),
        ("meta-llama/Llama-2-7b-chat-hf", "Llama-2-7B"),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "Llama-3.3-70B"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "Mixtral-8x7B"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "Mistral-Small-3.2-24B"),
        ("mistralai/Mistral-Large-Instruct-2407", "Mistral-Large-2407"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "Qwen3-30B-A3B"),
        ("Qwen/Qwen3-4B-Base", "Qwen3-4B"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "Qwen2.5-7B"),
        ("Qwen/QwQ-32B", "Qwen2.5-32B"),
        ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek-R1"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "Llama-3.3-70B"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("gpt-oss:120b", "gpt-oss-120b"),
        ("google/gemma-3-27b-it", "Gemma-3-27B"),
        ("gemma3:27b", "Gemma-3-27B"),
        ("microsoft/phi-4", "Phi-4-14B"),
        ("zai-org/GLM-4.5", "GLM-4.5/4.6-355B-A32B"),
        ("zai-org/GLM-5.1-FP8", "GLM-5"),
        ("moonshotai/Kimi-K2-Instruct-0905", "Kimi-K2"),
    ],
)
def test_known_models_are_found(model_id: str, row: str) -> None:
    found = CATALOGUE.row(model_id)
    assert found is not None
    assert found.name == row


@pytest.mark.parametrize(
    "model_id",
    [
        "meta-llama/Llama-3.1-9B",
        "Qwen/Qwen-34B",
        "Qwen/Qwen3-1.7B",
        "Qwen/Qwen3-300B-A3B",
        "Qwen/Qwen3-VL-8B-Instruct",
        "Qwen/Qwen2.5-Coder-7B",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
        "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct",
        "mistralai/Mistral-7B-Instruct-v0.2",
        "mistral-large-2512",
        "mistralai/Mistral-Small-Instruct-2409",
        "nvidia/Llama-3.1-Nemotron-70B-Instruct",
        "moonshotai/Kimi-K2-Thinking",
        "llama",
        "llama3.3:latest",
        "70b",
        "model",
        "",
        "/",
        "instruct",
        "gpt-4o",
    ],
)
def test_another_size_or_kind_is_never_taken_for_a_known_one(model_id: str) -> None:
    assert CATALOGUE.row(model_id) is None
    assert CATALOGUE.find(model_id) is None


@pytest.mark.parametrize(
    ("model_id", "precision", "weight_only", "bits"),
    [
        ("x-FP8", Precision.FP8, False, 8),
        ("x-FP8-dynamic", Precision.FP8, False, 8),
        ("x-quantized.w8a8", Precision.INT8, False, 8),
        ("x-quantized.w4a16", Precision.INT4, True, 4.16),
        ("x-AWQ", Precision.INT4, True, 4.16),
        ("x-AWQ-INT4", Precision.INT4, True, 4.16),
        ("x-GPTQ-Int4", Precision.INT4, True, 4.16),
        ("x-GPTQ-Int8", Precision.INT8, True, 8),
        ("x-NVFP4", Precision.NVFP4, False, 4.5),
        ("x-mxfp4", Precision.MXFP4, False, 4.25),
        ("x-FP4", Precision.NVFP4, False, 4.5),
        ("x-unsloth-bnb-4bit", Precision.INT4, True, 4.16),
        ("x-BF16", Precision.BF16, False, 16),
        ("x.Q4_K_M.gguf", Precision.INT4, True, 4.89),
        ("x-UD-Q4_K_M.gguf", Precision.INT4, True, 4.89),
        ("x-IQ4_XS.gguf", Precision.INT4, True, 4.46),
        ("x-Q8_0.gguf", Precision.INT8, True, 8.5),
        ("x-F16.gguf", Precision.FP16, False, 16),
    ],
)
def test_the_name_tells_the_stored_format(model_id: str, precision: Precision, weight_only: bool, bits: float) -> None:
    name = llm_name(model_id)
    assert name.key == ("x",)
    assert name.weights is not None
    assert (name.weights.precision, name.weights.weight_only) == (precision, weight_only)
    assert name.weights.bytes_per_weight * 8 == pytest.approx(bits)


def test_a_plain_name_tells_no_format_and_fp8_kv_is_told() -> None:
    assert llm_name("meta-llama/Llama-3.1-8B").weights is None
    weights = llm_name("amd/Llama-3.1-70B-Instruct-FP8-KV").weights
    assert weights is not None
    assert weights.kv_precision is Precision.FP8


@given(st.text(max_size=2000))
def test_any_text_is_taken_apart_without_an_error(text: str) -> None:
    name = llm_name(text)
    assert all(name.key)
    assert CATALOGUE.row(text) is None or len(name.key) > 1


@given(st.sampled_from(CATALOGUE.rows), st.sampled_from(["", "-FP8", "-AWQ", "-GPTQ-Int4", "-NVFP4", "-Instruct"]))
def test_every_published_id_finds_its_row_whatever_its_ending(row: object, ending: str) -> None:
    hf_id = row.hf_id  # type: ignore[attr-defined]
    assert CATALOGUE.row(f"{hf_id}{ending}") is row
    assert CATALOGUE.row(f"{hf_id}{ending}".upper()) is row
