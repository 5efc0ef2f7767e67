"""Tables in Markdown, and text from outside that must not become markup, a mention or a link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.outputs.tables import PrintedColumn
from gpumon.readings.text import clean

MOST: Final = 400
"""Characters of one text."""
_ESCAPED: Final = str.maketrans(
    {**{mark: f"\\{mark}" for mark in "\\`*_[]|~$"}, "<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;", "#": "&#35;"}
)


def header(titles: str) -> Iterator[str]:
    """Two lines of `|`-separated titles; a colon behind a title sets its column flush right."""
    names = []
    rules = []
    for title in titles.split("|"):
        names.append(title.rstrip(":"))
        rules.append(_rule(right=title.endswith(":")))
    yield row(*names)
    yield row(*rules)


def _rule(*, right: bool) -> str:
    """The line between a title and its texts."""
    if right:
        return "--:"
    return "---"


def row(*texts: str) -> str:
    """One line of a table."""
    return f"| {' | '.join(texts)} |"


def table(columns: Sequence[PrintedColumn]) -> Iterator[str]:
    """A whole table; text from outside acts as no markup."""
    yield row(*(column.title for column in columns))
    yield row(*(_rule(right=column.right) for column in columns))
    for row_number in range(len(columns[0].texts)):
        yield row(*(safe(column.texts[row_number]) for column in columns))


def safe(text: str) -> str:
    """Text as it is, whatever characters it has."""
    return clean(text, MOST).translate(_ESCAPED)
