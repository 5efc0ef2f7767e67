"""After a cure: what is left of a trouble in the windows raises nothing new, and what is new is told."""

from __future__ import annotations

from gpumon.demo.scenarios import scenario
from gpumon.readings.verdict import Level, Verdict
from gpumon.triage.marks import URGENT
from tests.accuracy.triage import frames, judged
from tests.each_row import each_row


def told(name: str, from_s: float, to_s: float, every_s: int) -> list[Verdict]:
    """Urgent verdicts of these seconds of a scenario that were found in them."""
    played = scenario(name)
    verdicts = []
    for at_s, snapshot in judged(played, frames(played, to_s, every_s=every_s)):
        for verdict in snapshot.verdicts:
            if at_s >= from_s and verdict.level in URGENT and not verdict.until:
                verdicts.append(verdict)
    return verdicts


@each_row(
    "name, cured_s, to_s",
    [
        ("cured-slots", 216.0, 320.0),  # the queue is empty
        ("cured-kv-cache", 190.0, 300.0),
        ("cured-errors", 150.0, 240.0),  # the new process answers
        ("cured-host-memory", 106.0, 180.0),
    ],
)
def test_what_is_left_in_the_windows_is_no_new_trouble(name: str, cured_s: float, to_s: float) -> None:
    assert [(verdict.scope, verdict.cause) for verdict in told(name, cured_s, to_s, every_s=4)] == []


def test_a_new_trouble_within_those_seconds_is_told() -> None:
    verdicts = told("new-trouble-after-a-cure", 150.0, 215.0, every_s=2)
    assert "errors" in {verdict.cause for verdict in verdicts}
    assert Level.CRITICAL in {verdict.level for verdict in verdicts if verdict.cause == "errors"}
    assert "queue_bursts" not in {verdict.cause for verdict in verdicts}
