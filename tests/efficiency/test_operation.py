"""Concurrency, its ITL and the lengths of requests: on recordings of real engines, and where they are missing."""

from __future__ import annotations

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineReading, HistogramReading, RankReading
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine
from gpumon.sources.packaged import gpu_catalogue
from tests.accuracy.pages import Where, recorded, snapshots
from tests.efficiency.polls import after, engine, frame, observed, only, poll, rank, steady, why
from tests.fakes.engine import Capture
from tests.records import replace

INF = float("inf")


def there(reading: Reading) -> float:
    assert not isinstance(reading, Missing), reading
    return reading


def watched(name: str, start_s: float, end_s: float) -> list[Engine]:
    """The engine as shown after each page of a recording that lies in a span of it."""
    pages = [page for page in recorded(name) if page.t < end_s]
    return [shown.engines[0] for page, shown in zip(pages, snapshots(pages, Where()), strict=True) if page.t >= start_s]


def in_flight(name: str, since_s: float, until_s: float) -> float:
    """Mean requests between their first and last token, by the client's own account."""
    spans = [(row["t_first"], row["t_end"]) for row in Capture(name).truth if row.get("t_first")]
    return sum(max(0.0, min(end, until_s) - max(first, since_s)) for first, end in spans) / (until_s - since_s)


def test_sequences_that_decode_are_those_between_first_and_last_token_at_the_client():
    shown = watched("prometheus-api", 55.0, 85.0)
    pages = [page for page in recorded("prometheus-api") if 55.0 <= page.t < 85.0]
    for page, one in zip(pages, shown, strict=True):
        window = one.load.window
        assert window is not None
        seen = in_flight("prometheus-api", page.t - window.seconds, page.t)
        assert window.decoding_mean == pytest.approx(seen, rel=0.04)
        assert there(one.load.running_mean) == pytest.approx(8.0, abs=0.5)
        assert there(one.load.running_mean) >= window.running_least
        assert there(one.load.running_mean) <= window.running_most


def test_the_sum_of_gaps_follows_a_load_that_polls_of_the_gauge_miss():
    """Open arrivals of short requests: five polls of a gauge say less than the time between all tokens."""
    pages = [page for page in recorded("vllm-poisson") if page.t < 45.0]
    gaps, gauge = [], []
    for page, shown in zip(pages, snapshots(pages, Where()), strict=True):
        one = shown.engines[0]
        if page.t < 16.0 or one.load.window is None or one.load.window.decoding_mean is None:
            continue
        seen = in_flight("vllm-poisson", page.t - one.load.window.seconds, page.t)
        gaps.append(abs(one.load.window.decoding_mean - seen) / seen)
        gauge.append(abs(there(one.load.running_mean) - seen) / seen)
    assert len(gaps) >= 12
    assert max(gaps) <= 0.1
    assert sum(gaps) < sum(gauge) / 2


def test_lengths_and_cached_share_of_a_shared_prefix():
    one = watched("vllm-mfu-queue-prefix-abort", 36.0, 40.0)[-1]
    # 640 of 768 tokens are shared; before that ran one with 512, all new.
    assert 0.7 < there(one.load.cached_ratio) < 640 / 768
    assert 600 < there(one.load.prompt_tokens_mean) < 768
    assert 50 < there(one.load.answer_tokens_mean) < 200


def test_idle_has_no_itl_and_no_lengths_but_a_running_of_zero():
    one = watched("prometheus-api", 8.0, 12.0)[-1]
    assert one.load.running_mean == 0.0
    idle = Missing(Reason.IDLE)
    assert (
        one.latency.itl_mean_s,
        one.load.prompt_tokens_mean,
        one.load.answer_tokens_mean,
        one.load.cached_ratio,
    ) == (idle,) * 4


def derived(counters: dict[str, float], gauges: dict[str, float], live: dict[str, str] | None = None) -> Engine:
    """Counters per second, with an ITL of 10 ms each for 100 tokens/s."""
    deriver = Deriver(gpu_catalogue())
    for at in range(0, 14, 2):
        gaps = HistogramReading((0.025, INF), (at * 100.0, at * 100.0), at * 1.0, at * 100.0)
        counted = {quantity: at * rate for quantity, rate in counters.items()}
        rank = RankReading("0", counted, gauges, {q.ITL: gaps})
        one = replace(engine(float(at), {}, live=live or {}), ranks=(rank,))
        shown = deriver.derive(frame(at, (), (one,))).snapshot.engines[0]
    return shown


def test_hits_that_count_waiting_requests_again_are_no_share():
    hits = {q.PREFILL_CACHED: "vllm:prefix_cache_hits_total"}
    counters = {q.PREFILL_CACHED: 3000.0, q.PREFILL_COMPUTED: 0.0, q.PROMPT_TOKENS: 100.0}
    inflated = derived(counters, {q.RUNNING: 1.0}, hits).load.cached_ratio
    assert isinstance(inflated, Missing)
    assert inflated.reason is Reason.INVALID
    sane = derived({**counters, q.PREFILL_CACHED: 25.0, q.PREFILL_COMPUTED: 75.0}, {q.RUNNING: 1.0}, hits)
    assert there(sane.load.cached_ratio) == pytest.approx(0.25)


def test_prompts_that_are_counted_at_the_end_are_not_divided_by_first_tokens():
    """Ten requests a second begin, and one ended so far: its prompt is no tenth of itself."""

    def ramp(moves: Advance) -> Engine:
        def one(at_s: float) -> EngineReading:
            counters = {q.PROMPT_TOKENS: at_s * 1000.0, q.REQUESTS: at_s * 1.0}
            firsts = {q.TTFT: observed(at_s * 10.0, 0.5)}
            return poll(at_s, rank(counters, {q.RUNNING: 8.0}, firsts), advance={q.PROMPT_TOKENS: moves})

        return only(after(one))

    assert there(ramp(Advance.END).load.prompt_tokens_mean) == pytest.approx(1000.0)
    assert there(ramp(Advance.PROMPT).load.prompt_tokens_mean) == pytest.approx(100.0)


def test_cached_and_computed_tokens_of_different_moments_are_a_share_of_enough_requests_only():
    def of(requests: float, moves: Advance) -> Reading:
        per_s = {q.PREFILL_CACHED: 30.0, q.PREFILL_COMPUTED: 90.0, q.REQUESTS: requests}
        return only(after(steady(per_s, advance={q.PREFILL_CACHED: moves}))).load.cached_ratio

    assert there(of(0.1, Advance.LIVE)) == there(of(2.0, Advance.END)) == pytest.approx(0.25)
    assert why(of(0.1, Advance.END)) is Reason.FEW
