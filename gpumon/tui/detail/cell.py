"""One cell of a table explained in one line: its figure with the formula and the operands, as on the thing's page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.goodput import field_of_itl_goal
from gpumon.figures import figure as catalogue
from gpumon.figures.engine import ENGINE
from gpumon.figures.glossary import row_of
from gpumon.figures.gpu import SHARES_OF_PEAKS
from gpumon.readings.columns import other_quantile
from gpumon.readings.flat import value_of
from gpumon.readings.format import phrase, ratio, whole
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Engine, Quantiles, Replicas, Snapshot
from gpumon.readings.text import clean
from gpumon.tui.detail.blocks import Entry, Fact, Figure, Section
from gpumon.tui.detail.sections import sections_of
from gpumon.tui.detail.served import column_note
from gpumon.tui.detail.things import ShownKey, Thing, things_of_kind
from gpumon.tui.detail.values import figure_text
from gpumon.tui.engine_table import waste_bound, wasted_gpus
from gpumon.tui.explained_columns import (
    FACTS_BY_THING,
    FIELDS_BY_THING,
    GOAL_OF_COLUMN,
    QUANTILES,
    SUMMED_COLUMNS,
    TOKENS_GOAL_FIELD,
    WASTE_FIELD,
)
from gpumon.tui.replica_rows import as_engine
from gpumon.tui.view import View

LATENCIES: Final = "latencies"
"""Title of the section with the table of latencies, whose rows are no figures."""


class Explained(NamedTuple):
    """Explanation of one cell, in one line."""

    text: str
    place: str = ""
    """Name of the figure, or title of the section, that the thing's page shows first when it is opened from the cell;
    empty for its top."""


def explain_cell(key: ShownKey, column: str, snapshot: Snapshot, view: View) -> Explained:
    """The figure of a cell with its formula, or with its meaning and source; why it is missing, where it is.

    Empty for a thing that is gone, and for a column without a figure.
    """
    kind, name = key
    thing = things_of_kind(snapshot, kind).get(name)
    if thing is None:
        return Explained("")
    fact = FACTS_BY_THING.get(kind, {}).get(column, "")
    if fact:
        return _explain_fact(sections_of(thing, snapshot, view), fact)
    fields = FIELDS_BY_THING.get(kind, {}).get(column, ())
    if not fields:
        return Explained("")
    if fields == (WASTE_FIELD,):
        return _explain_waste(_as_engine(thing))
    if fields == (TOKENS_GOAL_FIELD,):
        fields = (_tokens_goal_field(_as_engine(thing)),)
    figures = _figures_of(sections_of(thing, snapshot, view), fields)
    term = row_of("engines" if kind == "replicas" else f"{kind}s", fields[-1])
    if column in GOAL_OF_COLUMN:
        return _explain_goal(figures, GOAL_OF_COLUMN[column], term)
    if figures:
        return _explain_figures(figures, column, term)
    if column in QUANTILES:  # these are a table on the page
        return _explain_latency(thing, fields[0], QUANTILES[column], term)
    return Explained(f"{term.name if term is not None else column}: {_why_not_on_page(thing, fields[0])}")


def _explain_figures(figures: Sequence[Figure], column: str, term: catalogue.Figure | None) -> Explained:
    """The figures of a cell: a sum where the cell shows their sum, else one beside the other."""
    separator = " + " if column in SUMMED_COLUMNS else " · "
    text = separator.join(_figure_in_one_line(figure, term) for figure in figures)
    return Explained(text, figures[0].name)


def _explain_fact(sections: Iterable[Section], name: str) -> Explained:
    """The first fact of this name on a page, with its source."""
    for section in sections:
        for entry in section.entries:
            if isinstance(entry, Fact) and entry.name == name:
                parts = (f"{name}: {clean(entry.text)}", clean(entry.source))
                return Explained(" · ".join(filter(None, parts)), name)
    return Explained(f"{name}: not known")


def _tokens_goal_field(thing: Thing) -> str:
    """Field with the share within the ITL goal: of requests where the engine tells that, else of tokens."""
    return field_of_itl_goal(thing.goodput) if isinstance(thing, Engine) else "itl_goal"


def _why_not_on_page(thing: Thing, field: str) -> str:
    """Why a page lacks a figure: that of a thing that is lost has its last facts alone."""
    reading = value_of(thing, field) if isinstance(thing, msgspec.Struct) else None
    return phrase(reading) if isinstance(reading, Missing) else "not known"


def _explain_goal(figures: Sequence[Figure], setting: str, term: catalogue.Figure | None) -> Explained:
    """The share within a goal with its operands, its window, and the setting that has the goal.

    `figures` is empty where the page has no such share.
    """
    if not figures:
        return Explained("no share within the goal: the engine exports no histogram of this latency", LATENCIES)
    figure = figures[0]
    if figure.why is not None or term is None:
        return Explained(_figure_in_one_line(figure, term), figure.name)
    # On the page the formula names the column that shows the figure: here the cursor stands on that.
    formula = figure.formula.removesuffix(column_note(term.short))
    text = _figure_in_one_line(figure._replace(formula=formula), term)
    return Explained(f"{text}, {term.window}; config: [goals] {setting}", figure.name)


def _as_engine(thing: Thing) -> Thing:
    """Replicas as the engine that has their sums; everything else as it is."""
    if isinstance(thing, Replicas):
        return as_engine(thing)
    return thing


def _figures_of(sections: Iterable[Section], fields: Iterable[str]) -> list[Figure]:
    """The figures of a page that show these fields, as far as the page has them."""
    entries = [entry for section in sections for entry in section.entries]
    figures = [_first_figure(entries, field) for field in fields]
    return [figure for figure in figures if figure is not None]


def _explain_waste(thing: Thing) -> Explained:
    """Wasted GPUs of an engine with their operands."""
    unknown = Explained(f"{ENGINE['wasted_gpus'].name}: its GPUs, or both MFU and MBU, are not known", "MBU")
    if not isinstance(thing, Engine):
        return unknown
    wasted = wasted_gpus(thing)
    if isinstance(wasted, Missing):
        return unknown
    known_shares = []
    for field in SHARES_OF_PEAKS:
        share = value_of(thing, field)
        if not isinstance(share, Missing):
            known_shares.append(f"{ENGINE[field].name} {ratio(share)}")
    count = whole(thing.hardware.gpu_count)
    used = f"the larger of {' and '.join(known_shares)}" if len(known_shares) > 1 else known_shares[0]
    figure = f"{ENGINE['wasted_gpus'].name} {waste_bound(thing)}{wasted:.1f}"
    return Explained(f"{figure} = {count} GPUs x (1 - {used})", "MBU")


def _first_figure(entries: Sequence[Entry], field: str) -> Figure | None:
    """The first figure of a field: later ones of an engine's page are totals and means since its start."""
    for entry in entries:
        if isinstance(entry, Figure) and entry.field == field:
            return entry
    return None


