"""The answer of a sizing as readable text, which `gpumon size` prints, and as Markdown to paste into a ticket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.outputs import sizing_words as words
from gpumon.outputs.markdown import header, row, safe
from gpumon.outputs.sizing_words import grouped
from gpumon.outputs.tables import INDENT, Column, labelled, table, wrapped
from gpumon.outputs.units import NONE, milliseconds
from gpumon.readings import format as cells
from gpumon.readings.missing import Missing
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, Packed, Source, WorkloadPlan
from gpumon.sizing.scenario import Scenario

_MOST_NAME: Final = 40
_MOST_SERVERS: Final = 40
"""Lines of servers that are drawn."""


def report(answer: Answer, scenario: Scenario, width: int = 100) -> str:
    """What is needed, the workloads, both plans, where everything stands, and what to know.

    In at most `width` cells (60 at least): long lines are wrapped, a table leaves columns out that the lines below it
    repeat, and only what is one long word is cut.
    """
    width = max(width, 60)
    return "\n".join(cells.cut(line.rstrip(), width) for line in _lines(answer, scenario, width)) + "\n"


def _lines(answer: Answer, scenario: Scenario, width: int) -> Iterator[str]:
    yield from wrapped(f"sizing: {words.name(answer.name)}" if answer.name else "sizing", width, "")
    if scenario.note:
        yield from wrapped(clean(scenario.note, words.MOST), width, "")
    yield ""
    yield from _need(answer, width)
    yield ""
    yield from table(_workloads(answer.workloads), width)
    if not all(isinstance(each.instances, Missing) for each in (answer.plans.memory_only, answer.plans.busy_aware)):
        yield ""
        yield from table(_plans(answer), width)
    yield from _servers(answer, scenario, width)
    for plan in answer.workloads:
        yield from ("", *wrapped(words.name(plan.name), width, ""), *_detail(plan, scenario, width))


def _need(answer: Answer, width: int) -> Iterator[str]:
    """What is needed with its warnings, or why nothing is said."""
    if answer.problem:
        yield from labelled("no answer", clean(answer.problem, words.MOST), width, "")
    sums, without = words.sums(answer), words.without(answer)
    known = not isinstance(sums.instances, Missing)
    packed = f"{words.counts(sums)}, packed {words.PACKINGS[answer.packing]}"
    said = (f"{without}: {packed}" if without else packed, words.other(answer)) if known else ()
    yield from labelled("need", "; ".join(filter(None, said)), width, "")
    for warning in answer.warnings:
        yield from labelled("warning", clean(warning, words.MOST), width, "")
    if not known:
        return
    for what, text in words.totals(answer):
        yield from labelled(what, text, width, "")
    if missing := words.unknown(sums):
        yield from labelled("not known", missing, width, "")


def _workloads(plans: Sequence[WorkloadPlan]) -> tuple[Column, ...]:
    return (
        Column("workload", [cells.cut(words.name(plan.name), _MOST_NAME) for plan in plans]),
        Column("target", [words.target(plan) for plan in plans], right=True),
        Column("per instance", [words.number(plan.capacity_per_instance) for plan in plans], right=True),
        Column("instances", [words.number(plan.instances) for plan in plans], right=True),
        Column("GPUs", [words.number(plan.gpus) for plan in plans], right=True),
        Column("servers", [words.servers(plan) for plan in plans], right=True, keep=5),
        Column("limit", [plan.limit or NONE for plan in plans], keep=4),
        Column("then", [plan.next_limit or NONE for plan in plans], keep=1),
        Column("memory each", [words.gigabytes(plan.memory_bytes) for plan in plans], right=True, keep=2),
        Column("source", [words.source(plan) for plan in plans], keep=3),
    )


def _plans(answer: Answer) -> tuple[Column, ...]:
    plans = {"memory": answer.plans.memory_only, "busy": answer.plans.busy_aware}
    packed = list(plans.values())
    asked = [" <- needed" if packing == answer.packing else "" for packing in plans]
    titles = [f"{words.PACKINGS[packing]}{mark}" for packing, mark in zip(plans, asked, strict=True)]
    return (
        Column("plan", titles),
        Column("instances", [words.number(each.instances) for each in packed], right=True),
        Column("GPUs", [words.number(each.gpus) for each in packed], right=True),
        Column("servers", [words.number(each.servers) for each in packed], right=True),
        Column("memory", [words.gigabytes(each.memory_bytes) for each in packed], right=True, keep=2),
        Column("price/h", [words.money(each.price_per_hour) for each in packed], right=True, keep=1),
    )


def _servers(answer: Answer, scenario: Scenario, width: int) -> Iterator[str]:
    """What stands where, of the plan that is needed, then of the other where that differs."""
    packed = {"memory": answer.plans.memory_only, "busy": answer.plans.busy_aware}
    needed, other = sorted(packed, key=lambda packing: packing != answer.packing)
    drawn = [list(_drawn(packed[packing], answer, scenario, width)) for packing in (needed, other)]
    if drawn[0] == drawn[1]:
        title = "; ".join(filter(None, ("both packings are the same", words.optimal(packed[needed]))))
        yield from ("", *wrapped(f"servers ({title})", width, ""), *drawn[0]) if drawn[0] else ()
        return
    for packing, lines in zip((needed, other), drawn, strict=True):
        optimal = words.optimal(packed[packing])
        title = f"servers, {words.PACKINGS[packing]}"
        yield from ("", *wrapped(f"{title} ({optimal})" if optimal else title, width, ""), *lines)


def _drawn(packed: Packed, answer: Answer, scenario: Scenario, width: int) -> Iterator[str]:
    if packed.problem:
        yield from wrapped(clean(packed.problem, words.MOST), width, INDENT)
    groups = grouped(packed.layout, answer.workloads)
    for servers in groups[:_MOST_SERVERS]:
        filled = "  ".join(words.filled(same, answer.workloads) for same in servers.filled)
        yield from wrapped(f"{words.shape(servers, scenario)}: {filled}", width, INDENT, INDENT * 2)
    if len(groups) > _MOST_SERVERS:
        more = sum(servers.times for servers in groups[_MOST_SERVERS:])
        yield f"{INDENT}and {more:,} more servers (--json has them all)"
    if spare := words.spare(packed, scenario):
        yield f"{INDENT}{spare}"


def _detail(plan: WorkloadPlan, scenario: Scenario, width: int) -> Iterator[str]:
    if plan.problem:
        yield from labelled("no answer", clean(plan.problem, words.MOST), width)
    if plan.model != plan.name:
        yield from labelled("model", clean(plan.model, words.MOST), width)
    if plan.source is not Source.NONE:
        planned = words.planned(plan, scenario.planning_factor)
        yield from labelled("capacity", "; ".join(filter(None, (planned, words.origin(plan)))), width)
    for at, limit in enumerate(plan.limits):
        yield from labelled("" if at else "limits", words.bound(limit), width)
    yield from labelled("each instance", words.instance(plan), width)
    yield from labelled("at the target", words.at_target(plan), width)
    for case in plan.degraded:
        yield from labelled(f"one {clean(case.lost, 20)} lost", words.lost(case), width)
    for note in plan.notes:
        yield from labelled("note", clean(note, words.MOST), width)


def markdown(answer: Answer, scenario: Scenario) -> str:
    """A headline, tables of the workloads and of both plans, where everything stands, and what to know.

    Names from outside stand there as they are: none of them becomes markup, a mention or a link to an issue.
    """
    return "\n".join(_md_lines(answer, scenario)) + "\n"


def _md_lines(answer: Answer, scenario: Scenario) -> Iterator[str]:
    yield f"## Sizing: {safe(answer.name)}" if answer.name else "## Sizing"
    if scenario.note:
        yield from ("", safe(scenario.note))
    if answer.problem:
        yield from ("", f"**No answer:** {safe(answer.problem)}")
    sums, without = words.sums(answer), words.without(answer)
    if not isinstance(sums.instances, Missing):
        need = f"**Need {safe(without)}:** {words.counts(sums)}" if without else f"**Need {words.counts(sums)}**"
        said = f"{need}, packed {words.PACKINGS[answer.packing]}"
        yield from ("", f"{'; '.join(filter(None, (said, words.other(answer))))}.")
    for warning in answer.warnings:
        yield from ("", f"**Warning:** {safe(warning)}")
    yield ""
    yield from _md_workloads(answer.workloads)
    yield from ("", *_md_totals(answer), "", *_md_plans(answer), "")
    yield from _md_servers(answer, scenario)
    yield from _md_remarks(answer)


def _md_workloads(plans: Sequence[WorkloadPlan]) -> Iterator[str]:
    yield from header(
        "workload|target:|in flight per instance:|instances:|GPUs:|servers:|limit|memory each:|ITL:|TTFT:|capacity"
    )
    for plan in plans:
        limit = " then ".join(each for each in (plan.limit, plan.next_limit) if each) or NONE
        latencies = (milliseconds(plan.itl_s), milliseconds(plan.ttft_s))
        yield row(
            *(safe(words.name(plan.name)), words.target(plan), words.number(plan.capacity_per_instance)),
            *(words.number(plan.instances), words.number(plan.gpus), words.servers(plan), safe(limit)),
            *(words.gigabytes(plan.memory_bytes), *latencies, safe(words.origin(plan))),
        )


def _md_totals(answer: Answer) -> Iterator[str]:
    yield from header("total|")
    for what, text in words.totals(answer):
        yield row(what, text)
    if missing := words.unknown(words.sums(answer)):
        yield row("not known", missing)


def _md_plans(answer: Answer) -> Iterator[str]:
    yield from header("plan|instances:|GPUs:|servers:|memory:|price/h:")
    for packing, packed in (("memory", answer.plans.memory_only), ("busy", answer.plans.busy_aware)):
        title = words.PACKINGS[packing] + (" **(needed)**" if packing == answer.packing else "")
        counts = (words.number(value) for value in (packed.instances, packed.gpus, packed.servers))
        yield row(title, *counts, words.gigabytes(packed.memory_bytes), words.money(packed.price_per_hour))


def _md_servers(answer: Answer, scenario: Scenario) -> Iterator[str]:
    packed = answer.plans.memory_only if answer.packing == "memory" else answer.plans.busy_aware
    yield f"Servers, packed {words.PACKINGS[answer.packing]}:"
    yield ""
    for servers in grouped(packed.layout, answer.workloads):
        filled = "  ".join(words.filled(same, answer.workloads) for same in servers.filled)
        yield f"- {safe(words.shape(servers, scenario))}: {safe(filled)}"
    if spare := words.spare(packed, scenario):
        yield f"- {spare}"


def _md_remarks(answer: Answer) -> Iterator[str]:
    remarks = []
    for plan in answer.workloads:
        said = [plan.problem] if plan.problem else []
        said += [words.bound(limit) for limit in plan.limits]
        said += [f"one {case.lost} lost: {words.lost(case)}" for case in plan.degraded]
        remarks += [f"- {safe(words.name(plan.name))}: {safe(each)}" for each in (*said, *plan.notes)]
    if remarks:
        yield from ("", "Notes:", "", *remarks)
