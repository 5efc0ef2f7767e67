"""Engines that are idle, under-used or healthy: the figures, the money, and what is not said too early."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpumon.readings.format import wall_of
from gpumon.readings.missing import NOT_EXPOSED
from gpumon.readings.snapshot import (
    Confidence,
    Family,
    Kind,
    Limit,
    Replicas,
    Seen,
    Snapshot,
    TokensTotal,
)
from gpumon.readings.verdict import Evidence
from gpumon.triage.render import evidence_text, verdict_text
from gpumon.triage.triage import Triage
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import BUSY, IDLE, PEAK, WORKS, EngineKind, judged, limits, only, scene
from tests.triage.stage import START_S, Of, Stage, engine, gpu, verdict

QUIET = {**BUSY, "tensor_active_ratio": 0.05, "bandwidth_bytes_per_s": 0.12 * PEAK}
FEW = {
    "running": 6.0,
    "kv_usage_ratio": 0.05,
    "mfu_ratio": 0.15,
    "mfu_prefill_ratio": 0.1,
    "mbu_ratio": 0.2,
    "kv_pool_tokens": NOT_EXPOSED,
}
STOPS = {
    "running": 0.0,
    "kv_usage_ratio": 0.0,
    "decode_tokens_per_s": 0.0,
    "prefill_tokens_per_s": 0.0,
    "mfu_ratio": 0.0,
    "mbu_ratio": 0.0,
}
NONE_COUNTED = TokensTotal(NOT_EXPOSED, NOT_EXPOSED, NOT_EXPOSED)
PRICES = {"H100 SXM 80GB": 2.49}
SILENT_ON_REQUESTS = {**STOPS, "running": NOT_EXPOSED, "waiting": NOT_EXPOSED, "kv_usage_ratio": NOT_EXPOSED}
"""An engine that tells tokens alone, as TEI does."""
EVERY_S = 4
"""Seconds between two ticks of a fleet."""


def fleet(
    count: int,
    changes: dict[str, Any],
    seconds: int,
    prices: dict[str, float],
    card: Mapping[str, Any] = QUIET,
) -> Snapshot:
    """Replicas of one model, a GPU each."""
    stage = Stage()
    stage.triage = Triage(prices=prices)
    names = tuple(f"r{at}" for at in range(count))
    for second in range(0, seconds, EVERY_S):
        totals = TokensTotal(10.0 * second, 0.0, 10.0 * second)
        things: list[Of] = []
        for at, name in enumerate(names):
            fields = {**WORKS, **FEW, "tokens_total": totals, **changes}
            one = engine(name=name, url=f"http://127.0.0.1:{8000 + at}", gpus=(at,), **fields)
            things.append(Of(with_slots(one.read, 48.0), one.shown))
            things.append(gpu(at, **{**card, "processes": ()}))
        last = play_replicas(stage, things, names)
    return last


def with_slots(read: Any, slots: float) -> Any:
    only_one = scene(slots=slots)(0)[-1].read
    return replace(read, ranks=only_one.ranks, live=only_one.live)


def play_replicas(stage: Stage, things: list[Of], names: tuple[str, ...]) -> Snapshot:
    """A tick whose snapshot says that they serve one model."""
    judge = stage.triage.judge
    group = (Replicas("m", names, len(names)),)
    stage.triage.judge = lambda frame, shown: judge(frame, replace(shown, replicas=group))  # type: ignore[method-assign]
    try:
        return stage.tick(*things, seconds=EVERY_S)
    finally:
        stage.triage.judge = judge  # type: ignore[method-assign]


@each_row(
    ("prices", "money"),
    [({}, ""), ({"": 2.0}, ", 12.0 $/h idle"), ({"": 9.0, **PRICES}, ", 14.9 $/h idle"), ({"A100": 1.0}, "")],
)
def test_money_is_named_where_a_price_is_known(prices: dict[str, float], money: str) -> None:
    found = verdict(fleet(8, {}, 160, prices), Family.USE, Kind.ENGINE)
    assert found is not None
    assert verdict_text(found) == f"15% MFU, 6 of 48 slots in use: this traffic fits on 2 of 8 GPUs{money}"


def test_arithmetic_and_kv_reads_bound_how_few_instances_will_do() -> None:
    """18% x 8 / 0.6 = 2.4: 3 GPUs. KV reads of half of 34% MBU: 17% x 8 / 0.6 = 2.3: 3 GPUs."""
    more = fleet(8, {"mfu_ratio": 0.18}, 160, {})
    assert "fits on 3 of 8 GPUs" in next(verdict_text(each) for each in more.verdicts if each.kind is Kind.ENGINE)
    reads = {"mbu_ratio": 0.34, "bytes_per_s": 2e12, "kv_bytes_per_s": 1e12}
    more = fleet(8, reads, 160, {})
    assert "fits on 3 of 8 GPUs" in next(verdict_text(each) for each in more.verdicts if each.kind is Kind.ENGINE)


@each_row(
    ("card", "said"),
    [
        ({"tensor_active_ratio": 0.18}, "18% tensor activity, 6 of 48 slots in use: this traffic fits on 3 of 8 GPUs"),
        (
            {"bandwidth_bytes_per_s": 0.3 * PEAK},
            "5% tensor activity, 6 of 48 slots in use: this traffic fits on 4 of 8",
        ),
    ],
)
def test_what_the_gpus_measure_bounds_it_where_no_model_does(card: dict[str, Any], said: str) -> None:
    """18% x 8 / 0.6 = 2.4: 3 GPUs. 30% x 8 / 0.6 = 4: its weights may be in there, but nobody knows how much."""
    unknown = {"mfu_ratio": NOT_EXPOSED, "mbu_ratio": NOT_EXPOSED}
    found = verdict(fleet(8, unknown, 160, {}, {**QUIET, **card}), Family.USE, Kind.ENGINE)
    assert found is not None
    assert verdict_text(found).startswith(said)


@each_row(
    "changes",
    [{"running": 13.0}, {"mfu_ratio": 0.3}, {"mbu_ratio": 0.45}, {"running": 40.0}],
)
def test_enough_requests_arithmetic_or_bandwidth_is_no_waste(changes: dict[str, Any]) -> None:
    assert limits(judged(scene({**FEW, **changes}, BUSY, slots=48.0), 200)) == (Limit.HEALTHY,)


def test_two_minutes_are_looked_at_before_use_is_judged() -> None:
    early = only(judged(scene(FEW, QUIET, slots=48.0), 100))
    assert early.code is Limit.EVALUATING
    assert verdict_text(early) == "low use so far (15% MFU, 6 running): utilisation verdict in 1 min"
    assert limits(judged(scene(FEW, QUIET, slots=48.0), 160)) == (Limit.LOW_EFFICIENCY,)


def test_what_fits_follows_from_the_share_of_the_kv_cache_that_is_used() -> None:
    """6 requests take 10%: 60 fit. Where nobody tells that either, few is not told from many."""
    hidden = {**FEW, "context_tokens": NOT_EXPOSED}
    found = only(judged(scene({**hidden, "kv_usage_ratio": 0.1}, QUIET), 160))
    assert verdict_text(found) == "15% MFU, 6 running, room for 60"
    assert limits(judged(scene({**hidden, "kv_usage_ratio": NOT_EXPOSED}, QUIET), 160)) == (Limit.HEALTHY,)


ASLEEP = "weights in the host's memory (sleep level 1)"


def test_requests_that_a_sleeping_engine_keeps_wait_for_whoever_put_it_to_sleep() -> None:
    asleep = {**STOPS, "running": 3.0, "waiting": 1.0, "asleep": ASLEEP}
    awake = {name: value for name, value in asleep.items() if name != "asleep"}
    assert only(judged(scene(awake, IDLE, moves=False), 600)).cause == "hung_idle"
    assert only(judged(scene(asleep, IDLE, moves=False), 600)).cause == "paused"


@each_row(("changes", "card"), [({}, BUSY), (FEW, QUIET)], named=["healthy", "under-used"])
def test_figures_that_contradict_the_gpus_promise_nothing(changes: dict[str, Any], card: dict[str, Any]) -> None:
    said = Evidence("mbu_beside_measured", 0.81, 0.39)
    found = only(judged(scene({**changes, "contradicts": (said,)}, card, slots=48.0), 200))
    assert (found.code, found.confidence) == (Limit.UNKNOWN, Confidence.LOW)
    assert "check its model, precision and GPUs: gpumon doctor" in verdict_text(found)
    assert "x this traffic" not in verdict_text(found)
    assert found.evidence[0] == said


def test_idleness_is_told_since_the_last_request() -> None:
    stage = Stage()
    stage.play(60, scene())
    found = only(stage.play(480, scene(STOPS, IDLE, moves=False)))
    assert verdict_text(found).startswith("no request for 8 min")
    assert wall_of(found.since) == pytest.approx(START_S + 60.0, abs=1.0)


def test_requests_that_no_poll_meets_are_no_idleness_where_only_requests_are_counted() -> None:
    """As of a server of scores: it counts no tokens, and each request is over before its page is read."""

    def scores(requests: float) -> tuple[Of, ...]:
        changes = {**STOPS, "seen": Seen(requests=requests), "tokens_total": TokensTotal()}
        return scene(changes, QUIET, moves=False)(0)

    stage = Stage()
    busy = stage.play(480, lambda at: scores(10.0 * at))
    assert not any(verdict_text(verdict).startswith("no request") for verdict in busy.verdicts)
    idle = stage.play(480, scores(4800.0))
    assert verdict_text(only(idle)).startswith("no request for 8 min")


def test_a_frontend_is_judged_by_its_workers() -> None:
    assert limits(judged(scene(kind=EngineKind.DYNAMO), 120)) == ()


def test_an_engine_that_works_is_not_called_resting_between_two_requests() -> None:
    """Pauses of half a minute are no rest, as long as it does not count as idle."""
    stage = Stage()
    stage.play(120, scene(slots=48.0))
    causes = set()
    for second in range(120, 200):
        things = scene(slots=48.0)
        begin = second - second % 40
        if second - begin >= 10:
            totals = TokensTotal(8200.0 * (begin + 10), 0.0, 1100.0 * (begin + 10))
            things = scene({**STOPS, "tokens_total": totals}, IDLE, slots=48.0)
        causes.add(only(stage.tick(*things(second))).cause)
    assert causes == {"headroom"}


def test_an_engine_that_tells_no_running_requests_is_ready_by_its_counters() -> None:
    """A request that takes longer than they stand still may run: no number of requests is made up."""
    ready = only(judged(scene(SILENT_ON_REQUESTS, IDLE, moves=False)))
    assert (ready.cause, ready.confidence) == ("ready", Confidence.MEDIUM)
    assert [evidence_text(figure) for figure in ready.evidence] == ["no request for over 30 s"]


def test_an_engine_that_tells_that_nothing_runs_is_ready_for_sure() -> None:
    ready = only(judged(scene(STOPS, IDLE, moves=False)))
    assert (ready.cause, ready.confidence) == ("ready", Confidence.HIGH)
    assert [evidence_text(figure) for figure in ready.evidence] == ["0 running"]


@each_row(
    ("changes", "told", "confidence"),
    [
        ({"tokens_total": NONE_COUNTED}, "no request at any poll for 7 min", Confidence.MEDIUM),
        ({}, "no request for 7 min", Confidence.HIGH),
    ],
)
def test_gauges_alone_miss_requests_between_two_polls(
    changes: dict[str, Any], told: str, confidence: Confidence
) -> None:
    found = only(Stage().play(400, scene({**STOPS, "waiting": 0.0, **changes}, IDLE, moves=False)))
    assert verdict_text(found).startswith(told)
    assert evidence_text(found.evidence[0]) == told
    assert found.confidence is confidence


def test_low_use_by_tensor_activity_is_not_called_an_mfu_while_it_is_judged() -> None:
    no_mfu = {**FEW, "mfu_ratio": NOT_EXPOSED, "mbu_ratio": NOT_EXPOSED}
    evaluating = only(judged(scene(no_mfu, QUIET, slots=48.0), 60))
    assert evaluating.cause == "evaluating"
    assert verdict_text(evaluating).startswith("low use so far (5% tensor activity, 6 running)")


def test_requests_that_no_poll_sees_run_are_told_without_their_mean() -> None:
    """Its counters move while its gauge is 0 at each poll: a mean of 0 would say that there are none."""
    ready = only(judged(scene(STOPS, BUSY)))
    assert verdict_text(ready) == "ready, a request now and then"


def test_work_that_has_just_ended_is_no_request_now_and_then() -> None:
    """It ran 24 requests until a minute ago, before it was called anything: their mean is of what is over."""

    def ends(tick: int) -> tuple[Of, ...]:
        return scene()(tick) if tick < 20 else scene(STOPS, IDLE, moves=False)(tick)

    ready = only(judged(ends, 80))
    assert verdict_text(ready) == "ready, no request right now"


def test_an_engine_that_tells_no_running_requests_is_not_ready_while_its_gpus_work() -> None:
    """A long answer whose tokens count at its end moves no counter until then."""
    assert limits(judged(scene(SILENT_ON_REQUESTS, BUSY, moves=False))) == (Limit.UNKNOWN,)
