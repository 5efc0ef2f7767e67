"""Curves keep to buckets of wall time, tell a gap from a zero, and draw only what is new."""

from __future__ import annotations

import math
import re

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
from tests.tui.feed import Still
from tests.tui.running import running, text_of, until

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
    assert [level(value, 8) for value in (NAN, 0.0, 0.01, 0.5, 1.0, 7.0, 1e308, math.inf)] == [0, 1, 1, 4, 8, 8, 8, 8]


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
        got = series.values(newest, now_s)
        assert len(got) == 12
        assert got == pytest.approx(expected, nan_ok=True)


def test_a_clock_that_jumps_back_is_survived() -> None:
    history = History()
    series = Series(history, "busy", 12, 5.0, 1)
    history.append(1000.0, {"busy": 0.5})
    series.values(200, 1000.0)
    history.append(500.0, {"busy": 0.25})
    assert len(series.values(100, 500.0)) == 12


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


@pytest.mark.parametrize("value", [1e308, math.inf, 5e-324])
def test_an_absurd_figure_is_drawn(value: float) -> None:
    history = History()
    for second in range(3):
        history.append(scenes.WALL_S + second, dict.fromkeys((curve.key for curve in SPARKS), value))
    rows = Areas(history, 120, 26, 1.0, blocks=False).rows(scenes.WALL_S + 2)
    assert len(rows) == 26
    assert Sparks(history, 80, 5, 1.0).rows(scenes.WALL_S + 2)


def test_a_label_is_the_value_of_the_moment_and_not_a_mean() -> None:
    history = History()
    history.append(scenes.WALL_S, {"decode": 1000.0, "mfu": 0.5})
    history.append(scenes.WALL_S + 1, {"decode": 3000.0})
    history.append(scenes.WALL_S + 2, {"decode": 9000.0, "mfu": 0.25})
    for made in (Areas(history, 120, 26, 1.0, blocks=False), Sparks(history, 80, 5, 1.0)):
        said = "\n".join(text(row) for row in made.rows(scenes.WALL_S + 1))
        assert "3.0k" in said
        assert not any(word in said for word in ("1.0k", "2.0k", "9.0k", "50%", "25%"))


def test_points_after_the_moment_shown_do_not_count() -> None:
    history = History()
    history.append(1000.0, {"busy": 0.5})
    series = Series(history, "busy", 12, 5.0, 1)
    before = series.values(200, 1000.0)[-1]
    history.append(1001.0, {"busy": 1.0})
    assert series.values(200, 1000.0)[-1] == before == 0.5
    assert Series(history, "busy", 12, 5.0, 1).values(200, 1000.0)[-1] == 0.5
    assert series.values(200, 1001.0)[-1] == 0.75


@pytest.mark.parametrize("interval_s", [1.0, 5.0, 15.0, 30.0, 60.0, 300.0])
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_labels_of_the_time_axis_are_true(width: int, interval_s: float) -> None:
    charts = Areas(History(), width, 12, interval_s, blocks=False)
    axis = text(charts.rows(scenes.WALL_S)[-1])
    axis = axis[: axis.index("now") + 4]
    labels = [(found.start() - 28, found[1], found[2]) for found in re.finditer(r"-([\d.]+) ?(s|min|h)", axis)]
    assert len({(number, unit) for _, number, unit in labels}) == len(labels)
    for start, number, unit in labels:
        seconds = float(number) * {"s": 1.0, "min": 60.0, "h": 3600.0}[unit]
        assert abs((charts.columns - start) * charts.column_s - seconds) <= 0.5 * charts.column_s + 0.005 * seconds


def test_what_has_no_value_comes_last() -> None:
    history = History()
    history.append(scenes.WALL_S, {"decode": 1000.0, "prefill": 2000.0, "running": 3.0})
    empty = {curve.key for curve in SPARKS} - {"decode", "prefill", "running"}
    sparks = text(Sparks(history, 80, 2, 1.0, empty).rows(scenes.WALL_S)[0])
    assert sparks.index("decode") < sparks.index("prefill")
    first = text(Areas(history, 120, 12, 1.0, blocks=False, empty=empty).rows(scenes.WALL_S)[0])
    assert "decode" in first


async def test_late_series_keep_their_place_and_absent_ones_lose_it() -> None:
    first = scenes.snapshot()
    feed = Still(first)
    known = {"busy": 0.5, "running": 3.0, "decode": 100.0}
    feed.history.append(first.wall_s, known)
    async with running(feed, 120, 40) as (app, pilot):
        assert any(line.startswith(" █ MFU ") for line in text_of(app)[:24])
        later = scenes.snapshot(tick=60)
        feed.history.append(later.wall_s, known)
        feed.give(later)
        await until(lambda: app.monitor.shown is later, pilot)
        lines = [line[:9] for line in text_of(app)]
        assert [line for line in lines if line in (" ▒ busy  ", " █ decode", " █ runnin", " █ MFU   ")] == [
            " ▒ busy  ",
            " █ decode",
            " █ runnin",
            " █ MFU   ",
        ]
