"""Requests that fail, are given up by their clients, or are turned away: by their share of a minute."""

from __future__ import annotations

from typing import Any

from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reason
from gpumon.readings.quantities import ABORTS, FAILURES, REJECTIONS
from gpumon.readings.snapshot import Kind, Level, Limit, Outcomes, Quantiles, Snapshot
from gpumon.readings.verdict import EventKind, Family, Verdict
from gpumon.triage.render import actions_text, evidence_text, verdict_text
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import BUSY, Goals, judged, limits, of_engine, scene
from tests.triage.stage import Of, Stage

RATES = ("failures_per_s", "aborts_per_s", "rejections_per_s", "refused_per_s", "corrupted_per_s")
SERVES = {"requests_per_s": 2.0, **dict.fromkeys(RATES, 0.0)}
LATE = {"ttft_s": Quantiles(mean=20.0, p95=38.0)}
EARLY = {"outcomes": Outcomes(aborted=20.0, aborted_midway=1.0)}
MIDWAY = {"outcomes": Outcomes(aborted=20.0, aborted_midway=20.0)}


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
        ({"aborts_per_s": 1.9, **LATE}, "aborts", Level.WARN),  # which of them had a first token is not told
        ({"aborts_per_s": 1.9, **EARLY}, "aborts", Level.WARN),
        ({"aborts_per_s": 1.9, **EARLY, **LATE}, "aborts", Level.CRITICAL),
        ({"aborts_per_s": 1.9, **MIDWAY, **LATE}, "aborts_midway", Level.WARN),
        ({"aborts_per_s": 0.6, **MIDWAY}, "aborts_midway", Level.NOTE),
        ({"refused_per_s": 1.4}, "refusals", Level.WARN),
        ({"corrupted_per_s": 0.1}, "corrupted", Level.WARN),
        ({"rejections_per_s": 0.5}, "rejections", Level.WARN),
        ({"rejections_per_s": 0.2}, "rejections", Level.WARN),  # 9%
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
        {"failures_per_s": 0.06},  # 3% of 120
        {"failures_per_s": 0.05, "requests_per_s": 0.1},  # 3 of 6: too few for a share
        {"aborts_per_s": 0.3},  # 15%: people press stop
        {"aborts_per_s": 0.3, **MIDWAY},
        {"rejections_per_s": 0.05},
        {"refused_per_s": 0.15},  # 7%
        {"refused_per_s": 0.06, "requests_per_s": 0.1},  # 3 of 9
        {"corrupted_per_s": 0.01},  # a first one is in the window, and nobody else: less than one in a minute
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
    assert verdict_text(found) == "90% of its requests fail (108 in 60 s)"
    assert actions_text(found).startswith("read the errors in its log (journalctl _PID=4711, or where its output goes)")
    assert found.evidence[1].parameters == {"causes": "HTTP 500 256"}
    boxed = {**BUSY, "processes": (GpuProcess(4711, "vllm", engine="vllm:8000", container="c0ffee" * 4),)}
    found = state_of(judged(scene({**SERVES, "failures_per_s": 1.8}, boxed), 90))
    assert "(docker logs c0ffeec0ffee)" in actions_text(found)
    late = state_of(judged(scene({**SERVES, "aborts_per_s": 1.9, **EARLY, **LATE}), 90, Goals(ttft_s=2.0)))
    assert verdict_text(late) == ("clients give up 90% of its requests (108 in 60 s): TTFT p95 38 s")
    queued = {**EARLY, "queue_s": Quantiles(mean=6.0), "ttft_s": Quantiles()}
    waited = state_of(judged(scene({**SERVES, "aborts_per_s": 1.9, **queued}), 90))
    assert verdict_text(waited).endswith(": 6 s in the queue on average"), "a mean, and no time to a first token"
    untold = state_of(judged(scene({**SERVES, "aborts_per_s": 1.9, **LATE}), 90))
    assert verdict_text(untold) == (
        "clients give up 95% of its requests (114 in 60 s): before their first token or after it is not told"
    )
    midway = state_of(judged(scene({**SERVES, "aborts_per_s": 1.9, **MIDWAY, "e2e_s": Quantiles(p95=12.0)}), 90))
    assert verdict_text(midway) == (
        "clients stop 95% of its answers midway (114 in 60 s): users, or a time limit on whole answers (E2E p95 12 s)"
    )
    beyond = {"e2e_s": Quantiles(p95=120.0, p95_low=120.0, p95_high=Missing(Reason.INVALID))}
    longest = state_of(judged(scene({**SERVES, "aborts_per_s": 1.9, **MIDWAY, **beyond}), 90))
    assert verdict_text(longest).endswith("or a time limit on whole answers (E2E p95 above 120 s)")
    assert "with E2E (p95 above 120 s), and" in actions_text(longest)
    info = {"refusals_by_cause": "HTTP 400 ×31"}
    refused = state_of(judged(scene({**SERVES, "refused_per_s": 1.4}, info=info), 90))
    assert verdict_text(refused).startswith("41% of its requests are refused (HTTP 4xx, 84 in 60 s): prompts too long")
    assert refused.evidence[1].parameters == {"causes": "HTTP 400 ×31"}
    assert "(--max-model-len)" in actions_text(refused)


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
    """5% of 2/s is 0.1/s: shares around it keep the verdict that stands."""
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


