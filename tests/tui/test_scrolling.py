"""The first line in view stays among the lines that there are."""

from gpumon.tui.scrolling import Scrolling


def test_it_moves_as_far_as_there_are_lines() -> None:
    scrolling = Scrolling()
    scrolling.settle(10 - 4)
    scrolling.move(3)
    assert scrolling.top == 3
    scrolling.move(100)
    assert scrolling.top == 6
    scrolling.move(-100)
    assert scrolling.top == 0


def test_it_goes_back_where_fewer_lines_are_left() -> None:
    scrolling = Scrolling()
    scrolling.settle(6)
    scrolling.move(6)
    scrolling.settle(2)
    assert (scrolling.top, scrolling.last) == (2, 2)
    scrolling.settle(3 - 4)
    assert (scrolling.top, scrolling.last) == (0, 0)


def test_lines_come_into_view_by_the_shortest_way() -> None:
    scrolling = Scrolling()
    scrolling.bring_into_view(5, 2, 4)
    assert scrolling.top == 3, "both are the last in view"
    scrolling.bring_into_view(4, 2, 4)
    assert scrolling.top == 3, "they were in view"
    scrolling.bring_into_view(1, 2, 4)
    assert scrolling.top == 1
