"""Totals within 1% and 10 s rates within 5% of what the client counted, on replays at recorded speed.

One variant is an engine's own gauge: its bound says how far that may be off.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from gpumon.efficiency.goodput import share_within
from gpumon.readings.frame import EndpointState
from gpumon.readings.goals import HTTP_S
from gpumon.readings.missing import Missing, number
from tests.accuracy.judged import Result
from tests.accuracy.replay import CAPTURES, WITHOUT_TOKENS, judge, replay_of
from tests.accuracy.requests import COMPARED, first_tokens, got, quantile
from tests.accuracy.tables import BEGIN, END, HEAD, NOT_LIVE, row, table, write

STARVED = "vllm-starved-host"
"""Recorded by a scraper that was itself starved: its rates are no truth, its totals are."""


NOT_LIVE_HERE = frozenset({"llamacpp-two-scrapers", "llamacpp-lifecycle"})
"""Recorded without /slots: only ended answers are counted."""
WIDE = frozenset({"llamacpp-basic", "prometheus-api", "vllm-poisson"})
"""Captures of an engine and a version that others are of, too: vllm-basic, llamacpp-slots."""


def wide_of(names: Iterable[str]) -> list[ParameterSet]:
    """Cases of a test, by capture."""
    return [pytest.param(name, marks=pytest.mark.wide if name in WIDE else ()) for name in names]


@functools.cache
def result_of(name: str) -> Result:
    """What a replay came to, judged once for all tests."""
    return judge(replay_of(name))


@pytest.mark.parametrize("name", wide_of(CAPTURES))
def test_totals_are_what_the_client_counted(name: str):
    result = result_of(name)
    assert result.decode_truth > 1000
    # What an engine was answering when it was killed is in no counter of ended answers.
    assert result.decode_error <= (0.1 if name == "llamacpp-lifecycle" else 0.01)
    assert result.prompt_error <= 0.01


@pytest.mark.parametrize("name", wide_of([name for name in CAPTURES if name != STARVED]))
def test_steady_rates_are_what_the_client_saw(name: str):
    result = result_of(name)
    assert result.rate_error <= 0.05


def test_enough_steady_windows_were_compared():
    assert sum(len(result_of(name).rate_errors) for name in CAPTURES if name not in {STARVED, *WIDE}) >= 60


@pytest.mark.parametrize("name", wide_of(CAPTURES))
def test_nothing_is_negative_and_nothing_spikes(name: str):
    result = result_of(name)
    assert not result.negative
    assert (result.highest_rate > 0) is (name not in NOT_LIVE_HERE)
    assert result.highest_rate <= 1.5 * result.highest_truth


def test_a_restart_is_a_gap_and_not_a_zero():
    ticks = replay_of("vllm-lifecycle").ticks
    down = [tick for tick in ticks if tick.reading.state is EndpointState.REFUSED]
    assert len(down) > 20
    assert all(isinstance(tick.engine.rates.decode_tokens_per_s, Missing) for tick in down)
    assert all(tick.decode_tick != tick.decode_tick for tick in down), "a gap in the chart"
    assert any(tick.reading.state is EndpointState.OK for tick in ticks[ticks.index(down[-1]) - 60 :])


def test_a_hung_server_goes_stale_and_comes_back():
    states = [tick.reading.state for tick in replay_of("vllm-hang-and-dead-engine").ticks]
    hung = states.index(EndpointState.TIMEOUT)
    assert EndpointState.OK in states[hung:]
    assert states[-1] is EndpointState.REFUSED


BUSY = frozenset({"vllm-0.9", "sglang-two-scrapers"})
"""Recorded beside other work: the client waited for the CPU itself, up to 40 ms a request, so its times are not the
engine's. Their tokens, which are exact, are compared like all others."""


