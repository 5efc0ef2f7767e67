"""The judge of `tests.real.troubles`: what is right passes, and each kind of wrong is named."""

from __future__ import annotations

from tests.real.troubles import TROUBLES, Fresh, Heard, Said, Trouble, by_start, judge

TROUBLE = Trouble(
    load="c4:80:64:400",
    begins_s=20.0,
    lasts_s=60.0,
    right=("unresponsive/part_*",),
    within_s=20.0,
    levels=("critical",),
)
NAMED = Fresh(1, "x 1 critical", (Said(30.0, "vllm:1", "unresponsive/part_stopped", "critical", "stopped"),))
CALM = Fresh(0, "12 tok/s not judged yet", ())


def said(*what: str, begins_s: float = 5.0, level: str = "critical") -> list[Said]:
    """Each of these verdicts in every second from `begins_s` on, until 70 s after the cause began."""
    return [Said(float(second), "vllm:1", one, level, "") for second in range(int(begins_s), 70) for one in what]


def heard(verdicts: list[Said], fresh: Fresh = NAMED, trouble: Trouble = TROUBLE) -> Heard:
    return judge("vllm", "core-stopped", trouble, verdicts, fresh)


def test_a_verdict_in_time_that_stands_alone_is_right() -> None:
    outcome = heard(said("unresponsive/part_stopped", "host_cpu_saturated/cpu_full"))
    assert (outcome.named_after_s, outcome.problems) == (5.0, ())
    assert outcome.fresh == "1: x 1 critical"


def test_late_silent_and_wrong_verdicts_are_problems() -> None:
    assert heard(said("unresponsive/part_stopped", begins_s=25.0)).problems == ("named after 25 s instead of 20",)
    assert heard([], CALM).problems == ("not named: silent",)
    (problem,) = heard(said("unresponsive/part_stopped", "queue_limit/queue_slots")).problems
    assert problem.startswith("after 5 s vllm:1: queue_limit/queue_slots critical")
    (problem,) = heard(said("unresponsive/part_stopped") + said("unknown/no_figure", level="note")).problems
    assert "unknown/no_figure" in problem


def test_fresh_commands_say_what_watch_says() -> None:
    verdicts = said("unresponsive/part_stopped")
    unnamed, status = heard(verdicts, CALM).problems
    assert unnamed == "a fresh snapshot does not name it: silent"
    assert status == "a fresh status ends with 0 instead of 1: 12 tok/s not judged yet"
    other = NAMED._replace(verdicts=(*NAMED.verdicts, Said(30.0, "gpu 0", "hung/no_tokens", "warn", "no token")))
    assert heard(verdicts, other).problems == ("a fresh snapshot says gpu 0: hung/no_tokens warn: no token",)
    needs_figures = TROUBLE._replace(is_state=False)
    assert heard(verdicts, CALM, needs_figures).problems == ()


def test_a_clean_restart_may_go_unsaid_but_is_no_crash() -> None:
    restarted = TROUBLE._replace(right=("draining/*",), is_state=False, may_be_silent=True)
    assert heard([], CALM, restarted).problems == ()
    (problem,) = heard(said("down/crashed"), CALM, restarted).problems
    assert "down/crashed" in problem


def test_troubles_share_a_start_until_one_ends_the_engine() -> None:
    starts = by_start([*TROUBLES])
    assert [name for names in starts for name in names] == [*TROUBLES]
    assert [TROUBLES[names[-1]].ends for names in starts] == [True, True, True]
    assert not any(TROUBLES[name].ends for names in starts for name in names[:-1])
