"""The size that dimensions tell: every LLM whose parameters are published is inside it, an impossible one is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpumon.config.errors import ConfigError
from gpumon.config.load import load
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.dimensions import UsedParameters, used_parameters
from gpumon.specs.llm import LlmSpec
from gpumon.specs.llm_config import llm_from_config
from gpumon.specs.llms import LlmRow
from tests.each_row import each_row

CONFIGS = json.loads((Path(__file__).parents[1] / "data" / "model_configs.json").read_text("utf-8"))
DENSE_6B = 'match = "x"\nlayers = 32\nhidden = 4096\nheads = 32\n'


def usable_rows() -> list[LlmRow]:
    return [row for row in llm_catalogue().rows if not row.unusable]


def size_of(spec: LlmSpec, layers: int) -> UsedParameters:
    return used_parameters(layers, spec.hidden, spec.heads, spec.kv_heads, spec.head_dim, spec.vocab)


def test_every_row_of_the_catalogue_has_the_size_of_its_dimensions() -> None:
    for row in usable_rows():
        found = size_of(row.spec, row.spec.layers)
        assert found.least <= row.spec.matmul_params <= found.most, row.name
        assert row.spec.matmul_params <= row.spec.params * 1.001, row.name


@each_row("name", CONFIGS)
def test_a_config_is_read_to_the_size_of_its_dimensions(name: str) -> None:
    spec = llm_from_config(CONFIGS[name], name, "test")
    found = size_of(spec, spec.layers)
    assert found.least <= spec.matmul_params <= found.most


def test_the_widest_of_the_catalogue_are_well_inside() -> None:
    """A bound that hardly one model meets would refuse the next one; one far from all of them would refuse nothing."""
    shares = [row.spec.matmul_params / size_of(row.spec, row.spec.layers).typical for row in usable_rows()]
    assert 0.5 < min(shares) < 0.7
    assert 3.0 < max(shares) < 4.0


def refused(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.toml"
    path.write_text(f"[[model]]\n{text}")
    with pytest.raises(ConfigError) as caught:
        load(str(path), {})
    return str(caught.value).removeprefix(f"{path}:")


def test_a_model_ten_times_as_large_as_its_layers_is_refused_with_both_figures(tmp_path: Path) -> None:
    assert refused(tmp_path, f"{DENSE_6B}params_b = 80\n") == (
        "6: model[0].params_b = 80: is not the size of 32 layers with hidden = 4096 and heads = 32: these have about "
        "6.4, from 1.3 to 35: correct the figure that is wrong (of a mixture of experts give active_params_b, too)"
    )
    assert "params_b = 0.7: is not the size of 32 layers" in refused(tmp_path, f"{DENSE_6B}params_b = 0.7\n")
    told = refused(tmp_path, f"{DENSE_6B}params_b = 235\nactive_params_b = 220\nexperts = 8\nexperts_per_token = 7\n")
    assert told.startswith("7: model[0].active_params_b = 220: is not the size of 32 layers")
    assert told.endswith("correct the figure that is wrong")


def test_every_known_model_may_be_described(tmp_path: Path) -> None:
    """Also without the vocabulary, which may be left out."""
    for row in usable_rows():
        check_description(row, tmp_path)


def check_description(row: LlmRow, tmp_path: Path) -> None:
    spec = row.spec
    path = tmp_path / "config.toml"
    lines = (
        f"[[model]]\nmatch = 'x'\nparams_b = {spec.params / 1e9}\nactive_params_b = {spec.matmul_params / 1e9}\n"
        f"layers = {row.spec.layers}\nhidden = {spec.hidden}\nheads = {spec.heads}\nhead_dim = {spec.head_dim}\n"
    )
    path.write_text(lines)
    (model,) = load(str(path), {}).config.model
    assert model.layers == row.spec.layers
