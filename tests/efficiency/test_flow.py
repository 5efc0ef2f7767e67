"""Rates of engines of every kind: live counters, counters of ended requests, the engines' own gauges."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency.deriver import Deriver
from gpumon.readings import quantities as q
from gpumon.readings.flat import flat_fields, value_of
from gpumon.readings.frame import Advance, EngineKind, EngineReading
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine
from gpumon.sources.packaged import gpu_catalogue
from tests.each_row import each_row
from tests.efficiency.polls import INF, after, frame, moving, observed, only, poll, rank, steady, there, tracked, why
from tests.records import replace

ENDED = moving(Advance.END, q.DECODE_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED)


def test_a_counter_that_moves_at_the_end_of_a_request_gives_no_rate_and_right_totals():
    per_s = {q.DECODE_TOKENS: 30.0, q.PREFILL_COMPUTED: 50.0, q.PREFILL_CACHED: 5.0, q.REQUESTS: 0.5}
    shown = only(after(steady(per_s, {q.RUNNING: 2.0}, advance=ENDED)))
    for field in ("decode_tokens_per_s", "prefill_tokens_per_s", "cached_tokens_per_s", "mfu_ratio", "mbu_ratio"):
        assert why(value_of(shown, field)) is Reason.NOT_LIVE, field
    assert (shown.tokens_total.decode, shown.tokens_total.prefill_computed) == (18 * 30.0, 18 * 50.0)
    assert there(shown.rates.requests_per_s) == pytest.approx(0.5)
    assert shown.advances["decode_tokens_per_s"] == shown.advances["mfu_ratio"] == "end"
    assert "when a request ends" in shown.sources["decode_tokens_per_s"]


def test_the_engines_own_rate_stands_in_for_it_as_the_mean_of_its_samples():
    def engine(at_s: float) -> EngineReading:
        rate = 100.0 if at_s % 4 else 140.0
        counters = {q.DECODE_TOKENS: 0.0, q.PREFILL_COMPUTED: 0.0}
        gauges = {q.DECODE_RATE: rate, q.PREFILL_RATE: 7.0, q.RUNNING: 2.0}
        return poll(at_s, rank(counters, gauges), advance=ENDED)

    *_, last = tracked(engine, seconds=22)
    shown = only(last.snapshot)
    # Polls at 10, 12 ... 20 s: three of each.
    assert there(shown.rates.decode_tokens_per_s) == pytest.approx(120.0)
    assert there(shown.rates.prefill_tokens_per_s) == 7.0
    assert last.points["decode"] == 140.0
    assert shown.advances["decode_tokens_per_s"] == "sampled"
    assert shown.sources["decode_tokens_per_s"] == f"sampled: metric:{q.DECODE_RATE}, mean of 10 s"


@each_row(("moves", "said"), [(Advance.LIVE, "live"), (Advance.DERIVED, "derived")])
def test_a_counter_that_is_live_or_worked_out_stands_above_the_gauge(moves: Advance, said: str):
    engine = steady({q.DECODE_TOKENS: 50.0}, {q.DECODE_RATE: 999.0}, advance=moving(moves, q.DECODE_TOKENS))
    shown = only(after(engine))
    assert there(shown.rates.decode_tokens_per_s) == pytest.approx(50.0)
    assert shown.advances["decode_tokens_per_s"] == said


def test_a_gauge_that_outlived_its_requests_is_not_believed():
    """SGLang before 0.5.7 leaves the last throughput standing: nothing runs, nothing ended, so nothing is generated."""

    def engine(at_s: float, running: float, per_s: float) -> EngineReading:
        return poll(
            at_s, rank({q.DECODE_TOKENS: at_s * per_s}, {q.DECODE_RATE: 900.0, q.RUNNING: running}), advance=ENDED
        )

    rests = only(after(lambda at_s: engine(at_s, 0.0, 0.0)))
    assert rests.rates.decode_tokens_per_s == 0.0
    # Short requests may run between the polls: their end shows.
    assert only(after(lambda at_s: engine(at_s, 0.0, 3.0))).rates.decode_tokens_per_s == 900.0
    assert only(after(lambda at_s: engine(at_s, 1.0, 0.0))).rates.decode_tokens_per_s == 900.0


def test_live_prefill_has_the_window_of_the_other_rates_whatever_the_ttft():
    """One request waited 40 s for its first token; the prefill itself is counted batch by batch."""

    def engine(at_s: float, advance: dict[str, Advance]) -> EngineReading:
        late = observed(1.0 if at_s >= 50 else 0.0, 35.0, (1.0, 40.0, INF))
        return poll(at_s, rank({q.PREFILL_COMPUTED: at_s * 20.0}, {}, {q.TTFT: late}), advance=advance)

    for advance, span_s, said in (({}, 10, "live"), (moving(Advance.PROMPT, q.PREFILL_COMPUTED), 40, "prompt")):
        shown = only(after(lambda at_s, advance=advance: engine(at_s, advance), seconds=62))
        assert there(shown.rates.prefill_tokens_per_s) == pytest.approx(20.0)
        assert shown.sources["prefill_tokens_per_s"].startswith(f"metric:{q.PREFILL_COMPUTED} over {span_s} s")
        assert shown.advances["prefill_tokens_per_s"] == shown.advances["mfu_prefill_ratio"] == said


def test_polls_are_kept_for_as_long_as_the_longest_prefill_took():
    """One of 150 s, in the bucket up to 160 s, ends after 160 s: the window grows to that, longer than any other."""

    def engine(at_s: float) -> EngineReading:
        late = observed(1.0 if at_s >= 160 else 0.0, 150.0, (1.0, 160.0, INF))
        advance = moving(Advance.PROMPT, q.PREFILL_COMPUTED)
        return poll(at_s, rank({q.PREFILL_COMPUTED: at_s * 20.0}, {}, {q.TTFT: late}), advance=advance)

    early = only(after(engine, seconds=200))
    assert why(early.rates.prefill_tokens_per_s) is Reason.WARMING_UP
    shown = only(after(engine, seconds=300))
    assert there(shown.rates.prefill_tokens_per_s) == pytest.approx(20.0)
    assert shown.sources["prefill_tokens_per_s"].startswith(f"metric:{q.PREFILL_COMPUTED} over 160 s")


def test_two_models_of_one_server_are_two_engines():
    """Triton shares one URL: counters, states and faults of its models must not mix."""

    def part(name: str, per_s: float) -> object:
        return lambda at_s: poll(at_s, rank({q.DECODE_TOKENS: at_s * per_s}), name=name, part=name, model=name)

    *_, last = tracked(part("small", 10.0), part("large", 300.0))
    small, large = last.snapshot.engines
    assert (there(small.rates.decode_tokens_per_s), there(large.rates.decode_tokens_per_s)) == pytest.approx(
        (10.0, 300.0)
    )
    assert (small.key, large.part) == ("http://127.0.0.1:1#small", "large")
    assert last.points["decode"] == pytest.approx(310.0)


def counting(tokens: Callable[[float], float]) -> Callable[[float], EngineReading]:
    """An engine that has given so many whole tokens until a moment."""
    return lambda at_s: poll(at_s, rank({q.DECODE_TOKENS: math.floor(tokens(at_s))}, {q.RUNNING: 1.0}))


@each_row("per_s", [0.4, 2.6, 7.7])
def test_few_tokens_at_a_steady_rate_are_told_to_better_than_a_token(per_s: float):
    shown = only(after(counting(lambda at_s: per_s * at_s + 0.5), seconds=90))
    assert there(shown.rates.decode_tokens_per_s) == pytest.approx(per_s, abs=1.01 / 60)
    assert shown.sources["decode_tokens_per_s"].endswith("over 60 s")


def test_a_rate_that_changed_is_that_of_its_own_window_however_few_tokens_there_are():
    speeds_up = counting(lambda at_s: 2.0 * at_s + 2.0 * max(0.0, at_s - 80.0))
    assert there(only(after(speeds_up, seconds=92)).rates.decode_tokens_per_s) == pytest.approx(4.0)
    ceases = counting(lambda at_s: 2.0 * min(at_s, 80.0))
    assert there(only(after(ceases, seconds=92)).rates.decode_tokens_per_s) == 0.0


def figures(engine: Engine) -> list[tuple[str, Reading]]:
    found = [
        (name, value_of(engine, name)) for name, (_, field) in flat_fields(Engine).items() if field.type == Reading
    ]
    for load in engine.rank_loads:
        found += [(name, getattr(load, name)) for name in load.__struct_fields__ if name != "rank"]
    for group in (engine.efficiency.own, engine.efficiency.own_memory):
        readings = [(name, getattr(group, name)) for name in group.__struct_fields__]
        found += [(name, reading) for name, reading in readings if not isinstance(reading, str)]
    return found


_COUNTERS = (
    q.DECODE_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED, q.PROMPT_TOKENS, q.STEPS, q.REQUESTS, q.FAILURES, q.DRAFTS,
    q.ACCEPTED_TOKENS, q.INFERENCES, q.OWN_FLOPS, q.OWN_READ_BYTES, q.PREFILL_SECONDS,
)  # fmt: skip
_GAUGES = (
    q.RUNNING, q.WAITING, q.KV_USAGE, q.POOL_TOKENS, q.USED_TOKENS, q.DECODE_RATE, q.PREFILL_RATE, q.MEAN_ACCEPTED,
    q.OWN_WEIGHT_BYTES, q.OWN_KV_BYTES, q.HOST_KV_USAGE,
)  # fmt: skip


@given(
    st.sampled_from([EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TGI, EngineKind.LLAMA_CPP, EngineKind.TEI]),
    st.sets(st.sampled_from(_COUNTERS)),
    st.sets(st.sampled_from(_GAUGES)),
    st.dictionaries(st.sampled_from((*_COUNTERS, *_GAUGES)), st.sampled_from(list(Advance))),
    st.lists(st.tuples(st.floats(0.3, 30.0), st.floats(0.0, 1e6), st.floats(0.0, 1e4)), min_size=1, max_size=12),
    st.integers(1, 3),
    st.integers(0, 4),
    st.booleans(),
)
def test_no_engine_gives_a_negative_or_infinite_figure(
    kind: EngineKind, counters: set[str], gauges: set[str], advance: dict[str, Advance],
    course: list[tuple[float, float, float]], ranks: int, pp: int, exact: bool,
) -> None:  # fmt: skip
    """Whatever is exported and whenever it moves, over resets and gaps: at least 0 and finite, or missing."""
    deriver, at_s, total = Deriver(gpu_catalogue()), 0.0, 0.0
    for wait_s, grown, gauge in course:
        at_s, total = at_s + wait_s, grown if grown > 9e5 else total + grown
        gaps = {q.ITL: observed(total, 0.02, (0.01, 0.1, INF)), q.TTFT: observed(total, 0.5, (1.0, INF))}
        parts = [
            rank(dict.fromkeys(counters, total), dict.fromkeys(gauges, gauge), gaps, str(number))
            for number in range(ranks)
        ]
        one = poll(at_s, *parts, kind=kind, advance=advance, pp=pp, exact_steps=exact, gpu_count=4)
        shown = only(deriver.derive(replace(frame(0, (), (one,)), monotonic_s=at_s)).snapshot)
        for name, reading in figures(shown):
            assert isinstance(reading, Missing) or (reading >= 0.0 and math.isfinite(reading)), name
        if advance.get(q.DECODE_TOKENS) is Advance.END and q.DECODE_RATE not in gauges:
            assert isinstance(shown.rates.decode_tokens_per_s, Missing)
            assert isinstance(shown.efficiency.mbu_ratio, Missing)


def test_the_prefill_that_was_under_way_when_gpumon_began_is_not_known_yet():
    def engine(running: float) -> Engine:
        still = rank({q.PREFILL_COMPUTED: 900.0, q.DECODE_TOKENS: 50.0, q.STEPS: 9.0}, {q.RUNNING: running})
        return only(after(lambda at_s: poll(at_s, still, advance=moving(Advance.PROMPT, q.PREFILL_COMPUTED))))

    under_way = engine(1.0)
    assert why(under_way.rates.prefill_tokens_per_s) is why(under_way.efficiency.mfu_ratio) is Reason.WARMING_UP
    assert there(engine(0.0).rates.prefill_tokens_per_s) == 0.0
