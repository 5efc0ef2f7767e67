"""Incidents of a list of events: how long a verdict stood, and what is told first."""

from __future__ import annotations

import msgspec

from gpumon.history.incidents import MOST_LISTED_INCIDENTS, incidents
from gpumon.readings.period import Incident
from gpumon.readings.snapshot import Event, EventKind, Level
from gpumon.readings.verdict import Family, Verdict
from gpumon.triage.render import LIMIT_NAMES


def verdict(
    at_s: float, level: Level, text: str, scope: str = "vllm:8000", code: str = "verdict_began", since_s: float = 0.0
) -> Event:
    """An event of a verdict `NAME: text`, or of its end."""
    name, _, cause = text.partition(": ")
    limit = next(limit for limit, words in LIMIT_NAMES.items() if words == name)
    of = Verdict(scope, limit, cause, "", key=scope, level=level)
    return Event(at_s, EventKind.VERDICT, scope, code, level, scope, since_s=since_s, verdict=of)


def caused(event: Event, by: Event) -> Event:
    """The event of a verdict that comes of another one."""
    assert event.verdict is not None
    assert by.verdict is not None
    return msgspec.structs.replace(event, verdict=msgspec.structs.replace(event.verdict, caused_by=by.verdict.id))


def of_family(family: Family, event: Event) -> Event:
    assert event.verdict is not None
    return msgspec.structs.replace(event, verdict=msgspec.structs.replace(event.verdict, family=family))


def told(*events: Event, to_s: float = 1000.0) -> list[tuple[str, str, float, bool]]:
    found, _ = incidents(events, to_s)
    return [(one.scope, one.text, one.seconds, one.ended) for one in found]


def test_a_verdict_lasts_until_its_thing_gets_another() -> None:
    assert told(
        verdict(100, Level.WARN, "queue limit"),
        verdict(130, Level.WARN, "KV cache full", scope="sglang:1"),
        verdict(160, Level.OK, "healthy"),
    ) == [("sglang:1", "KV cache full", 870.0, False), ("vllm:8000", "queue limit", 60.0, True)]


def test_a_change_from_one_to_another_makes_two() -> None:
    assert told(
        verdict(100, Level.WARN, "queue limit"),
        verdict(150, Level.WARN, "KV cache full"),
        verdict(250, Level.NOTE, "memory-bandwidth-bound"),
    ) == [("vllm:8000", "KV cache full", 100.0, True), ("vllm:8000", "queue limit", 50.0, True)]


def test_two_verdicts_of_one_thing_at_once_are_an_incident_and_what_came_of_it() -> None:
    full = of_family(Family.LIMIT, verdict(130, Level.WARN, "KV cache full", since_s=100.0))
    failing = caused(of_family(Family.STATE, verdict(130, Level.WARN, "failing")), full)
    urgent = of_family(Family.LIMIT, verdict(160, Level.CRITICAL, "KV cache full", code="verdict_level"))
    over = of_family(Family.LIMIT, verdict(400, Level.OK, "KV cache full", code="verdict_over"))
    found, _ = incidents((full, failing, urgent, over), 1000.0)
    assert [(one.text, one.level, one.seconds, one.ended) for one in found] == [
        ("KV cache full", Level.CRITICAL, 300.0, True),
        ("failing", Level.WARN, 870.0, False),
    ]
    assert found[1].caused_by == found[0].id


def test_the_most_urgent_come_first_and_events_have_no_length() -> None:
    xid = Event(300.0, EventKind.XID, "gpu 1", "Xid 79", level=Level.CRITICAL, key="u1")
    restart = Event(200.0, EventKind.RESTART, "vllm:8000", "restarted", level=Level.NOTE)
    found, left_out = incidents((restart, verdict(250, Level.WARN, "queue limit"), xid), 1000.0)
    assert [one.text for one in found] == ["Xid 79", "queue limit"]
    assert (found[0].end, found[0].seconds, left_out) == ("", 0.0, 0)


def test_an_incident_begins_when_its_verdict_began_to_hold() -> None:
    late = verdict(134.0, Level.WARN, "throttled", "gpu 0", since_s=104.0)
    over = verdict(200.0, Level.OK, "throttled", "gpu 0", "verdict_over")
    assert told(late, over) == [("gpu 0", "throttled", 96.0, True)]


