"""Workloads of a sizing's report: a row for each in the table, and all that is known of it in lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.outputs.sizing_text import (
    FactLine,
    count_text,
    figure_text,
    gigabytes,
    printable_name,
    printable_text,
    watts,
    with_words,
)
from gpumon.outputs.tables import ColumnSpec, PrintedColumn, columns_of
from gpumon.outputs.units import NONE, join_known, seconds_text
from gpumon.readings import format as human
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.accuracy import NOT_MEASURED
from gpumon.sizing.answer import Degraded, DisaggregatedPlan, GpuRange, Limit, Source, WorkloadPlan
from gpumon.sizing.capacity import OPERATING_POINTS
from gpumon.sizing.goals import goal_text
from gpumon.sizing.ranges import range_text
from gpumon.sizing.running import runs_text
from gpumon.sizing.scenario import Scenario

_LONGEST_NAME: Final = 40
"""Cells of the name of a workload in the table."""
_TARGETS: Final = {"concurrency": "in flight", "users": "users", "requests_per_s": "req/s"}
"""Kind of a target -> its unit."""


class _FieldForm(NamedTuple):
    """A field of a plan, and how it is written."""

    field: str
    form: Callable[[Reading], str]


_running_each: Final = with_words(figure_text, behind=" running each")
_running_on_average: Final = with_words(figure_text, behind=" running each on average")
_e2e_text: Final = with_words(seconds_text, "E2E ")
_LATENCY_FORMS: Final = (
    _FieldForm("itl_s", with_words(seconds_text, "ITL ")),
    _FieldForm("itl_p95_s", with_words(seconds_text, "p95 ")),
    _FieldForm("ttft_s", with_words(seconds_text, "TTFT ")),
    _FieldForm("ttft_p95_s", with_words(seconds_text, "p95 ")),
)
"""Latencies of a plan, also of one with an instance less."""

_ALL_INSTANCES_FORMS: Final = (
    _FieldForm("tokens_per_s", with_words(figure_text, behind=" tok/s")),
    _FieldForm("requests_per_s", with_words(figure_text, behind=" req/s")),
    _FieldForm("power_w", watts),
)
"""Figures of a workload's plan that are sums over its instances."""


def _plan_source(plan: WorkloadPlan) -> str:
    """Source of the capacity, its band, and `!` beyond the largest measured load."""
    parts = [plan.source.value, plan.errors_short]
    if plan.extrapolated:
        parts.append("!")
    return join_known(parts, " ")


def _plan_gpus(plan: WorkloadPlan) -> str:
    """GPUs of a workload, or the range of them: `31`, `27 to 34`."""
    if plan.gpus_range is not None:
        return range_text(plan.gpus_range.low, plan.gpus_range.high)
    return figure_text(plan.gpus)


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


_WORKLOAD_COLUMNS: Final[tuple[ColumnSpec[WorkloadPlan], ...]] = (
    ColumnSpec("workload", lambda plan: human.cut(printable_name(plan.name), _LONGEST_NAME)),
    ColumnSpec("target", _plan_target, right=True),
    ColumnSpec("per instance", lambda plan: figure_text(plan.capacity_per_instance), right=True),
    ColumnSpec("instances", lambda plan: figure_text(plan.instances), right=True),
    ColumnSpec("GPUs", _plan_gpus, right=True),
    ColumnSpec("servers", _plan_servers, right=True, keep=5),
    ColumnSpec("limit", lambda plan: plan.limit or NONE, keep=4),
    ColumnSpec("then", lambda plan: plan.next_limit or NONE, keep=1),
    ColumnSpec("memory each", lambda plan: gigabytes(plan.memory_bytes), right=True, keep=2),
    ColumnSpec("source", _plan_source, keep=3),
)


def workload_table(plans: Sequence[WorkloadPlan]) -> list[PrintedColumn]:
    """The workloads below each other, with what each takes."""
    return columns_of(plans, _WORKLOAD_COLUMNS)


