"""What an acknowledgement covers, and when it is over: snapshots one after the other, without a clock."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.readings.verdict import Family, Level, Limit, Verdict
from gpumon.triage.acknowledgement import (
    SETTLE_S,
    Acknowledgement,
    Acknowledgements,
    acknowledge,
)
from gpumon.triage.marks import ABSENT_S
from tests.each_row import each_row
from tests.push.moments import ENGINE, KV_FULL, START_S, THROTTLED, moment
from tests.records import replace

HOUR_S = 3600.0
GRACE_S = ABSENT_S[Level.WARN]
WARNING = replace(THROTTLED, level=Level.WARN)
CONSEQUENCE = replace(KV_FULL, caused_by=WARNING.id)


def known(verdict: Verdict = WARNING, *others: Verdict, hours: float = 8.0) -> Acknowledgement:
    return acknowledge(verdict, (verdict, *others), "anna", "fan ordered", START_S, hours * HOUR_S)


class Watch:
    """Snapshots with these acknowledgements, of which those that are over fall away."""

    def __init__(self, *acknowledgements: Acknowledgement) -> None:
        self.kept: Sequence[Acknowledgement] = acknowledgements
        self._judge = Acknowledgements()

    def see(self, after_s: float, *verdicts: Verdict, **others: object) -> list[bool]:
        """Whether each verdict is covered in the snapshot so many seconds after the start."""
        marked = self._judge.mark(moment(after_s, *verdicts, **others), self.kept)
        self.kept = [one for one in self.kept if one not in marked.over]
        return [verdict.acknowledged is not None for verdict in marked.snapshot.verdicts]


def test_it_says_who_why_and_until_when() -> None:
    judge = Acknowledgements()
    shown = judge.mark(moment(1.0, WARNING), [known()]).snapshot.verdicts[0].acknowledged
    assert shown is not None
    assert (shown.who, shown.reason) == ("anna", "fan ordered")
    assert shown.since < shown.until
    assert shown == known().shown


def test_it_covers_its_own_verdict_alone() -> None:
    same_thing = replace(WARNING, code=Limit.MEMORY_FULL, cause="vram", family=Family.USE)
    other_thing = replace(WARNING, key=ENGINE.key)
    watch = Watch(known())
    assert watch.see(1.0, WARNING, same_thing, other_thing) == [True, False, False]


def test_its_time_is_over() -> None:
    watch = Watch(known(hours=1.0))
    assert watch.see(HOUR_S - 1.0, WARNING) == [True]
    assert watch.see(HOUR_S, WARNING) == [False]
    assert not watch.kept


def test_a_rise_in_level_breaks_it_for_good_and_a_fall_does_not() -> None:
    watch = Watch(known())
    assert watch.see(1.0, replace(WARNING, level=Level.NOTE)) == [True]
    assert watch.see(2.0, WARNING) == [True]
    assert watch.see(3.0, THROTTLED) == [False]
    assert watch.see(4.0, WARNING) == [False]


@each_row("other", [{"cause": "power_brake"}, {"code": Limit.HARDWARE_FAULT}])
def test_another_cause_breaks_it_once_it_has_settled(other: dict[str, object]) -> None:
    watch = Watch(known())
    watch.see(1.0, WARNING)
    for second in range(2, 2 + int(SETTLE_S) - 1):
        assert watch.see(float(second), replace(WARNING, **other)) == [True]
    assert watch.see(1.0 + SETTLE_S, replace(WARNING, **other)) == [False]
    assert watch.see(2.0 + SETTLE_S, WARNING) == [False], "broken is broken"


def test_causes_that_take_turns_do_not_break_it() -> None:
    watch = Watch(known())
    other = replace(WARNING, cause="power_brake")
    for second in range(60):
        assert watch.see(float(second), other if second % 8 > 2 else WARNING) == [True]


def test_it_outlives_a_verdict_that_flaps_and_ends_with_one_that_is_gone() -> None:
    watch = Watch(known())
    assert watch.see(0.0, WARNING) == [True]
    for second in range(1, int(GRACE_S)):
        watch.see(float(second))
    assert watch.see(GRACE_S, WARNING) == [True]
    for second in range(int(GRACE_S) + 1, 2 * int(GRACE_S) + 1):
        watch.see(float(second))
    assert not watch.kept
    assert watch.see(2 * GRACE_S + 1.0, WARNING) == [False]


def test_a_new_run_waits_for_a_note_that_takes_ten_minutes_to_be_found() -> None:
    """As `memory_idle`, which a run finds after 10 minutes of its own."""
    note = replace(WARNING, level=Level.NOTE)
    watch = Watch(known(note))
    for second in range(601):
        watch.see(float(second))
    assert watch.see(601.0, note) == [True]


def test_seconds_in_which_nobody_watched_do_not_end_it() -> None:
    watch = Watch(known())
    watch.see(0.0, WARNING)
    watch.see(1.0)
    assert watch.see(GRACE_S * 2, WARNING) == [True]


def test_a_run_that_never_saw_the_thing_does_not_end_it() -> None:
    """As `gpumon --no-nvml` beside one that reads the GPUs."""
    watch = Watch(known())
    for second in range(int(GRACE_S) * 2):
        watch.see(float(second), gpus=())
    assert watch.kept
    for second in range(int(GRACE_S) * 2, int(GRACE_S) * 3 + 2):
        watch.see(float(second))
    assert not watch.kept, "one that sees it does"


def test_what_follows_from_it_is_covered_up_to_the_level_that_was_known() -> None:
    watch = Watch(known(WARNING, CONSEQUENCE))
    far = replace(CONSEQUENCE, key="http://127.0.0.1:9999", caused_by=CONSEQUENCE.id)
    own = replace(CONSEQUENCE, key="http://127.0.0.1:9998", caused_by="")
    assert watch.see(1.0, WARNING, CONSEQUENCE, far, own) == [True, True, True, False]
    assert watch.see(2.0, WARNING, replace(CONSEQUENCE, level=Level.CRITICAL)) == [True, False]
    assert watch.see(3.0, WARNING, CONSEQUENCE) == [True, True]


def test_what_was_critical_when_its_cause_was_acknowledged_is_covered() -> None:
    suffers = replace(CONSEQUENCE, level=Level.CRITICAL)
    watch = Watch(known(WARNING, suffers))
    assert watch.see(1.0, WARNING, suffers) == [True, True]
    assert watch.see(2.0, THROTTLED, suffers) == [False, False], "the cause itself got worse"


def test_causes_in_a_circle_come_to_an_end() -> None:
    first = replace(WARNING, caused_by=KV_FULL.id)
    second = replace(KV_FULL, caused_by=WARNING.id)
    assert Watch(known(first, second)).see(1.0, first, second) == [True, True]
