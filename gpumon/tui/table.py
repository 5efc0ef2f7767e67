"""Columns of the tables: fixed places, so that a wider screen adds columns at the end and moves none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Generic, TypeVar

import msgspec

from gpumon.figures.figure import Figure
from gpumon.readings.columns import DrawnColumn, TextColumn
from gpumon.readings.flat import value_of
from gpumon.readings.format import DASH, cells, clock_utc, counted, left, phrase, ratio, right, short
from gpumon.readings.format import spans as spans
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.tui.levels import PLAIN_TONES, is_high, tone_of
from gpumon.tui.line import Piece, Row
from gpumon.tui.view import View

T = TypeVar("T")
"""Rows of a table."""
V = TypeVar("V")
"""Values that a table remembers."""
Cell = Callable[[T, View, str], Row]
"""The pieces of one cell, for a row in a tone."""

_REASONS_IN_WORDS: Final = frozenset(Reason) - {Reason.NOT_SUPPORTED, Reason.NOT_EXPOSED, Reason.LOST, Reason.STALE}
"""Reasons whose words may stand across two cells; the others show in the row's state, or as a dash."""
UNSURE: Final = "?"
"""Behind a share of a peak that is not verified."""
PARTIAL: Final = "*"
"""Behind a share of some replicas: the GPUs of the others are not known."""
_ABSENT_REASONS: Final = frozenset({Reason.NO_ENGINE, Reason.NOT_SUPPORTED, Reason.NOT_EXPOSED})
"""Reasons of a figure that there is not on this host: a column of them says nothing."""
_LASTING_REASONS: Final = _ABSENT_REASONS | {
    Reason.NO_PERMISSION,
    Reason.UNDER_MIG,
    Reason.NOT_LIVE,
    Reason.OFF,
    Reason.UNMAPPED,
    Reason.NO_GPU,
    Reason.UNKNOWN_MODEL,
    Reason.NOT_MODELLED,
    Reason.UNKNOWN_GPU,
    Reason.NO_CONTEXT,
}
"""Reasons that stay until somebody does something: in a few rows they are news, in many one word on the rule is."""
_MANY_ROWS: Final = 4
"""Rows from which a lasting reason stands on the rule, and not in each of them."""
_MOST_SHARE_CELLS: Final = 5
"""Cells of a share, its mark included: `100%!`."""
_MOST_REMEMBERED: Final = 64
"""Results that a table remembers of each kind: for the widths of a terminal that is being dragged."""


class Column(msgspec.Struct, Generic[T], frozen=True):
    """One column: `width` cells, blanks before and behind its text included."""

    name: str
    """Name that hides it (`readings.columns`)."""
    title: str
    """Name on the rule where it has no room."""
    width: int
    head: Row | Callable[[View], Row]
    """Its header, which may name a unit that can be chosen."""
    cell: Cell[T]
    keep: int = 0
    """Cells that must stay free to its right for it to be shown."""
    fixed: bool = False
    """It cannot be hidden: a row is known by it."""
    value: Callable[[T], object] | None = None
    """The reading that `cell` shows; None: it is no figure, and always has something to show."""
    words: Callable[[T], str] | None = None
    """The words that `cell` shows; None: it shows no words, or they make rows known."""
    wider: tuple[tuple[int, Column[T] | None], ...] = ()
    """Its forms on wider screens: the least width of the screen and the form, the widest screen first; None: another
    column shows the same there."""

    def form_on(self, width: int) -> Column[T] | None:
        """Its form on a screen of `width` cells; None where it has none."""
        for least, form in self.wider:
            if width >= least:
                return form
        return self


