"""The answer of a sizing in words: its parts as data, printed as text or as Markdown for a ticket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.outputs.markdown import markdown_table, safe
from gpumon.outputs.sizing_comparison import comparison_notes, comparison_table
from gpumon.outputs.sizing_servers import Servers, packing_table, server_sections
from gpumon.outputs.sizing_workloads import workload_table
from gpumon.outputs.tables import INDENT, PrintedColumn, cut_lines, labelled, table, wrapped
from gpumon.sizing.answer import Answer
from gpumon.sizing.document.forms import printable_name, printable_text
from gpumon.sizing.document.plan import plan_document
from gpumon.sizing.document.row import Row
from gpumon.sizing.document.workload import workload_document
from gpumon.sizing.scenario import Scenario

_LEAST_WIDTH: Final = 60
"""Cells in which the columns that are never left out fit."""


class SizingReport(NamedTuple):
    """The whole answer: facts, tables, what stands on which server, and what is known of each workload."""

    title: str
    note: str
    facts: list[Row]
    compared: list[PrintedColumn]
    """Types of GPU side by side; empty where nothing is compared."""
    comparison_notes: list[Row]
    """Lines below that table: why a type has no answer, marks, common terms."""
    tables: list[list[PrintedColumn]]
    """The workloads, and the packings where there are any; each table as its columns."""
    servers: list[Servers]
    """Layout of the servers, for each packing that has one of its own."""
    workloads: list[tuple[str, list[Row]]]
    """Name of each workload, and all that is known of it."""


def _sizing_report(answer: Answer, scenario: Scenario) -> SizingReport:
    """All parts of the answer, as text and Markdown print them."""
    documents = [workload_document(plan, scenario.planning_factor) for plan in answer.workloads]
    return SizingReport(
        title=printable_name(answer.name),
        note=printable_text(scenario.note),
        facts=_with_text(plan_document(answer).rows()),
        compared=comparison_table(answer, scenario),
        comparison_notes=_with_text(comparison_notes(answer, scenario)),
        tables=[columns for columns in (workload_table(answer.workloads), packing_table(answer)) if columns],
        servers=list(server_sections(answer, scenario)),
        workloads=[(document.name, _with_text(document.rows())) for document in documents],
    )


def _with_text(rows: Iterator[Row]) -> list[Row]:
    """The rows that say something."""
    return [row for row in rows if row.text]


def report(answer: Answer, scenario: Scenario, width: int = 100) -> str:
    """The answer as text in at most `width` cells (`_LEAST_WIDTH` at least).

    Long lines are wrapped, a table leaves columns out that the lines below it repeat, and only one long word is cut.
    """
    width = max(width, _LEAST_WIDTH)
    return cut_lines(_text_lines(_sizing_report(answer, scenario), width), width)


def _text_lines(parts: SizingReport, width: int) -> Iterator[str]:
    """The lines of a report as text."""
    title = f"sizing: {parts.title}" if parts.title else "sizing"
    yield from wrapped(title, width, "")
    yield from wrapped(parts.note, width, "")
    yield ""
    for row in parts.facts:
        yield from labelled(row.label, row.text, width, "")
    if parts.compared:
        yield from ("", *table(parts.compared, width))
        for row in parts.comparison_notes:
            yield from labelled(row.label, row.text, width, "")
    for columns in parts.tables:
        yield from ("", *table(columns, width))
    for title, lines in parts.servers:
        yield from ("", *wrapped(title, width, ""))
        for line in lines:
            yield from wrapped(line, width, INDENT, INDENT * 2)
    for name, rows in parts.workloads:
        yield from ("", *wrapped(name, width, ""))
        for row in rows:
            yield from labelled(row.label, row.text, width)


def markdown(answer: Answer, scenario: Scenario) -> str:
    """The answer for a ticket. Names from outside stand there as they are: none becomes markup, a mention or a link."""
    return "\n".join(_markdown_lines(_sizing_report(answer, scenario))) + "\n"


def _markdown_lines(parts: SizingReport) -> Iterator[str]:
    """The lines of a report in Markdown."""
    yield f"## Sizing: {safe(parts.title)}" if parts.title else "## Sizing"
    if parts.note:
        yield from ("", safe(parts.note))
    yield ""
    yield from _markdown_list(parts.facts)
    if parts.compared:
        yield from ("", *markdown_table(parts.compared), "")
        yield from _markdown_list(parts.comparison_notes)
    for columns in parts.tables:
        yield ""
        yield from markdown_table(columns)
    for title, lines in parts.servers:
        yield from ("", f"**{safe(title)}**", "")
        yield from (f"- {safe(line)}" for line in lines)
    for name, rows in parts.workloads:
        yield from ("", f"**{safe(name)}**", "")
        for row in rows:
            label = f"{row.label}: " if row.label else ""
            yield f"- {label}{safe(row.text)}"


def _markdown_list(rows: Sequence[Row]) -> Iterator[str]:
    """Facts as a list, the labels in bold."""
    for row in rows:
        yield f"- **{row.label}:** {safe(row.text)}"
