"""Incidents of a list of events: how long a verdict stood, and what is told first."""

from __future__ import annotations

from gpumon.history.summary import MOST, incidents
from gpumon.readings.period import Incident
from gpumon.readings.snapshot import Event, EventKind, Level


def verdict(at_s: float, level: Level, text: str, scope: str = "vllm:8000") -> Event:
    return Event(at_s, EventKind.VERDICT, scope, text, level, key=scope)


def told(*events: Event, to_s: float = 1000.0) -> list[tuple[str, str, float, bool]]:
    found, _ = incidents(events, to_s)
    return [(one.scope, one.text, one.seconds, one.ended) for one in found]


def test_a_verdict_lasts_until_its_thing_gets_another() -> None:
    assert told(
        verdict(100, Level.WARN, "queue"),
        verdict(130, Level.WARN, "kv_cache", scope="sglang:1"),
        verdict(160, Level.OK, "healthy"),
    ) == [("sglang:1", "kv_cache", 870.0, False), ("vllm:8000", "queue", 60.0, True)]


def test_a_change_from_one_to_another_makes_two() -> None:
    assert told(
        verdict(100, Level.WARN, "queue"), verdict(150, Level.WARN, "kv_cache"), verdict(250, Level.NOTE, "bandwidth")
    ) == [("vllm:8000", "kv_cache", 100.0, True), ("vllm:8000", "queue", 50.0, True)]


def test_the_most_urgent_come_first_and_events_have_no_length() -> None:
    xid = Event(300.0, EventKind.XID, "gpu 1", "Xid 79", Level.CRITICAL, key="u1")
    restart = Event(200.0, EventKind.RESTART, "vllm:8000", "restarted", Level.NOTE)
    found, left_out = incidents((restart, verdict(250, Level.WARN, "queue"), xid), 1000.0)
    assert [one.text for one in found] == ["Xid 79", "queue"]
    assert (found[0].end, found[0].seconds, left_out) == ("", 0.0, 0)


def test_an_incident_begins_when_its_verdict_began_to_hold() -> None:
    late = Event(134.0, EventKind.VERDICT, "gpu 0", "throttled", Level.WARN, "u", since_s=104.0)
    over = Event(200.0, EventKind.VERDICT, "gpu 0", "throttled is over", Level.OK, "u")
    assert told(late, over) == [("gpu 0", "throttled", 96.0, True)]


def test_what_led_to_a_verdict_is_not_told_twice_and_the_same_event_once() -> None:
    slow = Event(97.0, EventKind.THROTTLE, "gpu 0", "slowed down by heat", Level.WARN, "u")
    other = Event(97.0, EventKind.THROTTLE, "gpu 1", "slowed down by heat", Level.WARN, "v")
    late = Event(134.0, EventKind.VERDICT, "gpu 0", "throttled", Level.WARN, "u", since_s=104.0)
    xids = [Event(at, EventKind.XID, "gpu 2", "Xid 79", Level.CRITICAL, "w") for at in (50.0, 61.0, 72.0)]
    assert told(*xids, slow, other, late) == [
        ("gpu 2", "Xid 79 (3 times)", 22.0, True),
        ("gpu 0", "throttled", 896.0, False),
        ("gpu 1", "slowed down by heat", 0.0, True),
    ]


def test_what_is_left_out_is_counted() -> None:
    events = [verdict(float(at), Level.WARN, "queue", scope=f"e{at}") for at in range(MOST + 7)]
    found, left_out = incidents(events, 1000.0)
    assert (len(found), left_out) == (MOST, 7)


def test_nothing_happened() -> None:
    assert incidents((), 10.0) == ((), 0)
    assert isinstance(incidents((verdict(1, Level.WARN, "q"),), 2.0)[0][0], Incident)


def test_a_change_of_level_is_the_same_incident_at_its_worst() -> None:
    begins = Event(134.0, EventKind.VERDICT, "gpu 0", "throttled: slow", Level.WARN, "u", since_s=104.0)
    worse = Event(160.0, EventKind.VERDICT, "gpu 0", "throttled: now critical: slow, 0.99 GHz", Level.CRITICAL, "u")
    better = Event(200.0, EventKind.VERDICT, "gpu 0", "throttled: now warn: slow, 1.6 GHz", Level.WARN, "u")
    over = Event(304.0, EventKind.VERDICT, "gpu 0", "throttled is over", Level.OK, "u")
    (found,), _ = incidents((begins, worse, better, over), 1000.0)
    assert (found.level, found.text) == (Level.CRITICAL, "throttled: slow, 0.99 GHz")
    assert (found.seconds, found.ended) == (200.0, True)


def test_an_incident_ends_where_its_verdict_becomes_a_note() -> None:
    begins = verdict(100, Level.WARN, "compute: computes: 3 wait")
    note = verdict(160, Level.NOTE, "compute: now note: computes")
    assert told(begins, note) == [("vllm:8000", "compute: computes: 3 wait", 60.0, True)]
