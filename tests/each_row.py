"""One test for all rows of a table, where a test for each would cost more than what it checks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pytest

Check = Callable[..., None]
Rows = Iterable[Any] | Callable[[], Iterable[Any]]
Named = Callable[[Any], str] | Sequence[str]

MOST_CHARACTERS: Final = 200
"""A row of more is cut where it has no name of its own."""


def each_row(names: str | Sequence[str], rows: Rows, named: Named | None = None) -> Callable[[Check], Check]:
    """Run a test on every row, as `pytest.mark.parametrize` does, but within one test.

    It fails with the name and the fault of each row that is wrong. `rows` may be a function, which is called when the
    test runs: what it takes to make them is not spent where tests are only collected. Fixtures are those of the one
    test: all rows share them.
    """
    words = names.replace(",", " ").split() if isinstance(names, str) else list(names)

    def decorate(check: Check) -> Check:
        @functools.wraps(check)
        def checked(**fixtures: object) -> None:
            wrong: dict[str, str] = {}
            errors: list[BaseException] = []
            count = 0
            for row in _made(rows):
                name = _name(row, named, count)
                count += 1
                try:
                    check(**dict(zip(words, _values(row, words), strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    wrong[f"{count}. {name}"] = f"{type(error).__name__}: {error}"
                    errors.append(error)
            assert count, "no rows"
            if wrong:
                text = "\n".join(f"{name}: {fault}" for name, fault in wrong.items())
                raise AssertionError(text) from errors[0]

        checked.__signature__ = _without(check, words)  # type: ignore[attr-defined]  # pytest looks for fixtures there
        return checked

    return decorate


def _made(rows: Rows) -> Iterable[Any]:
    """The rows of a table, of an enumeration, or those that a function makes."""
    if callable(rows) and not isinstance(rows, type):
        return rows()
    return rows


def _without(check: Check, words: Sequence[str]) -> inspect.Signature:
    """The signature of a test without what its rows give: fixtures and the names of further tables remain."""
    signature = inspect.signature(check)
    unknown = set(words) - set(signature.parameters)
    assert not unknown, f"{check.__name__} takes no {unknown}"
    remaining = [parameter for name, parameter in signature.parameters.items() if name not in words]
    return signature.replace(parameters=remaining)


def _values(row: Any, words: Sequence[str]) -> Sequence[Any]:
    """What a row gives, one for each name."""
    if isinstance(row, type(pytest.param())):
        assert not row.marks, "rows of one test have no marks of their own"
        return row.values
    if len(words) == 1:
        return (row,)
    return tuple(row)


def _name(row: Any, named: Named | None, place: int) -> str:
    """What a row is called where it is wrong."""
    if callable(named):
        return str(named(row))
    if named is not None:
        return named[place]
    if isinstance(row, type(pytest.param())):
        return row.id if isinstance(row.id, str) else repr(row.values)[:MOST_CHARACTERS]
    return repr(row)[:MOST_CHARACTERS]
