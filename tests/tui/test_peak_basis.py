"""How sure the peak of an engine's memory bandwidth is, told from where it comes from."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.tui.detail.blocks import DERIVED, ESTIMATED, Figure
from gpumon.tui.detail.engine import sections
from tests.tui import detail_scenes, scenes


@pytest.mark.parametrize(
    ("source", "basis"),
    [
        ("sum over its GPUs: catalogue", ESTIMATED),
        ("sum over its GPUs: catalogue (unverified)", ESTIMATED),
        ("sum over its GPUs: the driver's max memory clock x 2 x bus width / 8", DERIVED),
        ("the driver's max memory clock x 2 x bus width / 8; +7% from catalogue (3352 GB/s)", DERIVED),
    ],
)
def test_a_bandwidth_peak_of_the_catalogue_is_not_called_derived(source: str, basis: str) -> None:
    engine = replace(detail_scenes.full_engine(), sources={"peak_bandwidth_bytes_per_s": source})
    found = sections(engine, scenes.SCENES["live"](), detail_scenes.VIEW)
    rows = [row for part in found for row in part.entries if isinstance(row, Figure) and row.name == "peak B/s"]
    assert [row.basis for row in rows] == [basis]