class Table(Generic[T]):
    """The columns of one pane: those that every screen of 80 cells shows, and what wider ones add, in that order. They
    scroll sideways, but for the fixed ones."""

    def __init__(
        self,
        pane: str,
        base: Sequence[Column[T]],
        more: Sequence[Column[T]] = (),
        *,
        drops: Sequence[str] = (),
        room_behind: int = 0,
        room_behind_shifted: int = 0,
    ) -> None:
        """`drops`: columns that a narrower screen does without, first to last. `room_behind`: cells that stay free for
        what the pane adds behind the columns; `room_behind_shifted`: the same while they are scrolled."""
        self.pane = pane
        self.all = (*base, *more)
        self._base = len(base)
        """Number of the columns, at the begin of `all`, that every screen of 80 cells shows."""
        self._drops = drops
        self._room_behind = room_behind
        self._room_behind_shifted = room_behind_shifted
        # What is the same from one frame to the next, by width of the screen, hidden columns, shift and units.
        self._columns_of: dict[object, tuple[Column[T], ...]] = {}
        self._head_of: dict[object, Row] = {}
        self._number_beyond_of: dict[object, int] = {}
        self._cells_used_of: dict[object, int] = {}

    def forms_on(self, width: int, hidden: frozenset[str]) -> tuple[Column[T], ...]:
        """All columns that a screen of `width` cells may show, in their forms there: as wide as on a screen that is
        wider by the cells of hidden columns. The first ones have a form on every screen, so that they stay the
        first."""
        freed = _width_of(column for column in self.all[: self._base] if self.hides(column, hidden))
        forms = (column.form_on(width + freed) for column in self.all)
        return tuple(form for form in forms if form is not None)

    def hides(self, column: Column[T], hidden: frozenset[str]) -> bool:
        """Whether the user does not want a column."""
        return not column.fixed and f"{self.pane}.{column.name}" in hidden

    def vacancies(self, items: Sequence[T]) -> dict[str, Missing]:
        """Name of each column that no row has a figure of, or will soon have -> why the first row has none."""
        reasons = _LASTING_REASONS if len(items) >= _MANY_ROWS else _ABSENT_REASONS
        vacancies: dict[str, Missing] = {}
        for column in self.all:
            if column.value is None or column.fixed or not items:
                continue
            value = column.value(items[0])
            if isinstance(value, Missing) and _all_missing(column.value, items, reasons):
                vacancies[column.name] = value
        return vacancies

    def alike(self, items: Sequence[T]) -> dict[str, str]:
        """Name of each column that has the same words in each of many rows -> these words."""
        if len(items) < _MANY_ROWS:
            return {}
        alike = {}
        for column in self.all:
            if column.words is None:
                continue
            words = column.words(items[0])
            if words and all(column.words(item) == words for item in items):
                alike[column.name] = words
        return alike

    def known(self, items: Sequence[T], besides: Collection[str]) -> set[str]:
        """Names of the columns, `besides` some, of which a row has a figure."""
        names = set()
        for column in self.all:
            if column.value is None or column.name in besides:
                continue
            if any(not isinstance(column.value(item), Missing) for item in items):
                names.add(column.name)
        return names

    def titles_left_out(self, width: int, hidden: frozenset[str], vacant: frozenset[str]) -> dict[str, str]:
        """Name and title of each `vacant` column that the screen would show if it were not, from left to right."""
        return {
            column.name: column.title
            for column in self.columns(width, hidden - vacant)
            if f"{self.pane}.{column.name}" in vacant
        }

    def columns(self, width: int, hidden: frozenset[str], shift: int = 0) -> tuple[Column[T], ...]:
        """The columns on a screen of `width` cells; `shift`: so many are scrolled out on the left."""
        key = (width, hidden, shift)
        columns = self._columns_of.get(key)
        if columns is None:
            if shift:
                columns_shown = self._columns_shifted(width, hidden, shift)
            else:
                columns_shown = self._columns_that_fit(width, hidden)
            columns = tuple(columns_shown)
            _remember(self._columns_of, key, columns)
        return columns

    def most_shift(self, width: int, hidden: frozenset[str]) -> int:
        """How far the columns can be scrolled: until the last one is in view; 0 where all are."""
        all_columns = self._without_hidden(self.forms_on(width, hidden), hidden)
        if len(self.columns(width, hidden)) == len(all_columns):
            return 0
        scrolling = self._scrolling_columns(width, hidden)
        most = len(scrolling) - 1
        for shift in range(1, most):
            if scrolling[-1] in self._columns_shifted(width, hidden, shift):
                return shift
        return most

    def number_beyond(self, width: int, hidden: frozenset[str], shift: int = 0) -> int:
        """Number of columns that have no room behind those that are shown."""
        key = (width, hidden, shift)
        number = self._number_beyond_of.get(key)
        if number is None:
            shown = self.columns(width, hidden, shift)
            scrolling = self._scrolling_columns(width, hidden)[shift:]
            number = sum(column not in shown for column in scrolling)
            _remember(self._number_beyond_of, key, number)
        return number

    def _scrolling_columns(self, width: int, hidden: frozenset[str]) -> list[Column[T]]:
        """The columns that scroll, in their order; those that a narrow screen does without come last."""
        shown = self.columns(width, hidden)
        scrolling = [
            column for column in self.forms_on(width, hidden) if not column.fixed and not self.hides(column, hidden)
        ]
        return sorted(scrolling, key=lambda column: column.name in self._drops and column not in shown)

    def _columns_shifted(self, width: int, hidden: frozenset[str], shift: int) -> list[Column[T]]:
        """The columns that identify a row, and of the others those from number `shift` on that fit."""
        forms = self.forms_on(width, hidden)
        shown = [column for column in forms if column.fixed]
        room = width - self._room_behind_shifted - _width_of(shown)
        for column in self._scrolling_columns(width, hidden)[shift:]:
            room -= column.width
            if room < 0:
                break
            shown.append(column)
        return sorted(shown, key=forms.index)

    def _columns_that_fit(self, width: int, hidden: frozenset[str]) -> list[Column[T]]:
        """The columns that every screen shows, without those for which this one is too narrow; if it has them all,
        also as many of the others as fit."""
        forms = self.forms_on(width, hidden)
        base = self._without_hidden(forms[: self._base], hidden)
        base_that_fits = self._without_dropped(base, width - self._room_behind)
        if len(base_that_fits) < len(base):
            return base_that_fits
        room = width - _width_of(base)
        more = self._without_hidden(forms[self._base :], hidden)
        return [*base, *_first_that_fit(more, room)]

    def _without_hidden(self, columns: Sequence[Column[T]], hidden: frozenset[str]) -> list[Column[T]]:
        """The columns without those that the user hides."""
        return [column for column in columns if not self.hides(column, hidden)]

    def _without_dropped(self, columns: Sequence[Column[T]], width: int) -> list[Column[T]]:
        """The columns without those that a screen of `width` cells must do without."""
        remaining = list(columns)
        for name in self._drops:
            if _width_of(remaining) <= width:
                break
            remaining = [column for column in remaining if column.name != name]
        return remaining

    def column_at(self, x: int, width: int, hidden: frozenset[str], shift: int = 0) -> str:
        """Name of the column that has cell `x` of a row; empty behind the last one."""
        for column in self.columns(width, hidden, shift):
            x -= column.width
            if x < 0:
                return column.name
        return ""

    def cells_used(self, width: int, view: View, shift: int = 0) -> int:
        """Cells that the columns take."""
        key = (width, view.hidden, shift)
        cells_of_columns = self._cells_used_of.get(key)
        if cells_of_columns is None:
            cells_of_columns = _width_of(self.columns(width, view.hidden, shift))
            _remember(self._cells_used_of, key, cells_of_columns)
        return cells_of_columns

    def head(self, width: int, view: View, shift: int = 0) -> Row:
        """The header on a screen of `width` cells; `shift`: so many columns are scrolled out on the left."""
        key = (width, view.hidden, view.fahrenheit, view.memory_unit, shift)
        header = self._head_of.get(key)
        if header is None:
            pieces: list[Piece] = []
            for column in self.columns(width, view.hidden, shift):
                if callable(column.head):
                    pieces += column.head(view)
                else:
                    pieces += column.head
            header = tuple(pieces)
            _remember(self._head_of, key, header)
        return header

    def row(
        self,
        item: T,
        width: int,
        view: View,
        tone: str,
        instead: Mapping[str, Row] = MappingProxyType({}),
        shift: int = 0,
    ) -> list[Piece]:
        """One row in a tone, on a screen of `width` cells; `instead`: by name of a column, what stands in the place of
        its cell."""
        pieces: list[Piece] = []
        for column in self.columns(width, view.hidden, shift):
            if column.name in instead:
                pieces += instead[column.name]
            else:
                pieces += column.cell(item, view, tone)
        return pieces


