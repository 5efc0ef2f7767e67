"""The answer of a sizing in words: its parts as data, printed as text or as Markdown for a ticket."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from gpumon.outputs.markdown import header, row, safe
from gpumon.outputs.sizing_data import SameGpus, grouped
from gpumon.outputs.tables import INDENT, Column, labelled, table, wrapped
from gpumon.outputs.units import NONE, milliseconds
from gpumon.readings import format as cells
from gpumon.readings.format import phrase
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, Compared, Degraded, DisaggregatedPlan, Limit, Packed, Source, WorkloadPlan
from gpumon.sizing.capacity import OPERATING_POINTS
from gpumon.sizing.compare import Comparison, Figure
from gpumon.sizing.scenario import Scenario

_MOST: Final = 400
"""Characters of one text from a file or an engine."""
_MOST_NAME: Final = 40
_MOST_SERVERS: Final = 40
"""Lines of servers that are drawn."""
_MOST_NAMED: Final = 3
"""Workloads that the sums leave out and that are named."""
_TARGETS: Final = {"concurrency": "in flight", "users": "users", "requests_per_s": "req/s"}
_PACKINGS: Final = {"memory": "by memory alone", "busy": "by memory and busy share"}
_BYTES: Final = ((1e18, "EB"), (1e15, "PB"), (1e12, "TB"), (1e9, "GB"))
_WATTS: Final = ((1e9, "GW"), (1e6, "MW"), (1e3, "kW"))
_MOST_DIGITS: Final = 1e15
"""From there on a count is told in powers of ten."""


# Figures with their units.


def number(value: Reading) -> str:
    """Whole where it is whole or above 100, else three digits: `24`, `1,024`, `0.5`, `85.5`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return NONE
    whole = value == round(value) or abs(value) >= 99.95
    if whole and abs(value) < _MOST_DIGITS:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def gigabytes(value: Reading) -> str:
    """Bytes in GB (1e9), TB, PB or EB: `12.41 GB`, `556.6 GB`, `1.25 TB`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return NONE
    one, unit = next((step for step in _BYTES if value >= 0.99995 * step[0]), _BYTES[-1])
    size = value / one
    if size >= _MOST_DIGITS:
        return f"{size:.3g} {unit}"
    decimals = 2 if size < 99.995 else 1
    return f"{size:,.{decimals}f} {unit}"


def money(value: Reading) -> str:
    """A sum in the user's currency: `19.92`, `0.0042`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return NONE
    if value == 0 or 0.1 <= value < _MOST_DIGITS:
        return f"{value:,.2f}"
    return f"{value:.2g}"