def test_what_led_to_a_verdict_is_not_told_twice_and_the_same_event_once() -> None:
    slow = Event(97.0, EventKind.THROTTLE, "gpu 0", "slowed down by heat", level=Level.WARN, key="gpu 0")
    other = Event(97.0, EventKind.THROTTLE, "gpu 1", "slowed down by heat", level=Level.WARN, key="v")
    late = verdict(134.0, Level.WARN, "throttled", "gpu 0", since_s=104.0)
    xids = [Event(at, EventKind.XID, "gpu 2", "Xid 79", level=Level.CRITICAL, key="w") for at in (50.0, 61.0, 72.0)]
    assert told(*xids, slow, other, late) == [
        ("gpu 2", "Xid 79 (3 times)", 22.0, True),
        ("gpu 0", "throttled", 896.0, False),
        ("gpu 1", "slowed down by heat", 0.0, True),
    ]


def test_what_is_left_out_is_counted() -> None:
    events = [verdict(float(at), Level.WARN, "queue limit", scope=f"e{at}") for at in range(MOST_LISTED_INCIDENTS + 7)]
    found, left_out = incidents(events, 1000.0)
    assert (len(found), left_out) == (MOST_LISTED_INCIDENTS, 7)


def test_nothing_happened() -> None:
    assert incidents((), 10.0) == ((), 0)
    assert isinstance(incidents((verdict(1, Level.WARN, "queue limit"),), 2.0)[0][0], Incident)


def test_a_change_of_level_is_the_same_incident_at_its_worst() -> None:
    begins = verdict(134.0, Level.WARN, "throttled: slow", "gpu 0", since_s=104.0)
    worse = verdict(160.0, Level.CRITICAL, "throttled: slow, 0.99 GHz", "gpu 0", "verdict_level")
    better = verdict(200.0, Level.WARN, "throttled: slow, 1.6 GHz", "gpu 0", "verdict_level")
    over = verdict(304.0, Level.OK, "throttled", "gpu 0", "verdict_over")
    (found,), _ = incidents((begins, worse, better, over), 1000.0)
    assert (found.level, found.text) == (Level.CRITICAL, "throttled: slow, 0.99 GHz")
    assert (found.seconds, found.ended) == (200.0, True)


def test_an_incident_ends_where_its_verdict_becomes_a_note() -> None:
    begins = verdict(100, Level.WARN, "compute-bound: computes: 3 wait")
    note = verdict(160, Level.NOTE, "compute-bound: computes", code="verdict_level")
    assert told(begins, note) == [("vllm:8000", "compute-bound: computes: 3 wait", 60.0, True)]


def test_what_came_of_an_incident_follows_it_also_where_that_is_known_late() -> None:
    root = verdict(100, Level.WARN, "throttled", "gpu 0")
    hung = verdict(90, Level.CRITICAL, "hung", "vllm:8000")
    slow = caused(verdict(110, Level.WARN, "queue limit", "vllm:8001"), root)
    other = verdict(50, Level.WARN, "queue limit", "vllm:8002")
    over = caused(verdict(200, Level.OK, "hung", "vllm:8000", "verdict_over"), root)
    found, left_out = incidents((other, hung, root, slow, over), 1000.0)
    assert [(one.scope, bool(one.caused_by)) for one in found] == [
        ("gpu 0", False),
        ("vllm:8000", True),
        ("vllm:8001", True),
        ("vllm:8002", False),
    ]
    assert found[1].caused_by == found[0].id
    assert left_out == 0


def test_what_came_of_something_that_is_not_listed_is_an_incident_of_its_own() -> None:
    root = verdict(100, Level.NOTE, "throttled", "gpu 0")
    late = caused(verdict(500, Level.WARN, "queue limit", "vllm:8001"), verdict(100, Level.WARN, "throttled", "gpu 1"))
    ended = verdict(300, Level.OK, "throttled", "gpu 1", "verdict_over")
    first = verdict(100, Level.WARN, "throttled", "gpu 1")
    found, _ = incidents((root, first, caused(verdict(110, Level.WARN, "hung"), root), ended, late), 1000.0)
    assert {one.scope: one.caused_by for one in found} == {"gpu 1": "", "vllm:8000": "", "vllm:8001": ""}


def test_an_xid_that_a_verdict_names_is_told_once() -> None:
    xid = Event(97.0, EventKind.XID, "gpu 0", "Xid 79", level=Level.CRITICAL, key="gpu 0")
    broken = verdict(98.0, Level.CRITICAL, "hardware fault", "gpu 0")
    assert broken.verdict is not None
    named = msgspec.structs.replace(broken.verdict, parameters={"xid": 79.0})
    assert len(told(xid, broken)) == 2
    assert len(told(xid, msgspec.structs.replace(broken, verdict=named))) == 1
