"""Alerts over time: raised after a while, over after a while, and unmoved by what is missing."""

from __future__ import annotations

from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.verdict import Acknowledged, Verdict
from gpumon.triage.alerts import AlertRule, Alerts, parse
from tests.push.moments import THROTTLED
from tests.tui import scenes
from tests.tui.scenes import replace

HOT = AlertRule("hot", parse("gpus[0].temperature_c > 90"), for_s=10.0, clear_s=20.0, title=True)
SCENE = scenes.snapshot(gpus=2, engines=1)
GONE = Missing(Reason.LOST)


def run(values: list[Reading | None], rule: AlertRule = HOT) -> list[tuple[int, bool]]:
    """(second, raised) of each change, for temperatures of 5 s each; None: the GPU is not listed."""
    alerts, seen = Alerts((rule,)), []
    for at, value in enumerate(values):
        gpus = SCENE.gpus[1:] if value is None else (replace(SCENE.gpus[0], temperature_c=value), *SCENE.gpus[1:])
        frame = Frame(at, 1e9 + 5 * at, 5.0 * at, 5.0, HostReading())
        shown, changes = alerts.judge(frame, replace(SCENE, gpus=gpus))
        seen += [(5 * at, change.raised) for change in changes]
        standing = bool(seen) and seen[-1][1]
        assert [alert.name for alert in shown.alerts] == ["hot"] * standing
    return seen


def test_it_is_raised_after_a_while_and_over_after_a_while() -> None:
    assert run([80, 95, 95, 95, 80, 80, 80, 80, 80]) == [(15, True), (35, False)]


def test_a_burst_raises_nothing_and_a_dip_ends_nothing() -> None:
    assert run([95, 95, 80, 95, 95, 80]) == []
    assert run([95, 95, 95, 80, 95, 80, 95]) == [(10, True)]


def test_what_is_missing_neither_raises_nor_ends() -> None:
    assert run([GONE, GONE, GONE, GONE]) == []
    assert run([95, 95, 95, GONE, GONE, GONE, GONE, GONE, GONE]) == [(10, True)]


def test_after_a_long_gap_it_is_waited_for_anew() -> None:
    """Missing for 15 s while the alert waits for 10 s: what was before does not count."""
    assert run([95, GONE, GONE, GONE, 95, 95]) == []
    assert run([95, GONE, GONE, GONE, 95, 95, 95]) == [(30, True)]
    assert run([95, GONE, 95]) == [(10, True)]
    assert run([95, GONE, GONE, GONE, GONE, 80]) == []


def test_at_once_where_nothing_is_to_be_waited_for() -> None:
    assert run([95, 80], HOT._replace(for_s=0.0, clear_s=0.0)) == [(0, True), (5, False)]


def test_it_says_what_it_was_raised_by() -> None:
    alerts = Alerts((HOT._replace(for_s=0.0),))
    shown, (change,) = alerts.judge(
        Frame(1, 1e9, 0.0, 1.0, HostReading()), replace(SCENE, gpus=(replace(SCENE.gpus[0], temperature_c=97.0),))
    )
    assert (change.alert.text, change.alert.scope, change.alert.value) == ("temperature_c 97 > 90", "gpu 0", 97.0)
    assert shown.alerts[0].title


def run_verdicts(*seen: Verdict | None) -> list[tuple[int, bool, bool]]:
    """(alerts that are raised, with a bell, changed) at each second in which this verdict stands; None: none does."""
    rule = AlertRule("bad", parse("critical"), for_s=1.0, clear_s=1.0, bell=True)
    alerts = Alerts((rule,))
    told = []
    for second, verdict in enumerate(seen):
        frame = Frame(second, 1e9 + second, float(second), 1.0, HostReading())
        shown, changes = alerts.judge(frame, replace(SCENE, verdicts=() if verdict is None else (verdict,)))
        told.append((len(shown.alerts), any(alert.bell for alert in shown.alerts), bool(changes)))
    return told


def test_an_acknowledged_verdict_raises_no_alert_and_rings_none_that_is_raised() -> None:
    known = replace(THROTTLED, acknowledged=Acknowledged("anna", "", "2026-11-23T06:00:00Z", "2026-11-22T22:00:00Z"))
    assert run_verdicts(known, known, known) == [(0, False, False)] * 3
    raised = (1, True, False)
    assert run_verdicts(THROTTLED, THROTTLED, known, known, THROTTLED)[2:] == [
        (1, False, False),
        (1, False, False),
        raised,
    ]
    assert run_verdicts(known, known, THROTTLED, THROTTLED)[2:] == [(0, False, False), (1, True, True)]
    assert run_verdicts(THROTTLED, THROTTLED, known, None, None, None)[-1] == (0, False, False)
