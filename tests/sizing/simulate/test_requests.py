"""Arrivals and lengths: rates, bursts, distributions, clients that wait for their answers."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import mean, pstdev

import pytest

from gpumon.sizing.simulate.requests import (
    MOST_REQUESTS,
    ArrivalPace,
    Clients,
    RequestShape,
    constant,
    histogram,
    lognormal,
    paced,
    steady,
)
from tests.each_row import each_row

PLAIN = RequestShape(constant(100), constant(10))


@each_row(("burstiness", "variation"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5)])
def test_gaps_have_the_rate_and_the_bursts(burstiness: float, variation: float) -> None:
    requests = steady(10.0, 2000.0, PLAIN, 1, burstiness)
    gaps = [later.arrival_s - earlier.arrival_s for earlier, later in pairwise(requests)]
    assert len(requests) == pytest.approx(20_000, rel=0.04)
    assert pstdev(gaps) / mean(gaps) == pytest.approx(variation, rel=0.05)


def test_lengths_have_the_mean_and_the_tail() -> None:
    random = Random(1)
    lengths = [lognormal(500, 1.0)(random) for _ in range(50_000)]
    assert mean(lengths) == pytest.approx(500, rel=0.03)
    assert pstdev(lengths) / mean(lengths) == pytest.approx(1.0, rel=0.06)
    assert lognormal(500, 0.0)(random) == 500


def test_a_histogram_draws_from_its_buckets() -> None:
    random = Random(1)
    draw = histogram([10.0, 100.0], [3.0, 1.0, 0.0])
    lengths = [draw(random) for _ in range(10_000)]
    assert sum(length <= 10.0 for length in lengths) == pytest.approx(7_500, rel=0.03)
    assert max(lengths) <= 100.0
    with pytest.raises(ValueError, match="needs counts"):
        histogram([10.0], [0.0, 0.0])


def test_a_rate_that_changes() -> None:
    requests = paced(
        [ArrivalPace(0.0, 100.0, 2.0), ArrivalPace(100.0, 200.0, 0.0), ArrivalPace(200.0, 300.0, 20.0)], PLAIN, 1
    )
    parts = [sum(start <= one.arrival_s < start + 100.0 for one in requests) for start in (0.0, 100.0, 200.0)]
    assert parts[0] == pytest.approx(200, rel=0.2)
    assert parts[1] == 0
    assert parts[2] == pytest.approx(2000, rel=0.08)
    assert requests == sorted(requests)


def test_no_request_is_longer_than_the_model_takes() -> None:
    shape = RequestShape(lognormal(1000, 2.0), lognormal(500, 2.0), longest=2048)
    assert max(one.prompt + one.answer for one in steady(10.0, 300.0, shape, 1)) <= 2048


def test_too_many_are_refused() -> None:
    with pytest.raises(ValueError, match="too many to simulate"):
        steady(MOST_REQUESTS, 2.0, PLAIN, 1)


def test_clients_send_the_next_one_after_the_answer_and_a_pause() -> None:
    clients = Clients(4, 100.0, PLAIN, 1, think_s=5.0, spread_s=8.0)
    assert [one.arrival_s for one in clients.first()] == [0.0, 2.0, 4.0, 6.0]
    sent = clients.first()[0]
    following = [one for _ in range(400) if (one := clients.after(sent, 50.0)) is not None]
    assert mean(one.arrival_s - 50.0 for one in following) == pytest.approx(5.0, rel=0.15)
    assert Clients(1, 10.0, PLAIN, 1).after(sent, 10.0) is None
