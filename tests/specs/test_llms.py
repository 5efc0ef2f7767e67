"""The LLM catalogue: made from its sources, every row read and as large as published, and what it has to know in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.llm_config import llm_from_config
from gpumon.specs.llms import LlmRow, parse_llms
from gpumon.specs.precision import Precision
from tests import catalogue
from tests.each_row import each_row

TEXT = files("gpumon.specs").joinpath("data", "llms.jsonl").read_text("utf-8")
CATALOGUE = llm_catalogue()
REFUSED = {
    "diffusiongemma-26B-A4B": "it computes a block of tokens several times over",
    "ERNIE-4.5-VL-28B-A3B": "'ernie4_5_vl_moe_text' is not modelled: it has a second set of experts",
    "Unlimited-OCR": "'unlimited_ocr_text' is not modelled: its windows hold",
}
"""Rows that the reader of configs refuses, and why."""
UNKNOWN = {
    "pfnet/plamo-2-translate": "its config is not public in any source at hand",
    "pfnet/plamo-3-nict-31b-base": "its config is not public",
    "baidu/ERNIE-4.5-VL-424B-A47B-PT": "its config is not public in any source at hand",
    "google/gemma-4-E2B-it-qat-mobile-ct": "its format is not known by its name",
    "google/gemma-4-E4B-it-qat-mobile-ct": "its format is not known by its name",
    "ai21labs/AI21-Jamba-Reasoning-3B": "its config is not public in any source at hand",
    "ai21labs/AI21-Jamba2-3B": "its config is not public in any source at hand",
    "meituan-longcat/LongCat-Flash-Lite": "its config is not public in any source at hand",
    "meituan-longcat/LongCat-Flash-Omni": "its config is not public in any source at hand",
}
"""Names that have no row, and why."""
_ENDING = 0.6
"""Billions of active parameters that publishers round away."""


def names() -> Mapping[str, list[str]]:
    """The names that are to be known, by section."""
    found: dict[str, list[str]] = {}
    section: list[str] = []
    for line in (Path(__file__).parents[1] / "data" / "catalogue" / "names.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            section.append(line)
    return found


NAMES = names()


@cache
def released() -> Mapping[str, Mapping[str, Any]]:
    """The published configs, by name."""
    return catalogue.released()


def test_the_file_is_what_its_sources_make() -> None:
    assert catalogue.text() == TEXT
    assert len(CATALOGUE.rows) >= 250


def test_a_config_is_stripped_to_what_formulas_need() -> None:
    whole = {
        "model_type": "x",
        "bos_token_id": 1,
        "rope_scaling": {"factor": 8.0},
        "sliding_window": None,
        "qk_rope_head_dim": 64,
        "vision_config": {"depth": 27},
        "audio_config": None,
        "text_config": {"hidden_size": 8, "attention_dropout": 0.0, "rms_norm_eps": 1e-6},
    }
    assert catalogue.stripped(whole) == {
        "model_type": "x",
        "sliding_window": None,
        "qk_rope_head_dim": 64,
        "vision_config": {},
        "audio_config": None,
        "text_config": {"hidden_size": 8},
    }


@each_row("name", released)
def test_what_is_stripped_changes_no_figure(name: str) -> None:
    config = released()[name]
    try:
        whole = llm_from_config(config, name, "test")
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            llm_from_config(catalogue.stripped(config), name, "test")
    else:
        assert llm_from_config(catalogue.stripped(config), name, "test") == whole


def test_all_rows_are_read_but_those_that_are_refused_with_a_reason() -> None:
    unusable = {row.name: row.unusable for row in CATALOGUE.rows if row.unusable}
    assert set(unusable) == set(REFUSED)
    for name, reason in REFUSED.items():
        assert reason in unusable[name]
        row = CATALOGUE.row(name)
        assert row is not None
        assert CATALOGUE.find(name) is None
        with pytest.raises(ValueError, match=reason):
            assert row.spec


@each_row("row", lambda: [row for row in CATALOGUE.rows if not row.unusable], lambda row: row.name)
def test_a_row_is_as_large_as_published(row: LlmRow) -> None:
    spec = row.spec
    assert row.note or spec.params / 1e9 == pytest.approx(row.params_b, rel=0.02)
    assert spec.params / 1e9 <= row.params_b * 1.02
    assert spec.matmul_params <= spec.params
    assert row.modules.total == spec.params
    assert row.active_b is None or spec.experts
    if row.active_b:
        close = pytest.approx(row.active_b, rel=0.25, abs=_ENDING)
        assert spec.matmul_params / 1e9 == close or "encoder" in row.note
    assert ("unverified" in spec.source) != row.verified
    assert CATALOGUE.find(row.hf_id) is not None
    assert row.config_source


@each_row(("section", "least"), [("recipes", 0.95), ("variants", 0.95), ("inferencex", 0.95), ("families", 0.95)])
def test_what_engines_are_asked_to_serve_is_known(section: str, least: float) -> None:
    rows = {name: CATALOGUE.row(name) for name in NAMES[section]}
    assert {name for name, row in rows.items() if row is None} == UNKNOWN.keys() & rows.keys()
    found = sum(row is not None for row in rows.values())
    assert f"| {found} | {len(rows)} |" in (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    usable = [name for name, row in rows.items() if row is not None and not row.unusable]
    assert len(usable) >= least * len(rows)


@each_row(
    ("name", "params", "active"),
    [
        ("Laguna-M.1", 225_796_000_000, 23_054_000_000),
        ("dots3-note-prev", 279_551_718_016, 15_475_146_752),
        ("Muse-Glimmer-30B", 27_854_780_928, 26_508_558_336),
        ("Ling-3.0-flash", 124_414_191_072, 5_101_191_168),
        ("A.X-K1", 518_983_052_288, 31_603_490_816),
        ("Jamba-v0.1", 51_570_323_328, 11_836_325_888),
        ("LongCat-Flash", 560_664_958_976, 27_148_681_216),
        ("Solar-Open-100B", 102_651_793_408, 11_249_123_328),
    ],
)
def test_a_new_architecture_has_the_parameters_of_the_real_model_code(name: str, params: int, active: int) -> None:
    row = CATALOGUE.row(name)
    assert row is not None
    assert row.spec.params == pytest.approx(params, rel=2e-4)
    assert row.spec.matmul_params == pytest.approx(active, rel=2e-4)


def test_what_makes_no_text_is_not_taken_for_a_language_model() -> None:
    assert [name for name in NAMES["media"] if CATALOGUE.row(name)] == []


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


def test_a_tuning_may_be_stored_in_another_format() -> None:
    fp8, wide = (
        CATALOGUE.find("mistralai/Ministral-3-8B-Instruct-2512"),
        CATALOGUE.find("Ministral-3-8B-Reasoning-2512"),
    )
    assert fp8 is not None
    assert wide is not None
    assert (fp8.precision, wide.precision) == (Precision.FP8, Precision.BF16)
    assert fp8.matmul_params == wide.matmul_params


def test_a_format_of_unknown_bits_is_not_taken_for_the_published_one() -> None:
    assert CATALOGUE.row("Qwen3-8B-UD-Q4_K_XL.gguf") is CATALOGUE.row("Qwen/Qwen3-8B")
    assert CATALOGUE.find("Qwen3-8B-UD-Q4_K_XL.gguf") is None


@each_row(
    ("words", "names"),
    [
        (["llama-3", "70b"], ["Llama-3-70B", "Llama-3.1-70B", "Llama-3.3-70B"]),
        (["QwQ"], ["Qwen2.5-32B"]),
        (["gptoss", "120"], ["gpt-oss-120b"]),
        (["moonshotai/kimi-k2."], ["Kimi-K2.5", "Kimi-K2.6"]),
        (["r1", "qwen", "distill"], ["DeepSeek-R1-Distill-Qwen-1.5B", "Qwen2.5-7B", "Qwen2.5-14B", "Qwen2.5-32B"]),
        (["no", "such"], []),
        (["\x00" * 5000], []),
    ],
)
def test_a_search_takes_parts_of_names(words: list[str], names: list[str]) -> None:
    assert [row.name for row in CATALOGUE.search(words)] == names


@each_row(
    ("name", "nearest"),
    [
        ("meta-llama/Llama-3.1-9B", "Llama-3.1-8B"),
        ("acme/deepseek-v3.5", "DeepSeek-V3.2"),
        ("gemma-3-2b-it", "Gemma-3-12B"),
        ("quen3-32b", "Qwen3-32B"),
    ],
)
def test_the_nearest_name_shares_most_with_it(name: str, nearest: str) -> None:
    found = CATALOGUE.nearest(name)
    assert nearest in {row.name for row in found}
    assert len(found) <= 5
    assert CATALOGUE.row(name) is None


def test_nothing_is_near_a_name_that_shares_nothing() -> None:
    assert CATALOGUE.nearest("zzz") == ()
    assert CATALOGUE.nearest("") == ()
    assert isinstance(CATALOGUE.nearest("-" * 100_000), tuple)


@each_row(
    ("change", "problem"),
    [
        ({"verified": "perhaps"}, "line 1: Expected `bool`, got `str` - at `$.verified`"),
        ({"source": None}, "line 1: Expected `str`, got `null` - at `$.source`"),
        ({"hf_id": "meta-llama/Llama-3.1-8B"}, "has a name of"),
    ],
)
def test_a_bad_row_is_named(change: dict[str, object], problem: str) -> None:
    first, rest = TEXT.split("\n", 1)
    with pytest.raises(ValueError, match=r"llms\.jsonl line") as error:
        parse_llms(json.dumps(json.loads(first) | change) + "\n" + rest)
    assert problem in str(error.value)


def test_a_line_that_is_no_row_is_named() -> None:
    with pytest.raises(ValueError, match=r"llms\.jsonl line 2: .*malformed|llms\.jsonl line 2: .*truncated"):
        parse_llms(TEXT.split("\n", 1)[0] + "\n{")
