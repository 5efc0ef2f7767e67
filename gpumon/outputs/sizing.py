"""The answer of a sizing in words: its parts as data, printed as text or as Markdown for a ticket."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from gpumon.outputs.markdown import markdown_table, safe
from gpumon.outputs.sizing_data import SameGpus, group_servers
from gpumon.outputs.tables import INDENT, ColumnSpec, PrintedColumn, columns_of, cut_lines, labelled, table, wrapped
from gpumon.outputs.units import NONE, join_known, seconds_text
from gpumon.readings import format as human
from gpumon.readings.format import phrase
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.answer import (
    Answer,
    Compared,
    Degraded,
    DisaggregatedPlan,
    Limit,
    Packed,
    Source,
    Totals,
    WorkloadPlan,
)
from gpumon.sizing.capacity import OPERATING_POINTS
from gpumon.sizing.compare import ComparedFigure, Comparison
from gpumon.sizing.running import runs_text
from gpumon.sizing.scenario import Scenario

_LONGEST_TEXT: Final = 400
"""Characters of one text from a file or an engine."""
_LONGEST_NAME: Final = 40
"""Cells of the name of a workload in the table."""
_MOST_SERVER_LINES: Final = 40
"""Lines of servers that are drawn."""
_MOST_NAMED: Final = 3
"""Workloads that the sums leave out and that are named."""
_LEAST_WIDTH: Final = 60
"""Cells in which the columns that are never left out fit."""
_TARGETS: Final = {"concurrency": "in flight", "users": "users", "requests_per_s": "req/s"}
"""Kind of a target -> its unit."""
_PACKINGS: Final = {"memory": "by memory alone", "busy": "by memory and busy share"}
_BYTES: Final = ((1e18, "EB"), (1e15, "PB"), (1e12, "TB"), (1e9, "GB"))
"""Bytes of a unit, and its name; the largest first."""
_WATTS: Final = ((1e9, "GW"), (1e6, "MW"), (1e3, "kW"))
"""Watts of a unit, and its name; the largest first."""
_PLAIN_BELOW: Final = 1e15
"""From there on a figure is written in powers of ten."""
_WHOLE_FROM: Final = 99.95
"""From there on a figure has no decimals: it is rounded to 100 at least."""
_ONE_DECIMAL_FROM: Final = 99.995
"""From there on a size has one decimal: with two it is rounded to 100.00 at least."""
_UNIT_FROM: Final = 0.99995
"""Part of a unit that is rounded to one of it."""
_KILOWATTS_FROM: Final = 9999.5
"""From there on watts are kilowatts: they are rounded to 10,000 at least."""
_LEAST_CENTS: Final = 0.1
"""From there on a sum of money has two decimals, below it two digits."""


# Figures with their units.


def figure_text(value: Reading) -> str:
    """A figure without decimals where it is whole or above 100, else in three digits: `24`, `1,024`, `0.5`, `85.5`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return NONE
    needs_no_decimals = value == round(value) or abs(value) >= _WHOLE_FROM
    if needs_no_decimals and abs(value) < _PLAIN_BELOW:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def gigabytes(value: Reading) -> str:
    """Bytes in GB (1e9), TB, PB or EB: `12.41 GB`, `556.6 GB`, `1.25 TB`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return NONE
    size, unit = _in_unit(value, _BYTES)
    if size >= _PLAIN_BELOW:
        return f"{size:.3g} {unit}"
    if size < _ONE_DECIMAL_FROM:
        return f"{size:,.2f} {unit}"
    return f"{size:,.1f} {unit}"


def _in_unit(value: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The value in the largest unit of which it is at least one, else in the smallest, and that unit."""
    for scale, unit in units:
        if value >= _UNIT_FROM * scale:
            return value / scale, unit
    scale, unit = units[-1]
    return value / scale, unit


def amount_of_money(value: Reading) -> str:
    """A sum in the user's currency: `19.92`, `0.0042`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return NONE
    if value == 0 or _LEAST_CENTS <= value < _PLAIN_BELOW:
        return f"{value:,.2f}"
    return f"{value:.2g}"


def watts(value: Reading) -> str:
    """Watts in the unit that suits them: `2,800 W`, `12.3 kW`, `1.5 MW`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return NONE
    if value < _KILOWATTS_FROM:
        return f"{value:,.0f} W"
    power, unit = _in_unit(value, _WATTS)
    if value < _PLAIN_BELOW:
        return f"{power:,.1f} {unit}"
    return f"{power:.3g} {unit}"


