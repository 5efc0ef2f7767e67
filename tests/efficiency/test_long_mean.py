"""The mean of the last minutes: right in the long run for every engine, and never a spike."""

from __future__ import annotations

import random

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EndpointState, EngineReading
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sources.packaged import gpu_catalogue
from tests.efficiency.polls import INF, frame, moving, observed, only, poll, rank, there, tracked, why
from tests.records import replace

ENDED = moving(Advance.END, q.DECODE_TOKENS)


def means(found: list[object]) -> list[Reading]:
    return [only(each.snapshot).rates.decode_mean_tokens_per_s for each in found]


def requests(at_s: float, rng_seed: int = 1) -> float:
    """Tokens of the requests that ended before `at_s`: one of 20 to 60 s and 300 to 900 tokens after the other."""
    rng, now_s, tokens = random.Random(rng_seed), 0.0, 0.0
    while True:
        length_s = rng.uniform(20.0, 60.0)
        now_s += length_s
        if now_s > at_s:
            return tokens
        tokens += length_s * 15.0


def test_of_requests_counted_at_their_end_it_is_right_in_the_long_run_and_no_spike():
    """One request at a time at 15 tokens/s: what is under way at the edges is all that the mean can be off by."""
    seen = means(tracked(lambda at_s: poll(at_s, rank({q.DECODE_TOKENS: requests(at_s)}), advance=ENDED), seconds=1500))
    known = [there(reading) for reading in seen if not isinstance(reading, Missing)]
    assert max(known) < 2.0 * 15.0
    assert all(isinstance(reading, Missing) for reading in seen[:30])
    full = [there(reading) for reading in seen[310:]]
    assert max(abs(mean - 15.0) for mean in full) <= 15.0 * 60.0 / 590.0


def test_a_request_that_took_minutes_is_spread_over_them():
    """20000 tokens of a request of 8 minutes end a minute after gpumon came: 333 tokens/s would be a spike of 8."""

    def engine(at_s: float) -> EngineReading:
        ended = 1.0 if at_s >= 62 else 0.0
        took = observed(ended, 480.0, (60.0, 480.0, INF))
        return poll(at_s, rank({q.DECODE_TOKENS: ended * 20_000.0}, {}, {q.E2E: took}), advance=ENDED)

    seen = means(tracked(engine, seconds=700))
    assert max(there(reading) for reading in seen if not isinstance(reading, Missing)) < 20_000 / 470.0


def test_a_restart_loses_nothing_and_makes_no_spike():
    def engine(at_s: float) -> EngineReading:
        since_s = at_s if at_s < 100 else at_s - 100
        return poll(at_s, rank({q.DECODE_TOKENS: since_s * 40.0}))

    seen = [there(reading) for reading in means(tracked(engine, seconds=400))[6:]]
    assert max(seen) <= 40.0 + 1e-6
    assert min(seen) >= 40.0 * (1 - 2 / 90)


def test_a_gap_counts_with_its_tokens_and_its_time():
    deriver = Deriver(gpu_catalogue())
    for at in (*range(0, 60, 2), *range(200, 260, 2)):
        one = poll(float(at), rank({q.DECODE_TOKENS: at * 40.0}))
        shown = only(deriver.derive(frame(at, (), (one,))).snapshot)
    assert there(shown.rates.decode_mean_tokens_per_s) == pytest.approx(40.0)


def test_of_a_gauge_alone_it_is_the_mean_of_its_samples_without_the_gaps():
    deriver = Deriver(gpu_catalogue())
    for at in (*range(0, 60, 2), *range(300, 360, 2)):
        one = poll(float(at), rank({}, {q.DECODE_RATE: 10.0 if at < 100 else 30.0}))
        shown = only(deriver.derive(frame(at, (), (one,))).snapshot)
    assert there(shown.rates.decode_mean_tokens_per_s) == pytest.approx(20.0, rel=0.02)
    assert shown.sources["decode_mean_tokens_per_s"].startswith(f"metric:{q.DECODE_RATE}, mean of its samples")


def test_an_engine_that_is_gone_has_none_and_two_behind_one_address_have_none():
    deriver = Deriver(gpu_catalogue())
    for at in range(0, 60, 2):
        one = poll(float(at), rank({q.DECODE_TOKENS: at * 40.0}), started_wall_s=1e9 - 100.0 * (1 + at // 2 % 2))
        shown = only(deriver.derive(frame(at, (), (one,))).snapshot)
    assert shown.rates.decode_mean_tokens_per_s == Missing(Reason.RESET)
    gone = replace(one, state=EndpointState.REFUSED)
    shown = only(deriver.derive(frame(60, (), (gone,))).snapshot)
    assert why(shown.rates.decode_mean_tokens_per_s) is Reason.UNREACHABLE
