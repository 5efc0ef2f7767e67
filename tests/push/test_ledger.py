"""What a receiver is told and when: windows, repeats, silences, ends, and what an earlier run has told."""

from __future__ import annotations

import msgspec

from gpumon.push.ledger import MOST_WAITING, Ledger, WebhookRule
from gpumon.push.records import ChangeState, KeptState
from gpumon.readings.format import rfc3339
from gpumon.readings.verdict import Acknowledged, Kind, Level, Limit, Verdict
from gpumon.triage.marks import ABSENT_S
from gpumon.triage.silence import parse_silence
from tests.each_row import each_row
from tests.push.moments import ALERT, ENGINE, KV_FULL, NOTE, SCENE, START_S, THROTTLED, alike, moment, storm
from tests.records import replace

MIDNIGHT = 0
RULE = WebhookRule("warn", (), 0.0, 0.0, by_incident=False)
GROUPED = RULE._replace(group_s=10.0)


def ledger(rule: WebhookRule = RULE, kept: KeptState | None = None) -> Ledger:
    return Ledger(rule, kept or KeptState())


def told(made: Ledger) -> list[list[tuple[str, str, str]]]:
    """State, code and level of the changes of each message that waits."""
    return [[(one.state.value, one.code, one.level) for one in message.changes] for message in made.kept.waiting]


def see(made: Ledger, after_s: float, *verdicts: Verdict, **others: object) -> None:
    made.see(moment(after_s, *verdicts, **others), MIDNIGHT)


def test_begin_change_of_level_and_end_are_a_change_each_of_one_id() -> None:
    made = ledger()
    see(made, 0.0, KV_FULL)
    see(made, 1.0, KV_FULL)
    see(made, 2.0, replace(KV_FULL, level=Level.CRITICAL))
    see(made, 3.0)
    assert told(made) == [
        [("began", "kv_cache_full", "warn")],
        [("level", "kv_cache_full", "critical")],
        [("ended", "kv_cache_full", "critical")],
    ]
    changes = [message.changes[0] for message in made.kept.waiting]
    assert len({change.id for change in changes}) == 1
    assert [change.level_before for change in changes] == ["", "warn", ""]
    assert changes[0].verdict["evidence"][0]["value"] == 0.97
    assert [message.number for message in made.kept.waiting] == [1, 2, 3]


def test_a_level_below_the_least_one_is_no_news_and_ends_what_was_told() -> None:
    made = ledger()
    see(made, 0.0, NOTE)
    assert told(made) == []
    see(made, 1.0, THROTTLED)
    see(made, 2.0, replace(THROTTLED, level=Level.NOTE))
    assert told(made) == [[("began", "throttled", "critical")], [("ended", "throttled", "critical")]]


def test_a_storm_within_the_window_is_one_message() -> None:
    made = ledger(GROUPED)
    for second in range(9):
        see(made, float(second), *storm(second + 1))
    assert told(made) == []
    see(made, 9.0, *storm(10))
    assert [len(message) for message in told(made)] == [10]
    see(made, 10.0, *storm(11))
    assert [len(message) for message in told(made)] == [10], "a window of its own"


LOST = Verdict(
    "gpu 2", Limit.HARDWARE_FAULT, "lost", KV_FULL.since, Kind.GPU, SCENE.gpus[2].reading.uuid, level=Level.CRITICAL
)
HANGS = Verdict(ENGINE.name, Limit.HUNG, "hung_lost_gpu", KV_FULL.since, Kind.ENGINE, ENGINE.key, level=Level.CRITICAL)


def test_a_cause_is_one_change_with_its_consequences_inside() -> None:
    made = ledger()
    see(made, 0.0, LOST, replace(HANGS, caused_by=LOST.id))
    assert told(made) == [[("began", "hardware_fault", "critical")]]
    (change,) = made.kept.waiting[0].changes
    assert [consequence["id"] for consequence in change.consequences] == [HANGS.id]
    assert ENGINE.name in change.text
    see(made, 1.0, HANGS)
    assert told(made)[1:] == [[("began", "hung", "critical"), ("ended", "hardware_fault", "critical")]]


def test_a_consequence_that_was_told_before_its_cause_is_not_over() -> None:
    made = ledger()
    see(made, 0.0, HANGS)
    see(made, 1.0, LOST, replace(HANGS, caused_by=LOST.id))
    see(made, 2.0, LOST, replace(HANGS, caused_by=LOST.id))
    assert told(made) == [[("began", "hung", "critical")], [("began", "hardware_fault", "critical")]]


def test_of_a_cause_that_is_silenced_the_consequences_are_told() -> None:
    made = ledger(WebhookRule("note", (parse_silence("hardware_fault[gpu 2]"),), 0.0, 0.0, by_incident=False))
    see(made, 0.0, LOST, replace(HANGS, caused_by=LOST.id))
    assert told(made) == [[("began", "hung", "critical")]]


