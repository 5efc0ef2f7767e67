"""Notes on healthy engines stand still: a figure near its threshold is no news each minute."""

from __future__ import annotations

from gpumon.readings.verdict import Limit
from gpumon.triage.hold import RETURNS_S, Hold
from tests.accuracy.flaps import MOST, changes
from tests.each_row import each_row


@each_row(
    "name, seed",
    [("near-the-edge", 2), ("short-prompts-near-the-edge", 1), ("rare-requests", 3)],
    named=["bandwidth", "arithmetic", "few requests"],
)
def test_a_note_changes_twice_in_ten_minutes_at_most(name: str, seed: int) -> None:
    assert max(changes(name, seed, every_s=4).values()) <= MOST


def test_a_verdict_that_is_gone_went_lately_for_ten_minutes() -> None:
    hold = Hold(0.0, 0.0)
    hold.take(Limit.LOW_EFFICIENCY, 0.0, 10.0, 10.0)
    assert not hold.went_lately(Limit.LOW_EFFICIENCY, 20.0), "it stands"
    hold.take(None, 0.0, 60.0, 60.0)
    assert hold.went_lately(Limit.LOW_EFFICIENCY, 60.0 + RETURNS_S - 1.0)
    assert not hold.went_lately(Limit.LOW_EFFICIENCY, 60.0 + RETURNS_S + 1.0)
    assert not hold.went_lately(Limit.BANDWIDTH_BOUND, 61.0)
