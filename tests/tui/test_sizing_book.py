"""Undo and redo over scenarios: nothing is lost, nothing is invented, and it stays bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.sizing.scenario import Scenario, Workload
from gpumon.tui.sizing.book import MOST, Book


def of(target: float) -> Scenario:
    return Scenario(workload=(Workload("m", target),))


def test_there_and_back_again() -> None:
    book = Book(of(1))
    assert book.put(of(2))
    assert book.put(of(3))
    assert book.undo()
    assert book.present == of(2)
    assert book.redo()
    assert book.present == of(3)
    assert not book.redo()
    assert book.undo()
    assert book.undo()
    assert book.present == of(1)
    assert not book.undo()


def test_changes_of_one_field_in_a_row_are_one_step() -> None:
    book = Book(of(1))
    for target in (2, 3, 4):
        book.put(of(target), "target")
    assert book.steps == (1, 0)
    book.seal()
    book.put(of(5), "target")
    assert book.steps == (2, 0)
    book.undo()
    assert book.present == of(4)
    book.undo()
    assert book.present == of(1)


def test_what_changes_nothing_is_no_step_and_a_change_drops_what_was_undone() -> None:
    book = Book(of(1))
    assert not book.put(of(1))
    book.put(of(2))
    book.undo()
    book.put(of(3))
    assert not book.redo()
    assert book.present == of(3)


def test_what_was_measured_is_taken_over_without_a_step() -> None:
    book = Book(of(1))
    book.put(of(2))
    assert book.renew(lambda scenario: replace(scenario, note="newer"))
    assert not book.renew(lambda scenario: scenario)
    assert book.steps == (1, 0)
    assert book.present.note == "newer"
    book.undo()
    assert (book.present.workload[0].target, book.present.note) == (1, "newer")


@given(st.lists(st.sampled_from(["put", "undo", "redo"]), max_size=400))
def test_any_walk_leads_where_a_plain_list_would(walk: list[str]) -> None:
    book, pages, at = Book(of(1)), [of(1)], 0
    for number, step in enumerate(walk, start=2):
        if step == "put":
            book.put(of(number))
            pages = [*pages[: at + 1], of(number)][-MOST - 1 :]
            at = len(pages) - 1
        else:
            there = at + (1 if step == "redo" else -1)
            moved = 0 <= there < len(pages)
            assert (book.redo() if step == "redo" else book.undo()) == moved
            at = there if moved else at
        assert book.present == pages[at]
        assert sum(book.steps) <= MOST
