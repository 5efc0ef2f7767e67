"""Sections of figures, and how they are set in columns of a given width."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple, TypeGuard

import msgspec

from gpumon.readings.flat import value_of
from gpumon.readings.format import DASH, cells, cut, left, phrase, right
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.text import clean
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

TWO_COLUMNS: Final = 140
"""Cells from which sections stand side by side."""
_GAP: Final = 2
_INDENT: Final = 2
_NAME: Final = 18
_UNIT: Final = 8
_BASIS: Final = 10
_BEFORE_SOURCE: Final = _INDENT + _NAME + NUMBER_CELLS + 1 + _UNIT + _BASIS
_BESIDE: Final = 24
"""Cells that a source needs to stand beside its figure; else it stands below."""
_TEXT: Final = 600
"""Characters of one text."""


class Why(NamedTuple):
    """Why a figure is not there, and what to do about it."""

    sentence: str
    todo: str
    quiet: bool = False
    """It stands at the top of the page already."""


class Figure(NamedTuple):
    """One figure with everything that is to be said of it. `why` is set where it is missing."""

    name: str
    number: str
    unit: str
    basis: str
    source: str
    formula: str
    tone: str
    why: Why | None
    field: str = ""
    """Its name in the snapshot."""


class Fact(NamedTuple):
    """Something that is no number."""

    name: str
    text: str
    source: str = ""
    tone: str = "text"


class Sentence(NamedTuple):
    """Remark on the figures above it."""

    text: str
    tone: str = "muted"
    indent: int = 2


class ReadyLine(NamedTuple):
    """A line that is set already."""

    row: Row


Entry = Figure | Fact | Sentence | ReadyLine


class Section(NamedTuple):
    """Figures that belong together, on the left or the right (1) of a wide screen."""

    title: str
    entries: Sequence[Entry]
    side: int = 0
    missing: Sequence[tuple[str, Why]] = ()
    """Names of what is missing in it beside its figures, and why."""


Heights = dict[tuple[str, int], int]
"""Lines by title of the section and number of the entry."""
Explain = Callable[[Missing, str], Why]
"""From a missing reading and the name of its field."""


class FigureMaker:
    """Makes the figures of one thing: knows their sources, and why they may be missing."""

    def __init__(self, thing: msgspec.Struct, sources: Mapping[str, str], explain: Explain) -> None:
        self._thing = thing
        self._sources = sources
        self.explain = explain

    def __call__(
        self, name: str, field: str, write: Write, basis: str = MEASURED, formula: str = "", tone: str = "text"
    ) -> Figure:
        """The figure of a field, by its flat name; `formula` is what follows `=`, with the numbers put in."""
        return self.of_reading(value_of(self._thing, field), name, field, write, basis, formula, tone)

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
        """A reading that is no field of the thing, with source and reasons of one."""
        source = clean(self._sources.get(field, ""), _TEXT).removeprefix(f"{basis}: ")
        if not isinstance(reading, Missing) and not math.isfinite(reading):
            reading = Missing(Reason.INVALID)
        if isinstance(reading, Missing):
            return Figure(name, DASH, phrase(reading), "", source, "", "muted", self.explain(reading, field), field)
        number, unit = write(reading)
        formula = clean(formula, _TEXT)
        if unit.endswith("!"):
            tone = "warn"
        return Figure(clean(name), number, unit, basis, source, formula, tone, None, field)

    def table(self, rows: Iterable[tuple[str, str, Write]], basis: str = MEASURED) -> list[Entry]:
        """One figure for each (name, field, unit)."""
        return [self(name, field, write, basis) for name, field, write in rows]


def lay_out(sections: Sequence[Section], width: int, *, old: bool = False, heights: Heights | None = None) -> list[Row]:
    """All sections, side by side where `width` allows; `old` dims every figure.

    `heights` are the lines that each entry took so far: it takes no fewer, so that nothing below moves when a number
    gets shorter by a digit.
    """
    heights = {} if heights is None else heights
    if width < TWO_COLUMNS:
        rows = _column(sections, width, heights)
    else:
        half = (width - _GAP) // 2
        sides = []
        for side in (0, 1):
            sides.append(_column([section for section in sections if section.side == side], half, heights))
        rows = []
        for first, other in zip_longest(*sides, fillvalue=((("", "text"),))):
            rows.append((*_fixed(first, half), (" " * _GAP, "text"), *other))
    if old:
        return [tuple((text, _OLD.get(tone, tone)) for text, tone in row) for row in rows]
    return rows


def is_at_place(row: Row, place: str) -> bool:
    """Whether a line begins a figure of this name, or a section of this title, in one of its columns."""
    figure = " " * _INDENT + left(place, _NAME)
    for text, tone in row:
        if text == figure or (tone == "strong" and text.rstrip() == f" {place}"):
            return True
    return False


_OLD: Final = {"text": "muted", "accent": "muted"}


def without_missing(sections: Sequence[Section]) -> list[Section]:
    """The sections of a thing without figures: only what is known of it all the same."""
    kept = []
    for section in sections:
        entries = []
        for entry in section.entries:
            if isinstance(entry, Fact) or (isinstance(entry, Figure) and entry.why is None):
                entries.append(entry)
        if entries:
            kept.append(section._replace(entries=entries, missing=()))
    return kept


def without_fields(sections: Sequence[Section], without: frozenset[str]) -> list[Section]:
    """The sections without missing figures of those fields, and without those that only had such figures."""
    kept = []
    for section in sections:
        entries = []
        for entry in section.entries:
            if not (_is_missing(entry) and entry.field in without):
                entries.append(entry)
        has_figures = any(not isinstance(entry, Sentence) for entry in entries)
        if len(entries) == len(section.entries) or has_figures:
            kept.append(section._replace(entries=entries))
    return kept


def _is_missing(entry: Entry) -> TypeGuard[Figure]:
    return isinstance(entry, Figure) and entry.why is not None


def _column(sections: Sequence[Section], width: int, heights: Heights) -> list[Row]:
    rows: list[Row] = []
    for section in sections:
        if rows:
            rows.append(())
        rows.append(((f" {section.title}", "strong"),))
        spare = 0
        for number, entry in enumerate(section.entries):
            lines = _PAINT[type(entry)](entry, width)
            most = max(len(lines), heights.get((section.title, number), 0))
            heights[section.title, number] = most
            rows += lines
            if isinstance(entry, Sentence):
                spare += most - len(lines)
            else:
                rows += [()] * (most - len(lines))
        rows += _gaps(section, width)
        rows += [()] * spare
    return rows


def _figure(figure: Figure, width: int) -> list[Row]:
    """Name, number, unit, basis, and the source beside them or below; the formula with its numbers below."""
    missing = figure.why is not None
    name: Piece = (" " * _INDENT + left(figure.name, _NAME), "muted")
    number = right(figure.number, NUMBER_CELLS) + " "
    if missing:
        after = [(number + left(figure.unit, _UNIT + _BASIS), "muted")]
    else:
        after = [(number + left(figure.unit, _UNIT), figure.tone), (left(figure.basis, _BASIS), "muted")]
    rows: list[Row] = []
    room = width - _BEFORE_SOURCE
    if room >= _BESIDE:
        lines = folded(figure.source, room)
        rows.append((name, *after, (lines[0], "muted")))
        rows += [((" " * _BEFORE_SOURCE + line, "muted"),) for line in lines[1:]]
    else:
        rows.append((name, *after))
        if figure.source:
            rows += _indented(figure.source, width, "muted", 4)
    if figure.formula:
        rows += _indented(f"= {figure.formula}", width, "accent", 4, hang=2)
    return rows


def _fact(fact: Fact, width: int) -> list[Row]:
    lines = folded(clean(fact.text, 2 * _TEXT) or DASH, width - _INDENT - _NAME)
    rows: list[Row] = [((" " * _INDENT + left(fact.name, _NAME - 1) + " ", "muted"), (lines[0], fact.tone))]
    rows += [((" " * (_INDENT + _NAME) + line, fact.tone),) for line in lines[1:]]
    if fact.source:
        rows += _indented(clean(fact.source, _TEXT), width, "muted", _INDENT + _NAME)
    return rows


def _sentence(sentence: Sentence, width: int) -> list[Row]:
    return _indented(clean(sentence.text, 2 * _TEXT), width, sentence.tone, sentence.indent)


def _line(line: ReadyLine, width: int) -> list[Row]:
    return [_fixed(line.row, width)]


_PAINT: Final[dict[type, Callable[..., list[Row]]]] = {
    Figure: _figure,
    Fact: _fact,
    Sentence: _sentence,
    ReadyLine: _line,
}


def _gaps(section: Section, width: int) -> list[Row]:
    """Missing figures of a section, each reason once, and what to do about it."""
    reasons: dict[Why, list[str]] = {}
    figures = []
    for entry in section.entries:
        if isinstance(entry, Figure) and entry.why is not None:
            figures.append((entry.name, entry.why))
    for name, why in (*figures, *section.missing):
        names = reasons.setdefault(why, [])
        if name not in names and not why.quiet:
            names.append(name)
    rows: list[Row] = []
    for why, names in reasons.items():
        if not names:
            continue
        rows += _indented(f"? {', '.join(names)}: {why.sentence}", width, "text", _INDENT, hang=2)
        if why.todo:
            rows += _indented(f"→ {why.todo}", width, "accent", _INDENT + 2, hang=2)
    return rows


def _indented(text: str, width: int, tone: str, indent: int, hang: int = 0) -> list[Row]:
    """A text over as many lines as it needs; lines after the first stand `hang` cells further in."""
    lines = folded(text, max(8, width - indent - hang))
    return [((" " * (indent + (hang if number else 0)) + line, tone),) for number, line in enumerate(lines)]


def _fixed(row: Row, width: int) -> Row:
    """A row in exactly `width` cells."""
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
