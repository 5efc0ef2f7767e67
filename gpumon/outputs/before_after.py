"""Two spans side by side as text, Markdown or JSON: what `gpumon compare` prints."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpumon.outputs import markdown as md
from gpumon.outputs.json import as_object
from gpumon.outputs.period import local_time
from gpumon.outputs.schema import document
from gpumon.outputs.tables import ColumnSpec, PrintedColumn, columns_of, cut_lines, labelled, table
from gpumon.readings.before_after import (
    COMPARE_SCHEMA,
    BeforeAfter,
    ComparedSpan,
    FigureChange,
    ThingChange,
    VerdictChange,
)
from gpumon.readings.change_words import (
    NOTHING_DIFFERS,
    after_text,
    amount_text,
    before_text,
    changed_figures,
    difference_text,
    effect_text,
    fact_text,
    figure_name,
    is_changed,
    is_shown,
    load_text,
)
from gpumon.readings.format import period
from gpumon.readings.text import clean
from gpumon.readings.verdict import Kind
from gpumon.triage.render import LEVEL_WORDS, LIMIT_NAMES, verdict_text

BACKWARDS: Final = "FROM is later than TO: what is called before is the later span"
_ThingKey = tuple[Kind, str]
"""Kind and key of a thing."""
_KIND_NAMES: Final = {Kind.HOST: "host", Kind.ENGINE: "engine", Kind.GPU: "GPU"}
"""Names of the kinds of things, in the order in which unchanged ones are counted."""
_LABEL_CELLS: Final = 10
"""Cells of the labels in front of facts."""
_NOTE_LABEL_CELLS: Final = 8
"""Cells of the label under `before` and `after`, which stand in as many."""
_COVERED_SHARE: Final = 0.9
"""Share of a span from which on it counts as recorded throughout."""
_COVERED_MARGIN_S: Final = 2.0
"""Seconds that may be missing besides."""
_NOISE_NOTE: Final = (
    "A difference is a change if it is larger than the noise (the spread of the means of six parts of a span, averaged "
    "over both) and than 3%. `?`: the noise is not known."
)
"""Line below the figures."""


def encode(answer: BeforeAfter) -> bytes:
    """One line of JSON, without a newline; docs/compare.md."""
    return msgspec.json.encode({"schema": COMPARE_SCHEMA, **as_object(answer)})


def schema() -> dict[str, object]:
    """The JSON Schema of it (draft 2020-12). Objects may gain keys: a reader ignores those it does not know."""
    definitions: dict[str, object] = {}
    root = document(BeforeAfter, "gpumon compare", COMPARE_SCHEMA, definitions)
    return {**root, "$defs": dict(sorted(definitions.items()))}


def report(answer: BeforeAfter, width: int = 100, *, only_changed: bool = False) -> str:
    """Both spans, then each thing: its load, what was set differently, and its figures; verdicts at the end.

    With `only_changed` hosts and engines without a change are counted, not printed; GPUs always are.
    """
    width = max(60, width)
    simulated = "  SIMULATED" if answer.simulated else ""
    lines = [f"before  {span_text(answer.before)}", f"after   {span_text(answer.after)}{simulated}"]
    if answer.after.begin < answer.before.begin:
        lines += list(labelled("note", BACKWARDS, width, indent="", room=_NOTE_LABEL_CELLS))
    unchanged = _unchanged_things(answer, _counted_kinds(only_changed))
    changed = [thing for thing in answer.things if (thing.kind, thing.key) not in unchanged]
    for thing in changed:
        if thing.kind is not Kind.GPU:
            lines += ["", *_thing_lines(thing, width)]
    lines.append("")
    for thing in changed:
        if thing.kind is Kind.GPU:
            lines += _thing_lines(thing, width)
    lines += _count_lines(unchanged)
    lines += [
        "",
        *_verdict_lines(answer.verdicts, width),
        "",
        *labelled("note", _NOISE_NOTE, width, indent="", room=_LABEL_CELLS),
    ]
    return cut_lines(lines, width)


def markdown(answer: BeforeAfter, *, only_changed: bool = False) -> str:
    """Both spans as tables to paste into a ticket; `only_changed` as in `report`."""
    simulated = "  SIMULATED" if answer.simulated else ""
    lines = [f"## {md.safe(span_text(answer.before))} | {md.safe(span_text(answer.after))}{simulated}"]
    if answer.after.begin < answer.before.begin:
        lines += ["", f"Note: {BACKWARDS}"]
    unchanged = _unchanged_things(answer, _counted_kinds(only_changed))
    for thing in answer.things:
        if (thing.kind, thing.key) not in unchanged:
            lines += _markdown_of(thing)
    for line in _count_lines(unchanged):
        lines += ["", line]
    if answer.verdicts:
        lines += ["", *md.markdown_table(columns_of(answer.verdicts, _VERDICT_COLUMNS))]
    return "\n".join(lines) + "\n"


def _markdown_of(thing: ThingChange) -> list[str]:
    """Lines of one thing; none where nothing is known of it."""
    figures = _figures_of(thing)
    if not figures and not thing.changes:
        return []
    lines = ["", f"### {md.safe(_title_of(thing))}"]
    if thing.changes:
        lines += ["", f"Changed: {md.safe('; '.join(fact_texts(thing)))}"]
    effect = effect_text(thing)
    if effect and thing.kind is not Kind.GPU:
        lines += ["", f"Effect: {md.safe(effect)}"]
    if figures:
        lines += ["", *md.markdown_table(columns_of(figures, _FIGURE_COLUMNS))]
    return lines


def span_text(span: ComparedSpan) -> str:
    """`2026-11-22 03:05:00 to 03:10:00 UTC (5 min)`, with what is known of it where that is not all."""
    begin = local_time(span.begin)
    end = local_time(span.end)
    coverage = ""
    if not span.moments:
        coverage = ", nothing is recorded"
    elif span.covered_s < _COVERED_SHARE * span.seconds - _COVERED_MARGIN_S:
        coverage = f", {period(span.covered_s)} of it recorded"
    return f"{begin:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S} {end.tzname() or ''} ({period(span.seconds)}{coverage})"


def _title_of(thing: ThingChange) -> str:
    """Name of a thing, with its load."""
    name = thing.name if thing.kind is not Kind.ENGINE else f"{thing.kind.value} {thing.name}"
    load = load_text(thing)
    if load:
        return f"{name}: {load}"
    return name


def fact_texts(thing: ThingChange) -> list[str]:
    """Settings that differ, in words."""
    return [fact_text(change, _clock_of) for change in thing.changes]


def _clock_of(unix_s: str) -> str:
    """`at 03:12:04` of a Unix time in whole seconds."""
    return f"at {datetime.fromtimestamp(float(unix_s)).astimezone():%H:%M:%S}"


def _thing_lines(thing: ThingChange, width: int) -> Iterator[str]:
    """An engine, GPU or host: what changed, the effect, and the figures."""
    yield _title_of(thing)
    changed = "; ".join(fact_texts(thing)) or NOTHING_DIFFERS
    yield from labelled("changed", changed, width, room=_LABEL_CELLS)
    figures = _figures_of(thing)
    if thing.kind is not Kind.GPU:
        yield from labelled("effect", effect_text(thing), width, room=_LABEL_CELLS)
    if figures:
        for line in table(columns_of(figures, _FIGURE_COLUMNS), width - 2):
            yield f"  {line}"


def _figures_of(thing: ThingChange) -> list[FigureChange]:
    """The figures that are shown: all of a host and an engine, of a GPU those that changed."""
    if thing.kind is Kind.GPU:
        return changed_figures(thing.figures)
    return [figure for figure in thing.figures if is_shown(figure)]


def _counted_kinds(only_changed: bool) -> frozenset[Kind]:
    """Kinds of things that are only counted where nothing changed."""
    if only_changed:
        return frozenset(_KIND_NAMES)
    return frozenset({Kind.GPU})


def _unchanged_things(answer: BeforeAfter, kinds: Container[Kind]) -> set[_ThingKey]:
    """The things of these kinds in which nothing changed."""
    return {(thing.kind, thing.key) for thing in answer.things if thing.kind in kinds and not is_changed(thing)}


def _count_lines(unchanged: Iterable[_ThingKey]) -> Iterator[str]:
    """`12 engines: no change`, for each kind of thing."""
    numbers = Counter(kind for kind, _ in unchanged)
    for kind, name in _KIND_NAMES.items():
        if numbers[kind] == 1:
            yield f"1 {name}: no change"
        elif numbers[kind]:
            yield f"{numbers[kind]} {name}s: no change"


_FIGURE_COLUMNS: Final[tuple[ColumnSpec[FigureChange], ...]] = (
    ColumnSpec("figure", figure_name),
    ColumnSpec("before", before_text, right=True),
    ColumnSpec("after", after_text, right=True),
    ColumnSpec("change", difference_text, right=True),
    ColumnSpec("noise", lambda figure: amount_text(figure.unit, figure.noise), right=True, keep=1),
)
"""Columns of the figures of a thing."""
_VERDICT_COLUMNS: Final[tuple[ColumnSpec[VerdictChange], ...]] = (
    ColumnSpec("before", lambda change: _share_text(change.before_ratio), right=True),
    ColumnSpec("after", lambda change: _share_text(change.after_ratio), right=True),
    ColumnSpec("level", lambda change: LEVEL_WORDS[change.level], keep=3),
    ColumnSpec("where", lambda change: clean(change.verdict.scope, 28)),
    ColumnSpec("verdict", lambda change: verdict_words(change)),
)
"""Columns of the verdicts that stood in either span."""


def verdict_words(change: VerdictChange) -> str:
    """Name of the limit, and its sentence as it was told last."""
    text = clean(verdict_text(change.verdict), 200)
    name = LIMIT_NAMES[change.verdict.code]
    return f"{name}: {text}" if text else name


def _share_text(ratio: float) -> str:
    """Share of a span in which a verdict stood."""
    if ratio <= 0.0:
        return "no"
    if ratio >= 0.995:
        return "all"
    return f"{max(1.0, ratio * 100):.0f}%"


def _verdict_lines(verdicts: Sequence[VerdictChange], width: int) -> Iterator[str]:
    """A table of the verdicts that stood in either span."""
    if not verdicts:
        yield "no verdicts in either span"
        return
    yield "verdicts, by the share of each span that they were active"
    columns: list[PrintedColumn] = columns_of(verdicts, _VERDICT_COLUMNS)
    yield from table(columns, width)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(schema()), indent=2) + b"\n")
