"""Curves keep to buckets of wall time, tell a gap from a zero, and draw only what is new."""

from __future__ import annotations

import math
import re
from datetime import datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpumon.readings.format import cells
from gpumon.readings.history import History
from gpumon.tui.charts.areas import Areas
from gpumon.tui.charts.axis import ago, clock
from gpumon.tui.charts.curves import CHARTS, MFU, SM, SPARKS, Figures, nice
from gpumon.tui.charts.plot import LABEL, Plot
from gpumon.tui.charts.raster import KEYS, RASTERS, area, level, spark
from gpumon.tui.charts.series import SPANS_S, WIDTHS_S, Grid, Series, grid
from gpumon.tui.charts.single import Single
from gpumon.tui.charts.sparks import Sparks
from gpumon.tui.charts.window import window
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Glyphs
from tests.tui import scenes

NAN = math.nan
ALL_GLYPHS: tuple[Glyphs, ...] = ("braille", "blocks", "ascii")


def text(row: Row) -> str:
    return "".join(piece for piece, _ in row)


def drawn(charts: Areas | Sparks | Single, history: History, now_s: float) -> list[Row]:
    return charts.rows(now_s, Figures(history))


def test_a_spark_tells_a_zero_from_a_gap() -> None:
    assert spark([0.0, 0.5, 1.0, NAN, 1.3]) == "▁▄█ █"


def test_an_area_fills_from_below() -> None:
    values = [0.25, 0.5, 1.0, NAN]
    assert [text(line) for line in area([(values, "mfu")], 2)] == [" ⡇", "⣼⡇"]
    assert [text(line) for line in area([(values, "mfu")], 2, "blocks")] == ["  █ ", "▄██ "]
    assert [text(line) for line in area([(values, "mfu")], 2, "ascii")] == ["  # ", ":## "]


@pytest.mark.parametrize("glyphs", ALL_GLYPHS)
def test_a_zero_has_a_baseline_and_a_gap_has_not(glyphs: Glyphs) -> None:
    live = RASTERS[glyphs].live
    (line,) = area([([0.0] * live + [NAN] * live, "mfu")], 1, glyphs)
    assert text(line)[0] != " "
    assert text(line)[1] == " "


def test_the_front_layer_covers_the_one_behind() -> None:
    (top, bottom) = area([([0.5, 0.5], "sm"), ([1.0, 1.0], "busy")], 2)
    assert top == [("⡫", "busy")]
    assert bottom == [("⣿", "sm")]


@pytest.mark.parametrize("glyphs", ALL_GLYPHS)
def test_two_layers_differ_without_colour(glyphs: Glyphs) -> None:
    live = RASTERS[glyphs].live
    lines = area([([0.25] * live, "sm"), ([1.0] * live, "busy")], 8, glyphs)
    (solid, light) = KEYS[glyphs]
    assert [text(line) for line in lines[6:]] == [solid, solid]
    assert [text(line) for line in lines[1:6]] == [light] * 5
    assert solid != light


@pytest.mark.parametrize("glyphs", ALL_GLYPHS)
def test_what_is_only_behind_is_seen_at_its_height(glyphs: Glyphs) -> None:
    """A GPU without a counter of active SMs has nothing but busy."""
    live = RASTERS[glyphs].live
    lines = area([([NAN] * live, "sm"), ([0.5] * live, "busy")], 4, glyphs)
    assert [bool(text(line).strip()) for line in lines] == [False, False, True, True]


@pytest.mark.parametrize("glyphs", ALL_GLYPHS)
def test_sm_above_busy_still_shows(glyphs: Glyphs) -> None:
    live = RASTERS[glyphs].live
    assert text(area([([1.0] * live, "sm"), ([0.25] * live, "busy")], 1, glyphs)[0]) == KEYS[glyphs][0]


