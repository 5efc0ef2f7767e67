"""Lists as data; the choice and order of their rows."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import msgspec

from gpumon.figures import unit
from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figure, Figures
from gpumon.figures.gpu import GPU
from gpumon.readings.flat import getter
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Kind, Snapshot, Verdict
from gpumon.specs.units import GIB
from gpumon.tui.view import View

if TYPE_CHECKING:
    from gpumon.tui.table import Table

T = TypeVar("T")
"""Rows of a list."""
RecordT = TypeVar("RecordT", bound=msgspec.Struct)
"""Records of things, of which each has a row."""

_GPU_WORD: Final = re.compile(r"gpu(\d{1,6})")
"""A word of a filter that means one GPU by its number, and neither 17 nor 70 where it is 7."""
_GPU_IN_TWO_WORDS: Final = re.compile(r"(?<!\S)(-?gpu) +(?=\d{1,6}(?!\S))")
"""The begin of such a word that is written with a blank before the number: `gpu 7`."""


_COMPARISON: Final = re.compile(
    r"(?P<name>[a-z][a-z0-9/_]*)(?P<sign>[<>]=?)(?P<number>\d{1,12}(?:\.\d{1,6})?)(?P<unit>[a-z%]*)"
)
"""A word of a filter that bounds a figure: `kv>80`, `ttft>=500ms`."""
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TYPED_UNITS: Final[Mapping[unit.Unit, Mapping[str, float]]] = {
    unit.SHARE: {"": 0.01, "%": 0.01},
    unit.SECONDS: {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0},
    unit.BYTES: {"gib": GIB, "gb": 1e9},
    unit.WATTS: {"": 1.0, "w": 1.0, "kw": 1e3},
}
"""Unit of a figure -> what may stand behind the number of its bound, and the factor to the figure's unit."""
_OPEN_MEMORY: Final = ("", "g")
"""Letters that leave open which unit of memory is meant: that of the columns."""
_BOUND_DECIMALS: Final = 12
"""Decimals of a bound: 41% is 0.41, and no 0.41000000000000003."""
_ANY_TYPED_UNIT: Final[Mapping[str, float]] = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


class BoundedReading(NamedTuple):
    """A figure of a row that a filter may bound."""

    value: Reading
    units: Mapping[str, float]
    """Letters behind a bound -> their factor."""


def figures_to_bound(kind: type[RecordT], rows: Figures) -> Callable[[RecordT, str], BoundedReading | None]:
    """The function that gives a figure of a row by the name of its column, or the first word above it: `waiting`,
    `wait`."""
    figures: dict[str, tuple[Callable[[RecordT], Reading], Mapping[str, float]]] = {
        word: (getter(kind, row.field), _TYPED_UNITS.get(row.unit, _ANY_TYPED_UNIT))
        for word, row in _names_of_bounds(rows).items()
    }

    def figure_named(record: RecordT, name: str) -> BoundedReading | None:
        if name not in figures:
            return None
        value, units = figures[name]
        return BoundedReading(value(record), units)

    return figure_named


def _names_of_bounds(rows: Figures) -> dict[str, Figure]:
    """Name of a figure in a bound -> the figure."""
    names: dict[str, Figure] = {}
    for name, row in rows.by_column.items():
        if row.derived:
            continue
        for word in (row.short.split(" ")[0].casefold(), name):
            names.setdefault(word, row)
    return names


_LISTS_OF_BOUNDS: Final = {"gpus": frozenset(_names_of_bounds(GPU)), "engines": frozenset(_names_of_bounds(ENGINE))}
"""Title of a list -> the names of the figures that a filter of it may bound."""


def hint_on_bounds(filter_text: str, title: str) -> str:
    """The reason that no row of a list is within a bound of the filter: `no column kv here: it is in engines`; empty
    where each bound is on a figure of its rows."""
    here = _LISTS_OF_BOUNDS.get(title, frozenset())
    for term in _terms(filter_text):
        if not term.figure or not term.required or term.figure in here:
            continue
        others = [other for other, names in _LISTS_OF_BOUNDS.items() if term.figure in names]
        place = f": it is in {' and '.join(others)}" if others else ""
        return f"no column {term.figure} here{place}"
    return ""


def has_bound(filter_text: str) -> bool:
    """Whether a word of the filter reads as a bound of a figure: `kv>80`."""
    return any(term.figure for term in _terms(filter_text))


class Order(msgspec.Struct, Generic[T], frozen=True):
    """A way to sort: its name, and what rows are compared by. What is missing comes last either way."""

    name: str
    value: Callable[[T], Reading | str | tuple[float, ...]]
    descending: bool = True
    """Whether the largest comes first; choosing the order again turns it round."""
    means: str = ""
    """Explanation beyond the name."""
    column: str = ""
    """Name of its column; empty: the order's own."""


def figure_orders(
    kind: type[RecordT],
    rows: Figures,
    values: Mapping[str, Callable[[RecordT], Reading | str | tuple[float, ...]]] = MappingProxyType({}),
) -> Iterator[Order[RecordT]]:
    """The orders by figures that rows can be sorted by, from left to right. `values`: of fields that are compared by
    something else than their value."""
    for name, row in rows.by_column.items():
        if row.column is not None and row.column.sorts:
            yield Order(row.name, values.get(row.field) or getter(kind, row.field), column=name)