def _surrounded(form: Callable[[Reading], str], before: str = "", behind: str = "") -> Callable[[Reading], str]:
    """A form that puts words around a figure; NONE stands alone."""

    def text(value: Reading) -> str:
        figure = form(value)
        if figure == NONE:
            return NONE
        return f"{before}{figure}{behind}"

    return text


def _count_text(value: Reading, word: str) -> str:
    """A number of things, in the plural unless it is one: `1 GPU`, `24 GPUs`."""
    if value == 1.0:
        return f"{figure_text(value)} {word}"
    return f"{figure_text(value)} {word}s"


# The parts of the answer.


class FactLine(NamedTuple):
    """One fact: what it is, and the text."""

    label: str
    text: str


class ReportSection(NamedTuple):
    """Lines under a title; without labels a list."""

    title: str
    lines: list[FactLine]


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
    servers: list[ReportSection]
    workloads: list[ReportSection]


def _sizing_report(answer: Answer, scenario: Scenario) -> SizingReport:
    """All parts of the answer, as text and Markdown print them."""
    tables = [_workload_table(answer.workloads)]
    packings = (answer.plans.memory_only, answer.plans.busy_aware)
    if any(not isinstance(packed.instances, Missing) for packed in packings):
        tables.append(_packing_table(answer))
    workloads = []
    for plan in answer.workloads:
        workloads.append(ReportSection(_name(plan.name), _nonempty(_workload_lines(plan, scenario))))
    return SizingReport(
        title=_name(answer.name),
        note=clean(scenario.note, _LONGEST_TEXT),
        facts=_nonempty(_facts(answer)),
        compared=_comparison_table(answer, scenario),
        comparison_notes=_nonempty(_comparison_notes(answer, scenario)),
        tables=tables,
        servers=list(_server_sections(answer, scenario)),
        workloads=workloads,
    )


def _nonempty(lines: Iterator[FactLine]) -> list[FactLine]:
    """The lines that have a text."""
    lines_with_text = []
    for line in lines:
        if line.text:
            lines_with_text.append(line)
    return lines_with_text


def report(answer: Answer, scenario: Scenario, width: int = 100) -> str:
    """The answer as text in at most `width` cells (`_LEAST_WIDTH` at least).

    Long lines are wrapped, a table leaves columns out that the lines below it repeat, and only one long word is cut.
    """
    width = max(width, _LEAST_WIDTH)
    return cut_lines(_text_lines(_sizing_report(answer, scenario), width), width)


def _text_lines(whole: SizingReport, width: int) -> Iterator[str]:
    """The lines of a report as text."""
    title = "sizing"
    if whole.title:
        title = f"sizing: {whole.title}"
    yield from wrapped(title, width, "")
    yield from wrapped(whole.note, width, "")
    yield ""
    for line in whole.facts:
        yield from labelled(*line, width, "")
    if whole.compared:
        yield from ("", *table(whole.compared, width))
        for line in whole.comparison_notes:
            yield from labelled(*line, width, "")
    for columns in whole.tables:
        yield from ("", *table(columns, width))
    for title, lines in whole.servers:
        yield from ("", *wrapped(title, width, ""))
        for line in lines:
            yield from wrapped(line.text, width, INDENT, INDENT * 2)
    for title, lines in whole.workloads:
        yield from ("", *wrapped(title, width, ""))
        for line in lines:
            yield from labelled(*line, width)


def markdown(answer: Answer, scenario: Scenario) -> str:
    """The answer for a ticket. Names from outside stand there as they are: none becomes markup, a mention or a link."""
    return "\n".join(_markdown_lines(_sizing_report(answer, scenario))) + "\n"


