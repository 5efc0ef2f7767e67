"""A test over the rows of a table names every row that is wrong, and fails without rows."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.each_row import each_row


def test_every_wrong_row_is_named_with_its_fault() -> None:
    @each_row("number", [1, 2, 3, 0], named=lambda number: f"number {number}")
    def check(number: int) -> None:
        assert 6 / number == 6, "six"

    with pytest.raises(AssertionError) as failed:
        check()
    assert [line.split(": ")[:2] for line in str(failed.value).splitlines() if line[0].isdigit()] == [
        ["2. number 2", "AssertionError"],
        ["3. number 3", "AssertionError"],
        ["4. number 0", "ZeroDivisionError"],
    ]


def test_an_error_that_does_not_come_is_a_fault_of_its_row() -> None:
    @each_row(("text", "base"), [pytest.param("x", 10, id="no digit"), ("12", 10)])
    def check(text: str, base: int) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            int(text, base)

    with pytest.raises(AssertionError, match=r"^2\. \('12', 10\): Failed: DID NOT RAISE"):
        check()


def test_a_table_without_rows_is_wrong() -> None:
    seen: list[int] = []
    with pytest.raises(AssertionError, match="no rows"):
        each_row("row", lambda: iter(()))(lambda row: seen.append(row))()


def test_tables_above_each_other_are_multiplied_and_fixtures_remain() -> None:
    seen: list[tuple[int, str, Path]] = []

    @each_row("number", [1, 2])
    @each_row("letter", lambda: "ab")
    def check(number: int, letter: str, tmp_path: Path) -> None:
        seen.append((number, letter, tmp_path))

    here = Path()
    assert list(inspect.signature(check).parameters) == ["tmp_path"]
    check(tmp_path=here)
    assert seen == [(1, "a", here), (1, "b", here), (2, "a", here), (2, "b", here)]
