"""Servers of a sizing's report: both packings side by side, and what stands on the GPUs of each server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from gpumon.outputs.sizing_data import SameGpus, group_servers
from gpumon.outputs.tables import ColumnSpec, PrintedColumn, columns_of
from gpumon.outputs.units import NONE
from gpumon.readings.missing import Missing
from gpumon.sizing.answer import Answer, Packed, WorkloadPlan
from gpumon.sizing.document.forms import (
    amount_of_money,
    figure_text,
    gigabytes,
    join_known,
    printable_name,
    printable_text,
)
from gpumon.sizing.document.plan import OTHER_PACKING, PACKING_NAMES, needed_packing, other_packing, packings_by_name
from gpumon.sizing.scenario import Scenario


class Servers(NamedTuple):
    """The servers of a packing, under a title."""

    title: str
    lines: list[str]


_MOST_SERVER_LINES: Final = 40
"""Lines of servers that are drawn."""
_COUNTED_FROM: Final = 3
"""Instances of one workload on a GPU from which on they are a number, not a name each."""
_PACKING_COLUMNS: Final[tuple[ColumnSpec[Packed], ...]] = (
    ColumnSpec("instances", lambda packed: figure_text(packed.instances) or NONE, right=True),
    ColumnSpec("GPUs", lambda packed: figure_text(packed.gpus) or NONE, right=True),
    ColumnSpec("servers", lambda packed: figure_text(packed.servers) or NONE, right=True),
    ColumnSpec("memory", lambda packed: gigabytes(packed.memory_bytes) or NONE, right=True, keep=2),
    ColumnSpec("price/h", lambda packed: amount_of_money(packed.price_per_hour) or NONE, right=True, keep=1),
)


def packing_table(answer: Answer) -> list[PrintedColumn]:
    """Both packings side by side, the one that was asked for marked; empty where neither has an answer."""
    packings = packings_by_name(answer)
    if all(isinstance(packed.instances, Missing) for packed in packings.values()):
        return []
    names = []
    for packing in packings:
        if packing == answer.packing:
            names.append(f"{PACKING_NAMES[packing]} <- needed")
        else:
            names.append(PACKING_NAMES[packing])
    return [PrintedColumn("plan", names), *columns_of(packings.values(), _PACKING_COLUMNS)]


def server_sections(answer: Answer, scenario: Scenario) -> Iterator[Servers]:
    """The servers of the plan that is needed, then of the other if that differs."""
    needed = needed_packing(answer)
    other = other_packing(answer)
    servers = list(_layout_lines(needed, answer, scenario))
    other_servers = list(_layout_lines(other, answer, scenario))
    if servers == other_servers:
        title = join_known(("both packings are the same", _proof(needed)), "; ")
        if servers:
            yield Servers(f"servers ({title})", servers)
        return
    yield Servers(_servers_title(answer.packing, needed), servers)
    yield Servers(_servers_title(OTHER_PACKING[answer.packing], other), other_servers)


def _servers_title(packing: str, packed: Packed) -> str:
    """Title of the servers of a packing, with what is proven of their number."""
    title = f"servers, {PACKING_NAMES[packing]}"
    proof = _proof(packed)
    if proof:
        return f"{title} ({proof})"
    return title


def _proof(packed: Packed) -> str:
    """Whether fewer servers could do, as far as it is known."""
    if isinstance(packed.servers, Missing) or isinstance(packed.servers_least, Missing):
        return ""
    if packed.servers <= packed.servers_least:
        return "these instances need no fewer"
    return f"these instances need no fewer than {figure_text(packed.servers_least)}"


def _layout_lines(packed: Packed, answer: Answer, scenario: Scenario) -> Iterator[str]:
    """Lines of servers, alike ones in one: `2 x server of 8 x H100 PCIe 80GB: [70B on 4 GPUs] x2`."""

    if packed.problem:
        yield printable_text(packed.problem)
    groups = group_servers(packed.layout, answer.workloads)
    for servers in groups[:_MOST_SERVER_LINES]:
        filled = "  ".join(_gpus_text(same, answer.workloads) for same in servers.filled)
        yield f"{servers.times:,} x server of {_server_text(servers.shape, servers.gpus, scenario)}: {filled}"
    if len(groups) > _MOST_SERVER_LINES:
        more = sum(servers.times for servers in groups[_MOST_SERVER_LINES:])
        yield f"and {more:,} more servers (--json has them all)"
    if packed.spare_servers and packed.spare_shape < len(scenario.server):
        gpus = scenario.server[packed.spare_shape].gpus
        yield f"{packed.spare_servers:,} x spare server of {_server_text(packed.spare_shape, gpus, scenario)}"


def _server_text(shape: int, gpus: int, scenario: Scenario) -> str:
    """The GPUs of a server in words, `8 x H100 PCIe 80GB`. `shape`: its index in `Scenario.server`."""
    if shape < len(scenario.server):
        return f"{gpus} x {printable_name(scenario.server[shape].gpu)}"
    return f"{gpus} GPUs"


def _gpus_text(same: SameGpus, plans: Sequence[WorkloadPlan]) -> str:
    """Workloads on alike GPUs: `[20B, 5B, 5B] x4`, `[70B on 4 GPUs] x2`, `[free] x3`.

    From three equal ones on they are counted: `[5B x6]`.
    """
    words: list[str] = []
    for workload, same_workload in groupby(same.workloads):
        name = printable_name(plans[workload].name) if workload < len(plans) else str(workload)
        instances = len(list(same_workload))
        if instances >= _COUNTED_FROM:
            words.append(f"{name} x{instances}")
        else:
            words += [name] * instances
    span = f" on {same.gpus} GPUs" if same.gpus > 1 else ""
    repeated = f" x{same.times}" if same.times > 1 else ""
    return f"[{', '.join(words) or 'free'}{span}]{repeated}"
