"""Undo and redo over scenarios: nothing is lost, nothing is invented, and it stays bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.sizing.scenario import Scenario, Workload
from gpumon.tui.sizing.edits import MOST, Follower, Newest, Page, Undo
from tests.records import replace


def of(target: float, *, runs: bool = False) -> Page:
    return Page.of(Scenario(workload=(Workload("m", target),)), runs=runs)


def follow(book: Undo, *targets: float) -> list[float]:
    """The target of the present page after each of these ran."""
    found = []
    for target in targets:
        book.renew(Follower(Newest((), {"m": target})).renewed)
        found.append(book.present.workload[0].target)
    return found


def test_there_and_back_again() -> None:
    book = Undo(of(1))
    assert book.put(of(2))
    assert book.put(of(3))
    assert book.undo()
    assert book.page == of(2)
    assert book.redo()
    assert book.page == of(3)
    assert not book.redo()
    assert book.undo()
    assert book.undo()
    assert book.page == of(1)
    assert not book.undo()


def test_changes_of_one_field_in_a_row_are_one_step() -> None:
    book = Undo(of(1))
    for target in (2, 3, 4):
        book.put(of(target), "target")
    assert book.steps == (1, 0)
    book.seal()
    book.put(of(5), "target")
    assert book.steps == (2, 0)
    book.undo()
    assert book.page == of(4)
    book.undo()
    assert book.page == of(1)


def test_what_changes_nothing_is_no_step_and_a_change_drops_what_was_undone() -> None:
    book = Undo(of(1))
    assert not book.put(of(1))
    book.put(of(2))
    book.undo()
    book.put(of(3))
    assert not book.redo()
    assert book.page == of(3)


def test_what_was_measured_is_taken_over_without_a_step() -> None:
    book = Undo(of(1))
    book.put(of(2))
    assert book.renew(lambda page: page._replace(scenario=replace(page.scenario, note="newer")))
    assert not book.renew(lambda page: page)
    assert book.steps == (1, 0)
    assert book.present.note == "newer"
    book.undo()
    assert (book.present.workload[0].target, book.present.note) == (1, "newer")


def test_a_typed_target_stays_when_as_much_runs() -> None:
    book = Undo(of(8, runs=True))
    book.put(of(20, runs=True).typed({0}))
    assert follow(book, 12, 20, 5, 3) == [20, 20, 20, 20]
    book.undo()
    assert book.present.workload[0].target == 3
    assert follow(book, 7) == [7]
    book.redo()
    assert follow(book, 9) == [20]


def test_a_file_never_follows_and_what_ran_before_it_does_again_after_undo() -> None:
    book = Undo(of(12, runs=True))
    assert book.put(of(12))
    assert follow(book, 3, 12, 5) == [12, 12, 12]
    assert book.put(of(5, runs=True))
    assert follow(book, 6) == [6]
    book.undo()
    assert follow(book, 7) == [12]
    book.undo()
    assert follow(book, 8) == [8]


def test_of_two_rows_of_a_model_only_the_untouched_one_follows() -> None:
    two = Scenario(workload=(Workload("m", 8.0), Workload("m", 8.0)))
    page = Follower(Newest((), {"m": 9.0})).renewed(Page.of(two, runs=True).typed({1}))
    assert [each.target for each in page.scenario.workload] == [9.0, 8.0]


def test_users_are_none_that_run() -> None:
    users = Scenario(workload=(Workload("m", 8.0, target_kind="users"),))
    page = Page.of(users, runs=True)
    assert Follower(Newest((), {"m": 9.0})).renewed(page) is page


@given(st.lists(st.sampled_from(["put", "undo", "redo"]), max_size=400))
def test_any_walk_leads_where_a_plain_list_would(walk: list[str]) -> None:
    book, pages, at = Undo(of(1)), [of(1)], 0
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
        assert book.page == pages[at]
        assert sum(book.steps) <= MOST
