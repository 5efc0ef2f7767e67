"""The whole plan in words: what is needed, its totals with their sources, warnings, and what is not known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import phrase
from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.answer import Answer, GpuRange, Packed, Totals
from gpumon.sizing.document.forms import (
    amount_of_money,
    count_text,
    figure_text,
    gigabytes,
    join_known,
    printable_name,
    printable_text,
    watts,
)
from gpumon.sizing.document.row import Row
from gpumon.sizing.ranges import range_text

_MOST_NAMED: Final = 3
"""Workloads that the sums leave out and that are named."""
PACKING_NAMES: Final = {"memory": "by memory alone", "busy": "by memory and busy share"}
"""Packing of a scenario -> how it packs."""
OTHER_PACKING: Final = {"memory": "busy", "busy": "memory"}

POWER_SOURCES: Final = {"limit": "the boards' limit, at most", "seen": "measured", "typed": "typed"}
"""Source of the watts of a workload -> its words."""


class _TotalForm(NamedTuple):
    """A field of the totals, its name, and how it is written."""

    field: str
    name: str
    form: Callable[[Reading], str]
    unit: str = ""


_TOTALS: Final = (
    _TotalForm("memory_bytes", "memory", gigabytes),
    _TotalForm("price_per_hour", "price", amount_of_money, " per hour"),
    _TotalForm("price_per_mtok", "price of tokens", amount_of_money, " per 1M output tokens"),
    _TotalForm("power_w", "power", watts),
    _TotalForm("tokens_per_s", "output", figure_text, " tok/s"),
    _TotalForm("tokens_per_j", "energy", figure_text, " tok/J"),
)
FORMS_OF_TOTALS: Final = {total.field: total.form for total in _TOTALS}
"""Field of the totals -> how it is written; those that are counts are not among them."""


class Total(NamedTuple):
    """A total that is known."""

    text: str
    """With its unit."""
    note: str = ""
    """The servers or the source that it is of, as that stands behind the text."""


class PlanDocument(NamedTuple):
    """The words for a whole plan. Rows without a text have nothing to say."""

    problem: Row
    """Why there is no whole answer."""
    without: str
    """Names of the workloads that the sums leave out, as they have no answer; empty where they leave out none."""
    partial: str
    """How many these are, as `without 1 of 2 workloads`."""
    instances: str
    """Instances that are needed; empty where the need is a range."""
    need: Row
    """GPUs and servers, or their range."""
    packing: str
    """How the instances are packed."""
    gpus_range: Row
    """Why the need is a range."""
    other_packing: Row
    """The need of the other packing, if it differs."""
    types: Row
    """GPUs and servers of each of several types."""
    warnings: tuple[Row, ...]
    totals: dict[str, Total]
    """Name -> total, of those that are known."""
    unknown: Row
    """Totals that are not known, with the reasons."""

    def rows(self) -> Iterator[Row]:
        """All rows from top to bottom, as a report prints them."""
        yield self.problem
        if self.need.text:
            without = f"without {self.without}: " if self.without else ""
            other = f"; {self.other_packing.label} {self.other_packing.text}" if self.other_packing.text else ""
            need = join_known((self.instances, self.need.text, f"packed {self.packing}{other}"))
            yield Row(self.need.label, (f"{without}{need}",))
            yield self.gpus_range
            yield self.types
        yield from self.warnings
        partial = f" ({self.partial})" if self.partial else ""
        for name, total in self.totals.items():
            yield Row(name, (f"{total.text}{total.note}{partial}",))
        yield self.unknown


def plan_document(answer: Answer) -> PlanDocument:
    """The words for the whole plan of an answer."""
    sums = answer.totals_without if answer.without else answer.totals
    has_totals = not isinstance(sums.instances, Missing)
    packed = needed_packing(answer)
    is_whole = has_totals and not answer.without
    return PlanDocument(
        problem=Row("no answer", (printable_text(answer.problem),)),
        without=_names_left_out(answer.without),
        partial=f"without {len(answer.without)} of {len(answer.workloads)} workloads" if answer.without else "",
        instances=count_text(sums.instances, "instance") if has_totals and answer.gpus_range is None else "",
        need=Row("need", _need(sums, answer.gpus_range) if has_totals else ()),
        packing=PACKING_NAMES[answer.packing],
        gpus_range=Row("range", _range_reason(sums, answer.gpus_range)),
        other_packing=Row(PACKING_NAMES[OTHER_PACKING[answer.packing]], _other_need(answer) if is_whole else ()),
        types=Row("GPU types", _gpu_types(packed) if is_whole else ()),
        warnings=tuple(Row("warning", (printable_text(warning),)) for warning in answer.warnings),
        totals=_known_totals(answer, sums, packed) if has_totals else {},
        unknown=Row("not known", _unknown_totals(sums) if has_totals else ()),
    )


def needed_packing(answer: Answer) -> Packed:
    """The packing that the scenario asks for."""
    return packings_by_name(answer)[answer.packing]


def other_packing(answer: Answer) -> Packed:
    """The packing that the scenario does not ask for."""
    return packings_by_name(answer)[OTHER_PACKING[answer.packing]]


def packings_by_name(answer: Answer) -> dict[str, Packed]:
    """Packing of a scenario -> what it comes to."""
    return {"memory": answer.plans.memory_only, "busy": answer.plans.busy_aware}


def _names_left_out(workloads: Sequence[str]) -> str:
    """Names of the workloads that sums leave out: `a, b, c and 5 more`."""
    names = ", ".join(map(printable_name, workloads[:_MOST_NAMED]))
    more = len(workloads) - _MOST_NAMED
    return f"{names} and {more:,} more" if more > 0 else names


def _need(sums: Totals, gpus_range: GpuRange | None) -> tuple[str, ...]:
    """GPUs and servers that are needed, or their range: `27 to 34 GPUs`, `4 to 5 servers`."""
    if gpus_range is None:
        return (count_text(sums.gpus, "GPU"), count_text(sums.servers, "server"))
    servers = range_text(gpus_range.servers_low, gpus_range.servers_high)
    noun = "server" if servers == "1" else "servers"
    return (f"{range_text(gpus_range.low, gpus_range.high)} GPUs", f"{servers} {noun}")


def _range_reason(sums: Totals, gpus_range: GpuRange | None) -> tuple[str, ...]:
    """Why the need is a range, and the numbers that the fit comes to; nothing for one number."""
    return () if gpus_range is None else (range_reason(gpus_range, _need(sums, None)),)


def range_reason(gpus_range: GpuRange, by_fit: Sequence[str]) -> str:
    """Why a need is a range: `measured at one load only: 31 GPUs by the fit, the ends are those of its error band`."""
    reason = printable_text(gpus_range.reason)
    return f"{reason}: {', '.join(by_fit)} by the fit, the ends are those of its error band"


def _other_need(answer: Answer) -> tuple[str, ...]:
    """The need of the other packing of the same workloads, if that differs."""
    needed = needed_packing(answer)
    other = other_packing(answer)
    if (other.gpus, other.servers) == (needed.gpus, needed.servers):
        return ()
    if isinstance(other.gpus, Missing):
        return ("there is no room",)
    return (count_text(other.gpus, "GPU"), count_text(other.servers, "server"))


def _unknown_totals(sums: Totals) -> tuple[str, ...]:
    """The totals that are not known, with the reasons."""
    values = [(total.name, getattr(sums, total.field)) for total in _TOTALS]
    return tuple(f"{name} ({phrase(value)})" for name, value in values if isinstance(value, Missing))


def _known_totals(answer: Answer, sums: Totals, packed: Packed) -> dict[str, Total]:
    """Name -> total, of those that are known: a price says of which servers it is, watts where they are from."""
    notes = {"price_per_hour": _priced_servers(packed), "power_w": _power_source(answer.power_sources)}
    texts = [(total, total.form(getattr(sums, total.field))) for total in _TOTALS]
    return {total.name: Total(f"{text}{total.unit}", notes.get(total.field, "")) for total, text in texts if text}


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
    """Source of the watts of a sum, as it stands behind them; empty if nothing is known."""
    if not sources:
        return ""
    if "limit" in sources:
        return f" ({POWER_SOURCES['limit']})" if len(sources) == 1 else " (in part the boards' limit)"
    return f" ({POWER_SOURCES['seen' if 'seen' in sources else 'typed']})"


def _gpu_types(packed: Packed) -> tuple[str, ...]:
    """GPUs and servers of each type, and what they cost less than servers filled in their order.

    Nothing for a single type that costs no less: the need has its numbers.
    """
    parts = [
        f"{count.gpus:,} {printable_name(count.gpu)} in {count_text(float(count.servers), 'server')}"
        for count in packed.by_gpu
    ]
    saving = packed.saving_per_hour
    if not isinstance(saving, Missing) and saving > 0:
        return (*parts, f"{amount_of_money(saving)} per hour less than with servers filled in their order")
    return tuple(parts) if len(parts) > 1 else ()