@pytest.mark.parametrize("name", wide_of([name for name in CAPTURES if name not in {STARVED, *BUSY}]))
def test_what_stands_beside_the_tokens_is_what_the_client_saw(name: str):
    beside = result_of(name).beside
    for told, truth in (beside.cached, beside.requests):
        assert told == truth or told != told or truth != truth
    shown, client = beside.in_flight
    assert shown == pytest.approx(client, abs=0.25)
    told, truth = beside.ttft_s
    # It is taken inside the engine: it misses HTTP and the client.
    assert told != told or truth != truth or truth - 0.02 <= told <= truth
    told, truth = beside.itl_s
    assert told != told or truth != truth or told == pytest.approx(truth, rel=0.2)


@pytest.mark.parametrize("name", wide_of(COMPARED))
def test_shares_within_the_goals_are_those_of_the_clients_own_times(name: str):
    requests = got(replay_of(name))
    # SGLang's page has this mean from 0.5.22 on; all of these have the others.
    shares = (requests.ttft, requests.tpot, requests.itl)
    assert [share.is_shown for share in shares] == [True, True, True]
    assert max(share.error for share in shares) <= 0.05


@pytest.mark.parametrize("name", wide_of(COMPARED))
def test_whatever_the_goal_the_clients_share_lies_in_the_band_that_http_and_buckets_leave(name: str):
    observed, waits = first_tokens(replay_of(name))
    for tenth in range(1, 20):
        goal_s = quantile(waits, tenth / 20.0)
        client = sum(wait <= goal_s for wait in waits) / len(waits)
        band = share_within(observed, goal_s, HTTP_S)
        least, most = number(band.users_low_ratio), number(band.high_ratio)
        assert least is not None
        assert most is not None
        # A request whose first token fell beside the edge of the span is in one of the two alone.
        assert least - 1.5 / len(waits) <= client <= most + 1.5 / len(waits), goal_s


@pytest.mark.parametrize("name", wide_of(COMPARED))
def test_lengths_outcomes_and_phases_are_those_of_the_clients_requests(name: str):
    requests = got(replay_of(name))
    assert requests.ended[0] == requests.ended[1]
    for length in (requests.prompt, requests.answer):
        assert length.mean_error <= 0.01
        assert length.in_buckets or isinstance(length.shown.p95, Missing)
    shown_s, client_s = requests.e2e_s
    assert client_s - 0.1 <= shown_s <= client_s, "the client's time has HTTP in it"


@pytest.mark.parametrize("name", WITHOUT_TOKENS)
def test_a_server_without_tokens_has_its_requests_counted(name: str):
    result = result_of(name)
    assert result.beside.requests[0] == result.beside.requests[1] > 4000
    assert result.beside.items[0] == result.beside.items[1] > 20000
    assert row(result)[HEAD.index("decode tokens")] == "–"


def test_the_gauge_of_an_old_sglang_is_near_and_its_totals_are_right():
    result = result_of("sglang-basic as before 0.5.7")
    assert (result.live, result.decode_error, result.prompt_error) == ("sampled", 0.0, 0.0)
    assert 0.0 < sum(result.rate_errors) / len(result.rate_errors) <= 0.10


def test_llama_cpp_without_slots_has_right_totals_and_no_rate_of_now():
    result = result_of("llamacpp-slots without /slots")
    assert (result.live, result.decode_error, result.rate_errors) == ("end", 0.0, ())


def test_the_tables_say_what_is_not_live_and_go_between_the_markers(tmp_path: Path):
    result = result_of("sglang-basic")
    assert NOT_LIVE not in row(result)
    assert row(result._replace(live="end")).count(NOT_LIVE) == 2
    document = tmp_path / "accuracy.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    text = table([result])
    write(document, text)
    write(document, text)
    assert document.read_text() == f"before\n{BEGIN}\n\n{text}\n\n{END}\nafter\n"


def test_a_server_that_hangs_and_dies_is_told_apart():
    states = {tick.reading.state for tick in replay_of("llamacpp-lifecycle").ticks}
    assert states >= {EndpointState.REFUSED, EndpointState.OK, EndpointState.TIMEOUT}
