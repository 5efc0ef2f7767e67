"""Two tiers with gaps, and buckets of wall time over both."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.history import CELL_S, History
from tests.each_row import each_row

NAN = math.nan


def filled(seconds: list[tuple[float, float]], interval_s: float = 1.0, **sizes: int) -> History:
    history = History(**sizes)
    for at_s, value in seconds:
        history.append(at_s, {"busy": value}, interval_s)
    return history


def naive(points: list[tuple[float, float]], newest: int, count: int, width_s: float, until_s: float) -> list[float]:
    """Means of the points alone."""
    means = []
    for bucket in range(newest - count + 1, newest + 1):
        inside = [v for t, v in points if math.floor(t / width_s) == bucket and t <= until_s and not math.isnan(v)]
        means.append(math.fsum(inside) / len(inside) if inside else NAN)
    return means


def test_a_bucket_is_the_mean_of_its_wall_time_and_an_empty_one_a_gap() -> None:
    history = filled([(100.0, 1.0), (101.0, 3.0), (104.0, 5.0), (105.0, NAN), (106.0, 7.0)])
    means = history.buckets("busy", newest_bucket=53, count=4, width_s=2.0)
    assert means[0] == 2.0
    assert math.isnan(means[1])
    assert means[2:] == [5.0, 7.0]


def test_a_series_that_comes_late_or_goes_shows_gaps_there() -> None:
    history = History()
    for at in range(10):
        history.append(float(at), {"busy": 1.0} | ({"mfu": 2.0} if 3 <= at < 7 else {}))
    assert [not math.isnan(mean) for mean in history.buckets("mfu", 9, 10, 1.0)] == [3 <= at < 7 for at in range(10)]
    assert math.isnan(history.latest("mfu", 9.0))


def test_the_number_of_series_is_bounded() -> None:
    history = History(most_series=2)
    history.append(0.0, {str(key): 1.0 for key in range(2000)})
    history.append(1.0, {str(key): 1.0 for key in range(1995, 2005)})
    assert history.keys() == tuple(str(key) for key in range(2 + 1280))


def test_new_series_have_room_where_old_ones_have_no_value_any_more() -> None:
    """Engines that come and go for days, each under a name of its own: the newest one has a chart, too."""
    history = History(ticks=60, cells=24, most_series=4)
    for at in range(20_000):
        history.append(float(at), {"busy": 1.0, f"running:{at // 10}": 2.0})
    assert history.has_values("running:1999")
    assert history.latest("running:1999", 19_999.0) == 2.0
    assert history.latest("busy", 19_999.0) == 1.0
    assert not history.has_values("running:3")
    assert len(history.keys()) < 4 + 1920 / 10 + 60, "those of the last 32 minutes, for as long as short series reach"


def many(seconds: int) -> History:
    """A series with ticks and one beyond these, with the same values."""
    history = History(most_series=1)
    for at in range(seconds):
        history.append(float(at), {"busy": float(at // 5), "power:40": float(at // 5)})
    return history


@each_row("until_s", [1000.0, 1802.0, 2399.0])
def test_a_series_beyond_those_with_ticks_has_the_same_cells(until_s: float) -> None:
    history = many(2400)
    newest = int(until_s // CELL_S)
    of_ticks = history.buckets("busy", newest, 60, CELL_S, until_s)
    of_cells = history.buckets("power:40", newest, 60, CELL_S, until_s)
    is_whole = until_s % CELL_S == CELL_S - 1.0
    shown = 60 if is_whole else 59  # the cell that the moment lies in has what came after it
    assert [mean for mean in of_cells[:shown] if mean == mean] == [mean for mean in of_ticks[:shown] if mean == mean]
    assert is_whole or math.isnan(of_cells[-1])
    long_ago = history.buckets("power:40", 11, 5, CELL_S, until_s=59.0)
    assert all(math.isnan(mean) for mean in long_ago), "half an hour, and no longer"


def test_such_a_series_says_the_mean_of_its_newest_whole_cell() -> None:
    history = many(2400)
    assert history.latest("power:40", 2399.0) == 479.0
    assert history.latest("power:40", 2001.0) == 399.0
    assert math.isnan(history.latest("power:41", 2399.0))
    assert history.has_values("power:40")


def test_such_a_series_shows_a_gap_where_it_has_none() -> None:
    history = History(most_series=1)
    for at in range(60):
        history.append(float(at), {"busy": 1.0} | ({} if 20 <= at < 40 else {"power:40": 300.0}))
    means = history.buckets("power:40", 11, 12, CELL_S)
    assert [mean == mean for mean in means] == [at < 4 or at >= 8 for at in range(12)]


def test_points_after_the_bound_do_not_count() -> None:
    """What a paused display shows is the same however late it is drawn."""
    history = filled([(float(at), float(at)) for at in range(20)])
    before = history.buckets("busy", 3, 4, 5.0, until_s=17.0)
    assert before == [2.0, 7.0, 12.0, 16.0]
    history.append(19.5, {"busy": 1000.0})
    assert history.buckets("busy", 3, 4, 5.0, until_s=17.0) == before
    assert history.buckets("busy", 3, 4, 5.0) != before


@each_row("width_s", [3.0, 5.0, 10.0])
@each_row("later", range(10, 60, 7))
def test_a_pause_longer_than_every_tick_is_kept_never_shows_what_came_after(width_s: float, later: int) -> None:
    """The cell of the pause holds points of before and after it."""
    until_s = 51.5
    points = [(at * 0.5, float(at * 0.5 > until_s)) for at in range(104 + later)]
    history = filled(points, 0.5, ticks=20)
    means = history.buckets("busy", math.floor(until_s / width_s), 5, width_s, until_s)
    assert all(mean == 0.0 for mean in means[:-2])
    assert all(mean == 0.0 or math.isnan(mean) for mean in means)


def test_the_latest_value_is_that_of_the_moment_asked_for() -> None:
    history = History()
    history.append(10.0, {"busy": 0.5, "mfu": 0.1})
    history.append(11.0, {"busy": 0.6})
    assert history.latest("busy", 11.0) == pytest.approx(0.6)
    assert history.latest("busy", 10.0) == 0.5
    assert math.isnan(history.latest("mfu", 11.0))
    assert math.isnan(history.latest("unknown", 11.0))
    assert math.isnan(history.latest("busy", 10.5))


def test_the_latest_mean_is_of_the_seconds_before_and_a_gap_where_the_newest_is_one() -> None:
    history = History()
    for at, value in enumerate((8.0, 1.0, 2.0, math.nan, 6.0, 100.0)):
        history.append(10.0 + at, {"decode": value})
    assert history.latest("decode", 14.0, 4.0) == pytest.approx(3.0)
    assert history.latest("decode", 14.0) == 6.0
    assert history.latest("decode", 14.0, 60.0) == pytest.approx(17.0 / 4)
    assert math.isnan(history.latest("decode", 13.0, 60.0))


@each_row("interval_s", [0.25, 1.0, 5.0, 60.0])
@each_row(("span_s", "width_s"), [(60.0, 0.5), (300.0, 2.5), (600.0, 5.0), (3600.0, 20.0), (7200.0, 60.0)])
def test_every_span_is_there_at_every_interval(interval_s: float, span_s: float, width_s: float) -> None:
    """Two and a half hours of readings: the span before the newest one has no gap and the right means."""
    start_s, end_s = 1.76e9, 1.76e9 + 9000.0
    history = filled(
        [(start_s + at * interval_s, at * interval_s) for at in range(int(9000.0 / interval_s) + 1)], interval_s
    )
    count = round(span_s / width_s)
    newest = math.floor(end_s / width_s)
    means = history.buckets("busy", newest, count, width_s, end_s)
    for bucket, mean in zip(range(newest - count + 1, newest + 1), means, strict=True):
        middle_s = (bucket + 0.5) * width_s - start_s
        assert abs(mean - middle_s) <= width_s / 2 + interval_s, "a gap, or not the figure of that time"


@each_row("width_s", [0.5, 1.0, 2.5, 5.0, 7.5, 20.0, 60.0])
@each_row("outage_at_s", [2000.0, 8000.0])
def test_an_outage_stays_a_gap_in_both_tiers(width_s: float, outage_at_s: float) -> None:
    points = [(float(at), 1.0) for at in range(9000) if not outage_at_s < at < outage_at_s + 300]
    history = filled(points)
    first = math.floor(outage_at_s / width_s) - 3
    means = history.buckets("busy", first + round(400 / width_s), round(400 / width_s) + 1, width_s)
    gap_s = sum(width_s for mean in means if math.isnan(mean))
    assert 300.0 - 2 * width_s - CELL_S <= gap_s <= 300.0
    assert not any(math.isnan(mean) for mean in means[:3])


def test_a_skipped_slot_is_no_gap() -> None:
    points = [(at * 60.0, float(at)) for at in range(10) if at != 5]
    means = filled(points, 60.0).buckets("busy", 53, 54, 10.0)
    assert not any(math.isnan(mean) for mean in means)
    assert means[30] == 6.0


def test_a_long_interval_fills_its_buckets_but_not_an_outage() -> None:
    points = [(at * 60.0, float(at)) for at in range(20) if not 5 < at < 12]
    means = filled(points, 60.0).buckets("busy", 19, 20, 60.0)
    assert [at for at, mean in enumerate(means) if math.isnan(mean)] == [6, 7, 8, 9, 10]
    fine = filled(points, 60.0).buckets("busy", 114, 115, 10.0)
    gaps = [at for at, mean in enumerate(fine) if math.isnan(mean)]
    assert gaps == list(range(gaps[0], gaps[-1] + 1))
    assert 5 * 60 <= 10 * len(gaps) <= 6 * 60


def test_readings_keep_their_own_interval_when_it_changes() -> None:
    history = History()
    for at in range(10):
        history.append(at * 60.0, {"busy": 1.0}, 60.0)
    for at in range(541, 600):
        history.append(float(at), {"busy": 0.0}, 1.0)
    means = history.buckets("busy", 59, 60, 10.0)
    assert not any(math.isnan(mean) for mean in means)
    assert means[10] == 1.0


@given(
    st.lists(
        st.tuples(st.sampled_from([0.25, 0.3, 1.0, 1.1, 4.0, 30.0]), st.one_of(st.floats(0, 100), st.just(NAN))),
        min_size=1,
        max_size=150,
    ),
    st.sampled_from([5.0, 10.0, 15.0, 60.0]),
    st.integers(1, 40),
    st.integers(0, 40),
    st.integers(1, 30),
)
def test_over_both_tiers_means_are_those_of_the_points(
    steps: list[tuple[float, float]], width_s: float, count: int, back: int, ticks: int
) -> None:
    points, at_s = [], 1.76e9
    for step_s, value in steps:
        at_s += step_s
        points.append((at_s, value))
    history = filled(points, 0.1, ticks=ticks)
    until_s = points[max(-back - 1, -len(points))][0] if back < ticks else math.inf
    newest = math.floor(min(until_s, at_s) / width_s)
    got = history.buckets("busy", newest, count, width_s, until_s)
    expected = naive(points, newest, count, width_s, until_s)
    if until_s < math.inf and ticks <= len(points):  # the cell of that moment may have lost its single ticks
        got, expected = got[:-1], expected[:-1]
    assert got == pytest.approx(expected, nan_ok=True)


@given(
    st.lists(st.tuples(st.floats(0.2, 20.0), st.floats(0, 100)), min_size=1, max_size=80),
    st.sampled_from([0.5, 2.5, 3.0, 7.5, 12.0]),
    st.integers(1, 40),
)
def test_any_width_is_exact_while_every_tick_is_kept(
    steps: list[tuple[float, float]], width_s: float, count: int
) -> None:
    points, at_s = [], 1.76e9
    for step_s, value in steps:
        at_s += step_s
        points.append((at_s, value))
    newest = math.floor(at_s / width_s)
    got = filled(points, 0.1).buckets("busy", newest, count, width_s)
    expected = naive(points, newest, count, width_s, math.inf)
    assert got == pytest.approx(expected, nan_ok=True)


def test_a_clock_set_back_leaves_the_other_past_out() -> None:
    """An hour back: the wall times of both pasts overlap, and only what came after the step is shown."""
    history = filled([(float(at), 1.0) for at in range(3000, 3700)])
    for at in range(3100, 3200):
        history.append(float(at), {"busy": 0.0})
    for width_s in (50.0, 12.0, 2.0):
        newest = math.floor(3199 / width_s)
        means = history.buckets("busy", newest, math.floor(200 / width_s), width_s)
        inside = math.floor(99 / width_s)
        assert means[-inside:] == [0.0] * inside
        assert all(math.isnan(mean) for mean in means[: -inside - 2])
        assert math.isnan(history.buckets("busy", math.floor(3650 / width_s), 1, width_s)[0])


def test_a_clock_that_is_slewed_keeps_its_past() -> None:
    points = [(10.0, 1.0), (11.0, 2.0), (10.8, 3.0), (11.8, 4.0)]
    history = filled(points)
    assert history.buckets("busy", 11, 2, 1.0) == [2.0, 3.0]
    assert history.buckets("busy", 2, 1, 5.0) == [2.5]
    assert history.latest("busy", 11.0) == 2.0
