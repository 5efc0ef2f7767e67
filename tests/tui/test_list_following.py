"""The cursor of a list without its pane: which thing it follows, and where it is once that is gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.tui.list_cursor import ListCursor


def cursor_among(*keys: str) -> ListCursor:
    cursor = ListCursor()
    cursor.follow(keys)
    return cursor


def test_a_cursor_that_was_never_moved_keeps_its_place() -> None:
    cursor = cursor_among("a", "b", "c")
    cursor.follow(("c", "a", "b"))
    cursor.take_row()
    assert (cursor.place, cursor.key) == (0, None)


def test_a_cursor_follows_its_thing() -> None:
    cursor = cursor_among("a", "b", "c")
    cursor.put_on(1)
    cursor.follow(("c", "a", "b"))
    assert (cursor.place, cursor.key) == (2, "b")


@pytest.mark.parametrize(("place", "nearest"), [(-7, 0), (-1, 0), (0, 0), (2, 2), (3, 2), (99, 2)])
def test_a_place_beyond_the_rows_is_that_of_the_nearest_one(place: int, nearest: int) -> None:
    cursor = cursor_among("a", "b", "c")
    cursor.put_on(place)
    assert (cursor.place, cursor.key) == (nearest, "abc"[nearest])


def test_a_thing_that_comes_back_has_the_cursor_again() -> None:
    cursor = cursor_among("a", "b", "c")
    cursor.put_on(1)
    cursor.follow(("a", "c"))
    assert (cursor.place, cursor.key) == (1, "b")
    cursor.follow(("b", "a", "c"))
    assert cursor.place == 0


def test_the_row_in_the_place_of_a_thing_that_is_gone_has_the_cursor_once_it_took_it() -> None:
    cursor = cursor_among("a", "b", "c")
    cursor.put_on(1)
    cursor.follow(("a", "c"))
    cursor.take_row()
    cursor.follow(("c", "b", "a"))
    assert (cursor.place, cursor.key) == (0, "c")


def test_a_list_without_rows_leaves_the_cursor_as_it_is() -> None:
    cursor = cursor_among("a", "b", "c")
    cursor.put_on(2)
    cursor.follow(())
    cursor.put_on(0)
    assert (cursor.place, cursor.key) == (2, "c")
    cursor.follow(("a", "b", "c"))
    assert cursor.place == 2


def test_a_thing_that_is_listed_later_has_the_cursor_then() -> None:
    cursor = cursor_among("a", "b")
    cursor.go_to("b")
    assert cursor.place == 1
    cursor.go_to("c")
    assert (cursor.place, cursor.key) == (1, "c")
    cursor.follow(("a", "b", "c"))
    assert cursor.place == 2


def test_a_cursor_begins_on_the_first_row_until_its_thing_is_listed() -> None:
    cursor = cursor_among("a", "b")
    cursor.put_on(1)
    cursor.begin()
    assert (cursor.place, cursor.key) == (0, None)
    cursor.begin("z")
    assert cursor.place == 0
    cursor.follow(("x", "y", "z"))
    assert cursor.place == 2


@given(
    st.lists(st.lists(st.sampled_from("abcdef"), unique=True), min_size=1, max_size=6),
    st.lists(st.integers(-9, 9), max_size=6),
)
def test_the_cursor_is_on_a_row_wherever_there_is_one(lists: list[list[str]], steps: list[int]) -> None:
    cursor = ListCursor()
    for number, keys in enumerate(lists):
        cursor.follow(keys)
        if number < len(steps):
            cursor.put_on(cursor.place + steps[number])
        assert not keys or 0 <= cursor.place < len(keys)
        if cursor.key in keys:
            assert keys[cursor.place] == cursor.key