def _figure_in_one_line(figure: Figure, term: catalogue.Figure | None) -> str:
    """The figure with its formula; one without a formula with its source and its meaning; a missing one with why."""
    if figure.why is not None:
        todo = f" → {figure.why.todo_for([figure.why.item])}" if figure.why.todo else ""
        return f"{figure.name}: {figure.why.sentence}{todo}"
    value = f"{figure.name} {figure_text((figure.number.strip(), figure.unit))}"
    if figure.formula:
        return f"{value} = {figure.formula}"
    meaning = term.meaning if term is not None else ""
    parts = (f"{value} {figure.basis}".rstrip(), figure.source, meaning)
    return " · ".join(filter(None, parts))


def _explain_latency(thing: Thing, field: str, quantile: str, term: catalogue.Figure | None) -> Explained:
    """A quantile (p50, p95 or p99) of a latency with its window and its meaning; the glossary has the p95 only."""
    engine = _as_engine(thing)
    quantiles = value_of(engine, field) if isinstance(engine, Engine) else None
    if not isinstance(quantiles, Quantiles) or term is None:
        return Explained("no figure of this row")
    value = other_quantile(quantiles, quantile)
    name = term.name.replace("p95", quantile)
    meaning = term.meaning.replace("95%", f"{quantile[1:]}%")
    return Explained(f"{name} {value}, {term.window}. {meaning}", LATENCIES)
