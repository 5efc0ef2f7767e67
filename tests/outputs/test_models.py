"""The text of `gpumon models` in narrow terminals: every column of the list at 80, and nothing wider than asked for."""

from __future__ import annotations

from gpumon.outputs.models import ShownModel, list_models, not_found, show_model
from gpumon.readings.format import cells
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.llms import LlmRow

ROWS = llm_catalogue().rows


def test_the_list_has_its_columns_at_80() -> None:
    lines = list_models(ROWS, ["acme/*"], 80).splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "ACTIVE", "KV", "kB", "STORED", "KIND"]
    assert max(map(cells, lines)) <= 80
    assert all(line.startswith(row.name) for line, row in zip(lines[1:], ROWS, strict=False))
    assert list_models(ROWS, [], 160).splitlines()[0].endswith("NOTES")


def test_every_model_fits_into_80() -> None:
    for row in ROWS:
        check_width(row)


def check_width(row: LlmRow) -> None:
    looked = (("config", "no [[model]] entry matches"), ("files", "none in " + ", ".join(["/a/b/c"] * 20)))
    model = ShownModel(
        row.hf_id, row.spec if not row.unusable else None, row, "why\n[[model]]", looked, ("a", "b"), 4096.0
    )
    lines = show_model(model, 80).splitlines()
    assert max(map(cells, lines)) <= 80
    assert sum("looked at" in line for line in lines) == 1


def test_a_search_in_vain_without_anything_near() -> None:
    assert not_found(["a\x1bb"], [], 80) == "no model of the catalogue is named a\\x1bb\n"
