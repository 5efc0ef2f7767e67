"""Lines of a pane: more at once, fewer only after they were enough for a minute."""

from __future__ import annotations

from gpumon.tui.widgets.triage_pane import SHRINKS_S, LineDemand


def test_it_grows_at_once_and_shrinks_after_a_minute() -> None:
    demand = LineDemand()
    wanted = [1] * 10 + [4] * 5 + [2] * 100
    got = [demand.settle(lines, float(at)) for at, lines in enumerate(wanted)]
    shrunk = 15 + int(SHRINKS_S)
    assert got == [1] * 10 + [4] * (shrunk - 10) + [2] * (len(wanted) - shrunk)


def test_what_comes_back_within_the_minute_moves_nothing() -> None:
    demand = LineDemand()
    assert {demand.settle(4 if at % 50 == 0 else 1, float(at)) for at in range(400)} == {4}


def test_it_shrinks_to_the_most_that_was_needed_meanwhile() -> None:
    demand = LineDemand()
    got = [demand.settle(lines, float(at)) for at, lines in enumerate([5, *([1] * 30), 3, *([1] * 120)])]
    assert got[60] == 5
    assert got[61] == 3
    assert got[-1] == 1


def test_a_clock_that_was_set_back_begins_a_new_minute() -> None:
    demand = LineDemand()
    got = [demand.settle(lines, at_s) for lines, at_s in ((3, 1000.0), (1, 1001.0), (1, 10.0), (1, 69.0), (1, 70.0))]
    assert got == [3, 3, 3, 3, 1]
