"""Formats of recurrent states: what vLLM's page or command line says, and what it does where neither says anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpumon.efficiency.traffic import step_bytes_per_s
from gpumon.sources.discovery.command_line import launch
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from gpumon.specs.hints import CONVOLUTION_DTYPE, STATE_DTYPE, hints_of
from gpumon.specs.llm import CONVOLUTION, LlmSpec
from gpumon.specs.llm_config import llm_from_config
from gpumon.specs.llm_hints import with_state_dtypes
from tests.each_row import each_row
from tests.fakes.engine import Capture
from tests.sources.test_model_facts import ask

DATA = Path(__file__).parents[1] / "data"


def told(name: str, **labels: str) -> dict[str, str]:
    """What the recorded page says of the model, with other values of some labels."""
    body = Capture(name).scrapes[-1].body
    for label, value in labels.items():
        body = body.replace(f'{label}="float32"'.encode(), f'{label}="{value}"'.encode())
    return hints_of(VllmAdapter().read(Scanner(VllmAdapter().wanted_names).scan(body)).info)


def served(name: str, hints: dict[str, str]) -> LlmSpec:
    """The recorded server's model, by its own config.json and what its page says."""
    spec = ask(Capture(name).meta["model"], str(DATA / "captures" / name), **hints).spec
    assert spec is not None
    return spec


def widths(spec: LlmSpec) -> dict[str, float]:
    return {state.kind: state.bytes_per_element for state in spec.states}


def released(name: str, **changes: object) -> LlmSpec:
    """A published model, some fields of its config changed (None: taken out)."""
    lines = map(json.loads, (DATA / "oracle" / "released.jsonl").read_text().splitlines())
    config = next(line["config"] for line in lines if line["id"] == name)
    return llm_from_config(
        {key: value for key, value in {**config, **changes}.items() if value is not None}, name, "test"
    )


@each_row("name", ["vllm-family-granite-hybrid", "vllm-family-nemotron-h"])
def test_the_state_has_the_format_that_the_page_says(name: str) -> None:
    assert told(name)[STATE_DTYPE] == "float32"
    assert widths(served(name, told(name))) == {"mamba2": 4.0, CONVOLUTION: 2.0}
    narrow = served(name, told(name, mamba_ssm_cache_dtype="bfloat16"))
    assert widths(narrow) == {"mamba2": 2.0, CONVOLUTION: 2.0}


def test_auto_is_what_the_family_has() -> None:
    """A Granite hybrid keeps the model's type, a Nemotron-H 32 bit."""
    assert STATE_DTYPE not in told("vllm-family-granite-hybrid", mamba_ssm_cache_dtype="auto")
    assert widths(served("vllm-family-granite-hybrid", {}))["mamba2"] == 2.0
    assert widths(served("vllm-family-nemotron-h", {}))["mamba2"] == 4.0


def test_a_nemotron_whose_config_says_nothing_keeps_32_bit() -> None:
    name = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
    spec = released(name, mamba_ssm_cache_dtype=None)
    assert widths(spec) == {"mamba2": 4.0, CONVOLUTION: 2.0}
    assert widths(released(name, mamba_ssm_cache_dtype="bfloat16"))["mamba2"] == 2.0
    # 64 sequences: the states are read and written in each step.
    half = with_state_dtypes(spec, {STATE_DTYPE: "bfloat16"})
    made = (100.0, 6400.0, 1000.0, 1.0, 1)
    more = step_bytes_per_s(spec, *made) - step_bytes_per_s(half, *made)
    recurrent = sum(state.layers * state.elements for state in spec.states if state.kind == "mamba2")
    assert more == pytest.approx(6400.0 * 2.0 * 2.0 * recurrent)


def test_kimi_delta_attention_has_32_bit_whatever_is_said() -> None:
    """Its convolutions have what is said of convolutions."""
    said = {STATE_DTYPE: "bfloat16", CONVOLUTION_DTYPE: "float32"}
    assert widths(with_state_dtypes(kimi(), said)) == {"kimi delta": 4.0, CONVOLUTION: 4.0}


def kimi() -> LlmSpec:
    lines = map(json.loads, (DATA / "oracle" / "defaults.jsonl").read_text().splitlines())
    config = next(line["config"] for line in lines if line["config"].get("model_type") == "kimi_linear")
    return llm_from_config(config, "kimi", "test")


def test_without_a_word_of_its_own_a_state_follows_the_convolutions() -> None:
    spec = with_state_dtypes(served("vllm-family-granite-hybrid", {}), {CONVOLUTION_DTYPE: "float32"})
    assert widths(spec) == {"mamba2": 4.0, CONVOLUTION: 4.0}


def test_the_command_line_says_it_too() -> None:
    found = launch(["vllm", "serve", "m", "--mamba-ssm-cache-dtype", "float32", "--mamba-cache-dtype=bfloat16"])
    assert found is not None
    assert (found.state_dtype, found.convolution_dtype) == ("float32", "bfloat16")
    found = launch(["python", "-m", "sglang.launch_server", "--model-path", "m", "--mamba-ssm-dtype", "bfloat16"])
    assert found is not None
    assert found.state_dtype == "bfloat16"
