"""Sections of figures, and how they are set in columns of a given width."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

import msgspec

from gpumon.figures import unit
from gpumon.figures.figure import Figures
from gpumon.readings.flat import value_of
from gpumon.readings.format import DASH, cells, cut, left, phrase, right
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.text import clean
from gpumon.tui.detail import values
from gpumon.tui.detail.values import NUMBER_CELLS, Write
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row

MEASURED: Final = "measured"
"""A counter or gauge of the hardware or the engine."""
DERIVED: Final = "derived"
"""A formula over measured values."""
ESTIMATED: Final = "estimated"
"""A bound, a table value, or a formula that rests on an assumption."""
CATALOGUE: Final = "catalogue"
"""A fact of the model as gpumon's own catalogue has it."""

TWO_COLUMNS_WIDTH: Final = 140
"""Cells of a screen from which sections stand side by side."""
_GAP_CELLS: Final = 2
"""Cells between the two columns."""
_INDENT: Final = 2
"""Cells before the name of a figure."""
REMARK_INDENT: Final = 4
"""Cells before a remark on the line above it."""
_SOURCE_INDENT: Final = 4
"""Cells before a source or a formula that stands below its figure."""
NAME_CELLS: Final = 18
"""Cells of the name of a figure."""
_UNIT_CELLS: Final = 8
_BASIS_CELLS: Final = 10
_CELLS_BEFORE_SOURCE: Final = _INDENT + NAME_CELLS + NUMBER_CELLS + 1 + _UNIT_CELLS + _BASIS_CELLS
_LEAST_SOURCE_CELLS: Final = 24
"""Cells that a source needs to stand beside its figure; else it stands below."""
_LEAST_TEXT_CELLS: Final = 8
"""Cells that an indented text gets however narrow the screen is."""
_LONGEST_TEXT: Final = 600
"""Characters of one source or formula: sources name what others sent, which may be of any length."""
_LONGEST_FACT: Final = 1200
"""Characters of one fact or sentence."""
_TONES_OF_OLD: Final = {"text": "muted", "accent": "muted"}
"""Tones of a page whose figures are old; warnings keep theirs."""


class Why(NamedTuple):
    """Why a figure is not there, and what to do about it."""

    sentence: str
    todo: str
    """Empty where nothing can be done."""
    quiet: bool = False
    """Whether the section does not repeat it, as it stands at the top of the page already."""
    item: str = ""
    """Object of the action for this figure alone, as a counter that is to be added; it stands behind `todo`."""

    def todo_for(self, items: Sequence[str]) -> str:
        """The action, with the objects of all figures that are missing for the same reason."""
        return f"{self.todo} {', '.join(items)}".rstrip()


class Figure(NamedTuple):
    """One figure with its basis, its source and its formula, all as texts."""

    name: str
    number: str
    unit: str
    basis: str
    """`MEASURED`, `DERIVED`, `ESTIMATED` or `CATALOGUE`; empty where the figure is missing."""
    source: str
    formula: str
    """The right side of the formula, with the numbers put in; empty where it has none."""
    tone: str
    why: Why | None
    """Why it is missing; None where it is there."""
    field: str = ""
    """Flat name of its field in the snapshot, or of the field whose source and reasons it shares."""


class Fact(NamedTuple):
    """A named text, such as the model of an engine."""

    name: str
    text: str
    source: str = ""
    tone: str = "text"


class Sentence(NamedTuple):
    """Remark on the figures above it, `indent` cells from the left."""

    text: str
    tone: str = "muted"
    indent: int = _INDENT


class ReadyLine(NamedTuple):
    """A line whose pieces have their cells and tones already, such as one of a table."""

    row: Row


Entry = Figure | Fact | Sentence | ReadyLine


class Section(NamedTuple):
    """Figures that belong together, under one title."""

    title: str
    entries: Sequence[Entry]
    side: int = 0
    """Column of a wide screen: 0 left, 1 right."""
    columns: str = ""
    """Titles of columns, which stand on the line of the title: as many blanks before them as cells are before their
    first one."""
    folded: bool = False
    """Whether it is read by those alone who look for it: a page shows its title until it is unfolded."""
    missing: Sequence[tuple[str, Why]] = ()
    """Names of figures in its `ReadyLine`s that are missing, and why: an entry `Figure` has its own reason."""