def _markdown_lines(whole: SizingReport) -> Iterator[str]:
    """The lines of a report in Markdown."""
    if whole.title:
        yield f"## Sizing: {safe(whole.title)}"
    else:
        yield "## Sizing"
    if whole.note:
        yield from ("", safe(whole.note))
    yield ""
    yield from _markdown_list(whole.facts)
    if whole.compared:
        yield from ("", *markdown_table(whole.compared), "")
        yield from _markdown_list(whole.comparison_notes)
    for columns in whole.tables:
        yield ""
        yield from markdown_table(columns)
    for title, lines in (*whole.servers, *whole.workloads):
        yield from ("", f"**{safe(title)}**", "")
        for line in lines:
            label = ""
            if line.label:
                label = f"{line.label}: "
            yield f"- {label}{safe(line.text)}"


def _markdown_list(lines: Sequence[FactLine]) -> Iterator[str]:
    """Facts as a list, the labels in bold."""
    for label, text in lines:
        yield f"- **{label}:** {safe(text)}"


def _facts(answer: Answer) -> Iterator[FactLine]:
    """The need with its warnings, or why there is no answer."""
    if answer.problem:
        yield FactLine("no answer", clean(answer.problem, _LONGEST_TEXT))
    has_totals = not isinstance(_shown_totals(answer).instances, Missing)
    if has_totals:
        yield from _need(answer)
    for warning in answer.warnings:
        yield FactLine("warning", clean(warning, _LONGEST_TEXT))
    if has_totals:
        for name, text in named_totals(answer).items():
            yield FactLine(name, text)
        yield FactLine("not known", _unknown_totals(_shown_totals(answer)))


def _shown_totals(answer: Answer) -> Totals:
    """The totals; without the workloads that have no answer if some have none."""
    if answer.without:
        return answer.totals_without
    return answer.totals


def _need(answer: Answer) -> Iterator[FactLine]:
    """Instances, GPUs and servers, and the types of GPU."""
    sums = _shown_totals(answer)
    counts = (
        _count_text(sums.instances, "instance"),
        _count_text(sums.gpus, "GPU"),
        _count_text(sums.servers, "server"),
    )
    need = f"{join_known(counts)}, packed {_PACKINGS[answer.packing]}"
    if answer.without:
        yield FactLine("need", f"without {_names_left_out(answer.without)}: {need}")
    else:
        yield FactLine("need", join_known((need, _other_packing_need(answer)), "; "))
        yield FactLine("GPU types", _gpu_types(_packings(answer)[0]))


def _names_left_out(workloads: Sequence[str]) -> str:
    """Names of the workloads that sums leave out: `a, b, c and 5 more`."""
    names = ", ".join(map(_name, workloads[:_MOST_NAMED]))
    more = len(workloads) - _MOST_NAMED
    if more > 0:
        return f"{names} and {more:,} more"
    return names


def _unknown_totals(sums: Totals) -> str:
    """The totals that are not known, with the reasons."""
    unknown = []
    for total in _TOTALS:
        value = getattr(sums, total.field)
        if isinstance(value, Missing):
            unknown.append(f"{total.name} ({phrase(value)})")
    return ", ".join(unknown)


class _NamedTotal(NamedTuple):
    """A field of the totals, its name, and its form."""

    field: str
    name: str
    form: Callable[[Reading], str]


_TOTALS: Final = (
    _NamedTotal("memory_bytes", "memory", gigabytes),
    _NamedTotal("price_per_hour", "price", _surrounded(amount_of_money, behind=" per hour")),
    _NamedTotal("price_per_mtok", "price of tokens", _surrounded(amount_of_money, behind=" per 1e6 output tokens")),
    _NamedTotal("power_w", "power", watts),
    _NamedTotal("tokens_per_s", "output", _surrounded(figure_text, behind=" tok/s")),
    _NamedTotal("tokens_per_j", "energy", _surrounded(figure_text, behind=" tok/J")),
)


def named_totals(answer: Answer) -> dict[str, str]:
    """Name and text of the totals that are known.

    A price says so if it is of whole servers with free GPUs, watts say where they are from, and sums that workloads are
    missing from say so.
    """
    sums = _shown_totals(answer)
    notes = {"power_w": _power_source(answer.power_sources), "price_per_hour": _priced_servers(_packings(answer)[0])}
    partial = ""
    if answer.without:
        partial = f" (without {len(answer.without)} of {len(answer.workloads)} workloads)"
    totals = {}
    for total in _TOTALS:
        text = total.form(getattr(sums, total.field))
        if text != NONE:
            totals[total.name] = text + notes.get(total.field, "") + partial
    return totals