def is_lasting(value: Reading) -> bool:
    """Whether a figure is missing and will be, until somebody does something."""
    return isinstance(value, Missing) and value.reason in _LASTING_REASONS


def is_absent(value: Reading) -> bool:
    """Whether a figure is missing as there is no such figure here."""
    return isinstance(value, Missing) and value.reason in _ABSENT_REASONS


def _all_missing(value_of_item: Callable[[T], object], items: Iterable[T], reasons: Collection[Reason]) -> bool:
    """Whether a figure is missing in all rows, for one of the reasons in each."""
    for item in items:
        value = value_of_item(item)
        if not isinstance(value, Missing) or value.reason not in reasons:
            return False
    return True


def _width_of(columns: Iterable[Column[T]]) -> int:
    """Cells that columns take."""
    return sum(column.width for column in columns)


def _first_that_fit(columns: Iterable[Column[T]], room: int) -> list[Column[T]]:
    """The first columns that fit into `room` cells, each with the cells that must stay free behind it."""
    that_fit = []
    for column in columns:
        if room < column.width + column.keep:
            break
        room -= column.width
        that_fit.append(column)
    return that_fit


def _remember(memory: dict[object, V], key: object, value: V) -> None:
    """Remember a value under its key; a full memory is emptied before."""
    if len(memory) >= _MOST_REMEMBERED:
        memory.clear()
    memory[key] = value