def watts(value: Reading) -> str:
    """`2,800 W`, `12.3 kW`, `1.5 MW`."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return NONE
    if value < 9999.5:
        return f"{value:,.0f} W"
    one, unit = next((step for step in _WATTS if value >= 0.99995 * step[0]), _WATTS[-1])
    if value < _MOST_DIGITS:
        return f"{value / one:,.1f} {unit}"
    return f"{value / one:.3g} {unit}"


def _with(form: Callable[[Reading], str], before: str = "", behind: str = "") -> Callable[[Reading], str]:
    """A figure with words around it; NONE alone where there is none."""
    return lambda value: NONE if form(value) == NONE else f"{before}{form(value)}{behind}"


def _counted(value: Reading, word: str) -> str:
    return f"{number(value)} {word}{'' if value == 1.0 else 's'}"


def _joined(parts: Sequence[str], between: str = ", ") -> str:
    """The known parts with `between` them."""
    return between.join(part for part in parts if part not in ("", NONE))


# The parts of the answer.


class Line(NamedTuple):
    """One fact: what it is, and the text."""

    label: str
    text: str


class Section(NamedTuple):
    """Lines under a title; without labels a list."""

    title: str
    lines: list[Line]


class Report(NamedTuple):
    """All of it: facts about the whole, tables, where everything stands, and what is known of each workload."""

    title: str
    note: str
    facts: list[Line]
    compared: list[Column]
    """Types of GPU side by side; empty where nothing is compared."""
    compared_by: list[Line]
    """Lines below that table: why a type has no answer, marks, common terms."""
    tables: list[list[Column]]
    servers: list[Section]
    workloads: list[Section]


def _report(answer: Answer, scenario: Scenario) -> Report:
    plans = (answer.plans.memory_only, answer.plans.busy_aware)
    packed = not all(isinstance(each.instances, Missing) for each in plans)
    return Report(
        title=_name(answer.name),
        note=clean(scenario.note, _MOST),
        facts=[line for line in _facts(answer) if line.text],
        compared=_compared(answer, scenario),
        compared_by=[line for line in _compared_by(answer, scenario) if line.text],
        tables=[_workloads(answer.workloads), *([_plans(answer)] if packed else [])],
        servers=list(_servers(answer, scenario)),
        workloads=[
            Section(_name(plan.name), [line for line in _detail(plan, scenario) if line.text])
            for plan in answer.workloads
        ],
    )


def report(answer: Answer, scenario: Scenario, width: int = 100) -> str:
    """As text in at most `width` cells (60 at least): long lines are wrapped, a table leaves columns out that the lines
    below it repeat, and only what is one long word is cut."""
    width = max(width, 60)
    return "\n".join(cells.cut(line.rstrip(), width) for line in _text(_report(answer, scenario), width)) + "\n"


def _text(whole: Report, width: int) -> Iterator[str]:
    yield from wrapped(f"sizing: {whole.title}" if whole.title else "sizing", width, "")
    yield from wrapped(whole.note, width, "")
    yield ""
    for line in whole.facts:
        yield from labelled(*line, width, "")
    if whole.compared:
        yield from ("", *table(whole.compared, width))
        for line in whole.compared_by:
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
    """The same for a ticket. Names from outside stand there as they are: none becomes markup, a mention or a link."""
    return "\n".join(_markdown(_report(answer, scenario))) + "\n"


def _markdown(whole: Report) -> Iterator[str]:
    yield f"## Sizing: {safe(whole.title)}" if whole.title else "## Sizing"
    yield from ("", safe(whole.note)) if whole.note else ()
    yield ""
    yield from (f"- **{label}:** {safe(text)}" for label, text in whole.facts)
    if whole.compared:
        yield from ("", *_markdown_table(whole.compared), "")
        yield from (f"- **{label}:** {safe(text)}" for label, text in whole.compared_by)
    for columns in whole.tables:
        yield ""
        yield from _markdown_table(columns)
    for title, lines in (*whole.servers, *whole.workloads):
        yield from ("", f"**{safe(title)}**", "")
        yield from (f"- {f'{line.label}: ' if line.label else ''}{safe(line.text)}" for line in lines)


def _markdown_table(columns: Sequence[Column]) -> Iterator[str]:
    yield from header("|".join(f"{column.title}{':' if column.right else ''}" for column in columns))
    yield from (row(*map(safe, texts)) for texts in zip(*(column.texts for column in columns), strict=True))


def _facts(answer: Answer) -> Iterator[Line]:
    """The need with its warnings, or why there is no answer."""
    if answer.problem:
        yield Line("no answer", clean(answer.problem, _MOST))
    sums = answer.totals_without if answer.without else answer.totals
    counts = ((sums.instances, "instance"), (sums.gpus, "GPU"), (sums.servers, "server"))
    known = not isinstance(sums.instances, Missing)
    if known:
        need = f"{_joined([_counted(*each) for each in counts])}, packed {_PACKINGS[answer.packing]}"
        if answer.without:
            more = len(answer.without) - _MOST_NAMED
            names = ", ".join(map(_name, answer.without[:_MOST_NAMED])) + (f" and {more:,} more" if more > 0 else "")
            yield Line("need", f"without {names}: {need}")
        else:
            yield Line("need", _joined((need, _other(answer)), "; "))
            yield Line("GPU types", _types(_packed(answer)[0]))
    yield from (Line("warning", clean(warning, _MOST)) for warning in answer.warnings)
    if known:
        yield from (Line(what, text) for what, text in totals(answer).items())
        missing = ((what, getattr(sums, field)) for field, what, _ in _TOTALS)
        words = []
        for what, each in missing:
            if isinstance(each, Missing):
                words.append(f"{what} ({phrase(each)})")
        yield Line("not known", ", ".join(words))


_TOTALS: Final[tuple[tuple[str, str, Callable[[Reading], str]], ...]] = (
    ("memory_bytes", "memory", gigabytes),
    ("price_per_hour", "price", _with(money, behind=" per hour")),
    ("price_per_mtok", "price of tokens", _with(money, behind=" per 1e6 output tokens")),
    ("power_w", "power", watts),
    ("tokens_per_s", "output", _with(number, behind=" tok/s")),
    ("tokens_per_j", "energy", _with(number, behind=" tok/J")),
)
"""Field of the totals, its name, and its form."""


def totals(answer: Answer) -> dict[str, str]:
    """Name and text of the totals that are known; a price says what it is of where servers have free GPUs, watts where
    they are from, and sums that workloads are missing from say so."""
    sums = answer.totals_without if answer.without else answer.totals
    needed, _ = _packed(answer)
    behind = {"power_w": _power_source(answer.power_sources)}
    if not isinstance(needed.servers, Missing) and not isinstance(needed.gpus, Missing) and needed.layout:
        sizes = [len(server.gpus) for server in needed.layout]
        if needed.gpus < sum(sizes) + (needed.servers - len(sizes)) * max(sizes):
            behind["price_per_hour"] = f" for {_counted(needed.servers, 'whole server')}"
    partial = ""
    if answer.without:
        partial = f" (without {len(answer.without)} of {len(answer.workloads)} workloads)"
    texts = ((field, what, form(getattr(sums, field))) for field, what, form in _TOTALS)
    totals = {}
    for field, what, text in texts:
        if text != NONE:
            totals[what] = text + behind.get(field, "") + partial
    return totals


def _power_source(sources: Collection[str]) -> str:
    """Source of the watts of a sum, as it stands behind them."""
    if "limit" in sources:
        if len(sources) == 1:
            return " (the boards' limit)"
        return " (in part the boards' limit)"
    return " (measured)" if "seen" in sources else ""


def _packed(answer: Answer) -> tuple[Packed, Packed]:
    """The packing that was asked for, and the other one."""
    plans = (answer.plans.memory_only, answer.plans.busy_aware)
    return plans if answer.packing == "memory" else (plans[1], plans[0])


def _types(packed: Packed) -> str:
    """GPUs and servers of each of several types, and how much more their order in the file would cost."""
    parts = []
    for each in packed.by_gpu:
        parts.append(f"{number(float(each.gpus))} {_name(each.gpu)} in {_counted(float(each.servers), 'server')}")
    saving = packed.saving_per_hour
    if not isinstance(saving, Missing) and saving > 0:
        parts.append(f"{money(saving)} per hour less than in the order of the file")
    elif len(parts) < 2:
        return ""
    return _joined(parts)


def _other(answer: Answer) -> str:
    """The need of the other packing of the same workloads, if that differs: `by busy share 24 GPUs, 6 servers`."""
    mine, theirs = _packed(answer)
    if (theirs.gpus, theirs.servers) == (mine.gpus, mine.servers):
        return ""
    name = "by busy share" if answer.packing == "memory" else "by memory alone"
    if isinstance(theirs.gpus, Missing):
        return f"{name} there is no room"
    return f"{name} {_counted(theirs.gpus, 'GPU')}, {_counted(theirs.servers, 'server')}"


def _workloads(plans: Sequence[WorkloadPlan]) -> list[Column]:
    def source(plan: WorkloadPlan) -> str:
        return " ".join(part for part in (plan.source.value, plan.band.short, "!" * plan.extrapolated) if part)

    def servers(plan: WorkloadPlan) -> str:
        count = plan.servers
        shared = plan.servers_shared
        if isinstance(count, Missing) or isinstance(shared, Missing) or not shared:
            return number(count)
        if shared == count:
            return f"{number(count)} (shared)"
        return f"{number(count)} ({number(shared)} shared)"

    columns: tuple[tuple[str, Callable[[WorkloadPlan], str], bool, int], ...] = (
        ("workload", lambda plan: cells.cut(_name(plan.name), _MOST_NAME), False, 9),
        ("target", lambda plan: f"{number(plan.target)} {_TARGETS.get(plan.target_kind, plan.target_kind)}", True, 9),
        ("per instance", lambda plan: number(plan.capacity_per_instance), True, 9),
        ("instances", lambda plan: number(plan.instances), True, 9),
        ("GPUs", lambda plan: number(plan.gpus), True, 9),
        ("servers", servers, True, 5),
        ("limit", lambda plan: plan.limit or NONE, False, 4),
        ("then", lambda plan: plan.next_limit or NONE, False, 1),
        ("memory each", lambda plan: gigabytes(plan.memory_bytes), True, 2),
        ("source", source, False, 3),
    )
    workloads = []
    for title, text, right, keep in columns:
        workloads.append(Column(title, [text(plan) for plan in plans], right, keep))
    return workloads


_BEST: Final = "*"
_FORMS: Final[dict[str, Callable[[Reading], str]]] = {
    "instances": number,
    "gpus": number,
    "servers": number,
    "price_per_hour": money,
    "price_per_mtok": money,
    "power_w": watts,
    "tokens_per_j": number,
}
"""Forms of the totals of a comparison."""
_WORDS: Final[dict[str, Callable[[WorkloadPlan], str]]] = {
    "tp": lambda plan: str(plan.tp) if plan.tp else NONE,
    "itl_s": lambda plan: milliseconds(plan.itl_s),
    "limit": lambda plan: plan.limit or NONE,
    "source": lambda plan: f"{plan.source.value} {plan.band.short}".rstrip(),
}
"""Forms of the figures of single workloads in a comparison."""


def _compared(answer: Answer, scenario: Scenario) -> list[Column]:
    """Types of GPU side by side: the columns that have a figure, the best ones marked."""
    if not answer.compared:
        return []
    columns = [Column("GPU", [_compared_name(row) for row in answer.compared])]
    for figure in Comparison.of(answer, scenario).shown:
        texts = [_compared_text(row, figure) for row in answer.compared]
        # The marks stand in a column of their own, so that the digits stand below each other.
        if any(text.endswith(_BEST) for text in texts):
            texts = [text if text.endswith(_BEST) else f"{text} " for text in texts]
        columns.append(Column(figure.title, texts, figure.key not in ("limit", "source"), min(figure.keep, 8)))
    return columns


def _compared_name(row: Compared) -> str:
    if row.as_planned:
        return f"{_name(row.gpu)} (as planned)"
    return _name(row.gpu)


def _compared_text(row: Compared, figure: Figure) -> str:
    """One cell: of several workloads what each of them has, in their order."""
    if row.problem:
        return NONE
    plans = [plan for plan in row.workloads if not plan.problem]
    if figure.key == "source" and len(plans) > 1:
        return "/".join(dict.fromkeys(plan.source.value for plan in plans))
    if figure.of_workload:
        texts = [_WORDS[figure.key](plan) for plan in plans]
        return "/".join(dict.fromkeys(texts) if figure.key == "limit" else texts)
    text = _FORMS[figure.key](getattr(row.totals, figure.key))
    if figure.key in row.best:
        return f"{text}{_BEST}"
    return text


def _compared_by(answer: Answer, scenario: Scenario) -> Iterator[Line]:
    """Why a type has no answer, what the marks mean, and what all types have in common."""
    if not answer.compared:
        return
    comparison = Comparison.of(answer, scenario)
    for compared in answer.compared:
        if compared.problem:
            yield Line(_name(compared.gpu), clean(compared.problem, _MOST))
    if comparison.best:
        yield Line("best", f"{_BEST} {', '.join(comparison.best)}")
    yield Line("compared", comparison.like_for_like)


def _plans(answer: Answer) -> list[Column]:
    plans = {"memory": answer.plans.memory_only, "busy": answer.plans.busy_aware}
    names = []
    for each in plans:
        names.append(f"{_PACKINGS[each]}{' <- needed' if each == answer.packing else ''}")
    columns: tuple[tuple[str, Callable[[Packed], str], int], ...] = (
        ("instances", lambda packed: number(packed.instances), 9),
        ("GPUs", lambda packed: number(packed.gpus), 9),
        ("servers", lambda packed: number(packed.servers), 9),
        ("memory", lambda packed: gigabytes(packed.memory_bytes), 2),
        ("price/h", lambda packed: money(packed.price_per_hour), 1),
    )
    figures = []
    for title, text, keep in columns:
        figures.append(Column(title, [text(each) for each in plans.values()], True, keep))
    return [Column("plan", names), *figures]


def _servers(answer: Answer, scenario: Scenario) -> Iterator[Section]:
    """The servers of the plan that is needed, then of the other if that differs."""

    def proof(packed: Packed) -> str:
        if isinstance(packed.servers, Missing) or isinstance(packed.servers_least, Missing):
            return ""
        least = packed.servers_least
        proven = packed.servers <= least
        if proven:
            return "proven: no placement needs fewer"
        return f"no placement needs fewer than {number(least)}"

    needed, other = _packed(answer)
    drawn = []
    for each in (needed, other):
        drawn.append([Line("", text) for text in _drawn(each, answer, scenario)])
    if drawn[0] == drawn[1]:
        title = _joined(("both packings are the same", proof(needed)), "; ")
        yield from [Section(f"servers ({title})", drawn[0])] if drawn[0] else []
        return
    names = (answer.packing, "busy" if answer.packing == "memory" else "memory")
    for name, packed, lines in zip(names, (needed, other), drawn, strict=True):
        title = f"servers, {_PACKINGS[name]}"
        yield Section(f"{title} ({proof(packed)})" if proof(packed) else title, lines)


def _drawn(packed: Packed, answer: Answer, scenario: Scenario) -> Iterator[str]:
    """`2 x server of 8 x H100 PCIe 80GB: [70B on 4 GPUs] x2`, alike servers once."""

    def shape(at: int, gpus: int) -> str:
        if at < len(scenario.server):
            return f"{gpus} x {_name(scenario.server[at].gpu)}"
        return f"{gpus} GPUs"

    if packed.problem:
        yield clean(packed.problem, _MOST)
    groups = grouped(packed.layout, answer.workloads)
    for servers in groups[:_MOST_SERVERS]:
        filled = "  ".join(_filled(same, answer.workloads) for same in servers.filled)
        yield f"{servers.times:,} x server of {shape(servers.shape, servers.gpus)}: {filled}"
    if len(groups) > _MOST_SERVERS:
        more = sum(servers.times for servers in groups[_MOST_SERVERS:])
        yield f"and {more:,} more servers (--json has them all)"
    if packed.spare_servers and packed.spare_shape < len(scenario.server):
        gpus = scenario.server[packed.spare_shape].gpus
        yield f"{packed.spare_servers:,} x spare server of {shape(packed.spare_shape, gpus)}"


def _filled(same: SameGpus, plans: Sequence[WorkloadPlan]) -> str:
    """`[20B, 5B, 5B] x4`, `[70B on 4 GPUs] x2`, `[free] x3`; from three equal ones on they are counted: `[5B x6]`."""
    words: list[str] = []
    for at, run in groupby(same.workloads):
        if at < len(plans):
            shown = _name(plans[at].name)
        else:
            shown = str(at)
        times = len(list(run))
        words += [f"{shown} x{times}"] if times > 2 else [shown] * times
    span = ""
    if same.gpus > 1:
        span = f" on {same.gpus} GPUs"
    return f"[{', '.join(words) or 'free'}{span}]{f' x{same.times}' if same.times > 1 else ''}"


_OF_EACH: Final[tuple[tuple[str, Callable[[Reading], str]], ...]] = (
    ("running", _with(number, behind=" running each")),
    ("itl_s", _with(milliseconds, "ITL ")),
    ("itl_p95_s", _with(milliseconds, "p95 ")),
    ("ttft_s", _with(milliseconds, "TTFT ")),
    ("ttft_p95_s", _with(milliseconds, "p95 ")),
    ("e2e_s", _with(milliseconds, "E2E ")),
)
"""Field of a workload's plan, and its form."""
_OF_ALL: Final[tuple[tuple[str, Callable[[Reading], str]], ...]] = (
    ("tokens_per_s", _with(number, behind=" tok/s")),
    ("requests_per_s", _with(number, behind=" req/s")),
    ("power_w", watts),
)
"""The same of what is a sum over its instances."""


