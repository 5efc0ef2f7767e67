"""Totals and shares of a capture are the same on the screen, in a report, in the exporter and in a Prometheus."""

from __future__ import annotations

import functools

import pytest

from tests.accuracy.accounts import Accounts, accounts_of, table
from tests.accuracy.replay import GOALS, USUAL_GOALS, replay_of


@functools.cache
def accounts_in(name: str) -> Accounts:
    """The accounts of a capture."""
    return accounts_of(replay_of(name), GOALS.get(name, USUAL_GOALS))


@pytest.mark.parametrize("name", ["vllm-basic", "vllm-dp2", "sglang-basic", "sglang-two-scrapers", "llamacpp-slots"])
def test_every_way_out_has_the_same_account(name: str):
    accounts = accounts_in(name)
    assert accounts.screen.decode is not None
    assert accounts.screen.prompt is not None
    assert accounts.report.decode == accounts.screen.decode
    assert accounts.report.prompt == accounts.screen.prompt
    assert accounts.exporter == accounts.prometheus == accounts.screen
    # These are shorter than 2 minutes, so that the screen's share is that of the whole.
    assert accounts.report.ttft == accounts.screen.ttft
    assert table([accounts]).count(accounts.screen.tokens_text) == 4
    assert accounts.report.unused_cost == accounts.screen.unused_cost
    assert accounts.report.energy_cost == pytest.approx(accounts.screen.energy_cost)
    # A request is served for as long as it is in flight, and polls come every 2 s.
    assert accounts.screen.unused_cost is not None
    assert 0.3 * accounts.idle_s < accounts.screen.unused_cost < accounts.idle_s + 2.0


@pytest.mark.parametrize("name", ["vllm-basic", "llamacpp-slots", "vllm-poisson"])
def test_a_rate_is_of_the_time_that_was_recorded(name: str):
    accounts = accounts_in(name)
    # Tokens of up to half a second are on their way to the client at the ends of the two parts of some 18 s.
    assert accounts.seen_per_s == pytest.approx(accounts.arrived_per_s, rel=0.07)
    assert accounts.compared_per_s == pytest.approx(accounts.seen_per_s, rel=0.001)


def test_an_answer_that_is_shown_twice_is_no_second_without_a_request():
    """An engine polled every 2 s on a screen of 1 s: by every other frame nothing was counted."""
    accounts = accounts_in("vllm-starved-host")
    assert accounts.screen.unused_cost == accounts.report.unused_cost == pytest.approx(accounts.idle_s, abs=1.0)


def test_a_report_has_the_tokens_of_an_engine_that_restarted_and_ended():
    accounts = accounts_in("vllm-lifecycle")
    assert accounts.report.decode == accounts.screen.decode == 11_953.0