class ListScene(NamedTuple):
    """Everything that the rows of a list are read and drawn from."""

    view: View
    snapshot: Snapshot | None
    urgent: Mapping[str, Verdict]
    """Key of a row -> its worst verdict, where that is urgent."""
    states: Mapping[str, Verdict]
    """Key of a row -> the verdict on its state."""
    filter_text: str
    """The filter; empty shows all."""
    shift: int
    """Columns that are scrolled out on the left."""


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """The things that a list has rows of: how they are told apart, filtered and sorted. Their pane draws them."""

    thing: str
    """Kind of a row, for its detail page: gpu, engine, process, verdict."""
    title: str
    """Name on the rule."""
    key: Callable[[T], str]
    """Identity of a row from one snapshot to the next."""
    command: str = ""
    """Id of the command that goes to the pane."""
    words: Callable[[T, ListScene], str] = lambda _item, _scene: ""
    """The text that the filter looks into."""
    gpus: Callable[[T, ListScene], Collection[int]] = lambda _item, _scene: ()
    """The GPUs that a row is about: `gpu7` in a filter means these."""
    figure_named: Callable[[T, str], BoundedReading | None] = lambda _item, _name: None
    """A figure of a row that a filter may bound, by its name."""
    engines: Callable[[T, ListScene], Collection[str]] | None = None
    """Names of the engines that a row belongs to: the filter of all panes keeps it with them. None: that filter leaves
    the list alone."""
    filters: str = "words, -word: without"
    """Example of a filter."""
    orders: Sequence[Order[T]] = ()
    """The ways to sort."""
    table: Table[T] | None = None
    """Its columns, where they scroll sideways."""
    leaves_out: bool = False
    """Whether columns are left out that no row has a figure of."""
    kind: Kind | None = None
    """Kind of the things whose worst verdicts the rows show."""


def are_same_objects(some: Sequence[object], others: Sequence[object]) -> bool:
    """Whether two sequences hold the same objects, and not just equal ones: what was made of them is the same, too."""
    return len(some) == len(others) and all(map(operator.is_, some, others))


def is_bound(word: str) -> bool:
    """Whether a word of a filter has the form of a bound: `kv>80`."""
    return _COMPARISON.fullmatch(word.casefold()) is not None


def matches(
    words: str,
    filter_text: str,
    gpus: Collection[int] = (),
    figure_named: Callable[[str], BoundedReading | None] = lambda _name: None,
    memory_unit: str = "GiB",
) -> bool:
    """Whether a row whose text is `words` passes: every word of `filter_text` is in it, and no `-word` is.

    `gpu7` is no word: it passes the rows of that GPU, which is among `gpus`, whatever their text has. Nor is `kv>80`,
    where the row has a figure of this name (`figure_named`); one that is missing is in no bounds. `memory_unit`: that
    of the columns, GiB or GB.
    """
    words = words.casefold()
    for term in _terms(filter_text):
        figure = figure_named(term.figure) if term.figure else None
        typed_unit = term.unit
        if figure is not None and typed_unit in _OPEN_MEMORY and memory_unit.casefold() in figure.units:
            typed_unit = memory_unit.casefold()
        if term.gpu is not None:
            has = term.gpu in gpus
        elif figure is not None and typed_unit in figure.units:
            bound = round(term.number * figure.units[typed_unit], _BOUND_DECIMALS)
            has = not isinstance(figure.value, Missing) and _COMPARE[term.sign](figure.value, bound)
        else:
            has = term.word in words
        if has is not term.required:
            return False
    return True


class _Term(NamedTuple):
    """One word of a filter."""

    word: str
    gpu: int | None
    """The GPU that it means; None: it is a word of the text."""
    required: bool
    """Whether it must be there; False: it must not."""
    figure: str = ""
    """Name of the figure that it bounds; empty where it is no bound."""
    sign: str = ""
    """Key of `_COMPARE`."""
    number: float = 0.0
    unit: str = ""
    """Letters behind the number."""


@lru_cache(maxsize=16)
def _terms(filter_text: str) -> tuple[_Term, ...]:
    """The words of a filter."""
    terms = []
    for word in _GPU_IN_TWO_WORDS.sub(r"\1", filter_text.casefold()).split():
        required = not word.startswith("-") or word == "-"  # a `-` alone is a word
        if not required:
            word = word.removeprefix("-")
        gpu = None
        match = _GPU_WORD.fullmatch(word)
        if match is not None:
            gpu = int(match[1])
        bound = _COMPARISON.fullmatch(word)
        if bound is None:
            terms.append(_Term(word, gpu, required))
        else:
            name, sign, number, typed_unit = bound.groups()
            terms.append(_Term(word, None, required, name, sign, float(number), typed_unit))
    return tuple(terms)


def order_rows(items: Sequence[T], order: Order[T] | None, *, turned: bool) -> list[T]:
    """The rows by `order` (None: as they came), the other way round with `turned`; equal ones keep their order."""
    if order is None:
        return list(items)
    known = []
    missing = []
    for item in items:
        value = order.value(item)
        if isinstance(value, Missing):
            missing.append(item)
        else:
            known.append((value, item))
    known.sort(key=lambda pair: pair[0], reverse=order.descending is not turned)
    return [item for _, item in known] + missing