def figures_column(
    name: str, title: str, width: int, text: Callable[[T], str], *, gap: int = 1, keep: int = 0, fixed: bool = False
) -> Column[T]:
    """A column of figures, flush right in `width` cells behind `gap` blanks."""
    size = gap + width

    def cell(item: T, _: View, tone: str) -> Row:
        return ((right(text(item), size), tone),)

    head = ((right(title, size), "muted"),)
    return Column(name, title=title, width=size, head=head, cell=cell, keep=keep, fixed=fixed)


def words_column(
    name: str, title: str, width: int, text: Callable[[T], str], *, gap: int = 1, keep: int = 0, fixed: bool = False
) -> Column[T]:
    """A column of text, flush left in `width` cells behind `gap` blanks."""
    blank = " " * gap

    def cell(item: T, _: View, tone: str) -> Row:
        return ((blank + left(text(item), width), tone),)

    head = ((blank + left(title, width), "muted"),)
    return Column(name, title=title, width=gap + width, head=head, cell=cell, keep=keep, fixed=fixed)


def text_column(column: TextColumn[T]) -> Column[T]:
    """A column of plain text, drawn in the tone of its row, or of the level of its figure."""
    make = words_column if column.is_left else figures_column
    drawn = make(
        column.name, column.title, column.width, column.text, gap=column.gap, keep=column.keep, fixed=column.fixed
    )
    words = column.text if column.is_left and not column.fixed else None
    drawn = msgspec.structs.replace(drawn, value=column.value, words=words)
    return _with_level(drawn, column.level) if column.level else drawn


def _with_level(column: Column[T], level: str) -> Column[T]:
    """A column of figures in the tones of their level, with a cell more for its mark."""

    def cell(item: T, view: View, tone: str) -> Row:
        ((text, _),) = column.cell(item, view, tone)
        value = column.value(item) if column.value is not None else None
        if isinstance(value, int | float) and tone in PLAIN_TONES:
            tone = tone_of(level, value, view, tone)
        return ((f"{text}{'!' if is_high(tone) else ' '}", tone),)

    head = ((f"{right(column.title, column.width)} ", "muted"),)
    return msgspec.structs.replace(column, width=column.width + 1, head=head, cell=cell)


def drawn_column(row: Figure, width: int, cell: Cell[T], head: Row | Callable[[View], Row] = ()) -> Column[T]:
    """The column of a figure that is drawn by `cell`, under its short name where `head` is not given."""
    assert row.column is not None

    def value(item: T) -> object:
        """The reading that the column shows."""
        assert isinstance(item, msgspec.Struct)
        return value_of(item, row.field)

    return Column(
        row.column.name,
        title=row.short,
        width=width,
        head=head or ((right(row.short, width), "muted"),),
        cell=cell,
        keep=row.column.keep,
        value=None if row.derived else value,
    )


def figure_text_column(row: Figure, width: int, text: Callable[[T], str]) -> Column[T]:
    """The column of a figure whose text is written in a way of its own, flush right in `width` cells."""

    def cell(item: T, _: View, tone: str) -> Row:
        return ((right(text(item), width), tone),)

    return drawn_column(row, width, cell)


def drawn_columns(columns: Iterable[TextColumn[T] | DrawnColumn], drawn: Iterable[Column[T]]) -> tuple[Column[T], ...]:
    """The columns in their order, each drawn: as plain text, or as the column of its name in `drawn`.

    Raises ValueError where a column is neither.
    """
    drawn_by_name = {column.name: column for column in drawn}
    in_order = []
    for column in columns:
        if isinstance(column, TextColumn):
            in_order.append(text_column(column))
        elif column.name not in drawn_by_name:
            raise ValueError(f"column {column.name} has no width, and no row of _DRAWN draws it")
        else:
            in_order.append(drawn_by_name[column.name])
    return tuple(in_order)


