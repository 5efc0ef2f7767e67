"""Curves keep to buckets of wall time, tell a gap from a zero, and draw only what is new."""

from __future__ import annotations

import math
import re
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.schema import Config, Goals
from gpumon.figures.charted import MEAN_SERIES, SUM_SERIES, WORST_SERIES
from gpumon.readings.format import cells
from gpumon.readings.history import History
from gpumon.readings.missing import NO_UPPER_BOUND
from gpumon.readings.snapshot import Quantiles
from gpumon.tui.charts.axis import clock_labels, time_labels
from gpumon.tui.charts.curves import (
    CHART_OF,
    CHARTS,
    CURVES,
    SPARKS,
    Chart,
    CurveTexts,
    chart_of,
    parts_of,
    round_up,
    with_data,
)
from gpumon.tui.charts.grid import Charts, Style
from gpumon.tui.charts.raster import CURVE_KEYS, RASTERS, area, height_steps, spark
from gpumon.tui.charts.series import SPANS_S, ChartSeries, Grid, make_grid
from gpumon.tui.levels import LevelBounds, levels_in
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import SHADES, Glyphs
from gpumon.tui.view import View
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes

NAN = math.nan
ALL_GLYPHS: tuple[Glyphs, ...] = ("braille", "blocks", "ascii")


def text(row: Row) -> str:
    return "".join(piece for piece, _ in row)


def made(history: History, width: int, height: int, charts: tuple[Chart, ...] = CHARTS, **others: Any) -> Charts:
    style = Style(others.pop("span_s", 300.0), others.pop("glyphs", "braille"), others.pop("levels", None) or levels())
    return Charts(history, charts, width, height, style, **others)


def levels(**chosen: float) -> dict[str, LevelBounds]:
    """The levels of the default settings; `ttft_p95_ms` and so on are goals."""
    return levels_in(View(Config(goals=Goals(**chosen))))


def drawn(charts: Charts, history: History, now_s: float = scenes.WALL_S) -> list[Row]:
    return charts.rows(now_s, CurveTexts(history))


def test_each_series_of_all_things_has_a_chart_and_a_spark() -> None:
    of_all_things = {*MEAN_SERIES, *SUM_SERIES, *WORST_SERIES}
    where = "of gpumon/tui/charts/curves.py has each series of all things"
    assert {curve.key for chart in CHARTS for curve in chart.curves} == of_all_things, f"CHARTS {where}"
    assert {curve.key for curve in SPARKS} == of_all_things, f"SPARKS {where}"


def test_a_spark_tells_a_zero_from_a_gap() -> None:
    assert spark([0.0, 0.5, 1.0, NAN, 1.3]) == "▁▄█ █"


def test_an_area_fills_from_below() -> None:
    values = [0.25, 0.5, 1.0, NAN]
    assert [text(line) for line in area([(values, "mfu")], 2)] == [" ⡇", "⣼⡇"]
    assert [text(line) for line in area([(values, "mfu")], 2, "blocks")] == ["  █ ", "▄██ "]
    assert [text(line) for line in area([(values, "mfu")], 2, "ascii")] == ["  # ", ":## "]


@each_row("glyphs", ALL_GLYPHS)
def test_a_zero_has_a_baseline_and_a_gap_has_not(glyphs: Glyphs) -> None:
    live = RASTERS[glyphs].values_per_cell
    (line,) = area([([0.0] * live + [NAN] * live, "mfu")], 1, glyphs)
    assert text(line)[0] != " "
    assert text(line)[1] == " "


def test_the_front_layer_covers_the_one_behind() -> None:
    (top, bottom) = area([([0.5, 0.5], "sm"), ([1.0, 1.0], "busy")], 2)
    assert top == [("⡫", "busy")]
    assert bottom == [("⣿", "sm")]


