"""Counters to rates and totals: restarts, gaps, bunched polls, ranks that come and go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency.tracks import Track
from gpumon.readings.frame import Advance, EndpointState, EngineReading, RankReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reason
from gpumon.readings.quantities import DECODE_TOKENS, RUNNING
from tests.each_row import each_row
from tests.records import replace


def poll(
    at_s: float,
    *decoded: float,
    state: EndpointState = EndpointState.OK,
    started: float = 0.0,
    interval_s: float = 1.0,
    running: float = 1.0,
) -> EngineReading:
    ranks = tuple(
        RankReading(str(rank), {DECODE_TOKENS: tokens}, {RUNNING: running}, {}) for rank, tokens in enumerate(decoded)
    )
    return EngineReading("vllm:1", "http://x", state, at_s, interval_s=interval_s, started_wall_s=started, ranks=ranks)


def track(*polls: EngineReading) -> Track:
    found = Track()
    for one in polls:
        found.add(one, 1e9 + one.monotonic_s)
    return found


def test_a_rate_is_tokens_over_real_elapsed_time():
    found = track(poll(0.0, 1000), poll(1.0, 1100), poll(3.0, 1500))
    assert found.window(10.0).rate(DECODE_TOKENS) == pytest.approx(500 / 3)
    assert found.window(0.0).rate(DECODE_TOKENS) == pytest.approx(200)


def test_one_poll_gives_no_rate_and_no_zero():
    assert track(poll(0.0, 1000)).window(10.0).rate(DECODE_TOKENS) == Missing(Reason.WARMING_UP)
    assert track(poll(0.0, 1000), poll(1.0, 1001)).window(10.0).rate("unknown") == NOT_EXPOSED


def test_a_restart_gives_a_gap_and_keeps_the_totals():
    found = track(poll(0.0, 1000), poll(1.0, 1100), poll(2.0, 30))
    assert found.window(10.0).rate(DECODE_TOKENS) == Missing(Reason.RESET)
    assert found.totals[DECODE_TOKENS] == 100 + 30
    found.add(poll(3.0, 80), 1e9)
    assert found.window(10.0).rate(DECODE_TOKENS) == pytest.approx(50)
    assert found.totals[DECODE_TOKENS] == 100 + 80


def test_a_restart_that_overtook_the_old_counter_is_seen_by_its_start_time():
    old, new = 1e9 - 50, 1e9 + 1.5
    found = track(poll(0.0, 10, started=old), poll(1.0, 20, started=old), poll(2.0, 500, started=new))
    assert found.window(10.0).rate(DECODE_TOKENS) == Missing(Reason.RESET)
    assert found.totals[DECODE_TOKENS] == 10 + 500


def test_an_engine_that_started_while_watched_counts_from_zero():
    found = track(poll(0.0, state=EndpointState.REFUSED), poll(5.0, 40, started=1e9 + 3), poll(6.0, 60))
    assert found.totals[DECODE_TOKENS] == 60


def test_an_old_engine_behind_a_tunnel_that_came_up_late_counts_from_the_first_poll():
    refused = poll(0.0, state=EndpointState.REFUSED)
    found = track(refused, poll(5.0, 1e9, started=1e9 - 9999), poll(6.0, 1e9 + 20, started=1e9 - 9999))
    assert found.totals[DECODE_TOKENS] == 20


def test_a_counter_that_fell_adds_only_its_own_value():
    # Rank 1 restarts; rank 0 stands at a billion and has nothing to do with it.
    found = track(poll(0.0, 1e9, 500), poll(1.0, 1e9, 15))
    assert found.totals[DECODE_TOKENS] == 15


@each_row("started", [0.0, 1e9 - 50])
@each_row("answers", [1, 3])
def test_a_part_of_a_sum_that_answers_lack_is_no_spike_when_it_is_back(started: float, answers: int):
    """A counter is the sum of several series, and one of them is missing for a while."""
    polls = [
        poll(float(at), 2e6 + 100 * at - (1e6 if 4 <= at < 4 + answers else 0), started=started) for at in range(12)
    ]
    found, rates = Track(), []
    for one in polls:
        found.add(one, 1e9 + one.monotonic_s)
        rates += [found.window(seconds).rate(DECODE_TOKENS) for seconds in (10.0, 60.0)]
    known = [rate for rate in rates if not isinstance(rate, Missing)]
    assert known == pytest.approx([100.0] * len(known))
    assert len(known) >= 2 * (12 - 3 - answers)
    assert found.totals[DECODE_TOKENS] == pytest.approx(1100, abs=100 * answers)


def test_two_servers_behind_one_url_are_named_and_add_nothing_impossible():
    one, two = 1e9 - 100, 1e9 - 900
    found = track(*(poll(float(at), 5e6 if at % 2 else 10.0, started=one if at % 2 else two) for at in range(20)))
    assert found.several_servers
    assert found.totals[DECODE_TOKENS] == 0


def test_a_rank_that_joins_is_no_spike():
    found = track(poll(0.0, 0), poll(1.0, 100), poll(2.0, 200, 1e6), poll(3.0, 300, 1e6 + 100))
    assert found.window(0.0).rate(DECODE_TOKENS) == pytest.approx(200)
    assert found.totals[DECODE_TOKENS] == 300 + 100


def test_a_rank_that_joins_or_goes_counts_as_far_as_it_was_seen():
    """The window of 10 s has 1 s of the second rank, which gave 100 tokens in it; later that one is gone."""
    found = track(poll(0.0, 0), poll(1.0, 100), poll(2.0, 200, 1e6), poll(3.0, 300, 1e6 + 100))
    assert found.window(10.0).rate(DECODE_TOKENS) == pytest.approx(100 + 100)
    assert found.window(10.0).increase(DECODE_TOKENS) == 300 + 100
    gone = track(
        *(poll(float(at), at * 100, *([1e6 + at * 100] if at < 10 else [])) for at in range(25)),
    )
    assert len(gone.points[-1].ranks) == 1
    assert gone.window(100.0).rate(DECODE_TOKENS) == pytest.approx(100)
    assert gone.window(100.0).increase(DECODE_TOKENS) == 2400 + 900


def test_bunched_polls_do_not_make_a_spike():
    # Two late answers 10 ms apart: 50 tokens in 10 ms would read 5000 tok/s.
    found = track(poll(0.0, 0), poll(1.0, 100), poll(2.9, 250), poll(2.91, 300), poll(3.9, 400))
    assert found.window(0.0).rate(DECODE_TOKENS) == pytest.approx(150.0)
    assert found.totals[DECODE_TOKENS] == 400


def test_a_long_pause_starts_the_window_over_but_loses_no_token():
    found = track(poll(0.0, 0), poll(1.0, 100), poll(60.0, 5000))
    assert found.window(10.0).rate(DECODE_TOKENS) == Missing(Reason.WARMING_UP)
    assert found.totals[DECODE_TOKENS] == 5000


def test_ranks_are_summed_and_one_that_is_absent_once_is_not_gone():
    found = track(poll(0.0, 100, 1000), poll(1.0, 150, 1100), poll(2.0, 200), poll(3.0, 250, 1300))
    assert found.totals[DECODE_TOKENS] == 150 + 300
    assert found.window(10.0).rate(DECODE_TOKENS) == pytest.approx(450 / 3)


@each_row("started", [0.0, 1e9 - 99])
def test_an_old_answer_that_comes_late_adds_nothing(started: float):
    found = track(*(poll(float(at), tokens, started=started) for at, tokens in enumerate((1000, 1100, 1050, 1200))))
    assert found.totals[DECODE_TOKENS] == 200


def test_a_gauge_that_one_rank_does_not_tell_any_more_is_no_sum():
    one, other = RankReading("0", {}, {RUNNING: 5.0}, {}), RankReading("1", {}, {RUNNING: 0.0}, {})
    both = replace(poll(0.0), ranks=(one, other))
    lost = replace(poll(1.0), ranks=(replace(one, gauges={}), other))
    assert track(both).gauge(RUNNING) == 5.0
    assert track(both, lost).gauge(RUNNING) == NOT_EXPOSED


def test_a_counter_that_moves_otherwise_than_before_is_another_series():
    def moving(at_s: float, tokens: float, advance: Advance) -> EngineReading:
        told = {"live": {DECODE_TOKENS: "x"}, "advance": {DECODE_TOKENS: advance}}
        return replace(poll(at_s, tokens), **told)

    found = track(moving(0.0, 0, Advance.DERIVED), moving(1.0, 9000, Advance.END), moving(2.0, 9005, Advance.END))
    assert found.totals[DECODE_TOKENS] == 5


def test_memory_is_bounded():
    found = track(*(poll(float(at), float(at)) for at in range(5000)))
    assert len(found.points) <= 63


@given(st.lists(st.tuples(st.floats(0.01, 5.0), st.integers(0, 1000)), min_size=2, max_size=60))
def test_no_sequence_of_polls_gives_a_negative_rate(steps: list[tuple[float, int]]):
    found, at_s = Track(), 0.0
    for wait_s, tokens in steps:
        at_s += wait_s
        found.add(poll(at_s, float(tokens)), 1e9)
        rate = found.window(10.0).rate(DECODE_TOKENS)
        assert isinstance(rate, Missing) or 0.0 <= rate <= 2000 / 0.5 + 1e-6
    assert found.totals[DECODE_TOKENS] >= 0


@each_row(("moved_s", "same"), [(0.9, True), (-0.9, True), (1.5, False)])
def test_a_start_time_that_moves_by_less_than_a_second_is_of_the_same_process(moved_s: float, same: bool):
    """Exporters work it out from clock ticks and a boot time in whole seconds."""
    started = 1e9 - 500
    found = track(poll(0.0, 100, started=started), poll(1.0, 150, started=started + moved_s))
    assert found.window(10.0).rate(DECODE_TOKENS) == (50.0 if same else Missing(Reason.RESET))


def test_a_window_is_as_long_as_asked_for_within_half_of_the_newest_interval():
    """The newest poll came after 1.4 s: the window of 10 s begins up to 0.7 s before its time, so 0.4 s."""
    found = track(*(poll(float(at), 10.0 * at) for at in range(12)), poll(12.4, 124))
    assert found.window(10.0).length_s == pytest.approx(10.4)
    assert found.window(10.0).rate(DECODE_TOKENS) == pytest.approx(104 / 10.4)


def test_a_poll_is_kept_until_no_window_can_begin_at_it():
    found = track(*(poll(float(at), 10.0 * at) for at in range(100)), poll(100.4, 1004))
    assert found.window(60.0).length_s == pytest.approx(60.4)
    assert found.points[0].monotonic_s == 40.0
