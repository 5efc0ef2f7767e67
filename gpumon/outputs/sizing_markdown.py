"""The answer of a sizing as Markdown: tables to paste into a ticket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpumon.outputs import sizing_words as words
from gpumon.outputs.sizing_layout import grouped
from gpumon.outputs.units import NONE, milliseconds
from gpumon.readings.missing import Missing
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, WorkloadPlan
from gpumon.sizing.scenario import Scenario

_ESCAPED = str.maketrans(
    {**{mark: f"\\{mark}" for mark in "\\`*_[]|~$"}, "<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;", "#": "&#35;"}
)


def markdown(answer: Answer, scenario: Scenario) -> str:
    """A headline, tables of the workloads and of both plans, where everything stands, and what to know.

    Names from outside stand there as they are: none of them becomes markup, a mention or a link to an issue.
    """
    return "\n".join(_lines(answer, scenario)) + "\n"


def _lines(answer: Answer, scenario: Scenario) -> Iterator[str]:
    yield f"## Sizing: {_safe(answer.name)}" if answer.name else "## Sizing"
    if scenario.note:
        yield from ("", _safe(scenario.note))
    if answer.problem:
        yield from ("", f"**No answer:** {_safe(answer.problem)}")
    if not isinstance(answer.totals.instances, Missing):
        said = f"**Need {words.counts(answer.totals)}**, packed {words.PACKINGS[answer.packing]}"
        yield from ("", f"{'; '.join(filter(None, (said, words.other(answer))))}.")
    elif others := words.without(answer, scenario):
        yield from ("", f"**Need:** {others}.")
    for warning in answer.warnings:
        yield from ("", f"**Warning:** {_safe(warning)}")
    yield ""
    yield from _workloads(answer.workloads)
    yield from ("", *_totals(answer), "", *_plans(answer), "")
    yield from _servers(answer, scenario)
    yield from _remarks(answer)


def _workloads(plans: Sequence[WorkloadPlan]) -> Iterator[str]:
    yield from _header("workload|target:|per instance:|instances:|GPUs:|limit|memory each:|ITL:|TTFT:|capacity")
    for plan in plans:
        limit = " then ".join(each for each in (plan.limit, plan.next_limit) if each) or NONE
        latencies = (milliseconds(plan.itl_s), milliseconds(plan.ttft_s))
        yield _row(
            *(_safe(words.name(plan.name)), words.target(plan), words.number(plan.capacity_per_instance)),
            *(words.number(plan.instances), words.number(plan.gpus), _safe(limit)),
            *(words.gigabytes(plan.memory_bytes), *latencies, _safe(words.origin(plan))),
        )


def _totals(answer: Answer) -> Iterator[str]:
    yield from _header("total|")
    for what, text in words.totals(answer):
        yield _row(what, text)
    if missing := words.unknown(answer.totals):
        yield _row("not known", missing)


def _plans(answer: Answer) -> Iterator[str]:
    yield from _header("plan|instances:|GPUs:|servers:|memory:|price/h:")
    for packing, packed in (("memory", answer.plans.memory_only), ("busy", answer.plans.busy_aware)):
        title = words.PACKINGS[packing] + (" **(needed)**" if packing == answer.packing else "")
        counts = (words.number(value) for value in (packed.instances, packed.gpus, packed.servers))
        yield _row(title, *counts, words.gigabytes(packed.memory_bytes), words.money(packed.price_per_hour))


def _servers(answer: Answer, scenario: Scenario) -> Iterator[str]:
    packed = answer.plans.memory_only if answer.packing == "memory" else answer.plans.busy_aware
    yield f"Servers, packed {words.PACKINGS[answer.packing]}:"
    yield ""
    for servers in grouped(packed.layout, answer.workloads):
        filled = "  ".join(words.filled(same, answer.workloads) for same in servers.filled)
        yield f"- {_safe(words.shape(servers, scenario))}: {_safe(filled)}"
    if spare := words.spare(packed):
        yield f"- {spare}"


def _remarks(answer: Answer) -> Iterator[str]:
    remarks = []
    for plan in answer.workloads:
        said = [plan.problem] if plan.problem else []
        said += [words.bound(limit) for limit in plan.limits]
        said += [f"one {case.lost} lost: {words.lost(case)}" for case in plan.degraded]
        remarks += [f"- {_safe(words.name(plan.name))}: {_safe(each)}" for each in (*said, *plan.notes)]
    if remarks:
        yield from ("", "Notes:", "", *remarks)


def _header(titles: str) -> Iterator[str]:
    """Two lines; a colon behind a title sets its column flush right."""
    columns = titles.split("|")
    yield _row(*(title.rstrip(":") for title in columns))
    yield _row(*("--:" if title.endswith(":") else "---" for title in columns))


def _row(*texts: str) -> str:
    return f"| {' | '.join(texts)} |"


def _safe(text: str) -> str:
    return clean(text, words.MOST).translate(_ESCAPED)
