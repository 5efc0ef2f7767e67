"""Quantiles from bucket differences, against hand-worked numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency.quantiles import (
    histogram_quantile,
    longest,
    merge_common,
    observations_between,
    quantiles,
    size_biased_mean,
)
from gpumon.readings.frame import HistogramReading
from gpumon.readings.missing import Missing, Reason
from tests.accuracy.pages import Where, recorded, snapshots
from tests.efficiency.polls import there

INF = float("inf")


def histogram(*pairs: tuple[float, float], total: float) -> HistogramReading:
    return HistogramReading(tuple(bound for bound, _ in pairs), tuple(count for _, count in pairs), total, pairs[-1][1])


def test_the_median_is_linear_inside_its_bucket():
    # 100 observations, 40 at or below 10 ms, 60 between 10 and 20 ms: the 50th is the 10th of 60 in (10, 20].
    window = histogram((0.01, 40), (0.02, 100), (INF, 100), total=1.3)
    assert histogram_quantile(window, 0.5)[0] == pytest.approx(0.01 + 0.01 * 10 / 60)
    assert quantiles(window).mean == pytest.approx(0.013)


def test_an_answer_in_the_last_bucket_is_the_last_finite_bound():
    window = histogram((1.0, 10), (2.0, 20), (INF, 100), total=500.0)
    shown = quantiles(window)
    assert shown.p95 == 2.0
    assert shown.p95_low == 2.0
    assert shown.p95_high == Missing(Reason.INVALID)


def test_each_quantile_has_the_bounds_of_its_own_bucket():
    shown = quantiles(histogram((0.01, 60), (0.02, 96), (0.04, 98), (INF, 100), total=2.0))
    assert (shown.p50_low, shown.p50_high) == (0.0, 0.01)
    assert (shown.p95_low, shown.p95_high) == (0.01, 0.02)
    assert (shown.p99_low, shown.p99_high) == (0.04, Missing(Reason.INVALID))


def test_a_quantile_is_never_more_than_the_mean_allows():
    """Half of the requests cannot wait longer than twice the mean, however wide the first bucket is."""
    shown = quantiles(histogram((0.3, 100), (0.5, 100), (INF, 100), total=0.002))
    assert shown.p50 == pytest.approx(2 * 0.00002)
    assert shown.p95 == pytest.approx(20 * 0.00002)
    assert shown.p99 == pytest.approx(100 * 0.00002)
    assert (shown.p95_low, shown.p95_high, shown.first_bound_s) == (0.0, 0.3, 0.3)


def test_the_queue_of_a_recorded_engine_without_one_is_no_tenth_of_a_second():
    """vLLM's first bucket of the queue time is 0 to 300 ms."""
    snapshot = list(snapshots(recorded("vllm-basic"), Where()))[-1]
    queue = snapshot.engines[0].latency.queue_s
    assert there(queue.mean) < 0.001
    assert there(queue.p50) <= 2 * there(queue.mean)
    assert there(queue.p95) <= 20 * there(queue.mean) * (1 + 1e-9)
    assert queue.first_bound_s == 0.3


@given(st.lists(st.floats(1e-6, 100.0), min_size=20, max_size=60), st.sampled_from([0.5, 0.95, 0.99]))
def test_the_bound_of_the_mean_is_above_the_true_quantile(values: list[float], share: float):
    bounds = (200.0, INF)
    window = HistogramReading(bounds, (float(len(values)),) * 2, sum(values), float(len(values)))
    value, low, _ = histogram_quantile(window, share)
    true = sorted(values)[math.ceil(share * len(values)) - 1]
    assert low <= value <= sum(values) / len(values) / (1.0 - share)
    # In one bucket of 0 to 200 the interpolated value is far too high: the bound is what is shown, or less.
    assert min(share * 200.0, true) <= value * (1 + 1e-9)


def test_fewer_than_twenty_observations_give_the_mean_only():
    shown = quantiles(histogram((1.0, 19), (INF, 19), total=9.5))
    assert shown.p50 == Missing(Reason.FEW)
    assert shown.p95 == Missing(Reason.FEW)
    assert shown.mean == 0.5


