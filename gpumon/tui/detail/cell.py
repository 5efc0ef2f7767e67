"""One cell of a table explained in one line: its figure with the formula and the operands, as on the thing's page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.goodput import field_of_itl_goal
from gpumon.readings.columns import other_quantile
from gpumon.readings.flat import value_of
from gpumon.readings.format import ratio, whole
from gpumon.readings.glossary import TERMS, WASTED_GPUS, Term
from gpumon.readings.missing import NOT_EXPOSED, Missing
from gpumon.readings.snapshot import Engine, Quantiles, Replicas, Snapshot
from gpumon.readings.text import clean
from gpumon.tui.detail.blocks import Fact, Figure, Section
from gpumon.tui.detail.sections import sections_of
from gpumon.tui.detail.served import column_note
from gpumon.tui.detail.things import ShownKey, Thing, things_of_kind
from gpumon.tui.engine_table import waste_bound, wasted_gpus
from gpumon.tui.explained_columns import (
    FACTS,
    FIELDS_BY_PANE,
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
    """Explanation of one cell."""

    text: str
    """One line."""
    place: str = ""
    """Name of the figure, or title of the section, at which the page is opened."""


def explain_cell(key: ShownKey, column: str, snapshot: Snapshot, view: View) -> Explained:
    """The figure of a cell with its formula, or with its meaning and source; why it is missing, where it is."""
    thing = things_of_kind(snapshot, key[0]).get(key[1])
    if thing is None:
        return Explained("")
    fact = FACTS.get(key[0], {}).get(column, "")
    if fact:
        return _fact(sections_of(thing, snapshot, view), fact)
    fields = FIELDS_BY_PANE.get(key[0], {}).get(column, ())
    if not fields:
        return Explained("")
    if fields == (WASTE_FIELD,):
        return _waste(_engine_of(thing))
    if fields == (TOKENS_GOAL_FIELD,):
        fields = (_tokens_goal(_engine_of(thing)),)
    term = _term_of(key[0], fields[0])
    figures = _figures_of(sections_of(thing, snapshot, view), fields)
    if not figures and column in GOAL_OF_COLUMN:
        return Explained("no share within the goal: the engine exports no histogram of this latency", LATENCIES)
    if not figures:
        return _latency(thing, fields[0], QUANTILES.get(column, "p95"), term)
    if column in GOAL_OF_COLUMN:
        return _goal(figures[0], GOAL_OF_COLUMN[column], term)
    between = " · "
    if column in SUMMED_COLUMNS:
        between = " + "
    return Explained(between.join(_in_one_line(figure, term) for figure in figures), figures[0].name)


def _fact(sections: Iterable[Section], name: str) -> Explained:
    """The first fact of this name on a page, with its source."""
    for section in sections:
        for entry in section.entries:
            if isinstance(entry, Fact) and entry.name == name:
                parts = (f"{name}: {clean(entry.text)}", clean(entry.source))
                return Explained(" · ".join(filter(None, parts)), name)
    return Explained(f"{name}: not known")


def _tokens_goal(thing: Thing) -> str:
    """Field with the share within the ITL goal."""
    if isinstance(thing, Engine):
        return field_of_itl_goal(thing.goodput)
    return "itl_goal"


def _goal(figure: Figure, setting: str, term: Term | None) -> Explained:
    """The share within a goal with its operands, its window, and the setting that has the goal."""
    if figure.why is not None or term is None:
        return Explained(_in_one_line(figure, term), figure.name)
    formula = figure.formula.removesuffix(column_note(term.short))
    text = _in_one_line(figure._replace(formula=formula), term)
    return Explained(f"{text}, {term.window}; config: [goals] {setting}", figure.name)


def _engine_of(thing: Thing) -> Thing:
    """Replicas as the engine that has their sums; everything else as it is."""
    if isinstance(thing, Replicas):
        return as_engine(thing)
    return thing


def _figures_of(sections: Iterable[Section], fields: Iterable[str]) -> list[Figure]:
    """The figures of a page that show these fields, as far as it has them."""
    entries = [entry for section in sections for entry in section.entries]
    figures = []
    for field in fields:
        figure = _first_of(entries, field)
        if figure is not None:
            figures.append(figure)
    return figures


def _waste(thing: Thing) -> Explained:
    """Wasted GPUs of an engine with their operands."""
    if isinstance(thing, Engine):
        wasted = wasted_gpus(thing)
    else:
        wasted = NOT_EXPOSED
    if not isinstance(thing, Engine) or isinstance(wasted, Missing):
        return Explained(f"{WASTED_GPUS.name}: its GPUs, or both MFU and MBU, are not known", "MBU")
    shares = (("MFU", thing.efficiency.mfu_ratio), ("MBU", thing.efficiency.mbu_ratio))
    known = []
    for name, share in shares:
        if not isinstance(share, Missing):
            known.append(f"{name} {ratio(share)}")
    count = whole(thing.hardware.gpu_count)
    if len(known) > 1:
        used = f"the larger of {' and '.join(known)}"
    else:
        used = known[0]
    figure = f"{WASTED_GPUS.name} {waste_bound(thing)}{wasted:.1f}"
    return Explained(f"{figure} = {count} GPUs x (1 - {used})", "MBU")


def _first_of(entries: Sequence[object], field: str) -> Figure | None:
    """The first figure of a field: later ones are totals."""
    return next((entry for entry in entries if isinstance(entry, Figure) and entry.field == field), None)


def _in_one_line(figure: Figure, term: Term | None) -> str:
    """The figure with its formula; one without a formula with its source and its meaning."""
    if figure.why is not None:
        todo = ""
        if figure.why.todo:
            todo = f" → {figure.why.todo}"
        return f"{figure.name}: {figure.why.sentence}{todo}"
    value = f"{figure.name} {figure.number.strip()} {figure.unit}".rstrip()
    if figure.formula:
        return f"{value} = {figure.formula}"
    parts = (f"{value} {figure.basis}".rstrip(), figure.source, term.meaning if term is not None else "")
    return " · ".join(filter(None, parts))


def _latency(thing: Thing, field: str, part: str, term: Term | None) -> Explained:
    """A quantile: its window, and its meaning. `part`: p50, p95 or p99; the glossary has the p95."""
    engine = _engine_of(thing)
    quantiles = None
    if isinstance(engine, Engine):
        quantiles = value_of(engine, field)
    if not isinstance(quantiles, Quantiles) or term is None:
        return Explained("no figure of this row")
    shown = other_quantile(quantiles, getattr(quantiles, part))
    name = term.name.replace("p95", part)
    meaning = term.meaning.replace("95 %", f"{part[1:]} %")
    return Explained(f"{name} {shown}, {term.window}. {meaning}", LATENCIES)


def _term_of(kind: str, field: str) -> Term | None:
    """The glossary's term of a field."""
    if kind == "replicas":
        kind = "engine"
    path = f"{kind}s[].{field}"
    return next((term for term in TERMS if any(json.startswith(path) for json in term.json)), None)