def _figure_texts(plan: WorkloadPlan | Degraded, forms: Sequence[_FieldForm]) -> Iterator[str]:
    """Figures of a plan as text, each in its form."""
    for figure in forms:
        yield figure.form(getattr(plan, figure.field))


def workload_lines(plan: WorkloadPlan, scenario: Scenario) -> Iterator[FactLine]:
    """Everything that is known of a workload. A line without a text is one that there is nothing to say about."""
    if plan.problem:
        yield FactLine("no answer", printable_text(plan.problem))
    if plan.model != plan.name:
        yield FactLine("model", printable_text(plan.model))
    yield from _capacity_lines(plan, scenario)
    yield FactLine("each instance", _instance_text(plan))
    if plan.searched and not plan.problem:
        yield FactLine("searched", f"{plan.searched}; no others were tried")
    yield from _load_lines(plan)
    if plan.disaggregated is not None:
        yield from _disaggregated_lines(plan.disaggregated)
    for case in plan.degraded:
        yield FactLine(f"one {clean(case.lost, 20)} lost", _degraded_text(case))
    for note in plan.notes:
        yield FactLine("note", printable_text(note))


def _capacity_lines(plan: WorkloadPlan, scenario: Scenario) -> Iterator[FactLine]:
    """The capacity of an instance, its range, and its limits in the order in which they come."""
    if plan.source is not Source.NONE:
        capacity = _capacity_text(plan, scenario.planning_factor)
        yield FactLine("capacity", join_known((capacity, _capacity_source(plan)), "; "))
    if plan.gpus_range is not None:
        yield FactLine("range", printable_text(_range_basis(plan, plan.gpus_range)))
    label = "limits"
    for limit in plan.limits:
        yield FactLine(label, _limit_text(limit))
        label = ""  # of the further limits


def _load_lines(plan: WorkloadPlan) -> Iterator[FactLine]:
    """Figures of the instances at the target, the goals that judge them, and the instances that run now."""
    yield FactLine("at the target", _target_text(plan))
    if plan.goals:
        yield FactLine("goals", join_known(goal_text(goal) for goal in plan.goals))
    if plan.ttft_basis:
        yield FactLine("", f"TTFT: {join_known((plan.ttft_basis, _ttft_errors(plan)))}")
    if plan.runs is not None:
        yield FactLine("runs", runs_text(plan, plan.runs))


def _range_basis(plan: WorkloadPlan, gpus_range: GpuRange) -> str:
    """Why a workload has a range of GPUs, and what its ends are."""
    ends = f"{range_text(gpus_range.low, gpus_range.high)} GPUs"
    return f"{ends}: {gpus_range.reason}; {figure_text(plan.gpus)} by the fit, the ends are those of its error band"


def _target_text(plan: WorkloadPlan) -> str:
    """The load that was asked for, and the figures of each instance and of all together under it."""
    in_flight = NONE
    if plan.target_kind != "concurrency":  # else it is the target, which stands in the table
        in_flight = with_words(figure_text, behind=" in flight")(plan.concurrency)
    running = _running_each(plan.running)
    if len(plan.on) > 1:  # instances on different types of GPU run different loads
        running = _running_on_average(plan.running)
    latencies = _figure_texts(plan, _LATENCY_FORMS)
    instance = join_known((running, *latencies, _e2e_text(plan.e2e_s)))
    together = join_known(_figure_texts(plan, _ALL_INSTANCES_FORMS))
    if together:
        together = f"all together {together}{_power_basis(plan)}"
    return join_known((in_flight, instance, together), "; ")


def _power_basis(plan: WorkloadPlan) -> str:
    """Source of the watts of a workload, as it stands behind them; empty where they were typed or are not known."""
    if isinstance(plan.power_w, Missing):
        return ""
    return {"limit": " (the boards' limit)", "seen": " (measured)"}.get(plan.power_source, "")


def _ttft_errors(plan: WorkloadPlan) -> str:
    """The error band of the TTFT; for an estimate without one, that it was not measured."""
    if plan.ttft_band or not plan.ttft_basis.startswith("estimate"):
        return plan.ttft_band.text
    return NOT_MEASURED