@each_row(
    ("fields", "cause", "text"),
    [
        ({"failures_per_s": 0.5}, "errors", "requests fail (30 in 60 s)"),
        ({"rejections_per_s": 0.5}, "rejections", "requests are turned away (30 in 60 s)"),
    ],
)
def test_no_share_is_claimed_where_the_number_of_requests_is_not_known(
    fields: dict[str, Any], cause: str, text: str
) -> None:
    found = state_of(judged(scene({**SERVES, "requests_per_s": NOT_EXPOSED, **fields}), 90))
    assert (found.cause, found.level) == (cause, Level.WARN)
    assert verdict_text(found) == text
    assert evidence_text(found.evidence[0]).startswith("30 requests of 60 s ")


def test_aborts_and_refusals_of_an_unknown_number_of_requests_are_a_habit() -> None:
    unknown = {**SERVES, "requests_per_s": NOT_EXPOSED, "aborts_per_s": 0.5, "refused_per_s": 0.5}
    assert of_engine(judged(scene(unknown), 90), Family.STATE) is None


@each_row(
    ("field", "low", "high", "level"),
    [
        ("failures_per_s", 0.85, 1.05, Level.WARN),
        ("failures_per_s", 0.85, 1.3, Level.CRITICAL),
        ("refused_per_s", 0.5, 0.7, Level.NOTE),
        ("refused_per_s", 0.5, 1.0, Level.WARN),
    ],
)
def test_a_share_near_the_next_level_stays_at_one(field: str, low: float, high: float, level: Level) -> None:
    """50% of 2/s fail, and 25% of 2/s with those that are refused, once surely more and then about as many."""
    stage = Stage()
    stage.play(90, scene({**SERVES, field: high}))
    levels = set()
    for tick in range(6):
        stage.play(120, scene({**SERVES, field: high if tick % 2 else low}))
        assert stage.last is not None
        levels.add(state_of(stage.last).level)
    assert levels == {level}


@each_row("midway", [11.0, 9.0])
def test_aborts_of_both_kinds_are_one_verdict_that_stands(midway: float) -> None:
    """15% before the first token and 15% midway are 30%, and the smaller part takes no turn with the larger."""
    stage = Stage()
    early = {**SERVES, "aborts_per_s": 0.6, "outcomes": Outcomes(aborted=20.0, aborted_midway=20.0 - midway)}
    late = {**SERVES, "aborts_per_s": 0.6, "outcomes": Outcomes(aborted=20.0, aborted_midway=midway)}
    stage.play(90, scene(early))
    assert stage.last is not None
    first = state_of(stage.last).cause
    for each in (late, early, late):
        stage.play(30, scene(each))
        assert stage.last is not None
        assert state_of(stage.last).cause == first


def test_a_rate_that_is_missing_for_a_moment_ends_no_verdict() -> None:
    """The page of a busy server came late: the minute before is known."""
    stage = Stage()
    stage.play(90, scene({**SERVES, "failures_per_s": 1.0}))
    stage.play(
        10,
        scene({**SERVES, "failures_per_s": Missing(Reason.WARMING_UP), "requests_per_s": Missing(Reason.WARMING_UP)}),
    )
    assert stage.last is not None
    assert state_of(stage.last).cause == "errors"
    assert Limit.HEALTHY not in limits(stage.last)


def test_requests_of_a_minute_are_those_of_the_seconds_that_were_seen() -> None:
    """Its page told nothing for 40 s of them, and the rates of the rest are of 10 s each."""
    stage = Stage()
    fails = {**SERVES, "failures_per_s": 1.0}
    blind = {**SERVES, "failures_per_s": NOT_EXPOSED, "requests_per_s": NOT_EXPOSED}
    stage.play(60, scene(fails), every_s=2)
    stage.play(40, scene(blind), every_s=2)
    assert verdict_text(state_of(stage.play(20, scene(fails), every_s=2))) == "50% of its requests fail (30 in 30 s)"