_WRITES: Final[Mapping[unit.Unit, Write]] = {
    unit.SHARE: values.percent,
    unit.TOKENS_PER_S: values.token_rate,
    unit.PER_S: values.rate,
    unit.BYTES_PER_S: values.traffic,
    unit.BYTES_PER_S_OF_PEAK: values.traffic,
    unit.FLOPS_PER_S: values.flop_rate,
    unit.FLOPS_PER_J: values.flops_per_joule,
    unit.TOKENS_PER_J: values.tokens_per_joule,
    unit.BYTES: values.size,
    unit.JOULES: values.joules,
    unit.MONEY: values.money,
    unit.GPUS: values.whole,
    unit.SEQUENCES: values.sequences,
    unit.REQUESTS: values.whole,
    unit.NUMBER: values.whole,
    unit.TOKENS: values.tokens,
    unit.SECONDS: values.seconds,
    unit.HERTZ: values.megahertz,
    unit.WATTS: values.watts,
    unit.PER_REQUEST: values.per_request,
    unit.TIMES_MEAN: values.times_mean,
    unit.TOKENS_PER_STEP: values.mean_tokens,
}
"""Unit of a figure -> how a page writes it in full."""


class ReadingRow(NamedTuple):
    """A figure that is to be made of a reading that is no field of the thing."""

    reading: Reading
    name: str
    field: str
    """Flat name of the field whose reasons it shares."""
    write: Write


Heights = dict[tuple[str, int], int]
"""Most lines that an entry took so far, by the title of its section and its place in it."""
Explainer = Callable[[Missing, str], Why]
"""Gives the reason of a missing reading, by the reading and the flat name of its field."""


class FigureMaker:
    """Makes the figures of one thing: knows their rows and sources, and why they may be missing."""

    def __init__(self, thing: msgspec.Struct, rows: Figures, sources: Mapping[str, str], explain: Explainer) -> None:
        """`sources`: where each field's figure comes from, by its flat name."""
        self._thing = thing
        self._rows = rows
        self._sources = sources
        self.explain = explain

    def of_field(
        self,
        field: str,
        basis: str = MEASURED,
        *,
        name: str = "",
        write: Write | None = None,
        formula: str = "",
        tone: str = "text",
    ) -> Figure:
        """The figure of a field, by its flat name; `formula` is what follows `=`, with the numbers put in.

        `name` and `write`: where the page names or writes it in another way than its row.
        """
        row = self._rows[field]
        reading = value_of(self._thing, field)
        return self.of_reading(
            reading, name or row.name, field, write or _WRITES[row.unit], basis, formula=formula, tone=tone
        )

    def of_reading(
        self,
        reading: Reading,
        name: str,
        field: str,
        write: Write,
        basis: str = MEASURED,
        formula: str = "",
        tone: str = "text",
    ) -> Figure:
        """The figure of a reading that is no field of the thing; `field` gives its source and reasons."""
        # Some sources begin with their basis, which the line has in a column of its own.
        source = clean(self._sources.get(field, ""), _LONGEST_TEXT).removeprefix(f"{basis}: ")
        if not isinstance(reading, Missing) and not math.isfinite(reading):
            reading = Missing(Reason.INVALID)
        if isinstance(reading, Missing):
            return Figure(
                name,
                number=DASH,
                unit=phrase(reading),
                basis="",
                source=source,
                formula="",
                tone="muted",
                why=self.explain(reading, field),
                field=field,
            )
        number, unit = write(reading)
        if unit.endswith("!"):  # a share above 100%
            tone = "warn"
        return Figure(
            clean(name),
            number,
            unit,
            basis,
            source,
            formula=clean(formula, _LONGEST_TEXT),
            tone=tone,
            why=None,
            field=field,
        )

    def table(self, fields: Iterable[str], basis: str = MEASURED) -> list[Entry]:
        """One figure for each field."""
        return [self.of_field(field, basis) for field in fields]

    def known(self, fields: Iterable[str], basis: str = MEASURED) -> list[Entry]:
        """One figure for each field that is not missing."""
        return self.table((field for field in fields if not isinstance(value_of(self._thing, field), Missing)), basis)