@each_row("glyphs", ALL_GLYPHS)
def test_two_layers_differ_without_colour(glyphs: Glyphs) -> None:
    live = RASTERS[glyphs].values_per_cell
    lines = area([([0.25] * live, "sm"), ([1.0] * live, "busy")], 8, glyphs)
    (solid, light) = CURVE_KEYS[glyphs]
    assert [text(line) for line in lines[6:]] == [solid, solid]
    assert [text(line) for line in lines[1:6]] == [light] * 5
    assert solid != light


@each_row("glyphs", ALL_GLYPHS)
def test_what_is_only_behind_is_seen_at_its_height(glyphs: Glyphs) -> None:
    """A GPU without a counter of active SMs has nothing but busy."""
    live = RASTERS[glyphs].values_per_cell
    lines = area([([NAN] * live, "sm"), ([0.5] * live, "busy")], 4, glyphs)
    assert [bool(text(line).strip()) for line in lines] == [False, False, True, True]


@each_row("glyphs", ALL_GLYPHS)
def test_sm_above_busy_still_shows(glyphs: Glyphs) -> None:
    live = RASTERS[glyphs].values_per_cell
    assert text(area([([1.0] * live, "sm"), ([0.25] * live, "busy")], 1, glyphs)[0]) == CURVE_KEYS[glyphs][0]