def with_high_mark(text: str, width: int) -> str:
    """A figure with a mark behind it in `width` cells: `93%!`, and `100!` where there is no cell left."""
    if text.endswith("!"):
        return text
    return f"{text[: width - 1]}!"


def share(value: Reading, width: int, tone: str, doubt: str = "") -> Piece:
    """A share in `width` cells; one above 100% stands out, one in `doubt` has its mark: `UNSURE`, `PARTIAL`."""
    text = ratio(value, min(width, _MOST_SHARE_CELLS))
    if doubt and text.endswith("%"):
        text = f"{text}{doubt}" if len(text) < width else f"{text[:-1]}{doubt}"
    if text.endswith("!"):
        tone = "warn"
    return right(text, width), tone


def shared_reason(first: Reading, second: Reading, room: int) -> str:
    """Words in `room` cells for two shares that are missing for the same reason; empty if each has a cell of its own,
    or there is no room for both together (`room` 0)."""
    if not room or not isinstance(first, Missing) or not isinstance(second, Missing):
        return ""
    if first.reason is not second.reason or first.reason not in _REASONS_IN_WORDS:
        return ""
    words = phrase(first)
    if words == DASH:
        return ""
    if cells(words) <= room:
        return words
    return short(first, room)


def efficiency_columns(
    pane: str,
    sizes: tuple[int, int],
    mfu: Callable[[T], tuple[Reading, str]],
    mbu: Callable[[T], tuple[Reading, str]],
    *,
    together: bool = True,
) -> tuple[Column[T], Column[T]]:
    """The columns MFU and MBU, `sizes` cells wide. `mfu` and `mbu` give the value of a row, and its mark where that is
    in doubt.

    Where both are missing for the same reason, and neither is hidden, its words stand across both; not unless the two
    columns are `together` on every screen.
    """
    names = (f"{pane}.mfu", f"{pane}.mbu")
    mfu_width, mbu_width = sizes
    room = mfu_width + mbu_width if together else 0  # cells of words across both

    def mfu_cell(item: T, view: View, tone: str) -> Row:
        value, doubt = mfu(item)
        reason = shared_reason(value, mbu(item)[0], room) if isinstance(value, Missing) else ""
        if reason and not view.hidden.intersection(names):
            return ((right(reason, room), "muted"),)
        return (share(value, mfu_width, tone, doubt),)

    def mbu_cell(item: T, view: View, tone: str) -> Row:
        value, doubt = mbu(item)
        reason = shared_reason(mfu(item)[0], value, room) if isinstance(value, Missing) else ""
        if reason and not view.hidden.intersection(names):
            return ()  # the cell of MFU has the reason, over both
        return (share(value, mbu_width, tone, doubt),)

    return (
        Column(
            "mfu",
            title="mfu",
            width=mfu_width,
            head=((right("mfu", mfu_width), "mfu"),),
            cell=mfu_cell,
            value=lambda item: mfu(item)[0],
        ),
        Column(
            "mbu",
            title="mbu",
            width=mbu_width,
            head=((right("mbu", mbu_width), "mbu"),),
            cell=mbu_cell,
            value=lambda item: mbu(item)[0],
        ),
    )


@lru_cache(maxsize=64)
def left_out_note(names: tuple[str, ...], room: int) -> str:
    """Columns left out and how to see them, as many whole names as fit: `wider window: limit, tensor +5`.

    Just how many there are where no more fits into `room` cells, and nothing where that does not.
    """
    if not names:
        return ""
    texts = [f"wider window: {', '.join(names)}"]
    for shown in range(len(names) - 1, 0, -1):
        texts.append(f"wider window: {', '.join(names[:shown])} +{len(names) - shown}")
    texts += [f"wider window: +{len(names)}", f"+{counted(len(names), 'column')}"]
    return next((text for text in texts if cells(text) <= room), "")


@lru_cache(maxsize=256)
def local_time_of(rfc3339: str) -> datetime | None:
    """The local time of an RFC 3339 text; None where it is none."""
    try:
        return datetime.fromisoformat(rfc3339.replace("Z", "+00:00")).astimezone()
    except ValueError:
        return None


def clock(wall_s: float) -> str:
    """The local time of day of a Unix time."""
    try:
        return datetime.fromtimestamp(wall_s, timezone.utc).astimezone().strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # of a damaged recording: no such local time
        return clock_utc(wall_s)