def test_what_is_alike_is_one_change_and_who_joins_later_is_told() -> None:
    made = ledger()
    see(made, 0.0, *alike(62))
    (change,) = made.kept.waiting[0].changes
    assert change.scope == "GPUs 0-61"
    see(made, 1.0, *alike(62))
    see(made, 2.0, *alike(63))
    assert [change.scope for change in made.kept.waiting[1].changes] == ["gpu 62"]
    see(made, 3.0, gpus=tuple(replace(SCENE.gpus[0], uuid=f"GPU-{at}") for at in range(63)))
    assert [change.state.value for change in made.kept.waiting[2].changes] == ["ended", "ended"]


def test_an_open_window_is_kept_with_what_was_told() -> None:
    """A gpumon that is killed while it waits for more changes has told nobody of those in the window."""
    made = ledger(GROUPED)
    see(made, 0.0, KV_FULL)
    next_run = ledger(GROUPED, msgspec.json.decode(msgspec.json.encode(made.kept), type=KeptState))
    see(next_run, 5.0, KV_FULL)
    assert told(next_run) == []
    see(next_run, 9.0, KV_FULL)
    assert told(next_run) == [[("began", "kv_cache_full", "warn")]]


def test_a_window_does_not_wait_for_a_later_snapshot_than_it_must() -> None:
    made = ledger(GROUPED)
    see(made, 0.0, KV_FULL, interval_s=60.0)
    assert len(told(made)) == 1


def test_what_stands_is_sent_again_but_not_while_messages_wait() -> None:
    made = ledger(RULE._replace(repeat_s=60.0))
    see(made, 0.0, KV_FULL)
    see(made, 61.0, KV_FULL)
    assert len(told(made)) == 1
    made.take_off_queue(made.kept.waiting[0])
    see(made, 62.0, KV_FULL)
    see(made, 63.0, KV_FULL)
    assert told(made) == [[("stands", "kv_cache_full", "warn")]]


def test_what_is_silenced_does_not_begin_but_what_was_told_ends() -> None:
    made = ledger(RULE._replace(silences=(parse_silence("kv_cache_full 22:00-06:00"),)))
    night, day = 23 * 60, 12 * 60
    made.see(moment(0.0, KV_FULL, THROTTLED), night)
    assert told(made) == [[("began", "throttled", "critical")]]
    made.see(moment(1.0, KV_FULL, THROTTLED), day)
    made.see(moment(2.0, THROTTLED), night)
    assert told(made)[1:] == [[("began", "kv_cache_full", "warn")], [("ended", "kv_cache_full", "warn")]]


def test_an_alert_on_a_figure_is_a_warning_and_one_on_a_verdict_is_that_verdict() -> None:
    made = ledger()
    made.see(replace(moment(0.0, KV_FULL), alerts=(ALERT, replace(ALERT, name="kv", level="warn"))), MIDNIGHT)
    assert told(made) == [[("began", "kv_cache_full", "warn"), ("began", "alert", "warn")]]
    assert made.kept.waiting[0].changes[1].text == "temperature_c 91 > 90"


def test_a_thing_that_is_not_listed_ends_later() -> None:
    made = ledger()
    see(made, 0.0, KV_FULL)
    see(made, 1.0, engines=())
    see(made, 599.0, engines=())  # ten minutes: an engine that is started anew is back by then
    assert len(told(made)) == 1
    see(made, 601.0, engines=())
    assert told(made)[1:] == [[("ended", "kv_cache_full", "warn")]]


def test_the_next_run_goes_on_where_this_one_ended() -> None:
    before = ledger()
    see(before, 0.0, KV_FULL, THROTTLED)
    written = msgspec.json.encode(before.kept)
    made = ledger(kept=msgspec.json.decode(written, type=KeptState))
    see(made, 5.0)
    see(made, 40.0, KV_FULL)
    assert len(told(made)) == 1, "neither over nor new: the new run has to watch for a while"
    for second in range(41, 41 + int(ABSENT_S[Level.CRITICAL])):
        see(made, float(second), KV_FULL)
    assert told(made)[1:] == [[("ended", "throttled", "critical")]]


def test_a_clock_that_is_put_right_after_the_start_is_no_time_that_was_watched() -> None:
    """A server's clock may be hours off until its time service has set it."""
    before = ledger()
    see(before, 0.0, THROTTLED)
    made = ledger(kept=before.kept)
    see(made, 5.0)
    see(made, 7200.0)
    see(made, 7201.0, THROTTLED)
    assert len(told(made)) == 1