@given(
    st.lists(st.one_of(st.floats(0, 1.5), st.just(NAN)), min_size=2, max_size=40).filter(lambda of: len(of) % 2 == 0),
    st.integers(1, 9),
    st.sampled_from(ALL_GLYPHS),
)
def test_an_area_has_its_size(values: list[float], height: int, glyphs: Glyphs) -> None:
    lines = area([(values, "sm"), ([value / 2 for value in values], "busy")], height, glyphs)
    assert len(lines) == height
    assert all(len(text(line)) == len(values) // RASTERS[glyphs].values_per_cell for line in lines)


@given(st.floats(1e-9, 1e18))
def test_a_scale_is_round_and_high_enough(value: float) -> None:
    top = round_up(value)
    assert value <= top <= value * 10.01
    assert f"{top:e}"[0] in "125"


@each_row("value", [0.0, -1.0, NAN, math.inf])
def test_a_scale_of_nothing(value: float) -> None:
    assert round_up(value) == 1.0


@given(
    st.lists(st.tuples(st.floats(0.5, 25), st.floats(0, 1)), min_size=1, max_size=60),
    st.sampled_from([1, 2]),
    st.sampled_from([0.75, 1.5, 5.0, 30.0]),
)
def test_reading_only_what_is_new_gives_the_same_as_reading_all(
    steps: list[tuple[float, float]], live: int, width_s: float
) -> None:
    history = History()
    series = ChartSeries(history, "busy", 12, width_s, live)
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


def test_a_chart_of_half_a_minute_moves_on_every_two_seconds_and_draws_the_newest_value_to_its_edge() -> None:
    columns = make_grid(39, 30.0)
    history = History()
    series = ChartSeries(history, "busy", columns.columns, columns.column_s, columns.step)
    edges = set()
    for second in range(40):
        now_s = 1000.0 + second
        history.append(now_s, {"busy": second / 64.0})
        newest = columns.newest(now_s)
        edges.add(newest)
        values = series.values(newest, now_s)
        begun = columns.columns + math.floor(now_s / columns.column_s) - newest
        assert columns.columns - columns.step < begun <= columns.columns
        assert set(values[begun - 1 :]) == {second / 64.0}
    assert len(edges) <= 40.0 / 2.0 + 1


def test_a_clock_that_jumps_back_is_survived() -> None:
    history = History()
    series = ChartSeries(history, "busy", 12, 5.0, 1)
    history.append(1000.0, {"busy": 0.5})
    series.values(200, 1000.0)
    history.append(500.0, {"busy": 0.25})
    assert series.values(100, 500.0)[-1] == 0.25


def test_points_after_the_moment_shown_do_not_count() -> None:
    history = History()
    history.append(1000.0, {"busy": 0.5})
    series = ChartSeries(history, "busy", 12, 5.0, 1)
    before = series.values(200, 1000.0)[-1]
    history.append(1001.0, {"busy": 1.0})
    assert series.values(200, 1000.0)[-1] == before == 0.5
    assert ChartSeries(history, "busy", 12, 5.0, 1).values(200, 1000.0)[-1] == 0.5
    assert series.values(200, 1001.0)[-1] == 0.75


def test_figures_are_read_once_a_moment() -> None:
    """A display paused for longer than single ticks are kept still has its figures, at whatever size."""
    history = History(ticks=4)
    history.append(1000.0, {"mfu": 0.5})
    figures = CurveTexts(history)
    assert figures.texts_at(1000.0)["mfu"] == "50%"
    for at in range(10):
        history.append(1001.0 + at, {"mfu": 0.1})
    assert figures.texts_at(1000.0)["mfu"] == "50%"
    assert figures.texts_at(1010.0)["mfu"] == "10%"


@each_row("span_s", SPANS_S)
@each_row("interval_s", [0.25, 1.0, 60.0])
def test_a_steady_course_has_no_gap_and_an_outage_has(span_s: float, interval_s: float) -> None:
    """At every span and interval: no blank column but where nothing was read."""
    history = History()
    outage = (span_s * 0.4, span_s * 0.4 + max(span_s / 4, 6 * interval_s))
    count = int((span_s + 700.0) / interval_s)
    for back in range(count, -1, -1):
        if not outage[0] < back * interval_s < outage[1] or outage[1] > span_s:
            history.append(scenes.WALL_S - back * interval_s, {"mfu": 0.5}, interval_s)
    charts = made(history, 120, 12, (Chart((CURVES["mfu"],)),), span_s=span_s, across=1, axis=False)
    bottom = text(drawn(charts, history)[-1])
    bottom = bottom[-charts.grid.columns - 1 :]
    blank = [at for at, glyph in enumerate(bottom[:-1]) if glyph == " "]
    if outage[1] > span_s:
        assert not blank
        return
    assert blank == list(range(blank[0], blank[-1] + 1))
    seconds = len(blank) * charts.grid.column_s
    length = outage[1] - outage[0]
    assert length - 2 * interval_s - 2 * charts.grid.column_s - 10.0 <= seconds <= length


@each_row("span_s", SPANS_S)
@each_row("width", [60, 80, 120, 200, 300])
def test_the_labels_of_the_time_axis_are_true(width: int, span_s: float) -> None:
    found = make_grid(width - 2, span_s)
    axis = text(tuple(time_labels(found)))
    assert len(axis) == found.columns
    assert axis.endswith("now")
    labels = [(label.start(), label[1], label[2]) for label in re.finditer(r"-([\d.]+) ?(s|min|h)", axis)]
    assert labels
    for start, number, unit in labels:
        seconds = float(number) * {"s": 1.0, "min": 60.0, "h": 3600.0}[unit]
        assert abs((found.columns - start) * found.column_s - seconds) <= 0.5 * found.column_s + 1e-6


def test_nothing_a_zero_and_little_differ() -> None:
    values = (NAN, 0.0, 0.01, 0.5, 1.0, 7.0, 1e308, math.inf)
    assert [height_steps(value, 8) for value in values] == [0, 1, 2, 4, 8, 8, 8, 8]


@given(st.integers(1, 300), st.floats(60.0, 7200.0))
def test_the_columns_end_where_the_span_begins(room: int, span_s: float) -> None:
    found = make_grid(room, span_s)
    assert span_s - 1e-6 <= found.span_s < span_s + found.column_s
    assert sum(cells(piece) for piece, _ in time_labels(found)) == found.columns <= room


@each_row("span_s", [60.0, 120.0, 300.0, 600.0, 1800.0])
def test_the_columns_fill_the_room(span_s: float) -> None:
    for room in range(24, 300):
        assert make_grid(room, span_s).columns >= 0.8 * room


@each_row("span_s", SPANS_S)
def test_no_label_is_older_than_the_span(span_s: float) -> None:
    """An axis of five minutes does not go back six."""
    for room in range(24, 300):
        labels = re.findall(r"-([\d.]+) ?(s|min|h)", text(tuple(time_labels(make_grid(room, span_s)))))
        seconds = [float(number) * {"s": 1.0, "min": 60.0, "h": 3600.0}[unit] for number, unit in labels]
        assert max(seconds, default=0.0) <= span_s


@each_row("glyphs", ALL_GLYPHS)
def test_between_bucket_edges_only_the_newest_column_changes(glyphs: Glyphs) -> None:
    snapshot = scenes.snapshot()
    history = scenes.history(snapshot)
    charts = made(history, 120, 20, (Chart((CURVES["decode"],)),), across=1, glyphs=glyphs, span_s=3.0 * 119)
    column_s = charts.grid.column_s
    assert column_s == 3.0
    start_s = math.floor(snapshot.wall_s / column_s) * column_s + column_s
    history.append(start_s, scenes.points(snapshot))
    before = [text(row) for row in drawn(charts, history, start_s)[1:]]
    for second in range(1, int(column_s)):
        history.append(start_s + second, {key: value * 1.1 for key, value in scenes.points(snapshot).items()})
        after = [text(row) for row in drawn(charts, history, start_s + second)[1:]]
        assert [line[:-2] for line in after] == [line[:-2] for line in before]
    history.append(start_s + column_s, scenes.points(snapshot))
    shifted = [text(row) for row in drawn(charts, history, start_s + column_s)[1:]]
    assert [line[:-3] for line in shifted[:-1]] == [line[1:-2] for line in before[:-1]]
    assert shifted[-1] == before[-1], "the axis stands still"


@each_row("glyphs", ALL_GLYPHS)
@each_row("height", [1, 8])
def test_a_chart_that_grows_moves_nothing_that_was_drawn(height: int, glyphs: Glyphs) -> None:
    """It begins at the left edge, and what comes is drawn beside it."""
    history = History()
    charts = made(history, 83, height, (Chart((CURVES["mfu"],)),), across=1, glyphs=glyphs, span_s=60.0)
    column_s = charts.grid.column_s
    start_s = math.floor(scenes.WALL_S / column_s) * column_s
    left = 83 - charts.grid.columns - 1
    lines = slice(1, -1) if height > 1 else slice(0, 1)
    before: list[str] = []
    finished = left
    for second in range(55):
        history.append(start_s + second, {"mfu": 0.9 - 0.4 * second / 55})
        rows = [text(row) for row in drawn(charts, history, start_s + second)]
        assert {cells(row) for row in rows} == {83}
        for line, old in zip(rows[lines], before[lines], strict=bool(before)):
            assert line[left:finished] == old[left:finished]
        begun = left + int(second / column_s)
        bottom = rows[lines][-1]
        assert bottom[begun] != " ", "the newest value"
        assert bottom[begun + charts.grid.step :].strip() == ""
        finished = max(left, begun - charts.grid.step)
        before = rows


@each_row("span_s", [30.0, 60.0, 120.0, 300.0])
@each_row("room", [38, 60, 120])
def test_the_clock_below_a_chart_that_grows_is_true(room: int, span_s: float) -> None:
    found = make_grid(room, span_s)
    first = math.floor(scenes.WALL_S / found.column_s)
    axis = text(tuple(clock_labels(found, first)))
    assert len(axis) == found.columns
    labels = [(label.start(), label[0]) for label in re.finditer(r"\d\d:\d\d(:\d\d)?", axis)]
    assert labels
    for start, clock in labels:
        parts = [int(part) for part in clock.split(":")]
        of_day_s = parts[0] * 3600 + parts[1] * 60 + sum(parts[2:])
        column_s = (first + start) * found.column_s
        shown = datetime.fromtimestamp(column_s, timezone.utc).astimezone()
        drawn_s = shown.hour * 3600 + shown.minute * 60 + shown.second + shown.microsecond / 1e6
        assert abs(drawn_s - of_day_s) <= 0.5 * found.column_s + 1e-3


@each_row("width", [60, 120, 200])
@each_row("glyphs", ALL_GLYPHS)
@each_row("least", [1, 3])
def test_charts_fill_their_pane(width: int, glyphs: Glyphs, least: int) -> None:
    snapshot = scenes.snapshot()
    history = scenes.history(snapshot)
    for height in (1, 2, 4, 10, 19, 38):
        charts = made(history, width, height, glyphs=glyphs, least=least)
        rows = drawn(charts, history, snapshot.wall_s)
        assert 1 <= len(rows) <= height
        assert len(rows) == height or least == 1 or height < 3
        assert all(cells(text(row)) <= width for row in rows)
        # A row of charts that has fewer of them than fit leaves the rest of its lines free.
        assert any(cells(text(row)) > width - 6 for row in rows), "full width"
        assert charts.left_out == len(CHARTS) - len(charts.shown)
        assert text(rows[-1]).rstrip().endswith("now") or least == 1 or height < 3


@each_row("least", [1, 3])
@each_row("size", [(80, 4), (120, 8), (200, 20), (60, 1)])
def test_the_chosen_chart_is_in_view_and_the_others_move_no_more_than_they_must(
    size: tuple[int, int], least: int
) -> None:
    first = 0
    for cursor in [*range(len(CHARTS)), *range(len(CHARTS) - 1, -1, -1)]:
        charts = made(History(), *size, cursor=cursor, first=first, least=least)
        assert CHARTS[cursor] in charts.shown
        assert charts.first <= first or charts.first <= cursor
        first = charts.first
    assert first == 0


@each_row("values", [{}, {"busy": NAN}, dict.fromkeys((curve.key for curve in SPARKS), 0.0)])
def test_no_history_and_all_zero_are_drawn(values: dict[str, float]) -> None:
    history = History()
    history.append(scenes.WALL_S, values)
    areas = "\n".join(text(row) for row in drawn(made(history, 120, 20), history))
    sparks = "\n".join(text(row) for row in drawn(made(history, 80, 3, least=1), history))
    assert ("MFU 0%" in areas) == bool(values.get("mfu") == 0.0)
    assert ("▁" in sparks) == bool(values.get("mfu") == 0.0)


def test_running_and_waiting_are_stacked() -> None:
    history = History()
    history.append(scenes.WALL_S, {"running": 50.0, "waiting": 50.0})
    chart = next(chart for chart in CHARTS if chart.stacked)
    rows = drawn(made(history, 60, 10, (chart,), glyphs="blocks", axis=False), history)
    newest = [tone.rstrip("-") for row in rows[1:] for piece, tone in row if piece.strip()]
    assert newest.count("warn") in (4, 5)
    assert newest.count("accent") == 9 - newest.count("warn")


@each_row("height", [2, 3, 6, 12])
def test_an_area_is_darker_from_line_to_line(height: int) -> None:
    history = History()
    history.append(scenes.WALL_S, {"decode": 100.0})
    rows = drawn(made(history, 60, height + 1, (Chart((CURVES["decode"],)),), axis=False), history)
    tones = [next(tone for piece, tone in row if piece.strip()) for row in rows[1:]]
    shades = [tone.count("-") for tone in tones]
    assert {tone.rstrip("-") for tone in tones} == {"tokens"}
    assert shades == sorted(shades)
    assert shades[0] == 0
    assert len(set(shades)) == min(height, SHADES)


def course(key: str, *values: float) -> History:
    """A series with a value every 50 s, the newest last."""
    history = History()
    for at, value in enumerate(values):
        history.append(scenes.WALL_S - 50.0 * (len(values) - 1 - at), {key: value})
    return history


def tones_of(rows: list[Row], glyphs: str) -> list[str]:
    """Tones of what is drawn with any of some characters, from left to right over all lines."""
    found: list[str] = []
    for row in rows:
        found += [tone.rstrip("-") for piece, tone in row if set(piece) & set(glyphs)]
    return found


@each_row(
    ("key", "values"),
    [
        ("kv", (0.5, 0.93, 0.99)),
        ("vram", (0.5, 0.96, 0.995)),
        ("temp", (40.0, 85.0, 93.0)),
        ("ttft", (0.4, 3.0, 38.0)),
        ("itl", (0.02, 0.25, 0.9)),
        ("kv@http://127.0.0.1:8000", (0.5, 0.93, 0.99)),
        ("temp:3", (40.0, 85.0, 93.0)),
    ],
)
@each_row("least", [1, 3])
def test_a_curve_has_the_colour_of_its_level(key: str, values: tuple[float, ...], least: int) -> None:
    chart = chart_of(key)
    assert chart is not None
    for count, tones in ((1, ["ok"]), (2, ["ok", "warn"]), (3, ["ok", "warn", "hot"])):
        history = course(key, *values[:count])
        rows = drawn(made(history, 80, 6, (chart,), least=least, glyphs="blocks", axis=False, across=1), history)
        body = rows if least == 1 else rows[1:]
        assert sorted(set(tones_of(body, "▁▂▃▄▅▆▇█"))) == sorted(tones)
        legend = {tone for _, tone in rows[0]}
        assert ("warn" in legend) == (count == 2 or (count == 3 and least == 1))
        assert ("critical" in legend) == (count == 3)
        assert ("!" in text(rows[0])) == (count > 1), "a mark for terminals without colours"


@each_row("glyphs", ALL_GLYPHS)
def test_a_line_stands_at_the_goal_where_it_is_within_the_scale(glyphs: Glyphs) -> None:
    chart = chart_of("ttft")
    assert chart is not None
    history = course("ttft", 0.9)
    within = made(history, 80, 11, (chart,), levels=levels(ttft_p95_ms=500.0), glyphs=glyphs, axis=False)
    rows = drawn(within, history)
    lines = [at for at, row in enumerate(rows[1:]) if any(tone == "border" for _, tone in row)]
    assert lines == [4], "half of the scale of a second: above the middle of ten lines"
    assert "500ms" in text(rows[0])
    above = drawn(made(history, 80, 11, (chart,), levels=levels(ttft_p95_ms=5e3), glyphs=glyphs, axis=False), history)
    assert not any(tone == "border" for row in above for _, tone in row)


@each_row("glyphs", ALL_GLYPHS)
@each_row(("height", "axis"), [(1, True), (2, True), (1, False)])
def test_a_chart_of_one_line_is_a_spark_with_its_newest_value(height: int, axis: bool, glyphs: Glyphs) -> None:
    history = course("kv", 0.5, 0.93, 0.99)
    chart = chart_of("kv")
    assert chart is not None
    rows = drawn(made(history, 80, height, (chart,), glyphs=glyphs, least=2, across=1, axis=axis), history)
    assert len(rows) == height
    assert re.match(r" kv +99%! .*[▄▅].*█", text(rows[0])), "its name, its newest value, its course"
    assert (re.search(r"\d\d:\d\d", text(rows[-1])) is not None) == (height == 2)


def test_one_gpu_has_its_two_series_in_one_chart_in_two_tones() -> None:
    of = scenes.snapshot()
    known = {"sm:0", "busy:0", "mfu:1"}
    (gpu,) = parts_of(CHARTS[0], known, of)
    assert [(curve.name, curve.tone) for curve in gpu.curves] == [("SM active", "sm"), ("gpu 0 busy", "busy")]
    history = History()
    history.append(scenes.WALL_S, {"sm:0": 0.4, "busy:0": 0.9})
    rows = drawn(made(history, 60, 11, (gpu,), axis=False), history)
    assert text(rows[0]).startswith(" ⡪ gpu 0 busy 90%  ⣿ SM active 40% ")
    assert {tone.rstrip("-") for row in rows[1:] for piece, tone in row if piece.strip()} == {"sm", "busy"}


@each_row("value", [1e308, math.inf, 5e-324])
def test_an_absurd_figure_is_drawn(value: float) -> None:
    history = History()
    for second in range(3):
        history.append(scenes.WALL_S + second, dict.fromkeys((curve.key for curve in SPARKS), value))
    for least in (1, 3):
        assert drawn(made(history, 120, 26, least=least), history, scenes.WALL_S + 2)


def test_a_label_is_the_value_of_the_moment_and_of_rates_the_mean_that_stands_in_rows() -> None:
    history = History()
    history.append(scenes.WALL_S - 20, {"decode": 70_000.0, "mfu": 0.1, "running": 70.0})
    history.append(scenes.WALL_S, {"decode": 1000.0, "mfu": 0.5, "running": 111.0})
    history.append(scenes.WALL_S + 1, {"decode": 3000.0, "running": 222.0})
    history.append(scenes.WALL_S + 2, {"decode": 9000.0, "mfu": 0.25, "running": 333.0})
    sparks = tuple(Chart((curve,)) for curve in SPARKS)
    for charts in (made(history, 120, 40), made(history, 80, 9, sparks, least=1)):
        said = "\n".join(text(row) for row in drawn(charts, history, scenes.WALL_S + 1))
        assert "2.0k" in said
        assert "222" in said
        assert not any(word in said for word in ("9.0k", "25%", "50%", "37%", "166", "333"))


def test_only_curves_with_data_are_drawn_and_their_order_stays() -> None:
    known = {"busy", "decode", "running", "power"}
    assert [chart.name for chart in with_data(CHARTS, known)] == ["busy", "decode tok/s", "running", "power"]
    assert [chart.name for chart in with_data(CHARTS, known | {"sm"})][:2] == ["busy, SM active", "decode tok/s"]


def test_one_wide_chart_says_what_its_columns_were_at_least_on_average_and_at_most_and_when() -> None:
    history = History()
    for ago_s, value in ((250, 100.0), (150, 200.0), (0, 600.0)):
        history.append(scenes.WALL_S - ago_s, {"decode": value})
    said = text(drawn(made(history, 120, 14, (Chart((CURVES["decode"],)),), across=1), history)[0])
    assert re.search(r"⣿ decode tok/s 600 +lowest 100 · mean 3[0-7]\d · highest 600 at \d\d:\d\d:\d\d", said)
    assert said.rstrip().endswith("0-1k")


@each_row("behind_s", range(7))
def test_the_mean_of_a_chart_counts_no_reading_twice(behind_s: int) -> None:
    """The newest reading is drawn up to the edge that the chart moves on at."""
    history = History()
    chart = Chart((CURVES["decode"],))
    charts = made(history, 220, 8, (chart,), across=1, axis=False, span_s=60.0)
    start_s = math.floor(scenes.WALL_S / 60.0) * 60.0
    end_s = start_s + 60.0 + behind_s
    values = []
    second_s = start_s
    while second_s <= end_s:
        value = 900.0 if second_s > end_s - 1.0 else 100.0
        history.append(second_s, {"decode": value})
        values.append(value)
        second_s += 0.25
    legend = text(drawn(charts, history, end_s)[0])
    shown = re.search(r"mean (\d+)", legend)
    assert shown is not None
    assert abs(float(shown[1]) - sum(values[-240:]) / 240) <= 4.0


def test_a_chart_has_one_of_each_gpu_or_engine_that_the_history_knows() -> None:
    of = scenes.snapshot()
    known = {"mfu:0", "mfu:7", "mfu:11", f"kv@{of.engines[1].key}", "busy:0"}
    mfu = next(chart for chart in CHARTS if "mfu" in [curve.key for curve in chart.curves])
    kv = next(chart for chart in CHARTS if chart.curves[0].key == "kv")
    assert [chart.name for chart in parts_of(mfu, known, of)] == ["gpu 0 MFU", "gpu 7 MFU"]
    assert [chart.name for chart in parts_of(kv, known, of)] == ["vllm:8001 KV cache"]


def test_a_mean_without_idle_spares_says_so() -> None:
    of = scenes.snapshot()
    spare = replace(of.gpus[7], engines=(), processes=(), busy_ratio=0.0)
    history = scenes.history(of)
    figures = CurveTexts(history)
    figures.read(replace(of, gpus=(*of.gpus[:7], spare)))
    charts = made(history, 120, 8, CHARTS[:1], across=1)
    assert "mean of 7 of 8 GPUs: others unused" in text(charts.rows(of.wall_s, figures)[0])
    figures.read(of)
    assert "mean of" not in text(charts.rows(of.wall_s, figures)[0])


@each_row(
    "bucket, written",
    [
        (Quantiles(p95=0.008, p95_low=0.0, p95_high=0.01, first_bound_s=0.01), "<10ms"),
        (Quantiles(p95=60.0, p95_low=60.0, p95_high=NO_UPPER_BOUND, first_bound_s=0.01), ">60s"),
        (Quantiles(p95=0.03, p95_low=0.025, p95_high=0.05, first_bound_s=0.01), "30ms"),
    ],
)
def test_a_quantile_of_an_open_bucket_is_a_bound_on_its_chart_and_beside_its_spark(
    bucket: Quantiles, written: str
) -> None:
    snapshot = scenes.snapshot()
    engine = scenes.engine(0, itl_s=bucket)
    snapshot = replace(snapshot, engines=(engine,))
    history = scenes.history(snapshot)
    key = f"itl@{engine.key}"
    history.append(snapshot.wall_s, {"itl": bucket.p95, key: bucket.p95})
    figures = CurveTexts(history)
    figures.read(snapshot)
    alone = chart_of(key, engine.name)
    assert alone is not None
    for chart in (CHARTS[CHART_OF["itl"]], alone):
        for height in (1, 8):
            charts = made(history, 120, height, (chart,), across=1)
            assert f" {written}" in text(charts.rows(snapshot.wall_s, figures)[0])


def test_what_happened_stands_on_the_axis() -> None:
    snapshot = scenes.SCENES["triage"]()
    axis = text(drawn(made(scenes.history(snapshot), 120, 20, across=1), scenes.history(snapshot))[-1])
    assert {"X", "◆", "↓"} <= set(axis)
    assert axis.rstrip().endswith("now")


def test_the_axis_of_the_past_says_what_the_clock_said_also_where_something_just_happened() -> None:
    snapshot = scenes.SCENES["triage"]()
    history = scenes.history(snapshot)
    for back_s in range(12):
        history.add_event(replace(history.events(0.0, snapshot.wall_s)[-1], wall_s=snapshot.wall_s - back_s))
    for width in (40, 80, 120):
        charts = made(history, width, 20, across=1)
        axis = text(charts.rows(snapshot.wall_s, CurveTexts(history), edge="08:53:22")[-1])
        assert axis.endswith("08:53:22 ")
        assert "now" not in axis
        assert "◆" in axis


def test_pieces_are_never_empty_and_grids_never_without_columns() -> None:
    pieces: list[Piece] = time_labels(Grid(1, 300.0))
    assert all(piece for piece, _ in pieces)
    assert make_grid(1, 7200.0) == Grid(1, 7200.0)