def _disaggregated_lines(split: DisaggregatedPlan) -> Iterator[FactLine]:
    """Prefill and decode on pools of their own, beside the plan above."""
    yield FactLine("disaggregated", printable_text(split.text))
    if split.problem:
        return
    throughput = with_words(figure_text, behind=" tok/s per GPU")(split.tokens_per_s_per_gpu)
    aggregated = with_words(figure_text, " (aggregated ", ")")(split.aggregated_tokens_per_s_per_gpu)
    if aggregated != NONE:
        throughput += aggregated
    figures = (
        throughput,
        with_words(seconds_text, "TTFT ")(split.ttft_s),
        with_words(seconds_text, "ITL ")(split.itl_s),
    )
    transfer = with_words(gigabytes, "KV ", " per request")(split.transfer_bytes)
    yield FactLine("", f"{join_known(figures)}; {transfer} in {seconds_text(split.transfer_s)}")
    yield FactLine("", printable_text("; ".join(split.notes)))


def _capacity_text(plan: WorkloadPlan, factor: float) -> str:
    """Capacity of an instance: `117 in flight each, 80 % of the first limit (planning_factor)`; NONE if not known."""
    per_instance = with_words(figure_text, behind=" in flight each")(plan.capacity_per_instance)
    without_factor = (
        plan.source is Source.TYPED or not plan.limits or plan.limits[0].kind in OPERATING_POINTS or factor == 1.0
    )
    if without_factor or per_instance == NONE:
        return per_instance
    return f"{per_instance}, {factor * 100:.3g} % of the first limit (planning_factor)"


def _capacity_source(plan: WorkloadPlan) -> str:
    """Source of the capacity, as the end of a sentence."""
    parts = [f"{plan.source.value} {plan.errors_text}".rstrip()]
    if plan.seen_name:
        time = f" at {clean(plan.seen_time, 40)}" if plan.seen_time else ""
        parts.append(f"from {printable_name(plan.seen_name)}{time}")
    if plan.extrapolated:
        parts.append("beyond the largest load that was measured")
    return ", ".join(parts)


def _instance_text(plan: WorkloadPlan) -> str:
    """GPUs and memory of one instance."""
    gpus = ""
    if plan.gpus_per_instance:
        gpus = count_text(float(plan.gpus_per_instance), "GPU")
    basis = f" ({plan.memory_source})" if plan.memory_source else ""
    memory = with_words(gigabytes, behind=basis)(plan.memory_bytes)
    busy = "" if isinstance(plan.busy_ratio, Missing) else f"busy {plan.busy_ratio * 100:.3g} %"
    spares = f"{plan.spares} spare" if plan.spares else ""
    return join_known((gpus, _parallelism(plan), memory, busy, spares))


def _parallelism(plan: WorkloadPlan) -> str:
    """How an instance is split over its GPUs, `TP 4 x PP 2`, and the network that it goes over; empty for one GPU."""
    if plan.gpus_per_instance <= 1:
        return ""
    if plan.network:
        return f"{plan.layout} over {printable_text(plan.network)}"
    return plan.layout


def _limit_text(limit: Limit) -> str:
    """A limit in words: `61.1 in flight, KV: the KV cache holds 441,347 tokens, 6,500 a request`."""
    kind = limit.kind.value
    in_flight = f"{figure_text(limit.concurrency)} in flight"
    text = printable_text(limit.text).removeprefix(f"{kind}: ")
    if text.startswith(f"{kind} "):
        return f"{in_flight}: {text}"
    return f"{in_flight}, {kind}: {text}"


def _degraded_text(case: Degraded) -> str:
    """Instances that are left when an instance or a server is gone, with their figures."""
    latencies = _figure_texts(case, _LATENCY_FORMS)
    running = ""
    text = ""
    if case.text:  # it has the load of each instance in it
        text = f": {printable_text(case.text)}"
    else:
        running = _running_each(case.running)
    return join_known((f"{case.instances:,} left", running, *latencies)) + text
