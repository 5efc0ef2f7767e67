"""Pictures of the sizing: exact rows at every size, honest marks, and words that say what is drawn.

GPUMON_UPDATE_SNAPSHOTS=1 rewrites the files: read the difference.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.config.themes import load_theme
from gpumon.readings.format import cells
from gpumon.readings.missing import Missing, Reason
from gpumon.sizing.accuracy import Band
from gpumon.sizing.answer import GpuSlot, Limit, LimitKind, PlacedServer, Source
from gpumon.sizing.instance import resolve
from gpumon.sizing.latency import Curve
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Point
from gpumon.sizing.scenario import Known, Scenario, Server, Workload
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.tui.line import Line, Row, Slot
from gpumon.tui.palette import TONES, Glyphs, Palette
from gpumon.tui.sizing.canvas import MARKS, Canvas
from gpumon.tui.sizing.packing_picture import letter
from gpumon.tui.sizing.pictures import KINDS, Kind, Shown, lines, stack
from gpumon.tui.sizing.plot_frame import Key, flowed
from gpumon.tui.sizing.plot_latency import NO_POINTS, CurvePicture, curve_picture
from gpumon.tui.terminal import Depth
from tests.records import replace
from tests.tui.picture_scenes import (
    CURVE,
    GUIDE_SHOWN,
    LINE,
    POINTS,
    SCENARIO,
    TP_SHOWN,
    answer_of,
    grouped,
    packed_of,
    plan_of,
    single,
)

FOLDER = Path(__file__).parent / "picture_snapshots"
UPDATE = bool(os.environ.get("GPUMON_UPDATE_SNAPSHOTS"))
ALL_GLYPHS: tuple[Glyphs, ...] = ("braille", "blocks", "ascii")
SIZES = ((34, 4), (46, 8), (60, 12), (80, 20))
WHATS = [what for what, _ in KINDS]
SHOWN = {
    "tp": TP_SHOWN,
    "guide_memory": GUIDE_SHOWN,
    "guide_busy": GUIDE_SHOWN._replace(packing="busy"),
}


def text(rows: list[Row]) -> str:
    return "\n".join("".join(piece for piece, _ in row) for row in rows) + "\n"


def drawn(what: Kind, shown: Shown, width: int = 46, height: int = 8, glyphs: Glyphs = "braille") -> str:
    return text(lines(width, height, what, shown, glyphs))


def tones_at(rows: list[Row], glyph: str) -> set[str]:
    return {tone for row in rows for piece, tone in row if glyph in piece}


def with_curve(**changes: object) -> Shown:
    return TP_SHOWN._replace(curve=replace(CURVE, **changes))


@pytest.mark.parametrize("glyphs", ALL_GLYPHS)
@pytest.mark.parametrize("what", [*WHATS, "stack"])
def test_each_picture_looks_as_it_did(what: Kind, glyphs: Glyphs) -> None:
    parts = []
    for name, shown in SHOWN.items() if what == "packing" else [("tp", TP_SHOWN)]:
        for width, height in ((46, 30), (80, 50)) if what == "stack" else SIZES:
            rows = stack(width, height, shown, glyphs) if what == "stack" else lines(width, height, what, shown, glyphs)
            parts.append(f"# {name} {width}x{height}\n{text(rows)}")
    file, found = FOLDER / f"{what}_{glyphs}.txt", "\n".join(line.rstrip() for line in "\n".join(parts).splitlines())
    if UPDATE:
        FOLDER.mkdir(exist_ok=True)
        file.write_text(found + "\n", encoding="utf-8")
    assert found + "\n" == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("glyphs", ALL_GLYPHS)
def test_what_is_beyond_the_measured_range_is_dashed_muted_and_said(glyphs: Glyphs) -> None:
    rows = lines(80, 20, "itl", TP_SHOWN, glyphs)
    said = text(rows)
    assert "extrapolated beyond 36" in said
    assert "planned 64: 71.5 ms, extrapolated" in said
    first, muted = Canvas(40, 4, 10.0, 10.0, glyphs), Canvas(40, 4, 10.0, 10.0, glyphs)
    first.curve(lambda x: x, lambda _: True, "accent")
    muted.curve(lambda x: x, lambda _: False, "accent")
    assert tones_at(list(first.rows()), "") == {"accent", "text"}
    assert tones_at(list(muted.rows()), "") == {"muted", "text"}
    assert sum(map(len, text(list(muted.rows())).split())) < sum(map(len, text(list(first.rows())).split()))


def test_a_roofline_through_one_point_is_no_fitted_line() -> None:
    said = drawn("itl", with_curve(points=POINTS[-1:], low=36.0, high=36.0, anchored=True), 80, 20)
    assert "roofline scaled to what was measured -2..+6%" in said
    assert "1 point measured" in said
    assert "fitted line" not in said


def test_within_the_range_nothing_is_extrapolated() -> None:
    assert "extrapolated" not in drawn("itl", with_curve(planned_running=30.0, limits=()), 80, 20)


def test_what_was_measured_nowhere_says_so() -> None:
    shown = with_curve(points=(), low=0.0, high=0.0, source=Source.ROOFLINE, band=Band(-0.15, 0.38, 215))
    assert "roofline -15..+38%, not measured" in drawn("itl", shown, 80, 20)
    assert "64: 71.5 ms not measured" in drawn("itl", shown, 34, 4)


def test_the_goal_is_said_as_it_was_asked_for_and_as_a_mean() -> None:
    assert "goal 100 ms p95 is 89.6 ms mean" in drawn("itl", TP_SHOWN, 80, 20)
    assert " goal " in drawn("itl", TP_SHOWN, 34, 4).splitlines()[1]


def test_a_goal_far_above_is_said_and_does_not_press_the_curve_flat() -> None:
    said = drawn("itl", with_curve(goal_s=20.0, goal_p95_s=None), 80, 20)
    assert "goal 20 s, above the scale" in said
    assert "100┤" in said


def test_a_goal_below_the_curve_is_drawn() -> None:
    rows = lines(46, 12, "itl", with_curve(goal_s=0.005, goal_p95_s=None), "braille")
    assert " goal ┄" in text(rows[7:8])
    assert "above" not in text(rows)


def test_a_limit_far_to_the_right_is_only_said() -> None:
    far = (Limit(LimitKind.KV, 5000.0, "much"),)
    said = drawn("itl", with_curve(limits=far), 80, 20)
    assert "KV limit 5.0k, far right" in said
    assert "┊" not in said


def test_without_a_curve_points_are_drawn_and_the_reason_is_said() -> None:
    shown = with_curve(curve=None, reason="", points=POINTS[:2])
    said = drawn("itl", shown, 80, 12)
    assert said.count("●") == 3
    assert "planned 64: not known" in said
    assert f"no line: {NO_POINTS}" in said


@pytest.mark.parametrize("what", ["itl", "throughput"])
def test_without_anything_the_reason_stands_alone(what: Kind) -> None:
    assert NO_POINTS in drawn(what, with_curve(curve=None, points=()))
    assert "engine gone" in drawn(what, with_curve(curve=None, points=(), reason="engine gone"))


def test_points_with_tokens_but_no_itl_are_in_the_throughput() -> None:
    shown = with_curve(points=(Point(4.0, tokens_per_s=200.0), Point(8.0, itl_s=0.02)), curve=None)
    assert "2 points measured" in drawn("throughput", shown, 80, 12)
    assert "1 point measured" in drawn("itl", shown, 80, 12)


def test_the_staircase_has_target_need_and_what_is_here() -> None:
    said = drawn("instances", TP_SHOWN, 60, 12)
    assert "target 512: 8 needed" in said
    assert "2 here now, carry 136" in said
    assert "68 each" in said
    rows = lines(60, 12, "instances", TP_SHOWN, "braille")
    assert sum(text([row]).count("◆") for row in rows) == 2


def test_a_rate_that_needs_more_than_the_steps_is_said() -> None:
    shown = TP_SHOWN._replace(answer=answer_of((plan_of("A", 12.0),), packed_of((single((0,)),))))
    assert "above the steps" in drawn("instances", shown)


def test_no_capacity_gives_the_reason_and_no_stairs() -> None:
    without = Missing(Reason.NOT_EXPOSED)
    answer = answer_of((replace(plan_of("A", without, each=without), problem="no GPU holds it"),), packed_of(()))
    assert "no GPU holds it" in drawn("instances", TP_SHOWN._replace(answer=answer))


def test_the_guide_is_packed_as_its_authors_did() -> None:
    said = drawn("packing", GUIDE_SHOWN)
    assert "GPUs shared by memory alone: 4x H100 SXM 80GB" in said
    assert "2 servers · 8 GPUs · optimal" in said
    assert "2 x │AAB│AAB│AAB│AAB│" in said
    assert "A NeMo GPT 5B x 16  B NeMo GPT 20B x 8" in said
    busy = drawn("packing", GUIDE_SHOWN._replace(packing="busy"))
    assert "4 x │A│A│A│A│" in busy
    assert "2 x │B│B│B│B│" in busy


def test_instances_over_several_gpus_are_joined_and_the_gap_is_said() -> None:
    said = drawn("packing", TP_SHOWN, 60, 12)
    assert "2 x │C─C─C─C─C─C─C─C│" in said
    assert "2 x │A─A│A─A│A─A│A─A│" in said
    assert "at most 2 servers too many" in said
    assert "A─A one instance on several GPUs" in said
    assert "· 1 GPU free" in said
    assert "+ 1 spare server" in said


def test_hundreds_of_servers_are_one_line_each_kind() -> None:
    layout = (grouped(((0, 2),) * 4),) * 400 + (grouped(((1, 8),)),) * 30
    shown = Shown(SCENARIO, answer_of((plan_of("A"), plan_of("B")), packed_of(layout)))
    said = drawn("packing", shown)
    assert "400 x │A─A│A─A│A─A│A─A│" in said
    assert " 30 x │B─B─B─B─B─B─B─B│" in said


def test_more_kinds_than_lines_are_counted() -> None:
    layout = tuple(single(*[(0,)] * number, *[()] * (8 - number)) for number in range(1, 9))
    said = drawn("packing", Shown(SCENARIO, answer_of((plan_of("A"),), packed_of(layout))), 46, 7)
    assert "+ 5 more (5 kinds)" in said


def test_the_order_of_gpus_in_a_server_makes_no_other_kind() -> None:
    layout = (single((0,), (1,)), single((1,), (0,)))
    assert "2 x │A│B│" in drawn("packing", Shown(SCENARIO, answer_of((plan_of("A"), plan_of("B")), packed_of(layout))))


def test_a_rack_of_72_gpus_is_counted_where_it_is_too_long() -> None:
    layout = (grouped(((0, 8),) * 9, gpus=72), grouped(((1, 72),), gpus=72))
    said = drawn("packing", Shown(SCENARIO, answer_of((plan_of("A"), plan_of("B")), packed_of(layout))), 46, 12)
    assert "A─A─A─A─A─A─A─A x 9" in said
    assert "B─72 GPUs─B" in said


def test_two_shapes_of_server_are_named() -> None:
    layout = (single(*[(0,)] * 8), PlacedServer(1, (GpuSlot((0,)),) * 4))
    said = drawn("packing", Shown(SCENARIO, answer_of((plan_of("A"),), packed_of(layout))), 60, 12)
    assert "│A│A│A│A│A│A│A│A│ H100 SXM 80GB" in said
    assert "│A│A│A│A│ L40S 48GB" in said


def test_gpus_that_something_else_holds_are_taken_where_most_is_free() -> None:
    layout = (single(*[(0,)] * 8), single(*[(0,)] * 5, (), (), ()))
    answer = answer_of((plan_of("A"),), packed_of(layout))

    def held(*numbers: int, height: int = 12) -> str:
        shown = Shown(SCENARIO, answer, held={SCENARIO.server[0].gpu: numbers, "B200 SXM 180GB": (3,)})
        return drawn("packing", shown, 60, height)

    assert "│A│A│A│A│A│×│×│·│" in held(2)
    assert "│A│A│A│A│A│A│A│A│" in held(2)
    assert "× 2 GPUs held by something else" in held(2)
    assert "· 1 GPU free" in held(2)
    assert "│A│A│A│A│A│×│×│×│" in held(1, 3, 4)
    assert "× 4 GPUs held by something else, the plan needs 1" in held(1, 3, 4)
    assert "free" not in held(1, 3, 4)
    assert held(0, 0) == held() == drawn("packing", Shown(SCENARIO, answer), 60, 12)


def test_where_no_cross_is_drawn_the_legend_has_none() -> None:
    answer = answer_of((plan_of("A"),), packed_of((single(*[(0,)] * 8),)))
    said = drawn("packing", Shown(SCENARIO, answer, held={SCENARIO.server[0].gpu: (1,)}), 60, 12)
    assert "×" not in said.replace("A × ", "")
    assert "1 GPU held by something else, the plan needs 1" in said


@pytest.mark.parametrize("what", WHATS)
def test_a_picture_names_fields_as_the_panel_does(what: Kind) -> None:
    none = Missing(Reason.NOT_EXPOSED)
    failed = replace(plan_of("A"), problem="needs prompt_tokens", instances=none, capacity_per_instance=none)
    said = drawn(what, Shown(SCENARIO, answer_of((failed,), packed_of((single((0,)),)))), 60, 12)
    assert "needs prompt (ISL)" in said


def test_what_has_no_place_is_named() -> None:
    packed = packed_of((single((0,)),), problem="no place for 3 instances of NeMo 20B: 2 servers at most")
    without = Missing(Reason.NOT_EXPOSED)
    plans = (plan_of("A"), replace(plan_of("Huge", without), problem="no GPU holds 900 GB"))
    said = drawn("packing", Shown(SCENARIO, answer_of(plans, packed)), 60, 12)
    assert "not placed: no place for 3 instances of NeMo 20B" in said
    assert "Huge: no GPU holds 900 GB" in said
    assert "optimal" not in said


def test_many_instances_on_a_gpu_are_counted() -> None:
    layout = (single((0,) * 9 + (1,) * 3),)
    assert "│A9B3│" in drawn("packing", Shown(SCENARIO, answer_of((plan_of("A"), plan_of("B")), packed_of(layout))))


def test_letters_differ_for_fifty_workloads() -> None:
    assert len({letter(at) for at in range(52)}) == 52


def test_a_legend_counts_what_it_leaves_out() -> None:
    keys = [Key("x", "text", f"a rather long entry {at}", f"entry {at}") for at in range(5)]
    assert text(flowed(keys, 30, 2)) == f"{'x entry 0  x entry 1':30}\n{'x entry 2  x entry 3  +1':30}\n"
    assert flowed(keys, 30, 0) == []


def test_a_stack_takes_as_many_as_fit() -> None:
    titles = ("ITL in ms", "servers", "instances over", "tokens/s over")
    for height, number in ((8, 1), (15, 2), (24, 3), (40, 4), (80, 4)):
        said = text(stack(60, height, TP_SHOWN, "braille"))
        assert [title in said for title in titles] == [at < number for at in range(4)]
    assert text(stack(60, 8, TP_SHOWN, "braille", "throughput")).startswith("tokens/s over")


@pytest.mark.parametrize("glyphs", ALL_GLYPHS)
def test_marks_are_ascii_where_that_is_wanted_and_the_screen_shows_each(glyphs: Glyphs) -> None:
    assert all(piece.isascii() for piece in MARKS["ascii"])
    palette = Palette(load_theme("default"), Depth.TRUE, ascii=glyphs == "ascii", glyphs=glyphs)
    for row in stack(80, 50, TP_SHOWN, glyphs):
        line = Line(row, 80, palette, Slot())
        assert "?" not in line.characters
        assert glyphs != "ascii" or line.characters.isascii()


def test_an_answer_of_the_real_formulas_is_drawn() -> None:
    known = Known(gpu_catalogue(), llm_catalogue())
    scenario = Scenario(
        itl_p95_ms=40.0,
        server=(Server("H100 SXM5 80GB"),),
        workload=(Workload("meta-llama/Llama-3.1-8B-Instruct", 512.0, prompt_tokens=1000.0, answer_tokens=500.0),),
    )
    answer = plan(scenario, known)
    assert not answer.problem
    picture = curve_picture(resolve(scenario.workload[0], scenario, known), answer.workloads[0])
    said = text(stack(60, 50, Shown(scenario, answer, 0, picture, 0), "braille"))
    assert "roofline -15..+38%, not measured" in said
    assert "goal 40 ms" in said
    assert "│A│A" in said
    assert said.count("◆") == 6


HOSTILE = st.sampled_from([0.0, 1.0, 1e9, 1e14, 1e300, 5e-324, math.inf, math.nan, -1.0])
NUMBERS = st.one_of(st.floats(0.0, 1e4), HOSTILE)
BANDS = st.builds(Band, st.floats(-1.0, 0.0), st.floats(0.0, 100.0), st.integers(0, 10**6))
READINGS = st.one_of(NUMBERS, st.just(Missing(Reason.FEW)))
NAMES = st.one_of(
    st.sampled_from(["", "模型一二三四五六七八九十", "x\x1b[31m\nred", "a" * 300, "e\u0301" * 9]), st.text()
)
CURVES = st.one_of(
    st.none(),
    st.builds(Curve, st.floats(1e-9, 1e6), st.floats(0.0, 1e6)),
    st.builds(Curve, st.floats(1e-9, 1e6), st.floats(0.0, 1e6), st.floats(0.0, 1.0), st.just(128), st.just(8)),
)
PICTURES = st.builds(
    CurvePicture,
    NAMES,
    points=st.lists(st.builds(Point, NUMBERS, st.none() | NUMBERS, tokens_per_s=st.none() | NUMBERS), max_size=5).map(
        tuple
    ),
    curve=CURVES,
    low=NUMBERS,
    high=NUMBERS,
    goal_s=st.none() | NUMBERS,
    goal_p95_s=st.none() | NUMBERS,
    planned_running=st.none() | NUMBERS,
    limits=st.lists(st.builds(Limit, st.sampled_from(LimitKind), NUMBERS, NAMES), max_size=3).map(tuple),
    source=st.sampled_from(Source),
    band=BANDS,
    reason=NAMES,
)
PLANS = st.builds(
    lambda name, instances, target, each, problem, spares: replace(
        plan_of(name, instances, 1.0, each), concurrency=target, problem=problem, spares=spares
    ),
    NAMES,
    READINGS,
    READINGS,
    READINGS,
    NAMES,
    st.integers(0, 3),
)
SLOTS = st.builds(GpuSlot, st.lists(st.integers(0, 4), max_size=9).map(tuple), group=st.integers(-1, 3))
SERVERS = st.builds(PlacedServer, st.integers(0, 3), st.lists(SLOTS, max_size=20).map(tuple))
PACKED = st.builds(
    lambda layout, servers, least, problem: replace(
        packed_of(tuple(layout)), servers=servers, servers_least=least, gpus=servers, problem=problem
    ),
    st.lists(SERVERS, max_size=8),
    READINGS,
    READINGS,
    NAMES,
)
ANY = st.builds(
    lambda plans, busy, memory, curve, here, chosen: Shown(
        SCENARIO, answer_of(tuple(plans), busy, memory), chosen, curve, here
    ),
    st.lists(PLANS, max_size=4),
    PACKED,
    PACKED,
    st.none() | PICTURES,
    st.none() | st.integers(0, 10**9),
    st.integers(0, 4),
)


@settings(max_examples=120, deadline=None)
@given(ANY, st.integers(0, 84), st.integers(0, 22), st.sampled_from(WHATS), st.sampled_from(ALL_GLYPHS))
def test_every_row_is_exact_whatever_is_asked(
    shown: Shown, width: int, height: int, what: Kind, glyphs: Glyphs
) -> None:
    for rows in (lines(width, height, what, shown, glyphs), stack(width, height * 3, shown, glyphs, what)):
        assert {sum(cells(piece) for piece, _ in row) for row in rows} <= {width}
        assert {tone for row in rows for _, tone in row} <= set(TONES)
        assert not any(ord(character) < 32 for row in rows for piece, _ in row for character in piece)
    assert len(lines(width, height, what, shown, glyphs)) == height
    assert len(stack(width, height * 3, shown, glyphs, what)) == height * 3


@settings(max_examples=150, deadline=None)
@given(
    PICTURES.filter(lambda picture: picture.curve is not None),
    st.floats(0.0, 1e9),
    st.integers(34, 80),
    st.integers(4, 20),
    st.sampled_from(["itl", "throughput"]),
    st.sampled_from(ALL_GLYPHS),
)
def test_the_planned_point_is_in_the_frame(
    picture: CurvePicture, planned: float, width: int, height: int, what: Kind, glyphs: Glyphs
) -> None:
    shown = TP_SHOWN._replace(curve=replace(picture, name="A", planned_running=planned))
    rows = lines(width, height, what, shown, glyphs)
    side = {MARKS[glyphs].side, MARKS[glyphs].tick}
    framed = [row for row in rows[1:] if row[0][1] == "muted" and row[0][0][-1] in side]
    assert sum(tone == "focus" and piece == MARKS[glyphs].plan for row in framed for piece, tone in row) == 1


def test_words_stand_on_the_goal_but_not_on_other_marks() -> None:
    canvas = Canvas(12, 1, 12.0, 1.0, "ascii")
    canvas.down(4.0, ":", "critical")
    canvas.across(0.0, ".", "warn")
    canvas.beside(6.0, "KV", "critical")
    canvas.along(0.0, "goal", "warn")
    assert text(list(canvas.rows())) == "....:goal...\n"


def test_a_curve_keeps_its_height() -> None:
    canvas = Canvas(10, 5, 10.0, 100.0, "ascii")
    canvas.curve(LINE.itl_s, lambda _: True, "accent")
    assert text(list(canvas.rows())).splitlines()[:4] == [" " * 10] * 4
    assert [canvas.line(y) for y in (0.0, 19.9, 20.0, 99.0, 100.0, 1e9)] == [4, 4, 3, 0, 0, 0]
    assert [canvas.column(x) for x in (0.0, 0.99, 1.0, 9.99, 10.0)] == [0, 0, 1, 9, 9]
