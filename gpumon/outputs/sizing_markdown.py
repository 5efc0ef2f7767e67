"""The answer of a sizing as Markdown: tables to paste into a ticket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpumon.outputs import sizing_words as words
from gpumon.outputs.markdown import header, row, safe
from gpumon.outputs.sizing_layout import grouped
from gpumon.outputs.units import NONE, milliseconds
from gpumon.readings.missing import Missing
from gpumon.sizing.answer import Answer, WorkloadPlan
from gpumon.sizing.scenario import Scenario


def markdown(answer: Answer, scenario: Scenario) -> str:
    """A headline, tables of the workloads and of both plans, where everything stands, and what to know.

    Names from outside stand there as they are: none of them becomes markup, a mention or a link to an issue.
    """
    return "\n".join(_lines(answer, scenario)) + "\n"


def _lines(answer: Answer, scenario: Scenario) -> Iterator[str]:
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
    yield from _workloads(answer.workloads)
    yield from ("", *_totals(answer), "", *_plans(answer), "")
    yield from _servers(answer, scenario)
    yield from _remarks(answer)


def _workloads(plans: Sequence[WorkloadPlan]) -> Iterator[str]:
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


def _totals(answer: Answer) -> Iterator[str]:
    yield from header("total|")
    for what, text in words.totals(answer):
        yield row(what, text)
    if missing := words.unknown(words.sums(answer)):
        yield row("not known", missing)


def _plans(answer: Answer) -> Iterator[str]:
    yield from header("plan|instances:|GPUs:|servers:|memory:|price/h:")
    for packing, packed in (("memory", answer.plans.memory_only), ("busy", answer.plans.busy_aware)):
        title = words.PACKINGS[packing] + (" **(needed)**" if packing == answer.packing else "")
        counts = (words.number(value) for value in (packed.instances, packed.gpus, packed.servers))
        yield row(title, *counts, words.gigabytes(packed.memory_bytes), words.money(packed.price_per_hour))


def _servers(answer: Answer, scenario: Scenario) -> Iterator[str]:
    packed = answer.plans.memory_only if answer.packing == "memory" else answer.plans.busy_aware
    yield f"Servers, packed {words.PACKINGS[answer.packing]}:"
    yield ""
    for servers in grouped(packed.layout, answer.workloads):
        filled = "  ".join(words.filled(same, answer.workloads) for same in servers.filled)
        yield f"- {safe(words.shape(servers, scenario))}: {safe(filled)}"
    if spare := words.spare(packed, scenario):
        yield f"- {spare}"


def _remarks(answer: Answer) -> Iterator[str]:
    remarks = []
    for plan in answer.workloads:
        said = [plan.problem] if plan.problem else []
        said += [words.bound(limit) for limit in plan.limits]
        said += [f"one {case.lost} lost: {words.lost(case)}" for case in plan.degraded]
        remarks += [f"- {safe(words.name(plan.name))}: {safe(each)}" for each in (*said, *plan.notes)]
    if remarks:
        yield from ("", "Notes:", "", *remarks)
