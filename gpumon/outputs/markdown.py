"""Tables in Markdown, and text from outside that must not become markup, a mention or a link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.outputs.tables import Column
from gpumon.readings.text import clean

MOST: Final = 400
"""Characters of one text."""
_ESCAPED: Final = str.maketrans(
    {**{mark: f"\\{mark}" for mark in "\\`*_[]|~$"}, "<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;", "#": "&#35;"}
)


def header(titles: str) -> Iterator[str]:
    """Two lines of `|`-separated titles; a colon behind a title sets its column flush right."""
    columns = titles.split("|")
    yield row(*(title.rstrip(":") for title in columns))
    yield row(*("--:" if title.endswith(":") else "---" for title in columns))


def row(*texts: str) -> str:
    """One line of a table."""
    return f"| {' | '.join(texts)} |"


def table(columns: Sequence[Column]) -> Iterator[str]:
    """A whole table; text from outside acts as no markup."""
    yield from header("|".join(column.title + (":" if column.right else "") for column in columns))
    for texts in zip(*(column.texts for column in columns), strict=True):
        yield row(*map(safe, texts))


def safe(text: str) -> str:
    """Text as it is, whatever characters it has."""
    return clean(text, MOST).translate(_ESCAPED)
