"""The page of what is free in a fleet: GPUs by type and host, room for models, faults of many hosts, versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from gpumon.fleet.capacity import Capacity, Domain, ModelSpare, TypeCapacity, Use, VersionSkew, capacity_of
from gpumon.fleet.common_faults import CommonFault, common_faults, hosts_text
from gpumon.readings.format import cut, spans
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.triage.marks import MARKS
from gpumon.tui.fleet.moment import FleetMoment
from gpumon.tui.line import Row, wrap_line
from gpumon.tui.palette import Palette
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import Pane

_NAME_CELLS: Final = 28
"""Cells of the name at the start of a line."""
_NONE: Final = "–"


class FreePage(Pane):
    """Free GPUs and what would fit on them, at the moment that the fleet's screen shows."""

    TITLE: str = "what is free"
    ZOOMS: ClassVar[bool] = False

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._moment: FleetMoment | None = None
        self._capacity: Capacity | None = None
        self._faults: Sequence[CommonFault] = ()

    def show_fleet(self, moment: FleetMoment | None) -> None:
        """Paint a moment of the fleet."""
        if moment is None or moment is self._moment:
            return
        self._moment = moment
        self._capacity = capacity_of(moment.fleet, moment.models)
        self._faults = common_faults(moment.fleet)
        self.update()

    def is_title(self, row: Row) -> bool:
        """Whether a line is the title of a section."""
        return len(row) == 1 and row[0][1] == "muted"

    def body(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002 - the signature of Pane
        """The sections that have something to tell."""
        if self._capacity is None:
            return wrap_line("waiting for the first answer …", width, "muted")
        lines: list[Row] = []
        for title, rows in _sections(self._capacity, self._faults):
            if not rows:
                continue
            if lines:
                lines.append(())
            lines += [((f" {title}", "muted"),), *rows]
        return lines or wrap_line("no GPU is reported", width, "muted")


def _sections(capacity: Capacity, faults: Sequence[CommonFault]) -> Iterator[tuple[str, Sequence[Row]]]:
    """Title and lines of each section; a section may have none."""
    yield "the same on many hosts", [_fault_row(fault) for fault in faults]
    yield "GPUs by type", [row for found in capacity.types for row in _type_rows(found)]
    yield "free on", [_domain_row(domain) for domain in capacity.domains if domain.free]
    yield "room for more engines", [_spare_row(spare) for spare in capacity.models]
    yield "free of all, by label", [_group_row(*group) for group in capacity.groups.items()]
    yield "versions that differ", [row for skew in capacity.skews for row in _skew_rows(skew)]


def _named(name: str) -> str:
    """A name from outside in the cells of the first column."""
    return f" {cut(clean(name, 80), _NAME_CELLS):<{_NAME_CELLS}}"


def _fault_row(fault: CommonFault) -> Row:
    """A fault of several hosts."""
    mark = MARKS[fault.level]
    return ((f" {mark.glyph} ", mark.tone), (clean(f"{fault.words}: {hosts_text(fault.hosts)}", 200), "text"))


def _type_rows(found: TypeCapacity) -> Iterator[Row]:
    """GPUs of a type by their use; then what fits."""
    free = found.uses.get(Use.FREE.value, 0)
    others = [f"{count} {use}" for use, count in found.uses.items() if use != Use.FREE.value]
    yield (
        (_named(found.gpu_type), "text"),
        (f" {free} of {found.gpus} free", "text"),
        (f"  {', '.join(others)}", "muted"),
    )
    if not free:
        return
    fits = ", ".join(f"TP {size} x {count}" for size, count in found.fits.items() if count)
    where = hosts_text([clean(host, 40) for host in found.largest_on], 3)
    text = f"fits {fits}; TP {found.largest_tp} on {where}; {_percent(found.fragmented_ratio)} fragmented"
    yield ((" " * (_NAME_CELLS + 2), "text"), (text, "muted"))


def _domain_row(domain: Domain) -> Row:
    """Free GPUs of a host."""
    free = f" {len(domain.free)} of {domain.gpus}: {spans(domain.free)}"
    return ((_named(domain.host), "text"), (free, "text"), (f"  {clean(domain.gpu_type, 40)} {domain.link}", "muted"))


def _spare_row(spare: ModelSpare) -> Row:
    """Room for a model."""
    more = f" {_count(spare.more)} more fit"
    load = f"run {_count(spare.running)}, wait {_count(spare.waiting)}, KV {_percent(spare.kv_usage_ratio)}"
    of_now = f"  {spare.replicas} x {_count(spare.gpus_each)} GPUs now; {load}"
    return ((_named(spare.model), "text"), (more, "text"), (of_now, "muted"))


def _group_row(label: str, values: Mapping[str, tuple[int, int]]) -> Row:
    """Free and all GPUs by the values of a label."""
    texts = [f"{clean(value, 40) or _NONE} {free}/{gpus}" for value, (free, gpus) in values.items()]
    return ((_named(label), "text"), (f" {'  '.join(texts)}", "text"))


def _skew_rows(skew: VersionSkew) -> Iterator[Row]:
    """A line for each version of a program."""
    name = skew.program
    for version, hosts in skew.versions:
        where = hosts_text([clean(host, 40) for host in hosts])
        yield ((_named(name), "text"), (f" {clean(version, 40)}", "text"), (f"  {len(hosts)}: {where}", "muted"))
        name = ""


def _percent(reading: Reading) -> str:
    """A share in percent."""
    return _NONE if isinstance(reading, Missing) else f"{reading:.0%}"


def _count(reading: Reading) -> str:
    """A whole number."""
    return _NONE if isinstance(reading, Missing) else f"{reading:,.0f}"
