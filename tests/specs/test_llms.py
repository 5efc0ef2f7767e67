"""The LLM catalogue: every row, its sums, and other stored formats."""

from __future__ import annotations

import csv
from importlib.resources import files

import pytest

from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.llms import LlmRow, parse_llms
from gpumon.specs.precision import Precision

TEXT = files("gpumon.specs").joinpath("data", "llms.csv").read_text("utf-8")
CELLS = {row["name"]: row for row in csv.DictReader(TEXT.splitlines())}
CATALOGUE = llm_catalogue()
HYBRID = {"Kimi-K3", "Nemotron-3-Super-120B-A12B"}


def test_all_rows_are_read_and_only_the_named_ones_are_unusable() -> None:
    assert len(CATALOGUE.rows) == len(CELLS) >= 70
    assert {row.name for row in CATALOGUE.rows if row.unusable} == HYBRID
    assert all(CATALOGUE.find(CELLS[name]["hf_id"]) is None for name in HYBRID)


@pytest.mark.parametrize("row", [row for row in CATALOGUE.rows if not row.unusable], ids=lambda row: row.name)
def test_a_row_agrees_with_its_own_columns(row: LlmRow) -> None:
    cells, spec = CELLS[row.name], row.spec
    assert spec.layers <= int(cells["layers"])
    assert spec.params == pytest.approx(float(cells["calc_total_b"] or cells["params_total_b"]) * 1e9)
    assert spec.matmul_params == pytest.approx(float(cells["calc_active_b"] or cells["params_active_b"]) * 1e9)
    if cells["calc_active_b"]:
        assert row.parts.active == pytest.approx(spec.matmul_params, abs=11e6)
    assert spec.read_bytes <= spec.params * 2
    assert spec.experts * spec.expert_params < spec.params
    assert ("unverified" in spec.source) == (cells["verified"] != "yes")
    assert CATALOGUE.find(row.hf_id) is not None


def test_notes_name_what_the_formulas_leave_out() -> None:
    notes = {row.name: row.spec.not_modelled for row in CATALOGUE.rows}
    assert notes["Qwen3-Next-80B-A3B"] == ("linear attention",)
    assert notes["Nemotron-H-56B"] == ("state update of the Mamba layers",)
    assert notes["Nemotron-3-Super-120B-A12B"] == ("state-space layers",)
    assert notes["Gemma-3-27B"] == ("vision encoder",)
    assert notes["Qwen3.5-35B-A3B"] == ("vision encoder", "linear attention")
    assert notes["DeepSeek-V4-Pro"] == ("compressed attention",)
    assert notes["DeepSeek-V3.2"] == ("indexer of the sparse attention",)
    assert notes["Llama-3.1-8B"] == ()


def test_another_format_by_name_changes_the_bytes_and_not_the_dimensions() -> None:
    plain, fp8 = CATALOGUE.find("Llama-3.3-70B-Instruct"), CATALOGUE.find("Llama-3.3-70B-Instruct-FP8")
    assert plain is not None
    assert fp8 is not None
    head = plain.vocab * plain.hidden
    assert fp8.matmul_params == plain.matmul_params
    assert fp8.read_bytes == pytest.approx(plain.read_bytes / 2 + head)
    assert fp8.precision is Precision.FP8
    assert "fp8 by its name" in fp8.source
    assert fp8.kv_precision is Precision.BF16


def test_mxfp4_of_a_moe_covers_its_experts_only() -> None:
    native, wide = CATALOGUE.find("openai/gpt-oss-120b"), CATALOGUE.find("unsloth/gpt-oss-120b-BF16")
    assert native is not None
    assert wide is not None
    rest = wide.read_bytes - wide.experts * wide.expert_read_bytes
    assert native.read_bytes - native.experts * native.expert_read_bytes == pytest.approx(rest)
    assert native.expert_read_bytes == pytest.approx(native.expert_params * 0.53125)


def test_gemma_4_keeps_its_smaller_cache_of_full_layers() -> None:
    spec = next(row.spec for row in CATALOGUE.rows if row.name == "Gemma-4-26B-A4B")
    assert spec.full_kv_elements == 2048
    assert 2 * spec.kv_heads * spec.head_dim == 4096


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["llama", "70b"], ["Llama-2-70B", "Llama-3.1-70B", "Llama-3.3-70B"]),
        (["QwQ"], ["Qwen2.5-32B"]),
        (["gptoss", "120"], ["gpt-oss-120b"]),
        (["moonshotai/"], ["Kimi-K2", "Kimi-K3"]),
        (["nano"], ["Nemotron-3-Nano-30B-A3B"]),
        (["r1", "qwen"], ["Qwen2.5-7B", "Qwen2.5-14B", "Qwen2.5-32B"]),
        (["no", "such"], []),
        (["\x00" * 5000], []),
    ],
)
def test_a_search_takes_parts_of_names(words: list[str], names: list[str]) -> None:
    assert [row.name for row in CATALOGUE.search(words)] == names


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("meta-llama/Llama-3.1-9B", "Llama-3.1-8B"),
        ("acme/deepseek-v3.5", "DeepSeek-V3.2"),
        ("gemma-3-1b-it", "Gemma-3-12B"),
        ("quen3-32b", "Qwen3-32B"),
    ],
)
def test_the_nearest_name_shares_most_with_it(name: str, nearest: str) -> None:
    found = CATALOGUE.nearest(name)
    assert found[0].name == nearest
    assert len(found) <= 5
    assert CATALOGUE.row(name) is None


def test_nothing_is_near_a_name_that_shares_nothing() -> None:
    assert CATALOGUE.nearest("zzz") == ()
    assert CATALOGUE.nearest("") == ()
    assert isinstance(CATALOGUE.nearest("-" * 100_000), tuple)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (",mxfp4 experts + bf16,", ",fp3,", "native_dtype 'fp3'"),
        ("meta-llama/Llama-2-13b-hf", "meta-llama/Llama-2-7b-hf", "has a name of Llama-2-7B"),
        ("calc_total_b", "total", "calc_total_b is missing"),
    ],
)
def test_a_bad_row_is_named(old: str, new: str, problem: str) -> None:
    assert old in TEXT
    text = TEXT.replace(old, new, 1)
    with pytest.raises(ValueError, match=r"llms\.csv") as error:
        parse_llms(text)
    assert problem in str(error.value)


def test_a_number_that_is_none_is_named_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"line 2: hidden '4k' is not a positive number"):
        parse_llms(TEXT.replace(",4096,", ",4k,", 1))