def _priced_servers(packed: Packed) -> str:
    """Servers that a price includes, ` for 3 whole servers`, if GPUs of them stay free; else empty."""
    if isinstance(packed.servers, Missing) or isinstance(packed.gpus, Missing) or not packed.layout:
        return ""
    sizes = [len(server.gpus) for server in packed.layout]
    spare_gpus = (packed.servers - len(sizes)) * max(sizes)
    if packed.gpus < sum(sizes) + spare_gpus:
        return f" for {_count_text(packed.servers, 'whole server')}"
    return ""


def _power_source(sources: Collection[str]) -> str:
    """Source of the watts of a sum, as it stands behind them."""
    if "limit" in sources:
        if len(sources) == 1:
            return " (the boards' limit)"
        return " (in part the boards' limit)"
    if "seen" in sources:
        return " (measured)"
    return ""


def _packings(answer: Answer) -> tuple[Packed, Packed]:
    """The packing that was asked for, and the other one."""
    plans = answer.plans
    if answer.packing == "memory":
        return plans.memory_only, plans.busy_aware
    return plans.busy_aware, plans.memory_only


def _gpu_types(packed: Packed) -> str:
    """GPUs and servers of each of several types, and how much more their order in the file would cost."""
    parts = []
    for share in packed.by_gpu:
        servers = _count_text(float(share.servers), "server")
        parts.append(f"{figure_text(float(share.gpus))} {_name(share.gpu)} in {servers}")
    saving = packed.saving_per_hour
    if not isinstance(saving, Missing) and saving > 0:
        parts.append(f"{amount_of_money(saving)} per hour less than in the order of the file")
    elif len(parts) < 2:
        return ""
    return join_known(parts)


def _other_packing_need(answer: Answer) -> str:
    """The need of the other packing of the same workloads, if that differs: `by busy share 24 GPUs, 6 servers`."""
    needed, other = _packings(answer)
    if (other.gpus, other.servers) == (needed.gpus, needed.servers):
        return ""
    name = "by memory alone"
    if answer.packing == "memory":
        name = "by busy share"
    if isinstance(other.gpus, Missing):
        return f"{name} there is no room"
    return f"{name} {_count_text(other.gpus, 'GPU')}, {_count_text(other.servers, 'server')}"


def _plan_source(plan: WorkloadPlan) -> str:
    """Source of the capacity, its band, and `!` beyond the largest measured load."""
    parts = [plan.source.value, plan.band.short]
    if plan.extrapolated:
        parts.append("!")
    return join_known(parts, " ")


def _plan_servers(plan: WorkloadPlan) -> str:
    """Servers of a workload, and how many of them it shares: `4`, `4 (shared)` or `4 (1 shared)`."""
    count = plan.servers
    shared = plan.servers_shared
    if isinstance(count, Missing) or isinstance(shared, Missing) or not shared:
        return figure_text(count)
    if shared == count:
        return f"{figure_text(count)} (shared)"
    return f"{figure_text(count)} ({figure_text(shared)} shared)"


def _plan_target(plan: WorkloadPlan) -> str:
    """The load that was asked for, with its unit."""
    return f"{figure_text(plan.target)} {_TARGETS.get(plan.target_kind, plan.target_kind)}"


_WORKLOAD: Final[tuple[ColumnSpec[WorkloadPlan], ...]] = (
    ColumnSpec("workload", lambda plan: human.cut(_name(plan.name), _LONGEST_NAME)),
    ColumnSpec("target", _plan_target, right=True),
    ColumnSpec("per instance", lambda plan: figure_text(plan.capacity_per_instance), right=True),
    ColumnSpec("instances", lambda plan: figure_text(plan.instances), right=True),
    ColumnSpec("GPUs", lambda plan: figure_text(plan.gpus), right=True),
    ColumnSpec("servers", _plan_servers, right=True, keep=5),
    ColumnSpec("limit", lambda plan: plan.limit or NONE, keep=4),
    ColumnSpec("then", lambda plan: plan.next_limit or NONE, keep=1),
    ColumnSpec("memory each", lambda plan: gigabytes(plan.memory_bytes), right=True, keep=2),
    ColumnSpec("source", _plan_source, keep=3),
)


def _workload_table(plans: Sequence[WorkloadPlan]) -> list[PrintedColumn]:
    return columns_of(plans, _WORKLOAD)


