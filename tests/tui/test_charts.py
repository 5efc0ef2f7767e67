"""Curves keep to buckets of wall time, tell a gap from a zero, and draw only what is new."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.format import cells
from gpumon.readings.history import History
from gpumon.tui.charts.areas import Areas
from gpumon.tui.charts.curves import CHARTS, SPARKS, nice
from gpumon.tui.charts.raster import area, level, spark
from gpumon.tui.charts.series import WIDTHS, Series, column_seconds
from gpumon.tui.charts.sparks import Sparks
from gpumon.tui.line import Row
from tests.tui import scenes

NAN = math.nan


def text(row: Row) -> str:
    return "".join(piece for piece, _ in row)


def test_a_spark_tells_a_zero_from_a_gap() -> None:
    assert spark([0.0, 0.5, 1.0, NAN, 1.3]) == "▁▄█ █"


def test_an_area_fills_from_below() -> None:
    lines = area([([0.25, 0.5, 1.0, NAN], "mfu")], 2)
    assert [text(line) for line in lines] == [" ⡇", "⣼⡇"]
    assert [text(line) for line in area([([0.25, 1.0], "mfu")], 2, blocks=True)] == [" █", "▄█"]


def test_the_front_layer_covers_the_one_behind() -> None:
    (top, bottom) = area([([0.5, 0.5], "sm"), ([1.0, 1.0], "busy")], 2)
    assert top == [("⣿", "busy")]
    assert bottom == [("⣿", "sm")]


def test_sm_above_busy_still_shows() -> None:
    assert text(area([([1.0, 1.0], "sm"), ([0.25, 0.25], "busy")], 1)[0]) == "⣿"


@given(
    st.lists(st.one_of(st.floats(0, 1.5), st.just(NAN)), min_size=2, max_size=40).filter(lambda of: len(of) % 2 == 0),
    st.integers(1, 9),
)
def test_an_area_has_its_size(values: list[float], height: int) -> None:
    lines = area([(values, "sm"), ([value / 2 for value in values], "busy")], height)
    assert len(lines) == height
    assert all(len(text(line)) == len(values) // 2 for line in lines)


@given(st.floats(1e-9, 1e18))
def test_a_scale_is_round_and_high_enough(value: float) -> None:
    top = nice(value)
    assert value <= top <= value * 10.01
    assert f"{top:e}"[0] in "125"


@pytest.mark.parametrize("value", [0.0, -1.0, NAN, math.inf])
def test_a_scale_of_nothing(value: float) -> None:
    assert nice(value) == 1.0


def test_levels() -> None:
    assert [level(value, 8) for value in (NAN, 0.0, 0.01, 0.5, 1.0, 7.0)] == [0, 1, 1, 4, 8, 8]


@pytest.mark.parametrize(
    ("columns", "interval_s", "expected"),
    [(100, 1.0, 5.0), (24, 1.0, 15.0), (100, 5.0, 20.0), (7, 1.0, 60.0), (1, 3600.0, 3600.0)],
)
def test_a_column_holds_five_minutes_in_all_and_readings_in_each(
    columns: int, interval_s: float, expected: float
) -> None:
    assert column_seconds(columns, interval_s) == expected
    assert expected in WIDTHS


@given(st.lists(st.tuples(st.integers(1, 25), st.floats(0, 1)), min_size=1, max_size=60), st.sampled_from([1, 2]))
def test_reading_only_what_is_new_gives_the_same_as_reading_all(steps: list[tuple[int, float]], live: int) -> None:
    history = History()
    series = Series(history, "busy", 12, 5.0, live)
    now_s = scenes.WALL_S
    for seconds, value in steps:
        now_s += seconds
        history.append(now_s, {"busy": value})
        newest = math.floor(now_s / (5.0 * live)) * live + live - 1
        expected = history.buckets("busy", newest, 12, 5.0)
        got = series.values(newest)
        assert len(got) == 12
        assert got == pytest.approx(expected, nan_ok=True)


def test_a_clock_that_jumps_back_is_survived() -> None:
    history = History()
    series = Series(history, "busy", 12, 5.0, 1)
    history.append(1000.0, {"busy": 0.5})
    series.values(200)
    history.append(500.0, {"busy": 0.25})
    assert len(series.values(100)) == 12


def test_between_bucket_edges_only_the_newest_column_changes() -> None:
    snapshot = scenes.snapshot()
    history = scenes.history(snapshot)
    charts = Areas(history, 120, 19, 1.0, blocks=False)
    column_s = charts.column_s
    start_s = math.floor(snapshot.wall_s / column_s) * column_s + column_s
    before = [text(row)[28:] for row in charts.rows(start_s)]
    for second in range(1, int(column_s)):
        history.append(start_s + second, {key: value * 1.1 for key, value in scenes.points(snapshot).items()})
        after = [text(row)[28:] for row in charts.rows(start_s + second)]
        assert [line[:-3] for line in after] == [line[:-3] for line in before]
    shifted = [text(row)[28:] for row in charts.rows(start_s + column_s)]
    assert [line[:-4] for line in shifted[:-1]] == [line[1:-3] for line in after[:-1]]


@pytest.mark.parametrize(("width", "height"), [(60, 10), (80, 11), (120, 19), (200, 38), (400, 80)])
@pytest.mark.parametrize("blocks", [False, True])
def test_charts_fill_their_pane(width: int, height: int, blocks: bool) -> None:
    snapshot = scenes.snapshot()
    charts = Areas(scenes.history(snapshot), width, height, 1.0, blocks=blocks)
    rows = charts.rows(snapshot.wall_s)
    assert len(rows) == height
    assert all(cells(text(row)) <= width for row in rows)
    assert text(rows[-1]).rstrip().endswith("now")
    assert charts.left_out == 0 or height < 3 * len(CHARTS)


@pytest.mark.parametrize(("width", "height"), [(60, 1), (80, 1), (80, 3), (120, 2), (200, 9)])
def test_sparks_fill_their_pane(width: int, height: int) -> None:
    snapshot = scenes.snapshot()
    sparks = Sparks(scenes.history(snapshot), width, height, 1.0)
    rows = sparks.rows(snapshot.wall_s)
    assert 1 <= len(rows) <= height
    assert all(cells(text(row)) <= width for row in rows)
    assert sparks.left_out + sum(len(row) // 2 for row in rows) == len(SPARKS)


@pytest.mark.parametrize("values", [{}, {"busy": NAN}, dict.fromkeys((curve.key for curve in SPARKS), 0.0)])
def test_no_history_and_all_zero_are_drawn(values: dict[str, float]) -> None:
    history = History()
    history.append(scenes.WALL_S, values)
    areas = "\n".join(text(row) for row in Areas(history, 120, 19, 1.0, blocks=False).rows(scenes.WALL_S))
    sparks = "\n".join(text(row) for row in Sparks(history, 80, 3, 1.0).rows(scenes.WALL_S))
    assert ("0%" in areas.replace("100%", "")) == bool(values.get("mfu") == 0.0)
    assert ("▁" in sparks) == bool(values.get("mfu") == 0.0)


def test_running_and_waiting_are_stacked() -> None:
    history = History()
    history.append(scenes.WALL_S, {"running": 50.0, "waiting": 50.0})
    rows = Areas(history, 120, 26, 1.0, blocks=True).rows(scenes.WALL_S)
    newest = [
        row for row in rows if any(tone == "warn" for piece, tone in row if piece.strip("█ ") == "" and piece.strip())
    ]
    assert newest
