"""The line through the points of a sweep predicts a load between them at least as well as one curve does."""

from __future__ import annotations

from statistics import median

from tests.accuracy.interpolated import by_kind


def test_the_line_through_the_other_loads_is_no_worse_than_a_curve() -> None:
    found = by_kind()
    for moe in (False, True):
        held_back = found["all other loads", moe]
        assert len(held_back) > 300
        by_line = median(abs(one.by_line) for one in held_back)
        assert by_line < 0.025
        assert by_line < median(abs(one.by_curve) for one in held_back)
    assert median(abs(one.by_line) for one in found["first and last", False]) < 0.03
    assert median(abs(one.by_line) for one in found["first and last", True]) < 0.08