def _detail(plan: WorkloadPlan, scenario: Scenario) -> Iterator[Line]:
    if plan.problem:
        yield Line("no answer", clean(plan.problem, _MOST))
    if plan.model != plan.name:
        yield Line("model", clean(plan.model, _MOST))
    if plan.source is not Source.NONE:
        yield Line("capacity", _joined((_planned(plan, scenario.planning_factor), _origin(plan)), "; "))
    label = "limits"
    for limit in plan.limits:
        yield Line(label, _bound(limit))
        label = ""
    yield Line("each instance", _instance(plan))
    yield Line("at the target", _at_target(plan))
    yield Line("", f"TTFT: {_joined((plan.ttft_basis, _ttft_errors(plan)))}" if plan.ttft_basis else "")
    if plan.disaggregated is not None:
        yield from _split(plan.disaggregated)
    for case in plan.degraded:
        yield Line(f"one {clean(case.lost, 20)} lost", _lost(case))
    for note in plan.notes:
        yield Line("note", clean(note, _MOST))


def _at_target(plan: WorkloadPlan) -> str:
    """The load that was asked for, and the figures of each instance and of all together under it."""
    asked = NONE
    if plan.target_kind != "concurrency":
        asked = _with(number, behind=" in flight")(plan.concurrency)
    instance = _joined([form(getattr(plan, field)) for field, form in _OF_EACH])
    if len(plan.on) > 1:
        instance = instance.replace("running each", "running each on average", 1)
    together = _joined([form(getattr(plan, field)) for field, form in _OF_ALL])
    if together:
        together = f"all together {together}{_power_basis(plan)}"
    return _joined((asked, instance, together), "; ")


