"""Killed at any moment, a recording opens and lacks at most the last second."""

from __future__ import annotations

from tests.history.kill import kills


def test_no_kill_costs_more_than_the_last_second() -> None:
    done = kills(20)
    assert len(done) > 10, "most had made their file"
    assert sum(one.a_second_before > 0 for one in done) > 2, "some recorded for longer than a second"
    assert sum(one.found > 60 for one in done) > 2, "some had finished a minute"
    for one in done:
        assert one.found >= one.written, "what was said to be written is"
        assert one.found >= one.a_second_before
