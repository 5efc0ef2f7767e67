"""Columns that a table does without, as no row has a figure of them, or as each row has the same words in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

from gpumon.readings.format import phrase
from gpumon.readings.missing import Missing, Reason
from gpumon.tui.table import Table
from gpumon.tui.widgets.pane import SEPARATOR

T = TypeVar("T")
"""Rows of a table."""
_NO_ENGINE: Final = phrase(Missing(Reason.NO_ENGINE))
"""Words that need no names of columns."""
_ALIKE: Final = "all "
"""Before the words that each row has."""


class LeftOutColumns(Generic[T]):
    """The columns of a table that its rows have nothing of their own in. One that had a figure once keeps its place."""

    def __init__(self, table: Table[T]) -> None:
        self._table = table
        self._words: Mapping[str, str] = {}
        """Name of each column -> its words in each row: why it has no figure, or the same ones."""
        self._ever_known: set[str] = set()
        """Names of columns of which a row had a figure once."""
        self.names: frozenset[str] = frozenset()
        """The columns, behind the name of the pane."""

    def choose(self, items: Sequence[T]) -> None:
        """Leave out columns by all rows there are."""
        self._ever_known.update(self._table.known(items, self._ever_known))
        words = {
            name: phrase(why) for name, why in self._table.vacancies(items).items() if name not in self._ever_known
        }
        words.update({name: f"{_ALIKE}{alike}" for name, alike in self._table.alike(items).items()})
        self._words = words
        self.names = frozenset(f"{self._table.pane}.{name}" for name in words)

    def text(self, width: int, hidden: frozenset[str]) -> str:
        """The words of those that a screen of `width` cells would show: `no engine`, `no counter: sm, tensor`, `all
        bf16`. `hidden`: the columns that the user hides."""
        if not self._words:
            return ""
        titles_by_words: dict[str, list[str]] = {}
        for name, title in self._table.titles_left_out(width, hidden | self.names, self.names - hidden).items():
            titles_by_words.setdefault(self._words[name], []).append(title)
        texts = []
        for words, titles in titles_by_words.items():
            needs_titles = words != _NO_ENGINE and not words.startswith(_ALIKE)
            texts.append(f"{words}: {', '.join(titles)}" if needs_titles else words)
        return SEPARATOR.join(texts)
