"""The answer of a sizing in words: its parts as data, printed as text or as Markdown for a ticket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.outputs.markdown import markdown_table, safe
from gpumon.outputs.sizing_comparison import comparison_notes, comparison_table
from gpumon.outputs.sizing_servers import packing_table, server_sections
from gpumon.outputs.sizing_text import FactLine, ReportSection, printable_name, printable_text
from gpumon.outputs.sizing_totals import total_facts
from gpumon.outputs.sizing_workloads import workload_lines, workload_table
from gpumon.outputs.tables import INDENT, PrintedColumn, cut_lines, labelled, table, wrapped
from gpumon.sizing.answer import Answer
from gpumon.sizing.scenario import Scenario

_LEAST_WIDTH: Final = 60
"""Cells in which the columns that are never left out fit."""


class SizingReport(NamedTuple):
    """The whole answer: facts, tables, what stands on which server, and what is known of each workload."""

    title: str
    note: str
    facts: list[FactLine]
    compared: list[PrintedColumn]
    """Types of GPU side by side; empty where nothing is compared."""
    comparison_notes: list[FactLine]
    """Lines below that table: why a type has no answer, marks, common terms."""
    tables: list[list[PrintedColumn]]
    """The workloads, and the packings where there are any; each table as its columns."""
    servers: list[ReportSection]
    """Layout of the servers, for each packing that has one of its own."""
    workloads: list[ReportSection]
    """All that is known of each workload."""


def _sizing_report(answer: Answer, scenario: Scenario) -> SizingReport:
    """All parts of the answer, as text and Markdown print them."""
    tables = [workload_table(answer.workloads)]
    packings = packing_table(answer)
    if packings:
        tables.append(packings)
    workloads = []
    for plan in answer.workloads:
        lines = _nonempty(workload_lines(plan, scenario))
        workloads.append(ReportSection(printable_name(plan.name), lines))
    return SizingReport(
        title=printable_name(answer.name),
        note=printable_text(scenario.note),
        facts=_nonempty(total_facts(answer)),
        compared=comparison_table(answer, scenario),
        comparison_notes=_nonempty(comparison_notes(answer, scenario)),
        tables=tables,
        servers=list(server_sections(answer, scenario)),
        workloads=workloads,
    )


def _nonempty(lines: Iterator[FactLine]) -> list[FactLine]:
    """The lines that have a text."""
    return [line for line in lines if line.text]


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
    for line in parts.facts:
        yield from labelled(*line, width, "")
    if parts.compared:
        yield from ("", *table(parts.compared, width))
        for line in parts.comparison_notes:
            yield from labelled(*line, width, "")
    for columns in parts.tables:
        yield from ("", *table(columns, width))
    for title, lines in parts.servers:
        yield from ("", *wrapped(title, width, ""))
        for line in lines:
            yield from wrapped(line.text, width, INDENT, INDENT * 2)
    for title, lines in parts.workloads:
        yield from ("", *wrapped(title, width, ""))
        for line in lines:
            yield from labelled(*line, width)


def markdown(answer: Answer, scenario: Scenario) -> str:
    """The answer for a ticket. Names from outside stand there as they are: none becomes markup, a mention or a link."""
    return "\n".join(_markdown_lines(_sizing_report(answer, scenario))) + "\n"


def _markdown_lines(parts: SizingReport) -> Iterator[str]:
    """The lines of a report in Markdown."""
    if parts.title:
        yield f"## Sizing: {safe(parts.title)}"
    else:
        yield "## Sizing"
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
    for title, lines in (*parts.servers, *parts.workloads):
        yield from ("", f"**{safe(title)}**", "")
        for line in lines:
            label = f"{line.label}: " if line.label else ""
            yield f"- {label}{safe(line.text)}"


def _markdown_list(lines: Sequence[FactLine]) -> Iterator[str]:
    """Facts as a list, the labels in bold."""
    for label, text in lines:
        yield f"- **{label}:** {safe(text)}"
