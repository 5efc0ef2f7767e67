"""Lists as data; the choice and order of their rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import msgspec

from gpumon.readings.history import History
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Kind, Snapshot, Verdict
from gpumon.tui.line import Piece, Row
from gpumon.tui.view import View

if TYPE_CHECKING:
    from gpumon.tui.table import ScrolledTable

T = TypeVar("T")

_OF_GPU: Final = re.compile(r"gpu(\d{1,6})")
"""A word of a filter that means one GPU by its number, and neither 17 nor 70 where it is 7."""
_APART: Final = re.compile(r"(?<!\S)(-?gpu) +(?=\d{1,6}(?!\S))")
"""The same in two words."""


class Order(msgspec.Struct, Generic[T], frozen=True):
    """A way to sort: its name, and what rows are compared by. What is missing comes last either way."""

    name: str
    value: Callable[[T], Reading | str | tuple[float, ...]]
    descending: bool = True
    """At first; choosing it again turns it round."""
    means: str = ""
    """Explanation beyond the name."""
    column: str = ""
    """Name of its column; empty: the order's own."""


class ListView(Protocol):
    """The part of a list pane that its contents are made from."""

    snapshot: Snapshot | None
    history: History | None
    """Series that rows may show."""
    view: View
    urgent: Mapping[str, Verdict]
    """Key of a row -> its worst verdict, where that is urgent."""
    states: Mapping[str, Verdict]
    """Key of a row -> the verdict on its state."""
    filter_text: str
    """The filter; empty shows all."""
    hidden: frozenset[tuple[str, str]]
    """Rows that the user hid: their keys, and since when their things are as they were then."""
    shift: int
    """Columns that are scrolled out on the left."""

    @property
    def sorted_by(self) -> str:
        """Name of the order that the user chose; empty: rows stand as they came."""

    @property
    def narrowed(self) -> bool:
        """Whether a filter of this pane or of all panes may hide rows."""


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """The contents of a list pane. Its functions take the pane for what it shows: snapshot, filter, width."""

    thing: str
    """Kind of a row, for its detail page: gpu, engine, process, verdict."""
    title: str
    items: Callable[[Snapshot, ListView], Sequence[T]]
    """All rows there are, in their own order."""
    key: Callable[[T], str]
    """Identity of a row from one snapshot to the next."""
    words: Callable[[T, ListView], str]
    """The text that the filter looks into."""
    gpus: Callable[[T, ListView], Collection[int]]
    """The GPUs that a row is about: `gpu7` in a filter means these."""
    row: Callable[[T, int, ListView], Row]
    """A row in so many cells."""
    nothing: Callable[[int, ListView], Sequence[Row]]
    """The text in so many cells where there is no row at all."""
    command: str = ""
    """Id of the command that goes to the pane."""
    table: ScrolledTable | None = None
    """Its columns, where they scroll sideways."""
    head: Callable[[int, ListView], Row] | None = None
    """The headers of its columns, where they are not those of the table alone."""
    orders: Sequence[Order[T]] = ()
    trouble: Callable[[T, ListView], str] = lambda _item, _pane: ""
    """The trouble of a row's thing, with its name; empty without one."""
    page: Callable[[T], tuple[str, str] | None] | None = None
    """The kind and key of a row's page, where they are not `thing` and `key`."""
    aside: Callable[[int, ListView], Sequence[Piece]] = lambda _room, _pane: ()
    """Further pieces on the rule in so many cells."""
    kind: Kind | None = None
    """Kind of the things whose worst verdicts the rows show."""
    engines: Callable[[T, ListView], Collection[str]] | None = None
    """Names of the engines that a row belongs to: the filter of all panes keeps it with them. None: that filter leaves
    the list alone."""
    filters: str = "words, -word: without"
    """Example of a filter."""


def matches(words: str, wanted: str, gpus: Collection[int] = ()) -> bool:
    """Whether a row whose text is `words` passes: every word of `wanted` is in it, and no `-word` is.

    `gpu7` is no word: it passes the rows of that GPU, which is among `gpus`, whatever their text has.
    """
    words = words.casefold()
    for term, gpu, wants in _terms(wanted):
        if gpu < 0:
            has = term in words
        else:
            has = gpu in gpus
        if has is not wants:
            return False
    return True


@lru_cache(maxsize=16)
def _terms(wanted: str) -> tuple[tuple[str, int, bool], ...]:
    """Each word of a filter, the GPU that it means (-1: none), and whether it must be there or must not."""
    terms = []
    for term in _APART.sub(r"\1", wanted.casefold()).split():
        wants = not (term.startswith("-") and len(term) > 1)
        if not wants:
            term = term[1:]
        gpu = -1
        match = _OF_GPU.fullmatch(term)
        if match is not None:
            gpu = int(match[1])
        terms.append((term, gpu, wants))
    return tuple(terms)


def order_rows(items: Sequence[T], order: Order[T] | None, *, turned: bool) -> list[T]:
    """The rows by `order` (None: as they came), turned round where that is wanted; equal ones keep their order."""
    if order is None:
        return list(items)
    known = [(value, item) for item in items if not isinstance(value := order.value(item), Missing)]
    known.sort(key=lambda pair: pair[0], reverse=order.descending is not turned)
    return [item for _, item in known] + [item for item in items if isinstance(order.value(item), Missing)]