_BEST: Final = "*"
"""Mark of the best figure of a column."""
_TOTAL_FORMS: Final[dict[str, Callable[[Reading], str]]] = {
    "instances": figure_text,
    "gpus": figure_text,
    "servers": figure_text,
    "price_per_hour": amount_of_money,
    "price_per_mtok": amount_of_money,
    "power_w": watts,
    "tokens_per_j": figure_text,
}
"""Forms of the totals of a comparison."""
_WORKLOAD_FORMS: Final[dict[str, Callable[[WorkloadPlan], str]]] = {
    "tp": lambda plan: str(plan.tp or NONE),
    "itl_s": lambda plan: seconds_text(plan.itl_s),
    "limit": lambda plan: plan.limit or NONE,
    "source": lambda plan: f"{plan.source.value} {plan.band.short}".rstrip(),
}
"""Forms of the figures of single workloads in a comparison."""


def _comparison_table(answer: Answer, scenario: Scenario) -> list[PrintedColumn]:
    """Types of GPU side by side: the columns that have a figure, the best ones marked."""
    if not answer.compared:
        return []
    columns = [PrintedColumn("GPU", [_compared_name(row) for row in answer.compared])]
    for figure in Comparison.of(answer, scenario).shown:
        texts = _align_marks([_compared_text(row, figure) for row in answer.compared])
        is_number = figure.key not in ("limit", "source")
        # The types themselves are never left out, so all figures rank below them.
        columns.append(PrintedColumn(figure.title, texts, right=is_number, keep=min(figure.keep, 8)))
    return columns


def _align_marks(texts: Sequence[str]) -> Sequence[str]:
    """The cells, the marks in a column of their own, so that the digits stand below each other."""
    if not any(text.endswith(_BEST) for text in texts):
        return texts
    aligned = []
    for text in texts:
        if text.endswith(_BEST):
            aligned.append(text)
        else:
            aligned.append(f"{text} ")
    return aligned


def _compared_name(row: Compared) -> str:
    """Name of a type, marked where it is the one that was planned with."""
    if row.as_planned:
        return f"{_name(row.gpu)} (as planned)"
    return _name(row.gpu)


def _compared_text(row: Compared, figure: ComparedFigure) -> str:
    """One cell of the comparison; several workloads have a text each, in their order: `4/8`."""
    if row.problem:
        return NONE
    plans = _answered(row.workloads)
    if figure.key == "source" and len(plans) > 1:
        return "/".join(dict.fromkeys(plan.source.value for plan in plans))
    if figure.of_workload:
        texts = [_WORKLOAD_FORMS[figure.key](plan) for plan in plans]
        if figure.key == "limit":
            texts = list(dict.fromkeys(texts))
        return "/".join(texts)
    text = _TOTAL_FORMS[figure.key](getattr(row.totals, figure.key))
    if figure.key in row.best:
        return f"{text}{_BEST}"
    return text


def _answered(plans: Iterable[WorkloadPlan]) -> list[WorkloadPlan]:
    """The workloads that have an answer."""
    answered = []
    for plan in plans:
        if not plan.problem:
            answered.append(plan)
    return answered


def _comparison_notes(answer: Answer, scenario: Scenario) -> Iterator[FactLine]:
    """Why a type has no answer, what the marks mean, and what all types have in common."""
    if not answer.compared:
        return
    comparison = Comparison.of(answer, scenario)
    for compared in answer.compared:
        if compared.problem:
            yield FactLine(_name(compared.gpu), clean(compared.problem, _LONGEST_TEXT))
    if comparison.best:
        yield FactLine("best", f"{_BEST} {', '.join(comparison.best)}")
    yield FactLine("compared", comparison.like_for_like)


_PLAN: Final[tuple[ColumnSpec[Packed], ...]] = (
    ColumnSpec("instances", lambda packed: figure_text(packed.instances), right=True),
    ColumnSpec("GPUs", lambda packed: figure_text(packed.gpus), right=True),
    ColumnSpec("servers", lambda packed: figure_text(packed.servers), right=True),
    ColumnSpec("memory", lambda packed: gigabytes(packed.memory_bytes), right=True, keep=2),
    ColumnSpec("price/h", lambda packed: amount_of_money(packed.price_per_hour), right=True, keep=1),
)