def test_the_oldest_changes_make_room_and_that_is_said() -> None:
    made = ledger()
    size = 400
    for second in range(0, 8, 2):
        see(made, float(second), *storm(size))
        see(made, second + 1.0, gpus=tuple(replace(moment(0.0).gpus[0], uuid=f"GPU-{at}") for at in range(size)))
    assert made.waiting_changes <= MOST_WAITING
    sizes = [len(message.changes) for message in made.kept.waiting]
    assert sum(sizes) + made.kept.waiting[0].dropped == 8 * size
    assert [message.dropped for message in made.kept.waiting[1:]] == [0] * (len(sizes) - 1)


def test_flapping_costs_nothing_of_the_order() -> None:
    made = ledger(GROUPED)
    for second in range(9):
        see(made, float(second), *((KV_FULL,) if second % 2 == 0 else ()))
    made.flush(moment(9.0).wall_s)
    assert [state for state, *_ in told(made)[0]] == ["began", "ended"] * 4 + ["began"]


def test_pagerduty_gets_an_incident_for_each_window_and_its_end_with_the_last_verdict() -> None:
    made = ledger(GROUPED._replace(by_incident=True))
    for second in range(10):
        see(made, float(second), KV_FULL, THROTTLED)
    for second in range(10, 20):
        see(made, float(second), THROTTLED)
    (opened,) = made.kept.waiting
    assert (len(opened.changes), opened.resolves) == (2, False)
    for second in range(20, 31):
        see(made, float(second))
    _, closed = made.kept.waiting
    assert (closed.incident, closed.resolves) == (opened.incident, True)
    assert closed.changes[-1].state is ChangeState.ENDED


def test_names_of_processes_and_users_stay_on_the_host() -> None:
    made = ledger()
    names = ("process", "processes", "program", "job", "pids", "kill")
    secret = replace(KV_FULL, parameters={**dict.fromkeys(names, "train.py --token hunter2"), "owner": "mallory"})
    see(made, 0.0, secret)
    assert b"hunter2" not in msgspec.json.encode(made.kept)
    assert b"mallory" not in msgspec.json.encode(made.kept)


@each_row("wall_s", [-3600.0, 3600.0 * 24])
def test_a_clock_that_was_set_costs_no_message(wall_s: float) -> None:
    made = ledger(GROUPED)
    see(made, 0.0, KV_FULL)
    see(made, wall_s, KV_FULL)
    assert len(told(made)) == 1
    assert ENGINE.name in {change.scope for change in made.kept.waiting[0].changes}


MINE = Acknowledged("anna", "fan ordered", until=rfc3339(START_S + 3600.0), since=rfc3339(START_S))
KNOWN = replace(KV_FULL, acknowledged=MINE)


def test_what_is_acknowledged_is_told_once_and_then_no_more() -> None:
    made = ledger(RULE._replace(repeat_s=10.0))
    see(made, 0.0, KV_FULL)
    for second in range(1, 60):
        see(made, float(second), KNOWN)
    see(made, 61.0)
    assert told(made) == [
        [("began", "kv_cache_full", "warn")],
        [("acknowledged", "kv_cache_full", "warn")],
        [("ended", "kv_cache_full", "warn")],
    ]
    text = made.kept.waiting[1].changes[0].text
    assert "acknowledged by anna" in text
    assert "fan ordered" in text
    assert made.kept.waiting[1].changes[0].verdict["acknowledged"]["who"] == "anna"


def test_what_was_acknowledged_before_it_was_told_is_no_news_until_it_counts_again() -> None:
    made = ledger()
    see(made, 0.0, KNOWN)
    see(made, 1.0, KNOWN)
    assert told(made) == []
    see(made, 2.0, KV_FULL)
    assert told(made) == [[("began", "kv_cache_full", "warn")]]


def test_what_gets_worse_or_counts_again_is_news() -> None:
    made = ledger()
    see(made, 0.0, KV_FULL)
    see(made, 1.0, KNOWN)
    see(made, 2.0, KV_FULL)
    see(made, 3.0, KNOWN)
    see(made, 4.0, replace(KV_FULL, level=Level.CRITICAL))
    assert [message[0][0] for message in told(made)] == ["began", "acknowledged", "stands", "acknowledged", "level"]


def test_an_alertmanager_which_forgets_what_it_does_not_hear_of_is_told_again() -> None:
    made = ledger(RULE._replace(repeat_s=10.0, renews=True))
    see(made, 0.0, KV_FULL)
    for second in range(1, 25):
        made.kept.waiting.clear()
        see(made, float(second), KNOWN)
        if second in (1, 11, 21):
            assert told(made) == [[("acknowledged", "kv_cache_full", "warn")]]
        else:
            assert told(made) == []