def lay_out(sections: Sequence[Section], width: int, *, old: bool = False, heights: Heights | None = None) -> list[Row]:
    """The lines of all sections, side by side where `width` allows; `old` dims every figure.

    An entry takes no fewer lines than `heights` has for it, so that nothing below moves when a number gets shorter
    by a digit. `heights` is brought up to date.
    """
    if heights is None:
        heights = {}
    if width < TWO_COLUMNS_WIDTH:
        rows = _column_rows(sections, width, heights)
    else:
        rows = _two_columns(sections, width, heights)
    if old:
        return [tuple((text, _TONES_OF_OLD.get(tone, tone)) for text, tone in row) for row in rows]
    return rows


def _two_columns(sections: Sequence[Section], width: int, heights: Heights) -> list[Row]:
    """The lines of both columns, side by side."""
    column_width = (width - _GAP_CELLS) // 2
    columns = []
    for side in (0, 1):
        of_side = [section for section in sections if section.side == side]
        columns.append(_column_rows(of_side, column_width, heights))
    return [
        (*_fit_row(left_row, column_width), (" " * _GAP_CELLS, "text"), *right_row)
        for left_row, right_row in zip_longest(*columns, fillvalue=((("", "text"),)))
    ]


def is_at_place(row: Row, place: str) -> bool:
    """Whether a line begins a figure of this name, or a section of this title, in one of its columns."""
    name = " " * _INDENT + left(place, NAME_CELLS)
    for text, tone in row:
        is_title = tone == "strong" and text.rstrip() == f" {place}"
        if text == name or is_title:
            return True
    return False


def without_missing(sections: Sequence[Section]) -> list[Section]:
    """The sections with their facts and known figures only: for a thing whose figures are all missing."""
    remaining = []
    for section in sections:
        entries = [
            entry
            for entry in section.entries
            if isinstance(entry, Fact) or (isinstance(entry, Figure) and entry.why is None)
        ]
        if entries:
            remaining.append(section._replace(entries=entries, missing=()))
    return remaining


def without_fields(sections: Sequence[Section], fields: frozenset[str]) -> list[Section]:
    """The sections without missing figures of `fields`; a section that had only such figures is left out."""
    remaining = []
    for section in sections:
        entries = [
            entry
            for entry in section.entries
            if not (isinstance(entry, Figure) and entry.why is not None and entry.field in fields)
        ]
        is_unchanged = len(entries) == len(section.entries)
        has_more_than_remarks = any(not isinstance(entry, Sentence) for entry in entries)
        if is_unchanged or has_more_than_remarks:
            remaining.append(section._replace(entries=entries))
    return remaining


def _column_rows(sections: Sequence[Section], width: int, heights: Heights) -> list[Row]:
    """The lines of sections below each other, with a blank line between them."""
    rows: list[Row] = []
    for section in sections:
        if rows:
            rows.append(())
        rows += _section_rows(section, width, heights)
    return rows


def _section_rows(section: Section, width: int, heights: Heights) -> list[Row]:
    """The title of a section, its entries, and the reasons of what is missing.

    Each entry keeps the height that it had: blank lines stand behind a figure, but those of sentences at the end of
    the section, as they would tear apart a text that is read as one.
    """
    title = f" {section.title}"
    rows: list[Row] = [((title, "strong"), (cut(section.columns, width)[cells(title) :], "muted"))]
    blanks_at_end = 0
    for place, entry in enumerate(section.entries):
        lines = _ROWS_OF_ENTRY[type(entry)](entry, width)
        height = max(len(lines), heights.get((section.title, place), 0))
        heights[section.title, place] = height
        rows += lines
        if isinstance(entry, Sentence):
            blanks_at_end += height - len(lines)
        else:
            rows += [()] * (height - len(lines))
    rows += _missing_rows(section, width)
    rows += [()] * blanks_at_end
    return rows


