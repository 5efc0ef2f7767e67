"""Means since an engine's start come from its own counters, at the first poll, and only where these can be trusted."""

from __future__ import annotations

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, HistogramReading
from gpumon.readings.missing import NOT_EXPOSED, WARMING_UP, Missing
from gpumon.readings.snapshot import SinceStart, Snapshot
from tests.each_row import each_row
from tests.efficiency.polls import after, poll, rank

LIFE_S = 1000.0
STARTED_S = 1e9 - LIFE_S
COUNTED = {q.PREFILL_COMPUTED: 5e6, q.DECODE_TOKENS: 2e6, q.REQUESTS: 4e3}
OBSERVED = {
    q.TTFT: HistogramReading((0.5, float("inf")), (3e3, 4e3), 1200.0, 4e3),
    q.ITL: HistogramReading((0.05, float("inf")), (2e6, 2e6), 4e4, 2e6),
}


def first_poll(*, ranks: int = 1, **facts: object) -> Snapshot:
    """The snapshot of a single poll, of an engine that has run for `LIFE_S`."""
    own = facts.pop("counters", COUNTED)
    parts = tuple(rank(own, {}, OBSERVED, str(at)) for at in range(ranks))  # type: ignore[arg-type]
    return after(lambda at_s: poll(at_s, *parts, **{"started_wall_s": STARTED_S, **facts}), seconds=2)


def means(**facts: object) -> SinceStart:
    (engine,) = first_poll(**facts).engines  # type: ignore[arg-type]
    return engine.since_start


@each_row("ranks", [1, 3])
def test_one_poll_says_the_means_of_all_ranks_since_the_start(ranks: int) -> None:
    assert means(ranks=ranks) == SinceStart(
        seconds=LIFE_S,
        prefill_tokens_per_s=5e3 * ranks,
        decode_tokens_per_s=2e3 * ranks,
        requests_per_s=4.0 * ranks,
        ttft_s=0.3,
        itl_s=0.02,
        ttft_count=OBSERVED[q.TTFT].count * ranks,
        itl_count=OBSERVED[q.ITL].count * ranks,
    )


def test_they_are_never_the_rates_of_now() -> None:
    snapshot = first_poll()
    (engine,) = snapshot.engines
    rates = engine.rates
    for rate in (rates.decode_tokens_per_s, rates.prefill_tokens_per_s, rates.requests_per_s):
        assert rate == WARMING_UP
    assert isinstance(engine.latency.ttft_s.p95, Missing)
    assert not snapshot.verdicts


def test_without_a_start_there_is_none() -> None:
    assert means(started_wall_s=0.0) == SinceStart()


def test_an_engine_that_just_started_has_none_yet() -> None:
    assert means(started_wall_s=1e9 - 20.0).decode_tokens_per_s == WARMING_UP


def test_what_gpumon_works_out_begins_with_its_first_poll() -> None:
    sampled = means(advance={q.DECODE_TOKENS: Advance.SAMPLED})
    assert sampled.decode_tokens_per_s == NOT_EXPOSED
    assert sampled.prefill_tokens_per_s == 5e3


def test_gaps_between_steps_of_several_tokens_are_no_itl() -> None:
    speculates = means(counters={**COUNTED, q.DRAFTS: 10.0})
    assert speculates.itl_s == NOT_EXPOSED
    assert speculates.ttft_s == 0.3


def test_processes_that_answer_in_turn_have_no_common_start() -> None:
    snapshot = after(
        lambda at_s: poll(at_s, rank(COUNTED), started_wall_s=STARTED_S - 100.0 * (at_s // 2 % 2)), seconds=20
    )
    assert snapshot.engines[0].since_start == SinceStart()
