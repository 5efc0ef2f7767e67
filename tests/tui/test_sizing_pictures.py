"""Pictures of the sizing: exact rows at every size, honest marks, and words that name what is drawn.

GPUMON_UPDATE_SNAPSHOTS=1 rewrites the files: read the difference.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.config.keymap import Keymap
from gpumon.readings.format import cells
from gpumon.readings.missing import Missing, Reason
from gpumon.sizing.accuracy import Band, band_of
from gpumon.sizing.answer import Answer, GpuSlot, Limit, LimitKind, PlacedServer, Source, WorkloadPlan
from gpumon.sizing.instance import Instance
from gpumon.sizing.latency import Curve
from gpumon.sizing.profile import Point
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue, network_catalogue
from gpumon.tui.line import Row
from gpumon.tui.palette import TONES, Glyphs
from gpumon.tui.sizing.canvas import COLUMN_SPACING, LINE_SPACING, Axis, Canvas, Scale, Spacing
from gpumon.tui.sizing.layout import panel_page
from gpumon.tui.sizing.placement import letter, placement_rows
from gpumon.tui.sizing.plot import NO_POINTS, latency_chart
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.sizing.table import Scene
from tests.each_row import each_row
from tests.tui.picture_scenes import (
    GUIDE,
    GUIDE_SCENARIO,
    INSTANCE,
    POINTS,
    SCENARIO,
    SPARE,
    TP,
    answer_of,
    fitted_to,
    grouped,
    measured,
    packed_of,
    plan_of,
    single,
)

FOLDER = Path(__file__).parent / "picture_snapshots"
UPDATE = bool(os.environ.get("GPUMON_UPDATE_SNAPSHOTS"))
ALL_GLYPHS: tuple[Glyphs, ...] = ("braille", "blocks", "ascii")
SIZES = ((34, 4), (46, 8), (80, 20))
PLAN = TP.workloads[0]
Drawn = Callable[[int, int, Glyphs], list[Row]]
DRAWN: dict[str, Drawn] = {
    "itl": lambda width, height, glyphs: latency_chart(width, height, INSTANCE, PLAN, glyphs),
    "packing": lambda width, height, glyphs: placement_rows(width, height, TP, SPARE, glyphs),
    "guide_memory": lambda width, height, glyphs: placement_rows(width, height, GUIDE, GUIDE_SCENARIO, glyphs),
}


def text(rows: list[Row]) -> str:
    return "\n".join("".join(piece for piece, _ in row) for row in rows) + "\n"


def itl_of(instance: Instance = INSTANCE, plan: WorkloadPlan = PLAN, width: int = 80, height: int = 20) -> str:
    return text(latency_chart(width, height, instance, plan, "braille"))


def placed(answer: Answer, width: int = 60, height: int = 12, scenario: Scenario = SCENARIO) -> str:
    return text(placement_rows(width, height, answer, scenario, "braille"))


@each_row("glyphs", ALL_GLYPHS)
def test_each_picture_looks_as_it_did(glyphs: Glyphs) -> None:
    parts = [
        f"# {name} {width}x{height}\n{text(draw(width, height, glyphs))}"
        for name, draw in DRAWN.items()
        for width, height in SIZES
    ]
    found = "\n".join(line.rstrip() for line in "\n".join(parts).splitlines()) + "\n"
    file = FOLDER / f"{glyphs}.txt"
    if UPDATE:
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text(encoding="utf-8")


@each_row("glyphs", ALL_GLYPHS)
def test_what_is_beyond_the_measured_range_is_dashed_muted_and_named(glyphs: Glyphs) -> None:
    drawn = text(latency_chart(80, 20, INSTANCE, PLAN, glyphs))
    assert "extrapolated beyond 36" in drawn
    assert "planned 64: 71.5 ms extrapolated" in drawn
    first, muted = Canvas(40, 4, 10.0, 10.0, glyphs), Canvas(40, 4, 10.0, 10.0, glyphs)
    first.draw_curve(lambda x: x, lambda _: True, "accent")
    muted.draw_curve(lambda x: x, lambda _: False, "accent")
    assert {tone for row in first.rows() for _, tone in row} == {"accent", "text"}
    assert {tone for row in muted.rows() for _, tone in row} == {"muted", "text"}
    assert sum(map(len, text(list(muted.rows())).split())) < sum(map(len, text(list(first.rows())).split()))


@given(st.floats(10.0, 1e6), st.integers(1, 120), st.sampled_from([LINE_SPACING, COLUMN_SPACING]))
def test_ticks_are_even_round_and_reach_the_largest_value(most: float, size: int, spacing: Spacing) -> None:
    axis = Axis.of(Scale(most), size, spacing)
    places = [cell for cell, _ in axis.ticks()]
    assert {after - before for before, after in pairwise(places)} <= {axis.cells_a_step}
    assert places[0] == 0
    assert places[-1] < size
    assert axis.end >= most * (1.0 - 1e-6)
    canvas = Canvas(size, size, axis.most, axis.most, "braille")
    assert [canvas.column_of(axis.step * number) for number in range(len(places))] == places
    assert len({text for _, text in axis.ticks()}) == len(places)


@pytest.mark.parametrize("tone", ["measured", "extrapolated"])
@given(slope=st.floats(0.1, 8.0))
def test_a_curve_has_no_gap(tone: str, slope: float) -> None:
    canvas = Canvas(40, 10, 10.0, 10.0, "braille")
    canvas.draw_curve(lambda x: x * slope, lambda _: tone == "measured", "accent")
    columns = [set[int]() for _ in range(80)]
    for line, row in enumerate(canvas.rows()):
        for column, character in enumerate("".join(piece for piece, _ in row)):
            bits = ord(character) - 0x2800 if character != " " else 0
            for number, bit in enumerate((0x40, 0x04, 0x02, 0x01)):
                columns[2 * column] |= {4 * (9 - line) + number} if bits & bit else set()
            for number, bit in enumerate((0x80, 0x20, 0x10, 0x08)):
                columns[2 * column + 1] |= {4 * (9 - line) + number} if bits & bit else set()
    drawn = [heights for heights in columns if heights]
    assert columns[: len(drawn)] == drawn
    for before, after in pairwise(drawn):
        assert any(abs(one - other) <= 1 for one in before for other in after)


def test_a_curve_says_what_it_stands_on() -> None:
    anchored = INSTANCE._replace(seen=measured(POINTS[-1]), fitted=fitted_to(36.0, 36.0, anchored=True))
    drawn = itl_of(anchored)
    assert "scaled roofline -2..+6%" in drawn
    assert "1 measured" in drawn
    nothing = INSTANCE._replace(seen=None, fitted=None, source=Source.ROOFLINE, band=Band(-0.15, 0.38, 215))
    assert "roofline -15..+38%, not measured" in itl_of(nothing)
    both = INSTANCE._replace(fitted=fitted_to(8.0, 36.0))
    assert "extrapolated below 8 and beyond 36" in itl_of(both)
    within = replace(PLAN, running=30.0, limits=())
    assert "extrapolated" not in itl_of(plan=within)


def test_the_goal_is_named_as_it_was_asked_for_and_as_a_mean() -> None:
    assert "goal ITL p95 100 ms is 89.6 ms mean" in itl_of()
    far = INSTANCE._replace(workload=replace(INSTANCE.workload, itl_p95_ms=22_000.0))
    assert "above the scale" in itl_of(far)
    assert "80┤" in itl_of(far)


def test_a_goal_that_one_request_misses_is_named_and_not_drawn() -> None:
    """The curve at one request is above the goal: called the goal as a mean, 12 ms would have stood for 1 ms."""
    workload = replace(INSTANCE.workload, itl_p95_ms=None, tpot_p95_ms=1.0)
    missed = Limit(LimitKind.TPOT, 0.05, "TPOT p95 17.6 ms at 1, goal 1.0 ms")
    drawn = itl_of(INSTANCE._replace(workload=workload), replace(PLAN, limits=(missed, *PLAN.limits)))
    assert "goal TPOT p95 1 ms is missed even by one request alone" in drawn
    assert "ms mean" not in drawn


def test_without_a_curve_points_are_drawn_and_the_reason_is_named() -> None:
    two = INSTANCE._replace(seen=measured(*POINTS[:2]), curve=None, fitted=None)
    drawn = itl_of(two)
    assert drawn.count("●") == 3
    assert "planned 64: not known" in drawn
    assert f"no line: {NO_POINTS}" in drawn
    assert NO_POINTS in itl_of(two._replace(seen=None))
    assert "needs prompt (ISL)" in itl_of(two._replace(seen=None, problem="needs prompt_tokens"))


def test_the_guide_is_packed_as_its_authors_did() -> None:
    drawn = placed(GUIDE, 46, 8, GUIDE_SCENARIO)
    assert "GPUs shared by memory alone: 4x H100 SXM 80GB" in drawn
    assert "2 servers · 8 GPUs · optimal" in drawn
    assert "2 x │AAB│AAB│AAB│AAB│" in drawn
    assert "A NeMo GPT 5B x 16  B NeMo GPT 20B x 8" in drawn
    busy = placed(GUIDE, 46, 8, replace(GUIDE_SCENARIO, packing="busy"))
    assert "4 x │A│A│A│A│" in busy
    assert "2 x │B│B│B│B│" in busy


def test_instances_over_several_gpus_are_joined_and_the_gap_is_named() -> None:
    drawn = placed(TP, scenario=SPARE)
    assert "2 x │C─C─C─C─C─C─C─C│" in drawn
    assert "2 x │A─A│A─A│A─A│A─A│" in drawn
    assert "lower bound 4" in drawn
    assert "A─A one instance" in drawn
    assert "· 1 free" in drawn
    assert "+ 1 spare server" in drawn


def test_equal_servers_are_one_line_and_what_has_no_line_is_counted() -> None:
    two = (plan_of("A"), plan_of("B"))
    drawn = placed(answer_of(two, packed_of((grouped(((0, 2),) * 4),) * 400 + (grouped(((1, 8),)),) * 30)))
    assert "400 x │A─A│A─A│A─A│A─A│" in drawn
    assert " 30 x │B─B─B─B─B─B─B─B│" in drawn
    assert "2 x │A│B│" in placed(answer_of(two, packed_of((single((0,), (1,)), single((1,), (0,))))))
    kinds = tuple(single(*[(0,)] * number, *[()] * (8 - number)) for number in range(1, 9))
    assert "+ 5 more (5 kinds)" in placed(answer_of(two[:1], packed_of(kinds)), 46, 7)
    racks = packed_of((grouped(((0, 8),) * 9, gpus=72), grouped(((1, 72),), gpus=72)))
    drawn = placed(answer_of(two, racks), 46)
    assert "A─8 GPUs─A x 9" in drawn
    assert "B─72 GPUs─B" in drawn
    assert "│A9B3│" in placed(answer_of(two, packed_of((single((0,) * 9 + (1,) * 3),))))
    assert len({letter(at) for at in range(52)}) == 52


def test_what_is_on_no_gpu_is_named() -> None:
    packed = packed_of((single((0,)),), problem="no place for 3 instances of NeMo 20B: 2 servers at most")
    drawn = placed(answer_of((plan_of("A"),), packed))
    assert "not placed: no place for 3 instances of NeMo 20B" in drawn
    assert "optimal" not in drawn


def test_a_tall_panel_has_as_many_pictures_as_fit() -> None:
    known = Catalogues(gpu_catalogue(), llm_catalogue(), networks=network_catalogue())
    workload = Workload("meta-llama/Llama-3.1-8B-Instruct", 512.0, prompt_tokens=1000.0, answer_tokens=500.0)
    state = PanelState(known, Scenario(itl_p95_ms=40.0, server=(Server("H100 SXM5 80GB"),), workload=(workload,)))
    titles = ("ITL in ms", "optimal")
    counts = []
    for height in (24, 32, 40, 48, 80):
        lines = panel_page(
            Scene(
                state=state,
                focused=True,
                ages={},
                picture="itl",
                picture_first=False,
                glyphs="braille",
                keymap=Keymap(),
                width=60,
                height=height,
            )
        ).lines
        drawn = text([line.row for line in lines])
        there = [title in drawn for title in titles]
        assert there == sorted(there, reverse=True), height
        counts.append(sum(there))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 2)
    assert f"roofline {band_of('itl', 1, moe=False).short}, not measured" in drawn
    assert "goal 40 ms" in drawn
    assert "│A│A" in drawn


HOSTILE = st.sampled_from([0.0, 1.0, 1e9, 1e14, 1e300, 5e-324, math.inf, math.nan, -1.0])
NUMBERS = st.one_of(st.floats(0.0, 1e4), HOSTILE)
READINGS = st.one_of(NUMBERS, st.just(Missing(Reason.FEW)))
NAMES = st.one_of(
    st.sampled_from(["", "模型一二三四五六七八九十", "x\x1b[31m\nred", "a" * 300, "e\u0301" * 9]), st.text()
)
CURVES = st.one_of(
    st.builds(Curve, st.floats(1e-9, 1e6), st.floats(0.0, 1e6)),
    st.builds(Curve, st.floats(1e-9, 1e6), st.floats(0.0, 1e6), st.floats(0.0, 1.0), st.just(128), st.just(8)),
)
INSTANCES = st.builds(
    lambda points, curve, low, high, goal_ms, source, problem: INSTANCE._replace(
        workload=replace(INSTANCE.workload, itl_p95_ms=goal_ms),
        seen=measured(*points),
        curve=curve,
        fitted=fitted_to(low, high),
        source=source,
        problem=problem,
    ),
    st.lists(st.builds(Point, NUMBERS, st.none() | NUMBERS, tokens_per_s=st.none() | NUMBERS), max_size=5),
    st.none() | CURVES,
    NUMBERS,
    NUMBERS,
    st.none() | st.floats(1e-6, 1e9),
    st.sampled_from(Source),
    NAMES,
)
PLANS = st.builds(
    lambda name, instances, target, each, problem, spares, running, limits: replace(
        plan_of(name, instances, 1.0, each),
        concurrency=target,
        problem=problem,
        spares=spares,
        running=running,
        limits=tuple(limits),
    ),
    NAMES,
    READINGS,
    READINGS,
    READINGS,
    NAMES,
    st.integers(0, 3),
    READINGS,
    st.lists(st.builds(Limit, st.sampled_from(LimitKind), NUMBERS, NAMES), max_size=3),
)
SLOTS = st.builds(GpuSlot, st.lists(st.integers(0, 4), max_size=9).map(tuple), group=st.integers(-1, 3))
SERVERS = st.builds(PlacedServer, st.integers(0, 3), st.lists(SLOTS, max_size=20).map(tuple))
ANSWERS = st.builds(
    lambda plans, layout, servers, least, problem: answer_of(
        tuple(plans),
        replace(packed_of(tuple(layout)), servers=servers, servers_least=least, gpus=servers, problem=problem),
    ),
    st.lists(PLANS, max_size=4),
    st.lists(SERVERS, max_size=8),
    READINGS,
    READINGS,
    NAMES,
)


@given(
    INSTANCES, PLANS, ANSWERS, st.integers(0, 84), st.integers(0, 22),
    st.sampled_from(ALL_GLYPHS),
)  # fmt: skip
def test_every_row_is_exact_whatever_is_asked(
    instance: Instance, plan: WorkloadPlan, answer: Answer, width: int, height: int, glyphs: Glyphs
) -> None:
    for rows in (
        latency_chart(width, height, instance, plan, glyphs),
        placement_rows(width, height, answer, SCENARIO, glyphs),
    ):
        assert len(rows) <= height
        assert {sum(cells(piece) for piece, _ in row) for row in rows} <= {width}
        assert {tone for row in rows for _, tone in row} <= set(TONES)
        assert not any(ord(character) < 32 for row in rows for piece, _ in row for character in piece)