def _packing_table(answer: Answer) -> list[PrintedColumn]:
    """Both packings side by side, the one that was asked for marked."""
    plans = {"memory": answer.plans.memory_only, "busy": answer.plans.busy_aware}
    names = []
    for packing in plans:
        if packing == answer.packing:
            names.append(f"{_PACKINGS[packing]} <- needed")
        else:
            names.append(_PACKINGS[packing])
    return [PrintedColumn("plan", names), *columns_of(plans.values(), _PLAN)]


def _server_sections(answer: Answer, scenario: Scenario) -> Iterator[ReportSection]:
    """The servers of the plan that is needed, then of the other if that differs."""
    needed, other = _packings(answer)
    servers = _server_lines(needed, answer, scenario)
    other_servers = _server_lines(other, answer, scenario)
    if servers == other_servers:
        title = join_known(("both packings are the same", _proof(needed)), "; ")
        if servers:
            yield ReportSection(f"servers ({title})", servers)
        return
    other_packing = "memory"
    if answer.packing == "memory":
        other_packing = "busy"
    yield ReportSection(_servers_title(answer.packing, needed), servers)
    yield ReportSection(_servers_title(other_packing, other), other_servers)


def _server_lines(packed: Packed, answer: Answer, scenario: Scenario) -> list[FactLine]:
    return [FactLine("", text) for text in _layout_lines(packed, answer, scenario)]


def _servers_title(packing: str, packed: Packed) -> str:
    """Title of the servers of a packing, with what is proven of their number."""
    title = f"servers, {_PACKINGS[packing]}"
    proof = _proof(packed)
    if proof:
        return f"{title} ({proof})"
    return title


def _proof(packed: Packed) -> str:
    """Whether fewer servers could do, as far as it is known."""
    if isinstance(packed.servers, Missing) or isinstance(packed.servers_least, Missing):
        return ""
    if packed.servers <= packed.servers_least:
        return "proven: no placement needs fewer"
    return f"no placement needs fewer than {figure_text(packed.servers_least)}"


def _layout_lines(packed: Packed, answer: Answer, scenario: Scenario) -> Iterator[str]:
    """Lines of servers, alike ones in one: `2 x server of 8 x H100 PCIe 80GB: [70B on 4 GPUs] x2`."""

    def shape(kind: int, gpus: int) -> str:
        """The GPUs of a server. `kind`: its place among the server types of the scenario."""
        if kind < len(scenario.server):
            return f"{gpus} x {_name(scenario.server[kind].gpu)}"
        return f"{gpus} GPUs"

    if packed.problem:
        yield clean(packed.problem, _LONGEST_TEXT)
    groups = group_servers(packed.layout, answer.workloads)
    for servers in groups[:_MOST_SERVER_LINES]:
        filled = "  ".join(_gpus_text(same, answer.workloads) for same in servers.filled)
        yield f"{servers.times:,} x server of {shape(servers.shape, servers.gpus)}: {filled}"
    if len(groups) > _MOST_SERVER_LINES:
        more = sum(servers.times for servers in groups[_MOST_SERVER_LINES:])
        yield f"and {more:,} more servers (--json has them all)"
    if packed.spare_servers and packed.spare_shape < len(scenario.server):
        gpus = scenario.server[packed.spare_shape].gpus
        yield f"{packed.spare_servers:,} x spare server of {shape(packed.spare_shape, gpus)}"


def _gpus_text(same: SameGpus, plans: Sequence[WorkloadPlan]) -> str:
    """Workloads on alike GPUs: `[20B, 5B, 5B] x4`, `[70B on 4 GPUs] x2`, `[free] x3`.

    From three equal ones on they are counted: `[5B x6]`.
    """
    words: list[str] = []
    for workload, run in groupby(same.workloads):
        if workload < len(plans):
            shown = _name(plans[workload].name)
        else:
            shown = str(workload)
        times = len(list(run))
        if times > 2:
            words.append(f"{shown} x{times}")
        else:
            words += [shown] * times
    span = ""
    if same.gpus > 1:
        span = f" on {same.gpus} GPUs"
    repeated = ""
    if same.times > 1:
        repeated = f" x{same.times}"
    return f"[{', '.join(words) or 'free'}{span}]{repeated}"