def test_the_p99_of_fewer_than_a_hundred_is_their_largest_alone_and_not_given():
    few = quantiles(histogram((1.0, 90), (2.0, 98), (INF, 99), total=99.0))
    assert {few.p99, few.p99_low, few.p99_high} == {
        Missing(Reason.FEW, "fewer than 100 observations: the p99 is their largest alone")
    }
    assert few.p95 == pytest.approx(1.5, abs=0.1)
    assert quantiles(histogram((1.0, 90), (2.0, 99), (INF, 100), total=99.0)).p99 == 2.0


def test_no_observation_is_idle_and_no_zero():
    shown = quantiles(histogram((1.0, 0), (INF, 0), total=0.0))
    assert shown.mean == Missing(Reason.IDLE)
    assert shown.p95 == Missing(Reason.IDLE)


def test_a_fallen_bucket_is_a_reset_and_gives_nothing():
    old = histogram((1.0, 50), (INF, 60), total=80.0)
    assert observations_between(old, histogram((1.0, 40), (INF, 70), total=90.0)) is None
    assert observations_between(old, histogram((1.0, 5), (INF, 6), total=9.0)) is None
    assert observations_between(None, old) is None


def test_a_sum_and_a_count_alone_have_a_mean_and_no_quantiles():
    bare = histogram((INF, 50), total=100.0)
    shown = quantiles(bare)
    assert shown.mean == 2.0
    assert shown.p50 == shown.p95 == shown.p99_low == shown.first_bound_s == Missing(Reason.NOT_EXPOSED)
    assert longest(bare) == 2.0


def test_a_random_token_belongs_to_a_longer_prompt():
    # Nine prompts of about 100 and one of about 10000: (9*100^2 + 10000^2) / (9*100 + 10000) = 9183.
    window = histogram((0, 0), (200, 9), (9000, 9), (11000, 10), (INF, 10), total=10900)
    assert size_biased_mean(window) == pytest.approx(9183, rel=0.01)


@given(st.lists(st.integers(0, 50), min_size=2, max_size=12), st.floats(0.01, 0.99))
def test_a_quantile_lies_in_its_bucket(counts: list[int], share: float):
    if sum(counts[:-1]) == 0:
        counts[0] = 1
    cumulative, total = [], 0
    for count in counts:
        total += count
        cumulative.append(float(total))
    bounds = (*(float(2**at) for at in range(len(counts) - 1)), INF)
    window = HistogramReading(bounds, tuple(cumulative), 1.0, float(total))
    value, low, high = histogram_quantile(window, share)
    assert low <= value <= (bounds[-2] if isinstance(high, Missing) else high)
    below = sum(count for bound, count in zip(bounds, counts, strict=True) if bound < value)
    assert below <= share * total + 1e-9


def test_a_reading_without_buckets_has_the_sum_and_count_of_one_with_them():
    full = HistogramReading((1.0, 2.0, INF), (5.0, 8.0, 9.0), 14.0, 9.0)
    bare = HistogramReading((INF,), (12.0,), 20.0, 12.0)
    assert observations_between(full, bare) == HistogramReading((INF,), (3.0,), 6.0, 3.0)
    assert observations_between(bare, HistogramReading((1.0, INF), (5.0, 14.0), 26.0, 14.0)) == (
        HistogramReading((INF,), (2.0,), 6.0, 2.0)
    )
    assert observations_between(bare, full) is None


def test_twenty_observations_are_enough_for_a_quantile():
    shown = quantiles(histogram((1.0, 20), (INF, 20), total=10.0))
    # Linear in the bucket of 0 to 1 s: the 10th of 20.
    assert shown.p50 == pytest.approx(0.5)


def test_histograms_of_different_engines_are_added_on_three_common_bounds_and_not_on_two():
    one = histogram((1.0, 10), (2.0, 15), (4.0, 18), (INF, 20), total=40.0)
    three = histogram((0.5, 1), (1.0, 5), (2.0, 5), (4.0, 9), (INF, 10), total=30.0)
    assert merge_common([one, three]) == histogram((1.0, 15), (2.0, 20), (4.0, 27), (INF, 30), total=70.0)
    two = histogram((1.0, 5), (3.0, 6), (4.0, 9), (INF, 10), total=30.0)
    assert merge_common([one, two]) is None