def _figure_rows(figure: Figure, width: int) -> list[Row]:
    """Name, number, unit, basis, and the source beside them or below; the formula with its numbers below."""
    name: Piece = (" " * _INDENT + left(figure.name, NAME_CELLS), "muted")
    number = right(figure.number, NUMBER_CELLS)
    unit_text = figure.unit if figure.unit.startswith("%") else f" {figure.unit}"
    if figure.why is not None:  # the unit is the reason in two words, and may use the cells of the basis, too
        value = [(number + left(unit_text, 1 + _UNIT_CELLS + _BASIS_CELLS), "muted")]
    else:
        shown = number + left(unit_text, 1 + _UNIT_CELLS)
        value = [(shown, figure.tone), (left(figure.basis, _BASIS_CELLS), "muted")]
    rows: list[Row] = []
    room = width - _CELLS_BEFORE_SOURCE
    if room >= _LEAST_SOURCE_CELLS:
        lines = folded(figure.source, room)
        rows.append((name, *value, (lines[0], "muted")))
        rows += [((" " * _CELLS_BEFORE_SOURCE + line, "muted"),) for line in lines[1:]]
    else:
        rows.append((name, *value))
        if figure.source:
            rows += _indented_rows(figure.source, width, "muted", _SOURCE_INDENT)
    if figure.formula:
        rows += _indented_rows(f"= {figure.formula}", width, "accent", _SOURCE_INDENT, hang=2)
    return rows


def _fact_rows(fact: Fact, width: int) -> list[Row]:
    """Name and text of a fact, and its source below."""
    indent = _INDENT + NAME_CELLS
    lines = folded(clean(fact.text, _LONGEST_FACT) or DASH, width - indent)
    name = " " * _INDENT + left(fact.name, NAME_CELLS - 1) + " "
    rows: list[Row] = [((name, "muted"), (lines[0], fact.tone))]
    rows += [((" " * indent + line, fact.tone),) for line in lines[1:]]
    if fact.source:
        rows += _indented_rows(clean(fact.source, _LONGEST_TEXT), width, "muted", indent)
    return rows


def _sentence_rows(sentence: Sentence, width: int) -> list[Row]:
    """A remark over as many lines as it needs."""
    return _indented_rows(clean(sentence.text, _LONGEST_FACT), width, sentence.tone, sentence.indent)


_ROWS_OF_ENTRY: Final[dict[type, Callable[..., list[Row]]]] = {
    Figure: _figure_rows,
    Fact: _fact_rows,
    Sentence: _sentence_rows,
    ReadyLine: lambda line, width: [_fit_row(line.row, width)],
}
"""How each kind of entry becomes lines."""


def _missing_rows(section: Section, width: int) -> list[Row]:
    """The missing figures of a section: each reason once, with the names of its figures and what to do about them."""
    reasons: dict[Why, list[str]] = {}
    items: dict[Why, list[str]] = {}
    figures = [
        (entry.name, entry.why) for entry in section.entries if isinstance(entry, Figure) and entry.why is not None
    ]
    for name, why in (*figures, *section.missing):
        reason = why._replace(item="")
        names = reasons.setdefault(reason, [])
        items_of_reason = items.setdefault(reason, [])
        if name not in names and not why.quiet:
            names.append(name)
        if why.item and why.item not in items_of_reason:
            items_of_reason.append(why.item)
    rows: list[Row] = []
    for why, names in reasons.items():
        if not names:
            continue
        rows += _indented_rows(f"? {', '.join(names)}: {why.sentence}", width, "text", _INDENT, hang=2)
        if why.todo:
            rows += _indented_rows(f"→ {why.todo_for(items[why])}", width, "accent", _INDENT + 2, hang=2)
    return rows


def _indented_rows(text: str, width: int, tone: str, indent: int, hang: int = 0) -> list[Row]:
    """A text over as many lines as it needs; lines after the first stand `hang` cells further in."""
    first, *others = folded(text, max(_LEAST_TEXT_CELLS, width - indent - hang))
    rows: list[Row] = [((" " * indent + first, tone),)]
    rows += [((" " * (indent + hang) + line, tone),) for line in others]
    return rows


def _fit_row(row: Row, width: int) -> Row:
    """The row in exactly `width` cells: cut, or filled with blanks."""
    pieces: list[Piece] = []
    for text, tone in row:
        size = cells(text)
        if size > width:
            text = cut(text, width)
            size = cells(text)
        pieces.append((text, tone))
        width -= size
    if width > 0:
        return (*pieces, (" " * width, "text"))
    return pieces