class _FieldForm(NamedTuple):
    """A field of a plan, and how it is written."""

    field: str
    form: Callable[[Reading], str]


_running_each: Final = _surrounded(figure_text, behind=" running each")
_LATENCY_FORMS: Final = (
    _FieldForm("itl_s", _surrounded(seconds_text, "ITL ")),
    _FieldForm("itl_p95_s", _surrounded(seconds_text, "p95 ")),
    _FieldForm("ttft_s", _surrounded(seconds_text, "TTFT ")),
    _FieldForm("ttft_p95_s", _surrounded(seconds_text, "p95 ")),
)
"""Latencies of a plan, also of one with an instance less."""
_INSTANCE_FORMS: Final = (
    _FieldForm("running", _running_each),
    *_LATENCY_FORMS,
    _FieldForm("e2e_s", _surrounded(seconds_text, "E2E ")),
)
"""Figures of each instance of a workload's plan."""
_ALL_INSTANCES_FORMS: Final = (
    _FieldForm("tokens_per_s", _surrounded(figure_text, behind=" tok/s")),
    _FieldForm("requests_per_s", _surrounded(figure_text, behind=" req/s")),
    _FieldForm("power_w", watts),
)
"""Figures of a workload's plan that are sums over its instances."""


def _figures(plan: WorkloadPlan | Degraded, forms: Sequence[_FieldForm]) -> Iterator[str]:
    """The figures of a plan, each in its form."""
    for figure in forms:
        yield figure.form(getattr(plan, figure.field))


def _workload_lines(plan: WorkloadPlan, scenario: Scenario) -> Iterator[FactLine]:
    """Everything that is known of a workload; lines without a text are left out later."""
    if plan.problem:
        yield FactLine("no answer", clean(plan.problem, _LONGEST_TEXT))
    if plan.model != plan.name:
        yield FactLine("model", clean(plan.model, _LONGEST_TEXT))
    if plan.source is not Source.NONE:
        yield FactLine(
            "capacity", join_known((_capacity_text(plan, scenario.planning_factor), _capacity_source(plan)), "; ")
        )
    label = "limits"
    for limit in plan.limits:
        yield FactLine(label, _limit_text(limit))
        label = ""  # of the further limits
    yield FactLine("each instance", _instance_text(plan))
    yield FactLine("at the target", _at_target(plan))
    if plan.ttft_basis:
        yield FactLine("", f"TTFT: {join_known((plan.ttft_basis, _ttft_errors(plan)))}")
    if plan.runs is not None:
        yield FactLine("runs", runs_text(plan, plan.runs))
    if plan.disaggregated is not None:
        yield from _disaggregated_lines(plan.disaggregated)
    for case in plan.degraded:
        yield FactLine(f"one {clean(case.lost, 20)} lost", _degraded_text(case))
    for note in plan.notes:
        yield FactLine("note", clean(note, _LONGEST_TEXT))


def _at_target(plan: WorkloadPlan) -> str:
    """The load that was asked for, and the figures of each instance and of all together under it."""
    in_flight = NONE
    if plan.target_kind != "concurrency":  # else it is the target, which stands in the table
        in_flight = _surrounded(figure_text, behind=" in flight")(plan.concurrency)
    instance = join_known(_figures(plan, _INSTANCE_FORMS))
    if len(plan.on) > 1:
        instance = instance.replace("running each", "running each on average", 1)
    together = join_known(_figures(plan, _ALL_INSTANCES_FORMS))
    if together:
        together = f"all together {together}{_power_basis(plan)}"
    return join_known((in_flight, instance, together), "; ")


def _power_basis(plan: WorkloadPlan) -> str:
    """Source of the watts of a workload, as it stands behind them; empty where they are computed."""
    if isinstance(plan.power_w, Missing):
        return ""
    return {"limit": " (the boards' limit)", "seen": " (measured)"}.get(plan.power_source, "")


def _ttft_errors(plan: WorkloadPlan) -> str:
    """The error band of the TTFT; for an estimate without one, that there is none."""
    if plan.ttft_band or not plan.ttft_basis.startswith("estimate"):
        return plan.ttft_band.text
    return "no error band: not measured on such a server"


