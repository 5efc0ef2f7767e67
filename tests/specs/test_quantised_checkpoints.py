"""Configs of quantised checkpoints with rules for single modules: bytes of all weights, and those that a step reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpumon.efficiency.traffic import weight_read_bytes
from gpumon.efficiency.weights import weight_bytes
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.llm_config import llm_from_config
from tests.each_row import each_row

CONFIGS = Path(__file__).resolve().parents[1] / "data" / "quantised"


@each_row(
    ("name", "stored_gb", "read_gb"),
    [
        # Qwen3.5-35B-A3B: attention, shared expert and head at 16 bit, experts at 4.156 bits (AWQ) or 4.125 (GPTQ).
        # The AWQ list names two of the five projections of its state layers: all five are counted wide.
        ("moe-awq-skip", 21.63, 4.40),
        ("moe-gptq-dynamic", 21.50, 4.40),
        ("q27-ct-mixed-simple", 20.70, 18.16),
        # Qwen3-8B: an expression for each layer; all layers in one expression.
        ("q8-ct-mixed", 6.70, 5.46),
        ("q8-ct-d-layers", 8.40, 7.15),
    ],
)
def test_bytes_of_quantised_checkpoints(name: str, stored_gb: float, read_gb: float) -> None:
    config = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    spec = llm_from_config(config, name, "test")
    assert weight_bytes(spec) == pytest.approx(stored_gb * 1e9, rel=0.003)
    assert weight_read_bytes(spec, 1.0) == pytest.approx(read_gb * 1e9, rel=0.003)


def test_autorounds_list_is_of_single_modules() -> None:
    """It leaves out two projections of a state layer whose rows no kernel divides (intel/auto-round, issue 1496)."""
    config = json.loads((CONFIGS / "moe-awq-skip.json").read_text(encoding="utf-8"))
    config["quantization_config"]["quant_method"] = "auto-round"
    assert weight_bytes(llm_from_config(config, "m", "test")) == pytest.approx(20.14e9, rel=0.003)


@each_row(
    ("name", "file_gb"),
    [
        # GB of the files as their publishers list them.
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M", 4.92),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q6_K", 6.60),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q3_K_M", 4.02),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q2_K", 3.18),
        ("bartowski/Llama-3.3-70B-Instruct-GGUF:Q4_K_M", 42.52),
        ("bartowski/Llama-3.3-70B-Instruct-GGUF:Q5_K_S", 48.66),
        ("Qwen2.5-7B-Instruct-Q4_K_M.gguf", 4.68),
        ("Qwen3-30B-A3B-Q8_0.gguf", 32.48),
        ("unsloth/DeepSeek-R1-GGUF:Q4_K_M", 404.43),
        ("ggml-org/gpt-oss-120b-GGUF", 63.39),
        ("gpt-oss-20b-mxfp4.gguf", 12.11),
        ("unsloth/gpt-oss-20b-GGUF:F16", 13.79),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q3_K_L", 4.32),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_0", 4.66),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:IQ4_XS", 4.45),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:IQ3_M", 3.78),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:IQ3_XS", 3.52),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:IQ2_M", 2.95),
        ("bartowski/Llama-3.3-70B-Instruct-GGUF:IQ3_XXS", 27.47),
        ("bartowski/Llama-3.3-70B-Instruct-GGUF:IQ2_XXS", 19.10),
        ("bartowski/Llama-3.3-70B-Instruct-GGUF:IQ1_M", 16.75),
        ("Qwen3-30B-A3B-Q3_K_M.gguf", 14.71),
        ("bartowski/gemma-2-9b-it-GGUF:Q4_K_M", 5.76),
    ],
)
def test_bytes_of_gguf_files_by_their_names(name: str, file_gb: float) -> None:
    spec = llm_catalogue().find(name)
    assert spec is not None
    assert weight_bytes(spec) == pytest.approx(file_gb * 1e9, rel=0.01)


@each_row("name", ["unsloth/Qwen3-8B-GGUF:UD-Q4_K_XL", "Qwen3-8B-UD-IQ2_XXS.gguf", "bartowski/Qwen3-8B-GGUF"])
def test_names_that_leave_the_mixture_of_types_open_give_no_bytes(name: str) -> None:
    """Unsloth's dynamic mixtures differ by model and release; a repository has files of many types."""
    assert llm_catalogue().row(name) is not None
    assert llm_catalogue().find(name) is None