@given(
    st.lists(st.one_of(st.floats(0, 1.5), st.just(NAN)), min_size=2, max_size=40).filter(lambda of: len(of) % 2 == 0),
    st.integers(1, 9),
    st.sampled_from(ALL_GLYPHS),
)
def test_an_area_has_its_size(values: list[float], height: int, glyphs: Glyphs) -> None:
    lines = area([(values, "sm"), ([value / 2 for value in values], "busy")], height, glyphs)
    assert len(lines) == height
    assert all(len(text(line)) == len(values) // RASTERS[glyphs].live for line in lines)


@given(st.floats(1e-9, 1e18))
def test_a_scale_is_round_and_high_enough(value: float) -> None:
    top = nice(value)
    assert value <= top <= value * 10.01
    assert f"{top:e}"[0] in "125"


@pytest.mark.parametrize("value", [0.0, -1.0, NAN, math.inf])
def test_a_scale_of_nothing(value: float) -> None:
    assert nice(value) == 1.0


def test_levels() -> None:
    assert [level(value, 8) for value in (NAN, 0.0, 0.01, 0.5, 1.0, 7.0, 1e308, math.inf)] == [0, 1, 1, 4, 8, 8, 8, 8]


@given(st.integers(1, 300), st.sampled_from(SPANS_S))
def test_the_columns_are_exactly_the_span_and_nearly_all_of_the_room(room: int, span_s: float) -> None:
    found = grid(room, span_s)
    assert found.columns <= room
    assert found.span_s == pytest.approx(span_s, abs=1e-6)
    assert found.column_s in WIDTHS_S or found.columns == 1
    if room >= 24 and found.column_s > WIDTHS_S[0]:
        assert found.columns >= 0.6 * room


@given(st.integers(20, 300), st.floats(60.0, 7200.0))
@example(100, 607.0)
@example(240, 450.5)
@example(44, 3605.0)
def test_a_span_that_nothing_divides_is_rounded_and_the_axis_tells_the_rounded_one(room: int, span_s: float) -> None:
    found = grid(room, span_s)
    assert 6 <= found.columns <= room
    assert found.column_s in WIDTHS_S
    assert abs(found.span_s - span_s) <= found.column_s / 2.0 + 1e-6
    assert sum(cells(piece) for piece, _ in ago(found)) == found.columns


@pytest.mark.parametrize(("total", "across", "down"), [(9, 1, 3), (11, 2, 4), (9, 2, 5), (1, 1, 1), (11, 4, 1)])
def test_the_window_holds_what_is_wanted_and_moves_no_more_than_it_must(total: int, across: int, down: int) -> None:
    first = 0
    for wanted in [*range(total), *range(total - 1, -1, -1)]:
        before = first
        first, end = window(total, across, down, first, wanted)
        assert first <= wanted < end <= total
        assert end - first <= across * down
        assert first % across == 0
        assert abs(first - before) <= across


@given(
    st.lists(st.tuples(st.floats(0.5, 25), st.floats(0, 1)), min_size=1, max_size=60),
    st.sampled_from([1, 2]),
    st.sampled_from([0.75, 1.5, 5.0, 30.0]),
)
def test_reading_only_what_is_new_gives_the_same_as_reading_all(
    steps: list[tuple[float, float]], live: int, width_s: float
) -> None:
    history = History()
    series = Series(history, "busy", 12, width_s, live)
    now_s = scenes.WALL_S
    for seconds, value in steps:
        now_s += seconds
        history.append(now_s, {"busy": value}, 0.1)
        newest = math.floor(now_s / (width_s * live)) * live + live - 1
        expected = history.buckets("busy", newest, 12, width_s)
        if newest * width_s > now_s:
            expected[-1] = expected[-2]
        got = series.values(newest, now_s)
        assert len(got) == 12
        assert got == pytest.approx(expected, nan_ok=True)


def test_a_clock_that_jumps_back_is_survived() -> None:
    history = History()
    series = Series(history, "busy", 12, 5.0, 1)
    history.append(1000.0, {"busy": 0.5})
    series.values(200, 1000.0)
    history.append(500.0, {"busy": 0.25})
    assert series.values(100, 500.0)[-1] == 0.25


@pytest.mark.parametrize("glyphs", ALL_GLYPHS)
def test_between_bucket_edges_only_the_newest_column_changes(glyphs: Glyphs) -> None:
    snapshot = scenes.snapshot()
    history = scenes.history(snapshot)
    charts = Areas(history, 120, 19, 300.0, glyphs=glyphs)
    left = 120 - 2 - charts.grid.columns
    column_s = charts.grid.column_s
    start_s = math.floor(snapshot.wall_s / column_s) * column_s + column_s
    history.append(start_s, scenes.points(snapshot))
    before = [text(row)[left:] for row in drawn(charts, history, start_s)]
    for second in range(1, int(column_s)):
        history.append(start_s + second, {key: value * 1.1 for key, value in scenes.points(snapshot).items()})
        after = [text(row)[left:] for row in drawn(charts, history, start_s + second)]
        assert [line[:-2] for line in after] == [line[:-2] for line in before]
    history.append(start_s + column_s, scenes.points(snapshot))
    shifted = [text(row)[left:] for row in drawn(charts, history, start_s + column_s)]
    assert [line[:-3] for line in shifted[:-1]] == [line[1:-2] for line in after[:-1]]
    assert shifted[-1] == after[-1]


@pytest.mark.parametrize("width", [60, 80, 120, 159, 160, 200, 300])
@pytest.mark.parametrize("glyphs", ALL_GLYPHS)
def test_charts_fill_their_pane(width: int, glyphs: Glyphs) -> None:
    snapshot = scenes.snapshot()
    history = scenes.history(snapshot)
    for height in (10, 11, 14, 19, 38, 60):
        charts = Areas(history, width, height, 300.0, glyphs=glyphs)
        rows = drawn(charts, history, snapshot.wall_s)
        assert len(rows) == height
        assert all(cells(text(row)) <= width for row in rows)
        assert text(rows[-1]).rstrip().endswith("now")
        assert charts.left_out == 0 or height < 3 * len(CHARTS)


@pytest.mark.parametrize("width", [60, 80, 120, 200, 300])
def test_sparks_fill_their_pane_and_have_an_axis_where_a_line_is_to_spare(width: int) -> None:
    snapshot = scenes.snapshot()
    history = scenes.history(snapshot)
    for height in range(1, 10):
        sparks = Sparks(history, width, height, 300.0)
        rows = drawn(sparks, history, snapshot.wall_s)
        assert 1 <= len(rows) <= height
        assert all(cells(text(row)) <= width for row in rows)
        axis = text(rows[-1]).rstrip().endswith("now")
        shown = sum(len(row) // 4 for row in (rows[:-1] if axis else rows))
        assert sparks.left_out + shown == len(SPARKS)
        assert axis or sparks.left_out or height == len(rows)


@pytest.mark.parametrize("values", [{}, {"busy": NAN}, dict.fromkeys((curve.key for curve in SPARKS), 0.0)])
def test_no_history_and_all_zero_are_drawn(values: dict[str, float]) -> None:
    history = History()
    history.append(scenes.WALL_S, values)
    now_s = scenes.WALL_S
    areas = "\n".join(text(row) for row in drawn(Areas(history, 120, 19, 300.0), history, now_s))
    sparks = "\n".join(text(row) for row in drawn(Sparks(history, 80, 3, 300.0), history, now_s))
    assert ("0%" in areas.replace("100%", "")) == bool(values.get("mfu") == 0.0)
    assert ("▁" in sparks) == bool(values.get("mfu") == 0.0)


def test_running_and_waiting_are_stacked() -> None:
    history = History()
    history.append(scenes.WALL_S, {"running": 50.0, "waiting": 50.0})
    rows = drawn(Areas(history, 120, 40, 300.0, glyphs="blocks"), history, scenes.WALL_S)
    newest = [tone for row in rows for piece, tone in row[-2:] if piece.strip() and tone in ("warn", "accent")]
    assert newest.count("warn") == newest.count("accent") == 2


@pytest.mark.parametrize("value", [1e308, math.inf, 5e-324])
def test_an_absurd_figure_is_drawn(value: float) -> None:
    history = History()
    for second in range(3):
        history.append(scenes.WALL_S + second, dict.fromkeys((curve.key for curve in SPARKS), value))
    now_s = scenes.WALL_S + 2
    assert len(drawn(Areas(history, 120, 26, 300.0), history, now_s)) == 26
    assert len(drawn(Sparks(history, 80, 5, 300.0), history, now_s)) == 5
    for chart in range(len(CHARTS)):
        assert len(drawn(Single(history, chart, 120, 26, 300.0), history, now_s)) == 26


def test_a_label_is_the_value_of_the_moment_and_of_rates_the_mean_that_stands_in_rows() -> None:
    history = History()
    history.append(scenes.WALL_S - 20, {"decode": 70_000.0, "mfu": 0.1, "running": 70.0})
    history.append(scenes.WALL_S, {"decode": 1000.0, "mfu": 0.5, "running": 111.0})
    history.append(scenes.WALL_S + 1, {"decode": 3000.0, "running": 222.0})
    history.append(scenes.WALL_S + 2, {"decode": 9000.0, "mfu": 0.25, "running": 333.0})
    for made in (Areas(history, 120, 26, 300.0), Sparks(history, 80, 6, 300.0)):
        said = "\n".join(text(row) for row in drawn(made, history, scenes.WALL_S + 1))
        assert "2.0k" in said
        assert "222" in said
        assert not any(word in said for word in ("9.0k", "25%", "50%", "37%", "166", "333"))


def test_points_after_the_moment_shown_do_not_count() -> None:
    history = History()
    history.append(1000.0, {"busy": 0.5})
    series = Series(history, "busy", 12, 5.0, 1)
    before = series.values(200, 1000.0)[-1]
    history.append(1001.0, {"busy": 1.0})
    assert series.values(200, 1000.0)[-1] == before == 0.5
    assert Series(history, "busy", 12, 5.0, 1).values(200, 1000.0)[-1] == 0.5
    assert series.values(200, 1001.0)[-1] == 0.75


def test_figures_are_read_once_a_moment() -> None:
    """A display paused for longer than single ticks are kept still has its figures, at whatever size."""
    history = History(ticks=4)
    history.append(1000.0, {"mfu": 0.5})
    figures = Figures(history)
    assert figures.at(1000.0)["mfu"] == "50%"
    for at in range(10):
        history.append(1001.0 + at, {"mfu": 0.1})
    assert figures.at(1000.0)["mfu"] == "50%"
    assert figures.at(1010.0)["mfu"] == "10%"


@pytest.mark.parametrize("span_s", SPANS_S)
@pytest.mark.parametrize("interval_s", [0.25, 1.0, 60.0])
def test_a_steady_course_has_no_gap_and_an_outage_has(span_s: float, interval_s: float) -> None:
    """At every span and interval: no blank column but where nothing was read."""
    history = History()
    outage = (span_s * 0.4, span_s * 0.4 + max(span_s / 4, 6 * interval_s))
    count = int((span_s + 700.0) / interval_s)
    for back in range(count, -1, -1):
        if not outage[0] < back * interval_s < outage[1] or outage[1] > span_s:
            history.append(scenes.WALL_S - back * interval_s, {"mfu": 0.5}, interval_s)
    charts = Areas(history, 120, 12, span_s)
    row = next(text(row) for row in drawn(charts, history, scenes.WALL_S) if "MFU" in text(row))
    lines = [text(row) for row in drawn(charts, history, scenes.WALL_S)]
    bottom = lines[lines.index(row) + 3][-2 - charts.grid.columns : -1]
    assert len(bottom) == charts.grid.columns + 1
    blank = [at for at, glyph in enumerate(bottom[:-1]) if glyph == " "]
    if outage[1] > span_s:
        assert not blank
        return
    assert blank == list(range(blank[0], blank[-1] + 1))
    seconds = len(blank) * charts.grid.column_s
    length = outage[1] - outage[0]
    assert length - 2 * interval_s - 2 * charts.grid.column_s - 10.0 <= seconds <= length


@pytest.mark.parametrize("span_s", SPANS_S)
@pytest.mark.parametrize("width", [60, 80, 120, 200, 300])
def test_the_labels_of_the_time_axis_are_true(width: int, span_s: float) -> None:
    found = grid(width - LABEL - 2, span_s)
    axis = text(tuple(ago(found)))
    assert len(axis) == found.columns
    assert axis.endswith("now")
    labels = [(label.start(), label[1], label[2]) for label in re.finditer(r"-([\d.]+) ?(s|min|h)", axis)]
    assert labels
    for start, number, unit in labels:
        seconds = float(number) * {"s": 1.0, "min": 60.0, "h": 3600.0}[unit]
        assert abs((found.columns - start) * found.column_s - seconds) <= 0.5 * found.column_s + 1e-6


@pytest.mark.parametrize("span_s", SPANS_S)
@pytest.mark.parametrize("width", [60, 120, 300])
def test_the_clock_times_are_true(width: int, span_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        found = grid(width - LABEL - 2, span_s)
        now_s = scenes.WALL_S + 17.0
        line = text(tuple(clock(found, now_s)))
        local_s = now_s + 19800.0
        edge_s = (math.floor(now_s / found.column_s) + 1) * found.column_s + 19800.0
        assert len(line) == found.columns
        labels = list(re.finditer(r"(\d\d):(\d\d)(?::(\d\d))?", line))
        assert labels
        for label in labels:
            of_day_s = int(label[1]) * 3600 + int(label[2]) * 60 + int(label[3] or 0)
            at_s = edge_s - (found.columns - label.start()) * found.column_s
            assert abs((at_s - of_day_s + 43200) % 86400 - 43200) <= 0.5 * found.column_s + 1e-6
            assert at_s <= local_s + found.column_s
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.integers(1, 60), st.floats(1e-3, 1e9))
@settings(deadline=None, max_examples=60)
def test_the_ticks_of_a_scale_stand_where_their_values_are(height: int, value: float) -> None:
    plot = Plot(CHARTS[3], "braille")
    lines = plot.lines({"decode": [value, value, value, value]}, height, 3)
    top = nice(value)
    ticks = [(at, line[0][0].strip(" ┤")) for at, line in enumerate(lines) if "┤" in line[0][0]]
    assert ticks[0][0] == 0
    for at, label in ticks:
        number, factor = (label, 1.0) if label[-1].isdigit() else (label[:-1], 1000.0 ** (" kMGTPE".index(label[-1])))
        said = float(number) * factor
        assert abs(said - top * (height - at) / height) <= 0.5 * top / height + 0.01 * top


def test_what_has_no_value_comes_last() -> None:
    history = History()
    history.append(scenes.WALL_S, {"decode": 1000.0, "prefill": 2000.0, "running": 3.0})
    empty = {curve.key for curve in SPARKS} - {"decode", "prefill", "running"}
    sparks = text(drawn(Sparks(history, 80, 2, 300.0, empty=empty, cursor=3), history, scenes.WALL_S)[0])
    assert sparks.index("decode") < sparks.index("prefill")
    first = text(drawn(Areas(history, 120, 12, 300.0, empty=empty, cursor=3), history, scenes.WALL_S)[0])
    assert "decode" in first


def test_a_chart_alone_says_what_its_columns_were_at_least_on_average_and_at_most_and_when() -> None:
    history = History()
    for ago_s, value in ((250, 100.0), (150, 200.0), (0, 600.0)):
        history.append(scenes.WALL_S - ago_s, {"decode": value})
    rows = [text(row) for row in drawn(Single(history, 3, 120, 14, 300.0), history, scenes.WALL_S)]
    at_s = math.floor((scenes.WALL_S - 1.0) / 2.0) * 2.0  # a reading stands for the second before it
    assert [re.split(" {2,}", re.sub(r"[│┤].*", "", row).strip())[:2] for row in rows[1:5]] == [
        ["lowest column", "100"],
        ["mean", "300"],
        ["highest column", "600"],
        [f"at {datetime.fromtimestamp(at_s).astimezone():%H:%M:%S}"],
    ]
    assert rows[0].split()[:4] == ["⣿", "decode", "tok/s", "600"]


def test_a_chart_alone_has_a_line_for_each_gpu_on_the_same_axis() -> None:
    history = History()
    for second in range(300):
        now_s = scenes.WALL_S - 299 + second
        history.append(now_s, {"mfu": 0.5, "mfu:0": 0.25, "mfu:11": 1.0 if second >= 150 else 0.0})
    single = Single(
        history, CHARTS.index(next(c for c in CHARTS if c.curves == (MFU,))), 120, 20, 300.0, gpus=(0, 3, 11)
    )
    rows = [text(row) for row in drawn(single, history, scenes.WALL_S)]
    named = {row.split("│")[0].strip(): row.rstrip("\n") for row in rows if "GPU" in row}
    assert [" ".join(name.split()) for name in named] == ["GPU 0 25%", "GPU 11 100%"], "no GPU 3 in the history"
    assert len(rows) == 20
    assert len({row.index("│") for row in named.values()}) == 1
    assert single.left_out == 0
    assert Single(history, 1, 120, 9, 300.0, gpus=(0, 11)).left_out == 1


def test_every_chart_of_the_request_is_there() -> None:
    keys = {curve.key for chart in CHARTS for curve in chart.curves}
    assert keys == {
        *("busy", "sm", "bandwidth", "mfu", "mbu", "prefill", "decode", "running", "waiting", "replicas", "power"),
    }
    assert keys == {curve.key for curve in SPARKS}
    assert CHARTS[0].curves[0] is SM


def test_pieces_are_never_empty_and_grids_never_without_columns() -> None:
    pieces: list[Piece] = ago(Grid(1, 300.0))
    assert all(piece for piece, _ in pieces)
    assert grid(1, 7200.0) == Grid(1, 7200.0)