def _power_basis(plan: WorkloadPlan) -> str:
    """Source of the watts."""
    if isinstance(plan.power_w, Missing):
        return ""
    return {"limit": " (the boards' limit)", "seen": " (measured)"}.get(plan.power_source, "")


def _ttft_errors(plan: WorkloadPlan) -> str:
    """The band of the TTFT; of an estimate without one that there is none."""
    if plan.ttft_band or not plan.ttft_basis.startswith("estimate"):
        return plan.ttft_band.text
    return "no error band: not measured on such a server"


def _split(split: DisaggregatedPlan) -> Iterator[Line]:
    """Prefill and decode on pools of their own, beside the plan above."""
    yield Line("disaggregated", clean(split.text, _MOST))
    if split.problem:
        return
    carried = _with(number, behind=" tok/s per GPU")(split.tokens_per_s_per_gpu)
    beside = _with(number, " (aggregated ", ")")(split.aggregated_tokens_per_s_per_gpu)
    figures = (
        f"{carried}{beside if beside != NONE else ''}",
        _with(milliseconds, "TTFT ")(split.ttft_s),
        _with(milliseconds, "ITL ")(split.itl_s),
    )
    moved = _with(gigabytes, "KV ", " per request")(split.transfer_bytes)
    yield Line("", f"{_joined(figures)}; {moved} in {milliseconds(split.transfer_s)}")
    yield Line("", clean("; ".join(split.notes), _MOST))


