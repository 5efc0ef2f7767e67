"""The map and the roofline in every size, with figures of any kind: nothing leaves the pane, and nothing fails."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.readings.format import cells
from gpumon.readings.missing import Missing, Reason
from gpumon.sizing.doubled_batch import DoubledBatch
from gpumon.triage.thresholds import Thresholds
from gpumon.tui.activity_map import bounds_of, map_rows
from gpumon.tui.line import Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.roofline import roofline_rows
from tests.records import replace
from tests.tui import scenes

UNKNOWN = Missing(Reason.UNKNOWN_MODEL)
BASE = scenes.snapshot(70, 6)
SHARES = st.one_of(st.sampled_from([0.0, 1e-12, 1.0, 1e6, UNKNOWN]), st.floats(0.0, 3.0))
SIZES = st.tuples(st.integers(50, 240), st.integers(9, 70))
GLYPHS = st.sampled_from(["braille", "blocks", "ascii"])
PEAKS = st.sampled_from([989e12, 1e9, 4e15, UNKNOWN])


def check(rows: list[Row], size: tuple[int, int]) -> None:
    width, height = size
    assert 0 < len(rows) <= height
    assert all(sum(cells(text) for text, _ in row) <= width for row in rows)


@settings(max_examples=60, deadline=None)
@given(size=SIZES, glyphs=GLYPHS, figures=st.lists(st.tuples(SHARES, SHARES, SHARES, PEAKS), min_size=1, max_size=6))
def test_a_roofline_fits(
    size: tuple[int, int], glyphs: Glyphs, figures: list[tuple[float, float, float, float]]
) -> None:
    engines = [
        replace(engine, mfu_ratio=mfu, mbu_ratio=mbu, mfu_decode_ratio=decode, peak_flops_per_s=peak)
        for engine, (mfu, mbu, decode, peak) in zip(BASE.engines, figures, strict=False)
    ]
    doubled = DoubledBatch(sequences=48.0, tokens_ratio=1.4, mfu_ratio=0.9, mbu_ratio=0.7, kv_room=1.2)
    check(roofline_rows(engines, None, BASE.wall_s, size, glyphs, engines[-1].key, lambda _: doubled), size)


@settings(max_examples=60, deadline=None)
@given(
    size=SIZES,
    glyphs=GLYPHS,
    figures=st.lists(st.tuples(SHARES, SHARES, SHARES, st.floats(0.0, 5e12)), min_size=1, max_size=70),
)
def test_a_map_fits(size: tuple[int, int], glyphs: Glyphs, figures: list[tuple[float, float, float, float]]) -> None:
    gpus = tuple(
        replace(gpu, tensor_active_ratio=tensor, sm_active_ratio=sm, busy_ratio=busy, bandwidth_bytes_per_s=traffic)
        for gpu, (tensor, sm, busy, traffic) in zip(BASE.gpus, figures, strict=False)
    )
    snapshot = replace(BASE, gpus=gpus)
    check(map_rows(snapshot, None, bounds_of(Thresholds()), gpus[-1].reading.uuid, size, glyphs), size)
