"""Tables in Markdown, and text from outside that must not become markup, a mention or a link."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.outputs.tables import PrintedColumn
from gpumon.readings.text import clean

_LONGEST_TEXT: Final = 400
"""Characters of one text."""
_ESCAPES: Final = str.maketrans(
    {**{mark: f"\\{mark}" for mark in "\\`*_[]|~$"}, "<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;", "#": "&#35;"}
)
"""Character that could be markup -> what stands for it."""
_LINK_SIGNS: Final = re.compile(r":(?=//)|(?<=\bwww)\.", re.IGNORECASE)
"""Signs by which GitHub and others make a link of an address that stands in a text."""


def header_lines(titles: str) -> Iterator[str]:
    """The two lines that begin a table. `titles`: with `|` between; a colon behind one sets its column flush right."""
    names = []
    rules = []
    for title in titles.split("|"):
        names.append(title.rstrip(":"))
        rules.append(_rule(right=title.endswith(":")))
    yield table_line(*names)
    yield table_line(*rules)


def _rule(*, right: bool) -> str:
    """The line between a title and its texts."""
    if right:
        return "--:"
    return "---"


def table_line(*texts: str) -> str:
    """One line of a table."""
    return f"| {' | '.join(texts)} |"


def markdown_table(columns: Sequence[PrintedColumn]) -> Iterator[str]:
    """A whole table; text from outside acts as no markup."""
    yield table_line(*(column.title for column in columns))
    yield table_line(*(_rule(right=column.right) for column in columns))
    for row_number in range(len(columns[0].texts)):
        yield table_line(*(safe(column.texts[row_number]) for column in columns))


def safe(text: str) -> str:
    """Text from outside, cut and escaped, so that no character of it is markup, and no address a link."""
    escaped = clean(text, _LONGEST_TEXT).translate(_ESCAPES)
    return _LINK_SIGNS.sub(lambda sign: f"&#{ord(sign[0])};", escaped)
