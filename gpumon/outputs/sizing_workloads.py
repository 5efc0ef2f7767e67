"""Workloads of a sizing's report below each other, with what each takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.outputs.tables import ColumnSpec, PrintedColumn, columns_of
from gpumon.outputs.units import NONE
from gpumon.readings import format as human
from gpumon.readings.missing import Missing
from gpumon.sizing.answer import WorkloadPlan
from gpumon.sizing.document.forms import figure_text, gigabytes, join_known, printable_name
from gpumon.sizing.document.workload import SOURCE_WORDS
from gpumon.sizing.ranges import range_text

_LONGEST_NAME: Final = 40
"""Cells of the name of a workload in the table."""
_TARGETS: Final = {"concurrency": "in flight", "users": "users", "requests_per_s": "req/s"}
"""Kind of a target -> its unit."""


def _plan_source(plan: WorkloadPlan) -> str:
    """Source of the capacity, its band, and `!` beyond the largest measured load."""
    return join_known((SOURCE_WORDS[plan.source], plan.errors_short, "!" if plan.extrapolated else ""), " ") or NONE


def _plan_gpus(plan: WorkloadPlan) -> str:
    """GPUs of a workload, or the range of them: `31`, `27 to 34`."""
    if plan.gpus_range is not None:
        return range_text(plan.gpus_range.low, plan.gpus_range.high)
    return figure_text(plan.gpus) or NONE


def _plan_servers(plan: WorkloadPlan) -> str:
    """Servers of a workload, and how many of them it shares: `4`, `4 (shared)` or `4 (1 shared)`."""
    count = plan.servers
    shared = plan.servers_shared
    if isinstance(count, Missing) or isinstance(shared, Missing) or not shared:
        return figure_text(count) or NONE
    if shared == count:
        return f"{figure_text(count)} (shared)"
    return f"{figure_text(count)} ({figure_text(shared)} shared)"


def _plan_target(plan: WorkloadPlan) -> str:
    """The load that was asked for, with its unit."""
    return f"{figure_text(plan.target)} {_TARGETS.get(plan.target_kind, plan.target_kind)}"


_WORKLOAD_COLUMNS: Final[tuple[ColumnSpec[WorkloadPlan], ...]] = (
    ColumnSpec("workload", lambda plan: human.cut(printable_name(plan.name), _LONGEST_NAME)),
    ColumnSpec("target", _plan_target, right=True),
    ColumnSpec("per instance", lambda plan: figure_text(plan.capacity_per_instance) or NONE, right=True),
    ColumnSpec("instances", lambda plan: figure_text(plan.instances) or NONE, right=True),
    ColumnSpec("GPUs", _plan_gpus, right=True),
    ColumnSpec("servers", _plan_servers, right=True, keep=5),
    ColumnSpec("limit", lambda plan: plan.limit or NONE, keep=4),
    ColumnSpec("then", lambda plan: plan.next_limit or NONE, keep=1),
    ColumnSpec("memory each", lambda plan: gigabytes(plan.memory_bytes) or NONE, right=True, keep=2),
    ColumnSpec("source", _plan_source, keep=3),
)


def workload_table(plans: Sequence[WorkloadPlan]) -> list[PrintedColumn]:
    """The workloads below each other, with what each takes."""
    return columns_of(plans, _WORKLOAD_COLUMNS)
