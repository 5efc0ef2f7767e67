"""One test for all rows of a table, where a test for each would cost more than what it checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Row = TypeVar("Row")


def each_row(rows: Callable[[], Iterable[Row]], named: Callable[[Row], str] = str) -> Callable[..., Callable[[], None]]:
    """Run a check on every row; the test fails with the name and the fault of each row that is wrong.

    `rows` is called when the test runs: what it takes to make them is not spent where they are only collected.
    """

    def decorate(check: Callable[[Row], None]) -> Callable[[], None]:
        def checked() -> None:
            wrong: dict[str, str] = {}
            count = 0
            for row in rows():
                count += 1
                try:
                    check(row)
                except AssertionError as error:
                    wrong[named(row)] = str(error)
            assert count, "no rows"
            assert not wrong, "\n".join(f"{name}: {fault}" for name, fault in wrong.items())

        checked.__name__ = check.__name__
        checked.__doc__ = check.__doc__
        checked.__module__ = check.__module__
        return checked

    return decorate