def _disaggregated_lines(split: DisaggregatedPlan) -> Iterator[FactLine]:
    """Prefill and decode on pools of their own, beside the plan above."""
    yield FactLine("disaggregated", clean(split.text, _LONGEST_TEXT))
    if split.problem:
        return
    throughput = _surrounded(figure_text, behind=" tok/s per GPU")(split.tokens_per_s_per_gpu)
    aggregated = _surrounded(figure_text, " (aggregated ", ")")(split.aggregated_tokens_per_s_per_gpu)
    if aggregated != NONE:
        throughput += aggregated
    figures = (
        throughput,
        _surrounded(seconds_text, "TTFT ")(split.ttft_s),
        _surrounded(seconds_text, "ITL ")(split.itl_s),
    )
    transfer = _surrounded(gigabytes, "KV ", " per request")(split.transfer_bytes)
    yield FactLine("", f"{join_known(figures)}; {transfer} in {seconds_text(split.transfer_s)}")
    yield FactLine("", clean("; ".join(split.notes), _LONGEST_TEXT))


def _capacity_text(plan: WorkloadPlan, factor: float) -> str:
    """Capacity of an instance: `117 in flight each, 80 % of the first limit (planning_factor)`; NONE if not known."""
    per_instance = _surrounded(figure_text, behind=" in flight each")(plan.capacity_per_instance)
    without_factor = (
        plan.source is Source.TYPED or not plan.limits or plan.limits[0].kind in OPERATING_POINTS or factor == 1.0
    )
    if without_factor or per_instance == NONE:
        return per_instance
    return f"{per_instance}, {factor * 100:.3g} % of the first limit (planning_factor)"


def _capacity_source(plan: WorkloadPlan) -> str:
    """Source of the capacity, as the end of a sentence."""
    parts = [f"{plan.source.value} {plan.band.text}".rstrip()]
    if plan.seen_name:
        time = ""
        if plan.seen_time:
            time = f" at {clean(plan.seen_time, 40)}"
        parts.append(f"from {_name(plan.seen_name)}{time}")
    if plan.extrapolated:
        parts.append("beyond the largest load that was measured")
    return ", ".join(parts)


def _instance_text(plan: WorkloadPlan) -> str:
    """GPUs and memory of one instance."""
    gpus = ""
    if plan.gpus_per_instance:
        gpus = _count_text(float(plan.gpus_per_instance), "GPU")
    basis = ""
    if plan.memory_source:
        basis = f" ({plan.memory_source})"
    memory = _surrounded(gigabytes, behind=basis)(plan.memory_bytes)
    busy = ""
    if not isinstance(plan.busy_ratio, Missing):
        busy = f"busy {plan.busy_ratio * 100:.3g} %"
    spares = ""
    if plan.spares:
        spares = f"{plan.spares} spare"
    return join_known((gpus, _parallelism(plan), memory, busy, spares))


def _parallelism(plan: WorkloadPlan) -> str:
    """How an instance is split over its GPUs, `TP 4 x PP 2`; empty for one GPU."""
    if plan.gpus_per_instance <= 1:
        return ""
    ways = [f"TP {plan.tp}"]
    if plan.pp > 1:
        ways.append(f"PP {plan.pp}")
    if plan.dp > 1:
        ways.append(f"DP {plan.dp}")
    return " x ".join(ways)


def _limit_text(limit: Limit) -> str:
    """A limit in words: `61.1 in flight, KV: the KV cache holds 441,347 tokens, 6,500 a request`."""
    kind = limit.kind.value
    in_flight = f"{figure_text(limit.concurrency)} in flight"
    text = clean(limit.text, _LONGEST_TEXT).removeprefix(f"{kind}: ")
    if text.startswith(f"{kind} "):
        return f"{in_flight}: {text}"
    return f"{in_flight}, {kind}: {text}"


def _degraded_text(case: Degraded) -> str:
    """Instances that are left when an instance or a server is gone, with their figures."""
    figures = _figures(case, _LATENCY_FORMS)
    running = ""
    text = ""
    if case.text:
        text = f": {clean(case.text, _LONGEST_TEXT)}"
    else:
        running = _running_each(case.running)
    return join_known((f"{case.instances:,} left", running, *figures)) + text


def _name(text: str) -> str:
    """A name from a file or an engine, safe to print."""
    return clean(text, 80)
