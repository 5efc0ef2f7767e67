"""Totals of a sizing's report: instances, GPUs and servers that are needed, their price, power and output."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.outputs.sizing_servers import PACKING_NAMES, needed_packing, other_packing_need
from gpumon.outputs.sizing_text import (
    FactLine,
    amount_of_money,
    count_text,
    figure_text,
    gigabytes,
    printable_name,
    printable_text,
    watts,
    with_words,
)
from gpumon.outputs.units import NONE, join_known
from gpumon.readings.format import phrase
from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.answer import Answer, GpuRange, Packed, Totals
from gpumon.sizing.ranges import range_text, shown_totals

_MOST_NAMED: Final = 3
"""Workloads that the sums leave out and that are named."""


class _NamedTotal(NamedTuple):
    """A field of the totals, its name, and its form."""

    field: str
    name: str
    form: Callable[[Reading], str]


_TOTALS: Final = (
    _NamedTotal("memory_bytes", "memory", gigabytes),
    _NamedTotal("price_per_hour", "price", with_words(amount_of_money, behind=" per hour")),
    _NamedTotal("price_per_mtok", "price of tokens", with_words(amount_of_money, behind=" per 1e6 output tokens")),
    _NamedTotal("power_w", "power", watts),
    _NamedTotal("tokens_per_s", "output", with_words(figure_text, behind=" tok/s")),
    _NamedTotal("tokens_per_j", "energy", with_words(figure_text, behind=" tok/J")),
)


def total_facts(answer: Answer) -> Iterator[FactLine]:
    """Facts of all workloads together: why there is no answer, the need, warnings, totals, and totals not known.

    A fact without a text is one that there is nothing to say about.
    """
    if answer.problem:
        yield FactLine("no answer", printable_text(answer.problem))
    has_totals = not isinstance(shown_totals(answer).instances, Missing)
    if has_totals:
        yield from _need_facts(answer)
    for warning in answer.warnings:
        yield FactLine("warning", printable_text(warning))
    if has_totals:
        for name, text in named_totals(answer).items():
            yield FactLine(name, text)
        yield FactLine("not known", _unknown_totals(shown_totals(answer)))


def _need_facts(answer: Answer) -> Iterator[FactLine]:
    """Instances, GPUs and servers that are needed, and the types of GPU."""
    sums = shown_totals(answer)
    counts = (
        count_text(sums.instances, "instance"),
        count_text(sums.gpus, "GPU"),
        count_text(sums.servers, "server"),
    )
    need = f"{join_known(counts)}, packed {PACKING_NAMES[answer.packing]}"
    if answer.gpus_range is not None:
        need = f"{_range_need(answer.gpus_range)}; by the fit {need}"
    if answer.without:
        yield FactLine("need", f"without {_names_left_out(answer.without)}: {need}")
    else:
        yield FactLine("need", join_known((need, other_packing_need(answer)), "; "))
        yield FactLine("GPU types", _gpu_types(needed_packing(answer)))


def _range_need(gpus_range: GpuRange) -> str:
    """A range of GPUs and servers, and why it is one: `27 to 34 GPUs, 4 to 5 servers (measured at one load only)`."""
    servers = range_text(gpus_range.servers_low, gpus_range.servers_high)
    noun = "server" if servers == "1" else "servers"
    gpus = range_text(gpus_range.low, gpus_range.high)
    return f"{gpus} GPUs, {servers} {noun} ({printable_text(gpus_range.reason)})"


def _names_left_out(workloads: Sequence[str]) -> str:
    """Names of the workloads that sums leave out: `a, b, c and 5 more`."""
    names = ", ".join(map(printable_name, workloads[:_MOST_NAMED]))
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


def named_totals(answer: Answer) -> dict[str, str]:
    """Name and text of the totals that are known.

    A price says so if it is of whole servers with free GPUs, watts say where they are from, and sums that workloads are
    missing from say so.
    """
    sums = shown_totals(answer)
    notes = {
        "power_w": _power_source(answer.power_sources),
        "price_per_hour": _priced_servers(needed_packing(answer)),
    }
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
    """Servers that a price includes, ` for 3 whole servers`, if GPUs of them stay free; else empty.

    Spare servers are in no layout: they count with as many GPUs as the largest server that is.
    """
    if isinstance(packed.servers, Missing) or isinstance(packed.gpus, Missing) or not packed.layout:
        return ""
    sizes = [len(server.gpus) for server in packed.layout]
    spare_gpus = (packed.servers - len(sizes)) * max(sizes)
    if packed.gpus < sum(sizes) + spare_gpus:
        return f" for {count_text(packed.servers, 'whole server')}"
    return ""


def _power_source(sources: Collection[str]) -> str:
    """Source of the watts of a sum, as it stands behind them; empty for typed ones, and if nothing is known."""
    if "limit" in sources:
        if len(sources) == 1:
            return " (the boards' limit)"
        return " (in part the boards' limit)"
    if "seen" in sources:
        return " (measured)"
    return ""


def _gpu_types(packed: Packed) -> str:
    """GPUs and servers of each type, and what they cost less than servers filled in the order of the file.

    Empty for a single type that costs no less: the need above has its numbers.
    """
    parts = []
    for share in packed.by_gpu:
        servers = count_text(float(share.servers), "server")
        parts.append(f"{figure_text(float(share.gpus))} {printable_name(share.gpu)} in {servers}")
    saving = packed.saving_per_hour
    if not isinstance(saving, Missing) and saving > 0:
        parts.append(f"{amount_of_money(saving)} per hour less than in the order of the file")
    elif len(parts) < 2:
        return ""
    return join_known(parts)
