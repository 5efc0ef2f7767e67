"""How sure the peak of an engine's memory bandwidth is, told from where it comes from; what of a peak can be had."""

from __future__ import annotations

from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Gpu
from gpumon.tui.detail.blocks import DERIVED, ESTIMATED, Figure
from gpumon.tui.detail.engine import sections
from gpumon.tui.detail.gpu import sections as gpu_sections
from tests.each_row import each_row
from tests.records import replace
from tests.tui import detail_scenes, scenes


@each_row(
    ("source", "basis"),
    [
        ("sum over its GPUs: catalogue", ESTIMATED),
        ("sum over its GPUs: catalogue (unverified)", ESTIMATED),
        ("sum over its GPUs: config", ESTIMATED),
        ("sum over its GPUs: the driver's max memory clock x 2 x bus width / 8", DERIVED),
        ("the driver's max memory clock x 2 x bus width / 8; +7% from catalogue (3352 GB/s)", DERIVED),
    ],
)
def test_a_bandwidth_peak_of_the_catalogue_is_not_called_derived(source: str, basis: str) -> None:
    engine = replace(detail_scenes.full_engine(), sources={"peak_bandwidth_bytes_per_s": source})
    found = sections(engine, scenes.SCENES["live"](), detail_scenes.VIEW)
    rows = [row for part in found for row in part.entries if isinstance(row, Figure) and row.name == "peak bandwidth"]
    assert [row.basis for row in rows] == [basis]


def test_the_share_of_the_peak_that_can_be_had_stands_on_the_gpus_page_where_somebody_measured_it() -> None:
    source = "products of large matrices in fp8: stas00/ml-engineering"
    gpu = replace(detail_scenes.full_gpu(), achievable_ratio=0.709, sources={"achievable_ratio": source})

    def achievable(shown: Gpu) -> list[Figure]:
        found = gpu_sections(shown, scenes.SCENES["live"](), detail_scenes.VIEW, None)
        return [row for part in found for row in part.entries if isinstance(row, Figure) and row.name == "achievable"]

    (row,) = achievable(gpu)
    assert (row.number, row.basis, row.source) == ("70.90", ESTIMATED, source)
    assert achievable(replace(gpu, achievable_ratio=Missing(Reason.UNKNOWN_GPU))) == []