def _planned(plan: WorkloadPlan, factor: float) -> str:
    """`117 in flight each, 80 % of the first limit (planning_factor)`; empty where it is not known."""
    each = _with(number, behind=" in flight each")(plan.capacity_per_instance)
    as_is = plan.source is Source.TYPED or not plan.limits or plan.limits[0].kind in OPERATING_POINTS or factor == 1.0
    if as_is or each == NONE:
        return each
    return f"{each}, {factor * 100:.3g} % of the first limit (planning_factor)"


def _origin(plan: WorkloadPlan) -> str:
    """Source of the capacity, as a sentence's end."""
    parts = [f"{plan.source.value} {plan.band.text}".rstrip()]
    if plan.seen_name:
        parts.append(f"from {_name(plan.seen_name)}" + (f" at {clean(plan.seen_time, 40)}" if plan.seen_time else ""))
    if plan.extrapolated:
        parts.append("beyond the largest load that was measured")
    return ", ".join(parts)


def _instance(plan: WorkloadPlan) -> str:
    """GPUs and memory of one instance."""
    gpus = ""
    if plan.gpus_per_instance:
        gpus = _counted(float(plan.gpus_per_instance), "GPU")
    names = [f"TP {plan.tp}"]
    names += [f"PP {plan.pp}"] if plan.pp > 1 else []
    names += [f"DP {plan.dp}"] if plan.dp > 1 else []
    parallel = ""
    if plan.gpus_per_instance > 1:
        parallel = " x ".join(names)
    memory = _with(gigabytes, behind=f" ({plan.memory_source})" if plan.memory_source else "")(plan.memory_bytes)
    if isinstance(plan.busy_ratio, Missing):
        busy = ""
    else:
        busy = f"busy {plan.busy_ratio * 100:.3g} %"
    return _joined((gpus, parallel, memory, busy, f"{plan.spares} spare" if plan.spares else ""))


def _bound(limit: Limit) -> str:
    """`61.1 in flight, KV: the KV cache holds 441,347 tokens, 6,500 a request`."""
    kind = limit.kind.value
    at = f"{number(limit.concurrency)} in flight"
    text = clean(limit.text, _MOST).removeprefix(f"{kind}: ")
    if text.startswith(f"{kind} "):
        return f"{at}: {text}"
    return f"{at}, {kind}: {text}"


def _lost(case: Degraded) -> str:
    """Remainder when an instance or a server is gone."""
    figures = [form(getattr(case, field)) for field, form in _OF_EACH[1:-1]]
    if case.text:
        running = ""
    else:
        running = _OF_EACH[0][1](case.running)
    text = ""
    if case.text:
        text = f": {clean(case.text, _MOST)}"
    return _joined((f"{case.instances:,} left", running, *figures)) + text


def _name(text: str) -> str:
    """A name from a file or an engine, safe to print."""
    return clean(text, 80)
