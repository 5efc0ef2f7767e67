"""Forecasts of a play beside what came of them (`make triage` plays more of them, with three kinds of traffic)."""

from __future__ import annotations

from gpumon.demo.scenarios import scenario
from tests.accuracy.forecast import outcome
from tests.accuracy.triage import frames, judged

EVERY_S = 4


def test_a_leak_fills_the_memory_when_it_was_said_to() -> None:
    played = scenario("vram-leak")
    came = outcome(played, 1, judged(played, frames(played, played.length_s, every_s=EVERY_S)))
    assert came.false == 0
    assert came.lead_s is not None
    assert came.lead_s >= 400.0
    assert came.held >= 0.95 * len(came.errors) > 100


def test_traffic_that_swells_and_ebbs_fills_nothing() -> None:
    played = scenario("day-in-minutes")
    came = outcome(played, 1, judged(played, frames(played, 600.0, every_s=EVERY_S)))
    assert came.told == 0
