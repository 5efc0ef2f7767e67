"""Names of models in the wild: what is taken off, what stays, and that sizes never meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.llm_names import llm_name
from gpumon.specs.llms import LlmRow
from gpumon.specs.precision import Precision
from tests.each_row import each_row

CATALOGUE = llm_catalogue()


@each_row(
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
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "Llama-3.1-8B"),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "Llama-3.1-8B"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-unsloth-bnb-4bit", "Llama-3.1-8B"),
        ("mlx-community/Meta-Llama-3.1-8B-Instruct-4bit", "Llama-3.1-8B"),
        ("mlabonne/Meta-Llama-3.1-8B-Instruct-abliterated", "Llama-3.1-8B"),
        ("nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "Llama-3.1-70B"),
        ("meta-llama/Meta-Llama-3-8B", "Llama-3-8B"),
        ("TheBloke/Llama-2-7B-Chat-GPTQ", "Llama-2-7B"),
        ("meta-llama/Llama-2-7b-chat-hf", "Llama-2-7B"),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "Llama-3.3-70B"),
        ("amd/Llama-3.3-70B-Instruct-FP8-KV", "Llama-3.3-70B"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1_5-FP8", "Llama-3.3-Nemotron-Super-49B"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "Mixtral-8x7B"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "Mistral-7B-v0.2"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "Mistral-Small-3.2-24B"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "Mistral-Small-24B"),
        ("mistralai/Mistral-Small-Instruct-2409", "Mistral-Small-22B"),
        ("mistralai/Devstral-Small-2507", "Mistral-Small-3.1-24B"),
        ("mistralai/Mistral-Large-Instruct-2407", "Mistral-Large-2407"),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512-NVFP4", "Mistral-Large-3-675B"),
        ("mistralai/Ministral-3-14B-Instruct-2512-FP8", "Ministral-3-14B"),
        ("mistralai/Ministral-3-14B-Reasoning-2512", "Ministral-3-14B-Reasoning"),
        ("mistralai/Ministral-3-14B-Base-2512", "Ministral-3-14B-Reasoning"),
        ("mistralai/Ministral-8B-Instruct-2410", "Ministral-8B-2410"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "Qwen3-30B-A3B"),
        ("QuantTrio/Qwen3-30B-A3B-Thinking-2507-AWQ", "Qwen3-30B-A3B"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen3-30B-A3B"),
        ("Qwen/Qwen3-32B-FP8-Static-PerTensor", "Qwen3-32B"),
        ("Qwen/Qwen3-4B-Base", "Qwen3-4B"),
        ("Qwen/Qwen3-VL-8B-Thinking", "Qwen3-VL-8B"),
        ("Qwen/Qwen3-Next-80B-A3B-Thinking-FP8", "Qwen3-Next-80B-A3B"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "Qwen2.5-7B"),
        ("Qwen/Qwen2.5-Coder-32B-Instruct-AWQ", "Qwen2.5-32B"),
        ("Qwen/QwQ-32B", "Qwen2.5-32B"),
        ("cpatonn/Qwen3.5-35B-A3B-AWQ-4bit", "Qwen3.5-35B-A3B"),
        ("nvidia/Qwen3.5-397B-A17B-NVFP4-V2", "Qwen3.5-397B-A17B"),
        ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek-R1"),
        ("nvidia/DeepSeek-R1-0528-NVFP4-v2", "DeepSeek-R1"),
        ("amd/DeepSeek-R1-0528-MXFP4-Preview", "DeepSeek-R1"),
        ("deepseek-ai/DeepSeek-V3-0324", "DeepSeek-V3"),
        ("deepseek-ai/DeepSeek-V3.1-Terminus", "DeepSeek-V3.1"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "DeepSeek-V3.2"),
        ("deepseek-ai/DeepSeek-V4-Flash-0731", "DeepSeek-V4-Flash"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "Llama-3.3-70B"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "DeepSeek-R1-Distill-Qwen-1.5B"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("gpt-oss:120b", "gpt-oss-120b"),
        ("amd/gpt-oss-120b-w-mxfp4-a-fp8", "gpt-oss-120b"),
        ("google/gemma-3-27b-it", "Gemma-3-27B"),
        ("google/gemma-3-27b-it-qat-q4_0-gguf", "Gemma-3-27B"),
        ("gemma3:27b", "Gemma-3-27B"),
        ("google/gemma-4-E2B-it-qat-w4a16-ct", "Gemma-4-E2B"),
        ("microsoft/phi-4", "Phi-4-14B"),
        ("microsoft/Phi-4-mini-instruct", "Phi-4-mini-3.8B"),
        ("zai-org/GLM-4.5", "GLM-4.5"),
        ("zai-org/GLM-4.6-FP8", "GLM-4.6"),
        ("zai-org/GLM-5.1-FP8", "GLM-5.1"),
        ("moonshotai/Kimi-K2-Instruct-0905", "Kimi-K2"),
        ("moonshotai/Kimi-K2-Thinking", "Kimi-K2-Thinking"),
        ("nvidia/Kimi-K2-Thinking-NVFP4", "Kimi-K2-Thinking"),
        ("MiniMaxAI/MiniMax-M3-MXFP8", "MiniMax-M3"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", "Nemotron-3-Nano-30B-A3B"),
        ("nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-NVFP4-QAD", "Nemotron-Nano-12B-v2-VL"),
        ("RedHatAI/Hy3-NVFP4-FP8", "Hy3"),
        ("Inferact/Muse-Glimmer-30B-NVFP4-W4A4", "Muse-Glimmer-30B"),
        ("LiquidAI/LFM2.5-1.2B-JP-202606", "LFM2.5-1.2B"),
        ("ibm-granite/granite-3.3-2b-instruct", "Granite-3.2-2B"),
        ("baidu/ERNIE-4.5-21B-A3B-Thinking", "ERNIE-4.5-21B-A3B"),
        ("OpenGVLab/InternVL3_5-8B-Instruct", "InternVL3.5-8B"),
        ("tencent/Hunyuan-A13B-Instruct-GPTQ-Int4", "Hunyuan-A13B"),
        ("BAAI/bge-m3", "bge-m3"),
    ],
)
def test_known_models_are_found(model_id: str, row: str) -> None:
    found = CATALOGUE.row(model_id)
    assert found is not None
    assert found.name == row


@each_row(
    ("model_id", "tokens"),
    [
        ("Qwen/Qwen3-4B", 40_960),
        ("Qwen/Qwen3-4B-Instruct-2507", 262_144),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", 262_144),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", 262_144),
        ("Qwen/Qwen3-8B-Base", 0),
        ("Qwen/Qwen2.5-7B", 131_072),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", 32_768),
        ("Qwen/Qwen2.5-Math-7B-Instruct", 0),
        ("moonshotai/Kimi-K2-Instruct-0905", 262_144),
        ("llama3.1:8b", 131_072),
    ],
)
def test_a_context_is_that_of_the_release_or_not_known(model_id: str, tokens: int) -> None:
    found = CATALOGUE.find(model_id)
    assert found is not None
    assert found.max_context == tokens


@each_row(
    "model_id",
    [
        "meta-llama/Llama-3.1-9B",
        "meta-llama/Llama-3.2-11B-Vision-Instruct",
        "meta-llama/Llama-Guard-4-12B",
        "Qwen/Qwen-34B",
        "Qwen/Qwen3-300B-A3B",
        "Qwen/Qwen3-VL-9B-Instruct",
        "Qwen/Qwen3-VL-Embedding-8B",
        "Qwen/Qwen3-Omni-9B-Instruct",
        "Qwen/Qwen3.7-27B",
        "Qwen/Qwen2.5-1M-7B",
        "Qwen/Qwen2.5-Omni-7B",
        "Qwen/Qwen2.5-Math-PRM-7B",
        "deepseek-ai/DeepSeek-V3.3",
        "deepseek-ai/DeepSeek-V4",
        "deepseek-ai/DeepSeek-R1-0777",
        "deepseek-r1:70b",
        "deepseek-ai/DeepSeek-Prover-V2-7B",
        "mistral-large-2512",
        "mistralai/Mistral-Small-2503",
        "mistralai/Ministral-4-8B-Instruct",
        "mistralai/Mistral-7B-Instruct-v0.4",
        "moonshotai/Kimi-K2.8",
        "moonshotai/Kimi-K4",
        "nvidia/Nemotron-4-340B-Instruct",
        "nvidia/NVIDIA-Nemotron-3-Nano-9B-v2",
        "google/gemma-3-2b-it",
        "google/gemma-4-E8B-it",
        "google/gemma-4-E2B-it-qat-mobile-ct",
        "google/embeddinggemma-300m",
        "openai/gpt-oss-21b",
        "openai/gpt-oss-safeguard-21b",
        "zai-org/GLM-5.4-Flash",
        "zai-org/GLM-4.8",
        "MiniMaxAI/MiniMax-M4",
        "poolside/Laguna-XS-3",
        "tencent/Hy5",
        "RedHatAI/Kimi-K3-speculator.dspark",
        "microsoft/Phi-4-mini-flash-reasoning",
        "llama",
        "llama3.3:latest",
        "70b",
        "fp8",
        "nvidia",
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


@each_row(
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
        ("x-MXFP8", Precision.FP8, False, 8),
        ("x-FP4", Precision.NVFP4, False, 4.5),
        ("x-unsloth-bnb-4bit", Precision.INT4, True, 4.16),
        ("x-BF16", Precision.BF16, False, 16),
        ("x.Q4_K_M.gguf", Precision.INT4, True, 4.844),
        ("x-IQ4_XS.gguf", Precision.INT4, True, 4.302),
        ("x-Q8_0.gguf", Precision.INT8, True, 8.5),
        ("x-F16.gguf", Precision.FP16, False, 16),
    ],
)
def test_the_name_tells_the_stored_format(model_id: str, precision: Precision, weight_only: bool, bits: float) -> None:
    name = llm_name(model_id)
    assert name.key == ("x",)
    assert name.weights is not None
    stored = name.weights.storage_of("mlp")
    assert (stored.precision, stored.weight_only) == (precision, weight_only)
    assert stored.bytes_per_weight * 8 == pytest.approx(bits)


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


@given(st.sampled_from(CATALOGUE.rows), st.sampled_from(["", "-FP8", "-AWQ", "-GPTQ-Int4", "-NVFP4-v2", "-GGUF"]))
def test_every_published_id_finds_its_row_whatever_its_ending(row: LlmRow, ending: str) -> None:
    for name in (row.name, row.hf_id, *row.aliases):
        assert CATALOGUE.row(f"{name}{ending}") is row
        assert CATALOGUE.row(f"{name}{ending}".upper()) is row
