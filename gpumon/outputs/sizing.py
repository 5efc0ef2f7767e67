"""The answer of a sizing as readable text: what `gpumon size` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.outputs import sizing_words as words
from gpumon.outputs.sizing_layout import grouped
from gpumon.outputs.units import NONE
from gpumon.readings import format as cells
from gpumon.readings.missing import Missing
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, Packed, WorkloadPlan
from gpumon.sizing.scenario import Scenario

_INDENT: Final = "  "
_LABEL: Final = 20
_MOST_NAME: Final = 40
_MOST_SERVERS: Final = 40
"""Lines of servers that are drawn."""


class _Column(NamedTuple):
    title: str
    texts: Sequence[str]
    right: bool = False
    keep: int = 9
    """Columns with the lower number leave first where there is no room."""


def report(answer: Answer, scenario: Scenario, width: int = 100) -> str:
    """What is needed, the workloads, both plans, where everything stands, and what to know.

    In at most `width` cells (60 at least): long lines are wrapped, a table leaves columns out that the lines below it
    repeat, and only what is one long word is cut.
    """
    width = max(width, 60)
    return "\n".join(cells.cut(line.rstrip(), width) for line in _lines(answer, scenario, width)) + "\n"


def _lines(answer: Answer, scenario: Scenario, width: int) -> Iterator[str]:
    yield from _wrapped(f"sizing: {words.name(answer.name)}" if answer.name else "sizing", width, "")
    if scenario.note:
        yield from _wrapped(clean(scenario.note, words.MOST), width, "")
    yield ""
    yield from _need(answer, width)
    yield ""
    yield from _table(_workloads(answer.workloads), width)
    yield ""
    yield from _table(_plans(answer), width)
    yield from _servers(answer, scenario, width)
    for plan in answer.workloads:
        yield from ("", *_wrapped(words.name(plan.name), width, ""), *_detail(plan, width))
    if answer.warnings:
        yield from ("", "warnings")
        for warning in answer.warnings:
            yield from _wrapped(f"! {clean(warning, words.MOST)}", width, _INDENT, _INDENT * 2)


def _need(answer: Answer, width: int) -> Iterator[str]:
    if answer.problem:
        yield from _labelled("no answer", clean(answer.problem, words.MOST), width, "")
    if isinstance(answer.totals.instances, Missing):
        return
    yield from _labelled("need", f"{words.counts(answer.totals)}, packed {words.PACKINGS[answer.packing]}", width, "")
    for field, what, form in words.TOTALS:
        text = form(getattr(answer.totals, field))
        if text != NONE:
            yield from _labelled(what, text, width, "")
    if missing := words.unknown(answer.totals):
        yield from _labelled("not known", missing, width, "")


def _workloads(plans: Sequence[WorkloadPlan]) -> tuple[_Column, ...]:
    return (
        _Column("workload", [cells.cut(words.name(plan.name), _MOST_NAME) for plan in plans]),
        _Column("target", [words.target(plan) for plan in plans], right=True),
        _Column("per instance", [words.number(plan.capacity_per_instance) for plan in plans], right=True),
        _Column("instances", [words.number(plan.instances) for plan in plans], right=True),
        _Column("GPUs", [words.number(plan.gpus) for plan in plans], right=True),
        _Column("limit", [plan.limit or NONE for plan in plans], keep=4),
        _Column("then", [plan.next_limit or NONE for plan in plans], keep=1),
        _Column("memory each", [words.gigabytes(plan.memory_bytes) for plan in plans], right=True, keep=2),
        _Column("source", [words.source(plan) for plan in plans], keep=3),
    )


def _plans(answer: Answer) -> tuple[_Column, ...]:
    plans = {"memory": answer.plans.memory_only, "busy": answer.plans.busy_aware}
    packed = list(plans.values())
    asked = [" <- needed" if packing == answer.packing else "" for packing in plans]
    titles = [f"{words.PACKINGS[packing]}{mark}" for packing, mark in zip(plans, asked, strict=True)]
    return (
        _Column("plan", titles),
        _Column("instances", [words.number(each.instances) for each in packed], right=True),
        _Column("GPUs", [words.number(each.gpus) for each in packed], right=True),
        _Column("servers", [words.number(each.servers) for each in packed], right=True),
        _Column("memory", [words.gigabytes(each.memory_bytes) for each in packed], right=True, keep=2),
        _Column("price/h", [words.money(each.price_per_hour) for each in packed], right=True, keep=1),
    )


def _servers(answer: Answer, scenario: Scenario, width: int) -> Iterator[str]:
    """What stands where, of the plan that is needed, then of the other where that differs."""
    packed = {"memory": answer.plans.memory_only, "busy": answer.plans.busy_aware}
    needed, other = sorted(packed, key=lambda packing: packing != answer.packing)
    drawn = [list(_drawn(packed[packing], answer, scenario, width)) for packing in (needed, other)]
    if drawn[0] == drawn[1]:
        yield from ("", "servers, packed either way", *drawn[0])
        return
    for packing, lines in zip((needed, other), drawn, strict=True):
        optimal = words.optimal(packed[packing])
        title = f"servers, {words.PACKINGS[packing]}"
        yield from ("", *_wrapped(f"{title} ({optimal})" if optimal else title, width, ""), *lines)


def _drawn(packed: Packed, answer: Answer, scenario: Scenario, width: int) -> Iterator[str]:
    if packed.problem:
        yield from _wrapped(clean(packed.problem, words.MOST), width, _INDENT)
    groups = grouped(packed.layout, answer.workloads)
    for servers in groups[:_MOST_SERVERS]:
        filled = "  ".join(words.filled(same, answer.workloads) for same in servers.filled)
        yield from _wrapped(f"{words.shape(servers, scenario)}: {filled}", width, _INDENT, _INDENT * 2)
    if len(groups) > _MOST_SERVERS:
        more = sum(servers.times for servers in groups[_MOST_SERVERS:])
        yield f"{_INDENT}and {more:,} more servers (--json has them all)"
    if spare := words.spare(packed):
        yield f"{_INDENT}{spare}"


def _detail(plan: WorkloadPlan, width: int) -> Iterator[str]:
    if plan.problem:
        yield from _labelled("no answer", clean(plan.problem, words.MOST), width)
    if plan.model != plan.name:
        yield from _labelled("model", clean(plan.model, words.MOST), width)
    yield from _labelled("capacity", words.origin(plan), width)
    for at, limit in enumerate(plan.limits):
        yield from _labelled("" if at else "limits", words.bound(limit), width)
    yield from _labelled("each instance", words.instance(plan), width)
    yield from _labelled("at the target", words.at_target(plan), width)
    for case in plan.degraded:
        yield from _labelled(f"one {clean(case.lost, 20)} lost", words.lost(case), width)
    for note in plan.notes:
        yield from _labelled("note", clean(note, words.MOST), width)


def _labelled(label: str, text: str, width: int, indent: str = _INDENT) -> Iterator[str]:
    """`label  text`, the text wrapped beside its label; nothing where there is no text."""
    if not text:
        return
    begin = indent + cells.left(label, _LABEL)
    for line in _wrapped(text, width, indent + " " * _LABEL):
        yield begin + line[len(begin) :]
        begin = indent + " " * _LABEL


def _table(columns: Sequence[_Column], width: int) -> Iterator[str]:
    kept = list(columns)
    while _total(kept) > width and any(column.keep < 9 for column in kept):
        kept.remove(min(kept, key=lambda column: column.keep))
    widths = [_wide(column) for column in kept]
    widths[0] = max(8, min(widths[0], widths[0] + width - _total(kept)))
    for row in range(-1, len(columns[0].texts)):
        parts = []
        for column, room in zip(kept, widths, strict=True):
            text = column.title if row < 0 else column.texts[row]
            parts.append(cells.right(text, room) if column.right else cells.left(text, room))
        yield "  ".join(parts)


def _wide(column: _Column) -> int:
    return max(cells.cells(text) for text in (column.title, *column.texts))


def _total(columns: Sequence[_Column]) -> int:
    return sum(map(_wide, columns)) + 2 * (len(columns) - 1)


def _wrapped(text: str, width: int, indent: str, further: str | None = None) -> Iterator[str]:
    """The words of a text in lines of at most `width` cells; a word that is longer than a line is cut."""
    further = indent if further is None else further
    line = ""
    for word in text.split():
        if line and cells.cells(f"{indent}{line} {word}") > width:
            yield indent + line
            line, indent = "", further
        line = f"{line} {word}" if line else cells.cut(word, max(8, width - len(indent)))
    if line:
        yield indent + line
