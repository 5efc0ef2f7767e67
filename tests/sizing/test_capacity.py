"""Erlang C against its table and a direct sum, Little's law against sweeps."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sizing import capacity
from gpumon.sizing.design_guide import guide_profiles
from gpumon.sizing.latency import response_s

NIM = list(csv.DictReader((Path(__file__).parents[1] / "data" / "nim_runs.csv").read_text().splitlines()))

TABLE = {
    8: (0.65, 0.48, 0.36),
    16: (0.75, 0.61, 0.51),
    32: (0.82, 0.72, 0.63),
    64: (0.87, 0.80, 0.73),
    128: (0.91, 0.85, 0.80),
    256: (0.93, 0.89, 0.86),
}
"""Sizing fact sheet, capacity: slots -> highest load where 20, 5 and 1 % of the requests wait."""


@pytest.mark.parametrize("slots", TABLE)
def test_erlang_table(slots: int) -> None:
    for wait_ratio, load in zip((0.20, 0.05, 0.01), TABLE[slots], strict=True):
        below, above = (capacity.erlang_c(slots, at * slots) for at in (load - 0.01, load + 0.01))
        assert below <= wait_ratio < above


@pytest.mark.parametrize(("slots", "load"), [(1, 0.5), (2, 1.0), (5, 4.9), (8, 3.0), (30, 20.0), (100, 99.0)])
def test_erlang_c_is_the_textbook_sum(slots: int, load: float) -> None:
    waiting = load**slots / math.factorial(slots) * slots / (slots - load)
    idle = sum(load**k / math.factorial(k) for k in range(slots))
    assert capacity.erlang_c(slots, load) == pytest.approx(waiting / (idle + waiting), rel=1e-9)


def test_one_slot_waits_as_often_as_it_is_busy() -> None:
    assert capacity.erlang_c(1, 0.25) == pytest.approx(0.25)


@pytest.mark.parametrize("load", [0.0, 1.0, 10.0, 5e5, 9.99e5])
def test_a_million_slots(load: float) -> None:
    assert 0.0 <= capacity.erlang_c(1_000_000, load) < 0.25
    assert capacity.erlang_c(1, 1e6) == 1.0


@pytest.mark.parametrize("share", [0.97, 0.99, 0.995, 0.999])
def test_the_limit_for_many_slots_joins_the_exact_form(share: float) -> None:
    exact = capacity.erlang_c(100_000, share * 100_000)
    assert capacity.erlang_c(100_001, share * 100_001) == pytest.approx(exact, abs=1e-3)


def test_all_requests_wait_at_and_above_the_slots() -> None:
    assert capacity.erlang_c(4, 4.0) == 1.0
    assert capacity.erlang_c(4, 1e6) == 1.0


@given(slots=st.integers(1, 3_000), share=st.floats(0.0, 1.2), more=st.floats(0.0, 0.5))
def test_more_load_waits_more(slots: int, share: float, more: float) -> None:
    waits = capacity.erlang_c(slots, share * slots)
    assert 0.0 <= waits <= 1.0
    assert capacity.erlang_c(slots, (share + more) * slots) >= waits - 1e-9


@given(slots=st.integers(1, 2_000), load=st.floats(0.0, 2_000.0))
def test_one_more_slot_never_waits_more(slots: int, load: float) -> None:
    assert capacity.erlang_c(slots + 1, load) <= capacity.erlang_c(slots, load) + 1e-9


@given(slots=st.integers(1, 500), share=st.floats(0.0, 0.99), factor=st.integers(2, 4))
def test_pooling_gains(slots: int, share: float, factor: int) -> None:
    assert capacity.erlang_c(slots * factor, share * slots * factor) <= capacity.erlang_c(slots, share * slots) + 1e-9


@pytest.mark.parametrize("row", [row for row in NIM if row["prompt"] == "5000"], ids=lambda row: row["offered"])
def test_littles_law_on_the_5000_500_sweeps(row: dict[str, str]) -> None:
    """Ten rows of two models, 250 users past the knee too: rate x time = what the client held open."""
    took = response_s(float(row["ttft_ms"]) / 1e3, float(row["itl_ms"]) / 1e3, float(row["answer"]))
    rate = float(row["tokens_per_s"]) / float(row["answer"])
    assert rate * took == pytest.approx(float(row["offered"]), rel=0.01)


def test_littles_law_on_the_design_guide() -> None:
    """Dell H19686 table 10: 4 / 14.5 = 276 ms against 275, 397 / 396, 1108 / 1101, 1103 / 1100."""
    swept = [row for row in guide_profiles() if row.points]
    assert len(swept) == 4
    for row in swept:
        point = row.points[0]
        assert point.requests_per_s is not None
        assert point.e2e_s is not None
        assert row.concurrency is not None
        assert row.concurrency / point.requests_per_s == pytest.approx(point.e2e_s, rel=0.01)


def test_users_are_not_requests() -> None:
    assert capacity.in_flight(500, 10.0, 30.0) == 125.0
    assert capacity.in_flight(500, 10.0, 0.0) == 500.0
    assert capacity.in_flight(0, 10.0, 30.0) == 0.0
    assert response_s(0.5, 0.02, 101) == pytest.approx(2.5)
    assert response_s(0.5, 0.02, 0) == 0.5


@given(users=st.floats(0.0, 1e9), response=st.floats(1e-3, 1e5), think=st.floats(0.0, 1e6))
def test_never_more_in_flight_than_users(users: float, response: float, think: float) -> None:
    assert 0.0 <= capacity.in_flight(users, response, think) <= users


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: capacity.erlang_c(0, 1.0), "slots"),
        (lambda: capacity.erlang_c(4, -1.0), "load"),
        (lambda: capacity.erlang_c(4, math.nan), "load"),
        (lambda: capacity.in_flight(-1, 1.0, 1.0), "users"),
        (lambda: capacity.in_flight(1, 0.0, 0.0), "response_s"),
        (lambda: capacity.in_flight(1, 1.0, -1.0), "think_s"),
        (lambda: response_s(1.0, math.inf, 10), "itl_s"),
    ],
)
def test_impossible_inputs_are_named(call: object, named: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=named):
        call()
