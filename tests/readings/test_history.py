"""Rings with gaps, and buckets of wall time."""

from __future__ import annotations

import math

from gpumon.readings.history import History, Ring

NAN = math.nan


def test_a_ring_keeps_the_newest():
    ring = Ring(3)
    for at in range(5):
        ring.append(float(at), at * 10.0)
    assert list(ring.since(0.0)) == [(4.0, 40.0), (3.0, 30.0), (2.0, 20.0)]
    assert list(ring.since(4.0)) == [(4.0, 40.0)]


def test_a_bucket_is_the_mean_of_its_wall_time_and_an_empty_one_a_gap():
    history = History()
    for at, value in ((100.0, 1.0), (101.0, 3.0), (104.0, 5.0), (105.0, NAN), (106.0, 7.0)):
        history.append(at, {"busy": value})
    means = history.buckets("busy", newest_bucket=53, count=4, width_s=2.0)
    assert means[0] == 2.0
    assert math.isnan(means[1])
    assert means[2:] == [5.0, 7.0]


def test_a_bucket_with_nothing_but_gaps_is_a_gap():
    history = History()
    history.append(10.0, {"mfu": NAN})
    assert all(math.isnan(value) for value in history.buckets("mfu", 10, 5, 1.0))
    assert all(math.isnan(value) for value in history.buckets("unknown", 10, 5, 1.0))


def test_old_buckets_do_not_change_when_a_new_point_comes():
    history = History()
    for at in range(60):
        history.append(float(at), {"busy": float(at)})
    before = history.buckets("busy", 11, 12, 5.0)
    history.append(60.0, {"busy": 0.0})
    after = history.buckets("busy", 12, 12, 5.0)
    assert after[:-1] == before[1:]


def test_the_number_of_series_is_bounded():
    history = History(capacity=4, most_series=2)
    history.append(0.0, {str(key): 1.0 for key in range(10)})
    assert len(history.keys()) == 2


def test_points_after_the_bound_do_not_count():
    """What a paused display shows is the same however late it is drawn."""
    history = History()
    for at in range(20):
        history.append(float(at), {"busy": float(at)})
    before = history.buckets("busy", 3, 4, 5.0, until_s=17.0)
    assert before == [2.0, 7.0, 12.0, 16.0]
    history.append(19.5, {"busy": 1000.0})
    assert history.buckets("busy", 3, 4, 5.0, until_s=17.0) == before
    assert history.buckets("busy", 3, 4, 5.0) != before


def test_the_latest_value_is_that_of_the_moment_asked_for():
    history = History()
    history.append(10.0, {"busy": 0.5, "mfu": 0.1})
    history.append(11.0, {"busy": 0.6})
    assert history.latest("busy", 11.0) == 0.6
    assert history.latest("busy", 10.0) == 0.5
    assert math.isnan(history.latest("mfu", 11.0))
    assert math.isnan(history.latest("unknown", 11.0))


def test_a_clock_set_back_leaves_the_other_past_out():
    """An hour back: the wall times of both pasts overlap, and only what came after the step is shown."""
    history = History()
    for at in range(3000, 3700):
        history.append(float(at), {"busy": 1.0})
    for at in range(3100, 3200):
        history.append(float(at), {"busy": 0.0})
    means = history.buckets("busy", 63, 4, 50.0)
    assert means[2:] == [0.0, 0.0]
    assert all(math.isnan(mean) for mean in means[:2])
    assert math.isnan(history.buckets("busy", 73, 1, 50.0)[0])


def test_a_clock_that_is_slewed_keeps_its_past():
    ring = Ring(4)
    for at in (10.0, 11.0, 10.8, 11.8):
        ring.append(at, at)
    assert [time_s for time_s, _ in ring.since(0.0)] == [11.8, 10.8, 11.0, 10.0]
