"""Requests that fail, are given up by their clients, or are turned away: by their share of a minute."""

from __future__ import annotations

from typing import Any

from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import NOT_EXPOSED
from gpumon.readings.quantities import ABORTS, FAILURES, REJECTIONS
from gpumon.readings.snapshot import Kind, Level, Limit, Quantiles, Snapshot
from gpumon.readings.verdict import EventKind, Family, Verdict
from gpumon.triage.render import actions_text, verdict_text
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import BUSY, Goals, judged, limits, of_engine, scene
from tests.triage.stage import Of, Stage

SERVES = {"requests_per_s": 2.0, "failures_per_s": 0.0, "aborts_per_s": 0.0, "rejections_per_s": 0.0}
LATE = {"ttft_s": Quantiles(mean=20.0, p95=38.0)}


def state_of(snapshot: Snapshot) -> Verdict:
    found = of_engine(snapshot, Family.STATE)
    assert found is not None
    assert found.evidence
    assert found.actions
    return found


@each_row(
    ("changes", "cause", "level"),
    [
        ({"failures_per_s": 1.8}, "errors", Level.CRITICAL),
        ({"failures_per_s": 2.0, "requests_per_s": 0.0}, "errors", Level.CRITICAL),  # none reaches the engine
        ({"failures_per_s": 0.2}, "errors", Level.WARN),
        ({"aborts_per_s": 1.9}, "aborts", Level.WARN),
        ({"aborts_per_s": 1.9, **LATE}, "aborts", Level.CRITICAL),
        ({"rejections_per_s": 0.5}, "rejections", Level.WARN),
        ({"aborts_per_s": 1.9, "failures_per_s": 0.2}, "errors", Level.WARN),
    ],
)
def test_requests_that_do_not_end_well_are_no_health(changes: dict[str, Any], cause: str, level: Level) -> None:
    last = judged(scene({**SERVES, **changes}))
    found = state_of(last)
    assert (found.code, found.cause, found.level) == (Limit.FAILING, cause, level)
    assert Limit.HEALTHY not in limits(last)


@each_row(
    "changes",
    [
        {"failures_per_s": 0.06},  # 3 % of 120
        {"failures_per_s": 0.05, "requests_per_s": 0.1},  # 3 of 6: too few for a share
        {"aborts_per_s": 0.3},  # 15 %: people press stop
        {"rejections_per_s": 0.05},
    ],
)
def test_a_few_are_no_verdict(changes: dict[str, Any]) -> None:
    assert limits(judged(scene({**SERVES, **changes}), 90)) == (Limit.HEALTHY,)


def test_instances_for_what_is_turned_away_are_counted() -> None:
    found = state_of(judged(scene({**SERVES, "rejections_per_s": 1.5})))
    assert actions_text(found).startswith("2 instances instead of 1; ")


def test_the_sentences_of_failures_name_share_log_and_causes() -> None:
    info = {"failures_by_cause": "HTTP 500 256"}
    found = state_of(judged(scene({**SERVES, "failures_per_s": 1.8}, info=info), 90))
    assert verdict_text(found) == "90 % of its requests fail (108 in 60 s)"
    assert actions_text(found).startswith("read the errors in its log (journalctl _PID=4711, or where its output goes)")
    assert found.evidence[1].parameters == {"causes": "HTTP 500 256"}
    boxed = {**BUSY, "processes": (GpuProcess(4711, "vllm", engine="vllm:8000", container="c0ffee" * 4),)}
    found = state_of(judged(scene({**SERVES, "failures_per_s": 1.8}, boxed), 90))
    assert "(docker logs c0ffeec0ffee)" in actions_text(found)
    late = state_of(judged(scene({**SERVES, "aborts_per_s": 1.9, **LATE}), 90, Goals(ttft_s=2.0)))
    assert verdict_text(late) == ("clients give up 95 % of its requests (114 in 60 s): the first token takes 38 s")


@each_row(
    ("changes", "counter"),
    [
        ({"failures_per_s": 1.8}, FAILURES),
        ({"aborts_per_s": 1.9}, ABORTS),
        ({"rejections_per_s": 0.5}, REJECTIONS),
    ],
)
def test_the_source_of_a_share_has_the_window_of_the_share(changes: dict[str, Any], counter: str) -> None:
    """The rate on the engine's page is that of 10 s."""
    sources = dict.fromkeys(changes, "vllm:requests_total over 10 s")
    of = scene({**SERVES, **changes, "sources": sources}, info={"failures_by_cause": "HTTP 500 256"})

    def counted(tick: int) -> tuple[Of, ...]:
        card, one = of(tick)
        return card, Of(replace(one.read, live={**one.read.live, counter: "vllm:requests_total"}), one.shown)

    share, *others = state_of(judged(counted, 90)).evidence
    assert share.parameters["seconds"] == 60.0
    assert share.source == "vllm:requests_total over 60 s"
    assert [evidence.source for evidence in others if evidence.quantity == "failure_causes"] in (
        [],
        ["vllm:requests_total"],
    )


def test_errors_come_at_once_waver_without_flapping_and_are_over_with_an_event() -> None:
    """5 % of 2/s is 0.1/s: shares around it keep the verdict that stands."""
    stage, good = Stage(), scene(SERVES)
    stage.play(90, good)

    def bad(tick: int) -> tuple[Of, ...]:
        return scene({**SERVES, "failures_per_s": 0.15 if tick % 90 < 45 else 0.07})(tick)

    stage.play(240, bad)
    assert stage.last is not None
    assert state_of(stage.last).cause == "errors"
    stage.play(120, good)
    told = [event.code for event in stage.events if event.kind is EventKind.VERDICT and event.verdict is not None]
    assert told == ["verdict_began", "verdict_over"]
    assert stage.last is not None
    assert [one.code for one in stage.last.verdicts if one.kind is Kind.ENGINE] == [Limit.HEALTHY]


@each_row(
    ("changes", "first"),
    [
        ({}, "raise_slots"),
        ({"kv_usage_ratio": 0.95}, "more_instances"),
        ({"kv_usage_ratio": NOT_EXPOSED}, "more_instances"),
        ({"running": 12.0}, "more_instances"),
        ({"mfu_ratio": 0.6}, "more_instances"),
    ],
)
def test_more_slots_come_before_more_instances_where_they_alone_are_full(changes: dict[str, Any], first: str) -> None:
    """A setting costs nothing."""
    of = scene({**SERVES, "rejections_per_s": 1.5, "waiting": 12.0, **changes}, slots=24.0)
    found = state_of(judged(of, 20))
    assert (found.cause, found.actions[0].code) == ("rejections", first)
    assert found.actions[-1].code == "check_retries"
