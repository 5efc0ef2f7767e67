"""A report as a document: facts, then sections of a table or remarks; built once, printed as text or as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.outputs import markdown as md
from gpumon.outputs.tables import PrintedColumn, cut_lines, labelled, table

_LABEL_CELLS: Final = 11
"""Cells of the labels in front of facts."""
_BULLET_CELLS: Final = 2
"""Cells of the dash in front of remarks."""
_LEAST_WIDTH: Final = 60
"""Cells in which the columns that are never left out fit."""


class ReportSection(NamedTuple):
    """A part of a report, with whatever of these it has."""

    title: str = ""
    columns: Sequence[PrintedColumn] = ()
    """A table; without rows it is left out."""
    remarks: Sequence[str] = ()
    """Sentences of a list."""
    closing: str = ""
    """A line below: how much is left out, or that there is nothing."""


class ReportDocument(NamedTuple):
    """A whole report."""

    title: str
    facts: Sequence[tuple[str, str]]
    """Labels and texts."""
    sections: Sequence[ReportSection]


def as_text(document: ReportDocument, width: int) -> str:
    """The report as text in at most `width` cells (60 at least)."""
    width = max(_LEAST_WIDTH, width)
    lines = [document.title]
    for label, text in document.facts:
        lines += labelled(label, text, width, indent="", room=_LABEL_CELLS)
    for section in document.sections:
        lines += ["", *_text_lines(section, width)]
    return cut_lines(lines, width)


def _text_lines(section: ReportSection, width: int) -> Iterator[str]:
    """The lines of a section as text."""
    if section.title:
        yield section.title
    if section.columns and section.columns[0].texts:
        yield from table(section.columns, width)
    for remark in section.remarks:
        yield from labelled("-", remark, width, indent="", room=_BULLET_CELLS)
    if section.closing:
        yield section.closing


def as_markdown(document: ReportDocument) -> str:
    """The report as tables to paste into a ticket; nothing in it becomes markup, a mention or a link."""
    lines = [f"## {md.safe(document.title)}", "", *md.header_lines("total|")]
    lines += [md.table_line(label, md.safe(text)) for label, text in document.facts]
    for section in document.sections:
        if section.title:
            lines += ["", f"### {md.safe(section.title[:1].upper() + section.title[1:])}"]
        if section.columns and section.columns[0].texts:
            lines += ["", *md.markdown_table(section.columns)]
        if section.remarks:
            lines += ["", *(f"- {md.safe(remark)}" for remark in section.remarks)]
        if section.closing:
            lines += ["", md.safe(section.closing)]
    return "\n".join(lines) + "\n"
